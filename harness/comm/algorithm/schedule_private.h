/* schedule_private.h: the families of algorithms. Each fills the step of a round, which is empty
 * when it comes, and tells how many rounds there are. */
#ifndef DPB_SCHEDULE_PRIVATE_H
#define DPB_SCHEDULE_PRIVATE_H

#include "dpb_schedule.h"

/* A consecutive part of the buffer, split over ranks as dpb_coll_shard() does. */
struct dpb_schedule_part {
    int64_t first, count;
};

static inline struct dpb_schedule_part dpb_schedule_shard(struct dpb_schedule_part whole, int ranks,
                                                          int rank)
{
    struct dpb_schedule_part shard;
    shard.count = dpb_coll_shard(whole.count, ranks, rank, &shard.first);
    shard.first += whole.first;
    return shard;
}

static inline void dpb_schedule_send(struct dpb_schedule_step *step, int to,
                                     struct dpb_schedule_part part)
{
    step->to = to;
    step->send_first = part.first;
    step->send_count = part.count;
}

static inline void dpb_schedule_receive(struct dpb_schedule_step *step, int from,
                                        struct dpb_schedule_part part)
{
    step->from = from;
    step->receive_first = part.first;
    step->receive_count = part.count;
}

/* The largest power of two that is not above `ranks`, and its logarithm. */
static inline int dpb_schedule_log2(int ranks)
{
    int log2 = 0;
    while ((int64_t)2 << log2 <= ranks)
        log2++;
    return log2;
}

/* ---- schedule_ring.c ---- */
int64_t dpb_schedule_ring_rounds(const struct dpb_schedule *schedule);
void dpb_schedule_ring(const struct dpb_schedule *schedule, int64_t round,
                       struct dpb_schedule_step *step);
int64_t dpb_schedule_hierarchical_rounds(const struct dpb_schedule *schedule);
void dpb_schedule_hierarchical(const struct dpb_schedule *schedule, int64_t round,
                               struct dpb_schedule_step *step);

/* ---- schedule_recursive.c ---- */
int64_t dpb_schedule_recursive_rounds(const struct dpb_schedule *schedule);
void dpb_schedule_recursive(const struct dpb_schedule *schedule, int64_t round,
                            struct dpb_schedule_step *step);

/* ---- schedule_tree.c ---- */
int64_t dpb_schedule_tree_rounds(const struct dpb_schedule *schedule);
void dpb_schedule_tree(const struct dpb_schedule *schedule, int64_t round,
                       struct dpb_schedule_step *step);
int64_t dpb_schedule_binomial_rounds(const struct dpb_schedule *schedule);
void dpb_schedule_binomial(const struct dpb_schedule *schedule, int64_t round,
                           struct dpb_schedule_step *step);

#endif

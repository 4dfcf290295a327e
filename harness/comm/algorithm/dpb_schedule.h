/* dpb_schedule.h: what one rank does in a collective, as messages between pairs of ranks.
 *
 * A schedule is a number of rounds, the same on all ranks. In a round a rank sends at most one
 * range of its buffer and receives at most one, which it adds to its own or puts in its place; a
 * message is sent and received in the same round. Ranges are elements of the whole buffer and lie
 * at the same place on both sides. Nothing is allocated: a step is worked out when it is asked for.
 *
 * Executors: over send and receive, each round is one exchange, and what is received is held apart
 * until the round's own send has left. Over shared memory the receiver may read the sender's
 * buffer itself, once the sender has done all earlier rounds. It then needs no other waiting, also
 * for messages of no elements: whatever a rank overwrites has been read before by those it sent it
 * to. The one exception are steps that dpb_schedule_is_exchange() tells: both sides read and
 * overwrite the same range, and must do it together.
 *
 * Sums are of two numbers at a time, own and received, in either order (the result is the same), so
 * all ranks get the same bits. Orders of summation are in docs/collectives.md. */
#ifndef DPB_SCHEDULE_H
#define DPB_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "dpb_link_model.h"

#ifdef __cplusplus
extern "C" {
#endif

struct dpb_schedule {
    enum dpb_algorithm algorithm;
    enum dpb_coll_kind kind;
    int ranks, rank, root;
    int ranks_per_node; /* hierarchical; a divisor of ranks */
    int64_t count;
    int64_t chunk;  /* elements of a piece in a pipelined tree */
    int64_t rounds; /* set by dpb_schedule_init() */
};

struct dpb_schedule_step {
    int to;   /* -1: nothing is sent */
    int from; /* -1: nothing is received */
    int64_t send_first, send_count;
    int64_t receive_first, receive_count;
    bool reduces;         /* add what is received to the own range; otherwise put it there */
    bool own_is_raw;      /* for reductions with a scale: the own range has not been scaled yet; */
    bool received_is_raw; /* nor has what is received */
};

/* Set up the schedule of `rank`, which the algorithm must have (dpb_algorithm_check()) and which is
 * not direct, nor all-to-all; at least 2 ranks. */
void dpb_schedule_init(struct dpb_schedule *schedule, const struct dpb_algorithm_setup *setup,
                       enum dpb_coll_kind kind, int rank, int root, int64_t count,
                       size_t element_bytes);

/* The step of a round, 0 to rounds - 1. */
void dpb_schedule_step(const struct dpb_schedule *schedule, int64_t round,
                       struct dpb_schedule_step *step);

static inline bool dpb_schedule_is_exchange(const struct dpb_schedule_step *step)
{
    return step->reduces && step->to == step->from && step->send_first == step->receive_first &&
           step->send_count == step->receive_count;
}

#ifdef __cplusplus
}
#endif
#endif

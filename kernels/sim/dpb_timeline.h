/* dpb_timeline.h: virtual time of many ranks that do the same: the clock of simulated clusters.
 *
 * One timeline is all ranks. Each has a compute stream and a host, whose clocks are arrays with one
 * entry per rank; what the ranks transfer together (a collective) happens once, in the order of its
 * start, from when the last rank is ready. That is exact for ranks that execute the same sequence,
 * and costs O(ranks) per operator; ranks that nothing makes different are one.
 *
 * Compute and transfers slow each other down while both run (piecewise constant rates): compute
 * goes at 1 / (1 + compute_slowdown), the transfer at 1 / (1 + slowdown). A transfer goes at one
 * speed for all ranks; it sees the average rank's compute.
 *
 * Times are nanoseconds in double: whole ones are exact for a hundred days. */
#ifndef DPB_TIMELINE_H
#define DPB_TIMELINE_H

#include <stdbool.h>
#include <stdint.h>

#include "dpb_status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How the time of an operator differs between ranks and steps. Shares of the operator's time. */
struct dpb_timeline_noise {
    double rank_sd;   /* normal, drawn for each rank and step alone */
    double common_sd; /* normal, drawn for each step, the same for all ranks: a maximum over more
                         ranks does not grow by it */
    double tail_share, tail_mean; /* so large a share of rank-steps takes Exp(tail_mean) longer */
    int slow_ranks;               /* the last ranks, always ... */
    double slow_by;               /* ... slower by this */
};

struct dpb_timeline_config {
    int ranks;
    int watched; /* the rank whose spans are told */
    uint64_t seed;
    struct dpb_timeline_noise noise;
    double launch_ns; /* host time to launch an operator */
    bool in_thread;   /* the host waits for every operator: a CPU that computes in the caller */
};

typedef struct dpb_timeline dpb_timeline;

/* Of the watched rank. */
struct dpb_timeline_span {
    double start_ns, end_ns;
};

/* DPB_ERR_USAGE (logged) for ranks below 1, a negative or not finite share, and the like. */
dpb_status dpb_timeline_new(const struct dpb_timeline_config *config, dpb_timeline **timeline);
void dpb_timeline_free(dpb_timeline *timeline);
int dpb_timeline_ranks(const dpb_timeline *timeline);

/* Draw the noise of a step. Before the first call there is none. */
void dpb_timeline_step_begin(dpb_timeline *timeline, int64_t step);

/* Every host is busy for so long. */
void dpb_timeline_host(dpb_timeline *timeline, double ns);
/* Launch an operator that takes `alone_ns` when nothing disturbs it. `span` may be NULL. */
void dpb_timeline_compute(dpb_timeline *timeline, double alone_ns, struct dpb_timeline_span *span);
/* Every host waits for its compute stream; or until `until_ns`. */
void dpb_timeline_host_wait_compute(dpb_timeline *timeline);
void dpb_timeline_host_until(dpb_timeline *timeline, double until_ns);
/* The clock of the watched rank's host. */
double dpb_timeline_host_ns(const dpb_timeline *timeline);

struct dpb_timeline_transfer {
    double alone_ns;         /* undisturbed, from the moment when all are there */
    double compute_slowdown; /* of compute while it is under way */
    double slowdown;         /* of it while compute runs */
    double not_before_ns;    /* 0: as soon as all ranks are ready */
};

/* Start a transfer of what the compute streams have done so far. The result is its number. The
 * numbers go up by one. Of all but the last DPB_TIMELINE_TRANSFERS_KEPT it is forgotten when they
 * ended: they count as ended when the oldest that is kept began. Of more than that under way, the
 * oldest is taken to end without more compute beside it. */
#define DPB_TIMELINE_TRANSFERS_KEPT 4096
int64_t dpb_timeline_transfer(dpb_timeline *timeline, const struct dpb_timeline_transfer *transfer);
/* Compute streams wait for its end. */
void dpb_timeline_wait(dpb_timeline *timeline, int64_t transfer);
/* When it ends, no more compute coming before that. */
double dpb_timeline_finish(dpb_timeline *timeline, int64_t transfer);
/* Has it ended by `now_ns`? Its end is not known before compute has come so far: then it is taken
 * that no more comes. */
bool dpb_timeline_has_ended(const dpb_timeline *timeline, int64_t transfer, double now_ns);
/* When the watched rank was ready for it, when all were and it began, and when it ended: known
 * after one of the two above. */
struct dpb_timeline_transfer_times {
    double ready_ns, start_ns, end_ns;
};
void dpb_timeline_transfer_times(const dpb_timeline *timeline, int64_t transfer,
                                 struct dpb_timeline_transfer_times *times);

/* Clocks of the compute streams: of the watched rank, of the last, and their mean. */
double dpb_timeline_watched_ns(const dpb_timeline *timeline);
double dpb_timeline_last_ns(const dpb_timeline *timeline);
double dpb_timeline_mean_ns(const dpb_timeline *timeline);
/* Of one rank. */
double dpb_timeline_rank_ns(const dpb_timeline *timeline, int rank);
/* Every clock of every rank becomes the last one's: a barrier. Transfers must have been waited for.
 */
void dpb_timeline_align(dpb_timeline *timeline);
/* Sum over the operators so far: how long they took of the mean rank, and how long alone. */
double dpb_timeline_busy_ns(const dpb_timeline *timeline);
double dpb_timeline_alone_ns(const dpb_timeline *timeline);

#ifdef __cplusplus
}
#endif
#endif

/* rank_steps.h: the steps of all ranks, read from what they reported (dpb_worker.h).
 *
 * The ranks of one host share the clock, so that their instants can be compared; those of different
 * hosts do not (rank_clocks.h). Step times are therefore those of the ranks on rank 0's host: what
 * that says of all is in docs/decisions/0002-step-time.md. */
#ifndef RANK_STEPS_H
#define RANK_STEPS_H

#include <stddef.h>
#include <stdint.h>

#include "dpb_launcher.h"

/* Which series of steps, which the ranks begin together. */
enum dpb_step_series {
    DPB_STEPS_TIMED,
    DPB_STEPS_TRACED
};

/* Number of steps of a series; 0 without ranks. */
size_t dpb_rank_steps_count(const struct dpb_launch_result *result, enum dpb_step_series series);

/* The time of step s of a series, nanoseconds: from the end of the step before, when its last rank
 * was through, to its own end, on rank 0's host. Every rank must have reported. */
int64_t dpb_rank_steps_ns(const struct dpb_launch_result *result, enum dpb_step_series series,
                          size_t s);

/* Median of these times; NaN without steps or memory. */
double dpb_rank_steps_median_ns(const struct dpb_launch_result *result,
                                enum dpb_step_series series);

#endif

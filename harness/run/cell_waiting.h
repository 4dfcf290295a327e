/* cell_waiting.h: which ranks the others waited for, from the traced collectives of gradients.
 *
 * A collective ends on all ranks at about the same time, so the rank that came last waited least.
 * What a rank waited is taken on its own clock: from its start of a collective until the last rank
 * was ready where the comm tells (shm), else the length of the collective on it, less that of the
 * shortest (NCCL's kernels, MPI). No two clocks are compared, so it holds across hosts. */
#ifndef CELL_WAITING_H
#define CELL_WAITING_H

#include <stddef.h>

#include "dpb_event.h"
#include "dpb_json.h"
#include "dpb_launcher.h"
#include "dpb_status.h"

#define CELL_WAITING_LATE_RANKS 5 /* that a record names */

/* The record's key `waiting`:
 *   {"collectives": of which every rank's time is known; those of a bucket in a step are one,
 *    "late_ranks": [{"rank", "host", "last_share": of those collectives, "others_waited_ns": mean
 *                   wait of another rank when it was last, sum over the collectives}], most waited
 *                   for first, at most CELL_WAITING_LATE_RANKS,
 *    "wait_bounds_ns": [...], "wait_counts": [[...] per rank]: how many collectives a rank waited
 *                   less than the bound, the last one without a bound}
 * or absent with the reason. Collectives that a rank has no event of are left out. */
dpb_status cell_waiting_put(const struct dpb_launch_result *result, const struct dpb_event *events,
                            size_t count, dpb_json *record);

#endif

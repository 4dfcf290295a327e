/* launch_clock.h (private): how far the ranks' clocks are from the launcher's.
 *
 * Ranks of one machine and one time name space read one clock: a domain. Of each domain, other than
 * the launcher's own, one rank is asked for its time in a number of round trips; its answer was
 * read between question and return, so that half of the shortest round trip bounds the error
 * (Cristian, "Probabilistic clock synchronization", 1989). */
#ifndef DPB_RUN_LAUNCH_CLOCK_H
#define DPB_RUN_LAUNCH_CLOCK_H

#include "dpb_world.h"
#include "launch.h"

enum launch_clock_when {
    LAUNCH_CLOCK_START,
    LAUNCH_CLOCK_END,
    LAUNCH_CLOCK_TIMES
};

struct launch_clocks;

/* Domains of `ranks` claims; `own` is the launcher's. NULL when out of memory. */
struct launch_clocks *launch_clocks_new(const struct dpb_world_claim *claim, int ranks,
                                        const struct dpb_world_claim *own);
void launch_clocks_free(struct launch_clocks *clocks); /* NULL is fine */

/* Ask, for some seconds at most; a rank that does not answer leaves its domain without an offset.
 * What else the ranks say meanwhile is taken as ever. */
dpb_status launch_clocks_measure(struct launch *l, struct launch_clocks *clocks,
                                 enum launch_clock_when when);
/* An answer has come. */
void launch_clocks_answer(struct launch_clocks *clocks, const struct dpb_clock_reading *reading);

/* {"domain", "offset_ns", "error_ns", "drift_ns"} of a rank; what is not known is null, with a
 * reason. Caller owns. */
dpb_json *launch_clocks_json(const struct launch_clocks *clocks, int r);

#endif

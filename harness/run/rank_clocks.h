/* rank_clocks.h: whose clock a rank's times are of, read from what the launcher added to its result
 * (dpb_launcher.h).
 *
 * Ranks of one host share its monotonic clock; those of different hosts do not, and the difference
 * of two instants of different hosts is no duration. Everything that compares ranks' instants asks
 * here first. The launcher's estimates of the offsets serve to draw the ranks of all hosts beside
 * each other, and for nothing else. */
#ifndef RANK_CLOCKS_H
#define RANK_CLOCKS_H

#include <stdbool.h>
#include <stdint.h>

#include "dpb_json.h"
#include "dpb_launcher.h"
#include "dpb_status.h"

struct rank_clock {
    int domain;       /* 0: rank 0's; ranks of one domain share a clock */
    bool is_placed;   /* the shift is known: both domains' offsets were measured */
    int64_t shift_ns; /* to add to this rank's times, to draw them on rank 0's clock: the best
                         estimate of its domain; 0 in domain 0, and where it is not placed */
    int64_t error_ns; /* bound of that, both estimates' errors */
    int64_t drift_ns; /* by how much its offset from the launcher's clock changed in the launch */
    bool knows_drift;
};

struct rank_clocks {
    int ranks, domains;
    struct rank_clock *of; /* per rank */
};

/* Is rank r's clock that of rank 0? Ranks without a "clock" were started on the launcher's host:
 * they share one. */
bool rank_clock_is_first(const struct dpb_launch_result *result, int r);

/* All ranks' clocks; every rank must have reported. DPB_ERR_NO_MEMORY. */
dpb_status rank_clocks_read(const struct dpb_launch_result *result, struct rank_clocks *clocks);
void rank_clocks_release(struct rank_clocks *clocks);

/* "node1.example", or "" where the launcher said nothing of it. The result's. */
const char *rank_host(const struct dpb_launch_result *result, int r);

/* For the record and the trace: {"domains", "ranks": [{"rank", "host", "domain", "shift_ns",
 * "error_ns", "drift_ns"}]}, absent with the reason where they were not measured. Caller owns. */
dpb_json *rank_clocks_json(const struct dpb_launch_result *result,
                           const struct rank_clocks *clocks);

#endif

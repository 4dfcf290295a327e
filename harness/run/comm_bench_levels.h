/* comm_bench_levels.h: how fast data goes inside nodes and between them, for `dpbench comm`.
 *
 * With t the mean time of an iteration:
 *
 *     between nodes  (bytes that all ranks of a node send to other nodes) / t, of the node that
 *                    sends most: to compare with the rate of a node's network cards in one
 * direction inside nodes   (bytes that a rank sends to ranks of its node) / t, of the rank that
 * sends most: to compare with the rate of its link there in one direction
 *
 * Both are rates over the whole collective, during which a level may have been idle. */
#ifndef COMM_BENCH_LEVELS_H
#define COMM_BENCH_LEVELS_H

#include <stdint.h>

#include "comm_bench_rank.h"
#include "dpb_json.h"
#include "dpb_launcher.h"

struct comm_levels {
    int nodes;
    const char *why;                               /* why the bytes are not known; NULL: they are */
    int64_t node_between_bytes, rank_inside_bytes; /* of those that send most */
};

/* Of row `row` of what the ranks reported. Nodes are those that the launcher put ranks on
 * ("place"), where it is several, or else `ranks_per_node` ranks each. Ranks of a node are
 * consecutive. */
void comm_levels_measured(const struct dpb_launch_result *result, size_t row, int ranks_per_node,
                          struct comm_levels *levels);

/* Of virtual ranks, where `source` (dpb_network_time) says by which algorithm; the first node
 * stands for all. */
void comm_levels_simulated(const struct comm_row *row, int ranks, int ranks_per_node,
                           const char *source, struct comm_levels *levels);

/* "nodes", "node_between_bytes", "rank_inside_bytes", "between_bw_bytes_per_s" and
 * "inside_bw_bytes_per_s" of a record; absent with the reason. */
void comm_levels_put(const struct comm_levels *levels, double mean_ns, dpb_json *record);

#endif

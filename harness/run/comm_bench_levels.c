#include "comm_bench_levels.h"

#include <string.h>

#include "dpb_link_model.h"

#define FLAT_RING                                                                                  \
    "flat ring" /* how the sources of dpb_network.h begin that are a ring over all                 \
                 */

static void keep_most(int64_t *most, int64_t bytes)
{
    *most = bytes > *most ? bytes : *most;
}

/* Where the launcher put the rank, where it put them on several hosts; else as it was asked for. */
static int node_of(const struct dpb_launch_result *result, int r, int ranks_per_node)
{
    const int last = result->rank_count - 1;
    const bool is_spread = dpb_json_as_int(dpb_json_path(result->ranks[last], "place/node"), 0) > 0;
    if (is_spread)
        return (int)dpb_json_as_int(dpb_json_path(result->ranks[r], "place/node"), 0);
    return r / ranks_per_node;
}

void comm_levels_measured(const struct dpb_launch_result *result, size_t row, int ranks_per_node,
                          struct comm_levels *levels)
{
    int64_t of_node = 0;
    int node = -1;
    *levels = (struct comm_levels){
            .nodes = 1 + node_of(result, result->rank_count - 1, ranks_per_node)};
    for (int r = 0; r < result->rank_count; r++) {
        const dpb_json *rank = dpb_json_at(dpb_json_get(result->ranks[r], "rows"), row);
        const dpb_json *between = dpb_json_get(rank, "wire_between_bytes");
        if (dpb_json_type(between) != DPB_JSON_INT) {
            levels->why = "the comm runs a library's own algorithm, which does not tell what it "
                          "sends to other nodes";
            return;
        }
        const int64_t bytes = dpb_json_as_int(between, 0);
        if (node_of(result, r, ranks_per_node) != node)
            of_node = 0;
        node = node_of(result, r, ranks_per_node);
        of_node += bytes;
        keep_most(&levels->node_between_bytes, of_node);
        keep_most(&levels->rank_inside_bytes,
                  dpb_json_as_int(dpb_json_get(rank, "wire_bytes"), 0) - bytes);
    }
}

void comm_levels_simulated(const struct comm_row *row, int ranks, int ranks_per_node,
                           const char *source, struct comm_levels *levels)
{
    struct dpb_algorithm_setup setup = {
            .algorithm = DPB_ALGORITHM_RING, .ranks = ranks, .ranks_per_node = ranks_per_node};
    char ignored[256];
    int64_t of_node = 0;
    *levels = (struct comm_levels){.nodes = (ranks + ranks_per_node - 1) / ranks_per_node};
    /* An all-to-all has to send the same, whatever it is made of. */
    if (row->kind != DPB_COLL_ALL_TO_ALL &&
        (strncmp(source, FLAT_RING, strlen(FLAT_RING)) != 0 ||
         dpb_algorithm_check(&setup, row->kind, ignored, sizeof(ignored)) < 0)) {
        levels->why = "what the time is from does not tell what is sent to other nodes";
        return;
    }
    for (int r = 0; r < ranks_per_node && r < ranks; r++) {
        const struct dpb_wire_levels of_rank = dpb_setup_wire_levels(
                &setup, row->kind, r, 0, row->count, dpb_dtype_bytes(row->dtype));
        of_node += of_rank.between_bytes;
        keep_most(&levels->rank_inside_bytes, of_rank.inside_bytes);
    }
    levels->node_between_bytes = of_node;
}

static void put_level(dpb_json *record, const char *bytes_key, const char *rate_key, int64_t bytes,
                      double mean_ns, const char *why)
{
    if (why) {
        dpb_json_set_absent(record, bytes_key, why);
        dpb_json_set_absent(record, rate_key, why);
        return;
    }
    dpb_json_set_int(record, bytes_key, bytes);
    if (mean_ns > 0)
        dpb_json_set_real(record, rate_key, (double)bytes / mean_ns * 1e9);
    else
        dpb_json_set_absent(record, rate_key, "it took no time");
}

void comm_levels_put(const struct comm_levels *levels, double mean_ns, dpb_json *record)
{
    const char *why = levels->nodes < 2 ? "all ranks are on one node" : levels->why;
    dpb_json_set_int(record, "nodes", levels->nodes);
    put_level(record, "node_between_bytes", "between_bw_bytes_per_s", levels->node_between_bytes,
              mean_ns, why);
    put_level(record, "rank_inside_bytes", "inside_bw_bytes_per_s", levels->rank_inside_bytes,
              mean_ns, why);
}

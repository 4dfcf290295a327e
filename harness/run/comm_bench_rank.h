/* comm_bench_rank.h: a rank's part of `dpbench comm`, and the job that asks for it. */
#ifndef COMM_BENCH_RANK_H
#define COMM_BENCH_RANK_H

#include <stdint.h>

#include "dpb_comm.h"
#include "dpb_json.h"
#include "dpb_options.h"
#include "dpb_registry.h"
#include "worker_link.h"

#define COMM_BENCH_ROWS "collectives" /* the key of the job that holds the rows */

/* One collective of one size. */
struct comm_row {
    enum dpb_coll_kind kind;
    enum dpb_dtype dtype;
    int64_t count; /* elements of the whole buffer */
};

/* As JSON for dpb_launch_config.job; caller owns. NULL when out of memory. */
dpb_json *comm_bench_job(const dpb_config *config, const struct comm_row *rows, size_t count);

/* Do the job and send
 *   {"type": "result", "rank", "pid", "comm", "device",
 *    "rows": [{"wrong", "wire_bytes", "wire_between_bytes" (of them to other nodes; null: not
 *    known), "samples_ns": []} or {"unsupported": true}, ...]}.
 * On failure `failed` is called before the other ranks are told to give up. */
dpb_status comm_bench_rank(const struct dpb_registry *registry, worker_link *link,
                           void (*failed)(dpb_status st));

#endif

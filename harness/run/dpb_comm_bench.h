/* dpb_comm_bench.h: collectives alone, on real ranks: `dpbench comm`.
 *
 * Definitions are those of nccl-tests (doc/PERFORMANCE.md): algbw = size / time, busbw = algbw *
 * factor (dpb_coll_busbw_factor()), where size is the whole buffer, also for reduce-scatter and
 * all-gather (P shards); GB is 1e9 bytes. The time of an iteration is the longest of the ranks;
 * a row's time is the mean over the iterations, as there, beside least, median and 99th percentile.
 *
 * On device "sim" nothing is run: times are those of a machine profile's network (dpb_network.h),
 * each with where it is from.
 *
 * Every collective works in place. Before the timed iterations, and after them, it runs once on
 * known integers, and every element of every rank's result is compared. */
#ifndef DPB_COMM_BENCH_H
#define DPB_COMM_BENCH_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dpb_comm.h"
#include "dpb_crew.h"
#include "dpb_json.h"
#include "dpb_network.h"
#include "dpb_options.h"
#include "dpb_registry.h"
#include "dpb_status.h"
#include "dpb_str.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DPB_COMM_BENCH_SCHEMA "dpb.comm/1"

/* How a rank calls a collective. */
enum dpb_comm_call {
    DPB_COMM_CALL_BLOCKING,  /* in its own thread, dpb_comm_run() */
    DPB_COMM_CALL_BACKGROUND /* started and waited for, as training steps do */
};

/* The struct behind the core table of this command (kind "experiment"). Of collective, dtype and
 * sizes one launch takes all values; the other lists make launches of their own. */
struct dpb_comm_bench_options {
    char device[DPB_OPTION_TEXT_BYTES], comm[DPB_OPTION_TEXT_BYTES];
    int collective; /* enum dpb_coll_kind */
    int dtype;      /* enum dpb_dtype */
    int call;       /* enum dpb_comm_call */
    char sizes[DPB_OPTION_TEXT_BYTES];
    int64_t ranks, ranks_per_node;
    int64_t iterations; /* DPB_AUTO: by the time of the warm-up */
    int64_t warmup;
    int64_t shuffle; /* 0: rows in the order given; N: in the Nth random order */
    bool bind;
    int64_t timeout_ns, stall_timeout_ns;
};

extern const struct dpb_option_table dpb_comm_bench_table;

/* This command's options: its core table, and those of the comms and devices. Static storage. */
const struct dpb_option_set *dpb_comm_bench_option_set(const struct dpb_registry *registry);

/* Bytes that "8B..256MiB:x4", "1MiB..4MiB:+1MiB", "1MiB..8MiB" (x2) or "3MB" stand for, appended to
 * `sizes`. DPB_ERR_USAGE with a phrase in `why`, which may be NULL. Nothing is logged. */
struct dpb_comm_sizes {
    int64_t *bytes;
    size_t count;
};
dpb_status dpb_comm_sizes_parse(const char *text, struct dpb_comm_sizes *sizes, char why[256]);
void dpb_comm_sizes_release(struct dpb_comm_sizes *sizes);

/* Records as a table for people, beside which that of nccl-tests can be read, or as CSV. `records`
 * is an array of objects of DPB_COMM_BENCH_SCHEMA. */
dpb_status dpb_comm_bench_text(const dpb_json *records, struct dpb_str *out);
dpb_status dpb_comm_bench_csv(const dpb_json *records, struct dpb_str *out);

/* Where device "sim" gets machine profiles: dpb_machine_networks (sim/dpb_machine_model.h). */
struct dpb_comm_bench_machines {
    /* A name of `dpbench list machines`, or a file; `set` replaces figures of it
     * ("inside.rate=600GB/s,..."). DPB_ERR_USAGE, logged. Close after use. */
    dpb_status (*open)(const char *name_or_path, const char *set, void **machine,
                       const struct dpb_network **network);
    void (*close)(void *machine);
};

struct dpb_comm_bench_config {
    const struct dpb_registry *registry;
    const struct dpb_settings *settings; /* the command line */
    dpb_crew *crew;                      /* who starts the ranks; NULL: this process. Borrowed */
    const char *out;                     /* folder, or NULL: runs/<UTC time>-comm */
    const volatile sig_atomic_t *interrupted;
    int cores;
    const struct dpb_comm_bench_machines *machines; /* NULL: device "sim" cannot be used */
    void (*progress)(void *ctx, const char *label, size_t launch, size_t launches); /* or NULL */
    void *progress_ctx;
};

struct dpb_comm_bench_result {
    dpb_json *records; /* array; caller frees */
    char *folder;      /* where they are; caller frees */
};

/* Launch and record everything; records.jsonl in the folder is replaced as a whole after every
 * launch. The result holds what there is, whatever the status: DPB_ERR_USAGE before anything runs;
 * the first failure of a launch; DPB_ERR_CHECK when an element was wrong. */
dpb_status dpb_comm_bench_run(const struct dpb_comm_bench_config *config,
                              struct dpb_comm_bench_result *result);

#ifdef __cplusplus
}
#endif
#endif

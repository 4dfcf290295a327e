/* dpb_worker.h: what a rank's process does, from its job to its result. */
#ifndef DPB_WORKER_H
#define DPB_WORKER_H

#include <stdbool.h>
#include <stdint.h>

#include "dpb_json.h"
#include "dpb_options.h"
#include "dpb_registry.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the launcher asks of every rank. */
/* Which steps a launch has: timed ones, then traced ones, in the same processes. A recorder that
 * wants a process of its own (DPB_RECORDER_OWN_PROCESS) is left out of that: traced steps are then
 * for a launch of their own, which warms up and traces, and times nothing. */
enum dpb_job_steps {
    DPB_JOB_TIMED_AND_TRACED,
    DPB_JOB_TRACED
};

struct dpb_job {
    const dpb_config *config; /* resolved cell */
    int data_ranks; /* one rank takes every batch as so many ranks would from their shards; 0: the
                       ranks are as many as they are */
    int64_t data_batches; /* its batch of a step is so many micro-batches of theirs, joined; 0: as
                             the cell says, one by one */
    bool verify;          /* replicas are compared after every step, nothing is timed or traced */
    bool integers;        /* the registry's integer workload instead of the config's: gradients
                             are summed, the optimizer is that workload's */
    int plant_rank; /* verify: this rank flips one bit after step plant_step, or the next one after
                 which replicas are compared; -1: none */
    int64_t plant_step;
    int nudge;        /* some roundings in every parameter, in this way from 1
                         (dpb_step_nudge_params()); 0: none */
    bool quiet;       /* no log lines: the failure is expected, its text is reported */
    bool keep_values; /* the ranks leave parameters and state in the launch's bulk memory */
    bool keep_first;  /* those after the first step too */
    int steps;        /* enum dpb_job_steps */
};

/* As JSON for dpb_launch_config.job; caller owns. NULL when out of memory. */
dpb_json *dpb_job_to_json(const struct dpb_job *job);

/* The main of a rank (verb DPB_WORKER_VERB): reads its job from the channel, trains, reports
 *   {"type": "result", "rank", "pid", "start_ns"[], "end_ns"[], "data_ns"[], "forward_ns"[],
 *    "backward_ns"[], "sync_ns"[], "optimizer_ns"[] (timed steps), "loss_sum"[], "samples"[] (all
 *    untraced steps), "traced_start_ns"[], "traced_end_ns"[], "events", "events_lost",
 *    "traced_wire_bytes" (that this rank sent in the traced steps), "traced_between_bytes" (of
 *    them to other nodes; null: not known), "recorder" (what it says of itself, or null), "device",
 *    "comm", "plan", "wire_ns_per_step", "exchanges", "memory", "peak_bytes", "comm_stats",
 *    "param_hash", "in_sync" (else replicas may differ), "replicas_compared" (steps of a
 *    verification), "planted", "test_correct", "test_samples", "dataset",
 *    "kept" (kept_values.h)}
 * or {"type": "error", "status", "text"}. Returns the exit code. */
int dpb_worker_main(const struct dpb_registry *registry);

#ifdef __cplusplus
}
#endif
#endif

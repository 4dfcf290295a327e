/* dpb_sim_step.h: training steps on virtual time: the strategy's own code over a schedule instead
 * of a network, one instance for all ranks.
 *
 * The order of hooks is the step engine's (dpb_step.h). What differs: segments take time on the
 * timeline and compute nothing; tick() is called at the virtual times that it asks for, before the
 * segment that begins after them; values are neither initialised nor compared. A gradient is ready
 * when the last rank has computed it: hosts are taken to run in step with their accelerators. */
#ifndef DPB_SIM_STEP_H
#define DPB_SIM_STEP_H

#include <stdint.h>

#include "dpb_comm.h"
#include "dpb_json.h"
#include "dpb_optimizer.h"
#include "dpb_recorder.h"
#include "dpb_schedule.h"
#include "dpb_status.h"
#include "dpb_strategy.h"
#include "dpb_timeline.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The network, as the simulation asks it. */
struct dpb_sim_network {
    void *ctx;
    /* A collective of `bytes` (the whole buffer) on the idle network. */
    dpb_status (*price)(void *ctx, enum dpb_coll_kind kind, int64_t bytes, double *alone_ns,
                        double *compute_slowdown, double *slowdown);
    /* A coordinator's small talk of `bytes` per rank (dpb_sync_services.exchange). */
    double (*exchange_ns)(void *ctx, int64_t bytes);
};

struct dpb_sim_step_config {
    const struct dpb_device_ops *device_ops; /* the device and the comm "sim" */
    const struct dpb_comm_ops *comm_ops;
    struct dpb_timeline_config timeline; /* ranks, noise, launches */
    const struct dpb_sim_rates *rates;   /* of what strategy and optimizer compute; borrowed */
    struct dpb_sim_network network;
    const struct dpb_schedule *schedule; /* borrowed */
    const struct dpb_strategy_ops *strategy;
    const void *strategy_options;
    bool bucket_given;
    int ranks_per_node;
    bool is_gpu;
    int64_t accumulate; /* micro-batches of a step, from 1 */
    struct dpb_optimizer_config optimizer;
    bool fused_optimizer;   /* one launch for all parameters */
    dpb_recorder *recorder; /* borrowed; NULL: nothing is recorded. Virtual times */
};

/* Of one step. Means are over ranks; a rank's step lasts from when all have ended the step before
 * until it is through. */
struct dpb_sim_step_times {
    double step_ns;    /* until the last rank is through */
    double mean_ns;    /* until the mean rank is */
    double forward_ns; /* phases of the watched rank */
    double backward_ns;
    double sync_ns;
    double optimizer_ns;
    double busy_ns;     /* mean rank: operators, slowed down by transfers or not */
    double alone_ns;    /* mean rank: the same without being slowed down */
    int64_t wire_bytes; /* that a rank sent */
    int64_t collectives;
};

typedef struct dpb_sim_step dpb_sim_step;

/* DPB_ERR_USAGE and the strategy's errors, logged. */
dpb_status dpb_sim_step_open(const struct dpb_sim_step_config *config, dpb_sim_step **sim);
void dpb_sim_step_close(dpb_sim_step *sim);
/* The next step, from 1. All ranks begin it together. A strategy may plan anew after it. */
dpb_status dpb_sim_step_run(dpb_sim_step *sim, struct dpb_sim_step_times *times);
/* The plan in force (borrowed until the next step). */
const struct dpb_unit_plan *dpb_sim_step_plan(const dpb_sim_step *sim);
/* The same with names, and what the strategy says of itself, as dpb_step_plan_json(). Caller owns.
 */
dpb_json *dpb_sim_step_plan_json(const dpb_sim_step *sim);
/* Its clocks, for a recorder whose ranges are in virtual time; borrowed. */
dpb_timeline *dpb_sim_step_timeline(dpb_sim_step *sim);

#ifdef __cplusplus
}
#endif
#endif

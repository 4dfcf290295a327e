/* dpb_strategy.h: the strategy interface: which gradients travel together, when, and when the
 * optimizer may go.
 *
 * A strategy owns no thread and reads no clock: it is told what happens (hooks) and asks for
 * collectives through services. So the same code drives real ranks and, with one instance for all
 * ranks, a simulated cluster. */
#ifndef DPB_STRATEGY_H
#define DPB_STRATEGY_H

#include <stdbool.h>
#include <stdint.h>

#include "dpb_bucket.h"
#include "dpb_comm.h"
#include "dpb_json.h"
#include "dpb_options.h"
#include "dpb_status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DPB_STRATEGY_OPS_VERSION 1

/* What a strategy may ask of the step engine. */
struct dpb_sync_services {
    void *ctx;
    /* Start a collective on a unit of the current plan; the gradients of its members are complete.
     * Reductions average over ranks (each contribution times 1/P, then summed). */
    dpb_status (*launch)(void *ctx, int unit, enum dpb_coll_kind kind);
    /* Everything launched on this unit is done before later work of the compute stream. */
    dpb_status (*wait)(void *ctx, int unit);
};

struct dpb_strategy_config {
    int world_size;
    const void *options; /* the strategy's own option struct */
    bool bucket_given; /* did the user give --bucket? PyTorch 2.x decides the first bucket by it */
    struct dpb_sync_services services;
};

typedef struct dpb_strategy dpb_strategy;

struct dpb_strategy_ops {
    int version; /* DPB_STRATEGY_OPS_VERSION */
    const char *name, *summary;
    unsigned flags;                         /* none yet */
    const struct dpb_option_table *options; /* optional: NULL */

    dpb_status (*open)(const struct dpb_strategy_config *config, dpb_strategy **strategy);
    void (*close)(dpb_strategy *strategy);

    /* The units for the next steps. `ready_order` is NULL before the first step and afterwards the
     * order in which gradients became ready in it. The strategy may keep `plan` and `model`: they
     * stay where they are and unchanged until the next call has succeeded. The engine releases the
     * plan; on failure there is none. */
    dpb_status (*plan)(dpb_strategy *strategy, const struct dpb_model *model,
                       const int *ready_order, struct dpb_unit_plan *plan);
    /* Optional. After step number `step` (from 1): does it want plan() again? The same answer on
     * every rank. */
    bool (*replan_after)(dpb_strategy *strategy, int64_t step);

    /* Hooks, in the order of a step; all optional except grad_ready and before_optimizer. */
    dpb_status (*step_begin)(dpb_strategy *strategy, int64_t step);
    dpb_status (*grad_ready)(dpb_strategy *strategy, int param);
    dpb_status (*backward_end)(dpb_strategy *strategy);
    dpb_status (*before_optimizer)(dpb_strategy *strategy);
    dpb_status (*after_optimizer)(dpb_strategy *strategy);
    dpb_status (*step_end)(dpb_strategy *strategy);

    /* Optional. Add what the plan was made with to its description ("first_bucket_bytes"). */
    void (*describe)(dpb_strategy *strategy, dpb_json *plan);
};

struct dpb_strategy_base {
    const struct dpb_strategy_ops *ops;
};

dpb_status dpb_strategy_ops_check(const struct dpb_strategy_ops *ops);

/* The strategies of this room: `none`, one fused all-reduce after backward; `naive`, one all-reduce
 * per tensor after it; `ddp`, PyTorch DistributedDataParallel. */
extern const struct dpb_strategy_ops dpb_strategy_none_ops;
extern const struct dpb_strategy_ops dpb_strategy_naive_ops;
extern const struct dpb_strategy_ops dpb_strategy_ddp_ops;

/* Options of ddp (table owner "ddp"): bucket, first-bucket, overlap. */
struct dpb_ddp_options {
    int64_t bucket_bytes;
    int64_t first_bucket_bytes; /* DPB_AUTO: 1 MiB when --bucket was left at its default, else as
                                   --bucket (PyTorch 2.x, bucket_bytes_cap_default) */
    bool overlap;
};

#ifdef __cplusplus
}
#endif
#endif

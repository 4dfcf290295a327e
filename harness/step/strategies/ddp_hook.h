/* ddp_hook.h: communication hooks of `ddp` (DDP's register_comm_hook): what replaces the all-reduce
 * of a bucket.
 *
 * A hook works in stages. A stage computes on the compute stream and starts collectives; the next
 * stage of that bucket comes when they are complete, which `ddp` looks for whenever a gradient
 * becomes ready, and waits for after backward. Stages of different buckets never change places: the
 * first stage of bucket u + 1 comes after the last stage of bucket u, as with NCCL, where a chain
 * of futures is enqueued as a whole; so every rank starts the same collectives in the same order,
 * and only what is complete there decides when. A hook with one stage never holds back a bucket.
 *
 * The bucket holds the plain gradients, not divided: the hook averages (services->average). */
#ifndef DPB_DDP_HOOK_H
#define DPB_DDP_HOOK_H

#include "dpb_strategies.h"

#define DDP_HOOK_COLLECTIVES_MAX 2 /* of a stage */

struct ddp_hook_config {
    int rank, world_size; /* at least 2: with one rank there is no hook */
    const struct dpb_ddp_options *options;
    const struct dpb_sync_services *services; /* borrowed; ctx NULL: only plan(), memory() and
                                                 messages() are called */
};

typedef struct ddp_hook ddp_hook;

struct ddp_hook_ops {
    const char *name;
    bool is_lossy;   /* DPB_STRATEGY_LOSSY */
    bool has_stages; /* a bucket may have more than one: DPB_STRATEGY_CHAINS */

    dpb_status (*open)(const struct ddp_hook_config *config, ddp_hook **hook);
    void (*close)(ddp_hook *hook);

    /* A new plan (borrowed, with `model`, until the next call): what was kept for the buckets of
     * the old one is void. Fails without a trace. No services. */
    dpb_status (*plan)(ddp_hook *hook, const struct dpb_model *model,
                       const struct dpb_unit_plan *plan);
    /* It is in force: get memory, from services->shared_alloc() for what collectives work on,
     * zeroed and anew at every call, or from the device for the rest. */
    dpb_status (*place)(ddp_hook *hook);
    /* Optional. Training step number `step`, from 1, begins. */
    void (*step_begin)(ddp_hook *hook, int64_t step);

    /* Stages of a bucket in the step under way, at least 1; the same on every rank. */
    int (*stages)(ddp_hook *hook, int unit);
    /* Stage `stage`, from 0: `handle` gets its collectives, `count` of them. Those of the stage
     * before have been waited for. */
    dpb_status (*start)(ddp_hook *hook, int unit, int stage, int handle[DDP_HOOK_COLLECTIVES_MAX],
                        int *count);
    /* Optional. The collectives of the last stage have been waited for: put the averaged gradients
     * in the bucket. */
    dpb_status (*finish)(ddp_hook *hook, int unit);

    /* The messages of a bucket in a step once nothing changes any more, in the order in which they
     * go; `when` and `param` are filled in by the caller. `messages` NULL or room for as many as
     * the call with NULL returned. */
    int (*messages)(const ddp_hook *hook, int unit, struct dpb_sync_message *messages);
    /* Add shared_bytes and private_bytes. Known after plan(), and the same for every plan of the
     * same model: memory is predicted from the first. */
    void (*memory)(const ddp_hook *hook, struct dpb_strategy_memory *memory);
};

extern const struct ddp_hook_ops ddp_hook_none_ops; /* DDP without a hook */
extern const struct ddp_hook_ops ddp_hook_allreduce_ops;
extern const struct ddp_hook_ops ddp_hook_fp16_ops;
extern const struct ddp_hook_ops ddp_hook_bf16_ops;

#endif

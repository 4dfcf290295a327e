/* The hooks that send a bucket as it is or in 16 bits (torch.distributed.algorithms.ddp_comm_hooks,
 * default_hooks.py), and what DDP does without a hook. One stage each. */
#include "ddp_hook.h"

#include <stdlib.h>

#include "dpb_log.h"

#define ALIGN_BYTES 64

struct ddp_hook {
    const struct dpb_sync_services *services;
    const struct dpb_unit_plan *plan;
    float scale;          /* of each rank's contribution, in the all-reduce */
    enum dpb_dtype dtype; /* on the wire */
    char *wire;           /* fp16 and bf16: the buckets in 16 bits; */
    int64_t wire_bytes;
    int64_t *wire_at; /* per unit, where in `wire`; NULL: gradients travel in their bucket */
};

static dpb_status simple_open(const struct ddp_hook_config *config, enum dpb_dtype dtype,
                              float scale, ddp_hook **hook)
{
    ddp_hook *self = calloc(1, sizeof(*self));

    if (!self) {
        dpb_error("strategy \"ddp\": out of memory for a communication hook");
        return DPB_ERR_NO_MEMORY;
    }
    self->services = config->services;
    self->dtype = dtype;
    self->scale = scale;
    *hook = self;
    return DPB_OK;
}

static void simple_close(ddp_hook *hook)
{
    if (!hook)
        return;
    free(hook->wire_at);
    free(hook);
}

static dpb_status simple_plan(ddp_hook *hook, const struct dpb_model *model,
                              const struct dpb_unit_plan *plan)
{
    (void)model;
    hook->plan = plan;
    return DPB_OK;
}

static dpb_status simple_place(ddp_hook *hook)
{
    (void)hook;
    return DPB_OK;
}

static int one_stage(ddp_hook *hook, int unit)
{
    (void)hook;
    (void)unit;
    return 1;
}

static dpb_status all_reduce(ddp_hook *hook, int unit, void *buffer, int *handle)
{
    const struct dpb_sync_coll coll = {
            .kind = DPB_COLL_ALL_REDUCE,
            .dtype = hook->dtype,
            .buffer = buffer,
            .count = hook->plan->units[unit].elements,
            .scale = hook->scale,
            .unit = unit,
    };

    return hook->services->start(hook->services->ctx, &coll, handle);
}

static int simple_messages(const ddp_hook *hook, int unit, struct dpb_sync_message *messages)
{
    if (messages)
        *messages = (struct dpb_sync_message){
                .kind = DPB_COLL_ALL_REDUCE,
                .dtype = hook->dtype,
                .count = hook->plan->units[unit].elements,
                .unit = unit,
        };
    return 1;
}

static void no_memory_of_its_own(const ddp_hook *hook, struct dpb_strategy_memory *memory)
{
    (void)hook;
    (void)memory;
}

/* ---- without a hook ---- */

/* Gradients that lie in the bucket have been divided there, one by one; what was copied is divided
 * by the all-reduce, so that the copy stays one pass over memory, as DDP's is. */
static dpb_status none_open(const struct ddp_hook_config *config, ddp_hook **hook)
{
    return simple_open(config, DPB_F32,
                       config->options->gradient_as_bucket_view ? 1.0f : config->services->average,
                       hook);
}

static dpb_status none_start(ddp_hook *hook, int unit, int stage,
                             int handle[DDP_HOOK_COLLECTIVES_MAX], int *count)
{
    (void)stage;
    *count = 1;
    return all_reduce(hook, unit, hook->services->unit_data(hook->services->ctx, unit), &handle[0]);
}

const struct ddp_hook_ops ddp_hook_none_ops = {
        .name = "none",
        .open = none_open,
        .close = simple_close,
        .plan = simple_plan,
        .place = simple_place,
        .stages = one_stage,
        .start = none_start,
        .messages = simple_messages,
        .memory = no_memory_of_its_own,
};

/* ---- allreduce: bucket /= P, all-reduce ---- */

static dpb_status allreduce_open(const struct ddp_hook_config *config, ddp_hook **hook)
{
    return simple_open(config, DPB_F32, 1.0f, hook);
}

static dpb_status allreduce_start(ddp_hook *hook, int unit, int stage,
                                  int handle[DDP_HOOK_COLLECTIVES_MAX], int *count)
{
    const struct dpb_sync_services *services = hook->services;
    const struct dpb_scale_args divide = {
            .x = services->unit_data(services->ctx, unit),
            .count = hook->plan->units[unit].elements,
            .factor = services->average,
    };

    (void)stage;
    DPB_TRY(dpb_launch(services->launcher, "hook-divide", DPB_OP_SCALE, &divide));
    *count = 1;
    return all_reduce(hook, unit, divide.x, &handle[0]);
}

const struct ddp_hook_ops ddp_hook_allreduce_ops = {
        .name = "allreduce",
        .open = allreduce_open,
        .close = simple_close,
        .plan = simple_plan,
        .place = simple_place,
        .stages = one_stage,
        .start = allreduce_start,
        .messages = simple_messages,
        .memory = no_memory_of_its_own,
};

/* ---- fp16, bf16: cast, divide in 16 bits, all-reduce in 16 bits, cast back ---- */

static dpb_status fp16_open(const struct ddp_hook_config *config, ddp_hook **hook)
{
    return simple_open(config, DPB_F16, config->services->average, hook);
}

static dpb_status bf16_open(const struct ddp_hook_config *config, ddp_hook **hook)
{
    return simple_open(config, DPB_BF16, config->services->average, hook);
}

static int64_t wire_bytes_of(int64_t elements)
{
    return (elements * (int64_t)sizeof(uint16_t) + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

/* Room for a bucket per parameter, which is the most that a plan can take. */
static dpb_status compress_plan(ddp_hook *hook, const struct dpb_model *model,
                                const struct dpb_unit_plan *plan)
{
    int64_t *at = calloc((size_t)plan->unit_count, sizeof(*at)), bytes = 0;

    if (!at) {
        dpb_error("strategy \"ddp\": out of memory for a hook on %d buckets", plan->unit_count);
        return DPB_ERR_NO_MEMORY;
    }
    for (int u = 0; u < plan->unit_count; u++) {
        at[u] = bytes;
        bytes += wire_bytes_of(plan->units[u].elements);
    }
    free(hook->wire_at);
    hook->wire_at = at;
    hook->wire_bytes = 0;
    for (int p = 0; p < model->param_count; p++)
        hook->wire_bytes += wire_bytes_of(model->params[p].numel);
    hook->plan = plan;
    return DPB_OK;
}

static dpb_status compress_place(ddp_hook *hook)
{
    void *memory;

    DPB_TRY(hook->services->shared_alloc(hook->services->ctx, (size_t)hook->wire_bytes, &memory));
    hook->wire = memory;
    return DPB_OK;
}

static struct dpb_cast_args cast_of(const ddp_hook *hook, int unit, bool to_wire)
{
    const int64_t elements = hook->plan->units[unit].elements;
    const struct dpb_tensor bucket =
            dpb_tensor_1d(hook->services->unit_data(hook->services->ctx, unit), elements);
    const struct dpb_tensor wire = {hook->wire + hook->wire_at[unit], hook->dtype, 1, {elements}};

    return to_wire ? (struct dpb_cast_args){.from = bucket, .to = wire}
                   : (struct dpb_cast_args){.from = wire, .to = bucket};
}

/* The communicator divides, and rounds each contribution to 16 bits before it adds. */
static dpb_status compress_start(ddp_hook *hook, int unit, int stage,
                                 int handle[DDP_HOOK_COLLECTIVES_MAX], int *count)
{
    const struct dpb_cast_args cast = cast_of(hook, unit, true);

    (void)stage;
    DPB_TRY(dpb_launch(hook->services->launcher, "hook-compress", DPB_OP_CAST, &cast));
    *count = 1;
    return all_reduce(hook, unit, cast.to.data, &handle[0]);
}

static dpb_status compress_finish(ddp_hook *hook, int unit)
{
    const struct dpb_cast_args cast = cast_of(hook, unit, false);

    return dpb_launch(hook->services->launcher, "hook-decompress", DPB_OP_CAST, &cast);
}

static void compress_memory(const ddp_hook *hook, struct dpb_strategy_memory *memory)
{
    memory->shared_bytes += hook->wire_bytes;
}

const struct ddp_hook_ops ddp_hook_fp16_ops = {
        .name = "fp16",
        .is_lossy = true,
        .open = fp16_open,
        .close = simple_close,
        .plan = compress_plan,
        .place = compress_place,
        .stages = one_stage,
        .start = compress_start,
        .finish = compress_finish,
        .messages = simple_messages,
        .memory = compress_memory,
};

const struct ddp_hook_ops ddp_hook_bf16_ops = {
        .name = "bf16",
        .is_lossy = true,
        .open = bf16_open,
        .close = simple_close,
        .plan = compress_plan,
        .place = compress_place,
        .stages = one_stage,
        .start = compress_start,
        .finish = compress_finish,
        .messages = simple_messages,
        .memory = compress_memory,
};

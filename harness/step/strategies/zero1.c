/* Strategy `zero1`: ZeRO stage 1 (Rajbhandari et al. 2020): every rank has all parameters and
 * computes all gradients, but keeps the optimizer's state of, and updates, only its 1/P of them;
 * afterwards the ranks send each other what they have updated. --zero1-variant says whose:
 *   canonical  buckets of --bucket bytes are reduce-scattered during backward, each rank updates
 * its shard of every bucket, and the parameters of the buckets are all-gathered; megatron   the
 * same by Megatron-LM's distributed optimizer: buckets of at least max(40e6, P 1e6) parameters in
 * reverse order, gradients divided by P before they are sent; without overlap one bucket.
 * --overlap-param-gather waits for parameters where the next forward pass first uses them; pytorch
 * ZeroRedundancyOptimizer: gradients are all-reduced as by DDP, whole tensors are dealt out to the
 * ranks by size, and every rank broadcasts its tensors one by one; deepspeed  DeepSpeed's stage 1:
 * parameters are one flat group in P equal parts; gradients are copied to a bucket of 5e8 elements,
 * divided by P and all-reduced when the next one would not fit, and each rank copies back what
 * belongs to its part; parts are all-gathered. Without overlap, its default, backward waits for
 * every bucket. */
#include "zero1.h"

#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"
#include "launch_copy.h"
#include "unit_coll.h"

#define GATHERS_UNDER_WAY_MAX 256 /* a communicator has room for more */

/* ---- open ---- */

static const char *variant_text(enum dpb_zero1_variant variant)
{
    static const char *const text_of[] = {
            [DPB_ZERO1_CANONICAL] = "canonical",
            [DPB_ZERO1_PYTORCH] = "pytorch",
            [DPB_ZERO1_MEGATRON] = "megatron",
            [DPB_ZERO1_DEEPSPEED] = "deepspeed",
    };

    return text_of[variant];
}

static dpb_status usage(const char *what, enum dpb_zero1_variant variant, const char *remedy)
{
    dpb_error("strategy \"zero1\": %s with --zero1-variant %s", what, variant_text(variant));
    dpb_log_hint("%s", remedy);
    return DPB_ERR_USAGE;
}

static dpb_status check_options(const struct dpb_strategy_config *config)
{
    const struct dpb_zero1_options *options = config->options;
    const enum dpb_zero1_variant variant = (enum dpb_zero1_variant)options->variant;

    if ((options->bucket_bytes < (int64_t)sizeof(float) && options->bucket_bytes != DPB_AUTO) ||
        options->gather_bytes < (int64_t)sizeof(float)) {
        dpb_error("strategy \"zero1\": buckets must have room for an element");
        return DPB_ERR_USAGE;
    }
    if (!config->optimizer_is_elementwise && variant != DPB_ZERO1_PYTORCH)
        return usage("an optimizer that needs whole tensors cannot update parts of them", variant,
                     "give --zero1-variant pytorch, which deals out whole tensors, or another "
                     "--optimizer");
    if (options->overlap_param_gather && variant != DPB_ZERO1_CANONICAL &&
        variant != DPB_ZERO1_MEGATRON)
        return usage("there is no --overlap-param-gather", variant,
                     "give --zero1-variant megatron or canonical");
    return DPB_OK;
}

static dpb_status zero1_open(const struct dpb_strategy_config *config, dpb_strategy **strategy)
{
    const struct dpb_zero1_options *options = config->options;
    struct zero1 *self;

    DPB_TRY(check_options(config));
    self = calloc(1, sizeof(*self));
    if (!self) {
        dpb_error("strategy \"zero1\": out of memory");
        return DPB_ERR_NO_MEMORY;
    }
    self->base.ops = &dpb_strategy_zero1_ops;
    self->rank = config->rank;
    self->world_size = config->world_size;
    self->services = config->services;
    self->variant = (enum dpb_zero1_variant)options->variant;
    self->bucket_bytes = options->bucket_bytes;
    self->gather_bytes = options->gather_bytes;
    self->overlaps = options->overlap == DPB_ZERO1_OVERLAP_AUTO
                             ? self->variant != DPB_ZERO1_DEEPSPEED
                             : options->overlap == DPB_ZERO1_OVERLAP_ON;
    self->gathers_in_forward = options->overlap_param_gather;
    *strategy = (dpb_strategy *)self;
    return DPB_OK;
}

static void zero1_close(dpb_strategy *strategy)
{
    struct zero1 *self = (struct zero1 *)strategy;

    if (!self)
        return;
    zero1_release_plan(self);
    free(self);
}

/* Between steps parameters that are gathered in the forward pass are not all there. */
static unsigned zero1_flags_of(const void *options)
{
    return DPB_STRATEGY_HOLDS_PARAMETERS |
           (((const struct dpb_zero1_options *)options)->overlap_param_gather
                    ? DPB_STRATEGY_SHARDS_PARAMETERS
                    : 0u);
}

/* ---- plan and places ---- */

static void reset(struct zero1 *self)
{
    ready_set_clear(&self->ready);
    for (int u = 0; u < self->plan->unit_count; u++)
        self->pending[u] = self->plan->units[u].member_count;
    self->next_unit = self->finished = 0;
}

static dpb_status zero1_plan(dpb_strategy *strategy, const struct dpb_model *model,
                             const int *ready_order, struct dpb_unit_plan *plan)
{
    struct zero1 *self = (struct zero1 *)strategy;

    (void)ready_order; /* the parts of the ranks stay as they are, and the buckets with them */
    DPB_TRY(zero1_make_plan(self, model, plan));
    reset(self);
    return DPB_OK;
}

static int buckets_of(const struct zero1 *self)
{
    return self->bucket_elements == 0 ? 0 : self->overlaps && self->plan->unit_count > 1 ? 2 : 1;
}

static dpb_status shared_floats(const struct zero1 *self, int64_t elements, float **floats)
{
    void *memory;

    DPB_TRY(self->services.shared_alloc(self->services.ctx, (size_t)elements * sizeof(float),
                                        &memory));
    *floats = memory;
    return DPB_OK;
}

static dpb_status zero1_place(dpb_strategy *strategy)
{
    struct zero1 *self = (struct zero1 *)strategy;

    DPB_TRY(shared_floats(self, self->elements, &self->params));
    for (int b = 0; b < buckets_of(self); b++)
        DPB_TRY(shared_floats(self, self->bucket_elements, &self->bucket[b]));
    if (self->staged_elements > 0 && self->world_size > 1)
        DPB_TRY(shared_floats(self, self->staged_elements, &self->staging));
    for (int p = 0; p < self->model->param_count; p++)
        self->services.bind(self->services.ctx, p, self->params + self->place[p], NULL);
    return DPB_OK;
}

static void zero1_memory(dpb_strategy *strategy, struct dpb_strategy_memory *memory)
{
    const struct zero1 *self = (const struct zero1 *)strategy;
    const int64_t staged = self->world_size > 1 ? self->staged_elements : 0;

    memory->parameters_bytes = 0; /* they are in shared memory */
    memory->shared_bytes = (self->elements + buckets_of(self) * self->bucket_elements + staged) *
                           (int64_t)sizeof(float);
}

static int zero1_updates(dpb_strategy *strategy, struct dpb_update *updates)
{
    const struct zero1 *self = (const struct zero1 *)strategy;
    int count = 0;

    for (int p = 0; p < self->model->param_count; p++) {
        if (self->own_count[p] == 0)
            continue;
        if (updates)
            updates[count] = (struct dpb_update){
                    .param = p, .first = self->own_first[p], .count = self->own_count[p]};
        count++;
    }
    return count;
}

static void zero1_describe(dpb_strategy *strategy, dpb_json *plan)
{
    const struct zero1 *self = (const struct zero1 *)strategy;
    int64_t own = 0;

    for (int p = 0; p < self->model->param_count; p++)
        own += self->own_count[p];
    dpb_json_set_string(plan, "zero1_variant", variant_text(self->variant));
    dpb_json_set_int(plan, "updated_elements", own);
}

/* ---- messages ---- */

static enum dpb_coll_kind reduction(const struct zero1 *self)
{
    return self->variant == DPB_ZERO1_PYTORCH || self->variant == DPB_ZERO1_DEEPSPEED
                   ? DPB_COLL_ALL_REDUCE
                   : DPB_COLL_REDUCE_SCATTER;
}

static struct dpb_sync_message reduction_message(const struct zero1 *self, int unit)
{
    const bool is_deepspeed = self->variant == DPB_ZERO1_DEEPSPEED;
    struct dpb_sync_message message =
            unit_coll_message(self->plan, unit, reduction(self), DPB_SYNC_GRADIENT);

    if (is_deepspeed && unit + 1 < self->plan->unit_count)
        message.param = self->plan->member[self->plan->units[unit + 1].first_member];
    else if (is_deepspeed || !self->overlaps)
        message.when = DPB_SYNC_AFTER_BACKWARD;
    return message;
}

static struct dpb_sync_message gather_message(const struct zero1 *self,
                                              const struct zero1_gather *gather)
{
    return (struct dpb_sync_message){
            .kind = gather->kind,
            .dtype = DPB_F32,
            .count = gather->count,
            .root = gather->root,
            .when = self->gathers_in_forward ? DPB_SYNC_FORWARD : DPB_SYNC_AFTER_OPTIMIZER,
            .param = gather->param,
            .unit = gather->unit,
    };
}

static int zero1_messages(dpb_strategy *strategy, struct dpb_sync_message *messages)
{
    const struct zero1 *self = (const struct zero1 *)strategy;
    const int units = self->plan->unit_count;

    if (self->world_size == 1)
        return 0;
    for (int g = 0; messages && g < self->gather_count; g++)
        messages[self->gathers_in_forward ? g : units + g] = gather_message(self, &self->gather[g]);
    for (int u = 0; messages && u < units; u++)
        messages[self->gathers_in_forward ? self->gather_count + u : u] =
                reduction_message(self, u);
    return units + self->gather_count;
}

/* ---- gradients ---- */

static float *bucket_of(const struct zero1 *self, int unit)
{
    return self->bucket[unit % buckets_of(self)];
}

/* Copy back what this rank is going to use. */
static dpb_status take_own(const struct zero1 *self, int unit)
{
    const struct dpb_unit *of = &self->plan->units[unit];
    const float *from = bucket_of(self, unit);

    for (int m = 0; m < of->member_count; m++) {
        const int p = self->plan->member[of->first_member + m];

        if (self->own_count[p] > 0)
            DPB_TRY(launch_copy(self->services.launcher, "take own part",
                                self->services.grad(self->services.ctx, p) + self->own_first[p],
                                from + self->own_first[p],
                                self->own_count[p] * (int64_t)sizeof(float)));
        from += self->model->params[p].numel;
    }
    return DPB_OK;
}

static dpb_status finish_next(struct zero1 *self)
{
    const int unit = self->finished++;

    DPB_TRY(self->services.wait(self->services.ctx, self->handle[unit]));
    return zero1_is_copied(self, unit) ? take_own(self, unit) : DPB_OK;
}

static dpb_status scale(const struct zero1 *self, float *x, int64_t count)
{
    const struct dpb_scale_args args = {.x = x, .count = count, .factor = self->services.average};

    return self->services.average == 1.0f
                   ? DPB_OK
                   : dpb_launch(self->services.launcher, "scale", DPB_OP_SCALE, &args);
}

static dpb_status start_unit(struct zero1 *self, int unit)
{
    const struct dpb_sync_services *services = &self->services;
    const struct dpb_unit *of = &self->plan->units[unit];
    const bool is_scaled =
            self->variant == DPB_ZERO1_MEGATRON || self->variant == DPB_ZERO1_DEEPSPEED;
    struct dpb_sync_coll coll = {
            .kind = reduction(self),
            .dtype = of->dtype,
            .buffer = services->unit_data(services->ctx, unit),
            .count = of->elements,
            .scale = is_scaled ? 1.0f : services->average,
            .unit = unit,
    };

    if (zero1_is_copied(self, unit)) {
        while (unit - self->finished >= buckets_of(self))
            DPB_TRY(finish_next(self));
        DPB_TRY(launch_copy(services->launcher, "fill bucket", bucket_of(self, unit), coll.buffer,
                            of->bytes));
        coll.buffer = bucket_of(self, unit);
    }
    if (is_scaled)
        DPB_TRY(scale(self, coll.buffer, coll.count));
    return services->start(services->ctx, &coll, &self->handle[unit]);
}

/* Start the units below `end` that are complete, in order, up to the first that is not. */
static dpb_status start_complete(struct zero1 *self, int end)
{
    while (self->world_size > 1 && self->next_unit < end && self->pending[self->next_unit] == 0) {
        DPB_TRY(start_unit(self, self->next_unit));
        self->next_unit++;
        if (self->variant == DPB_ZERO1_DEEPSPEED && !self->overlaps)
            DPB_TRY(finish_next(self));
    }
    return DPB_OK;
}

static dpb_status zero1_step_begin(dpb_strategy *strategy, int64_t step)
{
    (void)step;
    reset((struct zero1 *)strategy);
    return DPB_OK;
}

static dpb_status zero1_grad_ready(dpb_strategy *strategy, int param)
{
    struct zero1 *self = (struct zero1 *)strategy;

    DPB_TRY(ready_set_add(&self->ready, param));
    self->pending[self->plan->unit_of[param]]--;
    /* DeepSpeed sends a bucket when a gradient comes that does not fit any more. */
    if (self->variant == DPB_ZERO1_DEEPSPEED)
        return start_complete(self, self->plan->unit_of[param]);
    return self->overlaps ? start_complete(self, self->plan->unit_count) : DPB_OK;
}

static dpb_status zero1_backward_end(dpb_strategy *strategy)
{
    struct zero1 *self = (struct zero1 *)strategy;

    DPB_TRY(ready_set_check_complete(&self->ready));
    return start_complete(self, self->plan->unit_count);
}

static dpb_status zero1_before_optimizer(dpb_strategy *strategy)
{
    struct zero1 *self = (struct zero1 *)strategy;

    while (self->finished < self->next_unit)
        DPB_TRY(finish_next(self));
    return DPB_OK;
}

/* ---- parameters ---- */

/* Each rank's piece of its part, between its place and the buffer that is gathered. */
static dpb_status move_pieces(const struct zero1 *self, const struct zero1_gather *gather,
                              bool is_own)
{
    const int64_t part = self->elements / self->world_size;
    const int64_t piece = gather->count / self->world_size;

    for (int r = 0; r < self->world_size; r++) {
        float *const at = self->params + r * part + gather->first;
        float *const staged = self->staging + r * piece;

        if ((r == self->rank) == is_own)
            DPB_TRY(launch_copy(self->services.launcher, is_own ? "stage" : "unstage",
                                is_own ? staged : at, is_own ? at : staged,
                                piece * (int64_t)sizeof(float)));
    }
    return DPB_OK;
}

static dpb_status start_gather(struct zero1 *self, struct zero1_gather *gather)
{
    const struct dpb_sync_coll coll = {
            .kind = gather->kind,
            .dtype = DPB_F32,
            .buffer = gather->is_staged ? self->staging : self->params + gather->first,
            .count = gather->count,
            .root = gather->root,
            .scale = 1.0f,
            .unit = gather->unit,
    };

    if (gather->is_staged)
        DPB_TRY(move_pieces(self, gather, true));
    DPB_TRY(self->services.start(self->services.ctx, &coll, &gather->handle));
    gather->is_under_way = true;
    return DPB_OK;
}

static dpb_status finish_gather(struct zero1 *self, struct zero1_gather *gather)
{
    if (!gather->is_under_way)
        return DPB_OK;
    gather->is_under_way = false;
    DPB_TRY(self->services.wait(self->services.ctx, gather->handle));
    return gather->is_staged ? move_pieces(self, gather, false) : DPB_OK;
}

static dpb_status start_gathers(struct zero1 *self)
{
    const int under_way_max = self->staged_elements > 0 ? 1 : GATHERS_UNDER_WAY_MAX;

    for (int g = 0; self->world_size > 1 && g < self->gather_count; g++) {
        if (g >= under_way_max)
            DPB_TRY(finish_gather(self, &self->gather[g - under_way_max]));
        DPB_TRY(start_gather(self, &self->gather[g]));
    }
    return DPB_OK;
}

static dpb_status finish_gathers(struct zero1 *self)
{
    for (int g = 0; g < self->gather_count; g++)
        DPB_TRY(finish_gather(self, &self->gather[g]));
    return DPB_OK;
}

static dpb_status zero1_after_optimizer(dpb_strategy *strategy)
{
    struct zero1 *self = (struct zero1 *)strategy;

    self->is_stale = self->gathers_in_forward;
    if (self->gathers_in_forward)
        return DPB_OK;
    DPB_TRY(start_gathers(self));
    return finish_gathers(self);
}

static dpb_status zero1_forward_begin(dpb_strategy *strategy, bool sync)
{
    struct zero1 *self = (struct zero1 *)strategy;

    (void)sync;
    if (!self->is_stale)
        return DPB_OK;
    self->is_stale = false;
    return start_gathers(self);
}

static dpb_status zero1_param_use(dpb_strategy *strategy, int param, enum dpb_pass pass)
{
    struct zero1 *self = (struct zero1 *)strategy;

    if (!self->gathers_in_forward || pass != DPB_PASS_FORWARD)
        return DPB_OK;
    /* There is one for each unit, the last unit's first. */
    return finish_gather(self,
                         &self->gather[self->plan->unit_count - 1 - self->plan->unit_of[param]]);
}

static dpb_status zero1_forward_end(dpb_strategy *strategy)
{
    return finish_gathers((struct zero1 *)strategy);
}

/* Between whole parameters and where they are here. Outside of steps: it waits. */
static dpb_status copy_whole(const struct zero1 *self, float *const *full, bool is_in)
{
    const struct dpb_launcher *launcher = self->services.launcher;

    for (int p = 0; p < self->model->param_count; p++) {
        float *here = self->params + self->place[p];

        if (full[p])
            DPB_TRY(launch_copy(launcher, is_in ? "params.take" : "params.give",
                                is_in ? here : full[p], is_in ? full[p] : here,
                                self->model->params[p].numel * (int64_t)sizeof(float)));
    }
    return dpb_device_get_ops(launcher->device)->stream_sync(launcher->stream);
}

static dpb_status zero1_take_params(dpb_strategy *strategy, float *const *full)
{
    const struct zero1 *self = (const struct zero1 *)strategy;

    return copy_whole(self, full, true);
}

/* The next forward pass gathers them nevertheless, so that every step sends the same. */
static dpb_status zero1_give_params(dpb_strategy *strategy, float *const *full)
{
    struct zero1 *self = (struct zero1 *)strategy;

    if (self->is_stale) {
        DPB_TRY(start_gathers(self));
        DPB_TRY(finish_gathers(self));
    }
    return copy_whole(self, full, false);
}

/* ---- tables ---- */

static const struct dpb_choice variant_choices[] = {
        {"canonical", DPB_ZERO1_CANONICAL, "reduce-scatter, update a shard, all-gather"},
        {"pytorch", DPB_ZERO1_PYTORCH, "ZeroRedundancyOptimizer: whole tensors, broadcast"},
        {"megatron", DPB_ZERO1_MEGATRON, "Megatron-LM's distributed optimizer"},
        {"deepspeed", DPB_ZERO1_DEEPSPEED, "DeepSpeed's stage 1"},
        {NULL, 0, NULL},
};

static const struct dpb_choice overlap_choices[] = {
        {"auto", DPB_ZERO1_OVERLAP_AUTO, "as the real system: off for deepspeed, else on"},
        {"on", DPB_ZERO1_OVERLAP_ON, "reduce buckets during backward"},
        {"off", DPB_ZERO1_OVERLAP_OFF, "backward, or what follows, waits for them"},
        {NULL, 0, NULL},
};

static const struct dpb_option zero1_rows[] = {
        {
                .name = "zero1-variant",
                .type = DPB_OPT_ENUM,
                .offset = offsetof(struct dpb_zero1_options, variant),
                .default_text = "canonical",
                .choices = variant_choices,
                .category = "Communication",
                .help = "whose ZeRO stage 1",
                .flags = DPB_OPT_COMM_ONLY,
        },
        {
                .name = "bucket",
                .type = DPB_OPT_SIZE,
                .offset = offsetof(struct dpb_zero1_options, bucket_bytes),
                .default_text = "auto",
                .min = 4,
                .max = DPB_BUCKET_BYTES_MAX,
                .category = "Communication",
                .help = "bytes of a gradient bucket; auto: as the real system, 25MiB for canonical",
                .flags = DPB_OPT_COMM_ONLY | DPB_OPT_AUTO,
        },
        {
                .name = "overlap",
                .type = DPB_OPT_ENUM,
                .offset = offsetof(struct dpb_zero1_options, overlap),
                .default_text = "auto",
                .choices = overlap_choices,
                .category = "Communication",
                .help = "do gradients travel behind backward?",
                .flags = DPB_OPT_COMM_ONLY,
        },
        {
                .name = "overlap-param-gather",
                .type = DPB_OPT_BOOL,
                .offset = offsetof(struct dpb_zero1_options, overlap_param_gather),
                .default_text = "off",
                .category = "Communication",
                .help = "gather updated parameters behind the next forward pass (megatron, "
                        "canonical)",
                .flags = DPB_OPT_COMM_ONLY,
        },
        {
                .name = "allgather-bucket",
                .type = DPB_OPT_SIZE,
                .offset = offsetof(struct dpb_zero1_options, gather_bytes),
                .default_text = "2000000000B",
                .min = 4,
                .max = DPB_BUCKET_BYTES_MAX,
                .category = "Communication",
                .help = "bytes of parameters that deepspeed gathers at once "
                        "(allgather_bucket_size)",
                .flags = DPB_OPT_COMM_ONLY,
        },
};

static const struct dpb_option_table zero1_table = {
        .kind = "strategy",
        .owner = "zero1",
        .rows = zero1_rows,
        .row_count = sizeof(zero1_rows) / sizeof(zero1_rows[0]),
        .config_bytes = sizeof(struct dpb_zero1_options),
};

const struct dpb_strategy_ops dpb_strategy_zero1_ops = {
        .version = DPB_STRATEGY_OPS_VERSION,
        .name = "zero1",
        .summary = "each rank keeps 1/P of the optimizer's state and updates that part (ZeRO 1)",
        .flags = DPB_STRATEGY_HOLDS_PARAMETERS,
        .options = &zero1_table,
        .open = zero1_open,
        .close = zero1_close,
        .flags_of = zero1_flags_of,
        .plan = zero1_plan,
        .place = zero1_place,
        .updates = zero1_updates,
        .messages = zero1_messages,
        .step_begin = zero1_step_begin,
        .forward_begin = zero1_forward_begin,
        .param_use = zero1_param_use,
        .forward_end = zero1_forward_end,
        .grad_ready = zero1_grad_ready,
        .backward_end = zero1_backward_end,
        .before_optimizer = zero1_before_optimizer,
        .after_optimizer = zero1_after_optimizer,
        .take_params = zero1_take_params,
        .give_params = zero1_give_params,
        .describe = zero1_describe,
        .memory = zero1_memory,
};

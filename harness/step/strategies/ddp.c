/* Strategy `ddp`: PyTorch's DistributedDataParallel (reducer.cpp, distributed.py), by default as of
 * the 2.x releases with their default flags. Gradients are packed in buckets of --bucket bytes
 * (bucket_cap_mb, 25 MiB): each is copied into its bucket when it is ready, or lies there
 * (--gradient-as-bucket-view). A bucket is all-reduced as soon as its last gradient is ready and
 * every earlier bucket has been launched, so communication runs behind the rest of backward; a
 * complete bucket behind an incomplete one waits (head-of-line blocking, as the reducer's
 * next_bucket). In the first step there is one bucket per type, so nothing overlaps; after it the
 * buckets are rebuilt, once, in the order in which gradients really became ready, the first of them
 * smaller (1 MiB) so that communication starts early. The optimizer starts when all buckets have
 * been reduced and copied back. Before forward, buffers (running statistics) become rank 0's. A
 * communication hook may replace the all-reduce (ddp_hook.h). With overlap off all buckets are
 * launched after backward: the cost of the same messages, exposed. */
#include "dpb_strategies.h"

#include <stdlib.h>

#include "ddp_buckets.h"
#include "ddp_buffers.h"
#include "ddp_chain.h"
#include "ddp_powersgd.h"
#include "ddp_usage.h"
#include "dpb_log.h"
#include "ready_set.h"

#define FIRST_BUCKET_BYTES (INT64_C(1) << 20) /* kDefaultFirstBucketBytes */
#define ALIGN_BYTES        64

struct ddp {
    struct dpb_strategy_base base;
    int rank, world_size;
    struct dpb_sync_services services;
    struct dpb_ddp_options options;
    struct ddp_bucket_rules rules;
    bool rebuilt;

    const struct dpb_model *model; /* the engine's, both */
    const struct dpb_unit_plan *plan;
    struct ready_set ready;
    int *pending;       /* per unit: gradients that are not ready */
    int next_bucket;    /* the first that is not complete, or stands behind one that is not */
    int64_t step;       /* under way */
    bool launches_map;  /* and the usage map's turn has not come */
    bool wants_buffers; /* require_forward_param_sync */

    const struct ddp_hook_ops *hook_ops;
    ddp_hook *hook; /* NULL with one rank */
    struct ddp_chain chain;

    char *gradients; /* where they lie when not in buckets; NULL until place() */
    float *zeros;    /* as many as the largest parameter has; NULL when none is needed */
    struct ddp_buffers buffers;
    struct ddp_usage usage;
};

static const struct ddp_hook_ops *const hooks[] = {
        [DPB_DDP_HOOK_NONE] = &ddp_hook_none_ops,
        [DPB_DDP_HOOK_ALLREDUCE] = &ddp_hook_allreduce_ops,
        [DPB_DDP_HOOK_FP16] = &ddp_hook_fp16_ops,
        [DPB_DDP_HOOK_BF16] = &ddp_hook_bf16_ops,
        [DPB_DDP_HOOK_POWERSGD] = &ddp_hook_powersgd_ops,
};

/* ---- what the options say ---- */

static bool is_alone(const struct ddp *self)
{
    return self->world_size == 1;
}

static bool copies(const struct ddp *self)
{
    return !self->options.gradient_as_bucket_view && !is_alone(self);
}

/* Does it look for unused parameters in every step, or once for all? */
static bool looks_always(const struct dpb_ddp_options *options)
{
    return options->find_unused && !options->static_graph;
}

static bool looks_once(const struct ddp *self)
{
    return self->options.static_graph && self->step == 1;
}

static bool has_usage(const struct dpb_ddp_options *options)
{
    return options->find_unused || options->static_graph;
}

static struct ddp_bucket_rules rules_of(const struct dpb_ddp_options *options, bool bucket_given)
{
    struct ddp_bucket_rules rules = {
            .first_bytes = options->first_bucket_bytes,
            .other_bytes = options->bucket_bytes,
            .is_one_at_first = options->compat != DPB_DDP_COMPAT_1_10 && !looks_always(options),
            .is_small_last = options->last_bucket_cap,
    };

    if (rules.first_bytes == DPB_AUTO)
        rules.first_bytes = bucket_given && options->compat == DPB_DDP_COMPAT_2_X
                                    ? options->bucket_bytes
                                    : FIRST_BUCKET_BYTES;
    return rules;
}

/* ---- open, close ---- */

static void ddp_close(dpb_strategy *strategy)
{
    struct ddp *self = (struct ddp *)strategy;

    if (!self)
        return;
    if (self->hook)
        self->hook_ops->close(self->hook);
    if (self->gradients)
        dpb_device_get_ops(self->services.launcher->device)
                ->free(self->services.launcher->device, self->gradients);
    if (self->zeros)
        dpb_device_get_ops(self->services.launcher->device)
                ->free(self->services.launcher->device, self->zeros);
    ddp_buffers_release(&self->buffers);
    ddp_usage_release(&self->usage);
    ready_set_release(&self->ready);
    ddp_chain_release(&self->chain);
    free(self->pending);
    free(self);
}

static dpb_status open_hook(struct ddp *self)
{
    const struct ddp_hook_config config = {
            .rank = self->rank,
            .world_size = self->world_size,
            .options = &self->options,
            .services = &self->services,
    };

    if (is_alone(self))
        return DPB_OK;
    self->hook_ops = hooks[self->options.hook];
    DPB_TRY(self->hook_ops->open(&config, &self->hook));
    self->chain = (struct ddp_chain){
            .ops = self->hook_ops, .hook = self->hook, .services = &self->services};
    return DPB_OK;
}

static dpb_status ddp_open(const struct dpb_strategy_config *config, dpb_strategy **strategy)
{
    const struct dpb_ddp_options *options = config->options;
    struct ddp *self;
    dpb_status st;

    if (!options || options->bucket_bytes < 1 ||
        (options->first_bucket_bytes < 1 && options->first_bucket_bytes != DPB_AUTO)) {
        dpb_error("strategy \"ddp\": bucket sizes must be at least 1 byte");
        return DPB_ERR_USAGE;
    }
    DPB_TRY(ddp_powersgd_check(options));
    self = calloc(1, sizeof(*self));
    if (!self) {
        dpb_error("strategy \"ddp\": out of memory");
        return DPB_ERR_NO_MEMORY;
    }
    self->base.ops = &dpb_strategy_ddp_ops;
    self->rank = config->rank;
    self->world_size = config->world_size;
    self->services = config->services;
    self->options = *options;
    self->rules = rules_of(options, config->bucket_given);
    self->wants_buffers = options->broadcast_buffers && !is_alone(self);
    st = open_hook(self);
    if (st < 0) {
        ddp_close((dpb_strategy *)self);
        return st;
    }
    *strategy = (dpb_strategy *)self;
    return DPB_OK;
}

static unsigned ddp_flags_of(const void *opaque)
{
    const struct dpb_ddp_options *options = opaque;

    return (hooks[options->hook]->is_lossy ? DPB_STRATEGY_LOSSY : 0) |
           (hooks[options->hook]->has_stages ? DPB_STRATEGY_CHAINS | DPB_STRATEGY_NEEDS_HOST : 0) |
           (has_usage(options) ? DPB_STRATEGY_FINDS_UNUSED | DPB_STRATEGY_NEEDS_HOST : 0);
}

/* ---- plan ---- */

static void reset(struct ddp *self)
{
    ready_set_clear(&self->ready);
    for (int u = 0; u < self->plan->unit_count; u++)
        self->pending[u] = self->plan->units[u].member_count;
    self->next_bucket = 0;
    ddp_chain_begin(&self->chain);
}

static dpb_status use_tables(struct ddp *self, const struct dpb_model *model, int unit_count)
{
    int *pending = calloc((size_t)unit_count + 1, sizeof(*pending));
    const dpb_status st = pending ? ready_set_init(&self->ready, model) : DPB_ERR_NO_MEMORY;

    if (st < 0) {
        dpb_error("strategy \"ddp\": no room for a plan of %d buckets", unit_count);
        free(pending);
        return st;
    }
    free(self->pending);
    self->pending = pending;
    return ddp_chain_plan(&self->chain, unit_count);
}

static dpb_status use_plan(struct ddp *self, const struct dpb_model *model,
                           struct dpb_unit_plan *plan)
{
    DPB_TRY(use_tables(self, model, plan->unit_count));
    if (has_usage(&self->options))
        DPB_TRY(ddp_usage_plan(&self->usage, model));
    if (self->options.broadcast_buffers && !is_alone(self))
        DPB_TRY(ddp_buffers_plan(&self->buffers, model));
    return self->hook ? self->hook_ops->plan(self->hook, model, plan) : DPB_OK;
}

static dpb_status ddp_plan(dpb_strategy *strategy, const struct dpb_model *model,
                           const int *ready_order, struct dpb_unit_plan *plan)
{
    struct ddp *self = (struct ddp *)strategy;
    dpb_status st;

    if (ready_order)
        DPB_TRY(ddp_buckets_rebuilt(&self->rules, model, ready_order, plan));
    else
        DPB_TRY(ddp_buckets_initial(&self->rules, model, plan));
    st = use_plan(self, model, plan);
    if (st < 0) {
        dpb_unit_plan_release(plan);
        return st;
    }
    self->rebuilt = ready_order != NULL;
    self->model = model;
    self->plan = plan;
    reset(self);
    return DPB_OK;
}

/* PyTorch keeps its buckets where it looks for unused parameters in every step: the order of
 * gradients is not to be relied on. */
static bool ddp_replan_after(dpb_strategy *strategy, int64_t step)
{
    const struct ddp *self = (const struct ddp *)strategy;

    (void)step;
    return !self->rebuilt && !looks_always(&self->options);
}

static void ddp_describe(dpb_strategy *strategy, dpb_json *plan)
{
    const struct ddp *self = (const struct ddp *)strategy;

    dpb_json_set_int(plan, "first_bucket_bytes", self->rules.first_bytes);
    dpb_json_set_int(plan, "bucket_bytes", self->rules.other_bytes);
}

/* ---- memory ---- */

static int64_t aligned_bytes(int64_t elements)
{
    return (elements * (int64_t)sizeof(float) + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

static int64_t gradient_bytes(const struct ddp *self)
{
    int64_t bytes = 0;

    for (int p = 0; copies(self) && p < self->model->param_count; p++)
        bytes += aligned_bytes(self->model->params[p].numel);
    return bytes;
}

/* For slices of buckets whose gradient does not exist. */
static int64_t zero_bytes(const struct ddp *self)
{
    int64_t most = 0;

    if (!has_usage(&self->options) || is_alone(self))
        return 0;
    for (int p = 0; p < self->model->param_count; p++)
        most = self->model->params[p].numel > most ? self->model->params[p].numel : most;
    return aligned_bytes(most);
}

static void ddp_memory(dpb_strategy *strategy, struct dpb_strategy_memory *memory)
{
    const struct ddp *self = (const struct ddp *)strategy;

    if (is_alone(self))
        return;
    memory->private_bytes += gradient_bytes(self) + zero_bytes(self);
    memory->shared_bytes += ddp_buffers_bytes(&self->buffers) + ddp_usage_bytes(&self->usage);
    self->hook_ops->memory(self->hook, memory);
}

static dpb_status alloc(const struct ddp *self, int64_t bytes, void **memory)
{
    dpb_device *device = self->services.launcher->device;

    return dpb_device_get_ops(device)->alloc(device, (size_t)bytes, memory);
}

/* Gradients of their own, in registration order, once; a new plan only binds them again. */
static dpb_status place_gradients(struct ddp *self)
{
    const int64_t bytes = gradient_bytes(self);
    int64_t at = 0;
    void *memory;

    if (bytes == 0)
        return DPB_OK;
    if (!self->gradients) {
        DPB_TRY(alloc(self, bytes, &memory));
        self->gradients = memory;
    }
    for (int p = 0; p < self->model->param_count; p++) {
        self->services.bind(self->services.ctx, p, NULL, (float *)(void *)(self->gradients + at));
        at += aligned_bytes(self->model->params[p].numel);
    }
    return DPB_OK;
}

static dpb_status place_zeros(struct ddp *self)
{
    const int64_t bytes = zero_bytes(self);
    void *memory;

    if (bytes == 0 || self->zeros)
        return DPB_OK;
    DPB_TRY(alloc(self, bytes, &memory));
    self->zeros = memory;
    return DPB_OK;
}

static dpb_status ddp_place(dpb_strategy *strategy)
{
    struct ddp *self = (struct ddp *)strategy;

    if (is_alone(self))
        return DPB_OK;
    DPB_TRY(place_gradients(self));
    DPB_TRY(place_zeros(self));
    DPB_TRY(ddp_buffers_place(&self->buffers, &self->services));
    DPB_TRY(ddp_usage_place(&self->usage, &self->services));
    return self->hook_ops->place(self->hook);
}

/* ---- messages ---- */

static int ddp_messages(dpb_strategy *strategy, struct dpb_sync_message *messages)
{
    const struct ddp *self = (const struct ddp *)strategy;
    const enum dpb_sync_when when =
            self->options.overlap ? DPB_SYNC_GRADIENT : DPB_SYNC_AFTER_BACKWARD;
    int count = 0;

    if (is_alone(self))
        return 0;
    count += ddp_buffers_messages(&self->buffers, messages);
    for (int u = 0; u < self->plan->unit_count; u++) {
        const struct dpb_unit *unit = &self->plan->units[u];
        const int of_unit =
                self->hook_ops->messages(self->hook, u, messages ? &messages[count] : NULL);

        for (int i = 0; messages && i < of_unit; i++) {
            messages[count + i].when = when;
            messages[count + i].param =
                    self->plan->member[unit->first_member + unit->member_count - 1];
        }
        count += of_unit;
    }
    if (looks_always(&self->options)) {
        if (messages) {
            messages[count] = ddp_usage_message(&self->usage);
            messages[count].when = when;
            messages[count].param = messages[count - 1].param;
        }
        count++;
    }
    return count;
}

/* ---- launching ---- */

/* Start what can be started, or, with `waits`, everything; then, in a step that has one, the usage
 * map. */
static dpb_status advance(struct ddp *self, bool waits)
{
    DPB_TRY(ddp_chain_advance(&self->chain, self->next_bucket, waits));
    if (!self->launches_map || !ddp_chain_is_through(&self->chain))
        return DPB_OK;
    self->launches_map = false;
    return ddp_usage_start(&self->usage, &self->services);
}

static dpb_status launch_complete(struct ddp *self)
{
    while (self->next_bucket < self->plan->unit_count && self->pending[self->next_bucket] == 0)
        self->next_bucket++;
    return is_alone(self) ? DPB_OK : advance(self, false);
}

/* ---- gradients and buckets ---- */

/* A parameter's gradient where the workload puts it, and its slice of the bucket. */
static struct dpb_tensor gradient_of(const struct ddp *self, int param)
{
    return dpb_tensor_1d(self->services.grad(self->services.ctx, param),
                         self->model->params[param].numel);
}

static struct dpb_tensor slice_of(const struct ddp *self, int param)
{
    const int unit = self->plan->unit_of[param];
    char *bucket = self->services.unit_data(self->services.ctx, unit);

    return dpb_tensor_1d(
            bucket + (self->plan->offset_bytes[param] - self->plan->units[unit].offset_bytes),
            self->model->params[param].numel);
}

static dpb_status copy(const struct ddp *self, const char *name, struct dpb_tensor from,
                       struct dpb_tensor to)
{
    const struct dpb_cast_args args = {.from = from, .to = to};

    return dpb_launch(self->services.launcher, name, DPB_OP_CAST, &args);
}

/* One kernel per gradient: a copy into the bucket, or, where it lies there already and no hook
 * averages, the division in place. */
static dpb_status fill_slice(struct ddp *self, int param)
{
    if (copies(self))
        return copy(self, "bucket-copy-in", gradient_of(self, param), slice_of(self, param));
    if (self->options.hook != DPB_DDP_HOOK_NONE || self->services.average == 1.0f)
        return DPB_OK;

    const struct dpb_tensor slice = slice_of(self, param);
    const struct dpb_scale_args divide = {
            .x = slice.data,
            .count = slice.dim[0],
            .factor = self->services.average,
    };

    return dpb_launch(self->services.launcher, "bucket-divide", DPB_OP_SCALE, &divide);
}

static dpb_status clear_slice(struct ddp *self, int param)
{
    const int64_t numel = self->model->params[param].numel;

    return copy(self, "bucket-zero", dpb_tensor_1d(self->zeros, numel), slice_of(self, param));
}

/* The slice of a parameter is final; `has_gradient`: it is not one that this rank does not use. */
static dpb_status slice_ready(struct ddp *self, int param, bool has_gradient)
{
    if (!is_alone(self))
        DPB_TRY(has_gradient ? fill_slice(self, param) : clear_slice(self, param));
    self->pending[self->plan->unit_of[param]]--;
    return DPB_OK;
}

/* What the step, or the static graph, does not use is ready from the start. A parameter that an
 * earlier micro-batch used has a gradient all the same. */
static dpb_status unused_ready(struct ddp *self)
{
    for (int p = 0; p < self->usage.params; p++) {
        const bool is_unused =
                self->options.static_graph ? !self->usage.by_us[p] : !self->usage.now[p];

        if (!is_unused)
            continue;
        DPB_TRY(ready_set_add(&self->ready, p));
        DPB_TRY(slice_ready(self, p, self->usage.by_us[p]));
    }
    return DPB_OK;
}

static dpb_status copy_back(struct ddp *self, int param)
{
    if (!copies(self) || (self->usage.params > 0 && self->usage.by_rank[param] == 0))
        return DPB_OK;
    return copy(self, "bucket-copy-out", slice_of(self, param), gradient_of(self, param));
}

static dpb_status finish_bucket(struct ddp *self, int unit)
{
    const struct dpb_unit *of = &self->plan->units[unit];

    DPB_TRY(ddp_chain_finish(&self->chain, unit));
    for (int m = 0; m < of->member_count; m++)
        DPB_TRY(copy_back(self, self->plan->member[of->first_member + m]));
    return DPB_OK;
}

/* ---- hooks of the step engine ---- */

static dpb_status ddp_step_begin(dpb_strategy *strategy, int64_t step)
{
    struct ddp *self = (struct ddp *)strategy;

    self->step = step;
    self->launches_map = looks_always(&self->options) && !is_alone(self);
    reset(self);
    if (looks_always(&self->options) || looks_once(self))
        ddp_usage_step_begin(&self->usage);
    if (self->hook && self->hook_ops->step_begin)
        self->hook_ops->step_begin(self->hook, step);
    return DPB_OK;
}

/* DDP broadcasts before the first forward pass that follows one whose gradients were reduced. */
static dpb_status ddp_forward_begin(dpb_strategy *strategy, bool sync)
{
    struct ddp *self = (struct ddp *)strategy;
    const bool wants_buffers = self->wants_buffers;

    self->wants_buffers = sync && self->options.broadcast_buffers && !is_alone(self);
    ddp_usage_forward_begin(&self->usage);
    return wants_buffers ? ddp_buffers_broadcast(&self->buffers, &self->services, self->rank)
                         : DPB_OK;
}

static dpb_status ddp_param_use(dpb_strategy *strategy, int param, enum dpb_pass pass)
{
    struct ddp *self = (struct ddp *)strategy;

    if (pass == DPB_PASS_FORWARD && (looks_always(&self->options) || looks_once(self)))
        ddp_usage_add(&self->usage, param);
    return DPB_OK;
}

static dpb_status ddp_grad_ready(dpb_strategy *strategy, int param)
{
    struct ddp *self = (struct ddp *)strategy;
    const bool is_first = self->ready.ready_count == 0;

    DPB_TRY(ready_set_add(&self->ready, param));
    if (looks_once(self)) /* everything waits for the end of backward (delay_all_reduce) */
        return DPB_OK;
    if (is_first)
        DPB_TRY(unused_ready(self));
    DPB_TRY(slice_ready(self, param, true));
    return self->options.overlap ? launch_complete(self) : DPB_OK;
}

/* The first step of a static graph: the usage map first, then all gradients in the order of
 * parameters, then all buckets. */
static dpb_status all_at_once(struct ddp *self)
{
    if (!is_alone(self))
        DPB_TRY(ddp_usage_start(&self->usage, &self->services));
    for (int p = 0; p < self->model->param_count; p++) {
        if (!self->ready.is_ready[p])
            DPB_TRY(ready_set_add(&self->ready, p));
        DPB_TRY(slice_ready(self, p, self->usage.by_us[p]));
    }
    return DPB_OK;
}

static dpb_status ddp_backward_end(dpb_strategy *strategy)
{
    struct ddp *self = (struct ddp *)strategy;

    if (looks_once(self))
        DPB_TRY(all_at_once(self));
    DPB_TRY(ready_set_check_complete(&self->ready));
    return launch_complete(self);
}

/* The sums of the usage map are needed where this rank does not use a parameter: does another? */
static dpb_status finish_usage(struct ddp *self)
{
    bool needs_sums = looks_once(self);

    for (int p = 0; p < self->usage.params && looks_always(&self->options); p++)
        needs_sums |= !self->usage.by_us[p];
    return needs_sums ? ddp_usage_know(&self->usage, &self->services)
                      : ddp_usage_finish(&self->usage, &self->services);
}

static dpb_status ddp_before_optimizer(dpb_strategy *strategy)
{
    struct ddp *self = (struct ddp *)strategy;

    if (is_alone(self))
        return DPB_OK;
    DPB_TRY(advance(self, true));
    DPB_TRY(finish_usage(self));
    for (int u = 0; u < self->plan->unit_count; u++)
        DPB_TRY(finish_bucket(self, u));
    return DPB_OK;
}

static bool ddp_has_gradient(dpb_strategy *strategy, int param)
{
    const struct ddp *self = (const struct ddp *)strategy;

    return self->usage.params == 0 || self->usage.by_rank[param] > 0;
}

/* ---- options ---- */

static const struct dpb_choice hook_choices[] = {
        {"none", DPB_DDP_HOOK_NONE, "the reducer's own all-reduce"},
        {"allreduce", DPB_DDP_HOOK_ALLREDUCE, "divide the bucket, then all-reduce it"},
        {"fp16", DPB_DDP_HOOK_FP16, "cast to fp16, divide and all-reduce in it, cast back"},
        {"bf16", DPB_DDP_HOOK_BF16, "the same with bf16"},
        {"powersgd", DPB_DDP_HOOK_POWERSGD, "send two thin factors of each matrix (PowerSGD)"},
        {0},
};

static const struct dpb_choice compat_choices[] = {
        {"1.10", DPB_DDP_COMPAT_1_10, "several buckets already in step 1; first bucket 1MiB"},
        {"1.13", DPB_DDP_COMPAT_1_13, "one bucket in step 1; first bucket 1MiB"},
        {"2.x", DPB_DDP_COMPAT_2_X,
         "one bucket in step 1; first bucket 1MiB, or as --bucket when that is given"},
        {0},
};

static const struct dpb_option ddp_rows[] = {
        {
                .name = "bucket",
                .type = DPB_OPT_SIZE,
                .offset = offsetof(struct dpb_ddp_options, bucket_bytes),
                .default_text = "25MiB",
                .min = 1,
                .max = DPB_BUCKET_BYTES_MAX,
                .category = "Communication",
                .help = "bytes at which a gradient bucket is closed (DDP's bucket_cap_mb)",
                .flags = DPB_OPT_COMM_ONLY,
        },
        {
                .name = "first-bucket",
                .type = DPB_OPT_SIZE,
                .offset = offsetof(struct dpb_ddp_options, first_bucket_bytes),
                .default_text = "auto",
                .min = 1,
                .max = DPB_BUCKET_BYTES_MAX,
                .category = "Communication",
                .help = "bytes at which the first bucket is closed; auto: 1MiB, or, with "
                        "--ddp-compat 2.x, as --bucket when that is given",
                .flags = DPB_OPT_COMM_ONLY | DPB_OPT_AUTO,
        },
        {
                .name = "overlap",
                .type = DPB_OPT_BOOL,
                .offset = offsetof(struct dpb_ddp_options, overlap),
                .default_text = "on",
                .category = "Communication",
                .help = "reduce buckets during backward; off: all of them after it",
                .flags = DPB_OPT_COMM_ONLY,
        },
        {
                .name = "hook",
                .type = DPB_OPT_ENUM,
                .offset = offsetof(struct dpb_ddp_options, hook),
                .default_text = "none",
                .choices = hook_choices,
                .category = "Communication",
                .help = "communication hook, what is done with a bucket (register_comm_hook)",
                .flags = DPB_OPT_COMM_ONLY,
        },
        {
                .name = "ddp-compat",
                .type = DPB_OPT_ENUM,
                .offset = offsetof(struct dpb_ddp_options, compat),
                .default_text = "2.x",
                .choices = compat_choices,
                .category = "Communication",
                .help = "the releases of PyTorch whose rules make the buckets",
                .flags = DPB_OPT_COMM_ONLY,
        },
        {
                .name = "gradient-as-bucket-view",
                .type = DPB_OPT_BOOL,
                .offset = offsetof(struct dpb_ddp_options, gradient_as_bucket_view),
                .default_text = "off",
                .category = "Communication",
                .help = "gradients lie in buckets; off: they are copied there and back",
                .flags = DPB_OPT_COMM_ONLY,
        },
        {
                .name = "broadcast-buffers",
                .type = DPB_OPT_BOOL,
                .offset = offsetof(struct dpb_ddp_options, broadcast_buffers),
                .default_text = "on",
                .category = "Communication",
                .help = "running statistics become rank 0's before every forward pass",
                .flags = DPB_OPT_COMM_ONLY,
        },
        {
                .name = "find-unused",
                .type = DPB_OPT_BOOL,
                .offset = offsetof(struct dpb_ddp_options, find_unused),
                .default_text = "off",
                .category = "Communication",
                .help = "look for parameters that a step does not use (find_unused_parameters)",
                .flags = DPB_OPT_COMM_ONLY,
        },
        {
                .name = "static-graph",
                .type = DPB_OPT_BOOL,
                .offset = offsetof(struct dpb_ddp_options, static_graph),
                .default_text = "off",
                .category = "Communication",
                .help = "every step uses the same parameters: looked for in step 1 only",
                .flags = DPB_OPT_COMM_ONLY,
        },
        {
                .name = "last-bucket-cap",
                .type = DPB_OPT_BOOL,
                .offset = offsetof(struct dpb_ddp_options, last_bucket_cap),
                .default_text = "off",
                .category = "Communication",
                .help = "--first-bucket limits the last bucket (DDP_SET_LAST_BUCKET_CAP=1)",
                .flags = DPB_OPT_COMM_ONLY,
        },
        {
                .name = "powersgd-rank",
                .type = DPB_OPT_INT,
                .offset = offsetof(struct dpb_ddp_options, powersgd.rank),
                .default_text = "1",
                .min = 1,
                .max = 1e6,
                .category = "Communication",
                .help = "columns of the factors (matrix_approximation_rank)",
                .flags = DPB_OPT_COMM_ONLY,
        },
        {
                .name = "powersgd-start",
                .type = DPB_OPT_INT,
                .offset = offsetof(struct dpb_ddp_options, powersgd.start_step),
                .default_text = "2",
                .min = 0,
                .max = 1e9,
                .category = "Communication",
                .unit = "steps",
                .help = "first steps, which are not compressed (start_powerSGD_iter, 1000 in "
                        "PyTorch); at least 2 with error feedback or warm start",
                .flags = DPB_OPT_COMM_ONLY,
        },
        {
                .name = "powersgd-min-rate",
                .type = DPB_OPT_FLOAT,
                .offset = offsetof(struct dpb_ddp_options, powersgd.min_rate),
                .default_text = "2",
                .min = 1e-6,
                .max = 1e6,
                .category = "Communication",
                .help = "a gradient is compressed when it shrinks by more than this "
                        "(min_compression_rate)",
                .flags = DPB_OPT_COMM_ONLY,
        },
        {
                .name = "powersgd-error-feedback",
                .type = DPB_OPT_BOOL,
                .offset = offsetof(struct dpb_ddp_options, powersgd.error_feedback),
                .default_text = "on",
                .category = "Communication",
                .help = "add what compression left out to the next gradient",
                .flags = DPB_OPT_COMM_ONLY,
        },
        {
                .name = "powersgd-warm-start",
                .type = DPB_OPT_BOOL,
                .offset = offsetof(struct dpb_ddp_options, powersgd.warm_start),
                .default_text = "on",
                .category = "Communication",
                .help = "begin with the factors of the last step; off: with random ones",
                .flags = DPB_OPT_COMM_ONLY,
        },
        {
                .name = "powersgd-epsilon",
                .type = DPB_OPT_FLOAT,
                .offset = offsetof(struct dpb_ddp_options, powersgd.epsilon),
                .default_text = "0",
                .min = 0,
                .max = 1,
                .category = "Communication",
                .help = "added to a column's length before dividing by it "
                        "(orthogonalization_epsilon)",
                .flags = DPB_OPT_COMM_ONLY,
        },
};

static const struct dpb_option_table ddp_table = {
        .kind = "strategy",
        .owner = "ddp",
        .rows = ddp_rows,
        .row_count = sizeof(ddp_rows) / sizeof(ddp_rows[0]),
        .config_bytes = sizeof(struct dpb_ddp_options),
};

const struct dpb_strategy_ops dpb_strategy_ddp_ops = {
        .version = DPB_STRATEGY_OPS_VERSION,
        .name = "ddp",
        .summary = "buckets reduced during backward, as PyTorch DistributedDataParallel",
        .options = &ddp_table,
        .flags_of = ddp_flags_of,
        .open = ddp_open,
        .close = ddp_close,
        .plan = ddp_plan,
        .place = ddp_place,
        .replan_after = ddp_replan_after,
        .messages = ddp_messages,
        .describe = ddp_describe,
        .memory = ddp_memory,
        .step_begin = ddp_step_begin,
        .forward_begin = ddp_forward_begin,
        .param_use = ddp_param_use,
        .grad_ready = ddp_grad_ready,
        .backward_end = ddp_backward_end,
        .before_optimizer = ddp_before_optimizer,
        .has_gradient = ddp_has_gradient,
};

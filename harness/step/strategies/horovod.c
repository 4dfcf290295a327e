/* Strategy `horovod`: Horovod's DistributedOptimizer on top of its background thread. Each gradient
 * is handed to the thread when it is ready (with --compression fp16 as a copy of half the size).
 * The threads of all ranks talk to each other once per --cycle-time: what every rank has ready is
 * fused up to --fusion-threshold bytes and reduced, in the same order everywhere; the first time by
 * lists of requests, later by one bit per tensor (the response cache). Several tensors are copied
 * into a fusion buffer and reduced there, single ones in their place. So reductions overlap with
 * backward, but start at cycles only, and small tensors that become ready within one cycle share a
 * message. Before the optimizer synchronize() blocks the host until every reduction has been seen
 * to be complete, which DDP does not. `horovod-legacy` has the defaults of releases before 0.21: 64
 * MiB and 5 ms. */
#include "horovod.h"

#include <math.h>
#include <stdlib.h>

#include "dpb_log.h"

#define PLACE_ALIGN_BYTES 64

static struct horovod *of(dpb_strategy *strategy)
{
    return (struct horovod *)strategy;
}

/* ---- life ---- */

static dpb_status no_memory(const struct horovod *self)
{
    dpb_error("strategy \"%s\": out of memory", self->base.ops->name);
    return DPB_ERR_NO_MEMORY;
}

static dpb_status open_preset(const struct dpb_strategy_ops *ops,
                              const struct dpb_strategy_config *config, dpb_strategy **strategy)
{
    const struct dpb_horovod_options *options = config->options;
    struct horovod *self;

    DPB_TRY(horovod_options_check(options, ops->name));
    self = calloc(1, sizeof(*self));
    if (!self) {
        dpb_error("strategy \"%s\": out of memory", ops->name);
        return DPB_ERR_NO_MEMORY;
    }
    self->base.ops = ops;
    self->rank = config->rank;
    self->world_size = config->world_size;
    self->ranks_per_node = config->ranks_per_node;
    self->options = *options;
    self->services = config->services;
    self->threshold_bytes =
            fusion_threshold_bytes(options->threshold_bytes, config->ranks_per_node);
    self->cycle_ns = options->cycle_ns;
    self->last_cycle_ns = INT64_MIN / 2; /* long ago */
    tune_init(&self->tune,
              (struct tune_point){.threshold_bytes = options->threshold_bytes,
                                  .cycle_ns = options->cycle_ns},
              (int)options->tune_warmups, (int)options->tune_samples);
    *strategy = (dpb_strategy *)self;
    return DPB_OK;
}

static dpb_status horovod_open(const struct dpb_strategy_config *config, dpb_strategy **strategy)
{
    return open_preset(&dpb_strategy_horovod_ops, config, strategy);
}

static dpb_status legacy_open(const struct dpb_strategy_config *config, dpb_strategy **strategy)
{
    return open_preset(&dpb_strategy_horovod_legacy_ops, config, strategy);
}

static void free_tables(struct horovod *self)
{
    horovod_negotiation_release(&self->negotiation);
    fusion_release(&self->planned);
    ready_set_release(&self->ready);
    free(self->planned_tensor);
    free(self->score);
    free(self->member);
    free(self->response);
    free(self->queue);
    free(self->submitted_at);
    free(self->submitted);
    free(self->compressed_offset_bytes);
    free(self->request);
}

static void horovod_close(dpb_strategy *strategy)
{
    if (!strategy)
        return;
    free_tables(of(strategy));
    free(strategy);
}

static unsigned horovod_flags_of(const void *options)
{
    const struct dpb_horovod_options *of = options;
    int exponent;
    const bool is_exact = frexp(of->predivide_factor, &exponent) == 0.5;

    return of->compression == DPB_HOROVOD_COMPRESSION_FP16 || !is_exact ? DPB_STRATEGY_LOSSY : 0;
}

/* ---- the plan: a unit per tensor, reduced there or copied from there ---- */

static dpb_status alloc_tables(struct horovod *self)
{
    const size_t params = (size_t)self->model->param_count + 1;

    self->request = calloc(params, sizeof(*self->request));
    self->compressed_offset_bytes = calloc(params, sizeof(*self->compressed_offset_bytes));
    self->submitted = calloc(params, sizeof(*self->submitted));
    self->submitted_at = calloc(params, sizeof(*self->submitted_at));
    self->queue = calloc(params, sizeof(*self->queue));
    self->response = calloc(params, sizeof(*self->response));
    self->member = calloc(params, sizeof(*self->member));
    self->score = calloc((size_t)self->world_size, sizeof(*self->score));
    self->planned_tensor = calloc(params, sizeof(*self->planned_tensor));
    if (!self->request || !self->compressed_offset_bytes || !self->submitted ||
        !self->submitted_at || !self->queue || !self->response || !self->member || !self->score ||
        !self->planned_tensor)
        return no_memory(self);
    DPB_TRY(ready_set_init(&self->ready, self->model));
    return fusion_init(&self->planned, self->model->param_count);
}

static bool compresses(const struct horovod *self)
{
    return self->options.compression == DPB_HOROVOD_COMPRESSION_FP16;
}

static int64_t round_up(int64_t bytes, int64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* What is asked of each tensor, and the memory that it takes. */
static void describe_tensors(struct horovod *self)
{
    const enum dpb_dtype dtype = compresses(self) ? DPB_F16 : DPB_F32;
    const int64_t largest =
            self->options.autotune
                    ? fusion_threshold_bytes(TUNE_THRESHOLD_MAX_BYTES, self->ranks_per_node)
                    : self->threshold_bytes;
    int64_t all_bytes = 0;

    for (int p = 0; p < self->model->param_count; p++) {
        const struct dpb_param_info *param = &self->model->params[p];
        const int64_t bytes = param->numel * (int64_t)dpb_dtype_bytes(dtype);

        self->request[p] = (struct horovod_request){
                .tensor = p,
                .dtype = (int32_t)dtype,
                .rank = param->rank,
                .prescale = 1.0 / self->options.predivide_factor,
                .postscale = self->options.predivide_factor,
        };
        for (int i = 0; i < param->rank; i++)
            self->request[p].dim[i] = param->dim[i];
        self->compressed_offset_bytes[p] = self->compressed_bytes;
        if (compresses(self))
            self->compressed_bytes += round_up(bytes, PLACE_ALIGN_BYTES);
        all_bytes += fusion_place_bytes(bytes, self->options.batch_copies);
    }
    /* Never more than all tensors need, whatever the threshold. */
    all_bytes = fusion_threshold_bytes(all_bytes, self->ranks_per_node);
    self->fusion_bytes = all_bytes < largest ? all_bytes : largest;
}

static void plan_messages(struct horovod *self)
{
    for (int i = 0; i < self->model->param_count; i++) {
        const struct horovod_request *request = &self->request[self->model->ready_order[i]];

        self->planned_tensor[i] = (struct fusion_tensor){
                .bytes = self->model->params[request->tensor].numel *
                         (int64_t)dpb_dtype_bytes((enum dpb_dtype)request->dtype),
                .dtype = (enum dpb_dtype)request->dtype,
                .prescale = request->prescale,
                .postscale = request->postscale,
        };
    }
}

static dpb_status make_tables(struct horovod *self)
{
    const struct horovod_negotiation_config negotiation = {
            .rank = self->rank,
            .size = self->world_size,
            .tensors = self->model->param_count,
            .cache_capacity = (int)self->options.cache_capacity,
            .pads = self->options.batch_copies,
            .talk = {.ctx = self->services.ctx, .exchange = self->services.exchange},
    };

    DPB_TRY(alloc_tables(self));
    describe_tensors(self);
    plan_messages(self);
    return horovod_negotiation_init(&self->negotiation, &negotiation);
}

static dpb_status horovod_plan(dpb_strategy *strategy, const struct dpb_model *model,
                               const int *ready_order, struct dpb_unit_plan *plan)
{
    struct horovod *self = of(strategy);
    struct dpb_unit_plan made;
    dpb_status st;

    (void)ready_order; /* the order of each step is negotiated in it */
    DPB_TRY(dpb_unit_plan_per_param(model->params, model->param_count, model->ready_order, &made));
    self->model = model;
    st = make_tables(self);
    if (st < 0) {
        dpb_unit_plan_release(&made);
        return st;
    }
    *plan = made;
    self->plan = plan;
    return DPB_OK;
}

static dpb_status horovod_place(dpb_strategy *strategy)
{
    struct horovod *self = of(strategy);
    const struct dpb_sync_services *services = &self->services;
    dpb_device *device = services->launcher->device;
    void *memory;

    if (self->world_size == 1)
        return DPB_OK;
    if (compresses(self)) {
        if (!dpb_device_get_ops(device)->op_supported(device, DPB_OP_CAST, DPB_F16)) {
            dpb_error("strategy \"%s\": --compression fp16: device \"%s\" does not cast to fp16",
                      self->base.ops->name, dpb_device_get_ops(device)->name);
            dpb_log_hint("use --compression none");
            return DPB_ERR_UNSUPPORTED;
        }
        DPB_TRY(services->shared_alloc(services->ctx, (size_t)self->compressed_bytes, &memory));
        self->compressed = memory;
    }
    if (self->fusion_bytes == 0)
        return DPB_OK;
    DPB_TRY(services->shared_alloc(services->ctx, (size_t)self->fusion_bytes, &memory));
    self->fusion_buffer = memory;
    return DPB_OK;
}

static void horovod_memory(dpb_strategy *strategy, struct dpb_strategy_memory *memory)
{
    const struct horovod *self = of(strategy);

    if (self->world_size > 1)
        memory->shared_bytes = self->fusion_bytes + self->compressed_bytes;
}

/* ---- what is told ---- */

int64_t horovod_fused_elements(const struct horovod *self, int64_t bytes)
{
    const int64_t element_bytes = compresses(self) ? 2 : 4;

    /* Horovod's unit is of elements, so that every rank of a node has a part of the same size. */
    return horovod_is_two_level(self)
                   ? round_up(bytes / element_bytes, (int64_t)self->ranks_per_node * 64)
                   : bytes / element_bytes;
}

/* Of a step all of whose gradients are ready within one cycle: the fewest that are possible. */
static int horovod_messages(dpb_strategy *strategy, struct dpb_sync_message *messages)
{
    struct horovod *self = of(strategy);
    const struct fusion *planned = &self->planned;
    const int *order = self->model->ready_order;

    if (self->world_size == 1)
        return 0;
    fusion_groups(&self->planned, self->planned_tensor, self->model->param_count,
                  self->threshold_bytes, self->options.batch_copies);
    for (int g = 0; messages && g < planned->count; g++) {
        const int last = planned->member[planned->first[g + 1] - 1];
        int64_t elements = self->model->params[order[last]].numel, bytes = 0;

        for (int m = planned->first[g]; m < planned->first[g + 1]; m++)
            bytes += fusion_place_bytes(self->planned_tensor[planned->member[m]].bytes,
                                        self->options.batch_copies);
        if (planned->first[g + 1] - planned->first[g] > 1)
            elements = horovod_fused_elements(self, bytes);
        messages[g] = (struct dpb_sync_message){
                .kind = DPB_COLL_ALL_REDUCE,
                .dtype = self->planned_tensor[last].dtype,
                .count = elements,
                .when = DPB_SYNC_GRADIENT,
                .param = order[last],
                .unit = self->plan->unit_of[order[last]],
                .name = "ALLREDUCE",
        };
    }
    return planned->count;
}

static dpb_json *tune_json(const struct tune *tune)
{
    dpb_json *json = dpb_json_object(), *trials = dpb_json_array();

    for (int i = 0; i < tune->trial_count; i++) {
        const struct tune_trial *trial = &tune->trial[i];
        dpb_json *told = dpb_json_object();

        dpb_json_set_int(told, "fusion_threshold_bytes", trial->point.threshold_bytes);
        dpb_json_set_int(told, "cycle_time_ns", trial->point.cycle_ns);
        dpb_json_set_real(told, "bytes_per_s", trial->bytes_per_s);
        dpb_json_append(trials, told);
    }
    dpb_json_set(json, "trials", trials);
    dpb_json_set_bool(json, "is_frozen", tune->is_ended);
    return json;
}

static void horovod_describe(dpb_strategy *strategy, dpb_json *plan)
{
    const struct horovod *self = of(strategy);

    dpb_json_set_int(plan, "fusion_threshold_bytes", self->threshold_bytes);
    dpb_json_set_int(plan, "cycle_time_ns", self->cycle_ns);
    dpb_json_set_int(plan, "fusion_buffer_bytes", self->world_size > 1 ? self->fusion_bytes : 0);
    if (self->steps > 0 && self->world_size > 1) {
        dpb_json_set_real(plan, "reductions_per_step",
                          (double)self->reductions / (double)self->steps);
        dpb_json_set_int(plan, "cycles", self->negotiation.cycles);
        dpb_json_set_int(plan, "cycles_with_requests", self->negotiation.slow_cycles);
    }
    if (self->options.autotune)
        dpb_json_set(plan, "autotune", tune_json(&self->tune));
}

/* ---- hooks ---- */

static dpb_status horovod_step_begin(dpb_strategy *strategy, int64_t step)
{
    struct horovod *self = of(strategy);

    (void)step;
    ready_set_clear(&self->ready);
    self->is_going = self->is_agreed = self->step_is_counted = false;
    self->response_count = self->finished_count = self->member_count = 0;
    self->fusion_end_bytes = 0;
    return DPB_OK;
}

static dpb_status horovod_forward_begin(dpb_strategy *strategy, bool sync)
{
    struct horovod *self = of(strategy);

    (void)sync;
    if (self->world_size == 1)
        return DPB_OK;
    self->services.lock(self->services.ctx);
    self->is_going = true;
    self->services.unlock(self->services.ctx);
    return DPB_OK;
}

static dpb_status cast(struct horovod *self, int param, bool narrow)
{
    const struct dpb_sync_services *services = &self->services;
    const int64_t numel = self->model->params[param].numel;
    struct dpb_tensor wide = dpb_tensor_1d(services->grad(services->ctx, param), numel);
    struct dpb_tensor half = wide;

    half.data = self->compressed + self->compressed_offset_bytes[param];
    half.dtype = DPB_F16;
    const struct dpb_cast_args args = {.from = narrow ? wide : half, .to = narrow ? half : wide};

    return dpb_launch(services->launcher, narrow ? "compress" : "decompress", DPB_OP_CAST, &args);
}

static dpb_status horovod_grad_ready(dpb_strategy *strategy, int param)
{
    struct horovod *self = of(strategy);
    const struct dpb_sync_services *services = &self->services;

    DPB_TRY(ready_set_add(&self->ready, param));
    if (self->world_size == 1)
        return DPB_OK;
    if (compresses(self))
        DPB_TRY(cast(self, param, true));
    DPB_TRY(services->note_gradient(services->ctx, param));
    services->lock(services->ctx);
    self->submitted_at[param] = services->span_begin(services->ctx);
    self->submitted[self->submitted_count++] = param;
    services->unlock(services->ctx);
    return DPB_OK;
}

static dpb_status horovod_backward_end(dpb_strategy *strategy)
{
    return ready_set_check_complete(&of(strategy)->ready);
}

/* Every rank has everything ready, and every reduction has been started. */
static dpb_status await_agreement(struct horovod *self)
{
    const struct dpb_sync_services *services = &self->services;
    dpb_status st = DPB_OK;

    services->lock(services->ctx);
    while (!self->is_agreed && st >= 0)
        st = services->await(services->ctx);
    services->unlock(services->ctx);
    return st;
}

/* synchronize(). */
static dpb_status horovod_before_optimizer(dpb_strategy *strategy)
{
    struct horovod *self = of(strategy);
    const float postscale = (float)self->options.predivide_factor;

    if (self->world_size == 1)
        return DPB_OK;
    DPB_TRY(await_agreement(self));
    DPB_TRY(horovod_finish_all(self));
    DPB_TRY(self->services.join_background(self->services.ctx));
    self->steps++;
    for (int p = 0; p < self->model->param_count; p++) {
        const struct dpb_scale_args scale = {
                .x = self->services.grad(self->services.ctx, p),
                .count = self->model->params[p].numel,
                .factor = postscale,
        };

        if (compresses(self))
            DPB_TRY(cast(self, p, false));
        if (postscale != 1.0f)
            DPB_TRY(dpb_launch(self->services.launcher, "postscale", DPB_OP_SCALE, &scale));
    }
    return DPB_OK;
}

/* The background thread's loop. Every rank makes the same number of cycles in a step, for all see
 * which one starts its last reductions. Before the step has a batch there may be none, and no rank
 * waits for the others. */
static dpb_status horovod_tick(dpb_strategy *strategy, int64_t now_ns, int64_t *next_ns)
{
    struct horovod *self = of(strategy);
    bool is_going, is_agreed;

    *next_ns = INT64_MAX;
    if (self->world_size == 1)
        return DPB_OK;
    if (now_ns < self->last_cycle_ns + self->cycle_ns) {
        *next_ns = self->last_cycle_ns + self->cycle_ns;
        return DPB_OK;
    }
    self->last_cycle_ns = now_ns;
    self->services.lock(self->services.ctx);
    is_going = self->is_going;
    self->services.unlock(self->services.ctx);
    if (is_going)
        DPB_TRY(horovod_cycle(self, now_ns));
    *next_ns = now_ns + self->cycle_ns;
    self->services.lock(self->services.ctx);
    is_agreed = self->is_agreed;
    self->services.unlock(self->services.ctx);
    if (is_agreed)
        *next_ns = INT64_MAX;
    return DPB_OK;
}

#define HOROVOD_HOOKS                                                                              \
    .version = DPB_STRATEGY_OPS_VERSION, .close = horovod_close, .flags_of = horovod_flags_of,     \
    .plan = horovod_plan, .place = horovod_place, .messages = horovod_messages,                    \
    .describe = horovod_describe, .memory = horovod_memory, .step_begin = horovod_step_begin,      \
    .forward_begin = horovod_forward_begin, .grad_ready = horovod_grad_ready,                      \
    .backward_end = horovod_backward_end, .before_optimizer = horovod_before_optimizer,            \
    .tick = horovod_tick

const struct dpb_strategy_ops dpb_strategy_horovod_ops = {
        .name = "horovod",
        .summary = "fused by a coordinator in cycles, as Horovod since 0.21 (128 MiB, 1 ms)",
        .options = &horovod_table,
        .open = horovod_open,
        HOROVOD_HOOKS,
};

const struct dpb_strategy_ops dpb_strategy_horovod_legacy_ops = {
        .name = "horovod-legacy",
        .summary = "horovod with the defaults of earlier releases (64 MiB, 5 ms)",
        .options = &horovod_legacy_table,
        .open = legacy_open,
        HOROVOD_HOOKS,
};

/* Opening and closing the step engine: memory, views, the first plan, and the checks before the
 * first step. */
#include "step_private.h"

#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"

#define PARAM_ALIGN_BYTES 64

static dpb_status no_memory(const char *what)
{
    dpb_error("step engine: out of memory for %s", what);
    dpb_log_hint("take a smaller model, or fewer ranks on this machine");
    return DPB_ERR_NO_MEMORY;
}

/* ---- what is asked for ---- */

static dpb_status check_model(const struct dpb_step_engine *engine)
{
    const struct dpb_model *model = engine->model;
    const char *name = engine->config.workload->name;

    if (!model || model->param_count < 1) {
        dpb_error("workload \"%s\": the network has no parameters", name);
        return DPB_ERR_INTERNAL;
    }
    for (int p = 0; p < model->param_count; p++) {
        const struct dpb_param_info *param = &model->params[p];
        int64_t numel = 1;

        if (param->numel < 1 || param->dtype != DPB_F32) {
            dpb_error("workload \"%s\": parameter \"%s\" has %lld elements of type %s; the step "
                      "engine trains fp32 parameters with at least one element",
                      name, param->name, (long long)param->numel, dpb_dtype_text(param->dtype));
            return DPB_ERR_UNSUPPORTED;
        }
        for (int i = 0; i < param->rank; i++)
            numel *= param->dim[i];
        if (param->rank < 1 || numel != param->numel || (param->table && param->rank != 2)) {
            dpb_error(
                    "workload \"%s\": parameter \"%s\" of %lld elements has %d dimensions that do "
                    "not give them, or is a table that has not two",
                    name, param->name, (long long)param->numel, param->rank);
            return DPB_ERR_INTERNAL;
        }
    }
    return DPB_OK;
}

/* What the workload can do beside training in fp32. */
static dpb_status check_abilities(const struct dpb_step_config *config)
{
    const struct dpb_workload_ops *workload = config->workload;

    if (config->precision != DPB_F32 &&
        !(config->precision == DPB_BF16 && (workload->flags & DPB_WORKLOAD_BF16))) {
        dpb_error("workload \"%s\" cannot compute in precision \"%s\"", workload->name,
                  dpb_dtype_text(config->precision));
        return DPB_ERR_USAGE;
    }
    if (config->sync_batch_statistics && !(workload->flags & DPB_WORKLOAD_BATCH_STATISTICS)) {
        dpb_error("workload \"%s\" has no batch normalisation whose statistics could be "
                  "synchronised",
                  workload->name);
        return DPB_ERR_USAGE;
    }
    return DPB_OK;
}

static dpb_status check_config(const struct dpb_step_engine *engine)
{
    const struct dpb_step_config *config = &engine->config;

    if (config->global_batch < 1 || config->batch_max < 0 ||
        config->batch_max > config->global_batch) {
        dpb_error("step engine: a global batch of %lld samples, at most %lld of them on one rank",
                  (long long)config->global_batch, (long long)config->batch_max);
        return DPB_ERR_USAGE;
    }
    DPB_TRY(dpb_optimizer_config_check(&config->optimizer));
    DPB_TRY(dpb_strategy_ops_check(config->strategy));
    DPB_TRY(dpb_workload_ops_check(config->workload));
    DPB_TRY(check_abilities(config));
    return check_model(engine);
}

/* ---- memory ---- */

static const char *update_suffix(const struct dpb_step_engine *engine, size_t p)
{
    return dpb_optimizer_text(optimizer_of(&engine->config.optimizer, &engine->model->params[p]));
}

static dpb_status alloc_tables(struct dpb_step_engine *engine)
{
    const size_t params = (size_t)engine->model->param_count;
    size_t name_bytes = 0;
    char *name;

    for (size_t p = 0; p < params; p++)
        name_bytes += strlen(engine->model->params[p].name) + sizeof(".") +
                      strlen(update_suffix(engine, p));
    engine->param_offset = calloc(params, sizeof(*engine->param_offset));
    engine->param = calloc(params, sizeof(*engine->param));
    engine->grad = calloc(params, sizeof(*engine->grad));
    engine->state = calloc(params, sizeof(*engine->state));
    engine->ready_order = calloc(params, sizeof(*engine->ready_order));
    /* A plan has at most one unit per parameter. */
    engine->unit_ready = calloc(params, sizeof(*engine->unit_ready));
    engine->in_flight = calloc(params, sizeof(*engine->in_flight));
    engine->update_name = calloc(params, sizeof(*engine->update_name));
    engine->name_text = calloc(1, name_bytes);
    if (!engine->param_offset || !engine->param || !engine->grad || !engine->state ||
        !engine->ready_order || !engine->unit_ready || !engine->in_flight || !engine->update_name ||
        !engine->name_text)
        return no_memory("its tables");

    name = engine->name_text;
    for (size_t p = 0; p < params; p++) {
        engine->update_name[p] = name;
        name = stpcpy(stpcpy(name, engine->model->params[p].name), ".");
        name = stpcpy(name, update_suffix(engine, p)) + 1;
    }
    return ready_set_init(&engine->ready, engine->model);
}

static int64_t aligned_bytes(int64_t elements)
{
    return (elements * (int64_t)sizeof(float) + PARAM_ALIGN_BYTES - 1) / PARAM_ALIGN_BYTES *
           PARAM_ALIGN_BYTES;
}

/* Bytes of all parameters in registration order, each at a multiple of PARAM_ALIGN_BYTES, and,
 * unless NULL, where each begins, in floats. */
static int64_t lay_out_params(const struct dpb_model *model, int64_t *offset)
{
    int64_t bytes = 0;

    for (int p = 0; p < model->param_count; p++) {
        if (offset)
            offset[p] = bytes / (int64_t)sizeof(float);
        bytes += aligned_bytes(model->params[p].numel);
    }
    return bytes;
}

/* The same of the optimizer's state: bytes, and, unless `base` is NULL, where each array is. */
static int64_t lay_out_state(const struct dpb_model *model,
                             const struct dpb_optimizer_config *optimizer, float *base,
                             float *(*state)[OPTIMIZER_ARRAYS])
{
    int64_t bytes = 0;

    for (int p = 0; p < model->param_count; p++) {
        int64_t elements[OPTIMIZER_ARRAYS];

        optimizer_state_elements(optimizer, &model->params[p], elements);
        for (int i = 0; i < OPTIMIZER_ARRAYS; i++) {
            if (base && elements[i] > 0)
                state[p][i] = base + bytes / (int64_t)sizeof(float);
            bytes += aligned_bytes(elements[i]);
        }
    }
    return bytes;
}

void dpb_step_memory_predict(const struct dpb_model *model,
                             const struct dpb_optimizer_config *optimizer,
                             struct dpb_step_memory *memory)
{
    memory->parameters = lay_out_params(model, NULL);
    memory->gradients = dpb_unit_plan_arena_bound(model->params, model->param_count);
    memory->optimizer = lay_out_state(model, optimizer, NULL, NULL);
}

static dpb_status alloc_arenas(struct dpb_step_engine *engine)
{
    const struct dpb_device_ops *device = dpb_device_get_ops(engine->config.device);
    const struct dpb_model *model = engine->model;
    void *memory;

    engine->param_arena_bytes = (size_t)lay_out_params(model, engine->param_offset);
    DPB_TRY(device->alloc(engine->config.device, engine->param_arena_bytes, &memory));
    engine->params = memory;
    engine->state_arena_bytes = (size_t)lay_out_state(model, &engine->config.optimizer, NULL, NULL);
    if (engine->state_arena_bytes > 0) {
        DPB_TRY(device->alloc(engine->config.device, engine->state_arena_bytes, &memory));
        engine->optimizer_state = memory;
        lay_out_state(model, &engine->config.optimizer, engine->optimizer_state, engine->state);
    }
    for (int p = 0; p < model->param_count; p++)
        engine->param[p] = engine->params + engine->param_offset[p];

    engine->gradient_arena_bytes = dpb_unit_plan_arena_bound(model->params, model->param_count);
    DPB_TRY(engine->comm_ops->buffer_alloc(engine->config.comm,
                                           (size_t)engine->gradient_arena_bytes, &memory));
    engine->gradients = memory;
    return DPB_OK;
}

/* ---- the parts ---- */

static dpb_status open_launcher(struct dpb_step_engine *engine)
{
    const struct dpb_recorder_config config = {.rank = engine->rank};

    DPB_TRY(dpb_recorder_none_ops.open(&config, &engine->recorder_none));
    engine->launcher.device = engine->config.device;
    engine->launcher.recorder = engine->recorder_none;
    return dpb_device_get_ops(engine->config.device)
            ->stream_open(engine->config.device, &engine->launcher.stream);
}

static dpb_status open_strategy(struct dpb_step_engine *engine)
{
    const struct dpb_strategy_config config = {
            .world_size = engine->world_size,
            .options = engine->config.strategy_options,
            .bucket_given = engine->config.bucket_given,
            .services = {.ctx = engine, .launch = engine_launch, .wait = engine_wait},
    };
    const struct dpb_strategy_ops *strategy = engine->config.strategy;

    DPB_TRY(strategy->open(&config, &engine->strategy));
    DPB_TRY(strategy->plan(engine->strategy, engine->model, NULL, &engine->plans[0]));
    return engine_use_plan(engine);
}

dpb_status engine_use_plan(struct dpb_step_engine *engine)
{
    const struct dpb_unit_plan *plan = engine_plan(engine);

    if (plan->param_count != engine->model->param_count ||
        plan->unit_count > engine->model->param_count ||
        plan->arena_bytes > engine->gradient_arena_bytes) {
        dpb_error("strategy \"%s\": its plan of %d units and %lld bytes is not one for %d "
                  "parameters in %lld bytes",
                  engine->config.strategy->name, plan->unit_count, (long long)plan->arena_bytes,
                  engine->model->param_count, (long long)engine->gradient_arena_bytes);
        return DPB_ERR_INTERNAL;
    }
    DPB_TRY(engine_agree_on_plan(engine, plan));
    DPB_TRY(engine_check_comm(engine, plan));
    for (int p = 0; p < plan->param_count; p++)
        engine->grad[p] = (float *)(void *)(engine->gradients + plan->offset_bytes[p]);
    engine->config.workload->bind(engine->workload, engine->param, engine->grad);
    return DPB_OK;
}

static dpb_status open_workload(struct dpb_step_engine *engine)
{
    const struct dpb_workload_config config = {
            .launcher = &engine->launcher,
            .batch_max = engine->config.batch_max,
            .global_batch = engine->config.global_batch,
            .options = engine->config.workload_options,
            .ranks = &engine->exchanges.services,
            .precision = engine->config.precision,
            .sync_batch_statistics = engine->config.sync_batch_statistics,
            .seed = engine->config.seed,
            .optimizer = engine->config.optimizer,
    };
    dpb_status st;

    engine->exchanges.is_opening = true;
    st = engine->config.workload->open(&config, &engine->workload);
    engine->exchanges.is_opening = false;
    return st;
}

static dpb_status open_parts(struct dpb_step_engine *engine)
{
    DPB_TRY(check_config(engine));
    DPB_TRY(engine_agree_on_run(engine)); /* before anything whose size depends on it */
    DPB_TRY(alloc_tables(engine));
    DPB_TRY(open_launcher(engine));
    DPB_TRY(alloc_arenas(engine));
    DPB_TRY(open_workload(engine));
    DPB_TRY(open_strategy(engine));
    DPB_TRY(engine->config.workload->init_params(engine->workload, engine->config.seed));
    return engine_agree_on_replicas(engine);
}

dpb_status dpb_step_open(const struct dpb_step_config *config, dpb_step_engine **engine)
{
    const struct dpb_comm_base *comm = dpb_comm_get_base(config->comm);
    struct dpb_step_engine *self = calloc(1, sizeof(*self));
    dpb_status st;

    if (!self) {
        comm->ops->abort(config->comm, "the step engine got no memory");
        return no_memory("itself");
    }
    self->config = *config;
    self->comm_ops = comm->ops;
    self->rank = comm->rank;
    self->world_size = comm->size;
    self->phase = DPB_PHASE_SETUP;
    engine_exchanges_init(self);
    self->grad_scale = config->sum_gradients
                               ? 1.0f
                               : (float)((double)comm->size / (double)config->global_batch);
    self->coll_scale = config->sum_gradients ? 1.0f : 1.0f / (float)comm->size;
    self->model = config->workload->model(config->workload_options);
    self->hash_state = XXH3_createState();
    self->hashes = calloc((size_t)comm->size, sizeof(*self->hashes));
    st = self->hash_state && self->hashes ? open_parts(self) : no_memory("its hashes");
    if (st < 0) {
        engine_end(self, st, "setting up");
        dpb_step_close(self);
        return st;
    }
    *engine = self;
    return DPB_OK;
}

void dpb_step_close(dpb_step_engine *engine)
{
    const struct dpb_device_ops *device;

    if (!engine)
        return;
    device = dpb_device_get_ops(engine->config.device);
    if (engine->strategy)
        engine->config.strategy->close(engine->strategy);
    if (engine->workload)
        engine->config.workload->close(engine->workload);
    /* Ranks free shared memory together. After a failure they do not meet again, and collectives
     * may still be in flight: closing the comm ends both. */
    if (engine->gradients && (!engine->failed || engine->failed_by_all)) {
        engine_exchanges_free(engine);
        engine->comm_ops->buffer_free(engine->config.comm, engine->gradients);
    }
    if (engine->optimizer_state)
        device->free(engine->config.device, engine->optimizer_state);
    if (engine->params)
        device->free(engine->config.device, engine->params);
    if (engine->launcher.stream)
        device->stream_close(engine->launcher.stream);
    if (engine->recorder_none)
        dpb_recorder_none_ops.close(engine->recorder_none);
    for (int i = 0; i < 2; i++)
        dpb_unit_plan_release(&engine->plans[i]);
    ready_set_release(&engine->ready);
    XXH3_freeState(engine->hash_state);
    free(engine->packed);
    free(engine->hashes);
    free(engine->name_text);
    free(engine->update_name);
    free(engine->in_flight);
    free(engine->unit_ready);
    free(engine->ready_order);
    free(engine->state);
    free(engine->grad);
    free(engine->param);
    free(engine->param_offset);
    free(engine);
}

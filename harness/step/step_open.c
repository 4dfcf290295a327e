/* Opening and closing the step engine: its parts, the first plan, and the checks before the first
 * step. */
#include "step_private.h"

#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"

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
        !((config->precision == DPB_BF16 || config->precision == DPB_F16) &&
          workload->flags & DPB_WORKLOAD_MIXED)) {
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

static dpb_status no_capture(const char *why, const char *remedy)
{
    dpb_error("steps cannot be captured as graphs: %s", why);
    dpb_log_hint("use --capture off%s", remedy);
    return DPB_ERR_USAGE;
}

/* Between the begin and the end of a graph the host may not wait for anything in it. */
static dpb_status check_capture(const struct dpb_step_engine *engine)
{
    const struct dpb_step_config *config = &engine->config;

    if (!config->capture)
        return DPB_OK;
    if (!dpb_device_get_ops(config->device)->capture_begin)
        return no_capture("the device runs nothing but what is launched", "");
    if (config->accumulate > 1)
        return no_capture("micro-batches are handed over in the middle of a step",
                          ", or --accumulate 1");
    if (config->strategy->tick || engine->strategy_flags & DPB_STRATEGY_NEEDS_HOST)
        return no_capture("the strategy, as it is set, waits on the host in the middle of a step",
                          ", or --strategy ddp");
    if (config->loss_scale == DPB_LOSS_SCALE_DYNAMIC)
        return no_capture("a dynamic loss scale is decided on the host, before the update",
                          ", or a number as --loss-scale");
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
    if (config->accumulate < 1 || config->global_batch % config->accumulate != 0) {
        dpb_error("step engine: a global batch of %lld samples in %lld micro-batches",
                  (long long)config->global_batch, (long long)config->accumulate);
        return DPB_ERR_USAGE;
    }
    DPB_TRY(dpb_optimizer_config_check(&config->optimizer));
    DPB_TRY(dpb_strategy_ops_check(config->strategy));
    DPB_TRY(dpb_workload_ops_check(config->workload));
    DPB_TRY(check_abilities(config));
    DPB_TRY(check_capture(engine));
    return check_model(engine);
}

/* ---- memory ---- */

static dpb_status alloc_tables(struct dpb_step_engine *engine)
{
    const size_t params = (size_t)engine->model->param_count;

    engine->param = calloc(params, sizeof(*engine->param));
    engine->grad = calloc(params, sizeof(*engine->grad));
    engine->is_used = calloc(params, sizeof(*engine->is_used));
    engine->has_grad = calloc(params, sizeof(*engine->has_grad));
    engine->ready_order = calloc(params, sizeof(*engine->ready_order));
    /* A plan has at most one unit per parameter. */
    engine->unit_ready = calloc(params, sizeof(*engine->unit_ready));
    if (!engine->param || !engine->grad || !engine->is_used || !engine->has_grad ||
        !engine->ready_order || !engine->unit_ready)
        return no_memory("its tables");
    DPB_TRY(engine_sync_init(engine, engine->model->param_count));
    return ready_set_init(&engine->ready, engine->model);
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
    const struct dpb_step_shape shape = engine_shape(engine);
    struct dpb_strategy_config config = engine_strategy_config(&shape, engine->rank);
    const struct dpb_strategy_ops *strategy = engine->config.strategy;

    config.services = engine_sync_services(engine);
    DPB_TRY(strategy->open(&config, &engine->strategy));
    return strategy->plan(engine->strategy, engine->model, NULL, &engine->plans[0]);
}

static void bind_gradients(struct dpb_step_engine *engine)
{
    const struct dpb_unit_plan *plan = engine_plan(engine);

    for (int p = 0; p < plan->param_count; p++)
        engine->grad[p] = (float *)(void *)(engine->gradients + plan->offset_bytes[p]);
    engine->is_bound = false;
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
    bind_gradients(engine);
    engine_progress(engine, -1);
    DPB_TRY(engine_sync_place(engine));
    engine_bind(engine);
    return DPB_OK;
}

/* What cannot go with a workload that computes on the host in the middle of a step. */
static dpb_status check_host_part(const struct dpb_step_engine *engine)
{
    const struct dpb_workload_ops *workload = engine->config.workload;

    if (!workload->needs_host || !workload->needs_host(engine->workload))
        return DPB_OK;
    if (engine->config.capture)
        return no_capture("the workload, as it is set, computes on the host in the middle of a "
                          "step",
                          "");
    if (engine->config.loss_scale == 0.0 || !workload->update)
        return DPB_OK;
    dpb_error(
            "workload \"%s\": updates what it exchanges itself, from gradients that a scaled loss "
            "would change",
            workload->name);
    dpb_log_hint("use --loss-scale off with --precision bf16, or --embedding-gradients dense");
    return DPB_ERR_USAGE;
}

static dpb_status open_workload(struct dpb_step_engine *engine)
{
    const struct dpb_workload_config config = {
            .launcher = &engine->launcher,
            .batch_max = engine->config.batch_max,
            .global_batch = engine->config.global_batch,
            .options = engine->config.workload_options,
            .ranks = &engine->exchanges.services,
            .watch = &engine->watch,
            .precision = engine->config.precision,
            .results = engine->config.accumulate,
            .sync_batch_statistics = engine->config.sync_batch_statistics,
            .seed = engine->config.seed,
            .optimizer = engine->config.optimizer,
    };
    dpb_status st;

    engine->exchanges.is_opening = true;
    st = engine->config.workload->open(&config, &engine->workload);
    engine->exchanges.is_opening = false;
    return st < 0 ? st : check_host_part(engine);
}

static dpb_status open_parts(struct dpb_step_engine *engine)
{
    DPB_TRY(check_config(engine));
    DPB_TRY(engine_agree_on_run(engine)); /* before anything whose size depends on it */
    DPB_TRY(alloc_tables(engine));
    DPB_TRY(open_launcher(engine));
    DPB_TRY(engine_background_open(engine));
    DPB_TRY(engine_window_open(engine));
    DPB_TRY(engine_stage_open(engine));
    DPB_TRY(engine_marks_open(engine));
    DPB_TRY(engine_loss_scale_open(engine));
    DPB_TRY(open_strategy(engine));
    DPB_TRY(engine_alloc_arenas(engine));
    DPB_TRY(open_workload(engine));
    DPB_TRY(engine_use_plan(engine));
    engine_progress(engine, -1);
    return engine_init_params(engine);
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
    self->watch = (struct dpb_param_watch){.ctx = self, .use = engine_param_use};
    self->strategy_flags = dpb_strategy_flags(config->strategy, config->strategy_options);
    engine_exchanges_init(self);
    engine_sync_prepare(self);
    self->grad_scale = config->sum_gradients
                               ? 1.0f
                               : (float)((double)comm->size / (double)config->global_batch);
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
    engine_sync_release(engine);
    if (engine->strategy)
        engine->config.strategy->close(engine->strategy);
    if (engine->workload)
        engine->config.workload->close(engine->workload);
    /* Ranks free shared memory together. After a failure they do not meet again, and collectives
     * may still be in flight: closing the comm ends both. */
    if (engine->gradients && (!engine->failed || engine->failed_by_all)) {
        engine_sync_free(engine);
        engine_exchanges_free(engine);
        engine->comm_ops->buffer_free(engine->config.comm, engine->gradients);
    }
    engine_free_arenas(engine);
    engine_loss_scale_close(engine);
    engine_marks_close(engine);
    engine_stage_close(engine);
    engine_window_close(engine);
    engine_background_close(engine);
    if (engine->launcher.stream)
        device->stream_close(engine->launcher.stream);
    if (engine->recorder_none)
        dpb_recorder_none_ops.close(engine->recorder_none);
    for (int i = 0; i < 2; i++)
        dpb_unit_plan_release(&engine->plans[i]);
    ready_set_release(&engine->ready);
    XXH3_freeState(engine->hash_state);
    free(engine->hashes);
    free(engine->unit_ready);
    free(engine->ready_order);
    free(engine->has_grad);
    free(engine->is_used);
    free(engine->grad);
    free(engine->param);
    free(engine);
}

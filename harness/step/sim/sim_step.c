/* Training steps on virtual time. */
#include <math.h>
#include <stdlib.h>

#include "dpb_log.h"
#include "plan_report.h"
#include "sim_private.h"

static const struct dpb_unit_plan *plan_of(const struct dpb_sim_step *sim)
{
    return &sim->plans[sim->current];
}

const struct dpb_unit_plan *dpb_sim_step_plan(const dpb_sim_step *sim)
{
    return plan_of(sim);
}

dpb_json *dpb_sim_step_plan_json(const dpb_sim_step *sim)
{
    return plan_report(sim->config.schedule->model, plan_of(sim), sim->is_rebuilt,
                       sim->config.strategy, sim->strategy);
}

dpb_timeline *dpb_sim_step_timeline(dpb_sim_step *sim)
{
    return sim->timeline;
}

/* ---- open and close ---- */

static dpb_status no_memory(void)
{
    dpb_error("simulation: out of memory for its tables");
    return DPB_ERR_NO_MEMORY;
}

static dpb_status check(const struct dpb_sim_step_config *config)
{
    if (!config->rates || !config->schedule || !config->network.price ||
        !config->network.exchange_ns || config->accumulate < 1 || config->ranks_per_node < 1) {
        dpb_error("simulation: is opened without rates, a schedule or a network, with %lld "
                  "micro-batches, %d ranks per node",
                  (long long)config->accumulate, config->ranks_per_node);
        return DPB_ERR_INTERNAL;
    }
    DPB_TRY(dpb_optimizer_config_check(&config->optimizer));
    return dpb_strategy_ops_check(config->strategy);
}

static dpb_status price(void *ctx, enum dpb_coll_kind kind, int64_t bytes,
                        struct dpb_comm_sim_price *price)
{
    const struct dpb_sim_step *sim = ctx;
    const struct dpb_sim_network *network = &sim->config.network;
    const double factor = dpb_coll_busbw_factor(kind, sim->config.timeline.ranks);

    DPB_TRY(network->price(network->ctx, kind, bytes, &price->alone_ns, &price->compute_slowdown,
                           &price->slowdown));
    price->wire_bytes = isnan(factor) ? 0 : (int64_t)(factor * (double)bytes + 0.5);
    return DPB_OK;
}

static dpb_status open_parts(struct dpb_sim_step *sim)
{
    const struct dpb_sim_step_config *config = &sim->config;
    const struct dpb_recorder_config recorder = {.rank = config->timeline.watched};

    DPB_TRY(dpb_timeline_new(&config->timeline, &sim->timeline));
    sim->device_options = (struct dpb_device_sim_options){sim->timeline, config->rates};
    DPB_TRY(config->device_ops->open(&(struct dpb_device_config){.local_size = 1,
                                                                 .threads = 1,
                                                                 .options = &sim->device_options},
                                     &sim->device));
    sim->comm_options = (struct dpb_comm_sim_options){sim, price, sim_now_ns, sim_wait_until};
    DPB_TRY(config->comm_ops->open(
            &(struct dpb_comm_config){.rank = config->timeline.watched,
                                      .size = config->timeline.ranks,
                                      .ranks_per_node = config->ranks_per_node,
                                      .device = sim->device,
                                      .options = &sim->comm_options},
            &sim->comm));
    DPB_TRY(dpb_recorder_none_ops.open(&recorder, &sim->recorder_none));
    sim->launcher.device = sim->device;
    sim->launcher.recorder = sim->recorder_none;
    return config->device_ops->stream_open(sim->device, &sim->launcher.stream);
}

static dpb_status open_strategy(struct dpb_sim_step *sim)
{
    const struct dpb_sim_step_config *config = &sim->config;
    const struct dpb_strategy_config strategy = {
            .rank = config->timeline.watched,
            .world_size = config->timeline.ranks,
            .ranks_per_node = config->ranks_per_node,
            .is_gpu = config->is_gpu,
            .options = config->strategy_options,
            .bucket_given = config->bucket_given,
            .optimizer_is_elementwise = optimizer_is_elementwise(&config->optimizer),
            .optimizer_arrays = optimizer_arrays(&config->optimizer),
            .services = sim_services(sim),
    };

    sim->strategy_flags = dpb_strategy_flags(config->strategy, config->strategy_options);
    DPB_TRY(config->strategy->open(&strategy, &sim->strategy));
    return config->strategy->plan(sim->strategy, config->schedule->model, NULL, &sim->plans[0]);
}

static dpb_status alloc(struct dpb_sim_step *sim, int64_t bytes, float **floats)
{
    void *memory;

    DPB_TRY(sim->config.device_ops->alloc(sim->device, (size_t)bytes, &memory));
    *floats = memory;
    return DPB_OK;
}

static int64_t state_bytes(const struct dpb_model *model)
{
    int64_t most = 1;

    for (int p = 0; p < model->param_count; p++)
        most = model->params[p].numel > most ? model->params[p].numel : most;
    for (int b = 0; b < model->buffer_count; b++)
        most = model->buffer_numel[b] > most ? model->buffer_numel[b] : most;
    return most * (int64_t)sizeof(float);
}

static dpb_status open_memory(struct dpb_sim_step *sim)
{
    const struct dpb_model *model = sim->config.schedule->model;
    const size_t params = (size_t)model->param_count;
    const int64_t bytes = dpb_unit_plan_arena_bound(model->params, model->param_count);
    void *memory;

    sim->param = calloc(params, sizeof(*sim->param));
    sim->grad = calloc(params, sizeof(*sim->grad));
    sim->unit_ready = calloc(params, sizeof(*sim->unit_ready));
    if (!sim->param || !sim->grad || !sim->unit_ready)
        return no_memory();
    DPB_TRY(alloc(sim, bytes, &sim->params));
    DPB_TRY(alloc(sim, bytes, &sim->micro_gradients));
    DPB_TRY(alloc(sim, state_bytes(model), &sim->state));
    DPB_TRY(sim->config.comm_ops->buffer_alloc(sim->comm, (size_t)bytes, &memory));
    sim->gradients = memory;
    for (int p = 0; p < model->param_count; p++)
        sim->param[p] = sim->params + plan_of(sim)->offset_bytes[p] / (int64_t)sizeof(float);
    return DPB_OK;
}

static dpb_status use_plan(struct dpb_sim_step *sim)
{
    const struct dpb_unit_plan *plan = plan_of(sim);

    for (int p = 0; p < plan->param_count; p++)
        sim->grad[p] = (float *)(void *)(sim->gradients + plan->offset_bytes[p]);
    return sim_place(sim);
}

static dpb_status open_updates(struct dpb_sim_step *sim)
{
    const struct dpb_strategy_ops *strategy = sim->config.strategy;

    sim->update_count = -1;
    if (!strategy->updates)
        return DPB_OK;
    sim->update_count = strategy->updates(sim->strategy, NULL);
    sim->update = calloc((size_t)sim->update_count + 1, sizeof(*sim->update));
    if (!sim->update)
        return no_memory();
    strategy->updates(sim->strategy, sim->update);
    return DPB_OK;
}

dpb_status dpb_sim_step_open(const struct dpb_sim_step_config *config, dpb_sim_step **opened)
{
    dpb_status st;

    DPB_TRY(check(config));
    struct dpb_sim_step *sim = calloc(1, sizeof(*sim));
    if (!sim)
        return no_memory();
    sim->config = *config;
    DPB_TRY_GOTO(st, open_parts(sim), failed);
    DPB_TRY_GOTO(st, open_strategy(sim), failed);
    DPB_TRY_GOTO(st, open_memory(sim), failed);
    DPB_TRY_GOTO(st, use_plan(sim), failed);
    DPB_TRY_GOTO(st, open_updates(sim), failed);
    if (config->recorder)
        sim->launcher.recorder = config->recorder;
    *opened = sim;
    return DPB_OK;
failed:
    dpb_sim_step_close(sim);
    return st;
}

void dpb_sim_step_close(dpb_sim_step *sim)
{
    if (!sim)
        return;
    if (sim->strategy)
        sim->config.strategy->close(sim->strategy);
    dpb_unit_plan_release(&sim->plans[0]);
    dpb_unit_plan_release(&sim->plans[1]);
    if (sim->comm)
        sim->config.comm_ops->close(sim->comm); /* and its buffers */
    if (sim->device) {
        const struct dpb_device_ops *device = sim->config.device_ops;

        device->free(sim->device, sim->state);
        device->free(sim->device, sim->micro_gradients);
        device->free(sim->device, sim->params);
        device->stream_close(sim->launcher.stream);
        device->close(sim->device);
    }
    if (sim->recorder_none)
        dpb_recorder_none_ops.close(sim->recorder_none);
    dpb_timeline_free(sim->timeline);
    free(sim->update);
    free(sim->unit_ready);
    free(sim->grad);
    free(sim->param);
    free(sim);
}

/* ---- segments ---- */

/* The compute stream of the watched rank. */
static double stream_ns(const struct dpb_sim_step *sim)
{
    return dpb_timeline_watched_ns(sim->timeline);
}

static void emit_span(struct dpb_sim_step *sim, enum dpb_event_kind kind, const char *name,
                      double start_ns, double end_ns)
{
    const struct dpb_event event = {
            .start_ns = (int64_t)(start_ns + 0.5),
            .end_ns = (int64_t)(end_ns + 0.5),
            .name = name ? name : dpb_event_kind_text(kind),
            .bucket = -1,
            .kind = (uint8_t)kind,
            .lane = DPB_LANE_HOST,
    };

    dpb_range_emit(sim->launcher.recorder, &event);
}

static dpb_status run_segment(struct dpb_sim_step *sim, const struct dpb_segment *segment,
                              enum dpb_pass pass)
{
    const struct dpb_strategy_ops *strategy = sim->config.strategy;
    const int *param = sim->config.schedule->param + segment->first;
    struct dpb_timeline_span span;

    DPB_TRY(sim_ticks_run(sim, dpb_timeline_mean_ns(sim->timeline)));
    for (int i = 0; i < segment->count && strategy->param_use; i++)
        DPB_TRY(strategy->param_use(sim->strategy, param[i], pass));
    dpb_timeline_compute(sim->timeline, segment->alone_ns, &span);
    emit_span(sim, DPB_EVENT_COMPUTE, segment->name, span.start_ns, span.end_ns);
    return DPB_OK;
}

/* Is this the micro-batch after which gradients travel? */
static bool is_syncing(const struct dpb_sim_step *sim)
{
    return sim->micro_batch == sim->config.accumulate - 1 ||
           sim->strategy_flags & DPB_STRATEGY_SYNCS_MICRO_BATCHES;
}

/* Later micro-batches add their gradient to those before. */
static dpb_status add_up(struct dpb_sim_step *sim, int param)
{
    const int64_t numel = sim->config.schedule->model->params[param].numel;
    const struct dpb_add_args add = {
            .a = dpb_tensor_1d(sim->grad[param], numel),
            .b = dpb_tensor_1d(sim->micro_gradients, numel),
            .y = dpb_tensor_1d(sim->grad[param], numel),
    };

    if (sim->micro_batch == 0 || sim->strategy_flags & DPB_STRATEGY_SYNCS_MICRO_BATCHES)
        return DPB_OK;
    return dpb_launch(&sim->launcher, "accumulate", DPB_OP_ADD, &add);
}

static void note_unit_ready(struct dpb_sim_step *sim, int param)
{
    const struct dpb_unit_plan *plan = plan_of(sim);
    const int unit = plan->unit_of[param];
    struct dpb_event event = {
            .name = "ready",
            .bucket = unit,
            .kind = DPB_EVENT_READY,
            .lane = DPB_LANE_HOST,
    };

    if (++sim->unit_ready[unit] < plan->units[unit].member_count)
        return;
    event.start_ns = event.end_ns = (int64_t)(stream_ns(sim) + 0.5);
    dpb_range_emit(sim->launcher.recorder, &event);
}

static dpb_status gradients_ready(struct dpb_sim_step *sim, const struct dpb_segment *segment)
{
    const int *param = sim->config.schedule->param + segment->first;

    for (int i = 0; i < segment->count; i++) {
        DPB_TRY(add_up(sim, param[i]));
        if (!is_syncing(sim))
            continue;
        note_unit_ready(sim, param[i]);
        DPB_TRY(sim->config.strategy->grad_ready(sim->strategy, param[i]));
    }
    return DPB_OK;
}

/* ---- the phases of a step ---- */

static dpb_status forward(struct dpb_sim_step *sim)
{
    const struct dpb_strategy_ops *strategy = sim->config.strategy;
    const struct dpb_schedule *schedule = sim->config.schedule;

    if (strategy->forward_begin)
        DPB_TRY(strategy->forward_begin(sim->strategy, is_syncing(sim)));
    for (int s = 0; s < schedule->forward_count; s++)
        DPB_TRY(run_segment(sim, &schedule->forward[s], DPB_PASS_FORWARD));
    return strategy->forward_end ? strategy->forward_end(sim->strategy) : DPB_OK;
}

static dpb_status backward(struct dpb_sim_step *sim)
{
    const struct dpb_schedule *schedule = sim->config.schedule;

    for (int u = 0; u < plan_of(sim)->unit_count; u++)
        sim->unit_ready[u] = 0;
    for (int s = 0; s < schedule->backward_count; s++) {
        DPB_TRY(run_segment(sim, &schedule->backward[s], DPB_PASS_BACKWARD));
        DPB_TRY(gradients_ready(sim, &schedule->backward[s]));
    }
    return DPB_OK;
}

static dpb_status backward_end(struct dpb_sim_step *sim)
{
    const struct dpb_strategy_ops *strategy = sim->config.strategy;

    return strategy->backward_end && is_syncing(sim) ? strategy->backward_end(sim->strategy)
                                                     : DPB_OK;
}

static dpb_status sync_gradients(struct dpb_sim_step *sim)
{
    DPB_TRY(sim_ticks_run(sim, dpb_timeline_mean_ns(sim->timeline)));
    DPB_TRY(backward_end(sim));
    DPB_TRY(sim->config.strategy->before_optimizer(sim->strategy));
    return sim_ticks_end(sim);
}

static dpb_status launch_update(struct dpb_sim_step *sim, const struct dpb_param_info *info)
{
    const struct optimizer_place place = {
            .param = info,
            .value = sim->params,
            .grad = (const float *)(const void *)sim->gradients,
            .state = {sim->state, sim->state},
    };

    return optimizer_launch(&sim->config.optimizer, &place, sim->steps_done + 1, &sim->launcher,
                            "optimizer");
}

/* What this rank updates: part by part, or all of it in one launch. */
static dpb_status update(struct dpb_sim_step *sim)
{
    const struct dpb_model *model = sim->config.schedule->model;
    const int parts = sim->update_count < 0 ? model->param_count : sim->update_count;
    int64_t elements = 0;

    for (int u = 0; u < parts; u++) {
        const int p = sim->update_count < 0 ? u : sim->update[u].param;
        struct dpb_param_info info = model->params[p];
        const int64_t count = sim->update_count < 0 ? info.numel : sim->update[u].count;

        elements += count;
        if (count < info.numel) {
            info.rank = 1;
            info.dim[0] = info.numel = count;
        }
        if (!sim->config.fused_optimizer)
            DPB_TRY(launch_update(sim, &info));
    }
    if (!sim->config.fused_optimizer || elements == 0)
        return DPB_OK;
    return launch_update(sim, &(struct dpb_param_info){.name = "all",
                                                       .dtype = DPB_F32,
                                                       .rank = 1,
                                                       .dim = {elements},
                                                       .numel = elements});
}

static dpb_status optimize(struct dpb_sim_step *sim)
{
    const struct dpb_strategy_ops *strategy = sim->config.strategy;

    DPB_TRY(update(sim));
    if (strategy->after_optimizer)
        DPB_TRY(strategy->after_optimizer(sim->strategy));
    dpb_timeline_host_wait_compute(sim->timeline);
    return strategy->step_end ? strategy->step_end(sim->strategy) : DPB_OK;
}

/* A phase: its span, and its length. */
static dpb_status run_phase(struct dpb_sim_step *sim, dpb_status (*run)(struct dpb_sim_step *),
                            enum dpb_event_kind kind, double *phase_ns)
{
    const double start_ns = stream_ns(sim);

    DPB_TRY(run(sim));
    *phase_ns += stream_ns(sim) - start_ns;
    emit_span(sim, kind, NULL, start_ns, stream_ns(sim));
    return DPB_OK;
}

static dpb_status wait_for_data(struct dpb_sim_step *sim)
{
    const double before_ns = dpb_timeline_host_ns(sim->timeline);

    dpb_timeline_host(sim->timeline, sim->config.schedule->data_ns);
    emit_span(sim, DPB_EVENT_DATA, NULL, before_ns, dpb_timeline_host_ns(sim->timeline));
    return DPB_OK;
}

static dpb_status run_phases(struct dpb_sim_step *sim, struct dpb_sim_step_times *times)
{
    const struct dpb_strategy_ops *strategy = sim->config.strategy;

    if (strategy->step_begin)
        DPB_TRY(strategy->step_begin(sim->strategy, sim->steps_done + 1));
    sim_ticks_begin(sim);
    for (sim->micro_batch = 0; sim->micro_batch < sim->config.accumulate; sim->micro_batch++) {
        DPB_TRY(wait_for_data(sim));
        DPB_TRY(run_phase(sim, forward, DPB_EVENT_FORWARD, &times->forward_ns));
        DPB_TRY(run_phase(sim, backward, DPB_EVENT_BACKWARD, &times->backward_ns));
        if (sim->micro_batch < sim->config.accumulate - 1)
            DPB_TRY(backward_end(sim));
    }
    sim->micro_batch = sim->config.accumulate - 1;
    DPB_TRY(run_phase(sim, sync_gradients, DPB_EVENT_SYNC, &times->sync_ns));
    return run_phase(sim, optimize, DPB_EVENT_OPTIMIZER, &times->optimizer_ns);
}

static dpb_status replan(struct dpb_sim_step *sim)
{
    const struct dpb_model *model = sim->config.schedule->model;
    struct dpb_unit_plan *old = &sim->plans[sim->current];
    struct dpb_unit_plan *fresh = &sim->plans[1 - sim->current];

    DPB_TRY(sim->config.strategy->plan(sim->strategy, model, model->ready_order, fresh));
    sim->current = 1 - sim->current;
    dpb_unit_plan_release(old);
    sim->is_rebuilt = true;
    return use_plan(sim);
}

dpb_status dpb_sim_step_run(dpb_sim_step *sim, struct dpb_sim_step_times *times)
{
    const struct dpb_strategy_ops *strategy = sim->config.strategy;
    const int64_t step = sim->steps_done + 1;
    const double last_ns = dpb_timeline_last_ns(sim->timeline);
    const double mean_ns = dpb_timeline_mean_ns(sim->timeline);
    const double watched_ns = stream_ns(sim);
    const double busy_ns = dpb_timeline_busy_ns(sim->timeline);
    const double alone_ns = dpb_timeline_alone_ns(sim->timeline);
    const int64_t wire_bytes = sim->wire_bytes, collectives = sim->collectives;
    struct dpb_sim_step_times taken = {0};

    ((struct dpb_recorder_base *)sim->launcher.recorder)
            ->ops->set_step(sim->launcher.recorder, (int32_t)step);
    dpb_timeline_step_begin(sim->timeline, step);
    DPB_TRY(run_phases(sim, &taken));
    emit_span(sim, DPB_EVENT_STEP, NULL, watched_ns, stream_ns(sim));
    taken.step_ns = dpb_timeline_last_ns(sim->timeline) - last_ns;
    taken.mean_ns = dpb_timeline_mean_ns(sim->timeline) - mean_ns;
    taken.busy_ns = dpb_timeline_busy_ns(sim->timeline) - busy_ns;
    taken.alone_ns = dpb_timeline_alone_ns(sim->timeline) - alone_ns;
    taken.wire_bytes = sim->wire_bytes - wire_bytes;
    taken.collectives = sim->collectives - collectives;
    if (sim->under_way > 0) {
        dpb_error("strategy \"%s\": ends a step while %d collectives are under way", strategy->name,
                  sim->under_way);
        return DPB_ERR_INTERNAL;
    }
    sim->steps_done = step;
    if (strategy->replan_after && strategy->replan_after(sim->strategy, step))
        DPB_TRY(replan(sim));
    *times = taken;
    return DPB_OK;
}

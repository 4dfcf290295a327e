/* The training steps of one rank. */
#include "step_private.h"

#include <stdio.h>

#include "dpb_clock.h"
#include "dpb_log.h"

dpb_status engine_end(struct dpb_step_engine *engine, dpb_status st, const char *what)
{
    char reason[160];

    if (st >= 0 || engine->failed)
        return st;
    engine->failed = true;
    if (engine->failed_by_all)
        return st;
    snprintf(reason, sizeof(reason), "%s failed in step %lld (%s): %s", what,
             (long long)(engine->steps_done + 1), dpb_phase_text(engine->phase),
             dpb_status_text(st));
    engine->comm_ops->abort(engine->config.comm, reason);
    return st;
}

/* ---- what the strategy and the workload call ---- */

static void emit(struct dpb_step_engine *engine, enum dpb_lane lane, enum dpb_event_kind kind,
                 const char *name, int unit, int64_t start_ns, int64_t end_ns)
{
    const struct dpb_event event = {
            .start_ns = start_ns,
            .end_ns = end_ns,
            .name = name,
            .bucket = unit,
            .bytes = lane == DPB_LANE_COMM ? engine_plan(engine)->units[unit].bytes : 0,
            .kind = (uint8_t)kind,
            .lane = (uint8_t)lane,
    };

    dpb_range_emit(engine->launcher.recorder, &event);
}

dpb_status engine_launch(void *ctx, int unit, enum dpb_coll_kind kind)
{
    struct dpb_step_engine *engine = ctx;
    const struct dpb_unit_plan *plan = engine_plan(engine);
    struct in_flight *flight;

    if (unit < 0 || unit >= plan->unit_count || (unsigned)kind >= DPB_COLL_COUNT) {
        dpb_error("strategy \"%s\": launches collective kind %d on unit %d of %d",
                  engine->config.strategy->name, (int)kind, unit, plan->unit_count);
        return DPB_ERR_INTERNAL;
    }
    flight = &engine->in_flight[unit];
    if (flight->request || engine->unit_ready[unit] < plan->units[unit].member_count) {
        dpb_error("strategy \"%s\": launches unit %d %s", engine->config.strategy->name, unit,
                  flight->request ? "while it is in flight" : "before all its gradients are ready");
        return DPB_ERR_INTERNAL;
    }

    const struct dpb_coll coll = {
            .kind = kind,
            .dtype = plan->units[unit].dtype,
            .buffer = engine->gradients + plan->units[unit].offset_bytes,
            .count = plan->units[unit].elements,
            .scale = engine->coll_scale,
            .tag = unit,
    };
    engine_progress(engine, unit);
    DPB_TRY(engine->comm_ops->start(engine->config.comm, &coll, engine->launcher.stream,
                                    &flight->request));
    flight->kind = kind;
    return DPB_OK;
}

dpb_status engine_wait(void *ctx, int unit)
{
    struct dpb_step_engine *engine = ctx;
    struct in_flight *flight;
    struct dpb_coll_times times;

    if (unit < 0 || unit >= engine_plan(engine)->unit_count || !engine->in_flight[unit].request) {
        dpb_error("strategy \"%s\": waits for unit %d, on which nothing is in flight",
                  engine->config.strategy->name, unit);
        return DPB_ERR_INTERNAL;
    }
    flight = &engine->in_flight[unit];
    engine_progress(engine, unit);
    DPB_TRY(engine->comm_ops->wait(engine->config.comm, flight->request, engine->launcher.stream,
                                   &times));
    flight->request = NULL;
    emit(engine, DPB_LANE_COMM, DPB_EVENT_COMM, dpb_coll_text(flight->kind), unit, times.start_ns,
         times.end_ns);
    if (times.all_ready_ns > times.start_ns)
        emit(engine, DPB_LANE_COMM, DPB_EVENT_COMM_WAIT, dpb_coll_text(flight->kind), unit,
             times.start_ns, times.all_ready_ns);
    return DPB_OK;
}

static dpb_status on_grad_ready(void *ctx, int param)
{
    struct dpb_step_engine *engine = ctx;
    const struct dpb_unit_plan *plan = engine_plan(engine);
    int unit;

    DPB_TRY(ready_set_add(&engine->ready, param));
    engine->ready_order[engine->ready.ready_count - 1] = param;
    unit = plan->unit_of[param];
    if (++engine->unit_ready[unit] == plan->units[unit].member_count) {
        const int64_t now_ns = dpb_clock_now_ns();

        emit(engine, DPB_LANE_HOST, DPB_EVENT_READY, "ready", unit, now_ns, now_ns);
    }
    return engine->config.strategy->grad_ready(engine->strategy, param);
}

/* ---- the phases of a step ---- */

static void phase_begin(struct dpb_step_engine *engine, enum dpb_phase phase,
                        enum dpb_event_kind kind)
{
    engine->phase = phase;
    engine_progress(engine, -1);
    dpb_range_begin(engine->launcher.recorder, DPB_LANE_HOST, kind, dpb_event_kind_text(kind), -1);
}

/* The next phase begins where this one ends: no time is between them. */
static void phase_end(struct dpb_step_engine *engine, int64_t *duration_ns)
{
    int64_t now_ns;

    dpb_range_end(engine->launcher.recorder, DPB_LANE_HOST);
    now_ns = dpb_clock_now_ns();
    *duration_ns = now_ns - engine->phase_start_ns;
    engine->phase_start_ns = now_ns;
}

static dpb_status check_batch(const struct dpb_step_engine *engine, const struct dpb_batch *batch)
{
    if (batch->samples >= 0 && batch->samples <= engine->config.batch_max)
        return DPB_OK;
    dpb_error("workload \"%s\": a batch of %lld samples on rank %d, at most %lld were announced",
              engine->config.workload->name, (long long)batch->samples, engine->rank,
              (long long)engine->config.batch_max);
    return DPB_ERR_INTERNAL;
}

static dpb_status get_batch(struct dpb_step_engine *engine, struct dpb_batch *batch)
{
    const struct dpb_batch_source *source = &engine->config.source;
    const dpb_status st = source->next(source->ctx, engine->steps_done + 1, batch);

    return st == DPB_OK ? check_batch(engine, batch) : st;
}

static dpb_status forward(struct dpb_step_engine *engine, const struct dpb_batch *batch,
                          struct dpb_forward_result *result)
{
    const struct dpb_strategy_ops *strategy = engine->config.strategy;

    if (strategy->step_begin)
        DPB_TRY(strategy->step_begin(engine->strategy, engine->steps_done + 1));
    return engine->config.workload->forward(engine->workload, batch, true, result);
}

static dpb_status backward(struct dpb_step_engine *engine, const struct dpb_batch *batch)
{
    const struct dpb_unit_plan *plan = engine_plan(engine);

    ready_set_clear(&engine->ready);
    for (int u = 0; u < plan->unit_count; u++)
        engine->unit_ready[u] = 0;
    DPB_TRY(engine->config.workload->backward(engine->workload, batch, engine->grad_scale,
                                              on_grad_ready, engine));
    return ready_set_check_complete(&engine->ready);
}

static dpb_status sync_gradients(struct dpb_step_engine *engine)
{
    const struct dpb_strategy_ops *strategy = engine->config.strategy;

    if (strategy->backward_end)
        DPB_TRY(strategy->backward_end(engine->strategy));
    DPB_TRY(strategy->before_optimizer(engine->strategy));
    for (int u = 0; u < engine_plan(engine)->unit_count; u++) {
        if (engine->in_flight[u].request) {
            dpb_error("strategy \"%s\": lets the optimizer start while unit %d is in flight",
                      strategy->name, u);
            return DPB_ERR_INTERNAL;
        }
    }
    return DPB_OK;
}

/* What the workload updates itself. */
static dpb_status update_workload(struct dpb_step_engine *engine)
{
    const struct dpb_workload_ops *workload = engine->config.workload;
    dpb_status st;

    if (!workload->update)
        return DPB_OK;
    dpb_range_begin(engine->launcher.recorder, DPB_LANE_HOST, DPB_EVENT_COMPUTE, "update", -1);
    st = workload->update(engine->workload, &engine->config.optimizer, engine->steps_done + 1);
    dpb_range_end(engine->launcher.recorder, DPB_LANE_HOST);
    return st;
}

static dpb_status optimize(struct dpb_step_engine *engine)
{
    const struct dpb_strategy_ops *strategy = engine->config.strategy;

    for (int p = 0; p < engine->model->param_count; p++) {
        const struct optimizer_place place = {
                .param = &engine->model->params[p],
                .value = engine->param[p],
                .grad = engine->grad[p],
                .state = {engine->state[p][0], engine->state[p][1]},
        };

        DPB_TRY(optimizer_launch(&engine->config.optimizer, &place, engine->steps_done + 1,
                                 &engine->launcher, engine->update_name[p]));
    }
    DPB_TRY(update_workload(engine));
    if (strategy->after_optimizer)
        DPB_TRY(strategy->after_optimizer(engine->strategy));
    DPB_TRY(engine_exchanges_check_done(engine));
    /* The step has not ended before the work has. */
    DPB_TRY(dpb_device_get_ops(engine->config.device)->stream_sync(engine->launcher.stream));
    if (strategy->step_end)
        DPB_TRY(strategy->step_end(engine->strategy));
    return DPB_OK;
}

static dpb_status run_phases(struct dpb_step_engine *engine, struct dpb_step_times *times)
{
    struct dpb_forward_result result = {0};
    struct dpb_batch batch = {0};
    dpb_status st;

    phase_begin(engine, DPB_PHASE_DATA, DPB_EVENT_DATA);
    st = get_batch(engine, &batch);
    phase_end(engine, &times->data_ns);
    if (st != DPB_OK)
        return st;

    phase_begin(engine, DPB_PHASE_FORWARD, DPB_EVENT_FORWARD);
    st = forward(engine, &batch, &result);
    phase_end(engine, &times->forward_ns);
    DPB_TRY(st);

    phase_begin(engine, DPB_PHASE_BACKWARD, DPB_EVENT_BACKWARD);
    st = backward(engine, &batch);
    phase_end(engine, &times->backward_ns);
    DPB_TRY(st);

    phase_begin(engine, DPB_PHASE_SYNC, DPB_EVENT_SYNC);
    st = sync_gradients(engine);
    phase_end(engine, &times->sync_ns);
    DPB_TRY(st);

    phase_begin(engine, DPB_PHASE_OPTIMIZER, DPB_EVENT_OPTIMIZER);
    st = optimize(engine);
    phase_end(engine, &times->optimizer_ns);
    DPB_TRY(st);

    times->end_ns = engine->phase_start_ns;
    times->loss_sum = result.loss_sum;
    times->correct = result.correct;
    times->samples = batch.samples;
    return DPB_OK;
}

/* ---- after a step ---- */

static dpb_status replan(struct dpb_step_engine *engine)
{
    const struct dpb_strategy_ops *strategy = engine->config.strategy;
    struct dpb_unit_plan *old = &engine->plans[engine->current];
    struct dpb_unit_plan *fresh = &engine->plans[1 - engine->current];

    engine->phase = DPB_PHASE_SETUP;
    engine_progress(engine, -1);
    DPB_TRY(engine_adopt_ready_order(engine));
    DPB_TRY(strategy->plan(engine->strategy, engine->model, engine->ready_order, fresh));
    engine->current = 1 - engine->current;
    engine->rebuilt = true;
    dpb_unit_plan_release(old);
    return engine_use_plan(engine);
}

dpb_status dpb_step_run(dpb_step_engine *engine, struct dpb_step_times *times)
{
    const struct dpb_strategy_ops *strategy = engine->config.strategy;
    const int64_t step = engine->steps_done + 1;
    struct dpb_step_times taken = {0};
    dpb_status st;

    if (engine->failed) {
        dpb_error("step %lld: an earlier step or check has failed, no further step is possible",
                  (long long)step);
        return DPB_ERR_INTERNAL;
    }
    ((struct dpb_recorder_base *)engine->launcher.recorder)
            ->ops->set_step(engine->launcher.recorder, (int32_t)step);
    engine_exchanges_begin(engine);
    taken.start_ns = dpb_clock_now_ns();
    engine->phase_start_ns = taken.start_ns;
    dpb_range_begin(engine->launcher.recorder, DPB_LANE_HOST, DPB_EVENT_STEP,
                    dpb_event_kind_text(DPB_EVENT_STEP), -1);
    st = run_phases(engine, &taken);
    dpb_range_end(engine->launcher.recorder, DPB_LANE_HOST);
    if (st != DPB_OK)
        return engine_end(engine, st, "a training step");

    if (strategy->replan_after && strategy->replan_after(engine->strategy, step)) {
        st = replan(engine);
        if (st < 0)
            return engine_end(engine, st, "making the new communication plan");
    }
    engine->phase = DPB_PHASE_DONE;
    engine_progress(engine, -1);
    engine->steps_done = step;
    *times = taken;
    return DPB_OK;
}

void dpb_step_set_recorder(dpb_step_engine *engine, dpb_recorder *recorder)
{
    engine->launcher.recorder = recorder ? recorder : engine->recorder_none;
}

/* ---- evaluation ---- */

static dpb_status evaluate(struct dpb_step_engine *engine, const struct dpb_batch_source *source,
                           struct dpb_forward_result *sum, int64_t *samples)
{
    for (int64_t number = 1;; number++) {
        struct dpb_forward_result result = {0};
        struct dpb_batch batch = {0};
        dpb_status st;

        engine->phase = DPB_PHASE_DATA;
        engine_progress(engine, -1);
        st = source->next(source->ctx, number, &batch);
        if (st == DPB_END)
            return DPB_OK;
        DPB_TRY(st);
        DPB_TRY(check_batch(engine, &batch));

        engine->phase = DPB_PHASE_FORWARD;
        engine_progress(engine, -1);
        DPB_TRY(engine->config.workload->forward(engine->workload, &batch, false, &result));
        DPB_TRY(engine_exchanges_check_done(engine));
        sum->correct += result.correct;
        sum->loss_sum += result.loss_sum;
        *samples += batch.samples;
    }
}

dpb_status dpb_step_evaluate(dpb_step_engine *engine, const struct dpb_batch_source *source,
                             int64_t *correct, int64_t *samples, double *loss_sum)
{
    dpb_recorder *const recorder = engine->launcher.recorder;
    const struct dpb_step_exchanges exchanges = engine->exchanges.step;
    struct dpb_forward_result sum = {0};
    int64_t sample_count = 0;
    dpb_status st;

    /* Its operators and exchanges belong to no training step. */
    engine->launcher.recorder = engine->recorder_none;
    st = evaluate(engine, source, &sum, &sample_count);
    engine->launcher.recorder = recorder;
    engine->exchanges.step = exchanges;
    if (st < 0)
        return engine_end(engine, st, "evaluation");

    engine->phase = DPB_PHASE_DONE;
    engine_progress(engine, -1);
    *correct = sum.correct;
    *samples = sample_count;
    *loss_sum = sum.loss_sum;
    return DPB_OK;
}

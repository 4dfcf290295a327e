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

/* ---- what the workload calls ---- */

void engine_bind(struct dpb_step_engine *engine)
{
    const bool is_micro = engine->micro_grad && engine->micro_batch > 0;

    engine->config.workload->bind(engine->workload, engine->param,
                                  is_micro ? engine->micro_grad : engine->grad);
    engine->is_bound = true;
}

dpb_status engine_param_use(void *ctx, int param, enum dpb_pass pass)
{
    struct dpb_step_engine *engine = ctx;
    const struct dpb_strategy_ops *strategy = engine->config.strategy;

    if (engine->is_evaluating)
        return DPB_OK;
    if (param < 0 || param >= engine->model->param_count || pass != engine->pass) {
        dpb_error("workload \"%s\": uses parameter number %d of %d in the %s pass",
                  engine->config.workload->name, param, engine->model->param_count,
                  pass == DPB_PASS_FORWARD ? "forward" : "backward");
        return DPB_ERR_INTERNAL;
    }
    engine->is_used[param] = true;
    if (strategy->param_use)
        DPB_TRY(strategy->param_use(engine->strategy, param, pass));
    if (!engine->is_bound)
        engine_bind(engine);
    return DPB_OK;
}

/* Is this the micro-batch after which gradients travel? */
static bool is_syncing(const struct dpb_step_engine *engine)
{
    return engine->micro_batch == engine->config.accumulate - 1 ||
           engine->strategy_flags & DPB_STRATEGY_SYNCS_MICRO_BATCHES;
}

/* Add the gradient of this micro-batch to those before it, if there are any. */
static dpb_status add_up(struct dpb_step_engine *engine, int param)
{
    const int64_t numel = engine->model->params[param].numel;
    const struct dpb_cast_args first = {
            .from = dpb_tensor_1d(engine->micro_grad[param], numel),
            .to = dpb_tensor_1d(engine->grad[param], numel),
    };
    const struct dpb_add_args add = {
            .a = dpb_tensor_1d(engine->grad[param], numel),
            .b = dpb_tensor_1d(engine->micro_grad[param], numel),
            .y = dpb_tensor_1d(engine->grad[param], numel),
    };

    return engine->has_grad[param]
                   ? dpb_launch(&engine->launcher, "accumulate", DPB_OP_ADD, &add)
                   : dpb_launch(&engine->launcher, "accumulate", DPB_OP_CAST, &first);
}

static void note_unit_ready(struct dpb_step_engine *engine, int param)
{
    const struct dpb_unit_plan *plan = engine_plan(engine);
    const int unit = plan->unit_of[param];
    struct dpb_event event = {
            .name = "ready",
            .bucket = unit,
            .kind = DPB_EVENT_READY,
            .lane = DPB_LANE_HOST,
    };

    if (++engine->unit_ready[unit] < plan->units[unit].member_count)
        return;
    event.start_ns = event.end_ns = dpb_clock_now_ns();
    dpb_range_emit(engine->launcher.recorder, &event);
}

static dpb_status on_grad_ready(void *ctx, int param)
{
    struct dpb_step_engine *engine = ctx;

    DPB_TRY(ready_set_add(&engine->ready, param));
    if (!engine->is_used[param]) {
        dpb_error("workload \"%s\": has a gradient of \"%s\" whose use it has not announced",
                  engine->config.workload->name, engine->model->params[param].name);
        return DPB_ERR_INTERNAL;
    }
    engine->ready_order[engine->ready.ready_count - 1] = param;
    if (engine->micro_grad && engine->micro_batch > 0)
        DPB_TRY(add_up(engine, param));
    engine->has_grad[param] = true;
    if (!is_syncing(engine))
        return DPB_OK;
    note_unit_ready(engine, param);
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

/* What other micro-batches of the step have left behind cannot be undone. */
static dpb_status end_within_step(const struct dpb_step_engine *engine)
{
    dpb_error("step %lld: the batches end after %lld of its %lld micro-batches",
              (long long)(engine->steps_done + 1), (long long)engine->micro_batch,
              (long long)engine->config.accumulate);
    dpb_log_hint("a source must have whole steps: a multiple of --accumulate batches");
    return DPB_ERR_INTERNAL;
}

/* A micro-batch is told as a part of the step's batch. */
static dpb_status get_batch(struct dpb_step_engine *engine, struct dpb_batch *batch)
{
    const struct dpb_batch_source *source = &engine->config.source;
    const int64_t micro_batches = engine->config.accumulate;
    const dpb_status st = source->next(
            source->ctx, engine->steps_done * micro_batches + engine->micro_batch + 1, batch);

    if (st == DPB_END && engine->micro_batch > 0)
        return end_within_step(engine);
    if (st != DPB_OK)
        return st;
    batch->step = engine->steps_done + 1;
    batch->first += engine->micro_batch * (engine->config.global_batch / micro_batches);
    DPB_TRY(check_batch(engine, batch));
    return engine_stage_batch(engine, batch);
}

static dpb_status forward(struct dpb_step_engine *engine, const struct dpb_batch *batch)
{
    const struct dpb_strategy_ops *strategy = engine->config.strategy;

    engine->pass = DPB_PASS_FORWARD;
    if (strategy->forward_begin)
        DPB_TRY(strategy->forward_begin(engine->strategy, is_syncing(engine)));
    if (engine->micro_grad || !engine->is_bound)
        engine_bind(engine);
    DPB_TRY(engine->config.workload->forward(engine->workload, batch, true, engine->micro_batch));
    return strategy->forward_end ? strategy->forward_end(engine->strategy) : DPB_OK;
}

/* To the order in which gradients became ready: those that did not. */
static void append_unused(struct dpb_step_engine *engine)
{
    int count = engine->ready.ready_count;

    for (int p = 0; p < engine->model->param_count; p++)
        if (!engine->ready.is_ready[p])
            engine->ready_order[count++] = p;
}

static dpb_status backward(struct dpb_step_engine *engine, const struct dpb_batch *batch)
{
    const struct dpb_unit_plan *plan = engine_plan(engine);

    engine->pass = DPB_PASS_BACKWARD;
    ready_set_clear(&engine->ready);
    for (int p = 0; p < engine->model->param_count; p++)
        engine->is_used[p] = false;
    for (int u = 0; u < plan->unit_count; u++)
        engine->unit_ready[u] = 0;
    DPB_TRY(engine->config.workload->backward(engine->workload, batch,
                                              engine->grad_scale * (float)engine->loss_scale.value,
                                              on_grad_ready, engine));
    if (!(engine->strategy_flags & DPB_STRATEGY_FINDS_UNUSED))
        return ready_set_check_complete(&engine->ready);
    append_unused(engine);
    return DPB_OK;
}

static dpb_status backward_end(struct dpb_step_engine *engine)
{
    const struct dpb_strategy_ops *strategy = engine->config.strategy;

    return strategy->backward_end && is_syncing(engine) ? strategy->backward_end(engine->strategy)
                                                        : DPB_OK;
}

static dpb_status sync_gradients(struct dpb_step_engine *engine)
{
    DPB_TRY(backward_end(engine));
    DPB_TRY(engine->config.strategy->before_optimizer(engine->strategy));
    DPB_TRY(engine_sync_ticks_end(engine));
    engine_sync_flush(engine);
    return engine_sync_check_done(engine);
}

/* ---- graphs ---- */

/* The first steps bring everything up that is made when it is first used; after the first, the plan
 * may be another. */
#define STEPS_BEFORE_CAPTURE 2

static dpb_status capture_begin(struct dpb_step_engine *engine)
{
    if (!engine->config.capture || engine->steps_done < STEPS_BEFORE_CAPTURE)
        return DPB_OK;
    DPB_TRY(dpb_device_get_ops(engine->config.device)
                    ->capture_begin(engine->config.device, engine->launcher.stream));
    engine->is_capturing = true;
    return DPB_OK;
}

static dpb_status capture_end(struct dpb_step_engine *engine)
{
    if (!engine->is_capturing)
        return DPB_OK;
    engine->is_capturing = false;
    engine->captured++;
    return dpb_device_get_ops(engine->config.device)
            ->capture_end(engine->config.device, engine->launcher.stream);
}

/* After a step that failed in between: a stream that still records could not be closed. */
static void capture_abandon(struct dpb_step_engine *engine)
{
    if (!engine->is_capturing)
        return;
    engine->is_capturing = false;
    (void)dpb_device_get_ops(engine->config.device)
            ->capture_end(engine->config.device, engine->launcher.stream);
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

static dpb_status update(struct dpb_step_engine *engine)
{
    bool is_skipped;

    DPB_TRY(engine_loss_scale_apply(engine, &is_skipped));
    if (is_skipped)
        return DPB_OK;
    DPB_TRY(engine_update_all(engine));
    DPB_TRY(update_workload(engine));
    engine->updates_done++;
    return DPB_OK;
}

static dpb_status optimize(struct dpb_step_engine *engine)
{
    const struct dpb_strategy_ops *strategy = engine->config.strategy;

    DPB_TRY(update(engine));
    if (strategy->after_optimizer)
        DPB_TRY(strategy->after_optimizer(engine->strategy));
    DPB_TRY(engine_exchanges_check_done(engine));
    DPB_TRY(engine_sync_check_done(engine));
    DPB_TRY(engine_mark(engine));
    DPB_TRY(capture_end(engine));
    /* The step has not ended before the work has. */
    DPB_TRY(dpb_device_get_ops(engine->config.device)->stream_sync(engine->launcher.stream));
    if (strategy->step_end)
        DPB_TRY(strategy->step_end(engine->strategy));
    engine_sync_flush(engine);
    return DPB_OK;
}

/* The phases of one micro-batch, added to the step's. The last one's backward_end() is a part of
 * synchronising. */
static dpb_status run_micro_batch(struct dpb_step_engine *engine, struct dpb_step_times *times)
{
    const bool is_last = engine->micro_batch == engine->config.accumulate - 1;
    struct dpb_batch batch = {0};
    int64_t duration_ns;
    dpb_status st;

    phase_begin(engine, DPB_PHASE_DATA, DPB_EVENT_DATA);
    st = get_batch(engine, &batch);
    phase_end(engine, &duration_ns);
    times->data_ns += duration_ns;
    if (st != DPB_OK)
        return st;

    phase_begin(engine, DPB_PHASE_FORWARD, DPB_EVENT_FORWARD);
    st = capture_begin(engine);
    if (st >= 0)
        st = engine_mark(engine);
    if (st >= 0)
        st = forward(engine, &batch);
    if (st >= 0)
        st = engine_mark(engine);
    phase_end(engine, &duration_ns);
    times->forward_ns += duration_ns;
    DPB_TRY(st);

    phase_begin(engine, DPB_PHASE_BACKWARD, DPB_EVENT_BACKWARD);
    st = backward(engine, &batch);
    if (st >= 0 && !is_last)
        st = backward_end(engine);
    if (st >= 0)
        st = engine_mark(engine);
    phase_end(engine, &duration_ns);
    times->backward_ns += duration_ns;
    times->samples += batch.samples;
    return st;
}

/* After the step: what its forward passes said, and how long the device took. */
static dpb_status read_results(struct dpb_step_engine *engine, struct dpb_step_times *times)
{
    for (int64_t m = 0; m < engine->config.accumulate; m++) {
        struct dpb_forward_result result = {0};

        DPB_TRY(engine->config.workload->read_result(engine->workload, m, &result));
        times->loss_sum += result.loss_sum;
        times->correct += result.correct;
    }
    return engine_marks_read(engine, times);
}

static dpb_status run_phases(struct dpb_step_engine *engine, struct dpb_step_times *times)
{
    const struct dpb_strategy_ops *strategy = engine->config.strategy;
    dpb_status st;

    for (int p = 0; p < engine->model->param_count; p++)
        engine->has_grad[p] = false;
    engine_marks_begin(engine);
    if (strategy->step_begin)
        DPB_TRY(strategy->step_begin(engine->strategy, engine->steps_done + 1));
    engine_sync_ticks_begin(engine);
    for (int64_t m = 0; m < engine->config.accumulate; m++) {
        engine->micro_batch = m;
        st = run_micro_batch(engine, times);
        if (st == DPB_END)
            DPB_TRY(engine_sync_ticks_end(engine));
        if (st != DPB_OK)
            return st;
    }

    phase_begin(engine, DPB_PHASE_SYNC, DPB_EVENT_SYNC);
    st = sync_gradients(engine);
    if (st >= 0)
        st = engine_mark(engine);
    phase_end(engine, &times->sync_ns);
    engine->micro_batch = 0;
    DPB_TRY(st);

    phase_begin(engine, DPB_PHASE_OPTIMIZER, DPB_EVENT_OPTIMIZER);
    st = optimize(engine);
    phase_end(engine, &times->optimizer_ns);
    DPB_TRY(st);
    times->end_ns = engine->phase_start_ns;
    return read_results(engine, times);
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
    capture_abandon(engine);
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
        DPB_TRY(engine_stage_batch(engine, &batch));

        engine->phase = DPB_PHASE_FORWARD;
        engine_progress(engine, -1);
        DPB_TRY(dpb_forward_and_read(engine->config.workload, &engine->launcher, engine->workload,
                                     &batch, false, &result));
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
    engine->is_evaluating = true;
    st = engine_full_params_begin(engine);
    if (st >= 0) {
        st = evaluate(engine, source, &sum, &sample_count);
        engine_full_params_end(engine);
    }
    engine->is_evaluating = false;
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

/* The step engine of one process: its arithmetic, its accounts, its checks. The device is the real
 * one; the communicator is a fake. */
#include "dpb_test.h"

#include <math.h>
#include <unistd.h>

#include "dpb_clock.h"

#include "deferred_device.h"
#include "rig.h"
#include "dpb_strategies.h"

/* ---- arithmetic ---- */

/* Training without engine, strategy, device and communicator. Integers and powers of two only, so
 * every operation is exact. */
static void train_by_hand(int steps, float *value[TINY_PARAMS])
{
    for (int p = 0; p < TINY_PARAMS; p++) {
        float *momentum = calloc((size_t)tiny_numel(p), sizeof(float));

        value[p] = calloc((size_t)tiny_numel(p), sizeof(float));
        assert_non_null(momentum);
        assert_non_null(value[p]);
        for (int64_t i = 0; i < tiny_numel(p); i++) {
            value[p][i] = tiny_initial(p, i, RIG_SEED);
            for (int step = 0; step < steps; step++) {
                int sum = 0;

                for (int64_t id = step * RIG_BATCH; id < (step + 1) * RIG_BATCH; id++)
                    sum += tiny_gradient(p, i, value[p][i], id);
                momentum[i] = 0.5f * momentum[i] + (float)sum / RIG_BATCH;
                value[p][i] -= 0.25f * momentum[i];
            }
        }
        free(momentum);
    }
}

static void test_one_rank_is_plain_training(void **state)
{
    static const struct dpb_strategy_ops *const strategies[] = {
            &dpb_strategy_none_ops, &dpb_strategy_naive_ops, &dpb_strategy_ddp_ops};
    float *expected[TINY_PARAMS];

    (void)state;
    train_by_hand(4, expected);
    for (size_t s = 0; s < sizeof(strategies) / sizeof(strategies[0]); s++) {
        struct rig rig;

        rig_init(&rig, strategies[s], 1);
        rig_open(&rig);
        rig_steps(&rig, 4);
        assert_int_equal(dpb_step_count(rig.engine), 4);
        for (int p = 0; p < TINY_PARAMS; p++)
            assert_memory_equal(dpb_step_param(rig.engine, p), expected[p],
                                (size_t)tiny_numel(p) * sizeof(float));
        assert_int_equal(rig.comm.starts, 0); /* one rank communicates nothing */
        rig_release(&rig);
    }
    for (int p = 0; p < TINY_PARAMS; p++)
        free(expected[p]);
}

/* Micro-batches of a step are one batch, bit by bit, and communicate once. */
static void test_micro_batches_are_one_batch(void **state)
{
    static const struct dpb_strategy_ops *const strategies[] = {
            &dpb_strategy_none_ops, &dpb_strategy_naive_ops, &dpb_strategy_ddp_ops};
    float *expected[TINY_PARAMS];

    (void)state;
    train_by_hand(3, expected);
    for (size_t s = 0; s < sizeof(strategies) / sizeof(strategies[0]); s++) {
        int starts = 0;

        for (int64_t micro_batches = 1; micro_batches <= 4; micro_batches *= 2) {
            struct rig rig;

            rig_init(&rig, strategies[s], 1);
            rig.config.accumulate = micro_batches;
            rig.source.global_batch = rig.source.count = RIG_BATCH / micro_batches;
            rig_open(&rig);
            rig_steps(&rig, 3);
            assert_int_equal(rig.source.asked, 3 * micro_batches);
            for (int p = 0; p < TINY_PARAMS; p++)
                assert_memory_equal(dpb_step_param(rig.engine, p), expected[p],
                                    (size_t)tiny_numel(p) * sizeof(float));
            rig_release(&rig);

            rig_init(&rig, strategies[s], 2);
            rig.config.accumulate = micro_batches;
            rig.source.global_batch = rig.source.count = RIG_BATCH / micro_batches;
            rig_open(&rig);
            rig_steps(&rig, 3);
            assert_true(rig.comm.starts > 0 && (starts == 0 || rig.comm.starts == starts));
            starts = rig.comm.starts;
            rig_release(&rig);
        }
    }
    for (int p = 0; p < TINY_PARAMS; p++)
        free(expected[p]);
}

static void test_gradients_are_averaged_or_summed(void **state)
{
    struct rig rig;

    (void)state;
    rig_init(&rig, &dpb_strategy_none_ops, 4);
    rig_open(&rig);
    rig_steps(&rig, 1);
    assert_true(rig.comm.last_coll.scale == 0.25f);
    assert_int_equal(rig.comm.last_coll.kind, DPB_COLL_ALL_REDUCE);
    assert_int_equal(rig.comm.last_coll.dtype, DPB_F32);
    rig_release(&rig);

    rig_init(&rig, &dpb_strategy_none_ops, 4);
    rig.config.sum_gradients = true;
    rig_open(&rig);
    rig_steps(&rig, 1);
    assert_true(rig.comm.last_coll.scale == 1.0f);
    rig_release(&rig);
}

static void test_loss_that_is_not_finite_is_reported(void **state)
{
    struct dpb_step_times times;
    struct rig rig;

    (void)state;
    rig_init(&rig, &dpb_strategy_none_ops, 1);
    rig.options.nan_loss = true;
    rig_open(&rig);
    assert_int_equal(dpb_step_run(rig.engine, &times), DPB_OK);
    assert_true(isnan(times.loss_sum));
    rig_release(&rig);
}

/* ---- accounts ---- */

static void test_memory_and_layout(void **state)
{
    const float *first;
    int64_t expected = 0, at = 0;
    struct dpb_step_memory predicted;
    struct rig rig;
    dpb_json *memory;

    (void)state;
    rig_init(&rig, &dpb_strategy_none_ops, 1);
    rig_open(&rig);
    rig_steps(&rig, 3);
    first = dpb_step_param(rig.engine, 0);
    for (int call = 0; call < 2; call++) {
        assert_int_equal(dpb_step_params_begin(rig.engine), DPB_OK);
        expected = at = 0;
        for (int p = 0; p < TINY_PARAMS; p++) {
            const float *param = dpb_step_param(rig.engine, p);

            assert_int_equal((uintptr_t)param % 64, 0);
            assert_ptr_equal(param, first + expected);
            expected += (tiny_numel(p) + 15) / 16 * 16;
            at += tiny_numel(p);
        }
        dpb_step_params_end(rig.engine);
        rig_steps(&rig, 1);
    }

    memory = dpb_step_memory_json(rig.engine);
    assert_int_equal(dpb_json_as_int(dpb_json_get(memory, "parameters"), -1), expected * 4);
    assert_int_equal(dpb_json_as_int(dpb_json_get(memory, "optimizer"), -1), expected * 4);
    /* one unit, without gaps */
    assert_int_equal(dpb_json_as_int(dpb_json_get(memory, "gradients"), -1),
                     (at * 4 + 63) / 64 * 64);
    assert_true(dpb_json_as_int(dpb_json_get(memory, "activations"), -1) > 0);
    assert_int_equal(dpb_json_as_int(dpb_json_get(memory, "state"), -1),
                     TINY_STATES * TINY_STATE_ELEMENTS * 4);
    assert_int_equal(dpb_json_as_int(dpb_json_get(memory, "exchange"), -1), 0);
    dpb_json_free(memory);
    rig_predict(&rig, &predicted);
    assert_int_equal(predicted.parameters, expected * 4);
    assert_int_equal(predicted.optimizer, expected * 4);
    assert_int_equal(predicted.gradients, (at * 4 + 63) / 64 * 64);
    rig_release(&rig);
}

static char *plan_text(const struct rig *rig)
{
    dpb_json *plan = dpb_step_plan_json(rig->engine);
    struct dpb_str text = {0};

    assert_int_equal(dpb_json_write(plan, false, &text), DPB_OK);
    dpb_json_free(plan);
    for (char *read = text.text, *write = text.text;; read++) {
        if (*read != ' ')
            *write++ = *read;
        if (!*read)
            return text.text;
    }
}

static void test_plan_is_rebuilt_after_the_first_step(void **state)
{
    struct rig rig;
    char *text;

    (void)state;
    rig_init(&rig, &dpb_strategy_ddp_ops, 1);
    rig_open(&rig);
    text = plan_text(&rig);
    assert_string_equal(text, "{\"units\":[{\"bytes\":4408,\"members\":[\"in.weight\",\"in.bias\","
                              "\"mid.weight\",\"mid.bias\",\"out.weight\"]}],\"rebuilt\":false,"
                              "\"first_bucket_bytes\":200,\"bucket_bytes\":196}");
    free(text);

    rig_steps(&rig, 1);
    for (int i = 0; i < 2; i++) {
        text = plan_text(&rig);
        assert_string_equal(text,
                            "{\"units\":[{\"bytes\":4200,\"members\":[\"out.weight\","
                            "\"mid.weight\"]},{\"bytes\":196,\"members\":[\"mid.bias\","
                            "\"in.weight\"]},{\"bytes\":12,\"members\":[\"in.bias\"]}],"
                            "\"rebuilt\":true,\"first_bucket_bytes\":200,\"bucket_bytes\":196}");
        free(text);
        rig_steps(&rig, 2);
    }
    rig_release(&rig);
}

static void test_times_are_contiguous(void **state)
{
    struct rig rig;

    (void)state;
    rig_init(&rig, &dpb_strategy_ddp_ops, 2);
    rig_open(&rig);
    for (int step = 0; step < 3; step++) {
        const int64_t before_ns = dpb_clock_now_ns();
        struct dpb_step_times times;
        double loss_sum = 0.0;
        int64_t correct = 0;

        assert_int_equal(dpb_step_run(rig.engine, &times), DPB_OK);
        assert_true(times.start_ns >= before_ns);
        assert_true(times.end_ns <= dpb_clock_now_ns());
        assert_true(times.data_ns >= 0 && times.forward_ns >= 0 && times.backward_ns >= 0 &&
                    times.sync_ns >= 0 && times.optimizer_ns >= 0);
        assert_int_equal(times.start_ns + times.data_ns + times.forward_ns + times.backward_ns +
                                 times.sync_ns + times.optimizer_ns,
                         times.end_ns);
        for (int64_t id = step * RIG_BATCH; id < (step + 1) * RIG_BATCH; id++) {
            loss_sum += tiny_loss(id);
            correct += tiny_is_correct(id);
        }
        assert_true(times.loss_sum == loss_sum);
        assert_int_equal(times.correct, correct);
        assert_int_equal(times.samples, RIG_BATCH);
    }
    rig_release(&rig);
}

/* A step ends when its work has ended, not when it has been launched. */
static void test_time_includes_queued_work(void **state)
{
    struct dpb_step_times times;
    struct rig rig;
    uint64_t hash;

    (void)state;
    rig_init(&rig, &dpb_strategy_none_ops, 1);
    rig.config.device = deferred_device_of(rig.device);
    rig_open(&rig);
    hash = tiny_hash(rig.engine);
    assert_int_equal(dpb_step_run(rig.engine, &times), DPB_OK);
    assert_true(hash != tiny_hash(rig.engine));
    assert_true(deferred_device_last_ns() > times.start_ns);
    assert_true(deferred_device_last_ns() <= times.end_ns);
    rig_release(&rig);
}

/* The check of the communicator leaves nothing behind. */
static void test_gradients_begin_as_zeros(void **state)
{
    const float *gradients;
    struct rig rig;

    (void)state;
    rig_init(&rig, &dpb_strategy_naive_ops, 2);
    rig_open(&rig);
    assert_int_equal(rig.comm.waits, TINY_PARAMS);
    gradients = rig.comm.buffer[0];
    for (int i = 0; i < 1100; i++)
        assert_true(gradients[i] == 0.0f);
    rig_release(&rig);
}

/* ---- events ---- */

struct event_count {
    int count;
    int64_t bytes;
    struct dpb_event last;
};

static struct event_count count_events(const struct dpb_event *events, size_t count,
                                       enum dpb_event_kind kind, int step)
{
    struct event_count found = {0};

    for (size_t i = 0; i < count; i++) {
        if (events[i].kind != kind || events[i].step != step)
            continue;
        found.count++;
        found.bytes += events[i].bytes;
        found.last = events[i];
    }
    return found;
}

static void check_step_events(const struct dpb_event *events, size_t count, int step, int units,
                              const struct dpb_step_times *times)
{
    static const enum dpb_event_kind spans[] = {DPB_EVENT_DATA, DPB_EVENT_FORWARD,
                                                DPB_EVENT_BACKWARD, DPB_EVENT_SYNC,
                                                DPB_EVENT_OPTIMIZER};
    const struct event_count whole = count_events(events, count, DPB_EVENT_STEP, step);
    const struct event_count ready = count_events(events, count, DPB_EVENT_READY, step);
    const struct event_count comm = count_events(events, count, DPB_EVENT_COMM, step);
    const struct event_count wait = count_events(events, count, DPB_EVENT_COMM_WAIT, step);
    const struct event_count compute = count_events(events, count, DPB_EVENT_COMPUTE, step);

    assert_int_equal(whole.count, 1);
    assert_true(whole.last.start_ns >= times->start_ns && whole.last.end_ns >= times->end_ns);
    for (size_t s = 0; s < sizeof(spans) / sizeof(spans[0]); s++) {
        const struct event_count span = count_events(events, count, spans[s], step);

        assert_int_equal(span.count, 1);
        assert_int_equal(span.last.lane, DPB_LANE_HOST);
        assert_true(span.last.start_ns >= whole.last.start_ns &&
                    span.last.end_ns <= whole.last.end_ns);
    }
    /* forward, gradients copied into buckets and back, the optimizer's operators, and the
     * workload's own update after them */
    assert_int_equal(compute.count, 1 + 2 * TINY_PARAMS + TINY_PARAMS + 1);
    assert_string_equal(compute.last.name, "update");
    assert_int_equal(ready.count, units);
    assert_int_equal(ready.last.start_ns, ready.last.end_ns);
    assert_int_equal(ready.last.lane, DPB_LANE_HOST);
    assert_int_equal(comm.count, units);
    assert_int_equal(comm.bytes, 4408);
    assert_int_equal(comm.last.bucket, units - 1);
    assert_int_equal(comm.last.lane, DPB_LANE_COMM);
    assert_int_equal(comm.last.end_ns - comm.last.start_ns, 30); /* the fake's */
    assert_string_equal(comm.last.name, "all-reduce");
    assert_int_equal(wait.count, units);
    assert_int_equal(wait.last.end_ns - wait.last.start_ns, 10);
}

static void test_events_of_traced_steps(void **state)
{
    const struct dpb_recorder_config recorder_config = {.rank = 0, .events_per_lane = 200};
    const struct dpb_event *events;
    struct dpb_step_times times[3];
    dpb_recorder *recorder;
    struct rig rig;
    size_t count;
    uint64_t lost;

    (void)state;
    rig_init(&rig, &dpb_strategy_ddp_ops, 2);
    rig_open(&rig);
    assert_int_equal(dpb_recorder_host_ops.open(&recorder_config, &recorder), DPB_OK);
    dpb_step_set_recorder(rig.engine, recorder);
    for (int i = 0; i < 2; i++)
        assert_int_equal(dpb_step_run(rig.engine, &times[i]), DPB_OK);
    dpb_step_set_recorder(rig.engine, NULL);
    assert_int_equal(dpb_step_run(rig.engine, &times[2]), DPB_OK);

    assert_int_equal(dpb_recorder_host_ops.drain(recorder, &events, &count, &lost), DPB_OK);
    assert_int_equal(lost, 0);
    check_step_events(events, count, 1, 1, &times[0]);
    check_step_events(events, count, 2, 3, &times[1]);
    assert_int_equal(count_events(events, count, DPB_EVENT_STEP, 3).count, 0);
    dpb_recorder_host_ops.close(recorder);
    rig_release(&rig);
}

/* However many collectives a step has, far more than parameters, each is recorded. */
static void test_no_collective_of_a_traced_step_is_lost(void **state)
{
    static const struct dpb_mirrored_options packs = {.cross_device_ops = DPB_CROSS_DEVICE_NCCL,
                                                      .num_packs = 400};
    const struct dpb_recorder_config recorder_config = {.rank = 0, .events_per_lane = 1000};
    const struct dpb_event *events;
    dpb_recorder *recorder;
    struct rig rig;
    size_t count;
    uint64_t lost;

    (void)state;
    rig_init(&rig, &dpb_strategy_mirrored_ops, 2);
    rig.config.strategy_options = &packs;
    rig_open(&rig);
    assert_int_equal(dpb_recorder_host_ops.open(&recorder_config, &recorder), DPB_OK);
    dpb_step_set_recorder(rig.engine, recorder);
    rig_steps(&rig, 1);
    assert_int_equal(dpb_recorder_host_ops.drain(recorder, &events, &count, &lost), DPB_OK);
    assert_int_equal(lost, 0);
    assert_int_equal(count_events(events, count, DPB_EVENT_COMM, 1).count, 400);
    assert_int_equal(count_events(events, count, DPB_EVENT_COMM, 1).bytes, 4408);
    assert_int_equal(count_events(events, count, DPB_EVENT_COMM_WAIT, 1).count, 400);
    dpb_step_set_recorder(rig.engine, NULL);
    dpb_recorder_host_ops.close(recorder);
    rig_release(&rig);
}

/* The workload's exchanges: memory above the gradients', sums, events of their own. */
static void test_exchanges_of_the_workload(void **state)
{
    const struct dpb_recorder_config recorder_config = {.rank = 0, .events_per_lane = 200};
    const struct dpb_event *events;
    struct event_count comm, wait;
    struct dpb_step_exchanges exchanges;
    struct dpb_step_times times;
    dpb_recorder *recorder;
    struct rig rig;
    size_t count;
    uint64_t lost;
    int64_t correct = 0;

    (void)state;
    for (int64_t id = 0; id < RIG_BATCH; id++)
        correct += tiny_is_correct(id);
    for (int ranks = 1; ranks <= 2; ranks++) {
        rig_init(&rig, &dpb_strategy_none_ops, ranks);
        rig.options.exchange = TINY_EXCHANGE_CORRECT;
        rig_open(&rig);
        assert_int_equal(rig.comm.buffer_count, 3);
        assert_int_equal(dpb_recorder_host_ops.open(&recorder_config, &recorder), DPB_OK);
        dpb_step_set_recorder(rig.engine, recorder);
        assert_int_equal(dpb_step_run(rig.engine, &times), DPB_OK);
        assert_int_equal(times.correct, ranks == 1 ? correct : 3 * correct); /* the fake's sum */
        dpb_step_exchanges(rig.engine, &exchanges);
        assert_int_equal(exchanges.count, ranks == 1 ? 0 : 2);
        assert_int_equal(exchanges.payload_bytes, 4 * exchanges.count);
        assert_true(exchanges.wire_bytes == (double)exchanges.payload_bytes); /* 2 (P-1) / P is 1 */
        assert_int_equal(exchanges.wire_ns, -1);                              /* no link */
        assert_int_equal(dpb_recorder_host_ops.drain(recorder, &events, &count, &lost), DPB_OK);
        comm = count_events(events, count, DPB_EVENT_COMM, 1);
        wait = count_events(events, count, DPB_EVENT_COMM_WAIT, 1);
        assert_int_equal(comm.count, ranks == 1 ? 0 : 3); /* two, and the gradients' */
        assert_int_equal(wait.count, comm.count);
        for (size_t i = 0; i < count; i++) {
            if (strncmp(events[i].name, "tiny.s", 6) != 0)
                continue;
            assert_string_equal(events[i].name, "tiny.second");
            assert_int_equal(events[i].lane, DPB_LANE_COMM);
            assert_int_equal(events[i].bytes, sizeof(int32_t));
            assert_int_equal(events[i].bucket, -1);
        }
        dpb_step_close(rig.engine);
        rig.engine = NULL;
        assert_int_equal(rig.comm.buffer_count, 0); /* freed in the order of a stack */
        dpb_recorder_host_ops.close(recorder);
        rig_release(&rig);
    }
}

static void test_progress_tells_where_the_rank_is(void **state)
{
    struct rig rig;

    (void)state;
    rig_init(&rig, &dpb_strategy_ddp_ops, 2);
    rig_open(&rig);
    /* parameters, optimizer, gradients; the unit is filled and compared; places, values */
    assert_string_equal(rig.progress.text, "1:setup:-1 1:setup:-1 1:setup:-1 1:setup:0 1:setup:0 "
                                           "1:setup:-1 1:setup:-1 1:setup:-1 ");
    rig_steps(&rig, 1);
    dpb_str_release(&rig.progress);
    rig_steps(&rig, 1);
    assert_string_equal(rig.progress.text,
                        "2:data:-1 2:forward:-1 2:backward:-1 2:backward:0 2:backward:1 "
                        "2:backward:2 2:sync:-1 2:sync:0 2:sync:1 2:sync:2 2:optimizer:-1 "
                        "2:done:-1 ");
    rig_release(&rig);
}

static void test_comm_stats_are_those_of_the_comm(void **state)
{
    struct dpb_comm_stats before, after;
    struct rig rig;

    (void)state;
    rig_init(&rig, &dpb_strategy_naive_ops, 2);
    rig_open(&rig);
    dpb_step_comm_stats(rig.engine, &before);
    rig_steps(&rig, 2);
    dpb_step_comm_stats(rig.engine, &after);
    assert_int_equal(before.collectives, TINY_PARAMS); /* the check */
    assert_int_equal(after.collectives - before.collectives, 2 * TINY_PARAMS);
    rig_release(&rig);
}

/* ---- the order of gradients ---- */

/* Rank 0's order counts: the fake's broadcast brings the reverse of this rank's. */
/* ---- the thread of tick() ---- */

static struct dpb_sync_services ticked_services;
static int ticks_of_step;

static dpb_status ticked_open(const struct dpb_strategy_config *config, dpb_strategy **strategy)
{
    ticked_services = config->services;
    return dpb_strategy_none_ops.open(config, strategy);
}

static dpb_status ticked_step_begin(dpb_strategy *strategy, int64_t step)
{
    ticks_of_step = 0;
    return dpb_strategy_none_ops.step_begin(strategy, step);
}

static dpb_status ticked_before_optimizer(dpb_strategy *strategy)
{
    dpb_status st = DPB_OK;

    ticked_services.lock(ticked_services.ctx);
    while (ticks_of_step == 0 && st >= 0)
        st = ticked_services.await(ticked_services.ctx);
    ticked_services.unlock(ticked_services.ctx);
    return st < 0 ? st : dpb_strategy_none_ops.before_optimizer(strategy);
}

static dpb_status ticked_tick(dpb_strategy *strategy, int64_t now_ns, int64_t *next_ns)
{
    (void)strategy;
    (void)now_ns;
    ticked_services.lock(ticked_services.ctx);
    ticks_of_step++;
    ticked_services.unlock(ticked_services.ctx);
    *next_ns = INT64_MAX;
    return DPB_OK;
}

/* Also when the thread has not even noticed that the step before has ended: steps are short. */
static void test_every_step_begins_with_a_tick(void **state)
{
    struct dpb_strategy_ops ticked = dpb_strategy_none_ops;
    struct rig rig;

    (void)state;
    ticked.open = ticked_open;
    ticked.step_begin = ticked_step_begin;
    ticked.before_optimizer = ticked_before_optimizer;
    ticked.tick = ticked_tick;
    rig_init(&rig, &ticked, 1);
    rig.source.steps = 5000;
    rig_open(&rig);
    alarm(300);
    rig_steps(&rig, 5000);
    alarm(0);
    rig_release(&rig);
}

static void test_ready_order_of_rank_0_is_adopted(void **state)
{
    struct rig rig;
    dpb_json *plan;

    (void)state;
    rig_init(&rig, &dpb_strategy_ddp_ops, 2);
    rig.comm.swap_order = true;
    rig_open(&rig);
    rig_steps(&rig, 2);
    plan = dpb_step_plan_json(rig.engine);
    assert_string_equal(
            dpb_json_as_string(
                    dpb_json_at(
                            dpb_json_path(dpb_json_at(dpb_json_get(plan, "units"), 0), "members"),
                            0),
                    ""),
            "in.bias");
    dpb_json_free(plan);
    rig_release(&rig);
}

/* ---- divergence and evaluation ---- */

static void test_planted_divergence_is_one_bit(void **state)
{
    struct rig rig;
    uint64_t hash;

    (void)state;
    rig_init(&rig, &dpb_strategy_none_ops, 2);
    rig_open(&rig);
    rig_steps(&rig, 1);
    hash = tiny_hash(rig.engine);
    assert_true(hash == tiny_hash(rig.engine));
    assert_int_equal(dpb_step_check_replicas(rig.engine), DPB_OK);
    dpb_step_plant_divergence(rig.engine);
    assert_true(hash != tiny_hash(rig.engine));
    dpb_step_plant_divergence(rig.engine);
    assert_true(hash == tiny_hash(rig.engine));

    rig.comm.differ_exchange = rig.comm.exchanges + 1;
    rig.comm.peer_from = 1;
    assert_int_equal(dpb_step_check_replicas(rig.engine), DPB_ERR_CHECK);
    assert_true(rig_has_logged(&rig, "the parameters of rank 1 are not those of rank 0"));
    assert_int_equal(rig.comm.aborts, 0); /* every rank knows */
    rig_release(&rig);
}

static void test_evaluation(void **state)
{
    const struct dpb_recorder_config recorder_config = {.rank = 0, .events_per_lane = 10};
    struct tiny_source source = {.global_batch = 6, .first = 1, .count = 5, .steps = 3};
    const struct dpb_batch_source batches = tiny_source_of(&source);
    int64_t correct = -1, samples = -1, expected_correct = 0;
    double loss_sum = -1.0, expected_loss = 0.0;
    const struct dpb_event *events;
    dpb_recorder *recorder;
    struct rig rig;
    uint64_t hash, lost;
    size_t count;

    (void)state;
    for (int64_t step = 0; step < 3; step++) {
        for (int64_t id = 6 * step + 1; id < 6 * step + 6; id++) {
            expected_correct += tiny_is_correct(id);
            expected_loss += tiny_loss(id);
        }
    }
    rig_init(&rig, &dpb_strategy_none_ops, 1);
    rig_open(&rig);
    hash = tiny_hash(rig.engine);
    assert_int_equal(dpb_recorder_host_ops.open(&recorder_config, &recorder), DPB_OK);
    dpb_step_set_recorder(rig.engine, recorder);
    assert_int_equal(dpb_step_evaluate(rig.engine, &batches, &correct, &samples, &loss_sum),
                     DPB_OK);
    assert_int_equal(samples, 15);
    assert_int_equal(correct, expected_correct);
    assert_true(loss_sum == expected_loss);
    assert_int_equal(source.asked, 4);
    assert_true(hash == tiny_hash(rig.engine));
    assert_int_equal(dpb_recorder_host_ops.drain(recorder, &events, &count, &lost), DPB_OK);
    assert_int_equal(count + lost, 0);
    dpb_step_set_recorder(rig.engine, NULL);
    dpb_recorder_host_ops.close(recorder);

    source.steps = 0; /* nothing to evaluate */
    assert_int_equal(dpb_step_evaluate(rig.engine, &batches, &correct, &samples, &loss_sum),
                     DPB_OK);
    assert_int_equal(samples, 0);
    assert_int_equal(correct, 0);
    rig_release(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_one_rank_is_plain_training),
            cmocka_unit_test(test_micro_batches_are_one_batch),
            cmocka_unit_test(test_gradients_are_averaged_or_summed),
            cmocka_unit_test(test_loss_that_is_not_finite_is_reported),
            cmocka_unit_test(test_memory_and_layout),
            cmocka_unit_test(test_plan_is_rebuilt_after_the_first_step),
            cmocka_unit_test(test_times_are_contiguous),
            cmocka_unit_test(test_time_includes_queued_work),
            cmocka_unit_test(test_gradients_begin_as_zeros),
            cmocka_unit_test(test_events_of_traced_steps),
            cmocka_unit_test(test_no_collective_of_a_traced_step_is_lost),
            cmocka_unit_test(test_exchanges_of_the_workload),
            cmocka_unit_test(test_progress_tells_where_the_rank_is),
            cmocka_unit_test(test_comm_stats_are_those_of_the_comm),
            cmocka_unit_test(test_every_step_begins_with_a_tick),
            cmocka_unit_test(test_ready_order_of_rank_0_is_adopted),
            cmocka_unit_test(test_planted_divergence_is_one_bit),
            cmocka_unit_test(test_evaluation),
    };

    return DPB_RUN_TESTS(tests);
}

#include "dpb_test.h"
#include "strategy_ranks.h"

#include <stdatomic.h>
#include <unistd.h>

#include "dpb_comm_shm.h"
#include "dpb_device_cpu.h"
#include "dpb_link_model.h"
#include "dpb_log.h"
#include "dpb_strategies.h"

#include "forked.h"
#include "whole_params.h"

#define BATCH 12
#define SEED  3

/* ---- a rank ---- */

static void keep_line(void *ctx, enum dpb_log_level level, const char *line)
{
    struct strategy_report *report = ctx;
    const size_t used = strlen(report->log);

    (void)level;
    snprintf(report->log + used, sizeof(report->log) - used, "%s\n", line);
}

static void count_messages(dpb_step_engine *engine, int rank, int ranks,
                           struct strategy_report *report)
{
    const int count = dpb_step_messages(engine, NULL);
    struct dpb_sync_message *message = calloc((size_t)count + 1, sizeof(*message));

    report->messages = dpb_step_messages(engine, message);
    for (int m = 0; m < count; m++)
        report->message_bytes += dpb_algorithm_wire_bytes(
                DPB_ALGORITHM_DIRECT, message[m].kind, ranks, rank, message[m].root,
                message[m].count, dpb_dtype_bytes(message[m].dtype));
    free(message);
}

static void weigh(dpb_step_engine *engine, const struct dpb_step_config *config, int rank,
                  int ranks, struct strategy_report *report)
{
    const struct dpb_step_shape shape = {
            .model = dpb_step_model(engine),
            .optimizer = &config->optimizer,
            .strategy = config->strategy,
            .strategy_options = config->strategy_options,
            .ranks = ranks,
            .accumulate = config->accumulate,
    };
    dpb_json *memory = dpb_step_memory_json(engine);

    report->parameter_bytes = dpb_json_as_int(dpb_json_get(memory, "parameters"), -1);
    report->gradient_bytes = dpb_json_as_int(dpb_json_get(memory, "gradients"), -1);
    report->optimizer_bytes = dpb_json_as_int(dpb_json_get(memory, "optimizer"), -1);
    report->communication_bytes = dpb_json_as_int(dpb_json_get(memory, "communication"), -1);
    report->strategy_bytes = dpb_json_as_int(dpb_json_get(memory, "strategy"), -1);
    dpb_json_free(memory);
    if (dpb_step_memory_predict(&shape, rank, &report->predicted) < 0)
        report->step = DPB_ERR_INTERNAL;
}

static void train(struct strategy_run *run, int rank, dpb_step_engine *engine)
{
    struct strategy_report *report = &run->report[rank];

    for (int step = 0; step < STRATEGY_STEPS; step++) {
        struct dpb_comm_stats before, after;
        struct dpb_step_times times;

        dpb_step_comm_stats(engine, &before);
        report->step = dpb_step_run(engine, &times);
        if (report->step != DPB_OK)
            return;
        dpb_step_comm_stats(engine, &after);
        report->collectives = after.collectives - before.collectives;
        report->wire_bytes = after.wire_bytes - before.wire_bytes;
        report->steps++;
        if (step == 1 && rank > 0 && rank == run->plant_rank)
            dpb_step_plant_divergence(engine);
        report->replicas = dpb_step_check_replicas(engine);
        if (report->replicas != DPB_OK)
            return;
        report->elements = whole_params(engine, report->params[step], STRATEGY_ELEMENTS_MAX);
    }
}

static int64_t share_before(const struct strategy_run *run, int rank)
{
    int64_t samples = 0;

    for (int r = 0; r < rank; r++)
        samples += run->share[r];
    return samples;
}

/* From any thread, as the launcher's board is written. */
static void note_progress(void *ctx, int64_t step, enum dpb_phase phase, int bucket)
{
    (void)phase;
    (void)bucket;
    atomic_store((_Atomic int64_t *)ctx, step);
}

static void work(struct strategy_run *run, int rank, dpb_device *device, dpb_comm *comm)
{
    static _Atomic int64_t progress;
    struct strategy_report *report = &run->report[rank];
    const int64_t micro_batches = run->accumulate > 0 ? run->accumulate : 1;
    const int64_t batch = BATCH / micro_batches, each = batch / run->ranks;
    const bool is_even = share_before(run, run->ranks) == 0;
    const struct tiny_options workload = {
            .other_order = rank > 0 && rank == run->other_order_rank,
            .fail_backward = rank > 0 && rank == run->fail_rank ? 3 : 0,
            .least_squares = run->trains,
            .tied = run->tied,
    };
    struct tiny_source source = {
            .global_batch = batch,
            .first = is_even ? rank * each : share_before(run, rank),
            .count = is_even ? each : run->share[rank],
            .steps = 1000,
    };
    struct tiny_source test = {.global_batch = batch, .count = batch, .steps = 1};
    const struct dpb_batch_source test_source = tiny_source_of(&test);
    const struct dpb_step_config config = {
            .device = device,
            .comm = comm,
            .workload = &tiny_workload_ops,
            .workload_options = &workload,
            .strategy = run->strategy,
            .strategy_options = run->options,
            .source = tiny_source_of(&source),
            .batch_max = batch,
            .global_batch = BATCH,
            .accumulate = micro_batches,
            .seed = SEED,
            .optimizer = run->optimizer,
            .sum_gradients = !run->trains && !run->averages,
            .progress = note_progress,
            .progress_ctx = &progress,
    };
    dpb_step_engine *engine = NULL;

    report->open = dpb_step_open(&config, &engine);
    if (report->open == DPB_OK)
        train(run, rank, engine);
    if (report->steps == STRATEGY_STEPS) {
        int64_t samples;
        double loss_sum;

        report->hash = tiny_hash(engine);
        count_messages(engine, rank, run->ranks, report);
        weigh(engine, &config, rank, run->ranks, report);
        if (dpb_step_evaluate(engine, &test_source, &report->correct, &samples, &loss_sum) < 0)
            report->step = DPB_ERR_INTERNAL;
    }
    dpb_step_close(engine);
}

static void run_rank(int rank, void *shared)
{
    struct strategy_run *run = shared;
    struct strategy_report *report = &run->report[rank];
    const struct dpb_comm_shm_options comm_options = {.algorithm = DPB_ALGORITHM_DIRECT};
    const struct dpb_comm_config comm_config = {
            .rank = rank,
            .size = run->ranks,
            .local_rank = rank,
            .segment_fd = run->segment_fd,
            .timeout_ns = INT64_C(30000000000),
            .options = &comm_options,
    };
    const struct dpb_device_config device_config = {
            .local_rank = rank, .local_size = run->ranks, .threads = 1};
    dpb_device *device = NULL;
    dpb_comm *comm = NULL;

    dpb_log_set_sink(keep_line, report);
    report->open = dpb_device_cpu_ops.open(&device_config, &device);
    if (report->open == DPB_OK)
        report->open = dpb_comm_shm_ops.open(&comm_config, &comm);
    if (report->open == DPB_OK)
        work(run, rank, device, comm);
    if (comm)
        dpb_comm_shm_ops.close(comm);
    if (device)
        dpb_device_cpu_ops.close(device);
    dpb_log_set_sink(NULL, NULL);
}

/* ---- the parent ---- */

struct strategy_run *strategy_run_new(int ranks, const struct dpb_strategy_ops *strategy,
                                      const void *options)
{
    struct strategy_run *run = forked_memory(sizeof(*run));

    run->ranks = ranks;
    run->strategy = strategy;
    run->options = options;
    run->optimizer =
            (struct dpb_optimizer_config){.kind = DPB_OPTIMIZER_SGD, .lr = 0.25, .momentum = 0.5};
    return run;
}

void strategy_run_free(struct strategy_run *run)
{
    forked_memory_free(run, sizeof(*run));
}

void strategy_run_all(struct strategy_run *run)
{
    assert_int_equal(dpb_comm_segment_new(run->ranks, &run->segment_fd), DPB_OK);
    assert_int_equal(forked_run(run->ranks, run_rank, run), 0);
    close(run->segment_fd);
}

static void expect_success(const struct strategy_run *run)
{
    for (int r = 0; r < run->ranks; r++) {
        const struct strategy_report *report = &run->report[r];

        if (report->log[0])
            print_error("rank %d: %s", r, report->log);
        assert_int_equal(report->open, DPB_OK);
        assert_int_equal(report->step, DPB_OK);
        assert_int_equal(report->replicas, DPB_OK);
        assert_int_equal(report->steps, STRATEGY_STEPS);
        assert_in_range(report->elements, 1, STRATEGY_ELEMENTS_MAX);
    }
}

static bool reduces_micro_batches(const struct strategy_run *run)
{
    return dpb_strategy_flags(run->strategy, run->options) & DPB_STRATEGY_SYNCS_MICRO_BATCHES;
}

static void expect_promises_kept(const struct strategy_run *run)
{
    for (int r = 0; r < run->ranks; r++) {
        const struct strategy_report *report = &run->report[r];

        /* The messages of a step are those of one micro-batch where each is reduced. */
        if (run->accumulate <= 1 || !reduces_micro_batches(run)) {
            assert_int_equal(report->collectives, report->messages);
            assert_int_equal(report->wire_bytes, report->message_bytes);
        }
        assert_int_equal(report->parameter_bytes, report->predicted.parameters);
        assert_int_equal(report->gradient_bytes, report->predicted.gradients);
        assert_int_equal(report->optimizer_bytes, report->predicted.optimizer);
        assert_int_equal(report->communication_bytes, report->predicted.communication);
        assert_int_equal(report->strategy_bytes, report->predicted.strategy);
        if (run->ranks == 1)
            assert_int_equal(report->collectives, 0);
        else
            assert_true(report->wire_bytes > 0);
    }
}

void strategy_run_expect_none(struct strategy_run *run)
{
    struct strategy_run *reference = strategy_run_new(1, &dpb_strategy_none_ops, NULL);
    const struct strategy_report *expected = &reference->report[0];

    reference->optimizer = run->optimizer;
    strategy_run_all(reference);
    expect_success(reference);
    assert_memory_not_equal(expected->params[0], expected->params[STRATEGY_STEPS - 1],
                            (size_t)expected->elements * sizeof(float));
    strategy_run_all(run);
    expect_success(run);
    expect_promises_kept(run);
    for (int r = 0; r < run->ranks; r++) {
        const struct strategy_report *report = &run->report[r];

        assert_int_equal(report->elements, expected->elements);
        assert_true(report->hash == expected->hash);
        for (int step = 0; step < STRATEGY_STEPS; step++)
            if (memcmp(report->params[step], expected->params[step],
                       (size_t)expected->elements * sizeof(float)) != 0)
                fail_msg("\"%s\" on %d ranks: after step %d rank %d has other parameters",
                         run->strategy->name, run->ranks, step + 1, r);
    }
    strategy_run_free(reference);
}

static void expect_failure_of_all(const struct dpb_strategy_ops *strategy, const void *options)
{
    struct strategy_run *run = strategy_run_new(3, strategy, options);

    run->fail_rank = 2;
    strategy_run_all(run);
    for (int r = 0; r < run->ranks; r++) {
        assert_int_equal(run->report[r].steps, 2);
        assert_int_equal(run->report[r].step, r == 2 ? DPB_ERR_VENDOR : DPB_ERR_RANK_FAILED);
    }
    strategy_run_free(run);
}

static void expect_divergence_found(const struct dpb_strategy_ops *strategy, const void *options)
{
    struct strategy_run *run = strategy_run_new(2, strategy, options);

    run->plant_rank = 1;
    strategy_run_all(run);
    for (int r = 0; r < run->ranks; r++) {
        assert_int_equal(run->report[r].steps, 2);
        assert_int_equal(run->report[r].replicas, DPB_ERR_CHECK);
    }
    strategy_run_free(run);
}

void strategy_expect_none(const struct dpb_strategy_ops *strategy, const void *options)
{
    for (int ranks = 1; ranks <= STRATEGY_RANKS_MAX; ranks++) {
        for (int64_t accumulate = 1; accumulate <= 2; accumulate++) {
            struct strategy_run *run = strategy_run_new(ranks, strategy, options);

            /* Six samples of a micro-batch cannot be split between four. */
            if (ranks < 4 || accumulate == 1) {
                run->accumulate = accumulate;
                run->other_order_rank = accumulate == 1 ? ranks - 1 : 0;
                strategy_run_expect_none(run);
            }
            strategy_run_free(run);
        }
    }
    expect_failure_of_all(strategy, options);
    /* Parts have no copies that could differ. */
    if (!(dpb_strategy_flags(strategy, options) & DPB_STRATEGY_SHARDS_PARAMETERS))
        expect_divergence_found(strategy, options);
}

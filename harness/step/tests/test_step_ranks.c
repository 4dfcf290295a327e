/* Several ranks as processes, on the real device and the shared-memory communicator: P ranks with a
 * share of the batch train exactly what one rank trains with the whole batch. */
#include "dpb_test.h"

#include <unistd.h>

#include "dpb_comm_shm.h"
#include "dpb_device_cpu.h"
#include "dpb_log.h"
#include "dpb_strategies.h"
#include "dpb_str.h"

#include "forked.h"
#include "tiny_workload.h"
#include "whole_params.h"

#define RANKS_MAX    4
#define STEPS        4
#define ELEMENTS_MAX 2048
#define LOG_BYTES    8192

/* What one rank did and saw. */
struct report {
    dpb_status open, step, replicas; /* the last of each */
    int64_t steps;
    uint64_t hash[STEPS]; /* of the parameters after each step */
    double loss[STEPS];   /* the sum over this rank's samples */
    int64_t correct[STEPS];
    int64_t elements;
    float params[ELEMENTS_MAX];
    int64_t samples;
    double loss_sum;
    char log[LOG_BYTES];
};

/* One run; the parent fills it, every rank reads it, and writes its own report. */
struct run {
    int ranks;
    int64_t share[RANKS_MAX]; /* samples of each rank in a batch */
    bool sum_gradients;
    const struct dpb_strategy_ops *strategy;
    struct dpb_ddp_options ddp[RANKS_MAX];
    struct tiny_options options[RANKS_MAX];
    struct dpb_optimizer_config optimizer[RANKS_MAX];
    bool sync_batch_statistics[RANKS_MAX];
    const struct dpb_workload_ops *workload; /* NULL: tiny */
    int plant_rank;                          /* flips a bit of a parameter after step 2; -1: none */

    int segment_fd;
    struct report report[RANKS_MAX];
};

/* Bytes: far smaller than most of tiny's tensors, so nearly every tensor is a bucket. */
static const struct dpb_ddp_options tiny_buckets = {
        .bucket_bytes = 64, .first_bucket_bytes = 16, .overlap = true};
static const struct dpb_ddp_options tiny_buckets_without_overlap = {
        .bucket_bytes = 64, .first_bucket_bytes = 16, .overlap = false};
static const struct dpb_ddp_options one_bucket = {
        .bucket_bytes = 25 << 20, .first_bucket_bytes = DPB_AUTO, .overlap = true};

static const struct {
    const struct dpb_strategy_ops *ops;
    const struct dpb_ddp_options *options;
} strategies[] = {
        {&dpb_strategy_none_ops, &one_bucket},
        {&dpb_strategy_naive_ops, &one_bucket},
        {&dpb_strategy_ddp_ops, &one_bucket},
        {&dpb_strategy_ddp_ops, &tiny_buckets},
        {&dpb_strategy_ddp_ops, &tiny_buckets_without_overlap},
};
#define STRATEGY_COUNT (sizeof(strategies) / sizeof(strategies[0]))

/* ---- a rank ---- */

static void keep_line(void *ctx, enum dpb_log_level level, const char *line)
{
    struct report *report = ctx;
    const size_t used = strlen(report->log);

    (void)level;
    snprintf(report->log + used, sizeof(report->log) - used, "%s\n", line);
}

static void train(struct run *run, int rank, dpb_step_engine *engine)
{
    struct report *report = &run->report[rank];

    for (int step = 0; step < STEPS; step++) {
        struct dpb_step_times times;

        report->step = dpb_step_run(engine, &times);
        if (report->step != DPB_OK)
            return;
        report->steps++;
        report->samples += times.samples;
        report->loss_sum += times.loss_sum;
        report->loss[step] = times.loss_sum;
        report->correct[step] = times.correct;
        if (step == 1 && rank == run->plant_rank)
            dpb_step_plant_divergence(engine);
        report->hash[step] = tiny_hash(engine);
        report->replicas = dpb_step_check_replicas(engine);
        if (report->replicas != DPB_OK)
            return;
        report->elements = whole_params(engine, report->params, ELEMENTS_MAX);
    }
}

static void run_rank(int rank, void *shared)
{
    struct run *run = shared;
    struct report *report = &run->report[rank];
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
    struct tiny_source source = {.count = run->share[rank], .steps = STEPS};
    dpb_step_engine *engine = NULL;
    dpb_device *device = NULL;
    dpb_comm *comm = NULL;

    for (int r = 0; r < run->ranks; r++) {
        source.first += r < rank ? run->share[r] : 0;
        source.global_batch += run->share[r];
    }
    dpb_log_set_sink(keep_line, report);
    report->open = dpb_device_cpu_ops.open(&device_config, &device);
    if (report->open == DPB_OK)
        report->open = dpb_comm_shm_ops.open(&comm_config, &comm);
    if (report->open == DPB_OK) {
        const struct dpb_step_config config = {
                .device = device,
                .comm = comm,
                .workload = run->workload ? run->workload : &tiny_workload_ops,
                .workload_options = &run->options[rank],
                .strategy = run->strategy,
                .strategy_options = &run->ddp[rank],
                .source = tiny_source_of(&source),
                .batch_max = run->share[rank],
                .global_batch = source.global_batch,
                .accumulate = 1,
                .seed = 3,
                .optimizer = run->optimizer[rank],
                .sum_gradients = run->sum_gradients,
                .sync_batch_statistics = run->sync_batch_statistics[rank],
        };

        report->open = dpb_step_open(&config, &engine);
    }
    if (report->open == DPB_OK)
        train(run, rank, engine);
    dpb_step_close(engine);
    if (comm)
        dpb_comm_shm_ops.close(comm);
    if (device)
        dpb_device_cpu_ops.close(device);
    dpb_log_set_sink(NULL, NULL);
}

/* ---- the parent ---- */

static struct run *run_new(int ranks, const struct dpb_strategy_ops *strategy,
                           const struct dpb_ddp_options *ddp, const int64_t *share)
{
    struct run *run = forked_memory(sizeof(*run));

    run->ranks = ranks;
    run->strategy = strategy;
    run->plant_rank = -1;
    for (int r = 0; r < ranks; r++) {
        run->share[r] = share[r];
        run->ddp[r] = *ddp;
        run->optimizer[r] = (struct dpb_optimizer_config){
                .kind = DPB_OPTIMIZER_SGD, .lr = 0.25, .momentum = 0.5};
    }
    return run;
}

static void run_free(struct run *run)
{
    forked_memory_free(run, sizeof(*run));
}

static void run_all(struct run *run)
{
    assert_int_equal(dpb_comm_segment_new(run->ranks, &run->segment_fd), DPB_OK);
    assert_int_equal(forked_run(run->ranks, run_rank, run), 0);
    close(run->segment_fd);
}

static void expect_success(const struct run *run)
{
    for (int r = 0; r < run->ranks; r++) {
        const struct report *report = &run->report[r];

        if (report->log[0])
            print_error("rank %d: %s", r, report->log);
        assert_int_equal(report->open, DPB_OK);
        assert_int_equal(report->step, DPB_OK);
        assert_int_equal(report->replicas, DPB_OK);
        assert_int_equal(report->steps, STEPS);
        assert_in_range(report->elements, 1, ELEMENTS_MAX);
    }
}

/* One rank with the whole batch, without communication. */
static struct run *reference_run(int64_t global_batch, bool sum_gradients)
{
    struct run *run = run_new(1, &dpb_strategy_none_ops, &one_bucket, &global_batch);

    run->sum_gradients = sum_gradients;
    run_all(run);
    expect_success(run);
    return run;
}

/* Every rank has, bit by bit, the parameters of the reference, after every step. */
static void expect_same_parameters(const struct run *run, const struct run *reference)
{
    const struct report *expected = &reference->report[0];

    expect_success(run);
    for (int r = 0; r < run->ranks; r++) {
        const struct report *report = &run->report[r];

        assert_memory_equal(report->hash, expected->hash, sizeof(expected->hash));
        assert_int_equal(report->elements, expected->elements);
        assert_memory_equal(report->params, expected->params,
                            (size_t)expected->elements * sizeof(float));
    }
}

/* And together they saw the samples of the reference, which is one rank. */
static void expect_same_training(const struct run *run, const struct run *reference)
{
    int64_t samples = 0;
    double loss_sum = 0.0;

    expect_same_parameters(run, reference);
    for (int r = 0; r < run->ranks; r++) {
        samples += run->report[r].samples;
        loss_sum += run->report[r].loss_sum;
    }
    assert_int_equal(samples, reference->report[0].samples);
    assert_true(loss_sum == reference->report[0].loss_sum); /* multiples of 1/4 */
}

static void test_parameters_move(void **state)
{
    struct run *reference = reference_run(12, true);
    const struct report *report = &reference->report[0];

    (void)state;
    for (int a = 0; a < STEPS; a++)
        for (int b = 0; b < a; b++)
            assert_true(report->hash[a] != report->hash[b]);
    run_free(reference);
}

/* Sums of integers: exact for any number of ranks. */
static void test_summed_gradients(void **state)
{
    struct run *reference = reference_run(12, true);

    (void)state;
    for (int ranks = 1; ranks <= RANKS_MAX; ranks++) {
        for (size_t s = 0; s < STRATEGY_COUNT; s++) {
            const int64_t each = 12 / ranks, share[] = {each, each, each, each};
            struct run *run = run_new(ranks, strategies[s].ops, strategies[s].options, share);

            print_message("%d ranks, strategy %zu (%s)\n", ranks, s, strategies[s].ops->name);
            run->sum_gradients = true;
            run_all(run);
            expect_same_training(run, reference);
            run_free(run);
        }
    }
    run_free(reference);
}

/* Means, with powers of two everywhere: exact again. */
static void test_averaged_gradients(void **state)
{
    struct run *reference = reference_run(8, false);

    (void)state;
    for (int ranks = 1; ranks <= RANKS_MAX; ranks *= 2) {
        for (size_t s = 0; s < STRATEGY_COUNT; s++) {
            const int64_t each = 8 / ranks, share[] = {each, each, each, each};
            struct run *run = run_new(ranks, strategies[s].ops, strategies[s].options, share);

            print_message("%d ranks, strategy %zu (%s)\n", ranks, s, strategies[s].ops->name);
            run_all(run);
            expect_same_training(run, reference);
            run_free(run);
        }
    }
    run_free(reference);
}

/* The mean is over samples, not over ranks: uneven shares, and a rank without any, change nothing.
 */
static void test_uneven_batches_give_the_exact_mean(void **state)
{
    static const int64_t four[] = {5, 2, 1, 0}, two[] = {1, 7};
    struct run *reference = reference_run(8, false);

    (void)state;
    for (size_t s = 0; s < STRATEGY_COUNT; s++) {
        struct run *run = run_new(4, strategies[s].ops, strategies[s].options, four);

        run_all(run);
        expect_same_training(run, reference);
        run_free(run);

        run = run_new(2, strategies[s].ops, strategies[s].options, two);
        run_all(run);
        expect_same_training(run, reference);
        run_free(run);
    }
    run_free(reference);
}

/* A third is not exact, so bits depend on the order of sums; but not from run to run. */
static void test_same_setting_same_bits(void **state)
{
    static const int64_t share[] = {2, 2, 2};
    struct run *first = run_new(3, &dpb_strategy_ddp_ops, &tiny_buckets, share);
    struct run *second = run_new(3, &dpb_strategy_ddp_ops, &tiny_buckets, share);

    (void)state;
    run_all(first);
    run_all(second);
    expect_success(first);
    expect_same_parameters(second, first);
    run_free(first);
    run_free(second);
}

/* PyTorch's rule: rank 0 decides the buckets, whatever the order elsewhere. */
static void test_ranks_whose_gradients_come_in_another_order(void **state)
{
    static const int64_t share[] = {4, 4, 4};
    struct run *reference = reference_run(12, true);
    struct run *run = run_new(3, &dpb_strategy_ddp_ops, &tiny_buckets, share);

    (void)state;
    run->sum_gradients = true;
    run->options[1].other_order = true;
    run_all(run);
    expect_same_training(run, reference);
    run_free(run);
    run_free(reference);
}

/* ---- what must be noticed ---- */

static void expect_logged(const struct run *run, int rank, const char *text)
{
    if (!strstr(run->report[rank].log, text))
        fail_msg("rank %d did not log \"%s\" but \"%s\"", rank, text, run->report[rank].log);
}

static void test_planted_divergence_is_caught(void **state)
{
    static const int64_t share[] = {2, 2, 2, 2};

    (void)state;
    for (int planted = 1; planted < RANKS_MAX; planted++) {
        struct run *run = run_new(4, &dpb_strategy_ddp_ops, &tiny_buckets, share);
        char expected[64];

        run->plant_rank = planted;
        run_all(run);
        snprintf(expected, sizeof(expected), "of rank %d are not those of rank 0", planted);
        for (int r = 0; r < run->ranks; r++) {
            assert_int_equal(run->report[r].steps, 2);
            assert_int_equal(run->report[r].replicas, DPB_ERR_CHECK);
            expect_logged(run, r, expected);
        }
        run_free(run);
    }
}

static void test_other_bucket_size_on_one_rank(void **state)
{
    static const int64_t share[] = {4, 4, 4};
    struct run *run = run_new(3, &dpb_strategy_ddp_ops, &tiny_buckets, share);

    (void)state;
    run->ddp[2].bucket_bytes = 5000;
    run_all(run);
    for (int r = 0; r < run->ranks; r++) {
        assert_int_equal(run->report[r].open, DPB_OK); /* one bucket in step 1, everywhere */
        assert_int_equal(run->report[r].step, DPB_ERR_MISMATCH);
        assert_int_equal(run->report[r].steps, 0);
        expect_logged(run, r, "rank 2 made another communication plan than rank 0");
    }
    run_free(run);
}

static void test_other_network_or_settings_on_some_ranks(void **state)
{
    static const int64_t share[] = {2, 2, 2, 2};
    struct run *run = run_new(4, &dpb_strategy_naive_ops, &one_bucket, share);

    (void)state;
    run->options[1].param_count = 4;
    run->optimizer[3].lr = 0.5;
    run_all(run);
    for (int r = 0; r < run->ranks; r++) {
        assert_int_equal(run->report[r].open, DPB_ERR_MISMATCH);
        expect_logged(run, r, "settings of ranks 1, 3 are not those of rank 0");
    }
    run_free(run);
}

static void test_other_statistics_on_one_rank(void **state)
{
    static const int64_t share[] = {4, 4};
    struct dpb_workload_ops workload = tiny_workload_ops;
    struct run *run = run_new(2, &dpb_strategy_naive_ops, &one_bucket, share);

    (void)state;
    workload.flags |= DPB_WORKLOAD_BATCH_STATISTICS;
    run->workload = &workload;
    run->sync_batch_statistics[1] = true;
    run_all(run);
    for (int r = 0; r < run->ranks; r++) {
        assert_int_equal(run->report[r].open, DPB_ERR_MISMATCH);
        expect_logged(run, r, "settings of rank 1 are not those of rank 0");
    }
    run_free(run);
}

/* What is to be the same on every rank beside the parameters is compared too; what is a rank's own,
 * or a part of something, is not: expect_success() has seen it differ in every other test. */
static void test_replicated_state_that_differs(void **state)
{
    static const int64_t share[] = {2, 2, 2};
    struct run *run = run_new(3, &dpb_strategy_ddp_ops, &tiny_buckets, share);

    (void)state;
    run->options[1].spoil_update = 2;
    run_all(run);
    for (int r = 0; r < run->ranks; r++) {
        assert_int_equal(run->report[r].steps, 2);
        assert_int_equal(run->report[r].replicas, DPB_ERR_CHECK);
        expect_logged(run, r,
                      "after step 2: the values beside the parameters of rank 1 are not "
                      "those of rank 0");
    }
    assert_true(run->report[1].hash[1] != run->report[0].hash[1]);
    run_free(run);
}

/* ---- what the workload exchanges itself ---- */

/* All ranks see what one rank with the whole batch sees, a rank without samples too, and nothing
 * changes for the gradients. */
static void test_exchanges_of_the_workload(void **state)
{
    static const int64_t uneven[] = {5, 2, 1, 0};
    struct run *reference = reference_run(8, false);

    (void)state;
    for (size_t s = 0; s < STRATEGY_COUNT; s++) {
        struct run *run = run_new(4, strategies[s].ops, strategies[s].options, uneven);

        for (int r = 0; r < run->ranks; r++)
            run->options[r].exchange = TINY_EXCHANGE_CORRECT;
        run_all(run);
        expect_same_training(run, reference);
        for (int r = 0; r < run->ranks; r++)
            assert_memory_equal(run->report[r].correct, reference->report[0].correct,
                                sizeof(run->report[r].correct));
        run_free(run);
    }
    run_free(reference);
}

/* ---- every optimizer ---- */

static const int64_t optimizer_share[] = {6, 6, 6};

static struct run *optimizer_run(int ranks, enum dpb_optimizer_kind kind, double lr)
{
    struct run *run = run_new(ranks, &dpb_strategy_ddp_ops, &tiny_buckets, optimizer_share);

    for (int r = 0; r < ranks; r++) {
        run->optimizer[r] = dpb_optimizer_defaults(kind);
        run->optimizer[r].lr = lr;
    }
    return run;
}

/* Sums of integers are exact, so what every optimizer makes of them is too: the same bits for any
 * number of ranks, norms of whole tensors included. */
static void test_optimizers_with_integer_gradients(void **state)
{
    static const int64_t whole[] = {18}, thirds[] = {6, 6, 6}, uneven[] = {11, 7};

    (void)state;
    for (int k = 0; k < DPB_OPTIMIZER_COUNT; k++) {
        struct run *reference = NULL;

        for (int ranks = 1; ranks <= 3; ranks++) {
            struct run *run = optimizer_run(ranks, (enum dpb_optimizer_kind)k, 0.01);

            memcpy(run->share,
                   ranks == 1   ? whole
                   : ranks == 2 ? uneven
                                : thirds,
                   (size_t)ranks * sizeof(int64_t));
            run->sum_gradients = true;
            run_all(run);
            if (ranks == 1) {
                expect_success(run);
                assert_true(run->report[0].hash[0] != run->report[0].hash[1]);
                reference = run;
            } else {
                expect_same_training(run, reference);
                run_free(run);
            }
        }
        run_free(reference);
    }
}

static double loss_of_step(const struct run *run, int step)
{
    double sum = 0.0;

    for (int r = 0; r < run->ranks; r++)
        sum += run->report[r].loss[step];
    return sum;
}

/* Real gradients: replicas stay identical (the engine compares them after every step), and the loss
 * falls from step to step. */
static void test_optimizers_lower_the_loss(void **state)
{
    static const double lr[DPB_OPTIMIZER_COUNT] = {
            [DPB_OPTIMIZER_SGD] = 0.1,     [DPB_OPTIMIZER_ADAMW] = 0.2,
            [DPB_OPTIMIZER_LAMB] = 0.05,   [DPB_OPTIMIZER_LARS] = 0.5,
            [DPB_OPTIMIZER_ADAGRAD] = 0.5, [DPB_OPTIMIZER_ROWWISE_ADAGRAD] = 0.5,
    };

    (void)state;
    for (int k = 0; k < DPB_OPTIMIZER_COUNT; k++) {
        for (int ranks = 1; ranks <= 3; ranks++) {
            struct run *run = optimizer_run(ranks, (enum dpb_optimizer_kind)k, lr[k]);

            for (int r = 0; r < ranks; r++) {
                run->options[r].least_squares = true;
                /* A rate that suits its tensors would be far too high for what it leaves alone. */
                if (k == DPB_OPTIMIZER_LARS)
                    run->optimizer[r].trust = 0.5;
            }
            run_all(run);
            expect_success(run);
            for (int r = 1; r < ranks; r++)
                assert_memory_equal(run->report[r].hash, run->report[0].hash,
                                    sizeof(run->report[0].hash));
            for (int step = 1; step < STEPS; step++)
                if (!(loss_of_step(run, step) < 0.98 * loss_of_step(run, step - 1)))
                    fail_msg("%s on %d ranks: the loss goes from %g to %g in step %d",
                             dpb_optimizer_text((enum dpb_optimizer_kind)k), ranks,
                             loss_of_step(run, step - 1), loss_of_step(run, step), step);
            run_free(run);
        }
    }
}

/* A rank that fails takes the others with it, at once. */
static void test_rank_that_fails_in_a_step(void **state)
{
    static const int64_t share[] = {2, 2, 2, 2};

    (void)state;
    for (size_t s = 0; s < STRATEGY_COUNT; s++) {
        struct run *run = run_new(4, strategies[s].ops, strategies[s].options, share);

        run->options[2].fail_backward = 3;
        run_all(run);
        for (int r = 0; r < run->ranks; r++) {
            assert_int_equal(run->report[r].steps, 2);
            assert_int_equal(run->report[r].step, r == 2 ? DPB_ERR_VENDOR : DPB_ERR_RANK_FAILED);
            expect_logged(run, r, r == 2 ? "backward fails" : "step 3 (backward)");
        }
        run_free(run);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_parameters_move),
            cmocka_unit_test(test_summed_gradients),
            cmocka_unit_test(test_averaged_gradients),
            cmocka_unit_test(test_uneven_batches_give_the_exact_mean),
            cmocka_unit_test(test_same_setting_same_bits),
            cmocka_unit_test(test_ranks_whose_gradients_come_in_another_order),
            cmocka_unit_test(test_planted_divergence_is_caught),
            cmocka_unit_test(test_other_bucket_size_on_one_rank),
            cmocka_unit_test(test_other_network_or_settings_on_some_ranks),
            cmocka_unit_test(test_other_statistics_on_one_rank),
            cmocka_unit_test(test_replicated_state_that_differs),
            cmocka_unit_test(test_exchanges_of_the_workload),
            cmocka_unit_test(test_optimizers_with_integer_gradients),
            cmocka_unit_test(test_optimizers_lower_the_loss),
            cmocka_unit_test(test_rank_that_fails_in_a_step),
    };

    return DPB_RUN_TESTS(tests);
}

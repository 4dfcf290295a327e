/* Local SGD against a log of what it asks for, and on ranks against the same computed here. */
#include "dpb_test.h"

#include <math.h>

#include "dpb_log.h"
#include "dpb_strategies.h"
#include "strategy_log.h"
#include "strategy_ranks.h"

#define BATCH    12 /* of strategy_ranks */
#define SEED     3
#define LR       0.25
#define MOMENTUM 0.5

static const struct dpb_local_sgd_options every_step = {.sync_every = 1};
static const struct dpb_local_sgd_options every_two = {.sync_every = 2};
static const struct dpb_local_sgd_options every_two_after_one = {.sync_every = 2, .warmup = 1};
static const struct dpb_local_sgd_options moments = {.sync_every = 2, .average_moments = true};

/* ---- the log ---- */

static float parameters[LOG_PARAMS][8];

static void open_log(struct strategy_log *log, const struct dpb_local_sgd_options *options,
                     int world_size)
{
    strategy_log_open(log, &dpb_strategy_local_sgd_ops, options, 0, world_size);
    for (int p = 0; p < LOG_PARAMS; p++)
        log->value[p] = parameters[p];
}

static void test_steps(void **state)
{
    static const char *const local = "| d c b a | | |";
    static const char *const averaging =
            "| d c b a | | flatten flatten flatten flatten all-reduce0.24 wait1 "
            "unflatten unflatten unflatten unflatten |";
    static const char *const warm = "| d c b a | all-reduce0.24 wait1 | |";
    struct strategy_log log;

    (void)state;
    open_log(&log, &every_two_after_one, 2);
    assert_true(log.ops->in_sync(log.strategy));
    for (int64_t step = 1; step <= 7; step++) {
        const bool is_warm = step == 1, is_due = step == 3 || step == 5 || step == 7;

        assert_int_equal(strategy_log_step_number(&log, step, log_reverse_order), DPB_OK);
        assert_string_equal(log.text.text, is_warm ? warm : is_due ? averaging : local);
        assert_int_equal(log.ops->in_sync(log.strategy), is_warm || is_due);
    }
    assert_int_equal(strategy_log_described(&log, "sync_every"), 2);
    assert_int_equal(strategy_log_described(&log, "local_warmup"), 1);
    strategy_log_close(&log);
}

static void test_one_rank_does_nothing(void **state)
{
    struct strategy_log log;

    (void)state;
    open_log(&log, &every_step, 1);
    assert_int_equal(strategy_log_step(&log, log_reverse_order), DPB_OK);
    assert_string_equal(log.text.text, "| d c b a | | |");
    assert_true(log.ops->in_sync(log.strategy));
    assert_int_equal(log.ops->messages(log.strategy, NULL), 0);
    strategy_log_close(&log);
}

static void test_failures_and_misuse(void **state)
{
    static const int twice[LOG_PARAMS] = {3, 2, 2, 0};
    struct strategy_log log;

    (void)state;
    open_log(&log, &every_step, 2);
    log.fail_start = 1;
    assert_int_equal(strategy_log_step(&log, log_reverse_order), DPB_ERR_RANK_FAILED);
    log.fail_start = 0;
    log.fail_wait = 1;
    assert_int_equal(strategy_log_step(&log, log_reverse_order), DPB_ERR_TIMEOUT);
    assert_int_equal(strategy_log_step(&log, twice), DPB_ERR_INTERNAL);
    strategy_log_close(&log);
}

static void test_messages(void **state)
{
    const struct dpb_strategy_config config = {
            .world_size = 3, .ranks_per_node = 3, .options = &moments, .optimizer_arrays = 2};
    struct dpb_sync_message message[3];
    struct dpb_unit_plan plan;
    dpb_strategy *strategy;

    (void)state;
    assert_int_equal(dpb_strategy_local_sgd_ops.open(&config, &strategy), DPB_OK);
    assert_int_equal(dpb_strategy_local_sgd_ops.plan(strategy, &log_model, NULL, &plan), DPB_OK);
    assert_int_equal(dpb_strategy_local_sgd_ops.messages(strategy, NULL), 3);
    assert_int_equal(dpb_strategy_local_sgd_ops.messages(strategy, message), 3);
    for (int m = 0; m < 3; m++) {
        assert_int_equal(message[m].kind, DPB_COLL_ALL_REDUCE);
        assert_int_equal(message[m].count, 24);
        assert_int_equal(message[m].when, DPB_SYNC_AFTER_OPTIMIZER);
        assert_int_equal(message[m].every, 2);
        assert_string_equal(message[m].name, m == 0 ? "average-parameters" : "average-moments");
    }
    dpb_strategy_local_sgd_ops.close(strategy);
    dpb_unit_plan_release(&plan);
}

static void test_bad_options(void **state)
{
    static const struct dpb_local_sgd_options never = {0}, before = {.sync_every = 1, .warmup = -1};
    const void *const bad[] = {NULL, &never, &before};
    struct dpb_str errors = {0};

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(
                strategy_log_try(&dpb_strategy_local_sgd_ops, bad[i], false, true, &errors),
                DPB_ERR_USAGE);
    assert_non_null(strstr(errors.text, "--sync-every must be at least 1"));
    /* of an optimizer without moments */
    assert_int_equal(strategy_log_try(&dpb_strategy_local_sgd_ops, &moments, false, true, &errors),
                     DPB_ERR_USAGE);
    assert_non_null(strstr(errors.text, "--average-moments on cannot take effect"));
    dpb_str_release(&errors);
    assert_int_equal(dpb_strategy_ops_check(&dpb_strategy_local_sgd_ops), DPB_OK);
}

/* ---- real ranks ---- */

/* One element of every rank's replica. */
struct replicas {
    double value[STRATEGY_RANKS_MAX], moment[STRATEGY_RANKS_MAX];
};

static void average(double *values, int ranks)
{
    double sum = 0;

    for (int r = 0; r < ranks; r++)
        sum += values[r] / ranks;
    for (int r = 0; r < ranks; r++)
        values[r] = sum;
}

static void train_step(struct replicas *x, const struct dpb_local_sgd_options *options, int ranks,
                       int step, int param, int64_t element)
{
    const int each = BATCH / ranks;
    double gradient[STRATEGY_RANKS_MAX] = {0};

    for (int r = 0; r < ranks; r++)
        for (int s = 0; s < each; s++)
            gradient[r] +=
                    (x->value[r] - tiny_target(param, element, (step - 1) * BATCH + r * each + s)) /
                    each;
    if (step <= options->warmup)
        average(gradient, ranks);
    for (int r = 0; r < ranks; r++) {
        x->moment[r] = MOMENTUM * x->moment[r] + gradient[r];
        x->value[r] -= LR * x->moment[r];
    }
    if (step <= options->warmup || (step - options->warmup) % options->sync_every != 0)
        return;
    average(x->value, ranks);
    if (options->average_moments)
        average(x->moment, ranks);
}

static void expect_local_sgd(const struct strategy_run *run,
                             const struct dpb_local_sgd_options *options)
{
    int64_t at = 0;

    for (int param = 0; param < TINY_PARAMS; param++) {
        for (int64_t e = 0; e < tiny_numel(param); e++, at++) {
            struct replicas x = {{0}, {0}};

            for (int r = 0; r < run->ranks; r++)
                x.value[r] = (double)tiny_initial(param, e, SEED);
            for (int step = 1; step <= STRATEGY_STEPS; step++) {
                train_step(&x, options, run->ranks, step, param, e);
                for (int r = 0; r < run->ranks; r++)
                    assert_float_equal((double)run->report[r].params[step - 1][at], x.value[r],
                                       1e-4);
            }
        }
    }
    assert_int_equal(at, run->report[0].elements);
}

static struct strategy_run *trained(int ranks, const struct dpb_local_sgd_options *options,
                                    int64_t accumulate)
{
    struct strategy_run *run = strategy_run_new(ranks, &dpb_strategy_local_sgd_ops, options);

    run->trains = true;
    run->accumulate = accumulate;
    strategy_run_all(run);
    for (int r = 0; r < ranks; r++) {
        if (run->report[r].log[0])
            print_error("rank %d: %s", r, run->report[r].log);
        assert_int_equal(run->report[r].steps, STRATEGY_STEPS);
        assert_int_equal(run->report[r].replicas, DPB_OK);
    }
    return run;
}

static bool replicas_are_equal(const struct strategy_run *run, int step)
{
    for (int r = 1; r < run->ranks; r++)
        if (memcmp(run->report[r].params[step - 1], run->report[0].params[step - 1],
                   (size_t)run->report[0].elements * sizeof(float)) != 0)
            return false;
    return true;
}

/* Replicas are the same bits right after they were averaged, and in the warm-up; not otherwise. */
static void test_ranks(void **state)
{
    static const struct dpb_local_sgd_options *const options[] = {&every_step, &every_two,
                                                                  &every_two_after_one, &moments};

    (void)state;
    for (size_t o = 0; o < sizeof(options) / sizeof(options[0]); o++) {
        for (int ranks = 1; ranks <= STRATEGY_RANKS_MAX; ranks++) {
            struct strategy_run *run = trained(ranks, options[o], 1);

            expect_local_sgd(run, options[o]);
            for (int step = 1; step <= STRATEGY_STEPS; step++) {
                const int64_t alone = step - options[o]->warmup;
                const bool in_sync =
                        ranks == 1 || alone <= 0 || alone % options[o]->sync_every == 0;

                /* Only the four have different samples on average. */
                if (in_sync || ranks == 4)
                    assert_int_equal(replicas_are_equal(run, step), in_sync);
            }
            strategy_run_free(run);
        }
    }
}

/* What is sent: nothing, but in the step that averages; and no memory is taken for it. */
static void test_what_is_sent(void **state)
{
    static const struct dpb_local_sgd_options now = {.sync_every = 5, .average_moments = true},
                                              later = {.sync_every = 4},
                                              warm = {.sync_every = 9, .warmup = 5};
    const struct {
        const struct dpb_local_sgd_options *options;
        int collectives;
    } cases[] = {{&now, 2}, {&later, 0}, {&warm, 1}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct strategy_run *run = trained(3, cases[i].options, 1);

        for (int r = 0; r < 3; r++) {
            const struct strategy_report *report = &run->report[r];

            assert_int_equal(report->collectives, cases[i].collectives);
            if (cases[i].options == &now)
                assert_int_equal(report->wire_bytes, report->message_bytes);
            assert_int_equal(report->communication_bytes, 0);
            assert_int_equal(report->predicted.communication, 0);
            assert_int_equal(report->optimizer_bytes, report->predicted.optimizer);
        }
        strategy_run_free(run);
    }
}

/* A moment that is averaged, or stays, changes what comes after the next step. */
static void test_moments_matter(void **state)
{
    struct strategy_run *kept = trained(4, &every_two, 1), *averaged = trained(4, &moments, 1);

    (void)state;
    assert_memory_equal(kept->report[0].params[1], averaged->report[0].params[1], 64);
    assert_memory_not_equal(kept->report[0].params[2], averaged->report[0].params[2], 64);
    strategy_run_free(kept);
    strategy_run_free(averaged);
}

/* Micro-batches change nothing of what a rank sees in a step, were its samples those of one. */
static void test_micro_batches(void **state)
{
    struct strategy_run *run = trained(1, &every_two, 2), *whole = trained(1, &every_two, 1);

    (void)state;
    for (int64_t i = 0; i < whole->report[0].elements; i++)
        assert_float_equal((double)run->report[0].params[STRATEGY_STEPS - 1][i],
                           (double)whole->report[0].params[STRATEGY_STEPS - 1][i], 1e-4);
    strategy_run_free(run);
    strategy_run_free(whole);
}

static void test_failure_ends_all(void **state)
{
    struct strategy_run *run = strategy_run_new(3, &dpb_strategy_local_sgd_ops, &every_step);

    (void)state;
    run->fail_rank = 2;
    strategy_run_all(run);
    for (int r = 0; r < run->ranks; r++) {
        assert_int_equal(run->report[r].steps, 2);
        assert_int_equal(run->report[r].step, r == 2 ? DPB_ERR_VENDOR : DPB_ERR_RANK_FAILED);
    }
    strategy_run_free(run);
}

/* After step 2 replicas are compared, and a wrong bit is found. */
static void test_divergence_is_found(void **state)
{
    struct strategy_run *run = strategy_run_new(2, &dpb_strategy_local_sgd_ops, &every_two);

    (void)state;
    run->plant_rank = 1;
    strategy_run_all(run);
    for (int r = 0; r < run->ranks; r++) {
        assert_int_equal(run->report[r].steps, 2);
        assert_int_equal(run->report[r].replicas, DPB_ERR_CHECK);
    }
    strategy_run_free(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_steps),
            cmocka_unit_test(test_one_rank_does_nothing),
            cmocka_unit_test(test_failures_and_misuse),
            cmocka_unit_test(test_messages),
            cmocka_unit_test(test_bad_options),
            cmocka_unit_test(test_ranks),
            cmocka_unit_test(test_what_is_sent),
            cmocka_unit_test(test_moments_matter),
            cmocka_unit_test(test_micro_batches),
            cmocka_unit_test(test_failure_ends_all),
            cmocka_unit_test(test_divergence_is_found),
    };

    return DPB_RUN_TESTS(tests);
}

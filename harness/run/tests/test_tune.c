#include "dpb_tune.h"

#include <math.h>
#include <string.h>

#include "dpb_log.h"
#include "dpb_test.h"
#include "registry_for_tests.h"

static dpb_status prepare(const char *const options[][2], int64_t budget, struct dpb_tune *tune)
{
    const struct dpb_registry *registry = registry_for_tests();
    struct dpb_settings given = {0};
    const struct dpb_tune_input input = {
            .registry = registry, .given = &given, .cores = 2, .budget = budget};

    for (size_t i = 0; options[i][0]; i++)
        assert_int_equal(dpb_settings_add(&given, registry->options, options[i][0], options[i][1],
                                          options[i][0]),
                         DPB_OK);
    dpb_status st = dpb_tune_prepare(&input, tune);
    dpb_settings_release(&given);
    return st;
}

/* mnist-cnn's gradients fall into few different sets of buckets, whatever the limits. */
static void test_same_messages_are_one_candidate(void **state)
{
    static const char *const options[][2] = {{"ranks", "2"},
                                             {"bucket", "4KiB,16KiB,256KiB,1MiB,16MiB"},
                                             {"first-bucket", "auto"},
                                             {NULL, NULL}};
    struct dpb_tune tune;

    (void)state;
    assert_int_equal(prepare(options, 60, &tune), DPB_OK);
    assert_int_equal(tune.knob_count, 1);
    assert_string_equal(tune.knobs[0], "bucket");
    /* the default's two buckets are those of 256 KiB and 1 MiB; then one, and more of them */
    assert_string_equal(tune.plan.cells[0].label, "default");
    assert_false(dpb_config_is_explicit(tune.plan.cells[0].config, "bucket"));
    for (size_t c = 1; c < tune.plan.cell_count; c++) {
        assert_null(strstr(tune.plan.cells[c].label, "256KiB"));
        assert_null(strstr(tune.plan.cells[c].label, "1MiB"));
    }
    assert_int_equal(tune.plan.cell_count - 1 + tune.same, 5);
    assert_int_equal(tune.left_out, 0);
    dpb_tune_release(&tune);
}

/* The default's --bucket written out has another first bucket, and says which. */
static void test_a_bucket_that_is_given_has_another_first_bucket(void **state)
{
    static const char *const options[][2] = {{"workload", "cifar-resnet20"},
                                             {"ranks", "2"},
                                             {"bucket", "25MiB,64KiB"},
                                             {"first-bucket", "auto"},
                                             {NULL, NULL}};
    struct dpb_tune tune;

    (void)state;
    assert_int_equal(prepare(options, 60, &tune), DPB_OK);
    assert_int_equal(tune.plan.cell_count, 3);
    assert_int_equal(tune.candidates[0].first_bucket_bytes, 1 << 20);
    assert_int_equal(tune.candidates[1].first_bucket_bytes, 25 << 20);
    assert_int_equal(tune.candidates[2].first_bucket_bytes, 64 << 10);
    dpb_tune_release(&tune);
}

static int64_t launches_of_rounds(size_t candidates)
{
    int64_t launches = 0;

    for (; candidates > 1; candidates = (candidates + 1) / 2)
        launches += (int64_t)candidates;
    return launches;
}

static void test_budget(void **state)
{
    static const char *const options[][2] = {
            {"workload", "cifar-resnet20"}, {"ranks", "2"}, {NULL, NULL}};
    static const int64_t budgets[] = {DPB_TUNE_BUDGET_MIN, 20, 24, 40, 60, 100, 400};
    size_t most = 0;

    (void)state;
    for (size_t b = 0; b < sizeof(budgets) / sizeof(budgets[0]); b++) {
        struct dpb_tune tune;

        assert_int_equal(prepare(options, budgets[b], &tune), DPB_OK);
        assert_true(tune.pairs >= 5);
        assert_true(tune.plan.cell_count >= 2);
        assert_true(launches_of_rounds(tune.plan.cell_count) + 2 * tune.pairs <= budgets[b]);
        assert_true(tune.plan.cell_count >= most); /* a larger budget never tries less */
        most = tune.plan.cell_count;
        if (budgets[b] == DPB_TUNE_BUDGET_MIN)
            assert_true(tune.left_out > 0);
        if (budgets[b] == 400)
            assert_int_equal(tune.left_out, 0);
        dpb_tune_release(&tune);
    }
}

static void test_nothing_to_tune(void **state)
{
    static const char *const cases[][3][2] = {
            {{"strategy", "none"}, {"ranks", "2"}, {NULL, NULL}},
            {{"ranks", "1"}, {NULL, NULL}},
            {{"bucket", "1MiB"}, {"first-bucket", "1MiB"}, {NULL, NULL}},
            {{"ranks", "2,4"}, {NULL, NULL}},
            {{"bucket", "8MiB,16MiB"}, {"first-bucket", "1MiB"}, {NULL, NULL}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct dpb_tune tune;

        assert_int_equal(prepare(cases[i], 60, &tune), DPB_ERR_USAGE);
        dpb_tune_release(&tune);
    }
    struct dpb_tune tune;
    assert_int_equal(prepare(cases[0] + 1, DPB_TUNE_BUDGET_MIN - 1, &tune), DPB_ERR_USAGE);
    dpb_tune_release(&tune);
}

static void test_compare(void **state)
{
    static const double slow[] = {110, 121, 105, 115, 112};
    static const double fast[] = {100, 110, 96, 104, 101};
    static const double other[] = {110, 118, 108, 113, 113};
    struct dpb_tune_comparison comparison;

    (void)state;
    dpb_tune_compare(slow, fast, 5, &comparison);
    assert_int_equal(comparison.verdict, DPB_TUNE_BETTER);
    assert_int_equal(comparison.pairs, 5);
    /* exp(mean of log(slow / fast)) and its t interval with 4 degrees of freedom, by Python */
    assert_true(fabs(comparison.ratio - 1.1016735364) < 1e-9);
    assert_true(fabs(comparison.ci95.low - 1.0944150917) < 1e-9);
    assert_true(fabs(comparison.ci95.high - 1.1089801211) < 1e-9);
    dpb_tune_compare(fast, slow, 5, &comparison);
    assert_int_equal(comparison.verdict, DPB_TUNE_WORSE);
    dpb_tune_compare(slow, other, 5, &comparison);
    assert_int_equal(comparison.verdict, DPB_TUNE_NO_DIFFERENCE);
    assert_true(comparison.ci95.low < 1 && comparison.ci95.high > 1);
}

/* A pair of which one launch is missing is no pair, and one pair says nothing. */
static void test_compare_few(void **state)
{
    static const double slow[] = {110, NAN, 105};
    static const double fast[] = {100, 110, NAN};
    struct dpb_tune_comparison comparison;

    (void)state;
    dpb_tune_compare(slow, fast, 3, &comparison);
    assert_int_equal(comparison.pairs, 1);
    assert_int_equal(comparison.verdict, DPB_TUNE_NOT_COMPARED);
    assert_true(isnan(comparison.ratio));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_same_messages_are_one_candidate),
            cmocka_unit_test(test_a_bucket_that_is_given_has_another_first_bucket),
            cmocka_unit_test(test_budget),
            cmocka_unit_test(test_nothing_to_tune),
            cmocka_unit_test(test_compare),
            cmocka_unit_test(test_compare_few),
    };

    return DPB_RUN_TESTS(tests);
}

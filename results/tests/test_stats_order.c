#include "dpb_test.h"

#include <math.h>

#include "dpb_gate.h"
#include "dpb_json.h"
#include "dpb_rng.h"
#include "dpb_stats.h"

#define VALUES_MAX 128

static size_t read_array(const dpb_json *array, double values[VALUES_MAX])
{
    const size_t count = dpb_json_size(array);

    assert_true(count <= VALUES_MAX);
    for (size_t i = 0; i < count; i++)
        values[i] = dpb_json_as_real(dpb_json_at(array, i), NAN);
    return count;
}

/* R's power.t.test, one-sided rows: the gate's question. */
static void test_power_table(void **state)
{
    FILE *file = fopen(DPB_TEST_DATA "/power_welch_equal_n.csv", "r");
    char line[128];
    int runs, sides, rows = 0;
    double effect, alpha, power;

    (void)state;
    assert_non_null(file);
    while (fgets(line, sizeof(line), file)) {
        if (sscanf(line, "%d,%lf,%lf,%d,%lf", &runs, &effect, &alpha, &sides, &power) != 5 ||
            sides != 1)
            continue;
        const double found = dpb_gate_power((size_t)runs, effect, 1, alpha);

        if (!(fabs(found - power) < 1e-7))
            fail_msg("%d runs, effect %g, alpha %g: %.9f, not %.9f", runs, effect, alpha, found,
                     power);
        rows++;
    }
    fclose(file);
    assert_true(rows > 20);
    assert_true(isnan(dpb_gate_power(1, 1, 1, 0.05)));
}

/* MDE of gates.md in units of the standard deviation, from the noncentral t. */
static void test_mde_table(void **state)
{
    static const struct {
        size_t runs;
        double at_80, at_90;
    } rows[] = {{3, 2.48, 2.94},  {4, 2.00, 2.35},  {5, 1.72, 2.03},  {6, 1.54, 1.82},
                {8, 1.31, 1.54},  {10, 1.16, 1.36}, {12, 1.05, 1.23}, {15, 0.93, 1.10},
                {20, 0.80, 0.94}, {30, 0.65, 0.76}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_true(fabs(dpb_gate_power(rows[i].runs, rows[i].at_80, 1, 0.05) - 0.8) < 0.005);
        assert_true(fabs(dpb_gate_power(rows[i].runs, rows[i].at_90, 1, 0.05) - 0.9) < 0.005);
    }
}

static void test_autocorrelation(void **state)
{
    dpb_json *vectors;
    double values[VALUES_MAX], expected[VALUES_MAX];
    const double same[] = {1, 1, 1, 1};

    (void)state;
    assert_int_equal(dpb_json_read_file(DPB_TEST_DATA "/descriptive_ar1.json", &vectors), DPB_OK);
    const size_t count = read_array(dpb_json_get(vectors, "x"), values);
    const size_t lags = read_array(dpb_json_get(vectors, "acf_0_10"), expected);
    assert_int_equal(lags, 11);
    for (size_t lag = 0; lag < lags; lag++)
        assert_true(fabs(dpb_stats_autocorrelation(values, count, lag) - expected[lag]) < 1e-9);
    assert_true(isnan(dpb_stats_autocorrelation(same, 4, 1)));
    assert_true(isnan(dpb_stats_autocorrelation(values, 3, 3)));
    dpb_json_free(vectors);
}

static double real(const dpb_json *one, const char *key)
{
    return dpb_json_as_real(dpb_json_get(one, key), NAN);
}

static bool agree(double found, double expected)
{
    return isnan(expected) || fabs(found - expected) <= 1e-9 * fmax(1, fabs(expected));
}

/* The decision's t, degrees of freedom and exact permutation p of pairs of samples. */
static void test_two_samples(void **state)
{
    FILE *file = fopen(DPB_TEST_DATA "/two_sample.jsonl", "r");
    char *line = NULL;
    size_t room = 0, cases = 0, permutations = 0;

    (void)state;
    assert_non_null(file);
    while (getline(&line, &room, file) > 0) {
        double x[VALUES_MAX], y[VALUES_MAX];
        struct dpb_gate_rule rule = DPB_GATE_RULE_DEFAULT;
        struct dpb_gate_result result;
        dpb_json *one;

        assert_int_equal(dpb_json_parse(line, strlen(line), &one, NULL), DPB_OK);
        const size_t nx = read_array(dpb_json_get(one, "x"), x);
        const size_t ny = read_array(dpb_json_get(one, "y"), y);
        rule.is_absolute = true;
        rule.margin = 0;
        rule.floor = 0;
        rule.least_runs = 2;
        dpb_gate_decide(x, nx, y, ny, &rule, &result);
        if (!agree(result.difference / result.se, real(one, "welch_t")) ||
            !agree(result.df, real(one, "welch_df")) ||
            !agree(2 * fmin(result.p_worse, result.p_fine), real(one, "welch_p_two")))
            fail_msg("%s: t %g, df %g", dpb_json_as_string(dpb_json_get(one, "name"), "?"),
                     result.difference / result.se, result.df);
        if (!isnan(result.p_permutation) && !isnan(real(one, "perm_mean_p_one(y>x)"))) {
            assert_true(agree(result.p_permutation, real(one, "perm_mean_p_one(y>x)")));
            permutations++;
        }
        dpb_json_free(one);
        cases++;
    }
    free(line);
    fclose(file);
    assert_true(cases > 5 && permutations > 3);
}

static void test_spearman(void **state)
{
    const double order[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    const double up[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    const double mixed[] = {3, 1, 2, 5, 4, 7, 6, 9, 8, 12, 10, 11};
    const double same[] = {1, 1, 1, 1};

    (void)state;
    /* exact: 2 of n! orders are as extreme as a monotone one */
    assert_true(fabs(dpb_stats_spearman_p(order, up, 4) - 2.0 / 24) < 1e-12);
    assert_true(fabs(dpb_stats_spearman_p(order, up, 6) - 2.0 / 720) < 1e-12);
    /* rho 0.937063: Student's t with 10 degrees of freedom */
    assert_true(fabs(dpb_stats_spearman_p(order, mixed, 12) - 6.993164952715105e-06) < 1e-9);
    assert_true(dpb_stats_spearman_p(order, same, 4) == 1);
    assert_true(isnan(dpb_stats_spearman_p(order, up, 2)));
}

static void test_binomial(void **state)
{
    size_t low, high;

    (void)state;
    dpb_stats_binomial95(500, 0.05, &low, &high); /* scipy.stats.binom.interval(0.95, 500, 0.05) */
    assert_int_equal(low, 16);
    assert_int_equal(high, 35);
}

/* Resamples at the given places have the statistics that NumPy found. */
static void test_block_resamples(void **state)
{
    double values[VALUES_MAX], starts[VALUES_MAX], medians[VALUES_MAX], means[VALUES_MAX];
    double found_medians[VALUES_MAX], found_means[VALUES_MAX], interval[VALUES_MAX];
    dpb_json *vectors;

    (void)state;
    assert_int_equal(dpb_json_read_file(DPB_TEST_DATA "/circular_block_bootstrap.json", &vectors),
                     DPB_OK);
    const size_t count = read_array(dpb_json_get(vectors, "x"), values);
    const size_t block = (size_t)dpb_json_as_int(dpb_json_get(vectors, "block_len"), 0);
    const dpb_json *places = dpb_json_get(vectors, "start_positions");
    const size_t resamples = read_array(dpb_json_get(vectors, "medians"), medians);
    read_array(dpb_json_get(vectors, "means"), means);
    read_array(dpb_json_get(vectors, "median_q05_q95_type7"), interval);
    assert_int_equal(dpb_json_size(places), resamples);
    assert_int_equal(resamples, 50);
    for (size_t r = 0; r < resamples; r++) {
        double resample[VALUES_MAX];
        size_t at[VALUES_MAX];
        const size_t blocks = read_array(dpb_json_at(places, r), starts);

        assert_int_equal(blocks, (count + block - 1) / block);
        for (size_t b = 0; b < blocks; b++)
            at[b] = (size_t)starts[b];
        dpb_stats_resample_blocks(values, count, block, at, resample);
        found_medians[r] = dpb_stats_median(resample, count);
        found_means[r] = dpb_stats_mean(resample, count);
        assert_true(fabs(found_medians[r] - medians[r]) < 1e-9);
        assert_true(fabs(found_means[r] - means[r]) < 1e-9);
    }
    assert_true(fabs(dpb_stats_quantile(found_medians, resamples, 0.05) - interval[0]) < 1e-9);
    assert_true(fabs(dpb_stats_quantile(found_medians, resamples, 0.95) - interval[1]) < 1e-9);
    assert_true(fabs(dpb_stats_stdev(found_means, resamples) -
                     dpb_json_as_real(dpb_json_get(vectors, "se_mean"), NAN)) < 1e-9);
    dpb_json_free(vectors);
}

/* The mean of an AR(1) series is twice as uncertain as that of independent values at 0.6: blocks
 * see it, single values do not. */
static void test_block_bootstrap(void **state)
{
    enum {
        COUNT = 2000
    };
    static double values[COUNT];
    struct dpb_rng rng;

    (void)state;
    dpb_rng_init(&rng, 5, 0);
    values[0] = dpb_rng_normal(&rng);
    for (size_t i = 1; i < COUNT; i++)
        values[i] = 0.6 * values[i - 1] + 0.8 * dpb_rng_normal(&rng);
    const size_t block = dpb_stats_block_length(0.6, COUNT);
    const struct dpb_bootstrap blocks =
            dpb_stats_block_bootstrap(values, COUNT, block, dpb_stats_mean, 400, 1);
    const struct dpb_bootstrap singles =
            dpb_stats_block_bootstrap(values, COUNT, 1, dpb_stats_mean, 400, 1);
    const double independent = dpb_stats_stdev(values, COUNT) / sqrt(COUNT);

    assert_true(fabs(singles.se / independent - 1) < 0.1);
    assert_true(fabs(blocks.se / (2 * independent) - 1) < 0.15);
    assert_true(fabs((blocks.high90 - blocks.low90) / (2 * 1.645 * blocks.se) - 1) < 0.15);
    const struct dpb_bootstrap again =
            dpb_stats_block_bootstrap(values, COUNT, block, dpb_stats_mean, 400, 1);
    assert_true(again.se == blocks.se && again.low90 == blocks.low90);

    assert_int_equal(dpb_stats_block_length(0, 100), 1);
    assert_int_equal(dpb_stats_block_length(-0.5, 100), 1);
    assert_int_equal(dpb_stats_block_length(0.5, 1000), 14); /* 1.633^(2/3) 10 */
    assert_int_equal(dpb_stats_block_length(2, 100), dpb_stats_block_length(0.95, 100));
    assert_true(isnan(dpb_stats_block_bootstrap(values, 1, 1, dpb_stats_mean, 400, 1).se));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_power_table),     cmocka_unit_test(test_mde_table),
            cmocka_unit_test(test_autocorrelation), cmocka_unit_test(test_two_samples),
            cmocka_unit_test(test_spearman),        cmocka_unit_test(test_binomial),
            cmocka_unit_test(test_block_resamples), cmocka_unit_test(test_block_bootstrap),
    };
    return DPB_RUN_TESTS(tests);
}

#include "dpb_test.h"

#include <math.h>

#include "dpb_capacity.h"
#include "dpb_rng.h"

static void assert_near(double found, double expected, double relative)
{
    if (!(fabs(found - expected) <= relative * fabs(expected)))
        fail_msg("%.10g, not %.10g", found, expected);
}

static void test_normal_max_vectors(void **state)
{
    FILE *file = fopen(DPB_TEST_DATA "/expected_max_normal.csv", "r");
    char line[256];
    int count = 0;

    (void)state;
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof(line), file));
    while (fgets(line, sizeof(line), file)) {
        double n, expected;

        assert_int_equal(sscanf(line, "%lf,%lf", &n, &expected), 2);
        if (!(fabs(dpb_capacity_normal_max(n) - expected) <= 1e-6))
            fail_msg("%g: %.8f, not %.8f", n, dpb_capacity_normal_max(n), expected);
        count++;
    }
    fclose(file);
    assert_true(count >= 10);
    assert_true(isnan(dpb_capacity_normal_max(0)));
}

static void test_tail_max(void **state)
{
    (void)state;
    assert_near(dpb_capacity_tail_max(1, 0.25), 0.25, 1e-12);
    /* two ranks: both delayed with 1/4: H_2 = 1.5; one: 1/2 */
    assert_near(dpb_capacity_tail_max(2, 0.5), 0.25 * 1.5 + 0.5, 1e-12);
    assert_near(dpb_capacity_tail_max(3, 1), 1 + 0.5 + 1.0 / 3, 1e-12);
    assert_near(dpb_capacity_tail_max(4096, 0.03), log(4096 * 0.03) + 0.5772, 0.002);
    assert_true(dpb_capacity_tail_max(100, 0) == 0);
    /* 0.1 % of rank-steps delayed by 15 % on average: a Monte Carlo run had 6.5 % with 512
     * ranks, 29.7 % with 4096 */
    assert_near(0.15 * dpb_capacity_tail_max(512, 0.001), 0.065, 0.06);
    assert_near(0.15 * dpb_capacity_tail_max(4096, 0.001), 0.297, 0.02);
}

static void test_from_a_small_job_to_a_large_one(void **state)
{
    double values[2000];
    struct dpb_rng rng;

    (void)state;
    dpb_rng_init(&rng, 1, 0);
    for (int i = 0; i < 2000; i++) { /* steps of 8 ranks with 2 % noise */
        values[i] = 0;
        for (int r = 0; r < 8; r++)
            values[i] = fmax(values[i], 1 + 0.02 * dpb_rng_normal(&rng));
    }
    assert_near(dpb_capacity_extrapolate_max(values, 2000, 1),
                1 + 0.02 * dpb_capacity_normal_max(8), 0.002);
    assert_near(dpb_capacity_extrapolate_max(values, 2000, 64),
                1 + 0.02 * dpb_capacity_normal_max(512), 0.002);
    assert_true(isnan(dpb_capacity_extrapolate_max(values, 0, 2)));
}

static void test_steps_and_quality(void **state)
{
    (void)state;
    assert_true(dpb_capacity_steps(1281167, 90, 256) == ceil(1281167 * 90.0 / 256));
    assert_true(dpb_capacity_steps(100, 1, 64) == 2);
    assert_near(dpb_capacity_samples_to_quality(1e6, 1000, 1000), 2e6, 1e-12);
    assert_true(dpb_capacity_samples_to_quality(1e6, 1000, INFINITY) == 1e6);
}

static void test_goodput(void **state)
{
    const struct dpb_capacity_failures often = {
            .mtbf_s = 10000, .checkpoint_s = 50, .restart_s = 600};
    const struct dpb_capacity_failures never = {.mtbf_s = INFINITY, .checkpoint_s = 50};
    const struct dpb_capacity_goodput day = dpb_capacity_goodput(86400, &often);

    (void)state;
    assert_near(day.interval_s, 1000, 1e-12);
    assert_near(day.checkpoint_share, 0.05, 1e-12);
    assert_near(day.rework_share, 0.05, 1e-12);
    assert_near(day.restart_share, 0.06, 1e-12);
    assert_near(day.goodput, 1 / 1.16, 1e-12);
    assert_true(dpb_capacity_goodput(86400, &never).goodput == 1);
    /* over before the first checkpoint */
    assert_near(dpb_capacity_goodput(100, &often).rework_share, 100 / 20000.0, 1e-12);
    /* Young's interval is the best one: others lose more */
    for (double tau = 500; tau <= 2000; tau += 100)
        assert_true(50 / tau + tau / 20000 >= day.checkpoint_share + day.rework_share - 1e-12);
}

static void test_cost_and_energy(void **state)
{
    (void)state;
    assert_near(dpb_capacity_cost(8, 2.5, 7200), 40, 1e-12);
    assert_near(dpb_capacity_energy_kwh(10, 500, 3600), 5, 1e-12);
}

static void test_fit(void **state)
{
    const struct dpb_memory_fit fits = dpb_memory_fit(40e9, 1e9, 10, 2e9, 0.05, 80e9);
    const struct dpb_memory_fit tight = dpb_memory_fit(80e9, 1e9, 1, 2e9, 0.05, 80e9);

    (void)state;
    assert_near(fits.needed_bytes, 52e9 * 1.05, 1e-12);
    assert_near(fits.margin_bytes, 80e9 - 52e9 * 1.05, 1e-12);
    assert_true(fits.largest_batch == floor(80 / 1.05 - 42));
    assert_true(dpb_memory_fit(40e9, 1e9, fits.largest_batch, 2e9, 0.05, 80e9).margin_bytes >= 0);
    assert_true(dpb_memory_fit(40e9, 1e9, fits.largest_batch + 1, 2e9, 0.05, 80e9).margin_bytes <
                0);
    assert_true(tight.margin_bytes < 0 && tight.largest_batch == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_normal_max_vectors),
            cmocka_unit_test(test_tail_max),
            cmocka_unit_test(test_from_a_small_job_to_a_large_one),
            cmocka_unit_test(test_steps_and_quality),
            cmocka_unit_test(test_goodput),
            cmocka_unit_test(test_cost_and_energy),
            cmocka_unit_test(test_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

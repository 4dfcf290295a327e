#include "dpb_test.h"

#include "shm_histogram.h"

static struct dpb_shm_histogram histogram;

static int empty_it(void **state)
{
    (void)state;
    memset(&histogram, 0, sizeof(histogram));
    return 0;
}

static void test_empty(void **state)
{
    (void)state;
    assert_int_equal(dpb_shm_histogram_quantile_ns(&histogram, 0.5), 0);
    assert_int_equal(histogram.max_ns, 0);
}

static void test_small_values_are_exact(void **state)
{
    (void)state;
    for (int64_t ns = 1; ns <= 10; ns++)
        dpb_shm_histogram_add(&histogram, ns);
    assert_int_equal(dpb_shm_histogram_quantile_ns(&histogram, 0.5), 5);
    assert_int_equal(dpb_shm_histogram_quantile_ns(&histogram, 0.51), 6);
    assert_int_equal(dpb_shm_histogram_quantile_ns(&histogram, 0.99), 10);
    assert_int_equal(dpb_shm_histogram_quantile_ns(&histogram, 0), 1);
    assert_int_equal(histogram.count, 10);
    assert_int_equal(histogram.max_ns, 10);
}

static void test_one_value(void **state)
{
    (void)state;
    dpb_shm_histogram_add(&histogram, 123457);
    assert_int_equal(histogram.max_ns, 123457);
    assert_in_range(dpb_shm_histogram_quantile_ns(&histogram, 0.99), 119599, 123457);
    dpb_shm_histogram_add(&histogram, -5);
    assert_int_equal(dpb_shm_histogram_quantile_ns(&histogram, 0.5), 0);
}

static void test_relative_error(void **state)
{
    (void)state;
    for (int64_t ns = 1; ns < INT64_MAX / 3; ns = ns * 2 + ns / 3 + 1) {
        memset(&histogram, 0, sizeof(histogram));
        dpb_shm_histogram_add(&histogram, ns);
        dpb_shm_histogram_add(&histogram, INT64_MAX);
        int64_t got = dpb_shm_histogram_quantile_ns(&histogram, 0.5);
        int64_t off = got > ns ? got - ns : ns - got;
        assert_true(off <= ns / 32 + 1);
    }
    assert_true(dpb_shm_histogram_quantile_ns(&histogram, 1) > INT64_MAX / 33 * 32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test_setup(test_empty, empty_it),
            cmocka_unit_test_setup(test_small_values_are_exact, empty_it),
            cmocka_unit_test_setup(test_one_value, empty_it),
            cmocka_unit_test_setup(test_relative_error, empty_it),
    };
    return DPB_RUN_TESTS(tests);
}

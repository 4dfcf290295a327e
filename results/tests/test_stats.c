#include <math.h>

#include "dpb_stats.h"
#include "dpb_test.h"

static const double one_to_ten[] = {7, 3, 10, 1, 9, 2, 8, 4, 6, 5};
static const double five[] = {100, 110, 90, 100, 105};

/* The first 60 samples of an AR(1) series with R's answers (design data, descriptive_ar1.json). */
static const double series[] = {
        100.609, 98.286,  100.472, 102.165, 97.397,  95.834,  97.756,  98.021,  98.779,  97.561,
        100.296, 101.733, 101.172, 102.958, 102.71,  99.907,  100.682, 98.491,  100.852, 100.411,
        99.877,  98.564,  101.584, 100.641, 99.528,  99.013,  100.472, 101.014, 101.434, 101.722,
        105.317, 102.377, 100.402, 98.614,  100.4,   102.498, 101.271, 99.082,  97.8,    99.981,
        101.475, 101.972, 99.852,  100.375, 100.459, 100.713, 102.17,  101.749, 102.407, 101.58,
        101.526, 102.178, 98.393,  98.396,  98.097,  97.58,   97.998,  101.789, 99.342,  101.541};
#define SERIES_COUNT (sizeof(series) / sizeof(series[0]))

#define assert_near(value, expected, relative)                                                     \
    do {                                                                                           \
        double value_ = (value), expected_ = (expected);                                           \
        if (!(fabs(value_ - expected_) <= (relative)*fmax(fabs(expected_), 1e-300)))               \
            fail_msg("%s = %.17g, expected %.17g", #value, value_, expected_);                     \
    } while (0)

static void test_quantiles_of_one_to_ten(void **state)
{
    (void)state;
    assert_near(dpb_stats_quantile(one_to_ten, 10, 0.5), 5.5, 1e-15);
    assert_near(dpb_stats_quantile(one_to_ten, 10, 0.9), 9.1, 1e-15);
    assert_near(dpb_stats_quantile(one_to_ten, 10, 0.99), 9.91, 1e-15);
    assert_near(dpb_stats_quantile(one_to_ten, 10, 0.0), 1, 0);
    assert_near(dpb_stats_quantile(one_to_ten, 10, 1.0), 10, 0);
    assert_near(dpb_stats_median(one_to_ten, 10), 5.5, 0);
    assert_near(dpb_stats_median(one_to_ten, 9), 6, 0); /* 1 2 3 4 6 7 8 9 10 */
    assert_near(dpb_stats_mean(one_to_ten, 10), 5.5, 0);
    assert_near(dpb_stats_mad(one_to_ten, 10), 2.5, 0);
}

static void test_interval_of_the_mean(void **state)
{
    struct dpb_interval95 ci = dpb_stats_mean_ci95(five, 5);

    (void)state;
    assert_near(dpb_stats_mean(five, 5), 101, 1e-15);
    assert_near(dpb_stats_stdev(five, 5), 7.416198487095663, 1e-14);
    /* 2.7764451 * 7.4161985 / sqrt(5); "1.96 sd" would say 13.0 */
    assert_near(ci.high - 101, 9.208427, 1e-6);
    assert_near(101 - ci.low, 9.208427, 1e-6);
}

static void test_series_against_r(void **state)
{
    (void)state;
    assert_near(dpb_stats_stdev(series, SERIES_COUNT), 1.77011771409, 1e-11);
    assert_near(dpb_stats_quantile(series, SERIES_COUNT, 0.05), 97.57905, 1e-12);
    assert_near(dpb_stats_quantile(series, SERIES_COUNT, 0.25), 98.73775, 1e-12);
    assert_near(dpb_stats_quantile(series, SERIES_COUNT, 0.50), 100.4655, 1e-12);
    assert_near(dpb_stats_quantile(series, SERIES_COUNT, 0.75), 101.581, 1e-12);
    assert_near(dpb_stats_quantile(series, SERIES_COUNT, 0.95), 102.5086, 1e-12);
    assert_near(dpb_stats_quantile(series, SERIES_COUNT, 0.99), 103.92519, 1e-12);
    assert_near(1.4826 * dpb_stats_mad(series, SERIES_COUNT), 1.8910563, 1e-9);
}

static void test_small_and_equal_samples(void **state)
{
    const double equal[] = {5, 5, 5, 5};
    struct dpb_interval95 ci;

    (void)state;
    assert_true(isnan(dpb_stats_mean(equal, 0)));
    assert_true(isnan(dpb_stats_median(equal, 0)));
    assert_true(isnan(dpb_stats_mad(equal, 0)));
    assert_true(isnan(dpb_stats_quantile(equal, 0, 0.5)));
    assert_true(isnan(dpb_stats_quantile(equal, 4, 1.5)));
    assert_true(isnan(dpb_stats_quantile(equal, 4, NAN)));
    assert_true(isnan(dpb_stats_stdev(equal, 1)));
    assert_near(dpb_stats_mean(equal, 1), 5, 0);
    assert_near(dpb_stats_median(equal, 1), 5, 0);
    assert_near(dpb_stats_quantile(equal, 1, 0.99), 5, 0);
    ci = dpb_stats_mean_ci95(equal, 1);
    assert_true(isnan(ci.low) && isnan(ci.high));
    /* quantised timers: no spread at all is a point, not NaN */
    assert_near(dpb_stats_stdev(equal, 4), 0, 0);
    assert_near(dpb_stats_mad(equal, 4), 0, 0);
    ci = dpb_stats_mean_ci95(equal, 4);
    assert_near(ci.low, 5, 0);
    assert_near(ci.high, 5, 0);
}

static void test_tail_quantiles_need_enough_samples(void **state)
{
    double many[1000];
    size_t i;

    (void)state;
    for (i = 0; i < 1000; i++)
        many[i] = (double)i + 1;
    assert_true(isnan(dpb_stats_tail_quantile(many, 19, 0.95)));
    assert_near(dpb_stats_tail_quantile(many, 20, 0.95), 19.05, 1e-14);
    assert_true(isnan(dpb_stats_tail_quantile(many, 19, 0.05)));
    assert_near(dpb_stats_tail_quantile(many, 20, 0.05), 1.95, 1e-14);
    assert_true(isnan(dpb_stats_tail_quantile(many, 99, 0.99)));
    assert_near(dpb_stats_tail_quantile(many, 100, 0.99), 99.01, 1e-14);
    assert_true(isnan(dpb_stats_tail_quantile(many, 999, 0.999)));
    assert_near(dpb_stats_tail_quantile(many, 1000, 0.999), 999.001, 1e-14);
    assert_true(isnan(dpb_stats_tail_quantile(many, 1000, 1.0)));
    assert_near(dpb_stats_tail_quantile(many, 2, 0.5), 1.5, 0);
}

/* Rows "dist,df,x,y" of a vector file; returns the number of rows that `check` was given. */
static int each_row(const char *name,
                    void (*check)(const char *dist, double df, double x, double y))
{
    FILE *file = fopen(name, "r");
    char line[512];
    int rows = 0;

    assert_non_null(file);
    assert_non_null(fgets(line, sizeof(line), file));
    while (fgets(line, sizeof(line), file)) {
        char *rest = line;
        const char *dist = strsep(&rest, ",");
        const char *df = strsep(&rest, ",");
        const char *x = strsep(&rest, ",");

        assert_non_null(rest);
        if (strcmp(dist, "t") != 0 && strcmp(dist, "norm") != 0)
            continue;
        check(dist, strtod(df, NULL), strtod(x, NULL), strtod(rest, NULL));
        rows++;
    }
    fclose(file);
    return rows;
}

static void check_quantile(const char *dist, double df, double p, double expected)
{
    double value = dist[0] == 't' ? dpb_stats_t_quantile(p, df) : dpb_stats_normal_quantile(p);

    /* the file's own t quantiles are off by up to 3e-9; the exact ones are tested below */
    if (!(fabs(value - expected) <= 1e-8 * fabs(expected) + 1e-15))
        fail_msg("%s(%g) quantile of %g: %.17g, expected %.17g", dist, df, p, value, expected);
}

static void check_cdf(const char *dist, double df, double t, double expected)
{
    double value = dpb_stats_t_cdf(t, dist[0] == 't' ? df : INFINITY);

    if (!(fabs(value - expected) <= 1e-12 * fabs(expected)))
        fail_msg("%s(%g) below %g: %.17g, expected %.17g", dist, df, t, value, expected);
}

static void test_vector_files(void **state)
{
    (void)state;
    assert_int_equal(each_row(DPB_TEST_DATA "/quantiles.csv", check_quantile), 272);
    assert_int_equal(each_row(DPB_TEST_DATA "/cdf.csv", check_cdf), 130);
}

static void test_t_quantiles(void **state)
{
    double df, p;

    (void)state;
    assert_near(dpb_stats_t_quantile(0.975, 1), 12.706, 1e-4);
    assert_near(dpb_stats_t_quantile(0.975, 2), 4.303, 1e-4);
    assert_near(dpb_stats_t_quantile(0.975, 4), 2.776, 2e-4);
    assert_near(dpb_stats_t_quantile(0.975, 29), 2.045, 2e-4);
    /* closed forms exist for one, two and four degrees of freedom (Shaw 2006) */
    for (p = 0.5505; p < 1; p += 0.0499) {
        double root = sqrt(4 * p * (1 - p));

        assert_near(dpb_stats_t_quantile(p, 1), tan(M_PI * (p - 0.5)), 1e-12);
        assert_near(dpb_stats_t_quantile(p, 2), (2 * p - 1) * sqrt(2) / root, 1e-12);
        assert_near(dpb_stats_t_quantile(p, 4), 2 * sqrt(cos(acos(root) / 3) / root - 1), 1e-11);
    }
    /* symmetric, and the inverse of the distribution function, up to a million degrees */
    for (df = 0.7; df < 2e6; df *= 3.1) {
        double t = dpb_stats_t_quantile(0.999, df);

        assert_near(dpb_stats_t_quantile(1 - 0.999, df), -t, 1e-11);
        assert_near(dpb_stats_t_cdf(t, df), 0.999, 1e-13);
        assert_near(dpb_stats_t_cdf(-t, df), 1 - 0.999, 1e-10);
    }
    assert_near(dpb_stats_t_quantile(0.975, 1e9), 1.9599639869123253, 1e-14);
    assert_near(dpb_stats_t_quantile(0.975, 1e18), 1.959963984540054, 1e-14);
    assert_near(dpb_stats_t_quantile(0.5, 3), 0, 0);
    assert_true(isinf(dpb_stats_t_quantile(1, 3)) && isinf(dpb_stats_t_quantile(0, 3)));
    assert_true(isnan(dpb_stats_t_quantile(0.5, 0)));
    assert_true(isnan(dpb_stats_t_quantile(0.5, -1)));
    assert_true(isnan(dpb_stats_t_quantile(-0.1, 3)));
    assert_true(isnan(dpb_stats_t_quantile(NAN, 3)));
    assert_true(isnan(dpb_stats_t_cdf(NAN, 3)));
    assert_near(dpb_stats_t_cdf(0, 3), 0.5, 0);
    assert_near(dpb_stats_t_cdf(INFINITY, 3), 1, 0);
    assert_near(dpb_stats_t_cdf(-1e200, 3), 0, 0);
    assert_true(isnan(dpb_stats_normal_quantile(2)));
    assert_near(dpb_stats_normal_quantile(1e-300), -37.0471, 1e-5);
    assert_near(dpb_stats_normal_quantile(0.5), 0, 0);
}

static void test_ranks_of_the_median_interval(void **state)
{
    FILE *file = fopen(DPB_TEST_DATA "/median_ci_ranks.csv", "r");
    double values[128];
    char line[256];
    int rows = 0;
    size_t i;

    (void)state;
    for (i = 0; i < 128; i++)
        values[i] = (double)(128 - i);
    assert_non_null(file);
    while (fgets(line, sizeof(line), file)) {
        unsigned n = 0, lower = 0, upper = 0;
        int found = sscanf(line, "%u,0.95,%u,%u", &n, &lower, &upper);
        struct dpb_interval95 ci;

        if (!strstr(line, ",0.95,"))
            continue;
        rows++;
        /* values[128 - n ..] are n, n - 1, ..., 1: an order statistic is its own rank */
        ci = dpb_stats_median_ci95(values + 128 - n, n);
        if (found < 3) {
            assert_true(isnan(ci.low) && isnan(ci.high));
        } else {
            assert_near(ci.low, lower, 0);
            assert_near(ci.high, upper, 0);
        }
    }
    fclose(file);
    assert_int_equal(rows, 51);
    assert_true(isnan(dpb_stats_median_ci95(values, 0).low));
}

static void test_median_interval_of_many(void **state)
{
    enum {
        MANY = 100000
    };
    double *values = malloc(MANY * sizeof(*values));
    struct dpb_interval95 ci;
    size_t i;

    (void)state;
    assert_non_null(values);
    for (i = 0; i < MANY; i++)
        values[i] = (double)i + 1;
    ci = dpb_stats_median_ci95(values, MANY);
    /* n/2 -+ 1.96 sqrt(n)/2 */
    assert_near(ci.low, 49690, 0);
    assert_near(ci.high, 50311, 0);
    free(values);
}

static void test_interval_of_a_ratio(void **state)
{
    const double a[] = {110, 112, 108, 111, 109}, b[] = {100, 101, 99};
    const double equal_a[] = {4, 4, 4}, equal_b[] = {2, 2}, bad[] = {1, 0, 2}, negative[] = {1, -1};
    struct dpb_interval95 ci = dpb_stats_ratio_ci95(a, 5, b, 3), back;

    (void)state;
    /* Welch's t on the logarithms, df = 5.6732818, t = 2.4814794 by numerical integration */
    assert_near(ci.low, 1.0766112381585768, 1e-11);
    assert_near(ci.high, 1.1237860107713533, 1e-11);
    back = dpb_stats_ratio_ci95(b, 3, a, 5);
    assert_near(back.low, 1 / ci.high, 1e-12);
    assert_near(back.high, 1 / ci.low, 1e-12);
    ci = dpb_stats_ratio_ci95(equal_a, 3, equal_b, 2);
    assert_near(ci.low, 2, 1e-15);
    assert_near(ci.high, 2, 1e-15);
    assert_true(isnan(dpb_stats_ratio_ci95(a, 1, b, 3).low));
    assert_true(isnan(dpb_stats_ratio_ci95(a, 5, b, 1).high));
    assert_true(isnan(dpb_stats_ratio_ci95(bad, 3, b, 3).low));
    assert_true(isnan(dpb_stats_ratio_ci95(a, 5, negative, 2).low));
    /* one side without spread: Welch's degrees are those of the other */
    ci = dpb_stats_ratio_ci95(a, 5, equal_a, 3);
    assert_true(ci.low < 27.5 && ci.high > 27.5 && isfinite(ci.low));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_quantiles_of_one_to_ten),
            cmocka_unit_test(test_interval_of_the_mean),
            cmocka_unit_test(test_series_against_r),
            cmocka_unit_test(test_small_and_equal_samples),
            cmocka_unit_test(test_tail_quantiles_need_enough_samples),
            cmocka_unit_test(test_vector_files),
            cmocka_unit_test(test_t_quantiles),
            cmocka_unit_test(test_ranks_of_the_median_interval),
            cmocka_unit_test(test_median_interval_of_many),
            cmocka_unit_test(test_interval_of_a_ratio),
    };

    return DPB_RUN_TESTS(tests);
}

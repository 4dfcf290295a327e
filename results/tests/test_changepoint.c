/* Change points: every published series, positions within one, the same answer for every seed. */
#include "dpb_test.h"

#include <math.h>

#include "dpb_changepoint.h"
#include "dpb_csv.h"
#include "dpb_json.h"
#include "dpb_log.h"
#include "dpb_rng.h"
#include "dpb_stats.h"
#include "dpb_str.h"

#define SEEDS      20
#define VALUES_MAX 5000

/* A file of one value per line, with or without a byte order mark. */
static size_t read_series(const char *name, double *values)
{
    struct dpb_str path = {0}, text = {0}, table = {0};
    struct dpb_csv csv;
    size_t count;

    dpb_str_appendf(&path, DPB_TEST_DATA "/changepoints/%s.csv", name);
    assert_int_equal(dpb_file_read(path.text, &text), DPB_OK);
    const bool has_mark = memcmp(text.text, "\xef\xbb\xbf", 3) == 0;
    dpb_str_appendf(&table, "value\n%s", text.text + (has_mark ? 3 : 0));
    assert_int_equal(dpb_csv_parse(table.text, table.length, name, &csv), DPB_OK);
    count = csv.rows;
    assert_true(count > 0 && count <= VALUES_MAX);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(dpb_csv_number(&csv, i, 0, &values[i]), DPB_OK);
    dpb_csv_release(&csv);
    dpb_str_release(&path);
    dpb_str_release(&text);
    dpb_str_release(&table);
    return count;
}

static void check_series(const char *name, double least_change, int seeds, const size_t *expected,
                         size_t expected_count)
{
    static double values[VALUES_MAX];
    const size_t count = read_series(name, values);

    for (int seed = 1; seed <= seeds; seed++) {
        struct dpb_changepoint_options options = DPB_CHANGEPOINT_OPTIONS_DEFAULT;
        struct dpb_changepoint *points;
        size_t found;

        options.seed = (uint64_t)seed;
        options.least_change = least_change;
        assert_int_equal(dpb_changepoints_find(values, count, &options, &points, &found), DPB_OK);
        if (found != expected_count)
            fail_msg("%s, seed %d: %zu change points, not %zu", name, seed, found, expected_count);
        for (size_t i = 0; i < found; i++)
            if (points[i].index > expected[i] + 1 || points[i].index + 1 < expected[i])
                fail_msg("%s, seed %d: point %zu is at %zu, not %zu", name, seed, i,
                         points[i].index, expected[i]);
        free(points);
    }
}

#define CHECK(name, change, seeds, ...)                                                            \
    do {                                                                                           \
        const size_t at_[] = {__VA_ARGS__};                                                        \
        check_series(name, change, seeds, at_, sizeof(at_) / sizeof(at_[0]));                      \
    } while (0)

/* Positions: expected.json. Where its sources disagree, what both levels of the data show:
 * mongo_recovery goes back at 30 (its own test says 33 with one seed and nothing with another). */
static void test_published_series(void **state)
{
    (void)state;
    CHECK("mongo_random_ish", 0, SEEDS, 20, 40);
    CHECK("mongo_step", 0, SEEDS, 15);
    CHECK("mongo_ahead", 0, SEEDS, 15);
    CHECK("mongo_behind", 0, SEEDS, 14);
    CHECK("mongo_step_outlier", 0, SEEDS, 15);
    CHECK("mongo_recovery", 0, SEEDS, 15, 30);
    CHECK("mongo_two", 0, SEEDS, 15, 30);
    CHECK("mongo_robust", 0, 5, 25, 64, 70, 114);
    CHECK("mongo_small", 0, 2, 25, 64, 70, 114, 173, 198, 237, 243, 287);
    CHECK("mongo_medium", 0, 1, 25, 64, 70, 114, 173, 198, 237, 243, 287, 346, 371, 410, 416, 460);
    CHECK("mongo_long", 0, 1, 205, 395, 594, 794);
    CHECK("otava_single", 0, SEEDS, 10);
    CHECK("otava_series_1", 0, SEEDS, 6);
    CHECK("otava_series_2", 0, SEEDS, 4);
}

/* A dip of one commit, at 10, is no change. */
static void test_tigerbeetle(void **state)
{
    (void)state;
    CHECK("tigerbeetle", 0.05, 3, 15, 71);
}

/* Of 14 values the 9 after the first change have 84 orders of 3 and 6: p by permutation is never
 * below 0.01, and Student's t decides. */
static void test_short_series(void **state)
{
    (void)state;
    CHECK("otava_sequence", 0, SEEDS, 5, 8);
    CHECK("otava_append_s2", 0, SEEDS, 4, 12);
    CHECK("otava_div0", 0, SEEDS, 3, 6);
}

/* The pattern of mongo_small again and again, of 346 or 173 values: a change of one repetition is
 * one of all. */
static void test_long_series(void **state)
{
    static const size_t of_one[] = {25, 64, 70, 114, 173};
    size_t expected[160], count = 0;

    (void)state;
    for (size_t start = 0; start < 4844; start += 173)
        for (size_t k = 0; k < 5; k++)
            expected[count++] = start + of_one[k];
    check_series("mongo_large", 0, 1, expected, 7 * 5 - 1);
    check_series("mongo_very_large", 0, 1, expected, 14 * 5 - 1);
    check_series("mongo_huge", 0, 1, expected, count - 1);
}

static void test_series_without_change_are_quiet(void **state)
{
    static const char *const names[] = {"mongo_flat", "mongo_short", "mongo_real"};

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        check_series(names[i], 0, SEEDS, NULL, 0);
}

/* Share of 100 series of 50 values without a change in which one is found. */
static double false_share(double rho)
{
    int hits = 0;

    for (int r = 0; r < 100; r++) {
        struct dpb_changepoint_options options = DPB_CHANGEPOINT_OPTIONS_DEFAULT;
        struct dpb_changepoint *points;
        struct dpb_rng rng;
        size_t found;
        double values[50], noise = 0;

        dpb_rng_init(&rng, (uint64_t)r, 9);
        for (int i = 0; i < 50; i++) {
            noise = rho * noise + sqrt(1 - rho * rho) * dpb_rng_normal(&rng);
            values[i] = 100 + noise;
        }
        options.seed = (uint64_t)r;
        assert_int_equal(dpb_changepoints_find(values, 50, &options, &points, &found), DPB_OK);
        hits += found > 0;
        free(points);
    }
    return hits / 100.0;
}

/* Otava's default rule, nominally 0.001, finds one in 0.035 and 0.57 of them. */
static void test_noise_is_no_change(void **state)
{
    (void)state;
    assert_true(false_share(0) <= 0.04);
    assert_true(false_share(0.6) <= 0.45);
}

static void test_confirmation_and_levels(void **state)
{
    struct dpb_changepoint_options options = DPB_CHANGEPOINT_OPTIONS_DEFAULT;
    struct dpb_changepoint *points;
    double values[40];
    size_t found;

    (void)state;
    for (int i = 0; i < 40; i++)
        values[i] = (i < 37 ? 100 : 110) + 0.01 * (i % 3);
    assert_int_equal(dpb_changepoints_find(values, 40, &options, &points, &found), DPB_OK);
    assert_int_equal(found, 1);
    assert_int_equal(points[0].index, 37);
    assert_false(points[0].is_confirmed); /* 38 and 39 follow */
    assert_true(fabs(points[0].change - 0.1) < 1e-3);
    free(points);
    options.confirm = 2;
    assert_int_equal(dpb_changepoints_find(values, 40, &options, &points, &found), DPB_OK);
    assert_true(points[0].is_confirmed);
    free(points);
}

static void ignore_line(void *ctx, enum dpb_log_level level, const char *line)
{
    (void)ctx, (void)level, (void)line;
}

static void test_bad_input(void **state)
{
    struct dpb_changepoint_options options = DPB_CHANGEPOINT_OPTIONS_DEFAULT;
    const double broken[] = {1, 2, NAN, 3};
    struct dpb_changepoint *points;
    size_t found;

    (void)state;
    dpb_log_set_sink(ignore_line, NULL);
    assert_int_equal(dpb_changepoints_find(broken, 4, &options, &points, &found), DPB_ERR_CORRUPT);
    options.window = 5;
    assert_int_equal(dpb_changepoints_find(broken, 2, &options, &points, &found), DPB_ERR_USAGE);
    options.window = 100;
    assert_int_equal(dpb_changepoints_find(broken, 0, &options, &points, &found), DPB_OK);
    assert_int_equal(found, 0);
    assert_null(points);
    dpb_log_set_sink(NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_published_series),
            cmocka_unit_test(test_tigerbeetle),
            cmocka_unit_test(test_short_series),
            cmocka_unit_test(test_long_series),
            cmocka_unit_test(test_series_without_change_are_quiet),
            cmocka_unit_test(test_noise_is_no_change),
            cmocka_unit_test(test_confirmation_and_levels),
            cmocka_unit_test(test_bad_input),
    };
    return DPB_RUN_TESTS(tests);
}

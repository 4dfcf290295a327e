#include "dpb_test.h"

#include <math.h>
#include <string.h>

#include "dpb_json.h"
#include "dpb_timeline.h"

#define RELATIVE  1e-12
#define CASES_MAX 16

/* ---- the cases of a reference simulator: data/README.md ---- */

struct cases {
    dpb_json *of[CASES_MAX];
    int count;
};

static struct cases cases_read(void)
{
    struct cases cases = {.count = 0};
    FILE *file = fopen(TEST_DATA "/overlap_cases.jsonl", "r");
    char line[4096];

    assert_non_null(file);
    while (fgets(line, sizeof(line), file)) {
        assert_true(cases.count < CASES_MAX);
        assert_int_equal(dpb_json_parse(line, strlen(line), &cases.of[cases.count++], NULL),
                         DPB_OK);
    }
    fclose(file);
    assert_true(cases.count > 0);
    return cases;
}

static void cases_free(struct cases *cases)
{
    for (int i = 0; i < cases->count; i++)
        dpb_json_free(cases->of[i]);
}

static double number(const dpb_json *object, const char *key, double otherwise)
{
    return dpb_json_as_real(dpb_json_get(object, key), otherwise);
}

static double item(const dpb_json *object, const char *key, int index)
{
    return dpb_json_as_real(dpb_json_at(dpb_json_get(object, key), (size_t)index), NAN);
}

static void assert_near(double found, double expected, const char *name, const char *what)
{
    if (!(fabs(found - expected) <= RELATIVE * fmax(1, fabs(expected))))
        fail_msg("%s: %s is %.15g, not %.15g", name, what, found, expected);
}

/* The segment after which a bucket is complete. */
static int last_segment(const dpb_json *input, int segments, int bucket)
{
    int last = -1;

    for (int i = 0; i < segments; i++)
        if ((int)item(input, "seg_bucket", i) == bucket)
            last = i;
    return last;
}

static dpb_timeline *timeline_of(struct dpb_timeline_config config)
{
    dpb_timeline *timeline = NULL;

    config.ranks = config.ranks ? config.ranks : 1;
    assert_int_equal(dpb_timeline_new(&config, &timeline), DPB_OK);
    return timeline;
}

/* One step of DDP: buckets start in their order, when they and those before are complete. */
static void run_case(const dpb_json *one, int ranks)
{
    const char *name = dpb_json_as_string(dpb_json_get(one, "name"), "?");
    const dpb_json *input = dpb_json_get(one, "input"), *expected = dpb_json_get(one, "expected");
    const int segments = (int)dpb_json_size(dpb_json_get(input, "d"));
    const int buckets = (int)dpb_json_size(dpb_json_get(input, "c"));
    const bool overlap = dpb_json_as_bool(dpb_json_get(input, "overlap"), true);
    dpb_timeline *timeline = timeline_of((struct dpb_timeline_config){.ranks = ranks});
    struct dpb_timeline_span span = {0, 0};
    int64_t transfer[CASES_MAX];
    int next = 0;

    dpb_timeline_compute(timeline, number(input, "F", 0), &span);
    for (int i = 0; i < segments; i++) {
        dpb_timeline_compute(timeline, item(input, "d", i), &span);
        while (next < buckets && (overlap || i == segments - 1) &&
               last_segment(input, segments, next) <= i) {
            transfer[next] = dpb_timeline_transfer(
                    timeline, &(struct dpb_timeline_transfer){
                                      .alone_ns = item(input, "c", next),
                                      .compute_slowdown = number(input, "sigma_c", 0),
                                      .slowdown = number(input, "sigma_m", 0),
                              });
            next++;
        }
    }
    assert_int_equal(next, buckets);
    assert_near(span.end_ns, number(expected, "backward_end", NAN), name, "backward_end");
    for (int b = 0; b < buckets; b++) {
        struct dpb_timeline_transfer_times times;
        dpb_timeline_wait(timeline, transfer[b]);
        dpb_timeline_transfer_times(timeline, transfer[b], &times);
        assert_near(times.start_ns, item(expected, "bucket_start", b), name, "bucket_start");
        assert_near(times.end_ns, item(expected, "bucket_end", b), name, "bucket_end");
    }
    dpb_timeline_compute(timeline, number(input, "opt", 0), NULL);
    assert_near(dpb_timeline_watched_ns(timeline), number(expected, "step", NAN), name, "step");
    dpb_timeline_free(timeline);
}

static void test_reference_cases(void **state)
{
    struct cases cases = cases_read();

    (void)state;
    assert_int_equal(cases.count, 11);
    for (int i = 0; i < cases.count; i++) {
        run_case(cases.of[i], 1);
        run_case(cases.of[i], 3);
    }
    cases_free(&cases);
}

/* ---- several ranks ---- */

static void test_transfer_begins_when_the_last_rank_is_ready(void **state)
{
    dpb_timeline *timeline = timeline_of(
            (struct dpb_timeline_config){.ranks = 4, .noise = {.slow_ranks = 1, .slow_by = 0.5}});
    struct dpb_timeline_transfer_times times;

    (void)state;
    dpb_timeline_step_begin(timeline, 1);
    dpb_timeline_compute(timeline, 100, NULL);
    const int64_t transfer =
            dpb_timeline_transfer(timeline, &(struct dpb_timeline_transfer){.alone_ns = 10});
    dpb_timeline_wait(timeline, transfer);
    dpb_timeline_transfer_times(timeline, transfer, &times);
    assert_near(times.ready_ns, 100, "slow rank", "rank 0 is ready");
    assert_near(times.start_ns, 150, "slow rank", "start");
    assert_near(times.end_ns, 160, "slow rank", "end");
    for (int r = 0; r < 4; r++)
        assert_near(dpb_timeline_rank_ns(timeline, r), 160, "slow rank", "clock");
    dpb_timeline_free(timeline);
}

static void test_waiting_twice_and_late_changes_nothing(void **state)
{
    dpb_timeline *timeline = timeline_of((struct dpb_timeline_config){.ranks = 2});
    const struct dpb_timeline_transfer ten = {.alone_ns = 10};

    (void)state;
    const int64_t transfer = dpb_timeline_transfer(timeline, &ten);
    dpb_timeline_compute(timeline, 50, NULL);
    dpb_timeline_wait(timeline, transfer);
    dpb_timeline_wait(timeline, transfer);
    assert_near(dpb_timeline_watched_ns(timeline), 50, "hidden transfer", "clock");
    assert_true(dpb_timeline_has_ended(timeline, transfer, 10));
    assert_false(dpb_timeline_has_ended(timeline, transfer, 9));
    dpb_timeline_free(timeline);
}

static void test_end_is_foreseen_before_anybody_waits(void **state)
{
    dpb_timeline *timeline = timeline_of((struct dpb_timeline_config){.ranks = 2});
    const struct dpb_timeline_transfer ten = {.alone_ns = 10};

    (void)state;
    dpb_timeline_compute(timeline, 5, NULL);
    dpb_timeline_transfer(timeline, &ten);
    const int64_t second = dpb_timeline_transfer(timeline, &ten);
    assert_false(dpb_timeline_has_ended(timeline, second, 24));
    assert_true(dpb_timeline_has_ended(timeline, second, 25));
    dpb_timeline_compute(timeline, 12, NULL); /* the first has ended, the second is under way */
    assert_false(dpb_timeline_has_ended(timeline, second, 24));
    assert_true(dpb_timeline_has_ended(timeline, second, 25));
    dpb_timeline_free(timeline);
}

static void test_host_that_launches_slower_than_the_device_computes(void **state)
{
    dpb_timeline *timeline = timeline_of((struct dpb_timeline_config){.ranks = 2, .launch_ns = 8});

    (void)state;
    for (int i = 0; i < 10; i++)
        dpb_timeline_compute(timeline, 3, NULL);
    assert_near(dpb_timeline_watched_ns(timeline), 83, "launch bound", "clock");
    dpb_timeline_free(timeline);

    timeline = timeline_of((struct dpb_timeline_config){.ranks = 2, .launch_ns = 8});
    for (int i = 0; i < 10; i++)
        dpb_timeline_compute(timeline, 30, NULL);
    assert_near(dpb_timeline_watched_ns(timeline), 308, "device bound", "clock");
    dpb_timeline_free(timeline);

    timeline = timeline_of(
            (struct dpb_timeline_config){.ranks = 2, .launch_ns = 8, .in_thread = true});
    for (int i = 0; i < 10; i++)
        dpb_timeline_compute(timeline, 30, NULL);
    assert_near(dpb_timeline_watched_ns(timeline), 380, "in the caller's thread", "clock");
    dpb_timeline_free(timeline);
}

/* ---- noise ---- */

/* Mean time of the slowest of `ranks` over many steps of 1000 ns, less 1000. */
static double mean_delay(struct dpb_timeline_config config, int steps)
{
    dpb_timeline *timeline = timeline_of(config);

    for (int s = 1; s <= steps; s++) {
        dpb_timeline_step_begin(timeline, s);
        dpb_timeline_compute(timeline, 1000, NULL);
        dpb_timeline_align(timeline);
    }
    const double mean = dpb_timeline_watched_ns(timeline) / steps - 1000;
    dpb_timeline_free(timeline);
    return mean;
}

static void test_expected_maximum_of_normal_noise(void **state)
{
    /* Mean of the largest of n standard normals, integrated numerically (Tippett 1925 has tables).
     */
    const struct {
        int ranks;
        double expected;
    } known[] = {{8, 1.42360}, {64, 2.34373}, {512, 3.04390}};

    (void)state;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        const double found = mean_delay((struct dpb_timeline_config){.ranks = known[i].ranks,
                                                                     .seed = 7,
                                                                     .noise = {.rank_sd = 0.01}},
                                        4000) /
                             10;
        /* its standard deviation is below 0.6, so 0.04 is four errors of the mean of 4000 */
        if (!(fabs(found - known[i].expected) < 0.04))
            fail_msg("%d ranks: %.4f, not %.4f", known[i].ranks, found, known[i].expected);
    }
}

static void test_common_noise_does_not_grow_with_ranks(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 256; ranks *= 16) {
        const double found = mean_delay((struct dpb_timeline_config){.ranks = ranks,
                                                                     .seed = 3,
                                                                     .noise = {.common_sd = 0.01}},
                                        4000);
        if (!(fabs(found) < 0.64)) /* four errors of a mean of 4000 */
            fail_msg("%d ranks: %.3f ns later on average", ranks, found);
    }
}

static void test_rare_delays_matter_at_scale(void **state)
{
    const struct dpb_timeline_noise tail = {.tail_share = 0.001, .tail_mean = 0.15};
    /* E of the maximum: the sum over k of P(k of n) 150 H_k, H_k the harmonic numbers. */
    const int ranks = 512;
    double expected = 0, harmonic = 0, probability = pow(1 - tail.tail_share, ranks);

    (void)state;
    for (int k = 1; k <= 20; k++) {
        probability *= (double)(ranks - k + 1) / k * tail.tail_share / (1 - tail.tail_share);
        harmonic += 1.0 / k;
        expected += probability * 150 * harmonic;
    }
    const double found = mean_delay(
            (struct dpb_timeline_config){.ranks = ranks, .seed = 11, .noise = tail}, 4000);
    if (!(fabs(found - expected) < 8)) /* its deviation is some 120: four errors of the mean */
        fail_msg("%.2f ns, not %.2f", found, expected);
}

static void test_same_seed_same_times(void **state)
{
    const struct dpb_timeline_config config = {
            .ranks = 33,
            .seed = 5,
            .noise = {.rank_sd = 0.02, .common_sd = 0.01, .tail_share = 0.1, .tail_mean = 0.3}};
    struct dpb_timeline_config other = config;

    (void)state;
    other.seed = 6;
    const double once = mean_delay(config, 50);
    assert_true(once == mean_delay(config, 50));
    assert_true(once != mean_delay(other, 50));
}

static void test_transfers_that_fell_out_have_ended(void **state)
{
    const struct dpb_timeline_transfer one = {.alone_ns = 10};
    dpb_timeline *timeline;
    struct dpb_timeline_transfer_times times;

    (void)state;
    assert_int_equal(dpb_timeline_new(&(struct dpb_timeline_config){.ranks = 2}, &timeline),
                     DPB_OK);
    const int64_t first = dpb_timeline_transfer(timeline, &one);
    for (int i = 0; i < DPB_TIMELINE_TRANSFERS_KEPT + 4; i++)
        dpb_timeline_transfer(timeline, &one);
    /* 4101 were started, 5 are gone: they ended by 50 ns, and not when the last ones did. */
    assert_true(dpb_timeline_has_ended(timeline, first, 50));
    assert_near(dpb_timeline_finish(timeline, first), 50, "first", "end");
    dpb_timeline_transfer_times(timeline, first, &times);
    assert_near(times.end_ns, 50, "first", "end");
    assert_near(dpb_timeline_finish(timeline, first + 5), 60, "the oldest kept", "end");
    dpb_timeline_wait(timeline, first);
    assert_near(dpb_timeline_last_ns(timeline), 50, "a wait for it", "end");
    dpb_timeline_free(timeline);
}

/* Ranks that are alike are kept as one: a slow rank that is not slower keeps them apart. */
static double some_steps(int slow_ranks, double common_sd, bool in_thread)
{
    const struct dpb_timeline_config config = {
            .ranks = 48,
            .watched = 17,
            .seed = 3,
            .noise = {.common_sd = common_sd, .slow_ranks = slow_ranks},
            .launch_ns = 700,
            .in_thread = in_thread,
    };
    dpb_timeline *timeline;
    double sum_ns;

    assert_int_equal(dpb_timeline_new(&config, &timeline), DPB_OK);
    for (int step = 1; step <= 5; step++) {
        dpb_timeline_step_begin(timeline, step);
        for (int op = 0; op < 6; op++) {
            dpb_timeline_compute(timeline, 1000 * op, NULL);
            const int64_t transfer = dpb_timeline_transfer(
                    timeline, &(struct dpb_timeline_transfer){3000, 0.2, 0.1, 0});
            dpb_timeline_compute(timeline, 2500, NULL);
            if (op % 2)
                dpb_timeline_wait(timeline, transfer);
        }
        dpb_timeline_host_wait_compute(timeline);
        dpb_timeline_host_until(timeline, dpb_timeline_host_ns(timeline) + 10);
        dpb_timeline_align(timeline);
    }
    assert_int_equal(dpb_timeline_ranks(timeline), 48);
    sum_ns = dpb_timeline_last_ns(timeline) + 2 * dpb_timeline_mean_ns(timeline) +
             4 * dpb_timeline_watched_ns(timeline) + 8 * dpb_timeline_rank_ns(timeline, 47) +
             16 * dpb_timeline_host_ns(timeline) + 32 * dpb_timeline_busy_ns(timeline) +
             64 * dpb_timeline_alone_ns(timeline);
    dpb_timeline_free(timeline);
    return sum_ns;
}

static void test_ranks_that_are_alike_are_one(void **state)
{
    (void)state;
    for (int in_thread = 0; in_thread < 2; in_thread++) {
        for (double common_sd = 0; common_sd < 0.1; common_sd += 0.05) {
            const double one = some_steps(0, common_sd, in_thread);
            const double apart = some_steps(1, common_sd, in_thread);
            if (!(fabs(one / apart - 1) < 1e-12))
                fail_msg("%.17g and %.17g", one, apart);
        }
    }
}

static void test_refuses_what_makes_no_sense(void **state)
{
    const struct dpb_timeline_config bad[] = {
            {.ranks = 0},
            {.ranks = 2, .watched = 2},
            {.ranks = 2, .launch_ns = -1},
            {.ranks = 2, .noise = {.rank_sd = NAN}},
            {.ranks = 2, .noise = {.tail_share = 1.5}},
            {.ranks = 2, .noise = {.slow_ranks = 3}},
    };
    dpb_timeline *timeline = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(dpb_timeline_new(&bad[i], &timeline), DPB_ERR_USAGE);
    assert_null(timeline);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_reference_cases),
            cmocka_unit_test(test_transfer_begins_when_the_last_rank_is_ready),
            cmocka_unit_test(test_waiting_twice_and_late_changes_nothing),
            cmocka_unit_test(test_end_is_foreseen_before_anybody_waits),
            cmocka_unit_test(test_host_that_launches_slower_than_the_device_computes),
            cmocka_unit_test(test_expected_maximum_of_normal_noise),
            cmocka_unit_test(test_common_noise_does_not_grow_with_ranks),
            cmocka_unit_test(test_rare_delays_matter_at_scale),
            cmocka_unit_test(test_same_seed_same_times),
            cmocka_unit_test(test_transfers_that_fell_out_have_ended),
            cmocka_unit_test(test_ranks_that_are_alike_are_one),
            cmocka_unit_test(test_refuses_what_makes_no_sense),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* How a plan of capacity chooses; every table was worked out by hand. */
#include "dpb_test.h"

#include <math.h>

#include "dpb_capacity_plan.h"

#define HOUR 3600.0

/* machine, accelerators, hours, cost, efficiency, p99 in ms, does it fit */
static struct dpb_capacity_option option(int machine, int accelerators, double hours, double cost,
                                         double efficiency, double p99_ms, bool fits)
{
    return (struct dpb_capacity_option){
            .machine = machine ? "new" : "old",
            .strategy = "ddp",
            .bucket = "25MiB",
            .settings = "",
            .machine_index = machine,
            .accelerators = accelerators,
            .step_ns = 100,
            .wall_s = hours * HOUR,
            .cost = cost,
            .efficiency = efficiency,
            .p99_ns = p99_ms * 1e6,
            .fits = fits,
            .loss_ns = {10, 20, 5, 1},
    };
}

/* 8 to 64 of one machine: each doubling is less than twice as fast. */
static struct dpb_capacity_option four[4];

static int make_four(void **state)
{
    (void)state;
    four[0] = option(0, 8, 80, 640, 1.0, 10, true);
    four[1] = option(0, 16, 42, 672, 0.95, 11, true);
    four[2] = option(0, 32, 24, 768, 0.83, 13, true);
    four[3] = option(0, 64, 16, 1024, 0.62, 17, true);
    return 0;
}

static struct dpb_capacity_answer answer(const struct dpb_capacity_option *options, size_t count,
                                         double deadline_h, double budget, double efficiency,
                                         double p99_ms)
{
    const double target[DPB_TARGET_COUNT] = {deadline_h * HOUR, budget, efficiency, p99_ms * 1e6};
    struct dpb_capacity_answer made;

    dpb_capacity_answer(options, count, target, &made);
    return made;
}

static void test_deadline_takes_the_cheapest(void **state)
{
    (void)state;
    struct dpb_capacity_answer a = answer(four, 4, 30, NAN, NAN, NAN);
    assert_true(a.is_met);
    assert_int_equal(a.option, 2);
    assert_true(a.missed[DPB_TARGET_DEADLINE] == 0);
    assert_true(isnan(a.missed[DPB_TARGET_BUDGET]));
    /* just met */
    assert_int_equal(answer(four, 4, 42, NAN, NAN, NAN).option, 1);
    /* a cheaper machine that is in time as well */
    struct dpb_capacity_option five[5] = {four[0], four[1], four[2], four[3],
                                          option(1, 64, 29, 700, 0.9, 12, true)};
    assert_int_equal(answer(five, 5, 30, NAN, NAN, NAN).option, 4);
}

static void test_of_equal_costs_the_fewest(void **state)
{
    struct dpb_capacity_option some[3] = {option(0, 8, 80, 1010, 1, 1, true),
                                          option(0, 16, 42, 1000, 1, 1, true),
                                          option(0, 32, 24, 1001, 1, 1, true)};

    (void)state;
    assert_int_equal(answer(some, 3, 100, NAN, NAN, NAN).option, 0); /* 1 % more */
    assert_int_equal(answer(some, 3, 50, NAN, NAN, NAN).option, 1);
    some[0].cost = 1030;
    assert_int_equal(answer(some, 3, 100, NAN, NAN, NAN).option, 1);
    assert_int_equal(answer(some, 3, NAN, 2000, NAN, NAN).option, 2); /* the fastest */
}

static void test_without_deadline_takes_the_fastest(void **state)
{
    (void)state;
    assert_int_equal(answer(four, 4, NAN, NAN, 0.8, NAN).option, 2);
    assert_int_equal(answer(four, 4, NAN, 700, NAN, NAN).option, 1);
    assert_int_equal(answer(four, 4, NAN, NAN, NAN, 10.5).option, 0);
}

static void test_without_prices_takes_the_fewest(void **state)
{
    struct dpb_capacity_option unpriced[4];

    (void)state;
    for (int i = 0; i < 4; i++) {
        unpriced[i] = four[i];
        unpriced[i].cost = NAN;
    }
    assert_int_equal(answer(unpriced, 4, 50, NAN, NAN, NAN).option, 1);
    /* no cost meets no budget */
    struct dpb_capacity_answer a = answer(unpriced, 4, 50, 1e9, NAN, NAN);
    assert_false(a.is_met);
    assert_true(isinf(a.missed[DPB_TARGET_BUDGET]));
    assert_int_equal(a.best_for[DPB_TARGET_BUDGET], -1);
}

static void test_nothing_meets(void **state)
{
    (void)state;
    /* Deadline 20 h, budget 700: the largest misses are 300 % with 8,
     * 110 % with 16, 20 % with 32 (9.7 % over budget, too), 46 % with 64. */
    struct dpb_capacity_answer a = answer(four, 4, 20, 700, NAN, NAN);
    assert_false(a.is_met);
    assert_int_equal(a.option, 2);
    assert_true(fabs(a.missed[DPB_TARGET_DEADLINE] - 0.2) < 1e-12);
    assert_true(fabs(a.missed[DPB_TARGET_BUDGET] - 68.0 / 700) < 1e-12);
    assert_int_equal(a.best_for[DPB_TARGET_DEADLINE], 3);
    assert_int_equal(a.best_for[DPB_TARGET_BUDGET], 0);
    assert_int_equal(a.best_for[DPB_TARGET_EFFICIENCY], 0);
    /* efficiency misses as wanted / reached - 1 */
    a = answer(four, 4, 20, NAN, 0.93, NAN);
    assert_int_equal(a.option, 2);
    assert_true(fabs(a.missed[DPB_TARGET_EFFICIENCY] - (0.93 / 0.83 - 1)) < 1e-12);
}

static void test_only_what_fits_answers(void **state)
{
    struct dpb_capacity_option some[4] = {four[0], four[1], four[2], four[3]};

    (void)state;
    some[2].fits = false;
    assert_int_equal(answer(some, 4, 30, NAN, NAN, NAN).option, 3);
    for (int i = 0; i < 4; i++)
        some[i].fits = false;
    const struct dpb_capacity_answer a = answer(some, 4, 30, NAN, NAN, NAN);
    assert_int_equal(a.option, -1);
    assert_false(a.is_met);
    assert_string_equal(a.strain.what, "memory");
}

static void test_what_gives_way(void **state)
{
    struct dpb_capacity_option some[4] = {four[0], four[1], four[2], four[3]};

    (void)state;
    /* efficiency 0.62 at 64: what takes most there */
    struct dpb_capacity_answer a = answer(four, 4, NAN, NAN, 0.8, NAN);
    assert_string_equal(a.strain.what, "network bandwidth");
    assert_int_equal(a.strain.option, 3);
    assert_true(a.strain.is_limit);
    assert_true(fabs(a.strain.share - 0.2) < 1e-12);
    some[3].loss_ns[DPB_LOSS_STRAGGLERS] = 30;
    assert_string_equal(answer(some, 4, NAN, NAN, 0.8, NAN).strain.what, "stragglers");
    some[3].loss_ns[DPB_LOSS_LATENCY] = 40;
    assert_string_equal(answer(some, 4, NAN, NAN, 0.8, NAN).strain.what, "network latency");
    some[3].loss_ns[DPB_LOSS_SMALL_BATCH] = 50;
    assert_string_equal(answer(some, 4, NAN, NAN, 0.8, NAN).strain.what,
                        "a batch per accelerator that is too small");
    a = answer(four, 4, 50, 700, NAN, NAN);
    assert_int_equal(a.option, 1);
    assert_string_equal(a.strain.what, "budget");
    assert_int_equal(a.strain.option, 2);
    some[2].fits = false;
    assert_string_equal(answer(some, 4, 50, 700, NAN, NAN).strain.what, "memory");
    /* nothing does up to the largest */
    a = answer(four, 4, 50, NAN, NAN, NAN);
    assert_false(a.strain.is_limit);
    assert_int_equal(a.strain.option, 3);
    /* of another machine nothing is said */
    struct dpb_capacity_option other[2] = {four[1], option(1, 512, 1, 5000, 0.1, 50, true)};
    assert_int_equal(answer(other, 2, 50, 700, NAN, NAN).strain.option, 0);
}

static void test_front(void **state)
{
    struct dpb_capacity_option some[6] = {four[0],
                                          four[1],
                                          four[2],
                                          four[3],
                                          option(1, 8, 50, 680, 1, 1, true), /* 16 beats it */
                                          option(1, 16, 10, 100, 1, 1, false) /* does not fit */};

    (void)state;
    for (size_t i = 0; i < 4; i++)
        assert_true(dpb_capacity_is_on_front(some, 6, i));
    assert_false(dpb_capacity_is_on_front(some, 6, 4));
    assert_false(dpb_capacity_is_on_front(some, 6, 5));
    some[4].wall_s = 41 * HOUR; /* now it is faster than 16 */
    assert_true(dpb_capacity_is_on_front(some, 6, 4));
}

static void test_json_has_reasons(void **state)
{
    struct dpb_capacity_option one = four[0];

    (void)state;
    one.cost = NAN;
    one.energy_kwh = 12.5;
    one.checkpoint_interval_s = INFINITY;
    dpb_json *json = dpb_capacity_option_json(&one, true);
    assert_true(dpb_json_ok(json));
    assert_int_equal(dpb_json_type(dpb_json_get(json, "cost")), DPB_JSON_NULL);
    assert_true(dpb_json_as_string(dpb_json_get(json, "cost_reason"), NULL) != NULL);
    assert_true(dpb_json_as_real(dpb_json_get(json, "energy_kwh"), 0) == 12.5);
    assert_true(dpb_json_as_real(dpb_json_path(json, "breakdown/bandwidth_ns"), 0) == 20);
    assert_true(dpb_json_as_bool(dpb_json_get(json, "on_pareto_front"), false));
    dpb_json_free(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_deadline_takes_the_cheapest),
            cmocka_unit_test(test_of_equal_costs_the_fewest),
            cmocka_unit_test(test_without_deadline_takes_the_fastest),
            cmocka_unit_test(test_without_prices_takes_the_fewest),
            cmocka_unit_test(test_nothing_meets),
            cmocka_unit_test(test_only_what_fits_answers),
            cmocka_unit_test(test_what_gives_way),
            cmocka_unit_test(test_front),
            cmocka_unit_test(test_json_has_reasons),
    };
    return cmocka_run_group_tests(tests, make_four, NULL);
}

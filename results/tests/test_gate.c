#include "dpb_test.h"

#include <math.h>

#include "dpb_gate.h"
#include "dpb_json.h"
#include "dpb_rng.h"
#include "dpb_stats.h"

#define RUNS_MAX  32
#define STEPS_MAX 512

/* ---- data/gate_cases.jsonl ---- */

struct side {
    double theta[RUNS_MAX];
    size_t count;
    bool is_valid;
};

static double real(const dpb_json *object, const char *key, double otherwise)
{
    return dpb_json_as_real(dpb_json_get(object, key), otherwise);
}

static struct side side_of(const dpb_json *runs, enum dpb_run_statistic statistic)
{
    struct side side = {.count = dpb_json_size(runs), .is_valid = true};

    assert_true(side.count <= RUNS_MAX);
    for (size_t r = 0; r < side.count; r++) {
        const dpb_json *run = dpb_json_at(runs, r);
        const size_t steps = dpb_json_size(run);
        double values[STEPS_MAX];
        char why[128];

        assert_true(steps <= STEPS_MAX);
        for (size_t s = 0; s < steps; s++)
            values[s] = dpb_json_as_real(dpb_json_at(run, s), NAN);
        side.is_valid = dpb_gate_run(values, steps, dpb_gate_warmup(steps), statistic,
                                     &side.theta[r], why, sizeof(why)) == DPB_OK &&
                        side.is_valid;
    }
    return side;
}

static enum dpb_run_statistic statistic_of(const char *name)
{
    for (int s = 0; s <= DPB_RUN_P95; s++)
        if (strcmp(name, dpb_run_statistic_text(s)) == 0)
            return s;
    fail_msg("no statistic %s", name);
    return DPB_RUN_MEDIAN;
}

static void assert_as(const char *name, const dpb_json *expected, const char *key, double found)
{
    const double value = real(expected, key, NAN);

    if (isnan(value))
        return;
    if (!(fabs(found - value) <= 1e-9 * fmax(1, fabs(value))))
        fail_msg("%s: %s is %.12g, not %.12g", name, key, found, value);
}

static void run_case(const dpb_json *one)
{
    const char *name = dpb_json_as_string(dpb_json_get(one, "name"), "?");
    const dpb_json *options = dpb_json_get(one, "opts"), *expected = dpb_json_get(one, "expected");
    const char *verdict = dpb_json_as_string(dpb_json_get(expected, "verdict"), "?");
    const enum dpb_run_statistic statistic =
            statistic_of(dpb_json_as_string(dpb_json_get(options, "stat"), "median"));
    const struct side base = side_of(dpb_json_get(one, "base"), statistic);
    const struct side candidate = side_of(dpb_json_get(one, "cand"), statistic);
    struct dpb_gate_rule rule = DPB_GATE_RULE_DEFAULT;
    struct dpb_gate_result result;

    rule.margin = real(options, "margin", rule.margin);
    if (!base.is_valid || !candidate.is_valid) {
        assert_string_equal(verdict, "ERROR");
        return;
    }
    dpb_gate_decide(base.theta, base.count, candidate.theta, candidate.count, &rule, &result);
    if (strcmp(dpb_verdict_text(result.verdict), verdict) != 0)
        fail_msg("%s: %s, not %s", name, dpb_verdict_text(result.verdict), verdict);
    assert_as(name, expected, "log_ratio", result.difference);
    assert_as(name, expected, "ratio", result.ratio);
    assert_as(name, expected, "se", result.se);
    assert_as(name, expected, "df", result.df);
    assert_as(name, expected, "p_worse_than_margin", result.p_worse);
    assert_as(name, expected, "p_within_margin", result.p_fine);
    assert_as(name, expected, "perm_p_slower", result.p_permutation);
    assert_as(name, expected, "mde80", result.mde);
}

static void test_reference_cases(void **state)
{
    FILE *file = fopen(DPB_TEST_DATA "/gate_cases.jsonl", "r");
    char *line = NULL;
    size_t room = 0;
    int count = 0;

    (void)state;
    assert_non_null(file);
    while (getline(&line, &room, file) > 0) {
        dpb_json *one;
        assert_int_equal(dpb_json_parse(line, strlen(line), &one, NULL), DPB_OK);
        run_case(one);
        dpb_json_free(one);
        count++;
    }
    free(line);
    fclose(file);
    assert_int_equal(count, 16);
}

/* ---- p values of many metrics ---- */

static void test_adjusted_p(void **state)
{
    dpb_json *vectors;
    double p[16], holm[16], bh[16];

    (void)state;
    assert_int_equal(dpb_json_read_file(DPB_TEST_DATA "/p_adjust.json", &vectors), DPB_OK);
    const size_t count = dpb_json_size(dpb_json_get(vectors, "p"));
    for (size_t i = 0; i < count; i++)
        p[i] = dpb_json_as_real(dpb_json_at(dpb_json_get(vectors, "p"), i), NAN);
    assert_int_equal(dpb_gate_holm(p, count, holm), DPB_OK);
    assert_int_equal(dpb_gate_bh(p, count, bh), DPB_OK);
    for (size_t i = 0; i < count; i++) {
        assert_true(fabs(holm[i] - dpb_json_as_real(dpb_json_at(dpb_json_get(vectors, "holm"), i),
                                                    NAN)) < 1e-9);
        assert_true(fabs(bh[i] - dpb_json_as_real(dpb_json_at(dpb_json_get(vectors, "BH"), i),
                                                  NAN)) < 1e-9);
    }
    dpb_json_free(vectors);
}

/* ---- what must never pass ---- */

static enum dpb_verdict verdict_of(const double *base, size_t base_count, const double *candidate,
                                   size_t candidate_count)
{
    const struct dpb_gate_rule rule = DPB_GATE_RULE_DEFAULT;
    struct dpb_gate_result result;

    dpb_gate_decide(base, base_count, candidate, candidate_count, &rule, &result);
    return result.verdict;
}

static void test_empty_and_broken_sides_are_errors(void **state)
{
    const double good[] = {1, 1.001, 0.999, 1}, broken[] = {1, NAN, 1, 1},
                 infinite[] = {1, INFINITY, 1, 1};

    (void)state;
    assert_int_equal(verdict_of(good, 0, good, 4), DPB_VERDICT_ERROR);
    assert_int_equal(verdict_of(good, 4, good, 0), DPB_VERDICT_ERROR);
    assert_int_equal(verdict_of(good, 0, good, 0), DPB_VERDICT_ERROR);
    assert_int_equal(verdict_of(good, 4, broken, 4), DPB_VERDICT_ERROR);
    assert_int_equal(verdict_of(infinite, 4, good, 4), DPB_VERDICT_ERROR);
    assert_int_equal(verdict_of(good, 1, good, 1), DPB_VERDICT_INCONCLUSIVE);
    assert_int_equal(verdict_of(good, 2, good, 4), DPB_VERDICT_INCONCLUSIVE);
    assert_int_equal(verdict_of(good, 4, good, 4), DPB_VERDICT_PASS);
}

static void test_run_of_too_few_or_broken_steps(void **state)
{
    double steps[30], theta;
    char why[128];

    (void)state;
    for (int i = 0; i < 30; i++)
        steps[i] = 2;
    assert_int_equal(dpb_gate_run(steps, 14, 5, DPB_RUN_MEDIAN, &theta, why, sizeof(why)),
                     DPB_ERR_CORRUPT);
    assert_non_null(strstr(why, "9 steps"));
    assert_int_equal(dpb_gate_run(steps, 3, 5, DPB_RUN_MEDIAN, &theta, why, sizeof(why)),
                     DPB_ERR_CORRUPT);
    steps[20] = 0;
    assert_int_equal(dpb_gate_run(steps, 30, 5, DPB_RUN_MEDIAN, &theta, why, sizeof(why)),
                     DPB_ERR_CORRUPT);
    assert_non_null(strstr(why, "step 21 is 0"));
    steps[20] = NAN;
    assert_int_equal(dpb_gate_run(steps, 30, 5, DPB_RUN_MEAN, &theta, why, sizeof(why)),
                     DPB_ERR_CORRUPT);
    steps[20] = 2;
    assert_int_equal(dpb_gate_run(steps, 30, 5, DPB_RUN_P95, &theta, why, sizeof(why)), DPB_OK);
    assert_true(fabs(theta - log(2)) < 1e-12);
}

static void test_steady(void **state)
{
    double steps[40];

    (void)state;
    for (int i = 0; i < 40; i++)
        steps[i] = i < 8 ? 3 : 1;
    assert_int_equal(dpb_gate_steady_from(steps, 40), 6); /* 3 of the 5 are steady */
    assert_int_equal(dpb_gate_steady_from(steps, 6), 6);
    assert_int_equal(dpb_gate_warmup(100), 10);
    assert_int_equal(dpb_gate_warmup(11), 5);
    assert_int_equal(dpb_gate_warmup(101), 11);
}

/* ---- the sides of a decision ---- */

static void test_higher_is_better_turns_the_sign(void **state)
{
    const double base[] = {4.60, 4.61, 4.605, 4.602}, worse[] = {4.50, 4.51, 4.505, 4.502};
    struct dpb_gate_rule rule = DPB_GATE_RULE_DEFAULT;
    struct dpb_gate_result result;

    (void)state;
    rule.higher_is_better = true;
    dpb_gate_decide(base, 4, worse, 4, &rule, &result);
    assert_int_equal(result.verdict, DPB_VERDICT_FAIL);
    assert_true(result.ratio < 1 && result.difference > 0);
    dpb_gate_decide(worse, 4, base, 4, &rule, &result);
    assert_int_equal(result.verdict, DPB_VERDICT_PASS);
}

static void test_absolute_margin(void **state)
{
    const double base[] = {0.30, 0.31, 0.305}, worse[] = {0.40, 0.41, 0.405};
    struct dpb_gate_rule rule = DPB_GATE_RULE_DEFAULT;
    struct dpb_gate_result result;

    (void)state;
    rule.is_absolute = true;
    rule.margin = 0.05;
    dpb_gate_decide(base, 3, worse, 3, &rule, &result);
    assert_int_equal(result.verdict, DPB_VERDICT_FAIL);
    assert_true(isnan(result.ratio));
    rule.margin = 0.2;
    dpb_gate_decide(base, 3, worse, 3, &rule, &result);
    assert_int_equal(result.verdict, DPB_VERDICT_PASS);
}

static void test_pairs_see_through_drift(void **state)
{
    /* 1 % faster per pair, while the machine slows down by 20 % in all. */
    double base[6], candidate[6];
    struct dpb_gate_rule rule = DPB_GATE_RULE_DEFAULT;
    struct dpb_gate_result result;

    (void)state;
    for (int i = 0; i < 6; i++) {
        base[i] = 0.04 * i + 0.0005 * (i % 2);
        candidate[i] = 0.04 * i + 0.05;
    }
    dpb_gate_decide(base, 6, candidate, 6, &rule, &result);
    assert_int_equal(result.verdict, DPB_VERDICT_INCONCLUSIVE);
    rule.is_paired = true;
    dpb_gate_decide(base, 6, candidate, 6, &rule, &result);
    assert_int_equal(result.verdict, DPB_VERDICT_FAIL);
    dpb_gate_decide(base, 6, candidate, 5, &rule, &result);
    assert_int_equal(result.verdict, DPB_VERDICT_ERROR);
}

static void test_equal_samples_are_not_a_difference(void **state)
{
    const double same[] = {1, 1, 1, 1, 1};
    struct dpb_gate_rule rule = DPB_GATE_RULE_DEFAULT;
    struct dpb_gate_result result;

    (void)state;
    dpb_gate_decide(same, 5, same, 5, &rule, &result);
    assert_int_equal(result.verdict, DPB_VERDICT_PASS);
    assert_true(result.p_permutation == 1);
    assert_true(isfinite(result.p_worse));
}

/* What was seen is one of the permutations, and no other one is as large, in whatever unit. */
static void test_permutations_of_any_size_of_values(void **state)
{
    static const double units[] = {1e-15, 1, 1e10};
    struct dpb_gate_rule rule = DPB_GATE_RULE_DEFAULT;
    struct dpb_gate_result result;

    (void)state;
    rule.is_absolute = true;
    for (size_t u = 0; u < sizeof(units) / sizeof(units[0]); u++) {
        double base[] = {3.14159265357, 3.14159265358, 3.14159265351};
        double candidate[] = {4.14159265350, 4.14159265358, 4.14159265354};

        for (size_t i = 0; i < 3; i++) {
            base[i] *= units[u];
            candidate[i] *= units[u];
        }
        dpb_gate_decide(base, 3, candidate, 3, &rule, &result);
        assert_true(fabs(result.p_permutation - 0.05) < 1e-12);
    }
}

static void test_exact_counters(void **state)
{
    const int64_t base[] = {100, 100}, same[] = {100, 100, 100}, other[] = {100, 103};
    struct dpb_gate_result result;

    (void)state;
    dpb_gate_decide_exact(base, 2, same, 3, 0, &result);
    assert_int_equal(result.verdict, DPB_VERDICT_PASS);
    dpb_gate_decide_exact(base, 2, other, 2, 0, &result);
    assert_int_equal(result.verdict, DPB_VERDICT_FAIL);
    assert_true(result.difference == 3);
    dpb_gate_decide_exact(base, 2, other, 2, 3, &result);
    assert_int_equal(result.verdict, DPB_VERDICT_PASS);
    dpb_gate_decide_exact(base, 0, other, 2, 3, &result);
    assert_int_equal(result.verdict, DPB_VERDICT_ERROR);
}

/* ---- how many runs ---- */

static void test_runs_and_effects_invert_each_other(void **state)
{
    (void)state;
    for (double mde = 0.005; mde < 0.1; mde *= 1.5) {
        const size_t runs = dpb_gate_runs(mde, 0.01, 0.05, 0.9, 1000);
        assert_true(runs >= 2);
        assert_true(dpb_gate_mde(runs, 0.01, 0.05, 0.9) <= mde);
        assert_true(runs == 2 || dpb_gate_mde(runs - 1, 0.01, 0.05, 0.9) > mde);
    }
    assert_int_equal(dpb_gate_runs(1e-6, 0.01, 0.05, 0.9, 1000), 0);
    assert_true(isnan(dpb_gate_mde(1, 0.01, 0.05, 0.9)));
    assert_true(dpb_gate_look_alpha(2) == 0.0304 && isnan(dpb_gate_look_alpha(4)));
}

/* ---- false alarms, by simulation ---- */

#define SIMULATIONS 500
#define STEPS       100

/* 1.3 % from step to step with lag-1 correlation rho, 3 % of them longer, sd from run to run. */
static double simulated_run(struct dpb_rng *rng, double sd, double rho)
{
    const double run = exp(sd * dpb_rng_normal(rng));
    double values[STEPS], noise = dpb_rng_normal(rng), theta;
    char why[128];

    for (int s = 0; s < STEPS; s++) {
        noise = rho * noise + sqrt(1 - rho * rho) * dpb_rng_normal(rng);
        values[s] = run * (1 + 0.013 * noise);
        if (dpb_rng_uniform(rng) < 0.03)
            values[s] *= 1 - 0.15 * log1p(-dpb_rng_uniform(rng));
    }
    assert_int_equal(dpb_gate_run(values, STEPS, 0, DPB_RUN_MEDIAN, &theta, why, sizeof(why)),
                     DPB_OK);
    return theta;
}

static double share_of_fail(double sd, double rho, size_t runs, uint64_t seed)
{
    struct dpb_gate_rule rule = DPB_GATE_RULE_DEFAULT;
    struct dpb_rng rng;
    int failed = 0;

    rule.margin = 0;
    dpb_rng_init(&rng, seed, 0);
    for (int i = 0; i < SIMULATIONS; i++) {
        double base[RUNS_MAX], candidate[RUNS_MAX];
        struct dpb_gate_result result;

        for (size_t r = 0; r < runs; r++) {
            base[r] = simulated_run(&rng, sd, rho);
            candidate[r] = simulated_run(&rng, sd, rho);
        }
        dpb_gate_decide(base, runs, candidate, runs, &rule, &result);
        failed += result.verdict == DPB_VERDICT_FAIL;
    }
    return (double)failed / SIMULATIONS;
}

static void test_false_alarms_are_as_rare_as_said(void **state)
{
    /* Noise of runs, correlation, runs per side. 5 % of 500 are 25; the central 99.9 % of that
     * binomial are 10 to 42, and Welch's t on few runs is allowed to be too careful. */
    const struct {
        double sd, rho;
        size_t runs;
    } cells[] = {{0, 0, 5},      {0, 0.3, 3},     {0, 0.6, 3},     {0.003, 0.3, 5}, {0.01, 0.3, 3},
                 {0.01, 0.3, 5}, {0.01, 0.6, 10}, {0.003, 0.6, 6}, {0.02, 0, 5}};

    (void)state;
    for (size_t i = 0; i < sizeof(cells) / sizeof(cells[0]); i++) {
        const double share = share_of_fail(cells[i].sd, cells[i].rho, cells[i].runs, 100 + i);
        const double least = cells[i].runs > 3 ? 10 : 0;

        if (!(share * SIMULATIONS <= 42 && share * SIMULATIONS >= least))
            fail_msg("sd %g, rho %g, %zu runs: %.1f %% FAIL", cells[i].sd, cells[i].rho,
                     cells[i].runs, 100 * share);
    }
}

static void test_one_run_never_fails(void **state)
{
    (void)state;
    assert_true(share_of_fail(0.01, 0.3, 1, 7) == 0);
}

static void test_power_is_as_said(void **state)
{
    /* At the effect that dpb_gate_mde() names, about 80 % are found; the formula is a little
     * optimistic for few runs (noncentral t: 0.77 with 5). */
    const double sd = 0.01, effect = dpb_gate_mde(5, sd, 0.05, 0.8);
    struct dpb_gate_rule rule = DPB_GATE_RULE_DEFAULT;
    struct dpb_rng rng;
    int failed = 0;

    (void)state;
    rule.margin = 0;
    dpb_rng_init(&rng, 5, 0);
    for (int i = 0; i < 2000; i++) {
        double base[5], candidate[5];
        struct dpb_gate_result result;

        for (int r = 0; r < 5; r++) {
            base[r] = sd * dpb_rng_normal(&rng);
            candidate[r] = effect + sd * dpb_rng_normal(&rng);
        }
        dpb_gate_decide(base, 5, candidate, 5, &rule, &result);
        failed += result.verdict == DPB_VERDICT_FAIL;
    }
    if (!(failed > 1440 && failed < 1700))
        fail_msg("%d of 2000 found", failed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_reference_cases),
            cmocka_unit_test(test_adjusted_p),
            cmocka_unit_test(test_empty_and_broken_sides_are_errors),
            cmocka_unit_test(test_run_of_too_few_or_broken_steps),
            cmocka_unit_test(test_steady),
            cmocka_unit_test(test_higher_is_better_turns_the_sign),
            cmocka_unit_test(test_absolute_margin),
            cmocka_unit_test(test_pairs_see_through_drift),
            cmocka_unit_test(test_equal_samples_are_not_a_difference),
            cmocka_unit_test(test_permutations_of_any_size_of_values),
            cmocka_unit_test(test_exact_counters),
            cmocka_unit_test(test_runs_and_effects_invert_each_other),
            cmocka_unit_test(test_false_alarms_are_as_rare_as_said),
            cmocka_unit_test(test_one_run_never_fails),
            cmocka_unit_test(test_power_is_as_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

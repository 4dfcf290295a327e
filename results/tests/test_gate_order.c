/* In what order the runs of two sides were made, where they come from several sessions. */
#include "dpb_test.h"

#include <math.h>

#include "dpb_gate_compare.h"

#define CELL   "cell"
#define METRIC "step-time-median"

struct made {
    const char *session;
    double order, time_s;
    int64_t pair;
};

static void add_runs(struct dpb_gate_set *set, const struct made *made, const double *values,
                     size_t count)
{
    struct dpb_gate_cell *cell = dpb_gate_set_cell(set, CELL, "");

    assert_non_null(cell);
    for (size_t i = 0; i < count; i++) {
        struct dpb_gate_run run = {
                .order = made[i].order, .time_s = made[i].time_s, .pair = made[i].pair};
        size_t number;

        snprintf(run.session, sizeof(run.session), "%s", made[i].session);
        assert_int_equal(dpb_gate_cell_add_run(cell, &run, &number), DPB_OK);
        assert_int_equal(
                dpb_gate_cell_set_value(cell, number, dpb_gate_metric_find(METRIC), values[i]),
                DPB_OK);
    }
}

static void compare(const struct made *base, const double *base_values,
                    const struct made *candidate, const double *candidate_values, size_t count,
                    struct dpb_gate_finding *finding)
{
    const struct dpb_gate_options options = {.alpha = 0.05, .looks = 1, .gating = METRIC};
    struct dpb_gate_set one = {.price = NAN}, other = {.price = NAN};
    struct dpb_gate_report report;

    add_runs(&one, base, base_values, count);
    add_runs(&other, candidate, candidate_values, count);
    assert_int_equal(dpb_gate_compare(&one, &other, &options, &report), DPB_OK);
    assert_int_equal(report.finding_count, 1);
    *finding = report.findings[0];
    finding->cell = NULL;
    dpb_gate_report_release(&report);
    dpb_gate_set_release(&one);
    dpb_gate_set_release(&other);
}

static void test_order(void **state)
{
    static const double values[] = {100, 101, 99};
    static const struct {
        const char *name;
        struct made base[3], candidate[3];
        enum dpb_gate_order order;
    } cases[] = {
            {"pairs of one session",
             {{"s", 0, 0, 0}, {"s", 3, 30, 1}, {"s", 4, 40, 2}},
             {{"s", 1, 10, 0}, {"s", 2, 20, 1}, {"s", 5, 50, 2}},
             DPB_GATE_ORDER_PAIRED},
            {"the first session has one pair, the others have no run of the other side",
             {{"s", 0, 0, 0}, {"t", 0, 10, 1}, {"t", 1, 20, 2}},
             {{"s", 1, 100, 0}, {"u", 0, 110, 1}, {"u", 1, 120, 2}},
             DPB_GATE_ORDER_SEQUENTIAL},
            {"places of other sessions look mixed",
             {{"s", 0, 0, -1}, {"t", 2, 10, -1}, {"t", 4, 20, -1}},
             {{"s", 1, 100, -1}, {"u", 3, 110, -1}, {"u", 5, 120, -1}},
             DPB_GATE_ORDER_SEQUENTIAL},
            {"places of other sessions look sequential",
             {{"s", 0, 0, -1}, {"t", 0, 20, -1}, {"u", 0, 40, -1}},
             {{"s", 1, 10, -1}, {"t", 1, 30, -1}, {"u", 1, 50, -1}},
             DPB_GATE_ORDER_INTERLEAVED},
            {"a place that is not known is no place among the known",
             {{"s", 0, 0, -1}, {"s", NAN, 10, -1}, {"s", 4, 20, -1}},
             {{"s", 1, 100, -1}, {"s", 3, 110, -1}, {"s", 5, 120, -1}},
             DPB_GATE_ORDER_SEQUENTIAL},
            {"neither places nor times",
             {{"s", 0, NAN, -1}, {"t", 2, NAN, -1}, {"t", 4, NAN, -1}},
             {{"s", 1, NAN, -1}, {"u", 3, NAN, -1}, {"u", 5, NAN, -1}},
             DPB_GATE_ORDER_UNKNOWN},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct dpb_gate_finding finding;

        compare(cases[i].base, values, cases[i].candidate, values, 3, &finding);
        if (finding.order != cases[i].order)
            fail_msg("%s: %s, not %s", cases[i].name, dpb_gate_order_text(finding.order),
                     dpb_gate_order_text(cases[i].order));
    }
}

enum {
    RUNS = 8
};

/* Eight runs of two sessions, one after the other, each slower than the one before; the other side
 * does not drift. */
static void make_drift(struct made *made, double *values, double *flat)
{
    static const double noise[RUNS] = {4, 1, 6, 3, 0, 7, 2, 5};

    for (int i = 0; i < RUNS; i++) {
        made[i] = (struct made){i < RUNS / 2 ? "s" : "t", i % (RUNS / 2), 10.0 * i, -1};
        values[i] = 100 + i;
        flat[i] = 100 + noise[i] / 10;
    }
}

static void test_drift_over_sessions(void **state)
{
    struct made base[RUNS], candidate[RUNS];
    struct dpb_gate_finding finding;
    double values[RUNS], flat[RUNS];

    (void)state;
    make_drift(base, values, flat);
    memcpy(candidate, base, sizeof(candidate));
    for (int i = 0; i < RUNS; i++)
        candidate[i].time_s += 1000;
    compare(base, values, candidate, flat, RUNS, &finding);
    assert_int_equal(finding.order, DPB_GATE_ORDER_SEQUENTIAL);
    assert_true(finding.drift_p < 0.001);
}

static void test_calibration_sees_drift_over_sessions(void **state)
{
    struct made made[RUNS];
    struct dpb_gate_set set = {.price = NAN};
    struct dpb_gate_calibration *cells;
    size_t count;
    double values[RUNS], flat[RUNS];

    (void)state;
    make_drift(made, values, flat);
    add_runs(&set, made, values, RUNS);
    assert_int_equal(dpb_gate_calibrate(&set, NULL, 0.02, 10, 1, &cells, &count), DPB_OK);
    assert_int_equal(count, 1);
    assert_true(cells[0].drift_p < 0.001);
    dpb_gate_calibration_free(cells, count);
    dpb_gate_set_release(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_order),
            cmocka_unit_test(test_drift_over_sessions),
            cmocka_unit_test(test_calibration_sees_drift_over_sessions),
    };
    return DPB_RUN_TESTS(tests);
}

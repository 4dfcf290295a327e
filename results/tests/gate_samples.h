/* gate_samples.h: sides of a gate from a few numbers. */
#ifndef DPB_TEST_GATE_SAMPLES_H
#define DPB_TEST_GATE_SAMPLES_H

#include "dpb_test.h"

#include <math.h>

#include "dpb_gate_compare.h"

enum sample_order {
    ORDER_NONE,       /* other sessions, no times */
    ORDER_SEQUENTIAL, /* the baseline first */
    ORDER_MIXED,      /* A B A B, not in pairs */
    ORDER_PAIRS       /* A B B A */
};

/* One more run of a cell with one value. */
static inline void sample_run(struct dpb_gate_set *set, const char *cell_name, const char *metric,
                              double value, double order, int64_t pair)
{
    struct dpb_gate_cell *cell = dpb_gate_set_cell(set, cell_name, "");
    struct dpb_gate_run run = {.order = order, .time_s = NAN, .pair = pair};
    size_t number;

    assert_non_null(cell);
    if (!isnan(order))
        snprintf(run.session, sizeof(run.session), "session");
    assert_int_equal(dpb_gate_cell_add_run(cell, &run, &number), DPB_OK);
    assert_int_equal(dpb_gate_cell_set_value(cell, number, dpb_gate_metric_find(metric), value),
                     DPB_OK);
}

static inline void sample_side(struct dpb_gate_set *set, const char *cell, const char *metric,
                               const double *values, size_t count, bool is_base,
                               enum sample_order order)
{
    for (size_t i = 0; i < count; i++) {
        const double first = (double)(2 * i), turn = (double)(i % 2);
        const double at = order == ORDER_NONE         ? NAN
                          : order == ORDER_SEQUENTIAL ? (double)i + (is_base ? 0 : 100)
                          : order == ORDER_MIXED      ? first + !is_base
                                                      : first + (is_base ? turn : 1 - turn);

        sample_run(set, cell, metric, values[i], at, order == ORDER_PAIRS ? (int64_t)i : -1);
    }
}

#endif

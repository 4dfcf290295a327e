/* A summary as JSON: every number with its unit in the key, or null with the reason. */
#include "dpb_summary.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>

/* Why a number is absent. */
enum absence {
    NO_REPEAT,   /* needs one ok repeat */
    FEW_REPEATS, /* needs two */
    FEW_STEPS,   /* a quantile inside the sample */
    NO_BASELINE,
    NO_BASELINE_OR_FEW,
    NOT_TRACED,
    NO_COMM,
    ONE_RANK,
    NO_LINK,
    NOT_MEASURED
};

/* The first record's, which knows: steps not traced, or traced and not used. */
static const char *untraced_text(const struct dpb_cell_summary *cell)
{
    return dpb_json_as_string(dpb_json_get(cell->first, "overlap_reason"), "no step was traced");
}

static const char *reason_text(const struct dpb_cell_summary *cell, enum absence absence)
{
    if (cell->repeats_ok == 0)
        return "no repeat of the cell is ok";
    switch (absence) {
    case NO_REPEAT:
        return "no repeat of the cell is ok";
    case FEW_REPEATS:
        return "an interval needs at least two ok repeats";
    case FEW_STEPS:
        return "too few steps for this quantile to lie inside the sample";
    case NO_BASELINE:
        return "no ok cell with fewer ranks to compare with";
    case NO_BASELINE_OR_FEW:
        if (!cell->baseline)
            return "no ok cell with fewer ranks to compare with";
        if (cell->baseline == cell)
            return "the cell is the baseline";
        return "an interval needs at least two ok repeats of the cell and of its baseline";
    case NOT_TRACED:
        return untraced_text(cell);
    case NO_COMM:
        return cell->comm_ns == 0 ? "no communication in the traced steps" : untraced_text(cell);
    case NO_LINK:
        return "no link was emulated";
    case ONE_RANK:
        return cell->ranks == 1 ? "one rank sends nothing" : "not measured";
    case NOT_MEASURED:
        return "not measured";
    }
    return "not measured";
}

static const struct number {
    const char *key;
    size_t offset;
    enum absence absence;
} numbers[] = {
#define NUMBER(member, absence)                                                                    \
    {                                                                                              \
#member, offsetof(struct dpb_cell_summary, member), absence                                \
    }
        NUMBER(step_median_ns, NO_REPEAT),
        NUMBER(step_mean_ns, NO_REPEAT),
        NUMBER(step_mad_ns, NO_REPEAT),
        NUMBER(step_p5_ns, FEW_STEPS),
        NUMBER(step_p50_ns, NO_REPEAT),
        NUMBER(step_p95_ns, FEW_STEPS),
        NUMBER(step_p99_ns, FEW_STEPS),
        NUMBER(samples_per_s_total, NO_REPEAT),
        NUMBER(samples_per_s_per_rank, NO_REPEAT),
        NUMBER(speedup, NO_BASELINE),
        NUMBER(efficiency, NO_BASELINE),
        NUMBER(span_ns, NOT_TRACED),
        NUMBER(compute_ns, NOT_TRACED),
        NUMBER(comm_ns, NOT_TRACED),
        NUMBER(overlap_ns, NOT_TRACED),
        NUMBER(exposed_ns, NOT_TRACED),
        NUMBER(comm_wait_ns, NOT_TRACED),
        NUMBER(idle_ns, NOT_TRACED),
        NUMBER(data_ns, NOT_TRACED),
        NUMBER(exposed_share, NOT_TRACED),
        NUMBER(overlap_fraction, NO_COMM),
        NUMBER(comm_share, NOT_TRACED),
        NUMBER(busbw_bytes_per_s, ONE_RANK),
        NUMBER(wire_ns, NO_LINK),
        NUMBER(progress_cpu_ns, ONE_RANK),
        NUMBER(wake_late_p99_ns, NO_LINK),
        NUMBER(availability, NOT_MEASURED),
        NUMBER(trace_overhead, NOT_TRACED),
        NUMBER(test_accuracy, NOT_MEASURED),
        NUMBER(loss_first, NOT_MEASURED),
        NUMBER(loss_last, NOT_MEASURED),
#undef NUMBER
};

static void set_number(dpb_json *object, const char *key, double value, const char *reason)
{
    if (isfinite(value))
        dpb_json_set_real(object, key, value);
    else
        dpb_json_set_absent(object, key, reason);
}

static void set_interval(dpb_json *object, const char *key, struct dpb_interval95 interval,
                         const char *reason)
{
    dpb_json *value;

    if (!isfinite(interval.low) || !isfinite(interval.high)) {
        dpb_json_set_absent(object, key, reason);
        return;
    }
    value = dpb_json_object();
    dpb_json_set_real(value, "low", interval.low);
    dpb_json_set_real(value, "high", interval.high);
    dpb_json_set(object, key, value);
}

static void set_copy(dpb_json *object, const char *key, const dpb_json *value)
{
    dpb_json_set(object, key, value ? dpb_json_copy(value) : dpb_json_null());
}

static dpb_json *cell_json(const struct dpb_cell_summary *cell)
{
    dpb_json *json = dpb_json_object();
    size_t i;

    dpb_json_set_string(json, "run_id", cell->run_id);
    dpb_json_set_int(json, "cell", cell->cell);
    set_copy(json, "axes", dpb_json_get(cell->first, "axes"));
    dpb_json_set_string(json, "series", cell->series);
    dpb_json_set_string(json, "compute_series", cell->compute_series);
    dpb_json_set_int(json, "ranks", cell->ranks);
    dpb_json_set_string(json, "scaling", cell->weak ? "weak" : "strong");
    dpb_json_set_int(json, "global_batch", cell->global_batch);
    dpb_json_set_int(json, "batch_per_rank", cell->batch_per_rank);
    dpb_json_set_bool(json, "emulated", cell->emulated);
    dpb_json_set_bool(json, "simulated", cell->simulated);
    set_copy(json, "machine",
             dpb_json_path(cell->first, cell->simulated ? "simulation/machine" : "host/name"));
    dpb_json_set_bool(json, "flagged", cell->flagged);
    dpb_json_set_int(json, "repeats_ok", (int64_t)cell->repeats_ok);
    dpb_json_set_int(json, "repeats_not_ok", (int64_t)cell->repeats_not_ok);
    dpb_json_set_string(json, "not_ok_status", cell->not_ok_status);
    dpb_json_set_string(json, "not_ok_reason", cell->not_ok_reason);
    for (i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        const double *value =
                (const double *)(const void *)((const char *)cell + numbers[i].offset);

        set_number(json, numbers[i].key, *value, reason_text(cell, numbers[i].absence));
    }
    set_interval(json, "step_ci95_ns", cell->step_ci95_ns, reason_text(cell, FEW_REPEATS));
    set_interval(json, "samples_per_s_ci95", cell->samples_per_s_ci95,
                 reason_text(cell, FEW_REPEATS));
    set_interval(json, "efficiency_ci95", cell->efficiency_ci95,
                 reason_text(cell, NO_BASELINE_OR_FEW));
    if (cell->baseline) {
        dpb_json_set_int(json, "baseline_ranks", cell->baseline_ranks);
        dpb_json_set_int(json, "baseline_cell", cell->baseline->cell);
        dpb_json_set_string(json, "baseline_run_id", cell->baseline->run_id);
    } else {
        dpb_json_set_absent(json, "baseline_ranks", reason_text(cell, NO_BASELINE));
    }
    set_copy(json, "repro", dpb_json_get(cell->first, "repro"));
    return json;
}

dpb_json *dpb_summary_json(const struct dpb_summary *summary)
{
    dpb_json *json = dpb_json_object();
    dpb_json *cells = dpb_json_array();
    size_t i;

    for (i = 0; i < summary->cell_count; i++)
        dpb_json_append(cells, cell_json(&summary->cells[i]));
    dpb_json_set_string(json, "schema", "dpb.summary/1");
    dpb_json_set(json, "cells", cells);
    return json;
}

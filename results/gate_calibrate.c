/* gate_calibrate.c: how often a gate cries wolf here, and copies of a side that are worse. */
#include "dpb_gate_compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_rng.h"
#include "dpb_stats.h"
#include "gate_order.h"

#define ALPHA      0.05
#define POWER      0.8
#define RUNS_MOST  1000
#define RUNS_BLOCK 10
#define RUNS_LEAST 4
#define DRIFT_P    0.01
#define RESAMPLES  200 /* of a run's steps: a standard error to 5 % of itself */

/* ---- A/A ---- */

static size_t split_and_decide(const double *theta, size_t runs, size_t splits, uint64_t seed)
{
    const size_t half = runs / 2;
    struct dpb_gate_rule rule = DPB_GATE_RULE_DEFAULT;
    int64_t *order = malloc(runs * sizeof(*order));
    double *values = malloc(runs * sizeof(*values));
    struct dpb_rng rng;
    size_t failed = 0;

    rule.margin = 0;
    rule.least_runs = 2;
    dpb_rng_init(&rng, seed, 0);
    for (size_t s = 0; order && values && s < splits; s++) {
        struct dpb_gate_result result;

        for (size_t i = 0; i < runs; i++)
            order[i] = (int64_t)i;
        dpb_rng_shuffle_i64(&rng, order, (int64_t)runs);
        for (size_t i = 0; i < runs; i++)
            values[i] = theta[order[i]];
        dpb_gate_decide(values, half, values + half, half, &rule, &result);
        failed += result.verdict == DPB_VERDICT_FAIL;
    }
    free(order);
    free(values);
    return failed;
}

/* Of the logarithms of steady steps: standard deviation, lag-1 autocorrelation, and standard error
 * of their median. Medians over records. */
static void step_noise(const struct dpb_records *records, uint64_t seed,
                       struct dpb_gate_calibration *cell)
{
    double *sds = records ? malloc(3 * (records->count + 1) * sizeof(*sds)) : NULL;
    size_t count = 0;

    cell->sd_step = cell->rho = cell->se_step = NAN;
    if (!sds)
        return;
    double *rhos = sds + records->count, *errors = rhos + records->count;
    for (size_t r = 0; r < records->count; r++) {
        const dpb_json *samples = dpb_json_get(records->items[r], "samples_step_ns");
        const size_t steps = dpb_json_size(samples), from = dpb_gate_warmup(steps);
        double *logs = steps > from + DPB_GATE_STEADY_MIN ? malloc(steps * sizeof(*logs)) : NULL;

        if (!logs)
            continue;
        for (size_t s = from; s < steps; s++)
            logs[s - from] = log(dpb_json_as_real(dpb_json_at(samples, s), NAN));
        sds[count] = dpb_stats_stdev(logs, steps - from);
        rhos[count] = dpb_stats_autocorrelation(logs, steps - from, 1);
        const size_t block = dpb_stats_block_length(rhos[count], steps - from);
        errors[count] = dpb_stats_block_bootstrap(logs, steps - from, block, dpb_stats_median,
                                                  RESAMPLES, seed)
                                .se;
        count += isfinite(sds[count]) && isfinite(rhos[count]);
        free(logs);
    }
    cell->sd_step = dpb_stats_median(sds, count);
    cell->rho = dpb_stats_median(rhos, count);
    cell->se_step = dpb_stats_median(errors, count);
    free(sds);
}

static void may_block(struct dpb_gate_calibration *cell)
{
    cell->may_block = false;
    if (cell->runs < RUNS_BLOCK)
        snprintf(cell->why, sizeof(cell->why), "%zu runs, %d are needed", cell->runs, RUNS_BLOCK);
    else if (cell->fail_share > 2 * ALPHA)
        snprintf(cell->why, sizeof(cell->why),
                 "%.1f %% of splits of the same build FAIL, more than %.0f %%",
                 100 * cell->fail_share, 200 * ALPHA);
    else if (cell->drift_p < DRIFT_P)
        snprintf(cell->why, sizeof(cell->why), "the runs drift (p %.2g)", cell->drift_p);
    else
        cell->may_block = true;
}

static void calibrate_values(const struct dpb_gate_cell *cell, const double *values, double *room,
                             double margin, size_t splits, uint64_t seed,
                             struct dpb_gate_calibration *to)
{
    const size_t runs = cell->run_count;
    double *theta = room, *at = room + runs;
    size_t low, high;

    for (size_t i = 0; i < runs; i++)
        theta[i] = log(values[i]);
    to->splits = splits;
    to->failed = split_and_decide(theta, runs, splits, seed);
    to->fail_share = splits > 0 ? (double)to->failed / (double)splits : NAN;
    dpb_stats_binomial95(splits, ALPHA, &low, &high);
    to->accept_low = (double)low / (double)splits;
    to->accept_high = (double)high / (double)splits;
    to->sd_run = dpb_stats_stdev(theta, runs);
    to->drift_p = dpb_gate_moments(cell, at) ? dpb_stats_spearman_p(at, theta, runs) : NAN;
    to->recommended = dpb_gate_runs(log1p(margin), to->sd_run, ALPHA, POWER, RUNS_MOST);
    to->least_margin = expm1(dpb_gate_mde(runs / 2, to->sd_run, ALPHA, POWER));
    may_block(to);
}

static bool has_values(const double *values, size_t count)
{
    for (size_t i = 0; values && i < count; i++)
        if (!(values[i] > 0) || !isfinite(values[i]))
            return false;
    return values != NULL;
}

static dpb_status calibrate_cell(const struct dpb_gate_cell *cell,
                                 const struct dpb_records *records, double margin, size_t splits,
                                 uint64_t seed, struct dpb_gate_calibration *to)
{
    const double *values = dpb_gate_cell_values(cell, "step-time-median");

    if (!values && cell->metric_count > 0)
        values = cell->metrics[0].values;
    *to = (struct dpb_gate_calibration){
            .cell = strdup(cell->name),
            .runs = cell->run_count,
            .fail_share = NAN,
            .accept_low = NAN,
            .accept_high = NAN,
            .sd_run = NAN,
            .drift_p = NAN,
            .least_margin = NAN,
    };
    if (!to->cell)
        return DPB_ERR_NO_MEMORY;
    step_noise(records, seed, to);
    if (cell->trouble[0] || cell->step_trouble[0] || !has_values(values, cell->run_count)) {
        snprintf(to->why, sizeof(to->why), "%.150s",
                 cell->trouble[0]        ? cell->trouble
                 : cell->step_trouble[0] ? cell->step_trouble
                                         : "a run has no step time");
        return DPB_OK;
    }
    if (cell->run_count < RUNS_LEAST) {
        snprintf(to->why, sizeof(to->why), "%zu runs, at least %d are needed", cell->run_count,
                 RUNS_LEAST);
        return DPB_OK;
    }
    double *room = malloc(2 * cell->run_count * sizeof(*room));
    if (!room)
        return DPB_ERR_NO_MEMORY;
    calibrate_values(cell, values, room, margin, splits, seed, to);
    free(room);
    return DPB_OK;
}

dpb_status dpb_gate_calibrate(const struct dpb_gate_set *set, const struct dpb_records *records,
                              double margin, size_t splits, uint64_t seed,
                              struct dpb_gate_calibration **cells, size_t *count)
{
    struct dpb_gate_calibration *all = calloc(set->cell_count + 1, sizeof(*all));

    if (!all)
        return DPB_ERR_NO_MEMORY;
    for (size_t i = 0; i < set->cell_count; i++) {
        const dpb_status st = calibrate_cell(&set->cells[i], set->cell_count == 1 ? records : NULL,
                                             margin, splits, seed, &all[i]);

        if (st < 0) {
            dpb_gate_calibration_free(all, i + 1);
            return st;
        }
    }
    *cells = all;
    *count = set->cell_count;
    return DPB_OK;
}

void dpb_gate_calibration_free(struct dpb_gate_calibration *cells, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(cells[i].cell);
    free(cells);
}

/* ---- a side that is worse ---- */

static double worsened(const struct dpb_gate_metric *metric, double value, double share)
{
    if (share == 0)
        return value;
    if (metric->scale == DPB_GATE_EXACT)
        return value + fmax(1, ceil(fabs(value) * share));
    const double much = metric->scale == DPB_GATE_ABSOLUTE ? value + share : value * (1 + share);
    const double less = metric->scale == DPB_GATE_ABSOLUTE ? value - share : value / (1 + share);
    return metric->higher_is_better ? less : much;
}

static dpb_status copy_cell(const struct dpb_gate_cell *from, double share, int half,
                            struct dpb_gate_cell *to)
{
    memcpy(to->trouble, from->trouble, sizeof(to->trouble));
    memcpy(to->step_trouble, from->step_trouble, sizeof(to->step_trouble));
    to->busy_runs = from->busy_runs;
    for (size_t i = 0; i < from->fact_count; i++)
        DPB_TRY(dpb_gate_cell_set_fact(to, from->facts[i].key, from->facts[i].text));
    for (size_t i = 0; i < from->run_count; i++) {
        struct dpb_gate_run run = from->runs[i];
        size_t number;

        if (half > 0 && i % 2 != (size_t)half - 1)
            continue;
        run.pair = -1;
        run.hash[0] = '\0'; /* no record says so */
        DPB_TRY(dpb_gate_cell_add_run(to, &run, &number));
        for (size_t m = 0; m < from->metric_count; m++)
            DPB_TRY(dpb_gate_cell_set_value(
                    to, number, from->metrics[m].metric,
                    worsened(from->metrics[m].metric, from->metrics[m].values[i], share)));
    }
    return DPB_OK;
}

dpb_status dpb_gate_set_worsened(const struct dpb_gate_set *set, double share, int half,
                                 struct dpb_gate_set *copy)
{
    *copy = (struct dpb_gate_set){.price = set->price};
    copy->source = set->source ? strdup(set->source) : NULL;
    for (size_t i = 0; i < set->cell_count; i++) {
        const struct dpb_gate_cell *from = &set->cells[i];
        struct dpb_gate_cell *to = dpb_gate_set_cell(copy, from->name, from->series);
        const dpb_status st = to ? copy_cell(from, share, half, to) : DPB_ERR_NO_MEMORY;

        if (st < 0) {
            dpb_gate_set_release(copy);
            return st;
        }
    }
    return DPB_OK;
}

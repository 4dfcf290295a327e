/* gate_set.c: cells, runs and values, whatever they were read from. */
#include "dpb_gate_set.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
const struct dpb_gate_metric dpb_gate_metrics[] = {
    {"step-time-median", "ns", DPB_GATE_RELATIVE, false, true, true, 0.02,
     "median step time of a run"},
    {"step-time-mean", "ns", DPB_GATE_RELATIVE, false, true, true, 0.02,
     "mean step time of a run, with its stalls"},
    {"step-time-p95", "ns", DPB_GATE_RELATIVE, false, true, true, 0.05,
     "95th percentile of the steps of a run"},
    {"step-time-p99", "ns", DPB_GATE_RELATIVE, false, false, true, 0.1,
     "99th percentile, of runs of 100 steps or more"},
    {"throughput", "samples/s", DPB_GATE_RELATIVE, true, true, true, 0.02,
     "samples per second of all ranks, with stalls"},
    {"exposed-share", "", DPB_GATE_ABSOLUTE, false, false, false, 0.02,
     "share of a step in which communication hides behind nothing"},
    {"memory-peak", "bytes", DPB_GATE_RELATIVE, false, true, false, 0.05,
     "memory that was measured"},
    {"energy-per-sample", "J", DPB_GATE_RELATIVE, false, false, false, 0.05,
     "energy of all ranks over samples"},
    {"cost-per-million-samples", "USD", DPB_GATE_RELATIVE, false, true, true, 0.02,
     "mean step time at the price of the baseline"},
    {"cost-per-epoch", "USD", DPB_GATE_RELATIVE, false, false, true, 0.02,
     "the same of one pass over the data"},
    {"efficiency", "", DPB_GATE_RELATIVE, true, true, true, 0.02,
     "throughput per rank over that of the cell with the fewest ranks"},
    {"bus-bandwidth", "B/s", DPB_GATE_RELATIVE, true, false, false, 0.05,
     "bus bandwidth of the collectives of a training step"},
    {"comm-bus-bandwidth", "B/s", DPB_GATE_RELATIVE, true, true, false, 0.05,
     "bus bandwidth of one collective and size"},
    {"wire-bytes", "bytes", DPB_GATE_EXACT, false, true, false, 0,
     "bytes per step and rank on the wire"},
    {"collectives", "", DPB_GATE_EXACT, false, true, false, 0, "collectives per step"},
    {"buckets", "", DPB_GATE_EXACT, false, true, false, 0, "units of the plan"},
    {"loss", "", DPB_GATE_ABSOLUTE, false, true, false, 0.01, "training loss of the last step"},
    {"accuracy", "", DPB_GATE_ABSOLUTE, true, true, false, 0.005, "accuracy on the test data"},
    {NULL, NULL, DPB_GATE_RELATIVE, false, false, false, 0, NULL},
};
/* clang-format on */

const struct dpb_gate_metric *dpb_gate_metric_find(const char *name)
{
    for (const struct dpb_gate_metric *metric = dpb_gate_metrics; metric->name; metric++)
        if (strcmp(metric->name, name) == 0)
            return metric;
    return NULL;
}

static void release_cell(struct dpb_gate_cell *cell)
{
    for (size_t i = 0; i < cell->fact_count; i++) {
        free(cell->facts[i].key);
        free(cell->facts[i].text);
    }
    for (size_t i = 0; i < cell->metric_count; i++)
        free(cell->metrics[i].values);
    free(cell->facts);
    free(cell->metrics);
    free(cell->runs);
    free(cell->name);
    free(cell->series);
    free(cell->curve);
    free(cell->compute_curve);
}

void dpb_gate_set_release(struct dpb_gate_set *set)
{
    for (size_t i = 0; i < set->cell_count; i++)
        release_cell(&set->cells[i]);
    free(set->cells);
    free(set->source);
    free(set->notes);
    *set = (struct dpb_gate_set){.price = NAN};
}

struct dpb_gate_cell *dpb_gate_set_cell(struct dpb_gate_set *set, const char *name,
                                        const char *series)
{
    for (size_t i = 0; i < set->cell_count; i++)
        if (strcmp(set->cells[i].name, name) == 0 && strcmp(set->cells[i].series, series) == 0)
            return &set->cells[i];

    struct dpb_gate_cell *cells = realloc(set->cells, (set->cell_count + 1) * sizeof(*set->cells));
    if (!cells)
        return NULL;
    set->cells = cells;
    struct dpb_gate_cell *cell = &cells[set->cell_count];
    *cell = (struct dpb_gate_cell){.name = strdup(name), .series = strdup(series)};
    if (!cell->name || !cell->series) {
        release_cell(cell);
        return NULL;
    }
    set->cell_count++;
    return cell;
}

dpb_status dpb_gate_cell_add_run(struct dpb_gate_cell *cell, const struct dpb_gate_run *run,
                                 size_t *number)
{
    const size_t count = cell->run_count + 1;

    for (size_t i = 0; i < cell->metric_count; i++) {
        double *values = realloc(cell->metrics[i].values, count * sizeof(*values));

        if (!values)
            return DPB_ERR_NO_MEMORY;
        values[cell->run_count] = NAN;
        cell->metrics[i].values = values;
    }
    struct dpb_gate_run *runs = realloc(cell->runs, count * sizeof(*runs));
    if (!runs)
        return DPB_ERR_NO_MEMORY;
    cell->runs = runs;
    runs[cell->run_count] = *run;
    *number = cell->run_count++;
    return DPB_OK;
}

double dpb_gate_set_age_days(const struct dpb_gate_set *set, double now_s)
{
    double oldest_s = INFINITY;

    for (size_t c = 0; c < set->cell_count; c++)
        for (size_t r = 0; r < set->cells[c].run_count; r++) {
            double made_s = set->cells[c].runs[r].time_s;

            if (isnan(made_s))
                made_s = set->saved_s > 0 ? set->saved_s : NAN;
            if (isnan(made_s))
                return NAN;
            oldest_s = fmin(oldest_s, made_s);
        }
    return isfinite(oldest_s) ? (now_s - oldest_s) / 86400 : NAN;
}

static struct dpb_gate_values *add_metric(struct dpb_gate_cell *cell,
                                          const struct dpb_gate_metric *metric)
{
    struct dpb_gate_values *metrics =
            realloc(cell->metrics, (cell->metric_count + 1) * sizeof(*metrics));

    if (!metrics)
        return NULL;
    cell->metrics = metrics;
    double *values = malloc((cell->run_count + 1) * sizeof(*values));
    if (!values)
        return NULL;
    for (size_t i = 0; i < cell->run_count; i++)
        values[i] = NAN;
    metrics[cell->metric_count] = (struct dpb_gate_values){metric, values};
    return &metrics[cell->metric_count++];
}

static struct dpb_gate_values *find_metric(const struct dpb_gate_cell *cell, const char *name)
{
    for (size_t i = 0; i < cell->metric_count; i++)
        if (strcmp(cell->metrics[i].metric->name, name) == 0)
            return &cell->metrics[i];
    return NULL;
}

dpb_status dpb_gate_cell_set_value(struct dpb_gate_cell *cell, size_t run,
                                   const struct dpb_gate_metric *metric, double value)
{
    struct dpb_gate_values *values = find_metric(cell, metric->name);

    if (run >= cell->run_count)
        return DPB_ERR_INTERNAL;
    if (!values)
        values = add_metric(cell, metric);
    if (!values)
        return DPB_ERR_NO_MEMORY;
    values->values[run] = value;
    return DPB_OK;
}

const double *dpb_gate_cell_values(const struct dpb_gate_cell *cell, const char *metric)
{
    const struct dpb_gate_values *values = find_metric(cell, metric);

    return values ? values->values : NULL;
}

static struct dpb_gate_fact *find_fact(const struct dpb_gate_cell *cell, const char *key)
{
    for (size_t i = 0; i < cell->fact_count; i++)
        if (strcmp(cell->facts[i].key, key) == 0)
            return &cell->facts[i];
    return NULL;
}

/* The first text of a key stays: a cell whose runs disagree is told by gate_records.c. */
dpb_status dpb_gate_cell_set_fact(struct dpb_gate_cell *cell, const char *key, const char *text)
{
    if (find_fact(cell, key))
        return DPB_OK;

    struct dpb_gate_fact *facts = realloc(cell->facts, (cell->fact_count + 1) * sizeof(*facts));
    if (!facts)
        return DPB_ERR_NO_MEMORY;
    cell->facts = facts;
    struct dpb_gate_fact fact = {strdup(key), strdup(text)};
    if (!fact.key || !fact.text) {
        free(fact.key);
        free(fact.text);
        return DPB_ERR_NO_MEMORY;
    }
    facts[cell->fact_count++] = fact;
    return DPB_OK;
}

const char *dpb_gate_cell_fact(const struct dpb_gate_cell *cell, const char *key)
{
    const struct dpb_gate_fact *fact = find_fact(cell, key);

    return fact ? fact->text : NULL;
}

const char *dpb_gate_cell_how(const struct dpb_gate_cell *cell)
{
    static const char *const ways[] = {"simulated", "emulated"};
    const char *how = "";

    for (size_t w = 0; w < sizeof(ways) / sizeof(ways[0]); w++) {
        const char *fact = dpb_gate_cell_fact(cell, ways[w]);

        if (fact && strcmp(fact, "true") == 0)
            return ways[w];
        if (fact)
            how = "measured";
    }
    return how;
}

/* How far predictions are off: by source, model and strategy, and whether strategies come in the
 * order in which they were published. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_stats.h"
#include "validate.h"

#define WORST 12
#define TIE                                                                                        \
    0.02 /* throughputs closer than this have no order: published repeats differ so much           \
          */

static double error_points(const struct validate_row *row)
{
    return 100 * (row->predicted - row->published);
}

/* ---- groups ---- */

typedef const char *(*group_of)(const struct validate_row *row);

static const char *source_of(const struct validate_row *row)
{
    return row->project;
}

static const char *table_of(const struct validate_row *row)
{
    return row->source;
}

static const char *model_of(const struct validate_row *row)
{
    return row->model->name;
}

static const char *strategy_of(const struct validate_row *row)
{
    return row->how.wants_mwms && row->across ? "mwms" : row->how.strategy;
}

struct errors {
    double *points, *held_out, *perfect; /* absolute; room for all rows */
};

static dpb_json *errors_json(const struct validate_table *table, struct errors *errors,
                             group_of group, const char *name)
{
    dpb_json *json = dpb_json_object();
    double worst = 0;
    size_t count = 0;

    for (size_t i = 0; i < table->count; i++) {
        const struct validate_row *row = &table->row[i];

        if (row->exclusion || (group && strcmp(group(row), name) != 0))
            continue;
        errors->points[count] = fabs(error_points(row));
        errors->perfect[count] = 100 * fabs(1 - row->published);
        errors->held_out[count++] = 100 * fabs(row->held_out - row->published);
        if (fabs(error_points(row)) > fabs(worst))
            worst = error_points(row);
    }
    dpb_json_set_int(json, "rows_in_scope", (int64_t)count);
    dpb_json_set_real(json, "median_abs_error_points", dpb_stats_median(errors->points, count));
    dpb_json_set_real(json, "held_out_median_abs_error_points",
                      dpb_stats_median(errors->held_out, count));
    dpb_json_set_real(json, "perfect_scaling_median_abs_error_points",
                      dpb_stats_median(errors->perfect, count));
    dpb_json_set_real(json, "worst_error_points", worst);
    return json;
}

static dpb_json *groups_json(const struct validate_table *table, struct errors *errors,
                             group_of group)
{
    dpb_json *groups = dpb_json_object();

    for (size_t i = 0; i < table->count; i++) {
        const struct validate_row *row = &table->row[i];

        if (!row->exclusion && !dpb_json_get(groups, group(row)))
            dpb_json_set(groups, group(row), errors_json(table, errors, group, group(row)));
    }
    return groups;
}

/* ---- rows ---- */

static dpb_json *row_json(const struct validate_table *table, const struct validate_row *row)
{
    dpb_json *json = dpb_json_object();

    dpb_json_set_int(json, "line", table->csv.line[row->at]);
    dpb_json_set_string(json, "source", row->source);
    dpb_json_set_string(json, "system", row->system);
    dpb_json_set_string(json, "model", row->model_text);
    dpb_json_set_string(json, "precision", row->precision);
    dpb_json_set_string(json, "machine", row->machine.name);
    dpb_json_set_string(json, "strategy", strategy_of(row));
    dpb_json_set_int(json, "gpus", (int64_t)row->gpus);
    dpb_json_set_int(json, "base_gpus", (int64_t)row->base->gpus);
    dpb_json_set_real(json, "published_efficiency_pct", 100 * row->published);
    dpb_json_set_real(json, "predicted_efficiency_pct", 100 * row->predicted);
    dpb_json_set_real(json, "held_out_efficiency_pct", 100 * row->held_out);
    dpb_json_set_real(json, "error_points", error_points(row));
    return json;
}

static dpb_json *predictions_json(const struct validate_table *table)
{
    dpb_json *list = dpb_json_array();

    for (size_t i = 0; i < table->count; i++)
        if (!table->row[i].exclusion)
            dpb_json_append(list, row_json(table, &table->row[i]));
    return list;
}

static int by_error(const void *a, const void *b)
{
    const struct validate_row *x = *(const struct validate_row *const *)a,
                              *y = *(const struct validate_row *const *)b;
    const double ex = fabs(error_points(x)), ey = fabs(error_points(y));

    return ex != ey ? (ex < ey) - (ex > ey) : (x->at > y->at) - (x->at < y->at);
}

static dpb_json *worst_json(const struct validate_table *table)
{
    const struct validate_row **rows =
            calloc(table->count + 1, sizeof(const struct validate_row *));
    dpb_json *list = dpb_json_array();
    size_t count = 0;

    for (size_t i = 0; rows && i < table->count; i++)
        if (!table->row[i].exclusion)
            rows[count++] = &table->row[i];
    if (rows)
        qsort(rows, count, sizeof(const struct validate_row *), by_error);
    for (size_t i = 0; i < count && i < WORST; i++)
        dpb_json_append(list, row_json(table, rows[i]));
    free(rows);
    return list;
}

static dpb_json *exclusions_json(const struct validate_table *table)
{
    dpb_json *reasons = dpb_json_object();

    for (size_t i = 0; i < table->count; i++) {
        const char *reason = table->row[i].exclusion;

        if (reason)
            dpb_json_set_int(reasons, reason,
                             1 + dpb_json_as_int(dpb_json_get(reasons, reason), 0));
    }
    return reasons;
}

/* ---- ranking ---- */

static bool are_rivals(const struct validate_row *a, const struct validate_row *b)
{
    return !a->exclusion && !b->exclusion && strcmp(strategy_of(a), strategy_of(b)) != 0 &&
           strcmp(a->project, b->project) == 0 && strcmp(a->gpu, b->gpu) == 0 &&
           strcmp(a->interconnect, b->interconnect) == 0 && a->model == b->model &&
           a->gpus == b->gpus && a->batch == b->batch && a->is_reduced == b->is_reduced &&
           a->is_stored == b->is_stored;
}

struct order {
    int64_t pairs, agree;
};

static void compare(double published_a, double published_b, double predicted_a, double predicted_b,
                    struct order *order)
{
    if (fabs(published_a - published_b) <= TIE * fmax(published_a, published_b))
        return;
    order->pairs++;
    order->agree += (published_a > published_b) == (predicted_a > predicted_b);
}

static double share(const struct order *order)
{
    return order->pairs ? (double)order->agree / (double)order->pairs : NAN;
}

static double of_one(const struct validate_row *row)
{
    return row->base->throughput / row->base->gpus;
}

/* By throughput, as predicted and as the smallest runs alone have it; and by efficiency. */
static void set_ranking(dpb_json *json, const struct validate_table *table, double *agreement)
{
    struct order throughput = {0}, smallest = {0}, efficiency = {0};

    for (size_t i = 0; i < table->count; i++) {
        for (size_t j = 0; j < i; j++) {
            const struct validate_row *a = &table->row[i], *b = &table->row[j];

            if (!are_rivals(a, b))
                continue;
            compare(a->throughput, b->throughput, a->predicted * of_one(a),
                    b->predicted * of_one(b), &throughput);
            compare(a->throughput, b->throughput, of_one(a), of_one(b), &smallest);
            compare(a->published, b->published, a->predicted, b->predicted, &efficiency);
        }
    }
    *agreement = share(&throughput);
    dpb_json_set_int(json, "ranking_pairs", throughput.pairs);
    dpb_json_set_real(json, "ranking_agreement", *agreement);
    dpb_json_set_real(json, "ranking_agreement_smallest_runs", share(&smallest));
    dpb_json_set_int(json, "ranking_pairs_efficiency", efficiency.pairs);
    dpb_json_set_real(json, "ranking_agreement_efficiency", share(&efficiency));
}

/* ---- targets ---- */

static bool sources_hold(const dpb_json *sources)
{
    const dpb_json *source;

    for (dpb_json_walk walk = {0}; (source = dpb_json_next(sources, &walk, NULL));)
        if (!(dpb_json_as_real(dpb_json_get(source, "held_out_median_abs_error_points"), NAN) <=
              DPB_VALIDATE_HELD_OUT_POINTS))
            return false;
    return true;
}

/* Without pairs there is no order to miss. */
static dpb_json *targets_json(const dpb_json *report, double agreement, bool *all_hold)
{
    dpb_json *json = dpb_json_object();
    const bool median = dpb_json_as_real(dpb_json_get(report, "median_abs_error_points"), NAN) <=
                        DPB_VALIDATE_MEDIAN_POINTS,
               held_out = sources_hold(dpb_json_get(report, "per_source")),
               ranking = isnan(agreement) || agreement >= DPB_VALIDATE_RANKING;

    dpb_json_set_bool(json, "median_abs_error_points", median);
    dpb_json_set_bool(json, "held_out_median_abs_error_points", held_out);
    dpb_json_set_bool(json, "ranking_agreement", ranking);
    *all_hold = median && held_out && ranking;
    return json;
}

/* ---- all of it ---- */

static dpb_json *constants_json(const struct validate_fit *fit)
{
    dpb_json *json = dpb_json_object();

    for (int c = 0; c < VALIDATE_CONSTANT_COUNT; c++)
        dpb_json_set_real(json, validate_constant_name(c), fit->all.value[c]);
    return json;
}

dpb_json *validate_report(const struct validate_table *table, const struct validate_fit *fit,
                          bool *targets_hold)
{
    struct errors errors = {calloc(table->count + 1, sizeof(double)),
                            calloc(table->count + 1, sizeof(double)),
                            calloc(table->count + 1, sizeof(double))};
    dpb_json *report = NULL;
    double agreement;

    if (errors.points && errors.held_out && errors.perfect) {
        report = errors_json(table, &errors, NULL, NULL);
        dpb_json_set_string(report, "file", table->csv.file);
        dpb_json_set_int(report, "rows", (int64_t)table->count);
        dpb_json_set(report, "per_source", groups_json(table, &errors, source_of));
        dpb_json_set(report, "per_table", groups_json(table, &errors, table_of));
        dpb_json_set(report, "per_model", groups_json(table, &errors, model_of));
        dpb_json_set(report, "per_strategy", groups_json(table, &errors, strategy_of));
        set_ranking(report, table, &agreement);
        dpb_json_set(report, "excluded", exclusions_json(table));
        dpb_json_set(report, "worst", worst_json(table));
        dpb_json_set(report, "constants", constants_json(fit));
        dpb_json_set(report, "targets", targets_json(report, agreement, targets_hold));
        dpb_json_set(report, "predictions", predictions_json(table));
    }
    free(errors.points);
    free(errors.held_out);
    free(errors.perfect);
    return report;
}

/* Records -> one summary per cell, with scaling efficiency against its baseline. */
#include "dpb_summary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"
#include "dpb_units.h"

static const char *text_of(const dpb_json *record, const char *key)
{
    return dpb_json_as_string(dpb_json_get(record, key), "");
}

static int64_t int_of(const dpb_json *record, const char *key)
{
    return dpb_json_as_int(dpb_json_get(record, key), 0);
}

static bool flag_of(const dpb_json *record, const char *key)
{
    return dpb_json_as_bool(dpb_json_get(record, key), false);
}

static double real_at(const dpb_json *record, const char *path)
{
    return dpb_json_as_real(dpb_json_path(record, path), NAN);
}

static bool is_ok(const dpb_json *record)
{
    return strcmp(text_of(record, "status"), "ok") == 0;
}

static bool is_of_cell(const dpb_json *record, const struct dpb_cell_summary *cell)
{
    return int_of(record, "cell") == cell->cell &&
           strcmp(text_of(record, "run_id"), cell->run_id) == 0;
}

/* ---- one cell ---- */

/* Records of one cell, each repeat once. */
struct members {
    const dpb_json **records;
    size_t count;
};

/* A repeat that was run again, after an interruption say, counts once: the last record of it. */
static size_t add_member(struct members *members, const dpb_json *record)
{
    size_t i;

    for (i = 0; i < members->count; i++) {
        if (int_of(members->records[i], "repeat") == int_of(record, "repeat")) {
            members->records[i] = record;
            return 1;
        }
    }
    members->records[members->count++] = record;
    return 0;
}

/* The median over the cell's ok repeats of one value of each; NaN when none has it. */
static double repeats_median(const struct members *members, const char *path, double *scratch)
{
    size_t count = 0, i;

    for (i = 0; i < members->count; i++) {
        double value = is_ok(members->records[i]) ? real_at(members->records[i], path) : NAN;

        if (isfinite(value))
            scratch[count++] = value;
    }
    return dpb_stats_median(scratch, count);
}

static double repeats_mean(const struct members *members, const char *path, double *scratch)
{
    size_t count = 0, i;

    for (i = 0; i < members->count; i++) {
        double value = is_ok(members->records[i]) ? real_at(members->records[i], path) : NAN;

        if (isfinite(value))
            scratch[count++] = value;
    }
    return dpb_stats_mean(scratch, count);
}

static size_t sample_count(const struct members *members)
{
    size_t count = 0, i;

    for (i = 0; i < members->count; i++) {
        if (is_ok(members->records[i]))
            count += dpb_json_size(dpb_json_get(members->records[i], "samples_step_ns"));
    }
    return count;
}

static size_t copy_samples(const dpb_json *record, double *values)
{
    const dpb_json *samples = dpb_json_get(record, "samples_step_ns");
    const dpb_json *sample;
    dpb_json_walk walk = {0};
    size_t count = 0;

    while ((sample = dpb_json_next(samples, &walk, NULL)))
        values[count++] = dpb_json_as_real(sample, NAN);
    return count;
}

static double sum(const double *values, size_t count)
{
    double total = 0;
    size_t i;

    for (i = 0; i < count; i++)
        total += values[i];
    return total;
}

/* `values` has room for every sample of the cell. */
static void summarize_steps(struct dpb_cell_summary *cell, const struct members *members,
                            double *values)
{
    double total_ns = 0;
    size_t count = 0, repeat = 0, i;

    for (i = 0; i < members->count; i++) {
        double *own = values + count;
        size_t own_count;
        double own_ns;

        if (!is_ok(members->records[i]))
            continue;
        own_count = copy_samples(members->records[i], own);
        own_ns = sum(own, own_count);
        cell->repeat_median_ns[repeat] = dpb_stats_median(own, own_count);
        cell->repeat_samples_per_s[repeat] =
                (double)own_count * (double)cell->global_batch / (own_ns * 1e-9);
        total_ns += own_ns;
        count += own_count;
        repeat++;
    }
    cell->step_median_ns = dpb_stats_median(cell->repeat_median_ns, repeat);
    cell->step_ci95_ns = dpb_stats_mean_ci95(cell->repeat_median_ns, repeat);
    cell->step_mean_ns = dpb_stats_mean(values, count);
    cell->step_mad_ns = dpb_stats_mad(values, count);
    cell->step_p5_ns = dpb_stats_tail_quantile(values, count, 0.05);
    cell->step_p50_ns = dpb_stats_quantile(values, count, 0.5);
    cell->step_p95_ns = dpb_stats_tail_quantile(values, count, 0.95);
    cell->step_p99_ns = dpb_stats_tail_quantile(values, count, 0.99);
    if (count > 0) {
        cell->samples_per_s_total = (double)count * (double)cell->global_batch / (total_ns * 1e-9);
        cell->samples_per_s_per_rank = cell->samples_per_s_total / cell->ranks;
    }
    cell->samples_per_s_ci95 = dpb_stats_mean_ci95(cell->repeat_samples_per_s, repeat);
}

/* Sum of one entry of "overlap" over the ok repeats that were traced, per rank and step. */
static double per_rank_step(const struct members *members, const char *key)
{
    double total = 0, rank_steps = 0;
    size_t i;

    for (i = 0; i < members->count; i++) {
        const dpb_json *overlap = dpb_json_get(members->records[i], "overlap");
        double steps = dpb_json_as_real(dpb_json_get(overlap, "rank_steps"), 0);
        double value = dpb_json_as_real(dpb_json_get(overlap, key), NAN);

        if (!is_ok(members->records[i]) || !(steps > 0) || !isfinite(value))
            continue;
        total += value;
        rank_steps += steps;
    }
    return rank_steps > 0 ? total / rank_steps : NAN;
}

static void summarize_trace(struct dpb_cell_summary *cell, const struct members *members)
{
    cell->span_ns = per_rank_step(members, "span_ns");
    cell->compute_ns = per_rank_step(members, "compute_ns");
    cell->comm_ns = per_rank_step(members, "comm_ns");
    cell->overlap_ns = per_rank_step(members, "overlap_ns");
    cell->exposed_ns = per_rank_step(members, "exposed_ns");
    cell->comm_wait_ns = per_rank_step(members, "comm_wait_ns");
    cell->idle_ns = per_rank_step(members, "idle_ns");
    cell->data_ns = per_rank_step(members, "data_ns");
    if (cell->span_ns > 0) {
        cell->exposed_share = cell->exposed_ns / cell->span_ns;
        cell->comm_share = cell->comm_ns / cell->span_ns;
    }
    if (cell->comm_ns > 0)
        cell->overlap_fraction = cell->overlap_ns / cell->comm_ns;
}

static void summarize_repeats(struct dpb_cell_summary *cell, const struct members *members,
                              double *scratch)
{
    size_t i;

    for (i = 0; i < members->count; i++) {
        const dpb_json *record = members->records[i];
        double availability = real_at(record, "probe/availability_ratio");

        if (!is_ok(record))
            continue;
        if (dpb_json_as_bool(dpb_json_path(record, "probe/flagged"), false))
            cell->flagged = true;
        if (isfinite(availability) && !(cell->availability <= availability))
            cell->availability = availability;
    }
    if (cell->ranks > 1) {
        cell->busbw_bytes_per_s =
                repeats_median(members, "communication/busbw_bytes_per_s", scratch);
        cell->wire_ns = repeats_median(members, "communication/wire_ns_per_step", scratch);
        cell->progress_cpu_ns = repeats_median(members, "progress/cpu_ns_per_collective", scratch);
        cell->wake_late_p99_ns = repeats_median(members, "progress/wake_late_p99_ns", scratch);
    }
    cell->trace_overhead = repeats_median(members, "trace/overhead_ratio", scratch);
    cell->test_accuracy = repeats_mean(members, "training/test_accuracy", scratch);
    cell->loss_first = repeats_mean(members, "training/loss_first", scratch);
    cell->loss_last = repeats_mean(members, "training/loss_last", scratch);
}

static void count_repeats(struct dpb_cell_summary *cell, const struct members *members)
{
    size_t i;

    cell->first = members->records[0];
    for (i = 0; i < members->count; i++) {
        const dpb_json *record = members->records[i];

        if (is_ok(record)) {
            if (cell->repeats_ok++ == 0)
                cell->first = record;
        } else if (cell->repeats_not_ok++ == 0) {
            cell->not_ok_status = text_of(record, "status");
            cell->not_ok_reason =
                    dpb_json_as_string(dpb_json_get(record, "reason"), "no reason recorded");
        }
    }
}

static void identify(struct dpb_cell_summary *cell, const dpb_json *record)
{
    const struct dpb_interval95 none = {NAN, NAN};

    *cell = (struct dpb_cell_summary){
            .first = record,
            .run_id = text_of(record, "run_id"),
            .series = text_of(record, "series"),
            .compute_series = text_of(record, "compute_series"),
            .cell = int_of(record, "cell"),
            .ranks = (int)int_of(record, "ranks"),
            .weak = strcmp(text_of(record, "scaling"), "weak") == 0,
            .global_batch = int_of(record, "global_batch"),
            .batch_per_rank = int_of(record, "batch_per_rank"),
            .emulated = flag_of(record, "emulated"),
            .simulated = flag_of(record, "simulated"),
            .step_median_ns = NAN,
            .step_mean_ns = NAN,
            .step_mad_ns = NAN,
            .step_p5_ns = NAN,
            .step_p50_ns = NAN,
            .step_p95_ns = NAN,
            .step_p99_ns = NAN,
            .step_ci95_ns = none,
            .samples_per_s_total = NAN,
            .samples_per_s_per_rank = NAN,
            .samples_per_s_ci95 = none,
            .speedup = NAN,
            .efficiency = NAN,
            .efficiency_ci95 = none,
            .span_ns = NAN,
            .compute_ns = NAN,
            .comm_ns = NAN,
            .overlap_ns = NAN,
            .exposed_ns = NAN,
            .comm_wait_ns = NAN,
            .idle_ns = NAN,
            .data_ns = NAN,
            .exposed_share = NAN,
            .overlap_fraction = NAN,
            .comm_share = NAN,
            .busbw_bytes_per_s = NAN,
            .wire_ns = NAN,
            .progress_cpu_ns = NAN,
            .wake_late_p99_ns = NAN,
            .availability = NAN,
            .trace_overhead = NAN,
            .test_accuracy = NAN,
            .loss_first = NAN,
            .loss_last = NAN,
    };
}

/* Fill in one cell; `members` has room for every record. */
static dpb_status summarize_cell(struct dpb_summary *summary, struct dpb_cell_summary *cell,
                                 struct members *members)
{
    const struct dpb_records *records = summary->records;
    size_t room, i;
    double *values;

    members->count = 0;
    for (i = 0; i < records->count; i++) {
        if (is_of_cell(records->items[i], cell))
            summary->superseded += add_member(members, records->items[i]);
    }
    count_repeats(cell, members);
    /* what never ran, or was interrupted, does not know of a link */
    cell->emulated = flag_of(cell->first, "emulated");
    cell->repeat_median_ns = calloc(members->count, sizeof(double));
    cell->repeat_samples_per_s = calloc(members->count, sizeof(double));
    room = sample_count(members) + members->count;
    values = calloc(room, sizeof(*values));
    if (cell->repeat_median_ns && cell->repeat_samples_per_s && values) {
        summarize_steps(cell, members, values);
        summarize_trace(cell, members);
        summarize_repeats(cell, members, values);
    }
    free(values);
    return cell->repeat_median_ns && cell->repeat_samples_per_s && values ? DPB_OK
                                                                          : DPB_ERR_NO_MEMORY;
}

/* ---- the baseline ---- */

static bool is_comparable(const struct dpb_cell_summary *cell, const struct dpb_cell_summary *other)
{
    bool same_batch = cell->weak ? cell->batch_per_rank == other->batch_per_rank
                                 : cell->global_batch == other->global_batch;

    return cell->weak == other->weak && same_batch && cell->simulated == other->simulated &&
           strcmp(text_of(cell->first, "fingerprint"), text_of(other->first, "fingerprint")) == 0;
}

/* Smaller is better: few ranks, the same run, the same series. */
static int baseline_rank(const struct dpb_cell_summary *cell, const struct dpb_cell_summary *other)
{
    int other_run = strcmp(cell->run_id, other->run_id) != 0;
    int other_series = strcmp(cell->series, other->series) != 0;

    return 4 * other->ranks + 2 * other_run + other_series;
}

static const struct dpb_cell_summary *find_baseline(const struct dpb_summary *summary,
                                                    const struct dpb_cell_summary *cell)
{
    const struct dpb_cell_summary *best = NULL;
    size_t i;

    for (i = 0; i < summary->cell_count; i++) {
        const struct dpb_cell_summary *other = &summary->cells[i];
        bool same_curve =
                strcmp(cell->series, other->series) == 0 ||
                (other->ranks == 1 && strcmp(cell->compute_series, other->compute_series) == 0);

        if (other->repeats_ok == 0 || !same_curve || !is_comparable(cell, other))
            continue;
        if (!best || baseline_rank(cell, other) < baseline_rank(cell, best))
            best = other;
    }
    return best;
}

/* Does some cell have this one as its baseline and more ranks? */
static bool carries_others(const struct dpb_summary *summary, const struct dpb_cell_summary *cell)
{
    size_t i;

    for (i = 0; i < summary->cell_count; i++) {
        const struct dpb_cell_summary *other = &summary->cells[i];

        if (other->ranks > cell->ranks && find_baseline(summary, other) == cell)
            return true;
    }
    return false;
}

static void compare_with_baseline(const struct dpb_summary *summary, struct dpb_cell_summary *cell)
{
    const struct dpb_cell_summary *baseline = find_baseline(summary, cell);

    if (cell->repeats_ok == 0 || !baseline)
        return;
    if (baseline->ranks == cell->ranks) {
        /* against itself: worth saying only where a curve begins */
        if (cell->ranks > 1 && !carries_others(summary, baseline))
            return;
        baseline = cell;
    }
    cell->baseline = baseline;
    cell->baseline_ranks = baseline->ranks;
    cell->efficiency = cell->samples_per_s_total * baseline->ranks /
                       (baseline->samples_per_s_total * cell->ranks);
    cell->speedup = cell->efficiency * cell->ranks;
    if (baseline != cell) {
        double scale = (double)baseline->ranks / cell->ranks;
        struct dpb_interval95 ratio =
                dpb_stats_ratio_ci95(cell->repeat_samples_per_s, cell->repeats_ok,
                                     baseline->repeat_samples_per_s, baseline->repeats_ok);

        cell->efficiency_ci95 = (struct dpb_interval95){ratio.low * scale, ratio.high * scale};
    }
}

/* ---- all of them ---- */

static int compare_cells(const void *left, const void *right)
{
    const struct dpb_cell_summary *a = left, *b = right;
    int series = strcmp(a->series, b->series);

    if (series)
        return series;
    if (a->ranks != b->ranks)
        return a->ranks < b->ranks ? -1 : 1;
    if (a->cell != b->cell)
        return a->cell < b->cell ? -1 : 1;
    return strcmp(a->run_id, b->run_id);
}

static void find_cells(struct dpb_summary *summary)
{
    const struct dpb_records *records = summary->records;
    size_t i, c;

    for (i = 0; i < records->count; i++) {
        for (c = 0; c < summary->cell_count; c++) {
            if (is_of_cell(records->items[i], &summary->cells[c]))
                break;
        }
        if (c == summary->cell_count)
            identify(&summary->cells[summary->cell_count++], records->items[i]);
    }
    if (summary->cell_count > 1) {
        qsort(summary->cells, summary->cell_count, sizeof(summary->cells[0]), compare_cells);
    }
}

dpb_status dpb_summary_compute(const struct dpb_records *records, struct dpb_summary *summary)
{
    struct members members = {0};
    bool any_ok = false;
    size_t i;

    *summary = (struct dpb_summary){.records = records};
    summary->cells = calloc(records->count + 1, sizeof(summary->cells[0]));
    members.records = calloc(records->count + 1, sizeof(members.records[0]));
    if (!summary->cells || !members.records)
        goto err_no_memory;
    find_cells(summary);
    for (i = 0; i < summary->cell_count; i++) {
        if (summarize_cell(summary, &summary->cells[i], &members) < 0)
            goto err_no_memory;
        any_ok = any_ok || summary->cells[i].repeats_ok > 0;
    }
    free(members.records);
    for (i = 0; i < summary->cell_count; i++)
        compare_with_baseline(summary, &summary->cells[i]);
    if (!any_ok) {
        dpb_error("none of %zu records is ok, so there is nothing to compute", records->count);
        if (summary->cell_count > 0)
            dpb_log_hint("the first one: %s: %s", summary->cells[0].not_ok_status,
                         summary->cells[0].not_ok_reason);
        return DPB_ERR_NO_DATA;
    }
    return DPB_OK;

err_no_memory:
    free(members.records);
    dpb_summary_release(summary);
    dpb_error("cannot summarise %zu records: out of memory", records->count);
    return DPB_ERR_NO_MEMORY;
}

void dpb_summary_release(struct dpb_summary *summary)
{
    size_t i;

    for (i = 0; i < summary->cell_count; i++) {
        free(summary->cells[i].repeat_median_ns);
        free(summary->cells[i].repeat_samples_per_s);
    }
    free(summary->cells);
    memset(summary, 0, sizeof(*summary));
}

/* ---- cells among others ---- */

/* Does "name=value name=value ..." name the option? */
static bool series_names(const char *series, const char *option)
{
    size_t length = strlen(option);
    const char *at;

    for (at = series; (at = strstr(at, option)); at += length) {
        if ((at == series || at[-1] == ' ') && at[length] == '=')
            return true;
    }
    return false;
}

const char *dpb_cell_axis(const struct dpb_cell_summary *cell, const char *axis)
{
    if (cell->ranks == 1 && strcmp(axis, "strategy") != 0 && series_names(cell->series, axis) &&
        !series_names(cell->compute_series, axis))
        return NULL;
    return dpb_json_as_string(dpb_json_get(dpb_json_get(cell->first, "axes"), axis), NULL);
}

void dpb_cell_label(const struct dpb_summary *summary, const struct dpb_cell_summary *cell,
                    struct dpb_str *label)
{
    const dpb_json *axes = dpb_json_get(cell->first, "axes");
    const char *axis;
    dpb_json_walk walk = {0};
    size_t i;

    for (i = 0; i < summary->cell_count; i++) {
        if (strcmp(summary->cells[i].run_id, cell->run_id) != 0) {
            dpb_str_appendf(label, "run %s, ", cell->run_id);
            break;
        }
    }
    dpb_str_appendf(label, "%d rank%s", cell->ranks, cell->ranks == 1 ? "" : "s");
    while (dpb_json_next(axes, &walk, &axis)) {
        const char *value = dpb_cell_axis(cell, axis);

        if (value && strcmp(axis, "ranks") != 0)
            dpb_str_appendf(label, ", %s %s", axis, value);
    }
}

static bool same_value(const char *a, const char *b)
{
    bool a_on, b_on;

    if (strcmp(a, b) == 0)
        return true;
    return dpb_parse_bool(a, &a_on, NULL) == DPB_OK && dpb_parse_bool(b, &b_on, NULL) == DPB_OK &&
           a_on == b_on;
}

static bool differs_in_axis_only(const struct dpb_cell_summary *cell,
                                 const struct dpb_cell_summary *other, const char *axis)
{
    const dpb_json *axes = dpb_json_get(cell->first, "axes");
    const dpb_json *other_axes = dpb_json_get(other->first, "axes");
    const dpb_json *value;
    const char *key;
    dpb_json_walk walk = {0};

    if (strcmp(cell->run_id, other->run_id) != 0 || cell->ranks != other->ranks ||
        dpb_json_size(axes) != dpb_json_size(other_axes))
        return false;
    while ((value = dpb_json_next(axes, &walk, &key))) {
        const char *other_text = dpb_json_as_string(dpb_json_get(other_axes, key), NULL);

        if (!other_text ||
            (strcmp(key, axis) != 0 && strcmp(other_text, dpb_json_as_string(value, "")) != 0))
            return false;
    }
    return true;
}

const struct dpb_cell_summary *dpb_summary_twin(const struct dpb_summary *summary,
                                                const struct dpb_cell_summary *cell,
                                                const char *axis, const char *value)
{
    size_t i;

    for (i = 0; i < summary->cell_count; i++) {
        const struct dpb_cell_summary *other = &summary->cells[i];
        const char *other_value = dpb_cell_axis(other, axis);

        if (other != cell && other_value && same_value(other_value, value) &&
            differs_in_axis_only(cell, other, axis))
            return other;
    }
    return NULL;
}

double dpb_cell_speedup(const struct dpb_cell_summary *on, const struct dpb_cell_summary *off,
                        struct dpb_interval95 *ci95)
{
    *ci95 = dpb_stats_ratio_ci95(off->repeat_median_ns, off->repeats_ok, on->repeat_median_ns,
                                 on->repeats_ok);
    return off->step_median_ns / on->step_median_ns;
}

double dpb_cell_comm_inflation(const struct dpb_cell_summary *on,
                               const struct dpb_cell_summary *off)
{
    return off->busbw_bytes_per_s / on->busbw_bytes_per_s;
}

#define VAGUE 100 /* between the ends of a ratio's interval */

void dpb_ratio_interval_text(struct dpb_interval95 interval, double scale, int decimals,
                             const char *unit, struct dpb_str *out)
{
    if (interval.high > VAGUE * interval.low)
        dpb_str_appendf(out, "wider than x%d", VAGUE);
    else
        dpb_str_appendf(out, "%.*f to %.*f%s", decimals, scale * interval.low, decimals,
                        scale * interval.high, unit);
}

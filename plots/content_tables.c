/* The tables of a report; the unit of a column stands in its header. */
#include "content.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "view.h"

static void headers(struct dpb_document *document, const char *const *texts, size_t count)
{
    size_t i;

    for (i = 0; i < count; i++)
        dpb_document_cell(document, texts[i]);
}

#define HEADERS(document, texts) headers(document, texts, sizeof(texts) / sizeof((texts)[0]))

static void take_int(struct dpb_document *document, int64_t value)
{
    struct dpb_str text = {0};

    dpb_str_appendf(&text, "%" PRId64, value);
    dpb_document_take(document, &text);
}

typedef void view_number(double value, struct dpb_str *out);

static void take_number(struct dpb_document *document, view_number *view, double value)
{
    struct dpb_str text = {0};

    view(value, &text);
    dpb_document_take(document, &text);
}

static void view_whole(double value, struct dpb_str *out)
{
    dpb_view_number(value, 0, out);
}

static void view_one_decimal(double value, struct dpb_str *out)
{
    dpb_view_number(value, 1, out);
}

static void view_two_decimals(double value, struct dpb_str *out)
{
    dpb_view_number(value, 2, out);
}

static void view_three_decimals(double value, struct dpb_str *out)
{
    dpb_view_number(value, 3, out);
}

static void view_four_decimals(double value, struct dpb_str *out)
{
    dpb_view_number(value, 4, out);
}

static void view_giga(double value, struct dpb_str *out)
{
    dpb_view_rate(value / 1e9, out);
}

/* Of a ratio: "68.1 to 74.0", "wider than x100", or a dash */
static void take_interval(struct dpb_document *document, struct dpb_interval95 interval,
                          double scale, int decimals)
{
    struct dpb_str text = {0};

    if (isfinite(interval.low))
        dpb_ratio_interval_text(interval, scale, decimals, "", &text);
    else
        dpb_str_append(&text, DPB_VIEW_ABSENT);
    dpb_document_take(document, &text);
}

static void take_label(const struct dpb_summary *summary, const struct dpb_cell_summary *cell,
                       struct dpb_document *document)
{
    struct dpb_str label = {0};

    dpb_cell_label(summary, cell, &label);
    dpb_document_take(document, &label);
}

/* The columns that tell cells apart: run, ranks, axes. */
static void axis_headers(const struct dpb_axes *axes, struct dpb_document *document)
{
    size_t i;

    if (axes->many_runs)
        dpb_document_cell(document, "run");
    dpb_document_cell(document, "ranks");
    for (i = 0; i < axes->count; i++)
        dpb_document_cell(document, axes->names[i]);
}

static void axis_cells(const struct dpb_axes *axes, const struct dpb_cell_summary *cell,
                       struct dpb_document *document)
{
    size_t i;

    if (axes->many_runs)
        dpb_document_cell(document, cell->run_id);
    take_int(document, cell->ranks);
    for (i = 0; i < axes->count; i++) {
        const char *value = dpb_cell_axis(cell, axes->names[i]);

        dpb_document_cell(document, value ? value : DPB_VIEW_ABSENT);
    }
}

/* "emulated 25Gbps, 5us, flagged", or the status of a cell that is not ok */
static void take_how(const struct dpb_cell_summary *cell, struct dpb_document *document)
{
    struct dpb_str how = {0};

    if (cell->repeats_ok == 0)
        dpb_str_append(&how, cell->not_ok_status);
    else
        dpb_view_how(cell, &how);
    if (cell->flagged)
        dpb_str_append(&how, ", flagged");
    dpb_document_take(document, &how);
}

/* All cells as a reader looks for them; sets `failed` of the document when out of memory. */
static const struct dpb_cell_summary **ordered(const struct dpb_summary *summary,
                                               struct dpb_document *document)
{
    const struct dpb_cell_summary **cells = dpb_view_cells(summary);

    if (!cells)
        document->failed = true;
    return cells;
}

void dpb_content_results(const struct dpb_summary *summary, struct dpb_document *document)
{
    static const char *const columns[] = {"how obtained",           "batch per rank (samples)",
                                          "global batch (samples)", "step time, median (ms)",
                                          "\xc2\xb1 95 % (ms)",     "throughput (samples/s)",
                                          "speed-up (times)",       "efficiency (%)",
                                          "95 % interval (%)",      "ok repeats"};
    const struct dpb_cell_summary **cells = ordered(summary, document);
    struct dpb_axes axes = dpb_axes_of(summary);
    size_t own = sizeof(columns) / sizeof(columns[0]), axis_count, i;

    axis_count = axes.count + axes.many_runs + 1;
    dpb_document_table(document, axis_count + own, axis_count + 1);
    axis_headers(&axes, document);
    HEADERS(document, columns);
    for (i = 0; cells && i < summary->cell_count; i++) {
        const struct dpb_cell_summary *cell = cells[i];
        struct dpb_str repeats = {0};

        axis_cells(&axes, cell, document);
        take_how(cell, document);
        take_int(document, cell->batch_per_rank);
        take_int(document, cell->global_batch);
        take_number(document, dpb_view_ms, cell->step_median_ns);
        take_number(document, dpb_view_ms, dpb_interval_half(cell->step_ci95_ns));
        take_number(document, dpb_view_rate, cell->samples_per_s_total);
        take_number(document, view_two_decimals, cell->speedup);
        take_number(document, dpb_view_percent, cell->efficiency);
        take_interval(document, cell->efficiency_ci95, 100, 1);
        dpb_str_appendf(&repeats, "%zu of %zu", cell->repeats_ok,
                        cell->repeats_ok + cell->repeats_not_ok);
        dpb_document_take(document, &repeats);
    }
    free(cells);
}

void dpb_content_overlap(const struct dpb_summary *summary, struct dpb_document *document)
{
    static const char *const columns[] = {
            "T_off (ms)",       "T_on (ms)",       "speed-up T_off/T_on", "95 % interval",
            "exposed, off (%)", "exposed, on (%)", "overlapped, on (%)",  "comm on/off"};
    const struct dpb_cell_summary **cells = ordered(summary, document);
    struct dpb_axes axes = dpb_axes_of(summary);
    size_t i;
    bool any = false;

    for (i = 0; cells && i < summary->cell_count; i++) {
        const struct dpb_cell_summary *on = cells[i];
        const struct dpb_cell_summary *off = dpb_summary_twin(summary, on, "overlap", "off");
        struct dpb_interval95 ci95;
        double speedup;

        if (!off || on->ranks < 2 || on->repeats_ok == 0 || off->repeats_ok == 0)
            continue;
        if (!any) {
            dpb_document_heading(document, 3, "What overlap brings, at the same options");
            dpb_document_table(document, 9, 1);
            dpb_document_cell(document, "cell");
            HEADERS(document, columns);
            any = true;
        }
        speedup = dpb_cell_speedup(on, off, &ci95);
        {
            struct dpb_str label = {0};

            dpb_str_appendf(&label, "%d ranks", on->ranks);
            if (axes.count > 1 || axes.many_runs) {
                dpb_str_append(&label, ", ");
                dpb_view_axes(&axes, on, "overlap", &label);
            }
            dpb_document_take(document, &label);
        }
        take_number(document, dpb_view_ms, off->step_median_ns);
        take_number(document, dpb_view_ms, on->step_median_ns);
        take_number(document, view_three_decimals, speedup);
        take_interval(document, ci95, 1, 3);
        take_number(document, dpb_view_percent, off->exposed_share);
        take_number(document, dpb_view_percent, on->exposed_share);
        take_number(document, dpb_view_percent, on->overlap_fraction);
        take_number(document, view_two_decimals, dpb_cell_comm_inflation(on, off));
    }
    free(cells);
}

/* ---- tables of numbers, one row per cell: described, and drawn by one function ---- */

struct column {
    const char *header;
    view_number *view;
    double (*value)(const struct dpb_cell_summary *cell);
};

struct cell_table {
    int level;
    const char *heading;
    const struct column *columns;
    size_t column_count;
    bool (*shows)(const struct dpb_cell_summary *cell); /* has this cell a row? */
    const char *note;                                   /* below the table */
};

#define CELL_TABLE(...) (&(const struct cell_table){__VA_ARGS__})

static void cell_table(const struct dpb_summary *summary, const struct cell_table *table,
                       struct dpb_document *document)
{
    const struct dpb_cell_summary **cells = ordered(summary, document);
    bool any = false;

    for (size_t i = 0; cells && i < summary->cell_count; i++) {
        if (!table->shows(cells[i]))
            continue;
        if (!any) {
            dpb_document_heading(document, table->level, table->heading);
            dpb_document_table(document, 1 + table->column_count, 1);
            dpb_document_cell(document, "cell");
            for (size_t c = 0; c < table->column_count; c++)
                dpb_document_cell(document, table->columns[c].header);
            any = true;
        }
        take_label(summary, cells[i], document);
        for (size_t c = 0; c < table->column_count; c++)
            take_number(document, table->columns[c].view, table->columns[c].value(cells[i]));
    }
    if (any)
        dpb_document_paragraph(document, table->note);
    free(cells);
}

/* A column's value that is a member of the summary. */
#define MEMBER(member)                                                                             \
    static double value_##member(const struct dpb_cell_summary *cell)                              \
    {                                                                                              \
        return cell->member;                                                                       \
    }
MEMBER(span_ns)
MEMBER(compute_ns)
MEMBER(exposed_ns)
MEMBER(comm_wait_ns)
MEMBER(idle_ns)
MEMBER(data_ns)
MEMBER(comm_ns)
MEMBER(overlap_fraction)
MEMBER(exposed_share)
MEMBER(busbw_bytes_per_s)
MEMBER(trace_overhead)
MEMBER(wire_ns)
MEMBER(progress_cpu_ns)
MEMBER(wake_late_p99_ns)
MEMBER(step_mean_ns)
MEMBER(step_mad_ns)
MEMBER(step_p5_ns)
MEMBER(step_p50_ns)
MEMBER(step_p95_ns)
MEMBER(step_p99_ns)
MEMBER(availability)
MEMBER(loss_first)
MEMBER(loss_last)
#undef MEMBER

static bool is_traced(const struct dpb_cell_summary *cell)
{
    return isfinite(cell->span_ns);
}

void dpb_content_breakdown(const struct dpb_summary *summary, struct dpb_document *document)
{
    static const struct column columns[] = {
            {"span (ms)", dpb_view_ms, value_span_ns},
            {"compute (ms)", dpb_view_ms, value_compute_ns},
            {"exposed comm. (ms)", dpb_view_ms, value_exposed_ns},
            {"of it waiting for peers (ms)", dpb_view_ms, value_comm_wait_ns},
            {"idle (ms)", dpb_view_ms, value_idle_ns},
            {"of it loading data (ms)", dpb_view_ms, value_data_ns},
            {"all comm. (ms)", dpb_view_ms, value_comm_ns},
            {"overlapped (% of comm.)", dpb_view_percent, value_overlap_fraction},
            {"exposed (% of span)", dpb_view_percent, value_exposed_share},
            {"bus bandwidth (GB/s)", view_giga, value_busbw_bytes_per_s},
            {"traced / timed step", view_two_decimals, value_trace_overhead},
    };

    cell_table(summary,
               CELL_TABLE(3, "Where the time of a step goes, mean per rank and step", columns,
                          sizeof(columns) / sizeof(columns[0]), is_traced,
                          "Compute, exposed communication (comm.) and idle add up to the span. "
                          "GB/s are 10^9 bytes per second."),
               document);
}

static bool is_emulated(const struct dpb_cell_summary *cell)
{
    return isfinite(cell->wire_ns);
}

static double wire_share(const struct dpb_cell_summary *cell)
{
    return cell->wire_ns / cell->step_median_ns;
}

void dpb_content_link(const struct dpb_summary *summary, struct dpb_document *document)
{
    static const struct column columns[] = {
            {"wire time per step (ms)", dpb_view_ms, value_wire_ns},
            {"wire time (% of the step)", dpb_view_percent, wire_share},
            {"background thread, CPU per collective (ms)", dpb_view_ms, value_progress_cpu_ns},
            {"late wake-ups, p99 (ms)", dpb_view_ms, value_wake_late_p99_ns},
    };

    cell_table(summary,
               CELL_TABLE(3, "The emulated link, and the thread that emulates it", columns,
                          sizeof(columns) / sizeof(columns[0]), is_emulated,
                          "Wire time is what the algorithm needs on that link, whether it is "
                          "hidden or not. The thread sleeps in between; a late wake-up makes a "
                          "collective look longer than the link would."),
               document);
}

static bool is_measured(const struct dpb_cell_summary *cell)
{
    return cell->repeats_ok > 0;
}

void dpb_content_spread(const struct dpb_summary *summary, struct dpb_document *document)
{
    static const struct column columns[] = {
            {"mean (ms)", dpb_view_ms, value_step_mean_ns},
            {"MAD (ms)", dpb_view_ms, value_step_mad_ns},
            {"p5 (ms)", dpb_view_ms, value_step_p5_ns},
            {"p50 (ms)", dpb_view_ms, value_step_p50_ns},
            {"p95 (ms)", dpb_view_ms, value_step_p95_ns},
            {"p99 (ms)", dpb_view_ms, value_step_p99_ns},
            {"availability of cores (%)", dpb_view_percent, value_availability},
    };

    cell_table(summary,
               CELL_TABLE(3, "Spread of the step time over all timed steps", columns,
                          sizeof(columns) / sizeof(columns[0]), is_measured,
                          "A dash stands where there are too few steps for the percentile to lie "
                          "inside the sample (p5 and p95 need 20, p99 needs 100)."),
               document);
}

static bool is_trained(const struct dpb_cell_summary *cell)
{
    return isfinite(cell->loss_first) || isfinite(cell->test_accuracy);
}

static double steps_trained(const struct dpb_cell_summary *cell)
{
    return dpb_json_as_real(dpb_json_path(cell->first, "training/steps"), NAN);
}

static double accuracy_percent(const struct dpb_cell_summary *cell)
{
    return 100 * cell->test_accuracy;
}

void dpb_content_training(const struct dpb_summary *summary, struct dpb_document *document)
{
    static const struct column columns[] = {
            {"steps", view_whole, steps_trained},
            {"loss, first step", view_four_decimals, value_loss_first},
            {"loss, last step", view_four_decimals, value_loss_last},
            {"test accuracy (%)", view_two_decimals, accuracy_percent},
    };

    cell_table(summary,
               CELL_TABLE(2, "Training", columns, sizeof(columns) / sizeof(columns[0]), is_trained,
                          "Means over the repeats. The loss is the mean over the global batch; a "
                          "dash means that the accuracy was not evaluated."),
               document);
}

static double memory_mib(const struct dpb_cell_summary *cell, const char *path)
{
    return dpb_json_as_real(dpb_json_path(cell->first, path), NAN) / (1 << 20);
}

static double predicted_mib(const struct dpb_cell_summary *cell)
{
    return memory_mib(cell, "memory/predicted_bytes");
}

static double measured_mib(const struct dpb_cell_summary *cell)
{
    return memory_mib(cell, "memory/measured_bytes");
}

static double predicted_total_mib(const struct dpb_cell_summary *cell)
{
    return memory_mib(cell, "memory/predicted_total_bytes");
}

static double measured_of_predicted_percent(const struct dpb_cell_summary *cell)
{
    return 100 * measured_mib(cell) / predicted_mib(cell);
}

static bool is_predicted(const struct dpb_cell_summary *cell)
{
    return isfinite(predicted_mib(cell));
}

void dpb_content_memory(const struct dpb_summary *summary, struct dpb_document *document)
{
    static const struct column columns[] = {
            {"rank, predicted (MiB)", view_one_decimal, predicted_mib},
            {"rank, measured (MiB)", view_one_decimal, measured_mib},
            {"measured of predicted (%)", view_one_decimal, measured_of_predicted_percent},
            {"all ranks, predicted (MiB)", view_one_decimal, predicted_total_mib},
    };

    cell_table(summary,
               CELL_TABLE(2, "Memory", columns, sizeof(columns) / sizeof(columns[0]), is_predicted,
                          "Resident bytes of a rank, as predicted before the launch, and the peak "
                          "of the rank that took most, in the cell's first record. What ranks "
                          "share is in each rank, and in the sum once."),
               document);
}

void dpb_content_failures(const struct dpb_summary *summary, struct dpb_document *document)
{
    static const char *const columns[] = {"cell", "status", "reason", "repeats concerned"};
    const struct dpb_cell_summary **cells = ordered(summary, document);
    size_t i;
    bool any = false;

    for (i = 0; cells && i < summary->cell_count; i++) {
        const struct dpb_cell_summary *cell = cells[i];
        struct dpb_str repeats = {0};

        if (cell->repeats_not_ok == 0)
            continue;
        if (!any) {
            dpb_document_heading(document, 2, "Failed and skipped cells");
            dpb_document_table(document, 4, 3);
            HEADERS(document, columns);
            any = true;
        }
        take_label(summary, cell, document);
        dpb_document_cell(document, cell->not_ok_status);
        dpb_document_cell(document, cell->not_ok_reason);
        dpb_str_appendf(&repeats, "%zu of %zu", cell->repeats_not_ok,
                        cell->repeats_ok + cell->repeats_not_ok);
        dpb_document_take(document, &repeats);
    }
    if (any) {
        dpb_document_paragraph(document, "Status and reason are of the first such repeat. What is "
                                         "not ok enters no number of this report.");
    }
    free(cells);
}

static void flatten_scalar(const dpb_json *value, const char *key, struct dpb_document *document)
{
    struct dpb_str text = {0};

    if (dpb_json_type(value) == DPB_JSON_STRING)
        dpb_str_append(&text, dpb_json_as_string(value, ""));
    else if (dpb_json_write(value, false, &text) < 0)
        document->failed = true;
    dpb_document_cell(document, key);
    dpb_document_take(document, &text);
}

void dpb_content_flatten(const dpb_json *value, const char *prefix, struct dpb_document *document)
{
    const dpb_json *entry;
    const char *key;
    dpb_json_walk walk = {0};

    if (dpb_json_type(value) != DPB_JSON_OBJECT)
        return;
    while ((entry = dpb_json_next(value, &walk, &key))) {
        enum dpb_json_type type = dpb_json_type(entry);
        struct dpb_str path = {0};

        dpb_str_appendf(&path, "%s/%s", prefix, key);
        if (path.failed)
            document->failed = true;
        else if (type == DPB_JSON_OBJECT)
            dpb_content_flatten(entry, path.text, document);
        else if (type != DPB_JSON_ARRAY && type != DPB_JSON_NULL)
            flatten_scalar(entry, path.text, document);
        dpb_str_release(&path);
    }
}

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

/* "68.1 to 74.0", or a dash */
static void take_interval(struct dpb_document *document, struct dpb_interval95 interval,
                          double scale, int decimals)
{
    struct dpb_str text = {0};

    dpb_view_number(interval.low * scale, decimals, &text);
    if (isfinite(interval.low)) {
        dpb_str_append(&text, " to ");
        dpb_view_number(interval.high * scale, decimals, &text);
    }
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
            "exposed, off (%)", "exposed, on (%)", "overlapped, on (%)"};
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
            dpb_document_table(document, 8, 1);
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
    }
    free(cells);
}

void dpb_content_breakdown(const struct dpb_summary *summary, struct dpb_document *document)
{
    static const char *const columns[] = {"span (ms)",           "compute (ms)",
                                          "exposed comm. (ms)",  "of it waiting for peers (ms)",
                                          "idle (ms)",           "of it loading data (ms)",
                                          "all comm. (ms)",      "overlapped (% of comm.)",
                                          "exposed (% of span)", "bus bandwidth (GB/s)",
                                          "traced / timed step"};
    const struct dpb_cell_summary **cells = ordered(summary, document);
    size_t i;
    bool any = false;

    for (i = 0; cells && i < summary->cell_count; i++) {
        const struct dpb_cell_summary *cell = cells[i];

        if (!isfinite(cell->span_ns))
            continue;
        if (!any) {
            dpb_document_heading(document, 3,
                                 "Where the time of a step goes, mean per rank and step");
            dpb_document_table(document, 1 + sizeof(columns) / sizeof(columns[0]), 1);
            dpb_document_cell(document, "cell");
            HEADERS(document, columns);
            any = true;
        }
        take_label(summary, cell, document);
        take_number(document, dpb_view_ms, cell->span_ns);
        take_number(document, dpb_view_ms, cell->compute_ns);
        take_number(document, dpb_view_ms, cell->exposed_ns);
        take_number(document, dpb_view_ms, cell->comm_wait_ns);
        take_number(document, dpb_view_ms, cell->idle_ns);
        take_number(document, dpb_view_ms, cell->data_ns);
        take_number(document, dpb_view_ms, cell->comm_ns);
        take_number(document, dpb_view_percent, cell->overlap_fraction);
        take_number(document, dpb_view_percent, cell->exposed_share);
        take_number(document, view_giga, cell->busbw_bytes_per_s);
        take_number(document, view_two_decimals, cell->trace_overhead);
    }
    if (any) {
        dpb_document_paragraph(
                document, "Compute, exposed communication (comm.) and idle add up to the span. "
                          "GB/s are 10^9 bytes per second.");
    }
    free(cells);
}

void dpb_content_link(const struct dpb_summary *summary, struct dpb_document *document)
{
    static const char *const columns[] = {"wire time per step (ms)", "wire time (% of the step)",
                                          "background thread, CPU per collective (ms)",
                                          "late wake-ups, p99 (ms)"};
    const struct dpb_cell_summary **cells = ordered(summary, document);
    size_t i;
    bool any = false;

    for (i = 0; cells && i < summary->cell_count; i++) {
        const struct dpb_cell_summary *cell = cells[i];

        if (!isfinite(cell->wire_ns))
            continue;
        if (!any) {
            dpb_document_heading(document, 3, "The emulated link, and the thread that emulates it");
            dpb_document_table(document, 1 + sizeof(columns) / sizeof(columns[0]), 1);
            dpb_document_cell(document, "cell");
            HEADERS(document, columns);
            any = true;
        }
        take_label(summary, cell, document);
        take_number(document, dpb_view_ms, cell->wire_ns);
        take_number(document, dpb_view_percent, cell->wire_ns / cell->step_median_ns);
        take_number(document, dpb_view_ms, cell->progress_cpu_ns);
        take_number(document, dpb_view_ms, cell->wake_late_p99_ns);
    }
    if (any) {
        dpb_document_paragraph(document,
                               "Wire time is what the algorithm needs on that link, whether it is "
                               "hidden or not. The thread sleeps in between; a late wake-up makes "
                               "a collective look longer than the link would.");
    }
    free(cells);
}

void dpb_content_spread(const struct dpb_summary *summary, struct dpb_document *document)
{
    static const char *const columns[] = {"mean (ms)",
                                          "MAD (ms)",
                                          "p5 (ms)",
                                          "p50 (ms)",
                                          "p95 (ms)",
                                          "p99 (ms)",
                                          "availability of cores (%)"};
    const struct dpb_cell_summary **cells = ordered(summary, document);
    size_t i;
    bool any = false;

    for (i = 0; cells && i < summary->cell_count; i++) {
        const struct dpb_cell_summary *cell = cells[i];

        if (cell->repeats_ok == 0)
            continue;
        if (!any) {
            dpb_document_heading(document, 3, "Spread of the step time over all timed steps");
            dpb_document_table(document, 1 + sizeof(columns) / sizeof(columns[0]), 1);
            dpb_document_cell(document, "cell");
            HEADERS(document, columns);
            any = true;
        }
        take_label(summary, cell, document);
        take_number(document, dpb_view_ms, cell->step_mean_ns);
        take_number(document, dpb_view_ms, cell->step_mad_ns);
        take_number(document, dpb_view_ms, cell->step_p5_ns);
        take_number(document, dpb_view_ms, cell->step_p50_ns);
        take_number(document, dpb_view_ms, cell->step_p95_ns);
        take_number(document, dpb_view_ms, cell->step_p99_ns);
        take_number(document, dpb_view_percent, cell->availability);
    }
    if (any) {
        dpb_document_paragraph(document, "A dash stands where there are too few steps for the "
                                         "percentile to lie inside the sample (p5 and p95 need "
                                         "20, p99 needs 100).");
    }
    free(cells);
}

void dpb_content_training(const struct dpb_summary *summary, struct dpb_document *document)
{
    static const char *const columns[] = {"cell", "steps", "loss, first step", "loss, last step",
                                          "test accuracy (%)"};
    const struct dpb_cell_summary **cells = ordered(summary, document);
    size_t i;
    bool any = false;

    for (i = 0; cells && i < summary->cell_count; i++) {
        const struct dpb_cell_summary *cell = cells[i];

        if (!isfinite(cell->loss_first) && !isfinite(cell->test_accuracy))
            continue;
        if (!any) {
            dpb_document_heading(document, 2, "Training");
            dpb_document_table(document, 5, 1);
            HEADERS(document, columns);
            any = true;
        }
        take_label(summary, cell, document);
        take_int(document, dpb_json_as_int(dpb_json_path(cell->first, "training/steps"), 0));
        take_number(document, view_four_decimals, cell->loss_first);
        take_number(document, view_four_decimals, cell->loss_last);
        take_number(document, view_two_decimals, 100 * cell->test_accuracy);
    }
    if (any) {
        dpb_document_paragraph(document,
                               "Means over the repeats. The loss is the mean over the global "
                               "batch; a dash means that the accuracy was not evaluated.");
    }
    free(cells);
}

static double memory_mib(const struct dpb_cell_summary *cell, const char *path)
{
    return dpb_json_as_real(dpb_json_path(cell->first, path), NAN) / (1 << 20);
}

static void view_one_decimal(double value, struct dpb_str *out)
{
    dpb_view_number(value, 1, out);
}

void dpb_content_memory(const struct dpb_summary *summary, struct dpb_document *document)
{
    static const char *const columns[] = {"cell", "rank, predicted (MiB)", "rank, measured (MiB)",
                                          "measured of predicted (%)",
                                          "all ranks, predicted (MiB)"};
    const struct dpb_cell_summary **cells = ordered(summary, document);
    size_t i;
    bool any = false;

    for (i = 0; cells && i < summary->cell_count; i++) {
        double predicted = memory_mib(cells[i], "memory/predicted_bytes");
        double measured = memory_mib(cells[i], "memory/measured_bytes");

        if (!isfinite(predicted))
            continue;
        if (!any) {
            dpb_document_heading(document, 2, "Memory");
            dpb_document_table(document, 5, 1);
            HEADERS(document, columns);
            any = true;
        }
        take_label(summary, cells[i], document);
        take_number(document, view_one_decimal, predicted);
        take_number(document, view_one_decimal, measured);
        take_number(document, view_one_decimal, 100 * measured / predicted);
        take_number(document, view_one_decimal,
                    memory_mib(cells[i], "memory/predicted_total_bytes"));
    }
    if (any) {
        dpb_document_paragraph(document,
                               "Resident bytes of a rank, as predicted before the launch, and the "
                               "peak of the rank that took most, in the cell's first record. What "
                               "ranks share is in each rank, and in the sum once.");
    }
    free(cells);
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

#include "view.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "dpb_units.h"

size_t dpb_view_terminal_width(FILE *out)
{
    struct winsize size;

    if (fileno(out) < 0 || ioctl(fileno(out), TIOCGWINSZ, &size) != 0)
        return DPB_VIEW_UNCUT;
    return size.ws_col > 0 ? size.ws_col : 80;
}

static void add_axis(struct dpb_axes *axes, const char *name)
{
    size_t i;

    if (strcmp(name, "ranks") == 0 || axes->count == DPB_VIEW_AXES)
        return;
    for (i = 0; i < axes->count; i++) {
        if (strcmp(axes->names[i], name) == 0)
            return;
    }
    axes->names[axes->count++] = name;
}

struct dpb_axes dpb_axes_of(const struct dpb_summary *summary)
{
    struct dpb_axes axes = {0};
    size_t i;

    for (i = 0; i < summary->cell_count; i++) {
        const dpb_json *own = dpb_json_get(summary->cells[i].first, "axes");
        dpb_json_walk walk = {0};
        const char *name;

        while (dpb_json_next(own, &walk, &name))
            add_axis(&axes, name);
        if (strcmp(summary->cells[i].run_id, summary->cells[0].run_id) != 0)
            axes.many_runs = true;
    }
    return axes;
}

static int compare_cells(const void *left, const void *right)
{
    const struct dpb_cell_summary *a = *(const struct dpb_cell_summary *const *)left;
    const struct dpb_cell_summary *b = *(const struct dpb_cell_summary *const *)right;
    int run = strcmp(a->run_id, b->run_id);

    if (run)
        return run;
    if (a->ranks != b->ranks)
        return a->ranks < b->ranks ? -1 : 1;
    return (a->cell > b->cell) - (a->cell < b->cell);
}

static int compare_ranked(const void *left, const void *right)
{
    const struct dpb_cell_summary *a = *(const struct dpb_cell_summary *const *)left;
    const struct dpb_cell_summary *b = *(const struct dpb_cell_summary *const *)right;

    if (strcmp(a->run_id, b->run_id) != 0 || a->ranks != b->ranks)
        return compare_cells(left, right);
    if ((a->repeats_ok > 0) != (b->repeats_ok > 0))
        return a->repeats_ok > 0 ? -1 : 1;
    if (a->repeats_ok > 0 && a->step_median_ns != b->step_median_ns)
        return a->step_median_ns < b->step_median_ns ? -1 : 1;
    return compare_cells(left, right);
}

static const struct dpb_cell_summary **sorted(const struct dpb_summary *summary,
                                              int (*compare)(const void *, const void *))
{
    const struct dpb_cell_summary **cells = calloc(summary->cell_count + 1, sizeof(*cells));
    size_t i;

    if (!cells)
        return NULL;
    for (i = 0; i < summary->cell_count; i++)
        cells[i] = &summary->cells[i];
    if (summary->cell_count > 1)
        qsort(cells, summary->cell_count, sizeof(*cells), compare);
    return cells;
}

const struct dpb_cell_summary **dpb_view_cells(const struct dpb_summary *summary)
{
    return sorted(summary, compare_cells);
}

const struct dpb_cell_summary **dpb_view_ranked(const struct dpb_summary *summary)
{
    return sorted(summary, compare_ranked);
}

bool dpb_axes_have(const struct dpb_axes *axes, const char *name)
{
    for (size_t i = 0; i < axes->count; i++)
        if (strcmp(axes->names[i], name) == 0)
            return true;
    return false;
}

void dpb_view_axes(const struct dpb_axes *axes, const struct dpb_cell_summary *cell,
                   const char *without, struct dpb_str *out)
{
    const char *comma = "";
    size_t i;

    if (axes->many_runs) {
        dpb_str_appendf(out, "run %s", cell->run_id);
        comma = ", ";
    }
    for (i = 0; i < axes->count; i++) {
        const char *value = dpb_cell_axis(cell, axes->names[i]);

        if (!value || (without && strcmp(axes->names[i], without) == 0))
            continue;
        dpb_str_appendf(out, "%s%s %s", comma, axes->names[i], value);
        comma = ", ";
    }
}

void dpb_view_link(const struct dpb_cell_summary *cell, struct dpb_str *out)
{
    const dpb_json *link = dpb_json_path(cell->first, "config/link");
    double rate = dpb_json_as_real(dpb_json_get(link, "bw_bytes_per_s"), 0);
    char rate_text[DPB_UNIT_TEXT_BYTES], latency_text[DPB_UNIT_TEXT_BYTES];

    if (!(rate > 0))
        return;
    dpb_format_rate(rate, rate_text, sizeof(rate_text));
    dpb_format_duration(dpb_json_as_int(dpb_json_get(link, "latency_ns"), 0), latency_text,
                        sizeof(latency_text));
    dpb_str_appendf(out, "%s, %s", rate_text, latency_text);
}

void dpb_view_how(const struct dpb_cell_summary *cell, struct dpb_str *out)
{
    if (cell->simulated) {
        dpb_str_append(out, "simulated");
    } else if (cell->emulated) {
        size_t before;

        dpb_str_append(out, "emulated ");
        before = out->length;
        dpb_view_link(cell, out);
        if (out->length == before)
            dpb_str_append(out, "link");
    } else {
        dpb_str_append(out, "measured");
    }
}

void dpb_view_kind(const struct dpb_cell_summary *const *cells, size_t count, struct dpb_str *out)
{
    bool weak = false, strong = false, measured = false, emulated = false, simulated = false;
    size_t i;

    for (i = 0; i < count; i++) {
        weak = weak || cells[i]->weak;
        strong = strong || !cells[i]->weak;
        simulated = simulated || cells[i]->simulated;
        emulated = emulated || cells[i]->emulated;
        /* one rank uses no link, so it does not tell measured from emulated */
        measured = measured || (!cells[i]->simulated && !cells[i]->emulated && cells[i]->ranks > 1);
    }
    measured = measured || (!emulated && !simulated);
    dpb_str_appendf(out, "%s scaling, ",
                    weak && strong ? "weak and strong"
                    : weak         ? "weak"
                                   : "strong");
    dpb_str_appendf(out, "%s%s%s%s%s", measured ? "measured" : "",
                    measured && emulated ? " and " : "", emulated ? "emulated link" : "",
                    (measured || emulated) && simulated ? " and " : "",
                    simulated ? "simulated" : "");
}

void dpb_view_number(double value, int decimals, struct dpb_str *out)
{
    if (isfinite(value))
        dpb_str_appendf(out, "%.*f", decimals, value);
    else
        dpb_str_append(out, DPB_VIEW_ABSENT);
}

static int decimals_of(double value)
{
    double size = fabs(value);

    return size >= 1000 || size == 0 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : size >= 0.1 ? 3 : 4;
}

void dpb_view_ms(double ns, struct dpb_str *out)
{
    dpb_view_number(ns / 1e6, decimals_of(ns / 1e6), out);
}

void dpb_view_rate(double value, struct dpb_str *out)
{
    dpb_view_number(value, decimals_of(value), out);
}

void dpb_view_percent(double ratio, struct dpb_str *out)
{
    dpb_view_number(100 * ratio, 1, out);
}

double dpb_interval_half(struct dpb_interval95 interval)
{
    return (interval.high - interval.low) / 2;
}

bool dpb_view_overlap_is_on(const struct dpb_cell_summary *cell)
{
    const char *text = dpb_cell_axis(cell, "overlap");
    bool on;

    if (text && dpb_parse_bool(text, &on, NULL) == DPB_OK)
        return on;
    return dpb_json_as_bool(dpb_json_path(cell->first, "config/overlap"), true);
}

double dpb_view_bucket_bytes(const struct dpb_cell_summary *cell)
{
    int64_t bytes = dpb_json_as_int(dpb_json_path(cell->first, "config/bucket_bytes"), 0);
    const char *text = dpb_cell_axis(cell, "bucket");

    if (bytes <= 0 && text && dpb_parse_size(text, &bytes, NULL) != DPB_OK)
        bytes = 0;
    return bytes > 0 ? (double)bytes : 0;
}

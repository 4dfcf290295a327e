/* Step time against bucket size, with overlap on and off as two lines; a plot per number of ranks.
 */
#include "plot.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "view.h"

#define PLOTS_MAX 8

struct point {
    const struct dpb_cell_summary *cell;
    double bytes;
};

/* Ok cells that may share a plot, on and off, ordered by bucket size. */
struct group {
    const struct dpb_cell_summary *key;
    struct point *points;
    size_t count;
    struct dpb_str without; /* labels of cells that cannot be drawn */
};

/* Do the cells differ in bucket and overlap only? */
static bool same_group(const struct dpb_axes *axes, const struct dpb_cell_summary *a,
                       const struct dpb_cell_summary *b)
{
    size_t i;

    if (a->ranks != b->ranks || a->weak != b->weak || strcmp(a->run_id, b->run_id) != 0)
        return false;
    for (i = 0; i < axes->count; i++) {
        const char *name = axes->names[i];
        const char *a_value = dpb_cell_axis(a, name), *b_value = dpb_cell_axis(b, name);

        if (strcmp(name, "bucket") == 0 || strcmp(name, "overlap") == 0)
            continue;
        if (strcmp(a_value ? a_value : "", b_value ? b_value : "") != 0)
            return false;
    }
    return true;
}

static bool has_bucket(const struct dpb_cell_summary *cell)
{
    return cell->ranks > 1 && dpb_cell_axis(cell, "bucket");
}

static int compare_points(const void *left, const void *right)
{
    const struct point *a = left, *b = right;

    return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

static bool fill_group(const struct dpb_summary *summary, const struct dpb_axes *axes, size_t first,
                       struct group *group)
{
    size_t i;

    *group = (struct group){.key = &summary->cells[first]};
    group->points = calloc(summary->cell_count, sizeof(*group->points));
    if (!group->points)
        return false;
    for (i = first; i < summary->cell_count; i++) {
        const struct dpb_cell_summary *cell = &summary->cells[i];
        double bytes = dpb_view_bucket_bytes(cell);

        if (!has_bucket(cell) || !same_group(axes, cell, group->key))
            continue;
        if (bytes > 0 && isfinite(cell->step_median_ns)) {
            group->points[group->count++] = (struct point){cell, bytes};
        } else {
            dpb_str_append(&group->without, group->without.length ? "; " : "");
            dpb_cell_label(summary, cell, &group->without);
        }
    }
    if (group->count > 1)
        qsort(group->points, group->count, sizeof(group->points[0]), compare_points);
    return true;
}

static size_t append_data(const struct group *group, bool on, struct dpb_str *data)
{
    size_t count = 0, i;

    dpb_str_appendf(data, "# overlap %s\n", on ? "on" : "off");
    for (i = 0; i < group->count; i++) {
        const struct dpb_cell_summary *cell = group->points[i].cell;

        if (dpb_view_overlap_is_on(cell) != on)
            continue;
        dpb_plot_value(group->points[i].bytes, data);
        dpb_plot_value(cell->step_median_ns / 1e6, data);
        dpb_plot_value(cell->step_ci95_ns.low / 1e6, data);
        dpb_plot_value(cell->step_ci95_ns.high / 1e6, data);
        dpb_str_append(data, "\n");
        count++;
    }
    if (count == 0)
        dpb_str_append(data, "? ? ? ?\n");
    dpb_str_append(data, "\n\n");
    return count;
}

/* The steps themselves and their intervals, but no interval may dwarf the differences. */
static void append_time_axis(const struct group *group, struct dpb_str *script)
{
    double low = INFINITY, high = 0, bar_low = INFINITY, bar_high = 0, margin;
    size_t i;

    for (i = 0; i < group->count; i++) {
        const struct dpb_cell_summary *cell = group->points[i].cell;

        low = fmin(low, cell->step_median_ns / 1e6);
        high = fmax(high, cell->step_median_ns / 1e6);
        bar_low = fmin(bar_low, cell->step_ci95_ns.low / 1e6);
        bar_high = fmax(bar_high, cell->step_ci95_ns.high / 1e6);
    }
    margin = fmax(high - low, 0.05 * high);
    low = fmax(0, fmax(fmin(low, bar_low), low - margin) - 0.15 * margin);
    high = fmin(fmax(high, bar_high), high + margin) + 0.15 * margin;
    dpb_str_appendf(script, "set ylabel 'step time, median (ms)'\nset yrange [%.6g:%.6g]\n", low,
                    high);
}

static void append_bucket_axis(const struct group *group, struct dpb_str *script)
{
    const char *comma = "";
    double before = 0;
    size_t i;

    dpb_str_append(script, "set xlabel 'bucket size (logarithmic)'\nset logscale x 2\n"
                           "set xtics (");
    for (i = 0; i < group->count; i++) {
        double bytes = group->points[i].bytes;

        if (bytes == before)
            continue;
        dpb_str_append(script, comma);
        dpb_plot_quote(dpb_cell_axis(group->points[i].cell, "bucket"), 20, script);
        dpb_str_appendf(script, " %.0f", bytes);
        comma = ", ";
        before = bytes;
    }
    dpb_str_appendf(script, ")\nset xrange [%.6g:%.6g]\n", group->points[0].bytes / 1.5,
                    group->points[group->count - 1].bytes * 1.5);
}

static void append_line(const char *name, size_t index, const char *colour, int marker, int dash,
                        const char *title, struct dpb_str *script)
{
    dpb_str_appendf(script,
                    "    '%s.dat' index %zu using 1:2:3:4 with yerrorbars pt -1 lw 1.2 lc rgb '%s' "
                    "notitle, \\\n"
                    "    '%s.dat' index %zu using 1:2 with linespoints lw 2 pt %d ps 0.9 dt %d lc "
                    "rgb '%s' title '%s'",
                    name, index, colour, name, index, marker, dash, colour, title);
}

static void add_plot(const struct dpb_axes *axes, const struct group *group,
                     struct dpb_plot_list *list)
{
    struct dpb_str title = {0}, name = {0}, how = {0}, others = {0};
    struct dpb_axes rest = *axes;
    struct dpb_plot *plot;
    size_t on, off, i, kept = 0;

    for (i = 0; i < axes->count; i++) {
        if (strcmp(axes->names[i], "bucket") != 0 && strcmp(axes->names[i], "overlap") != 0)
            rest.names[kept++] = axes->names[i];
    }
    rest.count = kept;
    dpb_view_axes(&rest, group->key, NULL, &others);
    dpb_view_how(group->points[0].cell, &how);
    dpb_str_appendf(&title, "Step time against bucket size, %d ranks%s%s (%s scaling, %s)",
                    group->key->ranks, others.length ? ", " : "", others.length ? others.text : "",
                    group->key->weak ? "weak" : "strong", how.length ? how.text : "");
    dpb_str_appendf(&name, "bucket-%d-ranks", group->key->ranks);
    plot = title.failed || name.failed ? NULL : dpb_plot_add(list, name.text, title.text, 960, 430);
    if (plot) {
        dpb_str_append(&plot->data, "# step time against bucket size\n"
                                    "# bucket_bytes step_median_ms low_ms high_ms\n");
        on = append_data(group, true, &plot->data);
        off = append_data(group, false, &plot->data);
        plot->points = on + off;
        append_bucket_axis(group, &plot->script);
        append_time_axis(group, &plot->script);
        dpb_str_append(&plot->script,
                       "set key outside right center vertical Left reverse samplen 3 width 1\n"
                       "plot \\\n");
        if (on > 0)
            append_line(plot->name, 0, DPB_COLOUR_OVERLAP_ON, 7, 1, "overlap on", &plot->script);
        if (on > 0 && off > 0)
            dpb_str_append(&plot->script, ", \\\n");
        if (off > 0)
            append_line(plot->name, 1, DPB_COLOUR_OVERLAP_OFF, 4, 2, "overlap off", &plot->script);
        dpb_str_append(&plot->script, "\n");
        dpb_str_appendf(
                &plot->caption,
                "%s. Median over repeats, bars are 95 %% intervals; the axis of the times "
                "does not begin at 0.%s%s%s",
                title.text, group->without.length ? " Left out, without a valid step: " : "",
                group->without.length ? group->without.text : "", group->without.length ? "." : "");
    } else {
        list->failed = true;
    }
    dpb_str_release(&title);
    dpb_str_release(&name);
    dpb_str_release(&how);
    dpb_str_release(&others);
}

static void add_note(const char *text, const char *labels, struct dpb_plot_list *list)
{
    struct dpb_plot *plot = dpb_plot_add(list, "bucket", "", 960, 430);

    if (plot)
        dpb_str_appendf(&plot->caption, "%s%s.", text, labels);
}

void dpb_plots_bucket(const struct dpb_summary *summary, struct dpb_plot_list *list)
{
    struct dpb_axes axes = dpb_axes_of(summary);
    size_t i, j, drawn = 0, more = 0;

    for (i = 0; i < summary->cell_count; i++) {
        struct group group;
        bool seen = false;

        for (j = 0; j < i && !seen; j++) {
            seen = has_bucket(&summary->cells[j]) &&
                   same_group(&axes, &summary->cells[j], &summary->cells[i]);
        }
        if (seen || !has_bucket(&summary->cells[i]))
            continue;
        if (!fill_group(summary, &axes, i, &group)) {
            list->failed = true;
            return;
        }
        if (group.count == 0)
            add_note("No plot of step time against bucket size for lack of a valid point: ",
                     group.without.text, list);
        else if (drawn++ < PLOTS_MAX)
            add_plot(&axes, &group, list);
        else
            more++;
        free(group.points);
        dpb_str_release(&group.without);
    }
    if (more > 0)
        add_note("More combinations of options with bucket sizes are not drawn; they are in the "
                 "table",
                 "", list);
}

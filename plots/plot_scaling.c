/* Scaling efficiency and speed-up against ranks, a line per series with interval bars. */
#include "plot.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#include "curves.h"

/* Linear ranks up to here; beyond, powers of two would crowd at the left. */
#define LINEAR_RANKS_MAX 16
/* A legend with longer labels beside the plot would leave it, and its title, too little room. */
#define LABEL_COLUMNS_MAX 30

static const struct marker {
    int filled, open; /* gnuplot's numbers */
} markers[DPB_PLOT_SERIES_COLOURS] = {{7, 6}, {5, 4}, {9, 8}, {11, 10}, {13, 12}, {15, 14}, {7, 6}};

/* One index per curve: ranks, value, low, high. */
static void append_data(const struct dpb_curve_set *set, bool speedup, struct dpb_plot *plot)
{
    size_t c, i;

    dpb_str_appendf(&plot->data,
                    "# %s with its 95 %% interval; one block per curve\n"
                    "# ranks %s low high\n",
                    speedup ? "speed-up" : "scaling efficiency",
                    speedup ? "speedup" : "efficiency");
    for (c = 0; c < set->count; c++) {
        const struct dpb_curve *curve = &set->curves[c];

        dpb_str_append(&plot->data, c ? "\n\n# " : "# ");
        dpb_plot_quote(curve->label, 200, &plot->data);
        dpb_str_append(&plot->data, "\n");
        for (i = 0; i < curve->count; i++) {
            const struct dpb_cell_summary *cell = curve->points[i];
            double scale = speedup ? cell->ranks : 1;

            dpb_str_appendf(&plot->data, "%d ", cell->ranks);
            dpb_plot_value(cell->efficiency * scale, &plot->data);
            dpb_plot_value(cell->efficiency_ci95.low * scale, &plot->data);
            dpb_plot_value(cell->efficiency_ci95.high * scale, &plot->data);
            dpb_str_append(&plot->data, "\n");
            plot->points++;
        }
    }
}

static int fewest_ranks(const struct dpb_curve_set *set)
{
    int fewest = INT_MAX;

    for (size_t c = 0; c < set->count; c++)
        for (size_t i = 0; i < set->curves[c].count; i++)
            if (set->curves[c].points[i]->ranks < fewest)
                fewest = set->curves[c].points[i]->ranks;
    return fewest;
}

static bool has_long_labels(const struct dpb_curve_set *set)
{
    for (size_t c = 0; c < set->count; c++)
        if (strlen(set->curves[c].label) > LABEL_COLUMNS_MAX)
            return true;
    return false;
}

static bool has_ranks(const struct dpb_curve_set *set, int ranks)
{
    size_t c, i;

    for (c = 0; c < set->count; c++) {
        for (i = 0; i < set->curves[c].count; i++) {
            if (set->curves[c].points[i]->ranks == ranks)
                return true;
        }
    }
    return false;
}

static void append_ranks_axis(const struct dpb_curve_set *set, bool logarithmic,
                              struct dpb_str *script)
{
    const char *comma = "";
    int ranks;

    dpb_str_append(script, "set xlabel 'ranks'\nset xtics (");
    for (ranks = 1; ranks <= set->max_ranks; ranks++) {
        if (!has_ranks(set, ranks))
            continue;
        dpb_str_appendf(script, "%s'%d' %d", comma, ranks, ranks);
        comma = ", ";
    }
    dpb_str_append(script, ")\n");
    if (logarithmic) {
        dpb_str_appendf(script, "set logscale x 2\nset xrange [%g:%g]\n", 0.8 * fewest_ranks(set),
                        1.25 * set->max_ranks);
    } else {
        dpb_str_appendf(script, "set xrange [0.5:%g]\n", set->max_ranks + 0.5);
    }
}

/* The largest value or interval end, but no interval may dwarf the curves. */
static double largest(const struct dpb_curve_set *set, bool speedup)
{
    double value = 0, high = 0;
    size_t c, i;

    for (c = 0; c < set->count; c++) {
        for (i = 0; i < set->curves[c].count; i++) {
            const struct dpb_cell_summary *cell = set->curves[c].points[i];
            double scale = speedup ? cell->ranks : 1;

            value = fmax(value, cell->efficiency * scale);
            high = fmax(high, cell->efficiency_ci95.high * scale); /* NaN counts for nothing */
        }
    }
    value = fmax(value, speedup ? set->max_ranks : 1);
    return fmax(value, fmin(high, 1.3 * value));
}

static void append_curve(const struct dpb_curve_set *set, size_t index, bool logarithmic,
                         const char *data, struct dpb_str *script)
{
    const struct dpb_curve *curve = &set->curves[index];
    const struct marker *marker = &markers[(size_t)curve->style % DPB_PLOT_SERIES_COLOURS];
    const char *colour = dpb_plot_series_colour((size_t)curve->style);
    double shift = ((double)index - (double)(set->count - 1) / 2) * 0.022;
    bool dashed = curve->overlap_varies && !curve->overlap_on;
    struct dpb_str position = {0};
    const char *x;

    /* a little aside, so that interval bars do not hide one another */
    if (logarithmic)
        dpb_str_appendf(&position, "($1*%.4f)", 1 + shift);
    else
        dpb_str_appendf(&position, "($1%+.4f)", shift);
    x = position.failed ? "1" : position.text;
    dpb_str_appendf(script,
                    ", \\\n    %s index %zu using %s:2:3:4 with yerrorbars pt -1 lw 1.2 lc rgb "
                    "'%s' notitle",
                    data, index, x, colour);
    dpb_str_appendf(script,
                    ", \\\n    %s index %zu using %s:2 with linespoints lw 2 pt %d ps 0.9 dt %d lc "
                    "rgb '%s' title ",
                    data, index, x, dashed ? marker->open : marker->filled, dashed ? 2 : 1, colour);
    dpb_plot_quote(curve->label, 60, script);
    dpb_str_release(&position);
}

/* All curves against the same baseline: speed-up is throughput in other units. */
static double common_baseline(const struct dpb_curve_set *set)
{
    const struct dpb_cell_summary *baseline = set->curves[0].points[0]->baseline;
    size_t c;

    for (c = 1; c < set->count; c++) {
        if (set->curves[c].points[0]->baseline != baseline)
            return NAN;
    }
    return baseline->samples_per_s_total / baseline->ranks;
}

/* Was one rank run, or is what one would reach taken from the baseline's share? */
static bool starts_at_one(const struct dpb_curve_set *set)
{
    for (size_t c = 0; c < set->count; c++)
        if (set->curves[c].points[0]->baseline->ranks != 1)
            return false;
    return true;
}

static void append_value_axis(const struct dpb_curve_set *set, bool speedup, bool logarithmic,
                              struct dpb_str *script)
{
    double top = 1.08 * largest(set, speedup), rate = common_baseline(set);

    if (!speedup) {
        dpb_str_appendf(script,
                        "set ylabel 'scaling efficiency (1 = ideal)'\nset yrange [0:%.6g]\n", top);
        return;
    }
    dpb_str_appendf(script, "set ylabel 'speed-up (%s)'\nset yrange [%g:%.6g]\n",
                    starts_at_one(set) ? "times 1 rank" : "efficiency times ranks",
                    logarithmic ? 0.5 * fewest_ranks(set) : 0.0, top);
    if (logarithmic) {
        dpb_str_append(script, "set logscale y 2\n");
    } else if (isfinite(rate)) {
        dpb_str_appendf(script,
                        "set y2label 'throughput (samples/s)'\nset y2range [0:%.6g]\n"
                        "set y2tics nomirror out scale 0.5\nset border 11\n",
                        top * rate);
    }
}

static void add_plot(const struct dpb_curve_set *set, bool speedup, struct dpb_plot_list *list)
{
    const char *scaling = set->weak ? "Weak" : "Strong";
    bool logarithmic = set->max_ranks > LINEAR_RANKS_MAX, long_labels = has_long_labels(set);
    struct dpb_str title = {0}, data = {0};
    struct dpb_plot *plot;
    size_t c;

    dpb_str_appendf(&title, "%s scaling: %s against ranks (%s)", scaling,
                    speedup ? "speed-up" : "efficiency",
                    set->how.length ? set->how.text : "measured");
    plot = dpb_plot_add(list, speedup ? "speedup" : "efficiency",
                        title.failed ? scaling : title.text, 880,
                        430 + (long_labels ? 22 : 10) * (int)set->count);
    dpb_str_release(&title);
    if (!plot)
        return;
    append_data(set, speedup, plot);
    dpb_str_appendf(&data, "'%s.dat'", plot->name);
    append_ranks_axis(set, logarithmic, &plot->script);
    append_value_axis(set, speedup, logarithmic, &plot->script);
    dpb_str_appendf(&plot->script,
                    "set key outside %s Left reverse samplen 3 width 1\n"
                    "set samples 200\n"
                    "plot %s with lines lw 1.5 dt 3 lc rgb '%s' title 'ideal'",
                    long_labels ? "below center vertical maxcols 1" : "right center vertical",
                    speedup ? "x" : "1", DPB_COLOUR_IDEAL);
    for (c = 0; c < set->count && !data.failed; c++)
        append_curve(set, c, logarithmic, data.text, &plot->script);
    dpb_str_append(&plot->script, "\n");
    dpb_str_release(&data);
    dpb_str_appendf(&plot->caption,
                    "%s scaling %s against ranks (%s), one line per series; bars are 95 %% "
                    "intervals from repeats, and points are set a little aside so that they do "
                    "not hide one another. Dotted: ideal.%s",
                    scaling, speedup ? "speed-up" : "efficiency",
                    set->how.length ? set->how.text : "measured",
                    set->left_out.length ? set->left_out.text : "");
}

/* Series, but not one valid point: say so instead of drawing nothing. */
static void add_empty_plot(const struct dpb_curve_set *set, struct dpb_plot_list *list)
{
    struct dpb_plot *plot = dpb_plot_add(list, "efficiency", "", 960, 440);

    if (plot) {
        dpb_str_appendf(&plot->caption, "No plot of %s scaling.%s", set->weak ? "weak" : "strong",
                        set->left_out.text);
    }
}

void dpb_plots_scaling(const struct dpb_summary *summary, struct dpb_plot_list *list)
{
    int kind;

    for (kind = 0; kind < 4; kind++) {
        struct dpb_curve_set set;

        if (!dpb_curves_find(summary, kind < 2, kind % 2 == 1, &set)) {
            list->failed = true;
            return;
        }
        if (set.count > 0) {
            add_plot(&set, false, list);
            add_plot(&set, true, list);
        } else if (set.left_out.length > 0) {
            add_empty_plot(&set, list);
        }
        dpb_curves_release(&set);
    }
}

/* Training loss against step, one line per cell: whether what is trained depends on how. */
#include "plot.h"

#include <math.h>
#include <stdlib.h>

#include "view.h"

#define LINES_MAX 8
#define STEPS_MIN 50 /* of fewer steps, a loss is noise, unless somebody asked for the accuracy */

static bool trains_long_enough(const struct dpb_cell_summary *cell)
{
    double steps = dpb_json_as_real(dpb_json_path(cell->first, "training/steps"), 0);

    return cell->repeats_ok > 0 && (steps >= STEPS_MIN || isfinite(cell->test_accuracy));
}

static bool has_curve(const struct dpb_cell_summary *cell)
{
    return dpb_json_size(dpb_json_path(cell->first, "training/loss_curve/step")) > 0;
}

/* Those cells that satisfy `wanted`, in the same array. */
static size_t keep(const struct dpb_cell_summary **cells, size_t count,
                   bool (*wanted)(const struct dpb_cell_summary *))
{
    size_t kept = 0, i;

    for (i = 0; i < count; i++) {
        if (wanted(cells[i]))
            cells[kept++] = cells[i];
    }
    return kept;
}

struct bounds {
    double last_step, low, high;
};

/* "2 ranks, test accuracy 90.31 %" */
static void append_label(const struct dpb_summary *summary, const struct dpb_cell_summary *cell,
                         struct dpb_str *label)
{
    dpb_cell_label(summary, cell, label);
    if (isfinite(cell->test_accuracy)) {
        dpb_str_append(label, label->length ? ", test accuracy " : "test accuracy ");
        dpb_view_number(100 * cell->test_accuracy, 2, label);
        dpb_str_append(label, " %");
    }
}

/* One index of the data file. */
static void append_curve(const struct dpb_cell_summary *cell, struct dpb_plot *plot,
                         struct bounds *bounds)
{
    const dpb_json *steps = dpb_json_path(cell->first, "training/loss_curve/step");
    const dpb_json *losses = dpb_json_path(cell->first, "training/loss_curve/loss");
    const dpb_json *step, *loss;
    dpb_json_walk at_step = {0}, at_loss = {0};

    while ((step = dpb_json_next(steps, &at_step, NULL)) &&
           (loss = dpb_json_next(losses, &at_loss, NULL))) {
        double x = dpb_json_as_real(step, NAN), y = dpb_json_as_real(loss, NAN);

        dpb_plot_value(x, &plot->data);
        dpb_plot_value(y, &plot->data);
        dpb_str_append(&plot->data, "\n");
        if (!isfinite(x) || !isfinite(y))
            continue;
        bounds->last_step = fmax(bounds->last_step, x);
        bounds->low = fmin(bounds->low, y);
        bounds->high = fmax(bounds->high, y);
        plot->points++;
    }
}

/* Lines that lie on one another: the first is the widest and the last, on top, the thinnest. */
static double line_width(size_t index, size_t count)
{
    return count > 1 ? 1.5 + 5.0 * (double)(count - 1 - index) / (double)(count - 1) : 2.0;
}

static void append_axes(const struct bounds *bounds, size_t lines, struct dpb_str *script)
{
    double margin = 0.05 * (bounds->high - bounds->low), low;

    if (!(margin > 0))
        margin = fmax(0.05 * fabs(bounds->high), 0.05);
    low = bounds->low - margin;
    if (bounds->low >= 0 && low < bounds->high / 4)
        low = 0; /* nearly there anyway */
    dpb_str_appendf(script,
                    "set xlabel 'training step'\nset xrange [0:%.6g]\n"
                    "set ylabel 'training loss, mean over the global batch'\n"
                    "set yrange [%.6g:%.6g]\n"
                    "set bmargin %zu\n"
                    "set key outside below center vertical maxcols 1 Left reverse samplen 3\n"
                    "plot \\\n",
                    bounds->last_step, low, bounds->high + margin, lines + 4);
}

static void add_plot(const struct dpb_summary *summary, const struct dpb_cell_summary *const *cells,
                     size_t count, struct dpb_plot_list *list)
{
    struct bounds bounds = {0, INFINITY, -INFINITY};
    struct dpb_str kind = {0}, title = {0}, lines = {0};
    struct dpb_plot *plot;
    size_t i;

    dpb_view_kind(cells, count, &kind);
    dpb_str_appendf(&title, "Training loss against step (%s)", kind.failed ? "" : kind.text);
    plot = dpb_plot_add(list, "loss", title.failed ? "" : title.text, 960, 430 + 18 * (int)count);
    if (plot) {
        dpb_str_append(&plot->data, "# mean training loss of a stretch of steps; one block per "
                                    "cell\n# last_step loss\n");
        for (i = 0; i < count; i++) {
            struct dpb_str label = {0};

            append_label(summary, cells[i], &label);
            dpb_str_append(&plot->data, i ? "\n\n# " : "# ");
            dpb_plot_quote(label.text ? label.text : "", 200, &plot->data);
            dpb_str_append(&plot->data, "\n");
            append_curve(cells[i], plot, &bounds);
            dpb_str_appendf(&lines,
                            "    '%s.dat' index %zu using 1:2 with lines lw %.1f dt %d lc "
                            "rgb '%s' title ",
                            plot->name, i, line_width(i, count),
                            i < DPB_PLOT_SERIES_COLOURS ? 1 : 2, dpb_plot_series_colour(i));
            dpb_plot_quote(label.text ? label.text : "", 60, &lines);
            dpb_str_append(&lines, i + 1 < count ? ", \\\n" : "\n");
            dpb_str_release(&label);
        }
        append_axes(&bounds, count, &plot->script);
        dpb_str_append(&plot->script, lines.failed ? "" : lines.text);
        dpb_str_appendf(&plot->caption,
                        "%s, one line per cell, of its first valid repeat; each point is the mean "
                        "over a stretch of steps. Lines get thinner from the first to the last, so "
                        "that those that agree show as one band. The axis of the loss need not "
                        "begin at 0.",
                        title.failed ? "" : title.text);
    }
    dpb_str_release(&kind);
    dpb_str_release(&title);
    dpb_str_release(&lines);
}

/* Say why nothing is drawn. */
static void add_note(const char *why, struct dpb_plot_list *list)
{
    struct dpb_plot *plot = dpb_plot_add(list, "loss", "", 960, 430);

    if (plot)
        dpb_str_appendf(&plot->caption, "No plot of training loss against step: %s.", why);
}

void dpb_plots_loss(const struct dpb_summary *summary, struct dpb_plot_list *list)
{
    const struct dpb_cell_summary **cells = dpb_view_cells(summary);
    size_t trained, count;

    if (!cells) {
        list->failed = true;
        return;
    }
    trained = keep(cells, summary->cell_count, trains_long_enough);
    count = keep(cells, trained, has_curve);
    if (count > LINES_MAX)
        add_note("there are more cells than lines that can be told apart (the records have the "
                 "curves)",
                 list);
    else if (count > 0)
        add_plot(summary, cells, count, list);
    else if (trained > 0)
        add_note("the records have no loss curve", list);
    free(cells);
}

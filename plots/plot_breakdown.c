/* Where a step goes: one stacked bar per cell, milliseconds per rank and step. */
#include "plot.h"

#include <math.h>
#include <stdlib.h>

#include "view.h"

#define BARS_MAX 40
/* Half of the plot's width; the end of a label is what tells bars apart. */
#define LABEL_COLUMNS_MAX 64

enum {
    PARTS = 5
};

static const struct {
    const char *title, *colour;
} parts[PARTS] = {
        {"compute", DPB_COLOUR_COMPUTE},
        {"exposed communication", DPB_COLOUR_EXPOSED},
        {"waiting for peers", DPB_COLOUR_WAIT},
        {"loading data", DPB_COLOUR_DATA},
        {"idle", DPB_COLOUR_IDLE},
};

/* The parts add up to the span. */
static void parts_of(const struct dpb_cell_summary *cell, double part_ms[PARTS])
{
    double wait_ns = isfinite(cell->comm_wait_ns) ? cell->comm_wait_ns : 0;
    double data_ns = isfinite(cell->data_ns) ? cell->data_ns : 0;

    part_ms[0] = cell->compute_ns / 1e6;
    part_ms[1] = fmax(0, cell->exposed_ns - wait_ns) / 1e6;
    part_ms[2] = wait_ns / 1e6;
    part_ms[3] = data_ns / 1e6;
    part_ms[4] = fmax(0, cell->idle_ns - data_ns) / 1e6;
}

/* Those of the cells that were traced, in the same array. */
static size_t keep_traced(const struct dpb_cell_summary **cells, size_t count)
{
    size_t kept = 0, i;

    for (i = 0; i < count; i++) {
        if (isfinite(cells[i]->compute_ns) && isfinite(cells[i]->exposed_ns) &&
            isfinite(cells[i]->idle_ns))
            cells[kept++] = cells[i];
    }
    return kept;
}

/* Columns: row, then the left ends of the parts, then the span; and the labels of the rows. */
static double append_rows(const struct dpb_summary *summary,
                          const struct dpb_cell_summary *const *cells, size_t count,
                          struct dpb_plot *plot, struct dpb_str *labels)
{
    double longest = 0;
    size_t i, p;

    for (i = 0; i < count; i++) {
        struct dpb_str label = {0};
        double part_ms[PARTS], end = 0;

        parts_of(cells[i], part_ms);
        dpb_str_appendf(&plot->data, "%zu 0 ", i + 1);
        for (p = 0; p < PARTS; p++) {
            end += part_ms[p];
            dpb_plot_value(end, &plot->data);
        }
        longest = fmax(longest, end);
        dpb_cell_label(summary, cells[i], &label);
        dpb_str_append(&plot->data, "# ");
        dpb_plot_quote(label.failed ? "" : label.text, 200, &plot->data);
        dpb_str_append(&plot->data, "\n");
        dpb_str_append(labels, i ? ", " : "");
        dpb_plot_quote(label.failed ? "" : label.text, LABEL_COLUMNS_MAX, labels);
        dpb_str_appendf(labels, " %zu", i + 1);
        dpb_str_release(&label);
        plot->points++;
    }
    return longest;
}

static void append_script(struct dpb_plot *plot, const struct dpb_str *labels, size_t count,
                          double longest)
{
    size_t p;

    dpb_str_appendf(&plot->script,
                    "set xlabel 'time per rank and step (ms), mean over traced steps'\n"
                    "set xrange [0:%.6g]\n"
                    "set yrange [%zu.6:0.4]\n"
                    "set ytics (%s) scale 0\n"
                    "unset grid\nset grid xtics lc rgb '%s' lw 0.4 dt 1\n"
                    "set style fill solid 1.0 noborder\n"
                    "set bmargin 7\nset key outside below horizontal Left reverse samplen 1.5\n"
                    "plot \\\n",
                    longest > 0 ? 1.03 * longest : 1.0, count, labels->failed ? "" : labels->text,
                    DPB_COLOUR_IDEAL);
    for (p = 0; p < PARTS; p++) {
        dpb_str_appendf(&plot->script,
                        "    '%s.dat' using %zu:1:%zu:%zu:($1-0.36):($1+0.36) with boxxyerror lc "
                        "rgb '%s' title '%s'%s\n",
                        plot->name, p + 2, p + 2, p + 3, parts[p].colour, parts[p].title,
                        p + 1 < PARTS ? ", \\" : "");
    }
}

void dpb_plots_breakdown(const struct dpb_summary *summary, struct dpb_plot_list *list)
{
    const struct dpb_axes axes = dpb_axes_of(summary);
    /* Strategies stand in the order of their table. */
    const struct dpb_cell_summary **cells =
            dpb_axes_have(&axes, "strategy") ? dpb_view_ranked(summary) : dpb_view_cells(summary);
    size_t traced, count;
    struct dpb_str labels = {0}, kind = {0}, title = {0};
    struct dpb_plot *plot = NULL;

    if (!cells) {
        list->failed = true;
        return;
    }
    traced = keep_traced(cells, summary->cell_count);
    count = traced < BARS_MAX ? traced : BARS_MAX;
    if (count > 0) {
        dpb_view_kind(cells, count, &kind);
        dpb_str_appendf(&title, "Where the time of a step goes (%s)", kind.failed ? "" : kind.text);
        plot = dpb_plot_add(list, "breakdown", title.failed ? "" : title.text, 960,
                            170 + 24 * (int)count);
    }
    if (plot) {
        double longest;

        dpb_str_append(&plot->data,
                       "# where a step goes, milliseconds per rank and step: ends of the stacked "
                       "parts\n# row 0 compute exposed_communication waiting_for_peers "
                       "loading_data idle\n");
        longest = append_rows(summary, cells, count, plot, &labels);
        append_script(plot, &labels, count, longest);
        dpb_str_appendf(&plot->caption,
                        "%s, mean over the traced steps of %s. Communication that overlaps "
                        "computation does not lengthen a step and is part of compute here.",
                        title.failed ? "" : title.text,
                        cells[0]->simulated ? "rank 0" : "all ranks");
        if (count < traced)
            dpb_str_appendf(&plot->caption, " %zu more cells are in the table.", traced - count);
    }
    free(cells);
    dpb_str_release(&labels);
    dpb_str_release(&kind);
    dpb_str_release(&title);
}

/* A metric against commits: points, the level between changes, and where it changed. */
#include "dpb_trend.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_text_table.h"
#include "gate_view.h"
#include "gnuplot.h"
#include "plot.h"

#define NAMES_MAX    24 /* commits whose names fit below the axis */
#define NAME_COLUMNS 9
#define SPREAD_LEAST 0.01 /* of the values: below it the axis shows as much on both sides */

/* ---- table ---- */

#define LEVEL_COLUMNS 5

struct level_texts {
    char commit[16], commits[24], mean[GATE_VIEW_BYTES], change[24], p[16];
};

static void describe_level(const struct dpb_trend *trend, size_t level, struct level_texts *texts)
{
    const struct dpb_changepoint *change = level > 0 ? &trend->changes[level - 1] : NULL;
    const size_t from = change ? change->index : 0;
    const size_t to =
            level < trend->change_count ? trend->changes[level].index : trend->point_count;
    double sum = 0;

    for (size_t i = from; i < to; i++)
        sum += trend->points[i].value;
    snprintf(texts->commit, sizeof(texts->commit), "%.12s", trend->points[from].commit);
    snprintf(texts->commits, sizeof(texts->commits), "%zu", to - from);
    dpb_gate_value_text(sum / (double)(to - from), trend->metric->unit, texts->mean);
    if (change) {
        snprintf(texts->change, sizeof(texts->change), "%+.2f %%", 100 * change->change);
        snprintf(texts->p, sizeof(texts->p), "%.3f", change->p);
    }
}

dpb_status dpb_trend_print(const struct dpb_trend *trend, FILE *out)
{
    static const struct dpb_text_column columns[LEVEL_COLUMNS] = {{"from commit", DPB_TEXT_WORD},
                                                                  {"commits", DPB_TEXT_NUMBER},
                                                                  {"mean", DPB_TEXT_NUMBER},
                                                                  {"change", DPB_TEXT_NUMBER},
                                                                  {"p", DPB_TEXT_NUMBER}};
    const size_t levels = trend->change_count + 1;
    struct level_texts *texts = calloc(levels, sizeof(*texts));
    const char **cells = calloc(levels * LEVEL_COLUMNS, sizeof(*cells));
    dpb_status st = texts && cells ? DPB_OK : DPB_ERR_NO_MEMORY;

    for (size_t i = 0; st == DPB_OK && i < levels; i++) {
        struct level_texts *t = &texts[i];

        describe_level(trend, i, t);
        const char *row[LEVEL_COLUMNS] = {t->commit, t->commits, t->mean, i > 0 ? t->change : NULL,
                                          i > 0 ? t->p : NULL};
        memcpy(&cells[i * LEVEL_COLUMNS], row, sizeof(row));
    }
    if (st == DPB_OK) {
        fprintf(out, "%s of %s, %zu commit%s\n", trend->metric->name, trend->cell,
                trend->point_count, trend->point_count == 1 ? "" : "s");
        st = dpb_text_table_print(columns, LEVEL_COLUMNS, cells, levels, out, 0);
    }
    for (size_t i = 1; st == DPB_OK && i < levels; i++)
        if (!trend->changes[i - 1].is_confirmed)
            fprintf(out, "%s is not confirmed yet: too few commits follow\n", texts[i].commit);
    free(cells);
    free(texts);
    return st;
}

/* ---- plot ---- */

/* Times in milliseconds: nanoseconds have too many digits for an axis. */
static double scale_of(const struct dpb_gate_metric *metric)
{
    return metric->unit[0] == 'n' && metric->unit[1] == 's' ? 1e-6 : 1;
}

static void append_points(const struct dpb_trend *trend, double scale, struct dpb_plot *plot)
{
    dpb_str_append(&plot->data, "# commit number, value, commit\n");
    for (size_t i = 0; i < trend->point_count; i++) {
        dpb_str_appendf(&plot->data, "%zu ", i);
        dpb_plot_value(scale * trend->points[i].value, &plot->data);
        dpb_str_appendf(&plot->data, " %.12s\n", trend->points[i].commit);
        plot->points++;
    }
}

/* One block of two points per level. */
static void append_levels(const struct dpb_trend *trend, double scale, struct dpb_plot *plot)
{
    dpb_str_append(&plot->data, "\n\n# levels\n");
    for (size_t i = 0; i <= trend->change_count; i++) {
        const size_t from = i > 0 ? trend->changes[i - 1].index : 0;
        const size_t to = i < trend->change_count ? trend->changes[i].index : trend->point_count;
        double sum = 0;

        for (size_t k = from; k < to; k++)
            sum += trend->points[k].value;
        const double level = scale * sum / (double)(to - from);
        dpb_str_appendf(&plot->data, "%g ", (double)from - 0.5);
        dpb_plot_value(level, &plot->data);
        dpb_str_appendf(&plot->data, "\n%g ", (double)to - 0.5);
        dpb_plot_value(level, &plot->data);
        dpb_str_append(&plot->data, "\n\n");
    }
}

/* A line at every change, named by its commit; dashed when too few commits follow. */
static void append_changes(const struct dpb_trend *trend, struct dpb_str *script)
{
    for (size_t i = 0; i < trend->change_count; i++) {
        const struct dpb_changepoint *change = &trend->changes[i];
        const double at = (double)change->index - 0.5;

        dpb_str_appendf(script,
                        "set arrow from %g, graph 0 to %g, graph 1 nohead lw 1 dt %d lc rgb '%s'\n"
                        "set label ",
                        at, at, change->is_confirmed ? 1 : 2, DPB_COLOUR_EXPOSED);
        dpb_plot_quote(trend->points[change->index].commit, NAME_COLUMNS, script);
        dpb_str_appendf(script,
                        ".' %+.1f%%' at %g, graph 0.98 right rotate by 90 offset -0.6,0 font "
                        "',10'\n",
                        100 * change->change, at);
    }
    for (size_t i = 0; i < trend->point_count; i++)
        if (trend->points[i].is_release)
            dpb_str_appendf(script,
                            "set arrow from %zu, graph 0 to %zu, graph 1 nohead lw 2 dt 3 lc rgb "
                            "'%s'\n",
                            i, i, DPB_COLOUR_IDEAL);
}

/* Commits by name where there is room for names, else by number; no tick where there is no commit.
 */
static void append_commit_axis(const struct dpb_trend *trend, struct dpb_str *script)
{
    dpb_str_appendf(script, "set xlabel 'commit'\nset xrange [-0.6:%g]\n",
                    (double)trend->point_count - 0.4);
    if (trend->point_count > NAMES_MAX)
        return;
    dpb_str_append(script, "set xtics rotate by 30 right (");
    for (size_t i = 0; i < trend->point_count; i++) {
        dpb_str_append(script, i > 0 ? ", " : "");
        dpb_plot_quote(trend->points[i].commit, NAME_COLUMNS, script);
        dpb_str_appendf(script, " %zu", i);
    }
    dpb_str_append(script, ")\n");
}

/* A value that does not change would be drawn with the noise of its last digit. */
static void append_value_axis(const struct dpb_trend *trend, double scale, struct dpb_str *script)
{
    double low = INFINITY, high = -INFINITY;

    for (size_t i = 0; i < trend->point_count; i++) {
        low = fmin(low, scale * trend->points[i].value);
        high = fmax(high, scale * trend->points[i].value);
    }
    const double least = SPREAD_LEAST * fmax(fabs(low), fabs(high));
    if (high - low < least)
        dpb_str_appendf(script, "set yrange [%.9g:%.9g]\n", low - least, high + least);
}

static void append_script(const struct dpb_trend *trend, double scale, struct dpb_plot *plot)
{
    struct dpb_str label = {0};

    dpb_str_appendf(&label, "%s%s%s", trend->metric->name,
                    scale != 1               ? ", ms"
                    : trend->metric->unit[0] ? ", "
                                             : "",
                    scale != 1 ? "" : trend->metric->unit);
    append_changes(trend, &plot->script);
    append_commit_axis(trend, &plot->script);
    append_value_axis(trend, scale, &plot->script);
    dpb_str_append(&plot->script, "set ylabel ");
    dpb_plot_quote(label.text ? label.text : "", 60, &plot->script);
    dpb_str_appendf(&plot->script,
                    "\nset bmargin 7\nset key outside below center horizontal\n"
                    "plot 'trend.dat' index 0 using 1:2 with points pt 7 ps 0.4 lc rgb '%s' title "
                    "'mean of the runs of a commit', \\\n"
                    "    'trend.dat' index 1 using 1:2 with lines lw 2 lc rgb '%s' title "
                    "'level between changes'\n",
                    DPB_COLOUR_COMPUTE, DPB_COLOUR_EXPOSED);
    dpb_str_release(&label);
}

dpb_status dpb_trend_plot(const struct dpb_trend *trend, const char *folder)
{
    struct dpb_plot_list list = {0};
    struct dpb_plot *plot = dpb_plot_add(&list, "trend", trend->cell, 960, 480);
    const double scale = scale_of(trend->metric);

    if (plot) {
        append_points(trend, scale, plot);
        append_levels(trend, scale, plot);
        append_script(trend, scale, plot);
        dpb_str_appendf(&plot->caption, "%s of %s against commits.", trend->metric->name,
                        trend->cell);
    }
    char *gnuplot = dpb_gnuplot_find(NULL);
    dpb_status st = list.failed ? DPB_ERR_NO_MEMORY : dpb_mkdir_p(folder);
    if (st == DPB_OK)
        st = dpb_plots_draw(&list, folder, gnuplot);
    free(gnuplot);
    dpb_plot_list_release(&list);
    return st;
}

#include "plot.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"
#include "dpb_units.h"
#include "gnuplot.h"

static bool name_is_taken(const struct dpb_plot_list *list, const char *name)
{
    size_t i;

    for (i = 0; i < list->count; i++) {
        if (strcmp(list->items[i].name, name) == 0)
            return true;
    }
    return false;
}

struct dpb_plot *dpb_plot_add(struct dpb_plot_list *list, const char *name, const char *title,
                              int width, int height)
{
    struct dpb_plot plot = {0};
    struct dpb_plot *items = realloc(list->items, (list->count + 1) * sizeof(*items));
    int number = 2;

    if (!items) {
        list->failed = true;
        return NULL;
    }
    list->items = items;
    snprintf(plot.name, sizeof(plot.name), "%.50s", name);
    while (name_is_taken(list, plot.name))
        snprintf(plot.name, sizeof(plot.name), "%.50s-%d", name, number++);
    dpb_str_appendf(&plot.script,
                    "# Draw it again with: gnuplot %s.gp\n"
                    "if (!exists('out')) out = '%s.svg'\n"
                    "set encoding utf8\n"
                    "set terminal svg size %d,%d dynamic noenhanced \\\n"
                    "    font 'Helvetica,Arial,sans-serif,13' background '#ffffff'\n"
                    "set output out\n"
                    "set datafile missing '?'\n"
                    "set border 3 lw 1\n"
                    "set tics nomirror out scale 0.5\n"
                    "set grid ytics lc rgb '%s' lw 0.4 dt 1\n"
                    "set title ",
                    plot.name, plot.name, width, height, DPB_COLOUR_IDEAL);
    dpb_plot_quote(title, 110, &plot.script);
    dpb_str_append(&plot.script, "\n");
    list->items[list->count] = plot;
    return &list->items[list->count++];
}

void dpb_plot_list_release(struct dpb_plot_list *list)
{
    size_t i;

    for (i = 0; i < list->count; i++) {
        dpb_str_release(&list->items[i].caption);
        dpb_str_release(&list->items[i].data);
        dpb_str_release(&list->items[i].script);
    }
    free(list->items);
    *list = (struct dpb_plot_list){0};
}

void dpb_plot_quote(const char *text, size_t columns, struct dpb_str *out)
{
    size_t shown = 0;
    const char *p;

    dpb_str_append(out, "'");
    for (p = text; *p; p++) {
        bool continues = ((unsigned char)*p & 0xc0) == 0x80;

        if (!continues && shown++ == columns) {
            dpb_str_append(out, "\xe2\x80\xa6"); /* an ellipsis */
            break;
        }
        if (*p == '\'')
            dpb_str_append(out, "''");
        else
            dpb_str_append_bytes(out, (unsigned char)*p < 0x20 || *p == 0x7f ? " " : p, 1);
    }
    dpb_str_append(out, "'");
}

const char *dpb_plot_series_colour(size_t index)
{
    static const char *const colours[DPB_PLOT_SERIES_COLOURS] = {
            "#4477AA", "#EE6677", "#228833", "#CCBB44", "#66CCEE", "#AA3377", "#8C8C8C"};

    return colours[index % DPB_PLOT_SERIES_COLOURS];
}

void dpb_plot_value(double value, struct dpb_str *out)
{
    char text[DPB_UNIT_TEXT_BYTES];

    if (isfinite(value)) {
        dpb_format_f64(value, text, sizeof(text));
        dpb_str_append(out, text);
    } else {
        dpb_str_append(out, "?");
    }
    dpb_str_append(out, " ");
}

static dpb_status write_part(const struct dpb_plot *plot, const char *folder, const char *ending,
                             const struct dpb_str *content)
{
    struct dpb_str path = {0};
    dpb_status st;

    dpb_str_appendf(&path, "%s/%s%s", folder, plot->name, ending);
    if (path.failed || content->failed) {
        dpb_error("cannot write the plot \"%s\": out of memory", plot->name);
        st = DPB_ERR_NO_MEMORY;
    } else {
        st = dpb_file_write_atomic(path.text, content->length ? content->text : "",
                                   content->length);
    }
    dpb_str_release(&path);
    return st;
}

dpb_status dpb_plots_draw(struct dpb_plot_list *list, const char *folder, const char *gnuplot)
{
    size_t i;

    for (i = 0; i < list->count; i++) {
        struct dpb_plot *plot = &list->items[i];

        if (plot->points == 0)
            continue;
        DPB_TRY(write_part(plot, folder, ".dat", &plot->data));
        DPB_TRY(write_part(plot, folder, ".gp", &plot->script));
        plot->drawn = gnuplot && dpb_gnuplot_run(gnuplot, folder, plot->name) == DPB_OK;
    }
    return DPB_OK;
}

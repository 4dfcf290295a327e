/* plot.h (private): a plot is a gnuplot script and its data, both kept beside the SVG so that a
 * user can draw it again: cd plots && gnuplot NAME.gp */
#ifndef DPB_PLOT_H
#define DPB_PLOT_H

#include <stdbool.h>
#include <stddef.h>

#include "dpb_str.h"
#include "dpb_summary.h"

struct dpb_plot {
    char name[64];          /* of its files: [a-z0-9-] */
    struct dpb_str caption; /* what it shows, and what was left out */
    struct dpb_str data, script;
    size_t points; /* valid ones; without any it is not drawn */
    bool drawn;
};

struct dpb_plot_list {
    struct dpb_plot *items;
    size_t count;
    bool failed; /* out of memory */
};

/* Add a plot with a title, of `width` x `height` pixels; NULL when out of memory. `name` gets a
 * number when it is taken. Its script goes up to the title. */
struct dpb_plot *dpb_plot_add(struct dpb_plot_list *list, const char *name, const char *title,
                              int width, int height);
void dpb_plot_list_release(struct dpb_plot_list *list);

/* Append 'text' for a gnuplot script: single quotes, in which nothing is expanded, one line, at
 * most `columns` characters. */
void dpb_plot_quote(const char *text, size_t columns, struct dpb_str *out);

/* Append a number for a data file; "?" stands for one that does not exist. */
void dpb_plot_value(double value, struct dpb_str *out);

/* Write the files of all plots below `folder` and draw those that have a point; `gnuplot` NULL:
 * draw none. A plot that cannot be drawn is a warning. */
dpb_status dpb_plots_draw(struct dpb_plot_list *list, const char *folder, const char *gnuplot);

/* The plots of a report. */
void dpb_plots_scaling(const struct dpb_summary *summary, struct dpb_plot_list *list);
void dpb_plots_bucket(const struct dpb_summary *summary, struct dpb_plot_list *list);
void dpb_plots_breakdown(const struct dpb_summary *summary, struct dpb_plot_list *list);
void dpb_plots_loss(const struct dpb_summary *summary, struct dpb_plot_list *list);

/* Colours by meaning, the same in all plots; told apart by colour-blind people (Okabe and Ito 2008
 * for parts of a step and overlap, Tol's "bright" scheme for series) and on light and dark ground.
 */
#define DPB_COLOUR_COMPUTE     "#0072B2"
#define DPB_COLOUR_EXPOSED     "#D55E00"
#define DPB_COLOUR_WAIT        "#E69F00"
#define DPB_COLOUR_IDLE        "#999999"
#define DPB_COLOUR_DATA        "#56B4E9"
#define DPB_COLOUR_OVERLAP_ON  "#009E73"
#define DPB_COLOUR_OVERLAP_OFF "#CC79A7"
#define DPB_COLOUR_IDEAL       "#808080"

/* Of series number `index`: as many different ones as can be told apart, then again from the first.
 */
#define DPB_PLOT_SERIES_COLOURS 7
const char *dpb_plot_series_colour(size_t index);

#endif

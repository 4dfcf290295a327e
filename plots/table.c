/* The table of cells for a terminal. */
#include "dpb_report.h"

#include <stdlib.h>
#include <string.h>

#include <libsmartcols/libsmartcols.h>

#include "dpb_log.h"
#include "view.h"

#define COLUMNS_MAX (DPB_VIEW_AXES + 10)
#define GAP         2 /* between columns */

/* What a column shows; axes come before them. */
enum content {
    AXIS,
    RUN,
    RANKS,
    STEP,
    STEP_HALF,
    RATE,
    EFFICIENCY,
    EXPOSED,
    HOW
};

struct column {
    enum content content;
    const char *header;
    int importance; /* the least important goes first when the terminal is narrow */
    size_t width;   /* of the widest text */
    bool left_out;
};

struct layout {
    struct dpb_axes axes;
    struct column columns[COLUMNS_MAX];
    size_t count;
};

static void add_column(struct layout *layout, enum content content, const char *header,
                       int importance)
{
    layout->columns[layout->count++] =
            (struct column){.content = content, .header = header, .importance = importance};
}

static void make_layout(const struct dpb_summary *summary, struct layout *layout)
{
    size_t i;

    *layout = (struct layout){.axes = dpb_axes_of(summary)};
    if (layout->axes.many_runs)
        add_column(layout, RUN, "run", 70);
    add_column(layout, RANKS, "ranks", 100);
    for (i = 0; i < layout->axes.count; i++)
        add_column(layout, AXIS, layout->axes.names[i], 90 - (int)i);
    add_column(layout, STEP, "step ms", 99);
    add_column(layout, STEP_HALF, "+-95% ms", 10);
    add_column(layout, RATE, "samples/s", 30);
    add_column(layout, EFFICIENCY, "efficiency %", 97);
    add_column(layout, EXPOSED, "exposed %", 20);
    add_column(layout, HOW, "how", 98);
}

static void append_text(const struct column *column, const struct dpb_cell_summary *cell,
                        struct dpb_str *out)
{
    const char *value;

    switch (column->content) {
    case AXIS:
        value = dpb_cell_axis(cell, column->header);
        dpb_str_append(out, value ? value : DPB_VIEW_ABSENT);
        break;
    case RUN:
        dpb_str_append(out, cell->run_id);
        break;
    case RANKS:
        dpb_str_appendf(out, "%d", cell->ranks);
        break;
    case STEP:
        dpb_view_ms(cell->step_median_ns, out);
        break;
    case STEP_HALF:
        dpb_view_ms(dpb_interval_half(cell->step_ci95_ns), out);
        break;
    case RATE:
        dpb_view_rate(cell->samples_per_s_total, out);
        break;
    case EFFICIENCY:
        dpb_view_percent(cell->efficiency, out);
        break;
    case EXPOSED:
        dpb_view_percent(cell->exposed_share, out);
        break;
    case HOW:
        if (cell->repeats_ok == 0)
            dpb_str_append(out, cell->not_ok_status);
        else
            dpb_view_how(cell, out);
        if (cell->flagged)
            dpb_str_append(out, ", flagged");
        break;
    }
}

static size_t characters(const char *text)
{
    size_t count = 0;

    for (; *text; text++)
        count += ((unsigned char)*text & 0xc0) != 0x80;
    return count;
}

static void measure(const struct dpb_summary *summary, struct layout *layout)
{
    size_t c, i;

    for (c = 0; c < layout->count; c++) {
        struct column *column = &layout->columns[c];

        column->width = characters(column->header);
        for (i = 0; i < summary->cell_count; i++) {
            struct dpb_str text = {0};
            size_t width;

            append_text(column, &summary->cells[i], &text);
            width = text.length ? characters(text.text) : 0;
            column->width = width > column->width ? width : column->width;
            dpb_str_release(&text);
        }
    }
}

/* Texts may be cut; numbers must not, a cut number is another number. */
static bool may_be_cut(const struct column *column)
{
    return column->content == RUN || column->content == AXIS || column->content == HOW;
}

/* Columns that a reader can do without; the others are shortened before they go. */
#define DISPENSABLE 50

static size_t least_width(const struct column *column)
{
    const size_t word = sizeof("simulated") - 1;
    size_t shortest = characters(column->header) > word ? characters(column->header) : word;

    return may_be_cut(column) && column->width > shortest ? shortest : column->width;
}

/* The width that the columns take, and the least important of them that is not above `importance`.
 */
static size_t needed_width(struct layout *layout, bool shortened, int importance,
                           struct column **least)
{
    size_t needed = 0, c;

    *least = NULL;
    for (c = 0; c < layout->count; c++) {
        struct column *column = &layout->columns[c];

        if (column->left_out)
            continue;
        needed += (shortened ? least_width(column) : column->width) + (needed ? GAP : 0);
        if (column->importance <= importance &&
            (!*least || column->importance < (*least)->importance))
            *least = column;
    }
    return needed;
}

/* Leave out the least important columns until the others fit. */
static void fit(struct layout *layout, size_t width)
{
    struct column *least;

    while (needed_width(layout, false, DISPENSABLE, &least) > width && least)
        least->left_out = true;
    while (needed_width(layout, true, 99, &least) > width && least)
        least->left_out = true;
}

static int add_rows(const struct dpb_cell_summary *const *cells, size_t count,
                    const struct layout *layout, struct libscols_table *table)
{
    size_t i, c;

    for (i = 0; i < count; i++) {
        struct libscols_line *line = scols_table_new_line(table, NULL);
        size_t number = 0;

        if (!line)
            return -1;
        for (c = 0; c < layout->count; c++) {
            struct dpb_str text = {0};
            int failed;

            if (layout->columns[c].left_out)
                continue;
            append_text(&layout->columns[c], cells[i], &text);
            failed = text.failed ||
                     scols_line_set_data(line, number++, text.length ? text.text : "") != 0;
            dpb_str_release(&text);
            if (failed)
                return -1;
        }
    }
    return 0;
}

static int fill_table(const struct dpb_summary *summary, const struct layout *layout, FILE *out,
                      size_t width, struct libscols_table *table)
{
    const struct dpb_cell_summary **cells;
    int failed;
    size_t c;

    scols_table_set_stream(table, out);
    scols_table_set_termforce(table, SCOLS_TERMFORCE_ALWAYS);
    scols_table_set_termwidth(table, width);
    scols_table_enable_nowrap(table, 1);
    scols_table_enable_colors(table, 0);
    if (scols_table_set_column_separator(table, "  ") != 0)
        return -1;
    for (c = 0; c < layout->count; c++) {
        const struct column *column = &layout->columns[c];
        int flags = may_be_cut(column) ? SCOLS_FL_TRUNC : SCOLS_FL_RIGHT;

        if (column->left_out)
            continue;
        if (!scols_table_new_column(table, column->header, (double)column->width, flags))
            return -1;
    }
    cells = dpb_view_cells(summary);
    failed = cells ? add_rows(cells, summary->cell_count, layout, table) : -1;
    free(cells);
    return failed;
}

static bool more_left_out(const struct layout *layout, size_t after)
{
    size_t c;

    for (c = after + 1; c < layout->count; c++) {
        if (layout->columns[c].left_out)
            return true;
    }
    return false;
}

/* Which columns did not fit; the lines keep to the width. */
static void print_left_out(const struct layout *layout, FILE *out, size_t width)
{
    static const char intro[] = "left out for lack of width:";
    size_t used = 0, c;

    for (c = 0; c < layout->count; c++) {
        const char *header = layout->columns[c].header;
        size_t needed = characters(header) + 2;

        if (!layout->columns[c].left_out)
            continue;
        if (used == 0 && sizeof(intro) - 1 <= width) {
            used = sizeof(intro) - 1;
            fputs(intro, out);
        }
        if (used == 0 || used + needed > width) {
            if (used > 0)
                fputs("\n", out);
            used = 0;
        }
        if (needed > width)
            continue;
        fprintf(out, "%s%s%s", used ? " " : "", header, more_left_out(layout, c) ? "," : "");
        used += needed;
    }
    if (used > 0)
        fputs("\n", out);
}

dpb_status dpb_report_table(const struct dpb_summary *summary, FILE *out, int width)
{
    size_t columns = width > 0 ? (size_t)width : dpb_view_terminal_width(out);
    struct libscols_table *table = scols_new_table();
    struct layout layout;
    int failed;

    make_layout(summary, &layout);
    measure(summary, &layout);
    fit(&layout, columns);
    failed = !table || fill_table(summary, &layout, out, columns, table) != 0 ||
             scols_print_table(table) != 0;
    scols_unref_table(table);
    if (failed) {
        dpb_error("cannot print the table of cells: out of memory, or the output is closed");
        return DPB_ERR_IO;
    }
    print_left_out(&layout, out, columns);
    return DPB_OK;
}

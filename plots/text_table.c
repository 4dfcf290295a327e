#include "dpb_text_table.h"

#include <libsmartcols/libsmartcols.h>
#include <string.h>

#include "dpb_log.h"
#include "dpb_str.h"
#include "view.h"

#define SEPARATOR  "  "
#define LONG_LEAST 20 /* columns: a shorter piece of a name tells nothing, so that lines wrap */

static const char *cell_of(const char *const *cells, size_t column_count, size_t row, size_t column)
{
    const char *cell = cells[row * column_count + column];

    return cell ? cell : DPB_VIEW_ABSENT;
}

/* Characters of UTF-8. */
static size_t width_of(const char *text)
{
    size_t width = 0;

    for (; *text; text++)
        width += ((unsigned char)*text & 0xc0) != 0x80;
    return width;
}

static size_t column_width(const char *header, const char *const *cells, size_t column_count,
                           size_t row_count, size_t column)
{
    size_t widest = width_of(header);

    for (size_t r = 0; r < row_count; r++) {
        const size_t width = width_of(cell_of(cells, column_count, r, column));

        if (width > widest)
            widest = width;
    }
    return widest;
}

/* What is left for a long column beside the others; SIZE_MAX: it need not be cut, or there is so
 * little that nothing is gained. */
static size_t room_of_long(const struct dpb_text_column *columns, size_t column_count,
                           const char *const *cells, size_t row_count, size_t terminal)
{
    size_t others = (column_count - 1) * strlen(SEPARATOR);

    for (size_t c = 0; c < column_count; c++)
        if (columns[c].kind != DPB_TEXT_LONG)
            others += column_width(columns[c].header, cells, column_count, row_count, c);
    return others + LONG_LEAST <= terminal ? terminal - others : SIZE_MAX;
}

/* "layer4.0.downs..." */
static void append_cut(const char *text, size_t room, struct dpb_str *out)
{
    static const char mark[] = "...";
    const char *end = text;

    for (size_t width = 0; *end; end++) {
        width += ((unsigned char)*end & 0xc0) != 0x80;
        if (width > room - strlen(mark))
            break;
    }
    dpb_str_append_bytes(out, text, (size_t)(end - text));
    dpb_str_append(out, mark);
}

static int set_cell(struct libscols_line *line, size_t column, const char *text, size_t room)
{
    struct dpb_str cut = {0};

    if (width_of(text) <= room)
        return scols_line_set_data(line, column, text);
    append_cut(text, room, &cut);
    const int failed = cut.failed || scols_line_set_data(line, column, cut.text) != 0;
    dpb_str_release(&cut);
    return failed;
}

static int fill(const struct dpb_text_column *columns, size_t column_count,
                const char *const *cells, size_t row_count, size_t terminal,
                struct libscols_table *table)
{
    const size_t room = room_of_long(columns, column_count, cells, row_count, terminal);

    for (size_t c = 0; c < column_count; c++)
        if (!scols_table_new_column(table, columns[c].header, 0,
                                    columns[c].kind == DPB_TEXT_NUMBER ? SCOLS_FL_RIGHT : 0))
            return -1;
    for (size_t r = 0; r < row_count; r++) {
        struct libscols_line *line = scols_table_new_line(table, NULL);

        for (size_t c = 0; c < column_count; c++)
            if (!line || set_cell(line, c, cell_of(cells, column_count, r, c),
                                  columns[c].kind == DPB_TEXT_LONG ? room : SIZE_MAX) != 0)
                return -1;
    }
    return 0;
}

dpb_status dpb_text_table_print(const struct dpb_text_column *columns, size_t column_count,
                                const char *const *cells, size_t row_count, FILE *out, int width)
{
    const size_t terminal = width > 0 ? (size_t)width : dpb_view_terminal_width(out);
    struct libscols_table *table = scols_new_table();
    int failed = !table;

    if (table) {
        scols_table_set_stream(table, out);
        scols_table_set_termforce(table, SCOLS_TERMFORCE_ALWAYS);
        scols_table_set_termwidth(table, DPB_VIEW_UNCUT); /* what is too long was cut above */
        scols_table_enable_nowrap(table, 1);
        scols_table_enable_colors(table, 0);
        failed = scols_table_set_column_separator(table, SEPARATOR) != 0 ||
                 fill(columns, column_count, cells, row_count, terminal, table) != 0 ||
                 scols_print_table(table) != 0;
    }
    scols_unref_table(table);
    if (failed) {
        dpb_error("cannot print a table: out of memory, or the output is closed");
        return DPB_ERR_IO;
    }
    return DPB_OK;
}

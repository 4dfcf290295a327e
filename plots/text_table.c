#include "dpb_text_table.h"

#include <libsmartcols/libsmartcols.h>

#include "dpb_log.h"
#include "view.h"

static int add_columns(const struct dpb_text_column *columns, size_t count,
                       struct libscols_table *table)
{
    static const int flags[] = {[DPB_TEXT_NUMBER] = SCOLS_FL_RIGHT,
                                [DPB_TEXT_WORD] = 0,
                                [DPB_TEXT_LONG] = SCOLS_FL_TRUNC};

    for (size_t c = 0; c < count; c++) {
        if (!scols_table_new_column(table, columns[c].header, 0, flags[columns[c].kind]))
            return -1;
    }
    return 0;
}

static int add_rows(const char *const *cells, size_t column_count, size_t row_count,
                    struct libscols_table *table)
{
    for (size_t r = 0; r < row_count; r++) {
        struct libscols_line *line = scols_table_new_line(table, NULL);

        if (!line)
            return -1;
        for (size_t c = 0; c < column_count; c++) {
            const char *cell = cells[r * column_count + c];

            if (scols_line_set_data(line, c, cell ? cell : DPB_VIEW_ABSENT) != 0)
                return -1;
        }
    }
    return 0;
}

dpb_status dpb_text_table_print(const struct dpb_text_column *columns, size_t column_count,
                                const char *const *cells, size_t row_count, FILE *out, int width)
{
    struct libscols_table *table = scols_new_table();
    int failed = !table;

    if (table) {
        scols_table_set_stream(table, out);
        scols_table_set_termforce(table, SCOLS_TERMFORCE_ALWAYS);
        scols_table_set_termwidth(table, width > 0 ? (size_t)width : dpb_view_terminal_width(out));
        scols_table_enable_nowrap(table, 1);
        scols_table_enable_colors(table, 0);
        failed = scols_table_set_column_separator(table, "  ") != 0 ||
                 add_columns(columns, column_count, table) != 0 ||
                 add_rows(cells, column_count, row_count, table) != 0 ||
                 scols_print_table(table) != 0;
    }
    scols_unref_table(table);
    if (failed) {
        dpb_error("cannot print a table: out of memory, or the output is closed");
        return DPB_ERR_IO;
    }
    return DPB_OK;
}

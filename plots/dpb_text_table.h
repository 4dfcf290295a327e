/* dpb_text_table.h: a table of texts for a terminal. */
#ifndef DPB_TEXT_TABLE_H
#define DPB_TEXT_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "dpb_status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct dpb_text_column {
    const char *header;
    bool is_text; /* left aligned, and cut where the table is wider than the terminal; numbers are
                     right aligned and never cut */
};

/* Print `row_count` rows of `column_count` cells each, row by row; a NULL cell is a dash. `width`
 * columns; 0: the terminal's, or 80. DPB_ERR_IO, logged, when it cannot. */
dpb_status dpb_text_table_print(const struct dpb_text_column *columns, size_t column_count,
                                const char *const *cells, size_t row_count, FILE *out, int width);

#ifdef __cplusplus
}
#endif
#endif

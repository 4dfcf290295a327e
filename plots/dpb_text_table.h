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

enum dpb_text_column_kind {
    DPB_TEXT_NUMBER, /* right aligned, never cut: a cut number is another number */
    DPB_TEXT_WORD,   /* left aligned, never cut */
    DPB_TEXT_LONG /* left aligned, at most one of a table: cut ("layer4.0.conv...") where the table
                   * is wider than the terminal, unless that would leave next to nothing of it */
};

struct dpb_text_column {
    const char *header;
    enum dpb_text_column_kind kind;
};

/* Print `row_count` rows of `column_count` cells each, row by row; a NULL cell is a dash. `width`
 * columns; 0: the terminal's, or all. DPB_ERR_IO, logged, when it cannot. */
dpb_status dpb_text_table_print(const struct dpb_text_column *columns, size_t column_count,
                                const char *const *cells, size_t row_count, FILE *out, int width);

#ifdef __cplusplus
}
#endif
#endif

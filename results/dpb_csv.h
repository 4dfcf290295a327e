/* dpb_csv.h: tables of others as comma-separated values, read strictly (RFC 4180): every row has as
 * many fields as the header, quotes are closed, numbers have a point. A byte order mark at the
 * beginning and CR before a line's end are left out. */
#ifndef DPB_CSV_H
#define DPB_CSV_H

#include <stddef.h>

#include "dpb_status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct dpb_csv {
    const char *file; /* borrowed; for messages */
    char *text;       /* all fields, terminated */
    char **field;     /* (1 + rows) * columns, the header first */
    int *line;        /* of every row in the file */
    size_t columns, rows;
};

/* DPB_ERR_USAGE, logged as "file:line: ...": no header, a name twice, too many or too few fields, a
 * quote that is not closed or that text follows, a byte 0. Release after use. */
dpb_status dpb_csv_parse(const char *text, size_t count, const char *file, struct dpb_csv *csv);
void dpb_csv_release(struct dpb_csv *csv);

/* The column of that name, or -1. */
int dpb_csv_column(const struct dpb_csv *csv, const char *name);
/* A field, "" where column is -1. Owned by the table. */
const char *dpb_csv_text(const struct dpb_csv *csv, size_t row, int column);
/* Its number; NaN where it is empty. DPB_ERR_USAGE, logged with the line, for other text: "1,5". */
dpb_status dpb_csv_number(const struct dpb_csv *csv, size_t row, int column, double *number);

#ifdef __cplusplus
}
#endif
#endif

#include "dpb_csv.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"
#include "dpb_units.h"

struct reader {
    struct dpb_csv *csv;
    const char *at, *end;
    char *to; /* in csv->text */
    int line;
    size_t fields, fields_max, lines_max;
};

static dpb_status bad(const struct reader *r, int line, const char *what)
{
    dpb_error("%s:%d: %s", r->csv->file, line, what);
    return DPB_ERR_USAGE;
}

static dpb_status no_memory(void)
{
    dpb_error("reading a table: out of memory");
    return DPB_ERR_NO_MEMORY;
}

/* ---- fields ---- */

static dpb_status keep_field(struct reader *r, char *start)
{
    if (r->fields == r->fields_max) {
        const size_t most = r->fields_max ? 2 * r->fields_max : 256;
        char **field = realloc(r->csv->field, most * sizeof(*field));
        if (!field)
            return no_memory();
        r->csv->field = field;
        r->fields_max = most;
    }
    r->csv->field[r->fields++] = start;
    *r->to++ = '\0';
    return DPB_OK;
}

static bool at_line_end(const struct reader *r)
{
    return r->at == r->end || *r->at == '\n' ||
           (*r->at == '\r' && r->at + 1 < r->end && r->at[1] == '\n');
}

static dpb_status read_quoted(struct reader *r)
{
    const int opened = r->line;

    for (r->at++; r->at < r->end; r->at++) {
        if (*r->at == '\n')
            r->line++;
        if (*r->at == '"') {
            if (r->at + 1 == r->end || r->at[1] != '"')
                break;
            r->at++;
        }
        *r->to++ = *r->at;
    }
    if (r->at == r->end)
        return bad(r, opened, "a quote is not closed");
    r->at++;
    return r->at < r->end && *r->at != ',' && !at_line_end(r)
                   ? bad(r, r->line, "text follows a closing quote")
                   : DPB_OK;
}

static dpb_status read_field(struct reader *r)
{
    char *start = r->to;

    if (r->at < r->end && *r->at == '"') {
        DPB_TRY(read_quoted(r));
    } else {
        for (; r->at < r->end && *r->at != ',' && !at_line_end(r); r->at++) {
            if (*r->at == '"')
                return bad(r, r->line, "a quote in the middle of a field without quotes");
            *r->to++ = *r->at;
        }
    }
    return keep_field(r, start);
}

/* ---- lines ---- */

static dpb_status keep_line(struct reader *r, int line)
{
    if (r->csv->rows == r->lines_max) {
        const size_t most = r->lines_max ? 2 * r->lines_max : 64;
        int *lines = realloc(r->csv->line, most * sizeof(*lines));
        if (!lines)
            return no_memory();
        r->csv->line = lines;
        r->lines_max = most;
    }
    r->csv->line[r->csv->rows++] = line;
    return DPB_OK;
}

/* A header's or a row's fields: how many. */
static dpb_status read_line(struct reader *r, size_t *count)
{
    const size_t before = r->fields;

    for (;;) {
        DPB_TRY(read_field(r));
        if (r->at == r->end || *r->at != ',')
            break;
        r->at++;
    }
    if (r->at < r->end)
        r->at += *r->at == '\r' ? 2 : 1;
    r->line++;
    *count = r->fields - before;
    return DPB_OK;
}

static dpb_status read_header(struct reader *r)
{
    struct dpb_csv *csv = r->csv;

    if (r->at == r->end)
        return bad(r, 1, "the file is empty");
    DPB_TRY(read_line(r, &csv->columns));
    for (size_t a = 0; a < csv->columns; a++)
        for (size_t b = 0; b < a; b++)
            if (strcmp(csv->field[a], csv->field[b]) == 0)
                return bad(r, 1, "two columns have the same name");
    return DPB_OK;
}

static dpb_status read_rows(struct reader *r)
{
    size_t count;

    while (r->at < r->end) {
        const int line = r->line;

        DPB_TRY(read_line(r, &count));
        if (count != r->csv->columns) {
            dpb_error("%s:%d: %zu fields, %zu columns", r->csv->file, line, count, r->csv->columns);
            dpb_log_hint("every line needs as many fields as the first, separated by commas");
            return DPB_ERR_USAGE;
        }
        DPB_TRY(keep_line(r, line));
    }
    return DPB_OK;
}

dpb_status dpb_csv_parse(const char *text, size_t count, const char *file, struct dpb_csv *csv)
{
    struct reader r = {.csv = csv, .at = text, .end = text + count, .line = 1};
    dpb_status st;

    *csv = (struct dpb_csv){.file = file};
    if (count > 0 && memchr(text, '\0', count))
        return bad(&r, 1, "a byte 0: this is no text");
    if (count >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0)
        r.at += 3;
    csv->text = r.to = malloc(2 * count + 2); /* a terminator for every field, even an empty one */
    if (!csv->text)
        return no_memory();
    st = read_header(&r);
    if (st == DPB_OK)
        st = read_rows(&r);
    if (st < 0)
        dpb_csv_release(csv);
    return st;
}

void dpb_csv_release(struct dpb_csv *csv)
{
    free(csv->text);
    free(csv->field);
    free(csv->line);
    *csv = (struct dpb_csv){0};
}

/* ---- use ---- */

int dpb_csv_column(const struct dpb_csv *csv, const char *name)
{
    for (size_t c = 0; c < csv->columns; c++)
        if (strcmp(csv->field[c], name) == 0)
            return (int)c;
    return -1;
}

const char *dpb_csv_text(const struct dpb_csv *csv, size_t row, int column)
{
    return column < 0 ? "" : csv->field[(row + 1) * csv->columns + (size_t)column];
}

dpb_status dpb_csv_number(const struct dpb_csv *csv, size_t row, int column, double *number)
{
    const char *text = dpb_csv_text(csv, row, column);
    char why[DPB_WHY_BYTES];

    *number = NAN;
    if (!text[0] || dpb_parse_f64(text, number, why) == DPB_OK)
        return DPB_OK;
    dpb_error("%s:%d: %s is \"%s\": %s", csv->file, csv->line[row], csv->field[column], text, why);
    dpb_log_hint("numbers have a point, no comma, and no unit");
    return DPB_ERR_USAGE;
}

/* import_table.c: tables: of nccl-tests, and comma-separated values. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_csv.h"
#include "dpb_units.h"
#include "import_private.h"

/* ---- nccl-tests ---- */

#define FIELDS_MAX 32
#define KEY_FIELDS 5 /* size, count, type, redop, root */

struct table {
    char program[64];
    int line;
    size_t busbw[2], time[2], wrong[2]; /* fields of both forms */
    size_t forms;
    bool is_complete; /* the line with the mean after the table was there */
};

static size_t split(char *line, char *fields[FIELDS_MAX])
{
    size_t count = 0;

    for (char *save, *word = strtok_r(line, " \t\r", &save); word && count < FIELDS_MAX;
         word = strtok_r(NULL, " \t\r", &save))
        fields[count++] = word;
    return count;
}

/* "# size count type redop root time algbw busbw #wrong time ...": the mark is a field of its own.
 */
static void read_head(struct table *table, char *fields[], size_t count)
{
    table->forms = 0;
    for (size_t i = 1; i < count; i++) {
        if (table->forms < 2 &&
            (strcmp(fields[i], "time") == 0 || strcmp(fields[i], "cputime") == 0))
            table->time[table->forms] = i - 1;
        if (table->forms < 2 && strcmp(fields[i], "busbw") == 0)
            table->busbw[table->forms] = i - 1;
        if (table->forms < 2 && strcmp(fields[i], "#wrong") == 0)
            table->wrong[table->forms++] = i - 1;
    }
}

static dpb_status read_comment(struct import *in, struct table *table, char *line)
{
    static const char starting[] = "# Collective test starting: ";
    char *fields[FIELDS_MAX];

    if (strncmp(line, starting, strlen(starting)) == 0) {
        snprintf(table->program, sizeof(table->program), "%s", line + strlen(starting));
        table->program[strcspn(table->program, " \r\n")] = '\0';
    }
    if (strstr(line, "Avg bus bandwidth"))
        table->is_complete = true;
    const size_t count = split(line, fields);
    if (count > 1 && strcmp(fields[1], "size") == 0) {
        read_head(table, fields, count);
        if (table->forms == 0) {
            char where[32];
            snprintf(where, sizeof(where), "line %d", table->line);
            return import_bad(in, where, "the table's head has no #wrong");
        }
    }
    return DPB_OK;
}

static dpb_status read_field(struct import *in, char *fields[], size_t count, size_t at,
                             const char *where, double *number)
{
    char why[DPB_WHY_BYTES];

    if (at >= count)
        return import_bad(in, where, "%zu fields, the table has %zu or more", count, at + 1);
    if (dpb_parse_f64(fields[at], number, why) < 0)
        return import_bad(in, where, "\"%.40s\": %s", fields[at], why);
    return DPB_OK;
}

static dpb_status read_row(struct import *in, const struct table *table, char *line)
{
    char *fields[FIELDS_MAX], where[32], name[256];
    const size_t count = split(line, fields);
    double size, time_us, busbw, wrong;

    snprintf(where, sizeof(where), "line %d", table->line);
    if (count == 0)
        return DPB_OK;
    if (table->forms == 0)
        return import_bad(in, where, "a row before the table's head");
    DPB_TRY(read_field(in, fields, count, 0, where, &size));
    for (size_t form = 0; form < table->forms; form++) {
        wrong = NAN;
        DPB_TRY(read_field(in, fields, count, table->time[form], where, &time_us));
        DPB_TRY(read_field(in, fields, count, table->busbw[form], where, &busbw));
        if (table->wrong[form] >= count || strcmp(fields[table->wrong[form]], "N/A") != 0)
            DPB_TRY(read_field(in, fields, count, table->wrong[form], where, &wrong));
        snprintf(name, sizeof(name), "%s %.20s %.20s %.0f %s", table->program, fields[2], fields[3],
                 size, form == 0 ? "out-of-place" : "in-place");
        DPB_TRY(import_nccl_row(in, name, size, time_us, busbw, wrong, where));
    }
    return DPB_OK;
}

static dpb_status read_table(struct import *in, char *text)
{
    struct table table = {.program = "collective"};
    dpb_status st = DPB_OK;

    for (char *line = text, *next; st == DPB_OK && line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        table.line++;
        if (line[0] == '#')
            st = read_comment(in, &table, line);
        else if (!table.is_complete)
            st = read_row(in, &table, line);
    }
    if (st == DPB_OK && !table.is_complete)
        st = import_bad(in, "the end", "there is no \"# Avg bus bandwidth\": it was cut");
    return st;
}

/* Bytes of the mark that some editors and shells begin a file with. */
static size_t byte_order_mark(const struct import *in)
{
    return in->count >= 3 && memcmp(in->text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

dpb_status import_nccl_text(struct import *in)
{
    const size_t mark = byte_order_mark(in);
    char *text = strndup(in->text + mark, in->count - mark);

    if (!text)
        return DPB_ERR_NO_MEMORY;
    if (strlen(text) != in->count - mark) {
        free(text);
        return import_bad(in, "the file", "there is a byte 0 in it");
    }
    const dpb_status st = read_table(in, text);
    free(text);
    return st;
}

/* ---- CSV ---- */

static dpb_status read_columns(struct import *in, const struct dpb_csv *csv)
{
    const char *metric = in->higher_is_better ? "rate" : "value";
    struct import_run run;
    char where[96];
    double value;

    for (size_t row = 0; row < csv->rows; row++)
        for (size_t column = 0; column < csv->columns; column++) {
            snprintf(where, sizeof(where), "line %d, column \"%.40s\"", csv->line[row],
                     csv->field[column]);
            DPB_TRY(dpb_csv_number(csv, row, (int)column, &value));
            if (isnan(value))
                return import_bad(in, where, "there is no value");
            DPB_TRY(import_begin(in, csv->field[column], &run));
            DPB_TRY(import_put(in, &run, metric, value, where));
        }
    return DPB_OK;
}

/* Without a head: one value per line. */
static dpb_status read_lines(struct import *in, const char *text, const char *end)
{
    const char *metric = in->higher_is_better ? "rate" : "value";
    char field[64], where[32], why[DPB_WHY_BYTES];
    struct import_run run;
    double value;

    for (int line = 1; text < end; line++) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        const size_t length = (size_t)(stop - text) - (stop > text && stop[-1] == '\r');

        snprintf(where, sizeof(where), "line %d", line);
        snprintf(field, sizeof(field), "%.*s", length < 63 ? (int)length : 63, text);
        if (length > 62 || strlen(field) != length || dpb_parse_f64(field, &value, why) < 0)
            return import_bad(in, where, "\"%s\" is not a number", field);
        DPB_TRY(import_begin(in, "value", &run));
        DPB_TRY(import_put(in, &run, metric, value, where));
        text = stop + 1;
    }
    return DPB_OK;
}

static bool is_number(const char *text)
{
    double number;

    return dpb_parse_f64(text, &number, NULL) == DPB_OK;
}

/* "1,5" may be two columns, or one number as other languages write it. */
static dpb_status check_names(struct import *in, const struct dpb_csv *csv)
{
    for (size_t column = 0; column < csv->columns; column++)
        if (!is_number(csv->field[column]))
            return DPB_OK;
    return import_bad(in, "line 1",
                      "it holds numbers and names no column (a number has a point, no comma)");
}

/* A first line that is a number is no head. The last line must end: a number that was cut is one
 * too. */
dpb_status import_csv(struct import *in)
{
    const char *text = in->text + byte_order_mark(in), *end = in->text + in->count;
    struct dpb_csv csv;
    char first[64];

    if (text == end || end[-1] != '\n')
        return import_bad(in, "the last line",
                          "it does not end: it was cut, or add an end of line");
    snprintf(first, sizeof(first), "%.*s", (int)strcspn(text, "\r\n"), text);
    if (is_number(first))
        return read_lines(in, text, end);
    dpb_status st = dpb_csv_parse(in->text, in->count, in->file, &csv);
    if (st == DPB_OK) {
        st = check_names(in, &csv);
        if (st == DPB_OK)
            st = read_columns(in, &csv);
        dpb_csv_release(&csv);
    }
    return st == DPB_ERR_USAGE ? DPB_ERR_CORRUPT : st;
}

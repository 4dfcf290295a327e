/* Interactions from a CSV file without a header: a label 0 or 1, then the model's dense features,
 * then one integer for each of its tables, as the Criteo data sets have them. An empty field is 0.
 * A category's integer is hashed into its table's rows. The last tenth of the rows is the test
 * split. A first line that begins with # is no row. */
#include "source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_interactions_csv.h"
#include "dpb_log.h"
#include "dpb_str.h"
#include "dpb_units.h"
#include "draws.h"

#define TEST_PART 10 /* one row in so many is for testing */

struct interactions {
    const struct dpb_model *model;
    int64_t rows, room;
    int64_t first;  /* row of the split */
    bool synthetic; /* the file says so */
    int32_t *label;
    float *x;
    int32_t *indices;
};

struct reader {
    const char *path;
    const char *begin; /* of the file's content, cut into fields */
    char *at;          /* what is read next */
    int64_t line;      /* from 1 */
    const char *line_begin;
};

static dpb_status damaged_field(const struct reader *reader, const char *field, const char *why)
{
    dpb_error("\"%s\": line %lld, byte %lld: \"%s\": %s", reader->path, (long long)reader->line,
              (long long)(field - reader->begin), field, why);
    dpb_log_hint("a row is a label 0 or 1, numbers, then integers; there is no header");
    return DPB_ERR_CORRUPT;
}

/* The next field of the line, cut off, or NULL at the line's end. */
static char *next_field(struct reader *reader, bool *last)
{
    char *field = reader->at, *end;

    if (*last)
        return NULL;
    end = field + strcspn(field, ",\r\n");
    *last = *end != ',';
    if (*end == '\r' && end[1] == '\n')
        *end++ = '\0';
    reader->at = *end ? end + 1 : end;
    *end = '\0';
    return field;
}

static dpb_status wrong_count(const struct reader *reader, const struct dpb_model *model,
                              int64_t count)
{
    dpb_error("\"%s\": line %lld, byte %lld: %lld fields, but the workload takes %lld: a label, "
              "%lld numbers, %d categories",
              reader->path, (long long)reader->line,
              (long long)(reader->line_begin - reader->begin), (long long)count,
              (long long)(1 + model->features + model->tables), (long long)model->features,
              model->tables);
    dpb_log_hint("the file is cut short, or made for another network");
    return DPB_ERR_CORRUPT;
}

static dpb_status read_integer(const struct reader *reader, const char *field, int64_t *value)
{
    char why[DPB_WHY_BYTES];

    *value = 0;
    if (field[0] == '\0' || dpb_parse_i64(field, value, why) == DPB_OK)
        return DPB_OK;
    return damaged_field(reader, field, why);
}

static dpb_status read_number(const struct reader *reader, const char *field, float *value)
{
    char why[DPB_WHY_BYTES];
    double number = 0.0;

    if (field[0] != '\0' && dpb_parse_f64(field, &number, why) < 0)
        return damaged_field(reader, field, why);
    *value = (float)number;
    return DPB_OK;
}

/* Field `k` of the row to its place. */
static dpb_status keep_field(struct interactions *set, const struct reader *reader,
                             const char *field, int64_t k)
{
    const struct dpb_model *model = set->model;
    int64_t value, table = k - 1 - model->features;

    if (k > 0 && table < 0)
        return read_number(reader, field, set->x + set->rows * model->features + k - 1);
    DPB_TRY(read_integer(reader, field, &value));
    if (k == 0 && (value < 0 || value > 1 || field[0] == '\0'))
        return damaged_field(reader, field, "a label is 0 or 1");
    if (k == 0)
        set->label[set->rows] = (int32_t)value;
    else
        set->indices[set->rows * model->tables + table] =
                (int32_t)(dpb_mix_u64((uint64_t)value) % (uint64_t)model->table_rows[table]);
    return DPB_OK;
}

static dpb_status read_row(struct interactions *set, struct reader *reader)
{
    int64_t fields = 1 + set->model->features + set->model->tables, k = 0;
    bool last = false;
    char *field;

    reader->line_begin = reader->at;
    while ((field = next_field(reader, &last))) {
        if (k < fields)
            DPB_TRY(keep_field(set, reader, field, k));
        k++;
    }
    if (k != fields)
        return wrong_count(reader, set->model, k);
    set->rows++;
    return DPB_OK;
}

static bool grow(void **array, int64_t room, int64_t each, size_t bytes)
{
    void *larger = realloc(*array, (size_t)room * (size_t)each * bytes + 1);

    if (larger)
        *array = larger;
    return larger != NULL;
}

/* Room for one row more. */
static dpb_status make_room(struct interactions *set)
{
    void *label = set->label, *x = set->x, *indices = set->indices;
    bool made;

    if (set->rows < set->room)
        return DPB_OK;
    set->room = set->room ? 2 * set->room : 1024;
    made = grow(&label, set->room, 1, sizeof(*set->label)) &&
           grow(&x, set->room, set->model->features, sizeof(*set->x)) &&
           grow(&indices, set->room, set->model->tables, sizeof(*set->indices));
    set->label = label;
    set->x = x;
    set->indices = indices;
    if (made)
        return DPB_OK;
    dpb_error("dataset \"interactions\": out of memory for %lld rows", (long long)set->room);
    return DPB_ERR_NO_MEMORY;
}

static dpb_status read_rows(struct interactions *set, const char *path, struct dpb_str *content)
{
    struct reader reader = {.path = path, .begin = content->text, .at = content->text};
    const char *zero = memchr(content->text, '\0', content->length);

    if (zero) {
        dpb_error("\"%s\": byte %lld is zero: this is no CSV file", path,
                  (long long)(zero - content->text));
        return DPB_ERR_CORRUPT;
    }
    if (*reader.at == '#') {
        set->synthetic = strncmp(reader.at, DPB_INTERACTIONS_SYNTHETIC,
                                 strlen(DPB_INTERACTIONS_SYNTHETIC)) == 0;
        reader.at += strcspn(reader.at, "\n");
        reader.at += *reader.at == '\n';
        reader.line++;
    }
    while (*reader.at) {
        reader.line++;
        DPB_TRY(make_room(set));
        DPB_TRY(read_row(set, &reader));
    }
    if (set->rows >= 2)
        return DPB_OK;
    dpb_error("\"%s\" holds %lld rows, at least 2 are needed: one to train, one to test", path,
              (long long)set->rows);
    dpb_log_hint("the file is cut short, or the wrong one");
    return DPB_ERR_CORRUPT;
}

static dpb_status read_file(struct interactions *set, const char *path)
{
    struct dpb_str content = {0};
    dpb_status st;

    if (!path || !path[0]) {
        dpb_error("dataset \"interactions\": no file is given");
        dpb_log_hint("name the CSV file with --data-file, or use --data synthetic");
        return DPB_ERR_USAGE;
    }
    st = dpb_file_read(path, &content);
    if (st == DPB_OK)
        st = read_rows(set, path, &content);
    dpb_str_release(&content);
    return st;
}

static void fetch(const void *ctx, int64_t id, const struct dpb_batch_arrays *arrays, int64_t at)
{
    const struct interactions *set = ctx;
    int64_t features = set->model->features, tables = set->model->tables, row = set->first + id;

    arrays->label[at] = set->label[row];
    memcpy(arrays->x + at * features, set->x + row * features,
           (size_t)features * sizeof(*arrays->x));
    memcpy(arrays->indices + at * tables, set->indices + row * tables,
           (size_t)tables * sizeof(*arrays->indices));
}

static void close_interactions(void *ctx)
{
    struct interactions *set = ctx;

    free(set->label);
    free(set->x);
    free(set->indices);
    free(set);
}

static int64_t test_rows(int64_t rows)
{
    return rows < TEST_PART ? 1 : rows / TEST_PART;
}

/* Every rank keeps all rows, of both splits. */
static int64_t row_bytes(const struct dpb_model *model)
{
    return (1 + model->features + model->tables) * 4;
}

dpb_status dpb_source_open_interactions_csv(const struct dpb_dataset_config *config,
                                            enum dpb_split split, struct dpb_source *source)
{
    struct interactions *set = calloc(1, sizeof(*set));
    char *origin = strdup(config->file ? config->file : "");
    int64_t test;
    dpb_status st = DPB_ERR_NO_MEMORY;

    if (!set || !origin) {
        dpb_error("dataset \"interactions\": out of memory");
        goto err;
    }
    set->model = config->model;
    DPB_TRY_GOTO(st, read_file(set, config->file), err);
    test = test_rows(set->rows);
    set->first = split == DPB_SPLIT_TRAIN ? 0 : set->rows - test;
    *source = (struct dpb_source){.ctx = set,
                                  .samples = split == DPB_SPLIT_TRAIN ? set->rows - test : test,
                                  .origin = origin,
                                  .synthetic = set->synthetic,
                                  .held_bytes = set->rows * row_bytes(config->model),
                                  .files = 1,
                                  .file_bytes = dpb_file_bytes(origin),
                                  .fetch = fetch,
                                  .close = close_interactions};
    return DPB_OK;

err:
    if (set)
        close_interactions(set);
    free(origin);
    return st;
}

/* Lines, but for a comment; the last one may have no end. */
static int64_t count_rows(FILE *file)
{
    static const size_t room = (size_t)1 << 18;
    char *buffer = malloc(room), last = '\n';
    int64_t rows = 0, comment = -1;
    size_t got;

    while (buffer && (got = fread(buffer, 1, room, file)) > 0) {
        if (comment < 0)
            comment = buffer[0] == '#';
        for (char *at = buffer; (at = memchr(at, '\n', (size_t)(buffer + got - at))); at++)
            rows++;
        last = buffer[got - 1];
    }
    free(buffer);
    return rows + (last != '\n') - (comment > 0);
}

bool dpb_source_predict_interactions_csv(const struct dpb_dataset_config *config,
                                         enum dpb_split split, struct dpb_dataset_size *size)
{
    FILE *file = config->file ? fopen(config->file, "re") : NULL;

    if (!file)
        return false;
    int64_t rows = count_rows(file);
    fclose(file);
    size->samples = split == DPB_SPLIT_TRAIN ? rows - test_rows(rows) : test_rows(rows);
    size->held_bytes = rows * row_bytes(config->model);
    size->reading_bytes = dpb_file_bytes(config->file);
    return true;
}

/* Rows of a published table: series, and what can be predicted of them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"
#include "dpb_str.h"
#include "validate.h"
#include "validate_texts.h"

#define RANKS_MAX 65536

/* ---- reading ---- */

static bool has_any(const char *text, const char *const *words)
{
    for (; *words; words++)
        if (strstr(text, *words))
            return true;
    return false;
}

static bool is_reduced(const char *precision)
{
    static const char *const words[] = {"16", "AMP", "amp", "mixed", "half", NULL};

    return has_any(precision, words);
}

/* "grad_accum=64 and 32": of fp32 and of 16 bits, whose batches are larger; the smaller is that of
 * 16 bits. */
static double accumulation(const char *notes, bool reduced)
{
    const char *at = strstr(notes, "grad_accum=");
    char *end;

    if (!at)
        return 1;
    const double first = strtod(at + strlen("grad_accum="), &end);
    while (*end == ' ' || *end == ',')
        end++;
    if (strncmp(end, "and ", 4) == 0)
        end += 4;
    const double second = strtod(end, &end);
    if (!(second >= 1))
        return first >= 1 ? first : 1;
    return reduced ? fmin(first, second) : fmax(first, second);
}

static dpb_status read_row(const struct dpb_csv *csv, size_t at, struct validate_row *row)
{
    const struct {
        const char *column;
        const char **to;
    } texts[] = {{"source", &row->source},    {"system", &row->system},
                 {"model", &row->model_text}, {"precision", &row->precision},
                 {"gpu", &row->gpu},          {"interconnect", &row->interconnect},
                 {"notes", &row->notes}};
    const struct {
        const char *column;
        double *to;
    } numbers[] = {{"gpus", &row->gpus},
                   {"per_gpu_batch", &row->batch},
                   {"throughput_samples_s", &row->throughput},
                   {"scaling_efficiency_pct", &row->printed_pct}};

    *row = (struct validate_row){.at = at, .series = -1};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        *texts[i].to = dpb_csv_text(csv, at, dpb_csv_column(csv, texts[i].column));
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        DPB_TRY(dpb_csv_number(csv, at, dpb_csv_column(csv, numbers[i].column), numbers[i].to));
    validate_project(row->source, row->project, sizeof(row->project));
    row->is_reduced = is_reduced(row->precision);
    row->is_stored = strstr(row->notes, "real data") != NULL;
    row->accumulate = accumulation(row->notes, row->is_reduced);
    return DPB_OK;
}

static dpb_status check_columns(const struct dpb_csv *csv)
{
    static const char *const needed[] = {"source",
                                         "system",
                                         "model",
                                         "precision",
                                         "gpu",
                                         "interconnect",
                                         "gpus",
                                         "per_gpu_batch",
                                         "throughput_samples_s",
                                         "scaling_efficiency_pct",
                                         "notes"};

    for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
        if (dpb_csv_column(csv, needed[i]) >= 0)
            continue;
        dpb_error("%s:1: there is no column \"%s\"", csv->file, needed[i]);
        dpb_log_hint("the columns are those of results/published/scaling.csv");
        return DPB_ERR_USAGE;
    }
    return DPB_OK;
}

/* ---- series ---- */

static bool same_variant(const struct validate_row *a, const struct validate_row *b)
{
    const bool is_xla = strstr(a->notes, "XLA") != NULL;

    return a->is_stored == b->is_stored && is_xla == (strstr(b->notes, "XLA") != NULL);
}

static bool same_number(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

static bool same_series(const struct validate_row *a, const struct validate_row *b)
{
    return strcmp(a->source, b->source) == 0 && strcmp(a->system, b->system) == 0 &&
           strcmp(a->model_text, b->model_text) == 0 && strcmp(a->precision, b->precision) == 0 &&
           strcmp(a->gpu, b->gpu) == 0 && strcmp(a->interconnect, b->interconnect) == 0 &&
           same_number(a->batch, b->batch) && same_variant(a, b);
}

static bool has_count(const struct validate_table *table, size_t before, int series, double gpus)
{
    for (size_t i = 0; i < before; i++)
        if (table->row[i].series == series && table->row[i].gpus == gpus)
            return true;
    return false;
}

/* The first series like this row that has not its number of accelerators yet. */
static int series_of(const struct validate_table *table, size_t at, int next)
{
    for (size_t i = 0; i < at; i++) {
        const struct validate_row *other = &table->row[i];

        if (same_series(other, &table->row[at]) &&
            !has_count(table, at, other->series, table->row[at].gpus))
            return other->series;
    }
    return next;
}

static bool is_count(double gpus)
{
    return gpus >= 1 && gpus <= RANKS_MAX && gpus == floor(gpus);
}

static bool is_base(const struct validate_row *row, const struct validate_row *base)
{
    return !base || row->gpus < base->gpus;
}

static void find_series(struct validate_table *table)
{
    int next = 0;

    for (size_t i = 0; i < table->count; i++) {
        table->row[i].series = series_of(table, i, next);
        next += table->row[i].series == next;
    }
    for (size_t i = 0; i < table->count; i++) {
        struct validate_row *row = &table->row[i];

        for (size_t o = 0; o < table->count; o++) {
            struct validate_row *other = &table->row[o];
            if (other->series != row->series || !(other->throughput > 0) || !is_count(other->gpus))
                continue;
            row->has_larger |= other->gpus > row->gpus;
            if (is_base(other, row->base))
                row->base = other;
        }
    }
}

/* ---- scope ---- */

static bool is_unsound(const struct validate_row *row)
{
    return strstr(row->notes, "SUSPECT") || strstr(row->notes, "not a like-for-like");
}

static double samples_per_step(const struct validate_row *row)
{
    const bool is_tokens = strstr(row->notes, "unit=tok/s") != NULL;
    double batch = row->batch;

    if (isnan(batch) && row->model)
        batch = row->is_reduced ? row->model->batch_reduced : row->model->batch_full;
    if (is_tokens && row->model)
        batch *= row->model->tokens_per_sample;
    return batch;
}

static bool needs_network(const struct validate_row *row, int per_node)
{
    return row->gpus > per_node;
}

/* What a profile has of nodes, when the table does not say: opened once per row; small. */
static const char *check_machine(const struct validate_row *row)
{
    struct dpb_machine machine;
    const struct validate_machine *told = &row->machine;
    const char *why = NULL;

    if (!told->name[0])
        return "no profile of the accelerator";
    if (dpb_machine_find(told->name, &machine) < 0)
        return "no profile of the accelerator";
    const int per_node = told->per_node ? told->per_node : machine.accelerators_per_node;
    if (needs_network(row, per_node) && !told->nics) {
        if (told->one_node)
            why = "more accelerators than a node has, and no network is stated";
        else if (!dpb_machine_has(&machine, DPB_FIGURE_NIC_RATE))
            why = "no figures of the network";
    }
    dpb_machine_release(&machine);
    return why;
}

/* Seconds of a micro-batch. */
static bool is_step(double seconds)
{
    return seconds > 1e-6 && seconds < 1e5;
}

/* Reasons that do not look at how well a row would be predicted. */
static const char *exclusion_of(const struct validate_row *row)
{
    const struct validate_row *base = row->base;

    if (row->how.why)
        return row->how.why;
    if (!row->model)
        return "the model is not known";
    if (!row->model->name[0])
        return row->model->source;
    if (!(row->throughput > 0))
        return "no throughput is published";
    if (!is_count(row->gpus))
        return "no number of accelerators";
    if (base == row && row->has_larger)
        return "its series is predicted from it";
    if (!base || base == row)
        return "its series has nothing smaller to predict it from";
    if (is_unsound(row) || is_unsound(base))
        return "its source's figures contradict each other";
    if (row->throughput / row->gpus > 1.1 * base->throughput / base->gpus)
        return "more than 110 % of its base: that is no like for like";
    if (!(samples_per_step(row) > 0))
        return "no batch is stated";
    if (!is_step(samples_per_step(row) * base->gpus / base->throughput))
        return "batch and throughput make no step";
    return check_machine(row);
}

static void find_scope(struct validate_table *table)
{
    for (size_t i = 0; i < table->count; i++) {
        struct validate_row *row = &table->row[i];

        row->model = validate_models_find(&table->models, row->model_text);
        validate_match_machine(row, &row->machine);
        validate_match_system(row, &row->how);
    }
    for (size_t i = 0; i < table->count; i++) {
        struct validate_row *row = &table->row[i];

        row->exclusion = exclusion_of(row);
        row->batch = samples_per_step(row);
        if (!row->exclusion)
            row->published =
                    row->throughput / row->gpus / (row->base->throughput / row->base->gpus);
    }
}

/* ---- all of it ---- */

#define TABLE_BYTES (64 << 20)

static dpb_status read_text(const char *file, struct dpb_csv *csv)
{
    struct dpb_str text = {0};
    dpb_status st;

    if (!file)
        return dpb_csv_parse(validate_scaling_text, validate_scaling_text_bytes, "scaling.csv",
                             csv);
    if (dpb_file_read_most(file, TABLE_BYTES, &text) < 0) {
        dpb_str_release(&text);
        return DPB_ERR_USAGE; /* logged */
    }
    st = dpb_csv_parse(text.text ? text.text : "", text.length, file, csv);
    dpb_str_release(&text);
    return st;
}

dpb_status validate_table_read(const char *file, struct validate_table *table)
{
    *table = (struct validate_table){0};
    DPB_TRY(read_text(file, &table->csv));
    DPB_TRY(check_columns(&table->csv));
    DPB_TRY(validate_models_read(&table->models));
    table->count = table->csv.rows;
    table->row = calloc(table->count + 1, sizeof(*table->row));
    if (!table->row) {
        dpb_error("validate: out of memory for %zu rows", table->count);
        return DPB_ERR_NO_MEMORY;
    }
    for (size_t i = 0; i < table->count; i++)
        DPB_TRY(read_row(&table->csv, i, &table->row[i]));
    find_series(table);
    find_scope(table);
    return DPB_OK;
}

void validate_table_release(struct validate_table *table)
{
    free(table->row);
    validate_models_release(&table->models);
    dpb_csv_release(&table->csv);
    *table = (struct validate_table){0};
}

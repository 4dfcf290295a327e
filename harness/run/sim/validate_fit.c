/* Constants that no table tells: fitted on some of the projects that publish, kept in a file. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"
#include "dpb_units.h"
#include "validate.h"
#include "validate_texts.h"

const char *const validate_fitted[VALIDATE_FITTED] = {"NVIDIA/DeepLearningExamples",
                                                      "Oneflow-Inc/DLPerf", "tensorflow/docs"};

static const struct {
    const char *name, *help;
    double least, most, assumed;
} constants[] = {
#define VALIDATE_ROW(id, name, least, most, assumed, help) {name, help, least, most, assumed},
        VALIDATE_CONSTANT_MAP(VALIDATE_ROW)
#undef VALIDATE_ROW
};

const char *validate_constant_name(enum validate_constant id)
{
    return constants[id].name;
}

const char *validate_constant_help(enum validate_constant id)
{
    return constants[id].help;
}

/* ---- fitting ---- */

/* What a run loses by something else than the strategy (a loader that is too slow, a broken
 * installation) is no more wrong for being far off. */
#define ERROR_CAP 0.15

/* Mean absolute error in a project; NaN without rows. */
static double project_error(const struct validate_table *table, const char *project,
                            const struct validate_constants *with)
{
    double sum = 0;
    size_t count = 0;

    for (size_t i = 0; i < table->count; i++) {
        const struct validate_row *row = &table->row[i];

        if (row->exclusion || strcmp(row->project, project) != 0)
            continue;
        sum += fmin(fabs(validate_efficiency(row, with) - row->published), ERROR_CAP);
        count++;
    }
    return count ? sum / (double)count : NAN;
}

static double fit_error(const struct validate_table *table, int without,
                        const struct validate_constants *with)
{
    double sum = 0;

    for (int p = 0; p < VALIDATE_FITTED; p++) {
        const double error = p == without ? NAN : project_error(table, validate_fitted[p], with);
        sum += isnan(error) ? 0 : error;
    }
    return sum;
}

#define GRID   16 /* steps of a constant's range, each round half as wide */
#define ROUNDS 8

/* One constant after the other, on ever finer grids around the best so far. Of equals the first. */
static void fit(const struct validate_table *table, int without, struct validate_constants *best)
{
    for (int c = 0; c < VALIDATE_CONSTANT_COUNT; c++)
        best->value[c] = constants[c].assumed;
    double least = fit_error(table, without, best);

    for (int round = 0; round < ROUNDS; round++) {
        for (int c = 0; c < VALIDATE_CONSTANT_COUNT; c++) {
            const double middle = best->value[c];
            const double wide = ldexp(constants[c].most - constants[c].least, -(round / 2));

            for (int g = 0; g <= GRID; g++) {
                struct validate_constants trial = *best;

                trial.value[c] =
                        fmin(fmax(middle + wide * (g / (double)GRID - 0.5), constants[c].least),
                             constants[c].most);
                const double error = fit_error(table, without, &trial);
                if (error < least - 1e-12) {
                    least = error;
                    *best = trial;
                }
            }
        }
    }
    for (int c = 0; c < VALIDATE_CONSTANT_COUNT; c++)
        best->value[c] = round(best->value[c] * 1e4) / 1e4;
}

void validate_fit_make(const struct validate_table *table, struct validate_fit *made)
{
    fit(table, -1, &made->all);
    for (int p = 0; p < VALIDATE_FITTED; p++)
        fit(table, p, &made->without[p]);
}

const struct validate_constants *validate_fit_held_out(const struct validate_fit *fit,
                                                       const char *project)
{
    for (int p = 0; p < VALIDATE_FITTED; p++)
        if (strcmp(validate_fitted[p], project) == 0)
            return &fit->without[p];
    return &fit->all;
}

/* ---- the file ---- */

static void append_number(double value, const char *before, struct dpb_str *text)
{
    char number[DPB_UNIT_TEXT_BYTES];

    dpb_format_f64(value, number, sizeof(number));
    dpb_str_appendf(text, "%s%s", before, number);
}

void validate_fit_write(const struct validate_fit *fit, struct dpb_str *text)
{
    dpb_str_append(text, "constant,all");
    for (int p = 0; p < VALIDATE_FITTED; p++)
        dpb_str_appendf(text, ",without %s", validate_fitted[p]);
    dpb_str_append(text, ",meaning\n");
    for (int c = 0; c < VALIDATE_CONSTANT_COUNT; c++) {
        dpb_str_append(text, constants[c].name);
        append_number(fit->all.value[c], ",", text);
        for (int p = 0; p < VALIDATE_FITTED; p++)
            append_number(fit->without[p].value[c], ",", text);
        dpb_str_appendf(text, ",\"%s\"\n", constants[c].help);
    }
}

static dpb_status read_constants(const struct dpb_csv *csv, const char *column,
                                 struct validate_constants *read)
{
    const int at = dpb_csv_column(csv, column);

    for (int c = 0; c < VALIDATE_CONSTANT_COUNT; c++) {
        read->value[c] = NAN;
        for (size_t row = 0; row < csv->rows && at >= 0; row++)
            if (strcmp(dpb_csv_text(csv, row, 0), constants[c].name) == 0)
                DPB_TRY(dpb_csv_number(csv, row, at, &read->value[c]));
        if (!(read->value[c] >= constants[c].least && read->value[c] <= constants[c].most)) {
            dpb_error("%s: no \"%s\" in column \"%s\"", csv->file, constants[c].name, column);
            return DPB_ERR_INTERNAL;
        }
    }
    return DPB_OK;
}

dpb_status validate_fit_read(struct validate_fit *fit)
{
    struct dpb_csv csv;
    char column[128];
    dpb_status st;

    DPB_TRY(dpb_csv_parse(validate_constants_text, validate_constants_text_bytes, "constants.csv",
                          &csv));
    st = read_constants(&csv, "all", &fit->all);
    for (int p = 0; p < VALIDATE_FITTED && st == DPB_OK; p++) {
        snprintf(column, sizeof(column), "without %s", validate_fitted[p]);
        st = read_constants(&csv, column, &fit->without[p]);
    }
    dpb_csv_release(&csv);
    return st;
}

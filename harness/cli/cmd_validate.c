/* dpbench validate: what the simulation says of runs that others published. */
#include "dpb_cli.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"
#include "dpb_str.h"
#include "dpb_text_table.h"
#include "dpb_validate.h"

struct validate_options {
    char published[DPB_OPTION_TEXT_BYTES];
    bool fit, json;
};

#define AT(member) offsetof(struct validate_options, member)

static const struct dpb_option rows[] = {
        {.name = "published",
         .type = DPB_OPT_TEXT,
         .offset = AT(published),
         .default_text = "",
         .category = "Validation",
         .help = "table of published runs (.csv); default: results/published/scaling.csv"},
        {.name = "fit",
         .type = DPB_OPT_BOOL,
         .offset = AT(fit),
         .default_text = "off",
         .category = "Validation",
         .help = "fit the constants anew, and print them as a file, without --json"},
        DPB_ROW_JSON(struct validate_options, "print JSON"),
};

static const struct dpb_option_table table = {"command", "validate", rows,
                                              sizeof(rows) / sizeof(rows[0]),
                                              sizeof(struct validate_options)};

static double real(const dpb_json *object, const char *key)
{
    return dpb_json_as_real(dpb_json_get(object, key), NAN);
}

static int64_t whole(const dpb_json *object, const char *key)
{
    return dpb_json_as_int(dpb_json_get(object, key), 0);
}

#define CELL_BYTES 64

static void put(double value, char cell[CELL_BYTES])
{
    if (isnan(value))
        snprintf(cell, CELL_BYTES, "-");
    else
        snprintf(cell, CELL_BYTES, "%.1f", value);
}

static dpb_status print_groups(const dpb_json *report, const char *key, const char *title)
{
    enum {
        COLUMNS = 5
    };
    const dpb_json *groups = dpb_json_get(report, key);
    const size_t count = dpb_json_size(groups);
    const struct dpb_text_column columns[COLUMNS] = {{title, DPB_TEXT_WORD},
                                                     {"rows", DPB_TEXT_NUMBER},
                                                     {"median", DPB_TEXT_NUMBER},
                                                     {"held out", DPB_TEXT_NUMBER},
                                                     {"worst", DPB_TEXT_NUMBER}};
    char(*text)[CELL_BYTES] = calloc(count * COLUMNS + 1, CELL_BYTES);
    const char **cells = calloc(count * COLUMNS + 1, sizeof(*cells));
    dpb_status st = DPB_ERR_NO_MEMORY;

    for (size_t i = 0; text && cells && i < count; i++) {
        const char *name;
        const dpb_json *group = dpb_json_entry(groups, i, &name);
        char(*row)[CELL_BYTES] = text + i * COLUMNS;

        snprintf(row[1], CELL_BYTES, "%" PRId64, whole(group, "rows_in_scope"));
        put(real(group, "median_abs_error_points"), row[2]);
        put(real(group, "held_out_median_abs_error_points"), row[3]);
        put(real(group, "worst_error_points"), row[4]);
        cells[i * COLUMNS] = name;
        for (size_t c = 1; c < COLUMNS; c++)
            cells[i * COLUMNS + c] = row[c];
    }
    if (text && cells)
        st = dpb_text_table_print(columns, COLUMNS, cells, count, stdout, 0);
    putchar('\n');
    free(cells);
    free(text);
    return st;
}

static void print_worst(const dpb_json *report)
{
    const dpb_json *row;

    printf("worst predictions, percent of the efficiency of the smallest run:\n");
    for (dpb_json_walk walk = {0};
         (row = dpb_json_next(dpb_json_get(report, "worst"), &walk, NULL));)
        printf("  line %4" PRId64 ": published %5.1f, predicted %5.1f: %s, %s, %" PRId64 " x %s\n",
               whole(row, "line"), real(row, "published_efficiency_pct"),
               real(row, "predicted_efficiency_pct"),
               dpb_json_as_string(dpb_json_get(row, "system"), ""),
               dpb_json_as_string(dpb_json_get(row, "model"), ""), whole(row, "gpus"),
               dpb_json_as_string(dpb_json_get(row, "machine"), ""));
    putchar('\n');
}

static void print_excluded(const dpb_json *report)
{
    const dpb_json *excluded = dpb_json_get(report, "excluded");

    printf("rows that are not predicted:\n");
    for (size_t i = 0; i < dpb_json_size(excluded); i++) {
        const char *reason;
        const int64_t count = dpb_json_as_int(dpb_json_entry(excluded, i, &reason), 0);

        printf("  %5" PRId64 "  %s\n", count, reason);
    }
    putchar('\n');
}

static const char *verdict(const dpb_json *report, const char *key)
{
    return dpb_json_as_bool(dpb_json_get(dpb_json_get(report, "targets"), key), false) ? "holds"
                                                                                       : "MISSED";
}

static void print_summary(const dpb_json *report)
{
    printf("%" PRId64 " of %" PRId64 " rows predicted from the smallest run of their series\n",
           whole(report, "rows_in_scope"), whole(report, "rows"));
    printf("median absolute error %.1f points (target %.0f: %s), with constants fitted elsewhere "
           "%.1f; perfect scaling would be off by %.1f\n",
           real(report, "median_abs_error_points"), DPB_VALIDATE_MEDIAN_POINTS,
           verdict(report, "median_abs_error_points"),
           real(report, "held_out_median_abs_error_points"),
           real(report, "perfect_scaling_median_abs_error_points"));
    printf("every source held out: at most %.0f points %s\n", DPB_VALIDATE_HELD_OUT_POINTS,
           verdict(report, "held_out_median_abs_error_points"));
    printf("ranking of strategies: %.1f %% of %" PRId64 " pairs (target %.0f %%: %s), %.1f %% as "
           "their smallest runs alone have it; by efficiency %.1f %% of %" PRId64 "\n",
           100 * real(report, "ranking_agreement"), whole(report, "ranking_pairs"),
           100 * DPB_VALIDATE_RANKING, verdict(report, "ranking_agreement"),
           100 * real(report, "ranking_agreement_smallest_runs"),
           100 * real(report, "ranking_agreement_efficiency"),
           whole(report, "ranking_pairs_efficiency"));
}

static dpb_status print_report(const dpb_json *report)
{
    DPB_TRY(print_groups(report, "per_source", "source"));
    DPB_TRY(print_groups(report, "per_model", "model"));
    DPB_TRY(print_groups(report, "per_strategy", "strategy"));
    print_worst(report);
    print_excluded(report);
    print_summary(report);
    return DPB_OK;
}

static dpb_status run(const struct dpb_registry *registry, const struct dpb_command_line *line,
                      const void *options)
{
    (void)line;
    const struct validate_options *o = options;
    const struct dpb_validate_config config = {
            .registry = registry,
            .file = o->published[0] ? o->published : NULL,
            .fit = o->fit,
    };
    struct dpb_validation validation;
    dpb_status st;

    DPB_TRY(dpb_validate(&config, &validation));
    if (o->json) {
        st = dpb_json_print(validation.report);
    } else {
        st = o->fit ? DPB_OK : print_report(validation.report);
        if (o->fit)
            fputs(validation.constants, stdout);
        dpb_json_free(validation.report);
    }
    free(validation.constants);
    if (st < 0 || validation.targets_hold)
        return st;
    dpb_error("validate: a target is missed");
    return DPB_ERR_CHECK;
}

const struct dpb_verb dpb_verb_validate = {
        .command = {.name = "validate",
                    .arguments = "",
                    .summary = "predict runs that others published, and say how far that is off",
                    .description = "Ends with 1 when a target is missed.",
                    .table = &table,
                    .min_arguments = 0,
                    .max_arguments = 0},
        .run = run,
};

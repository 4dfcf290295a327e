/* dpbench import: what is read from other tools' files. */
#include "dpb_cli.h"

#include <math.h>
#include <stdio.h>

#include "dpb_gate_report.h"
#include "dpb_import.h"
#include "dpb_log.h"

struct import_options {
    char out[DPB_OPTION_TEXT_BYTES];
    char format[DPB_OPTION_TEXT_BYTES];
    bool higher_is_better;
    bool json;
};

static const struct dpb_option rows[] = {
        {.name = "format",
         .type = DPB_OPT_TEXT,
         .offset = offsetof(struct import_options, format),
         .default_text = "",
         .category = "Input",
         .help = "google-benchmark, nccl-tests, nccl-tests-json, pytorch-ddp, hyperfine, pyperf, "
                 "nvbench or csv; default: by what is in the file"},
        {.name = "higher-is-better",
         .type = DPB_OPT_BOOL,
         .offset = offsetof(struct import_options, higher_is_better),
         .default_text = "off",
         .category = "Input",
         .help = "values of a csv are rates, not times"},
        DPB_ROW_OUT(struct import_options, "write JSON into this file"),
        DPB_ROW_JSON(struct import_options, "print JSON"),
};

static const struct dpb_option_table table = {
        "command", "import", rows, sizeof(rows) / sizeof(rows[0]), sizeof(struct import_options)};

static void print_cell(const struct dpb_gate_cell *cell)
{
    printf("%s\n", cell->name);
    for (size_t m = 0; m < cell->metric_count; m++) {
        const struct dpb_gate_values *values = &cell->metrics[m];
        const char *unit = values->metric->unit;

        printf("  %-18s %zu run%s:", values->metric->name, cell->run_count,
               cell->run_count == 1 ? "" : "s");
        for (size_t i = 0; i < cell->run_count && i < 6; i++) {
            char text[DPB_GATE_VALUE_BYTES];

            dpb_gate_value_text(values->values[i], unit, text);
            printf("%s %s", i > 0 ? "," : "", text);
        }
        printf("%s\n", cell->run_count > 6 ? ", ..." : "");
    }
    if (cell->trouble[0])
        printf("  cannot be used: %s\n", cell->trouble);
    if (cell->step_trouble[0])
        printf("  without times of steps: %s\n", cell->step_trouble);
}

static dpb_status show(const struct dpb_gate_set *set, const struct import_options *o)
{
    if (o->out[0]) {
        dpb_json *json = dpb_import_json(set);
        const dpb_status st =
                dpb_json_ok(json) ? dpb_json_write_file(json, o->out) : DPB_ERR_NO_MEMORY;

        dpb_json_free(json);
        return st;
    }
    if (o->json)
        return dpb_json_print(dpb_import_json(set));
    for (size_t i = 0; i < set->cell_count; i++)
        print_cell(&set->cells[i]);
    return DPB_OK;
}

static dpb_status run(const struct dpb_registry *registry, const struct dpb_command_line *line,
                      const void *options)
{
    const struct import_options *o = options;
    struct dpb_gate_set set = {.price = NAN};
    dpb_status st = DPB_OK;

    (void)registry;
    for (size_t i = 0; st == DPB_OK && i < line->argument_count; i++)
        st = dpb_import_side(line->arguments[i], o->format[0] ? o->format : NULL,
                             o->higher_is_better, DPB_GATE_SIDE_ALL, NAN, &set);
    if (st == DPB_OK)
        st = show(&set, o);
    dpb_gate_set_release(&set);
    return st;
}

const struct dpb_verb dpb_verb_import = {
        .command = {.name = "import",
                    .arguments = "FILE...",
                    .summary = "show what is read from other tools' results",
                    .description = "Benchmarks, and the value of every run, as gates, baselines "
                                   "and histories see them (docs/baselines.md). Several files of "
                                   "one benchmark are several runs.",
                    .table = &table,
                    .min_arguments = 1,
                    .max_arguments = 64},
        .run = run,
};

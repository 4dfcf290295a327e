/* dpbench list: what there is. */
#include "dpb_cli.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_experiment.h"
#include "dpb_host.h"
#include "dpb_log.h"
#include "dpb_memory.h"
#include "dpb_units.h"
#include "list_machines.h"

struct list_options {
    bool json;
    bool markdown;
};

#define AT(member) offsetof(struct list_options, member)

static const struct dpb_option rows[] = {
        DPB_ROW_JSON(struct list_options, "print JSON"),
        {.name = "markdown",
         .type = DPB_OPT_BOOL,
         .offset = AT(markdown),
         .default_text = "off",
         .category = "Output",
         .help = "print Markdown (options only): docs/options.md"},
};

static const struct dpb_option_table table = {
        "command", "list", rows, sizeof(rows) / sizeof(rows[0]), sizeof(struct list_options)};

/* word of the command line -> kind of part */
static const char *const kinds[][2] = {{"strategies", "strategy"},
                                       {"devices", "device"},
                                       {"comms", "comm"},
                                       {"recorders", "recorder"}};
#define KIND_COUNT (sizeof(kinds) / sizeof(kinds[0]))

static dpb_status list_option_set(const struct dpb_option_set *set, const struct list_options *o)
{
    if (o->json)
        return dpb_json_print(dpb_options_json(set));
    if (o->markdown) {
        struct dpb_str text = {0};
        dpb_status st = dpb_options_markdown(set, &text);
        if (st == DPB_OK)
            fputs(text.text, stdout);
        dpb_str_release(&text);
        return st;
    }
    for (size_t t = 0; t < set->table_count; t++) {
        const struct dpb_option_table *options = set->tables[t];
        if (options->owner[0])
            printf("%s %s:\n", options->kind, options->owner);
        for (size_t r = 0; r < options->row_count; r++)
            printf("  --%-18s %s (default %s)\n", options->rows[r].name, options->rows[r].help,
                   options->rows[r].default_text[0] ? options->rows[r].default_text : "empty");
    }
    return DPB_OK;
}

/* Those of experiments, and of the commands that launch them. */
static dpb_status list_options(const struct dpb_option_set *set, const struct list_options *o)
{
    const struct dpb_option_table **tables = calloc(set->table_count + 1, sizeof(const void *));
    struct dpb_option_set all = *set;
    if (!tables)
        return DPB_ERR_NO_MEMORY;
    memcpy(tables, set->tables, set->table_count * sizeof(const void *));
    tables[all.table_count++] = &dpb_crew_option_table;
    all.tables = tables;
    dpb_status st = list_option_set(&all, o);
    free(tables);
    return st;
}

/* Whether a device, comm or recorder can be used here; NULL for kinds that always can. */
static dpb_status (*probe_of(const struct dpb_registry *registry, const char *kind,
                             const char *name))(char *, size_t)
{
    if (strcmp(kind, "device") == 0)
        return dpb_registry_device(registry, name)->probe;
    if (strcmp(kind, "comm") == 0)
        return dpb_registry_comm(registry, name)->probe;
    if (strcmp(kind, "recorder") == 0)
        return dpb_registry_recorder(registry, name)->probe;
    return NULL;
}

static void put_availability(dpb_status (*probe)(char *, size_t), bool json, dpb_json *part)
{
    char why[1024] = "";
    bool there = !probe || probe(why, sizeof(why)) >= 0;
    if (!probe)
        return;
    dpb_json_set_bool(part, "available", there);
    if (!there)
        dpb_json_set_string(part, "reason", why);
    if (!json && !there)
        printf("%-16s   %s\n", "", why);
}

static dpb_status list_parts(const struct dpb_registry *registry, const char *kind, bool json)
{
    const struct dpb_option_set *set = registry->options;
    dpb_json *parts = dpb_json_array();
    for (size_t i = 0; i < set->part_count; i++) {
        if (strcmp(set->parts[i].kind, kind) != 0)
            continue;
        dpb_json *part = dpb_json_object();
        dpb_json_set_string(part, "name", set->parts[i].name);
        dpb_json_set_string(part, "summary", set->parts[i].summary);
        dpb_json_append(parts, part);
        if (!json)
            printf("%-16s %s\n", set->parts[i].name, set->parts[i].summary);
        put_availability(probe_of(registry, kind, set->parts[i].name), json, part);
    }
    if (json)
        return dpb_json_print(parts);
    dpb_json_free(parts);
    return DPB_OK;
}

/* ---- workloads, with what they take ---- */

/* A workload as one rank trains it when nothing else is asked for. */
struct workload_row {
    const struct dpb_workload_ops *ops;
    int64_t parameters, own_table_elements, fwd_flops, batch;
    struct dpb_memory memory;
    struct dpb_memory_limits limits;
};

static dpb_status describe(const struct dpb_registry *registry, const struct dpb_workload_ops *ops,
                           struct workload_row *row)
{
    const struct dpb_assignment chosen[] = {{"workload", ops->name, "list"},
                                            {"ranks", "1", "list"}};
    dpb_config *config = NULL;
    DPB_TRY(dpb_config_new(registry->options, chosen, 2, false, &config));
    dpb_status st = dpb_experiment_resolve(config, registry, dpb_host_cores(), 1);
    if (st == DPB_OK) {
        const struct dpb_experiment *e = dpb_config_struct(config, "experiment");
        const struct dpb_model *model = ops->model(dpb_config_struct(config, "workload"));
        *row = (struct workload_row){
                .ops = ops,
                .parameters = dpb_model_param_elements(model),
                .own_table_elements = dpb_model_own_table_elements(model),
                .fwd_flops = 2 * dpb_model_fwd_macs_per_sample(model),
                .batch = e->batch_per_rank,
        };
        dpb_memory_predict(registry, config, &row->memory);
        st = dpb_memory_limits_of(registry, config, 1, &row->limits);
    }
    dpb_config_free(config);
    return st;
}

static dpb_json *workload_json(const struct workload_row *row)
{
    dpb_json *json = dpb_json_object(), *memory = dpb_json_object();
    dpb_json_set_string(json, "name", row->ops->name);
    dpb_json_set_string(json, "summary", row->ops->summary);
    dpb_json_set_int(json, "parameters", row->parameters);
    dpb_json_set_int(json, "own_table_parameters", row->own_table_elements);
    dpb_json_set_int(json, "gradient_bytes", row->parameters * (int64_t)sizeof(float));
    dpb_json_set_int(json, "fwd_flops_per_sample", row->fwd_flops);
    dpb_json_set_int(json, "train_flops_per_sample", 3 * row->fwd_flops);
    dpb_json_set_int(json, "batch_per_rank", row->batch);
    dpb_json_set_bool(json, "bf16", (row->ops->flags & DPB_WORKLOAD_MIXED) != 0);
    dpb_json_set_bool(json, "sync_bn", (row->ops->flags & DPB_WORKLOAD_BATCH_STATISTICS) != 0);
    dpb_memory_to_json(&row->memory, &row->limits, memory);
    dpb_json_set(json, "memory", memory);
    return json;
}

/* "24.0 MFLOP", three significant digits. */
static void flops_text(double flops, char *text, size_t text_bytes)
{
    static const char *const units[] = {"", "k", "M", "G", "T", "P"};
    size_t unit = 0;
    for (; flops >= 999.5 && unit + 1 < sizeof(units) / sizeof(units[0]); unit++)
        flops /= 1000;
    snprintf(text, text_bytes, "%.*f %sFLOP",
             flops < 9.995   ? 2
             : flops < 99.95 ? 1
                             : 0,
             flops, units[unit]);
}

/* What it can beside training in fp32. */
static const char *abilities(const struct dpb_workload_ops *ops)
{
    bool bf16 = ops->flags & DPB_WORKLOAD_MIXED, bn = ops->flags & DPB_WORKLOAD_BATCH_STATISTICS;
    return bf16 && bn ? "bf16,bn" : bf16 ? "bf16" : bn ? "bn" : "";
}

static void print_workload(const struct workload_row *row)
{
    char gradients[DPB_UNIT_TEXT_BYTES], flops[32], memory[DPB_UNIT_TEXT_BYTES];
    dpb_human_size((double)row->parameters * sizeof(float), 3, gradients, sizeof(gradients));
    dpb_human_size((double)row->memory.rank_bytes, 3, memory, sizeof(memory));
    flops_text((double)row->fwd_flops, flops, sizeof(flops));
    printf("%-14s %13" PRId64 "  %10s  %12s  %2s%10s  %5" PRId64 "  %-7s  %s\n", row->ops->name,
           row->parameters, gradients, flops, row->memory.at_least ? ">=" : "", memory, row->batch,
           abilities(row->ops), row->ops->summary);
    if (row->own_table_elements > 0)
        printf("%-14s %+13" PRId64 "  in embedding tables, which it exchanges and updates itself\n",
               "", row->own_table_elements);
}

static dpb_status list_workloads(const struct dpb_registry *registry, bool json)
{
    dpb_json *rows_json = dpb_json_array();
    dpb_status st = DPB_OK;
    if (!json)
        printf("%-14s %13s  %10s  %12s  %12s  %5s  %-7s  %s\n", "workload", "parameters",
               "gradients", "forward", "memory", "batch", "can", "summary");
    for (size_t i = 0; i < registry->workload_count; i++) {
        struct workload_row row;
        DPB_TRY_GOTO(st, describe(registry, registry->workloads[i], &row), out);
        if (json)
            dpb_json_append(rows_json, workload_json(&row));
        else
            print_workload(&row);
    }
    if (json)
        return dpb_json_print(rows_json);
    printf("\ngradients: fp32. forward: of one sample, 2 FLOP for a multiply-accumulate; training "
           "takes about\n3 times that. memory: predicted for one rank at that batch and the "
           "default options; >= where\na part is only known later. can: bf16, --precision bf16; "
           "bn, --sync-bn on.\n");
out:
    dpb_json_free(rows_json);
    return st;
}

static dpb_status run(const struct dpb_registry *registry, const struct dpb_command_line *line,
                      const void *options)
{
    const struct list_options *o = options;
    const char *word = line->arguments[0];
    if (strcmp(word, "options") == 0 && line->argument_count == 1)
        return list_options(registry->options, o);
    if (o->markdown) {
        dpb_error("--markdown: cannot take effect for \"%s\"", word);
        dpb_log_hint("only `dpbench list options` can be printed as Markdown");
        return DPB_ERR_USAGE;
    }
    if (strcmp(word, "machines") == 0)
        return list_machines(line->argument_count > 1 ? line->arguments[1] : NULL, o->json);
    if (line->argument_count > 1) {
        dpb_error("\"%s\": only a list of machines takes a name", line->arguments[1]);
        dpb_log_hint("leave it out, or ask for `dpbench list machines %s`", line->arguments[1]);
        return DPB_ERR_USAGE;
    }
    if (strcmp(word, "workloads") == 0)
        return list_workloads(registry, o->json);
    for (size_t i = 0; i < KIND_COUNT; i++)
        if (strcmp(word, kinds[i][0]) == 0)
            return list_parts(registry, kinds[i][1], o->json);
    dpb_error("there is no list of \"%s\"", word);
    dpb_log_hint(
            "list one of: workloads, strategies, devices, comms, recorders, machines, options");
    return DPB_ERR_USAGE;
}

const struct dpb_verb dpb_verb_list = {
        .command = {.name = "list",
                    .arguments = "workloads|strategies|devices|comms|recorders|options|machines "
                                 "[NAME|FILE]",
                    .summary = "name the workloads, strategies, devices, comms, recorders, options "
                               "and machines",
                    .description =
                            "`list machines NAME`, or a file of your own, shows every figure of a "
                            "machine with where it is from, and says what is wrong with the file.",
                    .table = &table,
                    .min_arguments = 1,
                    .max_arguments = 2},
        .run = run,
};

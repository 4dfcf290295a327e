/* dpbench data: data sets as packed shards, and interactions to make some of. */
#include "dpb_cli.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "dpb_dataset.h"
#include "dpb_experiment.h"
#include "dpb_host.h"
#include "dpb_interactions_csv.h"
#include "dpb_log.h"
#include "dpb_packed.h"
#include "dpb_units.h"

#define SAMPLES_DEFAULT 100000

struct data_options {
    char out[DPB_OPTION_TEXT_BYTES];
    int64_t shards, samples;
    bool json;
};

static const struct dpb_option rows[] = {
        DPB_ROW_OUT(struct data_options, "folder that pack writes, or file that make writes"),
        {.name = "shards",
         .type = DPB_OPT_INT,
         .offset = offsetof(struct data_options, shards),
         .default_text = "1",
         .min = 1,
         .max = 99999,
         .category = "Output",
         .help = "files that pack makes of each split"},
        {.name = "samples",
         .type = DPB_OPT_INT,
         .offset = offsetof(struct data_options, samples),
         .default_text = "100000",
         .min = 2,
         .max = 4e9,
         .category = "Output",
         .help = "interactions that make writes"},
        DPB_ROW_JSON(struct data_options, "print JSON"),
};

static const struct dpb_option_table table = {
        "command", "data", rows, sizeof(rows) / sizeof(rows[0]), sizeof(struct data_options)};

static dpb_status report(const char *folder, const struct dpb_packed_summary *summary, bool json)
{
    if (json) {
        dpb_json *value = dpb_json_object();
        dpb_json_set_string(value, "folder", folder);
        dpb_json_set_int(value, "train_samples", summary->samples[DPB_SPLIT_TRAIN]);
        dpb_json_set_int(value, "test_samples", summary->samples[DPB_SPLIT_TEST]);
        dpb_json_set_int(value, "train_shards", summary->shards[DPB_SPLIT_TRAIN]);
        dpb_json_set_int(value, "test_shards", summary->shards[DPB_SPLIT_TEST]);
        dpb_json_set_int(value, "bytes", summary->bytes);
        return dpb_json_print(value);
    }
    char size[DPB_UNIT_TEXT_BYTES];
    dpb_human_size((double)summary->bytes, 3, size, sizeof(size));
    printf("%s: %" PRId64 " samples to train in %d shards, %" PRId64 " to test in %d, %s\n", folder,
           summary->samples[DPB_SPLIT_TRAIN], summary->shards[DPB_SPLIT_TRAIN],
           summary->samples[DPB_SPLIT_TEST], summary->shards[DPB_SPLIT_TEST], size);
    return DPB_OK;
}

/* ---- pack ---- */

/* Samples depend on the network's options, on the seed, on the data where that is not made here
 * (`reads`), and on nothing else. */
static dpb_status refuse_others(const struct dpb_option_set *set, const struct dpb_settings *given,
                                bool reads)
{
    static const char *const acting[] = {"workload", "seed", "data", "data-dir", "data-file"};
    const size_t acting_count = reads ? sizeof(acting) / sizeof(acting[0]) : 2;
    for (size_t i = 0; i < given->count; i++) {
        const char *name = given->items[i].name;
        const struct dpb_option_table *owner = NULL;
        bool acts = dpb_option_find(set, name, &owner) && strcmp(owner->kind, "workload") == 0;
        for (size_t k = 0; k < acting_count; k++)
            acts |= strcmp(name, acting[k]) == 0;
        if (acts)
            continue;
        dpb_error("--%s: cannot take effect: it does not change what samples are made of", name);
        dpb_log_hint("leave --%s out", name);
        return DPB_ERR_USAGE;
    }
    return DPB_OK;
}

static dpb_status pack_cell(const struct dpb_registry *registry, const dpb_config *cell,
                            const struct data_options *o)
{
    const struct dpb_experiment *e = dpb_config_struct(cell, "experiment");
    const struct dpb_workload_ops *workload = dpb_registry_workload(registry, e->workload);
    struct dpb_dataset_config config = {
            .kind = dpb_data_kind_text((enum dpb_data_kind)e->data),
            .folder = e->data_dir,
            .file = e->data_file,
            .model = workload->model(dpb_config_struct(cell, "workload")),
            .seed = (uint64_t)e->seed,
    };
    struct dpb_packed_summary summary;
    dpb_dataset *train = NULL, *test = NULL;
    dpb_status st;
    DPB_TRY_GOTO(st, dpb_folder_check(o->out), out); /* learning a text's tokens takes long */
    DPB_TRY_GOTO(st, dpb_dataset_open(&config, DPB_SPLIT_TRAIN, &train), out);
    DPB_TRY_GOTO(st, dpb_dataset_open(&config, DPB_SPLIT_TEST, &test), out);
    const dpb_dataset *splits[] = {[DPB_SPLIT_TRAIN] = train, [DPB_SPLIT_TEST] = test};
    DPB_TRY_GOTO(st, dpb_packed_write(splits, (int)o->shards, o->out, &summary), out);
    st = report(o->out, &summary, o->json);
out:
    dpb_dataset_close(test);
    dpb_dataset_close(train);
    return st;
}

static dpb_status pack(const struct dpb_registry *registry, const struct dpb_command_line *line,
                       const struct data_options *o)
{
    struct dpb_plan_input input = {
            .registry = registry,
            .flags = &line->experiment,
            .cores = dpb_host_cores(),
            .name = "pack",
    };
    struct dpb_plan plan = {0};
    if (line->argument_count > 1 || !o->out[0] || o->samples != SAMPLES_DEFAULT) {
        dpb_error("pack takes no folder but -o, needs that, and packs all samples");
        dpb_log_hint("`dpbench data pack --data fashion-mnist -o FOLDER`; --data-dir or "
                     "--data-file name what to read");
        return DPB_ERR_USAGE;
    }
    DPB_TRY(refuse_others(registry->options, &line->experiment, true));
    DPB_TRY(dpb_plan_build(&input, &plan));
    dpb_status st = pack_cell(registry, plan.cells[0].config, o);
    dpb_plan_release(&plan);
    return st;
}

/* ---- make ---- */

static dpb_status make_cell(const struct dpb_registry *registry, const dpb_config *cell,
                            const struct data_options *o)
{
    const struct dpb_experiment *e = dpb_config_struct(cell, "experiment");
    const struct dpb_workload_ops *workload = dpb_registry_workload(registry, e->workload);
    const struct dpb_model *model = workload->model(dpb_config_struct(cell, "workload"));
    DPB_TRY(dpb_interactions_csv_write(model, (uint64_t)e->seed, o->samples, o->out));
    if (o->json) {
        dpb_json *value = dpb_json_object();
        dpb_json_set_string(value, "file", o->out);
        dpb_json_set_int(value, "samples", o->samples);
        dpb_json_set_bool(value, "synthetic", true);
        return dpb_json_print(value);
    }
    printf("%s: %" PRId64 " synthetic interactions\n", o->out, o->samples);
    return DPB_OK;
}

static dpb_status make(const struct dpb_registry *registry, const struct dpb_command_line *line,
                       const struct data_options *o)
{
    struct dpb_plan_input input = {
            .registry = registry,
            .flags = &line->experiment,
            .cores = dpb_host_cores(),
            .name = "make",
    };
    struct dpb_plan plan = {0};
    if (line->argument_count > 1 || !o->out[0] || o->shards != 1) {
        dpb_error("make takes no file but -o, needs that, and makes one");
        dpb_log_hint("`dpbench data make --workload dlrm-small --samples 100000 -o FILE.csv`");
        return DPB_ERR_USAGE;
    }
    DPB_TRY(refuse_others(registry->options, &line->experiment, false));
    DPB_TRY(dpb_plan_build(&input, &plan));
    dpb_status st = make_cell(registry, plan.cells[0].config, o);
    dpb_plan_release(&plan);
    return st;
}

/* ---- check ---- */

static dpb_status check(const struct dpb_command_line *line, const struct data_options *o)
{
    struct dpb_packed_summary summary;
    if (line->argument_count != 2 || line->experiment.count > 0 || o->out[0] || o->shards != 1 ||
        o->samples != SAMPLES_DEFAULT) {
        dpb_error("check takes the folder of a packed data set, and --json only");
        dpb_log_hint("`dpbench data check FOLDER`");
        return DPB_ERR_USAGE;
    }
    DPB_TRY(dpb_packed_check(line->arguments[1], &summary));
    return report(line->arguments[1], &summary, o->json);
}

static dpb_status run(const struct dpb_registry *registry, const struct dpb_command_line *line,
                      const void *options)
{
    const struct data_options *o = options;
    if (strcmp(line->arguments[0], "pack") == 0)
        return pack(registry, line, o);
    if (strcmp(line->arguments[0], "check") == 0)
        return check(line, o);
    if (strcmp(line->arguments[0], "make") == 0)
        return make(registry, line, o);
    dpb_error("data cannot \"%s\"", line->arguments[0]);
    dpb_log_hint("say `dpbench data pack`, `dpbench data check` or `dpbench data make`");
    return DPB_ERR_USAGE;
}

const struct dpb_verb dpb_verb_data = {
        .command = {.name = "data",
                    .arguments = "pack|check|make [FOLDER]",
                    .summary = "pack a data set into shards that ranks map, check them, make "
                               "interactions",
                    .description =
                            "`pack` writes the samples that a workload takes from a data set "
                            "(--workload and its options, --data, --data-dir, --data-file, --seed) "
                            "into the folder -o, for --data packed --data-dir FOLDER. `check` "
                            "compares every byte of such a folder with its hashes. `make` writes "
                            "--samples synthetic interactions for --workload, by --seed, into the "
                            "CSV file -o, for --data interactions --data-file FILE.",
                    .table = &table,
                    .takes_experiment = true,
                    .min_arguments = 1,
                    .max_arguments = 2},
        .run = run,
};

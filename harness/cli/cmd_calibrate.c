/* dpbench calibrate: a machine profile of this machine, from measurements. */
#include "dpb_cli.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_ability.h"
#include "dpb_calibrate.h"
#include "dpb_comm_bench.h"
#include "dpb_host.h"
#include "dpb_log.h"
#include "dpb_memory.h"

#define INPUTS_MAX 64

struct calibrate_options {
    char out[DPB_OPTION_TEXT_BYTES];
    char comm[DPB_OPTION_TEXT_BYTES], run[DPB_OPTION_TEXT_BYTES];
    char name[DPB_OPTION_TEXT_BYTES];
    bool json;
};

#define AT(member) offsetof(struct calibrate_options, member)

static const struct dpb_option rows[] = {
        {.name = "out",
         .type = DPB_OPT_TEXT,
         .offset = AT(out),
         .default_text = "machine.yaml",
         .category = "Output",
         .help = "file of the machine profile",
         .short_flag = 'o'},
        DPB_ROW_JSON(struct calibrate_options, "print what was found, and the errors, as JSON"),
        {.name = "name",
         .type = DPB_OPT_TEXT,
         .offset = AT(name),
         .default_text = "this-machine",
         .category = "Output",
         .help = "name of the machine"},
        {.name = "comm",
         .type = DPB_OPT_TEXT,
         .offset = AT(comm),
         .default_text = "",
         .category = "Input",
         .help = "what `dpbench comm` wrote: folders or files, with commas",
         .flags = DPB_OPT_NO_AXIS},
        {.name = "run",
         .type = DPB_OPT_TEXT,
         .offset = AT(run),
         .default_text = "",
         .category = "Input",
         .help = "folders of `dpbench run` and `sweep`, with commas",
         .flags = DPB_OPT_NO_AXIS},
};

static const struct dpb_option_table table = {"command", "calibrate", rows,
                                              sizeof(rows) / sizeof(rows[0]),
                                              sizeof(struct calibrate_options)};

/* The parts of a text between commas, in place; returns how many. */
static size_t split(char *text, const char *parts[INPUTS_MAX])
{
    size_t count = 0;
    char *rest = NULL;

    for (char *part = strtok_r(text, ",", &rest); part && count < INPUTS_MAX;
         part = strtok_r(NULL, ",", &rest))
        parts[count++] = part;
    return count;
}

/* ---- a measurement of its own ---- */

struct setting {
    const char *name, *text;
};

static dpb_status add_all(struct dpb_settings *settings, const struct dpb_option_set *set,
                          const struct setting *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        DPB_TRY(dpb_settings_add(settings, set, list[i].name, list[i].text, "calibrate"));
    return DPB_OK;
}

/* "2,4": powers of two up to the cores, at most 8 and at least 2. */
static void ranks_text(int cores, char *text, size_t text_bytes)
{
    size_t length = (size_t)snprintf(text, text_bytes, "2");

    for (int ranks = 4; ranks <= cores && ranks <= 8; ranks *= 2)
        length += (size_t)snprintf(text + length, text_bytes - length, ",%d", ranks);
}

static dpb_status measure_comm(const struct dpb_registry *registry, const char *ranks,
                               char **folder)
{
    const struct setting list[] = {
            {"ranks", ranks},
            {"collective", "all-reduce,reduce-scatter,all-gather"},
            {"sizes", "64B..32MiB:x4"},
    };
    struct dpb_settings settings = {0};
    struct dpb_comm_bench_config config = {
            .registry = registry,
            .settings = &settings,
            .interrupted = dpb_interrupt_watch(),
            .cores = dpb_host_cores(),
    };
    struct dpb_comm_bench_result result = {0};
    dpb_status st = add_all(&settings, dpb_comm_bench_option_set(registry), list,
                            sizeof(list) / sizeof(list[0]));

    if (st == DPB_OK) {
        dpb_info("calibrate: collectives of %s ranks", ranks);
        st = dpb_comm_bench_run(&config, &result);
    }
    dpb_settings_release(&settings);
    dpb_json_free(result.records);
    *folder = result.folder;
    return st;
}

static dpb_status drive(const struct dpb_registry *registry, const struct dpb_plan *plan,
                        char **folder)
{
    struct dpb_driver_result result;

    DPB_TRY(dpb_driver_preflight(registry, plan, NULL));
    DPB_TRY(dpb_ability_check_plan(registry, plan));
    DPB_TRY(dpb_memory_check_plan(registry, plan));
    DPB_TRY(dpb_run_folder_new(NULL, plan->name, folder));
    struct dpb_driver_config driver = {
            .registry = registry,
            .plan = plan,
            .folder = *folder,
            .interrupted = dpb_interrupt_watch(),
            .progress = dpb_progress_show,
    };
    const dpb_status st = dpb_driver_run(&driver, &result);
    dpb_progress_end();
    if (st < 0 && result.first_reason[0])
        dpb_error("calibrate: %s", result.first_reason);
    return st;
}

/* One rank, and several with and without overlap: that tells noise and contention apart. */
static dpb_status measure_steps(const struct dpb_registry *registry, char **folder)
{
    const struct setting list[] = {
            {"workload", "mnist-cnn"},  {"data", "synthetic"},  {"ranks", "1,2"},
            {"batch-per-rank", "32"},   {"overlap", "on,off"},  {"bucket", "256KiB"},
            {"first-bucket", "256KiB"}, {"steps", "60"},        {"warmup", "10"},
            {"trace-steps", "10"},      {"probe-retries", "0"},
    };
    struct dpb_settings settings = {0};
    struct dpb_plan_input input = {
            .registry = registry,
            .flags = &settings,
            .sweep = true,
            .cores = dpb_host_cores(),
            .name = "calibrate",
    };
    struct dpb_plan plan = {0};
    dpb_status st;

    DPB_TRY_GOTO(st, add_all(&settings, registry->options, list, sizeof(list) / sizeof(list[0])),
                 out);
    DPB_TRY_GOTO(st, dpb_plan_build(&input, &plan), out);
    st = drive(registry, &plan, folder);
    dpb_plan_release(&plan);
out:
    dpb_settings_release(&settings);
    return st;
}

/* ---- all of it ---- */

static dpb_status print(const struct dpb_calibration *calibration, bool json)
{
    struct dpb_str text = {0};
    dpb_status st;

    if (json)
        return dpb_json_print(dpb_json_copy(calibration->report));
    st = dpb_calibration_text(calibration, &text);
    if (st == DPB_OK)
        fputs(text.text, stdout);
    dpb_str_release(&text);
    return st;
}

static dpb_status write_machine(const struct dpb_machine *machine, const char *path)
{
    struct dpb_str text = {0};
    dpb_status st;

    dpb_machine_write(machine, &text);
    st = text.failed ? DPB_ERR_NO_MEMORY : dpb_file_write_atomic(path, text.text, text.length);
    dpb_str_release(&text);
    return st;
}

static dpb_status calibrate(const struct dpb_calibrate_config *config,
                            const struct calibrate_options *o)
{
    struct dpb_calibration calibration;
    dpb_status st;

    DPB_TRY(dpb_calibrate(config, &calibration));
    st = write_machine(&calibration.machine, o->out);
    DPB_KEEP(st, print(&calibration, o->json));
    fflush(stdout);
    if (st == DPB_OK)
        dpb_info("machine: %s", o->out);
    dpb_calibration_release(&calibration);
    return st;
}

static dpb_status run(const struct dpb_registry *registry, const struct dpb_command_line *line,
                      const void *options)
{
    const struct calibrate_options *o = options;
    const char *comms[INPUTS_MAX], *runs[INPUTS_MAX];
    char comm_text[DPB_OPTION_TEXT_BYTES], run_text[DPB_OPTION_TEXT_BYTES], ranks[32];
    char *comm_folder = NULL, *run_folder = NULL;
    dpb_status st = DPB_OK;

    (void)line;
    DPB_TRY(dpb_file_check(o->out));
    snprintf(comm_text, sizeof(comm_text), "%s", o->comm);
    snprintf(run_text, sizeof(run_text), "%s", o->run);
    struct dpb_calibrate_config config = {
            .registry = registry,
            .name = o->name,
            .comms = comms,
            .comm_count = split(comm_text, comms),
            .runs = runs,
            .run_count = split(run_text, runs),
    };
    if (config.comm_count + config.run_count == 0) {
        ranks_text(dpb_host_cores(), ranks, sizeof(ranks));
        DPB_TRY_GOTO(st, measure_comm(registry, ranks, &comm_folder), out);
        DPB_TRY_GOTO(st, measure_steps(registry, &run_folder), out);
        comms[config.comm_count++] = comm_folder;
        runs[config.run_count++] = run_folder;
    }
    st = calibrate(&config, o);
out:
    free(comm_folder);
    free(run_folder);
    return st;
}

const struct dpb_verb dpb_verb_calibrate = {
        .command =
                {.name = "calibrate",
                 .arguments = "",
                 .summary = "write a machine profile of this machine, from measurements",
                 .description =
                         "Makes a machine profile (docs/machines.md) of what `dpbench comm` "
                         "(--comm) and `dpbench run` or `sweep` (--run) measured: curves of "
                         "collectives, the link, rates of compute and memory, noise, contention; "
                         "each figure with its source. Every second size is predicted from the "
                         "others, every cell's step time from the other cells, and the errors "
                         "are printed. Without --comm and --run it measures itself, in less "
                         "than two minutes.",
                 .table = &table},
        .run = run,
};

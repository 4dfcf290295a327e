/* dpbench simulate: a sweep on virtual time, in this process. */
#include "dpb_cli.h"

#include <stdlib.h>
#include <string.h>

#include "dpb_against.h"
#include "dpb_log.h"
#include "dpb_sweep_file.h"

#define CORES 4 /* as a machine of the sweep's: `ranks: auto` is the same on every host */

struct simulate_options {
    char out[DPB_OPTION_TEXT_BYTES];
    char resume[DPB_OPTION_TEXT_BYTES];
    char against[DPB_OPTION_TEXT_BYTES];
    bool dry_run;
    bool json;
};

#define AT(member) offsetof(struct simulate_options, member)

static const struct dpb_option rows[] = {
        DPB_ROWS_PLANNED(struct simulate_options),
        {.name = "against",
         .type = DPB_OPT_TEXT,
         .offset = AT(against),
         .default_text = "",
         .category = "Output",
         .help = "simulate the cells of this measured run, and compare step times"},
};

static const struct dpb_option_table table = {"command", "simulate", rows,
                                              sizeof(rows) / sizeof(rows[0]),
                                              sizeof(struct simulate_options)};

/* The command line's settings, and the device. */
static dpb_status settings_of(const struct dpb_registry *registry,
                              const struct dpb_command_line *line, struct dpb_settings *flags)
{
    const struct dpb_setting *device = dpb_settings_find(&line->experiment, "device");
    const struct dpb_setting *comm = dpb_settings_find(&line->experiment, "comm");

    if (device || comm) {
        dpb_error("%s: cannot take effect: `dpbench simulate` chooses device and comm \"sim\"",
                  device ? device->origin : comm->origin);
        dpb_log_hint("leave it out, or use `dpbench sweep` for real ranks");
        return DPB_ERR_USAGE;
    }
    DPB_TRY(dpb_settings_override(flags, &line->experiment));
    DPB_TRY(dpb_settings_add(flags, registry->options, "device", "sim", "dpbench simulate"));
    return dpb_settings_add(flags, registry->options, "comm", "auto", "dpbench simulate");
}

/* Of a sweep file and the flags, or of the flags alone. */
static dpb_status plan_of_sweep(const struct dpb_registry *registry,
                                const struct dpb_command_line *line,
                                const struct dpb_settings *flags, struct dpb_plan *plan)
{
    struct dpb_sweep_file file = {0};
    const bool has_file = line->argument_count > 0;
    const struct dpb_plan_input input = {
            .registry = registry,
            .file = has_file ? &file : NULL,
            .flags = flags,
            .sweep = true,
            .cores = CORES,
            .name = "simulate",
    };
    dpb_status st;

    if (has_file)
        DPB_TRY(dpb_sweep_file_read(line->arguments[0], registry->options, &file));
    if (file.target_count > 0) {
        dpb_error("%s: targets are judged by `dpbench sweep`, not here", file.targets[0].origin);
        dpb_log_hint("use `dpbench sweep FILE --device sim` with --machine, or remove targets");
        st = DPB_ERR_USAGE;
    } else {
        st = dpb_plan_build(&input, plan);
    }
    dpb_sweep_file_release(&file);
    return st;
}

static dpb_status refuse_with(const struct dpb_command_line *line, const char *option,
                              const char *why, const char *hint)
{
    dpb_error("%s: \"%s\" cannot take effect: %s", option, line->arguments[0], why);
    dpb_log_hint("%s", hint);
    return DPB_ERR_USAGE;
}

static dpb_status make_plan(const struct dpb_registry *registry,
                            const struct dpb_command_line *line, const struct simulate_options *o,
                            struct dpb_against *against, struct dpb_plan *plan)
{
    struct dpb_settings flags = {0};
    dpb_status st = settings_of(registry, line, &flags);

    if (st == DPB_OK && !o->against[0])
        st = plan_of_sweep(registry, line, &flags, plan);
    else if (st == DPB_OK && line->argument_count > 0)
        st = refuse_with(line, "--against", "the cells are those of the measured run",
                         "leave the sweep file out");
    else if (st == DPB_OK)
        st = dpb_against_open(registry, o->against, &flags, against, plan);
    dpb_settings_release(&flags);
    return st;
}

static dpb_status execute(const struct dpb_registry *registry, const struct dpb_plan *plan,
                          const struct simulate_options *o, struct dpb_against *against)
{
    char *folder = NULL;
    dpb_status st;

    DPB_TRY(dpb_driver_preflight(registry, plan, NULL));
    DPB_TRY(dpb_run_folder_new(o->out[0] ? o->out : NULL, plan->name, &folder));
    dpb_info("%zu simulated cell%s, into %s", plan->cell_count, plan->cell_count == 1 ? "" : "s",
             folder);
    const struct dpb_execute_config config = {
            .registry = registry,
            .plan = plan,
            .folder = folder,
            .json = o->json,
            .annotate = against->count > 0 ? dpb_against_annotate : NULL,
            .annotate_ctx = against,
    };
    st = dpb_execute(&config);
    free(folder);
    return st;
}

/* Continuing takes its plan from the run: anything else on the command line would be ignored. */
static dpb_status resume(const struct dpb_registry *registry, const struct dpb_command_line *line,
                         const struct simulate_options *o)
{
    struct dpb_plan plan = {0};
    dpb_status st;

    if (line->argument_count > 0 || line->experiment.count > 0 || o->out[0] || o->against[0]) {
        dpb_error("--resume continues a run with the plan it has; nothing else can take effect");
        dpb_log_hint("give --resume DIR alone, or start a new simulation without it");
        return DPB_ERR_USAGE;
    }
    DPB_TRY(dpb_run_plan_read(registry, o->resume, &plan));
    if (o->dry_run) {
        st = dpb_plan_print(&plan, o->json);
    } else {
        const struct dpb_execute_config config = {.registry = registry,
                                                  .plan = &plan,
                                                  .folder = o->resume,
                                                  .resume = true,
                                                  .json = o->json};
        st = dpb_driver_preflight(registry, &plan, NULL);
        if (st == DPB_OK)
            st = dpb_execute(&config);
    }
    dpb_plan_release(&plan);
    return st;
}

static dpb_status run(const struct dpb_registry *registry, const struct dpb_command_line *line,
                      const void *options)
{
    const struct simulate_options *o = options;
    struct dpb_against against = {0};
    struct dpb_plan plan = {0};
    dpb_status st;

    if (o->resume[0])
        return resume(registry, line, o);
    DPB_TRY_GOTO(st, make_plan(registry, line, o, &against, &plan), out);
    st = o->dry_run ? dpb_plan_print(&plan, o->json) : execute(registry, &plan, o, &against);
out:
    dpb_against_release(&against);
    dpb_plan_release(&plan);
    return st;
}

const struct dpb_verb dpb_verb_simulate = {
        .command = {.name = "simulate",
                    .arguments = "[FILE]",
                    .summary = "a sweep on a described machine, in virtual time",
                    .description =
                            "Runs the strategy's own code on virtual ranks of a machine profile: "
                            "every combination of the axes of FILE and of the options given here, "
                            "such as --ranks 8..4096:x2. Nothing is computed or sent; records and "
                            "report say that they are simulated, and where every figure is from.",
                    .table = &table,
                    .takes_experiment = true,
                    .max_arguments = 1},
        .run = run,
};

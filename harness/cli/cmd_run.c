/* dpbench run: one configuration, a short summary, a record. */
#include "dpb_cli.h"

#include <stdlib.h>

#include "dpb_ability.h"
#include "dpb_host.h"
#include "dpb_memory.h"

struct run_options {
    struct dpb_crew_options crew;
    char out[DPB_OPTION_TEXT_BYTES];
    bool json;
};

static const struct dpb_option rows[] = {
        DPB_ROWS_CREW(struct run_options),
        DPB_ROW_OUT(struct run_options, "folder of the run; default runs/<UTC time>-run"),
        DPB_ROW_JSON(struct run_options, "print the summary as JSON"),
};

static const struct dpb_option_table table = {
        "command", "run", rows, sizeof(rows) / sizeof(rows[0]), sizeof(struct run_options)};

static dpb_status run(const struct dpb_registry *registry, const struct dpb_command_line *line,
                      const void *options, dpb_crew *crew)
{
    const struct run_options *o = options;
    struct dpb_settings settings = {0};
    struct dpb_plan_input input = {
            .registry = registry,
            .flags = &settings,
            .sweep = false,
            .cores = dpb_host_cores(),
            .name = "run",
    };
    struct dpb_plan plan = {0};
    char *folder = NULL;
    dpb_status st;
    DPB_TRY_GOTO(
            st,
            dpb_crew_settings(crew, registry->options, NULL, &line->experiment, false, &settings),
            out);
    DPB_TRY_GOTO(st, dpb_plan_build(&input, &plan), out);
    DPB_TRY_GOTO(st, dpb_driver_preflight(registry, &plan, crew), out);
    DPB_TRY_GOTO(st, dpb_ability_check_plan(registry, &plan), out);
    if (!crew)
        DPB_TRY_GOTO(st, dpb_memory_check_plan(registry, &plan), out);
    DPB_TRY_GOTO(st, dpb_run_folder_new(o->out[0] ? o->out : NULL, plan.name, &folder), out);
    struct dpb_execute_config execute = {
            .registry = registry, .plan = &plan, .folder = folder, .crew = crew, .json = o->json};
    st = dpb_execute(&execute);
out:
    free(folder);
    dpb_settings_release(&settings);
    dpb_plan_release(&plan);
    return st;
}

const struct dpb_verb dpb_verb_run = {
        .command = {.name = "run",
                    .arguments = "",
                    .summary = "train one configuration, and say how fast and why",
                    .description =
                            "Trains one configuration on real ranks and writes one record per "
                            "repeat, a trace, and a report.",
                    .table = &table,
                    .takes_experiment = true},
        .launch = run,
        .crew_at = offsetof(struct run_options, crew),
};

/* dpbench sweep: the cells of a sweep file and of the flags, in random interleaved order. */
#include "dpb_cli.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "dpb_experiment.h"
#include "dpb_gate.h"
#include "dpb_gate_report.h"
#include "dpb_host.h"
#include "dpb_log.h"
#include "dpb_str.h"
#include "dpb_sweep_file.h"
#include "dpb_targets.h"

struct sweep_options {
    struct dpb_crew_options crew;
    char out[DPB_OPTION_TEXT_BYTES];
    char resume[DPB_OPTION_TEXT_BYTES];
    bool dry_run;
    bool json;
};

static const struct dpb_option rows[] = {
        DPB_ROWS_CREW(struct sweep_options),
        DPB_ROWS_PLANNED(struct sweep_options),
};

static const struct dpb_option_table table = {
        "command", "sweep", rows, sizeof(rows) / sizeof(rows[0]), sizeof(struct sweep_options)};

/* ---- targets ---- */

static dpb_status read_targets(const struct dpb_sweep_file *file, struct dpb_targets *targets)
{
    for (size_t i = 0; i < file->target_count; i++)
        DPB_TRY(dpb_targets_add(targets, file->targets[i].metric, file->targets[i].rule,
                                file->targets[i].origin));
    return DPB_OK;
}

/* Rules have been parsed by now, and hold no quotes. */
static bool need_steady_steps(const struct dpb_targets *targets)
{
    for (size_t i = 0; i < targets->count; i++) {
        const struct dpb_gate_metric *metric = dpb_gate_metric_find(targets->items[i].metric);
        if (metric && metric->is_of_steps)
            return true;
    }
    return false;
}

/* Better before the run than after it: with so few steps its targets will be judged ERROR. */
static void warn_of_few_steps(const struct dpb_targets *targets, const struct dpb_plan *plan)
{
    for (size_t c = 0; need_steady_steps(targets) && c < plan->cell_count; c++) {
        const struct dpb_experiment *e = dpb_config_struct(plan->cells[c].config, "experiment");
        const int64_t timed = e->steps - e->warmup;
        if (e->epochs > 0 || timed >= (int64_t)dpb_gate_warmup((size_t)timed) + DPB_GATE_STEADY_MIN)
            continue;
        dpb_warn("--steps %lld with --warmup %lld leaves too few steps to judge targets by: %d "
                 "after the first %zu timed ones",
                 (long long)e->steps, (long long)e->warmup, DPB_GATE_STEADY_MIN,
                 dpb_gate_warmup((size_t)timed));
        dpb_log_hint("give --steps %lld or more",
                     (long long)(e->warmup + DPB_GATE_STEADY_MIN) +
                             (long long)dpb_gate_warmup((size_t)timed));
        return;
    }
}

/* Targets of the run, when it has any; printed beside JSON, not into it. */
static dpb_status judge_run(const char *folder, bool json)
{
    struct dpb_run_targets targets;
    dpb_status st = dpb_run_targets_judge(folder, &targets);
    const struct dpb_gate_outcome outcome = {.evidence = &targets.evidence,
                                             .verdict = targets.evidence.verdict};

    if (st == DPB_OK && targets.are_judged) {
        st = dpb_gate_print(&outcome, json ? stderr : stdout, 0);
        if (outcome.verdict == DPB_VERDICT_FAIL)
            DPB_KEEP(st, DPB_ERR_CHECK);
        else if (outcome.verdict != DPB_VERDICT_PASS)
            DPB_KEEP(st, DPB_ERR_NO_DATA);
    }
    dpb_run_targets_release(&targets);
    return st;
}

/* ---- the verb ---- */

/* Continuing takes its plan from the run: anything else on the command line would be ignored. */
static dpb_status resume(const struct dpb_registry *registry, const struct dpb_command_line *line,
                         const struct sweep_options *o, dpb_crew *crew)
{
    if (line->argument_count > 0 || line->experiment.count > 0 || o->out[0]) {
        dpb_error("--resume continues a run with the plan it has; \"%s\" cannot take effect",
                  line->argument_count > 0     ? line->arguments[0]
                  : line->experiment.count > 0 ? line->experiment.items[0].origin
                                               : "--out");
        dpb_log_hint("give --resume DIR alone, or start a new sweep without it");
        return DPB_ERR_USAGE;
    }
    struct dpb_plan plan = {0};
    DPB_TRY(dpb_run_plan_read(registry, o->resume, &plan));
    dpb_status st;
    if (o->dry_run) {
        st = dpb_plan_print(&plan, o->json);
        goto out;
    }
    DPB_TRY_GOTO(st, dpb_run_crew_check(o->resume, crew), out);
    DPB_TRY_GOTO(st, dpb_driver_preflight(registry, &plan, crew), out);
    struct dpb_execute_config execute = {.registry = registry,
                                         .plan = &plan,
                                         .folder = o->resume,
                                         .crew = crew,
                                         .resume = true,
                                         .json = o->json};
    st = dpb_execute(&execute);
    if (st != DPB_ERR_INTERRUPTED)
        DPB_KEEP(st, judge_run(o->resume, o->json));
out:
    dpb_plan_release(&plan);
    return st;
}

static dpb_status read_file(const struct dpb_registry *registry,
                            const struct dpb_command_line *line, struct dpb_sweep_file *file)
{
    if (line->argument_count > 0) {
        dpb_status st = dpb_sweep_file_read(line->arguments[0], registry->options, file);
        if (st == DPB_ERR_NOT_FOUND)
            dpb_log_hint("name a sweep file, or none for the default sweep");
        return st;
    }
    return dpb_sweep_file_parse(dpb_quick_sweep, dpb_quick_sweep_bytes, "quick.yaml",
                                registry->options, file);
}

static dpb_status run(const struct dpb_registry *registry, const struct dpb_command_line *line,
                      const void *options, dpb_crew *crew)
{
    const struct sweep_options *o = options;
    if (o->resume[0])
        return resume(registry, line, o, crew);
    struct dpb_settings settings = {0};
    struct dpb_sweep_file file = {0};
    struct dpb_targets targets = {.price = NAN};
    struct dpb_plan plan = {0};
    char *folder = NULL;
    DPB_TRY(read_file(registry, line, &file));
    struct dpb_plan_input input = {
            .registry = registry,
            .file = &file,
            .flags = &settings,
            .sweep = true,
            .cores = dpb_host_cores(),
            .name = "sweep",
    };
    dpb_status st;
    DPB_TRY_GOTO(
            st,
            dpb_crew_settings(crew, registry->options, &file, &line->experiment, true, &settings),
            out);
    DPB_TRY_GOTO(st, read_targets(&file, &targets), out);
    DPB_TRY_GOTO(st, dpb_plan_build(&input, &plan), out);
    warn_of_few_steps(&targets, &plan);
    if (o->dry_run) {
        st = dpb_plan_print(&plan, o->json);
        goto out;
    }
    DPB_TRY_GOTO(st, dpb_driver_preflight(registry, &plan, crew), out);
    DPB_TRY_GOTO(st, dpb_run_folder_new(o->out[0] ? o->out : NULL, plan.name, &folder), out);
    DPB_TRY_GOTO(st, dpb_run_targets_keep(folder, &file), out);
    dpb_info("%zu cell%s, %lld repeat%s, %zu launch%s, into %s", plan.cell_count,
             plan.cell_count == 1 ? "" : "s", (long long)plan.repeats, plan.repeats == 1 ? "" : "s",
             plan.launch_count, plan.launch_count == 1 ? "" : "es", folder);
    struct dpb_execute_config execute = {
            .registry = registry, .plan = &plan, .folder = folder, .crew = crew, .json = o->json};
    st = dpb_execute(&execute);
    if (st != DPB_ERR_INTERRUPTED)
        DPB_KEEP(st, judge_run(folder, o->json));
out:
    dpb_settings_release(&settings);
    dpb_targets_release(&targets);
    free(folder);
    dpb_plan_release(&plan);
    dpb_sweep_file_release(&file);
    return st;
}

const struct dpb_verb dpb_verb_sweep = {
        .command = {.name = "sweep",
                    .arguments = "[FILE]",
                    .summary = "run the cells of a sweep file, and report how training scales",
                    .description =
                            "Runs every combination of the axes of FILE (default: the built-in "
                            "bench/sweeps/quick.yaml) in random interleaved order. Options given "
                            "here override the file; a list such as --bucket 1MiB,25MiB makes an "
                            "axis.",
                    .table = &table,
                    .takes_experiment = true,
                    .max_arguments = 1},
        .launch = run,
        .crew_at = offsetof(struct sweep_options, crew),
};

/* dpbench verify: N ranks do what one big batch does, and the checks can fail. */
#include "dpb_cli.h"

#include <stdio.h>

#include "dpb_ability.h"
#include "dpb_experiment.h"
#include "dpb_host.h"
#include "dpb_log.h"
#include "dpb_memory.h"
#include "dpb_verify.h"

#define STEPS_MAX 16
#define LAUNCHES  5 /* of a cell: with its ranks and alone, twice, and a planted divergence */

struct verify_options {
    struct dpb_crew_options crew;
    bool json;
};

static const struct dpb_option rows[] = {
        DPB_ROWS_CREW(struct verify_options),
        DPB_ROW_JSON(struct verify_options, "print the checks as JSON"),
};

static const struct dpb_option_table table = {
        "command", "verify", rows, sizeof(rows) / sizeof(rows[0]), sizeof(struct verify_options)};

static void say(void *ctx, const char *what)
{
    const char *label = ctx;
    dpb_info("verify%s%s: %s", label[0] ? " " : "", label, what);
}

static const char *verdict(const struct dpb_verify_check *check)
{
    return check->skipped ? "skip" : check->passed ? "ok" : "FAIL";
}

static void print_text(const struct dpb_plan_cell *cell, const struct dpb_verify_result *result)
{
    if (cell->label[0])
        printf("%s\n", cell->label);
    for (int i = 0; i < result->count; i++)
        printf("%-4s  %s\n      %s\n", verdict(&result->check[i]), result->check[i].name,
               result->check[i].detail);
}

static void add_json(dpb_json *cells, const struct dpb_plan_cell *cell,
                     const struct dpb_verify_result *result, dpb_status st)
{
    dpb_json *json = dpb_json_object();
    dpb_json_set(json, "config", dpb_config_to_json(cell->config));
    dpb_json_set_bool(json, "passed", st == DPB_OK);
    dpb_json *checks = dpb_json_array();
    for (int i = 0; i < result->count; i++) {
        dpb_json *check = dpb_json_object();
        dpb_json_set_string(check, "name", result->check[i].name);
        dpb_json_set_string(check, "verdict", verdict(&result->check[i]));
        dpb_json_set_string(check, "detail", result->check[i].detail);
        dpb_json_append(checks, check);
    }
    dpb_json_set(json, "checks", checks);
    dpb_json_append(cells, json);
}

/* Rounding differences grow with every step, and no bound would tell them from faults. */
static dpb_status check_steps(const struct dpb_plan *plan)
{
    for (size_t i = 0; i < plan->cell_count; i++) {
        const struct dpb_experiment *e = dpb_config_struct(plan->cells[i].config, "experiment");
        if (e->epochs == 0 && e->steps <= STEPS_MAX)
            continue;
        dpb_error("verify compares at most %d steps: rounding differences grow beyond any bound",
                  STEPS_MAX);
        dpb_log_hint("use --steps %d or less; `dpbench run` compares the replicas after any number "
                     "of steps",
                     STEPS_MAX);
        return DPB_ERR_USAGE;
    }
    return DPB_OK;
}

/* What acts on measurements only. */
static dpb_status refuse_measurement(const struct dpb_settings *given)
{
    static const char *const names[] = {"repeats", "trace-steps", "evaluate", "probe-limit",
                                        "probe-retries"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (!dpb_settings_find(given, names[i]))
            continue;
        dpb_error("--%s: cannot take effect: verify compares, it measures nothing", names[i]);
        dpb_log_hint("leave --%s out", names[i]);
        return DPB_ERR_USAGE;
    }
    return DPB_OK;
}

/* Two ranks, and few steps, unless the user says otherwise: verification is about bits, not time.
 * So a busy machine may take minutes to set up a large network. */
static dpb_status set_defaults(const struct dpb_registry *registry,
                               const struct dpb_settings *given, struct dpb_settings *settings)
{
    static const char *const defaults[][2] = {{"ranks", "2"},
                                              {"steps", "8"},
                                              {"warmup", "2"},
                                              {"trace-steps", "0"},
                                              {"stall-timeout", "5min"}};
    for (size_t i = 0; i < sizeof(defaults) / sizeof(defaults[0]); i++)
        if (!dpb_settings_find(given, defaults[i][0]) &&
            !(i == 1 && dpb_settings_find(given, "epochs")))
            DPB_TRY(dpb_settings_add(settings, registry->options, defaults[i][0], defaults[i][1],
                                     "default of verify"));
    return dpb_settings_override(settings, given);
}

/* A coordinator and chains of collectives leave workloads no exchanges of their own. */
static bool may_exchange(const struct dpb_registry *registry, const dpb_config *config)
{
    const struct dpb_experiment *e = dpb_config_struct(config, "experiment");
    const struct dpb_strategy_ops *strategy = dpb_registry_strategy(registry, e->strategy);
    const unsigned flags = dpb_strategy_flags(strategy, dpb_config_struct(config, "strategy"));
    return !strategy->tick && !(flags & DPB_STRATEGY_CHAINS);
}

/* With batch normalisation N ranks are one big batch only when it sees all their samples: so it
 * does here, unless the user or the strategy says otherwise. */
static dpb_status synchronise_statistics(const struct dpb_registry *registry,
                                         const struct dpb_settings *given, struct dpb_plan *plan)
{
    if (dpb_settings_find(given, "sync-bn"))
        return DPB_OK;
    for (size_t i = 0; i < plan->cell_count; i++) {
        dpb_config *config = plan->cells[i].config;
        const struct dpb_experiment *e = dpb_config_struct(config, "experiment");
        const struct dpb_workload_ops *workload = dpb_registry_workload(registry, e->workload);
        if (e->ranks > 1 && may_exchange(registry, config) &&
            (workload->flags & DPB_WORKLOAD_BATCH_STATISTICS))
            DPB_TRY(dpb_config_set(config, "sync-bn", "on"));
    }
    return DPB_OK;
}

static dpb_status verify_cells(const struct dpb_registry *registry, const struct dpb_plan *plan,
                               dpb_crew *crew, bool json)
{
    const volatile sig_atomic_t *interrupted = dpb_interrupt_watch();
    dpb_json *cells = dpb_json_array();
    dpb_status st = DPB_OK;
    for (size_t i = 0; i < plan->cell_count; i++) {
        struct dpb_verify_config config = {
                .registry = registry,
                .config = plan->cells[i].config,
                .crew = crew,
                .interrupted = interrupted,
                .progress = say,
                .progress_ctx = plan->cells[i].label,
        };
        struct dpb_verify_result result;
        dpb_status cell = dpb_verify_run(&config, &result);
        if (json)
            add_json(cells, &plan->cells[i], &result, cell);
        else
            print_text(&plan->cells[i], &result);
        if (cell < 0 && (st == DPB_OK || st == DPB_ERR_CHECK))
            st = cell;
        if (cell == DPB_ERR_INTERRUPTED) {
            dpb_warn("interrupted: %zu of %zu cells were verified", i, plan->cell_count);
            break;
        }
    }
    if (json)
        DPB_KEEP(st, dpb_json_print(cells));
    else
        dpb_json_free(cells);
    return st;
}

static dpb_status refuse_simulation(const struct dpb_registry *registry,
                                    const struct dpb_settings *given)
{
    const struct dpb_setting *device = dpb_settings_find(given, "device");
    if (!device || !dpb_registry_is_virtual(registry, device->values[0]))
        return DPB_OK;
    dpb_error("--device %s: nothing is computed there, so that nothing can be verified",
              device->values[0]);
    dpb_log_hint("the same strategy code is verified on real ranks: leave --device out");
    return DPB_ERR_USAGE;
}

static dpb_status run(const struct dpb_registry *registry, const struct dpb_command_line *line,
                      const void *options, dpb_crew *crew)
{
    const struct verify_options *o = options;
    struct dpb_settings settings = {0};
    struct dpb_plan plan = {0};
    dpb_status st;
    DPB_TRY_GOTO(st, refuse_simulation(registry, &line->experiment), out);
    DPB_TRY_GOTO(st, refuse_measurement(&line->experiment), out);
    DPB_TRY_GOTO(st, set_defaults(registry, &line->experiment, &settings), out);
    struct dpb_plan_input input = {
            .registry = registry,
            .flags = &settings,
            .sweep = true,
            .cores = dpb_host_cores(),
            .name = "verify",
    };
    DPB_TRY_GOTO(st, dpb_plan_build(&input, &plan), out);
    DPB_TRY_GOTO(st, check_steps(&plan), out);
    DPB_TRY_GOTO(st, synchronise_statistics(registry, &line->experiment, &plan), out);
    DPB_TRY_GOTO(st, dpb_driver_preflight(registry, &plan, crew), out);
    DPB_TRY_GOTO(st, dpb_ability_check_plan(registry, &plan), out);
    DPB_TRY_GOTO(st, dpb_crew_check_launches(crew, &plan, LAUNCHES), out);
    if (!crew)
        DPB_TRY_GOTO(st, dpb_memory_check_plan(registry, &plan), out);
    st = verify_cells(registry, &plan, crew, o->json);
out:
    dpb_plan_release(&plan);
    dpb_settings_release(&settings);
    return st;
}

const struct dpb_verb dpb_verb_verify = {
        .command =
                {.name = "verify",
                 .arguments = "",
                 .summary = "check that replicas are identical and equal one big batch",
                 .description =
                         "Trains with N ranks and with one rank on the same samples and compares "
                         "losses and parameters: within a bound for the real network, bit by bit "
                         "with integer-valued gradients. Replicas are compared after every step, "
                         "and a planted divergence must be found. Batch normalisation is "
                         "synchronised, unless --sync-bn off is given, the strategy is one of "
                         "Horovod's or the hook is powersgd. Lists, such as --strategy "
                         "none,naive,ddp, verify several "
                         "cells.",
                 .table = &table,
                 .takes_experiment = true},
        .launch = run,
        .crew_at = offsetof(struct verify_options, crew),
};

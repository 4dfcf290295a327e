/* A plan: every configuration is simulated undisturbed; for each machine and number of its
 * accelerators the fastest that fits is taken and simulated with noise. */
#include "plan_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_experiment.h"
#include "dpb_log.h"
#include "dpb_stats.h"

#define SCHEMA "dpb.plan/1"

static dpb_status no_memory(void)
{
    dpb_error("plan: out of memory");
    return DPB_ERR_NO_MEMORY;
}

static const struct dpb_experiment *experiment(const struct plan_run *run, int cell)
{
    return dpb_config_struct(plan_config(run, cell), "experiment");
}

static int cell_count(const struct plan_run *run)
{
    return (int)run->question.cell_count;
}

static struct plan_found *found_at(const struct plan_run *run, int machine, int cell)
{
    return &run->found[machine * cell_count(run) + cell];
}

struct plan_simulation plan_simulation_of(const struct plan_run *run, int machine, int cell)
{
    const struct dpb_experiment *e = experiment(run, cell);

    return (struct plan_simulation){
            .schedules = &run->schedules[machine],
            .config = plan_config(run, cell),
            .strategy = dpb_registry_strategy(run->question.registry, e->strategy),
            .strategy_options = dpb_config_struct(plan_config(run, cell), "strategy"),
            .ranks = (int)e->ranks,
            .network = {.bandwidth = 1, .latency = 1},
    };
}

/* ---- one accelerator alone ---- */

/* A cell's micro-batch on one rank. */
static dpb_status alone_in(const struct plan_run *run, int machine, int cell, double *step_ns)
{
    struct plan_simulation simulation = plan_simulation_of(run, machine, cell);
    struct plan_times times;

    simulation.ranks = 1;
    DPB_TRY(plan_simulate(&simulation, &times));
    *step_ns = times.mean_ns / (double)experiment(run, cell)->accumulate;
    return DPB_OK;
}

/* Any cell with the largest batch. */
static dpb_status alone(const struct plan_run *run, int machine, double *step_ns)
{
    int cell = 0;

    while (experiment(run, cell)->batch_per_rank != run->question.largest_batch)
        cell++;
    return alone_in(run, machine, cell, step_ns);
}

/* Make the roofline's layers longer or shorter, so that one accelerator reaches what was measured;
 * the update of parameters keeps its time. */
static dpb_status meet_throughput(struct plan_run *run, int machine)
{
    const struct plan_machine *m = &run->question.machines[machine];
    struct plan_schedules *schedules = &run->schedules[machine];
    const struct dpb_schedule *schedule;

    if (isnan(m->throughput))
        return DPB_OK;
    DPB_TRY(plan_schedule_get(schedules, run->question.largest_batch, &schedule));
    const double passes_ns = dpb_schedule_forward_ns(schedule) + dpb_schedule_backward_ns(schedule);
    const double measured_ns = 1e9 * (double)run->question.largest_batch / m->throughput;
    const double left_ns = measured_ns - (run->alone_ns[machine] - passes_ns);

    if (!(left_ns > 0)) {
        dpb_error(
                "--throughput: %g samples/s leave no time for forward and backward passes of %lld "
                "samples on %s",
                m->throughput, (long long)run->question.largest_batch, m->machine.name);
        dpb_log_hint("give samples per second of one accelerator, as it trains with that batch");
        return DPB_ERR_USAGE;
    }
    plan_schedules_release(schedules);
    schedules->factor = left_ns / passes_ns;
    return alone(run, machine, &run->alone_ns[machine]);
}

/* ---- every configuration, undisturbed ---- */

/* Numbers that fill nodes, or a part of one. */
static bool is_whole(const struct plan_machine *machine, int64_t ranks)
{
    return ranks <= machine->machine.accelerators_per_node ||
           ranks % machine->machine.accelerators_per_node == 0;
}

static dpb_status find_cell(struct plan_run *run, int machine, int cell)
{
    const struct plan_machine *m = &run->question.machines[machine];
    struct plan_found *found = found_at(run, machine, cell);
    const struct plan_simulation simulation = plan_simulation_of(run, machine, cell);
    struct plan_times times;

    if (!is_whole(m, experiment(run, cell)->ranks))
        return DPB_OK;
    DPB_TRY(plan_memory_of(&run->question, m, simulation.config, NULL, &found->memory));
    DPB_TRY(plan_simulate(&simulation, &times));
    found->quiet_ns = times.mean_ns;
    found->is_there = true;
    return DPB_OK;
}

static dpb_status find_machine(struct plan_run *run, int machine)
{
    run->schedules[machine] = (struct plan_schedules){
            .question = &run->question,
            .machine = &run->question.machines[machine],
            .factor = 1,
    };
    DPB_TRY(alone(run, machine, &run->alone_ns[machine]));
    DPB_TRY(meet_throughput(run, machine));
    for (int c = 0; c < cell_count(run); c++)
        DPB_TRY(find_cell(run, machine, c));
    return DPB_OK;
}

/* ---- the best of each number of accelerators ---- */

/* The fastest that fits; of those that all do not, the one that needs least. Step times are
 * compared per sample, since batches may differ. */
static bool is_better(const struct plan_run *run, int machine, int a, int b)
{
    const struct plan_found *one = found_at(run, machine, a), *other = found_at(run, machine, b);
    const bool fits = one->memory.fit.margin_bytes >= 0;
    const bool other_fits = other->memory.fit.margin_bytes >= 0;

    if (fits != other_fits)
        return fits;
    if (!fits)
        return one->memory.fit.needed_bytes < other->memory.fit.needed_bytes;
    return one->quiet_ns / (double)experiment(run, a)->global_batch <
           other->quiet_ns / (double)experiment(run, b)->global_batch;
}

static int best_cell(const struct plan_run *run, int machine, int64_t ranks)
{
    int best = -1;

    for (int c = 0; c < cell_count(run); c++)
        if (experiment(run, c)->ranks == ranks && found_at(run, machine, c)->is_there &&
            (best < 0 || is_better(run, machine, c, best)))
            best = c;
    return best;
}

int64_t plan_noisy_steps(int ranks)
{
    const int64_t steps = 100000 / ranks;

    return steps < 100 ? 100 : steps > 200 ? 200 : steps;
}

static bool is_noisy(const struct dpb_timeline_noise *noise)
{
    return noise->rank_sd > 0 || noise->common_sd > 0 || noise->tail_share > 0;
}

static void take_steps(const struct plan_times *times, struct dpb_capacity_option *option)
{
    const struct dpb_interval95 interval =
            dpb_stats_mean_ci95(times->step_ns, (size_t)times->count);

    option->step_ns = times->mean_ns;
    option->step_low_ns = interval.low;
    option->step_high_ns = interval.high;
    option->p99_ns = dpb_stats_quantile(times->step_ns, (size_t)times->count, 0.99);
    option->steps_simulated = times->count;
}

static void take_origins(const struct plan_times *times, struct dpb_capacity_option *option)
{
    double sum_ns = 0;

    for (int o = 0; o < 4; o++)
        sum_ns += times->origin_ns[o];
    for (int o = 0; o < 4; o++)
        option->origin_share[o] = sum_ns > 0 ? times->origin_ns[o] / sum_ns : 0;
    option->extrapolated_by = times->extrapolated_by;
    option->extrapolated_below = times->extrapolated_below;
}

/* What computing takes of `still_ns`, a step on a free network: as one accelerator with the largest
 * batch would, more because the batch is smaller, and what the strategy adds. One that divides the
 * update may take less than the first. */
static dpb_status take_computing(const struct plan_run *run, int cell, double still_ns,
                                 struct dpb_capacity_option *option)
{
    const double micro_batches = (double)experiment(run, cell)->accumulate;
    const double ideal_ns = micro_batches * run->alone_ns[option->machine_index] *
                            (double)option->batch_per_rank / (double)run->question.largest_batch;
    double alone_ns;

    DPB_TRY(alone_in(run, option->machine_index, cell, &alone_ns));
    const double small_ns = fmin(fmax(0, micro_batches * alone_ns - ideal_ns), still_ns);
    option->loss_ns[DPB_LOSS_SMALL_BATCH] = small_ns;
    option->loss_ns[DPB_LOSS_STRATEGY] = fmax(0, still_ns - ideal_ns - small_ns);
    option->ideal_ns = still_ns - small_ns - option->loss_ns[DPB_LOSS_STRATEGY];
    return DPB_OK;
}

/* Where a step's time goes: steps without the network, and without its latencies, tell. */
static dpb_status simulate_option(const struct plan_run *run, int cell,
                                  struct dpb_capacity_option *option)
{
    const int machine = option->machine_index;
    const struct plan_machine *m = &run->question.machines[machine];
    struct plan_simulation simulation = plan_simulation_of(run, machine, cell);
    const double quiet_ns = found_at(run, machine, cell)->quiet_ns;
    struct plan_times noisy, prompt, still;

    simulation.network.latency = 0;
    DPB_TRY(plan_simulate(&simulation, &prompt));
    simulation.network.is_free = true;
    DPB_TRY(plan_simulate(&simulation, &still));
    simulation.network = (struct plan_network_change){.bandwidth = 1, .latency = 1};
    simulation.noise = m->model.noise;
    simulation.steps = is_noisy(&simulation.noise) ? plan_noisy_steps(option->accelerators) : 0;
    DPB_TRY(plan_simulate(&simulation, &noisy));
    take_steps(&noisy, option);
    take_origins(&noisy, option);
    option->loss_ns[DPB_LOSS_LATENCY] = fmax(0, quiet_ns - prompt.mean_ns);
    option->loss_ns[DPB_LOSS_BANDWIDTH] =
            fmax(0, quiet_ns - still.mean_ns - option->loss_ns[DPB_LOSS_LATENCY]);
    option->loss_ns[DPB_LOSS_STRAGGLERS] = fmax(0, noisy.mean_ns - quiet_ns);
    return take_computing(run, cell, still.mean_ns, option);
}

void plan_rates(const struct plan_run *run, struct dpb_capacity_option *option)
{
    const double alone_per_s = 1e9 * (double)run->question.largest_batch /
                               run->alone_ns[option->machine_index] * option->accelerators;

    option->samples_per_s = 1e9 * (double)option->global_batch / option->step_ns;
    option->efficiency = option->samples_per_s / alone_per_s;
    option->efficiency_low = option->efficiency * option->step_ns / option->step_high_ns;
    option->efficiency_high = option->efficiency * option->step_ns / option->step_low_ns;
}

static char *bucket_text(const dpb_config *config)
{
    struct dpb_str text = {0};

    if (dpb_config_text(config, "bucket", &text) == DPB_OK && !text.failed)
        return text.text;
    dpb_str_release(&text);
    return strdup("");
}

/* "compression=fp16 cycle-time=5ms": the cell's values of what varies and has no column of its own.
 * Caller frees; NULL when out of memory. */
static char *settings_text(const struct plan_run *run, int cell)
{
    const struct dpb_settings *settings = &run->question.settings;
    struct dpb_str out = {0};

    dpb_str_append(&out, "");
    for (size_t i = 0; i < settings->count; i++) {
        struct dpb_str value = {0};

        if (plan_option_is_told(&settings->items[i]) &&
            dpb_config_text(plan_config(run, cell), settings->items[i].name, &value) == DPB_OK)
            dpb_str_appendf(&out, "%s%s=%s", out.length > 0 ? " " : "", settings->items[i].name,
                            value.text);
        dpb_str_release(&value);
    }
    if (!out.failed)
        return out.text;
    dpb_str_release(&out);
    return NULL;
}

static dpb_status add_option(struct plan_run *run, int machine, int cell)
{
    const struct plan_machine *m = &run->question.machines[machine];
    const struct dpb_experiment *e = experiment(run, cell);
    const struct dpb_memory_fit *fit = &found_at(run, machine, cell)->memory.fit;
    const int at = run->option_count;
    struct dpb_capacity_option *option = &run->options[at];

    run->bucket_of[at] = bucket_text(plan_config(run, cell));
    run->settings_of[at] = settings_text(run, cell);
    run->option_count++;
    if (!run->bucket_of[at] || !run->settings_of[at])
        return no_memory();
    run->cell_of[at] = cell;
    run->quiet_ns[at] = found_at(run, machine, cell)->quiet_ns;
    *option = (struct dpb_capacity_option){
            .machine = m->machine.name,
            .strategy = e->strategy,
            .bucket = run->bucket_of[at],
            .settings = run->settings_of[at],
            .machine_index = machine,
            .accelerators = (int)e->ranks,
            .nodes = plan_nodes(m, (int)e->ranks),
            .batch_per_rank = e->batch_per_rank,
            .global_batch = e->global_batch,
            .fits = fit->margin_bytes >= 0,
            .needed_bytes = fit->needed_bytes,
            .memory_bytes = dpb_machine_value(&m->machine, DPB_FIGURE_MEMORY, NAN),
            .largest_batch = fit->largest_batch,
    };
    DPB_TRY(simulate_option(run, cell, option));
    plan_rates(run, option);
    plan_economy(run, option);
    return DPB_OK;
}

/* The next larger number of accelerators that is asked about; 0: none. */
static int64_t next_ranks(const struct plan_run *run, int64_t after)
{
    int64_t next = 0;

    for (int c = 0; c < cell_count(run); c++) {
        const int64_t ranks = experiment(run, c)->ranks;

        if (ranks > after && (next == 0 || ranks < next))
            next = ranks;
    }
    return next;
}

static dpb_status add_options(struct plan_run *run)
{
    for (int m = 0; m < run->question.machine_count; m++) {
        for (int64_t ranks = next_ranks(run, 0); ranks > 0; ranks = next_ranks(run, ranks)) {
            const int cell = best_cell(run, m, ranks);

            if (cell >= 0)
                DPB_TRY(add_option(run, m, cell));
            else
                plan_warn(&run->question,
                          "%s: %lld accelerators are not whole nodes of %d, and are left out.",
                          run->question.machines[m].machine.name, (long long)ranks,
                          run->question.machines[m].machine.accelerators_per_node);
        }
    }
    if (run->option_count > 0)
        return DPB_OK;
    dpb_error("none of the numbers of accelerators are whole nodes of a machine");
    dpb_log_hint("give --ranks multiples of the accelerators of a node, or fewer than it has");
    return DPB_ERR_USAGE;
}

/* ---- the report ---- */

static dpb_json *options_json(const struct plan_run *run)
{
    dpb_json *list = dpb_json_array();

    for (int i = 0; i < run->option_count; i++)
        dpb_json_append(list, dpb_capacity_option_json(
                                      &run->options[i],
                                      dpb_capacity_is_on_front(
                                              run->options, (size_t)run->option_count, (size_t)i)));
    return list;
}

/* What else was tried where the answer is. */
static dpb_json *alternatives_json(const struct plan_run *run)
{
    dpb_json *list = dpb_json_array();

    if (run->answer.option < 0)
        return list;
    const struct dpb_capacity_option *option = &run->options[run->answer.option];
    for (int c = 0; c < cell_count(run); c++) {
        const struct plan_found *found = found_at(run, option->machine_index, c);
        dpb_json *row;

        if (experiment(run, c)->ranks != option->accelerators || !found->is_there)
            continue;
        char *bucket = bucket_text(plan_config(run, c)), *settings = settings_text(run, c);
        row = dpb_json_object();
        dpb_json_set_string(row, "strategy", experiment(run, c)->strategy);
        dpb_json_set_string(row, "bucket", bucket);
        dpb_json_set_string(row, "settings", settings);
        dpb_json_set_int(row, "batch_per_rank", experiment(run, c)->batch_per_rank);
        dpb_json_set_real(row, "undisturbed_step_ns", found->quiet_ns);
        dpb_json_set_bool(row, "fits", found->memory.fit.margin_bytes >= 0);
        dpb_json_set_real(row, "memory_needed_bytes", found->memory.fit.needed_bytes);
        dpb_json_set_bool(row, "chosen", c == run->cell_of[run->answer.option]);
        dpb_json_append(list, row);
        free(bucket);
        free(settings);
    }
    return list;
}

static dpb_status report(struct plan_run *run, const struct dpb_capacity_input *input,
                         dpb_json **plan)
{
    dpb_json *json = dpb_json_object(), *answer = NULL, *sensitivity = NULL;
    dpb_status st;

    DPB_TRY_GOTO(st, plan_sensitivity(run, &sensitivity), out);
    DPB_TRY_GOTO(st, plan_answer_json(run, &answer), out);
    plan_warn_of_options(run);
    dpb_json_set_string(json, "schema", SCHEMA);
    dpb_json_set_string(json, "name", run->question.name);
    dpb_json_set_int(json, "asked_at_s", input->now_s);
    dpb_json_set_string(json, "currency", "USD");
    dpb_json_set(json, "question", plan_question_json(&run->question));
    dpb_json_set(json, "answer", answer);
    dpb_json_set(json, "options", options_json(run));
    dpb_json_set(json, "alternatives", alternatives_json(run));
    dpb_json_set(json, "sensitivity", sensitivity);
    dpb_json_set(json, "warnings", dpb_json_copy(run->question.warnings));
    dpb_json_set(json, "provenance", plan_provenance_json(&run->question));
    answer = sensitivity = NULL;
    st = dpb_json_ok(json) ? DPB_OK : no_memory();
out:
    dpb_json_free(answer);
    dpb_json_free(sensitivity);
    if (st == DPB_OK)
        *plan = json;
    else
        dpb_json_free(json);
    return st;
}

static dpb_status alloc_tables(struct plan_run *run)
{
    const size_t machines = (size_t)run->question.machine_count;
    const size_t all = machines * run->question.cell_count;

    run->schedules = calloc(machines, sizeof(*run->schedules));
    run->alone_ns = calloc(machines, sizeof(*run->alone_ns));
    run->found = calloc(all, sizeof(*run->found));
    run->options = calloc(all, sizeof(*run->options));
    run->cell_of = calloc(all, sizeof(*run->cell_of));
    run->quiet_ns = calloc(all, sizeof(*run->quiet_ns));
    run->bucket_of = calloc(all, sizeof(*run->bucket_of));
    run->settings_of = calloc(all, sizeof(*run->settings_of));
    return run->schedules && run->alone_ns && run->found && run->options && run->cell_of &&
                           run->quiet_ns && run->bucket_of && run->settings_of
                   ? DPB_OK
                   : no_memory();
}

static void run_release(struct plan_run *run)
{
    for (int m = 0; run->schedules && m < run->question.machine_count; m++)
        plan_schedules_release(&run->schedules[m]);
    for (int i = 0; i < run->option_count; i++) {
        free(run->bucket_of[i]);
        free(run->settings_of[i]);
    }
    free(run->schedules);
    free(run->alone_ns);
    free(run->found);
    free(run->options);
    free(run->cell_of);
    free(run->quiet_ns);
    free(run->bucket_of);
    free(run->settings_of);
    plan_question_release(&run->question);
}

dpb_status dpb_capacity_run(const struct dpb_capacity_input *input, dpb_json **plan)
{
    struct plan_run run = {0};
    dpb_status st;

    DPB_TRY_GOTO(st, plan_question_make(input, &run.question), out);
    DPB_TRY_GOTO(st, alloc_tables(&run), out);
    DPB_TRY_GOTO(st, plan_checkpoint_s(&run, &run.checkpoint_s), out);
    for (int m = 0; m < run.question.machine_count; m++)
        DPB_TRY_GOTO(st, find_machine(&run, m), out);
    DPB_TRY_GOTO(st, add_options(&run), out);
    dpb_capacity_answer(run.options, (size_t)run.option_count, run.question.target, &run.answer);
    st = report(&run, input, plan);
out:
    run_release(&run);
    return st;
}

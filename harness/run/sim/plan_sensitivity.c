/* The same question with one figure 20 % off: the strategies that were chosen are simulated again.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"
#include "plan_run.h"

#define CHANGE 0.2

enum figure {
    BANDWIDTH,
    LATENCY,
    NOISE,
    PRICE,
    FIGURES
};

static const char *const figure_texts[FIGURES] = {
        [BANDWIDTH] = "bandwidth of the network",
        [LATENCY] = "latency of the network",
        [NOISE] = "delays of ranks",
        [PRICE] = "price",
};

/* Everything but the mean shifts with it. */
static void shift_step(double step_ns, struct dpb_capacity_option *option)
{
    const double by_ns = step_ns - option->step_ns;

    option->step_ns = step_ns;
    option->step_low_ns += by_ns;
    option->step_high_ns += by_ns;
    option->p99_ns += by_ns;
}

/* Where the profile has a tail, its mean; else the normal part. */
static void change_noise(double factor, struct dpb_timeline_noise *noise)
{
    if (noise->tail_share > 0)
        noise->tail_mean *= factor;
    else
        noise->rank_sd = fmin(1, noise->rank_sd * factor);
}

static dpb_status simulate_again(const struct plan_run *run, int index, enum figure figure,
                                 double factor, struct dpb_capacity_option *option)
{
    struct plan_simulation simulation =
            plan_simulation_of(run, option->machine_index, run->cell_of[index]);
    const struct plan_machine *machine = &run->question.machines[option->machine_index];
    double step_ns = option->step_ns - run->quiet_ns[index];
    struct plan_times times;

    if (figure == BANDWIDTH)
        simulation.network.bandwidth = factor;
    if (figure == LATENCY)
        simulation.network.latency = factor;
    if (figure == NOISE) {
        simulation.noise = machine->model.noise;
        change_noise(factor, &simulation.noise);
        simulation.steps = plan_noisy_steps(option->accelerators);
        step_ns = 0;
    }
    DPB_TRY(plan_simulate(&simulation, &times));
    shift_step(step_ns + times.mean_ns, option);
    return DPB_OK;
}

static bool has_noise(const struct plan_run *run, const struct dpb_capacity_option *option)
{
    const struct dpb_timeline_noise *noise =
            &run->question.machines[option->machine_index].model.noise;

    return noise->tail_share > 0 || noise->rank_sd > 0;
}

static dpb_status change(const struct plan_run *run, int index, enum figure figure, double factor,
                         struct dpb_capacity_option *option)
{
    if (figure == PRICE) {
        option->cost *= factor;
        return DPB_OK;
    }
    if (figure == NOISE && !has_noise(run, option))
        return DPB_OK;
    DPB_TRY(simulate_again(run, index, figure, factor, option));
    plan_rates(run, option);
    plan_economy(run, option);
    return DPB_OK;
}

static void set_answer(const struct plan_run *run, const struct dpb_capacity_option *options,
                       const struct dpb_capacity_answer *answer, dpb_json *row)
{
    struct dpb_str name = {0};

    dpb_json_set_bool(row, "changes",
                      answer->option != run->answer.option || answer->is_met != run->answer.is_met);
    dpb_json_set_bool(row, "met", answer->is_met);
    if (answer->option < 0) {
        dpb_json_set_absent(row, "answer", "nothing fits in memory");
        return;
    }
    const struct dpb_capacity_option *option = &options[answer->option];
    plan_option_name(option, &name);
    dpb_json_set_string(row, "answer", name.failed ? "" : name.text);
    dpb_json_set_real(row, "wall_s", option->wall_s);
    dpb_json_set_real(row, "efficiency", option->efficiency);
    if (isnan(option->cost))
        dpb_json_set_absent(row, "cost", "no price is known for this machine");
    else
        dpb_json_set_real(row, "cost", option->cost);
    dpb_str_release(&name);
}

static dpb_status try_change(const struct plan_run *run, enum figure figure, double factor,
                             dpb_json *list)
{
    const size_t count = (size_t)run->option_count;
    struct dpb_capacity_option *options = malloc(count * sizeof(*options));
    struct dpb_capacity_answer answer;
    dpb_status st = options ? DPB_OK : DPB_ERR_NO_MEMORY;

    if (options)
        memcpy(options, run->options, count * sizeof(*options));
    for (size_t i = 0; i < count && st == DPB_OK; i++)
        st = change(run, (int)i, figure, factor, &options[i]);
    if (st == DPB_OK) {
        dpb_json *row = dpb_json_object();

        dpb_capacity_answer(options, count, run->question.target, &answer);
        dpb_json_set_string(row, "figure", figure_texts[figure]);
        dpb_json_set_real(row, "change", factor - 1);
        set_answer(run, options, &answer, row);
        dpb_json_append(list, row);
    }
    free(options);
    return st;
}

dpb_status plan_sensitivity(struct plan_run *run, dpb_json **list)
{
    dpb_json *made = dpb_json_array();
    dpb_status st = DPB_OK;

    for (int f = 0; f < FIGURES; f++) {
        DPB_KEEP(st, st < 0 ? st : try_change(run, f, 1 - CHANGE, made));
        DPB_KEEP(st, st < 0 ? st : try_change(run, f, 1 + CHANGE, made));
    }
    if (st == DPB_OK)
        *list = made;
    else
        dpb_json_free(made);
    return st;
}

/* What a simulated cell is made of, from its options. */
#include "sim_cell.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"

#define IDEAL_RATE 1e18 /* bytes or flops per second: takes no time */

static dpb_status no_memory(void)
{
    dpb_error("simulation: out of memory");
    return DPB_ERR_NO_MEMORY;
}

/* ---- the machine ---- */

/* Where a profile says how long computing takes and nothing says what joins the ranks. */
static dpb_status ideal_machine(struct dpb_machine *machine)
{
    *machine = (struct dpb_machine){
            .name = strdup("ideal"),
            .summary = strdup("an ideal network"),
            .accelerator = strdup("as profiled"),
            .file = strdup(""),
            .accelerators_per_node = 65536,
    };
    for (int i = 0; i < DPB_FIGURE_COUNT; i++)
        machine->figure[i].value = NAN;
    return machine->name && machine->summary && machine->accelerator && machine->file ? DPB_OK
                                                                                      : no_memory();
}

dpb_status sim_machine_open(const struct dpb_sim_options *options, struct dpb_machine *machine)
{
    dpb_status st;

    if (options->machine[0])
        DPB_TRY(dpb_machine_find(options->machine, machine));
    else
        DPB_TRY(ideal_machine(machine));
    st = dpb_machine_set_all(machine, options->set, "--set");
    if (st < 0)
        dpb_machine_release(machine);
    return st;
}

/* ---- models ---- */

static void use_ideal(struct dpb_machine_model *model)
{
    model->network.inside.bytes_per_s = IDEAL_RATE;
    model->network.inside.latency_ns = 0;
    model->network.inside.floor_ns = 0;
    model->network.inside.share = 1;
}

static void override(double option, double *value)
{
    if (!isnan(option))
        *value = option;
}

/* A machine of which only links are known computes as the profile says: here only what must be
 * there is filled in. */
static dpb_status model_of_ideal(const struct dpb_machine *machine, struct dpb_machine_model *model)
{
    struct dpb_machine filled = *machine;

    filled.figure[DPB_FIGURE_MEMORY_RATE].value =
            dpb_machine_value(machine, DPB_FIGURE_MEMORY_RATE, IDEAL_RATE);
    filled.figure[DPB_FIGURE_FP32].value = dpb_machine_value(machine, DPB_FIGURE_FP32, IDEAL_RATE);
    filled.figure[DPB_FIGURE_INSIDE_RATE].value =
            dpb_machine_value(machine, DPB_FIGURE_INSIDE_RATE, IDEAL_RATE);
    DPB_TRY(dpb_machine_model_init(&filled, false, model));
    if (!dpb_machine_has(machine, DPB_FIGURE_INSIDE_RATE))
        use_ideal(model);
    return DPB_OK;
}

dpb_status sim_cell_model(const struct sim_cell *cell, const struct dpb_machine *machine,
                          struct dpb_machine_model *model)
{
    const struct dpb_sim_options *o = cell->o;

    DPB_TRY(cell->has_machine ? dpb_machine_model_init(machine, o->tf32, model)
                              : model_of_ideal(machine, model));
    override(o->noise_rank, &model->noise.rank_sd);
    override(o->noise_common, &model->noise.common_sd);
    override(o->tail_share, &model->noise.tail_share);
    override(o->tail_mean, &model->noise.tail_mean);
    model->noise.slow_ranks = (int)o->slow_ranks;
    model->noise.slow_by = o->slow_by;
    model->network.ranks_per_node = (int)cell->e->ranks_per_node;
    if (cell->has_profile)
        model->launch_ns = 0; /* gaps before operators are in the profile's times */
    if (!cell->has_machine)
        model->is_cpu = cell->profile.is_cpu;
    return DPB_OK;
}

/* ---- what computes, from a profile ---- */

static dpb_status free_price(void *ctx, enum dpb_coll_kind kind, int64_t bytes, double *alone_ns,
                             double *compute_slowdown, double *slowdown)
{
    (void)ctx;
    (void)kind;
    (void)bytes;
    *alone_ns = *compute_slowdown = *slowdown = 0;
    return DPB_OK;
}

static double free_exchange(void *ctx, int64_t bytes)
{
    (void)ctx;
    (void)bytes;
    return 0;
}

static struct dpb_optimizer_config profiled_optimizer(const struct sim_cell *cell)
{
    const struct dpb_optimizer_config own = dpb_experiment_optimizer(cell->e);

#define SAME(one, text, help)                                                                      \
    if (strcmp(cell->profile.optimizer, text) == 0 && own.kind != (one))                           \
        return dpb_optimizer_defaults(one);
    DPB_OPTIMIZER_MAP(SAME)
#undef SAME
    return own;
}

/* The optimizer, and what a strategy computes, is limited by memory: at the rate at which the
 * profile's optimizer ran. A first simulation at a round rate tells how much it moves. */
static dpb_status rates_of_profile(const struct sim_cell *cell, struct dpb_sim_rates *rates)
{
    const double measured_ns =
            dpb_profile_at(&cell->profile, cell->profile.optimizer_ns, cell->e->batch_per_rank);
    struct dpb_sim_rates trial = {.bytes_per_s = 1e9};
    struct dpb_sim_step_times times;
    dpb_sim_step *sim;
    dpb_status st;

    for (int type = 0; type < DPB_DTYPE_COUNT; type++)
        trial.flop_per_s[type] = IDEAL_RATE;
    const struct dpb_sim_step_config config = {
            .device_ops = cell->registry->sim_device,
            .comm_ops = cell->registry->sim_comm,
            .timeline = {.ranks = 1, .in_thread = true},
            .rates = &trial,
            .network = {NULL, free_price, free_exchange},
            .schedule = &cell->schedule,
            .strategy = dpb_registry_strategy(cell->registry, "none"),
            .ranks_per_node = 1,
            .accumulate = 1,
            .optimizer = profiled_optimizer(cell),
            .fused_optimizer = true,
    };
    DPB_TRY(dpb_sim_step_open(&config, &sim));
    st = dpb_sim_step_run(sim, &times);
    dpb_sim_step_close(sim);
    if (st < 0)
        return st;
    if (measured_ns > 0 && times.optimizer_ns > 0)
        trial.bytes_per_s *= times.optimizer_ns / measured_ns;
    *rates = trial;
    return DPB_OK;
}

/* The machine's roofline of the cell's precision over that of the profile's, layer by layer. */
static dpb_status scale_precision(struct sim_cell *cell, const struct dpb_machine_model *model,
                                  struct dpb_schedule *schedule)
{
    struct dpb_schedule from = {0}, to = {0};
    const double before = dpb_schedule_forward_ns(schedule) + dpb_schedule_backward_ns(schedule);
    dpb_status st;

    DPB_TRY_GOTO(st,
                 dpb_schedule_from_model(cell->network_model, &model->rates,
                                         cell->profile.precision, schedule->samples, &from),
                 out);
    DPB_TRY_GOTO(st,
                 dpb_schedule_from_model(cell->network_model, &model->rates,
                                         (enum dpb_dtype)cell->e->precision, schedule->samples,
                                         &to),
                 out);
    for (int s = 0; s < schedule->forward_count; s++)
        schedule->forward[s].alone_ns *= to.forward[s].alone_ns / from.forward[s].alone_ns;
    for (int s = 0; s < schedule->backward_count; s++)
        if (from.backward[s].alone_ns > 0)
            schedule->backward[s].alone_ns *= to.backward[s].alone_ns / from.backward[s].alone_ns;
    cell->scaled_by =
            (dpb_schedule_forward_ns(schedule) + dpb_schedule_backward_ns(schedule)) / before;
out:
    dpb_schedule_release(&from);
    dpb_schedule_release(&to);
    return st;
}

dpb_status sim_cell_schedule(struct sim_cell *cell, const struct dpb_machine_model *model,
                             struct dpb_schedule *schedule)
{
    const enum dpb_dtype precision = (enum dpb_dtype)cell->e->precision;
    dpb_status st;

    cell->scaled_by = 1;
    if (!cell->has_profile)
        return dpb_schedule_from_model(cell->network_model, &model->rates, precision,
                                       cell->e->batch_per_rank, schedule);
    DPB_TRY(dpb_schedule_from_profile(cell->network_model, cell->workload->name, &cell->profile,
                                      cell->e->batch_per_rank, schedule));
    if (precision == cell->profile.precision)
        return DPB_OK;
    st = scale_precision(cell, model, schedule);
    if (st < 0)
        dpb_schedule_release(schedule);
    return st;
}

/* ---- open and close ---- */

static dpb_status check_precision(const struct sim_cell *cell)
{
    if (!cell->has_profile || cell->has_machine ||
        cell->profile.precision == (enum dpb_dtype)cell->e->precision)
        return DPB_OK;
    dpb_error("--precision: the profile \"%s\" was measured in another one, and without --machine "
              "nothing tells how much faster this one is",
              cell->o->profile);
    dpb_log_hint("give --machine, whose rates scale the layers, or another profile");
    return DPB_ERR_USAGE;
}

dpb_status sim_cell_open(const struct dpb_registry *registry, const dpb_config *config,
                         struct sim_cell *cell)
{
    *cell = (struct sim_cell){
            .registry = registry,
            .config = config,
            .e = dpb_config_struct(config, "experiment"),
            .o = dpb_config_struct(config, "device"),
    };
    cell->workload = dpb_registry_workload(registry, cell->e->workload);
    cell->network_model = cell->workload->model(dpb_config_struct(config, "workload"));
    DPB_TRY(sim_machine_open(cell->o, &cell->machine));
    cell->has_machine = cell->o->machine[0] != '\0';
    if (cell->o->profile[0]) {
        DPB_TRY(dpb_profile_read(cell->o->profile, &cell->profile));
        cell->has_profile = true;
    }
    DPB_TRY(check_precision(cell));
    DPB_TRY(sim_cell_model(cell, &cell->machine, &cell->model));
    DPB_TRY(sim_cell_schedule(cell, &cell->model, &cell->schedule));
    return cell->has_profile ? rates_of_profile(cell, &cell->model.rates) : DPB_OK;
}

void sim_cell_release(struct sim_cell *cell)
{
    dpb_schedule_release(&cell->schedule);
    dpb_machine_model_release(&cell->model);
    dpb_profile_release(&cell->profile);
    dpb_machine_release(&cell->machine);
}

/* Simulated steps of a plan. */
#include "plan_cells.h"

#include <math.h>
#include <stdlib.h>

#include "dpb_experiment.h"
#include "dpb_log.h"
#include "dpb_memory.h"
#include "dpb_stats.h"

static dpb_status no_memory(void)
{
    dpb_error("plan: out of memory for the simulation");
    return DPB_ERR_NO_MEMORY;
}

int plan_nodes(const struct plan_machine *machine, int ranks)
{
    const int per_node = machine->machine.accelerators_per_node;

    return (ranks + per_node - 1) / per_node;
}

int plan_ranks_per_node(const struct plan_machine *machine, int ranks)
{
    const int per_node = machine->machine.accelerators_per_node;

    return ranks < per_node ? ranks : per_node;
}

/* ---- schedules ---- */

dpb_status plan_schedule_get(struct plan_schedules *schedules, int64_t batch,
                             const struct dpb_schedule **schedule)
{
    const struct plan_question *question = schedules->question;
    const struct dpb_experiment *e = dpb_config_struct(question->cells[0], "experiment");

    for (int i = 0; i < schedules->count; i++) {
        *schedule = &schedules->items[i];
        if (schedules->items[i].samples == batch)
            return DPB_OK;
    }
    struct dpb_schedule *items =
            realloc(schedules->items, ((size_t)schedules->count + 1) * sizeof(*items));
    if (!items)
        return no_memory();
    schedules->items = items;
    struct dpb_schedule *made = &items[schedules->count];
    DPB_TRY(dpb_schedule_from_model(question->model, &schedules->machine->model.rates,
                                    (enum dpb_dtype)e->precision, batch, made));
    schedules->count++;
    if (schedules->factor != 1)
        dpb_schedule_scale(made, schedules->factor * (dpb_schedule_forward_ns(made) +
                                                      dpb_schedule_backward_ns(made)));
    *schedule = made;
    return DPB_OK;
}

void plan_schedules_release(struct plan_schedules *schedules)
{
    for (int i = 0; i < schedules->count; i++)
        dpb_schedule_release(&schedules->items[i]);
    free(schedules->items);
    schedules->items = NULL;
    schedules->count = 0;
}

/* ---- the network, priced once per message ---- */

#define PRICES_MAX 256

struct network {
    struct dpb_model_network model; /* for what coordinators say */
    struct plan_network_change change;
    struct {
        enum dpb_coll_kind kind;
        int64_t bytes;
        struct dpb_network_time time; /* ns as changed */
    } price[PRICES_MAX];
    int price_count;
    double origin_ns[4], extrapolated_by, extrapolated_below;
};

/* A collective's time is that of a very small one, and what the bytes add. */
static dpb_status price_anew(const struct network *network, enum dpb_coll_kind kind, int64_t bytes,
                             struct dpb_network_time *time)
{
    const struct plan_network_change *change = &network->change;
    struct dpb_network_time least;

    DPB_TRY(dpb_network_time(network->model.network, kind, network->model.ranks, (double)bytes,
                             time));
    DPB_TRY(dpb_network_time(network->model.network, kind, network->model.ranks, 4, &least));
    const double latency_ns = fmin(least.ns, time->ns);
    time->ns = change->is_free
                       ? 0
                       : latency_ns * change->latency + (time->ns - latency_ns) / change->bandwidth;
    if (change->is_free)
        time->compute_slowdown = time->slowdown = 0;
    return DPB_OK;
}

static dpb_status price(void *ctx, enum dpb_coll_kind kind, int64_t bytes, double *alone_ns,
                        double *compute_slowdown, double *slowdown)
{
    struct network *network = ctx;
    struct dpb_network_time time;
    int at = 0;

    while (at < network->price_count &&
           (network->price[at].kind != kind || network->price[at].bytes != bytes))
        at++;
    if (at < network->price_count) {
        time = network->price[at].time;
    } else {
        DPB_TRY(price_anew(network, kind, bytes, &time));
        if (at < PRICES_MAX) {
            network->price[at].kind = kind;
            network->price[at].bytes = bytes;
            network->price[at].time = time;
            network->price_count++;
        }
    }
    network->origin_ns[time.origin] += time.ns;
    network->extrapolated_by = fmax(network->extrapolated_by, time.by);
    network->extrapolated_below = fmax(network->extrapolated_below, time.below);
    *alone_ns = time.ns;
    *compute_slowdown = time.compute_slowdown;
    *slowdown = time.slowdown;
    return DPB_OK;
}

static double exchange_ns(void *ctx, int64_t bytes)
{
    struct network *network = ctx;
    const struct dpb_sim_network talk = dpb_model_network_services(&network->model);

    return network->change.is_free ? 0
                                   : network->change.latency * talk.exchange_ns(talk.ctx, bytes);
}

/* ---- steps ---- */

#define SETTLING_STEPS 2
#define PERIOD_MAX     64

/* Steps after which a strategy's pattern of messages begins anew: how rarely the rarest goes. */
static dpb_status period_of(const struct plan_simulation *simulation,
                            const struct dpb_step_shape *shape, int64_t *period)
{
    const struct dpb_strategy_ops *ops = simulation->strategy;
    struct dpb_unit_plan plan;
    dpb_strategy *strategy;

    *period = ops->tick ? 4 : 1; /* cycles of a coordinator beside steps */
    if (!(dpb_strategy_flags(ops, simulation->strategy_options) & DPB_STRATEGY_REPLICAS_DIFFER))
        return DPB_OK;
    DPB_TRY(dpb_step_plan_offline(shape, 0, NULL, &strategy, &plan));
    const int count = ops->messages(strategy, NULL);
    struct dpb_sync_message *messages = calloc((size_t)count + 1, sizeof(*messages));
    if (messages)
        ops->messages(strategy, messages);
    for (int i = 0; messages && i < count; i++)
        if (messages[i].every > *period)
            *period = messages[i].every;
    *period = *period < PERIOD_MAX ? *period : PERIOD_MAX;
    ops->close(strategy);
    dpb_unit_plan_release(&plan);
    free(messages);
    return messages ? DPB_OK : no_memory();
}

/* At least `steps` of them: a part of a period has too many or too few of its rare messages. */
static int64_t whole_periods(int64_t steps, int64_t period)
{
    return steps > period ? (steps + period - 1) / period * period : period;
}

static dpb_status run_steps(dpb_sim_step *sim, int64_t count, struct plan_times *times)
{
    struct dpb_sim_step_times step;

    for (int s = 0; s < SETTLING_STEPS; s++)
        DPB_TRY(dpb_sim_step_run(sim, &step));
    for (times->count = 0; times->count < count; times->count++) {
        DPB_TRY(dpb_sim_step_run(sim, &step));
        times->step_ns[times->count] = step.step_ns;
    }
    times->mean_ns = dpb_stats_mean(times->step_ns, (size_t)count);
    return DPB_OK;
}

dpb_status plan_simulate(const struct plan_simulation *simulation, struct plan_times *times)
{
    const struct plan_question *question = simulation->schedules->question;
    const struct plan_machine *machine = simulation->schedules->machine;
    const struct dpb_experiment *e = dpb_config_struct(simulation->config, "experiment");
    const bool is_gpu = !machine->model.is_cpu;
    struct network network = {
            .model = {.network = &machine->model.network, .ranks = simulation->ranks},
            .change = simulation->network,
            .extrapolated_by = 1,
            .extrapolated_below = 1};
    struct dpb_optimizer_config optimizer;
    struct dpb_step_shape shape;
    struct dpb_sim_step_config config = {
            .device_ops = question->registry->sim_device,
            .comm_ops = question->registry->sim_comm,
            .timeline = {.ranks = simulation->ranks,
                         .seed = (uint64_t)e->seed,
                         .noise = simulation->noise,
                         .launch_ns = machine->model.launch_ns,
                         .in_thread = !is_gpu},
            .rates = &machine->model.rates,
            .network = {&network, price, exchange_ns},
            .strategy = simulation->strategy,
            .strategy_options = simulation->strategy_options,
            .bucket_given = dpb_config_is_explicit(simulation->config, "bucket"),
            .ranks_per_node = plan_ranks_per_node(machine, simulation->ranks),
            .is_gpu = is_gpu,
            .accumulate = e->accumulate,
            .fused_optimizer = is_gpu,
    };
    dpb_sim_step *sim;
    int64_t period;

    dpb_step_shape_of(question->registry, simulation->config, &optimizer, &shape);
    shape.ranks = simulation->ranks;
    shape.ranks_per_node = config.ranks_per_node;
    config.optimizer = optimizer;
    DPB_TRY(plan_schedule_get(simulation->schedules, e->batch_per_rank, &config.schedule));
    DPB_TRY(period_of(simulation, &shape, &period));
    DPB_TRY(dpb_sim_step_open(&config, &sim));
    const dpb_status st = run_steps(sim, whole_periods(simulation->steps, period), times);
    dpb_sim_step_close(sim);
    for (int o = 0; o < 4; o++)
        times->origin_ns[o] = network.origin_ns[o];
    times->extrapolated_by = network.extrapolated_by;
    times->extrapolated_below = network.extrapolated_below;
    return st;
}

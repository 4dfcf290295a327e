/* A cell on virtual time: warm-up, timed and traced steps. */
#include "dpb_simulate.h"

#include <math.h>
#include <stdlib.h>

#include "dpb_log.h"
#include "sim_record.h"
#include "sim_resolve.h"
#include "virtual_recorder.h"

/* ---- the network, with a note of what was asked ---- */

static dpb_status price(void *ctx, enum dpb_coll_kind kind, int64_t bytes, double *alone_ns,
                        double *compute_slowdown, double *slowdown)
{
    struct sim_run *run = ctx;
    const struct dpb_sim_network services = dpb_model_network_services(&run->network);

    sim_asked_note(&run->asked, kind, bytes);
    return services.price(&run->network, kind, bytes, alone_ns, compute_slowdown, slowdown);
}

static double exchange_ns(void *ctx, int64_t bytes)
{
    struct sim_run *run = ctx;
    const struct dpb_sim_network services = dpb_model_network_services(&run->network);

    run->asked.has_exchanges = true;
    return services.exchange_ns(&run->network, bytes);
}

/* ---- steps ---- */

static dpb_status open_step(struct sim_run *run)
{
    const struct sim_cell *cell = &run->cell;
    const struct dpb_experiment *e = cell->e;
    const struct dpb_registry *registry = run->simulation->registry;
    const struct dpb_sim_step_config config = {
            .device_ops = registry->sim_device,
            .comm_ops = registry->sim_comm,
            .timeline = {.ranks = (int)e->ranks,
                         .seed = (uint64_t)e->seed + ((uint64_t)run->simulation->repeat << 48),
                         .noise = cell->model.noise,
                         .launch_ns = cell->model.launch_ns,
                         .in_thread = cell->model.is_cpu},
            .rates = &cell->model.rates,
            .network = {run, price, exchange_ns},
            .schedule = &cell->schedule,
            .strategy = dpb_registry_strategy(registry, e->strategy),
            .strategy_options = dpb_config_struct(cell->config, "strategy"),
            .bucket_given = dpb_config_is_explicit(cell->config, "bucket"),
            .ranks_per_node = (int)e->ranks_per_node,
            .is_gpu = !cell->model.is_cpu,
            .accumulate = e->accumulate,
            .optimizer = dpb_experiment_optimizer(e),
            .fused_optimizer = true,
            .recorder = run->recorder,
    };

    run->network =
            (struct dpb_model_network){.network = &cell->model.network, .ranks = (int)e->ranks};
    return dpb_sim_step_open(&config, &run->sim);
}

static dpb_status one_step(struct sim_run *run, struct dpb_sim_step_times *times)
{
    const struct dpb_simulation *simulation = run->simulation;

    if (simulation->interrupted && *simulation->interrupted)
        return DPB_ERR_INTERRUPTED;
    DPB_TRY(dpb_sim_step_run(run->sim, times));
    run->steps_done++;
    if (simulation->tick)
        simulation->tick(simulation->tick_ctx, run->steps_done);
    return DPB_OK;
}

static dpb_status timed_steps(struct sim_run *run)
{
    const struct dpb_experiment *e = run->cell.e;
    struct dpb_sim_step_times unused;

    for (int64_t s = 0; s < e->warmup; s++)
        DPB_TRY(one_step(run, &unused));
    run->timed = calloc((size_t)(e->steps - e->warmup), sizeof(*run->timed));
    if (!run->timed) {
        dpb_error("simulation: out of memory for %lld steps", (long long)e->steps);
        return DPB_ERR_NO_MEMORY;
    }
    for (int64_t s = e->warmup; s < e->steps; s++)
        DPB_TRY(one_step(run, &run->timed[run->timed_count++]));
    return DPB_OK;
}

static dpb_status traced_steps(struct sim_run *run)
{
    struct dpb_sim_step_times unused;

    if (run->cell.e->trace_steps == 0)
        return DPB_OK;
    virtual_recorder_start(run->recorder, dpb_sim_step_timeline(run->sim),
                           run->cell.model.launch_ns);
    for (int64_t s = 0; s < run->cell.e->trace_steps; s++)
        DPB_TRY(one_step(run, &unused));
    return ((struct dpb_recorder_base *)run->recorder)
            ->ops->drain(run->recorder, &run->events, &run->event_count, &run->lost);
}

static dpb_status simulate(const struct dpb_simulation *simulation, dpb_json **sections)
{
    struct sim_run *run = calloc(1, sizeof(*run));
    dpb_status st;

    if (!run) {
        dpb_error("simulation: out of memory");
        return DPB_ERR_NO_MEMORY;
    }
    run->simulation = simulation;
    DPB_TRY_GOTO(st, sim_cell_open(simulation->registry, simulation->config, &run->cell), out);
    DPB_TRY_GOTO(st, virtual_recorder_open(&run->recorder), out);
    DPB_TRY_GOTO(st, open_step(run), out);
    DPB_TRY_GOTO(st, timed_steps(run), out);
    DPB_TRY_GOTO(st, traced_steps(run), out);
    st = sim_record(run, sections);
out:
    dpb_sim_step_close(run->sim);
    if (run->recorder)
        ((struct dpb_recorder_base *)run->recorder)->ops->close(run->recorder);
    sim_cell_release(&run->cell);
    free(run->timed);
    free(run);
    return st;
}

const struct dpb_simulator dpb_simulator_here = {
        .resolve = sim_resolve,
        .memory_bytes = sim_memory_bytes,
        .run = simulate,
};

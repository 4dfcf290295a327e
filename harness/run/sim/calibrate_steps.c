/* calibrate_steps.c: each cell's step time, predicted from the other cells on virtual time. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "calibrate_items.h"
#include "dpb_memory.h"
#include "dpb_stats.h"

/* ---- a cell on virtual time ---- */

static dpb_status price(void *ctx, enum dpb_coll_kind kind, int64_t bytes, double *alone_ns,
                        double *compute_slowdown, double *slowdown)
{
    struct calibrate_network *network = ctx;

    *alone_ns = *compute_slowdown = *slowdown = 0;
    if (network->is_emulated) {
        *alone_ns = (double)dpb_setup_wire_ns(&network->setup, kind, bytes);
        return DPB_OK;
    }
    if (!network->ours.network)
        return DPB_OK;
    const struct dpb_sim_network services = dpb_model_network_services(&network->ours);
    return services.price(services.ctx, kind, bytes, alone_ns, compute_slowdown, slowdown);
}

static double exchange_ns(void *ctx, int64_t bytes)
{
    struct calibrate_network *network = ctx;

    if (!network->ours.network)
        return 0;
    const struct dpb_sim_network services = dpb_model_network_services(&network->ours);
    return services.exchange_ns(services.ctx, bytes);
}

static dpb_status run_steps(const struct dpb_sim_step_config *config,
                            struct dpb_sim_step_times *times)
{
    dpb_sim_step *sim;
    dpb_status st;

    DPB_TRY(dpb_sim_step_open(config, &sim));
    for (int step = 0; step < 4; step++) /* a strategy may plan anew after the first */
        DPB_TRY_GOTO(st, dpb_sim_step_run(sim, times), out);
out:
    dpb_sim_step_close(sim);
    return st;
}

dpb_status calibrate_simulate(const struct calibrating *c, const struct calibrate_item *item,
                              struct calibrate_network *network, const struct dpb_sim_rates *rates,
                              const struct dpb_schedule *schedule, struct dpb_sim_step_times *times)
{
    struct dpb_optimizer_config optimizer;
    struct dpb_step_shape shape;

    dpb_step_shape_of(c->config->registry, item->config, &optimizer, &shape);
    const struct dpb_sim_step_config config = {
            .device_ops = c->config->registry->sim_device,
            .comm_ops = c->config->registry->sim_comm,
            .timeline = {.ranks = (int)item->e->ranks, .seed = 1, .in_thread = true},
            .rates = rates,
            .network = {network, price, exchange_ns},
            .schedule = schedule,
            .strategy = shape.strategy,
            .strategy_options = shape.strategy_options,
            .bucket_given = shape.bucket_given,
            .ranks_per_node = shape.ranks_per_node ? shape.ranks_per_node : shape.ranks,
            .accumulate = shape.accumulate,
            .optimizer = optimizer,
    };
    return run_steps(&config, times);
}

/* ---- each cell from the others ---- */

static dpb_status predict(const struct calibrating *c, const struct dpb_machine_model *model,
                          const struct calibrate_item *item,
                          const struct calibrate_estimate *estimate, double *step_ns)
{
    struct dpb_network network = model->network;
    struct calibrate_network cell = {.ours = {.network = &network, .ranks = (int)item->e->ranks},
                                     .setup = dpb_experiment_algorithm(item->config),
                                     .is_emulated = item->emulated};
    struct dpb_sim_rates rates = model->rates;
    struct dpb_sim_step_times times = {0};
    struct dpb_schedule schedule;
    dpb_status st;

    network.compute_slowdown_inside = isnan(estimate->slow_inside) ? 0 : estimate->slow_inside;
    network.slowdown = isnan(estimate->slow_collective) ? 0 : estimate->slow_collective;
    rates.flop_per_s[DPB_F32] = estimate->flop_per_s;
    rates.bytes_per_s = estimate->bytes_per_s;
    DPB_TRY(dpb_schedule_from_model(item->model, &rates, DPB_F32, item->e->batch_per_rank,
                                    &schedule));
    if (!isnan(estimate->compute_ns)) {
        dpb_schedule_scale(&schedule, estimate->compute_ns);
        schedule.data_ns = fmax(0, estimate->data_ns);
    }
    st = calibrate_simulate(c, item, &cell, &rates, &schedule, &times);
    *step_ns = times.step_ns;
    dpb_schedule_release(&schedule);
    return st;
}

/* The cell's median over its repeats. */
static double measured_of(const struct calibrate_items *items, size_t cell,
                          const struct calibrate_item **any)
{
    double *steps = calloc(items->count + 1, sizeof(*steps)), median = NAN;
    size_t count = 0;

    for (size_t i = 0; steps && i < items->count; i++)
        if (items->items[i].cell == cell) {
            steps[count++] = items->items[i].step_ns;
            *any = &items->items[i];
        }
    if (count > 0)
        median = dpb_stats_median(steps, count);
    free(steps);
    return median;
}

static dpb_json *step_json(const struct calibrate_item *item, double measured_ns,
                           double predicted_ns)
{
    dpb_json *json = dpb_json_object();
    char label[DPB_OPTION_TEXT_BYTES];

    snprintf(label, sizeof(label), "%s", calibrate_text_at(item->record, "label"));
    dpb_json_set_string(json, "run", item->run);
    dpb_json_set_int(json, "cell", dpb_json_as_int(dpb_json_get(item->record, "cell"), 0));
    dpb_json_set_string(json, "label", label[0] ? label : item->e->workload);
    dpb_json_set_int(json, "ranks", item->e->ranks);
    dpb_json_set_bool(json, "emulated", item->emulated);
    dpb_json_set_real(json, "measured_ns", measured_ns);
    dpb_json_set_real(json, "predicted_ns", predicted_ns);
    dpb_json_set_real(json, "error", predicted_ns / measured_ns - 1);
    return json;
}

static dpb_status check_cell(const struct calibrating *c, const struct dpb_machine_model *model,
                             const struct calibrate_items *items, size_t cell, dpb_json *list,
                             double *errors, size_t *count)
{
    const struct calibrate_item *item = NULL;
    const double measured_ns = measured_of(items, cell, &item);
    struct calibrate_estimate estimate;
    double predicted_ns;

    if (!item || isnan(measured_ns))
        return DPB_OK;
    DPB_TRY(calibrate_estimate_all(c, items, cell, &estimate));
    DPB_TRY(calibrate_estimate_passes(items, item, &estimate));
    if (isnan(estimate.flop_per_s))
        return DPB_OK; /* there are no others */
    DPB_TRY(predict(c, model, item, &estimate, &predicted_ns));
    dpb_json_append(list, step_json(item, measured_ns, predicted_ns));
    errors[(*count)++] = fabs(predicted_ns / measured_ns - 1);
    return DPB_OK;
}

dpb_status calibrate_check_steps(struct calibrating *c)
{
    dpb_json *list = dpb_json_array();
    double *errors = calloc(c->items->cells + 1, sizeof(*errors));
    struct dpb_machine_model model = {0};
    size_t count = 0;
    dpb_status st = errors ? DPB_OK : DPB_ERR_NO_MEMORY;

    if (st >= 0 && c->items->count > 0)
        st = dpb_machine_model_init(&c->machine, false, &model);
    for (size_t cell = 0; st >= 0 && cell < c->items->cells; cell++)
        st = check_cell(c, &model, c->items, cell, list, errors, &count);
    dpb_json_set(c->report, "steps", list);
    calibrate_put_errors(c->report, "steps_", errors, count,
                         "it takes at least 2 cells to predict one from the others");
    dpb_machine_model_release(&model);
    free(errors);
    return st;
}

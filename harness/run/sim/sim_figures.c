/* Changes every figure, and looks whether anything moves. */
#include "sim_figures.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"

void sim_asked_note(struct sim_asked *asked, enum dpb_coll_kind kind, int64_t bytes)
{
    for (int i = 0; i < asked->count; i++)
        if (asked->coll[i].kind == kind && asked->coll[i].bytes == bytes)
            return;
    if (asked->count < SIM_ASKED_MAX) {
        asked->coll[asked->count].kind = kind;
        asked->coll[asked->count++].bytes = bytes;
    }
}

/* Everything that a machine gives a simulation, as numbers. */
#define FIXED_VALUES 16
struct signature {
    double value[FIXED_VALUES + 3 * SIM_ASKED_MAX];
    int count;
};

static void put(struct signature *signature, double value)
{
    signature->value[signature->count++] = value;
}

/* Of what is too fast to be computed by layers: a floor shows in one byte, a rate in a gigabyte. */
static void put_rates(const struct dpb_sim_rates *rates, struct signature *signature)
{
    put(signature, dpb_sim_rates_ns(rates, DPB_F32, 0, 1));
    put(signature, dpb_sim_rates_ns(rates, DPB_F32, 0, 1e9));
}

static dpb_status put_network(struct sim_cell *cell, const struct sim_asked *asked,
                              const struct dpb_machine_model *model, struct signature *signature)
{
    struct dpb_model_network network = {.network = &model->network, .ranks = (int)cell->e->ranks};
    const struct dpb_sim_network services = dpb_model_network_services(&network);

    for (int i = 0; i < asked->count; i++) {
        double ns = 0, compute_slowdown = 0, slowdown = 0;

        DPB_TRY(services.price(&network, asked->coll[i].kind, asked->coll[i].bytes, &ns,
                               &compute_slowdown, &slowdown));
        put(signature, ns);
        put(signature, compute_slowdown);
        put(signature, slowdown);
    }
    put(signature, asked->has_exchanges ? services.exchange_ns(&network, 64) : 0);
    return DPB_OK;
}

static dpb_status sign(struct sim_cell *cell, const struct sim_asked *asked,
                       const struct dpb_machine *machine, struct signature *signature)
{
    struct dpb_machine_model model = {0};
    struct dpb_schedule schedule = {0};
    dpb_status st;

    signature->count = 0;
    DPB_TRY_GOTO(st, sim_cell_model(cell, machine, &model), out);
    DPB_TRY_GOTO(st, sim_cell_schedule(cell, &model, &schedule), out);
    put(signature, dpb_schedule_forward_ns(&schedule));
    put(signature, dpb_schedule_backward_ns(&schedule));
    if (!cell->has_profile)
        put_rates(&model.rates, signature);
    put(signature, model.launch_ns);
    put(signature, model.noise.rank_sd);
    put(signature, model.noise.common_sd);
    /* either does nothing without the other */
    put(signature, model.noise.tail_mean > 0 ? model.noise.tail_share : 0);
    put(signature, model.noise.tail_share > 0 ? model.noise.tail_mean : 0);
    if (cell->has_machine) {
        put(signature, dpb_machine_value(machine, DPB_FIGURE_MEMORY, 0));
        put(signature, dpb_machine_value(machine, DPB_FIGURE_POWER, 0));
    }
    st = put_network(cell, asked, &model, signature);
out:
    dpb_schedule_release(&schedule);
    dpb_machine_model_release(&model);
    return st;
}

static bool differ(const struct signature *a, const struct signature *b)
{
    if (a->count != b->count)
        return true;
    for (int i = 0; i < a->count; i++)
        if (a->value[i] != b->value[i] && !(isnan(a->value[i]) && isnan(b->value[i])))
            return true;
    return false;
}

/* Counts change by whole numbers; 0 by a little. */
static double changed(enum dpb_figure_id id, double value, bool up)
{
    if (id == DPB_FIGURE_NICS || id == DPB_FIGURE_NVLS_RANKS)
        return up ? 2 * value : fmax(1, floor(value / 2));
    if (value == 0)
        return up ? 1e-3 : 0;
    return up ? 1.25 * value : 0.75 * value;
}

static dpb_status is_unused(struct sim_cell *cell, const struct sim_asked *asked,
                            const struct signature *own, enum dpb_figure_id id,
                            struct signature *other, bool *unused)
{
    struct dpb_machine machine = cell->machine;

    *unused = true;
    for (int up = 0; up < 2 && *unused; up++) {
        machine.figure[id].value = changed(id, cell->machine.figure[id].value, up);
        DPB_TRY(sign(cell, asked, &machine, other));
        *unused = !differ(own, other);
    }
    return DPB_OK;
}

dpb_status sim_figures_unused(struct sim_cell *cell, const struct sim_asked *asked,
                              bool unused[DPB_FIGURE_COUNT])
{
    struct signature *own = calloc(2, sizeof(*own));
    dpb_status st = own ? DPB_OK : DPB_ERR_NO_MEMORY;

    memset(unused, 0, DPB_FIGURE_COUNT * sizeof(*unused));
    if (st == DPB_OK)
        st = sign(cell, asked, &cell->machine, &own[0]);
    for (int id = 0; id < DPB_FIGURE_COUNT && st == DPB_OK; id++)
        if (dpb_machine_has(&cell->machine, (enum dpb_figure_id)id))
            st = is_unused(cell, asked, &own[0], (enum dpb_figure_id)id, &own[1], &unused[id]);
    free(own);
    return st;
}

#include "dpb_machine_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"

static double value(const struct dpb_machine *machine, enum dpb_figure_id id, double otherwise)
{
    return dpb_machine_value(machine, id, otherwise);
}

static double ns(const struct dpb_machine *machine, enum dpb_figure_id id, double otherwise_s)
{
    return 1e9 * dpb_machine_value(machine, id, otherwise_s);
}

/* ---- operators ---- */

static void copy_share(const struct dpb_machine_share *from, struct dpb_sim_curve *to)
{
    /* A curve of more points than there is room for: every second, and so on, and the last. */
    const int step = (from->count + DPB_SIM_CURVE_POINTS - 1) / DPB_SIM_CURVE_POINTS;

    to->count = 0;
    for (int i = 0; i < from->count; i += step) {
        const int at = i + step < from->count ? i : from->count - 1;

        to->size[to->count] = from->size[at];
        to->share[to->count++] = from->share[at];
    }
}

static void rates_of(const struct dpb_machine *machine, bool tf32, struct dpb_sim_rates *rates)
{
    const double share = value(machine, DPB_FIGURE_COMPUTE_SHARE, 0.8);
    const double fp32 = value(machine, DPB_FIGURE_FP32, 0);

    *rates = (struct dpb_sim_rates){
            .bytes_per_s = value(machine, DPB_FIGURE_MEMORY_RATE, 0) *
                           value(machine, DPB_FIGURE_MEMORY_SHARE, 0.8),
            .floor_ns = ns(machine, DPB_FIGURE_OPERATOR, 0),
    };
    rates->flop_per_s[DPB_F32] = share * (tf32 ? value(machine, DPB_FIGURE_TF32, fp32) : fp32);
    rates->flop_per_s[DPB_BF16] = share * value(machine, DPB_FIGURE_BF16, 0);
    rates->flop_per_s[DPB_F16] = share * value(machine, DPB_FIGURE_FP16, 0);
    copy_share(&machine->flop_share, &rates->flop_share);
    copy_share(&machine->bytes_share, &rates->bytes_share);
}

/* ---- network ---- */

static bool find_kind(const char *text, enum dpb_coll_kind *kind)
{
    for (int k = 0; k < DPB_COLL_COUNT; k++) {
        if (strcmp(dpb_coll_text(k), text) == 0) {
            *kind = k;
            return true;
        }
    }
    return false;
}

static dpb_status copy_curve(const struct dpb_machine_curve *from, struct dpb_network_curve *to)
{
    const int step = (from->count + DPB_NETWORK_POINTS - 1) / DPB_NETWORK_POINTS;

    if (!find_kind(from->collective, &to->kind)) {
        dpb_error("machine profile: there is no collective \"%s\"", from->collective);
        return DPB_ERR_USAGE;
    }
    to->ranks = from->ranks;
    to->nodes = from->nodes;
    to->source = from->source;
    for (int i = 0; i < from->count; i += step) {
        const int at = i + step < from->count ? i : from->count - 1;

        to->bytes[to->count] = from->bytes[at];
        to->ns[to->count++] = 1e9 * from->seconds[at];
    }
    return DPB_OK;
}

static dpb_status network_of(const struct dpb_machine *machine, struct dpb_machine_model *model)
{
    struct dpb_network *network = &model->network;

    model->curves = calloc((size_t)machine->curve_count + 1, sizeof(*model->curves));
    if (!model->curves)
        return DPB_ERR_NO_MEMORY;
    for (int c = 0; c < machine->curve_count; c++)
        DPB_TRY(copy_curve(&machine->curves[c], &model->curves[c]));
    *network = (struct dpb_network){
            .name = machine->name,
            .ranks_per_node = machine->accelerators_per_node,
            .inside = {ns(machine, DPB_FIGURE_INSIDE_LATENCY, 3e-6),
                       value(machine, DPB_FIGURE_INSIDE_RATE, 0),
                       value(machine, DPB_FIGURE_INSIDE_SHARE, 0.8),
                       ns(machine, DPB_FIGURE_INSIDE_FLOOR, 45e-6)},
            .between = {ns(machine, DPB_FIGURE_NIC_LATENCY, 15e-6),
                        value(machine, DPB_FIGURE_NIC_RATE, 0),
                        value(machine, DPB_FIGURE_NIC_SHARE, 0.73),
                        ns(machine, DPB_FIGURE_NIC_FLOOR, 100e-6),
                        (int)value(machine, DPB_FIGURE_NICS, 0)},
            .nvls_from_ranks = (int)value(machine, DPB_FIGURE_NVLS_RANKS, 0),
            .nvls_share = value(machine, DPB_FIGURE_NVLS_SHARE, 0),
            .compute_slowdown_inside = value(machine, DPB_FIGURE_SLOW_INSIDE, 0),
            .compute_slowdown_between = value(machine, DPB_FIGURE_SLOW_BETWEEN, 0),
            .slowdown = value(machine, DPB_FIGURE_SLOW_COLLECTIVE, 0),
            .curves = model->curves,
            .curve_count = machine->curve_count,
    };
    return dpb_network_check(network);
}

/* ---- all of it ---- */

dpb_status dpb_machine_model_init(const struct dpb_machine *machine, bool tf32,
                                  struct dpb_machine_model *model)
{
    struct dpb_machine_model made = {
            .noise = {.rank_sd = value(machine, DPB_FIGURE_NOISE_RANK, 0),
                      .common_sd = value(machine, DPB_FIGURE_NOISE_COMMON, 0),
                      .tail_share = value(machine, DPB_FIGURE_TAIL_SHARE, 0),
                      .tail_mean = value(machine, DPB_FIGURE_TAIL_MEAN, 0)},
            .launch_ns = ns(machine, DPB_FIGURE_LAUNCH, 0),
            .is_cpu = machine->is_cpu,
    };
    dpb_status st;

    rates_of(machine, tf32, &made.rates);
    DPB_TRY(dpb_sim_rates_check(&made.rates));
    st = network_of(machine, &made);
    if (st < 0)
        dpb_machine_model_release(&made);
    else
        *model = made;
    return st;
}

void dpb_machine_model_release(struct dpb_machine_model *model)
{
    free(model->curves);
    *model = (struct dpb_machine_model){0};
}

/* ---- the network alone ---- */

struct opened {
    struct dpb_machine machine;
    struct dpb_machine_model model;
};

static void networks_close(void *machine)
{
    struct opened *opened = machine;

    dpb_machine_model_release(&opened->model);
    dpb_machine_release(&opened->machine);
    free(opened);
}

static dpb_status networks_open(const char *name, const char *set, void **machine,
                                const struct dpb_network **network)
{
    struct opened *opened = calloc(1, sizeof(*opened));
    dpb_status st;

    if (!opened)
        return DPB_ERR_NO_MEMORY;
    DPB_TRY_GOTO(st, dpb_machine_find(name, &opened->machine), failed);
    DPB_TRY_GOTO(st, dpb_machine_set_all(&opened->machine, set, "--set"), failed);
    DPB_TRY_GOTO(st, dpb_machine_model_init(&opened->machine, false, &opened->model), failed);
    *machine = opened;
    *network = &opened->model.network;
    return DPB_OK;
failed:
    networks_close(opened);
    return st;
}

const struct dpb_comm_bench_machines dpb_machine_networks = {networks_open, networks_close};

/* ---- what the simulated step asks ---- */

static dpb_status price(void *ctx, enum dpb_coll_kind kind, int64_t bytes, double *alone_ns,
                        double *compute_slowdown, double *slowdown)
{
    struct dpb_model_network *asked = ctx;
    struct dpb_network_time time;

    DPB_TRY(dpb_network_time(asked->network, kind, asked->ranks, (double)bytes, &time));
    *alone_ns = time.ns;
    *compute_slowdown = time.compute_slowdown;
    *slowdown = time.slowdown;
    asked->ns_of_origin[time.origin] += time.ns;
    asked->farthest = fmax(asked->farthest, time.by);
    asked->below_least = fmax(asked->below_least, time.below);
    return DPB_OK;
}

/* Small talk goes up and down a tree of messages between hosts. */
static double exchange_ns(void *ctx, int64_t bytes)
{
    const struct dpb_model_network *asked = ctx;
    const struct dpb_network *network = asked->network;
    const int nodes = (asked->ranks + network->ranks_per_node - 1) / network->ranks_per_node;
    const double rate = nodes > 1 ? network->between.bytes_per_s : network->inside.bytes_per_s;
    const double hop_ns = nodes > 1 ? network->between.latency_ns : network->inside.latency_ns;

    if (asked->ranks < 2)
        return 0;
    return 2 * ceil(log2(asked->ranks)) * hop_ns + 1e9 * (double)bytes * asked->ranks / rate;
}

struct dpb_sim_network dpb_model_network_services(struct dpb_model_network *network)
{
    return (struct dpb_sim_network){network, price, exchange_ns};
}

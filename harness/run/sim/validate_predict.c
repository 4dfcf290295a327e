/* Steps of published runs on virtual time. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "dpb_capacity.h"
#include "dpb_log.h"
#include "dpb_machine_model.h"
#include "dpb_optimizer.h"
#include "dpb_sim_step.h"
#include "validate.h"

const double validate_shares[VALIDATE_SHARES] = {0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.9};

#define STEPS          3 /* the first is left out: strategies plan anew after it */
#define ITERATIONS     4
#define TCP_LATENCY_NS 40e3

struct bench {
    const struct dpb_registry *registry;
    const struct validate_row *row;
    dpb_config *config;
    struct dpb_machine machine;
    struct dpb_machine_model model;
    struct dpb_schedule schedule;
    double wire_factor; /* bytes that travel, of those in fp32 */
    struct dpb_sim_network network;
};

/* ---- open ---- */

/* Thresholds count bytes as they travel; the plan counts fp32. */
static dpb_status open_config(struct bench *b)
{
    const struct validate_row *row = b->row;
    const bool is_ddp = strcmp(row->how.strategy, "ddp") == 0;
    const char *strategy =
            row->how.wants_mwms && row->gpus > row->per_node ? "mwms" : row->how.strategy;
    const int wide = b->wire_factor < 1 ? 2 : 1;
    char bucket[32];
    struct dpb_assignment list[4];
    size_t count = 0;

    list[count++] = (struct dpb_assignment){"strategy", strategy, "validate"};
    if (row->model->workload[0])
        list[count++] = (struct dpb_assignment){"workload", row->model->workload, "validate"};
    if (is_ddp) {
        snprintf(bucket, sizeof(bucket), "%dMiB",
                 wide * (row->how.bucket_mib > 0 ? row->how.bucket_mib : 25));
        list[count++] = (struct dpb_assignment){"bucket", bucket, "validate"};
        if (row->how.after_backward)
            list[count++] = (struct dpb_assignment){"overlap", "off", "validate"};
    } else if (strcmp(strategy, "horovod") == 0) {
        snprintf(bucket, sizeof(bucket), "%dMiB", 64 * wide);
        list[count++] = (struct dpb_assignment){"fusion-threshold", bucket, "validate"};
    }
    return dpb_config_new(b->registry->options, list, count, true, &b->config);
}

static dpb_status open_machine(struct bench *b)
{
    const struct validate_machine *told = &b->row->machine;
    struct dpb_network *network = &b->model.network;

    DPB_TRY(dpb_machine_find(told->name, &b->machine));
    DPB_TRY(dpb_machine_model_init(&b->machine, true, &b->model));
    if (told->per_node)
        network->ranks_per_node = told->per_node;
    if (told->nics) {
        network->between.nics = told->nics;
        network->between.bytes_per_s = told->nic_bytes_per_s;
    }
    if (told->link == VALIDATE_ETHERNET)
        network->between.latency_ns = TCP_LATENCY_NS;
    return DPB_OK;
}

static dpb_status open_schedule(struct bench *b)
{
    struct validate_model *model = b->row->model;
    const struct dpb_workload_ops *workload =
            model->workload[0] ? dpb_registry_workload(b->registry, model->workload) : NULL;
    const enum dpb_dtype precision =
            b->row->is_reduced && b->model.rates.flop_per_s[DPB_F16] > 0 ? DPB_F16 : DPB_F32;

    if (!workload)
        DPB_TRY(validate_model_network(model));
    return dpb_schedule_from_model(
            workload ? workload->model(dpb_config_struct(b->config, "workload")) : model->made,
            &b->model.rates, precision, 32, &b->schedule);
}

static void close_bench(struct bench *b)
{
    dpb_schedule_release(&b->schedule);
    dpb_machine_model_release(&b->model);
    dpb_machine_release(&b->machine);
    dpb_config_free(b->config);
}

static dpb_status open_bench(const struct dpb_registry *registry, const struct validate_row *row,
                             struct bench *b)
{
    dpb_status st;

    *b = (struct bench){
            .registry = registry,
            .row = row,
            .wire_factor = row->is_reduced && !row->how.wide_gradients ? 0.5 : 1,
    };
    DPB_TRY_GOTO(st, open_machine(b), failed);
    DPB_TRY_GOTO(st, open_config(b), failed);
    DPB_TRY_GOTO(st, open_schedule(b), failed);
    return DPB_OK;
failed:
    close_bench(b);
    return st;
}

/* ---- a step ---- */

static dpb_status price(void *ctx, enum dpb_coll_kind kind, int64_t bytes, double *alone_ns,
                        double *compute_slowdown, double *slowdown)
{
    struct bench *b = ctx;

    return b->network.price(b->network.ctx, kind, (int64_t)(b->wire_factor * (double)bytes),
                            alone_ns, compute_slowdown, slowdown);
}

static double exchange_ns(void *ctx, int64_t bytes)
{
    struct bench *b = ctx;

    return b->network.exchange_ns(b->network.ctx, bytes);
}

static struct dpb_optimizer_config optimizer_of(const struct validate_model *model)
{
    for (int k = 0; k < DPB_OPTIMIZER_COUNT; k++)
        if (strcmp(dpb_optimizer_text(k), model->optimizer) == 0)
            return dpb_optimizer_defaults(k);
    return dpb_optimizer_defaults(DPB_OPTIMIZER_SGD);
}

static dpb_status run_steps(dpb_sim_step *sim, double *step_ns)
{
    struct dpb_sim_step_times times;

    *step_ns = 0;
    for (int s = 0; s < STEPS; s++) {
        DPB_TRY(dpb_sim_step_run(sim, &times));
        if (s > 0)
            *step_ns += times.step_ns / (STEPS - 1);
    }
    return DPB_OK;
}

/* One micro-batch of `compute_ns` forward and backward, its gradients, and the update. */
static dpb_status step_of(struct bench *b, int ranks, double compute_ns, double *step_ns)
{
    struct dpb_model_network asked = {.network = &b->model.network, .ranks = ranks};
    const char *strategy = dpb_config_part(b->config, "strategy");
    const struct dpb_sim_step_config config = {
            .device_ops = b->registry->sim_device,
            .comm_ops = b->registry->sim_comm,
            .timeline = {.ranks = ranks, .seed = 1},
            .rates = &b->model.rates,
            .network = {b, price, exchange_ns},
            .schedule = &b->schedule,
            .strategy = dpb_registry_strategy(b->registry, strategy),
            .strategy_options = dpb_config_struct(b->config, "strategy"),
            .bucket_given = true,
            .ranks_per_node = ranks < b->model.network.ranks_per_node
                                      ? ranks
                                      : b->model.network.ranks_per_node,
            .is_gpu = true,
            .accumulate = 1,
            .optimizer = optimizer_of(b->row->model),
            .fused_optimizer = true,
    };
    dpb_sim_step *sim = NULL;
    dpb_status st;

    b->network = dpb_model_network_services(&asked);
    dpb_schedule_scale(&b->schedule, compute_ns);
    DPB_TRY(dpb_sim_step_open(&config, &sim));
    st = run_steps(sim, step_ns);
    dpb_sim_step_close(sim);
    return st;
}

/* Time of a micro-batch, of a step of `accumulate` of them of which the last is synchronised. */
static dpb_status per_micro_batch(struct bench *b, const struct validate_row *row,
                                  double compute_ns, double *ns)
{
    double step_ns;

    DPB_TRY(step_of(b, (int)row->gpus, compute_ns, &step_ns));
    *ns = (step_ns + (row->accumulate - 1) * compute_ns) / row->accumulate;
    return DPB_OK;
}

/* What compute takes, so that the base takes as long as its throughput says. */
static dpb_status find_compute(struct bench *b, const struct validate_row *base, double *compute_ns)
{
    const double published_ns = 1e9 * base->batch * base->gpus / base->throughput;

    *compute_ns = published_ns;
    for (int i = 0; i < ITERATIONS; i++) {
        double ns;

        DPB_TRY(per_micro_batch(b, base, *compute_ns, &ns));
        *compute_ns = fmax(*compute_ns + published_ns - ns, 0.05 * published_ns);
    }
    return DPB_OK;
}

/* ---- rows ---- */

static dpb_status simulate_base(struct bench *b, struct validate_row *base, int share)
{
    DPB_TRY(find_compute(b, base, &base->micro_ns[share]));
    return per_micro_batch(b, base, base->micro_ns[share], &base->step_ns[share]);
}

/* `row` by itself: with its base's compute. Shares make no difference inside a node. */
static dpb_status simulate_row(const struct dpb_registry *registry, struct validate_row *row,
                               const struct validate_row *base)
{
    struct bench b;
    dpb_status st = DPB_OK;

    DPB_TRY(open_bench(registry, row, &b));
    for (int s = 0; s < VALIDATE_SHARES && st == DPB_OK; s++) {
        if (s > 0 && !row->across && (!base || !base->across)) {
            row->step_ns[s] = row->step_ns[0];
            row->micro_ns[s] = row->micro_ns[0];
            continue;
        }
        b.model.network.between.share = validate_shares[s];
        if (!base) {
            st = simulate_base(&b, row, s);
        } else {
            row->micro_ns[s] = base->micro_ns[s];
            st = per_micro_batch(&b, row, row->micro_ns[s], &row->step_ns[s]);
        }
    }
    close_bench(&b);
    row->is_simulated = st == DPB_OK;
    return st;
}

static dpb_status place(struct validate_row *row)
{
    struct dpb_machine machine;

    DPB_TRY(dpb_machine_find(row->machine.name, &machine));
    row->per_node = row->machine.per_node ? row->machine.per_node : machine.accelerators_per_node;
    row->across = row->gpus > row->per_node;
    row->normal_max = row->gpus > 1 ? dpb_capacity_normal_max(row->gpus) : 0;
    dpb_machine_release(&machine);
    return DPB_OK;
}

dpb_status validate_simulate(const struct dpb_registry *registry, struct validate_table *table)
{
    for (size_t i = 0; i < table->count; i++) {
        struct validate_row *row = &table->row[i], *base = row->base;

        if (row->exclusion)
            continue;
        DPB_TRY(place(row));
        if (!base->is_simulated) {
            DPB_TRY(place(base));
            DPB_TRY(simulate_row(registry, base, NULL));
        }
        DPB_TRY(simulate_row(registry, row, base));
    }
    return DPB_OK;
}

/* ---- with constants ---- */

/* Between the shares that were simulated: straight in 1 / share, as times are. */
static double at_share(const double ns[VALIDATE_SHARES], double share)
{
    int s = 1;

    while (s < VALIDATE_SHARES - 1 && validate_shares[s] < share)
        s++;
    const double left = 1 / validate_shares[s - 1], right = 1 / validate_shares[s];
    const double part = fmin(fmax((1 / share - left) / (right - left), 0), 1);
    return ns[s - 1] + part * (ns[s] - ns[s - 1]);
}

/* Of a micro-batch, with what simulation does not know of: stragglers, the host, and what a step
 * with others costs at least. These come once per step of `accumulate` micro-batches. */
static double micro_batch_ns(const struct validate_row *row, const struct validate_constants *with)
{
    const double *c = with->value;
    const double share = c[row->machine.link == VALIDATE_ETHERNET ? VALIDATE_ETHERNET_SHARE
                                                                  : VALIDATE_RDMA_SHARE];
    const double ns = at_share(row->step_ns, share), micro_ns = at_share(row->micro_ns, share);
    const double sharing = 1 - 1 / fmin(row->gpus, row->per_node);
    const double host = c[row->is_reduced ? VALIDATE_HOST_REDUCED : VALIDATE_HOST_FULL] +
                        (row->is_stored ? c[VALIDATE_HOST_STORED] : 0);
    const double late = c[VALIDATE_STRAGGLER] * sqrt(row->accumulate) * row->normal_max;

    if (row->gpus < 2)
        return ns;
    return ns + (micro_ns * (host * sharing + late) + 1e6 * c[VALIDATE_STEP_MS]) / row->accumulate;
}

double validate_efficiency(const struct validate_row *row, const struct validate_constants *with)
{
    return micro_batch_ns(row->base, with) / micro_batch_ns(row, with);
}

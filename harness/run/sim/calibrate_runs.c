/* calibrate_runs.c: training steps as rates of compute, noise and contention; and each cell's step
 * time predicted from the other cells. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calibrate_private.h"
#include "dpb_experiment.h"
#include "dpb_link_model.h"
#include "dpb_log.h"
#include "dpb_machine_model.h"
#include "dpb_memory.h"
#include "dpb_run_folder.h"
#include "dpb_stats.h"

#define NOTHING_LEFT_OUT SIZE_MAX

/* One record that counts. */
struct item {
    const dpb_json *record;
    const dpb_config *config;
    const struct dpb_experiment *e;
    const struct dpb_model *model;
    const char *run;
    size_t cell;                         /* equal for repeats of one cell of one run */
    double step_ns, compute_ns, data_ns; /* compute: both passes of a micro-batch */
    bool emulated;
};

struct calibrate_items {
    struct item *items;
    size_t count, cells;
};

/* What cells say; NAN: nothing does. */
struct estimate {
    double flop_per_s, bytes_per_s;
    double compute_ns; /* of the cell that is asked about: what others of its kind took */
    double data_ns;
    double rank_sd, common_sd;
    bool is_split; /* noise: into the two */
    double slow_inside, slow_collective;
    size_t rate_cells, noise_cells, pairs, collective_pairs;
};

/* ---- the records ---- */

static double real_at(const dpb_json *record, const char *path)
{
    return dpb_json_as_real(dpb_json_path(record, path), NAN);
}

static const char *text_at(const dpb_json *record, const char *path)
{
    return dpb_json_as_string(dpb_json_path(record, path), "");
}

/* The samples as doubles; caller frees. NULL without memory. */
static double *samples_of(const dpb_json *record, size_t *count)
{
    const dpb_json *list = dpb_json_get(record, "samples_step_ns"), *value;
    double *samples = calloc(dpb_json_size(list) + 1, sizeof(*samples));
    dpb_json_walk walk = {0};

    *count = 0;
    while (samples && (value = dpb_json_next(list, &walk, NULL)))
        samples[(*count)++] = dpb_json_as_real(value, 0);
    return samples;
}

static double median_step(const dpb_json *record)
{
    size_t count;
    double *samples = samples_of(record, &count);
    const double median = samples && count > 0 ? dpb_stats_median(samples, count) : NAN;

    free(samples);
    return median;
}

static bool take(const struct calibrating *c, const struct dpb_plan *plan, const char *run,
                 const dpb_json *record, struct item *item)
{
    const int64_t cell = dpb_json_as_int(dpb_json_get(record, "cell"), -1);

    if (strcmp(text_at(record, "status"), "ok") != 0 || cell < 0 ||
        (size_t)cell >= plan->cell_count ||
        dpb_json_as_bool(dpb_json_get(record, "simulated"), false))
        return false;
    const dpb_config *config = plan->cells[cell].config;
    const struct dpb_experiment *e = dpb_config_struct(config, "experiment");
    const struct dpb_workload_ops *workload =
            dpb_registry_workload(c->config->registry, e->workload);
    if (!workload || e->precision != DPB_F32)
        return false;
    *item = (struct item){
            .record = record,
            .config = config,
            .e = e,
            .model = workload->model(dpb_config_struct(config, "workload")),
            .run = run,
            .cell = (size_t)cell,
            .step_ns = median_step(record),
            .compute_ns =
                    (real_at(record, "phases/forward_ns") + real_at(record, "phases/backward_ns")) /
                    (double)e->accumulate,
            .data_ns = real_at(record, "phases/data_ns"),
            .emulated = dpb_json_as_bool(dpb_json_get(record, "emulated"), false),
    };
    return item->compute_ns > 0 && item->step_ns > 0;
}

/* A rank is the profile's accelerator: it has as many threads in all records, those of the record
 * with the most ranks. */
static void keep_threads(struct calibrating *c, struct calibrate_items *items)
{
    const struct item *most = items->items;
    size_t kept = 0;

    for (size_t i = 1; i < items->count; i++)
        if (items->items[i].e->ranks > most->e->ranks)
            most = &items->items[i];
    const int64_t threads = items->count > 0 ? most->e->threads_per_rank : 1;
    for (size_t i = 0; i < items->count; i++)
        if (items->items[i].e->threads_per_rank == threads)
            items->items[kept++] = items->items[i];
    if (kept < items->count)
        calibrate_left_out(c, "%zu records of steps whose ranks do not have %lld thread%s",
                           items->count - kept, (long long)threads, threads == 1 ? "" : "s");
    items->count = kept;
}

/* Records of all runs, those of one run after the other. */
static dpb_status make_items(struct calibrating *c, struct calibrate_items *items)
{
    size_t at = 0, unused = 0;

    items->items = calloc(c->records.count + 1, sizeof(*items->items));
    if (!items->items)
        return DPB_ERR_NO_MEMORY;
    for (size_t r = 0; r < c->config->run_count; r++) {
        const size_t first_cell = items->cells;

        if (at >= c->records.count)
            break;
        const char *run = text_at(c->records.items[at], "run_id");
        for (; at < c->records.count && strcmp(text_at(c->records.items[at], "run_id"), run) == 0;
             at++) {
            struct item *item = &items->items[items->count];

            if (!take(c, &c->plans[r], run, c->records.items[at], item)) {
                unused++;
                continue;
            }
            item->cell += first_cell;
            items->count++;
        }
        items->cells = first_cell + c->plans[r].cell_count;
    }
    if (unused > 0)
        calibrate_left_out(c, "%zu records of steps that are not ok, not in fp32, or simulated",
                           unused);
    keep_threads(c, items);
    return DPB_OK;
}

/* ---- a cell on virtual time ---- */

/* The network of a cell: this machine's, or the link that it emulated. */
struct cell_network {
    struct dpb_model_network ours; /* without a network: nothing takes time */
    struct dpb_algorithm_setup setup;
    bool is_emulated;
};

static dpb_status price(void *ctx, enum dpb_coll_kind kind, int64_t bytes, double *alone_ns,
                        double *compute_slowdown, double *slowdown)
{
    struct cell_network *network = ctx;

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
    struct cell_network *network = ctx;

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

static dpb_status simulate(const struct calibrating *c, const struct item *item,
                           struct cell_network *network, const struct dpb_sim_rates *rates,
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

/* The rate at which the simulated updates of parameters take as long as was measured: they only
 * read and write. */
static dpb_status update_rate(const struct calibrating *c, const struct item *item,
                              double bytes_per_s, double *rate)
{
    const struct dpb_sim_rates rates = {.flop_per_s = {[DPB_F32] = 1e17},
                                        .bytes_per_s = bytes_per_s};
    const double measured_ns = real_at(item->record, "phases/optimizer_ns");
    struct cell_network network = {.is_emulated = false};
    struct dpb_sim_step_times times;
    struct dpb_schedule schedule;
    dpb_status st;

    *rate = NAN;
    DPB_TRY(dpb_schedule_from_model(item->model, &rates, DPB_F32, item->e->batch_per_rank,
                                    &schedule));
    st = simulate(c, item, &network, &rates, &schedule, &times);
    dpb_schedule_release(&schedule);
    if (st >= 0 && measured_ns > 0 && times.optimizer_ns > 0)
        *rate = bytes_per_s * times.optimizer_ns / measured_ns;
    return st;
}

/* ---- rates of compute ---- */

static double roofline_ns(const struct item *item, double flop_per_s, double bytes_per_s)
{
    const struct dpb_sim_rates rates = {.flop_per_s = {[DPB_F32] = flop_per_s},
                                        .bytes_per_s = bytes_per_s};
    struct dpb_schedule schedule;
    double ns;

    if (dpb_schedule_from_model(item->model, &rates, DPB_F32, item->e->batch_per_rank, &schedule) <
        0)
        return NAN;
    ns = dpb_schedule_forward_ns(&schedule) + dpb_schedule_backward_ns(&schedule);
    dpb_schedule_release(&schedule);
    return ns;
}

/* Caches move bytes faster than memory does: the rate at which bytes are at most 0.7 of the time.
 */
static double bytes_rate(const struct item *item, double loop_bytes_per_s)
{
    double rate = loop_bytes_per_s;

    while (rate < 1e13 && roofline_ns(item, 1e17, rate) > 0.7 * item->compute_ns)
        rate *= 1.1;
    return rate;
}

/* The rate with which the roofline takes as long as was measured. */
static double flop_rate(const struct item *item, double bytes_per_s)
{
    double low = 1e6, high = 1e17;

    for (int i = 0; i < 200 && high / low > 1 + 1e-9; i++) {
        const double middle = sqrt(low * high);

        if (roofline_ns(item, middle, bytes_per_s) > item->compute_ns)
            low = middle;
        else
            high = middle;
    }
    return sqrt(low * high);
}

/* Nothing else runs beside the passes of one rank; next best are cells that do not overlap. */
static int disturbance(const struct item *item)
{
    if (item->e->ranks == 1)
        return 0;
    return dpb_json_as_bool(dpb_json_path(item->record, "config/overlap"), true) ? 2 : 1;
}

static bool is_alike(const struct item *a, const struct item *b)
{
    return strcmp(text_at(a->record, "compute_series"), text_at(b->record, "compute_series")) == 0;
}

static int least_disturbance(const struct calibrate_items *items, size_t without)
{
    int least = 3;

    for (size_t i = 0; i < items->count; i++)
        if (items->items[i].cell != without && disturbance(&items->items[i]) < least)
            least = disturbance(&items->items[i]);
    return least;
}

/* Parameters and their gradients may lie in caches too; `rates` is room for one per item. */
static dpb_status raise_to_updates(const struct calibrating *c, const struct calibrate_items *items,
                                   size_t without, double *rates, struct estimate *estimate)
{
    const int least = least_disturbance(items, without);
    size_t count = 0;

    for (size_t i = 0; i < items->count; i++) {
        if (items->items[i].cell == without || disturbance(&items->items[i]) != least)
            continue;
        DPB_TRY(update_rate(c, &items->items[i], estimate->bytes_per_s, &rates[count]));
        count += !isnan(rates[count]);
    }
    if (count > 0)
        estimate->bytes_per_s =
                fmin(1e13, fmax(estimate->bytes_per_s, dpb_stats_median(rates, count)));
    return DPB_OK;
}

static dpb_status estimate_rates(const struct calibrating *c, const struct calibrate_items *items,
                                 size_t without, struct estimate *estimate)
{
    const int least = least_disturbance(items, without);
    const double loop = dpb_machine_value(&c->machine, DPB_FIGURE_MEMORY_RATE, 10e9);
    double *rates = calloc(items->count + 1, sizeof(*rates));

    if (!rates)
        return DPB_ERR_NO_MEMORY;
    estimate->bytes_per_s = c->loop_bytes_per_s > 0 ? c->loop_bytes_per_s : loop;
    const dpb_status st = raise_to_updates(c, items, without, rates, estimate);
    if (st < 0) {
        free(rates);
        return st;
    }
    for (size_t i = 0; i < items->count; i++)
        if (items->items[i].cell != without && disturbance(&items->items[i]) == least)
            estimate->bytes_per_s = bytes_rate(&items->items[i], estimate->bytes_per_s);
    for (size_t i = 0; i < items->count; i++)
        if (items->items[i].cell != without && disturbance(&items->items[i]) == least)
            rates[estimate->rate_cells++] = flop_rate(&items->items[i], estimate->bytes_per_s);
    if (estimate->rate_cells > 0)
        estimate->flop_per_s = dpb_stats_median(rates, estimate->rate_cells);
    free(rates);
    return DPB_OK;
}

/* Of the cells that compute the same as `asked`, those that nothing disturbs. */
static dpb_status estimate_passes(const struct calibrate_items *items, const struct item *asked,
                                  struct estimate *estimate)
{
    double *passes = calloc(2 * items->count + 1, sizeof(*passes)), *data = passes + items->count;

    if (!passes)
        return DPB_ERR_NO_MEMORY;
    for (int level = 0; level < 3 && isnan(estimate->compute_ns); level++) {
        size_t count = 0;

        for (size_t i = 0; i < items->count; i++) {
            const struct item *item = &items->items[i];

            if (item->cell == asked->cell || !is_alike(item, asked) || disturbance(item) != level)
                continue;
            passes[count] = item->compute_ns;
            data[count++] = item->data_ns;
        }
        if (count > 0) {
            estimate->compute_ns = dpb_stats_median(passes, count);
            estimate->data_ns = dpb_stats_median(data, count);
        }
    }
    free(passes);
    return DPB_OK;
}

/* ---- noise ---- */

/* By Simpson's rule. */
double calibrate_maximum_variance(int n)
{
    const int steps = 4000;
    double mean = 0, square = 0;

    for (int i = 0; i <= steps; i++) {
        const double x = -8 + 16.0 * i / steps;
        const double weight = i == 0 || i == steps ? 1 : i % 2 ? 4 : 2;
        const double density = n * exp(-x * x / 2) / sqrt(2 * M_PI) *
                               pow(0.5 * erfc(-x / sqrt(2)), n - 1) * weight * 16.0 / steps / 3;

        mean += x * density;
        square += x * x * density;
    }
    return square - mean * mean;
}

/* Share of the median step, by the median deviation, which rare delays do not move. */
static double variance_of_steps(const struct item *item)
{
    size_t count;
    double *samples = samples_of(item->record, &count), sd = NAN;

    if (samples && count >= 5)
        sd = 1.4826 * dpb_stats_mad(samples, count) / item->step_ns;
    free(samples);
    return sd * sd;
}

/* Steps of one rank vary by both parts, r^2 + c^2; the last of n ranks by v_n r^2 + c^2. */
static void estimate_noise(const struct calibrate_items *items, struct estimate *estimate)
{
    double rank = 0, common = 0, whole = 0;
    size_t splits = 0, wholes = 0;

    for (size_t i = 0; i < items->count; i++) {
        const struct item *one = &items->items[i];
        const double of_one = variance_of_steps(one);

        if (isnan(of_one))
            continue;
        whole += of_one / (one->e->ranks == 1 ? 1 : calibrate_maximum_variance((int)one->e->ranks));
        wholes++;
        for (size_t j = 0; j < items->count && one->e->ranks == 1; j++) {
            const struct item *many = &items->items[j];
            const double of_many = variance_of_steps(many);

            if (many->e->ranks == 1 || !is_alike(one, many) || many->emulated || isnan(of_many))
                continue;
            const double v = calibrate_maximum_variance((int)many->e->ranks);
            const double local = fmin(of_one, fmax(0, (of_one - of_many) / (1 - v)));
            rank += local;
            common += of_one - local;
            splits++;
        }
    }
    estimate->is_split = splits > 0;
    estimate->noise_cells = splits > 0 ? splits : wholes;
    if (splits > 0) {
        estimate->rank_sd = sqrt(rank / (double)splits);
        estimate->common_sd = sqrt(common / (double)splits);
    } else if (wholes > 0) {
        estimate->rank_sd = sqrt(whole / (double)wholes);
    }
}

/* ---- contention ---- */

/* The same but for overlap. */
static bool is_pair(const struct item *on, const struct item *off)
{
    struct dpb_str text = {0};
    const char *series = text_at(on->record, "series"), *at = strstr(series, "overlap=on");
    bool same = false;

    if (at && on->e->ranks == off->e->ranks && on->e->ranks > 1) {
        dpb_str_append_bytes(&text, series, (size_t)(at - series));
        dpb_str_appendf(&text, "overlap=off%s", at + strlen("overlap=on"));
        same = !text.failed && strcmp(text.text, text_at(off->record, "series")) == 0;
    }
    dpb_str_release(&text);
    return same;
}

double calibrate_slower_by(double lost, double both)
{
    if (lost <= 0)
        return 0;
    return lost < 0.9 * both ? lost / (both - lost) : NAN;
}

static void keep_finite(double value, double *values, size_t *count)
{
    if (isfinite(value))
        values[(*count)++] = value;
}

static dpb_status estimate_contention(const struct calibrate_items *items, size_t without,
                                      struct estimate *estimate)
{
    const size_t most = items->count * items->count;
    double *compute = calloc(2 * most + 1, sizeof(*compute)), *collective = compute + most;

    if (!compute)
        return DPB_ERR_NO_MEMORY;
    for (size_t i = 0; i < most; i++) {
        const struct item *on = &items->items[i / items->count];
        const struct item *off = &items->items[i % items->count];
        const double steps = real_at(on->record, "overlap/rank_steps");
        const double both = real_at(on->record, "overlap/overlap_ns") / steps;
        const double comm = real_at(on->record, "overlap/comm_ns") / steps -
                            real_at(off->record, "overlap/comm_ns") /
                                    real_at(off->record, "overlap/rank_steps");

        if (on->cell == without || off->cell == without || on->emulated || !is_pair(on, off) ||
            !(both > 0) || isnan(comm))
            continue;
        const double passes = (on->compute_ns - off->compute_ns) * (double)on->e->accumulate;
        keep_finite(calibrate_slower_by(passes, both), compute, &estimate->pairs);
        keep_finite(calibrate_slower_by(comm, both), collective, &estimate->collective_pairs);
    }
    if (estimate->pairs > 0)
        estimate->slow_inside = dpb_stats_median(compute, estimate->pairs);
    if (estimate->collective_pairs > 0)
        estimate->slow_collective = dpb_stats_median(collective, estimate->collective_pairs);
    free(compute);
    return DPB_OK;
}

/* ---- figures ---- */

static void put_rates(struct calibrating *c, const struct estimate *estimate, const char *source)
{
    if (isnan(estimate->flop_per_s))
        return;
    calibrate_figure(c, DPB_FIGURE_FP32, estimate->flop_per_s, false, NULL,
                     "sustained in both passes, %zu record%s, so that the roofline of the layers "
                     "takes as long; %s",
                     estimate->rate_cells, estimate->rate_cells == 1 ? "" : "s", source);
    calibrate_figure(c, DPB_FIGURE_COMPUTE_SHARE, 1, false, NULL,
                     "the rate is a sustained one, and no peak");
    if (!c->is_here)
        calibrate_figure(
                c, DPB_FIGURE_MEMORY_RATE, estimate->bytes_per_s, true, NULL,
                "the records are of another machine; at least what updates and layers of %s need",
                source);
    else if (estimate->bytes_per_s > 1.0001 * c->loop_bytes_per_s)
        calibrate_figure(c, DPB_FIGURE_MEMORY_RATE, estimate->bytes_per_s, false, NULL,
                         "what updates and layers of %s need, whose arrays lie in caches; a triad "
                         "over 64 MiB reaches %.3g GB/s",
                         source, c->loop_bytes_per_s / 1e9);
}

static void put_noise(struct calibrating *c, const struct estimate *estimate, const char *source)
{
    if (isnan(estimate->rank_sd)) {
        calibrate_left_out(c, "noise: no record of 5 steps");
        return;
    }
    calibrate_figure(c, DPB_FIGURE_NOISE_RANK, fmin(1, estimate->rank_sd), false, NULL,
                     "%s; median deviation of steps, %zu %s", source, estimate->noise_cells,
                     estimate->is_split ? "pairs of one rank and several" : "records");
    if (estimate->is_split)
        calibrate_figure(c, DPB_FIGURE_NOISE_COMMON, fmin(1, estimate->common_sd), false, NULL,
                         "%s; the rest of one rank's deviation", source);
    else
        calibrate_left_out(c, "noise.common: no cells of one rank and of several without emulated "
                              "link; noise.rank has all of it");
    calibrate_left_out(c, "noise.tail-share, noise.tail-mean: rare delays are not told from noise");
}

static void put_slowdown(struct calibrating *c, enum dpb_figure_id id, double value, size_t pairs,
                         const char *what, const char *source)
{
    if (pairs > 0)
        calibrate_figure(c, id, value, false, NULL, "%s; %s with and without overlap, %zu pair%s",
                         source, what, pairs, pairs == 1 ? "" : "s");
    else
        calibrate_left_out(c,
                           "%s: no pair of cells that differ in --overlap alone, of more than one "
                           "rank, without emulated link, traced, whose %s lost less time than they "
                           "shared",
                           dpb_figure_key(id), what);
}

static void put_contention(struct calibrating *c, const struct estimate *estimate,
                           const char *source)
{
    put_slowdown(c, DPB_FIGURE_SLOW_INSIDE, estimate->slow_inside, estimate->pairs, "passes",
                 source);
    put_slowdown(c, DPB_FIGURE_SLOW_COLLECTIVE, estimate->slow_collective,
                 estimate->collective_pairs, "collectives", source);
}

static dpb_status estimate_all(const struct calibrating *c, const struct calibrate_items *items,
                               size_t without, struct estimate *estimate)
{
    *estimate = (struct estimate){.flop_per_s = NAN,
                                  .compute_ns = NAN,
                                  .data_ns = NAN,
                                  .rank_sd = NAN,
                                  .common_sd = NAN,
                                  .slow_inside = NAN,
                                  .slow_collective = NAN};
    DPB_TRY(estimate_rates(c, items, without, estimate));
    return estimate_contention(items, without, estimate);
}

static void source_of(const struct calibrating *c, struct dpb_str *source)
{
    dpb_str_append(source, "dpbench records of");
    for (size_t i = 0; i < c->config->run_count; i++)
        dpb_str_appendf(source, "%s %s", i > 0 ? "," : "", c->config->runs[i]);
    dpb_str_appendf(source, ", %.10s", text_at(c->records.items[0], "time_utc"));
}

static dpb_status read_plans(struct calibrating *c)
{
    c->plans = calloc(c->config->run_count + 1, sizeof(*c->plans));
    if (!c->plans)
        return DPB_ERR_NO_MEMORY;
    for (size_t i = 0; i < c->config->run_count; i++)
        DPB_TRY(dpb_run_plan_read(c->config->registry, c->config->runs[i], &c->plans[i]));
    return DPB_OK;
}

dpb_status calibrate_runs(struct calibrating *c)
{
    struct estimate estimate;
    struct dpb_str source = {0};

    c->items = calloc(1, sizeof(*c->items));
    if (!c->items)
        return DPB_ERR_NO_MEMORY;
    if (c->records.count == 0)
        return DPB_OK;
    DPB_TRY(read_plans(c));
    DPB_TRY(make_items(c, c->items));
    DPB_TRY(estimate_all(c, c->items, NOTHING_LEFT_OUT, &estimate));
    estimate_noise(c->items, &estimate);
    source_of(c, &source);
    put_rates(c, &estimate, source.text);
    put_noise(c, &estimate, source.text);
    put_contention(c, &estimate, source.text);
    dpb_str_release(&source);
    return DPB_OK;
}

void calibrate_runs_release(struct calibrating *c)
{
    for (size_t i = 0; c->plans && i < c->config->run_count; i++)
        dpb_plan_release(&c->plans[i]);
    free(c->plans);
    if (c->items)
        free(c->items->items);
    free(c->items);
}

/* ---- each cell from the others ---- */

static dpb_status predict(const struct calibrating *c, const struct dpb_machine_model *model,
                          const struct item *item, const struct estimate *estimate, double *step_ns)
{
    struct dpb_network network = model->network;
    struct cell_network cell = {.ours = {.network = &network, .ranks = (int)item->e->ranks},
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
    st = simulate(c, item, &cell, &rates, &schedule, &times);
    *step_ns = times.step_ns;
    dpb_schedule_release(&schedule);
    return st;
}

/* The cell's median over its repeats. */
static double measured_of(const struct calibrate_items *items, size_t cell, const struct item **any)
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

static dpb_json *step_json(const struct item *item, double measured_ns, double predicted_ns)
{
    dpb_json *json = dpb_json_object();
    char label[DPB_OPTION_TEXT_BYTES];

    snprintf(label, sizeof(label), "%s", text_at(item->record, "label"));
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
    const struct item *item = NULL;
    const double measured_ns = measured_of(items, cell, &item);
    struct estimate estimate;
    double predicted_ns;

    if (!item || isnan(measured_ns))
        return DPB_OK;
    DPB_TRY(estimate_all(c, items, cell, &estimate));
    DPB_TRY(estimate_passes(items, item, &estimate));
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

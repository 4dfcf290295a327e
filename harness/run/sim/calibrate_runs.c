/* calibrate_runs.c: training steps as figures of a machine. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "calibrate_items.h"
#include "dpb_run_folder.h"
#include "dpb_stats.h"

/* ---- the records ---- */

double calibrate_real_at(const dpb_json *record, const char *path)
{
    return dpb_json_as_real(dpb_json_path(record, path), NAN);
}

const char *calibrate_text_at(const dpb_json *record, const char *path)
{
    return dpb_json_as_string(dpb_json_path(record, path), "");
}

/* The samples as doubles; caller frees. NULL without memory. */
double *calibrate_samples(const dpb_json *record, size_t *count)
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
    double *samples = calibrate_samples(record, &count);
    const double median = samples && count > 0 ? dpb_stats_median(samples, count) : NAN;

    free(samples);
    return median;
}

static bool take(const struct calibrating *c, const struct dpb_plan *plan, const char *run,
                 const dpb_json *record, struct calibrate_item *item)
{
    const int64_t cell = dpb_json_as_int(dpb_json_get(record, "cell"), -1);

    if (strcmp(calibrate_text_at(record, "status"), "ok") != 0 || cell < 0 ||
        (size_t)cell >= plan->cell_count ||
        dpb_json_as_bool(dpb_json_get(record, "simulated"), false))
        return false;
    const dpb_config *config = plan->cells[cell].config;
    const struct dpb_experiment *e = dpb_config_struct(config, "experiment");
    const struct dpb_workload_ops *workload =
            dpb_registry_workload(c->config->registry, e->workload);
    if (!workload || e->precision != DPB_F32)
        return false;
    *item = (struct calibrate_item){
            .record = record,
            .config = config,
            .e = e,
            .model = workload->model(dpb_config_struct(config, "workload")),
            .run = run,
            .cell = (size_t)cell,
            .step_ns = median_step(record),
            .compute_ns = (calibrate_real_at(record, "phases/forward_ns") +
                           calibrate_real_at(record, "phases/backward_ns")) /
                          (double)e->accumulate,
            .data_ns = calibrate_real_at(record, "phases/data_ns"),
            .emulated = dpb_json_as_bool(dpb_json_get(record, "emulated"), false),
    };
    return item->compute_ns > 0 && item->step_ns > 0;
}

/* A rank is the profile's accelerator: it has as many threads in all records, those of the record
 * with the most ranks. */
static void keep_threads(struct calibrating *c, struct calibrate_items *items)
{
    const struct calibrate_item *most = items->items;
    size_t kept = 0;

    for (size_t i = 1; i < items->count; i++)
        if (items->items[i].e->ranks > most->e->ranks)
            most = &items->items[i];
    const int64_t threads = items->count > 0 ? most->e->threads_per_rank : 1;
    for (size_t i = 0; i < items->count; i++)
        if (items->items[i].e->threads_per_rank == threads)
            items->items[kept++] = items->items[i];
    if (kept < items->count)
        calibrate_left_out(c, "%zu record%s of steps whose ranks do not have %lld thread%s",
                           items->count - kept, items->count - kept == 1 ? "" : "s",
                           (long long)threads, threads == 1 ? "" : "s");
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
        const char *run = calibrate_text_at(c->records.items[at], "run_id");
        for (; at < c->records.count &&
               strcmp(calibrate_text_at(c->records.items[at], "run_id"), run) == 0;
             at++) {
            struct calibrate_item *item = &items->items[items->count];

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
        calibrate_left_out(c, "%zu record%s of steps: not ok, not in fp32, or simulated", unused,
                           unused == 1 ? "" : "s");
    keep_threads(c, items);
    return DPB_OK;
}

/* ---- figures ---- */

static void put_rates(struct calibrating *c, const struct calibrate_estimate *estimate,
                      const char *source)
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

static void put_noise(struct calibrating *c, const struct calibrate_estimate *estimate,
                      const char *source)
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

static void put_contention(struct calibrating *c, const struct calibrate_estimate *estimate,
                           const char *source)
{
    put_slowdown(c, DPB_FIGURE_SLOW_INSIDE, estimate->slow_inside, estimate->pairs, "passes",
                 source);
    put_slowdown(c, DPB_FIGURE_SLOW_COLLECTIVE, estimate->slow_collective,
                 estimate->collective_pairs, "collectives", source);
}

static void source_of(const struct calibrating *c, struct dpb_str *source)
{
    dpb_str_append(source, "dpbench records of");
    for (size_t i = 0; i < c->config->run_count; i++)
        dpb_str_appendf(source, "%s %s", i > 0 ? "," : "", c->config->runs[i]);
    dpb_str_appendf(source, ", %.10s", calibrate_text_at(c->records.items[0], "time_utc"));
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
    struct calibrate_estimate estimate;
    struct dpb_str source = {0};

    c->items = calloc(1, sizeof(*c->items));
    if (!c->items)
        return DPB_ERR_NO_MEMORY;
    if (c->records.count == 0)
        return DPB_OK;
    DPB_TRY(read_plans(c));
    DPB_TRY(make_items(c, c->items));
    DPB_TRY(calibrate_estimate_all(c, c->items, CALIBRATE_ALL_CELLS, &estimate));
    calibrate_estimate_noise(c->items, &estimate);
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

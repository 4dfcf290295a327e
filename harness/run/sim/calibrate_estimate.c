/* calibrate_estimate.c: rates of compute, noise and contention, from cells. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "calibrate_items.h"
#include "dpb_stats.h"

/* ---- rates of compute ---- */

/* The rate at which the simulated updates of parameters take as long as was measured: they only
 * read and write. */
static dpb_status update_rate(const struct calibrating *c, const struct calibrate_item *item,
                              double bytes_per_s, double *rate)
{
    const struct dpb_sim_rates rates = {.flop_per_s = {[DPB_F32] = 1e17},
                                        .bytes_per_s = bytes_per_s};
    const double measured_ns = calibrate_real_at(item->record, "phases/optimizer_ns");
    struct calibrate_network network = {.is_emulated = false};
    struct dpb_sim_step_times times;
    struct dpb_schedule schedule;
    dpb_status st;

    *rate = NAN;
    DPB_TRY(dpb_schedule_from_model(item->model, &rates, DPB_F32, item->e->batch_per_rank,
                                    &schedule));
    st = calibrate_simulate(c, item, &network, &rates, &schedule, &times);
    dpb_schedule_release(&schedule);
    if (st >= 0 && measured_ns > 0 && times.optimizer_ns > 0)
        *rate = bytes_per_s * times.optimizer_ns / measured_ns;
    return st;
}

static double roofline_ns(const struct calibrate_item *item, double flop_per_s, double bytes_per_s)
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
static double bytes_rate(const struct calibrate_item *item, double loop_bytes_per_s)
{
    double rate = loop_bytes_per_s;

    while (rate < 1e13 && roofline_ns(item, 1e17, rate) > 0.7 * item->compute_ns)
        rate *= 1.1;
    return rate;
}

/* The rate with which the roofline takes as long as was measured. */
static double flop_rate(const struct calibrate_item *item, double bytes_per_s)
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
static int disturbance(const struct calibrate_item *item)
{
    if (item->e->ranks == 1)
        return 0;
    return dpb_json_as_bool(dpb_json_path(item->record, "config/overlap"), true) ? 2 : 1;
}

static bool is_alike(const struct calibrate_item *a, const struct calibrate_item *b)
{
    return strcmp(calibrate_text_at(a->record, "compute_series"),
                  calibrate_text_at(b->record, "compute_series")) == 0;
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
                                   size_t without, double *rates,
                                   struct calibrate_estimate *estimate)
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
                                 size_t without, struct calibrate_estimate *estimate)
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
dpb_status calibrate_estimate_passes(const struct calibrate_items *items,
                                     const struct calibrate_item *asked,
                                     struct calibrate_estimate *estimate)
{
    double *passes = calloc(2 * items->count + 1, sizeof(*passes)), *data = passes + items->count;

    if (!passes)
        return DPB_ERR_NO_MEMORY;
    for (int level = 0; level < 3 && isnan(estimate->compute_ns); level++) {
        size_t count = 0;

        for (size_t i = 0; i < items->count; i++) {
            const struct calibrate_item *item = &items->items[i];

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
static double variance_of_steps(const struct calibrate_item *item)
{
    size_t count;
    double *samples = calibrate_samples(item->record, &count), sd = NAN;

    if (samples && count >= 5)
        sd = 1.4826 * dpb_stats_mad(samples, count) / item->step_ns;
    free(samples);
    return sd * sd;
}

/* Steps of one rank vary by both parts, r^2 + c^2; the last of n ranks by v_n r^2 + c^2. */
void calibrate_estimate_noise(const struct calibrate_items *items,
                              struct calibrate_estimate *estimate)
{
    double rank = 0, common = 0, whole = 0;
    size_t splits = 0, wholes = 0;

    for (size_t i = 0; i < items->count; i++) {
        const struct calibrate_item *one = &items->items[i];
        const double of_one = variance_of_steps(one);

        if (isnan(of_one))
            continue;
        whole += of_one / (one->e->ranks == 1 ? 1 : calibrate_maximum_variance((int)one->e->ranks));
        wholes++;
        for (size_t j = 0; j < items->count && one->e->ranks == 1; j++) {
            const struct calibrate_item *many = &items->items[j];
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
static bool is_pair(const struct calibrate_item *on, const struct calibrate_item *off)
{
    struct dpb_str text = {0};
    const char *series = calibrate_text_at(on->record, "series"),
               *at = strstr(series, "overlap=on");
    bool same = false;

    if (at && on->e->ranks == off->e->ranks && on->e->ranks > 1) {
        dpb_str_append_bytes(&text, series, (size_t)(at - series));
        dpb_str_appendf(&text, "overlap=off%s", at + strlen("overlap=on"));
        same = !text.failed && strcmp(text.text, calibrate_text_at(off->record, "series")) == 0;
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
                                      struct calibrate_estimate *estimate)
{
    const size_t most = items->count * items->count;
    double *compute = calloc(2 * most + 1, sizeof(*compute)), *collective = compute + most;

    if (!compute)
        return DPB_ERR_NO_MEMORY;
    for (size_t i = 0; i < most; i++) {
        const struct calibrate_item *on = &items->items[i / items->count];
        const struct calibrate_item *off = &items->items[i % items->count];
        const double steps = calibrate_real_at(on->record, "overlap/rank_steps");
        const double both = calibrate_real_at(on->record, "overlap/overlap_ns") / steps;
        const double comm = calibrate_real_at(on->record, "overlap/comm_ns") / steps -
                            calibrate_real_at(off->record, "overlap/comm_ns") /
                                    calibrate_real_at(off->record, "overlap/rank_steps");

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

/* ---- all of it ---- */

dpb_status calibrate_estimate_all(const struct calibrating *c, const struct calibrate_items *items,
                                  size_t without, struct calibrate_estimate *estimate)
{
    *estimate = (struct calibrate_estimate){.flop_per_s = NAN,
                                            .compute_ns = NAN,
                                            .data_ns = NAN,
                                            .rank_sd = NAN,
                                            .common_sd = NAN,
                                            .slow_inside = NAN,
                                            .slow_collective = NAN};
    DPB_TRY(estimate_rates(c, items, without, estimate));
    return estimate_contention(items, without, estimate);
}

#include "dpb_capacity.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the slowest of many ---- */

/* Simpson's rule on E max = integral over x > 0 of (1 - F(x)^n) - F(-x)^n. */
double dpb_capacity_normal_max(double n)
{
    const int intervals = 4000;
    const double end = 12, width = end / intervals;
    double sum = 0;

    if (!(n >= 1))
        return NAN;
    for (int i = 0; i <= intervals; i++) {
        const double x = i * width, upper = erfc(x / sqrt(2)) / 2; /* 1 - F(x) = F(-x) */
        const double value = -expm1(n * log1p(-upper)) - (upper > 0 ? pow(upper, n) : 0);

        sum += value * (i == 0 || i == intervals ? 1 : i % 2 ? 4 : 2);
    }
    return sum * width / 3;
}

double dpb_capacity_tail_max(double n, double share)
{
    const double most = n * share + 12 * sqrt(n * share) + 60;
    double log_probability = n * log1p(-share), harmonic = 0, sum = 0;

    if (!(n >= 1) || share <= 0)
        return n >= 1 ? 0 : NAN;
    if (share >= 1) {
        for (double k = 1; k <= n; k++)
            harmonic += 1 / k;
        return harmonic;
    }
    for (double k = 1; k <= fmin(n, most); k++) {
        log_probability += log((n - k + 1) / k) + log(share) - log1p(-share);
        harmonic += 1 / k;
        sum += exp(log_probability) * harmonic;
    }
    return sum;
}

static int by_value(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

double dpb_capacity_extrapolate_max(const double *values, size_t count, double factor)
{
    double *sorted = malloc((count + 1) * sizeof(*sorted));
    double sum = 0, before = 0;

    if (!sorted || count == 0) {
        free(sorted);
        return NAN;
    }
    memcpy(sorted, values, count * sizeof(*sorted));
    qsort(sorted, count, sizeof(*sorted), by_value);
    for (size_t i = 0; i < count; i++) {
        const double until = pow((double)(i + 1) / (double)count, factor);

        sum += sorted[i] * (until - before);
        before = until;
    }
    free(sorted);
    return sum;
}

/* ---- training time ---- */

double dpb_capacity_steps(double samples, double epochs, double global_batch)
{
    return ceil(samples * epochs / global_batch);
}

double dpb_capacity_samples_to_quality(double samples, double global_batch, double critical_batch)
{
    return samples * (1 + global_batch / critical_batch);
}

struct dpb_capacity_goodput dpb_capacity_goodput(double training_s,
                                                 const struct dpb_capacity_failures *failures)
{
    struct dpb_capacity_goodput goodput = {.interval_s = INFINITY, .goodput = 1};

    if (!isfinite(failures->mtbf_s))
        return goodput;
    goodput.interval_s = sqrt(2 * failures->checkpoint_s * failures->mtbf_s);
    if (goodput.interval_s > training_s) /* done before the first would be due */
        goodput.interval_s = training_s;
    if (goodput.interval_s > 0 && goodput.interval_s < training_s)
        goodput.checkpoint_share = failures->checkpoint_s / goodput.interval_s;
    goodput.rework_share = goodput.interval_s / (2 * failures->mtbf_s);
    goodput.restart_share = failures->restart_s / failures->mtbf_s;
    goodput.goodput =
            1 / (1 + goodput.checkpoint_share + goodput.rework_share + goodput.restart_share);
    return goodput;
}

/* ---- money and energy ---- */

double dpb_capacity_cost(double accelerators, double price_per_hour, double seconds)
{
    return accelerators * price_per_hour * seconds / 3600;
}

double dpb_capacity_energy_kwh(double accelerators, double watts, double seconds)
{
    return accelerators * watts * seconds / 3.6e6;
}

/* ---- memory ---- */

struct dpb_memory_fit dpb_memory_fit(double held_bytes, double per_sample_bytes, double samples,
                                     double reserve_bytes, double fragmentation,
                                     double memory_bytes)
{
    const double room = memory_bytes / (1 + fragmentation) - held_bytes - reserve_bytes;
    struct dpb_memory_fit fit = {
            .needed_bytes =
                    (held_bytes + per_sample_bytes * samples + reserve_bytes) * (1 + fragmentation),
    };

    fit.margin_bytes = memory_bytes - fit.needed_bytes;
    fit.largest_batch = room <= 0              ? 0
                        : per_sample_bytes > 0 ? floor(room / per_sample_bytes)
                                               : INFINITY;
    return fit;
}

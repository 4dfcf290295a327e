/* stats_order.c: the noncentral t of power tables, and what tells whether runs drift. */
#include "dpb_stats.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

/* ---- noncentral t ---- */

static double normal_cdf(double x)
{
    return 0.5 * erfc(-x / sqrt(2));
}

/* Density of s = sqrt(chi2(df) / df). */
static double scale_density(double s, double df)
{
    int sign;

    if (s <= 0)
        return 0;
    return exp(log(2) + 0.5 * df * log(0.5 * df) - lgamma_r(0.5 * df, &sign) + (df - 1) * log(s) -
               0.5 * df * s * s);
}

#define SCALE_STEPS 4000

/* P(T <= t) is the mean of Phi(t s - delta) over s: Simpson's rule. The density is smooth and is
 * below 1e-16 beyond 12 standard deviations, about 1 / sqrt(2 df) each. */
double dpb_stats_t_cdf_noncentral(double t, double df, double delta)
{
    const double spread = 12 / sqrt(2 * df);
    const double from = fmax(0, 1 - spread), to = 1 + fmax(spread, 1);
    const double width = (to - from) / SCALE_STEPS;
    double sum = 0;

    for (int i = 0; i <= SCALE_STEPS; i++) {
        const double s = from + width * i;
        const double weight = i == 0 || i == SCALE_STEPS ? 1 : i % 2 ? 4 : 2;

        sum += weight * scale_density(s, df) * normal_cdf(t * s - delta);
    }
    return fmin(1, fmax(0, sum * width / 3));
}

/* ---- autocorrelation ---- */

double dpb_stats_autocorrelation(const double *values, size_t count, size_t lag)
{
    const double mean = dpb_stats_mean(values, count);
    double all = 0, lagged = 0;

    if (count <= lag)
        return NAN;
    for (size_t i = 0; i < count; i++)
        all += (values[i] - mean) * (values[i] - mean);
    for (size_t i = 0; i + lag < count; i++)
        lagged += (values[i] - mean) * (values[i + lag] - mean);
    return all > 0 ? lagged / all : NAN;
}

/* ---- Spearman ---- */

#define EXACT_MAX 8

static void ranks_of(const double *values, size_t count, double *ranks)
{
    for (size_t i = 0; i < count; i++) {
        double below = 0, equal = 0;

        for (size_t k = 0; k < count; k++) {
            below += values[k] < values[i];
            equal += values[k] == values[i];
        }
        ranks[i] = below + (equal + 1) / 2;
    }
}

static double product(const double *x, const double *y, size_t count)
{
    double sum = 0;

    for (size_t i = 0; i < count; i++)
        sum += x[i] * y[i];
    return sum;
}

struct orders {
    const double *x;
    double *y;
    size_t count;
    double middle, seen; /* product expected of no correlation; distance from it that was seen */
    double extreme, all;
};

/* All orders of y from `at` on. */
static void permute(struct orders *orders, size_t at)
{
    if (at == orders->count) {
        orders->all++;
        orders->extreme += fabs(product(orders->x, orders->y, orders->count) - orders->middle) >=
                           orders->seen - 1e-9;
        return;
    }
    for (size_t i = at; i < orders->count; i++) {
        const double swap = orders->y[at];

        orders->y[at] = orders->y[i];
        orders->y[i] = swap;
        permute(orders, at + 1);
        orders->y[i] = orders->y[at];
        orders->y[at] = swap;
    }
}

static bool varies(const double *values, size_t count)
{
    for (size_t i = 1; i < count; i++)
        if (values[i] != values[0])
            return true;
    return false;
}

static double ranks_p(double *x, double *y, size_t count)
{
    const double n = (double)count, middle = n * (n + 1) * (n + 1) / 4;
    const double seen = product(x, y, count) - middle;

    if (count <= EXACT_MAX) {
        struct orders orders = {x, y, count, middle, fabs(seen), 0, 0};

        permute(&orders, 0);
        return orders.extreme / orders.all;
    }
    const double r = seen / sqrt((product(x, x, count) - middle) * (product(y, y, count) - middle));
    const double t = r * sqrt((n - 2) / fmax(1e-300, 1 - r * r));

    return fmin(1, 2 * dpb_stats_t_cdf(-fabs(t), n - 2));
}

double dpb_stats_spearman_p(const double *x, const double *y, size_t count)
{
    if (count < 3)
        return NAN;
    if (!varies(x, count) || !varies(y, count))
        return 1;

    double *ranks = malloc(2 * count * sizeof(*ranks));
    if (!ranks)
        return NAN;
    ranks_of(x, count, ranks);
    ranks_of(y, count, ranks + count);
    const double p = ranks_p(ranks, ranks + count, count);
    free(ranks);
    return p;
}

/* ---- binomial ---- */

void dpb_stats_binomial95(size_t trials, double p, size_t *low, size_t *high)
{
    const double n = (double)trials;
    double below = 0;
    int sign;

    *low = 0;
    *high = trials;
    for (size_t k = 0; k <= trials; k++) {
        const double x = (double)k;
        const double mass = exp(lgamma_r(n + 1, &sign) - lgamma_r(x + 1, &sign) -
                                lgamma_r(n - x + 1, &sign) + x * log(p) + (n - x) * log1p(-p));

        if (below <= 0.025)
            *low = k;
        below += mass;
        if (below >= 0.975) {
            *high = k;
            return;
        }
    }
}

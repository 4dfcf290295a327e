/* Statistics of samples; formulas and sources in docs/statistics.md. */
#include "dpb_stats.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const struct dpb_interval95 no_interval = {NAN, NAN};

double dpb_stats_mean(const double *values, size_t count)
{
    double sum = 0, rest = 0;
    double mean;
    size_t i;

    if (count == 0)
        return NAN;
    for (i = 0; i < count; i++)
        sum += values[i];
    mean = sum / (double)count;
    /* a second pass takes out the rounding of the first */
    for (i = 0; i < count; i++)
        rest += values[i] - mean;
    return mean + rest / (double)count;
}

double dpb_stats_stdev(const double *values, size_t count)
{
    double mean = dpb_stats_mean(values, count);
    double squares = 0;
    size_t i;

    if (count < 2)
        return NAN;
    for (i = 0; i < count; i++)
        squares += (values[i] - mean) * (values[i] - mean);
    return sqrt(squares / (double)(count - 1));
}

static int compare_doubles(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;

    return (a > b) - (a < b);
}

/* A sorted copy, or NULL when there is nothing to sort or no memory. Caller frees. */
static double *sorted_copy(const double *values, size_t count)
{
    double *sorted = count ? malloc(count * sizeof(*sorted)) : NULL;

    if (sorted) {
        memcpy(sorted, values, count * sizeof(*sorted));
        qsort(sorted, count, sizeof(*sorted), compare_doubles);
    }
    return sorted;
}

/* Hyndman and Fan type 7: position (n - 1) p, linear in between. */
static double sorted_quantile(const double *sorted, size_t count, double p)
{
    double position = (double)(count - 1) * p;
    size_t below = (size_t)position;
    double share = position - (double)below;

    if (below + 1 >= count)
        return sorted[count - 1];
    return sorted[below] + share * (sorted[below + 1] - sorted[below]);
}

double dpb_stats_quantile(const double *values, size_t count, double p)
{
    double *sorted;
    double quantile;

    if (!(p >= 0 && p <= 1))
        return NAN;
    sorted = sorted_copy(values, count);
    quantile = sorted ? sorted_quantile(sorted, count, p) : NAN;
    free(sorted);
    return quantile;
}

double dpb_stats_tail_quantile(const double *values, size_t count, double p)
{
    double tail = p < 0.5 ? p : 1 - p;

    /* 1 - 0.95 is a little more than 0.05, and 1 / (1 - 0.99) a little less than 100 */
    if (!(tail > 0) || (double)count < ceil(1 / tail - 1e-9))
        return NAN;
    return dpb_stats_quantile(values, count, p);
}

double dpb_stats_median(const double *values, size_t count)
{
    return dpb_stats_quantile(values, count, 0.5);
}

double dpb_stats_mad(const double *values, size_t count)
{
    double median = dpb_stats_median(values, count);
    double *distances = count ? malloc(count * sizeof(*distances)) : NULL;
    double mad;
    size_t i;

    if (!distances)
        return NAN;
    for (i = 0; i < count; i++)
        distances[i] = fabs(values[i] - median);
    mad = dpb_stats_median(distances, count);
    free(distances);
    return mad;
}

/* ---- Student's t ---- */

/* ln B(a, 1/2). For large a the difference of two log gammas loses its digits; the series of
 * Gamma(a + 1/2) / Gamma(a) does not (DLMF 5.11.13). */
static double log_beta_half(double a)
{
    const double log_root_pi = 0.57236494292470008707;
    int sign;

    if (a > 30) {
        double r = 1 / a;
        double ratio = -r / 8 + r * r * r / 192 - r * r * r * r * r / 640;

        return log_root_pi - 0.5 * log(a) - ratio;
    }
    return lgamma_r(a, &sign) + log_root_pi - lgamma_r(a + 0.5, &sign);
}

static double not_zero(double value)
{
    return fabs(value) < 1e-300 ? 1e-300 : value;
}

/* The continued fraction of the incomplete beta function (DLMF 8.17.22), modified Lentz method;
 * converges fast for x < (a + 1) / (a + b + 2). */
static double beta_fraction(double a, double b, double x)
{
    double c = 1, d = 1 / not_zero(1 - (a + b) * x / (a + 1));
    double value = d;
    int m;

    for (m = 1; m < 10000; m++) {
        double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
        double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
        double change;

        d = 1 / not_zero(1 + even * d);
        c = not_zero(1 + even / c);
        value *= d * c;
        d = 1 / not_zero(1 + odd * d);
        c = not_zero(1 + odd / c);
        change = d * c;
        value *= change;
        if (fabs(change - 1) < 1e-16)
            break;
    }
    return value;
}

/* P(T > t) for many degrees of freedom, where the beta function's x is too near 1: the normal tail
 * at Hill's expansion of t (G. W. Hill, "Algorithm 395: Student's t-distribution", CACM 13(10),
 * 1970); 13 digits from 1000 degrees on. */
static double t_tail_many(double t, double df)
{
    double a = df - 0.5, b = 48 * a * a;
    double y = a * log1p(t * t / df);
    double z =
            (((((-0.4 * y - 3.3) * y - 24) * y - 85.5) / (0.8 * y * y + 100 + b) + y + 3) / b + 1) *
            sqrt(y);

    return 0.5 * erfc(z / M_SQRT2);
}

/* P(T > t) for t >= 0: half the regularised incomplete beta function I_x(df/2, 1/2) at
 * x = df / (df + t^2); `y` = 1 - x is computed apart, so that neither end loses its digits. */
static double t_tail(double t, double df)
{
    double square = t * t;
    double x = df / (df + square), y = square / (df + square);
    double a = df / 2, b = 0.5;
    double log_x = square < df ? log1p(-y) : log(x);
    double front;

    if (isinf(square))
        return 0;
    if (t == 0)
        return 0.5;
    if (df > 1000)
        return t_tail_many(t, df);
    front = exp(a * log_x + b * log(y) - log_beta_half(a));
    if (x < (a + 1) / (a + b + 2))
        return 0.5 * front * beta_fraction(a, b, x) / a;
    return 0.5 - 0.5 * front * beta_fraction(b, a, y) / b;
}

/* Beyond this the difference from the normal distribution is below the last digit; Hill's b would
 * overflow. */
#define DF_NORMAL 1e17

double dpb_stats_t_cdf(double t, double df)
{
    double tail;

    if (isnan(t) || !(df > 0))
        return NAN;
    tail = df > DF_NORMAL ? 0.5 * erfc(fabs(t) / M_SQRT2) : t_tail(fabs(t), df);
    return t > 0 ? 1 - tail : tail;
}

/* Acklam's rational approximation of the normal quantile for p <= 1/2 (relative error 1.2e-9). */
static double normal_lower_start(double p)
{
    static const double a[] = {-3.969683028665376e+01, 2.209460984245205e+02,
                               -2.759285104469687e+02, 1.383577518672690e+02,
                               -3.066479806614716e+01, 2.506628277459239e+00};
    static const double b[] = {-5.447609879822406e+01, 1.615858368580409e+02,
                               -1.556989798598866e+02, 6.680131188771972e+01,
                               -1.328068155288572e+01};
    static const double c[] = {-7.784894002430293e-03, -3.223964580411365e-01,
                               -2.400758277161838e+00, -2.549732539343734e+00,
                               4.374664141464968e+00,  2.938163982698783e+00};
    static const double d[] = {7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e+00,
                               3.754408661907416e+00};
    double q, r;

    if (p < 0.02425) {
        q = sqrt(-2 * log(p));
        return (((((c[0] * q + c[1]) * q + c[2]) * q + c[3]) * q + c[4]) * q + c[5]) /
               ((((d[0] * q + d[1]) * q + d[2]) * q + d[3]) * q + 1);
    }
    q = p - 0.5;
    r = q * q;
    return (((((a[0] * r + a[1]) * r + a[2]) * r + a[3]) * r + a[4]) * r + a[5]) * q /
           (((((b[0] * r + b[1]) * r + b[2]) * r + b[3]) * r + b[4]) * r + 1);
}

double dpb_stats_normal_quantile(double p)
{
    double x, error, step;

    if (!(p >= 0 && p <= 1))
        return NAN;
    if (p == 0 || p == 1)
        return p == 0 ? -INFINITY : INFINITY;
    if (p > 0.5)
        return -dpb_stats_normal_quantile(1 - p);
    x = normal_lower_start(p);
    /* one step of Halley's method brings the approximation to full precision */
    error = 0.5 * erfc(-x / M_SQRT2) - p;
    step = error * sqrt(2 * M_PI) * exp(x * x / 2);
    return isfinite(step) ? x - step / (1 + x * step / 2) : x;
}

/* t with P(T > t) = tail, tail <= 1/2: bracket, then bisect. Slow and sure; nobody waits for it. */
static double t_upper(double tail, double df)
{
    double low = 0, high = 1;
    int i;

    while (t_tail(high, df) > tail && high < 1e300) {
        low = high;
        high *= 2;
    }
    for (i = 0; i < 200 && high - low > 0; i++) {
        double middle = low + (high - low) / 2;

        if (middle <= low || middle >= high)
            break;
        if (t_tail(middle, df) > tail)
            low = middle;
        else
            high = middle;
    }
    return low + (high - low) / 2;
}

double dpb_stats_t_quantile(double p, double df)
{
    if (!(p >= 0 && p <= 1) || !(df > 0))
        return NAN;
    if (p == 0 || p == 1)
        return p == 0 ? -INFINITY : INFINITY;
    if (p == 0.5)
        return 0;
    if (df > DF_NORMAL)
        return dpb_stats_normal_quantile(p);
    return p < 0.5 ? -t_upper(p, df) : t_upper(1 - p, df);
}

/* ---- intervals ---- */

struct dpb_interval95 dpb_stats_mean_ci95(const double *values, size_t count)
{
    double mean, half;

    if (count < 2)
        return no_interval;
    mean = dpb_stats_mean(values, count);
    half = dpb_stats_t_quantile(0.975, (double)(count - 1)) * dpb_stats_stdev(values, count) /
           sqrt((double)count);
    return (struct dpb_interval95){mean - half, mean + half};
}

/* Mean and squared standard error of the logarithms; false when a value has none. */
static bool log_moments(const double *values, size_t count, double *mean, double *error_squared)
{
    double *logs = count >= 2 ? malloc(count * sizeof(*logs)) : NULL;
    bool valid = logs != NULL;
    size_t i;

    for (i = 0; valid && i < count; i++) {
        valid = values[i] > 0 && isfinite(values[i]);
        logs[i] = log(values[i]);
    }
    if (valid) {
        double stdev = dpb_stats_stdev(logs, count);

        *mean = dpb_stats_mean(logs, count);
        *error_squared = stdev * stdev / (double)count;
    }
    free(logs);
    return valid;
}

struct dpb_interval95 dpb_stats_ratio_ci95(const double *numerators, size_t numerator_count,
                                           const double *denominators, size_t denominator_count)
{
    double mean_a, mean_b, va, vb, difference, half = 0;

    if (!log_moments(numerators, numerator_count, &mean_a, &va) ||
        !log_moments(denominators, denominator_count, &mean_b, &vb))
        return no_interval;
    difference = mean_a - mean_b;
    if (va + vb > 0) {
        /* Welch and Satterthwaite; the shares of the variance keep tiny ones from underflow */
        double share = va / (va + vb);
        double df = 1 / (share * share / (double)(numerator_count - 1) +
                         (1 - share) * (1 - share) / (double)(denominator_count - 1));

        half = dpb_stats_t_quantile(0.975, df) * sqrt(va + vb);
    }
    return (struct dpb_interval95){exp(difference - half), exp(difference + half)};
}

/* The largest k with P(Binomial(n, 1/2) <= k - 1) <= 2.5 %; 0 when there is none. */
static size_t median_ci_rank(size_t count)
{
    double n = (double)count, below = 0;
    size_t k = 0;
    int sign;

    while (k < count) {
        double log_term = lgamma_r(n + 1, &sign) - lgamma_r((double)k + 1, &sign) -
                          lgamma_r(n - (double)k + 1, &sign) - n * M_LN2;

        below += exp(log_term);
        if (below > 0.025)
            break;
        k++;
    }
    return k;
}

struct dpb_interval95 dpb_stats_median_ci95(const double *values, size_t count)
{
    size_t rank = median_ci_rank(count);
    double *sorted = rank > 0 ? sorted_copy(values, count) : NULL;
    struct dpb_interval95 interval = no_interval;

    if (sorted)
        interval = (struct dpb_interval95){sorted[rank - 1], sorted[count - rank]};
    free(sorted);
    return interval;
}

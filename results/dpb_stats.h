/* dpb_stats.h: statistics of samples. Inputs are finite doubles; an answer that does not exist for
 * the given n is NaN, never 0. Formulas and sources in docs/statistics.md. */
#ifndef DPB_STATS_H
#define DPB_STATS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

double dpb_stats_mean(const double *values, size_t count);
/* Sample standard deviation (n - 1); NaN below two values. */
double dpb_stats_stdev(const double *values, size_t count);
/* Middle value, mean of the two middle ones for even n. */
double dpb_stats_median(const double *values, size_t count);
/* Median absolute deviation from the median, not scaled. */
double dpb_stats_mad(const double *values, size_t count);
/* Quantile, linear interpolation (Hyndman and Fan type 7), p in [0, 1]. */
double dpb_stats_quantile(const double *values, size_t count, double p);
/* The same, but NaN where n is too small for the quantile to lie inside the sample:
 * n < ceil(1 / min(p, 1 - p)). */
double dpb_stats_tail_quantile(const double *values, size_t count, double p);

/* Student's t: distribution function and quantile, `df` real and positive. */
double dpb_stats_t_cdf(double t, double df);
double dpb_stats_t_quantile(double p, double df);
double dpb_stats_normal_quantile(double p);
/* Noncentral t: P(T <= t) with noncentrality `delta`. */
double dpb_stats_t_cdf_noncentral(double t, double df, double delta);

/* Autocorrelation at `lag`; NaN when the values do not vary or there are not more than `lag`. */
double dpb_stats_autocorrelation(const double *values, size_t count, size_t lag);
/* Two-sided p of Spearman's rank correlation, ties by mean ranks: exact up to 8 values, beyond by
 * Student's t. NaN below 3; 1 when either does not vary. */
double dpb_stats_spearman_p(const double *x, const double *y, size_t count);
/* The least and the most of `trials` that are within the central 95 % of the binomial. */
void dpb_stats_binomial95(size_t trials, double p, size_t *low, size_t *high);

struct dpb_interval95 {
    double low, high; /* NaN when n is below two */
};

/* mean +- t(0.975, n - 1) s / sqrt(n). */
struct dpb_interval95 dpb_stats_mean_ci95(const double *values, size_t count);
/* Interval of the ratio of two geometric means, exp(difference of mean logs +- Welch's t). Values
 * positive. */
struct dpb_interval95 dpb_stats_ratio_ci95(const double *numerators, size_t numerator_count,
                                           const double *denominators, size_t denominator_count);
/* Distribution-free interval of the median by order statistics (binomial), at least 95 %; NaN when
 * n is below 6. */
struct dpb_interval95 dpb_stats_median_ci95(const double *values, size_t count);

/* ---- what one run of correlated values tells of itself ---- */

/* Length of blocks of neighbours for `count` values with lag-1 autocorrelation `rho`:
 * (sqrt(6) rho / (1 - rho^2))^(2/3) count^(1/3) (Carlstein 1986), rho at most 0.95; at least 1. */
size_t dpb_stats_block_length(double rho, size_t count);
/* A resample of blocks of `block` neighbours, the values lying on a circle: block b begins at
 * starts[b], of ceil(count / block); the last one is cut. `resample` gets `count` values. */
void dpb_stats_resample_blocks(const double *values, size_t count, size_t block,
                               const size_t *starts, double *resample);

struct dpb_bootstrap {
    double se;            /* standard deviation of the statistic over the resamples */
    double low90, high90; /* quantiles 0.05 and 0.95 of it */
};
/* Circular block bootstrap (Politis and Romano 1992) of a statistic: blocks begin anywhere, drawn
 * with the project's generator, stream 0 of `seed`. It covers how neighbours resemble each other
 * and not what differs from run to run: no interval between runs is made of it. NaN below two
 * values or resamples, and without memory. */
struct dpb_bootstrap dpb_stats_block_bootstrap(const double *values, size_t count, size_t block,
                                               double (*statistic)(const double *, size_t),
                                               size_t resamples, uint64_t seed);

#ifdef __cplusplus
}
#endif
#endif

#include "dpb_changepoint.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"
#include "dpb_rng.h"
#include "dpb_stats.h"

#define SIDE_MIN     2   /* values on each side of a split: one value alone has no spread */
#define WEAK_FACTOR  10  /* points this much weaker are kept until they are tested again */
#define CLOSE_FACTOR 20  /* so many times B permutations where p is close to its limit */
#define ACF_LIMIT    0.2 /* of what is left after a split: above, blocks are permuted */

struct split {
    size_t at, end; /* [0, at) and [at, end) of the stretch */
    double q;       /* below 0: there is none */
};

struct search {
    const double *values;
    const struct dpb_changepoint_options *options;
    size_t block;           /* length of the blocks that are permuted */
    double *order;          /* a stretch in a random order */
    double *prefix, *reach; /* see best_split() */
    size_t *starts;         /* of blocks */
    struct dpb_changepoint *found;
    size_t found_count, found_max;
};

/* ---- the best split of one stretch ---- */

/* Energy distance between m and n values, from sums over pairs. */
static double energy(double across, double left, double right, double m, double n)
{
    return 2 / (m + n) * across - 2 * n / ((m + n) * (m - 1)) * left -
           2 * m / ((m + n) * (n - 1)) * right;
}

/* All splits in n^2 steps. prefix[k] is the sum over pairs of the first k values; reach[j] that of
 * |x_j - x_i| over i < at, kept as `at` moves; for a fixed `at`, `across` grows with `end`. */
static struct split best_split(const struct search *s, const double *x, size_t count,
                               bool to_the_end)
{
    struct split best = {.q = -1};
    double *prefix = s->prefix, *reach = s->reach;

    for (size_t k = 0; k < count; k++) {
        double sum = 0;

        for (size_t i = 0; i < k; i++)
            sum += fabs(x[k] - x[i]);
        prefix[k + 1] = prefix[k] + sum;
        reach[k] = 0;
    }
    for (size_t at = 1; at + SIDE_MIN <= count; at++) {
        double across = 0;

        for (size_t j = at; j < count; j++) {
            const size_t end = j + 1;

            reach[j] += fabs(x[j] - x[at - 1]);
            across += reach[j];
            if (at < SIDE_MIN || end < at + SIDE_MIN || (to_the_end && end < count))
                continue;
            const double q = energy(across, prefix[at], prefix[end] - prefix[at] - across,
                                    (double)at, (double)(end - at));
            if (q > best.q)
                best = (struct split){at, end, q};
        }
    }
    return best;
}

/* ---- is it more than chance? ---- */

/* At least five blocks, or single values. */
static size_t block_within(size_t block, size_t count)
{
    return block <= count / 5 ? block : count < 10 ? 1 : count / 5;
}

/* A random order of blocks of neighbours. They begin at a random place, as on a circle, so that
 * their edges are nowhere special. */
static void permute(const struct search *s, struct dpb_rng *rng, const double *x, size_t count,
                    size_t block)
{
    const size_t blocks = (count + block - 1) / block;
    const size_t shift = block > 1 ? (size_t)dpb_rng_below(rng, count) : 0;
    size_t filled = 0;

    for (size_t i = 0; i < blocks; i++)
        s->starts[i] = i * block;
    for (size_t i = blocks; i > 1; i--) {
        const size_t other = (size_t)dpb_rng_below(rng, i), kept = s->starts[i - 1];

        s->starts[i - 1] = s->starts[other];
        s->starts[other] = kept;
    }
    for (size_t i = 0; i < blocks; i++)
        for (size_t k = s->starts[i]; k < s->starts[i] + block && k < count; k++)
            s->order[filled++] = x[(k + shift) % count];
}

/* (b + 1) / (B + 1), or, once that is above `most`, what it is so far at least. B grows up to
 * CLOSE_FACTOR times where chance would decide, so that all seeds give one answer. The stream is
 * named by the stretch: the answer does not depend on what was tested before. */
static double permutation_p(const struct search *s, size_t low, size_t count,
                            const struct split *split, bool to_the_end, double most)
{
    const size_t block = block_within(s->block, count);
    const double *x = s->values + low, base = s->options->permutations;
    const double reached = split->q - 1e-9 * fabs(split->q);
    double beyond = 1, total = 1;
    struct dpb_rng rng;

    if (!(split->q > 0))
        return 1;
    dpb_rng_init(&rng, s->options->seed, (uint64_t)low << 32 | count);
    while (total < CLOSE_FACTOR * base + 1) {
        const double chance = 3 * sqrt(most / total);

        if (total > base && fabs(beyond / total - most) > chance)
            break;
        if (beyond > (most + chance) * fmax(total, base + 1))
            break;
        permute(s, &rng, x, count, block);
        if (best_split(s, s->order, count, to_the_end).q >= reached)
            beyond++;
        total++;
    }
    return beyond / fmax(total, base + 1);
}

/* Orders of m and n values that differ in what is left of the split, or more than `most`. */
static double orders(size_t m, size_t n, double most)
{
    const size_t fewer = m < n ? m : n;
    double count = 1;

    for (size_t k = 1; k <= fewer && count <= most; k++)
        count *= (double)(m + n - fewer + k) / (double)k;
    return count;
}

/* Two-sided p of Student's t; the spread is that of both sides together, with n - 1. */
static double student_p(const double *x, size_t m, const double *y, size_t n)
{
    const double sx = dpb_stats_stdev(x, m), sy = dpb_stats_stdev(y, n);
    const double df = (double)(m + n - 2);
    const double pooled = ((double)(m - 1) * sx * sx + (double)(n - 1) * sy * sy) / df;
    const double difference = fabs(dpb_stats_mean(x, m) - dpb_stats_mean(y, n));

    if (!(pooled > 0))
        return difference > 0 ? 0 : 1;
    return 2 * dpb_stats_t_cdf(-difference / sqrt(pooled * (1 / (double)m + 1 / (double)n)), df);
}

/* Fewer orders than 1 / `most`: p by permutation is above it whatever the values. */
static bool has_few_orders(const struct search *s, const struct split *split, double most)
{
    return s->block == 1 && orders(split->at, split->end - split->at, 1 / most) <= 1 / most;
}

/* p of a split by permutation; with few orders by Student's t, times the splits among which this
 * one was chosen (Bonferroni). */
static double split_p(const struct search *s, size_t low, size_t count, const struct split *split,
                      bool to_the_end, double most)
{
    const double *x = s->values + low;
    const double choices = (double)(count - 2 * SIDE_MIN + 1);

    if (!has_few_orders(s, split, most))
        return permutation_p(s, low, count, split, to_the_end, most);
    return fmin(choices * student_p(x, split->at, x + split->at, split->end - split->at), 1);
}

/* ---- all of a series ---- */

static dpb_status keep(struct search *s, size_t index)
{
    size_t at = 0;

    while (at < s->found_count && s->found[at].index < index)
        at++;
    if (at < s->found_count && s->found[at].index == index)
        return DPB_OK;
    if (s->found_count == s->found_max) {
        const size_t most = s->found_max ? 2 * s->found_max : 16;
        struct dpb_changepoint *found = realloc(s->found, most * sizeof(*found));

        if (!found)
            return DPB_ERR_NO_MEMORY;
        s->found = found;
        s->found_max = most;
    }
    memmove(s->found + at + 1, s->found + at, (s->found_count - at) * sizeof(*s->found));
    s->found[at] = (struct dpb_changepoint){.index = index};
    s->found_count++;
    return DPB_OK;
}

/* Candidates of [low, high): the best split, and those of both parts. */
static dpb_status divide(struct search *s, size_t low, size_t high)
{
    const size_t count = high - low;
    const double weak = fmin(WEAK_FACTOR * s->options->p, 1);

    if (count < 2 * SIDE_MIN)
        return DPB_OK;
    const struct split split = best_split(s, s->values + low, count, false);
    if (split.q <= 0)
        return DPB_OK;
    if (split_p(s, low, count, &split, false, weak) > weak)
        return DPB_OK;
    DPB_TRY(keep(s, low + split.at));
    DPB_TRY(divide(s, low, low + split.at));
    return divide(s, low + split.at, high);
}

/* Windows overlap by half, so that a change is away from the edges of one of them. */
static dpb_status divide_windows(struct search *s, size_t count)
{
    const size_t window = s->options->window;

    for (size_t low = 0;; low += window / 2) {
        const size_t high = low + window < count ? low + window : count;

        DPB_TRY(divide(s, low, high));
        if (high == count)
            return DPB_OK;
    }
}

/* How long neighbours stay alike. The autocorrelation of measurements is one property of the whole
 * series: that at lag 1 of what remains when the levels between the candidates are taken away, plus
 * (1 + 3 rho) / m by which levels of m values each make it smaller (Kendall 1954). Blocks when it
 * is above ACF_LIMIT and above what chance gives (2 / sqrt(n)), as long as a window asks for. */
static size_t noise_block(const struct search *s, size_t count, double *left)
{
    const double segments = (double)s->found_count + 1;

    for (size_t part = 0; part <= s->found_count; part++) {
        const size_t low = part > 0 ? s->found[part - 1].index : 0;
        const size_t high = part < s->found_count ? s->found[part].index : count;
        const double mean = dpb_stats_mean(s->values + low, high - low);

        for (size_t i = low; i < high; i++)
            left[i] = s->values[i] - mean;
    }
    double rho = dpb_stats_autocorrelation(left, count, 1);
    rho += (1 + 3 * rho) * segments / (double)count;
    if (!(rho > fmax(ACF_LIMIT, 2 / sqrt((double)count))))
        return 1;
    const size_t window = s->options->window;
    const size_t block = dpb_stats_block_length(rho, count < window ? count : window);
    return block > 2 ? block : 2;
}

/* Candidates by single values; when those leave autocorrelated values, again by blocks. */
static dpb_status find_candidates(struct search *s, size_t count)
{
    double *left = malloc((count + 1) * sizeof(*left));

    if (!left)
        return DPB_ERR_NO_MEMORY;
    s->block = 1;
    dpb_status st = divide_windows(s, count);
    if (st == DPB_OK)
        s->block = noise_block(s, count, left);
    free(left);
    if (st == DPB_OK && s->block > 1) {
        s->found_count = 0;
        st = divide_windows(s, count);
    }
    return st;
}

/* Two-sided p of Welch's t. */
static double welch_p(const double *x, size_t m, const double *y, size_t n)
{
    const double sx = dpb_stats_stdev(x, m), sy = dpb_stats_stdev(y, n);
    const double a = sx * sx / (double)m, b = sy * sy / (double)n;
    const double difference = fabs(dpb_stats_mean(x, m) - dpb_stats_mean(y, n));

    if (!(a + b > 0))
        return difference > 0 ? 0 : 1;
    const double df = (a + b) * (a + b) / (a * a / (double)(m - 1) + b * b / (double)(n - 1));
    return 2 * dpb_stats_t_cdf(-difference / sqrt(a + b), df);
}

/* Test a candidate between its neighbours, at most a window away, and put it where the split is
 * best. Its p is above the limit when it is none. */
static void test_again(struct search *s, size_t number, size_t count)
{
    struct dpb_changepoint *point = &s->found[number];
    const size_t window = s->options->window;
    size_t low = number > 0 ? s->found[number - 1].index : 0;
    size_t high = number + 1 < s->found_count ? s->found[number + 1].index : count;

    if (point->index - low > window)
        low = point->index - window;
    if (high - point->index > window)
        high = point->index + window;
    const struct split split = best_split(s, s->values + low, high - low, true);
    point->p = 1;
    if (split.q <= 0)
        return;
    point->p = split_p(s, low, high - low, &split, true, s->options->p);
    point->index = low + split.at;
    const double *x = s->values + low;
    if (!has_few_orders(s, &split, s->options->p) &&
        welch_p(x, split.at, x + split.at, high - low - split.at) > s->options->p)
        point->p = fmax(point->p, nextafter(s->options->p, 1));
}

static void drop(struct search *s, size_t number)
{
    s->found_count--;
    memmove(s->found + number, s->found + number + 1,
            (s->found_count - number) * sizeof(*s->found));
}

/* Means up to the neighbours, and whether enough values follow. */
static void describe(struct search *s, size_t number, size_t count)
{
    struct dpb_changepoint *point = &s->found[number];
    const size_t low = number > 0 ? s->found[number - 1].index : 0;
    const size_t high = number + 1 < s->found_count ? s->found[number + 1].index : count;

    point->before = dpb_stats_mean(s->values + low, point->index - low);
    point->after = dpb_stats_mean(s->values + point->index, high - point->index);
    point->change = point->before != 0 ? point->after / point->before - 1 : NAN;
    point->block = s->block;
    point->is_confirmed = count - point->index > s->options->confirm;
}

static void describe_all(struct search *s, size_t count)
{
    for (size_t i = 0; i < s->found_count; i++)
        describe(s, i, count);
}

/* The weakest candidate goes first; then its neighbours have more values to be tested with. So it
 * is with changes that are too small. */
static void settle(struct search *s, size_t count)
{
    for (size_t i = 0; i < s->found_count; i++)
        test_again(s, i, count);
    for (;;) {
        size_t worst = s->found_count;
        double p = s->options->p;

        for (size_t i = 0; i < s->found_count; i++)
            if (s->found[i].p > p) {
                worst = i;
                p = s->found[i].p;
            }
        if (worst == s->found_count)
            break;
        drop(s, worst);
        if (worst > 0)
            test_again(s, worst - 1, count);
        if (worst < s->found_count)
            test_again(s, worst, count);
    }
    describe_all(s, count);
    for (;;) {
        size_t least = s->found_count;

        for (size_t i = 0; i < s->found_count; i++)
            if (fabs(s->found[i].change) < s->options->least_change &&
                (least == s->found_count ||
                 fabs(s->found[i].change) < fabs(s->found[least].change)))
                least = i;
        if (least == s->found_count)
            return;
        drop(s, least);
        describe_all(s, count);
    }
}

static dpb_status find(struct search *s, size_t count)
{
    const size_t most = 2 * s->options->window + 1;

    s->order = malloc(most * sizeof(*s->order));
    s->prefix = malloc((most + 1) * sizeof(*s->prefix));
    s->reach = malloc(most * sizeof(*s->reach));
    s->starts = malloc(most * sizeof(*s->starts));
    if (!s->order || !s->prefix || !s->reach || !s->starts)
        return DPB_ERR_NO_MEMORY;
    s->prefix[0] = 0;
    DPB_TRY(find_candidates(s, count));
    settle(s, count);
    return DPB_OK;
}

dpb_status dpb_changepoints_find(const double *values, size_t count,
                                 const struct dpb_changepoint_options *options,
                                 struct dpb_changepoint **points, size_t *point_count)
{
    struct search s = {.values = values, .options = options};

    if (options->window < 10 || options->permutations < 1 || !(options->p > 0)) {
        dpb_error("change points: a window of %zu values, %d permutations, p %g", options->window,
                  options->permutations, options->p);
        dpb_log_hint("windows have at least 10 values, permutations are at least 1, p is above 0");
        return DPB_ERR_USAGE;
    }
    for (size_t i = 0; i < count; i++)
        if (!isfinite(values[i])) {
            dpb_error("change points: value %zu is not finite", i + 1);
            return DPB_ERR_CORRUPT;
        }
    const dpb_status st = find(&s, count);
    free(s.order);
    free(s.prefix);
    free(s.reach);
    free(s.starts);
    if (st < 0 || s.found_count == 0) {
        free(s.found);
        s.found = NULL;
    }
    if (st < 0)
        return st;
    *points = s.found;
    *point_count = s.found_count;
    return DPB_OK;
}

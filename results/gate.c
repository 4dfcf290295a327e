#include "dpb_gate.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_stats.h"

const char *dpb_verdict_text(enum dpb_verdict verdict)
{
    static const char *const text_of[] = {
#define VERDICT_TEXT(name, text) text,
            DPB_VERDICT_MAP(VERDICT_TEXT)
#undef VERDICT_TEXT
    };

    return text_of[verdict];
}

const char *dpb_run_statistic_text(enum dpb_run_statistic statistic)
{
    static const char *const text_of[] = {"median", "mean", "p95"};

    return text_of[statistic];
}

/* ---- one run ---- */

#define STEADY_WINDOW 5

size_t dpb_gate_warmup(size_t steps)
{
    const size_t tenth = (steps + 9) / 10;

    return tenth > 5 ? tenth : 5;
}

size_t dpb_gate_steady_from(const double *values, size_t steps)
{
    const size_t half = steps / 2;

    if (steps < 2 * STEADY_WINDOW)
        return steps;
    const double level = dpb_stats_median(values + half, steps - half);
    const double spread = 1.4826 * dpb_stats_mad(values + half, steps - half);
    const double near = fmax(0.02 * level, 3 * spread);
    for (size_t at = 0; at + STEADY_WINDOW <= steps; at++)
        if (fabs(dpb_stats_median(values + at, STEADY_WINDOW) - level) <= near)
            return at;
    return steps;
}

dpb_status dpb_gate_run(const double *values, size_t steps, size_t warmup,
                        enum dpb_run_statistic statistic, double *theta, char *why,
                        size_t why_bytes)
{
    const size_t steady = steps > warmup ? steps - warmup : 0;
    double value = NAN;

    if (steady < DPB_GATE_STEADY_MIN) {
        snprintf(why, why_bytes, "%zu steps after %zu of warm-up, %d are needed: give more --steps",
                 steady, warmup, DPB_GATE_STEADY_MIN);
        return DPB_ERR_CORRUPT;
    }
    for (size_t i = warmup; i < steps; i++) {
        if (!isfinite(values[i]) || values[i] <= 0) {
            snprintf(why, why_bytes, "step %zu is %g", i + 1, values[i]);
            return DPB_ERR_CORRUPT;
        }
    }
    values += warmup;
    switch (statistic) {
    case DPB_RUN_MEDIAN:
        value = dpb_stats_median(values, steady);
        break;
    case DPB_RUN_MEAN:
        value = dpb_stats_mean(values, steady);
        break;
    case DPB_RUN_P95:
        value = dpb_stats_quantile(values, steady, 0.95);
        break;
    }
    *theta = log(value);
    return DPB_OK;
}

/* ---- permutations ---- */

#define PERMUTATIONS_MAX 200000

static double choose(size_t n, size_t k)
{
    double count = 1;

    for (size_t i = 1; i <= k; i++)
        count *= (double)(n - k + i) / (double)i;
    return round(count);
}

struct permutations {
    const double *values; /* of both sides */
    size_t count, base_count;
    double sum, least; /* of all; the smallest difference that is as large as what was seen */
    double seen, all;
};

/* All ways to choose `left` more values for the baseline from `from` on. */
static void permute(struct permutations *permutations, size_t from, size_t left, double base_sum)
{
    if (left == 0) {
        const size_t others = permutations->count - permutations->base_count;
        const double difference = (permutations->sum - base_sum) / (double)others -
                                  base_sum / (double)permutations->base_count;

        permutations->all++;
        permutations->seen += difference >= permutations->least;
        return;
    }
    for (size_t i = from; i + left <= permutations->count; i++)
        permute(permutations, i + 1, left - 1, base_sum + permutations->values[i]);
}

static double permutation_p(const double *base, size_t base_count, const double *candidate,
                            size_t candidate_count, double difference)
{
    const size_t count = base_count + candidate_count;
    struct permutations permutations = {.count = count, .base_count = base_count};
    double largest = 0;

    if (choose(count, base_count) > PERMUTATIONS_MAX)
        return NAN;
    double *values = malloc(count * sizeof(*values));
    if (!values)
        return NAN;
    memcpy(values, base, base_count * sizeof(*values));
    memcpy(values + base_count, candidate, candidate_count * sizeof(*values));
    for (size_t i = 0; i < count; i++) {
        permutations.sum += values[i];
        largest = fmax(largest, fabs(values[i]));
    }
    permutations.least = difference - 1e-12 * largest; /* sums in another order are rounded apart */
    permutations.values = values;
    permute(&permutations, 0, base_count, 0);
    free(values);
    return permutations.seen / permutations.all;
}

/* ---- the decision ---- */

static double square(double value)
{
    return value * value;
}

__attribute__((format(printf, 3, 4))) static void
give_up(struct dpb_gate_result *result, enum dpb_verdict verdict, const char *format, ...)
{
    va_list list;

    result->verdict = verdict;
    va_start(list, format);
    vsnprintf(result->reason, sizeof(result->reason), format, list);
    va_end(list);
}

static struct dpb_gate_result nothing(void)
{
    return (struct dpb_gate_result){
            .verdict = DPB_VERDICT_ERROR,
            .difference = NAN,
            .ratio = NAN,
            .se = NAN,
            .df = NAN,
            .low = NAN,
            .high = NAN,
            .p_worse = NAN,
            .p_fine = NAN,
            .p_permutation = NAN,
            .mde = NAN,
    };
}

static bool all_finite(const double *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!isfinite(values[i]))
            return false;
    return true;
}

static bool can_decide(const double *base, size_t base_count, const double *candidate,
                       size_t candidate_count, const struct dpb_gate_rule *rule,
                       struct dpb_gate_result *result)
{
    const size_t least = rule->least_runs > 2 ? rule->least_runs : 2;

    if (base_count == 0 || candidate_count == 0)
        give_up(result, DPB_VERDICT_ERROR,
                "there are %zu runs of the baseline and %zu of the "
                "candidate",
                base_count, candidate_count);
    else if (!all_finite(base, base_count) || !all_finite(candidate, candidate_count))
        give_up(result, DPB_VERDICT_ERROR, "a value of a run is not a finite number");
    else if (rule->is_paired && base_count != candidate_count)
        give_up(result, DPB_VERDICT_ERROR,
                "%zu runs of the baseline and %zu of the candidate make "
                "no pairs",
                base_count, candidate_count);
    else if (base_count < least || candidate_count < least)
        give_up(result, DPB_VERDICT_INCONCLUSIVE,
                "%zu and %zu runs, at least %zu of each are needed", base_count, candidate_count,
                least);
    else
        return true;
    return false;
}

/* Standard error and degrees of freedom of the difference. */
static void two_groups(const double *base, size_t base_count, const double *candidate,
                       size_t candidate_count, const struct dpb_gate_rule *rule,
                       struct dpb_gate_result *result)
{
    const double least = square(rule->floor);
    const double va = fmax(square(dpb_stats_stdev(base, base_count)), least) / (double)base_count;
    const double vb = fmax(square(dpb_stats_stdev(candidate, candidate_count)), least) /
                      (double)candidate_count;

    result->se = sqrt(va + vb);
    result->df = square(va + vb) / (square(va) / (double)(base_count - 1) +
                                    square(vb) / (double)(candidate_count - 1));
}

static bool pairs(const double *base, const double *candidate, size_t count,
                  const struct dpb_gate_rule *rule, struct dpb_gate_result *result)
{
    double *differences = malloc(count * sizeof(*differences));

    if (!differences)
        return false;
    for (size_t i = 0; i < count; i++)
        differences[i] = candidate[i] - base[i];
    result->se =
            fmax(dpb_stats_stdev(differences, count), rule->floor * sqrt(2)) / sqrt((double)count);
    result->df = (double)count - 1;
    free(differences);
    return true;
}

static void set_verdict(const struct dpb_gate_rule *rule, struct dpb_gate_result *result)
{
    const double margin = rule->is_absolute ? rule->margin : log1p(rule->margin);
    const double t = dpb_stats_t_quantile(1 - rule->alpha, result->df);

    result->low = result->difference - t * result->se;
    result->high = result->difference + t * result->se;
    result->p_fine = dpb_stats_t_cdf((result->difference - margin) / result->se, result->df);
    result->p_worse = dpb_stats_t_cdf((margin - result->difference) / result->se, result->df);
    if (result->low > margin) {
        result->verdict = DPB_VERDICT_FAIL;
    } else if (result->high < margin) {
        result->verdict = DPB_VERDICT_PASS;
    } else {
        give_up(result, DPB_VERDICT_INCONCLUSIVE, "the interval holds the margin");
    }
}

/* Found with a probability of 0.8: of pairs by the noise of their differences. */
static double least_effect(const double *base, size_t base_count, const double *candidate,
                           size_t candidate_count, const struct dpb_gate_rule *rule,
                           const struct dpb_gate_result *result)
{
    const size_t runs = base_count < candidate_count ? base_count : candidate_count;
    const double sd = sqrt((square(dpb_stats_stdev(base, base_count)) +
                            square(dpb_stats_stdev(candidate, candidate_count))) /
                           2);

    if (rule->is_paired)
        return (dpb_stats_t_quantile(1 - rule->alpha, result->df) +
                dpb_stats_t_quantile(0.8, result->df)) *
               result->se;
    return dpb_gate_mde(runs, sd, rule->alpha, 0.8);
}

void dpb_gate_decide(const double *base, size_t base_count, const double *candidate,
                     size_t candidate_count, const struct dpb_gate_rule *rule,
                     struct dpb_gate_result *result)
{
    const double sign = rule->higher_is_better ? -1 : 1;

    *result = nothing();
    if (!can_decide(base, base_count, candidate, candidate_count, rule, result))
        return;
    const double difference =
            dpb_stats_mean(candidate, candidate_count) - dpb_stats_mean(base, base_count);
    result->difference = sign * difference;
    result->ratio = rule->is_absolute ? NAN : exp(difference);
    if (!rule->is_paired) {
        two_groups(base, base_count, candidate, candidate_count, rule, result);
    } else if (!pairs(base, candidate, base_count, rule, result)) {
        give_up(result, DPB_VERDICT_ERROR, "out of memory");
        return;
    }
    set_verdict(rule, result);
    result->p_permutation =
            sign > 0 ? permutation_p(base, base_count, candidate, candidate_count, difference)
                     : permutation_p(candidate, candidate_count, base, base_count, -difference);

    const double mde = least_effect(base, base_count, candidate, candidate_count, rule, result);
    result->mde = rule->is_absolute ? mde : expm1(mde);
}

void dpb_gate_decide_exact(const int64_t *base, size_t base_count, const int64_t *candidate,
                           size_t candidate_count, int64_t tolerance,
                           struct dpb_gate_result *result)
{
    *result = nothing();
    if (base_count == 0 || candidate_count == 0) {
        give_up(result, DPB_VERDICT_ERROR,
                "there are %zu runs of the baseline and %zu of the "
                "candidate",
                base_count, candidate_count);
        return;
    }
    for (size_t i = 0; i < base_count; i++)
        for (size_t j = 0; j < candidate_count; j++) {
            const double difference = (double)candidate[j] - (double)base[i];

            if (i + j == 0 || fabs(difference) > fabs(result->difference))
                result->difference = difference;
        }
    if (fabs(result->difference) <= (double)tolerance)
        result->verdict = DPB_VERDICT_PASS;
    else
        give_up(result, DPB_VERDICT_FAIL, "it differs by %g, by %lld it may", result->difference,
                (long long)tolerance);
}

/* ---- how many runs ---- */

double dpb_gate_mde(size_t runs, double sd, double alpha, double power)
{
    const double df = 2 * (double)runs - 2;

    if (runs < 2)
        return NAN;
    return (dpb_stats_t_quantile(1 - alpha, df) + dpb_stats_t_quantile(power, df)) * sd *
           sqrt(2 / (double)runs);
}

double dpb_gate_power(size_t runs, double effect, double sd, double alpha)
{
    const double df = 2 * (double)runs - 2;

    if (runs < 2)
        return NAN;
    return 1 - dpb_stats_t_cdf_noncentral(dpb_stats_t_quantile(1 - alpha, df), df,
                                          effect / (sd * sqrt(2 / (double)runs)));
}

size_t dpb_gate_runs(double mde, double sd, double alpha, double power, size_t most)
{
    for (size_t runs = 2; runs <= most; runs++)
        if (dpb_gate_mde(runs, sd, alpha, power) <= mde)
            return runs;
    return 0;
}

/* ---- many metrics ---- */

struct ranked {
    double p;
    size_t index;
};

static int by_p(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;

    if (x->p != y->p)
        return x->p < y->p ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

static struct ranked *rank(const double *p, size_t count)
{
    struct ranked *ranked = malloc((count + 1) * sizeof(*ranked));

    for (size_t i = 0; ranked && i < count; i++)
        ranked[i] = (struct ranked){p[i], i};
    if (ranked)
        qsort(ranked, count, sizeof(*ranked), by_p);
    return ranked;
}

/* Holm, "A simple sequentially rejective multiple test procedure", 1979. */
dpb_status dpb_gate_holm(const double *p, size_t count, double *adjusted)
{
    struct ranked *ranked = rank(p, count);
    double largest = 0;

    if (!ranked)
        return DPB_ERR_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        largest = fmax(largest, fmin(1, (double)(count - i) * ranked[i].p));
        adjusted[ranked[i].index] = largest;
    }
    free(ranked);
    return DPB_OK;
}

/* Benjamini and Hochberg, "Controlling the false discovery rate", 1995. */
dpb_status dpb_gate_bh(const double *p, size_t count, double *adjusted)
{
    struct ranked *ranked = rank(p, count);
    double least = 1;

    if (!ranked)
        return DPB_ERR_NO_MEMORY;
    for (size_t i = count; i > 0; i--) {
        least = fmin(least, (double)count / (double)i * ranked[i - 1].p);
        adjusted[ranked[i - 1].index] = least;
    }
    free(ranked);
    return DPB_OK;
}

double dpb_gate_look_alpha(int looks)
{
    static const double alpha_of[] = {NAN, 0.05, 0.0304, 0.0232};

    return looks >= 1 && looks <= 3 ? alpha_of[looks] : NAN;
}

/* dpb_gate.h: is the candidate slower than the baseline by more than a margin?
 *
 * The run, a process launch, is the unit: each gives one number per metric, and the test is on
 * those, never on steps (docs/statistics.md says why, with measured rates of false alarms).
 *
 * With theta the logarithm of a run's statistic, d the difference of the means (candidate -
 * baseline), m = ln(1 + margin), and [lo, hi] = d -+ t(1 - alpha, nu) se:
 *   FAIL when lo > m, PASS when hi < m, else INCONCLUSIVE.
 * Two groups: Welch's t, se^2 = va + vb, va = max(sa^2, f^2) / Ra, nu by Welch and Satterthwaite.
 * Pairs (runs interleaved A B B A): Student's t of the differences, nu = R - 1. Which of the two is
 * decided by how the runs were made, never by the result. Metrics that are differences already
 * (loss, a share of a step) are compared as they are, with an absolute margin. */
#ifndef DPB_GATE_H
#define DPB_GATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dpb_status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* identifier, text; from the worst to the best */
#define DPB_VERDICT_MAP(X)                                                                         \
    X(DPB_VERDICT_ERROR, "ERROR")     /* data are missing or invalid */                            \
    X(DPB_VERDICT_REFUSED, "REFUSED") /* the sides cannot be compared */                           \
    X(DPB_VERDICT_FAIL, "FAIL")                                                                    \
    X(DPB_VERDICT_INCONCLUSIVE, "INCONCLUSIVE")                                                    \
    X(DPB_VERDICT_PASS, "PASS")

enum dpb_verdict {
#define DPB_VERDICT_ENUM(name, text) name,
    DPB_VERDICT_MAP(DPB_VERDICT_ENUM)
#undef DPB_VERDICT_ENUM
    DPB_VERDICT_COUNT
};
const char *dpb_verdict_text(enum dpb_verdict verdict);

/* ---- one run ---- */

#define DPB_GATE_STEADY_MIN 10 /* steps that a run must have after its warm-up */

enum dpb_run_statistic {
    DPB_RUN_MEDIAN,
    DPB_RUN_MEAN, /* includes stalls: throughput and cost */
    DPB_RUN_P95   /* Hyndman and Fan type 7 */
};
const char *dpb_run_statistic_text(enum dpb_run_statistic statistic);

/* Steps that are left out at the beginning: max(5, ceil(n / 10)), the same rule for both sides. */
size_t dpb_gate_warmup(size_t steps);
/* The first step from which on a run is steady: the median of 5 steps is within 2 %, or 3 robust
 * standard deviations, of the median of the last half. `steps` when it never is. */
size_t dpb_gate_steady_from(const double *values, size_t steps);
/* ln of the statistic of steps `warmup` and later. DPB_ERR_CORRUPT with the reason in `why`: fewer
 * than DPB_GATE_STEADY_MIN of them, or one that is not finite or not above 0. */
dpb_status dpb_gate_run(const double *values, size_t steps, size_t warmup,
                        enum dpb_run_statistic statistic, double *theta, char *why,
                        size_t why_bytes);

/* ---- the decision ---- */

struct dpb_gate_rule {
    double margin;         /* 0.02: 2 % more may be; or, absolute, so much more */
    double alpha;          /* of each bound, 0.05 */
    bool is_absolute;      /* theta is the metric itself, not its logarithm */
    bool higher_is_better; /* less is worse: throughput, efficiency */
    bool is_paired;        /* run i of both sides belong together */
    size_t least_runs;     /* per side; below: INCONCLUSIVE. 3 */
    double floor;          /* standard deviation of a run at least: timers are not better. 1e-4 */
};
#define DPB_GATE_RULE_DEFAULT                                                                      \
    {                                                                                              \
        .margin = 0.02, .alpha = 0.05, .least_runs = 3, .floor = 1e-4                              \
    }

struct dpb_gate_result {
    enum dpb_verdict verdict;
    char reason[160]; /* of ERROR, REFUSED and INCONCLUSIVE */
    /* NaN where there is none. Of "worse": for higher_is_better with the sign turned. */
    double difference; /* d: of logarithms, or absolute */
    double ratio;      /* exp(d) of the metric as it is; NaN when absolute */
    double se, df;
    double low, high;     /* of d, one-sided each at 1 - alpha */
    double p_worse;       /* P(t > (d - m) / se): small when d is beyond the margin */
    double p_fine;        /* 1 - p_worse */
    double p_permutation; /* exact, one-sided, of d >= what was seen, without margin; NaN when there
                             are too many permutations */
    double mde;           /* least effect beyond the margin that is found with a probability of 0.8:
                             a ratio - 1, or absolute */
};

/* Compare per-run values of both sides. Values must be finite: ERROR. */
void dpb_gate_decide(const double *base, size_t base_count, const double *candidate,
                     size_t candidate_count, const struct dpb_gate_rule *rule,
                     struct dpb_gate_result *result);

/* A counter that must be the same, but for `tolerance`. No statistics. */
void dpb_gate_decide_exact(const int64_t *base, size_t base_count, const int64_t *candidate,
                           size_t candidate_count, int64_t tolerance,
                           struct dpb_gate_result *result);

/* ---- how many runs ---- */

/* The least effect beyond the margin that R runs a side find with probability `power`, for runs
 * with standard deviation `sd`: (t(1 - alpha, 2R - 2) + t(power, 2R - 2)) sd sqrt(2 / R). NaN below
 * 2 runs. */
double dpb_gate_mde(size_t runs, double sd, double alpha, double power);
/* The exact probability, by the noncentral t, that R runs a side say FAIL when the true effect is
 * `effect` beyond the margin. NaN below 2 runs. */
double dpb_gate_power(size_t runs, double effect, double sd, double alpha);
/* The least R for which that is at most `mde`, in the same unit as `sd`; 0: more than `most`. */
size_t dpb_gate_runs(double mde, double sd, double alpha, double power, size_t most);

/* ---- many metrics ---- */

/* Holm's and Benjamini and Hochberg's adjusted p values; `adjusted` may be `p`. DPB_ERR_NO_MEMORY.
 */
dpb_status dpb_gate_holm(const double *p, size_t count, double *adjusted);
dpb_status dpb_gate_bh(const double *p, size_t count, double *adjusted);

/* Nominal one-sided levels for `looks` planned looks at alpha 0.05 (Pocock): 0.05, 0.0304, 0.0232;
 * NaN for other numbers of looks. */
double dpb_gate_look_alpha(int looks);

#ifdef __cplusplus
}
#endif
#endif

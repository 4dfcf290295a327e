/* dpb_gate_compare.h: two sides, cell by cell and metric by metric, and one verdict over all.
 *
 * Never PASS: a cell or a value that one side lacks, a run that failed, no cell at all (ERROR);
 * sides that were made differently (REFUSED). A FAIL stands only when Holm's p over all gating
 * metrics of all cells is at most alpha; advisory ones are marked by Benjamini and Hochberg at
 * q = 0.10 and never decide. */
#ifndef DPB_GATE_COMPARE_H
#define DPB_GATE_COMPARE_H

#include "dpb_gate.h"
#include "dpb_gate_set.h"
#include "dpb_json.h"

#ifdef __cplusplus
extern "C" {
#endif

struct dpb_gate_margin {
    char metric[64];
    double value;
    bool is_absolute; /* in the metric's unit, also where the metric is relative */
};

/* "step-time-median=3%", "loss=0.02", "energy-per-sample=+0.5" (absolute, in the metric's unit);
 * several separated by commas. DPB_ERR_USAGE, logged: no such metric, or no number, or below 0. */
#define DPB_GATE_MARGINS_MAX 32
struct dpb_gate_margins {
    struct dpb_gate_margin items[DPB_GATE_MARGINS_MAX];
    size_t count;
};
dpb_status dpb_gate_margins_parse(const char *text, struct dpb_gate_margins *margins);

struct dpb_gate_options {
    double alpha; /* 0.05 */
    int looks;    /* 1 to 3, planned before the first: alpha becomes dpb_gate_look_alpha() */
    struct dpb_gate_margins margins;
    const char *gating; /* "step-time-median,wire-bytes": only these gate; NULL: the default ones */
    /* "lr,fingerprint": facts that may differ, "absent": those that one side does not know, such as
     * options that were added since; NULL: none */
    const char *allow;
    bool require_interleaved;
};
#define DPB_GATE_OPTIONS_DEFAULT                                                                   \
    {                                                                                              \
        .alpha = 0.05, .looks = 1                                                                  \
    }

enum dpb_gate_order {
    DPB_GATE_ORDER_UNKNOWN,     /* of some run neither place nor time is known */
    DPB_GATE_ORDER_SEQUENTIAL,  /* all of one side before all of the other */
    DPB_GATE_ORDER_INTERLEAVED, /* mixed */
    DPB_GATE_ORDER_PAIRED       /* made in pairs, each in its own order */
};
const char *dpb_gate_order_text(enum dpb_gate_order order);

/* A candidate that takes so much less than the baseline, of what is better when it is less, or
 * gives as much more, is worth a look at the baseline: one from a busy or throttled machine, or of
 * other settings, lets nothing fail any more. */
#define DPB_GATE_DOUBTFUL 0.30

struct dpb_gate_finding {
    char *cell;
    const struct dpb_gate_metric *metric; /* NULL: of the cell as a whole, ERROR or REFUSED */
    bool is_gating;
    double margin;
    bool is_absolute;
    struct dpb_gate_result result;
    double base, candidate; /* geometric means, or means of absolute and exact metrics; NaN */
    size_t base_runs, candidate_runs;
    enum dpb_gate_order order;
    double drift_p;    /* Spearman's, of the metric against the order of runs; NaN */
    double p_adjusted; /* Holm's of gating, BH's of advisory findings; NaN */
    bool is_improved;  /* better by more than the margin */
    bool is_doubtful;  /* so much better that the baseline may be wrong (DPB_GATE_DOUBTFUL) */
};

struct dpb_gate_report {
    struct dpb_gate_finding *findings; /* worst first; gating ones before advisory ones */
    size_t finding_count;
    size_t counts[DPB_VERDICT_COUNT]; /* of gating findings */
    size_t family;                    /* gating findings with a p value */
    double alpha;                     /* that was used */
    int looks;
    enum dpb_verdict verdict; /* FAIL when anything gating fails, else the worst */
    char *baseline, *candidate;
    dpb_json *waived; /* array of texts: facts that differ and were allowed to */
    dpb_json *notes;  /* array of texts */
};

/* Compare. DPB_ERR_USAGE, logged, for options that name no metric or other looks;
 * DPB_ERR_NO_MEMORY. Verdicts are in the report, which needs dpb_gate_report_release() after
 * success. */
dpb_status dpb_gate_compare(const struct dpb_gate_set *baseline,
                            const struct dpb_gate_set *candidate,
                            const struct dpb_gate_options *options, struct dpb_gate_report *report);
void dpb_gate_report_release(struct dpb_gate_report *report);

/* Is `word` in a list separated by commas or spaces? '_' is '-'. */
bool dpb_gate_list_has(const char *list, const char *word);

/* {"schema": "dpb.gate/1", ...}: every number; NaN is null with a reason. Caller owns. */
dpb_json *dpb_gate_report_json(const struct dpb_gate_report *report);

/* ---- is the gate itself fit? ---- */

/* A/A: the runs of one build against themselves. */
struct dpb_gate_calibration {
    char *cell;
    size_t runs;
    size_t splits, failed; /* random balanced splits of median step times; FAIL at margin 0 */
    double fail_share;
    double accept_low, accept_high; /* binomial 95 % interval of alpha with that many splits */
    double sd_run, sd_step;         /* of logarithms: from run to run, from step to step */
    double rho;                     /* lag-1 autocorrelation of steps; NaN: not known */
    double se_step; /* of the logarithm of one run's median, by the number of its steps alone (block
                       bootstrap); NaN: not known */
    double drift_p;
    size_t recommended;  /* runs a side to find `margin` beyond the margin with power 0.8; 0: above
                            1000 */
    double least_margin; /* the least effect that half of the runs a side find with power 0.8 */
    bool may_block;
    char why[160]; /* not "": why it may not */
};
/* Of every cell; at least 4 runs, at least 10 to block. `records` give the steps for sd_step,
 * rho and se_step and may be NULL. */
dpb_status dpb_gate_calibrate(const struct dpb_gate_set *set, const struct dpb_records *records,
                              double margin, size_t splits, uint64_t seed,
                              struct dpb_gate_calibration **cells, size_t *count);
void dpb_gate_calibration_free(struct dpb_gate_calibration *cells, size_t count);

/* A copy in which every value is worse by `share` (exact ones by 1 at least). With `half` 0 all
 * runs, with 1 or 2 every other one. */
dpb_status dpb_gate_set_worsened(const struct dpb_gate_set *set, double share, int half,
                                 struct dpb_gate_set *copy);

#ifdef __cplusplus
}
#endif
#endif

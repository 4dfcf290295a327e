/* dpb_tune.h: the best setting of a strategy's knobs for a workload on this machine, by
 * measurement.
 *
 * Candidates are the combinations of the knobs that the strategy has (bucket sizes, the first
 * bucket, a fusion threshold and cycle time, packs, units of layers); combinations that send the
 * same messages at the same times are one candidate. Successive halving: all are launched, the
 * better half is launched again, and so on, each time in random interleaved order. What wins was
 * also lucky, so that its measurements so far say nothing about how much it is better: the winner
 * is launched again in turns with the default (default, winner, winner, default, ...), and only
 * those pairs are compared. */
#ifndef DPB_TUNE_H
#define DPB_TUNE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dpb_driver.h"
#include "dpb_json.h"
#include "dpb_plan.h"
#include "dpb_registry.h"
#include "dpb_stats.h"
#include "dpb_status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DPB_TUNE_KNOBS_MAX  4
#define DPB_TUNE_BUDGET_MIN 14 /* launches: five pairs, and two candidates twice */

struct dpb_tune_input {
    const struct dpb_registry *registry;
    const struct dpb_settings *given; /* a knob with one value is fixed; with several, those are its
                                         candidates */
    int cores;
    int64_t budget; /* launches in all */
};

struct dpb_tune_candidate {
    int rounds;                 /* of halving in which it was launched */
    int launches;               /* that are ok, those of the comparison included */
    double step_ns;             /* geometric mean of their median steps; NaN without any */
    double score_ns;            /* the same of the rounds alone */
    int64_t first_bucket_bytes; /* what --first-bucket auto is with it; 0: its strategy has none */
    double default_ratio; /* the default's step time over its, of the rounds that both were in */
};

enum dpb_tune_verdict {
    DPB_TUNE_NOT_COMPARED,
    DPB_TUNE_BETTER,        /* the interval of the ratio lies above 1 */
    DPB_TUNE_NO_DIFFERENCE, /* it contains 1 */
    DPB_TUNE_WORSE          /* it lies below 1 */
};

/* The default's step time over the winner's. */
struct dpb_tune_comparison {
    enum dpb_tune_verdict verdict;
    int pairs;
    double ratio; /* geometric mean */
    struct dpb_interval95 ci95;
};

struct dpb_tune {
    struct dpb_plan plan;                  /* cell 0 is the default, the others are candidates */
    const char *knobs[DPB_TUNE_KNOBS_MAX]; /* borrowed from the options */
    size_t knob_count;
    struct dpb_tune_candidate *candidates; /* per cell */
    size_t same;                           /* combinations left out since they send the same */
    size_t left_out;                       /* and for lack of budget */
    int rounds;
    int64_t selection_launches; /* budget of the rounds */
    int pairs;                  /* of the comparison */
    int winner;                 /* cell; 0: not known yet */
    struct dpb_tune_comparison comparison;
    size_t flagged; /* launches on a machine with less than the limit of its cores available */
    bool emulated;
};

/* Candidates and rounds; nothing is launched. DPB_ERR_USAGE, logged: nothing to tune with this
 * strategy or with one rank, a list where it is no knob, too small a budget. Release afterwards,
 * also on failure. */
dpb_status dpb_tune_prepare(const struct dpb_tune_input *input, struct dpb_tune *tune);
void dpb_tune_release(struct dpb_tune *tune);

/* Launch. `driver` has registry, folder, interruption and progress; its plan and `resume` are set
 * here. A launch that is not ok ends it with that launch's status; `tune` then holds what was found
 * until then. */
dpb_status dpb_tune_run(struct dpb_tune *tune, struct dpb_driver_config *driver,
                        struct dpb_driver_result *result);

/* The comparison of pairs of step times: 95 % interval of the mean of the logarithms of their
 * ratios, by Student's t over pairs (dpb_stats_mean_ci95). */
void dpb_tune_compare(const double *default_ns, const double *winner_ns, size_t pairs,
                      struct dpb_tune_comparison *comparison);

/* {"schema": "dpb.tune/1", "knobs": [...], "candidates": [...], "comparison": {...}, "repro":...}.
 * Caller owns. */
dpb_json *dpb_tune_json(const struct dpb_tune *tune);

#ifdef __cplusplus
}
#endif
#endif

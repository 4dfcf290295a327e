/* dpb_summary.h: records -> one summary per cell, with scaling efficiency. Pure functions of
 * records.
 *
 * A run (one record) is the unit of repetition: intervals come from repeats, not from steps. */
#ifndef DPB_SUMMARY_H
#define DPB_SUMMARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dpb_json.h"
#include "dpb_record.h"
#include "dpb_stats.h"
#include "dpb_status.h"
#include "dpb_str.h"

#ifdef __cplusplus
extern "C" {
#endif

struct dpb_cell_summary {
    const dpb_json
            *first; /* its first ok record, or its first, for config, axes, repro; borrowed */
    const char *run_id, *series, *compute_series; /* borrowed */
    int64_t cell;
    int ranks;
    bool weak; /* scaling: weak or strong */
    int64_t global_batch, batch_per_rank;
    bool emulated, simulated;
    bool flagged; /* some repeat ran on a machine with less than the limit of its cores available */

    size_t repeats_ok, repeats_not_ok;
    const char *not_ok_status, *not_ok_reason; /* of the first repeat that is not ok, or NULL */
    double *repeat_median_ns; /* per ok repeat, owned by the summary: for intervals of ratios */
    double *repeat_samples_per_s;

    /* step time, nanoseconds; NaN without an ok repeat. Percentiles over the steps of all repeats.
     */
    double step_median_ns; /* median over repeats of the repeats' medians */
    double step_mean_ns, step_mad_ns, step_p5_ns, step_p50_ns, step_p95_ns, step_p99_ns;
    struct dpb_interval95 step_ci95_ns; /* of the mean of the repeats' medians */

    /* all samples over all time, so that stalls count; never a mean of rates */
    double samples_per_s_total, samples_per_s_per_rank;
    struct dpb_interval95 samples_per_s_ci95;

    /* against the baseline cell: the one-rank cell of the same series or else of the same
     * compute_series, or else the cell with the fewest ranks of the same series. It has the same
     * fingerprint, scaling and batch, and is ok; the cell's own run goes before others. A cell of
     * several ranks with nothing to compare it with has none: NaN. */
    const struct dpb_cell_summary *baseline; /* in this summary; the cell itself when it is one */
    int baseline_ranks;                      /* 0 without one */
    double speedup;                          /* X(n) / X(n0) * n0, so that the baseline has n0 */
    double efficiency;                       /* X(n) n0 / (X(n0) n) */
    struct dpb_interval95 efficiency_ci95; /* of the ratio, from repeats on both sides; NaN for the
                                              baseline, which is 1 by definition */

    /* per step and rank, mean over traced steps; NaN when nothing was traced */
    double span_ns, compute_ns, comm_ns, overlap_ns, exposed_ns, comm_wait_ns, idle_ns, data_ns;
    double exposed_share;    /* exposed / span */
    double overlap_fraction; /* overlap / comm; NaN when comm is 0 */
    double comm_share;       /* comm / span */

    double busbw_bytes_per_s; /* median over repeats; NaN with one rank */
    double wire_ns;           /* per step on the emulated link; median over repeats */
    double progress_cpu_ns;   /* of the background thread per collective; median over repeats */
    double wake_late_p99_ns;  /* its timed wake-ups; worst rank, median over repeats */
    double availability;      /* least core availability of its ok repeats */
    double trace_overhead;    /* traced / untraced median step */
    double test_accuracy;     /* mean over repeats; NaN when not evaluated */
    double loss_first, loss_last;
};

struct dpb_summary {
    struct dpb_cell_summary *cells; /* ordered by series, then ranks, then cell */
    size_t cell_count;
    const struct dpb_records *records; /* borrowed */
    size_t superseded; /* records left out because a later one has the same run, cell and repeat */
};

/* Group records by (run_id, cell) and compute everything; `summary` is overwritten.
 * DPB_ERR_NO_DATA, logged, when no record is ok (the summary is still filled, so that failures can
 * be reported). */
dpb_status dpb_summary_compute(const struct dpb_records *records, struct dpb_summary *summary);
void dpb_summary_release(struct dpb_summary *summary);

/* "ranks 4, bucket 1MiB, overlap on": what tells the cell from the others of its run, with the run
 * in front when the records come from several. Appended to `label`. */
void dpb_cell_label(const struct dpb_summary *summary, const struct dpb_cell_summary *cell,
                    struct dpb_str *label);

/* The value of an axis of the cell ("bucket" -> "1MiB"), or NULL when the option does not vary, or
 * when the cell has one rank and the option acts only between ranks (it is in the series, but not
 * in the compute_series); a strategy is named all the same, since one rank has a cell for each. */
const char *dpb_cell_axis(const struct dpb_cell_summary *cell, const char *axis);

/* The cell of the same run that differs in this axis only, where it has `value`; NULL: none. On and
 * off may be written in any way that dpb_parse_bool() takes. */
const struct dpb_cell_summary *dpb_summary_twin(const struct dpb_summary *summary,
                                                const struct dpb_cell_summary *cell,
                                                const char *axis, const char *value);

/* T_off / T_on of two cells' median step times with its interval (NaN below two repeats on a side):
 * above 1, `on` is faster. */
double dpb_cell_speedup(const struct dpb_cell_summary *on, const struct dpb_cell_summary *off,
                        struct dpb_interval95 *ci95);

/* Append a ratio's interval times `scale`: "68.1 to 74.0" and `unit`. One that spans more than a
 * factor of 100, as two repeats can make it, tells nothing: "wider than x100". */
void dpb_ratio_interval_text(struct dpb_interval95 interval, double scale, int decimals,
                             const char *unit, struct dpb_str *out);

/* How many times as long the same bytes took to move with overlap as without: the bus bandwidth of
 * `off` over that of `on`, in which waiting for peers is no part. NaN where one is not known. */
double dpb_cell_comm_inflation(const struct dpb_cell_summary *on,
                               const struct dpb_cell_summary *off);

/* {"schema": "dpb.summary/1", "cells": [...]}; NaN becomes null with a reason. Caller owns. */
dpb_json *dpb_summary_json(const struct dpb_summary *summary);

/* Notes a reader should see: efficiency above 1.05 (baseline cold or other batch?), bus bandwidth
 * above the emulated link's rate, flagged cells, overlap slower than none, unequal fingerprints in
 * one report, a baseline with other threads, few repeats, traces that lost events or slowed steps
 * down, torn or superseded records, and what the records themselves warn of. Array of strings;
 * caller owns. */
dpb_json *dpb_summary_notes(const struct dpb_summary *summary);

#ifdef __cplusplus
}
#endif
#endif

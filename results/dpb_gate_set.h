/* dpb_gate_set.h: one side of a gate: cells, their runs, and one value per run and metric.
 *
 * Everything a gate can compare becomes this first: records of runs (here), baseline files and
 * other tools' results (who reads those fills a set with dpb_gate_set_cell() and
 * dpb_gate_cell_add()). A run, one process launch, is the unit; what was measured within it is one
 * number by then. */
#ifndef DPB_GATE_SET_H
#define DPB_GATE_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dpb_hash.h"
#include "dpb_record.h"
#include "dpb_status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum dpb_gate_scale {
    DPB_GATE_RELATIVE, /* compared as logarithms: margin 0.02 is 2 % */
    DPB_GATE_ABSOLUTE, /* compared as they are: margin in the metric's unit */
    DPB_GATE_EXACT     /* integers that must agree, up to a tolerance */
};

/* What a metric is. */
struct dpb_gate_metric {
    const char *name; /* "step-time-median" */
    const char *unit; /* "ns", "samples/s", "", ... */
    enum dpb_gate_scale scale;
    bool higher_is_better;
    bool is_gating;   /* by default; else advisory: reported, never the reason of an exit code */
    bool is_of_steps; /* needs enough steady steps */
    double margin;    /* default */
    const char *summary;
};

/* The metrics that records give; ends with a NULL name. */
extern const struct dpb_gate_metric dpb_gate_metrics[];
/* NULL when there is none of that name. */
const struct dpb_gate_metric *dpb_gate_metric_find(const char *name);

struct dpb_gate_values {
    const struct dpb_gate_metric *metric; /* borrowed, static */
    double *values;                       /* per run of the cell; NaN: the run has none */
};

/* What must agree for two cells to be comparable: "fingerprint", "bucket", ... */
struct dpb_gate_fact {
    char *key, *text;
};

struct dpb_gate_run {
    double order;     /* place in its session; NaN: not known */
    double time_s;    /* when it began, seconds since 1970; NaN: not known */
    int64_t pair;     /* runs of both sides with the same number were made as a pair; -1: none */
    char session[64]; /* runs of one session can be put in order; "": not known */
    char hash[DPB_SHA256_TEXT_BYTES]; /* of the record; "": none */
};

struct dpb_gate_cell {
    char *name;          /* what cells are matched by when nothing better agrees, and shown as */
    char *series;        /* equal in both sides: the same cell, whatever its name; "" for none */
    char *curve;         /* of records: what the cells of one scaling curve have in common ... */
    char *compute_curve; /* ... and its cell with one rank (dpb_record.h); NULL: no record's */
    double size_bytes;   /* of a cell of one collective and size; 0 elsewhere, and in baselines */
    struct dpb_gate_fact *facts;
    size_t fact_count;
    struct dpb_gate_run *runs;
    size_t run_count;
    struct dpb_gate_values *metrics;
    size_t metric_count;
    char trouble[256]; /* not "": the cell has runs that give no valid data, and why */
    size_t busy_runs;  /* for which too little of the cores was free: their times tell little */
    char step_trouble[256]; /* the same of metrics that need steady steps */
};

struct dpb_gate_set {
    struct dpb_gate_cell *cells;
    size_t cell_count;
    char by_design[256]; /* facts that differ on purpose: "bucket lr" */
    char *source;        /* what reports call it: a path, or a side of `gate measure` */
    double price;        /* USD per accelerator and hour, for costs; NaN: none */
    char *notes;         /* lines worth telling ("the baseline is 40 days old"), or NULL */
    double saved_s;      /* when a baseline was saved, seconds since 1970; 0: it is none */
};

void dpb_gate_set_release(struct dpb_gate_set *set);

/* The cell of that name and series, made when there is none. NULL: out of memory. Pointers to cells
 * got before are gone when one is made. */
struct dpb_gate_cell *dpb_gate_set_cell(struct dpb_gate_set *set, const char *name,
                                        const char *series);
/* One more run; its number. Values of all metrics are NaN until set. */
dpb_status dpb_gate_cell_add_run(struct dpb_gate_cell *cell, const struct dpb_gate_run *run,
                                 size_t *number);
dpb_status dpb_gate_cell_set_value(struct dpb_gate_cell *cell, size_t run,
                                   const struct dpb_gate_metric *metric, double value);
dpb_status dpb_gate_cell_set_fact(struct dpb_gate_cell *cell, const char *key, const char *text);
const char *dpb_gate_cell_fact(const struct dpb_gate_cell *cell, const char *key);
/* Days from the oldest run to `now_s` (seconds since 1970), where a run does not tell when it was
 * made from the moment it was saved; NaN: not known of some run, or there is none. */
double dpb_gate_set_age_days(const struct dpb_gate_set *set, double now_s);
/* How its numbers were obtained: "measured", "emulated" or "simulated"; "" where its source does
 * not say, as in results of other tools. */
const char *dpb_gate_cell_how(const struct dpb_gate_cell *cell);
/* Its value per run, or NULL. */
const double *dpb_gate_cell_values(const struct dpb_gate_cell *cell, const char *metric);

/* Which records of a folder that holds both sides (`dpbench gate measure`). */
enum dpb_gate_side {
    DPB_GATE_SIDE_ALL,
    DPB_GATE_SIDE_BASELINE,
    DPB_GATE_SIDE_CANDIDATE
};

/* Records are added to a set. A record that is not ok, has too few or broken steps, never becomes
 * steady, or has a loss that is not finite makes its cell's `trouble`. `price` as in the set. Of
 * records with the same run, cell and repeat the last counts. */
dpb_status dpb_gate_set_from_records(const struct dpb_records *records, enum dpb_gate_side side,
                                     double price, struct dpb_gate_set *set);
/* Lines of `dpbench comm` (dpb.comm/1): bus bandwidth, one cell per collective and size. One rank
 * has no bus: its records are left out, unless they are not ok. */
dpb_status dpb_gate_set_from_comm(const char *path, enum dpb_gate_side side,
                                  struct dpb_gate_set *set);
/* A run folder, a records.jsonl, or the same of `dpbench comm`. DPB_ERR_NOT_FOUND, DPB_ERR_CORRUPT
 * and DPB_ERR_NO_DATA (nothing of that side either), logged. */
dpb_status dpb_gate_set_read(const char *path, enum dpb_gate_side side, double price,
                             struct dpb_gate_set *set);
/* Does the folder or file hold both sides? */
bool dpb_gate_has_sides(const char *path);

#ifdef __cplusplus
}
#endif
#endif

/* dpb_plan.h: settings -> the cells of a run, and the order in which they run. */
#ifndef DPB_PLAN_H
#define DPB_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dpb_experiment.h"
#include "dpb_options.h"
#include "dpb_registry.h"
#include "dpb_sweep_file.h"

#ifdef __cplusplus
extern "C" {
#endif

struct dpb_plan_cell {
    dpb_config *config; /* resolved */
    char *label;        /* "ranks=2 bucket=1MiB overlap=on": the axes; "" with one cell */
    char *series, *compute_series;
};

/* One launch: cell and repeat. */
struct dpb_plan_launch {
    int32_t cell, repeat;
};

struct dpb_plan {
    char *name;
    struct dpb_plan_cell *cells;
    size_t cell_count;
    struct dpb_plan_launch *order; /* repeats outermost, cells shuffled within each, by seed */
    size_t launch_count;
    int64_t repeats;
    uint64_t seed;
    char **axis_names; /* options that vary, in the order of the sweep file, then of the flags */
    size_t axis_count;
};

struct dpb_plan_input {
    const struct dpb_registry *registry;
    const struct dpb_sweep_file *file; /* NULL: flags only */
    const struct dpb_settings *flags;  /* the command line; over the file */
    bool sweep;       /* ranks auto is an axis, lists are axes; else one cell is demanded */
    int cores;        /* of this machine */
    const char *name; /* when the file gives none */
};

/* Expand axes, drop excluded cells, drop per cell the options that cannot take effect in it (a
 * strategy's bucket where another strategy is chosen; what acts only between ranks where there is
 * one), merge cells that are then the same. An option that takes effect in no cell, an exclude that
 * leaves nothing, more than 10,000 cells: DPB_ERR_USAGE, logged. Release after use. */
dpb_status dpb_plan_build(const struct dpb_plan_input *input, struct dpb_plan *plan);
void dpb_plan_release(struct dpb_plan *plan);

/* {"name":..., "seed":..., "repeats":..., "axes": [...], "cells": [{"cell": 0, "label":...,
 * "options": {...}, ...}], "order": [[cell, repeat], ...]}: part of the manifest. Caller owns. */
dpb_json *dpb_plan_to_json(const struct dpb_plan *plan);
/* Rebuild a plan from a manifest's "plan" for --resume. */
dpb_status dpb_plan_from_json(const struct dpb_registry *registry, const dpb_json *json,
                              struct dpb_plan *plan);

/* What `--dry-run` prints: one line per cell with its label, options and repro line. */
dpb_status dpb_plan_text(const struct dpb_plan *plan, struct dpb_str *out);

#ifdef __cplusplus
}
#endif
#endif

/* dpb_import.h: results of other tools as one side of a gate.
 *
 * A file becomes cells with one value per run and metric (dpb_gate_set.h). Times become
 * nanoseconds, rates bytes per second. What a tool counts as a run is told in the format's summary:
 * repetitions inside one process are weaker evidence than launches, and the set's notes say so. */
#ifndef DPB_IMPORT_H
#define DPB_IMPORT_H

#include <stdbool.h>
#include <stddef.h>

#include "dpb_gate_set.h"
#include "dpb_json.h"
#include "dpb_status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct dpb_import_format {
    const char *name;    /* "google-benchmark" */
    const char *summary; /* what is read, and what a run is */
};
/* Ends with a NULL name. */
extern const struct dpb_import_format dpb_import_formats[];

/* A metric that an import or a baseline file may name: those of dpb_gate_metrics and "real-time",
 * "cpu-time", "gpu-time", "time" (ns), "value", "rate" (higher is better), ...; NULL: none. */
const struct dpb_gate_metric *dpb_import_metric_find(const char *name);

/* What the text is, by its structure; NULL: nothing that is known. */
const char *dpb_import_detect(const char *text, size_t count);

/* Read a text of `count` bytes into `set`. `file` is for messages. `format` NULL: detect.
 * `higher_is_better` is for "csv", which does not tell. DPB_ERR_USAGE: unknown format;
 * DPB_ERR_CORRUPT: damaged, a key missing, a value not finite; logged with file and line or key.
 * DPB_ERR_NO_DATA: no benchmark in it. Nothing is added to `set` unless DPB_OK. */
dpb_status dpb_import_text(const char *text, size_t count, const char *file, const char *format,
                           bool higher_is_better, struct dpb_gate_set *set);
/* The same of a file. */
dpb_status dpb_import_read(const char *path, const char *format, bool higher_is_better,
                           struct dpb_gate_set *set);

/* Any side: a baseline file (dpb_baseline.h), a run folder, records, lines of `dpbench comm`, or
 * another tool's file. `format` NULL: detect. `price` as in dpb_gate_set_read(). */
dpb_status dpb_import_side(const char *path, const char *format, bool higher_is_better,
                           enum dpb_gate_side side, double price, struct dpb_gate_set *set);

/* {"cells": [{"name", "series", "facts", "trouble", "runs", "metrics": [{"name", "unit",
 * "higher_is_better", "values"}]}]}. Caller owns. */
dpb_json *dpb_import_json(const struct dpb_gate_set *set);

#ifdef __cplusplus
}
#endif
#endif

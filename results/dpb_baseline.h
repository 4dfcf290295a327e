/* dpb_baseline.h: what candidates are compared with, kept in files small enough for git.
 *
 * A baseline is one JSON file, "dpb.baseline/1": all cells of a side with their facts (fingerprint,
 * options), and per metric the raw value of every run. "sha256" is that of "content" as one line;
 * a file that does not agree with it is refused. A store is a folder:
 *
 *   NAME.json              the anchor that gates compare with
 *   NAME/<id>.json         every baseline that was saved, by the first 12 digits of its hash
 *   decisions.jsonl        who made which one the anchor, when and why; each line holds the hash of
 *                          the line before it, so that a line that is changed or gone is noticed
 *
 * Saving never changes an anchor: promoting does, with a reason. */
#ifndef DPB_BASELINE_H
#define DPB_BASELINE_H

#include <stdbool.h>
#include <stddef.h>

#include "dpb_gate_set.h"
#include "dpb_json.h"
#include "dpb_status.h"
#include "dpb_str.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DPB_BASELINE_SCHEMA   "dpb.baseline/1"
#define DPB_BASELINE_ID_BYTES 13
#define DPB_BASELINE_AGE_DAYS 30 /* older: a warning */
#define DPB_BASELINE_STORE    "baselines"

/* What is known of a baseline besides its values. "" and NaN: not known. */
struct dpb_baseline_about {
    char name[64];
    char commit[65];
    char date[32];  /* "2026-12-01T16:26:25.981Z" */
    char tool[128]; /* version of the program that saved it */
    char price_date[32];
    double price; /* USD per accelerator and hour */
    char sha256[DPB_SHA256_TEXT_BYTES];
};

/* Is the file a baseline, good or damaged? Nothing is logged. */
bool dpb_baseline_is(const char *path);

/* Read a baseline into `set` (price, source and notes too: a note when it is old) and `about`,
 * which may be NULL. An anchor must be what the store's last decision made it. DPB_ERR_CORRUPT,
 * logged with the file: changed by hand, cut, or not what was decided. */
dpb_status dpb_baseline_read(const char *path, struct dpb_gate_set *set,
                             struct dpb_baseline_about *about);

/* The file that `text` names: a path, a NAME of the store, or NAME@ID. DPB_ERR_NOT_FOUND, logged.
 */
dpb_status dpb_baseline_find(const char *store, const char *text, struct dpb_str *path);

/* Write `set` into the store; `id` gets its name there. The same content again is the same id.
 * Cells in trouble, and a set without any run, are refused: DPB_ERR_NO_DATA. */
dpb_status dpb_baseline_save(const char *store, const struct dpb_gate_set *set,
                             const struct dpb_baseline_about *about,
                             char id[DPB_BASELINE_ID_BYTES]);

/* Make a saved one the anchor. The old anchor stays in NAME/. Safe against others that do the same
 * at the same time. DPB_ERR_USAGE without a reason; DPB_ERR_NOT_FOUND: nothing like it was saved,
 * and nothing is made. */
dpb_status dpb_baseline_promote(const char *store, const char *name, const char *id,
                                const char *reason, const char *who);
/* Make the anchor before this one the anchor again; `id` gets it. DPB_ERR_NO_DATA: there is none.
 */
dpb_status dpb_baseline_rollback(const char *store, const char *name, const char *reason,
                                 const char *who, char id[DPB_BASELINE_ID_BYTES]);

/* The decisions, oldest first, as an array; an empty one when there are none. DPB_ERR_CORRUPT,
 * logged with the line, when the chain is broken. Caller owns. */
dpb_status dpb_baseline_decisions(const char *store, dpb_json **decisions);

/* {"baselines": [{"name", "id", "is_anchor", "date", "age_days", "commit", "cells", "runs",
 * "file"}]}: all of a store, by name and date. Caller owns. */
dpb_status dpb_baseline_list(const char *store, dpb_json **list);

/* What differs between two: {"about": [...], "facts": [...], "cells": {...}, "metrics": [{"cell",
 * "metric", "from", "to", "ratio", "runs_from", "runs_to"}]}. Caller owns. */
dpb_json *dpb_baseline_diff(const struct dpb_gate_set *from,
                            const struct dpb_baseline_about *from_about,
                            const struct dpb_gate_set *to,
                            const struct dpb_baseline_about *to_about);

#ifdef __cplusplus
}
#endif
#endif

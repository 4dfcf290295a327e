/* dpb_history.h: values of runs, commit after commit, in an SQLite file.
 *
 * Several programs may add at the same time, and a program that is killed leaves whole additions
 * only. A run is known by the hash of its record, or of another
 * tool's file and the commit: adding it again changes nothing. Commits are in
 * the order of their first runs. */
#ifndef DPB_HISTORY_H
#define DPB_HISTORY_H

#include <stdbool.h>
#include <stddef.h>

#include "dpb_gate_set.h"
#include "dpb_json.h"
#include "dpb_record.h"
#include "dpb_status.h"
#include "dpb_str.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dpb_history dpb_history;

#define DPB_HISTORY_VERSION 1

/* Open a history; an absent file is made when `create`. DPB_ERR_NOT_FOUND; DPB_ERR_CORRUPT: it is
 * no history; DPB_ERR_UNSUPPORTED: it was made by a newer version; DPB_ERR_IO. All logged. */
dpb_status dpb_history_open(const char *path, bool create, dpb_history **history);
void dpb_history_close(dpb_history *history);

struct dpb_history_added {
    size_t added, known, left_out; /* runs; left out: of cells in trouble, which are warned of */
};

/* What the runs of a record are known to be of: `commit`, or when that is NULL the commit of the
 * program that made it, which is the record's; NULL when that is not known either. */
const char *dpb_history_commit_of(const dpb_json *record, const char *commit);
/* DPB_ERR_USAGE, logged: NULL, empty or longer than 64 characters. */
dpb_status dpb_history_check_commit(const char *commit);

/* Add the runs of a set as those of `commit`; all of them or none. `time_s` is for runs that do not
 * know when they were made. */
dpb_status dpb_history_add(dpb_history *history, const struct dpb_gate_set *set, const char *commit,
                           double time_s, struct dpb_history_added *added);
/* Add records, each as of the commit of the program that made it, or `commit` when not NULL. Cells
 * are of one record, so that there is no scaling efficiency. */
dpb_status dpb_history_add_records(dpb_history *history, const struct dpb_records *records,
                                   const char *commit, double price,
                                   struct dpb_history_added *added);

/* From this commit on, drift is told against it. A reason is required. */
dpb_status dpb_history_release(dpb_history *history, const char *commit, const char *label,
                               const char *reason);

/* One commit of one cell and metric. */
struct dpb_history_point {
    char commit[65];
    double time_s; /* of its first run */
    size_t runs;
    double value; /* geometric mean of its runs; of absolute and exact metrics the mean */
    bool is_release;
};

/* All commits, oldest first; the caller frees `points`. DPB_ERR_NO_DATA, logged: none. Runs of
 * several machines (fingerprints), or with different options, are warned of. */
dpb_status dpb_history_points(dpb_history *history, const char *cell, const char *metric,
                              struct dpb_history_point **points, size_t *count);

struct dpb_history_drift {
    bool is_alarm;
    size_t anchor, first; /* points: the release; the first of those that are beyond, all after it
                             are too */
    double ratio;         /* of the latest commit to the anchor; NaN where that is 0 */
};
/* Is the level worse than at the last release (or the first commit when there is none) by more than
 * `margin`, for good: a commit and at least `confirm` after it, up to the last? */
void dpb_history_drift(const struct dpb_history_point *points, size_t count, double margin,
                       bool higher_is_better, size_t confirm, struct dpb_history_drift *drift);

/* [{"cell", "metric", "commits", "runs"}]; caller owns. */
dpb_status dpb_history_list(dpb_history *history, dpb_json **list);
/* commit,time_s,cell,fingerprint,metric,value,hash: every value, as CSV with a head. */
dpb_status dpb_history_export_csv(dpb_history *history, struct dpb_str *out);
/* The same as an array of objects; caller owns. */
dpb_status dpb_history_export_json(dpb_history *history, dpb_json **list);
/* PRAGMA integrity_check: DPB_ERR_CORRUPT, logged, with what it says. */
dpb_status dpb_history_check(dpb_history *history);

#ifdef __cplusplus
}
#endif
#endif

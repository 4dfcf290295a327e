/* dpb_run_folder.h: the folder of a run: whose it is, what it is called, and its manifest. */
#ifndef DPB_RUN_FOLDER_H
#define DPB_RUN_FOLDER_H

#include <stdbool.h>

#include "dpb_crew.h"
#include "dpb_json.h"
#include "dpb_plan.h"
#include "dpb_registry.h"
#include "dpb_status.h"
#include "dpb_str.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DPB_RECORDS_FILE "records.jsonl"

/* Make the folder of a new run: `wanted`, or runs/<UTC stamp>-<name> below the working folder.
 * Checks that it can be written, and that no other run lies there; one that was killed before it
 * wrote its manifest is none. DPB_ERR_IO or DPB_ERR_USAGE, logged. Caller frees `folder`. */
dpb_status dpb_run_folder_new(const char *wanted, const char *name, char **folder);

/* Read the plan of a run that is to be resumed. */
dpb_status dpb_run_plan_read(const struct dpb_registry *registry, const char *folder,
                             struct dpb_plan *plan);

/* A run whose ranks a launcher started is not to be continued without one: its cells would be of
 * another machine. DPB_ERR_USAGE, logged, with the options that it had. `crew`: NULL for none. */
dpb_status dpb_run_crew_check(const char *folder, const dpb_crew *crew);

/* What continues the run in a folder, as one types it: "dpbench sweep --resume 'my run'" and, where
 * ranks were started by a launcher, the options that it had (" --launcher srun", or ""). */
void dpb_run_resume_command(const char *folder, const char *options, struct dpb_str *command);

/* Two drivers in one folder would disturb each other's measurements and do everything twice: `fd`
 * holds the folder until it is closed (-1 where the file system cannot). What a driver that was
 * killed left half written is removed. DPB_ERR_UNAVAILABLE, logged, when another dpbench runs in
 * it. */
dpb_status dpb_run_folder_lock(const char *folder, int *fd);

/* The run's name: the last part of the folder's full path, or, when it is resumed, what its
 * manifest says, so that a run keeps its name when its folder moves. Caller frees. */
dpb_status dpb_run_folder_name(const char *folder, bool resume, char **run_id);

/* What a manifest says beside the build and the time; all borrowed. */
struct dpb_manifest {
    const char *run_id;
    const char *state; /* running, complete, failed, interrupted */
    const dpb_json *host;
    const struct dpb_plan *plan;
    const dpb_crew *crew; /* NULL: the driver itself */
};

/* Write or replace the manifest, atomically. Errors are logged. */
dpb_status dpb_manifest_write(const char *folder, const struct dpb_manifest *manifest);

#ifdef __cplusplus
}
#endif
#endif

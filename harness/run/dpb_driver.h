/* dpb_driver.h: runs a plan: launches in order, a record each, whatever happens to single cells. */
#ifndef DPB_DRIVER_H
#define DPB_DRIVER_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dpb_crew.h"
#include "dpb_plan.h"
#include "dpb_registry.h"
#include "dpb_status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What is going on, for a progress display. */
struct dpb_progress {
    size_t done, total; /* launches */
    const char *label;  /* of the cell that runs, or has just ended */
    int repeat;
    int64_t step;           /* of the slowest rank; -1 when the launch has ended */
    int64_t steps;          /* it will train; 0 when only the data set tells */
    dpb_status status;      /* when it has ended */
    bool skipped;           /* not launched: DPB_ERR_NO_MEMORY, DPB_ERR_UNSUPPORTED */
    double median_step_ns;  /* when it has ended; NaN when it failed */
    double availability;    /* NaN of a simulated cell */
    bool repeats_for_noise; /* ended below the probe limit, and is tried again */
    int64_t eta_ns;         /* -1: not known yet */
};

struct dpb_driver_config {
    const struct dpb_registry *registry;
    const struct dpb_plan *plan;
    const char *folder; /* the run's, made by dpb_run_folder_new() or resumed */
    dpb_crew *crew;     /* who starts the ranks; NULL: this process. Borrowed */
    bool resume;        /* skip what its records already hold with status ok */
    const volatile sig_atomic_t *interrupted;
    void (*progress)(void *ctx, const struct dpb_progress *progress); /* may be NULL */
    void *progress_ctx;
    /* Add keys to a record before it is written; may be NULL. */
    void (*annotate)(void *ctx, const struct dpb_plan_launch *launch, dpb_json *record);
    void *annotate_ctx;
};

struct dpb_driver_result {
    size_t ok, not_ok, skipped_done; /* launches; done earlier when resuming */
    char first_reason[1024];         /* of the first launch that is not ok */
};

/* Are the parts of all cells available here, and the data set? Can the crew (NULL: this process)
 * start the ranks, and are there hosts enough? Then the mapping is printed where there are several,
 * and cells that were not told how many ranks a node has are told. Logged; nothing is run. */
dpb_status dpb_driver_preflight(const struct dpb_registry *registry, const struct dpb_plan *plan,
                                const dpb_crew *crew);

/* Run the plan. A cell that does not fit into memory, or that the device cannot compute in its
 * precision, is recorded as skipped; that is not ok either (DPB_ERR_NO_MEMORY,
 * DPB_ERR_UNSUPPORTED): a result is missing. DPB_OK when every launch is ok; else the status of the
 * first that is not (DPB_ERR_INTERRUPTED when interrupted). Records and manifest are valid in every
 * case. */
dpb_status dpb_driver_run(const struct dpb_driver_config *config, struct dpb_driver_result *result);

#ifdef __cplusplus
}
#endif
#endif

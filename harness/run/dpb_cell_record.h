/* dpb_cell_record.h: what the ranks of one launch reported -> one record (dpb_record.h). */
#ifndef DPB_CELL_RECORD_H
#define DPB_CELL_RECORD_H

#include <stdint.h>

#include "dpb_crew.h"
#include "dpb_json.h"
#include "dpb_launcher.h"
#include "dpb_memory.h"
#include "dpb_options.h"
#include "dpb_plan.h"
#include "dpb_record.h"
#include "dpb_status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How much of its cores a launch could use, before and after (dpb_probe.h). */
struct dpb_attempt {
    double before, after;  /* of the busiest core */
    double availability;   /* the lesser of the two */
    double median_step_ns; /* NaN when the launch failed */
};

struct dpb_cell_outcome {
    const char *run_id;
    const char *run_folder;
    const struct dpb_registry *registry;
    const struct dpb_plan *plan;
    struct dpb_plan_launch launch;
    int64_t order;
    dpb_status status;               /* of the launch that counts */
    bool skipped;                    /* never launched; the result's reason says why */
    const struct dpb_memory *memory; /* as predicted */
    const struct dpb_memory_limits *memory_limits;
    bool is_virtual;          /* simulated: `sections`, and no rank has reported */
    const dpb_json *sections; /* dpb_simulator.run(); NULL where it failed */
    const struct dpb_launch_result *result;
    const dpb_json *host;               /* dpb_host_json() */
    const dpb_crew *crew;               /* who started the ranks; NULL: the driver itself */
    const struct dpb_attempt *attempts; /* all launches of this cell and repeat */
    int attempt_count;
    int attempt_used;
    double probe_limit;
};

/* Median of the timed steps' times, as in the record; NaN without results. */
double dpb_cell_median_step_ns(const struct dpb_launch_result *result);

/* The same of a simulated cell's sections. */
double dpb_cell_sections_median_ns(const dpb_json *sections);

/* "traces/cell000-repeat0.json": the file of a launch's trace, in the run's folder. */
void dpb_cell_trace_name(const struct dpb_plan_launch *launch, char *name, size_t name_bytes);

/* The options of a launch as its record has them; caller owns. On several nodes ranks_per_node is
 * what `world` (as below) says; null where nodes differ, or where it was not given and `world` is
 * not known. */
dpb_json *dpb_cell_record_config(const dpb_config *config, const dpb_crew *crew,
                                 const dpb_json *world);

/* Into a record: who started the ranks, and which of them were where (dpb_launch_result.world; NULL
 * where it is not known). */
void dpb_cell_record_where(const dpb_crew *crew, const dpb_json *world, dpb_json *record);

/* Build the record, and write the trace of its recorded steps below the run folder. Caller owns. */
dpb_status dpb_cell_record_build(const struct dpb_cell_outcome *outcome, dpb_json **record);

#ifdef __cplusplus
}
#endif
#endif

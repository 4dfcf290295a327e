/* dpb_against.h: a measured run, simulated: its cells on virtual time, and how far off that is. */
#ifndef DPB_AGAINST_H
#define DPB_AGAINST_H

#include <stddef.h>

#include "dpb_json.h"
#include "dpb_plan.h"
#include "dpb_registry.h"
#include "dpb_status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct dpb_against {
    char *folder;
    double *measured_ns; /* per cell of the plan: median over repeats of median steps; NaN: none */
    size_t count;
};

/* The plan of the run in `folder`, with device and comm of `flags` (which say "sim") and whatever
 * else they say over what the run's cells had; what takes no effect in a simulation is left out.
 * DPB_ERR_USAGE and errors of the run's files, logged. Release both. */
dpb_status dpb_against_open(const struct dpb_registry *registry, const char *folder,
                            const struct dpb_settings *flags, struct dpb_against *against,
                            struct dpb_plan *plan);
void dpb_against_release(struct dpb_against *against);

/* Sets a record's "against": {"run", "measured_step_ns", "predicted_step_ns", "error_ratio"};
 * absent where the run has no such cell that is ok. `ctx` is the struct dpb_against. */
void dpb_against_annotate(void *ctx, const struct dpb_plan_launch *launch, dpb_json *record);

#ifdef __cplusplus
}
#endif
#endif

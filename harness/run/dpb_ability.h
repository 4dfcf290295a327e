/* dpb_ability.h: can the device of a cell compute what its workload wants, in the cell's precision?
 * Asked before anything is launched, of devices that compute in the host's memory: opening one
 * costs nothing. An accelerator is asked by its ranks, when they open the workload. */
#ifndef DPB_ABILITY_H
#define DPB_ABILITY_H

#include <stddef.h>

#include "dpb_options.h"
#include "dpb_plan.h"
#include "dpb_registry.h"
#include "dpb_status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A resolved cell. DPB_ERR_UNSUPPORTED with one line in `why`: operator, precision, device and its
 * reason. Errors of opening the device are logged. */
dpb_status dpb_ability_check(const struct dpb_registry *registry, const dpb_config *config,
                             char *why, size_t why_bytes);

/* Every cell of the plan must be possible: DPB_ERR_UNSUPPORTED for the first that is not, logged
 * with the remedy. */
dpb_status dpb_ability_check_plan(const struct dpb_registry *registry, const struct dpb_plan *plan);

#ifdef __cplusplus
}
#endif
#endif

/* ready_set.h: which gradients of a step are complete; each exactly once. */
#ifndef DPB_READY_SET_H
#define DPB_READY_SET_H

#include <stdbool.h>

#include "dpb_workload.h"

struct ready_set {
    const struct dpb_model *model;
    bool *is_ready; /* per parameter */
    int ready_count;
};

/* For the parameters of `model` (borrowed). May be called again for another model. */
dpb_status ready_set_init(struct ready_set *set, const struct dpb_model *model);
void ready_set_release(struct ready_set *set);

/* A step begins: nothing is ready. */
void ready_set_clear(struct ready_set *set);

/* Gradient `param` is complete. DPB_ERR_INTERNAL, logged, when there is no such parameter or it has
 * been reported before. */
dpb_status ready_set_add(struct ready_set *set, int param);

/* Backward is over: DPB_ERR_INTERNAL, logged with the first name, when a gradient is missing. */
dpb_status ready_set_check_complete(const struct ready_set *set);

#endif

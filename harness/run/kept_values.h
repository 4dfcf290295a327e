/* kept_values.h: parameters and state that ranks leave for the launcher, in the launch's bulk
 * memory: what is alike on all ranks by rank 0, what is sharded by the rank that has it, and what
 * is a rank's own not at all. Each rank reports what it left: "kept": [{"name", "what": "parameter"
 * or "state", "step" (after which it was left), "first" (float in the bulk memory), "elements"}] */
#ifndef DPB_RUN_KEPT_VALUES_H
#define DPB_RUN_KEPT_VALUES_H

#include "dpb_launcher.h"
#include "dpb_step.h"
#include "worker_link.h"

/* In a rank. Collective. Adds to `list`, a JSON array. `used`, 0 at first: floats of the bulk
 * memory that all ranks have used. */
dpb_status kept_values_write(dpb_step_engine *engine, dpb_comm *comm, worker_link *link,
                             int64_t *used, dpb_json *list);

/* How far the values of two launches are apart, each compared with the one of the same name. */
struct kept_bounds {
    double atol, rtol; /* |a - b| <= atol + rtol |b| */
};
struct kept_difference {
    size_t tensors, elements;
    size_t differing;    /* elements, in any bit */
    size_t outside;      /* elements beyond the bounds */
    double largest;      /* NaN when a difference is */
    const char *where;   /* the tensor that it is in: text of `b`; "" when there is no difference */
    const char *missing; /* a tensor of `b` that `a` has not, or of another size; NULL: none */
};
/* `what`: "parameter" or "state", as left after step `step`. */
struct kept_difference kept_values_compare(const struct dpb_launch_result *a,
                                           const struct dpb_launch_result *b, const char *what,
                                           int64_t step, const struct kept_bounds *bounds);

#endif

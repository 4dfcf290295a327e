/* dpb_losses.h: what a recorder of an accelerator could not say, and whether figures may be made of
 * the rest. */
#ifndef DPB_LOSSES_H
#define DPB_LOSSES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dpb_json.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The largest share of kernels that may be missing: more than 1 of DPB_LOSSES_PER_KERNELS, and
 * overlap and idle time are not known. */
#define DPB_LOSSES_PER_KERNELS 1000

struct dpb_losses {
    int64_t kernels;         /* recorded, with those of collectives and without times */
    int64_t dropped;         /* records for which the tracer had no room */
    int64_t zero_time;       /* kernels, copies and fills without times */
    int64_t unmatched;       /* kernels without a launch, and launches of graphs without kernels */
    int64_t damaged_buffers; /* that ended in what is no record */
    int64_t repeated;        /* records that were delivered once more, and left out */
    int64_t kernels_per_step_min, kernels_per_step_max; /* of the steps that have one */
    int64_t clock_bound_ns; /* times of the device are off the host's clock by at most this */
    int64_t sync_wait_ns;   /* the host waited for the device in its library's calls */
    int64_t overhead_ns;    /* the tracer's own time on the host */
    char untraced[192];     /* why no device was recorded; "" when it was */
};

/* The members as keys of the same names; `untraced` is null when it is "". NULL: out of memory. */
dpb_json *dpb_losses_to_json(const struct dpb_losses *losses);

/* Add the losses of one more rank, as dpb_losses_to_json() wrote them: sums, but the least and the
 * most kernels of a step, the largest bound of clocks, and the first reason. */
void dpb_losses_add_json(struct dpb_losses *sum, const dpb_json *json);

/* May overlap and idle time be told? If not, one line in `why`. */
bool dpb_losses_are_small(const struct dpb_losses *losses, char *why, size_t why_bytes);

#ifdef __cplusplus
}
#endif
#endif

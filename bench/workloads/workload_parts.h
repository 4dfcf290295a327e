/* workload_parts.h: what networks of every kind do alike. */
#ifndef BENCH_WORKLOAD_PARTS_H
#define BENCH_WORKLOAD_PARTS_H

#include "dpb_workload.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Gradients are cleared by copying zeros: the one way that every device orders on its stream. */
#define DPB_ZEROS_BYTES ((int64_t)65536)

/* The backward pass of no samples: every gradient is zero, and reported in ready order. `zeros` is
 * device memory of DPB_ZEROS_BYTES. */
dpb_status dpb_gradients_clear(const struct dpb_launcher *launcher, const struct dpb_model *model,
                               float *const *grad, const float *zeros, dpb_grad_ready ready,
                               void *ctx);

/* Is the label's value the largest, the first of equal ones? Not where values are not numbers. */
bool dpb_label_wins(const float *value, int64_t classes, int32_t label);

#ifdef __cplusplus
}
#endif
#endif

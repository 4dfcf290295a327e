/* workload_parts.h: what networks of every kind do alike. */
#ifndef BENCH_WORKLOAD_PARTS_H
#define BENCH_WORKLOAD_PARTS_H

#include "dpb_workload.h"
#include "layer_list.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Gradients are cleared by copying zeros: the one way that every device orders on its stream. */
#define DPB_ZEROS_BYTES ((int64_t)65536)

/* The gradient of parameter `param` becomes zero. `zeros` is device memory of DPB_ZEROS_BYTES. */
dpb_status dpb_gradient_clear(const struct dpb_launcher *launcher, const struct dpb_model *model,
                              int param, float *grad, const float *zeros);

/* The backward pass of no samples: every gradient is zero, and reported in ready order. */
dpb_status dpb_gradients_clear(const struct dpb_launcher *launcher, const struct dpb_model *model,
                               float *const *grad, const float *zeros, dpb_grad_ready ready,
                               void *ctx);

/* A linear layer of a layer list, whose parameters are numbered in `param` and `grad`. Forward: y
 * [samples, out] of x [samples, in]. Backward, of dy after its ReLU: the gradients of bias and
 * weight, each reported, and then dx unless NULL, so that gradients travel while it is computed. */
dpb_status dpb_linear_forward(const struct dpb_launcher *launcher, const struct dpb_layer *layer,
                              int64_t samples, const float *x, float *const *param, float *y);
dpb_status dpb_linear_backward(const struct dpb_launcher *launcher, const struct dpb_layer *layer,
                               int64_t samples, const float *x, float *const *param,
                               float *const *grad, const float *dy, float *dx, dpb_grad_ready ready,
                               void *ctx);

/* Is the label's value the largest, the first of equal ones? Not where values are not numbers. */
bool dpb_label_wins(const float *value, int64_t classes, int32_t label);

#ifdef __cplusplus
}
#endif
#endif

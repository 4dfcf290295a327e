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
dpb_status dpb_gradients_clear(const struct dpb_launcher *launcher,
                               const struct dpb_param_watch *watch, const struct dpb_model *model,
                               float *const *grad, const float *zeros, dpb_grad_ready ready,
                               void *ctx);
/* A forward pass of no samples: every parameter is announced, since other ranks may need what this
 * one has of it, in the order in which a forward pass uses them: the ready order, backwards. */
dpb_status dpb_params_use_all(const struct dpb_param_watch *watch, const struct dpb_model *model);

/* What a linear layer reads. */
struct dpb_linear {
    enum dpb_dtype dtype; /* of x, weight and y and of the gradients of x and y */
    int64_t samples;
    const void *x, *weight; /* [samples, in], [out, in] */
    const float *bias;      /* [out] or NULL */
};

/* A linear layer in any type. Forward: y [samples, out]. Backward, of dy after its ReLU: the fp32
 * gradients of bias and weight, by number in `grad`, each reported, and then dx unless NULL, so
 * that gradients travel while it is computed. */
dpb_status dpb_linear_forward(const struct dpb_launcher *launcher, const struct dpb_layer *layer,
                              const struct dpb_linear *linear, void *y);
dpb_status dpb_linear_backward(const struct dpb_launcher *launcher, const struct dpb_layer *layer,
                               const struct dpb_linear *linear, float *const *grad, const void *dy,
                               void *dx, dpb_grad_ready ready, void *ctx);

/* Is the label's value the largest, the first of equal ones? Not where values are not numbers. */
bool dpb_label_wins(const float *value, int64_t classes, int32_t label);

#ifdef __cplusplus
}
#endif
#endif

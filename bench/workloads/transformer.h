/* transformer.h: forward and backward pass of the networks of transformer_list.h, through the
 * operators of a device.
 *
 * These functions are the members of dpb_workload_ops; a workload brings its shape and its own
 * open().
 *
 * Dropout is where the networks were published with it: after the embeddings (BERT: after their
 * norm), on the probabilities of attention, and on the output of attention and of the wide layers
 * before it is added to what went around; not in the heads. Masks depend on the seed, the step and
 * a sample's place in the global batch, so that runs compare across rank counts.
 *
 * In mixed precision (bf16 or fp16), as under PyTorch's autocast, matrix products and what is kept
 * of activations are narrow, from copies of the weights made at the beginning of each forward pass;
 * parameters, gradients, logits, losses and statistics of norms are fp32.
 *
 * A sample's loss is the mean cross-entropy of its predicted tokens; BERT adds the cross-entropy of
 * "does the second segment follow the first". Samples add up, so that P ranks with a share each
 * give what one rank with all of them gives. `correct` counts the samples whose label BERT's
 * sentence head finds; for GPT-2, which has no label, those whose last token it predicts. */
#ifndef BENCH_TRANSFORMER_H
#define BENCH_TRANSFORMER_H

#include "transformer_list.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `list` stays the caller's and must outlive the workload. `dropout`: probability that an element
 * is dropped in training, from 0 (nothing is) to below 1. */
dpb_status dpb_transformer_open(const struct dpb_workload_ops *ops,
                                const struct dpb_transformer_list *list, double dropout,
                                const struct dpb_workload_config *config, dpb_workload **workload);
void dpb_transformer_close(dpb_workload *workload);
void dpb_transformer_bind(dpb_workload *workload, float *const *param, float *const *grad);
dpb_status dpb_transformer_init_params(dpb_workload *workload, uint64_t seed);
dpb_status dpb_transformer_forward(dpb_workload *workload, const struct dpb_batch *batch,
                                   bool training, int64_t slot);
dpb_status dpb_transformer_read_result(dpb_workload *workload, int64_t slot,
                                       struct dpb_forward_result *result);
dpb_status dpb_transformer_backward(dpb_workload *workload, const struct dpb_batch *batch,
                                    float grad_scale, dpb_grad_ready ready, void *ctx);
int64_t dpb_transformer_activation_bytes(dpb_workload *workload);
/* What open() would allocate for this list, exactly; of `sizes`, precision and batch_max. */
int64_t dpb_transformer_activation_bytes_for(const struct dpb_transformer_list *list,
                                             const struct dpb_workload_sizes *sizes);
/* What it would take of an accelerator's host_alloc(); of `sizes`, batch_max and results. */
int64_t dpb_transformer_host_bytes_for(const struct dpb_transformer_list *list,
                                       const struct dpb_workload_sizes *sizes);
/* The set of operators that it launches in that precision (dpb_workload.h). */
uint64_t dpb_transformer_operators(const struct dpb_transformer_list *list, double dropout,
                                   enum dpb_dtype precision);

#ifdef __cplusplus
}
#endif
#endif

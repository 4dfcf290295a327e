/* network.h: forward and backward pass of a list of layers, through the operators of a device.
 *
 * These functions are the members of dpb_workload_ops for every network that is a layer list with a
 * softmax cross-entropy at its end; a workload brings its layer list and its own open().
 *
 * Batch normalisation keeps its running statistics here. They are not parameters: no gradient
 * changes them, and the comparison of replicas does not look at them. As a rule they are local to
 * each rank: ranks see different samples, so their statistics differ after a step. They are the
 * buffers of the model (dpb_model.buffer_numel), which strategy `ddp` makes rank 0's before
 * forward. With sync_batch_statistics, as under PyTorch's SyncBatchNorm, each layer normalises by
 * the statistics of the global batch, and every rank has the same running statistics. */
#ifndef BENCH_NETWORK_H
#define BENCH_NETWORK_H

#include "layer_list.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `list` stays the caller's and must outlive the workload. */
dpb_status dpb_network_open(const struct dpb_workload_ops *ops, const struct dpb_layer_list *list,
                            const struct dpb_workload_config *config, dpb_workload **workload);
void dpb_network_close(dpb_workload *workload);
void dpb_network_bind(dpb_workload *workload, float *const *param, float *const *grad);
/* Also resets running statistics, to mean 0 and variance 1. */
dpb_status dpb_network_init_params(dpb_workload *workload, uint64_t seed);
dpb_status dpb_network_forward(dpb_workload *workload, const struct dpb_batch *batch, bool training,
                               int64_t slot);
dpb_status dpb_network_read_result(dpb_workload *workload, int64_t slot,
                                   struct dpb_forward_result *result);
dpb_status dpb_network_backward(dpb_workload *workload, const struct dpb_batch *batch,
                                float grad_scale, dpb_grad_ready ready, void *ctx);
/* The running statistics, layer by layer: "bn1.running_mean", "bn1.running_var". */
/* With statistics of all ranks, which the host combines. */
bool dpb_network_needs_host(dpb_workload *workload);
bool dpb_network_state(dpb_workload *workload, int index, struct dpb_workload_state *state);
int64_t dpb_network_activation_bytes(dpb_workload *workload);

/* What dpb_network_activation_bytes() would say of a workload opened for these sizes. */
int64_t dpb_network_activation_bytes_for(const struct dpb_layer_list *list,
                                         const struct dpb_workload_sizes *sizes);

/* Members of a workload's table. */
int64_t dpb_network_host_bytes_for(const struct dpb_layer_list *list,
                                   const struct dpb_workload_sizes *sizes);
/* The statistics of synchronised batch normalisation. */
int dpb_network_exchanges(const struct dpb_layer_list *list, const struct dpb_workload_sizes *sizes,
                          struct dpb_workload_exchange *exchanges);
uint64_t dpb_network_operators(const struct dpb_layer_list *list,
                               const struct dpb_workload_sizes *sizes);

/* Is the batch one that this workload can take? DPB_ERR_USAGE, logged, when it has more samples
 * than `batch_max` or a label outside the classes. */
dpb_status dpb_batch_check(const struct dpb_workload_ops *ops, const struct dpb_model *model,
                           int64_t batch_max, const struct dpb_batch *batch);

#ifdef __cplusplus
}
#endif
#endif

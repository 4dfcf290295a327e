/* dlrm.h: forward and backward pass of a recommendation model, through the operators of a device.
 *
 * These functions are members of dpb_workload_ops; a workload brings its list and its open(). */
#ifndef BENCH_DLRM_H
#define BENCH_DLRM_H

#include "dlrm_list.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `list` stays the caller's and must outlive the workload. */
dpb_status dpb_dlrm_open(const struct dpb_workload_ops *ops, const struct dpb_dlrm_list *list,
                         const struct dpb_workload_config *config, dpb_workload **workload);
void dpb_dlrm_close(dpb_workload *workload);
void dpb_dlrm_bind(dpb_workload *workload, float *const *param, float *const *grad);
dpb_status dpb_dlrm_init_params(dpb_workload *workload, uint64_t seed);
dpb_status dpb_dlrm_forward(dpb_workload *workload, const struct dpb_batch *batch, bool training,
                            int64_t slot);
dpb_status dpb_dlrm_read_result(dpb_workload *workload, int64_t slot,
                                struct dpb_forward_result *result);
/* With tables that are not parameters: the host counts the rows that a batch uses. */
bool dpb_dlrm_needs_host(dpb_workload *workload);
dpb_status dpb_dlrm_backward(dpb_workload *workload, const struct dpb_batch *batch,
                             float grad_scale, dpb_grad_ready ready, void *ctx);
bool dpb_dlrm_state(dpb_workload *workload, int index, struct dpb_workload_state *state);
dpb_status dpb_dlrm_update(dpb_workload *workload, const struct dpb_optimizer_config *optimizer,
                           int64_t step);
int64_t dpb_dlrm_activation_bytes(dpb_workload *workload);
/* What open() would allocate for this list, exactly. */
int64_t dpb_dlrm_activation_bytes_for(const struct dpb_dlrm_list *list,
                                      const struct dpb_workload_sizes *sizes);
/* What open() would take of an accelerator's host_alloc(). */
int64_t dpb_dlrm_host_bytes_for(const struct dpb_dlrm_list *list,
                                const struct dpb_workload_sizes *sizes);
/* What tables that are not parameters exchange. */
int dpb_dlrm_exchanges(const struct dpb_dlrm_list *list, const struct dpb_workload_sizes *sizes,
                       struct dpb_workload_exchange *exchanges);
/* The member of a workload's table: the MLPs' operators, where they are not in fp32. */
uint64_t dpb_dlrm_operators(const void *options, const struct dpb_workload_sizes *sizes);

#ifdef __cplusplus
}
#endif
#endif

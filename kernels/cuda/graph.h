/* graph.h: what cuDNN's graphs are built of. Private to kernels/cuda.
 *
 * A builder makes descriptors and destroys them together. Its first failure stays with its reason
 * and turns the calls after it into nothing, so that a graph is written down without a check at
 * every line; whoever asked for it reads `status` at the end, and decides whether that is an
 * error. */
#ifndef DPB_CUDA_GRAPH_H
#define DPB_CUDA_GRAPH_H

#include <stdbool.h>
#include <stdint.h>

#include "cudnn_table.h"
#include "dpb_types.h"

#define DPB_GRAPH_DESCRIPTORS_MAX 40
#define DPB_GRAPH_WHY_BYTES       512

/* What plans are for: a handle's device, or one that is only described. */
struct dpb_graph_target {
    const struct dpb_cudnn *cudnn;
    cudnnHandle_t handle;                /* NULL: `properties` */
    cudnnBackendDescriptor_t properties; /* NULL with a handle */
};

/* Put a device that is only described, by cuDNN's JSON, into `target`; the caller destroys
 * target->properties. Logged; DPB_ERR_VENDOR and others with cuDNN's reason. */
dpb_status dpb_graph_target_describe(struct dpb_graph_target *target, const char *json);

struct dpb_graph {
    struct dpb_graph_target target;
    cudnnBackendDescriptor_t made[DPB_GRAPH_DESCRIPTORS_MAX];
    int count;
    cudnnStatus_t status;          /* of the first call that failed */
    char why[DPB_GRAPH_WHY_BYTES]; /* the last reason, also of what only proposed no engine */
};

void dpb_graph_init(struct dpb_graph *graph, const struct dpb_graph_target *target);
/* Destroys its descriptors. Plans made from it do not need them. */
void dpb_graph_release(struct dpb_graph *graph);

/* ---- descriptors; NULL after a failure ---- */

cudnnBackendDescriptor_t dpb_graph_new(struct dpb_graph *graph, cudnnBackendDescriptorType_t type);
void dpb_graph_set(struct dpb_graph *graph, cudnnBackendDescriptor_t descriptor,
                   cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                   int64_t count, const void *elements);
void dpb_graph_set_descriptor(struct dpb_graph *graph, cudnnBackendDescriptor_t descriptor,
                              cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value);
/* Returns `descriptor`, for the last line of a function that makes one. */
cudnnBackendDescriptor_t dpb_graph_finalize(struct dpb_graph *graph,
                                            cudnnBackendDescriptor_t descriptor);

enum dpb_graph_tensor_kind {
    DPB_GRAPH_MEMORY,  /* bound to memory when the plan runs */
    DPB_GRAPH_VIRTUAL, /* only between two operations */
    DPB_GRAPH_SCALAR   /* one value, given by the host when the plan runs */
};

/* Dimensions n, c, h, w in cuDNN's order, in memory as NHWC. */
cudnnBackendDescriptor_t dpb_graph_tensor(struct dpb_graph *graph, int64_t uid,
                                          enum dpb_dtype dtype, const int64_t dim[4],
                                          enum dpb_graph_tensor_kind kind);

/* y = mode(x, b), or mode(x) with b NULL; in fp32. */
cudnnBackendDescriptor_t dpb_graph_pointwise(struct dpb_graph *graph, cudnnPointwiseMode_t mode,
                                             cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t b,
                                             cudnnBackendDescriptor_t y);
/* dx = dy where x was above 0; in fp32. */
cudnnBackendDescriptor_t dpb_graph_relu_bwd(struct dpb_graph *graph, cudnnBackendDescriptor_t x,
                                            cudnnBackendDescriptor_t dy,
                                            cudnnBackendDescriptor_t dx);

/* The graph of these operations, finalised. */
cudnnBackendDescriptor_t dpb_graph_operations(struct dpb_graph *graph,
                                              const cudnnBackendDescriptor_t *operations,
                                              int count);

/* ---- engines and plans ---- */

/* Configurations that the heuristics propose for `operations`, best first; at most `max`, which the
 * caller destroys. 0 with the reason in graph->why is no failure of the graph. */
int dpb_graph_propose(struct dpb_graph *graph, cudnnBackendDescriptor_t operations,
                      cudnnBackendHeurMode_t mode, cudnnBackendDescriptor_t *configs, int max);

struct dpb_graph_engine {
    int64_t number;
    unsigned notes; /* 1 << CUDNN_NUMERICAL_NOTE_... */
};

/* What the library says of the engine of a configuration; all notes where it says nothing. */
struct dpb_graph_engine dpb_graph_engine_of(struct dpb_graph *graph,
                                            cudnnBackendDescriptor_t config);

/* A finalised execution plan, which the caller destroys, and the workspace that it needs; NULL with
 * the reason in graph->why is no failure of the graph. */
cudnnBackendDescriptor_t dpb_graph_plan(struct dpb_graph *graph, cudnnBackendDescriptor_t config,
                                        size_t *workspace_bytes);

#endif

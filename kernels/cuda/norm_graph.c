#include "conv_graph_private.h"

#include <stdio.h>

#define ENGINES_MAX 64

enum uid {
    UID_X = 1,
    UID_Y,
    UID_DY,
    UID_DX,
    UID_BETWEEN,
    UID_CHANNELS /* and above: one value per channel, or one at all */
};

struct channels {
    cudnnBackendAttributeName_t name;
    enum dpb_graph_tensor_kind kind;
};

#define CHANNELS(name)                                                                             \
    {                                                                                              \
        CUDNN_ATTR_OPERATION_NORM_##name##_DESC, DPB_GRAPH_MEMORY                                  \
    }
#define ONE(name)                                                                                  \
    {                                                                                              \
        CUDNN_ATTR_OPERATION_NORM_##name##_DESC, DPB_GRAPH_SCALAR                                  \
    }

static const struct channels FWD[] = {
        CHANNELS(FWD_MEAN),
        CHANNELS(FWD_INV_VARIANCE),
        CHANNELS(FWD_SCALE),
        CHANNELS(FWD_BIAS),
        ONE(FWD_EPSILON),
        ONE(FWD_EXP_AVG_FACTOR),
        CHANNELS(FWD_INPUT_RUNNING_MEAN),
        CHANNELS(FWD_INPUT_RUNNING_VAR),
        CHANNELS(FWD_OUTPUT_RUNNING_MEAN),
        CHANNELS(FWD_OUTPUT_RUNNING_VAR),
};
static const struct channels BWD[] = {
        CHANNELS(BWD_MEAN),   CHANNELS(BWD_INV_VARIANCE), CHANNELS(BWD_SCALE),
        CHANNELS(BWD_DSCALE), CHANNELS(BWD_DBIAS),
};

/* Statistics, scales and their gradients: fp32 whatever the activations are. */
static void set_channels(struct dpb_graph *graph, cudnnBackendDescriptor_t norm,
                         const struct channels *of, int count, int64_t channels)
{
    for (int i = 0; i < count; i++) {
        const int64_t dim[4] = {1, of[i].kind == DPB_GRAPH_SCALAR ? 1 : channels, 1, 1};
        dpb_graph_set_descriptor(
                graph, norm, of[i].name,
                dpb_graph_tensor(graph, UID_CHANNELS + i, DPB_F32, dim, of[i].kind));
    }
}

/* y = norm(x), or relu(norm(x)). */
static cudnnBackendDescriptor_t forward(struct dpb_graph *graph, enum dpb_dtype dtype,
                                        const int64_t dim[4], bool relu)
{
    const cudnnBackendNormMode_t mode = CUDNN_BATCH_NORM;
    const cudnnBackendNormFwdPhase_t phase = CUDNN_NORM_FWD_TRAINING;
    cudnnBackendDescriptor_t operation[2];
    cudnnBackendDescriptor_t x = dpb_graph_tensor(graph, UID_X, dtype, dim, DPB_GRAPH_MEMORY);
    cudnnBackendDescriptor_t y = dpb_graph_tensor(graph, UID_Y, dtype, dim, DPB_GRAPH_MEMORY);
    cudnnBackendDescriptor_t normed =
            relu ? dpb_graph_tensor(graph, UID_BETWEEN, DPB_F32, dim, DPB_GRAPH_VIRTUAL) : y;

    cudnnBackendDescriptor_t norm =
            dpb_graph_new(graph, CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR);
    dpb_graph_set(graph, norm, CUDNN_ATTR_OPERATION_NORM_FWD_MODE, CUDNN_TYPE_NORM_MODE, 1, &mode);
    dpb_graph_set(graph, norm, CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_TYPE_NORM_FWD_PHASE, 1,
                  &phase);
    dpb_graph_set_descriptor(graph, norm, CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, x);
    dpb_graph_set_descriptor(graph, norm, CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, normed);
    set_channels(graph, norm, FWD, sizeof(FWD) / sizeof(FWD[0]), dim[1]);
    operation[0] = dpb_graph_finalize(graph, norm);
    if (relu)
        operation[1] = dpb_graph_pointwise(graph, CUDNN_POINTWISE_RELU_FWD, normed, NULL, y);
    return dpb_graph_operations(graph, operation, relu ? 2 : 1);
}

/* dx from x and dy, which with `relu` is 0 where y was not above 0. */
static cudnnBackendDescriptor_t backward(struct dpb_graph *graph, enum dpb_dtype dtype,
                                         const int64_t dim[4], bool relu)
{
    const cudnnBackendNormMode_t mode = CUDNN_BATCH_NORM;
    cudnnBackendDescriptor_t operation[2];
    int count = 0;
    cudnnBackendDescriptor_t x = dpb_graph_tensor(graph, UID_X, dtype, dim, DPB_GRAPH_MEMORY);
    cudnnBackendDescriptor_t dy = dpb_graph_tensor(graph, UID_DY, dtype, dim, DPB_GRAPH_MEMORY);
    cudnnBackendDescriptor_t dx = dpb_graph_tensor(graph, UID_DX, dtype, dim, DPB_GRAPH_MEMORY);

    if (relu) {
        cudnnBackendDescriptor_t y = dpb_graph_tensor(graph, UID_Y, dtype, dim, DPB_GRAPH_MEMORY);
        cudnnBackendDescriptor_t masked =
                dpb_graph_tensor(graph, UID_BETWEEN, DPB_F32, dim, DPB_GRAPH_VIRTUAL);
        operation[count++] = dpb_graph_relu_bwd(graph, y, dy, masked);
        dy = masked;
    }
    cudnnBackendDescriptor_t norm =
            dpb_graph_new(graph, CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR);
    dpb_graph_set(graph, norm, CUDNN_ATTR_OPERATION_NORM_BWD_MODE, CUDNN_TYPE_NORM_MODE, 1, &mode);
    dpb_graph_set_descriptor(graph, norm, CUDNN_ATTR_OPERATION_NORM_BWD_XDESC, x);
    dpb_graph_set_descriptor(graph, norm, CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC, dy);
    dpb_graph_set_descriptor(graph, norm, CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC, dx);
    set_channels(graph, norm, BWD, sizeof(BWD) / sizeof(BWD[0]), dim[1]);
    operation[count++] = dpb_graph_finalize(graph, norm);
    return dpb_graph_operations(graph, operation, count);
}

int dpb_conv_graphs_norm_engines(struct dpb_conv_graphs *graphs, enum dpb_norm_pass pass,
                                 enum dpb_dtype dtype, int64_t n, int64_t h, int64_t w, int64_t c,
                                 bool relu, char *why, size_t why_bytes)
{
    const int64_t dim[4] = {n, c, h, w};
    cudnnBackendDescriptor_t config[ENGINES_MAX];
    struct dpb_graph graph;

    dpb_graph_init(&graph, &graphs->target);
    cudnnBackendDescriptor_t operations = pass == DPB_NORM_FWD ? forward(&graph, dtype, dim, relu)
                                                               : backward(&graph, dtype, dim, relu);
    int found = dpb_graph_propose(&graph, operations, CUDNN_HEUR_MODE_A, config, ENGINES_MAX);
    for (int i = 0; i < found; i++)
        graphs->target.cudnn->cudnnBackendDestroyDescriptor(config[i]);
    snprintf(why, why_bytes, "%s", found ? "" : graph.why[0] ? graph.why : "no engine proposed");
    dpb_graph_release(&graph);
    return found;
}

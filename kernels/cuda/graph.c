#include "graph.h"

#include <stdio.h>
#include <string.h>

#define ALIGNMENT_BYTES 16

dpb_status dpb_graph_target_describe(struct dpb_graph_target *target, const char *json)
{
    const struct dpb_cudnn *cudnn = target->cudnn;
    const char *const what = "device properties";
    cudnnBackendDescriptor_t made = NULL;

    DPB_TRY(dpb_cudnn_check(
            cudnn, cudnn->cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &made),
            what));
    cudnnStatus_t status =
            cudnn->cudnnBackendSetAttribute(made, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                            CUDNN_TYPE_CHAR, (int64_t)strlen(json), json);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnn->cudnnBackendFinalize(made);
    dpb_status st = dpb_cudnn_check(cudnn, status, what);
    if (st < 0)
        cudnn->cudnnBackendDestroyDescriptor(made);
    else
        target->properties = made;
    return st;
}

void dpb_graph_init(struct dpb_graph *graph, const struct dpb_graph_target *target)
{
    graph->target = *target;
    graph->count = 0;
    graph->status = CUDNN_STATUS_SUCCESS;
    graph->why[0] = '\0';
}

void dpb_graph_release(struct dpb_graph *graph)
{
    while (graph->count > 0)
        graph->target.cudnn->cudnnBackendDestroyDescriptor(graph->made[--graph->count]);
}

static bool failed(const struct dpb_graph *graph)
{
    return graph->status != CUDNN_STATUS_SUCCESS;
}

/* Keep a failure's reason; false for a failure. */
static bool explain(struct dpb_graph *graph, cudnnStatus_t status)
{
    if (status != CUDNN_STATUS_SUCCESS)
        dpb_cudnn_reason(graph->target.cudnn, status, graph->why, sizeof(graph->why));
    return status == CUDNN_STATUS_SUCCESS;
}

static bool note(struct dpb_graph *graph, cudnnStatus_t status)
{
    bool ok = explain(graph, status);
    if (!ok)
        graph->status = status;
    return ok;
}

cudnnBackendDescriptor_t dpb_graph_new(struct dpb_graph *graph, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t made = NULL;
    if (failed(graph))
        return NULL;
    if (graph->count == DPB_GRAPH_DESCRIPTORS_MAX) {
        graph->status = CUDNN_STATUS_INTERNAL_ERROR;
        snprintf(graph->why, sizeof(graph->why), "more than %d descriptors in a graph",
                 DPB_GRAPH_DESCRIPTORS_MAX);
        return NULL;
    }
    if (!note(graph, graph->target.cudnn->cudnnBackendCreateDescriptor(type, &made)))
        return NULL;
    graph->made[graph->count++] = made;
    return made;
}

void dpb_graph_set(struct dpb_graph *graph, cudnnBackendDescriptor_t descriptor,
                   cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                   int64_t count, const void *elements)
{
    if (!failed(graph))
        note(graph, graph->target.cudnn->cudnnBackendSetAttribute(descriptor, name, type, count,
                                                                  elements));
}

void dpb_graph_set_descriptor(struct dpb_graph *graph, cudnnBackendDescriptor_t descriptor,
                              cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value)
{
    dpb_graph_set(graph, descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

cudnnBackendDescriptor_t dpb_graph_finalize(struct dpb_graph *graph,
                                            cudnnBackendDescriptor_t descriptor)
{
    if (failed(graph) || !note(graph, graph->target.cudnn->cudnnBackendFinalize(descriptor)))
        return NULL;
    return descriptor;
}

static cudnnDataType_t data_type(enum dpb_dtype dtype)
{
    switch (dtype) {
    case DPB_BF16:
        return CUDNN_DATA_BFLOAT16;
    case DPB_F16:
        return CUDNN_DATA_HALF;
    default:
        return CUDNN_DATA_FLOAT;
    }
}

cudnnBackendDescriptor_t dpb_graph_tensor(struct dpb_graph *graph, int64_t uid,
                                          enum dpb_dtype dtype, const int64_t dim[4],
                                          enum dpb_graph_tensor_kind kind)
{
    const int64_t c = dim[1], h = dim[2], w = dim[3];
    const int64_t stride[4] = {c * h * w, 1, c * w, c}, alignment = ALIGNMENT_BYTES;
    const cudnnDataType_t type = data_type(dtype);
    const bool yes = true;

    cudnnBackendDescriptor_t tensor = dpb_graph_new(graph, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    dpb_graph_set(graph, tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
    dpb_graph_set(graph, tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    dpb_graph_set(graph, tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    dpb_graph_set(graph, tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dim);
    dpb_graph_set(graph, tensor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride);
    if (kind == DPB_GRAPH_VIRTUAL)
        dpb_graph_set(graph, tensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes);
    if (kind == DPB_GRAPH_SCALAR)
        dpb_graph_set(graph, tensor, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &yes);
    return dpb_graph_finalize(graph, tensor);
}

static cudnnBackendDescriptor_t pointwise_operation(struct dpb_graph *graph,
                                                    cudnnPointwiseMode_t mode)
{
    const cudnnDataType_t fp32 = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t what = dpb_graph_new(graph, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    dpb_graph_set(graph, what, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    dpb_graph_set(graph, what, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &fp32);
    dpb_graph_finalize(graph, what);
    cudnnBackendDescriptor_t operation =
            dpb_graph_new(graph, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    dpb_graph_set_descriptor(graph, operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, what);
    return operation;
}

cudnnBackendDescriptor_t dpb_graph_pointwise(struct dpb_graph *graph, cudnnPointwiseMode_t mode,
                                             cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t b,
                                             cudnnBackendDescriptor_t y)
{
    cudnnBackendDescriptor_t operation = pointwise_operation(graph, mode);
    dpb_graph_set_descriptor(graph, operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b)
        dpb_graph_set_descriptor(graph, operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    dpb_graph_set_descriptor(graph, operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    return dpb_graph_finalize(graph, operation);
}

cudnnBackendDescriptor_t dpb_graph_relu_bwd(struct dpb_graph *graph, cudnnBackendDescriptor_t x,
                                            cudnnBackendDescriptor_t dy,
                                            cudnnBackendDescriptor_t dx)
{
    cudnnBackendDescriptor_t operation = pointwise_operation(graph, CUDNN_POINTWISE_RELU_BWD);
    dpb_graph_set_descriptor(graph, operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    dpb_graph_set_descriptor(graph, operation, CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, dy);
    dpb_graph_set_descriptor(graph, operation, CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, dx);
    return dpb_graph_finalize(graph, operation);
}

cudnnBackendDescriptor_t dpb_graph_operations(struct dpb_graph *graph,
                                              const cudnnBackendDescriptor_t *operations, int count)
{
    cudnnBackendDescriptor_t all = dpb_graph_new(graph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    if (graph->target.handle)
        dpb_graph_set(graph, all, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1,
                      &graph->target.handle);
    dpb_graph_set(graph, all, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count,
                  operations);
    return dpb_graph_finalize(graph, all);
}

/* ---- engines and plans ---- */

/* A descriptor outside of `made`. NULL with graph->why. */
static cudnnBackendDescriptor_t loose(struct dpb_graph *graph, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t made = NULL;
    return explain(graph, graph->target.cudnn->cudnnBackendCreateDescriptor(type, &made)) ? made
                                                                                          : NULL;
}

static bool give(struct dpb_graph *graph, cudnnBackendDescriptor_t to,
                 cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                 const void *element)
{
    return explain(graph,
                   graph->target.cudnn->cudnnBackendSetAttribute(to, name, type, 1, element));
}

static int take_results(struct dpb_graph *graph, cudnnBackendDescriptor_t heuristics,
                        cudnnBackendDescriptor_t *configs, int max)
{
    const struct dpb_cudnn *cudnn = graph->target.cudnn;
    int64_t found = 0;
    int made = 0;

    if (!explain(graph,
                 cudnn->cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &found, NULL)))
        return 0;
    while (made < max && made < found) {
        configs[made] = loose(graph, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
        if (!configs[made])
            break;
        made++;
    }
    found = 0;
    if (made > 0 && !explain(graph, cudnn->cudnnBackendGetAttribute(
                                            heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                            CUDNN_TYPE_BACKEND_DESCRIPTOR, made, &found, configs)))
        found = 0;
    while (made > found)
        cudnn->cudnnBackendDestroyDescriptor(configs[--made]);
    return made;
}

int dpb_graph_propose(struct dpb_graph *graph, cudnnBackendDescriptor_t operations,
                      cudnnBackendHeurMode_t mode, cudnnBackendDescriptor_t *configs, int max)
{
    const struct dpb_cudnn *cudnn = graph->target.cudnn;
    if (failed(graph))
        return 0;
    cudnnBackendDescriptor_t heuristics = loose(graph, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    if (!heuristics)
        return 0;
    int found = 0;
    if (give(graph, heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
             CUDNN_TYPE_BACKEND_DESCRIPTOR, &operations) &&
        give(graph, heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, &mode) &&
        (graph->target.handle || give(graph, heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP,
                                      CUDNN_TYPE_BACKEND_DESCRIPTOR, &graph->target.properties)) &&
        explain(graph, cudnn->cudnnBackendFinalize(heuristics)))
        found = take_results(graph, heuristics, configs, max);
    cudnn->cudnnBackendDestroyDescriptor(heuristics);
    return found;
}

/* Its numerical notes as bits; all of them where the library does not say. */
static unsigned notes_of(struct dpb_graph *graph, cudnnBackendDescriptor_t engine)
{
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t count = 0;
    unsigned found = 0;
    if (!explain(graph, graph->target.cudnn->cudnnBackendGetAttribute(
                                engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes)))
        return ~0U;
    for (int64_t i = 0; i < count && i < CUDNN_NUMERICAL_NOTE_TYPE_COUNT; i++)
        found |= 1U << notes[i];
    return found;
}

struct dpb_graph_engine dpb_graph_engine_of(struct dpb_graph *graph,
                                            cudnnBackendDescriptor_t config)
{
    const struct dpb_cudnn *cudnn = graph->target.cudnn;
    struct dpb_graph_engine found = {.number = -1, .notes = ~0U};
    int64_t count = 0;

    cudnnBackendDescriptor_t engine = loose(graph, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    if (!engine)
        return found;
    if (explain(graph, cudnn->cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
                                                       &engine)) &&
        explain(graph, cudnn->cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX,
                                                       CUDNN_TYPE_INT64, 1, &count, &found.number)))
        found.notes = notes_of(graph, engine);
    cudnn->cudnnBackendDestroyDescriptor(engine);
    return found;
}

cudnnBackendDescriptor_t dpb_graph_plan(struct dpb_graph *graph, cudnnBackendDescriptor_t config,
                                        size_t *workspace_bytes)
{
    const struct dpb_cudnn *cudnn = graph->target.cudnn;
    const bool on_device = graph->target.handle != NULL;
    int64_t bytes = 0, count = 0;

    if (failed(graph))
        return NULL;
    cudnnBackendDescriptor_t plan = loose(graph, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    if (!plan)
        return NULL;
    if (give(graph, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR,
             &config) &&
        give(graph, plan,
             on_device ? CUDNN_ATTR_EXECUTION_PLAN_HANDLE : CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
             on_device ? CUDNN_TYPE_HANDLE : CUDNN_TYPE_BACKEND_DESCRIPTOR,
             on_device ? (const void *)&graph->target.handle
                       : (const void *)&graph->target.properties) &&
        explain(graph, cudnn->cudnnBackendFinalize(plan)) &&
        explain(graph,
                cudnn->cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                                CUDNN_TYPE_INT64, 1, &count, &bytes))) {
        *workspace_bytes = bytes > 0 ? (size_t)bytes : 0;
        return plan;
    }
    cudnn->cudnnBackendDestroyDescriptor(plan);
    return NULL;
}

#include "conv_graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"
#include "conv_graph_private.h"

#define CONFIGS_MAX 48  /* of one heuristics mode */
#define PACKS_MAX   512 /* sets of buffers of one plan; more take turns */
#define TEXT_BYTES  160
#define KEY_NUMBERS 16
#define NOT_TIMED   (INT64_MAX - 1) /* for lack of memory; less than what did not run */

enum uid {
    UID_X = 1,
    UID_W,
    UID_Y,
    UID_BIAS,
    UID_BETWEEN /* and UID_BETWEEN + 1: virtual */
};

/* The shape as numbers, so that plans compare without the struct's padding. */
struct key {
    int64_t number[KEY_NUMBERS];
};

/* Buffers bound to a plan. */
struct pack {
    struct dpb_conv_buffers buffers;
    cudnnBackendDescriptor_t descriptor;
};

struct dpb_conv_plan {
    struct dpb_conv_plan *next;
    const struct dpb_graph_target *target;
    struct key key;
    struct dpb_conv_shape shape;
    cudnnBackendDescriptor_t config, plan; /* the plan refers to its configuration */
    size_t workspace_bytes;
    bool fused;
    struct pack *packs;
    int pack_count, pack_room, pack_next;
    char text[TEXT_BYTES];
};

/* ---- the operation of each pass ---- */

struct pass {
    const char *text;
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t x, w, y, conv, alpha, beta;
};

static const struct pass PASSES[] = {
        [DPB_CONV_FWD] = {.text = "conv-fwd",
                          .type = CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                          .x = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                          .w = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                          .y = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                          .conv = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                          .alpha = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                          .beta = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
        [DPB_CONV_BWD_DATA] = {.text = "conv-bwd-data",
                               .type = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                               .x = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                               .w = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                               .y = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                               .conv = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                               .alpha = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                               .beta = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
        [DPB_CONV_BWD_WEIGHTS] =
                {.text = "conv-bwd-weights",
                 .type = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                 .x = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                 .w = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                 .y = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                 .conv = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                 .alpha = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                 .beta = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

static void put_shape(const struct dpb_conv_shape *shape, char *text, size_t bytes)
{
    snprintf(text, bytes,
             "%s x[%lld,%lld,%lld,%lld] w[%lld,%lld,%lld,%lld] y[%lld,%lld,%lld,%lld] stride %lld "
             "pad %lld %s",
             PASSES[shape->pass].text, (long long)shape->n, (long long)shape->h,
             (long long)shape->w, (long long)shape->c, (long long)shape->k, (long long)shape->r,
             (long long)shape->s, (long long)shape->c, (long long)shape->n, (long long)shape->out_h,
             (long long)shape->out_w, (long long)shape->k, (long long)shape->stride,
             (long long)shape->pad, shape->tf32 ? "tf32" : dpb_dtype_text(shape->dtype));
}

/* The shape without what its pass and type do not look at. */
static struct dpb_conv_shape plain(const struct dpb_conv_shape *given)
{
    struct dpb_conv_shape shape = *given;
    shape.tf32 = shape.tf32 && shape.dtype == DPB_F32;
    shape.bias = shape.bias && shape.pass == DPB_CONV_FWD;
    shape.relu = shape.relu && shape.pass == DPB_CONV_FWD;
    return shape;
}

static struct key key_of(const struct dpb_conv_shape *s)
{
    const struct key key = {{s->pass, s->dtype, s->tf32, s->bias, s->relu, s->n, s->h, s->w, s->c,
                             s->k, s->r, s->s, s->stride, s->pad, s->out_h, s->out_w}};
    return key;
}

/* ---- graphs ---- */

static cudnnBackendDescriptor_t convolution(struct dpb_graph *graph,
                                            const struct dpb_conv_shape *shape)
{
    const int64_t dimensions = 2, pads[2] = {shape->pad, shape->pad};
    const int64_t strides[2] = {shape->stride, shape->stride}, dilations[2] = {1, 1};
    const cudnnDataType_t fp32 = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;

    cudnnBackendDescriptor_t conv = dpb_graph_new(graph, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    dpb_graph_set(graph, conv, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1,
                  &dimensions);
    dpb_graph_set(graph, conv, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &fp32);
    dpb_graph_set(graph, conv, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1,
                  &mode);
    dpb_graph_set(graph, conv, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pads);
    dpb_graph_set(graph, conv, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pads);
    dpb_graph_set(graph, conv, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilations);
    dpb_graph_set(graph, conv, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, strides);
    return dpb_graph_finalize(graph, conv);
}

/* The operation of the shape's pass that reads or writes `y`. */
static cudnnBackendDescriptor_t operation_of(struct dpb_graph *graph,
                                             const struct dpb_conv_shape *shape,
                                             cudnnBackendDescriptor_t y)
{
    const struct pass *pass = &PASSES[shape->pass];
    const int64_t x_dim[4] = {shape->n, shape->c, shape->h, shape->w};
    const int64_t w_dim[4] = {shape->k, shape->c, shape->r, shape->s};
    const float one = 1, zero = 0;
    cudnnBackendDescriptor_t x =
            dpb_graph_tensor(graph, UID_X, shape->dtype, x_dim, DPB_GRAPH_MEMORY);
    cudnnBackendDescriptor_t w =
            dpb_graph_tensor(graph, UID_W, shape->dtype, w_dim, DPB_GRAPH_MEMORY);
    cudnnBackendDescriptor_t conv = convolution(graph, shape);
    cudnnBackendDescriptor_t operation = dpb_graph_new(graph, pass->type);
    dpb_graph_set_descriptor(graph, operation, pass->x, x);
    dpb_graph_set_descriptor(graph, operation, pass->w, w);
    dpb_graph_set_descriptor(graph, operation, pass->y, y);
    dpb_graph_set_descriptor(graph, operation, pass->conv, conv);
    dpb_graph_set(graph, operation, pass->alpha, CUDNN_TYPE_FLOAT, 1, &one);
    dpb_graph_set(graph, operation, pass->beta, CUDNN_TYPE_FLOAT, 1, &zero);
    return dpb_graph_finalize(graph, operation);
}

/* The shape's operations as a graph; with `fused`, bias and ReLU behind the convolution, values
 * between them in fp32. */
static cudnnBackendDescriptor_t graph_of(struct dpb_graph *graph,
                                         const struct dpb_conv_shape *shape, bool fused)
{
    const int64_t y_dim[4] = {shape->n, shape->k, shape->out_h, shape->out_w};
    const int64_t bias_dim[4] = {1, shape->k, 1, 1};
    const bool bias = fused && shape->bias, relu = fused && shape->relu;
    const int last = bias + relu;
    cudnnBackendDescriptor_t value[3], operation[3];

    for (int i = 0; i < last; i++)
        value[i] = dpb_graph_tensor(graph, UID_BETWEEN + i, DPB_F32, y_dim, DPB_GRAPH_VIRTUAL);
    value[last] = dpb_graph_tensor(graph, UID_Y, shape->dtype, y_dim, DPB_GRAPH_MEMORY);
    operation[0] = operation_of(graph, shape, value[0]);
    if (bias) {
        cudnnBackendDescriptor_t b =
                dpb_graph_tensor(graph, UID_BIAS, DPB_F32, bias_dim, DPB_GRAPH_MEMORY);
        operation[1] = dpb_graph_pointwise(graph, CUDNN_POINTWISE_ADD, value[0], b, value[1]);
    }
    if (relu)
        operation[last] = dpb_graph_pointwise(graph, CUDNN_POINTWISE_RELU_FWD, value[last - 1],
                                              NULL, value[last]);
    return dpb_graph_operations(graph, operation, last + 1);
}

/* ---- choosing an engine ---- */

/* Engines that must not be taken: sums in less than fp32, inputs that are rounded without having
 * been asked for; with fp32, the matrix units of TF32. */
static bool engine_ok(const struct dpb_conv_graphs *graphs, const struct dpb_conv_shape *shape,
                      const struct dpb_graph_engine *engine)
{
    unsigned refused = 1U << CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION |
                       1U << CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS;
    if (shape->dtype == DPB_F32 && !shape->tf32)
        refused |= 1U << CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
    if (graphs->config.deterministic)
        refused |= 1U << CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    return !(engine->notes & refused);
}

/* A search for the best plan of a graph. */
struct search {
    struct dpb_conv_graphs *graphs;
    struct dpb_graph *graph;
    struct dpb_conv_plan *best; /* the plan to be filled */
    int64_t best_ns, engine;
    int taken, wanted, best_place;
};

static void drop(const struct search *search, cudnnBackendDescriptor_t descriptor)
{
    if (descriptor)
        search->graphs->target.cudnn->cudnnBackendDestroyDescriptor(descriptor);
}

static void release_packs(struct dpb_conv_plan *plan)
{
    for (int i = 0; i < plan->pack_count; i++)
        plan->target->cudnn->cudnnBackendDestroyDescriptor(plan->packs[i].descriptor);
    free(plan->packs);
    plan->packs = NULL;
    plan->pack_count = plan->pack_room = plan->pack_next = 0;
}

/* The candidate's time; false: it is out. Without a way to measure, every one takes no time. */
static bool time_of(struct search *search, struct dpb_conv_plan *candidate, int64_t *ns)
{
    const struct dpb_conv_graphs_config *config = &search->graphs->config;
    *ns = 0;
    if (!config->measure)
        return true;
    dpb_status st = config->measure(config->measure_ctx, &candidate->shape, candidate, ns);
    release_packs(candidate);
    if (st == DPB_ERR_NO_MEMORY) {
        *ns = NOT_TIMED;
        return true;
    }
    if (st != DPB_OK)
        snprintf(search->graph->why, sizeof(search->graph->why), "a candidate did not run: %s",
                 dpb_status_text(st));
    return st == DPB_OK;
}

/* Make a plan of `config` and keep it when it is the best so far; `config` is used up. */
static void try_config(struct search *search, cudnnBackendDescriptor_t config)
{
    const size_t limit = search->graphs->config.workspace_limit_bytes;
    struct dpb_conv_plan candidate = *search->best;
    int64_t ns = 0;

    const struct dpb_graph_engine engine = dpb_graph_engine_of(search->graph, config);
    candidate.config = config;
    candidate.plan = engine_ok(search->graphs, &candidate.shape, &engine)
                             ? dpb_graph_plan(search->graph, config, &candidate.workspace_bytes)
                             : NULL;
    if (candidate.plan && limit && candidate.workspace_bytes > limit) {
        snprintf(search->graph->why, sizeof(search->graph->why),
                 "engines want %zu bytes of workspace, the limit is %zu", candidate.workspace_bytes,
                 limit);
        drop(search, candidate.plan);
        candidate.plan = NULL;
    }
    if (!candidate.plan || !time_of(search, &candidate, &ns) ||
        (search->best->plan && ns >= search->best_ns)) {
        search->taken += candidate.plan != NULL;
        drop(search, candidate.plan);
        drop(search, config);
        return;
    }
    drop(search, search->best->plan);
    drop(search, search->best->config);
    *search->best = candidate;
    search->best_ns = ns;
    search->engine = engine.number;
    search->best_place = ++search->taken;
}

/* Fill `plan` with the best plan for its shape; false with the reason in graph->why. */
static bool find_plan(struct dpb_conv_graphs *graphs, struct dpb_graph *graph,
                      cudnnBackendDescriptor_t operations, struct dpb_conv_plan *plan)
{
    static const cudnnBackendHeurMode_t MODES[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    struct search search = {.graphs = graphs, .graph = graph, .best = plan};
    search.wanted = graphs->config.measure ? graphs->config.candidates : 1;

    for (int mode = 0; mode < 2 && !plan->plan; mode++) {
        cudnnBackendDescriptor_t config[CONFIGS_MAX];
        int count = dpb_graph_propose(graph, operations, MODES[mode], config, CONFIGS_MAX);
        for (int i = 0; i < count; i++) {
            if (search.taken < search.wanted)
                try_config(&search, config[i]);
            else
                drop(&search, config[i]);
        }
    }
    if (!plan->plan)
        return false;
    int used = snprintf(plan->text, sizeof(plan->text), "engine %lld, candidate %d of %d",
                        (long long)search.engine, search.best_place, search.taken);
    if (search.best_ns == NOT_TIMED)
        used += snprintf(plan->text + used, sizeof(plan->text) - used,
                         ", without memory to measure it in");
    else if (graphs->config.measure)
        used += snprintf(plan->text + used, sizeof(plan->text) - used, ", measured %.3f ms",
                         search.best_ns * 1e-6);
    snprintf(plan->text + used, sizeof(plan->text) - used, ", workspace %zu B%s",
             plan->workspace_bytes, plan->fused ? "" : ", bias and ReLU apart");
    return true;
}

/* ---- the set of plans ---- */

dpb_status dpb_conv_graphs_open(const struct dpb_conv_graphs_config *config,
                                struct dpb_conv_graphs **graphs)
{
    if (!config->handle == !config->device_properties ||
        (config->measure && config->candidates < 1)) {
        dpb_error("cuDNN: plans need a handle or device properties, not both, and at least 1 "
                  "candidate to measure");
        return DPB_ERR_USAGE;
    }
    struct dpb_conv_graphs *made = calloc(1, sizeof(*made));
    if (!made) {
        dpb_error("cuDNN: plans: %s", dpb_status_text(DPB_ERR_NO_MEMORY));
        return DPB_ERR_NO_MEMORY;
    }
    made->config = *config;
    made->target = (struct dpb_graph_target){.cudnn = config->cudnn, .handle = config->handle};
    if (config->device_properties) {
        dpb_status st = dpb_graph_target_describe(&made->target, config->device_properties);
        if (st < 0) {
            free(made);
            return st;
        }
    }
    *graphs = made;
    return DPB_OK;
}

static void free_plan(struct dpb_conv_plan *plan)
{
    const struct dpb_cudnn *cudnn = plan->target->cudnn;
    release_packs(plan);
    if (plan->plan)
        cudnn->cudnnBackendDestroyDescriptor(plan->plan);
    if (plan->config)
        cudnn->cudnnBackendDestroyDescriptor(plan->config);
    free(plan);
}

void dpb_conv_graphs_close(struct dpb_conv_graphs *graphs)
{
    if (!graphs)
        return;
    while (graphs->plans) {
        struct dpb_conv_plan *plan = graphs->plans;
        graphs->plans = plan->next;
        free_plan(plan);
    }
    if (graphs->target.properties)
        graphs->target.cudnn->cudnnBackendDestroyDescriptor(graphs->target.properties);
    free(graphs);
}

/* Build `plan` for its shape, with or without what may be fused. Not logged: `why` has the reason.
 */
static dpb_status build(struct dpb_conv_graphs *graphs, struct dpb_conv_plan *plan, bool fused,
                        char why[DPB_GRAPH_WHY_BYTES])
{
    struct dpb_graph graph;
    dpb_graph_init(&graph, &graphs->target);
    plan->fused = fused || !(plan->shape.bias || plan->shape.relu);
    cudnnBackendDescriptor_t operations = graph_of(&graph, &plan->shape, fused);
    dpb_status st = dpb_cudnn_status(graph.status);
    if (st == DPB_OK && !find_plan(graphs, &graph, operations, plan))
        st = DPB_ERR_UNSUPPORTED;
    snprintf(why, DPB_GRAPH_WHY_BYTES, "%s",
             graph.why[0] ? graph.why : "the heuristics propose no engine that may be taken");
    dpb_graph_release(&graph);
    return st;
}

static dpb_status make(struct dpb_conv_graphs *graphs, const struct dpb_conv_shape *shape,
                       struct dpb_conv_plan **made)
{
    const bool wants = shape->bias || shape->relu;
    char why[DPB_GRAPH_WHY_BYTES], text[TEXT_BYTES];
    struct dpb_conv_plan *plan = calloc(1, sizeof(*plan));
    if (!plan) {
        dpb_error("cuDNN: a plan: %s", dpb_status_text(DPB_ERR_NO_MEMORY));
        return DPB_ERR_NO_MEMORY;
    }
    plan->target = &graphs->target;
    plan->shape = *shape;
    plan->key = key_of(shape);
    dpb_status st = wants ? build(graphs, plan, true, why) : DPB_ERR_UNSUPPORTED;
    if (st != DPB_OK)
        st = build(graphs, plan, false, why);
    put_shape(shape, text, sizeof(text));
    if (st < 0) {
        dpb_error("cuDNN has no plan for %s: %s", text, why);
        free_plan(plan);
        return st;
    }
    dpb_debug("cuDNN: %s: %s", text, plan->text);
    *made = plan;
    return DPB_OK;
}

static bool shape_ok(const struct dpb_conv_shape *shape)
{
    if (shape->dtype == DPB_F32 || shape->dtype == DPB_BF16 || shape->dtype == DPB_F16)
        return true;
    dpb_error("cuDNN: convolutions are of fp32, bf16 or fp16, not of %s",
              dpb_dtype_text(shape->dtype));
    return false;
}

struct dpb_conv_plan *dpb_conv_graphs_find(const struct dpb_conv_graphs *graphs,
                                           const struct dpb_conv_shape *given)
{
    const struct dpb_conv_shape shape = plain(given);
    const struct key key = key_of(&shape);
    for (struct dpb_conv_plan *at = graphs->plans; at; at = at->next) {
        if (memcmp(&at->key, &key, sizeof(key)) == 0)
            return at;
    }
    return NULL;
}

dpb_status dpb_conv_graphs_plan(struct dpb_conv_graphs *graphs, const struct dpb_conv_shape *given,
                                struct dpb_conv_plan **plan)
{
    const struct dpb_conv_shape shape = plain(given);
    struct dpb_conv_plan *made = dpb_conv_graphs_find(graphs, given);
    if (made) {
        *plan = made;
        return DPB_OK;
    }
    if (!shape_ok(&shape))
        return DPB_ERR_USAGE;
    DPB_TRY(make(graphs, &shape, &made));
    made->next = graphs->plans;
    graphs->plans = made;
    *plan = made;
    return DPB_OK;
}

size_t dpb_conv_plan_workspace_bytes(const struct dpb_conv_plan *plan)
{
    return plan->workspace_bytes;
}

bool dpb_conv_plan_fused(const struct dpb_conv_plan *plan)
{
    return plan->fused;
}

const char *dpb_conv_plan_text(const struct dpb_conv_plan *plan)
{
    return plan->text;
}

/* ---- running ---- */

static cudnnBackendDescriptor_t bind(struct dpb_conv_plan *plan,
                                     const struct dpb_conv_buffers *buffers, cudnnStatus_t *status)
{
    const struct dpb_cudnn *cudnn = plan->target->cudnn;
    const int64_t uids[4] = {UID_X, UID_W, UID_Y, UID_BIAS};
    const void *const pointers[4] = {buffers->x, buffers->w, buffers->y, buffers->bias};
    const int count = plan->fused && plan->shape.bias ? 4 : 3;
    cudnnBackendDescriptor_t pack = NULL;

    *status = cudnn->cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
    if (*status != CUDNN_STATUS_SUCCESS)
        return NULL;
    *status = cudnn->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
                                              CUDNN_TYPE_INT64, count, uids);
    if (*status == CUDNN_STATUS_SUCCESS)
        *status = cudnn->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                                  CUDNN_TYPE_VOID_PTR, count, pointers);
    if (*status == CUDNN_STATUS_SUCCESS)
        *status = cudnn->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                                  CUDNN_TYPE_VOID_PTR, 1, &buffers->workspace);
    if (*status == CUDNN_STATUS_SUCCESS)
        *status = cudnn->cudnnBackendFinalize(pack);
    if (*status == CUDNN_STATUS_SUCCESS)
        return pack;
    cudnn->cudnnBackendDestroyDescriptor(pack);
    return NULL;
}

/* A place for one more set of buffers; NULL without memory. */
static struct pack *new_pack(struct dpb_conv_plan *plan)
{
    if (plan->pack_count == PACKS_MAX) {
        struct pack *oldest = &plan->packs[plan->pack_next++ % PACKS_MAX];
        plan->target->cudnn->cudnnBackendDestroyDescriptor(oldest->descriptor);
        oldest->descriptor = NULL;
        return oldest;
    }
    if (plan->pack_count == plan->pack_room) {
        int room = plan->pack_room ? 2 * plan->pack_room : 4;
        struct pack *more = realloc(plan->packs, room * sizeof(*more));
        if (!more)
            return NULL;
        plan->packs = more;
        plan->pack_room = room;
    }
    return &plan->packs[plan->pack_count++];
}

static bool same(const struct dpb_conv_buffers *a, const struct dpb_conv_buffers *b)
{
    return a->x == b->x && a->w == b->w && a->y == b->y && a->bias == b->bias &&
           a->workspace == b->workspace;
}

static cudnnBackendDescriptor_t
pack_of(struct dpb_conv_plan *plan, const struct dpb_conv_buffers *buffers, cudnnStatus_t *status)
{
    for (int i = 0; i < plan->pack_count; i++) {
        if (same(&plan->packs[i].buffers, buffers))
            return plan->packs[i].descriptor;
    }
    cudnnBackendDescriptor_t descriptor = bind(plan, buffers, status);
    if (!descriptor)
        return NULL;
    struct pack *pack = new_pack(plan);
    if (!pack) {
        plan->target->cudnn->cudnnBackendDestroyDescriptor(descriptor);
        *status = CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
        return NULL;
    }
    *pack = (struct pack){.buffers = *buffers, .descriptor = descriptor};
    return descriptor;
}

dpb_status dpb_conv_plan_run(struct dpb_conv_plan *plan, const struct dpb_conv_buffers *buffers)
{
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    cudnnBackendDescriptor_t pack = pack_of(plan, buffers, &status);
    if (pack)
        status = plan->target->cudnn->cudnnBackendExecute(plan->target->handle, plan->plan, pack);
    if (status == CUDNN_STATUS_SUCCESS)
        return DPB_OK;

    char text[TEXT_BYTES], reason[DPB_GRAPH_WHY_BYTES];
    put_shape(&plan->shape, text, sizeof(text));
    dpb_cudnn_reason(plan->target->cudnn, status, reason, sizeof(reason));
    dpb_error("cuDNN does not run %s (%s): %s", text, plan->text, reason);
    return DPB_ERR_VENDOR;
}

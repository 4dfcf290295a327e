/* The faked runtime's capture and graphs. A graph is a list of work, each with what it comes after:
 * events that were recorded and waited for within a capture become such orders, as in CUDA. */
#include "fake_cudart_private.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct capture {
    struct capture *next;
    uint64_t id;
    enum cudaStreamCaptureMode mode;
    pthread_t thread;
    struct CUstream_st *origin;
    struct nodes *nodes;
    bool spoilt;
};

struct CUgraph_st {
    struct CUgraph_st *next;
    struct nodes *nodes;
};

struct CUgraphExec_st {
    struct CUgraphExec_st *next;
    struct nodes *nodes;
};

static struct capture *captures;
static struct CUgraph_st *graphs;
static struct CUgraphExec_st *execs;
static uint64_t last_capture;

#define BEGIN()                                                                                    \
    do {                                                                                           \
        fake_lock();                                                                               \
        cudaError_t failed_ = fake_call(__func__);                                                 \
        if (failed_ != cudaSuccess)                                                                \
            return end(failed_);                                                                   \
    } while (0)

static cudaError_t end(cudaError_t error)
{
    fake_unlock();
    return fake_result(error);
}

static void *grow(void *memory, size_t bytes)
{
    void *more = realloc(memory, bytes);

    if (!more)
        fake_cuda_stop(FAKE_EXIT_MISUSE, "fake: out of memory");
    return more;
}

void fake_nodes_release(struct nodes *nodes)
{
    if (!nodes || --nodes->references > 0)
        return;
    for (int i = 0; i < nodes->count; i++) {
        fake_work_release(nodes->node[i].work);
        fake_set_clear(&nodes->node[i].after);
    }
    free(nodes->node);
    free(nodes);
}

void fake_graphs_reset(void)
{
    while (captures) {
        struct capture *next = captures->next;

        fake_nodes_release(captures->nodes);
        free(captures);
        captures = next;
    }
    while (graphs) {
        struct CUgraph_st *next = graphs->next;

        fake_nodes_release(graphs->nodes);
        free(graphs);
        graphs = next;
    }
    while (execs) {
        struct CUgraphExec_st *next = execs->next;

        fake_nodes_release(execs->nodes);
        free(execs);
        execs = next;
    }
}

/* ---- capture ---- */

static struct capture *find_capture(uint64_t id)
{
    for (struct capture *capture = captures; capture; capture = capture->next) {
        if (capture->id == id)
            return capture;
    }
    return NULL;
}

void fake_capture_spoil(uint64_t id)
{
    struct capture *capture = find_capture(id);

    if (capture)
        capture->spoilt = true;
}

cudaError_t fake_capture_spoils(void)
{
    for (struct capture *capture = captures; capture; capture = capture->next) {
        bool mine = pthread_equal(capture->thread, pthread_self());

        if (capture->mode == cudaStreamCaptureModeGlobal ||
            (capture->mode == cudaStreamCaptureModeThreadLocal && mine)) {
            capture->spoilt = true;
            return cudaErrorStreamCaptureUnsupported;
        }
    }
    return cudaSuccess;
}

cudaError_t fake_capture_work(struct CUstream_st *stream, const struct fake_cuda_work *work)
{
    struct capture *capture = find_capture(stream->capture);
    struct nodes *nodes;
    struct node *node;

    if (!capture || capture->spoilt) {
        if (work->release)
            work->release(work->context);
        return cudaErrorStreamCaptureInvalidated;
    }
    nodes = capture->nodes;
    if (nodes->count == nodes->room) {
        nodes->room = nodes->room ? 2 * nodes->room : 64;
        nodes->node = grow(nodes->node, (size_t)nodes->room * sizeof(*nodes->node));
    }
    node = &nodes->node[nodes->count];
    *node = (struct node){.work = fake_work_new(work), .after = stream->after};
    stream->after = (struct set){0};
    fake_set_add(&stream->after, nodes->count++);
    return cudaSuccess;
}

cudaError_t fake_capture_join(struct CUstream_st *stream, const struct moment *moment)
{
    if (!find_capture(moment->capture))
        return cudaErrorCapturedEvent;
    if (stream->capture && stream->capture != moment->capture)
        return cudaErrorStreamCaptureMerge;
    stream->capture = moment->capture;
    fake_set_copy(&stream->after, &moment->nodes);
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, enum cudaStreamCaptureMode mode)
{
    struct CUstream_st *stream;
    struct capture *capture;

    BEGIN();
    stream = fake_stream(handle);
    if (!stream || !handle)
        return end(cudaErrorStreamCaptureUnsupported);
    if (stream->capture)
        return end(cudaErrorIllegalState);
    capture = grow(NULL, sizeof(*capture));
    *capture = (struct capture){.next = captures,
                                .id = ++last_capture,
                                .mode = mode,
                                .thread = pthread_self(),
                                .origin = stream,
                                .nodes = grow(NULL, sizeof(struct nodes))};
    *capture->nodes = (struct nodes){.references = 1};
    captures = capture;
    stream->capture = capture->id;
    return end(cudaSuccess);
}

/* Does the end of the origin come after every node? */
static bool is_joined(const struct capture *capture)
{
    const struct nodes *nodes = capture->nodes;
    bool *seen = calloc((size_t)nodes->count + 1, sizeof(*seen));
    bool all = true;

    if (!seen)
        return false;
    for (int i = 0; i < capture->origin->after.count; i++)
        seen[capture->origin->after.item[i]] = true;
    for (int n = nodes->count - 1; n >= 0; n--) {
        all = all && seen[n];
        for (int i = 0; i < nodes->node[n].after.count; i++)
            seen[nodes->node[n].after.item[i]] = true;
    }
    free(seen);
    return all;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *graph)
{
    struct CUstream_st *stream;
    struct capture *capture;
    cudaError_t error;

    fake_lock();
    error = fake_call(__func__);
    stream = fake_stream(handle);
    *graph = NULL;
    capture = stream ? find_capture(stream->capture) : NULL;
    if (!capture)
        return end(cudaErrorIllegalState);
    if (capture->origin != stream)
        return end(cudaErrorStreamCaptureUnmatched);
    if (error == cudaSuccess && capture->spoilt)
        error = cudaErrorStreamCaptureInvalidated;
    if (error == cudaSuccess && !is_joined(capture))
        error = cudaErrorStreamCaptureUnjoined;
    for (stream = fake.streams; stream; stream = stream->next) {
        if (stream->capture != capture->id)
            continue;
        stream->capture = 0;
        fake_set_clear(&stream->after);
    }
    for (struct capture **at = &captures; *at; at = &(*at)->next) {
        if (*at != capture)
            continue;
        *at = capture->next;
        break;
    }
    if (error == cudaSuccess) {
        *graph = grow(NULL, sizeof(**graph));
        **graph = (struct CUgraph_st){.next = graphs, .nodes = capture->nodes};
        graphs = *graph;
        fake.live[FAKE_GRAPH]++;
    } else {
        fake_nodes_release(capture->nodes);
    }
    free(capture);
    return end(error);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, enum cudaStreamCaptureStatus *status)
{
    struct CUstream_st *stream;

    BEGIN();
    stream = fake_stream(handle);
    if (!stream)
        return end(cudaErrorInvalidResourceHandle);
    *status = stream->capture ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return end(cudaSuccess);
}

/* ---- graphs ---- */

static struct CUgraph_st **find_graph(cudaGraph_t handle)
{
    for (struct CUgraph_st **at = &graphs; *at; at = &(*at)->next) {
        if (*at == handle)
            return at;
    }
    return NULL;
}

static struct CUgraphExec_st **find_exec(cudaGraphExec_t handle)
{
    for (struct CUgraphExec_st **at = &execs; *at; at = &(*at)->next) {
        if (*at == handle)
            return at;
    }
    return NULL;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    (void)flags;
    BEGIN();
    if (!find_graph(graph))
        return end(cudaErrorInvalidValue);
    *exec = grow(NULL, sizeof(**exec));
    **exec = (struct CUgraphExec_st){.next = execs, .nodes = graph->nodes};
    graph->nodes->references++;
    execs = *exec;
    fake.live[FAKE_GRAPH_EXEC]++;
    return end(cudaSuccess);
}

cudaError_t cudaGraphDestroy(cudaGraph_t handle)
{
    struct CUgraph_st **at;
    cudaError_t failed;

    fake_lock();
    failed = fake_call(__func__);
    at = find_graph(handle);
    if (!at)
        return end(cudaErrorInvalidValue);
    *at = handle->next;
    fake_nodes_release(handle->nodes);
    free(handle);
    fake.live[FAKE_GRAPH]--;
    return end(failed);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t handle)
{
    struct CUgraphExec_st **at;
    cudaError_t failed;

    fake_lock();
    failed = fake_call(__func__);
    at = find_exec(handle);
    if (!at)
        return end(cudaErrorInvalidValue);
    *at = handle->next;
    fake_nodes_release(handle->nodes);
    free(handle);
    fake.live[FAKE_GRAPH_EXEC]--;
    return end(failed);
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
    BEGIN();
    if (!find_graph(graph))
        return end(cudaErrorInvalidValue);
    if (nodes)
        fake_cuda_stop(FAKE_EXIT_MISUSE, "fake: cudaGraphGetNodes: only the count is known");
    *count = (size_t)graph->nodes->count;
    return end(cudaSuccess);
}

static bool same_form(const struct nodes *a, const struct nodes *b)
{
    if (a->count != b->count)
        return false;
    for (int n = 0; n < a->count; n++) {
        const struct node *x = &a->node[n], *y = &b->node[n];

        if (strcmp(x->work->work.name, y->work->work.name) != 0 ||
            x->after.count != y->after.count ||
            (x->after.count > 0 &&
             memcmp(x->after.item, y->after.item, (size_t)x->after.count * sizeof(int)) != 0))
            return false;
    }
    return true;
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph,
                                cudaGraphExecUpdateResultInfo *result)
{
    BEGIN();
    if (!find_exec(exec) || !find_graph(graph))
        return end(cudaErrorInvalidValue);
    memset(result, 0, sizeof(*result));
    if (!same_form(exec->nodes, graph->nodes)) {
        result->result = cudaGraphExecUpdateErrorTopologyChanged;
        return end(cudaErrorGraphExecUpdateFailure);
    }
    result->result = cudaGraphExecUpdateSuccess;
    graph->nodes->references++;
    fake_nodes_release(exec->nodes);
    exec->nodes = graph->nodes;
    return end(cudaSuccess);
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream)
{
    BEGIN();
    return end(find_exec(exec) && fake_stream(stream) ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t handle)
{
    struct CUstream_st *stream;
    struct op *op;

    BEGIN();
    stream = fake_stream(handle);
    if (!stream || !find_exec(exec))
        return end(cudaErrorInvalidResourceHandle);
    if (stream->capture)
        fake_cuda_stop(FAKE_EXIT_MISUSE, "fake: cudaGraphLaunch: graphs within graphs are not "
                                         "modelled");
    op = fake_append(stream, OP_GRAPH);
    op->nodes = exec->nodes;
    op->nodes->references++;
    op->nodes_left = op->nodes->count;
    op->node_done = calloc((size_t)op->nodes->count + 1, sizeof(bool));
    if (!op->node_done)
        fake_cuda_stop(FAKE_EXIT_MISUSE, "fake: out of memory");
    return end(cudaSuccess);
}

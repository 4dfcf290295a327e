/* Streams, marks (CUDA's events), and graphs of what is launched on a stream. */
#include "cuda_device.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "dpb_log.h"

struct dpb_event_mark {
    dpb_device *device;
    cudaEvent_t native;
    bool recorded;
};

static dpb_status no_memory(const char *what)
{
    dpb_error("cuda: out of host memory for %s", what);
    return DPB_ERR_NO_MEMORY;
}

/* ---- streams ---- */

dpb_status dpb_cuda_stream_open(dpb_device *device, dpb_stream **stream)
{
    dpb_stream *made;
    dpb_status st;

    DPB_TRY(dpb_cuda_enter(device));
    made = calloc(1, sizeof(*made));
    if (!made)
        return no_memory("a stream");
    made->device = device;
    atomic_init(&made->last_op, -1);
    DPB_CUDA_TRY_GOTO(st, "open a stream", cudaStreamCreateWithFlags,
                      (&made->native, cudaStreamNonBlocking), err_made);
    *stream = made;
    return DPB_OK;

err_made:
    free(made);
    return st;
}

/* The next stream may lie where this one does. */
static void forget(dpb_stream *stream)
{
    pthread_mutex_lock(&stream->device->lock);
    if (stream->device->conv_stream == stream)
        stream->device->conv_stream = NULL;
    pthread_mutex_unlock(&stream->device->lock);
}

static dpb_status is_recorded(dpb_stream *stream, bool *recorded)
{
    enum cudaStreamCaptureStatus status;

    DPB_CUDA_TRY("look at a stream", cudaStreamIsCapturing, (stream->native, &status));
    *recorded = status != cudaStreamCaptureStatusNone;
    return DPB_OK;
}

/* A step that failed may have left a recording open, and until it ends nothing can be freed. */
static void abandon_recording(dpb_stream *stream)
{
    cudaGraph_t recorded = NULL;
    bool recording;

    if (is_recorded(stream, &recording) < 0 || !recording)
        return;
    cudaStreamEndCapture(stream->native, &recorded);
    if (recorded)
        cudaGraphDestroy(recorded);
    cudaGetLastError();
}

void dpb_cuda_stream_close(dpb_stream *stream)
{
    if (!stream)
        return;
    forget(stream);
    dpb_cuda_enter(stream->device); /* if that fails, what follows may not */
    abandon_recording(stream);
    /* What it has may be used by another stream next. */
    dpb_cuda_check(cudaStreamSynchronize(stream->native), "cudaStreamSynchronize",
                   "close a stream");
    if (stream->graph)
        dpb_cuda_check(cudaGraphExecDestroy(stream->graph), "cudaGraphExecDestroy",
                       "close a stream");
    dpb_cuda_check(cudaStreamDestroy(stream->native), "cudaStreamDestroy", "close a stream");
    dpb_cuda_memory_put(stream->device, stream->workspace);
    dpb_cuda_memory_put(stream->device, stream->gemm_workspace);
    dpb_cuda_memory_put(stream->device, stream->scratch);
    free(stream);
}

void *dpb_cuda_stream_native(dpb_stream *stream)
{
    return stream->native;
}

dpb_status dpb_cuda_stream_wait(dpb_stream *stream, dpb_event_mark *mark)
{
    DPB_TRY(dpb_cuda_enter(stream->device));
    DPB_CUDA_TRY("wait for a mark", cudaStreamWaitEvent, (stream->native, mark->native, 0));
    return DPB_OK;
}

/* What the device has failed at is known when the host waits for it. */
static dpb_status sync_error(dpb_stream *stream, cudaError_t error)
{
    int op = atomic_load(&stream->last_op);
    char what[128];

    if (op < 0)
        snprintf(what, sizeof(what), "wait for a stream");
    else
        snprintf(what, sizeof(what), "wait for a stream, on which \"%s\" was launched last",
                 dpb_op_text((enum dpb_op)op));
    return dpb_cuda_check(error, "cudaStreamSynchronize", what);
}

dpb_status dpb_cuda_stream_sync(dpb_stream *stream)
{
    dpb_device *device = stream->device;
    cudaError_t error;
    dpb_status st;

    DPB_TRY(dpb_cuda_enter(device));
    DPB_CUDA_TRY("read what kernels found wrong", cudaMemcpyAsync,
                 (device->host_faults, device->faults, sizeof(*device->faults),
                  cudaMemcpyDeviceToHost, stream->native));
    error = cudaStreamSynchronize(stream->native);
    if (error != cudaSuccess)
        return sync_error(stream, error);
    st = dpb_cuda_faults_report(device->host_faults);
    if (st < 0) /* once */
        DPB_CUDA_TRY("forget what kernels found wrong", cudaMemsetAsync,
                     (device->faults, 0, sizeof(*device->faults), stream->native));
    return st;
}

/* ---- what kernels found wrong ---- */

struct fault_text {
    enum dpb_op op;
    const char *what, *is_not;
};

static const struct fault_text fault_texts[] = {
        [DPB_CUDA_FAULT_EMBEDDING_FWD] = {DPB_OP_EMBEDDING_FWD, "row number",
                                          "is no row of the table"},
        [DPB_CUDA_FAULT_EMBEDDING_BWD] = {DPB_OP_EMBEDDING_BWD, "row number",
                                          "is no row of the table"},
        [DPB_CUDA_FAULT_SOFTMAX_LABEL] = {DPB_OP_SOFTMAX_XENT_FWD, "label", "is no class"},
        [DPB_CUDA_FAULT_BCE_LABEL] = {DPB_OP_SIGMOID_BCE_FWD, "label", "is neither 0 nor 1"},
};
_Static_assert(sizeof(fault_texts) / sizeof(fault_texts[0]) == DPB_CUDA_FAULT_COUNT,
               "a fault has no text");

dpb_status dpb_cuda_faults_report(const struct dpb_cuda_faults *faults)
{
    for (int i = 0; i < DPB_CUDA_FAULT_COUNT; i++) {
        const struct fault_text *text = &fault_texts[i];
        int64_t position;
        int32_t value;

        if (!dpb_cuda_fault_read(faults, (enum dpb_cuda_fault)i, &position, &value))
            continue;
        dpb_error("operator \"%s\": %s %d at position %lld %s", dpb_op_text(text->op), text->what,
                  value, (long long)position, text->is_not);
        dpb_log_hint("check the data set against the model's vocabulary, table sizes and classes");
        return DPB_ERR_USAGE;
    }
    return DPB_OK;
}

/* ---- what operators need on a stream ---- */

dpb_status dpb_cuda_stream_may_prepare(dpb_stream *stream, const char *what)
{
    bool recorded;

    DPB_TRY(is_recorded(stream, &recorded));
    if (!recorded)
        return DPB_OK;
    dpb_error("cuda: cannot prepare %s while a graph is recorded", what);
    dpb_log_hint("run a step with the same shapes before, without recording it");
    return DPB_ERR_USAGE;
}

dpb_status dpb_cuda_stream_queue(dpb_stream *stream, struct dpb_cuda_queue *queue)
{
    if (!stream->workspace) {
        DPB_TRY(dpb_cuda_stream_may_prepare(stream, "a stream's workspace"));
        DPB_TRY(dpb_cuda_memory_take(stream->device, DPB_CUDA_WORKSPACE_BYTES, &stream->workspace));
    }
    *queue = (struct dpb_cuda_queue){
            .stream = stream->native,
            .workspace = stream->workspace,
            .workspace_bytes = DPB_CUDA_WORKSPACE_BYTES,
            .faults = stream->device->faults,
    };
    return DPB_OK;
}

dpb_status dpb_cuda_stream_scratch(dpb_stream *stream, size_t bytes, void **memory)
{
    void *taken;

    if (bytes > stream->scratch_bytes) {
        DPB_TRY(dpb_cuda_stream_may_prepare(stream, "an operator's memory"));
        DPB_CUDA_TRY("enlarge an operator's memory", cudaStreamSynchronize, (stream->native));
        dpb_cuda_memory_put(stream->device, stream->scratch);
        stream->scratch = NULL;
        stream->scratch_bytes = 0;
        DPB_TRY(dpb_cuda_memory_take(stream->device, bytes, &taken));
        stream->scratch = taken;
        stream->scratch_bytes = bytes;
    }
    *memory = stream->scratch;
    return DPB_OK;
}

/* ---- marks ---- */

dpb_status dpb_cuda_mark_open(dpb_device *device, dpb_event_mark **mark)
{
    dpb_event_mark *made;
    dpb_status st;

    DPB_TRY(dpb_cuda_enter(device));
    made = calloc(1, sizeof(*made));
    if (!made)
        return no_memory("a mark");
    made->device = device;
    DPB_CUDA_TRY_GOTO(st, "open a mark", cudaEventCreate, (&made->native), err_made);
    *mark = made;
    return DPB_OK;

err_made:
    free(made);
    return st;
}

void dpb_cuda_mark_close(dpb_event_mark *mark)
{
    if (!mark)
        return;
    dpb_cuda_enter(mark->device);
    dpb_cuda_check(cudaEventDestroy(mark->native), "cudaEventDestroy", "close a mark");
    free(mark);
}

dpb_status dpb_cuda_mark_record(dpb_event_mark *mark, dpb_stream *stream)
{
    DPB_TRY(dpb_cuda_enter(mark->device));
    DPB_CUDA_TRY("record a mark", cudaEventRecord, (mark->native, stream->native));
    mark->recorded = true;
    return DPB_OK;
}

static dpb_status no_time(const char *why, const char *remedy)
{
    dpb_error("cuda: no time between marks: %s", why);
    dpb_log_hint("%s", remedy);
    return DPB_ERR_USAGE;
}

dpb_status dpb_cuda_mark_elapsed_ns(dpb_event_mark *from, dpb_event_mark *to, int64_t *ns)
{
    cudaError_t error;
    float ms;

    if (!from->recorded || !to->recorded)
        return no_time(from->recorded ? "the second has not been recorded"
                                      : "the first has not been recorded",
                       "record both marks on a stream before asking for the time between them");
    DPB_TRY(dpb_cuda_enter(from->device));
    error = cudaEventElapsedTime(&ms, from->native, to->native);
    if (error == cudaErrorNotReady) {
        cudaGetLastError();
        return no_time("the device has not reached them",
                       "wait for their streams before asking for the time between them");
    }
    DPB_TRY(dpb_cuda_check(error, "cudaEventElapsedTime", "read the time between marks"));
    *ns = (int64_t)llround((double)ms * 1e6);
    return DPB_OK;
}

dpb_status dpb_cuda_time(dpb_stream *stream, dpb_status (*run)(void *ctx), void *ctx, int64_t *ns)
{
    enum {
        RUNS = 3
    };
    cudaEvent_t *timing = stream->device->timing;
    int64_t best = INT64_MAX;

    for (int i = 0; i < 1 + RUNS; i++) {
        float ms;

        DPB_CUDA_TRY("time an algorithm", cudaEventRecord, (timing[0], stream->native));
        DPB_TRY(run(ctx));
        DPB_CUDA_TRY("time an algorithm", cudaEventRecord, (timing[1], stream->native));
        DPB_CUDA_TRY("time an algorithm", cudaEventSynchronize, (timing[1]));
        DPB_CUDA_TRY("time an algorithm", cudaEventElapsedTime, (&ms, timing[0], timing[1]));
        if (i > 0 && (int64_t)((double)ms * 1e6) < best)
            best = (int64_t)((double)ms * 1e6);
    }
    *ns = best;
    return DPB_OK;
}

/* ---- graphs ---- */

dpb_status dpb_cuda_capture_begin(dpb_device *device, dpb_stream *stream)
{
    DPB_TRY(dpb_cuda_enter(device));
    DPB_CUDA_TRY("begin to record a graph", cudaStreamBeginCapture,
                 (stream->native, cudaStreamCaptureModeThreadLocal));
    return DPB_OK;
}

/* The stream's graph for a recording: the last one updated where its form is the same. */
static dpb_status settle_graph(dpb_stream *stream, cudaGraph_t recorded)
{
    dpb_device *device = stream->device;
    cudaGraphExecUpdateResultInfo info;
    cudaGraphExec_t made;

    if (stream->graph) {
        cudaError_t error = cudaGraphExecUpdate(stream->graph, recorded, &info);

        if (error == cudaSuccess) {
            atomic_fetch_add(&device->graphs_updated, 1);
            return DPB_OK;
        }
        if (error != cudaErrorGraphExecUpdateFailure)
            return dpb_cuda_check(error, "cudaGraphExecUpdate", "update a graph");
        cudaGetLastError();
        made = stream->graph;
        stream->graph = NULL;
        DPB_CUDA_TRY("replace a graph", cudaGraphExecDestroy, (made));
    }
    dpb_cuda_count(device, &device->graphs_made);
    DPB_CUDA_TRY("make a graph", cudaGraphInstantiate, (&made, recorded, 0));
    stream->graph = made;
    return DPB_OK;
}

/* Whatever fails, the stream is no longer recorded after it: nothing could be freed then. */
static dpb_status end_recording(dpb_stream *stream, cudaGraph_t *recorded)
{
    enum cudaStreamCaptureStatus status;
    dpb_status st = dpb_cuda_enter(stream->device);

    DPB_KEEP(st, dpb_cuda_check(cudaStreamEndCapture(stream->native, recorded),
                                "cudaStreamEndCapture", "end the recording of a graph"));
    if (st < 0 && cudaStreamIsCapturing(stream->native, &status) == cudaSuccess &&
        status != cudaStreamCaptureStatusNone)
        cudaStreamEndCapture(stream->native, recorded);
    return st;
}

dpb_status dpb_cuda_capture_end(dpb_device *device, dpb_stream *stream)
{
    cudaGraph_t recorded = NULL;
    dpb_status st;

    (void)device;
    DPB_TRY_GOTO(st, end_recording(stream, &recorded), out);
    DPB_TRY_GOTO(st, settle_graph(stream, recorded), out);
    DPB_CUDA_TRY_GOTO(st, "run a graph", cudaGraphLaunch, (stream->graph, stream->native), out);
out:
    if (recorded)
        DPB_KEEP(st, dpb_cuda_check(cudaGraphDestroy(recorded), "cudaGraphDestroy", "run a graph"));
    return st;
}

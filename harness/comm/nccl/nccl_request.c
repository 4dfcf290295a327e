/* nccl_request.c: the callers' side of a collective: start, test, wait. */
#include "nccl_private.h"

#include <inttypes.h>
#include <stdio.h>

#include "dpb_clock.h"
#include "dpb_log.h"

void dpb_nccl_subject(const struct dpb_nccl_comm *comm, const struct dpb_coll *coll,
                      uint64_t number, char text[DPB_NCCL_SUBJECT])
{
    char tag[32] = "";
    if (coll->tag >= 0)
        snprintf(tag, sizeof(tag), " (bucket %d)", coll->tag);
    snprintf(text, DPB_NCCL_SUBJECT, "rank %d: %s #%" PRIu64 "%s", comm->base.rank,
             dpb_coll_text(coll->kind), number, tag);
}

static struct dpb_nccl_request *request_of(struct dpb_nccl_comm *comm, uint64_t number)
{
    return &comm->request[number % DPB_NCCL_REQUESTS];
}

static cudaStream_t native(const struct dpb_nccl_comm *comm, dpb_stream *stream)
{
    return (cudaStream_t)dpb_device_get_ops(comm->device)->stream_native(stream);
}

/* ---- what has completed ---- */

/* With `lock`. One look at the oldest collective that is not complete: DPB_OK when it is. */
static dpb_status look_at_oldest(struct dpb_nccl_comm *comm)
{
    char subject[DPB_NCCL_SUBJECT];
    const struct dpb_nccl_request *oldest = request_of(comm, comm->completed + 1);
    cudaError_t error = oldest->captured ? cudaSuccess : dpb_nccl_query(oldest->end);
    if (error == cudaErrorNotReady)
        return DPB_PENDING;
    if (error == cudaSuccess)
        return DPB_OK;
    dpb_nccl_subject(comm, &oldest->coll, oldest->number, subject);
    return dpb_nccl_cuda(comm, subject, "cudaEventQuery", error);
}

dpb_status dpb_nccl_advance(struct dpb_nccl_comm *comm)
{
    dpb_status st = DPB_OK;
    pthread_mutex_lock(&comm->lock);
    const uint64_t before = comm->completed;
    while (comm->completed < comm->newest && st == DPB_OK) {
        st = look_at_oldest(comm);
        if (st == DPB_OK)
            comm->completed++;
    }
    if (comm->completed > before) {
        comm->head_ns = dpb_clock_now_ns();
        dpb_nccl_ring_done(&comm->ring, comm->completed, comm->head_ns);
        dpb_rendezvous_note(comm->rendezvous, comm->newest, comm->completed);
    }
    pthread_mutex_unlock(&comm->lock);
    return st < 0 ? st : DPB_OK;
}

static bool is_complete(struct dpb_nccl_comm *comm, uint64_t number)
{
    pthread_mutex_lock(&comm->lock);
    bool complete = comm->completed >= (number < comm->newest ? number : comm->newest);
    pthread_mutex_unlock(&comm->lock);
    return complete;
}

dpb_status dpb_nccl_drain(struct dpb_nccl_comm *comm, uint64_t number, const char *subject)
{
    for (int looks = 0;; looks++) {
        DPB_TRY(dpb_rendezvous_check(comm->rendezvous, subject));
        /* First what is known already: while this thread captures a graph it must not ask. */
        if (is_complete(comm, number))
            return DPB_OK;
        DPB_TRY(dpb_nccl_advance(comm));
        if (is_complete(comm, number))
            return DPB_OK;
        dpb_nccl_pause(looks);
    }
}

/* ---- start ---- */

/* The request of the next collective; its events are those of one long before, which must be over.
 * Holds call_lock. */
static dpb_status claim(struct dpb_nccl_comm *comm, const struct dpb_coll *coll, uint64_t number,
                        const char *subject, struct dpb_nccl_request **claimed)
{
    struct dpb_nccl_request *request = request_of(comm, number);
    char why[DPB_NCCL_WHY];
    dpb_status st = dpb_nccl_collective_check(comm, coll, why, sizeof(why));
    pthread_mutex_lock(&comm->lock);
    const bool held = request->held;
    pthread_mutex_unlock(&comm->lock);
    if (st == DPB_OK && held) {
        snprintf(why, sizeof(why), "%d collectives were started and the oldest was not waited for",
                 DPB_NCCL_REQUESTS);
        st = DPB_ERR_USAGE;
    }
    if (st < 0) {
        dpb_error("%s cannot be started: %s", subject, why);
        return st;
    }
    if (request->number > 0)
        DPB_TRY(dpb_nccl_drain(comm, request->number, subject));
    *claimed = request;
    return DPB_OK;
}

/* Later work on the communicator's stream comes after everything on `after` so far. */
static dpb_status follow(struct dpb_nccl_comm *comm, dpb_stream *after, const char *subject)
{
    if (!after)
        return DPB_OK;
    DPB_NCCL_CUDA(comm, subject, cudaEventRecord(comm->ready, native(comm, after)));
    DPB_NCCL_CUDA(comm, subject, cudaStreamWaitEvent(comm->stream, comm->ready, 0));
    return DPB_OK;
}

/* Into the ring before NCCL has it, so that a hang inside NCCL is in the report. */
static void remember(struct dpb_nccl_comm *comm, struct dpb_nccl_request *request,
                     const struct dpb_coll *coll, uint64_t number, bool captured)
{
    pthread_mutex_lock(&comm->lock);
    request->number = number;
    request->coll = *coll;
    request->captured = captured;
    request->enqueued_ns = dpb_clock_now_ns();
    request->wire_bytes = dpb_nccl_collective_wire_bytes(comm, coll);
    dpb_nccl_ring_push(&comm->ring, coll, request->enqueued_ns, captured);
    pthread_mutex_unlock(&comm->lock);
}

static void publish(struct dpb_nccl_comm *comm, struct dpb_nccl_request *request)
{
    pthread_mutex_lock(&comm->lock);
    if (comm->completed == comm->newest)
        comm->head_ns = dpb_clock_now_ns();
    comm->newest = request->number;
    comm->wire_bytes += request->wire_bytes;
    request->held = true;
    dpb_rendezvous_note(comm->rendezvous, comm->newest, comm->completed);
    pthread_mutex_unlock(&comm->lock);
}

static dpb_status start_locked(struct dpb_nccl_comm *comm, const struct dpb_coll *coll,
                               dpb_stream *after, struct dpb_nccl_request **started)
{
    /* Only who holds call_lock changes `newest`. */
    const uint64_t number = comm->newest + 1;
    struct dpb_nccl_request *request;
    enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    char subject[DPB_NCCL_SUBJECT];
    dpb_nccl_subject(comm, coll, number, subject);
    DPB_TRY(dpb_rendezvous_check(comm->rendezvous, subject));
    DPB_TRY(claim(comm, coll, number, subject, &request));
    DPB_NCCL_CUDA(comm, subject, cudaSetDevice(comm->cuda_device));
    DPB_TRY(follow(comm, after, subject));
    DPB_NCCL_CUDA(comm, subject, cudaStreamIsCapturing(comm->stream, &capture));
    remember(comm, request, coll, number, capture != cudaStreamCaptureStatusNone);
    if (!request->captured)
        DPB_NCCL_CUDA(comm, subject, cudaEventRecord(request->begin, comm->stream));
    DPB_TRY(dpb_nccl_collective_enqueue(comm, coll, subject));
    DPB_NCCL_CUDA(comm, subject, cudaEventRecord(request->end, comm->stream));
    publish(comm, request);
    *started = request;
    return DPB_OK;
}

dpb_status dpb_nccl_start(dpb_comm *handle, const struct dpb_coll *coll, dpb_stream *after,
                          dpb_request **request)
{
    struct dpb_nccl_comm *comm = dpb_nccl_of(handle);
    struct dpb_nccl_request *started;
    pthread_mutex_lock(&comm->call_lock);
    dpb_status st = start_locked(comm, coll, after, &started);
    pthread_mutex_unlock(&comm->call_lock);
    if (st == DPB_OK)
        *request = (dpb_request *)started;
    return st;
}

/* ---- test and wait ---- */

static dpb_status check_request(struct dpb_nccl_comm *comm, const struct dpb_nccl_request *request)
{
    bool good = request >= comm->request && request < comm->request + DPB_NCCL_REQUESTS;
    pthread_mutex_lock(&comm->lock);
    good = good && request->held;
    pthread_mutex_unlock(&comm->lock);
    if (good)
        return DPB_OK;
    dpb_error("rank %d: a request is not, or no longer, one that start() returned",
              comm->base.rank);
    dpb_log_hint("a request ends with the first wait() for it");
    return DPB_ERR_USAGE;
}

dpb_status dpb_nccl_test(dpb_comm *handle, dpb_request *of)
{
    struct dpb_nccl_comm *comm = dpb_nccl_of(handle);
    const struct dpb_nccl_request *request = (const struct dpb_nccl_request *)of;
    char subject[DPB_NCCL_SUBJECT];
    DPB_TRY(check_request(comm, request));
    dpb_nccl_subject(comm, &request->coll, request->number, subject);
    DPB_TRY(dpb_rendezvous_check(comm->rendezvous, subject));
    if (request->captured) /* the host does not learn when it runs */
        return DPB_PENDING;
    DPB_NCCL_CUDA(comm, subject, cudaSetDevice(comm->cuda_device)); /* any thread may ask */
    DPB_TRY(dpb_nccl_advance(comm));
    return is_complete(comm, request->number) ? DPB_OK : DPB_PENDING;
}

static dpb_status wait_on_host(struct dpb_nccl_comm *comm, const struct dpb_nccl_request *request,
                               const char *subject)
{
    if (!request->captured)
        return dpb_nccl_drain(comm, request->number, subject);
    dpb_error("%s was captured into a graph: the host cannot wait for it", subject);
    dpb_log_hint("wait for it on a stream of the capture");
    return DPB_ERR_USAGE;
}

/* The times, where they are known. */
static dpb_status fill_times(struct dpb_nccl_comm *comm, const struct dpb_nccl_request *request,
                             const char *subject, struct dpb_coll_times *times)
{
    struct dpb_coll_times known = {.wire_bytes = request->wire_bytes,
                                   .wire_between_bytes = comm->wire_between_bytes};
    dpb_status st = DPB_OK;
    if (!request->captured) {
        DPB_TRY(dpb_nccl_advance(comm));
        if (is_complete(comm, request->number)) {
            pthread_mutex_lock(&comm->call_lock);
            st = dpb_nccl_clock_times(comm, request, subject, &known);
            pthread_mutex_unlock(&comm->call_lock);
        }
    }
    if (st == DPB_OK)
        *times = known;
    return st;
}

dpb_status dpb_nccl_wait(dpb_comm *handle, dpb_request *of, dpb_stream *stream,
                         struct dpb_coll_times *times)
{
    struct dpb_nccl_comm *comm = dpb_nccl_of(handle);
    struct dpb_nccl_request *request = (struct dpb_nccl_request *)of;
    char subject[DPB_NCCL_SUBJECT];
    DPB_TRY(check_request(comm, request));
    dpb_nccl_subject(comm, &request->coll, request->number, subject);
    dpb_status st = dpb_rendezvous_check(comm->rendezvous, subject);
    if (st == DPB_OK)
        st = dpb_nccl_cuda(comm, subject, "cudaSetDevice", cudaSetDevice(comm->cuda_device));
    if (st == DPB_OK && stream)
        st = dpb_nccl_cuda(comm, subject, "cudaStreamWaitEvent",
                           cudaStreamWaitEvent(native(comm, stream), request->end, 0));
    else if (st == DPB_OK)
        st = wait_on_host(comm, request, subject);
    /* A communicator that was given up meanwhile ends its collectives without a result. */
    if (st == DPB_OK && !stream)
        st = dpb_rendezvous_check(comm->rendezvous, subject);
    if (st == DPB_OK && times)
        st = fill_times(comm, request, subject, times);
    pthread_mutex_lock(&comm->lock);
    request->held = false;
    pthread_mutex_unlock(&comm->lock);
    return st;
}

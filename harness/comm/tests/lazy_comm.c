#include "lazy_comm.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "dpb_log.h"
#include "lazy_device.h"

#define BUFFERS_MAX 64

struct dpb_request {
    dpb_request *next; /* of all that there ever were */
    dpb_comm *comm;
    struct dpb_coll coll;
    dpb_event_mark *done_mark;
    _Atomic int is_done;
    dpb_status status;
    struct dpb_coll_times times;
};

struct buffer {
    void *memory, *real;
};

struct dpb_comm {
    struct dpb_comm_base base;
    struct dpb_comm_ops ops;
    dpb_comm *inner;
    const struct dpb_comm_ops *inner_ops;
    dpb_device *device;
    const struct dpb_device_ops *device_ops;
    dpb_stream *stream;
    enum lazy_comm_fault fault;
    struct buffer buffer[BUFFERS_MAX];
    int buffer_count;
    dpb_request *requests;
};

/* ---- memory ---- */

static dpb_status lazy_buffer_alloc(dpb_comm *comm, size_t bytes, void **memory)
{
    struct buffer *buffer = &comm->buffer[comm->buffer_count];
    dpb_status st;

    if (comm->buffer_count == BUFFERS_MAX)
        return DPB_ERR_NO_MEMORY;
    lazy_device_block_begin(comm->device);
    st = comm->inner_ops->buffer_alloc(comm->inner, bytes, &buffer->real);
    lazy_device_block_end(comm->device);
    DPB_TRY(st);
    DPB_TRY(lazy_device_adopt(comm->device, buffer->real, bytes, &buffer->memory));
    *memory = buffer->memory;
    comm->buffer_count++;
    return DPB_OK;
}

static dpb_status lazy_buffer_free(dpb_comm *comm, void *memory)
{
    const struct buffer *buffer = &comm->buffer[--comm->buffer_count];
    dpb_status st;

    if (buffer->memory != memory)
        return DPB_ERR_INTERNAL;
    DPB_TRY(lazy_device_drain(comm->device));
    st = comm->inner_ops->buffer_free(comm->inner, buffer->real);
    lazy_device_forget(comm->device, memory);
    return st;
}

/* ---- collectives ---- */

static dpb_status run(void *ctx)
{
    dpb_request *request = ctx;
    dpb_comm *comm = request->comm;
    struct dpb_coll coll = request->coll;
    dpb_request *inner;

    coll.buffer = lazy_device_real(comm->device, coll.buffer);
    request->status = comm->inner_ops->start(comm->inner, &coll, NULL, &inner);
    if (request->status >= 0)
        request->status = comm->inner_ops->wait(comm->inner, inner, NULL, &request->times);
    atomic_store(&request->is_done, 1);
    return request->status;
}

static dpb_status launch(dpb_comm *comm, dpb_request *request, dpb_stream *after)
{
    const struct dpb_device_ops *device = comm->device_ops;

    DPB_TRY(device->mark_open(comm->device, &request->done_mark));
    if (after && comm->fault != LAZY_COMM_NO_AFTER) {
        DPB_TRY(device->mark_record(request->done_mark, after));
        DPB_TRY(device->stream_wait(comm->stream, request->done_mark));
    }
    DPB_TRY(lazy_device_call(comm->stream, run, request));
    return device->mark_record(request->done_mark, comm->stream);
}

static dpb_status lazy_start(dpb_comm *comm, const struct dpb_coll *coll, dpb_stream *after,
                             dpb_request **request)
{
    dpb_request *made = calloc(1, sizeof(*made));

    if (!made)
        return DPB_ERR_NO_MEMORY;
    made->comm = comm;
    made->coll = *coll;
    made->next = comm->requests;
    comm->requests = made;
    *request = made;
    return launch(comm, made, after);
}

static dpb_status lazy_test(dpb_comm *comm, dpb_request *request)
{
    lazy_device_nudge(comm->device);
    if (!atomic_load(&request->is_done))
        return DPB_PENDING;
    return request->status;
}

static dpb_status lazy_wait(dpb_comm *comm, dpb_request *request, dpb_stream *stream,
                            struct dpb_coll_times *times)
{
    if (times)
        *times = (struct dpb_coll_times){0};
    if (stream)
        return comm->fault == LAZY_COMM_NO_WAIT
                       ? DPB_OK
                       : comm->device_ops->stream_wait(stream, request->done_mark);
    DPB_TRY(lazy_device_await(comm->device, &request->is_done));
    if (times)
        *times = request->times;
    return request->status;
}

/* ---- small talk ---- */

static dpb_status lazy_barrier(dpb_comm *comm)
{
    dpb_status st;

    lazy_device_block_begin(comm->device);
    st = comm->inner_ops->barrier(comm->inner);
    lazy_device_block_end(comm->device);
    return st;
}

static dpb_status lazy_exchange(dpb_comm *comm, const void *mine, size_t bytes, void *all)
{
    dpb_status st;

    lazy_device_block_begin(comm->device);
    st = comm->inner_ops->exchange(comm->inner, mine, bytes, all);
    lazy_device_block_end(comm->device);
    return st;
}

static dpb_json *lazy_describe(dpb_comm *comm)
{
    return comm->inner_ops->describe(comm->inner);
}

static void lazy_abort(dpb_comm *comm, const char *reason)
{
    comm->inner_ops->abort(comm->inner, reason);
}

static void lazy_stats(dpb_comm *comm, struct dpb_comm_stats *stats)
{
    comm->inner_ops->stats(comm->inner, stats);
}

/* ---- the communicator ---- */

void lazy_comm_close(dpb_comm *comm)
{
    if (!comm)
        return;
    (void)lazy_device_drain(comm->device);
    for (dpb_request *request = comm->requests, *next; request; request = next) {
        next = request->next;
        if (request->done_mark)
            comm->device_ops->mark_close(request->done_mark);
        free(request);
    }
    while (comm->buffer_count > 0)
        lazy_device_forget(comm->device, comm->buffer[--comm->buffer_count].memory);
    comm->device_ops->stream_close(comm->stream);
    free(comm);
}

static void fill_ops(dpb_comm *comm)
{
    comm->ops = (struct dpb_comm_ops){
            .version = DPB_COMM_OPS_VERSION,
            .name = "lazy",
            .summary = "for tests: as one of an accelerator may be",
            .flags = DPB_COMM_DEVICE_MEMORY,
            .probe = comm->inner_ops->probe,
            .open = comm->inner_ops->open,
            .close = lazy_comm_close,
            .describe = lazy_describe,
            .buffer_alloc = lazy_buffer_alloc,
            .buffer_free = lazy_buffer_free,
            .barrier = lazy_barrier,
            .exchange = lazy_exchange,
            .start = lazy_start,
            .test = lazy_test,
            .wait = lazy_wait,
            .abort = lazy_abort,
            .stats = lazy_stats,
    };
    comm->base.ops = &comm->ops;
}

dpb_comm *lazy_comm_of(dpb_comm *inner, dpb_device *device, enum lazy_comm_fault fault)
{
    dpb_comm *comm = calloc(1, sizeof(*comm));

    if (!comm)
        return NULL;
    comm->base = *dpb_comm_get_base(inner);
    comm->inner = inner;
    comm->inner_ops = comm->base.ops;
    comm->device = device;
    comm->device_ops = dpb_device_get_ops(device);
    comm->fault = fault;
    fill_ops(comm);
    if (comm->device_ops->stream_open(device, &comm->stream) >= 0)
        return comm;
    free(comm);
    return NULL;
}

/* nccl_buffer.c: memory of the GPU that NCCL knows: a stack of buffers. */
#include "nccl_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "dpb_log.h"

/* What the ranks say alike, and how it went. */
struct outcome {
    int32_t status;
    int32_t registered;
};

static dpb_status agree_on_bytes(struct dpb_nccl_comm *comm, int64_t wanted)
{
    int64_t *all = comm->gathered;
    DPB_TRY(dpb_rendezvous_exchange(comm->rendezvous, "buffer_alloc", &wanted, sizeof(wanted),
                                    all));
    for (int r = 0; r < comm->base.size; r++)
        if (all[r] != wanted)
            return dpb_rendezvous_fail(comm->rendezvous, DPB_ERR_MISMATCH, NULL,
                                       "rank %d: buffer_alloc: ranks disagree: rank %d: %" PRId64
                                       " bytes; rank %d: %" PRId64 " bytes",
                                       comm->base.rank, comm->base.rank, wanted, r, all[r]);
    return DPB_OK;
}

/* NCCL's own allocation when it is to be registered, CUDA's otherwise. */
static dpb_status take_memory(struct dpb_nccl_comm *comm, struct dpb_nccl_buffer *buffer)
{
    void *memory = NULL;
    if (comm->options.registration != DPB_COMM_NCCL_REGISTER_OFF &&
        comm->nccl->ncclMemAlloc(&memory, buffer->bytes) == ncclSuccess) {
        buffer->from_nccl = true;
        buffer->memory = memory;
        return DPB_OK;
    }
    cudaError_t error = cudaMalloc(&memory, buffer->bytes);
    if (error != cudaSuccess) {
        (void)cudaGetLastError(); /* told here, and not to a later check of a launch */
        dpb_error("rank %d: cannot get %zu bytes of the GPU for communication: %s", comm->base.rank,
                  buffer->bytes, cudaGetErrorString(error));
        dpb_log_hint("use a smaller model or batch, or a GPU with more free memory");
        return DPB_ERR_NO_MEMORY;
    }
    buffer->memory = memory;
    return DPB_OK;
}

static void free_memory(struct dpb_nccl_comm *comm, struct dpb_nccl_buffer *buffer)
{
    if (!buffer->memory)
        return;
    if (buffer->from_nccl)
        comm->nccl->ncclMemFree(buffer->memory);
    else
        cudaFree(buffer->memory);
    buffer->memory = NULL;
}

static dpb_status fill_with_zeros(struct dpb_nccl_comm *comm, const struct dpb_nccl_buffer *buffer,
                                  const char *subject)
{
    DPB_NCCL_CUDA(comm, subject, cudaMemsetAsync(buffer->memory, 0, buffer->bytes, comm->stream));
    DPB_NCCL_CUDA(comm, subject, cudaEventRecord(comm->ready, comm->stream));
    return dpb_nccl_host_wait(comm, subject, comm->ready);
}

/* Sets buffer->handle, unless registration is off, or "auto" and NCCL would not. */
static dpb_status register_memory(struct dpb_nccl_comm *comm, struct dpb_nccl_buffer *buffer,
                                  const char *subject)
{
    const bool must = comm->options.registration == DPB_COMM_NCCL_REGISTER_ON;
    if (comm->options.registration == DPB_COMM_NCCL_REGISTER_OFF)
        return DPB_OK;
    ncclResult_t result = comm->nccl->ncclCommRegister(comm->comm, buffer->memory, buffer->bytes,
                                                       &buffer->handle);
    if (result != ncclSuccess && result != ncclInProgress && !must) {
        buffer->handle = NULL;
        return DPB_OK;
    }
    return dpb_nccl_settle(comm, subject, "ncclCommRegister", result);
}

static dpb_status deregister_memory(struct dpb_nccl_comm *comm, struct dpb_nccl_buffer *buffer,
                                    const char *subject)
{
    void *handle = buffer->handle;
    buffer->handle = NULL;
    if (!handle)
        return DPB_OK;
    return dpb_nccl_settle(comm, subject, "ncclCommDeregister",
                           comm->nccl->ncclCommDeregister(comm->comm, handle));
}

/* Memory on all ranks or on none, registered on all or on none. */
static dpb_status agree_on_outcome(struct dpb_nccl_comm *comm, struct dpb_nccl_buffer *buffer,
                                   dpb_status mine, const char *subject)
{
    const struct outcome outcome = {mine, buffer->handle != NULL};
    struct outcome *all = comm->gathered;
    bool everywhere = true;
    DPB_TRY(dpb_rendezvous_exchange(comm->rendezvous, "buffer_alloc", &outcome, sizeof(outcome),
                                    all));
    for (int r = 0; r < comm->base.size; r++) {
        if (all[r].status != DPB_OK) {
            if (mine == DPB_OK)
                dpb_error("rank %d: no buffer of %zu bytes, because rank %d could not get it",
                          comm->base.rank, buffer->bytes, r);
            return (dpb_status)all[r].status;
        }
        everywhere = everywhere && all[r].registered;
    }
    if (everywhere || comm->options.registration == DPB_COMM_NCCL_REGISTER_OFF)
        return DPB_OK;
    if (comm->base.rank == 0)
        dpb_warn("NCCL did not register a buffer of %zu bytes on every rank: it goes unregistered",
                 buffer->bytes);
    return deregister_memory(comm, buffer, subject);
}

static dpb_status alloc_locked(struct dpb_nccl_comm *comm, struct dpb_nccl_buffer *buffer,
                               const char *subject)
{
    DPB_NCCL_CUDA(comm, subject, cudaSetDevice(comm->cuda_device));
    DPB_TRY(dpb_rendezvous_check(comm->rendezvous, subject));
    dpb_status st = take_memory(comm, buffer);
    if (st == DPB_OK)
        DPB_TRY(fill_with_zeros(comm, buffer, subject));
    if (st == DPB_OK)
        DPB_TRY(register_memory(comm, buffer, subject));
    return agree_on_outcome(comm, buffer, st, subject);
}

dpb_status dpb_nccl_buffer_alloc(dpb_comm *handle, size_t bytes, void **memory)
{
    struct dpb_nccl_comm *comm = dpb_nccl_of(handle);
    struct dpb_nccl_buffer buffer = {.bytes = bytes};
    char subject[DPB_NCCL_SUBJECT];
    snprintf(subject, sizeof(subject), "rank %d: buffer_alloc of %zu bytes", comm->base.rank,
             bytes);
    if (bytes == 0 || bytes > SIZE_MAX / 2) {
        dpb_error("rank %d: a buffer of %zu bytes is not possible", comm->base.rank, bytes);
        return DPB_ERR_USAGE;
    }
    if (comm->buffer_count == DPB_NCCL_BUFFERS) {
        dpb_error("rank %d: %d buffers are in use, no more are possible", comm->base.rank,
                  DPB_NCCL_BUFFERS);
        dpb_log_hint("put several arrays into one buffer");
        return DPB_ERR_USAGE;
    }
    DPB_TRY(agree_on_bytes(comm, (int64_t)bytes));
    pthread_mutex_lock(&comm->call_lock);
    dpb_status st = alloc_locked(comm, &buffer, subject);
    if (st == DPB_OK) {
        comm->buffer[comm->buffer_count++] = buffer;
        *memory = buffer.memory;
    } else if (buffer.handle) {
        /* NCCL knows it: freed when NCCL's communicator is gone. */
        comm->buffer[comm->buffer_count++] = buffer;
    } else {
        free_memory(comm, &buffer);
    }
    pthread_mutex_unlock(&comm->call_lock);
    return st;
}

dpb_status dpb_nccl_buffer_free(dpb_comm *handle, void *memory)
{
    struct dpb_nccl_comm *comm = dpb_nccl_of(handle);
    char subject[DPB_NCCL_SUBJECT];
    snprintf(subject, sizeof(subject), "rank %d: buffer_free", comm->base.rank);
    if (comm->buffer_count == 0 || comm->buffer[comm->buffer_count - 1].memory != memory) {
        dpb_error("rank %d: cannot free a buffer: it is not the newest one", comm->base.rank);
        dpb_log_hint("free buffers in the reverse order of their allocation");
        return DPB_ERR_USAGE;
    }
    /* Freeing waits for what runs, and that may be for a rank that never comes. */
    DPB_TRY(dpb_nccl_drain(comm, UINT64_MAX, subject));
    DPB_TRY(dpb_rendezvous_exchange(comm->rendezvous, "buffer_free", NULL, 0, NULL));
    pthread_mutex_lock(&comm->call_lock);
    struct dpb_nccl_buffer *buffer = &comm->buffer[comm->buffer_count - 1];
    dpb_status st = dpb_nccl_cuda(comm, subject, "cudaSetDevice", cudaSetDevice(comm->cuda_device));
    if (st == DPB_OK)
        st = dpb_rendezvous_check(comm->rendezvous, subject);
    if (st == DPB_OK)
        st = deregister_memory(comm, buffer, subject);
    if (st == DPB_OK) {
        free_memory(comm, buffer);
        comm->buffer_count--;
    }
    pthread_mutex_unlock(&comm->call_lock);
    return st;
}

const struct dpb_nccl_buffer *dpb_nccl_buffer_find(const struct dpb_nccl_comm *comm,
                                                   const void *memory, int64_t bytes)
{
    for (int i = 0; i < comm->buffer_count; i++) {
        const struct dpb_nccl_buffer *buffer = &comm->buffer[i];
        const char *at = memory;
        if (at >= buffer->memory && at <= buffer->memory + buffer->bytes &&
            bytes <= (int64_t)(buffer->bytes - (size_t)(at - buffer->memory)))
            return buffer;
    }
    return NULL;
}

dpb_status dpb_nccl_buffers_deregister(struct dpb_nccl_comm *comm, const char *subject)
{
    for (int i = comm->buffer_count - 1; i >= 0; i--)
        DPB_TRY(deregister_memory(comm, &comm->buffer[i], subject));
    return DPB_OK;
}

void dpb_nccl_buffers_release(struct dpb_nccl_comm *comm)
{
    while (comm->buffer_count > 0)
        free_memory(comm, &comm->buffer[--comm->buffer_count]);
    if (comm->staging)
        cudaFree(comm->staging);
    comm->staging = NULL;
}

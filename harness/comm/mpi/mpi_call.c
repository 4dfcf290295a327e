/* mpi_call.c: barrier, exchange and buffers, called by the ranks' main threads. */
#include "mpi_private.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dpb_log.h"

static dpb_status begin(struct dpb_mpi_comm *comm, enum dpb_mpi_call call, int64_t bytes,
                        struct dpb_mpi_subject *subject)
{
    const struct dpb_mpi_terms terms = {
            .number = atomic_fetch_add(&comm->calls, 1) + 1, .count = bytes, .kind = (int32_t)call};
    DPB_TRY(dpb_mpi_look(comm));
    *subject = (struct dpb_mpi_subject){dpb_mpi_call_text(call), DPB_MPI_CALLS, terms.number, -1};
    return dpb_mpi_terms_begin(comm, subject, &terms);
}

/* All ranks must come, and say the same number. */
static dpb_status meet(struct dpb_mpi_comm *comm, enum dpb_mpi_call call, int64_t bytes)
{
    struct dpb_mpi_subject subject;
    MPI_Request request;
    DPB_TRY(begin(comm, call, bytes, &subject));
    DPB_TRY(DPB_MPI_CALL(comm, &subject, MPI_Ibarrier, comm->meet, &request));
    DPB_TRY(dpb_mpi_await(comm, &request, 1, &subject));
    return dpb_mpi_terms_end(comm, &subject);
}

dpb_status dpb_mpi_barrier(dpb_comm *handle)
{
    return meet(dpb_mpi_of(handle), DPB_MPI_BARRIER, 0);
}

dpb_status dpb_mpi_exchange(dpb_comm *handle, const void *mine, size_t bytes, void *all)
{
    struct dpb_mpi_comm *comm = dpb_mpi_of(handle);
    if (bytes == 0 || bytes > DPB_COMM_EXCHANGE_BYTES) {
        dpb_error("rank %d: cannot exchange %zu bytes: 1 to %d are possible", comm->base.rank,
                  bytes, DPB_COMM_EXCHANGE_BYTES);
        dpb_log_hint("exchange larger data in pieces, or as a collective");
        return DPB_ERR_USAGE;
    }
    struct dpb_mpi_subject subject;
    MPI_Request request;
    DPB_TRY(begin(comm, DPB_MPI_EXCHANGE, (int64_t)bytes, &subject));
    DPB_TRY(DPB_MPI_CALL(comm, &subject, MPI_Iallgather, mine, (int)bytes, MPI_BYTE, all,
                         (int)bytes, MPI_BYTE, comm->meet, &request));
    DPB_TRY(dpb_mpi_await(comm, &request, 1, &subject));
    return dpb_mpi_terms_end(comm, &subject);
}

dpb_status dpb_mpi_buffer_alloc(dpb_comm *handle, size_t bytes, void **buffer)
{
    struct dpb_mpi_comm *comm = dpb_mpi_of(handle);
    void *data = NULL;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (bytes == 0 || comm->buffer_count == DPB_MPI_BUFFERS) {
        dpb_error("rank %d: cannot allocate a buffer of %zu bytes: %s", comm->base.rank, bytes,
                  bytes == 0 ? "it is empty" : "64 are there already");
        return DPB_ERR_USAGE;
    }
    DPB_TRY(meet(comm, DPB_MPI_BUFFER_ALLOC, (int64_t)bytes));
    if (bytes > SIZE_MAX - page || posix_memalign(&data, page, (bytes + page - 1) / page * page))
        return dpb_mpi_fail(comm, DPB_ERR_NO_MEMORY, NULL,
                            "rank %d: buffer_alloc: no memory for %zu bytes", comm->base.rank,
                            bytes);
    memset(data, 0, (bytes + page - 1) / page * page);
    comm->buffer[comm->buffer_count++] = (struct dpb_mpi_buffer){data, bytes};
    *buffer = data;
    return DPB_OK;
}

dpb_status dpb_mpi_buffer_free(dpb_comm *handle, void *buffer)
{
    struct dpb_mpi_comm *comm = dpb_mpi_of(handle);
    if (comm->buffer_count == 0 || comm->buffer[comm->buffer_count - 1].data != buffer) {
        dpb_error("rank %d: cannot free %p: it is not the newest buffer", comm->base.rank, buffer);
        dpb_log_hint("buffers are freed in the opposite order of their allocation");
        return DPB_ERR_USAGE;
    }
    DPB_TRY(meet(comm, DPB_MPI_BUFFER_FREE, (int64_t)comm->buffer[comm->buffer_count - 1].bytes));
    free(comm->buffer[--comm->buffer_count].data);
    return DPB_OK;
}

bool dpb_mpi_buffer_has(const struct dpb_mpi_comm *comm, const void *at, int64_t bytes)
{
    uintptr_t first = (uintptr_t)at;
    for (int i = 0; i < comm->buffer_count; i++) {
        uintptr_t begin_at = (uintptr_t)comm->buffer[i].data;
        if (first >= begin_at && first - begin_at <= comm->buffer[i].bytes &&
            (size_t)bytes <= comm->buffer[i].bytes - (first - begin_at))
            return true;
    }
    return false;
}

void dpb_mpi_buffers_free(struct dpb_mpi_comm *comm)
{
    while (comm->buffer_count > 0)
        free(comm->buffer[--comm->buffer_count].data);
}

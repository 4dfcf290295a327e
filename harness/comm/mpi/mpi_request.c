/* mpi_request.c: the callers' side of a collective, and the thread that executes them in turn. */
#include "mpi_private.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "dpb_clock.h"
#include "dpb_log.h"
#include "reduce.h"

/* ---- execution ---- */

static dpb_status execute(struct dpb_mpi_comm *comm, struct dpb_mpi_request *request)
{
    const struct dpb_coll *coll = &request->coll;
    int64_t now_ns = dpb_clock_now_ns();
    int64_t wire_bytes = 0;
    const struct dpb_mpi_subject subject = {dpb_coll_text(coll->kind), DPB_MPI_COLLECTIVES,
                                            request->number, coll->tag};
    const struct dpb_mpi_terms terms = {
            .number = request->number,
            .count = coll->count,
            .kind = (int32_t)coll->kind,
            .dtype = (int32_t)coll->dtype,
            .root = dpb_coll_has_root(coll->kind) ? coll->root : 0,
            .scale = dpb_coll_reduces(coll->kind) ? coll->scale : 0,
    };
    DPB_TRY(dpb_mpi_terms_begin(comm, &subject, &terms));
    DPB_TRY(dpb_mpi_execute(comm, coll, &subject, &wire_bytes));
    DPB_TRY(dpb_mpi_terms_end(comm, &subject));
    const int64_t between_bytes = dpb_setup_wire_between(
            &comm->setup, comm->options.algorithm != DPB_COMM_MPI_LIBRARY, coll, comm->base.rank);
    request->times =
            (struct dpb_coll_times){now_ns, now_ns, dpb_clock_now_ns(), wire_bytes, between_bytes};
    atomic_fetch_add(&comm->wire_bytes, wire_bytes);
    atomic_store(&comm->wire_between_bytes, /* one thread at a time executes */
                 dpb_wire_sum(atomic_load(&comm->wire_between_bytes), between_bytes));
    atomic_fetch_add(&comm->collectives, 1);
    return DPB_OK;
}

/* Execute, in order, what was started up to `last`. */
static void drain(struct dpb_mpi_comm *comm, uint64_t last)
{
    pthread_mutex_lock(&comm->execute_lock);
    while (atomic_load(&comm->failure) == DPB_OK) {
        pthread_mutex_lock(&comm->state_lock);
        uint64_t next = comm->completed + 1;
        bool has_one = next <= comm->newest && next <= last;
        pthread_mutex_unlock(&comm->state_lock);
        if (!has_one || execute(comm, &comm->request[next % DPB_MPI_REQUESTS]) < 0)
            break;
        pthread_mutex_lock(&comm->state_lock);
        comm->completed = next;
        pthread_cond_broadcast(&comm->changed);
        pthread_mutex_unlock(&comm->state_lock);
    }
    pthread_mutex_unlock(&comm->execute_lock);
}

/* Asleep while there is nothing to do; now and then it answers other ranks' questions. */
static void *progress(void *handle)
{
    struct dpb_mpi_comm *comm = handle;
    bool is_over = false;
    while (!is_over && atomic_load(&comm->failure) == DPB_OK) {
        int64_t until_ns = dpb_clock_now_ns() + DPB_MPI_IDLE_NS;
        const struct timespec until = {until_ns / 1000000000, until_ns % 1000000000};
        int late = 0;
        pthread_mutex_lock(&comm->state_lock);
        while (comm->newest == comm->completed && !comm->stopping && late == 0)
            late = pthread_cond_timedwait(&comm->changed, &comm->state_lock, &until);
        uint64_t newest = comm->newest;
        is_over = comm->stopping && newest == comm->completed;
        pthread_mutex_unlock(&comm->state_lock);
        if (late == ETIMEDOUT)
            (void)dpb_mpi_look(comm);
        else
            drain(comm, newest);
    }
    return NULL;
}

dpb_status dpb_mpi_progress_start(struct dpb_mpi_comm *comm)
{
    int error = pthread_create(&comm->thread, NULL, progress, comm);
    if (error) {
        dpb_error("rank %d: cannot start the progress thread: %s", comm->base.rank,
                  strerror(error));
        return DPB_ERR_NO_MEMORY;
    }
    comm->thread_runs = true;
    return DPB_OK;
}

void dpb_mpi_progress_stop(struct dpb_mpi_comm *comm)
{
    if (!comm->thread_runs)
        return;
    pthread_mutex_lock(&comm->state_lock);
    comm->stopping = true;
    pthread_cond_broadcast(&comm->changed);
    pthread_mutex_unlock(&comm->state_lock);
    pthread_join(comm->thread, NULL);
    comm->thread_runs = false;
}

/* ---- callers ---- */

static dpb_status check_scale(const struct dpb_coll *coll, char *why, size_t why_bytes)
{
    bool integer = coll->dtype == DPB_I32 || coll->dtype == DPB_I64;
    if (!dpb_reduce_supports(coll->dtype)) {
        snprintf(why, why_bytes, "comm \"mpi\" cannot sum %s", dpb_dtype_text(coll->dtype));
        return DPB_ERR_UNSUPPORTED;
    }
    if (!isfinite(coll->scale) || coll->scale == 0) {
        snprintf(why, why_bytes, "the scale is %g; a plain sum has scale 1", (double)coll->scale);
        return DPB_ERR_USAGE;
    }
    if (integer && coll->scale != 1) {
        snprintf(why, why_bytes, "%s cannot be scaled (by %g)", dpb_dtype_text(coll->dtype),
                 (double)coll->scale);
        return DPB_ERR_USAGE;
    }
    return DPB_OK;
}

/* Why a collective is not possible, or DPB_OK. */
static dpb_status check_coll(const struct dpb_mpi_comm *comm, const struct dpb_coll *coll,
                             char *why, size_t why_bytes)
{
    if ((unsigned)coll->kind >= DPB_COLL_COUNT || (unsigned)coll->dtype >= DPB_DTYPE_COUNT) {
        snprintf(why, why_bytes, "there is no kind %d, or no element type %d", (int)coll->kind,
                 (int)coll->dtype);
        return DPB_ERR_USAGE;
    }
    int64_t element_bytes = (int64_t)dpb_dtype_bytes(coll->dtype);
    if (coll->count < 0 || coll->count > INT64_MAX / element_bytes) {
        snprintf(why, why_bytes, "the count is %" PRId64, coll->count);
        return DPB_ERR_USAGE;
    }
    if (dpb_coll_has_root(coll->kind) && (coll->root < 0 || coll->root >= comm->base.size)) {
        snprintf(why, why_bytes, "there is no root %d among %d ranks", coll->root, comm->base.size);
        return DPB_ERR_USAGE;
    }
    if (coll->kind == DPB_COLL_ALL_TO_ALL && coll->count % comm->base.size != 0) {
        snprintf(why, why_bytes, "its %" PRId64 " elements are no multiple of the %d ranks",
                 coll->count, comm->base.size);
        return DPB_ERR_USAGE;
    }
    if (dpb_coll_reduces(coll->kind))
        DPB_TRY(check_scale(coll, why, why_bytes));
    DPB_TRY(dpb_algorithm_check(&comm->setup, coll->kind, why, why_bytes));
    if (!dpb_mpi_buffer_has(comm, coll->buffer, coll->count * element_bytes) ||
        (uintptr_t)coll->buffer % (uintptr_t)element_bytes != 0) {
        snprintf(why, why_bytes,
                 "%" PRId64 " elements of %s at %p do not lie, aligned, inside a buffer_alloc() "
                 "buffer",
                 coll->count, dpb_dtype_text(coll->dtype), coll->buffer);
        return DPB_ERR_USAGE;
    }
    return DPB_OK;
}

dpb_status dpb_mpi_start(dpb_comm *handle, const struct dpb_coll *coll, dpb_stream *after,
                         dpb_request **started)
{
    (void)after; /* devices that compute in the caller's thread: what was launched is complete */
    struct dpb_mpi_comm *comm = dpb_mpi_of(handle);
    char why[DPB_MPI_TEXT];
    dpb_status st = (dpb_status)atomic_load(&comm->failure);
    if (st < 0)
        return st;
    pthread_mutex_lock(&comm->state_lock);
    uint64_t number = comm->newest + 1;
    struct dpb_mpi_request *request = &comm->request[number % DPB_MPI_REQUESTS];
    st = check_coll(comm, coll, why, sizeof(why));
    if (st == DPB_OK && request->state != DPB_MPI_REQUEST_FREE) {
        snprintf(why, sizeof(why), "%d collectives were started and the oldest was not waited for",
                 DPB_MPI_REQUESTS);
        st = DPB_ERR_USAGE;
    }
    if (st == DPB_OK) {
        *request = (struct dpb_mpi_request){
                .number = number, .coll = *coll, .state = DPB_MPI_REQUEST_STARTED};
        comm->newest = number;
        pthread_cond_broadcast(&comm->changed);
        *started = (dpb_request *)request;
    }
    pthread_mutex_unlock(&comm->state_lock);
    if (st < 0)
        dpb_error("rank %d: collective #%" PRIu64 " cannot be started: %s", comm->base.rank, number,
                  why);
    return st;
}

/* Holds state_lock. */
static dpb_status check_request(const struct dpb_mpi_comm *comm,
                                const struct dpb_mpi_request *request)
{
    if (request >= comm->request && request < comm->request + DPB_MPI_REQUESTS &&
        request->state == DPB_MPI_REQUEST_STARTED)
        return DPB_OK;
    dpb_error("rank %d: a request is not, or no longer, one that start() returned",
              comm->base.rank);
    dpb_log_hint("a request ends with the first wait() for it");
    return DPB_ERR_USAGE;
}

dpb_status dpb_mpi_test(dpb_comm *handle, dpb_request *started)
{
    struct dpb_mpi_comm *comm = dpb_mpi_of(handle);
    const struct dpb_mpi_request *request = (const struct dpb_mpi_request *)started;
    pthread_mutex_lock(&comm->state_lock);
    dpb_status st = check_request(comm, request);
    if (st == DPB_OK && comm->completed < request->number) {
        st = (dpb_status)atomic_load(&comm->failure);
        st = st < 0 ? st : DPB_PENDING;
    }
    pthread_mutex_unlock(&comm->state_lock);
    return st;
}

dpb_status dpb_mpi_wait(dpb_comm *handle, dpb_request *started, dpb_stream *stream,
                        struct dpb_coll_times *times)
{
    (void)stream; /* blocks the caller */
    struct dpb_mpi_comm *comm = dpb_mpi_of(handle);
    struct dpb_mpi_request *request = (struct dpb_mpi_request *)started;
    pthread_mutex_lock(&comm->state_lock);
    dpb_status st = check_request(comm, request);
    if (st < 0) {
        pthread_mutex_unlock(&comm->state_lock);
        return st;
    }
    if (comm->options.progress == DPB_COMM_MPI_NONE) {
        uint64_t number = request->number;
        pthread_mutex_unlock(&comm->state_lock);
        drain(comm, number);
        pthread_mutex_lock(&comm->state_lock);
    }
    /* No deadline here: each collective before this one, and this one, ends at its own. */
    while (comm->completed < request->number && atomic_load(&comm->failure) == DPB_OK)
        pthread_cond_wait(&comm->changed, &comm->state_lock);
    if (comm->completed < request->number)
        st = (dpb_status)atomic_load(&comm->failure);
    else if (times)
        *times = request->times;
    request->state = DPB_MPI_REQUEST_FREE;
    pthread_mutex_unlock(&comm->state_lock);
    return st;
}

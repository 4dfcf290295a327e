/* shm_request.c: the callers' side of a collective: start, test, wait. */
#include "shm_private.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "dpb_clock.h"
#include "dpb_log.h"
#include "reduce.h"

/* Why a collective is not possible, or DPB_OK. */
static dpb_status check_coll(const struct dpb_shm_comm *comm, const struct dpb_coll *coll,
                             char *why, size_t why_bytes)
{
    if ((unsigned)coll->kind >= DPB_COLL_COUNT) {
        snprintf(why, why_bytes, "there is no kind %d", (int)coll->kind);
        return DPB_ERR_USAGE;
    }
    if ((unsigned)coll->dtype >= DPB_DTYPE_COUNT) {
        snprintf(why, why_bytes, "there is no element type %d", (int)coll->dtype);
        return DPB_ERR_USAGE;
    }
    if (dpb_coll_reduces(coll->kind) && !dpb_reduce_supports(coll->dtype)) {
        snprintf(why, why_bytes, "comm \"shm\" cannot sum %s", dpb_dtype_text(coll->dtype));
        return DPB_ERR_UNSUPPORTED;
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
    if (dpb_coll_reduces(coll->kind)) {
        bool integer = coll->dtype == DPB_I32 || coll->dtype == DPB_I64;
        if (!isfinite(coll->scale) || coll->scale == 0) {
            snprintf(why, why_bytes, "the scale is %g; a plain sum has scale 1",
                     (double)coll->scale);
            return DPB_ERR_USAGE;
        }
        if (integer && coll->scale != 1) {
            snprintf(why, why_bytes, "%s cannot be scaled (by %g)", dpb_dtype_text(coll->dtype),
                     (double)coll->scale);
            return DPB_ERR_USAGE;
        }
    }
    DPB_TRY(dpb_algorithm_check(&comm->setup, coll->kind, why, why_bytes));
    int index = dpb_shm_buffer_find(comm, coll->buffer, coll->count * element_bytes);
    if (index < 0) {
        snprintf(why, why_bytes,
                 "%" PRId64 " elements of %s at %p do not lie inside a buffer_alloc() buffer",
                 coll->count, dpb_dtype_text(coll->dtype), coll->buffer);
        return DPB_ERR_USAGE;
    }
    if ((uintptr_t)coll->buffer % (uintptr_t)element_bytes != 0) {
        snprintf(why, why_bytes, "%p is not aligned to the elements (%s)", coll->buffer,
                 dpb_dtype_text(coll->dtype));
        return DPB_ERR_USAGE;
    }
    return DPB_OK;
}

/* Take the next number for a collective. Holds the lock. */
static dpb_status enter(struct dpb_shm_comm *shm, const struct dpb_coll *coll, bool timed,
                        struct dpb_shm_request **entered)
{
    char why[DPB_SHM_TEXT];
    uint64_t number = shm->newest + 1;
    struct dpb_shm_subject subject = {dpb_coll_text(coll->kind), "collective", number, coll->tag};
    DPB_TRY(dpb_shm_check(shm, &subject));
    dpb_status st = check_coll(shm, coll, why, sizeof(why));
    struct dpb_shm_request *slot = &shm->request[number % DPB_SHM_REQUESTS];
    if (st == DPB_OK && atomic_load(&slot->state) != DPB_SHM_REQUEST_FREE) {
        snprintf(why, sizeof(why), "%d collectives were started and the oldest was not waited for",
                 DPB_SHM_REQUESTS);
        st = DPB_ERR_USAGE;
    }
    if (st < 0) {
        char what[160];
        dpb_shm_subject_text(shm, &subject, what, sizeof(what));
        dpb_error("%s cannot be started: %s", what, why);
        return st;
    }
    slot->number = number;
    slot->coll = *coll;
    slot->buffer_index = dpb_shm_buffer_find(shm, coll->buffer,
                                             coll->count * (int64_t)dpb_dtype_bytes(coll->dtype));
    slot->buffer = shm->buffer[slot->buffer_index];
    slot->offset = (const char *)coll->buffer - dpb_shm_region(&slot->buffer, shm->base.rank);
    slot->timed = timed;
    slot->started_ns = timed ? dpb_clock_now_ns() : 0;
    shm->newest = number;
    *entered = slot;
    return DPB_OK;
}

dpb_status dpb_shm_start(dpb_comm *comm, const struct dpb_coll *coll, dpb_stream *after,
                         dpb_request **request)
{
    /* This backend goes with devices that compute in the caller's thread: what was launched is
     * complete. */
    (void)after;
    struct dpb_shm_comm *shm = dpb_shm_of(comm);
    struct dpb_shm_request *slot;
    pthread_mutex_lock(&shm->start_lock);
    dpb_status st = enter(shm, coll, true, &slot);
    if (st == DPB_OK) {
        atomic_store(&slot->state, DPB_SHM_REQUEST_STARTED);
        shm->queue[(dpb_shared_word_count(&shm->queued) + 1) % DPB_SHM_REQUESTS] = slot->number;
        dpb_shared_word_post(&shm->queued);
        *request = (dpb_request *)slot;
    }
    pthread_mutex_unlock(&shm->start_lock);
    return st;
}

/* Nobody is woken, and the waits of the peers may spin longer than a background thread's: the
 * caller has nothing else to do. The lock keeps others from starting what would run meanwhile. */
dpb_status dpb_shm_run(dpb_comm *comm, const struct dpb_coll *coll, struct dpb_coll_times *times)
{
    struct dpb_shm_comm *shm = dpb_shm_of(comm);
    struct dpb_shm_request *slot;
    pthread_mutex_lock(&shm->start_lock);
    const bool emulated = shm->options.link.bw_bytes_per_s > 0;
    dpb_status st = enter(shm, coll, times != NULL || emulated, &slot);
    if (st < 0)
        goto out;
    if (shm->options.progress == DPB_COMM_SHM_NONE)
        st = dpb_shm_progress_drain(shm, slot->number - 1);
    if (st < 0)
        goto out;
    if (dpb_shared_word_wait(&shm->completed, slot->number - 1, 0, DPB_SHARED_NEVER, 0) ==
        DPB_SHARED_REACHED) {
        shm->patience = shm->blocking;
        st = dpb_shm_progress_run(shm, slot);
        shm->patience = shm->background;
    } else {
        st = (dpb_status)atomic_load(&shm->failure);
    }
    if (st < 0)
        goto out;
    if (times)
        *times = slot->times;
    dpb_shared_word_post(&shm->completed);
out:
    pthread_mutex_unlock(&shm->start_lock);
    return st;
}

static dpb_status check_request(const struct dpb_shm_comm *comm,
                                const struct dpb_shm_request *request)
{
    if (request >= comm->request && request < comm->request + DPB_SHM_REQUESTS &&
        atomic_load(&request->state) == DPB_SHM_REQUEST_STARTED)
        return DPB_OK;
    dpb_error("rank %d: a request is not, or no longer, one that start() returned",
              comm->base.rank);
    dpb_log_hint("a request ends with the first wait() for it");
    return DPB_ERR_USAGE;
}

dpb_status dpb_shm_test(dpb_comm *comm, dpb_request *handle)
{
    struct dpb_shm_comm *shm = dpb_shm_of(comm);
    struct dpb_shm_request *request = (struct dpb_shm_request *)handle;
    DPB_TRY(check_request(shm, request));
    if (dpb_shared_word_count(&shm->completed) >= request->number)
        return DPB_OK;
    dpb_status st = (dpb_status)atomic_load(&shm->failure);
    return st < 0 ? st : DPB_PENDING;
}

dpb_status dpb_shm_wait(dpb_comm *comm, dpb_request *handle, dpb_stream *stream,
                        struct dpb_coll_times *times)
{
    (void)stream; /* blocks the caller */
    struct dpb_shm_comm *shm = dpb_shm_of(comm);
    struct dpb_shm_request *request = (struct dpb_shm_request *)handle;
    DPB_TRY(check_request(shm, request));
    if (shm->options.progress == DPB_COMM_SHM_NONE && atomic_load(&shm->failure) == DPB_OK)
        /* What fails is found in `completed`, as it is with a thread. */
        (void)dpb_shm_progress_drain(shm, request->number);
    /* Asleep at once: the progress thread runs on the same core. No deadline here: each collective
     * before this one, and this one, ends at its own. */
    enum dpb_shared_wake wake =
            dpb_shared_word_wait(&shm->completed, request->number, 0, DPB_SHARED_NEVER, 0);
    dpb_status st = DPB_OK;
    if (wake != DPB_SHARED_REACHED)
        st = (dpb_status)atomic_load(&shm->failure);
    else if (times)
        *times = request->times;
    atomic_store(&request->state, DPB_SHM_REQUEST_FREE);
    return st;
}

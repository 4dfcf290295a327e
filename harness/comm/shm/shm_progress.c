/* shm_progress.c: one thread per rank executes the collectives in the order of their start.
 *
 * It sleeps when it waits, because it runs on the core where the rank computes: a spinning helper
 * doubles the time of a step. Peers that are nearly there are first waited for with a few pause
 * instructions (choose_spins() says when), which costs less than falling asleep and waking up; for
 * new work and for the emulated link it always sleeps. */
#include "shm_private.h"

#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "dpb_clock.h"
#include "dpb_log.h"
#include "dpb_str.h"
#include "dpb_units.h"
#include "reduce.h"

/* Ask for early wake-ups, of which the emulated link needs many. Both are requests: without them
 * the thread only wakes up later, which the statistics show. */
static void prefer_latency(void)
{
    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
    /* Kernels with EEVDF take a short slice of an ordinary thread as a wish for low latency. glibc
     * has no wrapper for this call. */
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime_ns, deadline_ns, period_ns;
    } attributes = {.size = 48, .policy = SCHED_OTHER, .runtime_ns = 100000};
    syscall(SYS_sched_setattr, 0, &attributes, 0U);
}

static void append_terms(struct dpb_str *text, int rank, const struct dpb_shm_terms *terms)
{
    dpb_str_appendf(text, "%srank %d: %s of %" PRId64 " %s", text->length ? "; " : "", rank,
                    dpb_coll_text((enum dpb_coll_kind)terms->kind), terms->count,
                    (unsigned)terms->dtype < DPB_DTYPE_COUNT
                            ? dpb_dtype_text((enum dpb_dtype)terms->dtype)
                            : "?");
    if (dpb_coll_has_root((enum dpb_coll_kind)terms->kind))
        dpb_str_appendf(text, ", root %d", terms->root);
    if (terms->scale != 0)
        dpb_str_appendf(text, ", scale %.9g", (double)terms->scale);
    dpb_str_appendf(text, ", buffer %d + %" PRId64 " bytes", terms->buffer, terms->offset);
}

/* All ranks must mean the same collective before any touches another's memory. */
static dpb_status check_terms(struct dpb_shm_comm *comm, const struct dpb_shm_request *request,
                              const struct dpb_shm_subject *subject)
{
    const struct dpb_shm_terms *first = &dpb_shm_slot_of(comm, 0, request->number)->terms;
    struct dpb_str text = {0};
    for (int r = 1; r < comm->base.size; r++) {
        const struct dpb_shm_terms *terms = &dpb_shm_slot_of(comm, r, request->number)->terms;
        if (memcmp(terms, first, sizeof(*first)) == 0)
            continue;
        if (text.length == 0)
            append_terms(&text, 0, first);
        append_terms(&text, r, terms);
    }
    if (text.length == 0)
        return DPB_OK;
    char what[160];
    dpb_shm_subject_text(comm, subject, what, sizeof(what));
    dpb_status st = dpb_shm_fail(comm, DPB_ERR_MISMATCH,
                                 "every rank must start the same collectives in the same order",
                                 "%s: ranks disagree: %s", what, text.text);
    dpb_str_release(&text);
    return st;
}

static void fill_slot(struct dpb_shm_slot *slot, const struct dpb_shm_request *request,
                      int64_t now_ns)
{
    const struct dpb_coll *coll = &request->coll;
    slot->terms = (struct dpb_shm_terms){
            .count = coll->count,
            .offset = request->offset,
            .kind = (int32_t)coll->kind,
            .dtype = (int32_t)coll->dtype,
            .root = dpb_coll_has_root(coll->kind) ? coll->root : 0,
            .buffer = request->buffer_index,
            .scale = dpb_coll_reduces(coll->kind) ? coll->scale : 0,
    };
    slot->started_ns = request->started_ns;
    slot->arrived_ns = now_ns;
}

/* Few values of two ranks are sent along with the terms, and each rank sums them itself, in the
 * order of direct: nothing is left to wait for. Each sends what it has once, as by any algorithm
 * that all-reduces between two. */
static bool is_eager(const struct dpb_shm_comm *comm, const struct dpb_coll *coll)
{
    return coll->kind == DPB_COLL_ALL_REDUCE && comm->base.size == 2 &&
           comm->options.algorithm == DPB_ALGORITHM_DIRECT &&
           !(comm->options.link.bw_bytes_per_s > 0) &&
           coll->count <= DPB_SHM_EAGER / (int64_t)dpb_dtype_bytes(coll->dtype);
}

static unsigned char *eager_values(struct dpb_shm_slot *slot, const struct dpb_coll *coll)
{
    return coll->count <= DPB_SHM_FEW / (int64_t)dpb_dtype_bytes(coll->dtype) ? slot->few
                                                                              : slot->eager;
}

static void sum_eager(struct dpb_shm_comm *comm, const struct dpb_shm_request *request)
{
    const struct dpb_coll *coll = &request->coll;
    void *sources[] = {eager_values(dpb_shm_slot_of(comm, 0, request->number), coll),
                       eager_values(dpb_shm_slot_of(comm, 1, request->number), coll)};
    void *output = coll->buffer;
    dpb_reduce_all(coll->dtype, sources, 2, &output, 1, 0, coll->count, coll->scale);
}

/* What this rank sent: what it wrote to peers, and what they took from it. Read after all are done.
 */
static int64_t sent_bytes(struct dpb_shm_comm *comm, uint64_t number, int64_t pushed_bytes)
{
    int64_t bytes = pushed_bytes;
    for (int r = 0; r < comm->base.size; r++)
        bytes += dpb_shm_slot_of(comm, r, number)->taken_from[comm->base.rank];
    return bytes;
}

/* Sleep until `until_ns`, or until a rank fails. */
static dpb_status sleep_until(struct dpb_shm_comm *comm, int64_t until_ns,
                              const struct dpb_shm_subject *subject)
{
    if (dpb_shared_word_wait(&comm->control->failed, 1, 0, until_ns, 0) == DPB_SHARED_POISONED)
        return dpb_shm_adopt(comm, subject);
    dpb_shm_histogram_add(&comm->lateness, dpb_clock_now_ns() - until_ns);
    return DPB_OK;
}

/* The emulated link carries one collective at a time. Every rank computes the same times from the
 * same stamps; the data has been moved already. */
static dpb_status pass_link(struct dpb_shm_comm *comm, struct dpb_shm_request *request,
                            int64_t all_started_ns, const struct dpb_shm_subject *subject)
{
    const struct dpb_coll *coll = &request->coll;
    int64_t bytes = coll->count * (int64_t)dpb_dtype_bytes(coll->dtype);
    int64_t wire_ns = dpb_setup_wire_ns(&comm->setup, coll->kind, bytes);
    if (wire_ns > comm->timeout_ns) {
        char what[160];
        char needed[DPB_UNIT_TEXT_BYTES];
        char timeout[DPB_UNIT_TEXT_BYTES];
        dpb_shm_subject_text(comm, subject, what, sizeof(what));
        dpb_human_duration((double)wire_ns, 3, needed, sizeof(needed));
        dpb_format_duration(comm->timeout_ns, timeout, sizeof(timeout));
        return dpb_shm_fail(comm, DPB_ERR_TIMEOUT, "choose a faster --link or a longer --timeout",
                            "%s needs %s on the emulated link, longer than the time-out of %s",
                            what, needed, timeout);
    }
    int64_t begin_ns = all_started_ns > comm->link_free_ns ? all_started_ns : comm->link_free_ns;
    request->times.start_ns =
            request->started_ns > comm->link_free_ns ? request->started_ns : comm->link_free_ns;
    request->times.all_ready_ns = begin_ns;
    comm->link_free_ns = begin_ns + wire_ns;
    if (dpb_clock_now_ns() < comm->link_free_ns)
        return sleep_until(comm, comm->link_free_ns, subject);
    /* Nobody is late for a wire that takes no time. */
    if (wire_ns > 0)
        atomic_fetch_add(&comm->link_late, 1);
    return DPB_OK;
}

/* Start and arrival of the last rank. */
static void latest(struct dpb_shm_comm *comm, uint64_t number, int64_t *started_ns,
                   int64_t *arrived_ns)
{
    *started_ns = INT64_MIN;
    *arrived_ns = INT64_MIN;
    for (int r = 0; r < comm->base.size; r++) {
        const struct dpb_shm_slot *slot = dpb_shm_slot_of(comm, r, number);
        if (slot->started_ns > *started_ns)
            *started_ns = slot->started_ns;
        if (slot->arrived_ns > *arrived_ns)
            *arrived_ns = slot->arrived_ns;
    }
}

dpb_status dpb_shm_progress_run(struct dpb_shm_comm *comm, struct dpb_shm_request *request)
{
    uint64_t number = request->number;
    const struct dpb_coll *coll = &request->coll;
    const struct dpb_shm_subject subject = {dpb_coll_text(coll->kind), "collective", number,
                                            coll->tag};
    struct dpb_shm_slot *slot = dpb_shm_slot_of(comm, comm->base.rank, number);
    const bool eager = is_eager(comm, coll);
    const bool emulated = comm->options.link.bw_bytes_per_s > 0;
    /* What reading the clock costs is a good part of a short collective's time. */
    int64_t now_ns = request->timed || emulated ? dpb_clock_now_ns() : 0;
    fill_slot(slot, request, now_ns);
    if (eager)
        memcpy(eager_values(slot, coll), coll->buffer,
               (size_t)coll->count * dpb_dtype_bytes(coll->dtype));
    else
        memset(slot->taken_from, 0, (size_t)comm->base.size * sizeof(slot->taken_from[0]));
    DPB_TRY(dpb_shm_meet(comm, DPB_SHM_READY, number, &subject, DPB_SHM_LAZY));
    DPB_TRY(check_terms(comm, request, &subject));

    int64_t all_started_ns = 0, all_arrived_ns = 0, pushed_bytes = 0;
    if (request->timed || emulated)
        latest(comm, number, &all_started_ns, &all_arrived_ns);
    if (eager) {
        sum_eager(comm, request);
        request->times.wire_bytes = coll->count * (int64_t)dpb_dtype_bytes(coll->dtype);
    } else {
        DPB_TRY(dpb_shm_execute(comm, request, &subject, dpb_clock_now_ns() + comm->timeout_ns,
                                &pushed_bytes));
        comm->done_meetings++;
        DPB_TRY(dpb_shm_meet(comm, DPB_SHM_DONE, comm->done_meetings, &subject, DPB_SHM_LAZY));
        request->times.wire_bytes = sent_bytes(comm, number, pushed_bytes);
    }

    request->times.wire_between_bytes =
            dpb_setup_wire_between(&comm->setup, true, coll, comm->base.rank);
    request->times.start_ns = now_ns;
    request->times.all_ready_ns = all_arrived_ns;
    if (emulated)
        DPB_TRY(pass_link(comm, request, all_started_ns, &subject));
    if (request->timed)
        request->times.end_ns = dpb_clock_now_ns();
    atomic_fetch_add(&comm->collectives, 1);
    atomic_fetch_add(&comm->wire_bytes, request->times.wire_bytes);
    atomic_fetch_add(&comm->wire_between_bytes, request->times.wire_between_bytes);
    return DPB_OK;
}

dpb_status dpb_shm_progress_drain(struct dpb_shm_comm *comm, uint64_t number)
{
    dpb_status st = DPB_OK;
    pthread_mutex_lock(&comm->execute_lock);
    while (st == DPB_OK && dpb_shared_word_count(&comm->completed) < number) {
        /* What is not complete is queued: run() has drained before it ran. */
        uint64_t next = dpb_shared_word_count(&comm->completed) + 1;
        struct dpb_shm_request *request = &comm->request[next % DPB_SHM_REQUESTS];
        /* Only now is this rank there, also for the emulated link. */
        request->started_ns = dpb_clock_now_ns();
        st = dpb_shm_progress_run(comm, request);
        if (st == DPB_OK)
            dpb_shared_word_post(&comm->completed);
    }
    pthread_mutex_unlock(&comm->execute_lock);
    return st;
}

static void *progress(void *context)
{
    struct dpb_shm_comm *comm = context;
    pthread_setname_np(pthread_self(), "dpb-comm");
    prefer_latency();
    for (uint64_t k = 1;; k++) {
        /* Poisoned when this side closes, and then what was started is still run. */
        if (dpb_shared_word_wait(&comm->queued, k, 0, DPB_SHARED_NEVER, 0) != DPB_SHARED_REACHED)
            break;
        uint64_t number = comm->queue[k % DPB_SHM_REQUESTS];
        if (dpb_shm_progress_run(comm, &comm->request[number % DPB_SHM_REQUESTS]) < 0)
            break;
        dpb_shared_word_post(&comm->completed);
    }
    /* After a failure the thread stays, because stats() reads its clock: until close(). */
    dpb_shared_word_wait(&comm->queued, UINT64_MAX, 0, DPB_SHARED_NEVER, 0);
    return NULL;
}

dpb_status dpb_shm_progress_start(struct dpb_shm_comm *comm)
{
    /* Signals are for the main thread. The processors that this rank is bound to are inherited. */
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&comm->thread, NULL, progress, comm);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0)
        return dpb_shm_fail(comm, DPB_ERR_NO_MEMORY, "raise the limit of processes (ulimit -u)",
                            "rank %d: cannot start the progress thread: %s", comm->base.rank,
                            strerror(error));
    comm->thread_runs = true;
    return DPB_OK;
}

void dpb_shm_progress_stop(struct dpb_shm_comm *comm)
{
    if (!comm->thread_runs) {
        /* A failure has been told, and there is nobody to return it to. */
        if (comm->options.progress == DPB_COMM_SHM_NONE && atomic_load(&comm->failure) == DPB_OK)
            (void)dpb_shm_progress_drain(comm, comm->newest);
        return;
    }
    dpb_shared_word_poison(&comm->queued);
    pthread_join(comm->thread, NULL);
    comm->thread_runs = false;
}

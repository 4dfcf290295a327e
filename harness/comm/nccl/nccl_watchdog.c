/* nccl_watchdog.c: the thread that nobody waits in vain for.
 *
 * It looks for collectives that are late, for errors that NCCL met in the background, and for
 * failures of other ranks. After a failure it aborts NCCL's communicator, which ends the kernels
 * that streams wait for. Abort itself has hung: it runs in a thread of its own, which is left
 * behind when it does not end. */
#include "nccl_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dpb_clock.h"
#include "dpb_log.h"
#include "dpb_units.h"
#include "nccl_ras.h"
#include "rank_text.h"

#define PERIOD_NS      ((int64_t)20 * 1000000)
#define CALL_LOCK_NS   ((int64_t)1000000000) /* how long a thread inside NCCL is waited for */
#define LOCK_PERIOD_NS ((int64_t)1000000)

/* ---- the report of a hang ---- */

static void log_lines(const char *title, const struct dpb_str *text)
{
    const char *line = text->text ? text->text : "";
    dpb_warn("%s", title);
    while (*line) {
        size_t length = strcspn(line, "\n");
        if (length > 0)
            dpb_warn("  %.*s", (int)length, line);
        line += length + (line[length] == '\n');
    }
}

static void log_report(struct dpb_nccl_comm *comm, const struct dpb_str *ring,
                       const struct dpb_str *ras, const char *why_no_ras)
{
    char title[160];
    snprintf(title, sizeof(title), "rank %d: its last collectives, at most %d:", comm->base.rank,
             DPB_NCCL_RING);
    log_lines(title, ring);
    snprintf(title, sizeof(title), "rank %d: NCCL's RAS service at %s says:", comm->base.rank,
             dpb_nccl_ras_address());
    if (ras->length > 0)
        log_lines(title, ras);
    else
        dpb_warn("rank %d: NCCL's RAS service says nothing: %s", comm->base.rank, why_no_ras);
}

/* The ranks that have not started a collective, and those that are through with it. */
struct progress {
    struct dpb_rank_seen *missing, *through;
    int missing_count, through_count;
};

static void look_at_ranks(struct dpb_nccl_comm *comm, uint64_t number,
                          const struct dpb_rendezvous_seen *seen, struct progress *progress)
{
    for (int r = 0; r < comm->base.size; r++) {
        struct dpb_rank_seen rank = {.at = seen[r].started,
                                     .pid = seen[r].pid,
                                     .host = seen[r].host[0] ? seen[r].host : NULL};
        rank.listed = seen[r].started < number;
        progress->missing[r] = rank;
        progress->missing_count += rank.listed;
        rank.listed = seen[r].done >= number;
        progress->through[r] = rank;
        progress->through_count += rank.listed;
    }
}

/* Why the oldest collective is not complete, as far as this rank can know. */
static void append_reason_of(struct dpb_nccl_comm *comm, const struct dpb_nccl_request *late,
                             const struct progress *progress, struct dpb_str *reason,
                             struct dpb_str *hint)
{
    const int size = comm->base.size;
    if (progress->missing_count > 0) {
        dpb_rank_text(reason, progress->missing, size);
        dpb_str_append(reason, " did not start it (");
        dpb_rank_text_last_seen(reason, progress->missing, size, "collective");
        dpb_str_append(reason, ")");
        dpb_rank_text_hint(hint, progress->missing, size);
        return;
    }
    if (dpb_nccl_query(late->begin) == cudaErrorNotReady) {
        dpb_str_append(reason, "all ranks have started it, but what this rank's GPU has to do "
                               "before it is not done");
        dpb_str_append(hint, "--timeout must be longer than what the GPU computes between two "
                             "collectives");
        return;
    }
    dpb_str_append(reason, "all ranks have started it");
    if (progress->through_count > 0) {
        dpb_str_append(reason, ", and it is complete on ");
        dpb_rank_text(reason, progress->through, size);
    }
    dpb_str_append(hint, "NCCL_DEBUG=INFO shows what NCCL does; a link between the GPUs may be "
                         "down: see the report above and `dpbench doctor`");
}

static void append_reason(struct dpb_nccl_comm *comm, const struct dpb_nccl_request *late,
                          struct dpb_str *reason, struct dpb_str *hint)
{
    const size_t size = (size_t)comm->base.size;
    struct dpb_rendezvous_seen *seen = calloc(size, sizeof(*seen));
    struct progress progress = {.missing = calloc(size, sizeof(*progress.missing)),
                                .through = calloc(size, sizeof(*progress.through))};
    if (seen && progress.missing && progress.through) {
        dpb_rendezvous_survey(comm->rendezvous, seen);
        look_at_ranks(comm, late->number, seen, &progress);
        append_reason_of(comm, late, &progress, reason, hint);
    }
    free(seen);
    free(progress.missing);
    free(progress.through);
}

static void report_late(struct dpb_nccl_comm *comm, const struct dpb_nccl_request *late)
{
    char subject[DPB_NCCL_SUBJECT];
    char timeout[DPB_UNIT_TEXT_BYTES];
    char bytes[DPB_UNIT_TEXT_BYTES];
    char why[DPB_NCCL_WHY] = "";
    struct dpb_str reason = {0};
    struct dpb_str hint = {0};
    struct dpb_str ring = {0};
    struct dpb_str ras = {0};
    dpb_nccl_subject(comm, &late->coll, late->number, subject);
    dpb_format_duration(comm->timeout_ns, timeout, sizeof(timeout));
    dpb_format_size(late->coll.count * (int64_t)dpb_dtype_bytes(late->coll.dtype), bytes,
                    sizeof(bytes));
    append_reason(comm, late, &reason, &hint);
    pthread_mutex_lock(&comm->lock);
    dpb_nccl_ring_text(&comm->ring, dpb_clock_now_ns(), &ring);
    pthread_mutex_unlock(&comm->lock);
    /* Before the others are told: afterwards they abort, and RAS would speak of that. */
    if (dpb_rendezvous_check(comm->rendezvous, subject) == DPB_OK) {
        dpb_nccl_ras_status(dpb_nccl_ras_address(), dpb_clock_now_ns() + DPB_NCCL_RAS_DEADLINE_NS,
                            &ras, why, sizeof(why));
        log_report(comm, &ring, &ras, why);
    }
    dpb_rendezvous_fail(comm->rendezvous, DPB_ERR_TIMEOUT, hint.text,
                        "%s of %s timed out after "
                        "%s: %s",
                        subject, bytes, timeout, reason.text ? reason.text : "a peer is late");
    dpb_str_release(&reason);
    dpb_str_release(&hint);
    dpb_str_release(&ring);
    dpb_str_release(&ras);
}

/* ---- abort ---- */

/* Belongs to two threads, and is freed by the last one. */
struct abort_job {
    const struct dpb_nccl_table *nccl;
    ncclComm_t comm;
    int cuda_device;
    pthread_mutex_t lock;
    pthread_cond_t signal;
    bool done;
    int owners;
};

static void leave(struct abort_job *job)
{
    pthread_mutex_lock(&job->lock);
    int left = --job->owners;
    pthread_mutex_unlock(&job->lock);
    if (left > 0)
        return;
    pthread_cond_destroy(&job->signal);
    pthread_mutex_destroy(&job->lock);
    free(job);
}

static void *run_abort(void *argument)
{
    struct abort_job *job = argument;
    /* What they return changes nothing: the communicator is gone, or nobody can help it. */
    (void)cudaSetDevice(job->cuda_device);
    (void)job->nccl->ncclCommAbort(job->comm);
    pthread_mutex_lock(&job->lock);
    job->done = true;
    pthread_cond_signal(&job->signal);
    pthread_mutex_unlock(&job->lock);
    leave(job);
    return NULL;
}

static void init_monotonic(pthread_cond_t *signal)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(signal, &attributes);
    pthread_condattr_destroy(&attributes);
}

static struct timespec at(int64_t ns)
{
    return (struct timespec){ns / 1000000000, ns % 1000000000};
}

/* Did it end in time? */
static bool abort_with_deadline(struct dpb_nccl_comm *comm, ncclComm_t aborted)
{
    const struct timespec deadline = at(dpb_clock_now_ns() + comm->abort_timeout_ns);
    pthread_t thread;
    struct abort_job *job = calloc(1, sizeof(*job));
    if (!job)
        return false;
    *job = (struct abort_job){
            .nccl = comm->nccl, .comm = aborted, .cuda_device = comm->cuda_device, .owners = 2};
    pthread_mutex_init(&job->lock, NULL);
    init_monotonic(&job->signal);
    if (pthread_create(&thread, NULL, run_abort, job) != 0) {
        job->owners = 1;
        leave(job);
        return false;
    }
    pthread_detach(thread);
    pthread_mutex_lock(&job->lock);
    while (!job->done && pthread_cond_timedwait(&job->signal, &job->lock, &deadline) != ETIMEDOUT)
        ;
    bool done = job->done;
    pthread_mutex_unlock(&job->lock);
    leave(job);
    return done;
}

/* No thread should be inside NCCL meanwhile: those that poll see the failure and come out. */
static bool take_call_lock(struct dpb_nccl_comm *comm)
{
    const int64_t deadline_ns = dpb_clock_now_ns() + CALL_LOCK_NS;
    while (pthread_mutex_trylock(&comm->call_lock) != 0) {
        if (dpb_clock_now_ns() >= deadline_ns)
            return false;
        dpb_clock_sleep_until_ns(dpb_clock_now_ns() + LOCK_PERIOD_NS);
    }
    return true;
}

void dpb_nccl_abort_now(struct dpb_nccl_comm *comm)
{
    char timeout[DPB_UNIT_TEXT_BYTES];
    const bool locked = take_call_lock(comm);
    ncclComm_t aborted = comm->comm;
    bool ended = true;
    if (aborted)
        ended = abort_with_deadline(comm, aborted);
    if (locked) {
        comm->comm = NULL;
        pthread_mutex_unlock(&comm->call_lock);
    }
    if (locked && ended)
        return;
    atomic_store(&comm->abandoned, true);
    dpb_format_duration(comm->abort_timeout_ns, timeout, sizeof(timeout));
    dpb_error("rank %d: NCCL's communicator could not be aborted in %s%s: it is left behind, with "
              "its memory on the GPU",
              comm->base.rank, timeout, locked ? "" : ", because a thread hangs in NCCL");
    dpb_log_hint("end the process; if the GPU stays busy, see `nvidia-smi`");
}

/* ---- the thread ---- */

/* NCCL's errors in the background; whoever is inside NCCL right now looks itself. */
static void look_at_nccl(struct dpb_nccl_comm *comm)
{
    ncclResult_t state = ncclSuccess;
    char subject[DPB_NCCL_SUBJECT];
    if (pthread_mutex_trylock(&comm->call_lock) != 0)
        return;
    if (comm->comm && comm->nccl->ncclCommGetAsyncError(comm->comm, &state) == ncclSuccess &&
        state != ncclSuccess && state != ncclInProgress) {
        snprintf(subject, sizeof(subject), "rank %d: after collective #%" PRIu64, comm->base.rank,
                 comm->newest);
        dpb_nccl_failed(comm, subject, "NCCL in the background", state);
    }
    pthread_mutex_unlock(&comm->call_lock);
}

/* The oldest collective that is not complete, when it is late. */
static bool find_late(struct dpb_nccl_comm *comm, struct dpb_nccl_request *late)
{
    bool is_late = false;
    pthread_mutex_lock(&comm->lock);
    if (comm->completed < comm->newest) {
        *late = comm->request[(comm->completed + 1) % DPB_NCCL_REQUESTS];
        is_late = dpb_clock_now_ns() - comm->head_ns >= comm->timeout_ns;
    }
    pthread_mutex_unlock(&comm->lock);
    return is_late;
}

static dpb_status look(struct dpb_nccl_comm *comm)
{
    struct dpb_nccl_request late;
    char subject[DPB_NCCL_SUBJECT];
    snprintf(subject, sizeof(subject), "rank %d: communication", comm->base.rank);
    look_at_nccl(comm);
    DPB_TRY(dpb_rendezvous_check(comm->rendezvous, subject));
    DPB_TRY(dpb_nccl_advance(comm));
    if (find_late(comm, &late))
        report_late(comm, &late);
    return dpb_rendezvous_check(comm->rendezvous, subject);
}

/* Until stop, or a period. */
static bool stopped(struct dpb_nccl_comm *comm)
{
    const int64_t period_ns = PERIOD_NS < comm->timeout_ns / 4 ? PERIOD_NS : comm->timeout_ns / 4;
    const struct timespec deadline = at(dpb_clock_now_ns() + period_ns);
    pthread_mutex_lock(&comm->stop_lock);
    while (!comm->stop &&
           pthread_cond_timedwait(&comm->stop_signal, &comm->stop_lock, &deadline) != ETIMEDOUT)
        ;
    bool stop = comm->stop;
    pthread_mutex_unlock(&comm->stop_lock);
    return stop;
}

static void *watch(void *argument)
{
    struct dpb_nccl_comm *comm = argument;
    char subject[DPB_NCCL_SUBJECT];
    snprintf(subject, sizeof(subject), "rank %d: watchdog", comm->base.rank);
    dpb_status st = dpb_nccl_cuda(comm, subject, "cudaSetDevice", cudaSetDevice(comm->cuda_device));
    while (st == DPB_OK && !stopped(comm))
        st = look(comm);
    /* Also when it ends: a failure may have come since the last look. */
    if (dpb_rendezvous_check(comm->rendezvous, subject) < 0)
        dpb_nccl_abort_now(comm);
    return NULL;
}

dpb_status dpb_nccl_watchdog_start(struct dpb_nccl_comm *comm)
{
    init_monotonic(&comm->stop_signal);
    int rc = pthread_create(&comm->watchdog, NULL, watch, comm);
    if (rc != 0) {
        pthread_cond_destroy(&comm->stop_signal);
        return dpb_rendezvous_fail(comm->rendezvous, DPB_ERR_NO_MEMORY, NULL,
                                   "rank %d: cannot start the watchdog's thread: %s",
                                   comm->base.rank, strerror(rc));
    }
    comm->watchdog_runs = true;
    return DPB_OK;
}

void dpb_nccl_watchdog_stop(struct dpb_nccl_comm *comm)
{
    if (!comm->watchdog_runs)
        return;
    pthread_mutex_lock(&comm->stop_lock);
    comm->stop = true;
    pthread_cond_signal(&comm->stop_signal);
    pthread_mutex_unlock(&comm->stop_lock);
    pthread_join(comm->watchdog, NULL);
    pthread_cond_destroy(&comm->stop_signal);
    comm->watchdog_runs = false;
}

/* mpi_note.c: waiting with a deadline, and what ranks tell each other about failures.
 *
 * Notes have a communicator of their own, with one receive that is always posted. They are read by
 * whoever waits, and by the progress thread when it is idle. The rank that is first at its deadline
 * asks the others how far they are; who does not answer, or is behind, is missing. */
#include "mpi_private.h"

#include <inttypes.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_clock.h"
#include "dpb_log.h"
#include "dpb_str.h"

#define NOTE_TAG   1
#define SPINS      100 /* polls before others get the core */
#define LOOK_EVERY 16  /* polls between two looks at notes and the clock */
#define NAP_AFTER  20000
#define NAP_NS     50000

void dpb_mpi_append_ranks(struct dpb_str *text, const bool *who, int ranks)
{
    int count = 0, seen = 0;
    for (int r = 0; r < ranks; r++)
        count += who[r];
    dpb_str_append(text, count == 1 ? "rank " : "ranks ");
    for (int r = 0; r < ranks; r++)
        if (who[r]) {
            dpb_str_appendf(text, "%s%d", seen == 0 ? "" : seen == count - 1 ? " and " : ", ", r);
            seen++;
        }
}

void dpb_mpi_subject_text(const struct dpb_mpi_comm *comm, const struct dpb_mpi_subject *subject,
                          char *text, size_t text_bytes)
{
    char tag[32] = "";
    if (subject->tag >= 0)
        snprintf(tag, sizeof(tag), " (bucket %d)", subject->tag);
    snprintf(text, text_bytes, "rank %d: %s #%" PRIu64 "%s", comm->base.rank, subject->name,
             subject->number, tag);
}

/* ---- notes; the callers hold mpi_lock where a name says so ---- */

static int post_receive(struct dpb_mpi_comm *comm)
{
    return MPI_Irecv(&comm->received, sizeof(comm->received), MPI_BYTE, MPI_ANY_SOURCE, NOTE_TAG,
                     comm->notes, &comm->note_request);
}

dpb_status dpb_mpi_notes_open(struct dpb_mpi_comm *comm)
{
    size_t ranks = (size_t)comm->base.size;
    comm->peer = calloc(ranks, sizeof(*comm->peer));
    bool has_all = comm->peer != NULL;
    for (int k = 0; k < DPB_MPI_NOTE_COUNT; k++) {
        comm->letter[k] = calloc(ranks, sizeof(*comm->letter[k]));
        has_all = has_all && comm->letter[k];
        for (size_t r = 0; r < ranks && comm->letter[k]; r++)
            comm->letter[k][r].request = MPI_REQUEST_NULL;
    }
    if (!has_all) {
        dpb_error("rank %d: cannot open comm \"mpi\": out of memory", comm->base.rank);
        return DPB_ERR_NO_MEMORY;
    }
    if (post_receive(comm) != MPI_SUCCESS) {
        dpb_error("rank %d: cannot open comm \"mpi\": MPI_Irecv failed", comm->base.rank);
        return DPB_ERR_VENDOR;
    }
    return DPB_OK;
}

void dpb_mpi_notes_close(struct dpb_mpi_comm *comm)
{
    if (comm->note_request != MPI_REQUEST_NULL) {
        MPI_Cancel(&comm->note_request);
        MPI_Wait(&comm->note_request, MPI_STATUS_IGNORE);
    }
    for (int k = 0; k < DPB_MPI_NOTE_COUNT; k++)
        for (int r = 0; r < comm->base.size; r++)
            MPI_Wait(&comm->letter[k][r].request, MPI_STATUS_IGNORE);
}

static void send_locked(struct dpb_mpi_comm *comm, enum dpb_mpi_note_kind kind, int to)
{
    struct dpb_mpi_letter *letter = &comm->letter[kind][to];
    int is_free = 1;
    if (letter->request != MPI_REQUEST_NULL)
        MPI_Test(&letter->request, &is_free, MPI_STATUS_IGNORE);
    if (!is_free)
        return; /* the rank does not read what it was sent before */
    letter->note = (struct dpb_mpi_note){
            .kind = kind,
            .status = atomic_load(&comm->failure),
            .started = atomic_load(&comm->executing),
            .calls = atomic_load(&comm->calls),
    };
    if (kind == DPB_MPI_FAILED)
        snprintf(letter->note.text, sizeof(letter->note.text), "%s", comm->failure_text);
    MPI_Isend(&letter->note, sizeof(letter->note), MPI_BYTE, to, NOTE_TAG, comm->notes,
              &letter->request);
}

void dpb_mpi_tell(struct dpb_mpi_comm *comm, enum dpb_mpi_note_kind kind)
{
    pthread_mutex_lock(&comm->mpi_lock);
    for (int r = 0; r < comm->base.size; r++)
        if (r != comm->base.rank)
            send_locked(comm, kind, r);
    pthread_mutex_unlock(&comm->mpi_lock);
}

static void read_locked(struct dpb_mpi_comm *comm, int from)
{
    const struct dpb_mpi_note *note = &comm->received;
    struct dpb_mpi_peer *peer = &comm->peer[from];
    peer->started = note->started;
    peer->calls = note->calls;
    switch ((enum dpb_mpi_note_kind)note->kind) {
    case DPB_MPI_ASK:
        send_locked(comm, DPB_MPI_ANSWER, from);
        break;
    case DPB_MPI_ANSWER:
        peer->answered = true;
        break;
    case DPB_MPI_CLOSED:
        peer->closed = true;
        break;
    case DPB_MPI_FAILED:
        if (!comm->heard)
            comm->news = *note;
        comm->heard = true;
        break;
    case DPB_MPI_NOTE_COUNT:
        break;
    }
}

static void read_notes(struct dpb_mpi_comm *comm)
{
    pthread_mutex_lock(&comm->mpi_lock);
    for (;;) {
        MPI_Status from;
        int has_one = 0;
        if (comm->note_request == MPI_REQUEST_NULL ||
            MPI_Test(&comm->note_request, &has_one, &from) != MPI_SUCCESS || !has_one)
            break;
        read_locked(comm, from.MPI_SOURCE);
        if (post_receive(comm) != MPI_SUCCESS)
            break;
    }
    pthread_mutex_unlock(&comm->mpi_lock);
}

bool dpb_mpi_all_closed(struct dpb_mpi_comm *comm)
{
    bool all = true;
    pthread_mutex_lock(&comm->mpi_lock);
    for (int r = 0; r < comm->base.size; r++)
        all = all && (r == comm->base.rank || comm->peer[r].closed);
    pthread_mutex_unlock(&comm->mpi_lock);
    return all;
}

/* ---- failures ---- */

/* End this rank's side, once. */
static dpb_status end_here(struct dpb_mpi_comm *comm, dpb_status st, const char *text,
                           const char *hint)
{
    pthread_mutex_lock(&comm->state_lock);
    dpb_status first = (dpb_status)atomic_load(&comm->failure);
    if (first == DPB_OK) {
        dpb_error("%s", text);
        if (hint)
            dpb_log_hint("%s", hint);
        snprintf(comm->failure_text, sizeof(comm->failure_text), "%s", text);
        atomic_store(&comm->failure, st);
        dpb_mpi_world_broke(comm, st);
        pthread_cond_broadcast(&comm->changed);
    }
    pthread_mutex_unlock(&comm->state_lock);
    if (first != DPB_OK)
        return first;
    dpb_mpi_tell(comm, DPB_MPI_FAILED);
    return st;
}

dpb_status dpb_mpi_fail(struct dpb_mpi_comm *comm, dpb_status st, const char *hint,
                        const char *format, ...)
{
    char text[DPB_MPI_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return end_here(comm, st, text, hint);
}

dpb_status dpb_mpi_look(struct dpb_mpi_comm *comm)
{
    read_notes(comm);
    dpb_status st = (dpb_status)atomic_load(&comm->failure);
    pthread_mutex_lock(&comm->mpi_lock);
    bool heard = comm->heard;
    pthread_mutex_unlock(&comm->mpi_lock);
    if (st != DPB_OK || !heard)
        return st;
    char text[DPB_MPI_TEXT + 64];
    /* The text came from another process: bounded here, whatever is in it. */
    snprintf(text, sizeof(text), "rank %d: another rank failed: %.*s", comm->base.rank,
             DPB_MPI_TEXT - 1, comm->news.text);
    st = (dpb_status)comm->news.status;
    return end_here(comm, st < 0 ? st : DPB_ERR_RANK_FAILED, text, NULL);
}

dpb_status dpb_mpi_check(struct dpb_mpi_comm *comm, const struct dpb_mpi_subject *subject,
                         const char *what, int code)
{
    char reason[MPI_MAX_ERROR_STRING] = "no reason given", subject_text[160];
    int length;
    if (code == MPI_SUCCESS)
        return DPB_OK;
    MPI_Error_string(code, reason, &length);
    dpb_mpi_subject_text(comm, subject, subject_text, sizeof(subject_text));
    return dpb_mpi_fail(comm, DPB_ERR_VENDOR,
                        "do all ranks start the same collectives in the same order?",
                        "%s: %s failed: %.200s", subject_text, what, reason);
}

/* ---- waiting ---- */

void dpb_mpi_nap(unsigned polls)
{
    if (polls > NAP_AFTER)
        dpb_clock_sleep_until_ns(dpb_clock_now_ns() + NAP_NS);
    else if (polls > SPINS)
        sched_yield();
}

static bool is_behind(const struct dpb_mpi_peer *peer, const struct dpb_mpi_subject *subject)
{
    return (subject->is_call ? peer->calls : peer->started) < subject->number;
}

/* A rank that has closed will not come any more. */
static dpb_status check_closed(struct dpb_mpi_comm *comm, const struct dpb_mpi_subject *subject)
{
    int gone = -1;
    pthread_mutex_lock(&comm->mpi_lock);
    for (int r = 0; r < comm->base.size; r++)
        if (r != comm->base.rank && comm->peer[r].closed && is_behind(&comm->peer[r], subject))
            gone = r;
    pthread_mutex_unlock(&comm->mpi_lock);
    if (gone < 0)
        return DPB_OK;
    char what[160];
    dpb_mpi_subject_text(comm, subject, what, sizeof(what));
    return dpb_mpi_fail(comm, DPB_ERR_RANK_FAILED, NULL, "%s: rank %d closed the communicator",
                        what, gone);
}

static void ask_all(struct dpb_mpi_comm *comm)
{
    int64_t end_ns = dpb_clock_now_ns() + DPB_MPI_GRACE_NS / 4;
    bool all = false;
    pthread_mutex_lock(&comm->mpi_lock);
    for (int r = 0; r < comm->base.size; r++)
        comm->peer[r].answered = r == comm->base.rank;
    pthread_mutex_unlock(&comm->mpi_lock);
    dpb_mpi_tell(comm, DPB_MPI_ASK);
    while (!all && dpb_clock_now_ns() < end_ns && atomic_load(&comm->failure) == DPB_OK) {
        read_notes(comm);
        all = true;
        pthread_mutex_lock(&comm->mpi_lock);
        for (int r = 0; r < comm->base.size; r++)
            all = all && comm->peer[r].answered;
        pthread_mutex_unlock(&comm->mpi_lock);
        dpb_mpi_nap(SPINS + 1);
    }
}

/* The deadline is past: who did not come? */
static dpb_status end_late(struct dpb_mpi_comm *comm, const struct dpb_mpi_subject *subject)
{
    bool *missing = calloc((size_t)comm->base.size, sizeof(*missing));
    struct dpb_str who = {0};
    char what[160];
    int count = 0;
    ask_all(comm);
    for (int r = 0; r < comm->base.size && missing; r++) {
        pthread_mutex_lock(&comm->mpi_lock);
        missing[r] = r != comm->base.rank &&
                     (!comm->peer[r].answered || is_behind(&comm->peer[r], subject));
        pthread_mutex_unlock(&comm->mpi_lock);
        count += missing[r];
    }
    if (count > 0)
        dpb_mpi_append_ranks(&who, missing, comm->base.size);
    free(missing);
    dpb_mpi_subject_text(comm, subject, what, sizeof(what));
    dpb_status st =
            dpb_mpi_fail(comm, DPB_ERR_TIMEOUT, "--timeout sets how long ranks wait for each other",
                         "%s: timed out after %.1f s: %s%s", what, (double)comm->timeout_ns / 1e9,
                         count > 0 ? "missing " : "all ranks are there, and it has not ended",
                         who.text && !who.failed ? who.text : "");
    dpb_str_release(&who);
    return st;
}

static dpb_status look_around(struct dpb_mpi_comm *comm, const struct dpb_mpi_subject *subject)
{
    DPB_TRY(dpb_mpi_look(comm));
    DPB_TRY(check_closed(comm, subject));
    return dpb_clock_now_ns() < subject->deadline_ns ? DPB_OK : end_late(comm, subject);
}

dpb_status dpb_mpi_await(struct dpb_mpi_comm *comm, MPI_Request *requests, int count,
                         const struct dpb_mpi_subject *subject)
{
    for (unsigned polls = 1;; polls++) {
        int is_done = 0;
        DPB_TRY(DPB_MPI_CALL(comm, subject, MPI_Testall, count, requests, &is_done,
                             MPI_STATUSES_IGNORE));
        if (is_done)
            return DPB_OK;
        if (polls % LOOK_EVERY == 0)
            DPB_TRY(look_around(comm, subject));
        dpb_mpi_nap(polls);
    }
}

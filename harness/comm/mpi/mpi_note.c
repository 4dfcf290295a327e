/* mpi_note.c: waiting with a deadline, and what ranks tell each other about failures.
 *
 * Notes have a communicator of their own, with one receive that is always posted. They are read by
 * whoever waits, and by the progress thread when it is idle. A rank that waits asks the others how
 * far they are, after half of the time-out and at its end. Who does not answer then is missing, and
 * who is behind and has moved nothing in between. While others move, nobody is late: a collective
 * may take as long as its size needs. */
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
#define NAP_EVERY  32 /* libraries move one part of a large message at each poll */
#define NAP_NS     50000
#define REQUESTS   2 /* most that are waited for at a time */

/* How long somebody has been waiting. */
struct patience {
    int64_t next_ns; /* when to ask */
    bool has_asked;  /* the next one is the deadline */
};

void dpb_mpi_append_ranks(const struct dpb_mpi_comm *comm, struct dpb_str *text, const bool *who)
{
    int count = 0, seen = 0;
    for (int r = 0; r < comm->base.size; r++)
        count += who[r];
    dpb_str_append(text, count == 1 ? "rank " : "ranks ");
    for (int r = 0; r < comm->base.size; r++) {
        if (!who[r])
            continue;
        dpb_str_appendf(text, "%s%d", seen == 0 ? "" : seen == count - 1 ? " and " : ", ", r);
        if (comm->host[r][0])
            dpb_str_appendf(text, " (%s)", comm->host[r]);
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

static void send_locked(struct dpb_mpi_comm *comm, enum dpb_mpi_note_kind kind, uint64_t question,
                        int to)
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
            .question = question,
            .moved = atomic_load(&comm->moved),
    };
    for (int i = 0; i < DPB_MPI_SEQUENCES; i++)
        letter->note.begun[i] = comm->match[i].mine;
    if (kind == DPB_MPI_FAILED)
        snprintf(letter->note.text, sizeof(letter->note.text), "%s", comm->failure_text);
    MPI_Isend(&letter->note, sizeof(letter->note), MPI_BYTE, to, NOTE_TAG, comm->notes,
              &letter->request);
}

static void send_all_locked(struct dpb_mpi_comm *comm, enum dpb_mpi_note_kind kind)
{
    for (int r = 0; r < comm->base.size; r++)
        if (r != comm->base.rank)
            send_locked(comm, kind, comm->question, r);
}

void dpb_mpi_tell(struct dpb_mpi_comm *comm, enum dpb_mpi_note_kind kind)
{
    pthread_mutex_lock(&dpb_mpi_lock);
    send_all_locked(comm, kind);
    pthread_mutex_unlock(&dpb_mpi_lock);
}

static void read_locked(struct dpb_mpi_comm *comm, int from)
{
    const struct dpb_mpi_note *note = &comm->received;
    struct dpb_mpi_peer *peer = &comm->peer[from];
    peer->heard_ns = dpb_clock_now_ns();
    peer->moved = note->moved;
    memcpy(peer->begun, note->begun, sizeof(peer->begun));
    switch ((enum dpb_mpi_note_kind)note->kind) {
    case DPB_MPI_ASK:
        send_locked(comm, DPB_MPI_ANSWER, note->question, from);
        break;
    case DPB_MPI_ANSWER:
        peer->answered = note->question;
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
    pthread_mutex_lock(&dpb_mpi_lock);
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
    pthread_mutex_unlock(&dpb_mpi_lock);
}

bool dpb_mpi_all_closed(struct dpb_mpi_comm *comm)
{
    bool all = true;
    pthread_mutex_lock(&dpb_mpi_lock);
    for (int r = 0; r < comm->base.size; r++)
        all = all && (r == comm->base.rank || comm->peer[r].closed);
    pthread_mutex_unlock(&dpb_mpi_lock);
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
        comm->failed_ns = dpb_clock_now_ns();
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
    pthread_mutex_lock(&dpb_mpi_lock);
    bool heard = comm->heard;
    pthread_mutex_unlock(&dpb_mpi_lock);
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
    /* As a rule because ranks disagree: lengths that differ. */
    DPB_TRY(dpb_mpi_terms_check(comm, subject));
    DPB_TRY(dpb_mpi_terms_ask(comm, subject));
    DPB_TRY(dpb_mpi_look(comm));
    MPI_Error_string(code, reason, &length);
    dpb_mpi_subject_text(comm, subject, subject_text, sizeof(subject_text));
    return dpb_mpi_fail(comm, DPB_ERR_VENDOR,
                        "do all ranks start the same collectives in the same order?",
                        "%s: %s failed: %.200s", subject_text, what, reason);
}

/* ---- waiting ---- */

void dpb_mpi_nap(unsigned polls)
{
    if (polls > NAP_AFTER && polls % NAP_EVERY == 0)
        dpb_clock_sleep_until_ns(dpb_clock_now_ns() + NAP_NS);
    else if (polls > SPINS)
        sched_yield();
}

static bool is_behind(const struct dpb_mpi_peer *peer, const struct dpb_mpi_subject *subject)
{
    return peer->begun[subject->sequence].number < subject->number;
}

/* A rank that has closed will not come any more. */
static dpb_status check_closed(struct dpb_mpi_comm *comm, const struct dpb_mpi_subject *subject)
{
    int gone = -1;
    pthread_mutex_lock(&dpb_mpi_lock);
    for (int r = 0; r < comm->base.size; r++)
        if (r != comm->base.rank && comm->peer[r].closed && is_behind(&comm->peer[r], subject))
            gone = r;
    pthread_mutex_unlock(&dpb_mpi_lock);
    if (gone < 0)
        return DPB_OK;
    char what[160];
    dpb_mpi_subject_text(comm, subject, what, sizeof(what));
    return dpb_mpi_fail(comm, DPB_ERR_RANK_FAILED, NULL, "%s: rank %d closed the communicator",
                        what, gone);
}

static uint64_t ask(struct dpb_mpi_comm *comm)
{
    pthread_mutex_lock(&dpb_mpi_lock);
    uint64_t question = ++comm->question;
    send_all_locked(comm, DPB_MPI_ASK);
    pthread_mutex_unlock(&dpb_mpi_lock);
    return question;
}

uint64_t dpb_mpi_ask_all(struct dpb_mpi_comm *comm)
{
    int64_t end_ns = dpb_clock_now_ns() + comm->answer_ns;
    uint64_t question = ask(comm);
    bool all = false;
    while (!all && dpb_clock_now_ns() < end_ns && atomic_load(&comm->failure) == DPB_OK) {
        read_notes(comm);
        all = true;
        pthread_mutex_lock(&dpb_mpi_lock);
        for (int r = 0; r < comm->base.size; r++)
            all = all && (r == comm->base.rank || comm->peer[r].answered >= question);
        all = all || comm->heard; /* who has failed may not answer */
        pthread_mutex_unlock(&dpb_mpi_lock);
        dpb_mpi_nap(SPINS + 1);
    }
    return question;
}

/* Who is missing, of those whose `moved` was as given when they were last asked: how many.
 * `any_moves`: is anybody at work? */
static int find_missing(struct dpb_mpi_comm *comm, const struct dpb_mpi_subject *subject,
                        uint64_t question, const uint64_t *moved, bool *missing, bool *any_moves)
{
    int count = 0;
    *any_moves = false;
    pthread_mutex_lock(&dpb_mpi_lock);
    for (int r = 0; r < comm->base.size; r++) {
        const struct dpb_mpi_peer *peer = &comm->peer[r];
        bool answers = peer->answered >= question, moves = answers && peer->moved != moved[r];
        if (r == comm->base.rank)
            continue;
        missing[r] = !answers || (is_behind(peer, subject) && !moves);
        *any_moves = *any_moves || moves;
        count += missing[r];
    }
    pthread_mutex_unlock(&dpb_mpi_lock);
    return count;
}

/* Of the missing ones that have answered: "; rank 2 has come to #4". */
static void append_places(struct dpb_mpi_comm *comm, const struct dpb_mpi_subject *subject,
                          uint64_t question, const bool *missing, struct dpb_str *text)
{
    pthread_mutex_lock(&dpb_mpi_lock);
    for (int r = 0; r < comm->base.size; r++)
        if (missing[r] && comm->peer[r].answered >= question)
            dpb_str_appendf(text, "; rank %d has come to #%" PRIu64, r,
                            comm->peer[r].begun[subject->sequence].number);
    pthread_mutex_unlock(&dpb_mpi_lock);
}

/* The deadline is past: who did not come? DPB_OK when all that are late are at work. */
static dpb_status end_late(struct dpb_mpi_comm *comm, const struct dpb_mpi_subject *subject)
{
    const size_t size = (size_t)comm->base.size;
    bool *missing = calloc(size, sizeof(*missing));
    uint64_t *moved = calloc(size, sizeof(*moved));
    struct dpb_str who = {0};
    char what[160];
    bool any_moves = false;
    int count = 0;
    if (missing && moved) {
        pthread_mutex_lock(&dpb_mpi_lock);
        for (size_t r = 0; r < size; r++)
            moved[r] = comm->peer[r].moved;
        pthread_mutex_unlock(&dpb_mpi_lock);
        uint64_t question = dpb_mpi_ask_all(comm);
        count = find_missing(comm, subject, question, moved, missing, &any_moves);
        if (count > 0) {
            dpb_mpi_append_ranks(comm, &who, missing);
            append_places(comm, subject, question, missing, &who);
        }
    }
    free(missing);
    free(moved);
    if (count == 0 && any_moves) {
        dpb_str_release(&who);
        return DPB_OK;
    }
    dpb_mpi_subject_text(comm, subject, what, sizeof(what));
    dpb_status st =
            dpb_mpi_fail(comm, DPB_ERR_TIMEOUT, "--timeout sets how long ranks wait for each other",
                         "%s: timed out after %.1f s: %s%s", what, (double)comm->timeout_ns / 1e9,
                         count > 0 ? "missing " : "all ranks are there, and it has not ended",
                         who.text && !who.failed ? who.text : "");
    dpb_str_release(&who);
    return st;
}

static struct patience new_patience(const struct dpb_mpi_comm *comm)
{
    return (struct patience){.next_ns = dpb_clock_now_ns() + comm->timeout_ns / 2};
}

static dpb_status look_around(struct dpb_mpi_comm *comm, const struct dpb_mpi_subject *subject,
                              struct patience *patience)
{
    DPB_TRY(dpb_mpi_look(comm));
    DPB_TRY(dpb_mpi_terms_check(comm, subject));
    DPB_TRY(check_closed(comm, subject));
    if (dpb_clock_now_ns() < patience->next_ns)
        return DPB_OK;
    if (patience->has_asked) {
        DPB_TRY(end_late(comm, subject));
        *patience = new_patience(comm);
        return DPB_OK;
    }
    (void)ask(comm);
    patience->has_asked = true;
    patience->next_ns += comm->timeout_ns - comm->timeout_ns / 2;
    return DPB_OK;
}

/* Calls that end at once must not keep a rank from answering others. */
static dpb_status look_now_and_then(struct dpb_mpi_comm *comm)
{
    int64_t now_ns = dpb_clock_now_ns();
    if (now_ns - atomic_load(&comm->looked_ns) < DPB_MPI_IDLE_NS)
        return DPB_OK;
    atomic_store(&comm->looked_ns, now_ns);
    return dpb_mpi_look(comm);
}

/* MPI_Testall with the error of the request that has one. */
static int test_all(int count, MPI_Request *requests, int *is_done)
{
    MPI_Status status[REQUESTS];
    int code = MPI_Testall(count, requests, is_done, status);
    for (int i = 0; i < count && code == MPI_ERR_IN_STATUS; i++)
        if (status[i].MPI_ERROR != MPI_SUCCESS && status[i].MPI_ERROR != MPI_ERR_PENDING)
            code = status[i].MPI_ERROR;
    return code;
}

dpb_status dpb_mpi_await(struct dpb_mpi_comm *comm, MPI_Request *requests, int count,
                         const struct dpb_mpi_subject *subject)
{
    struct patience patience = new_patience(comm);
    DPB_TRY(look_now_and_then(comm));
    for (unsigned polls = 1;; polls++) {
        int is_done = 0;
        pthread_mutex_lock(&dpb_mpi_lock);
        int code = test_all(count, requests, &is_done);
        pthread_mutex_unlock(&dpb_mpi_lock);
        DPB_TRY(dpb_mpi_check(comm, subject, "MPI_Testall", code));
        if (is_done) {
            atomic_fetch_add(&comm->moved, 1);
            return DPB_OK;
        }
        if (polls % LOOK_EVERY == 0)
            DPB_TRY(look_around(comm, subject, &patience));
        dpb_mpi_nap(polls);
    }
}

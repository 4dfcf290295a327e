/* mpi_terms.c: do all ranks mean the same?
 *
 * Whoever begins a collective or a call tells the next rank which, in one small message that goes
 * beside the data, and hears it from the rank before. Nothing ends before the two have been
 * compared; around the ring that compares all ranks, at a cost that does not grow with them. Two
 * that differ end the communicator; a rank elsewhere in the ring may get through what it has begun,
 * and is told at its next call. */
#include "mpi_private.h"

#include <inttypes.h>
#include <string.h>

#include "dpb_str.h"

#define TERMS_TAG 3 /* and the next, in the communicator of the notes */
#define HINT      "every rank must make the same calls in the same order"

const char *dpb_mpi_call_text(enum dpb_mpi_call call)
{
    static const char *const texts[] = {
            [DPB_MPI_BARRIER] = "barrier",
            [DPB_MPI_EXCHANGE] = "exchange",
            [DPB_MPI_BUFFER_ALLOC] = "buffer_alloc",
            [DPB_MPI_BUFFER_FREE] = "buffer_free",
    };
    return (unsigned)call < DPB_MPI_CALL_COUNT ? texts[call] : "?";
}

/* Of another process: any value is possible. */
static void append_terms(struct dpb_str *text, enum dpb_mpi_sequence sequence, int rank,
                         const struct dpb_mpi_terms *terms)
{
    dpb_str_appendf(text, "%srank %d: ", text->length ? "; " : "", rank);
    if (sequence == DPB_MPI_CALLS) {
        dpb_str_appendf(text, "%s of %" PRId64 " bytes",
                        dpb_mpi_call_text((enum dpb_mpi_call)terms->kind), terms->count);
        return;
    }
    if ((unsigned)terms->kind >= DPB_COLL_COUNT || (unsigned)terms->dtype >= DPB_DTYPE_COUNT) {
        dpb_str_append(text, "nothing that is known");
        return;
    }
    dpb_str_appendf(text, "%s of %" PRId64 " %s", dpb_coll_text((enum dpb_coll_kind)terms->kind),
                    terms->count, dpb_dtype_text((enum dpb_dtype)terms->dtype));
    if (dpb_coll_has_root((enum dpb_coll_kind)terms->kind))
        dpb_str_appendf(text, ", root %d", terms->root);
    if (terms->scale != 0)
        dpb_str_appendf(text, ", scale %.9g", (double)terms->scale);
}

static dpb_status disagree(struct dpb_mpi_comm *comm, const struct dpb_mpi_subject *subject,
                           const struct dpb_str *text)
{
    char what[160];
    dpb_mpi_subject_text(comm, subject, what, sizeof(what));
    return dpb_mpi_fail(comm, DPB_ERR_MISMATCH, HINT, "%s: ranks disagree: %s", what,
                        text->text && !text->failed ? text->text : "");
}

static int before(const struct dpb_mpi_comm *comm)
{
    return (comm->base.rank + comm->base.size - 1) % comm->base.size;
}

dpb_status dpb_mpi_terms_begin(struct dpb_mpi_comm *comm, const struct dpb_mpi_subject *subject,
                               const struct dpb_mpi_terms *terms)
{
    struct dpb_mpi_match *match = &comm->match[subject->sequence];
    const int tag = TERMS_TAG + (int)subject->sequence;
    const int next = (comm->base.rank + 1) % comm->base.size;
    pthread_mutex_lock(&dpb_mpi_lock); /* others may be told of them at any time */
    match->mine = *terms;
    pthread_mutex_unlock(&dpb_mpi_lock);
    match->is_compared = comm->base.size == 1;
    if (match->is_compared)
        return DPB_OK;
    DPB_TRY(DPB_MPI_CALL(comm, subject, MPI_Irecv, &match->theirs, sizeof(match->theirs), MPI_BYTE,
                         before(comm), tag, comm->notes, &match->request[1]));
    return DPB_MPI_CALL(comm, subject, MPI_Isend, &match->mine, sizeof(match->mine), MPI_BYTE, next,
                        tag, comm->notes, &match->request[0]);
}

dpb_status dpb_mpi_terms_check(struct dpb_mpi_comm *comm, const struct dpb_mpi_subject *subject)
{
    struct dpb_mpi_match *match = &comm->match[subject->sequence];
    int is_here = 0;
    if (match->is_compared)
        return DPB_OK;
    /* An error here is one of the wait that this is a part of. */
    pthread_mutex_lock(&dpb_mpi_lock);
    int code = MPI_Test(&match->request[1], &is_here, MPI_STATUS_IGNORE);
    pthread_mutex_unlock(&dpb_mpi_lock);
    if (code != MPI_SUCCESS || !is_here)
        return DPB_OK;
    match->is_compared = true;
    if (memcmp(&match->mine, &match->theirs, sizeof(match->mine)) == 0)
        return DPB_OK;
    struct dpb_str text = {0};
    append_terms(&text, subject->sequence, before(comm), &match->theirs);
    append_terms(&text, subject->sequence, comm->base.rank, &match->mine);
    dpb_status st = disagree(comm, subject, &text);
    dpb_str_release(&text);
    return st;
}

dpb_status dpb_mpi_terms_end(struct dpb_mpi_comm *comm, const struct dpb_mpi_subject *subject)
{
    struct dpb_mpi_match *match = &comm->match[subject->sequence];
    if (comm->base.size == 1)
        return DPB_OK;
    /* A receive that has been tested is MPI_REQUEST_NULL now, and complete. */
    DPB_TRY(dpb_mpi_await(comm, match->request, 2, subject));
    return dpb_mpi_terms_check(comm, subject);
}

dpb_status dpb_mpi_terms_ask(struct dpb_mpi_comm *comm, const struct dpb_mpi_subject *subject)
{
    struct dpb_str text = {0};
    const struct dpb_mpi_terms *mine = &comm->match[subject->sequence].mine;
    (void)dpb_mpi_ask_all(comm);
    bool differs = false;
    append_terms(&text, subject->sequence, comm->base.rank, mine);
    pthread_mutex_lock(&dpb_mpi_lock);
    for (int r = 0; r < comm->base.size; r++) {
        const struct dpb_mpi_terms *theirs = &comm->peer[r].begun[subject->sequence];
        if (r == comm->base.rank || theirs->number != mine->number ||
            memcmp(theirs, mine, sizeof(*mine)) == 0)
            continue;
        append_terms(&text, subject->sequence, r, theirs);
        differs = true;
    }
    pthread_mutex_unlock(&dpb_mpi_lock);
    dpb_status st = differs ? disagree(comm, subject, &text) : DPB_OK;
    dpb_str_release(&text);
    return st;
}

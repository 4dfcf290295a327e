/* mpi_schedule.c: our own algorithms over point-to-point messages.
 *
 * A round sends one range and receives one, in pieces of the same size that follow one another:
 * the next piece is on its way while one is summed. What is summed is received beside the buffer,
 * everything else in its place. A range that is sent is either the one that is received, piece by
 * piece, or has nothing in common with it (test_mpi_plan.c), so no piece is overwritten before it
 * has left. */
#include "mpi_private.h"

#include <string.h>

#include "dpb_schedule.h"
#include "mpi_piece.h"
#include "reduce.h"

#define DATA_TAG 2

struct round {
    struct dpb_mpi_comm *comm;
    const struct dpb_coll *coll;
    const struct dpb_mpi_subject *subject;
    struct dpb_schedule_step step;
    int64_t element_bytes, most;
    MPI_Request request[2][2]; /* of even and odd pieces: send, receive */
    int64_t sent_bytes;
};

static char *at(const struct round *r, int64_t element)
{
    return (char *)r->coll->buffer + element * r->element_bytes;
}

static dpb_status post(struct round *r, int64_t piece)
{
    const struct dpb_schedule_step *step = &r->step;
    MPI_Request *request = r->request[piece % 2];
    int64_t first;
    request[0] = request[1] = MPI_REQUEST_NULL;
    int64_t bytes = r->element_bytes * dpb_mpi_piece(step->receive_count, r->most, piece, &first);
    if (bytes > 0) {
        char *to = step->reduces ? r->comm->scratch[piece % 2] : at(r, step->receive_first + first);
        DPB_TRY(DPB_MPI_CALL(r->comm, r->subject, MPI_Irecv, to, (int)bytes, MPI_BYTE, step->from,
                             DATA_TAG, r->comm->data, &request[1]));
    }
    bytes = r->element_bytes * dpb_mpi_piece(step->send_count, r->most, piece, &first);
    if (bytes > 0) {
        DPB_TRY(DPB_MPI_CALL(r->comm, r->subject, MPI_Isend, at(r, step->send_first + first),
                             (int)bytes, MPI_BYTE, step->to, DATA_TAG, r->comm->data, &request[0]));
        r->sent_bytes += bytes;
    }
    return DPB_OK;
}

static void sum(const struct round *r, int64_t piece)
{
    const struct dpb_schedule_step *step = &r->step;
    int64_t first;
    int64_t count = dpb_mpi_piece(step->receive_count, r->most, piece, &first);
    dpb_reduce_join(r->coll->dtype, at(r, step->receive_first + first), r->comm->scratch[piece % 2],
                    0, count, step->own_is_raw ? r->coll->scale : 1.0f,
                    step->received_is_raw ? r->coll->scale : 1.0f);
}

static dpb_status run_round(struct round *r)
{
    if (r->step.to < 0)
        r->step.send_count = 0;
    if (r->step.from < 0)
        r->step.receive_count = 0;
    int64_t sends = dpb_mpi_piece_number(r->step.send_count, r->most);
    int64_t receives = dpb_mpi_piece_number(r->step.receive_count, r->most);
    int64_t pieces = sends > receives ? sends : receives;
    if (pieces > 0)
        DPB_TRY(post(r, 0));
    for (int64_t i = 0; i < pieces; i++) {
        DPB_TRY(dpb_mpi_await(r->comm, r->request[i % 2], 2, r->subject));
        if (i + 1 < pieces)
            DPB_TRY(post(r, i + 1));
        if (r->step.reduces && i < receives)
            sum(r, i);
    }
    return DPB_OK;
}

static struct round new_round(struct dpb_mpi_comm *comm, const struct dpb_coll *coll,
                              const struct dpb_mpi_subject *subject)
{
    int64_t element_bytes = (int64_t)dpb_dtype_bytes(coll->dtype);
    return (struct round){.comm = comm,
                          .coll = coll,
                          .subject = subject,
                          .element_bytes = element_bytes,
                          .most = comm->step_bytes / element_bytes};
}

dpb_status dpb_mpi_run_schedule(struct dpb_mpi_comm *comm, const struct dpb_coll *coll,
                                const struct dpb_mpi_subject *subject, int64_t *wire_bytes)
{
    struct round r = new_round(comm, coll, subject);
    struct dpb_schedule schedule;
    dpb_schedule_init(&schedule, &comm->setup, coll->kind, comm->base.rank, coll->root, coll->count,
                      (size_t)r.element_bytes);
    for (int64_t i = 0; i < schedule.rounds; i++) {
        dpb_schedule_step(&schedule, i, &r.step);
        DPB_TRY(run_round(&r));
    }
    *wire_bytes = r.sent_bytes;
    return DPB_OK;
}

/* The part for a peer changes places with the peer's part for this rank: received beside it, and
 * put there when the own one has left. */
static dpb_status swap(struct round *r, int64_t begin, int64_t count)
{
    int64_t pieces = dpb_mpi_piece_number(count, r->most);
    r->step = (struct dpb_schedule_step){.to = r->step.to,
                                         .from = r->step.to,
                                         .send_first = begin,
                                         .send_count = count,
                                         .receive_first = begin,
                                         .receive_count = count,
                                         .reduces = true};
    for (int64_t i = 0; i < pieces; i++) {
        int64_t first;
        int64_t n = dpb_mpi_piece(count, r->most, i, &first);
        DPB_TRY(post(r, i));
        DPB_TRY(dpb_mpi_await(r->comm, r->request[i % 2], 2, r->subject));
        memcpy(at(r, begin + first), r->comm->scratch[i % 2], (size_t)(n * r->element_bytes));
    }
    return DPB_OK;
}

dpb_status dpb_mpi_run_pairs(struct dpb_mpi_comm *comm, const struct dpb_coll *coll,
                             const struct dpb_mpi_subject *subject, int64_t *wire_bytes)
{
    struct round r = new_round(comm, coll, subject);
    int size = comm->base.size;
    int64_t part = coll->count / size;
    for (int i = 0; i < size; i++) {
        r.step.to = dpb_mpi_pair(size, comm->base.rank, i);
        if (r.step.to != comm->base.rank)
            DPB_TRY(swap(&r, r.step.to * part, part));
    }
    *wire_bytes = r.sent_bytes;
    return DPB_OK;
}

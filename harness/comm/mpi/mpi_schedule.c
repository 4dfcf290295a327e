/* mpi_schedule.c: our own algorithms over point-to-point messages.
 *
 * A round sends one range and receives one, in pieces of the same size that follow one another.
 * Several are on their way at a time: where a library asks before it sends a larger message, the
 * answer waits behind what flows the other way, and with one piece a wire would carry half of its
 * rate. What is summed is received beside the buffer, everything else in its place. A range that is
 * sent is either the one that is received, piece by piece, or has nothing in common with it
 * (test_mpi_plan.c), and a piece is summed when it has left, so none is overwritten before. */
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
    MPI_Request request[DPB_MPI_WINDOW][2];             /* of a piece: send, receive */
    void (*take)(const struct round *r, int64_t piece); /* what was received beside the buffer */
    int64_t sent_bytes;
};

static char *at(const struct round *r, int64_t element)
{
    return (char *)r->coll->buffer + element * r->element_bytes;
}

static dpb_status post(struct round *r, int64_t piece)
{
    const struct dpb_schedule_step *step = &r->step;
    MPI_Request *request = r->request[piece % DPB_MPI_WINDOW];
    int64_t first;
    request[0] = request[1] = MPI_REQUEST_NULL;
    int64_t bytes = r->element_bytes * dpb_mpi_piece(step->receive_count, r->most, piece, &first);
    if (bytes > 0) {
        char *to = step->reduces ? r->comm->scratch[piece % DPB_MPI_WINDOW]
                                 : at(r, step->receive_first + first);
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
    dpb_reduce_join(r->coll->dtype, at(r, step->receive_first + first),
                    r->comm->scratch[piece % DPB_MPI_WINDOW], 0, count,
                    step->own_is_raw ? r->coll->scale : 1.0f,
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
    for (int64_t i = 0; i < pieces && i < DPB_MPI_WINDOW; i++)
        DPB_TRY(post(r, i));
    for (int64_t i = 0; i < pieces; i++) {
        DPB_TRY(dpb_mpi_await(r->comm, r->request[i % DPB_MPI_WINDOW], 2, r->subject));
        if (r->step.reduces && i < receives)
            r->take(r, i);
        if (i + DPB_MPI_WINDOW < pieces)
            DPB_TRY(post(r, i + DPB_MPI_WINDOW));
    }
    return DPB_OK;
}

static struct round new_round(struct dpb_mpi_comm *comm, const struct dpb_coll *coll,
                              const struct dpb_mpi_subject *subject,
                              void (*take)(const struct round *r, int64_t piece))
{
    int64_t element_bytes = (int64_t)dpb_dtype_bytes(coll->dtype);
    return (struct round){.comm = comm,
                          .coll = coll,
                          .subject = subject,
                          .take = take,
                          .element_bytes = element_bytes,
                          .most = comm->step_bytes / element_bytes};
}

dpb_status dpb_mpi_run_schedule(struct dpb_mpi_comm *comm, const struct dpb_coll *coll,
                                const struct dpb_mpi_subject *subject, int64_t *wire_bytes)
{
    struct round r = new_round(comm, coll, subject, sum);
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

static void put(const struct round *r, int64_t piece)
{
    int64_t first;
    int64_t count = dpb_mpi_piece(r->step.receive_count, r->most, piece, &first);
    memcpy(at(r, r->step.receive_first + first), r->comm->scratch[piece % DPB_MPI_WINDOW],
           (size_t)(count * r->element_bytes));
}

/* The part for a peer changes places with the peer's part for this rank: received beside it, and
 * put there when the own one has left. */
static dpb_status swap(struct round *r, int peer, int64_t part)
{
    r->step = (struct dpb_schedule_step){.to = peer,
                                         .from = peer,
                                         .send_first = peer * part,
                                         .send_count = part,
                                         .receive_first = peer * part,
                                         .receive_count = part,
                                         .reduces = true};
    return run_round(r);
}

dpb_status dpb_mpi_run_pairs(struct dpb_mpi_comm *comm, const struct dpb_coll *coll,
                             const struct dpb_mpi_subject *subject, int64_t *wire_bytes)
{
    struct round r = new_round(comm, coll, subject, put);
    int size = comm->base.size;
    for (int i = 0; i < size; i++) {
        int peer = dpb_mpi_pair(size, comm->base.rank, i);
        if (peer != comm->base.rank)
            DPB_TRY(swap(&r, peer, coll->count / size));
    }
    *wire_bytes = r.sent_bytes;
    return DPB_OK;
}

/* mpi_collective.c: a collective in the library's own non-blocking calls, in place.
 *
 * A scale is applied to the rank's own buffer before. What is too much for one call goes in pieces:
 * ranges of the buffer, in which a shard may have all, some or no elements. */
#include "mpi_private.h"

#include <string.h>

#include "dpb_log.h"
#include "mpi_piece.h"
#include "reduce.h"

struct transfer {
    struct dpb_mpi_comm *comm;
    const struct dpb_coll *coll;
    const struct dpb_mpi_subject *subject;
    int64_t element_bytes;
    int64_t most; /* elements in one call */
    MPI_Datatype type;
    MPI_Op sum;
};

/* ---- types and sums ---- */

MPI_Datatype dpb_mpi_type(enum dpb_dtype dtype)
{
    switch (dtype) {
    case DPB_F32:
        return MPI_FLOAT;
    case DPB_F64:
        return MPI_DOUBLE;
    case DPB_BF16:
    case DPB_F16:
        return MPI_UINT16_T;
    case DPB_I32:
        return MPI_INT32_T;
    case DPB_I64:
        return MPI_INT64_T;
    default:
        return MPI_BYTE;
    }
}

/* MPI 3 has no half precision: its bits travel as integers, and are summed here. */
static void sum_bf16(void *from, void *own, int *count, MPI_Datatype *type)
{
    (void)type;
    dpb_reduce_join(DPB_BF16, own, from, 0, *count, 1, 1);
}

static void sum_f16(void *from, void *own, int *count, MPI_Datatype *type)
{
    (void)type;
    dpb_reduce_join(DPB_F16, own, from, 0, *count, 1, 1);
}

dpb_status dpb_mpi_sums_new(struct dpb_mpi_comm *comm)
{
    for (int d = 0; d < DPB_DTYPE_COUNT; d++)
        comm->sum[d] = MPI_SUM;
    if (DPB_MPI_ALONE(MPI_Op_create(sum_bf16, 1, &comm->sum[DPB_BF16])) == MPI_SUCCESS &&
        DPB_MPI_ALONE(MPI_Op_create(sum_f16, 1, &comm->sum[DPB_F16])) == MPI_SUCCESS)
        return DPB_OK;
    dpb_error("rank %d: cannot open comm \"mpi\": MPI_Op_create failed", comm->base.rank);
    return DPB_ERR_VENDOR;
}

void dpb_mpi_sums_free(struct dpb_mpi_comm *comm)
{
    DPB_MPI_ALONE(MPI_Op_free(&comm->sum[DPB_BF16]));
    DPB_MPI_ALONE(MPI_Op_free(&comm->sum[DPB_F16]));
}

/* ---- kinds ---- */

static char *at(const struct transfer *t, int64_t element)
{
    return (char *)t->coll->buffer + element * t->element_bytes;
}

static dpb_status finish(const struct transfer *t, MPI_Request *request)
{
    return dpb_mpi_await(t->comm, request, 1, t->subject);
}

static dpb_status all_reduce(const struct transfer *t, int64_t first, int count)
{
    MPI_Request request;
    DPB_TRY(DPB_MPI_CALL(t->comm, t->subject, MPI_Iallreduce, MPI_IN_PLACE, at(t, first), count,
                         t->type, t->sum, t->comm->data, &request));
    return finish(t, &request);
}

static dpb_status reduce_to(const struct transfer *t, int64_t first, int count, int root)
{
    MPI_Request request;
    bool is_root = t->comm->base.rank == root;
    DPB_TRY(DPB_MPI_CALL(t->comm, t->subject, MPI_Ireduce, is_root ? MPI_IN_PLACE : at(t, first),
                         is_root ? at(t, first) : NULL, count, t->type, t->sum, root, t->comm->data,
                         &request));
    return finish(t, &request);
}

static dpb_status broadcast_from(const struct transfer *t, int64_t first, int count, int root)
{
    MPI_Request request;
    DPB_TRY(DPB_MPI_CALL(t->comm, t->subject, MPI_Ibcast, at(t, first), count, t->type, root,
                         t->comm->data, &request));
    return finish(t, &request);
}

/* What of each shard lies in a range, and where there. */
static void set_shards(const struct transfer *t, int64_t begin, int64_t count)
{
    for (int r = 0; r < t->comm->base.size; r++) {
        int64_t first;
        int64_t end = dpb_coll_shard(t->coll->count, t->comm->base.size, r, &first) + first;
        first = first < begin ? begin : first > begin + count ? begin + count : first;
        end = end < first ? first : end > begin + count ? begin + count : end;
        t->comm->counts[r] = (int)(end - first);
        t->comm->firsts[r] = (int)(first - begin);
    }
}

static dpb_status all_gather(const struct transfer *t, int64_t first, int count)
{
    MPI_Request request;
    set_shards(t, first, count);
    DPB_TRY(DPB_MPI_CALL(t->comm, t->subject, MPI_Iallgatherv, MPI_IN_PLACE, 0, t->type,
                         at(t, first), t->comm->counts, t->comm->firsts, t->type, t->comm->data,
                         &request));
    return finish(t, &request);
}

/* In place, MPI leaves what is this rank's at the range's begin. */
static dpb_status reduce_scatter(const struct transfer *t, int64_t first, int count)
{
    MPI_Request request;
    int rank = t->comm->base.rank;
    set_shards(t, first, count);
    DPB_TRY(DPB_MPI_CALL(t->comm, t->subject, MPI_Ireduce_scatter, MPI_IN_PLACE, at(t, first),
                         t->comm->counts, t->type, t->sum, t->comm->data, &request));
    DPB_TRY(finish(t, &request));
    memmove(at(t, first + t->comm->firsts[rank]), at(t, first),
            (size_t)t->comm->counts[rank] * (size_t)t->element_bytes);
    return DPB_OK;
}

static dpb_status all_to_all(const struct transfer *t)
{
    MPI_Request request;
    int64_t part = t->coll->count / t->comm->base.size;
    int64_t wire_bytes;
    if (t->coll->count > t->most)
        return dpb_mpi_run_pairs(t->comm, t->coll, t->subject, &wire_bytes);
    DPB_TRY(DPB_MPI_CALL(t->comm, t->subject, MPI_Ialltoall, MPI_IN_PLACE, 0, t->type, at(t, 0),
                         (int)part, t->type, t->comm->data, &request));
    return finish(t, &request);
}

static dpb_status piece(const struct transfer *t, int64_t first, int count)
{
    switch (t->coll->kind) {
    case DPB_COLL_ALL_REDUCE:
        return all_reduce(t, first, count);
    case DPB_COLL_REDUCE:
        return reduce_to(t, first, count, t->coll->root);
    case DPB_COLL_BROADCAST:
        return broadcast_from(t, first, count, t->coll->root);
    case DPB_COLL_REDUCE_SCATTER:
        return reduce_scatter(t, first, count);
    case DPB_COLL_ALL_GATHER:
        return all_gather(t, first, count);
    case DPB_COLL_ALL_TO_ALL:
    case DPB_COLL_COUNT:
        break;
    }
    return DPB_OK;
}

/* Each shard is summed at its owner, in pieces. Pieces of a reduce-scatter would not do: MPICH 4.0
 * copies with memcpy what is a rank's own, in place, and ends the process where that overlaps, as
 * it does in all ranges but the whole buffer. */
static dpb_status reduce_scatter_large(const struct transfer *t)
{
    for (int r = 0; r < t->comm->base.size; r++) {
        int64_t begin, first;
        int64_t count = dpb_coll_shard(t->coll->count, t->comm->base.size, r, &begin);
        int64_t pieces = dpb_mpi_piece_number(count, t->most);
        for (int64_t i = 0; i < pieces; i++) {
            int n = (int)dpb_mpi_piece(count, t->most, i, &first);
            DPB_TRY(reduce_to(t, begin + first, n, r));
        }
    }
    return DPB_OK;
}

static dpb_status library(const struct transfer *t)
{
    int64_t pieces = dpb_mpi_piece_number(t->coll->count, t->most);
    if (t->coll->kind == DPB_COLL_ALL_TO_ALL)
        return all_to_all(t);
    if (t->coll->kind == DPB_COLL_REDUCE_SCATTER && pieces > 1)
        return reduce_scatter_large(t);
    for (int64_t i = 0; i < pieces; i++) {
        int64_t first;
        int count = (int)dpb_mpi_piece(t->coll->count, t->most, i, &first);
        DPB_TRY(piece(t, first, count));
    }
    return DPB_OK;
}

static void apply_scale(const struct dpb_coll *coll)
{
    void *const buffer[] = {coll->buffer};
    if (dpb_coll_reduces(coll->kind) && coll->scale != 1)
        dpb_reduce_all(coll->dtype, buffer, 1, buffer, 1, 0, coll->count, coll->scale);
}

dpb_status dpb_mpi_execute(struct dpb_mpi_comm *comm, const struct dpb_coll *coll,
                           const struct dpb_mpi_subject *subject, int64_t *wire_bytes)
{
    const int64_t element_bytes = (int64_t)dpb_dtype_bytes(coll->dtype);
    const struct transfer t = {.comm = comm,
                               .coll = coll,
                               .subject = subject,
                               .element_bytes = element_bytes,
                               .most = comm->piece_bytes / element_bytes,
                               .type = dpb_mpi_type(coll->dtype),
                               .sum = comm->sum[coll->dtype]};
    *wire_bytes = 0;
    if (comm->base.size == 1) {
        apply_scale(coll);
        return DPB_OK;
    }
    if (comm->options.algorithm != DPB_COMM_MPI_LIBRARY)
        return coll->kind == DPB_COLL_ALL_TO_ALL
                       ? dpb_mpi_run_pairs(comm, coll, subject, wire_bytes)
                       : dpb_mpi_run_schedule(comm, coll, subject, wire_bytes);
    apply_scale(coll);
    DPB_TRY(library(&t));
    *wire_bytes = dpb_setup_wire_bytes(&comm->setup, coll->kind, comm->base.rank, coll->root,
                                       coll->count, (size_t)element_bytes);
    return DPB_OK;
}

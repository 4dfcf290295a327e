/* nccl_collective.c: a collective as calls of NCCL.
 *
 * NCCL's shards are all of one size; ours are ceil(count / ranks), and the last ones shorter. Where
 * the two differ, every shard is a reduce to, or a broadcast from, its rank, in one group: nothing
 * outside of [0, count) is read or written. */
#include "nccl_private.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "dpb_link_model.h"

static const ncclDataType_t type_of[DPB_DTYPE_COUNT] = {
        [DPB_F32] = ncclFloat32, [DPB_F64] = ncclFloat64, [DPB_BF16] = ncclBfloat16,
        [DPB_F16] = ncclFloat16, [DPB_I32] = ncclInt32,   [DPB_I64] = ncclInt64,
        [DPB_U8] = ncclUint8,
};

/* ---- what is possible ---- */

static dpb_status check_scale(const struct dpb_coll *coll, char *why, size_t why_bytes)
{
    const bool integer = coll->dtype == DPB_I32 || coll->dtype == DPB_I64 || coll->dtype == DPB_U8;
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

dpb_status dpb_nccl_collective_check(const struct dpb_nccl_comm *comm, const struct dpb_coll *coll,
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
    const int64_t element_bytes = (int64_t)dpb_dtype_bytes(coll->dtype);
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
    if (!dpb_nccl_buffer_find(comm, coll->buffer, coll->count * element_bytes)) {
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

int64_t dpb_nccl_collective_wire_bytes(const struct dpb_nccl_comm *comm,
                                       const struct dpb_coll *coll)
{
    struct dpb_algorithm_setup setup = {.algorithm = DPB_ALGORITHM_RING, .ranks = comm->base.size};
    char ignored[DPB_NCCL_WHY];
    if (dpb_algorithm_check(&setup, coll->kind, ignored, sizeof(ignored)) < 0)
        setup.algorithm = DPB_ALGORITHM_DIRECT;
    return dpb_setup_wire_bytes(&setup, coll->kind, comm->base.rank, coll->root, coll->count,
                                dpb_dtype_bytes(coll->dtype));
}

/* ---- sums with a scale ---- */

static uint16_t bf16_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    /* To nearest, ties to even: add half of the last place, less one bit when that is even. */
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static uint16_t fp16_of(float value)
{
    const uint16_t sign = signbit(value) ? 0x8000 : 0;
    const float size = fabsf(value);
    if (!(size < 65520)) /* rounds to infinity */
        return sign | 0x7c00;
    /* The place of the last bit: 10 below the first one, not below 2^-24. */
    int exponent;
    frexpf(size, &exponent);
    const int place = exponent - 11 > -24 ? exponent - 11 : -24;
    const uint32_t units = (uint32_t)lrintf(ldexpf(size, -place));
    /* A number whose first bit is implicit; a carry goes into the exponent by itself. */
    return (uint16_t)(sign | (units + ((uint32_t)(place + 24) << 10)));
}

void dpb_nccl_scalar(float scale, enum dpb_dtype dtype, void *scalar)
{
    const double wide = scale;
    const uint16_t half = dtype == DPB_BF16 ? bf16_of(scale) : fp16_of(scale);
    memset(scalar, 0, 8);
    switch (dtype) {
    case DPB_F64:
        memcpy(scalar, &wide, sizeof(wide));
        break;
    case DPB_BF16:
    case DPB_F16:
        memcpy(scalar, &half, sizeof(half));
        break;
    default:
        memcpy(scalar, &scale, sizeof(scale));
        break;
    }
}

static dpb_status destroy_op(struct dpb_nccl_comm *comm, ncclRedOp_t op, const char *subject)
{
    return dpb_nccl_settle(comm, subject, "ncclRedOpDestroy",
                           comm->nccl->ncclRedOpDestroy(op, comm->comm));
}

/* The operator of a sum; made once for each scale and type. */
static dpb_status find_op(struct dpb_nccl_comm *comm, const struct dpb_coll *coll,
                          const char *subject, ncclRedOp_t *op)
{
    unsigned char scalar[8];
    *op = ncclSum;
    if (coll->scale == 1)
        return DPB_OK;
    for (int i = 0; i < comm->op_count; i++) {
        if (comm->op[i].scale == coll->scale && comm->op[i].dtype == coll->dtype) {
            *op = comm->op[i].op;
            return DPB_OK;
        }
    }
    struct dpb_nccl_op *slot = &comm->op[comm->op_next];
    if (comm->op_count == DPB_NCCL_OPS)
        DPB_TRY(destroy_op(comm, slot->op, subject));
    else
        comm->op_count++;
    comm->op_next = (comm->op_next + 1) % DPB_NCCL_OPS;
    *slot = (struct dpb_nccl_op){.scale = coll->scale, .dtype = coll->dtype, .op = ncclSum};
    dpb_nccl_scalar(coll->scale, coll->dtype, scalar);
    DPB_TRY(dpb_nccl_settle(
            comm, subject, "ncclRedOpCreatePreMulSum",
            comm->nccl->ncclRedOpCreatePreMulSum(&slot->op, scalar, type_of[coll->dtype],
                                                 ncclScalarHostImmediate, comm->comm)));
    *op = slot->op;
    return DPB_OK;
}

void dpb_nccl_ops_release(struct dpb_nccl_comm *comm)
{
    for (int i = 0; i < comm->op_count; i++)
        if (comm->op[i].op != ncclSum && destroy_op(comm, comm->op[i].op, "close") < 0)
            break;
    comm->op_count = comm->op_next = 0;
}

/* ---- the kinds ---- */

/* A collective on its way into NCCL. */
struct job {
    struct dpb_nccl_comm *comm;
    const struct dpb_nccl_table *nccl;
    const struct dpb_coll *coll;
    const char *subject;
    char *buffer;
    size_t element_bytes;
    ncclDataType_t type;
    ncclRedOp_t op;
    ncclComm_t to;
    cudaStream_t stream;
};

static dpb_status settle(const struct job *job, const char *call, ncclResult_t result)
{
    return dpb_nccl_settle(job->comm, job->subject, call, result);
}

/* One call of a group; what it is about is settled at the group's end. */
typedef ncclResult_t (*member)(const struct job *job, int rank);

static dpb_status group(const struct job *job, const char *what, member call)
{
    ncclResult_t first = job->nccl->ncclGroupStart();
    if (first != ncclSuccess)
        return dpb_nccl_failed(job->comm, job->subject, "ncclGroupStart", first);
    for (int r = 0; r < job->comm->base.size && first == ncclSuccess; r++) {
        ncclResult_t result = call(job, r);
        if (result != ncclInProgress)
            first = result;
    }
    /* Also after a failure: the group must not stay open. */
    ncclResult_t end = job->nccl->ncclGroupEnd();
    if (first != ncclSuccess)
        return dpb_nccl_failed(job->comm, job->subject, what, first);
    return settle(job, "ncclGroupEnd", end);
}

static ncclResult_t reduce_shard(const struct job *job, int rank)
{
    int64_t first;
    int64_t count = dpb_coll_shard(job->coll->count, job->comm->base.size, rank, &first);
    char *shard = job->buffer + (size_t)first * job->element_bytes;
    if (count == 0)
        return ncclSuccess;
    return job->nccl->ncclReduce(shard, shard, (size_t)count, job->type, job->op, rank, job->to,
                                 job->stream);
}

static ncclResult_t broadcast_shard(const struct job *job, int rank)
{
    int64_t first;
    int64_t count = dpb_coll_shard(job->coll->count, job->comm->base.size, rank, &first);
    char *shard = job->buffer + (size_t)first * job->element_bytes;
    if (count == 0)
        return ncclSuccess;
    return job->nccl->ncclBroadcast(shard, shard, (size_t)count, job->type, rank, job->to,
                                    job->stream);
}

static ncclResult_t swap_part(const struct job *job, int rank)
{
    const size_t count = (size_t)(job->coll->count / job->comm->base.size);
    const size_t at = (size_t)rank * count * job->element_bytes;
    ncclResult_t result = job->nccl->ncclSend((const char *)job->comm->staging + at, count,
                                              job->type, rank, job->to, job->stream);
    if (result != ncclSuccess && result != ncclInProgress)
        return result;
    return job->nccl->ncclRecv(job->buffer + at, count, job->type, rank, job->to, job->stream);
}

static dpb_status all_reduce(const struct job *job)
{
    return settle(job, "ncclAllReduce",
                  job->nccl->ncclAllReduce(job->buffer, job->buffer, (size_t)job->coll->count,
                                           job->type, job->op, job->to, job->stream));
}

static dpb_status reduce_scatter(const struct job *job)
{
    const int64_t each = job->coll->count / job->comm->base.size;
    char *own = job->buffer + (size_t)(each * job->comm->base.rank) * job->element_bytes;
    if (job->coll->count % job->comm->base.size != 0) {
        job->comm->uneven++;
        return group(job, "ncclReduce", reduce_shard);
    }
    return settle(job, "ncclReduceScatter",
                  job->nccl->ncclReduceScatter(job->buffer, own, (size_t)each, job->type, job->op,
                                               job->to, job->stream));
}

static dpb_status all_gather(const struct job *job)
{
    const int64_t each = job->coll->count / job->comm->base.size;
    const char *own = job->buffer + (size_t)(each * job->comm->base.rank) * job->element_bytes;
    if (job->coll->count % job->comm->base.size != 0) {
        job->comm->uneven++;
        return group(job, "ncclBroadcast", broadcast_shard);
    }
    return settle(job, "ncclAllGather",
                  job->nccl->ncclAllGather(own, job->buffer, (size_t)each, job->type, job->to,
                                           job->stream));
}

static dpb_status broadcast(const struct job *job)
{
    return settle(job, "ncclBroadcast",
                  job->nccl->ncclBroadcast(job->buffer, job->buffer, (size_t)job->coll->count,
                                           job->type, job->coll->root, job->to, job->stream));
}

static dpb_status reduce(const struct job *job)
{
    return settle(job, "ncclReduce",
                  job->nccl->ncclReduce(job->buffer, job->buffer, (size_t)job->coll->count,
                                        job->type, job->op, job->coll->root, job->to, job->stream));
}

/* Memory for the input. Allocating waits for what runs on the GPU: nothing of NCCL's may. */
static dpb_status stage(const struct job *job, size_t bytes)
{
    struct dpb_nccl_comm *comm = job->comm;
    if (comm->staging_bytes >= bytes)
        return DPB_OK;
    DPB_NCCL_CUDA(comm, job->subject, cudaEventRecord(comm->ready, job->stream));
    DPB_TRY(dpb_nccl_host_wait(comm, job->subject, comm->ready));
    void *old = comm->staging;
    comm->staging = NULL;
    comm->staging_bytes = 0;
    if (old)
        DPB_NCCL_CUDA(comm, job->subject, cudaFree(old));
    DPB_NCCL_CUDA(comm, job->subject, cudaMalloc(&comm->staging, bytes));
    comm->staging_bytes = bytes;
    return DPB_OK;
}

static dpb_status all_to_all(const struct job *job)
{
    const size_t bytes = (size_t)job->coll->count * job->element_bytes;
    const size_t each = (size_t)(job->coll->count / job->comm->base.size);
    if (job->comm->base.size == 1)
        return DPB_OK;
    DPB_TRY(stage(job, bytes));
    DPB_NCCL_CUDA(job->comm, job->subject,
                  cudaMemcpyAsync(job->comm->staging, job->buffer, bytes, cudaMemcpyDeviceToDevice,
                                  job->stream));
    if (!job->nccl->ncclAlltoAll)
        return group(job, "ncclSend and ncclRecv", swap_part);
    return settle(job, "ncclAlltoAll",
                  job->nccl->ncclAlltoAll(job->comm->staging, job->buffer, each, job->type, job->to,
                                          job->stream));
}

dpb_status dpb_nccl_collective_enqueue(struct dpb_nccl_comm *comm, const struct dpb_coll *coll,
                                       const char *subject)
{
    static dpb_status (*const call[DPB_COLL_COUNT])(const struct job *job) = {
            [DPB_COLL_ALL_REDUCE] = all_reduce, [DPB_COLL_REDUCE_SCATTER] = reduce_scatter,
            [DPB_COLL_ALL_GATHER] = all_gather, [DPB_COLL_BROADCAST] = broadcast,
            [DPB_COLL_REDUCE] = reduce,         [DPB_COLL_ALL_TO_ALL] = all_to_all,
    };
    struct job job = {
            .comm = comm,
            .nccl = comm->nccl,
            .coll = coll,
            .subject = subject,
            .buffer = coll->buffer,
            .element_bytes = dpb_dtype_bytes(coll->dtype),
            .type = type_of[coll->dtype],
            .op = ncclSum,
            .to = comm->comm,
            .stream = comm->stream,
    };
    if (coll->count == 0)
        return DPB_OK;
    if (dpb_coll_reduces(coll->kind))
        DPB_TRY(find_op(comm, coll, subject, &job.op));
    return call[coll->kind](&job);
}

#include "fake_nccl_work.h"

#include <stdlib.h>
#include <string.h>

#include "fake_cudart.h"
#include "fake_number.h"

/* ---- elements ---- */

size_t fake_nccl_type_bytes(ncclDataType_t type)
{
    switch (type) {
    case ncclInt8:
    case ncclUint8:
        return 1;
    case ncclFloat16:
    case ncclBfloat16:
        return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
        return 4;
    default:
        return 8;
    }
}

double fake_nccl_load(const void *from, ncclDataType_t type, int64_t index)
{
    int64_t wide;
    int32_t narrow;
    double number;

    switch (type) {
    case ncclFloat32:
        return fake_load(from, DPB_F32, index);
    case ncclFloat16:
        return fake_load(from, DPB_F16, index);
    case ncclBfloat16:
        return fake_load(from, DPB_BF16, index);
    case ncclInt32:
        memcpy(&narrow, (const char *)from + 4 * index, 4);
        return narrow;
    case ncclInt64:
        memcpy(&wide, (const char *)from + 8 * index, 8);
        return (double)wide;
    case ncclFloat64:
        memcpy(&number, (const char *)from + 8 * index, 8);
        return number;
    default:
        return ((const unsigned char *)from)[index];
    }
}

static void store(void *to, ncclDataType_t type, int64_t index, double value)
{
    int64_t wide = (int64_t)value;
    int32_t narrow = (int32_t)value;

    switch (type) {
    case ncclFloat32:
        fake_store(to, DPB_F32, index, value);
        break;
    case ncclFloat16:
        fake_store(to, DPB_F16, index, value);
        break;
    case ncclBfloat16:
        fake_store(to, DPB_BF16, index, value);
        break;
    case ncclInt32:
        memcpy((char *)to + 4 * index, &narrow, 4);
        break;
    case ncclInt64:
        memcpy((char *)to + 8 * index, &wide, 8);
        break;
    case ncclFloat64:
        memcpy((char *)to + 8 * index, &value, 8);
        break;
    default:
        ((unsigned char *)to)[index] = (unsigned char)value;
    }
}

/* ---- collectives on the stream ---- */

static const char *const kind_texts[] = {"all-reduce", "reduce-scatter", "all-gather",
                                         "broadcast",  "reduce",         "sends and receives"};

enum state {
    IDLE,
    WAITS_FOR_STAGING,
    WAITS_FOR_RANKS
};

struct job {
    struct call call;
    struct call *parts; /* POINT_TO_POINT: its sends and receives */
    int part_count;
    enum state state;
    int64_t number;
};

int64_t fake_nccl_elements_in(const struct call *call)
{
    return call->signature.count * (call->signature.kind == REDUCE_SCATTER ? call->comm->ranks : 1);
}

int64_t fake_nccl_elements_out(const struct call *call)
{
    return call->signature.count * (call->signature.kind == ALL_GATHER ? call->comm->ranks : 1);
}

bool fake_nccl_gives(const struct call *call)
{
    return call->signature.kind != BROADCAST || call->comm->rank == call->signature.root;
}

bool fake_nccl_takes(const struct call *call)
{
    return call->signature.kind != REDUCE || call->comm->rank == call->signature.root;
}

static void stage(struct job *job)
{
    struct call *call = &job->call;
    const ncclDataType_t type = (ncclDataType_t)call->signature.type;
    char *staged = fake_nccl_rank.world->staged[call->comm->rank];
    size_t used = 0;

    if (call->signature.kind == POINT_TO_POINT) {
        for (int peer = 0; peer < call->comm->ranks; peer++) {
            for (int i = 0; i < job->part_count; i++) {
                const struct call *part = &job->parts[i];
                size_t bytes = (size_t)part->signature.count *
                               fake_nccl_type_bytes((ncclDataType_t)part->signature.type);

                if (!part->sends || part->peer != peer)
                    continue;
                memcpy(staged + used, part->from, bytes);
                used += bytes;
            }
        }
        for (int i = 0; i < job->part_count; i++) {
            const struct call *part = &job->parts[i];

            if (!part->sends)
                memset(part->to, 0xff,
                       (size_t)part->signature.count *
                               fake_nccl_type_bytes((ncclDataType_t)part->signature.type));
        }
        return;
    }
    for (int64_t i = 0; fake_nccl_gives(call) && i < fake_nccl_elements_in(call); i++) {
        double value = fake_nccl_load(call->from, type, i);

        store(staged, type, i, call->signature.scale == 1 ? value : value * call->signature.scale);
    }
    if (fake_nccl_takes(call))
        memset(call->to, 0xff, (size_t)fake_nccl_elements_out(call) * fake_nccl_type_bytes(type));
}

static void check_same(const struct job *job)
{
    const struct ncclComm *comm = job->call.comm;
    const struct signature *mine = &comm->meeting->rank[comm->rank].signature;

    for (int r = 0; r < comm->ranks; r++) {
        const struct signature *theirs = &comm->meeting->rank[r].signature;

        if (theirs->kind != mine->kind || theirs->type != mine->type || theirs->op != mine->op ||
            theirs->root != mine->root || theirs->count != mine->count ||
            theirs->scale != mine->scale)
            fake_cuda_stop(FAKE_EXIT_MISUSE,
                           "fake: collective %lld: rank %d does %s of %lld, rank %d does %s of "
                           "%lld, or with another type, root or operator",
                           (long long)job->number, comm->rank, kind_texts[mine->kind],
                           (long long)mine->count, r, kind_texts[theirs->kind],
                           (long long)theirs->count);
    }
}

static double sum(const struct call *call, int64_t index)
{
    double value = 0;

    for (int r = 0; r < call->comm->ranks; r++)
        value += fake_nccl_load(fake_nccl_rank.world->staged[r],
                                (ncclDataType_t)call->signature.type, index);
    return call->signature.op == ncclAvg ? value / call->comm->ranks : value;
}

static void receive(const struct job *job)
{
    const struct ncclComm *comm = job->call.comm;

    for (int peer = 0; peer < comm->ranks; peer++) {
        const int64_t *bytes_to = comm->meeting->rank[peer].signature.bytes_to;
        size_t at = 0, left;

        for (int r = 0; r < comm->rank; r++)
            at += (size_t)bytes_to[r];
        left = (size_t)bytes_to[comm->rank];
        for (int i = 0; i < job->part_count; i++) {
            const struct call *part = &job->parts[i];
            size_t bytes = (size_t)part->signature.count *
                           fake_nccl_type_bytes((ncclDataType_t)part->signature.type);

            if (part->sends || part->peer != peer)
                continue;
            if (bytes > left)
                fake_cuda_stop(FAKE_EXIT_MISUSE, "fake: rank %d receives more than rank %d sends",
                               comm->rank, peer);
            memcpy(part->to, fake_nccl_rank.world->staged[peer] + at, bytes);
            at += bytes;
            left -= bytes;
        }
        if (left > 0)
            fake_cuda_stop(FAKE_EXIT_MISUSE, "fake: rank %d sends more than rank %d receives", peer,
                           comm->rank);
    }
}

static void finish(const struct job *job)
{
    const struct call *call = &job->call;
    const ncclDataType_t type = (ncclDataType_t)call->signature.type;
    const size_t bytes = (size_t)call->signature.count * fake_nccl_type_bytes(type);
    int64_t first =
            call->signature.kind == REDUCE_SCATTER ? call->comm->rank * call->signature.count : 0;

    check_same(job);
    switch ((enum kind)call->signature.kind) {
    case ALL_REDUCE:
    case REDUCE_SCATTER:
    case REDUCE:
        for (int64_t i = 0; fake_nccl_takes(call) && i < call->signature.count; i++)
            store(call->to, type, i, sum(call, first + i));
        break;
    case ALL_GATHER:
        for (int r = 0; r < call->comm->ranks; r++)
            memcpy((char *)call->to + (size_t)r * bytes, fake_nccl_rank.world->staged[r], bytes);
        break;
    case BROADCAST:
        memcpy(call->to, fake_nccl_rank.world->staged[call->signature.root], bytes);
        break;
    case POINT_TO_POINT:
        receive(job);
        break;
    }
}

static bool all_reached(const struct ncclComm *comm, bool arrived, int64_t number)
{
    for (int r = 0; r < comm->ranks; r++) {
        if (atomic_load(arrived ? &comm->meeting->rank[r].arrived
                                : &comm->meeting->rank[r].finished) < number)
            return false;
    }
    return true;
}

static bool run_job(void *context)
{
    struct job *job = context;
    struct ncclComm *comm = job->call.comm;

    if (atomic_load(&comm->aborted)) {
        job->state = IDLE;
        comm->under_way--;
        return true;
    }
    if (job->state == IDLE) {
        job->number = ++comm->newest;
        job->state = WAITS_FOR_STAGING;
    }
    if (job->number == fake_nccl_rank.config.hang_collective)
        return false;
    if (job->state == WAITS_FOR_STAGING) {
        if (!all_reached(comm, false, job->number - 1))
            return false;
        stage(job);
        comm->meeting->rank[comm->rank].signature = job->call.signature;
        atomic_store(&comm->meeting->rank[comm->rank].arrived, job->number);
        job->state = WAITS_FOR_RANKS;
    }
    if (!all_reached(comm, true, job->number))
        return false;
    finish(job);
    atomic_store(&comm->meeting->rank[comm->rank].finished, job->number);
    job->state = IDLE;
    comm->under_way--;
    fake_nccl_rank.collectives++;
    return true;
}

void fake_nccl_drop_comm(struct ncclComm *comm)
{
    if (atomic_fetch_sub(&comm->references, 1) == 1)
        free(comm);
}

static void release_job(void *context)
{
    struct job *job = context;

    fake_nccl_drop_comm(job->call.comm);
    free(job->parts);
    free(job);
}

ncclResult_t fake_nccl_enqueue(const struct call *call, const struct call *parts, int part_count)
{
    struct job *job = calloc(1, sizeof(*job));
    size_t bytes = (size_t)part_count * sizeof(*parts);

    if (!job)
        return ncclSystemError;
    job->call = *call;
    if (part_count > 0) {
        job->parts = malloc(bytes);
        if (!job->parts) {
            free(job);
            return ncclSystemError;
        }
        memcpy(job->parts, parts, bytes);
        job->part_count = part_count;
    }
    call->comm->references++;
    call->comm->under_way++;
    if (fake_cuda_enqueue(call->stream, &(struct fake_cuda_work){.name = "collective",
                                                                 .run = run_job,
                                                                 .release = release_job,
                                                                 .context = job}) != cudaSuccess)
        return fake_nccl_refuse(ncclUnhandledCudaError, "the stream does not take a collective");
    return ncclSuccess;
}

#include "fake_nccl.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fake_cudart.h"
#include "fake_nccl_work.h"

#define GROUP_MAX   256
#define GRAPH_WAITS 2000 /* milliseconds */

struct fake_nccl_rank fake_nccl_rank;

static uint64_t looks_random;
static char last_error[256];
static _Thread_local int group_depth;
static _Thread_local int grouped_count;
static _Thread_local struct call grouped[GROUP_MAX];

struct fake_nccl_world *fake_nccl_world_new(void)
{
    void *memory = mmap(NULL, sizeof(struct fake_nccl_world), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (memory == MAP_FAILED)
        fake_cuda_stop(FAKE_EXIT_MISUSE, "fake: no memory for ranks to meet in");
    return memory;
}

void fake_nccl_world_free(struct fake_nccl_world *given)
{
    munmap(given, sizeof(*given));
}

void fake_nccl_begin(struct fake_nccl_world *given, const struct fake_nccl_config *given_config)
{
    fake_nccl_rank = (struct fake_nccl_rank){.world = given, .config = *given_config};
    looks_random = given_config->seed;
    group_depth = grouped_count = 0;
    last_error[0] = '\0';
}

int64_t fake_nccl_collectives(void)
{
    return fake_nccl_rank.collectives;
}

ncclResult_t fake_nccl_refuse(ncclResult_t result, const char *why)
{
    snprintf(last_error, sizeof(last_error), "%s", why);
    return result;
}

#define BEGIN(call)                                                                                \
    do {                                                                                           \
        if (fake_cuda_fails(call))                                                                 \
            return fake_nccl_refuse(ncclSystemError, "made to fail");                              \
    } while (0)

/* ---- calls that make collectives ---- */

static ncclResult_t check_ready(struct ncclComm *comm)
{
    if (atomic_load(&comm->aborted))
        return fake_nccl_refuse(ncclInvalidUsage, "the communicator is aborted");
    if (comm->looks > 0 || comm->joining)
        return fake_nccl_refuse(ncclInvalidUsage, "a call while another one is in progress");
    return ncclSuccess;
}

/* The call goes on in the background. */
static ncclResult_t in_background(struct ncclComm *comm)
{
    /* Knuth's MMIX generator. */
    looks_random = looks_random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    comm->looks = (int)((looks_random >> 33) % (uint64_t)(fake_nccl_rank.config.looks_max + 1));
    return comm->looks > 0 ? ncclInProgress : ncclSuccess;
}

static bool is_sum(const struct ncclComm *comm, ncclRedOp_t op)
{
    int own = (int)op - (int)ncclNumOps;

    return op == ncclSum || op == ncclAvg || (own >= 0 && own < OPS_MAX && comm->op[own].live);
}

/* Put a call on its stream, or into the open group. */
static ncclResult_t submit(const struct call *call)
{
    size_t bytes = fake_nccl_type_bytes((ncclDataType_t)call->signature.type);
    ncclResult_t result = check_ready(call->comm);

    if (result != ncclSuccess)
        return result;
    if (call->signature.count == 0)
        return ncclSuccess;
    if ((size_t)fake_nccl_elements_in(call) * bytes > STAGED_BYTES)
        return fake_nccl_refuse(ncclInvalidArgument, "more than this fake can hold");
    if (call->from && fake_nccl_gives(call))
        fake_cuda_check_device("NCCL's input", call->from,
                               (size_t)fake_nccl_elements_in(call) * bytes);
    if (call->to && fake_nccl_takes(call))
        fake_cuda_check_device("NCCL's output", call->to,
                               (size_t)fake_nccl_elements_out(call) * bytes);
    if (group_depth > 0) {
        if (grouped_count == GROUP_MAX)
            return fake_nccl_refuse(ncclInvalidUsage, "a group that is too large for this fake");
        grouped[grouped_count++] = *call;
        return ncclSuccess;
    }
    result = fake_nccl_enqueue(call, NULL, 0);
    return result == ncclSuccess ? in_background(call->comm) : result;
}

static ncclResult_t reduce_call(enum kind kind, const void *from, void *to, size_t count,
                                ncclDataType_t type, ncclRedOp_t op, int root,
                                struct ncclComm *comm, cudaStream_t stream)
{
    struct call call = {.comm = comm, .from = from, .to = to, .stream = stream};

    if (!is_sum(comm, op))
        return fake_nccl_refuse(ncclInvalidArgument, "an operator that is not there");
    call.signature =
            (struct signature){.kind = (int32_t)kind,
                               .type = (int32_t)type,
                               .op = op == ncclAvg ? ncclAvg : ncclSum,
                               .root = root,
                               .count = (int64_t)count,
                               .scale = op >= ncclNumOps ? comm->op[op - ncclNumOps].scale : 1};
    return submit(&call);
}

static ncclResult_t copy_call(enum kind kind, const void *from, void *to, size_t count,
                              ncclDataType_t type, int root, struct ncclComm *comm,
                              cudaStream_t stream)
{
    const struct call call = {.comm = comm,
                              .signature = {.kind = (int32_t)kind,
                                            .type = (int32_t)type,
                                            .root = root,
                                            .count = (int64_t)count,
                                            .scale = 1},
                              .from = from,
                              .to = to,
                              .stream = stream};

    return submit(&call);
}

static ncclResult_t all_reduce(const void *from, void *to, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    BEGIN("ncclAllReduce");
    return reduce_call(ALL_REDUCE, from, to, count, type, op, 0, comm, stream);
}

static ncclResult_t reduce_scatter(const void *from, void *to, size_t count, ncclDataType_t type,
                                   ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    BEGIN("ncclReduceScatter");
    return reduce_call(REDUCE_SCATTER, from, to, count, type, op, 0, comm, stream);
}

static ncclResult_t reduce(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
{
    BEGIN("ncclReduce");
    return reduce_call(REDUCE, from, to, count, type, op, root, comm, stream);
}

static ncclResult_t all_gather(const void *from, void *to, size_t count, ncclDataType_t type,
                               ncclComm_t comm, cudaStream_t stream)
{
    BEGIN("ncclAllGather");
    return copy_call(ALL_GATHER, from, to, count, type, 0, comm, stream);
}

static ncclResult_t broadcast(const void *from, void *to, size_t count, ncclDataType_t type,
                              int root, ncclComm_t comm, cudaStream_t stream)
{
    BEGIN("ncclBroadcast");
    return copy_call(BROADCAST, from, to, count, type, root, comm, stream);
}

static ncclResult_t point_call(const void *from, void *to, size_t count, ncclDataType_t type,
                               int peer, struct ncclComm *comm, cudaStream_t stream)
{
    const struct call call = {.comm = comm,
                              .signature = {.kind = POINT_TO_POINT,
                                            .type = (int32_t)type,
                                            .count = (int64_t)count,
                                            .scale = 1},
                              .from = from,
                              .to = to,
                              .peer = peer,
                              .sends = from != NULL,
                              .stream = stream};

    if (group_depth == 0)
        return fake_nccl_refuse(ncclInvalidUsage,
                                "this fake has sends and receives in groups only");
    return submit(&call);
}

static ncclResult_t send(const void *from, size_t count, ncclDataType_t type, int peer,
                         ncclComm_t comm, cudaStream_t stream)
{
    BEGIN("ncclSend");
    return point_call(from, NULL, count, type, peer, comm, stream);
}

static ncclResult_t recv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                         cudaStream_t stream)
{
    BEGIN("ncclRecv");
    return point_call(NULL, to, count, type, peer, comm, stream);
}

static ncclResult_t all_to_all(const void *from, void *to, size_t count, ncclDataType_t type,
                               ncclComm_t comm, cudaStream_t stream)
{
    size_t bytes = count * fake_nccl_type_bytes(type);
    ncclResult_t result = check_ready(comm);
    struct call call = {.comm = comm, .stream = stream};
    struct call parts[2 * FAKE_NCCL_RANKS_MAX];

    BEGIN("ncclAlltoAll");
    if (result != ncclSuccess || count == 0)
        return result;
    if (group_depth > 0)
        return fake_nccl_refuse(ncclInvalidUsage, "this fake has no all-to-all in groups");
    fake_cuda_check_device("NCCL's input", from, bytes * (size_t)comm->ranks);
    fake_cuda_check_device("NCCL's output", to, bytes * (size_t)comm->ranks);
    call.signature = (struct signature){.kind = POINT_TO_POINT, .scale = 1};
    for (int r = 0; r < comm->ranks; r++) {
        call.signature.bytes_to[r] = (int64_t)bytes;
        parts[2 * r] = (struct call){.comm = comm,
                                     .signature = {.type = (int32_t)type, .count = (int64_t)count},
                                     .from = (const char *)from + (size_t)r * bytes,
                                     .peer = r,
                                     .sends = true};
        parts[2 * r + 1] = parts[2 * r];
        parts[2 * r + 1].from = NULL;
        parts[2 * r + 1].to = (char *)to + (size_t)r * bytes;
        parts[2 * r + 1].sends = false;
    }
    result = fake_nccl_enqueue(&call, parts, 2 * comm->ranks);
    return result == ncclSuccess ? in_background(comm) : result;
}

/* ---- groups ---- */

static ncclResult_t group_start(void)
{
    BEGIN("ncclGroupStart");
    group_depth++;
    return ncclSuccess;
}

/* The sends and receives of a group, from `first` on, as one piece of work; their number. */
static int enqueue_points(int first, ncclResult_t *result)
{
    struct call call = {.comm = grouped[first].comm, .stream = grouped[first].stream};
    int count = 0;

    call.signature = (struct signature){.kind = POINT_TO_POINT, .scale = 1};
    while (first + count < grouped_count &&
           grouped[first + count].signature.kind == POINT_TO_POINT) {
        const struct call *part = &grouped[first + count++];

        if (part->sends)
            call.signature.bytes_to[part->peer] +=
                    part->signature.count *
                    (int64_t)fake_nccl_type_bytes((ncclDataType_t)part->signature.type);
    }
    *result = fake_nccl_enqueue(&call, &grouped[first], count);
    return count;
}

static ncclResult_t group_end(void)
{
    ncclResult_t result = fake_cuda_fails("ncclGroupEnd") ? ncclSystemError : ncclSuccess;
    struct ncclComm *comm = grouped_count > 0 ? grouped[0].comm : NULL;

    if (group_depth == 0)
        return fake_nccl_refuse(ncclInvalidUsage, "no group is open");
    if (--group_depth > 0)
        return result;
    for (int i = 0; result == ncclSuccess && i < grouped_count;) {
        if (grouped[i].signature.kind == POINT_TO_POINT)
            i += enqueue_points(i, &result);
        else
            result = fake_nccl_enqueue(&grouped[i++], NULL, 0);
    }
    grouped_count = 0;
    return result == ncclSuccess && comm ? in_background(comm) : result;
}

/* ---- communicators ---- */

static ncclResult_t get_version(int *version)
{
    BEGIN("ncclGetVersion");
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

static ncclResult_t get_unique_id(ncclUniqueId *id)
{
    uint64_t number;

    BEGIN("ncclGetUniqueId");
    number = atomic_fetch_add(&fake_nccl_rank.world->ids, 1);
    memset(id, 0, sizeof(*id));
    memcpy(id, &number, sizeof(number));
    return ncclSuccess;
}

static const char *get_error_string(ncclResult_t result)
{
    switch (result) {
    case ncclSuccess:
        return "no error";
    case ncclInProgress:
        return "NCCL operation in progress";
    case ncclInvalidUsage:
        return "invalid usage";
    case ncclSystemError:
        return "unhandled system error";
    case ncclRemoteError:
        return "remote process exited or there was a network error";
    default:
        return "an error of NCCL";
    }
}

static const char *get_last_error(ncclComm_t comm)
{
    (void)comm;
    return last_error;
}

static ncclResult_t init(ncclComm_t *made, int ranks, ncclUniqueId id, int rank,
                         ncclConfig_t *given)
{
    struct ncclComm *comm;
    uint64_t number;

    BEGIN("ncclCommInitRankConfig");
    memcpy(&number, &id, sizeof(number));
    if (ranks > FAKE_NCCL_RANKS_MAX || number >= COMMS_MAX || given->blocking != 0)
        return fake_nccl_refuse(ncclInvalidArgument,
                                "this fake has few ranks, and is not blocking");
    comm = calloc(1, sizeof(*comm));
    if (!comm)
        return ncclSystemError;
    comm->references = 1;
    comm->rank = rank;
    comm->ranks = ranks;
    comm->meeting = &fake_nccl_rank.world->meeting[number];
    comm->joining = true;
    atomic_fetch_add(&comm->meeting->joined, 1);
    fake_cuda_handle(FAKE_COMMUNICATOR, 1);
    in_background(comm);
    *made = comm;
    return ncclInProgress;
}

static ncclResult_t get_async_error(ncclComm_t comm, ncclResult_t *state)
{
    BEGIN("ncclCommGetAsyncError");
    *state = ncclSuccess;
    if (fake_nccl_rank.config.break_collective > 0 &&
        comm->newest >= fake_nccl_rank.config.break_collective) {
        *state = fake_nccl_refuse(ncclRemoteError, "a rank is gone");
        return ncclSuccess;
    }
    comm->joining = comm->joining && atomic_load(&comm->meeting->joined) < comm->ranks;
    if (comm->looks > 0)
        comm->looks--;
    if (comm->looks > 0 || comm->joining)
        *state = ncclInProgress;
    return ncclSuccess;
}

static ncclResult_t finalize(ncclComm_t comm)
{
    ncclResult_t result;

    BEGIN("ncclCommFinalize");
    result = check_ready(comm);
    return result == ncclSuccess ? in_background(comm) : result;
}

static void end_comm(struct ncclComm *comm)
{
    fake_cuda_handle(FAKE_COMMUNICATOR, -1);
    fake_cuda_handle(FAKE_REGISTRATION, -comm->registrations);
    for (int i = 0; i < OPS_MAX; i++)
        fake_cuda_handle(FAKE_REDUCTION, comm->op[i].live ? -1 : 0);
    fake_nccl_drop_comm(comm);
}

/* NCCL waits, without a deadline, until nobody can launch a collective of it again. Work that has
 * run is released a little later. */
static void wait_for_graphs(struct ncclComm *comm)
{
    for (int i = 0; atomic_load(&comm->references) > 1; i++) {
        if (i == GRAPH_WAITS)
            fake_cuda_stop(FAKE_EXIT_HANG,
                           "fake: ncclCommDestroy waits for a graph that holds %d "
                           "collectives",
                           atomic_load(&comm->references) - 1);
        usleep(1000);
    }
}

static ncclResult_t destroy(ncclComm_t comm)
{
    ncclResult_t result = fake_cuda_fails("ncclCommDestroy")
                                  ? fake_nccl_refuse(ncclSystemError, "made to fail")
                                  : ncclSuccess;

    if (comm->under_way > 0)
        fake_cuda_stop(FAKE_EXIT_MISUSE, "fake: ncclCommDestroy with %d collectives under way",
                       comm->under_way);
    wait_for_graphs(comm);
    end_comm(comm);
    return result;
}

static ncclResult_t abort_comm(ncclComm_t comm)
{
    ncclResult_t result = fake_cuda_fails("ncclCommAbort")
                                  ? fake_nccl_refuse(ncclSystemError, "made to fail")
                                  : ncclSuccess;

    while (fake_nccl_rank.config.abort_hangs)
        pause();
    atomic_store(&comm->aborted, true);
    end_comm(comm);
    return result;
}

/* ---- memory, registrations and operators ---- */

static ncclResult_t mem_alloc(void **memory, size_t bytes)
{
    BEGIN("ncclMemAlloc");
    /* Whole pages: it promises more alignment than cudaMalloc(). */
    return cudaMalloc(memory, (bytes + 4095) / 4096 * 4096) == cudaSuccess
                   ? ncclSuccess
                   : fake_nccl_refuse(ncclUnhandledCudaError, "cudaMalloc");
}

static ncclResult_t mem_free(void *memory)
{
    ncclResult_t result = fake_cuda_fails("ncclMemFree")
                                  ? fake_nccl_refuse(ncclSystemError, "made to fail")
                                  : ncclSuccess;

    return cudaFree(memory) == cudaSuccess ? result
                                           : fake_nccl_refuse(ncclUnhandledCudaError, "cudaFree");
}

static ncclResult_t register_memory(const ncclComm_t comm, void *memory, size_t bytes,
                                    void **handle)
{
    ncclResult_t result;

    BEGIN("ncclCommRegister");
    result = check_ready(comm);
    if (result != ncclSuccess)
        return result;
    fake_cuda_check_device("what is registered with NCCL", memory, bytes);
    comm->registrations++;
    fake_cuda_handle(FAKE_REGISTRATION, 1);
    *handle = memory;
    return in_background(comm);
}

static ncclResult_t deregister_memory(const ncclComm_t comm, void *handle)
{
    ncclResult_t result = fake_cuda_fails("ncclCommDeregister")
                                  ? fake_nccl_refuse(ncclSystemError, "made to fail")
                                  : ncclSuccess;

    (void)handle;
    if (comm->registrations == 0)
        return fake_nccl_refuse(ncclInvalidArgument, "nothing is registered");
    comm->registrations--;
    fake_cuda_handle(FAKE_REGISTRATION, -1);
    return result;
}

static ncclResult_t op_create(ncclRedOp_t *op, void *scalar, ncclDataType_t type,
                              ncclScalarResidence_t residence, ncclComm_t comm)
{
    BEGIN("ncclRedOpCreatePreMulSum");
    if (residence != ncclScalarHostImmediate)
        return fake_nccl_refuse(ncclInvalidArgument, "this fake reads scalars of the host only");
    for (int i = 0; i < OPS_MAX; i++) {
        if (comm->op[i].live)
            continue;
        comm->op[i] = (struct reduction){true, fake_nccl_load(scalar, type, 0)};
        fake_cuda_handle(FAKE_REDUCTION, 1);
        *op = (ncclRedOp_t)((int)ncclNumOps + i);
        return ncclSuccess;
    }
    return fake_nccl_refuse(ncclInvalidUsage, "too many operators for this fake");
}

static ncclResult_t op_destroy(ncclRedOp_t op, ncclComm_t comm)
{
    ncclResult_t result = fake_cuda_fails("ncclRedOpDestroy")
                                  ? fake_nccl_refuse(ncclSystemError, "made to fail")
                                  : ncclSuccess;

    if (op < ncclNumOps || !is_sum(comm, op))
        return fake_nccl_refuse(ncclInvalidArgument, "an operator that is not there");
    comm->op[op - ncclNumOps].live = false;
    fake_cuda_handle(FAKE_REDUCTION, -1);
    return result;
}

const struct dpb_nccl_table fake_nccl = {
        .ncclGetVersion = get_version,
        .ncclGetUniqueId = get_unique_id,
        .ncclGetErrorString = get_error_string,
        .ncclGetLastError = get_last_error,
        .ncclCommInitRankConfig = init,
        .ncclCommGetAsyncError = get_async_error,
        .ncclCommFinalize = finalize,
        .ncclCommDestroy = destroy,
        .ncclCommAbort = abort_comm,
        .ncclMemAlloc = mem_alloc,
        .ncclMemFree = mem_free,
        .ncclCommRegister = register_memory,
        .ncclCommDeregister = deregister_memory,
        .ncclRedOpCreatePreMulSum = op_create,
        .ncclRedOpDestroy = op_destroy,
        .ncclAllReduce = all_reduce,
        .ncclReduceScatter = reduce_scatter,
        .ncclAllGather = all_gather,
        .ncclBroadcast = broadcast,
        .ncclReduce = reduce,
        .ncclSend = send,
        .ncclRecv = recv,
        .ncclGroupStart = group_start,
        .ncclGroupEnd = group_end,
        .ncclAlltoAll = all_to_all,
};

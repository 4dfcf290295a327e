#include "fake_nccl.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fake_cudart.h"
#include "fake_number.h"

#define STAGED_BYTES ((size_t)64 << 20) /* of a rank's input */
#define COMMS_MAX    8
#define OPS_MAX      32
#define GROUP_MAX    256
#define GRAPH_WAITS  2000 /* milliseconds */

enum kind {
    ALL_REDUCE,
    REDUCE_SCATTER,
    ALL_GATHER,
    BROADCAST,
    REDUCE,
    POINT_TO_POINT /* all sends and receives of a group */
};

static const char *const kind_texts[] = {"all-reduce", "reduce-scatter", "all-gather",
                                         "broadcast",  "reduce",         "sends and receives"};

/* What a rank says that it does; the same on all, but for `bytes_to`. */
struct signature {
    int32_t kind, type, op, root;
    int64_t count;
    double scale;
    int64_t bytes_to[FAKE_NCCL_RANKS_MAX]; /* POINT_TO_POINT: in the order of ranks */
};

/* Where one communicator's ranks meet. */
struct meeting {
    _Atomic int joined;
    struct {
        _Atomic int64_t arrived, finished; /* number of the newest collective */
        struct signature signature;
    } rank[FAKE_NCCL_RANKS_MAX];
};

struct fake_nccl_world {
    _Atomic uint64_t ids;
    struct meeting meeting[COMMS_MAX];
    /* An anonymous mapping: pages that nobody touches take nothing. */
    char staged[FAKE_NCCL_RANKS_MAX][STAGED_BYTES];
};

struct reduction {
    bool live;
    double scale;
};

struct ncclComm {
    _Atomic int references; /* the caller's, and work on streams */
    int rank, ranks;
    struct meeting *meeting;
    _Atomic int64_t newest; /* collective that has begun */
    _Atomic int under_way;  /* on streams */
    int looks;              /* that still say ncclInProgress */
    bool joining;
    _Atomic bool aborted;
    int registrations;
    struct reduction op[OPS_MAX];
};

struct call {
    struct ncclComm *comm;
    struct signature signature;
    const void *from;
    void *to;
    int peer;
    bool sends;
    cudaStream_t stream;
};

static struct fake_nccl_world *world;
static struct fake_nccl_config config;
static int64_t collectives;
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
    world = given;
    config = *given_config;
    looks_random = config.seed;
    collectives = 0;
    group_depth = grouped_count = 0;
    last_error[0] = '\0';
}

int64_t fake_nccl_collectives(void)
{
    return collectives;
}

static ncclResult_t refuse(ncclResult_t result, const char *why)
{
    snprintf(last_error, sizeof(last_error), "%s", why);
    return result;
}

#define BEGIN(call)                                                                                \
    do {                                                                                           \
        if (fake_cuda_fails(call))                                                                 \
            return refuse(ncclSystemError, "made to fail");                                        \
    } while (0)

/* ---- elements ---- */

static size_t type_bytes(ncclDataType_t type)
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

static double load(const void *from, ncclDataType_t type, int64_t index)
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

static int64_t elements_in(const struct call *call)
{
    return call->signature.count * (call->signature.kind == REDUCE_SCATTER ? call->comm->ranks : 1);
}

static int64_t elements_out(const struct call *call)
{
    return call->signature.count * (call->signature.kind == ALL_GATHER ? call->comm->ranks : 1);
}

static bool gives(const struct call *call)
{
    return call->signature.kind != BROADCAST || call->comm->rank == call->signature.root;
}

static bool takes(const struct call *call)
{
    return call->signature.kind != REDUCE || call->comm->rank == call->signature.root;
}

static void stage(struct job *job)
{
    struct call *call = &job->call;
    const ncclDataType_t type = (ncclDataType_t)call->signature.type;
    char *staged = world->staged[call->comm->rank];
    size_t used = 0;

    if (call->signature.kind == POINT_TO_POINT) {
        for (int peer = 0; peer < call->comm->ranks; peer++) {
            for (int i = 0; i < job->part_count; i++) {
                const struct call *part = &job->parts[i];
                size_t bytes = (size_t)part->signature.count *
                               type_bytes((ncclDataType_t)part->signature.type);

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
                               type_bytes((ncclDataType_t)part->signature.type));
        }
        return;
    }
    for (int64_t i = 0; gives(call) && i < elements_in(call); i++) {
        double value = load(call->from, type, i);

        store(staged, type, i, call->signature.scale == 1 ? value : value * call->signature.scale);
    }
    if (takes(call))
        memset(call->to, 0xff, (size_t)elements_out(call) * type_bytes(type));
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
        value += load(world->staged[r], (ncclDataType_t)call->signature.type, index);
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
                           type_bytes((ncclDataType_t)part->signature.type);

            if (part->sends || part->peer != peer)
                continue;
            if (bytes > left)
                fake_cuda_stop(FAKE_EXIT_MISUSE, "fake: rank %d receives more than rank %d sends",
                               comm->rank, peer);
            memcpy(part->to, world->staged[peer] + at, bytes);
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
    const size_t bytes = (size_t)call->signature.count * type_bytes(type);
    int64_t first =
            call->signature.kind == REDUCE_SCATTER ? call->comm->rank * call->signature.count : 0;

    check_same(job);
    switch ((enum kind)call->signature.kind) {
    case ALL_REDUCE:
    case REDUCE_SCATTER:
    case REDUCE:
        for (int64_t i = 0; takes(call) && i < call->signature.count; i++)
            store(call->to, type, i, sum(call, first + i));
        break;
    case ALL_GATHER:
        for (int r = 0; r < call->comm->ranks; r++)
            memcpy((char *)call->to + (size_t)r * bytes, world->staged[r], bytes);
        break;
    case BROADCAST:
        memcpy(call->to, world->staged[call->signature.root], bytes);
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
    if (job->number == config.hang_collective)
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
    collectives++;
    return true;
}

static void drop_comm(struct ncclComm *comm)
{
    if (atomic_fetch_sub(&comm->references, 1) == 1)
        free(comm);
}

static void release_job(void *context)
{
    struct job *job = context;

    drop_comm(job->call.comm);
    free(job->parts);
    free(job);
}

static ncclResult_t enqueue(const struct call *call, const struct call *parts, int part_count)
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
        return refuse(ncclUnhandledCudaError, "the stream does not take a collective");
    return ncclSuccess;
}

/* ---- calls that make collectives ---- */

static ncclResult_t check_ready(struct ncclComm *comm)
{
    if (atomic_load(&comm->aborted))
        return refuse(ncclInvalidUsage, "the communicator is aborted");
    if (comm->looks > 0 || comm->joining)
        return refuse(ncclInvalidUsage, "a call while another one is in progress");
    return ncclSuccess;
}

/* The call goes on in the background. */
static ncclResult_t in_background(struct ncclComm *comm)
{
    /* Knuth's MMIX generator. */
    looks_random = looks_random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    comm->looks = (int)((looks_random >> 33) % (uint64_t)(config.looks_max + 1));
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
    size_t bytes = type_bytes((ncclDataType_t)call->signature.type);
    ncclResult_t result = check_ready(call->comm);

    if (result != ncclSuccess)
        return result;
    if (call->signature.count == 0)
        return ncclSuccess;
    if ((size_t)elements_in(call) * bytes > STAGED_BYTES)
        return refuse(ncclInvalidArgument, "more than this fake can hold");
    if (call->from && gives(call))
        fake_cuda_check_device("NCCL's input", call->from, (size_t)elements_in(call) * bytes);
    if (call->to && takes(call))
        fake_cuda_check_device("NCCL's output", call->to, (size_t)elements_out(call) * bytes);
    if (group_depth > 0) {
        if (grouped_count == GROUP_MAX)
            return refuse(ncclInvalidUsage, "a group that is too large for this fake");
        grouped[grouped_count++] = *call;
        return ncclSuccess;
    }
    result = enqueue(call, NULL, 0);
    return result == ncclSuccess ? in_background(call->comm) : result;
}

static ncclResult_t reduce_call(enum kind kind, const void *from, void *to, size_t count,
                                ncclDataType_t type, ncclRedOp_t op, int root,
                                struct ncclComm *comm, cudaStream_t stream)
{
    struct call call = {.comm = comm, .from = from, .to = to, .stream = stream};

    if (!is_sum(comm, op))
        return refuse(ncclInvalidArgument, "an operator that is not there");
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
        return refuse(ncclInvalidUsage, "this fake has sends and receives in groups only");
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
    size_t bytes = count * type_bytes(type);
    ncclResult_t result = check_ready(comm);
    struct call call = {.comm = comm, .stream = stream};
    struct call parts[2 * FAKE_NCCL_RANKS_MAX];

    BEGIN("ncclAlltoAll");
    if (result != ncclSuccess || count == 0)
        return result;
    if (group_depth > 0)
        return refuse(ncclInvalidUsage, "this fake has no all-to-all in groups");
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
    result = enqueue(&call, parts, 2 * comm->ranks);
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
                    (int64_t)type_bytes((ncclDataType_t)part->signature.type);
    }
    *result = enqueue(&call, &grouped[first], count);
    return count;
}

static ncclResult_t group_end(void)
{
    ncclResult_t result = fake_cuda_fails("ncclGroupEnd") ? ncclSystemError : ncclSuccess;
    struct ncclComm *comm = grouped_count > 0 ? grouped[0].comm : NULL;

    if (group_depth == 0)
        return refuse(ncclInvalidUsage, "no group is open");
    if (--group_depth > 0)
        return result;
    for (int i = 0; result == ncclSuccess && i < grouped_count;) {
        if (grouped[i].signature.kind == POINT_TO_POINT)
            i += enqueue_points(i, &result);
        else
            result = enqueue(&grouped[i++], NULL, 0);
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
    number = atomic_fetch_add(&world->ids, 1);
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
        return refuse(ncclInvalidArgument, "this fake has few ranks, and is not blocking");
    comm = calloc(1, sizeof(*comm));
    if (!comm)
        return ncclSystemError;
    comm->references = 1;
    comm->rank = rank;
    comm->ranks = ranks;
    comm->meeting = &world->meeting[number];
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
    if (config.break_collective > 0 && comm->newest >= config.break_collective) {
        *state = refuse(ncclRemoteError, "a rank is gone");
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
    drop_comm(comm);
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
                                  ? refuse(ncclSystemError, "made to fail")
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
    ncclResult_t result = fake_cuda_fails("ncclCommAbort") ? refuse(ncclSystemError, "made to fail")
                                                           : ncclSuccess;

    while (config.abort_hangs)
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
                   : refuse(ncclUnhandledCudaError, "cudaMalloc");
}

static ncclResult_t mem_free(void *memory)
{
    ncclResult_t result =
            fake_cuda_fails("ncclMemFree") ? refuse(ncclSystemError, "made to fail") : ncclSuccess;

    return cudaFree(memory) == cudaSuccess ? result : refuse(ncclUnhandledCudaError, "cudaFree");
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
                                  ? refuse(ncclSystemError, "made to fail")
                                  : ncclSuccess;

    (void)handle;
    if (comm->registrations == 0)
        return refuse(ncclInvalidArgument, "nothing is registered");
    comm->registrations--;
    fake_cuda_handle(FAKE_REGISTRATION, -1);
    return result;
}

static ncclResult_t op_create(ncclRedOp_t *op, void *scalar, ncclDataType_t type,
                              ncclScalarResidence_t residence, ncclComm_t comm)
{
    BEGIN("ncclRedOpCreatePreMulSum");
    if (residence != ncclScalarHostImmediate)
        return refuse(ncclInvalidArgument, "this fake reads scalars of the host only");
    for (int i = 0; i < OPS_MAX; i++) {
        if (comm->op[i].live)
            continue;
        comm->op[i] = (struct reduction){true, load(scalar, type, 0)};
        fake_cuda_handle(FAKE_REDUCTION, 1);
        *op = (ncclRedOp_t)((int)ncclNumOps + i);
        return ncclSuccess;
    }
    return refuse(ncclInvalidUsage, "too many operators for this fake");
}

static ncclResult_t op_destroy(ncclRedOp_t op, ncclComm_t comm)
{
    ncclResult_t result = fake_cuda_fails("ncclRedOpDestroy")
                                  ? refuse(ncclSystemError, "made to fail")
                                  : ncclSuccess;

    if (op < ncclNumOps || !is_sum(comm, op))
        return refuse(ncclInvalidArgument, "an operator that is not there");
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

/* fake_nccl_work.h: the faked NCCL's collectives as work on a stream; fake_nccl.c has its calls. */
#ifndef DPB_FAKE_NCCL_WORK_H
#define DPB_FAKE_NCCL_WORK_H

#include <stdatomic.h>

#include "fake_nccl.h"

#define STAGED_BYTES ((size_t)64 << 20) /* of a rank's input */
#define COMMS_MAX    8
#define OPS_MAX      32

enum kind {
    ALL_REDUCE,
    REDUCE_SCATTER,
    ALL_GATHER,
    BROADCAST,
    REDUCE,
    POINT_TO_POINT /* all sends and receives of a group */
};

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

/* What fake_nccl_begin() gave this rank, and what has come of it. */
extern struct fake_nccl_rank {
    struct fake_nccl_world *world;
    struct fake_nccl_config config;
    int64_t collectives; /* that have come to their end */
} fake_nccl_rank;

/* `result`, with what ncclGetLastError() says of it. */
ncclResult_t fake_nccl_refuse(ncclResult_t result, const char *why);

size_t fake_nccl_type_bytes(ncclDataType_t type);
double fake_nccl_load(const void *from, ncclDataType_t type, int64_t index);

/* Elements of a call's input and output, and whether this rank has one. */
int64_t fake_nccl_elements_in(const struct call *call);
int64_t fake_nccl_elements_out(const struct call *call);
bool fake_nccl_gives(const struct call *call);
bool fake_nccl_takes(const struct call *call);

/* A call on its stream; `parts`, copied, are the sends and receives of a POINT_TO_POINT. It holds a
 * reference to the communicator until its stream lets go of it. */
ncclResult_t fake_nccl_enqueue(const struct call *call, const struct call *parts, int part_count);
/* One reference less. */
void fake_nccl_drop_comm(struct ncclComm *comm);

#endif

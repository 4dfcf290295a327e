/* nccl_private.h: what the files of comm "nccl" share: this rank's side of the communicator.
 *
 * Failures live in the rendezvous: the first one, of any rank, ends the communicator on all. */
#ifndef DPB_NCCL_PRIVATE_H
#define DPB_NCCL_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include <cuda_runtime_api.h>

#include "dpb_comm_nccl.h"
#include "nccl_ring.h"
#include "nccl_table.h"
#include "rendezvous.h"

#define DPB_NCCL_REQUESTS 1024 /* started and not yet waited for */
#define DPB_NCCL_BUFFERS  64
#define DPB_NCCL_OPS      16 /* scaled sums that are kept */
#define DPB_NCCL_SUBJECT  160
#define DPB_NCCL_WHY      512
#define DPB_NCCL_ABORT_NS ((int64_t)10 * 1000000000) /* most time that an abort gets */

/* What the ranks tell each other about their GPUs; without padding. */
struct dpb_nccl_identity {
    unsigned char uuid[16];
    int32_t domain, bus, slot; /* PCI */
    int32_t is_mig;
    char name[64];
    unsigned char machine[16]; /* its boot id; zeros: not known */
};

struct dpb_nccl_buffer {
    char *memory;
    size_t bytes;
    void *handle;   /* of its registration; NULL: none */
    bool from_nccl; /* ncclMemAlloc(), else cudaMalloc() */
};

/* A sum whose terms are multiplied by `scale`. */
struct dpb_nccl_op {
    float scale;
    enum dpb_dtype dtype;
    ncclRedOp_t op;
};

struct dpb_nccl_request {
    uint64_t number; /* 1, 2, ...; 0: never used */
    bool held;       /* start() gave it out, and wait() has not come */
    bool captured;   /* into a graph: its events tell nothing */
    struct dpb_coll coll;
    int64_t enqueued_ns, wire_bytes;
    cudaEvent_t begin, end;
};

/* Two moments, each on the host's clock and the GPU's. */
struct dpb_nccl_clock {
    cudaStream_t stream; /* nothing but anchors run on it */
    struct {
        cudaEvent_t event;
        int64_t host_ns;  /* 0: not set */
        int64_t error_ns; /* the host's time is right within +- this */
    } anchor[2];
    int newer; /* the index of the newer one */
};

#define DPB_NCCL_GATHER_BYTES 128 /* the most that a rank brings: a unique id */

struct dpb_nccl_comm {
    struct dpb_comm_base base; /* first */
    struct dpb_comm_nccl_options options;
    const struct dpb_nccl_table *nccl;
    int version; /* NCCL's */
    dpb_device *device;
    int cuda_device;
    int64_t timeout_ns, abort_timeout_ns;
    dpb_rendezvous *rendezvous;
    void *gathered; /* what all ranks brought to an exchange: DPB_NCCL_GATHER_BYTES of each */
    struct dpb_nccl_identity identity;

    /* Of whoever calls NCCL: one thread at a time. Before `lock`, when both are taken. */
    pthread_mutex_t call_lock;
    ncclComm_t comm; /* NULL: not open, or aborted */
    cudaStream_t stream;
    cudaEvent_t ready; /* what a collective waits for on the caller's stream */
    struct dpb_nccl_buffer buffer[DPB_NCCL_BUFFERS];
    int buffer_count;
    struct dpb_nccl_op op[DPB_NCCL_OPS];
    int op_count, op_next;
    void *staging; /* the input of all-to-all */
    size_t staging_bytes;
    struct dpb_nccl_clock clock;
    int64_t uneven; /* collectives whose shards are not equal */

    pthread_mutex_t lock; /* what follows */
    struct dpb_nccl_request request[DPB_NCCL_REQUESTS];
    uint64_t newest;    /* number of the newest request that is on the stream */
    uint64_t completed; /* and of the newest complete one: they complete in order */
    int64_t head_ns;    /* when the oldest one that is not complete became the oldest */
    struct dpb_nccl_ring ring;
    int64_t wire_bytes;
    int64_t wire_between_bytes; /* 0, or not known: NCCL's algorithms are its own */

    pthread_t watchdog;
    bool watchdog_runs;
    pthread_mutex_t stop_lock;
    pthread_cond_t stop_signal;
    bool stop;
    _Atomic bool abandoned; /* the abort did not end: nothing of CUDA may be touched any more */
};

static inline struct dpb_nccl_comm *dpb_nccl_of(dpb_comm *comm)
{
    return (struct dpb_nccl_comm *)comm;
}

/* ---- nccl_call.c: calls with deadlines ---- */

/* DPB_OK, or the failure of a call to cudart, told to all ranks. `subject`: "rank 2: barrier". */
dpb_status dpb_nccl_cuda(struct dpb_nccl_comm *comm, const char *subject, const char *call,
                         cudaError_t error);
#define DPB_NCCL_CUDA(comm, subject, call) DPB_TRY(dpb_nccl_cuda(comm, subject, #call, call))

/* After a call of NCCL that returned `result`: wait until NCCL is through with it (blocking = 0:
 * it works on in the background), with the communicator's deadline. Holds call_lock. */
dpb_status dpb_nccl_settle(struct dpb_nccl_comm *comm, const char *subject, const char *call,
                           ncclResult_t result);
/* The failure of a call of NCCL, told to all ranks. */
dpb_status dpb_nccl_failed(struct dpb_nccl_comm *comm, const char *subject, const char *call,
                           ncclResult_t result);

/* cudaEventQuery(), which leaves no "not ready" behind as the thread's last error. */
cudaError_t dpb_nccl_query(cudaEvent_t event);
/* Wait on the host for an event that no other rank has to do with. */
dpb_status dpb_nccl_host_wait(struct dpb_nccl_comm *comm, const char *subject, cudaEvent_t event);

/* Give the core away between two looks, the longer the more looks there were. */
void dpb_nccl_pause(int looks);

/* ---- nccl_identity.c: which GPU this is, and that no other rank has it ---- */
dpb_status dpb_nccl_identity_check(struct dpb_nccl_comm *comm);
bool dpb_nccl_same_gpu(const struct dpb_nccl_identity *a, const struct dpb_nccl_identity *b);
/* "GPU-01234567-89ab-cdef-0123-456789abcdef" */
void dpb_nccl_uuid_text(const unsigned char uuid[16], char text[48]);

/* ---- nccl_clock.c: events on the host's clock ---- */
dpb_status dpb_nccl_clock_open(struct dpb_nccl_comm *comm);
void dpb_nccl_clock_close(struct dpb_nccl_comm *comm);
/* Times of a complete collective. Holds call_lock. */
dpb_status dpb_nccl_clock_times(struct dpb_nccl_comm *comm, const struct dpb_nccl_request *request,
                                const char *subject, struct dpb_coll_times *times);

/* ---- nccl_buffer.c ---- */
dpb_status dpb_nccl_buffer_alloc(dpb_comm *comm, size_t bytes, void **buffer);
dpb_status dpb_nccl_buffer_free(dpb_comm *comm, void *buffer);
/* The buffer that holds [memory, memory + bytes), or NULL. */
const struct dpb_nccl_buffer *dpb_nccl_buffer_find(const struct dpb_nccl_comm *comm,
                                                   const void *memory, int64_t bytes);
/* Undo the registrations, while NCCL's communicator is there. */
dpb_status dpb_nccl_buffers_deregister(struct dpb_nccl_comm *comm, const char *subject);
/* Free the memory, when it is gone. */
void dpb_nccl_buffers_release(struct dpb_nccl_comm *comm);

/* ---- nccl_collective.c: a collective as calls of NCCL ---- */

/* Why it is not possible, or DPB_OK. */
dpb_status dpb_nccl_collective_check(const struct dpb_nccl_comm *comm, const struct dpb_coll *coll,
                                     char *why, size_t why_bytes);
/* Put it on the communicator's stream. Holds call_lock. */
dpb_status dpb_nccl_collective_enqueue(struct dpb_nccl_comm *comm, const struct dpb_coll *coll,
                                       const char *subject);
/* Bytes that this rank sends, as documented in dpb_comm_nccl.h. */
int64_t dpb_nccl_collective_wire_bytes(const struct dpb_nccl_comm *comm,
                                       const struct dpb_coll *coll);
void dpb_nccl_ops_release(struct dpb_nccl_comm *comm);
/* The bits of a scale as NCCL's scalar of that type; at most 8 bytes. */
void dpb_nccl_scalar(float scale, enum dpb_dtype dtype, void *scalar);

/* ---- nccl_request.c ---- */
dpb_status dpb_nccl_start(dpb_comm *comm, const struct dpb_coll *coll, dpb_stream *after,
                          dpb_request **request);
dpb_status dpb_nccl_test(dpb_comm *comm, dpb_request *request);
dpb_status dpb_nccl_wait(dpb_comm *comm, dpb_request *request, dpb_stream *stream,
                         struct dpb_coll_times *times);
/* Look which collectives have completed; no waiting. Takes `lock`. */
dpb_status dpb_nccl_advance(struct dpb_nccl_comm *comm);
/* Wait on the host until the collectives up to `number` are complete, or a failure. The watchdog
 * has the deadline. */
dpb_status dpb_nccl_drain(struct dpb_nccl_comm *comm, uint64_t number, const char *subject);
/* "rank 2: all-reduce #17 (bucket 3)" */
void dpb_nccl_subject(const struct dpb_nccl_comm *comm, const struct dpb_coll *coll,
                      uint64_t number, char text[DPB_NCCL_SUBJECT]);

/* ---- nccl_watchdog.c ---- */
dpb_status dpb_nccl_watchdog_start(struct dpb_nccl_comm *comm);
/* End the thread; after a failure it has aborted NCCL's communicator by then, or given up. */
void dpb_nccl_watchdog_stop(struct dpb_nccl_comm *comm);
/* Abort NCCL's communicator, with a deadline; sets `abandoned` when it does not end. */
void dpb_nccl_abort_now(struct dpb_nccl_comm *comm);

#endif

/* dpb_comm.h: the communication interface: collectives over ranks, started and waited for.
 *
 * Collectives run in the order in which they are started, the same on all ranks, in the background:
 * start() returns at once, test() and wait() tell when the result is there. Buffers come from
 * buffer_alloc(), which every rank calls in the same order with the same size, so that a backend
 * can share or register them; collectives work in place inside such a buffer.
 *
 * Every wait has a deadline: DPB_ERR_TIMEOUT and a message that names the rank, the collective and
 * the peers that did not come. */
#ifndef DPB_COMM_H
#define DPB_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dpb_device.h"
#include "dpb_json.h"
#include "dpb_options.h"
#include "dpb_status.h"
#include "dpb_types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DPB_COMM_OPS_VERSION     2
#define DPB_COMM_EXCHANGE_BYTES  4096 /* most bytes per rank in one exchange() */
#define DPB_COMM_RANKS_MAX       64   /* of the shared-memory backend, and of a segment */
#define DPB_COMM_WORLD_RANKS_MAX 4096 /* of any backend */
#define DPB_WIRE_UNKNOWN         (-1) /* bytes between nodes that a backend does not know */

/* identifier, text, numerator of the bus-bandwidth factor over P: busbw = algbw * f,
 * f = numerator(P) / P with P ranks, as nccl-tests defines it (doc/PERFORMANCE.md). S, the size
 * that algbw divides, is the whole buffer (for reduce-scatter and all-gather: P shards). */
#define DPB_COLL_MAP(X)                                                                            \
    X(DPB_COLL_ALL_REDUCE, "all-reduce", 2 * (ranks - 1))                                          \
    X(DPB_COLL_REDUCE_SCATTER, "reduce-scatter", (ranks - 1))                                      \
    X(DPB_COLL_ALL_GATHER, "all-gather", (ranks - 1))                                              \
    X(DPB_COLL_BROADCAST, "broadcast", ranks)                                                      \
    X(DPB_COLL_REDUCE, "reduce", ranks)                                                            \
    X(DPB_COLL_ALL_TO_ALL, "all-to-all", (ranks - 1))

enum dpb_coll_kind {
#define DPB_COLL_ENUM(name, text, numerator) name,
    DPB_COLL_MAP(DPB_COLL_ENUM)
#undef DPB_COLL_ENUM
    DPB_COLL_COUNT
};

const char *dpb_coll_text(enum dpb_coll_kind kind);

/* Does it sum (and use `scale`)? Does it use `root`? */
bool dpb_coll_reduces(enum dpb_coll_kind kind);
bool dpb_coll_has_root(enum dpb_coll_kind kind);

/* Bus-bandwidth factor; NaN with one rank for kinds whose factor is then 0 (there is no bus). */
double dpb_coll_busbw_factor(enum dpb_coll_kind kind, int ranks);

/* Elements of shard `rank` when `count` elements are split over `ranks`: ceil(count / ranks) each,
 * the last ones shorter or empty; nothing is padded. `first` gets the shard's first element. */
int64_t dpb_coll_shard(int64_t count, int ranks, int rank, int64_t *first);

struct dpb_coll {
    enum dpb_coll_kind kind;
    enum dpb_dtype dtype;
    void *buffer;  /* this rank's, inside a buffer_alloc() buffer, same offset on every rank */
    int64_t count; /* elements of the whole buffer, also for reduce-scatter and all-gather.
                      all-to-all: a multiple of the ranks; part i of rank r becomes part r of rank
                      i, in place */
    int root;      /* broadcast; reduce, which leaves the sum in root's buffer and anything in those
                      of the others */
    float scale;   /* reductions: each rank's contribution is multiplied by it before it is summed
                      (NCCL's PreMulSum, DDP's division by the world size); 1 for a plain sum */
    int tag;       /* for messages and traces: the bucket's number */
};

/* When one collective of this rank happened, dpb_clock_now_ns(). */
struct dpb_coll_times {
    int64_t start_ns;           /* the backend began to execute it */
    int64_t all_ready_ns;       /* the last rank was ready; start to here is waiting for peers */
    int64_t end_ns;             /* the result was there */
    int64_t wire_bytes;         /* bytes this rank sent; formulas: dpb_setup_wire_bytes() */
    int64_t wire_between_bytes; /* of them to ranks of other nodes (dpb_setup_wire_levels()), or
                                   DPB_WIRE_UNKNOWN */
};

struct dpb_comm_stats {
    int64_t collectives;
    int64_t wire_bytes;         /* sent by this rank, rank-local copies not counted */
    int64_t wire_between_bytes; /* of them to ranks of other nodes; DPB_WIRE_UNKNOWN from the first
                                   collective on of which that is not known */
    int64_t progress_cpu_ns;    /* CPU time of the progress thread */
    int64_t wakeups;            /* timed waits of the emulated link */
    int64_t wake_late_p50_ns;   /* how late they came back; 0 without wake-ups */
    int64_t wake_late_p99_ns;
    int64_t wake_late_max_ns;
    int64_t link_late; /* collectives whose real work outlasted the emulated wire time */
};

typedef struct dpb_comm dpb_comm;
typedef struct dpb_request dpb_request;

/* The launcher's rendezvous server (dpb_rendezvous_server.h), as its ranks reach it. */
struct dpb_comm_server {
    const char *address; /* "10.0.0.1:29400" */
    const char *token;   /* hexadecimal, a secret */
};

struct dpb_comm_config {
    int rank, size, local_rank, node;
    int ranks_per_node; /* ranks of a node are consecutive; 0: all ranks are on one node; -1: nodes
                           have different numbers of ranks */
    int segment_fd;     /* file descriptor of memory that all ranks of this machine share, made by
                           dpb_comm_segment_new(); -1 for backends that need none, and where ranks
                           are on several machines */
    const struct dpb_comm_server *server; /* where ranks of several machines meet; NULL: they are
                                             on one, and meet in the segment. Borrowed */
    int64_t timeout_ns;                   /* of every wait */
    dpb_device *device;  /* whose streams order collectives; NULL: the caller's thread does.
                            Borrowed; closed after the comm */
    const void *options; /* the backend's own option struct */
};

enum dpb_comm_flags {
    DPB_COMM_EMULATED = 1 << 0,  /* can emulate a link */
    DPB_COMM_SIMULATED = 1 << 1, /* virtual time */
    DPB_COMM_SEGMENT = 1 << 2,   /* needs config.segment_fd */
    /* Buffers are memory of config.device, which the host must not touch (dpb_device.h); needs a
     * device of DPB_DEVICE_ACCELERATOR. A backend without this flag moves host memory, and works
     * with devices that compute in it */
    DPB_COMM_DEVICE_MEMORY = 1 << 3
};

struct dpb_comm_ops {
    int version; /* DPB_COMM_OPS_VERSION */
    const char *name, *summary;
    unsigned flags;
    const struct dpb_option_table *options; /* optional: NULL */

    dpb_status (*probe)(char *why, size_t why_bytes); /* as dpb_device_ops.probe */

    /* Collective: returns when all ranks are there, or DPB_ERR_TIMEOUT naming the missing ones. */
    dpb_status (*open)(const struct dpb_comm_config *config, dpb_comm **comm);
    void (*close)(dpb_comm *comm);
    dpb_json *(*describe)(dpb_comm *comm); /* name, algorithm, link, emulated; caller owns */

    /* Collective. Zeroed, page-aligned, touched by every rank. */
    dpb_status (*buffer_alloc)(dpb_comm *comm, size_t bytes, void **buffer);
    /* Collective. Frees the newest buffer that is still there (a stack). */
    dpb_status (*buffer_free)(dpb_comm *comm, void *buffer);

    dpb_status (*barrier)(dpb_comm *comm);
    /* Gather `bytes` (at most DPB_COMM_EXCHANGE_BYTES) of every rank: all[r * bytes]. */
    dpb_status (*exchange)(dpb_comm *comm, const void *mine, size_t bytes, void *all);

    /* Start a collective. The buffer is read after everything launched on `after` so far (NULL:
     * now). The request is the backend's and valid until wait() has returned for it. */
    dpb_status (*start)(dpb_comm *comm, const struct dpb_coll *coll, dpb_stream *after,
                        dpb_request **request);
    /* DPB_OK when complete, DPB_PENDING when not, or the failure. */
    dpb_status (*test)(dpb_comm *comm, dpb_request *request);
    /* Later work on `stream` sees the result; a backend without streams, and stream NULL, block the
     * caller. `times` may be NULL; where nothing blocked and the result is not there yet its three
     * times are 0: not known. Afterwards the request is gone. */
    dpb_status (*wait)(dpb_comm *comm, dpb_request *request, dpb_stream *stream,
                       struct dpb_coll_times *times);
    /* This rank gives up: every rank's waits end with DPB_ERR_RANK_FAILED. Safe from any thread. */
    void (*abort)(dpb_comm *comm, const char *reason);
    void (*stats)(dpb_comm *comm, struct dpb_comm_stats *stats);

    /* optional: wire time of a collective on the emulated link, nanoseconds; -1 without a link */
    int64_t (*wire_ns)(dpb_comm *comm, enum dpb_coll_kind kind, int64_t bytes);

    /* optional: dpb_comm_run(), for backends that can do it in the caller's thread, faster */
    dpb_status (*run)(dpb_comm *comm, const struct dpb_coll *coll, struct dpb_coll_times *times);
};

struct dpb_comm_base {
    const struct dpb_comm_ops *ops;
    int rank, size, local_rank, node;
};

dpb_status dpb_comm_ops_check(const struct dpb_comm_ops *ops);

/* Run a collective, after all that were started, and return when the result is there: start() and
 * wait() in one, for a caller that has nothing else to do meanwhile. Ranks may mix both ways of
 * calling. `times` may be NULL. */
dpb_status dpb_comm_run(dpb_comm *comm, const struct dpb_coll *coll, struct dpb_coll_times *times);

static inline const struct dpb_comm_base *dpb_comm_get_base(const dpb_comm *comm)
{
    return (const struct dpb_comm_base *)comm;
}

/* The shared segment that backends with DPB_COMM_SEGMENT need: an anonymous memory file, inherited
 * by the ranks across fork and exec (not close-on-exec). The launcher makes it, and closes it. */
dpb_status dpb_comm_segment_new(int ranks, int *fd);

#ifdef __cplusplus
}
#endif
#endif

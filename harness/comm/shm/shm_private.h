/* shm_private.h: what the files of the shared-memory backend share: the layout of the segment, and
 * this rank's side of it.
 *
 * The segment: one control area, then the buffers, each a row of one region per rank. Nothing in it
 * is ever a pointer. A segment serves one communicator once. */
#ifndef DPB_SHM_PRIVATE_H
#define DPB_SHM_PRIVATE_H

#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>

#include "dpb_comm_shm.h"
#include "dpb_schedule.h"
#include "shm_histogram.h"
#include "shared_word.h"

#define DPB_SHM_REQUESTS 1024 /* started and not yet waited for */
#define DPB_SHM_BUFFERS  64
#define DPB_SHM_TEXT     512
#define DPB_SHM_EAGER    1024 /* most bytes of an all-reduce that goes with its terms */
#define DPB_SHM_FEW      16   /* and in the same line */

/* ---- in the segment ---- */

/* What all ranks must say alike about a collective; compared bytewise, so without padding. Fields
 * that a kind does not use are 0. */
struct dpb_shm_terms {
    int64_t count;
    int64_t offset; /* bytes from the buffer's start */
    int32_t kind, dtype, root, buffer;
    float scale;
    int32_t reserved; /* 0 */
};

/* One rank's part in a collective. Two per rank, used in turn: a rank reaches collective k + 2 only
 * after every rank has reached k + 1, hence finished reading about k. */
struct dpb_shm_slot {
    /* Of two ranks: the number of the collective, written last. Number, terms and a few values are
     * one line, so that one transfer between the cores brings all of them. */
    _Alignas(DPB_SHARED_LINE) _Atomic uint64_t number;
    struct dpb_shm_terms terms;
    unsigned char few[DPB_SHM_FEW];
    int64_t started_ns;                     /* start() was called: ready for the emulated link */
    int64_t arrived_ns;                     /* the progress thread came to it */
    int64_t taken_from[DPB_COMM_RANKS_MAX]; /* bytes that this rank read from each rank */
    _Alignas(
            DPB_SHARED_LINE) unsigned char eager[DPB_SHM_EAGER]; /* its values, when they are few */
};

_Static_assert(offsetof(struct dpb_shm_slot, started_ns) == DPB_SHARED_LINE, "one line");

/* Calls that the ranks' main threads make together; two per rank, in turn, as above. */
enum dpb_shm_call_kind {
    DPB_SHM_CALL_OPEN,
    DPB_SHM_CALL_BARRIER,
    DPB_SHM_CALL_EXCHANGE,
    DPB_SHM_CALL_BUFFER_ALLOC,
    DPB_SHM_CALL_BUFFER_FREE,
    DPB_SHM_CALL_COUNT
};

struct dpb_shm_call {
    uint32_t kind; /* enum dpb_shm_call_kind */
    uint32_t bytes;
    _Alignas(16) unsigned char data[DPB_COMM_EXCHANGE_BYTES];
};

/* Which of a rank's counters tells how far it is. */
enum dpb_shm_progress {
    DPB_SHM_READY,
    DPB_SHM_DONE,
    DPB_SHM_CALLED,
    DPB_SHM_PROGRESS_COUNT
};

struct dpb_shm_rank {
    _Alignas(DPB_SHARED_LINE) _Atomic int32_t pid;
    /* How far this rank is: the newest collective it is ready for, it is done with, and the newest
     * call of its main thread. What the messages about missing ranks are made from. */
    _Atomic uint64_t ready, done, called;
    /* Of two ranks: how often this one has met the other, by enum dpb_shm_progress. Each waits for
     * the other's word, which is one transfer between their cores where the barriers need three. */
    struct dpb_shared_word met[DPB_SHM_PROGRESS_COUNT];
    struct dpb_shared_word ticks; /* two for each round of a schedule, over all collectives */
    struct dpb_shm_slot slot[2];
    struct dpb_shm_call call[2];
};

struct dpb_shm_control {
    _Atomic int32_t size;
    _Atomic uint64_t closed; /* bit r: rank r has closed its communicator */
    struct dpb_shared_barrier ready, done, call;
    /* The first failure of any rank. Written by the rank that claimed it, there when `failed` is
     * poisoned, after which every other word above and in the ranks is poisoned. */
    _Atomic uint32_t failure_claimed;
    int32_t failure_status;
    char failure_text[DPB_SHM_TEXT]; /* names the rank that writes it */
    struct dpb_shared_word failed;
    struct dpb_shm_rank rank[DPB_COMM_RANKS_MAX];
};

/* ---- this rank's side ---- */

/* What a thread does before it sleeps. */
struct dpb_shm_patience {
    int spins;       /* pause instructions */
    int alone_spins; /* instead, where ranks of the same core are known and none is behind */
    int yields;      /* offers of the core to other threads */
};

struct dpb_shm_buffer {
    char *row;             /* one region per rank */
    size_t distance_bytes; /* from one to the next, at least region_bytes */
    size_t region_bytes;   /* whole pages for `bytes` */
    size_t bytes;
    int64_t file_offset;
};

static inline char *dpb_shm_region(const struct dpb_shm_buffer *buffer, int rank)
{
    return buffer->row + (size_t)rank * buffer->distance_bytes;
}

enum dpb_shm_request_state {
    DPB_SHM_REQUEST_FREE,
    DPB_SHM_REQUEST_STARTED
};

struct dpb_shm_request {
    _Atomic int state; /* enum dpb_shm_request_state */
    uint64_t number;   /* 1, 2, ... */
    struct dpb_coll coll;
    int buffer_index;
    struct dpb_shm_buffer buffer;
    int64_t offset; /* bytes from the buffer's start */
    bool timed;     /* somebody wants its times */
    int64_t started_ns;
    struct dpb_coll_times times;
};

struct dpb_shm_comm {
    struct dpb_comm_base base; /* first */
    struct dpb_comm_shm_options options;
    struct dpb_algorithm_setup setup;
    int64_t timeout_ns;
    int fd;
    struct dpb_shm_control *control;
    size_t control_bytes;
    struct dpb_shm_rank *self;
    struct dpb_shm_patience patience; /* of who executes */
    /* The progress thread's and the calls': no spins with a link, or when ranks share cores; and
     * that of a rank that runs a collective itself. */
    struct dpb_shm_patience background, blocking;
    uint64_t neighbours; /* bit r: rank r has the same core as this rank, and no other */
    uint64_t calls;

    pthread_mutex_t start_lock; /* the requests' ring and the buffers */
    struct dpb_shm_buffer buffer[DPB_SHM_BUFFERS];
    int buffer_count;
    int64_t file_end;
    uint64_t newest;                  /* number of the newest request */
    struct dpb_shared_word queued;    /* how many were left to the progress thread */
    uint64_t queue[DPB_SHM_REQUESTS]; /* their numbers, the k-th at k modulo the length */
    struct dpb_shared_word completed; /* number of the newest complete request */
    struct dpb_shm_request request[DPB_SHM_REQUESTS];

    pthread_t thread;
    bool thread_runs;             /* never with progress none */
    pthread_mutex_t execute_lock; /* progress none: of who executes what is queued */

    /* of who executes: the progress thread, or run() while nothing is left to it */
    uint64_t done_meetings; /* of kind DPB_SHM_DONE: eager collectives have none */
    uint64_t ticks_base;    /* `ticks` of every rank before the present collective */
    int64_t link_free_ns;   /* when the emulated link is free again, the same on all ranks */

    pthread_mutex_t fail_lock;
    _Atomic int failure; /* a dpb_status, DPB_OK while all is well */

    _Atomic int64_t collectives, wire_bytes, wire_between_bytes, link_late;
    struct dpb_shm_histogram lateness;
};

static inline struct dpb_shm_comm *dpb_shm_of(dpb_comm *comm)
{
    return (struct dpb_shm_comm *)comm;
}

static inline struct dpb_shm_slot *dpb_shm_slot_of(struct dpb_shm_comm *comm, int rank,
                                                   uint64_t number)
{
    return &comm->control->rank[rank].slot[number & 1];
}

/* What a rank is waiting for, for messages. */
struct dpb_shm_subject {
    const char *name;    /* "all-reduce", "barrier" */
    const char *counted; /* what `number` counts: "collective" or "call" */
    uint64_t number;
    int tag; /* bucket; -1: none */
};

/* ---- shm_fail.c: failures, told once and to all ---- */

/* Record a failure, here and for every rank, unless one is recorded already; log it once in this
 * process. Returns the status that counts: that of the first failure. */
dpb_status dpb_shm_fail(struct dpb_shm_comm *comm, dpb_status st, const char *hint,
                        const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Take over the failure that another rank recorded, met in `subject`. */
dpb_status dpb_shm_adopt(struct dpb_shm_comm *comm, const struct dpb_shm_subject *subject);

/* DPB_OK, or the failure that ended this communicator, wherever it happened. */
dpb_status dpb_shm_check(struct dpb_shm_comm *comm, const struct dpb_shm_subject *subject);

/* "rank 2: all-reduce #17 (bucket 3)", "rank 2: barrier #5" */
void dpb_shm_subject_text(const struct dpb_shm_comm *comm, const struct dpb_shm_subject *subject,
                          char *text, size_t text_bytes);

/* ---- shm_meet.c: waiting for peers, with a deadline ---- */

#define DPB_SHM_LAZY 0 /* a deadline: the time-out from when the thread falls asleep */

/* Arrive at meeting number `meeting` of that kind and wait for all ranks. */
dpb_status dpb_shm_meet(struct dpb_shm_comm *comm, enum dpb_shm_progress progress, uint64_t meeting,
                        const struct dpb_shm_subject *subject, int64_t deadline_ns);

/* Wait until `peer` has done `ticks` ticks of the present collective, of which `schedule` is this
 * rank's. */
dpb_status dpb_shm_follow(struct dpb_shm_comm *comm, int peer, uint64_t ticks,
                          const struct dpb_schedule *schedule,
                          const struct dpb_shm_subject *subject, int64_t deadline_ns);

/* ---- shm_call.c: what the main threads do together ---- */

/* Barrier and, with `bytes`, gathering: the data of rank r is at dpb_shm_call_data() until this
 * rank's next call but one. All ranks must call with the same kind and bytes. */
dpb_status dpb_shm_call_all(struct dpb_shm_comm *comm, enum dpb_shm_call_kind kind,
                            const void *mine, size_t bytes);
const void *dpb_shm_call_data(const struct dpb_shm_comm *comm, int rank);

dpb_status dpb_shm_barrier_call(dpb_comm *comm);
dpb_status dpb_shm_exchange(dpb_comm *comm, const void *mine, size_t bytes, void *all);

/* ---- shm_buffer.c ---- */
dpb_status dpb_shm_buffer_alloc(dpb_comm *comm, size_t bytes, void **buffer);
dpb_status dpb_shm_buffer_free(dpb_comm *comm, void *buffer);
/* The index of the buffer that holds [memory, memory + bytes) of this rank; -1 when none does. */
int dpb_shm_buffer_find(const struct dpb_shm_comm *comm, const void *memory, int64_t bytes);
/* Write-map [memory, memory + bytes) now, so that using it later takes no page fault. Changes
 * nothing in it, also while peers write. */
void dpb_shm_populate(void *memory, size_t bytes);
void dpb_shm_buffers_unmap(struct dpb_shm_comm *comm);

/* ---- shm_request.c ---- */
dpb_status dpb_shm_start(dpb_comm *comm, const struct dpb_coll *coll, dpb_stream *after,
                         dpb_request **request);
dpb_status dpb_shm_test(dpb_comm *comm, dpb_request *request);
dpb_status dpb_shm_wait(dpb_comm *comm, dpb_request *request, dpb_stream *stream,
                        struct dpb_coll_times *times);
dpb_status dpb_shm_run(dpb_comm *comm, const struct dpb_coll *coll, struct dpb_coll_times *times);

/* ---- shm_algorithm.c: moving and summing the data, once all ranks are ready ---- */

/* Run the request by the communicator's algorithm. When this returns DPB_OK, peers may still be
 * reading this rank's buffer. Notes in the rank's slot what it took from whom; `pushed_bytes` gets
 * what it wrote into peers' buffers. */
dpb_status dpb_shm_execute(struct dpb_shm_comm *comm, const struct dpb_shm_request *request,
                           const struct dpb_shm_subject *subject, int64_t deadline_ns,
                           int64_t *pushed_bytes);

/* ---- shm_progress.c: the thread that executes what was started ---- */
dpb_status dpb_shm_progress_start(struct dpb_shm_comm *comm);
/* One collective, from meeting the other ranks to the emulated link; fills request->times. */
dpb_status dpb_shm_progress_run(struct dpb_shm_comm *comm, struct dpb_shm_request *request);
/* Progress none: execute here what is queued, in order, up to request `number`. */
dpb_status dpb_shm_progress_drain(struct dpb_shm_comm *comm, uint64_t number);
/* Finish what was started, then end the thread. */
void dpb_shm_progress_stop(struct dpb_shm_comm *comm);

#endif

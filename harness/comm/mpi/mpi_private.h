/* mpi_private.h: the communicator, and who does what in it.
 *
 * mpi_world.c starts and ends MPI in the process; comm_mpi.c opens and closes; mpi_note.c polls,
 * keeps deadlines, and tells failures; mpi_terms.c compares what ranks start; mpi_call.c is
 * barrier, exchange and buffers; mpi_request.c the queue and the progress thread; mpi_collective.c
 * what a collective is in MPI's calls; mpi_schedule.c our own algorithms.
 *
 * Locks, in this order: execute_lock (who executes collectives), state_lock (queue, completion,
 * failure), dpb_mpi_lock. */
#ifndef DPB_MPI_PRIVATE_H
#define DPB_MPI_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <mpi.h>

#include "dpb_comm_mpi.h"

#define DPB_MPI_TEXT       512
#define DPB_MPI_REQUESTS   1024 /* collectives at a time */
#define DPB_MPI_BUFFERS    64
#define DPB_MPI_STEP_BYTES (1 << 19) /* of a message in a schedule: pieces follow one another, */
#define DPB_MPI_WINDOW     8         /* as many at a time */
#define DPB_MPI_HOST_BYTES 256
#define DPB_MPI_ANSWER_NS  INT64_C(5000000000) /* for others to say how far they are */
#define DPB_MPI_GRACE_NS   INT64_C(2000000000) /* for others to hear of a failure */
#define DPB_MPI_LIVING_NS  INT64_C(5000000000) /* the same, for those that are known to live */
#define DPB_MPI_IDLE_NS    INT64_C(20000000)   /* between looks of an idle progress thread */

/* What a rank has begun: all ranks must mean the same. */
struct dpb_mpi_terms {
    uint64_t number; /* 1, 2, ...; 0: nothing yet */
    int64_t count;   /* elements; calls: bytes */
    int32_t kind;    /* enum dpb_coll_kind; calls: enum dpb_mpi_call */
    int32_t dtype;   /* enum dpb_dtype; calls: 0 */
    int32_t root;
    float scale;
};

enum dpb_mpi_call {
    DPB_MPI_BARRIER,
    DPB_MPI_EXCHANGE,
    DPB_MPI_BUFFER_ALLOC,
    DPB_MPI_BUFFER_FREE,
    DPB_MPI_CALL_COUNT
};

/* Collectives and calls are numbered, and compared, each for themselves. */
enum dpb_mpi_sequence {
    DPB_MPI_COLLECTIVES,
    DPB_MPI_CALLS,
    DPB_MPI_SEQUENCES
};

/* The newest of a sequence: sent to the next rank, received from the one before. */
struct dpb_mpi_match {
    struct dpb_mpi_terms mine, theirs;
    MPI_Request request[2]; /* send, receive */
    bool is_compared;
};

enum dpb_mpi_note_kind {
    DPB_MPI_ASK,    /* how far are you? */
    DPB_MPI_ANSWER, /* so far */
    DPB_MPI_FAILED, /* the communicator has failed: status, text */
    DPB_MPI_CLOSED, /* nothing will come after `started` and `calls` */
    DPB_MPI_NOTE_COUNT
};

struct dpb_mpi_note {
    int32_t kind, status;
    uint64_t question; /* its number, of those that this rank has asked; an answer repeats it */
    uint64_t moved;    /* messages and calls of MPI that have ended */
    struct dpb_mpi_terms begun[DPB_MPI_SEQUENCES];
    char text[DPB_MPI_TEXT];
};

/* What another rank has told. */
struct dpb_mpi_peer {
    bool closed;
    uint64_t answered; /* the newest question */
    uint64_t moved;
    int64_t heard_ns; /* when */
    struct dpb_mpi_terms begun[DPB_MPI_SEQUENCES];
};

/* A note on its way to a rank. */
struct dpb_mpi_letter {
    struct dpb_mpi_note note;
    MPI_Request request;
};

enum dpb_mpi_request_state {
    DPB_MPI_REQUEST_FREE,
    DPB_MPI_REQUEST_STARTED
};

struct dpb_mpi_request {
    uint64_t number; /* 1, 2, ... in the order of start() */
    struct dpb_coll coll;
    struct dpb_coll_times times;
    enum dpb_mpi_request_state state;
};

struct dpb_mpi_buffer {
    char *data;
    size_t bytes;
};

struct dpb_mpi_comm {
    struct dpb_comm_base base;
    struct dpb_comm_mpi_options options;
    struct dpb_algorithm_setup setup; /* "library": of direct */
    int64_t timeout_ns;
    int64_t answer_ns, living_ns;     /* DPB_MPI_ANSWER_NS, DPB_MPI_LIVING_NS; less in tests */
    int64_t piece_bytes, step_bytes;  /* at most, of a call of the library; of a message */
    char (*host)[DPB_MPI_HOST_BYTES]; /* of each rank */

    MPI_Comm data, meet, notes; /* collectives; calls of all ranks; notes */
    MPI_Op sum[DPB_DTYPE_COUNT];
    struct dpb_mpi_note received; /* by note_request, which is always posted */
    MPI_Request note_request;
    struct dpb_mpi_letter *letter[DPB_MPI_NOTE_COUNT]; /* one of each kind to each rank */
    struct dpb_mpi_peer *peer;
    uint64_t question;
    struct dpb_mpi_match match[DPB_MPI_SEQUENCES];
    bool heard; /* a failure of another rank, which is not this rank's yet */
    struct dpb_mpi_note news;

    pthread_mutex_t state_lock;
    pthread_cond_t changed;
    uint64_t newest, completed;
    struct dpb_mpi_request request[DPB_MPI_REQUESTS];
    bool stopping;
    _Atomic int failure; /* dpb_status */
    int64_t failed_ns;
    _Atomic int64_t looked_ns; /* at notes */
    char failure_text[DPB_MPI_TEXT];

    pthread_mutex_t execute_lock;
    _Atomic uint64_t calls, moved;
    _Atomic int64_t collectives, wire_bytes, wire_between_bytes;
    pthread_t thread;
    bool thread_runs;
    char *scratch[DPB_MPI_WINDOW]; /* pieces of schedules that are received to be summed */
    int *counts, *firsts;          /* shards, for MPI */
    struct dpb_mpi_buffer buffer[DPB_MPI_BUFFERS];
    int buffer_count;
};

static inline struct dpb_mpi_comm *dpb_mpi_of(dpb_comm *comm)
{
    return (struct dpb_mpi_comm *)comm;
}

/* What is waited for: "rank 2: all-reduce #16 (bucket 3)". */
struct dpb_mpi_subject {
    const char *name;
    enum dpb_mpi_sequence sequence;
    uint64_t number;
    int tag; /* -1: none */
};

/* ---- mpi_world.c ---- */

/* Start MPI unless it has been, within the time-out; its threads must do for the comm. */
dpb_status dpb_mpi_world_start(const struct dpb_comm_config *config, bool has_thread);
/* Communicators that are open, or have failed and cannot be freed: exit() then ends MPI by force,
 * with the exit code of `st`. */
void dpb_mpi_world_opened(void);
void dpb_mpi_world_closed(void);
void dpb_mpi_world_broke(struct dpb_mpi_comm *comm, dpb_status st);

/* ---- mpi_note.c ---- */
dpb_status dpb_mpi_notes_open(struct dpb_mpi_comm *comm);
void dpb_mpi_notes_close(struct dpb_mpi_comm *comm);
/* Read what came, answer questions; the failure that ended the communicator, or DPB_OK. */
dpb_status dpb_mpi_look(struct dpb_mpi_comm *comm);
void dpb_mpi_tell(struct dpb_mpi_comm *comm, enum dpb_mpi_note_kind kind);
/* Has every other rank closed? */
bool dpb_mpi_all_closed(struct dpb_mpi_comm *comm);
/* Record a failure unless there is one, log it, tell the other ranks; the one that counts. */
dpb_status dpb_mpi_fail(struct dpb_mpi_comm *comm, dpb_status st, const char *hint,
                        const char *format, ...) __attribute__((format(printf, 4, 5)));
/* MPI's `code` as a failure, DPB_OK when it is none; `what` is the call's name. */
dpb_status dpb_mpi_check(struct dpb_mpi_comm *comm, const struct dpb_mpi_subject *subject,
                         const char *what, int code);
void dpb_mpi_subject_text(const struct dpb_mpi_comm *comm, const struct dpb_mpi_subject *subject,
                          char *text, size_t text_bytes);
/* Poll until all requests are complete, a rank has failed, or the time-out is over without a sign
 * of any rank's progress. */
dpb_status dpb_mpi_await(struct dpb_mpi_comm *comm, MPI_Request *requests, int count,
                         const struct dpb_mpi_subject *subject);
void dpb_mpi_nap(unsigned polls);
/* "rank 3 (node-b)", "ranks 0 (node-a), 2 (node-b) and 3 (node-b)": those that are set in `who`. */
struct dpb_str;
void dpb_mpi_append_ranks(const struct dpb_mpi_comm *comm, struct dpb_str *text, const bool *who);
/* Ask all others how far they are, and wait for their answers, or for a failure of theirs; the
 * question's number. */
uint64_t dpb_mpi_ask_all(struct dpb_mpi_comm *comm);

/* One thread of the process in MPI, never longer than one call that does not block: of whichever
 * comm, since one that failed keeps its thread while the next is opened. */
extern pthread_mutex_t dpb_mpi_lock;

/* The value of a call of MPI that does not block, made alone. */
#define DPB_MPI_ALONE(call)                                                                        \
    ({                                                                                             \
        pthread_mutex_lock(&dpb_mpi_lock);                                                         \
        int code_ = (call);                                                                        \
        pthread_mutex_unlock(&dpb_mpi_lock);                                                       \
        code_;                                                                                     \
    })

/* A failure of the call ends the comm. */
#define DPB_MPI_CALL(comm, subject, function, ...)                                                 \
    dpb_mpi_check((comm), (subject), #function, DPB_MPI_ALONE(function(__VA_ARGS__)))

/* ---- mpi_terms.c ---- */

const char *dpb_mpi_call_text(enum dpb_mpi_call call);
/* This rank begins what `terms` say: tell the next one. */
dpb_status dpb_mpi_terms_begin(struct dpb_mpi_comm *comm, const struct dpb_mpi_subject *subject,
                               const struct dpb_mpi_terms *terms);
/* Does the rank before mean the same, as far as it has told? */
dpb_status dpb_mpi_terms_check(struct dpb_mpi_comm *comm, const struct dpb_mpi_subject *subject);
/* The same, when it has. Around the ring, this compares all ranks. */
dpb_status dpb_mpi_terms_end(struct dpb_mpi_comm *comm, const struct dpb_mpi_subject *subject);
/* DPB_ERR_MISMATCH where other ranks' answers say that they have begun something else under the
 * same number; DPB_OK where this is not known. */
dpb_status dpb_mpi_terms_ask(struct dpb_mpi_comm *comm, const struct dpb_mpi_subject *subject);

/* ---- mpi_call.c ---- */
dpb_status dpb_mpi_barrier(dpb_comm *comm);
dpb_status dpb_mpi_exchange(dpb_comm *comm, const void *mine, size_t bytes, void *all);
dpb_status dpb_mpi_buffer_alloc(dpb_comm *comm, size_t bytes, void **buffer);
dpb_status dpb_mpi_buffer_free(dpb_comm *comm, void *buffer);
bool dpb_mpi_buffer_has(const struct dpb_mpi_comm *comm, const void *at, int64_t bytes);
void dpb_mpi_buffers_free(struct dpb_mpi_comm *comm);

/* ---- mpi_request.c ---- */
dpb_status dpb_mpi_progress_start(struct dpb_mpi_comm *comm);
void dpb_mpi_progress_stop(struct dpb_mpi_comm *comm);
dpb_status dpb_mpi_start(dpb_comm *comm, const struct dpb_coll *coll, dpb_stream *after,
                         dpb_request **request);
dpb_status dpb_mpi_test(dpb_comm *comm, dpb_request *request);
dpb_status dpb_mpi_wait(dpb_comm *comm, dpb_request *request, dpb_stream *stream,
                        struct dpb_coll_times *times);

/* ---- mpi_collective.c, mpi_schedule.c: `wire_bytes` are those that this rank sent ---- */
dpb_status dpb_mpi_sums_new(struct dpb_mpi_comm *comm);
void dpb_mpi_sums_free(struct dpb_mpi_comm *comm);
MPI_Datatype dpb_mpi_type(enum dpb_dtype dtype);
dpb_status dpb_mpi_execute(struct dpb_mpi_comm *comm, const struct dpb_coll *coll,
                           const struct dpb_mpi_subject *subject, int64_t *wire_bytes);
dpb_status dpb_mpi_run_schedule(struct dpb_mpi_comm *comm, const struct dpb_coll *coll,
                                const struct dpb_mpi_subject *subject, int64_t *wire_bytes);
/* All-to-all, pair by pair. */
dpb_status dpb_mpi_run_pairs(struct dpb_mpi_comm *comm, const struct dpb_coll *coll,
                             const struct dpb_mpi_subject *subject, int64_t *wire_bytes);

#endif

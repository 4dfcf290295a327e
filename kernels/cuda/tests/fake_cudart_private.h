/* fake_cudart_private.h: what the files of the faked runtime share. All of it is called with the
 * lock held, unless said. */
#ifndef DPB_FAKE_CUDART_PRIVATE_H
#define DPB_FAKE_CUDART_PRIVATE_H

#include "fake_cudart.h"

struct set {
    int *item;
    int count;
};

/* Work with a count of who may still run it. */
struct work {
    int references;
    struct fake_cuda_work work;
};

/* A point in a stream's order, made by one cudaEventRecord(). */
struct moment {
    int references;
    bool done;
    int64_t time_ns;
    uint64_t capture; /* recorded while this capture was made; 0: not captured */
    struct set nodes; /* then: what it comes after */
};

/* What a graph is made of; graphs, executables and launches share it. */
struct nodes {
    int references;
    int count, room;
    struct node {
        struct work *work;
        struct set after;
    } * node;
};

enum op_kind {
    OP_WORK,
    OP_RECORD,
    OP_WAIT,
    OP_GRAPH
};

struct op {
    struct op *next;
    enum op_kind kind;
    struct work *work;
    struct moment *moment;
    struct nodes *nodes; /* OP_GRAPH */
    bool *node_done;
    int nodes_left;
};

struct CUstream_st {
    struct CUstream_st *next;
    struct op *head, *tail;
    int priority;
    bool blocking; /* ordered with the legacy stream */
    bool tried;    /* its head could not go on since anything else did */
    uint64_t capture;
    struct set after; /* while captured: what the next node comes after */
};

struct CUevent_st {
    struct CUevent_st *next;
    unsigned flags;
    struct moment *moment; /* of the last record; NULL: none */
};

struct fake_cuda {
    struct fake_cuda_config config;
    struct CUstream_st *streams; /* the legacy stream is always there, last */
    struct CUevent_st *events;
    enum fake_cuda_plant plant;
    int64_t plant_call;
    int64_t calls, plant_calls[FAKE_PLANT_COUNT], live[FAKE_HANDLE_COUNT];
    const char *failed_call;
    uint64_t random;
    int64_t last_call_ns;
    int policy;
};

extern struct fake_cuda fake;

void fake_lock(void);
void fake_unlock(void);

/* Count a call with the lock held; also keeps cudaGetLastError(). */
cudaError_t fake_call(const char *name);
cudaError_t fake_result(cudaError_t error);
bool fake_planted(enum fake_cuda_plant plant);
int64_t fake_now_ns(void);

/* ---- memory ---- */
enum fake_place {
    FAKE_PAGEABLE,
    FAKE_PINNED,
    FAKE_DEVICE
};

void fake_memory_reset(void);
/* Where it is; ends the process when it begins in device or pinned memory and ends elsewhere, or
 * has been freed. */
enum fake_place fake_memory_place(const char *what, const void *memory, size_t bytes);
/* Nests. */
void fake_memory_open(void);
void fake_memory_close(void);

/* ---- streams ---- */
struct CUstream_st *fake_stream(cudaStream_t stream); /* NULL: there is none such */
void fake_streams_reset(void);
/* Let the device work until `stream` (NULL: every stream) has nothing left. Gives the lock up while
 * it has to wait for other ranks. */
void fake_drain(struct CUstream_st *stream, const char *call);
/* Let the device do at most `count` pieces of work, whatever they are. */
void fake_drift(int count);
struct op *fake_append(struct CUstream_st *stream, enum op_kind kind);

struct work *fake_work_new(const struct fake_cuda_work *work);
void fake_work_release(struct work *work);
void fake_moment_release(struct moment *moment);
void fake_set_add(struct set *set, int item);
void fake_set_copy(struct set *to, const struct set *from);
void fake_set_clear(struct set *set);

/* ---- graphs ---- */
void fake_nodes_release(struct nodes *nodes);
void fake_graphs_reset(void);
/* Append work to the capture that `stream` is in. */
cudaError_t fake_capture_work(struct CUstream_st *stream, const struct fake_cuda_work *work);
/* `stream` waits for a captured moment, and joins the capture. */
cudaError_t fake_capture_join(struct CUstream_st *stream, const struct moment *moment);
/* The calling thread makes a capture that does not allow what may wait or allocate: it is spoilt,
 * and the call fails. Relaxed captures allow it. */
cudaError_t fake_capture_spoils(void);
void fake_capture_spoil(uint64_t capture);

#endif

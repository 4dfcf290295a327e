/* fake_cudart.h: the CUDA runtime for tests without a GPU, linked in place of cudart.
 *
 * Host code is compiled unchanged against cuda_runtime_api.h. Streams are queues. What is in them
 * runs late, while the host waits for it or asks, one piece at a time, in an order that a seed
 * gives and that honours nothing but stream order, events and collectives. Device memory is
 * PROT_NONE except while such work runs, is never given out twice, and holds NaNs when it is new.
 *
 * A process has one runtime. Ranks are processes: fork first, then fake_cuda_begin() in each.
 *
 * This shows that the host orders its work and handles errors. It says nothing of CUDA itself, of
 * kernels on hardware, or of time. */
#ifndef DPB_FAKE_CUDART_H
#define DPB_FAKE_CUDART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How a process ends that did what would be undefined, or would never end. */
#define FAKE_EXIT_FAULT  90 /* touched memory it must not touch: text on stderr */
#define FAKE_EXIT_HANG   91 /* waited for work that cannot go on */
#define FAKE_EXIT_MISUSE 92 /* gave a call what it does not take */

/* Calls that do nothing, yet say that they have: waits that somebody forgot. */
enum fake_cuda_plant {
    FAKE_PLANT_NONE,
    FAKE_PLANT_COMPUTE_WAIT, /* cudaStreamWaitEvent() of a stream of the lowest priority */
    FAKE_PLANT_COMM_WAIT,    /* the same of a stream of higher priority */
    FAKE_PLANT_RECORD,       /* cudaEventRecord() */
    FAKE_PLANT_STREAM_SYNC,  /* cudaStreamSynchronize(), cudaDeviceSynchronize() */
    FAKE_PLANT_EVENT_SYNC,   /* cudaEventSynchronize(), and cudaEventQuery() says "done" */
    FAKE_PLANT_COPY_SYNC,    /* the wait inside a copy to pageable host memory */
    FAKE_PLANT_COUNT
};

const char *fake_cuda_plant_text(enum fake_cuda_plant plant);

struct fake_cuda_config {
    uint64_t seed;       /* of the order of work; ranks take the same */
    int rank;            /* mixed into the order */
    int devices;         /* 0: 1 */
    size_t memory_bytes; /* of a device; 0: 1 GiB */
    int driver_version;  /* 0: that of the headers */
    int64_t fail_call;   /* number of the call, from 1, that fails without effect; 0: none. What
                            destroys does so and fails then */
    int hang_s;          /* a wait without progress for so long ends the process; 0: 20 */
};

/* Handles and memory that somebody has to give back. */
enum fake_cuda_handle {
    FAKE_STREAM,
    FAKE_EVENT,
    FAKE_DEVICE_MEMORY,
    FAKE_HOST_MEMORY,
    FAKE_GRAPH,
    FAKE_GRAPH_EXEC,
    /* of the libraries that are faked on top */
    FAKE_CUBLASLT,
    FAKE_CUDNN,
    FAKE_COMMUNICATOR,
    FAKE_REDUCTION,
    FAKE_REGISTRATION,
    FAKE_HANDLE_COUNT
};

/* Begin anew; everything of before is forgotten, also what leaked. */
void fake_cuda_begin(const struct fake_cuda_config *config);
/* Run what is still queued, and stop the thread that fake_cuda_begin() started. */
void fake_cuda_end(void);

int64_t fake_cuda_calls(void);           /* since the beginning; of the libraries on top, too */
const char *fake_cuda_failed_call(void); /* name of the call that was made to fail, or NULL */
/* From now on the call number `call` of these, from 1, is planted; 0: all of them. */
void fake_cuda_set_plant(enum fake_cuda_plant plant, int64_t call);
/* How many could have been, since the beginning or fake_cuda_set_plant(). */
int64_t fake_cuda_plant_calls(enum fake_cuda_plant plant);
/* Number of handles that are alive, with their names: "2 streams, 1 event". `text` may be NULL. */
int64_t fake_cuda_leaks(char *text, size_t text_bytes);

/* Bytes of device memory that are taken now, and, where `peak` is given, the most that ever were
 * since the beginning. */
int64_t fake_cuda_device_bytes(int64_t *peak);

/* ---- for fakes of libraries on top, and for kernels ---- */

/* Count a call. True: it has to fail. */
bool fake_cuda_fails(const char *call);
/* One handle more, or (-1) less. */
void fake_cuda_handle(enum fake_cuda_handle kind, int change);

/* Work on a stream. run() returns true when it is done; false: it cannot go on yet, and is called
 * again. It runs with device memory in reach, one piece of work at a time, and again from the
 * beginning where a graph is launched again. release() (or NULL) frees `context`, after the last
 * run. */
struct fake_cuda_work {
    const char *name; /* static; graphs compare it on update */
    bool (*run)(void *context);
    void (*release)(void *context);
    void *context;
};

/* At the end of a stream, or of a graph that it is captured to. On failure the work is released. */
cudaError_t fake_cuda_enqueue(cudaStream_t stream, const struct fake_cuda_work *work);

/* [memory, memory + bytes) is within one live allocation of the device; ends the process if not. */
void fake_cuda_check_device(const char *what, const void *memory, size_t bytes);

/* The next random number below `limit`, from the seed. */
uint32_t fake_cuda_random(uint32_t limit);

/* Print a line and end the process as `status` says. */
void fake_cuda_stop(int status, const char *format, ...)
        __attribute__((noreturn, format(printf, 2, 3)));

#ifdef __cplusplus
}
#endif
#endif

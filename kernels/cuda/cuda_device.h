/* cuda_device.h: the device "cuda" inside. Private to kernels/cuda.
 *
 * Functions of the CUDA runtime that the device calls (a test that links others in their place
 * needs these):
 *   devices  cudaGetDeviceCount cudaDriverGetVersion cudaRuntimeGetVersion cudaSetDevice
 *            cudaGetDeviceProperties cudaDeviceGetAttribute cudaDeviceGetPCIBusId
 *            cudaDeviceSynchronize cudaGetLastError cudaGetErrorString cudaGetErrorName
 *   memory   cudaMalloc cudaFree cudaHostAlloc cudaFreeHost cudaMemGetInfo cudaMemsetAsync
 *            cudaMemcpyAsync
 *   streams  cudaStreamCreateWithFlags cudaStreamDestroy cudaStreamSynchronize
 *            cudaStreamWaitEvent cudaStreamIsCapturing
 *   events   cudaEventCreate cudaEventDestroy cudaEventRecord cudaEventSynchronize
 *            cudaEventElapsedTime
 *   graphs   cudaStreamBeginCapture cudaStreamEndCapture cudaGraphInstantiate cudaGraphExecUpdate
 *            cudaGraphLaunch cudaGraphDestroy cudaGraphExecDestroy
 * besides the launch functions of cuda_kernels.h and the tables of cublaslt_table.h and
 * cudnn_table.h. */
#ifndef DPB_CUDA_DEVICE_H
#define DPB_CUDA_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

#include "conv_graph.h"
#include "cublaslt_table.h"
#include "cuda_kernels.h"
#include "cuda_status.h"
#include "cudnn_table.h"
#include "dpb_device_cuda.h"
#include "gemm_shape.h"

#define DPB_CUDA_ALIGNMENT 256 /* of everything allocated, in bytes */

/* ---- memory (memory.c) ---- */

/* Blocks from the driver, kept when they are freed, until one of another size is needed or
 * dpb_cuda_memory_trim(): cudaMalloc() and cudaFree() wait for the device, and beside NCCL's
 * kernels may do so for ever. */
struct dpb_cuda_block;
struct dpb_cuda_memory {
    pthread_mutex_t lock;
    struct dpb_cuda_block *blocks; /* a list */
    atomic_llong allocations, host_allocations;
    int64_t bytes; /* of all blocks */
};

void dpb_cuda_memory_init(struct dpb_cuda_memory *memory);
/* Everything back to the driver, in use or not. */
void dpb_cuda_memory_release(struct dpb_cuda_memory *memory);
/* At least `bytes`, contents undefined. Work that was launched before dpb_cuda_memory_put() of the
 * same block may still use it: the caller waits for the device where that matters. */
dpb_status dpb_cuda_memory_take(dpb_device *device, size_t bytes, void **memory);
/* The same for what can be done without: DPB_ERR_NO_MEMORY is not logged. */
dpb_status dpb_cuda_memory_try(dpb_device *device, size_t bytes, void **memory);
void dpb_cuda_memory_put(dpb_device *device, void *memory); /* NULL: nothing */
/* Bytes of blocks that wait to be used again. */
int64_t dpb_cuda_memory_kept(dpb_device *device);
/* Those blocks back to the driver, for NCCL, cuDNN and graphs to take: what measuring took, and
 * what grew, is of sizes that may never be asked for again. Waits for the device. */
void dpb_cuda_memory_trim(dpb_device *device);

/* The members of dpb_device_ops. */
dpb_status dpb_cuda_alloc(dpb_device *device, size_t bytes, void **memory);
void dpb_cuda_free(dpb_device *device, void *memory);
dpb_status dpb_cuda_copy(dpb_device *device, void *to, const void *from, size_t bytes,
                         dpb_stream *stream);
dpb_status dpb_cuda_host_alloc(dpb_device *device, size_t bytes, void **memory);
void dpb_cuda_host_free(dpb_device *device, void *memory);
dpb_status dpb_cuda_memory_bytes(dpb_device *device, int64_t *available, int64_t *total);

/* ---- streams, marks, graphs (stream.c) ---- */

/* One thread at a time launches on a stream. What it needs besides is made when it first does. */
struct dpb_stream {
    dpb_device *device;
    cudaStream_t native;
    void *workspace;      /* of kernels, DPB_CUDA_WORKSPACE_BYTES */
    void *gemm_workspace; /* of cuBLASLt, device->gemm_workspace_bytes, then DPB_CUDA_BIAS_BYTES */
    void *scratch;        /* of one operator; grows */
    size_t scratch_bytes;
    atomic_int last_op;    /* enum dpb_op launched last, for messages; -1: none */
    cudaGraphExec_t graph; /* of the last recording; NULL: none */
};

/* Behind cuBLASLt's workspace: a bias in the type of its result. */
#define DPB_CUDA_BIAS_BYTES ((size_t)256 << 10)

dpb_status dpb_cuda_stream_open(dpb_device *device, dpb_stream **stream);
void dpb_cuda_stream_close(dpb_stream *stream);
void *dpb_cuda_stream_native(dpb_stream *stream);
dpb_status dpb_cuda_stream_sync(dpb_stream *stream);
dpb_status dpb_cuda_mark_open(dpb_device *device, dpb_event_mark **mark);
void dpb_cuda_mark_close(dpb_event_mark *mark);
dpb_status dpb_cuda_mark_record(dpb_event_mark *mark, dpb_stream *stream);
dpb_status dpb_cuda_stream_wait(dpb_stream *stream, dpb_event_mark *mark);
dpb_status dpb_cuda_mark_elapsed_ns(dpb_event_mark *from, dpb_event_mark *to, int64_t *ns);
dpb_status dpb_cuda_capture_begin(dpb_device *device, dpb_stream *stream);
dpb_status dpb_cuda_capture_end(dpb_device *device, dpb_stream *stream);

/* The queue for kernels on this stream. */
dpb_status dpb_cuda_stream_queue(dpb_stream *stream, struct dpb_cuda_queue *queue);
/* At least `bytes` for one operator; the same memory every time, unless it has to grow. */
dpb_status dpb_cuda_stream_scratch(dpb_stream *stream, size_t bytes, void **memory);
/* DPB_OK, or DPB_ERR_USAGE, logged: `what` cannot be made while a graph is recorded on it. */
dpb_status dpb_cuda_stream_may_prepare(dpb_stream *stream, const char *what);
/* Report what kernels found wrong with their data, once. `faults` is a copy in host memory. */
dpb_status dpb_cuda_faults_report(const struct dpb_cuda_faults *faults);

/* ---- matrix products (gemm.c) ---- */

struct dpb_gemm_plan;
struct dpb_cuda_gemms {
    struct dpb_gemm_plan **plans; /* a hash table, open addressing, 2^n places */
    size_t places, count;
};

void dpb_cuda_gemms_release(dpb_device *device);
/* Launch it; the first time for a shape, make its plan. `what` is the operator's text. */
dpb_status dpb_cuda_gemm(dpb_stream *stream, const struct dpb_gemm_product *product,
                         const char *what);

/* ---- operators that are not one kernel; under device->lock ---- */

dpb_status dpb_cuda_matmul(dpb_stream *stream, enum dpb_op op, const void *args);
dpb_status dpb_cuda_attention(dpb_stream *stream, enum dpb_op op, const void *args);
dpb_status dpb_cuda_conv(dpb_stream *stream, enum dpb_op op, const void *args);
void dpb_cuda_convs_release(dpb_device *device);

/* Time `run` on a stream: once unmeasured, then a few times; the least time of one in `*ns`. A
 * failure of `run` is returned. */
dpb_status dpb_cuda_time(dpb_stream *stream, dpb_status (*run)(void *ctx), void *ctx, int64_t *ns);

/* A kernel's result as dpb_status. */
dpb_status dpb_cuda_kernel_check(int error, const char *what);

/* ---- the device ---- */

struct dpb_device {
    struct dpb_device_base base;
    struct dpb_device_cuda_options options;
    int ordinal, visible, local_rank;
    struct cudaDeviceProp properties;
    struct dpb_cuda_memory memory;
    dpb_stream *main; /* where the caller names no stream */
    struct dpb_cuda_faults *faults, *host_faults;
    cudaEvent_t timing[2];

    pthread_mutex_t lock; /* for what follows */
    struct dpb_cublaslt lt;
    cublasLtHandle_t lt_handle;
    size_t gemm_workspace_bytes;
    struct dpb_cuda_gemms gemms;
    struct dpb_cudnn cudnn; /* opened by the first convolution */
    cudnnHandle_t cudnn_handle;
    struct dpb_conv_graphs *convs;
    dpb_stream *conv_stream; /* that a convolution is being launched on */

    atomic_llong graphs_made, graphs_updated, plans, while_sealed;
    atomic_bool sealed;
};

/* Number of the device that open() takes, and how many there are to take it of; logged. */
dpb_status dpb_cuda_choose_device(const struct dpb_device_config *config,
                                  const struct dpb_device_cuda_options *options, int *visible,
                                  int *ordinal);
/* The member of dpb_device_ops (room.c). */
dpb_status dpb_cuda_room(const struct dpb_device_config *config, struct dpb_device_room *room);

/* Make this device the calling thread's. */
dpb_status dpb_cuda_enter(dpb_device *device);

/* Count one more allocation or plan in `*counter`, and in while_sealed. */
void dpb_cuda_count(dpb_device *device, atomic_llong *counter);

#endif

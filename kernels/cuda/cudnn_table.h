/* cudnn_table.h: cuDNN 9 as a table of functions. Private to kernels/cuda.
 *
 * Its graph interface (cudnnBackend*) and a handle: all that this device uses. The table is also
 * where a test puts functions of its own. (Not "cudnn.h": that name is the library's.) */
#ifndef DPB_CUDA_CUDNN_TABLE_H
#define DPB_CUDA_CUDNN_TABLE_H

#include <stdbool.h>
#include <stddef.h>

#include <cudnn.h>

#include "dpb_status.h"

/* Members have the functions' own names (cudnn_graph.h documents them). */
struct dpb_cudnn {
    size_t (*cudnnGetVersion)(void);
    const char *(*cudnnGetErrorString)(cudnnStatus_t status);
    void (*cudnnGetLastErrorString)(char *message, size_t bytes);
    cudnnStatus_t (*cudnnCreate)(cudnnHandle_t *handle);
    cudnnStatus_t (*cudnnDestroy)(cudnnHandle_t handle);
    cudnnStatus_t (*cudnnSetStream)(cudnnHandle_t handle, cudaStream_t stream);
    cudnnStatus_t (*cudnnBackendCreateDescriptor)(cudnnBackendDescriptorType_t type,
                                                  cudnnBackendDescriptor_t *descriptor);
    cudnnStatus_t (*cudnnBackendDestroyDescriptor)(cudnnBackendDescriptor_t descriptor);
    cudnnStatus_t (*cudnnBackendFinalize)(cudnnBackendDescriptor_t descriptor);
    cudnnStatus_t (*cudnnBackendSetAttribute)(cudnnBackendDescriptor_t descriptor,
                                              cudnnBackendAttributeName_t name,
                                              cudnnBackendAttributeType_t type, int64_t count,
                                              const void *elements);
    cudnnStatus_t (*cudnnBackendGetAttribute)(cudnnBackendDescriptor_t descriptor,
                                              cudnnBackendAttributeName_t name,
                                              cudnnBackendAttributeType_t type, int64_t requested,
                                              int64_t *count, void *elements);
    cudnnStatus_t (*cudnnBackendExecute)(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                         cudnnBackendDescriptor_t variant_pack);
};

/* Open libcudnn.so.9 (or what DPB_CUDNN_LIBRARY names) and fill `table`. DPB_ERR_UNAVAILABLE with
 * one line in `why`: not found, another major version, or older than what this was built with:
 * attributes of the graph interface have been added in every release. */
dpb_status dpb_cudnn_open(struct dpb_cudnn *table, char *why, size_t why_bytes);

/* From now on dpb_cudnn_open() copies `table` and opens nothing; NULL: the library again. For
 * tests; the caller keeps the table. */
void dpb_cudnn_use(const struct dpb_cudnn *table);

/* "9.19.0" of cudnnGetVersion()'s number. */
void dpb_cudnn_version_text(size_t version, char *text, size_t bytes);

/* Whether a library of version `version` serves a program built with version `built`. */
bool dpb_cudnn_version_ok(size_t version, size_t built);

/* DPB_OK for CUDNN_STATUS_SUCCESS; DPB_ERR_NO_MEMORY, DPB_ERR_UNSUPPORTED, DPB_ERR_USAGE or
 * DPB_ERR_VENDOR for the others, by their category. */
dpb_status dpb_cudnn_status(cudnnStatus_t status);

/* "NAME: what the library says of this thread's last failure", in one line. */
void dpb_cudnn_reason(const struct dpb_cudnn *cudnn, cudnnStatus_t status, char *text,
                      size_t bytes);

/* dpb_cudnn_status(); a failure is logged as "cuDNN: `what`: reason", where `what` says what could
 * not be done. */
dpb_status dpb_cudnn_check(const struct dpb_cudnn *cudnn, cudnnStatus_t status, const char *what);

#endif

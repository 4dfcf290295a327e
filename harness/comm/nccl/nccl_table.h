/* nccl_table.h: NCCL as a table of functions, opened when it is first needed.
 *
 * Every member has the function's own name and type (nccl.h). The backend calls NCCL through this
 * table only, and cudart, which is linked statically, directly: a test puts functions of its own
 * here, and links a cudart of its own. Of cudart the backend uses:
 *
 *   cudaGetDeviceCount cudaGetDevice cudaSetDevice cudaGetDeviceProperties
 *   cudaDeviceGetStreamPriorityRange cudaStreamCreateWithPriority cudaStreamDestroy
 *   cudaStreamWaitEvent cudaStreamIsCapturing
 *   cudaEventCreateWithFlags cudaEventDestroy cudaEventRecord cudaEventQuery cudaEventElapsedTime
 *   cudaMalloc cudaFree cudaMemsetAsync cudaMemcpyAsync
 *   cudaGetErrorName cudaGetErrorString cudaGetLastError */
#ifndef DPB_NCCL_TABLE_H
#define DPB_NCCL_TABLE_H

#include <stddef.h>

#include <nccl.h>

#include "dpb_status.h"

#define DPB_NCCL_VERSION_MIN 22700 /* the configuration's fields that are used */

struct dpb_nccl_table {
    ncclResult_t (*ncclGetVersion)(int *version);
    ncclResult_t (*ncclGetUniqueId)(ncclUniqueId *id);
    const char *(*ncclGetErrorString)(ncclResult_t result);
    const char *(*ncclGetLastError)(ncclComm_t comm);
    ncclResult_t (*ncclCommInitRankConfig)(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank,
                                           ncclConfig_t *config);
    ncclResult_t (*ncclCommGetAsyncError)(ncclComm_t comm, ncclResult_t *state);
    ncclResult_t (*ncclCommFinalize)(ncclComm_t comm);
    ncclResult_t (*ncclCommDestroy)(ncclComm_t comm);
    ncclResult_t (*ncclCommAbort)(ncclComm_t comm);
    ncclResult_t (*ncclMemAlloc)(void **memory, size_t bytes);
    ncclResult_t (*ncclMemFree)(void *memory);
    ncclResult_t (*ncclCommRegister)(const ncclComm_t comm, void *memory, size_t bytes,
                                     void **handle);
    ncclResult_t (*ncclCommDeregister)(const ncclComm_t comm, void *handle);
    ncclResult_t (*ncclRedOpCreatePreMulSum)(ncclRedOp_t *op, void *scalar, ncclDataType_t type,
                                             ncclScalarResidence_t residence, ncclComm_t comm);
    ncclResult_t (*ncclRedOpDestroy)(ncclRedOp_t op, ncclComm_t comm);
    ncclResult_t (*ncclAllReduce)(const void *from, void *to, size_t count, ncclDataType_t type,
                                  ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
    ncclResult_t (*ncclReduceScatter)(const void *from, void *to, size_t count_each,
                                      ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                      cudaStream_t stream);
    ncclResult_t (*ncclAllGather)(const void *from, void *to, size_t count_each,
                                  ncclDataType_t type, ncclComm_t comm, cudaStream_t stream);
    ncclResult_t (*ncclBroadcast)(const void *from, void *to, size_t count, ncclDataType_t type,
                                  int root, ncclComm_t comm, cudaStream_t stream);
    ncclResult_t (*ncclReduce)(const void *from, void *to, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream);
    ncclResult_t (*ncclSend)(const void *from, size_t count, ncclDataType_t type, int peer,
                             ncclComm_t comm, cudaStream_t stream);
    ncclResult_t (*ncclRecv)(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                             cudaStream_t stream);
    ncclResult_t (*ncclGroupStart)(void);
    ncclResult_t (*ncclGroupEnd)(void);

    /* NULL before 2.28: sends and receives in a group take its place. */
    ncclResult_t (*ncclAlltoAll)(const void *from, void *to, size_t count_each, ncclDataType_t type,
                                 ncclComm_t comm, cudaStream_t stream);
};

/* The library's table, opened at the first call (environment DPB_NCCL_LIBRARY: its path), or
 * the one that a test installed. DPB_ERR_UNAVAILABLE with one line in `why`: not found, lacks a
 * function, older than DPB_NCCL_VERSION_MIN or of another major version than nccl.h. Logs nothing.
 * Safe from several threads. */
dpb_status dpb_nccl_table_get(const struct dpb_nccl_table **table, char *why, size_t why_bytes);

/* For tests: use `table`, which must stay, instead of the library; NULL: the library again. */
void dpb_nccl_table_install(const struct dpb_nccl_table *table);

#endif

/* cuda_status.h: CUDA's error codes as dpb_status, once, with a message. Private to kernels/cuda.
 */
#ifndef DPB_CUDA_STATUS_H
#define DPB_CUDA_STATUS_H

#include <stddef.h>

#include <cuda_runtime_api.h>

#include "dpb_status.h"

/* DPB_OK for cudaSuccess. Else logs "cuda: `what`: `call`: text (name)" with the remedy, clears the
 * error where CUDA lets it be cleared, and returns DPB_ERR_NO_MEMORY, DPB_ERR_UNAVAILABLE,
 * DPB_ERR_UNSUPPORTED, DPB_ERR_USAGE (not allowed while a graph is recorded) or DPB_ERR_VENDOR. */
dpb_status dpb_cuda_check(cudaError_t error, const char *call, const char *what);

/* Return the failure of function(args) to the caller: DPB_CUDA_TRY("copy", cudaMemcpyAsync, (...)).
 */
#define DPB_CUDA_TRY(what, function, args) DPB_TRY(dpb_cuda_check(function args, #function, what))
#define DPB_CUDA_TRY_GOTO(st, what, function, args, label)                                         \
    DPB_TRY_GOTO(st, dpb_cuda_check(function args, #function, what), label)

/* Whether the error stays: every later call of this process fails with it. */
int dpb_cuda_is_sticky(cudaError_t error);

/* ---- the driver ---- */

/* What is looked for before anything else; "libcuda.so.1". Other text is for tests; NULL restores.
 */
void dpb_cuda_driver_use(const char *name);

/* Say what CUDA reads from the environment when it starts, unless the user has: all kernels are
 * loaded at once, as loading one later waits for those that run (a deadlock beside NCCL's). */
void dpb_cuda_settle_environment(void);

/* Is there a driver with a device? Devices that are visible in `count`. DPB_ERR_UNAVAILABLE with
 * one line in `why`. Opens nothing on the device. */
dpb_status dpb_cuda_find_devices(int *count, char *why, size_t why_bytes);

#endif

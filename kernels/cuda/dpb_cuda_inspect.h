/* dpb_cuda_inspect.h: what this machine's GPUs are fit for, as `dpbench doctor` and the launcher
 * ask.
 */
#ifndef DPB_CUDA_INSPECT_H
#define DPB_CUDA_INSPECT_H

#include <stddef.h>

#include "dpb_finding.h"
#include "dpb_status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Can so many ranks of this machine have a GPU each? DPB_ERR_UNAVAILABLE and the reason in `why`,
 * one line: no driver, fewer GPUs than ranks, parts of a GPU (MIG) with several ranks. */
dpb_status dpb_cuda_ranks_fit(int ranks, char *why, size_t why_bytes);

/* Driver, libraries, each GPU (link, persistence, ECC, MIG, compute mode, other processes, clocks),
 * the ways between GPUs, network devices, permission to profile. Works without a driver too. */
void dpb_cuda_inspect(dpb_found found, void *ctx);

/* Read /sys and /proc below this folder instead; NULL: "/". For tests; the caller keeps the text.
 */
void dpb_cuda_inspect_root(const char *folder);

#ifdef __cplusplus
}
#endif
#endif

/* nccl_profile.h: which algorithms NCCL really used, asked of libdpbench_nccl_profiler.so. */
#ifndef DPB_NCCL_PROFILE_H
#define DPB_NCCL_PROFILE_H

#include "dpb_json.h"
#include "dpb_status.h"

/* Let NCCL load the library (NCCL_PROFILER_PLUGIN), which lies beside the file that this code is
 * in, or where DPBENCH_NCCL_PROFILER says; before the first call of NCCL in this process.
 * DPB_ERR_UNAVAILABLE when it is not there, DPB_ERR_USAGE when NCCL_PROFILER_PLUGIN names another
 * one; logged. */
dpb_status dpb_nccl_profile_enable(int rank);

/* [{"function": "AllReduce", "algorithm": "RING", "protocol": "LL", "channels": 16,
 *   "collectives": 320}, ...] of this process so far; empty when it is not enabled. Caller owns. */
dpb_json *dpb_nccl_profile_json(void);

#endif

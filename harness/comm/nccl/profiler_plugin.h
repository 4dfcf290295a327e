/* profiler_plugin.h: what libdpbench_nccl_profiler.so, which NCCL loads, tells about the
 * collectives that NCCL ran in this process. */
#ifndef DPB_NCCL_PROFILER_PLUGIN_H
#define DPB_NCCL_PROFILER_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#define DPB_NCCL_PROFILE_KINDS 128 /* different rows that are kept */

/* One row: how often a function ran with that algorithm, protocol and number of channels. */
struct dpb_nccl_profile_count {
    char function[24];  /* "AllReduce" */
    char algorithm[24]; /* "RING" */
    char protocol[16];  /* "SIMPLE" */
    int32_t channels;   /* thread blocks */
    int32_t reserved;   /* 0 */
    int64_t collectives;
};

/* Copy at most `capacity` rows, in the order of their first use; returns how many there are.
 * `calls` gets the number of calls into NCCL's collectives, `lost` that of collectives that had no
 * row left. Safe from any thread. */
size_t dpb_nccl_profile_read(struct dpb_nccl_profile_count *rows, size_t capacity, int64_t *calls,
                             int64_t *lost);

#endif

/* nvtx.h: ranges for NVIDIA's tools (Nsight Systems, Nsight Compute, CUPTI), in domain "dpbench".
 * Private; no other file includes NVTX's headers. Where they were not there when this was built,
 * everything here does nothing.
 *
 * NVTX looks for a tool at the first call of each shared object that uses it, in
 * NVTX_INJECTION64_PATH; without one a call costs a load and a branch. */
#ifndef NVTX_H
#define NVTX_H

#include <stdbool.h>
#include <stdint.h>

#include "dpb_event.h"

/* Built with NVTX? */
bool nvtx_is_built_in(void);

/* Have the library at `path` get the ranges, unless somebody has said already who does: a tool that
 * started this program. Before the first range. False: out of memory. */
bool nvtx_offer(const char *path);

/* Begin and end a range of the calling thread; ranges nest. Category: the kind, by its text;
 * payload: the bucket, where it is not -1. */
void nvtx_begin(enum dpb_event_kind kind, const char *name, int32_t bucket);
void nvtx_end(void);

#endif

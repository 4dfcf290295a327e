/* shm_histogram.h: a bounded histogram of durations, written by one thread, read by any. 16 cells
 * per power of two: a quantile is off by at most 1/32 of its value; the maximum is exact. */
#ifndef DPB_SHM_HISTOGRAM_H
#define DPB_SHM_HISTOGRAM_H

#include <stdatomic.h>
#include <stdint.h>

#define DPB_SHM_HISTOGRAM_CELLS (60 * 16)

struct dpb_shm_histogram {
    _Atomic uint32_t cell[DPB_SHM_HISTOGRAM_CELLS];
    _Atomic int64_t count, max_ns;
};

/* Negative durations count as 0. */
void dpb_shm_histogram_add(struct dpb_shm_histogram *histogram, int64_t ns);

/* The smallest duration that at least `share` (0 to 1) of all reach or stay below; 0 when empty. */
int64_t dpb_shm_histogram_quantile_ns(struct dpb_shm_histogram *histogram, double share);

#endif

#include "shm_histogram.h"

#include <math.h>

/* Below 32 a cell per nanosecond; above, the top five bits of the value number the cell. */
static int cell_of(int64_t ns)
{
    if (ns < 32)
        return (int)ns;
    int shift = 63 - __builtin_clzll((unsigned long long)ns) - 4;
    return shift * 16 + (int)(ns >> shift);
}

static int64_t middle_of(int cell)
{
    if (cell < 32)
        return cell;
    int shift = cell / 16 - 1;
    return ((int64_t)(cell % 16 + 16) << shift) + ((int64_t)1 << shift) / 2;
}

void dpb_shm_histogram_add(struct dpb_shm_histogram *histogram, int64_t ns)
{
    if (ns < 0)
        ns = 0;
    atomic_fetch_add_explicit(&histogram->cell[cell_of(ns)], 1, memory_order_relaxed);
    if (ns > atomic_load_explicit(&histogram->max_ns, memory_order_relaxed))
        atomic_store_explicit(&histogram->max_ns, ns, memory_order_relaxed);
    atomic_fetch_add_explicit(&histogram->count, 1, memory_order_release);
}

int64_t dpb_shm_histogram_quantile_ns(struct dpb_shm_histogram *histogram, double share)
{
    int64_t count = atomic_load_explicit(&histogram->count, memory_order_acquire);
    int64_t max = atomic_load_explicit(&histogram->max_ns, memory_order_relaxed);
    int64_t wanted = (int64_t)ceil(share * (double)count);
    if (count == 0)
        return 0;
    int64_t seen = 0;
    for (int cell = 0; cell < DPB_SHM_HISTOGRAM_CELLS; cell++) {
        seen += atomic_load_explicit(&histogram->cell[cell], memory_order_relaxed);
        if (seen >= wanted && seen > 0)
            return middle_of(cell) < max ? middle_of(cell) : max;
    }
    return max;
}

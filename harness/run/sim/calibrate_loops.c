/* calibrate_loops.c: short loops for what records do not tell. */
#include <math.h>
#include <stdlib.h>

#include "calibrate_private.h"
#include "dpb_clock.h"

#define ELEMENTS (UINT64_C(16) << 20) /* 64 MiB each */
#define PASSES   5

/* The triad of McCalpin's STREAM, which counts two arrays read and one written. */
__attribute__((noinline)) static void triad(float *restrict a, const float *restrict b,
                                            const float *restrict c, float scale)
{
    for (size_t i = 0; i < ELEMENTS; i++)
        a[i] = b[i] + scale * c[i];
}

double calibrate_memory_loop(void)
{
    float *a = malloc(3 * ELEMENTS * sizeof(*a));
    double best_s = INFINITY;

    if (!a)
        return NAN;
    for (size_t i = 0; i < 3 * ELEMENTS; i++)
        a[i] = (float)(i & 7);
    for (int pass = 0; pass < PASSES; pass++) {
        const int64_t from_ns = dpb_clock_now_ns();

        triad(a, a + ELEMENTS, a + 2 * ELEMENTS, (float)pass);
        best_s = fmin(best_s, (double)(dpb_clock_now_ns() - from_ns) * 1e-9);
    }
    free(a);
    return 3.0 * ELEMENTS * sizeof(*a) / best_s;
}

#define LANES  256
#define ROUNDS 400000

double calibrate_flop_loop(void)
{
    static float sum[LANES];
    double best_s = INFINITY;

    for (int pass = 0; pass < PASSES; pass++) {
        const int64_t from_ns = dpb_clock_now_ns();

        for (int round = 0; round < ROUNDS; round++)
            for (int i = 0; i < LANES; i++)
                sum[i] = sum[i] * 0.5f + 1.0f;
        best_s = fmin(best_s, (double)(dpb_clock_now_ns() - from_ns) * 1e-9);
    }
    return 2.0 * LANES * ROUNDS / best_s;
}

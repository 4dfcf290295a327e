/* synthetic.h: images made from a seed, so that every network has data on every machine.
 *
 * An image is its class's coarse pattern of +-1/4 plus uniform noise: mean 0, variance 1, different
 * in every sample, and learnable, so that a falling loss can be demanded of a training run. */
#ifndef BENCH_SYNTHETIC_H
#define BENCH_SYNTHETIC_H

#include <stdint.h>

#include "dpb_dataset.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dpb_synthetic dpb_synthetic;

/* Train and test samples are different but have the same class patterns. */
dpb_status dpb_synthetic_open(const struct dpb_dataset_config *config, enum dpb_split split,
                              dpb_synthetic **synthetic);
void dpb_synthetic_close(dpb_synthetic *synthetic);

/* Sample `id` into x [H, W, C]; returns its label. The same on every machine. */
int32_t dpb_synthetic_fetch(const dpb_synthetic *synthetic, int64_t id, float *x);

#ifdef __cplusplus
}
#endif
#endif

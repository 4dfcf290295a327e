#include "synthetic.h"

#include <stdlib.h>

#include "dpb_log.h"
#include "dpb_rng.h"

/* Patterns have GRID x GRID cells per channel, or one per pixel of smaller images. An image's noise
 * is a stretch of one long row of random numbers, which begins at one of NOISE_STARTS. */
#define GRID          7
#define NOISE_STARTS  65536
#define PATTERN_LEVEL 0.25f
#define NOISE_LEVEL   1.6770510f /* uniform in +-sqrt(3 * 15/16): variance 15/16 */

/* Streams of one seed are told apart by their upper half. */
#define PATTERN_STREAM ((uint64_t)0x636c6173 << 32) /* "clas" */
#define NOISE_STREAM   ((uint64_t)0x6e6f6973 << 32) /* "nois" */
#define SAMPLE_TAG     0x73796e74                   /* "synt" */

struct dpb_synthetic {
    uint64_t seed;
    enum dpb_split split;
    int classes;
    int64_t elements; /* H * W * C */
    int64_t cells;
    float *pattern; /* [classes, cells] */
    int32_t *cell;  /* [elements] */
    float *noise;   /* [NOISE_STARTS + elements] */
};

static int64_t grid_of(int64_t length)
{
    return length < GRID ? length : GRID;
}

static void fill(struct dpb_synthetic *synthetic, const int64_t dim[3])
{
    int64_t rows = grid_of(dim[0]), columns = grid_of(dim[1]), at = 0;
    struct dpb_rng rng;

    for (int64_t h = 0; h < dim[0]; h++) {
        for (int64_t w = 0; w < dim[1]; w++) {
            int64_t cell = h * rows / dim[0] * columns + w * columns / dim[1];

            for (int64_t c = 0; c < dim[2]; c++)
                synthetic->cell[at++] = (int32_t)(cell * dim[2] + c);
        }
    }
    dpb_rng_init(&rng, synthetic->seed, PATTERN_STREAM);
    for (int64_t i = 0; i < synthetic->classes * synthetic->cells; i++)
        synthetic->pattern[i] = dpb_rng_u32(&rng) & 1 ? PATTERN_LEVEL : -PATTERN_LEVEL;
    dpb_rng_init(&rng, synthetic->seed, NOISE_STREAM);
    for (int64_t i = 0; i < NOISE_STARTS + synthetic->elements; i++)
        synthetic->noise[i] = ((float)(dpb_rng_u32(&rng) >> 8) * 0x1p-23f - 1.0f) * NOISE_LEVEL;
}

dpb_status dpb_synthetic_open(const struct dpb_dataset_config *config, enum dpb_split split,
                              dpb_synthetic **synthetic)
{
    const int64_t *dim = config->sample_dim;
    struct dpb_synthetic *made = calloc(1, sizeof(*made));

    if (!made)
        goto err_memory;
    made->seed = config->seed;
    made->split = split;
    made->classes = config->classes;
    made->elements = dim[0] * dim[1] * dim[2];
    made->cells = grid_of(dim[0]) * grid_of(dim[1]) * dim[2];
    made->pattern = calloc((size_t)(made->classes * made->cells), sizeof(float));
    made->cell = calloc((size_t)made->elements, sizeof(int32_t));
    made->noise = calloc((size_t)(NOISE_STARTS + made->elements), sizeof(float));
    if (!made->pattern || !made->cell || !made->noise)
        goto err_memory;
    fill(made, dim);
    *synthetic = made;
    return DPB_OK;

err_memory:
    dpb_error("cannot make the synthetic dataset: out of memory");
    dpb_synthetic_close(made);
    return DPB_ERR_NO_MEMORY;
}

void dpb_synthetic_close(dpb_synthetic *synthetic)
{
    if (!synthetic)
        return;
    free(synthetic->pattern);
    free(synthetic->cell);
    free(synthetic->noise);
    free(synthetic);
}

int32_t dpb_synthetic_fetch(const dpb_synthetic *synthetic, int64_t id, float *x)
{
    const uint32_t counter[4] = {(uint32_t)id, (uint32_t)(id >> 32), (uint32_t)synthetic->split,
                                 SAMPLE_TAG};
    const uint32_t key[2] = {(uint32_t)synthetic->seed, (uint32_t)(synthetic->seed >> 32)};
    const float *pattern, *noise;
    uint32_t random[4];
    int32_t label;

    dpb_philox4x32(counter, key, random);
    label = (int32_t)(random[0] % (uint32_t)synthetic->classes);
    pattern = synthetic->pattern + label * synthetic->cells;
    noise = synthetic->noise + random[1] % NOISE_STARTS;
    for (int64_t i = 0; i < synthetic->elements; i++)
        x[i] = pattern[synthetic->cell[i]] + noise[i];
    return label;
}

/* Images made from a seed, so that every network of images has data on every machine, of any size
 * and without keeping the set in memory.
 *
 * An image is its class's coarse pattern of +-1/4 plus uniform noise: mean 0, variance 1, different
 * in every sample, and learnable, so that a falling loss can be demanded of a training run. Train
 * and test samples are different but have the same class patterns. */
#include "source.h"

#include <stdlib.h>
#include <string.h>

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

struct synthetic_images {
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

static void fill(struct synthetic_images *synthetic, const int64_t dim[3])
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

static void close_images(void *ctx)
{
    struct synthetic_images *synthetic = ctx;

    free(synthetic->pattern);
    free(synthetic->cell);
    free(synthetic->noise);
    free(synthetic);
}

static void fetch(const void *ctx, int64_t id, const struct dpb_batch_arrays *arrays, int64_t at)
{
    const struct synthetic_images *synthetic = ctx;
    const uint32_t counter[4] = {(uint32_t)id, (uint32_t)(id >> 32), (uint32_t)synthetic->split,
                                 SAMPLE_TAG};
    const uint32_t key[2] = {(uint32_t)synthetic->seed, (uint32_t)(synthetic->seed >> 32)};
    float *x = arrays->x + at * synthetic->elements;
    const float *pattern, *noise;
    uint32_t random[4];
    int32_t label;

    dpb_philox4x32(counter, key, random);
    label = (int32_t)(random[0] % (uint32_t)synthetic->classes);
    pattern = synthetic->pattern + label * synthetic->cells;
    noise = synthetic->noise + random[1] % NOISE_STARTS;
    for (int64_t i = 0; i < synthetic->elements; i++)
        x[i] = pattern[synthetic->cell[i]] + noise[i];
    arrays->label[at] = label;
}

static bool make(struct synthetic_images *made, const struct dpb_model *model)
{
    const int64_t *dim = model->sample_dim;

    made->classes = model->classes;
    made->elements = dpb_image_elements(model);
    made->cells = grid_of(dim[0]) * grid_of(dim[1]) * dim[2];
    made->pattern = calloc((size_t)(made->classes * made->cells), sizeof(float));
    made->cell = calloc((size_t)made->elements, sizeof(int32_t));
    made->noise = calloc((size_t)(NOISE_STARTS + made->elements), sizeof(float));
    if (!made->pattern || !made->cell || !made->noise)
        return false;
    fill(made, dim);
    return true;
}

dpb_status dpb_source_open_synthetic_images(const struct dpb_dataset_config *config,
                                            enum dpb_split split, struct dpb_source *source)
{
    struct synthetic_images *made = calloc(1, sizeof(*made));
    char *origin = strdup("synthetic");

    if (made) {
        made->seed = config->seed;
        made->split = split;
    }
    if (!made || !origin || !make(made, config->model)) {
        dpb_error("cannot make the synthetic images: out of memory");
        if (made)
            close_images(made);
        free(origin);
        return DPB_ERR_NO_MEMORY;
    }
    *source = (struct dpb_source){.ctx = made,
                                  .samples = dpb_synthetic_samples(config, split),
                                  .origin = origin,
                                  .fetch = fetch,
                                  .close = close_images};
    return DPB_OK;
}

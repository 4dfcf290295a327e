/* Interactions made from a seed: dense features are standard normal, the row of each table is
 * Zipf-distributed (row 0 the most frequent), and a planted logistic rule over both says how likely
 * a click is: it can be learnt, though not without error. */
#include "source.h"

#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"
#include "draws.h"

#define SAMPLE_TAG  0x696e7400                   /* "int" */
#define RULE_STREAM ((uint64_t)0x72756c65 << 32) /* "rule" */
#define STEEPNESS   2.0                          /* of the rule: how sure it is */

struct synthetic_interactions {
    const struct dpb_model *model;
    uint64_t seed;
    enum dpb_split split;
    double *weight;   /* [features], sum of squares 1 */
    double *zipf_log; /* [tables] */
};

/* What a row does to the score: uniform, so that all tables together have variance 1. */
static double row_effect(const struct synthetic_interactions *set, int table, int64_t row)
{
    uint64_t bits = dpb_mix_u64(dpb_mix_u64(set->seed ^ (uint64_t)table << 40) ^ (uint64_t)row);
    double uniform = (double)(bits >> 11) * 0x1p-52 - 1.0; /* -1 to 1, variance 1/3 */

    return uniform * sqrt(3.0 / set->model->tables);
}

static void fetch(const void *ctx, int64_t id, const struct dpb_batch_arrays *arrays, int64_t at)
{
    const struct synthetic_interactions *set = ctx;
    const struct dpb_model *model = set->model;
    float *x = arrays->x + at * model->features;
    int32_t *indices = arrays->indices + at * model->tables;
    struct dpb_rng rng;
    double score = 0.0;

    dpb_sample_rng(&rng, set->seed, SAMPLE_TAG, set->split, id);
    for (int64_t f = 0; f < model->features; f++) {
        double value = dpb_rng_normal(&rng);

        x[f] = (float)value;
        score += set->weight[f] * value;
    }
    for (int t = 0; t < model->tables; t++) {
        double uniform = dpb_uniform_of_u32(dpb_rng_u32(&rng));
        int64_t row = dpb_zipf(uniform, set->zipf_log[t], model->table_rows[t]);

        indices[t] = (int32_t)row;
        score += row_effect(set, t, row);
    }
    arrays->label[at] = dpb_rng_uniform(&rng) < 1.0 / (1.0 + exp(-STEEPNESS * score));
}

static void close_interactions(void *ctx)
{
    struct synthetic_interactions *set = ctx;

    free(set->weight);
    free(set->zipf_log);
    free(set);
}

static bool make(struct synthetic_interactions *made, const struct dpb_dataset_config *config,
                 enum dpb_split split)
{
    const struct dpb_model *model = config->model;
    struct dpb_rng rng;

    made->model = model;
    made->seed = config->seed;
    made->split = split;
    made->weight = calloc((size_t)model->features + 1, sizeof(double));
    made->zipf_log = calloc((size_t)model->tables + 1, sizeof(double));
    if (!made->weight || !made->zipf_log)
        return false;
    dpb_rng_init(&rng, config->seed, RULE_STREAM);
    for (int64_t f = 0; f < model->features; f++)
        made->weight[f] = (dpb_rng_u32(&rng) & 1 ? 1.0 : -1.0) / sqrt((double)model->features);
    for (int t = 0; t < model->tables; t++)
        made->zipf_log[t] = dpb_zipf_log(model->table_rows[t]);
    return true;
}

dpb_status dpb_source_open_synthetic_interactions(const struct dpb_dataset_config *config,
                                                  enum dpb_split split, struct dpb_source *source)
{
    struct synthetic_interactions *made = calloc(1, sizeof(*made));
    char *origin = strdup("synthetic");

    if (!made || !origin || !make(made, config, split)) {
        dpb_error("cannot make the synthetic interactions: out of memory");
        if (made)
            close_interactions(made);
        free(origin);
        return DPB_ERR_NO_MEMORY;
    }
    *source = (struct dpb_source){.ctx = made,
                                  .samples = dpb_synthetic_samples(config, split),
                                  .origin = origin,
                                  .fetch = fetch,
                                  .close = close_interactions};
    return DPB_OK;
}

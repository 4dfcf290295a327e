/* source.h: what a kind of dataset implements; dataset.c knows them all by name. */
#ifndef BENCH_SOURCE_H
#define BENCH_SOURCE_H

#include <stdint.h>

#include "dpb_dataset.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One open split. Of fetch() and read() it has one: what is in memory cannot fail, and was checked
 * when it was opened. */
struct dpb_source {
    void *ctx;
    int64_t samples;
    char *origin;   /* path of the (first) file, "synthetic"; on the heap */
    bool synthetic; /* its files say that they were made up */
    int files;      /* read or mapped */
    int64_t file_bytes;
    int64_t held_bytes;   /* as in struct dpb_dataset_info */
    struct dpb_deal deal; /* all zero: not in shards */
    /* Sample `id` to place `at` of the arrays; `id` is valid. */
    void (*fetch)(const void *ctx, int64_t id, const struct dpb_batch_arrays *arrays, int64_t at);
    dpb_status (*read)(const void *ctx, int64_t id, const struct dpb_batch_arrays *arrays,
                       int64_t at);
    /* Optional. Were the samples read since sound? Asked after each batch. */
    dpb_status (*confirm)(const void *ctx);
    void (*close)(void *ctx);
};

/* Open a split: on failure nothing is left behind and `source` is as it was. */
typedef dpb_status (*dpb_source_open)(const struct dpb_dataset_config *config, enum dpb_split split,
                                      struct dpb_source *source);

/* dpb_dataset_predict() for a kind. */
typedef bool (*dpb_source_predict)(const struct dpb_dataset_config *config, enum dpb_split split,
                                   struct dpb_dataset_size *size);

bool dpb_source_predict_idx(const struct dpb_dataset_config *config, enum dpb_split split,
                            struct dpb_dataset_size *size);
bool dpb_source_predict_cifar(const struct dpb_dataset_config *config, enum dpb_split split,
                              struct dpb_dataset_size *size);
bool dpb_source_predict_text(const struct dpb_dataset_config *config, enum dpb_split split,
                             struct dpb_dataset_size *size);
bool dpb_source_predict_interactions_csv(const struct dpb_dataset_config *config,
                                         enum dpb_split split, struct dpb_dataset_size *size);
bool dpb_source_predict_packed(const struct dpb_dataset_config *config, enum dpb_split split,
                               struct dpb_dataset_size *size);

dpb_status dpb_source_open_idx(const struct dpb_dataset_config *config, enum dpb_split split,
                               struct dpb_source *source);
dpb_status dpb_source_open_cifar(const struct dpb_dataset_config *config, enum dpb_split split,
                                 struct dpb_source *source);
dpb_status dpb_source_open_text(const struct dpb_dataset_config *config, enum dpb_split split,
                                struct dpb_source *source);
dpb_status dpb_source_open_interactions_csv(const struct dpb_dataset_config *config,
                                            enum dpb_split split, struct dpb_source *source);
dpb_status dpb_source_open_packed(const struct dpb_dataset_config *config, enum dpb_split split,
                                  struct dpb_source *source);
dpb_status dpb_source_open_synthetic_images(const struct dpb_dataset_config *config,
                                            enum dpb_split split, struct dpb_source *source);

dpb_status dpb_source_open_synthetic_tokens(const struct dpb_dataset_config *config,
                                            enum dpb_split split, struct dpb_source *source);
dpb_status dpb_source_open_synthetic_interactions(const struct dpb_dataset_config *config,
                                                  enum dpb_split split, struct dpb_source *source);

/* What the network takes: "28x28x1 images of 10 classes". */
void dpb_model_describe(const struct dpb_model *model, char *text, size_t bytes);

/* Bytes of a file, 0 when there is none. */
int64_t dpb_file_bytes(const char *path);

/* How many samples a synthetic split has. */
static inline int64_t dpb_synthetic_samples(const struct dpb_dataset_config *config,
                                            enum dpb_split split)
{
    if (config->samples > 0)
        return config->samples;
    return split == DPB_SPLIT_TRAIN ? 60000 : 10000;
}

static inline int64_t dpb_image_elements(const struct dpb_model *model)
{
    return model->sample_dim[0] * model->sample_dim[1] * model->sample_dim[2];
}

#ifdef __cplusplus
}
#endif
#endif

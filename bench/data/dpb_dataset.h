/* dpb_dataset.h: samples, and which rank sees which of them when. */
#ifndef DPB_DATASET_H
#define DPB_DATASET_H

#include <stdbool.h>
#include <stdint.h>

#include "dpb_status.h"
#include "dpb_step.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- datasets ---- */

enum dpb_split {
    DPB_SPLIT_TRAIN,
    DPB_SPLIT_TEST
};

typedef struct dpb_dataset dpb_dataset;

struct dpb_dataset_config {
    const char *kind;      /* "fashion-mnist", "mnist" or "synthetic" */
    const char *folder;    /* with the IDX files; "" : the places Debian installs them to */
    int64_t sample_dim[3]; /* H, W, C that the workload wants */
    int classes;
    uint64_t seed;   /* synthetic: what its images are made of */
    int64_t samples; /* synthetic: how many; 0: 60,000 train, 10,000 test */
};

struct dpb_dataset_info {
    const char *kind;
    bool synthetic;
    const char *source; /* path of the images file; "synthetic" */
    int64_t samples;
    int classes;
};

/* Open one split. IDX files may be gzip-compressed or not. Missing or damaged files: an error that
 * names the path, what was expected, and the package to install or the option to give. Pixels are
 * kept as bytes (mapped or read once) and touched; fetch normalises to (x/255 - mean) / std with
 * mean 0.2860, std 0.3530 for fashion-mnist, 0.1307, 0.3081 for mnist (the usual published values
 * of the training sets; a test computes them from the data). */
dpb_status dpb_dataset_open(const struct dpb_dataset_config *config, enum dpb_split split,
                            dpb_dataset **dataset);
void dpb_dataset_close(dpb_dataset *dataset);
void dpb_dataset_describe(const dpb_dataset *dataset, struct dpb_dataset_info *info);

/* Numbers in one sample: H * W * C. */
int64_t dpb_dataset_sample_elements(const dpb_dataset *dataset);

/* Copy samples `ids` into x [count, H, W, C] and label [count]. */
dpb_status dpb_dataset_fetch(const dpb_dataset *dataset, const int64_t *ids, int64_t count,
                             float *x, int32_t *label);

/* ---- sharding ---- */

/* How a global batch is split: rank r takes samples [first, first + count) of it. Divisible: equal
 * slices. Otherwise DPB_ERR_USAGE unless `uneven`, which gives the first global_batch % ranks ranks
 * one sample more. Logged with the remedy. */
dpb_status dpb_shard_of_batch(int64_t global_batch, int ranks, int rank, bool uneven,
                              int64_t *first, int64_t *count);

struct dpb_loader_config {
    const dpb_dataset *dataset; /* borrowed */
    int64_t global_batch;
    int ranks, rank;
    bool uneven;
    bool shuffle;   /* by (seed, epoch); the same order on all ranks */
    bool keep_last; /* the last, smaller batch of the epoch: kept (evaluation) or dropped */
    int64_t epochs; /* DPB_END after so many; 0: without end */
    uint64_t seed;
};

/* Batches of one rank: step s of epoch e takes global_batch consecutive samples of the epoch's
 * shuffled order, rank r its slice of them. The remainder of an epoch, samples % global_batch, is
 * left out of that epoch (another shuffle, other samples); with keep_last it is one smaller batch,
 * split unevenly. A global batch larger than the dataset is an error. */
typedef struct dpb_loader dpb_loader;
dpb_status dpb_loader_open(const struct dpb_loader_config *config, dpb_loader **loader);
void dpb_loader_close(dpb_loader *loader);
struct dpb_batch_source dpb_loader_source(dpb_loader *loader);
int64_t dpb_loader_steps_per_epoch(const dpb_loader *loader);
int64_t dpb_loader_dropped_per_epoch(const dpb_loader *loader);
int64_t dpb_loader_batch_max(const dpb_loader *loader); /* most samples of this rank in a batch */

#ifdef __cplusplus
}
#endif
#endif

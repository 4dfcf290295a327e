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

/* Token ids with a meaning of their own; words follow. */
enum dpb_token {
    DPB_TOKEN_START,     /* of every sample of masked models, like BERT's [CLS] */
    DPB_TOKEN_SEPARATOR, /* ends each of the two segments, like [SEP] */
    DPB_TOKEN_MASK,      /* stands for a hidden word, like [MASK] */
    DPB_TOKEN_WORDS      /* the first word */
};

/* How samples come to ranks. */
enum dpb_sharding {
    DPB_SHARDING_SAMPLES, /* a shuffled order of all samples, of which a rank takes slices */
    DPB_SHARDING_SHARDS,  /* rank r of n opens the shards s with s mod n = r only, and its slice of
                             every batch comes from them */
    /* Shards where there are several ranks, as many shards for each, and with them samples that
     * differ by at most one per shard; else samples. */
    DPB_SHARDING_AUTO
};

/* The dataset that `name` means for a model: itself where it fits. "auto" is the network's own data
 * where a package installs it by convention (fashion-mnist for 28x28x1 images), whether it is
 * installed or not, and synthetic data otherwise. A name that is none, or data that cannot fit:
 * DPB_ERR_USAGE, logged with what fits. */
dpb_status dpb_dataset_kind_for(const char *name, const struct dpb_model *model, const char **kind);

struct dpb_dataset_config {
    const char *kind;              /* one that fits the model; not "auto" */
    const struct dpb_model *model; /* borrowed: what its samples are made of */
    const char *folder;            /* image files, "" or NULL: where Debian installs them; packed */
    const char *file;              /* text or interactions */
    uint64_t seed;                 /* of all that is made up or drawn */
    int64_t samples;               /* synthetic: how many; 0: 60,000 train, 10,000 test */
    enum dpb_sharding sharding;    /* not SAMPLES: `owners` and `owner` count */
    int owners;                    /* ranks that shards are dealt to */
    int owner;                     /* whose shards are opened; DPB_ALL_OWNERS: everybody's */
};

#define DPB_ALL_OWNERS (-1)

/* Shards, and whose they are. */
struct dpb_deal {
    enum dpb_sharding sharding; /* SAMPLES or SHARDS */
    int owners, owner;          /* as configured */
    int shards;                 /* of the split; 0: it has none */
    const int64_t *first;       /* [shards + 1]: the first sample of each, and the end; the
                                   dataset's */
};

struct dpb_dataset_info {
    const char *kind;
    bool synthetic;     /* made up, here or when its files were made */
    const char *source; /* path of the (first) file; "synthetic" */
    int64_t samples;    /* of all shards, open or not */
    int files;          /* that this process has read or mapped, and their bytes; synthetic: 0 */
    int64_t file_bytes;
    int64_t held_bytes; /* of samples in this process's own memory; mapped files are not */
    struct dpb_deal deal;
};

/* What a split will need, before it is opened. */
struct dpb_dataset_size {
    int64_t samples;       /* that a rank puts in order: all, or those of its own shards */
    int64_t held_bytes;    /* struct dpb_dataset_info says the same afterwards; text: at most */
    int64_t reading_bytes; /* more, only while it is opened */
};

/* Memory of one batch: the arrays that the model's kind of input has (dpb_workload.h: struct
 * dpb_batch says their shapes), NULL for the others. */
struct dpb_batch_arrays {
    int32_t *label;
    float *x;
    int32_t *tokens, *segments, *predict_position, *predict_token;
    int32_t *indices;
};

/* Room for `samples` samples, zeroed and touched; at least one, so that no array is empty. */
dpb_status dpb_batch_arrays_open(const struct dpb_model *model, int64_t samples,
                                 struct dpb_batch_arrays *arrays);
void dpb_batch_arrays_release(struct dpb_batch_arrays *arrays);
/* The first `samples` of them as a batch of no step (0), the whole of its global batch; ids and
 * arrays stay the caller's. */
struct dpb_batch dpb_batch_of_arrays(const struct dpb_batch_arrays *arrays, const int64_t *ids,
                                     int64_t samples);

/* Open one split. Missing or damaged files: an error that names the file, the offset, what was
 * expected, and the package to install or the option to give.
 *
 *  fashion-mnist, mnist  IDX files, gzip-compressed or not. Pixels become (x/255 - mean) / std with
 *                        mean 0.2860, std 0.3530 for fashion-mnist, 0.1307, 0.3081 for mnist (the
 *                        usual published values of the training sets; a test computes them).
 *  cifar10               the binary version; normalised by the training set's means and deviations
 *  text                  a file of text, as byte-pair tokens learnt from it: the bytes and the
 * pairs that are most frequent, up to the vocabulary or 4096 in all. The last tenth is for testing
 *  interactions          a CSV file without header: label, dense features, an integer per table,
 *                        hashed into its rows; an empty field is 0. The last tenth is for testing.
 *                        A first line that begins with # is no row (dpb_interactions_csv.h)
 *  packed                what dpb_packed_write() made of another dataset, for a model with the same
 *                        samples; integers out of range are found when a sample is fetched, and so
 *                        are files that have become shorter since
 *  synthetic             made up for the model's kind of input; sample `id` of a seed and split is
 *                        the same whatever the ranks, batches and machine, and can be learnt.
 *
 * Tokens of a masked model: START, words, SEPARATOR, words, SEPARATOR; label 1: the second segment
 * follows the first, 0: it does not. `predicted` of the words are hidden, 80 % behind MASK, 10 %
 * behind any word, 10 % left as they are. Tokens of a next-token model: words only, label 0.
 *
 * DPB_SHARDING_SHARDS for data that has no shards, or fewer than `owners`: DPB_ERR_USAGE. */
dpb_status dpb_dataset_open(const struct dpb_dataset_config *config, enum dpb_split split,
                            dpb_dataset **dataset);

/* Say what a split will need, from the sizes of its files, the lines of a CSV file, the index of
 * shards. False where it cannot be known, since they are not there; image sets of known sizes are
 * known all the same. Logs nothing but an index of shards that is damaged. */
bool dpb_dataset_predict(const struct dpb_dataset_config *config, enum dpb_split split,
                         struct dpb_dataset_size *size);
void dpb_dataset_close(dpb_dataset *dataset);
void dpb_dataset_describe(const dpb_dataset *dataset, struct dpb_dataset_info *info);
const struct dpb_model *dpb_dataset_model(const dpb_dataset *dataset);

/* Write samples `ids` to the first `count` places of the arrays. Allocates nothing; from several
 * threads at once if you like, in none of which SIGBUS may be blocked. */
dpb_status dpb_dataset_fetch(const dpb_dataset *dataset, const int64_t *ids, int64_t count,
                             const struct dpb_batch_arrays *arrays);

/* ---- sharding ---- */

/* How a global batch is split: rank r takes samples [first, first + count) of it. Divisible: equal
 * slices. Otherwise DPB_ERR_USAGE unless `uneven`, which gives the first global_batch % ranks ranks
 * one sample more. Logged with the remedy. */
dpb_status dpb_shard_of_batch(int64_t global_batch, int ranks, int rank, bool uneven,
                              int64_t *first, int64_t *count);

struct dpb_loader_config {
    const dpb_dataset *dataset; /* borrowed */
    int64_t global_batch;
    int64_t batches_per_step; /* micro-batches that a training step takes one by one; 0: one */
    bool joined;              /* instead, a step's micro-batches are one batch; for one rank */
    int ranks, rank;
    bool uneven;
    bool shuffle;   /* by (seed, epoch); the same order on all ranks */
    bool keep_last; /* the last, smaller batch of the epoch: kept (evaluation) or dropped */
    int64_t epochs; /* DPB_END after so many; 0: without end */
    /* Make batch n + 1 in a thread of its own while batch n is used, or when it is asked for if the
     * thread has not begun. The thread inherits the cores of the one that opens the loader, and
     * sleeps while it has nothing to do. */
    bool background;
    uint64_t seed;
};

/* Batches of one rank: step s of epoch e takes global_batch consecutive samples of the epoch's
 * shuffled order, rank r its slice of them. The remainder of an epoch, samples % global_batch, is
 * left out of that epoch (another shuffle, other samples); with keep_last it is one smaller batch,
 * split unevenly. A global batch larger than the dataset is an error. Steps may be asked for in any
 * order; the next one is what is ready early.
 *
 * With micro-batches, global_batch is the size of one and they are what is numbered: a training
 * step takes the next batches_per_step of them, and an epoch has whole steps only. keep_last is not
 * for them.
 *
 * A dataset in shards: every owner has a shuffled order of its own samples, and its slice of every
 * batch is the next ones of it. An epoch ends when the first owner has too few left for a step;
 * with keep_last the others go on, and slices become smaller or empty. `ranks` and `rank` must be
 * the dataset's owners and owner; or there is one rank and the dataset has everybody's shards: it
 * takes the slices of all owners, the same global batches as they. */
typedef struct dpb_loader dpb_loader;
dpb_status dpb_loader_open(const struct dpb_loader_config *config, dpb_loader **loader);
void dpb_loader_close(dpb_loader *loader);
struct dpb_batch_source dpb_loader_source(dpb_loader *loader);
int64_t dpb_loader_steps_per_epoch(const dpb_loader *loader); /* training steps */
int64_t dpb_loader_dropped_per_epoch(const dpb_loader *loader);
int64_t dpb_loader_batch_max(const dpb_loader *loader); /* most samples of this rank in a batch */

#ifdef __cplusplus
}
#endif
#endif

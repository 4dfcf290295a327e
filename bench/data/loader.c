#include "dpb_dataset.h"

#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"
#include "dpb_rng.h"

/* Streams of one seed are told apart by their upper half ("shuf"); the lower is the epoch. */
#define SHUFFLE_STREAM ((uint64_t)0x73687566 << 32)

struct dpb_loader {
    struct dpb_loader_config config;
    int64_t samples; /* of the dataset */
    int64_t steps_per_epoch;
    int64_t batch_max;
    int64_t epoch;  /* whose order `order` holds; -1: none yet */
    int64_t *order; /* [samples] */
    float *x;
    int32_t *label;
};

dpb_status dpb_shard_of_batch(int64_t global_batch, int ranks, int rank, bool uneven,
                              int64_t *first, int64_t *count)
{
    int64_t each, more;

    if (global_batch < 1 || ranks < 1 || rank < 0 || rank >= ranks) {
        dpb_error("cannot give rank %d of %d its share of a global batch of %lld samples", rank,
                  ranks, (long long)global_batch);
        return DPB_ERR_USAGE;
    }
    each = global_batch / ranks;
    more = global_batch % ranks;
    if (more != 0 && !uneven) {
        dpb_error("a global batch of %lld samples cannot be split equally over %d ranks: %lld "
                  "left over",
                  (long long)global_batch, ranks, (long long)more);
        dpb_log_hint("use a multiple of %d, such as %lld, or allow unequal shares with --uneven",
                     ranks, (long long)(each > 0 ? each * ranks : ranks));
        return DPB_ERR_USAGE;
    }
    *first = rank * each + (rank < more ? rank : more);
    *count = each + (rank < more ? 1 : 0);
    return DPB_OK;
}

/* Samples of the whole step `in_epoch` (from 0): fewer than global_batch only in a kept last one.
 */
static int64_t step_samples(const dpb_loader *loader, int64_t in_epoch)
{
    int64_t left = loader->samples - in_epoch * loader->config.global_batch;

    return left < loader->config.global_batch ? left : loader->config.global_batch;
}

static dpb_status step_shard(const dpb_loader *loader, int64_t in_epoch, int64_t *first,
                             int64_t *count)
{
    int64_t samples = step_samples(loader, in_epoch);
    bool uneven = loader->config.uneven || samples < loader->config.global_batch;

    DPB_TRY(dpb_shard_of_batch(samples, loader->config.ranks, loader->config.rank, uneven, first,
                               count));
    *first += in_epoch * loader->config.global_batch;
    return DPB_OK;
}

static void set_epoch(dpb_loader *loader, int64_t epoch)
{
    struct dpb_rng rng;

    if (loader->epoch == epoch)
        return;
    for (int64_t i = 0; i < loader->samples; i++)
        loader->order[i] = i;
    if (loader->config.shuffle) {
        dpb_rng_init(&rng, loader->config.seed, SHUFFLE_STREAM | (uint64_t)epoch);
        dpb_rng_shuffle_i64(&rng, loader->order, loader->samples);
    }
    loader->epoch = epoch;
}

static dpb_status next(void *ctx, int64_t step, struct dpb_batch *batch)
{
    dpb_loader *loader = ctx;
    int64_t epoch, in_epoch, first, count;

    if (step < 1) {
        dpb_error("there is no training step %lld: steps count from 1", (long long)step);
        return DPB_ERR_USAGE;
    }
    epoch = (step - 1) / loader->steps_per_epoch;
    in_epoch = (step - 1) % loader->steps_per_epoch;
    if (loader->config.epochs > 0 && epoch >= loader->config.epochs)
        return DPB_END;
    DPB_TRY(step_shard(loader, in_epoch, &first, &count));
    set_epoch(loader, epoch);
    DPB_TRY(dpb_dataset_fetch(loader->config.dataset, loader->order + first, count, loader->x,
                              loader->label));
    *batch = (struct dpb_batch){.samples = count,
                                .x = loader->x,
                                .label = loader->label,
                                .sample_ids = loader->order + first};
    return DPB_OK;
}

static dpb_status check_config(const struct dpb_loader_config *config, int64_t samples)
{
    int64_t first, count;

    DPB_TRY(dpb_shard_of_batch(config->global_batch, config->ranks, config->rank, config->uneven,
                               &first, &count));
    if (config->global_batch > samples) {
        dpb_error("a global batch of %lld samples is larger than the dataset of %lld",
                  (long long)config->global_batch, (long long)samples);
        dpb_log_hint("use a smaller batch or fewer ranks");
        return DPB_ERR_USAGE;
    }
    if (config->epochs < 0) {
        dpb_error("cannot read %lld epochs", (long long)config->epochs);
        return DPB_ERR_USAGE;
    }
    return DPB_OK;
}

dpb_status dpb_loader_open(const struct dpb_loader_config *config, dpb_loader **loader)
{
    int64_t elements = dpb_dataset_sample_elements(config->dataset), first;
    struct dpb_dataset_info info;
    dpb_loader *opened;
    dpb_status st;
    size_t room;

    dpb_dataset_describe(config->dataset, &info);
    DPB_TRY(check_config(config, info.samples));
    opened = calloc(1, sizeof(*opened));
    if (!opened)
        goto err_memory;
    opened->config = *config;
    opened->samples = info.samples;
    opened->steps_per_epoch = info.samples / config->global_batch;
    if (config->keep_last && info.samples % config->global_batch != 0)
        opened->steps_per_epoch++;
    /* A kept last batch is smaller than the others on every rank, so the first tells the most. */
    st = step_shard(opened, 0, &first, &opened->batch_max);
    if (st < 0) {
        dpb_loader_close(opened);
        return st;
    }
    opened->epoch = -1;
    /* A rank of an uneven split may have no sample at all; its memory still has to be something. */
    room = opened->batch_max > 0 ? (size_t)opened->batch_max : 1;
    opened->order = malloc((size_t)opened->samples * sizeof(int64_t));
    opened->x = malloc(room * (size_t)elements * sizeof(float));
    opened->label = malloc(room * sizeof(int32_t));
    if (!opened->order || !opened->x || !opened->label)
        goto err_memory;
    /* Touched here, so that no step pays for page faults. */
    memset(opened->x, 0, room * (size_t)elements * sizeof(float));
    memset(opened->label, 0, room * sizeof(int32_t));
    set_epoch(opened, 0);
    *loader = opened;
    return DPB_OK;

err_memory:
    dpb_error("out of memory for batches of %lld samples of %lld numbers",
              (long long)config->global_batch, (long long)elements);
    dpb_loader_close(opened);
    return DPB_ERR_NO_MEMORY;
}

void dpb_loader_close(dpb_loader *loader)
{
    if (!loader)
        return;
    free(loader->order);
    free(loader->x);
    free(loader->label);
    free(loader);
}

struct dpb_batch_source dpb_loader_source(dpb_loader *loader)
{
    return (struct dpb_batch_source){.ctx = loader, .next = next};
}

int64_t dpb_loader_steps_per_epoch(const dpb_loader *loader)
{
    return loader->steps_per_epoch;
}

int64_t dpb_loader_dropped_per_epoch(const dpb_loader *loader)
{
    return loader->config.keep_last ? 0 : loader->samples % loader->config.global_batch;
}

int64_t dpb_loader_batch_max(const dpb_loader *loader)
{
    return loader->batch_max;
}

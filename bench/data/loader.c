#include "dpb_dataset.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"
#include "dpb_rng.h"

/* Streams of one seed are told apart by their upper half ("shuf"); the lower is the epoch. */
#define SHUFFLE_STREAM ((uint64_t)0x73687566 << 32)

/* Memory of one batch, and what making it came to. */
struct slot {
    struct dpb_batch_arrays arrays;
    int64_t *ids; /* [batch_max] */
    int64_t samples;
    int64_t step, first; /* as in struct dpb_batch */
    dpb_status st;
};

enum back_state {
    BACK_WANTED, /* nobody has begun to make it */
    BACK_MAKING,
    BACK_MADE
};

struct dpb_loader {
    struct dpb_loader_config config;
    int64_t samples; /* of the dataset */
    int64_t steps_per_epoch;
    int64_t batch_max;
    int64_t epoch;  /* whose order `order` holds; -1: none yet */
    int64_t *order; /* [samples] */
    struct slot slot[2];
    int back; /* the slot that is made, or will be; the other one is with the caller */
    bool has_thread;
    pthread_t thread;
    pthread_mutex_t mutex; /* guards the rest; who sets BACK_MAKING has the back slot and `order` */
    pthread_cond_t changed;
    int64_t step; /* of the back slot */
    enum back_state state;
    bool stop;
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

/* This rank's place in that step's global batch. */
static dpb_status step_shard(const dpb_loader *loader, int64_t in_epoch, int64_t *first,
                             int64_t *count)
{
    int64_t samples = step_samples(loader, in_epoch);
    bool uneven = loader->config.uneven || samples < loader->config.global_batch;

    return dpb_shard_of_batch(samples, loader->config.ranks, loader->config.rank, uneven, first,
                              count);
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

static dpb_status make_batch(dpb_loader *loader, int64_t step, struct slot *slot)
{
    int64_t epoch = (step - 1) / loader->steps_per_epoch;
    int64_t in_epoch = (step - 1) % loader->steps_per_epoch;

    if (loader->config.epochs > 0 && epoch >= loader->config.epochs)
        return DPB_END;
    DPB_TRY(step_shard(loader, in_epoch, &slot->first, &slot->samples));
    slot->step = step;
    set_epoch(loader, epoch);
    /* Copied, since the order of the next epoch may be made while this batch is in use. */
    memcpy(slot->ids, loader->order + in_epoch * loader->config.global_batch + slot->first,
           (size_t)slot->samples * sizeof(*slot->ids));
    return dpb_dataset_fetch(loader->config.dataset, slot->ids, slot->samples, &slot->arrays);
}

/* ---- the thread ---- */

/* Make the back slot's batch. The mutex is held, but not meanwhile. */
static void make_back(dpb_loader *loader)
{
    struct slot *slot = &loader->slot[loader->back];
    int64_t step = loader->step;

    loader->state = BACK_MAKING;
    pthread_mutex_unlock(&loader->mutex);
    slot->st = make_batch(loader, step, slot);
    pthread_mutex_lock(&loader->mutex);
    loader->state = BACK_MADE;
}

static void *work(void *ctx)
{
    dpb_loader *loader = ctx;

    pthread_mutex_lock(&loader->mutex);
    for (;;) {
        while (loader->state != BACK_WANTED && !loader->stop)
            pthread_cond_wait(&loader->changed, &loader->mutex);
        if (loader->stop)
            break;
        make_back(loader);
        pthread_cond_broadcast(&loader->changed);
    }
    pthread_mutex_unlock(&loader->mutex);
    return NULL;
}

/* The step's batch from the back slot; then turn the slots round and have the next step made. What
 * the thread has not begun is made here: on a busy core, waiting for it to get its turn would take
 * longer. */
static const struct slot *take_step(dpb_loader *loader, int64_t step)
{
    struct slot *slot;

    pthread_mutex_lock(&loader->mutex);
    while (loader->state == BACK_MAKING)
        pthread_cond_wait(&loader->changed, &loader->mutex);
    if (loader->state == BACK_WANTED || loader->step != step) {
        loader->step = step;
        make_back(loader);
    }
    slot = &loader->slot[loader->back];
    if (slot->st == DPB_OK) {
        loader->back = 1 - loader->back;
        loader->step = step + 1;
        loader->state = BACK_WANTED;
        pthread_cond_broadcast(&loader->changed);
    }
    pthread_mutex_unlock(&loader->mutex);
    return slot;
}

static dpb_status start_thread(dpb_loader *loader)
{
    sigset_t all, before;
    int failed;

    pthread_mutex_init(&loader->mutex, NULL);
    pthread_cond_init(&loader->changed, NULL);
    loader->step = 1;
    /* Signals are for the thread that trains. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&loader->thread, NULL, work, loader);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        pthread_cond_destroy(&loader->changed);
        pthread_mutex_destroy(&loader->mutex);
        dpb_error("cannot start the thread that makes batches: %s", strerror(failed));
        return DPB_ERR_IO;
    }
    pthread_setname_np(loader->thread, "dpb-data");
    loader->has_thread = true;
    return DPB_OK;
}

static void end_thread(dpb_loader *loader)
{
    pthread_mutex_lock(&loader->mutex);
    loader->stop = true;
    pthread_cond_broadcast(&loader->changed);
    pthread_mutex_unlock(&loader->mutex);
    pthread_join(loader->thread, NULL);
    pthread_cond_destroy(&loader->changed);
    pthread_mutex_destroy(&loader->mutex);
}

static dpb_status next(void *ctx, int64_t step, struct dpb_batch *batch)
{
    dpb_loader *loader = ctx;
    const struct slot *slot = &loader->slot[0];

    if (step < 1) {
        dpb_error("there is no training step %lld: steps count from 1", (long long)step);
        return DPB_ERR_USAGE;
    }
    if (loader->has_thread)
        slot = take_step(loader, step);
    else
        loader->slot[0].st = make_batch(loader, step, &loader->slot[0]);
    if (slot->st != DPB_OK)
        return slot->st;
    *batch = dpb_batch_of_arrays(&slot->arrays, slot->ids, slot->samples);
    batch->step = slot->step;
    batch->first = slot->first;
    return DPB_OK;
}

/* ---- open ---- */

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

static dpb_status open_memory(dpb_loader *loader)
{
    const struct dpb_model *model = dpb_dataset_model(loader->config.dataset);
    /* A rank of an uneven split may have no sample at all; its memory still has to be something. */
    int64_t room = loader->batch_max > 0 ? loader->batch_max : 1;
    int slots = loader->config.background ? 2 : 1;

    loader->order = malloc((size_t)loader->samples * sizeof(*loader->order));
    if (!loader->order)
        goto err_memory;
    for (int i = 0; i < slots; i++) {
        struct slot *slot = &loader->slot[i];

        slot->ids = calloc((size_t)room, sizeof(*slot->ids));
        if (!slot->ids)
            goto err_memory;
        DPB_TRY(dpb_batch_arrays_open(model, room, &slot->arrays));
    }
    return DPB_OK;

err_memory:
    dpb_error("out of memory for the order of %lld samples", (long long)loader->samples);
    return DPB_ERR_NO_MEMORY;
}

dpb_status dpb_loader_open(const struct dpb_loader_config *config, dpb_loader **loader)
{
    struct dpb_dataset_info info;
    dpb_loader *opened;
    int64_t first;
    dpb_status st;

    dpb_dataset_describe(config->dataset, &info);
    DPB_TRY(check_config(config, info.samples));
    opened = calloc(1, sizeof(*opened));
    if (!opened) {
        dpb_error("out of memory for a loader");
        return DPB_ERR_NO_MEMORY;
    }
    opened->config = *config;
    opened->samples = info.samples;
    opened->steps_per_epoch = info.samples / config->global_batch;
    if (config->keep_last && info.samples % config->global_batch != 0)
        opened->steps_per_epoch++;
    opened->epoch = -1;
    /* A kept last batch is smaller than the others on every rank, so the first tells the most. */
    DPB_TRY_GOTO(st, step_shard(opened, 0, &first, &opened->batch_max), err);
    DPB_TRY_GOTO(st, open_memory(opened), err);
    set_epoch(opened, 0);
    if (config->background)
        DPB_TRY_GOTO(st, start_thread(opened), err);
    *loader = opened;
    return DPB_OK;

err:
    dpb_loader_close(opened);
    return st;
}

void dpb_loader_close(dpb_loader *loader)
{
    if (!loader)
        return;
    if (loader->has_thread)
        end_thread(loader);
    for (int i = 0; i < 2; i++) {
        free(loader->slot[i].ids);
        dpb_batch_arrays_release(&loader->slot[i].arrays);
    }
    free(loader->order);
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

#include "dpb_dataset.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"
#include "sample_order.h"

/* Memory of one batch, and what making it came to. */
struct slot {
    struct dpb_batch_arrays arrays;
    int64_t *ids; /* [batch_max] */
    int64_t step;
    struct dpb_sample_slice slice;
    dpb_status st;
};

enum back_state {
    BACK_WANTED, /* nobody has begun to make it */
    BACK_MAKING,
    BACK_MADE
};

struct dpb_loader {
    const dpb_dataset *dataset;
    struct dpb_sample_order order;
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

static dpb_status make_batch(dpb_loader *loader, int64_t step, struct slot *slot)
{
    dpb_status st = dpb_sample_order_take(&loader->order, step, slot->ids, &slot->slice);

    if (st != DPB_OK)
        return st;
    slot->step = step;
    return dpb_dataset_fetch(loader->dataset, slot->ids, slot->slice.count, &slot->arrays);
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
    /* Signals are for the thread that trains, but for the one that its own reading may raise. */
    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&loader->thread, NULL, work, loader);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        pthread_cond_destroy(&loader->changed);
        pthread_mutex_destroy(&loader->mutex);
        dpb_error("cannot start the thread that makes batches: %s", strerror(failed));
        dpb_log_hint("allow more threads (ulimit -u) or memory (ulimit -v)");
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
    *batch = dpb_batch_of_arrays(&slot->arrays, slot->ids, slot->slice.count);
    batch->step = slot->step;
    batch->first = slot->slice.first;
    return DPB_OK;
}

/* ---- open ---- */

static dpb_status open_slots(dpb_loader *loader, int slots)
{
    /* A rank of an uneven split may have no sample at all; its memory still has to be something. */
    int64_t room = loader->order.batch_max > 0 ? loader->order.batch_max : 1;

    for (int i = 0; i < slots; i++) {
        struct slot *slot = &loader->slot[i];

        slot->ids = calloc((size_t)room, sizeof(*slot->ids));
        if (!slot->ids) {
            dpb_error("out of memory for the numbers of %lld samples", (long long)room);
            return DPB_ERR_NO_MEMORY;
        }
        DPB_TRY(dpb_batch_arrays_open(dpb_dataset_model(loader->dataset), room, &slot->arrays));
    }
    return DPB_OK;
}

dpb_status dpb_loader_open(const struct dpb_loader_config *config, dpb_loader **loader)
{
    dpb_loader *opened = calloc(1, sizeof(*opened));
    dpb_status st;

    if (!opened) {
        dpb_error("out of memory for a loader");
        return DPB_ERR_NO_MEMORY;
    }
    opened->dataset = config->dataset;
    DPB_TRY_GOTO(st, dpb_sample_order_open(config, &opened->order), err);
    DPB_TRY_GOTO(st, open_slots(opened, config->background ? 2 : 1), err);
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
    dpb_sample_order_release(&loader->order);
    free(loader);
}

struct dpb_batch_source dpb_loader_source(dpb_loader *loader)
{
    return (struct dpb_batch_source){.ctx = loader, .next = next};
}

int64_t dpb_loader_steps_per_epoch(const dpb_loader *loader)
{
    return loader->order.batches_per_epoch / loader->order.config.batches_per_step;
}

int64_t dpb_loader_dropped_per_epoch(const dpb_loader *loader)
{
    return loader->order.dropped_per_epoch;
}

int64_t dpb_loader_batch_max(const dpb_loader *loader)
{
    return loader->order.batch_max;
}

#include "sample_order.h"

#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"
#include "dpb_rng.h"

/* Streams of one seed are told apart by their upper half; the lower is the epoch. */
#define SHUFFLE_STREAM ((uint64_t)0x73687566 << 32) /* "shuf" */
#define OWNER_STREAM   ((uint64_t)0x6f77 << 48)     /* "ow", and the owner's number */

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

static bool by_shards(const struct dpb_sample_order *order)
{
    return order->deal.sharding == DPB_SHARDING_SHARDS;
}

/* Samples that are left of `samples` at step `in_epoch` (from 0) of `each`: fewer than that only in
 * a kept last step, and none after it. */
static int64_t left_of(int64_t samples, int64_t each, int64_t in_epoch)
{
    int64_t left = samples - in_epoch * each;

    return left < 0 ? 0 : left < each ? left : each;
}

/* As many of `batches` as make whole training steps. */
static int64_t whole_steps(const struct dpb_loader_config *config, int64_t batches)
{
    return batches - batches % config->batches_per_step;
}

/* ---- all samples in one order ---- */

static dpb_status slice_of_samples(const struct dpb_sample_order *order, int64_t in_epoch,
                                   struct dpb_sample_slice *slice)
{
    const struct dpb_loader_config *c = &order->config;
    int64_t samples = left_of(order->samples, c->global_batch, in_epoch);

    return dpb_shard_of_batch(samples, c->ranks, c->rank, c->uneven || samples < c->global_batch,
                              &slice->first, &slice->count);
}

static void plan_samples(struct dpb_sample_order *order)
{
    const struct dpb_loader_config *c = &order->config;

    order->batches_per_epoch = whole_steps(c, order->samples / c->global_batch);
    order->dropped_per_epoch = order->samples - order->batches_per_epoch * c->global_batch;
    if (c->keep_last && order->dropped_per_epoch > 0) {
        order->batches_per_epoch++;
        order->dropped_per_epoch = 0;
    }
}

/* ---- an order for every owner ---- */

/* Samples of an owner in a full step. */
static int64_t owner_step(const struct dpb_sample_order *order, int owner)
{
    int64_t owners = order->deal.owners, batch = order->config.global_batch;

    return batch / owners + (owner < batch % owners ? 1 : 0);
}

static int64_t owner_takes(const struct dpb_sample_order *order, int owner, int64_t in_epoch)
{
    return left_of(order->owner_samples[owner], owner_step(order, owner), in_epoch);
}

static struct dpb_sample_slice slice_of_owners(const struct dpb_sample_order *order,
                                               int64_t in_epoch)
{
    struct dpb_sample_slice slice = {0};
    int begin = order->pool[0].owner;

    for (int owner = 0; owner < begin; owner++)
        slice.first += owner_takes(order, owner, in_epoch);
    for (int i = 0; i < order->pool_count; i++)
        slice.count += owner_takes(order, begin + i, in_epoch);
    return slice;
}

static dpb_status count_owned(struct dpb_sample_order *order)
{
    const struct dpb_deal *deal = &order->deal;

    order->owner_samples = calloc((size_t)deal->owners, sizeof(*order->owner_samples));
    if (!order->owner_samples) {
        dpb_error("out of memory for the shards of %d ranks", deal->owners);
        return DPB_ERR_NO_MEMORY;
    }
    for (int i = 0; i < deal->shards; i++)
        order->owner_samples[i % deal->owners] += deal->first[i + 1] - deal->first[i];
    return DPB_OK;
}

/* An epoch lasts as long as every owner has samples for a step; with keep_last, as any has one. */
static dpb_status plan_owners(struct dpb_sample_order *order)
{
    const struct dpb_loader_config *c = &order->config;
    int64_t least = INT64_MAX, most = 0;

    DPB_TRY(count_owned(order));
    for (int owner = 0; owner < order->deal.owners; owner++) {
        int64_t samples = order->owner_samples[owner], each = owner_step(order, owner);

        if (each < 1 || (samples < each * c->batches_per_step && !c->keep_last)) {
            dpb_error(
                    "--sharding shards: rank %d has %lld samples in its shards, a step takes %lld "
                    "of them",
                    owner, (long long)samples, (long long)(each * c->batches_per_step));
            dpb_log_hint("use a global batch of at least a sample for every rank and at most what "
                         "the shards of each hold, or --sharding samples");
            return DPB_ERR_USAGE;
        }
        int64_t steps = samples / each, all = steps + (samples % each != 0);
        least = steps < least ? steps : least;
        most = all > most ? all : most;
    }
    least = whole_steps(c, least);
    order->batches_per_epoch = c->keep_last ? most : least;
    order->dropped_per_epoch = c->keep_last ? 0 : order->samples - least * c->global_batch;
    return DPB_OK;
}

/* ---- orders ---- */

static void list_samples(const struct dpb_sample_order *order, struct dpb_sample_pool *pool)
{
    const struct dpb_deal *deal = &order->deal;
    int64_t at = 0;

    if (!by_shards(order))
        for (int64_t i = 0; i < pool->samples; i++)
            pool->order[i] = i;
    for (int s = pool->owner; by_shards(order) && s < deal->shards; s += deal->owners)
        for (int64_t i = deal->first[s]; i < deal->first[s + 1]; i++)
            pool->order[at++] = i;
}

static void set_epoch(const struct dpb_sample_order *order, struct dpb_sample_pool *pool,
                      int64_t epoch)
{
    uint64_t stream =
            by_shards(order) ? OWNER_STREAM | (uint64_t)pool->owner << 32 : SHUFFLE_STREAM;
    struct dpb_rng rng;

    if (pool->epoch == epoch)
        return;
    list_samples(order, pool);
    if (order->config.shuffle) {
        dpb_rng_init(&rng, order->config.seed, stream | (uint64_t)epoch);
        dpb_rng_shuffle_i64(&rng, pool->order, pool->samples);
    }
    pool->epoch = epoch;
}

static dpb_status open_pools(struct dpb_sample_order *order)
{
    const struct dpb_deal *deal = &order->deal;
    bool all = by_shards(order) && deal->owner == DPB_ALL_OWNERS;

    order->pool_count = all ? deal->owners : 1;
    order->pool = calloc((size_t)order->pool_count, sizeof(*order->pool));
    for (int i = 0; order->pool && i < order->pool_count; i++) {
        struct dpb_sample_pool *pool = &order->pool[i];

        pool->owner = all ? i : by_shards(order) ? deal->owner : 0;
        pool->samples = by_shards(order) ? order->owner_samples[pool->owner] : order->samples;
        pool->epoch = -1;
        pool->order = malloc((size_t)pool->samples * sizeof(*pool->order));
        if (!pool->order)
            break;
        set_epoch(order, pool, 0);
    }
    if (order->pool && order->pool[order->pool_count - 1].order)
        return DPB_OK;
    dpb_error("out of memory for the order of %lld samples", (long long)order->samples);
    return DPB_ERR_NO_MEMORY;
}

/* ---- open ---- */

static dpb_status check_config(const struct dpb_sample_order *order)
{
    const struct dpb_loader_config *c = &order->config;
    const struct dpb_deal *deal = &order->deal;
    int64_t first, count;

    DPB_TRY(dpb_shard_of_batch(c->global_batch, c->ranks, c->rank, c->uneven, &first, &count));
    if (c->global_batch * c->batches_per_step > order->samples) {
        dpb_error("a global batch of %lld samples is larger than the dataset of %lld",
                  (long long)(c->global_batch * c->batches_per_step), (long long)order->samples);
        dpb_log_hint("use a smaller batch or fewer ranks");
        return DPB_ERR_USAGE;
    }
    if (c->batches_per_step > 1 && (c->keep_last || (c->joined && c->ranks != 1))) {
        dpb_error("cannot keep the last of micro-batches, or join those of %d ranks", c->ranks);
        return DPB_ERR_USAGE;
    }
    if (c->epochs < 0) {
        dpb_error("cannot read %lld epochs", (long long)c->epochs);
        return DPB_ERR_USAGE;
    }
    if (by_shards(order) &&
        (deal->owner == DPB_ALL_OWNERS ? c->ranks != 1
                                       : c->ranks != deal->owners || c->rank != deal->owner)) {
        dpb_error("rank %d of %d cannot read the shards of rank %d of %d", c->rank, c->ranks,
                  deal->owner, deal->owners);
        return DPB_ERR_USAGE;
    }
    return DPB_OK;
}

static dpb_status open_order(struct dpb_sample_order *order)
{
    struct dpb_sample_slice slice;

    DPB_TRY(check_config(order));
    if (by_shards(order))
        DPB_TRY(plan_owners(order));
    else
        plan_samples(order);
    DPB_TRY(open_pools(order));
    /* Later steps are smaller, if anything. */
    if (by_shards(order))
        slice = slice_of_owners(order, 0);
    else
        DPB_TRY(slice_of_samples(order, 0, &slice));
    order->batch_max = slice.count * (order->config.joined ? order->config.batches_per_step : 1);
    return DPB_OK;
}

dpb_status dpb_sample_order_open(const struct dpb_loader_config *config,
                                 struct dpb_sample_order *order)
{
    struct dpb_sample_order opened = {.config = *config};
    struct dpb_dataset_info info;

    if (opened.config.batches_per_step < 1)
        opened.config.batches_per_step = 1;
    dpb_dataset_describe(config->dataset, &info);
    opened.samples = info.samples;
    opened.deal = info.deal;
    dpb_status st = open_order(&opened);
    if (st < 0) {
        dpb_sample_order_release(&opened);
        return st;
    }
    *order = opened;
    return DPB_OK;
}

void dpb_sample_order_release(struct dpb_sample_order *order)
{
    for (int i = 0; order->pool && i < order->pool_count; i++)
        free(order->pool[i].order);
    free(order->pool);
    free(order->owner_samples);
    *order = (struct dpb_sample_order){0};
}

/* ---- take ---- */

/* Batch number `number` as it was dealt, from 1. */
static dpb_status take_batch(struct dpb_sample_order *order, int64_t number, int64_t *ids,
                             struct dpb_sample_slice *slice)
{
    int64_t epoch = (number - 1) / order->batches_per_epoch;
    int64_t in_epoch = (number - 1) % order->batches_per_epoch;

    if (order->config.epochs > 0 && epoch >= order->config.epochs)
        return DPB_END;
    if (!by_shards(order)) {
        struct dpb_sample_pool *pool = &order->pool[0];

        DPB_TRY(slice_of_samples(order, in_epoch, slice));
        set_epoch(order, pool, epoch);
        memcpy(ids, pool->order + in_epoch * order->config.global_batch + slice->first,
               (size_t)slice->count * sizeof(*ids));
        return DPB_OK;
    }
    *slice = slice_of_owners(order, in_epoch);
    for (int i = 0; i < order->pool_count; i++) {
        struct dpb_sample_pool *pool = &order->pool[i];
        int64_t takes = owner_takes(order, pool->owner, in_epoch);

        set_epoch(order, pool, epoch);
        memcpy(ids, pool->order + in_epoch * owner_step(order, pool->owner),
               (size_t)takes * sizeof(*ids));
        ids += takes;
    }
    return DPB_OK;
}

dpb_status dpb_sample_order_take(struct dpb_sample_order *order, int64_t number, int64_t *ids,
                                 struct dpb_sample_slice *slice)
{
    int64_t batches = order->config.joined ? order->config.batches_per_step : 1;
    struct dpb_sample_slice sum = {0};

    for (int64_t i = 0; i < batches; i++) {
        struct dpb_sample_slice part;
        dpb_status st = take_batch(order, (number - 1) * batches + i + 1, ids + sum.count, &part);

        if (st != DPB_OK)
            return st;
        sum.first = i == 0 ? part.first : sum.first;
        sum.count += part.count;
    }
    *slice = sum;
    return DPB_OK;
}

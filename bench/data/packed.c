/* Samples from packed shards, which are mapped: nothing is kept in memory of the rank's own. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dpb_log.h"
#include "dpb_str.h"
#include "packed_shard.h"
#include "source.h"

struct packed {
    const struct dpb_model *model;
    struct dpb_packed_split split;
};

/* The shard that holds sample `id`: the last one whose first sample is not behind it. */
static int shard_of(const struct dpb_packed_split *split, int64_t id)
{
    int low = 0, high = split->shard_count - 1;

    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (split->first[middle] <= id)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static bool is_owned(const struct dpb_deal *deal, int shard)
{
    return deal->sharding == DPB_SHARDING_SAMPLES || deal->owner == DPB_ALL_OWNERS ||
           shard % deal->owners == deal->owner;
}

/* Integers out of range would be addresses of rows that are not there. */
static dpb_status check_range(const struct dpb_packed_shard *shard, int64_t id, uint64_t offset,
                              const struct dpb_packed_array *array, const int32_t *values)
{
    for (int64_t k = 0; k < array->count; k++) {
        int64_t limit = array->limits ? array->limits[k] : array->limit;
        if (values[k] >= 0 && values[k] < limit)
            continue;
        dpb_error("\"%s\": %d in sample %lld (byte %lld) is not from 0 to below %lld", shard->path,
                  values[k], (long long)id, (long long)offset + k * DPB_PACKED_ELEMENT,
                  (long long)limit);
        dpb_log_hint("`dpbench data check` finds damaged shards; pack the data again");
        return DPB_ERR_CORRUPT;
    }
    return DPB_OK;
}

static dpb_status read_sample(const void *ctx, int64_t id, const struct dpb_batch_arrays *arrays,
                              int64_t at)
{
    const struct packed *packed = ctx;
    const struct dpb_packed_shard *shard = &packed->split.shard[shard_of(&packed->split, id)];
    const struct dpb_packed_header *h = &shard->header;
    struct dpb_packed_array array[DPB_PACKED_ARRAYS];
    int count = dpb_packed_arrays(packed->model, arrays, array);

    if (!shard->bytes) {
        dpb_error("sample %lld lies in \"%s\", which this rank has not opened", (long long)id,
                  shard->path);
        return DPB_ERR_INTERNAL;
    }
    uint64_t offset = h->payload_offset + ((uint64_t)id - h->first_sample) * h->record_bytes;
    for (int i = 0; i < count; i++) {
        uint64_t bytes = (uint64_t)array[i].count * DPB_PACKED_ELEMENT;
        uint8_t *to = (uint8_t *)array[i].base + (uint64_t)at * bytes;
        DPB_TRY(dpb_packed_shard_read(shard, offset, bytes, to));
        if (array[i].limit > 0)
            DPB_TRY(check_range(shard, id, offset, &array[i], (const int32_t *)to));
        offset += bytes;
    }
    return DPB_OK;
}

static dpb_status confirm(const void *ctx)
{
    const struct packed *packed = ctx;

    for (int i = 0; i < packed->split.shard_count; i++)
        if (packed->split.shard[i].bytes)
            DPB_TRY(dpb_packed_shard_confirm(&packed->split.shard[i]));
    return DPB_OK;
}

static void close_packed(void *ctx)
{
    struct packed *packed = ctx;

    dpb_packed_split_close(&packed->split);
    free(packed);
}

/* ---- does it fit the network? ---- */

static void model_of_shape(const struct dpb_packed_shape *shape, struct dpb_model *model)
{
    *model = (struct dpb_model){.input = (enum dpb_input_kind)shape->input,
                                .sequence = shape->sequence,
                                .vocabulary = shape->vocabulary,
                                .predicted = shape->predicted,
                                .next_token = shape->next_token != 0,
                                .features = shape->features,
                                .tables = (int)shape->tables,
                                .classes = (int)shape->classes};
    memcpy(model->sample_dim, shape->sample_dim, sizeof(model->sample_dim));
}

static dpb_status check_fits(const struct packed *packed, const struct dpb_packed_shard *first)
{
    const struct dpb_packed_shape *held = &first->header.shape;
    struct dpb_packed_array array[DPB_PACKED_ARRAYS];
    struct dpb_packed_shape taken;
    struct dpb_model model;
    char holds[128] = "other samples", takes[128];
    uint64_t bytes = 0;

    dpb_packed_shape_of(packed->model, &taken);
    if (memcmp(held, &taken, sizeof(taken)) != 0) {
        model_of_shape(held, &model);
        dpb_model_describe(&model, holds, sizeof(holds));
        dpb_model_describe(packed->model, takes, sizeof(takes));
        dpb_error("\"%s\" holds %s, the workload takes %s%s", first->path, holds, takes,
                  held->input == taken.input && held->table_rows_xxh3 != taken.table_rows_xxh3
                          ? ", and tables of other rows"
                          : "");
        dpb_log_hint("pack the data for this workload and its options: `dpbench data pack`");
        return DPB_ERR_USAGE;
    }
    for (int i = 0, count = dpb_packed_arrays(packed->model, NULL, array); i < count; i++)
        bytes += (uint64_t)array[i].count * DPB_PACKED_ELEMENT;
    for (int i = 0; i < packed->split.shard_count; i++) {
        const struct dpb_packed_shard *shard = &packed->split.shard[i];
        if (!shard->bytes || shard->header.sample_bytes == bytes)
            continue;
        dpb_error("\"%s\": byte %zu: samples of %llu bytes, not %llu", shard->path,
                  offsetof(struct dpb_packed_header, sample_bytes),
                  (unsigned long long)shard->header.sample_bytes, (unsigned long long)bytes);
        dpb_log_hint("pack the data again: `dpbench data pack`");
        return DPB_ERR_CORRUPT;
    }
    return DPB_OK;
}

/* ---- whose shards ---- */

/* Would each of several ranks get as much, so that an epoch leaves next to nothing out? */
static bool deals_evenly(const struct dpb_packed_split *split, int owners)
{
    int64_t least = INT64_MAX, most = 0;

    if (owners < 2 || split->shard_count % owners != 0)
        return false;
    for (int owner = 0; owner < owners; owner++) {
        int64_t samples = 0;
        for (int i = owner; i < split->shard_count; i += owners)
            samples += split->first[i + 1] - split->first[i];
        least = samples < least ? samples : least;
        most = samples > most ? samples : most;
    }
    return most - least <= split->shard_count / owners;
}

static dpb_status deal_shards(const struct dpb_packed_split *split, const char *folder,
                              const struct dpb_dataset_config *config, struct dpb_deal *deal)
{
    *deal = (struct dpb_deal){.sharding = config->sharding,
                              .owners = config->owners,
                              .owner = config->owner,
                              .shards = split->shard_count,
                              .first = split->first};
    if (deal->sharding == DPB_SHARDING_AUTO)
        deal->sharding =
                deals_evenly(split, config->owners) ? DPB_SHARDING_SHARDS : DPB_SHARDING_SAMPLES;
    if (deal->sharding == DPB_SHARDING_SAMPLES || split->shard_count >= config->owners)
        return DPB_OK;
    dpb_error("--sharding shards: \"%s\" has %d shards of \"%s\", too few for %d ranks", folder,
              split->shard_count, dpb_packed_split_name(split->split), config->owners);
    dpb_log_hint("pack the data again with `dpbench data pack --shards %d`, or say --sharding "
                 "samples",
                 config->owners);
    return DPB_ERR_USAGE;
}

static dpb_status open_owned(struct packed *packed, struct dpb_source *made)
{
    const struct dpb_packed_shard *first = NULL;

    for (int i = 0; i < packed->split.shard_count; i++) {
        const struct dpb_packed_shard *shard = &packed->split.shard[i];
        if (!is_owned(&made->deal, i))
            continue;
        DPB_TRY(dpb_packed_shard_open(&packed->split, i));
        if (!first)
            first = shard;
        made->files++;
        made->file_bytes += (int64_t)shard->byte_count;
    }
    DPB_TRY(check_fits(packed, first));
    made->origin = strdup(first->path);
    if (made->origin)
        return DPB_OK;
    dpb_error("dataset \"packed\": out of memory");
    return DPB_ERR_NO_MEMORY;
}

dpb_status dpb_source_open_packed(const struct dpb_dataset_config *config, enum dpb_split split,
                                  struct dpb_source *source)
{
    struct packed *packed;
    struct dpb_source made = {.read = read_sample, .confirm = confirm, .close = close_packed};
    dpb_status st;

    if (!config->folder || !config->folder[0]) {
        dpb_error("dataset \"packed\": no folder is given");
        dpb_log_hint("name a folder that `dpbench data pack` wrote with --data-dir");
        return DPB_ERR_NOT_FOUND;
    }
    packed = calloc(1, sizeof(*packed));
    if (!packed) {
        dpb_error("dataset \"packed\": out of memory");
        return DPB_ERR_NO_MEMORY;
    }
    packed->model = config->model;
    DPB_TRY_GOTO(st, dpb_packed_split_open(config->folder, split, &packed->split), failed);
    DPB_TRY_GOTO(st, deal_shards(&packed->split, config->folder, config, &made.deal), failed);
    DPB_TRY_GOTO(st, open_owned(packed, &made), failed);
    made.ctx = packed;
    made.synthetic = packed->split.synthetic;
    made.samples = packed->split.first[packed->split.shard_count];
    *source = made;
    return DPB_OK;
failed:
    close_packed(packed);
    return st;
}

/* Mapped pages are the page cache's, which gives way to what needs memory. */
bool dpb_source_predict_packed(const struct dpb_dataset_config *config, enum dpb_split split,
                               struct dpb_dataset_size *size)
{
    char *index = dpb_path_join(config->folder ? config->folder : "", DPB_PACKED_INDEX);
    bool there = index && access(index, R_OK) == 0;
    struct dpb_packed_split opened;
    struct dpb_deal deal;

    free(index);
    if (!there || dpb_packed_split_open(config->folder, split, &opened) < 0)
        return false;
    bool known = deal_shards(&opened, config->folder, config, &deal) == DPB_OK;
    size->samples = 0;
    for (int i = 0; known && i < opened.shard_count; i++)
        if (is_owned(&deal, i))
            size->samples += opened.first[i + 1] - opened.first[i];
    dpb_packed_split_close(&opened);
    return known;
}

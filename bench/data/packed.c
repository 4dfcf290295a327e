/* Samples from packed shards, which are mapped: nothing is kept in memory of the rank's own. */
#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"
#include "packed_shard.h"
#include "source.h"

struct packed {
    const struct dpb_model *model;
    struct dpb_packed_split split;
};

/* The shard that holds sample `id`: the last one whose first sample is not behind it. */
static const struct dpb_packed_shard *shard_of(const struct packed *packed, int64_t id)
{
    int low = 0, high = packed->split.shard_count - 1;

    while (low < high) {
        int middle = (low + high + 1) / 2;
        if ((int64_t)packed->split.shard[middle].header.first_sample <= id)
            low = middle;
        else
            high = middle - 1;
    }
    return &packed->split.shard[low];
}

static uint64_t offset_of(const struct dpb_packed_shard *shard, int64_t id)
{
    const struct dpb_packed_header *h = &shard->header;

    return h->payload_offset + ((uint64_t)id - h->first_sample) * h->record_bytes;
}

static void fetch(const void *ctx, int64_t id, const struct dpb_batch_arrays *arrays, int64_t at)
{
    const struct packed *packed = ctx;
    const struct dpb_packed_shard *shard = shard_of(packed, id);
    const uint8_t *from = shard->bytes + offset_of(shard, id);
    struct dpb_packed_array array[DPB_PACKED_ARRAYS];
    int count = dpb_packed_arrays(packed->model, arrays, array);

    for (int i = 0; i < count; i++) {
        size_t bytes = (size_t)array[i].count * DPB_PACKED_ELEMENT;
        if (bytes > 0)
            memcpy((char *)array[i].base + (size_t)at * bytes, from, bytes);
        from += bytes;
    }
}

/* Hashes are not compared at every start; but no damaged integer may become an address. */
static dpb_status check(const void *ctx, int64_t id)
{
    const struct packed *packed = ctx;
    const struct dpb_packed_shard *shard = shard_of(packed, id);
    uint64_t offset = offset_of(shard, id);
    struct dpb_packed_array array[DPB_PACKED_ARRAYS];
    int count = dpb_packed_arrays(packed->model, NULL, array);

    for (int i = 0; i < count; i++) {
        const int32_t *values = (const int32_t *)(shard->bytes + offset);
        for (int64_t k = 0; array[i].limit > 0 && k < array[i].count; k++) {
            int64_t limit = array[i].limits ? array[i].limits[k] : array[i].limit;
            if (values[k] >= 0 && values[k] < limit)
                continue;
            dpb_error("\"%s\": %d in sample %lld (byte %lld) is not from 0 to below %lld",
                      shard->path, values[k], (long long)id,
                      (long long)offset + k * DPB_PACKED_ELEMENT, (long long)limit);
            dpb_log_hint("`dpbench data check` finds damaged shards; pack the data again");
            return DPB_ERR_CORRUPT;
        }
        offset += (uint64_t)array[i].count * DPB_PACKED_ELEMENT;
    }
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

static dpb_status check_fits(const struct packed *packed)
{
    const struct dpb_packed_shard *first = &packed->split.shard[0];
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
        if (shard->header.sample_bytes == bytes)
            continue;
        dpb_error("\"%s\": byte %zu: samples of %llu bytes, not %llu", shard->path,
                  offsetof(struct dpb_packed_header, sample_bytes),
                  (unsigned long long)shard->header.sample_bytes, (unsigned long long)bytes);
        dpb_log_hint("pack the data again: `dpbench data pack`");
        return DPB_ERR_CORRUPT;
    }
    return DPB_OK;
}

dpb_status dpb_source_open_packed(const struct dpb_dataset_config *config, enum dpb_split split,
                                  struct dpb_source *source)
{
    struct packed *packed;
    char *origin;
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
    DPB_TRY_GOTO(st, check_fits(packed), failed);
    origin = strdup(packed->split.shard[0].path);
    if (!origin) {
        dpb_error("dataset \"packed\": out of memory");
        st = DPB_ERR_NO_MEMORY;
        goto failed;
    }
    *source = (struct dpb_source){.ctx = packed,
                                  .samples = packed->split.samples,
                                  .origin = origin,
                                  .check = check,
                                  .fetch = fetch,
                                  .close = close_packed};
    return DPB_OK;
failed:
    close_packed(packed);
    return st;
}

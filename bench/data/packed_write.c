/* Writing packed shards, and comparing what was written with its hashes. */
#include "dpb_packed.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "dpb_json.h"
#include "dpb_log.h"
#include "dpb_str.h"
#include "packed_shard.h"

#define BUFFER_BYTES ((uint64_t)1 << 20)

static const enum dpb_split both[] = {DPB_SPLIT_TRAIN, DPB_SPLIT_TEST};

/* ---- write ---- */

/* What all shards are written with. */
struct writer {
    const char *folder;
    const struct dpb_model *model;
    struct dpb_batch_arrays arrays; /* of one sample */
    struct dpb_packed_array array[DPB_PACKED_ARRAYS];
    int array_count;
    uint64_t sample_bytes, record_bytes;
    uint8_t *record;
    XXH3_state_t *hash;
};

static dpb_status no_memory(const char *folder)
{
    dpb_error("packed data in \"%s\": out of memory", folder);
    return DPB_ERR_NO_MEMORY;
}

static dpb_status cannot_write(const char *path)
{
    dpb_error("cannot write \"%s\": %s", path, strerror(errno));
    dpb_log_hint("name a folder with -o that can be written, on a disk with room");
    return DPB_ERR_IO;
}

static dpb_status open_writer(struct writer *w)
{
    DPB_TRY(dpb_batch_arrays_open(w->model, 1, &w->arrays));
    w->array_count = dpb_packed_arrays(w->model, &w->arrays, w->array);
    for (int i = 0; i < w->array_count; i++)
        w->sample_bytes += (uint64_t)w->array[i].count * DPB_PACKED_ELEMENT;
    w->record_bytes =
            (w->sample_bytes + DPB_PACKED_ALIGN - 1) / DPB_PACKED_ALIGN * DPB_PACKED_ALIGN;
    w->record = calloc(1, w->record_bytes);
    w->hash = XXH3_createState();
    return w->record && w->hash ? DPB_OK : no_memory(w->folder);
}

static void close_writer(struct writer *w)
{
    dpb_batch_arrays_release(&w->arrays);
    free(w->record);
    XXH3_freeState(w->hash);
}

static dpb_status write_records(struct writer *w, const dpb_dataset *dataset, const char *path,
                                const struct dpb_packed_header *h, FILE *file)
{
    for (uint64_t s = 0; s < h->samples; s++) {
        int64_t id = (int64_t)(h->first_sample + s);
        uint8_t *to = w->record;
        DPB_TRY(dpb_dataset_fetch(dataset, &id, 1, &w->arrays));
        for (int i = 0; i < w->array_count; i++) {
            size_t bytes = (size_t)w->array[i].count * DPB_PACKED_ELEMENT;
            memcpy(to, w->array[i].base, bytes);
            to += bytes;
        }
        XXH3_64bits_update(w->hash, w->record, w->record_bytes);
        if (fwrite(w->record, w->record_bytes, 1, file) != 1)
            return cannot_write(path);
    }
    return DPB_OK;
}

/* The header is written twice: its hash is known only when the records are. */
static dpb_status write_file(struct writer *w, const dpb_dataset *dataset, const char *path,
                             struct dpb_packed_header *h)
{
    FILE *file = fopen(path, "wbe");
    dpb_status st = DPB_OK;

    if (!file)
        return cannot_write(path);
    XXH3_64bits_reset(w->hash);
    if (fwrite(h, sizeof(*h), 1, file) != 1)
        st = cannot_write(path);
    if (st == DPB_OK)
        st = write_records(w, dataset, path, h, file);
    h->payload_xxh3 = XXH3_64bits_digest(w->hash);
    h->header_xxh3 = dpb_packed_header_hash(h);
    if (st == DPB_OK && (fseek(file, 0, SEEK_SET) != 0 || fwrite(h, sizeof(*h), 1, file) != 1 ||
                         fflush(file) != 0 || fsync(fileno(file)) != 0))
        st = cannot_write(path);
    if (fclose(file) != 0 && st == DPB_OK)
        st = cannot_write(path);
    return st;
}

static dpb_status write_shard(struct writer *w, const dpb_dataset *dataset, enum dpb_split split,
                              int shard, int shards, dpb_json *entries)
{
    struct dpb_dataset_info info;
    dpb_dataset_describe(dataset, &info);
    int64_t first = info.samples * shard / shards, end = info.samples * (shard + 1) / shards;
    struct dpb_packed_header h = {.magic = DPB_PACKED_MAGIC,
                                  .version = DPB_PACKED_VERSION,
                                  .split = (uint32_t)split,
                                  .payload_offset = sizeof(h),
                                  .samples = (uint64_t)(end - first),
                                  .first_sample = (uint64_t)first,
                                  .sample_bytes = w->sample_bytes,
                                  .record_bytes = w->record_bytes,
                                  .shard = (uint32_t)shard,
                                  .shards = (uint32_t)shards};
    dpb_packed_shape_of(w->model, &h.shape);
    char *path = dpb_packed_shard_path(w->folder, split, shard);
    if (!path)
        return no_memory(w->folder);
    dpb_status st = write_file(w, dataset, path, &h);
    if (st == DPB_OK) {
        dpb_json *entry = dpb_json_object();
        char hash[17];
        snprintf(hash, sizeof(hash), "%016" PRIx64, h.payload_xxh3);
        dpb_json_set_string(entry, "file", strrchr(path, '/') + 1);
        dpb_json_set_int(entry, "samples", end - first);
        dpb_json_set_string(entry, "xxh3", hash);
        dpb_json_append(entries, entry);
    }
    free(path);
    return st;
}

static dpb_status write_splits(struct writer *w, const dpb_dataset *const splits[2], int shards,
                               const char *index_path, struct dpb_packed_summary *summary)
{
    struct dpb_packed_summary made = {0};
    struct dpb_dataset_info info;
    dpb_status st = DPB_OK;
    dpb_json *index = dpb_json_object();

    dpb_dataset_describe(splits[DPB_SPLIT_TRAIN], &info);
    dpb_json_set_string(index, "format", DPB_PACKED_INDEX_KIND);
    dpb_json_set_string(index, "data", info.kind);
    dpb_json_set_string(index, "source", info.source);
    dpb_json_set_bool(index, "synthetic", info.synthetic);
    for (int s = 0; s < 2 && st == DPB_OK; s++) {
        dpb_json *entries = dpb_json_array();
        for (int i = 0; i < shards && st == DPB_OK; i++)
            st = write_shard(w, splits[both[s]], both[s], i, shards, entries);
        dpb_json_set(index, dpb_packed_split_name(both[s]), entries);
        dpb_dataset_describe(splits[both[s]], &info);
        made.samples[both[s]] = info.samples;
        made.shards[both[s]] = shards;
        made.bytes += info.samples * (int64_t)w->record_bytes +
                      shards * (int64_t)sizeof(struct dpb_packed_header);
    }
    if (st == DPB_OK)
        st = dpb_json_write_file(index, index_path);
    dpb_json_free(index);
    if (st == DPB_OK)
        *summary = made;
    return st;
}

static void remove_shards(const char *folder, int shards)
{
    for (int i = 0; i < 2 * shards; i++) {
        char *path = dpb_packed_shard_path(folder, both[i % 2], i / 2);
        if (path)
            unlink(path);
        free(path);
    }
}

static dpb_status check_splits(const dpb_dataset *const splits[2], int shards)
{
    for (int s = 0; s < 2; s++) {
        struct dpb_dataset_info info;
        dpb_dataset_describe(splits[both[s]], &info);
        if (shards < 1 || shards > DPB_PACKED_SHARDS_MAX || shards > info.samples) {
            dpb_error("%d shards cannot be made of the %lld samples of split \"%s\"", shards,
                      (long long)info.samples, dpb_packed_split_name(both[s]));
            dpb_log_hint("use fewer --shards");
            return DPB_ERR_USAGE;
        }
    }
    return DPB_OK;
}

dpb_status dpb_packed_write(const dpb_dataset *const splits[2], int shards, const char *folder,
                            struct dpb_packed_summary *summary)
{
    struct writer w = {.folder = folder, .model = dpb_dataset_model(splits[DPB_SPLIT_TRAIN])};
    dpb_status st;

    DPB_TRY(check_splits(splits, shards));
    DPB_TRY(dpb_mkdir_p(folder));
    char *index_path = dpb_path_join(folder, DPB_PACKED_INDEX);
    if (!index_path)
        return no_memory(folder);
    if (access(index_path, F_OK) == 0) {
        dpb_error("\"%s\" is there already: nothing is written over", index_path);
        dpb_log_hint("name another folder with -o");
        free(index_path);
        return DPB_ERR_USAGE;
    }
    st = open_writer(&w);
    if (st == DPB_OK) {
        st = write_splits(&w, splits, shards, index_path, summary);
        if (st < 0)
            remove_shards(folder, shards);
    }
    close_writer(&w);
    free(index_path);
    return st;
}

/* ---- check ---- */

static dpb_status check_payload(const struct dpb_packed_shard *shard, XXH3_state_t *hashing,
                                uint8_t *buffer)
{
    const struct dpb_packed_header *h = &shard->header;

    XXH3_64bits_reset(hashing);
    for (uint64_t at = h->payload_offset; at < shard->byte_count; at += BUFFER_BYTES) {
        uint64_t rest = shard->byte_count - at, bytes = rest < BUFFER_BYTES ? rest : BUFFER_BYTES;
        DPB_TRY(dpb_packed_shard_read(shard, at, bytes, buffer));
        XXH3_64bits_update(hashing, buffer, (size_t)bytes);
    }
    DPB_TRY(dpb_packed_shard_confirm(shard));
    uint64_t hash = XXH3_64bits_digest(hashing);
    if (hash == h->payload_xxh3)
        return DPB_OK;
    dpb_error("\"%s\": the samples from byte %" PRIu64 " to %zu are damaged: their hash is "
              "%016" PRIx64 ", not %016" PRIx64,
              shard->path, h->payload_offset, shard->byte_count, hash, h->payload_xxh3);
    dpb_log_hint("get a fresh copy, or pack the data again: `dpbench data pack`");
    return DPB_ERR_CORRUPT;
}

/* Every damaged file is named. */
static dpb_status check_split(struct dpb_packed_split *split, struct dpb_packed_summary *found)
{
    XXH3_state_t *hashing = XXH3_createState();
    uint8_t *buffer = malloc(BUFFER_BYTES);
    dpb_status st = hashing && buffer ? DPB_OK : no_memory(split->shard[0].path);

    for (int i = 0; i < split->shard_count && hashing && buffer; i++) {
        dpb_status one = dpb_packed_shard_open(split, i);
        if (one == DPB_OK)
            one = check_payload(&split->shard[i], hashing, buffer);
        DPB_KEEP(st, one);
        found->bytes += (int64_t)split->shard[i].byte_count;
    }
    free(buffer);
    XXH3_freeState(hashing);
    return st;
}

dpb_status dpb_packed_check(const char *folder, struct dpb_packed_summary *summary)
{
    struct dpb_packed_summary found = {0};

    for (int s = 0; s < 2; s++) {
        struct dpb_packed_split split;
        DPB_TRY(dpb_packed_split_open(folder, both[s], &split));
        dpb_status st = check_split(&split, &found);
        found.samples[both[s]] = split.first[split.shard_count];
        found.shards[both[s]] = split.shard_count;
        dpb_packed_split_close(&split);
        DPB_TRY(st);
    }
    *summary = found;
    return DPB_OK;
}

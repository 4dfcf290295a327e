#include "packed_shard.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "dpb_json.h"
#include "dpb_log.h"
#include "dpb_str.h"
#include "mapped_copy.h"
#include "source.h"

#define SAMPLES_MAX UINT32_MAX
#define RECORD_MAX  ((uint64_t)1 << 31)
#define HASH_DIGITS 16

_Static_assert(sizeof(struct dpb_packed_header) == 192, "the header has no hidden padding");
_Static_assert(sizeof(struct dpb_packed_header) % DPB_PACKED_ALIGN == 0, "records are aligned");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "shards are used as they lie on disk");

/* ---- what a record holds ---- */

int dpb_packed_arrays(const struct dpb_model *model, const struct dpb_batch_arrays *arrays,
                      struct dpb_packed_array array[DPB_PACKED_ARRAYS])
{
    static const struct dpb_batch_arrays none;
    const struct dpb_batch_arrays *a = arrays ? arrays : &none;
    int count = 0;

    array[count++] = (struct dpb_packed_array){
            a->label, 1, model->input == DPB_INPUT_IMAGES ? model->classes : 2, NULL};
    switch (model->input) {
    case DPB_INPUT_IMAGES:
        array[count++] = (struct dpb_packed_array){a->x, dpb_image_elements(model), 0, NULL};
        break;
    case DPB_INPUT_TOKENS:
        array[count++] =
                (struct dpb_packed_array){a->tokens, model->sequence, model->vocabulary, NULL};
        array[count++] = (struct dpb_packed_array){a->predict_position, model->predicted,
                                                   model->sequence, NULL};
        array[count++] = (struct dpb_packed_array){a->predict_token, model->predicted,
                                                   model->vocabulary, NULL};
        if (!model->next_token)
            array[count++] = (struct dpb_packed_array){a->segments, model->sequence, 2, NULL};
        break;
    case DPB_INPUT_INTERACTIONS:
        array[count++] = (struct dpb_packed_array){a->x, model->features, 0, NULL};
        array[count++] = (struct dpb_packed_array){a->indices, model->tables, 1, model->table_rows};
        break;
    }
    return count;
}

void dpb_packed_shape_of(const struct dpb_model *model, struct dpb_packed_shape *shape)
{
    *shape = (struct dpb_packed_shape){.input = (uint32_t)model->input};
    switch (model->input) {
    case DPB_INPUT_IMAGES:
        shape->classes = (uint32_t)model->classes;
        memcpy(shape->sample_dim, model->sample_dim, sizeof(shape->sample_dim));
        break;
    case DPB_INPUT_TOKENS:
        shape->sequence = model->sequence;
        shape->vocabulary = model->vocabulary;
        shape->predicted = model->predicted;
        shape->next_token = model->next_token;
        break;
    case DPB_INPUT_INTERACTIONS:
        shape->features = model->features;
        shape->tables = (uint32_t)model->tables;
        if (model->tables > 0)
            shape->table_rows_xxh3 = XXH3_64bits(
                    model->table_rows, (size_t)model->tables * sizeof(*model->table_rows));
        break;
    }
}

uint64_t dpb_packed_header_hash(const struct dpb_packed_header *header)
{
    return XXH3_64bits(header, offsetof(struct dpb_packed_header, header_xxh3));
}

/* ---- names ---- */

const char *dpb_packed_split_name(enum dpb_split split)
{
    return split == DPB_SPLIT_TRAIN ? "train" : "test";
}

char *dpb_packed_shard_path(const char *folder, enum dpb_split split, int shard)
{
    char name[32];

    snprintf(name, sizeof(name), "%s-%05d.dpbs", dpb_packed_split_name(split), shard);
    return dpb_path_join(folder, name);
}

/* ---- one file ---- */

#define AT(member) offsetof(struct dpb_packed_header, member)

static dpb_status wrong(const char *path, size_t offset, const char *what)
{
    dpb_error("\"%s\": byte %zu: %s", path, offset, what);
    dpb_log_hint("get a fresh copy, or pack the data again: `dpbench data pack`");
    return DPB_ERR_CORRUPT;
}

static dpb_status check_header(const char *path, const struct dpb_packed_header *h)
{
    if (memcmp(h->magic, DPB_PACKED_MAGIC, sizeof(h->magic)) != 0)
        return wrong(path, AT(magic), "this is no shard: \"" DPB_PACKED_MAGIC "\" is not there");
    if (h->version != DPB_PACKED_VERSION) {
        dpb_error("\"%s\": byte %zu: version %" PRIu32 " of the format; this program reads %d",
                  path, AT(version), h->version, DPB_PACKED_VERSION);
        dpb_log_hint("pack the data again with this program: `dpbench data pack`");
        return DPB_ERR_UNSUPPORTED;
    }
    if (h->header_xxh3 != dpb_packed_header_hash(h))
        return wrong(path, AT(header_xxh3), "the hash of the header is not the header's");
    if (h->payload_offset != sizeof(*h))
        return wrong(path, AT(payload_offset), "records do not follow the header");
    if (h->samples < 1 || h->samples > SAMPLES_MAX)
        return wrong(path, AT(samples), "no possible number of samples");
    if (h->record_bytes < h->sample_bytes || h->record_bytes > RECORD_MAX ||
        h->record_bytes % DPB_PACKED_ALIGN != 0)
        return wrong(path, AT(record_bytes), "no possible size of a record");
    return DPB_OK;
}

static dpb_status check_size(const char *path, const struct dpb_packed_header *h, uint64_t bytes)
{
    uint64_t end = h->payload_offset + h->samples * h->record_bytes;

    if (bytes == end)
        return DPB_OK;
    if (bytes < end)
        dpb_error("\"%s\": it ends at byte %" PRIu64 ", within sample %" PRIu64 " of %" PRIu64
                  "; it should have %" PRIu64 " bytes",
                  path, bytes, (bytes - h->payload_offset) / h->record_bytes, h->samples, end);
    else
        dpb_error("\"%s\": its samples end at byte %" PRIu64 ", but it has %" PRIu64 " bytes", path,
                  end, bytes);
    dpb_log_hint("get a fresh copy, or pack the data again: `dpbench data pack`");
    return DPB_ERR_CORRUPT;
}

/* It was as long as its header says when it was opened. */
static dpb_status shorter(const struct dpb_packed_shard *shard, uint64_t bytes)
{
    const struct dpb_packed_header *h = &shard->header;

    dpb_error("\"%s\": it has become shorter while it is in use: what was at byte %" PRIu64
              ", in sample %" PRIu64 ", is gone",
              shard->path, bytes,
              bytes < h->payload_offset
                      ? h->first_sample
                      : h->first_sample + (bytes - h->payload_offset) / h->record_bytes);
    dpb_log_hint("leave packed data alone while it is trained from; `dpbench data check` finds "
                 "what else is damaged");
    return DPB_ERR_CORRUPT;
}

dpb_status dpb_packed_shard_read(const struct dpb_packed_shard *shard, uint64_t offset,
                                 uint64_t bytes, void *to)
{
    const void *fault;

    if (dpb_mapped_copy(to, shard->bytes + offset, (size_t)bytes, &fault))
        return DPB_OK;
    return shorter(shard, (uint64_t)((const uint8_t *)fault - shard->bytes));
}

dpb_status dpb_packed_shard_confirm(const struct dpb_packed_shard *shard)
{
    struct stat info;

    /* By its name, since a descriptor for every shard may be more than a process can have. */
    if (stat(shard->path, &info) != 0 || info.st_dev != shard->device ||
        info.st_ino != shard->inode || (uint64_t)info.st_size >= shard->byte_count)
        return DPB_OK;
    return shorter(shard, (uint64_t)info.st_size);
}

static dpb_status map_file(struct dpb_packed_shard *shard, int fd)
{
    const char *path = shard->path;
    struct stat info;

    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        dpb_error("\"%s\" is not a file that can be mapped", path);
        dpb_log_hint("name a folder that `dpbench data pack` wrote");
        return DPB_ERR_IO;
    }
    if ((uint64_t)info.st_size < sizeof(shard->header)) {
        dpb_error("\"%s\": it ends at byte %lld, within the header of %zu bytes", path,
                  (long long)info.st_size, sizeof(shard->header));
        dpb_log_hint("get a fresh copy, or pack the data again: `dpbench data pack`");
        return DPB_ERR_CORRUPT;
    }
    dpb_mapped_copy_prepare();
    void *map = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
        dpb_error("cannot map \"%s\": %s", path, strerror(errno));
        dpb_log_hint("is there enough address space (ulimit -v)?");
        return DPB_ERR_IO;
    }
    shard->bytes = map;
    shard->byte_count = (size_t)info.st_size;
    shard->device = info.st_dev;
    shard->inode = info.st_ino;
    DPB_TRY(dpb_packed_shard_read(shard, 0, sizeof(shard->header), &shard->header));
    DPB_TRY(check_header(path, &shard->header));
    return check_size(path, &shard->header, shard->byte_count);
}

/* What was done until a failure is undone by dpb_packed_split_close(). */
static dpb_status open_file(struct dpb_packed_shard *shard)
{
    int fd = open(shard->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        dpb_status st = errno == ENOENT ? DPB_ERR_NOT_FOUND : DPB_ERR_IO;
        dpb_error("cannot read \"%s\": %s", shard->path, strerror(errno));
        dpb_log_hint("every file that \"" DPB_PACKED_INDEX "\" names must be beside it");
        return st;
    }
    dpb_status st = map_file(shard, fd);
    close(fd);
    return st;
}

/* The file is the one that the index means, and not one of another set. */
static dpb_status check_place(const struct dpb_packed_split *split, int at)
{
    const struct dpb_packed_shard *shard = &split->shard[at];
    const struct dpb_packed_header *h = &shard->header;

    if (h->split != (uint32_t)split->split)
        return wrong(shard->path, AT(split), "it is of the other split");
    if (h->shard != (uint32_t)at || h->shards != (uint32_t)split->shard_count)
        return wrong(shard->path, AT(shard), "it is another shard than its name says");
    if (h->first_sample != (uint64_t)split->first[at])
        return wrong(shard->path, AT(first_sample), "its samples do not follow the shard before");
    if (h->samples != (uint64_t)(split->first[at + 1] - split->first[at]) ||
        h->payload_xxh3 != shard->payload_xxh3)
        return wrong(shard->path, AT(payload_xxh3),
                     "samples or hash are not those of \"" DPB_PACKED_INDEX "\"");
    for (int i = 0; i < at; i++)
        if (split->shard[i].bytes)
            return memcmp(&h->shape, &split->shard[i].header.shape, sizeof(h->shape)) == 0
                           ? DPB_OK
                           : wrong(shard->path, AT(shape),
                                   "its samples are not made as those of the first");
    return DPB_OK;
}

dpb_status dpb_packed_shard_open(struct dpb_packed_split *split, int at)
{
    DPB_TRY(open_file(&split->shard[at]));
    return check_place(split, at);
}

/* ---- a split ---- */

static dpb_status no_memory(const char *path)
{
    dpb_error("\"%s\": out of memory", path);
    return DPB_ERR_NO_MEMORY;
}

static dpb_status no_index(const char *path, enum dpb_split which)
{
    dpb_error("\"%s\" is no index of format \"%s\" that names shards of \"%s\"", path,
              DPB_PACKED_INDEX_KIND, dpb_packed_split_name(which));
    dpb_log_hint("pack the data again with this program: `dpbench data pack`");
    return DPB_ERR_CORRUPT;
}

/* What the index says of shard `at`. */
static dpb_status read_entry(const char *folder, const char *path, const dpb_json *entry, int at,
                             struct dpb_packed_split *split)
{
    int64_t samples = dpb_json_as_int(dpb_json_get(entry, "samples"), -1);
    const char *hash = dpb_json_as_string(dpb_json_get(entry, "xxh3"), "");
    const char *file = dpb_json_as_string(dpb_json_get(entry, "file"), "");
    struct dpb_packed_shard *shard = &split->shard[at];
    char *end;

    shard->path = dpb_packed_shard_path(folder, split->split, at);
    if (!shard->path)
        return no_memory(path);
    shard->payload_xxh3 = strtoull(hash, &end, 16);
    if (samples >= 1 && samples <= SAMPLES_MAX && strlen(hash) == HASH_DIGITS && !*end &&
        strcmp(file, strrchr(shard->path, '/') + 1) == 0) {
        split->first[at + 1] = split->first[at] + samples;
        return DPB_OK;
    }
    dpb_error("\"%s\": shard %d of \"%s\": file \"%s\", %lld samples, hash \"%s\": that cannot be",
              path, at, dpb_packed_split_name(split->split), file, (long long)samples, hash);
    dpb_log_hint("get a fresh copy, or pack the data again: `dpbench data pack`");
    return DPB_ERR_CORRUPT;
}

static dpb_status read_entries(const char *folder, const char *path, const dpb_json *entries,
                               struct dpb_packed_split *split)
{
    size_t count = dpb_json_size(entries);

    split->shard = calloc(count, sizeof(*split->shard));
    split->first = calloc(count + 1, sizeof(*split->first));
    if (!split->shard || !split->first)
        return no_memory(path);
    split->shard_count = (int)count;
    for (int at = 0; at < split->shard_count; at++)
        DPB_TRY(read_entry(folder, path, dpb_json_at(entries, (size_t)at), at, split));
    return DPB_OK;
}

static dpb_status read_index(const char *folder, const char *path, struct dpb_packed_split *split)
{
    dpb_json *index = NULL;
    dpb_status st;

    if (access(path, F_OK) != 0) {
        dpb_error("there is no packed data set in \"%s\": it has no \"%s\"", folder,
                  DPB_PACKED_INDEX);
        dpb_log_hint("name a folder that `dpbench data pack` wrote with --data-dir");
        return DPB_ERR_NOT_FOUND;
    }
    DPB_TRY(dpb_json_read_file(path, &index));
    const dpb_json *entries = dpb_json_get(index, dpb_packed_split_name(split->split));
    if (strcmp(dpb_json_as_string(dpb_json_get(index, "format"), ""), DPB_PACKED_INDEX_KIND) != 0 ||
        dpb_json_type(entries) != DPB_JSON_ARRAY || dpb_json_size(entries) < 1 ||
        dpb_json_size(entries) > DPB_PACKED_SHARDS_MAX)
        st = no_index(path, split->split);
    else
        st = read_entries(folder, path, entries, split);
    split->synthetic = dpb_json_as_bool(dpb_json_get(index, "synthetic"), false);
    dpb_json_free(index);
    return st;
}

dpb_status dpb_packed_split_open(const char *folder, enum dpb_split split,
                                 struct dpb_packed_split *opened)
{
    struct dpb_packed_split made = {.split = split};
    char *path = dpb_path_join(folder, DPB_PACKED_INDEX);

    if (!path) {
        dpb_error("packed data in \"%s\": out of memory", folder);
        return DPB_ERR_NO_MEMORY;
    }
    dpb_status st = read_index(folder, path, &made);
    free(path);
    if (st < 0) {
        dpb_packed_split_close(&made);
        return st;
    }
    *opened = made;
    return DPB_OK;
}

void dpb_packed_split_close(struct dpb_packed_split *split)
{
    for (int i = 0; i < split->shard_count; i++) {
        if (split->shard[i].bytes)
            munmap((void *)split->shard[i].bytes, split->shard[i].byte_count);
        free(split->shard[i].path);
    }
    free(split->shard);
    free(split->first);
    *split = (struct dpb_packed_split){0};
}

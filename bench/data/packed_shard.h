/* packed_shard.h: one file of a packed data set, as it lies on disk and in memory. */
#ifndef BENCH_PACKED_SHARD_H
#define BENCH_PACKED_SHARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dpb_dataset.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DPB_PACKED_MAGIC      "DPBSHARD"
#define DPB_PACKED_VERSION    1
#define DPB_PACKED_ALIGN      64 /* of records, in bytes */
#define DPB_PACKED_SHARDS_MAX 99999
#define DPB_PACKED_ELEMENT    4 /* bytes: every array of a sample is of int32_t or float */
#define DPB_PACKED_ARRAYS     5
#define DPB_PACKED_INDEX      "index.json"
#define DPB_PACKED_INDEX_KIND "dpb.packed/1"

/* What samples are made of: struct dpb_model's members of that name. */
struct dpb_packed_shape {
    uint32_t input, classes;
    int64_t sample_dim[3];
    int64_t sequence, vocabulary, predicted;
    uint32_t next_token, tables;
    int64_t features;
    uint64_t table_rows_xxh3; /* of the array, 0 without tables */
};

/* The first bytes of a file, little-endian. `samples` records of `record_bytes` follow. */
struct dpb_packed_header {
    char magic[8];
    uint32_t version, split;
    uint64_t payload_offset; /* of the first record */
    uint64_t payload_xxh3;   /* of all records, padding included */
    uint64_t samples, first_sample;
    uint64_t sample_bytes; /* of a record; the rest is padding, zeroes */
    uint64_t record_bytes; /* a multiple of DPB_PACKED_ALIGN */
    uint32_t shard, shards;
    struct dpb_packed_shape shape;
    uint64_t reserved[4];
    uint64_t header_xxh3; /* of all that is before it */
};

/* A shard. When it is open it is mapped: pages that several ranks read are in memory once. */
struct dpb_packed_shard {
    char *path;
    uint64_t payload_xxh3; /* as the index says */
    const uint8_t *bytes;  /* NULL: not open */
    size_t byte_count;
    uint64_t device, inode; /* of the open file */
    struct dpb_packed_header header;
};

struct dpb_packed_split {
    enum dpb_split split;
    bool synthetic; /* what was packed was made up */
    struct dpb_packed_shard *shard;
    int shard_count;
    int64_t *first; /* [shard_count + 1], as the index says: of each shard, and the end */
};

/* An array of a sample: label, then what the input has, in the order in which a record holds them.
 */
struct dpb_packed_array {
    void *base;            /* of all samples; NULL where no arrays are given */
    int64_t count;         /* elements of a sample */
    int64_t limit;         /* integers are from 0 to below this; 0: floats */
    const int64_t *limits; /* or below these, one each; NULL: all below `limit` */
};

/* Fill `array`, return how many there are. `arrays` may be NULL. */
int dpb_packed_arrays(const struct dpb_model *model, const struct dpb_batch_arrays *arrays,
                      struct dpb_packed_array array[DPB_PACKED_ARRAYS]);

void dpb_packed_shape_of(const struct dpb_model *model, struct dpb_packed_shape *shape);
uint64_t dpb_packed_header_hash(const struct dpb_packed_header *header);

/* "FOLDER/train-00000.dpbs", on the heap; NULL when out of memory. */
char *dpb_packed_shard_path(const char *folder, enum dpb_split split, int shard);
const char *dpb_packed_split_name(enum dpb_split split);

/* Read what the index says of a split; no shard is open yet. A folder without index:
 * DPB_ERR_NOT_FOUND. What is no index: DPB_ERR_CORRUPT. */
dpb_status dpb_packed_split_open(const char *folder, enum dpb_split split,
                                 struct dpb_packed_split *opened);
void dpb_packed_split_close(struct dpb_packed_split *split);

/* Map a shard and check header, size, index and the shards opened before against each other;
 * records are not read. Anything that does not hold: DPB_ERR_CORRUPT, another version:
 * DPB_ERR_UNSUPPORTED, logged with file and offset. */
dpb_status dpb_packed_shard_open(struct dpb_packed_split *split, int at);

/* Copy out of an open shard. DPB_ERR_CORRUPT, logged, where the file has become shorter: if not
 * here, then from dpb_packed_shard_confirm() afterwards. */
dpb_status dpb_packed_shard_read(const struct dpb_packed_shard *shard, uint64_t offset,
                                 uint64_t bytes, void *to);
/* Is the file as long as when it was opened? One that has been renamed or removed is. */
dpb_status dpb_packed_shard_confirm(const struct dpb_packed_shard *shard);

#ifdef __cplusplus
}
#endif
#endif

/* dpb_packed.h: data sets as files of ready samples, which ranks map instead of reading them.
 *
 * A folder holds train-00000.dpbs, ..., test-00000.dpbs, ... and index.json. A file is a header
 * (packed_shard.h) and one record per sample: the sample's arrays as a batch holds them, aligned to
 * 64 bytes. --data packed reads it. */
#ifndef DPB_PACKED_H
#define DPB_PACKED_H

#include <stdint.h>

#include "dpb_dataset.h"

#ifdef __cplusplus
extern "C" {
#endif

struct dpb_packed_summary {
    int64_t samples[2]; /* by enum dpb_split */
    int64_t bytes;      /* of all shards */
    int shards[2];
};

/* Write both splits of a data set (indexed by enum dpb_split) in `shards` files each, as equal as
 * can be. The index comes last: a folder without one is no packed data set. It says
 * whether the data is synthetic, so that records can. Refused (DPB_ERR_USAGE): a folder that has an
 * index already; more shards than samples. What was written is removed on failure. */
dpb_status dpb_packed_write(const dpb_dataset *const splits[2], int shards, const char *folder,
                            struct dpb_packed_summary *summary);

/* Read every byte and compare its hashes: DPB_ERR_CORRUPT, logged with file and offset. */
dpb_status dpb_packed_check(const char *folder, struct dpb_packed_summary *summary);

#ifdef __cplusplus
}
#endif
#endif

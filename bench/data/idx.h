/* idx.h: files in LeCun's IDX format, unsigned bytes only, gzip-compressed or not.
 *
 * Format (yann.lecun.com/exdb/mnist): two zero bytes, type (0x08: unsigned byte), number of
 * dimensions, each dimension as a big-endian 32-bit number, then the elements, row-major. */
#ifndef BENCH_IDX_H
#define BENCH_IDX_H

#include <stdint.h>

#include "dpb_status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DPB_IDX_RANK_MAX 4

struct dpb_idx {
    int rank;
    int64_t dim[DPB_IDX_RANK_MAX];
    uint8_t *data; /* all elements, on the heap */
};

/* Read a file that must have `rank` dimensions (1 to DPB_IDX_RANK_MAX). A file that cannot be
 * opened: DPB_ERR_NOT_FOUND or DPB_ERR_IO. Another header, an end before the last element, bytes
 * after it, damaged compression: DPB_ERR_CORRUPT, logged with the path and the offset in the
 * uncompressed content. */
dpb_status dpb_idx_read(const char *path, int rank, struct dpb_idx *idx);
void dpb_idx_release(struct dpb_idx *idx);

/* Offset of the first element in the uncompressed content. */
static inline int64_t dpb_idx_header_bytes(int rank)
{
    return 4 + 4 * (int64_t)rank;
}

#ifdef __cplusplus
}
#endif
#endif

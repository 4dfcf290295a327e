#include "comm_bench_values.h"

#include <string.h>

/* The largest sum: exact in bf16 and uint8. Beyond it lies what marks an element as not written. */
#define SUM_MAX 252
#define MARK    255

/* The bits of the integers 0 to MARK in an element type. */
struct images {
    uint64_t bits[MARK + 1];
};

static uint64_t f16_bits(unsigned value)
{
    if (value == 0)
        return 0;
    unsigned exponent = 31 - (unsigned)__builtin_clz(value);
    return (exponent + 15) << 10 | ((value << (10 - exponent)) & 0x3ff);
}

static uint64_t image_of(enum dpb_dtype dtype, unsigned value)
{
    float f32 = (float)value;
    double f64 = value;
    uint32_t f32_bits;
    uint64_t f64_bits;
    memcpy(&f32_bits, &f32, sizeof(f32_bits));
    memcpy(&f64_bits, &f64, sizeof(f64_bits));
    switch (dtype) {
    case DPB_F32:
        return f32_bits;
    case DPB_F64:
        return f64_bits;
    case DPB_BF16:
        return f32_bits >> 16;
    case DPB_F16:
        return f16_bits(value);
    case DPB_I32:
    case DPB_I64:
    case DPB_U8:
    case DPB_DTYPE_COUNT:
        break;
    }
    return value;
}

static void images_make(enum dpb_dtype dtype, struct images *images)
{
    for (unsigned value = 0; value <= MARK; value++)
        images->bits[value] = image_of(dtype, value);
}

static bool sums(enum dpb_coll_kind kind)
{
    return kind == DPB_COLL_ALL_REDUCE || kind == DPB_COLL_REDUCE_SCATTER ||
           kind == DPB_COLL_REDUCE;
}

/* Element i of rank r: less than `limit`, different from its neighbours' and other ranks'. */
static inline unsigned value_of(int64_t i, int rank, unsigned limit)
{
    uint32_t h = (uint32_t)i * 2654435761u + (uint32_t)((uint64_t)i >> 32) * 0x85ebca6bu +
                 (uint32_t)(rank + 1) * 0x9e3779b9u;
    h ^= h >> 15;
    h *= 0x2c1b3c6du;
    return ((h >> 16) * limit) >> 16;
}

static unsigned limit_of(const struct dpb_coll *coll, int ranks)
{
    return sums(coll->kind) ? SUM_MAX / (unsigned)ranks + 1 : SUM_MAX;
}

static void put(void *buffer, size_t element_bytes, int64_t i, uint64_t bits)
{
    switch (element_bytes) {
    case 1:
        ((uint8_t *)buffer)[i] = (uint8_t)bits;
        break;
    case 2:
        ((uint16_t *)buffer)[i] = (uint16_t)bits;
        break;
    case 4:
        ((uint32_t *)buffer)[i] = (uint32_t)bits;
        break;
    default:
        ((uint64_t *)buffer)[i] = bits;
        break;
    }
}

static uint64_t get(const void *buffer, size_t element_bytes, int64_t i)
{
    switch (element_bytes) {
    case 1:
        return ((const uint8_t *)buffer)[i];
    case 2:
        return ((const uint16_t *)buffer)[i];
    case 4:
        return ((const uint32_t *)buffer)[i];
    default:
        return ((const uint64_t *)buffer)[i];
    }
}

/* The elements that this rank contributes. */
static void contribution(const struct dpb_coll *coll, int rank, int ranks, int64_t *first,
                         int64_t *count)
{
    *first = 0;
    *count = coll->count;
    if (coll->kind == DPB_COLL_ALL_GATHER)
        *count = dpb_coll_shard(coll->count, ranks, rank, first);
    else if (coll->kind == DPB_COLL_BROADCAST && rank != coll->root)
        *count = 0;
}

void comm_values_fill(const struct dpb_coll *coll, int rank, int ranks)
{
    struct images images;
    const size_t bytes = dpb_dtype_bytes(coll->dtype);
    const unsigned limit = limit_of(coll, ranks);
    int64_t first, count;
    images_make(coll->dtype, &images);
    contribution(coll, rank, ranks, &first, &count);
    for (int64_t i = 0; i < first; i++)
        put(coll->buffer, bytes, i, images.bits[MARK]);
    for (int64_t i = first; i < first + count; i++)
        put(coll->buffer, bytes, i, images.bits[value_of(i, rank, limit)]);
    for (int64_t i = first + count; i < coll->count; i++)
        put(coll->buffer, bytes, i, images.bits[MARK]);
}

/* The elements of this rank that the collective defines. */
static void result_range(const struct dpb_coll *coll, int rank, int ranks, int64_t *first,
                         int64_t *count)
{
    *first = 0;
    *count = coll->count;
    if (coll->kind == DPB_COLL_REDUCE_SCATTER)
        *count = dpb_coll_shard(coll->count, ranks, rank, first);
    else if (coll->kind == DPB_COLL_REDUCE && rank != coll->root)
        *count = 0;
}

static unsigned sum_of(int64_t i, int ranks, unsigned limit)
{
    unsigned sum = 0;
    for (int r = 0; r < ranks; r++)
        sum += value_of(i, r, limit);
    return sum;
}

/* Element i of this rank's result. */
static unsigned expected(const struct dpb_coll *coll, int64_t i, int rank, int ranks,
                         unsigned limit)
{
    const int64_t part = coll->count / ranks;
    const int64_t each = part + (coll->count % ranks != 0);
    switch (coll->kind) {
    case DPB_COLL_ALL_REDUCE:
    case DPB_COLL_REDUCE_SCATTER:
    case DPB_COLL_REDUCE:
        return sum_of(i, ranks, limit);
    case DPB_COLL_ALL_GATHER:
        return value_of(i, (int)(i / each), limit);
    case DPB_COLL_BROADCAST:
        return value_of(i, coll->root, limit);
    case DPB_COLL_ALL_TO_ALL: /* part i of rank r becomes part r of rank i */
        return value_of(rank * part + i % part, (int)(i / part), limit);
    case DPB_COLL_COUNT:
        break;
    }
    return MARK;
}

int64_t comm_values_wrong(const struct dpb_coll *coll, int rank, int ranks)
{
    struct images images;
    const size_t bytes = dpb_dtype_bytes(coll->dtype);
    const unsigned limit = limit_of(coll, ranks);
    int64_t first, count, wrong = 0;
    images_make(coll->dtype, &images);
    result_range(coll, rank, ranks, &first, &count);
    for (int64_t i = first; i < first + count; i++)
        wrong += get(coll->buffer, bytes, i) != images.bits[expected(coll, i, rank, ranks, limit)];
    return wrong;
}

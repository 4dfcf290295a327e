#include "reduce.h"

#include <stddef.h>
#include <string.h>

#include "clones.h"
#include "half.h"

/* Sums that no loop makes at once are built in a block that stays in the first-level cache. */
#define BLOCK_BYTES 8192

#define TIMES_SCALE(x, scale)  ((x) * (scale))
#define IGNORE_SCALE(x, scale) (x)

/* A factor of 1 changes no bits, and the loops wait for memory anyway: no variant without. Signed
 * integers are summed as unsigned ones of the same size, which wrap around. */
#define DEFINE_KERNELS(name, type, scale_type, MUL)                                                \
    DPB_COMM_CLONES static void name##_join(type *restrict own, const type *restrict from,         \
                                            int64_t count, scale_type own_scale,                   \
                                            scale_type from_scale)                                 \
    {                                                                                              \
        (void)own_scale, (void)from_scale;                                                         \
        for (int64_t i = 0; i < count; i++)                                                        \
            own[i] = MUL(from[i], from_scale) + MUL(own[i], own_scale);                            \
    }                                                                                              \
                                                                                                   \
    DPB_COMM_CLONES static void name##_both(type *restrict a, type *restrict b, int64_t count,     \
                                            scale_type a_scale, scale_type b_scale)                \
    {                                                                                              \
        (void)a_scale, (void)b_scale;                                                              \
        for (int64_t i = 0; i < count; i++) {                                                      \
            type sum = MUL(a[i], a_scale) + MUL(b[i], b_scale);                                    \
            a[i] = sum;                                                                            \
            b[i] = sum;                                                                            \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    DPB_COMM_CLONES static void name##_set(type *restrict sum, const type *restrict x,             \
                                           int64_t count, scale_type scale)                        \
    {                                                                                              \
        (void)scale;                                                                               \
        for (int64_t i = 0; i < count; i++)                                                        \
            sum[i] = MUL(x[i], scale);                                                             \
    }                                                                                              \
                                                                                                   \
    DPB_COMM_CLONES static void name##_add(type *restrict sum, const type *restrict x,             \
                                           int64_t count, scale_type scale)                        \
    {                                                                                              \
        (void)scale;                                                                               \
        for (int64_t i = 0; i < count; i++)                                                        \
            sum[i] += MUL(x[i], scale);                                                            \
    }

/* As many sources and outputs as the name says, each read or written once: twice as fast, in the
 * caches, as a sum in a block that is copied. An output is one of the sources, or overlaps none. */
#define DEFINE_SUM(name, type, scale_type, MUL, sources, outputs)                                  \
    DPB_COMM_CLONES static void name##_sum##sources##_to##outputs(                                 \
            void *const *source, void *const *output, int64_t first, int64_t count,                \
            scale_type scale)                                                                      \
    {                                                                                              \
        const type *from[sources];                                                                 \
        type *to[outputs];                                                                         \
        (void)scale;                                                                               \
        for (int s = 0; s < (sources); s++)                                                        \
            from[s] = (const type *)source[s] + first;                                             \
        for (int o = 0; o < (outputs); o++)                                                        \
            to[o] = (type *)output[o] + first;                                                     \
        DPB_COMM_INDEPENDENT                                                                       \
        for (int64_t i = 0; i < count; i++) {                                                      \
            type sum = MUL(from[0][i], scale);                                                     \
            for (int s = 1; s < (sources); s++)                                                    \
                sum += MUL(from[s][i], scale);                                                     \
            for (int o = 0; o < (outputs); o++)                                                    \
                to[o][i] = sum;                                                                    \
        }                                                                                          \
    }

/* An all-reduce writes all that it reads; the other reductions have one output. */
#define DEFINE_SUMS(name, type, scale_type, MUL, sources)                                          \
    DEFINE_SUM(name, type, scale_type, MUL, sources, 1)                                            \
    DEFINE_SUM(name, type, scale_type, MUL, sources, sources)

#define CALL_SUM(name, sources)                                                                    \
    case sources:                                                                                  \
        if (output_count == 1)                                                                     \
            name##_sum##sources##_to1(source, output, first, count, scale);                        \
        else                                                                                       \
            name##_sum##sources##_to##sources(source, output, first, count, scale);                \
        return true;

/* False where there is no such loop: the first-level cache has 8 ways or more, and all ranks'
 * arrays begin at the same place of a page. */
#define DEFINE_AT_ONCE(name, type, scale_type, MUL)                                                \
    DEFINE_SUMS(name, type, scale_type, MUL, 2)                                                    \
    DEFINE_SUMS(name, type, scale_type, MUL, 3)                                                    \
    DEFINE_SUMS(name, type, scale_type, MUL, 4)                                                    \
    DEFINE_SUMS(name, type, scale_type, MUL, 5)                                                    \
    DEFINE_SUMS(name, type, scale_type, MUL, 6)                                                    \
    DEFINE_SUMS(name, type, scale_type, MUL, 7)                                                    \
    DEFINE_SUMS(name, type, scale_type, MUL, 8)                                                    \
                                                                                                   \
    static bool name##_at_once(void *const *source, int source_count, void *const *output,         \
                               int output_count, int64_t first, int64_t count, scale_type scale)   \
    {                                                                                              \
        if (output_count != 1 && output_count != source_count)                                     \
            return false;                                                                          \
        switch (source_count) {                                                                    \
            CALL_SUM(name, 2)                                                                      \
            CALL_SUM(name, 3)                                                                      \
            CALL_SUM(name, 4)                                                                      \
            CALL_SUM(name, 5)                                                                      \
            CALL_SUM(name, 6)                                                                      \
            CALL_SUM(name, 7)                                                                      \
            CALL_SUM(name, 8)                                                                      \
        default:                                                                                   \
            return false;                                                                          \
        }                                                                                          \
    }

/* Sums of many sources: in one loop, or the loops above over blocks. */
#define DEFINE_ALL(name, type, scale_type)                                                         \
    static void name##_all(void *const *sources, int source_count, void *const *outputs,           \
                           int output_count, int64_t first, int64_t count, scale_type scale)       \
    {                                                                                              \
        type block[BLOCK_BYTES / sizeof(type)];                                                    \
        const int64_t most = BLOCK_BYTES / sizeof(type);                                           \
        if (name##_at_once(sources, source_count, outputs, output_count, first, count, scale))     \
            return;                                                                                \
        for (int64_t at = first, end = first + count; at < end; at += most) {                      \
            int64_t n = end - at < most ? end - at : most;                                         \
            name##_set(block, (const type *)sources[0] + at, n, scale);                            \
            for (int s = 1; s < source_count; s++)                                                 \
                name##_add(block, (const type *)sources[s] + at, n, scale);                        \
            for (int o = 0; o < output_count; o++)                                                 \
                memcpy((type *)outputs[o] + at, block, (size_t)n * sizeof(type));                  \
        }                                                                                          \
    }

DEFINE_KERNELS(f32, float, float, TIMES_SCALE)
DEFINE_KERNELS(f64, double, double, TIMES_SCALE)
DEFINE_KERNELS(i32, uint32_t, float, IGNORE_SCALE)
DEFINE_KERNELS(i64, uint64_t, float, IGNORE_SCALE)

DEFINE_AT_ONCE(f32, float, float, TIMES_SCALE)
DEFINE_AT_ONCE(f64, double, double, TIMES_SCALE)
DEFINE_AT_ONCE(i32, uint32_t, float, IGNORE_SCALE)
DEFINE_AT_ONCE(i64, uint64_t, float, IGNORE_SCALE)

#define DEFINE_HALF_KERNELS(name, dtype)                                                           \
    static void name##_join(uint16_t *own, const uint16_t *from, int64_t count, float own_scale,   \
                            float from_scale)                                                      \
    {                                                                                              \
        dpb_half_variant(dtype, 0)->sum(own, own_scale, from, from_scale, NULL, count);            \
    }                                                                                              \
                                                                                                   \
    static void name##_both(uint16_t *a, uint16_t *b, int64_t count, float a_scale, float b_scale) \
    {                                                                                              \
        dpb_half_variant(dtype, 0)->sum(a, a_scale, b, b_scale, b, count);                         \
    }                                                                                              \
                                                                                                   \
    static void name##_set(uint16_t *sum, const uint16_t *x, int64_t count, float scale)           \
    {                                                                                              \
        dpb_half_variant(dtype, 0)->scale(sum, x, scale, count);                                   \
    }                                                                                              \
                                                                                                   \
    static void name##_add(uint16_t *sum, const uint16_t *x, int64_t count, float scale)           \
    {                                                                                              \
        dpb_half_variant(dtype, 0)->sum(sum, 1, x, scale, NULL, count);                            \
    }                                                                                              \
                                                                                                   \
    static bool name##_at_once(void *const *source, int source_count, void *const *output,         \
                               int output_count, int64_t first, int64_t count, float scale)        \
    {                                                                                              \
        if (output != source || source_count != 2 || output_count != 2)                            \
            return false;                                                                          \
        name##_both((uint16_t *)source[0] + first, (uint16_t *)source[1] + first, count, scale,    \
                    scale);                                                                        \
        return true;                                                                               \
    }

DEFINE_HALF_KERNELS(bf16, DPB_BF16)
DEFINE_HALF_KERNELS(f16, DPB_F16)

DEFINE_ALL(f32, float, float)
DEFINE_ALL(f64, double, double)
DEFINE_ALL(i32, uint32_t, float)
DEFINE_ALL(i64, uint64_t, float)
DEFINE_ALL(bf16, uint16_t, float)
DEFINE_ALL(f16, uint16_t, float)

bool dpb_reduce_supports(enum dpb_dtype dtype)
{
    return dtype != DPB_U8;
}

void dpb_reduce_all(enum dpb_dtype dtype, void *const *sources, int source_count,
                    void *const *outputs, int output_count, int64_t first, int64_t count,
                    float scale)
{
    switch (dtype) {
    case DPB_F32:
        f32_all(sources, source_count, outputs, output_count, first, count, scale);
        break;
    case DPB_F64:
        f64_all(sources, source_count, outputs, output_count, first, count, scale);
        break;
    case DPB_I32:
        i32_all(sources, source_count, outputs, output_count, first, count, scale);
        break;
    case DPB_I64:
        i64_all(sources, source_count, outputs, output_count, first, count, scale);
        break;
    case DPB_BF16:
        bf16_all(sources, source_count, outputs, output_count, first, count, scale);
        break;
    case DPB_F16:
        f16_all(sources, source_count, outputs, output_count, first, count, scale);
        break;
    default: /* start() refuses the others */
        break;
    }
}

void dpb_reduce_join(enum dpb_dtype dtype, void *own, const void *from, int64_t first,
                     int64_t count, float own_scale, float from_scale)
{
    switch (dtype) {
    case DPB_F32:
        f32_join((float *)own + first, (const float *)from + first, count, own_scale, from_scale);
        break;
    case DPB_F64:
        f64_join((double *)own + first, (const double *)from + first, count, own_scale, from_scale);
        break;
    case DPB_I32:
        i32_join((uint32_t *)own + first, (const uint32_t *)from + first, count, own_scale,
                 from_scale);
        break;
    case DPB_I64:
        i64_join((uint64_t *)own + first, (const uint64_t *)from + first, count, own_scale,
                 from_scale);
        break;
    case DPB_BF16:
        bf16_join((uint16_t *)own + first, (const uint16_t *)from + first, count, own_scale,
                  from_scale);
        break;
    case DPB_F16:
        f16_join((uint16_t *)own + first, (const uint16_t *)from + first, count, own_scale,
                 from_scale);
        break;
    default:
        break;
    }
}

void dpb_reduce_both(enum dpb_dtype dtype, void *a, void *b, int64_t first, int64_t count,
                     float a_scale, float b_scale)
{
    switch (dtype) {
    case DPB_F32:
        f32_both((float *)a + first, (float *)b + first, count, a_scale, b_scale);
        break;
    case DPB_F64:
        f64_both((double *)a + first, (double *)b + first, count, a_scale, b_scale);
        break;
    case DPB_I32:
        i32_both((uint32_t *)a + first, (uint32_t *)b + first, count, a_scale, b_scale);
        break;
    case DPB_I64:
        i64_both((uint64_t *)a + first, (uint64_t *)b + first, count, a_scale, b_scale);
        break;
    case DPB_BF16:
        bf16_both((uint16_t *)a + first, (uint16_t *)b + first, count, a_scale, b_scale);
        break;
    case DPB_F16:
        f16_both((uint16_t *)a + first, (uint16_t *)b + first, count, a_scale, b_scale);
        break;
    default:
        break;
    }
}

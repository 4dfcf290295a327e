#include "half.h"

#include <stddef.h>

#include "clones.h"

/* Elements that are summed before they are copied to the second place: they stay in the cache. */
#define BLOCK 4096

/* The loops of one type in plain C: also the ends of the wide ones. */
#define DEFINE_PORTABLE(name)                                                                      \
    static inline __attribute__((always_inline)) void name##_sum_once(                             \
            uint16_t *restrict a, float a_scale, const uint16_t *restrict b, float b_scale,        \
            int64_t count)                                                                         \
    {                                                                                              \
        for (int64_t i = 0; i < count; i++) {                                                      \
            float x = dpb_half_from_##name(a[i]) * a_scale;                                        \
            float y = dpb_half_from_##name(b[i]) * b_scale;                                        \
            a[i] = dpb_half_to_##name(dpb_half_from_##name(dpb_half_to_##name(x)) +                \
                                      dpb_half_from_##name(dpb_half_to_##name(y)));                \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    DPB_COMM_CLONES static void name##_sum(uint16_t *a, float a_scale, const uint16_t *b,          \
                                           float b_scale, uint16_t *both, int64_t count)           \
    {                                                                                              \
        for (int64_t at = 0; at < count; at += BLOCK) {                                            \
            int64_t n = count - at < BLOCK ? count - at : BLOCK;                                   \
            name##_sum_once(a + at, a_scale, b + at, b_scale, n);                                  \
            if (both)                                                                              \
                memcpy(both + at, a + at, (size_t)n * sizeof(*a));                                 \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    DPB_COMM_CLONES static void name##_scale(uint16_t *restrict to, const uint16_t *restrict from, \
                                             float scale, int64_t count)                           \
    {                                                                                              \
        for (int64_t i = 0; i < count; i++)                                                        \
            to[i] = dpb_half_to_##name(dpb_half_from_##name(from[i]) * scale);                     \
    }                                                                                              \
    static const struct dpb_half_ops name##_portable = {"portable", name##_sum, name##_scale};

DEFINE_PORTABLE(bf16)
DEFINE_PORTABLE(f16)

const struct dpb_half_ops *dpb_half_portable(enum dpb_dtype dtype)
{
    return dtype == DPB_BF16 ? &bf16_portable : &f16_portable;
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define WIDE        __attribute__((target("avx512f")))
#define WIDE_INLINE static inline __attribute__((target("avx512f"), always_inline))

WIDE_INLINE __m512 f16_load(const uint16_t *from)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)from));
}

WIDE_INLINE __m256i f16_narrow(__m512 value)
{
    return _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

WIDE_INLINE __m512 f16_round(__m512 value)
{
    return _mm512_cvtph_ps(f16_narrow(value));
}

WIDE_INLINE __m512 bf16_load(const uint16_t *from)
{
    __m256i halves = _mm256_loadu_si256((const __m256i *)(const void *)from);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

/* In integers, because the processor's own conversion takes subnormal numbers for zero. */
WIDE_INLINE __m512i bf16_rounded_bits(__m512 value)
{
    __m512i bits = _mm512_castps_si512(value);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    return _mm512_mask_mov_epi32(rounded, _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q), quiet);
}

WIDE_INLINE __m256i bf16_narrow(__m512 value)
{
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(bf16_rounded_bits(value), 16));
}

WIDE_INLINE __m512 bf16_round(__m512 value)
{
    return _mm512_castsi512_ps(
            _mm512_and_si512(bf16_rounded_bits(value), _mm512_set1_epi32((int)0xffff0000u)));
}

/* A factor of 1 changes no bits, but takes a rounding: left out. */
#define DEFINE_WIDE(name)                                                                          \
    WIDE static void name##_sum_wide(uint16_t *a, float a_scale, const uint16_t *b, float b_scale, \
                                     uint16_t *both, int64_t count)                                \
    {                                                                                              \
        const __m512 a_factor = _mm512_set1_ps(a_scale);                                           \
        const __m512 b_factor = _mm512_set1_ps(b_scale);                                           \
        int64_t at = 0;                                                                            \
        for (; at + 16 <= count; at += 16) {                                                       \
            __m512 x = name##_load(a + at);                                                        \
            __m512 y = name##_load(b + at);                                                        \
            if (a_scale != 1)                                                                      \
                x = name##_round(_mm512_mul_ps(x, a_factor));                                      \
            if (b_scale != 1)                                                                      \
                y = name##_round(_mm512_mul_ps(y, b_factor));                                      \
            __m256i sum = name##_narrow(_mm512_add_ps(x, y));                                      \
            _mm256_storeu_si256((__m256i *)(void *)(a + at), sum);                                 \
            if (both)                                                                              \
                _mm256_storeu_si256((__m256i *)(void *)(both + at), sum);                          \
        }                                                                                          \
        name##_sum(a + at, a_scale, b + at, b_scale, both ? both + at : NULL, count - at);         \
    }                                                                                              \
                                                                                                   \
    WIDE static void name##_scale_wide(uint16_t *to, const uint16_t *from, float scale,            \
                                       int64_t count)                                              \
    {                                                                                              \
        int64_t at = 0;                                                                            \
        for (; at + 16 <= count; at += 16) {                                                       \
            __m512 product = _mm512_mul_ps(name##_load(from + at), _mm512_set1_ps(scale));         \
            _mm256_storeu_si256((__m256i *)(void *)(to + at), name##_narrow(product));             \
        }                                                                                          \
        name##_scale(to + at, from + at, scale, count - at);                                       \
    }                                                                                              \
    static const struct dpb_half_ops name##_wide = {"avx512f", name##_sum_wide, name##_scale_wide};

DEFINE_WIDE(bf16)
DEFINE_WIDE(f16)

const struct dpb_half_ops *dpb_half_fastest(enum dpb_dtype dtype)
{
    if (!__builtin_cpu_supports("avx512f"))
        return dpb_half_portable(dtype);
    return dtype == DPB_BF16 ? &bf16_wide : &f16_wide;
}
#else
const struct dpb_half_ops *dpb_half_fastest(enum dpb_dtype dtype)
{
    return dpb_half_portable(dtype);
}
#endif

#include "half.h"

#include <stdatomic.h>
#include <stdbool.h>
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

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#include <immintrin.h>

#define AVX512        __attribute__((target("avx512f")))
#define AVX512_INLINE static inline __attribute__((target("avx512f"), always_inline))
#define AVX2          __attribute__((target("avx2,f16c")))
#define AVX2_INLINE   static inline __attribute__((target("avx2,f16c"), always_inline))

/* ---- 16 elements ---- */

AVX512_INLINE __m512 avx512_all(float value)
{
    return _mm512_set1_ps(value);
}

AVX512_INLINE __m512 f16_avx512_load(const uint16_t *from)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)from));
}

AVX512_INLINE __m256i f16_avx512_narrow(__m512 value)
{
    return _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

AVX512_INLINE __m512 f16_avx512_round(__m512 value)
{
    return _mm512_cvtph_ps(f16_avx512_narrow(value));
}

AVX512_INLINE __m512 bf16_avx512_load(const uint16_t *from)
{
    __m256i halves = _mm256_loadu_si256((const __m256i *)(const void *)from);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

/* In integers, because the processor's own conversion takes subnormal numbers for zero. */
AVX512_INLINE __m512i bf16_avx512_bits(__m512 value)
{
    __m512i bits = _mm512_castps_si512(value);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    return _mm512_mask_mov_epi32(rounded, _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q), quiet);
}

AVX512_INLINE __m256i bf16_avx512_narrow(__m512 value)
{
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(bf16_avx512_bits(value), 16));
}

AVX512_INLINE __m512 bf16_avx512_round(__m512 value)
{
    return _mm512_castsi512_ps(
            _mm512_and_si512(bf16_avx512_bits(value), _mm512_set1_epi32((int)0xffff0000u)));
}

AVX512_INLINE void avx512_store(uint16_t *to, __m256i halves)
{
    _mm256_storeu_si256((__m256i *)(void *)to, halves);
}

/* ---- 8 elements ---- */

AVX2_INLINE __m256 avx2_all(float value)
{
    return _mm256_set1_ps(value);
}

AVX2_INLINE __m256 f16_avx2_load(const uint16_t *from)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)from));
}

AVX2_INLINE __m128i f16_avx2_narrow(__m256 value)
{
    return _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

AVX2_INLINE __m256 f16_avx2_round(__m256 value)
{
    return _mm256_cvtph_ps(f16_avx2_narrow(value));
}

AVX2_INLINE __m256 bf16_avx2_load(const uint16_t *from)
{
    __m128i halves = _mm_loadu_si128((const __m128i *)(const void *)from);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

AVX2_INLINE __m256i bf16_avx2_bits(__m256 value)
{
    __m256i bits = _mm256_castps_si256(value);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(rounded, quiet, is_nan);
}

AVX2_INLINE __m128i bf16_avx2_narrow(__m256 value)
{
    __m256i high = _mm256_srli_epi32(bf16_avx2_bits(value), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
}

AVX2_INLINE __m256 bf16_avx2_round(__m256 value)
{
    return _mm256_castsi256_ps(
            _mm256_and_si256(bf16_avx2_bits(value), _mm256_set1_epi32((int)0xffff0000u)));
}

AVX2_INLINE void avx2_store(uint16_t *to, __m128i halves)
{
    _mm_storeu_si128((__m128i *)(void *)to, halves);
}

/* ---- the loops of both ---- */

/* A factor of 1 changes no bits, but takes a rounding: left out. */
#define DEFINE_WIDE(name, isa, ISA, vector, narrow, lanes)                                         \
    ISA static void name##_##isa##_sum(uint16_t *a, float a_scale, const uint16_t *b,              \
                                       float b_scale, uint16_t *both, int64_t count)               \
    {                                                                                              \
        const vector a_factor = isa##_all(a_scale);                                                \
        const vector b_factor = isa##_all(b_scale);                                                \
        int64_t at = 0;                                                                            \
        for (; at + (lanes) <= count; at += (lanes)) {                                             \
            vector x = name##_##isa##_load(a + at);                                                \
            vector y = name##_##isa##_load(b + at);                                                \
            if (a_scale != 1)                                                                      \
                x = name##_##isa##_round(x * a_factor);                                            \
            if (b_scale != 1)                                                                      \
                y = name##_##isa##_round(y * b_factor);                                            \
            narrow sum = name##_##isa##_narrow(x + y);                                             \
            isa##_store(a + at, sum);                                                              \
            if (both)                                                                              \
                isa##_store(both + at, sum);                                                       \
        }                                                                                          \
        name##_sum(a + at, a_scale, b + at, b_scale, both ? both + at : NULL, count - at);         \
    }                                                                                              \
                                                                                                   \
    ISA static void name##_##isa##_scale(uint16_t *to, const uint16_t *from, float scale,          \
                                         int64_t count)                                            \
    {                                                                                              \
        const vector factor = isa##_all(scale);                                                    \
        int64_t at = 0;                                                                            \
        for (; at + (lanes) <= count; at += (lanes))                                               \
            isa##_store(to + at, name##_##isa##_narrow(name##_##isa##_load(from + at) * factor));  \
        name##_scale(to + at, from + at, scale, count - at);                                       \
    }                                                                                              \
    static const struct dpb_half_ops name##_##isa = {#isa, name##_##isa##_sum,                     \
                                                     name##_##isa##_scale};

DEFINE_WIDE(bf16, avx512, AVX512, __m512, __m256i, 16)
DEFINE_WIDE(f16, avx512, AVX512, __m512, __m256i, 16)
DEFINE_WIDE(bf16, avx2, AVX2, __m256, __m128i, 8)
DEFINE_WIDE(f16, avx2, AVX2, __m256, __m128i, 8)

/* Asked once: in a virtual machine the answer takes some microseconds. clang 14 has none. */
static bool has_f16c(void)
{
    static _Atomic int known; /* 1: yes, -1: no */
    int answer = atomic_load_explicit(&known, memory_order_relaxed);
    if (answer == 0) {
        unsigned a, b, c, d;
        answer = __get_cpuid(1, &a, &b, &c, &d) && c & bit_F16C ? 1 : -1;
        atomic_store_explicit(&known, answer, memory_order_relaxed);
    }
    return answer > 0;
}

/* Those of this processor, the fastest first. */
static int list_wide(enum dpb_dtype dtype, const struct dpb_half_ops *ops[2])
{
    int count = 0;
    if (__builtin_cpu_supports("avx512f"))
        ops[count++] = dtype == DPB_BF16 ? &bf16_avx512 : &f16_avx512;
    if (__builtin_cpu_supports("avx2") && has_f16c())
        ops[count++] = dtype == DPB_BF16 ? &bf16_avx2 : &f16_avx2;
    return count;
}
#else
static int list_wide(enum dpb_dtype dtype, const struct dpb_half_ops *ops[2])
{
    (void)dtype, (void)ops;
    return 0;
}
#endif

const struct dpb_half_ops *dpb_half_variant(enum dpb_dtype dtype, int index)
{
    const struct dpb_half_ops *wide[2];
    const int count = list_wide(dtype, wide);
    if (index < count)
        return wide[index];
    if (index > count)
        return NULL;
    return dtype == DPB_BF16 ? &bf16_portable : &f16_portable;
}

/* bf16.h: loops over arrays of fp32 or bf16, written once. Private to this folder.
 *
 * A loop is an always-inline function with a last argument `bf16`; DPB_CPU_BY_TYPE(name) makes the
 * bodies name_f32 and name_bf16 of it, in which `bf16` is a constant. */
#ifndef DPB_CPU_BF16_H
#define DPB_CPU_BF16_H

#include <string.h>

#include "cpu_device.h"

/* bf16 is the upper half of an fp32. */
static inline float dpb_cpu_from_bf16(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* To nearest, ties to even; NaN stays NaN. */
static inline uint16_t dpb_cpu_to_bf16(float value)
{
    uint32_t bits, rounded;

    memcpy(&bits, &value, sizeof(bits));
    rounded = bits + 0x7fffu + (bits >> 16 & 1u);
    /* 0x400000: with the payload's upper half empty it would become an infinity */
    rounded = (bits & 0x7fffffffu) > 0x7f800000u ? bits | 0x400000u : rounded;
    return (uint16_t)(rounded >> 16);
}

/* fp16 has 5 bits of exponent and 10 of significand. Without branches, so that loops vectorise. */
static inline float dpb_cpu_from_fp16(uint16_t half)
{
    const uint32_t bias = (127u - 15u) << 23;
    uint32_t magnitude = half & 0x7fffu, sign = (uint32_t)(half & 0x8000u) << 16, bits;
    float tiny = (float)(int32_t)magnitude * 0x1p-24f, value; /* where subnormal */

    memcpy(&bits, &tiny, sizeof(bits));
    bits = magnitude < 0x0400u ? bits : (magnitude << 13) + bias;
    bits += magnitude >= 0x7c00u ? bias : 0; /* infinity and NaN: exponent 31 becomes 255 */
    bits |= sign;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* To nearest, ties to even; too large becomes infinity, NaN stays NaN. */
static inline uint16_t dpb_cpu_to_fp16(float value)
{
    const uint32_t bias = (127u - 15u) << 23, half_one = 0x3f000000u;
    uint32_t bits, magnitude, normal, subnormal, special, result;
    float shifted;

    memcpy(&bits, &value, sizeof(bits));
    magnitude = bits & 0x7fffffffu;
    normal = (magnitude - bias + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
    /* Between 0.5 and 1 an fp32 counts in units of 2^-24, as subnormal fp16 numbers do. */
    memcpy(&shifted, &magnitude, sizeof(shifted));
    shifted += 0.5f;
    memcpy(&subnormal, &shifted, sizeof(subnormal));
    subnormal -= half_one;
    special = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
    result = magnitude < 0x38800000u ? subnormal : normal; /* 2^-14 */
    result = magnitude >= 0x47800000u ? special : result;  /* 2^16 */
    return (uint16_t)(result | (bits >> 16 & 0x8000u));
}

#define DPB_CPU_LOOP static inline __attribute__((always_inline)) void

static inline __attribute__((always_inline)) float dpb_cpu_load(const void *array, int64_t i,
                                                                bool bf16)
{
    return bf16 ? dpb_cpu_from_bf16(((const uint16_t *)array)[i]) : ((const float *)array)[i];
}

DPB_CPU_LOOP dpb_cpu_store(void *array, int64_t i, float value, bool bf16)
{
    if (bf16)
        ((uint16_t *)array)[i] = dpb_cpu_to_bf16(value);
    else
        ((float *)array)[i] = value;
}

/* `name`(void *ctx, int64_t begin, int64_t end, bool bf16) for each element type. */
#define DPB_CPU_BY_TYPE(name)                                                                      \
    DPB_CPU_CLONES static void name##_f32(void *ctx, int64_t begin, int64_t end)                   \
    {                                                                                              \
        name(ctx, begin, end, false);                                                              \
    }                                                                                              \
    DPB_CPU_CLONES static void name##_bf16(void *ctx, int64_t begin, int64_t end)                  \
    {                                                                                              \
        name(ctx, begin, end, true);                                                               \
    }

#endif

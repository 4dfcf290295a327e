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

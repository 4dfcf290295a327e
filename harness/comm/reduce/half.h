/* half.h: sums of bf16 and fp16, each product and each sum rounded to the type.
 *
 * A product is taken in fp32 with the fp32 factor, a sum of two in fp32, and either is rounded to
 * nearest, ties to even. For sums that is the correctly rounded sum of the type, because fp32 has
 * more than twice its digits and two. Subnormal numbers are kept, infinities and NaN stay what they
 * are. Every variant has the same bits, except for which NaN a NaN is. */
#ifndef DPB_COMM_HALF_H
#define DPB_COMM_HALF_H

#include <stdint.h>
#include <string.h>

#include "dpb_types.h"

struct dpb_half_ops {
    const char *name; /* of the variant */
    /* a = both = a * a_scale + b * b_scale; `both` may be `b`, or NULL */
    void (*sum)(uint16_t *a, float a_scale, const uint16_t *b, float b_scale, uint16_t *both,
                int64_t count);
    /* to = from * scale */
    void (*scale)(uint16_t *to, const uint16_t *from, float scale, int64_t count);
};

/* The variants that this processor can run, the fastest first; the last one is plain C, and behind
 * it NULL. `dtype` is bf16 or fp16. */
const struct dpb_half_ops *dpb_half_variant(enum dpb_dtype dtype, int index);

static inline uint32_t dpb_half_bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline float dpb_half_float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* bf16 is the upper half of an fp32. */
static inline float dpb_half_from_bf16(uint16_t half)
{
    return dpb_half_float_of((uint32_t)half << 16);
}

static inline uint16_t dpb_half_to_bf16(float value)
{
    uint32_t bits = dpb_half_bits_of(value);
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    uint32_t quiet = bits >> 16 | 0x40;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded);
}

static inline float dpb_half_from_f16(uint16_t half)
{
    const uint32_t bias = 112u << 23; /* of the exponents, 127 - 15 */
    uint32_t magnitude = half & 0x7fff;
    uint32_t normal = (magnitude << 13) + bias;
    uint32_t special = normal + bias; /* infinity and NaN: exponent 31 becomes 255 */
    uint32_t subnormal = dpb_half_bits_of((float)(int32_t)magnitude * 0x1p-24f);
    uint32_t bits = magnitude >= 0x7c00 ? special : magnitude < 0x0400 ? subnormal : normal;
    return dpb_half_float_of(bits | (uint32_t)(half & 0x8000) << 16);
}

static inline uint16_t dpb_half_to_f16(float value)
{
    const uint32_t bias = 112u << 23;
    uint32_t bits = dpb_half_bits_of(value);
    uint32_t magnitude = bits & 0x7fffffff;
    uint32_t normal = (magnitude - bias + 0xfff + (magnitude >> 13 & 1)) >> 13;
    /* Between 0.5 and 1 an fp32 counts in units of 2^-24, as subnormal fp16 numbers do. */
    uint32_t subnormal =
            dpb_half_bits_of(dpb_half_float_of(magnitude) + 0.5f) - dpb_half_bits_of(0.5f);
    uint32_t large = magnitude > 0x7f800000 ? 0x7e00 : 0x7c00;
    uint32_t half = magnitude >= 0x47800000 ? large : magnitude < 0x38800000 ? subnormal : normal;
    return (uint16_t)(half | (bits >> 16 & 0x8000));
}

#endif

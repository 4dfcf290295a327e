/* fake_number.h: elements of fp32, bf16 and fp16 as doubles, for fakes of vendors' libraries. */
#ifndef DPB_FAKE_NUMBER_H
#define DPB_FAKE_NUMBER_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "dpb_types.h"

static inline int fake_fraction_bits(enum dpb_dtype dtype)
{
    return dtype == DPB_BF16 ? 7 : 10;
}

static inline int fake_exponent_bias(enum dpb_dtype dtype)
{
    return dtype == DPB_BF16 ? 127 : 15;
}

/* IEEE 754: sign, exponent, fraction. */
static inline double fake_half_value(enum dpb_dtype dtype, uint16_t bits)
{
    int digits = fake_fraction_bits(dtype), bias = fake_exponent_bias(dtype);
    int exponent = (bits & 0x7fff) >> digits, fraction = bits & ((1 << digits) - 1);
    double magnitude = exponent == 2 * bias + 1 ? (fraction ? NAN : INFINITY)
                       : exponent == 0          ? ldexp(fraction, 1 - bias - digits)
                                       : ldexp(fraction + (1 << digits), exponent - bias - digits);

    return bits & 0x8000 ? -magnitude : magnitude;
}

/* To nearest, ties to even. */
static inline uint16_t fake_half_bits(enum dpb_dtype dtype, double value)
{
    int digits = fake_fraction_bits(dtype), bias = fake_exponent_bias(dtype), exponent, steps;
    unsigned sign = signbit(value) ? 0x8000u : 0u, infinite = (2u * (unsigned)bias + 1) << digits;

    if (isnan(value))
        return (uint16_t)(infinite + 1);
    if (value == 0)
        return (uint16_t)sign;
    frexp(value, &exponent);
    exponent = exponent - 1 < 1 - bias ? 1 - bias : exponent - 1; /* from here on subnormal */
    if (isinf(value) || exponent > bias)
        return (uint16_t)(sign | infinite);
    steps = (int)nearbyint(ldexp(fabs(value), digits - exponent));
    /* What rounds up to the next power of two carries into the exponent by itself. */
    return (uint16_t)(sign | (unsigned)(((exponent + bias - 1) << digits) + steps));
}

static inline double fake_load(const void *from, enum dpb_dtype dtype, int64_t index)
{
    float single;
    uint16_t half;

    if (dtype == DPB_F32) {
        memcpy(&single, (const char *)from + index * 4, sizeof(single));
        return single;
    }
    memcpy(&half, (const char *)from + index * 2, sizeof(half));
    return fake_half_value(dtype, half);
}

static inline void fake_store(void *to, enum dpb_dtype dtype, int64_t index, double value)
{
    float single = (float)value;
    uint16_t half;

    if (dtype == DPB_F32) {
        memcpy((char *)to + index * 4, &single, sizeof(single));
        return;
    }
    half = fake_half_bits(dtype, value);
    memcpy((char *)to + index * 2, &half, sizeof(half));
}

/* For the widest vectors that there are; clang 14 cannot, and a sanitizer's run-time library is not
 * there yet when the loader chooses. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) &&                             \
        !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define FAKE_CLONES __attribute__((target_clones("avx512f", "avx2", "default"), unused))
#else
#define FAKE_CLONES __attribute__((unused))
#endif

FAKE_CLONES static double fake_dot(const double *x, const double *y, int64_t count)
{
    double sum = 0;

    for (int64_t i = 0; i < count; i++)
        sum += x[i] * y[i];
    return sum;
}

/* to += factor * x */
FAKE_CLONES static void fake_add_scaled(double *to, double factor, const double *x, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] += factor * x[i];
}

#endif

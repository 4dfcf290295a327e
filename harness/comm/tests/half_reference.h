/* half_reference.h: bf16 and fp16 by their definition, in double: slow, and nothing to get wrong.
 */
#ifndef DPB_COMM_TEST_HALF_REFERENCE_H
#define DPB_COMM_TEST_HALF_REFERENCE_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "dpb_types.h"

static inline int half_fraction_bits(enum dpb_dtype dtype)
{
    return dtype == DPB_BF16 ? 7 : 10;
}

static inline int half_bias(enum dpb_dtype dtype)
{
    return dtype == DPB_BF16 ? 127 : 15;
}

static inline double half_value(enum dpb_dtype dtype, uint16_t bits)
{
    int digits = half_fraction_bits(dtype);
    int fraction = bits & ((1 << digits) - 1);
    int exponent = (bits & 0x7fff) >> digits;
    double sign = bits & 0x8000 ? -1 : 1;
    if (exponent == 2 * half_bias(dtype) + 1)
        return fraction ? NAN : sign * INFINITY;
    if (exponent == 0)
        return sign * ldexp(fraction, 1 - half_bias(dtype) - digits);
    return sign * ldexp(fraction + (1 << digits), exponent - half_bias(dtype) - digits);
}

/* The nearest number of the type, of two the one whose last digit is 0. */
static inline double half_round(enum dpb_dtype dtype, double value)
{
    int digits = half_fraction_bits(dtype);
    int exponent;
    if (!isfinite(value) || value == 0)
        return value;
    frexp(value, &exponent);
    int least = 1 - half_bias(dtype) - digits;
    int last = exponent - 1 - digits > least ? exponent - 1 - digits : least;
    double rounded = ldexp(nearbyint(ldexp(value, -last)), last);
    return fabs(rounded) >= ldexp(1, half_bias(dtype) + 1) ? copysign(INFINITY, value) : rounded;
}

/* The bits of a number that the type holds exactly; of NaN, any. */
static inline uint16_t half_bits(enum dpb_dtype dtype, double value)
{
    int digits = half_fraction_bits(dtype);
    unsigned sign = signbit(value) ? 0x8000 : 0;
    double magnitude = fabs(value);
    int infinite = (2 * half_bias(dtype) + 1) << digits;
    int exponent;
    if (isnan(value))
        return (uint16_t)(infinite + 1);
    if (isinf(value))
        return (uint16_t)(sign | (unsigned)infinite);
    frexp(magnitude, &exponent);
    exponent += half_bias(dtype) - 1;
    if (magnitude == 0 || exponent <= 0)
        return (uint16_t)(sign | (unsigned)ldexp(magnitude, half_bias(dtype) - 1 + digits));
    int fraction = (int)ldexp(magnitude, digits - (exponent - half_bias(dtype))) - (1 << digits);
    return (uint16_t)(sign | (unsigned)(exponent << digits) | (unsigned)fraction);
}

/* Equal, or both NaN. */
static inline bool half_same(enum dpb_dtype dtype, uint16_t a, uint16_t b)
{
    return a == b || (isnan(half_value(dtype, a)) && isnan(half_value(dtype, b)));
}

#endif

/* vector_exp.h: e^x in plain arithmetic, so that loops over it vectorise. Private to this folder.
 */
#ifndef DPB_CPU_VECTOR_EXP_H
#define DPB_CPU_VECTOR_EXP_H

#include <stdint.h>
#include <string.h>

/* Within 2 units in the last place for -87 <= x <= 88, 0 below (minus infinity too); NaN stays.
 * x = n ln 2 + r with |r| <= ln(2) / 2; the polynomial is Cephes' expf(). */
static inline float dpb_cpu_exp(float x)
{
    const float magic = 0x1.8p23f; /* x + magic has n in its last bits */
    float inside = x < -87.0f ? -87.0f : x;
    float with_n = inside * 0x1.715476p+0f + magic, n = with_n - magic;
    float r = inside - n * 0.693359375f - n * -2.12194440e-4f;
    float p = 1.9875691500e-4f, power;
    uint32_t bits;

    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    memcpy(&bits, &with_n, sizeof(bits));
    /* 2^n, or 0. Not by a choice: it may become a branch, and the loop then does not vectorise. */
    bits = ((bits << 23) + 0x3f800000u) & -(uint32_t)(x >= -87.0f);
    memcpy(&power, &bits, sizeof(power));
    return p * power;
}

#endif

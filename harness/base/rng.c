#include "dpb_rng.h"

#include <math.h>

__extension__ typedef unsigned __int128 u128;

/* Multipliers and Weyl constants of Philox-4x32 (Salmon et al. 2011, table 2 and section 4.3). */
#define PHILOX_M0     0xD2511F53u
#define PHILOX_M1     0xCD9E8D57u
#define PHILOX_W0     0x9E3779B9u
#define PHILOX_W1     0xBB67AE85u
#define PHILOX_ROUNDS 10

void dpb_philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    int round;

    for (round = 0; round < PHILOX_ROUNDS; round++) {
        uint64_t product0 = (uint64_t)PHILOX_M0 * c0;
        uint64_t product1 = (uint64_t)PHILOX_M1 * c2;

        c0 = (uint32_t)(product1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)product1;
        c2 = (uint32_t)(product0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)product0;
        k0 += PHILOX_W0;
        k1 += PHILOX_W1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

void dpb_rng_init(struct dpb_rng *rng, uint64_t seed, uint64_t stream)
{
    rng->key[0] = (uint32_t)seed;
    rng->key[1] = (uint32_t)(seed >> 32);
    /* The low half of the counter runs, the high half is the stream: no two streams share a block
     * before 2^64 blocks. */
    rng->counter[0] = 0;
    rng->counter[1] = 0;
    rng->counter[2] = (uint32_t)stream;
    rng->counter[3] = (uint32_t)(stream >> 32);
    rng->used = 4;
}

uint32_t dpb_rng_u32(struct dpb_rng *rng)
{
    if (rng->used >= 4) {
        dpb_philox4x32(rng->counter, rng->key, rng->block);
        if (++rng->counter[0] == 0)
            rng->counter[1]++;
        rng->used = 0;
    }
    return rng->block[rng->used++];
}

uint64_t dpb_rng_u64(struct dpb_rng *rng)
{
    uint64_t low = dpb_rng_u32(rng);

    return low | (uint64_t)dpb_rng_u32(rng) << 32;
}

uint64_t dpb_rng_below(struct dpb_rng *rng, uint64_t bound)
{
    u128 product;

    if (bound == 0)
        return 0;
    product = (u128)dpb_rng_u64(rng) * bound;
    if ((uint64_t)product < bound) {
        uint64_t threshold = (0 - bound) % bound;

        while ((uint64_t)product < threshold)
            product = (u128)dpb_rng_u64(rng) * bound;
    }
    return (uint64_t)(product >> 64);
}

double dpb_rng_uniform(struct dpb_rng *rng)
{
    return (double)(dpb_rng_u64(rng) >> 11) * 0x1p-53;
}

double dpb_rng_normal(struct dpb_rng *rng)
{
    static const double two_pi = 6.283185307179586;
    double u = 1.0 - dpb_rng_uniform(rng); /* in (0, 1]: the logarithm stays finite */
    double v = dpb_rng_uniform(rng);

    return sqrt(-2.0 * log(u)) * cos(two_pi * v);
}

void dpb_rng_shuffle_i64(struct dpb_rng *rng, int64_t *values, int64_t count)
{
    int64_t i;

    for (i = count - 1; i > 0; i--) {
        int64_t j = (int64_t)dpb_rng_below(rng, (uint64_t)i + 1);
        int64_t swap = values[i];

        values[i] = values[j];
        values[j] = swap;
    }
}

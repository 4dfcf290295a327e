/* dpb_rng.h: seeded random numbers, the same on every machine.
 *
 * Counter-based: Philox-4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
 * SC'11). A stream is named by (seed, stream id); two different ids give independent sequences,
 * so ranks, epochs and layers each take their own without sharing state. */
#ifndef DPB_RNG_H
#define DPB_RNG_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct dpb_rng {
    uint32_t key[2];
    uint32_t counter[4];
    uint32_t block[4];
    unsigned used; /* words of `block` already handed out */
};

/* Start stream `stream` of `seed`. */
void dpb_rng_init(struct dpb_rng *rng, uint64_t seed, uint64_t stream);

/* The next 32 or 64 uniform bits. */
uint32_t dpb_rng_u32(struct dpb_rng *rng);
uint64_t dpb_rng_u64(struct dpb_rng *rng);

/* Uniform in [0, bound), without modulo bias (Lemire 2019). `bound` 0 gives 0. */
uint64_t dpb_rng_below(struct dpb_rng *rng, uint64_t bound);

/* Uniform in [0, 1) with 53 random bits. */
double dpb_rng_uniform(struct dpb_rng *rng);

/* Standard normal (Box-Muller). */
double dpb_rng_normal(struct dpb_rng *rng);

/* Fisher-Yates shuffle of `count` indices in place. */
void dpb_rng_shuffle_i64(struct dpb_rng *rng, int64_t *values, int64_t count);

/* The Philox-4x32-10 block function itself: out = philox(counter, key). For the known-answer test
 * and for counter-addressed use (dropout masks). */
void dpb_philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

#ifdef __cplusplus
}
#endif
#endif

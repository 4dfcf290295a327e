/* draws.h: random draws that samples are made of. */
#ifndef BENCH_DRAWS_H
#define BENCH_DRAWS_H

#include <math.h>
#include <stdint.h>

#include "dpb_dataset.h"
#include "dpb_rng.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The random numbers of one sample, whoever asks for it and when. `tag` names their purpose; its
 * lowest bit is the split's. */
static inline void dpb_sample_rng(struct dpb_rng *rng, uint64_t seed, uint32_t tag,
                                  enum dpb_split split, int64_t id)
{
    dpb_rng_init(rng, seed, (uint64_t)(tag | (uint32_t)split) << 32 | (uint32_t)id);
}

/* What dpb_zipf() needs to know of `count` items. */
static inline double dpb_zipf_log(int64_t count)
{
    return log((double)count + 1.0);
}

/* One of `count` items, Zipf-distributed: item k has probability log((k+2)/(k+1)) / log(count+1),
 * close to 1/(k+1) up to scale. By inverting the distribution, so that a table of 40 million rows
 * costs no memory. `uniform` is in [0, 1). */
static inline int64_t dpb_zipf(double uniform, double zipf_log, int64_t count)
{
    int64_t item = (int64_t)exp(uniform * zipf_log) - 1;

    return item < count ? item : count - 1;
}

static inline double dpb_uniform_of_u32(uint32_t bits)
{
    return (double)bits * 0x1p-32;
}

/* 64 bits well mixed (the finaliser of SplitMix64): a hash of integers. */
static inline uint64_t dpb_mix_u64(uint64_t value)
{
    value += 0x9e3779b97f4a7c15u;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    return value ^ (value >> 31);
}

#ifdef __cplusplus
}
#endif
#endif

/* Dropout: Philox-4x32-10 (Salmon et al., SC'11) for many counters side by side, the same numbers
 * as dpb_philox4x32(). */
#include "cpu_device.h"

#include <math.h>

#define BLOCKS 32           /* counters side by side */
#define WORDS  (4 * BLOCKS) /* that they give */

struct mask {
    const float *from;
    float *to;
    uint64_t offset;
    uint32_t key[2];
    uint32_t highest; /* word of a kept element */
    float factor;
};

static inline void words_of(const struct mask *mask, uint64_t block, uint32_t words[WORDS])
{
    for (int i = 0; i < BLOCKS; i++) {
        uint32_t c0 = (uint32_t)(block + (uint64_t)i), c1 = (uint32_t)((block + (uint64_t)i) >> 32);
        uint32_t c2 = 0, c3 = 0, k0 = mask->key[0], k1 = mask->key[1];

        for (int round = 0; round < 10; round++) {
            uint64_t low = (uint64_t)0xD2511F53u * c0, high = (uint64_t)0xCD9E8D57u * c2;

            c0 = (uint32_t)(high >> 32) ^ c1 ^ k0;
            c1 = (uint32_t)high;
            c2 = (uint32_t)(low >> 32) ^ c3 ^ k1;
            c3 = (uint32_t)low;
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        words[4 * i] = c0;
        words[4 * i + 1] = c1;
        words[4 * i + 2] = c2;
        words[4 * i + 3] = c3;
    }
}

DPB_CPU_CLONES static void dropout(void *ctx, int64_t begin, int64_t end)
{
    const struct mask *mask = ctx;
    uint32_t words[WORDS], highest = mask->highest;
    float factor = mask->factor;

    for (int64_t i = begin; i < end;) {
        uint64_t at = mask->offset + (uint64_t)i;
        int skip = (int)(at % 4), count = end - i < WORDS - skip ? (int)(end - i) : WORDS - skip;
        const float *from = mask->from + i;
        float *to = mask->to + i;

        words_of(mask, at / 4, words);
        for (int j = 0; j < count; j++) {
            float value = from[j] * factor;

            to[j] = words[skip + j] <= highest ? value : 0.0f;
        }
        i += count;
    }
}

dpb_status dpb_cpu_dropout(dpb_device *device, enum dpb_op op, const void *args)
{
    const struct dpb_dropout_args *a = args;
    bool fwd = op == DPB_OP_DROPOUT_FWD;
    struct mask mask = {
            .from = fwd ? a->x.data : a->dy.data,
            .to = fwd ? a->y.data : a->dx.data,
            .offset = a->offset,
            .key = {(uint32_t)a->seed, (uint32_t)(a->seed >> 32)},
            /* word < keep 2^32, for whole words */
            .highest = (uint32_t)(ceil((double)a->keep * 0x1p32) - 1.0),
            .factor = 1.0f / a->keep,
    };

    dpb_cpu_parallel(device->threads, dpb_tensor_numel(fwd ? &a->x : &a->dy), 4096, dropout, &mask);
    return DPB_OK;
}

/* Dropout: Philox-4x32-10 (Salmon et al., SC'11) for many counters side by side, the same numbers
 * as dpb_philox4x32(). */
#include "cpu_device.h"

#include <math.h>

#define BLOCKS 32           /* counters side by side */
#define WORDS  (4 * BLOCKS) /* that they give */

struct tensors {
    struct dpb_cpu_dropout dropout;
    const float *from;
    float *to;
};

static inline void words_of(const struct dpb_cpu_dropout *mask, uint64_t block,
                            uint32_t words[WORDS])
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

void dpb_cpu_dropout_init(struct dpb_cpu_dropout *dropout, float keep, uint64_t seed,
                          uint64_t offset)
{
    *dropout = (struct dpb_cpu_dropout){
            .offset = offset,
            .key = {(uint32_t)seed, (uint32_t)(seed >> 32)},
            /* word < keep 2^32, for whole words */
            .highest = (uint32_t)(ceil((double)keep * 0x1p32) - 1.0),
            .factor = 1.0f / keep,
    };
}

DPB_CPU_CLONES void dpb_cpu_dropout_part(const struct dpb_cpu_dropout *dropout, int64_t first,
                                         const float *from, float *to, int64_t count)
{
    uint32_t words[WORDS], highest = dropout->highest;
    float factor = dropout->factor;

    for (int64_t i = 0; i < count;) {
        uint64_t at = dropout->offset + (uint64_t)(first + i);
        int skip = (int)(at % 4), part = count - i < WORDS - skip ? (int)(count - i) : WORDS - skip;

        words_of(dropout, at / 4, words);
        for (int j = 0; j < part; j++) {
            float value = from[i + j] * factor;

            to[i + j] = words[skip + j] <= highest ? value : 0.0f;
        }
        i += part;
    }
}

static void drop(void *ctx, int64_t begin, int64_t end)
{
    const struct tensors *tensors = ctx;

    dpb_cpu_dropout_part(&tensors->dropout, begin, tensors->from + begin, tensors->to + begin,
                         end - begin);
}

dpb_status dpb_cpu_dropout(dpb_device *device, enum dpb_op op, const void *args)
{
    const struct dpb_dropout_args *a = args;
    bool fwd = op == DPB_OP_DROPOUT_FWD;
    struct tensors tensors = {
            .from = fwd ? a->x.data : a->dy.data,
            .to = fwd ? a->y.data : a->dx.data,
    };

    dpb_cpu_dropout_init(&tensors.dropout, a->keep, a->seed, a->offset);
    dpb_cpu_parallel(device->threads, dpb_tensor_numel(fwd ? &a->x : &a->dy), 4096, drop, &tensors);
    return DPB_OK;
}

/* Dropout: Philox-4x32-10 (Salmon et al., SC'11) for many counters side by side, the same numbers
 * as dpb_philox4x32(). */
#include "bf16.h"

#include <math.h>

#define BLOCKS 32           /* counters side by side */
#define WORDS  (4 * BLOCKS) /* that they give */

struct tensors {
    struct dpb_cpu_dropout dropout;
    const void *from;
    void *to;
    enum dpb_dtype dtype;
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

DPB_CPU_LOOP part(const struct dpb_cpu_dropout *dropout, int64_t first, const void *from, void *to,
                  int64_t count, bool bf16)
{
    uint32_t words[WORDS], highest = dropout->highest;
    float factor = dropout->factor;

    for (int64_t i = 0; i < count;) {
        uint64_t at = dropout->offset + (uint64_t)(first + i);
        int skip = (int)(at % 4), some = count - i < WORDS - skip ? (int)(count - i) : WORDS - skip;

        words_of(dropout, at / 4, words);
        for (int j = 0; j < some; j++) {
            float value = dpb_cpu_load(from, i + j, bf16) * factor;

            dpb_cpu_store(to, i + j, words[skip + j] <= highest ? value : 0.0f, bf16);
        }
        i += some;
    }
}

DPB_CPU_CLONES static void part_f32(const struct dpb_cpu_dropout *dropout, int64_t first,
                                    const void *from, void *to, int64_t count)
{
    part(dropout, first, from, to, count, false);
}

DPB_CPU_CLONES static void part_bf16(const struct dpb_cpu_dropout *dropout, int64_t first,
                                     const void *from, void *to, int64_t count)
{
    part(dropout, first, from, to, count, true);
}

void dpb_cpu_dropout_part(const struct dpb_cpu_dropout *dropout, int64_t first, const void *from,
                          void *to, int64_t count, enum dpb_dtype dtype)
{
    (dtype == DPB_BF16 ? part_bf16 : part_f32)(dropout, first, from, to, count);
}

static void drop(void *ctx, int64_t begin, int64_t end)
{
    const struct tensors *tensors = ctx;
    int64_t bytes = (int64_t)dpb_dtype_bytes(tensors->dtype);

    dpb_cpu_dropout_part(&tensors->dropout, begin, (const char *)tensors->from + begin * bytes,
                         (char *)tensors->to + begin * bytes, end - begin, tensors->dtype);
}

dpb_status dpb_cpu_dropout(dpb_device *device, enum dpb_op op, const void *args)
{
    const struct dpb_dropout_args *a = args;
    bool fwd = op == DPB_OP_DROPOUT_FWD;
    struct tensors tensors = {
            .from = fwd ? a->x.data : a->dy.data,
            .to = fwd ? a->y.data : a->dx.data,
            .dtype = fwd ? a->x.dtype : a->dy.dtype,
    };

    dpb_cpu_dropout_init(&tensors.dropout, a->keep, a->seed, a->offset);
    dpb_cpu_parallel(device->threads, dpb_tensor_numel(fwd ? &a->x : &a->dy), 4096, drop, &tensors);
    return DPB_OK;
}

/* dropout.h: which elements dropout keeps, for kernels: Philox-4x32-10 (Salmon et al., SC'11) as
 * dpb_dropout_args says. */
#ifndef DPB_CUDA_DROPOUT_H
#define DPB_CUDA_DROPOUT_H

#include "dialect.h"

namespace dpb
{
struct dropout {
    uint64_t offset;
    uint32_t key_0, key_1;
    uint32_t highest; /* word that is kept */
    float factor;     /* of what is kept; 0: there is no dropout */
};

/* `keep` 0: none. */
static inline struct dropout dropout_of(float keep, uint64_t seed, uint64_t offset)
{
    if (keep == 0.0f)
        return {};
    /* word < keep 2^32, for whole words */
    return {offset, (uint32_t)seed, (uint32_t)(seed >> 32),
            (uint32_t)(ceil((double)keep * 0x1p32) - 1.0), 1.0f / keep};
}

struct philox_words {
    uint32_t w0, w1, w2, w3;
};

DPB_DEVICE struct philox_words philox(const struct dropout &d, uint64_t block)
{
    uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32), c2 = 0, c3 = 0;
    uint32_t k0 = d.key_0, k1 = d.key_1;

    for (int round = 0; round < 10; round++) {
        uint64_t low = (uint64_t)0xD2511F53u * c0, high = (uint64_t)0xCD9E8D57u * c2;

        c0 = (uint32_t)(high >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)high;
        c2 = (uint32_t)(low >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)low;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return {c0, c1, c2, c3};
}

/* The value of element number `element` after dropout. */
DPB_DEVICE float drop_1(const struct dropout &d, int64_t element, float value)
{
    uint64_t at = d.offset + (uint64_t)element;
    const struct philox_words words = philox(d, at / 4);
    uint32_t low = at & 1 ? words.w1 : words.w0, high = at & 1 ? words.w3 : words.w2;

    return (at & 2 ? high : low) <= d.highest ? value * d.factor : 0.0f;
}

/* Of four elements from number `element` on: one block of words where they are its own. */
DPB_DEVICE void drop_4(const struct dropout &d, int64_t element, float (&values)[4])
{
    uint64_t at = d.offset + (uint64_t)element;

    if (at % 4 == 0) {
        const struct philox_words words = philox(d, at / 4);

        values[0] = words.w0 <= d.highest ? values[0] * d.factor : 0.0f;
        values[1] = words.w1 <= d.highest ? values[1] * d.factor : 0.0f;
        values[2] = words.w2 <= d.highest ? values[2] * d.factor : 0.0f;
        values[3] = words.w3 <= d.highest ? values[3] * d.factor : 0.0f;
    } else {
        for (int i = 0; i < 4; i++)
            values[i] = drop_1(d, element + i, values[i]);
    }
}
} // namespace dpb

#endif

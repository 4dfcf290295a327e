/* masked_sample.h: a sample of a masked language model: START a SEPARATOR b SEPARATOR, with some
 * words hidden. Where the words come from is its caller's business. */
#ifndef BENCH_MASKED_SAMPLE_H
#define BENCH_MASKED_SAMPLE_H

#include <stdint.h>

#include "dpb_dataset.h"
#include "dpb_rng.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where the words of the two segments go. */
struct dpb_masked_layout {
    int32_t *first, *second;
    int64_t first_count, second_count; /* at least 1 each */
};

/* Write what is not a word, and the segments, to place `at`; the length of the first is drawn. */
void dpb_masked_lay_out(const struct dpb_model *model, struct dpb_rng *rng,
                        const struct dpb_batch_arrays *arrays, int64_t at,
                        struct dpb_masked_layout *layout);

/* Hide `predicted` of the words at place `at`: 80 % behind MASK, 10 % behind one of the ids from
 * DPB_TOKEN_WORDS to below `vocabulary`, 10 % left as they are. */
void dpb_masked_hide(const struct dpb_model *model, int64_t vocabulary, struct dpb_rng *rng,
                     const struct dpb_batch_arrays *arrays, int64_t at);

#ifdef __cplusplus
}
#endif
#endif

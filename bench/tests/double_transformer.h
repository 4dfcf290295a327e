/* double_transformer.h: BERT and GPT-2 of a layer list in float64 and plain loops, forward only:
 * the judge of the transformer's gradients, which are differences of its loss. It shares the layer
 * list with the workload, and how masks are named, and nothing else. */
#ifndef BENCH_TESTS_DOUBLE_TRANSFORMER_H
#define BENCH_TESTS_DOUBLE_TRANSFORMER_H

#include "transformer_list.h"

struct double_transformer {
    const struct dpb_transformer_list *list;
    const struct dpb_batch *batch;
    double *param[DPB_TRANSFORMER_PARAMS_MAX];
    /* of one sample: what flows through the blocks, and room for every intermediate result */
    double *stream, *query, *context, *branch, *inner;
    double *logits;
    /* of dropout; 0: none. Masks are those of the batch's step and place. */
    double dropout;
    uint64_t seed;
    int64_t sample; /* that is computed now */
};

/* With copies of the parameters; borrows the batch. Failures fail the test. */
void double_transformer_open(struct double_transformer *net,
                             const struct dpb_transformer_list *list, const struct dpb_batch *batch,
                             float *const *param);
void double_transformer_close(struct double_transformer *net);

/* Sum of the samples' losses. */
double double_transformer_loss(struct double_transformer *net);

#endif

/* tiny_transformers.h: BERT and GPT-2 as workloads that fit into a test: two blocks of 16 features
 * in two heads, 37 words, 8 tokens. */
#ifndef BENCH_TESTS_TINY_TRANSFORMERS_H
#define BENCH_TESTS_TINY_TRANSFORMERS_H

#include "fixture.h"
#include "transformer_list.h"

extern const struct dpb_workload_ops tiny_bert_ops;
extern const struct dpb_workload_ops tiny_gpt2_ops;

const struct dpb_transformer_list *tiny_bert_list(void);
const struct dpb_transformer_list *tiny_gpt2_list(void);

struct tiny_transformer_options {
    double dropout; /* none without options */
};

#define TINY_TRANSFORMER_SEED 29 /* of masks */

/* The fixture's workload once more, with these settings and the same parameters. */
void tiny_transformer_reopen(struct fixture *fixture, double dropout, enum dpb_dtype precision);

/* Larger random parameters than a network starts with, so that every gradient is well above what
 * fp32 rounds away: weights with deviation 1/4, norms near 1, biases near 0. */
void tiny_transformer_spread(struct fixture *fixture);

#endif

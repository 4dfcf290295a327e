/* transformer_list.h: BERT and GPT-2 of any size as layers, from which the tables of dpb_model
 * follow by rule.
 *
 * Parameters have the names, shapes and registration order of Hugging Face's modules
 * (BertForPreTraining, GPT2LMHeadModel); gradients become ready in the order of PyTorch's autograd.
 * The word embedding is also the weight of the decoder, so its gradient has two contributions: the
 * decoder's comes near the start of the backward pass, the look-up's last, and only then is it
 * ready. */
#ifndef BENCH_TRANSFORMER_LIST_H
#define BENCH_TRANSFORMER_LIST_H

#include <stdbool.h>
#include <stdint.h>

#include "dpb_workload.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DPB_TRANSFORMER_BLOCKS_MAX 24
#define DPB_TRANSFORMER_LAYERS_MAX (10 * DPB_TRANSFORMER_BLOCKS_MAX + 16)
#define DPB_TRANSFORMER_PARAMS_MAX (16 * DPB_TRANSFORMER_BLOCKS_MAX + 16)
#define DPB_TRANSFORMER_NAME_BYTES 64

enum dpb_transformer_family {
    DPB_TRANSFORMER_BERT, /* norms after the residual sums; pooler, two heads */
    DPB_TRANSFORMER_GPT2  /* norms before; causal; one head over all positions */
};

struct dpb_transformer_shape {
    enum dpb_transformer_family family;
    int blocks, heads;
    int64_t hidden, inner, vocabulary;
    int64_t positions; /* that have an embedding: the longest sequence */
    int64_t sequence;
    int64_t predicted; /* positions of a sample that are predicted; GPT-2: all */
};

/* What ranges of this layer's operators are called in traces. */
struct dpb_transformer_op_names {
    char fwd[DPB_TRANSFORMER_NAME_BYTES];
    char add[DPB_TRANSFORMER_NAME_BYTES]; /* a sum with what goes around the layer */
    char cast[DPB_TRANSFORMER_NAME_BYTES];
    char drop[DPB_TRANSFORMER_NAME_BYTES];
    char bwd[DPB_TRANSFORMER_NAME_BYTES];
    char bwd_drop[DPB_TRANSFORMER_NAME_BYTES];
    char bwd_bias[DPB_TRANSFORMER_NAME_BYTES];
    char bwd_weights[DPB_TRANSFORMER_NAME_BYTES];
    char bwd_data[DPB_TRANSFORMER_NAME_BYTES];
};

struct dpb_transformer_layer {
    char name[DPB_TRANSFORMER_NAME_BYTES];
    int64_t rows;     /* per sample: its tokens, the predicted ones, or 1 */
    int64_t in, out;  /* features */
    int weight, bias; /* indices in the parameters; -1: none */
    bool in_first;    /* the weight is [in, out], not [out, in] */
    struct dpb_transformer_op_names op;
};

/* Indices of a block's layers. */
struct dpb_transformer_block {
    int query, key, value; /* GPT-2 has one layer for the three: all are its index */
    int attention, attention_output, attention_norm;
    int inner, activation, output, output_norm;
};

struct dpb_transformer_list {
    struct dpb_model model; /* points into the arrays below: the list must stay where it is */
    struct dpb_transformer_list *next; /* kept by dpb_transformer_list_of() */
    struct dpb_transformer_shape shape;
    bool damaged; /* the shape does not fit: check says so */
    int layer_count, param_count, ready_count;
    /* Indices of the layers outside blocks; -1: the family has none. */
    int word, position, segment, embedding_norm;
    int final_norm;                                      /* GPT-2 */
    int pooler, pooler_activation;                       /* BERT: of the first token */
    int transform, transform_activation, transform_norm; /* BERT: before the decoder */
    int decoder, relation;
    struct dpb_transformer_block block[DPB_TRANSFORMER_BLOCKS_MAX];
    struct dpb_transformer_layer layer[DPB_TRANSFORMER_LAYERS_MAX];
    struct dpb_layer_info info[DPB_TRANSFORMER_LAYERS_MAX];
    struct dpb_param_info param[DPB_TRANSFORMER_PARAMS_MAX];
    char param_name[DPB_TRANSFORMER_PARAMS_MAX][DPB_TRANSFORMER_NAME_BYTES];
    int ready_order[DPB_TRANSFORMER_PARAMS_MAX];
};

void dpb_transformer_list_build(struct dpb_transformer_list *list,
                                const struct dpb_transformer_shape *shape);

/* The list of that shape, made at the first call and kept as long as the program. Out of memory: a
 * list that check() refuses. Any thread. */
const struct dpb_transformer_list *
dpb_transformer_list_of(const struct dpb_transformer_shape *shape);

/* DPB_ERR_INTERNAL, logged, when the shape did not fit: a mistake in the workload. */
dpb_status dpb_transformer_list_check(const struct dpb_transformer_list *list,
                                      const char *workload);

/* Weights normal with deviation 0.02, norms 1 and 0, biases 0; every parameter from its own random
 * stream. */
void dpb_transformer_list_init_params(const struct dpb_transformer_list *list, uint64_t seed,
                                      float *const *param);

#ifdef __cplusplus
}
#endif
#endif

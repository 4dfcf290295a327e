/* transformer_private.h: what the files of the transformer share: its memory, and one call per
 * layer and direction. */
#ifndef BENCH_TRANSFORMER_PRIVATE_H
#define BENCH_TRANSFORMER_PRIVATE_H

#include "transformer.h"

/* A normalisation's output, and what its backward pass needs besides its input. */
struct dpb_transformer_norm {
    float *y;           /* [rows, hidden] */
    float *mean, *rstd; /* [rows] */
};

/* Values of a block that its backward pass needs; rows are the batch's tokens. */
struct dpb_transformer_block_values {
    /* [rows, hidden]; GPT-2: columns of one [rows, 3 hidden] */
    float *query, *key, *value;
    float *attention;          /* [samples, heads, sequence, sequence] probabilities */
    float *context;            /* [rows, hidden], its output */
    float *attended;           /* [rows, hidden], the sum with what went around it */
    float *inner, *activation; /* [rows, inner] */
    float *sum;                /* [rows, hidden], with what went around these two */
    struct dpb_transformer_norm attention_norm, output_norm;
};

/* BERT's heads: rows are the batch's predicted tokens, or its samples. */
struct dpb_transformer_heads {
    int32_t *predicted_row; /* [predicted] row of the batch's tokens */
    float *predicted;       /* [predicted, hidden] the encoder's output there */
    float *transform, *activation;
    struct dpb_transformer_norm norm;
    int32_t *first_row;    /* [samples] of a sample's first token */
    float *first, *pooled; /* [samples, hidden] */
    float *relation;       /* [samples, 2] logits, then probabilities, then their gradient */
    float *relation_loss;  /* [samples] */
    float *pooled_grad;    /* [samples, hidden] */
    float *predicted_grad; /* [predicted, hidden] */
};

/* Where dropout is. */
enum dpb_transformer_place {
    DPB_PLACE_EMBEDDED,  /* what the first block gets */
    DPB_PLACE_ATTENTION, /* probabilities */
    DPB_PLACE_ATTENDED,  /* output of attention and its layer */
    DPB_PLACE_WIDE       /* output of the two wide layers */
};

/* Masks of the last forward pass. */
struct dpb_transformer_masks {
    float keep; /* 1: nothing is dropped */
    int64_t step, first;
};

struct dpb_transformer {
    struct dpb_workload_base base;
    const struct dpb_transformer_list *list;
    struct dpb_launcher *launcher;
    int64_t batch_max;
    double dropout;
    uint64_t seed;
    struct dpb_transformer_masks masks;
    float *param[DPB_TRANSFORMER_PARAMS_MAX], *grad[DPB_TRANSFORMER_PARAMS_MAX];
    void *memory; /* one allocation; everything below lies in it */
    int64_t bytes;
    int32_t *position;                          /* [rows] of a token in its sequence */
    float *embedded;                            /* [rows, hidden] */
    struct dpb_transformer_norm embedding_norm; /* BERT */
    struct dpb_transformer_block_values block[DPB_TRANSFORMER_BLOCKS_MAX];
    struct dpb_transformer_norm final_norm; /* GPT-2 */
    struct dpb_transformer_heads heads;     /* BERT */
    float *logits;              /* [predicted, vocabulary], then probabilities, then gradient */
    float *loss;                /* [predicted] */
    float *stream_grad;         /* [rows, hidden] with respect to what goes around the layers */
    float *branch_grad;         /* [rows, hidden]; in the forward pass, a branch's output */
    float *wide_grad;           /* [rows, inner] or [rows, 3 hidden] */
    float *attention_workspace; /* as large as one block's probabilities */
    float *zeros;
};

/* Whom to tell that a gradient is complete. */
struct dpb_transformer_ready {
    dpb_grad_ready call;
    void *ctx;
};

static inline struct dpb_transformer *dpb_transformer_self(dpb_workload *workload)
{
    return (struct dpb_transformer *)workload;
}

/* ---- one layer (transformer_layers.c). `layer` is an index of the list. Backward calls write the
 * layer's gradients and report them before they compute `dx`. ---- */

/* y = x W + bias */
dpb_status dpb_transformer_linear_fwd(struct dpb_transformer *net, int layer, int64_t rows,
                                      const float *x, float *y);
/* dx = dy W, added to what is there when `add`. The decoder's weight gradient is not reported: the
 * look-up's share of it is to come. */
dpb_status dpb_transformer_linear_bwd(struct dpb_transformer *net, int layer, int64_t rows,
                                      const float *x, const float *dy, float *dx, bool add,
                                      const struct dpb_transformer_ready *ready);

dpb_status dpb_transformer_norm_fwd(struct dpb_transformer *net, int layer, int64_t rows,
                                    const float *x, const struct dpb_transformer_norm *norm);
/* `dx` may be `dy`. */
dpb_status dpb_transformer_norm_bwd(struct dpb_transformer *net, int layer, int64_t rows,
                                    const float *x, const struct dpb_transformer_norm *norm,
                                    const float *dy, float *dx,
                                    const struct dpb_transformer_ready *ready);

dpb_status dpb_transformer_gelu_fwd(struct dpb_transformer *net, int layer, int64_t rows,
                                    const float *x, float *y);
/* `grad` in place */
dpb_status dpb_transformer_gelu_bwd(struct dpb_transformer *net, int layer, int64_t rows,
                                    const float *x, float *grad);

/* in place */
dpb_status dpb_transformer_tanh_fwd(struct dpb_transformer *net, int layer, int64_t rows, float *y);
dpb_status dpb_transformer_tanh_bwd(struct dpb_transformer *net, int layer, int64_t rows,
                                    const float *y, float *grad);

/* Probabilities of one block's attention. */
int64_t dpb_transformer_attention_floats(const struct dpb_transformer_shape *shape,
                                         int64_t samples);
dpb_status dpb_transformer_attention_fwd(struct dpb_transformer *net, int block, int64_t samples);
/* Gradients with respect to query, key and value lie as these do, in `wide_grad`. */
dpb_status dpb_transformer_attention_bwd(struct dpb_transformer *net, int block, int64_t samples,
                                         const float *dy);

/* y = a + b, of the size of the layer's output; y may be either. */
dpb_status dpb_transformer_add(struct dpb_transformer *net, int layer, int64_t rows, const float *a,
                               const float *b, float *y);

/* ---- dropout (transformer_dropout.c) ---- */

/* `seed` of the operators for a place in `block` (0 where it is in none) at a training step. */
uint64_t dpb_transformer_mask_seed(uint64_t seed, int64_t step, enum dpb_transformer_place place,
                                   int block);

/* The masks of this batch, whose elements are numbered as in the global batch: ranks with a part
 * each drop what one with all of it drops. None outside of training. */
void dpb_transformer_masks_of(struct dpb_transformer *net, const struct dpb_batch *batch,
                              bool training);

/* Of the layer's output, in place. */
dpb_status dpb_transformer_drop_fwd(struct dpb_transformer *net, int layer,
                                    enum dpb_transformer_place place, int block, int64_t rows,
                                    float *x);
/* `dropped`: where the gradient before dropout lies, `room` or, where nothing is dropped, `dy`. */
dpb_status dpb_transformer_drop_bwd(struct dpb_transformer *net, int layer,
                                    enum dpb_transformer_place place, int block, int64_t rows,
                                    float *dy, float *room, const float **dropped);

/* The batch's tokens as sums of their embeddings. */
dpb_status dpb_transformer_embed_fwd(struct dpb_transformer *net, const struct dpb_batch *batch);
dpb_status dpb_transformer_embed_bwd(struct dpb_transformer *net, const struct dpb_batch *batch,
                                     const float *dy, const struct dpb_transformer_ready *ready);

/* y[i] = x[row[i]], and the gradient: dx[row[i]] += dy[i], the other rows zero unless `add`. */
dpb_status dpb_transformer_pick_fwd(struct dpb_transformer *net, const char *name, int64_t rows,
                                    const float *x, const int32_t *row, int64_t count, float *y);
dpb_status dpb_transformer_pick_bwd(struct dpb_transformer *net, const char *name, int64_t rows,
                                    float *dx, bool add, const int32_t *row, int64_t count,
                                    const float *dy);

/* Cross-entropy of logits [rows, classes]; they become probabilities, then gradients. */
dpb_status dpb_transformer_loss_fwd(struct dpb_transformer *net, const char *name, int64_t rows,
                                    int64_t classes, float *logits, const int32_t *label,
                                    float *loss);
dpb_status dpb_transformer_loss_bwd(struct dpb_transformer *net, const char *name, int64_t rows,
                                    int64_t classes, float *logits, const int32_t *label,
                                    float scale);

/* ---- the families (transformer_bert.c, transformer_gpt2.c). Forward leaves probabilities in
 * `logits` and, for BERT, in heads.relation. ---- */

dpb_status dpb_transformer_bert_fwd(struct dpb_transformer *net, const struct dpb_batch *batch);
dpb_status dpb_transformer_bert_bwd(struct dpb_transformer *net, const struct dpb_batch *batch,
                                    float grad_scale, const struct dpb_transformer_ready *ready);
dpb_status dpb_transformer_gpt2_fwd(struct dpb_transformer *net, const struct dpb_batch *batch);
dpb_status dpb_transformer_gpt2_bwd(struct dpb_transformer *net, const struct dpb_batch *batch,
                                    float grad_scale, const struct dpb_transformer_ready *ready);

#endif

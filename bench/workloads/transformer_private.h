/* transformer_private.h: what the files of the transformer share: its memory, and one call per
 * layer and direction.
 *
 * Memory of type `void *` holds values in the network's precision, `float *` is fp32 always:
 * losses, logits, statistics, parameters and their gradients. In mixed precision matrix products
 * read bf16 copies of the weights, which every forward pass makes. */
#ifndef BENCH_TRANSFORMER_PRIVATE_H
#define BENCH_TRANSFORMER_PRIVATE_H

#include "handover.h"
#include "transformer.h"

/* A normalisation's output, and what its backward pass needs besides its input. */
struct dpb_transformer_norm {
    void *y;            /* [rows, hidden] */
    float *mean, *rstd; /* [rows] */
};

/* Values of a block that its backward pass needs; rows are the batch's tokens. */
struct dpb_transformer_block_values {
    /* [rows, hidden]; GPT-2: columns of one [rows, 3 hidden] */
    void *query, *key, *value;
    void *attention;          /* [samples, heads, sequence, sequence] probabilities */
    void *context;            /* [rows, hidden], its output */
    void *attended;           /* [rows, hidden], the sum with what went around it */
    void *inner, *activation; /* [rows, inner] */
    void *sum;                /* [rows, hidden], with what went around these two */
    struct dpb_transformer_norm attention_norm, output_norm;
};

/* BERT's heads: rows are the batch's predicted tokens, or its samples. */
struct dpb_transformer_heads {
    int32_t *predicted_row; /* [predicted] row of the batch's tokens */
    void *predicted;        /* [predicted, hidden] the encoder's output there */
    void *transform, *activation;
    struct dpb_transformer_norm norm;
    int32_t *first_row;   /* [samples] of a sample's first token */
    void *first, *pooled; /* [samples, hidden] */
    float *relation;      /* [samples, 2] logits, then probabilities, then their gradient */
    void *relation_grad;  /* the gradient for matrix products; in fp32 the same memory */
    float *relation_loss; /* [samples] */
    void *pooled_grad;    /* [samples, hidden] */
    void *predicted_grad; /* [predicted, hidden] */
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
    const struct dpb_param_watch *watch;
    int64_t batch_max;
    double dropout;
    uint64_t seed;
    struct dpb_transformer_masks masks;
    enum dpb_dtype precision;
    float *param[DPB_TRANSFORMER_PARAMS_MAX], *grad[DPB_TRANSFORMER_PARAMS_MAX];
    void *shadow[DPB_TRANSFORMER_PARAMS_MAX]; /* mixed precision: copies of the linear weights */
    void *memory;                             /* one allocation; everything below lies in it */
    int64_t bytes;
    int32_t *position;                          /* [rows] of a token in its sequence */
    void *embedded;                             /* [rows, hidden] */
    struct dpb_transformer_norm embedding_norm; /* BERT */
    struct dpb_transformer_block_values block[DPB_TRANSFORMER_BLOCKS_MAX];
    struct dpb_transformer_norm final_norm; /* GPT-2 */
    struct dpb_transformer_heads heads;     /* BERT */
    float *logits;              /* [predicted, vocabulary], then probabilities, then gradient */
    void *logits_grad;          /* the gradient for matrix products; in fp32 the same memory */
    float *loss;                /* [predicted] */
    void *stream_grad;          /* [rows, hidden] with respect to what goes around the layers */
    void *branch_grad;          /* [rows, hidden]; in the forward pass, a branch's output */
    void *wide_grad;            /* [rows, inner] or [rows, 3 hidden]; or [rows, hidden] in fp32 */
    float *attention_workspace; /* as large as one block's probabilities */
    float *zeros;
    struct dpb_handover predicted_rows; /* to heads.predicted_row */
    struct dpb_results *results;
    int64_t slot; /* of the forward pass under way */
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

/* `base` moved by as much as `of` lies behind `from`. */
static inline void *dpb_transformer_beside(void *base, const void *of, const void *from)
{
    return (char *)base + ((const char *)of - (const char *)from);
}

/* Tensors in the network's precision. */
static inline struct dpb_tensor dpb_transformer_matrix(const struct dpb_transformer *net,
                                                       const void *data, int64_t rows,
                                                       int64_t columns)
{
    struct dpb_tensor tensor = dpb_tensor_2d((void *)data, rows, columns);

    tensor.dtype = net->precision;
    return tensor;
}

/* ---- precision (transformer_precision.c) ---- */

/* DPB_ERR_UNSUPPORTED, logged with the operator, where the device lacks one that this network
 * needs in its precision. */
dpb_status dpb_transformer_check_device(const struct dpb_transformer *net, dpb_device *device);

/* Is this layer's weight one of a matrix product, and this layer the first that has it? */
bool dpb_transformer_has_shadow(const struct dpb_transformer_list *list, int layer);
/* Mixed precision: copy the layer's weight as it is now, before it is read for the first time in a
 * forward pass, when it has a shadow. */
dpb_status dpb_transformer_cast_weight(struct dpb_transformer *net, int layer);

/* Where [rows, hidden] is summed in fp32 before it becomes `values`, and the cast to there: with
 * fp32 it is summed in `values` themselves, else in the memory of wide_grad. */
float *dpb_transformer_sum_begin(const struct dpb_transformer *net, void *values);
dpb_status dpb_transformer_sum_end(struct dpb_transformer *net, const char *name, int64_t rows,
                                   void *values);

/* ---- one layer (transformer_layers.c). `layer` is an index of the list. Backward calls write the
 * layer's gradients and report them before they compute `dx`. ---- */

/* y = x W + bias */
dpb_status dpb_transformer_linear_fwd(struct dpb_transformer *net, int layer, int64_t rows,
                                      const void *x, void *y);
/* dx = dy W, added to what is there when `add`. The decoder's weight gradient is not reported: the
 * look-up's share of it is to come. */
dpb_status dpb_transformer_linear_bwd(struct dpb_transformer *net, int layer, int64_t rows,
                                      const void *x, const void *dy, void *dx, bool add,
                                      const struct dpb_transformer_ready *ready);

dpb_status dpb_transformer_norm_fwd(struct dpb_transformer *net, int layer, int64_t rows,
                                    const void *x, const struct dpb_transformer_norm *norm);
/* `dx` may be `dy`. */
dpb_status dpb_transformer_norm_bwd(struct dpb_transformer *net, int layer, int64_t rows,
                                    const void *x, const struct dpb_transformer_norm *norm,
                                    const void *dy, void *dx,
                                    const struct dpb_transformer_ready *ready);

dpb_status dpb_transformer_gelu_fwd(struct dpb_transformer *net, int layer, int64_t rows,
                                    const void *x, void *y);
/* `grad` in place */
dpb_status dpb_transformer_gelu_bwd(struct dpb_transformer *net, int layer, int64_t rows,
                                    const void *x, void *grad);

/* in place */
dpb_status dpb_transformer_tanh_fwd(struct dpb_transformer *net, int layer, int64_t rows, void *y);
dpb_status dpb_transformer_tanh_bwd(struct dpb_transformer *net, int layer, int64_t rows,
                                    const void *y, void *grad);

/* Probabilities of one block's attention. */
int64_t dpb_transformer_attention_floats(const struct dpb_transformer_shape *shape,
                                         int64_t samples);
dpb_status dpb_transformer_attention_fwd(struct dpb_transformer *net, int block, int64_t samples);
/* Gradients with respect to query, key and value lie as these do, in `wide_grad`. */
dpb_status dpb_transformer_attention_bwd(struct dpb_transformer *net, int block, int64_t samples,
                                         const void *dy);

/* y = a + b, of the size of the layer's output; y may be either. */
dpb_status dpb_transformer_add(struct dpb_transformer *net, int layer, int64_t rows, const void *a,
                               const void *b, void *y);

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
                                    void *x);
/* `dropped`: where the gradient before dropout lies, `room` or, where nothing is dropped, `dy`. */
dpb_status dpb_transformer_drop_bwd(struct dpb_transformer *net, int layer,
                                    enum dpb_transformer_place place, int block, int64_t rows,
                                    void *dy, void *room, const void **dropped);

/* The batch's tokens as sums of their embeddings. */
dpb_status dpb_transformer_embed_fwd(struct dpb_transformer *net, const struct dpb_batch *batch);
dpb_status dpb_transformer_embed_bwd(struct dpb_transformer *net, const struct dpb_batch *batch,
                                     const void *dy, const struct dpb_transformer_ready *ready);

/* y[i] = x[row[i]], and the gradient, summed in fp32: dx[row[i]] += dy[i], the other rows zero
 * unless `add`. */
dpb_status dpb_transformer_pick_fwd(struct dpb_transformer *net, const char *name, int64_t rows,
                                    const void *x, const int32_t *row, int64_t count, void *y);
dpb_status dpb_transformer_pick_bwd(struct dpb_transformer *net, const char *name, int64_t rows,
                                    float *dx, bool add, const int32_t *row, int64_t count,
                                    const void *dy);

/* Cross-entropy of logits [rows, classes]; they become probabilities, then gradients, which are
 * also written to `grad` where that is in another precision. */
dpb_status dpb_transformer_loss_fwd(struct dpb_transformer *net, const char *name, int64_t rows,
                                    int64_t classes, float *logits, const int32_t *label,
                                    float *loss);
dpb_status dpb_transformer_loss_bwd(struct dpb_transformer *net, const char *name, int64_t rows,
                                    int64_t classes, float *logits, const int32_t *label,
                                    float scale, void *grad);

/* ---- the families (transformer_bert.c, transformer_gpt2.c). Forward leaves probabilities in
 * `logits` and, for BERT, in heads.relation. ---- */

dpb_status dpb_transformer_bert_fwd(struct dpb_transformer *net, const struct dpb_batch *batch);
dpb_status dpb_transformer_bert_bwd(struct dpb_transformer *net, const struct dpb_batch *batch,
                                    float grad_scale, const struct dpb_transformer_ready *ready);
dpb_status dpb_transformer_gpt2_fwd(struct dpb_transformer *net, const struct dpb_batch *batch);
dpb_status dpb_transformer_gpt2_bwd(struct dpb_transformer *net, const struct dpb_batch *batch,
                                    float grad_scale, const struct dpb_transformer_ready *ready);

#endif

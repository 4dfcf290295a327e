/* cuda_kernels.h: the device's own kernels, one launch function for each operator of DPB_OP_MAP but
 * the matrix product and the convolutions, and what stands beside those. Private to kernels/cuda;
 * plain C, no vendor's header.
 *
 * A launch function only enqueues: it waits for nothing, allocates nothing, calls nothing of the
 * CUDA runtime but the launch, and so can be captured in a graph. The argument struct is read
 * before it returns. Arguments must have passed dpb_op_args_check(). It returns a cudaError_t as
 * int: 0                          enqueued (also where there is nothing to do) DPB_CUDA_INVALID (1)
 * an element type that the operator does not take, a shape beyond the limits said below, or a
 * workspace that is too small anything else              what cudaGetLastError() says after the
 * launch
 *
 * Element types: fp32, bf16 and fp16 where dpb_device.h takes bf16 (fp16 in its place); fp32 only
 * for the operators that are fp32 only. Sums are fp32, those of norms fp64. Pointers need their
 * element's alignment only; where all of an operator's are aligned to 16 bytes and its rows are
 * multiples of 16 bytes, loads and stores are of 16 bytes.
 *
 * Every result is the same bits every time: no atomic addition, and sums are in an order that
 * depends on the shape only.
 *
 * Limits, besides each operator's own: 2^31 - 1 rows and columns. */
#ifndef DPB_CUDA_KERNELS_H
#define DPB_CUDA_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dpb_device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* cudaErrorInvalidValue */
#define DPB_CUDA_INVALID 1

/* ---- where to launch ---- */

/* Enough for every operator within its limits. */
#define DPB_CUDA_WORKSPACE_BYTES ((size_t)8 << 20)

/* What kernels find wrong with their data. They cannot stop the run: they leave the rows in
 * question out (a loss becomes NaN), and note the first of them here. */
enum dpb_cuda_fault {
    DPB_CUDA_FAULT_EMBEDDING_FWD, /* ids[position] is no row of the table */
    DPB_CUDA_FAULT_EMBEDDING_BWD,
    DPB_CUDA_FAULT_SOFTMAX_LABEL, /* label[position] is no class */
    DPB_CUDA_FAULT_BCE_LABEL,     /* label[position] is neither 0 nor 1 */
    DPB_CUDA_FAULT_COUNT
};

/* Device memory, zero before the first launch. The device copies it to the host when it waits for a
 * stream, reports what dpb_cuda_fault_read() finds, and need not zero it again if it then fails.
 * All streams may share one. */
struct dpb_cuda_faults {
    uint64_t first[DPB_CUDA_FAULT_COUNT];
};

/* Was there a fault of this kind? Then the lowest position of one, and the number found there.
 * `faults` is a copy in the host's memory. */
static inline bool dpb_cuda_fault_read(const struct dpb_cuda_faults *faults,
                                       enum dpb_cuda_fault kind, int64_t *position, int32_t *value)
{
    uint64_t packed = ~faults->first[kind];

    if (faults->first[kind] == 0)
        return false;
    *position = (int64_t)(packed >> 32);
    *value = (int32_t)(uint32_t)packed;
    return true;
}

struct dpb_cuda_queue {
    void *stream; /* cudaStream_t */
    /* Device memory of this stream alone, aligned to 256 bytes, contents lost: what two kernels of
     * one operator hand over. At least DPB_CUDA_WORKSPACE_BYTES. */
    void *workspace;
    size_t workspace_bytes;
    struct dpb_cuda_faults *faults;
};

/* ---- the operators ---- */

#define DPB_CUDA_LAUNCH(name, type)                                                                \
    int dpb_cuda_##name(const struct dpb_##type##_args *args, const struct dpb_cuda_queue *queue)

/* Max and average; max backward gathers, so windows may overlap. An index that is no position of
 * its window is ignored. */
DPB_CUDA_LAUNCH(pool_max_fwd, pool);
DPB_CUDA_LAUNCH(pool_max_bwd, pool);
DPB_CUDA_LAUNCH(pool_avg_fwd, pool);
DPB_CUDA_LAUNCH(pool_avg_bwd, pool);

DPB_CUDA_LAUNCH(relu_fwd, relu);
DPB_CUDA_LAUNCH(relu_bwd, relu);
/* bwd: at most 2^17 columns. */
DPB_CUDA_LAUNCH(bias_fwd, bias);
DPB_CUDA_LAUNCH(bias_bwd, bias);

/* At most 2^17 channels. The mask is a byte for each element, 0 or 1. */
DPB_CUDA_LAUNCH(batchnorm_fwd, batchnorm);
DPB_CUDA_LAUNCH(batchnorm_bwd, batchnorm);
DPB_CUDA_LAUNCH(batchnorm_stats, batchnorm);
DPB_CUDA_LAUNCH(batchnorm_apply, batchnorm);
DPB_CUDA_LAUNCH(batchnorm_bwd_sums, batchnorm);
DPB_CUDA_LAUNCH(batchnorm_bwd_apply, batchnorm);

/* A row is read twice and written once, whatever its length. Of a row whose label is no class the
 * loss is NaN. */
DPB_CUDA_LAUNCH(softmax_xent_fwd, softmax_xent);
DPB_CUDA_LAUNCH(softmax_xent_bwd, softmax_xent);

/* At most 63 tables (T). */
DPB_CUDA_LAUNCH(interaction_fwd, interaction);
DPB_CUDA_LAUNCH(interaction_bwd, interaction);

DPB_CUDA_LAUNCH(sigmoid_bce_fwd, sigmoid_bce);
DPB_CUDA_LAUNCH(sigmoid_bce_bwd, sigmoid_bce);

DPB_CUDA_LAUNCH(scale, scale);
/* Also between bf16 and fp16. */
DPB_CUDA_LAUNCH(cast, cast);
DPB_CUDA_LAUNCH(add, add);
/* One block: for the few columns of low-rank compression. */
DPB_CUDA_LAUNCH(orthogonalize, orthogonalize);

DPB_CUDA_LAUNCH(gelu_fwd, activation);
DPB_CUDA_LAUNCH(gelu_bwd, activation);
DPB_CUDA_LAUNCH(tanh_fwd, activation);
DPB_CUDA_LAUNCH(tanh_bwd, activation);
/* The same mask as the CPU device's, bit for bit. */
DPB_CUDA_LAUNCH(dropout_fwd, dropout);
DPB_CUDA_LAUNCH(dropout_bwd, dropout);

/* bwd: at most 2^17 columns. */
DPB_CUDA_LAUNCH(layernorm_fwd, layernorm);
DPB_CUDA_LAUNCH(layernorm_bwd, layernorm);

/* bwd: at most 2^20 numbers; rows are added in the order of i, so the bits are the CPU device's. */
DPB_CUDA_LAUNCH(embedding_fwd, embedding);
DPB_CUDA_LAUNCH(embedding_bwd, embedding);

/* ---- the optimizers ----
 *
 * `count` argument structs, one behind the other. What a kernel needs to know of its tensors
 * travels in the launch's own parameters, at most DPB_CUDA_TABLE_BYTES of them, so nothing is
 * copied or allocated; more tensors than fit are done in more launches. lamb and lars take two
 * launches for each table, the first of which measures norms, where one of its tensors adapts. A
 * tensor has at most 2^44 elements. `count` 1 is op_launch(). */
#define DPB_CUDA_TABLE_BYTES 4000

#define DPB_CUDA_LAUNCH_MANY(name, type)                                                           \
    int dpb_cuda_##name##_many(const struct dpb_##type##_args *args, int count,                    \
                               const struct dpb_cuda_queue *queue)

DPB_CUDA_LAUNCH_MANY(sgd_momentum, sgd);
DPB_CUDA_LAUNCH_MANY(adamw, adam);
DPB_CUDA_LAUNCH_MANY(lamb, adam);
DPB_CUDA_LAUNCH_MANY(lars, lars);
DPB_CUDA_LAUNCH_MANY(adagrad, adagrad);
DPB_CUDA_LAUNCH_MANY(rowwise_adagrad, adagrad);

/* ---- parts of attention; the products between them are the caller's ---- */

/* For rows (b, a, i) of `tokens` scores each: prob = softmax over the keys j that i may attend to
 * of scale scores, 0 elsewhere; dropped = drop(prob), where not NULL. As dpb_attention_args says of
 * them; prob may be scores where their types are the same. */
struct dpb_cuda_attention_fwd {
    const void *scores;
    void *prob, *dropped;        /* [batch, heads, tokens, tokens] */
    enum dpb_dtype scores_dtype; /* fp32, or dtype */
    enum dpb_dtype dtype;        /* of prob and dropped */
    int64_t batch, heads, tokens;
    const uint8_t *key_mask; /* [batch, tokens], NULL: every key */
    float scale;
    bool causal;
    float keep; /* 0: no dropout */
    uint64_t seed, offset;
};
int dpb_cuda_attention_softmax_fwd(const struct dpb_cuda_attention_fwd *args,
                                   const struct dpb_cuda_queue *queue);

/* From dprob = dy v^T and prob: ds = scale prob (drop(dprob) - sum_j prob drop(dprob)); and
 * dropped = drop(prob), where not NULL, for dv. ds may be dprob where their types are the same. */
struct dpb_cuda_attention_bwd {
    const void *dprob, *prob;
    void *ds, *dropped;
    enum dpb_dtype dprob_dtype; /* fp32, or dtype */
    enum dpb_dtype dtype;       /* of prob, ds and dropped */
    int64_t batch, heads, tokens;
    float scale, keep;
    uint64_t seed, offset;
};
int dpb_cuda_attention_softmax_bwd(const struct dpb_cuda_attention_bwd *args,
                                   const struct dpb_cuda_queue *queue);

/* Heads: `tokens_side` [B,S,A,D] with `stride` elements from token to token (dpb_attention_args),
 * and dense `heads_side` [B,A,S,D], which strided batches of products take. Elements between the
 * tokens' are neither read nor written. */
struct dpb_cuda_heads {
    void *tokens_side, *heads_side;
    enum dpb_dtype dtype;
    int64_t batch, tokens, heads, depth, stride;
};
int dpb_cuda_heads_gather(const struct dpb_cuda_heads *args, const struct dpb_cuda_queue *queue);
int dpb_cuda_heads_scatter(const struct dpb_cuda_heads *args, const struct dpb_cuda_queue *queue);

/* ---- around cuDNN and cuBLASLt ---- */

/* Convolution weights: `oihw` [O,I,KH,KW] and `krsc` [O + pad, KH, KW, I + pad]. To KRSC the
 * padding is zero, from it it is left out. Any two of fp32, bf16 and fp16. */
struct dpb_cuda_weights {
    void *oihw, *krsc;
    enum dpb_dtype oihw_dtype, krsc_dtype;
    int64_t o, i, kh, kw;
    int64_t o_padded, i_padded; /* at least o and i */
};
int dpb_cuda_weights_to_krsc(const struct dpb_cuda_weights *args,
                             const struct dpb_cuda_queue *queue);
int dpb_cuda_weights_to_oihw(const struct dpb_cuda_weights *args,
                             const struct dpb_cuda_queue *queue);

/* Rows of `columns` elements, and the same with zeros after them up to `padded`: channels of NHWC
 * images. */
struct dpb_cuda_channels {
    void *dense, *padded_rows;
    enum dpb_dtype dtype;
    int64_t rows, columns, padded;
};
int dpb_cuda_channels_pad(const struct dpb_cuda_channels *args, const struct dpb_cuda_queue *queue);
int dpb_cuda_channels_unpad(const struct dpb_cuda_channels *args,
                            const struct dpb_cuda_queue *queue);

/* y = x + bias (NULL: none), then ReLU when `relu`, after a convolution that could not do it; y may
 * be x. The gradient of the bias is dpb_cuda_bias_bwd() of [rows, columns]. */
struct dpb_cuda_bias_relu_args {
    const void *x;
    void *y;
    const float *bias;
    enum dpb_dtype dtype;
    int64_t rows, columns;
    bool relu;
};
int dpb_cuda_bias_relu(const struct dpb_cuda_bias_relu_args *args,
                       const struct dpb_cuda_queue *queue);

/* `count` elements of `value`. fp32, bf16, fp16. */
int dpb_cuda_fill(void *x, enum dpb_dtype dtype, int64_t count, float value,
                  const struct dpb_cuda_queue *queue);

/* *found (device memory) := 1 when an element of x is infinite or NaN, else it is left as it is:
 * zero it first. For loss scaling. */
int dpb_cuda_find_nonfinite(const void *x, enum dpb_dtype dtype, int64_t count, int32_t *found,
                            const struct dpb_cuda_queue *queue);

#ifdef __cplusplus
}
#endif
#endif

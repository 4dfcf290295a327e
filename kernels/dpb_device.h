/* dpb_device.h: the device interface: memory, streams, events, and the operators of a training
 * step.
 *
 * Streams and events are here because overlap is the subject of this program: a strategy says the
 * same thing to a CUDA stream, to a CPU that computes in the calling thread, and to a virtual
 * clock. A device that computes in the caller's thread completes an operator before op_launch()
 * returns; callers must not rely on it, and order everything through streams and events.
 *
 * Memory. What alloc() gives belongs to the device: with DPB_DEVICE_ACCELERATOR the host must not
 * read or write it, but copy() to and from memory of its own. Memory of host_alloc() is the host's,
 * and copies between it and the device's do not block the caller.
 *
 * Tensors are dense and row-major. Images are NHWC; convolution weights are OIHW (as the reference
 * networks register them); a device keeps whatever inner layout it likes behind that.
 *
 * Mixed precision. An operator for which op_supported(device, op, DPB_BF16) says yes takes tensors
 * of bf16 where it takes fp32: all of them, except what follows. Sums and everything between are
 * fp32, results are rounded to nearest even. Members of type `float *` (biases, scales, statistics,
 * losses) stay fp32. DPB_F16 is asked about in the same way, and fp16 stands where bf16 stands.
 *   matmul            a and b bf16; c bf16 or fp32. A bias may be rounded to c's type first (cuda)
 *   conv-bwd-weights  x and y bf16; w, the gradient, fp32
 *   embedding-fwd     table fp32 or bf16; y bf16.  embedding-bwd: dy bf16, dtable fp32
 * Softmax with cross-entropy, interaction, sigmoid-bce and the optimizers are fp32 only, as under
 * PyTorch's autocast: `cast` lies between. */
#ifndef DPB_DEVICE_H
#define DPB_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dpb_json.h"
#include "dpb_options.h"
#include "dpb_status.h"
#include "dpb_types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DPB_DEVICE_OPS_VERSION 3
#define DPB_TENSOR_RANK_MAX    5

struct dpb_tensor {
    void *data;
    enum dpb_dtype dtype;
    int rank;
    int64_t dim[DPB_TENSOR_RANK_MAX];
};

/* Product of the dimensions; 1 for rank 0. */
int64_t dpb_tensor_numel(const struct dpb_tensor *tensor);

/* Convenience constructors: fp32 tensors of rank 1, 2 and 4. */
struct dpb_tensor dpb_tensor_1d(void *data, int64_t n);
struct dpb_tensor dpb_tensor_2d(void *data, int64_t rows, int64_t columns);
struct dpb_tensor dpb_tensor_4d(void *data, int64_t a, int64_t b, int64_t c, int64_t d);

/* ---- operators: identifier, text, argument struct ---- */
#define DPB_OP_MAP(X)                                                                              \
    X(DPB_OP_MATMUL, "matmul", struct dpb_matmul_args)                                             \
    X(DPB_OP_CONV_FWD, "conv-fwd", struct dpb_conv_args)                                           \
    X(DPB_OP_CONV_BWD_DATA, "conv-bwd-data", struct dpb_conv_args)                                 \
    X(DPB_OP_CONV_BWD_WEIGHTS, "conv-bwd-weights", struct dpb_conv_args)                           \
    X(DPB_OP_POOL_MAX_FWD, "pool-max-fwd", struct dpb_pool_args)                                   \
    X(DPB_OP_POOL_MAX_BWD, "pool-max-bwd", struct dpb_pool_args)                                   \
    X(DPB_OP_POOL_AVG_FWD, "pool-avg-fwd", struct dpb_pool_args)                                   \
    X(DPB_OP_POOL_AVG_BWD, "pool-avg-bwd", struct dpb_pool_args)                                   \
    X(DPB_OP_RELU_FWD, "relu-fwd", struct dpb_relu_args)                                           \
    X(DPB_OP_RELU_BWD, "relu-bwd", struct dpb_relu_args)                                           \
    X(DPB_OP_BIAS_FWD, "bias-fwd", struct dpb_bias_args)                                           \
    X(DPB_OP_BIAS_BWD, "bias-bwd", struct dpb_bias_args)                                           \
    X(DPB_OP_BATCHNORM_FWD, "batchnorm-fwd", struct dpb_batchnorm_args)                            \
    X(DPB_OP_BATCHNORM_BWD, "batchnorm-bwd", struct dpb_batchnorm_args)                            \
    X(DPB_OP_BATCHNORM_STATS, "batchnorm-stats", struct dpb_batchnorm_args)                        \
    X(DPB_OP_BATCHNORM_APPLY, "batchnorm-apply", struct dpb_batchnorm_args)                        \
    X(DPB_OP_BATCHNORM_BWD_SUMS, "batchnorm-bwd-sums", struct dpb_batchnorm_args)                  \
    X(DPB_OP_BATCHNORM_BWD_APPLY, "batchnorm-bwd-apply", struct dpb_batchnorm_args)                \
    X(DPB_OP_SOFTMAX_XENT_FWD, "softmax-xent-fwd", struct dpb_softmax_xent_args)                   \
    X(DPB_OP_SOFTMAX_XENT_BWD, "softmax-xent-bwd", struct dpb_softmax_xent_args)                   \
    X(DPB_OP_INTERACTION_FWD, "interaction-fwd", struct dpb_interaction_args)                      \
    X(DPB_OP_INTERACTION_BWD, "interaction-bwd", struct dpb_interaction_args)                      \
    X(DPB_OP_SIGMOID_BCE_FWD, "sigmoid-bce-fwd", struct dpb_sigmoid_bce_args)                      \
    X(DPB_OP_SIGMOID_BCE_BWD, "sigmoid-bce-bwd", struct dpb_sigmoid_bce_args)                      \
    X(DPB_OP_SGD_MOMENTUM, "sgd-momentum", struct dpb_sgd_args)                                    \
    X(DPB_OP_ADAMW, "adamw", struct dpb_adam_args)                                                 \
    X(DPB_OP_LAMB, "lamb", struct dpb_adam_args)                                                   \
    X(DPB_OP_LARS, "lars", struct dpb_lars_args)                                                   \
    X(DPB_OP_ADAGRAD, "adagrad", struct dpb_adagrad_args)                                          \
    X(DPB_OP_ROWWISE_ADAGRAD, "rowwise-adagrad", struct dpb_adagrad_args)                          \
    X(DPB_OP_SCALE, "scale", struct dpb_scale_args)                                                \
    X(DPB_OP_FINITE, "finite", struct dpb_finite_args)                                             \
    X(DPB_OP_CAST, "cast", struct dpb_cast_args)                                                   \
    X(DPB_OP_ADD, "add", struct dpb_add_args)                                                      \
    X(DPB_OP_ORTHOGONALIZE, "orthogonalize", struct dpb_orthogonalize_args)                        \
    X(DPB_OP_GELU_FWD, "gelu-fwd", struct dpb_activation_args)                                     \
    X(DPB_OP_GELU_BWD, "gelu-bwd", struct dpb_activation_args)                                     \
    X(DPB_OP_TANH_FWD, "tanh-fwd", struct dpb_activation_args)                                     \
    X(DPB_OP_TANH_BWD, "tanh-bwd", struct dpb_activation_args)                                     \
    X(DPB_OP_DROPOUT_FWD, "dropout-fwd", struct dpb_dropout_args)                                  \
    X(DPB_OP_DROPOUT_BWD, "dropout-bwd", struct dpb_dropout_args)                                  \
    X(DPB_OP_LAYERNORM_FWD, "layernorm-fwd", struct dpb_layernorm_args)                            \
    X(DPB_OP_LAYERNORM_BWD, "layernorm-bwd", struct dpb_layernorm_args)                            \
    X(DPB_OP_EMBEDDING_FWD, "embedding-fwd", struct dpb_embedding_args)                            \
    X(DPB_OP_EMBEDDING_BWD, "embedding-bwd", struct dpb_embedding_args)                            \
    X(DPB_OP_ATTENTION_FWD, "attention-fwd", struct dpb_attention_args)                            \
    X(DPB_OP_ATTENTION_BWD, "attention-bwd", struct dpb_attention_args)

enum dpb_op {
#define DPB_OP_ENUM(name, text, args) name,
    DPB_OP_MAP(DPB_OP_ENUM)
#undef DPB_OP_ENUM
    DPB_OP_COUNT
};

/* "conv-fwd"; static storage. */
const char *dpb_op_text(enum dpb_op op);

/* C[M,N] = op(A) op(B) + beta C (+ bias[N]), then ReLU when `relu`. op(X) is X, or its transpose
 * when trans_x. A linear layer with weight W[out,in]: forward y = x W^T (trans_b); data gradient
 * dx = dy W; weight gradient dW = dy^T x (trans_a). */
struct dpb_matmul_args {
    struct dpb_tensor a, b, c; /* rank 2 */
    const float *bias;         /* N elements or NULL */
    bool trans_a, trans_b, relu;
    float beta; /* 0: C is not read; 1: accumulate */
};

/* 2-d convolution (cross-correlation), groups 1, dilation 1, zero padding, symmetric.
 *   fwd:         y = x * w + bias, then ReLU when `relu`
 *   bwd-data:    x := gradient with respect to x, from y := gradient with respect to y
 *   bwd-weights: w := gradient w.r.t. w, bias := gradient w.r.t. bias (unless NULL), from x and y
 * x NHWC [N,H,W,I], w OIHW [O,I,KH,KW], y NHWC [N,OH,OW,O], OH = (H + 2 pad - KH) / stride + 1. */
struct dpb_conv_args {
    struct dpb_tensor x, w, y;
    float *bias; /* O elements or NULL */
    int stride, pad;
    bool relu; /* fwd only */
};

/* Pooling over windows kernel x kernel, NHWC. Max: `index` (one byte per output element, position
 * in the window, row-major; ties take the first) is written by fwd and read by bwd; NULL in
 * inference. Average: the divisor is kernel * kernel, padding included. bwd: x := gradient w.r.t.
 * x. */
struct dpb_pool_args {
    struct dpb_tensor x, y;
    uint8_t *index;
    int kernel, stride, pad;
};

/* fwd: y = max(x, 0). bwd: dx = dy where y > 0, else 0; dx may alias dy. fwd: y may alias x. */
struct dpb_relu_args {
    struct dpb_tensor x;  /* fwd input */
    struct dpb_tensor y;  /* fwd output */
    struct dpb_tensor dy; /* bwd input */
    struct dpb_tensor dx; /* bwd output */
};

/* y[M,N] = x[M,N] + bias[N]; y may alias x. bwd: bias := column sums of y (its gradient). */
struct dpb_bias_args {
    struct dpb_tensor x, y; /* rank 2 */
    float *bias;
};

/* Batch normalisation over N,H,W per channel, NHWC (or [N,C]).
 * fwd, training: y = gamma (x - mean) / sqrt(var + eps) + beta with the batch's biased variance;
 *   saves mean and var; running = (1 - momentum) running + momentum batch, with the unbiased
 *   variance for running_var, as PyTorch does.
 * fwd, inference: uses the running statistics, changes nothing.
 * bwd: dx, dgamma, dbeta from x, dy, gamma, save_mean, save_var (training statistics).
 *
 * With `residual`, y = . + residual, the sum that ends a residual block; it has x's shape. Then bwd
 * and bwd-sums also make dresidual, the gradient with respect to it; it may alias dy. With `relu`,
 * y = max(., 0), and the backward operators see dy only where y was above 0: training forward
 * writes `mask` and backward reads it (what is in it is the device's own affair: of `fwd` for
 * `bwd`, of `apply` for the halves of backward).
 *
 * In two halves, for statistics of more than this batch (synchronised over ranks):
 * stats:     save_mean and save_var (biased) of x.
 * apply:     y from x, gamma, beta, save_mean, save_var; running statistics are not touched.
 * bwd-sums:  dbeta = sum dy, dgamma = sum dy xhat, xhat = (x - mean) / sqrt(var + eps).
 * bwd-apply: dx = gamma / sqrt(var + eps) (dy - dbeta / count - xhat dgamma / count), from sums
 *   over all `count` values of a channel that the statistics were made of. */
struct dpb_batchnorm_args {
    struct dpb_tensor x, y, dy, dx;
    struct dpb_tensor residual, dresidual; /* data NULL: none */
    const float *gamma, *beta;             /* C each */
    float *dgamma, *dbeta;                 /* bwd */
    float *running_mean, *running_var;     /* C each */
    float *save_mean, *save_var;           /* C each; training fwd writes, bwd reads */
    uint8_t *mask; /* with relu: one byte per element of x; NULL in inference */
    double count;  /* bwd-apply */
    float eps, momentum;
    bool training, relu;
};

/* fwd: prob = softmax(logits) per row, loss[m] = -log prob[m, label[m]]; prob may alias logits.
 * bwd: dlogits = (prob - onehot(label)) * scale; dlogits may alias prob. */
struct dpb_softmax_xent_args {
    struct dpb_tensor logits, prob, dlogits; /* [M,C] */
    const int32_t *label;                    /* M */
    float *loss;                             /* M; fwd */
    float scale;                             /* bwd */
};

/* Of N samples with T + 1 vectors of D elements each: x is vector 0, e[t] is vector t + 1.
 * fwd: row n of y is x[n], then the dot products of every pair of vectors (1,0) (2,0) (2,1) (3,0)
 *      ..., as facebookresearch/dlrm's interact_features() with interact_itself off
 *      (Naumov et al. 2019, arXiv:1906.00091).
 * bwd: dx, de from x, e and y := gradient w.r.t. y. */
struct dpb_interaction_args {
    struct dpb_tensor x;  /* [N,D] */
    struct dpb_tensor e;  /* [T,N,D] */
    struct dpb_tensor y;  /* [N, D + T (T + 1) / 2] */
    struct dpb_tensor dx; /* bwd */
    struct dpb_tensor de;
};

/* Two classes from one logit z, label 0 or 1; any rank.
 * fwd: loss = -log(label ? sigmoid(z) : 1 - sigmoid(z)), without overflow for any z.
 * bwd: dlogits = (sigmoid(z) - label) * scale; dlogits may alias logits. */
struct dpb_sigmoid_bce_args {
    struct dpb_tensor logits, dlogits;
    const int32_t *label; /* one per logit; so is loss */
    float *loss;          /* fwd */
    float scale;          /* bwd */
};

/* The optimizers. A gradient is not changed; state is zero before the first step. Numbers are
 * double where 1 - beta2 matters: that of a beta2 in fp32 is off by 1e-5. Norms are Euclidean, over
 * the whole tensor, summed in an order that depends on its size only. */

/* PyTorch's SGD: g = grad + weight_decay param; momentum = mu momentum + g; param -= lr momentum.
 * All of `count` elements. */
struct dpb_sgd_args {
    float *param;
    const float *grad;
    float *momentum; /* may be NULL when mu is 0: param -= lr g */
    int64_t count;
    float lr, mu, weight_decay;
};

/* m = beta1 m + (1 - beta1) grad; v = beta2 v + (1 - beta2) grad^2;
 * d = (m / (1 - beta1^step)) / (sqrt(v / (1 - beta2^step)) + eps).
 *   adamw: param = (1 - lr weight_decay) param - lr d, as torch.optim.AdamW (Loshchilov and Hutter
 *          2019, arXiv:1711.05101); `adapt` is not read
 *   lamb:  u = d + weight_decay param; param -= lr r u, with r = ||param|| / ||u|| when `adapt` and
 *          neither norm is 0, else 1 (You et al. 2020, arXiv:1904.00962, algorithm 2, phi(x) = x)
 */
struct dpb_adam_args {
    struct dpb_tensor param; /* any rank from 1 */
    const float *grad;       /* as many elements as param; so m and v */
    float *m, *v;
    int64_t step; /* from 1 */
    double lr, beta1, beta2, eps, weight_decay;
    bool adapt;
};

/* momentum = mu momentum + lr r (grad + weight_decay param); param -= momentum, with
 * r = trust ||param|| / (||grad|| + weight_decay ||param|| + eps) when `adapt` and neither norm is
 * 0, else 1 (You et al. 2017, arXiv:1708.03888, algorithm 1; eps and the 1 as MLPerf's reference,
 * mlcommons/training, image_classification/tensorflow2/lars_optimizer.py). */
struct dpb_lars_args {
    struct dpb_tensor param; /* any rank from 1 */
    const float *grad;       /* as many elements as param; so momentum */
    float *momentum;
    double lr, mu, weight_decay, trust, eps;
    bool adapt;
};

/* g = grad + weight_decay param.
 *   adagrad:         state += g^2; param -= lr g / (sqrt(state) + eps), as torch.optim.Adagrad
 *                    without decay of lr (Duchi et al. 2011); state has param's elements
 *   rowwise-adagrad: param is [rows, columns], state [rows]: state[r] += mean over the row of g^2;
 *                    param[r,c] -= lr g[r,c] / (sqrt(state[r]) + eps), as FBGEMM's
 *                    EXACT_ROWWISE_ADAGRAD and torchrec's RowWiseAdagrad */
struct dpb_adagrad_args {
    struct dpb_tensor param; /* any rank from 1 */
    const float *grad;       /* as many elements as param */
    float *state;
    double lr, eps, weight_decay;
};

/* x *= factor, in place. */
struct dpb_scale_args {
    float *x;
    int64_t count;
    float factor;
};

/* found[0] = 1 when an element of x is infinite or not a number; else it is left as it is, so that
 * one number can tell of many tensors. */
struct dpb_finite_args {
    const float *x;
    int64_t count;
    int32_t *found;
};

/* to = from, between fp32 and bf16 or fp16 either way, or the same type; any rank. */
struct dpb_cast_args {
    struct dpb_tensor from, to; /* the same shape */
};

/* y = a + b, then ReLU when `relu`; y may alias a and b. Its gradient with respect to a and to b is
 * dy, or relu-bwd of y and dy; where a tensor branches, this operator sums the gradients. */
struct dpb_add_args {
    struct dpb_tensor a, b, y; /* the same shape */
    bool relu;
};

/* Columns of x [rows, columns] become orthonormal, in place: modified Gram-Schmidt (Bjorck 1967),
 * as PyTorch's PowerSGD hook does it. From the first to the last, a column is divided by its length
 * plus eps, and its share taken from the later ones. A column of length 0 stays 0 when eps is 0. */
struct dpb_orthogonalize_args {
    struct dpb_tensor x;
    float eps; /* from 0 */
};

/* tanh:             y = tanh(x);                     dx = dy (1 - y^2), from y
 * gelu:             y = x Phi(x), Phi(x) = (1 + erf(x / sqrt(2))) / 2;
 *                   dx = dy (Phi(x) + x exp(-x^2 / 2) / sqrt(2 pi)), from x
 * gelu, tanh_form:  y = x (1 + t) / 2, t = tanh(u), u = sqrt(2 / pi) (x + 0.044715 x^3);
 *                   dx = dy ((1 + t) / 2 + x (1 - t^2) / 2 sqrt(2 / pi) (1 + 0.134145 x^2)), from x
 * fwd: y may alias x (for gelu only where no bwd follows). bwd: dx may alias dy. */
struct dpb_activation_args {
    struct dpb_tensor x;  /* fwd input; gelu-bwd input */
    struct dpb_tensor y;  /* fwd output; tanh-bwd input */
    struct dpb_tensor dy; /* bwd input */
    struct dpb_tensor dx; /* bwd output */
    bool tanh_form;       /* gelu only: GPT-2's form; BERT has the exact one */
};

/* fwd: y = x / keep for the elements that are kept, else 0. bwd: dx = dy / keep for the same ones.
 * Element i is kept when word (offset + i) mod 4 of Philox-4x32-10 with the counter
 * ((offset + i) / 4, 0) and the key `seed`, low words first, is below keep 2^32: `seed` and
 * `offset` name the mask, nothing is saved. y may alias x, dx may alias dy. */
struct dpb_dropout_args {
    struct dpb_tensor x, y;   /* fwd */
    struct dpb_tensor dy, dx; /* bwd */
    float keep;               /* probability, above 0 and at most 1 */
    uint64_t seed, offset;
};

/* Layer normalisation of each row, over N, with the row's mean and biased variance:
 * rstd = 1 / sqrt(var + eps), xhat = (x - mean) rstd.
 * fwd: y = gamma xhat + beta; saves mean and rstd unless NULL (inference). y may alias x where no
 *   bwd follows.
 * bwd: from x, dy, gamma, save_mean, save_rstd. With g = gamma dy and means over the row:
 *   dx = rstd (g - mean(g) - xhat mean(g xhat)); dgamma and dbeta are the column sums of dy xhat
 *   and of dy. dx may alias dy. */
struct dpb_layernorm_args {
    struct dpb_tensor x, y, dy, dx; /* [M,N] */
    const float *gamma, *beta;      /* N each */
    float *dgamma, *dbeta;          /* N each; bwd */
    float *save_mean, *save_rstd;   /* M each */
    float eps;
};

/* Rows of a table by number; also a gather of rows, and the scatter-add that is its gradient.
 * fwd: y[i,:] = table[ids[i],:], added to y when `accumulate`.
 * bwd: dtable[ids[i],:] += dy[i,:] for every i, in the order of i; dtable starts at zero, or when
 *   `accumulate` with what it holds. Dense: all rows of dtable are written.
 * A number outside the table: DPB_ERR_USAGE, logged with its position; nothing is written. A device
 * of its own memory may find it later: stream_sync() then says so, and rows of other numbers are
 * written. */
struct dpb_embedding_args {
    struct dpb_tensor table, dtable; /* [V,N]: fwd, bwd */
    struct dpb_tensor y, dy;         /* [M,N]: fwd, bwd */
    const int32_t *ids;              /* M */
    bool accumulate;
};

/* Multi-head attention for batches of B sequences of S tokens, A heads of D elements each.
 * fwd: per sequence and head, prob = softmax over keys j of (q k^T scale), y = prob v. Token i may
 *   attend to key j unless key_mask[b,j] is 0, or j > i when `causal`; other keys have prob 0, and
 *   a token without any key has y = 0.
 * bwd: from q, k, v, prob, dy: dv = prob^T dy; dprob = dy v^T;
 *   ds = scale prob (dprob - sum_j prob dprob); dq = ds k; dk = ds^T q.
 * With keep below 1 (0 means 1, no dropout), dropout of prob: y = drop(prob) v, dv = drop(prob)^T
 *   dy, dprob = drop(dy v^T); `prob` holds it before dropout; the mask is dropout-fwd's of that
 *   tensor for `seed` and `offset`.
 * Strides: a token's q, k, v, dq, dk and dv lie `stride` elements after the token's before it, so
 *   they may be three buffers [B S, A D] (stride A D), or parts of one [B S, 3 A D] (stride 3 A D).
 *   The elements between are neither read nor written. y and dy are dense [B S, A D]. */
struct dpb_attention_args {
    struct dpb_tensor q, k, v;    /* [B,S,A,D], element (b,s,a,d) at (b S + s) stride + a D + d */
    struct dpb_tensor dq, dk, dv; /* bwd outputs, the same form */
    struct dpb_tensor y, dy;      /* [B,S,A,D], dense: fwd, bwd */
    struct dpb_tensor prob;       /* [B,A,S,S]: fwd writes, bwd reads */
    float *workspace;             /* bwd: as many elements as prob, contents lost */
    const uint8_t *key_mask;      /* [B,S], NULL: every key */
    int64_t stride;               /* at least A D */
    float scale;                  /* 1 / sqrt(D) as a rule */
    bool causal;
    float keep; /* probability that an attention weight is kept */
    uint64_t seed, offset;
};

/* ---- the interface ---- */

typedef struct dpb_device dpb_device; /* defined by the device; first member dpb_device_base */
typedef struct dpb_stream dpb_stream;
typedef struct dpb_event_mark dpb_event_mark; /* a point on a stream's time line */

struct dpb_device_config {
    int local_rank;
    int local_size;      /* ranks on this machine */
    int threads;         /* compute threads of this rank, at least 1 */
    bool bind;           /* bind to cores, local_rank * threads first */
    const void *options; /* the device's own option struct, NULL when it has none */
};

/* Memory of a device that is not open. */
struct dpb_device_room {
    char name[128]; /* which one it is: "GPU 1, NVIDIA H200, 0000:43:00.0" */
    int64_t free_bytes, total_bytes;
};

enum dpb_device_flags {
    DPB_DEVICE_VIRTUAL_TIME = 1 << 0, /* sim: results are "simulated" */
    DPB_DEVICE_ACCELERATOR = 1 << 1   /* computes beside the host, in memory of its own */
};

struct dpb_device_ops {
    int version; /* DPB_DEVICE_OPS_VERSION */
    const char *name, *summary;
    unsigned flags;
    const struct dpb_option_table *options; /* optional: NULL */

    /* DPB_OK, or DPB_ERR_UNAVAILABLE with one line in `why` ("not available here, because ...").
     * Never fails the program, has no side effects. */
    dpb_status (*probe)(char *why, size_t why_bytes);

    dpb_status (*open)(const struct dpb_device_config *config, dpb_device **device);
    void (*close)(dpb_device *device);

    /* Optional: memory of the device that open() would take with this configuration, looked up
     * without opening it: nothing is taken of it. DPB_ERR_UNAVAILABLE, not logged: nobody tells. */
    dpb_status (*room)(const struct dpb_device_config *config, struct dpb_device_room *room);

    /* Describe the opened device for the record: name, isa, threads, cores, library versions. The
     * caller owns the value. */
    dpb_json *(*describe)(dpb_device *device);

    /* Zeroed memory, aligned to 64 bytes, touched so that later use takes no page fault. */
    dpb_status (*alloc)(dpb_device *device, size_t bytes, void **memory);
    void (*free)(dpb_device *device, void *memory);
    /* Between any two memories, of the host or the device, in the stream's order. With host memory
     * that is not of host_alloc() the caller may be blocked until it is done. */
    dpb_status (*copy)(dpb_device *device, void *to, const void *from, size_t bytes,
                       dpb_stream *stream);
    /* Optional, both or neither; NULL: alloc() and free(), where the host may touch the memory. */
    dpb_status (*host_alloc)(dpb_device *device, size_t bytes, void **memory);
    void (*host_free)(dpb_device *device, void *memory);
    /* Optional: bytes that alloc() could still give, and bytes of the device in all. NULL: what the
     * host has. */
    dpb_status (*memory_bytes)(dpb_device *device, int64_t *available, int64_t *total);

    dpb_status (*stream_open)(dpb_device *device, dpb_stream **stream);
    void (*stream_close)(dpb_stream *stream);
    /* Optional: the vendor's own handle (cudaStream_t), for a comm that is made for this device. */
    void *(*stream_native)(dpb_stream *stream);
    dpb_status (*stream_sync)(dpb_stream *stream); /* host waits for everything launched so far */
    dpb_status (*mark_open)(dpb_device *device, dpb_event_mark **mark);
    void (*mark_close)(dpb_event_mark *mark);
    dpb_status (*mark_record)(dpb_event_mark *mark, dpb_stream *stream);
    dpb_status (*stream_wait)(dpb_stream *stream, dpb_event_mark *mark); /* later work waits */
    /* Time from `from` to `to`, both recorded and complete. */
    dpb_status (*mark_elapsed_ns)(dpb_event_mark *from, dpb_event_mark *to, int64_t *ns);

    bool (*op_supported)(dpb_device *device, enum dpb_op op, enum dpb_dtype dtype);
    /* `args` points to the operator's struct (DPB_OP_MAP); it is not kept. Shapes that do not fit:
     * DPB_ERR_USAGE, logged with the operator and the shapes. */
    dpb_status (*op_launch)(dpb_device *device, enum dpb_op op, const void *args,
                            dpb_stream *stream);
    /* Optional: the same operator for `count` argument structs at `args`, one behind the other, in
     * as few launches as the device can: the updates of an optimizer. NULL: one by one. */
    dpb_status (*op_launch_many)(dpb_device *device, enum dpb_op op, const void *args, int count,
                                 dpb_stream *stream);

    /* Optional, both or neither. Between them, what is launched on `stream`, and on streams that
     * wait for marks of it, is not run but recorded; end() runs all of it at once, as a graph. The
     * host must not wait for any of it in between, and streams that forked must have been waited
     * for. A graph of the same form as the last one is updated, not made anew. */
    dpb_status (*capture_begin)(dpb_device *device, dpb_stream *stream);
    dpb_status (*capture_end)(dpb_device *device, dpb_stream *stream);

    /* Optional: timed steps begin (or end). The device gives back the memory that it keeps for
     * later, which may wait for all that was launched. What it allocates or prepares while it is
     * sealed is counted, and described as "allocations_in_steps"; it is not refused. */
    void (*seal)(dpb_device *device, bool sealed);
};

/* First member of every device's struct, so that the calls below find the table. */
struct dpb_device_base {
    const struct dpb_device_ops *ops;
};

/* Check a table: version, names, required members, its option table. Logged; DPB_ERR_INTERNAL. */
dpb_status dpb_device_ops_check(const struct dpb_device_ops *ops);

static inline const struct dpb_device_ops *dpb_device_get_ops(const dpb_device *device)
{
    return ((const struct dpb_device_base *)device)->ops;
}

/* Bytes of an operator's argument struct (DPB_OP_MAP). */
size_t dpb_op_args_bytes(enum dpb_op op);

/* host_alloc(), host_free() and op_launch_many(), or what stands in for them. */
dpb_status dpb_device_host_alloc(dpb_device *device, size_t bytes, void **memory);
void dpb_device_host_free(dpb_device *device, void *memory);
dpb_status dpb_op_launch_many(dpb_device *device, enum dpb_op op, const void *args, int count,
                              dpb_stream *stream);

/* Launch one operator on a stream. */
static inline dpb_status dpb_op_launch(dpb_device *device, enum dpb_op op, const void *args,
                                       dpb_stream *stream)
{
    return dpb_device_get_ops(device)->op_launch(device, op, args, stream);
}

#ifdef __cplusplus
}
#endif
#endif

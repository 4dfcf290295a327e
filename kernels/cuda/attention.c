/* Attention: matrix products on q, k and v as they lie, and softmax between them.
 *
 * (sequence, head) has two strides and cuBLASLt's batches have one: a product is a loop of launches
 * over the smaller of the two numbers, each a batch over the other. Scores and their gradient are
 * fp32 in between, whatever the tensors' type. */
#include "cuda_device.h"

/* An operator's arguments, and what lies between its products. */
struct call {
    const struct dpb_attention_args *args;
    dpb_stream *stream;
    const char *what;
    enum dpb_dtype dtype;
    bool drops;
    void *scores;  /* fwd, fp32: prob itself where that is fp32; bwd: the gradient of prob, fp32 */
    void *ds;      /* bwd, of dtype: in the gradient's place where that is fp32 */
    void *dropped; /* of dtype, NULL without dropout */
};

static size_t rounded(size_t bytes)
{
    return (bytes + DPB_CUDA_ALIGNMENT - 1) / DPB_CUDA_ALIGNMENT * DPB_CUDA_ALIGNMENT;
}

/* Part of an operator's memory: `bytes` where it is needed. */
static void *part(void *memory, size_t *used, bool needed, size_t bytes)
{
    void *at = (char *)memory + *used;

    if (!needed)
        return NULL;
    *used += rounded(bytes);
    return at;
}

static dpb_status call_init(struct call *call, dpb_stream *stream, enum dpb_op op,
                            const struct dpb_attention_args *args)
{
    bool half = args->q.dtype != DPB_F32, forward = op == DPB_OP_ATTENTION_FWD;
    size_t numel = (size_t)dpb_tensor_numel(&args->prob), used = 0, bytes;
    size_t of_dtype = numel * dpb_dtype_bytes(args->q.dtype);
    void *memory = NULL;

    *call = (struct call){.args = args,
                          .stream = stream,
                          .what = dpb_op_text(op),
                          .dtype = args->q.dtype,
                          .drops = args->keep != 0.0f && args->keep != 1.0f};
    bytes = (half ? rounded(forward ? 4 * numel : of_dtype) : 0) +
            (call->drops ? rounded(of_dtype) : 0);
    if (bytes > 0)
        DPB_TRY(dpb_cuda_stream_scratch(stream, bytes, &memory));
    call->dropped = part(memory, &used, call->drops, of_dtype);
    if (forward) {
        call->scores = half ? part(memory, &used, true, 4 * numel) : args->prob.data;
    } else {
        call->scores = args->workspace;
        call->ds = half ? part(memory, &used, true, of_dtype) : args->workspace;
    }
    return DPB_OK;
}

/* ---- products ---- */

/* [S,D] per (sequence, head), `stride` elements from token to token. */
static struct dpb_gemm_heads tokens_of(const struct dpb_tensor *x, int64_t stride)
{
    return (struct dpb_gemm_heads){x->data, stride, x->dim[1] * stride, x->dim[3]};
}

/* [S,S] per (sequence, head), dense. */
static struct dpb_gemm_heads scores_of(const struct call *call, void *data)
{
    int64_t tokens = call->args->q.dim[1], one = tokens * tokens;

    return (struct dpb_gemm_heads){data, tokens, call->args->q.dim[2] * one, one};
}

struct factor {
    struct dpb_gemm_heads heads;
    enum dpb_dtype dtype;
    bool transposed;
};

/* c[m,n] = op(a)[m,k] op(b)[k,n] for every sequence and head. */
static dpb_status multiply(const struct call *call, struct factor a, struct factor b,
                           struct factor c, int64_t m, int64_t n, int64_t k)
{
    struct dpb_gemm_loop loop = dpb_gemm_loop_of(call->args->q.dim[0], call->args->q.dim[2]);
    size_t from_bytes = dpb_dtype_bytes(a.dtype), to_bytes = dpb_dtype_bytes(c.dtype);

    for (int64_t i = 0; i < loop.launches; i++) {
        const struct dpb_gemm_product product = {
                .a = dpb_gemm_heads_at(&a.heads, &loop, i, from_bytes),
                .b = dpb_gemm_heads_at(&b.heads, &loop, i, from_bytes),
                .c = dpb_gemm_heads_at(&c.heads, &loop, i, to_bytes),
                .from = a.dtype,
                .to = c.dtype,
                .m = m,
                .n = n,
                .k = k,
                .batch = loop.batch,
                .trans_a = a.transposed,
                .trans_b = b.transposed,
                .alpha = 1.0f,
        };
        DPB_TRY(dpb_cuda_gemm(call->stream, &product, call->what));
    }
    return DPB_OK;
}

static dpb_status forward(const struct call *call, const struct dpb_cuda_queue *queue)
{
    const struct dpb_attention_args *a = call->args;
    int64_t tokens = a->q.dim[1], depth = a->q.dim[3], dense = a->q.dim[2] * depth;
    struct factor q = {tokens_of(&a->q, a->stride), call->dtype, false};
    struct factor k = {tokens_of(&a->k, a->stride), call->dtype, true};
    struct factor v = {tokens_of(&a->v, a->stride), call->dtype, false};
    struct factor y = {tokens_of(&a->y, dense), call->dtype, false};
    struct factor scores = {scores_of(call, call->scores), DPB_F32, false};
    struct factor weights = {scores_of(call, call->drops ? call->dropped : a->prob.data),
                             call->dtype, false};
    const struct dpb_cuda_attention_fwd softmax = {
            .scores = call->scores,
            .prob = a->prob.data,
            .dropped = call->dropped,
            .scores_dtype = DPB_F32,
            .dtype = call->dtype,
            .batch = a->q.dim[0],
            .heads = a->q.dim[2],
            .tokens = tokens,
            .key_mask = a->key_mask,
            .scale = a->scale,
            .causal = a->causal,
            .keep = call->drops ? a->keep : 0.0f,
            .seed = a->seed,
            .offset = a->offset,
    };

    DPB_TRY(multiply(call, q, k, scores, tokens, tokens, depth));
    DPB_TRY(dpb_cuda_kernel_check(dpb_cuda_attention_softmax_fwd(&softmax, queue), call->what));
    return multiply(call, weights, v, y, tokens, depth, tokens);
}

static dpb_status backward(const struct call *call, const struct dpb_cuda_queue *queue)
{
    const struct dpb_attention_args *a = call->args;
    int64_t tokens = a->q.dim[1], depth = a->q.dim[3], dense = a->q.dim[2] * depth;
    struct factor q = {tokens_of(&a->q, a->stride), call->dtype, false};
    struct factor k = {tokens_of(&a->k, a->stride), call->dtype, false};
    struct factor v_t = {tokens_of(&a->v, a->stride), call->dtype, true};
    struct factor dy = {tokens_of(&a->dy, dense), call->dtype, false};
    struct factor dq = {tokens_of(&a->dq, a->stride), call->dtype, false};
    struct factor dk = {tokens_of(&a->dk, a->stride), call->dtype, false};
    struct factor dv = {tokens_of(&a->dv, a->stride), call->dtype, false};
    struct factor dprob = {scores_of(call, call->scores), DPB_F32, false};
    struct factor ds = {scores_of(call, call->ds), call->dtype, false};
    struct factor ds_t = {ds.heads, call->dtype, true};
    struct factor weights_t = {scores_of(call, call->drops ? call->dropped : a->prob.data),
                               call->dtype, true};
    const struct dpb_cuda_attention_bwd softmax = {
            .dprob = call->scores,
            .prob = a->prob.data,
            .ds = call->ds,
            .dropped = call->dropped,
            .dprob_dtype = DPB_F32,
            .dtype = call->dtype,
            .batch = a->q.dim[0],
            .heads = a->q.dim[2],
            .tokens = tokens,
            .scale = a->scale,
            .keep = call->drops ? a->keep : 0.0f,
            .seed = a->seed,
            .offset = a->offset,
    };

    DPB_TRY(multiply(call, dy, v_t, dprob, tokens, tokens, depth));
    DPB_TRY(dpb_cuda_kernel_check(dpb_cuda_attention_softmax_bwd(&softmax, queue), call->what));
    DPB_TRY(multiply(call, weights_t, dy, dv, tokens, depth, tokens));
    DPB_TRY(multiply(call, ds, k, dq, tokens, depth, tokens));
    return multiply(call, ds_t, q, dk, tokens, depth, tokens);
}

dpb_status dpb_cuda_attention(dpb_stream *stream, enum dpb_op op, const void *args)
{
    struct dpb_cuda_queue queue;
    struct call call;

    DPB_TRY(dpb_cuda_stream_queue(stream, &queue));
    DPB_TRY(call_init(&call, stream, op, args));
    return op == DPB_OP_ATTENTION_FWD ? forward(&call, &queue) : backward(&call, &queue);
}

#include "shim_device.h"

#include "dpb_reference.h"
#include "dpb_test.h"
#include "shim.h"

struct shim_device {
    struct dpb_device_base base;
    struct dpb_cuda_queue queue;
    unsigned order;
};

/* ---- queue ---- */

struct dpb_cuda_queue shim_queue_open(void)
{
    struct dpb_cuda_queue queue = {.workspace = aligned_alloc(256, DPB_CUDA_WORKSPACE_BYTES),
                                   .workspace_bytes = DPB_CUDA_WORKSPACE_BYTES,
                                   .faults = calloc(1, sizeof(struct dpb_cuda_faults))};

    assert_non_null(queue.workspace);
    assert_non_null(queue.faults);
    memset(queue.workspace, 0xff, queue.workspace_bytes);
    return queue;
}

void shim_queue_close(struct dpb_cuda_queue *queue)
{
    free(queue->workspace);
    free(queue->faults);
}

/* ---- operators ---- */

typedef int (*kernel)(const void *args, const struct dpb_cuda_queue *queue);

#define RUN(name)                                                                                  \
    static int run_##name(const void *args, const struct dpb_cuda_queue *queue)                    \
    {                                                                                              \
        return dpb_cuda_##name(args, queue);                                                       \
    }
#define RUN_MANY(name)                                                                             \
    static int run_##name(const void *args, const struct dpb_cuda_queue *queue)                    \
    {                                                                                              \
        return dpb_cuda_##name##_many(args, 1, queue);                                             \
    }
RUN(pool_max_fwd)
RUN(pool_max_bwd)
RUN(pool_avg_fwd)
RUN(pool_avg_bwd)
RUN(relu_fwd)
RUN(relu_bwd)
RUN(bias_fwd)
RUN(bias_bwd)
RUN(batchnorm_fwd)
RUN(batchnorm_bwd)
RUN(batchnorm_stats)
RUN(batchnorm_apply)
RUN(batchnorm_bwd_sums)
RUN(batchnorm_bwd_apply)
RUN(softmax_xent_fwd)
RUN(softmax_xent_bwd)
RUN(interaction_fwd)
RUN(interaction_bwd)
RUN(sigmoid_bce_fwd)
RUN(sigmoid_bce_bwd)
RUN_MANY(sgd_momentum)
RUN_MANY(adamw)
RUN_MANY(lamb)
RUN_MANY(lars)
RUN_MANY(adagrad)
RUN_MANY(rowwise_adagrad)
RUN(scale)
RUN(cast)
RUN(add)
RUN(orthogonalize)
RUN(gelu_fwd)
RUN(gelu_bwd)
RUN(tanh_fwd)
RUN(tanh_bwd)
RUN(dropout_fwd)
RUN(dropout_bwd)
RUN(layernorm_fwd)
RUN(layernorm_bwd)
RUN(embedding_fwd)
RUN(embedding_bwd)

static int run_finite(const void *args, const struct dpb_cuda_queue *queue)
{
    const struct dpb_finite_args *a = args;

    return dpb_cuda_find_nonfinite(a->x, DPB_F32, a->count, a->found, queue);
}

/* ---- attention ---- */

/* One head of what attention computes with, [S,D] or [S,S]. */
struct matrix {
    void *data;
    enum dpb_dtype dtype;
    int64_t rows, columns;
};

static struct dpb_tensor head_of(const struct matrix *m, int64_t head)
{
    size_t bytes = (size_t)(m->rows * m->columns) * dpb_dtype_bytes(m->dtype);

    return (struct dpb_tensor){
            (char *)m->data + (size_t)head * bytes, m->dtype, 2, {m->rows, m->columns}};
}

/* c = a b, of every head, with one of them transposed. */
static void multiply(const struct matrix *a, bool trans_a, const struct matrix *b, bool trans_b,
                     const struct matrix *c, int64_t heads)
{
    for (int64_t i = 0; i < heads; i++) {
        struct dpb_matmul_args args = {.a = head_of(a, i),
                                       .b = head_of(b, i),
                                       .c = head_of(c, i),
                                       .trans_a = trans_a,
                                       .trans_b = trans_b};

        assert_int_equal(dpb_reference_op(DPB_OP_MATMUL, &args), DPB_OK);
    }
}

struct attention {
    const struct dpb_attention_args *args;
    const struct dpb_cuda_queue *queue;
    int64_t heads;    /* of all sequences */
    void *memory[10]; /* freed at the end */
    int count;
};

static struct matrix take(struct attention *at, enum dpb_dtype dtype, int64_t columns)
{
    int64_t tokens = at->args->q.dim[1];
    void *data = calloc((size_t)(at->heads * tokens * columns), dpb_dtype_bytes(dtype));

    assert_non_null(data);
    at->memory[at->count++] = data;
    return (struct matrix){data, dtype, tokens, columns};
}

static struct dpb_cuda_heads heads_of(const struct attention *at, void *tokens_side,
                                      const struct matrix *m, int64_t stride)
{
    const int64_t *dim = at->args->q.dim;

    return (struct dpb_cuda_heads){tokens_side, m->data, m->dtype, dim[0],
                                   dim[1],      dim[2],  dim[3],   stride};
}

static struct matrix gather(struct attention *at, const struct dpb_tensor *from, int64_t stride)
{
    struct matrix m = take(at, from->dtype, at->args->q.dim[3]);
    struct dpb_cuda_heads heads = heads_of(at, from->data, &m, stride);

    assert_int_equal(dpb_cuda_heads_gather(&heads, at->queue), 0);
    return m;
}

static void scatter(struct attention *at, const struct matrix *m, const struct dpb_tensor *to,
                    int64_t stride)
{
    struct dpb_cuda_heads heads = heads_of(at, to->data, m, stride);

    assert_int_equal(dpb_cuda_heads_scatter(&heads, at->queue), 0);
}

static int attention_fwd(struct attention *at)
{
    const struct dpb_attention_args *args = at->args;
    const int64_t *dim = args->q.dim;
    enum dpb_dtype dtype = args->q.dtype;
    struct matrix q = gather(at, &args->q, args->stride), k = gather(at, &args->k, args->stride);
    struct matrix v = gather(at, &args->v, args->stride), y = take(at, dtype, dim[3]);
    struct matrix scores = take(at, DPB_F32, dim[1]), dropped = take(at, dtype, dim[1]);
    struct dpb_cuda_attention_fwd softmax = {.scores = scores.data,
                                             .prob = args->prob.data,
                                             .dropped = dropped.data,
                                             .scores_dtype = DPB_F32,
                                             .dtype = dtype,
                                             .batch = dim[0],
                                             .heads = dim[2],
                                             .tokens = dim[1],
                                             .key_mask = args->key_mask,
                                             .scale = args->scale,
                                             .causal = args->causal,
                                             .keep = args->keep,
                                             .seed = args->seed,
                                             .offset = args->offset};
    int rc;

    multiply(&q, false, &k, true, &scores, at->heads);
    rc = dpb_cuda_attention_softmax_fwd(&softmax, at->queue);
    multiply(&dropped, false, &v, false, &y, at->heads);
    scatter(at, &y, &args->y, dim[2] * dim[3]);
    return rc;
}

static int attention_bwd(struct attention *at)
{
    const struct dpb_attention_args *args = at->args;
    const int64_t *dim = args->q.dim;
    enum dpb_dtype dtype = args->q.dtype;
    struct matrix q = gather(at, &args->q, args->stride), k = gather(at, &args->k, args->stride);
    struct matrix v = gather(at, &args->v, args->stride);
    struct matrix dy = gather(at, &args->dy, dim[2] * dim[3]), to = take(at, dtype, dim[3]);
    struct matrix dprob = take(at, DPB_F32, dim[1]), ds = take(at, dtype, dim[1]);
    struct matrix dropped = take(at, dtype, dim[1]);
    struct dpb_cuda_attention_bwd softmax = {.dprob = dprob.data,
                                             .prob = args->prob.data,
                                             .ds = ds.data,
                                             .dropped = dropped.data,
                                             .dprob_dtype = DPB_F32,
                                             .dtype = dtype,
                                             .batch = dim[0],
                                             .heads = dim[2],
                                             .tokens = dim[1],
                                             .scale = args->scale,
                                             .keep = args->keep,
                                             .seed = args->seed,
                                             .offset = args->offset};
    int rc;

    multiply(&dy, false, &v, true, &dprob, at->heads);
    rc = dpb_cuda_attention_softmax_bwd(&softmax, at->queue);
    multiply(&dropped, true, &dy, false, &to, at->heads);
    scatter(at, &to, &args->dv, args->stride);
    multiply(&ds, false, &k, false, &to, at->heads);
    scatter(at, &to, &args->dq, args->stride);
    multiply(&ds, true, &q, false, &to, at->heads);
    scatter(at, &to, &args->dk, args->stride);
    return rc;
}

static int run_attention(bool fwd, const void *args, const struct dpb_cuda_queue *queue)
{
    const struct dpb_attention_args *a = args;
    struct attention at = {.args = a, .queue = queue, .heads = a->q.dim[0] * a->q.dim[2]};
    int rc = fwd ? attention_fwd(&at) : attention_bwd(&at);

    for (int i = 0; i < at.count; i++)
        free(at.memory[i]);
    return rc;
}

static int run_attention_fwd(const void *args, const struct dpb_cuda_queue *queue)
{
    return run_attention(true, args, queue);
}

static int run_attention_bwd(const void *args, const struct dpb_cuda_queue *queue)
{
    return run_attention(false, args, queue);
}

static const kernel kernels[DPB_OP_COUNT] = {
        [DPB_OP_POOL_MAX_FWD] = run_pool_max_fwd,
        [DPB_OP_POOL_MAX_BWD] = run_pool_max_bwd,
        [DPB_OP_POOL_AVG_FWD] = run_pool_avg_fwd,
        [DPB_OP_POOL_AVG_BWD] = run_pool_avg_bwd,
        [DPB_OP_RELU_FWD] = run_relu_fwd,
        [DPB_OP_RELU_BWD] = run_relu_bwd,
        [DPB_OP_BIAS_FWD] = run_bias_fwd,
        [DPB_OP_BIAS_BWD] = run_bias_bwd,
        [DPB_OP_BATCHNORM_FWD] = run_batchnorm_fwd,
        [DPB_OP_BATCHNORM_BWD] = run_batchnorm_bwd,
        [DPB_OP_BATCHNORM_STATS] = run_batchnorm_stats,
        [DPB_OP_BATCHNORM_APPLY] = run_batchnorm_apply,
        [DPB_OP_BATCHNORM_BWD_SUMS] = run_batchnorm_bwd_sums,
        [DPB_OP_BATCHNORM_BWD_APPLY] = run_batchnorm_bwd_apply,
        [DPB_OP_SOFTMAX_XENT_FWD] = run_softmax_xent_fwd,
        [DPB_OP_SOFTMAX_XENT_BWD] = run_softmax_xent_bwd,
        [DPB_OP_INTERACTION_FWD] = run_interaction_fwd,
        [DPB_OP_INTERACTION_BWD] = run_interaction_bwd,
        [DPB_OP_SIGMOID_BCE_FWD] = run_sigmoid_bce_fwd,
        [DPB_OP_SIGMOID_BCE_BWD] = run_sigmoid_bce_bwd,
        [DPB_OP_SGD_MOMENTUM] = run_sgd_momentum,
        [DPB_OP_ADAMW] = run_adamw,
        [DPB_OP_LAMB] = run_lamb,
        [DPB_OP_LARS] = run_lars,
        [DPB_OP_ADAGRAD] = run_adagrad,
        [DPB_OP_ROWWISE_ADAGRAD] = run_rowwise_adagrad,
        [DPB_OP_SCALE] = run_scale,
        [DPB_OP_FINITE] = run_finite,
        [DPB_OP_CAST] = run_cast,
        [DPB_OP_ADD] = run_add,
        [DPB_OP_ORTHOGONALIZE] = run_orthogonalize,
        [DPB_OP_GELU_FWD] = run_gelu_fwd,
        [DPB_OP_GELU_BWD] = run_gelu_bwd,
        [DPB_OP_TANH_FWD] = run_tanh_fwd,
        [DPB_OP_TANH_BWD] = run_tanh_bwd,
        [DPB_OP_DROPOUT_FWD] = run_dropout_fwd,
        [DPB_OP_DROPOUT_BWD] = run_dropout_bwd,
        [DPB_OP_LAYERNORM_FWD] = run_layernorm_fwd,
        [DPB_OP_LAYERNORM_BWD] = run_layernorm_bwd,
        [DPB_OP_EMBEDDING_FWD] = run_embedding_fwd,
        [DPB_OP_EMBEDDING_BWD] = run_embedding_bwd,
        [DPB_OP_ATTENTION_FWD] = run_attention_fwd,
        [DPB_OP_ATTENTION_BWD] = run_attention_bwd,
};

/* ---- the device ---- */

static bool op_supported(dpb_device *device, enum dpb_op op, enum dpb_dtype dtype)
{
    (void)device;
    return (unsigned)op < DPB_OP_COUNT &&
           (dtype == DPB_F32 || dtype == DPB_BF16 || dtype == DPB_F16);
}

/* What a device that computes on the host's memory checks before it writes anything. */
static dpb_status check_numbers(enum dpb_op op, const void *args)
{
    const struct dpb_embedding_args *embedding = args;
    const struct dpb_sigmoid_bce_args *bce = args;

    switch (op) {
    case DPB_OP_EMBEDDING_FWD:
        return dpb_op_ids_check(op, embedding->ids, embedding->y.dim[0], embedding->table.dim[0]);
    case DPB_OP_EMBEDDING_BWD:
        return dpb_op_ids_check(op, embedding->ids, embedding->dy.dim[0], embedding->dtable.dim[0]);
    case DPB_OP_SIGMOID_BCE_FWD:
    case DPB_OP_SIGMOID_BCE_BWD:
        return dpb_binary_labels_check(bce->label, dpb_tensor_numel(&bce->logits));
    default:
        return DPB_OK;
    }
}

static dpb_status op_launch(dpb_device *device, enum dpb_op op, const void *args,
                            dpb_stream *stream)
{
    struct shim_device *shim = (struct shim_device *)device;
    int rc;

    (void)stream;
    DPB_TRY(dpb_op_args_check(op, args));
    if (!kernels[op])
        return dpb_reference_op(op, args);
    DPB_TRY(check_numbers(op, args));
    dpb_shim_set_order(shim->order++ % 4);
    rc = kernels[op](args, &shim->queue);
    if (rc)
        fail_msg("\"%s\": launch gives %d %s", dpb_op_text(op), rc, dpb_shim_error());
    for (int i = 0; i < DPB_CUDA_FAULT_COUNT; i++)
        assert_int_equal(shim->queue.faults->first[i], 0);
    return DPB_OK;
}

static const struct dpb_device_ops shim_device_ops = {
        .version = DPB_DEVICE_OPS_VERSION,
        .name = "shim",
        .summary = "kernels for a GPU, on the host",
        .op_supported = op_supported,
        .op_launch = op_launch,
};

dpb_device *shim_device_open(unsigned first_order)
{
    struct shim_device *shim = calloc(1, sizeof(*shim));

    assert_non_null(shim);
    *shim = (struct shim_device){
            .base = {&shim_device_ops}, .queue = shim_queue_open(), .order = first_order};
    return (dpb_device *)shim;
}

void shim_device_close(dpb_device *device)
{
    struct shim_device *shim = (struct shim_device *)device;

    shim_queue_close(&shim->queue);
    free(shim);
}

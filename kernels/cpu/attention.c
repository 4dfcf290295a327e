/* Attention: oneDNN's matrix products over all sequences and heads at once, on the tensors as they
 * lie (faster on two threads than a dnnl_sgemm for each head: 460 against 250 to 325 GFLOP/s for
 * 8 x 12 heads of 128 tokens, Zen 5), and our own softmax between them. */
#include "bf16.h"

#include <math.h>

#include "vector_exp.h"

#define GRAIN 8192 /* elements worth waking a thread for */

/* An operator's arguments, and what lies between its products: scores in fp32 (in fp32 and forward,
 * in prob itself), then in their place what the next product takes, prob after dropout or ds. In
 * bf16 a row of that takes the first half of its row of scores. */
struct call {
    struct dpb_attention_args args;
    struct dpb_cpu_dropout dropout;
    bool drops, bf16;
    float *between; /* as many elements as prob */
};

static struct call call_of(const struct dpb_attention_args *args)
{
    struct call call = {.args = *args, .bf16 = args->q.dtype == DPB_BF16};

    call.drops = args->keep != 0.0f && args->keep != 1.0f;
    if (call.drops)
        dpb_cpu_dropout_init(&call.dropout, args->keep, args->seed, args->offset);
    return call;
}

/* ---- products ---- */

/* [B,A,rows,columns] in memory. */
struct matrices {
    const void *data;
    dnnl_data_type_t type;
    int64_t rows, columns;
    int64_t stride[4]; /* of b, a, row, column */
};

enum product {
    SCORES, /* q k^T */
    OUTPUT, /* prob v */
    DV,     /* prob^T dy */
    DPROB,  /* dy v^T */
    DQ,     /* ds k */
    DK      /* ds^T q */
};

/* Flags of a kernel's key. */
enum {
    PRODUCT = 7, /* an enum product */
    OF_BF16 = 1 << 3,
    DROPS = 1 << 4
};

struct factors {
    struct matrices a, b, c;
};

static struct matrices heads(const struct dpb_tensor *x, int64_t stride)
{
    return (struct matrices){x->data,
                             dpb_cpu_data_type(x->dtype),
                             x->dim[1],
                             x->dim[3],
                             {x->dim[1] * stride, x->dim[3], stride, 1}};
}

/* Rows of a score per key, `stride` elements apart. */
static struct matrices scores(const struct call *call, const void *data, dnnl_data_type_t type,
                              int64_t stride)
{
    int64_t tokens = call->args.q.dim[1], one = tokens * stride;

    return (struct matrices){
            data, type, tokens, tokens, {call->args.q.dim[2] * one, one, stride, 1}};
}

static struct matrices transposed(struct matrices x)
{
    return (struct matrices){x.data,
                             x.type,
                             x.columns,
                             x.rows,
                             {x.stride[0], x.stride[1], x.stride[3], x.stride[2]}};
}

static struct factors factors_of(enum product product, const struct call *call)
{
    const struct dpb_attention_args *args = &call->args;
    dnnl_data_type_t type = dpb_cpu_data_type(args->q.dtype);
    int64_t dense = args->q.dim[2] * args->q.dim[3], tokens = args->q.dim[1];
    struct matrices q = heads(&args->q, args->stride), k = heads(&args->k, args->stride);
    struct matrices v = heads(&args->v, args->stride);
    struct matrices prob = scores(call, args->prob.data, type, tokens);
    struct matrices wide = scores(call, call->between, dnnl_f32, tokens);
    struct matrices ds = scores(call, call->between, type, call->bf16 ? 2 * tokens : tokens);
    struct matrices dropped = call->drops ? ds : prob;

    switch (product) {
    case SCORES:
        return (struct factors){q, transposed(k), call->bf16 ? wide : prob};
    case OUTPUT:
        return (struct factors){dropped, v, heads(&args->y, dense)};
    case DV:
        return (struct factors){transposed(dropped), heads(&args->dy, dense),
                                heads(&args->dv, args->stride)};
    case DPROB:
        return (struct factors){heads(&args->dy, dense), transposed(v), wide};
    case DQ:
        return (struct factors){ds, k, heads(&args->dq, args->stride)};
    case DK:
        break;
    }
    return (struct factors){transposed(ds), q, heads(&args->dk, args->stride)};
}

static struct dpb_cpu_layout layout_of(const struct matrices *x,
                                       const struct dpb_attention_args *args)
{
    struct dpb_cpu_layout layout = {.ndims = 4,
                                    .dims = {args->q.dim[0], args->q.dim[2], x->rows, x->columns},
                                    .type = x->type};

    memcpy(layout.strides, x->stride, sizeof(x->stride));
    return layout;
}

static dnnl_status_t make(dpb_device *device, struct dpb_cpu_kernel *kernel, enum dpb_op op,
                          const void *args)
{
    const struct call call = call_of(args);
    struct factors factors = factors_of((enum product)(kernel->key.flags & PRODUCT), &call);
    const struct dpb_cpu_operation product = {
            .kind = dnnl_matmul,
            .src = layout_of(&factors.a, &call.args),
            .weights = layout_of(&factors.b, &call.args),
            .dst = layout_of(&factors.c, &call.args),
    };

    (void)op;
    DNNL_TRY(dpb_cpu_kernel_create(device, kernel, &product));
    DNNL_TRY(dpb_cpu_kernel_add(device, kernel, DNNL_ARG_SRC, &product.src));
    DNNL_TRY(dpb_cpu_kernel_add(device, kernel, DNNL_ARG_WEIGHTS, &product.weights));
    return dpb_cpu_kernel_add(device, kernel, DNNL_ARG_DST, &product.dst);
}

static dpb_status multiply(dpb_device *device, enum dpb_op op, const struct call *call,
                           enum product product)
{
    const struct dpb_attention_args *args = &call->args;
    struct factors factors = factors_of(product, call);
    struct dpb_cpu_key key = {.op = (int32_t)op, .flags = (uint32_t)product};
    struct dpb_cpu_kernel *kernel;
    dnnl_status_t status;

    key.flags |= (call->bf16 ? OF_BF16 : 0u) | (call->drops ? DROPS : 0u);
    memcpy(key.dim, args->q.dim, 4 * sizeof(key.dim[0]));
    key.dim[4] = args->stride;
    DPB_TRY(dpb_cpu_kernel_get(device, &key, make, op, args, &kernel));
    dpb_cpu_kernel_set(kernel, DNNL_ARG_SRC, factors.a.data);
    dpb_cpu_kernel_set(kernel, DNNL_ARG_WEIGHTS, factors.b.data);
    dpb_cpu_kernel_set(kernel, DNNL_ARG_DST, factors.c.data);
    status = dpb_cpu_kernel_run(device, kernel);
    return status == dnnl_success ? DPB_OK : dpb_cpu_vendor_error(status, "run", op, args);
}

/* ---- softmax; rows of prob ---- */

/* Scale one row's `count` scores, without the keys that are masked; returns the highest. */
static inline float scale_row(float *row, int64_t count, float scale, const uint8_t *mask)
{
    float highest = -INFINITY;

    if (!mask) {
#pragma omp simd reduction(max : highest)
        for (int64_t j = 0; j < count; j++) {
            row[j] *= scale;
            highest = row[j] > highest ? row[j] : highest;
        }
        return highest;
    }
#pragma omp simd reduction(max : highest)
    for (int64_t j = 0; j < count; j++) {
        float score = row[j] * scale;

        row[j] = mask[j] ? score : -INFINITY;
        highest = row[j] > highest ? row[j] : highest;
    }
    return highest;
}

DPB_CPU_LOOP softmax_fwd(void *ctx, int64_t begin, int64_t end, bool bf16)
{
    const struct call *call = ctx;
    const struct dpb_attention_args *a = &call->args;
    int64_t tokens = a->q.dim[1], per_sequence = tokens * a->q.dim[2];

    for (int64_t i = begin; i < end; i++) {
        void *prob = (char *)a->prob.data + i * tokens * (bf16 ? 2 : 4);
        float *row = bf16 ? call->between + i * tokens : prob, highest, inverse, sum = 0.0f;
        int64_t count = a->causal ? i % tokens + 1 : tokens;

        highest = scale_row(row, count, a->scale,
                            a->key_mask ? a->key_mask + i / per_sequence * tokens : NULL);
        memset(row + count, 0, (size_t)(tokens - count) * sizeof(*row));
        highest = highest == -INFINITY ? 0.0f : highest; /* no key at all */
#pragma omp simd reduction(+ : sum)
        for (int64_t j = 0; j < count; j++) {
            row[j] = dpb_cpu_exp(row[j] - highest);
            sum += row[j];
        }
        inverse = sum > 0.0f ? 1.0f / sum : 0.0f;
        for (int64_t j = 0; j < tokens; j++)
            dpb_cpu_store(prob, j, row[j] * inverse, bf16);
        if (call->drops)
            dpb_cpu_dropout_part(&call->dropout, i * tokens, prob, call->between + i * tokens,
                                 tokens, a->q.dtype);
    }
}

/* Rows: prob after dropout. */
static void drop_prob(void *ctx, int64_t begin, int64_t end)
{
    const struct call *call = ctx;
    int64_t tokens = call->args.q.dim[1], bytes = call->bf16 ? 2 : 4;

    for (int64_t i = begin; i < end; i++)
        dpb_cpu_dropout_part(&call->dropout, i * tokens,
                             (const char *)call->args.prob.data + i * tokens * bytes,
                             call->between + i * tokens, tokens, call->args.q.dtype);
}

#define NARROW 64 /* elements */

/* From dprob to ds. */
DPB_CPU_LOOP softmax_bwd(void *ctx, int64_t begin, int64_t end, bool bf16)
{
    const struct call *call = ctx;
    const struct dpb_attention_args *a = &call->args;
    int64_t tokens = a->q.dim[1];

    for (int64_t i = begin; i < end; i++) {
        const void *prob = (const char *)a->prob.data + i * tokens * (bf16 ? 2 : 4);
        float *row = call->between + i * tokens, sum = 0.0f, scale = a->scale;

        if (call->drops)
            dpb_cpu_dropout_part(&call->dropout, i * tokens, row, row, tokens, DPB_F32);
#pragma omp simd reduction(+ : sum)
        for (int64_t j = 0; j < tokens; j++)
            sum += dpb_cpu_load(prob, j, bf16) * row[j];
        for (int64_t j0 = 0; bf16 && j0 < tokens; j0 += NARROW) {
            int count = tokens - j0 < NARROW ? (int)(tokens - j0) : NARROW;
            uint16_t ds[NARROW];

            for (int j = 0; j < count; j++)
                ds[j] = dpb_cpu_to_bf16(scale * dpb_cpu_load(prob, j0 + j, bf16) *
                                        (row[j0 + j] - sum));
            memcpy((char *)row + j0 * 2, ds, (size_t)count * sizeof(ds[0]));
        }
        for (int64_t j = 0; !bf16 && j < tokens; j++)
            row[j] = scale * dpb_cpu_load(prob, j, bf16) * (row[j] - sum);
    }
}

DPB_CPU_BY_TYPE(softmax_fwd)
DPB_CPU_BY_TYPE(softmax_bwd)

static dpb_status forward(dpb_device *device, struct call *call)
{
    const struct dpb_attention_args *a = &call->args;
    int64_t tokens = a->q.dim[1], rows = a->q.dim[0] * a->q.dim[2] * tokens;
    enum dpb_op op = DPB_OP_ATTENTION_FWD;

    if (call->drops || call->bf16) {
        dnnl_status_t status = dpb_cpu_buffer_reserve(
                device, &device->between, (size_t)(rows * tokens) * sizeof(*call->between));

        if (status != dnnl_success)
            return dpb_cpu_vendor_error(status, "prepare", op, a);
        call->between = device->between.memory;
    }
    DPB_TRY(multiply(device, op, call, SCORES));
    dpb_cpu_parallel(device->threads, rows, GRAIN / tokens + 1,
                     call->bf16 ? softmax_fwd_bf16 : softmax_fwd_f32, call);
    return multiply(device, op, call, OUTPUT);
}

static dpb_status backward(dpb_device *device, struct call *call)
{
    const struct dpb_attention_args *a = &call->args;
    int64_t tokens = a->q.dim[1], rows = a->q.dim[0] * a->q.dim[2] * tokens;
    enum dpb_op op = DPB_OP_ATTENTION_BWD;

    call->between = a->workspace;
    if (call->drops)
        dpb_cpu_parallel(device->threads, rows, GRAIN / tokens + 1, drop_prob, call);
    DPB_TRY(multiply(device, op, call, DV));
    DPB_TRY(multiply(device, op, call, DPROB));
    dpb_cpu_parallel(device->threads, rows, GRAIN / tokens + 1,
                     call->bf16 ? softmax_bwd_bf16 : softmax_bwd_f32, call);
    DPB_TRY(multiply(device, op, call, DQ));
    return multiply(device, op, call, DK);
}

dpb_status dpb_cpu_attention(dpb_device *device, enum dpb_op op, const void *args)
{
    struct call call = call_of(args);

    return op == DPB_OP_ATTENTION_FWD ? forward(device, &call) : backward(device, &call);
}

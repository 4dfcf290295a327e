/* Attention: oneDNN's matrix products over all sequences and heads at once, on the tensors as they
 * lie (faster on two threads than a dnnl_sgemm for each head: 460 against 250 to 325 GFLOP/s for
 * 8 x 12 heads of 128 tokens, Zen 5), and our own softmax between them. */
#include "cpu_device.h"

#include <math.h>
#include <string.h>

#include "vector_exp.h"

#define GRAIN 8192 /* elements worth waking a thread for */

/* An operator's arguments, and what lies between its products. */
struct call {
    struct dpb_attention_args args;
    struct dpb_cpu_dropout dropout;
    bool drops;
    float *dropped; /* prob after dropout, where that is not prob itself */
};

/* ---- products ---- */

/* [B,A,rows,columns] in memory. */
struct matrices {
    const void *data;
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

struct factors {
    struct matrices a, b, c;
};

static struct matrices heads(const struct dpb_tensor *x, int64_t stride)
{
    return (struct matrices){
            x->data, x->dim[1], x->dim[3], {x->dim[1] * stride, x->dim[3], stride, 1}};
}

static struct matrices scores(const struct dpb_attention_args *args, const void *data)
{
    int64_t tokens = args->q.dim[1], one = tokens * tokens;

    return (struct matrices){data, tokens, tokens, {args->q.dim[2] * one, one, tokens, 1}};
}

static struct matrices transposed(struct matrices x)
{
    return (struct matrices){
            x.data, x.columns, x.rows, {x.stride[0], x.stride[1], x.stride[3], x.stride[2]}};
}

static struct factors factors_of(enum product product, const struct call *call)
{
    const struct dpb_attention_args *args = &call->args;
    struct matrices q = heads(&args->q, args->stride), k = heads(&args->k, args->stride);
    struct matrices v = heads(&args->v, args->stride), prob = scores(args, args->prob.data);
    struct matrices ds = scores(args, args->workspace);
    struct matrices dropped = call->drops ? scores(args, call->dropped) : prob;
    int64_t dense = args->q.dim[2] * args->q.dim[3];

    switch (product) {
    case SCORES:
        return (struct factors){q, transposed(k), prob};
    case OUTPUT:
        return (struct factors){dropped, v, heads(&args->y, dense)};
    case DV:
        return (struct factors){transposed(dropped), heads(&args->dy, dense),
                                heads(&args->dv, args->stride)};
    case DPROB:
        return (struct factors){heads(&args->dy, dense), transposed(v), ds};
    case DQ:
        return (struct factors){ds, k, heads(&args->dq, args->stride)};
    case DK:
        break;
    }
    return (struct factors){transposed(ds), q, heads(&args->dk, args->stride)};
}

static dnnl_status_t matrices_init(dnnl_memory_desc_t *desc, const struct matrices *x,
                                   const struct dpb_attention_args *args)
{
    dnnl_dims_t dims = {args->q.dim[0], args->q.dim[2], x->rows, x->columns}, strides = {0};

    memcpy(strides, x->stride, sizeof(x->stride));
    return dnnl_memory_desc_init_by_strides(desc, 4, dims, dnnl_f32, strides);
}

static dnnl_status_t make(dpb_device *device, struct dpb_cpu_kernel *kernel, enum dpb_op op,
                          const void *args)
{
    const struct call call = {.args = *(const struct dpb_attention_args *)args};
    struct factors factors = factors_of((enum product)kernel->key.flags, &call);
    dnnl_memory_desc_t a, b, c;
    dnnl_matmul_desc_t desc;

    (void)op;
    DNNL_TRY(matrices_init(&a, &factors.a, &call.args));
    DNNL_TRY(matrices_init(&b, &factors.b, &call.args));
    DNNL_TRY(matrices_init(&c, &factors.c, &call.args));
    DNNL_TRY(dnnl_matmul_desc_init(&desc, &a, &b, NULL, &c));
    DNNL_TRY(dpb_cpu_kernel_create(device, kernel, &desc, NULL, NULL));
    DNNL_TRY(dpb_cpu_kernel_add(device, kernel, DNNL_ARG_SRC, &a));
    DNNL_TRY(dpb_cpu_kernel_add(device, kernel, DNNL_ARG_WEIGHTS, &b));
    return dpb_cpu_kernel_add(device, kernel, DNNL_ARG_DST, &c);
}

static dpb_status multiply(dpb_device *device, enum dpb_op op, const struct call *call,
                           enum product product)
{
    const struct dpb_attention_args *args = &call->args;
    struct factors factors = factors_of(product, call);
    struct dpb_cpu_key key = {.op = (int32_t)op, .flags = product};
    struct dpb_cpu_kernel *kernel;
    dnnl_status_t status;

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

DPB_CPU_CLONES static void softmax_fwd(void *ctx, int64_t begin, int64_t end)
{
    const struct call *call = ctx;
    const struct dpb_attention_args *a = &call->args;
    int64_t tokens = a->q.dim[1], per_sequence = tokens * a->q.dim[2];

    for (int64_t i = begin; i < end; i++) {
        float *row = (float *)a->prob.data + i * tokens, highest, inverse, sum = 0.0f;
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
        for (int64_t j = 0; j < count; j++)
            row[j] *= inverse;
        if (call->drops)
            dpb_cpu_dropout_part(&call->dropout, i * tokens, row, call->dropped + i * tokens,
                                 tokens);
    }
}

/* Rows: prob after dropout. */
static void drop_prob(void *ctx, int64_t begin, int64_t end)
{
    const struct call *call = ctx;
    int64_t tokens = call->args.q.dim[1], first = begin * tokens;

    dpb_cpu_dropout_part(&call->dropout, first, (const float *)call->args.prob.data + first,
                         call->dropped + first, (end - begin) * tokens);
}

/* The workspace from dprob to ds. */
DPB_CPU_CLONES static void softmax_bwd(void *ctx, int64_t begin, int64_t end)
{
    const struct call *call = ctx;
    const struct dpb_attention_args *a = &call->args;
    int64_t tokens = a->q.dim[1];

    for (int64_t i = begin; i < end; i++) {
        const float *prob = (const float *)a->prob.data + i * tokens;
        float *ds = a->workspace + i * tokens, sum = 0.0f, scale = a->scale;

        if (call->drops)
            dpb_cpu_dropout_part(&call->dropout, i * tokens, ds, ds, tokens);
#pragma omp simd reduction(+ : sum)
        for (int64_t j = 0; j < tokens; j++)
            sum += prob[j] * ds[j];
        for (int64_t j = 0; j < tokens; j++)
            ds[j] = scale * prob[j] * (ds[j] - sum);
    }
}

static dpb_status forward(dpb_device *device, struct call *call)
{
    const struct dpb_attention_args *a = &call->args;
    int64_t tokens = a->q.dim[1], rows = a->q.dim[0] * a->q.dim[2] * tokens;
    enum dpb_op op = DPB_OP_ATTENTION_FWD;

    if (call->drops) {
        dnnl_status_t status = dpb_cpu_buffer_reserve(
                device, &device->scores, (size_t)(rows * tokens) * sizeof(*call->dropped));

        if (status != dnnl_success)
            return dpb_cpu_vendor_error(status, "prepare", op, a);
        call->dropped = device->scores.memory;
    }
    DPB_TRY(multiply(device, op, call, SCORES));
    dpb_cpu_parallel(device->threads, rows, GRAIN / tokens + 1, softmax_fwd, call);
    return multiply(device, op, call, OUTPUT);
}

static dpb_status backward(dpb_device *device, struct call *call)
{
    const struct dpb_attention_args *a = &call->args;
    int64_t tokens = a->q.dim[1], rows = a->q.dim[0] * a->q.dim[2] * tokens;
    enum dpb_op op = DPB_OP_ATTENTION_BWD;

    call->dropped = a->workspace; /* until dprob comes there */
    if (call->drops)
        dpb_cpu_parallel(device->threads, rows, GRAIN / tokens + 1, drop_prob, call);
    DPB_TRY(multiply(device, op, call, DV));
    DPB_TRY(multiply(device, op, call, DPROB));
    dpb_cpu_parallel(device->threads, rows, GRAIN / tokens + 1, softmax_bwd, call);
    DPB_TRY(multiply(device, op, call, DQ));
    return multiply(device, op, call, DK);
}

dpb_status dpb_cpu_attention(dpb_device *device, enum dpb_op op, const void *args)
{
    struct call call = {.args = *(const struct dpb_attention_args *)args};

    call.drops = call.args.keep != 0.0f && call.args.keep != 1.0f;
    if (call.drops)
        dpb_cpu_dropout_init(&call.dropout, call.args.keep, call.args.seed, call.args.offset);
    return op == DPB_OP_ATTENTION_FWD ? forward(device, &call) : backward(device, &call);
}

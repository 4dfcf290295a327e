/* The one place that knows what fits an operator; devices and the reference call it. */
#include "dpb_reference.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "dpb_log.h"

#define WHY_BYTES   256
#define SHAPE_BYTES 128

/* ---- text ---- */

struct text {
    char *to;
    size_t bytes, used;
};

__attribute__((format(printf, 2, 3))) static void put(struct text *text, const char *format, ...)
{
    va_list args;
    int count;

    if (text->used + 1 >= text->bytes)
        return;
    va_start(args, format);
    count = vsnprintf(text->to + text->used, text->bytes - text->used, format, args);
    va_end(args);
    if (count > 0)
        text->used += (size_t)count;
    if (text->used >= text->bytes)
        text->used = text->bytes - 1;
}

static void put_dims(struct text *text, int rank, const int64_t *dim)
{
    put(text, "[");
    for (int i = 0; i < rank && i < DPB_TENSOR_RANK_MAX; i++)
        put(text, "%s%lld", i ? "," : "", (long long)dim[i]);
    put(text, "]");
}

static void put_tensor(struct text *text, const char *name, const struct dpb_tensor *tensor)
{
    put(text, "%s%s", text->used ? " " : "", name);
    put_dims(text, tensor->rank, tensor->dim);
}

static void put_args(struct text *text, enum dpb_op op, const void *args)
{
    switch (op) {
    case DPB_OP_MATMUL: {
        const struct dpb_matmul_args *a = args;

        put_tensor(text, a->trans_a ? "a^T" : "a", &a->a);
        put_tensor(text, a->trans_b ? "b^T" : "b", &a->b);
        put_tensor(text, "c", &a->c);
        put(text, "%s%s beta %g", a->bias ? " bias" : "", a->relu ? " relu" : "", (double)a->beta);
        break;
    }
    case DPB_OP_CONV_FWD:
    case DPB_OP_CONV_BWD_DATA:
    case DPB_OP_CONV_BWD_WEIGHTS: {
        const struct dpb_conv_args *a = args;

        put_tensor(text, "x", &a->x);
        put_tensor(text, "w", &a->w);
        put_tensor(text, "y", &a->y);
        put(text, "%s%s stride %d pad %d", a->bias ? " bias" : "", a->relu ? " relu" : "",
            a->stride, a->pad);
        break;
    }
    case DPB_OP_POOL_MAX_FWD:
    case DPB_OP_POOL_MAX_BWD:
    case DPB_OP_POOL_AVG_FWD:
    case DPB_OP_POOL_AVG_BWD: {
        const struct dpb_pool_args *a = args;

        put_tensor(text, "x", &a->x);
        put_tensor(text, "y", &a->y);
        put(text, " kernel %d stride %d pad %d", a->kernel, a->stride, a->pad);
        break;
    }
    case DPB_OP_RELU_FWD: {
        const struct dpb_relu_args *a = args;

        put_tensor(text, "x", &a->x);
        put_tensor(text, "y", &a->y);
        break;
    }
    case DPB_OP_RELU_BWD: {
        const struct dpb_relu_args *a = args;

        put_tensor(text, "y", &a->y);
        put_tensor(text, "dy", &a->dy);
        put_tensor(text, "dx", &a->dx);
        break;
    }
    case DPB_OP_BIAS_FWD:
    case DPB_OP_BIAS_BWD: {
        const struct dpb_bias_args *a = args;

        if (op == DPB_OP_BIAS_FWD)
            put_tensor(text, "x", &a->x);
        put_tensor(text, "y", &a->y);
        break;
    }
    case DPB_OP_BATCHNORM_FWD:
    case DPB_OP_BATCHNORM_BWD: {
        const struct dpb_batchnorm_args *a = args;

        put_tensor(text, "x", &a->x);
        if (op == DPB_OP_BATCHNORM_FWD) {
            put_tensor(text, "y", &a->y);
            put(text, "%s", a->training ? " training" : " inference");
        } else {
            put_tensor(text, "dy", &a->dy);
            put_tensor(text, "dx", &a->dx);
        }
        break;
    }
    case DPB_OP_SOFTMAX_XENT_FWD:
    case DPB_OP_SOFTMAX_XENT_BWD: {
        const struct dpb_softmax_xent_args *a = args;

        if (op == DPB_OP_SOFTMAX_XENT_FWD)
            put_tensor(text, "logits", &a->logits);
        put_tensor(text, "prob", &a->prob);
        if (op == DPB_OP_SOFTMAX_XENT_BWD)
            put_tensor(text, "dlogits", &a->dlogits);
        break;
    }
    case DPB_OP_SGD_MOMENTUM:
        put(text, "count %lld", (long long)((const struct dpb_sgd_args *)args)->count);
        break;
    case DPB_OP_SCALE:
        put(text, "count %lld", (long long)((const struct dpb_scale_args *)args)->count);
        break;
    case DPB_OP_COUNT:
        break;
    }
}

void dpb_op_args_text(enum dpb_op op, const void *args, char *text, size_t text_bytes)
{
    struct text out = {.to = text, .bytes = text_bytes};

    if (text_bytes > 0)
        text[0] = '\0';
    if (args)
        put_args(&out, op, args);
    else
        put(&out, "no arguments");
}

/* ---- element type ---- */

enum dpb_dtype dpb_op_args_dtype(enum dpb_op op, const void *args)
{
    switch (op) {
    case DPB_OP_MATMUL:
        return ((const struct dpb_matmul_args *)args)->c.dtype;
    case DPB_OP_CONV_FWD:
    case DPB_OP_CONV_BWD_DATA:
    case DPB_OP_CONV_BWD_WEIGHTS:
        return ((const struct dpb_conv_args *)args)->y.dtype;
    case DPB_OP_POOL_MAX_FWD:
    case DPB_OP_POOL_MAX_BWD:
    case DPB_OP_POOL_AVG_FWD:
    case DPB_OP_POOL_AVG_BWD:
        return ((const struct dpb_pool_args *)args)->y.dtype;
    case DPB_OP_RELU_FWD:
    case DPB_OP_RELU_BWD:
        return ((const struct dpb_relu_args *)args)->y.dtype;
    case DPB_OP_BIAS_FWD:
    case DPB_OP_BIAS_BWD:
        return ((const struct dpb_bias_args *)args)->y.dtype;
    case DPB_OP_BATCHNORM_FWD:
    case DPB_OP_BATCHNORM_BWD:
        return ((const struct dpb_batchnorm_args *)args)->x.dtype;
    case DPB_OP_SOFTMAX_XENT_FWD:
    case DPB_OP_SOFTMAX_XENT_BWD:
        return ((const struct dpb_softmax_xent_args *)args)->prob.dtype;
    case DPB_OP_SGD_MOMENTUM:
    case DPB_OP_SCALE:
    case DPB_OP_COUNT:
        break;
    }
    return DPB_F32;
}

/* ---- checks: each says false and the reason in `why` ---- */

__attribute__((format(printf, 2, 3))) static bool no(char *why, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(why, WHY_BYTES, format, args);
    va_end(args);
    return false;
}

static bool pointer_ok(char *why, const char *name, const void *pointer)
{
    return pointer ? true : no(why, "%s is NULL", name);
}

static bool tensor_ok(char *why, const char *name, const struct dpb_tensor *tensor, int rank,
                      enum dpb_dtype dtype)
{
    int64_t numel = 1;

    if (dtype != DPB_F32 && dtype != DPB_F64)
        return no(why, "element type number %d is neither fp32 nor fp64", (int)dtype);
    if (tensor->rank != rank)
        return no(why, "%s has rank %d, needs %d", name, tensor->rank, rank);
    if (tensor->dtype != dtype)
        return no(why, "%s is not %s like the others", name, dpb_dtype_text(dtype));
    for (int i = 0; i < rank; i++) {
        if (tensor->dim[i] < 1)
            return no(why, "dimension %d of %s is below 1", i, name);
        if (tensor->dim[i] > INT64_MAX / 8 / numel)
            return no(why, "%s is too large", name);
        numel *= tensor->dim[i];
    }
    return pointer_ok(why, name, tensor->data);
}

static bool shape_ok(char *why, const char *name, const struct dpb_tensor *tensor,
                     enum dpb_dtype dtype, int rank, const int64_t *dim)
{
    char wanted[SHAPE_BYTES];
    struct text text = {.to = wanted, .bytes = sizeof(wanted)};

    if (!tensor_ok(why, name, tensor, rank, dtype))
        return false;
    for (int i = 0; i < rank; i++) {
        if (tensor->dim[i] != dim[i]) {
            put_dims(&text, rank, dim);
            return no(why, "%s should be %s", name, wanted);
        }
    }
    return true;
}

/* Any rank from 1; `like` has been checked. */
static bool same_shape_ok(char *why, const char *name, const struct dpb_tensor *tensor,
                          const struct dpb_tensor *like)
{
    return shape_ok(why, name, tensor, like->dtype, like->rank, like->dim);
}

static bool any_rank_ok(char *why, const char *name, const struct dpb_tensor *tensor)
{
    if (tensor->rank < 1 || tensor->rank > DPB_TENSOR_RANK_MAX)
        return no(why, "%s has rank %d", name, tensor->rank);
    return tensor_ok(why, name, tensor, tensor->rank, tensor->dtype);
}

static bool finite_ok(char *why, const char *name, float value)
{
    return isfinite(value) ? true : no(why, "%s is not finite", name);
}

static bool matmul_ok(char *why, const struct dpb_matmul_args *a)
{
    enum dpb_dtype dtype = a->c.dtype;
    const int64_t *dim = a->c.dim;
    int64_t k;

    if (!tensor_ok(why, "c", &a->c, 2, dtype) || !tensor_ok(why, "a", &a->a, 2, dtype))
        return false;
    k = a->a.dim[a->trans_a ? 0 : 1];
    return shape_ok(why, "a", &a->a, dtype, 2,
                    a->trans_a ? (int64_t[]){k, dim[0]} : (int64_t[]){dim[0], k}) &&
           shape_ok(why, "b", &a->b, dtype, 2,
                    a->trans_b ? (int64_t[]){dim[1], k} : (int64_t[]){k, dim[1]}) &&
           finite_ok(why, "beta", a->beta);
}

/* Positions of a window along one dimension, 0 when it does not fit once. */
static int64_t positions(int64_t size, int64_t kernel, int stride, int pad)
{
    return size + 2 * (int64_t)pad < kernel ? 0 : (size + 2 * (int64_t)pad - kernel) / stride + 1;
}

static bool window_ok(char *why, int64_t h, int64_t w, int stride, int pad)
{
    if (stride < 1)
        return no(why, "stride is below 1");
    if (pad < 0)
        return no(why, "pad is negative");
    if (h < 1 || w < 1)
        return no(why, "the window is larger than the padded image");
    return true;
}

static bool conv_ok(char *why, const struct dpb_conv_args *a)
{
    enum dpb_dtype dtype = a->y.dtype;
    int stride = a->stride > 0 ? a->stride : 1;
    int64_t oh, ow;

    if (!tensor_ok(why, "y", &a->y, 4, dtype) || !tensor_ok(why, "x", &a->x, 4, dtype) ||
        !tensor_ok(why, "w", &a->w, 4, dtype))
        return false;
    oh = positions(a->x.dim[1], a->w.dim[2], stride, a->pad);
    ow = positions(a->x.dim[2], a->w.dim[3], stride, a->pad);
    if (!window_ok(why, oh, ow, a->stride, a->pad))
        return false;
    if (a->w.dim[1] != a->x.dim[3])
        return no(why, "w takes %lld channels, x has %lld", (long long)a->w.dim[1],
                  (long long)a->x.dim[3]);
    return shape_ok(why, "y", &a->y, dtype, 4, (int64_t[]){a->x.dim[0], oh, ow, a->w.dim[0]});
}

static bool pool_ok(char *why, enum dpb_op op, const struct dpb_pool_args *a)
{
    bool is_max = op == DPB_OP_POOL_MAX_FWD || op == DPB_OP_POOL_MAX_BWD;
    enum dpb_dtype dtype = a->y.dtype;
    int stride = a->stride > 0 ? a->stride : 1;
    int64_t oh, ow;

    if (!tensor_ok(why, "y", &a->y, 4, dtype) || !tensor_ok(why, "x", &a->x, 4, dtype))
        return false;
    if (a->kernel < 1)
        return no(why, "kernel is below 1");
    if (is_max && a->kernel > 15)
        return no(why, "kernel * kernel is above 255, more than one index byte holds");
    oh = positions(a->x.dim[1], a->kernel, stride, a->pad);
    ow = positions(a->x.dim[2], a->kernel, stride, a->pad);
    if (!window_ok(why, oh, ow, a->stride, a->pad))
        return false;
    /* With more padding some windows would hold nothing but padding. */
    if (a->pad > a->kernel / 2)
        return no(why, "pad is above half the kernel");
    if (op == DPB_OP_POOL_MAX_BWD && !pointer_ok(why, "index", a->index))
        return false;
    return shape_ok(why, "y", &a->y, dtype, 4, (int64_t[]){a->x.dim[0], oh, ow, a->x.dim[3]});
}

static bool bias_ok(char *why, enum dpb_op op, const struct dpb_bias_args *a)
{
    return tensor_ok(why, "y", &a->y, 2, a->y.dtype) && pointer_ok(why, "bias", a->bias) &&
           (op == DPB_OP_BIAS_BWD || same_shape_ok(why, "x", &a->x, &a->y));
}

static bool batchnorm_ok(char *why, enum dpb_op op, const struct dpb_batchnorm_args *a)
{
    int rank = a->x.rank;

    if (rank != 2 && rank != 4)
        return no(why, "x has rank %d, needs 2 or 4", rank);
    if (!tensor_ok(why, "x", &a->x, rank, a->x.dtype) || !pointer_ok(why, "gamma", a->gamma))
        return false;
    if (!isfinite(a->eps) || a->eps <= 0.0f)
        return no(why, "eps is not above 0");
    if (op == DPB_OP_BATCHNORM_BWD)
        return same_shape_ok(why, "dy", &a->dy, &a->x) && same_shape_ok(why, "dx", &a->dx, &a->x) &&
               pointer_ok(why, "dgamma", a->dgamma) && pointer_ok(why, "dbeta", a->dbeta) &&
               pointer_ok(why, "save_mean", a->save_mean) &&
               pointer_ok(why, "save_var", a->save_var);
    if (!same_shape_ok(why, "y", &a->y, &a->x) || !pointer_ok(why, "beta", a->beta) ||
        !pointer_ok(why, "running_mean", a->running_mean) ||
        !pointer_ok(why, "running_var", a->running_var))
        return false;
    if (!a->training)
        return true;
    /* The unbiased variance of one value does not exist. */
    if (dpb_tensor_numel(&a->x) == a->x.dim[rank - 1])
        return no(why, "training needs more than one value per channel");
    return pointer_ok(why, "save_mean", a->save_mean) && pointer_ok(why, "save_var", a->save_var) &&
           finite_ok(why, "momentum", a->momentum);
}

static bool softmax_xent_ok(char *why, enum dpb_op op, const struct dpb_softmax_xent_args *a)
{
    if (!tensor_ok(why, "prob", &a->prob, 2, a->prob.dtype) || !pointer_ok(why, "label", a->label))
        return false;
    if (op == DPB_OP_SOFTMAX_XENT_FWD)
        return same_shape_ok(why, "logits", &a->logits, &a->prob) &&
               pointer_ok(why, "loss", a->loss);
    return same_shape_ok(why, "dlogits", &a->dlogits, &a->prob);
}

static bool count_ok(char *why, int64_t count)
{
    return count >= 0 ? true : no(why, "count is negative");
}

static bool args_ok(char *why, enum dpb_op op, const void *args)
{
    switch (op) {
    case DPB_OP_MATMUL:
        return matmul_ok(why, args);
    case DPB_OP_CONV_FWD:
    case DPB_OP_CONV_BWD_DATA:
    case DPB_OP_CONV_BWD_WEIGHTS:
        return conv_ok(why, args);
    case DPB_OP_POOL_MAX_FWD:
    case DPB_OP_POOL_MAX_BWD:
    case DPB_OP_POOL_AVG_FWD:
    case DPB_OP_POOL_AVG_BWD:
        return pool_ok(why, op, args);
    case DPB_OP_RELU_FWD: {
        const struct dpb_relu_args *a = args;

        return any_rank_ok(why, "y", &a->y) && same_shape_ok(why, "x", &a->x, &a->y);
    }
    case DPB_OP_RELU_BWD: {
        const struct dpb_relu_args *a = args;

        return any_rank_ok(why, "y", &a->y) && same_shape_ok(why, "dy", &a->dy, &a->y) &&
               same_shape_ok(why, "dx", &a->dx, &a->y);
    }
    case DPB_OP_BIAS_FWD:
    case DPB_OP_BIAS_BWD:
        return bias_ok(why, op, args);
    case DPB_OP_BATCHNORM_FWD:
    case DPB_OP_BATCHNORM_BWD:
        return batchnorm_ok(why, op, args);
    case DPB_OP_SOFTMAX_XENT_FWD:
    case DPB_OP_SOFTMAX_XENT_BWD:
        return softmax_xent_ok(why, op, args);
    case DPB_OP_SGD_MOMENTUM: {
        const struct dpb_sgd_args *a = args;

        return count_ok(why, a->count) &&
               (a->count == 0 ||
                (pointer_ok(why, "param", a->param) && pointer_ok(why, "grad", a->grad) &&
                 pointer_ok(why, "momentum", a->momentum)));
    }
    case DPB_OP_SCALE: {
        const struct dpb_scale_args *a = args;

        return count_ok(why, a->count) && (a->count == 0 || pointer_ok(why, "x", a->x));
    }
    case DPB_OP_COUNT:
        break;
    }
    return no(why, "there is no operator number %d", (int)op);
}

dpb_status dpb_op_args_check(enum dpb_op op, const void *args)
{
    char why[WHY_BYTES], shapes[WHY_BYTES];

    if (args ? args_ok(why, op, args) : no(why, "arguments are NULL"))
        return DPB_OK;
    dpb_op_args_text(op, args, shapes, sizeof(shapes));
    dpb_error("cannot run operator \"%s\" on %s: %s", dpb_op_text(op), shapes, why);
    dpb_log_hint("check the layer's shapes: images are NHWC, convolution weights OIHW");
    return DPB_ERR_USAGE;
}

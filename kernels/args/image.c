/* Convolution, pooling, batch normalisation. */
#include "op_args.h"

#include <math.h>

/* Positions of a window along one dimension, 0 when it does not fit once. */
static int64_t positions(int64_t size, int64_t kernel, int stride, int pad)
{
    return size + 2 * (int64_t)pad < kernel ? 0 : (size + 2 * (int64_t)pad - kernel) / stride + 1;
}

static bool window_ok(char *why, int64_t h, int64_t w, int stride, int pad)
{
    if (stride < 1)
        return dpb_args_no(why, "stride is below 1");
    if (pad < 0)
        return dpb_args_no(why, "pad is negative");
    if (h < 1 || w < 1)
        return dpb_args_no(why, "the window is larger than the padded image");
    return true;
}

bool dpb_args_conv_ok(char *why, enum dpb_op op, const void *args)
{
    const struct dpb_conv_args *a = args;
    enum dpb_dtype dtype = a->y.dtype;
    int stride = a->stride > 0 ? a->stride : 1;
    /* The weights' gradient is summed up over steps and ranks: in fp32. */
    bool w_f32 = op == DPB_OP_CONV_BWD_WEIGHTS && dpb_args_is_narrow(dtype);
    int64_t oh, ow;

    if (!dpb_args_tensor_ok(why, "y", &a->y, 4, dtype) ||
        !dpb_args_tensor_ok(why, "x", &a->x, 4, dtype) ||
        !dpb_args_tensor_ok(why, "w", &a->w, 4, w_f32 ? DPB_F32 : dtype))
        return false;
    oh = positions(a->x.dim[1], a->w.dim[2], stride, a->pad);
    ow = positions(a->x.dim[2], a->w.dim[3], stride, a->pad);
    if (!window_ok(why, oh, ow, a->stride, a->pad))
        return false;
    if (a->w.dim[1] != a->x.dim[3])
        return dpb_args_no(why, "w takes %lld channels, x has %lld", (long long)a->w.dim[1],
                           (long long)a->x.dim[3]);
    return dpb_args_shape_ok(why, "y", &a->y, dtype, 4,
                             (int64_t[]){a->x.dim[0], oh, ow, a->w.dim[0]});
}

void dpb_args_conv_text(struct dpb_args_text *text, enum dpb_op op, const void *args)
{
    const struct dpb_conv_args *a = args;

    (void)op;
    dpb_args_put_tensor(text, "x", &a->x);
    dpb_args_put_tensor(text, "w", &a->w);
    dpb_args_put_tensor(text, "y", &a->y);
    dpb_args_put(text, "%s%s stride %d pad %d", a->bias ? " bias" : "", a->relu ? " relu" : "",
                 a->stride, a->pad);
}

bool dpb_args_pool_ok(char *why, enum dpb_op op, const void *args)
{
    const struct dpb_pool_args *a = args;
    bool is_max = op == DPB_OP_POOL_MAX_FWD || op == DPB_OP_POOL_MAX_BWD;
    enum dpb_dtype dtype = a->y.dtype;
    int stride = a->stride > 0 ? a->stride : 1;
    int64_t oh, ow;

    if (!dpb_args_tensor_ok(why, "y", &a->y, 4, dtype) ||
        !dpb_args_tensor_ok(why, "x", &a->x, 4, dtype))
        return false;
    if (a->kernel < 1)
        return dpb_args_no(why, "kernel is below 1");
    if (is_max && a->kernel > 15)
        return dpb_args_no(why, "kernel * kernel is above 255, more than one index byte holds");
    oh = positions(a->x.dim[1], a->kernel, stride, a->pad);
    ow = positions(a->x.dim[2], a->kernel, stride, a->pad);
    if (!window_ok(why, oh, ow, a->stride, a->pad))
        return false;
    /* With more padding some windows would hold nothing but padding. */
    if (a->pad > a->kernel / 2)
        return dpb_args_no(why, "pad is above half the kernel");
    if (op == DPB_OP_POOL_MAX_BWD && !dpb_args_pointer_ok(why, "index", a->index))
        return false;
    return dpb_args_shape_ok(why, "y", &a->y, dtype, 4,
                             (int64_t[]){a->x.dim[0], oh, ow, a->x.dim[3]});
}

void dpb_args_pool_text(struct dpb_args_text *text, enum dpb_op op, const void *args)
{
    const struct dpb_pool_args *a = args;

    (void)op;
    dpb_args_put_tensor(text, "x", &a->x);
    dpb_args_put_tensor(text, "y", &a->y);
    dpb_args_put(text, " kernel %d stride %d pad %d", a->kernel, a->stride, a->pad);
}

/* With ReLU, training forward leaves a mask for backward. */
static bool mask_ok(char *why, const struct dpb_batchnorm_args *a)
{
    return !a->relu || dpb_args_pointer_ok(why, "mask", a->mask);
}

static bool statistics_ok(char *why, const struct dpb_batchnorm_args *a)
{
    return dpb_args_pointer_ok(why, "save_mean", a->save_mean) &&
           dpb_args_pointer_ok(why, "save_var", a->save_var);
}

static bool batchnorm_y_ok(char *why, const struct dpb_batchnorm_args *a)
{
    return dpb_args_same_shape_ok(why, "y", &a->y, &a->x) &&
           (!a->residual.data || dpb_args_same_shape_ok(why, "residual", &a->residual, &a->x)) &&
           dpb_args_pointer_ok(why, "gamma", a->gamma) && dpb_args_pointer_ok(why, "beta", a->beta);
}

static bool batchnorm_fwd_ok(char *why, const struct dpb_batchnorm_args *a)
{
    if (!batchnorm_y_ok(why, a) || !dpb_args_pointer_ok(why, "running_mean", a->running_mean) ||
        !dpb_args_pointer_ok(why, "running_var", a->running_var))
        return false;
    if (!a->training)
        return true;
    /* The unbiased variance of one value does not exist. */
    if (dpb_tensor_numel(&a->x) == a->x.dim[a->x.rank - 1])
        return dpb_args_no(why, "training needs more than one value per channel");
    return statistics_ok(why, a) && mask_ok(why, a) &&
           dpb_args_finite_ok(why, "momentum", a->momentum);
}

static bool batchnorm_bwd_ok(char *why, enum dpb_op op, const struct dpb_batchnorm_args *a)
{
    if (!dpb_args_same_shape_ok(why, "dy", &a->dy, &a->x) ||
        !dpb_args_pointer_ok(why, "dgamma", a->dgamma) ||
        !dpb_args_pointer_ok(why, "dbeta", a->dbeta) || !statistics_ok(why, a) || !mask_ok(why, a))
        return false;
    if (op != DPB_OP_BATCHNORM_BWD_APPLY && a->residual.data &&
        !dpb_args_same_shape_ok(why, "dresidual", &a->dresidual, &a->x))
        return false;
    if (op == DPB_OP_BATCHNORM_BWD_SUMS)
        return true;
    if (op == DPB_OP_BATCHNORM_BWD_APPLY && !(isfinite(a->count) && a->count >= 1.0))
        return dpb_args_no(why, "count is below 1");
    return dpb_args_same_shape_ok(why, "dx", &a->dx, &a->x) &&
           dpb_args_pointer_ok(why, "gamma", a->gamma);
}

bool dpb_args_batchnorm_ok(char *why, enum dpb_op op, const void *args)
{
    const struct dpb_batchnorm_args *a = args;
    int rank = a->x.rank;

    if (rank != 2 && rank != 4)
        return dpb_args_no(why, "x has rank %d, needs 2 or 4", rank);
    if (!dpb_args_tensor_ok(why, "x", &a->x, rank, a->x.dtype))
        return false;
    if (op == DPB_OP_BATCHNORM_STATS)
        return statistics_ok(why, a);
    if (!isfinite(a->eps) || a->eps <= 0.0f)
        return dpb_args_no(why, "eps is not above 0");
    if (op == DPB_OP_BATCHNORM_FWD)
        return batchnorm_fwd_ok(why, a);
    if (op == DPB_OP_BATCHNORM_APPLY)
        return batchnorm_y_ok(why, a) && statistics_ok(why, a) && mask_ok(why, a);
    return batchnorm_bwd_ok(why, op, a);
}

void dpb_args_batchnorm_text(struct dpb_args_text *text, enum dpb_op op, const void *args)
{
    const struct dpb_batchnorm_args *a = args;
    bool fwd = op == DPB_OP_BATCHNORM_FWD;

    dpb_args_put_tensor(text, "x", &a->x);
    if (fwd || op == DPB_OP_BATCHNORM_APPLY)
        dpb_args_put_tensor(text, "y", &a->y);
    else if (op != DPB_OP_BATCHNORM_STATS)
        dpb_args_put_tensor(text, "dy", &a->dy);
    if (op == DPB_OP_BATCHNORM_BWD || op == DPB_OP_BATCHNORM_BWD_APPLY)
        dpb_args_put_tensor(text, "dx", &a->dx);
    dpb_args_put(text, "%s%s%s", a->residual.data ? " residual" : "", a->relu ? " relu" : "",
                 !fwd          ? ""
                 : a->training ? " training"
                               : " inference");
}

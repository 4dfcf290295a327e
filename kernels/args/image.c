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
    int64_t oh, ow;

    (void)op;
    if (!dpb_args_tensor_ok(why, "y", &a->y, 4, dtype) ||
        !dpb_args_tensor_ok(why, "x", &a->x, 4, dtype) ||
        !dpb_args_tensor_ok(why, "w", &a->w, 4, dtype))
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

bool dpb_args_batchnorm_ok(char *why, enum dpb_op op, const void *args)
{
    const struct dpb_batchnorm_args *a = args;
    int rank = a->x.rank;

    if (rank != 2 && rank != 4)
        return dpb_args_no(why, "x has rank %d, needs 2 or 4", rank);
    if (!dpb_args_tensor_ok(why, "x", &a->x, rank, a->x.dtype) ||
        !dpb_args_pointer_ok(why, "gamma", a->gamma))
        return false;
    if (!isfinite(a->eps) || a->eps <= 0.0f)
        return dpb_args_no(why, "eps is not above 0");
    if (op == DPB_OP_BATCHNORM_BWD)
        return dpb_args_same_shape_ok(why, "dy", &a->dy, &a->x) &&
               dpb_args_same_shape_ok(why, "dx", &a->dx, &a->x) &&
               dpb_args_pointer_ok(why, "dgamma", a->dgamma) &&
               dpb_args_pointer_ok(why, "dbeta", a->dbeta) &&
               dpb_args_pointer_ok(why, "save_mean", a->save_mean) &&
               dpb_args_pointer_ok(why, "save_var", a->save_var);
    if (!dpb_args_same_shape_ok(why, "y", &a->y, &a->x) ||
        !dpb_args_pointer_ok(why, "beta", a->beta) ||
        !dpb_args_pointer_ok(why, "running_mean", a->running_mean) ||
        !dpb_args_pointer_ok(why, "running_var", a->running_var))
        return false;
    if (!a->training)
        return true;
    /* The unbiased variance of one value does not exist. */
    if (dpb_tensor_numel(&a->x) == a->x.dim[rank - 1])
        return dpb_args_no(why, "training needs more than one value per channel");
    return dpb_args_pointer_ok(why, "save_mean", a->save_mean) &&
           dpb_args_pointer_ok(why, "save_var", a->save_var) &&
           dpb_args_finite_ok(why, "momentum", a->momentum);
}

void dpb_args_batchnorm_text(struct dpb_args_text *text, enum dpb_op op, const void *args)
{
    const struct dpb_batchnorm_args *a = args;

    dpb_args_put_tensor(text, "x", &a->x);
    if (op == DPB_OP_BATCHNORM_FWD) {
        dpb_args_put_tensor(text, "y", &a->y);
        dpb_args_put(text, "%s", a->training ? " training" : " inference");
    } else {
        dpb_args_put_tensor(text, "dy", &a->dy);
        dpb_args_put_tensor(text, "dx", &a->dx);
    }
}

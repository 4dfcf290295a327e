/* Matmul, ReLU, bias, softmax with cross-entropy. */
#include "op_args.h"

bool dpb_args_matmul_ok(char *why, enum dpb_op op, const void *args)
{
    const struct dpb_matmul_args *a = args;
    enum dpb_dtype dtype = a->a.dtype;
    bool to_f32 = dpb_args_is_narrow(dtype) && a->c.dtype == DPB_F32;
    const int64_t *dim = a->c.dim;
    int64_t k;

    (void)op;
    if (!dpb_args_tensor_ok(why, "c", &a->c, 2, to_f32 ? DPB_F32 : dtype) ||
        !dpb_args_tensor_ok(why, "a", &a->a, 2, dtype))
        return false;
    k = a->a.dim[a->trans_a ? 0 : 1];
    return dpb_args_shape_ok(why, "a", &a->a, dtype, 2,
                             a->trans_a ? (int64_t[]){k, dim[0]} : (int64_t[]){dim[0], k}) &&
           dpb_args_shape_ok(why, "b", &a->b, dtype, 2,
                             a->trans_b ? (int64_t[]){dim[1], k} : (int64_t[]){k, dim[1]}) &&
           dpb_args_finite_ok(why, "beta", a->beta);
}

void dpb_args_matmul_text(struct dpb_args_text *text, enum dpb_op op, const void *args)
{
    const struct dpb_matmul_args *a = args;

    (void)op;
    dpb_args_put_tensor(text, a->trans_a ? "a^T" : "a", &a->a);
    dpb_args_put_tensor(text, a->trans_b ? "b^T" : "b", &a->b);
    dpb_args_put_tensor(text, "c", &a->c);
    dpb_args_put(text, "%s%s beta %g", a->bias ? " bias" : "", a->relu ? " relu" : "",
                 (double)a->beta);
}

bool dpb_args_orthogonalize_ok(char *why, enum dpb_op op, const void *args)
{
    const struct dpb_orthogonalize_args *a = args;

    (void)op;
    if (!dpb_args_tensor_ok(why, "x", &a->x, 2, DPB_F32))
        return false;
    return a->eps >= 0.0f || dpb_args_no(why, "eps is not a number from 0 on");
}

void dpb_args_orthogonalize_text(struct dpb_args_text *text, enum dpb_op op, const void *args)
{
    const struct dpb_orthogonalize_args *a = args;

    (void)op;
    dpb_args_put_tensor(text, "x", &a->x);
    dpb_args_put(text, " eps %g", (double)a->eps);
}

bool dpb_args_relu_ok(char *why, enum dpb_op op, const void *args)
{
    const struct dpb_relu_args *a = args;

    if (!dpb_args_any_rank_ok(why, "y", &a->y))
        return false;
    if (op == DPB_OP_RELU_FWD)
        return dpb_args_same_shape_ok(why, "x", &a->x, &a->y);
    return dpb_args_same_shape_ok(why, "dy", &a->dy, &a->y) &&
           dpb_args_same_shape_ok(why, "dx", &a->dx, &a->y);
}

void dpb_args_relu_text(struct dpb_args_text *text, enum dpb_op op, const void *args)
{
    const struct dpb_relu_args *a = args;

    if (op == DPB_OP_RELU_FWD)
        dpb_args_put_tensor(text, "x", &a->x);
    dpb_args_put_tensor(text, "y", &a->y);
    if (op == DPB_OP_RELU_BWD) {
        dpb_args_put_tensor(text, "dy", &a->dy);
        dpb_args_put_tensor(text, "dx", &a->dx);
    }
}

bool dpb_args_bias_ok(char *why, enum dpb_op op, const void *args)
{
    const struct dpb_bias_args *a = args;

    return dpb_args_tensor_ok(why, "y", &a->y, 2, a->y.dtype) &&
           dpb_args_pointer_ok(why, "bias", a->bias) &&
           (op == DPB_OP_BIAS_BWD || dpb_args_same_shape_ok(why, "x", &a->x, &a->y));
}

void dpb_args_bias_text(struct dpb_args_text *text, enum dpb_op op, const void *args)
{
    const struct dpb_bias_args *a = args;

    if (op == DPB_OP_BIAS_FWD)
        dpb_args_put_tensor(text, "x", &a->x);
    dpb_args_put_tensor(text, "y", &a->y);
}

bool dpb_args_softmax_xent_ok(char *why, enum dpb_op op, const void *args)
{
    const struct dpb_softmax_xent_args *a = args;

    if (!dpb_args_tensor_ok(why, "prob", &a->prob, 2, a->prob.dtype) ||
        !dpb_args_pointer_ok(why, "label", a->label))
        return false;
    if (op == DPB_OP_SOFTMAX_XENT_FWD)
        return dpb_args_same_shape_ok(why, "logits", &a->logits, &a->prob) &&
               dpb_args_pointer_ok(why, "loss", a->loss);
    return dpb_args_same_shape_ok(why, "dlogits", &a->dlogits, &a->prob);
}

void dpb_args_softmax_xent_text(struct dpb_args_text *text, enum dpb_op op, const void *args)
{
    const struct dpb_softmax_xent_args *a = args;

    if (op == DPB_OP_SOFTMAX_XENT_FWD)
        dpb_args_put_tensor(text, "logits", &a->logits);
    dpb_args_put_tensor(text, "prob", &a->prob);
    if (op == DPB_OP_SOFTMAX_XENT_BWD)
        dpb_args_put_tensor(text, "dlogits", &a->dlogits);
}

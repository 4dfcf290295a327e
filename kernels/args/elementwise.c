/* Cast, sum of two tensors, activations, dropout. */
#include "op_args.h"

bool dpb_args_cast_ok(char *why, enum dpb_op op, const void *args)
{
    const struct dpb_cast_args *a = args;

    (void)op;
    if (!dpb_args_any_rank_ok(why, "from", &a->from) ||
        !dpb_args_shape_ok(why, "to", &a->to, a->to.dtype, a->from.rank, a->from.dim))
        return false;
    if (a->from.dtype != a->to.dtype && (a->from.dtype == DPB_F64 || a->to.dtype == DPB_F64 ||
                                         (a->from.dtype != DPB_F32 && a->to.dtype != DPB_F32)))
        return dpb_args_no(why, "it converts between fp32 and bf16 or fp16 only");
    return true;
}

void dpb_args_cast_text(struct dpb_args_text *text, enum dpb_op op, const void *args)
{
    const struct dpb_cast_args *a = args;

    (void)op;
    dpb_args_put_tensor(text, "from", &a->from);
    dpb_args_put(text, " %s", dpb_dtype_text(a->from.dtype));
    dpb_args_put_tensor(text, "to", &a->to);
    dpb_args_put(text, " %s", dpb_dtype_text(a->to.dtype));
}

bool dpb_args_add_ok(char *why, enum dpb_op op, const void *args)
{
    const struct dpb_add_args *a = args;

    (void)op;
    return dpb_args_any_rank_ok(why, "y", &a->y) &&
           dpb_args_same_shape_ok(why, "a", &a->a, &a->y) &&
           dpb_args_same_shape_ok(why, "b", &a->b, &a->y);
}

void dpb_args_add_text(struct dpb_args_text *text, enum dpb_op op, const void *args)
{
    const struct dpb_add_args *a = args;

    (void)op;
    dpb_args_put_tensor(text, "a", &a->a);
    dpb_args_put_tensor(text, "b", &a->b);
    dpb_args_put_tensor(text, "y", &a->y);
    dpb_args_put(text, "%s", a->relu ? " relu" : "");
}

bool dpb_args_activation_ok(char *why, enum dpb_op op, const void *args)
{
    const struct dpb_activation_args *a = args;
    bool from_x = op != DPB_OP_TANH_BWD;

    if (op == DPB_OP_GELU_FWD || op == DPB_OP_TANH_FWD)
        return dpb_args_any_rank_ok(why, "x", &a->x) &&
               dpb_args_same_shape_ok(why, "y", &a->y, &a->x);
    return dpb_args_any_rank_ok(why, "dy", &a->dy) &&
           dpb_args_same_shape_ok(why, "dx", &a->dx, &a->dy) &&
           dpb_args_same_shape_ok(why, from_x ? "x" : "y", from_x ? &a->x : &a->y, &a->dy);
}

void dpb_args_activation_text(struct dpb_args_text *text, enum dpb_op op, const void *args)
{
    const struct dpb_activation_args *a = args;
    bool fwd = op == DPB_OP_GELU_FWD || op == DPB_OP_TANH_FWD;

    if (op != DPB_OP_TANH_BWD)
        dpb_args_put_tensor(text, "x", &a->x);
    if (op != DPB_OP_GELU_BWD)
        dpb_args_put_tensor(text, "y", &a->y);
    if (!fwd) {
        dpb_args_put_tensor(text, "dy", &a->dy);
        dpb_args_put_tensor(text, "dx", &a->dx);
    }
    dpb_args_put(text, "%s", a->tanh_form ? " tanh-form" : "");
}

bool dpb_args_dropout_ok(char *why, enum dpb_op op, const void *args)
{
    const struct dpb_dropout_args *a = args;

    if (!(a->keep > 0.0f && a->keep <= 1.0f))
        return dpb_args_no(why, "keep is not above 0 and at most 1");
    if (op == DPB_OP_DROPOUT_FWD)
        return dpb_args_any_rank_ok(why, "x", &a->x) &&
               dpb_args_same_shape_ok(why, "y", &a->y, &a->x);
    return dpb_args_any_rank_ok(why, "dy", &a->dy) &&
           dpb_args_same_shape_ok(why, "dx", &a->dx, &a->dy);
}

void dpb_args_dropout_text(struct dpb_args_text *text, enum dpb_op op, const void *args)
{
    const struct dpb_dropout_args *a = args;
    bool fwd = op == DPB_OP_DROPOUT_FWD;

    dpb_args_put_tensor(text, fwd ? "x" : "dy", fwd ? &a->x : &a->dy);
    dpb_args_put_tensor(text, fwd ? "y" : "dx", fwd ? &a->y : &a->dx);
    dpb_args_put(text, " keep %g", (double)a->keep);
}

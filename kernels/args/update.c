/* What changes parameters and gradients, or looks at them: the optimizers, scale, finite. */
#include "op_args.h"

#include <math.h>

bool dpb_args_sgd_ok(char *why, enum dpb_op op, const void *args)
{
    const struct dpb_sgd_args *a = args;

    (void)op;
    return dpb_args_count_ok(why, a->count) &&
           (a->count == 0 ||
            (dpb_args_pointer_ok(why, "param", a->param) &&
             dpb_args_pointer_ok(why, "grad", a->grad) &&
             (a->mu == 0.0f || dpb_args_pointer_ok(why, "momentum", a->momentum))));
}

void dpb_args_sgd_text(struct dpb_args_text *text, enum dpb_op op, const void *args)
{
    const struct dpb_sgd_args *a = args;

    (void)op;
    dpb_args_put(text, "count %lld", (long long)a->count);
}

static bool above_zero_ok(char *why, const char *name, double value)
{
    return isfinite(value) && value > 0.0 ? true : dpb_args_no(why, "%s is not above 0", name);
}

static bool below_one_ok(char *why, const char *name, double value)
{
    return value >= 0.0 && value < 1.0 ? true : dpb_args_no(why, "%s is not in [0, 1)", name);
}

/* What all optimizers with a tensor share. */
static bool update_ok(char *why, const struct dpb_tensor *param, const void *grad, double lr,
                      double weight_decay)
{
    return dpb_args_any_rank_ok(why, "param", param) && dpb_args_pointer_ok(why, "grad", grad) &&
           dpb_args_finite_ok(why, "lr", lr) &&
           dpb_args_finite_ok(why, "weight_decay", weight_decay);
}

bool dpb_args_adam_ok(char *why, enum dpb_op op, const void *args)
{
    const struct dpb_adam_args *a = args;

    (void)op;
    if (a->step < 1)
        return dpb_args_no(why, "step is below 1");
    return update_ok(why, &a->param, a->grad, a->lr, a->weight_decay) &&
           dpb_args_pointer_ok(why, "m", a->m) && dpb_args_pointer_ok(why, "v", a->v) &&
           below_one_ok(why, "beta1", a->beta1) && below_one_ok(why, "beta2", a->beta2) &&
           above_zero_ok(why, "eps", a->eps);
}

void dpb_args_adam_text(struct dpb_args_text *text, enum dpb_op op, const void *args)
{
    const struct dpb_adam_args *a = args;

    (void)op;
    dpb_args_put_tensor(text, "param", &a->param);
    dpb_args_put(text, " step %lld", (long long)a->step);
}

bool dpb_args_lars_ok(char *why, enum dpb_op op, const void *args)
{
    const struct dpb_lars_args *a = args;

    (void)op;
    if (!(a->eps >= 0.0))
        return dpb_args_no(why, "eps is below 0");
    return update_ok(why, &a->param, a->grad, a->lr, a->weight_decay) &&
           dpb_args_pointer_ok(why, "momentum", a->momentum) &&
           dpb_args_finite_ok(why, "eps", a->eps) && dpb_args_finite_ok(why, "mu", a->mu) &&
           (!a->adapt || above_zero_ok(why, "trust", a->trust));
}

void dpb_args_lars_text(struct dpb_args_text *text, enum dpb_op op, const void *args)
{
    (void)op;
    dpb_args_put_tensor(text, "param", &((const struct dpb_lars_args *)args)->param);
}

bool dpb_args_adagrad_ok(char *why, enum dpb_op op, const void *args)
{
    const struct dpb_adagrad_args *a = args;

    if (op == DPB_OP_ROWWISE_ADAGRAD && a->param.rank != 2)
        return dpb_args_no(why, "param has rank %d, needs 2", a->param.rank);
    return update_ok(why, &a->param, a->grad, a->lr, a->weight_decay) &&
           dpb_args_pointer_ok(why, "state", a->state) && above_zero_ok(why, "eps", a->eps);
}

void dpb_args_adagrad_text(struct dpb_args_text *text, enum dpb_op op, const void *args)
{
    (void)op;
    dpb_args_put_tensor(text, "param", &((const struct dpb_adagrad_args *)args)->param);
}

bool dpb_args_scale_ok(char *why, enum dpb_op op, const void *args)
{
    const struct dpb_scale_args *a = args;

    (void)op;
    return dpb_args_count_ok(why, a->count) &&
           (a->count == 0 || dpb_args_pointer_ok(why, "x", a->x));
}

void dpb_args_scale_text(struct dpb_args_text *text, enum dpb_op op, const void *args)
{
    const struct dpb_scale_args *a = args;

    (void)op;
    dpb_args_put(text, "count %lld", (long long)a->count);
}

bool dpb_args_finite_test_ok(char *why, enum dpb_op op, const void *args)
{
    const struct dpb_finite_args *a = args;

    (void)op;
    return dpb_args_count_ok(why, a->count) &&
           (a->count == 0 || dpb_args_pointer_ok(why, "x", a->x)) &&
           dpb_args_pointer_ok(why, "found", a->found);
}

void dpb_args_finite_test_text(struct dpb_args_text *text, enum dpb_op op, const void *args)
{
    (void)op;
    dpb_args_put(text, "count %lld", (long long)((const struct dpb_finite_args *)args)->count);
}

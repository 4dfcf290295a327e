/* What changes parameters and gradients: SGD with momentum, scale. */
#include "op_args.h"

bool dpb_args_sgd_ok(char *why, enum dpb_op op, const void *args)
{
    const struct dpb_sgd_args *a = args;

    (void)op;
    return dpb_args_count_ok(why, a->count) &&
           (a->count == 0 || (dpb_args_pointer_ok(why, "param", a->param) &&
                              dpb_args_pointer_ok(why, "grad", a->grad) &&
                              dpb_args_pointer_ok(why, "momentum", a->momentum)));
}

void dpb_args_sgd_text(struct dpb_args_text *text, enum dpb_op op, const void *args)
{
    const struct dpb_sgd_args *a = args;

    (void)op;
    dpb_args_put(text, "count %lld", (long long)a->count);
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

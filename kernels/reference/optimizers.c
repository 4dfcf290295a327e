/* The optimizers: SGD, AdamW, LAMB, LARS, Adagrad and its row-wise form. */
#include "reference_arrays.h"

#include <math.h>

static double norm(const double *values, int64_t numel)
{
    double sum = 0.0;

    for (int64_t i = 0; i < numel; i++)
        sum += values[i] * values[i];
    return sqrt(sum);
}

dpb_status dpb_ref_sgd(enum dpb_op op, const void *op_args)
{
    const struct dpb_sgd_args *args = op_args;

    (void)op;
    for (int64_t i = 0; i < args->count; i++) {
        double update = (double)args->grad[i] + (double)args->weight_decay * (double)args->param[i];

        if (args->momentum) {
            update += (double)args->mu * (double)args->momentum[i];
            args->momentum[i] = (float)update;
        }
        args->param[i] = (float)((double)args->param[i] - (double)args->lr * update);
    }
    return DPB_OK;
}

dpb_status dpb_ref_adam(enum dpb_op op, const void *args)
{
    const struct dpb_adam_args *a = args;
    struct dpb_ref_arrays arrays = {.dtype = a->param.dtype};
    int64_t numel = dpb_tensor_numel(&a->param);
    double *w = dpb_ref_update(&arrays, a->param.data, numel);
    double *m = dpb_ref_update(&arrays, a->m, numel), *v = dpb_ref_update(&arrays, a->v, numel);
    const double *g = dpb_ref_read(&arrays, a->grad, numel);
    double *update = dpb_ref_write(&arrays, NULL, numel);
    double correction1 = 1.0 - pow(a->beta1, (double)a->step);
    double correction2 = 1.0 - pow(a->beta2, (double)a->step);
    double ratio = 1.0;

    if (arrays.failed)
        return dpb_ref_finish(&arrays, DPB_OK);
    for (int64_t i = 0; i < numel; i++) {
        m[i] = a->beta1 * m[i] + (1.0 - a->beta1) * g[i];
        v[i] = a->beta2 * v[i] + (1.0 - a->beta2) * g[i] * g[i];
        update[i] =
                (m[i] / correction1) / (sqrt(v[i] / correction2) + a->eps) + a->weight_decay * w[i];
    }
    if (op == DPB_OP_LAMB && a->adapt) {
        double w_norm = norm(w, numel), update_norm = norm(update, numel);

        if (w_norm > 0.0 && update_norm > 0.0)
            ratio = w_norm / update_norm;
    }
    for (int64_t i = 0; i < numel; i++)
        w[i] -= a->lr * ratio * update[i];
    return dpb_ref_finish(&arrays, DPB_OK);
}

dpb_status dpb_ref_lars(enum dpb_op op, const void *args)
{
    const struct dpb_lars_args *a = args;
    struct dpb_ref_arrays arrays = {.dtype = a->param.dtype};
    int64_t numel = dpb_tensor_numel(&a->param);
    double *w = dpb_ref_update(&arrays, a->param.data, numel);
    double *momentum = dpb_ref_update(&arrays, a->momentum, numel);
    const double *g = dpb_ref_read(&arrays, a->grad, numel);
    double ratio = 1.0;

    (void)op;
    if (!arrays.failed && a->adapt) {
        double w_norm = norm(w, numel), g_norm = norm(g, numel);

        if (w_norm > 0.0 && g_norm > 0.0)
            ratio = a->trust * w_norm / (g_norm + a->weight_decay * w_norm + a->eps);
    }
    for (int64_t i = 0; !arrays.failed && i < numel; i++) {
        momentum[i] = a->mu * momentum[i] + a->lr * ratio * (g[i] + a->weight_decay * w[i]);
        w[i] -= momentum[i];
    }
    return dpb_ref_finish(&arrays, DPB_OK);
}

dpb_status dpb_ref_adagrad(enum dpb_op op, const void *args)
{
    const struct dpb_adagrad_args *a = args;
    struct dpb_ref_arrays arrays = {.dtype = a->param.dtype};
    int64_t numel = dpb_tensor_numel(&a->param);
    /* Elements that share one sum: a row, or one. */
    int64_t group = op == DPB_OP_ROWWISE_ADAGRAD ? a->param.dim[1] : 1;
    double *w = dpb_ref_update(&arrays, a->param.data, numel);
    double *state = dpb_ref_update(&arrays, a->state, numel / group);
    double *g = dpb_ref_write(&arrays, NULL, numel);
    const double *grad = dpb_ref_read(&arrays, a->grad, numel);

    for (int64_t i = 0; !arrays.failed && i < numel; i++) {
        g[i] = grad[i] + a->weight_decay * w[i];
        state[i / group] += g[i] * g[i] / (double)group;
    }
    for (int64_t i = 0; !arrays.failed && i < numel; i++)
        w[i] -= a->lr * g[i] / (sqrt(state[i / group]) + a->eps);
    return dpb_ref_finish(&arrays, DPB_OK);
}

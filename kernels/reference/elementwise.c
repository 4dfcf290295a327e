/* Cast, sum of two tensors, GELU, tanh, dropout. */
#include "reference_arrays.h"

#include <math.h>

#include "dpb_rng.h"

dpb_status dpb_ref_cast(enum dpb_op op, const void *op_args)
{
    const struct dpb_cast_args *args = op_args;
    struct dpb_ref_arrays arrays = {.dtype = args->from.dtype};
    int64_t numel = dpb_tensor_numel(&args->from);
    const double *from = dpb_ref_read_tensor(&arrays, &args->from);
    double *to = dpb_ref_write_tensor(&arrays, &args->to);

    (void)op;
    for (int64_t i = 0; !arrays.failed && i < numel; i++)
        to[i] = from[i];
    return dpb_ref_finish(&arrays, DPB_OK);
}

dpb_status dpb_ref_add(enum dpb_op op, const void *op_args)
{
    const struct dpb_add_args *args = op_args;
    struct dpb_ref_arrays arrays = {.dtype = args->y.dtype};
    int64_t numel = dpb_tensor_numel(&args->y);
    const double *a = dpb_ref_read_tensor(&arrays, &args->a);
    const double *b = dpb_ref_read_tensor(&arrays, &args->b);
    double *y = dpb_ref_write_tensor(&arrays, &args->y);

    (void)op;
    for (int64_t i = 0; !arrays.failed && i < numel; i++)
        y[i] = args->relu && !(a[i] + b[i] > 0.0) ? 0.0 : a[i] + b[i];
    return dpb_ref_finish(&arrays, DPB_OK);
}

/* Hendrycks, Gimpel, "Gaussian error linear units", 2016: both forms. */
static double gelu(double x, bool tanh_form)
{
    if (tanh_form)
        return 0.5 * x * (1.0 + tanh(sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
    return 0.5 * x * erfc(-x * M_SQRT1_2); /* 1 + erf(z) = erfc(-z), which does not cancel */
}

static double gelu_slope(double x, bool tanh_form)
{
    double t;

    if (!tanh_form)
        return 0.5 * erfc(-x * M_SQRT1_2) + x * exp(-0.5 * x * x) / sqrt(2.0 * M_PI);
    t = tanh(sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x));
    return 0.5 * (1.0 + t) +
           0.5 * x * (1.0 - t * t) * sqrt(2.0 / M_PI) * (1.0 + 3.0 * 0.044715 * x * x);
}

dpb_status dpb_ref_gelu(enum dpb_op op, const void *op_args)
{
    const struct dpb_activation_args *args = op_args;
    struct dpb_ref_arrays arrays = {.dtype = args->x.dtype};
    int64_t numel = dpb_tensor_numel(&args->x);
    bool fwd = op == DPB_OP_GELU_FWD;
    const double *x = dpb_ref_read_tensor(&arrays, &args->x);
    const double *dy = fwd ? NULL : dpb_ref_read_tensor(&arrays, &args->dy);
    double *out = dpb_ref_write_tensor(&arrays, fwd ? &args->y : &args->dx);

    for (int64_t i = 0; !arrays.failed && i < numel; i++)
        out[i] = fwd ? gelu(x[i], args->tanh_form) : dy[i] * gelu_slope(x[i], args->tanh_form);
    return dpb_ref_finish(&arrays, DPB_OK);
}

dpb_status dpb_ref_tanh(enum dpb_op op, const void *op_args)
{
    const struct dpb_activation_args *args = op_args;
    struct dpb_ref_arrays arrays = {.dtype = args->y.dtype};
    int64_t numel = dpb_tensor_numel(&args->y);
    bool fwd = op == DPB_OP_TANH_FWD;
    const double *in = dpb_ref_read_tensor(&arrays, fwd ? &args->x : &args->y);
    const double *dy = fwd ? NULL : dpb_ref_read_tensor(&arrays, &args->dy);
    double *out = dpb_ref_write_tensor(&arrays, fwd ? &args->y : &args->dx);

    for (int64_t i = 0; !arrays.failed && i < numel; i++)
        out[i] = fwd ? tanh(in[i]) : dy[i] * (1.0 - in[i] * in[i]);
    return dpb_ref_finish(&arrays, DPB_OK);
}

double dpb_ref_dropout_factor(float keep, uint64_t seed, uint64_t offset, int64_t element)
{
    uint64_t at = offset + (uint64_t)element;
    const uint32_t counter[4] = {(uint32_t)(at / 4), (uint32_t)(at / 4 >> 32), 0, 0};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t word[4];

    dpb_philox4x32(counter, key, word);
    return (double)word[at % 4] < (double)keep * 0x1p32 ? 1.0 / (double)keep : 0.0;
}

dpb_status dpb_ref_dropout(enum dpb_op op, const void *op_args)
{
    const struct dpb_dropout_args *args = op_args;
    bool fwd = op == DPB_OP_DROPOUT_FWD;
    const struct dpb_tensor *from = fwd ? &args->x : &args->dy, *to = fwd ? &args->y : &args->dx;
    struct dpb_ref_arrays arrays = {.dtype = from->dtype};
    int64_t numel = dpb_tensor_numel(from);
    const double *in = dpb_ref_read_tensor(&arrays, from);
    double *out = dpb_ref_write_tensor(&arrays, to);

    for (int64_t i = 0; !arrays.failed && i < numel; i++)
        out[i] = in[i] * dpb_ref_dropout_factor(args->keep, args->seed, args->offset, i);
    return dpb_ref_finish(&arrays, DPB_OK);
}

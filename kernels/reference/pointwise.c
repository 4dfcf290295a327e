/* ReLU, bias, scale, finite. */
#include "reference_arrays.h"

#include <math.h>

dpb_status dpb_ref_relu(enum dpb_op op, const void *op_args)
{
    const struct dpb_relu_args *args = op_args;
    struct dpb_ref_arrays arrays = {.dtype = args->y.dtype};
    int64_t numel = dpb_tensor_numel(&args->y);
    bool fwd = op == DPB_OP_RELU_FWD;
    const double *in = dpb_ref_read_tensor(&arrays, fwd ? &args->x : &args->y);
    const double *dy = fwd ? NULL : dpb_ref_read_tensor(&arrays, &args->dy);
    double *out = dpb_ref_write_tensor(&arrays, fwd ? &args->y : &args->dx);

    for (int64_t i = 0; !arrays.failed && i < numel; i++)
        out[i] = !(in[i] > 0.0) ? 0.0 : fwd ? in[i] : dy[i];
    return dpb_ref_finish(&arrays, DPB_OK);
}

dpb_status dpb_ref_bias(enum dpb_op op, const void *op_args)
{
    const struct dpb_bias_args *args = op_args;
    struct dpb_ref_arrays arrays = {.dtype = args->y.dtype};
    int64_t m = args->y.dim[0], n = args->y.dim[1];
    bool fwd = op == DPB_OP_BIAS_FWD;
    const double *in = dpb_ref_read_tensor(&arrays, fwd ? &args->x : &args->y);
    const double *bias = fwd ? dpb_ref_read(&arrays, args->bias, n) : NULL;
    double *out =
            fwd ? dpb_ref_write_tensor(&arrays, &args->y) : dpb_ref_write(&arrays, args->bias, n);

    for (int64_t i = 0; !arrays.failed && i < m * n; i++) {
        if (fwd)
            out[i] = in[i] + bias[i % n];
        else
            out[i % n] += in[i];
    }
    return dpb_ref_finish(&arrays, DPB_OK);
}

dpb_status dpb_ref_scale(enum dpb_op op, const void *op_args)
{
    const struct dpb_scale_args *args = op_args;

    (void)op;
    for (int64_t i = 0; i < args->count; i++)
        args->x[i] = (float)((double)args->x[i] * (double)args->factor);
    return DPB_OK;
}

dpb_status dpb_ref_finite(enum dpb_op op, const void *op_args)
{
    const struct dpb_finite_args *args = op_args;

    (void)op;
    for (int64_t i = 0; i < args->count; i++)
        if (!isfinite(args->x[i]))
            args->found[0] = 1;
    return DPB_OK;
}

#include "reference_arrays.h"

/* The three operators are one loop nest over the products x w; they differ in which of x, w and y
 * collects the sum of the other two's products. */
dpb_status dpb_ref_conv(enum dpb_op op, const void *op_args)
{
    const struct dpb_conv_args *args = op_args;
    struct dpb_ref_arrays arrays = {.dtype = args->y.dtype};
    const int64_t *xd = args->x.dim, *wd = args->w.dim, *yd = args->y.dim;
    int64_t y_numel = dpb_tensor_numel(&args->y);
    bool fwd = op == DPB_OP_CONV_FWD, bwd_data = op == DPB_OP_CONV_BWD_DATA;
    bool bwd_weights = op == DPB_OP_CONV_BWD_WEIGHTS;
    const double *x = bwd_data ? NULL : dpb_ref_read_tensor(&arrays, &args->x);
    const double *w = bwd_weights ? NULL : dpb_ref_read_tensor(&arrays, &args->w);
    const double *y = fwd ? NULL : dpb_ref_read_tensor(&arrays, &args->y);
    const double *bias = fwd && args->bias ? dpb_ref_read(&arrays, args->bias, wd[0]) : NULL;
    double *sum = bwd_data      ? dpb_ref_write_tensor(&arrays, &args->x)
                  : bwd_weights ? dpb_ref_write_tensor(&arrays, &args->w)
                                : dpb_ref_write_tensor(&arrays, &args->y);
    double *dbias = bwd_weights && args->bias ? dpb_ref_write(&arrays, args->bias, wd[0]) : NULL;

    if (arrays.failed)
        return dpb_ref_finish(&arrays, DPB_OK);
    for (int64_t row = 0; row < yd[0] * yd[1] * yd[2]; row++) { /* one output position */
        int64_t n = row / (yd[1] * yd[2]), oy = row / yd[2] % yd[1], ox = row % yd[2];

        for (int64_t window = 0; window < wd[2] * wd[3]; window++) {
            int64_t iy = oy * args->stride - args->pad + window / wd[3];
            int64_t ix = ox * args->stride - args->pad + window % wd[3];
            int64_t x_at = ((n * xd[1] + iy) * xd[2] + ix) * xd[3];

            if (iy < 0 || iy >= xd[1] || ix < 0 || ix >= xd[2])
                continue;
            for (int64_t o = 0; o < wd[0]; o++) {
                for (int64_t i = 0; i < wd[1]; i++) {
                    int64_t w_at = (o * wd[1] + i) * wd[2] * wd[3] + window;

                    if (fwd)
                        sum[row * wd[0] + o] += x[x_at + i] * w[w_at];
                    else if (bwd_data)
                        sum[x_at + i] += y[row * wd[0] + o] * w[w_at];
                    else
                        sum[w_at] += x[x_at + i] * y[row * wd[0] + o];
                }
            }
        }
    }
    for (int64_t at = 0; fwd && at < y_numel; at++) {
        sum[at] += bias ? bias[at % wd[0]] : 0.0;
        if (args->relu && sum[at] < 0.0)
            sum[at] = 0.0;
    }
    for (int64_t at = 0; dbias && at < y_numel; at++)
        dbias[at % wd[0]] += y[at];
    return dpb_ref_finish(&arrays, DPB_OK);
}

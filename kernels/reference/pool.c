#include "reference_arrays.h"

#include "dpb_log.h"

/* Offset of the channel `c` at window position `window` of output element `at`, or -1 in the
 * padding. */
static int64_t input_at(const struct dpb_pool_args *args, int64_t at, int window)
{
    const int64_t *xd = args->x.dim, *yd = args->y.dim;
    int64_t c = at % yd[3], ox = at / yd[3] % yd[2], oy = at / (yd[3] * yd[2]) % yd[1];
    int64_t n = at / (yd[3] * yd[2] * yd[1]);
    int64_t iy = oy * args->stride - args->pad + window / args->kernel;
    int64_t ix = ox * args->stride - args->pad + window % args->kernel;

    if (iy < 0 || iy >= xd[1] || ix < 0 || ix >= xd[2])
        return -1;
    return ((n * xd[1] + iy) * xd[2] + ix) * xd[3] + c;
}

static void max_fwd(const struct dpb_pool_args *args, const double *x, double *y, int64_t numel)
{
    for (int64_t at = 0; at < numel; at++) {
        int best = -1;

        for (int window = 0; window < args->kernel * args->kernel; window++) {
            int64_t from = input_at(args, at, window);

            if (from >= 0 && (best < 0 || x[from] > y[at])) {
                best = window;
                y[at] = x[from];
            }
        }
        if (args->index)
            args->index[at] = (uint8_t)best;
    }
}

static dpb_status max_bwd(const struct dpb_pool_args *args, double *x, const double *y,
                          int64_t numel)
{
    for (int64_t at = 0; at < numel; at++) {
        int window = args->index[at];
        int64_t to = window < args->kernel * args->kernel ? input_at(args, at, window) : -1;

        if (to < 0) {
            dpb_error("pool-max-bwd: index %d of output element %lld is no position of its window",
                      window, (long long)at);
            dpb_log_hint("index must be what pool-max-fwd wrote for the same shapes");
            return DPB_ERR_USAGE;
        }
        x[to] += y[at];
    }
    return DPB_OK;
}

dpb_status dpb_ref_pool(enum dpb_op op, const void *op_args)
{
    const struct dpb_pool_args *args = op_args;
    struct dpb_ref_arrays arrays = {.dtype = args->y.dtype};
    int64_t y_numel = dpb_tensor_numel(&args->y);
    bool fwd = op == DPB_OP_POOL_MAX_FWD || op == DPB_OP_POOL_AVG_FWD;
    int windows = args->kernel * args->kernel;
    const double *in =
            fwd ? dpb_ref_read_tensor(&arrays, &args->x) : dpb_ref_read_tensor(&arrays, &args->y);
    double *out =
            fwd ? dpb_ref_write_tensor(&arrays, &args->y) : dpb_ref_write_tensor(&arrays, &args->x);
    dpb_status st = DPB_OK;

    if (arrays.failed)
        return dpb_ref_finish(&arrays, DPB_OK);
    if (op == DPB_OP_POOL_MAX_FWD) {
        max_fwd(args, in, out, y_numel);
    } else if (op == DPB_OP_POOL_MAX_BWD) {
        st = max_bwd(args, out, in, y_numel);
    } else {
        for (int64_t at = 0; at < y_numel; at++) {
            for (int window = 0; window < windows; window++) {
                int64_t x_at = input_at(args, at, window);

                if (x_at >= 0 && fwd)
                    out[at] += in[x_at] / windows;
                else if (x_at >= 0)
                    out[x_at] += in[at] / windows;
            }
        }
    }
    return dpb_ref_finish(&arrays, st);
}

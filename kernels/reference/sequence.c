/* Layer normalisation, embedding. */
#include "reference_arrays.h"

#include <math.h>

/* Ba, Kiros, Hinton, "Layer normalization", 2016. */
static dpb_status layernorm_fwd(const struct dpb_layernorm_args *args)
{
    struct dpb_ref_arrays arrays = {.dtype = args->x.dtype};
    int64_t m = args->x.dim[0], n = args->x.dim[1];
    const double *x = dpb_ref_read_tensor(&arrays, &args->x);
    const double *gamma = dpb_ref_read(&arrays, args->gamma, n);
    const double *beta = dpb_ref_read(&arrays, args->beta, n);
    double *y = dpb_ref_write_tensor(&arrays, &args->y);
    double *mean = dpb_ref_write(&arrays, args->save_mean, m);
    double *rstd = dpb_ref_write(&arrays, args->save_rstd, m);

    for (int64_t i = 0; !arrays.failed && i < m; i++) {
        double var = 0.0;

        for (int64_t j = 0; j < n; j++)
            mean[i] += x[i * n + j] / (double)n;
        for (int64_t j = 0; j < n; j++)
            var += (x[i * n + j] - mean[i]) * (x[i * n + j] - mean[i]) / (double)n;
        rstd[i] = 1.0 / sqrt(var + (double)args->eps);
        for (int64_t j = 0; j < n; j++)
            y[i * n + j] = gamma[j] * (x[i * n + j] - mean[i]) * rstd[i] + beta[j];
    }
    return dpb_ref_finish(&arrays, DPB_OK);
}

static dpb_status layernorm_bwd(const struct dpb_layernorm_args *args)
{
    struct dpb_ref_arrays arrays = {.dtype = args->x.dtype};
    int64_t m = args->x.dim[0], n = args->x.dim[1];
    const double *x = dpb_ref_read_tensor(&arrays, &args->x);
    const double *dy = dpb_ref_read_tensor(&arrays, &args->dy);
    const double *gamma = dpb_ref_read(&arrays, args->gamma, n);
    const double *mean = dpb_ref_read(&arrays, args->save_mean, m);
    const double *rstd = dpb_ref_read(&arrays, args->save_rstd, m);
    double *dx = dpb_ref_write_tensor(&arrays, &args->dx);
    double *dgamma = dpb_ref_write(&arrays, args->dgamma, n);
    double *dbeta = dpb_ref_write(&arrays, args->dbeta, n);

    for (int64_t i = 0; !arrays.failed && i < m; i++) {
        double mean_g = 0.0, mean_gx = 0.0; /* of g and of g xhat */

        for (int64_t j = 0; j < n; j++) {
            double xhat = (x[i * n + j] - mean[i]) * rstd[i], g = gamma[j] * dy[i * n + j];

            dgamma[j] += dy[i * n + j] * xhat;
            dbeta[j] += dy[i * n + j];
            mean_g += g / (double)n;
            mean_gx += g * xhat / (double)n;
        }
        for (int64_t j = 0; j < n; j++) {
            double xhat = (x[i * n + j] - mean[i]) * rstd[i], g = gamma[j] * dy[i * n + j];

            dx[i * n + j] = rstd[i] * (g - mean_g - xhat * mean_gx);
        }
    }
    return dpb_ref_finish(&arrays, DPB_OK);
}

dpb_status dpb_ref_layernorm(enum dpb_op op, const void *args)
{
    return op == DPB_OP_LAYERNORM_FWD ? layernorm_fwd(args) : layernorm_bwd(args);
}

dpb_status dpb_ref_embedding(enum dpb_op op, const void *op_args)
{
    const struct dpb_embedding_args *args = op_args;
    bool fwd = op == DPB_OP_EMBEDDING_FWD;
    const struct dpb_tensor *from = fwd ? &args->table : &args->dy;
    const struct dpb_tensor *to = fwd ? &args->y : &args->dtable;
    int64_t m = (fwd ? to : from)->dim[0], n = from->dim[1];
    struct dpb_ref_arrays arrays = {.dtype = from->dtype};
    const double *in;
    double *out;

    DPB_TRY(dpb_op_ids_check(op, args->ids, m, (fwd ? from : to)->dim[0]));
    in = dpb_ref_read_tensor(&arrays, from);
    out = args->accumulate ? dpb_ref_update_tensor(&arrays, to) : dpb_ref_write_tensor(&arrays, to);
    for (int64_t i = 0; !arrays.failed && i < m; i++) {
        int64_t from_row = fwd ? args->ids[i] : i, to_row = fwd ? i : args->ids[i];

        for (int64_t j = 0; j < n; j++)
            out[to_row * n + j] += in[from_row * n + j];
    }
    return dpb_ref_finish(&arrays, DPB_OK);
}

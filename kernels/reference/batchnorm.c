/* Ioffe, Szegedy, "Batch Normalization", 2015; running statistics as PyTorch keeps them. */
#include "reference_arrays.h"

#include <math.h>

static dpb_status forward(const struct dpb_batchnorm_args *args)
{
    struct dpb_ref_arrays arrays = {.dtype = args->x.dtype};
    int64_t numel = dpb_tensor_numel(&args->x), c = args->x.dim[args->x.rank - 1], m = numel / c;
    const double *x = dpb_ref_read(&arrays, args->x.data, numel);
    const double *gamma = dpb_ref_read(&arrays, args->gamma, c);
    const double *beta = dpb_ref_read(&arrays, args->beta, c);
    double *y = dpb_ref_write(&arrays, args->y.data, numel);
    double *running_mean = dpb_ref_update(&arrays, args->running_mean, c);
    double *running_var = dpb_ref_update(&arrays, args->running_var, c);
    double *mean = dpb_ref_write(&arrays, args->training ? args->save_mean : NULL, c);
    double *var = dpb_ref_write(&arrays, args->training ? args->save_var : NULL, c);

    if (arrays.failed)
        return dpb_ref_finish(&arrays, DPB_OK);
    for (int64_t j = 0; j < c; j++) {
        double keep = 1.0 - (double)args->momentum;

        if (!args->training) {
            mean[j] = running_mean[j];
            var[j] = running_var[j];
            continue;
        }
        for (int64_t i = 0; i < m; i++)
            mean[j] += x[i * c + j] / (double)m;
        for (int64_t i = 0; i < m; i++)
            var[j] += (x[i * c + j] - mean[j]) * (x[i * c + j] - mean[j]) / (double)m;
        running_mean[j] = keep * running_mean[j] + (double)args->momentum * mean[j];
        running_var[j] = keep * running_var[j] +
                         (double)args->momentum * var[j] * (double)m / (double)(m - 1);
    }
    for (int64_t i = 0; i < numel; i++) {
        int64_t j = i % c;

        y[i] = gamma[j] * (x[i] - mean[j]) / sqrt(var[j] + (double)args->eps) + beta[j];
    }
    return dpb_ref_finish(&arrays, DPB_OK);
}

static dpb_status backward(const struct dpb_batchnorm_args *args)
{
    struct dpb_ref_arrays arrays = {.dtype = args->x.dtype};
    int64_t numel = dpb_tensor_numel(&args->x), c = args->x.dim[args->x.rank - 1], m = numel / c;
    const double *x = dpb_ref_read(&arrays, args->x.data, numel);
    const double *dy = dpb_ref_read(&arrays, args->dy.data, numel);
    const double *gamma = dpb_ref_read(&arrays, args->gamma, c);
    const double *mean = dpb_ref_read(&arrays, args->save_mean, c);
    const double *var = dpb_ref_read(&arrays, args->save_var, c);
    double *dx = dpb_ref_write(&arrays, args->dx.data, numel);
    double *dgamma = dpb_ref_write(&arrays, args->dgamma, c);
    double *dbeta = dpb_ref_write(&arrays, args->dbeta, c);

    if (arrays.failed)
        return dpb_ref_finish(&arrays, DPB_OK);
    for (int64_t i = 0; i < numel; i++) {
        int64_t j = i % c;

        dgamma[j] += dy[i] * (x[i] - mean[j]) / sqrt(var[j] + (double)args->eps);
        dbeta[j] += dy[i];
    }
    for (int64_t i = 0; i < numel; i++) {
        int64_t j = i % c;
        double inv_std = 1.0 / sqrt(var[j] + (double)args->eps);
        double xhat = (x[i] - mean[j]) * inv_std;

        dx[i] = gamma[j] * inv_std * (dy[i] - dbeta[j] / (double)m - xhat * dgamma[j] / (double)m);
    }
    return dpb_ref_finish(&arrays, DPB_OK);
}

dpb_status dpb_ref_batchnorm(enum dpb_op op, const void *args)
{
    return op == DPB_OP_BATCHNORM_FWD ? forward(args) : backward(args);
}

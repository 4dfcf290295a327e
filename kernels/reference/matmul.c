#include "reference_arrays.h"

dpb_status dpb_ref_matmul(enum dpb_op op, const void *op_args)
{
    const struct dpb_matmul_args *args = op_args;
    struct dpb_ref_arrays arrays = {.dtype = args->a.dtype};
    int64_t m = args->c.dim[0], n = args->c.dim[1], k = args->a.dim[args->trans_a ? 0 : 1];
    const double *a = dpb_ref_read_tensor(&arrays, &args->a);
    const double *b = dpb_ref_read_tensor(&arrays, &args->b);
    const double *bias = args->bias ? dpb_ref_read(&arrays, args->bias, n) : NULL;
    /* With beta 0, C is not read: it may hold anything. */
    double *c = args->beta == 0.0f ? dpb_ref_write_tensor(&arrays, &args->c)
                                   : dpb_ref_update_tensor(&arrays, &args->c);

    (void)op;
    if (arrays.failed)
        return dpb_ref_finish(&arrays, DPB_OK);
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
            double sum = (double)args->beta * c[i * n + j] + (bias ? bias[j] : 0.0);

            for (int64_t l = 0; l < k; l++)
                sum += a[args->trans_a ? l * m + i : i * k + l] *
                       b[args->trans_b ? j * k + l : l * n + j];
            c[i * n + j] = args->relu && sum < 0.0 ? 0.0 : sum;
        }
    }
    return dpb_ref_finish(&arrays, DPB_OK);
}

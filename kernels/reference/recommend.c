/* Dot interaction, sigmoid with binary cross-entropy. */
#include "reference_arrays.h"

#include <math.h>

/* Vector v of sample s: row s of x, then of each table. */
static int64_t at(const struct dpb_interaction_args *args, int64_t v, int64_t s)
{
    int64_t samples = args->x.dim[0], length = args->x.dim[1];

    return (v == 0 ? s : (v - 1) * samples + s) * length;
}

static double dot(const double *a, const double *b, int64_t count)
{
    double sum = 0.0;

    for (int64_t i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

static void add_scaled(double *to, const double *from, double factor, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] += factor * from[i];
}

dpb_status dpb_ref_interaction(enum dpb_op op, const void *op_args)
{
    const struct dpb_interaction_args *args = op_args;
    struct dpb_ref_arrays arrays = {.dtype = args->x.dtype};
    int64_t samples = args->x.dim[0], length = args->x.dim[1], tables = args->e.dim[0];
    int64_t columns = args->y.dim[1];
    bool fwd = op == DPB_OP_INTERACTION_FWD;
    const double *x = dpb_ref_read(&arrays, args->x.data, samples * length);
    const double *e = dpb_ref_read(&arrays, args->e.data, tables * samples * length);
    const double *dy = fwd ? NULL : dpb_ref_read(&arrays, args->y.data, samples * columns);
    double *y = fwd ? dpb_ref_write(&arrays, args->y.data, samples * columns) : NULL;
    double *dx = fwd ? NULL : dpb_ref_write(&arrays, args->dx.data, samples * length);
    double *de = fwd ? NULL : dpb_ref_write(&arrays, args->de.data, tables * samples * length);

    for (int64_t s = 0; !arrays.failed && s < samples; s++) {
        int64_t column = s * columns + length;

        for (int64_t d = 0; d < length; d++) {
            if (fwd)
                y[s * columns + d] = x[s * length + d];
            else
                dx[s * length + d] = dy[s * columns + d];
        }
        for (int64_t i = 1; i <= tables; i++) {
            for (int64_t j = 0; j < i; j++, column++) {
                const double *vi = e + at(args, i, s);
                const double *vj = (j == 0 ? x : e) + at(args, j, s);

                if (fwd) {
                    y[column] = dot(vi, vj, length);
                    continue;
                }
                add_scaled(de + at(args, i, s), vj, dy[column], length);
                add_scaled((j == 0 ? dx : de) + at(args, j, s), vi, dy[column], length);
            }
        }
    }
    return dpb_ref_finish(&arrays, DPB_OK);
}

dpb_status dpb_ref_sigmoid_bce(enum dpb_op op, const void *op_args)
{
    const struct dpb_sigmoid_bce_args *args = op_args;
    struct dpb_ref_arrays arrays = {.dtype = args->logits.dtype};
    int64_t count = dpb_tensor_numel(&args->logits);
    bool fwd = op == DPB_OP_SIGMOID_BCE_FWD;
    const double *z;
    double *out;

    DPB_TRY(dpb_binary_labels_check(args->label, count));
    z = dpb_ref_read(&arrays, args->logits.data, count);
    out = dpb_ref_write(&arrays, fwd ? (void *)args->loss : args->dlogits.data, count);
    for (int64_t i = 0; !arrays.failed && i < count; i++) {
        double decay = exp(-fabs(z[i])); /* at most 1, whatever the logit */

        if (fwd)
            out[i] = fmax(z[i], 0.0) - z[i] * args->label[i] + log1p(decay);
        else
            out[i] = ((z[i] < 0.0 ? decay : 1.0) / (1.0 + decay) - args->label[i]) *
                     (double)args->scale;
    }
    return dpb_ref_finish(&arrays, DPB_OK);
}

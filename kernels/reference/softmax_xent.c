#include "reference_arrays.h"

#include <math.h>

#include "dpb_log.h"

static dpb_status check_labels(const struct dpb_softmax_xent_args *args)
{
    int64_t classes = args->prob.dim[1];

    for (int64_t i = 0; i < args->prob.dim[0]; i++) {
        if (args->label[i] < 0 || args->label[i] >= classes) {
            dpb_error("label %d of sample %lld is not below the %lld classes", args->label[i],
                      (long long)i, (long long)classes);
            dpb_log_hint("check the data set against the model's number of classes");
            return DPB_ERR_USAGE;
        }
    }
    return DPB_OK;
}

dpb_status dpb_ref_softmax_xent(enum dpb_op op, const void *op_args)
{
    const struct dpb_softmax_xent_args *args = op_args;
    struct dpb_ref_arrays arrays = {.dtype = args->prob.dtype};
    int64_t m = args->prob.dim[0], c = args->prob.dim[1];
    bool fwd = op == DPB_OP_SOFTMAX_XENT_FWD;
    const double *in;
    double *out, *loss;

    DPB_TRY(check_labels(args));
    in = dpb_ref_read(&arrays, fwd ? args->logits.data : args->prob.data, m * c);
    out = dpb_ref_write(&arrays, fwd ? args->prob.data : args->dlogits.data, m * c);
    loss = fwd ? dpb_ref_write(&arrays, args->loss, m) : NULL;
    for (int64_t i = 0; !arrays.failed && i < m; i++) {
        const double *row = in + i * c;
        double highest = row[0], sum = 0.0;

        if (!fwd) {
            for (int64_t j = 0; j < c; j++)
                out[i * c + j] = (row[j] - (j == args->label[i])) * (double)args->scale;
            continue;
        }
        for (int64_t j = 1; j < c; j++)
            highest = row[j] > highest ? row[j] : highest;
        for (int64_t j = 0; j < c; j++)
            sum += exp(row[j] - highest);
        for (int64_t j = 0; j < c; j++)
            out[i * c + j] = exp(row[j] - highest) / sum;
        loss[i] = log(sum) - (row[args->label[i]] - highest);
    }
    return dpb_ref_finish(&arrays, DPB_OK);
}

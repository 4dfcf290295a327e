#include "reference_arrays.h"

#include <stdlib.h>

#include "dpb_log.h"

static double *add(struct dpb_ref_arrays *arrays, void *to, int64_t numel)
{
    double *values;

    if (arrays->failed)
        return NULL;
    values = calloc((size_t)numel, sizeof(*values));
    if (!values) {
        arrays->failed = true;
        return NULL;
    }
    arrays->item[arrays->count].values = values;
    arrays->item[arrays->count].to = to;
    arrays->item[arrays->count].numel = numel;
    arrays->count++;
    return values;
}

static void load(double *values, enum dpb_dtype dtype, const void *from, int64_t numel)
{
    for (int64_t i = 0; i < numel; i++)
        values[i] = dtype == DPB_F64 ? ((const double *)from)[i] : (double)((const float *)from)[i];
}

static void store(void *to, enum dpb_dtype dtype, const double *values, int64_t numel)
{
    for (int64_t i = 0; i < numel; i++) {
        if (dtype == DPB_F64)
            ((double *)to)[i] = values[i];
        else
            ((float *)to)[i] = (float)values[i];
    }
}

const double *dpb_ref_read(struct dpb_ref_arrays *arrays, const void *from, int64_t numel)
{
    double *values = add(arrays, NULL, numel);

    if (values)
        load(values, arrays->dtype, from, numel);
    return values;
}

double *dpb_ref_write(struct dpb_ref_arrays *arrays, void *to, int64_t numel)
{
    return add(arrays, to, numel);
}

double *dpb_ref_update(struct dpb_ref_arrays *arrays, void *to, int64_t numel)
{
    double *values = add(arrays, to, numel);

    if (values)
        load(values, arrays->dtype, to, numel);
    return values;
}

dpb_status dpb_ref_finish(struct dpb_ref_arrays *arrays, dpb_status st)
{
    if (arrays->failed) {
        dpb_error("out of memory for the reference of an operator");
        dpb_log_hint("the reference keeps every tensor in double: take a smaller batch");
        st = DPB_ERR_NO_MEMORY;
    }
    for (int i = 0; i < arrays->count; i++) {
        if (st == DPB_OK && arrays->item[i].to)
            store(arrays->item[i].to, arrays->dtype, arrays->item[i].values, arrays->item[i].numel);
        free(arrays->item[i].values);
    }
    return st;
}

typedef dpb_status (*reference)(enum dpb_op op, const void *args);

static const reference references[] = {
        [DPB_OP_MATMUL] = dpb_ref_matmul,
        [DPB_OP_CONV_FWD] = dpb_ref_conv,
        [DPB_OP_CONV_BWD_DATA] = dpb_ref_conv,
        [DPB_OP_CONV_BWD_WEIGHTS] = dpb_ref_conv,
        [DPB_OP_POOL_MAX_FWD] = dpb_ref_pool,
        [DPB_OP_POOL_MAX_BWD] = dpb_ref_pool,
        [DPB_OP_POOL_AVG_FWD] = dpb_ref_pool,
        [DPB_OP_POOL_AVG_BWD] = dpb_ref_pool,
        [DPB_OP_RELU_FWD] = dpb_ref_relu,
        [DPB_OP_RELU_BWD] = dpb_ref_relu,
        [DPB_OP_BIAS_FWD] = dpb_ref_bias,
        [DPB_OP_BIAS_BWD] = dpb_ref_bias,
        [DPB_OP_BATCHNORM_FWD] = dpb_ref_batchnorm,
        [DPB_OP_BATCHNORM_BWD] = dpb_ref_batchnorm,
        [DPB_OP_SOFTMAX_XENT_FWD] = dpb_ref_softmax_xent,
        [DPB_OP_SOFTMAX_XENT_BWD] = dpb_ref_softmax_xent,
        [DPB_OP_INTERACTION_FWD] = dpb_ref_interaction,
        [DPB_OP_INTERACTION_BWD] = dpb_ref_interaction,
        [DPB_OP_SIGMOID_BCE_FWD] = dpb_ref_sigmoid_bce,
        [DPB_OP_SIGMOID_BCE_BWD] = dpb_ref_sigmoid_bce,
        [DPB_OP_SGD_MOMENTUM] = dpb_ref_sgd,
        [DPB_OP_ADAMW] = dpb_ref_adam,
        [DPB_OP_LAMB] = dpb_ref_adam,
        [DPB_OP_LARS] = dpb_ref_lars,
        [DPB_OP_ADAGRAD] = dpb_ref_adagrad,
        [DPB_OP_ROWWISE_ADAGRAD] = dpb_ref_adagrad,
        [DPB_OP_SCALE] = dpb_ref_scale,
};

_Static_assert(sizeof(references) / sizeof(references[0]) == DPB_OP_COUNT,
               "an operator is missing");

dpb_status dpb_reference_op(enum dpb_op op, const void *args)
{
    DPB_TRY(dpb_op_args_check(op, args));
    return references[op](op, args);
}

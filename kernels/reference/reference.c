#include "reference_arrays.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"

static double *add(struct dpb_ref_arrays *arrays, enum dpb_dtype dtype, void *to, int64_t rows,
                   int64_t columns, int64_t stride)
{
    double *values;

    if (arrays->failed)
        return NULL;
    values = calloc((size_t)(rows * columns), sizeof(*values));
    if (!values) {
        arrays->failed = true;
        return NULL;
    }
    arrays->item[arrays->count].values = values;
    arrays->item[arrays->count].dtype = dtype;
    arrays->item[arrays->count].to = to;
    arrays->item[arrays->count].rows = rows;
    arrays->item[arrays->count].columns = columns;
    arrays->item[arrays->count].stride = stride;
    arrays->count++;
    return values;
}

/* bf16 is the upper half of an fp32. */
static double from_bf16(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float value;

    memcpy(&value, &bits, sizeof(value));
    return (double)value;
}

/* To nearest, ties to even: the spacing of the 8 bits' significands around `value` is 2^(e - 8), at
 * least that of the subnormal numbers, 2^-133. */
static uint16_t to_bf16(double value)
{
    uint32_t bits;
    float rounded;
    int e = 0;

    if (isfinite(value)) {
        frexp(value, &e);
        e = e < -125 ? -125 : e;
        value = ldexp(nearbyint(ldexp(value, 8 - e)), e - 8);
    }
    rounded = (float)value;
    memcpy(&bits, &rounded, sizeof(bits));
    return (uint16_t)(bits >> 16);
}

static double from_fp16(uint16_t half)
{
    int exponent = half >> 10 & 0x1f, fraction = half & 0x3ff;
    double magnitude = exponent == 0    ? ldexp(fraction, -24)
                       : exponent == 31 ? (fraction ? NAN : INFINITY)
                                        : ldexp(0x400 + fraction, exponent - 25);

    return half & 0x8000 ? -magnitude : magnitude;
}

/* As to_bf16(), with 11 bits and subnormal numbers in steps of 2^-24; from 65520 on infinite. */
static uint16_t to_fp16(double value)
{
    unsigned sign = signbit(value) ? 0x8000u : 0u;
    double magnitude = fabs(value);
    int e = 0;

    if (isnan(value))
        return (uint16_t)(sign | 0x7e00u);
    if (magnitude >= 65520.0)
        return (uint16_t)(sign | 0x7c00u);
    frexp(magnitude, &e);
    e = magnitude < 0x1p-14 ? -13 : e; /* 0 too */
    /* The steps of one binade fill it: a carry goes into the exponent by itself. */
    return (uint16_t)(sign |
                      (unsigned)((e + 13) * 0x400 + (int)nearbyint(ldexp(magnitude, 11 - e))));
}

static void load(double *values, enum dpb_dtype dtype, const void *from, int64_t rows,
                 int64_t columns, int64_t stride)
{
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < columns; j++) {
            int64_t at = i * stride + j;

            *values++ = dtype == DPB_F64    ? ((const double *)from)[at]
                        : dtype == DPB_BF16 ? from_bf16(((const uint16_t *)from)[at])
                        : dtype == DPB_F16  ? from_fp16(((const uint16_t *)from)[at])
                                            : (double)((const float *)from)[at];
        }
    }
}

static void store(void *to, enum dpb_dtype dtype, const double *values, int64_t rows,
                  int64_t columns, int64_t stride)
{
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < columns; j++) {
            int64_t at = i * stride + j;

            if (dtype == DPB_F64)
                ((double *)to)[at] = *values++;
            else if (dtype == DPB_BF16)
                ((uint16_t *)to)[at] = to_bf16(*values++);
            else if (dtype == DPB_F16)
                ((uint16_t *)to)[at] = to_fp16(*values++);
            else
                ((float *)to)[at] = (float)*values++;
        }
    }
}

const double *dpb_ref_read_rows(struct dpb_ref_arrays *arrays, const struct dpb_tensor *from,
                                int64_t rows, int64_t columns, int64_t stride)
{
    double *values = add(arrays, from->dtype, NULL, rows, columns, stride);

    if (values)
        load(values, from->dtype, from->data, rows, columns, stride);
    return values;
}

double *dpb_ref_write_rows(struct dpb_ref_arrays *arrays, const struct dpb_tensor *to, int64_t rows,
                           int64_t columns, int64_t stride)
{
    return add(arrays, to->dtype, to->data, rows, columns, stride);
}

const double *dpb_ref_read_tensor(struct dpb_ref_arrays *arrays, const struct dpb_tensor *from)
{
    int64_t numel = dpb_tensor_numel(from);

    return dpb_ref_read_rows(arrays, from, 1, numel, numel);
}

double *dpb_ref_write_tensor(struct dpb_ref_arrays *arrays, const struct dpb_tensor *to)
{
    int64_t numel = dpb_tensor_numel(to);

    return dpb_ref_write_rows(arrays, to, 1, numel, numel);
}

double *dpb_ref_update_tensor(struct dpb_ref_arrays *arrays, const struct dpb_tensor *to)
{
    double *values = dpb_ref_write_tensor(arrays, to);

    if (values)
        load(values, to->dtype, to->data, 1, dpb_tensor_numel(to), 0);
    return values;
}

static enum dpb_dtype of_numbers(const struct dpb_ref_arrays *arrays)
{
    return arrays->dtype == DPB_F64 ? DPB_F64 : DPB_F32;
}

const double *dpb_ref_read(struct dpb_ref_arrays *arrays, const void *from, int64_t numel)
{
    double *values = add(arrays, of_numbers(arrays), NULL, 1, numel, numel);

    if (values)
        load(values, of_numbers(arrays), from, 1, numel, numel);
    return values;
}

double *dpb_ref_write(struct dpb_ref_arrays *arrays, void *to, int64_t numel)
{
    return add(arrays, of_numbers(arrays), to, 1, numel, numel);
}

double *dpb_ref_update(struct dpb_ref_arrays *arrays, void *to, int64_t numel)
{
    double *values = dpb_ref_write(arrays, to, numel);

    if (values)
        load(values, of_numbers(arrays), to, 1, numel, numel);
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
            store(arrays->item[i].to, arrays->item[i].dtype, arrays->item[i].values,
                  arrays->item[i].rows, arrays->item[i].columns, arrays->item[i].stride);
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
        [DPB_OP_BATCHNORM_STATS] = dpb_ref_batchnorm,
        [DPB_OP_BATCHNORM_APPLY] = dpb_ref_batchnorm,
        [DPB_OP_BATCHNORM_BWD_SUMS] = dpb_ref_batchnorm,
        [DPB_OP_BATCHNORM_BWD_APPLY] = dpb_ref_batchnorm,
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
        [DPB_OP_FINITE] = dpb_ref_finite,
        [DPB_OP_CAST] = dpb_ref_cast,
        [DPB_OP_ADD] = dpb_ref_add,
        [DPB_OP_ORTHOGONALIZE] = dpb_ref_orthogonalize,
        [DPB_OP_GELU_FWD] = dpb_ref_gelu,
        [DPB_OP_GELU_BWD] = dpb_ref_gelu,
        [DPB_OP_TANH_FWD] = dpb_ref_tanh,
        [DPB_OP_TANH_BWD] = dpb_ref_tanh,
        [DPB_OP_DROPOUT_FWD] = dpb_ref_dropout,
        [DPB_OP_DROPOUT_BWD] = dpb_ref_dropout,
        [DPB_OP_LAYERNORM_FWD] = dpb_ref_layernorm,
        [DPB_OP_LAYERNORM_BWD] = dpb_ref_layernorm,
        [DPB_OP_EMBEDDING_FWD] = dpb_ref_embedding,
        [DPB_OP_EMBEDDING_BWD] = dpb_ref_embedding,
        [DPB_OP_ATTENTION_FWD] = dpb_ref_attention,
        [DPB_OP_ATTENTION_BWD] = dpb_ref_attention,
};

_Static_assert(sizeof(references) / sizeof(references[0]) == DPB_OP_COUNT,
               "an operator is missing");

dpb_status dpb_reference_op(enum dpb_op op, const void *args)
{
    DPB_TRY(dpb_op_args_check(op, args));
    return references[op](op, args);
}

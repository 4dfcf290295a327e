/* Our own loops: cast, sum, ReLU, bias, scale, softmax with cross-entropy. Written so that the
 * compiler vectorises them; they are limited by memory. Threads split elements, columns or rows,
 * never a sum, so the number of threads does not change a bit. */
#include <math.h>
#include <string.h>

#include "bf16.h"
#include "dpb_log.h"
#include "vector_exp.h"

#define GRAIN 16384 /* elements worth waking a thread for */

DPB_CPU_LOOP relu_fwd(void *ctx, int64_t begin, int64_t end, bool bf16)
{
    const struct dpb_relu_args *a = ctx;

    for (int64_t i = begin; i < end; i++) {
        float x = dpb_cpu_load(a->x.data, i, bf16);

        dpb_cpu_store(a->y.data, i, x > 0.0f ? x : 0.0f, bf16);
    }
}
DPB_CPU_BY_TYPE(relu_fwd)

DPB_CPU_LOOP relu_bwd(void *ctx, int64_t begin, int64_t end, bool bf16)
{
    const struct dpb_relu_args *a = ctx;

    for (int64_t i = begin; i < end; i++) {
        /* read always: a load under a condition does not vectorise */
        float gradient = dpb_cpu_load(a->dy.data, i, bf16), y = dpb_cpu_load(a->y.data, i, bf16);

        dpb_cpu_store(a->dx.data, i, y > 0.0f ? gradient : 0.0f, bf16);
    }
}
DPB_CPU_BY_TYPE(relu_bwd)

dpb_status dpb_cpu_relu(dpb_device *device, enum dpb_op op, const void *args)
{
    struct dpb_relu_args a = *(const struct dpb_relu_args *)args;
    bool bf16 = a.y.dtype == DPB_BF16;
    dpb_cpu_body fwd = bf16 ? relu_fwd_bf16 : relu_fwd_f32;
    dpb_cpu_body bwd = bf16 ? relu_bwd_bf16 : relu_bwd_f32;

    dpb_cpu_parallel(device->threads, dpb_tensor_numel(&a.y), GRAIN,
                     op == DPB_OP_RELU_FWD ? fwd : bwd, &a);
    return DPB_OK;
}

DPB_CPU_CLONES static void narrow(void *ctx, int64_t begin, int64_t end)
{
    const struct dpb_cast_args *a = ctx;
    const float *from = a->from.data;
    uint16_t *to = a->to.data;

    for (int64_t i = begin; i < end; i++)
        to[i] = dpb_cpu_to_bf16(from[i]);
}

DPB_CPU_CLONES static void widen(void *ctx, int64_t begin, int64_t end)
{
    const struct dpb_cast_args *a = ctx;
    const uint16_t *from = a->from.data;
    float *to = a->to.data;

    for (int64_t i = begin; i < end; i++)
        to[i] = dpb_cpu_from_bf16(from[i]);
}

DPB_CPU_CLONES static void narrow_fp16(void *ctx, int64_t begin, int64_t end)
{
    const struct dpb_cast_args *a = ctx;
    const float *from = a->from.data;
    uint16_t *to = a->to.data;

    for (int64_t i = begin; i < end; i++)
        to[i] = dpb_cpu_to_fp16(from[i]);
}

DPB_CPU_CLONES static void widen_fp16(void *ctx, int64_t begin, int64_t end)
{
    const struct dpb_cast_args *a = ctx;
    const uint16_t *from = a->from.data;
    float *to = a->to.data;

    for (int64_t i = begin; i < end; i++)
        to[i] = dpb_cpu_from_fp16(from[i]);
}

static void copy(void *ctx, int64_t begin, int64_t end)
{
    const struct dpb_cast_args *a = ctx;
    size_t bytes = dpb_dtype_bytes(a->from.dtype);

    memmove((char *)a->to.data + (size_t)begin * bytes,
            (const char *)a->from.data + (size_t)begin * bytes, (size_t)(end - begin) * bytes);
}

dpb_status dpb_cpu_cast(dpb_device *device, enum dpb_op op, const void *args)
{
    struct dpb_cast_args a = *(const struct dpb_cast_args *)args;

    (void)op;
    dpb_cpu_parallel(device->threads, dpb_tensor_numel(&a.from), GRAIN,
                     a.from.dtype == a.to.dtype ? copy
                     : a.to.dtype == DPB_BF16   ? narrow
                     : a.to.dtype == DPB_F16    ? narrow_fp16
                     : a.from.dtype == DPB_BF16 ? widen
                                                : widen_fp16,
                     &a);
    return DPB_OK;
}

DPB_CPU_LOOP add(void *ctx, int64_t begin, int64_t end, bool bf16)
{
    const struct dpb_add_args *a = ctx;

    for (int64_t i = begin; i < end; i++)
        dpb_cpu_store(a->y.data, i,
                      dpb_cpu_load(a->a.data, i, bf16) + dpb_cpu_load(a->b.data, i, bf16), bf16);
}
DPB_CPU_BY_TYPE(add)

DPB_CPU_LOOP add_relu(void *ctx, int64_t begin, int64_t end, bool bf16)
{
    const struct dpb_add_args *a = ctx;

    for (int64_t i = begin; i < end; i++) {
        float sum = dpb_cpu_load(a->a.data, i, bf16) + dpb_cpu_load(a->b.data, i, bf16);

        dpb_cpu_store(a->y.data, i, sum > 0.0f ? sum : 0.0f, bf16);
    }
}
DPB_CPU_BY_TYPE(add_relu)

dpb_status dpb_cpu_add(dpb_device *device, enum dpb_op op, const void *args)
{
    struct dpb_add_args a = *(const struct dpb_add_args *)args;
    bool bf16 = a.y.dtype == DPB_BF16;
    dpb_cpu_body plain = bf16 ? add_bf16 : add_f32, relu = bf16 ? add_relu_bf16 : add_relu_f32;

    (void)op;
    dpb_cpu_parallel(device->threads, dpb_tensor_numel(&a.y), GRAIN, a.relu ? relu : plain, &a);
    return DPB_OK;
}

/* Rows of y. */
DPB_CPU_LOOP bias_fwd(void *ctx, int64_t begin, int64_t end, bool bf16)
{
    const struct dpb_bias_args *a = ctx;
    int64_t n = a->y.dim[1];
    const float *bias = a->bias;

    for (int64_t at = begin * n; at < end * n; at += n)
        for (int64_t j = 0; j < n; j++)
            dpb_cpu_store(a->y.data, at + j, dpb_cpu_load(a->x.data, at + j, bf16) + bias[j], bf16);
}
DPB_CPU_BY_TYPE(bias_fwd)

#define COLUMNS 64
#define ROWS    256

/* Columns of y. Sums of ROWS rows each, then their sum: the rounding error of a long column grows
 * with the root of the rows' number only. */
DPB_CPU_LOOP bias_bwd(void *ctx, int64_t begin, int64_t end, bool bf16)
{
    const struct dpb_bias_args *a = ctx;
    int64_t m = a->y.dim[0], n = a->y.dim[1];
    float total[COLUMNS], part[COLUMNS];

    for (int64_t j0 = begin; j0 < end; j0 += COLUMNS) {
        int count = end - j0 < COLUMNS ? (int)(end - j0) : COLUMNS;

        memset(total, 0, sizeof(total));
        for (int64_t i0 = 0; i0 < m; i0 += ROWS) {
            int64_t i_end = i0 + ROWS < m ? i0 + ROWS : m;

            memset(part, 0, sizeof(part));
            for (int64_t i = i0; i < i_end; i++)
                for (int j = 0; j < count; j++)
                    part[j] += dpb_cpu_load(a->y.data, i * n + j0 + j, bf16);
            for (int j = 0; j < count; j++)
                total[j] += part[j];
        }
        memcpy(a->bias + j0, total, (size_t)count * sizeof(total[0]));
    }
}
DPB_CPU_BY_TYPE(bias_bwd)

dpb_status dpb_cpu_bias(dpb_device *device, enum dpb_op op, const void *args)
{
    struct dpb_bias_args a = *(const struct dpb_bias_args *)args;
    int64_t m = a.y.dim[0], n = a.y.dim[1];
    bool bf16 = a.y.dtype == DPB_BF16;

    if (op == DPB_OP_BIAS_FWD)
        dpb_cpu_parallel(device->threads, m, GRAIN / n + 1, bf16 ? bias_fwd_bf16 : bias_fwd_f32,
                         &a);
    else
        dpb_cpu_parallel(device->threads, n, GRAIN / m + 16, bf16 ? bias_bwd_bf16 : bias_bwd_f32,
                         &a);
    return DPB_OK;
}

DPB_CPU_CLONES static void scale(void *ctx, int64_t begin, int64_t end)
{
    const struct dpb_scale_args *a = ctx;
    float *x = a->x, factor = a->factor;

    for (int64_t i = begin; i < end; i++)
        x[i] *= factor;
}

dpb_status dpb_cpu_scale(dpb_device *device, enum dpb_op op, const void *args)
{
    struct dpb_scale_args a = *(const struct dpb_scale_args *)args;

    (void)op;
    dpb_cpu_parallel(device->threads, a.count, GRAIN, scale, &a);
    return DPB_OK;
}

/* All bits of an exponent are set in what is infinite or not a number, and in nothing else. */
DPB_CPU_CLONES static void seek_not_finite(void *ctx, int64_t begin, int64_t end)
{
    const struct dpb_finite_args *a = ctx;
    const float *x = a->x;
    uint32_t found = 0;

#pragma omp simd reduction(| : found)
    for (int64_t i = begin; i < end; i++) {
        uint32_t bits;

        memcpy(&bits, &x[i], sizeof(bits));
        found |= (bits & UINT32_C(0x7f800000)) == UINT32_C(0x7f800000);
    }
    if (found)
        __atomic_store_n(a->found, 1, __ATOMIC_RELAXED);
}

dpb_status dpb_cpu_finite(dpb_device *device, enum dpb_op op, const void *args)
{
    struct dpb_finite_args a = *(const struct dpb_finite_args *)args;

    (void)op;
    dpb_cpu_parallel(device->threads, a.count, GRAIN, seek_not_finite, &a);
    return DPB_OK;
}

/* Rows. The sum is in double: a vocabulary has 50,000 terms. */
DPB_CPU_CLONES static void softmax_xent_fwd(void *ctx, int64_t begin, int64_t end)
{
    const struct dpb_softmax_xent_args *a = ctx;
    int64_t n = a->prob.dim[1];

    for (int64_t i = begin; i < end; i++) {
        const float *logits = (const float *)a->logits.data + i * n;
        float *prob = (float *)a->prob.data + i * n;
        float highest = logits[0], of_label = logits[a->label[i]], inverse;
        double sum = 0.0;

#pragma omp simd reduction(max : highest)
        for (int64_t j = 1; j < n; j++)
            highest = logits[j] > highest ? logits[j] : highest;
#pragma omp simd
        for (int64_t j = 0; j < n; j++)
            prob[j] = dpb_cpu_exp(logits[j] - highest);
#pragma omp simd reduction(+ : sum)
        for (int64_t j = 0; j < n; j++)
            sum += (double)prob[j];
        inverse = (float)(1.0 / sum);
        for (int64_t j = 0; j < n; j++)
            prob[j] *= inverse;
        a->loss[i] = (float)(log(sum) - (double)(of_label - highest));
    }
}

DPB_CPU_CLONES static void softmax_xent_bwd(void *ctx, int64_t begin, int64_t end)
{
    const struct dpb_softmax_xent_args *a = ctx;
    int64_t n = a->prob.dim[1];
    float factor = a->scale;

    for (int64_t i = begin; i < end; i++) {
        const float *prob = (const float *)a->prob.data + i * n;
        float *dlogits = (float *)a->dlogits.data + i * n;
        float of_label = (prob[a->label[i]] - 1.0f) * factor;

        for (int64_t j = 0; j < n; j++)
            dlogits[j] = prob[j] * factor;
        dlogits[a->label[i]] = of_label;
    }
}

dpb_status dpb_cpu_softmax_xent(dpb_device *device, enum dpb_op op, const void *args)
{
    struct dpb_softmax_xent_args a = *(const struct dpb_softmax_xent_args *)args;
    int64_t m = a.prob.dim[0], n = a.prob.dim[1];

    for (int64_t i = 0; i < m; i++) {
        if (a.label[i] < 0 || a.label[i] >= n) {
            dpb_error("label %d of sample %lld is not below the %lld classes", a.label[i],
                      (long long)i, (long long)n);
            dpb_log_hint("check the data set against the model's number of classes");
            return DPB_ERR_USAGE;
        }
    }
    dpb_cpu_parallel(device->threads, m, GRAIN / n + 1,
                     op == DPB_OP_SOFTMAX_XENT_FWD ? softmax_xent_fwd : softmax_xent_bwd, &a);
    return DPB_OK;
}

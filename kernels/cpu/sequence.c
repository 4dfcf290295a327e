/* Layer normalisation and embedding: our own loops. Threads split rows or columns, never a sum, so
 * the number of threads does not change a bit. */
#include "bf16.h"

#include <math.h>

#define GRAIN   16384 /* elements worth waking a thread for */
#define COLUMNS 64
#define ROWS    256

static inline void *row_of(const struct dpb_tensor *x, int64_t row, bool bf16)
{
    return (char *)x->data + row * x->dim[1] * (bf16 ? 2 : 4);
}

/* ---- layer normalisation ---- */

/* Rows. */
DPB_CPU_LOOP layernorm_fwd(void *ctx, int64_t begin, int64_t end, bool bf16)
{
    const struct dpb_layernorm_args *a = ctx;
    int64_t n = a->x.dim[1];
    const float *gamma = a->gamma, *beta = a->beta;

    for (int64_t i = begin; i < end; i++) {
        const void *x = row_of(&a->x, i, bf16);
        void *y = row_of(&a->y, i, bf16);
        float sum = 0.0f, squares = 0.0f, mean, rstd;

#pragma omp simd reduction(+ : sum)
        for (int64_t j = 0; j < n; j++)
            sum += dpb_cpu_load(x, j, bf16);
        mean = sum / (float)n;
#pragma omp simd reduction(+ : squares)
        for (int64_t j = 0; j < n; j++) {
            float above = dpb_cpu_load(x, j, bf16) - mean;

            squares += above * above;
        }
        rstd = 1.0f / sqrtf(squares / (float)n + a->eps);
        for (int64_t j = 0; j < n; j++)
            dpb_cpu_store(y, j, gamma[j] * ((dpb_cpu_load(x, j, bf16) - mean) * rstd) + beta[j],
                          bf16);
        if (a->save_mean) {
            a->save_mean[i] = mean;
            a->save_rstd[i] = rstd;
        }
    }
}

/* Columns. Sums of ROWS rows each, then their sum, as in bias_bwd(). */
DPB_CPU_LOOP layernorm_bwd_columns(void *ctx, int64_t begin, int64_t end, bool bf16)
{
    const struct dpb_layernorm_args *a = ctx;
    int64_t m = a->x.dim[0];
    float dgamma[COLUMNS], dbeta[COLUMNS], dgamma_part[COLUMNS], dbeta_part[COLUMNS];

    for (int64_t j0 = begin; j0 < end; j0 += COLUMNS) {
        int count = end - j0 < COLUMNS ? (int)(end - j0) : COLUMNS;

        memset(dgamma, 0, sizeof(dgamma));
        memset(dbeta, 0, sizeof(dbeta));
        for (int64_t i0 = 0; i0 < m; i0 += ROWS) {
            int64_t i_end = i0 + ROWS < m ? i0 + ROWS : m;

            memset(dgamma_part, 0, sizeof(dgamma_part));
            memset(dbeta_part, 0, sizeof(dbeta_part));
            for (int64_t i = i0; i < i_end; i++) {
                const void *x = row_of(&a->x, i, bf16), *dy = row_of(&a->dy, i, bf16);
                float mean = a->save_mean[i], rstd = a->save_rstd[i];

                for (int j = 0; j < count; j++) {
                    float d = dpb_cpu_load(dy, j0 + j, bf16);

                    dgamma_part[j] += d * ((dpb_cpu_load(x, j0 + j, bf16) - mean) * rstd);
                    dbeta_part[j] += d;
                }
            }
            for (int j = 0; j < count; j++) {
                dgamma[j] += dgamma_part[j];
                dbeta[j] += dbeta_part[j];
            }
        }
        memcpy(a->dgamma + j0, dgamma, (size_t)count * sizeof(dgamma[0]));
        memcpy(a->dbeta + j0, dbeta, (size_t)count * sizeof(dbeta[0]));
    }
}

/* Rows. */
DPB_CPU_LOOP layernorm_bwd_rows(void *ctx, int64_t begin, int64_t end, bool bf16)
{
    const struct dpb_layernorm_args *a = ctx;
    int64_t n = a->x.dim[1];
    const float *gamma = a->gamma;

    for (int64_t i = begin; i < end; i++) {
        const void *x = row_of(&a->x, i, bf16), *dy = row_of(&a->dy, i, bf16);
        void *dx = row_of(&a->dx, i, bf16);
        float mean = a->save_mean[i], rstd = a->save_rstd[i], sum_g = 0.0f, sum_gx = 0.0f;

#pragma omp simd reduction(+ : sum_g, sum_gx)
        for (int64_t j = 0; j < n; j++) {
            float g = gamma[j] * dpb_cpu_load(dy, j, bf16);

            sum_g += g;
            sum_gx += g * ((dpb_cpu_load(x, j, bf16) - mean) * rstd);
        }
        sum_g /= (float)n;
        sum_gx /= (float)n;
        for (int64_t j = 0; j < n; j++) {
            float xhat = (dpb_cpu_load(x, j, bf16) - mean) * rstd;

            dpb_cpu_store(dx, j,
                          rstd * (gamma[j] * dpb_cpu_load(dy, j, bf16) - sum_g - xhat * sum_gx),
                          bf16);
        }
    }
}

DPB_CPU_BY_TYPE(layernorm_fwd)
DPB_CPU_BY_TYPE(layernorm_bwd_columns)
DPB_CPU_BY_TYPE(layernorm_bwd_rows)

dpb_status dpb_cpu_layernorm(dpb_device *device, enum dpb_op op, const void *args)
{
    struct dpb_layernorm_args a = *(const struct dpb_layernorm_args *)args;
    int64_t m = a.x.dim[0], n = a.x.dim[1], rows_grain = GRAIN / n + 1;
    bool bf16 = a.x.dtype == DPB_BF16;

    if (op == DPB_OP_LAYERNORM_FWD) {
        dpb_cpu_parallel(device->threads, m, rows_grain,
                         bf16 ? layernorm_fwd_bf16 : layernorm_fwd_f32, &a);
        return DPB_OK;
    }
    /* Columns first: they need dy, which dx may overwrite. */
    dpb_cpu_parallel(device->threads, n, GRAIN / m + 16,
                     bf16 ? layernorm_bwd_columns_bf16 : layernorm_bwd_columns_f32, &a);
    dpb_cpu_parallel(device->threads, m, rows_grain,
                     bf16 ? layernorm_bwd_rows_bf16 : layernorm_bwd_rows_f32, &a);
    return DPB_OK;
}

/* ---- embedding ---- */

/* The table's element type. */
DPB_CPU_LOOP look_up(const struct dpb_embedding_args *a, int64_t begin, int64_t end, bool from_bf16,
                     bool bf16)
{
    int64_t n = a->y.dim[1];

    for (int64_t i = begin; i < end; i++) {
        const void *from = row_of(&a->table, a->ids[i], from_bf16);
        void *to = row_of(&a->y, i, bf16);

        if (a->accumulate) {
            for (int64_t j = 0; j < n; j++)
                dpb_cpu_store(to, j, dpb_cpu_load(to, j, bf16) + dpb_cpu_load(from, j, from_bf16),
                              bf16);
        } else if (from_bf16 == bf16) {
            memcpy(to, from, (size_t)n * (bf16 ? sizeof(uint16_t) : sizeof(float)));
        } else {
            for (int64_t j = 0; j < n; j++)
                dpb_cpu_store(to, j, dpb_cpu_load(from, j, from_bf16), bf16);
        }
    }
}

/* Rows of y. */
DPB_CPU_LOOP embedding_fwd(void *ctx, int64_t begin, int64_t end, bool bf16)
{
    const struct dpb_embedding_args *a = ctx;

    if (bf16 && a->table.dtype == DPB_BF16)
        look_up(a, begin, end, true, true);
    else
        look_up(a, begin, end, false, bf16);
}

/* Columns: every thread goes through all numbers, for the rows' part that is its own. */
DPB_CPU_LOOP embedding_bwd(void *ctx, int64_t begin, int64_t end, bool bf16)
{
    const struct dpb_embedding_args *a = ctx;
    int64_t m = a->dy.dim[0];

    for (int64_t i = 0; i < m; i++) {
        const void *from = row_of(&a->dy, i, bf16);
        float *to = row_of(&a->dtable, a->ids[i], false);

        for (int64_t j = begin; j < end; j++)
            to[j] += dpb_cpu_load(from, j, bf16);
    }
}

DPB_CPU_BY_TYPE(embedding_fwd)
DPB_CPU_BY_TYPE(embedding_bwd)

/* Elements. */
static void clear(void *ctx, int64_t begin, int64_t end)
{
    memset((float *)ctx + begin, 0, (size_t)(end - begin) * sizeof(float));
}

dpb_status dpb_cpu_embedding(dpb_device *device, enum dpb_op op, const void *args)
{
    struct dpb_embedding_args a = *(const struct dpb_embedding_args *)args;
    bool fwd = op == DPB_OP_EMBEDDING_FWD;
    bool bf16 = (fwd ? a.y.dtype : a.dy.dtype) == DPB_BF16;
    int64_t m = fwd ? a.y.dim[0] : a.dy.dim[0], n = fwd ? a.y.dim[1] : a.dy.dim[1];

    DPB_TRY(dpb_op_ids_check(op, a.ids, m, fwd ? a.table.dim[0] : a.dtable.dim[0]));
    if (fwd) {
        dpb_cpu_parallel(device->threads, m, GRAIN / n + 1,
                         bf16 ? embedding_fwd_bf16 : embedding_fwd_f32, &a);
        return DPB_OK;
    }
    if (!a.accumulate)
        dpb_cpu_parallel(device->threads, dpb_tensor_numel(&a.dtable), GRAIN, clear, a.dtable.data);
    dpb_cpu_parallel(device->threads, n, GRAIN / m + 16,
                     bf16 ? embedding_bwd_bf16 : embedding_bwd_f32, &a);
    return DPB_OK;
}

/* Layer normalisation and embedding: our own loops. Threads split rows or columns, never a sum, so
 * the number of threads does not change a bit. */
#include "cpu_device.h"

#include <math.h>
#include <string.h>

#define GRAIN   16384 /* elements worth waking a thread for */
#define COLUMNS 64
#define ROWS    256

/* ---- layer normalisation ---- */

/* Rows. */
DPB_CPU_CLONES static void layernorm_fwd(void *ctx, int64_t begin, int64_t end)
{
    const struct dpb_layernorm_args *a = ctx;
    int64_t n = a->x.dim[1];
    const float *gamma = a->gamma, *beta = a->beta;

    for (int64_t i = begin; i < end; i++) {
        const float *x = (const float *)a->x.data + i * n;
        float *y = (float *)a->y.data + i * n;
        float sum = 0.0f, squares = 0.0f, mean, rstd;

#pragma omp simd reduction(+ : sum)
        for (int64_t j = 0; j < n; j++)
            sum += x[j];
        mean = sum / (float)n;
#pragma omp simd reduction(+ : squares)
        for (int64_t j = 0; j < n; j++)
            squares += (x[j] - mean) * (x[j] - mean);
        rstd = 1.0f / sqrtf(squares / (float)n + a->eps);
        for (int64_t j = 0; j < n; j++)
            y[j] = gamma[j] * ((x[j] - mean) * rstd) + beta[j];
        if (a->save_mean) {
            a->save_mean[i] = mean;
            a->save_rstd[i] = rstd;
        }
    }
}

/* Columns. Sums of ROWS rows each, then their sum, as in bias_bwd(). */
DPB_CPU_CLONES static void layernorm_bwd_columns(void *ctx, int64_t begin, int64_t end)
{
    const struct dpb_layernorm_args *a = ctx;
    int64_t m = a->x.dim[0], n = a->x.dim[1];
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
                const float *x = (const float *)a->x.data + i * n + j0;
                const float *dy = (const float *)a->dy.data + i * n + j0;
                float mean = a->save_mean[i], rstd = a->save_rstd[i];

                for (int j = 0; j < count; j++) {
                    dgamma_part[j] += dy[j] * ((x[j] - mean) * rstd);
                    dbeta_part[j] += dy[j];
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
DPB_CPU_CLONES static void layernorm_bwd_rows(void *ctx, int64_t begin, int64_t end)
{
    const struct dpb_layernorm_args *a = ctx;
    int64_t n = a->x.dim[1];
    const float *gamma = a->gamma;

    for (int64_t i = begin; i < end; i++) {
        const float *x = (const float *)a->x.data + i * n;
        const float *dy = (const float *)a->dy.data + i * n;
        float *dx = (float *)a->dx.data + i * n;
        float mean = a->save_mean[i], rstd = a->save_rstd[i], sum_g = 0.0f, sum_gx = 0.0f;

#pragma omp simd reduction(+ : sum_g, sum_gx)
        for (int64_t j = 0; j < n; j++) {
            float g = gamma[j] * dy[j];

            sum_g += g;
            sum_gx += g * ((x[j] - mean) * rstd);
        }
        sum_g /= (float)n;
        sum_gx /= (float)n;
        for (int64_t j = 0; j < n; j++)
            dx[j] = rstd * (gamma[j] * dy[j] - sum_g - (x[j] - mean) * rstd * sum_gx);
    }
}

dpb_status dpb_cpu_layernorm(dpb_device *device, enum dpb_op op, const void *args)
{
    struct dpb_layernorm_args a = *(const struct dpb_layernorm_args *)args;
    int64_t m = a.x.dim[0], n = a.x.dim[1], rows_grain = GRAIN / n + 1;

    if (op == DPB_OP_LAYERNORM_FWD) {
        dpb_cpu_parallel(device->threads, m, rows_grain, layernorm_fwd, &a);
        return DPB_OK;
    }
    /* Columns first: they need dy, which dx may overwrite. */
    dpb_cpu_parallel(device->threads, n, GRAIN / m + 16, layernorm_bwd_columns, &a);
    dpb_cpu_parallel(device->threads, m, rows_grain, layernorm_bwd_rows, &a);
    return DPB_OK;
}

/* ---- embedding ---- */

static inline void add_row(float *to, const float *from, int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        to[j] += from[j];
}

/* Rows of y. */
DPB_CPU_CLONES static void embedding_fwd(void *ctx, int64_t begin, int64_t end)
{
    const struct dpb_embedding_args *a = ctx;
    int64_t n = a->y.dim[1];

    for (int64_t i = begin; i < end; i++) {
        const float *from = (const float *)a->table.data + a->ids[i] * n;
        float *to = (float *)a->y.data + i * n;

        if (a->accumulate)
            add_row(to, from, n);
        else
            memcpy(to, from, (size_t)n * sizeof(*to));
    }
}

/* Columns: every thread goes through all numbers, for the rows' part that is its own. */
DPB_CPU_CLONES static void embedding_bwd(void *ctx, int64_t begin, int64_t end)
{
    const struct dpb_embedding_args *a = ctx;
    int64_t m = a->dy.dim[0], n = a->dy.dim[1];

    for (int64_t i = 0; i < m; i++)
        add_row((float *)a->dtable.data + a->ids[i] * n + begin,
                (const float *)a->dy.data + i * n + begin, end - begin);
}

/* Elements. */
static void clear(void *ctx, int64_t begin, int64_t end)
{
    memset((float *)ctx + begin, 0, (size_t)(end - begin) * sizeof(float));
}

dpb_status dpb_cpu_embedding(dpb_device *device, enum dpb_op op, const void *args)
{
    struct dpb_embedding_args a = *(const struct dpb_embedding_args *)args;
    bool fwd = op == DPB_OP_EMBEDDING_FWD;
    int64_t m = fwd ? a.y.dim[0] : a.dy.dim[0], n = fwd ? a.y.dim[1] : a.dy.dim[1];

    DPB_TRY(dpb_op_ids_check(op, a.ids, m, fwd ? a.table.dim[0] : a.dtable.dim[0]));
    if (fwd) {
        dpb_cpu_parallel(device->threads, m, GRAIN / n + 1, embedding_fwd, &a);
        return DPB_OK;
    }
    if (!a.accumulate)
        dpb_cpu_parallel(device->threads, dpb_tensor_numel(&a.dtable), GRAIN, clear, a.dtable.data);
    dpb_cpu_parallel(device->threads, n, GRAIN / m + 16, embedding_bwd, &a);
    return DPB_OK;
}

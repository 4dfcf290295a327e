/* Batch normalisation, whole and in halves, with ReLU and residual: our own loops over tiles of
 * ROWS rows and COLUMNS channels, which stay in the first cache level. Threads split channels where
 * something is summed, rows elsewhere: their number does not change a bit. The mask is a byte per
 * element, 0 or 1. */
#include <math.h>
#include <string.h>

#include "bf16.h"

#define COLUMNS 256
#define ROWS    16
#define STRIP   2048  /* channels whose sums are kept at a time */
#define GRAIN   16384 /* elements worth waking a thread for */

struct tile {
    int64_t at; /* of its first element */
    int rows, columns;
};

static inline int at_most(int64_t left, int most)
{
    return left < most ? (int)left : most;
}

/* Chan, Golub, LeVeque, "Updating formulae and a pairwise algorithm for computing sample
 * variances", 1979: tiles by themselves, merged. One pass over memory, and nothing cancels. The
 * rows before this tile are `before`. */
DPB_CPU_LOOP merge_tile(const struct dpb_batchnorm_args *a, struct tile tile, int64_t before,
                        double *mean, double *squares, bool bf16)
{
    int64_t c = a->x.dim[a->x.rank - 1];
    float tile_mean[COLUMNS] = {0}, tile_squares[COLUMNS] = {0};
    float share = 1.0f / (float)tile.rows;
    double part = (double)tile.rows / (double)(before + tile.rows), weight = (double)before * part;

    for (int i = 0; i < tile.rows; i++)
        for (int j = 0; j < tile.columns; j++)
            tile_mean[j] += dpb_cpu_load(a->x.data, tile.at + i * c + j, bf16);
    for (int j = 0; j < tile.columns; j++)
        tile_mean[j] *= share;
    for (int i = 0; i < tile.rows; i++) {
        for (int j = 0; j < tile.columns; j++) {
            float x = dpb_cpu_load(a->x.data, tile.at + i * c + j, bf16) - tile_mean[j];

            tile_squares[j] += x * x;
        }
    }
    for (int j = 0; j < tile.columns; j++) {
        double step = (double)tile_mean[j] - mean[j];

        mean[j] += step * part;
        squares[j] += (double)tile_squares[j] + step * step * weight;
    }
}

/* Channels, row by row, so that memory is read as it lies. */
DPB_CPU_LOOP stats(void *ctx, int64_t begin, int64_t end, bool bf16)
{
    const struct dpb_batchnorm_args *a = ctx;
    int64_t c = a->x.dim[a->x.rank - 1], m = dpb_tensor_numel(&a->x) / c;
    double mean[STRIP], squares[STRIP];

    for (int64_t k = begin; k < end; k += STRIP) {
        int strip = at_most(end - k, STRIP);

        memset(mean, 0, sizeof(mean));
        memset(squares, 0, sizeof(squares));
        for (int64_t i0 = 0; i0 < m; i0 += ROWS) {
            for (int j0 = 0; j0 < strip; j0 += COLUMNS) {
                struct tile tile = {i0 * c + k + j0, at_most(m - i0, ROWS),
                                    at_most(strip - j0, COLUMNS)};

                merge_tile(a, tile, i0, mean + j0, squares + j0, bf16);
            }
        }
        for (int j = 0; j < strip; j++) {
            a->save_mean[k + j] = (float)mean[j];
            a->save_var[k + j] = (float)(squares[j] / (double)m);
        }
    }
}
DPB_CPU_BY_TYPE(stats)

/* Rows. */
DPB_CPU_LOOP apply(void *ctx, int64_t begin, int64_t end, bool bf16)
{
    const struct dpb_batchnorm_args *a = ctx;
    int64_t c = a->x.dim[a->x.rank - 1];
    uint8_t *mask = a->relu ? a->mask : NULL;
    float factor[COLUMNS], mean[COLUMNS], shift[COLUMNS], y[COLUMNS];
    float least = a->relu ? 0.0f : -INFINITY;

    for (int64_t i0 = begin; i0 < end; i0 += ROWS) {
        int rows = at_most(end - i0, ROWS);

        for (int64_t j0 = 0; j0 < c; j0 += COLUMNS) {
            int columns = at_most(c - j0, COLUMNS);

            for (int j = 0; j < columns; j++) {
                factor[j] = a->gamma[j0 + j] / sqrtf(a->save_var[j0 + j] + a->eps);
                mean[j] = a->save_mean[j0 + j];
                shift[j] = a->beta[j0 + j];
            }
            for (int i = 0; i < rows; i++) {
                int64_t at = (i0 + i) * c + j0;

                for (int j = 0; j < columns; j++)
                    y[j] = (dpb_cpu_load(a->x.data, at + j, bf16) - mean[j]) * factor[j] + shift[j];
                for (int j = 0; a->residual.data && j < columns; j++)
                    y[j] += dpb_cpu_load(a->residual.data, at + j, bf16);
                /* A loop of its own: bytes may alias everything. */
                for (int j = 0; mask && j < columns; j++)
                    mask[at + j] = y[j] > 0.0f;
                for (int j = 0; j < columns; j++)
                    dpb_cpu_store(a->y.data, at + j, y[j] > least ? y[j] : least, bf16);
            }
        }
    }
}
DPB_CPU_BY_TYPE(apply)

/* dy where the mask lets it through. */
static inline __attribute__((always_inline)) float masked_dy(const struct dpb_batchnorm_args *a,
                                                             int64_t at, bool relu, bool bf16)
{
    float dy = dpb_cpu_load(a->dy.data, at, bf16); /* always: a condition before a load costs */

    return relu && !a->mask[at] ? 0.0f : dy;
}

/* Adds a tile's sums of dy and of dy xhat; keeps dy for the residual. */
DPB_CPU_LOOP add_tile(const struct dpb_batchnorm_args *a, struct tile tile, const float *mean,
                      const float *rstd, float *sum, float *sum_xhat, bool relu, bool residual,
                      bool bf16)
{
    int64_t c = a->x.dim[a->x.rank - 1];
    float dy[COLUMNS];

    for (int i = 0; i < tile.rows; i++) {
        int64_t at = tile.at + i * c;

        /* Loops of their own: dresidual may be dy. */
        for (int j = 0; j < tile.columns; j++)
            dy[j] = masked_dy(a, at + j, relu, bf16);
        for (int j = 0; residual && j < tile.columns; j++)
            dpb_cpu_store(a->dresidual.data, at + j, dy[j], bf16);
        for (int j = 0; j < tile.columns; j++) {
            sum[j] += dy[j];
            sum_xhat[j] += dy[j] * ((dpb_cpu_load(a->x.data, at + j, bf16) - mean[j]) * rstd[j]);
        }
    }
}

/* Channels, row by row, so that memory is read as it lies. Sums of ROWS rows each, then their sum:
 * the rounding error of a long column grows with the root of the rows' number only. */
DPB_CPU_LOOP bwd_sums(void *ctx, int64_t begin, int64_t end, bool bf16)
{
    const struct dpb_batchnorm_args *a = ctx;
    int64_t c = a->x.dim[a->x.rank - 1], m = dpb_tensor_numel(&a->x) / c;
    float rstd[STRIP], part[2][COLUMNS];

    for (int64_t k = begin; k < end; k += STRIP) {
        int strip = at_most(end - k, STRIP);
        float *sum = a->dbeta + k, *sum_xhat = a->dgamma + k;
        const float *mean = a->save_mean + k;

        memset(sum, 0, (size_t)strip * sizeof(float));
        memset(sum_xhat, 0, (size_t)strip * sizeof(float));
        for (int j = 0; j < strip; j++)
            rstd[j] = 1.0f / sqrtf(a->save_var[k + j] + a->eps);
        for (int64_t i0 = 0; i0 < m; i0 += ROWS) {
            for (int j0 = 0; j0 < strip; j0 += COLUMNS) {
                struct tile tile = {i0 * c + k + j0, at_most(m - i0, ROWS),
                                    at_most(strip - j0, COLUMNS)};

                memset(part, 0, sizeof(part));
                if (a->relu && a->residual.data)
                    add_tile(a, tile, mean + j0, rstd + j0, part[0], part[1], true, true, bf16);
                else if (a->relu)
                    add_tile(a, tile, mean + j0, rstd + j0, part[0], part[1], true, false, bf16);
                else if (a->residual.data)
                    add_tile(a, tile, mean + j0, rstd + j0, part[0], part[1], false, true, bf16);
                else
                    add_tile(a, tile, mean + j0, rstd + j0, part[0], part[1], false, false, bf16);
                for (int j = 0; j < tile.columns; j++) {
                    sum[j0 + j] += part[0][j];
                    sum_xhat[j0 + j] += part[1][j];
                }
            }
        }
    }
}
DPB_CPU_BY_TYPE(bwd_sums)

/* dx = factor (dy - mean_dy - (x - mean) slope) */
DPB_CPU_LOOP gradient_tile(const struct dpb_batchnorm_args *a, struct tile tile,
                           const float *factor, const float *mean_dy, const float *mean,
                           const float *slope, bool relu, bool bf16)
{
    int64_t c = a->x.dim[a->x.rank - 1];

    for (int i = 0; i < tile.rows; i++) {
        for (int j = 0; j < tile.columns; j++) {
            int64_t at = tile.at + i * c + j;
            float x = dpb_cpu_load(a->x.data, at, bf16) - mean[j];

            dpb_cpu_store(a->dx.data, at,
                          factor[j] * (masked_dy(a, at, relu, bf16) - mean_dy[j] - x * slope[j]),
                          bf16);
        }
    }
}

/* Rows. */
DPB_CPU_LOOP bwd_apply(void *ctx, int64_t begin, int64_t end, bool bf16)
{
    const struct dpb_batchnorm_args *a = ctx;
    int64_t c = a->x.dim[a->x.rank - 1];
    float share = (float)(1.0 / a->count);
    float factor[COLUMNS], mean_dy[COLUMNS], mean[COLUMNS], slope[COLUMNS];

    for (int64_t i0 = begin; i0 < end; i0 += ROWS) {
        for (int64_t j0 = 0; j0 < c; j0 += COLUMNS) {
            struct tile tile = {i0 * c + j0, at_most(end - i0, ROWS), at_most(c - j0, COLUMNS)};

            for (int j = 0; j < tile.columns; j++) {
                float rstd = 1.0f / sqrtf(a->save_var[j0 + j] + a->eps);

                factor[j] = a->gamma[j0 + j] * rstd;
                mean_dy[j] = a->dbeta[j0 + j] * share;
                mean[j] = a->save_mean[j0 + j];
                slope[j] = a->dgamma[j0 + j] * share * rstd;
            }
            if (a->relu)
                gradient_tile(a, tile, factor, mean_dy, mean, slope, true, bf16);
            else
                gradient_tile(a, tile, factor, mean_dy, mean, slope, false, bf16);
        }
    }
}
DPB_CPU_BY_TYPE(bwd_apply)

static void run(dpb_device *device, enum dpb_op op, struct dpb_batchnorm_args *a)
{
    int64_t c = a->x.dim[a->x.rank - 1], m = dpb_tensor_numel(&a->x) / c;
    int64_t by_channel = GRAIN / m + 16, by_row = GRAIN / c + 1;
    bool bf16 = a->x.dtype == DPB_BF16;

    if (op == DPB_OP_BATCHNORM_STATS)
        dpb_cpu_parallel(device->threads, c, by_channel, bf16 ? stats_bf16 : stats_f32, a);
    else if (op == DPB_OP_BATCHNORM_APPLY)
        dpb_cpu_parallel(device->threads, m, by_row, bf16 ? apply_bf16 : apply_f32, a);
    else if (op == DPB_OP_BATCHNORM_BWD_SUMS)
        dpb_cpu_parallel(device->threads, c, by_channel, bf16 ? bwd_sums_bf16 : bwd_sums_f32, a);
    else
        dpb_cpu_parallel(device->threads, m, by_row, bf16 ? bwd_apply_bf16 : bwd_apply_f32, a);
}

static void update_running(const struct dpb_batchnorm_args *args)
{
    int64_t c = args->x.dim[args->x.rank - 1], m = dpb_tensor_numel(&args->x) / c;
    float keep = 1.0f - args->momentum;
    float unbiased = args->momentum * (float)((double)m / (double)(m - 1));

    for (int64_t j = 0; j < c; j++) {
        args->running_mean[j] = keep * args->running_mean[j] + args->momentum * args->save_mean[j];
        args->running_var[j] = keep * args->running_var[j] + unbiased * args->save_var[j];
    }
}

dpb_status dpb_cpu_batchnorm(dpb_device *device, enum dpb_op op, const void *args)
{
    struct dpb_batchnorm_args a = *(const struct dpb_batchnorm_args *)args;

    if (op == DPB_OP_BATCHNORM_BWD) {
        a.count = (double)(dpb_tensor_numel(&a.x) / a.x.dim[a.x.rank - 1]);
        run(device, DPB_OP_BATCHNORM_BWD_SUMS, &a);
        run(device, DPB_OP_BATCHNORM_BWD_APPLY, &a);
    } else if (op == DPB_OP_BATCHNORM_FWD && a.training) {
        run(device, DPB_OP_BATCHNORM_STATS, &a);
        update_running(&a);
        run(device, DPB_OP_BATCHNORM_APPLY, &a);
    } else if (op == DPB_OP_BATCHNORM_FWD) {
        a.save_mean = a.running_mean;
        a.save_var = a.running_var;
        a.mask = NULL;
        run(device, DPB_OP_BATCHNORM_APPLY, &a);
    } else {
        run(device, op, &a);
    }
    return DPB_OK;
}

/* Batch normalisation, whole and in halves, with ReLU and residual: our own loops along rows, as
 * they lie in memory, over STRIP channels, whose factors and sums stay in the first cache level.
 * Threads split channels where something is summed, tiles of ROWS rows elsewhere: their number does
 * not change a bit. `omp simd` says that an element needs no other one, in place too (dresidual may
 * be dy). */
#include <math.h>
#include <string.h>

#include "bf16.h"

#define STRIP 512
#define ROWS  8     /* of a tile */
#define GROUP 64    /* rows summed in fp32, before they are in double */
#define GRAIN 16384 /* elements worth waking a thread for */

static inline int at_most(int64_t left, int most)
{
    return left < most ? (int)left : most;
}

static inline int64_t channels_of(const struct dpb_batchnorm_args *a)
{
    return a->x.dim[a->x.rank - 1];
}

static inline int64_t rows_of(const struct dpb_batchnorm_args *a)
{
    return dpb_tensor_numel(&a->x) / channels_of(a);
}

/* ---- the mask: a byte for each tile and channel; bit 0 is the tile's last row, bit 1 the one
 * before it, and so on ---- */

static inline uint8_t *mask_of_tile(const struct dpb_batchnorm_args *a, int64_t row, int64_t column)
{
    return a->mask + row / ROWS * channels_of(a) + column;
}

DPB_CPU_LOOP mask_put(const struct dpb_batchnorm_args *a, int64_t row, int64_t column, int columns,
                      const uint32_t *bits)
{
    uint8_t *mask = mask_of_tile(a, row, column);

#pragma omp simd
    for (int k = 0; k < columns; k++)
        mask[k] = (uint8_t)bits[k];
}

DPB_CPU_LOOP mask_get(const struct dpb_batchnorm_args *a, int64_t row, int64_t column, int columns,
                      uint32_t *bits)
{
    const uint8_t *mask = mask_of_tile(a, row, column);

#pragma omp simd
    for (int k = 0; k < columns; k++)
        bits[k] = mask[k];
}

/* ---- statistics ----
 *
 * Chan, Golub, LeVeque, "Updating formulae and a pairwise algorithm for computing sample
 * variances", 1979: some rows by themselves, merged with those before. One pass over memory, and
 * nothing cancels. Rows of a tile are in registers, tiles merge in fp32, groups of them in double.
 */

/* Means of channels over some rows, and sums of squares above them. */
struct moments {
    float mean[STRIP], squares[STRIP];
};

struct double_moments {
    double mean[STRIP], squares[STRIP];
};

/* `rows`, ROWS or 1, is a constant; `before` rows are in already. */
DPB_CPU_LOOP merge_tile(const struct dpb_batchnorm_args *a, int64_t at, int rows, int columns,
                        struct moments *group, int before, bool bf16)
{
    int64_t c = channels_of(a);
    const void *x = a->x.data;
    float part = (float)rows / (float)(before + rows), weight = (float)before * part;

#pragma omp simd
    for (int k = 0; k < columns; k++) {
        float sum[2] = {0.0f, 0.0f}, squares[2] = {0.0f, 0.0f}, mean, step;

#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
            sum[r % 2] += dpb_cpu_load(x, at + r * c + k, bf16);
        mean = (sum[0] + sum[1]) * (1.0f / (float)rows);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            float above = dpb_cpu_load(x, at + r * c + k, bf16) - mean;

            squares[r % 2] += above * above;
        }
        step = mean - group->mean[k];
        group->mean[k] += step * part;
        group->squares[k] += squares[0] + squares[1] + step * step * weight;
    }
}

DPB_CPU_LOOP merge_group(struct double_moments *all, const struct moments *group, int columns,
                         int64_t before, int rows)
{
    double part = (double)rows / (double)(before + rows), weight = (double)before * part;

#pragma omp simd
    for (int k = 0; k < columns; k++) {
        double step = (double)group->mean[k] - all->mean[k];

        all->mean[k] += step * part;
        all->squares[k] += (double)group->squares[k] + step * step * weight;
    }
}

/* Channels. */
DPB_CPU_LOOP stats(void *ctx, int64_t begin, int64_t end, bool bf16)
{
    const struct dpb_batchnorm_args *a = ctx;
    int64_t c = channels_of(a), m = rows_of(a);

    for (int64_t column = begin; column < end; column += STRIP) {
        int columns = at_most(end - column, STRIP);
        struct double_moments all = {.mean = {0.0}};
        struct moments group;

        for (int64_t row = 0; row < m; row += GROUP) {
            int64_t at = row * c + column;
            int rows = at_most(m - row, GROUP), r = 0;

            memset(group.mean, 0, (size_t)columns * sizeof(float));
            memset(group.squares, 0, (size_t)columns * sizeof(float));
            for (; r + ROWS <= rows; r += ROWS)
                merge_tile(a, at + r * c, ROWS, columns, &group, r, bf16);
            for (; r < rows; r++)
                merge_tile(a, at + r * c, 1, columns, &group, r, bf16);
            merge_group(&all, &group, columns, row, rows);
        }
        for (int k = 0; k < columns; k++) {
            a->save_mean[column + k] = (float)all.mean[k];
            a->save_var[column + k] = (float)(all.squares[k] / (double)m);
        }
    }
}
DPB_CPU_BY_TYPE(stats)

/* ---- y = (x - mean) factor + shift ---- */

struct line {
    float mean[STRIP], factor[STRIP], shift[STRIP];
};

/* One row. Its bits of the mask are moved into `bits` from below. */
DPB_CPU_LOOP apply_row(const struct dpb_batchnorm_args *a, int64_t at, int columns,
                       const struct line *line, uint32_t *bits, bool residual, bool relu, bool bf16)
{
    const void *x = a->x.data, *other = a->residual.data;
    void *to = a->y.data;

#pragma omp simd
    for (int k = 0; k < columns; k++) {
        float y = (dpb_cpu_load(x, at + k, bf16) - line->mean[k]) * line->factor[k];

        y += line->shift[k];
        if (residual)
            y += dpb_cpu_load(other, at + k, bf16);
        if (relu) {
            bits[k] = bits[k] << 1 | (y > 0.0f);
            y = y > 0.0f ? y : 0.0f;
        }
        dpb_cpu_store(to, at + k, y, bf16);
    }
}

/* Rows, from a tile's first one on. */
DPB_CPU_LOOP apply_strip(const struct dpb_batchnorm_args *a, int64_t begin, int64_t end,
                         int64_t column, int columns, const struct line *line, bool residual,
                         bool relu, bool bf16)
{
    int64_t c = channels_of(a);
    uint32_t bits[STRIP] = {0};

    for (int64_t row = begin; row < end; row += ROWS) {
        int rows = at_most(end - row, ROWS);

        for (int r = 0; r < rows; r++)
            apply_row(a, (row + r) * c + column, columns, line, bits, residual, relu, bf16);
        if (relu && a->mask)
            mask_put(a, row, column, columns, bits);
    }
}

/* Tiles. */
DPB_CPU_LOOP apply(void *ctx, int64_t begin, int64_t end, bool bf16)
{
    const struct dpb_batchnorm_args *a = ctx;
    int64_t c = channels_of(a), m = rows_of(a), first = begin * ROWS;
    int64_t last = end * ROWS < m ? end * ROWS : m;
    bool residual = a->residual.data;
    struct line line;

    for (int64_t column = 0; column < c; column += STRIP) {
        int columns = at_most(c - column, STRIP);

        for (int k = 0; k < columns; k++) {
            line.mean[k] = a->save_mean[column + k];
            line.factor[k] = a->gamma[column + k] / sqrtf(a->save_var[column + k] + a->eps);
            line.shift[k] = a->beta[column + k];
        }
        if (residual && a->relu)
            apply_strip(a, first, last, column, columns, &line, true, true, bf16);
        else if (residual)
            apply_strip(a, first, last, column, columns, &line, true, false, bf16);
        else if (a->relu)
            apply_strip(a, first, last, column, columns, &line, false, true, bf16);
        else
            apply_strip(a, first, last, column, columns, &line, false, false, bf16);
    }
}
DPB_CPU_BY_TYPE(apply)

/* ---- dbeta = sum dy, dgamma = sum dy (x - mean) rstd ---- */

struct sums {
    float mean[STRIP], dy[STRIP], dy_above[STRIP]; /* above: times x - mean */
};

struct double_sums {
    double dy[STRIP], dy_above[STRIP];
};

/* dy where the mask lets it through. */
static inline __attribute__((always_inline)) float masked(float dy, uint32_t bits, uint32_t bit)
{
    return bits & bit ? dy : 0.0f;
}

/* One row, whose bit of the mask is `bit`; keeps dy for the residual. */
DPB_CPU_LOOP sum_row(const struct dpb_batchnorm_args *a, int64_t at, int columns,
                     struct sums *group, const uint32_t *bits, uint32_t bit, bool residual,
                     bool relu, bool bf16)
{
    const void *x = a->x.data, *from = a->dy.data;
    void *to = a->dresidual.data;

#pragma omp simd
    for (int k = 0; k < columns; k++) {
        float above = dpb_cpu_load(x, at + k, bf16) - group->mean[k];
        float dy = dpb_cpu_load(from, at + k, bf16);

        if (relu)
            dy = masked(dy, bits[k], bit);
        if (residual)
            dpb_cpu_store(to, at + k, dy, bf16);
        group->dy[k] += dy;
        group->dy_above[k] += dy * above;
    }
}

/* Rows, from a tile's first one on. */
DPB_CPU_LOOP sum_group(const struct dpb_batchnorm_args *a, int64_t begin, int64_t end,
                       int64_t column, int columns, struct sums *group, bool residual, bool relu,
                       bool bf16)
{
    int64_t c = channels_of(a);
    uint32_t bits[STRIP];

    memset(group->dy, 0, (size_t)columns * sizeof(float));
    memset(group->dy_above, 0, (size_t)columns * sizeof(float));
    for (int64_t row = begin; row < end; row += ROWS) {
        int rows = at_most(end - row, ROWS);

        if (relu)
            mask_get(a, row, column, columns, bits);
        for (int r = 0; r < rows; r++)
            sum_row(a, (row + r) * c + column, columns, group, bits, UINT32_C(1) << (rows - 1 - r),
                    residual, relu, bf16);
    }
}

DPB_CPU_LOOP sum_strip(const struct dpb_batchnorm_args *a, int64_t column, int columns,
                       struct double_sums *all, bool residual, bool relu, bool bf16)
{
    int64_t m = rows_of(a);
    struct sums group;

    memcpy(group.mean, a->save_mean + column, (size_t)columns * sizeof(float));
    for (int64_t row = 0; row < m; row += GROUP) {
        int rows = at_most(m - row, GROUP);

        sum_group(a, row, row + rows, column, columns, &group, residual, relu, bf16);
#pragma omp simd
        for (int k = 0; k < columns; k++) {
            all->dy[k] += (double)group.dy[k];
            all->dy_above[k] += (double)group.dy_above[k];
        }
    }
}

/* Channels. */
DPB_CPU_LOOP bwd_sums(void *ctx, int64_t begin, int64_t end, bool bf16)
{
    const struct dpb_batchnorm_args *a = ctx;
    bool residual = a->residual.data;

    for (int64_t column = begin; column < end; column += STRIP) {
        int columns = at_most(end - column, STRIP);
        struct double_sums all = {.dy = {0.0}};

        if (residual && a->relu)
            sum_strip(a, column, columns, &all, true, true, bf16);
        else if (residual)
            sum_strip(a, column, columns, &all, true, false, bf16);
        else if (a->relu)
            sum_strip(a, column, columns, &all, false, true, bf16);
        else
            sum_strip(a, column, columns, &all, false, false, bf16);
        for (int k = 0; k < columns; k++) {
            double rstd = 1.0 / sqrt((double)a->save_var[column + k] + (double)a->eps);

            a->dbeta[column + k] = (float)all.dy[k];
            a->dgamma[column + k] = (float)(all.dy_above[k] * rstd);
        }
    }
}
DPB_CPU_BY_TYPE(bwd_sums)

/* ---- dx = factor (dy - mean_dy - (x - mean) slope) ---- */

struct gradient {
    float factor[STRIP], mean_dy[STRIP], mean[STRIP], slope[STRIP];
};

DPB_CPU_LOOP gradient_row(const struct dpb_batchnorm_args *a, int64_t at, int columns,
                          const struct gradient *g, const uint32_t *bits, uint32_t bit, bool relu,
                          bool bf16)
{
    const void *x = a->x.data, *from = a->dy.data;
    void *to = a->dx.data;

#pragma omp simd
    for (int k = 0; k < columns; k++) {
        float above = dpb_cpu_load(x, at + k, bf16) - g->mean[k];
        float dy = dpb_cpu_load(from, at + k, bf16);

        if (relu)
            dy = masked(dy, bits[k], bit);
        dpb_cpu_store(to, at + k, g->factor[k] * (dy - g->mean_dy[k] - above * g->slope[k]), bf16);
    }
}

/* Rows, from a tile's first one on. */
DPB_CPU_LOOP gradient_strip(const struct dpb_batchnorm_args *a, int64_t begin, int64_t end,
                            int64_t column, int columns, const struct gradient *g, bool relu,
                            bool bf16)
{
    int64_t c = channels_of(a);
    uint32_t bits[STRIP];

    for (int64_t row = begin; row < end; row += ROWS) {
        int rows = at_most(end - row, ROWS);

        if (relu)
            mask_get(a, row, column, columns, bits);
        for (int r = 0; r < rows; r++)
            gradient_row(a, (row + r) * c + column, columns, g, bits, UINT32_C(1) << (rows - 1 - r),
                         relu, bf16);
    }
}

/* Tiles. */
DPB_CPU_LOOP bwd_apply(void *ctx, int64_t begin, int64_t end, bool bf16)
{
    const struct dpb_batchnorm_args *a = ctx;
    int64_t c = channels_of(a), m = rows_of(a), first = begin * ROWS;
    int64_t last = end * ROWS < m ? end * ROWS : m;
    float share = (float)(1.0 / a->count);
    struct gradient g;

    for (int64_t column = 0; column < c; column += STRIP) {
        int columns = at_most(c - column, STRIP);

        for (int k = 0; k < columns; k++) {
            float rstd = 1.0f / sqrtf(a->save_var[column + k] + a->eps);

            g.factor[k] = a->gamma[column + k] * rstd;
            g.mean_dy[k] = a->dbeta[column + k] * share;
            g.mean[k] = a->save_mean[column + k];
            g.slope[k] = a->dgamma[column + k] * share * rstd;
        }
        if (a->relu)
            gradient_strip(a, first, last, column, columns, &g, true, bf16);
        else
            gradient_strip(a, first, last, column, columns, &g, false, bf16);
    }
}
DPB_CPU_BY_TYPE(bwd_apply)

static void run(dpb_device *device, enum dpb_op op, struct dpb_batchnorm_args *a)
{
    int64_t c = channels_of(a), m = rows_of(a), tiles = (m + ROWS - 1) / ROWS;
    int64_t by_channel = GRAIN / m + 16, by_tile = GRAIN / (c * ROWS) + 1;
    bool bf16 = a->x.dtype == DPB_BF16;

    if (op == DPB_OP_BATCHNORM_STATS)
        dpb_cpu_parallel(device->threads, c, by_channel, bf16 ? stats_bf16 : stats_f32, a);
    else if (op == DPB_OP_BATCHNORM_APPLY)
        dpb_cpu_parallel(device->threads, tiles, by_tile, bf16 ? apply_bf16 : apply_f32, a);
    else if (op == DPB_OP_BATCHNORM_BWD_SUMS)
        dpb_cpu_parallel(device->threads, c, by_channel, bf16 ? bwd_sums_bf16 : bwd_sums_f32, a);
    else
        dpb_cpu_parallel(device->threads, tiles, by_tile, bf16 ? bwd_apply_bf16 : bwd_apply_f32, a);
}

static void update_running(const struct dpb_batchnorm_args *args)
{
    int64_t c = channels_of(args), m = rows_of(args);
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
        a.count = (double)rows_of(&a);
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

/* Layer normalisation, a warp for each row. The gradients of gamma and beta are columns' sums. */
#include "columns.h"

namespace dpb
{
template <class T> struct layernorm_rows {
    int64_t rows, columns;
    const T *x;
    T *y;
    const float *gamma, *beta;
    float *save_mean, *save_rstd; /* NULL: not saved */
    float eps;
};

/* The row is read three times; the second and third time it is in the cache. */
template <class T, int WIDTH> DPB_KERNEL layernorm_fwd(struct layernorm_rows<T> a)
{
    int64_t row = (int64_t)block_x() * WARPS + thread() / WARP, first = thread() % WARP * WIDTH;
    float values[WIDTH], gamma[WIDTH], beta[WIDTH], mean = 0.0f, squares = 0.0f, rstd;

    if (row >= a.rows)
        return; /* the whole warp */
    const T *x = a.x + row * a.columns;
    T *y = a.y + row * a.columns;

    for (int64_t j = first; j < a.columns; j += WARP * WIDTH) {
        load(x + j, values);
        for (int i = 0; i < WIDTH; i++)
            mean += values[i];
    }
    mean = warp_sum(mean) / (float)a.columns;
    for (int64_t j = first; j < a.columns; j += WARP * WIDTH) {
        load(x + j, values);
        for (int i = 0; i < WIDTH; i++)
            squares += (values[i] - mean) * (values[i] - mean);
    }
    rstd = 1.0f / sqrtf(warp_sum(squares) / (float)a.columns + a.eps);
    for (int64_t j = first; j < a.columns; j += WARP * WIDTH) {
        load(x + j, values);
        load(a.gamma + j, gamma);
        load(a.beta + j, beta);
        for (int i = 0; i < WIDTH; i++)
            values[i] = gamma[i] * ((values[i] - mean) * rstd) + beta[i];
        store(y + j, values);
    }
    if (a.save_mean && thread() % WARP == 0) {
        a.save_mean[row] = mean;
        a.save_rstd[row] = rstd;
    }
}

template <class T> struct layernorm_gradient {
    int64_t rows, columns;
    const T *x, *dy;
    T *dx;
    const float *gamma, *mean, *rstd;
};

template <class T, int WIDTH> DPB_KERNEL layernorm_bwd(struct layernorm_gradient<T> a)
{
    int64_t row = (int64_t)block_x() * WARPS + thread() / WARP, first = thread() % WARP * WIDTH;
    float x[WIDTH], g[WIDTH], gamma[WIDTH], mean_g = 0.0f, mean_gx = 0.0f;

    if (row >= a.rows)
        return; /* the whole warp */
    int64_t base = row * a.columns;
    float mean = a.mean[row], rstd = a.rstd[row];

    for (int64_t j = first; j < a.columns; j += WARP * WIDTH) {
        load(a.x + base + j, x);
        load(a.dy + base + j, g);
        load(a.gamma + j, gamma);
        for (int i = 0; i < WIDTH; i++) {
            mean_g += g[i] * gamma[i];
            mean_gx += g[i] * gamma[i] * ((x[i] - mean) * rstd);
        }
    }
    mean_g = warp_sum(mean_g) / (float)a.columns;
    mean_gx = warp_sum(mean_gx) / (float)a.columns;
    for (int64_t j = first; j < a.columns; j += WARP * WIDTH) {
        load(a.x + base + j, x);
        load(a.dy + base + j, g);
        load(a.gamma + j, gamma);
        for (int i = 0; i < WIDTH; i++)
            g[i] = rstd * (g[i] * gamma[i] - mean_g - (x[i] - mean) * rstd * mean_gx);
        store(a.dx + base + j, g);
    }
}

template <class T, int WIDTH> struct layernorm_terms {
    static constexpr int SUMS = 2; /* dbeta, dgamma */
    struct nothing {
    };
    const T *x, *dy;
    const float *mean, *rstd;
    int64_t columns;

    DPB_MEMBER struct nothing begin(int64_t) const
    {
        return {};
    }

    DPB_MEMBER void add(const struct nothing &, int64_t row, int64_t column,
                        float (&sums)[2][WIDTH]) const
    {
        float value[WIDTH], gradient[WIDTH], m = mean[row], r = rstd[row];

        load(x + row * columns + column, value);
        load(dy + row * columns + column, gradient);
        for (int i = 0; i < WIDTH; i++) {
            sums[0][i] += gradient[i];
            sums[1][i] += gradient[i] * ((value[i] - m) * r);
        }
    }
};

struct layernorm_finish {
    float *dbeta, *dgamma;

    DPB_MEMBER void operator()(int64_t column, const double *sums) const
    {
        dbeta[column] = (float)sums[0];
        dgamma[column] = (float)sums[1];
    }
};
} // namespace dpb

int dpb_cuda_layernorm_fwd(const struct dpb_layernorm_args *args,
                           const struct dpb_cuda_queue *queue)
{
    using namespace dpb;
    int64_t rows = args->x.dim[0], columns = args->x.dim[1];

    return by_type(args->x.dtype, [&](auto zero) {
        using T = decltype(zero);
        bool wide = columns % pack_of<T> == 0 && aligned(args->x.data, args->y.data) &&
                    aligned(args->gamma, args->beta);
        const struct layernorm_rows<T> a = {
            rows, columns, (const T *)args->x.data, (T *)args->y.data, args->gamma, args->beta,
                    args->save_mean, args->save_rstd, args->eps
        };

        return by_width<pack_of<T>>(wide, [&](auto width) {
            return launch(dpb::layernorm_fwd<T, decltype(width)::value>,
                          (unsigned)divide_up(rows, WARPS), 1, THREADS, queue, a);
        });
    });
}

int dpb_cuda_layernorm_bwd(const struct dpb_layernorm_args *args,
                           const struct dpb_cuda_queue *queue)
{
    using namespace dpb;
    int64_t rows = args->x.dim[0], columns = args->x.dim[1];

    return by_type(args->x.dtype, [&](auto zero) {
        using T = decltype(zero);
        const T *x = (const T *)args->x.data, *dy = (const T *)args->dy.data;
        bool wide = columns % pack_of<T> == 0 && aligned(x, dy, (const T *)args->dx.data) &&
                    aligned(args->gamma);
        const struct layernorm_gradient<T> a = {
            rows, columns, x, dy, (T *)args->dx.data, args->gamma, args->save_mean, args->save_rstd
        };

        return by_width<pack_of<T>>(wide, [&](auto width) {
            constexpr int WIDTH = decltype(width)::value;
            const struct layernorm_terms<T, WIDTH> terms = {
                x, dy, args->save_mean, args->save_rstd, columns
            };
            /* First: dx may be dy. */
            int rc = run_column_sums<WIDTH>(rows, columns, terms,
                                            layernorm_finish{args->dbeta, args->dgamma}, queue);

            return rc ? rc
                      : launch(dpb::layernorm_bwd<T, WIDTH>, (unsigned)divide_up(rows, WARPS), 1,
                               THREADS, queue, a);
        });
    });
}

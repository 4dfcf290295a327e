/* Batch normalisation, whole and in halves, with ReLU and residual. Forward reads x twice, backward
 * reads x and dy twice; the operators are made of four parts, which are operators too. */
#include "columns.h"

namespace dpb
{
/* ---- statistics ---- */

/* Sums of x and x^2 from the first row on: differences from a value among the others, so that their
 * squares hardly cancel. */
template <class T, int WIDTH> struct statistics_terms {
    static constexpr int SUMS = 2;
    struct kept {
        float origin[WIDTH];
    };
    const T *x;
    int64_t columns;

    DPB_MEMBER struct kept begin(int64_t column) const
    {
        struct kept k;

        load(x + column, k.origin);
        return k;
    }

    DPB_MEMBER void add(const struct kept &k, int64_t row, int64_t column,
                        float (&sums)[2][WIDTH]) const
    {
        float values[WIDTH];

        load(x + row * columns + column, values);
        for (int i = 0; i < WIDTH; i++) {
            float difference = values[i] - k.origin[i];

            sums[0][i] += difference;
            sums[1][i] += difference * difference;
        }
    }
};

template <class T> struct statistics_finish {
    const T *x;
    float *mean, *var;
    float *running_mean, *running_var; /* NULL: left alone */
    double rows;
    float momentum;

    DPB_MEMBER void operator()(int64_t column, const double *sums) const
    {
        double step = sums[0] / rows, biased = sums[1] / rows - step * step;
        float m = (float)((double)to_float(x[column]) + step);
        float v = biased > 0.0 ? (float)biased : 0.0f;

        mean[column] = m;
        var[column] = v;
        if (!running_mean)
            return;
        running_mean[column] = (1.0f - momentum) * running_mean[column] + momentum * m;
        running_var[column] = (1.0f - momentum) * running_var[column] +
                              momentum * (float)(rows / (rows - 1.0)) * v;
    }
};

/* ---- apply ---- */

template <class T> struct apply_to {
    const T *x, *residual;
    T *y;
    uint8_t *mask; /* NULL: not written */
    const float *gamma, *beta, *mean, *var;
    float eps;
    bool relu;
};

template <int WIDTH> DPB_DEVICE void store_mask(uint8_t *to, const float (&y)[WIDTH])
{
    pack<uint8_t, WIDTH> mask;

    for (int i = 0; i < WIDTH; i++)
        mask.at[i] = y[i] > 0.0f;
    *reinterpret_cast<pack<uint8_t, WIDTH> *>(to) = mask;
}

template <class T, int WIDTH>
DPB_KERNEL batchnorm_apply(struct apply_to<T> a, struct column_shape s)
{
    const struct column_walk w = walk_of<WIDTH>(s);
    float factor[WIDTH], mean[WIDTH], shift[WIDTH];

    for (int i = 0; w.row < w.end && i < WIDTH; i++) {
        factor[i] = a.gamma[w.column + i] / sqrtf(a.var[w.column + i] + a.eps);
        mean[i] = a.mean[w.column + i];
        shift[i] = a.beta[w.column + i];
    }
    for (int64_t row = w.row; row < w.end; row += w.step) {
        int64_t at = row * s.columns + w.column;
        float y[WIDTH], residual[WIDTH] = {};

        load(a.x + at, y);
        if (a.residual)
            load(a.residual + at, residual);
        for (int i = 0; i < WIDTH; i++)
            y[i] = (y[i] - mean[i]) * factor[i] + shift[i] + residual[i];
        if (a.mask)
            store_mask(a.mask + at, y);
        for (int i = 0; i < WIDTH; i++)
            y[i] = !a.relu || y[i] > 0.0f ? y[i] : 0.0f;
        store(a.y + at, y);
    }
}

/* ---- backward ---- */

/* dy where the mask, unless it is NULL, lets it through. */
template <class T, int WIDTH>
DPB_DEVICE void load_masked(const T *dy, const uint8_t *mask, int64_t at, float (&to)[WIDTH])
{
    load(dy + at, to);
    if (!mask)
        return;
    const pack<uint8_t, WIDTH> open = *reinterpret_cast<const pack<uint8_t, WIDTH> *>(mask + at);

    for (int i = 0; i < WIDTH; i++)
        to[i] = open.at[i] ? to[i] : 0.0f;
}

template <class T, int WIDTH> struct gradient_terms {
    static constexpr int SUMS = 2; /* dbeta, dgamma */
    struct kept {
        float mean[WIDTH], rstd[WIDTH];
    };
    const T *x, *dy;
    T *dresidual;        /* NULL: none */
    const uint8_t *mask; /* NULL: none */
    const float *mean, *var;
    float eps;
    int64_t columns;

    DPB_MEMBER struct kept begin(int64_t column) const
    {
        struct kept k;

        for (int i = 0; i < WIDTH; i++) {
            k.mean[i] = mean[column + i];
            k.rstd[i] = 1.0f / sqrtf(var[column + i] + eps);
        }
        return k;
    }

    DPB_MEMBER void add(const struct kept &k, int64_t row, int64_t column,
                        float (&sums)[2][WIDTH]) const
    {
        int64_t at = row * columns + column;
        float value[WIDTH], gradient[WIDTH];

        load(x + at, value);
        load_masked(dy, mask, at, gradient);
        if (dresidual)
            store(dresidual + at, gradient);
        for (int i = 0; i < WIDTH; i++) {
            sums[0][i] += gradient[i];
            sums[1][i] += gradient[i] * ((value[i] - k.mean[i]) * k.rstd[i]);
        }
    }
};

struct gradient_finish {
    float *dbeta, *dgamma;

    DPB_MEMBER void operator()(int64_t column, const double *sums) const
    {
        dbeta[column] = (float)sums[0];
        dgamma[column] = (float)sums[1];
    }
};

template <class T> struct gradient_of {
    const T *x, *dy;
    T *dx;
    const uint8_t *mask; /* NULL: none */
    const float *gamma, *mean, *var, *dgamma, *dbeta;
    float eps, share; /* 1 / count */
};

/* dx = factor (dy - mean_dy - (x - mean) slope) */
template <class T, int WIDTH>
DPB_KERNEL batchnorm_bwd_apply(struct gradient_of<T> a, struct column_shape s)
{
    const struct column_walk w = walk_of<WIDTH>(s);
    float factor[WIDTH], mean[WIDTH], mean_dy[WIDTH], slope[WIDTH];

    for (int i = 0; w.row < w.end && i < WIDTH; i++) {
        float rstd = 1.0f / sqrtf(a.var[w.column + i] + a.eps);

        factor[i] = a.gamma[w.column + i] * rstd;
        mean[i] = a.mean[w.column + i];
        mean_dy[i] = a.dbeta[w.column + i] * a.share;
        slope[i] = a.dgamma[w.column + i] * a.share * rstd;
    }
    for (int64_t row = w.row; row < w.end; row += w.step) {
        int64_t at = row * s.columns + w.column;
        float x[WIDTH], dy[WIDTH];

        load(a.x + at, x);
        load_masked(a.dy, a.mask, at, dy);
        for (int i = 0; i < WIDTH; i++)
            x[i] = factor[i] * (dy[i] - mean_dy[i] - (x[i] - mean[i]) * slope[i]);
        store(a.dx + at, x);
    }
}

/* ---- launches ---- */

static int64_t channels_of(const struct dpb_batchnorm_args *args)
{
    return args->x.dim[args->x.rank - 1];
}

static int64_t values_of(const struct dpb_batchnorm_args *args)
{
    return dpb_tensor_numel(&args->x) / channels_of(args);
}

/* `f(T(), width)` for the type of x and the columns that a thread takes at once. */
template <class F> static int by_layout(const struct dpb_batchnorm_args *args, F f)
{
    bool are_aligned = aligned(args->x.data, args->y.data, args->dy.data, args->dx.data,
                               args->residual.data, args->dresidual.data) &&
                       aligned(args->mask);

    return by_type(args->x.dtype, [&](auto zero) {
        constexpr int WIDE = pack_of<decltype(zero)>;

        return by_width<WIDE>(are_aligned && channels_of(args) % WIDE == 0, [&](auto width) {
            return f(zero, width);
        });
    });
}

static int run_stats(const struct dpb_batchnorm_args *args, bool running,
                     const struct dpb_cuda_queue *queue)
{
    return by_layout(args, [&](auto zero, auto width) {
        using T = decltype(zero);
        constexpr int WIDTH = decltype(width)::value;
        const T *x = (const T *)args->x.data;
        const struct statistics_terms<T, WIDTH> terms = {
            x, channels_of(args)
        };
        const struct statistics_finish<T> finish = {
            x, args->save_mean, args->save_var, running ? args->running_mean : NULL,
                    args->running_var, (double)values_of(args), args->momentum
        };

        return run_column_sums<WIDTH>(values_of(args), channels_of(args), terms, finish, queue);
    });
}

static int run_apply(const struct dpb_batchnorm_args *args, const float *mean, const float *var,
                     uint8_t *mask, const struct dpb_cuda_queue *queue)
{
    return by_layout(args, [&](auto zero, auto width) {
        using T = decltype(zero);
        constexpr int WIDTH = decltype(width)::value;
        const struct column_grid grid = column_grid_of(values_of(args), channels_of(args), WIDTH);
        const struct apply_to<T> a = {
            (const T *)args->x.data, (const T *)args->residual.data,
                    (T *)args->y.data, args->relu ? mask : NULL, args->gamma, args->beta, mean, var,
                    args->eps, args->relu
        };

        return launch(batchnorm_apply<T, WIDTH>, grid.blocks_x, grid.blocks_y, THREADS, queue, a,
                      grid.shape);
    });
}

static int run_bwd_sums(const struct dpb_batchnorm_args *args, const struct dpb_cuda_queue *queue)
{
    return by_layout(args, [&](auto zero, auto width) {
        using T = decltype(zero);
        constexpr int WIDTH = decltype(width)::value;
        const struct gradient_terms<T, WIDTH> terms = {
            (const T *)args->x.data,
                    (const T *)args->dy.data, args->residual.data ? (T *)args->dresidual.data : NULL
                    ,
                    args->relu ? args->mask : NULL, args->save_mean, args->save_var, args->eps,
                    channels_of(args)
        };

        return run_column_sums<WIDTH>(values_of(args), channels_of(args), terms,
                                      gradient_finish{args->dbeta, args->dgamma}, queue);
    });
}

static int run_bwd_apply(const struct dpb_batchnorm_args *args, double count,
                         const struct dpb_cuda_queue *queue)
{
    return by_layout(args, [&](auto zero, auto width) {
        using T = decltype(zero);
        constexpr int WIDTH = decltype(width)::value;
        const struct column_grid grid = column_grid_of(values_of(args), channels_of(args), WIDTH);
        const struct gradient_of<T> a = {
            (const T *)args->x.data, (const T *)args->dy.data,
                    (T *)args->dx.data, args->relu ? args->mask : NULL, args->gamma,
                    args->save_mean, args->save_var, args->dgamma, args->dbeta, args->eps,
                    (float)(1.0 / count)
        };

        return launch(batchnorm_bwd_apply<T, WIDTH>, grid.blocks_x, grid.blocks_y, THREADS, queue,
                      a, grid.shape);
    });
}
} // namespace dpb

int dpb_cuda_batchnorm_fwd(const struct dpb_batchnorm_args *args,
                           const struct dpb_cuda_queue *queue)
{
    int rc;

    if (!args->training)
        return dpb::run_apply(args, args->running_mean, args->running_var, NULL, queue);
    rc = dpb::run_stats(args, true, queue);
    return rc ? rc : dpb::run_apply(args, args->save_mean, args->save_var, args->mask, queue);
}

int dpb_cuda_batchnorm_bwd(const struct dpb_batchnorm_args *args,
                           const struct dpb_cuda_queue *queue)
{
    int rc = dpb::run_bwd_sums(args, queue);

    return rc ? rc : dpb::run_bwd_apply(args, (double)dpb::values_of(args), queue);
}

int dpb_cuda_batchnorm_stats(const struct dpb_batchnorm_args *args,
                             const struct dpb_cuda_queue *queue)
{
    return dpb::run_stats(args, false, queue);
}

int dpb_cuda_batchnorm_apply(const struct dpb_batchnorm_args *args,
                             const struct dpb_cuda_queue *queue)
{
    return dpb::run_apply(args, args->save_mean, args->save_var, args->mask, queue);
}

int dpb_cuda_batchnorm_bwd_sums(const struct dpb_batchnorm_args *args,
                                const struct dpb_cuda_queue *queue)
{
    return dpb::run_bwd_sums(args, queue);
}

int dpb_cuda_batchnorm_bwd_apply(const struct dpb_batchnorm_args *args,
                                 const struct dpb_cuda_queue *queue)
{
    return dpb::run_bwd_apply(args, args->count, queue);
}

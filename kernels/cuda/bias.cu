/* Bias: added to every row, and its gradient, the columns' sums. */
#include "columns.h"

namespace dpb
{
template <class T, int WIDTH>
DPB_KERNEL add_bias(const T *x, T *y, const float *bias, bool relu, struct column_shape s)
{
    const struct column_walk w = walk_of<WIDTH>(s);
    float shift[WIDTH] = {}, values[WIDTH];

    if (bias && w.row < w.end)
        load(bias + w.column, shift);
    for (int64_t row = w.row; row < w.end; row += w.step) {
        load(x + row * s.columns + w.column, values);
        for (int i = 0; i < WIDTH; i++) {
            values[i] += shift[i];
            values[i] = !relu || values[i] > 0.0f ? values[i] : 0.0f;
        }
        store(y + row * s.columns + w.column, values);
    }
}

template <class T, int WIDTH> struct column_terms {
    static constexpr int SUMS = 1;
    struct nothing {
    };
    const T *x;
    int64_t columns;

    DPB_MEMBER struct nothing begin(int64_t) const
    {
        return {};
    }

    DPB_MEMBER void add(const struct nothing &, int64_t row, int64_t column,
                        float (&sums)[1][WIDTH]) const
    {
        float values[WIDTH];

        load(x + row * columns + column, values);
        for (int i = 0; i < WIDTH; i++)
            sums[0][i] += values[i];
    }
};

struct column_total {
    float *to;

    DPB_MEMBER void operator()(int64_t column, const double *sums) const
    {
        to[column] = (float)sums[0];
    }
};
} // namespace dpb

int dpb_cuda_bias_relu(const struct dpb_cuda_bias_relu_args *args,
                       const struct dpb_cuda_queue *queue)
{
    using namespace dpb;

    return by_type(args->dtype, [&](auto zero) {
        using T = decltype(zero);
        bool wide = args->columns % pack_of<T> == 0 && aligned(args->x, args->y, args->bias);

        return by_width<pack_of<T>>(wide, [&](auto width) {
            constexpr int WIDTH = decltype(width)::value;
            const struct column_grid grid = column_grid_of(args->rows, args->columns, WIDTH);

            return launch(add_bias<T, WIDTH>, grid.blocks_x, grid.blocks_y, THREADS, queue,
                          (const T *)args->x, (T *)args->y, args->bias, args->relu, grid.shape);
        });
    });
}

int dpb_cuda_bias_fwd(const struct dpb_bias_args *args, const struct dpb_cuda_queue *queue)
{
    struct dpb_cuda_bias_relu_args bias = {args->x.data,  args->y.data,   args->bias,
                                           args->y.dtype, args->y.dim[0], args->y.dim[1],
                                           false};

    return dpb_cuda_bias_relu(&bias, queue);
}

int dpb_cuda_bias_bwd(const struct dpb_bias_args *args, const struct dpb_cuda_queue *queue)
{
    using namespace dpb;
    int64_t rows = args->y.dim[0], columns = args->y.dim[1];

    return by_type(args->y.dtype, [&](auto zero) {
        using T = decltype(zero);
        bool wide = columns % pack_of<T> == 0 && aligned(args->y.data);

        return by_width<pack_of<T>>(wide, [&](auto width) {
            constexpr int WIDTH = decltype(width)::value;
            const struct column_terms<T, WIDTH> terms = {
                (const T *)args->y.data, columns
            };

            return run_column_sums<WIDTH>(rows, columns, terms, column_total{args->bias}, queue);
        });
    });
}

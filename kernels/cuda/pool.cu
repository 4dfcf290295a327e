/* Pooling of NHWC images. A thread has WIDTH channels of one pixel of the result: of y forward, of
 * x backward, where it gathers from all windows that hold the pixel, so nothing is added twice or
 * in another order. */
#include "dialect.h"

namespace dpb
{
struct pool_shape {
    int64_t threads_all;
    int h, w, c, out_h, out_w, kernel, stride, pad;
};

/* A pixel and channels of a [N,h,w,c] tensor. */
struct pixel {
    int64_t image, at; /* `at`: its offset */
    int row, column, channel;
};

template <int WIDTH> DPB_DEVICE struct pixel pixel_of(int64_t index, int h, int w, int c)
{
    int groups = c / WIDTH;
    int64_t pixel = index / groups, row = pixel / w;
    int channel = (int)(index - pixel * groups) * WIDTH;

    return {row / h, pixel * c + channel, (int)(row % h), (int)(pixel % w), channel};
}

template <class T, int WIDTH>
DPB_KERNEL pool_max_fwd(const T *x, T *y, uint8_t *index, struct pool_shape s)
{
    int64_t step = (int64_t)threads() * blocks_x();

    for (int64_t i = (int64_t)block_x() * threads() + thread(); i < s.threads_all; i += step) {
        const struct pixel p = pixel_of<WIDTH>(i, s.out_h, s.out_w, s.c);
        float best[WIDTH] = {}, values[WIDTH];
        int window[WIDTH] = {};
        bool any = false;

        for (int k = 0; k < s.kernel * s.kernel; k++) {
            int row = p.row * s.stride - s.pad + k / s.kernel;
            int column = p.column * s.stride - s.pad + k % s.kernel;

            if (row < 0 || row >= s.h || column < 0 || column >= s.w)
                continue;
            load(x + ((p.image * s.h + row) * s.w + column) * s.c + p.channel, values);
            for (int j = 0; j < WIDTH; j++) {
                bool higher = !any || values[j] > best[j];

                best[j] = higher ? values[j] : best[j];
                window[j] = higher ? k : window[j];
            }
            any = true;
        }
        store(y + p.at, best);
        for (int j = 0; index && j < WIDTH; j++)
            index[p.at + j] = (uint8_t)window[j];
    }
}

template <class T, int WIDTH> DPB_KERNEL pool_avg_fwd(const T *x, T *y, struct pool_shape s)
{
    int64_t step = (int64_t)threads() * blocks_x();
    float share = 1.0f / (float)(s.kernel * s.kernel);

    for (int64_t i = (int64_t)block_x() * threads() + thread(); i < s.threads_all; i += step) {
        const struct pixel p = pixel_of<WIDTH>(i, s.out_h, s.out_w, s.c);
        float sum[WIDTH] = {}, values[WIDTH];

        for (int k = 0; k < s.kernel * s.kernel; k++) {
            int row = p.row * s.stride - s.pad + k / s.kernel;
            int column = p.column * s.stride - s.pad + k % s.kernel;

            if (row < 0 || row >= s.h || column < 0 || column >= s.w)
                continue;
            load(x + ((p.image * s.h + row) * s.w + column) * s.c + p.channel, values);
            for (int j = 0; j < WIDTH; j++)
                sum[j] += values[j];
        }
        for (int j = 0; j < WIDTH; j++)
            sum[j] *= share;
        store(y + p.at, sum);
    }
}

/* `index` NULL: the average. */
template <class T, int WIDTH>
DPB_KERNEL pool_bwd(const T *y, T *x, const uint8_t *index, struct pool_shape s)
{
    int64_t step = (int64_t)threads() * blocks_x();
    float share = index ? 1.0f : 1.0f / (float)(s.kernel * s.kernel);

    for (int64_t i = (int64_t)block_x() * threads() + thread(); i < s.threads_all; i += step) {
        const struct pixel p = pixel_of<WIDTH>(i, s.h, s.w, s.c);
        float sum[WIDTH] = {}, values[WIDTH];

        /* The window's position k that holds the pixel says which window it is. */
        for (int k = s.kernel * s.kernel - 1; k >= 0; k--) {
            int row = p.row + s.pad - k / s.kernel, column = p.column + s.pad - k % s.kernel;
            int out_row = row / s.stride, out_column = column / s.stride;

            if (row < 0 || column < 0 || row % s.stride || column % s.stride ||
                out_row >= s.out_h || out_column >= s.out_w)
                continue;
            int64_t at = ((p.image * s.out_h + out_row) * s.out_w + out_column) * s.c + p.channel;

            load(y + at, values);
            for (int j = 0; j < WIDTH; j++)
                sum[j] += !index || index[at + j] == k ? values[j] : 0.0f;
        }
        for (int j = 0; j < WIDTH; j++)
            sum[j] *= share;
        store(x + p.at, sum);
    }
}

/* `f(T(), width, shape, blocks)`; threads go over the pixels of `over`. */
template <class F>
static int run_pool(const struct dpb_pool_args *args, const struct dpb_tensor *over, F f)
{
    int64_t c = args->x.dim[3];

    return by_type(args->y.dtype, [&](auto zero) {
        constexpr int WIDE = pack_of<decltype(zero)>;

        return by_width<WIDE>(
                c % WIDE == 0 && aligned(args->x.data, args->y.data), [&](auto width) {
                    const struct pool_shape s = {dpb_tensor_numel(over) / decltype(width)::value,
                                                 (int)args->x.dim[1],
                                                 (int)args->x.dim[2],
                                                 (int)c,
                                                 (int)args->y.dim[1],
                                                 (int)args->y.dim[2],
                                                 args->kernel,
                                                 args->stride,
                                                 args->pad};

                    return f(zero, width, s, blocks_for(s.threads_all));
                });
    });
}

static int run_pool_bwd(const struct dpb_pool_args *args, const uint8_t *index,
                        const struct dpb_cuda_queue *queue)
{
    return run_pool(args, &args->x,
                    [&](auto zero, auto width, struct pool_shape s, unsigned blocks) {
                        using T = decltype(zero);

                        return launch(pool_bwd<T, decltype(width)::value>, blocks, 1, THREADS,
                                      queue, (const T *)args->y.data, (T *)args->x.data, index, s);
                    });
}
} // namespace dpb

int dpb_cuda_pool_max_fwd(const struct dpb_pool_args *args, const struct dpb_cuda_queue *queue)
{
    using namespace dpb;

    return run_pool(
            args, &args->y, [&](auto zero, auto width, struct pool_shape s, unsigned blocks) {
                using T = decltype(zero);

                return launch(pool_max_fwd<T, decltype(width)::value>, blocks, 1, THREADS, queue,
                              (const T *)args->x.data, (T *)args->y.data, args->index, s);
            });
}

int dpb_cuda_pool_avg_fwd(const struct dpb_pool_args *args, const struct dpb_cuda_queue *queue)
{
    using namespace dpb;

    return run_pool(args, &args->y,
                    [&](auto zero, auto width, struct pool_shape s, unsigned blocks) {
                        using T = decltype(zero);

                        return launch(pool_avg_fwd<T, decltype(width)::value>, blocks, 1, THREADS,
                                      queue, (const T *)args->x.data, (T *)args->y.data, s);
                    });
}

int dpb_cuda_pool_max_bwd(const struct dpb_pool_args *args, const struct dpb_cuda_queue *queue)
{
    return dpb::run_pool_bwd(args, args->index, queue);
}

int dpb_cuda_pool_avg_bwd(const struct dpb_pool_args *args, const struct dpb_cuda_queue *queue)
{
    return dpb::run_pool_bwd(args, NULL, queue);
}

/* Elements in another order: convolution weights, padded channels, heads of attention. */
#include "dialect.h"

namespace dpb
{
/* ---- weights: OIHW and KRSC ---- */

struct weights_shape {
    int64_t o, i, window, o_padded, i_padded; /* window: KH KW */
};

/* A thread has one pair of output and input, and goes over the window: reads of the threads of a
 * warp lie side by side, writes too. */
template <class From, class To>
DPB_KERNEL weights_to_krsc(const From *oihw, To *krsc, struct weights_shape s)
{
    int64_t pairs = s.o_padded * s.i_padded, step = (int64_t)threads() * blocks_x();

    for (int64_t p = (int64_t)block_x() * threads() + thread(); p < pairs; p += step) {
        int64_t o = p / s.i_padded, i = p % s.i_padded;
        bool is_real = o < s.o && i < s.i;

        for (int64_t k = 0; k < s.window; k++) {
            float value = is_real ? to_float(oihw[(o * s.i + i) * s.window + k]) : 0.0f;

            krsc[(o * s.window + k) * s.i_padded + i] = from_float<To>(value);
        }
    }
}

template <class From, class To>
DPB_KERNEL weights_to_oihw(const From *krsc, To *oihw, struct weights_shape s)
{
    int64_t pairs = s.o * s.i, step = (int64_t)threads() * blocks_x();

    for (int64_t p = (int64_t)block_x() * threads() + thread(); p < pairs; p += step) {
        int64_t o = p / s.i, i = p % s.i;

        for (int64_t k = 0; k < s.window; k++)
            oihw[p * s.window + k] =
                    from_float<To>(to_float(krsc[(o * s.window + k) * s.i_padded + i]));
    }
}

static struct weights_shape shape_of(const struct dpb_cuda_weights *args)
{
    return {args->o, args->i, args->kh * args->kw, args->o_padded, args->i_padded};
}

/* ---- rows and padded rows ---- */

/* From rows of `from_columns` to rows of `to_columns`: cut, or zeros behind. */
template <class T>
DPB_KERNEL repitch(const T *from, T *to, int64_t rows, int64_t from_columns, int64_t to_columns)
{
    int64_t step = (int64_t)threads() * blocks_x();

    for (int64_t i = (int64_t)block_x() * threads() + thread(); i < rows * to_columns; i += step) {
        int64_t row = i / to_columns, column = i % to_columns;

        to[i] = column < from_columns ? from[row * from_columns + column] : from_float<T>(0.0f);
    }
}

static int run_repitch(const struct dpb_cuda_channels *args, bool pad,
                       const struct dpb_cuda_queue *queue)
{
    int64_t columns = pad ? args->padded : args->columns;
    const void *from = pad ? args->dense : args->padded_rows;
    void *to = pad ? args->padded_rows : args->dense;

    return by_type(args->dtype, [&](auto zero) {
        using T = decltype(zero);

        return launch(repitch<T>, blocks_for(args->rows * columns), 1, THREADS, queue,
                      (const T *)from, (T *)to, args->rows, pad ? args->columns : args->padded,
                      columns);
    });
}

/* ---- heads ---- */

struct heads_shape {
    int64_t packs; /* in all */
    int64_t tokens, heads, depth, stride;
};

template <class T, int WIDTH, bool GATHER>
DPB_KERNEL move_heads(T *tokens_side, T *heads_side, struct heads_shape s)
{
    using Pack = pack<T, WIDTH>;
    int64_t step = (int64_t)threads() * blocks_x(), each = s.depth / WIDTH;

    for (int64_t i = (int64_t)block_x() * threads() + thread(); i < s.packs; i += step) {
        /* (b, a, s, d) */
        int64_t d = i % each * WIDTH, row = i / each, token = row % s.tokens;
        int64_t head = row / s.tokens % s.heads, sequence = row / s.tokens / s.heads;
        Pack *there = reinterpret_cast<Pack *>(
                tokens_side + (sequence * s.tokens + token) * s.stride + head * s.depth + d);
        Pack *here = reinterpret_cast<Pack *>(heads_side + i * WIDTH);

        if (GATHER)
            *here = *there;
        else
            *there = *here;
    }
}

template <bool GATHER>
static int run_heads(const struct dpb_cuda_heads *args, const struct dpb_cuda_queue *queue)
{
    int64_t count = args->batch * args->tokens * args->heads * args->depth;

    return by_type(args->dtype, [&](auto zero) {
        using T = decltype(zero);
        bool wide = args->depth % pack_of<T> == 0 && args->stride % pack_of<T> == 0 &&
                    aligned(args->tokens_side, args->heads_side);

        return by_width<pack_of<T>>(wide, [&](auto width) {
            constexpr int WIDTH = decltype(width)::value;
            const struct heads_shape s = {count / WIDTH, args->tokens, args->heads, args->depth,
                                          args->stride};

            return launch(move_heads<T, WIDTH, GATHER>, blocks_for(s.packs), 1, THREADS, queue,
                          (T *)args->tokens_side, (T *)args->heads_side, s);
        });
    });
}
} // namespace dpb

int dpb_cuda_weights_to_krsc(const struct dpb_cuda_weights *args,
                             const struct dpb_cuda_queue *queue)
{
    using namespace dpb;

    return by_type(args->oihw_dtype, [&](auto from) {
        using From = decltype(from);

        return by_type(args->krsc_dtype, [&](auto to) {
            using To = decltype(to);

            return launch(weights_to_krsc<From, To>, blocks_for(args->o_padded * args->i_padded), 1,
                          THREADS, queue, (const From *)args->oihw, (To *)args->krsc,
                          shape_of(args));
        });
    });
}

int dpb_cuda_weights_to_oihw(const struct dpb_cuda_weights *args,
                             const struct dpb_cuda_queue *queue)
{
    using namespace dpb;

    return by_type(args->krsc_dtype, [&](auto from) {
        using From = decltype(from);

        return by_type(args->oihw_dtype, [&](auto to) {
            using To = decltype(to);

            return launch(weights_to_oihw<From, To>, blocks_for(args->o * args->i), 1, THREADS,
                          queue, (const From *)args->krsc, (To *)args->oihw, shape_of(args));
        });
    });
}

int dpb_cuda_channels_pad(const struct dpb_cuda_channels *args, const struct dpb_cuda_queue *queue)
{
    return dpb::run_repitch(args, true, queue);
}

int dpb_cuda_channels_unpad(const struct dpb_cuda_channels *args,
                            const struct dpb_cuda_queue *queue)
{
    return dpb::run_repitch(args, false, queue);
}

int dpb_cuda_heads_gather(const struct dpb_cuda_heads *args, const struct dpb_cuda_queue *queue)
{
    return dpb::run_heads<true>(args, queue);
}

int dpb_cuda_heads_scatter(const struct dpb_cuda_heads *args, const struct dpb_cuda_queue *queue)
{
    return dpb::run_heads<false>(args, queue);
}

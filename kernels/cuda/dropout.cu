/* Dropout. */
#include "dropout.h"

namespace dpb
{
/* Four elements share a block of random words. */
template <class T, int WIDTH> DPB_KERNEL drop(const T *from, T *to, int64_t count, struct dropout d)
{
    int64_t index = (int64_t)block_x() * threads() + thread();
    int64_t step = (int64_t)threads() * blocks_x();
    float values[WIDTH];

    for (int64_t i = index; i < count / WIDTH; i += step) {
        load(from + i * WIDTH, values);
        if constexpr (WIDTH == 4)
            drop_4(d, i * WIDTH, values);
        else
            values[0] = drop_1(d, i, values[0]);
        store(to + i * WIDTH, values);
    }
    for (int64_t i = count / WIDTH * WIDTH + index; i < count; i += step)
        to[i] = from_float<T>(drop_1(d, i, to_float(from[i])));
}

static int run_drop(const struct dpb_dropout_args *args, const struct dpb_tensor *from,
                    const struct dpb_tensor *to, const struct dpb_cuda_queue *queue)
{
    int64_t count = dpb_tensor_numel(from);
    struct dropout d = dropout_of(args->keep, args->seed, args->offset);

    return by_type(from->dtype, [&](auto zero) {
        using T = decltype(zero);

        return by_width<4>(aligned(from->data, to->data), [&](auto width) {
            constexpr int WIDTH = decltype(width)::value;

            return launch(drop<T, WIDTH>, blocks_for(divide_up(count, WIDTH)), 1, THREADS, queue,
                          (const T *)from->data, (T *)to->data, count, d);
        });
    });
}
} // namespace dpb

int dpb_cuda_dropout_fwd(const struct dpb_dropout_args *args, const struct dpb_cuda_queue *queue)
{
    return dpb::run_drop(args, &args->x, &args->y, queue);
}

int dpb_cuda_dropout_bwd(const struct dpb_dropout_args *args, const struct dpb_cuda_queue *queue)
{
    return dpb::run_drop(args, &args->dy, &args->dx, queue);
}

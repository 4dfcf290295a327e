#include "planted.h"

#include "dialect.h"

namespace
{
constexpr unsigned MOST = 256;

unsigned element()
{
    return dpb::block_x() * dpb::threads() + dpb::thread();
}

template <bool SYNC> DPB_KERNEL reverse(const float *x, float *y)
{
    DPB_SHARED(float, shared, MOST);

    shared[dpb::thread()] = x[element()];
    if (SYNC)
        DPB_SYNC();
    y[element()] = shared[dpb::threads() - 1 - dpb::thread()];
}

template <bool SYNC> DPB_KERNEL two_sums(const float *x, float *y)
{
    DPB_SHARED(float, shared, MOST);
    float sums[2] = {};

    for (int k = 0; k < 2; k++) {
        shared[dpb::thread()] = k ? -x[element()] : x[element()];
        DPB_SYNC();
        for (unsigned i = 0; i < dpb::threads(); i++)
            sums[k] += shared[i];
        if (SYNC)
            DPB_SYNC();
    }
    y[element()] = sums[0] + 2.0f * sums[1];
}

DPB_KERNEL block_sync(const float *x, float *y)
{
    if (dpb::thread() >= dpb::threads() / 2)
        return;
    DPB_SYNC();
    y[element()] = x[element()];
}

DPB_KERNEL two_sites(const float *x, float *y)
{
    if (dpb::thread() < dpb::threads() / 2)
        DPB_SYNC();
    else
        DPB_SYNC();
    y[element()] = x[element()];
}

DPB_KERNEL warp(const float *x, float *y)
{
    if (dpb::thread() % 32 >= 16)
        return;
    y[element()] = dpb::warp_sum(x[element()]);
}

DPB_KERNEL block_and_warp(const float *x, float *y)
{
    float value = x[element()];

    if (dpb::thread() < 32)
        DPB_SYNC();
    else
        value = dpb::warp_sum(value);
    y[element()] = value;
}

DPB_KERNEL blocks(const float *x, float *y)
{
    unsigned next = (element() + dpb::threads()) % (dpb::blocks_x() * dpb::threads());

    y[element()] = x[element()] + y[next];
}

/* The sum of the warp's, the number of those above 0, and the value of thread 5. */
DPB_KERNEL together(const float *x, float *y)
{
    float value = x[element()];
    uint32_t above = dpb::ballot(value > 0.0f);

    y[element()] = dpb::warp_sum(value) + 100.0f * (float)__builtin_popcount(above) +
                   10000.0f * dpb::shuffle(value, 5);
}

DPB_KERNEL grid(float *y)
{
    if (dpb::thread() == 0)
        y[dpb::block_y() * dpb::blocks_x() + dpb::block_x()] +=
                (float)(dpb::blocks_x() * dpb::blocks_y());
}

typedef void (*planted_kernel)(const float *x, float *y);

const planted_kernel kernels[] = {
        reverse<true>, reverse<false>, two_sums<true>, two_sums<false>, block_sync,
        two_sites,     warp,           block_and_warp, blocks,          together,
};
} // namespace

int planted_launch(enum planted which, const float *x, float *y, unsigned blocks_x,
                   unsigned threads, const struct dpb_cuda_queue *queue)
{
    return dpb::launch(kernels[which], blocks_x, 1, threads, queue, x, y);
}

int planted_launch_grid(unsigned blocks_x, unsigned blocks_y, unsigned threads, float *y,
                        const struct dpb_cuda_queue *queue)
{
    return dpb::launch(grid, blocks_x, blocks_y, threads, queue, y);
}

#include "limits.h"

#include <algorithm>

#include "dpb_clock.h"

#if defined(__x86_64__)
#define WIDEST __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDEST
#endif

namespace
{

constexpr int64_t edge = 1024; // of the matrices
constexpr int64_t block_bytes = 256 << 20, smallest_bytes = 64 << 10;
constexpr int64_t sweep_ns = 1000000; // a loop is repeated so long

float *block;
char *matrices;

WIDEST void copy(float *c, const float *a, const float *, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        c[i] = a[i];
}

WIDEST void triad(float *c, const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        c[i] = a[i] + 0.5f * b[i];
}

WIDEST void update(float *c, const float *a, const float *, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        c[i] = 0.5f * c[i] + a[i];
}

struct loop {
    void (*run)(float *c, const float *a, const float *b, int64_t n);
    int arrays, accesses; // of an element
};

const loop loops[] = {{copy, 2, 2}, {triad, 3, 3}, {update, 2, 3}};

// The fastest of some sweeps.
double rate_of(const loop &loop, int64_t floats)
{
    int64_t n = floats / loop.arrays / 16 * 16, best_ns = INT64_MAX, spent_ns = 0;
    float *a = block, *b = block + n, *c = block + (loop.arrays - 1) * n;

    for (int i = 0; i < 4 || spent_ns < sweep_ns; i++) {
        int64_t begin_ns = dpb_clock_now_ns();

        loop.run(c, a, b, n);

        int64_t ns = std::max<int64_t>(dpb_clock_now_ns() - begin_ns, 1);

        best_ns = std::min(best_ns, ns);
        spent_ns += ns;
    }
    return 1e9 * double(n * loop.accesses) * sizeof(float) / double(best_ns);
}

template <typename T> bool take(dpb_device *device, int64_t bytes, T **memory)
{
    void *made = nullptr;

    if (!*memory && dpb_device_get_ops(device)->alloc(device, size_t(bytes), &made) == DPB_OK)
        *memory = static_cast<T *>(made);
    return *memory != nullptr;
}

} // namespace

double limit_matmul(dpb_device *device, dpb_dtype dtype)
{
    constexpr int64_t each = edge * edge * int64_t(sizeof(float));
    dpb_matmul_args args = {};
    int64_t best_ns = INT64_MAX;

    if (!take(device, 3 * each, &matrices))
        return 0.0;
    args.a = dpb_tensor_2d(matrices, edge, edge);
    args.b = dpb_tensor_2d(matrices + each, edge, edge);
    args.c = dpb_tensor_2d(matrices + 2 * each, edge, edge);
    if (dtype == DPB_BF16 && dpb_device_get_ops(device)->op_supported(device, DPB_OP_MATMUL, dtype))
        args.a.dtype = args.b.dtype = args.c.dtype = dtype;
    for (int i = 0; i < 6; i++) {
        int64_t begin_ns = dpb_clock_now_ns();

        if (dpb_op_launch(device, DPB_OP_MATMUL, &args, nullptr) != DPB_OK)
            return 0.0;
        best_ns = std::min(best_ns, dpb_clock_now_ns() - begin_ns);
    }
    return 1e9 * 2.0 * double(edge * edge * edge) / double(best_ns);
}

double limit_memory(dpb_device *device, double bytes)
{
    double best = 0.0;
    int64_t floats = int64_t(std::clamp(bytes, double(smallest_bytes), double(block_bytes))) /
                     int64_t(sizeof(float));

    if (!take(device, block_bytes, &block))
        return 0.0;
    for (const loop &loop : loops)
        best = std::max(best, rate_of(loop, floats));
    return best;
}

void limits_release(dpb_device *device)
{
    dpb_device_get_ops(device)->free(device, block);
    dpb_device_get_ops(device)->free(device, matrices);
    block = nullptr;
    matrices = nullptr;
}

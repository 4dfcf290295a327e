/* dialect.h: the C++ that kernels are written in: nvcc compiles it for the GPU, any C++17 compiler
 * for the host, where tests/shim.h runs it and tests compare it with the reference.
 *
 * A kernel is `DPB_KERNEL name(...)`, launched by dpb::launch(); functions that it calls are
 * DPB_DEVICE, or DPB_MEMBER in a class. In it:
 *   dpb::thread(), threads()         number in the block, and how many; a multiple of 32
 *   dpb::block_x(), blocks_x(), ..._y()
 *   DPB_SHARED(type, name, count);   an array that the block shares; undefined at first
 *   DPB_SYNC();                      all threads of the block, none of which may have returned
 *   dpb::shuffle_xor(v, mask), shuffle(v, lane), ballot(bool)    all 32 threads of the warp, the
 * same way dpb::atomic_max(p, v), raise_flag(p) bf16 and fp16 are plain structs; to_float() and
 * from_float<T>() convert, to nearest even.
 *
 * The host does not model warps in lockstep, fused multiply-add, approximate functions or speed. */
#ifndef DPB_CUDA_DIALECT_H
#define DPB_CUDA_DIALECT_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include <type_traits>

#include "cuda_kernels.h"

namespace dpb
{
struct bf16 {
    uint16_t bits;
};
struct fp16 {
    uint16_t bits;
};
} // namespace dpb

#ifdef __CUDACC__

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define DPB_KERNEL                    static __global__ void
#define DPB_DEVICE                    static __device__ __forceinline__
#define DPB_MEMBER                    __device__ __forceinline__
#define DPB_SHARED(type, name, count) __shared__ type name[count]
#define DPB_SYNC()                    __syncthreads()
#define DPB_UNROLL                    _Pragma("unroll")

namespace dpb
{
DPB_DEVICE unsigned thread()
{
    return threadIdx.x;
}

DPB_DEVICE unsigned threads()
{
    return blockDim.x;
}

DPB_DEVICE unsigned block_x()
{
    return blockIdx.x;
}

DPB_DEVICE unsigned block_y()
{
    return blockIdx.y;
}

DPB_DEVICE unsigned blocks_x()
{
    return gridDim.x;
}

DPB_DEVICE unsigned blocks_y()
{
    return gridDim.y;
}

template <class T> DPB_DEVICE T shuffle_xor(T value, unsigned mask)
{
    return __shfl_xor_sync(0xffffffffu, value, (int)mask);
}

template <class T> DPB_DEVICE T shuffle(T value, unsigned from)
{
    return __shfl_sync(0xffffffffu, value, (int)from);
}

DPB_DEVICE uint32_t ballot(bool value)
{
    return __ballot_sync(0xffffffffu, value);
}

DPB_DEVICE int lowest_bit(uint32_t bits)
{
    return __ffs((int)bits) - 1;
}

DPB_DEVICE void atomic_max(uint64_t *to, uint64_t value)
{
    atomicMax((unsigned long long *)to, (unsigned long long)value);
}

/* Many threads may do it: all write the same. */
DPB_DEVICE void raise_flag(int32_t *flag)
{
    atomicExch(flag, 1);
}

DPB_DEVICE float to_float(bf16 value)
{
    return __bfloat162float(__ushort_as_bfloat16(value.bits));
}

DPB_DEVICE float to_float(fp16 value)
{
    return __half2float(__ushort_as_half(value.bits));
}

DPB_DEVICE bf16 to_bf16(float value)
{
    return bf16{__bfloat16_as_ushort(__float2bfloat16_rn(value))};
}

DPB_DEVICE fp16 to_fp16(float value)
{
    return fp16{__half_as_ushort(__float2half_rn(value))};
}

/* Enqueue `kernel`. Its cudaError_t. */
template <class... Parameter, class... Argument>
int launch(void (*kernel)(Parameter...), unsigned blocks_x, unsigned blocks_y, unsigned threads,
           const struct dpb_cuda_queue *queue, Argument... arguments)
{
    kernel<<<dim3(blocks_x, blocks_y), threads, 0, (cudaStream_t)queue->stream>>>(
            static_cast<Parameter>(arguments)...);
    return (int)cudaGetLastError();
}
} // namespace dpb

#else

#include "tests/shim.h"

#endif

namespace dpb
{
DPB_DEVICE float to_float(float value)
{
    return value;
}

template <class T> DPB_DEVICE T from_float(float value)
{
    if constexpr (std::is_same_v<T, bf16>)
        return to_bf16(value);
    else if constexpr (std::is_same_v<T, fp16>)
        return to_fp16(value);
    else
        return value;
}

/* ---- vectors ---- */

/* COUNT elements that are loaded and stored at once. */
template <class T, int COUNT> struct alignas(sizeof(T) * COUNT) pack {
    T at[COUNT];
};

template <class T> constexpr int pack_of = 16 / (int)sizeof(T);

/* The widest that one instruction moves. */
template <class T, int COUNT> constexpr int pack_in = COUNT < pack_of<T> ? COUNT : pack_of<T>;

template <int COUNT, class T> DPB_DEVICE void load(const T *from, float (&to)[COUNT])
{
    constexpr int EACH = pack_in<T, COUNT>;

    for (int i = 0; i < COUNT; i += EACH) {
        const pack<T, EACH> values = *reinterpret_cast<const pack<T, EACH> *>(from + i);

        for (int j = 0; j < EACH; j++)
            to[i + j] = to_float(values.at[j]);
    }
}

template <int COUNT, class T> DPB_DEVICE void store(T *to, const float (&from)[COUNT])
{
    constexpr int EACH = pack_in<T, COUNT>;

    for (int i = 0; i < COUNT; i += EACH) {
        pack<T, EACH> values;

        for (int j = 0; j < EACH; j++)
            values.at[j] = from_float<T>(from[i + j]);
        *reinterpret_cast<pack<T, EACH> *>(to + i) = values;
    }
}

/* ---- sums ---- */

#ifndef DPB_CUDA_THREADS
#define DPB_CUDA_THREADS 256
#endif
/* Threads of a block, where a kernel says nothing else. (Fewer where a test has one thread of the
 * host for each.) */
constexpr unsigned THREADS = DPB_CUDA_THREADS;
constexpr unsigned WARP = 32, WARPS = THREADS / WARP;

/* Over the warp; every thread gets it. */
template <class T> DPB_DEVICE T warp_sum(T value)
{
    for (unsigned mask = WARP / 2; mask > 0; mask /= 2)
        value += shuffle_xor(value, mask);
    return value;
}

DPB_DEVICE float warp_max(float value)
{
    for (unsigned mask = WARP / 2; mask > 0; mask /= 2)
        value = fmaxf(value, shuffle_xor(value, mask));
    return value;
}

/* What each warp has, for all threads of the block; of at most 1024. */
template <class T> DPB_DEVICE const T *share_by_warp(T value)
{
    DPB_SHARED(T, part, 32);

    DPB_SYNC(); /* the last call's readers */
    if (thread() % WARP == 0)
        part[thread() / WARP] = value;
    DPB_SYNC();
    return part;
}

/* Over the block; every thread gets it. */
template <class T> DPB_DEVICE T block_sum(T value)
{
    const T *part = share_by_warp(warp_sum(value));
    T sum = 0;

    for (unsigned i = 0; i < threads() / WARP; i++)
        sum += part[i];
    return sum;
}

DPB_DEVICE float block_max(float value)
{
    const float *part = share_by_warp(warp_max(value));

    value = part[0];
    for (unsigned i = 1; i < threads() / WARP; i++)
        value = fmaxf(value, part[i]);
    return value;
}

/* ---- faults ---- */

/* The lowest position wins (dpb_cuda_fault_read()). */
DPB_DEVICE void note_fault(struct dpb_cuda_faults *faults, enum dpb_cuda_fault kind,
                           int64_t position, int32_t value)
{
    atomic_max(&faults->first[kind], ~((uint64_t)position << 32 | (uint32_t)value));
}

/* ---- on the host ---- */

constexpr int64_t BLOCKS_MOST = 2048; /* enough for every GPU; loops go over the rest */

static inline int64_t divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Blocks for `work` threads' worth of work, in a loop over the grid. */
static inline unsigned blocks_for(int64_t work)
{
    int64_t blocks = divide_up(work, THREADS);

    return (unsigned)(blocks < BLOCKS_MOST ? blocks : BLOCKS_MOST);
}

template <class... Pointer> static inline bool aligned(const Pointer *...pointer)
{
    return (((uintptr_t)pointer | ...) & 15u) == 0;
}

/* `f(T())` for the element type: the launch of a kernel for it. */
template <class F> static inline int by_type(enum dpb_dtype dtype, F f)
{
    if (dtype == DPB_F32)
        return f(float());
    if (dtype == DPB_BF16)
        return f(bf16());
    if (dtype == DPB_F16)
        return f(fp16());
    return DPB_CUDA_INVALID;
}

/* `f` with the number of elements, as a type, that a thread takes at once: WIDE or 1. */
template <int WIDE, class F> static inline int by_width(bool wide, F f)
{
    return wide ? f(std::integral_constant<int, WIDE>()) : f(std::integral_constant<int, 1>());
}
} // namespace dpb

#endif

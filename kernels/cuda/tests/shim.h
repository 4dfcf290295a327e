/* shim.h: kernels of dialect.h on the host, for tests.
 *
 * A block's threads are fibers: each runs until it waits, in an order that differs from launch to
 * launch, and the blocks one after another. So a kernel that depends on the order shows, in tests
 * that run it twice, and so does a missing barrier: shared memory is poisoned with NaNs at the
 * start of every block. With DPB_SHIM_PTHREAD they are threads of the host, for ThreadSanitizer;
 * then the two checks below are not made.
 *
 * Found at run time: threads of a block that wait at different barriers, or for ones that have
 * returned; the same within a warp. The launch then fails, and dpb_shim_error() names the block and
 * the threads.
 *
 * One thread of the host at a time may run kernels. */
#ifndef DPB_CUDA_SHIM_H
#define DPB_CUDA_SHIM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- for tests in C, and for a CUDA runtime that is not one ---- */

/* Of a launch: cudaErrorInvalidConfiguration, cudaErrorLaunchFailure. */
#define DPB_SHIM_BAD_LAUNCH 9
#define DPB_SHIM_FAILED     719

/* A launch that has not run yet; it holds copies of the kernel's arguments. */
struct dpb_shim_work;

/* Run it: 0, DPB_SHIM_BAD_LAUNCH or DPB_SHIM_FAILED. May be done more than once. */
int dpb_shim_work_run(struct dpb_shim_work *work);
void dpb_shim_work_free(struct dpb_shim_work *work);

/* From now on a launch does not run: `launcher` gets it, to run and free when the stream has come
 * that far, and its result is the launch's (cudaError_t). The work is its own, also when it fails.
 * NULL: launches run at once. */
typedef int (*dpb_shim_launcher)(void *ctx, void *stream, struct dpb_shim_work *work);
void dpb_shim_set_launcher(dpb_shim_launcher launcher, void *ctx);

/* The order from now on; 0 at first. */
enum dpb_shim_order {
    DPB_SHIM_THREADS_BACKWARD = 1, /* the last thread of a block first */
    DPB_SHIM_BLOCKS_BACKWARD = 2
};
void dpb_shim_set_order(unsigned order);

/* What the last failed run has found; "" when none has. Static storage. */
const char *dpb_shim_error(void);

/* Launches since the program's start. */
int64_t dpb_shim_launches(void);

#ifdef __cplusplus
}

#include <string.h>
#include <tuple>

/* ---- for dialect.h ---- */

struct dpb_shim_lane {
    unsigned thread, threads, block_x, block_y, blocks_x, blocks_y;
};
/* The one that runs now. */
#ifdef DPB_SHIM_PTHREAD
#define DPB_SHIM_LOCAL __thread
#else
#define DPB_SHIM_LOCAL
#endif
extern DPB_SHIM_LOCAL const struct dpb_shim_lane *dpb_shim_now;

/* Wait for the block, or the warp; `site` is the source line. */
void dpb_shim_sync(const char *site);
/* `count` bytes that all threads of the block share, one array for each key. */
void *dpb_shim_shared(const void *key, size_t bytes);
/* The value that thread number `from` of the warp gives. */
uint64_t dpb_shim_exchange(uint64_t value, unsigned from);
uint32_t dpb_shim_ballot(bool value);

struct dpb_shim_call {
    virtual ~dpb_shim_call() = default;
    virtual void run() const = 0; /* one thread of the kernel */
};
/* Takes `call`. */
int dpb_shim_launch(void *stream, unsigned blocks_x, unsigned blocks_y, unsigned threads,
                    const struct dpb_shim_call *call);

#define DPB_KERNEL static void
#define DPB_DEVICE static inline
#define DPB_MEMBER inline
#define DPB_UNROLL

#define DPB_SHIM_TEXT_OF(x) #x
#define DPB_SHIM_TEXT(x)    DPB_SHIM_TEXT_OF(x)
#define DPB_SYNC()          dpb_shim_sync(__FILE__ ":" DPB_SHIM_TEXT(__LINE__))
#define DPB_SHARED(type, name, count)                                                              \
    static const char name##_key = 0;                                                              \
    type *name = static_cast<type *>(dpb_shim_shared(&name##_key, (count) * sizeof(type)))

namespace dpb
{
DPB_DEVICE unsigned thread()
{
    return dpb_shim_now->thread;
}

DPB_DEVICE unsigned threads()
{
    return dpb_shim_now->threads;
}

DPB_DEVICE unsigned block_x()
{
    return dpb_shim_now->block_x;
}

DPB_DEVICE unsigned block_y()
{
    return dpb_shim_now->block_y;
}

DPB_DEVICE unsigned blocks_x()
{
    return dpb_shim_now->blocks_x;
}

DPB_DEVICE unsigned blocks_y()
{
    return dpb_shim_now->blocks_y;
}

template <class T> DPB_DEVICE T shuffle(T value, unsigned from)
{
    uint64_t bits = 0;

    static_assert(sizeof(T) <= sizeof(bits), "a shuffle carries 8 bytes");
    memcpy(&bits, &value, sizeof(value));
    bits = dpb_shim_exchange(bits, from);
    memcpy(&value, &bits, sizeof(value));
    return value;
}

template <class T> DPB_DEVICE T shuffle_xor(T value, unsigned mask)
{
    return shuffle(value, thread() % 32 ^ mask);
}

DPB_DEVICE uint32_t ballot(bool value)
{
    return dpb_shim_ballot(value);
}

DPB_DEVICE int lowest_bit(uint32_t bits)
{
    return __builtin_ffs((int)bits) - 1;
}

DPB_DEVICE void atomic_max(uint64_t *to, uint64_t value)
{
    uint64_t old = __atomic_load_n(to, __ATOMIC_RELAXED);

    while (old < value &&
           !__atomic_compare_exchange_n(to, &old, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        continue;
}

DPB_DEVICE void raise_flag(int32_t *flag)
{
    __atomic_store_n(flag, 1, __ATOMIC_RELAXED);
}

/* ---- bf16 is the upper half of an fp32, fp16 has 5 bits of exponent and 10 of fraction ---- */

DPB_DEVICE float to_float(bf16 value)
{
    uint32_t bits = (uint32_t)value.bits << 16;
    float result;

    memcpy(&result, &bits, sizeof(result));
    return result;
}

DPB_DEVICE bf16 to_bf16(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return bf16{0x7fff};
    return bf16{(uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
}

DPB_DEVICE float to_float(fp16 value)
{
    int exponent = value.bits >> 10 & 31, fraction = value.bits & 1023;
    float magnitude = exponent == 0    ? ldexpf((float)fraction, -24)
                      : exponent == 31 ? (fraction ? NAN : INFINITY)
                                       : ldexpf((float)(1024 + fraction), exponent - 25);

    return value.bits & 0x8000u ? -magnitude : magnitude;
}

DPB_DEVICE fp16 to_fp16(float value)
{
    uint16_t sign = signbit(value) ? 0x8000u : 0u;
    float magnitude = fabsf(value);
    int exponent;

    if (isnan(value))
        return fp16{0x7fff};
    if (magnitude >= 65520.0f)
        return fp16{(uint16_t)(sign | 0x7c00u)};
    frexpf(magnitude, &exponent);
    exponent = magnitude < 0x1p-14f ? -13 : exponent; /* subnormal: steps of 2^-24 */
    /* A fraction that rounds up to 2048 carries into the exponent by itself. */
    return fp16{(uint16_t)(sign + ((exponent + 13) << 10) +
                           (int)nearbyintf(ldexpf(magnitude, 11 - exponent)))};
}

/* ---- launch ---- */

template <class... Parameter> struct shim_call : dpb_shim_call {
    void (*kernel)(Parameter...);
    std::tuple<Parameter...> arguments;

    shim_call(void (*kernel_given)(Parameter...), Parameter... given)
        : kernel(kernel_given), arguments(given...)
    {
    }
    void run() const override
    {
        std::apply(kernel, arguments);
    }
};

template <class... Parameter, class... Argument>
int launch(void (*kernel)(Parameter...), unsigned blocks_x, unsigned blocks_y, unsigned threads,
           const struct dpb_cuda_queue *queue, Argument... arguments)
{
    return dpb_shim_launch(
            queue->stream, blocks_x, blocks_y, threads,
            new shim_call<Parameter...>(kernel, static_cast<Parameter>(arguments)...));
}
} // namespace dpb

#endif
#endif

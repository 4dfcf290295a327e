/* Elementwise: ReLU, sum, activations, scale, cast, fill, the search for what is not finite, and
 * sigmoid with binary cross-entropy. */
#include "dialect.h"

#include <float.h>

namespace dpb
{
/* Loop over `count` elements, WIDTH at a time, then over what is left. */
struct range {
    int64_t index, step;
};

DPB_DEVICE struct range grid_range()
{
    return {(int64_t)block_x() * threads() + thread(), (int64_t)threads() * blocks_x()};
}

template <class T, int WIDTH, class F> DPB_KERNEL map_1(const T *x, T *y, int64_t count, F f)
{
    const struct range r = grid_range();
    float values[WIDTH];

    for (int64_t i = r.index; i < count / WIDTH; i += r.step) {
        load(x + i * WIDTH, values);
        for (int j = 0; j < WIDTH; j++)
            values[j] = f(values[j]);
        store(y + i * WIDTH, values);
    }
    for (int64_t i = count / WIDTH * WIDTH + r.index; i < count; i += r.step)
        y[i] = from_float<T>(f(to_float(x[i])));
}

template <class T, int WIDTH, class F>
DPB_KERNEL map_2(const T *a, const T *b, T *y, int64_t count, F f)
{
    const struct range r = grid_range();
    float left[WIDTH], right[WIDTH];

    for (int64_t i = r.index; i < count / WIDTH; i += r.step) {
        load(a + i * WIDTH, left);
        load(b + i * WIDTH, right);
        for (int j = 0; j < WIDTH; j++)
            left[j] = f(left[j], right[j]);
        store(y + i * WIDTH, left);
    }
    for (int64_t i = count / WIDTH * WIDTH + r.index; i < count; i += r.step)
        y[i] = from_float<T>(f(to_float(a[i]), to_float(b[i])));
}

/* y = f(x) */
template <class F>
static int run_map(const void *x, void *y, enum dpb_dtype dtype, int64_t count,
                   const struct dpb_cuda_queue *queue, F f)
{
    if (count == 0)
        return 0;
    return by_type(dtype, [&](auto zero) {
        using T = decltype(zero);

        return by_width<pack_of<T>>(aligned(x, y), [&](auto width) {
            constexpr int WIDTH = decltype(width)::value;

            return launch(map_1<T, WIDTH, F>, blocks_for(divide_up(count, WIDTH)), 1, THREADS,
                          queue, (const T *)x, (T *)y, count, f);
        });
    });
}

/* y = f(a, b) */
template <class F>
static int run_map(const struct dpb_tensor *a, const struct dpb_tensor *b,
                   const struct dpb_tensor *y, const struct dpb_cuda_queue *queue, F f)
{
    int64_t count = dpb_tensor_numel(y);

    return by_type(y->dtype, [&](auto zero) {
        using T = decltype(zero);

        return by_width<pack_of<T>>(aligned(a->data, b->data, y->data), [&](auto width) {
            constexpr int WIDTH = decltype(width)::value;

            return launch(map_2<T, WIDTH, F>, blocks_for(divide_up(count, WIDTH)), 1, THREADS,
                          queue, (const T *)a->data, (const T *)b->data, (T *)y->data, count, f);
        });
    });
}

struct relu {
    DPB_MEMBER float operator()(float x) const
    {
        return x > 0.0f ? x : 0.0f;
    }
};

struct relu_slope {
    DPB_MEMBER float operator()(float y, float dy) const
    {
        return y > 0.0f ? dy : 0.0f;
    }
};

struct sum {
    bool with_relu;

    DPB_MEMBER float operator()(float a, float b) const
    {
        return !with_relu || a + b > 0.0f ? a + b : 0.0f;
    }
};

struct product {
    float factor;

    DPB_MEMBER float operator()(float x) const
    {
        return x * factor;
    }
};

constexpr float SQRT_HALF = 0.70710678118654752f;
constexpr float NORMAL_DENSITY = 0.39894228040143268f; /* 1 / sqrt(2 pi) */
constexpr float SQRT_2_BY_PI = 0.79788456080286536f;

/* Of the tanh form: (1 + tanh(u)) / 2 = 1 / (1 + exp(-2 u)), and what is missing to 1; neither
 * cancels. */
struct gelu_gate {
    float open, closed;
};

DPB_DEVICE struct gelu_gate gelu_gate_of(float x)
{
    float u = SQRT_2_BY_PI * (x + 0.044715f * x * x * x);
    float e = expf(fminf(-2.0f * u, 80.0f)); /* finite */
    float open = 1.0f / (1.0f + e);

    return {open, e * open};
}

struct gelu {
    DPB_MEMBER float operator()(float x) const
    {
        return 0.5f * x * erfcf(-x * SQRT_HALF);
    }
};

struct gelu_slope {
    DPB_MEMBER float operator()(float x, float dy) const
    {
        return dy * (0.5f * erfcf(-x * SQRT_HALF) + x * NORMAL_DENSITY * expf(-0.5f * x * x));
    }
};

struct gelu_tanh {
    DPB_MEMBER float operator()(float x) const
    {
        return x * gelu_gate_of(x).open;
    }
};

struct gelu_tanh_slope {
    DPB_MEMBER float operator()(float x, float dy) const
    {
        const struct gelu_gate gate = gelu_gate_of(x);
        float slope = SQRT_2_BY_PI * (1.0f + 0.134145f * x * x); /* of u */

        return dy * (gate.open + 2.0f * x * gate.open * gate.closed * slope);
    }
};

struct tangent {
    DPB_MEMBER float operator()(float x) const
    {
        return tanhf(x);
    }
};

struct tangent_slope {
    DPB_MEMBER float operator()(float y, float dy) const
    {
        return dy * (1.0f - y * y);
    }
};

/* ---- cast ---- */

constexpr int CAST_WIDTH = 4;

template <class From, class To, int WIDTH> DPB_KERNEL cast(const From *from, To *to, int64_t count)
{
    const struct range r = grid_range();
    float values[WIDTH];

    for (int64_t i = r.index; i < count / WIDTH; i += r.step) {
        load(from + i * WIDTH, values);
        store(to + i * WIDTH, values);
    }
    for (int64_t i = count / WIDTH * WIDTH + r.index; i < count; i += r.step)
        to[i] = from_float<To>(to_float(from[i]));
}

/* ---- fill, search ---- */

template <class T, int WIDTH> DPB_KERNEL fill(T *x, int64_t count, float value)
{
    const struct range r = grid_range();
    float values[WIDTH];

    for (int j = 0; j < WIDTH; j++)
        values[j] = value;
    for (int64_t i = r.index; i < count / WIDTH; i += r.step)
        store(x + i * WIDTH, values);
    for (int64_t i = count / WIDTH * WIDTH + r.index; i < count; i += r.step)
        x[i] = from_float<T>(value);
}

DPB_DEVICE bool is_finite(float value)
{
    return fabsf(value) <= FLT_MAX;
}

template <class T, int WIDTH> DPB_KERNEL find_nonfinite(const T *x, int64_t count, int32_t *found)
{
    const struct range r = grid_range();
    float values[WIDTH];
    bool finite = true;

    for (int64_t i = r.index; i < count / WIDTH; i += r.step) {
        load(x + i * WIDTH, values);
        for (int j = 0; j < WIDTH; j++)
            finite = finite && is_finite(values[j]);
    }
    for (int64_t i = count / WIDTH * WIDTH + r.index; i < count; i += r.step)
        finite = finite && is_finite(to_float(x[i]));
    if (!finite)
        raise_flag(found);
}

/* ---- sigmoid with binary cross-entropy ---- */

DPB_KERNEL sigmoid_bce_fwd(const float *logits, const int32_t *label, float *loss, int64_t count,
                           struct dpb_cuda_faults *faults)
{
    const struct range r = grid_range();

    for (int64_t i = r.index; i < count; i += r.step) {
        float z = logits[i];
        int32_t is_one = label[i];

        if (is_one != 0 && is_one != 1) {
            note_fault(faults, DPB_CUDA_FAULT_BCE_LABEL, i, is_one);
            loss[i] = NAN;
            continue;
        }
        /* exp() of a number that is not positive: no overflow for any logit. */
        loss[i] = fmaxf(z, 0.0f) - (is_one ? z : 0.0f) + log1pf(expf(-fabsf(z)));
    }
}

DPB_KERNEL sigmoid_bce_bwd(const float *logits, const int32_t *label, float *dlogits, int64_t count,
                           float scale)
{
    const struct range r = grid_range();

    for (int64_t i = r.index; i < count; i += r.step) {
        float z = logits[i], decay = expf(-fabsf(z));
        float sigmoid = (z < 0.0f ? decay : 1.0f) / (1.0f + decay);

        dlogits[i] = (sigmoid - (float)label[i]) * scale;
    }
}
} // namespace dpb

/* ---- launches ---- */

int dpb_cuda_relu_fwd(const struct dpb_relu_args *args, const struct dpb_cuda_queue *queue)
{
    return dpb::run_map(args->x.data, args->y.data, args->y.dtype, dpb_tensor_numel(&args->y),
                        queue, dpb::relu());
}

int dpb_cuda_relu_bwd(const struct dpb_relu_args *args, const struct dpb_cuda_queue *queue)
{
    return dpb::run_map(&args->y, &args->dy, &args->dx, queue, dpb::relu_slope());
}

int dpb_cuda_add(const struct dpb_add_args *args, const struct dpb_cuda_queue *queue)
{
    return dpb::run_map(&args->a, &args->b, &args->y, queue, dpb::sum{args->relu});
}

int dpb_cuda_scale(const struct dpb_scale_args *args, const struct dpb_cuda_queue *queue)
{
    return dpb::run_map(args->x, args->x, DPB_F32, args->count, queue, dpb::product{args->factor});
}

int dpb_cuda_gelu_fwd(const struct dpb_activation_args *args, const struct dpb_cuda_queue *queue)
{
    int64_t count = dpb_tensor_numel(&args->x);

    if (args->tanh_form)
        return dpb::run_map(args->x.data, args->y.data, args->x.dtype, count, queue,
                            dpb::gelu_tanh());
    return dpb::run_map(args->x.data, args->y.data, args->x.dtype, count, queue, dpb::gelu());
}

int dpb_cuda_gelu_bwd(const struct dpb_activation_args *args, const struct dpb_cuda_queue *queue)
{
    if (args->tanh_form)
        return dpb::run_map(&args->x, &args->dy, &args->dx, queue, dpb::gelu_tanh_slope());
    return dpb::run_map(&args->x, &args->dy, &args->dx, queue, dpb::gelu_slope());
}

int dpb_cuda_tanh_fwd(const struct dpb_activation_args *args, const struct dpb_cuda_queue *queue)
{
    return dpb::run_map(args->x.data, args->y.data, args->x.dtype, dpb_tensor_numel(&args->x),
                        queue, dpb::tangent());
}

int dpb_cuda_tanh_bwd(const struct dpb_activation_args *args, const struct dpb_cuda_queue *queue)
{
    return dpb::run_map(&args->y, &args->dy, &args->dx, queue, dpb::tangent_slope());
}

int dpb_cuda_cast(const struct dpb_cast_args *args, const struct dpb_cuda_queue *queue)
{
    using namespace dpb;
    int64_t count = dpb_tensor_numel(&args->from);

    return by_type(args->from.dtype, [&](auto from) {
        using From = decltype(from);

        return by_type(args->to.dtype, [&](auto to) {
            using To = decltype(to);

            return by_width<CAST_WIDTH>(aligned(args->from.data, args->to.data), [&](auto width) {
                constexpr int WIDTH = decltype(width)::value;

                return launch(dpb::cast<From, To, WIDTH>, blocks_for(divide_up(count, WIDTH)), 1,
                              THREADS, queue, (const From *)args->from.data, (To *)args->to.data,
                              count);
            });
        });
    });
}

int dpb_cuda_fill(void *x, enum dpb_dtype dtype, int64_t count, float value,
                  const struct dpb_cuda_queue *queue)
{
    using namespace dpb;

    if (count == 0)
        return 0;
    return by_type(dtype, [&](auto zero) {
        using T = decltype(zero);

        return by_width<pack_of<T>>(aligned(x), [&](auto width) {
            constexpr int WIDTH = decltype(width)::value;

            return launch(fill<T, WIDTH>, blocks_for(divide_up(count, WIDTH)), 1, THREADS, queue,
                          (T *)x, count, value);
        });
    });
}

int dpb_cuda_find_nonfinite(const void *x, enum dpb_dtype dtype, int64_t count, int32_t *found,
                            const struct dpb_cuda_queue *queue)
{
    using namespace dpb;

    if (count == 0)
        return 0;
    return by_type(dtype, [&](auto zero) {
        using T = decltype(zero);

        return by_width<pack_of<T>>(aligned(x), [&](auto width) {
            constexpr int WIDTH = decltype(width)::value;

            return launch(find_nonfinite<T, WIDTH>, blocks_for(divide_up(count, WIDTH)), 1, THREADS,
                          queue, (const T *)x, count, found);
        });
    });
}

int dpb_cuda_sigmoid_bce_fwd(const struct dpb_sigmoid_bce_args *args,
                             const struct dpb_cuda_queue *queue)
{
    int64_t count = dpb_tensor_numel(&args->logits);

    if (args->logits.dtype != DPB_F32)
        return DPB_CUDA_INVALID;
    return dpb::launch(dpb::sigmoid_bce_fwd, dpb::blocks_for(count), 1, dpb::THREADS, queue,
                       (const float *)args->logits.data, args->label, args->loss, count,
                       queue->faults);
}

int dpb_cuda_sigmoid_bce_bwd(const struct dpb_sigmoid_bce_args *args,
                             const struct dpb_cuda_queue *queue)
{
    int64_t count = dpb_tensor_numel(&args->logits);

    if (args->logits.dtype != DPB_F32)
        return DPB_CUDA_INVALID;
    return dpb::launch(dpb::sigmoid_bce_bwd, dpb::blocks_for(count), 1, dpb::THREADS, queue,
                       (const float *)args->logits.data, args->label, (float *)args->dlogits.data,
                       count, args->scale);
}

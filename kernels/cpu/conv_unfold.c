/* A convolution's weight gradient as a matrix product: dw = dy^T windows, where a row of `windows`
 * is what one pixel of y saw of x. In NHWC the pixels that one row of a kernel covers lie side by
 * side, so that a window is copied in as many pieces as the kernel has rows. The rows are made a
 * block at a time, which stays in the cache, and are further apart than they are long: see
 * `spreads_b` in matmul.c. */
#include <string.h>

#include "cpu_device.h"

#define BLOCK  256 /* rows */
#define SPREAD 16  /* floats between the end of a row and the next one */

/* oneDNN's own (GFLOP/s, that and this; one thread, Zen 3, oneDNN 2.6, unpacking included):
 * 4x56x56x64 -> 64: 67, 85; 4x28x28x128 -> 128: 70, 88; 4x14x14x256 -> 256: 70, 88; 4x7x7x512 ->
 * 512: 61, 80; with a stride of 2 as well. In AVX-512 oneDNN's own keeps up. */
bool dpb_cpu_conv_unfolds(const dpb_device *device, enum dpb_op op,
                          const struct dpb_conv_args *args)
{
    return op == DPB_OP_CONV_BWD_WEIGHTS && !device->has_avx512 && args->x.dtype == DPB_F32 &&
           args->w.dim[0] >= 32 && args->w.dim[1] >= 32;
}

struct unfolding {
    const struct dpb_conv_args *args;
    int64_t pixels;      /* of y */
    int64_t first;       /* of them, in the first row of the block */
    int64_t window, out; /* elements of a row, without SPREAD */
    float *windows, *dy; /* the block's rows */
    float *dw;           /* [out][kernel row][kernel column][in] */
};

/* The part of a window that row `ki` of the kernel covers, with zeros outside of the image. */
static void unfold_row(const struct dpb_conv_args *a, int64_t n, int64_t i, int64_t j, float *to)
{
    int64_t h = a->x.dim[1], w = a->x.dim[2], c = a->x.dim[3], columns = a->w.dim[3];
    int64_t before = j < 0 ? -j : 0, after = j + columns > w ? j + columns - w : 0;

    if (i < 0 || i >= h || before + after >= columns) {
        memset(to, 0, (size_t)(columns * c) * sizeof(float));
        return;
    }
    memset(to, 0, (size_t)(before * c) * sizeof(float));
    memcpy(to + before * c, (const float *)a->x.data + ((n * h + i) * w + j + before) * c,
           (size_t)((columns - before - after) * c) * sizeof(float));
    memset(to + (columns - after) * c, 0, (size_t)(after * c) * sizeof(float));
}

static void unfold(void *ctx, int64_t begin, int64_t end)
{
    const struct unfolding *u = ctx;
    const struct dpb_conv_args *a = u->args;
    int64_t h = a->y.dim[1], w = a->y.dim[2], row = a->w.dim[3] * a->x.dim[3];

    for (int64_t k = begin; k < end; k++) {
        int64_t pixel = u->first + k, n = pixel / (h * w);
        int64_t i = pixel / w % h * a->stride - a->pad, j = pixel % w * a->stride - a->pad;
        float *to = u->windows + k * (u->window + SPREAD);

        for (int64_t ki = 0; ki < a->w.dim[2]; ki++)
            unfold_row(a, n, i + ki, j, to + ki * row);
        memcpy(u->dy + k * (u->out + SPREAD), (const float *)a->y.data + pixel * u->out,
               (size_t)u->out * sizeof(float));
    }
}

/* From [out][kernel][in] to [out][in][kernel]. */
static void fold_weights(void *ctx, int64_t begin, int64_t end)
{
    const struct unfolding *u = ctx;
    int64_t in = u->args->w.dim[1], kernel = u->window / in;

    for (int64_t o = begin; o < end; o++) {
        const float *from = u->dw + o * u->window;
        float *to = (float *)u->args->w.data + o * u->window;

        for (int64_t i = 0; i < in; i++)
            for (int64_t k = 0; k < kernel; k++)
                to[i * kernel + k] = from[k * in + i];
    }
}

static dnnl_status_t reserve(dpb_device *device, struct unfolding *u)
{
    int64_t windows = BLOCK * (u->window + SPREAD), dy = BLOCK * (u->out + SPREAD);

    DNNL_TRY(dpb_cpu_buffer_reserve(device, &device->between,
                                    (size_t)(windows + dy + u->out * u->window) * sizeof(float)));
    u->windows = device->between.memory;
    u->dy = u->windows + windows;
    u->dw = u->dy + dy;
    return dnnl_success;
}

static dnnl_status_t multiply(dpb_device *device, struct unfolding *u)
{
    DNNL_TRY(reserve(device, u));
    for (u->first = 0; u->first < u->pixels; u->first += BLOCK) {
        int64_t rows = u->pixels - u->first < BLOCK ? u->pixels - u->first : BLOCK;

        dpb_cpu_parallel(device->threads, rows, 1 + 16384 / u->window, unfold, u);
        DNNL_TRY(dnnl_sgemm('T', 'N', u->out, u->window, rows, 1.0f, u->dy, u->out + SPREAD,
                            u->windows, u->window + SPREAD, u->first > 0 ? 1.0f : 0.0f, u->dw,
                            u->window));
    }
    dpb_cpu_parallel(device->threads, u->out, 1 + 16384 / u->window, fold_weights, u);
    return dnnl_success;
}

dpb_status dpb_cpu_conv_unfolded(dpb_device *device, enum dpb_op op,
                                 const struct dpb_conv_args *args)
{
    struct unfolding u = {.args = args,
                          .pixels = args->y.dim[0] * args->y.dim[1] * args->y.dim[2],
                          .window = args->w.dim[1] * args->w.dim[2] * args->w.dim[3],
                          .out = args->w.dim[0]};
    dnnl_status_t status = multiply(device, &u);

    if (status != dnnl_success)
        return dpb_cpu_vendor_error(status, "run", op, args);
    if (!args->bias)
        return DPB_OK;
    return dpb_cpu_bias(device, DPB_OP_BIAS_BWD,
                        &(struct dpb_bias_args){.y = dpb_tensor_2d(args->y.data, u.pixels, u.out),
                                                .bias = args->bias});
}

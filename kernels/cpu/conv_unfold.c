/* A convolution as a matrix product. A row of `windows` is what one pixel of the result sees of an
 * image: y = windows(x) w, dx = windows(dy) of w turned round (stride 1), dw = dy^T windows(x). In
 * NHWC the pixels that one row of a kernel covers lie side by side, so that a window is copied in
 * as many pieces as the kernel has rows. Windows are made a block at a time, which stays in the
 * cache, and all matrices have rows that are further apart than they are long: see
 * multiplies_in_place() in matmul.c. */
#include <stdatomic.h>
#include <string.h>

#include "cpu_device.h"

#define SPREAD      16  /* floats between the end of a row and the next one */
#define BLOCK       64  /* rows; each thread has blocks of its own */
#define STRIP       8   /* columns of weights */
#define BLOCK_TERMS 256 /* rows that are summed over; all threads work on one block */

/* oneDNN's own and this (GFLOP/s, one thread, Zen 3, oneDNN 2.6; packing, unpacking and turning
 * included), 4 images, 3x3:
 *   dw  56x56x64 -> 64: 67, 85   28x28x128 -> 128: 70, 88   14x14x256 -> 256: 70, 88
 *       7x7x512 -> 512: 61, 80, and the same with a stride of 2
 *   y   56x56x64 -> 64: 79, 90   56x56x128 -> 128, stride 2: 79, 90   7x7x512 -> 512: 74, 76
 * and dw with one pixel, from 128 channels on: its blocks are spread in the cache, which a product
 * over all rows would do in memory. With AVX-512 it was not measured, and oneDNN's own stays. */
bool dpb_cpu_conv_unfolds(const dpb_device *device, enum dpb_op op,
                          const struct dpb_conv_args *args)
{
    int64_t out = args->w.dim[0], in = args->w.dim[1], weights = dpb_tensor_numel(&args->w);
    bool is_pixel = args->w.dim[2] == 1 && args->w.dim[3] == 1 && args->pad == 0;

    if (device->has_avx512 || args->x.dtype != DPB_F32 || out < 32 || in < 32)
        return false;
    if (is_pixel)
        return op == DPB_OP_CONV_BWD_WEIGHTS && out >= 128 && in >= 128;
    /* Turning weights round takes longer than it saves where the result is much smaller. */
    if (op == DPB_OP_CONV_FWD)
        return 32 * dpb_tensor_numel(&args->y) > weights;
    if (op == DPB_OP_CONV_BWD_DATA)
        return args->stride == 1 && 3 * dpb_tensor_numel(&args->x) > weights;
    return true;
}

/* What windows are made of. */
struct image {
    const float *data; /* [.][h][w][c] */
    int64_t h, w, c;
    int64_t result_h, result_w, stride;
    int64_t kernel_h, kernel_w;
    int64_t before_h, before_w; /* how far the first window begins outside of the image */
    int64_t window;             /* elements */
};

static struct image image_of(const struct dpb_conv_args *a, bool turned)
{
    const struct dpb_tensor *from = turned ? &a->y : &a->x, *to = turned ? &a->x : &a->y;
    struct image image = {.data = from->data,
                          .h = from->dim[1],
                          .w = from->dim[2],
                          .c = from->dim[3],
                          .result_h = to->dim[1],
                          .result_w = to->dim[2],
                          .stride = a->stride,
                          .kernel_h = a->w.dim[2],
                          .kernel_w = a->w.dim[3],
                          .before_h = a->pad,
                          .before_w = a->pad};

    if (turned) {
        image.before_h = image.kernel_h - 1 - a->pad;
        image.before_w = image.kernel_w - 1 - a->pad;
    }
    image.window = image.kernel_h * image.kernel_w * image.c;
    return image;
}

static inline int64_t between(int64_t x, int64_t least, int64_t most)
{
    return x < least ? least : x > most ? most : x;
}

/* The part of a window that one row of the kernel covers, from pixel (i, j) of image n on, with
 * zeros outside. */
static void unfold_row(const struct image *image, int64_t n, int64_t i, int64_t j, float *to)
{
    int64_t c = image->c, columns = image->kernel_w;
    int64_t first = between(-j, 0, columns), end = between(image->w - j, first, columns);

    if (i < 0 || i >= image->h)
        first = end = 0;
    memset(to, 0, (size_t)(first * c) * sizeof(float));
    if (first < end)
        memcpy(to + first * c, image->data + ((n * image->h + i) * image->w + j + first) * c,
               (size_t)((end - first) * c) * sizeof(float));
    memset(to + end * c, 0, (size_t)((columns - end) * c) * sizeof(float));
}

/* The window of one pixel of the result. */
static void unfold(const struct image *image, int64_t pixel, float *to)
{
    int64_t h = image->result_h, w = image->result_w;
    int64_t i = pixel / w % h * image->stride - image->before_h;
    int64_t j = pixel % w * image->stride - image->before_w;

    for (int64_t k = 0; k < image->kernel_h; k++)
        unfold_row(image, pixel / (h * w), i + k, j, to + k * image->kernel_w * image->c);
}

/* The same window as the weights lie: [c][kernel]. */
static void unfold_as_weights(const struct image *image, int64_t pixel, float *to)
{
    int64_t h = image->result_h, w = image->result_w, c = image->c;
    int64_t kernel = image->kernel_h * image->kernel_w, n = pixel / (h * w);
    int64_t i0 = pixel / w % h * image->stride - image->before_h;
    int64_t j0 = pixel % w * image->stride - image->before_w;

    for (int64_t k = 0; k < kernel; k++) {
        int64_t i = i0 + k / image->kernel_w, j = j0 + k % image->kernel_w;
        bool inside = i >= 0 && i < image->h && j >= 0 && j < image->w;
        const float *from = image->data + (inside ? ((n * image->h + i) * image->w + j) * c : 0);

        for (int64_t l = 0; l < c; l++)
            to[l * kernel + k] = inside ? from[l] : 0.0f;
    }
}

static dpb_status checked(dnnl_status_t status, enum dpb_op op, const struct dpb_conv_args *args)
{
    return status == dnnl_success ? DPB_OK : dpb_cpu_vendor_error(status, "run", op, args);
}

/* ---- the result's pixels are independent ---- */

struct forward {
    const struct dpb_conv_args *args;
    struct image image;
    bool turned;
    int threads;
    int64_t pixels, columns; /* of the result */
    float *weights;          /* [window][columns] */
    float *windows;          /* a block for each thread */
    float *result;
    atomic_int status; /* dnnl_status_t; one that is no success, of whichever block */
};

static int64_t windows_elements(const struct forward *f)
{
    return BLOCK * (f->image.window + SPREAD);
}

/* From w[out][in][kernel] to [kernel][in][out], or, turned round, to [kernel][out][in]: strips of
 * STRIP columns, so that the lines that are read for one of the kernel's pixels are still there for
 * the next one. Strips `begin` to `end`. */
static void turn_weights(void *ctx, int64_t begin, int64_t end)
{
    const struct forward *f = ctx;
    int64_t in = f->args->w.dim[1], kernel = f->image.kernel_h * f->image.kernel_w;
    int64_t by_column = f->turned ? kernel : in * kernel, by_row = f->turned ? in * kernel : kernel;
    int64_t row = f->columns + SPREAD;

    for (int64_t strip = begin; strip < end; strip++) {
        int64_t first = strip * STRIP, count = between(f->columns - first, 0, STRIP);

        for (int64_t k = 0; k < kernel; k++) {
            const float *from = (const float *)f->args->w.data + first * by_column + k;
            float *to = f->weights + (f->turned ? kernel - 1 - k : k) * f->image.c * row + first;

            for (int64_t c = 0; c < f->image.c; c++)
                for (int64_t j = 0; j < count; j++)
                    to[c * row + j] = from[c * by_row + j * by_column];
        }
    }
}

static void finish_rows(const struct forward *f, float *y, int64_t rows)
{
    const float *bias = f->args->bias;
    bool relu = f->args->relu;

    if (f->turned || (!bias && !relu))
        return;
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < f->columns; j++) {
            float value = y[i * f->columns + j] + (bias ? bias[j] : 0.0f);

            y[i * f->columns + j] = relu && value < 0.0f ? 0.0f : value;
        }
    }
}

static dnnl_status_t run_block(const struct forward *f, int64_t first, float *windows)
{
    int64_t rows = between(f->pixels - first, 0, BLOCK), window = f->image.window;
    float *y = f->result + first * f->columns;

    for (int64_t i = 0; i < rows; i++)
        unfold(&f->image, first + i, windows + i * (window + SPREAD));
    DNNL_TRY(dnnl_sgemm('N', 'N', rows, f->columns, window, 1.0f, windows, window + SPREAD,
                        f->weights, f->columns + SPREAD, 0.0f, y, f->columns));
    finish_rows(f, y, rows);
    return dnnl_success;
}

/* Every threads-th block, from block `part` on. */
static dnnl_status_t run_part(const struct forward *f, int64_t part)
{
    float *windows = f->windows + part * windows_elements(f);

    for (int64_t first = part * BLOCK; first < f->pixels; first += (int64_t)f->threads * BLOCK)
        DNNL_TRY(run_block(f, first, windows));
    return dnnl_success;
}

/* oneDNN takes one thread for a product inside of a parallel region. */
static void run_parts(void *ctx, int64_t begin, int64_t end)
{
    struct forward *f = ctx;

    for (int64_t part = begin; part < end; part++) {
        dnnl_status_t status = run_part(f, part);

        if (status != dnnl_success)
            f->status = (int)status;
    }
}

static dpb_status run_forward(dpb_device *device, enum dpb_op op, const struct dpb_conv_args *args)
{
    bool turned = op == DPB_OP_CONV_BWD_DATA;
    struct dpb_tensor result = turned ? args->x : args->y;
    struct forward f = {.args = args,
                        .image = image_of(args, turned),
                        .turned = turned,
                        .threads = device->threads,
                        .pixels = dpb_tensor_numel(&result) / result.dim[3],
                        .columns = result.dim[3],
                        .result = result.data};
    int64_t weights = f.image.window * (f.columns + SPREAD);
    int64_t windows = device->threads * windows_elements(&f);

    DPB_TRY(checked(dpb_cpu_buffer_reserve(device, &device->between,
                                           (size_t)(weights + windows) * sizeof(float)),
                    op, args));
    f.weights = device->between.memory;
    f.windows = f.weights + weights;
    dpb_cpu_parallel(device->threads, (f.columns + STRIP - 1) / STRIP, 1, turn_weights, &f);
    dpb_cpu_parallel(device->threads, device->threads, 1, run_parts, &f);
    return checked((dnnl_status_t)f.status, op, args);
}

/* ---- the weight gradient: a sum over all pixels ---- */

struct gradient {
    const struct dpb_conv_args *args;
    struct image image;
    int64_t pixels, out;
    int64_t first;       /* pixel of the block */
    float *windows, *dy; /* the block's rows */
    bool folds;          /* dw is [out][kernel][in]; else it is the weights */
    float *dw;
};

static void unfold_block(void *ctx, int64_t begin, int64_t end)
{
    const struct gradient *g = ctx;

    for (int64_t k = begin; k < end; k++) {
        float *window = g->windows + k * (g->image.window + SPREAD);

        if (g->folds)
            unfold(&g->image, g->first + k, window);
        else
            unfold_as_weights(&g->image, g->first + k, window);
        memcpy(g->dy + k * (g->out + SPREAD),
               (const float *)g->args->y.data + (g->first + k) * g->out,
               (size_t)g->out * sizeof(float));
    }
}

/* From [out][kernel][in] to [out][in][kernel]. */
static void fold_weights(void *ctx, int64_t begin, int64_t end)
{
    const struct gradient *g = ctx;
    int64_t window = g->image.window, in = g->image.c, kernel = window / in;

    for (int64_t o = begin; o < end; o++) {
        const float *from = g->dw + o * window;
        float *to = (float *)g->args->w.data + o * window;

        for (int64_t i = 0; i < in; i++)
            for (int64_t k = 0; k < kernel; k++)
                to[i * kernel + k] = from[k * in + i];
    }
}

static dnnl_status_t reserve_gradient(dpb_device *device, struct gradient *g)
{
    int64_t windows = BLOCK_TERMS * (g->image.window + SPREAD);
    int64_t dy = BLOCK_TERMS * (g->out + SPREAD);
    int64_t dw = g->folds ? g->out * g->image.window : 0;

    DNNL_TRY(dpb_cpu_buffer_reserve(device, &device->between,
                                    (size_t)(windows + dy + dw) * sizeof(float)));
    g->windows = device->between.memory;
    g->dy = g->windows + windows;
    g->dw = g->folds ? g->dy + dy : g->args->w.data;
    return dnnl_success;
}

static dnnl_status_t sum_blocks(dpb_device *device, struct gradient *g)
{
    int64_t window = g->image.window, grain = 1 + 16384 / window;

    DNNL_TRY(reserve_gradient(device, g));
    for (g->first = 0; g->first < g->pixels; g->first += BLOCK_TERMS) {
        int64_t rows = between(g->pixels - g->first, 0, BLOCK_TERMS);

        dpb_cpu_parallel(device->threads, rows, grain, unfold_block, g);
        DNNL_TRY(dnnl_sgemm('T', 'N', g->out, window, rows, 1.0f, g->dy, g->out + SPREAD,
                            g->windows, window + SPREAD, g->first > 0 ? 1.0f : 0.0f, g->dw,
                            window));
    }
    if (g->folds)
        dpb_cpu_parallel(device->threads, g->out, grain, fold_weights, g);
    return dnnl_success;
}

static dpb_status run_gradient(dpb_device *device, enum dpb_op op, const struct dpb_conv_args *args)
{
    struct gradient g = {.args = args,
                         .image = image_of(args, false),
                         .pixels = dpb_tensor_numel(&args->y) / args->y.dim[3],
                         .out = args->w.dim[0]};

    /* Windows as weights lie are made an element at a time: worth it for few pixels. */
    g.folds = g.image.window > g.image.c && 2 * g.pixels >= g.out;
    DPB_TRY(checked(sum_blocks(device, &g), op, args));
    if (!args->bias)
        return DPB_OK;
    return dpb_cpu_bias(device, DPB_OP_BIAS_BWD,
                        &(struct dpb_bias_args){.y = dpb_tensor_2d(args->y.data, g.pixels, g.out),
                                                .bias = args->bias});
}

dpb_status dpb_cpu_conv_unfolded(dpb_device *device, enum dpb_op op,
                                 const struct dpb_conv_args *args)
{
    return op == DPB_OP_CONV_BWD_WEIGHTS ? run_gradient(device, op, args)
                                         : run_forward(device, op, args);
}

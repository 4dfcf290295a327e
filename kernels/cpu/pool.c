/* Pooling: our own loops over blocks of channels, which lie side by side in NHWC. */
#include "cpu_device.h"

#include <string.h>

#define BLOCK 64 /* channels kept in registers and the first cache level */

/* The part of one output element's window that lies inside the image. */
struct window {
    int64_t y, x; /* input position of window position (0, 0); may be outside */
    int ky_begin, ky_end, kx_begin, kx_end;
};

static inline void clip(int64_t at, int64_t size, int kernel, int *begin, int *end)
{
    *begin = at < 0 ? (int)-at : 0;
    *end = at + kernel > size ? (int)(size - at) : kernel;
}

static inline struct window window_at(const struct dpb_pool_args *a, int64_t oy, int64_t ox)
{
    struct window w = {.y = oy * a->stride - a->pad, .x = ox * a->stride - a->pad};

    clip(w.y, a->x.dim[1], a->kernel, &w.ky_begin, &w.ky_end);
    clip(w.x, a->x.dim[2], a->kernel, &w.kx_begin, &w.kx_end);
    return w;
}

/* Offset of channel 0 at a window position in image n. */
static inline int64_t input_at(const struct dpb_pool_args *a, int64_t n, const struct window *w,
                               int ky, int kx)
{
    return ((n * a->x.dim[1] + w->y + ky) * a->x.dim[2] + w->x + kx) * a->x.dim[3];
}

/* Rows of output elements, over all images. */
DPB_CPU_CLONES static void max_fwd(void *ctx, int64_t begin, int64_t end)
{
    const struct dpb_pool_args *a = ctx;
    int64_t oh = a->y.dim[1], ow = a->y.dim[2], c = a->y.dim[3];
    const float *x = a->x.data;
    float best[BLOCK];
    int32_t which[BLOCK];

    for (int64_t pixel = begin * ow; pixel < end * ow; pixel++) {
        int64_t n = pixel / (oh * ow);
        struct window w = window_at(a, pixel / ow % oh, pixel % ow);

        for (int64_t c0 = 0; c0 < c; c0 += BLOCK) {
            int count = c - c0 < BLOCK ? (int)(c - c0) : BLOCK;
            const float *first = x + input_at(a, n, &w, w.ky_begin, w.kx_begin) + c0;
            float *y = (float *)a->y.data + pixel * c + c0;

            for (int j = 0; j < count; j++) {
                best[j] = first[j];
                which[j] = w.ky_begin * a->kernel + w.kx_begin;
            }
            for (int ky = w.ky_begin; ky < w.ky_end; ky++) {
                for (int kx = w.kx_begin; kx < w.kx_end; kx++) {
                    const float *from = x + input_at(a, n, &w, ky, kx) + c0;
                    int32_t position = ky * a->kernel + kx;

                    for (int j = 0; j < count; j++) {
                        which[j] = from[j] > best[j] ? position : which[j];
                        best[j] = from[j] > best[j] ? from[j] : best[j];
                    }
                }
            }
            memcpy(y, best, (size_t)count * sizeof(*y));
            for (int j = 0; a->index && j < count; j++)
                a->index[pixel * c + c0 + j] = (uint8_t)which[j];
        }
    }
}

DPB_CPU_CLONES static void avg_fwd(void *ctx, int64_t begin, int64_t end)
{
    const struct dpb_pool_args *a = ctx;
    int64_t oh = a->y.dim[1], ow = a->y.dim[2], c = a->y.dim[3];
    float share = 1.0f / (float)(a->kernel * a->kernel);
    float sum[BLOCK];

    for (int64_t pixel = begin * ow; pixel < end * ow; pixel++) {
        int64_t n = pixel / (oh * ow);
        struct window w = window_at(a, pixel / ow % oh, pixel % ow);

        for (int64_t c0 = 0; c0 < c; c0 += BLOCK) {
            int count = c - c0 < BLOCK ? (int)(c - c0) : BLOCK;
            float *y = (float *)a->y.data + pixel * c + c0;

            memset(sum, 0, sizeof(sum));
            for (int ky = w.ky_begin; ky < w.ky_end; ky++) {
                for (int kx = w.kx_begin; kx < w.kx_end; kx++) {
                    const float *from = (const float *)a->x.data + input_at(a, n, &w, ky, kx) + c0;

                    for (int j = 0; j < count; j++)
                        sum[j] += from[j];
                }
            }
            for (int j = 0; j < count; j++)
                y[j] = sum[j] * share;
        }
    }
}

/* Do the windows tile the image, each input element in exactly one? Then the backward operators
 * store, and need not clear and add. */
static bool windows_tile(const struct dpb_pool_args *a)
{
    return a->stride == a->kernel && a->pad == 0 && a->y.dim[1] * a->kernel == a->x.dim[1] &&
           a->y.dim[2] * a->kernel == a->x.dim[2];
}

/* Images. */
DPB_CPU_CLONES static void max_bwd(void *ctx, int64_t begin, int64_t end)
{
    const struct dpb_pool_args *a = ctx;
    int64_t oh = a->y.dim[1], ow = a->y.dim[2], c = a->y.dim[3];
    int64_t image = a->x.dim[1] * a->x.dim[2] * c;
    bool tile = windows_tile(a);
    float *x = a->x.data;

    if (!tile)
        memset(x + begin * image, 0, (size_t)((end - begin) * image) * sizeof(*x));
    for (int64_t pixel = begin * oh * ow; pixel < end * oh * ow; pixel++) {
        struct window w = window_at(a, pixel / ow % oh, pixel % ow);
        const float *restrict dy = (const float *)a->y.data + pixel * c;
        const uint8_t *restrict index = a->index + pixel * c;

        for (int ky = w.ky_begin; ky < w.ky_end; ky++) {
            for (int kx = w.kx_begin; kx < w.kx_end; kx++) {
                float *restrict to = x + input_at(a, pixel / (oh * ow), &w, ky, kx);
                uint8_t position = (uint8_t)(ky * a->kernel + kx);

                if (tile) {
                    for (int64_t j = 0; j < c; j++)
                        to[j] = index[j] == position ? dy[j] : 0.0f;
                } else {
                    for (int64_t j = 0; j < c; j++)
                        to[j] += index[j] == position ? dy[j] : 0.0f;
                }
            }
        }
    }
}

DPB_CPU_CLONES static void avg_bwd(void *ctx, int64_t begin, int64_t end)
{
    const struct dpb_pool_args *a = ctx;
    int64_t oh = a->y.dim[1], ow = a->y.dim[2], c = a->y.dim[3];
    int64_t image = a->x.dim[1] * a->x.dim[2] * c;
    float share = 1.0f / (float)(a->kernel * a->kernel);
    float *x = a->x.data;

    memset(x + begin * image, 0, (size_t)((end - begin) * image) * sizeof(*x));
    for (int64_t pixel = begin * oh * ow; pixel < end * oh * ow; pixel++) {
        struct window w = window_at(a, pixel / ow % oh, pixel % ow);
        const float *restrict dy = (const float *)a->y.data + pixel * c;

        for (int ky = w.ky_begin; ky < w.ky_end; ky++) {
            for (int kx = w.kx_begin; kx < w.kx_end; kx++) {
                float *restrict to = x + input_at(a, pixel / (oh * ow), &w, ky, kx);

                for (int64_t j = 0; j < c; j++)
                    to[j] += dy[j] * share;
            }
        }
    }
}

dpb_status dpb_cpu_pool(dpb_device *device, enum dpb_op op, const void *args)
{
    struct dpb_pool_args a = *(const struct dpb_pool_args *)args;
    int64_t rows = a.y.dim[0] * a.y.dim[1];

    if (op == DPB_OP_POOL_MAX_FWD)
        dpb_cpu_parallel(device->threads, rows, 1, max_fwd, &a);
    else if (op == DPB_OP_POOL_AVG_FWD)
        dpb_cpu_parallel(device->threads, rows, 1, avg_fwd, &a);
    else
        dpb_cpu_parallel(device->threads, a.x.dim[0], 1,
                         op == DPB_OP_POOL_MAX_BWD ? max_bwd : avg_bwd, &a);
    return DPB_OK;
}

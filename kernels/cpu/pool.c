/* Pooling: our own loops over blocks of channels, which lie side by side in NHWC. */
#include <string.h>

#include "bf16.h"

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

/* A window position of a block of channels. Positions grow, so the last one that was above is the
 * highest: said so, it needs no store under a condition, which would be a branch. */
DPB_CPU_LOOP max_of(const void *x, int64_t from, int count, int32_t position, float *best,
                    int32_t *which, bool bf16)
{
#pragma omp simd
    for (int j = 0; j < count; j++) {
        float value = dpb_cpu_load(x, from + j, bf16), before = best[j];
        int32_t found = value > before ? position : 0, earlier = which[j];

        which[j] = found > earlier ? found : earlier;
        best[j] = value > before ? value : before;
    }
}

DPB_CPU_LOOP put_index(uint8_t *index, const int32_t *which, int count)
{
#pragma omp simd
    for (int j = 0; j < count; j++)
        index[j] = (uint8_t)which[j];
}

/* Rows of output elements, over all images. */
DPB_CPU_LOOP max_fwd(void *ctx, int64_t begin, int64_t end, bool bf16)
{
    const struct dpb_pool_args *a = ctx;
    int64_t oh = a->y.dim[1], ow = a->y.dim[2], c = a->y.dim[3];
    float best[BLOCK];
    int32_t which[BLOCK];

    for (int64_t pixel = begin * ow; pixel < end * ow; pixel++) {
        int64_t n = pixel / (oh * ow);
        struct window w = window_at(a, pixel / ow % oh, pixel % ow);

        for (int64_t c0 = 0; c0 < c; c0 += BLOCK) {
            int count = c - c0 < BLOCK ? (int)(c - c0) : BLOCK;
            int64_t first = input_at(a, n, &w, w.ky_begin, w.kx_begin) + c0;
            int64_t to = pixel * c + c0;

            for (int j = 0; j < count; j++) {
                best[j] = dpb_cpu_load(a->x.data, first + j, bf16);
                which[j] = w.ky_begin * a->kernel + w.kx_begin;
            }
            for (int ky = w.ky_begin; ky < w.ky_end; ky++) {
                for (int kx = w.kx_begin; kx < w.kx_end; kx++) {
                    int64_t from = input_at(a, n, &w, ky, kx) + c0;

                    max_of(a->x.data, from, count, ky * a->kernel + kx, best, which, bf16);
                }
            }
            for (int j = 0; j < count; j++)
                dpb_cpu_store(a->y.data, to + j, best[j], bf16);
            if (a->index)
                put_index(a->index + to, which, count);
        }
    }
}
DPB_CPU_BY_TYPE(max_fwd)

DPB_CPU_LOOP avg_fwd(void *ctx, int64_t begin, int64_t end, bool bf16)
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

            memset(sum, 0, sizeof(sum));
            for (int ky = w.ky_begin; ky < w.ky_end; ky++) {
                for (int kx = w.kx_begin; kx < w.kx_end; kx++) {
                    int64_t from = input_at(a, n, &w, ky, kx) + c0;

                    for (int j = 0; j < count; j++)
                        sum[j] += dpb_cpu_load(a->x.data, from + j, bf16);
                }
            }
            for (int j = 0; j < count; j++)
                dpb_cpu_store(a->y.data, pixel * c + c0 + j, sum[j] * share, bf16);
        }
    }
}
DPB_CPU_BY_TYPE(avg_fwd)

/* The output elements along one dimension whose windows hold input position `at`. */
static inline void covering(int64_t at, int64_t outputs, const struct dpb_pool_args *a,
                            int64_t *begin, int64_t *end)
{
    int64_t first = at + a->pad - a->kernel + 1, last = (at + a->pad) / a->stride;

    *begin = first <= 0 ? 0 : (first + a->stride - 1) / a->stride;
    *end = last + 1 < outputs ? last + 1 : outputs;
}

/* Rows of input elements, over all images: each is the sum over the windows that hold it, in fp32,
 * and written once. */
DPB_CPU_LOOP bwd(const struct dpb_pool_args *a, int64_t begin, int64_t end, bool is_max, bool bf16)
{
    int64_t h = a->x.dim[1], width = a->x.dim[2], c = a->x.dim[3];
    int64_t oh = a->y.dim[1], ow = a->y.dim[2];
    float share = 1.0f / (float)(a->kernel * a->kernel);
    float sum[BLOCK];

    for (int64_t pixel = begin * width; pixel < end * width; pixel++) {
        int64_t n = pixel / (h * width), y = pixel / width % h, x = pixel % width;
        int64_t oy_begin, oy_end, ox_begin, ox_end;

        covering(y, oh, a, &oy_begin, &oy_end);
        covering(x, ow, a, &ox_begin, &ox_end);
        for (int64_t c0 = 0; c0 < c; c0 += BLOCK) {
            int count = c - c0 < BLOCK ? (int)(c - c0) : BLOCK;

            memset(sum, 0, sizeof(sum));
            for (int64_t oy = oy_begin; oy < oy_end; oy++) {
                for (int64_t ox = ox_begin; ox < ox_end; ox++) {
                    int64_t from = ((n * oh + oy) * ow + ox) * c + c0;
                    int64_t ky = y + a->pad - oy * a->stride, kx = x + a->pad - ox * a->stride;
                    uint8_t position = (uint8_t)(ky * a->kernel + kx);
                    const uint8_t *index = is_max ? a->index + from : NULL;
                    const void *from_y = a->y.data;

#pragma omp simd
                    for (int j = 0; j < count; j++) {
                        float dy = dpb_cpu_load(from_y, from + j, bf16);

                        if (is_max)
                            sum[j] += index[j] == position ? dy : 0.0f;
                        else
                            sum[j] += dy * share;
                    }
                }
            }
            for (int j = 0; j < count; j++)
                dpb_cpu_store(a->x.data, pixel * c + c0 + j, sum[j], bf16);
        }
    }
}

DPB_CPU_LOOP max_bwd(void *ctx, int64_t begin, int64_t end, bool bf16)
{
    bwd(ctx, begin, end, true, bf16);
}
DPB_CPU_BY_TYPE(max_bwd)

DPB_CPU_LOOP avg_bwd(void *ctx, int64_t begin, int64_t end, bool bf16)
{
    bwd(ctx, begin, end, false, bf16);
}
DPB_CPU_BY_TYPE(avg_bwd)

dpb_status dpb_cpu_pool(dpb_device *device, enum dpb_op op, const void *args)
{
    static const dpb_cpu_body bodies[2][4] = {
            {max_fwd_f32, max_bwd_f32, avg_fwd_f32, avg_bwd_f32},
            {max_fwd_bf16, max_bwd_bf16, avg_fwd_bf16, avg_bwd_bf16}};
    struct dpb_pool_args a = *(const struct dpb_pool_args *)args;
    bool fwd = op == DPB_OP_POOL_MAX_FWD || op == DPB_OP_POOL_AVG_FWD;
    bool is_max = op == DPB_OP_POOL_MAX_FWD || op == DPB_OP_POOL_MAX_BWD;
    const struct dpb_tensor *written = fwd ? &a.y : &a.x;

    dpb_cpu_parallel(device->threads, written->dim[0] * written->dim[1], 1,
                     bodies[a.y.dtype == DPB_BF16][(is_max ? 0 : 2) + (fwd ? 0 : 1)], &a);
    return DPB_OK;
}

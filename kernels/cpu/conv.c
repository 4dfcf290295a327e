/* Convolutions on oneDNN: activations stay plain NHWC, weights are packed as the primitive likes.
 */
#include <string.h>

#include "cpu_device.h"

enum {
    WITH_BIAS = 1 << 0,
    WITH_RELU = 1 << 1,
    IN_BF16 = 1 << 2
};

/* Tensors as they lie. */
struct shapes {
    struct dpb_cpu_layout x, w, y, bias;
};

static struct shapes shapes_of(const struct dpb_conv_args *args)
{
    const int64_t *x = args->x.dim, *w = args->w.dim, *y = args->y.dim;
    dnnl_data_type_t type = dpb_cpu_data_type(args->y.dtype);

    return (struct shapes){
            .x = {.ndims = 4, .dims = {x[0], x[3], x[1], x[2]}, .type = type, .tag = dnnl_nhwc},
            .w = {.ndims = 4,
                  .dims = {w[0], w[1], w[2], w[3]},
                  .type = dpb_cpu_data_type(args->w.dtype),
                  .tag = dnnl_oihw},
            .y = {.ndims = 4, .dims = {y[0], y[3], y[1], y[2]}, .type = type, .tag = dnnl_nhwc},
            .bias = {.ndims = 1, .dims = {w[0]}, .type = dnnl_f32, .tag = dnnl_x},
    };
}

/* The weight gradient reads x and y several times. Where it has to jump between their pixels,
 * packing them pays for itself (Zen 5, GFLOP/s plain and packed: 16x56x56x128 -> 128, 3x3, stride
 * 2: 116, 180; 64x26x26x32 -> 64: 160, 173); for narrow images or few channels it does not
 * (64x16x16x32 -> 32: 257, 234). A fixed rule and no trial run: the same bits on every rank and in
 * every run. */
static bool packs_activations(enum dpb_op op, const struct dpb_conv_args *args)
{
    int64_t out = args->w.dim[0], in = args->w.dim[1];

    return op == DPB_OP_CONV_BWD_WEIGHTS && out % 16 == 0 && in % 16 == 0 && in >= 32 &&
           (args->stride > 1 || args->y.dim[2] >= 24);
}

static dnnl_prop_kind_t prop_of(enum dpb_op op)
{
    if (op == DPB_OP_CONV_FWD)
        return dnnl_forward_training;
    return op == DPB_OP_CONV_BWD_DATA ? dnnl_backward_data : dnnl_backward_weights;
}

static struct dpb_cpu_operation convolution(enum dpb_op op, const struct dpb_conv_args *args,
                                            const struct shapes *shapes)
{
    struct dpb_cpu_operation convolution = {
            .kind = dnnl_convolution,
            .prop = prop_of(op),
            .algorithm = dnnl_convolution_direct,
            .src = shapes->x,
            .weights = shapes->w,
            .dst = shapes->y,
            .strides = {args->stride, args->stride},
            .pads = {args->pad, args->pad},
    };

    /* As oneDNN likes them; their gradient is fp32 always. */
    convolution.weights.tag = dnnl_format_tag_any;
    convolution.weights.type = op == DPB_OP_CONV_BWD_WEIGHTS ? dnnl_f32 : shapes->y.type;
    return convolution;
}

/* With activations as oneDNN likes them. */
static struct dpb_cpu_operation packing(struct dpb_cpu_operation convolution)
{
    convolution.src.tag = convolution.dst.tag = dnnl_format_tag_any;
    return convolution;
}

/* Packing the activations is worth it for Winograd's algorithm too (Lavin, Gray 2015,
 * arXiv:1509.09308), where oneDNN, free to choose, takes that one. */
static struct dpb_cpu_operation planned(dpb_device *device, enum dpb_op op,
                                        const struct dpb_conv_args *args,
                                        const struct shapes *shapes)
{
    struct dpb_cpu_operation direct = convolution(op, args, shapes), any = packing(direct);

    any.algorithm = dnnl_convolution_auto;
    if (device->options.conv_algorithm == DPB_CONV_AUTO &&
        dpb_cpu_implementation_has(device, &any, "wino"))
        return any;
    return packs_activations(op, args) ? packing(direct) : direct;
}

static dnnl_status_t add_forward(dpb_device *device, struct dpb_cpu_kernel *kernel,
                                 const struct shapes *shapes)
{
    DNNL_TRY(dpb_cpu_kernel_add_packed(device, kernel, DNNL_ARG_SRC, &shapes->x, false));
    DNNL_TRY(dpb_cpu_kernel_add_packed(device, kernel, DNNL_ARG_WEIGHTS, &shapes->w, false));
    if (kernel->key.flags & WITH_BIAS)
        DNNL_TRY(dpb_cpu_kernel_add(device, kernel, DNNL_ARG_BIAS, &shapes->bias));
    return dpb_cpu_kernel_add_packed(device, kernel, DNNL_ARG_DST, &shapes->y, true);
}

static dnnl_status_t add_backward(dpb_device *device, struct dpb_cpu_kernel *kernel, enum dpb_op op,
                                  const struct shapes *shapes)
{
    bool of_data = op == DPB_OP_CONV_BWD_DATA;

    DNNL_TRY(dpb_cpu_kernel_add_packed(device, kernel, of_data ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC,
                                       &shapes->x, of_data));
    DNNL_TRY(dpb_cpu_kernel_add_packed(device, kernel,
                                       of_data ? DNNL_ARG_WEIGHTS : DNNL_ARG_DIFF_WEIGHTS,
                                       &shapes->w, !of_data));
    if (kernel->key.flags & WITH_BIAS)
        DNNL_TRY(dpb_cpu_kernel_add(device, kernel, DNNL_ARG_DIFF_BIAS, &shapes->bias));
    return dpb_cpu_kernel_add_packed(device, kernel, DNNL_ARG_DIFF_DST, &shapes->y, false);
}

static dnnl_status_t make(dpb_device *device, struct dpb_cpu_kernel *kernel, enum dpb_op op,
                          const void *args)
{
    struct shapes shapes = shapes_of(args);
    struct dpb_cpu_operation operation = planned(device, op, args, &shapes);

    if (kernel->key.flags & WITH_BIAS)
        operation.bias = shapes.bias;
    operation.relu = kernel->key.flags & WITH_RELU;
    DNNL_TRY(dpb_cpu_kernel_create(device, kernel, &operation));
    return op == DPB_OP_CONV_FWD ? add_forward(device, kernel, &shapes)
                                 : add_backward(device, kernel, op, &shapes);
}

static struct dpb_cpu_key key_of(enum dpb_op op, const struct dpb_conv_args *args)
{
    struct dpb_cpu_key key = {.op = (int32_t)op};

    if (args->bias && op != DPB_OP_CONV_BWD_DATA)
        key.flags |= WITH_BIAS;
    if (args->relu && op == DPB_OP_CONV_FWD)
        key.flags |= WITH_RELU;
    if (args->y.dtype == DPB_BF16)
        key.flags |= IN_BF16;
    for (int i = 0; i < 4; i++) {
        key.dim[i] = args->x.dim[i];
        key.dim[4 + i] = args->w.dim[i];
    }
    key.dim[8] = args->stride;
    key.dim[9] = args->pad;
    return key;
}

static bool is_matmul(const struct dpb_conv_args *args)
{
    return args->w.dim[2] == 1 && args->w.dim[3] == 1 && args->stride == 1 && args->pad == 0;
}

/* x[NHW,I], w[O,I], y[NHW,O] */
static dpb_status run_as_matmul(dpb_device *device, enum dpb_op op,
                                const struct dpb_conv_args *args)
{
    int64_t rows = args->x.dim[0] * args->x.dim[1] * args->x.dim[2];
    struct dpb_tensor x = dpb_tensor_2d(args->x.data, rows, args->x.dim[3]);
    struct dpb_tensor w = dpb_tensor_2d(args->w.data, args->w.dim[0], args->w.dim[1]);
    struct dpb_tensor y = dpb_tensor_2d(args->y.data, rows, args->w.dim[0]);

    x.dtype = args->x.dtype;
    w.dtype = args->w.dtype;
    y.dtype = args->y.dtype;
    if (op == DPB_OP_CONV_FWD)
        return dpb_cpu_matmul(device, DPB_OP_MATMUL,
                              &(struct dpb_matmul_args){.a = x,
                                                        .b = w,
                                                        .c = y,
                                                        .trans_b = true,
                                                        .bias = args->bias,
                                                        .relu = args->relu});
    if (op == DPB_OP_CONV_BWD_DATA)
        return dpb_cpu_matmul(device, DPB_OP_MATMUL,
                              &(struct dpb_matmul_args){.a = y, .b = w, .c = x});
    if (args->bias)
        DPB_TRY(dpb_cpu_bias(device, DPB_OP_BIAS_BWD,
                             &(struct dpb_bias_args){.y = y, .bias = args->bias}));
    return dpb_cpu_matmul(device, DPB_OP_MATMUL,
                          &(struct dpb_matmul_args){.a = y, .b = x, .c = w, .trans_a = true});
}

/* ---- one pixel wide with a stride: the product of the pixels that count, side by side. oneDNN's
 * own packs and unpacks weights, which are larger than a small batch's pixels. ---- */

static bool is_strided_matmul(const struct dpb_conv_args *args)
{
    return args->w.dim[2] == 1 && args->w.dim[3] == 1 && args->stride > 1 && args->pad == 0;
}

/* x, and its pixels that the convolution reads. */
struct pixels {
    const struct dpb_conv_args *args;
    char *x, *dense;
    size_t bytes; /* of a pixel */
};

/* Of pixel `row` of y, the one of x. */
static char *pixel_of(const struct pixels *pixels, int64_t row)
{
    const struct dpb_conv_args *a = pixels->args;
    int64_t h = a->y.dim[1], w = a->y.dim[2];
    int64_t n = row / (h * w), i = row / w % h * a->stride, j = row % w * a->stride;

    return pixels->x + (size_t)((n * a->x.dim[1] + i) * a->x.dim[2] + j) * pixels->bytes;
}

static void gather(void *ctx, int64_t begin, int64_t end)
{
    const struct pixels *pixels = ctx;

    for (int64_t row = begin; row < end; row++)
        memcpy(pixels->dense + (size_t)row * pixels->bytes, pixel_of(pixels, row), pixels->bytes);
}

static void scatter(void *ctx, int64_t begin, int64_t end)
{
    const struct pixels *pixels = ctx;

    for (int64_t row = begin; row < end; row++)
        memcpy(pixel_of(pixels, row), pixels->dense + (size_t)row * pixels->bytes, pixels->bytes);
}

static void clear(void *ctx, int64_t begin, int64_t end)
{
    const struct pixels *pixels = ctx;

    memset(pixels->x + (size_t)begin * pixels->bytes, 0, (size_t)(end - begin) * pixels->bytes);
}

static dpb_status run_strided(dpb_device *device, enum dpb_op op, const struct dpb_conv_args *args)
{
    struct dpb_conv_args dense = *args;
    int64_t rows = args->y.dim[0] * args->y.dim[1] * args->y.dim[2];
    int64_t all = args->x.dim[0] * args->x.dim[1] * args->x.dim[2];
    int64_t grain = 1 + 16384 / args->x.dim[3];
    struct pixels pixels = {.args = args,
                            .x = args->x.data,
                            .bytes = (size_t)args->x.dim[3] * dpb_dtype_bytes(args->x.dtype)};
    dnnl_status_t status =
            dpb_cpu_buffer_reserve(device, &device->between, (size_t)rows * pixels.bytes);

    if (status != dnnl_success)
        return dpb_cpu_vendor_error(status, "make room for", op, args);
    pixels.dense = device->between.memory;
    dense.x.data = pixels.dense;
    dense.x.dim[1] = args->y.dim[1];
    dense.x.dim[2] = args->y.dim[2];
    if (op != DPB_OP_CONV_BWD_DATA) {
        dpb_cpu_parallel(device->threads, rows, grain, gather, &pixels);
        return run_as_matmul(device, op, &dense);
    }
    DPB_TRY(run_as_matmul(device, op, &dense));
    dpb_cpu_parallel(device->threads, all, grain, clear, &pixels);
    dpb_cpu_parallel(device->threads, rows, grain, scatter, &pixels);
    return DPB_OK;
}

dpb_status dpb_cpu_conv(dpb_device *device, enum dpb_op op, const void *args)
{
    const struct dpb_conv_args *a = args;
    struct dpb_cpu_key key = key_of(op, a);
    struct dpb_cpu_kernel *kernel;
    dnnl_status_t status;

    if (dpb_cpu_conv_unfolds(device, op, a))
        return dpb_cpu_conv_unfolded(device, op, a);
    if (is_matmul(a))
        return run_as_matmul(device, op, a);
    if (is_strided_matmul(a))
        return run_strided(device, op, a);
    DPB_TRY(dpb_cpu_kernel_get(device, &key, make, op, args, &kernel));
    /* Each operator has some of these; the others have no effect. */
    dpb_cpu_kernel_set(kernel, DNNL_ARG_SRC, a->x.data);
    dpb_cpu_kernel_set(kernel, DNNL_ARG_DIFF_SRC, a->x.data);
    dpb_cpu_kernel_set(kernel, DNNL_ARG_WEIGHTS, a->w.data);
    dpb_cpu_kernel_set(kernel, DNNL_ARG_DIFF_WEIGHTS, a->w.data);
    dpb_cpu_kernel_set(kernel, DNNL_ARG_DST, a->y.data);
    dpb_cpu_kernel_set(kernel, DNNL_ARG_DIFF_DST, a->y.data);
    dpb_cpu_kernel_set(kernel, DNNL_ARG_BIAS, a->bias);
    dpb_cpu_kernel_set(kernel, DNNL_ARG_DIFF_BIAS, a->bias);
    status = dpb_cpu_kernel_run(device, kernel);
    return status == dnnl_success ? DPB_OK : dpb_cpu_vendor_error(status, "run", op, args);
}

/* Convolutions by cuDNN's graphs (conv_graph.h), and what stands around them: weights OIHW to and
 * from KRSC, channels filled up to multiples of 8, what a plan could not fuse. */
#include "cuda_device.h"

#include <stdio.h>

#include "dpb_log.h"

enum {
    CANDIDATES = 6,
    VECTOR_BYTES = 16 /* alignment that cuDNN is promised */
};
#define WORKSPACE_LIMIT_BYTES ((size_t)1 << 30)

/* ---- cuDNN, when it is first needed ---- */

struct timed {
    struct dpb_conv_plan *plan;
    struct dpb_conv_buffers buffers;
};

static dpb_status run_timed(void *ctx)
{
    struct timed *timed = ctx;

    return dpb_conv_plan_run(timed->plan, &timed->buffers);
}

static size_t rounded(size_t bytes)
{
    return (bytes + DPB_CUDA_ALIGNMENT - 1) / DPB_CUDA_ALIGNMENT * DPB_CUDA_ALIGNMENT;
}

/* Bytes of what a plan reads and writes. */
struct sizes {
    size_t x, w, y, bias, workspace;
};

static struct sizes sizes_of(const struct dpb_conv_shape *shape, const struct dpb_conv_plan *plan)
{
    size_t element = dpb_dtype_bytes(shape->dtype);

    return (struct sizes){
            .x = rounded((size_t)(shape->n * shape->h * shape->w * shape->c) * element),
            .w = rounded((size_t)(shape->k * shape->r * shape->s * shape->c) * element),
            .y = rounded((size_t)(shape->n * shape->out_h * shape->out_w * shape->k) * element),
            .bias = rounded((size_t)shape->k * sizeof(float)),
            .workspace = rounded(dpb_conv_plan_workspace_bytes(plan)),
    };
}

static dpb_status measure(void *ctx, const struct dpb_conv_shape *shape, struct dpb_conv_plan *plan,
                          int64_t *ns)
{
    dpb_device *device = ctx;
    dpb_stream *stream = device->conv_stream;
    struct sizes sizes = sizes_of(shape, plan);
    size_t bytes = sizes.x + sizes.w + sizes.y + sizes.bias + sizes.workspace;
    struct timed timed = {.plan = plan};
    char *memory;
    void *taken;
    dpb_status st;

    DPB_TRY(dpb_cuda_memory_try(device, bytes, &taken));
    memory = taken;
    DPB_CUDA_TRY_GOTO(st, "time a convolution", cudaMemsetAsync, (taken, 0, bytes, stream->native),
                      out);
    timed.buffers = (struct dpb_conv_buffers){
            .x = memory,
            .w = memory + sizes.x,
            .y = memory + sizes.x + sizes.w,
            .bias = (const float *)(void *)(memory + sizes.x + sizes.w + sizes.y),
            .workspace = memory + sizes.x + sizes.w + sizes.y + sizes.bias,
    };
    st = dpb_cuda_time(stream, run_timed, &timed, ns);
out:
    dpb_cuda_memory_put(device, taken);
    return st;
}

static dpb_status open_cudnn(dpb_device *device)
{
    bool first = device->options.algorithm == DPB_CUDA_ALGORITHM_FIRST;
    struct dpb_conv_graphs_config config = {
            .cudnn = &device->cudnn,
            .deterministic = first,
            .workspace_limit_bytes = WORKSPACE_LIMIT_BYTES,
            .measure = first ? NULL : measure,
            .measure_ctx = device,
            .candidates = CANDIDATES,
    };
    char why[512];
    dpb_status st;

    if (dpb_cudnn_open(&device->cudnn, why, sizeof(why)) < 0) {
        dpb_error("cuda: no convolutions: %s", why);
        return DPB_ERR_UNAVAILABLE;
    }
    DPB_TRY(dpb_cudnn_check(&device->cudnn, device->cudnn.cudnnCreate(&device->cudnn_handle),
                            "make a handle"));
    config.handle = device->cudnn_handle;
    DPB_TRY_GOTO(st, dpb_conv_graphs_open(&config, &device->convs), err_handle);
    return DPB_OK;

err_handle:
    device->cudnn.cudnnDestroy(device->cudnn_handle);
    device->cudnn_handle = NULL;
    return st;
}

void dpb_cuda_convs_release(dpb_device *device)
{
    if (!device->convs)
        return;
    dpb_conv_graphs_close(device->convs);
    device->cudnn.cudnnDestroy(device->cudnn_handle);
    device->convs = NULL;
}

static dpb_status use_stream(dpb_stream *stream)
{
    dpb_device *device = stream->device;

    if (!device->convs) {
        DPB_TRY(dpb_cuda_stream_may_prepare(stream, "cuDNN"));
        DPB_TRY(open_cudnn(device));
    }
    if (device->conv_stream == stream)
        return DPB_OK;
    DPB_TRY(dpb_cudnn_check(&device->cudnn,
                            device->cudnn.cudnnSetStream(device->cudnn_handle, stream->native),
                            "set the stream"));
    device->conv_stream = stream;
    return DPB_OK;
}

/* ---- one launch ---- */

/* Where a plan's buffers differ from the operator's tensors, and lie in the stream's scratch. */
struct launch {
    const struct dpb_conv_args *args;
    enum dpb_op op;
    const char *what;
    struct dpb_conv_shape shape;
    struct dpb_conv_plan *plan;
    struct dpb_conv_buffers buffers;
    struct dpb_cuda_queue queue;
    bool packs_w, copies_x, copies_y, copies_bias;
};

static bool is_aligned(const void *data)
{
    return (uintptr_t)data % VECTOR_BYTES == 0;
}

static void launch_init(struct launch *launch, dpb_device *device, enum dpb_op op,
                        const struct dpb_conv_args *args)
{
    const int64_t *x = args->x.dim, *w = args->w.dim, *y = args->y.dim;
    int64_t c = dpb_conv_channels_padded(x[3]), k = dpb_conv_channels_padded(y[3]);
    bool forward = op == DPB_OP_CONV_FWD, in_place;

    *launch = (struct launch){.args = args, .op = op, .what = dpb_op_text(op)};
    launch->copies_x = c != x[3] || !is_aligned(args->x.data);
    launch->copies_y = k != y[3] || !is_aligned(args->y.data);
    /* One row and one column: OIHW and KRSC are the same. */
    in_place = w[2] == 1 && w[3] == 1 && c == x[3] && k == y[3] && args->w.dtype == args->y.dtype;
    launch->packs_w = !in_place || !is_aligned(args->w.data);
    launch->shape = (struct dpb_conv_shape){
            .pass = forward                      ? DPB_CONV_FWD
                    : op == DPB_OP_CONV_BWD_DATA ? DPB_CONV_BWD_DATA
                                                 : DPB_CONV_BWD_WEIGHTS,
            .dtype = args->y.dtype,
            .tf32 = device->options.tf32 && args->y.dtype == DPB_F32,
            .n = x[0],
            .h = x[1],
            .w = x[2],
            .c = c,
            .k = k,
            .r = w[2],
            .s = w[3],
            .stride = args->stride,
            .pad = args->pad,
            .out_h = y[1],
            .out_w = y[2],
    };
    /* In the plan where an engine can: behind it, a 16-bit sum would be rounded twice. */
    launch->shape.bias = forward && args->bias;
    launch->shape.relu = forward && args->relu;
    launch->copies_bias = launch->shape.bias && (k != y[3] || !is_aligned(args->bias));
}

/* The plan's buffers: the tensors themselves, or parts of the stream's scratch. */
static dpb_status place_buffers(struct launch *launch, dpb_stream *stream)
{
    struct sizes sizes = sizes_of(&launch->shape, launch->plan);
    size_t w = launch->packs_w ? sizes.w : 0, x = launch->copies_x ? sizes.x : 0;
    size_t y = launch->copies_y ? sizes.y : 0, bias = launch->copies_bias ? sizes.bias : 0;
    size_t bytes = w + x + y + bias + sizes.workspace;
    void *scratch = NULL;
    char *memory;

    if (bytes > 0)
        DPB_TRY(dpb_cuda_stream_scratch(stream, bytes, &scratch));
    memory = scratch;
    launch->buffers = (struct dpb_conv_buffers){
            .w = launch->packs_w ? memory : launch->args->w.data,
            .x = launch->copies_x ? memory + w : launch->args->x.data,
            .y = launch->copies_y ? memory + w + x : launch->args->y.data,
            .bias = launch->args->bias,
            .workspace = sizes.workspace > 0 ? memory + w + x + y + bias : NULL,
    };
    if (launch->copies_bias)
        launch->buffers.bias = (const float *)(void *)(memory + w + x + y);
    return DPB_OK;
}

static struct dpb_cuda_weights weights_of(const struct launch *launch)
{
    const struct dpb_conv_args *args = launch->args;

    return (struct dpb_cuda_weights){
            .oihw = args->w.data,
            .krsc = launch->buffers.w,
            .oihw_dtype = args->w.dtype,
            .krsc_dtype = launch->shape.dtype,
            .o = args->w.dim[0],
            .i = args->w.dim[1],
            .kh = args->w.dim[2],
            .kw = args->w.dim[3],
            .o_padded = launch->shape.k,
            .i_padded = launch->shape.c,
    };
}

/* An image and its copy with more channels. */
static struct dpb_cuda_channels channels_of(const struct dpb_tensor *image, void *copy,
                                            int64_t padded)
{
    return (struct dpb_cuda_channels){
            .dense = image->data,
            .padded_rows = copy,
            .dtype = image->dtype,
            .rows = image->dim[0] * image->dim[1] * image->dim[2],
            .columns = image->dim[3],
            .padded = padded,
    };
}

#define KERNEL_TRY(launch, call) DPB_TRY(dpb_cuda_kernel_check(call, (launch)->what))

/* What the plan reads, into its buffers. */
static dpb_status before(const struct launch *launch)
{
    const struct dpb_cuda_weights weights = weights_of(launch);
    const struct dpb_cuda_channels x =
            channels_of(&launch->args->x, launch->buffers.x, launch->shape.c);
    const struct dpb_cuda_channels y =
            channels_of(&launch->args->y, launch->buffers.y, launch->shape.k);
    const struct dpb_cuda_channels bias = {
            .dense = launch->args->bias,
            .padded_rows = (void *)(uintptr_t)launch->buffers.bias,
            .dtype = DPB_F32,
            .rows = 1,
            .columns = launch->args->w.dim[0],
            .padded = launch->shape.k,
    };

    if (launch->packs_w && launch->op != DPB_OP_CONV_BWD_WEIGHTS)
        KERNEL_TRY(launch, dpb_cuda_weights_to_krsc(&weights, &launch->queue));
    if (launch->copies_x && launch->op != DPB_OP_CONV_BWD_DATA)
        KERNEL_TRY(launch, dpb_cuda_channels_pad(&x, &launch->queue));
    if (launch->copies_y && launch->op != DPB_OP_CONV_FWD)
        KERNEL_TRY(launch, dpb_cuda_channels_pad(&y, &launch->queue));
    if (launch->copies_bias)
        KERNEL_TRY(launch, dpb_cuda_channels_pad(&bias, &launch->queue));
    return DPB_OK;
}

/* Bias and ReLU that the plan did not have. */
static dpb_status after_fwd(const struct launch *launch)
{
    const struct dpb_conv_args *args = launch->args;
    const struct dpb_cuda_channels y = channels_of(&args->y, launch->buffers.y, launch->shape.k);
    const struct dpb_cuda_bias_relu_args rest = {
            .x = args->y.data,
            .y = args->y.data,
            .bias = args->bias,
            .dtype = args->y.dtype,
            .rows = y.rows,
            .columns = y.columns,
            .relu = args->relu,
    };

    if (launch->copies_y)
        KERNEL_TRY(launch, dpb_cuda_channels_unpad(&y, &launch->queue));
    if (!dpb_conv_plan_fused(launch->plan))
        KERNEL_TRY(launch, dpb_cuda_bias_relu(&rest, &launch->queue));
    return DPB_OK;
}

static dpb_status after_bwd_data(const struct launch *launch)
{
    const struct dpb_cuda_channels x =
            channels_of(&launch->args->x, launch->buffers.x, launch->shape.c);

    if (launch->copies_x)
        KERNEL_TRY(launch, dpb_cuda_channels_unpad(&x, &launch->queue));
    return DPB_OK;
}

static dpb_status after_bwd_weights(const struct launch *launch)
{
    const struct dpb_conv_args *args = launch->args;
    const struct dpb_cuda_weights weights = weights_of(launch);
    const struct dpb_tensor *dy = &args->y;
    struct dpb_bias_args bias = {.bias = args->bias};

    if (launch->packs_w)
        KERNEL_TRY(launch, dpb_cuda_weights_to_oihw(&weights, &launch->queue));
    if (!args->bias)
        return DPB_OK;
    bias.y = dpb_tensor_2d(dy->data, dy->dim[0] * dy->dim[1] * dy->dim[2], dy->dim[3]);
    bias.y.dtype = dy->dtype;
    KERNEL_TRY(launch, dpb_cuda_bias_bwd(&bias, &launch->queue));
    return DPB_OK;
}

static dpb_status make_plan(struct launch *launch, dpb_stream *stream)
{
    dpb_device *device = stream->device;
    dpb_status st;

    DPB_TRY(dpb_cuda_stream_may_prepare(stream, "a convolution"));
    dpb_cuda_count(device, &device->plans);
    st = dpb_conv_graphs_plan(device->convs, &launch->shape, &launch->plan);
    /* What it was measured in is of this shape's size. */
    dpb_cuda_memory_trim(device);
    DPB_TRY(st);
    dpb_debug("cuda: %s: %s", launch->what, dpb_conv_plan_text(launch->plan));
    return DPB_OK;
}

dpb_status dpb_cuda_conv(dpb_stream *stream, enum dpb_op op, const void *args)
{
    dpb_device *device = stream->device;
    struct launch launch;

    DPB_TRY(use_stream(stream));
    launch_init(&launch, device, op, args);
    DPB_TRY(dpb_cuda_stream_queue(stream, &launch.queue));
    launch.plan = dpb_conv_graphs_find(device->convs, &launch.shape);
    if (!launch.plan)
        DPB_TRY(make_plan(&launch, stream));
    DPB_TRY(place_buffers(&launch, stream));
    DPB_TRY(before(&launch));
    DPB_TRY(dpb_conv_plan_run(launch.plan, &launch.buffers));
    switch (op) {
    case DPB_OP_CONV_FWD:
        return after_fwd(&launch);
    case DPB_OP_CONV_BWD_DATA:
        return after_bwd_data(&launch);
    default:
        return after_bwd_weights(&launch);
    }
}

/* Convolutions on oneDNN: activations stay plain NHWC, weights are packed as the primitive likes.
 */
#include "cpu_device.h"

enum {
    WITH_BIAS = 1 << 0,
    WITH_RELU = 1 << 1
};

struct shapes {
    dnnl_memory_desc_t x, w_any, w_plain, y, bias;
    dnnl_dims_t strides, pads;
};

static dnnl_status_t shapes_init(struct shapes *shapes, const struct dpb_conv_args *args)
{
    const int64_t *xd = args->x.dim, *wd = args->w.dim, *yd = args->y.dim;
    dnnl_dims_t x = {xd[0], xd[3], xd[1], xd[2]}, y = {yd[0], yd[3], yd[1], yd[2]};
    dnnl_dims_t w = {wd[0], wd[1], wd[2], wd[3]}, bias = {wd[0]};

    for (int i = 0; i < 2; i++) {
        shapes->strides[i] = args->stride;
        shapes->pads[i] = args->pad;
    }
    DNNL_TRY(dnnl_memory_desc_init_by_tag(&shapes->x, 4, x, dnnl_f32, dnnl_nhwc));
    DNNL_TRY(dnnl_memory_desc_init_by_tag(&shapes->y, 4, y, dnnl_f32, dnnl_nhwc));
    DNNL_TRY(dnnl_memory_desc_init_by_tag(&shapes->w_any, 4, w, dnnl_f32, dnnl_format_tag_any));
    DNNL_TRY(dnnl_memory_desc_init_by_tag(&shapes->w_plain, 4, w, dnnl_f32, dnnl_oihw));
    return dnnl_memory_desc_init_by_tag(&shapes->bias, 1, bias, dnnl_f32, dnnl_x);
}

static dnnl_status_t forward_desc(dnnl_convolution_desc_t *desc, const struct shapes *shapes,
                                  const dnnl_memory_desc_t *bias)
{
    return dnnl_convolution_forward_desc_init(desc, dnnl_forward_training, dnnl_convolution_direct,
                                              &shapes->x, &shapes->w_any, bias, &shapes->y,
                                              shapes->strides, shapes->pads, shapes->pads);
}

static dnnl_status_t make_forward(dpb_device *device, struct dpb_cpu_kernel *kernel,
                                  const struct shapes *shapes)
{
    const dnnl_memory_desc_t *bias = kernel->key.flags & WITH_BIAS ? &shapes->bias : NULL;
    dnnl_convolution_desc_t desc;
    dnnl_post_ops_t post_ops;
    dnnl_status_t status;

    DNNL_TRY(forward_desc(&desc, shapes, bias));
    DNNL_TRY(dnnl_post_ops_create(&post_ops));
    status = kernel->key.flags & WITH_RELU
                     ? dnnl_post_ops_append_eltwise(post_ops, 1.0f, dnnl_eltwise_relu, 0.0f, 0.0f)
                     : dnnl_success;
    if (status == dnnl_success)
        status = dpb_cpu_kernel_create(device, kernel, &desc, post_ops, NULL);
    dnnl_post_ops_destroy(post_ops);
    DNNL_TRY(status);
    DNNL_TRY(dpb_cpu_kernel_add(device, kernel, DNNL_ARG_SRC, &shapes->x));
    DNNL_TRY(dpb_cpu_kernel_add_packed(device, kernel, DNNL_ARG_WEIGHTS, &shapes->w_plain, false));
    if (bias)
        DNNL_TRY(dpb_cpu_kernel_add(device, kernel, DNNL_ARG_BIAS, bias));
    return dpb_cpu_kernel_add(device, kernel, DNNL_ARG_DST, &shapes->y);
}

static dnnl_status_t make_backward(dpb_device *device, struct dpb_cpu_kernel *kernel,
                                   enum dpb_op op, const struct shapes *shapes,
                                   const_dnnl_primitive_desc_t hint)
{
    const dnnl_memory_desc_t *bias = kernel->key.flags & WITH_BIAS ? &shapes->bias : NULL;
    dnnl_convolution_desc_t desc;

    if (op == DPB_OP_CONV_BWD_DATA) {
        DNNL_TRY(dnnl_convolution_backward_data_desc_init(
                &desc, dnnl_convolution_direct, &shapes->x, &shapes->w_any, &shapes->y,
                shapes->strides, shapes->pads, shapes->pads));
        DNNL_TRY(dpb_cpu_kernel_create(device, kernel, &desc, NULL, hint));
        DNNL_TRY(dpb_cpu_kernel_add(device, kernel, DNNL_ARG_DIFF_SRC, &shapes->x));
        DNNL_TRY(dpb_cpu_kernel_add_packed(device, kernel, DNNL_ARG_WEIGHTS, &shapes->w_plain,
                                           false));
    } else {
        DNNL_TRY(dnnl_convolution_backward_weights_desc_init(
                &desc, dnnl_convolution_direct, &shapes->x, &shapes->w_any, bias, &shapes->y,
                shapes->strides, shapes->pads, shapes->pads));
        DNNL_TRY(dpb_cpu_kernel_create(device, kernel, &desc, NULL, hint));
        DNNL_TRY(dpb_cpu_kernel_add(device, kernel, DNNL_ARG_SRC, &shapes->x));
        DNNL_TRY(dpb_cpu_kernel_add_packed(device, kernel, DNNL_ARG_DIFF_WEIGHTS, &shapes->w_plain,
                                           true));
        if (bias)
            DNNL_TRY(dpb_cpu_kernel_add(device, kernel, DNNL_ARG_DIFF_BIAS, bias));
    }
    return dpb_cpu_kernel_add(device, kernel, DNNL_ARG_DIFF_DST, &shapes->y);
}

static dnnl_status_t make(dpb_device *device, struct dpb_cpu_kernel *kernel, enum dpb_op op,
                          const void *args)
{
    dnnl_primitive_desc_t hint;
    dnnl_convolution_desc_t desc;
    struct shapes shapes;
    dnnl_status_t status;

    DNNL_TRY(shapes_init(&shapes, args));
    if (op == DPB_OP_CONV_FWD)
        return make_forward(device, kernel, &shapes);

    DNNL_TRY(forward_desc(&desc, &shapes, NULL));
    DNNL_TRY(dnnl_primitive_desc_create(&hint, &desc, NULL, device->engine, NULL));
    status = make_backward(device, kernel, op, &shapes, hint);
    dnnl_primitive_desc_destroy(hint);
    return status;
}

static struct dpb_cpu_key key_of(enum dpb_op op, const struct dpb_conv_args *args)
{
    struct dpb_cpu_key key = {.op = (int32_t)op};

    if (args->bias && op != DPB_OP_CONV_BWD_DATA)
        key.flags |= WITH_BIAS;
    if (args->relu && op == DPB_OP_CONV_FWD)
        key.flags |= WITH_RELU;
    for (int i = 0; i < 4; i++) {
        key.dim[i] = args->x.dim[i];
        key.dim[4 + i] = args->w.dim[i];
    }
    key.dim[8] = args->stride;
    key.dim[9] = args->pad;
    return key;
}

dpb_status dpb_cpu_conv(dpb_device *device, enum dpb_op op, const void *args)
{
    const struct dpb_conv_args *a = args;
    struct dpb_cpu_key key = key_of(op, a);
    struct dpb_cpu_kernel *kernel;
    dnnl_status_t status;

    DPB_TRY(dpb_cpu_kernel_get(device, &key, make, op, args, &kernel));
    if (op == DPB_OP_CONV_FWD) {
        dpb_cpu_kernel_set(kernel, DNNL_ARG_SRC, a->x.data);
        dpb_cpu_kernel_set(kernel, DNNL_ARG_WEIGHTS, a->w.data);
        dpb_cpu_kernel_set(kernel, DNNL_ARG_BIAS, a->bias);
        dpb_cpu_kernel_set(kernel, DNNL_ARG_DST, a->y.data);
    } else {
        dpb_cpu_kernel_set(kernel, DNNL_ARG_DIFF_DST, a->y.data);
        /* Each backward operator has one of each pair. */
        dpb_cpu_kernel_set(kernel, DNNL_ARG_DIFF_SRC, a->x.data);
        dpb_cpu_kernel_set(kernel, DNNL_ARG_WEIGHTS, a->w.data);
        dpb_cpu_kernel_set(kernel, DNNL_ARG_SRC, a->x.data);
        dpb_cpu_kernel_set(kernel, DNNL_ARG_DIFF_WEIGHTS, a->w.data);
        dpb_cpu_kernel_set(kernel, DNNL_ARG_DIFF_BIAS, a->bias);
    }
    status = dpb_cpu_kernel_run(device, kernel);
    return status == dnnl_success ? DPB_OK : dpb_cpu_vendor_error(status, "run", op, args);
}

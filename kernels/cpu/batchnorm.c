/* Batch normalisation on oneDNN; the running statistics are ours, since oneDNN keeps none. */
#include "cpu_device.h"

enum {
    TRAINING = 1 << 0,
    WITH_RELU = 1 << 1,
    IN_BF16 = 1 << 2
};

struct shapes {
    dnnl_memory_desc_t data, channel;
};

/* [N,C] is the same as [N,1,1,C]. */
static void geometry(const struct dpb_tensor *x, int64_t dims[4])
{
    dims[0] = x->dim[0];
    dims[1] = x->dim[x->rank - 1];
    dims[2] = x->rank == 4 ? x->dim[1] : 1;
    dims[3] = x->rank == 4 ? x->dim[2] : 1;
}

static dnnl_status_t shapes_init(struct shapes *shapes, const struct dpb_tensor *x)
{
    dnnl_dims_t dims = {0}, channel = {0};

    geometry(x, dims);
    channel[0] = dims[1];
    DNNL_TRY(dnnl_memory_desc_init_by_tag(&shapes->data, 4, dims, dpb_cpu_data_type(x->dtype),
                                          dnnl_nhwc));
    return dnnl_memory_desc_init_by_tag(&shapes->channel, 1, channel, dnnl_f32, dnnl_x);
}

static unsigned relu_flag(const struct dpb_cpu_key *key)
{
    return key->flags & WITH_RELU ? dnnl_fuse_norm_relu : 0;
}

static dnnl_status_t forward_desc(dnnl_batch_normalization_desc_t *desc,
                                  const struct shapes *shapes, const struct dpb_cpu_key *key)
{
    bool training = key->flags & TRAINING;
    unsigned flags = relu_flag(key) | dnnl_use_scale | dnnl_use_shift;

    if (!training)
        flags |= dnnl_use_global_stats;
    return dnnl_batch_normalization_forward_desc_init(
            desc, training ? dnnl_forward_training : dnnl_forward_inference, &shapes->data,
            key->number[0], flags);
}

static dnnl_status_t add_channels(dpb_device *device, struct dpb_cpu_kernel *kernel,
                                  const struct shapes *shapes, const int *dnnl_args, int count)
{
    for (int i = 0; i < count; i++)
        DNNL_TRY(dpb_cpu_kernel_add(device, kernel, dnnl_args[i], &shapes->channel));
    return dnnl_success;
}

/* Where the fused ReLU let values through, in a form of oneDNN's: a bit or a byte for each. */
static dnnl_status_t add_mask(dpb_device *device, struct dpb_cpu_kernel *kernel,
                              const struct shapes *shapes)
{
    const dnnl_memory_desc_t *desc = dpb_cpu_kernel_query(kernel, DNNL_ARG_WORKSPACE);
    size_t numel = dnnl_memory_desc_get_size(&shapes->data) /
                   (kernel->key.flags & IN_BF16 ? sizeof(uint16_t) : sizeof(float));

    if (!desc || dnnl_memory_desc_get_size(desc) == 0)
        return dnnl_success;
    if (dnnl_memory_desc_get_size(desc) > numel)
        return dnnl_unimplemented;
    return dpb_cpu_kernel_add(device, kernel, DNNL_ARG_WORKSPACE, desc);
}

static dnnl_status_t make_backward(dpb_device *device, struct dpb_cpu_kernel *kernel,
                                   const struct shapes *shapes)
{
    static const int channels[] = {DNNL_ARG_MEAN,  DNNL_ARG_VARIANCE,   DNNL_ARG_SCALE,
                                   DNNL_ARG_SHIFT, DNNL_ARG_DIFF_SCALE, DNNL_ARG_DIFF_SHIFT};
    dnnl_batch_normalization_desc_t forward, desc;
    dnnl_primitive_desc_t hint;
    dnnl_status_t status;

    DNNL_TRY(forward_desc(&forward, shapes, &kernel->key));
    DNNL_TRY(dnnl_batch_normalization_backward_desc_init(
            &desc, dnnl_backward, &shapes->data, &shapes->data, kernel->key.number[0],
            relu_flag(&kernel->key) | dnnl_use_scale | dnnl_use_shift));
    DNNL_TRY(dnnl_primitive_desc_create(&hint, &forward, NULL, device->engine, NULL));
    status = dpb_cpu_kernel_create(device, kernel, &desc, NULL, hint);
    dnnl_primitive_desc_destroy(hint);
    DNNL_TRY(status);
    DNNL_TRY(dpb_cpu_kernel_add(device, kernel, DNNL_ARG_SRC, &shapes->data));
    DNNL_TRY(dpb_cpu_kernel_add(device, kernel, DNNL_ARG_DIFF_DST, &shapes->data));
    DNNL_TRY(dpb_cpu_kernel_add(device, kernel, DNNL_ARG_DIFF_SRC, &shapes->data));
    DNNL_TRY(add_mask(device, kernel, shapes));
    return add_channels(device, kernel, shapes, channels, 6);
}

static dnnl_status_t make(dpb_device *device, struct dpb_cpu_kernel *kernel, enum dpb_op op,
                          const void *args)
{
    static const int channels[] = {DNNL_ARG_MEAN, DNNL_ARG_VARIANCE, DNNL_ARG_SCALE,
                                   DNNL_ARG_SHIFT};
    const struct dpb_batchnorm_args *a = args;
    dnnl_batch_normalization_desc_t desc;
    struct shapes shapes;

    DNNL_TRY(shapes_init(&shapes, &a->x));
    if (op == DPB_OP_BATCHNORM_BWD)
        return make_backward(device, kernel, &shapes);
    DNNL_TRY(forward_desc(&desc, &shapes, &kernel->key));
    DNNL_TRY(dpb_cpu_kernel_create(device, kernel, &desc, NULL, NULL));
    DNNL_TRY(dpb_cpu_kernel_add(device, kernel, DNNL_ARG_SRC, &shapes.data));
    DNNL_TRY(dpb_cpu_kernel_add(device, kernel, DNNL_ARG_DST, &shapes.data));
    DNNL_TRY(add_mask(device, kernel, &shapes));
    return add_channels(device, kernel, &shapes, channels, 4);
}

static void update_running(const struct dpb_batchnorm_args *args)
{
    int64_t c = args->x.dim[args->x.rank - 1], m = dpb_tensor_numel(&args->x) / c;
    float keep = 1.0f - args->momentum;
    float unbiased = args->momentum * (float)((double)m / (double)(m - 1));

    for (int64_t j = 0; j < c; j++) {
        args->running_mean[j] = keep * args->running_mean[j] + args->momentum * args->save_mean[j];
        args->running_var[j] = keep * args->running_var[j] + unbiased * args->save_var[j];
    }
}

dpb_status dpb_cpu_batchnorm(dpb_device *device, enum dpb_op op, const void *args)
{
    const struct dpb_batchnorm_args *a = args;
    struct dpb_cpu_key key = {.op = (int32_t)op};
    bool fwd = op == DPB_OP_BATCHNORM_FWD, running = fwd && !a->training;
    struct dpb_cpu_kernel *kernel;
    dnnl_status_t status;

    key.flags = (running ? 0 : TRAINING) | (a->relu ? WITH_RELU : 0) |
                (a->x.dtype == DPB_BF16 ? IN_BF16 : 0);
    geometry(&a->x, key.dim);
    key.number[0] = a->eps;
    DPB_TRY(dpb_cpu_kernel_get(device, &key, make, op, args, &kernel));
    dpb_cpu_kernel_set(kernel, DNNL_ARG_SRC, a->x.data);
    dpb_cpu_kernel_set(kernel, DNNL_ARG_MEAN, running ? a->running_mean : a->save_mean);
    dpb_cpu_kernel_set(kernel, DNNL_ARG_VARIANCE, running ? a->running_var : a->save_var);
    dpb_cpu_kernel_set(kernel, DNNL_ARG_SCALE, a->gamma);
    dpb_cpu_kernel_set(kernel, DNNL_ARG_WORKSPACE, a->mask);
    if (fwd) {
        dpb_cpu_kernel_set(kernel, DNNL_ARG_SHIFT, a->beta);
        dpb_cpu_kernel_set(kernel, DNNL_ARG_DST, a->y.data);
    } else {
        /* oneDNN insists on a shift here, and does not read it. */
        dpb_cpu_kernel_set(kernel, DNNL_ARG_SHIFT, a->gamma);
        dpb_cpu_kernel_set(kernel, DNNL_ARG_DIFF_DST, a->dy.data);
        dpb_cpu_kernel_set(kernel, DNNL_ARG_DIFF_SRC, a->dx.data);
        dpb_cpu_kernel_set(kernel, DNNL_ARG_DIFF_SCALE, a->dgamma);
        dpb_cpu_kernel_set(kernel, DNNL_ARG_DIFF_SHIFT, a->dbeta);
    }
    status = dpb_cpu_kernel_run(device, kernel);
    if (status != dnnl_success)
        return dpb_cpu_vendor_error(status, "run", op, args);
    if (fwd && a->training)
        update_running(a);
    return DPB_OK;
}

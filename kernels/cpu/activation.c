/* GELU and tanh on oneDNN's elementwise primitives. */
#include "cpu_device.h"

enum {
    TANH_FORM = 1 << 0,
    OF_BF16 = 1 << 1
};

static dnnl_alg_kind_t algorithm_of(enum dpb_op op, const struct dpb_activation_args *args)
{
    if (op == DPB_OP_TANH_FWD)
        return dnnl_eltwise_tanh;
    if (op == DPB_OP_TANH_BWD)
        return dnnl_eltwise_tanh_use_dst_for_bwd;
    return args->tanh_form ? dnnl_eltwise_gelu_tanh : dnnl_eltwise_gelu_erf;
}

static dnnl_status_t make(dpb_device *device, struct dpb_cpu_kernel *kernel, enum dpb_op op,
                          const void *args)
{
    const struct dpb_cpu_layout data = {.ndims = 1,
                                        .dims = {kernel->key.dim[0]},
                                        .type = kernel->key.flags & OF_BF16 ? dnnl_bf16 : dnnl_f32,
                                        .tag = dnnl_x};
    bool backward = op == DPB_OP_GELU_BWD || op == DPB_OP_TANH_BWD;
    const struct dpb_cpu_operation function = {
            .kind = dnnl_eltwise,
            .prop = backward ? dnnl_backward_data : dnnl_forward_inference,
            .algorithm = algorithm_of(op, args),
            .src = data,
            .dst = data,
    };

    DNNL_TRY(dpb_cpu_kernel_create(device, kernel, &function));
    if (!backward) {
        DNNL_TRY(dpb_cpu_kernel_add(device, kernel, DNNL_ARG_SRC, &data));
        return dpb_cpu_kernel_add(device, kernel, DNNL_ARG_DST, &data);
    }
    DNNL_TRY(dpb_cpu_kernel_add(device, kernel, op == DPB_OP_GELU_BWD ? DNNL_ARG_SRC : DNNL_ARG_DST,
                                &data));
    DNNL_TRY(dpb_cpu_kernel_add(device, kernel, DNNL_ARG_DIFF_DST, &data));
    return dpb_cpu_kernel_add(device, kernel, DNNL_ARG_DIFF_SRC, &data);
}

dpb_status dpb_cpu_activation(dpb_device *device, enum dpb_op op, const void *args)
{
    const struct dpb_activation_args *a = args;
    bool from_y = op == DPB_OP_TANH_FWD || op == DPB_OP_TANH_BWD;
    const struct dpb_tensor *tensor = from_y ? &a->y : &a->x;
    struct dpb_cpu_key key = {.op = (int32_t)op,
                              .flags = (a->tanh_form ? TANH_FORM : 0u) |
                                       (tensor->dtype == DPB_BF16 ? OF_BF16 : 0u)};
    struct dpb_cpu_kernel *kernel;
    dnnl_status_t status;

    key.dim[0] = dpb_tensor_numel(tensor);
    DPB_TRY(dpb_cpu_kernel_get(device, &key, make, op, args, &kernel));
    /* Those that an operator does not have are not set. */
    dpb_cpu_kernel_set(kernel, DNNL_ARG_SRC, a->x.data);
    dpb_cpu_kernel_set(kernel, DNNL_ARG_DST, a->y.data);
    dpb_cpu_kernel_set(kernel, DNNL_ARG_DIFF_DST, a->dy.data);
    dpb_cpu_kernel_set(kernel, DNNL_ARG_DIFF_SRC, a->dx.data);
    status = dpb_cpu_kernel_run(device, kernel);
    return status == dnnl_success ? DPB_OK : dpb_cpu_vendor_error(status, "run", op, args);
}

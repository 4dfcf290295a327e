/* oneDNN 3: memory descriptors are objects, and there are no operation descriptors. */
#include "onednn.h"

struct tensors {
    dnnl_memory_desc_t src, weights, bias, dst; /* NULL: none */
};

static dnnl_status_t memory_desc_create(dnnl_memory_desc_t *desc,
                                        const struct dpb_cpu_layout *layout)
{
    if (layout->tag == dnnl_format_tag_undef)
        return dnnl_memory_desc_create_with_strides(desc, layout->ndims, layout->dims, layout->type,
                                                    layout->strides);
    return dnnl_memory_desc_create_with_tag(desc, layout->ndims, layout->dims, layout->type,
                                            layout->tag);
}

dnnl_status_t dpb_onednn_memory_create(dnnl_memory_t *memory, const struct dpb_cpu_layout *layout,
                                       dnnl_engine_t engine)
{
    dnnl_memory_desc_t desc;
    dnnl_status_t status;

    DNNL_TRY(memory_desc_create(&desc, layout));
    status = dnnl_memory_create(memory, desc, engine, DNNL_MEMORY_NONE);
    dnnl_memory_desc_destroy(desc);
    return status;
}

dnnl_status_t dpb_onednn_post_ops_append(dnnl_post_ops_t post_ops,
                                         const struct dpb_cpu_operation *operation)
{
    if (operation->sum != 0.0f)
        DNNL_TRY(dnnl_post_ops_append_sum(post_ops, operation->sum, 0, dnnl_data_type_undef));
    if (operation->relu)
        DNNL_TRY(dnnl_post_ops_append_eltwise(post_ops, dnnl_eltwise_relu, 0.0f, 0.0f));
    return dnnl_success;
}

static dnnl_status_t tensor_create(dnnl_memory_desc_t *desc, const struct dpb_cpu_layout *layout)
{
    return layout->ndims > 0 ? memory_desc_create(desc, layout) : dnnl_success;
}

static dnnl_status_t tensors_create(struct tensors *tensors,
                                    const struct dpb_cpu_operation *operation)
{
    DNNL_TRY(tensor_create(&tensors->src, &operation->src));
    DNNL_TRY(tensor_create(&tensors->weights, &operation->weights));
    DNNL_TRY(tensor_create(&tensors->bias, &operation->bias));
    return tensor_create(&tensors->dst, &operation->dst);
}

static void tensors_destroy(struct tensors *tensors)
{
    const dnnl_memory_desc_t made[] = {tensors->src, tensors->weights, tensors->bias, tensors->dst};

    for (size_t i = 0; i < sizeof(made) / sizeof(made[0]); i++)
        if (made[i])
            dnnl_memory_desc_destroy(made[i]);
}

static dnnl_status_t eltwise_create(dnnl_primitive_desc_t *desc,
                                    const struct dpb_cpu_operation *operation,
                                    const struct tensors *tensors, const_dnnl_primitive_attr_t attr,
                                    dnnl_engine_t engine, const_dnnl_primitive_desc_t hint)
{
    if (operation->prop == dnnl_backward_data)
        return dnnl_eltwise_backward_primitive_desc_create(desc, engine, operation->algorithm,
                                                           tensors->src, tensors->dst, tensors->src,
                                                           0.0f, 0.0f, hint, attr);
    return dnnl_eltwise_forward_primitive_desc_create(desc, engine, operation->prop,
                                                      operation->algorithm, tensors->src,
                                                      tensors->dst, 0.0f, 0.0f, attr);
}

static dnnl_status_t convolution_create(dnnl_primitive_desc_t *desc,
                                        const struct dpb_cpu_operation *operation,
                                        const struct tensors *tensors,
                                        const_dnnl_primitive_attr_t attr, dnnl_engine_t engine,
                                        const_dnnl_primitive_desc_t hint)
{
    static const dnnl_dims_t dilations = {0};
    const int64_t *strides = operation->strides, *pads = operation->pads;

    if (operation->prop == dnnl_backward_data)
        return dnnl_convolution_backward_data_primitive_desc_create(
                desc, engine, operation->algorithm, tensors->src, tensors->weights, tensors->dst,
                strides, dilations, pads, pads, hint, attr);
    if (operation->prop == dnnl_backward_weights)
        return dnnl_convolution_backward_weights_primitive_desc_create(
                desc, engine, operation->algorithm, tensors->src, tensors->weights, tensors->bias,
                tensors->dst, strides, dilations, pads, pads, hint, attr);
    return dnnl_convolution_forward_primitive_desc_create(
            desc, engine, operation->prop, operation->algorithm, tensors->src, tensors->weights,
            tensors->bias, tensors->dst, strides, dilations, pads, pads, attr);
}

static dnnl_status_t primitive_desc_create(dnnl_primitive_desc_t *desc,
                                           const struct dpb_cpu_operation *operation,
                                           const struct tensors *tensors,
                                           const_dnnl_primitive_attr_t attr, dnnl_engine_t engine,
                                           const_dnnl_primitive_desc_t hint)
{
    switch (operation->kind) {
    case dnnl_matmul:
        return dnnl_matmul_primitive_desc_create(desc, engine, tensors->src, tensors->weights,
                                                 tensors->bias, tensors->dst, attr);
    case dnnl_eltwise:
        return eltwise_create(desc, operation, tensors, attr, engine, hint);
    case dnnl_convolution:
        return convolution_create(desc, operation, tensors, attr, engine, hint);
    default:
        return dnnl_unimplemented;
    }
}

dnnl_status_t dpb_onednn_primitive_desc_create(dnnl_primitive_desc_t *desc,
                                               const struct dpb_cpu_operation *operation,
                                               const_dnnl_primitive_attr_t attr,
                                               dnnl_engine_t engine,
                                               const_dnnl_primitive_desc_t hint)
{
    struct tensors tensors = {0};
    dnnl_status_t status = tensors_create(&tensors, operation);

    if (status == dnnl_success)
        status = primitive_desc_create(desc, operation, &tensors, attr, engine, hint);
    tensors_destroy(&tensors);
    return status;
}

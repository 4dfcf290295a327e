/* oneDNN 2: memory descriptors are plain values, and a primitive's descriptor is made from an
 * operation's. */
#include "onednn.h"

union operation_desc {
    dnnl_matmul_desc_t matmul;
    dnnl_eltwise_desc_t eltwise;
    dnnl_convolution_desc_t convolution;
};

struct tensors {
    dnnl_memory_desc_t src, weights, bias, dst;
};

static dnnl_status_t memory_desc_init(dnnl_memory_desc_t *desc, const struct dpb_cpu_layout *layout)
{
    if (layout->tag == dnnl_format_tag_undef)
        return dnnl_memory_desc_init_by_strides(desc, layout->ndims, layout->dims, layout->type,
                                                layout->strides);
    return dnnl_memory_desc_init_by_tag(desc, layout->ndims, layout->dims, layout->type,
                                        layout->tag);
}

dnnl_status_t dpb_onednn_memory_create(dnnl_memory_t *memory, const struct dpb_cpu_layout *layout,
                                       dnnl_engine_t engine)
{
    dnnl_memory_desc_t desc;

    DNNL_TRY(memory_desc_init(&desc, layout));
    return dnnl_memory_create(memory, &desc, engine, DNNL_MEMORY_NONE);
}

dnnl_status_t dpb_onednn_post_ops_append(dnnl_post_ops_t post_ops,
                                         const struct dpb_cpu_operation *operation)
{
    if (operation->sum != 0.0f)
        DNNL_TRY(dnnl_post_ops_append_sum(post_ops, operation->sum));
    if (operation->relu)
        DNNL_TRY(dnnl_post_ops_append_eltwise(post_ops, 1.0f, dnnl_eltwise_relu, 0.0f, 0.0f));
    return dnnl_success;
}

/* Tensors that an operation does not have are zero, which is what oneDNN means by no tensor. */
static dnnl_status_t tensors_init(struct tensors *tensors,
                                  const struct dpb_cpu_operation *operation)
{
    DNNL_TRY(memory_desc_init(&tensors->src, &operation->src));
    DNNL_TRY(memory_desc_init(&tensors->weights, &operation->weights));
    DNNL_TRY(memory_desc_init(&tensors->bias, &operation->bias));
    return memory_desc_init(&tensors->dst, &operation->dst);
}

static dnnl_status_t eltwise_init(dnnl_eltwise_desc_t *desc,
                                  const struct dpb_cpu_operation *operation,
                                  const struct tensors *tensors)
{
    if (operation->prop == dnnl_backward_data)
        return dnnl_eltwise_backward_desc_init(desc, operation->algorithm, &tensors->dst,
                                               &tensors->src, 0.0f, 0.0f);
    return dnnl_eltwise_forward_desc_init(desc, operation->prop, operation->algorithm,
                                          &tensors->src, 0.0f, 0.0f);
}

static dnnl_status_t convolution_init(dnnl_convolution_desc_t *desc,
                                      const struct dpb_cpu_operation *operation,
                                      const struct tensors *tensors)
{
    const int64_t *strides = operation->strides, *pads = operation->pads;

    if (operation->prop == dnnl_backward_data)
        return dnnl_convolution_backward_data_desc_init(desc, operation->algorithm, &tensors->src,
                                                        &tensors->weights, &tensors->dst, strides,
                                                        pads, pads);
    if (operation->prop == dnnl_backward_weights)
        return dnnl_convolution_backward_weights_desc_init(
                desc, operation->algorithm, &tensors->src, &tensors->weights, &tensors->bias,
                &tensors->dst, strides, pads, pads);
    return dnnl_convolution_forward_desc_init(desc, operation->prop, operation->algorithm,
                                              &tensors->src, &tensors->weights, &tensors->bias,
                                              &tensors->dst, strides, pads, pads);
}

static dnnl_status_t operation_desc_init(union operation_desc *desc,
                                         const struct dpb_cpu_operation *operation,
                                         const struct tensors *tensors)
{
    switch (operation->kind) {
    case dnnl_matmul:
        return dnnl_matmul_desc_init(&desc->matmul, &tensors->src, &tensors->weights,
                                     &tensors->bias, &tensors->dst);
    case dnnl_eltwise:
        return eltwise_init(&desc->eltwise, operation, tensors);
    case dnnl_convolution:
        return convolution_init(&desc->convolution, operation, tensors);
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
    union operation_desc operation_desc;
    struct tensors tensors;

    DNNL_TRY(tensors_init(&tensors, operation));
    DNNL_TRY(operation_desc_init(&operation_desc, operation, &tensors));
    return dnnl_primitive_desc_create(desc, &operation_desc, attr, engine, hint);
}

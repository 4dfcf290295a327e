#include "workload_parts.h"

dpb_status dpb_gradient_clear(const struct dpb_launcher *launcher, const struct dpb_model *model,
                              int param, float *grad, const float *zeros)
{
    const struct dpb_device_ops *device = dpb_device_get_ops(launcher->device);
    int64_t bytes = model->params[param].numel * (int64_t)sizeof(float);

    for (int64_t at = 0; at < bytes; at += DPB_ZEROS_BYTES) {
        int64_t count = bytes - at < DPB_ZEROS_BYTES ? bytes - at : DPB_ZEROS_BYTES;

        DPB_TRY(device->copy(launcher->device, (char *)grad + at, zeros, (size_t)count,
                             launcher->stream));
    }
    return DPB_OK;
}

dpb_status dpb_gradients_clear(const struct dpb_launcher *launcher,
                               const struct dpb_param_watch *watch, const struct dpb_model *model,
                               float *const *grad, const float *zeros, dpb_grad_ready ready,
                               void *ctx)
{
    for (int r = 0; r < model->param_count; r++) {
        int p = model->ready_order[r];

        DPB_TRY(dpb_param_use(watch, p, DPB_PASS_BACKWARD));
        DPB_TRY(dpb_gradient_clear(launcher, model, p, grad[p], zeros));
        DPB_TRY(ready(ctx, p));
    }
    return DPB_OK;
}

static struct dpb_tensor matrix(enum dpb_dtype dtype, const void *data, int64_t rows,
                                int64_t columns)
{
    struct dpb_tensor made = dpb_tensor_2d((void *)data, rows, columns);

    made.dtype = dtype;
    return made;
}

dpb_status dpb_linear_forward(const struct dpb_launcher *launcher, const struct dpb_layer *layer,
                              const struct dpb_linear *linear, void *y)
{
    int64_t in = layer->in[2], out = layer->out[2];
    struct dpb_matmul_args args = {.a = matrix(linear->dtype, linear->x, linear->samples, in),
                                   .b = matrix(linear->dtype, linear->weight, out, in),
                                   .c = matrix(linear->dtype, y, linear->samples, out),
                                   .bias = linear->bias,
                                   .trans_b = true,
                                   .relu = layer->relu};

    return dpb_launch(launcher, layer->op.fwd, DPB_OP_MATMUL, &args);
}

dpb_status dpb_linear_backward(const struct dpb_launcher *launcher, const struct dpb_layer *layer,
                               const struct dpb_linear *linear, float *const *grad, const void *dy,
                               void *dx, dpb_grad_ready ready, void *ctx)
{
    int64_t in = layer->in[2], out = layer->out[2], samples = linear->samples;
    struct dpb_tensor of_output = matrix(linear->dtype, dy, samples, out);
    struct dpb_bias_args bias = {.y = of_output, .bias = grad[layer->bias]};
    struct dpb_matmul_args args = {.a = of_output,
                                   .b = matrix(linear->dtype, linear->x, samples, in),
                                   .c = dpb_tensor_2d(grad[layer->weight], out, in),
                                   .trans_a = true};

    DPB_TRY(dpb_launch(launcher, layer->op.bwd_bias, DPB_OP_BIAS_BWD, &bias));
    DPB_TRY(ready(ctx, layer->bias));
    DPB_TRY(dpb_launch(launcher, layer->op.bwd_weights, DPB_OP_MATMUL, &args));
    DPB_TRY(ready(ctx, layer->weight));
    if (!dx)
        return DPB_OK;
    args = (struct dpb_matmul_args){.a = of_output,
                                    .b = matrix(linear->dtype, linear->weight, out, in),
                                    .c = matrix(linear->dtype, dx, samples, in)};
    return dpb_launch(launcher, layer->op.bwd_data, DPB_OP_MATMUL, &args);
}

bool dpb_label_wins(const float *value, int64_t classes, int32_t label)
{
    for (int64_t c = 0; c < classes; c++) {
        if (c < label ? !(value[label] > value[c]) : !(value[label] >= value[c]))
            return false;
    }
    return true;
}

dpb_status dpb_params_use_all(const struct dpb_param_watch *watch, const struct dpb_model *model)
{
    for (int r = model->param_count - 1; r >= 0; r--)
        DPB_TRY(dpb_param_use(watch, model->ready_order[r], DPB_PASS_FORWARD));
    return DPB_OK;
}

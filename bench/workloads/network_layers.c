/* What a network launches for each kind of layer. */
#include "network_private.h"

#include "workload_parts.h"

struct dpb_tensor dpb_network_images(const float *data, int64_t samples, const int64_t dim[3])
{
    return dpb_tensor_4d((float *)data, samples, dim[0], dim[1], dim[2]);
}

/* What layer i reads: the batch, or a layer before. */
static const float *input_of(const struct network *net, int i, int k, const struct dpb_batch *batch)
{
    int from = net->list->layer[i].input[k];

    return from == DPB_LAYER_IMAGES ? batch->x : net->output[from];
}

static dpb_status launch(struct network *net, const char *name, enum dpb_op op, const void *args)
{
    return dpb_launch(net->launcher, name, op, args);
}

static struct dpb_conv_args conv_args(const struct network *net, int i, int64_t samples,
                                      const float *x, const float *w, const float *y)
{
    const struct dpb_layer *layer = &net->list->layer[i];

    return (struct dpb_conv_args){.x = dpb_network_images(x, samples, layer->in),
                                  .w = dpb_tensor_4d((float *)w, layer->out[2], layer->in[2],
                                                     layer->kernel, layer->kernel),
                                  .y = dpb_network_images(y, samples, layer->out),
                                  .stride = layer->stride,
                                  .pad = layer->pad};
}

static struct dpb_pool_args pool_args(const struct network *net, int i, int64_t samples,
                                      const float *x, const float *y)
{
    const struct dpb_layer *layer = &net->list->layer[i];

    return (struct dpb_pool_args){.x = dpb_network_images(x, samples, layer->in),
                                  .y = dpb_network_images(y, samples, layer->out),
                                  .index = net->extra[i].pool_index,
                                  .kernel = layer->kernel,
                                  .stride = layer->stride,
                                  .pad = layer->pad};
}

/* ---- forward ---- */

/* Image by image, y = shares x, or back, x = shares^T y. */
static dpb_status adaptive_pool(struct network *net, int i, const char *name, bool back,
                                int64_t samples, const float *from, float *to)
{
    const struct dpb_layer *layer = &net->list->layer[i];
    int64_t channels = layer->in[2];
    int64_t in = layer->in[0] * layer->in[1], out = layer->out[0] * layer->out[1];

    for (int64_t n = 0; n < samples; n++) {
        const float *b = from + n * channels * (back ? out : in);
        float *c = to + n * channels * (back ? in : out);
        struct dpb_matmul_args args = {.a = dpb_tensor_2d(net->extra[i].fixed, out, in),
                                       .b = dpb_tensor_2d((float *)b, back ? out : in, channels),
                                       .c = dpb_tensor_2d(c, back ? in : out, channels),
                                       .trans_a = back};

        DPB_TRY(launch(net, name, DPB_OP_MATMUL, &args));
    }
    return DPB_OK;
}

dpb_status dpb_network_layer_forward(struct network *net, int i, const struct dpb_batch *batch,
                                     bool training)
{
    const struct dpb_layer *layer = &net->list->layer[i];
    const float *x = input_of(net, i, 0, batch);
    float *y = net->output[i];

    switch (layer->kind) {
    case DPB_LAYER_CONV2D: {
        struct dpb_conv_args args =
                conv_args(net, i, batch->samples, x, net->param[layer->weight], y);

        args.bias = layer->bias < 0 ? NULL : net->param[layer->bias];
        args.relu = layer->relu;
        return launch(net, layer->op.fwd, DPB_OP_CONV_FWD, &args);
    }
    case DPB_LAYER_BATCHNORM2D:
        return dpb_network_batchnorm_forward(net, i, batch->samples, x, training);
    case DPB_LAYER_MAXPOOL2D: {
        struct dpb_pool_args args = pool_args(net, i, batch->samples, x, y);

        if (!training)
            args.index = NULL;
        return launch(net, layer->op.fwd, DPB_OP_POOL_MAX_FWD, &args);
    }
    case DPB_LAYER_AVGPOOL2D: {
        struct dpb_pool_args args = pool_args(net, i, batch->samples, x, y);

        return launch(net, layer->op.fwd, DPB_OP_POOL_AVG_FWD, &args);
    }
    case DPB_LAYER_ADAPTIVEPOOL2D:
        return adaptive_pool(net, i, layer->op.fwd, false, batch->samples, x, y);
    case DPB_LAYER_LINEAR:
        return dpb_linear_forward(net->launcher, layer, batch->samples, x, net->param, y);
    case DPB_LAYER_ADD: {
        struct dpb_add_args args = {
                .a = dpb_network_images(x, batch->samples, layer->out),
                .b = dpb_network_images(input_of(net, i, 1, batch), batch->samples, layer->out),
                .y = dpb_network_images(y, batch->samples, layer->out),
                .relu = layer->relu};

        return launch(net, layer->op.fwd, DPB_OP_ADD, &args);
    }
    case DPB_LAYER_SHORTCUT: {
        struct dpb_conv_args args = conv_args(net, i, batch->samples, x, net->extra[i].fixed, y);

        return launch(net, layer->op.fwd, DPB_OP_CONV_FWD, &args);
    }
    }
    return DPB_ERR_INTERNAL;
}

/* ---- backward: weights come before data, so that gradients travel while the rest is computed ----
 */

static const float *dy_of(const struct network *net, int i)
{
    return net->buffer[net->plan.layer[i].masked];
}

/* Where the gradient with respect to the input goes; NULL when nobody needs it. */
static float *dx_of(const struct network *net, int i)
{
    int part = net->plan.layer[i].flow[0].part;

    return part < 0 ? NULL : net->buffer[part];
}

static dpb_status relu_backward(struct network *net, int i, int64_t samples)
{
    const struct dpb_layer *layer = &net->list->layer[i];
    const struct network_layer_plan *plan = &net->plan.layer[i];
    struct dpb_relu_args args = {
            .y = dpb_network_images(net->output[i], samples, layer->out),
            .dy = dpb_network_images(net->buffer[plan->grad], samples, layer->out),
            .dx = dpb_network_images(net->buffer[plan->masked], samples, layer->out)};

    return launch(net, layer->op.bwd_relu, DPB_OP_RELU_BWD, &args);
}

static dpb_status conv_backward_data(struct network *net, int i, int64_t samples, const float *w)
{
    const float *dx = dx_of(net, i);
    struct dpb_conv_args args;

    if (!dx)
        return DPB_OK;
    args = conv_args(net, i, samples, dx, w, dy_of(net, i));
    return launch(net, net->list->layer[i].op.bwd_data, DPB_OP_CONV_BWD_DATA, &args);
}

static dpb_status conv_backward(struct network *net, int i, const struct dpb_batch *batch,
                                dpb_grad_ready ready, void *ctx)
{
    const struct dpb_layer *layer = &net->list->layer[i];
    struct dpb_conv_args args = conv_args(net, i, batch->samples, input_of(net, i, 0, batch),
                                          net->grad[layer->weight], dy_of(net, i));

    args.bias = layer->bias < 0 ? NULL : net->grad[layer->bias];
    DPB_TRY(launch(net, layer->op.bwd_weights, DPB_OP_CONV_BWD_WEIGHTS, &args));
    DPB_TRY(ready(ctx, layer->weight));
    if (layer->bias >= 0)
        DPB_TRY(ready(ctx, layer->bias));
    return conv_backward_data(net, i, batch->samples, net->param[layer->weight]);
}

static dpb_status pool_backward(struct network *net, int i, enum dpb_op op, int64_t samples)
{
    const float *dx = dx_of(net, i);
    struct dpb_pool_args args;

    if (!dx)
        return DPB_OK;
    args = pool_args(net, i, samples, dx, dy_of(net, i));
    return launch(net, net->list->layer[i].op.bwd_data, op, &args);
}

static dpb_status adaptive_backward(struct network *net, int i, int64_t samples)
{
    float *dx = dx_of(net, i);

    return dx ? adaptive_pool(net, i, net->list->layer[i].op.bwd_data, true, samples, dy_of(net, i),
                              dx)
              : DPB_OK;
}

static dpb_status kind_backward(struct network *net, int i, const struct dpb_batch *batch,
                                dpb_grad_ready ready, void *ctx)
{
    switch (net->list->layer[i].kind) {
    case DPB_LAYER_CONV2D:
        return conv_backward(net, i, batch, ready, ctx);
    case DPB_LAYER_BATCHNORM2D:
        return dpb_network_batchnorm_backward(net, i, batch->samples, input_of(net, i, 0, batch),
                                              dy_of(net, i), dx_of(net, i), ready, ctx);
    case DPB_LAYER_MAXPOOL2D:
        return pool_backward(net, i, DPB_OP_POOL_MAX_BWD, batch->samples);
    case DPB_LAYER_AVGPOOL2D:
        return pool_backward(net, i, DPB_OP_POOL_AVG_BWD, batch->samples);
    case DPB_LAYER_ADAPTIVEPOOL2D:
        return adaptive_backward(net, i, batch->samples);
    case DPB_LAYER_LINEAR:
        return dpb_linear_backward(net->launcher, &net->list->layer[i], batch->samples,
                                   input_of(net, i, 0, batch), net->param, net->grad, dy_of(net, i),
                                   dx_of(net, i), ready, ctx);
    case DPB_LAYER_ADD:
        return DPB_OK; /* the gradients of both inputs are the one of the sum */
    case DPB_LAYER_SHORTCUT:
        return conv_backward_data(net, i, batch->samples, net->extra[i].fixed);
    }
    return DPB_ERR_INTERNAL;
}

/* Where an input is read by later layers too, their share and this layer's are added. */
static dpb_status add_shares(struct network *net, int i, int k, int64_t samples)
{
    const struct dpb_layer *layer = &net->list->layer[i];
    const struct network_flow *flow = &net->plan.layer[i].flow[k];
    struct dpb_add_args args;

    if (flow->before < 0)
        return DPB_OK;
    args = (struct dpb_add_args){
            .a = dpb_network_images(net->buffer[flow->part], samples, layer->in),
            .b = dpb_network_images(net->buffer[flow->before], samples, layer->in),
            .y = dpb_network_images(net->buffer[flow->sum], samples, layer->in)};
    return launch(net, layer->op.bwd_sum, DPB_OP_ADD, &args);
}

dpb_status dpb_network_layer_backward(struct network *net, int i, const struct dpb_batch *batch,
                                      dpb_grad_ready ready, void *ctx)
{
    const struct dpb_layer *layer = &net->list->layer[i];

    if (dpb_network_relu_is_apart(layer))
        DPB_TRY(relu_backward(net, i, batch->samples));
    DPB_TRY(kind_backward(net, i, batch, ready, ctx));
    for (int k = 0; k < layer->input_count; k++)
        DPB_TRY(add_shares(net, i, k, batch->samples));
    return DPB_OK;
}

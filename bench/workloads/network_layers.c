/* What a network launches for each kind of layer. */
#include "network.h"
#include "network_private.h"

#include "dpb_log.h"
#include "workload_parts.h"

static struct dpb_tensor typed(const struct network *net, struct dpb_tensor tensor)
{
    tensor.dtype = net->precision;
    return tensor;
}

struct dpb_tensor dpb_network_images(const struct network *net, const void *data, int64_t samples,
                                     const int64_t dim[3])
{
    return typed(net, dpb_tensor_4d((void *)data, samples, dim[0], dim[1], dim[2]));
}

/* What layer i reads: the batch, or a layer before. */
static const void *input_of(const struct network *net, int i, int k, const struct dpb_batch *batch)
{
    int from = net->list->layer[i].input[k];

    if (from != DPB_LAYER_IMAGES)
        return net->output[from];
    return net->images ? net->images : batch->x;
}

/* What a layer multiplies with: its weights, in the precision. */
static const void *weight_of(const struct network *net, const struct dpb_layer *layer)
{
    const void *copy = net->weight[layer->weight];

    return copy ? copy : net->param[layer->weight];
}

static dpb_status launch(struct network *net, const char *name, enum dpb_op op, const void *args)
{
    return dpb_launch(net->launcher, name, op, args);
}

static struct dpb_conv_args conv_args(const struct network *net, int i, int64_t samples,
                                      const void *x, const void *w, const void *y)
{
    const struct dpb_layer *layer = &net->list->layer[i];

    return (struct dpb_conv_args){
            .x = dpb_network_images(net, x, samples, layer->in),
            .w = typed(net, dpb_tensor_4d((void *)w, layer->out[2], layer->in[2], layer->kernel,
                                          layer->kernel)),
            .y = dpb_network_images(net, y, samples, layer->out),
            .stride = layer->stride,
            .pad = layer->pad};
}

static struct dpb_pool_args pool_args(const struct network *net, int i, int64_t samples,
                                      const void *x, const void *y)
{
    const struct dpb_layer *layer = &net->list->layer[i];

    return (struct dpb_pool_args){.x = dpb_network_images(net, x, samples, layer->in),
                                  .y = dpb_network_images(net, y, samples, layer->out),
                                  .index = net->extra[i].pool_index,
                                  .kernel = layer->kernel,
                                  .stride = layer->stride,
                                  .pad = layer->pad};
}

/* ---- what the device must be able to do ---- */

#define KIND_OPS_MAX 4

/* Operators of each kind of layer, in the network's precision. */
static const struct {
    int count;
    enum dpb_op op[KIND_OPS_MAX];
} kind_ops[] = {
        [DPB_LAYER_CONV2D] = {4,
                              {DPB_OP_CONV_FWD, DPB_OP_CONV_BWD_DATA, DPB_OP_CONV_BWD_WEIGHTS,
                               DPB_OP_RELU_BWD}},
        [DPB_LAYER_BATCHNORM2D] = {2, {DPB_OP_BATCHNORM_FWD, DPB_OP_BATCHNORM_BWD}},
        [DPB_LAYER_MAXPOOL2D] = {2, {DPB_OP_POOL_MAX_FWD, DPB_OP_POOL_MAX_BWD}},
        [DPB_LAYER_AVGPOOL2D] = {2, {DPB_OP_POOL_AVG_FWD, DPB_OP_POOL_AVG_BWD}},
        [DPB_LAYER_ADAPTIVEPOOL2D] = {1, {DPB_OP_MATMUL}},
        [DPB_LAYER_LINEAR] = {3, {DPB_OP_MATMUL, DPB_OP_BIAS_BWD, DPB_OP_RELU_BWD}},
        [DPB_LAYER_ADD] = {2, {DPB_OP_ADD, DPB_OP_RELU_BWD}},
        [DPB_LAYER_SHORTCUT] = {2, {DPB_OP_CONV_FWD, DPB_OP_CONV_BWD_DATA}},
};

static const enum dpb_op sync_ops[] = {DPB_OP_BATCHNORM_STATS, DPB_OP_BATCHNORM_APPLY,
                                       DPB_OP_BATCHNORM_BWD_SUMS, DPB_OP_BATCHNORM_BWD_APPLY};

uint64_t dpb_network_operators(const struct dpb_layer_list *list,
                               const struct dpb_workload_sizes *sizes)
{
    uint64_t set = sizes->precision == DPB_F32 ? 0 : DPB_OPERATOR(DPB_OP_CAST);

    for (int i = 0; i < list->layer_count; i++) {
        enum dpb_layer_kind kind = list->layer[i].kind;

        for (int k = 0; k < kind_ops[kind].count; k++)
            set |= DPB_OPERATOR(kind_ops[kind].op[k]);
    }
    for (size_t k = 0; sizes->sync_batch_statistics && k < sizeof(sync_ops) / sizeof(sync_ops[0]);
         k++)
        set |= DPB_OPERATOR(sync_ops[k]);
    return set;
}

dpb_status dpb_network_check_operators(const struct network *net)
{
    const struct dpb_workload_sizes sizes = {.precision = net->precision,
                                             .sync_batch_statistics = net->sync != NULL};

    return dpb_workload_check_operators(net->base.ops->name,
                                        dpb_network_operators(net->list, &sizes), net->precision,
                                        net->launcher->device);
}

/* ---- forward ---- */

/* Image by image, y = shares x, or back, x = shares^T y. */
static dpb_status adaptive_pool(struct network *net, int i, const char *name, bool back,
                                int64_t samples, const void *from, void *to)
{
    const struct dpb_layer *layer = &net->list->layer[i];
    int64_t channels = layer->in[2];
    int64_t in = layer->in[0] * layer->in[1], out = layer->out[0] * layer->out[1];
    int64_t of_channel = channels * (int64_t)dpb_dtype_bytes(net->precision);

    for (int64_t n = 0; n < samples; n++) {
        const char *b = (const char *)from + n * of_channel * (back ? out : in);
        char *c = (char *)to + n * of_channel * (back ? in : out);
        struct dpb_matmul_args args = {
                .a = typed(net, dpb_tensor_2d(net->extra[i].fixed, out, in)),
                .b = typed(net, dpb_tensor_2d((void *)b, back ? out : in, channels)),
                .c = typed(net, dpb_tensor_2d(c, back ? in : out, channels)),
                .trans_a = back};

        DPB_TRY(launch(net, name, DPB_OP_MATMUL, &args));
    }
    return DPB_OK;
}

/* The values of a linear layer that reads x. */
static struct dpb_linear linear_of(const struct network *net, int i, int64_t samples, const void *x)
{
    const struct dpb_layer *layer = &net->list->layer[i];

    return (struct dpb_linear){.dtype = net->precision,
                               .samples = samples,
                               .x = x,
                               .weight = weight_of(net, layer),
                               .bias = layer->bias < 0 ? NULL : net->param[layer->bias]};
}

/* to = from, rounded where `to` is narrower. */
static dpb_status cast(struct network *net, const char *name, const void *from,
                       enum dpb_dtype from_dtype, void *to, enum dpb_dtype to_dtype, int64_t count)
{
    struct dpb_cast_args args = {.from = dpb_tensor_1d((void *)from, count),
                                 .to = dpb_tensor_1d(to, count)};

    args.from.dtype = from_dtype;
    args.to.dtype = to_dtype;
    return launch(net, name, DPB_OP_CAST, &args);
}

/* Just before they are read, while they are in the cache. */
static dpb_status cast_weights(struct network *net, const struct dpb_layer *layer)
{
    void *copy = layer->weight < 0 ? NULL : net->weight[layer->weight];

    if (!copy)
        return DPB_OK;
    return cast(net, layer->op.cast, net->param[layer->weight], DPB_F32, copy, net->precision,
                net->list->param[layer->weight].numel);
}

static dpb_status use_params(const struct network *net, const struct dpb_layer *layer,
                             enum dpb_pass pass)
{
    DPB_TRY(dpb_param_use(net->watch, layer->weight, pass));
    return dpb_param_use(net->watch, layer->bias, pass);
}

static dpb_status layer_forward(struct network *net, int i, const struct dpb_batch *batch,
                                bool training)
{
    const struct dpb_layer *layer = &net->list->layer[i];
    const void *x = input_of(net, i, 0, batch);
    void *y = net->output[i];

    switch (layer->kind) {
    case DPB_LAYER_CONV2D: {
        struct dpb_conv_args args = conv_args(net, i, batch->samples, x, weight_of(net, layer), y);

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
    case DPB_LAYER_LINEAR: {
        const struct dpb_linear linear = linear_of(net, i, batch->samples, x);

        return dpb_linear_forward(net->launcher, layer, &linear, y);
    }
    case DPB_LAYER_ADD: {
        if (dpb_network_is_done_before(net->list, i))
            return DPB_OK;
        struct dpb_add_args args = {.a = dpb_network_images(net, x, batch->samples, layer->out),
                                    .b = dpb_network_images(net, input_of(net, i, 1, batch),
                                                            batch->samples, layer->out),
                                    .y = dpb_network_images(net, y, batch->samples, layer->out),
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

dpb_status dpb_network_layers_forward(struct network *net, const struct dpb_batch *batch,
                                      bool training)
{
    const struct dpb_model *model = &net->list->model;
    const int64_t *dim = model->sample_dim;
    int last = net->list->layer_count - 1;

    if (net->images)
        DPB_TRY(cast(net, "images.cast", batch->x, DPB_F32, net->images, net->precision,
                     batch->samples * dim[0] * dim[1] * dim[2]));
    for (int i = 0; i <= last; i++) {
        DPB_TRY(use_params(net, &net->list->layer[i], DPB_PASS_FORWARD));
        DPB_TRY(cast_weights(net, &net->list->layer[i]));
        DPB_TRY(layer_forward(net, i, batch, training));
    }
    if (net->precision == DPB_F32)
        return DPB_OK;
    return cast(net, "logits.cast", net->output[last], net->precision, net->logits, DPB_F32,
                batch->samples * model->classes);
}

/* ---- backward: weights come before data, so that gradients travel while the rest is computed ----
 */

static const void *dy_of(const struct network *net, int i)
{
    return net->buffer[net->plan.layer[i].masked];
}

/* Where the gradient with respect to the input goes; NULL when nobody needs it. */
static void *dx_of(const struct network *net, int i)
{
    int part = net->plan.layer[i].flow[0].part;

    return part < 0 ? NULL : net->buffer[part];
}

static dpb_status relu_backward(struct network *net, int i, int64_t samples)
{
    const struct dpb_layer *layer = &net->list->layer[i];
    const struct network_layer_plan *plan = &net->plan.layer[i];
    struct dpb_relu_args args = {
            .y = dpb_network_images(net, net->output[i], samples, layer->out),
            .dy = dpb_network_images(net, net->buffer[plan->grad], samples, layer->out),
            .dx = dpb_network_images(net, net->buffer[plan->masked], samples, layer->out)};

    return launch(net, layer->op.bwd_relu, DPB_OP_RELU_BWD, &args);
}

/* For batch normalisation to change, where the gradient of a sum is another's as well. */
static dpb_status copy_gradient(struct network *net, int i, int64_t samples)
{
    const struct network_layer_plan *plan = &net->plan.layer[i];
    int64_t bytes = samples * net->list->info[i].out_elements_per_sample *
                    (int64_t)dpb_dtype_bytes(net->precision);

    return dpb_device_get_ops(net->launcher->device)
            ->copy(net->launcher->device, net->buffer[plan->masked], net->buffer[plan->grad],
                   (size_t)bytes, net->launcher->stream);
}

static dpb_status conv_backward_data(struct network *net, int i, int64_t samples, const void *w)
{
    void *dx = dx_of(net, i);
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

    args.w.dtype = DPB_F32;
    args.bias = layer->bias < 0 ? NULL : net->grad[layer->bias];
    DPB_TRY(launch(net, layer->op.bwd_weights, DPB_OP_CONV_BWD_WEIGHTS, &args));
    DPB_TRY(ready(ctx, layer->weight));
    if (layer->bias >= 0)
        DPB_TRY(ready(ctx, layer->bias));
    return conv_backward_data(net, i, batch->samples, weight_of(net, layer));
}

static dpb_status pool_backward(struct network *net, int i, enum dpb_op op, int64_t samples)
{
    void *dx = dx_of(net, i);
    struct dpb_pool_args args;

    if (!dx)
        return DPB_OK;
    args = pool_args(net, i, samples, dx, dy_of(net, i));
    return launch(net, net->list->layer[i].op.bwd_data, op, &args);
}

static dpb_status adaptive_backward(struct network *net, int i, int64_t samples)
{
    void *dx = dx_of(net, i);

    return dx ? adaptive_pool(net, i, net->list->layer[i].op.bwd_data, true, samples, dy_of(net, i),
                              dx)
              : DPB_OK;
}

static dpb_status kind_backward(struct network *net, int i, const struct dpb_batch *batch,
                                dpb_grad_ready ready, void *ctx)
{
    const struct dpb_layer *layer = &net->list->layer[i];

    switch (layer->kind) {
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
    case DPB_LAYER_LINEAR: {
        const struct dpb_linear linear =
                linear_of(net, i, batch->samples, input_of(net, i, 0, batch));

        return dpb_linear_backward(net->launcher, layer, &linear, net->grad, dy_of(net, i),
                                   dx_of(net, i), ready, ctx);
    }
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
            .a = dpb_network_images(net, net->buffer[flow->part], samples, layer->in),
            .b = dpb_network_images(net, net->buffer[flow->before], samples, layer->in),
            .y = dpb_network_images(net, net->buffer[flow->sum], samples, layer->in)};
    return launch(net, layer->op.bwd_sum, DPB_OP_ADD, &args);
}

static dpb_status layer_backward(struct network *net, int i, const struct dpb_batch *batch,
                                 dpb_grad_ready ready, void *ctx)
{
    const struct dpb_layer *layer = &net->list->layer[i];

    DPB_TRY(use_params(net, layer, DPB_PASS_BACKWARD));
    if (dpb_network_relu_is_apart(net->list, i))
        DPB_TRY(relu_backward(net, i, batch->samples));
    else if (net->plan.layer[i].masked != net->plan.layer[i].grad)
        DPB_TRY(copy_gradient(net, i, batch->samples));
    DPB_TRY(kind_backward(net, i, batch, ready, ctx));
    for (int k = 0; k < layer->input_count; k++)
        DPB_TRY(add_shares(net, i, k, batch->samples));
    return DPB_OK;
}

dpb_status dpb_network_layers_backward(struct network *net, const struct dpb_batch *batch,
                                       dpb_grad_ready ready, void *ctx)
{
    int last = net->list->layer_count - 1;

    if (net->precision != DPB_F32)
        DPB_TRY(cast(net, "dlogits.cast", net->dlogits, DPB_F32,
                     net->buffer[net->plan.layer[last].grad], net->precision,
                     batch->samples * net->list->model.classes));
    for (int i = last; i >= 0; i--)
        DPB_TRY(layer_backward(net, i, batch, ready, ctx));
    return DPB_OK;
}

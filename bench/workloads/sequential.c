#include "sequential.h"

#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"
#include "workload_parts.h"

struct sequential {
    struct dpb_workload_base base;
    const struct dpb_layer_list *list;
    struct dpb_launcher *launcher;
    int64_t batch_max;
    float *param[DPB_LAYER_PARAMS_MAX], *grad[DPB_LAYER_PARAMS_MAX];
    float *output[DPB_LAYERS_MAX];       /* [batch_max, out] of each layer, after its ReLU */
    uint8_t *pool_index[DPB_LAYERS_MAX]; /* maxima's positions; NULL for other layers */
    /* The gradient with respect to layer i's output lies in output_grad[i % 2]: it is made from the
     * one of layer i + 1 and both are needed at once, never three. */
    float *output_grad[2];
    float *prob; /* [batch_max, classes] */
    float *loss; /* [batch_max] */
    float *zeros;
    int64_t bytes; /* of all of these */
};

static struct sequential *sequential_of(dpb_workload *workload)
{
    return (struct sequential *)workload;
}

static int64_t out_elements(const struct sequential *net, int layer)
{
    return net->list->info[layer].out_elements_per_sample;
}

/* ---- open, close ---- */

static dpb_status take(struct sequential *net, int64_t bytes, void *to)
{
    dpb_device *device = net->launcher->device;
    void *memory;

    DPB_TRY(dpb_device_get_ops(device)->alloc(device, (size_t)bytes, &memory));
    memcpy(to, &memory, sizeof(memory));
    net->bytes += bytes;
    return DPB_OK;
}

/* Elements of the buffers that the outputs' gradients alternate between, layer by layer. */
static void grad_elements(const struct dpb_layer_list *list, int64_t batch_max, int64_t elements[2])
{
    elements[0] = elements[1] = 0;
    for (int i = 0; i < list->layer_count; i++) {
        int64_t needed = batch_max * list->info[i].out_elements_per_sample;

        if (elements[i % 2] < needed)
            elements[i % 2] = needed;
    }
}

int64_t dpb_sequential_activation_bytes_for(const struct dpb_layer_list *list, int64_t batch_max)
{
    const int64_t sample_bytes = (int64_t)sizeof(float);
    int64_t elements[2], bytes = DPB_ZEROS_BYTES;

    for (int i = 0; i < list->layer_count; i++) {
        int64_t output = batch_max * list->info[i].out_elements_per_sample;

        bytes += output * sample_bytes;
        if (list->layer[i].kind == DPB_LAYER_MAXPOOL2D)
            bytes += output; /* an index is a byte */
    }
    grad_elements(list, batch_max, elements);
    bytes += (elements[0] + elements[1]) * sample_bytes;
    return bytes + batch_max * (list->model.classes + 1) * sample_bytes; /* prob, loss */
}

static dpb_status take_all(struct sequential *net)
{
    const struct dpb_layer_list *list = net->list;
    const int64_t sample_bytes = (int64_t)sizeof(float);
    int64_t elements[2];

    for (int i = 0; i < list->layer_count; i++) {
        int64_t output = net->batch_max * out_elements(net, i);

        DPB_TRY(take(net, output * sample_bytes, &net->output[i]));
        if (list->layer[i].kind == DPB_LAYER_MAXPOOL2D)
            DPB_TRY(take(net, output, &net->pool_index[i]));
    }
    grad_elements(list, net->batch_max, elements);
    for (int i = 0; i < 2; i++) {
        if (elements[i] > 0)
            DPB_TRY(take(net, elements[i] * sample_bytes, &net->output_grad[i]));
    }
    DPB_TRY(take(net, net->batch_max * list->model.classes * sample_bytes, &net->prob));
    DPB_TRY(take(net, net->batch_max * sample_bytes, &net->loss));
    return take(net, DPB_ZEROS_BYTES, &net->zeros);
}

static void give(struct sequential *net, void *memory)
{
    dpb_device *device = net->launcher->device;

    if (memory)
        dpb_device_get_ops(device)->free(device, memory);
}

void dpb_sequential_close(dpb_workload *workload)
{
    struct sequential *net = sequential_of(workload);

    if (!net)
        return;
    for (int i = 0; i < net->list->layer_count; i++) {
        give(net, net->output[i]);
        give(net, net->pool_index[i]);
    }
    give(net, net->output_grad[0]);
    give(net, net->output_grad[1]);
    give(net, net->prob);
    give(net, net->loss);
    give(net, net->zeros);
    free(net);
}

dpb_status dpb_sequential_open(const struct dpb_workload_ops *ops,
                               const struct dpb_layer_list *list,
                               const struct dpb_workload_config *config, dpb_workload **workload)
{
    struct sequential *net;
    dpb_status st;

    DPB_TRY(dpb_layer_list_check(list, ops->name));
    if (config->batch_max < 1) {
        dpb_error("workload \"%s\": cannot make room for batches of %lld samples", ops->name,
                  (long long)config->batch_max);
        return DPB_ERR_USAGE;
    }
    net = calloc(1, sizeof(*net));
    if (!net) {
        dpb_error("workload \"%s\": out of memory", ops->name);
        return DPB_ERR_NO_MEMORY;
    }
    net->base.ops = ops;
    net->list = list;
    net->launcher = config->launcher;
    net->batch_max = config->batch_max;
    DPB_TRY_GOTO(st, take_all(net), err_memory);
    *workload = (dpb_workload *)net;
    return DPB_OK;

err_memory:
    dpb_log_hint("activations of %lld samples do not fit: use a smaller batch per rank",
                 (long long)config->batch_max);
    dpb_sequential_close((dpb_workload *)net);
    return st;
}

void dpb_sequential_bind(dpb_workload *workload, float *const *param, float *const *grad)
{
    struct sequential *net = sequential_of(workload);
    size_t bytes = (size_t)net->list->param_count * sizeof(*param);

    memcpy(net->param, param, bytes);
    memcpy(net->grad, grad, bytes);
}

dpb_status dpb_sequential_init_params(dpb_workload *workload, uint64_t seed)
{
    struct sequential *net = sequential_of(workload);

    dpb_layer_list_init_params(net->list, seed, net->param);
    return DPB_OK;
}

int64_t dpb_sequential_activation_bytes(dpb_workload *workload)
{
    return sequential_of(workload)->bytes;
}

dpb_status dpb_batch_check(const struct dpb_workload_ops *ops, const struct dpb_model *model,
                           int64_t batch_max, const struct dpb_batch *batch)
{
    if (batch->samples < 0 || batch->samples > batch_max) {
        dpb_error("workload \"%s\": a batch of %lld samples does not fit, there is room for %lld",
                  ops->name, (long long)batch->samples, (long long)batch_max);
        return DPB_ERR_USAGE;
    }
    for (int64_t i = 0; i < batch->samples; i++) {
        if (batch->label[i] < 0 || batch->label[i] >= model->classes) {
            dpb_error("workload \"%s\": sample %lld has label %ld, but there are %d classes",
                      ops->name, (long long)batch->sample_ids[i], (long)batch->label[i],
                      model->classes);
            return DPB_ERR_USAGE;
        }
    }
    return DPB_OK;
}

/* ---- forward ---- */

static struct dpb_tensor images(const float *data, int64_t samples, const int64_t dim[3])
{
    return dpb_tensor_4d((float *)data, samples, dim[0], dim[1], dim[2]);
}

/* What layer i reads: the batch, or the layer before. */
static const float *input_of(const struct sequential *net, int i, const struct dpb_batch *batch)
{
    return i == 0 ? batch->x : net->output[i - 1];
}

static struct dpb_conv_args conv_args(const struct sequential *net, int i, int64_t samples,
                                      const float *x, const float *w, const float *y)
{
    const struct dpb_layer *layer = &net->list->layer[i];
    const int64_t *dim = net->list->param[layer->weight].dim;

    return (struct dpb_conv_args){.x = images(x, samples, layer->in),
                                  .w = dpb_tensor_4d((float *)w, dim[0], dim[1], dim[2], dim[3]),
                                  .y = images(y, samples, layer->out),
                                  .stride = layer->stride,
                                  .pad = layer->pad};
}

static struct dpb_pool_args pool_args(const struct sequential *net, int i, int64_t samples,
                                      const float *x, const float *y)
{
    const struct dpb_layer *layer = &net->list->layer[i];

    return (struct dpb_pool_args){.x = images(x, samples, layer->in),
                                  .y = images(y, samples, layer->out),
                                  .index = net->pool_index[i],
                                  .kernel = layer->kernel,
                                  .stride = layer->stride,
                                  .pad = layer->pad};
}

static dpb_status layer_forward(struct sequential *net, int i, const struct dpb_batch *batch,
                                bool training)
{
    const struct dpb_layer *layer = &net->list->layer[i];
    const float *x = input_of(net, i, batch);
    float *bias = layer->bias < 0 ? NULL : net->param[layer->bias];

    switch (layer->kind) {
    case DPB_LAYER_CONV2D: {
        struct dpb_conv_args args =
                conv_args(net, i, batch->samples, x, net->param[layer->weight], net->output[i]);

        args.bias = bias;
        args.relu = layer->relu;
        return dpb_launch(net->launcher, layer->op.fwd, DPB_OP_CONV_FWD, &args);
    }
    case DPB_LAYER_MAXPOOL2D: {
        struct dpb_pool_args args = pool_args(net, i, batch->samples, x, net->output[i]);

        if (!training)
            args.index = NULL;
        return dpb_launch(net->launcher, layer->op.fwd, DPB_OP_POOL_MAX_FWD, &args);
    }
    case DPB_LAYER_LINEAR:
        return dpb_linear_forward(net->launcher, layer, batch->samples, x, net->param,
                                  net->output[i]);
    }
    return DPB_ERR_INTERNAL;
}

dpb_status dpb_sequential_forward(dpb_workload *workload, const struct dpb_batch *batch,
                                  bool training, struct dpb_forward_result *result)
{
    struct sequential *net = sequential_of(workload);
    const struct dpb_model *model = &net->list->model;
    const float *logits = net->output[net->list->layer_count - 1];
    struct dpb_forward_result sum = {0};
    struct dpb_softmax_xent_args args;

    DPB_TRY(dpb_batch_check(net->base.ops, model, net->batch_max, batch));
    if (batch->samples == 0) {
        *result = sum;
        return DPB_OK;
    }
    for (int i = 0; i < net->list->layer_count; i++)
        DPB_TRY(layer_forward(net, i, batch, training));
    args = (struct dpb_softmax_xent_args){
            .logits = dpb_tensor_2d((float *)logits, batch->samples, model->classes),
            .prob = dpb_tensor_2d(net->prob, batch->samples, model->classes),
            .label = batch->label,
            .loss = net->loss};
    DPB_TRY(dpb_launch(net->launcher, "loss.fwd", DPB_OP_SOFTMAX_XENT_FWD, &args));

    DPB_TRY(dpb_device_get_ops(net->launcher->device)->stream_sync(net->launcher->stream));
    for (int64_t i = 0; i < batch->samples; i++) {
        sum.loss_sum += (double)net->loss[i];
        sum.correct += dpb_label_wins(logits + i * model->classes, model->classes, batch->label[i]);
    }
    *result = sum;
    return DPB_OK;
}

/* ---- backward ---- */

static dpb_status relu_backward(struct sequential *net, int i, int64_t samples)
{
    const struct dpb_layer *layer = &net->list->layer[i];
    struct dpb_tensor dy = images(net->output_grad[i % 2], samples, layer->out);
    struct dpb_relu_args args = {
            .y = images(net->output[i], samples, layer->out), .dy = dy, .dx = dy};

    return dpb_launch(net->launcher, layer->op.bwd_relu, DPB_OP_RELU_BWD, &args);
}

/* Weights come before data in both: their gradients travel while the rest is computed. */
static dpb_status conv_backward(struct sequential *net, int i, const struct dpb_batch *batch,
                                dpb_grad_ready ready, void *ctx)
{
    const struct dpb_layer *layer = &net->list->layer[i];
    const float *dy = net->output_grad[i % 2];
    struct dpb_conv_args args = conv_args(net, i, batch->samples, input_of(net, i, batch),
                                          net->grad[layer->weight], dy);

    args.bias = layer->bias < 0 ? NULL : net->grad[layer->bias];
    DPB_TRY(dpb_launch(net->launcher, layer->op.bwd_weights, DPB_OP_CONV_BWD_WEIGHTS, &args));
    DPB_TRY(ready(ctx, layer->weight));
    if (layer->bias >= 0)
        DPB_TRY(ready(ctx, layer->bias));
    if (i == 0)
        return DPB_OK;
    args = conv_args(net, i, batch->samples, net->output_grad[(i - 1) % 2],
                     net->param[layer->weight], dy);
    return dpb_launch(net->launcher, layer->op.bwd_data, DPB_OP_CONV_BWD_DATA, &args);
}

static dpb_status pool_backward(struct sequential *net, int i, const struct dpb_batch *batch)
{
    const struct dpb_layer *layer = &net->list->layer[i];
    struct dpb_pool_args args;

    if (i == 0)
        return DPB_OK;
    args = pool_args(net, i, batch->samples, net->output_grad[(i - 1) % 2],
                     net->output_grad[i % 2]);
    return dpb_launch(net->launcher, layer->op.bwd_data, DPB_OP_POOL_MAX_BWD, &args);
}

static dpb_status layer_backward(struct sequential *net, int i, const struct dpb_batch *batch,
                                 dpb_grad_ready ready, void *ctx)
{
    if (net->list->layer[i].relu)
        DPB_TRY(relu_backward(net, i, batch->samples));
    switch (net->list->layer[i].kind) {
    case DPB_LAYER_CONV2D:
        return conv_backward(net, i, batch, ready, ctx);
    case DPB_LAYER_MAXPOOL2D:
        return pool_backward(net, i, batch);
    case DPB_LAYER_LINEAR:
        return dpb_linear_backward(net->launcher, &net->list->layer[i], batch->samples,
                                   input_of(net, i, batch), net->param, net->grad,
                                   net->output_grad[i % 2],
                                   i == 0 ? NULL : net->output_grad[(i - 1) % 2], ready, ctx);
    }
    return DPB_ERR_INTERNAL;
}

dpb_status dpb_sequential_backward(dpb_workload *workload, const struct dpb_batch *batch,
                                   float grad_scale, dpb_grad_ready ready, void *ctx)
{
    struct sequential *net = sequential_of(workload);
    int last = net->list->layer_count - 1;
    int classes = net->list->model.classes;
    struct dpb_softmax_xent_args args;

    if (batch->samples == 0)
        return dpb_gradients_clear(net->launcher, &net->list->model, net->grad, net->zeros, ready,
                                   ctx);
    args = (struct dpb_softmax_xent_args){
            .prob = dpb_tensor_2d(net->prob, batch->samples, classes),
            .dlogits = dpb_tensor_2d(net->output_grad[last % 2], batch->samples, classes),
            .label = batch->label,
            .scale = grad_scale};
    DPB_TRY(dpb_launch(net->launcher, "loss.bwd", DPB_OP_SOFTMAX_XENT_BWD, &args));
    for (int i = last; i >= 0; i--)
        DPB_TRY(layer_backward(net, i, batch, ready, ctx));
    return DPB_OK;
}

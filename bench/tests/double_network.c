#include "double_network.h"

#include "dpb_reference.h"
#include "dpb_test.h"

static struct dpb_tensor tensor(const double *data, int rank, const int64_t *dim)
{
    struct dpb_tensor made = {.data = (double *)data, .dtype = DPB_F64, .rank = rank};

    memcpy(made.dim, dim, (size_t)rank * sizeof(*dim));
    return made;
}

static struct dpb_tensor matrix(const double *data, int64_t rows, int64_t columns)
{
    return tensor(data, 2, (int64_t[]){rows, columns});
}

static struct dpb_tensor images(const double *data, int64_t samples, const int64_t dim[3])
{
    return tensor(data, 4, (int64_t[]){samples, dim[0], dim[1], dim[2]});
}

static double *doubles(int64_t count)
{
    double *made = calloc((size_t)count, sizeof(*made));

    assert_non_null(made);
    return made;
}

static double *doubles_of(const float *from, int64_t count)
{
    double *made = doubles(count);

    for (int64_t i = 0; i < count; i++)
        made[i] = (double)from[i];
    return made;
}

static void run(enum dpb_op op, const void *args)
{
    assert_int_equal(dpb_reference_op(op, args), DPB_OK);
}

void double_network_open(struct double_network *network, const struct dpb_layer_list *list,
                         const struct dpb_batch *batch, float *const *param)
{
    const int64_t *dim = list->model.sample_dim;

    memset(network, 0, sizeof(*network));
    network->list = list;
    network->samples = batch->samples;
    network->label = batch->label;
    network->x = doubles_of(batch->x, batch->samples * dim[0] * dim[1] * dim[2]);
    for (int p = 0; p < list->param_count; p++) {
        network->param[p] = doubles_of(param[p], list->param[p].numel);
        network->grad[p] = doubles(list->param[p].numel);
    }
    for (int i = 0; i < list->layer_count; i++) {
        int64_t elements = batch->samples * list->info[i].out_elements_per_sample;

        network->output[i] = doubles(elements);
        network->output_grad[i] = doubles(elements);
        network->index[i] = calloc((size_t)elements, 1);
        assert_non_null(network->index[i]);
    }
    network->prob = doubles(batch->samples * list->model.classes);
    network->loss = doubles(batch->samples);
}

void double_network_close(struct double_network *network)
{
    free(network->x);
    for (int p = 0; p < network->list->param_count; p++) {
        free(network->param[p]);
        free(network->grad[p]);
    }
    for (int i = 0; i < network->list->layer_count; i++) {
        free(network->output[i]);
        free(network->output_grad[i]);
        free(network->index[i]);
    }
    free(network->prob);
    free(network->loss);
}

static const double *input_of(const struct double_network *network, int i)
{
    return i == 0 ? network->x : network->output[i - 1];
}

static struct dpb_conv_args conv_args(const struct double_network *network, int i, const double *x,
                                      const double *w, const double *y)
{
    const struct dpb_layer *layer = &network->list->layer[i];

    return (struct dpb_conv_args){.x = images(x, network->samples, layer->in),
                                  .w = tensor(w, 4, network->list->param[layer->weight].dim),
                                  .y = images(y, network->samples, layer->out),
                                  .stride = layer->stride,
                                  .pad = layer->pad};
}

static struct dpb_pool_args pool_args(const struct double_network *network, int i, const double *x,
                                      const double *y)
{
    const struct dpb_layer *layer = &network->list->layer[i];

    return (struct dpb_pool_args){.x = images(x, network->samples, layer->in),
                                  .y = images(y, network->samples, layer->out),
                                  .index = network->index[i],
                                  .kernel = layer->kernel,
                                  .stride = layer->stride,
                                  .pad = layer->pad};
}

/* Bias and ReLU by their own operators here: the workload fuses them. */
static void forward_layer(struct double_network *network, int i)
{
    const struct dpb_layer *layer = &network->list->layer[i];
    const double *x = input_of(network, i);
    double *y = network->output[i];
    int64_t channels = layer->out[2];
    int64_t rows = network->samples * layer->out[0] * layer->out[1];
    struct dpb_tensor flat = matrix(y, rows, channels);

    if (layer->kind == DPB_LAYER_CONV2D) {
        struct dpb_conv_args args = conv_args(network, i, x, network->param[layer->weight], y);

        run(DPB_OP_CONV_FWD, &args);
    } else if (layer->kind == DPB_LAYER_MAXPOOL2D) {
        struct dpb_pool_args args = pool_args(network, i, x, y);

        run(DPB_OP_POOL_MAX_FWD, &args);
    } else {
        struct dpb_matmul_args args = {
                .a = matrix(x, rows, layer->in[2]),
                .b = matrix(network->param[layer->weight], channels, layer->in[2]),
                .c = flat,
                .trans_b = true};

        run(DPB_OP_MATMUL, &args);
    }
    if (layer->bias >= 0) {
        struct dpb_bias_args args = {
                .x = flat, .y = flat, .bias = (float *)network->param[layer->bias]};

        run(DPB_OP_BIAS_FWD, &args);
    }
    if (layer->relu) {
        struct dpb_relu_args args = {.x = flat, .y = flat};

        run(DPB_OP_RELU_FWD, &args);
    }
}

double double_network_forward(struct double_network *network, int first)
{
    int last = network->list->layer_count - 1, classes = network->list->model.classes;
    struct dpb_softmax_xent_args args = {
            .logits = matrix(network->output[last], network->samples, classes),
            .prob = matrix(network->prob, network->samples, classes),
            .label = network->label,
            .loss = (float *)network->loss};
    double sum = 0.0;

    for (int i = first; i <= last; i++)
        forward_layer(network, i);
    run(DPB_OP_SOFTMAX_XENT_FWD, &args);
    for (int64_t i = 0; i < network->samples; i++)
        sum += network->loss[i];
    return sum;
}

static void backward_layer(struct double_network *network, int i)
{
    const struct dpb_layer *layer = &network->list->layer[i];
    const double *x = input_of(network, i), *dy = network->output_grad[i];
    const double *dx = i == 0 ? NULL : network->output_grad[i - 1];
    int64_t channels = layer->out[2];
    int64_t rows = network->samples * layer->out[0] * layer->out[1];
    struct dpb_tensor flat = matrix(dy, rows, channels);

    if (layer->relu) {
        struct dpb_relu_args args = {
                .y = matrix(network->output[i], rows, channels), .dy = flat, .dx = flat};

        run(DPB_OP_RELU_BWD, &args);
    }
    if (layer->bias >= 0) {
        struct dpb_bias_args args = {.y = flat, .bias = (float *)network->grad[layer->bias]};

        run(DPB_OP_BIAS_BWD, &args);
    }
    if (layer->kind == DPB_LAYER_CONV2D) {
        struct dpb_conv_args args = conv_args(network, i, x, network->grad[layer->weight], dy);

        run(DPB_OP_CONV_BWD_WEIGHTS, &args);
        if (dx) {
            args = conv_args(network, i, dx, network->param[layer->weight], dy);
            run(DPB_OP_CONV_BWD_DATA, &args);
        }
    } else if (layer->kind == DPB_LAYER_MAXPOOL2D) {
        struct dpb_pool_args args = pool_args(network, i, dx, dy);

        run(DPB_OP_POOL_MAX_BWD, &args);
    } else {
        struct dpb_matmul_args args = {
                .a = flat,
                .b = matrix(x, rows, layer->in[2]),
                .c = matrix(network->grad[layer->weight], channels, layer->in[2]),
                .trans_a = true};

        run(DPB_OP_MATMUL, &args);
        if (dx) {
            args = (struct dpb_matmul_args){
                    .a = flat,
                    .b = matrix(network->param[layer->weight], channels, layer->in[2]),
                    .c = matrix(dx, rows, layer->in[2])};
            run(DPB_OP_MATMUL, &args);
        }
    }
}

void double_network_backward(struct double_network *network, double scale)
{
    int last = network->list->layer_count - 1, classes = network->list->model.classes;
    struct dpb_softmax_xent_args args = {
            .prob = matrix(network->prob, network->samples, classes),
            .dlogits = matrix(network->output_grad[last], network->samples, classes),
            .label = network->label,
            .scale = (float)scale};

    run(DPB_OP_SOFTMAX_XENT_BWD, &args);
    for (int i = last; i >= 0; i--)
        backward_layer(network, i);
}

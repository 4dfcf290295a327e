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
        network->statistics[i] = doubles(4 * list->layer[i].out[2]);
        for (int64_t c = 0; c < list->layer[i].out[2]; c++)
            network->statistics[i][list->layer[i].out[2] + c] = 1.0;
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
        free(network->statistics[i]);
    }
    free(network->prob);
    free(network->loss);
}

static const double *input_of(const struct double_network *network, int i, int k)
{
    int from = network->list->layer[i].input[k];

    return from == DPB_LAYER_IMAGES ? network->x : network->output[from];
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

static struct dpb_batchnorm_args batchnorm_args(const struct double_network *network, int i)
{
    const struct dpb_layer *layer = &network->list->layer[i];
    double *statistics = network->statistics[i];
    int64_t channels = layer->out[2];

    return (struct dpb_batchnorm_args){
            .x = images(input_of(network, i, 0), network->samples, layer->in),
            .gamma = (float *)network->param[layer->weight],
            .beta = (float *)network->param[layer->bias],
            .running_mean = (float *)statistics,
            .running_var = (float *)(statistics + channels),
            .save_mean = (float *)(statistics + 2 * channels),
            .save_var = (float *)(statistics + 3 * channels),
            .eps = 1e-5f,
            .momentum = 0.1f,
            .training = !network->inference};
}

/* Calls `visit` for each pair of an input and an output element that an adaptive pool or a shortcut
 * connects, with the share of the one in the other. */
typedef void (*visit_share)(double *out, double *in, double share);

static void pull(double *y, double *x, double share)
{
    *y += share * *x;
}

static void push(double *dy, double *dx, double share)
{
    *dx += share * *dy;
}

static int64_t window_end(int64_t o, int64_t in, int64_t out)
{
    return ((o + 1) * in + out - 1) / out;
}

static void visit_window(const struct dpb_layer *layer, double *x, double *y, int64_t oh,
                         int64_t ow, visit_share visit)
{
    int64_t h0 = oh * layer->in[0] / layer->out[0], w0 = ow * layer->in[1] / layer->out[1];
    int64_t h1 = window_end(oh, layer->in[0], layer->out[0]);
    int64_t w1 = window_end(ow, layer->in[1], layer->out[1]);
    int64_t channels = layer->in[2], before = (layer->out[2] - channels) / 2;

    if (layer->kind == DPB_LAYER_SHORTCUT) {
        h0 = oh * layer->stride;
        w0 = ow * layer->stride;
        h1 = h0 + 1;
        w1 = w0 + 1;
    }
    for (int64_t h = h0; h < h1; h++) {
        for (int64_t w = w0; w < w1; w++) {
            for (int64_t c = 0; c < channels; c++)
                visit(&y[(oh * layer->out[1] + ow) * layer->out[2] + before + c],
                      &x[(h * layer->in[1] + w) * channels + c],
                      1.0 / (double)((h1 - h0) * (w1 - w0)));
        }
    }
}

static void visit_shares(const struct double_network *network, int i, const double *x, double *y,
                         visit_share visit)
{
    const struct dpb_layer *layer = &network->list->layer[i];
    int64_t in = layer->in[0] * layer->in[1] * layer->in[2];
    int64_t out = network->list->info[i].out_elements_per_sample;

    for (int64_t n = 0; n < network->samples; n++) {
        for (int64_t oh = 0; oh < layer->out[0]; oh++) {
            for (int64_t ow = 0; ow < layer->out[1]; ow++)
                visit_window(layer, (double *)x + n * in, y + n * out, oh, ow, visit);
        }
    }
}

/* Bias and ReLU by their own operators here: the workload fuses them. */
static void forward_layer(struct double_network *network, int i)
{
    const struct dpb_layer *layer = &network->list->layer[i];
    const double *x = input_of(network, i, 0);
    double *y = network->output[i];
    int64_t channels = layer->out[2];
    int64_t rows = network->samples * layer->out[0] * layer->out[1];
    struct dpb_tensor flat = matrix(y, rows, channels);

    switch (layer->kind) {
    case DPB_LAYER_CONV2D: {
        struct dpb_conv_args args = conv_args(network, i, x, network->param[layer->weight], y);

        run(DPB_OP_CONV_FWD, &args);
        break;
    }
    case DPB_LAYER_BATCHNORM2D: {
        struct dpb_batchnorm_args args = batchnorm_args(network, i);

        args.y = images(y, network->samples, layer->out);
        run(DPB_OP_BATCHNORM_FWD, &args);
        break;
    }
    case DPB_LAYER_MAXPOOL2D:
    case DPB_LAYER_AVGPOOL2D: {
        struct dpb_pool_args args = pool_args(network, i, x, y);

        run(layer->kind == DPB_LAYER_MAXPOOL2D ? DPB_OP_POOL_MAX_FWD : DPB_OP_POOL_AVG_FWD, &args);
        break;
    }
    case DPB_LAYER_LINEAR: {
        struct dpb_matmul_args args = {
                .a = matrix(x, rows, layer->in[2]),
                .b = matrix(network->param[layer->weight], channels, layer->in[2]),
                .c = flat,
                .trans_b = true};

        run(DPB_OP_MATMUL, &args);
        break;
    }
    case DPB_LAYER_ADD:
        for (int64_t e = 0; e < rows * channels; e++)
            y[e] = x[e] + input_of(network, i, 1)[e];
        break;
    case DPB_LAYER_ADAPTIVEPOOL2D:
    case DPB_LAYER_SHORTCUT:
        memset(y, 0, (size_t)(rows * channels) * sizeof(*y));
        visit_shares(network, i, x, y, pull);
        break;
    }
    if (layer->bias >= 0 && layer->kind != DPB_LAYER_BATCHNORM2D) {
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

/* dx: the gradient with respect to the layer's input, overwritten; not for sums. */
static void backward_kind(struct double_network *network, int i, double *dx)
{
    const struct dpb_layer *layer = &network->list->layer[i];
    const double *x = input_of(network, i, 0);
    double *dy = network->output_grad[i];
    int64_t channels = layer->out[2];
    int64_t rows = network->samples * layer->out[0] * layer->out[1];
    struct dpb_tensor flat = matrix(dy, rows, channels);

    switch (layer->kind) {
    case DPB_LAYER_CONV2D: {
        struct dpb_conv_args args = conv_args(network, i, x, network->grad[layer->weight], dy);

        run(DPB_OP_CONV_BWD_WEIGHTS, &args);
        args = conv_args(network, i, dx, network->param[layer->weight], dy);
        run(DPB_OP_CONV_BWD_DATA, &args);
        break;
    }
    case DPB_LAYER_BATCHNORM2D: {
        struct dpb_batchnorm_args args = batchnorm_args(network, i);

        args.dy = images(dy, network->samples, layer->out);
        args.dx = images(dx, network->samples, layer->in);
        args.dgamma = (float *)network->grad[layer->weight];
        args.dbeta = (float *)network->grad[layer->bias];
        run(DPB_OP_BATCHNORM_BWD, &args);
        break;
    }
    case DPB_LAYER_MAXPOOL2D:
    case DPB_LAYER_AVGPOOL2D: {
        struct dpb_pool_args args = pool_args(network, i, dx, dy);

        run(layer->kind == DPB_LAYER_MAXPOOL2D ? DPB_OP_POOL_MAX_BWD : DPB_OP_POOL_AVG_BWD, &args);
        break;
    }
    case DPB_LAYER_LINEAR: {
        struct dpb_matmul_args args = {
                .a = flat,
                .b = matrix(x, rows, layer->in[2]),
                .c = matrix(network->grad[layer->weight], channels, layer->in[2]),
                .trans_a = true};

        run(DPB_OP_MATMUL, &args);
        args = (struct dpb_matmul_args){
                .a = flat,
                .b = matrix(network->param[layer->weight], channels, layer->in[2]),
                .c = matrix(dx, rows, layer->in[2])};
        run(DPB_OP_MATMUL, &args);
        break;
    }
    case DPB_LAYER_ADAPTIVEPOOL2D:
    case DPB_LAYER_SHORTCUT:
        visit_shares(network, i, dx, dy, push);
        break;
    case DPB_LAYER_ADD:
        break;
    }
}

/* Every layer adds its share to its inputs' gradients. */
static void backward_layer(struct double_network *network, int i)
{
    const struct dpb_layer *layer = &network->list->layer[i];
    int64_t in = network->samples * layer->in[0] * layer->in[1] * layer->in[2];
    int64_t rows = network->samples * layer->out[0] * layer->out[1];
    struct dpb_tensor flat = matrix(network->output_grad[i], rows, layer->out[2]);
    double *dx = doubles(in);

    if (layer->relu) {
        struct dpb_relu_args args = {
                .y = matrix(network->output[i], rows, layer->out[2]), .dy = flat, .dx = flat};

        run(DPB_OP_RELU_BWD, &args);
    }
    if (layer->bias >= 0 && layer->kind != DPB_LAYER_BATCHNORM2D) {
        struct dpb_bias_args args = {.y = flat, .bias = (float *)network->grad[layer->bias]};

        run(DPB_OP_BIAS_BWD, &args);
    }
    backward_kind(network, i, dx);
    for (int k = 0; k < layer->input_count; k++) {
        const double *share = layer->kind == DPB_LAYER_ADD ? network->output_grad[i] : dx;

        for (int64_t e = 0; layer->input[k] >= 0 && e < in; e++)
            network->output_grad[layer->input[k]][e] += share[e];
    }
    free(dx);
}

void double_network_backward(struct double_network *network, double scale)
{
    int last = network->list->layer_count - 1, classes = network->list->model.classes;
    struct dpb_softmax_xent_args args = {
            .prob = matrix(network->prob, network->samples, classes),
            .dlogits = matrix(network->output_grad[last], network->samples, classes),
            .label = network->label,
            .scale = (float)scale};

    for (int i = 0; i < last; i++)
        memset(network->output_grad[i], 0,
               (size_t)(network->samples * network->list->info[i].out_elements_per_sample) *
                       sizeof(double));
    run(DPB_OP_SOFTMAX_XENT_BWD, &args);
    for (int i = last; i >= 0; i--)
        backward_layer(network, i);
}

#include "layer_list.h"

#include <stdio.h>
#include <string.h>

#include "dpb_log.h"

static const char *const kind_text[] = {
        [DPB_LAYER_CONV2D] = "conv2d",
        [DPB_LAYER_BATCHNORM2D] = "batchnorm2d",
        [DPB_LAYER_MAXPOOL2D] = "maxpool2d",
        [DPB_LAYER_AVGPOOL2D] = "avgpool2d",
        [DPB_LAYER_ADAPTIVEPOOL2D] = "adaptivepool2d",
        [DPB_LAYER_LINEAR] = "linear",
        [DPB_LAYER_ADD] = "add",
        [DPB_LAYER_SHORTCUT] = "shortcut",
};

static void join_name(struct dpb_layer_list *list, char name[DPB_LAYER_OP_NAME_BYTES],
                      const char *layer, const char *suffix)
{
    int length = snprintf(name, DPB_LAYER_OP_NAME_BYTES, "%s.%s", layer, suffix);

    if (length < 0 || length >= DPB_LAYER_OP_NAME_BYTES)
        list->damaged = true;
}

static int add_param(struct dpb_layer_list *list, const char *layer, const char *suffix, int rank,
                     const int64_t *dim)
{
    int index = list->param_count;
    struct dpb_param_info *param;

    if (index == DPB_LAYER_PARAMS_MAX) {
        list->damaged = true;
        return -1;
    }
    list->param_count++;
    join_name(list, list->param_name[index], layer, suffix);
    param = &list->param[index];
    *param = (struct dpb_param_info){.name = list->param_name[index],
                                     .dtype = DPB_F32,
                                     .rank = rank,
                                     .numel = 1,
                                     .layer = list->layer_count - 1};
    for (int i = 0; i < rank; i++) {
        param->dim[i] = dim[i];
        param->numel *= dim[i];
    }
    return index;
}

/* The layer's place, with what all kinds share filled in; the next layer reads its output. */
static struct dpb_layer *add_layer(struct dpb_layer_list *list, enum dpb_layer_kind kind,
                                   const char *name, const int64_t in[3], const int64_t out[3],
                                   int64_t macs)
{
    struct dpb_layer *layer;
    int index = list->layer_count;

    if (index == DPB_LAYERS_MAX || strlen(name) >= DPB_LAYER_NAME_BYTES || out[0] < 1 ||
        out[1] < 1 || out[2] < 1) {
        list->damaged = true;
        return NULL;
    }
    list->layer_count++;
    layer = &list->layer[index];
    *layer = (struct dpb_layer){
            .kind = kind, .input_count = 1, .input = {list->at}, .weight = -1, .bias = -1};
    strcpy(layer->name, name);
    memcpy(layer->in, in, sizeof(layer->in));
    memcpy(layer->out, out, sizeof(layer->out));
    list->at = index;
    memcpy(list->shape, out, sizeof(list->shape));
    join_name(list, layer->op.cast, name, "cast");
    join_name(list, layer->op.fwd, name, "fwd");
    join_name(list, layer->op.bwd_relu, name, "bwd-relu");
    join_name(list, layer->op.bwd_bias, name, "bwd-bias");
    join_name(list, layer->op.bwd_weights, name, "bwd-weights");
    join_name(list, layer->op.bwd_data, name, "bwd-data");
    join_name(list, layer->op.bwd_sum, name, "bwd-sum");
    list->info[index] =
            (struct dpb_layer_info){.name = layer->name,
                                    .kind = kind_text[kind],
                                    .fwd_macs_per_sample = macs,
                                    .out_elements_per_sample = out[0] * out[1] * out[2]};
    return layer;
}

/* Output length of a window along one dimension; 0 when the window does not fit. */
static int64_t window_count(int64_t length, int kernel, int stride, int pad)
{
    int64_t room = length + 2 * (int64_t)pad - kernel;

    return room < 0 ? 0 : room / stride + 1;
}

void dpb_layer_list_begin(struct dpb_layer_list *list, int64_t height, int64_t width,
                          int64_t channels)
{
    memset(list, 0, sizeof(*list));
    list->at = DPB_LAYER_IMAGES;
    list->shape[0] = height;
    list->shape[1] = width;
    list->shape[2] = channels;
    memcpy(list->model.sample_dim, list->shape, sizeof(list->shape));
}

int dpb_layer_list_last(const struct dpb_layer_list *list)
{
    return list->layer_count == 0 ? DPB_LAYER_IMAGES : list->layer_count - 1;
}

/* Height, width and channels of what a layer gives; of the images. */
static const int64_t *shape_of(const struct dpb_layer_list *list, int index)
{
    return index == DPB_LAYER_IMAGES ? list->model.sample_dim : list->layer[index].out;
}

void dpb_layer_list_from(struct dpb_layer_list *list, int index)
{
    if (index < DPB_LAYER_IMAGES || index >= list->layer_count) {
        list->damaged = true;
        return;
    }
    list->at = index;
    memcpy(list->shape, shape_of(list, index), sizeof(list->shape));
}

void dpb_layer_list_conv2d(struct dpb_layer_list *list, const char *name, int64_t out_channels,
                           int kernel, int stride, int pad, bool bias, bool relu)
{
    int64_t in[3] = {list->shape[0], list->shape[1], list->shape[2]};
    int64_t out[3] = {window_count(in[0], kernel, stride, pad),
                      window_count(in[1], kernel, stride, pad), out_channels};
    int64_t dim[4] = {out_channels, in[2], kernel, kernel};
    int64_t macs = in[2] * kernel * kernel * out[0] * out[1] * out[2];
    struct dpb_layer *layer = add_layer(list, DPB_LAYER_CONV2D, name, in, out, macs);

    if (!layer)
        return;
    layer->kernel = kernel;
    layer->stride = stride;
    layer->pad = pad;
    layer->relu = relu;
    layer->weight = add_param(list, name, "weight", 4, dim);
    if (bias)
        layer->bias = add_param(list, name, "bias", 1, dim);
}

void dpb_layer_list_batchnorm2d(struct dpb_layer_list *list, const char *name, bool relu)
{
    int64_t dim[3] = {list->shape[0], list->shape[1], list->shape[2]};
    struct dpb_layer *layer = add_layer(list, DPB_LAYER_BATCHNORM2D, name, dim, dim, 0);

    if (!layer)
        return;
    if (layer->input[0] == DPB_LAYER_IMAGES) /* its backward operator always makes dx */
        list->damaged = true;
    layer->relu = relu;
    join_name(list, layer->op.fwd_stats, name, "fwd-stats");
    join_name(list, layer->op.fwd_gather, name, "fwd-gather");
    join_name(list, layer->op.bwd_sums, name, "bwd-sums");
    join_name(list, layer->op.bwd_gather, name, "bwd-gather");
    join_name(list, layer->running_mean, name, "running_mean");
    join_name(list, layer->running_var, name, "running_var");
    list->buffer_numel[list->model.buffer_count++] = dim[2];
    list->buffer_numel[list->model.buffer_count++] = dim[2];
    layer->weight = add_param(list, name, "weight", 1, &dim[2]);
    layer->bias = add_param(list, name, "bias", 1, &dim[2]);
}

static void add_pool(struct dpb_layer_list *list, enum dpb_layer_kind kind, const char *name,
                     int kernel, int stride, int pad)
{
    int64_t in[3] = {list->shape[0], list->shape[1], list->shape[2]};
    int64_t out[3] = {window_count(in[0], kernel, stride, pad),
                      window_count(in[1], kernel, stride, pad), in[2]};
    struct dpb_layer *layer = add_layer(list, kind, name, in, out, 0);

    if (!layer)
        return;
    layer->kernel = kernel;
    layer->stride = stride;
    layer->pad = pad;
}

void dpb_layer_list_maxpool2d(struct dpb_layer_list *list, const char *name, int kernel, int stride,
                              int pad)
{
    add_pool(list, DPB_LAYER_MAXPOOL2D, name, kernel, stride, pad);
}

void dpb_layer_list_avgpool2d(struct dpb_layer_list *list, const char *name)
{
    if (list->shape[0] != list->shape[1])
        list->damaged = true;
    add_pool(list, DPB_LAYER_AVGPOOL2D, name, (int)list->shape[0], 1, 0);
}

void dpb_layer_list_adaptivepool2d(struct dpb_layer_list *list, const char *name, int64_t size)
{
    int64_t in[3] = {list->shape[0], list->shape[1], list->shape[2]};
    int64_t out[3] = {size, size, in[2]};

    if (in[0] != size || in[1] != size)
        add_layer(list, DPB_LAYER_ADAPTIVEPOOL2D, name, in, out, 0);
}

void dpb_layer_list_linear(struct dpb_layer_list *list, const char *name, int64_t out_features,
                           bool relu)
{
    int64_t in[3] = {1, 1, list->shape[0] * list->shape[1] * list->shape[2]};
    int64_t out[3] = {1, 1, out_features};
    int64_t dim[2] = {out_features, in[2]};
    struct dpb_layer *layer =
            add_layer(list, DPB_LAYER_LINEAR, name, in, out, in[2] * out_features);

    if (!layer)
        return;
    layer->relu = relu;
    layer->weight = add_param(list, name, "weight", 2, dim);
    layer->bias = add_param(list, name, "bias", 1, dim);
}

void dpb_layer_list_add(struct dpb_layer_list *list, const char *name, int other, bool relu)
{
    int64_t dim[3] = {list->shape[0], list->shape[1], list->shape[2]};
    struct dpb_layer *layer;

    if (other < 0 || other >= list->layer_count || other == list->at ||
        memcmp(list->layer[other].out, dim, sizeof(dim)) != 0) {
        list->damaged = true;
        return;
    }
    layer = add_layer(list, DPB_LAYER_ADD, name, dim, dim, 0);
    if (!layer)
        return;
    layer->input_count = 2;
    layer->input[1] = other;
    layer->relu = relu;
}

void dpb_layer_list_shortcut(struct dpb_layer_list *list, const char *name, int64_t out_channels,
                             int stride)
{
    int64_t in[3] = {list->shape[0], list->shape[1], list->shape[2]};
    int64_t out[3] = {window_count(in[0], 1, stride, 0), window_count(in[1], 1, stride, 0),
                      out_channels};
    struct dpb_layer *layer = add_layer(list, DPB_LAYER_SHORTCUT, name, in, out, 0);

    if (!layer)
        return;
    if (out_channels < in[2])
        list->damaged = true;
    layer->kernel = 1;
    layer->stride = stride;
}

/* Does the last layer's loss depend on every layer? A gradient would be missing otherwise. */
static bool all_are_read(const struct dpb_layer_list *list)
{
    bool read[DPB_LAYERS_MAX] = {false};

    for (int i = list->layer_count - 1; i >= 0; i--) {
        const struct dpb_layer *layer = &list->layer[i];

        if (i < list->layer_count - 1 && !read[i])
            return false;
        for (int k = 0; k < layer->input_count; k++) {
            if (layer->input[k] >= 0)
                read[layer->input[k]] = true;
        }
    }
    return true;
}

void dpb_layer_list_finish(struct dpb_layer_list *list)
{
    int ready = 0;

    for (int i = list->layer_count - 1; i >= 0; i--) {
        const struct dpb_layer *layer = &list->layer[i];
        bool bias_first = layer->kind == DPB_LAYER_LINEAR;
        int first = bias_first ? layer->bias : layer->weight;
        int second = bias_first ? layer->weight : layer->bias;

        if (first >= 0)
            list->ready_order[ready++] = first;
        if (second >= 0)
            list->ready_order[ready++] = second;
    }
    if (!all_are_read(list))
        list->damaged = true;
    list->model.params = list->param;
    list->model.param_count = list->param_count;
    list->model.layers = list->info;
    list->model.layer_count = list->layer_count;
    list->model.ready_order = list->ready_order;
    list->model.buffer_numel = list->buffer_numel;
    list->model.classes = (int)(list->shape[0] * list->shape[1] * list->shape[2]);
}

dpb_status dpb_layer_list_check(const struct dpb_layer_list *list, const char *workload)
{
    if (!list->damaged && list->layer_count > 0)
        return DPB_OK;
    dpb_error("workload \"%s\": its layers do not fit together or not into a list of %d layers "
              "and %d parameters",
              workload, DPB_LAYERS_MAX, DPB_LAYER_PARAMS_MAX);
    dpb_log_hint("this is a mistake in the program: see bench/workloads/layer_list.h");
    return DPB_ERR_INTERNAL;
}

/* The memory of a network: everything lies in one block. */
#include "network_private.h"

#include <stdlib.h>

#include "dpb_log.h"
#include "network.h"
#include "workload_parts.h"

#define PLACE_ALIGN 64 /* a cache line, as the device aligns what it allocates */

/* With no block yet, only its size is counted. */
struct block {
    char *start;
    int64_t bytes;
};

static void *place(struct block *block, int64_t bytes)
{
    void *at = block->start ? block->start + block->bytes : NULL;

    block->bytes += (bytes + PLACE_ALIGN - 1) / PLACE_ALIGN * PLACE_ALIGN;
    return at;
}

static float *place_floats(struct block *block, int64_t count)
{
    return place(block, count * (int64_t)sizeof(float));
}

static void *place_values(const struct network *net, struct block *block, int64_t count)
{
    return place(block, count * (int64_t)dpb_dtype_bytes(net->precision));
}

/* Of what does not learn: a shortcut's weights, an adaptive pool's shares. */
static int64_t fixed_elements(const struct dpb_layer *layer)
{
    switch (layer->kind) {
    case DPB_LAYER_SHORTCUT:
        return layer->out[2] * layer->in[2];
    case DPB_LAYER_ADAPTIVEPOOL2D:
        return layer->out[0] * layer->out[1] * layer->in[0] * layer->in[1];
    default:
        return 0;
    }
}

static void place_extra(struct network *net, int i, struct block *block)
{
    const struct dpb_layer *layer = &net->list->layer[i];
    struct network_extra *extra = &net->extra[i];

    switch (layer->kind) {
    case DPB_LAYER_MAXPOOL2D:
        extra->pool_index =
                place(block, net->batch_max * net->list->info[i].out_elements_per_sample);
        break;
    case DPB_LAYER_BATCHNORM2D:
        extra->running = place_floats(block, 2 * layer->out[2]);
        extra->saved = place_floats(block, 2 * layer->out[2]);
        if (dpb_network_batchnorm_has_relu(net->list, i))
            extra->mask = place(block, net->batch_max * net->list->info[i].out_elements_per_sample);
        break;
    default:
        break;
    }
    extra->fixed_fp32 = place_floats(block, fixed_elements(layer));
    extra->fixed = extra->fixed_fp32;
}

/* Copies in the precision, of weights, the batch and fixed values; and fp32 ones for the loss. */
static void place_copies(struct network *net, struct block *block)
{
    const struct dpb_layer_list *list = net->list;
    const int64_t *dim = list->model.sample_dim;
    int64_t logits = net->batch_max * list->model.classes;

    net->images = place_values(net, block, net->batch_max * dim[0] * dim[1] * dim[2]);
    for (int i = 0; i < list->layer_count; i++) {
        int weight = list->layer[i].weight;

        if (weight >= 0 && list->layer[i].kind != DPB_LAYER_BATCHNORM2D)
            net->weight[weight] = place_values(net, block, list->param[weight].numel);
        if (fixed_elements(&list->layer[i]) > 0)
            net->extra[i].fixed = place_values(net, block, fixed_elements(&list->layer[i]));
    }
    net->logits = place_floats(block, logits);
    net->dlogits = place_floats(block, logits);
}

static void place_all(struct network *net, struct block *block)
{
    const struct dpb_layer_list *list = net->list;
    int last = list->layer_count - 1;

    for (int b = 0; b < net->plan.buffer_count; b++)
        net->buffer[b] = place_values(net, block, net->batch_max * net->plan.buffer_elements[b]);
    for (int i = 0; i <= last; i++) {
        int buffer = net->plan.layer[i].output;
        int64_t elements = net->batch_max * list->info[i].out_elements_per_sample;

        if (dpb_network_sum_of(list, i) < 0)
            net->output[i] = buffer >= 0 ? net->buffer[buffer] : place_values(net, block, elements);
        place_extra(net, i, block);
    }
    if (net->precision != DPB_F32) {
        place_copies(net, block);
    } else {
        net->logits = net->output[last];
        net->dlogits = net->buffer[net->plan.layer[last].grad];
    }
    net->prob = place_floats(block, net->batch_max * list->model.classes);
    net->loss = place_floats(block, net->batch_max);
    net->zeros = place(block, DPB_ZEROS_BYTES);
    if (net->sync)
        net->sums = place_floats(block, dpb_network_batchnorm_sums(list));
}

/* Output channel o is input channel o - before. */
static void fill_shortcut(const struct dpb_layer *layer, float *weights)
{
    int64_t in = layer->in[2], before = (layer->out[2] - in) / 2;

    for (int64_t c = 0; c < in; c++)
        weights[(before + c) * in + c] = 1.0f;
}

/* Along one dimension, output pixel o averages input pixels floor(o in / out) to, and not with,
 * ceil((o + 1) in / out). */
static double adaptive_share(int64_t in, int64_t out, int64_t o, int64_t i)
{
    int64_t begin = o * in / out, end = ((o + 1) * in + out - 1) / out;

    return i < begin || i >= end ? 0.0 : 1.0 / (double)(end - begin);
}

static void fill_adaptive(const struct dpb_layer *layer, float *shares)
{
    const int64_t *in = layer->in, *out = layer->out;

    for (int64_t o = 0; o < out[0] * out[1]; o++) {
        for (int64_t i = 0; i < in[0] * in[1]; i++)
            *shares++ = (float)(adaptive_share(in[0], out[0], o / out[1], i / in[1]) *
                                adaptive_share(in[1], out[1], o % out[1], i % in[1]));
    }
}

/* Rounded into the copy that operators read, where there is one. */
static dpb_status cast_fixed(struct network *net, int i)
{
    const struct network_extra *extra = &net->extra[i];
    int64_t count = fixed_elements(&net->list->layer[i]);
    struct dpb_cast_args args = {.from = dpb_tensor_1d(extra->fixed_fp32, count),
                                 .to = dpb_tensor_1d(extra->fixed, count)};

    if (count == 0 || net->precision == DPB_F32)
        return DPB_OK;
    args.to.dtype = net->precision;
    return dpb_op_launch(net->launcher->device, DPB_OP_CAST, &args, net->launcher->stream);
}

/* Made in memory of the host's, which open() and the start of parameters can afford. */
static dpb_status fill_fixed_of(struct network *net, int i)
{
    const struct dpb_layer *layer = &net->list->layer[i];
    const size_t bytes = (size_t)fixed_elements(layer) * sizeof(float);
    float *made = bytes > 0 ? calloc(1, bytes) : NULL;
    dpb_status st;

    if (bytes == 0)
        return DPB_OK;
    if (!made) {
        dpb_error("workload \"%s\": out of memory", net->base.ops->name);
        return DPB_ERR_NO_MEMORY;
    }
    if (layer->kind == DPB_LAYER_SHORTCUT)
        fill_shortcut(layer, made);
    else
        fill_adaptive(layer, made);
    st = dpb_hand_down(net->launcher, net->extra[i].fixed_fp32, made, bytes);
    free(made);
    return st < 0 ? st : cast_fixed(net, i);
}

static dpb_status fill_fixed(struct network *net)
{
    for (int i = 0; i < net->list->layer_count; i++)
        DPB_TRY(fill_fixed_of(net, i));
    return DPB_OK;
}

static dpb_status reset_statistics_of(struct network *net, int i)
{
    const int64_t channels = net->list->layer[i].out[2];
    const size_t bytes = 2 * (size_t)channels * sizeof(float);
    float *made = calloc(1, bytes);
    dpb_status st;

    if (!made) {
        dpb_error("workload \"%s\": out of memory", net->base.ops->name);
        return DPB_ERR_NO_MEMORY;
    }
    for (int64_t c = 0; c < channels; c++)
        made[channels + c] = 1.0f;
    st = dpb_hand_down(net->launcher, net->extra[i].running, made, bytes);
    free(made);
    return st;
}

dpb_status dpb_network_reset_statistics(struct network *net)
{
    for (int i = 0; i < net->list->layer_count; i++)
        if (net->extra[i].running)
            DPB_TRY(reset_statistics_of(net, i));
    return DPB_OK;
}

dpb_status dpb_network_memory_open(struct network *net)
{
    dpb_device *device = net->launcher->device;
    struct block block = {0};
    dpb_status st;

    place_all(net, &block);
    net->bytes = block.bytes;
    st = dpb_device_get_ops(device)->alloc(device, (size_t)net->bytes, &net->memory);
    if (st != DPB_OK) {
        dpb_log_hint("activations of %lld samples do not fit: use a smaller batch per rank",
                     (long long)net->batch_max);
        return st;
    }
    block = (struct block){.start = net->memory};
    place_all(net, &block);
    DPB_TRY(dpb_network_reset_statistics(net));
    return fill_fixed(net);
}

int64_t dpb_network_exchange_bytes(const struct dpb_layer_list *list, int ranks)
{
    return dpb_network_batchnorm_parts(list, ranks) * (int64_t)sizeof(float);
}

int64_t dpb_network_activation_bytes_for(const struct dpb_layer_list *list,
                                         const struct dpb_workload_sizes *sizes)
{
    static const struct dpb_rank_services some;
    bool sync = sizes->sync_batch_statistics && sizes->ranks > 1 &&
                dpb_network_batchnorm_sums(list) > 0;
    struct network net = {.list = list,
                          .batch_max = sizes->batch_max,
                          .precision = sizes->precision,
                          .sync = sync ? &some : NULL};
    struct block block = {0};

    if (dpb_network_plan_make(list, &net.plan) == DPB_OK)
        place_all(&net, &block);
    return block.bytes + (sync ? dpb_network_exchange_bytes(list, sizes->ranks) : 0);
}

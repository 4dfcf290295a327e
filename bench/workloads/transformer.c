#include "transformer_private.h"

#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"
#include "handover.h"
#include "workload_parts.h"

#define ALIGNMENT_BYTES 64

/* ---- memory: one allocation, cut by one function that also says how much it is ---- */

struct layout {
    char *memory; /* NULL: only measure */
    int64_t bytes;
    enum dpb_dtype precision;
};

static void *cut(struct layout *layout, int64_t bytes)
{
    char *piece = layout->memory ? layout->memory + layout->bytes : NULL;

    layout->bytes += (bytes + ALIGNMENT_BYTES - 1) / ALIGNMENT_BYTES * ALIGNMENT_BYTES;
    return piece;
}

static float *floats(struct layout *layout, int64_t count)
{
    return cut(layout, count * (int64_t)sizeof(float));
}

/* in the network's precision */
static void *values(struct layout *layout, int64_t count)
{
    return cut(layout, count * (int64_t)dpb_dtype_bytes(layout->precision));
}

static int32_t *ints(struct layout *layout, int64_t count)
{
    return cut(layout, count * (int64_t)sizeof(int32_t));
}

/* Of logits, for matrix products. */
static void *gradient_of(struct layout *layout, float *logits, int64_t count)
{
    return layout->precision == DPB_F32 ? logits : values(layout, count);
}

static void lay_out_norm(struct layout *layout, int64_t rows, int64_t hidden,
                         struct dpb_transformer_norm *norm)
{
    norm->y = values(layout, rows * hidden);
    norm->mean = floats(layout, rows);
    norm->rstd = floats(layout, rows);
}

static void lay_out_block(struct layout *layout, const struct dpb_transformer_shape *shape,
                          int64_t samples, struct dpb_transformer_block_values *kept)
{
    int64_t rows = samples * shape->sequence, hidden = shape->hidden;
    /* BERT: three planes; GPT-2: columns of one matrix */
    int64_t apart = (shape->family == DPB_TRANSFORMER_BERT ? rows * hidden : hidden) *
                    (int64_t)dpb_dtype_bytes(layout->precision);

    kept->query = values(layout, rows * 3 * hidden);
    if (layout->memory) {
        kept->key = (char *)kept->query + apart;
        kept->value = (char *)kept->key + apart;
    }
    kept->attention = values(layout, dpb_transformer_attention_floats(shape, samples));
    kept->context = values(layout, rows * hidden);
    kept->attended = values(layout, rows * hidden);
    kept->inner = values(layout, rows * shape->inner);
    kept->activation = values(layout, rows * shape->inner);
    kept->sum = values(layout, rows * hidden);
    lay_out_norm(layout, rows, hidden, &kept->attention_norm);
    lay_out_norm(layout, rows, hidden, &kept->output_norm);
}

static void lay_out_heads(struct layout *layout, const struct dpb_transformer_shape *shape,
                          int64_t samples, struct dpb_transformer_heads *heads)
{
    int64_t predicted = samples * shape->predicted, hidden = shape->hidden;

    heads->predicted_row = ints(layout, predicted);
    heads->predicted = values(layout, predicted * hidden);
    heads->transform = values(layout, predicted * hidden);
    heads->activation = values(layout, predicted * hidden);
    lay_out_norm(layout, predicted, hidden, &heads->norm);
    heads->predicted_grad = values(layout, predicted * hidden);
    heads->first_row = ints(layout, samples);
    heads->first = values(layout, samples * hidden);
    heads->pooled = values(layout, samples * hidden);
    heads->pooled_grad = values(layout, samples * hidden);
    heads->relation = floats(layout, samples * 2);
    heads->relation_grad = gradient_of(layout, heads->relation, samples * 2);
    heads->relation_loss = floats(layout, samples);
}

static void lay_out_shadows(struct layout *layout, const struct dpb_transformer_list *list,
                            void **shadow)
{
    for (int i = 0; i < list->layer_count; i++) {
        int weight = list->layer[i].weight;

        if (layout->precision != DPB_F32 && dpb_transformer_has_shadow(list, i))
            shadow[weight] = values(layout, list->param[weight].numel);
    }
}

static int64_t lay_out(struct dpb_transformer *net, const struct dpb_transformer_list *list,
                       enum dpb_dtype precision, int64_t samples, char *memory)
{
    struct layout layout = {.memory = memory, .precision = precision};
    const struct dpb_transformer_shape *shape = &list->shape;
    int64_t rows = samples * shape->sequence, hidden = shape->hidden;
    int64_t wide = shape->inner > 3 * hidden ? shape->inner : 3 * hidden;

    net->position = ints(&layout, rows);
    net->embedded = values(&layout, rows * hidden);
    for (int b = 0; b < shape->blocks; b++)
        lay_out_block(&layout, shape, samples, &net->block[b]);
    if (shape->family == DPB_TRANSFORMER_BERT) {
        lay_out_norm(&layout, rows, hidden, &net->embedding_norm);
        lay_out_heads(&layout, shape, samples, &net->heads);
    } else {
        lay_out_norm(&layout, rows, hidden, &net->final_norm);
    }
    net->logits = floats(&layout, samples * shape->predicted * shape->vocabulary);
    net->logits_grad =
            gradient_of(&layout, net->logits, samples * shape->predicted * shape->vocabulary);
    net->loss = floats(&layout, samples * shape->predicted);
    net->stream_grad = values(&layout, rows * hidden);
    net->branch_grad = values(&layout, rows * hidden);
    net->wide_grad = values(&layout, rows * wide);
    net->attention_workspace = floats(&layout, dpb_transformer_attention_floats(shape, samples));
    lay_out_shadows(&layout, list, net->shadow);
    net->zeros = cut(&layout, DPB_ZEROS_BYTES);
    return layout.bytes;
}

/* What is the same for every batch. */
static dpb_status fill_rows(struct dpb_transformer *net)
{
    const int64_t sequence = net->list->shape.sequence, rows = net->batch_max * sequence;
    int32_t *made = calloc((size_t)rows, sizeof(*made));
    dpb_status st;

    if (!made) {
        dpb_error("workload \"%s\": out of memory", net->base.ops->name);
        return DPB_ERR_NO_MEMORY;
    }
    for (int64_t i = 0; i < rows; i++)
        made[i] = (int32_t)(i % sequence);
    st = dpb_hand_down(net->launcher, net->position, made, (size_t)rows * sizeof(*made));
    for (int64_t i = 0; i < net->batch_max; i++)
        made[i] = (int32_t)(i * sequence);
    if (st >= 0 && net->list->shape.family == DPB_TRANSFORMER_BERT)
        st = dpb_hand_down(net->launcher, net->heads.first_row, made,
                           (size_t)net->batch_max * sizeof(*made));
    free(made);
    return st;
}

int64_t dpb_transformer_activation_bytes_for(const struct dpb_transformer_list *list,
                                             const struct dpb_workload_sizes *sizes)
{
    struct dpb_transformer net;

    return lay_out(&net, list, sizes->precision, sizes->batch_max, NULL);
}

int64_t dpb_transformer_activation_bytes(dpb_workload *workload)
{
    return dpb_transformer_self(workload)->bytes;
}

/* ---- open, close ---- */

void dpb_transformer_close(dpb_workload *workload)
{
    struct dpb_transformer *net = dpb_transformer_self(workload);

    if (!net)
        return;
    if (net->memory)
        dpb_device_get_ops(net->launcher->device)->free(net->launcher->device, net->memory);
    dpb_handover_close(&net->predicted_rows);
    dpb_results_close(net->results);
    free(net);
}

/* What passes between the host and the device in a step. */
static struct dpb_said said_at_most(const struct dpb_transformer_shape *shape, int64_t samples)
{
    static const float some;
    const bool is_bert = shape->family == DPB_TRANSFORMER_BERT;

    return (struct dpb_said){.samples = samples,
                             .losses = shape->predicted,
                             .more_loss = is_bert ? &some : NULL,
                             .classes = is_bert ? 2 : shape->vocabulary};
}

static size_t predicted_bytes(const struct dpb_transformer_shape *shape, int64_t samples)
{
    return shape->family == DPB_TRANSFORMER_BERT
                   ? (size_t)(samples * shape->predicted) * sizeof(int32_t)
                   : 0;
}

int64_t dpb_transformer_host_bytes_for(const struct dpb_transformer_list *list,
                                       const struct dpb_workload_sizes *sizes)
{
    const struct dpb_said most = said_at_most(&list->shape, sizes->batch_max);

    return dpb_results_host_bytes(sizes->results, &most) +
           dpb_handover_host_bytes(sizes->results, predicted_bytes(&list->shape, sizes->batch_max));
}

static dpb_status open_handover(struct dpb_transformer *net, int64_t slots)
{
    const struct dpb_transformer_shape *shape = &net->list->shape;
    const struct dpb_said most = said_at_most(shape, net->batch_max);
    const size_t bytes = predicted_bytes(shape, net->batch_max);

    if (bytes > 0)
        DPB_TRY(dpb_handover_open(&net->predicted_rows, net->launcher, slots, bytes));
    return dpb_results_open(net->launcher, slots, &most, &net->results);
}

/* Rows of the whole batch are numbered in 32 bits, as the tokens themselves are. */
static dpb_status check_batch_max(const struct dpb_workload_ops *ops,
                                  const struct dpb_transformer_shape *shape, int64_t batch_max)
{
    if (batch_max >= 1 && batch_max <= INT32_MAX / shape->sequence)
        return DPB_OK;
    dpb_error("workload \"%s\": cannot make room for batches of %lld samples", ops->name,
              (long long)batch_max);
    return DPB_ERR_USAGE;
}

dpb_status dpb_transformer_open(const struct dpb_workload_ops *ops,
                                const struct dpb_transformer_list *list, double dropout,
                                const struct dpb_workload_config *config, dpb_workload **workload)
{
    struct dpb_transformer *net;
    dpb_device *device = config->launcher->device;
    dpb_status st;

    DPB_TRY(dpb_transformer_list_check(list, ops->name));
    DPB_TRY(check_batch_max(ops, &list->shape, config->batch_max));
    net = calloc(1, sizeof(*net));
    if (!net) {
        dpb_error("workload \"%s\": out of memory", ops->name);
        return DPB_ERR_NO_MEMORY;
    }
    net->base.ops = ops;
    net->list = list;
    net->launcher = config->launcher;
    net->watch = config->watch;
    net->batch_max = config->batch_max;
    net->dropout = dropout;
    net->seed = config->seed;
    net->precision = config->precision;
    net->bytes = lay_out(net, list, net->precision, net->batch_max, NULL);
    DPB_TRY_GOTO(st, dpb_transformer_check_device(net, device), err_device);
    DPB_TRY_GOTO(st, dpb_device_get_ops(device)->alloc(device, (size_t)net->bytes, &net->memory),
                 err_memory);
    lay_out(net, list, net->precision, net->batch_max, net->memory);
    DPB_TRY_GOTO(st, fill_rows(net), err_device);
    DPB_TRY_GOTO(st, open_handover(net, config->results), err_device);
    *workload = (dpb_workload *)net;
    return DPB_OK;

err_memory:
    dpb_log_hint("activations of %lld samples of %lld tokens do not fit: use a smaller batch per "
                 "rank or a shorter --sequence",
                 (long long)config->batch_max, (long long)list->shape.sequence);
err_device:
    dpb_transformer_close((dpb_workload *)net);
    return st;
}

void dpb_transformer_bind(dpb_workload *workload, float *const *param, float *const *grad)
{
    struct dpb_transformer *net = dpb_transformer_self(workload);
    size_t bytes = (size_t)net->list->param_count * sizeof(*param);

    memcpy(net->param, param, bytes);
    memcpy(net->grad, grad, bytes);
}

dpb_status dpb_transformer_init_params(dpb_workload *workload, uint64_t seed)
{
    struct dpb_transformer *net = dpb_transformer_self(workload);

    dpb_transformer_list_init_params(net->list, seed, net->param);
    return DPB_OK;
}

/* ---- is the batch one that this network can take? ---- */

static dpb_status check_range(const struct dpb_transformer *net, const struct dpb_batch *batch,
                              const char *what, const int32_t *value, int64_t per_sample,
                              int64_t limit)
{
    for (int64_t i = 0; i < batch->samples * per_sample; i++) {
        if (value[i] >= 0 && value[i] < limit)
            continue;
        dpb_error("workload \"%s\": sample %lld has %s %ld, which is not below %lld",
                  net->base.ops->name, (long long)batch->sample_ids[i / per_sample], what,
                  (long)value[i], (long long)limit);
        return DPB_ERR_USAGE;
    }
    return DPB_OK;
}

static dpb_status check_batch(const struct dpb_transformer *net, const struct dpb_batch *batch)
{
    const struct dpb_transformer_shape *shape = &net->list->shape;
    const struct dpb_batch *host = dpb_batch_on_host(batch);

    if (batch->samples < 0 || batch->samples > net->batch_max) {
        dpb_error("workload \"%s\": a batch of %lld samples does not fit, there is room for %lld",
                  net->base.ops->name, (long long)batch->samples, (long long)net->batch_max);
        return DPB_ERR_USAGE;
    }
    DPB_TRY(check_range(net, host, "token", host->tokens, shape->sequence, shape->vocabulary));
    DPB_TRY(check_range(net, host, "predicted token", host->predict_token, shape->predicted,
                        shape->vocabulary));
    if (shape->family == DPB_TRANSFORMER_GPT2)
        return DPB_OK;
    DPB_TRY(check_range(net, host, "segment", host->segments, shape->sequence, 2));
    DPB_TRY(check_range(net, host, "predicted position", host->predict_position, shape->predicted,
                        shape->sequence));
    return check_range(net, host, "label", host->label, 1, 2);
}

/* ---- forward, backward ---- */

/* BERT is right where its sentence head is, GPT-2 where it predicts the token after the last. */
static struct dpb_said said_of(const struct dpb_transformer *net, const struct dpb_batch *batch)
{
    const struct dpb_transformer_shape *shape = &net->list->shape;
    const int64_t last = shape->predicted - 1;
    struct dpb_said said = {
            .samples = batch->samples, .loss = net->loss, .losses = shape->predicted};

    if (shape->family == DPB_TRANSFORMER_BERT) {
        said.more_loss = net->heads.relation_loss;
        said.value = net->heads.relation;
        said.classes = said.value_stride = 2;
        said.label = batch->label;
        said.label_stride = 1;
        return said;
    }
    said.value = net->logits + last * shape->vocabulary;
    said.classes = shape->vocabulary;
    said.value_stride = shape->predicted * shape->vocabulary;
    said.label = batch->samples > 0 ? batch->predict_token + last : NULL;
    said.label_stride = shape->predicted;
    return said;
}

dpb_status dpb_transformer_forward(dpb_workload *workload, const struct dpb_batch *batch,
                                   bool training, int64_t slot)
{
    struct dpb_transformer *net = dpb_transformer_self(workload);
    const struct dpb_said said = said_of(net, batch);

    DPB_TRY(check_batch(net, batch));
    net->slot = slot;
    dpb_transformer_masks_of(net, batch, training);
    if (batch->samples == 0)
        DPB_TRY(dpb_params_use_all(net->watch, &net->list->model));
    else
        DPB_TRY(net->list->shape.family == DPB_TRANSFORMER_BERT
                        ? dpb_transformer_bert_fwd(net, batch)
                        : dpb_transformer_gpt2_fwd(net, batch));
    return dpb_results_keep(net->results, slot, &said);
}

dpb_status dpb_transformer_read_result(dpb_workload *workload, int64_t slot,
                                       struct dpb_forward_result *result)
{
    return dpb_results_read(dpb_transformer_self(workload)->results, slot, result);
}

dpb_status dpb_transformer_backward(dpb_workload *workload, const struct dpb_batch *batch,
                                    float grad_scale, dpb_grad_ready ready, void *ctx)
{
    struct dpb_transformer *net = dpb_transformer_self(workload);
    const struct dpb_transformer_ready tell = {.call = ready, .ctx = ctx};

    if (batch->samples == 0)
        return dpb_gradients_clear(net->launcher, net->watch, &net->list->model, net->grad,
                                   net->zeros, ready, ctx);
    if (net->list->shape.family == DPB_TRANSFORMER_BERT)
        return dpb_transformer_bert_bwd(net, batch, grad_scale, &tell);
    return dpb_transformer_gpt2_bwd(net, batch, grad_scale, &tell);
}

#include "dlrm.h"

#include <stdlib.h>
#include <string.h>

#include "dlrm_tables.h"
#include "dpb_log.h"
#include "network.h"
#include "workload_parts.h"

enum buffer {
    EMBEDDED,      /* [tables, samples, length] */
    EMBEDDED_GRAD, /* the same */
    PAIRS,         /* [samples, pair columns] */
    /* The gradient of one layer's output is made from the one behind it; both are needed at once,
     * never three. */
    GRAD_0,
    GRAD_1,
    LOSS,
    ZEROS,
    /* With mixed precision the MLPs are bf16, with GRAD_0, GRAD_1 and their outputs; what lies
     * between them and at their ends is fp32 and needs a copy on the other side. */
    LOW_WEIGHTS,
    LOW_X,
    LOW_PAIRS,
    WIDE_VECTOR, /* the bottom's output */
    WIDE_LOGITS,
    WIDE_PAIRS_GRAD, /* first the logits' */
    WIDE_VECTOR_GRAD,
    BOTTOM, /* outputs of its layers, after their ReLU */
    TOP = BOTTOM + DPB_DLRM_MLP_MAX,
    BUFFERS = TOP + DPB_DLRM_MLP_MAX
};

struct dlrm {
    struct dpb_workload_base base;
    const struct dpb_dlrm_list *list;
    struct dpb_launcher *launcher;
    struct dpb_workload_sizes sizes;
    float *param[DPB_DLRM_PARAMS_MAX], *grad[DPB_DLRM_PARAMS_MAX];
    void *buffer[BUFFERS];
    /* of tables that are parameters: [tables, samples], the batch's indices turned round; the
     * host's memory */
    int32_t *ids;
    struct dpb_dlrm_tables *tables; /* NULL where they are parameters */
};

static struct dlrm *dlrm_of(dpb_workload *workload)
{
    return (struct dlrm *)workload;
}

/* ---- open, close ---- */

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Where the copy of parameter `param` lies in LOW_WEIGHTS; for their number, the bytes of all. */
static int64_t low_weight_at(const struct dpb_dlrm_list *list, enum dpb_dtype precision, int param)
{
    int64_t bytes = 0;

    for (int p = list->table_params; p < param; p++) {
        if (list->param[p].rank > 1)
            bytes += (list->param[p].numel * (int64_t)dpb_dtype_bytes(precision) + 63) / 64 * 64;
    }
    return bytes;
}

static void buffer_bytes(const struct dpb_dlrm_list *list, const struct dpb_workload_sizes *sizes,
                         int64_t bytes[BUFFERS])
{
    const struct dpb_dlrm_shape *shape = &list->shape;
    int64_t columns = dpb_dlrm_pair_columns(shape), widest = columns;
    int64_t sample_bytes = sizes->batch_max * (int64_t)sizeof(float);
    int64_t low_bytes = sizes->batch_max * (int64_t)dpb_dtype_bytes(sizes->precision);

    memset(bytes, 0, BUFFERS * sizeof(*bytes));
    for (int i = 0; i < shape->bottom_count; i++) {
        bytes[BOTTOM + i] = shape->bottom[i] * low_bytes;
        widest = larger(widest, shape->bottom[i]);
    }
    for (int i = 0; i < shape->top_count; i++) {
        bytes[TOP + i] = shape->top[i] * low_bytes;
        widest = larger(widest, shape->top[i]);
    }
    bytes[EMBEDDED] = bytes[EMBEDDED_GRAD] = shape->tables * shape->length * sample_bytes;
    bytes[PAIRS] = columns * sample_bytes;
    bytes[GRAD_0] = bytes[GRAD_1] = widest * low_bytes;
    bytes[LOSS] = sample_bytes;
    bytes[ZEROS] = DPB_ZEROS_BYTES;
    if (sizes->precision == DPB_F32)
        return;
    bytes[LOW_WEIGHTS] = low_weight_at(list, sizes->precision, list->model.param_count);
    bytes[LOW_X] = shape->features * low_bytes;
    bytes[LOW_PAIRS] = columns * low_bytes;
    bytes[WIDE_VECTOR] = bytes[WIDE_VECTOR_GRAD] = shape->length * sample_bytes;
    bytes[WIDE_LOGITS] = sample_bytes;
    bytes[WIDE_PAIRS_GRAD] = columns * sample_bytes;
}

static size_t ids_bytes(const struct dpb_dlrm_list *list, int64_t samples)
{
    return (size_t)list->table_params * (size_t)samples * sizeof(int32_t);
}

int64_t dpb_dlrm_activation_bytes_for(const struct dpb_dlrm_list *list,
                                      const struct dpb_workload_sizes *sizes)
{
    int64_t bytes[BUFFERS], sum = (int64_t)ids_bytes(list, sizes->batch_max);

    buffer_bytes(list, sizes, bytes);
    for (int b = 0; b < BUFFERS; b++)
        sum += bytes[b];
    if (list->shape.where != DPB_DLRM_TABLES_DENSE)
        sum += dpb_dlrm_tables_bytes_for(list, sizes);
    return sum;
}

int64_t dpb_dlrm_activation_bytes(dpb_workload *workload)
{
    const struct dlrm *net = dlrm_of(workload);

    return dpb_dlrm_activation_bytes_for(net->list, &net->sizes);
}

static dpb_status take_all(struct dlrm *net)
{
    dpb_device *device = net->launcher->device;
    size_t index_bytes = ids_bytes(net->list, net->sizes.batch_max);
    int64_t bytes[BUFFERS];

    buffer_bytes(net->list, &net->sizes, bytes);
    for (int b = 0; b < BUFFERS; b++) {
        void *memory = NULL;

        if (bytes[b] > 0)
            DPB_TRY(dpb_device_get_ops(device)->alloc(device, (size_t)bytes[b], &memory));
        net->buffer[b] = memory;
    }
    if (index_bytes == 0)
        return DPB_OK;
    net->ids = malloc(index_bytes);
    if (!net->ids) {
        dpb_error("workload \"%s\": out of memory", net->base.ops->name);
        return DPB_ERR_NO_MEMORY;
    }
    memset(net->ids, 0, index_bytes); /* page faults now, not in a timed step */
    return DPB_OK;
}

void dpb_dlrm_close(dpb_workload *workload)
{
    struct dlrm *net = dlrm_of(workload);

    if (!net)
        return;
    for (int b = 0; b < BUFFERS; b++) {
        if (net->buffer[b])
            dpb_device_get_ops(net->launcher->device)->free(net->launcher->device, net->buffer[b]);
    }
    dpb_dlrm_tables_close(net->tables);
    free(net->ids);
    free(net);
}

/* The MLPs' operators in their precision. */
static dpb_status check_device(const struct dlrm *net)
{
    static const enum dpb_op needed[] = {DPB_OP_MATMUL, DPB_OP_BIAS_BWD, DPB_OP_RELU_BWD,
                                         DPB_OP_CAST};
    const struct dpb_device_ops *device = dpb_device_get_ops(net->launcher->device);
    enum dpb_dtype precision = net->sizes.precision;

    for (size_t i = 0; precision != DPB_F32 && i < sizeof(needed) / sizeof(needed[0]); i++) {
        if (device->op_supported(net->launcher->device, needed[i], precision))
            continue;
        dpb_error("workload \"%s\": device \"%s\" has no %s in %s", net->base.ops->name,
                  device->name, dpb_op_text(needed[i]), dpb_dtype_text(precision));
        dpb_log_hint("use --precision fp32, or another --device");
        return DPB_ERR_UNSUPPORTED;
    }
    return DPB_OK;
}

dpb_status dpb_dlrm_open(const struct dpb_workload_ops *ops, const struct dpb_dlrm_list *list,
                         const struct dpb_workload_config *config, dpb_workload **workload)
{
    struct dlrm *net;
    dpb_status st;

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
    net->sizes = (struct dpb_workload_sizes){.batch_max = config->batch_max,
                                             .global_batch = config->global_batch,
                                             .precision = config->precision,
                                             .optimizer = config->optimizer};
    DPB_TRY_GOTO(st, check_device(net), err);
    DPB_TRY_GOTO(st, take_all(net), err_memory);
    if (list->shape.where != DPB_DLRM_TABLES_DENSE) {
        net->sizes.rank = config->ranks->rank;
        net->sizes.ranks = config->ranks->size;
        DPB_TRY_GOTO(st, dpb_dlrm_tables_open(ops->name, list, config, &net->tables), err);
    }
    *workload = (dpb_workload *)net;
    return DPB_OK;

err_memory:
    dpb_log_hint("activations of %lld samples do not fit: use a smaller batch per rank",
                 (long long)config->batch_max);
err:
    dpb_dlrm_close((dpb_workload *)net);
    return st;
}

void dpb_dlrm_bind(dpb_workload *workload, float *const *param, float *const *grad)
{
    struct dlrm *net = dlrm_of(workload);
    size_t bytes = (size_t)net->list->model.param_count * sizeof(*param);

    memcpy(net->param, param, bytes);
    memcpy(net->grad, grad, bytes);
}

dpb_status dpb_dlrm_init_params(dpb_workload *workload, uint64_t seed)
{
    struct dlrm *net = dlrm_of(workload);

    dpb_dlrm_list_init_params(net->list, seed, net->param);
    if (net->tables)
        dpb_dlrm_tables_init(net->tables, seed);
    return DPB_OK;
}

/* ---- precision ---- */

static struct dpb_tensor tensor_of(enum dpb_dtype dtype, const void *data, int64_t rows,
                                   int64_t columns)
{
    struct dpb_tensor tensor = dpb_tensor_2d((void *)data, rows, columns);

    tensor.dtype = dtype;
    return tensor;
}

static bool is_mixed(const struct dlrm *net)
{
    return net->sizes.precision != DPB_F32;
}

/* Of two buffers, the one in which fp32 values are: `same` where all is fp32. */
static float *wide(const struct dlrm *net, int same, int mixed)
{
    return net->buffer[is_mixed(net) ? mixed : same];
}

/* fp32 values as the MLPs read them: where they are, or copied to `low` by narrow(). */
static const void *low(const struct dlrm *net, const float *values, enum buffer low)
{
    return is_mixed(net) ? net->buffer[low] : values;
}

static dpb_status narrow(const struct dlrm *net, const char *name, const float *values, int to,
                         int64_t rows, int64_t columns)
{
    struct dpb_cast_args args = {
            .from = dpb_tensor_2d((float *)values, rows, columns),
            .to = tensor_of(net->sizes.precision, net->buffer[to], rows, columns)};

    return is_mixed(net) ? dpb_launch(net->launcher, name, DPB_OP_CAST, &args) : DPB_OK;
}

/* What an MLP wrote, as fp32: wide(net, from, to). */
static dpb_status widen(const struct dlrm *net, const char *name, int from, enum buffer to,
                        int64_t rows, int64_t columns)
{
    struct dpb_cast_args args = {
            .from = tensor_of(net->sizes.precision, net->buffer[from], rows, columns),
            .to = dpb_tensor_2d(net->buffer[to], rows, columns)};

    return is_mixed(net) ? dpb_launch(net->launcher, name, DPB_OP_CAST, &args) : DPB_OK;
}

static void *weight_of(const struct dlrm *net, const struct dpb_layer *layer)
{
    return is_mixed(net) ? (char *)net->buffer[LOW_WEIGHTS] +
                                   low_weight_at(net->list, net->sizes.precision, layer->weight)
                         : (void *)net->param[layer->weight];
}

/* The weights of an MLP as they are after the last update. */
static dpb_status narrow_weights(const struct dlrm *net, const struct dpb_layer_list *mlp)
{
    for (int i = 0; is_mixed(net) && i < mlp->layer_count; i++) {
        const struct dpb_layer *layer = &mlp->layer[i];
        struct dpb_cast_args args = {
                .from = dpb_tensor_2d(net->param[layer->weight], layer->out[2], layer->in[2]),
                .to = tensor_of(net->sizes.precision, weight_of(net, layer), layer->out[2],
                                layer->in[2])};

        DPB_TRY(dpb_launch(net->launcher, layer->op.cast, DPB_OP_CAST, &args));
    }
    return DPB_OK;
}

/* ---- the parts ---- */

static struct dpb_linear linear_of(const struct dlrm *net, const struct dpb_layer *layer,
                                   const void *x, int64_t samples)
{
    return (struct dpb_linear){.dtype = net->sizes.precision,
                               .samples = samples,
                               .x = x,
                               .weight = weight_of(net, layer),
                               .bias = net->param[layer->bias]};
}

static dpb_status mlp_forward(const struct dlrm *net, const struct dpb_layer_list *mlp, int outputs,
                              const void *x, int64_t samples)
{
    DPB_TRY(narrow_weights(net, mlp));
    for (int i = 0; i < mlp->layer_count; i++) {
        const struct dpb_linear linear = linear_of(net, &mlp->layer[i], x, samples);

        DPB_TRY(dpb_linear_forward_typed(net->launcher, &mlp->layer[i], &linear,
                                         net->buffer[outputs + i]));
        x = net->buffer[outputs + i];
    }
    return DPB_OK;
}

/* The gradient of the last output lies in GRAD_0 + *at; that of x is left in GRAD_0 + *at, when
 * `data` asks for it. */
static dpb_status mlp_backward(const struct dlrm *net, const struct dpb_layer_list *mlp,
                               int outputs, const void *x, int64_t samples, bool data, int *at,
                               dpb_grad_ready ready, void *ctx)
{
    for (int i = mlp->layer_count - 1; i >= 0; i--) {
        const struct dpb_layer *layer = &mlp->layer[i];
        const struct dpb_linear linear =
                linear_of(net, layer, i > 0 ? net->buffer[outputs + i - 1] : x, samples);
        void *dy = net->buffer[GRAD_0 + *at];
        void *dx = i > 0 || data ? net->buffer[GRAD_0 + !*at] : NULL;

        if (layer->relu) {
            struct dpb_tensor both = tensor_of(net->sizes.precision, dy, samples, layer->out[2]);
            struct dpb_relu_args args = {.y = tensor_of(net->sizes.precision,
                                                        net->buffer[outputs + i], samples,
                                                        layer->out[2]),
                                         .dy = both,
                                         .dx = both};

            DPB_TRY(dpb_launch(net->launcher, layer->op.bwd_relu, DPB_OP_RELU_BWD, &args));
        }
        DPB_TRY(dpb_linear_backward_typed(net->launcher, layer, &linear, net->grad, dy, dx, ready,
                                          ctx));
        *at = !*at;
    }
    return DPB_OK;
}

/* The rows of table t in a buffer of all tables. */
static struct dpb_tensor rows_of(const struct dlrm *net, enum buffer buffer, int t, int64_t samples)
{
    int64_t length = net->list->shape.length;

    return dpb_tensor_2d((float *)net->buffer[buffer] + t * samples * length, samples, length);
}

static struct dpb_tensor table_of(const struct dlrm *net, float *const *of, int t)
{
    return dpb_tensor_2d(of[t], net->list->shape.table_rows[t], net->list->shape.length);
}

static dpb_status tables_forward(const struct dlrm *net, const struct dpb_batch *batch)
{
    const struct dpb_dlrm_shape *shape = &net->list->shape;

    for (int64_t i = 0; i < batch->samples; i++) {
        for (int t = 0; t < shape->tables; t++)
            net->ids[t * batch->samples + i] = batch->indices[i * shape->tables + t];
    }
    for (int t = 0; t < shape->tables; t++) {
        struct dpb_embedding_args args = {.table = table_of(net, net->param, t),
                                          .y = rows_of(net, EMBEDDED, t, batch->samples),
                                          .ids = net->ids + t * batch->samples};

        DPB_TRY(dpb_launch(net->launcher, net->list->table_op[t].fwd, DPB_OP_EMBEDDING_FWD, &args));
    }
    return DPB_OK;
}

static dpb_status tables_backward(const struct dlrm *net, int64_t samples, dpb_grad_ready ready,
                                  void *ctx)
{
    for (int t = net->list->shape.tables - 1; t >= 0; t--) {
        struct dpb_embedding_args args = {.dtable = table_of(net, net->grad, t),
                                          .dy = rows_of(net, EMBEDDED_GRAD, t, samples),
                                          .ids = net->ids + t * samples};

        DPB_TRY(dpb_launch(net->launcher, net->list->table_op[t].bwd_weights, DPB_OP_EMBEDDING_BWD,
                           &args));
        DPB_TRY(ready(ctx, t));
    }
    return DPB_OK;
}

/* `pairs`: the output, or its gradient; `dx` is for the way back. */
static struct dpb_interaction_args interaction_args(const struct dlrm *net, int64_t samples,
                                                    float *pairs, float *dx)
{
    const struct dpb_dlrm_shape *shape = &net->list->shape;
    struct dpb_tensor all = {.data = net->buffer[EMBEDDED],
                             .dtype = DPB_F32,
                             .rank = 3,
                             .dim = {shape->tables, samples, shape->length}};
    struct dpb_tensor all_grad = all;

    all_grad.data = net->buffer[EMBEDDED_GRAD];
    return (struct dpb_interaction_args){
            .x = dpb_tensor_2d(wide(net, BOTTOM + shape->bottom_count - 1, WIDE_VECTOR), samples,
                               shape->length),
            .e = all,
            .y = dpb_tensor_2d(pairs, samples, dpb_dlrm_pair_columns(shape)),
            .dx = dpb_tensor_2d(dx, samples, shape->length),
            .de = all_grad};
}

/* ---- forward and backward ---- */

static float *logits_of(const struct dlrm *net)
{
    return wide(net, TOP + net->list->shape.top_count - 1, WIDE_LOGITS);
}

static dpb_status bottom_forward(const struct dlrm *net, const struct dpb_batch *batch)
{
    const struct dpb_dlrm_shape *shape = &net->list->shape;
    int64_t samples = batch->samples;

    DPB_TRY(narrow(net, "x.cast", batch->x, LOW_X, samples, shape->features));
    DPB_TRY(mlp_forward(net, &net->list->bottom, BOTTOM, low(net, batch->x, LOW_X), samples));
    return widen(net, "bot_l.cast", BOTTOM + shape->bottom_count - 1, WIDE_VECTOR, samples,
                 shape->length);
}

static dpb_status top_forward(const struct dlrm *net, int64_t samples)
{
    const struct dpb_dlrm_shape *shape = &net->list->shape;
    const float *pairs = net->buffer[PAIRS];

    DPB_TRY(narrow(net, "interact.cast", pairs, LOW_PAIRS, samples, dpb_dlrm_pair_columns(shape)));
    DPB_TRY(mlp_forward(net, &net->list->top, TOP, low(net, pairs, LOW_PAIRS), samples));
    return widen(net, "top_l.cast", TOP + shape->top_count - 1, WIDE_LOGITS, samples, 1);
}

/* Bottom MLP and rows. Rows of tables elsewhere travel while the bottom MLP computes; a rank takes
 * part in that without samples, too. */
static dpb_status vectors_forward(const struct dlrm *net, const struct dpb_batch *batch)
{
    if (net->tables)
        DPB_TRY(dpb_dlrm_tables_fetch(net->tables, batch, net->buffer[EMBEDDED]));
    if (batch->samples > 0)
        DPB_TRY(bottom_forward(net, batch));
    if (net->tables)
        return dpb_dlrm_tables_fetched(net->tables, net->buffer[EMBEDDED]);
    return batch->samples > 0 ? tables_forward(net, batch) : DPB_OK;
}

dpb_status dpb_dlrm_forward(dpb_workload *workload, const struct dpb_batch *batch, bool training,
                            struct dpb_forward_result *result)
{
    struct dlrm *net = dlrm_of(workload);
    const struct dpb_launcher *launcher = net->launcher;
    const float *logits = logits_of(net), *loss = net->buffer[LOSS];
    struct dpb_forward_result sum = {0};
    struct dpb_interaction_args pairs;
    struct dpb_sigmoid_bce_args bce;

    (void)training;
    DPB_TRY(dpb_batch_check(net->base.ops, &net->list->model, net->sizes.batch_max, batch));
    DPB_TRY(vectors_forward(net, batch));
    if (batch->samples == 0) {
        *result = sum;
        return DPB_OK;
    }
    pairs = interaction_args(net, batch->samples, net->buffer[PAIRS], NULL);
    DPB_TRY(dpb_launch(launcher, "interact.fwd", DPB_OP_INTERACTION_FWD, &pairs));
    DPB_TRY(top_forward(net, batch->samples));
    bce = (struct dpb_sigmoid_bce_args){.logits = dpb_tensor_2d((float *)logits, batch->samples, 1),
                                        .label = batch->label,
                                        .loss = net->buffer[LOSS]};
    DPB_TRY(dpb_launch(launcher, "loss.fwd", DPB_OP_SIGMOID_BCE_FWD, &bce));

    DPB_TRY(dpb_device_get_ops(launcher->device)->stream_sync(launcher->stream));
    for (int64_t i = 0; i < batch->samples; i++) {
        sum.loss_sum += (double)loss[i];
        sum.correct += batch->label[i] ? logits[i] > 0.0f : logits[i] <= 0.0f;
    }
    *result = sum;
    return DPB_OK;
}

/* The backward pass of no samples: what is sent is sent when other ranks send it. */
static dpb_status clear_gradients(struct dlrm *net, dpb_grad_ready ready, void *ctx)
{
    const struct dpb_model *model = &net->list->model;
    int before_bottom = model->param_count - net->list->bottom.param_count;

    for (int r = 0; r < model->param_count; r++) {
        int p = model->ready_order[r];

        if (r == before_bottom && net->tables)
            DPB_TRY(dpb_dlrm_tables_send(net->tables, net->buffer[EMBEDDED_GRAD]));
        DPB_TRY(dpb_gradient_clear(net->launcher, model, p, net->grad[p], net->buffer[ZEROS]));
        DPB_TRY(ready(ctx, p));
    }
    return net->tables ? dpb_dlrm_tables_sent(net->tables) : DPB_OK;
}

dpb_status dpb_dlrm_backward(dpb_workload *workload, const struct dpb_batch *batch,
                             float grad_scale, dpb_grad_ready ready, void *ctx)
{
    struct dlrm *net = dlrm_of(workload);
    int64_t samples = batch->samples;
    struct dpb_sigmoid_bce_args bce;
    struct dpb_interaction_args pairs;
    const struct dpb_dlrm_shape *shape = &net->list->shape;
    float *logits_grad, *vector_grad;
    int at = 0;

    if (samples == 0)
        return clear_gradients(net, ready, ctx);
    logits_grad = wide(net, GRAD_0, WIDE_PAIRS_GRAD);
    bce = (struct dpb_sigmoid_bce_args){.logits = dpb_tensor_2d(logits_of(net), samples, 1),
                                        .dlogits = dpb_tensor_2d(logits_grad, samples, 1),
                                        .label = batch->label,
                                        .scale = grad_scale};
    DPB_TRY(dpb_launch(net->launcher, "loss.bwd", DPB_OP_SIGMOID_BCE_BWD, &bce));
    DPB_TRY(narrow(net, "loss.cast", logits_grad, GRAD_0, samples, 1));
    DPB_TRY(mlp_backward(net, &net->list->top, TOP, low(net, net->buffer[PAIRS], LOW_PAIRS),
                         samples, true, &at, ready, ctx));
    DPB_TRY(widen(net, "top_l.cast", GRAD_0 + at, WIDE_PAIRS_GRAD, samples,
                  dpb_dlrm_pair_columns(shape)));
    vector_grad = wide(net, GRAD_0 + !at, WIDE_VECTOR_GRAD);
    pairs = interaction_args(net, samples, wide(net, GRAD_0 + at, WIDE_PAIRS_GRAD), vector_grad);
    DPB_TRY(dpb_launch(net->launcher, "interact.bwd", DPB_OP_INTERACTION_BWD, &pairs));
    at = !at;
    if (net->tables)
        DPB_TRY(dpb_dlrm_tables_send(net->tables, net->buffer[EMBEDDED_GRAD]));
    else
        DPB_TRY(tables_backward(net, samples, ready, ctx));
    DPB_TRY(narrow(net, "interact.cast", vector_grad, GRAD_0 + at, samples, shape->length));
    DPB_TRY(mlp_backward(net, &net->list->bottom, BOTTOM, low(net, batch->x, LOW_X), samples, false,
                         &at, ready, ctx));
    return net->tables ? dpb_dlrm_tables_sent(net->tables) : DPB_OK;
}

bool dpb_dlrm_state(dpb_workload *workload, int index, struct dpb_workload_state *state)
{
    const struct dlrm *net = dlrm_of(workload);

    return net->tables && dpb_dlrm_tables_state(net->tables, index, state);
}

dpb_status dpb_dlrm_update(dpb_workload *workload, const struct dpb_optimizer_config *optimizer,
                           int64_t step)
{
    struct dlrm *net = dlrm_of(workload);

    (void)step;
    return net->tables ? dpb_dlrm_tables_update(net->tables, optimizer) : DPB_OK;
}

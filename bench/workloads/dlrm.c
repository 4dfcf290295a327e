#include "dlrm_private.h"

#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"
#include "network.h"
#include "workload_parts.h"

static struct dlrm *dlrm_of(dpb_workload *workload)
{
    return (struct dlrm *)workload;
}

/* ---- open, close ---- */

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
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
    bytes[LOW_WEIGHTS] = dpb_dlrm_low_weight_at(list, sizes->precision, list->model.param_count);
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

static struct dpb_said said_at_most(int64_t samples)
{
    return (struct dpb_said){.samples = samples, .losses = 1, .classes = 1};
}

int64_t dpb_dlrm_host_bytes_for(const struct dpb_dlrm_list *list,
                                const struct dpb_workload_sizes *sizes)
{
    const struct dpb_said most = said_at_most(sizes->batch_max);

    return dpb_results_host_bytes(sizes->results, &most) +
           dpb_handover_host_bytes(sizes->results, ids_bytes(list, sizes->batch_max)) +
           (list->shape.where != DPB_DLRM_TABLES_DENSE ? dpb_dlrm_tables_host_bytes_for(list, sizes)
                                                       : 0);
}

int dpb_dlrm_exchanges(const struct dpb_dlrm_list *list, const struct dpb_workload_sizes *sizes,
                       struct dpb_workload_exchange *exchanges)
{
    return list->shape.where == DPB_DLRM_TABLES_DENSE
                   ? 0
                   : dpb_dlrm_tables_exchanges(list, sizes, exchanges);
}

int64_t dpb_dlrm_activation_bytes(dpb_workload *workload)
{
    const struct dlrm *net = dlrm_of(workload);

    return dpb_dlrm_activation_bytes_for(net->list, &net->sizes);
}

static dpb_status take_all(struct dlrm *net, int64_t slots)
{
    dpb_device *device = net->launcher->device;
    size_t index_bytes = ids_bytes(net->list, net->sizes.batch_max);
    int64_t bytes[BUFFERS];
    void *ids;

    buffer_bytes(net->list, &net->sizes, bytes);
    for (int b = 0; b < BUFFERS; b++) {
        void *memory = NULL;

        if (bytes[b] > 0)
            DPB_TRY(dpb_device_get_ops(device)->alloc(device, (size_t)bytes[b], &memory));
        net->buffer[b] = memory;
    }
    if (index_bytes == 0)
        return DPB_OK;
    DPB_TRY(dpb_device_get_ops(device)->alloc(device, index_bytes, &ids));
    net->ids = ids;
    return dpb_handover_open(&net->handover, net->launcher, slots, index_bytes);
}

static dpb_status open_results(struct dlrm *net, int64_t slots)
{
    const struct dpb_said most = said_at_most(net->sizes.batch_max);

    return dpb_results_open(net->launcher, slots, &most, &net->results);
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
    if (net->ids)
        dpb_device_get_ops(net->launcher->device)->free(net->launcher->device, net->ids);
    dpb_dlrm_tables_close(net->tables);
    dpb_handover_close(&net->handover);
    dpb_results_close(net->results);
    free(net);
}

uint64_t dpb_dlrm_operators(const void *options, const struct dpb_workload_sizes *sizes)
{
    (void)options;
    return sizes->precision == DPB_F32
                   ? 0
                   : DPB_OPERATOR(DPB_OP_MATMUL) | DPB_OPERATOR(DPB_OP_BIAS_BWD) |
                             DPB_OPERATOR(DPB_OP_RELU_BWD) | DPB_OPERATOR(DPB_OP_CAST);
}

static dpb_status check_device(const struct dlrm *net)
{
    return dpb_workload_check_operators(net->base.ops->name, dpb_dlrm_operators(NULL, &net->sizes),
                                        net->sizes.precision, net->launcher->device);
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
    net->watch = config->watch;
    net->sizes = (struct dpb_workload_sizes){.batch_max = config->batch_max,
                                             .global_batch = config->global_batch,
                                             .precision = config->precision,
                                             .optimizer = config->optimizer};
    DPB_TRY_GOTO(st, check_device(net), err);
    DPB_TRY_GOTO(st, take_all(net, config->results), err_memory);
    DPB_TRY_GOTO(st, open_results(net, config->results), err_memory);
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
    return net->tables ? dpb_dlrm_tables_init(net->tables, seed) : DPB_OK;
}

/* ---- the parts ---- */

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
    const int32_t *indices = dpb_batch_on_host(batch)->indices;
    int32_t *ids = dpb_handover_begin(&net->handover, net->slot, net->ids);

    for (int64_t i = 0; i < batch->samples; i++) {
        for (int t = 0; t < shape->tables; t++)
            ids[t * batch->samples + i] = indices[i * shape->tables + t];
    }
    DPB_TRY(dpb_handover_end(&net->handover, net->slot, net->ids,
                             ids_bytes(net->list, batch->samples)));
    for (int t = 0; t < shape->tables; t++) {
        DPB_TRY(dpb_param_use(net->watch, t, DPB_PASS_FORWARD));
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
        DPB_TRY(dpb_param_use(net->watch, t, DPB_PASS_BACKWARD));
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
            .x = dpb_tensor_2d(dpb_dlrm_wide(net, BOTTOM + shape->bottom_count - 1, WIDE_VECTOR),
                               samples, shape->length),
            .e = all,
            .y = dpb_tensor_2d(pairs, samples, dpb_dlrm_pair_columns(shape)),
            .dx = dpb_tensor_2d(dx, samples, shape->length),
            .de = all_grad};
}

/* ---- forward and backward ---- */

static float *logits_of(const struct dlrm *net)
{
    return dpb_dlrm_wide(net, TOP + net->list->shape.top_count - 1, WIDE_LOGITS);
}

static dpb_status bottom_forward(const struct dlrm *net, const struct dpb_batch *batch)
{
    const struct dpb_dlrm_shape *shape = &net->list->shape;
    int64_t samples = batch->samples;

    DPB_TRY(dpb_dlrm_narrow(net, "x.cast", batch->x, LOW_X, samples, shape->features));
    DPB_TRY(dpb_dlrm_mlp_forward(net, &net->list->bottom, BOTTOM,
                                 dpb_dlrm_low(net, batch->x, LOW_X), samples));
    return dpb_dlrm_widen(net, "bot_l.cast", BOTTOM + shape->bottom_count - 1, WIDE_VECTOR, samples,
                          shape->length);
}

static dpb_status top_forward(const struct dlrm *net, int64_t samples)
{
    const struct dpb_dlrm_shape *shape = &net->list->shape;
    const float *pairs = net->buffer[PAIRS];

    DPB_TRY(dpb_dlrm_narrow(net, "interact.cast", pairs, LOW_PAIRS, samples,
                            dpb_dlrm_pair_columns(shape)));
    DPB_TRY(dpb_dlrm_mlp_forward(net, &net->list->top, TOP, dpb_dlrm_low(net, pairs, LOW_PAIRS),
                                 samples));
    return dpb_dlrm_widen(net, "top_l.cast", TOP + shape->top_count - 1, WIDE_LOGITS, samples, 1);
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
                            int64_t slot)
{
    struct dlrm *net = dlrm_of(workload);
    const struct dpb_launcher *launcher = net->launcher;
    const struct dpb_said said = {.samples = batch->samples,
                                  .loss = net->buffer[LOSS],
                                  .losses = 1,
                                  .value = logits_of(net),
                                  .classes = 1,
                                  .value_stride = 1,
                                  .label = batch->label,
                                  .label_stride = 1};
    struct dpb_interaction_args pairs;
    struct dpb_sigmoid_bce_args bce;

    (void)training;
    DPB_TRY(dpb_batch_check(net->base.ops, &net->list->model, net->sizes.batch_max, batch));
    net->slot = slot;
    DPB_TRY(vectors_forward(net, batch));
    if (batch->samples == 0) {
        DPB_TRY(dpb_results_keep(net->results, slot, &said));
        return dpb_params_use_all(net->watch, &net->list->model);
    }
    pairs = interaction_args(net, batch->samples, net->buffer[PAIRS], NULL);
    DPB_TRY(dpb_launch(launcher, "interact.fwd", DPB_OP_INTERACTION_FWD, &pairs));
    DPB_TRY(top_forward(net, batch->samples));
    bce = (struct dpb_sigmoid_bce_args){
            .logits = dpb_tensor_2d((float *)said.value, batch->samples, 1),
            .label = batch->label,
            .loss = net->buffer[LOSS]};
    DPB_TRY(dpb_launch(launcher, "loss.fwd", DPB_OP_SIGMOID_BCE_FWD, &bce));
    return dpb_results_keep(net->results, slot, &said);
}

dpb_status dpb_dlrm_read_result(dpb_workload *workload, int64_t slot,
                                struct dpb_forward_result *result)
{
    return dpb_results_read(dlrm_of(workload)->results, slot, result);
}

bool dpb_dlrm_needs_host(dpb_workload *workload)
{
    return dlrm_of(workload)->tables != NULL;
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
        DPB_TRY(dpb_param_use(net->watch, p, DPB_PASS_BACKWARD));
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
    logits_grad = dpb_dlrm_wide(net, GRAD_0, WIDE_PAIRS_GRAD);
    bce = (struct dpb_sigmoid_bce_args){.logits = dpb_tensor_2d(logits_of(net), samples, 1),
                                        .dlogits = dpb_tensor_2d(logits_grad, samples, 1),
                                        .label = batch->label,
                                        .scale = grad_scale};
    DPB_TRY(dpb_launch(net->launcher, "loss.bwd", DPB_OP_SIGMOID_BCE_BWD, &bce));
    DPB_TRY(dpb_dlrm_narrow(net, "loss.cast", logits_grad, GRAD_0, samples, 1));
    DPB_TRY(dpb_dlrm_mlp_backward(net, &net->list->top, TOP,
                                  dpb_dlrm_low(net, net->buffer[PAIRS], LOW_PAIRS), samples, true,
                                  &at, ready, ctx));
    DPB_TRY(dpb_dlrm_widen(net, "top_l.cast", GRAD_0 + at, WIDE_PAIRS_GRAD, samples,
                           dpb_dlrm_pair_columns(shape)));
    vector_grad = dpb_dlrm_wide(net, GRAD_0 + !at, WIDE_VECTOR_GRAD);
    pairs = interaction_args(net, samples, dpb_dlrm_wide(net, GRAD_0 + at, WIDE_PAIRS_GRAD),
                             vector_grad);
    DPB_TRY(dpb_launch(net->launcher, "interact.bwd", DPB_OP_INTERACTION_BWD, &pairs));
    at = !at;
    if (net->tables)
        DPB_TRY(dpb_dlrm_tables_send(net->tables, net->buffer[EMBEDDED_GRAD]));
    else
        DPB_TRY(tables_backward(net, samples, ready, ctx));
    DPB_TRY(dpb_dlrm_narrow(net, "interact.cast", vector_grad, GRAD_0 + at, samples,
                            shape->length));
    DPB_TRY(dpb_dlrm_mlp_backward(net, &net->list->bottom, BOTTOM,
                                  dpb_dlrm_low(net, batch->x, LOW_X), samples, false, &at, ready,
                                  ctx));
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

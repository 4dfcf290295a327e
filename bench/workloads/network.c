#include "network.h"

#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"
#include "network_private.h"
#include "workload_parts.h"

static struct network *network_of(dpb_workload *workload)
{
    return (struct network *)workload;
}

/* ---- open, close ---- */

void dpb_network_close(dpb_workload *workload)
{
    struct network *net = network_of(workload);
    dpb_device *device;

    if (!net)
        return;
    device = net->launcher->device;
    if (net->memory)
        dpb_device_get_ops(device)->free(device, net->memory);
    if (net->host_parts)
        dpb_device_host_free(device, net->host_parts);
    dpb_results_close(net->results);
    free(net);
}

static bool has_batchnorm(const struct dpb_layer_list *list)
{
    return dpb_network_batchnorm_sums(list) > 0;
}

/* The sums of all ranks, and what is made of them. */
static int64_t sync_host_floats(const struct dpb_layer_list *list, int ranks)
{
    return dpb_network_batchnorm_parts(list, ranks) + 2 * dpb_network_batchnorm_sums(list);
}

static dpb_status open_sync(struct network *net)
{
    int64_t floats = dpb_network_batchnorm_parts(net->list, net->sync->size);
    void *parts = NULL;

    DPB_TRY(net->sync->alloc(net->sync->ctx, (size_t)floats * sizeof(float), &parts));
    net->parts = parts;
    if (dpb_device_is_host(net->launcher->device))
        return DPB_OK;
    floats = sync_host_floats(net->list, net->sync->size);
    DPB_TRY(dpb_device_host_alloc(net->launcher->device, (size_t)floats * sizeof(float), &parts));
    net->host_parts = parts;
    return DPB_OK;
}

static struct dpb_said said_at_most(const struct dpb_layer_list *list, int64_t samples)
{
    return (struct dpb_said){.samples = samples, .losses = 1, .classes = list->model.classes};
}

int64_t dpb_network_host_bytes_for(const struct dpb_layer_list *list,
                                   const struct dpb_workload_sizes *sizes)
{
    const struct dpb_said most = said_at_most(list, sizes->batch_max);
    const bool sync = sizes->sync_batch_statistics && sizes->ranks > 1 && has_batchnorm(list);

    return dpb_results_host_bytes(sizes->results, &most) +
           (sync ? sync_host_floats(list, sizes->ranks) * (int64_t)sizeof(float) : 0);
}

static dpb_status open_results(struct network *net, int64_t slots)
{
    const struct dpb_said most = said_at_most(net->list, net->batch_max);

    return dpb_results_open(net->launcher, slots, &most, &net->results);
}

dpb_status dpb_network_open(const struct dpb_workload_ops *ops, const struct dpb_layer_list *list,
                            const struct dpb_workload_config *config, dpb_workload **workload)
{
    struct network *net;
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
    net->watch = config->watch;
    net->batch_max = config->batch_max;
    net->precision = config->precision;
    net->sync_batch_statistics = config->sync_batch_statistics;
    /* a single rank's statistics are those of all */
    if (config->sync_batch_statistics && has_batchnorm(list) && config->ranks->size > 1)
        net->sync = config->ranks;
    DPB_TRY_GOTO(st, dpb_network_check_operators(net), err);
    DPB_TRY_GOTO(st, dpb_network_plan_make(list, &net->plan), err);
    if (net->sync)
        DPB_TRY_GOTO(st, open_sync(net), err);
    DPB_TRY_GOTO(st, dpb_network_memory_open(net), err);
    DPB_TRY_GOTO(st, open_results(net, config->results), err);
    *workload = (dpb_workload *)net;
    return DPB_OK;

err:
    dpb_network_close((dpb_workload *)net);
    return st;
}

void dpb_network_bind(dpb_workload *workload, float *const *param, float *const *grad)
{
    struct network *net = network_of(workload);
    size_t bytes = (size_t)net->list->param_count * sizeof(*param);

    memcpy(net->param, param, bytes);
    memcpy(net->grad, grad, bytes);
}

dpb_status dpb_network_init_params(dpb_workload *workload, uint64_t seed)
{
    struct network *net = network_of(workload);

    dpb_layer_list_init_params(net->list, seed, net->param);
    return dpb_network_reset_statistics(net);
}

bool dpb_network_state(dpb_workload *workload, int index, struct dpb_workload_state *state)
{
    struct network *net = network_of(workload);
    bool variance = index % 2 == 1;
    int before = index / 2; /* layers of batch normalisation */

    for (int i = 0; i < net->list->layer_count; i++) {
        const struct dpb_layer *layer = &net->list->layer[i];
        int64_t channels = layer->out[2];

        if (layer->kind != DPB_LAYER_BATCHNORM2D || before-- > 0)
            continue;
        *state = (struct dpb_workload_state){
                .name = variance ? layer->running_var : layer->running_mean,
                .kind = net->sync_batch_statistics ? DPB_STATE_REPLICATED : DPB_STATE_LOCAL,
                .data = net->extra[i].running + (variance ? channels : 0),
                .numel = channels};
        return true;
    }
    return false;
}

int64_t dpb_network_activation_bytes(dpb_workload *workload)
{
    const struct network *net = network_of(workload);

    return net->bytes + (net->sync ? dpb_network_exchange_bytes(net->list, net->sync->size) : 0);
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
        const int32_t label = dpb_batch_on_host(batch)->label[i];

        if (label < 0 || label >= model->classes) {
            dpb_error("workload \"%s\": sample %lld has label %ld, but there are %d classes",
                      ops->name, (long long)batch->sample_ids[i], (long)label, model->classes);
            return DPB_ERR_USAGE;
        }
    }
    return DPB_OK;
}

/* ---- forward ---- */

static bool exchanges(const struct network *net, int i)
{
    return net->sync && net->list->layer[i].kind == DPB_LAYER_BATCHNORM2D;
}

static dpb_status forward_of_none(struct network *net)
{
    for (int i = 0; i < net->list->layer_count; i++) {
        if (exchanges(net, i))
            DPB_TRY(dpb_network_batchnorm_forward_of_none(net, i));
    }
    return DPB_OK;
}

dpb_status dpb_network_forward(dpb_workload *workload, const struct dpb_batch *batch, bool training,
                               int64_t slot)
{
    struct network *net = network_of(workload);
    const struct dpb_model *model = &net->list->model;
    const struct dpb_said said = {.samples = batch->samples,
                                  .loss = net->loss,
                                  .losses = 1,
                                  .value = net->logits,
                                  .classes = model->classes,
                                  .value_stride = model->classes,
                                  .label = batch->label,
                                  .label_stride = 1};
    struct dpb_softmax_xent_args args;

    DPB_TRY(dpb_batch_check(net->base.ops, model, net->batch_max, batch));
    if (batch->samples == 0) {
        DPB_TRY(dpb_results_keep(net->results, slot, &said));
        DPB_TRY(dpb_params_use_all(net->watch, model));
        return training ? forward_of_none(net) : DPB_OK;
    }
    DPB_TRY(dpb_network_layers_forward(net, batch, training));
    args = (struct dpb_softmax_xent_args){
            .logits = dpb_tensor_2d(net->logits, batch->samples, model->classes),
            .prob = dpb_tensor_2d(net->prob, batch->samples, model->classes),
            .label = batch->label,
            .loss = net->loss};
    DPB_TRY(dpb_launch(net->launcher, "loss.fwd", DPB_OP_SOFTMAX_XENT_FWD, &args));
    return dpb_results_keep(net->results, slot, &said);
}

dpb_status dpb_network_read_result(dpb_workload *workload, int64_t slot,
                                   struct dpb_forward_result *result)
{
    return dpb_results_read(network_of(workload)->results, slot, result);
}

bool dpb_network_needs_host(dpb_workload *workload)
{
    return network_of(workload)->sync != NULL;
}

/* ---- backward ---- */

/* Exchanges come before the same gradients as on ranks that have samples. */
static dpb_status backward_of_none(struct network *net, dpb_grad_ready ready, void *ctx)
{
    const struct dpb_model *model = &net->list->model;
    int exchanged = net->list->layer_count;

    for (int r = 0; r < model->param_count; r++) {
        int p = model->ready_order[r];
        int i = model->params[p].layer;

        if (exchanges(net, i) && i < exchanged) {
            DPB_TRY(dpb_network_batchnorm_backward_of_none(net, i));
            exchanged = i;
        }
        DPB_TRY(dpb_param_use(net->watch, p, DPB_PASS_BACKWARD));
        DPB_TRY(dpb_gradient_clear(net->launcher, model, p, net->grad[p], net->zeros));
        DPB_TRY(ready(ctx, p));
    }
    return DPB_OK;
}

dpb_status dpb_network_backward(dpb_workload *workload, const struct dpb_batch *batch,
                                float grad_scale, dpb_grad_ready ready, void *ctx)
{
    struct network *net = network_of(workload);
    int classes = net->list->model.classes;
    struct dpb_softmax_xent_args args;

    if (batch->samples == 0)
        return backward_of_none(net, ready, ctx);
    args = (struct dpb_softmax_xent_args){
            .prob = dpb_tensor_2d(net->prob, batch->samples, classes),
            .dlogits = dpb_tensor_2d(net->dlogits, batch->samples, classes),
            .label = batch->label,
            .scale = grad_scale};
    DPB_TRY(dpb_launch(net->launcher, "loss.bwd", DPB_OP_SOFTMAX_XENT_BWD, &args));
    return dpb_network_layers_backward(net, batch, ready, ctx);
}

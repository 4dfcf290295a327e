/* The MLPs, in fp32 or bf16, and what passes between bf16 and fp32. */
#include "dlrm_private.h"

#include "workload_parts.h"

/* ---- precision ---- */

int64_t dpb_dlrm_low_weight_at(const struct dpb_dlrm_list *list, enum dpb_dtype precision,
                               int param)
{
    int64_t bytes = 0;

    for (int p = list->table_params; p < param; p++) {
        if (list->param[p].rank > 1)
            bytes += (list->param[p].numel * (int64_t)dpb_dtype_bytes(precision) + 63) / 64 * 64;
    }
    return bytes;
}

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

float *dpb_dlrm_wide(const struct dlrm *net, int same, int mixed)
{
    return net->buffer[is_mixed(net) ? mixed : same];
}

const void *dpb_dlrm_low(const struct dlrm *net, const float *values, enum buffer low)
{
    return is_mixed(net) ? net->buffer[low] : values;
}

dpb_status dpb_dlrm_narrow(const struct dlrm *net, const char *name, const float *values, int to,
                           int64_t rows, int64_t columns)
{
    struct dpb_cast_args args = {
            .from = dpb_tensor_2d((float *)values, rows, columns),
            .to = tensor_of(net->sizes.precision, net->buffer[to], rows, columns)};

    return is_mixed(net) ? dpb_launch(net->launcher, name, DPB_OP_CAST, &args) : DPB_OK;
}

dpb_status dpb_dlrm_widen(const struct dlrm *net, const char *name, int from, enum buffer to,
                          int64_t rows, int64_t columns)
{
    struct dpb_cast_args args = {
            .from = tensor_of(net->sizes.precision, net->buffer[from], rows, columns),
            .to = dpb_tensor_2d(net->buffer[to], rows, columns)};

    return is_mixed(net) ? dpb_launch(net->launcher, name, DPB_OP_CAST, &args) : DPB_OK;
}

static void *weight_of(const struct dlrm *net, const struct dpb_layer *layer)
{
    return is_mixed(net)
                   ? (char *)net->buffer[LOW_WEIGHTS] +
                             dpb_dlrm_low_weight_at(net->list, net->sizes.precision, layer->weight)
                   : (void *)net->param[layer->weight];
}

static dpb_status use_params(const struct dlrm *net, const struct dpb_layer *layer,
                             enum dpb_pass pass)
{
    DPB_TRY(dpb_param_use(net->watch, layer->weight, pass));
    return dpb_param_use(net->watch, layer->bias, pass);
}

/* A weight as it is after the last update. */
static dpb_status narrow_weight(const struct dlrm *net, const struct dpb_layer *layer)
{
    struct dpb_cast_args args = {
            .from = dpb_tensor_2d(net->param[layer->weight], layer->out[2], layer->in[2]),
            .to = tensor_of(net->sizes.precision, weight_of(net, layer), layer->out[2],
                            layer->in[2])};

    return is_mixed(net) ? dpb_launch(net->launcher, layer->op.cast, DPB_OP_CAST, &args) : DPB_OK;
}

/* ---- layers ---- */

static struct dpb_linear linear_of(const struct dlrm *net, const struct dpb_layer *layer,
                                   const void *x, int64_t samples)
{
    return (struct dpb_linear){.dtype = net->sizes.precision,
                               .samples = samples,
                               .x = x,
                               .weight = weight_of(net, layer),
                               .bias = net->param[layer->bias]};
}

dpb_status dpb_dlrm_mlp_forward(const struct dlrm *net, const struct dpb_layer_list *mlp,
                                int outputs, const void *x, int64_t samples)
{
    for (int i = 0; i < mlp->layer_count; i++) {
        DPB_TRY(use_params(net, &mlp->layer[i], DPB_PASS_FORWARD));
        DPB_TRY(narrow_weight(net, &mlp->layer[i]));
        const struct dpb_linear linear = linear_of(net, &mlp->layer[i], x, samples);

        DPB_TRY(dpb_linear_forward(net->launcher, &mlp->layer[i], &linear,
                                   net->buffer[outputs + i]));
        x = net->buffer[outputs + i];
    }
    return DPB_OK;
}

dpb_status dpb_dlrm_mlp_backward(const struct dlrm *net, const struct dpb_layer_list *mlp,
                                 int outputs, const void *x, int64_t samples, bool data, int *at,
                                 dpb_grad_ready ready, void *ctx)
{
    for (int i = mlp->layer_count - 1; i >= 0; i--) {
        const struct dpb_layer *layer = &mlp->layer[i];
        DPB_TRY(use_params(net, layer, DPB_PASS_BACKWARD));
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
        DPB_TRY(dpb_linear_backward(net->launcher, layer, &linear, net->grad, dy, dx, ready, ctx));
        *at = !*at;
    }
    return DPB_OK;
}

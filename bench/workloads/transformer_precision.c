/* Mixed precision: what the device must have, and the casts. */
#include "transformer_private.h"

#include <string.h>

#include "dpb_log.h"

/* ---- operators ---- */

static const enum dpb_op always[] = {
        DPB_OP_MATMUL,        DPB_OP_BIAS_BWD,      DPB_OP_ADD,           DPB_OP_GELU_FWD,
        DPB_OP_GELU_BWD,      DPB_OP_LAYERNORM_FWD, DPB_OP_LAYERNORM_BWD, DPB_OP_EMBEDDING_FWD,
        DPB_OP_EMBEDDING_BWD, DPB_OP_ATTENTION_FWD, DPB_OP_ATTENTION_BWD};
static const enum dpb_op of_bert[] = {DPB_OP_TANH_FWD, DPB_OP_TANH_BWD};
static const enum dpb_op of_dropout[] = {DPB_OP_DROPOUT_FWD, DPB_OP_DROPOUT_BWD};
static const enum dpb_op of_mixed[] = {DPB_OP_CAST};

static dpb_status check_ops(const struct dpb_transformer *net, dpb_device *device,
                            const enum dpb_op *op, size_t count)
{
    const struct dpb_device_ops *ops = dpb_device_get_ops(device);

    for (size_t i = 0; i < count; i++) {
        if (ops->op_supported(device, op[i], net->precision))
            continue;
        dpb_error("workload \"%s\": device \"%s\" has no %s in %s", net->base.ops->name, ops->name,
                  dpb_op_text(op[i]), dpb_dtype_text(net->precision));
        dpb_log_hint(net->precision == DPB_F32 ? "use another --device"
                                               : "use --precision fp32, or another --device");
        return DPB_ERR_UNSUPPORTED;
    }
    return DPB_OK;
}

#define CHECK(ops) check_ops(net, device, ops, sizeof(ops) / sizeof((ops)[0]))

dpb_status dpb_transformer_check_device(const struct dpb_transformer *net, dpb_device *device)
{
    DPB_TRY(CHECK(always));
    if (net->list->shape.family == DPB_TRANSFORMER_BERT)
        DPB_TRY(CHECK(of_bert));
    if (net->dropout > 0.0)
        DPB_TRY(CHECK(of_dropout));
    return net->precision == DPB_F32 ? DPB_OK : CHECK(of_mixed);
}

/* ---- casts ---- */

bool dpb_transformer_has_shadow(const struct dpb_transformer_list *list, int layer)
{
    return layer == list->word ||
           (layer != list->decoder && strcmp(list->info[layer].kind, "linear") == 0);
}

dpb_status dpb_transformer_cast_weight(struct dpb_transformer *net, int index)
{
    const struct dpb_transformer_layer *layer = &net->list->layer[index];
    struct dpb_cast_args args;

    if (net->precision == DPB_F32 || !dpb_transformer_has_shadow(net->list, index))
        return DPB_OK;
    args.from = dpb_tensor_1d(net->param[layer->weight], net->list->param[layer->weight].numel);
    args.to = args.from;
    args.to.data = net->shadow[layer->weight];
    args.to.dtype = net->precision;
    return dpb_launch(net->launcher, layer->op.cast, DPB_OP_CAST, &args);
}

float *dpb_transformer_sum_begin(const struct dpb_transformer *net, void *values)
{
    return net->precision == DPB_F32 ? values : net->wide_grad;
}

dpb_status dpb_transformer_sum_end(struct dpb_transformer *net, const char *name, int64_t rows,
                                   void *values)
{
    int64_t hidden = net->list->shape.hidden;
    struct dpb_cast_args args = {.from = dpb_tensor_2d(net->wide_grad, rows, hidden),
                                 .to = dpb_transformer_matrix(net, values, rows, hidden)};

    return net->precision == DPB_F32 ? DPB_OK : dpb_launch(net->launcher, name, DPB_OP_CAST, &args);
}

/* Mixed precision: what the device must have, and the casts. */
#include "transformer_private.h"

#include <string.h>

/* ---- operators ---- */

#define ALWAYS                                                                                     \
    (DPB_OPERATOR(DPB_OP_MATMUL) | DPB_OPERATOR(DPB_OP_BIAS_BWD) | DPB_OPERATOR(DPB_OP_ADD) |      \
     DPB_OPERATOR(DPB_OP_GELU_FWD) | DPB_OPERATOR(DPB_OP_GELU_BWD) |                               \
     DPB_OPERATOR(DPB_OP_LAYERNORM_FWD) | DPB_OPERATOR(DPB_OP_LAYERNORM_BWD) |                     \
     DPB_OPERATOR(DPB_OP_EMBEDDING_FWD) | DPB_OPERATOR(DPB_OP_EMBEDDING_BWD) |                     \
     DPB_OPERATOR(DPB_OP_ATTENTION_FWD) | DPB_OPERATOR(DPB_OP_ATTENTION_BWD))
#define OF_BERT    (DPB_OPERATOR(DPB_OP_TANH_FWD) | DPB_OPERATOR(DPB_OP_TANH_BWD))
#define OF_DROPOUT (DPB_OPERATOR(DPB_OP_DROPOUT_FWD) | DPB_OPERATOR(DPB_OP_DROPOUT_BWD))

uint64_t dpb_transformer_operators(const struct dpb_transformer_list *list, double dropout,
                                   enum dpb_dtype precision)
{
    return ALWAYS | (list->shape.family == DPB_TRANSFORMER_BERT ? OF_BERT : 0) |
           (dropout > 0.0 ? OF_DROPOUT : 0) |
           (precision == DPB_F32 ? 0 : DPB_OPERATOR(DPB_OP_CAST));
}

dpb_status dpb_transformer_check_device(const struct dpb_transformer *net, dpb_device *device)
{
    return dpb_workload_check_operators(
            net->base.ops->name, dpb_transformer_operators(net->list, net->dropout, net->precision),
            net->precision, device);
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

#include "transformer_private.h"

#include <math.h>

#define BERT_EPS 1e-12f
#define GPT2_EPS 1e-5f

static const struct dpb_transformer_layer *layer_of(const struct dpb_transformer *net, int layer)
{
    return &net->list->layer[layer];
}

static bool is_bert(const struct dpb_transformer *net)
{
    return net->list->shape.family == DPB_TRANSFORMER_BERT;
}

static struct dpb_tensor matrix(const struct dpb_transformer *net, const void *data, int64_t rows,
                                int64_t columns)
{
    return dpb_transformer_matrix(net, data, rows, columns);
}

static struct dpb_tensor volume(const struct dpb_transformer *net, void *data, int64_t a, int64_t b,
                                int64_t c, int64_t d)
{
    struct dpb_tensor tensor = dpb_tensor_4d(data, a, b, c, d);

    tensor.dtype = net->precision;
    return tensor;
}

static dpb_status report(const struct dpb_transformer_ready *ready, int param)
{
    return ready->call(ready->ctx, param);
}

/* Before anything of the layer's parameters is looked for. */
static dpb_status use_params(const struct dpb_transformer *net,
                             const struct dpb_transformer_layer *layer, enum dpb_pass pass)
{
    DPB_TRY(dpb_param_use(net->watch, layer->weight, pass));
    return dpb_param_use(net->watch, layer->bias, pass);
}

/* ---- linear ---- */

/* The weight as it is registered. */
static struct dpb_tensor shaped_as_weight(const struct dpb_transformer_layer *layer, void *data)
{
    return layer->in_first ? dpb_tensor_2d(data, layer->in, layer->out)
                           : dpb_tensor_2d(data, layer->out, layer->in);
}

static struct dpb_tensor weight_of(const struct dpb_transformer *net,
                                   const struct dpb_transformer_layer *layer)
{
    bool mixed = net->precision != DPB_F32;
    struct dpb_tensor weight =
            shaped_as_weight(layer, mixed ? net->shadow[layer->weight] : net->param[layer->weight]);

    weight.dtype = net->precision;
    return weight;
}

dpb_status dpb_transformer_linear_fwd(struct dpb_transformer *net, int index, int64_t rows,
                                      const void *x, void *y)
{
    const struct dpb_transformer_layer *layer = layer_of(net, index);
    DPB_TRY(use_params(net, layer, DPB_PASS_FORWARD));
    DPB_TRY(dpb_transformer_cast_weight(net, index));
    struct dpb_matmul_args args = {.a = matrix(net, x, rows, layer->in),
                                   .b = weight_of(net, layer),
                                   .c = matrix(net, y, rows, layer->out),
                                   .bias = layer->bias < 0 ? NULL : net->param[layer->bias],
                                   .trans_b = !layer->in_first};

    if (index == net->list->decoder || index == net->list->relation) /* logits */
        args.c.dtype = DPB_F32;
    return dpb_launch(net->launcher, layer->op.fwd, DPB_OP_MATMUL, &args);
}

static dpb_status linear_bwd_weights(struct dpb_transformer *net,
                                     const struct dpb_transformer_layer *layer, int64_t rows,
                                     const void *x, const void *dy)
{
    struct dpb_tensor in = matrix(net, x, rows, layer->in), out = matrix(net, dy, rows, layer->out);
    struct dpb_matmul_args args = {.a = layer->in_first ? in : out,
                                   .b = layer->in_first ? out : in,
                                   .c = shaped_as_weight(layer, net->grad[layer->weight]),
                                   .trans_a = true};

    return dpb_launch(net->launcher, layer->op.bwd_weights, DPB_OP_MATMUL, &args);
}

dpb_status dpb_transformer_linear_bwd(struct dpb_transformer *net, int index, int64_t rows,
                                      const void *x, const void *dy, void *dx, bool add,
                                      const struct dpb_transformer_ready *ready)
{
    const struct dpb_transformer_layer *layer = layer_of(net, index);
    DPB_TRY(use_params(net, layer, DPB_PASS_BACKWARD));
    struct dpb_matmul_args data = {.a = matrix(net, dy, rows, layer->out),
                                   .b = weight_of(net, layer),
                                   .c = matrix(net, dx, rows, layer->in),
                                   .trans_b = layer->in_first,
                                   .beta = add ? 1.0f : 0.0f};

    if (layer->bias >= 0) {
        struct dpb_bias_args bias = {.y = data.a, .bias = net->grad[layer->bias]};

        DPB_TRY(dpb_launch(net->launcher, layer->op.bwd_bias, DPB_OP_BIAS_BWD, &bias));
        DPB_TRY(report(ready, layer->bias));
    }
    DPB_TRY(linear_bwd_weights(net, layer, rows, x, dy));
    if (index != net->list->decoder)
        DPB_TRY(report(ready, layer->weight));
    return dpb_launch(net->launcher, layer->op.bwd_data, DPB_OP_MATMUL, &data);
}

/* ---- norms, activations, sums ---- */

static struct dpb_layernorm_args norm_args(const struct dpb_transformer *net,
                                           const struct dpb_transformer_layer *layer, int64_t rows,
                                           const void *x, const struct dpb_transformer_norm *norm)
{
    return (struct dpb_layernorm_args){.x = matrix(net, x, rows, layer->in),
                                       .gamma = net->param[layer->weight],
                                       .beta = net->param[layer->bias],
                                       .save_mean = norm->mean,
                                       .save_rstd = norm->rstd,
                                       .eps = is_bert(net) ? BERT_EPS : GPT2_EPS};
}

dpb_status dpb_transformer_norm_fwd(struct dpb_transformer *net, int index, int64_t rows,
                                    const void *x, const struct dpb_transformer_norm *norm)
{
    const struct dpb_transformer_layer *layer = layer_of(net, index);
    DPB_TRY(use_params(net, layer, DPB_PASS_FORWARD));
    struct dpb_layernorm_args args = norm_args(net, layer, rows, x, norm);

    args.y = matrix(net, norm->y, rows, layer->out);
    return dpb_launch(net->launcher, layer->op.fwd, DPB_OP_LAYERNORM_FWD, &args);
}

dpb_status dpb_transformer_norm_bwd(struct dpb_transformer *net, int index, int64_t rows,
                                    const void *x, const struct dpb_transformer_norm *norm,
                                    const void *dy, void *dx,
                                    const struct dpb_transformer_ready *ready)
{
    const struct dpb_transformer_layer *layer = layer_of(net, index);
    DPB_TRY(use_params(net, layer, DPB_PASS_BACKWARD));
    struct dpb_layernorm_args args = norm_args(net, layer, rows, x, norm);

    args.dy = matrix(net, dy, rows, layer->out);
    args.dx = matrix(net, dx, rows, layer->in);
    args.dgamma = net->grad[layer->weight];
    args.dbeta = net->grad[layer->bias];
    DPB_TRY(dpb_launch(net->launcher, layer->op.bwd, DPB_OP_LAYERNORM_BWD, &args));
    DPB_TRY(report(ready, layer->weight));
    return report(ready, layer->bias);
}

/* BERT's GELU is exact, GPT-2's the form with tanh. */
dpb_status dpb_transformer_gelu_fwd(struct dpb_transformer *net, int index, int64_t rows,
                                    const void *x, void *y)
{
    const struct dpb_transformer_layer *layer = layer_of(net, index);
    struct dpb_activation_args args = {.x = matrix(net, x, rows, layer->in),
                                       .y = matrix(net, y, rows, layer->out),
                                       .tanh_form = !is_bert(net)};

    return dpb_launch(net->launcher, layer->op.fwd, DPB_OP_GELU_FWD, &args);
}

dpb_status dpb_transformer_gelu_bwd(struct dpb_transformer *net, int index, int64_t rows,
                                    const void *x, void *grad)
{
    const struct dpb_transformer_layer *layer = layer_of(net, index);
    struct dpb_activation_args args = {.x = matrix(net, x, rows, layer->in),
                                       .dy = matrix(net, grad, rows, layer->out),
                                       .dx = matrix(net, grad, rows, layer->in),
                                       .tanh_form = !is_bert(net)};

    return dpb_launch(net->launcher, layer->op.bwd, DPB_OP_GELU_BWD, &args);
}

dpb_status dpb_transformer_tanh_fwd(struct dpb_transformer *net, int index, int64_t rows, void *y)
{
    const struct dpb_transformer_layer *layer = layer_of(net, index);
    struct dpb_tensor both = matrix(net, y, rows, layer->out);
    struct dpb_activation_args args = {.x = both, .y = both};

    return dpb_launch(net->launcher, layer->op.fwd, DPB_OP_TANH_FWD, &args);
}

dpb_status dpb_transformer_tanh_bwd(struct dpb_transformer *net, int index, int64_t rows,
                                    const void *y, void *grad)
{
    const struct dpb_transformer_layer *layer = layer_of(net, index);
    struct dpb_tensor both = matrix(net, grad, rows, layer->out);
    struct dpb_activation_args args = {
            .y = matrix(net, y, rows, layer->out), .dy = both, .dx = both};

    return dpb_launch(net->launcher, layer->op.bwd, DPB_OP_TANH_BWD, &args);
}

dpb_status dpb_transformer_add(struct dpb_transformer *net, int index, int64_t rows, const void *a,
                               const void *b, void *y)
{
    const struct dpb_transformer_layer *layer = layer_of(net, index);
    struct dpb_add_args args = {.a = matrix(net, a, rows, layer->out),
                                .b = matrix(net, b, rows, layer->out),
                                .y = matrix(net, y, rows, layer->out)};

    return dpb_launch(net->launcher, layer->op.add, DPB_OP_ADD, &args);
}

/* ---- attention ---- */

int64_t dpb_transformer_attention_floats(const struct dpb_transformer_shape *shape, int64_t samples)
{
    return samples * shape->heads * shape->sequence * shape->sequence;
}

/* BERT's queries, keys and values are planes of their own, GPT-2's are columns of one matrix; their
 * gradients in wide_grad lie alike. */
static struct dpb_attention_args attention_args(const struct dpb_transformer *net, int block,
                                                int64_t samples)
{
    const struct dpb_transformer_shape *shape = &net->list->shape;
    const struct dpb_transformer_block_values *v = &net->block[block];
    int64_t width = shape->hidden / shape->heads, sequence = shape->sequence;

    return (struct dpb_attention_args){
            .q = volume(net, v->query, samples, sequence, shape->heads, width),
            .k = volume(net, v->key, samples, sequence, shape->heads, width),
            .v = volume(net, v->value, samples, sequence, shape->heads, width),
            .prob = volume(net, v->attention, samples, shape->heads, sequence, sequence),
            .stride = is_bert(net) ? shape->hidden : 3 * shape->hidden,
            .scale = 1.0f / sqrtf((float)width),
            .causal = !is_bert(net),
            .keep = net->masks.keep,
            .seed = dpb_transformer_mask_seed(net->seed, net->masks.step, DPB_PLACE_ATTENTION,
                                              block),
            .offset = (uint64_t)net->masks.first *
                      (uint64_t)dpb_transformer_attention_floats(shape, 1)};
}

dpb_status dpb_transformer_attention_fwd(struct dpb_transformer *net, int block, int64_t samples)
{
    const struct dpb_transformer_layer *layer = layer_of(net, net->list->block[block].attention);
    struct dpb_attention_args args = attention_args(net, block, samples);

    args.y = args.q;
    args.y.data = net->block[block].context;
    return dpb_launch(net->launcher, layer->op.fwd, DPB_OP_ATTENTION_FWD, &args);
}

dpb_status dpb_transformer_attention_bwd(struct dpb_transformer *net, int block, int64_t samples,
                                         const void *dy)
{
    const struct dpb_transformer_layer *layer = layer_of(net, net->list->block[block].attention);
    const struct dpb_transformer_block_values *v = &net->block[block];
    struct dpb_attention_args args = attention_args(net, block, samples);

    args.dy = args.q;
    args.dy.data = (void *)dy;
    args.dq = args.q;
    args.dq.data = net->wide_grad;
    args.dk = args.q;
    args.dk.data = dpb_transformer_beside(net->wide_grad, v->key, v->query);
    args.dv = args.q;
    args.dv.data = dpb_transformer_beside(net->wide_grad, v->value, v->query);
    args.workspace = net->attention_workspace;
    return dpb_launch(net->launcher, layer->op.bwd, DPB_OP_ATTENTION_BWD, &args);
}

/* ---- embeddings, and rows picked by their number ---- */

static dpb_status look_up(struct dpb_transformer *net, int index, const int32_t *ids, int64_t rows,
                          float *y, bool add)
{
    const struct dpb_transformer_layer *layer = layer_of(net, index);
    DPB_TRY(use_params(net, layer, DPB_PASS_FORWARD));
    DPB_TRY(dpb_transformer_cast_weight(net, index));
    const int64_t *dim = net->list->param[layer->weight].dim;
    struct dpb_embedding_args args = {
            .table = dpb_tensor_2d(net->param[layer->weight], dim[0], dim[1]),
            .y = dpb_tensor_2d(y, rows, dim[1]),
            .ids = ids,
            .accumulate = add};

    return dpb_launch(net->launcher, layer->op.fwd, DPB_OP_EMBEDDING_FWD, &args);
}

dpb_status dpb_transformer_embed_fwd(struct dpb_transformer *net, const struct dpb_batch *batch)
{
    const struct dpb_transformer_list *list = net->list;
    int64_t rows = batch->samples * list->shape.sequence;
    float *sum = dpb_transformer_sum_begin(net, net->embedded);

    DPB_TRY(look_up(net, list->word, batch->tokens, rows, sum, false));
    if (list->segment >= 0)
        DPB_TRY(look_up(net, list->segment, batch->segments, rows, sum, true));
    DPB_TRY(look_up(net, list->position, net->position, rows, sum, true));
    return dpb_transformer_sum_end(net, list->layer[list->word].op.add, rows, net->embedded);
}

static dpb_status look_up_bwd(struct dpb_transformer *net, int index, const int32_t *ids,
                              int64_t rows, const void *dy, bool add,
                              const struct dpb_transformer_ready *ready)
{
    const struct dpb_transformer_layer *layer = layer_of(net, index);
    DPB_TRY(use_params(net, layer, DPB_PASS_BACKWARD));
    const int64_t *dim = net->list->param[layer->weight].dim;
    struct dpb_embedding_args args = {
            .dtable = dpb_tensor_2d(net->grad[layer->weight], dim[0], dim[1]),
            .dy = matrix(net, dy, rows, dim[1]),
            .ids = ids,
            .accumulate = add};

    DPB_TRY(dpb_launch(net->launcher, layer->op.bwd, DPB_OP_EMBEDDING_BWD, &args));
    return report(ready, layer->weight);
}

/* The word embedding's gradient already holds the decoder's share. */
dpb_status dpb_transformer_embed_bwd(struct dpb_transformer *net, const struct dpb_batch *batch,
                                     const void *dy, const struct dpb_transformer_ready *ready)
{
    const struct dpb_transformer_list *list = net->list;
    int64_t rows = batch->samples * list->shape.sequence;

    DPB_TRY(look_up_bwd(net, list->position, net->position, rows, dy, false, ready));
    if (list->segment >= 0)
        DPB_TRY(look_up_bwd(net, list->segment, batch->segments, rows, dy, false, ready));
    return look_up_bwd(net, list->word, batch->tokens, rows, dy, true, ready);
}

dpb_status dpb_transformer_pick_fwd(struct dpb_transformer *net, const char *name, int64_t rows,
                                    const void *x, const int32_t *row, int64_t count, void *y)
{
    int64_t hidden = net->list->shape.hidden;
    struct dpb_embedding_args args = {
            .table = matrix(net, x, rows, hidden), .y = matrix(net, y, count, hidden), .ids = row};

    return dpb_launch(net->launcher, name, DPB_OP_EMBEDDING_FWD, &args);
}

dpb_status dpb_transformer_pick_bwd(struct dpb_transformer *net, const char *name, int64_t rows,
                                    float *dx, bool add, const int32_t *row, int64_t count,
                                    const void *dy)
{
    int64_t hidden = net->list->shape.hidden;
    struct dpb_embedding_args args = {.dtable = dpb_tensor_2d(dx, rows, hidden),
                                      .dy = matrix(net, dy, count, hidden),
                                      .ids = row,
                                      .accumulate = add};

    return dpb_launch(net->launcher, name, DPB_OP_EMBEDDING_BWD, &args);
}

/* ---- loss ---- */

dpb_status dpb_transformer_loss_fwd(struct dpb_transformer *net, const char *name, int64_t rows,
                                    int64_t classes, float *logits, const int32_t *label,
                                    float *loss)
{
    struct dpb_tensor both = dpb_tensor_2d(logits, rows, classes);
    struct dpb_softmax_xent_args args = {
            .logits = both, .prob = both, .label = label, .loss = loss};

    return dpb_launch(net->launcher, name, DPB_OP_SOFTMAX_XENT_FWD, &args);
}

dpb_status dpb_transformer_loss_bwd(struct dpb_transformer *net, const char *name, int64_t rows,
                                    int64_t classes, float *logits, const int32_t *label,
                                    float scale, void *grad)
{
    struct dpb_tensor both = dpb_tensor_2d(logits, rows, classes);
    struct dpb_softmax_xent_args args = {
            .prob = both, .dlogits = both, .label = label, .scale = scale};
    struct dpb_cast_args cast = {.from = both, .to = matrix(net, grad, rows, classes)};

    DPB_TRY(dpb_launch(net->launcher, name, DPB_OP_SOFTMAX_XENT_BWD, &args));
    return grad == logits ? DPB_OK : dpb_launch(net->launcher, name, DPB_OP_CAST, &cast);
}

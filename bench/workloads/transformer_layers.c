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

static struct dpb_tensor matrix(const float *data, int64_t rows, int64_t columns)
{
    return dpb_tensor_2d((float *)data, rows, columns);
}

static dpb_status report(const struct dpb_transformer_ready *ready, int param)
{
    return ready->call(ready->ctx, param);
}

/* ---- linear ---- */

/* The weight as it is registered, or its gradient. */
static struct dpb_tensor weight_of(const struct dpb_transformer_layer *layer, float *const *of)
{
    return layer->in_first ? matrix(of[layer->weight], layer->in, layer->out)
                           : matrix(of[layer->weight], layer->out, layer->in);
}

dpb_status dpb_transformer_linear_fwd(struct dpb_transformer *net, int index, int64_t rows,
                                      const float *x, float *y)
{
    const struct dpb_transformer_layer *layer = layer_of(net, index);
    struct dpb_matmul_args args = {.a = matrix(x, rows, layer->in),
                                   .b = weight_of(layer, net->param),
                                   .c = matrix(y, rows, layer->out),
                                   .bias = layer->bias < 0 ? NULL : net->param[layer->bias],
                                   .trans_b = !layer->in_first};

    return dpb_launch(net->launcher, layer->op.fwd, DPB_OP_MATMUL, &args);
}

static dpb_status linear_bwd_weights(struct dpb_transformer *net,
                                     const struct dpb_transformer_layer *layer, int64_t rows,
                                     const float *x, const float *dy)
{
    struct dpb_tensor in = matrix(x, rows, layer->in), out = matrix(dy, rows, layer->out);
    struct dpb_matmul_args args = {.a = layer->in_first ? in : out,
                                   .b = layer->in_first ? out : in,
                                   .c = weight_of(layer, net->grad),
                                   .trans_a = true};

    return dpb_launch(net->launcher, layer->op.bwd_weights, DPB_OP_MATMUL, &args);
}

dpb_status dpb_transformer_linear_bwd(struct dpb_transformer *net, int index, int64_t rows,
                                      const float *x, const float *dy, float *dx, bool add,
                                      const struct dpb_transformer_ready *ready)
{
    const struct dpb_transformer_layer *layer = layer_of(net, index);
    struct dpb_matmul_args data = {.a = matrix(dy, rows, layer->out),
                                   .b = weight_of(layer, net->param),
                                   .c = matrix(dx, rows, layer->in),
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
                                           const float *x, const struct dpb_transformer_norm *norm)
{
    return (struct dpb_layernorm_args){.x = matrix(x, rows, layer->in),
                                       .gamma = net->param[layer->weight],
                                       .beta = net->param[layer->bias],
                                       .save_mean = norm->mean,
                                       .save_rstd = norm->rstd,
                                       .eps = is_bert(net) ? BERT_EPS : GPT2_EPS};
}

dpb_status dpb_transformer_norm_fwd(struct dpb_transformer *net, int index, int64_t rows,
                                    const float *x, const struct dpb_transformer_norm *norm)
{
    const struct dpb_transformer_layer *layer = layer_of(net, index);
    struct dpb_layernorm_args args = norm_args(net, layer, rows, x, norm);

    args.y = matrix(norm->y, rows, layer->out);
    return dpb_launch(net->launcher, layer->op.fwd, DPB_OP_LAYERNORM_FWD, &args);
}

dpb_status dpb_transformer_norm_bwd(struct dpb_transformer *net, int index, int64_t rows,
                                    const float *x, const struct dpb_transformer_norm *norm,
                                    const float *dy, float *dx,
                                    const struct dpb_transformer_ready *ready)
{
    const struct dpb_transformer_layer *layer = layer_of(net, index);
    struct dpb_layernorm_args args = norm_args(net, layer, rows, x, norm);

    args.dy = matrix(dy, rows, layer->out);
    args.dx = matrix(dx, rows, layer->in);
    args.dgamma = net->grad[layer->weight];
    args.dbeta = net->grad[layer->bias];
    DPB_TRY(dpb_launch(net->launcher, layer->op.bwd, DPB_OP_LAYERNORM_BWD, &args));
    DPB_TRY(report(ready, layer->weight));
    return report(ready, layer->bias);
}

/* BERT's GELU is exact, GPT-2's the form with tanh. */
dpb_status dpb_transformer_gelu_fwd(struct dpb_transformer *net, int index, int64_t rows,
                                    const float *x, float *y)
{
    const struct dpb_transformer_layer *layer = layer_of(net, index);
    struct dpb_activation_args args = {.x = matrix(x, rows, layer->in),
                                       .y = matrix(y, rows, layer->out),
                                       .tanh_form = !is_bert(net)};

    return dpb_launch(net->launcher, layer->op.fwd, DPB_OP_GELU_FWD, &args);
}

dpb_status dpb_transformer_gelu_bwd(struct dpb_transformer *net, int index, int64_t rows,
                                    const float *x, float *grad)
{
    const struct dpb_transformer_layer *layer = layer_of(net, index);
    struct dpb_activation_args args = {.x = matrix(x, rows, layer->in),
                                       .dy = matrix(grad, rows, layer->out),
                                       .dx = matrix(grad, rows, layer->in),
                                       .tanh_form = !is_bert(net)};

    return dpb_launch(net->launcher, layer->op.bwd, DPB_OP_GELU_BWD, &args);
}

dpb_status dpb_transformer_tanh_fwd(struct dpb_transformer *net, int index, int64_t rows, float *y)
{
    const struct dpb_transformer_layer *layer = layer_of(net, index);
    struct dpb_tensor both = matrix(y, rows, layer->out);
    struct dpb_activation_args args = {.x = both, .y = both};

    return dpb_launch(net->launcher, layer->op.fwd, DPB_OP_TANH_FWD, &args);
}

dpb_status dpb_transformer_tanh_bwd(struct dpb_transformer *net, int index, int64_t rows,
                                    const float *y, float *grad)
{
    const struct dpb_transformer_layer *layer = layer_of(net, index);
    struct dpb_tensor both = matrix(grad, rows, layer->out);
    struct dpb_activation_args args = {.y = matrix(y, rows, layer->out), .dy = both, .dx = both};

    return dpb_launch(net->launcher, layer->op.bwd, DPB_OP_TANH_BWD, &args);
}

dpb_status dpb_transformer_add(struct dpb_transformer *net, int index, int64_t rows, const float *a,
                               const float *b, float *y)
{
    const struct dpb_transformer_layer *layer = layer_of(net, index);
    struct dpb_add_args args = {.a = matrix(a, rows, layer->out),
                                .b = matrix(b, rows, layer->out),
                                .y = matrix(y, rows, layer->out)};

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
            .q = dpb_tensor_4d(v->query, samples, sequence, shape->heads, width),
            .k = dpb_tensor_4d(v->key, samples, sequence, shape->heads, width),
            .v = dpb_tensor_4d(v->value, samples, sequence, shape->heads, width),
            .prob = dpb_tensor_4d(v->attention, samples, shape->heads, sequence, sequence),
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
                                         const float *dy)
{
    const struct dpb_transformer_layer *layer = layer_of(net, net->list->block[block].attention);
    const struct dpb_transformer_block_values *v = &net->block[block];
    struct dpb_attention_args args = attention_args(net, block, samples);

    args.dy = args.q;
    args.dy.data = (float *)dy;
    args.dq = args.q;
    args.dq.data = net->wide_grad;
    args.dk = args.q;
    args.dk.data = net->wide_grad + (v->key - v->query);
    args.dv = args.q;
    args.dv.data = net->wide_grad + (v->value - v->query);
    args.workspace = net->attention_workspace;
    return dpb_launch(net->launcher, layer->op.bwd, DPB_OP_ATTENTION_BWD, &args);
}

/* ---- embeddings, and rows picked by their number ---- */

static dpb_status look_up(struct dpb_transformer *net, int index, const int32_t *ids, int64_t rows,
                          bool add)
{
    const struct dpb_transformer_layer *layer = layer_of(net, index);
    const int64_t *dim = net->list->param[layer->weight].dim;
    struct dpb_embedding_args args = {.table = matrix(net->param[layer->weight], dim[0], dim[1]),
                                      .y = matrix(net->embedded, rows, dim[1]),
                                      .ids = ids,
                                      .accumulate = add};

    return dpb_launch(net->launcher, layer->op.fwd, DPB_OP_EMBEDDING_FWD, &args);
}

dpb_status dpb_transformer_embed_fwd(struct dpb_transformer *net, const struct dpb_batch *batch)
{
    const struct dpb_transformer_list *list = net->list;
    int64_t rows = batch->samples * list->shape.sequence;

    DPB_TRY(look_up(net, list->word, batch->tokens, rows, false));
    DPB_TRY(look_up(net, list->position, net->position, rows, true));
    return list->segment < 0 ? DPB_OK : look_up(net, list->segment, batch->segments, rows, true);
}

static dpb_status look_up_bwd(struct dpb_transformer *net, int index, const int32_t *ids,
                              int64_t rows, const float *dy, bool add,
                              const struct dpb_transformer_ready *ready)
{
    const struct dpb_transformer_layer *layer = layer_of(net, index);
    const int64_t *dim = net->list->param[layer->weight].dim;
    struct dpb_embedding_args args = {.dtable = matrix(net->grad[layer->weight], dim[0], dim[1]),
                                      .dy = matrix(dy, rows, dim[1]),
                                      .ids = ids,
                                      .accumulate = add};

    DPB_TRY(dpb_launch(net->launcher, layer->op.bwd, DPB_OP_EMBEDDING_BWD, &args));
    return report(ready, layer->weight);
}

/* The word embedding's gradient already holds the decoder's share. */
dpb_status dpb_transformer_embed_bwd(struct dpb_transformer *net, const struct dpb_batch *batch,
                                     const float *dy, const struct dpb_transformer_ready *ready)
{
    const struct dpb_transformer_list *list = net->list;
    int64_t rows = batch->samples * list->shape.sequence;

    DPB_TRY(look_up_bwd(net, list->position, net->position, rows, dy, false, ready));
    if (list->segment >= 0)
        DPB_TRY(look_up_bwd(net, list->segment, batch->segments, rows, dy, false, ready));
    return look_up_bwd(net, list->word, batch->tokens, rows, dy, true, ready);
}

dpb_status dpb_transformer_pick_fwd(struct dpb_transformer *net, const char *name, int64_t rows,
                                    const float *x, const int32_t *row, int64_t count, float *y)
{
    int64_t hidden = net->list->shape.hidden;
    struct dpb_embedding_args args = {
            .table = matrix(x, rows, hidden), .y = matrix(y, count, hidden), .ids = row};

    return dpb_launch(net->launcher, name, DPB_OP_EMBEDDING_FWD, &args);
}

dpb_status dpb_transformer_pick_bwd(struct dpb_transformer *net, const char *name, int64_t rows,
                                    float *dx, bool add, const int32_t *row, int64_t count,
                                    const float *dy)
{
    int64_t hidden = net->list->shape.hidden;
    struct dpb_embedding_args args = {.dtable = matrix(dx, rows, hidden),
                                      .dy = matrix(dy, count, hidden),
                                      .ids = row,
                                      .accumulate = add};

    return dpb_launch(net->launcher, name, DPB_OP_EMBEDDING_BWD, &args);
}

/* ---- loss ---- */

dpb_status dpb_transformer_loss_fwd(struct dpb_transformer *net, const char *name, int64_t rows,
                                    int64_t classes, float *logits, const int32_t *label,
                                    float *loss)
{
    struct dpb_tensor both = matrix(logits, rows, classes);
    struct dpb_softmax_xent_args args = {
            .logits = both, .prob = both, .label = label, .loss = loss};

    return dpb_launch(net->launcher, name, DPB_OP_SOFTMAX_XENT_FWD, &args);
}

dpb_status dpb_transformer_loss_bwd(struct dpb_transformer *net, const char *name, int64_t rows,
                                    int64_t classes, float *logits, const int32_t *label,
                                    float scale)
{
    struct dpb_tensor both = matrix(logits, rows, classes);
    struct dpb_softmax_xent_args args = {
            .prob = both, .dlogits = both, .label = label, .scale = scale};

    return dpb_launch(net->launcher, name, DPB_OP_SOFTMAX_XENT_BWD, &args);
}

/* BERT: norms after the sums, a head for hidden words and one for pairs of segments. */
#include "transformer_private.h"

static const void *input_of(const struct dpb_transformer *net, int b)
{
    return b == 0 ? net->embedding_norm.y : net->block[b - 1].output_norm.y;
}

static dpb_status block_fwd(struct dpb_transformer *net, int b, int64_t samples)
{
    const struct dpb_transformer_block *block = &net->list->block[b];
    const struct dpb_transformer_block_values *v = &net->block[b];
    int64_t rows = samples * net->list->shape.sequence;
    const void *x = input_of(net, b);

    DPB_TRY(dpb_transformer_linear_fwd(net, block->query, rows, x, v->query));
    DPB_TRY(dpb_transformer_linear_fwd(net, block->key, rows, x, v->key));
    DPB_TRY(dpb_transformer_linear_fwd(net, block->value, rows, x, v->value));
    DPB_TRY(dpb_transformer_attention_fwd(net, b, samples));
    DPB_TRY(dpb_transformer_linear_fwd(net, block->attention_output, rows, v->context,
                                       net->branch_grad));
    DPB_TRY(dpb_transformer_drop_fwd(net, block->attention_output, DPB_PLACE_ATTENDED, b, rows,
                                     net->branch_grad));
    DPB_TRY(dpb_transformer_add(net, block->attention_output, rows, net->branch_grad, x,
                                v->attended));
    DPB_TRY(dpb_transformer_norm_fwd(net, block->attention_norm, rows, v->attended,
                                     &v->attention_norm));
    DPB_TRY(dpb_transformer_linear_fwd(net, block->inner, rows, v->attention_norm.y, v->inner));
    DPB_TRY(dpb_transformer_gelu_fwd(net, block->activation, rows, v->inner, v->activation));
    DPB_TRY(dpb_transformer_linear_fwd(net, block->output, rows, v->activation, net->branch_grad));
    DPB_TRY(dpb_transformer_drop_fwd(net, block->output, DPB_PLACE_WIDE, b, rows,
                                     net->branch_grad));
    DPB_TRY(dpb_transformer_add(net, block->output, rows, net->branch_grad, v->attention_norm.y,
                                v->sum));
    return dpb_transformer_norm_fwd(net, block->output_norm, rows, v->sum, &v->output_norm);
}

/* stream_grad: from with respect to the block's output to with respect to its input. The gradient
 * with respect to a norm's input is that of the sum, so it goes both into the branch and around. */
static dpb_status block_bwd(struct dpb_transformer *net, int b, int64_t samples,
                            const struct dpb_transformer_ready *ready)
{
    const struct dpb_transformer_block *block = &net->list->block[b];
    const struct dpb_transformer_block_values *v = &net->block[b];
    int64_t rows = samples * net->list->shape.sequence;
    const void *x = input_of(net, b), *dropped;
    void *stream = net->stream_grad, *branch = net->branch_grad, *wide = net->wide_grad;

    DPB_TRY(dpb_transformer_norm_bwd(net, block->output_norm, rows, v->sum, &v->output_norm, stream,
                                     stream, ready));
    DPB_TRY(dpb_transformer_drop_bwd(net, block->output, DPB_PLACE_WIDE, b, rows, stream, branch,
                                     &dropped));
    DPB_TRY(dpb_transformer_linear_bwd(net, block->output, rows, v->activation, dropped,
                                       net->wide_grad, false, ready));
    DPB_TRY(dpb_transformer_gelu_bwd(net, block->activation, rows, v->inner, net->wide_grad));
    DPB_TRY(dpb_transformer_linear_bwd(net, block->inner, rows, v->attention_norm.y, wide, stream,
                                       true, ready));

    DPB_TRY(dpb_transformer_norm_bwd(net, block->attention_norm, rows, v->attended,
                                     &v->attention_norm, stream, stream, ready));
    DPB_TRY(dpb_transformer_drop_bwd(net, block->attention_output, DPB_PLACE_ATTENDED, b, rows,
                                     stream, net->wide_grad, &dropped));
    DPB_TRY(dpb_transformer_linear_bwd(net, block->attention_output, rows, v->context, dropped,
                                       branch, false, ready));
    DPB_TRY(dpb_transformer_attention_bwd(net, b, samples, branch));
    DPB_TRY(dpb_transformer_linear_bwd(net, block->value, rows, x,
                                       dpb_transformer_beside(wide, v->value, v->query), stream,
                                       true, ready));
    DPB_TRY(dpb_transformer_linear_bwd(net, block->key, rows, x,
                                       dpb_transformer_beside(wide, v->key, v->query), stream, true,
                                       ready));
    return dpb_transformer_linear_bwd(net, block->query, rows, x, wide, stream, true, ready);
}

/* Layers are used in the order in which their gradients become ready, backwards. */
static dpb_status heads_fwd(struct dpb_transformer *net, const struct dpb_batch *batch)
{
    const struct dpb_transformer_list *list = net->list;
    const struct dpb_transformer_shape *shape = &list->shape;
    const struct dpb_transformer_heads *h = &net->heads;
    const void *encoded = input_of(net, shape->blocks);
    int64_t samples = batch->samples, rows = samples * shape->sequence;
    int64_t predicted = samples * shape->predicted;

    DPB_TRY(dpb_transformer_pick_fwd(net, "first.fwd", rows, encoded, h->first_row, samples,
                                     h->first));
    DPB_TRY(dpb_transformer_linear_fwd(net, list->pooler, samples, h->first, h->pooled));
    DPB_TRY(dpb_transformer_tanh_fwd(net, list->pooler_activation, samples, h->pooled));

    DPB_TRY(dpb_transformer_pick_fwd(net, "predicted.fwd", rows, encoded, h->predicted_row,
                                     predicted, h->predicted));
    DPB_TRY(dpb_transformer_linear_fwd(net, list->transform, predicted, h->predicted,
                                       h->transform));
    DPB_TRY(dpb_transformer_gelu_fwd(net, list->transform_activation, predicted, h->transform,
                                     h->activation));
    DPB_TRY(dpb_transformer_norm_fwd(net, list->transform_norm, predicted, h->activation,
                                     &h->norm));
    DPB_TRY(dpb_transformer_linear_fwd(net, list->decoder, predicted, h->norm.y, net->logits));
    DPB_TRY(dpb_transformer_loss_fwd(net, "loss.fwd", predicted, shape->vocabulary, net->logits,
                                     batch->predict_token, net->loss));

    DPB_TRY(dpb_transformer_linear_fwd(net, list->relation, samples, h->pooled, h->relation));
    return dpb_transformer_loss_fwd(net, "relation-loss.fwd", samples, 2, h->relation, batch->label,
                                    h->relation_loss);
}

/* The sentence head's own layer comes first, its pooler last, as autograd has it. Leaves the
 * gradient with respect to the encoder's output in stream_grad. */
static dpb_status heads_bwd(struct dpb_transformer *net, const struct dpb_batch *batch,
                            float grad_scale, const struct dpb_transformer_ready *ready)
{
    const struct dpb_transformer_list *list = net->list;
    const struct dpb_transformer_shape *shape = &list->shape;
    const struct dpb_transformer_heads *h = &net->heads;
    int64_t samples = batch->samples, rows = samples * shape->sequence;
    int64_t predicted = samples * shape->predicted;
    float *sum = dpb_transformer_sum_begin(net, net->stream_grad);

    DPB_TRY(dpb_transformer_loss_bwd(net, "relation-loss.bwd", samples, 2, h->relation,
                                     batch->label, grad_scale, h->relation_grad));
    DPB_TRY(dpb_transformer_linear_bwd(net, list->relation, samples, h->pooled, h->relation_grad,
                                       h->pooled_grad, false, ready));

    DPB_TRY(dpb_transformer_loss_bwd(net, "loss.bwd", predicted, shape->vocabulary, net->logits,
                                     batch->predict_token, grad_scale / (float)shape->predicted,
                                     net->logits_grad));
    DPB_TRY(dpb_transformer_linear_bwd(net, list->decoder, predicted, h->norm.y, net->logits_grad,
                                       h->predicted_grad, false, ready));
    DPB_TRY(dpb_transformer_norm_bwd(net, list->transform_norm, predicted, h->activation, &h->norm,
                                     h->predicted_grad, h->predicted_grad, ready));
    DPB_TRY(dpb_transformer_gelu_bwd(net, list->transform_activation, predicted, h->transform,
                                     h->predicted_grad));
    DPB_TRY(dpb_transformer_linear_bwd(net, list->transform, predicted, h->predicted,
                                       h->predicted_grad, net->branch_grad, false, ready));
    DPB_TRY(dpb_transformer_pick_bwd(net, "predicted.bwd", rows, sum, false, h->predicted_row,
                                     predicted, net->branch_grad));

    DPB_TRY(dpb_transformer_tanh_bwd(net, list->pooler_activation, samples, h->pooled,
                                     h->pooled_grad));
    DPB_TRY(dpb_transformer_linear_bwd(net, list->pooler, samples, h->first, h->pooled_grad,
                                       net->branch_grad, false, ready));
    DPB_TRY(dpb_transformer_pick_bwd(net, "first.bwd", rows, sum, true, h->first_row, samples,
                                     net->branch_grad));
    return dpb_transformer_sum_end(net, "first.bwd", rows, net->stream_grad);
}

/* Where the predicted words stand among the tokens of the whole batch. */
static dpb_status find_predicted(struct dpb_transformer *net, const struct dpb_batch *batch)
{
    int64_t sequence = net->list->shape.sequence, predicted = net->list->shape.predicted;
    const int32_t *position = dpb_batch_on_host(batch)->predict_position;
    int32_t *row = dpb_handover_begin(&net->predicted_rows, net->slot, net->heads.predicted_row);

    for (int64_t i = 0; i < batch->samples * predicted; i++)
        row[i] = (int32_t)(i / predicted * sequence) + position[i];
    return dpb_handover_end(&net->predicted_rows, net->slot, net->heads.predicted_row,
                            (size_t)(batch->samples * predicted) * sizeof(*row));
}

dpb_status dpb_transformer_bert_fwd(struct dpb_transformer *net, const struct dpb_batch *batch)
{
    const struct dpb_transformer_list *list = net->list;
    int64_t rows = batch->samples * list->shape.sequence;

    DPB_TRY(find_predicted(net, batch));
    DPB_TRY(dpb_transformer_embed_fwd(net, batch));
    DPB_TRY(dpb_transformer_norm_fwd(net, list->embedding_norm, rows, net->embedded,
                                     &net->embedding_norm));
    DPB_TRY(dpb_transformer_drop_fwd(net, list->embedding_norm, DPB_PLACE_EMBEDDED, 0, rows,
                                     net->embedding_norm.y));
    for (int b = 0; b < list->shape.blocks; b++)
        DPB_TRY(block_fwd(net, b, batch->samples));
    return heads_fwd(net, batch);
}

dpb_status dpb_transformer_bert_bwd(struct dpb_transformer *net, const struct dpb_batch *batch,
                                    float grad_scale, const struct dpb_transformer_ready *ready)
{
    const struct dpb_transformer_list *list = net->list;
    int64_t rows = batch->samples * list->shape.sequence;
    void *stream = net->stream_grad;
    const void *dropped;

    DPB_TRY(heads_bwd(net, batch, grad_scale, ready));
    for (int b = list->shape.blocks - 1; b >= 0; b--)
        DPB_TRY(block_bwd(net, b, batch->samples, ready));
    DPB_TRY(dpb_transformer_drop_bwd(net, list->embedding_norm, DPB_PLACE_EMBEDDED, 0, rows, stream,
                                     stream, &dropped));
    DPB_TRY(dpb_transformer_norm_bwd(net, list->embedding_norm, rows, net->embedded,
                                     &net->embedding_norm, dropped, stream, ready));
    return dpb_transformer_embed_bwd(net, batch, stream, ready);
}

/* GPT-2: norms before attention and before the wide layers, a stream of sums around both. */
#include "transformer_private.h"

static const void *input_of(const struct dpb_transformer *net, int b)
{
    return b == 0 ? net->embedded : net->block[b - 1].sum;
}

static dpb_status block_fwd(struct dpb_transformer *net, int b, int64_t samples)
{
    const struct dpb_transformer_block *block = &net->list->block[b];
    const struct dpb_transformer_block_values *v = &net->block[b];
    int64_t rows = samples * net->list->shape.sequence;
    const void *x = input_of(net, b);

    DPB_TRY(dpb_transformer_norm_fwd(net, block->attention_norm, rows, x, &v->attention_norm));
    DPB_TRY(dpb_transformer_linear_fwd(net, block->query, rows, v->attention_norm.y, v->query));
    DPB_TRY(dpb_transformer_attention_fwd(net, b, samples));
    DPB_TRY(dpb_transformer_linear_fwd(net, block->attention_output, rows, v->context,
                                       net->branch_grad));
    DPB_TRY(dpb_transformer_drop_fwd(net, block->attention_output, DPB_PLACE_ATTENDED, b, rows,
                                     net->branch_grad));
    DPB_TRY(dpb_transformer_add(net, block->attention_output, rows, net->branch_grad, x,
                                v->attended));
    DPB_TRY(dpb_transformer_norm_fwd(net, block->output_norm, rows, v->attended, &v->output_norm));
    DPB_TRY(dpb_transformer_linear_fwd(net, block->inner, rows, v->output_norm.y, v->inner));
    DPB_TRY(dpb_transformer_gelu_fwd(net, block->activation, rows, v->inner, v->activation));
    DPB_TRY(dpb_transformer_linear_fwd(net, block->output, rows, v->activation, net->branch_grad));
    DPB_TRY(dpb_transformer_drop_fwd(net, block->output, DPB_PLACE_WIDE, b, rows,
                                     net->branch_grad));
    return dpb_transformer_add(net, block->output, rows, net->branch_grad, v->attended, v->sum);
}

/* stream_grad: from with respect to the block's sum to with respect to its input. */
static dpb_status block_bwd(struct dpb_transformer *net, int b, int64_t samples,
                            const struct dpb_transformer_ready *ready)
{
    const struct dpb_transformer_block *block = &net->list->block[b];
    const struct dpb_transformer_block_values *v = &net->block[b];
    int64_t rows = samples * net->list->shape.sequence;
    void *stream = net->stream_grad, *branch = net->branch_grad, *wide = net->wide_grad;
    const void *dropped;

    DPB_TRY(dpb_transformer_drop_bwd(net, block->output, DPB_PLACE_WIDE, b, rows, stream, branch,
                                     &dropped));
    DPB_TRY(dpb_transformer_linear_bwd(net, block->output, rows, v->activation, dropped, wide,
                                       false, ready));
    DPB_TRY(dpb_transformer_gelu_bwd(net, block->activation, rows, v->inner, wide));
    DPB_TRY(dpb_transformer_linear_bwd(net, block->inner, rows, v->output_norm.y, wide, branch,
                                       false, ready));
    DPB_TRY(dpb_transformer_norm_bwd(net, block->output_norm, rows, v->attended, &v->output_norm,
                                     branch, branch, ready));
    DPB_TRY(dpb_transformer_add(net, block->output_norm, rows, stream, branch, stream));

    DPB_TRY(dpb_transformer_drop_bwd(net, block->attention_output, DPB_PLACE_ATTENDED, b, rows,
                                     stream, wide, &dropped));
    DPB_TRY(dpb_transformer_linear_bwd(net, block->attention_output, rows, v->context, dropped,
                                       branch, false, ready));
    DPB_TRY(dpb_transformer_attention_bwd(net, b, samples, branch));
    DPB_TRY(dpb_transformer_linear_bwd(net, block->query, rows, v->attention_norm.y, wide, branch,
                                       false, ready));
    DPB_TRY(dpb_transformer_norm_bwd(net, block->attention_norm, rows, input_of(net, b),
                                     &v->attention_norm, branch, branch, ready));
    return dpb_transformer_add(net, block->attention_norm, rows, stream, branch, stream);
}

dpb_status dpb_transformer_gpt2_fwd(struct dpb_transformer *net, const struct dpb_batch *batch)
{
    const struct dpb_transformer_list *list = net->list;
    int64_t rows = batch->samples * list->shape.sequence;

    DPB_TRY(dpb_transformer_embed_fwd(net, batch));
    DPB_TRY(dpb_transformer_drop_fwd(net, list->word, DPB_PLACE_EMBEDDED, 0, rows, net->embedded));
    for (int b = 0; b < list->shape.blocks; b++)
        DPB_TRY(block_fwd(net, b, batch->samples));
    DPB_TRY(dpb_transformer_norm_fwd(net, list->final_norm, rows, input_of(net, list->shape.blocks),
                                     &net->final_norm));
    DPB_TRY(dpb_transformer_linear_fwd(net, list->decoder, rows, net->final_norm.y, net->logits));
    return dpb_transformer_loss_fwd(net, "loss.fwd", rows, list->shape.vocabulary, net->logits,
                                    batch->predict_token, net->loss);
}

dpb_status dpb_transformer_gpt2_bwd(struct dpb_transformer *net, const struct dpb_batch *batch,
                                    float grad_scale, const struct dpb_transformer_ready *ready)
{
    const struct dpb_transformer_list *list = net->list;
    int64_t rows = batch->samples * list->shape.sequence;
    void *stream = net->stream_grad;
    const void *dropped;

    DPB_TRY(dpb_transformer_loss_bwd(net, "loss.bwd", rows, list->shape.vocabulary, net->logits,
                                     batch->predict_token,
                                     grad_scale / (float)list->shape.predicted, net->logits_grad));
    DPB_TRY(dpb_transformer_linear_bwd(net, list->decoder, rows, net->final_norm.y,
                                       net->logits_grad, stream, false, ready));
    DPB_TRY(dpb_transformer_norm_bwd(net, list->final_norm, rows, input_of(net, list->shape.blocks),
                                     &net->final_norm, stream, stream, ready));
    for (int b = list->shape.blocks - 1; b >= 0; b--)
        DPB_TRY(block_bwd(net, b, batch->samples, ready));
    DPB_TRY(dpb_transformer_drop_bwd(net, list->word, DPB_PLACE_EMBEDDED, 0, rows, stream, stream,
                                     &dropped));
    return dpb_transformer_embed_bwd(net, batch, dropped, ready);
}

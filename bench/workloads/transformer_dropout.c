/* Dropout of the transformer: the operators of one place each, with masks that a seed and an offset
 * name. */
#include "transformer_private.h"

#include "dpb_rng.h"

#define MASKS 0x64726f70u /* "drop": what else is drawn from this seed has other counters */

uint64_t dpb_transformer_mask_seed(uint64_t seed, int64_t step, enum dpb_transformer_place place,
                                   int block)
{
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint32_t counter[4] = {(uint32_t)step, (uint32_t)((uint64_t)step >> 32),
                                 (uint32_t)block << 8 | (uint32_t)place, MASKS};
    uint32_t words[4];

    dpb_philox4x32(counter, key, words);
    return (uint64_t)words[1] << 32 | words[0];
}

void dpb_transformer_masks_of(struct dpb_transformer *net, const struct dpb_batch *batch,
                              bool training)
{
    net->masks =
            (struct dpb_transformer_masks){.keep = training ? (float)(1.0 - net->dropout) : 1.0f,
                                           .step = batch->step,
                                           .first = batch->first};
}

static struct dpb_dropout_args args_of(const struct dpb_transformer *net,
                                       const struct dpb_transformer_layer *layer,
                                       enum dpb_transformer_place place, int block)
{
    const struct dpb_transformer_masks *masks = &net->masks;

    return (struct dpb_dropout_args){
            .keep = masks->keep,
            .seed = dpb_transformer_mask_seed(net->seed, masks->step, place, block),
            .offset = (uint64_t)masks->first * (uint64_t)(layer->rows * layer->out)};
}

dpb_status dpb_transformer_drop_fwd(struct dpb_transformer *net, int index,
                                    enum dpb_transformer_place place, int block, int64_t rows,
                                    void *x)
{
    const struct dpb_transformer_layer *layer = &net->list->layer[index];
    struct dpb_dropout_args args = args_of(net, layer, place, block);

    if (net->masks.keep == 1.0f)
        return DPB_OK;
    args.x = args.y = dpb_transformer_matrix(net, x, rows, layer->out);
    return dpb_launch(net->launcher, layer->op.drop, DPB_OP_DROPOUT_FWD, &args);
}

dpb_status dpb_transformer_drop_bwd(struct dpb_transformer *net, int index,
                                    enum dpb_transformer_place place, int block, int64_t rows,
                                    void *dy, void *room, const void **dropped)
{
    const struct dpb_transformer_layer *layer = &net->list->layer[index];
    struct dpb_dropout_args args = args_of(net, layer, place, block);

    *dropped = net->masks.keep == 1.0f ? dy : room;
    if (net->masks.keep == 1.0f)
        return DPB_OK;
    args.dy = dpb_transformer_matrix(net, dy, rows, layer->out);
    args.dx = dpb_transformer_matrix(net, room, rows, layer->out);
    return dpb_launch(net->launcher, layer->op.bwd_drop, DPB_OP_DROPOUT_BWD, &args);
}

#include "masked_sample.h"

void dpb_masked_lay_out(const struct dpb_model *model, struct dpb_rng *rng,
                        const struct dpb_batch_arrays *arrays, int64_t at,
                        struct dpb_masked_layout *layout)
{
    int64_t words = model->sequence - 3;
    int64_t first = 1 + (int64_t)dpb_rng_below(rng, (uint64_t)words - 1);
    int32_t *tokens = arrays->tokens + at * model->sequence;
    int32_t *segments = arrays->segments + at * model->sequence;

    tokens[0] = DPB_TOKEN_START;
    tokens[1 + first] = DPB_TOKEN_SEPARATOR;
    tokens[model->sequence - 1] = DPB_TOKEN_SEPARATOR;
    for (int64_t i = 0; i < model->sequence; i++)
        segments[i] = i > 1 + first;
    *layout = (struct dpb_masked_layout){.first = tokens + 1,
                                         .second = tokens + 2 + first,
                                         .first_count = first,
                                         .second_count = words - first};
}

void dpb_masked_hide(const struct dpb_model *model, int64_t vocabulary, struct dpb_rng *rng,
                     const struct dpb_batch_arrays *arrays, int64_t at)
{
    int32_t *tokens = arrays->tokens + at * model->sequence;
    int32_t *position = arrays->predict_position + at * model->predicted;
    int32_t *target = arrays->predict_token + at * model->predicted;
    int64_t words_left = model->sequence - 3, chosen = 0;

    /* Selection sampling (Knuth, algorithm S): every choice of words is as likely, in order. */
    for (int64_t i = 0; chosen < model->predicted; i++) {
        uint64_t dice;

        if (tokens[i] < DPB_TOKEN_WORDS)
            continue;
        if ((int64_t)dpb_rng_below(rng, (uint64_t)words_left--) >= model->predicted - chosen)
            continue;
        position[chosen] = (int32_t)i;
        target[chosen++] = tokens[i];
        dice = dpb_rng_below(rng, 10);
        if (dice < 8)
            tokens[i] = DPB_TOKEN_MASK;
        else if (dice == 8)
            tokens[i] = (int32_t)(DPB_TOKEN_WORDS +
                                  dpb_rng_below(rng, (uint64_t)vocabulary - DPB_TOKEN_WORDS));
    }
}

/* Sequences of words made from a seed.
 *
 * Words are Zipf-distributed, word 0 the most frequent. Half of them are their predecessor's
 * planted successor, a quarter belong to the topic of the text, the rest are free: next words,
 * hidden words, and whether two segments belong together can all be learnt. */
#include "source.h"

#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"
#include "draws.h"
#include "masked_sample.h"

#define TOPICS          64
#define WORDS_PER_TOPIC 4

#define SAMPLE_TAG    0x746f6b00 /* "tok" */
#define SUCCESSOR_TAG 0x73756363 /* "succ" */
#define TOPIC_TAG     0x746f7069 /* "topi" */

struct synthetic_tokens {
    const struct dpb_model *model;
    uint64_t seed;
    enum dpb_split split;
    int64_t words;
    double zipf_log;
};

/* Random bits that belong to (a, b) in this seed's language. */
static uint32_t language_bits(const struct synthetic_tokens *set, uint32_t tag, uint32_t a,
                              uint32_t b)
{
    const uint32_t counter[4] = {a, b, 0, tag};
    const uint32_t key[2] = {(uint32_t)set->seed, (uint32_t)(set->seed >> 32)};
    uint32_t bits[4];

    dpb_philox4x32(counter, key, bits);
    return bits[0];
}

static int64_t zipf_word(const struct synthetic_tokens *set, uint32_t bits)
{
    return dpb_zipf(dpb_uniform_of_u32(bits), set->zipf_log, set->words);
}

/* `count` words after `previous` (-1: the text begins here); returns the last. */
static int64_t write_words(const struct synthetic_tokens *set, struct dpb_rng *rng, uint32_t topic,
                           int64_t previous, int32_t *tokens, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        uint32_t dice = dpb_rng_u32(rng), bits;
        int64_t word;

        if (dice % 4 < 2 && previous >= 0) {
            bits = language_bits(set, SUCCESSOR_TAG, (uint32_t)previous, 0);
            word = zipf_word(set, bits);
        } else if (dice % 4 == 2) {
            bits = language_bits(set, TOPIC_TAG, topic, dice / 4 % WORDS_PER_TOPIC);
            word = bits % (uint64_t)set->words;
        } else {
            word = zipf_word(set, dpb_rng_u32(rng));
        }
        tokens[i] = (int32_t)(DPB_TOKEN_WORDS + word);
        previous = word;
    }
    return previous;
}

static void fetch_masked(const struct synthetic_tokens *set, struct dpb_rng *rng, uint32_t topic,
                         const struct dpb_batch_arrays *arrays, int64_t at)
{
    bool follows = set->model->classes < 2 || dpb_rng_u32(rng) % 2 == 1;
    struct dpb_masked_layout layout;
    int64_t last;

    dpb_masked_lay_out(set->model, rng, arrays, at, &layout);
    last = write_words(set, rng, topic, -1, layout.first, layout.first_count);
    if (!follows) {
        topic = (topic + 1 + (uint32_t)dpb_rng_below(rng, TOPICS - 1)) % TOPICS;
        last = -1;
    }
    write_words(set, rng, topic, last, layout.second, layout.second_count);
    dpb_masked_hide(set->model, set->model->vocabulary, rng, arrays, at);
    arrays->label[at] = set->model->classes < 2 ? 0 : follows;
}

static void fetch_next_token(const struct synthetic_tokens *set, struct dpb_rng *rng,
                             uint32_t topic, const struct dpb_batch_arrays *arrays, int64_t at)
{
    int64_t count = set->model->sequence, last;
    int32_t *tokens = arrays->tokens + at * count;
    int32_t *position = arrays->predict_position + at * count;
    int32_t *target = arrays->predict_token + at * count;

    last = write_words(set, rng, topic, -1, tokens, count);
    for (int64_t i = 0; i < count; i++)
        position[i] = (int32_t)i;
    memcpy(target, tokens + 1, (size_t)(count - 1) * sizeof(*target));
    write_words(set, rng, topic, last, target + count - 1, 1);
    arrays->label[at] = 0;
}

static void fetch(const void *ctx, int64_t id, const struct dpb_batch_arrays *arrays, int64_t at)
{
    const struct synthetic_tokens *set = ctx;
    struct dpb_rng rng;
    uint32_t topic;

    dpb_sample_rng(&rng, set->seed, SAMPLE_TAG, set->split, id);
    topic = dpb_rng_u32(&rng) % TOPICS;
    if (set->model->next_token)
        fetch_next_token(set, &rng, topic, arrays, at);
    else
        fetch_masked(set, &rng, topic, arrays, at);
}

dpb_status dpb_source_open_synthetic_tokens(const struct dpb_dataset_config *config,
                                            enum dpb_split split, struct dpb_source *source)
{
    struct synthetic_tokens *made = calloc(1, sizeof(*made));
    char *origin = strdup("synthetic");

    if (!made || !origin) {
        dpb_error("cannot make the synthetic tokens: out of memory");
        free(made);
        free(origin);
        return DPB_ERR_NO_MEMORY;
    }
    made->model = config->model;
    made->seed = config->seed;
    made->split = split;
    made->words = config->model->vocabulary - DPB_TOKEN_WORDS;
    made->zipf_log = dpb_zipf_log(made->words);
    *source = (struct dpb_source){.ctx = made,
                                  .samples = dpb_synthetic_samples(config, split),
                                  .origin = origin,
                                  .fetch = fetch,
                                  .close = free};
    return DPB_OK;
}

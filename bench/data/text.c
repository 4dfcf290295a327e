/* Sequences of tokens from a text file. The vocabulary is learnt from the beginning of the training
 * part each time, since that takes less than a second and nothing can go stale. */
#include "source.h"

#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"
#include "dpb_str.h"
#include "draws.h"
#include "masked_sample.h"
#include "text_vocabulary.h"

#define VOCABULARY_MAX 4096
#define LEARN_BYTES    (1 << 20)  /* the vocabulary is learnt from so many at most */
#define TEST_PART      10         /* the last of so many parts of the text is for testing */
#define SAMPLE_TAG     0x74657800 /* "tex" */

struct text {
    const struct dpb_model *model;
    uint64_t seed;
    enum dpb_split split;
    int64_t vocabulary; /* ids are below */
    int32_t *tokens;    /* of the split */
    int64_t count;
    int64_t stride; /* tokens from one sample to the next */
};

static dpb_status check_content(const char *path, const struct dpb_str *content,
                                const struct dpb_model *model)
{
    const char *zero = content->length ? memchr(content->text, '\0', content->length) : NULL;

    if (zero) {
        dpb_error("\"%s\": byte %lld is zero: this is no text", path,
                  (long long)(zero - content->text));
        return DPB_ERR_CORRUPT;
    }
    if (model->vocabulary < DPB_TOKEN_WORDS + DPB_TEXT_BYTES) {
        dpb_error("--data text needs a vocabulary of at least %d, the workload's is %lld",
                  DPB_TOKEN_WORDS + DPB_TEXT_BYTES, (long long)model->vocabulary);
        dpb_log_hint("use a larger vocabulary, or --data synthetic");
        return DPB_ERR_USAGE;
    }
    return DPB_OK;
}

/* Where the test part begins: at white space, so that no word is cut. */
static size_t test_begin(const struct dpb_str *content)
{
    size_t begin = content->length - content->length / TEST_PART;

    while (begin < content->length && !strchr(" \t\n\v\f\r", content->text[begin]))
        begin++;
    return begin;
}

static dpb_status make_tokens(struct text *set, const struct dpb_str *content)
{
    size_t cut = test_begin(content), learn = cut < LEARN_BYTES ? cut : LEARN_BYTES;
    bool train = set->split == DPB_SPLIT_TRAIN;
    const char *begin = train ? content->text : content->text + cut;
    size_t bytes = train ? cut : content->length - cut;
    int64_t limit = set->model->vocabulary;
    dpb_text_vocabulary *vocabulary = NULL;

    DPB_TRY(dpb_text_vocabulary_learn(
            content->text, learn, limit < VOCABULARY_MAX ? limit : VOCABULARY_MAX, &vocabulary));
    set->tokens = malloc((bytes + 1) * sizeof(*set->tokens));
    if (!set->tokens) {
        dpb_error("dataset \"text\": out of memory for the tokens of %zu bytes", bytes);
        dpb_text_vocabulary_free(vocabulary);
        return DPB_ERR_NO_MEMORY;
    }
    set->count = dpb_text_encode(vocabulary, begin, bytes, set->tokens);
    int32_t *fitting = realloc(set->tokens, (size_t)(set->count + 1) * sizeof(*set->tokens));
    if (fitting)
        set->tokens = fitting;
    set->vocabulary = dpb_text_vocabulary_size(vocabulary);
    dpb_text_vocabulary_free(vocabulary);
    return DPB_OK;
}

/* Samples follow one another in the text; a next-token sample needs one token more than it has. */
static int64_t sample_count(const struct text *set)
{
    return (set->count - (set->model->next_token ? 1 : 0)) / set->stride;
}

static dpb_status check_length(const struct text *set, const char *path)
{
    if (sample_count(set) >= 2)
        return DPB_OK;
    dpb_error("\"%s\" is too short: its %s part has %lld tokens, at least 2 samples of %lld are "
              "needed",
              path, set->split == DPB_SPLIT_TRAIN ? "training" : "test", (long long)set->count,
              (long long)set->stride);
    dpb_log_hint("use a longer text, shorter sequences, or --data synthetic");
    return DPB_ERR_USAGE;
}

static dpb_status read_text(struct text *set, const char *path)
{
    struct dpb_str content = {0};
    dpb_status st;

    if (!path || !path[0]) {
        dpb_error("dataset \"text\": no file is given");
        dpb_log_hint("name the text file with --data-file, or use --data synthetic");
        return DPB_ERR_USAGE;
    }
    st = dpb_file_read(path, &content);
    if (st == DPB_OK)
        st = check_content(path, &content, set->model);
    if (st == DPB_OK)
        st = make_tokens(set, &content);
    dpb_str_release(&content);
    return st == DPB_OK ? check_length(set, path) : st;
}

/* The second segment is what follows the first, or as long a stretch from anywhere. */
static void fetch_masked(const struct text *set, struct dpb_rng *rng, int64_t id,
                         const struct dpb_batch_arrays *arrays, int64_t at)
{
    bool follows = set->model->classes < 2 || dpb_rng_u32(rng) % 2 == 1;
    const int32_t *first = set->tokens + id * set->stride, *second;
    struct dpb_masked_layout layout;

    dpb_masked_lay_out(set->model, rng, arrays, at, &layout);
    second = first + layout.first_count;
    if (!follows)
        second = set->tokens + dpb_rng_below(rng, (uint64_t)(set->count - layout.second_count + 1));
    memcpy(layout.first, first, (size_t)layout.first_count * sizeof(*first));
    memcpy(layout.second, second, (size_t)layout.second_count * sizeof(*second));
    dpb_masked_hide(set->model, set->vocabulary, rng, arrays, at);
    arrays->label[at] = set->model->classes < 2 ? 0 : follows;
}

static void fetch_next_token(const struct text *set, int64_t id,
                             const struct dpb_batch_arrays *arrays, int64_t at)
{
    const int32_t *from = set->tokens + id * set->stride;
    int64_t count = set->model->sequence;

    for (int64_t i = 0; i < count; i++) {
        arrays->tokens[at * count + i] = from[i];
        arrays->predict_position[at * count + i] = (int32_t)i;
        arrays->predict_token[at * count + i] = from[i + 1];
    }
    arrays->label[at] = 0;
}

static void fetch(const void *ctx, int64_t id, const struct dpb_batch_arrays *arrays, int64_t at)
{
    const struct text *set = ctx;
    struct dpb_rng rng;

    if (set->model->next_token) {
        fetch_next_token(set, id, arrays, at);
        return;
    }
    dpb_sample_rng(&rng, set->seed, SAMPLE_TAG, set->split, id);
    fetch_masked(set, &rng, id, arrays, at);
}

static void close_text(void *ctx)
{
    struct text *set = ctx;

    free(set->tokens);
    free(set);
}

static int64_t stride_of(const struct dpb_model *model)
{
    return model->sequence - (model->next_token ? 0 : 3);
}

dpb_status dpb_source_open_text(const struct dpb_dataset_config *config, enum dpb_split split,
                                struct dpb_source *source)
{
    struct text *set = calloc(1, sizeof(*set));
    char *origin = strdup(config->file ? config->file : "");
    dpb_status st = DPB_ERR_NO_MEMORY;

    if (!set || !origin) {
        dpb_error("dataset \"text\": out of memory");
        goto err;
    }
    set->model = config->model;
    set->seed = config->seed;
    set->split = split;
    set->stride = stride_of(config->model);
    DPB_TRY_GOTO(st, read_text(set, config->file), err);
    *source = (struct dpb_source){.ctx = set,
                                  .samples = sample_count(set),
                                  .origin = origin,
                                  .files = 1,
                                  .held_bytes = set->count * (int64_t)sizeof(*set->tokens),
                                  .file_bytes = dpb_file_bytes(origin),
                                  .fetch = fetch,
                                  .close = close_text};
    return DPB_OK;

err:
    if (set)
        close_text(set);
    free(origin);
    return st;
}

/* As many tokens as bytes: how much fewer only the vocabulary tells. */
bool dpb_source_predict_text(const struct dpb_dataset_config *config, enum dpb_split split,
                             struct dpb_dataset_size *size)
{
    int64_t bytes = config->file ? dpb_file_bytes(config->file) : 0, test = bytes / TEST_PART;
    int64_t part = split == DPB_SPLIT_TRAIN ? bytes : test;

    size->samples = part / stride_of(config->model);
    size->held_bytes = part * (int64_t)sizeof(int32_t);
    size->reading_bytes = bytes;
    return bytes > 0;
}

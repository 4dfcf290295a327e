/* Text: the byte-pair vocabulary by hand-worked example, and the samples cut from a file. */
#include "dpb_test.h"
#include "dpb_dataset.h"
#include "fixture.h"
#include "text_vocabulary.h"

#include <unistd.h>

#define BYTE(c)     (DPB_TOKEN_WORDS + (uint8_t)(c))
#define FIRST_MERGE (DPB_TOKEN_WORDS + DPB_TEXT_BYTES)
#define EXAMPLE     "low low low lower lower newest"

static char path[] = "/tmp/dpb-text-XXXXXX";

/* ---- vocabulary ---- */

static dpb_text_vocabulary *learn(const char *text, int64_t limit)
{
    dpb_text_vocabulary *vocabulary;

    assert_int_equal(dpb_text_vocabulary_learn(text, strlen(text), limit, &vocabulary), DPB_OK);
    return vocabulary;
}

static void check_encoded(const dpb_text_vocabulary *vocabulary, const char *text,
                          const int32_t *expected, int64_t count)
{
    int32_t tokens[64];

    assert_true(strlen(text) <= 64);
    assert_int_equal(dpb_text_encode(vocabulary, text, strlen(text), tokens), count);
    for (int64_t i = 0; i < count; i++)
        assert_int_equal(tokens[i], expected[i]);
}

#define CHECK_ENCODED(vocabulary, text, ...)                                                       \
    check_encoded(vocabulary, text, (const int32_t[]){__VA_ARGS__},                                \
                  (int64_t)(sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t)))

/* "low" once, " low" twice, " lower" twice, " newest" once. (l,o) and (o,w) occur five times, and
 * (l,o) is the smaller; then (lo,w) 5, (space,low) 4, (e,r) and (" low",e) 2, of which (e,r) is the
 * smaller; then (" low","er") 2, and no pair repeats. */
static void test_vocabulary_by_hand(void **state)
{
    dpb_text_vocabulary *vocabulary = learn(EXAMPLE, 4096);
    const int32_t low = FIRST_MERGE + 1, space_low = FIRST_MERGE + 2, er = FIRST_MERGE + 3;

    (void)state;
    assert_int_equal(dpb_text_vocabulary_size(vocabulary), FIRST_MERGE + 5);
    CHECK_ENCODED(vocabulary, "low", low);
    CHECK_ENCODED(vocabulary, " low low", space_low, space_low);
    CHECK_ENCODED(vocabulary, " lower", FIRST_MERGE + 4);
    CHECK_ENCODED(vocabulary, "lower", low, er);
    CHECK_ENCODED(vocabulary, " slow\n", BYTE(' '), BYTE('s'), low, BYTE('\n'));
    CHECK_ENCODED(vocabulary, "lo\xff", FIRST_MERGE, BYTE(0xff));
    assert_int_equal(dpb_text_encode(vocabulary, "", 0, NULL), 0);
    dpb_text_vocabulary_free(vocabulary);
}

static void test_vocabulary_limits(void **state)
{
    dpb_text_vocabulary *vocabulary = learn(EXAMPLE, FIRST_MERGE + 2);

    (void)state;
    assert_int_equal(dpb_text_vocabulary_size(vocabulary), FIRST_MERGE + 2);
    CHECK_ENCODED(vocabulary, " lower", BYTE(' '), FIRST_MERGE + 1, BYTE('e'), BYTE('r'));
    dpb_text_vocabulary_free(vocabulary);
    vocabulary = learn("", 4096);
    assert_int_equal(dpb_text_vocabulary_size(vocabulary), FIRST_MERGE);
    CHECK_ENCODED(vocabulary, "ab", BYTE('a'), BYTE('b'));
    dpb_text_vocabulary_free(vocabulary);
    vocabulary = learn("abcdefg", 4096); /* no pair repeats */
    assert_int_equal(dpb_text_vocabulary_size(vocabulary), FIRST_MERGE);
    dpb_text_vocabulary_free(vocabulary);
    dpb_text_vocabulary_free(NULL);
}

/* A pair that overlaps itself is merged from the left; words longer than the longest are cut. */
static void test_repeated_and_long_words(void **state)
{
    dpb_text_vocabulary *vocabulary = learn("aaa", 4096);
    int32_t tokens[100];
    char text[101];

    (void)state;
    CHECK_ENCODED(vocabulary, "aaa", FIRST_MERGE, BYTE('a'));
    dpb_text_vocabulary_free(vocabulary);
    memset(text, 'a', 100);
    text[100] = '\0';
    vocabulary = learn(text, FIRST_MERGE + 1);
    assert_int_equal(dpb_text_encode(vocabulary, text, 100, tokens), 50);
    dpb_text_vocabulary_free(vocabulary);
}

/* ---- samples ---- */

static const struct dpb_model causal = {.input = DPB_INPUT_TOKENS,
                                        .sequence = 8,
                                        .vocabulary = 300,
                                        .predicted = 8,
                                        .next_token = true};
static const struct dpb_model masked = {
        .input = DPB_INPUT_TOKENS, .sequence = 16, .vocabulary = 300, .predicted = 3, .classes = 2};

static void write_text(const char *text, size_t count)
{
    FILE *file = fopen(path, "wb");

    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

/* 400 words, none of them repeated: "w0 w7 w14 ...". */
static void write_words(void)
{
    char text[400 * 8];
    size_t length = 0;

    for (int i = 0; i < 400; i++)
        length += (size_t)snprintf(text + length, sizeof(text) - length, "w%d ", i * 7);
    write_text(text, length);
}

static struct dpb_batch_arrays fetch(const struct dpb_model *model, enum dpb_split split,
                                     int64_t *samples)
{
    struct dpb_dataset_config config = {.kind = "text", .model = model, .file = path, .seed = 1};
    struct dpb_batch_arrays arrays;
    struct dpb_dataset_info info;
    dpb_dataset *dataset;

    assert_int_equal(dpb_dataset_open(&config, split, &dataset), DPB_OK);
    dpb_dataset_describe(dataset, &info);
    assert_string_equal(info.source, path);
    assert_string_equal(info.kind, "text");
    assert_false(info.synthetic);
    *samples = info.samples;
    assert_int_equal(dpb_batch_arrays_open(model, info.samples, &arrays), DPB_OK);
    for (int64_t id = 0; id < info.samples; id++) {
        struct dpb_batch_arrays one = arrays;

        one.tokens += id * model->sequence;
        one.predict_position += id * model->predicted;
        one.predict_token += id * model->predicted;
        one.label += id;
        if (one.segments)
            one.segments += id * model->sequence;
        assert_int_equal(dpb_dataset_fetch(dataset, &id, 1, &one), DPB_OK);
    }
    dpb_dataset_close(dataset);
    return arrays;
}

/* Samples are the text, one after the other; each position's target is the next token. */
static void test_next_token_samples(void **state)
{
    struct dpb_batch_arrays train, test;
    int64_t train_samples, test_samples;

    (void)state;
    write_words();
    train = fetch(&causal, DPB_SPLIT_TRAIN, &train_samples);
    test = fetch(&causal, DPB_SPLIT_TEST, &test_samples);
    assert_in_range(train_samples, 6 * test_samples, 10 * test_samples);
    assert_int_equal(train.tokens[0], BYTE('w'));
    assert_int_equal(train.tokens[1], BYTE('0'));
    for (int64_t i = 0; i + 1 < train_samples * 8; i++) {
        assert_in_range(train.tokens[i], DPB_TOKEN_WORDS, 299);
        assert_int_equal(train.predict_token[i], train.tokens[i + 1]);
        assert_int_equal(train.predict_position[i], i % 8);
    }
    assert_memory_not_equal(train.tokens, test.tokens, 8 * sizeof(int32_t));
    dpb_batch_arrays_release(&train);
    dpb_batch_arrays_release(&test);
}

/* With the hidden words put back, the first segment is the text at the sample's place, and the
 * second is what follows it where the label says so, else not. */
static void test_masked_samples(void **state)
{
    struct dpb_batch_arrays text, a;
    int64_t samples, text_samples;
    int follows = 0, elsewhere = 0;

    (void)state;
    write_words();
    text = fetch(&causal, DPB_SPLIT_TRAIN, &text_samples);
    a = fetch(&masked, DPB_SPLIT_TRAIN, &samples);
    assert_in_range(samples, text_samples * 8 / 13 - 1, text_samples * 8 / 13 + 1);
    for (int64_t id = 0; id + 1 < samples; id++) {
        int32_t *tokens = a.tokens + id * 16;
        const int32_t *stream = text.tokens + id * 13;
        int words = 0, differ[2] = {0, 0};

        for (int p = 0; p < 3; p++)
            tokens[a.predict_position[id * 3 + p]] = a.predict_token[id * 3 + p];
        for (int t = 0; t < 16; t++)
            if (tokens[t] >= DPB_TOKEN_WORDS)
                differ[a.segments[id * 16 + t]] += tokens[t] != stream[words++];
        assert_int_equal(words, 13);
        assert_int_equal(differ[0], 0);
        if (a.label[id])
            assert_int_equal(differ[1], 0);
        follows += a.label[id];
        elsewhere += differ[1] > 0;
    }
    assert_in_range(follows, samples * 3 / 10, samples * 7 / 10);
    assert_true(elsewhere > (samples - follows) * 8 / 10); /* one word may be alike by chance */
    dpb_batch_arrays_release(&text);
    dpb_batch_arrays_release(&a);
}

static void check_fails(const struct dpb_model *model, const char *file, dpb_status expected,
                        const char *text)
{
    struct dpb_dataset_config config = {.kind = "text", .model = model, .file = file};
    dpb_dataset *dataset = NULL;

    log_collect();
    assert_int_equal(dpb_dataset_open(&config, DPB_SPLIT_TRAIN, &dataset), expected);
    assert_null(dataset);
    assert_true(log_has(text));
    log_stop();
}

static void test_files_refused(void **state)
{
    struct dpb_model model = causal;

    (void)state;
    write_text("a few words", 11);
    check_fails(&causal, path, DPB_ERR_USAGE, "is too short: its training part has 11 tokens");
    write_text("", 0);
    check_fails(&causal, path, DPB_ERR_USAGE, "has 0 tokens, at least 2 samples of 8");
    write_text("text\0text", 9);
    check_fails(&causal, path, DPB_ERR_CORRUPT, "byte 4 is zero");
    write_words();
    model.vocabulary = FIRST_MERGE - 1;
    check_fails(&model, path, DPB_ERR_USAGE, "needs a vocabulary of at least 259");
    check_fails(&causal, "", DPB_ERR_USAGE, "no file is given");
    check_fails(&causal, "/nonexistent/file", DPB_ERR_NOT_FOUND, "/nonexistent/file");
}

static int make_file(void **state)
{
    int fd = mkstemp(path);

    (void)state;
    return fd >= 0 ? close(fd) : -1;
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_vocabulary_by_hand),
            cmocka_unit_test(test_vocabulary_limits),
            cmocka_unit_test(test_repeated_and_long_words),
            cmocka_unit_test_setup(test_next_token_samples, make_file),
            cmocka_unit_test(test_masked_samples),
            cmocka_unit_test_teardown(test_files_refused, remove_file),
    };

    return DPB_RUN_TESTS(tests);
}

/* Data made from a seed: sizes, values, the same for the same seed only, and that it can be
 * learnt. */
#include "dpb_test.h"
#include "dpb_dataset.h"
#include "fixture.h"

#include <math.h>

#define MANY 500

static const struct dpb_model images = {.sample_dim = {28, 28, 1}, .classes = 10};
static const struct dpb_model masked = {
        .input = DPB_INPUT_TOKENS, .sequence = 32, .vocabulary = 203, .predicted = 5, .classes = 2};
static const struct dpb_model causal = {.input = DPB_INPUT_TOKENS,
                                        .sequence = 24,
                                        .vocabulary = 203,
                                        .predicted = 24,
                                        .next_token = true};
static const int64_t rows[] = {1, 3, 100, 40000000};
static const struct dpb_model interactions = {.input = DPB_INPUT_INTERACTIONS,
                                              .features = 5,
                                              .tables = 4,
                                              .table_rows = rows,
                                              .classes = 2};

static dpb_dataset *open_synthetic(const struct dpb_model *model, uint64_t seed,
                                   enum dpb_split split, int64_t samples)
{
    struct dpb_dataset_config config = {
            .kind = "synthetic", .model = model, .seed = seed, .samples = samples};
    dpb_dataset *dataset;

    assert_int_equal(dpb_dataset_open(&config, split, &dataset), DPB_OK);
    return dataset;
}

/* Samples first, first + 1, ... of a synthetic split. */
static struct dpb_batch_arrays fetch(const struct dpb_model *model, uint64_t seed,
                                     enum dpb_split split, int64_t first, int64_t count)
{
    dpb_dataset *dataset = open_synthetic(model, seed, split, 0);
    int64_t *ids = calloc((size_t)count, sizeof(*ids));
    struct dpb_batch_arrays arrays;

    assert_non_null(ids);
    for (int64_t i = 0; i < count; i++)
        ids[i] = first + i;
    assert_int_equal(dpb_batch_arrays_open(model, count, &arrays), DPB_OK);
    assert_int_equal(dpb_dataset_fetch(dataset, ids, count, &arrays), DPB_OK);
    free(ids);
    dpb_dataset_close(dataset);
    return arrays;
}

static void test_sizes(void **state)
{
    struct dpb_dataset_info info;
    dpb_dataset *dataset = open_synthetic(&images, 1, DPB_SPLIT_TRAIN, 0);
    const int64_t last = 59999, beyond = 60000, negative = -1;
    struct dpb_batch_arrays arrays;

    (void)state;
    assert_int_equal(dpb_batch_arrays_open(&images, 1, &arrays), DPB_OK);
    dpb_dataset_describe(dataset, &info);
    assert_true(info.synthetic);
    assert_string_equal(info.kind, "synthetic");
    assert_string_equal(info.source, "synthetic");
    assert_int_equal(info.samples, 60000);
    assert_int_equal(dpb_dataset_fetch(dataset, &last, 1, &arrays), DPB_OK);
    log_collect();
    assert_int_equal(dpb_dataset_fetch(dataset, &beyond, 1, &arrays), DPB_ERR_USAGE);
    assert_int_equal(dpb_dataset_fetch(dataset, &negative, 1, &arrays), DPB_ERR_USAGE);
    assert_true(log_has("there is no sample 60000 among 60000"));
    log_stop();
    assert_int_equal(dpb_dataset_fetch(dataset, NULL, 0, NULL), DPB_OK);
    dpb_dataset_close(dataset);
    dataset = open_synthetic(&images, 1, DPB_SPLIT_TEST, 0);
    dpb_dataset_describe(dataset, &info);
    assert_int_equal(info.samples, 10000);
    dpb_dataset_close(dataset);
    dpb_dataset_close(NULL);
    dpb_batch_arrays_release(&arrays);
}

/* Numbers of a sample in each array; 0: the model has none. */
struct shape {
    int64_t x, tokens, segments, predicted, indices;
};

static struct shape shape_of(const struct dpb_model *model)
{
    switch (model->input) {
    case DPB_INPUT_IMAGES:
        return (struct shape){.x = 784};
    case DPB_INPUT_TOKENS:
        return (struct shape){.tokens = model->sequence,
                              .segments = model->next_token ? 0 : model->sequence,
                              .predicted = model->predicted};
    default:
        return (struct shape){.x = model->features, .indices = model->tables};
    }
}

static bool same_numbers(const void *a, const void *b, int64_t count)
{
    assert_int_equal(a != NULL, count > 0);
    return count == 0 || memcmp(a, b, (size_t)count * 4) == 0;
}

static bool same(const struct dpb_model *model, const struct dpb_batch_arrays *a, int64_t a_first,
                 const struct dpb_batch_arrays *b, int64_t count)
{
    struct shape n = shape_of(model);

    return memcmp(a->label + a_first, b->label, (size_t)count * sizeof(int32_t)) == 0 &&
           same_numbers(a->x ? a->x + a_first * n.x : NULL, b->x, n.x * count) &&
           same_numbers(a->tokens ? a->tokens + a_first * n.tokens : NULL, b->tokens,
                        n.tokens * count) &&
           same_numbers(a->segments ? a->segments + a_first * n.segments : NULL, b->segments,
                        n.segments * count) &&
           same_numbers(a->predict_position ? a->predict_position + a_first * n.predicted : NULL,
                        b->predict_position, n.predicted * count) &&
           same_numbers(a->predict_token ? a->predict_token + a_first * n.predicted : NULL,
                        b->predict_token, n.predicted * count) &&
           same_numbers(a->indices ? a->indices + a_first * n.indices : NULL, b->indices,
                        n.indices * count);
}

/* A sample depends on seed, split and id, and not on the batch in which it is asked for. */
static void test_samples_depend_on_seed_split_and_id(void **state)
{
    static const struct dpb_model *const models[] = {&images, &masked, &causal, &interactions};

    (void)state;
    for (size_t m = 0; m < 4; m++) {
        struct dpb_batch_arrays all = fetch(models[m], 1, DPB_SPLIT_TRAIN, 0, 20);
        struct dpb_batch_arrays part = fetch(models[m], 1, DPB_SPLIT_TRAIN, 13, 4);
        struct dpb_batch_arrays seed = fetch(models[m], 2, DPB_SPLIT_TRAIN, 13, 4);
        struct dpb_batch_arrays split = fetch(models[m], 1, DPB_SPLIT_TEST, 13, 4);

        assert_true(same(models[m], &all, 13, &part, 4));
        assert_false(same(models[m], &all, 12, &part, 4));
        assert_false(same(models[m], &all, 13, &seed, 4));
        assert_false(same(models[m], &all, 13, &split, 4));
        dpb_batch_arrays_release(&all);
        dpb_batch_arrays_release(&part);
        dpb_batch_arrays_release(&seed);
        dpb_batch_arrays_release(&split);
    }
}

/* ---- images ---- */

/* Mean 0, variance 1, every class present. */
static void test_image_values(void **state)
{
    struct dpb_batch_arrays a = fetch(&images, 1, DPB_SPLIT_TRAIN, 0, MANY);
    int of_class[10] = {0};
    double sum = 0.0, squares = 0.0;

    (void)state;
    for (int i = 0; i < MANY * 784; i++) {
        sum += (double)a.x[i];
        squares += (double)a.x[i] * (double)a.x[i];
    }
    assert_true(fabs(sum / (MANY * 784)) < 0.1);
    assert_true(fabs(squares / (MANY * 784) - 1.0) < 0.02);
    for (int i = 0; i < MANY; i++)
        of_class[a.label[i]]++;
    for (int c = 0; c < 10; c++)
        assert_in_range(of_class[c], 20, 90);
    dpb_batch_arrays_release(&a);
}

/* What was seen in training helps with the test split: the mean image nearest to a test image is
 * its class's. */
static void test_image_classes_can_be_learnt(void **state)
{
    struct dpb_batch_arrays train = fetch(&images, 1, DPB_SPLIT_TRAIN, 0, MANY);
    struct dpb_batch_arrays test = fetch(&images, 1, DPB_SPLIT_TEST, 0, MANY);
    double *mean = calloc(10 * 784, sizeof(double));
    int of_class[10] = {0}, correct = 0;

    (void)state;
    assert_non_null(mean);
    for (int i = 0; i < MANY; i++) {
        of_class[train.label[i]]++;
        for (int e = 0; e < 784; e++)
            mean[train.label[i] * 784 + e] += (double)train.x[i * 784 + e];
    }
    for (int i = 0; i < MANY; i++) {
        double nearest = INFINITY;
        int best = -1;

        for (int c = 0; c < 10; c++) {
            double distance = 0.0;

            for (int e = 0; e < 784; e++) {
                double d = (double)test.x[i * 784 + e] - mean[c * 784 + e] / of_class[c];

                distance += d * d;
            }
            if (distance < nearest) {
                nearest = distance;
                best = c;
            }
        }
        correct += best == test.label[i];
    }
    assert_true(correct > MANY * 9 / 10);
    free(mean);
    dpb_batch_arrays_release(&train);
    dpb_batch_arrays_release(&test);
}

/* Images smaller than the pattern's grid, colours, many classes. */
static void test_image_shapes(void **state)
{
    const struct dpb_model model = {.sample_dim = {3, 224, 3}, .classes = 1000};
    struct dpb_batch_arrays a = fetch(&model, 1, DPB_SPLIT_TRAIN, 12345, 1);

    (void)state;
    assert_in_range(a.label[0], 0, 999);
    for (int64_t i = 0; i < 3 * 224 * 3; i++)
        assert_true(fabsf(a.x[i]) <= 2.0f && a.x[i] != 0.0f);
    dpb_batch_arrays_release(&a);
}

/* ---- tokens ---- */

/* START a SEPARATOR b SEPARATOR; hidden positions ascend; 80 % masked, 10 % another word, 10 % as
 * they are, within four deviations. */
static void test_masked_samples(void **state)
{
    struct dpb_batch_arrays a = fetch(&masked, 1, DPB_SPLIT_TRAIN, 0, MANY);
    int masks = 0, kept = 0, follows = 0, hidden = MANY * 5;

    (void)state;
    for (int i = 0; i < MANY; i++) {
        const int32_t *tokens = a.tokens + i * 32, *segments = a.segments + i * 32;
        const int32_t *position = a.predict_position + i * 5, *target = a.predict_token + i * 5;
        int separators = 0, next = 0;

        assert_int_equal(tokens[0], DPB_TOKEN_START);
        assert_int_equal(tokens[31], DPB_TOKEN_SEPARATOR);
        for (int t = 0; t < 32; t++) {
            assert_in_range(tokens[t], 0, 202);
            assert_int_equal(segments[t], separators > 0);
            separators += tokens[t] == DPB_TOKEN_SEPARATOR;
            if (next < 5 && position[next] == t) {
                assert_in_range(target[next], DPB_TOKEN_WORDS, 202);
                masks += tokens[t] == DPB_TOKEN_MASK;
                kept += tokens[t] == target[next];
                assert_true(tokens[t] >= DPB_TOKEN_MASK);
                next++;
            } else {
                assert_int_not_equal(tokens[t], DPB_TOKEN_MASK);
                assert_int_equal(tokens[t] == DPB_TOKEN_START, t == 0);
            }
        }
        assert_int_equal(next, 5);
        assert_int_equal(separators, 2);
        assert_in_range(a.label[i], 0, 1);
        follows += a.label[i];
    }
    assert_in_range(masks, hidden * 77 / 100, hidden * 83 / 100);
    assert_in_range(kept, hidden * 7 / 100, hidden * 14 / 100); /* or the same word by chance */
    assert_in_range(follows, MANY * 40 / 100, MANY * 60 / 100);
    dpb_batch_arrays_release(&a);
}

/* All words hidden, and the fewest words that can be. */
static void test_masked_extremes(void **state)
{
    struct dpb_model model = masked;
    struct dpb_batch_arrays a;

    (void)state;
    model.predicted = 29;
    a = fetch(&model, 1, DPB_SPLIT_TRAIN, 0, 10);
    for (int i = 0; i < 10; i++)
        for (int p = 1; p < 29; p++)
            assert_true(a.predict_position[i * 29 + p] > a.predict_position[i * 29 + p - 1]);
    dpb_batch_arrays_release(&a);
    model.sequence = 5;
    model.predicted = 1;
    model.classes = 0;
    a = fetch(&model, 1, DPB_SPLIT_TRAIN, 0, 10);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(a.tokens[i * 5 + 2], DPB_TOKEN_SEPARATOR);
        assert_int_equal(a.label[i], 0);
    }
    dpb_batch_arrays_release(&a);
}

/* The target of each position is the next token, and a table of pairs from the training split
 * predicts far more of the test split than the most frequent word does. */
static void test_next_tokens_can_be_learnt(void **state)
{
    struct dpb_batch_arrays train = fetch(&causal, 1, DPB_SPLIT_TRAIN, 0, 2 * MANY);
    struct dpb_batch_arrays test = fetch(&causal, 1, DPB_SPLIT_TEST, 0, MANY);
    static int pairs[203][203], count[203];
    int correct = 0, frequent = 0;

    (void)state;
    for (int i = 0; i < 2 * MANY; i++) {
        for (int t = 0; t < 24; t++) {
            int32_t token = train.tokens[i * 24 + t], target = train.predict_token[i * 24 + t];

            assert_in_range(target, DPB_TOKEN_WORDS, 202);
            assert_int_equal(train.predict_position[i * 24 + t], t);
            if (t < 23)
                assert_int_equal(target, train.tokens[i * 24 + t + 1]);
            pairs[token][target]++;
            count[token]++;
        }
        assert_int_equal(train.label[i], 0);
    }
    for (int w = DPB_TOKEN_WORDS + 1; w < 203; w++)
        assert_true(count[DPB_TOKEN_WORDS] > count[w] / 2);
    assert_true(count[DPB_TOKEN_WORDS] > 5 * count[DPB_TOKEN_WORDS + 100]); /* Zipf */
    for (int i = 0; i < MANY * 24; i++) {
        const int *row = pairs[test.tokens[i]];
        int best = 0;

        for (int w = 0; w < 203; w++)
            if (row[w] > row[best])
                best = w;
        correct += test.predict_token[i] == best;
        frequent += test.predict_token[i] == DPB_TOKEN_WORDS;
    }
    assert_true(correct > MANY * 24 / 2);
    assert_true(frequent < MANY * 24 * 3 / 10);
    dpb_batch_arrays_release(&train);
    dpb_batch_arrays_release(&test);
}

/* Segments that belong together share more words than others. */
static void test_following_segments_can_be_told(void **state)
{
    struct dpb_batch_arrays a = fetch(&masked, 1, DPB_SPLIT_TRAIN, 0, MANY);
    double shared[2] = {0.0, 0.0};
    int of_label[2] = {0, 0};

    (void)state;
    for (int i = 0; i < MANY; i++) {
        const int32_t *tokens = a.tokens + i * 32, *segments = a.segments + i * 32;
        int both = 0;

        for (int s = 0; s < 32; s++)
            for (int t = s + 1; t < 32; t++)
                both += tokens[s] > DPB_TOKEN_WORDS + 20 && tokens[s] == tokens[t] &&
                        segments[s] != segments[t];
        shared[a.label[i]] += both;
        of_label[a.label[i]]++;
    }
    assert_true(shared[1] / of_label[1] > 2.0 * shared[0] / of_label[0]);
    dpb_batch_arrays_release(&a);
}

/* ---- interactions ---- */

static void test_interaction_values(void **state)
{
    struct dpb_batch_arrays a = fetch(&interactions, 1, DPB_SPLIT_TRAIN, 0, 4 * MANY);
    double sum = 0.0, squares = 0.0;
    int of_row[100] = {0}, far = 0, clicks = 0, count = 4 * MANY;

    (void)state;
    for (int i = 0; i < count * 5; i++) {
        sum += (double)a.x[i];
        squares += (double)a.x[i] * (double)a.x[i];
    }
    assert_true(fabs(sum / (count * 5)) < 0.05);
    assert_true(fabs(squares / (count * 5) - 1.0) < 0.06);
    for (int i = 0; i < count; i++) {
        for (int t = 0; t < 4; t++)
            assert_in_range(a.indices[i * 4 + t], 0, rows[t] - 1);
        of_row[a.indices[i * 4 + 2]]++;
        far += a.indices[i * 4 + 3] > 1000000;
        assert_in_range(a.label[i], 0, 1);
        clicks += a.label[i];
    }
    /* log(2) / log(101) of all in row 0, log(1.5) / log(101) in row 1 */
    assert_in_range(of_row[0], count * 13 / 100, count * 17 / 100);
    assert_in_range(of_row[1], count * 7 / 100, count * 11 / 100);
    assert_in_range(far, count * 17 / 100, count * 25 / 100); /* log(40) / log(4e7) */
    assert_in_range(clicks, count * 35 / 100, count * 65 / 100);
    dpb_batch_arrays_release(&a);
}

/* A linear rule fitted to the training split by the sign of correlation tells test labels far
 * better than chance. */
static void test_clicks_can_be_learnt(void **state)
{
    struct dpb_model dense = interactions;
    struct dpb_batch_arrays train, test;
    double weight[5] = {0.0};
    int correct = 0;

    (void)state;
    dense.tables = 0;
    train = fetch(&dense, 1, DPB_SPLIT_TRAIN, 0, 4 * MANY);
    test = fetch(&dense, 1, DPB_SPLIT_TEST, 0, MANY);
    for (int i = 0; i < 4 * MANY; i++)
        for (int f = 0; f < 5; f++)
            weight[f] += (train.label[i] ? 1.0 : -1.0) * (double)train.x[i * 5 + f];
    for (int i = 0; i < MANY; i++) {
        double score = 0.0;

        for (int f = 0; f < 5; f++)
            score += weight[f] * (double)test.x[i * 5 + f];
        correct += (score > 0.0) == (test.label[i] == 1);
    }
    assert_true(correct > MANY * 65 / 100);
    dpb_batch_arrays_release(&train);
    dpb_batch_arrays_release(&test);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_sizes),
            cmocka_unit_test(test_samples_depend_on_seed_split_and_id),
            cmocka_unit_test(test_image_values),
            cmocka_unit_test(test_image_classes_can_be_learnt),
            cmocka_unit_test(test_image_shapes),
            cmocka_unit_test(test_masked_samples),
            cmocka_unit_test(test_masked_extremes),
            cmocka_unit_test(test_next_tokens_can_be_learnt),
            cmocka_unit_test(test_following_segments_can_be_told),
            cmocka_unit_test(test_interaction_values),
            cmocka_unit_test(test_clicks_can_be_learnt),
    };

    return DPB_RUN_TESTS(tests);
}

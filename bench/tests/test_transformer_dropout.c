/* Dropout of BERT and GPT-2: masks belong to a step and to a sample's place in the global batch,
 * whoever computes it; evaluation has none. Gradients: test_transformer_gradients.c. */
#include "dpb_test.h"
#include "dpb_device_cpu.h"
#include "reference_device.h"
#include "tiny_transformers.h"
#include "transformer_private.h"

#include <math.h>

#define SAMPLES 4
#define DROPOUT 0.25

static const struct dpb_workload_ops *const tiny[] = {&tiny_bert_ops, &tiny_gpt2_ops};

static void open_dropping(struct fixture *fixture, const struct dpb_device_ops *device,
                          const struct dpb_workload_ops *workload, double dropout)
{
    fixture_open(fixture, device, workload, SAMPLES);
    tiny_transformer_spread(fixture);
    tiny_transformer_reopen(fixture, dropout, DPB_F32);
    fixture->batch.step = 1;
}

/* Let the batch be `count` samples from `first` on of the global batch of all. */
static void take_samples(struct fixture *fixture, int64_t first, int64_t count)
{
    int64_t sequence = fixture->model->sequence, predicted = fixture->model->predicted;
    struct dpb_batch *batch = &fixture->batch;

    batch->samples = count;
    batch->first = first;
    batch->sample_ids = fixture->ids + first;
    batch->label = fixture->label + first;
    batch->tokens = fixture->tokens + first * sequence;
    batch->segments = fixture->segments + first * sequence;
    batch->predict_position = fixture->predict_position + first * predicted;
    batch->predict_token = fixture->predict_token + first * predicted;
}

static double loss_of(struct fixture *fixture, bool training)
{
    struct dpb_forward_result result;

    assert_int_equal(dpb_forward_and_read(fixture->ops, &fixture->launcher, fixture->workload,
                                          &fixture->batch, training, &result),
                     DPB_OK);
    return result.loss_sum;
}

/* Parts of a batch, each computed by itself as by a rank of its own, against the whole. */
static void check_parts(const struct dpb_device_ops *device,
                        const struct dpb_workload_ops *workload, const int64_t *cuts, int parts)
{
    struct fixture fixture;
    double *sum, loss = 0.0, whole, largest = 0.0;

    open_dropping(&fixture, device, workload, DROPOUT);
    sum = calloc((size_t)fixture.elements, sizeof(*sum));
    assert_non_null(sum);
    for (int p = 0; p < parts; p++) {
        take_samples(&fixture, cuts[p], cuts[p + 1] - cuts[p]);
        loss += fixture_step(&fixture, 0.25f).loss_sum;
        for (int64_t e = 0; e < fixture.elements; e++)
            sum[e] += (double)fixture.grads[e];
    }
    take_samples(&fixture, 0, SAMPLES);
    whole = fixture_step(&fixture, 0.25f).loss_sum;
    assert_true(fabs(whole - loss) < 1e-5);
    for (int64_t e = 0; e < fixture.elements; e++)
        largest = fmax(largest, fabs(sum[e]));
    assert_true(largest > 1e-2);
    for (int64_t e = 0; e < fixture.elements; e++)
        assert_true(fabs(sum[e] - (double)fixture.grads[e]) < 4e-6 * largest);
    /* elsewhere in the global batch other elements are dropped */
    fixture.batch.first = SAMPLES;
    assert_true(fabs(loss_of(&fixture, true) - whole) > 1e-3);
    free(sum);
    fixture_close(&fixture);
}

static void test_ranks_drop_what_one_drops(void **state)
{
    static const int64_t halves[] = {0, 2, 4}, uneven[] = {0, 1, 4}, single[] = {0, 1, 2, 3, 4};

    (void)state;
    for (int i = 0; i < 2; i++) {
        check_parts(&test_reference_device_ops, tiny[i], halves, 2);
        check_parts(&test_reference_device_ops, tiny[i], uneven, 2);
        check_parts(&dpb_device_cpu_ops, tiny[i], halves, 2);
        check_parts(&dpb_device_cpu_ops, tiny[i], single, 4);
    }
}

static void test_masks_belong_to_the_step(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct fixture fixture;
        double first, second;

        open_dropping(&fixture, &test_reference_device_ops, tiny[i], DROPOUT);
        first = loss_of(&fixture, true);
        fixture.batch.step = 2;
        second = loss_of(&fixture, true);
        assert_true(fabs(second - first) > 1e-3);
        fixture.batch.step = 1;
        assert_true(loss_of(&fixture, true) == first);
        fixture_close(&fixture);
    }
}

static void test_evaluation_drops_nothing(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct fixture dropping, whole;
        double expected;

        open_dropping(&dropping, &test_reference_device_ops, tiny[i], DROPOUT);
        open_dropping(&whole, &test_reference_device_ops, tiny[i], 0.0);
        expected = loss_of(&whole, true);
        assert_true(loss_of(&whole, false) == expected);
        assert_true(loss_of(&dropping, false) == expected);
        assert_true(fabs(loss_of(&dropping, true) - expected) > 1e-3);
        fixture_close(&whole);
        fixture_close(&dropping);
    }
}

/* Without dropout not one operator of it is launched, with it one per place and direction; those of
 * attention are in its operator. */
static void test_operators_that_are_launched(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct fixture fixture;

        open_dropping(&fixture, &test_reference_device_ops, tiny[i], 0.0);
        fixture_step(&fixture, 1.0f);
        assert_int_equal(test_reference_device_launches(fixture.device, DPB_OP_DROPOUT_FWD), 0);
        assert_int_equal(test_reference_device_launches(fixture.device, DPB_OP_DROPOUT_BWD), 0);
        tiny_transformer_reopen(&fixture, DROPOUT, DPB_F32);
        fixture_step(&fixture, 1.0f);
        assert_int_equal(test_reference_device_launches(fixture.device, DPB_OP_DROPOUT_FWD), 5);
        assert_int_equal(test_reference_device_launches(fixture.device, DPB_OP_DROPOUT_BWD), 5);
        fixture_close(&fixture);
    }
}

/* Every place of every block and step has masks of its own. */
static void test_seeds_differ(void **state)
{
    uint64_t seen[2 * 2 * 3 * 4];
    int count = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= 2; seed++) {
        for (int64_t step = 1; step <= 2; step++) {
            for (int block = 0; block < 3; block++) {
                for (int place = DPB_PLACE_EMBEDDED; place <= DPB_PLACE_WIDE; place++)
                    seen[count++] = dpb_transformer_mask_seed(
                            seed, step, (enum dpb_transformer_place)place, block);
            }
        }
    }
    for (int i = 0; i < count; i++) {
        for (int j = 0; j < i; j++)
            assert_true(seen[i] != seen[j]);
    }
}

/* What of GPT-2's embeddings is dropped, over many steps: within four standard deviations. */
static void test_rate(void **state)
{
    const struct dpb_transformer_shape *shape = &tiny_gpt2_list()->shape;
    int64_t elements = SAMPLES * shape->sequence * shape->hidden, dropped = 0;
    double rates[] = {0.1, 0.5}, tried;
    const int steps = 40;

    (void)state;
    for (int r = 0; r < 2; r++) {
        struct fixture fixture;

        open_dropping(&fixture, &dpb_device_cpu_ops, &tiny_gpt2_ops, rates[r]);
        dropped = 0;
        for (int step = 1; step <= steps; step++) {
            const struct dpb_transformer *net = dpb_transformer_self(fixture.workload);

            fixture.batch.step = step;
            loss_of(&fixture, true);
            for (int64_t e = 0; e < elements; e++)
                dropped += ((const float *)net->embedded)[e] == 0.0f;
        }
        tried = (double)(steps * elements);
        assert_true(fabs((double)dropped - rates[r] * tried) <
                    4.0 * sqrt(tried * rates[r] * (1.0 - rates[r])));
        fixture_close(&fixture);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_ranks_drop_what_one_drops),
            cmocka_unit_test(test_masks_belong_to_the_step),
            cmocka_unit_test(test_evaluation_drops_nothing),
            cmocka_unit_test(test_operators_that_are_launched),
            cmocka_unit_test(test_seeds_differ),
            cmocka_unit_test(test_rate),
    };

    return DPB_RUN_TESTS(tests);
}

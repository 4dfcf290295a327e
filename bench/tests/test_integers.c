/* The integer workload: exact sums, whatever the split. */
#include "dpb_test.h"
#include "dpb_workloads.h"
#include "fixture.h"
#include "reference_device.h"

#include <math.h>

static void open_integers(struct fixture *fixture, int64_t batch_max)
{
    fixture_open(fixture, &test_reference_device_ops, &dpb_workload_integers_ops, batch_max);
}

static void set_slice(struct fixture *fixture, int64_t first, int64_t count)
{
    fixture->batch = (struct dpb_batch){.samples = count,
                                        .x = fixture->x + first * 784,
                                        .label = fixture->label + first,
                                        .sample_ids = fixture->ids + first};
}

static float *copy_of_gradients(const struct fixture *fixture)
{
    size_t bytes = (size_t)fixture->elements * sizeof(float);
    float *copy = malloc(bytes);

    assert_non_null(copy);
    memcpy(copy, fixture->grads, bytes);
    return copy;
}

static void test_one_sample_is_a_small_integer(void **state)
{
    struct fixture fixture;
    int64_t seen[17] = {0};

    (void)state;
    open_integers(&fixture, 8);
    for (int64_t s = 0; s < 8; s++) {
        set_slice(&fixture, s, 1);
        fixture_step(&fixture, 1.0f);
        for (int64_t i = 0; i < fixture.elements; i++) {
            float value = fixture.grads[i];

            assert_true(value == truncf(value) && fabsf(value) <= 8.0f);
            seen[(int)value + 8]++;
        }
    }
    assert_int_equal(seen[8], 0); /* never 0: every sample counts in every element */
    assert_true(seen[0] > 0 && seen[16] > 0);
    fixture_close(&fixture);
}

/* The sum over ranks has the bits of one rank's sum, for every rank count and uneven slices. */
static void test_splits_add_up_to_the_same_bits(void **state)
{
    struct fixture fixture;
    float *whole;

    (void)state;
    open_integers(&fixture, 64);
    fixture_step(&fixture, 1.0f);
    whole = copy_of_gradients(&fixture);
    for (int ranks = 2; ranks <= 5; ranks++) {
        float *sum = calloc((size_t)fixture.elements, sizeof(*sum));
        double loss = 0.0, whole_loss;
        struct dpb_forward_result result;

        assert_non_null(sum);
        for (int rank = 0; rank < ranks; rank++) {
            int64_t first, count;

            assert_int_equal(dpb_shard_of_batch(64, ranks, rank, true, &first, &count), DPB_OK);
            set_slice(&fixture, first, count);
            loss += fixture_step(&fixture, 1.0f).loss_sum;
            for (int64_t i = 0; i < fixture.elements; i++)
                sum[i] = rank == 0 ? fixture.grads[i] : sum[i] + fixture.grads[i];
        }
        assert_memory_equal(sum, whole, (size_t)fixture.elements * sizeof(float));
        set_slice(&fixture, 0, 64);
        assert_int_equal(dpb_forward_and_read(fixture.ops, &fixture.launcher, fixture.workload,
                                              &fixture.batch, true, &result),
                         DPB_OK);
        whole_loss = result.loss_sum;
        assert_true(loss == whole_loss);
        assert_true(loss == trunc(loss) && loss > 0.0);
        free(sum);
    }
    free(whole);
    fixture_close(&fixture);
}

/* A power of two scales without rounding. */
static void test_scale(void **state)
{
    struct fixture fixture;
    float *whole;

    (void)state;
    open_integers(&fixture, 64);
    fixture_step(&fixture, 1.0f);
    whole = copy_of_gradients(&fixture);
    fixture_step(&fixture, 0x1p-7f);
    for (int64_t i = 0; i < fixture.elements; i++)
        assert_true(fixture.grads[i] * 128.0f == whole[i]);
    free(whole);
    fixture_close(&fixture);
}

/* What a check has to notice: a sample left out, one counted twice, another one, tensors exchanged
 * or shifted. Nearly every element changes. */
static void check_most_differ(const float *a, const float *b, int64_t count)
{
    int64_t different = 0;

    for (int64_t i = 0; i < count; i++)
        different += a[i] != b[i];
    assert_true(different * 10 >= count * 7);
}

static void test_mistakes_show(void **state)
{
    struct fixture fixture;
    float *whole;

    (void)state;
    open_integers(&fixture, 9);
    set_slice(&fixture, 0, 8);
    fixture_step(&fixture, 1.0f);
    whole = copy_of_gradients(&fixture);
    check_most_differ(whole, whole + 1, fixture.elements - 1);
    check_most_differ(whole, whole + 64, fixture.elements - 64);

    set_slice(&fixture, 0, 7); /* one left out */
    fixture_step(&fixture, 1.0f);
    check_most_differ(whole, fixture.grads, fixture.elements);

    set_slice(&fixture, 0, 9);
    fixture.ids[8] = 3; /* counted twice */
    fixture_step(&fixture, 1.0f);
    check_most_differ(whole, fixture.grads, fixture.elements);
    free(whole);
    fixture_close(&fixture);
}

static void test_no_samples(void **state)
{
    static const float zero;
    struct fixture fixture;

    (void)state;
    open_integers(&fixture, 4);
    set_slice(&fixture, 0, 0);
    assert_true(fixture_step(&fixture, 1.0f).loss_sum == 0.0);
    assert_int_equal(fixture.ready_count, fixture.model->param_count);
    for (int64_t i = 0; i < fixture.elements; i++)
        assert_memory_equal(&fixture.grads[i], &zero, sizeof(zero)); /* and not -0 */
    fixture_close(&fixture);
}

static void test_ready_order(void **state)
{
    struct fixture fixture;

    (void)state;
    open_integers(&fixture, 4);
    fixture_step(&fixture, 1.0f);
    assert_int_equal(fixture.ready_count, fixture.model->param_count);
    assert_memory_equal(fixture.ready, fixture.model->ready_order,
                        (size_t)fixture.ready_count * sizeof(int));
    fixture_close(&fixture);
}

/* With the suggested settings 12 steps of 32 samples round nothing: fp32 is float64 to the bit. */
static void test_updates_are_exact(void **state)
{
    const struct dpb_training_defaults *training = &dpb_workload_integers_ops.training;
    struct fixture fixture;
    float *momentum;
    double *param, *velocity;

    (void)state;
    open_integers(&fixture, 32);
    momentum = calloc((size_t)fixture.elements, sizeof(*momentum));
    velocity = calloc((size_t)fixture.elements, sizeof(*velocity));
    param = calloc((size_t)fixture.elements, sizeof(*param));
    assert_true(momentum && velocity && param);
    for (int64_t i = 0; i < fixture.elements; i++) {
        param[i] = (double)fixture.params[i];
        assert_true(param[i] == trunc(param[i]) && fabs(param[i]) <= 8.0);
    }
    for (int step = 0; step < 12; step++) {
        for (int i = 0; i < 32; i++)
            fixture.ids[i] = step * 32 + i;
        fixture_step(&fixture, 1.0f);
        for (int64_t i = 0; i < fixture.elements; i++) {
            momentum[i] = (float)training->momentum * momentum[i] + fixture.grads[i];
            fixture.params[i] -= (float)training->lr * momentum[i];
            velocity[i] = training->momentum * velocity[i] + (double)fixture.grads[i];
            param[i] -= training->lr * velocity[i];
            assert_true((double)fixture.params[i] == param[i]);
        }
    }
    free(momentum);
    free(velocity);
    free(param);
    fixture_close(&fixture);
}

static void test_seed_and_batch_checks(void **state)
{
    struct dpb_forward_result result;
    struct fixture a, b;

    (void)state;
    open_integers(&a, 2);
    open_integers(&b, 2);
    assert_memory_equal(a.params, b.params, (size_t)a.elements * sizeof(float));
    assert_int_equal(b.ops->init_params(b.workload, 2), DPB_OK);
    assert_memory_not_equal(a.params, b.params, (size_t)a.elements * sizeof(float));
    assert_int_equal(a.ops->activation_bytes(a.workload), a.elements);
    log_collect();
    a.batch.samples = 3;
    assert_int_equal(dpb_forward_and_read(a.ops, &a.launcher, a.workload, &a.batch, true, &result),
                     DPB_ERR_USAGE);
    log_stop();
    fixture_close(&a);
    fixture_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_one_sample_is_a_small_integer),
            cmocka_unit_test(test_splits_add_up_to_the_same_bits),
            cmocka_unit_test(test_scale),
            cmocka_unit_test(test_mistakes_show),
            cmocka_unit_test(test_no_samples),
            cmocka_unit_test(test_ready_order),
            cmocka_unit_test(test_updates_are_exact),
            cmocka_unit_test(test_seed_and_batch_checks),
    };

    return DPB_RUN_TESTS(tests);
}

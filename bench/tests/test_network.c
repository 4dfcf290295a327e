/* The executor of layer lists: what is launched, in which order gradients become ready, batches of
 * every size, unaligned memory, errors. On the reference device; gradients' values:
 * test_gradients.c. */
#include "dpb_test.h"
#include "dpb_workloads.h"
#include "fixture.h"
#include "reference_device.h"
#include "tiny_network.h"

#include <math.h>

static void open_cnn(struct fixture *fixture, int64_t batch_max)
{
    fixture_open(fixture, &test_reference_device_ops, &dpb_workload_mnist_cnn_ops, batch_max);
}

static void open_mlp(struct fixture *fixture, int64_t batch_max)
{
    fixture_open(fixture, &test_reference_device_ops, &dpb_workload_mnist_mlp_ops, batch_max);
}

static void check_ready(const struct fixture *fixture)
{
    assert_int_equal(fixture->ready_count, fixture->model->param_count);
    assert_memory_equal(fixture->ready, fixture->model->ready_order,
                        (size_t)fixture->model->param_count * sizeof(int));
}

static void test_operators_launched(void **state)
{
    struct fixture fixture;

    (void)state;
    open_cnn(&fixture, 2);
    fixture_step(&fixture, 0.5f);
    check_ready(&fixture);
    assert_int_equal(test_reference_device_launches(fixture.device, DPB_OP_CONV_FWD), 2);
    assert_int_equal(test_reference_device_launches(fixture.device, DPB_OP_POOL_MAX_FWD), 1);
    assert_int_equal(test_reference_device_launches(fixture.device, DPB_OP_CONV_BWD_WEIGHTS), 2);
    /* the images need no gradient */
    assert_int_equal(test_reference_device_launches(fixture.device, DPB_OP_CONV_BWD_DATA), 1);
    /* two forward, two for weights, two for data */
    assert_int_equal(test_reference_device_launches(fixture.device, DPB_OP_MATMUL), 6);
    assert_int_equal(test_reference_device_launches(fixture.device, DPB_OP_RELU_BWD), 3);
    /* bias and ReLU are part of the forward operators */
    assert_int_equal(test_reference_device_launches(fixture.device, DPB_OP_BIAS_FWD), 0);
    assert_int_equal(test_reference_device_launches(fixture.device, DPB_OP_RELU_FWD), 0);
    fixture_close(&fixture);

    open_mlp(&fixture, 2);
    fixture_step(&fixture, 0.5f);
    check_ready(&fixture);
    assert_int_equal(test_reference_device_launches(fixture.device, DPB_OP_MATMUL), 3 + 3 + 2);
    fixture_close(&fixture);
}

static void test_names_in_the_trace(void **state)
{
    static const char *const names[] = {
            "conv1.fwd",         "conv2.fwd",      "pool.fwd",       "fc1.fwd",
            "fc2.fwd",           "loss.fwd",       "loss.bwd",       "fc2.bwd-bias",
            "fc2.bwd-weights",   "fc2.bwd-data",   "fc1.bwd-relu",   "fc1.bwd-bias",
            "fc1.bwd-weights",   "fc1.bwd-data",   "pool.bwd-data",  "conv2.bwd-relu",
            "conv2.bwd-weights", "conv2.bwd-data", "conv1.bwd-relu", "conv1.bwd-weights"};
    const size_t name_count = sizeof(names) / sizeof(names[0]);
    const struct dpb_event *events;
    struct fixture fixture;
    uint64_t lost;
    size_t count;

    (void)state;
    open_cnn(&fixture, 1);
    fixture_step(&fixture, 1.0f);
    assert_int_equal(dpb_recorder_host_ops.drain(fixture.recorder, &events, &count, &lost), DPB_OK);
    assert_int_equal(lost, 0);
    assert_int_equal(count, name_count);
    for (size_t i = 0; i < count; i++) {
        assert_string_equal(events[i].name, names[i]);
        assert_int_equal(events[i].kind, DPB_EVENT_COMPUTE);
    }
    fixture_close(&fixture);
}

/* A batch of one of a workload opened for four gives what a workload opened for one gives. */
static void test_smaller_batch(void **state)
{
    struct fixture one, four;
    struct dpb_forward_result result_one, result_four;
    size_t bytes;

    (void)state;
    open_cnn(&one, 1);
    open_cnn(&four, 4);
    bytes = (size_t)one.elements * sizeof(float);
    fixture_step(&four, 0.25f); /* leaves values of the large batch behind */
    four.batch.samples = 1;
    result_four = fixture_step(&four, 0.5f);
    result_one = fixture_step(&one, 0.5f);
    assert_true(result_four.loss_sum == result_one.loss_sum);
    assert_int_equal(result_four.correct, result_one.correct);
    assert_memory_equal(four.grads, one.grads, bytes);
    fixture_close(&one);
    fixture_close(&four);
}

/* The gradient of a batch is the sum of its samples' gradients: what data parallelism rests on. */
static void test_gradients_add_up(void **state)
{
    struct fixture fixture;
    double *sum, largest = 0.0;

    (void)state;
    open_mlp(&fixture, 3);
    sum = calloc((size_t)fixture.elements, sizeof(*sum));
    assert_non_null(sum);
    for (int i = 0; i < 3; i++) {
        fixture.batch = (struct dpb_batch){.samples = 1,
                                           .x = fixture.x + (int64_t)i * 784,
                                           .label = fixture.label + i,
                                           .sample_ids = fixture.ids + i};
        fixture_step(&fixture, 0.25f);
        for (int64_t e = 0; e < fixture.elements; e++)
            sum[e] += (double)fixture.grads[e];
    }
    fixture.batch = (struct dpb_batch){
            .samples = 3, .x = fixture.x, .label = fixture.label, .sample_ids = fixture.ids};
    fixture_step(&fixture, 0.25f);
    for (int64_t e = 0; e < fixture.elements; e++) {
        assert_true(fabs(sum[e] - (double)fixture.grads[e]) < 1e-7);
        largest = fmax(largest, fabs(sum[e]));
    }
    assert_true(largest > 1e-3);
    free(sum);
    fixture_close(&fixture);
}

static void test_no_samples(void **state)
{
    struct fixture fixture;
    struct dpb_forward_result result;

    (void)state;
    open_cnn(&fixture, 2);
    fixture.batch.samples = 0;
    fixture.batch.x = NULL;
    fixture.batch.label = NULL;
    fixture.batch.sample_ids = NULL;
    result = fixture_step(&fixture, 0.5f);
    assert_true(result.loss_sum == 0.0);
    assert_int_equal(result.correct, 0);
    check_ready(&fixture);
    for (int64_t i = 0; i < fixture.elements; i++)
        assert_true(fixture.grads[i] == 0.0f);
    fixture_close(&fixture);
}

/* Gradients and parameters at odd multiples of four bytes, with sentinels around each. */
static void test_unaligned_memory(void **state)
{
    struct fixture fixture;
    float *memory, *param[DPB_LAYER_PARAMS_MAX], *grad[DPB_LAYER_PARAMS_MAX];
    int count;
    int64_t at = 0;

    (void)state;
    open_cnn(&fixture, 2);
    count = fixture.model->param_count;
    memory = malloc(((size_t)fixture.elements * 2 + 4 * (size_t)count + 1) * sizeof(float));
    assert_non_null(memory);
    for (int p = 0; p < count; p++) {
        int64_t numel = fixture.model->params[p].numel;

        memory[at++] = 12345.0f;
        param[p] = memory + at;
        memcpy(param[p], fixture.param[p], (size_t)numel * sizeof(float));
        at += numel;
        memory[at++] = 12345.0f;
        grad[p] = memory + at;
        at += numel;
    }
    memory[at] = 12345.0f;
    fixture_step(&fixture, 0.5f);
    fixture.ops->bind(fixture.workload, param, grad);
    fixture_step(&fixture, 0.5f);
    for (int p = 0; p < count; p++) {
        size_t bytes = (size_t)fixture.model->params[p].numel * sizeof(float);

        assert_memory_equal(grad[p], fixture.grad[p], bytes);
        assert_memory_equal(param[p], fixture.param[p], bytes);
        assert_true(param[p][-1] == 12345.0f);
        assert_true(grad[p][-1] == 12345.0f);
    }
    assert_true(memory[at] == 12345.0f);
    free(memory);
    fixture_close(&fixture);
}

/* loss_sum and correct against probabilities that are known: with all parameters zero except one
 * class's bias, every sample gets the same logits. */
static void test_loss_and_correct(void **state)
{
    struct fixture fixture;
    struct dpb_forward_result result;
    double expected = 0.0;
    int64_t of_class_3 = 0;

    (void)state;
    open_mlp(&fixture, 20);
    memset(fixture.params, 0, (size_t)fixture.elements * sizeof(float));
    fixture.param[5][3] = 2.0f;
    for (int i = 0; i < 20; i++) {
        double logit = fixture.label[i] == 3 ? 2.0 : 0.0;

        expected += log(exp(2.0) + 9.0) - logit;
        of_class_3 += fixture.label[i] == 3;
    }
    assert_true(of_class_3 > 0 && of_class_3 < 20);
    result = fixture_step(&fixture, 1.0f);
    assert_true(fabs(result.loss_sum - expected) < 1e-4);
    assert_int_equal(result.correct, of_class_3);

    /* equal logits: the first class is taken */
    fixture.param[5][3] = 0.0f;
    result = fixture_step(&fixture, 1.0f);
    of_class_3 = 0;
    for (int i = 0; i < 20; i++)
        of_class_3 += fixture.label[i] == 0;
    assert_int_equal(result.correct, of_class_3);
    assert_true(fabs(result.loss_sum - 20.0 * log(10.0)) < 1e-4);

    /* a diverged network: the loss says so, and nothing counts as correct */
    for (int c = 0; c < 10; c++)
        fixture.param[5][c] = NAN;
    result = fixture_step(&fixture, 1.0f);
    assert_true(isnan(result.loss_sum));
    assert_int_equal(result.correct, 0);
    fixture_close(&fixture);
}

static void test_inference_gives_the_same_result_without_pool_indices(void **state)
{
    struct fixture fixture;
    struct dpb_forward_result training, inference;

    (void)state;
    open_cnn(&fixture, 2);
    training = fixture_step(&fixture, 0.5f);
    assert_int_equal(dpb_forward_and_read(fixture.ops, &fixture.launcher, fixture.workload,
                                          &fixture.batch, false, &inference),
                     DPB_OK);
    assert_int_equal(test_reference_device_launches(fixture.device, DPB_OP_POOL_MAX_FWD), 2);
    assert_int_equal(test_reference_device_pool_indices(fixture.device), 1);
    assert_true(training.loss_sum == inference.loss_sum);
    assert_int_equal(training.correct, inference.correct);
    fixture_close(&fixture);
}

static void check_loss_falls(const struct dpb_workload_ops *workload, int64_t samples, float lr)
{
    struct fixture fixture;
    double first = 0.0, last = 0.0;

    fixture_open(&fixture, &test_reference_device_ops, workload, samples);
    for (int step = 0; step < 10; step++) {
        last = fixture_step(&fixture, 1.0f / (float)samples).loss_sum / (double)samples;
        if (step == 0)
            first = last;
        fixture_update(&fixture, lr);
    }
    /* the first loss of ten classes is about ln 10 */
    assert_true(first > 2.0 && first < 2.7);
    assert_true(last < 0.5 * first);
    fixture_close(&fixture);
}

static void test_loss_falls(void **state)
{
    (void)state;
    check_loss_falls(&dpb_workload_mnist_cnn_ops, 4, 0.05f);
    check_loss_falls(&dpb_workload_mnist_mlp_ops, 8, 0.05f);
}

static dpb_status fail_at_fc1_weight(void *ctx, int param)
{
    int *calls = ctx;

    (*calls)++;
    return param == 4 ? DPB_ERR_TIMEOUT : DPB_OK;
}

static void test_backward_stops_when_ready_fails(void **state)
{
    struct dpb_forward_result result;
    struct fixture fixture;
    int calls = 0;

    (void)state;
    open_cnn(&fixture, 1);
    assert_int_equal(dpb_forward_and_read(fixture.ops, &fixture.launcher, fixture.workload,
                                          &fixture.batch, true, &result),
                     DPB_OK);
    assert_int_equal(fixture.ops->backward(fixture.workload, &fixture.batch, 1.0f,
                                           fail_at_fc1_weight, &calls),
                     DPB_ERR_TIMEOUT);
    assert_int_equal(calls, 4);
    assert_int_equal(test_reference_device_launches(fixture.device, DPB_OP_CONV_BWD_WEIGHTS), 0);
    calls = 0;
    fixture.batch.samples = 0;
    assert_int_equal(fixture.ops->backward(fixture.workload, &fixture.batch, 1.0f,
                                           fail_at_fc1_weight, &calls),
                     DPB_ERR_TIMEOUT);
    assert_int_equal(calls, 4);
    fixture_close(&fixture);
}

static void test_batches_that_do_not_fit(void **state)
{
    struct dpb_forward_result result = {.correct = 99};
    struct fixture fixture;

    (void)state;
    open_mlp(&fixture, 2);
    log_collect();
    fixture.batch.samples = 3;
    assert_int_equal(dpb_forward_and_read(fixture.ops, &fixture.launcher, fixture.workload,
                                          &fixture.batch, true, &result),
                     DPB_ERR_USAGE);
    assert_true(log_has("a batch of 3 samples does not fit, there is room for 2"));
    fixture.batch.samples = 2;
    fixture.label[1] = 10;
    assert_int_equal(dpb_forward_and_read(fixture.ops, &fixture.launcher, fixture.workload,
                                          &fixture.batch, true, &result),
                     DPB_ERR_USAGE);
    assert_true(log_has("sample 1 has label 10, but there are 10 classes"));
    fixture.label[1] = -1;
    assert_int_equal(dpb_forward_and_read(fixture.ops, &fixture.launcher, fixture.workload,
                                          &fixture.batch, true, &result),
                     DPB_ERR_USAGE);
    assert_int_equal(result.correct, 99);
    log_stop();
    fixture_close(&fixture);
}

/* Blocks begin at multiples of 64 bytes. */
static int64_t block(int64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static void test_activation_bytes(void **state)
{
    struct fixture fixture;
    const int64_t floats[] = {21632, 36864, 9216, 128, 10, /* outputs */
                              21632, 36864,                /* gradients, in two buffers */
                              10,    1};                   /* prob, loss */
    int64_t bytes = block(4 * 9216) + 65536;               /* positions of maxima, zeros */

    (void)state;
    for (size_t i = 0; i < sizeof(floats) / sizeof(floats[0]); i++)
        bytes += block(4 * 4 * floats[i]);
    open_cnn(&fixture, 4);
    assert_int_equal(fixture.ops->activation_bytes(fixture.workload), bytes);
    fixture_close(&fixture);
}

/* What is predicted without opening is what opening allocates. */
static void test_activation_bytes_are_predicted(void **state)
{
    static const struct dpb_workload_ops *const workloads[] = {
            &dpb_workload_mnist_cnn_ops, &dpb_workload_mnist_mlp_ops, &tiny_network_ops};

    (void)state;
    for (size_t w = 0; w < sizeof(workloads) / sizeof(workloads[0]); w++) {
        for (int64_t batch = 1; batch <= 7; batch += 3) {
            struct fixture fixture;

            fixture_open(&fixture, &test_reference_device_ops, workloads[w], batch);
            assert_int_equal(
                    workloads[w]->activation_bytes_for(
                            NULL, &(struct dpb_workload_sizes){.batch_max = batch, .ranks = 1}),
                    workloads[w]->activation_bytes(fixture.workload));
            fixture_close(&fixture);
        }
    }
}

static void test_out_of_memory(void **state)
{
    dpb_workload *workload = NULL;
    struct fixture fixture;
    struct dpb_workload_config config = {.launcher = &fixture.launcher, .batch_max = 2};

    (void)state;
    open_cnn(&fixture, 1);
    assert_int_equal(test_reference_device_blocks(fixture.device), 1);
    log_collect();
    test_reference_device_limit(fixture.device, 0);
    assert_int_equal(fixture.ops->open(&config, &workload), DPB_ERR_NO_MEMORY);
    assert_null(workload);
    assert_int_equal(test_reference_device_blocks(fixture.device), 1);
    assert_true(log_has("use a smaller batch per rank"));
    log_stop();
    test_reference_device_limit(fixture.device, 1);
    assert_int_equal(fixture.ops->open(&config, &workload), DPB_OK);
    fixture.ops->close(workload);
    assert_int_equal(test_reference_device_blocks(fixture.device), 1);
    fixture_close(&fixture);
}

static void test_open_refuses_an_empty_batch(void **state)
{
    dpb_workload *workload = NULL;
    struct fixture fixture;
    struct dpb_workload_config config = {.launcher = &fixture.launcher};

    (void)state;
    open_mlp(&fixture, 1);
    log_collect();
    assert_int_equal(fixture.ops->open(&config, &workload), DPB_ERR_USAGE);
    log_stop();
    assert_null(workload);
    fixture.ops->close(NULL);
    fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_operators_launched),
            cmocka_unit_test(test_names_in_the_trace),
            cmocka_unit_test(test_smaller_batch),
            cmocka_unit_test(test_gradients_add_up),
            cmocka_unit_test(test_no_samples),
            cmocka_unit_test(test_unaligned_memory),
            cmocka_unit_test(test_loss_and_correct),
            cmocka_unit_test(test_inference_gives_the_same_result_without_pool_indices),
            cmocka_unit_test(test_loss_falls),
            cmocka_unit_test(test_backward_stops_when_ready_fails),
            cmocka_unit_test(test_batches_that_do_not_fit),
            cmocka_unit_test(test_activation_bytes),
            cmocka_unit_test(test_activation_bytes_are_predicted),
            cmocka_unit_test(test_out_of_memory),
            cmocka_unit_test(test_open_refuses_an_empty_batch),
    };

    return DPB_RUN_TESTS(tests);
}

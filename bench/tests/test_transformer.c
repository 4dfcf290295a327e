/* The transformer executor: in which order gradients become ready, batches of every size, what the
 * loss and `correct` count, memory, errors. Gradients' values: test_transformer_gradients.c. */
#include "dpb_test.h"
#include "dpb_device_cpu.h"
#include "dpb_workloads.h"
#include "reference_device.h"
#include "tiny_transformers.h"
#include "transformer.h"

#include <math.h>

#define SAMPLES 4

static const struct dpb_workload_ops *const tiny[] = {&tiny_bert_ops, &tiny_gpt2_ops};

static void open_spread(struct fixture *fixture, const struct dpb_workload_ops *workload,
                        int64_t batch_max)
{
    fixture_open(fixture, &test_reference_device_ops, workload, batch_max);
    tiny_transformer_spread(fixture);
}

static void check_ready(const struct fixture *fixture)
{
    assert_int_equal(fixture->ready_count, fixture->model->param_count);
    assert_memory_equal(fixture->ready, fixture->model->ready_order,
                        (size_t)fixture->model->param_count * sizeof(int));
}

/* Let the batch be `count` samples from `first` on. */
static void take_samples(struct fixture *fixture, int64_t first, int64_t count)
{
    int64_t sequence = fixture->model->sequence, predicted = fixture->model->predicted;

    fixture->batch =
            (struct dpb_batch){.samples = count,
                               .sample_ids = fixture->ids + first,
                               .label = fixture->label + first,
                               .tokens = fixture->tokens + first * sequence,
                               .segments = fixture->segments + first * sequence,
                               .predict_position = fixture->predict_position + first * predicted,
                               .predict_token = fixture->predict_token + first * predicted};
}

static void test_every_gradient_is_reported_once_in_order(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct fixture fixture;

        open_spread(&fixture, tiny[i], SAMPLES);
        fixture_step(&fixture, 0.5f);
        check_ready(&fixture);
        assert_int_equal(fixture.ready[fixture.ready_count - 1], 0); /* the tied embedding */
        fixture_close(&fixture);
    }
}

/* When a gradient is reported it is complete: nothing writes to it afterwards. */
struct snapshot {
    struct fixture *fixture;
    float *grads;
};

static dpb_status take_snapshot(void *ctx, int param)
{
    struct snapshot *snapshot = ctx;
    const struct fixture *fixture = snapshot->fixture;
    int64_t at = fixture->grad[param] - fixture->grads;

    memcpy(snapshot->grads + at, fixture->grad[param],
           (size_t)fixture->model->params[param].numel * sizeof(float));
    return DPB_OK;
}

static void test_a_reported_gradient_is_complete(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct dpb_forward_result result;
        struct snapshot snapshot;
        struct fixture fixture;

        open_spread(&fixture, tiny[i], SAMPLES);
        snapshot.fixture = &fixture;
        snapshot.grads = calloc((size_t)fixture.elements, sizeof(float));
        assert_non_null(snapshot.grads);
        assert_int_equal(dpb_forward_and_read(fixture.ops, &fixture.launcher, fixture.workload,
                                              &fixture.batch, true, &result),
                         DPB_OK);
        assert_int_equal(fixture.ops->backward(fixture.workload, &fixture.batch, 0.5f,
                                               take_snapshot, &snapshot),
                         DPB_OK);
        assert_memory_equal(snapshot.grads, fixture.grads,
                            (size_t)fixture.elements * sizeof(float));
        free(snapshot.grads);
        fixture_close(&fixture);
    }
}

/* The gradient and the loss of a batch are sums over its parts: what data parallelism rests on. */
static void test_parts_add_up(void **state)
{
    static const int64_t cuts[] = {0, 1, SAMPLES};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct dpb_forward_result result, part = {0}, whole;
        struct fixture fixture;
        double *sum, largest = 0.0;

        open_spread(&fixture, tiny[i], SAMPLES);
        sum = calloc((size_t)fixture.elements, sizeof(*sum));
        assert_non_null(sum);
        for (int c = 0; c < 2; c++) {
            take_samples(&fixture, cuts[c], cuts[c + 1] - cuts[c]);
            result = fixture_step(&fixture, 0.25f);
            part.loss_sum += result.loss_sum;
            part.correct += result.correct;
            for (int64_t e = 0; e < fixture.elements; e++)
                sum[e] += (double)fixture.grads[e];
        }
        take_samples(&fixture, 0, SAMPLES);
        whole = fixture_step(&fixture, 0.25f);
        assert_true(fabs(whole.loss_sum - part.loss_sum) < 1e-5);
        assert_int_equal(whole.correct, part.correct);
        for (int64_t e = 0; e < fixture.elements; e++)
            largest = fmax(largest, fabs(sum[e]));
        assert_true(largest > 1e-2);
        for (int64_t e = 0; e < fixture.elements; e++)
            assert_true(fabs(sum[e] - (double)fixture.grads[e]) < 2e-6 * largest);
        free(sum);
        fixture_close(&fixture);
    }
}

static void test_no_samples(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct dpb_forward_result result;
        struct fixture fixture;

        open_spread(&fixture, tiny[i], SAMPLES);
        fixture.batch = (struct dpb_batch){0};
        result = fixture_step(&fixture, 0.5f);
        assert_true(result.loss_sum == 0.0);
        assert_int_equal(result.correct, 0);
        check_ready(&fixture);
        for (int64_t e = 0; e < fixture.elements; e++)
            assert_true(fixture.grads[e] == 0.0f);
        fixture_close(&fixture);
    }
}

/* With all parameters zero every word is equally likely, and so is each answer on a pair. */
static void test_loss_of_a_network_that_knows_nothing(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        bool bert = tiny[i] == &tiny_bert_ops;
        struct dpb_forward_result result;
        struct fixture fixture;
        int64_t zeros = 0;

        fixture_open(&fixture, &test_reference_device_ops, tiny[i], SAMPLES);
        memset(fixture.params, 0, (size_t)fixture.elements * sizeof(float));
        result = fixture_step(&fixture, 1.0f);
        assert_true(fabs(result.loss_sum - SAMPLES * (log(37.0) + (bert ? log(2.0) : 0.0))) < 1e-5);
        /* equal values: the first class or word is taken */
        for (int s = 0; s < SAMPLES; s++)
            zeros += bert ? fixture.label[s] == 0 : fixture.predict_token[8 * s + 7] == 0;
        assert_int_equal(result.correct, zeros);
        fixture_close(&fixture);
    }
}

static void test_correct_counts_samples(void **state)
{
    struct dpb_forward_result result;
    struct fixture fixture;
    int64_t ones = 0;

    (void)state;
    open_spread(&fixture, &tiny_bert_ops, SAMPLES);
    memset(fixture.label, 0, SAMPLES * sizeof(int32_t));
    fixture.label[2] = 1;
    for (int s = 0; s < SAMPLES; s++)
        ones += fixture.label[s];
    fixture.param[fixture.model->param_count - 1][1] = 1e4f; /* the bias of "follows" */
    result = fixture_step(&fixture, 1.0f);
    assert_int_equal(result.correct, ones);
    fixture.param[fixture.model->param_count - 1][1] = NAN;
    result = fixture_step(&fixture, 1.0f);
    assert_true(isnan(result.loss_sum));
    assert_int_equal(result.correct, 0);
    fixture_close(&fixture);

    /* the final norm's bias, and a word that points the same way: it is always predicted */
    open_spread(&fixture, &tiny_gpt2_ops, SAMPLES);
    for (int d = 0; d < 16; d++) {
        fixture.param[fixture.model->param_count - 1][d] = 100.0f;
        fixture.param[0][5 * 16 + d] = 1.0f;
    }
    for (int s = 0; s < SAMPLES; s++)
        fixture.predict_token[8 * s + 7] = s == 1 ? 6 : 5;
    result = fixture_step(&fixture, 1.0f);
    assert_int_equal(result.correct, SAMPLES - 1);
    fixture_close(&fixture);
}

static void test_loss_falls(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        double first = 0.0, last = 0.0;
        struct fixture fixture;

        fixture_open(&fixture, &test_reference_device_ops, tiny[i], SAMPLES);
        for (int step = 0; step < 40; step++) {
            last = fixture_step(&fixture, 1.0f / SAMPLES).loss_sum / SAMPLES;
            if (step == 0)
                first = last;
            fixture_update(&fixture, 0.5f);
        }
        /* a network at its start knows next to nothing */
        assert_true(fabs(first - log(37.0) - (i == 0 ? log(2.0) : 0.0)) < 0.1);
        assert_true(last < 0.5 * first);
        fixture_close(&fixture);
    }
}

/* Buckets place parameters and gradients at any 4-byte alignment. */
static void test_unaligned_memory(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        float *memory, *param[DPB_LAYER_PARAMS_MAX], *grad[DPB_LAYER_PARAMS_MAX];
        struct fixture fixture;
        int64_t at = 0;
        int count;

        fixture_open(&fixture, &dpb_device_cpu_ops, tiny[i], SAMPLES);
        tiny_transformer_spread(&fixture);
        count = fixture.model->param_count;
        memory = calloc((size_t)fixture.elements * 2 + 4 * (size_t)count + 1, sizeof(float));
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
            for (int64_t e = 0; e < fixture.model->params[p].numel; e++)
                assert_true(fabsf(grad[p][e] - fixture.grad[p][e]) < 1e-5f);
            assert_true(param[p][-1] == 12345.0f);
            assert_true(grad[p][-1] == 12345.0f);
        }
        assert_true(memory[at] == 12345.0f);
        free(memory);
        fixture_close(&fixture);
    }
}

static dpb_status fail_at_last(void *ctx, int param)
{
    int *calls = ctx;

    (*calls)++;
    return param == 0 ? DPB_ERR_TIMEOUT : DPB_OK;
}

static void test_backward_stops_when_ready_fails(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct dpb_forward_result result;
        struct fixture fixture;
        int calls = 0;

        open_spread(&fixture, tiny[i], 1);
        assert_int_equal(dpb_forward_and_read(fixture.ops, &fixture.launcher, fixture.workload,
                                              &fixture.batch, true, &result),
                         DPB_OK);
        assert_int_equal(
                fixture.ops->backward(fixture.workload, &fixture.batch, 1.0f, fail_at_last, &calls),
                DPB_ERR_TIMEOUT);
        assert_int_equal(calls, fixture.model->param_count);
        fixture_close(&fixture);
    }
}

static void check_refused(struct fixture *fixture, int32_t *value, int32_t bad, const char *text)
{
    struct dpb_forward_result result = {.correct = 99};
    int32_t good = *value;

    *value = bad;
    assert_int_equal(dpb_forward_and_read(fixture->ops, &fixture->launcher, fixture->workload,
                                          &fixture->batch, true, &result),
                     DPB_ERR_USAGE);
    assert_true(log_has(text));
    assert_int_equal(result.correct, 99);
    *value = good;
}

static void test_batches_that_do_not_fit(void **state)
{
    struct dpb_forward_result result;
    struct fixture fixture;

    (void)state;
    open_spread(&fixture, &tiny_bert_ops, 2);
    log_collect();
    check_refused(&fixture, &fixture.tokens[9], 37, "sample 1 has token 37, which is not below 37");
    check_refused(&fixture, &fixture.tokens[0], -1, "sample 0 has token -1");
    check_refused(&fixture, &fixture.segments[3], 2, "sample 0 has segment 2");
    check_refused(&fixture, &fixture.predict_position[2], 8, "sample 1 has predicted position 8");
    check_refused(&fixture, &fixture.predict_token[3], 37, "sample 1 has predicted token 37");
    check_refused(&fixture, &fixture.label[1], 2, "sample 1 has label 2, which is not below 2");
    fixture.batch.samples = 3;
    assert_int_equal(dpb_forward_and_read(fixture.ops, &fixture.launcher, fixture.workload,
                                          &fixture.batch, true, &result),
                     DPB_ERR_USAGE);
    assert_true(log_has("a batch of 3 samples does not fit, there is room for 2"));
    log_stop();
    fixture_close(&fixture);
}

/* GPT-2 needs neither segments nor positions nor a label. */
static void test_gpt2_reads_tokens_only(void **state)
{
    struct fixture fixture;

    (void)state;
    open_spread(&fixture, &tiny_gpt2_ops, 2);
    fixture.batch.segments = NULL;
    fixture.batch.predict_position = NULL;
    fixture.batch.label = NULL;
    assert_true(fixture_step(&fixture, 1.0f).loss_sum > 0.0);
    fixture_close(&fixture);
}

static void test_memory_is_one_block_of_the_promised_size(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        const struct dpb_transformer_list *list = i == 0 ? tiny_bert_list() : tiny_gpt2_list();
        struct dpb_workload_sizes sizes = {.batch_max = SAMPLES, .ranks = 1};
        struct fixture fixture;
        int64_t bytes;

        open_spread(&fixture, tiny[i], SAMPLES);
        bytes = fixture.ops->activation_bytes(fixture.workload);
        assert_int_equal(test_reference_device_blocks(fixture.device), 1);
        sizes.precision = DPB_F32;
        assert_int_equal(dpb_transformer_activation_bytes_for(list, &sizes), bytes);
        /* at least what the blocks keep: eight planes of the hidden size and two wide ones */
        assert_true(bytes > 2 * SAMPLES * 8 * (8 * 16 + 2 * 64) * (int64_t)sizeof(float));
        tiny_transformer_reopen(&fixture, 0.0, DPB_BF16);
        sizes.precision = DPB_BF16;
        assert_int_equal(test_reference_device_blocks(fixture.device), 1);
        assert_int_equal(dpb_transformer_activation_bytes_for(list, &sizes),
                         fixture.ops->activation_bytes(fixture.workload));
        fixture_close(&fixture);
    }
}

static void test_out_of_memory(void **state)
{
    dpb_workload *workload = NULL;
    struct fixture fixture;
    struct dpb_workload_config config = {.launcher = &fixture.launcher, .batch_max = 2};

    (void)state;
    open_spread(&fixture, &tiny_bert_ops, 1);
    log_collect();
    test_reference_device_limit(fixture.device, 0);
    assert_int_equal(fixture.ops->open(&config, &workload), DPB_ERR_NO_MEMORY);
    assert_null(workload);
    assert_true(log_has("use a smaller batch per rank or a shorter --sequence"));
    config.batch_max = 0;
    assert_int_equal(fixture.ops->open(&config, &workload), DPB_ERR_USAGE);
    config.batch_max = INT32_MAX / 8 + 1;
    assert_int_equal(fixture.ops->open(&config, &workload), DPB_ERR_USAGE);
    log_stop();
    assert_null(workload);
    fixture.ops->close(NULL);
    fixture_close(&fixture);
}

static void test_workloads_have_the_networks_sizes(void **state)
{
    static const struct {
        const struct dpb_workload_ops *ops;
        int64_t elements, sequence, predicted;
    } known[] = {
            {&dpb_workload_bert_base_ops, 110106428, 128, 20},
            {&dpb_workload_bert_large_ops, 336226108, 128, 20},
            {&dpb_workload_gpt2_small_ops, 124439808, 1024, 1024},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        const struct dpb_workload_ops *ops = known[i].ops;
        const struct dpb_model *model = ops->model(NULL);

        assert_int_equal(dpb_workload_ops_check(ops), DPB_OK);
        assert_int_equal(dpb_model_param_elements(model), known[i].elements);
        assert_int_equal(model->sequence, known[i].sequence);
        assert_int_equal(model->predicted, known[i].predicted);
        assert_true(ops->activation_bytes_for(
                            NULL, &(struct dpb_workload_sizes){.batch_max = 2, .ranks = 1}) >
                    ops->activation_bytes_for(
                            NULL, &(struct dpb_workload_sizes){.batch_max = 1, .ranks = 1}));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_every_gradient_is_reported_once_in_order),
            cmocka_unit_test(test_a_reported_gradient_is_complete),
            cmocka_unit_test(test_parts_add_up),
            cmocka_unit_test(test_no_samples),
            cmocka_unit_test(test_loss_of_a_network_that_knows_nothing),
            cmocka_unit_test(test_correct_counts_samples),
            cmocka_unit_test(test_loss_falls),
            cmocka_unit_test(test_unaligned_memory),
            cmocka_unit_test(test_backward_stops_when_ready_fails),
            cmocka_unit_test(test_batches_that_do_not_fit),
            cmocka_unit_test(test_gpt2_reads_tokens_only),
            cmocka_unit_test(test_memory_is_one_block_of_the_promised_size),
            cmocka_unit_test(test_out_of_memory),
            cmocka_unit_test(test_workloads_have_the_networks_sizes),
    };

    return DPB_RUN_TESTS(tests);
}

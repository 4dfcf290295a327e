/* BERT and GPT-2 in mixed precision against themselves in fp32: loss, every gradient, training;
 * what a device lacks is said. */
#include "dpb_test.h"
#include "dpb_device_cpu.h"
#include "dpb_log.h"
#include "reference_device.h"
#include "tiny_transformers.h"
#include "transformer.h"

#include <math.h>

#define SAMPLES 4

/* bf16 has 8 significant bits: a rounding is up to 2^-8 of a value, some thirty of either sign lie
 * between the tokens and a gradient, and sqrt(30) 2^-8 is 2 %; norms and softmax amplify it (3.4 %
 * seen). Of the length of a tensor's gradient; where terms cancel (the keys' biases), of a
 * hundredth of the whole gradient's. */
#define GRAD_TOLERANCE 0.06
#define LOSS_TOLERANCE 0.005

static const struct dpb_workload_ops *const tiny[] = {&tiny_bert_ops, &tiny_gpt2_ops};

static double length_of(const float *a, const float *b, int64_t count)
{
    double sum = 0.0;

    for (int64_t i = 0; i < count; i++) {
        double value = (double)a[i] - (b ? (double)b[i] : 0.0);

        sum += value * value;
    }
    return sqrt(sum);
}

static float *copy_of(const float *from, int64_t count)
{
    float *made = malloc((size_t)count * sizeof(*made));

    assert_non_null(made);
    memcpy(made, from, (size_t)count * sizeof(*made));
    return made;
}

/* Without dropout and with it: the masks are the same in both precisions. */
static void check_device(const struct dpb_device_ops *device,
                         const struct dpb_workload_ops *workload, double dropout)
{
    struct fixture fixture;
    double exact, mixed, whole;
    float *grads;

    fixture_open(&fixture, device, workload, SAMPLES);
    tiny_transformer_spread(&fixture);
    tiny_transformer_reopen(&fixture, dropout, DPB_F32);
    exact = fixture_step(&fixture, 0.25f).loss_sum;
    grads = copy_of(fixture.grads, fixture.elements);
    whole = length_of(grads, NULL, fixture.elements);
    tiny_transformer_reopen(&fixture, dropout, DPB_BF16);
    mixed = fixture_step(&fixture, 0.25f).loss_sum;
    if (!(fabs(mixed - exact) <= LOSS_TOLERANCE * exact))
        fail_msg("%s: loss %.9g, in fp32 %.9g", workload->name, mixed, exact);
    assert_true(mixed != exact); /* it was rounded at all */
    for (int p = 0; p < fixture.model->param_count; p++) {
        const float *grad = grads + (fixture.grad[p] - fixture.grads);
        int64_t count = fixture.model->params[p].numel;
        double unit = fmax(length_of(grad, NULL, count), 1e-2 * whole);
        double off = length_of(fixture.grad[p], grad, count);

        if (!(off <= GRAD_TOLERANCE * unit))
            fail_msg("%s %s: the gradient is %.3g of its length %.3g off", workload->name,
                     fixture.model->params[p].name, off / unit, unit);
    }
    free(grads);
    fixture_close(&fixture);
}

static void test_loss_and_gradients(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        check_device(&test_reference_device_ops, tiny[i], 0.0);
        check_device(&test_reference_device_ops, tiny[i], 0.25);
    }
}

static bool cpu_multiplies_bf16(void)
{
    const struct dpb_device_config config = {.local_size = 1, .threads = 1};
    dpb_device *device;
    bool found;

    assert_int_equal(dpb_device_cpu_ops.open(&config, &device), DPB_OK);
    found = dpb_device_cpu_ops.op_supported(device, DPB_OP_MATMUL, DPB_BF16);
    dpb_device_cpu_ops.close(device);
    return found;
}

static void test_loss_and_gradients_on_the_cpu_device(void **state)
{
    (void)state;
    if (!cpu_multiplies_bf16())
        dpb_test_skip("this CPU, or its oneDNN, has no products in bf16");
    for (int i = 0; i < 2; i++) {
        check_device(&dpb_device_cpu_ops, tiny[i], 0.0);
        check_device(&dpb_device_cpu_ops, tiny[i], 0.25);
    }
}

#define STEPS 40

static void train(const struct dpb_workload_ops *workload, enum dpb_dtype precision,
                  double loss[STEPS])
{
    struct fixture fixture;

    fixture_open(&fixture, &test_reference_device_ops, workload, SAMPLES);
    tiny_transformer_reopen(&fixture, 0.0, precision);
    for (int step = 0; step < STEPS; step++) {
        loss[step] = fixture_step(&fixture, 1.0f / SAMPLES).loss_sum / SAMPLES;
        fixture_update(&fixture, 0.5f);
    }
    fixture_close(&fixture);
}

/* Step by step as in fp32 until the loss has halved (later it falls so fast that small differences
 * grow large); and as far in the end. */
static void test_loss_falls_as_in_fp32(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        double exact[STEPS], mixed[STEPS];

        train(tiny[i], DPB_F32, exact);
        train(tiny[i], DPB_BF16, mixed);
        for (int step = 0; step < STEPS && exact[step] > 0.5 * exact[0]; step++) {
            if (!(fabs(mixed[step] - exact[step]) < 0.02 * exact[0]))
                fail_msg("%s: loss %.4g at step %d, in fp32 %.4g", tiny[i]->name, mixed[step],
                         step + 1, exact[step]);
        }
        assert_true(exact[STEPS - 1] < 0.5 * exact[0]);
        assert_true(mixed[STEPS - 1] < 0.5 * exact[0]);
    }
}

/* Samples do not see each other: sums over parts differ from the whole by what fp32 rounds. */
static void test_parts_add_up(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        int64_t sequence = tiny[i]->model(NULL)->sequence;
        int64_t predicted = tiny[i]->model(NULL)->predicted;
        struct fixture fixture;
        double largest = 0.0;
        float *sum;

        fixture_open(&fixture, &test_reference_device_ops, tiny[i], SAMPLES);
        tiny_transformer_spread(&fixture);
        tiny_transformer_reopen(&fixture, 0.25, DPB_BF16);
        fixture.batch.samples = SAMPLES / 2;
        fixture_step(&fixture, 0.25f);
        sum = copy_of(fixture.grads, fixture.elements);
        fixture.batch.first = SAMPLES / 2;
        fixture.batch.tokens += SAMPLES / 2 * sequence;
        fixture.batch.segments += SAMPLES / 2 * sequence;
        fixture.batch.predict_position += SAMPLES / 2 * predicted;
        fixture.batch.predict_token += SAMPLES / 2 * predicted;
        fixture.batch.label += SAMPLES / 2;
        fixture_step(&fixture, 0.25f);
        for (int64_t e = 0; e < fixture.elements; e++) {
            sum[e] += fixture.grads[e];
            largest = fmax(largest, fabs((double)sum[e]));
        }
        fixture.batch.samples = SAMPLES;
        fixture.batch.first = 0;
        fixture.batch.tokens = fixture.tokens;
        fixture.batch.segments = fixture.segments;
        fixture.batch.predict_position = fixture.predict_position;
        fixture.batch.predict_token = fixture.predict_token;
        fixture.batch.label = fixture.label;
        fixture_step(&fixture, 0.25f);
        assert_true(length_of(sum, fixture.grads, fixture.elements) < 1e-5 * largest);
        free(sum);
        fixture_close(&fixture);
    }
}

/* ---- a device that lacks an operator ---- */

static void test_a_device_that_lacks_an_operator(void **state)
{
    static const enum dpb_op needed[] = {DPB_OP_MATMUL, DPB_OP_ATTENTION_BWD, DPB_OP_TANH_FWD,
                                         DPB_OP_DROPOUT_BWD, DPB_OP_CAST};
    const struct tiny_transformer_options options = {.dropout = 0.1};
    struct fixture fixture;
    struct dpb_workload_config config = {.launcher = &fixture.launcher,
                                         .batch_max = SAMPLES,
                                         .options = &options,
                                         .precision = DPB_BF16};
    dpb_workload *workload = NULL;

    (void)state;
    fixture_open(&fixture, &test_reference_device_ops, &tiny_bert_ops, SAMPLES);
    log_collect();
    for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
        char text[64];

        test_reference_device_lacks(fixture.device, needed[i]);
        assert_int_equal(tiny_bert_ops.open(&config, &workload), DPB_ERR_UNSUPPORTED);
        assert_null(workload);
        snprintf(text, sizeof(text), "device \"reference\" has no operator \"%s\" in bf16",
                 dpb_op_text(needed[i]));
        assert_true(log_has(text));
    }
    assert_true(log_has("use --precision fp32, or another --device"));
    log_stop();
    /* what this network does not use need not be there */
    test_reference_device_lacks(fixture.device, DPB_OP_CONV_FWD);
    assert_int_equal(tiny_bert_ops.open(&config, &workload), DPB_OK);
    tiny_bert_ops.close(workload);
    config.precision = DPB_F32;
    test_reference_device_lacks(fixture.device, DPB_OP_MATMUL);
    assert_int_equal(tiny_bert_ops.open(&config, &workload), DPB_OK);
    tiny_bert_ops.close(workload);
    fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_loss_and_gradients),
            cmocka_unit_test(test_loss_and_gradients_on_the_cpu_device),
            cmocka_unit_test(test_loss_falls_as_in_fp32),
            cmocka_unit_test(test_parts_add_up),
            cmocka_unit_test(test_a_device_that_lacks_an_operator),
    };

    return DPB_RUN_TESTS(tests);
}

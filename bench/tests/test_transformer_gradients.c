/* Loss and gradients of BERT and GPT-2 against a float64 network in plain loops: every tensor along
 * random directions, which all of its elements take part in, and element by element on a sample. */
#include "dpb_test.h"
#include "dpb_device_cpu.h"
#include "dpb_rng.h"
#include "double_transformer.h"
#include "reference_device.h"
#include "tiny_transformers.h"

#include <math.h>

#define SAMPLES    2
#define SCALE      0.5 /* a power of two, exact in fp32 */
#define STEP       1e-5
#define DIRECTIONS 3
#define ELEMENTS   12

/* The slope of SCALE * loss along `direction`, by central differences. */
static double slope(struct double_transformer *net, int p, const double *direction, int64_t count)
{
    double *value = net->param[p], above, below;

    for (int64_t i = 0; i < count; i++)
        value[i] += STEP * direction[i];
    above = double_transformer_loss(net);
    for (int64_t i = 0; i < count; i++)
        value[i] -= 2.0 * STEP * direction[i];
    below = double_transformer_loss(net);
    for (int64_t i = 0; i < count; i++)
        value[i] += STEP * direction[i];
    return SCALE * (above - below) / (2.0 * STEP);
}

/* `unit`: what a difference is measured by. */
static void check_direction(struct double_transformer *net, const float *grad, int p,
                            const double *direction, int64_t count, double unit, double tolerance)
{
    double expected = slope(net, p, direction, count), found = 0.0, length = 0.0;

    for (int64_t i = 0; i < count; i++) {
        found += (double)grad[i] * direction[i];
        length += direction[i] * direction[i];
    }
    if (!(fabs(found - expected) <= tolerance * unit * sqrt(length)))
        fail_msg("%s: slope %.9g, from the gradient %.9g", net->list->param[p].name, expected,
                 found);
}

static double largest_of(const float *value, int64_t count)
{
    double largest = 0.0;

    for (int64_t i = 0; i < count; i++)
        largest = fmax(largest, fabs((double)value[i]));
    return largest;
}

static void check_param(struct double_transformer *net, const struct fixture *fixture, int p,
                        double everywhere, double tolerance)
{
    int64_t count = net->list->param[p].numel;
    const float *grad = fixture->grad[p];
    /* What softmax cancels, as the keys' biases, is as large as the rounding of its terms. */
    double unit = fmax(largest_of(grad, count), 1e-2 * everywhere);
    double *direction = calloc((size_t)count, sizeof(*direction));
    struct dpb_rng rng;

    assert_non_null(direction);
    dpb_rng_init(&rng, 23, (uint64_t)p);
    for (int d = 0; d < DIRECTIONS; d++) {
        for (int64_t i = 0; i < count; i++)
            direction[i] = dpb_rng_normal(&rng);
        check_direction(net, grad, p, direction, count, unit, tolerance);
    }
    memset(direction, 0, (size_t)count * sizeof(*direction));
    for (int e = 0; e < ELEMENTS; e++) {
        int64_t i = (int64_t)dpb_rng_below(&rng, (uint64_t)count);

        direction[i] = 1.0;
        check_direction(net, grad, p, direction, count, unit, tolerance);
        direction[i] = 0.0;
    }
    free(direction);
}

static void check_network(const struct dpb_device_ops *device,
                          const struct dpb_workload_ops *workload,
                          const struct dpb_transformer_list *list, double dropout, double tolerance)
{
    struct double_transformer net;
    struct dpb_forward_result result;
    struct fixture fixture;
    double loss;

    fixture_open(&fixture, device, workload, SAMPLES);
    tiny_transformer_spread(&fixture);
    tiny_transformer_reopen(&fixture, dropout, DPB_F32);
    fixture.batch.step = 7;
    fixture.batch.first = 5;
    double_transformer_open(&net, list, &fixture.batch, fixture.param);
    net.dropout = dropout;
    net.seed = TINY_TRANSFORMER_SEED;
    result = fixture_step(&fixture, (float)SCALE);
    loss = double_transformer_loss(&net);
    assert_true(loss > 1.0);
    if (!(fabs(result.loss_sum - loss) <= 1e-5 * loss))
        fail_msg("loss %.9g, expected %.9g", result.loss_sum, loss);
    for (int p = 0; p < list->param_count; p++)
        check_param(&net, &fixture, p, largest_of(fixture.grads, fixture.elements), tolerance);
    double_transformer_close(&net);
    fixture_close(&fixture);
}

static void test_bert(void **state)
{
    (void)state;
    check_network(&test_reference_device_ops, &tiny_bert_ops, tiny_bert_list(), 0.0, 1e-5);
}

static void test_gpt2(void **state)
{
    (void)state;
    check_network(&test_reference_device_ops, &tiny_gpt2_ops, tiny_gpt2_list(), 0.0, 1e-5);
}

static void test_bert_on_the_cpu_device(void **state)
{
    (void)state;
    check_network(&dpb_device_cpu_ops, &tiny_bert_ops, tiny_bert_list(), 0.0, 1e-4);
}

static void test_gpt2_on_the_cpu_device(void **state)
{
    (void)state;
    check_network(&dpb_device_cpu_ops, &tiny_gpt2_ops, tiny_gpt2_list(), 0.0, 1e-4);
}

/* The masks of one step stay as they are while parameters move. */
static void test_bert_with_dropout(void **state)
{
    (void)state;
    check_network(&test_reference_device_ops, &tiny_bert_ops, tiny_bert_list(), 0.25, 1e-5);
    check_network(&dpb_device_cpu_ops, &tiny_bert_ops, tiny_bert_list(), 0.25, 1e-4);
}

static void test_gpt2_with_dropout(void **state)
{
    (void)state;
    check_network(&test_reference_device_ops, &tiny_gpt2_ops, tiny_gpt2_list(), 0.25, 1e-5);
    check_network(&dpb_device_cpu_ops, &tiny_gpt2_ops, tiny_gpt2_list(), 0.25, 1e-4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_bert),
            cmocka_unit_test(test_gpt2),
            cmocka_unit_test(test_bert_on_the_cpu_device),
            cmocka_unit_test(test_gpt2_on_the_cpu_device),
            cmocka_unit_test(test_bert_with_dropout),
            cmocka_unit_test(test_gpt2_with_dropout),
    };

    return DPB_RUN_TESTS(tests);
}

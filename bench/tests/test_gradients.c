/* Gradients of the networks for MNIST and of one with every kind of layer: the workload's fp32
 * against float64 analytic ones for every element, and those against central differences of the
 * float64 loss on a sample of every tensor. */
#include "dpb_test.h"
#include "dpb_rng.h"
#include "dpb_workloads.h"
#include "double_network.h"
#include "fixture.h"
#include "mnist_cnn_layers.h"
#include "reference_device.h"
#include "tiny_network.h"
#include "dpb_device_cpu.h"

#include <math.h>

#define SAMPLES     2
#define SCALE       0.5 /* a power of two, exact in fp32 */
#define DIFFERENCES 8   /* elements per tensor */

static const struct dpb_layer_list *mlp_layers(void)
{
    static struct dpb_layer_list list;

    dpb_layer_list_begin(&list, 28, 28, 1);
    dpb_layer_list_linear(&list, "fc1", 512, true);
    dpb_layer_list_linear(&list, "fc2", 512, true);
    dpb_layer_list_linear(&list, "fc3", 10, false);
    dpb_layer_list_finish(&list);
    return &list;
}

/* ---- fp32 against float64 ---- */

/* Rounding is relative to the largest gradient of a tensor, not to each. */
static void check_against_double(const struct dpb_device_ops *device,
                                 const struct dpb_workload_ops *workload,
                                 const struct dpb_layer_list *list, double tolerance)
{
    struct double_network network;
    struct dpb_forward_result result;
    struct fixture fixture;
    double loss;

    fixture_open(&fixture, device, workload, SAMPLES);
    double_network_open(&network, list, &fixture.batch, fixture.param);
    result = fixture_step(&fixture, (float)SCALE);
    loss = double_network_forward(&network, 0);
    double_network_backward(&network, SCALE);
    assert_true(fabs(result.loss_sum - loss) < 1e-5 * loss);
    for (int p = 0; p < list->param_count; p++) {
        double largest = 0.0, worst = 0.0;

        for (int64_t i = 0; i < list->param[p].numel; i++) {
            largest = fmax(largest, fabs(network.grad[p][i]));
            worst = fmax(worst, fabs(network.grad[p][i] - (double)fixture.grad[p][i]));
        }
        if (!(largest > 0.0 && worst <= tolerance * largest))
            fail_msg("%s: largest gradient %g, worst difference %g", list->param[p].name, largest,
                     worst);
    }
    double_network_close(&network);
    fixture_close(&fixture);
}

static void test_mnist_cnn_against_double(void **state)
{
    (void)state;
    check_against_double(&test_reference_device_ops, &dpb_workload_mnist_cnn_ops,
                         dpb_mnist_cnn_layers(), 2e-6);
}

static void test_mnist_mlp_against_double(void **state)
{
    (void)state;
    check_against_double(&test_reference_device_ops, &dpb_workload_mnist_mlp_ops, mlp_layers(),
                         2e-6);
}

static void test_tiny_network_against_double(void **state)
{
    (void)state;
    check_against_double(&test_reference_device_ops, &tiny_network_ops, tiny_network_layers(),
                         1e-5);
}

static void test_cpu_device_against_double(void **state)
{
    (void)state;
    check_against_double(&dpb_device_cpu_ops, &tiny_network_ops, tiny_network_layers(), 1e-4);
    check_against_double(&dpb_device_cpu_ops, &dpb_workload_mnist_cnn_ops, dpb_mnist_cnn_layers(),
                         1e-4);
    check_against_double(&dpb_device_cpu_ops, &dpb_workload_mnist_mlp_ops, mlp_layers(), 1e-4);
}

/* ---- float64 against central differences ---- */

static double difference(struct double_network *network, int layer, double *element, double step)
{
    double value = *element, above, below;

    *element = value + step;
    above = double_network_forward(network, layer);
    *element = value - step;
    below = double_network_forward(network, layer);
    *element = value;
    return SCALE * (above - below) / (2.0 * step);
}

/* Checks one element; false when a kink of a ReLU or a pool lies within the step: the loss is then
 * not differentiable there, which two step sizes that disagree show. */
static bool check_element(struct double_network *network, int p, int64_t i, double largest)
{
    int layer = network->list->param[p].layer;
    double *element = &network->param[p][i];
    double wide = difference(network, layer, element, 1e-5);
    double narrow = difference(network, layer, element, 2e-6);
    double expected = network->grad[p][i];

    /* back to the state of the unchanged parameters */
    double_network_forward(network, layer);
    if (fabs(wide - narrow) > 2e-5 * largest)
        return false;
    if (fabs(narrow - expected) > 5e-5 * largest)
        fail_msg("%s element %lld: gradient %.12g, central difference %.12g",
                 network->list->param[p].name, (long long)i, expected, narrow);
    return true;
}

static void check_differences(const struct dpb_workload_ops *workload,
                              const struct dpb_layer_list *list)
{
    struct double_network network;
    struct fixture fixture;
    struct dpb_rng rng;

    fixture_open(&fixture, &test_reference_device_ops, workload, SAMPLES);
    double_network_open(&network, list, &fixture.batch, fixture.param);
    double_network_forward(&network, 0);
    double_network_backward(&network, SCALE);
    dpb_rng_init(&rng, 11, 0);
    for (int p = 0; p < list->param_count; p++) {
        int64_t numel = list->param[p].numel;
        double largest = 0.0;
        int checked = 0, nonzero = 0;

        for (int64_t i = 0; i < numel; i++)
            largest = fmax(largest, fabs(network.grad[p][i]));
        for (int tried = 0; tried < DIFFERENCES; tried++) {
            int64_t i = (int64_t)dpb_rng_below(&rng, (uint64_t)numel);

            if (!check_element(&network, p, i, largest))
                continue;
            checked++;
            nonzero += network.grad[p][i] != 0.0;
        }
        /* most points are smooth, and not all of them behind a closed ReLU */
        assert_true(checked > DIFFERENCES / 2);
        assert_true(nonzero > 0);
    }
    double_network_close(&network);
    fixture_close(&fixture);
}

static void test_mnist_cnn_differences(void **state)
{
    (void)state;
    check_differences(&dpb_workload_mnist_cnn_ops, dpb_mnist_cnn_layers());
}

static void test_mnist_mlp_differences(void **state)
{
    (void)state;
    check_differences(&dpb_workload_mnist_mlp_ops, mlp_layers());
}

static void test_tiny_network_differences(void **state)
{
    (void)state;
    check_differences(&tiny_network_ops, tiny_network_layers());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_mnist_cnn_against_double),
            cmocka_unit_test(test_mnist_mlp_against_double),
            cmocka_unit_test(test_tiny_network_against_double),
            cmocka_unit_test(test_cpu_device_against_double),
            cmocka_unit_test(test_mnist_cnn_differences),
            cmocka_unit_test(test_mnist_mlp_differences),
            cmocka_unit_test(test_tiny_network_differences),
    };

    return DPB_RUN_TESTS(tests);
}

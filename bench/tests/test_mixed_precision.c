/* Networks of layers in bf16, with fp32 parameters and gradients: against float64, and learning. */
#include "dpb_device_cpu.h"
#include "dpb_test.h"
#include "dpb_workloads.h"
#include "double_network.h"
#include "fixture.h"
#include "mnist_cnn_layers.h"
#include "reference_device.h"
#include "tiny_network.h"

#include <math.h>

#define SAMPLES 6

static const struct dpb_rank_services alone = {.size = 1};

static void open_in(struct fixture *fixture, const struct dpb_device_ops *device,
                    const struct dpb_workload_ops *workload, int64_t samples,
                    enum dpb_dtype precision)
{
    const struct dpb_workload_config config = {
            .batch_max = samples, .ranks = &alone, .precision = precision};

    fixture_open_with(fixture, device, workload, &config, 0);
}

/* ---- against float64 ---- */

/* bf16 has 8 bits: a value is off by up to 2^-9 of itself. Of a thousand units a few are so near to
 * 0 that they fall on the other side of a ReLU or of a maximum, and their whole gradients with
 * them: with a share s of them, gradients are off by sqrt(s) of their size, 10 % where s is 1 %.
 * The tiny network has few units and many layers. */
static void check_against_double(const struct dpb_device_ops *device,
                                 const struct dpb_workload_ops *workload,
                                 const struct dpb_layer_list *list, double tolerance)
{
    struct double_network network;
    struct dpb_forward_result result;
    struct fixture fixture;
    double loss, worst = 0.0;

    open_in(&fixture, device, workload, SAMPLES, DPB_BF16);
    double_network_open(&network, list, &fixture.batch, fixture.param);
    result = fixture_step(&fixture, 0.25f);
    loss = double_network_forward(&network, 0);
    double_network_backward(&network, 0.25);
    print_message("%s loss %g\n", workload->name, fabs(result.loss_sum / loss - 1.0));
    assert_true(fabs(result.loss_sum - loss) < 0.01 * loss);
    assert_true(result.loss_sum != loss);
    for (int p = 0; p < list->param_count; p++) {
        double squares = 0.0, off = 0.0;

        for (int64_t i = 0; i < list->param[p].numel; i++) {
            double difference = network.grad[p][i] - (double)fixture.grad[p][i];

            squares += network.grad[p][i] * network.grad[p][i];
            off += difference * difference;
        }
        worst = fmax(worst, sqrt(off / squares));
        if (!(squares > 0.0 && off <= tolerance * tolerance * squares))
            fail_msg("%s: gradients are off by %g of their size", list->param[p].name,
                     sqrt(off / squares));
    }
    print_message("%s gradients %g\n", workload->name, worst);
    double_network_close(&network);
    fixture_close(&fixture);
}

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

static void check_device(const struct dpb_device_ops *device)
{
    check_against_double(device, &dpb_workload_mnist_mlp_ops, mlp_layers(), 0.1);
    check_against_double(device, &dpb_workload_mnist_cnn_ops, dpb_mnist_cnn_layers(), 0.1);
    check_against_double(device, &tiny_network_ops, tiny_network_layers(), 0.3);
}

static void test_reference_device_against_double(void **state)
{
    (void)state;
    check_device(&test_reference_device_ops);
}

/* ---- on the cpu device, where oneDNN computes in bf16 ---- */

static bool cpu_has_bf16(void)
{
    struct dpb_device_config config = {.local_size = 1, .threads = 1};
    dpb_device *device;
    bool has;

    assert_int_equal(dpb_device_cpu_ops.open(&config, &device), DPB_OK);
    has = dpb_device_cpu_ops.op_supported(device, DPB_OP_CONV_FWD, DPB_BF16) &&
          dpb_device_cpu_ops.op_supported(device, DPB_OP_MATMUL, DPB_BF16);
    dpb_device_cpu_ops.close(device);
    return has;
}

static void test_cpu_device_against_double(void **state)
{
    (void)state;
    if (!cpu_has_bf16())
        dpb_test_skip("this CPU, or its oneDNN, has no products in bf16");
    check_device(&dpb_device_cpu_ops);
}

static double train(const struct dpb_workload_ops *workload, enum dpb_dtype precision,
                    int64_t batch, float lr, double *first)
{
    struct fixture fixture;
    double last = 0.0;

    open_in(&fixture, &dpb_device_cpu_ops, workload, batch, precision);
    for (int step = 0; step < 12; step++) {
        last = fixture_step(&fixture, 1.0f / (float)batch).loss_sum / (double)batch;
        if (step == 0)
            *first = last;
        fixture_update(&fixture, lr);
    }
    fixture_close(&fixture);
    return last;
}

/* The same batch again and again, as in fp32. */
static void check_learning(const struct dpb_workload_ops *workload, int64_t batch, float lr)
{
    double first_fp32, first_bf16;
    double fp32 = train(workload, DPB_F32, batch, lr, &first_fp32);
    double bf16 = train(workload, DPB_BF16, batch, lr, &first_bf16);

    print_message("%s: fp32 %g to %g, bf16 %g to %g\n", workload->name, first_fp32, fp32,
                  first_bf16, bf16);
    assert_true(fabs(first_bf16 / first_fp32 - 1.0) < 0.02);
    assert_true(fp32 < 0.7 * first_fp32);
    assert_true(bf16 < 0.7 * first_bf16);
    assert_true(fabs(bf16 - fp32) < 0.1 * (first_fp32 - fp32));
}

static void test_learning(void **state)
{
    (void)state;
    if (!cpu_has_bf16())
        dpb_test_skip("this CPU, or its oneDNN, has no products in bf16");
    check_learning(&dpb_workload_mnist_mlp_ops, 16, 0.05f);
    check_learning(&dpb_workload_mnist_cnn_ops, 16, 0.05f);
    check_learning(&dpb_workload_cifar_resnet20_ops, 16, 0.05f);
}

/* ---- memory, and devices that cannot ---- */

static void test_memory_is_predicted(void **state)
{
    static const struct dpb_workload_ops *const workloads[] = {
            &dpb_workload_mnist_cnn_ops, &dpb_workload_mnist_mlp_ops, &tiny_network_ops};

    (void)state;
    for (size_t w = 0; w < sizeof(workloads) / sizeof(workloads[0]); w++) {
        const struct dpb_workload_sizes sizes = {.batch_max = 5, .ranks = 1, .precision = DPB_BF16};
        struct fixture fixture;

        open_in(&fixture, &test_reference_device_ops, workloads[w], 5, DPB_BF16);
        assert_int_equal(workloads[w]->activation_bytes_for(NULL, &sizes),
                         workloads[w]->activation_bytes(fixture.workload));
        fixture_close(&fixture);
    }
}

/* A sample more is about half of what it is in fp32: values are, masks and positions are not. */
static void test_values_take_half(void **state)
{
    static const enum dpb_dtype precision[] = {DPB_F32, DPB_BF16};
    double sample[2];

    (void)state;
    for (int k = 0; k < 2; k++) {
        struct dpb_workload_sizes one = {.batch_max = 1, .ranks = 1, .precision = precision[k]};
        struct dpb_workload_sizes many = {.batch_max = 65, .ranks = 1, .precision = precision[k]};

        sample[k] = (double)(dpb_workload_resnet50_ops.activation_bytes_for(NULL, &many) -
                             dpb_workload_resnet50_ops.activation_bytes_for(NULL, &one));
    }
    print_message("resnet50 %g\n", sample[1] / sample[0]);
    assert_true(sample[1] > 0.5 * sample[0] && sample[1] < 0.6 * sample[0]);
}

static void check_refused(enum dpb_op op, const char *message)
{
    struct dpb_workload_config config = {.batch_max = 2, .ranks = &alone, .precision = DPB_BF16};
    dpb_workload *workload = NULL;
    struct fixture fixture;

    fixture_open(&fixture, &test_reference_device_ops, &tiny_network_ops, 1);
    config.launcher = &fixture.launcher;
    test_reference_device_lacks(fixture.device, op);
    log_collect();
    assert_int_equal(tiny_network_ops.open(&config, &workload), DPB_ERR_UNSUPPORTED);
    log_stop();
    assert_null(workload);
    assert_true(log_has(message));
    assert_true(log_has("hint: use --precision fp32, or another --device"));
    fixture_close(&fixture);
}

static void test_devices_that_cannot(void **state)
{
    (void)state;
    check_refused(DPB_OP_CONV_BWD_WEIGHTS,
                  "workload \"tiny\": device \"reference\" has no operator \"conv-bwd-weights\" in "
                  "bf16");
    check_refused(DPB_OP_CAST, "has no operator \"cast\" in bf16");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_reference_device_against_double),
            cmocka_unit_test(test_cpu_device_against_double),
            cmocka_unit_test(test_learning),
            cmocka_unit_test(test_memory_is_predicted),
            cmocka_unit_test(test_values_take_half),
            cmocka_unit_test(test_devices_that_cannot),
    };

    return DPB_RUN_TESTS(tests);
}

/* ResNet, VGG and CIFAR ResNet: their tables against PyTorch's, their memory, and what training and
 * inference do with batch normalisation. */
#include "dpb_test.h"
#include "dpb_device_cpu.h"
#include "dpb_workloads.h"
#include "double_network.h"
#include "fixture.h"
#include "image_networks.h"
#include "layer_table.h"
#include "oracle.h"
#include "reference_device.h"
#include "tiny_network.h"

#include <math.h>

/* ---- tables ---- */

struct known {
    const struct dpb_workload_ops *ops;
    const char *table; /* in bench/tests/data */
    int64_t elements, macs;
    int64_t size;
    int classes;
    int plans; /* that PyTorch has printed for it; 0: nothing is known but the table */
};

static const struct known known[] = {
        {&dpb_workload_resnet18_ops, "resnet18", 11689512, 1814073344, 224, 1000, 0},
        {&dpb_workload_resnet50_ops, "resnet50", 25557032, 4089184256, 224, 1000, 5},
        {&dpb_workload_resnet101_ops, "resnet101", 44549160, 7801405440, 224, 1000, 1},
        {&dpb_workload_resnet152_ops, "resnet152", 60192808, 11513626624, 224, 1000, 1},
        {&dpb_workload_vgg16_ops, "vgg16", 138357544, 15470264320, 224, 1000, 1},
        {&dpb_workload_cifar_resnet20_ops, "cifar_resnet20", 269722, 40551040, 32, 10, 0},
};
#define KNOWN_COUNT (sizeof(known) / sizeof(known[0]))

static bool has_batchnorm(const struct dpb_model *model)
{
    for (int i = 0; i < model->layer_count; i++) {
        if (strcmp(model->layers[i].kind, "batchnorm2d") == 0)
            return true;
    }
    return false;
}

static void test_tables(void **state)
{
    (void)state;
    for (size_t i = 0; i < KNOWN_COUNT; i++) {
        const struct dpb_model *model = known[i].ops->model(NULL);

        print_message("%s\n", known[i].table);
        layer_table_check(model, known[i].table);
        assert_int_equal(dpb_model_param_elements(model), known[i].elements);
        assert_int_equal(dpb_model_fwd_macs_per_sample(model), known[i].macs);
        assert_int_equal(model->sample_dim[0], known[i].size);
        assert_int_equal(model->sample_dim[1], known[i].size);
        assert_int_equal(model->sample_dim[2], 3);
        assert_int_equal(model->classes, known[i].classes);
        assert_int_equal(dpb_workload_ops_check(known[i].ops), DPB_OK);
        assert_int_equal(known[i].ops->flags & DPB_WORKLOAD_BATCH_STATISTICS,
                         has_batchnorm(model) ? DPB_WORKLOAD_BATCH_STATISTICS : 0);
    }
}

static void test_ready_orders_and_bucket_plans(void **state)
{
    (void)state;
    for (size_t i = 0; i < KNOWN_COUNT; i++) {
        if (known[i].plans > 0)
            assert_int_equal(oracle_check(known[i].ops->model(NULL), known[i].table),
                             known[i].plans);
    }
}

/* The image size changes the work of a sample, and nothing about the parameters. */
static void test_image_sizes(void **state)
{
    static const int64_t sizes[] = {32, 33, 64, 100, 448};

    (void)state;
    for (size_t i = 0; i < KNOWN_COUNT; i++) {
        for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
            const struct dpb_image_options options = {.image_size = sizes[s]};
            const struct dpb_model *model = known[i].ops->model(&options);

            assert_int_equal(model->sample_dim[0], sizes[s]);
            assert_int_equal(model->sample_dim[1], sizes[s]);
            assert_int_equal(dpb_model_param_elements(model), known[i].elements);
            assert_int_equal(model->classes, known[i].classes);
            assert_true((dpb_model_fwd_macs_per_sample(model) < known[i].macs) ==
                        (sizes[s] < known[i].size));
            assert_ptr_equal(model, known[i].ops->model(&options));
        }
        assert_int_equal(known[i].ops->model(NULL)->sample_dim[0], known[i].size);
    }
}

/* ---- memory ---- */

/* Of one more sample, against what PyTorch was seen to save for the backward pass: ours are all
 * buffers, the gradients' too. */
static void test_activations_against_what_pytorch_saves(void **state)
{
    static const struct {
        const struct dpb_workload_ops *ops;
        double saved_bytes;
    } measured[] = {
            {&dpb_workload_resnet18_ops, 22199040},   {&dpb_workload_resnet50_ops, 86015744},
            {&dpb_workload_resnet101_ops, 127063808}, {&dpb_workload_resnet152_ops, 177733376},
            {&dpb_workload_vgg16_ops, 73355264},      {&dpb_workload_cifar_resnet20_ops, 1522624}};

    (void)state;
    for (size_t i = 0; i < sizeof(measured) / sizeof(measured[0]); i++) {
        const struct dpb_workload_ops *ops = measured[i].ops;
        double bytes =
                (double)(ops->activation_bytes_for(
                                 NULL, &(struct dpb_workload_sizes){.batch_max = 65, .ranks = 1}) -
                         ops->activation_bytes_for(
                                 NULL, &(struct dpb_workload_sizes){.batch_max = 1, .ranks = 1})) /
                64.0;

        print_message("%s %.4f\n", ops->name, bytes / measured[i].saved_bytes);
        assert_true(bytes > 0.9 * measured[i].saved_bytes);
        assert_true(bytes < 1.4 * measured[i].saved_bytes);
    }
}

/* ---- initial values ---- */

struct moments {
    double mean, deviation;
};

static struct moments moments_of(const float *values, int64_t count)
{
    double sum = 0.0, squares = 0.0;

    for (int64_t i = 0; i < count; i++) {
        sum += (double)values[i];
        squares += (double)values[i] * (double)values[i];
    }
    sum /= (double)count;
    return (struct moments){sum, sqrt(squares / (double)count - sum * sum)};
}

static void check_normal(const float *values, int64_t count, double deviation)
{
    struct moments moments = moments_of(values, count);

    assert_true(fabs(moments.mean) < 5.0 * deviation / sqrt((double)count));
    assert_true(fabs(moments.deviation / deviation - 1.0) < 5.0 / sqrt(2.0 * (double)count));
}

static void check_all(const float *values, int64_t count, float expected)
{
    for (int64_t i = 0; i < count; i++)
        assert_true(values[i] == expected);
}

static void test_initial_values(void **state)
{
    struct fixture fixture;
    float largest = 0.0f;

    (void)state;
    fixture_open(&fixture, &test_reference_device_ops, &dpb_workload_cifar_resnet20_ops, 1);
    check_normal(fixture.param[0], 432, sqrt(2.0 / (16 * 9)));
    check_all(fixture.param[1], 16, 1.0f);
    check_all(fixture.param[2], 16, 0.0f);
    check_normal(fixture.param[54], 36864, sqrt(2.0 / (64 * 9))); /* layer3.2.conv2 */
    for (int64_t i = 0; i < 640; i++)
        largest = fmaxf(largest, fabsf(fixture.param[57][i]));
    assert_true(largest > 0.95f / 8.0f && largest <= 1.0f / 8.0f);
    assert_true(moments_of(fixture.param[58], 10).deviation > 0.02);
    fixture_close(&fixture);
}

/* VGG-16's rule on a small list. */
static void test_initial_values_of_vgg(void **state)
{
    static struct dpb_layer_list list;
    static float conv[64 * 27], conv_bias[64], fc[100 * 4096], fc_bias[100];
    float *param[] = {conv, conv_bias, fc, fc_bias};

    (void)state;
    dpb_layer_list_begin(&list, 8, 8, 3);
    list.init = DPB_INIT_VGG;
    dpb_layer_list_conv2d(&list, "conv", 64, 3, 1, 1, true, true);
    dpb_layer_list_linear(&list, "fc", 100, false);
    dpb_layer_list_finish(&list);
    assert_int_equal(dpb_layer_list_check(&list, "vgg"), DPB_OK);
    conv_bias[3] = fc_bias[3] = 77.0f;
    dpb_layer_list_init_params(&list, 1, param);
    check_normal(conv, 64 * 27, sqrt(2.0 / (64 * 9)));
    check_all(conv_bias, 64, 0.0f);
    check_normal(fc, 100 * 4096, 0.01);
    check_all(fc_bias, 100, 0.0f);
}

/* ---- batch normalisation ---- */

static double inference(struct fixture *fixture)
{
    struct dpb_forward_result result;

    assert_int_equal(dpb_forward_and_read(fixture->ops, &fixture->launcher, fixture->workload,
                                          &fixture->batch, false, &result),
                     DPB_OK);
    return result.loss_sum;
}

/* Two batches in training, then inference: against the float64 twin, whose running statistics go
 * the same way. */
static void test_inference_uses_running_statistics(void **state)
{
    struct double_network network;
    struct fixture fixture;
    double fresh, expected, trained;

    (void)state;
    fixture_open(&fixture, &test_reference_device_ops, &tiny_network_ops, 3);
    double_network_open(&network, tiny_network_layers(), &fixture.batch, fixture.param);

    network.inference = true;
    expected = double_network_forward(&network, 0);
    fresh = inference(&fixture);
    assert_true(fabs(fresh - expected) < 1e-5 * expected);

    for (int pass = 0; pass < 2; pass++) {
        network.inference = false;
        expected = double_network_forward(&network, 0);
        trained = fixture_step(&fixture, 1.0f).loss_sum;
        assert_true(fabs(trained - expected) < 1e-5 * expected);
        network.inference = true;
        expected = double_network_forward(&network, 0);
        assert_true(fabs(inference(&fixture) - expected) < 1e-5 * expected);
        assert_true(fabs(expected - fresh) > 1e-3 && fabs(expected - trained) > 1e-3);
    }

    /* inference leaves the statistics alone; new parameters begin with new ones */
    assert_true(inference(&fixture) == inference(&fixture));
    assert_int_equal(fixture.ops->init_params(fixture.workload, 1), DPB_OK);
    assert_true(inference(&fixture) == fresh);
    double_network_close(&network);
    fixture_close(&fixture);
}

/* Names as PyTorch's state_dict has them; values as the float64 twin's. */
static void test_state(void **state)
{
    const struct dpb_layer_list *list = tiny_network_layers();
    struct double_network network;
    struct dpb_workload_state found;
    struct fixture fixture;
    int index = 0;

    (void)state;
    fixture_open(&fixture, &test_reference_device_ops, &tiny_network_ops, 3);
    double_network_open(&network, list, &fixture.batch, fixture.param);
    fixture_step(&fixture, 1.0f);
    double_network_forward(&network, 0);
    for (int i = 0; i < list->layer_count; i++) {
        static const char *const texts[] = {"running_mean", "running_var"};
        int64_t channels = list->layer[i].out[2];

        for (int k = 0; k < 2 && list->layer[i].kind == DPB_LAYER_BATCHNORM2D; k++) {
            char name[64];

            snprintf(name, sizeof(name), "%s.%s", list->layer[i].name, texts[k]);
            assert_true(tiny_network_ops.state(fixture.workload, index++, &found));
            assert_string_equal(found.name, name);
            assert_int_equal(found.kind, DPB_STATE_LOCAL);
            assert_int_equal(found.numel, channels);
            assert_int_equal(list->model.buffer_numel[index - 1], channels);
            for (int64_t c = 0; c < channels; c++)
                assert_true(fabs((double)found.data[c] - network.statistics[i][k * channels + c]) <
                            1e-5);
        }
    }
    assert_int_equal(index, 16);
    assert_int_equal(list->model.buffer_count, index);
    assert_false(tiny_network_ops.state(fixture.workload, index, &found));
    double_network_close(&network);
    fixture_close(&fixture);
}

/* In inference samples do not see each other; in training they do. */
static void test_samples_are_alone_in_inference(void **state)
{
    struct fixture fixture;
    struct dpb_batch all;
    double together, alone = 0.0, training;

    (void)state;
    fixture_open(&fixture, &test_reference_device_ops, &tiny_network_ops, 3);
    training = fixture_step(&fixture, 1.0f).loss_sum;
    together = inference(&fixture);
    all = fixture.batch;
    for (int64_t i = 0; i < 3; i++) {
        fixture.batch = (struct dpb_batch){.samples = 1,
                                           .x = all.x + i * 8 * 8 * 3,
                                           .label = all.label + i,
                                           .sample_ids = all.sample_ids + i};
        alone += inference(&fixture);
    }
    assert_true(fabs(alone - together) < 1e-5);
    alone = 0.0;
    for (int64_t i = 0; i < 3; i++) {
        fixture.batch = (struct dpb_batch){.samples = 1,
                                           .x = all.x + i * 8 * 8 * 3,
                                           .label = all.label + i,
                                           .sample_ids = all.sample_ids + i};
        alone += fixture_step(&fixture, 1.0f).loss_sum;
    }
    assert_true(fabs(alone - training) > 1e-3);
    fixture_close(&fixture);
}

/* ---- one value per channel ---- */

static void build_narrow(struct dpb_layer_list *list)
{
    dpb_layer_list_begin(list, 2, 2, 3);
    dpb_layer_list_conv2d(list, "conv", 4, 3, 2, 1, false, false);
    dpb_layer_list_batchnorm2d(list, "bn", true);
    dpb_layer_list_linear(list, "fc", 2, false);
    dpb_layer_list_finish(list);
}

static const struct dpb_layer_list *narrow_layers(void)
{
    static struct dpb_layer_list list;

    if (list.layer_count == 0)
        build_narrow(&list);
    return &list;
}

static const struct dpb_model *narrow_model(const void *options)
{
    (void)options;
    return &narrow_layers()->model;
}

static dpb_status open_narrow(const struct dpb_workload_config *config, dpb_workload **workload)
{
    return dpb_network_open(&tiny_network_ops, narrow_layers(), config, workload);
}

/* Two samples of one pixel can be normalised; one cannot be trained on, and says why. */
static void test_one_value_per_channel(void **state)
{
    struct dpb_workload_ops narrow = tiny_network_ops;
    struct dpb_forward_result result;
    struct fixture fixture;

    (void)state;
    narrow.model = narrow_model;
    narrow.open = open_narrow;
    fixture_open(&fixture, &dpb_device_cpu_ops, &narrow, 2);
    assert_true(fixture_step(&fixture, 0.5f).loss_sum > 0.0);
    fixture.batch.samples = 1;
    assert_true(inference(&fixture) > 0.0);
    log_collect();
    assert_int_equal(dpb_forward_and_read(&narrow, &fixture.launcher, fixture.workload,
                                          &fixture.batch, true, &result),
                     DPB_ERR_USAGE);
    log_stop();
    assert_true(log_has("one sample of 2x2 pixels leaves layer \"bn\" one value per channel"));
    assert_true(log_has("hint: use at least 2 samples per rank, or a larger --image-size"));
    fixture_close(&fixture);
}

/* ---- training ---- */

static void test_loss_falls(void **state)
{
    struct fixture fixture;
    double first = 0.0, last = 0.0;

    (void)state;
    fixture_open(&fixture, &dpb_device_cpu_ops, &dpb_workload_cifar_resnet20_ops, 8);
    for (int step = 0; step < 12; step++) {
        last = fixture_step(&fixture, 1.0f / 8.0f).loss_sum / 8.0;
        if (step == 0)
            first = last;
        assert_int_equal(fixture.ready_count, fixture.model->param_count);
        assert_memory_equal(fixture.ready, fixture.model->ready_order,
                            (size_t)fixture.ready_count * sizeof(int));
        fixture_update(&fixture, 0.05f);
    }
    print_message("%g %g\n", first, last);
    assert_true(first > 1.5 && first < 5.0);
    assert_true(last < 0.3 * first);
    fixture_close(&fixture);
}

/* What DDP broadcasts before each step of ResNet-50: 106 tensors of 212,480 bytes. */
static void test_buffers_of_resnet50(void **state)
{
    const struct dpb_model *model = dpb_workload_resnet50_ops.model(NULL);
    int64_t elements = 0;

    (void)state;
    assert_int_equal(model->buffer_count, 106);
    for (int i = 0; i < model->buffer_count; i++)
        elements += model->buffer_numel[i];
    assert_int_equal(elements * (int64_t)sizeof(float), 212480);
    assert_int_equal(dpb_workload_vgg16_ops.model(NULL)->buffer_count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_tables),
            cmocka_unit_test(test_ready_orders_and_bucket_plans),
            cmocka_unit_test(test_image_sizes),
            cmocka_unit_test(test_activations_against_what_pytorch_saves),
            cmocka_unit_test(test_initial_values),
            cmocka_unit_test(test_initial_values_of_vgg),
            cmocka_unit_test(test_inference_uses_running_statistics),
            cmocka_unit_test(test_state),
            cmocka_unit_test(test_buffers_of_resnet50),
            cmocka_unit_test(test_samples_are_alone_in_inference),
            cmocka_unit_test(test_one_value_per_channel),
            cmocka_unit_test(test_loss_falls),
    };

    return DPB_RUN_TESTS(tests);
}

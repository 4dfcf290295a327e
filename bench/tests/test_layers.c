/* Layer lists against PyTorch's tables, and the rules that make them. */
#include "dpb_test.h"
#include "dpb_workloads.h"
#include "fixture.h"
#include "layer_list.h"
#include "layer_table.h"
#include "reference_device.h"

#include <math.h>

static void check_table(const struct dpb_workload_ops *workload, const char *table,
                        int64_t elements, int64_t macs)
{
    const struct dpb_model *model = workload->model(NULL);

    layer_table_check(model, table);
    assert_int_equal(dpb_model_param_elements(model), elements);
    assert_int_equal(dpb_model_fwd_macs_per_sample(model), macs);
    assert_int_equal(model->sample_dim[0], 28);
    assert_int_equal(model->sample_dim[1], 28);
    assert_int_equal(model->sample_dim[2], 1);
    assert_int_equal(model->classes, 10);
}

static void test_mnist_cnn_table(void **state)
{
    (void)state;
    check_table(&dpb_workload_mnist_cnn_ops, "mnist_cnn", 1199882, 11992448);
}

static void test_mnist_mlp_table(void **state)
{
    (void)state;
    check_table(&dpb_workload_mnist_mlp_ops, "mnist_mlp", 669706, 668672);
}

static void test_integers_has_the_shapes_of_mnist_cnn(void **state)
{
    (void)state;
    check_table(&dpb_workload_integers_ops, "mnist_cnn", 1199882, 11992448);
    assert_true(dpb_workload_integers_ops.flags & DPB_WORKLOAD_INTEGER_GRADIENTS);
    assert_false(dpb_workload_mnist_cnn_ops.flags & DPB_WORKLOAD_INTEGER_GRADIENTS);
}

static void test_tables_of_functions_are_complete(void **state)
{
    (void)state;
    assert_int_equal(dpb_workload_ops_check(&dpb_workload_mnist_cnn_ops), DPB_OK);
    assert_int_equal(dpb_workload_ops_check(&dpb_workload_mnist_mlp_ops), DPB_OK);
    assert_int_equal(dpb_workload_ops_check(&dpb_workload_integers_ops), DPB_OK);
}

static void test_ready_order(void **state)
{
    /* fc2.bias, fc2.weight, fc1.bias, fc1.weight, conv2.weight, conv2.bias, conv1.weight, .bias */
    static const int cnn[] = {7, 6, 5, 4, 2, 3, 0, 1};
    static const int mlp[] = {5, 4, 3, 2, 1, 0};

    (void)state;
    assert_memory_equal(dpb_workload_mnist_cnn_ops.model(NULL)->ready_order, cnn, sizeof(cnn));
    assert_memory_equal(dpb_workload_integers_ops.model(NULL)->ready_order, cnn, sizeof(cnn));
    assert_memory_equal(dpb_workload_mnist_mlp_ops.model(NULL)->ready_order, mlp, sizeof(mlp));
}

/* ResNet-50's first convolution: 7x7, stride 2, padding 3, no bias. */
static void test_stride_padding_and_no_bias(void **state)
{
    static struct dpb_layer_list list;

    (void)state;
    dpb_layer_list_begin(&list, 224, 224, 3);
    dpb_layer_list_conv2d(&list, "conv1", 64, 7, 2, 3, false, false);
    dpb_layer_list_finish(&list);
    assert_int_equal(list.model.param_count, 1);
    assert_int_equal(list.layer[0].bias, -1);
    assert_int_equal(list.layer[0].out[0], 112);
    assert_int_equal(dpb_model_fwd_macs_per_sample(&list.model), 118013952);
    assert_int_equal(dpb_layer_list_fan_in(&list, 0), 147);
    assert_string_equal(list.layer[0].op.bwd_weights, "conv1.bwd-weights");
}

/* What each layer reads, and the shapes that follow. */
static void test_branches(void **state)
{
    static struct dpb_layer_list list;
    const struct dpb_layer *layer = list.layer;

    (void)state;
    dpb_layer_list_begin(&list, 9, 9, 4);
    assert_int_equal(dpb_layer_list_last(&list), DPB_LAYER_IMAGES);
    dpb_layer_list_conv2d(&list, "conv1", 6, 3, 2, 1, false, false);
    dpb_layer_list_batchnorm2d(&list, "bn1", true);
    assert_int_equal(dpb_layer_list_last(&list), 1);
    dpb_layer_list_from(&list, DPB_LAYER_IMAGES);
    dpb_layer_list_shortcut(&list, "shortcut", 6, 2);
    dpb_layer_list_add(&list, "add", 1, true);
    dpb_layer_list_maxpool2d(&list, "maxpool", 3, 2, 1);
    dpb_layer_list_adaptivepool2d(&list, "nothing", 3);
    dpb_layer_list_adaptivepool2d(&list, "adaptive", 7);
    dpb_layer_list_avgpool2d(&list, "avgpool");
    dpb_layer_list_finish(&list);

    assert_int_equal(dpb_layer_list_check(&list, "branches"), DPB_OK);
    assert_int_equal(list.layer_count, 7);
    assert_int_equal(layer[0].input[0], DPB_LAYER_IMAGES);
    assert_int_equal(layer[1].input[0], 0);
    assert_int_equal(layer[2].input[0], DPB_LAYER_IMAGES);
    assert_int_equal(layer[3].input_count, 2);
    assert_int_equal(layer[3].input[0], 2);
    assert_int_equal(layer[3].input[1], 1);
    assert_int_equal(layer[4].input_count, 1);
    assert_int_equal(layer[3].out[0], 5);
    assert_int_equal(layer[4].out[0], 3);
    assert_int_equal(layer[5].out[0], 7);
    assert_int_equal(layer[6].kernel, 7);
    assert_int_equal(list.model.classes, 6);
    assert_string_equal(list.info[3].kind, "add");
    /* three tensors, in the order of layers; the batch normalisation's weight is ready first */
    assert_int_equal(list.model.param_count, 3);
    assert_memory_equal(list.model.ready_order, ((int[]){1, 2, 0}), 3 * sizeof(int));
}

static void check_damaged(struct dpb_layer_list *list)
{
    dpb_layer_list_finish(list);
    assert_int_equal(dpb_layer_list_check(list, "branches"), DPB_ERR_INTERNAL);
}

static void test_branches_that_do_not_fit_are_damaged(void **state)
{
    static struct dpb_layer_list list;

    (void)state;
    log_collect();
    dpb_layer_list_begin(&list, 8, 8, 4);
    dpb_layer_list_from(&list, 0); /* not declared yet */
    dpb_layer_list_linear(&list, "fc", 4, false);
    check_damaged(&list);

    dpb_layer_list_begin(&list, 8, 8, 4);
    dpb_layer_list_conv2d(&list, "conv1", 4, 3, 1, 1, false, false);
    dpb_layer_list_conv2d(&list, "conv2", 5, 3, 1, 1, false, false);
    dpb_layer_list_add(&list, "add", 0, false); /* 5 and 4 channels */
    check_damaged(&list);

    dpb_layer_list_begin(&list, 8, 8, 4);
    dpb_layer_list_conv2d(&list, "conv1", 4, 3, 1, 1, false, false);
    dpb_layer_list_add(&list, "add", 0, false); /* to itself */
    check_damaged(&list);

    dpb_layer_list_begin(&list, 8, 8, 4);
    dpb_layer_list_conv2d(&list, "conv1", 4, 3, 1, 1, false, false);
    dpb_layer_list_from(&list, DPB_LAYER_IMAGES);
    dpb_layer_list_linear(&list, "fc", 4, false); /* nobody reads conv1 */
    check_damaged(&list);

    dpb_layer_list_begin(&list, 8, 8, 4);
    dpb_layer_list_batchnorm2d(&list, "bn1", false); /* of the images */
    check_damaged(&list);

    dpb_layer_list_begin(&list, 8, 9, 4);
    dpb_layer_list_avgpool2d(&list, "avgpool"); /* not square */
    check_damaged(&list);

    dpb_layer_list_begin(&list, 8, 8, 4);
    dpb_layer_list_shortcut(&list, "shortcut", 3, 2); /* fewer channels */
    check_damaged(&list);
    log_stop();
}

static void test_lists_that_do_not_fit_are_damaged(void **state)
{
    static struct dpb_layer_list list;

    (void)state;
    log_collect();
    dpb_layer_list_begin(&list, 8, 8, 1);
    assert_int_equal(dpb_layer_list_check(&list, "empty"), DPB_ERR_INTERNAL);

    dpb_layer_list_conv2d(&list, "conv1", 4, 9, 1, 0, true, true); /* window above the image */
    dpb_layer_list_finish(&list);
    assert_int_equal(dpb_layer_list_check(&list, "window"), DPB_ERR_INTERNAL);
    assert_true(log_has("workload \"window\""));

    dpb_layer_list_begin(&list, 8, 8, 1);
    for (int i = 0; i < DPB_LAYERS_MAX; i++)
        dpb_layer_list_maxpool2d(&list, "pool", 1, 1, 0);
    dpb_layer_list_finish(&list);
    assert_int_equal(dpb_layer_list_check(&list, "full"), DPB_OK);
    assert_int_equal(list.layer_count, DPB_LAYERS_MAX);
    dpb_layer_list_maxpool2d(&list, "pool", 1, 1, 0);
    assert_int_equal(list.layer_count, DPB_LAYERS_MAX);
    assert_int_equal(dpb_layer_list_check(&list, "overfull"), DPB_ERR_INTERNAL);

    dpb_layer_list_begin(&list, 8, 8, 1);
    for (int i = 0; i < DPB_LAYER_PARAMS_MAX / 2; i++)
        dpb_layer_list_linear(&list, "fc", 4, true);
    dpb_layer_list_finish(&list);
    assert_int_equal(dpb_layer_list_check(&list, "full"), DPB_OK);
    assert_int_equal(list.param_count, DPB_LAYER_PARAMS_MAX);
    dpb_layer_list_linear(&list, "fc", 4, true);
    assert_int_equal(dpb_layer_list_check(&list, "overfull"), DPB_ERR_INTERNAL);

    dpb_layer_list_begin(&list, 8, 8, 1);
    dpb_layer_list_linear(&list, "a-name-that-is-longer-than-any-layer-has", 4, true);
    assert_int_equal(dpb_layer_list_check(&list, "name"), DPB_ERR_INTERNAL);
    log_stop();
}

/* Bounds are +-1/sqrt(fan_in), reached nearly but never passed; the mean is near 0. */
static void test_init_is_uniform_in_the_fan_in_bound(void **state)
{
    struct fixture fixture;

    (void)state;
    fixture_open(&fixture, &test_reference_device_ops, &dpb_workload_mnist_cnn_ops, 1);
    for (int p = 0; p < fixture.model->param_count; p++) {
        static const int64_t fan_in[] = {9, 9, 288, 288, 9216, 9216, 128, 128};
        double bound = 1.0 / sqrt((double)fan_in[p]), largest = 0.0, sum = 0.0, squares = 0.0;
        int64_t count = fixture.model->params[p].numel;

        for (int64_t i = 0; i < count; i++) {
            double value = (double)fixture.param[p][i];

            largest = fmax(largest, fabs(value));
            sum += value;
            squares += value * value;
        }
        assert_true(largest <= bound * (1.0 + 1e-7));
        assert_true(largest > 0.7 * bound);
        if (count < 1000)
            continue;
        /* five standard errors */
        assert_true(fabs(sum / (double)count) < 5.0 * bound / sqrt(3.0 * (double)count));
        assert_true(fabs(squares / (double)count * 3.0 / (bound * bound) - 1.0) <
                    5.0 * sqrt(0.8 / (double)count));
    }
    fixture_close(&fixture);
}

static void test_init_depends_on_seed_and_parameter_only(void **state)
{
    struct fixture a, b;

    (void)state;
    fixture_open(&a, &test_reference_device_ops, &dpb_workload_mnist_mlp_ops, 1);
    fixture_open(&b, &test_reference_device_ops, &dpb_workload_mnist_mlp_ops, 3);
    assert_memory_equal(a.params, b.params, (size_t)a.elements * sizeof(float));
    /* fc2's weight and bias have the same bound, so only their streams tell them apart */
    assert_memory_not_equal(a.param[2], a.param[3], 512 * sizeof(float));
    assert_int_equal(b.ops->init_params(b.workload, 2), DPB_OK);
    for (int p = 0; p < a.model->param_count; p++)
        assert_memory_not_equal(a.param[p], b.param[p],
                                (size_t)a.model->params[p].numel * sizeof(float));
    fixture_close(&a);
    fixture_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_mnist_cnn_table),
            cmocka_unit_test(test_mnist_mlp_table),
            cmocka_unit_test(test_integers_has_the_shapes_of_mnist_cnn),
            cmocka_unit_test(test_tables_of_functions_are_complete),
            cmocka_unit_test(test_ready_order),
            cmocka_unit_test(test_stride_padding_and_no_bias),
            cmocka_unit_test(test_branches),
            cmocka_unit_test(test_branches_that_do_not_fit_are_damaged),
            cmocka_unit_test(test_lists_that_do_not_fit_are_damaged),
            cmocka_unit_test(test_init_is_uniform_in_the_fan_in_bound),
            cmocka_unit_test(test_init_depends_on_seed_and_parameter_only),
    };

    return DPB_RUN_TESTS(tests);
}

/* Layer lists against PyTorch's tables, and the rules that make them. */
#include "dpb_test.h"
#include "dpb_workloads.h"
#include "fixture.h"
#include "layer_list.h"
#include "reference_device.h"

#include <math.h>

struct row {
    int index;
    char name[64];
    int rank;
    int64_t dim[DPB_TENSOR_RANK_MAX];
    int64_t numel, bytes;
    char kind[32];
    int64_t macs, out_elements;
};

static const char *torch_kind(const char *kind)
{
    if (strcmp(kind, "conv2d") == 0)
        return "Conv2d";
    if (strcmp(kind, "linear") == 0)
        return "Linear";
    return kind;
}

static void parse_row(const char *line, struct row *row)
{
    char shape[64], in[64], out[64], *at = shape;
    long long numel, bytes, macs, elements;

    assert_int_equal(sscanf(line, "%d,%63[^,],%63[^,],%lld,%lld,%31[^,],%63[^,],%63[^,],%lld,%lld",
                            &row->index, row->name, shape, &numel, &bytes, row->kind, in, out,
                            &macs, &elements),
                     10);
    row->numel = numel;
    row->bytes = bytes;
    row->macs = macs;
    row->out_elements = elements;
    for (row->rank = 0; *at; row->rank++) {
        assert_true(row->rank < DPB_TENSOR_RANK_MAX);
        row->dim[row->rank] = strtoll(at, &at, 10);
        if (*at == 'x')
            at++;
    }
}

/* The first parameter of a layer carries the layer's MACs and output elements, the others 0. */
static void check_row(const struct dpb_model *model, const struct row *row)
{
    const struct dpb_param_info *param = &model->params[row->index];
    const struct dpb_layer_info *layer = &model->layers[param->layer];
    bool first = row->index == 0 || model->params[row->index - 1].layer != param->layer;

    assert_string_equal(param->name, row->name);
    assert_int_equal(param->dtype, DPB_F32);
    assert_int_equal(param->rank, row->rank);
    for (int i = 0; i < row->rank; i++)
        assert_int_equal(param->dim[i], row->dim[i]);
    assert_int_equal(param->numel, row->numel);
    assert_int_equal(4 * param->numel, row->bytes);
    assert_string_equal(torch_kind(layer->kind), row->kind);
    assert_int_equal(row->macs, first ? layer->fwd_macs_per_sample : 0);
    assert_int_equal(row->out_elements, first ? layer->out_elements_per_sample : 0);
    assert_memory_equal(param->name, layer->name, strlen(layer->name));
    assert_int_equal(param->name[strlen(layer->name)], '.');
}

static void check_table(const struct dpb_workload_ops *workload, const char *file, int64_t elements,
                        int64_t macs)
{
    const struct dpb_model *model = workload->model(NULL);
    char path[1024], line[512];
    int rows = 0;
    FILE *table;

    snprintf(path, sizeof(path), "%s/%s", DPB_TEST_DATA, file);
    table = fopen(path, "r");
    assert_non_null(table);
    assert_non_null(fgets(line, sizeof(line), table));
    while (fgets(line, sizeof(line), table)) {
        struct row row;

        parse_row(line, &row);
        assert_int_equal(row.index, rows);
        assert_true(rows < model->param_count);
        check_row(model, &row);
        rows++;
    }
    fclose(table);
    assert_int_equal(rows, model->param_count);
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
    check_table(&dpb_workload_mnist_cnn_ops, "mnist_cnn.csv", 1199882, 11992448);
}

static void test_mnist_mlp_table(void **state)
{
    (void)state;
    check_table(&dpb_workload_mnist_mlp_ops, "mnist_mlp.csv", 669706, 668672);
}

static void test_integers_has_the_shapes_of_mnist_cnn(void **state)
{
    (void)state;
    check_table(&dpb_workload_integers_ops, "mnist_cnn.csv", 1199882, 11992448);
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

/* VGG-16 by rule: 32 tensors, known totals, and the order PyTorch's DDP observed. */
static void test_vgg16_by_rule(void **state)
{
    static const int order[] = {31, 30, 29, 28, 27, 26, 24, 25, 22, 23, 20, 21, 18, 19, 16, 17,
                                14, 15, 12, 13, 10, 11, 8,  9,  6,  7,  4,  5,  2,  3,  0,  1};
    static const int channels[] = {64, 64,  0,   128, 128, 0,   256, 256, 256,
                                   0,  512, 512, 512, 0,   512, 512, 512, 0};
    static struct dpb_layer_list list;

    (void)state;
    dpb_layer_list_begin(&list, 224, 224, 3);
    for (size_t i = 0; i < sizeof(channels) / sizeof(channels[0]); i++) {
        char name[32];

        snprintf(name, sizeof(name), "layer%zu", i);
        if (channels[i] == 0)
            dpb_layer_list_maxpool2d(&list, name, 2, 2);
        else
            dpb_layer_list_conv2d(&list, name, channels[i], 3, 1, 1, true, true);
    }
    dpb_layer_list_linear(&list, "classifier.0", 4096, true);
    dpb_layer_list_linear(&list, "classifier.3", 4096, true);
    dpb_layer_list_linear(&list, "classifier.6", 1000, false);
    dpb_layer_list_finish(&list);

    assert_int_equal(dpb_layer_list_check(&list, "vgg16"), DPB_OK);
    assert_int_equal(list.model.param_count, 32);
    assert_int_equal(dpb_model_param_elements(&list.model), 138357544);
    assert_int_equal(dpb_model_fwd_macs_per_sample(&list.model), 15470264320);
    assert_memory_equal(list.model.ready_order, order, sizeof(order));
    assert_int_equal(list.model.classes, 1000);
    assert_string_equal(list.model.params[26].name, "classifier.0.weight");
    assert_int_equal(list.model.params[26].dim[1], 25088);
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
        dpb_layer_list_linear(&list, "fc", 4, true);
    dpb_layer_list_finish(&list);
    assert_int_equal(dpb_layer_list_check(&list, "full"), DPB_OK);
    assert_int_equal(list.layer_count, DPB_LAYERS_MAX);
    dpb_layer_list_linear(&list, "fc", 4, true);
    assert_int_equal(list.layer_count, DPB_LAYERS_MAX);
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
            cmocka_unit_test(test_vgg16_by_rule),
            cmocka_unit_test(test_stride_padding_and_no_bias),
            cmocka_unit_test(test_lists_that_do_not_fit_are_damaged),
            cmocka_unit_test(test_init_is_uniform_in_the_fan_in_bound),
            cmocka_unit_test(test_init_depends_on_seed_and_parameter_only),
    };

    return DPB_RUN_TESTS(tests);
}

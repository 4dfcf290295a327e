/* Loss, every gradient and running statistics of tiny networks against PyTorch's in float64, from
 * data/torch_networks.json: a configuration of each family, with the layers its networks have. */
#include "dpb_test.h"

#include <math.h>

#include "dpb_device_cpu.h"
#include "dpb_json.h"
#include "fixture.h"
#include "network.h"
#include "network_private.h"
#include "reference_device.h"
#include "tiny_transformers.h"

/* Of a gradient, relative to the largest of its tensor; where that is tiny because terms cancel
 * (the keys' biases), to a hundredth of the network's largest. The file's rounding is 2e-6 of it.
 */
#define GRAD_TOLERANCE    1e-5
#define LOSS_TOLERANCE    1e-6 /* relative */
#define RUNNING_TOLERANCE 1e-6 /* absolute: means near 0, variances near 1 */

static dpb_json *vectors; /* the whole file */

/* ---- image networks: a layer list that the workload below has at the moment ---- */

static struct dpb_layer_list layers;
static const struct dpb_workload_ops image_ops;

static const struct dpb_model *image_model(const void *options)
{
    (void)options;
    return &layers.model;
}

static dpb_status image_open(const struct dpb_workload_config *config, dpb_workload **workload)
{
    return dpb_network_open(&image_ops, &layers, config, workload);
}

static const struct dpb_workload_ops image_ops = {
        .version = DPB_WORKLOAD_OPS_VERSION,
        .name = "tiny-images",
        .summary = "for tests",
        .model = image_model,
        .open = image_open,
        .close = dpb_network_close,
        .bind = dpb_network_bind,
        .init_params = dpb_network_init_params,
        .forward = dpb_network_forward,
        .read_result = dpb_network_read_result,
        .backward = dpb_network_backward,
        .activation_bytes = dpb_network_activation_bytes,
};

static void build_mlp(void)
{
    dpb_layer_list_begin(&layers, 4, 4, 1);
    dpb_layer_list_linear(&layers, "fc1", 9, true);
    dpb_layer_list_linear(&layers, "fc2", 7, true);
    dpb_layer_list_linear(&layers, "fc3", 5, false);
}

static void build_cnn(void)
{
    dpb_layer_list_begin(&layers, 8, 8, 1);
    dpb_layer_list_conv2d(&layers, "conv1", 3, 3, 1, 0, true, true);
    dpb_layer_list_conv2d(&layers, "conv2", 4, 3, 1, 0, true, true);
    dpb_layer_list_maxpool2d(&layers, "pool", 2, 2, 0);
    dpb_layer_list_linear(&layers, "fc1", 8, true);
    dpb_layer_list_linear(&layers, "fc2", 5, false);
}

static void build_vgg(void)
{
    dpb_layer_list_begin(&layers, 6, 6, 3);
    dpb_layer_list_conv2d(&layers, "features.0", 4, 3, 1, 1, true, true);
    dpb_layer_list_maxpool2d(&layers, "features.1", 2, 2, 0);
    dpb_layer_list_conv2d(&layers, "features.2", 5, 3, 1, 1, true, true);
    dpb_layer_list_adaptivepool2d(&layers, "avgpool", 2);
    dpb_layer_list_linear(&layers, "classifier.0", 7, true);
    dpb_layer_list_linear(&layers, "classifier.3", 5, false);
}

static void conv_bn(const char *conv, const char *bn, int64_t channels, int kernel, int stride,
                    bool relu)
{
    dpb_layer_list_conv2d(&layers, conv, channels, kernel, stride, kernel / 2, false, false);
    dpb_layer_list_batchnorm2d(&layers, bn, relu);
}

static void build_resnet(void)
{
    int input, other;

    dpb_layer_list_begin(&layers, 16, 16, 3);
    conv_bn("conv1", "bn1", 4, 7, 2, true);
    dpb_layer_list_maxpool2d(&layers, "maxpool", 3, 2, 1);

    input = dpb_layer_list_last(&layers);
    conv_bn("layer1.0.conv1", "layer1.0.bn1", 3, 1, 1, true);
    conv_bn("layer1.0.conv2", "layer1.0.bn2", 3, 3, 2, true);
    conv_bn("layer1.0.conv3", "layer1.0.bn3", 8, 1, 1, false);
    other = dpb_layer_list_last(&layers);
    dpb_layer_list_from(&layers, input);
    conv_bn("layer1.0.downsample.0", "layer1.0.downsample.1", 8, 1, 2, false);
    dpb_layer_list_add(&layers, "layer1.0.add", other, true);

    input = dpb_layer_list_last(&layers);
    conv_bn("layer2.0.conv1", "layer2.0.bn1", 8, 3, 1, true);
    conv_bn("layer2.0.conv2", "layer2.0.bn2", 8, 3, 1, false);
    dpb_layer_list_add(&layers, "layer2.0.add", input, true);

    dpb_layer_list_avgpool2d(&layers, "avgpool");
    dpb_layer_list_linear(&layers, "fc", 5, false);
}

static void build_cifar_resnet(void)
{
    int input, other;

    dpb_layer_list_begin(&layers, 8, 8, 3);
    conv_bn("conv1", "bn1", 4, 3, 1, true);

    input = dpb_layer_list_last(&layers);
    conv_bn("layer1.0.conv1", "layer1.0.bn1", 4, 3, 1, true);
    conv_bn("layer1.0.conv2", "layer1.0.bn2", 4, 3, 1, false);
    dpb_layer_list_add(&layers, "layer1.0.add", input, true);

    input = dpb_layer_list_last(&layers);
    conv_bn("layer2.0.conv1", "layer2.0.bn1", 8, 3, 2, true);
    conv_bn("layer2.0.conv2", "layer2.0.bn2", 8, 3, 1, false);
    other = dpb_layer_list_last(&layers);
    dpb_layer_list_from(&layers, input);
    dpb_layer_list_shortcut(&layers, "layer2.0.shortcut", 8, 2);
    dpb_layer_list_add(&layers, "layer2.0.add", other, true);

    dpb_layer_list_avgpool2d(&layers, "avgpool");
    dpb_layer_list_linear(&layers, "fc", 5, false);
}

/* ---- from the file into the fixture ---- */

static const dpb_json *suffixed(const dpb_json *network, const char *name, const char *suffix)
{
    char key[96];

    snprintf(key, sizeof(key), "%s.%s", name, suffix);
    return dpb_json_get(network, key);
}

static void floats_of(const dpb_json *values, double unit, float *to, int64_t count)
{
    assert_int_equal(dpb_json_size(values), count);
    for (int64_t i = 0; i < count; i++)
        to[i] = (float)(dpb_json_as_real(dpb_json_at(values, (size_t)i), NAN) * unit);
}

static void ints_of(const dpb_json *network, const char *key, int32_t *to, int64_t count)
{
    const dpb_json *values = dpb_json_get(network, key);

    assert_int_equal(dpb_json_size(values), count);
    for (int64_t i = 0; i < count; i++)
        to[i] = (int32_t)dpb_json_as_int(dpb_json_at(values, (size_t)i), -1);
}

static void load_batch(const dpb_json *network, struct fixture *fixture, double unit)
{
    const struct dpb_model *model = fixture->model;
    int64_t samples = fixture->batch.samples;
    int64_t tokens = samples * model->sequence, predicted = samples * model->predicted;
    const int64_t *dim = model->sample_dim;

    if (model->input == DPB_INPUT_IMAGES) {
        floats_of(dpb_json_get(network, "x"), unit, fixture->x, samples * dim[0] * dim[1] * dim[2]);
    } else {
        ints_of(network, "tokens", fixture->tokens, tokens);
        ints_of(network, "predict_token", fixture->predict_token, predicted);
    }
    if (model->input == DPB_INPUT_TOKENS && !model->next_token) {
        ints_of(network, "segments", fixture->segments, tokens);
        ints_of(network, "predict_position", fixture->predict_position, predicted);
    }
    if (!model->next_token)
        ints_of(network, "label", fixture->label, samples);
}

static void load_params(const dpb_json *network, struct fixture *fixture, double unit)
{
    const struct dpb_model *model = fixture->model;
    const dpb_json *names = dpb_json_get(network, "names");

    assert_int_equal(dpb_json_size(names), model->param_count);
    for (int p = 0; p < model->param_count; p++) {
        const struct dpb_param_info *param = &model->params[p];

        assert_string_equal(dpb_json_as_string(dpb_json_at(names, (size_t)p), ""), param->name);
        floats_of(dpb_json_get(network, param->name), unit, fixture->param[p], param->numel);
    }
}

/* ---- comparing ---- */

static double largest_grad(const dpb_json *network, const char *name)
{
    const dpb_json *steps = suffixed(network, name, "grad");
    double step = dpb_json_as_real(suffixed(network, name, "step"), NAN), largest = 0.0;

    for (size_t i = 0; i < dpb_json_size(steps); i++)
        largest = fmax(largest, fabs(step * dpb_json_as_real(dpb_json_at(steps, i), NAN)));
    return largest;
}

static void check_grad(const dpb_json *network, const struct dpb_param_info *param,
                       const float *grad, double unit)
{
    const dpb_json *steps = suffixed(network, param->name, "grad");
    double step = dpb_json_as_real(suffixed(network, param->name, "step"), NAN);

    assert_int_equal(dpb_json_size(steps), param->numel);
    for (int64_t i = 0; i < param->numel; i++) {
        double expected = step * dpb_json_as_real(dpb_json_at(steps, (size_t)i), NAN);

        if (!(fabs((double)grad[i] - expected) <= GRAD_TOLERANCE * unit))
            fail_msg("%s element %lld: gradient %.9g, PyTorch's %.9g, a difference of %.2g of %.2g",
                     param->name, (long long)i, (double)grad[i], expected,
                     fabs((double)grad[i] - expected) / unit, unit);
    }
}

static void check_grads(const dpb_json *network, const struct fixture *fixture)
{
    const struct dpb_model *model = fixture->model;
    double everywhere = 0.0;

    for (int p = 0; p < model->param_count; p++)
        everywhere = fmax(everywhere, largest_grad(network, model->params[p].name));
    assert_true(everywhere > 0.0);
    for (int p = 0; p < model->param_count; p++) {
        double largest = largest_grad(network, model->params[p].name);

        check_grad(network, &model->params[p], fixture->grad[p], fmax(largest, 1e-2 * everywhere));
    }
}

static void check_running_of(const dpb_json *expected, const float *found, int64_t channels,
                             const char *name)
{
    assert_int_equal(dpb_json_size(expected), channels);
    for (int64_t c = 0; c < channels; c++) {
        double value = dpb_json_as_real(dpb_json_at(expected, (size_t)c), NAN);

        if (!(fabs((double)found[c] - value) <= RUNNING_TOLERANCE))
            fail_msg("%s channel %lld: %.9g in the running statistics, PyTorch's %.9g", name,
                     (long long)c, (double)found[c], value);
    }
}

/* After one forward pass in training. Returns how many layers have statistics. */
static int check_running(const dpb_json *network, const dpb_workload *workload)
{
    const struct network *net = (const struct network *)workload;
    int checked = 0;

    for (int i = 0; i < net->list->layer_count; i++) {
        const struct dpb_layer *layer = &net->list->layer[i];
        const float *running = net->extra[i].running;
        int64_t channels = layer->out[2];

        if (layer->kind != DPB_LAYER_BATCHNORM2D)
            continue;
        check_running_of(suffixed(network, layer->name, "running_mean"), running, channels,
                         layer->name);
        check_running_of(suffixed(network, layer->name, "running_var"), running + channels,
                         channels, layer->name);
        checked++;
    }
    return checked;
}

/* `batchnorms`: how many layers with running statistics there are. */
static void check_on(const struct dpb_device_ops *device, const struct dpb_workload_ops *workload,
                     const char *name, int batchnorms)
{
    const dpb_json *network = dpb_json_get(vectors, name);
    double unit = 1.0 / dpb_json_as_real(dpb_json_get(vectors, "unit"), NAN);
    double scale = dpb_json_as_real(dpb_json_get(vectors, "scale"), NAN);
    double loss = dpb_json_as_real(dpb_json_get(network, "loss_sum"), NAN);
    struct dpb_forward_result result;
    struct fixture fixture;

    fixture_open(&fixture, device, workload, dpb_json_as_int(dpb_json_get(network, "samples"), 0));
    load_params(network, &fixture, unit);
    load_batch(network, &fixture, unit);
    result = fixture_step(&fixture, (float)scale);
    if (!(fabs(result.loss_sum - loss) <= LOSS_TOLERANCE * loss))
        fail_msg("%s: loss %.9g, PyTorch's %.9g", name, result.loss_sum, loss);
    check_grads(network, &fixture);
    if (fixture.model->input == DPB_INPUT_IMAGES)
        assert_int_equal(check_running(network, fixture.workload), batchnorms);
    fixture_close(&fixture);
}

static void check(const struct dpb_workload_ops *workload, const char *name, int batchnorms)
{
    check_on(&test_reference_device_ops, workload, name, batchnorms);
    check_on(&dpb_device_cpu_ops, workload, name, batchnorms);
}

static void check_images(void (*build)(void), const char *name, int batchnorms)
{
    build();
    dpb_layer_list_finish(&layers);
    assert_int_equal(dpb_layer_list_check(&layers, name), DPB_OK);
    check(&image_ops, name, batchnorms);
}

static void test_mlp(void **state)
{
    (void)state;
    check_images(build_mlp, "mlp", 0);
}

static void test_cnn(void **state)
{
    (void)state;
    check_images(build_cnn, "cnn", 0);
}

static void test_vgg(void **state)
{
    (void)state;
    check_images(build_vgg, "vgg", 0);
}

static void test_resnet(void **state)
{
    (void)state;
    check_images(build_resnet, "resnet", 7);
}

static void test_cifar_resnet(void **state)
{
    (void)state;
    check_images(build_cifar_resnet, "cifar-resnet", 5);
}

static void test_bert(void **state)
{
    (void)state;
    check(&tiny_bert_ops, "bert", 0);
}

static void test_gpt2(void **state)
{
    (void)state;
    check(&tiny_gpt2_ops, "gpt2", 0);
}

static int load(void **state)
{
    (void)state;
    return dpb_json_read_file(DPB_TEST_DATA "/torch_networks.json", &vectors) == DPB_OK ? 0 : -1;
}

static int unload(void **state)
{
    (void)state;
    dpb_json_free(vectors);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_mlp),          cmocka_unit_test(test_cnn),
            cmocka_unit_test(test_vgg),          cmocka_unit_test(test_resnet),
            cmocka_unit_test(test_cifar_resnet), cmocka_unit_test(test_bert),
            cmocka_unit_test(test_gpt2),
    };

    return cmocka_run_group_tests(tests, load, unload);
}

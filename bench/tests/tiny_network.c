#include "tiny_network.h"

#include "network.h"

static void conv_bn(struct dpb_layer_list *list, const char *conv, const char *bn, int64_t channels,
                    int kernel, int stride, bool relu)
{
    dpb_layer_list_conv2d(list, conv, channels, kernel, stride, kernel / 2, false, false);
    dpb_layer_list_batchnorm2d(list, bn, relu);
}

static void build(struct dpb_layer_list *list)
{
    int input, other;

    dpb_layer_list_begin(list, 8, 8, 3);
    list->init = DPB_INIT_RESNET;
    dpb_layer_list_conv2d(list, "stem.conv", 4, 3, 1, 1, true, true);
    dpb_layer_list_maxpool2d(list, "stem.pool", 3, 2, 1);

    /* a bottleneck with a projection */
    input = dpb_layer_list_last(list);
    conv_bn(list, "a.conv1", "a.bn1", 3, 1, 1, true);
    conv_bn(list, "a.conv2", "a.bn2", 3, 3, 1, true);
    conv_bn(list, "a.conv3", "a.bn3", 6, 1, 1, false);
    other = dpb_layer_list_last(list);
    dpb_layer_list_from(list, input);
    conv_bn(list, "a.downsample.0", "a.downsample.1", 6, 1, 1, false);
    dpb_layer_list_add(list, "a.add", other, true);

    /* a basic block */
    input = dpb_layer_list_last(list);
    conv_bn(list, "b.conv1", "b.bn1", 6, 3, 1, true);
    conv_bn(list, "b.conv2", "b.bn2", 6, 3, 1, false);
    dpb_layer_list_add(list, "b.add", input, true);

    /* fewer pixels and more channels without parameters, and a value that is added twice: the
     * shares of its gradient lie in one buffer, which holds other values as well */
    input = dpb_layer_list_last(list);
    conv_bn(list, "c.conv", "c.bn", 10, 3, 2, false);
    other = dpb_layer_list_last(list);
    dpb_layer_list_from(list, input);
    dpb_layer_list_shortcut(list, "c.shortcut", 10, 2);
    dpb_layer_list_add(list, "c.add", other, false);
    dpb_layer_list_add(list, "c.again", other, false);

    /* a sum of what has a ReLU: its mask must not touch the other one's gradient */
    input = dpb_layer_list_last(list);
    conv_bn(list, "d.conv", "d.bn", 10, 1, 1, true);
    dpb_layer_list_add(list, "d.add", input, false);

    dpb_layer_list_adaptivepool2d(list, "adaptive", 3);
    dpb_layer_list_avgpool2d(list, "avgpool");
    dpb_layer_list_linear(list, "fc", 5, false);
    dpb_layer_list_finish(list);
}

const struct dpb_layer_list *tiny_network_layers(void)
{
    static struct dpb_layer_list list;

    if (list.layer_count == 0)
        build(&list);
    return &list;
}

static const struct dpb_model *model(const void *options)
{
    (void)options;
    return &tiny_network_layers()->model;
}

static dpb_status open_workload(const struct dpb_workload_config *config, dpb_workload **workload)
{
    return dpb_network_open(&tiny_network_ops, tiny_network_layers(), config, workload);
}

static int64_t activation_bytes_for(const void *options, const struct dpb_workload_sizes *sizes)
{
    (void)options;
    return dpb_network_activation_bytes_for(tiny_network_layers(), sizes);
}

static int64_t host_bytes_for(const void *options, const struct dpb_workload_sizes *sizes)
{
    (void)options;
    return dpb_network_host_bytes_for(tiny_network_layers(), sizes);
}

const struct dpb_workload_ops tiny_network_ops = {
        .version = DPB_WORKLOAD_OPS_VERSION,
        .name = "tiny",
        .summary = "every kind of layer",
        .flags = DPB_WORKLOAD_BATCH_STATISTICS | DPB_WORKLOAD_MIXED,
        .model = model,
        .open = open_workload,
        .close = dpb_network_close,
        .bind = dpb_network_bind,
        .init_params = dpb_network_init_params,
        .forward = dpb_network_forward,
        .read_result = dpb_network_read_result,
        .needs_host = dpb_network_needs_host,
        .backward = dpb_network_backward,
        .state = dpb_network_state,
        .activation_bytes = dpb_network_activation_bytes,
        .activation_bytes_for = activation_bytes_for,
        .host_bytes_for = host_bytes_for,
};

#include "dpb_workloads.h"

#include <pthread.h>

#include "network.h"

static struct dpb_layer_list list;
static pthread_once_t list_once = PTHREAD_ONCE_INIT;

static void build_list(void)
{
    dpb_layer_list_begin(&list, 28, 28, 1);
    dpb_layer_list_linear(&list, "fc1", 512, true);
    dpb_layer_list_linear(&list, "fc2", 512, true);
    dpb_layer_list_linear(&list, "fc3", 10, false);
    dpb_layer_list_finish(&list);
}

static const struct dpb_layer_list *layers(void)
{
    pthread_once(&list_once, build_list);
    return &list;
}

static const struct dpb_model *model(const void *options)
{
    (void)options;
    return &layers()->model;
}

static dpb_status open_workload(const struct dpb_workload_config *config, dpb_workload **workload)
{
    return dpb_network_open(&dpb_workload_mnist_mlp_ops, layers(), config, workload);
}

static int64_t activation_bytes_for(const void *options, const struct dpb_workload_sizes *sizes)
{
    (void)options;
    return dpb_network_activation_bytes_for(layers(), sizes);
}

static int64_t host_bytes_for(const void *options, const struct dpb_workload_sizes *sizes)
{
    (void)options;
    return dpb_network_host_bytes_for(layers(), sizes);
}

static uint64_t operators(const void *options, const struct dpb_workload_sizes *sizes)
{
    (void)options;
    return dpb_network_operators(layers(), sizes);
}

const struct dpb_workload_ops dpb_workload_mnist_mlp_ops = {
        .version = DPB_WORKLOAD_OPS_VERSION,
        .name = "mnist-mlp",
        .summary = "784-512-512-10 with ReLU on 28x28 images, 0.67 M parameters",
        .flags = DPB_WORKLOAD_MIXED,
        /* Two epochs of Fashion-MNIST in global batches of 128: 86.9 % of the test images. */
        .training = {.lr = 0.05, .momentum = 0.9, .weight_decay = 0.0, .batch_per_rank = 64},
        .model = model,
        .open = open_workload,
        .close = dpb_network_close,
        .bind = dpb_network_bind,
        .init_params = dpb_network_init_params,
        .forward = dpb_network_forward,
        .read_result = dpb_network_read_result,
        .backward = dpb_network_backward,
        .state = dpb_network_state,
        .activation_bytes = dpb_network_activation_bytes,
        .activation_bytes_for = activation_bytes_for,
        .host_bytes_for = host_bytes_for,
        .operators = operators,
};

#include "dpb_workloads.h"

#include "mnist_cnn_layers.h"
#include "network.h"

static const struct dpb_model *model(const void *options)
{
    (void)options;
    return &dpb_mnist_cnn_layers()->model;
}

static dpb_status open_workload(const struct dpb_workload_config *config, dpb_workload **workload)
{
    return dpb_network_open(&dpb_workload_mnist_cnn_ops, dpb_mnist_cnn_layers(), config, workload);
}

static int64_t activation_bytes_for(const void *options, const struct dpb_workload_sizes *sizes)
{
    (void)options;
    return dpb_network_activation_bytes_for(dpb_mnist_cnn_layers(), sizes);
}

static int64_t host_bytes_for(const void *options, const struct dpb_workload_sizes *sizes)
{
    (void)options;
    return dpb_network_host_bytes_for(dpb_mnist_cnn_layers(), sizes);
}

static uint64_t operators(const void *options, const struct dpb_workload_sizes *sizes)
{
    (void)options;
    return dpb_network_operators(dpb_mnist_cnn_layers(), sizes);
}

const struct dpb_workload_ops dpb_workload_mnist_cnn_ops = {
        .version = DPB_WORKLOAD_OPS_VERSION,
        .name = "mnist-cnn",
        .summary = "two convolutions and two linear layers on 28x28 images, 1.2 M parameters",
        .flags = DPB_WORKLOAD_MIXED,
        /* Two epochs of Fashion-MNIST in global batches of 128: 89.5 % of the test images. */
        .training = {.lr = 0.02, .momentum = 0.9, .weight_decay = 0.0, .batch_per_rank = 64},
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

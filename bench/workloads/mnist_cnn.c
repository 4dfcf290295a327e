#include "mnist_cnn.h"

#include <pthread.h>

#include "dpb_workloads.h"
#include "sequential.h"

static struct dpb_layer_list list;
static pthread_once_t list_once = PTHREAD_ONCE_INIT;

/* The network of PyTorch's MNIST example without its dropout, which would make runs of different
 * rank counts incomparable. */
static void build_list(void)
{
    dpb_layer_list_begin(&list, 28, 28, 1);
    dpb_layer_list_conv2d(&list, "conv1", 32, 3, 1, 0, true, true);
    dpb_layer_list_conv2d(&list, "conv2", 64, 3, 1, 0, true, true);
    dpb_layer_list_maxpool2d(&list, "pool", 2, 2);
    dpb_layer_list_linear(&list, "fc1", 128, true);
    dpb_layer_list_linear(&list, "fc2", 10, false);
    dpb_layer_list_finish(&list);
}

const struct dpb_layer_list *dpb_mnist_cnn_layers(void)
{
    pthread_once(&list_once, build_list);
    return &list;
}

static const struct dpb_model *model(const void *options)
{
    (void)options;
    return &dpb_mnist_cnn_layers()->model;
}

static dpb_status open_workload(const struct dpb_workload_config *config, dpb_workload **workload)
{
    return dpb_sequential_open(&dpb_workload_mnist_cnn_ops, dpb_mnist_cnn_layers(), config,
                               workload);
}

const struct dpb_workload_ops dpb_workload_mnist_cnn_ops = {
        .version = DPB_WORKLOAD_OPS_VERSION,
        .name = "mnist-cnn",
        .summary = "two convolutions and two linear layers on 28x28 images, 1.2 M parameters",
        /* Two epochs of Fashion-MNIST in global batches of 128: 89.5 % of the test images. */
        .training = {.lr = 0.02, .momentum = 0.9, .weight_decay = 0.0},
        .model = model,
        .open = open_workload,
        .close = dpb_sequential_close,
        .bind = dpb_sequential_bind,
        .init_params = dpb_sequential_init_params,
        .forward = dpb_sequential_forward,
        .backward = dpb_sequential_backward,
        .activation_bytes = dpb_sequential_activation_bytes,
};

#include "mnist_cnn_layers.h"

#include <pthread.h>

static struct dpb_layer_list list;
static pthread_once_t list_once = PTHREAD_ONCE_INIT;

/* The network of PyTorch's MNIST example without its dropout, which would make runs of different
 * rank counts incomparable. */
static void build_list(void)
{
    dpb_layer_list_begin(&list, 28, 28, 1);
    dpb_layer_list_conv2d(&list, "conv1", 32, 3, 1, 0, true, true);
    dpb_layer_list_conv2d(&list, "conv2", 64, 3, 1, 0, true, true);
    dpb_layer_list_maxpool2d(&list, "pool", 2, 2, 0);
    dpb_layer_list_linear(&list, "fc1", 128, true);
    dpb_layer_list_linear(&list, "fc2", 10, false);
    dpb_layer_list_finish(&list);
}

const struct dpb_layer_list *dpb_mnist_cnn_layers(void)
{
    pthread_once(&list_once, build_list);
    return &list;
}

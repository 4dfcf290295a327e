/* mnist_cnn_layers.h: the layers of mnist-cnn, of which mnist-cnn and integers are made. */
#ifndef BENCH_MNIST_CNN_LAYERS_H
#define BENCH_MNIST_CNN_LAYERS_H

#include "layer_list.h"

#ifdef __cplusplus
extern "C" {
#endif

const struct dpb_layer_list *dpb_mnist_cnn_layers(void);

#ifdef __cplusplus
}
#endif
#endif

/* mnist_cnn.h: the layers of mnist-cnn, which integers shares. */
#ifndef BENCH_MNIST_CNN_H
#define BENCH_MNIST_CNN_H

#include "layer_list.h"

#ifdef __cplusplus
extern "C" {
#endif

const struct dpb_layer_list *dpb_mnist_cnn_layers(void);

#ifdef __cplusplus
}
#endif
#endif

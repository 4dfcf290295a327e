/* tiny_network.h: a small network with every kind of layer and every way in which values branch. */
#ifndef BENCH_TESTS_TINY_NETWORK_H
#define BENCH_TESTS_TINY_NETWORK_H

#include "layer_list.h"

const struct dpb_layer_list *tiny_network_layers(void);

extern const struct dpb_workload_ops tiny_network_ops;

#endif

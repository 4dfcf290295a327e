/* double_network.h: the network of a layer list in float64, on the reference operators: the judge
 * of gradients. It shares the layer list with the workload and nothing else. */
#ifndef BENCH_TESTS_DOUBLE_NETWORK_H
#define BENCH_TESTS_DOUBLE_NETWORK_H

#include "dpb_workload.h"
#include "layer_list.h"

struct double_network {
    const struct dpb_layer_list *list;
    int64_t samples;
    const int32_t *label;
    double *x;
    double *param[DPB_LAYER_PARAMS_MAX], *grad[DPB_LAYER_PARAMS_MAX];
    double *output[DPB_LAYERS_MAX], *output_grad[DPB_LAYERS_MAX];
    uint8_t *index[DPB_LAYERS_MAX];
    double *statistics[DPB_LAYERS_MAX]; /* [4, channels]: running mean and variance, the batch's */
    bool inference;                     /* false after open */
    double *prob, *loss;
};

/* With the batch and copies of the parameters; borrows the labels. Failures fail the test. */
void double_network_open(struct double_network *network, const struct dpb_layer_list *list,
                         const struct dpb_batch *batch, float *const *param);
void double_network_close(struct double_network *network);

/* Sum of the losses; with running statistics where `inference` is set. Computes from layer `first`
 * on: what comes before it must be as it was. */
double double_network_forward(struct double_network *network, int first);

/* Gradients of scale * loss sum, after a whole forward pass. */
void double_network_backward(struct double_network *network, double scale);

#endif

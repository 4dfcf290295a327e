/* network_private.h: a network while it runs; shared by network.c and network_layers.c. */
#ifndef BENCH_NETWORK_PRIVATE_H
#define BENCH_NETWORK_PRIVATE_H

#include "network_plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What some layers keep besides their output. */
struct network_extra {
    uint8_t *pool_index; /* maxima's positions */
    float *running;      /* batch normalisation: [2, channels], means and variances */
    float *saved;        /* the same of the last batch in training */
    float *fixed;        /* shortcut: the weights, zeros and ones, of the convolution that it is;
                            adaptive pooling: [output pixels, input pixels], each one's share */
};

struct network {
    struct dpb_workload_base base;
    const struct dpb_layer_list *list;
    struct dpb_launcher *launcher;
    int64_t batch_max;
    float *param[DPB_LAYER_PARAMS_MAX], *grad[DPB_LAYER_PARAMS_MAX];
    struct network_plan plan;
    float *output[DPB_LAYERS_MAX]; /* [batch_max, out], after the ReLU; kept, or in a buffer */
    float *buffer[DPB_NETWORK_BUFFERS_MAX];
    struct network_extra extra[DPB_LAYERS_MAX];
    float *prob; /* [batch_max, classes] */
    float *loss; /* [batch_max] */
    float *zeros;
    void *memory;  /* where all of these lie */
    int64_t bytes; /* of it */
};

/* One layer's operators. Backward reports its parameters. */
dpb_status dpb_network_layer_forward(struct network *net, int i, const struct dpb_batch *batch,
                                     bool training);
dpb_status dpb_network_layer_backward(struct network *net, int i, const struct dpb_batch *batch,
                                      dpb_grad_ready ready, void *ctx);

#ifdef __cplusplus
}
#endif
#endif

/* network_private.h: a network while it runs; shared by the files network*.c. */
#ifndef BENCH_NETWORK_PRIVATE_H
#define BENCH_NETWORK_PRIVATE_H

#include "handover.h"
#include "network_plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What some layers keep besides their output. */
struct network_extra {
    uint8_t *pool_index; /* maxima's positions */
    uint8_t *mask;       /* batch normalisation with ReLU: [batch_max, out], the device's */
    float *running;      /* batch normalisation: [2, channels], means and variances */
    float *saved;        /* the same of the last batch in training */
    /* shortcut: the weights, zeros and ones, of the convolution that it is; adaptive pooling:
     * [output pixels, input pixels], each one's share */
    float *fixed_fp32;
    void *fixed; /* the same in the precision; what operators read */
};

struct network {
    struct dpb_workload_base base;
    const struct dpb_layer_list *list;
    struct dpb_launcher *launcher;
    const struct dpb_param_watch *watch;
    int64_t batch_max;
    float *param[DPB_LAYER_PARAMS_MAX], *grad[DPB_LAYER_PARAMS_MAX];
    /* Values and their gradients are of this type, and weights while they are multiplied with;
     * parameters, their gradients, statistics and the loss are fp32. */
    enum dpb_dtype precision;
    struct network_plan plan;
    void *output[DPB_LAYERS_MAX]; /* [batch_max, out], after the ReLU; kept, or in a buffer */
    void *buffer[DPB_NETWORK_BUFFERS_MAX];
    /* in mixed precision, rounded in every forward pass: */
    void *images;                       /* the batch */
    void *weight[DPB_LAYER_PARAMS_MAX]; /* NULL where the parameter itself is read */
    float *logits;  /* [batch_max, classes]; the last output, widened in mixed precision */
    float *dlogits; /* the same of its gradient, narrowed */
    struct network_extra extra[DPB_LAYERS_MAX];
    float *prob; /* [batch_max, classes] */
    float *loss; /* [batch_max] */
    struct dpb_results *results;
    float *zeros;
    void *memory;  /* where all of these lie */
    int64_t bytes; /* of it */
    /* batch normalisation over the samples of all ranks; NULL: of this rank, or there is none */
    const struct dpb_rank_services *sync;
    float *parts;          /* shared: what each rank has of a layer, one after the other */
    float *sums;           /* of dy xhat and dy over all ranks, for a layer's channels */
    float *host_parts;     /* what the host computes with: parts, then the running statistics of
                              a layer; on an accelerator in memory of its own, else the same */
    double global_samples; /* of the last forward in training */
    bool sync_batch_statistics;
};

/* Values [samples, H, W, C]. */
struct dpb_tensor dpb_network_images(const struct network *net, const void *data, int64_t samples,
                                     const int64_t dim[3]);

/* What statistics of all ranks are gathered in, in the communicator's memory. */
int64_t dpb_network_exchange_bytes(const struct dpb_layer_list *list, int ranks);

/* DPB_ERR_UNSUPPORTED, logged, where the device lacks an operator that the network needs. */
dpb_status dpb_network_check_operators(const struct network *net);

/* Allocate and fill what open() makes; dpb_network_close() frees. DPB_ERR_NO_MEMORY, logged. */
dpb_status dpb_network_memory_open(struct network *net);
dpb_status dpb_network_reset_statistics(struct network *net);

/* All layers, from the batch to net->logits, and back from net->dlogits. Backward reports
 * parameters. */
dpb_status dpb_network_layers_forward(struct network *net, const struct dpb_batch *batch,
                                      bool training);
dpb_status dpb_network_layers_backward(struct network *net, const struct dpb_batch *batch,
                                       dpb_grad_ready ready, void *ctx);

/* Has the operator of this batch normalisation a ReLU at its end, its own or that of the sum that
 * it does as well? */
bool dpb_network_batchnorm_has_relu(const struct dpb_layer_list *list, int i);
/* Batch normalisation (network_batchnorm.c), with the sum after it where dpb_network_sum_of() says
 * so: then `dy` becomes the gradient of what is added. With one value per channel, training forward
 * fails with DPB_ERR_USAGE, logged. */
dpb_status dpb_network_batchnorm_forward(struct network *net, int i, int64_t samples, const void *x,
                                         bool training);
dpb_status dpb_network_batchnorm_backward(struct network *net, int i, int64_t samples,
                                          const void *x, const void *dy, void *dx,
                                          dpb_grad_ready ready, void *ctx);
/* Floats of net->parts and net->sums. */
int64_t dpb_network_batchnorm_parts(const struct dpb_layer_list *list, int ranks);
int64_t dpb_network_batchnorm_sums(const struct dpb_layer_list *list);
/* With net->sync, what a rank without samples does: it takes part in the exchanges. */
dpb_status dpb_network_batchnorm_forward_of_none(struct network *net, int i);
dpb_status dpb_network_batchnorm_backward_of_none(struct network *net, int i);

#ifdef __cplusplus
}
#endif
#endif

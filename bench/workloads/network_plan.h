/* network_plan.h: which memory the values of a network lie in.
 *
 * What the backward pass reads is kept: each such output has memory of its own. Everything else,
 * outputs that only the next layers read, and gradients, lives for a few layers, in a few buffers
 * that are used over and over. A buffer may hold several values at once when they are equal: the
 * gradients of both inputs of a sum are the gradient of the sum. A batch normalisation that does
 * the sum after it writes the sum's output, and has none of its own. */
#ifndef BENCH_NETWORK_PLAN_H
#define BENCH_NETWORK_PLAN_H

#include "layer_list.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DPB_NETWORK_BUFFERS_MAX 32

/* Buffers of one input's gradient, -1 where there is none: the images need no gradient. */
struct network_flow {
    int part;   /* this layer's share */
    int before; /* the shares of later layers, which read the same input; -1: none do */
    int sum;    /* of both; `part` when nothing came before, may be either of them */
};

struct network_layer_plan {
    int output; /* buffer of the output; -1: kept */
    int grad;   /* buffer of the gradient with respect to the output */
    int masked; /* where a ReLU backward of its own leaves it; may be the same */
    struct network_flow flow[DPB_LAYER_INPUTS_MAX];
};

struct network_plan {
    struct network_layer_plan layer[DPB_LAYERS_MAX];
    int buffer_count;
    int64_t buffer_elements[DPB_NETWORK_BUFFERS_MAX]; /* per sample */
};

/* The sum whose work layer `i`, a batch normalisation, does as well, since nobody else reads what
 * it gives and nobody after the sum reads what it adds: the end of a residual block. -1: none. */
int dpb_network_sum_of(const struct dpb_layer_list *list, int i);
/* The input of such a sum, number `sum`, that is not the batch normalisation before it. */
int dpb_network_residual_of(const struct dpb_layer_list *list, int sum);
/* Is the layer such a sum, with nothing left to do but to pass gradients on? */
bool dpb_network_is_done_before(const struct dpb_layer_list *list, int i);

/* Is the backward pass of the layer's ReLU an operator of its own, which reads the output? That of
 * batch normalisation is part of its operator, which keeps a mask. */
bool dpb_network_relu_is_apart(const struct dpb_layer_list *list, int i);

/* DPB_ERR_INTERNAL, logged, when the list needs more buffers than there can be. */
dpb_status dpb_network_plan_make(const struct dpb_layer_list *list, struct network_plan *plan);

#ifdef __cplusplus
}
#endif
#endif

/* layer_list.h: a network as a list of layers, from which the tables of dpb_model follow by rule.
 *
 * A workload declares its layers in forward order, once per program (pthread_once), into a static
 * list: parameters get PyTorch's names, shapes and registration order ("conv1.weight", OIHW, then
 * "conv1.bias"), layers their MACs and output sizes, operators the names that traces show. */
#ifndef BENCH_LAYER_LIST_H
#define BENCH_LAYER_LIST_H

#include <stdbool.h>
#include <stdint.h>

#include "dpb_workload.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DPB_LAYERS_MAX          32
#define DPB_LAYER_PARAMS_MAX    64
#define DPB_LAYER_NAME_BYTES    32
#define DPB_LAYER_OP_NAME_BYTES 48 /* the name, a point, and what is done */

enum dpb_layer_kind {
    DPB_LAYER_CONV2D,
    DPB_LAYER_MAXPOOL2D,
    DPB_LAYER_LINEAR
};

/* What ranges of this layer's operators are called: "conv2.fwd". */
struct dpb_layer_op_names {
    char fwd[DPB_LAYER_OP_NAME_BYTES];
    char bwd_relu[DPB_LAYER_OP_NAME_BYTES];
    char bwd_bias[DPB_LAYER_OP_NAME_BYTES];
    char bwd_weights[DPB_LAYER_OP_NAME_BYTES];
    char bwd_data[DPB_LAYER_OP_NAME_BYTES];
};

struct dpb_layer {
    enum dpb_layer_kind kind;
    char name[DPB_LAYER_NAME_BYTES];
    int64_t in[3], out[3];   /* H, W, C; a linear layer sees 1, 1, features */
    int kernel, stride, pad; /* 0 for a linear layer */
    bool relu;               /* follows the layer, fused into its forward operator */
    int weight, bias;        /* indices in the parameters; -1: none */
    struct dpb_layer_op_names op;
};

struct dpb_layer_list {
    struct dpb_model model; /* points into the arrays below: the list must stay where it is */
    int layer_count, param_count;
    int64_t shape[3]; /* output of the last layer so far; the input of the next */
    bool damaged;     /* more layers than fit, or shapes that do not: finish says so */
    struct dpb_layer layer[DPB_LAYERS_MAX];
    struct dpb_layer_info info[DPB_LAYERS_MAX];
    struct dpb_param_info param[DPB_LAYER_PARAMS_MAX];
    char param_name[DPB_LAYER_PARAMS_MAX][DPB_LAYER_OP_NAME_BYTES];
    int ready_order[DPB_LAYER_PARAMS_MAX];
};

/* Start a list for input images [height, width, channels]. */
void dpb_layer_list_begin(struct dpb_layer_list *list, int64_t height, int64_t width,
                          int64_t channels);

/* Append a layer to the chain. Convolutions and pools are square with equal padding on all sides;
 * a linear layer flattens what comes before it in the order of memory, which is (H, W, C). */
void dpb_layer_list_conv2d(struct dpb_layer_list *list, const char *name, int64_t out_channels,
                           int kernel, int stride, int pad, bool bias, bool relu);
void dpb_layer_list_maxpool2d(struct dpb_layer_list *list, const char *name, int kernel,
                              int stride);
void dpb_layer_list_linear(struct dpb_layer_list *list, const char *name, int64_t out_features,
                           bool relu);

/* Fill list->model: the classes are the features of the last layer; gradients become ready layer by
 * layer from the last to the first, a linear layer's bias before its weight and a convolution's
 * weight before its bias, as PyTorch's autograd does (bench/tests/data/README.md). */
void dpb_layer_list_finish(struct dpb_layer_list *list);

/* DPB_ERR_INTERNAL, logged, when the declarations did not fit: a mistake in the workload. */
dpb_status dpb_layer_list_check(const struct dpb_layer_list *list, const char *workload);

/* Inputs of one output element of the parameter's layer: I * KH * KW, or the features. */
int64_t dpb_layer_list_fan_in(const struct dpb_layer_list *list, int param);

/* PyTorch's default initialisation of convolutions and linear layers: weights and biases uniform
 * in +-1/sqrt(fan_in); every parameter from its own random stream. */
void dpb_layer_list_init_params(const struct dpb_layer_list *list, uint64_t seed,
                                float *const *param);

#ifdef __cplusplus
}
#endif
#endif

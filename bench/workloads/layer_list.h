/* layer_list.h: a network as a list of layers, from which the tables of dpb_model follow by rule.
 *
 * A workload declares its layers in forward order, once per program: parameters get PyTorch's
 * names, shapes and registration order ("conv1.weight", OIHW, then "conv1.bias"), layers their MACs
 * and output sizes, operators the names that traces show. A layer reads the one declared before it,
 * unless dpb_layer_list_from() says otherwise: so lists are chains with branches and sums. */
#ifndef BENCH_LAYER_LIST_H
#define BENCH_LAYER_LIST_H

#include <stdbool.h>
#include <stdint.h>

#include "dpb_workload.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DPB_LAYERS_MAX          704 /* ResNet-152 has 362 */
#define DPB_LAYER_PARAMS_MAX    512 /* and 467 of these */
#define DPB_LAYER_INPUTS_MAX    2
#define DPB_LAYER_NAME_BYTES    32
#define DPB_LAYER_OP_NAME_BYTES 48 /* the name, a point, and what is done */

#define DPB_LAYER_IMAGES (-1) /* as an input: the batch */

enum dpb_layer_kind {
    DPB_LAYER_CONV2D,
    DPB_LAYER_BATCHNORM2D,
    DPB_LAYER_MAXPOOL2D,
    DPB_LAYER_AVGPOOL2D,
    DPB_LAYER_ADAPTIVEPOOL2D, /* averages of windows that are laid out to give a certain size */
    DPB_LAYER_LINEAR,
    DPB_LAYER_ADD,     /* the sum of two layers */
    DPB_LAYER_SHORTCUT /* every stride-th pixel, new channels of zeros around the old ones */
};

/* What ranges of this layer's operators are called: "conv2.fwd". */
struct dpb_layer_op_names {
    char cast[DPB_LAYER_OP_NAME_BYTES]; /* of weights, in mixed precision */
    char fwd[DPB_LAYER_OP_NAME_BYTES];
    char bwd_relu[DPB_LAYER_OP_NAME_BYTES];
    char bwd_bias[DPB_LAYER_OP_NAME_BYTES];
    char bwd_weights[DPB_LAYER_OP_NAME_BYTES];
    char bwd_data[DPB_LAYER_OP_NAME_BYTES];
    char bwd_sum[DPB_LAYER_OP_NAME_BYTES]; /* of gradients, where the layer's input branches */
    /* batch normalisation over all ranks */
    char fwd_stats[DPB_LAYER_OP_NAME_BYTES];
    char fwd_gather[DPB_LAYER_OP_NAME_BYTES];
    char bwd_sums[DPB_LAYER_OP_NAME_BYTES];
    char bwd_gather[DPB_LAYER_OP_NAME_BYTES];
};

struct dpb_layer {
    enum dpb_layer_kind kind;
    char name[DPB_LAYER_NAME_BYTES];
    int input_count, input[DPB_LAYER_INPUTS_MAX]; /* earlier layers, or DPB_LAYER_IMAGES */
    int64_t in[3], out[3];                        /* H, W, C; a linear layer: 1, 1, features */
    int kernel, stride, pad;                      /* 0 where there is no window */
    bool relu;                                    /* of the output */
    int weight, bias;                             /* indices in the parameters; -1: none */
    struct dpb_layer_op_names op;
    /* batch normalisation: what its running statistics are called */
    char running_mean[DPB_LAYER_OP_NAME_BYTES], running_var[DPB_LAYER_OP_NAME_BYTES];
};

/* What parameters start as. */
enum dpb_layer_init {
    /* PyTorch's default: weights and biases uniform in +-1/sqrt(fan_in). */
    DPB_INIT_DEFAULT,
    /* torchvision's ResNet: convolutions normal with variance 2/fan_out (He et al., "Delving deep
     * into rectifiers", 2015), linear layers as PyTorch's default. */
    DPB_INIT_RESNET,
    /* torchvision's VGG: convolutions as ResNet's with biases 0, linear layers normal with standard
     * deviation 0.01 and biases 0. */
    DPB_INIT_VGG
}; /* In all of them batch normalisation starts with weight 1 and bias 0. */

struct dpb_layer_list {
    struct dpb_model model; /* points into the arrays below: the list must stay where it is */
    enum dpb_layer_init init;
    int layer_count, param_count;
    int at;           /* what the next layer reads */
    int64_t shape[3]; /* of that */
    bool damaged;     /* more layers than fit, or shapes that do not: finish says so */
    struct dpb_layer layer[DPB_LAYERS_MAX];
    struct dpb_layer_info info[DPB_LAYERS_MAX];
    struct dpb_param_info param[DPB_LAYER_PARAMS_MAX];
    char param_name[DPB_LAYER_PARAMS_MAX][DPB_LAYER_OP_NAME_BYTES];
    int ready_order[DPB_LAYER_PARAMS_MAX];
    int64_t buffer_numel[2 * DPB_LAYERS_MAX]; /* means and variances */
};

/* Start a list for input images [height, width, channels]; DPB_INIT_DEFAULT. */
void dpb_layer_list_begin(struct dpb_layer_list *list, int64_t height, int64_t width,
                          int64_t channels);

/* The layer declared last, or DPB_LAYER_IMAGES; and let the next layer read layer `index`. */
int dpb_layer_list_last(const struct dpb_layer_list *list);
void dpb_layer_list_from(struct dpb_layer_list *list, int index);

/* Append a layer. Convolutions and pools are square with equal padding on all sides; a linear layer
 * flattens what comes before it in the order of memory, which is (H, W, C). */
void dpb_layer_list_conv2d(struct dpb_layer_list *list, const char *name, int64_t out_channels,
                           int kernel, int stride, int pad, bool bias, bool relu);
void dpb_layer_list_batchnorm2d(struct dpb_layer_list *list, const char *name, bool relu);
void dpb_layer_list_maxpool2d(struct dpb_layer_list *list, const char *name, int kernel, int stride,
                              int pad);
/* The average of each channel of a square image. */
void dpb_layer_list_avgpool2d(struct dpb_layer_list *list, const char *name);
void dpb_layer_list_linear(struct dpb_layer_list *list, const char *name, int64_t out_features,
                           bool relu);
/* PyTorch's AdaptiveAvgPool2d: a size x size image, whatever the input's size; nothing at all where
 * the input has that size. */
void dpb_layer_list_adaptivepool2d(struct dpb_layer_list *list, const char *name, int64_t size);
/* Add layer `other`'s output. */
void dpb_layer_list_add(struct dpb_layer_list *list, const char *name, int other, bool relu);
/* He et al., "Deep residual learning", 2015, option A: no parameters. The new channels come half
 * before and half after the old ones. */
void dpb_layer_list_shortcut(struct dpb_layer_list *list, const char *name, int64_t out_channels,
                             int stride);

/* Fill list->model: the classes are the features of the last layer; gradients become ready layer by
 * layer from the last to the first, a linear layer's bias before its weight and any other weight
 * before its bias, as PyTorch's autograd does (bench/tests/data/README.md). */
void dpb_layer_list_finish(struct dpb_layer_list *list);

/* DPB_ERR_INTERNAL, logged, when the declarations did not fit: a mistake in the workload. */
dpb_status dpb_layer_list_check(const struct dpb_layer_list *list, const char *workload);

/* Inputs of one output element of the parameter's layer: I * KH * KW, or the features. */
int64_t dpb_layer_list_fan_in(const struct dpb_layer_list *list, int param);

/* Initial values by list->init, every parameter from its own random stream (layer_init.c). */
void dpb_layer_list_init_params(const struct dpb_layer_list *list, uint64_t seed,
                                float *const *param);

#ifdef __cplusplus
}
#endif
#endif

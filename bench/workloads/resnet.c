/* The residual networks: ResNet-18, -50, -101, -152 for ImageNet, as torchvision builds them
 * (version 1.5: a bottleneck's stride is in its 3x3 convolution), and ResNet-20 for CIFAR with
 * shortcuts without parameters (He et al., "Deep residual learning for image recognition", 2015,
 * sections 4.1 and 4.2, option A). */
#include "dpb_workloads.h"

#include <stdio.h>

#include "image_networks.h"

struct stage {
    const char *name; /* "layer1" */
    int blocks;
    int64_t width; /* channels of its 3x3 convolutions */
    int stride;    /* of its first block */
};

/* "layer1.0" and "conv1" make "layer1.0.conv1"; what does not fit is found when it is declared. */
struct name {
    char text[2 * DPB_LAYER_NAME_BYTES];
};

static struct name join(const char *block, const char *part)
{
    struct name name;

    snprintf(name.text, sizeof(name.text), "%.31s.%.31s", block, part);
    return name;
}

static struct name block_name(const struct stage *stage, int block)
{
    struct name name;

    snprintf(name.text, sizeof(name.text), "%s.%d", stage->name, block);
    return name;
}

/* A convolution and its batch normalisation. */
static void conv_bn(struct dpb_layer_list *list, struct name conv, struct name bn, int64_t channels,
                    int kernel, int stride, bool relu)
{
    dpb_layer_list_conv2d(list, conv.text, channels, kernel, stride, kernel / 2, false, false);
    dpb_layer_list_batchnorm2d(list, bn.text, relu);
}

static void basic_block(struct dpb_layer_list *list, const char *name, int64_t width, int stride)
{
    conv_bn(list, join(name, "conv1"), join(name, "bn1"), width, 3, stride, true);
    conv_bn(list, join(name, "conv2"), join(name, "bn2"), width, 3, 1, false);
}

static void bottleneck_block(struct dpb_layer_list *list, const char *name, int64_t width,
                             int stride)
{
    conv_bn(list, join(name, "conv1"), join(name, "bn1"), width, 1, 1, true);
    conv_bn(list, join(name, "conv2"), join(name, "bn2"), width, 3, stride, true);
    conv_bn(list, join(name, "conv3"), join(name, "bn3"), 4 * width, 1, 1, false);
}

/* What a block's sum adds to its layers, where that is not the block's input itself. */
typedef void (*make_shortcut)(struct dpb_layer_list *list, const char *name, int64_t channels,
                              int stride);

static void projection(struct dpb_layer_list *list, const char *name, int64_t channels, int stride)
{
    conv_bn(list, join(name, "downsample.0"), join(name, "downsample.1"), channels, 1, stride,
            false);
}

static void option_a(struct dpb_layer_list *list, const char *name, int64_t channels, int stride)
{
    dpb_layer_list_shortcut(list, join(name, "shortcut").text, channels, stride);
}

static void add_stage(struct dpb_layer_list *list, const struct stage *stage, bool bottleneck,
                      make_shortcut shortcut)
{
    for (int b = 0; b < stage->blocks; b++) {
        struct name name = block_name(stage, b);
        int stride = b == 0 ? stage->stride : 1;
        int input = dpb_layer_list_last(list), other;
        int64_t channels = list->shape[2];

        if (bottleneck)
            bottleneck_block(list, name.text, stage->width, stride);
        else
            basic_block(list, name.text, stage->width, stride);
        other = input;
        if (stride != 1 || list->shape[2] != channels) {
            other = dpb_layer_list_last(list);
            channels = list->shape[2];
            dpb_layer_list_from(list, input);
            shortcut(list, name.text, channels, stride);
        }
        dpb_layer_list_add(list, join(name.text, "add").text, other, true);
    }
}

static void build_imagenet(struct dpb_layer_list *list, int64_t image_size, const int blocks[4],
                           bool bottleneck)
{
    const struct stage stages[] = {{"layer1", blocks[0], 64, 1},
                                   {"layer2", blocks[1], 128, 2},
                                   {"layer3", blocks[2], 256, 2},
                                   {"layer4", blocks[3], 512, 2}};

    dpb_layer_list_begin(list, image_size, image_size, 3);
    list->init = DPB_INIT_RESNET;
    dpb_layer_list_conv2d(list, "conv1", 64, 7, 2, 3, false, false);
    dpb_layer_list_batchnorm2d(list, "bn1", true);
    dpb_layer_list_maxpool2d(list, "maxpool", 3, 2, 1);
    for (int s = 0; s < 4; s++)
        add_stage(list, &stages[s], bottleneck, projection);
    dpb_layer_list_avgpool2d(list, "avgpool");
    dpb_layer_list_linear(list, "fc", 1000, false);
    dpb_layer_list_finish(list);
}

static void build_resnet18(struct dpb_layer_list *list, int64_t image_size)
{
    build_imagenet(list, image_size, (const int[]){2, 2, 2, 2}, false);
}

static void build_resnet50(struct dpb_layer_list *list, int64_t image_size)
{
    build_imagenet(list, image_size, (const int[]){3, 4, 6, 3}, true);
}

static void build_resnet101(struct dpb_layer_list *list, int64_t image_size)
{
    build_imagenet(list, image_size, (const int[]){3, 4, 23, 3}, true);
}

static void build_resnet152(struct dpb_layer_list *list, int64_t image_size)
{
    build_imagenet(list, image_size, (const int[]){3, 8, 36, 3}, true);
}

static void build_cifar_resnet20(struct dpb_layer_list *list, int64_t image_size)
{
    static const struct stage stages[] = {
            {"layer1", 3, 16, 1}, {"layer2", 3, 32, 2}, {"layer3", 3, 64, 2}};

    dpb_layer_list_begin(list, image_size, image_size, 3);
    list->init = DPB_INIT_RESNET;
    dpb_layer_list_conv2d(list, "conv1", 16, 3, 1, 1, false, false);
    dpb_layer_list_batchnorm2d(list, "bn1", true);
    for (int s = 0; s < 3; s++)
        add_stage(list, &stages[s], false, option_a);
    dpb_layer_list_avgpool2d(list, "avgpool");
    dpb_layer_list_linear(list, "fc", 10, false);
    dpb_layer_list_finish(list);
}

/* The published recipes: 0.1 for batches of 256 (ImageNet), in proportion for a rank's 32, and for
 * batches of 128 (CIFAR). */
#define IMAGENET_COMMON                                                                            \
    .flags = DPB_WORKLOAD_BATCH_STATISTICS | DPB_WORKLOAD_MIXED,                                   \
    .training = {.lr = 0.0125, .momentum = 0.9, .weight_decay = 1e-4, .batch_per_rank = 32}
#define CIFAR_COMMON                                                                               \
    .flags = DPB_WORKLOAD_BATCH_STATISTICS | DPB_WORKLOAD_MIXED,                                   \
    .training = {.lr = 0.1, .momentum = 0.9, .weight_decay = 1e-4, .batch_per_rank = 128}

DPB_IMAGE_NETWORK(resnet18, "resnet18", dpb_imagenet_rows, DPB_IMAGENET_SIZE,
                  .summary = "ResNet-18 for 1000 classes, 11.7 M parameters", IMAGENET_COMMON);
DPB_IMAGE_NETWORK(resnet50, "resnet50", dpb_imagenet_rows, DPB_IMAGENET_SIZE,
                  .summary = "ResNet-50 v1.5 for 1000 classes, 25.6 M parameters", IMAGENET_COMMON);
DPB_IMAGE_NETWORK(resnet101, "resnet101", dpb_imagenet_rows, DPB_IMAGENET_SIZE,
                  .summary = "ResNet-101 v1.5 for 1000 classes, 44.5 M parameters",
                  IMAGENET_COMMON);
DPB_IMAGE_NETWORK(resnet152, "resnet152", dpb_imagenet_rows, DPB_IMAGENET_SIZE,
                  .summary = "ResNet-152 v1.5 for 1000 classes, 60.2 M parameters",
                  IMAGENET_COMMON);
DPB_IMAGE_NETWORK(cifar_resnet20, "cifar-resnet20", dpb_cifar_rows, DPB_CIFAR_SIZE,
                  .summary = "ResNet-20 on 32x32 images for 10 classes, 0.27 M parameters",
                  CIFAR_COMMON);

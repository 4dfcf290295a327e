/* VGG-16 as torchvision builds it (Simonyan, Zisserman, "Very deep convolutional networks", 2014,
 * configuration D), without its two dropouts, which would make runs of different rank counts
 * incomparable. */
#include "dpb_workloads.h"

#include <stdio.h>

#include "image_networks.h"

#define POOL 0

static void build_vgg16(struct dpb_layer_list *list, int64_t image_size)
{
    static const int channels[] = {64,   64,  POOL, 128, 128,  POOL, 256, 256, 256,
                                   POOL, 512, 512,  512, POOL, 512,  512, 512, POOL};
    int index = 0; /* torchvision counts convolutions, ReLUs and pools */

    dpb_layer_list_begin(list, image_size, image_size, 3);
    list->init = DPB_INIT_VGG;
    for (size_t i = 0; i < sizeof(channels) / sizeof(channels[0]); i++) {
        char name[DPB_LAYER_NAME_BYTES];

        snprintf(name, sizeof(name), "features.%d", index);
        if (channels[i] == POOL)
            dpb_layer_list_maxpool2d(list, name, 2, 2, 0);
        else
            dpb_layer_list_conv2d(list, name, channels[i], 3, 1, 1, true, true);
        index += channels[i] == POOL ? 1 : 2;
    }
    dpb_layer_list_adaptivepool2d(list, "avgpool", 7);
    dpb_layer_list_linear(list, "classifier.0", 4096, true);
    dpb_layer_list_linear(list, "classifier.3", 4096, true);
    dpb_layer_list_linear(list, "classifier.6", 1000, false);
    dpb_layer_list_finish(list);
}

/* torchvision's recipe, 0.01 for batches of 256, in proportion for batches of 32. */
DPB_IMAGE_NETWORK(
        vgg16, "vgg16", dpb_imagenet_rows, DPB_IMAGENET_SIZE,
        .summary = "VGG-16 without dropout for 1000 classes, 138.4 M parameters",
        .flags = DPB_WORKLOAD_MIXED,
        .training = {.lr = 0.00125, .momentum = 0.9, .weight_decay = 1e-4, .batch_per_rank = 32});

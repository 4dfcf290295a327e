/* What parameters start as. */
#include "layer_list.h"

#include <math.h>

#include "dpb_rng.h"

/* Streams of one seed are told apart by their upper half ("para"); the lower is the parameter. */
#define PARAM_STREAM ((uint64_t)0x70617261 << 32)

#define VGG_LINEAR_STD 0.01

enum shape {
    CONSTANT,
    UNIFORM, /* in +-scale */
    NORMAL   /* of standard deviation scale */
};

struct start {
    enum shape shape;
    double scale; /* of CONSTANT: the value */
};

static struct start start_of(const struct dpb_layer_list *list, int p)
{
    const struct dpb_layer *layer = &list->layer[list->param[p].layer];
    int64_t window = (int64_t)layer->kernel * layer->kernel;
    bool weight = p == layer->weight;

    if (layer->kind == DPB_LAYER_BATCHNORM2D)
        return (struct start){CONSTANT, weight ? 1.0 : 0.0};
    if (list->init == DPB_INIT_DEFAULT ||
        (list->init == DPB_INIT_RESNET && layer->kind == DPB_LAYER_LINEAR))
        return (struct start){UNIFORM, 1.0 / sqrt((double)dpb_layer_list_fan_in(list, p))};
    if (!weight)
        return (struct start){CONSTANT, 0.0};
    if (layer->kind == DPB_LAYER_LINEAR)
        return (struct start){NORMAL, VGG_LINEAR_STD};
    return (struct start){NORMAL, sqrt(2.0 / (double)(layer->out[2] * window))};
}

int64_t dpb_layer_list_fan_in(const struct dpb_layer_list *list, int param)
{
    const struct dpb_layer *layer = &list->layer[list->param[param].layer];
    int64_t window = layer->kind == DPB_LAYER_CONV2D ? (int64_t)layer->kernel * layer->kernel : 1;

    return layer->in[2] * window;
}

void dpb_layer_list_init_params(const struct dpb_layer_list *list, uint64_t seed,
                                float *const *param)
{
    for (int p = 0; p < list->param_count; p++) {
        struct start start = start_of(list, p);
        struct dpb_rng rng;

        dpb_rng_init(&rng, seed, PARAM_STREAM | (uint64_t)p);
        for (int64_t i = 0; param[p] && i < list->param[p].numel; i++) {
            double value = start.scale;

            if (start.shape == UNIFORM)
                value *= 2.0 * dpb_rng_uniform(&rng) - 1.0;
            else if (start.shape == NORMAL)
                value *= dpb_rng_normal(&rng);
            param[p][i] = (float)value;
        }
    }
}

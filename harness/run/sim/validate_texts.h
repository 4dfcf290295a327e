/* validate_texts.h (private): files of results/published that are a part of the program. */
#ifndef VALIDATE_TEXTS_H
#define VALIDATE_TEXTS_H

#include <stddef.h>

extern const char validate_scaling_text[], validate_models_text[], validate_constants_text[];
extern const size_t validate_scaling_text_bytes, validate_models_text_bytes,
        validate_constants_text_bytes;
extern const char validate_layers_inception_v3[], validate_layers_alexnet[],
        validate_layers_vit_b_16[];
extern const size_t validate_layers_inception_v3_bytes, validate_layers_alexnet_bytes,
        validate_layers_vit_b_16_bytes;

static const struct validate_layers {
    const char *name, *text;
    const size_t *bytes;
} validate_layers[] = {
        {"inception_v3", validate_layers_inception_v3, &validate_layers_inception_v3_bytes},
        {"alexnet", validate_layers_alexnet, &validate_layers_alexnet_bytes},
        {"vit_b_16", validate_layers_vit_b_16, &validate_layers_vit_b_16_bytes},
};

#endif

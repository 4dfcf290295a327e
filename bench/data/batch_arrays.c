#include <stdlib.h>

#include "dpb_dataset.h"
#include "dpb_log.h"
#include "source.h"

#define PAGE_BYTES 4096 /* or a part of a page */

/* Zeroed memory whose pages are there, so that no step pays for page faults. */
static void *touched(int64_t samples, int64_t each, size_t bytes)
{
    size_t size = (size_t)samples * (size_t)each * bytes;
    char *made = calloc(1, size > 0 ? size : 1);

    for (size_t i = 0; made && i < size; i += PAGE_BYTES)
        *(volatile char *)(made + i) = 0;
    return made;
}

static bool make(const struct dpb_model *model, int64_t n, struct dpb_batch_arrays *a)
{
    a->label = touched(n, 1, sizeof(*a->label));
    switch (model->input) {
    case DPB_INPUT_IMAGES:
        a->x = touched(n, dpb_image_elements(model), sizeof(*a->x));
        return a->label && a->x;
    case DPB_INPUT_TOKENS:
        a->tokens = touched(n, model->sequence, sizeof(*a->tokens));
        a->predict_position = touched(n, model->predicted, sizeof(*a->predict_position));
        a->predict_token = touched(n, model->predicted, sizeof(*a->predict_token));
        if (!model->next_token)
            a->segments = touched(n, model->sequence, sizeof(*a->segments));
        return a->label && a->tokens && a->predict_position && a->predict_token &&
               (a->segments || model->next_token);
    case DPB_INPUT_INTERACTIONS:
        a->x = touched(n, model->features, sizeof(*a->x));
        a->indices = touched(n, model->tables, sizeof(*a->indices));
        return a->label && a->x && a->indices;
    }
    return false;
}

dpb_status dpb_batch_arrays_open(const struct dpb_model *model, int64_t samples,
                                 struct dpb_batch_arrays *arrays)
{
    struct dpb_batch_arrays made = {0};

    if (!make(model, samples > 0 ? samples : 1, &made)) {
        dpb_error("out of memory for batches of %lld samples", (long long)samples);
        dpb_log_hint("use a smaller batch");
        dpb_batch_arrays_release(&made);
        return DPB_ERR_NO_MEMORY;
    }
    *arrays = made;
    return DPB_OK;
}

void dpb_batch_arrays_release(struct dpb_batch_arrays *arrays)
{
    free(arrays->label);
    free(arrays->x);
    free(arrays->tokens);
    free(arrays->segments);
    free(arrays->predict_position);
    free(arrays->predict_token);
    free(arrays->indices);
    *arrays = (struct dpb_batch_arrays){0};
}

struct dpb_batch dpb_batch_of_arrays(const struct dpb_batch_arrays *arrays, const int64_t *ids,
                                     int64_t samples)
{
    return (struct dpb_batch){.samples = samples,
                              .sample_ids = ids,
                              .label = arrays->label,
                              .x = arrays->x,
                              .tokens = arrays->tokens,
                              .segments = arrays->segments,
                              .predict_position = arrays->predict_position,
                              .predict_token = arrays->predict_token,
                              .indices = arrays->indices};
}

/* whole_params.h: a copy of all parameters, whatever the strategy has of them. */
#ifndef DPB_TESTS_WHOLE_PARAMS_H
#define DPB_TESTS_WHOLE_PARAMS_H

#include <string.h>

#include "dpb_step.h"

/* In registration order, without gaps, at most `room` elements: how many there are; 0 on failure.
 * Collective where a strategy has parameters in parts. */
static inline int64_t whole_params(dpb_step_engine *engine, float *to, int64_t room)
{
    const struct dpb_model *model = dpb_step_model(engine);
    int64_t elements = 0;

    if (dpb_step_params_begin(engine) < 0)
        return 0;
    for (int p = 0; p < model->param_count; p++) {
        const int64_t numel = model->params[p].numel;

        if (elements + numel <= room)
            memcpy(to + elements, dpb_step_param(engine, p), (size_t)numel * sizeof(float));
        elements += numel;
    }
    dpb_step_params_end(engine);
    return elements;
}

#endif

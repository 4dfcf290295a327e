/* Which gradients of a step are complete. */
#include "ready_set.h"

#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"

dpb_status ready_set_init(struct ready_set *set, const struct dpb_model *model)
{
    bool *is_ready = calloc((size_t)model->param_count + 1, sizeof(*is_ready));

    if (!is_ready) {
        dpb_error("gradients: out of memory for %d parameters", model->param_count);
        return DPB_ERR_NO_MEMORY;
    }
    free(set->is_ready);
    *set = (struct ready_set){.model = model, .is_ready = is_ready};
    return DPB_OK;
}

void ready_set_release(struct ready_set *set)
{
    free(set->is_ready);
    *set = (struct ready_set){0};
}

void ready_set_clear(struct ready_set *set)
{
    memset(set->is_ready, 0, (size_t)set->model->param_count * sizeof(*set->is_ready));
    set->ready_count = 0;
}

dpb_status ready_set_add(struct ready_set *set, int param)
{
    if (param < 0 || param >= set->model->param_count) {
        dpb_error("gradients: parameter number %d was reported ready, there are %d", param,
                  set->model->param_count);
        return DPB_ERR_INTERNAL;
    }
    if (set->is_ready[param]) {
        dpb_error("gradients: parameter \"%s\" was reported ready twice in one step",
                  set->model->params[param].name);
        return DPB_ERR_INTERNAL;
    }
    set->is_ready[param] = true;
    set->ready_count++;
    return DPB_OK;
}

dpb_status ready_set_check_complete(const struct ready_set *set)
{
    if (set->ready_count == set->model->param_count)
        return DPB_OK;
    for (int p = 0; p < set->model->param_count; p++) {
        if (!set->is_ready[p]) {
            dpb_error("gradients: backward ended without parameter \"%s\" (%d of %d are ready)",
                      set->model->params[p].name, set->ready_count, set->model->param_count);
            break;
        }
    }
    return DPB_ERR_INTERNAL;
}

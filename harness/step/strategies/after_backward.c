/* Communication strictly after backward. */
#include "after_backward.h"

#include <stdlib.h>

#include "dpb_log.h"

dpb_status after_backward_open(const struct dpb_strategy_ops *ops,
                               const struct dpb_strategy_config *config, dpb_strategy **strategy)
{
    struct after_backward *self = calloc(1, sizeof(*self));

    if (!self) {
        dpb_error("strategy \"%s\": out of memory", ops->name);
        return DPB_ERR_NO_MEMORY;
    }
    self->base.ops = ops;
    self->world_size = config->world_size;
    self->services = config->services;
    *strategy = (dpb_strategy *)self;
    return DPB_OK;
}

void after_backward_close(dpb_strategy *strategy)
{
    struct after_backward *self = (struct after_backward *)strategy;

    if (!self)
        return;
    ready_set_release(&self->ready);
    free(self);
}

dpb_status after_backward_set_plan(dpb_strategy *strategy, const struct dpb_model *model,
                                   const struct dpb_unit_plan *plan)
{
    struct after_backward *self = (struct after_backward *)strategy;

    DPB_TRY(ready_set_init(&self->ready, model));
    self->unit_count = plan->unit_count;
    return DPB_OK;
}

dpb_status after_backward_step_begin(dpb_strategy *strategy, int64_t step)
{
    (void)step;
    ready_set_clear(&((struct after_backward *)strategy)->ready);
    return DPB_OK;
}

dpb_status after_backward_grad_ready(dpb_strategy *strategy, int param)
{
    return ready_set_add(&((struct after_backward *)strategy)->ready, param);
}

dpb_status after_backward_backward_end(dpb_strategy *strategy)
{
    struct after_backward *self = (struct after_backward *)strategy;

    DPB_TRY(ready_set_check_complete(&self->ready));
    if (self->world_size == 1)
        return DPB_OK;
    for (int u = 0; u < self->unit_count; u++)
        DPB_TRY(self->services.launch(self->services.ctx, u, DPB_COLL_ALL_REDUCE));
    return DPB_OK;
}

dpb_status after_backward_before_optimizer(dpb_strategy *strategy)
{
    struct after_backward *self = (struct after_backward *)strategy;

    if (self->world_size == 1)
        return DPB_OK;
    for (int u = 0; u < self->unit_count; u++)
        DPB_TRY(self->services.wait(self->services.ctx, u));
    return DPB_OK;
}

/* Communication strictly after backward. */
#include "after_backward.h"

#include <stdlib.h>

#include "dpb_log.h"
#include "unit_coll.h"

void after_backward_init(struct after_backward *self, const struct dpb_strategy_ops *ops,
                         const struct dpb_strategy_config *config)
{
    self->base.ops = ops;
    self->world_size = config->world_size;
    self->services = config->services;
}

dpb_status after_backward_open(const struct dpb_strategy_ops *ops,
                               const struct dpb_strategy_config *config, dpb_strategy **strategy)
{
    struct after_backward *self = calloc(1, sizeof(*self));

    if (!self) {
        dpb_error("strategy \"%s\": out of memory", ops->name);
        return DPB_ERR_NO_MEMORY;
    }
    after_backward_init(self, ops, config);
    *strategy = (dpb_strategy *)self;
    return DPB_OK;
}

void after_backward_close(dpb_strategy *strategy)
{
    struct after_backward *self = (struct after_backward *)strategy;

    if (!self)
        return;
    ready_set_release(&self->ready);
    free(self->handle);
    free(self);
}

dpb_status after_backward_set_plan(dpb_strategy *strategy, const struct dpb_model *model,
                                   struct dpb_unit_plan *made, struct dpb_unit_plan *plan)
{
    struct after_backward *self = (struct after_backward *)strategy;
    int *handle = calloc((size_t)made->unit_count + 1, sizeof(*handle));
    const dpb_status st = handle ? ready_set_init(&self->ready, model) : DPB_ERR_NO_MEMORY;

    if (st < 0) {
        dpb_error("strategy \"%s\": no room for a plan of %d units", self->base.ops->name,
                  made->unit_count);
        free(handle);
        dpb_unit_plan_release(made);
        return st;
    }
    free(self->handle);
    self->handle = handle;
    *plan = *made;
    self->plan = plan;
    return DPB_OK;
}

int after_backward_messages(dpb_strategy *strategy, struct dpb_sync_message *messages)
{
    const struct after_backward *self = (const struct after_backward *)strategy;

    if (self->world_size == 1)
        return 0;
    for (int u = 0; messages && u < self->plan->unit_count; u++)
        messages[u] =
                unit_coll_message(self->plan, u, DPB_COLL_ALL_REDUCE, DPB_SYNC_AFTER_BACKWARD);
    return self->plan->unit_count;
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
    for (int u = 0; u < self->plan->unit_count; u++)
        DPB_TRY(unit_coll_start(&self->services, self->plan, u, DPB_COLL_ALL_REDUCE,
                                &self->handle[u]));
    return DPB_OK;
}

dpb_status after_backward_before_optimizer(dpb_strategy *strategy)
{
    struct after_backward *self = (struct after_backward *)strategy;

    if (self->world_size == 1)
        return DPB_OK;
    for (int u = 0; u < self->plan->unit_count; u++)
        DPB_TRY(self->services.wait(self->services.ctx, self->handle[u]));
    return DPB_OK;
}

/* after_backward.h: what `none`, `naive` and the warm-up of `local-sgd` share: launch every unit
 * when backward is over, in order, and wait for them in the same order before the optimizer. */
#ifndef DPB_AFTER_BACKWARD_H
#define DPB_AFTER_BACKWARD_H

#include "dpb_strategy.h"
#include "ready_set.h"

struct after_backward {
    struct dpb_strategy_base base;
    int world_size;
    struct dpb_sync_services services;
    struct ready_set ready;
    const struct dpb_unit_plan *plan; /* the engine's */
    int *handle;                      /* per unit */
};

dpb_status after_backward_open(const struct dpb_strategy_ops *ops,
                               const struct dpb_strategy_config *config, dpb_strategy **strategy);
/* The same in memory of the caller's, zeroed, of which `self` is the beginning. */
void after_backward_init(struct after_backward *self, const struct dpb_strategy_ops *ops,
                         const struct dpb_strategy_config *config);
void after_backward_close(dpb_strategy *strategy);

/* Take over a plan that was made for `model`, and put it in *plan; on failure it is released. */
dpb_status after_backward_set_plan(dpb_strategy *strategy, const struct dpb_model *model,
                                   struct dpb_unit_plan *made, struct dpb_unit_plan *plan);
int after_backward_messages(dpb_strategy *strategy, struct dpb_sync_message *messages);

/* Hooks. */
dpb_status after_backward_step_begin(dpb_strategy *strategy, int64_t step);
dpb_status after_backward_grad_ready(dpb_strategy *strategy, int param);
dpb_status after_backward_backward_end(dpb_strategy *strategy);
dpb_status after_backward_before_optimizer(dpb_strategy *strategy);

#endif

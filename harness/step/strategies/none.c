/* Strategy `none`: no buckets, no overlap. All gradients of one type form one flat buffer, which is
 * all-reduced after the backward pass: what one gets from flattening the gradients into one tensor
 * and calling torch.distributed.all_reduce() once (or MPI_Allreduce on one large buffer). The
 * network moves the fewest, largest messages, and every one of their microseconds is exposed: this
 * is the baseline that says what overlap gains, and the best case for a network without latency to
 * hide. The optimizer starts when the reduction has ended. */
#include "after_backward.h"
#include "dpb_strategies.h"

static dpb_status none_open(const struct dpb_strategy_config *config, dpb_strategy **strategy)
{
    return after_backward_open(&dpb_strategy_none_ops, config, strategy);
}

static dpb_status none_plan(dpb_strategy *strategy, const struct dpb_model *model,
                            const int *ready_order, struct dpb_unit_plan *plan)
{
    struct dpb_unit_plan fused;

    (void)ready_order; /* one unit: the order of its members changes nothing */
    DPB_TRY(dpb_unit_plan_fused(model->params, model->param_count, NULL, &fused));
    return after_backward_set_plan(strategy, model, &fused, plan);
}

const struct dpb_strategy_ops dpb_strategy_none_ops = {
        .version = DPB_STRATEGY_OPS_VERSION,
        .name = "none",
        .summary = "one all-reduce of all gradients after backward",
        .open = none_open,
        .close = after_backward_close,
        .plan = none_plan,
        .messages = after_backward_messages,
        .step_begin = after_backward_step_begin,
        .grad_ready = after_backward_grad_ready,
        .backward_end = after_backward_backward_end,
        .before_optimizer = after_backward_before_optimizer,
};

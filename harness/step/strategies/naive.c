/* Strategy `naive`: one all-reduce per gradient tensor, after the backward pass, in registration
 * order: the loop of PyTorch's distributed tutorial, `for param in model.parameters():
 * dist.all_reduce(param.grad)` followed by a division by the world size. Nothing overlaps and
 * every tensor, a bias of ten elements too, pays the full latency of a collective: the baseline
 * that says what buckets gain. The optimizer starts after the last reduction. */
#include "after_backward.h"
#include "dpb_strategies.h"

#include <stdlib.h>

#include "dpb_log.h"

static dpb_status naive_open(const struct dpb_strategy_config *config, dpb_strategy **strategy)
{
    return after_backward_open(&dpb_strategy_naive_ops, config, strategy);
}

static dpb_status naive_plan(dpb_strategy *strategy, const struct dpb_model *model,
                             const int *ready_order, struct dpb_unit_plan *plan)
{
    struct dpb_unit_plan per_param;
    dpb_status st;

    (void)ready_order; /* the loop over model.parameters() knows only registration order */
    int *registration = calloc((size_t)model->param_count + 1, sizeof(int));
    if (!registration) {
        dpb_error("strategy \"naive\": out of memory for %d parameters", model->param_count);
        return DPB_ERR_NO_MEMORY;
    }
    for (int p = 0; p < model->param_count; p++)
        registration[p] = p;
    st = dpb_unit_plan_per_param(model->params, model->param_count, registration, &per_param);
    free(registration);
    DPB_TRY(st);

    return after_backward_set_plan(strategy, model, &per_param, plan);
}

const struct dpb_strategy_ops dpb_strategy_naive_ops = {
        .version = DPB_STRATEGY_OPS_VERSION,
        .name = "naive",
        .summary = "one all-reduce per gradient tensor after backward",
        .open = naive_open,
        .close = after_backward_close,
        .plan = naive_plan,
        .messages = after_backward_messages,
        .step_begin = after_backward_step_begin,
        .grad_ready = after_backward_grad_ready,
        .backward_end = after_backward_backward_end,
        .before_optimizer = after_backward_before_optimizer,
};

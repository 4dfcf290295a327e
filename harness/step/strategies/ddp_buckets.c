#include "ddp_buckets.h"

#include <stdlib.h>

#include "dpb_log.h"

static dpb_status no_memory(const struct dpb_model *model)
{
    dpb_error("strategy \"ddp\": out of memory for buckets of %d parameters", model->param_count);
    return DPB_ERR_NO_MEMORY;
}

/* `reverse` gets the units of `plan`, the last one first, each with its members as they are. */
static dpb_status reverse_units(const struct dpb_model *model, const struct dpb_unit_plan *plan,
                                struct dpb_unit_plan *reverse)
{
    struct dpb_bucket_assignment buckets = {
            .bucket_count = plan->unit_count,
            .first = calloc((size_t)plan->unit_count + 1, sizeof(int)),
            .label = calloc((size_t)plan->param_count + 1, sizeof(int)),
            .limit_bytes = calloc((size_t)plan->unit_count + 1, sizeof(int64_t)),
    };
    int filled = 0;
    dpb_status st;

    if (!buckets.first || !buckets.label || !buckets.limit_bytes) {
        dpb_bucket_assignment_release(&buckets);
        return no_memory(model);
    }
    for (int b = 0; b < plan->unit_count; b++) {
        const struct dpb_unit *unit = &plan->units[plan->unit_count - 1 - b];

        for (int m = 0; m < unit->member_count; m++)
            buckets.label[filled++] = plan->member[unit->first_member + m];
        buckets.first[b + 1] = filled;
    }
    st = dpb_unit_plan_from_buckets(model->params, model->param_count, &buckets, reverse);
    dpb_bucket_assignment_release(&buckets);
    return st;
}

/* The greedy rule, and then the buckets in reverse. */
static dpb_status by_size_reversed(const struct ddp_bucket_rules *rules,
                                   const struct dpb_model *model, const int *order,
                                   struct dpb_unit_plan *plan)
{
    const int64_t limits_bytes[] = {rules->first_bytes, rules->other_bytes};
    struct dpb_unit_plan forward;
    dpb_status st;

    DPB_TRY(dpb_unit_plan_by_size(model->params, model->param_count, order, limits_bytes, 2,
                                  &forward));
    st = reverse_units(model, &forward, plan);
    dpb_unit_plan_release(&forward);
    return st;
}

dpb_status ddp_buckets_initial(const struct ddp_bucket_rules *rules, const struct dpb_model *model,
                               struct dpb_unit_plan *plan)
{
    if (rules->is_one_at_first)
        return dpb_unit_plan_fused(model->params, model->param_count, NULL, plan);
    return by_size_reversed(rules, model, NULL, plan);
}

dpb_status ddp_buckets_rebuilt(const struct ddp_bucket_rules *rules, const struct dpb_model *model,
                               const int *ready_order, struct dpb_unit_plan *plan)
{
    const int64_t limits_bytes[] = {rules->first_bytes, rules->other_bytes};
    dpb_status st;
    int *opposite;

    if (!rules->is_small_last)
        return dpb_unit_plan_by_size(model->params, model->param_count, ready_order, limits_bytes,
                                     2, plan);
    opposite = calloc((size_t)model->param_count + 1, sizeof(*opposite));
    if (!opposite)
        return no_memory(model);
    for (int i = 0; i < model->param_count; i++)
        opposite[i] = ready_order[model->param_count - 1 - i];
    st = by_size_reversed(rules, model, opposite, plan);
    free(opposite);
    return st;
}

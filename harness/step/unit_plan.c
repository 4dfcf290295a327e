/* Units of communication: from buckets of tensors to places in the gradient arena. */
#include "dpb_bucket.h"

#include <stdlib.h>

#include "dpb_log.h"

#define UNIT_ALIGN_BYTES 64 /* a cache line: two units never share one */

static int64_t align_up(int64_t bytes)
{
    return (bytes + UNIT_ALIGN_BYTES - 1) / UNIT_ALIGN_BYTES * UNIT_ALIGN_BYTES;
}

static int64_t param_bytes(const struct dpb_param_info *param)
{
    return param->numel * (int64_t)dpb_dtype_bytes(param->dtype);
}

static dpb_status plan_init(int param_count, int unit_count, struct dpb_unit_plan *plan)
{
    *plan = (struct dpb_unit_plan){
            .units = calloc((size_t)unit_count + 1, sizeof(struct dpb_unit)),
            .unit_count = unit_count,
            .member = calloc((size_t)param_count + 1, sizeof(int)),
            .unit_of = calloc((size_t)param_count + 1, sizeof(int)),
            .offset_bytes = calloc((size_t)param_count + 1, sizeof(int64_t)),
            .param_count = param_count,
    };
    if (plan->units && plan->member && plan->unit_of && plan->offset_bytes)
        return DPB_OK;
    dpb_unit_plan_release(plan);
    dpb_error("communication plan: out of memory for %d parameters", param_count);
    return DPB_ERR_NO_MEMORY;
}

/* Place the members of one unit behind each other, and the unit at the end of the arena. */
static dpb_status place_unit(const struct dpb_param_info *params, const int *label, int count,
                             struct dpb_unit_plan *plan, int unit_index)
{
    struct dpb_unit *unit = &plan->units[unit_index];
    const int first = unit_index ? unit[-1].first_member + unit[-1].member_count : 0;

    *unit = (struct dpb_unit){
            .first_member = first,
            .member_count = count,
            .dtype = count ? params[label[0]].dtype : DPB_F32,
            .offset_bytes = plan->arena_bytes,
    };
    for (int m = 0; m < count; m++) {
        const int p = label[m];

        if (plan->unit_of[p] >= 0) {
            dpb_error("communication plan: parameter \"%s\" is in units %d and %d", params[p].name,
                      plan->unit_of[p], unit_index);
            return DPB_ERR_INTERNAL;
        }
        if (params[p].dtype != unit->dtype) {
            dpb_error("communication plan: unit %d mixes %s and %s (parameter \"%s\")", unit_index,
                      dpb_dtype_text(unit->dtype), dpb_dtype_text(params[p].dtype), params[p].name);
            return DPB_ERR_INTERNAL;
        }
        plan->member[first + m] = p;
        plan->unit_of[p] = unit_index;
        plan->offset_bytes[p] = unit->offset_bytes + unit->bytes;
        unit->elements += params[p].numel;
        unit->bytes += param_bytes(&params[p]);
    }
    plan->arena_bytes = align_up(unit->offset_bytes + unit->bytes);
    return DPB_OK;
}

dpb_status dpb_unit_plan_from_buckets(const struct dpb_param_info *params, int param_count,
                                      const struct dpb_bucket_assignment *assignment,
                                      struct dpb_unit_plan *plan)
{
    struct dpb_unit_plan result;
    dpb_status st = DPB_OK;

    if (assignment->first[assignment->bucket_count] != param_count) {
        dpb_error("communication plan: %d tensors in buckets for %d parameters",
                  assignment->first[assignment->bucket_count], param_count);
        return DPB_ERR_INTERNAL;
    }
    for (int i = 0; i < param_count; i++) {
        if (assignment->label[i] < 0 || assignment->label[i] >= param_count) {
            dpb_error("communication plan: there is no parameter number %d of %d",
                      assignment->label[i], param_count);
            return DPB_ERR_INTERNAL;
        }
    }

    DPB_TRY(plan_init(param_count, assignment->bucket_count, &result));
    for (int p = 0; p < param_count; p++)
        result.unit_of[p] = -1;
    for (int b = 0; b < assignment->bucket_count; b++) {
        const int first = assignment->first[b];

        DPB_TRY_GOTO(st,
                     place_unit(params, &assignment->label[first], assignment->first[b + 1] - first,
                                &result, b),
                     err_plan);
    }
    *plan = result;
    return DPB_OK;

err_plan:
    dpb_unit_plan_release(&result);
    return st;
}

dpb_status dpb_unit_plan_by_size(const struct dpb_param_info *params, int param_count,
                                 const int *order, const int64_t *limits_bytes, int limit_count,
                                 struct dpb_unit_plan *plan)
{
    struct dpb_bucket_assignment assignment;
    int64_t *numel = calloc((size_t)param_count + 1, sizeof(*numel));
    enum dpb_dtype *dtype = calloc((size_t)param_count + 1, sizeof(*dtype));
    dpb_status st = DPB_ERR_NO_MEMORY;

    if (!numel || !dtype) {
        dpb_error("communication plan: out of memory for %d parameters", param_count);
        goto out;
    }
    for (int i = 0; i < param_count; i++) {
        const int p = order ? order[i] : i;

        if (p < 0 || p >= param_count) {
            dpb_error("communication plan: there is no parameter number %d of %d", p, param_count);
            st = DPB_ERR_INTERNAL;
            goto out;
        }
        numel[i] = params[p].numel;
        dtype[i] = params[p].dtype;
    }

    const struct dpb_bucket_input input = {
            .numel = numel,
            .dtype = dtype,
            .count = param_count,
            .limits_bytes = limits_bytes,
            .limit_count = limit_count,
            .labels = order,
    };
    DPB_TRY_GOTO(st, dpb_bucket_assign(&input, &assignment), out);
    st = dpb_unit_plan_from_buckets(params, param_count, &assignment, plan);
    dpb_bucket_assignment_release(&assignment);

out:
    free(dtype);
    free(numel);
    return st;
}

dpb_status dpb_unit_plan_per_param(const struct dpb_param_info *params, int param_count,
                                   const int *order, struct dpb_unit_plan *plan)
{
    const int64_t limit = 0; /* each tensor reaches it and closes its bucket */
    int *reverse = NULL;

    if (!order) {
        reverse = calloc((size_t)param_count + 1, sizeof(int));
        if (!reverse) {
            dpb_error("communication plan: out of memory for %d parameters", param_count);
            return DPB_ERR_NO_MEMORY;
        }
        for (int i = 0; i < param_count; i++)
            reverse[i] = param_count - 1 - i;
        order = reverse;
    }

    const dpb_status st = dpb_unit_plan_by_size(params, param_count, order, &limit, 1, plan);

    free(reverse);
    return st;
}

dpb_status dpb_unit_plan_fused(const struct dpb_param_info *params, int param_count,
                               const int *order, struct dpb_unit_plan *plan)
{
    const int64_t limit = INT64_MAX; /* never reached */

    return dpb_unit_plan_by_size(params, param_count, order, &limit, 1, plan);
}

int64_t dpb_unit_plan_arena_bound(const struct dpb_param_info *params, int param_count)
{
    int64_t bytes = 0;

    /* Most is lost to alignment when every parameter is a unit of its own. */
    for (int p = 0; p < param_count; p++)
        bytes += align_up(param_bytes(&params[p]));
    return bytes;
}

void dpb_unit_plan_release(struct dpb_unit_plan *plan)
{
    free(plan->units);
    free(plan->member);
    free(plan->unit_of);
    free(plan->offset_bytes);
    *plan = (struct dpb_unit_plan){0};
}

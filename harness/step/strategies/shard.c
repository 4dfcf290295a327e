/* Parts of flat parameters, and units of whole layers. */
#include "shard.h"

#include <stdlib.h>

#include "dpb_log.h"
#include "launch_copy.h"

#define ALIGN_BYTES 64

/* ---- parts ---- */

bool shard_next(struct shard_walk *walk, struct shard_part *part)
{
    while (walk->next < walk->member_count && walk->next_at < walk->to) {
        const int param = walk->member ? walk->member[walk->next] : walk->next;
        const int64_t begin = walk->next_at, end = begin + walk->params[param].numel;
        const int64_t from = begin > walk->from ? begin : walk->from;
        const int64_t to = end < walk->to ? end : walk->to;

        walk->next++;
        walk->next_at = end;
        if (from >= to)
            continue;
        *part = (struct shard_part){
                .param = param, .first = from - begin, .count = to - from, .at = from};
        return true;
    }
    return false;
}

/* ---- memory ---- */

int64_t shard_aligned(int64_t bytes)
{
    return (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

dpb_status shard_copy(const struct dpb_launcher *launcher, const char *name, float *to,
                      const float *from, int64_t count)
{
    return count > 0 ? launch_copy(launcher, name, to, from, count * (int64_t)sizeof(float))
                     : DPB_OK;
}

dpb_status shard_add_up(const struct dpb_launcher *launcher, const char *name, float *to,
                        float *from, int64_t count, bool is_first)
{
    const struct dpb_add_args add = {
            .a = dpb_tensor_1d(to, count),
            .b = dpb_tensor_1d(from, count),
            .y = dpb_tensor_1d(to, count),
    };

    if (is_first)
        return shard_copy(launcher, name, to, from, count);
    return count > 0 ? dpb_launch(launcher, name, DPB_OP_ADD, &add) : DPB_OK;
}

dpb_status shard_alloc(const struct dpb_launcher *launcher, int64_t count, float **memory)
{
    void *made = NULL;

    if (count > 0)
        DPB_TRY(dpb_device_get_ops(launcher->device)
                        ->alloc(launcher->device, (size_t)count * sizeof(float), &made));
    *memory = made;
    return DPB_OK;
}

void shard_free(const struct dpb_launcher *launcher, float **memory)
{
    if (*memory)
        dpb_device_get_ops(launcher->device)->free(launcher->device, *memory);
    *memory = NULL;
}

/* ---- units ---- */

int64_t shard_layer(const struct dpb_model *model, const int *order, int count, int begin, int *end)
{
    const int layer = model->params[order[begin]].layer;
    int64_t elements = 0;
    int i = begin;

    for (; i < count && model->params[order[i]].layer == layer; i++)
        elements += model->params[order[i]].numel;
    *end = i;
    return elements;
}

static void assign_layers(const struct dpb_model *model, const int *order, int64_t limit,
                          enum shard_rule rule, struct dpb_bucket_assignment *assignment)
{
    int64_t elements = 0;
    int end;

    assignment->bucket_count = 0;
    assignment->first[0] = 0;
    for (int begin = 0; begin < model->param_count; begin = end) {
        const int64_t layer = shard_layer(model, order, model->param_count, begin, &end);

        if (rule == SHARD_EXCEEDS && elements > 0 && elements + layer > limit) {
            assignment->first[++assignment->bucket_count] = begin;
            elements = 0;
        }
        elements += layer;
        for (int i = begin; i < end; i++)
            assignment->label[i] = order[i];
        if (rule == SHARD_REACHES && elements >= limit) {
            assignment->first[++assignment->bucket_count] = end;
            elements = 0;
        }
    }
    if (elements > 0)
        assignment->first[++assignment->bucket_count] = model->param_count;
}

dpb_status shard_plan_layers(const struct dpb_model *model, const int *order, int64_t limit,
                             enum shard_rule rule, struct dpb_unit_plan *plan)
{
    struct dpb_bucket_assignment assignment = {
            .first = calloc((size_t)model->param_count + 1, sizeof(int)),
            .label = calloc((size_t)model->param_count + 1, sizeof(int)),
    };
    dpb_status st = DPB_ERR_NO_MEMORY;

    if (assignment.first && assignment.label) {
        assign_layers(model, order, limit, rule, &assignment);
        st = dpb_unit_plan_from_buckets(model->params, model->param_count, &assignment, plan);
    } else {
        dpb_error("communication plan: out of memory for %d parameters", model->param_count);
    }
    dpb_bucket_assignment_release(&assignment);
    return st;
}

void shard_move_unit(struct dpb_unit_plan *plan, int unit, int64_t offset_bytes)
{
    struct dpb_unit *moved = &plan->units[unit];
    const int64_t by = offset_bytes - moved->offset_bytes;

    moved->offset_bytes = offset_bytes;
    for (int m = 0; m < moved->member_count; m++)
        plan->offset_bytes[plan->member[moved->first_member + m]] += by;
}

/* ---- what cannot be in parts ---- */

dpb_status shard_check_optimizer(const struct dpb_strategy_config *config, const char *strategy)
{
    if (config->optimizer_is_elementwise)
        return DPB_OK;
    dpb_error("strategy \"%s\" gives a rank parts of tensors to update, and this optimizer needs "
              "them whole",
              strategy);
    dpb_log_hint("take --optimizer sgd, adamw or adagrad, or a strategy that leaves tensors "
                 "whole, as ddp");
    return DPB_ERR_USAGE;
}

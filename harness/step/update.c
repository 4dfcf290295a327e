/* The optimizer phase: the updates of this rank, one operator each, or as few launches as the
 * device can. */
#include "step_private.h"

#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"

float *engine_update_gradient(const struct dpb_step_engine *engine, int u)
{
    const struct dpb_update *part = &engine->update[u].part;

    return part->grad ? (float *)part->grad : engine->grad[part->param] + part->first;
}

bool engine_is_updated(const struct dpb_step_engine *engine, int u)
{
    const struct dpb_strategy_ops *strategy = engine->config.strategy;

    return !strategy->has_gradient ||
           strategy->has_gradient(engine->strategy, engine->update[u].part.param);
}

dpb_status engine_updates_open(struct dpb_step_engine *engine)
{
    const size_t room = (size_t)engine->update_count * sizeof(union optimizer_args);

    if (!dpb_device_get_ops(engine->config.device)->op_launch_many || room == 0)
        return DPB_OK;
    for (int g = 0; g < OPTIMIZER_OPS; g++) {
        engine->group[g].args = calloc(1, room);
        if (!engine->group[g].args) {
            dpb_error("step engine: out of memory for the arguments of %d updates",
                      engine->update_count);
            return DPB_ERR_NO_MEMORY;
        }
    }
    return DPB_OK;
}

void engine_updates_close(struct dpb_step_engine *engine)
{
    for (int g = 0; g < OPTIMIZER_OPS; g++)
        free(engine->group[g].args);
}

static struct optimizer_place place_of(const struct dpb_step_engine *engine, int u)
{
    const struct update *update = &engine->update[u];
    const struct dpb_update *part = &update->part;

    return (struct optimizer_place){
            .param = &update->info,
            .value = part->value ? part->value : engine->param[part->param] + part->first,
            .grad = engine_update_gradient(engine, u),
            .state = {update->state[0], update->state[1]},
    };
}

/* The group of this operator; there are as many as one optimizer has operators. */
static struct update_group *group_of(struct dpb_step_engine *engine, enum dpb_op op)
{
    int g = 0;

    while (engine->group[g].count > 0 && engine->group[g].op != op)
        g++;
    engine->group[g].op = op;
    return &engine->group[g];
}

static dpb_status launch_group(struct dpb_step_engine *engine, const struct update_group *group)
{
    const struct dpb_launcher *launcher = &engine->launcher;
    dpb_status st;

    dpb_range_begin(launcher->recorder, DPB_LANE_HOST, DPB_EVENT_COMPUTE, dpb_op_text(group->op),
                    -1);
    st = dpb_op_launch_many(launcher->device, group->op, group->args, group->count,
                            launcher->stream);
    dpb_range_end(launcher->recorder, DPB_LANE_HOST);
    return st;
}

static dpb_status update_in_groups(struct dpb_step_engine *engine)
{
    const struct dpb_optimizer_config *optimizer = &engine->config.optimizer;

    for (int g = 0; g < OPTIMIZER_OPS; g++)
        engine->group[g].count = 0;
    for (int u = 0; u < engine->update_count; u++) {
        union optimizer_args args;
        struct update_group *group;
        enum dpb_op op;

        if (!engine_is_updated(engine, u))
            continue;
        const struct optimizer_place place = place_of(engine, u);

        op = optimizer_args_of(optimizer, &place, engine->updates_done + 1, &args);
        group = group_of(engine, op);
        memcpy(group->args + (size_t)group->count++ * dpb_op_args_bytes(op), &args,
               dpb_op_args_bytes(op));
    }
    for (int g = 0; g < OPTIMIZER_OPS && engine->group[g].count > 0; g++)
        DPB_TRY(launch_group(engine, &engine->group[g]));
    return DPB_OK;
}

dpb_status engine_update_all(struct dpb_step_engine *engine)
{
    if (engine->group[0].args)
        return update_in_groups(engine);
    for (int u = 0; u < engine->update_count; u++) {
        if (!engine_is_updated(engine, u))
            continue;
        const struct optimizer_place place = place_of(engine, u);

        DPB_TRY(optimizer_launch(&engine->config.optimizer, &place, engine->updates_done + 1,
                                 &engine->launcher, engine->update[u].name));
    }
    return DPB_OK;
}

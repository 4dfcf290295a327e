#include "ddp_usage.h"

#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"

#define NAME "usage-map"

dpb_status ddp_usage_plan(struct ddp_usage *usage, const struct dpb_model *model)
{
    const size_t params = (size_t)model->param_count;
    struct ddp_usage made = {
            .params = model->param_count,
            .now = calloc(params, sizeof(*made.now)),
            .by_rank = calloc(params, sizeof(*made.by_rank)),
            .by_us = calloc(params, sizeof(*made.by_us)),
    };

    if (!made.now || !made.by_rank || !made.by_us) {
        dpb_error("strategy \"ddp\": out of memory for %d parameters", model->param_count);
        ddp_usage_release(&made);
        return DPB_ERR_NO_MEMORY;
    }
    /* A new plan does not change what has been seen. */
    if (usage->params == made.params) {
        memcpy(made.by_rank, usage->by_rank, params * sizeof(*made.by_rank));
        memcpy(made.by_us, usage->by_us, params * sizeof(*made.by_us));
    }
    ddp_usage_release(usage);
    *usage = made;
    return DPB_OK;
}

void ddp_usage_release(struct ddp_usage *usage)
{
    free(usage->now);
    free(usage->by_rank);
    free(usage->by_us);
    *usage = (struct ddp_usage){0};
}

static int64_t map_bytes(const struct ddp_usage *usage)
{
    return usage->params * (int64_t)sizeof(int32_t);
}

int64_t ddp_usage_bytes(const struct ddp_usage *usage)
{
    return map_bytes(usage);
}

dpb_status ddp_usage_place(struct ddp_usage *usage, const struct dpb_sync_services *services)
{
    void *memory;

    if (usage->params == 0)
        return DPB_OK;
    DPB_TRY(services->shared_alloc(services->ctx, (size_t)map_bytes(usage), &memory));
    usage->shared = memory;
    return DPB_OK;
}

void ddp_usage_step_begin(struct ddp_usage *usage)
{
    for (int p = 0; p < usage->params; p++) {
        usage->by_us[p] = false;
        usage->by_rank[p] = 0;
    }
}

void ddp_usage_forward_begin(struct ddp_usage *usage)
{
    for (int p = 0; p < usage->params; p++)
        usage->now[p] = false;
}

void ddp_usage_add(struct ddp_usage *usage, int param)
{
    if (usage->params == 0)
        return;
    usage->now[param] = true;
    usage->by_us[param] = true;
    usage->by_rank[param] = 1;
}

static dpb_status copy(const struct ddp_usage *usage, const struct dpb_sync_services *services,
                       void *to, const void *from)
{
    const struct dpb_launcher *launcher = services->launcher;

    return dpb_device_get_ops(launcher->device)
            ->copy(launcher->device, to, from, (size_t)map_bytes(usage), launcher->stream);
}

dpb_status ddp_usage_start(struct ddp_usage *usage, const struct dpb_sync_services *services)
{
    const struct dpb_sync_coll sum = {
            .kind = DPB_COLL_ALL_REDUCE,
            .dtype = DPB_I32,
            .buffer = usage->shared,
            .count = usage->params,
            .scale = 1.0f,
            .unit = -1,
            .name = NAME,
    };

    DPB_TRY(copy(usage, services, usage->shared, usage->by_rank));
    DPB_TRY(services->start(services->ctx, &sum, &usage->handle));
    usage->is_under_way = true;
    return DPB_OK;
}

dpb_status ddp_usage_finish(struct ddp_usage *usage, const struct dpb_sync_services *services)
{
    if (!usage->is_under_way)
        return DPB_OK;
    usage->is_under_way = false;
    return services->wait(services->ctx, usage->handle);
}

dpb_status ddp_usage_know(struct ddp_usage *usage, const struct dpb_sync_services *services)
{
    DPB_TRY(ddp_usage_finish(usage, services));
    DPB_TRY(copy(usage, services, usage->by_rank, usage->shared));
    return dpb_device_get_ops(services->launcher->device)->stream_sync(services->launcher->stream);
}

struct dpb_sync_message ddp_usage_message(const struct ddp_usage *usage)
{
    return (struct dpb_sync_message){
            .kind = DPB_COLL_ALL_REDUCE,
            .dtype = DPB_I32,
            .count = usage->params,
            .param = -1,
            .unit = -1,
            .name = NAME,
    };
}

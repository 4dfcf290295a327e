/* Loss scaling: in fp16 the gradients of small losses would be 0, so that the loss is multiplied by
 * a number, and what has been reduced divided by it. As torch.amp.GradScaler
 * (torch/amp/grad_scaler.py: 65536, doubled after 2000 steps without overflow, halved by one, whose
 * step is skipped). */
#include "step_private.h"

#include <math.h>

#include "dpb_log.h"

#define SCALE_START    65536.0
#define SCALE_GROWTH   2.0
#define SCALE_BACKOFF  0.5
#define SCALE_INTERVAL 2000
#define SCALE_LEAST    0x1p-126 /* below it is no normal number of fp32 */
#define SCALE_MOST     0x1p127

static bool is_on(const struct dpb_step_engine *engine)
{
    return engine->config.loss_scale != 0.0;
}

static bool is_dynamic(const struct dpb_step_engine *engine)
{
    return engine->config.loss_scale == DPB_LOSS_SCALE_DYNAMIC;
}

void engine_loss_scale_bytes(int64_t *device_bytes, int64_t *host_bytes)
{
    *device_bytes = (int64_t)sizeof(*((struct loss_scale *)0)->found);
    *host_bytes = 2 * (int64_t)sizeof(*((struct loss_scale *)0)->host);
}

dpb_status engine_loss_scale_open(struct dpb_step_engine *engine)
{
    struct loss_scale *scale = &engine->loss_scale;
    void *memory;

    scale->value = is_dynamic(engine) ? SCALE_START : is_on(engine) ? engine->config.loss_scale : 1;
    if (!is_on(engine))
        return DPB_OK;
    if (!(scale->value >= SCALE_LEAST && scale->value <= SCALE_MOST)) {
        dpb_error("step engine: a loss scale of %g", scale->value);
        return DPB_ERR_USAGE;
    }
    if (!is_dynamic(engine))
        return DPB_OK;
    DPB_TRY(dpb_device_get_ops(engine->config.device)
                    ->alloc(engine->config.device, sizeof(*scale->found), &memory));
    scale->found = memory;
    DPB_TRY(dpb_device_host_alloc(engine->config.device, 2 * sizeof(*scale->host), &memory));
    scale->host = memory;
    scale->host[0] = scale->host[1] = 0;
    return DPB_OK;
}

void engine_loss_scale_close(struct dpb_step_engine *engine)
{
    struct loss_scale *scale = &engine->loss_scale;

    if (scale->found)
        dpb_device_get_ops(engine->config.device)->free(engine->config.device, scale->found);
    if (scale->host)
        dpb_device_host_free(engine->config.device, scale->host);
    scale->found = NULL;
    scale->host = NULL;
}

/* What this rank updates. */
static dpb_status look(struct dpb_step_engine *engine, bool *is_finite)
{
    const struct dpb_device_ops *device = dpb_device_get_ops(engine->config.device);
    struct loss_scale *scale = &engine->loss_scale;

    DPB_TRY(device->copy(engine->config.device, scale->found, &scale->host[0],
                         sizeof(*scale->found), engine->launcher.stream));
    for (int u = 0; u < engine->update_count; u++) {
        const struct dpb_finite_args args = {
                .x = engine_update_gradient(engine, u),
                .count = engine->update[u].part.count,
                .found = scale->found,
        };

        if (engine_is_updated(engine, u))
            DPB_TRY(dpb_launch(&engine->launcher, "finite", DPB_OP_FINITE, &args));
    }
    DPB_TRY(dpb_copy_now(&engine->launcher, &scale->host[1], scale->found, sizeof(*scale->found)));
    *is_finite = scale->host[1] == 0;
    return DPB_OK;
}

/* Reduced gradients are the same on every rank, unless each has its part, or its own. */
static bool is_same_everywhere(const struct dpb_step_engine *engine)
{
    return engine->world_size == 1 || !(engine->config.strategy->updates ||
                                        engine->strategy_flags & DPB_STRATEGY_REPLICAS_DIFFER);
}

static dpb_status agree(struct dpb_step_engine *engine, bool *is_finite)
{
    const uint64_t mine = *is_finite;

    if (is_same_everywhere(engine))
        return DPB_OK;
    DPB_TRY(engine->comm_ops->exchange(engine->config.comm, &mine, sizeof(mine), engine->hashes));
    for (int r = 0; r < engine->world_size; r++)
        *is_finite = *is_finite && engine->hashes[r];
    return DPB_OK;
}

static void learn(struct dpb_step_engine *engine, bool is_finite)
{
    struct loss_scale *scale = &engine->loss_scale;

    if (!is_finite) {
        scale->skipped++;
        scale->good_steps = 0;
        scale->next = fmax(scale->value * SCALE_BACKOFF, SCALE_LEAST);
    } else if (++scale->good_steps == SCALE_INTERVAL) {
        scale->good_steps = 0;
        scale->next = fmin(scale->value * SCALE_GROWTH, SCALE_MOST);
    }
}

static dpb_status unscale(struct dpb_step_engine *engine)
{
    for (int u = 0; u < engine->update_count; u++) {
        const struct dpb_scale_args args = {
                .x = engine_update_gradient(engine, u),
                .count = engine->update[u].part.count,
                .factor = (float)(1.0 / engine->loss_scale.value),
        };

        if (engine_is_updated(engine, u))
            DPB_TRY(dpb_launch(&engine->launcher, "unscale", DPB_OP_SCALE, &args));
    }
    return DPB_OK;
}

dpb_status engine_loss_scale_apply(struct dpb_step_engine *engine, bool *is_skipped)
{
    bool is_finite = true;

    *is_skipped = false;
    if (!is_on(engine))
        return DPB_OK;
    engine->loss_scale.next = engine->loss_scale.value;
    if (is_dynamic(engine)) {
        DPB_TRY(look(engine, &is_finite));
        DPB_TRY(agree(engine, &is_finite));
        learn(engine, is_finite);
    }
    *is_skipped = !is_finite;
    if (is_finite)
        DPB_TRY(unscale(engine));
    engine->loss_scale.value = engine->loss_scale.next;
    return DPB_OK;
}

void dpb_step_loss_scale(const dpb_step_engine *engine, double *scale, int64_t *skipped)
{
    *scale = is_on(engine) ? engine->loss_scale.value : 0.0;
    *skipped = engine->loss_scale.skipped;
}

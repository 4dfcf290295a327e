#include "background.h"

#include <stdlib.h>

#include "dpb_log.h"
#include "step_private.h"

static const struct dpb_device_ops *device_ops(const struct dpb_step_engine *engine)
{
    return dpb_device_get_ops(engine->config.device);
}

dpb_status engine_background_open(struct dpb_step_engine *engine)
{
    struct background *background = &engine->background;
    const struct dpb_device_ops *ops = device_ops(engine);
    dpb_device *device = engine->config.device;
    const int params = engine->model->param_count;

    background->launcher = engine->launcher;
    if (!engine->config.strategy->tick || !(ops->flags & DPB_DEVICE_ACCELERATOR))
        return DPB_OK;
    background->launcher.stream = NULL;
    background->is_apart = true;
    background->gradient = calloc((size_t)params, sizeof(*background->gradient));
    if (!background->gradient) {
        dpb_error("step engine: out of memory for the marks of %d gradients", params);
        return DPB_ERR_NO_MEMORY;
    }
    DPB_TRY(ops->stream_open(device, &background->launcher.stream));
    DPB_TRY(ops->mark_open(device, &background->joined));
    for (int p = 0; p < params; p++)
        DPB_TRY(ops->mark_open(device, &background->gradient[p]));
    return DPB_OK;
}

void engine_background_close(struct dpb_step_engine *engine)
{
    struct background *background = &engine->background;
    const struct dpb_device_ops *ops = device_ops(engine);

    if (!background->is_apart)
        return;
    for (int p = 0; background->gradient && p < engine->model->param_count; p++)
        if (background->gradient[p])
            ops->mark_close(background->gradient[p]);
    if (background->joined)
        ops->mark_close(background->joined);
    if (background->launcher.stream)
        ops->stream_close(background->launcher.stream);
    free(background->gradient);
}

dpb_stream *engine_background_stream(struct dpb_step_engine *engine)
{
    const struct background *background = &engine->background;

    return background->is_apart && pthread_equal(pthread_self(), engine->sync.ticker.thread)
                   ? background->launcher.stream
                   : engine->launcher.stream;
}

dpb_status engine_background_note(void *ctx, int param)
{
    struct dpb_step_engine *engine = ctx;
    const struct background *background = &engine->background;

    return background->is_apart ? device_ops(engine)->mark_record(background->gradient[param],
                                                                  engine->launcher.stream)
                                : DPB_OK;
}

dpb_status engine_background_await(void *ctx, int param)
{
    struct dpb_step_engine *engine = ctx;
    const struct background *background = &engine->background;

    return background->is_apart ? device_ops(engine)->stream_wait(background->launcher.stream,
                                                                  background->gradient[param])
                                : DPB_OK;
}

dpb_status engine_background_join(void *ctx)
{
    struct dpb_step_engine *engine = ctx;
    const struct background *background = &engine->background;

    if (!background->is_apart)
        return DPB_OK;
    DPB_TRY(device_ops(engine)->mark_record(background->joined, background->launcher.stream));
    return device_ops(engine)->stream_wait(engine->launcher.stream, background->joined);
}

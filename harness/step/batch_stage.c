/* A batch on its way to an accelerator: the source's arrays are written to memory of the host that
 * stays as it is until the copy from there has run, and copied in the stream's order. There are two
 * such places, so that a micro-batch can be written while the one before is computed with; a place
 * is written again when the device has left it. */
#include "step_private.h"

#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"

#define ALIGN_BYTES 64

/* The arrays of a batch: how many values one sample has. All are of four bytes. */
#define VALUE_BYTES ((int64_t)4)

struct array {
    const void *from; /* NULL: the batch has it not */
    int64_t values;
    const void **to; /* the pointer in the batch for operators */
};

#define ARRAYS 7

static void list_arrays(const struct dpb_model *model, const struct dpb_batch *batch,
                        struct dpb_batch *device, struct array array[ARRAYS])
{
    const int64_t image = model->sample_dim[0] * model->sample_dim[1] * model->sample_dim[2];
    const int64_t x = model->input == DPB_INPUT_IMAGES ? image : model->features;
    const struct array made[ARRAYS] = {
            {batch->label, 1, (const void **)&device->label},
            {batch->x, x, (const void **)&device->x},
            {batch->tokens, model->sequence, (const void **)&device->tokens},
            {batch->segments, model->sequence, (const void **)&device->segments},
            {batch->predict_position, model->predicted, (const void **)&device->predict_position},
            {batch->predict_token, model->predicted, (const void **)&device->predict_token},
            {batch->indices, model->tables, (const void **)&device->indices},
    };

    memcpy(array, made, sizeof(made));
}

static int64_t aligned(int64_t bytes)
{
    return (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

/* Of all arrays that a model can have, for the largest batch. */
static int64_t room_for(const struct dpb_model *model, int64_t samples)
{
    struct dpb_batch none = {0};
    struct array array[ARRAYS];
    int64_t bytes = 0;

    list_arrays(model, &none, &none, array);
    for (int i = 0; i < ARRAYS; i++)
        bytes += aligned(samples * array[i].values * VALUE_BYTES);
    return bytes;
}

void dpb_step_staging_predict(const struct dpb_model *model, int64_t batch_max,
                              bool dynamic_loss_scale, struct dpb_step_staging *staging)
{
    const int64_t batch = room_for(model, batch_max > 0 ? batch_max : 1);
    int64_t flag = 0, host_flags = 0;

    if (dynamic_loss_scale)
        engine_loss_scale_bytes(&flag, &host_flags);
    staging->device_bytes = batch + flag;
    staging->host_bytes = STAGE_PLACES * batch + engine_window_bytes() + host_flags;
}

static dpb_status open_place(struct dpb_step_engine *engine, struct stage_place *place,
                             int64_t bytes)
{
    const struct dpb_device_ops *device = dpb_device_get_ops(engine->config.device);
    void *memory;

    DPB_TRY(dpb_device_host_alloc(engine->config.device, (size_t)bytes, &memory));
    place->host = memory;
    return device->mark_open(engine->config.device, &place->copied);
}

dpb_status engine_stage_open(struct dpb_step_engine *engine)
{
    const struct dpb_device_ops *device = dpb_device_get_ops(engine->config.device);
    const int64_t samples = engine->config.batch_max > 0 ? engine->config.batch_max : 1;
    const int64_t bytes = room_for(engine->model, samples);
    struct stage *stage = &engine->stage;
    void *memory;

    if (dpb_device_is_host(engine->config.device) || bytes == 0)
        return DPB_OK;
    DPB_TRY(device->alloc(engine->config.device, (size_t)bytes, &memory));
    stage->device = memory;
    DPB_TRY(device->stream_open(engine->config.device, &stage->waiter));
    for (int i = 0; i < STAGE_PLACES; i++)
        DPB_TRY(open_place(engine, &stage->place[i], bytes));
    return DPB_OK;
}

void engine_stage_close(struct dpb_step_engine *engine)
{
    const struct dpb_device_ops *device = dpb_device_get_ops(engine->config.device);
    struct stage *stage = &engine->stage;

    for (int i = 0; i < STAGE_PLACES; i++) {
        if (stage->place[i].copied)
            device->mark_close(stage->place[i].copied);
        if (stage->place[i].host)
            dpb_device_host_free(engine->config.device, stage->place[i].host);
    }
    if (stage->waiter)
        device->stream_close(stage->waiter);
    if (stage->device)
        device->free(engine->config.device, stage->device);
    *stage = (struct stage){0};
}

/* For this place alone, not for what else is on the launcher's stream. */
static dpb_status await_place(struct dpb_step_engine *engine, struct stage_place *place)
{
    const struct dpb_device_ops *device = dpb_device_get_ops(engine->config.device);

    if (!place->is_used)
        return DPB_OK;
    DPB_TRY(device->stream_wait(engine->stage.waiter, place->copied));
    return device->stream_sync(engine->stage.waiter);
}

dpb_status engine_stage_batch(struct dpb_step_engine *engine, struct dpb_batch *batch)
{
    const struct dpb_device_ops *device = dpb_device_get_ops(engine->config.device);
    struct stage *stage = &engine->stage;
    struct stage_place *place = &stage->place[stage->next];
    struct array array[ARRAYS];
    int64_t at = 0;

    if (!stage->device)
        return DPB_OK;
    stage->batch = *batch;
    list_arrays(engine->model, &stage->batch, batch, array);
    DPB_TRY(await_place(engine, place));
    for (int i = 0; i < ARRAYS; i++) {
        const int64_t bytes = batch->samples * array[i].values * VALUE_BYTES;

        if (!array[i].from || bytes == 0)
            continue;
        memcpy(place->host + at, array[i].from, (size_t)bytes);
        DPB_TRY(device->copy(engine->config.device, stage->device + at, place->host + at,
                             (size_t)bytes, engine->launcher.stream));
        *array[i].to = stage->device + at;
        at += aligned(bytes);
    }
    batch->host = &stage->batch;
    DPB_TRY(device->mark_record(place->copied, engine->launcher.stream));
    place->is_used = true;
    stage->next = (stage->next + 1) % STAGE_PLACES;
    return DPB_OK;
}

/* How long the phases of a step take on an accelerator, which runs them while the host is ahead:
 * from marks on the launcher's stream, read when the step has ended. */
#include "step_private.h"

#include <stdlib.h>

#include "dpb_log.h"

/* Of a micro-batch: before forward, after it, after backward; and after the two phases of the step
 * that follow. */
enum {
    MARKS_PER_BATCH = 3,
    MARKS_PER_STEP = 2
};

dpb_status engine_marks_open(struct dpb_step_engine *engine)
{
    const struct dpb_device_ops *device = dpb_device_get_ops(engine->config.device);
    struct marks *marks = &engine->marks;
    const int64_t count = engine->config.accumulate * MARKS_PER_BATCH + MARKS_PER_STEP;

    if (dpb_device_is_host(engine->config.device))
        return DPB_OK;
    marks->mark = calloc((size_t)count, sizeof(*marks->mark));
    if (!marks->mark) {
        dpb_error("step engine: out of memory for %lld marks", (long long)count);
        return DPB_ERR_NO_MEMORY;
    }
    for (; marks->room < count; marks->room++)
        DPB_TRY(device->mark_open(engine->config.device, &marks->mark[marks->room]));
    return DPB_OK;
}

void engine_marks_close(struct dpb_step_engine *engine)
{
    struct marks *marks = &engine->marks;

    for (int64_t i = 0; i < marks->room; i++)
        dpb_device_get_ops(engine->config.device)->mark_close(marks->mark[i]);
    free(marks->mark);
    *marks = (struct marks){0};
}

void engine_marks_begin(struct dpb_step_engine *engine)
{
    engine->marks.count = 0;
}

dpb_status engine_mark(struct dpb_step_engine *engine)
{
    struct marks *marks = &engine->marks;

    /* A mark inside of a graph cannot be read. */
    if (!marks->mark || engine->is_capturing)
        return DPB_OK;
    return dpb_device_get_ops(engine->config.device)
            ->mark_record(marks->mark[marks->count++], engine->launcher.stream);
}

static dpb_status between(const struct dpb_step_engine *engine, int64_t from, int64_t *sum_ns)
{
    const struct marks *marks = &engine->marks;
    int64_t ns;

    DPB_TRY(dpb_device_get_ops(engine->config.device)
                    ->mark_elapsed_ns(marks->mark[from], marks->mark[from + 1], &ns));
    *sum_ns += ns;
    return DPB_OK;
}

dpb_status engine_marks_read(const struct dpb_step_engine *engine, struct dpb_step_times *times)
{
    const int64_t count = engine->marks.count, batches = engine->config.accumulate;

    if (count == 0) /* not an accelerator, or a graph */
        return DPB_OK;
    if (count != batches * MARKS_PER_BATCH + MARKS_PER_STEP)
        return DPB_ERR_INTERNAL;
    times->forward_ns = times->backward_ns = times->sync_ns = times->optimizer_ns = 0;
    for (int64_t m = 0; m < batches; m++) {
        DPB_TRY(between(engine, m * MARKS_PER_BATCH, &times->forward_ns));
        DPB_TRY(between(engine, m * MARKS_PER_BATCH + 1, &times->backward_ns));
    }
    DPB_TRY(between(engine, batches * MARKS_PER_BATCH - 1, &times->sync_ns));
    return between(engine, batches * MARKS_PER_BATCH, &times->optimizer_ns);
}

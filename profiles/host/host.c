/* The recorder of traced steps of the CPU: spans timed with the host's clock (span_store.h). */
#include "dpb_recorder.h"

#include <stdlib.h>

#include "dpb_log.h"
#include "span_store.h"

struct dpb_recorder {
    struct dpb_recorder_base base;
    struct span_store spans;
};

static dpb_status host_probe(char *why, size_t why_bytes)
{
    (void)why;
    (void)why_bytes;
    return DPB_OK;
}

static void host_close(dpb_recorder *recorder)
{
    if (!recorder)
        return;
    span_store_release(&recorder->spans);
    free(recorder);
}

static dpb_status host_open(const struct dpb_recorder_config *config, dpb_recorder **recorder)
{
    dpb_recorder *opened = span_alloc_recorder(sizeof(*opened));
    dpb_status st;

    if (!opened) {
        dpb_error("cannot record: out of memory");
        return DPB_ERR_NO_MEMORY;
    }
    opened->base.ops = &dpb_recorder_host_ops;
    st = span_store_init(&opened->spans, config);
    if (st < 0) {
        host_close(opened);
        return st;
    }
    *recorder = opened;
    return DPB_OK;
}

static void host_range_begin(dpb_recorder *recorder, enum dpb_lane lane, enum dpb_event_kind kind,
                             const char *name, int32_t bucket)
{
    span_store_begin(&recorder->spans, lane, kind, name, bucket);
}

static void host_range_end(dpb_recorder *recorder, enum dpb_lane lane)
{
    span_store_end(&recorder->spans, lane);
}

static void host_emit(dpb_recorder *recorder, const struct dpb_event *event)
{
    span_store_emit(&recorder->spans, event);
}

static void host_set_step(dpb_recorder *recorder, int32_t step)
{
    span_store_set_step(&recorder->spans, step);
}

static dpb_status host_drain(dpb_recorder *recorder, const struct dpb_event **events, size_t *count,
                             uint64_t *lost)
{
    span_store_drain(&recorder->spans, events, count, lost);
    return DPB_OK;
}

const struct dpb_recorder_ops dpb_recorder_host_ops = {
        .version = DPB_RECORDER_OPS_VERSION,
        .name = "host",
        .summary = "keeps spans timed with the host's monotonic clock",
        .probe = host_probe,
        .open = host_open,
        .range_begin = host_range_begin,
        .range_end = host_range_end,
        .emit = host_emit,
        .set_step = host_set_step,
        .drain = host_drain,
        .close = host_close,
};

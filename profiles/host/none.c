/* The recorder of timed steps: every call does nothing. */
#include "dpb_recorder.h"

struct dpb_recorder {
    struct dpb_recorder_base base;
};

static dpb_status none_probe(char *why, size_t why_bytes)
{
    (void)why;
    (void)why_bytes;
    return DPB_OK;
}

static dpb_status none_open(const struct dpb_recorder_config *config, dpb_recorder **recorder)
{
    /* It has no state, so all ranks and threads may share one. */
    static dpb_recorder shared = {{&dpb_recorder_none_ops}};

    (void)config;
    *recorder = &shared;
    return DPB_OK;
}

static void none_range_begin(dpb_recorder *recorder, enum dpb_lane lane, enum dpb_event_kind kind,
                             const char *name, int32_t bucket)
{
    (void)recorder;
    (void)lane;
    (void)kind;
    (void)name;
    (void)bucket;
}

static void none_range_end(dpb_recorder *recorder, enum dpb_lane lane)
{
    (void)recorder;
    (void)lane;
}

static void none_emit(dpb_recorder *recorder, const struct dpb_event *event)
{
    (void)recorder;
    (void)event;
}

static void none_set_step(dpb_recorder *recorder, int32_t step)
{
    (void)recorder;
    (void)step;
}

static dpb_status none_drain(dpb_recorder *recorder, const struct dpb_event **events, size_t *count,
                             uint64_t *lost)
{
    static const struct dpb_event no_events[1];

    (void)recorder;
    *events = no_events;
    *count = 0;
    *lost = 0;
    return DPB_OK;
}

static void none_close(dpb_recorder *recorder)
{
    (void)recorder;
}

const struct dpb_recorder_ops dpb_recorder_none_ops = {
        .version = DPB_RECORDER_OPS_VERSION,
        .name = "none",
        .summary = "records nothing; for timed steps",
        .probe = none_probe,
        .open = none_open,
        .range_begin = none_range_begin,
        .range_end = none_range_end,
        .emit = none_emit,
        .set_step = none_set_step,
        .drain = none_drain,
        .close = none_close,
};

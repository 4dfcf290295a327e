#include "virtual_recorder.h"

#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"

struct dpb_recorder {
    struct dpb_recorder_base base;
    dpb_timeline *timeline; /* NULL: nothing is recorded yet */
    double launch_ns;
    struct dpb_event *events;
    size_t count, room;
    uint64_t lost;
    int32_t step;
    struct dpb_event open[DPB_LANE_COUNT][DPB_RECORDER_DEPTH];
    int depth[DPB_LANE_COUNT];
};

static void push(dpb_recorder *recorder, const struct dpb_event *event)
{
    if (recorder->count == recorder->room) {
        const size_t room = recorder->room ? 2 * recorder->room : 1024;
        struct dpb_event *events = realloc(recorder->events, room * sizeof(*events));

        if (!events) {
            recorder->lost++;
            return;
        }
        recorder->events = events;
        recorder->room = room;
    }
    recorder->events[recorder->count++] = *event;
}

static int64_t begin_ns(const dpb_recorder *recorder)
{
    const double stream_ns = dpb_timeline_watched_ns(recorder->timeline);
    const double host_ns = dpb_timeline_host_ns(recorder->timeline) + recorder->launch_ns;

    return (int64_t)((stream_ns > host_ns ? stream_ns : host_ns) + 0.5);
}

static void range_begin(dpb_recorder *recorder, enum dpb_lane lane, enum dpb_event_kind kind,
                        const char *name, int32_t bucket)
{
    const int depth = recorder->depth[lane]++;

    if (!recorder->timeline || depth >= DPB_RECORDER_DEPTH)
        return;
    recorder->open[lane][depth] = (struct dpb_event){
            .start_ns = begin_ns(recorder),
            .name = name,
            .step = recorder->step,
            .bucket = bucket,
            .kind = (uint8_t)kind,
            .lane = (uint8_t)lane,
    };
}

static void range_end(dpb_recorder *recorder, enum dpb_lane lane)
{
    const int depth = --recorder->depth[lane];

    if (!recorder->timeline)
        return;
    if (depth < 0 || depth >= DPB_RECORDER_DEPTH) {
        recorder->lost++;
        return;
    }
    struct dpb_event event = recorder->open[lane][depth];
    event.end_ns = (int64_t)(dpb_timeline_watched_ns(recorder->timeline) + 0.5);
    if (event.end_ns < event.start_ns)
        event.end_ns = event.start_ns; /* nothing was launched */
    push(recorder, &event);
}

static void emit(dpb_recorder *recorder, const struct dpb_event *event)
{
    struct dpb_event own = *event;

    if (!recorder->timeline)
        return;
    own.step = recorder->step;
    own.rank = 0;
    push(recorder, &own);
}

static void set_step(dpb_recorder *recorder, int32_t step)
{
    recorder->step = step;
}

static int compare(const void *left, const void *right)
{
    const struct dpb_event *a = left, *b = right;

    if (a->lane != b->lane)
        return a->lane < b->lane ? -1 : 1;
    if (a->start_ns != b->start_ns)
        return a->start_ns < b->start_ns ? -1 : 1;
    if (a->end_ns != b->end_ns)
        return a->end_ns > b->end_ns ? -1 : 1;
    return (int)a->kind - (int)b->kind;
}

static dpb_status drain(dpb_recorder *recorder, const struct dpb_event **events, size_t *count,
                        uint64_t *lost)
{
    if (recorder->count > 0)
        qsort(recorder->events, recorder->count, sizeof(*recorder->events), compare);
    *events = recorder->events;
    *count = recorder->count;
    *lost = recorder->lost;
    recorder->count = 0;
    return DPB_OK;
}

static void close_recorder(dpb_recorder *recorder)
{
    if (recorder)
        free(recorder->events);
    free(recorder);
}

static dpb_status probe(char *why, size_t why_bytes)
{
    (void)why;
    (void)why_bytes;
    return DPB_OK;
}

static dpb_status open_recorder(const struct dpb_recorder_config *config, dpb_recorder **recorder)
{
    (void)config;
    return virtual_recorder_open(recorder);
}

static const struct dpb_recorder_ops virtual_ops = {
        .version = DPB_RECORDER_OPS_VERSION,
        .name = "virtual",
        .summary = "keeps spans of virtual time",
        .probe = probe,
        .open = open_recorder,
        .range_begin = range_begin,
        .range_end = range_end,
        .emit = emit,
        .set_step = set_step,
        .drain = drain,
        .close = close_recorder,
};

dpb_status virtual_recorder_open(dpb_recorder **recorder)
{
    dpb_recorder *opened = calloc(1, sizeof(*opened));

    if (!opened) {
        dpb_error("simulation: out of memory for a trace");
        return DPB_ERR_NO_MEMORY;
    }
    opened->base.ops = &virtual_ops;
    *recorder = opened;
    return DPB_OK;
}

void virtual_recorder_start(dpb_recorder *recorder, dpb_timeline *timeline, double launch_ns)
{
    recorder->timeline = timeline;
    recorder->launch_ns = launch_ns;
}

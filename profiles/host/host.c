/* The recorder of traced steps: spans timed with the host's clock, kept in arrays that open()
 * allocates. Each lane has one writer and shares nothing with the others, so recording takes no
 * lock and no system call. */
#include "dpb_recorder.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_clock.h"
#include "dpb_log.h"

#define CACHE_LINE_BYTES 64

/* An event and its place in the order of begins, which decides between events of equal times: the
 * outer range began first. */
struct record {
    struct dpb_event event;
    uint64_t order;
};

struct lane {
    alignas(CACHE_LINE_BYTES) struct record *records;
    size_t count;
    uint64_t lost;
    uint64_t order;
    size_t depth; /* may exceed DPB_RECORDER_DEPTH: the ranges above are lost, their ends matched */
    struct record open[DPB_RECORDER_DEPTH];
};

struct dpb_recorder {
    struct dpb_recorder_base base;
    int16_t rank;
    _Atomic int32_t step;
    _Atomic uint64_t lost_outside_lanes;
    size_t capacity;          /* events per lane */
    struct dpb_event *merged; /* what drain() hands out */
    struct lane lanes[DPB_LANE_COUNT];
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
    for (size_t lane = 0; lane < DPB_LANE_COUNT; lane++)
        free(recorder->lanes[lane].records);
    free(recorder->merged);
    free(recorder);
}

/* Memory whose pages are there already. Not zero: a compiler turns malloc and memset to zero into
 * calloc, which touches nothing. */
static void *alloc_touched(size_t count, size_t element_bytes)
{
    size_t bytes;
    void *memory;

    if (__builtin_mul_overflow(count, element_bytes, &bytes))
        return NULL;
    memory = malloc(bytes);
    if (memory)
        memset(memory, 0xff, bytes);
    return memory;
}

static dpb_status host_open(const struct dpb_recorder_config *config, dpb_recorder **recorder)
{
    size_t merged_count;
    dpb_recorder *opened;
    bool failed;

    if (config->rank < 0 || config->rank > INT16_MAX) {
        dpb_error("cannot record rank %d: ranks are 0 to %d", config->rank, INT16_MAX);
        return DPB_ERR_USAGE;
    }
    if (config->events_per_lane == 0) {
        dpb_error("cannot record into a buffer of 0 events");
        return DPB_ERR_USAGE;
    }
    opened = aligned_alloc(CACHE_LINE_BYTES, sizeof(*opened));
    if (!opened)
        goto no_memory;
    memset(opened, 0, sizeof(*opened));
    opened->base.ops = &dpb_recorder_host_ops;
    opened->rank = (int16_t)config->rank;
    opened->capacity = config->events_per_lane;
    failed = __builtin_mul_overflow(config->events_per_lane, DPB_LANE_COUNT, &merged_count);
    for (size_t lane = 0; lane < DPB_LANE_COUNT && !failed; lane++) {
        opened->lanes[lane].records = alloc_touched(opened->capacity, sizeof(struct record));
        failed = !opened->lanes[lane].records;
    }
    if (!failed)
        opened->merged = alloc_touched(merged_count, sizeof(struct dpb_event));
    if (!opened->merged)
        goto no_memory;
    *recorder = opened;
    return DPB_OK;

no_memory:
    host_close(opened);
    dpb_error("cannot record %zu events per lane: out of memory", config->events_per_lane);
    dpb_log_hint("trace fewer steps");
    return DPB_ERR_NO_MEMORY;
}

/* NULL, and one more lost event, when there is no such lane. */
static struct lane *find_lane(dpb_recorder *recorder, unsigned lane)
{
    if (lane < DPB_LANE_COUNT)
        return &recorder->lanes[lane];
    atomic_fetch_add_explicit(&recorder->lost_outside_lanes, 1, memory_order_relaxed);
    return NULL;
}

static void keep(const dpb_recorder *recorder, struct lane *lane, const struct record *record)
{
    if (lane->count == recorder->capacity)
        lane->lost++;
    else
        lane->records[lane->count++] = *record;
}

static bool is_valid(unsigned kind, const char *name)
{
    return kind < DPB_EVENT_KIND_COUNT && name;
}

static int32_t current_step(dpb_recorder *recorder)
{
    return atomic_load_explicit(&recorder->step, memory_order_relaxed);
}

static void host_range_begin(dpb_recorder *recorder, enum dpb_lane lane, enum dpb_event_kind kind,
                             const char *name, int32_t bucket)
{
    struct lane *target = find_lane(recorder, lane);
    struct record *record;

    if (!target)
        return;
    if (target->depth++ >= DPB_RECORDER_DEPTH)
        return; /* its end counts it */
    record = &target->open[target->depth - 1];
    record->order = target->order++;
    record->event = (struct dpb_event){
            .name = name,
            .step = current_step(recorder),
            .bucket = bucket,
            .kind = (uint8_t)((unsigned)kind < DPB_EVENT_KIND_COUNT ? kind : DPB_EVENT_KIND_COUNT),
            .lane = (uint8_t)lane,
            .rank = recorder->rank,
    };
    /* last, so that what this call costs lies outside the range */
    record->event.start_ns = dpb_clock_now_ns();
}

static void host_range_end(dpb_recorder *recorder, enum dpb_lane lane)
{
    int64_t now_ns = dpb_clock_now_ns();
    struct lane *target = find_lane(recorder, lane);
    struct record *record;

    if (!target)
        return;
    if (target->depth == 0 || target->depth-- > DPB_RECORDER_DEPTH) {
        target->lost++;
        return;
    }
    record = &target->open[target->depth];
    record->event.end_ns = now_ns;
    if (is_valid(record->event.kind, record->event.name))
        keep(recorder, target, record);
    else
        target->lost++;
}

static void host_emit(dpb_recorder *recorder, const struct dpb_event *event)
{
    struct lane *target = find_lane(recorder, event->lane);
    struct record record = {.event = *event};

    if (!target)
        return;
    if (!is_valid(event->kind, event->name)) {
        target->lost++;
        return;
    }
    record.order = target->order++;
    record.event.rank = recorder->rank;
    record.event.step = current_step(recorder);
    keep(recorder, target, &record);
}

static void host_set_step(dpb_recorder *recorder, int32_t step)
{
    atomic_store_explicit(&recorder->step, step, memory_order_relaxed);
}

static int compare_records(const void *left, const void *right)
{
    const struct record *a = left, *b = right;

    if (a->event.start_ns != b->event.start_ns)
        return a->event.start_ns < b->event.start_ns ? -1 : 1;
    if (a->event.end_ns != b->event.end_ns)
        return a->event.end_ns > b->event.end_ns ? -1 : 1;
    return a->order < b->order ? -1 : a->order > b->order;
}

static dpb_status host_drain(dpb_recorder *recorder, const struct dpb_event **events, size_t *count,
                             uint64_t *lost)
{
    size_t total = 0;
    uint64_t total_lost = atomic_exchange(&recorder->lost_outside_lanes, 0);

    for (size_t i = 0; i < DPB_LANE_COUNT; i++) {
        struct lane *lane = &recorder->lanes[i];

        qsort(lane->records, lane->count, sizeof(lane->records[0]), compare_records);
        for (size_t j = 0; j < lane->count; j++)
            recorder->merged[total++] = lane->records[j].event;
        total_lost += lane->lost;
        lane->count = 0;
        lane->lost = 0;
    }
    *events = recorder->merged;
    *count = total;
    *lost = total_lost;
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

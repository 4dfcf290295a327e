/* Spans timed with the host's clock, kept in arrays that init() allocates. Each lane has one writer
 * and shares nothing with the others, so recording takes no lock and no system call. */
#include "span_store.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_clock.h"
#include "dpb_log.h"

/* Memory whose pages are there already. Not zero: a compiler turns malloc and memset to zero into
 * calloc, which touches nothing. */
void *span_alloc_touched(size_t count, size_t element_bytes)
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

void *span_alloc_recorder(size_t bytes)
{
    const size_t rounded =
            (bytes + SPAN_CACHE_LINE_BYTES - 1) / SPAN_CACHE_LINE_BYTES * SPAN_CACHE_LINE_BYTES;
    void *memory = aligned_alloc(SPAN_CACHE_LINE_BYTES, rounded);

    if (memory)
        memset(memory, 0, rounded);
    return memory;
}

dpb_status span_store_init(struct span_store *store, const struct dpb_recorder_config *config)
{
    size_t merged_count;
    bool failed;

    if (config->rank < 0 || config->rank > INT16_MAX) {
        dpb_error("cannot record rank %d: ranks are 0 to %d", config->rank, INT16_MAX);
        return DPB_ERR_USAGE;
    }
    if (config->events_per_lane == 0) {
        dpb_error("cannot record into a buffer of 0 events");
        return DPB_ERR_USAGE;
    }
    store->rank = (int16_t)config->rank;
    store->capacity = config->events_per_lane;
    failed = __builtin_mul_overflow(config->events_per_lane, DPB_LANE_HOST_COUNT, &merged_count);
    for (size_t lane = 0; lane < DPB_LANE_HOST_COUNT && !failed; lane++) {
        store->lanes[lane].records =
                span_alloc_touched(store->capacity, sizeof(struct span_record));
        failed = !store->lanes[lane].records;
    }
    if (!failed)
        store->merged = span_alloc_touched(merged_count, sizeof(struct dpb_event));
    if (store->merged)
        return DPB_OK;
    dpb_error("cannot record %zu events per lane: out of memory", config->events_per_lane);
    dpb_log_hint("trace fewer steps");
    return DPB_ERR_NO_MEMORY;
}

void span_store_release(struct span_store *store)
{
    for (size_t lane = 0; lane < DPB_LANE_HOST_COUNT; lane++)
        free(store->lanes[lane].records);
    free(store->merged);
}

/* NULL, and one more lost event, when there is no such lane. */
static struct span_lane *find_lane(struct span_store *store, unsigned lane)
{
    if (lane < DPB_LANE_HOST_COUNT)
        return &store->lanes[lane];
    atomic_fetch_add_explicit(&store->lost_outside_lanes, 1, memory_order_relaxed);
    return NULL;
}

static void keep(const struct span_store *store, struct span_lane *lane,
                 const struct span_record *record)
{
    if (lane->count == store->capacity)
        lane->lost++;
    else
        lane->records[lane->count++] = *record;
}

static bool is_valid(unsigned kind, const char *name)
{
    return kind < DPB_EVENT_KIND_COUNT && name;
}

int32_t span_store_step(struct span_store *store)
{
    return atomic_load_explicit(&store->step, memory_order_relaxed);
}

void span_store_begin(struct span_store *store, enum dpb_lane lane, enum dpb_event_kind kind,
                      const char *name, int32_t bucket)
{
    struct span_lane *target = find_lane(store, lane);
    struct span_record *record;

    if (!target)
        return;
    if (target->depth++ >= DPB_RECORDER_DEPTH)
        return; /* its end counts it */
    record = &target->open[target->depth - 1];
    record->order = target->order++;
    record->event = (struct dpb_event){
            .name = name,
            .step = span_store_step(store),
            .bucket = bucket,
            .kind = (uint8_t)((unsigned)kind < DPB_EVENT_KIND_COUNT ? kind : DPB_EVENT_KIND_COUNT),
            .lane = (uint8_t)lane,
            .rank = store->rank,
    };
    /* last, so that what this call costs lies outside the range */
    record->event.start_ns = dpb_clock_now_ns();
}

void span_store_end(struct span_store *store, enum dpb_lane lane)
{
    int64_t now_ns = dpb_clock_now_ns();
    struct span_lane *target = find_lane(store, lane);
    struct span_record *record;

    if (!target)
        return;
    if (target->depth == 0 || target->depth-- > DPB_RECORDER_DEPTH) {
        target->lost++;
        return;
    }
    record = &target->open[target->depth];
    record->event.end_ns = now_ns;
    if (is_valid(record->event.kind, record->event.name))
        keep(store, target, record);
    else
        target->lost++;
}

void span_store_emit(struct span_store *store, const struct dpb_event *event)
{
    struct span_lane *target = find_lane(store, event->lane);
    struct span_record record = {.event = *event};

    if (!target)
        return;
    if (!is_valid(event->kind, event->name)) {
        target->lost++;
        return;
    }
    record.order = target->order++;
    record.event.rank = store->rank;
    record.event.step = span_store_step(store);
    keep(store, target, &record);
}

void span_store_set_step(struct span_store *store, int32_t step)
{
    atomic_store_explicit(&store->step, step, memory_order_relaxed);
}

static int compare_records(const void *left, const void *right)
{
    const struct span_record *a = left, *b = right;

    if (a->event.start_ns != b->event.start_ns)
        return a->event.start_ns < b->event.start_ns ? -1 : 1;
    if (a->event.end_ns != b->event.end_ns)
        return a->event.end_ns > b->event.end_ns ? -1 : 1;
    return a->order < b->order ? -1 : a->order > b->order;
}

void span_store_drain(struct span_store *store, const struct dpb_event **events, size_t *count,
                      uint64_t *lost)
{
    size_t total = 0;
    uint64_t total_lost = atomic_exchange(&store->lost_outside_lanes, 0);

    for (size_t i = 0; i < DPB_LANE_HOST_COUNT; i++) {
        struct span_lane *lane = &store->lanes[i];

        qsort(lane->records, lane->count, sizeof(lane->records[0]), compare_records);
        for (size_t j = 0; j < lane->count; j++)
            store->merged[total++] = lane->records[j].event;
        total_lost += lane->lost;
        lane->count = 0;
        lane->lost = 0;
    }
    *events = store->merged;
    *count = total;
    *lost = total_lost;
}

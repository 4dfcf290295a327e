/* The recorder of steps on an NVIDIA GPU: spans as the host's recorder keeps them, what ran on the
 * device from CUPTI, and a thread between the two: each range tells CUPTI its number, the step and
 * the bucket, and CUPTI writes them beside every launch in it. */
#include "dpb_recorder_cupti.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cupti_buffers.h"
#include "device_events.h"
#include "cupti_session.h"
#include "dpb_log.h"
#include "dpb_losses.h"
#include "nvtx.h"
#include "span_store.h"

/* Room for the records of one event of the host: a kernel, its calls, two external correlations
 * for each, two markers with data; and for what threads leave empty at the end of theirs. */
#define RECORD_BYTES_PER_EVENT 768
#define BUFFERS_LEAST          8
#define BUFFERS_MOST           32

/* Buckets of the open ranges of a lane. */
struct bucket_stack {
    size_t depth; /* may exceed DPB_RECORDER_DEPTH; what is above has no bucket of its own */
    int32_t bucket[DPB_RECORDER_DEPTH];
};

struct dpb_recorder {
    struct dpb_recorder_base base;
    struct span_store spans;
    struct bucket_stack buckets[DPB_LANE_HOST_COUNT];
    const char **range_names; /* of range i + 1 */
    size_t range_capacity;
    _Atomic size_t range_count; /* may exceed the capacity: those have no number */
    size_t buffer_count;
    bool is_tracing;
    bool is_too_long;
    int64_t steps; /* since start() */
    struct cupti_moment from, to;
    struct cupti_events device;
    struct dpb_event *merged; /* what drain() hands out */
    struct dpb_losses losses;
    int64_t nvtx_ranges;   /* of ours that came back as markers */
    int64_t other_records; /* of kinds that nobody asked for */
};

static dpb_status probe(char *why, size_t why_bytes)
{
    struct cupti_table table;

    DPB_TRY(cupti_probe_driver(why, why_bytes));
    return cupti_open(&table, why, why_bytes);
}

static void close_recorder(dpb_recorder *recorder)
{
    if (!recorder)
        return;
    span_store_release(&recorder->spans);
    cupti_events_release(&recorder->device);
    free(recorder->range_names);
    free(recorder->merged);
    free(recorder);
}

static size_t buffers_for(size_t events)
{
    const size_t wanted = events / (CUPTI_BUFFER_BYTES / RECORD_BYTES_PER_EVENT) + BUFFERS_LEAST;

    return wanted < BUFFERS_MOST ? wanted : BUFFERS_MOST;
}

static dpb_status check_config(const struct dpb_recorder_config *config)
{
    if (config->steps > DPB_CUPTI_STEPS_MAX) {
        dpb_error("cannot trace %" PRId64 " steps on the device: CUPTI 13.0 loses records in long "
                  "traces, at most %d are traced",
                  config->steps, DPB_CUPTI_STEPS_MAX);
        dpb_log_hint("use --trace-steps %d", DPB_CUPTI_STEPS_MAX);
        return DPB_ERR_USAGE;
    }
    if (!cupti_session_table()) {
        dpb_error("cannot trace the device: CUPTI was not prepared before the device was opened");
        return DPB_ERR_USAGE;
    }
    return DPB_OK;
}

static dpb_status open_recorder(const struct dpb_recorder_config *config, dpb_recorder **recorder)
{
    dpb_recorder *opened;
    dpb_status st;

    DPB_TRY(check_config(config));
    opened = span_alloc_recorder(sizeof(*opened));
    if (!opened)
        goto no_memory;
    opened->base.ops = &dpb_recorder_cupti_ops;
    DPB_TRY_GOTO(st, span_store_init(&opened->spans, config), fail);
    opened->range_capacity = config->events_per_lane;
    opened->range_names = span_alloc_touched(opened->range_capacity, sizeof(char *));
    if (!opened->range_names)
        goto no_memory;
    opened->buffer_count = buffers_for(config->events_per_lane);
    *recorder = opened;
    return DPB_OK;

no_memory:
    st = DPB_ERR_NO_MEMORY;
    dpb_error("cannot record %zu events per lane: out of memory", config->events_per_lane);
    dpb_log_hint("trace fewer steps");
fail:
    close_recorder(opened);
    return st;
}

static dpb_status start(dpb_recorder *recorder)
{
    if (cupti_session_other_tool())
        return DPB_OK;
    DPB_TRY(cupti_session_start(recorder->buffer_count, &recorder->from));
    recorder->is_tracing = true;
    return DPB_OK;
}

/* The number of one more range of this name; 0 when there is no room. */
static uint64_t number_range(dpb_recorder *recorder, const char *name)
{
    const size_t index = atomic_fetch_add_explicit(&recorder->range_count, 1, memory_order_relaxed);

    if (index >= recorder->range_capacity || !name)
        return 0;
    recorder->range_names[index] = name;
    return index + 1;
}

/* The bucket of a range: its own, or that of the one around it. */
static int32_t push_bucket(struct bucket_stack *stack, int32_t bucket)
{
    const size_t depth = stack->depth++;

    if (bucket < 0 && depth > 0 && depth <= DPB_RECORDER_DEPTH)
        bucket = stack->bucket[depth - 1];
    if (depth < DPB_RECORDER_DEPTH)
        stack->bucket[depth] = bucket;
    return bucket;
}

/* What this thread launches from now on is of this place, and named so. */
static void push(dpb_recorder *recorder, const char *name, int32_t bucket)
{
    const struct cupti_table *table = cupti_session_table();

    if (!recorder->is_tracing)
        return;
    table->cuptiActivityPushExternalCorrelationId(
            CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0,
            cupti_place(span_store_step(&recorder->spans), bucket));
    table->cuptiActivityPushExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM1,
                                                  number_range(recorder, name));
}

static void pop(dpb_recorder *recorder)
{
    const struct cupti_table *table = cupti_session_table();

    if (!recorder->is_tracing)
        return;
    table->cuptiActivityPopExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM1, NULL);
    table->cuptiActivityPopExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, NULL);
}

static void bucket_begin(dpb_recorder *recorder, const char *name, int32_t bucket)
{
    nvtx_begin(DPB_EVENT_COMM, name ? name : "", bucket);
    push(recorder, name, bucket);
}

static void bucket_end(dpb_recorder *recorder)
{
    pop(recorder);
    nvtx_end();
}

static void range_begin(dpb_recorder *recorder, enum dpb_lane lane, enum dpb_event_kind kind,
                        const char *name, int32_t bucket)
{
    if ((unsigned)lane < DPB_LANE_HOST_COUNT) {
        nvtx_begin(kind, name ? name : "", bucket);
        push(recorder, name, push_bucket(&recorder->buckets[lane], bucket));
    }
    /* last, so that what is done here lies outside the range */
    span_store_begin(&recorder->spans, lane, kind, name, bucket);
}

static void range_end(dpb_recorder *recorder, enum dpb_lane lane)
{
    span_store_end(&recorder->spans, lane);
    if ((unsigned)lane >= DPB_LANE_HOST_COUNT || recorder->buckets[lane].depth == 0)
        return;
    recorder->buckets[lane].depth--;
    pop(recorder);
    nvtx_end();
}

static void emit(dpb_recorder *recorder, const struct dpb_event *event)
{
    span_store_emit(&recorder->spans, event);
}

static void set_step(dpb_recorder *recorder, int32_t step)
{
    span_store_set_step(&recorder->spans, step);
    recorder->is_too_long |= recorder->is_tracing && ++recorder->steps > DPB_CUPTI_STEPS_MAX;
}

/* Say why there is nothing of the device, if there is not. */
static void say_untraced(dpb_recorder *recorder)
{
    char *text = recorder->losses.untraced;
    const size_t bytes = sizeof(recorder->losses.untraced);

    if (cupti_session_other_tool())
        snprintf(text, bytes, "\"%s\" traces this process already", cupti_session_other_tool());
    else if (recorder->is_too_long)
        snprintf(text, bytes, "more than %d steps were recorded", DPB_CUPTI_STEPS_MAX);
    else if (!recorder->is_tracing)
        snprintf(text, bytes, "it was not recorded since the last time, or never");
}

/* The records of the device, as events. A failure of CUPTI is none of the steps that it watched:
 * there are no figures of the device then. */
static dpb_status read_device(dpb_recorder *recorder)
{
    const struct cupti_table *table = cupti_session_table();
    const size_t ranges = atomic_load(&recorder->range_count);
    struct cupti_records records = {0};
    struct cupti_run run = {
            .rank = recorder->spans.rank,
            .from = recorder->from,
            .range_names = recorder->range_names,
            .range_count = ranges < recorder->range_capacity ? ranges : recorder->range_capacity,
    };
    size_t valid_bytes;
    uint8_t *buffer;
    dpb_status st;

    if (cupti_session_stop(&recorder->to, &recorder->losses.dropped) < 0) {
        snprintf(recorder->losses.untraced, sizeof(recorder->losses.untraced),
                 "CUPTI did not give its records");
        return DPB_OK;
    }
    run.to = recorder->to;
    for (size_t i = 0; (buffer = cupti_buffer_at(i, &valid_bytes)) != NULL; i++)
        cupti_records_read(&records, table, buffer, valid_bytes);
    records.damaged_buffers += (int64_t)cupti_buffers_out();
    if (cupti_buffers_out() == 0) /* else it may write into them still */
        cupti_buffers_close();
    recorder->nvtx_ranges = records.own_markers;
    recorder->other_records = records.others;
    st = cupti_events_make(&records, &run, &recorder->device, &recorder->losses);
    cupti_records_release(&records);
    return st;
}

static int compare_events(const void *left, const void *right)
{
    const struct dpb_event *a = left, *b = right;

    if (a->lane != b->lane)
        return a->lane < b->lane ? -1 : 1;
    if (a->start_ns != b->start_ns)
        return a->start_ns < b->start_ns ? -1 : 1;
    if (a->end_ns != b->end_ns)
        return a->end_ns > b->end_ns ? -1 : 1;
    return a->kind < b->kind ? -1 : a->kind > b->kind; /* kinds are in the order of nesting */
}

static dpb_status drain(dpb_recorder *recorder, const struct dpb_event **events, size_t *count,
                        uint64_t *lost)
{
    const struct dpb_event *spans;
    struct dpb_event *merged;
    uint64_t spans_lost;
    size_t span_count;

    recorder->losses = (struct dpb_losses){0};
    cupti_events_release(&recorder->device);
    say_untraced(recorder);
    if (recorder->is_tracing)
        DPB_TRY(read_device(recorder));
    recorder->is_tracing = false;
    span_store_drain(&recorder->spans, &spans, &span_count, &spans_lost);
    merged = calloc(span_count + recorder->device.count + 1, sizeof(merged[0]));
    if (!merged) {
        dpb_error("cannot read the trace of the device: out of memory");
        return DPB_ERR_NO_MEMORY;
    }
    memcpy(merged, spans, span_count * sizeof(merged[0]));
    if (recorder->device.count > 0)
        memcpy(merged + span_count, recorder->device.events,
               recorder->device.count * sizeof(merged[0]));
    if (recorder->device.count > 0)
        qsort(merged, span_count + recorder->device.count, sizeof(merged[0]), compare_events);
    free(recorder->merged);
    recorder->merged = merged;
    *events = merged;
    *count = span_count + recorder->device.count;
    *lost = spans_lost;
    return DPB_OK;
}

static dpb_json *moment_json(const struct cupti_moment *moment)
{
    dpb_json *json = dpb_json_object();

    dpb_json_set_int(json, "cupti_ns", moment->cupti_ns);
    dpb_json_set_int(json, "realtime_ns", moment->realtime_ns);
    dpb_json_set_int(json, "monotonic_ns", moment->monotonic_ns);
    dpb_json_set_int(json, "uncertain_ns", moment->uncertain_ns);
    return json;
}

static dpb_json *describe(dpb_recorder *recorder)
{
    dpb_json *json = dpb_losses_to_json(&recorder->losses);

    if (!recorder->losses.untraced[0]) {
        dpb_json_set(json, "clocks_before", moment_json(&recorder->from));
        dpb_json_set(json, "clocks_after", moment_json(&recorder->to));
        dpb_json_set_int(json, "nvtx_ranges", recorder->nvtx_ranges);
        dpb_json_set_int(json, "other_records", recorder->other_records);
    }
    return json;
}

const struct dpb_recorder_ops dpb_recorder_cupti_ops = {
        .version = DPB_RECORDER_OPS_VERSION,
        .name = "cupti",
        .summary = "keeps spans, and what ran on an NVIDIA GPU",
        .flags = DPB_RECORDER_OWN_PROCESS,
        .steps_max = DPB_CUPTI_STEPS_MAX,
        .probe = probe,
        .prepare = cupti_session_prepare,
        .open = open_recorder,
        .start = start,
        .range_begin = range_begin,
        .range_end = range_end,
        .bucket_begin = bucket_begin,
        .bucket_end = bucket_end,
        .emit = emit,
        .set_step = set_step,
        .drain = drain,
        .describe = describe,
        .close = close_recorder,
};

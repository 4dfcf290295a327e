/* Writing a trace: strictly nested slices on threads, bucket flows, and metadata.
 *
 * The rules come from the readers. Perfetto wants the slices of one thread to nest (perfetto#4280),
 * so what overlaps without nesting goes to a further thread of its lane; a flow needs a slice
 * around each of its ends. */
#include "dpb_trace.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"
#include "trace_format.h"

#define NONE SIZE_MAX

/* An event on its way to the file. */
struct slot {
    const struct dpb_event *event;
    size_t index;    /* among the given events */
    size_t parent;   /* the slot around this one on its track, or NONE */
    size_t track;    /* of its lane; 0 is the first */
    uint64_t flow;   /* number of the flow that begins or ends here; 0: none */
    bool is_instant; /* a mark, which covers no time */
};

/* One thread of the trace while its events are placed. */
struct track {
    size_t top; /* innermost slot that has not ended, or NONE */
};

struct trace {
    struct slot *slots; /* ordered by (rank, lane, start, longer first, kind) */
    size_t count;
    size_t negative; /* events left out because they end before they start */
    int64_t base_ns; /* earliest start */
};

static int compare_i64(int64_t a, int64_t b)
{
    return a < b ? -1 : a > b;
}

static int compare_slots(const void *left, const void *right)
{
    const struct slot *a = left, *b = right;
    int order = compare_i64(a->event->rank, b->event->rank);

    if (!order)
        order = compare_i64(a->event->lane, b->event->lane);
    if (!order)
        order = compare_i64(a->event->start_ns, b->event->start_ns);
    if (!order)
        order = compare_i64(b->event->end_ns, a->event->end_ns);
    if (!order)
        order = compare_i64(a->event->kind, b->event->kind);
    return order ? order : a->index < b->index ? -1 : a->index > b->index;
}

static bool same_lane(const struct slot *a, const struct slot *b)
{
    return a->event->rank == b->event->rank && a->event->lane == b->event->lane;
}

/* The innermost slot of the track that still runs at `at_ns`. */
static size_t running(struct track *track, const struct slot *slots, int64_t at_ns)
{
    while (track->top != NONE && slots[track->top].event->end_ns <= at_ns)
        track->top = slots[track->top].parent;
    return track->top;
}

/* Give each slice of one lane the first track in which it nests. Instants stay on the first track
 * and remember what they lie in. `tracks` has room for `count` tracks. */
static void place_lane(struct slot *slots, size_t first, size_t count, struct track *tracks)
{
    size_t used = 1;

    tracks[0].top = NONE;
    for (size_t i = first; i < first + count; i++) {
        struct slot *slot = &slots[i];
        size_t around;

        if (slot->is_instant) {
            slot->parent = running(&tracks[0], slots, slot->event->start_ns);
            continue;
        }
        for (;; slot->track++) {
            if (slot->track == used)
                tracks[used++].top = NONE;
            around = running(&tracks[slot->track], slots, slot->event->start_ns);
            if (around == NONE || slots[around].event->end_ns >= slot->event->end_ns)
                break;
        }
        slot->parent = around;
        tracks[slot->track].top = i;
    }
}

static dpb_status place_all(struct trace *trace)
{
    struct track *tracks = malloc((trace->count + 1) * sizeof(tracks[0]));
    size_t first = 0;

    if (!tracks)
        return DPB_ERR_NO_MEMORY;
    while (first < trace->count) {
        size_t end = first + 1;

        while (end < trace->count && same_lane(&trace->slots[first], &trace->slots[end]))
            end++;
        place_lane(trace->slots, first, end - first, tracks);
        first = end;
    }
    free(tracks);
    return DPB_OK;
}

static int compare_bucket(const struct dpb_event *a, const struct dpb_event *b)
{
    int order = compare_i64(a->rank, b->rank);

    if (!order)
        order = compare_i64(a->step, b->step);
    return order ? order : compare_i64(a->bucket, b->bucket);
}

static int compare_flow_ends(const void *left, const void *right)
{
    const struct slot *a = *(struct slot *const *)left, *b = *(struct slot *const *)right;
    int order = compare_bucket(a->event, b->event);

    if (!order)
        order = compare_i64(a->event->start_ns, b->event->start_ns);
    if (!order)
        order = compare_i64(b->event->kind, a->event->kind); /* ready before comm */
    return order ? order : a < b ? -1 : a > b;
}

/* Can a flow begin or end here? Both ends need a slice around them. */
static bool is_flow_end(const struct slot *slot)
{
    if (slot->event->bucket < 0)
        return false;
    if (slot->event->kind == DPB_EVENT_READY)
        return slot->is_instant && slot->parent != NONE;
    return slot->event->kind == DPB_EVENT_COMM && slot->event->end_ns > slot->event->start_ns;
}

/* Join each ready mark to the next collective of its rank, step and bucket. */
static dpb_status join_flows(struct trace *trace)
{
    struct slot **ends = malloc((trace->count + 1) * sizeof(ends[0]));
    struct slot *ready = NULL;
    uint64_t flow = 0;
    size_t count = 0;

    if (!ends)
        return DPB_ERR_NO_MEMORY;
    for (size_t i = 0; i < trace->count; i++) {
        if (is_flow_end(&trace->slots[i]))
            ends[count++] = &trace->slots[i];
    }
    if (count > 0)
        qsort(ends, count, sizeof(ends[0]), compare_flow_ends);
    for (size_t i = 0; i < count; i++) {
        if (ends[i]->event->kind == DPB_EVENT_READY) {
            ready = ends[i];
        } else if (ready && compare_bucket(ready->event, ends[i]->event) == 0) {
            ready->flow = ends[i]->flow = ++flow;
            ready = NULL;
        }
    }
    free(ends);
    return DPB_OK;
}

static dpb_status gather(const char *path, const struct dpb_event *events, size_t count,
                         struct trace *trace)
{
    trace->slots = malloc((count + 1) * sizeof(trace->slots[0]));
    if (!trace->slots)
        return DPB_ERR_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        const struct dpb_event *event = &events[i];

        if (event->kind >= DPB_EVENT_KIND_COUNT || event->lane >= DPB_LANE_COUNT ||
            event->rank < 0) {
            dpb_error("cannot write the trace \"%s\": event %zu has kind %d, lane %d, rank %d",
                      path, i, event->kind, event->lane, event->rank);
            return DPB_ERR_USAGE;
        }
        if (event->end_ns < event->start_ns) {
            trace->negative++;
            continue;
        }
        if (trace->count == 0 || event->start_ns < trace->base_ns)
            trace->base_ns = event->start_ns;
        trace->slots[trace->count++] = (struct slot){
                .event = event,
                .index = i,
                .parent = NONE,
                .is_instant = event->kind == DPB_EVENT_READY && event->start_ns == event->end_ns,
        };
    }
    if (trace->count > 0)
        qsort(trace->slots, trace->count, sizeof(trace->slots[0]), compare_slots);
    if (trace->negative > 0)
        dpb_warn("%zu events end before they start: left out of the trace \"%s\"", trace->negative,
                 path);
    return DPB_OK;
}

/* ---- text ---- */

struct writer {
    struct dpb_str out;
    const char *separator; /* before the next event */
    int64_t base_ns;
};

static void append_string(struct dpb_str *out, const char *text)
{
    dpb_json *string = dpb_json_string(text);

    if (dpb_json_write(string, false, out) < 0)
        out->failed = true;
    dpb_json_free(string);
}

/* Nanoseconds from `from_ns` to `to_ns`, which is not earlier, as microseconds with three decimals.
 * Unsigned: the difference of two int64 may need all 64 bits. */
static void append_us(struct dpb_str *out, int64_t from_ns, int64_t to_ns)
{
    uint64_t ns = (uint64_t)to_ns - (uint64_t)from_ns;

    dpb_str_appendf(out, "%" PRIu64 ".%03u", ns / 1000, (unsigned)(ns % 1000));
}

static size_t thread_id(size_t lane, size_t track)
{
    return 1 + lane + track * DPB_LANE_COUNT;
}

static void begin_event(struct writer *writer, const char *phase)
{
    dpb_str_appendf(&writer->out, "%s{\"ph\":\"%s\"", writer->separator, phase);
    writer->separator = ",\n";
}

static void append_place(struct writer *writer, const struct slot *slot)
{
    dpb_str_appendf(&writer->out, ",\"pid\":%d,\"tid\":%zu,\"ts\":", slot->event->rank,
                    thread_id(slot->event->lane, slot->track));
    append_us(&writer->out, writer->base_ns, slot->event->start_ns);
}

static void append_flow(struct writer *writer, const struct slot *slot)
{
    bool begins = slot->event->kind == DPB_EVENT_READY;

    begin_event(writer, begins ? "s" : "f");
    if (!begins)
        dpb_str_append(&writer->out, ",\"bp\":\"e\"");
    dpb_str_appendf(&writer->out, ",\"cat\":\"bucket\",\"name\":\"bucket\",\"id\":%" PRIu64,
                    slot->flow);
    append_place(writer, slot);
    dpb_str_append(&writer->out, "}");
}

static void append_event(struct writer *writer, const struct slot *slot)
{
    const struct dpb_event *event = slot->event;
    const char *kind = dpb_event_kind_text((enum dpb_event_kind)event->kind);
    struct dpb_str *out = &writer->out;

    begin_event(writer, slot->is_instant ? "i" : "X");
    if (slot->is_instant)
        dpb_str_append(out, ",\"s\":\"t\"");
    dpb_str_appendf(out, ",\"cat\":\"%s\",\"name\":", kind);
    append_string(out, event->name ? event->name : kind);
    append_place(writer, slot);
    if (!slot->is_instant) {
        dpb_str_append(out, ",\"dur\":");
        append_us(out, event->start_ns, event->end_ns);
    }
    dpb_str_appendf(out, ",\"args\":{\"step\":%" PRId32, event->step);
    if (event->bucket != -1)
        dpb_str_appendf(out, ",\"bucket\":%" PRId32, event->bucket);
    if (event->bytes != 0)
        dpb_str_appendf(out, ",\"bytes\":%" PRId64, event->bytes);
    dpb_str_append(out, "}}");
    /* Directly behind its slice, so that it is bound to that one and not to a child of equal start.
     */
    if (slot->flow)
        append_flow(writer, slot);
}

/* The name of a process, or of a thread when `tid` is not 0, and its place in the viewer. */
static void append_name(struct writer *writer, int pid, size_t tid, const char *name,
                        size_t sort_index)
{
    const char *what = tid > 0 ? "thread" : "process";

    begin_event(writer, "M");
    dpb_str_appendf(&writer->out, ",\"name\":\"%s_name\",\"pid\":%d", what, pid);
    if (tid > 0)
        dpb_str_appendf(&writer->out, ",\"tid\":%zu", tid);
    dpb_str_appendf(&writer->out, ",\"args\":{\"name\":\"%s\"}}", name);
    begin_event(writer, "M");
    dpb_str_appendf(&writer->out, ",\"name\":\"%s_sort_index\",\"pid\":%d", what, pid);
    if (tid > 0)
        dpb_str_appendf(&writer->out, ",\"tid\":%zu", tid);
    dpb_str_appendf(&writer->out, ",\"args\":{\"sort_index\":%zu}}", sort_index);
}

/* The names of the process and the threads of one rank, whose slots these are. */
static void append_rank_names(struct writer *writer, const struct slot *slots, size_t count)
{
    size_t tracks[DPB_LANE_COUNT] = {0}, sort_index = 0;
    int rank = slots[0].event->rank;
    char name[64];

    for (size_t i = 0; i < count; i++) {
        if (tracks[slots[i].event->lane] < slots[i].track + 1)
            tracks[slots[i].event->lane] = slots[i].track + 1;
    }
    snprintf(name, sizeof(name), "rank %d", rank);
    append_name(writer, rank, 0, name, (size_t)rank);
    for (size_t lane = 0; lane < DPB_LANE_COUNT; lane++) {
        const char *text = dpb_trace_lane_text((enum dpb_lane)lane);

        for (size_t track = 0; track < tracks[lane]; track++) {
            if (track == 0)
                snprintf(name, sizeof(name), "%s", text);
            else
                snprintf(name, sizeof(name), "%s (%zu)", text, track + 1);
            append_name(writer, rank, thread_id(lane, track), name, sort_index++);
        }
    }
}

static void append_all_events(struct writer *writer, const struct trace *trace)
{
    size_t first = 0;

    while (first < trace->count) {
        size_t end = first + 1;

        while (end < trace->count &&
               trace->slots[end].event->rank == trace->slots[first].event->rank)
            end++;
        append_rank_names(writer, &trace->slots[first], end - first);
        for (size_t i = first; i < end; i++)
            append_event(writer, &trace->slots[i]);
        first = end;
    }
}

static int64_t saturate(uint64_t value)
{
    return value > INT64_MAX ? INT64_MAX : (int64_t)value;
}

/* Our own part of the metadata: what the caller adds may explain the clock, not change the rest. */
static dpb_json *own_metadata(const struct dpb_trace_info *info, const struct trace *trace)
{
    dpb_json *own = dpb_json_object();
    dpb_json_walk walk = {0};
    const dpb_json *value;
    const char *key;

    dpb_json_set_string(own, "schema", DPB_TRACE_SCHEMA);
    dpb_json_set_string(own, "clock", DPB_TRACE_CLOCK);
    while (info->extra && (value = dpb_json_next(info->extra, &walk, &key)) != NULL)
        dpb_json_set(own, key, dpb_json_copy(value));
    dpb_json_set_string(own, "schema", DPB_TRACE_SCHEMA);
    dpb_json_set_int(own, "events", saturate(trace->count));
    dpb_json_set_int(own, "lost_events", saturate(info->lost));
    dpb_json_set_int(own, "negative_events", saturate(trace->negative));
    return own;
}

static dpb_json *metadata(const struct dpb_trace_info *info, const struct trace *trace)
{
    const struct slot *last = trace->count > 0 ? &trace->slots[trace->count - 1] : NULL;
    dpb_json *root = dpb_json_object(), *distributed = dpb_json_object();

    if (info->backend)
        dpb_json_set_string(distributed, "backend", info->backend);
    /* a file of several ranks is no rank's */
    if (last && trace->slots[0].event->rank == last->event->rank)
        dpb_json_set_int(distributed, "rank", last->event->rank);
    dpb_json_set_int(distributed, "world_size", info->world_size);
    dpb_json_set_int(root, "schemaVersion", DPB_TRACE_SCHEMA_CHROME);
    dpb_json_set_string(root, "displayTimeUnit", "ms");
    dpb_json_set_int(root, "baseTimeNanoseconds", trace->base_ns);
    dpb_json_set(root, "distributedInfo", distributed);
    dpb_json_set_string(root, "traceName", info->title ? info->title : "");
    dpb_json_set(root, "dpbench", own_metadata(info, trace));
    return root;
}

/* The whole file: the metadata's object, reopened for the events, one a line. */
static dpb_status format(const struct dpb_trace_info *info, const struct trace *trace,
                         struct dpb_str *out)
{
    struct writer writer = {.separator = "\n", .base_ns = trace->base_ns};
    dpb_json *root = metadata(info, trace);
    dpb_status st = dpb_json_write(root, false, &writer.out);

    dpb_json_free(root);
    if (st < 0 || writer.out.length == 0) {
        dpb_str_release(&writer.out);
        return st < 0 ? st : DPB_ERR_NO_MEMORY;
    }
    writer.out.length--; /* its closing brace */
    dpb_str_append(&writer.out, ",\"traceEvents\":[");
    append_all_events(&writer, trace);
    dpb_str_append(&writer.out, "\n]}\n");
    if (writer.out.failed) {
        dpb_str_release(&writer.out);
        return DPB_ERR_NO_MEMORY;
    }
    *out = writer.out;
    return DPB_OK;
}

dpb_status dpb_trace_write(const char *path, const struct dpb_trace_info *info,
                           const struct dpb_event *events, size_t count)
{
    struct trace trace = {0};
    struct dpb_str text = {0};
    dpb_status st;

    DPB_TRY_GOTO(st, gather(path, events, count, &trace), done);
    DPB_TRY_GOTO(st, place_all(&trace), done);
    DPB_TRY_GOTO(st, join_flows(&trace), done);
    DPB_TRY_GOTO(st, format(info, &trace, &text), done);
    st = dpb_file_write_atomic(path, text.text, text.length);
done:
    if (st == DPB_ERR_NO_MEMORY && !text.text)
        dpb_error("cannot write the trace \"%s\": out of memory", path);
    dpb_str_release(&text);
    free(trace.slots);
    return st;
}

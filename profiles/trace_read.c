/* Reading a trace back: one pass over the text, times as digits. Keys may come in any order,
 * unknown ones are skipped; which lane a thread is follows from its name, which may come after its
 * events. */
#include "dpb_trace.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"
#include "json_scan.h"
#include "trace_format.h"

struct thread {
    int64_t pid, tid;
    enum dpb_lane lane;
};

/* An event whose start, lane and name are known only at the end. */
struct draft {
    struct dpb_event event;
    uint64_t start_ns, length_ns; /* start from the base */
    int64_t tid;
    size_t name; /* offset in `names` */
};

struct reading {
    struct json_scan scan;
    struct dpb_str key, text; /* scratch */
    struct dpb_str names;     /* each with its terminator */
    struct draft *drafts;
    size_t count, capacity;
    struct thread *threads;
    size_t thread_count, thread_capacity;
    dpb_json *own; /* "dpbench" */
    int64_t base_ns;
    bool has_base;
    size_t events_at; /* where the array of traceEvents begins; 0: there is none */
};

/* One member of traceEvents. */
struct item {
    struct draft draft;
    struct dpb_str phase, category, name, thread_name;
    int64_t pid;
    bool has_name, has_start, has_length, has_tid, has_pid;
};

static bool no_memory(struct reading *reading)
{
    reading->scan.no_memory = true;
    return json_scan_fail(&reading->scan, "out of memory");
}

static bool grow(struct reading *reading, void **array, size_t *capacity, size_t count,
                 size_t element_bytes)
{
    size_t wanted = *capacity ? 2 * *capacity : 64;
    void *grown;

    if (count < *capacity)
        return true;
    grown = reallocarray(*array, wanted, element_bytes);
    if (!grown)
        return no_memory(reading);
    *array = grown;
    *capacity = wanted;
    return true;
}

static const char *text_of(const struct dpb_str *str)
{
    return str->text ? str->text : "";
}

static bool is(const struct dpb_str *str, const char *text)
{
    return strcmp(text_of(str), text) == 0;
}

/* Empty it, but keep its memory for the next event. */
static void empty(struct dpb_str *str)
{
    str->length = 0;
    if (str->text)
        str->text[0] = '\0';
}

/* An integer of a member's range, "name". */
static bool read_int(struct json_scan *scan, const char *name, int64_t min, int64_t max,
                     int64_t *value)
{
    if (!json_scan_int(scan, value))
        return false;
    if (*value < min || *value > max)
        return json_scan_fail(scan, "%s %lld is out of range", name, (long long)*value);
    return true;
}

static bool read_args(struct reading *reading, struct item *item)
{
    struct json_scan *scan = &reading->scan;
    int64_t value;

    json_scan_enter(scan, '{');
    for (size_t i = 0; json_scan_item(scan, '}', i); i++) {
        if (!json_scan_key(scan, &reading->key))
            return false;
        if (is(&reading->key, "step")) {
            if (read_int(scan, "step", INT32_MIN, INT32_MAX, &value))
                item->draft.event.step = (int32_t)value;
        } else if (is(&reading->key, "bucket")) {
            if (read_int(scan, "bucket", INT32_MIN, INT32_MAX, &value))
                item->draft.event.bucket = (int32_t)value;
        } else if (is(&reading->key, "bytes")) {
            json_scan_int(scan, &item->draft.event.bytes);
        } else if (is(&reading->key, "name") && json_scan_peek(scan) == '"') {
            json_scan_string(scan, &item->thread_name);
        } else {
            json_scan_skip(scan, NULL, NULL);
        }
    }
    return json_scan_ok(scan);
}

static bool read_item(struct reading *reading, struct item *item)
{
    struct json_scan *scan = &reading->scan;

    json_scan_enter(scan, '{');
    for (size_t i = 0; json_scan_item(scan, '}', i); i++) {
        if (!json_scan_key(scan, &reading->key))
            return false;
        if (is(&reading->key, "ph")) {
            json_scan_string(scan, &item->phase);
        } else if (is(&reading->key, "cat")) {
            json_scan_string(scan, &item->category);
        } else if (is(&reading->key, "name")) {
            item->has_name = json_scan_string(scan, &item->name);
        } else if (is(&reading->key, "pid")) {
            item->has_pid = read_int(scan, "pid", 0, INT16_MAX, &item->pid);
        } else if (is(&reading->key, "tid")) {
            item->has_tid = json_scan_int(scan, &item->draft.tid);
        } else if (is(&reading->key, "ts")) {
            item->has_start = json_scan_us(scan, &item->draft.start_ns);
        } else if (is(&reading->key, "dur")) {
            item->has_length = json_scan_us(scan, &item->draft.length_ns);
        } else if (is(&reading->key, "args")) {
            read_args(reading, item);
        } else {
            json_scan_skip(scan, NULL, NULL);
        }
    }
    return json_scan_ok(scan);
}

static bool find_kind(const char *category, uint8_t *kind)
{
    for (int i = 0; i < DPB_EVENT_KIND_COUNT; i++) {
        if (strcmp(category, dpb_event_kind_text((enum dpb_event_kind)i)) == 0) {
            *kind = (uint8_t)i;
            return true;
        }
    }
    return false;
}

/* "comm" and "comm (2)" are threads of lane comm. */
static bool find_lane(const char *name, enum dpb_lane *lane)
{
    for (int i = 0; i < DPB_LANE_COUNT; i++) {
        const char *text = dpb_trace_lane_text((enum dpb_lane)i);
        size_t length = strlen(text);

        if (strncmp(name, text, length) == 0 &&
            (name[length] == '\0' || strncmp(name + length, " (", 2) == 0)) {
            *lane = (enum dpb_lane)i;
            return true;
        }
    }
    return false;
}

static bool keep_event(struct reading *reading, struct item *item, bool instant)
{
    struct json_scan *scan = &reading->scan;
    struct draft *draft = &item->draft;

    if (!item->has_name || !item->has_start || !item->has_pid || !item->has_tid ||
        item->has_length == instant)
        return json_scan_fail(scan, "an event without name, pid, tid, ts or dur");
    if (!find_kind(text_of(&item->category), &draft->event.kind))
        return json_scan_fail(scan, "\"%.40s\" is no kind of event", text_of(&item->category));
    if (!grow(reading, (void **)&reading->drafts, &reading->capacity, reading->count,
              sizeof(*draft)))
        return false;
    draft->event.rank = (int16_t)item->pid;
    draft->name = reading->names.length;
    dpb_str_append_bytes(&reading->names, item->name.text, item->name.length + 1);
    if (reading->names.failed)
        return no_memory(reading);
    reading->drafts[reading->count++] = *draft;
    return true;
}

static bool keep_thread(struct reading *reading, const struct item *item)
{
    const char *name = text_of(&item->thread_name);
    struct thread thread = {.pid = item->pid, .tid = item->draft.tid};

    if (!item->has_pid || !item->has_tid || !find_lane(name, &thread.lane))
        return json_scan_fail(&reading->scan, "\"%.40s\" is no lane", name);
    if (!grow(reading, (void **)&reading->threads, &reading->thread_capacity, reading->thread_count,
              sizeof(thread)))
        return false;
    reading->threads[reading->thread_count++] = thread;
    return true;
}

static void begin_item(struct item *item)
{
    item->draft = (struct draft){.event.bucket = -1};
    empty(&item->phase);
    empty(&item->category);
    empty(&item->name);
    empty(&item->thread_name);
    item->has_name = item->has_start = item->has_length = item->has_tid = item->has_pid = false;
}

static bool read_events(struct reading *reading)
{
    struct item item = {0};

    json_scan_enter(&reading->scan, '[');
    for (size_t i = 0; json_scan_item(&reading->scan, ']', i); i++) {
        begin_item(&item);
        if (!read_item(reading, &item))
            break;
        if (is(&item.phase, "X") || is(&item.phase, "i"))
            keep_event(reading, &item, is(&item.phase, "i"));
        else if (is(&item.phase, "M") && is(&item.name, "thread_name"))
            keep_thread(reading, &item);
    }
    dpb_str_release(&item.phase);
    dpb_str_release(&item.category);
    dpb_str_release(&item.name);
    dpb_str_release(&item.thread_name);
    return json_scan_ok(&reading->scan);
}

static bool read_own(struct reading *reading)
{
    const char *begin;
    size_t length;
    char why[256];
    dpb_status st;

    if (!json_scan_skip(&reading->scan, &begin, &length))
        return false;
    dpb_json_free(reading->own);
    reading->own = NULL;
    st = dpb_json_parse(begin, length, &reading->own, why);
    if (st == DPB_ERR_NO_MEMORY)
        return no_memory(reading);
    return st == DPB_OK || json_scan_fail(&reading->scan, "in \"dpbench\": %s", why);
}

static bool read_top(struct reading *reading)
{
    struct json_scan *scan = &reading->scan;

    json_scan_enter(scan, '{');
    for (size_t i = 0; json_scan_item(scan, '}', i); i++) {
        if (!json_scan_key(scan, &reading->key))
            return false;
        if (is(&reading->key, "traceEvents")) {
            reading->events_at = scan->at;
            json_scan_skip(scan, NULL, NULL);
        } else if (is(&reading->key, "baseTimeNanoseconds")) {
            reading->has_base = json_scan_int(scan, &reading->base_ns);
        } else if (is(&reading->key, "dpbench")) {
            read_own(reading);
        } else {
            json_scan_skip(scan, NULL, NULL);
        }
    }
    return json_scan_end(scan);
}

static int compare_threads(const void *left, const void *right)
{
    const struct thread *a = left, *b = right;

    if (a->pid != b->pid)
        return a->pid < b->pid ? -1 : 1;
    return a->tid < b->tid ? -1 : a->tid > b->tid;
}

/* Times and lanes of all drafts. */
static bool resolve(struct reading *reading)
{
    if (reading->thread_count > 0)
        qsort(reading->threads, reading->thread_count, sizeof(reading->threads[0]),
              compare_threads);
    for (size_t i = 0; i < reading->count; i++) {
        struct draft *draft = &reading->drafts[i];
        const struct thread wanted = {.pid = draft->event.rank, .tid = draft->tid};
        const struct thread *thread =
                reading->thread_count == 0
                        ? NULL
                        : bsearch(&wanted, reading->threads, reading->thread_count, sizeof(wanted),
                                  compare_threads);

        if (!thread)
            return json_scan_fail(&reading->scan, "thread %lld of process %d has no name",
                                  (long long)draft->tid, draft->event.rank);
        draft->event.lane = (uint8_t)thread->lane;
        if (__builtin_add_overflow(reading->base_ns, draft->start_ns, &draft->event.start_ns) ||
            __builtin_add_overflow(draft->event.start_ns, draft->length_ns, &draft->event.end_ns))
            return json_scan_fail(&reading->scan, "the time of event %zu is out of range", i);
    }
    return true;
}

/* Is this a file of ours? */
static dpb_status check_schema(const char *path, const struct reading *reading)
{
    const char *schema = dpb_json_as_string(dpb_json_get(reading->own, "schema"), NULL);

    if (schema && strcmp(schema, DPB_TRACE_SCHEMA) == 0)
        return DPB_OK;
    dpb_error("cannot read the trace \"%s\": its schema is \"%s\", this program reads \"%s\"", path,
              schema ? schema : "none", DPB_TRACE_SCHEMA);
    dpb_log_hint("only traces that this version of dpbench wrote can be read here");
    return DPB_ERR_UNSUPPORTED;
}

/* Read the events, and check that they are all there. */
static bool read_all(struct reading *reading, uint64_t *lost)
{
    int64_t events = dpb_json_as_int(dpb_json_get(reading->own, "events"), -1);
    int64_t lost_events = dpb_json_as_int(dpb_json_get(reading->own, "lost_events"), -1);

    if (!reading->events_at || !reading->has_base || events < 0 || lost_events < 0)
        return json_scan_fail(&reading->scan, "traceEvents, baseTimeNanoseconds, or the number of "
                                              "events or of lost ones is missing");
    reading->scan.at = reading->events_at;
    if (!read_events(reading) || !resolve(reading))
        return false;
    if ((uint64_t)events != reading->count)
        return json_scan_fail(&reading->scan, "it should hold %lld events, but holds %zu",
                              (long long)events, reading->count);
    *lost = (uint64_t)lost_events;
    return true;
}

static int compare_events(const void *left, const void *right)
{
    const struct draft *a = left, *b = right;

    if (a->event.rank != b->event.rank)
        return a->event.rank < b->event.rank ? -1 : 1;
    if (a->event.lane != b->event.lane)
        return a->event.lane < b->event.lane ? -1 : 1;
    if (a->event.start_ns != b->event.start_ns)
        return a->event.start_ns < b->event.start_ns ? -1 : 1;
    if (a->event.end_ns != b->event.end_ns)
        return a->event.end_ns > b->event.end_ns ? -1 : 1;
    return a->name < b->name ? -1 : a->name > b->name; /* as in the file */
}

static bool hand_over(struct reading *reading, struct dpb_event **events, char **names)
{
    struct dpb_event *made = malloc((reading->count + 1) * sizeof(made[0]));

    dpb_str_append(&reading->names, ""); /* a block even without events */
    if (!made || reading->names.failed) {
        free(made);
        return no_memory(reading);
    }
    if (reading->count > 0)
        qsort(reading->drafts, reading->count, sizeof(reading->drafts[0]), compare_events);
    for (size_t i = 0; i < reading->count; i++) {
        made[i] = reading->drafts[i].event;
        made[i].name = reading->names.text + reading->drafts[i].name;
    }
    *events = made;
    *names = reading->names.text;
    reading->names = (struct dpb_str){0};
    return true;
}

dpb_status dpb_trace_read(const char *path, struct dpb_event **events, size_t *count, char **names,
                          uint64_t *lost)
{
    struct reading reading = {0};
    struct dpb_str file = {0};
    uint64_t lost_events = 0;
    dpb_status st;

    DPB_TRY(dpb_file_read(path, &file));
    reading.scan.text = file.text;
    reading.scan.length = file.length;
    if (read_top(&reading)) {
        DPB_TRY_GOTO(st, check_schema(path, &reading), done);
        if (read_all(&reading, &lost_events) && hand_over(&reading, events, names)) {
            *count = reading.count;
            *lost = lost_events;
            goto done;
        }
    }
    st = reading.scan.no_memory ? DPB_ERR_NO_MEMORY : DPB_ERR_CORRUPT;
    dpb_error("cannot read the trace \"%s\": %s", path, reading.scan.why);
    if (st == DPB_ERR_CORRUPT)
        dpb_log_hint("the file is damaged or cut; run the traced steps again");
done:
    dpb_json_free(reading.own);
    free(reading.threads);
    free(reading.drafts);
    dpb_str_release(&reading.names);
    dpb_str_release(&reading.key);
    dpb_str_release(&file);
    return st;
}

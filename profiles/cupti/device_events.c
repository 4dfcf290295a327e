#include "device_events.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"
#include "kernel_name.h"

#define NAME_BYTES    128  /* of a kernel's short name */
#define STEPS_COUNTED 4096 /* kernels per step are counted for so many */
#define NO_NAME       SIZE_MAX

/* What a kernel's name says, once per kernel. */
struct kernel {
    char text[NAME_BYTES];
    bool is_comm;
};

/* "operator: kernel" as one text, once per pair. */
struct pair {
    const char *range; /* NULL: none */
    const char *work;
    size_t name; /* offset in `text`; NO_NAME: the place is free */
};

struct making {
    struct cupti_records *records;
    const struct cupti_run *run;
    struct cupti_events *made;
    struct dpb_losses *losses;
    struct kernel *kernels;
    struct pair *pairs;
    size_t pair_mask; /* places - 1; places are a power of 2 */
    size_t *name_of;  /* of each event, offset in `text` */
    struct dpb_str text;
    int64_t of_step[STEPS_COUNTED]; /* kernels */
    int32_t first_step;             /* of of_step */
};

/* What the host had said when the work was launched. */
struct place {
    const char *range;
    int32_t step, bucket;
    bool is_known;
};

static int compare_u32(uint32_t a, uint32_t b)
{
    return a < b ? -1 : a > b;
}

static int compare_calls(const void *left, const void *right)
{
    const struct cupti_call *a = left, *b = right;

    return compare_u32(a->correlation, b->correlation);
}

static int compare_externals(const void *left, const void *right)
{
    const struct cupti_external *a = left, *b = right;
    const int order = compare_u32(a->correlation, b->correlation);

    return order ? order : compare_u32(a->kind, b->kind);
}

static int compare_u64(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

static int compare_work(const void *left, const void *right)
{
    const struct cupti_work *a = *(struct cupti_work *const *)left;
    const struct cupti_work *b = *(struct cupti_work *const *)right;
    const int orders[] = {
            compare_u32(a->correlation, b->correlation), compare_u64(a->start_ns, b->start_ns),
            compare_u64(a->end_ns, b->end_ns),           compare_u32(a->kind, b->kind),
            compare_u32(a->stream, b->stream),           compare_u64(a->node, b->node),
    };

    for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++)
        if (orders[i])
            return orders[i];
    return 0;
}

/* CUPTI 13 was seen to deliver a thread's buffer twice (NVIDIA/Fuser#5402): nothing runs twice at
 * the same time in the same stream and node for the same launch. Records without a launch or times
 * are not told apart. False: out of memory. */
static bool mark_repeated(struct cupti_records *records, struct dpb_losses *losses)
{
    const size_t count = records->work.count;
    struct cupti_work **sorted = calloc(count + 1, sizeof(struct cupti_work *));

    if (!sorted)
        return false;
    for (size_t i = 0; i < count; i++)
        sorted[i] = &records->work.at[i];
    qsort(sorted, count, sizeof(struct cupti_work *), compare_work);
    for (size_t i = 1; i < count; i++) {
        sorted[i]->is_repeated = sorted[i]->correlation != 0 && sorted[i]->start_ns != 0 &&
                                 compare_work(&sorted[i - 1], &sorted[i]) == 0;
        losses->repeated += sorted[i]->is_repeated;
    }
    free(sorted);
    return true;
}

static void sort_records(struct cupti_records *records)
{
    if (records->calls.count > 0)
        qsort(records->calls.at, records->calls.count, sizeof(records->calls.at[0]), compare_calls);
    if (records->externals.count > 0)
        qsort(records->externals.at, records->externals.count, sizeof(records->externals.at[0]),
              compare_externals);
}

static const struct cupti_external *find_external(const struct cupti_records *records,
                                                  uint32_t correlation, uint32_t kind)
{
    const struct cupti_external wanted = {.correlation = correlation, .kind = kind};

    if (records->externals.count == 0)
        return NULL;
    return bsearch(&wanted, records->externals.at, records->externals.count, sizeof(wanted),
                   compare_externals);
}

/* Say of all calls with this number that they have work: the runtime's, and the driver's inside it.
 */
static bool match_calls(struct cupti_records *records, uint32_t correlation)
{
    const struct cupti_call wanted = {.correlation = correlation};
    struct cupti_call *const first = records->calls.at;
    struct cupti_call *found;

    if (records->calls.count == 0)
        return false;
    found = bsearch(&wanted, first, records->calls.count, sizeof(wanted), compare_calls);
    if (!found)
        return false;
    while (found > first && found[-1].correlation == correlation)
        found--;
    for (; found < first + records->calls.count && found->correlation == correlation; found++)
        found->has_work = true;
    return true;
}

static struct place find_place(struct making *making, uint32_t correlation)
{
    struct cupti_records *records = making->records;
    const struct cupti_external *where =
            find_external(records, correlation, CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0);
    const struct cupti_external *range =
            find_external(records, correlation, CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM1);
    struct place place = {.step = -1, .bucket = -1};

    /* Correlation 0 is none: it would join what has nothing to do with one another. */
    if (correlation == 0)
        return place;
    place.is_known = match_calls(records, correlation) || where;
    if (where) {
        place.step = (int32_t)(where->id >> 16);
        if ((where->id & CUPTI_NO_BUCKET) != CUPTI_NO_BUCKET)
            place.bucket = (int32_t)(where->id & CUPTI_NO_BUCKET);
    }
    if (range && range->id > 0 && range->id <= making->run->range_count)
        place.range = making->run->range_names[range->id - 1];
    return place;
}

static const char *copy_text(const struct cupti_work *work)
{
    if (work->kind == CUPTI_WORK_FILL)
        return "memset";
    switch (work->copy_kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
        return "memcpy host to device";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
        return "memcpy device to host";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD:
        return "memcpy device to device";
    case CUPTI_ACTIVITY_MEMCPY_KIND_PTOP:
        return "memcpy between devices";
    default:
        return "memcpy";
    }
}

static const char *overhead_text(uint32_t kind)
{
    static const struct {
        uint32_t kind;
        const char *text;
    } texts[] = {
            {CUPTI_ACTIVITY_OVERHEAD_DRIVER_COMPILER, "driver's compiler"},
            {CUPTI_ACTIVITY_OVERHEAD_CUPTI_BUFFER_FLUSH, "cupti: flush"},
            {CUPTI_ACTIVITY_OVERHEAD_CUPTI_INSTRUMENTATION, "cupti: instrumentation"},
            {CUPTI_ACTIVITY_OVERHEAD_CUPTI_RESOURCE, "cupti: resources"},
            {CUPTI_ACTIVITY_OVERHEAD_RUNTIME_TRIGGERED_MODULE_LOADING, "module loading"},
            {CUPTI_ACTIVITY_OVERHEAD_LAZY_FUNCTION_LOADING, "lazy function loading"},
            {CUPTI_ACTIVITY_OVERHEAD_COMMAND_BUFFER_FULL, "command buffer full"},
            {CUPTI_ACTIVITY_OVERHEAD_ACTIVITY_BUFFER_REQUEST, "cupti: buffer request"},
            {CUPTI_ACTIVITY_OVERHEAD_UVM_ACTIVITY_INIT, "managed memory"},
    };

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (texts[i].kind == kind)
            return texts[i].text;
    }
    return "overhead";
}

static size_t hash_pair(const char *range, const char *work)
{
    const uint64_t mixed = ((uint64_t)(uintptr_t)range * UINT64_C(0x9e3779b97f4a7c15)) ^
                           ((uint64_t)(uintptr_t)work * UINT64_C(0xc2b2ae3d27d4eb4f));

    return (size_t)(mixed >> 20);
}

/* Offset of the text "range: work". Both are known by their address: one per name and kernel. */
static size_t pair_name(struct making *making, const char *range, const char *work)
{
    size_t place = hash_pair(range, work) & making->pair_mask;
    struct pair *pair = &making->pairs[place];

    while (pair->name != NO_NAME && (pair->range != range || pair->work != work)) {
        place = (place + 1) & making->pair_mask;
        pair = &making->pairs[place];
    }
    if (pair->name == NO_NAME) {
        *pair = (struct pair){range, work, making->text.length};
        dpb_str_append(&making->text, range ? range : "");
        dpb_str_append(&making->text, range ? ": " : "");
        dpb_str_append(&making->text, work);
        dpb_str_append_bytes(&making->text, "", 1);
    }
    return pair->name;
}

static int64_t to_ours(const struct making *making, uint64_t cupti_ns)
{
    return cupti_clock_to_monotonic(&making->run->from, &making->run->to, (int64_t)cupti_ns);
}

/* Are they times of a range? CUPTI's are nanoseconds since 1970; a few are 0, "not collected". What
 * lies beyond a century or lasts for most of a day is no time either, and sums of the others do not
 * overflow. */
static bool has_times(uint64_t start_ns, uint64_t end_ns)
{
    return start_ns > 0 && end_ns >= start_ns && end_ns < UINT64_C(1) << 62 &&
           end_ns - start_ns < UINT64_C(1) << 46;
}

/* One more event, with the rank and the times in our clock. There is room for it. */
static struct dpb_event *add_event(struct making *making, uint64_t start_ns, uint64_t end_ns,
                                   size_t name)
{
    struct dpb_event *event = &making->made->events[making->made->count];

    making->name_of[making->made->count++] = name;
    *event = (struct dpb_event){
            .start_ns = to_ours(making, start_ns),
            .end_ns = to_ours(making, end_ns),
            .step = -1,
            .bucket = -1,
            .rank = making->run->rank,
    };
    if (event->end_ns < event->start_ns) /* the clock was set back within it */
        event->end_ns = event->start_ns;
    return event;
}

static void count_kernel(struct making *making, int32_t step)
{
    const int64_t index = (int64_t)step - making->first_step;

    making->losses->kernels++;
    if (step >= 0 && index >= 0 && index < STEPS_COUNTED)
        making->of_step[index]++;
}

static void add_work(struct making *making, const struct cupti_work *work)
{
    const bool is_kernel = work->kind == CUPTI_WORK_KERNEL;
    const struct kernel *kernel = is_kernel ? &making->kernels[work->name] : NULL;
    const struct place place = find_place(making, work->correlation);
    struct dpb_event *event;

    if (is_kernel)
        count_kernel(making, place.step);
    if (!has_times(work->start_ns, work->end_ns)) {
        making->losses->zero_time++;
        return;
    }
    /* Libraries fill and copy by calls of the driver that are not recorded. */
    making->losses->unmatched += is_kernel && !place.is_known;
    event = add_event(making, work->start_ns, work->end_ns,
                      pair_name(making, place.range, is_kernel ? kernel->text : copy_text(work)));
    event->step = place.step;
    event->bucket = place.bucket;
    event->bytes = work->bytes;
    if (!is_kernel) {
        event->kind = DPB_EVENT_COPY;
        event->lane = DPB_LANE_COPY;
    } else if (kernel->is_comm) {
        event->kind = DPB_EVENT_COMM;
        event->lane = DPB_LANE_DEVICE_COMM;
    } else {
        event->kind = DPB_EVENT_COMPUTE;
        event->lane = DPB_LANE_DEVICE;
    }
}

static void add_overhead(struct making *making, const struct cupti_overhead *overhead)
{
    struct dpb_event *event;

    if (!has_times(overhead->start_ns, overhead->end_ns))
        return;
    event = add_event(making, overhead->start_ns, overhead->end_ns,
                      pair_name(making, NULL, overhead_text(overhead->kind)));
    event->kind = DPB_EVENT_OVERHEAD;
    event->lane = DPB_LANE_HOST;
    making->losses->overhead_ns += event->end_ns - event->start_ns;
}

static void add_marker(struct making *making, const struct cupti_marker *marker)
{
    struct dpb_event *event;

    if (!has_times(marker->start_ns, marker->end_ns))
        return;
    event = add_event(making, marker->start_ns, marker->end_ns,
                      pair_name(making, NULL, making->records->text.text + marker->name));
    event->kind = DPB_EVENT_NOTE;
    event->lane = DPB_LANE_STRATEGY;
}

static void name_kernels(struct making *making)
{
    const struct cupti_records *records = making->records;

    for (size_t i = 0; i < records->names.count; i++) {
        const char *name = records->text.text + records->names.at[i].name;

        kernel_name_shorten(name, making->kernels[i].text, NAME_BYTES);
        making->kernels[i].is_comm = kernel_name_is_comm(name);
    }
}

/* The lowest step that the host has named. */
static int32_t find_first_step(const struct cupti_records *records)
{
    int32_t first = INT32_MAX;

    for (size_t i = 0; i < records->externals.count; i++) {
        const struct cupti_external *external = &records->externals.at[i];
        const int32_t step = (int32_t)(external->id >> 16);

        if (external->kind == CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0 && step >= 0 && step < first)
            first = step;
    }
    return first;
}

static void count_rest(struct making *making)
{
    struct dpb_losses *losses = making->losses;

    for (size_t i = 0; i < making->records->calls.count; i++) {
        const struct cupti_call *call = &making->records->calls.at[i];

        losses->unmatched += call->is_graph_launch && !call->has_work;
    }
    for (size_t i = 0; i < STEPS_COUNTED; i++) {
        const int64_t kernels = making->of_step[i];

        if (kernels == 0)
            continue;
        if (losses->kernels_per_step_min == 0 || kernels < losses->kernels_per_step_min)
            losses->kernels_per_step_min = kernels;
        if (kernels > losses->kernels_per_step_max)
            losses->kernels_per_step_max = kernels;
    }
    losses->damaged_buffers += making->records->damaged_buffers;
    losses->sync_wait_ns += making->records->sync_wait_ns;
    losses->clock_bound_ns = cupti_clock_bound_ns(&making->run->from, &making->run->to);
}

static bool alloc_all(struct making *making)
{
    const struct cupti_records *records = making->records;
    const size_t most = records->work.count + records->overheads.count + records->markers.count;
    size_t places = 64;

    while (places < 2 * most)
        places *= 2;
    making->pair_mask = places - 1;
    making->pairs = calloc(places, sizeof(making->pairs[0]));
    making->kernels = calloc(records->names.count + 1, sizeof(making->kernels[0]));
    making->name_of = calloc(most + 1, sizeof(making->name_of[0]));
    making->made->events = calloc(most + 1, sizeof(making->made->events[0]));
    for (size_t i = 0; making->pairs && i < places; i++)
        making->pairs[i].name = NO_NAME;
    return making->pairs && making->kernels && making->name_of && making->made->events;
}

static void add_all(struct making *making)
{
    const struct cupti_records *records = making->records;

    for (size_t i = 0; i < records->work.count; i++)
        if (!records->work.at[i].is_repeated)
            add_work(making, &records->work.at[i]);
    for (size_t i = 0; i < records->overheads.count; i++)
        add_overhead(making, &records->overheads.at[i]);
    for (size_t i = 0; i < records->markers.count; i++)
        add_marker(making, &records->markers.at[i]);
    count_rest(making);
}

dpb_status cupti_events_make(struct cupti_records *records, const struct cupti_run *run,
                             struct cupti_events *events, struct dpb_losses *losses)
{
    struct making *making = calloc(1, sizeof(*making));
    struct cupti_events made = {0};
    bool done = false;

    if (making && !records->no_memory) {
        *making = (struct making){.records = records, .run = run, .made = &made, .losses = losses};
        making->first_step = find_first_step(records);
        sort_records(records);
        if (mark_repeated(records, losses) && alloc_all(making)) {
            name_kernels(making);
            add_all(making);
            dpb_str_append(&making->text, ""); /* a block even without events */
            done = !making->text.failed;
        }
    }
    if (done) {
        made.names = making->text.text;
        for (size_t i = 0; i < made.count; i++)
            made.events[i].name = made.names + making->name_of[i];
        making->text = (struct dpb_str){0};
        *events = made;
    }
    if (making) {
        dpb_str_release(&making->text);
        free(making->pairs);
        free(making->kernels);
        free(making->name_of);
    }
    free(making);
    if (done)
        return DPB_OK;
    cupti_events_release(&made);
    dpb_error("cannot read the trace of the device: out of memory");
    return DPB_ERR_NO_MEMORY;
}

void cupti_events_release(struct cupti_events *events)
{
    free(events->events);
    free(events->names);
    *events = (struct cupti_events){0};
}

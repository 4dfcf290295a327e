/* Interval unions, and the breakdown of a step into what its time went into. */
#include "dpb_overlap.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"

static int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int compare_intervals(const void *left, const void *right)
{
    const struct dpb_interval *a = left, *b = right;

    if (a->start_ns != b->start_ns)
        return a->start_ns < b->start_ns ? -1 : 1;
    return a->end_ns < b->end_ns ? -1 : a->end_ns > b->end_ns;
}

size_t dpb_intervals_union(struct dpb_interval *intervals, size_t count)
{
    size_t kept = 0, merged = 0;

    for (size_t i = 0; i < count; i++) {
        if (intervals[i].end_ns > intervals[i].start_ns)
            intervals[kept++] = intervals[i];
    }
    if (kept == 0)
        return 0;
    qsort(intervals, kept, sizeof(intervals[0]), compare_intervals);
    for (size_t i = 1; i < kept; i++) {
        if (intervals[i].start_ns <= intervals[merged].end_ns)
            intervals[merged].end_ns = max_i64(intervals[merged].end_ns, intervals[i].end_ns);
        else
            intervals[++merged] = intervals[i];
    }
    return merged + 1;
}

int64_t dpb_intervals_length_ns(const struct dpb_interval *merged, size_t count)
{
    int64_t length_ns = 0;

    for (size_t i = 0; i < count; i++)
        length_ns += merged[i].end_ns - merged[i].start_ns;
    return length_ns;
}

int64_t dpb_intervals_overlap_ns(const struct dpb_interval *a, size_t a_count,
                                 const struct dpb_interval *b, size_t b_count)
{
    int64_t overlap_ns = 0;
    size_t i = 0, j = 0;

    while (i < a_count && j < b_count) {
        int64_t start_ns = max_i64(a[i].start_ns, b[j].start_ns);
        int64_t end_ns = min_i64(a[i].end_ns, b[j].end_ns);

        if (end_ns > start_ns)
            overlap_ns += end_ns - start_ns;
        if (a[i].end_ns < b[j].end_ns)
            i++;
        else
            j++;
    }
    return overlap_ns;
}

/* ---- breakdown ---- */

/* What may cover a moment of a step; a set of them is a bit mask. */
enum cover {
    COVER_COMPUTE,
    COVER_COMM,
    COVER_WAIT,
    COVER_DATA,
    COVER_LAUNCH,
    COVER_COPY,
    COVER_COUNT
};

/* What the events of a rank say about it; a bit mask. */
enum rank_trait {
    RANK_DEVICE = 1 << 0,      /* kernels on device lanes */
    RANK_DEVICE_COMM = 1 << 1, /* kernels of collectives */
    RANK_COMM = 1 << 2         /* collectives as the host sees them */
};

/* The traits of every number that a rank may have. */
struct traits {
    uint8_t of_rank[1 << 16];
};

struct edge {
    int64_t at_ns;
    int cover;
    int change; /* +1 at a start, -1 at an end */
};

struct span {
    struct dpb_breakdown row;
    int64_t start_ns, end_ns;
    int64_t device_end_ns; /* of the last kernel with this step's number; INT64_MIN: none */
    int64_t reach_ns;      /* latest end of this rank's spans up to this one, in order of start */
    size_t edge_count;
    struct edge *edges;
};

static int compare_by_start(const void *left, const void *right)
{
    const struct span *a = left, *b = right;

    if (a->row.rank != b->row.rank)
        return a->row.rank < b->row.rank ? -1 : 1;
    if (a->start_ns != b->start_ns)
        return a->start_ns < b->start_ns ? -1 : 1;
    if (a->end_ns != b->end_ns)
        return a->end_ns < b->end_ns ? -1 : 1;
    return a->row.step < b->row.step ? -1 : a->row.step > b->row.step;
}

static int compare_by_step(const void *left, const void *right)
{
    const struct span *a = left, *b = right;

    if (a->row.rank != b->row.rank)
        return a->row.rank < b->row.rank ? -1 : 1;
    if (a->row.step != b->row.step)
        return a->row.step < b->row.step ? -1 : 1;
    return compare_by_start(left, right);
}

static int compare_rows(const void *left, const void *right)
{
    const struct dpb_breakdown *a = left, *b = right;

    if (a->step != b->step)
        return a->step < b->step ? -1 : 1;
    return a->rank < b->rank ? -1 : a->rank > b->rank;
}

static int compare_edges(const void *left, const void *right)
{
    const struct edge *a = left, *b = right;

    return a->at_ns < b->at_ns ? -1 : a->at_ns > b->at_ns;
}

static unsigned traits_of(const struct traits *traits, int16_t rank)
{
    return traits->of_rank[(uint16_t)rank];
}

static void find_traits(const struct dpb_event *events, size_t count, struct traits *traits)
{
    for (size_t i = 0; i < count; i++) {
        uint8_t *trait = &traits->of_rank[(uint16_t)events[i].rank];

        if (events[i].end_ns < events[i].start_ns)
            continue;
        if (events[i].lane == DPB_LANE_DEVICE)
            *trait |= RANK_DEVICE;
        else if (events[i].lane == DPB_LANE_DEVICE_COMM)
            *trait |= RANK_DEVICE | RANK_DEVICE_COMM;
        else if (events[i].kind == DPB_EVENT_COMM)
            *trait |= RANK_COMM;
    }
}

/* -1: the event covers nothing. */
static int cover_of(const struct dpb_event *event, unsigned traits)
{
    switch (event->kind) {
    case DPB_EVENT_COMPUTE:
        return !(traits & RANK_DEVICE) || dpb_lane_is_device(event->lane) ? COVER_COMPUTE
                                                                          : COVER_LAUNCH;
    case DPB_EVENT_COMM:
        return !(traits & RANK_DEVICE_COMM) || dpb_lane_is_device(event->lane) ? COVER_COMM : -1;
    case DPB_EVENT_COMM_WAIT:
        return COVER_WAIT;
    case DPB_EVENT_DATA:
        return COVER_DATA;
    case DPB_EVENT_COPY:
        return COVER_COPY;
    default:
        return -1;
    }
}

/* Is it a collective, counted once? The host knows its bytes; its kernel is one of them again. */
static bool is_collective(const struct dpb_event *event, unsigned traits)
{
    return event->kind == DPB_EVENT_COMM &&
           (!(traits & RANK_COMM) || !dpb_lane_is_device(event->lane));
}

/* Where the length of a host span of this kind is summed, or NULL. */
static int64_t *host_sum(struct dpb_breakdown *row, unsigned kind)
{
    switch (kind) {
    case DPB_EVENT_FORWARD:
        return &row->forward_ns;
    case DPB_EVENT_BACKWARD:
        return &row->backward_ns;
    case DPB_EVENT_OPTIMIZER:
        return &row->optimizer_ns;
    case DPB_EVENT_SYNC:
        return &row->sync_ns;
    default:
        return NULL;
    }
}

/* Does the event share time with the span? One without length counts where it lies, ends included:
 * a bucket may become ready in the last nanosecond of its step. */
static bool touches(const struct dpb_event *event, const struct span *span)
{
    if (event->start_ns == event->end_ns)
        return span->start_ns <= event->start_ns && event->start_ns <= span->end_ns;
    return event->start_ns < span->end_ns && span->start_ns < event->end_ns;
}

/* The number of spans that, in order of (rank, start), lie before any that starts after the event.
 */
static size_t spans_until(const struct span *spans, size_t count, const struct dpb_event *event)
{
    size_t low = 0, high = count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct span *span = &spans[middle];
        bool before = span->row.rank != event->rank ? span->row.rank < event->rank
                                                    : span->start_ns <= event->end_ns;

        if (before)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* What a visit of an event and a span that touch does; `last` is true for one span per event. */
typedef void (*visit_fn)(struct span *span, const struct dpb_event *event, unsigned traits,
                         bool last);

static void visit_count(struct span *span, const struct dpb_event *event, unsigned traits,
                        bool last)
{
    (void)last;
    if (cover_of(event, traits) >= 0 && event->end_ns > event->start_ns)
        span->edge_count += 2;
}

static void visit_fill(struct span *span, const struct dpb_event *event, unsigned traits, bool last)
{
    int64_t start_ns = max_i64(event->start_ns, span->start_ns);
    int64_t end_ns = min_i64(event->end_ns, span->end_ns);
    int64_t *sum = host_sum(&span->row, event->kind);
    int cover = cover_of(event, traits);

    if (sum)
        *sum += end_ns - start_ns;
    if (cover >= 0 && event->end_ns > event->start_ns) {
        span->edges[span->edge_count++] = (struct edge){start_ns, cover, 1};
        span->edges[span->edge_count++] = (struct edge){end_ns, cover, -1};
    }
    if (last && is_collective(event, traits)) {
        span->row.collectives++;
        span->row.comm_bytes += event->bytes;
    }
}

/* Visit every pair of an event and a span of its rank that touch; the number of events, steps
 * apart, that touch none. */
static size_t visit_pairs(struct span *spans, size_t span_count, const struct dpb_event *events,
                          size_t count, const struct traits *traits, visit_fn visit)
{
    size_t alone = 0;

    for (size_t i = 0; i < count; i++) {
        const struct dpb_event *event = &events[i];
        bool found = false;

        if (event->kind == DPB_EVENT_STEP || event->end_ns < event->start_ns)
            continue;
        for (size_t j = spans_until(spans, span_count, event); j-- > 0;) {
            struct span *span = &spans[j];

            if (span->row.rank != event->rank || span->reach_ns < event->start_ns)
                break;
            if (touches(event, span)) {
                visit(span, event, traits_of(traits, event->rank), !found);
                found = true;
            }
        }
        if (!found)
            alone++;
    }
    return alone;
}

/* Time covered by exactly each set of covers, from the sorted edges. */
static void measure(const struct span *span, int64_t time_ns[1 << COVER_COUNT])
{
    int open[COVER_COUNT] = {0};
    unsigned mask = 0;

    memset(time_ns, 0, (1 << COVER_COUNT) * sizeof(time_ns[0]));
    for (size_t i = 0; i < span->edge_count; i++) {
        const struct edge *edge = &span->edges[i];

        if (i > 0)
            time_ns[mask] += edge->at_ns - span->edges[i - 1].at_ns;
        open[edge->cover] += edge->change;
        mask = open[edge->cover] > 0 ? mask | 1u << edge->cover : mask & ~(1u << edge->cover);
    }
}

static void fill_row(struct span *span)
{
    const unsigned compute = 1u << COVER_COMPUTE, comm = 1u << COVER_COMM;
    const unsigned wait = 1u << COVER_WAIT, data = 1u << COVER_DATA;
    const unsigned launch = 1u << COVER_LAUNCH, copy = 1u << COVER_COPY;
    struct dpb_breakdown *row = &span->row;
    int64_t time_ns[1 << COVER_COUNT];

    /* An end sorted before a start of the same moment only leaves a stretch of length 0. */
    if (span->edge_count > 0)
        qsort(span->edges, span->edge_count, sizeof(span->edges[0]), compare_edges);
    measure(span, time_ns);
    row->span_ns = span->end_ns - span->start_ns;
    row->idle_ns = row->span_ns;
    for (unsigned mask = 0; mask < 1 << COVER_COUNT; mask++) {
        bool computes = mask & compute, communicates = mask & comm;

        if (computes)
            row->compute_ns += time_ns[mask];
        if (communicates)
            row->comm_ns += time_ns[mask];
        if (computes && communicates)
            row->overlap_ns += time_ns[mask];
        if (communicates && !computes)
            row->exposed_ns += time_ns[mask];
        if (communicates && !computes && (mask & wait))
            row->comm_wait_ns += time_ns[mask];
        if (computes || communicates) {
            row->idle_ns -= time_ns[mask];
            continue;
        }
        if (mask & data)
            row->data_ns += time_ns[mask];
        if (mask & launch)
            row->launch_ns += time_ns[mask];
        if (mask & copy)
            row->copy_ns += time_ns[mask];
    }
}

static void copy_span(struct span *span, const struct dpb_event *event)
{
    *span = (struct span){
            .row = {.rank = event->rank, .step = event->step},
            .start_ns = event->start_ns,
            .end_ns = event->end_ns,
            .device_end_ns = INT64_MIN,
    };
}

static int compare_step_number(const void *left, const void *right)
{
    const struct span *a = left, *b = right;

    if (a->row.rank != b->row.rank)
        return a->row.rank < b->row.rank ? -1 : 1;
    return a->row.step < b->row.step ? -1 : a->row.step > b->row.step;
}

/* Where each step's last kernel ends; the spans are in order of (rank, step). */
static void find_device_ends(const struct dpb_event *events, size_t count, struct span *spans,
                             size_t span_count)
{
    for (size_t i = 0; i < count; i++) {
        const struct dpb_event *event = &events[i];
        const struct span wanted = {.row = {.rank = event->rank, .step = event->step}};
        struct span *span;

        if ((event->lane != DPB_LANE_DEVICE && event->lane != DPB_LANE_DEVICE_COMM) ||
            event->end_ns < event->start_ns)
            continue;
        span = bsearch(&wanted, spans, span_count, sizeof(spans[0]), compare_step_number);
        if (span)
            span->device_end_ns = max_i64(span->device_end_ns, event->end_ns);
    }
}

/* The spans of a device's rank, in order of their start, follow each other: each lasts until its
 * last kernel has ended, and none begins before the one before it has. */
static void stretch_spans(struct span *spans, size_t count, const struct traits *traits)
{
    for (size_t i = 0; i < count; i++) {
        struct span *span = &spans[i];
        const struct span *before =
                i > 0 && spans[i - 1].row.rank == span->row.rank ? span - 1 : NULL;

        span->row.has_device = traits_of(traits, (int16_t)span->row.rank) & RANK_DEVICE;
        if (!span->row.has_device)
            continue;
        if (before)
            span->start_ns = max_i64(span->start_ns, before->end_ns);
        span->end_ns = max_i64(span->start_ns, max_i64(span->end_ns, span->device_end_ns));
    }
}

/* Gather the step spans, sorted by (rank, start). Of several with the same rank and step the first
 * stays and the others are stray. */
static size_t gather_spans(const struct dpb_event *events, size_t count,
                           const struct traits *traits, struct span *spans, size_t *stray)
{
    size_t found = 0, kept = 0;

    for (size_t i = 0; i < count; i++) {
        if (events[i].kind == DPB_EVENT_STEP && events[i].end_ns >= events[i].start_ns)
            copy_span(&spans[found++], &events[i]);
    }
    if (found == 0)
        return 0;
    qsort(spans, found, sizeof(spans[0]), compare_by_step);
    for (size_t i = 0; i < found; i++) {
        if (kept > 0 && spans[kept - 1].row.rank == spans[i].row.rank &&
            spans[kept - 1].row.step == spans[i].row.step)
            (*stray)++;
        else
            spans[kept++] = spans[i];
    }
    find_device_ends(events, count, spans, kept);
    qsort(spans, kept, sizeof(spans[0]), compare_by_start);
    stretch_spans(spans, kept, traits);
    for (size_t i = 0; i < kept; i++) {
        bool first = i == 0 || spans[i - 1].row.rank != spans[i].row.rank;

        spans[i].reach_ns =
                first ? spans[i].end_ns : max_i64(spans[i - 1].reach_ns, spans[i].end_ns);
    }
    return kept;
}

/* Room for every span's edges, whose numbers visit_count() has left in edge_count. */
static struct edge *divide_edges(struct span *spans, size_t span_count)
{
    size_t total = 0;
    struct edge *edges;

    for (size_t i = 0; i < span_count; i++)
        total += spans[i].edge_count;
    edges = malloc((total + 1) * sizeof(edges[0])); /* + 1: nothing to cover is no failure */
    if (!edges)
        return NULL;
    total = 0;
    for (size_t i = 0; i < span_count; i++) {
        spans[i].edges = edges + total;
        total += spans[i].edge_count;
        spans[i].edge_count = 0;
    }
    return edges;
}

dpb_status dpb_breakdown_compute(const struct dpb_event *events, size_t count,
                                 struct dpb_breakdown **rows, size_t *row_count, size_t *stray,
                                 size_t *negative)
{
    size_t step_count = 0, negative_count = 0, stray_count = 0, span_count;
    struct dpb_breakdown *made = NULL;
    struct traits *traits = calloc(1, sizeof(*traits));
    struct span *spans = NULL;
    struct edge *edges = NULL;

    for (size_t i = 0; i < count; i++) {
        negative_count += events[i].end_ns < events[i].start_ns;
        step_count += events[i].kind == DPB_EVENT_STEP;
    }
    spans = malloc((step_count + 1) * sizeof(spans[0]));
    if (!spans || !traits)
        goto no_memory;
    find_traits(events, count, traits);
    span_count = gather_spans(events, count, traits, spans, &stray_count);
    stray_count += visit_pairs(spans, span_count, events, count, traits, visit_count);
    edges = divide_edges(spans, span_count);
    made = malloc((span_count + 1) * sizeof(made[0]));
    if (!edges || !made)
        goto no_memory;
    visit_pairs(spans, span_count, events, count, traits, visit_fill);
    for (size_t i = 0; i < span_count; i++) {
        fill_row(&spans[i]);
        made[i] = spans[i].row;
    }
    if (span_count > 0)
        qsort(made, span_count, sizeof(made[0]), compare_rows);
    free(edges);
    free(spans);
    free(traits);
    *rows = made;
    *row_count = span_count;
    *stray = stray_count;
    *negative = negative_count;
    return DPB_OK;

no_memory:
    free(made);
    free(edges);
    free(spans);
    free(traits);
    dpb_error("cannot analyse %zu events: out of memory", count);
    return DPB_ERR_NO_MEMORY;
}

#include "cell_waiting.h"

#include <stdbool.h>
#include <stdlib.h>

#include "rank_clocks.h"

/* Bounds of the histogram's classes; the last class has none. */
static const int64_t bounds_ns[] = {10000, 100000, 1000000, 10000000, 100000000};
#define CLASSES (sizeof(bounds_ns) / sizeof(bounds_ns[0]) + 1)

/* One rank's part in a collective. */
struct part {
    int64_t step;
    int bucket, rank;
    int64_t spent_ns; /* by its communication events */
    int64_t wait_ns;  /* of that, known to be waiting; -1: not told */
    bool on_device;
};

struct rank_waits {
    int rank;
    int64_t last_of, others_waited_ns;
    int64_t counts[CLASSES];
};

struct waiting {
    struct rank_waits *ranks;
    int rank_count;
    int64_t collectives;
};

static int compare_parts(const void *left, const void *right)
{
    const struct part *a = left, *b = right;
    if (a->step != b->step)
        return a->step < b->step ? -1 : 1;
    if (a->bucket != b->bucket)
        return a->bucket < b->bucket ? -1 : 1;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return (int)a->on_device - (int)b->on_device;
}

static bool same_collective(const struct part *a, const struct part *b)
{
    return a->step == b->step && a->bucket == b->bucket;
}

static bool part_of(const struct dpb_event *event, struct part *part)
{
    bool is_wait = event->kind == DPB_EVENT_COMM_WAIT;
    if (event->bucket < 0 || event->end_ns < event->start_ns ||
        (event->kind != DPB_EVENT_COMM && !is_wait))
        return false;
    *part = (struct part){
            .step = event->step,
            .bucket = event->bucket,
            .rank = event->rank,
            .spent_ns = is_wait ? 0 : event->end_ns - event->start_ns,
            .wait_ns = is_wait ? event->end_ns - event->start_ns : -1,
            .on_device = dpb_lane_is_device(event->lane),
    };
    return true;
}

/* Events of one rank's collective become one part. Where a device has kernels of it these count:
 * the host's event then begins when it was enqueued. */
static size_t join_parts(struct part *parts, size_t count)
{
    size_t kept = 0;
    qsort(parts, count, sizeof(*parts), compare_parts);
    for (size_t i = 0; i < count; i++) {
        struct part *last = kept > 0 ? &parts[kept - 1] : NULL;
        if (!last || !same_collective(last, &parts[i]) || last->rank != parts[i].rank) {
            parts[kept++] = parts[i];
        } else if (parts[i].on_device && !last->on_device) {
            *last = parts[i];
        } else {
            last->spent_ns += parts[i].spent_ns;
            if (parts[i].wait_ns >= 0)
                last->wait_ns = parts[i].wait_ns + (last->wait_ns > 0 ? last->wait_ns : 0);
        }
    }
    return kept;
}

static size_t class_of(int64_t wait_ns)
{
    size_t i = 0;
    while (i < CLASSES - 1 && wait_ns >= bounds_ns[i])
        i++;
    return i;
}

/* A comm that tells of waiting has told nothing of the rank that did not wait. */
static bool tells_waiting(const struct part *parts, size_t ranks)
{
    for (size_t i = 0; i < ranks; i++)
        if (parts[i].wait_ns >= 0)
            return true;
    return false;
}

/* What the comm told of waiting, or the whole collective, of which only differences say something.
 */
static int64_t waited_ns(const struct part *part, bool told)
{
    if (!told)
        return part->spent_ns;
    return part->wait_ns > 0 ? part->wait_ns : 0;
}

/* One collective, its parts in order of rank. */
static void add_collective(struct waiting *waiting, const struct part *parts)
{
    const size_t ranks = (size_t)waiting->rank_count;
    const bool told = tells_waiting(parts, ranks);
    int64_t least_ns = INT64_MAX, sum_ns = 0;
    size_t last = 0;
    for (size_t i = 0; i < ranks; i++) {
        int64_t ns = waited_ns(&parts[i], told);
        sum_ns += ns;
        if (ns < least_ns) {
            least_ns = ns;
            last = i;
        }
    }
    const int64_t zero_ns = told ? 0 : least_ns;
    for (size_t i = 0; i < ranks; i++)
        waiting->ranks[i].counts[class_of(waited_ns(&parts[i], told) - zero_ns)]++;
    waiting->ranks[last].last_of++;
    waiting->ranks[last].others_waited_ns +=
            (sum_ns - (int64_t)ranks * least_ns) / ((int64_t)ranks - 1);
    waiting->collectives++;
}

static void add_all(struct waiting *waiting, const struct part *parts, size_t count)
{
    size_t first = 0;
    while (first < count) {
        size_t end = first;
        while (end < count && same_collective(&parts[first], &parts[end]))
            end++;
        if (end - first == (size_t)waiting->rank_count)
            add_collective(waiting, &parts[first]);
        first = end;
    }
}

/* ---- JSON ---- */

static int compare_late(const void *left, const void *right)
{
    const struct rank_waits *a = left, *b = right;
    if (a->others_waited_ns != b->others_waited_ns)
        return a->others_waited_ns > b->others_waited_ns ? -1 : 1;
    return a->rank < b->rank ? -1 : 1;
}

static dpb_json *late_json(const struct dpb_launch_result *result, const struct waiting *waiting)
{
    dpb_json *list = dpb_json_array();
    for (int i = 0; i < waiting->rank_count && i < CELL_WAITING_LATE_RANKS; i++) {
        const struct rank_waits *waits = &waiting->ranks[i];
        if (waits->last_of == 0)
            continue;
        dpb_json *rank = dpb_json_object();
        dpb_json_set_int(rank, "rank", waits->rank);
        dpb_json_set_string(rank, "host", rank_host(result, waits->rank));
        dpb_json_set_real(rank, "last_share",
                          (double)waits->last_of / (double)waiting->collectives);
        dpb_json_set_int(rank, "others_waited_ns", waits->others_waited_ns);
        dpb_json_append(list, rank);
    }
    return list;
}

static dpb_json *waiting_json(const struct dpb_launch_result *result, struct waiting *waiting)
{
    dpb_json *json = dpb_json_object(), *counts = dpb_json_array();
    dpb_json_set_int(json, "collectives", waiting->collectives);
    for (int r = 0; r < waiting->rank_count; r++)
        dpb_json_append(counts, dpb_json_ints(waiting->ranks[r].counts, CLASSES));
    qsort(waiting->ranks, (size_t)waiting->rank_count, sizeof(*waiting->ranks), compare_late);
    dpb_json_set(json, "late_ranks", late_json(result, waiting));
    dpb_json_set(json, "wait_bounds_ns", dpb_json_ints(bounds_ns, CLASSES - 1));
    dpb_json_set(json, "wait_counts", counts);
    return json;
}

dpb_status cell_waiting_put(const struct dpb_launch_result *result, const struct dpb_event *events,
                            size_t count, dpb_json *record)
{
    if (result->rank_count < 2) {
        dpb_json_set_absent(record, "waiting", "one rank waits for nobody");
        return DPB_OK;
    }
    struct waiting waiting = {calloc((size_t)result->rank_count, sizeof(*waiting.ranks)),
                              result->rank_count, 0};
    struct part *parts = malloc((count + 1) * sizeof(*parts));
    if (!waiting.ranks || !parts) {
        free(waiting.ranks);
        free(parts);
        return DPB_ERR_NO_MEMORY;
    }
    size_t found = 0;
    for (int r = 0; r < result->rank_count; r++)
        waiting.ranks[r].rank = r;
    for (size_t i = 0; i < count; i++)
        found += part_of(&events[i], &parts[found]);
    add_all(&waiting, parts, join_parts(parts, found));
    if (waiting.collectives > 0)
        dpb_json_set(record, "waiting", waiting_json(result, &waiting));
    else
        dpb_json_set_absent(record, "waiting", "no collective was traced on every rank");
    free(waiting.ranks);
    free(parts);
    return DPB_OK;
}

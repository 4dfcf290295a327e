/* From the traced steps of a launch to times of layers. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"
#include "dpb_profile.h"
#include "dpb_stats.h"

#define STEPS_MAX 1000 /* as --trace-steps */

/* What the time of a step goes to: passes of layers, then these. */
enum part {
    PART_DATA,
    PART_OPTIMIZER,
    PART_REST,
    PART_COUNT
};

struct adding {
    struct dpb_profile *profile;
    const struct dpb_event *events; /* ordered by lane and start */
    size_t count;
    enum dpb_lane lane; /* of operators */
    int column_count;   /* 2 layers, then parts */
    int step_count;
    double *ns; /* [column][STEPS_MAX] */
};

static int column_of_layer(int layer, int pass)
{
    return 2 * layer + pass;
}

static int column_of_part(const struct adding *adding, enum part part)
{
    return 2 * adding->profile->layer_count + (int)part;
}

static void add(struct adding *adding, int column, double ns)
{
    adding->ns[column * STEPS_MAX + adding->step_count] += ns;
}

static dpb_status note_unmapped(struct dpb_profile *profile, const char *name)
{
    for (int u = 0; u < profile->unmapped_count; u++)
        if (strcmp(profile->unmapped[u], name) == 0)
            return DPB_OK;
    char **unmapped =
            realloc(profile->unmapped, (size_t)(profile->unmapped_count + 1) * sizeof(*unmapped));
    char *copy = unmapped ? strdup(name) : NULL;

    if (unmapped)
        profile->unmapped = unmapped;
    if (!copy) {
        dpb_error("profile: out of memory");
        return DPB_ERR_NO_MEMORY;
    }
    profile->unmapped[profile->unmapped_count++] = copy;
    return DPB_OK;
}

/* Where the time is that goes by: an operator whose name does not tell its pass belongs to the pass
 * that is under way; one of a pass that is no layer's own (the loss) to the layer before it. The
 * backward pass begins where the forward pass has ended. */
struct place {
    int layer, pass;
};

static dpb_status column_of(struct adding *adding, const struct dpb_event *event,
                            struct place *place, int *column)
{
    int pass, layer = dpb_profile_layer_of(adding->profile, event->name, &pass);

    if (event->kind == DPB_EVENT_DATA || (pass < 0 && layer < 0)) {
        *column =
                column_of_part(adding, event->kind == DPB_EVENT_DATA ? PART_DATA : PART_OPTIMIZER);
        return DPB_OK;
    }
    if (layer < 0)
        DPB_TRY(note_unmapped(adding->profile, event->name));
    if (layer >= 0)
        place->layer = layer;
    if (pass >= 0)
        place->pass = pass;
    *column = column_of_layer(place->layer, place->pass);
    return DPB_OK;
}

static int compare_starts(const void *left, const void *right)
{
    const struct dpb_event *a = left, *b = right;

    if (a->start_ns != b->start_ns)
        return a->start_ns < b->start_ns ? -1 : 1;
    return a->end_ns > b->end_ns ? -1 : a->end_ns < b->end_ns;
}

/* Cut a step into what its operators take, each with the gap before it. */
static dpb_status add_step(struct adding *adding, const struct dpb_event *step,
                           struct dpb_event *found)
{
    int64_t cursor_ns = step->start_ns;
    struct place place = {0, DPB_PASS_FORWARD};
    size_t count = 0;

    for (size_t i = 0; i < adding->count; i++) {
        const struct dpb_event *event = &adding->events[i];
        const bool is_operator = event->kind == DPB_EVENT_COMPUTE && event->lane == adding->lane;

        if ((is_operator || event->kind == DPB_EVENT_DATA) && event->start_ns >= step->start_ns &&
            event->start_ns < step->end_ns)
            found[count++] = *event;
    }
    qsort(found, count, sizeof(*found), compare_starts);
    for (size_t i = 0; i < count; i++) {
        const int64_t end_ns = found[i].end_ns < step->end_ns ? found[i].end_ns : step->end_ns;
        int column;

        if (end_ns <= cursor_ns)
            continue;
        DPB_TRY(column_of(adding, &found[i], &place, &column));
        add(adding, column, (double)(end_ns - cursor_ns));
        cursor_ns = end_ns;
    }
    add(adding, column_of_part(adding, PART_REST), (double)(step->end_ns - cursor_ns));
    adding->step_count++;
    return DPB_OK;
}

static dpb_status add_steps(struct adding *adding)
{
    struct dpb_event *found = malloc((adding->count + 1) * sizeof(*found));
    dpb_status st = found ? DPB_OK : DPB_ERR_NO_MEMORY;

    for (size_t i = 0; i < adding->count && st == DPB_OK; i++)
        if (adding->events[i].kind == DPB_EVENT_STEP && adding->step_count < STEPS_MAX)
            st = add_step(adding, &adding->events[i], found);
    free(found);
    if (st == DPB_OK && adding->step_count == 0) {
        dpb_error("profile: the launch has no traced step");
        dpb_log_hint("give --trace-steps above 0");
        return DPB_ERR_NO_DATA;
    }
    return st;
}

static double median(const struct adding *adding, int column)
{
    return dpb_stats_median(adding->ns + (size_t)column * STEPS_MAX, (size_t)adding->step_count);
}

/* Medians, made shorter by what the recorder cost, and the rest, so that the sum is the step. */
static void store(const struct adding *adding, double timed_ns, double traced_ns, int64_t batch)
{
    struct dpb_profile *profile = adding->profile;
    const int at = profile->batch_count++;
    const double factor = timed_ns / traced_ns;
    double sum = 0;

    profile->batch[at] = batch;
    profile->steps = adding->step_count;
    profile->step_ns[at] = timed_ns;
    profile->trace_overhead[at] = traced_ns / timed_ns;
    for (int l = 0; l < profile->layer_count; l++)
        for (int pass = 0; pass < 2; pass++) {
            profile->layers[l].ns[pass][at] = factor * median(adding, column_of_layer(l, pass));
            sum += profile->layers[l].ns[pass][at];
        }
    profile->data_ns[at] = factor * median(adding, column_of_part(adding, PART_DATA));
    profile->optimizer_ns[at] = factor * median(adding, column_of_part(adding, PART_OPTIMIZER));
    profile->rest_ns[at] = timed_ns - sum - profile->data_ns[at] - profile->optimizer_ns[at];
}

static bool has_lane(const struct dpb_event *events, size_t count, enum dpb_lane lane)
{
    for (size_t i = 0; i < count; i++)
        if (events[i].lane == lane)
            return true;
    return false;
}

static double median_of(const dpb_json *samples)
{
    const size_t count = dpb_json_size(samples);
    double *ns = calloc(count + 1, sizeof(*ns)), found = NAN;

    for (size_t i = 0; ns && i < count; i++)
        ns[i] = dpb_json_as_real(dpb_json_at(samples, i), NAN);
    if (ns && count > 0)
        found = dpb_stats_median(ns, count);
    free(ns);
    return found;
}

static dpb_status check(const struct dpb_profile *profile, const dpb_json *record, double timed_ns,
                        double overhead, uint64_t lost, int64_t batch)
{
    if (timed_ns > 0 && overhead > 0 && lost == 0 &&
        dpb_json_as_int(dpb_json_get(record, "ranks"), 0) == 1 &&
        profile->batch_count < DPB_PROFILE_BATCHES_MAX &&
        (profile->batch_count == 0 || batch > profile->batch[profile->batch_count - 1]))
        return DPB_OK;
    dpb_error(
            "profile: needs the record of one rank with timed steps and a complete trace, %" PRIu64
            " events are lost; of at most %d batches, ascending",
            lost, DPB_PROFILE_BATCHES_MAX);
    dpb_log_hint("trace fewer steps, or give fewer batches");
    return DPB_ERR_NO_DATA;
}

dpb_status dpb_profile_add(struct dpb_profile *profile, const dpb_json *record,
                           const struct dpb_event *events, size_t count, uint64_t lost)
{
    const double timed_ns = median_of(dpb_json_get(record, "samples_step_ns"));
    const double overhead = dpb_json_as_real(dpb_json_path(record, "trace/overhead_ratio"), NAN);
    const int64_t batch = dpb_json_as_int(dpb_json_get(record, "batch_per_rank"), 0);
    struct adding adding = {
            .profile = profile,
            .events = events,
            .count = count,
            .lane = has_lane(events, count, DPB_LANE_DEVICE) ? DPB_LANE_DEVICE : DPB_LANE_HOST,
            .column_count = 2 * profile->layer_count + PART_COUNT,
    };
    dpb_status st;

    DPB_TRY(check(profile, record, timed_ns, overhead, lost, batch));
    adding.ns = calloc((size_t)adding.column_count * STEPS_MAX, sizeof(*adding.ns));
    st = adding.ns ? add_steps(&adding) : DPB_ERR_NO_MEMORY;
    if (st == DPB_OK)
        store(&adding, timed_ns, overhead * timed_ns, batch);
    free(adding.ns);
    return st;
}

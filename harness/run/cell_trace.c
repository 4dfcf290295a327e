#include "cell_trace.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cell_waiting.h"
#include "dpb_experiment.h"
#include "dpb_losses.h"
#include "dpb_overlap.h"
#include "dpb_registry.h"
#include "dpb_trace.h"
#include "rank_clocks.h"
#include "rank_steps.h"

struct traced {
    struct dpb_event *events; /* of all ranks */
    char **names;             /* one block per rank */
    int rank_count;
    size_t count;
    uint64_t lost;
    bool has_losses; /* a recorder of devices told its own */
    struct dpb_losses losses;
};

static void traced_release(struct traced *traced)
{
    for (int r = 0; r < traced->rank_count; r++)
        free(traced->names[r]);
    free(traced->names);
    free(traced->events);
}

static dpb_status traced_collect(const struct dpb_launch_result *result, struct traced *traced)
{
    traced->rank_count = result->rank_count;
    traced->names = calloc((size_t)result->rank_count, sizeof(char *));
    if (!traced->names)
        return DPB_ERR_NO_MEMORY;
    for (int r = 0; r < result->rank_count; r++) {
        struct dpb_event *events = NULL;
        size_t count = 0;
        DPB_TRY(dpb_events_from_json(dpb_json_get(result->ranks[r], "events"), &events, &count,
                                     &traced->names[r]));
        traced->lost += (uint64_t)dpb_json_as_int(dpb_json_get(result->ranks[r], "events_lost"), 0);
        const dpb_json *losses = dpb_json_get(result->ranks[r], "recorder");
        if (dpb_json_type(losses) == DPB_JSON_OBJECT) {
            traced->has_losses = true;
            dpb_losses_add_json(&traced->losses, losses);
        }
        struct dpb_event *all = realloc(traced->events, (traced->count + count + 1) * sizeof(*all));
        if (!all) {
            free(events);
            return DPB_ERR_NO_MEMORY;
        }
        memcpy(all + traced->count, events, count * sizeof(*all));
        traced->events = all;
        traced->count += count;
        free(events);
    }
    return DPB_OK;
}

static bool has_event(const struct traced *traced, enum dpb_lane lane, enum dpb_event_kind kind)
{
    for (size_t i = 0; i < traced->count; i++) {
        if (traced->events[i].lane == lane && traced->events[i].kind == kind)
            return true;
    }
    return false;
}

/* MPI and the kernels of NCCL do not tell when the last peer came: no wait is not a wait of 0. */
static void put_wait(const struct traced *traced, const struct dpb_breakdown *sum,
                     dpb_json *overlap)
{
    const bool has_comm = has_event(traced, DPB_LANE_DEVICE_COMM, DPB_EVENT_COMM) ||
                          has_event(traced, DPB_LANE_COMM, DPB_EVENT_COMM);
    if (has_comm && !has_event(traced, DPB_LANE_COMM, DPB_EVENT_COMM_WAIT))
        dpb_json_set_absent(overlap, "comm_wait_ns", "no collective tells when its peers came");
    else
        dpb_json_set_int(overlap, "comm_wait_ns", sum->comm_wait_ns);
}

static void put_overlap(const struct traced *traced, const struct dpb_breakdown *rows, size_t count,
                        dpb_json *record)
{
    struct dpb_breakdown sum = {0};
    for (size_t i = 0; i < count; i++) {
        sum.launch_ns += rows[i].launch_ns;
        sum.copy_ns += rows[i].copy_ns;
        sum.has_device |= rows[i].has_device;
        sum.span_ns += rows[i].span_ns;
        sum.compute_ns += rows[i].compute_ns;
        sum.comm_ns += rows[i].comm_ns;
        sum.overlap_ns += rows[i].overlap_ns;
        sum.exposed_ns += rows[i].exposed_ns;
        sum.comm_wait_ns += rows[i].comm_wait_ns;
        sum.idle_ns += rows[i].idle_ns;
        sum.data_ns += rows[i].data_ns;
    }
    dpb_json *overlap = dpb_json_object();
    dpb_json_set_int(overlap, "rank_steps", (int64_t)count);
    dpb_json_set_int(overlap, "span_ns", sum.span_ns);
    dpb_json_set_int(overlap, "compute_ns", sum.compute_ns);
    dpb_json_set_int(overlap, "comm_ns", sum.comm_ns);
    dpb_json_set_int(overlap, "overlap_ns", sum.overlap_ns);
    dpb_json_set_int(overlap, "exposed_ns", sum.exposed_ns);
    put_wait(traced, &sum, overlap);
    dpb_json_set_int(overlap, "idle_ns", sum.idle_ns);
    dpb_json_set_int(overlap, "data_ns", sum.data_ns);
    if (sum.has_device) {
        dpb_json_set_int(overlap, "launch_ns", sum.launch_ns);
        dpb_json_set_int(overlap, "copy_ns", sum.copy_ns);
    }
    dpb_json_set(record, "overlap", overlap);
}

/* Collectives of gradients. */
struct transfers {
    int64_t bytes, collectives, transfer_ns;
    bool bytes_unknown;
};

static int compare_messages(const void *left, const void *right)
{
    const struct dpb_event *a = left, *b = right;
    if (a->step != b->step)
        return a->step < b->step ? -1 : 1;
    if (a->bucket != b->bucket)
        return a->bucket < b->bucket ? -1 : 1;
    return a->rank < b->rank ? -1 : a->rank > b->rank;
}

/* Of one rank's kernels for a bucket, those from `first` on; `*end` is behind them. */
static int64_t kernels_ns(const struct dpb_event *events, size_t count, size_t first, size_t *end)
{
    int64_t sum_ns = 0;
    for (*end = first; *end < count && compare_messages(&events[first], &events[*end]) == 0; ++*end)
        sum_ns += events[*end].end_ns - events[*end].start_ns;
    return sum_ns;
}

/* Kernels of collectives last from their rank's arrival on. The rank that came last did not wait,
 * so the shortest is what moving took, on every rank (as Kineto's distributed view has it); it
 * takes no clock that ranks share. `events` are kernels of gradients. */
static struct transfers of_kernels(struct dpb_event *events, size_t count)
{
    struct transfers sum = {.bytes_unknown = true};
    size_t at = 0;
    if (count > 0)
        qsort(events, count, sizeof(events[0]), compare_messages);
    while (at < count) {
        const struct dpb_event *message = &events[at];
        int64_t shortest_ns = INT64_MAX, ranks = 0;
        while (at < count && events[at].step == message->step &&
               events[at].bucket == message->bucket) {
            size_t end;
            const int64_t own_ns = kernels_ns(events, count, at, &end);
            shortest_ns = own_ns < shortest_ns ? own_ns : shortest_ns;
            sum.collectives += (int64_t)(end - at);
            ranks++;
            at = end;
        }
        sum.transfer_ns += ranks * shortest_ns;
    }
    return sum;
}

static dpb_status of_device(const struct traced *traced, struct transfers *transfers)
{
    struct dpb_event *kernels = malloc((traced->count + 1) * sizeof(*kernels));
    size_t count = 0;
    if (!kernels)
        return DPB_ERR_NO_MEMORY;
    for (size_t i = 0; i < traced->count; i++) {
        const struct dpb_event *event = &traced->events[i];
        if (event->lane == DPB_LANE_DEVICE_COMM && event->kind == DPB_EVENT_COMM &&
            event->bucket >= 0 && event->end_ns >= event->start_ns)
            kernels[count++] = *event;
    }
    *transfers = of_kernels(kernels, count);
    free(kernels);
    return DPB_OK;
}

/* Those of the network itself belong to no bucket. Bandwidth counts the time from the last rank's
 * arrival to the result: waiting is no transfer. */
static struct transfers of_host(const struct traced *traced)
{
    struct transfers sum = {0};
    for (size_t i = 0; i < traced->count; i++) {
        const struct dpb_event *event = &traced->events[i];
        if (event->bucket < 0 || dpb_lane_is_device(event->lane))
            continue;
        if (event->kind == DPB_EVENT_COMM) {
            sum.bytes += event->bytes;
            sum.collectives++;
            sum.transfer_ns += event->end_ns - event->start_ns;
        } else if (event->kind == DPB_EVENT_COMM_WAIT) {
            sum.transfer_ns -= event->end_ns - event->start_ns;
        }
    }
    return sum;
}

/* The device's kernels say how long, the host's events how many and of what size; either may be
 * missing. */
static dpb_status of_gradients(const struct traced *traced, struct transfers *transfers)
{
    struct transfers device;
    *transfers = of_host(traced);
    DPB_TRY(of_device(traced, &device));
    if (device.collectives > 0) {
        if (transfers->collectives == 0)
            *transfers = device;
        else
            transfers->transfer_ns = device.transfer_ns;
    }
    return DPB_OK;
}

/* Counted by the communicator in the traced steps of all ranks; NaN where one does not tell. */
static double sent_bytes(const struct dpb_launch_result *result, const char *key)
{
    double sum = 0;
    for (int r = 0; r < result->rank_count; r++)
        sum += dpb_json_as_real(dpb_json_get(result->ranks[r], key), NAN);
    return sum;
}

/* What each rank sent in a step, on average: inside its node, and to other nodes. */
static void put_levels(const struct dpb_launch_result *result, double sent, double rank_steps,
                       dpb_json *json)
{
    const double between = sent_bytes(result, "traced_between_bytes");
    const char *why = result->rank_count > 1
                              ? "the comm runs a library's own algorithm, which does not tell what "
                                "it sends to other nodes"
                              : "no communication with one rank";
    if (result->rank_count > 1 && !isnan(between)) {
        dpb_json_set_real(json, "wire_bytes_inside_per_step", (sent - between) / rank_steps);
        dpb_json_set_real(json, "wire_bytes_between_per_step", between / rank_steps);
        return;
    }
    dpb_json_set_absent(json, "wire_bytes_inside_per_step", why);
    dpb_json_set_absent(json, "wire_bytes_between_per_step", why);
}

static void put_communication(const struct dpb_cell_outcome *o, const struct transfers *found,
                              size_t rank_steps, dpb_json *record)
{
    const struct transfers gradients = *found;
    const int64_t bytes = gradients.bytes, transfer_ns = gradients.transfer_ns;
    const dpb_json *exchanges = dpb_json_get(o->result->ranks[0], "exchanges");
    const int64_t exchanged = dpb_json_as_int(dpb_json_get(exchanges, "count"), 0);
    const int64_t exchanged_bytes = dpb_json_as_int(dpb_json_get(exchanges, "payload_bytes"), 0);
    const double steps = (double)rank_steps, sent = sent_bytes(o->result, "traced_wire_bytes");
    const double of_exchanges = dpb_json_as_real(dpb_json_get(exchanges, "wire_bytes"), 0) * steps;
    dpb_json *json = dpb_json_object();
    dpb_json_set_real(json, "collectives_per_step",
                      (double)gradients.collectives / steps + (double)exchanged);
    if (gradients.bytes_unknown)
        dpb_json_set_absent(json, "payload_bytes_per_step",
                            "the kernel of a collective does not tell its bytes");
    else
        dpb_json_set_real(json, "payload_bytes_per_step",
                          (double)bytes / steps + (double)exchanged_bytes);
    dpb_json_set_int(json, "exchanges_per_step", exchanged);
    dpb_json_set_int(json, "exchange_bytes_per_step", exchanged_bytes);
    if (o->result->rank_count > 1)
        dpb_json_set_real(json, "wire_bytes_per_step", sent / steps);
    else
        dpb_json_set_absent(json, "wire_bytes_per_step", "no communication with one rank");
    put_levels(o->result, sent, steps, json);
    if (gradients.collectives > 0 && transfer_ns > 0)
        dpb_json_set_real(json, "busbw_bytes_per_s",
                          (sent - of_exchanges) * 1e9 / (double)transfer_ns);
    else
        dpb_json_set_absent(json, "busbw_bytes_per_s",
                            o->result->rank_count > 1 ? "the traced steps sent nothing"
                                                      : "no communication with one rank");
    const dpb_json *wire = dpb_json_get(o->result->ranks[0], "wire_ns_per_step");
    if (dpb_json_type(wire) == DPB_JSON_INT)
        dpb_json_set(json, "wire_ns_per_step", dpb_json_copy(wire));
    else
        dpb_json_set_absent(json, "wire_ns_per_step", "no emulated link");
    dpb_json_set(record, "communication", json);
}

/* Where devices' times come from: each rank's clocks, read together before and after the steps;
 * NULL: no rank told of any. */
static dpb_json *device_clocks(const struct dpb_launch_result *result)
{
    static const char *const keys[] = {"clocks_before", "clocks_after", "clock_bound_ns"};
    dpb_json *extra = dpb_json_object(), *clocks = dpb_json_array();
    for (int r = 0; r < result->rank_count; r++) {
        const dpb_json *recorder = dpb_json_get(result->ranks[r], "recorder");
        dpb_json *of_rank = dpb_json_object();
        dpb_json_set_int(of_rank, "rank", r);
        for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
            dpb_json_set(of_rank, keys[i], dpb_json_copy(dpb_json_get(recorder, keys[i])));
        if (dpb_json_get(recorder, keys[0]))
            dpb_json_append(clocks, of_rank);
        else
            dpb_json_free(of_rank);
    }
    const bool any = dpb_json_size(clocks) > 0;
    dpb_json_set(extra, "device_clocks", clocks);
    if (any)
        return extra;
    dpb_json_free(extra);
    return NULL;
}

void dpb_cell_trace_name(const struct dpb_plan_launch *launch, char *name, size_t name_bytes)
{
    snprintf(name, name_bytes, "traces/cell%03d-repeat%d.json", (int)launch->cell,
             (int)launch->repeat);
}

/* Ranks of several hosts beside each other: the others' times move to rank 0's clock, as well as it
 * is known. Whatever is computed has been computed before, from each rank's own times. */
static void place_on_one_clock(const struct rank_clocks *clocks, struct traced *traced)
{
    for (size_t i = 0; i < traced->count; i++) {
        const int64_t shift_ns = clocks->of[traced->events[i].rank].shift_ns;
        traced->events[i].start_ns += shift_ns;
        traced->events[i].end_ns += shift_ns;
    }
}

/* What the file says of clocks; NULL: nothing. */
static dpb_json *trace_extra(const struct dpb_launch_result *result,
                             const struct rank_clocks *clocks)
{
    dpb_json *extra = device_clocks(result);
    if (clocks->domains < 2)
        return extra;
    if (!extra)
        extra = dpb_json_object();
    dpb_json_set_string(extra, "clock",
                        "each host's CLOCK_MONOTONIC, nanoseconds; ranks of other hosts than rank "
                        "0's are shifted to its clock, by shift_ns of host_clocks and within its "
                        "error_ns, to be seen beside each other: no duration is between two hosts");
    dpb_json_set(extra, "host_clocks", rank_clocks_json(result, clocks));
    return extra;
}

static dpb_status write_trace(const struct dpb_cell_outcome *o, struct traced *traced, char *name,
                              size_t name_bytes)
{
    struct rank_clocks clocks;
    DPB_TRY(rank_clocks_read(o->result, &clocks));
    char *folder = dpb_path_join(o->run_folder, "traces");
    if (!folder) {
        rank_clocks_release(&clocks);
        return DPB_ERR_NO_MEMORY;
    }
    dpb_status st = dpb_mkdir_p(folder);
    dpb_cell_trace_name(&o->launch, name, name_bytes);
    char *path = st == DPB_OK ? dpb_path_join(o->run_folder, name) : NULL;
    const struct dpb_plan_cell *cell = &o->plan->cells[o->launch.cell];
    const struct dpb_experiment *e = dpb_config_struct(cell->config, "experiment");
    dpb_json *extra = trace_extra(o->result, &clocks);
    struct dpb_trace_info info = {
            .extra = extra,
            .title = cell->label[0] ? cell->label : o->plan->name,
            .world_size = o->result->rank_count,
            .lost = traced->lost,
            .backend = e->comm,
    };
    place_on_one_clock(&clocks, traced);
    if (path)
        st = dpb_trace_write(path, &info, traced->events, traced->count);
    dpb_json_free(extra);
    rank_clocks_release(&clocks);
    free(path);
    free(folder);
    return st;
}

static void put_untraced(const struct dpb_cell_outcome *o, dpb_json *record)
{
    static const char *const keys[] = {"overlap", "communication", "waiting", "trace"};
    const struct dpb_experiment *e =
            dpb_config_struct(o->plan->cells[o->launch.cell].config, "experiment");
    const char *why = e->trace_steps == 0
                              ? "no steps were traced (--trace-steps 0)"
                              : "no steps were traced: the launch for it failed, see the log";
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        dpb_json_set_absent(record, keys[i], why);
}

/* The comm's kernels run on the device under names that nobody knows (facebookresearch/
 * HolisticTraceAnalysis#109): among the others they would count as computation. */
static bool lacks_comm_kernels(const struct dpb_cell_outcome *o, const struct traced *traced)
{
    const struct dpb_experiment *e =
            dpb_config_struct(o->plan->cells[o->launch.cell].config, "experiment");
    const struct dpb_comm_ops *comm = dpb_registry_comm(o->registry, e->comm);
    return comm && (comm->flags & DPB_COMM_DEVICE_MEMORY) && o->result->rank_count > 1 &&
           sent_bytes(o->result, "traced_wire_bytes") > 0 &&
           has_event(traced, DPB_LANE_DEVICE, DPB_EVENT_COMPUTE) &&
           !has_event(traced, DPB_LANE_DEVICE_COMM, DPB_EVENT_COMM);
}

static void put_no_figures(const char *why, dpb_json *record)
{
    dpb_json_set_absent(record, "overlap", why);
    dpb_json_set_absent(record, "communication", why);
    dpb_json_set_absent(record, "waiting", why);
}

/* What the record says of where the time went: figures, or why there are none. */
static dpb_status put_figures(const struct dpb_cell_outcome *o, const struct traced *traced,
                              const struct dpb_breakdown *rows, size_t row_count, dpb_json *record)
{
    struct transfers gradients;
    char why[256];
    if (traced->has_losses && !dpb_losses_are_small(&traced->losses, why, sizeof(why))) {
        put_no_figures(why, record);
        return DPB_OK;
    }
    if (lacks_comm_kernels(o, traced)) {
        put_no_figures("no communication kernels were recognised among the device's, though the "
                       "ranks sent data: what they are counts as computation",
                       record);
        return DPB_OK;
    }
    DPB_TRY(of_gradients(traced, &gradients));
    put_overlap(traced, rows, row_count, record);
    put_communication(o, &gradients, row_count, record);
    return cell_waiting_put(o->result, traced->events, traced->count, record);
}

dpb_status dpb_cell_trace_put(const struct dpb_cell_outcome *o, dpb_json *record)
{
    struct traced traced = {0};
    struct dpb_breakdown *rows = NULL;
    size_t row_count = 0, stray = 0, negative = 0;
    char name[128];
    dpb_status st;
    DPB_TRY_GOTO(st, traced_collect(o->result, &traced), out);
    if (traced.count == 0) {
        put_untraced(o, record);
        goto out;
    }
    DPB_TRY_GOTO(st,
                 dpb_breakdown_compute(traced.events, traced.count, &rows, &row_count, &stray,
                                       &negative),
                 out);
    DPB_TRY_GOTO(st, put_figures(o, &traced, rows, row_count, record), out);
    DPB_TRY_GOTO(st, write_trace(o, &traced, name, sizeof(name)), out);
    dpb_json *trace = dpb_json_object();
    dpb_json_set_string(trace, "file", name);
    dpb_json_set_int(trace, "lost", (int64_t)traced.lost);
    dpb_json_set_int(trace, "stray", (int64_t)stray);
    dpb_json_set_int(trace, "negative", (int64_t)negative);
    if (traced.has_losses)
        dpb_json_set(trace, "device", dpb_losses_to_json(&traced.losses));
    dpb_json_set_real(trace, "overhead_ratio",
                      dpb_rank_steps_median_ns(o->result, DPB_STEPS_TRACED) /
                              dpb_rank_steps_median_ns(o->result, DPB_STEPS_TIMED));
    dpb_json_set(record, "trace", trace);
out:
    free(rows);
    traced_release(&traced);
    return st;
}

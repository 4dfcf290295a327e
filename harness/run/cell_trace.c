#include "cell_trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_experiment.h"
#include "dpb_overlap.h"
#include "dpb_trace.h"
#include "rank_steps.h"

struct traced {
    struct dpb_event *events; /* of all ranks */
    char **names;             /* one block per rank */
    int rank_count;
    size_t count;
    uint64_t lost;
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

static void put_overlap(const struct dpb_breakdown *rows, size_t count, dpb_json *record)
{
    struct dpb_breakdown sum = {0};
    for (size_t i = 0; i < count; i++) {
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
    dpb_json_set_int(overlap, "comm_wait_ns", sum.comm_wait_ns);
    dpb_json_set_int(overlap, "idle_ns", sum.idle_ns);
    dpb_json_set_int(overlap, "data_ns", sum.data_ns);
    dpb_json_set(record, "overlap", overlap);
}

/* Collectives of gradients. */
struct transfers {
    int64_t bytes, collectives, transfer_ns;
};

/* Those of the network itself belong to no bucket. Bandwidth counts the time from the last rank's
 * arrival to the result: waiting is no transfer. */
static struct transfers of_gradients(const struct traced *traced)
{
    struct transfers sum = {0};
    for (size_t i = 0; i < traced->count; i++) {
        const struct dpb_event *event = &traced->events[i];
        if (event->bucket < 0)
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

/* Counted by the communicator in the traced steps of all ranks. */
static double sent_bytes(const struct dpb_launch_result *result)
{
    double sum = 0;
    for (int r = 0; r < result->rank_count; r++)
        sum += (double)dpb_json_as_int(dpb_json_get(result->ranks[r], "traced_wire_bytes"), 0);
    return sum;
}

static void put_communication(const struct dpb_cell_outcome *o, const struct traced *traced,
                              size_t rank_steps, dpb_json *record)
{
    const struct transfers gradients = of_gradients(traced);
    const int64_t bytes = gradients.bytes, transfer_ns = gradients.transfer_ns;
    const dpb_json *exchanges = dpb_json_get(o->result->ranks[0], "exchanges");
    const int64_t exchanged = dpb_json_as_int(dpb_json_get(exchanges, "count"), 0);
    const int64_t exchanged_bytes = dpb_json_as_int(dpb_json_get(exchanges, "payload_bytes"), 0);
    const double steps = (double)rank_steps, sent = sent_bytes(o->result);
    const double of_exchanges = dpb_json_as_real(dpb_json_get(exchanges, "wire_bytes"), 0) * steps;
    dpb_json *json = dpb_json_object();
    dpb_json_set_real(json, "collectives_per_step",
                      (double)gradients.collectives / steps + (double)exchanged);
    dpb_json_set_real(json, "payload_bytes_per_step",
                      (double)bytes / steps + (double)exchanged_bytes);
    dpb_json_set_int(json, "exchanges_per_step", exchanged);
    dpb_json_set_int(json, "exchange_bytes_per_step", exchanged_bytes);
    if (o->result->rank_count > 1)
        dpb_json_set_real(json, "wire_bytes_per_step", sent / steps);
    else
        dpb_json_set_absent(json, "wire_bytes_per_step", "no communication with one rank");
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

static dpb_status write_trace(const struct dpb_cell_outcome *o, const struct traced *traced,
                              char *name, size_t name_bytes)
{
    char *folder = dpb_path_join(o->run_folder, "traces");
    if (!folder)
        return DPB_ERR_NO_MEMORY;
    dpb_status st = dpb_mkdir_p(folder);
    snprintf(name, name_bytes, "traces/cell%03d-repeat%d.json", (int)o->launch.cell,
             (int)o->launch.repeat);
    char *path = st == DPB_OK ? dpb_path_join(o->run_folder, name) : NULL;
    const struct dpb_plan_cell *cell = &o->plan->cells[o->launch.cell];
    const struct dpb_experiment *e = dpb_config_struct(cell->config, "experiment");
    struct dpb_trace_info info = {
            .title = cell->label[0] ? cell->label : o->plan->name,
            .world_size = o->result->rank_count,
            .lost = traced->lost,
            .backend = e->comm,
    };
    if (path)
        st = dpb_trace_write(path, &info, traced->events, traced->count);
    free(path);
    free(folder);
    return st;
}

static void put_untraced(dpb_json *record)
{
    static const char *const keys[] = {"overlap", "communication", "trace"};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        dpb_json_set_absent(record, keys[i], "no steps were traced (--trace-steps 0)");
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
        put_untraced(record);
        goto out;
    }
    DPB_TRY_GOTO(st,
                 dpb_breakdown_compute(traced.events, traced.count, &rows, &row_count, &stray,
                                       &negative),
                 out);
    DPB_TRY_GOTO(st, write_trace(o, &traced, name, sizeof(name)), out);
    put_overlap(rows, row_count, record);
    put_communication(o, &traced, row_count, record);
    dpb_json *trace = dpb_json_object();
    dpb_json_set_string(trace, "file", name);
    dpb_json_set_int(trace, "lost", (int64_t)traced.lost);
    dpb_json_set_int(trace, "stray", (int64_t)stray);
    dpb_json_set_int(trace, "negative", (int64_t)negative);
    dpb_json_set_real(trace, "overhead_ratio",
                      dpb_rank_steps_median_ns(o->result, DPB_STEPS_TRACED) /
                              dpb_rank_steps_median_ns(o->result, DPB_STEPS_TIMED));
    dpb_json_set(record, "trace", trace);
out:
    free(rows);
    traced_release(&traced);
    return st;
}

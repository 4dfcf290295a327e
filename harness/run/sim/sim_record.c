/* Sections of the record of a simulated cell. */
#include "sim_record.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"
#include "dpb_overlap.h"
#include "dpb_stats.h"
#include "dpb_trace.h"

#define MUCH 0.25 /* of the network's time, from where its origin is a warning */

/* ---- times ---- */

static double median_of(const struct sim_run *run, size_t member)
{
    double *values = calloc(run->timed_count, sizeof(*values)), median = NAN;

    for (size_t s = 0; values && s < run->timed_count; s++)
        values[s] = *(const double *)(const void *)((const char *)&run->timed[s] + member);
    if (values)
        median = dpb_stats_median(values, run->timed_count);
    free(values);
    return median;
}

static double total_ns(const struct sim_run *run)
{
    double total = 0;

    for (size_t s = 0; s < run->timed_count; s++)
        total += run->timed[s].step_ns;
    return total;
}

static void put_times(const struct sim_run *run, dpb_json *json)
{
    static const struct {
        const char *key;
        size_t member;
    } rows[] = {
            {"forward_ns", offsetof(struct dpb_sim_step_times, forward_ns)},
            {"backward_ns", offsetof(struct dpb_sim_step_times, backward_ns)},
            {"sync_ns", offsetof(struct dpb_sim_step_times, sync_ns)},
            {"optimizer_ns", offsetof(struct dpb_sim_step_times, optimizer_ns)},
    };
    const struct dpb_experiment *e = run->cell.e;
    const double rate = (double)e->global_batch * (double)run->timed_count * 1e9 / total_ns(run);
    dpb_json *samples = dpb_json_array(), *phases = dpb_json_object();
    dpb_json *throughput = dpb_json_object();

    for (size_t s = 0; s < run->timed_count; s++)
        dpb_json_append(samples, dpb_json_int((int64_t)(run->timed[s].step_ns + 0.5)));
    dpb_json_set(json, "samples_step_ns", samples);
    dpb_json_set_absent(json, "rank_median_step_ns", "simulated: ranks are not told apart");
    dpb_json_set_real(phases, "data_ns", run->cell.schedule.data_ns * (double)e->accumulate);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        dpb_json_set_real(phases, rows[i].key, median_of(run, rows[i].member));
    dpb_json_set(json, "phases", phases);
    dpb_json_set_real(throughput, "samples_per_s_total", rate);
    dpb_json_set_real(throughput, "samples_per_s_per_rank", rate / (double)e->ranks);
    dpb_json_set(json, "throughput", throughput);
}

/* ---- the traced steps ---- */

static void put_overlap(const struct dpb_breakdown *rows, size_t count, dpb_json *json)
{
    static const struct {
        const char *key;
        size_t member;
    } sums[] = {
#define SUM(name) {#name, offsetof(struct dpb_breakdown, name)}
            SUM(span_ns),    SUM(compute_ns),   SUM(comm_ns), SUM(overlap_ns),
            SUM(exposed_ns), SUM(comm_wait_ns), SUM(idle_ns), SUM(data_ns),
#undef SUM
    };
    dpb_json *overlap = dpb_json_object();

    dpb_json_set_int(overlap, "rank_steps", (int64_t)count);
    for (size_t i = 0; i < sizeof(sums) / sizeof(sums[0]); i++) {
        int64_t sum = 0;

        for (size_t r = 0; r < count; r++)
            sum += *(const int64_t *)(const void *)((const char *)&rows[r] + sums[i].member);
        dpb_json_set_int(overlap, sums[i].key, sum);
    }
    dpb_json_set(json, "overlap", overlap);
}

/* The time of a collective is the network's, whichever algorithm that takes. */
static void put_no_levels(bool alone, dpb_json *communication)
{
    static const char *const keys[] = {"wire_bytes_inside_per_step", "wire_bytes_between_per_step"};

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        dpb_json_set_absent(communication, keys[i],
                            alone ? "no communication with one rank"
                                  : "simulated: where bytes go depends on the network's algorithm");
}

static void put_communication(const struct sim_run *run, size_t steps, dpb_json *json)
{
    const struct dpb_sim_step_times *last = &run->timed[run->timed_count - 1];
    int64_t bytes = 0, transfer_ns = 0, collectives = 0;
    dpb_json *communication = dpb_json_object();
    const bool alone = run->cell.e->ranks == 1;

    for (size_t i = 0; i < run->event_count; i++) {
        const struct dpb_event *event = &run->events[i];
        const int64_t ns = event->end_ns - event->start_ns;

        if (event->kind == DPB_EVENT_COMM && event->bucket >= 0) {
            bytes += event->bytes;
            transfer_ns += ns;
            collectives++;
        } else if (event->kind == DPB_EVENT_COMM_WAIT && event->bucket >= 0) {
            transfer_ns -= ns;
        }
    }
    dpb_json_set_real(communication, "collectives_per_step", (double)collectives / (double)steps);
    dpb_json_set_real(communication, "payload_bytes_per_step", (double)bytes / (double)steps);
    if (alone)
        dpb_json_set_absent(communication, "wire_bytes_per_step", "no communication with one rank");
    else
        dpb_json_set_real(communication, "wire_bytes_per_step", (double)last->wire_bytes);
    put_no_levels(alone, communication);
    if (transfer_ns > 0 && !alone)
        dpb_json_set_real(communication, "busbw_bytes_per_s",
                          (double)last->wire_bytes * (double)steps * 1e9 / (double)transfer_ns);
    else
        dpb_json_set_absent(communication, "busbw_bytes_per_s",
                            alone ? "no communication with one rank" : "nothing was sent");
    dpb_json_set_absent(communication, "wire_ns_per_step", "no emulated link");
    dpb_json_set(json, "communication", communication);
}

static dpb_status write_trace(const struct sim_run *run)
{
    const struct dpb_simulation *simulation = run->simulation;
    dpb_json *extra = dpb_json_object();
    const struct dpb_trace_info info = {
            .title = simulation->title,
            .world_size = (int)run->cell.e->ranks,
            .lost = run->lost,
            .extra = extra,
            .backend = run->cell.e->comm,
    };
    char *path = dpb_path_join(simulation->folder, simulation->trace_file);
    char *folder = dpb_path_join(simulation->folder, "traces");
    dpb_status st = path && folder ? dpb_mkdir_p(folder) : DPB_ERR_NO_MEMORY;

    dpb_json_set_string(extra, "clock", "simulated: virtual time of rank 0 from the first step on");
    dpb_json_set_bool(extra, "simulated", true);
    if (st == DPB_OK)
        st = dpb_trace_write(path, &info, run->events, run->event_count);
    free(folder);
    free(path);
    dpb_json_free(extra);
    return st;
}

static dpb_status put_traced(const struct sim_run *run, dpb_json *json)
{
    static const char *const keys[] = {"overlap", "communication", "trace"};
    struct dpb_breakdown *rows = NULL;
    size_t count = 0, stray = 0, negative = 0;
    dpb_status st;

    if (run->event_count == 0) {
        for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
            dpb_json_set_absent(json, keys[i], "no steps were traced (--trace-steps 0)");
        return DPB_OK;
    }
    DPB_TRY(dpb_breakdown_compute(run->events, run->event_count, &rows, &count, &stray, &negative));
    put_overlap(rows, count, json);
    put_communication(run, count, json);
    free(rows);
    st = write_trace(run);
    dpb_json *trace = dpb_json_object();
    dpb_json_set_string(trace, "file", run->simulation->trace_file);
    dpb_json_set_int(trace, "lost", (int64_t)run->lost);
    dpb_json_set_int(trace, "stray", (int64_t)stray);
    dpb_json_set_int(trace, "negative", (int64_t)negative);
    dpb_json_set_absent(trace, "overhead_ratio", "simulated: recording takes no virtual time");
    dpb_json_set(json, "trace", trace);
    return st;
}

/* ---- energy ---- */

/* As if every accelerator were busy all the time: the most it can be. */
static void put_energy(const struct sim_run *run, dpb_json *json)
{
    const struct dpb_experiment *e = run->cell.e;
    const double watts = dpb_machine_value(&run->cell.machine, DPB_FIGURE_POWER, NAN);
    const double joules = watts * (double)e->ranks * total_ns(run) * 1e-9;
    const double steps = (double)run->timed_count;

    if (isnan(watts)) {
        dpb_json_set_absent(json, "energy", "simulated: the machine has no figure \"power\"");
        return;
    }
    dpb_json *energy = dpb_json_object();
    dpb_json_set_string(energy, "meter", "simulated");
    dpb_json_set_string(energy, "scope", "device");
    dpb_json_set_int(energy, "energy_mj", (int64_t)(joules * 1e3 + 0.5));
    dpb_json_set_real(energy, "energy_per_step_mj", joules * 1e3 / steps);
    dpb_json_set_real(energy, "energy_per_sample_j", joules / (steps * (double)e->global_batch));
    dpb_json_set_bool(energy, "throttled", false);
    dpb_json_set_string(energy, "assumption",
                        "every accelerator takes its full power all the time; hosts and network "
                        "are not counted");
    dpb_json_set(energy, "ranks", dpb_json_array());
    dpb_json_set(json, "energy", energy);
}

/* ---- where it all comes from ---- */

static double share_of(const struct sim_run *run, enum dpb_network_origin origin)
{
    double sum = 0;

    for (int o = 0; o <= DPB_ORIGIN_ASSUMED; o++)
        sum += run->network.ns_of_origin[o];
    return sum > 0 ? run->network.ns_of_origin[origin] / sum : 0;
}

static void put_network(const struct sim_run *run, dpb_json *simulation)
{
    dpb_json *network = dpb_json_object();

    if (run->asked.count == 0) {
        dpb_json_free(network);
        dpb_json_set_absent(simulation, "network", "nothing was sent");
        return;
    }
    for (int o = 0; o <= DPB_ORIGIN_ASSUMED; o++) {
        char key[64];

        snprintf(key, sizeof(key), "%s_share", dpb_network_origin_text(o));
        dpb_json_set_real(network, key, share_of(run, o));
    }
    if (run->network.farthest > 1)
        dpb_json_set_real(network, "extrapolated_by", run->network.farthest);
    else
        dpb_json_set_absent(network, "extrapolated_by", "nothing is beyond what was measured");
    if (run->network.below_least > 1)
        dpb_json_set_real(network, "extrapolated_below", run->network.below_least);
    else
        dpb_json_set_absent(network, "extrapolated_below", "nothing is below what was measured");
    dpb_json_set(simulation, "network", network);
}

static void put_figures(const struct sim_run *run, const bool *unused, dpb_json *simulation)
{
    const struct dpb_machine *machine = &run->cell.machine;
    dpb_json *not_used = dpb_json_array();
    int64_t assumed = 0, sourced = 0;

    for (int id = 0; id < DPB_FIGURE_COUNT; id++) {
        if (!dpb_machine_has(machine, id))
            continue;
        if (unused[id]) {
            dpb_json_append(not_used, dpb_json_string(dpb_figure_key(id)));
            continue;
        }
        assumed += machine->figure[id].is_assumed;
        sourced += !machine->figure[id].is_assumed;
    }
    dpb_json_set_int(simulation, "figures_with_source", sourced);
    dpb_json_set_int(simulation, "figures_assumed", assumed);
    dpb_json_set(simulation, "figures_without_effect", not_used);
    dpb_json_set(simulation, "machine_profile", dpb_machine_json(machine));
}

static void put_compute(const struct sim_run *run, dpb_json *simulation)
{
    const struct sim_cell *cell = &run->cell;

    dpb_json_set_string(simulation, "compute", cell->has_profile ? "profile" : "roofline");
    if (!cell->has_profile) {
        dpb_json_set_absent(simulation, "profile", "times are a roofline of the machine");
        return;
    }
    dpb_json *profile = dpb_json_object();
    dpb_json_set_string(profile, "file", cell->o->profile);
    dpb_json_set_string(profile, "device", cell->profile.device);
    dpb_json_set_string(profile, "batch",
                        dpb_profile_origin_text(
                                dpb_profile_origin_of(&cell->profile, cell->e->batch_per_rank)));
    dpb_json_set_string(profile, "precision", dpb_dtype_text(cell->profile.precision));
    dpb_json_set_real(profile, "scaled_by", cell->scaled_by);
    dpb_json_set(simulation, "profile", profile);
}

static void put_noise(const struct sim_run *run, dpb_json *simulation)
{
    const struct dpb_timeline_noise *noise = &run->cell.model.noise;
    dpb_json *json = dpb_json_object();

    dpb_json_set_real(json, "rank", noise->rank_sd);
    dpb_json_set_real(json, "common", noise->common_sd);
    dpb_json_set_real(json, "tail_share", noise->tail_share);
    dpb_json_set_real(json, "tail_mean", noise->tail_mean);
    dpb_json_set_int(json, "slow_ranks", noise->slow_ranks);
    dpb_json_set_real(json, "slow_by", noise->slow_by);
    dpb_json_set(simulation, "noise", json);
}

static dpb_status put_simulation(struct sim_run *run, dpb_json *json)
{
    dpb_json *simulation = dpb_json_object();
    bool unused[DPB_FIGURE_COUNT];
    dpb_status st = sim_figures_unused(&run->cell, &run->asked, unused);

    dpb_json_set(json, "simulation", simulation);
    if (st < 0)
        return st;
    dpb_json_set_string(simulation, "machine", run->cell.machine.name);
    dpb_json_set_string(simulation, "accelerator", run->cell.machine.accelerator);
    put_compute(run, simulation);
    put_network(run, simulation);
    put_noise(run, simulation);
    put_figures(run, unused, simulation);
    return DPB_OK;
}

/* ---- warnings ---- */

static void warn(dpb_json *warnings, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void warn(dpb_json *warnings, const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    dpb_json_append(warnings, dpb_json_string(text));
}

static void warn_of_extrapolation(const struct sim_run *run, dpb_json *warnings)
{
    const double beyond = run->network.farthest, below = run->network.below_least;
    char text[160] = "";
    size_t at = 0;

    if (beyond > 1)
        at = (size_t)snprintf(text, sizeof(text), ", up to %.3g times beyond what was measured",
                              beyond);
    if (below > 1)
        snprintf(text + at, sizeof(text) - at, "%s down to 1/%.0f of the smallest size measured",
                 at ? " and" : ",", below);
    warn(warnings, "%.0f %% of the network's time is extrapolated%s",
         100 * share_of(run, DPB_ORIGIN_EXTRAPOLATED), text);
}

static void put_warnings(const struct sim_run *run, dpb_json *json)
{
    const struct sim_cell *cell = &run->cell;
    dpb_json *warnings = dpb_json_array();

    if (!cell->has_machine && cell->e->ranks > 1)
        warn(warnings, "simulated on an ideal network: no --machine says what joins the ranks");
    if (share_of(run, DPB_ORIGIN_EXTRAPOLATED) > MUCH)
        warn_of_extrapolation(run, warnings);
    if (share_of(run, DPB_ORIGIN_ASSUMED) > MUCH)
        warn(warnings,
             "%.0f %% of the network's time comes from formulas with assumed figures: the machine "
             "has no curve for it",
             100 * share_of(run, DPB_ORIGIN_ASSUMED));
    if (cell->has_profile &&
        dpb_profile_origin_of(&cell->profile, cell->e->batch_per_rank) == DPB_PROFILE_EXTRAPOLATED)
        warn(warnings,
             "the profile does not reach to a batch of %" PRId64 " per rank: its times are "
             "extrapolated",
             cell->e->batch_per_rank);
    if (cell->scaled_by != 1)
        warn(warnings,
             "the profile was measured in %s: that another precision takes %.3g times as long is "
             "assumed from the machine's rates",
             dpb_dtype_text(cell->profile.precision), cell->scaled_by);
    dpb_json_set(json, "warnings", warnings);
}

static void put_parts(const struct sim_run *run, dpb_json *json)
{
    dpb_json *device = dpb_json_object(), *comm = dpb_json_object();

    dpb_json_set_string(device, "name", "sim");
    dpb_json_set_string(device, "machine", run->cell.machine.name);
    dpb_json_set_string(device, "accelerator", run->cell.machine.accelerator);
    dpb_json_set(json, "device", device);
    dpb_json_set_string(comm, "name", "sim");
    dpb_json_set_bool(comm, "simulated", true);
    dpb_json_set(json, "comm", comm);
    dpb_json_set(json, "plan", dpb_sim_step_plan_json(run->sim));
}

dpb_status sim_record(struct sim_run *run, dpb_json **sections)
{
    dpb_json *json = dpb_json_object();
    dpb_status st;

    put_parts(run, json);
    put_times(run, json);
    put_energy(run, json);
    put_warnings(run, json);
    st = put_traced(run, json);
    if (st == DPB_OK)
        st = put_simulation(run, json);
    if (st < 0)
        dpb_json_free(json);
    else
        *sections = json;
    return st;
}

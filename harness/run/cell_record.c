#include "dpb_cell_record.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_clock.h"
#include "dpb_experiment.h"
#include "dpb_host.h"
#include "dpb_log.h"
#include "dpb_stats.h"
#include "cell_trace.h"
#include "rank_clocks.h"
#include "rank_meter.h"
#include "rank_steps.h"

#define LATE_WARN_NS     2000000 /* a wake-up this late distorts an emulated link's timing */
#define DRIFT_WARN_PARTS 1000    /* a clock that is off by more than 1/1000 is broken */
#define CURVE_POINTS     100     /* enough to see how a loss falls; records stay short */

static enum dpb_record_status record_status(dpb_status st)
{
    switch (st) {
    case DPB_OK:
        return DPB_RECORD_OK;
    case DPB_ERR_TIMEOUT:
        return DPB_RECORD_TIMEOUT;
    case DPB_ERR_INTERRUPTED:
        return DPB_RECORD_INTERRUPTED;
    case DPB_ERR_CHECK:
        return DPB_RECORD_INVALID;
    default:
        return DPB_RECORD_FAILED;
    }
}

/* ---- arrays of the ranks' results ---- */

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t at_i64(const dpb_json *rank, const char *key, size_t index)
{
    return dpb_json_as_int(dpb_json_at(dpb_json_get(rank, key), index), 0);
}

static bool complete(const struct dpb_launch_result *result)
{
    for (int r = 0; r < result->rank_count; r++)
        if (!result->ranks[r])
            return false;
    return result->rank_count > 0;
}

/* A value per timed step, into a fresh array; NULL when out of memory or without steps. */
static double *per_step(const struct dpb_launch_result *result,
                        double (*value)(const struct dpb_launch_result *, size_t, const void *),
                        const void *ctx)
{
    size_t steps = dpb_rank_steps_count(result, DPB_STEPS_TIMED);
    double *values = steps ? malloc(steps * sizeof(*values)) : NULL;
    for (size_t s = 0; values && s < steps; s++)
        values[s] = value(result, s, ctx);
    return values;
}

static double mean_phase_of_step(const struct dpb_launch_result *result, size_t s, const void *key)
{
    double sum = 0;
    for (int r = 0; r < result->rank_count; r++)
        sum += (double)at_i64(result->ranks[r], key, s);
    return sum / result->rank_count;
}

static double span_of_rank_step(const struct dpb_launch_result *result, size_t s, const void *rank)
{
    const dpb_json *json = result->ranks[*(const int *)rank];
    return (double)(at_i64(json, "end_ns", s) - at_i64(json, "start_ns", s));
}

static double median_per_step(const struct dpb_launch_result *result,
                              double (*value)(const struct dpb_launch_result *, size_t,
                                              const void *),
                              const void *ctx)
{
    double *values = per_step(result, value, ctx);
    double median =
            values ? dpb_stats_median(values, dpb_rank_steps_count(result, DPB_STEPS_TIMED)) : NAN;
    free(values);
    return median;
}

double dpb_cell_median_step_ns(const struct dpb_launch_result *result)
{
    return complete(result) ? dpb_rank_steps_median_ns(result, DPB_STEPS_TIMED) : NAN;
}

/* ---- sections of the record ---- */

static void put_plan(const struct dpb_cell_outcome *o, dpb_json *record)
{
    const struct dpb_plan_cell *cell = &o->plan->cells[o->launch.cell];
    const struct dpb_experiment *e = dpb_config_struct(cell->config, "experiment");
    dpb_json *axes = dpb_json_object();
    for (size_t i = 0; i < o->plan->axis_count; i++) {
        struct dpb_str text = {0};
        if (dpb_config_text(cell->config, o->plan->axis_names[i], &text) == DPB_OK)
            dpb_json_set_string(axes, o->plan->axis_names[i], text.text);
        dpb_str_release(&text);
    }
    struct dpb_str repro = {0};
    dpb_str_append(&repro, "dpbench run");
    dpb_config_repro(cell->config, &repro);
    dpb_json_set(
            record, "config",
            dpb_cell_record_config(cell->config, o->is_virtual ? NULL : o->crew, o->result->world));
    dpb_json_set_string(record, "repro", repro.text);
    dpb_str_release(&repro);
    dpb_json_set(record, "axes", axes);
    dpb_json_set_string(record, "label", cell->label);
    dpb_json_set_string(record, "series", cell->series);
    dpb_json_set_string(record, "compute_series", cell->compute_series);
    dpb_json_set_int(record, "ranks", e->ranks);
    dpb_json_set_string(record, "scaling",
                        dpb_experiment_is_weak(cell->config) ? "weak" : "strong");
    dpb_json_set_int(record, "global_batch", e->global_batch);
    dpb_json_set_int(record, "batch_per_rank", e->batch_per_rank);
}

static void put_samples(const struct dpb_cell_outcome *o, dpb_json *record)
{
    const struct dpb_launch_result *result = o->result;
    size_t steps = dpb_rank_steps_count(result, DPB_STEPS_TIMED);
    dpb_json *samples = dpb_json_array();
    int64_t total_ns = 0;
    for (size_t s = 0; s < steps; s++) {
        int64_t ns = dpb_rank_steps_ns(result, DPB_STEPS_TIMED, s);
        total_ns += ns;
        dpb_json_append(samples, dpb_json_int(ns));
    }
    dpb_json_set(record, "samples_step_ns", samples);
    dpb_json *medians = dpb_json_array();
    for (int r = 0; r < result->rank_count; r++)
        dpb_json_append(medians, dpb_json_real(median_per_step(result, span_of_rank_step, &r)));
    dpb_json_set(record, "rank_median_step_ns", medians);

    static const char *const phases[] = {"data_ns", "forward_ns", "backward_ns", "sync_ns",
                                         "optimizer_ns"};
    dpb_json *phase = dpb_json_object();
    for (size_t i = 0; i < sizeof(phases) / sizeof(phases[0]); i++)
        dpb_json_set_real(phase, phases[i], median_per_step(result, mean_phase_of_step, phases[i]));
    dpb_json_set(record, "phases", phase);

    const struct dpb_experiment *e =
            dpb_config_struct(o->plan->cells[o->launch.cell].config, "experiment");
    double rate = (double)e->global_batch * (double)steps * 1e9 / (double)total_ns;
    dpb_json *throughput = dpb_json_object();
    dpb_json_set_real(throughput, "samples_per_s_total", rate);
    dpb_json_set_real(throughput, "samples_per_s_per_rank", rate / (double)e->ranks);
    dpb_json_set(record, "throughput", throughput);
}

/* Mean loss of the global batch of step s. */
static double global_loss(const struct dpb_launch_result *result, size_t s)
{
    double loss = 0, samples = 0;
    for (int r = 0; r < result->rank_count; r++) {
        loss += dpb_json_as_real(dpb_json_at(dpb_json_get(result->ranks[r], "loss_sum"), s), NAN);
        samples += (double)at_i64(result->ranks[r], "samples", s);
    }
    return loss / samples;
}

/* Mean losses of at most CURVE_POINTS stretches of consecutive steps, as equal as they can be. A
 * stretch whose loss is not finite is left out; returns whether there was none. */
static bool put_loss_curve(const struct dpb_launch_result *result, size_t steps, dpb_json *training)
{
    size_t points = steps < CURVE_POINTS ? steps : CURVE_POINTS, step = 0;
    dpb_json *curve = dpb_json_object(), *last_steps = dpb_json_array(), *losses = dpb_json_array();
    bool finite = true;
    for (size_t p = 0; p < points; p++) {
        size_t first = step, end = (p + 1) * steps / points;
        double sum = 0;
        for (; step < end; step++)
            sum += global_loss(result, step);
        if (!isfinite(sum)) {
            finite = false;
            continue;
        }
        dpb_json_append(last_steps, dpb_json_int((int64_t)end));
        dpb_json_append(losses, dpb_json_real(sum / (double)(end - first)));
    }
    dpb_json_set(curve, "step", last_steps);
    dpb_json_set(curve, "loss", losses);
    dpb_json_set(training, "loss_curve", curve);
    return finite;
}

/* What rank 0 trained on, and which files each rank read or mapped for it. */
static dpb_json *data_json(const struct dpb_launch_result *result)
{
    static const char *const keys[][2] = {{"files", "rank_files"},
                                          {"file_bytes", "rank_file_bytes"}};
    dpb_json *data = dpb_json_copy(dpb_json_get(result->ranks[0], "dataset"));
    for (int k = 0; k < 2; k++) {
        dpb_json *ranks = dpb_json_array();
        for (int r = 0; r < result->rank_count; r++) {
            const dpb_json *dataset = dpb_json_get(result->ranks[r], "dataset");
            int64_t number = dpb_json_as_int(dpb_json_get(dataset, keys[k][0]), 0);
            dpb_json_append(ranks, dpb_json_int(number));
        }
        dpb_json_set(data, keys[k][1], ranks);
    }
    return data;
}

/* True when every loss was finite. */
static bool put_training(const struct dpb_cell_outcome *o, dpb_json *record)
{
    const struct dpb_launch_result *result = o->result;
    const struct dpb_experiment *e =
            dpb_config_struct(o->plan->cells[o->launch.cell].config, "experiment");
    size_t steps = dpb_json_size(dpb_json_get(result->ranks[0], "loss_sum"));
    dpb_json *training = dpb_json_object();
    bool finite = put_loss_curve(result, steps, training);
    dpb_json_set_real(training, "loss_first", global_loss(result, 0));
    dpb_json_set_real(training, "loss_last", global_loss(result, steps - 1));
    dpb_json_set_int(training, "steps", (int64_t)steps);
    dpb_json_set_int(training, "epochs", e->epochs);
    int64_t correct = 0, samples = 0;
    for (int r = 0; r < result->rank_count; r++) {
        correct += dpb_json_as_int(dpb_json_get(result->ranks[r], "test_correct"), 0);
        samples += dpb_json_as_int(dpb_json_get(result->ranks[r], "test_samples"), 0);
    }
    if (samples > 0)
        dpb_json_set_real(training, "test_accuracy", (double)correct / (double)samples);
    else
        dpb_json_set_absent(training, "test_accuracy", "not evaluated (--evaluate, --epochs)");
    dpb_json_set_int(training, "test_samples", samples);
    dpb_json_set(training, "loss_scale",
                 dpb_json_copy(dpb_json_get(result->ranks[0], "loss_scale")));
    dpb_json_set(training, "captured_steps",
                 dpb_json_copy(dpb_json_get(result->ranks[0], "captured_steps")));
    dpb_json_set(record, "training", training);
    dpb_json_set(record, "data", data_json(result));
    return finite;
}

static bool replicas_identical(const struct dpb_launch_result *result)
{
    const char *first = dpb_json_as_string(dpb_json_get(result->ranks[0], "param_hash"), "");
    for (int r = 1; r < result->rank_count; r++)
        if (strcmp(first, dpb_json_as_string(dpb_json_get(result->ranks[r], "param_hash"), "-")))
            return false;
    return true;
}

/* Of a strategy that lets replicas differ between synchronisations. */
static bool ended_in_sync(const struct dpb_launch_result *result)
{
    return dpb_json_as_bool(dpb_json_get(result->ranks[0], "in_sync"), true);
}

static dpb_json *predicted_memory(const struct dpb_cell_outcome *o)
{
    dpb_json *memory = dpb_json_object();
    dpb_memory_to_json(o->memory, o->memory_limits, memory);
    return memory;
}

static void put_parts(const struct dpb_cell_outcome *o, dpb_json *record)
{
    const struct dpb_launch_result *result = o->result;
    const struct dpb_experiment *e =
            dpb_config_struct(o->plan->cells[o->launch.cell].config, "experiment");
    dpb_json *device = dpb_json_copy(dpb_json_get(result->ranks[0], "device"));
    dpb_json *ranks = dpb_json_array();
    int64_t peak = 0;
    dpb_json *stats = dpb_json_array();
    for (int r = 0; r < result->rank_count; r++) {
        const dpb_json *rank = result->ranks[r];
        dpb_json *entry = dpb_json_object();
        dpb_json_set_int(entry, "rank", r);
        dpb_json_set_int(entry, "pid", dpb_json_as_int(dpb_json_get(rank, "pid"), 0));
        dpb_json_set(entry, "cores", dpb_json_copy(dpb_json_path(rank, "device/cores")));
        dpb_json_append(ranks, entry);
        dpb_json_append(stats, dpb_json_copy(dpb_json_get(rank, "comm_stats")));
        int64_t bytes = dpb_json_as_int(dpb_json_get(rank, "peak_bytes"), 0);
        peak = larger(peak, bytes);
    }
    dpb_json_set(device, "ranks", ranks);
    dpb_json_set(record, "device", device);
    dpb_json *comm = dpb_json_copy(dpb_json_get(result->ranks[0], "comm"));
    dpb_json_set(comm, "rank_stats", stats);
    dpb_json_set(record, "comm", comm);
    dpb_json_set_bool(record, "emulated",
                      dpb_json_as_bool(dpb_json_get(comm, "emulated"), false) && e->ranks > 1);
    const struct dpb_device_ops *ops = dpb_registry_device(o->registry, e->device);
    dpb_json_set_bool(record, "simulated", (ops->flags & DPB_DEVICE_VIRTUAL_TIME) != 0);
    dpb_json_set(record, "plan", dpb_json_copy(dpb_json_get(result->ranks[0], "plan")));
    dpb_json *memory = predicted_memory(o);
    dpb_json_set_int(memory, "measured_bytes", peak);
    dpb_json_set(memory, "parts", dpb_json_copy(dpb_json_get(result->ranks[0], "memory")));
    dpb_json_set(record, "memory", memory);
}

/* Of all ranks' timed steps. */
static void put_energy(const struct dpb_cell_outcome *o, dpb_json *record)
{
    const struct dpb_launch_result *result = o->result;
    const struct dpb_experiment *e =
            dpb_config_struct(o->plan->cells[o->launch.cell].config, "experiment");
    int64_t steps = (int64_t)dpb_rank_steps_count(result, DPB_STEPS_TIMED);
    const dpb_json **ranks = calloc((size_t)result->rank_count, sizeof(*ranks));
    char why[512] = "out of memory";
    dpb_json *energy = NULL;
    for (int r = 0; ranks && r < result->rank_count; r++)
        ranks[r] = dpb_json_get(result->ranks[r], "meter");
    if (ranks)
        energy = rank_meters_energy(ranks, result->rank_count, steps, steps * e->global_batch, why,
                                    sizeof(why));
    if (energy)
        dpb_json_set(record, "energy", energy);
    else
        dpb_json_set_absent(record, "energy", why);
    free(ranks);
}

/* How the clocks of the ranks' hosts differ, where there are several. */
static dpb_status put_clocks(const struct dpb_cell_outcome *o, dpb_json *record)
{
    struct rank_clocks clocks;
    DPB_TRY(rank_clocks_read(o->result, &clocks));
    if (clocks.domains > 1)
        dpb_json_set(record, "clocks", rank_clocks_json(o->result, &clocks));
    else
        dpb_json_set_absent(record, "clocks", "all ranks share one clock");
    rank_clocks_release(&clocks);
    return DPB_OK;
}

/* What the background thread that moves the gradients cost, and how punctual it was. */
static void put_progress(const struct dpb_cell_outcome *o, dpb_json *record)
{
    const struct dpb_launch_result *result = o->result;
    int64_t cpu_ns = 0, collectives = 0, late = 0, p50_ns = 0, p99_ns = 0, max_ns = 0;
    if (result->rank_count < 2) {
        dpb_json_set_absent(record, "progress", "no communication with one rank");
        return;
    }
    for (int r = 0; r < result->rank_count; r++) {
        const dpb_json *stats = dpb_json_get(result->ranks[r], "comm_stats");
        cpu_ns += dpb_json_as_int(dpb_json_get(stats, "progress_cpu_ns"), 0);
        collectives += dpb_json_as_int(dpb_json_get(stats, "collectives"), 0);
        late += dpb_json_as_int(dpb_json_get(stats, "link_late"), 0);
        p50_ns = larger(p50_ns, dpb_json_as_int(dpb_json_get(stats, "wake_late_p50_ns"), 0));
        p99_ns = larger(p99_ns, dpb_json_as_int(dpb_json_get(stats, "wake_late_p99_ns"), 0));
        max_ns = larger(max_ns, dpb_json_as_int(dpb_json_get(stats, "wake_late_max_ns"), 0));
    }
    dpb_json *progress = dpb_json_object();
    dpb_json_set_real(progress, "cpu_ns_per_collective", (double)cpu_ns / (double)collectives);
    const struct {
        const char *key;
        int64_t value;
    } of_link[] = {{"wake_late_p50_ns", p50_ns},
                   {"wake_late_p99_ns", p99_ns},
                   {"wake_late_max_ns", max_ns},
                   {"link_late", late}};
    for (size_t i = 0; i < sizeof(of_link) / sizeof(of_link[0]); i++) {
        if (dpb_json_as_bool(dpb_json_path(record, "comm/emulated"), false))
            dpb_json_set_int(progress, of_link[i].key, of_link[i].value);
        else
            dpb_json_set_absent(progress, of_link[i].key, "no emulated link");
    }
    dpb_json_set(record, "progress", progress);
}

/* ---- what a reader should be warned of ---- */

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

static void warn_of_link(const dpb_json *progress, dpb_json *warnings)
{
    int64_t late = dpb_json_as_int(dpb_json_get(progress, "link_late"), 0);
    int64_t p99_ns = dpb_json_as_int(dpb_json_get(progress, "wake_late_p99_ns"), 0);
    if (late > 0)
        warn(warnings,
             "%" PRId64 " collectives took longer on this machine than on the emulated link: "
             "the link is faster than the machine can emulate",
             late);
    if (p99_ns > LATE_WARN_NS)
        warn(warnings,
             "the emulated link's wake-ups came up to %.1f ms late (p99): short collectives look "
             "longer than the link would make them",
             (double)p99_ns * 1e-6);
}

/* Step times of a device that was held back are those of its cooling. */
static void warn_of_throttling(const dpb_json *energy, dpb_json *warnings)
{
    const dpb_json *ranks = dpb_json_get(energy, "ranks");
    for (size_t r = 0; r < dpb_json_size(ranks); r++) {
        const dpb_json *rank = dpb_json_at(ranks, r);
        if (dpb_json_as_bool(dpb_json_get(rank, "throttled"), false))
            warn(warnings,
                 "rank %zu's device was held back (%s): its step times are not those of a device "
                 "that is cooled and fed well",
                 r, dpb_json_as_string(dpb_json_get(rank, "throttled_by"), "unknown"));
    }
}

/* Durations on a clock that runs at another speed are longer or shorter than they were. */
static void warn_of_drift(const dpb_json *clocks, int64_t wall_ns, dpb_json *warnings)
{
    const dpb_json *ranks = dpb_json_get(clocks, "ranks");
    for (size_t r = 0; r < dpb_json_size(ranks); r++) {
        const dpb_json *rank = dpb_json_at(ranks, r);
        int64_t drift_ns = dpb_json_as_int(dpb_json_get(rank, "drift_ns"), 0);
        int64_t error_ns = dpb_json_as_int(dpb_json_get(rank, "error_ns"), 0);
        int64_t size_ns = drift_ns < 0 ? -drift_ns : drift_ns;
        if (size_ns <= 2 * error_ns || size_ns <= wall_ns / DRIFT_WARN_PARTS)
            continue;
        warn(warnings,
             "the clock of rank %zu's host (%s) ran %.3f ms off the launcher's in this launch: "
             "its durations are wrong by as much",
             r, dpb_json_as_string(dpb_json_get(rank, "host"), ""), (double)drift_ns * 1e-6);
        return; /* one line, not one for every rank of the host */
    }
}

static void warn_of_bf16(const dpb_json *device, dpb_json *warnings)
{
    const char *how = dpb_json_as_string(dpb_json_get(device, "bf16"), "");
    if (strncmp(how, "emulated", strlen("emulated")) == 0)
        warn(warnings,
             "bf16 is %s on this machine: its speed says nothing of processors with arithmetic "
             "for it",
             how);
}

/* Steps were traced, but too much of the trace is missing. */
static void warn_of_losses(const dpb_json *record, dpb_json *warnings)
{
    if (dpb_json_type(dpb_json_get(record, "trace")) == DPB_JSON_OBJECT &&
        dpb_json_type(dpb_json_get(record, "overlap")) == DPB_JSON_NULL)
        warn(warnings, "no figures of overlap: %s",
             dpb_json_as_string(dpb_json_get(record, "overlap_reason"), "not known"));
}

/* Local SGD sends something in one step of so many: in none of the timed ones? */
static void warn_of_no_synchronisation(const struct dpb_experiment *e, const dpb_json *plan,
                                       dpb_json *warnings)
{
    int64_t every = dpb_json_as_int(dpb_json_get(plan, "sync_every"), 0);
    int64_t first = dpb_json_as_int(dpb_json_get(plan, "local_warmup"), 0);
    if (every == 0 || e->ranks == 1 || e->steps == DPB_AUTO || first > e->warmup ||
        (e->steps - first) / every > (e->warmup - first) / every)
        return;
    warn(warnings,
         "in no timed step the ranks sent anything: one in %" PRId64 " does, and %" PRId64
         " were timed; give more --steps or a smaller --sync-every",
         every, e->steps - e->warmup);
}

static void put_warnings(const struct dpb_cell_outcome *o, bool flagged, dpb_json *record)
{
    const struct dpb_experiment *e =
            dpb_config_struct(o->plan->cells[o->launch.cell].config, "experiment");
    dpb_json *warnings = dpb_json_array();
    int cores = (int)dpb_json_as_int(dpb_json_get(o->host, "cores"), 1);
    if (e->precision == DPB_BF16)
        warn_of_bf16(dpb_json_get(record, "device"), warnings);
    warn_of_losses(record, warnings);
    if (flagged)
        warn(warnings,
             "only %.0f %% of a core was available (limit %.0f %%) in the best of %d attempts: "
             "neighbours on this machine; repeat when it is quieter",
             100 * o->attempts[o->attempt_used].availability, 100 * o->probe_limit,
             o->attempt_count);
    if (e->ranks * e->threads_per_rank > cores)
        warn(warnings,
             "%" PRId64 " ranks of %" PRId64 " threads share %d cores: step times show the "
             "sharing, not scaling",
             e->ranks, e->threads_per_rank, cores);
    if (e->data == DPB_DATA_SYNTHETIC)
        warn(warnings, "trained on synthetic data: loss and accuracy mean nothing");
    warn_of_throttling(dpb_json_get(record, "energy"), warnings);
    warn_of_drift(dpb_json_get(record, "clocks"), o->result->wall_ns, warnings);
    warn_of_link(dpb_json_get(record, "progress"), warnings);
    warn_of_no_synchronisation(e, dpb_json_get(record, "plan"), warnings);
    dpb_json_set(record, "warnings", warnings);
}

/* ---- simulated cells ---- */

double dpb_cell_sections_median_ns(const dpb_json *sections)
{
    const dpb_json *samples = dpb_json_get(sections, "samples_step_ns");
    size_t count = dpb_json_size(samples);
    double *values = malloc((count + 1) * sizeof(*values)), median = NAN;
    for (size_t i = 0; values && i < count; i++)
        values[i] = dpb_json_as_real(dpb_json_at(samples, i), NAN);
    if (values && count > 0)
        median = dpb_stats_median(values, count);
    free(values);
    return median;
}

/* What a simulation has, as it tells it, and why the rest is not there. */
static void put_sections(const struct dpb_cell_outcome *o, dpb_json *record)
{
    static const char *const keys[] = {"training", "verified", "progress",
                                       "data",     "waiting",  "clocks"};
    dpb_json_walk walk = {0};
    const dpb_json *value;
    const char *key;
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        dpb_json_set_absent(record, keys[i], "simulated: nothing is trained");
    while ((value = dpb_json_next(o->sections, &walk, &key)))
        dpb_json_set(record, key, dpb_json_copy(value));
    dpb_json *memory = predicted_memory(o);
    dpb_json_set_absent(memory, "measured_bytes", "simulated");
    dpb_json_set(record, "memory", memory);
    dpb_json_set_bool(record, "emulated", false);
}

/* The machine that was simulated, not the one that did it. */
static void put_virtual_fingerprint(dpb_json *record)
{
    dpb_json *host = dpb_json_object(), *device = dpb_json_object();
    struct dpb_str text = {0};
    char fingerprint[17];
    const dpb_json *machine = dpb_json_path(record, "simulation/machine_profile");
    if (machine && dpb_json_write(machine, false, &text) == DPB_OK)
        dpb_json_set_string(device, "name", text.text);
    dpb_host_fingerprint(host, device, fingerprint);
    dpb_json_set_string(record, "fingerprint", fingerprint);
    dpb_str_release(&text);
    dpb_json_free(device);
    dpb_json_free(host);
}

static bool put_probe(const struct dpb_cell_outcome *o, dpb_json *record)
{
    dpb_json *probe = dpb_json_object();
    dpb_json *attempts = dpb_json_array();
    double used = o->attempt_count ? o->attempts[o->attempt_used].availability : NAN;
    bool flagged = o->attempt_count > 0 && used < o->probe_limit;
    for (int i = 0; i < o->attempt_count; i++) {
        dpb_json *attempt = dpb_json_object();
        dpb_json_set_real(attempt, "availability_ratio", o->attempts[i].availability);
        dpb_json_set_real(attempt, "before_ratio", o->attempts[i].before);
        dpb_json_set_real(attempt, "after_ratio", o->attempts[i].after);
        dpb_json_set_real(attempt, "median_step_ns", o->attempts[i].median_step_ns);
        dpb_json_append(attempts, attempt);
    }
    dpb_json_set_real(probe, "limit_ratio", o->probe_limit);
    dpb_json_set_real(probe, "availability_ratio", used);
    dpb_json_set(probe, "attempts", attempts);
    dpb_json_set_int(probe, "attempt_used", o->attempt_used);
    dpb_json_set_bool(probe, "flagged", flagged);
    dpb_json_set(record, "probe", probe);
    return flagged;
}

static void put_absent(const struct dpb_cell_outcome *o, dpb_json *record, const char *reason)
{
    static const char *const keys[] = {"device",   "comm",          "verified",   "phases",
                                       "overlap",  "communication", "throughput", "energy",
                                       "training", "trace",         "waiting",    "clocks"};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        dpb_json_set_absent(record, keys[i], reason);
    dpb_json_set_absent(record, "progress", reason);
    dpb_json *memory = predicted_memory(o);
    dpb_json_set_absent(memory, "measured_bytes", reason);
    dpb_json_set(record, "memory", memory);
    dpb_json_set(record, "samples_step_ns", dpb_json_array());
    dpb_json_set_bool(record, "emulated", false);
    dpb_json_set_bool(record, "simulated", o->is_virtual);
}

/* Everything that the ranks' results give; changes `status` to invalid when they do not count. */
static dpb_status put_results(const struct dpb_cell_outcome *o, dpb_json *record,
                              enum dpb_record_status *status, char *reason, size_t reason_bytes)
{
    put_parts(o, record);
    DPB_TRY(put_clocks(o, record));
    put_energy(o, record);
    put_progress(o, record);
    bool finite = put_training(o, record);
    bool in_sync = ended_in_sync(o->result);
    bool identical = !in_sync || replicas_identical(o->result);
    dpb_json *verified = dpb_json_object();
    if (o->result->rank_count > 1) {
        if (in_sync)
            dpb_json_set_bool(verified, "replicas_identical", identical);
        else
            dpb_json_set_absent(verified, "replicas_identical",
                                "training ended between two synchronisations of the replicas");
        /* the engine refuses to start without */
        dpb_json_set_bool(verified, "comm_self_check", true);
    } else {
        dpb_json_set_absent(verified, "replicas_identical", "one rank has no replica");
        dpb_json_set_absent(verified, "comm_self_check", "no communication with one rank");
    }
    dpb_json_set_bool(verified, "loss_finite", finite);
    dpb_json_set(record, "verified", verified);
    put_samples(o, record);
    DPB_TRY(dpb_cell_trace_put(o, record));
    if (finite && identical)
        return DPB_OK;
    *status = DPB_RECORD_INVALID;
    snprintf(reason, reason_bytes, "%s",
             finite ? "replicas differ after training"
                    : "the loss is not finite (try a smaller --lr)");
    /* The rate of a training that went wrong is no result, however high. */
    dpb_json_set(record, "samples_step_ns", dpb_json_array());
    dpb_json_set_absent(record, "throughput", reason);
    return DPB_OK;
}

/* What repeats a cell starts its ranks in the same way. */
static void add_launcher_to_repro(dpb_json *record)
{
    const char *options = dpb_json_as_string(dpb_json_path(record, "launcher/options"), "");
    const char *repro = dpb_json_as_string(dpb_json_get(record, "repro"), "");
    struct dpb_str line = {0};
    if (!repro[0] || !options[0])
        return;
    dpb_str_appendf(&line, "%s%s", repro, options);
    if (!line.failed)
        dpb_json_set_string(record, "repro", line.text);
    dpb_str_release(&line);
}

dpb_json *dpb_cell_record_config(const dpb_config *config, const dpb_crew *crew,
                                 const dpb_json *world)
{
    static const char *const key = "ranks_per_node";
    dpb_json *json = dpb_config_to_json(config);
    const dpb_json *each = dpb_json_get(world, key);
    if (dpb_json_as_int(dpb_json_get(world, "nodes"), 1) > 1) {
        if (dpb_json_type(each) == DPB_JSON_INT)
            dpb_json_set(json, key, dpb_json_copy(each));
        else
            dpb_json_set_absent(json, key, "nodes have different numbers of ranks: world.hosts");
    } else if (crew && !world && !dpb_config_is_explicit(config, "ranks-per-node")) {
        dpb_json_set_absent(json, key, "the ranks were not all there");
    }
    return json;
}

void dpb_cell_record_where(const dpb_crew *crew, const dpb_json *world, dpb_json *record)
{
    dpb_json_set(record, "launcher", dpb_crew_json(crew));
    add_launcher_to_repro(record);
    if (world)
        dpb_json_set(record, "world", dpb_json_copy(world));
    else
        dpb_json_set_absent(record, "world",
                            crew ? "the ranks were not all there" : "all ranks are on the host");
}

dpb_status dpb_cell_record_build(const struct dpb_cell_outcome *o, dpb_json **record)
{
    dpb_json *json = dpb_json_object();
    char time_utc[32], fingerprint[17], reason[1024];
    enum dpb_record_status status = o->skipped ? DPB_RECORD_SKIPPED : record_status(o->status);
    snprintf(reason, sizeof(reason), "%s",
             o->result->reason[0] ? o->result->reason : dpb_status_text(o->status));
    dpb_clock_utc_text(time_utc, sizeof(time_utc));
    dpb_json_set_string(json, "schema", DPB_RECORD_SCHEMA);
    dpb_json_set_string(json, "run_id", o->run_id);
    dpb_json_set_int(json, "cell", o->launch.cell);
    dpb_json_set_int(json, "repeat", o->launch.repeat);
    dpb_json_set_int(json, "order", o->order);
    dpb_json_set_string(json, "status", "ok");
    dpb_json_set(json, "reason", dpb_json_null());
    dpb_json_set(json, "tool", dpb_tool_json());
    dpb_json_set_string(json, "time_utc", time_utc);
    dpb_json_set(json, "host", dpb_json_copy(o->host));
    put_plan(o, json);
    dpb_cell_record_where(o->crew, o->result->world, json);
    bool flagged = !o->is_virtual && put_probe(o, json);
    if (o->is_virtual)
        dpb_json_set_absent(json, "probe", "simulated: nothing was measured on this machine");
    if (o->status == DPB_OK && o->is_virtual) {
        put_sections(o, json);
        dpb_json_set_bool(json, "simulated", true);
    } else if (o->status == DPB_OK && complete(o->result)) {
        dpb_status st = put_results(o, json, &status, reason, sizeof(reason));
        if (st < 0) {
            dpb_json_free(json);
            return st;
        }
    } else {
        put_absent(o, json, reason);
    }
    if (o->is_virtual) {
        if (!dpb_json_get(json, "warnings"))
            dpb_json_set(json, "warnings", dpb_json_array());
        put_virtual_fingerprint(json);
    } else {
        put_warnings(o, flagged, json);
        dpb_host_fingerprint(o->host, dpb_json_get(json, "device"), fingerprint);
        dpb_json_set_string(json, "fingerprint", fingerprint);
    }
    dpb_json_set_int(json, "wall_ns", o->result->wall_ns);
    dpb_json_set_string(json, "status", dpb_record_status_text(status));
    if (status != DPB_RECORD_OK)
        dpb_json_set_string(json, "reason", reason);
    *record = json;
    return DPB_OK;
}

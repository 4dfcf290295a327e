/* calibrate.c: a machine profile of what was measured. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calibrate_private.h"
#include "dpb_clock.h"
#include "dpb_host.h"
#include "dpb_log.h"
#include "dpb_stats.h"
#include "dpb_units.h"

/* ---- what the files share ---- */

__attribute__((format(printf, 1, 0))) static char *text_of(const char *format, va_list list)
{
    char *text = NULL;

    return vasprintf(&text, format, list) < 0 ? NULL : text;
}

/* No measurement is good for more than 4 digits. */
static double rounded(double value)
{
    char text[32];
    double shorter = value;

    snprintf(text, sizeof(text), "%.4g", value);
    return dpb_parse_f64(text, &shorter, NULL) == DPB_OK ? shorter : value;
}

void calibrate_figure(struct calibrating *c, enum dpb_figure_id id, double value, bool is_assumed,
                      const char *date, const char *format, ...)
{
    struct dpb_figure *figure = &c->machine.figure[id];
    va_list list;

    va_start(list, format);
    free(figure->source);
    free(figure->date);
    *figure = (struct dpb_figure){.value = id == DPB_FIGURE_MEMORY ? value : rounded(value),
                                  .source = text_of(format, list),
                                  .date = date ? strdup(date) : NULL,
                                  .is_assumed = is_assumed};
    va_end(list);
}

void calibrate_left_out(struct calibrating *c, const char *format, ...)
{
    va_list list;
    char *text;

    va_start(list, format);
    text = text_of(format, list);
    va_end(list);
    dpb_json_append(c->left_out, dpb_json_string(text));
    free(text);
}

static bool is_same_machine(const dpb_json *a, const dpb_json *b)
{
    static const char *const keys[] = {"name", "cpu_model"};

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (strcmp(dpb_json_as_string(dpb_json_get(a, keys[i]), ""),
                   dpb_json_as_string(dpb_json_get(b, keys[i]), "")) != 0)
            return false;
    return dpb_json_as_int(dpb_json_get(a, "cores"), 0) ==
           dpb_json_as_int(dpb_json_get(b, "cores"), 0);
}

dpb_status calibrate_host(struct calibrating *c, const dpb_json *record, const char *file)
{
    const dpb_json *host = dpb_json_get(record, "host");

    if (strcmp(dpb_json_as_string(dpb_json_path(record, "device/name"), "cpu"), "cpu") != 0) {
        dpb_error("\"%s\" was measured on device %s: a profile of this kind is of a CPU", file,
                  dpb_json_as_string(dpb_json_path(record, "device/name"), "?"));
        dpb_log_hint("write a profile of a GPU node from its data sheet, docs/machines.md, and put "
                     "its measured curves there");
        return DPB_ERR_USAGE;
    }
    if (!c->host) {
        c->host = dpb_json_copy(host);
        return DPB_OK;
    }
    if (is_same_machine(c->host, host))
        return DPB_OK;
    dpb_error("\"%s\" was measured on another machine (%s, %s) than the records before it (%s)",
              file, dpb_json_as_string(dpb_json_get(host, "name"), "?"),
              dpb_json_as_string(dpb_json_get(host, "cpu_model"), "?"),
              dpb_json_as_string(dpb_json_get(c->host, "name"), "?"));
    dpb_log_hint("calibrate one machine at a time");
    return DPB_ERR_USAGE;
}

static void put_error(dpb_json *object, const char *prefix, const char *name, double value,
                      const char *why_none)
{
    char key[64];

    snprintf(key, sizeof(key), "%s%s", prefix, name);
    if (isnan(value))
        dpb_json_set_absent(object, key, why_none);
    else
        dpb_json_set_real(object, key, value);
}

void calibrate_put_errors(dpb_json *object, const char *prefix, const double *errors, size_t count,
                          const char *why_none)
{
    const double median = count > 0 ? dpb_stats_median(errors, count) : NAN;
    const double worst = count > 0 ? dpb_stats_quantile(errors, count, 1) : NAN;

    put_error(object, prefix, "median_error", median, why_none);
    put_error(object, prefix, "worst_error", worst, why_none);
}

/* ---- the machine itself ---- */

static void put_memory_rate(struct calibrating *c)
{
    if (c->loop_bytes_per_s > 0)
        calibrate_figure(c, DPB_FIGURE_MEMORY_RATE, c->loop_bytes_per_s, false, c->today,
                         "a triad over 3 arrays of 64 MiB on one core of this machine, the best of "
                         "5 passes");
    else
        calibrate_figure(c, DPB_FIGURE_MEMORY_RATE, 10e9, true, NULL,
                         "the records are of another machine, where no loop was run");
    calibrate_figure(c, DPB_FIGURE_MEMORY_SHARE, 1, false, NULL,
                     "the rate is a measured one, and no peak");
}

static dpb_status put_host(struct calibrating *c)
{
    struct dpb_machine *machine = &c->machine;
    const char *cpu = dpb_json_as_string(dpb_json_get(c->host, "cpu_model"), "CPU");
    const int cores = (int)dpb_json_as_int(dpb_json_get(c->host, "cores"), 1);
    const double bytes = dpb_json_as_real(dpb_json_get(c->host, "memory_bytes"), 0);
    dpb_json *here = dpb_host_json();
    struct dpb_str summary = {0};

    c->is_here = is_same_machine(c->host, here);
    dpb_json_free(here);
    machine->is_cpu = true;
    machine->accelerators_per_node = c->most_ranks > cores ? c->most_ranks : cores;
    machine->name = strdup(c->config->name);
    machine->accelerator = strdup(cpu);
    dpb_str_appendf(&summary, "%s: %d cores, measured by dpbench calibrate",
                    dpb_json_as_string(dpb_json_get(c->host, "name"), "a machine"), cores);
    machine->summary = summary.text;
    if (!machine->name || !machine->accelerator || summary.failed)
        return DPB_ERR_NO_MEMORY;
    calibrate_figure(c, DPB_FIGURE_MEMORY, floor(bytes / machine->accelerators_per_node), false,
                     NULL, "the machine's, by %d", machine->accelerators_per_node);
    c->loop_bytes_per_s = c->is_here ? calibrate_memory_loop() : 0;
    put_memory_rate(c);
    return DPB_OK;
}

/* What the file cannot do without, where nothing was measured for it. */
static void assume_the_rest(struct calibrating *c)
{
    if (!dpb_machine_has(&c->machine, DPB_FIGURE_FP32)) {
        calibrate_figure(c, DPB_FIGURE_FP32, c->is_here ? calibrate_flop_loop() : 10e9, true, NULL,
                         c->is_here ? "no training steps were given: a loop of multiply-adds here"
                                    : "no training steps were given");
        calibrate_left_out(c, "the rate of compute is assumed: no training steps were given");
    }
    if (!dpb_machine_has(&c->machine, DPB_FIGURE_INSIDE_RATE) &&
        c->machine.accelerators_per_node > 1) {
        calibrate_figure(c, DPB_FIGURE_INSIDE_RATE,
                         dpb_machine_value(&c->machine, DPB_FIGURE_MEMORY_RATE, 10e9) / 2, true,
                         NULL,
                         "no collectives were given: half of the memory's rate, since a copy "
                         "reads and writes");
        calibrate_left_out(c, "the link between ranks is assumed: no collectives were given");
    }
}

/* ---- all of it ---- */

static dpb_status no_data(void)
{
    dpb_error("there is nothing to calibrate from: no record of real ranks that is ok");
    dpb_log_hint("measure first: dpbench comm --ranks 2 -o a; dpbench run -o b; dpbench calibrate "
                 "--comm a --run b; or dpbench calibrate alone, which measures itself");
    return DPB_ERR_NO_DATA;
}

/* Steps that were measured beside a busy neighbour. */
static void warn_of_neighbours(const struct calibrating *c)
{
    size_t flagged = 0;

    for (size_t i = 0; i < c->records.count; i++)
        flagged += dpb_json_as_bool(dpb_json_path(c->records.items[i], "probe/flagged"), false);
    if (flagged == 0)
        return;
    dpb_warn("%zu of %zu records of steps were measured while others used the cores: the rates, "
             "noise and contention are theirs as well",
             flagged, c->records.count);
    dpb_log_hint("measure again when the machine is quiet");
}

static dpb_status calibrate(struct calibrating *c)
{
    DPB_TRY(calibrate_comm(c));
    for (size_t i = 0; i < c->config->run_count; i++)
        DPB_TRY(dpb_records_read(c->config->runs[i], &c->records));
    for (size_t i = 0; i < c->records.count; i++) {
        const dpb_json *record = c->records.items[i];
        const int ranks = (int)dpb_json_as_int(dpb_json_get(record, "ranks"), 1);

        if (strcmp(dpb_json_as_string(dpb_json_get(record, "status"), ""), "ok") != 0)
            continue;
        DPB_TRY(calibrate_host(c, record,
                               dpb_json_as_string(dpb_json_get(record, "run_id"), "a run")));
        c->most_ranks = ranks > c->most_ranks ? ranks : c->most_ranks;
    }
    if (!c->host)
        return no_data();
    warn_of_neighbours(c);
    DPB_TRY(put_host(c));
    DPB_TRY(calibrate_runs(c));
    assume_the_rest(c);
    return calibrate_check_steps(c);
}

dpb_status dpb_calibrate(const struct dpb_calibrate_config *config,
                         struct dpb_calibration *calibration)
{
    struct calibrating c = {
            .config = config, .report = dpb_json_object(), .left_out = dpb_json_array()};
    char now[32];
    dpb_status st;

    for (int id = 0; id < DPB_FIGURE_COUNT; id++)
        c.machine.figure[id].value = NAN;
    dpb_clock_utc_text(now, sizeof(now));
    snprintf(c.today, sizeof(c.today), "%.10s", now);
    st = calibrate(&c);
    dpb_json_set(c.report, "left_out", c.left_out);
    if (st >= 0) {
        dpb_json_set(c.report, "machine", dpb_machine_json(&c.machine));
        *calibration = (struct dpb_calibration){c.machine, c.report};
    } else {
        dpb_json_free(c.report);
        dpb_machine_release(&c.machine);
    }
    calibrate_runs_release(&c);
    dpb_records_release(&c.records);
    dpb_json_free(c.host);
    return st;
}

void dpb_calibration_release(struct dpb_calibration *calibration)
{
    dpb_machine_release(&calibration->machine);
    dpb_json_free(calibration->report);
    calibration->report = NULL;
}

/* gate_records.c: records of training runs and of collectives -> what a gate compares. */
#include "dpb_gate_set.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "dpb_gate.h"
#include "dpb_json.h"
#include "dpb_log.h"
#include "dpb_stats.h"
#include "dpb_str.h"

static const char *text_at(const dpb_json *record, const char *path)
{
    return dpb_json_as_string(dpb_json_path(record, path), "");
}

static double real_at(const dpb_json *record, const char *path)
{
    return dpb_json_as_real(dpb_json_path(record, path), NAN);
}

static int64_t int_at(const dpb_json *record, const char *path, int64_t otherwise)
{
    return dpb_json_as_int(dpb_json_path(record, path), otherwise);
}

__attribute__((format(printf, 2, 3))) static void blame(char trouble[256], const char *format, ...)
{
    va_list list;

    if (trouble[0])
        return; /* the first reason is enough */
    va_start(list, format);
    vsnprintf(trouble, 256, format, list);
    va_end(list);
}

/* ---- which cell a record belongs to ---- */

/* "mnist-cnn ddp, ranks 2, bucket 1MiB" */
static void append_name(const dpb_json *record, struct dpb_str *name)
{
    const char *given = text_at(record, "gate/name"), *key;
    const dpb_json *axis, *axes = dpb_json_get(record, "axes");
    dpb_json_walk walk = {0};

    if (given[0]) {
        dpb_str_append(name, given);
        return;
    }
    dpb_str_appendf(name, "%s %s, ranks %lld", text_at(record, "config/workload"),
                    text_at(record, "config/strategy"), (long long)int_at(record, "ranks", 0));
    while ((axis = dpb_json_next(axes, &walk, &key)))
        if (strcmp(key, "workload") != 0 && strcmp(key, "strategy") != 0 &&
            strcmp(key, "ranks") != 0 && strcmp(key, "side") != 0)
            dpb_str_appendf(name, ", %s %s", key, dpb_json_as_string(axis, "?"));
}

static void append_series(const dpb_json *record, struct dpb_str *series)
{
    dpb_str_appendf(series, "%s ranks=%lld global-batch=%lld", text_at(record, "series"),
                    (long long)int_at(record, "ranks", 0),
                    (long long)int_at(record, "global_batch", 0));
}

/* ---- what must agree ---- */

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), end_length = strlen(end);

    return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

/* "bucket_bytes" -> "bucket", "first_bucket_bytes" -> "first-bucket" */
static void option_name(const char *key, char name[64])
{
    static const char *const units[] = {"_bytes", "_ns", "_ratio"};

    snprintf(name, 64, "%s", key);
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
        if (ends_with(name, units[i])) {
            name[strlen(name) - strlen(units[i])] = '\0';
            break;
        }
    for (char *at = name; *at; at++)
        if (*at == '_')
            *at = '-';
}

static dpb_status add_fact(struct dpb_gate_cell *cell, const char *key, const char *text)
{
    const char *had = dpb_gate_cell_fact(cell, key);

    if (had && strcmp(had, text) != 0)
        blame(cell->trouble, "its runs are not of one kind: %s is %.60s and %.60s", key, had, text);
    return dpb_gate_cell_set_fact(cell, key, text);
}

/* A scalar as text; objects (a link) as JSON. */
static dpb_status add_value_fact(struct dpb_gate_cell *cell, const char *key, const dpb_json *value)
{
    struct dpb_str text = {0};

    if (dpb_json_type(value) == DPB_JSON_STRING)
        dpb_str_append(&text, dpb_json_as_string(value, ""));
    else
        DPB_TRY(dpb_json_write(value, false, &text));
    const dpb_status st =
            text.failed ? DPB_ERR_NO_MEMORY : add_fact(cell, key, text.text ? text.text : "");
    dpb_str_release(&text);
    return st;
}

/* Options that change what is recorded, or how long is waited, but not what is measured. */
static bool is_of_no_matter(const char *name)
{
    static const char *const names[] = {"repeats",     "timeout",       "stall-timeout",
                                        "probe-limit", "probe-retries", "data-dir",
                                        "data-file",   "sizes",         "memory-limit"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return ends_with(name, "-reason");
}

static dpb_status add_options(struct dpb_gate_cell *cell, const dpb_json *config)
{
    const dpb_json *value;
    const char *key;
    dpb_json_walk walk = {0};

    while ((value = dpb_json_next(config, &walk, &key))) {
        char name[64];

        option_name(key, name);
        if (!is_of_no_matter(name))
            DPB_TRY(add_value_fact(cell, name, value));
    }
    return DPB_OK;
}

/* Names and versions: of the accelerator, its driver, the libraries, the transport. */
static dpb_status add_texts(struct dpb_gate_cell *cell, const char *prefix, const dpb_json *object)
{
    const dpb_json *value;
    const char *key;
    dpb_json_walk walk = {0};

    while ((value = dpb_json_next(object, &walk, &key))) {
        char name[128];

        if (dpb_json_type(value) != DPB_JSON_STRING || ends_with(key, "_reason"))
            continue;
        snprintf(name, sizeof(name), "%s-%s", prefix, key);
        DPB_TRY(add_value_fact(cell, name, value));
    }
    return DPB_OK;
}

static dpb_status add_facts(struct dpb_gate_cell *cell, const dpb_json *record)
{
    static const char *const keys[] = {"fingerprint", "emulated", "simulated", "scaling"};

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (dpb_json_get(record, keys[i]))
            DPB_TRY(add_value_fact(cell, keys[i], dpb_json_get(record, keys[i])));
    DPB_TRY(add_fact(cell, "build-type", text_at(record, "tool/build/type")));
    DPB_TRY(add_options(cell, dpb_json_get(record, "config")));
    DPB_TRY(add_texts(cell, "device", dpb_json_get(record, "device")));
    return add_texts(cell, "comm", dpb_json_get(record, "comm"));
}

/* ---- when a run was made ---- */

/* Seconds since 1970 of "2026-12-01T16:26:25.981Z"; NaN: it is none. */
static double seconds_of(const char *text)
{
    struct tm tm = {0};
    double seconds;

    if (sscanf(text, "%d-%d-%dT%d:%d:%lfZ", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &tm.tm_hour,
               &tm.tm_min, &seconds) != 6)
        return NAN;
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    return (double)timegm(&tm) + seconds;
}

static dpb_status describe_run(const dpb_json *record, struct dpb_gate_run *run)
{
    struct dpb_str line = {0};

    *run = (struct dpb_gate_run){
            .order = real_at(record, "order"),
            .time_s = seconds_of(text_at(record, "time_utc")),
            .pair = int_at(record, "gate/pair", -1),
    };
    snprintf(run->session, sizeof(run->session), "%s", text_at(record, "run_id"));
    DPB_TRY(dpb_json_write(record, false, &line));
    dpb_sha256_text(line.text, line.length, run->hash);
    dpb_str_release(&line);
    return DPB_OK;
}

/* ---- one run's values ---- */

struct steps {
    double *ns;
    size_t count, from; /* the first that counts */
    const char *why;    /* NULL: they are good */
    char text[160];
};

static dpb_status read_steps(const dpb_json *record, struct steps *steps)
{
    const dpb_json *samples = dpb_json_get(record, "samples_step_ns"), *sample;
    dpb_json_walk walk = {0};

    *steps = (struct steps){.ns = malloc((dpb_json_size(samples) + 1) * sizeof(*steps->ns))};
    if (!steps->ns)
        return DPB_ERR_NO_MEMORY;
    while ((sample = dpb_json_next(samples, &walk, NULL)))
        steps->ns[steps->count++] = dpb_json_as_real(sample, NAN);
    const size_t warmup = dpb_gate_warmup(steps->count);
    steps->from = dpb_gate_steady_from(steps->ns, steps->count);
    if (steps->from < warmup)
        steps->from = warmup;
    return DPB_OK;
}

/* Values are the metric itself: logarithms are the comparison's business. */
static double step_statistic(struct steps *steps, enum dpb_run_statistic statistic)
{
    double theta;

    if (dpb_gate_run(steps->ns, steps->count, steps->from, statistic, &theta, steps->text,
                     sizeof(steps->text)) == DPB_OK)
        return exp(theta);
    steps->why = steps->text;
    return NAN;
}

struct extraction {
    struct dpb_gate_cell *cell;
    size_t run;
    const dpb_json *record;
    dpb_status st;
};

static void put(struct extraction *at, const char *metric, double value)
{
    if (at->st == DPB_OK && !isnan(value))
        at->st = dpb_gate_cell_set_value(at->cell, at->run, dpb_gate_metric_find(metric), value);
}

static void put_steps(struct extraction *at, double price)
{
    const double batch = real_at(at->record, "global_batch");
    const double accelerators = real_at(at->record, "ranks");
    const double epoch_steps = real_at(at->record, "data/steps_per_epoch");
    struct steps steps;

    at->st = read_steps(at->record, &steps);
    if (at->st < 0)
        return;
    const double mean_ns = step_statistic(&steps, DPB_RUN_MEAN);
    const double step_usd = mean_ns / 1e9 * accelerators * price / 3600;
    put(at, "step-time-median", step_statistic(&steps, DPB_RUN_MEDIAN));
    put(at, "step-time-mean", mean_ns);
    put(at, "step-time-p95", step_statistic(&steps, DPB_RUN_P95));
    if (!steps.why)
        put(at, "step-time-p99",
            dpb_stats_tail_quantile(steps.ns + steps.from, steps.count - steps.from, 0.99));
    put(at, "throughput", batch / mean_ns * 1e9);
    put(at, "cost-per-million-samples", step_usd / batch * 1e6);
    put(at, "cost-per-epoch", step_usd * epoch_steps);
    if (steps.why)
        blame(at->cell->step_trouble, "run %zu: %s", at->run + 1, steps.why);
    free(steps.ns);
}

/* Of events that were lost nobody knows what they covered. */
static bool lost_events(const dpb_json *record)
{
    return int_at(record, "trace/lost", 0) > 0;
}

static void put_traced(struct extraction *at)
{
    const dpb_json *record = at->record;
    const double span = real_at(record, "overlap/span_ns");

    put(at, "exposed-share", span > 0 ? real_at(record, "overlap/exposed_ns") / span : NAN);
    put(at, "bus-bandwidth", real_at(record, "communication/busbw_bytes_per_s"));
    put(at, "collectives", real_at(record, "communication/collectives_per_step"));
}

static void put_others(struct extraction *at)
{
    const dpb_json *record = at->record, *units = dpb_json_path(record, "plan/units");

    if (!lost_events(record))
        put_traced(at);
    put(at, "memory-peak", real_at(record, "memory/measured_bytes"));
    put(at, "energy-per-sample", real_at(record, "energy/energy_per_sample_j"));
    put(at, "wire-bytes", real_at(record, "communication/wire_bytes_per_step"));
    if (units)
        put(at, "buckets", (double)dpb_json_size(units));
    put(at, "loss", real_at(record, "training/loss_last"));
    put(at, "accuracy", real_at(record, "training/test_accuracy"));
}

static bool loss_is_finite(const dpb_json *record)
{
    const dpb_json *training = dpb_json_get(record, "training");
    const dpb_json *loss = dpb_json_get(training, "loss_last");

    return dpb_json_as_bool(dpb_json_path(record, "verified/loss_finite"), true) &&
           (!loss || dpb_json_type(loss) != DPB_JSON_NULL);
}

static dpb_status set_curves(struct dpb_gate_cell *cell, const dpb_json *record)
{
    if (cell->curve)
        return DPB_OK; /* by an earlier run of it */
    cell->curve = strdup(text_at(record, "series"));
    cell->compute_curve = strdup(text_at(record, "compute_series"));
    return cell->curve && cell->compute_curve ? DPB_OK : DPB_ERR_NO_MEMORY;
}

static dpb_status add_record(struct dpb_gate_set *set, const dpb_json *record, double price)
{
    struct dpb_str name = {0}, series = {0};
    struct dpb_gate_run run;
    struct extraction at = {.record = record};

    append_name(record, &name);
    append_series(record, &series);
    at.cell = name.failed || series.failed
                      ? NULL
                      : dpb_gate_set_cell(set, name.text ? name.text : "", series.text);
    dpb_str_release(&name);
    dpb_str_release(&series);
    if (!at.cell)
        return DPB_ERR_NO_MEMORY;
    DPB_TRY(set_curves(at.cell, record));
    if (strcmp(text_at(record, "status"), "ok") != 0) {
        blame(at.cell->trouble, "a run is %s: %.150s", text_at(record, "status"),
              text_at(record, "reason"));
        return DPB_OK;
    }
    if (!loss_is_finite(record))
        blame(at.cell->trouble, "the loss of a run is not finite");
    DPB_TRY(describe_run(record, &run));
    DPB_TRY(dpb_gate_cell_add_run(at.cell, &run, &at.run));
    DPB_TRY(add_facts(at.cell, record));
    at.cell->busy_runs += dpb_json_as_bool(dpb_json_path(record, "probe/flagged"), false);
    put_steps(&at, price);
    put_others(&at);
    return at.st;
}

/* ---- scaling efficiency ---- */

static double number_fact(const struct dpb_gate_cell *cell, const char *key)
{
    const char *text = dpb_gate_cell_fact(cell, key);

    return text ? strtod(text, NULL) : NAN;
}

static bool same_text(const char *a, const char *b)
{
    return a && b && strcmp(a, b) == 0;
}

/* The rule of dpb_summary.h: a link or a bucket means nothing to one rank, so it has no such
 * option. */
static bool one_curve(const struct dpb_gate_cell *cell, const struct dpb_gate_cell *base)
{
    static const char *const same_machine[] = {"fingerprint", "simulated"};

    for (size_t i = 0; i < sizeof(same_machine) / sizeof(same_machine[0]); i++) {
        const char *fact = dpb_gate_cell_fact(cell, same_machine[i]);
        const char *other = dpb_gate_cell_fact(base, same_machine[i]);

        if ((fact || other) && !same_text(fact, other))
            return false;
    }
    return same_text(cell->curve, base->curve) ||
           (number_fact(base, "ranks") == 1.0 &&
            same_text(cell->compute_curve, base->compute_curve));
}

/* Run i against run i of the cell with the fewest ranks, so that noise of both is in the values,
 * and of these one with all its options rather than one rank without; with unequal numbers of runs
 * there is no efficiency. */
static dpb_status add_efficiency(struct dpb_gate_set *set, struct dpb_gate_cell *cell)
{
    const struct dpb_gate_cell *base = NULL;
    const double ranks = number_fact(cell, "ranks");
    double fewest = ranks;

    for (size_t i = 0; i < set->cell_count; i++) {
        const double others = number_fact(&set->cells[i], "ranks");

        const bool nearer = others < fewest || (base && others == fewest &&
                                                same_text(cell->curve, set->cells[i].curve));

        if (others < ranks && nearer && one_curve(cell, &set->cells[i])) {
            base = &set->cells[i];
            fewest = others;
        }
    }
    if (!base || base->run_count != cell->run_count)
        return DPB_OK;
    const double *most = dpb_gate_cell_values(cell, "throughput");
    const double *few = dpb_gate_cell_values(base, "throughput");
    for (size_t i = 0; most && few && i < cell->run_count; i++) {
        const double value = most[i] * fewest / (few[i] * ranks);

        if (isfinite(value))
            DPB_TRY(dpb_gate_cell_set_value(cell, i, dpb_gate_metric_find("efficiency"), value));
        most = dpb_gate_cell_values(cell, "throughput");
    }
    return DPB_OK;
}

/* ---- records ---- */

static bool is_of_side(const dpb_json *record, enum dpb_gate_side side)
{
    static const char *const names[] = {"", "baseline", "candidate"};

    return side == DPB_GATE_SIDE_ALL || strcmp(text_at(record, "gate/side"), names[side]) == 0;
}

/* A repeat that was run again, after an interruption say, counts once: the last record of it. */
static bool is_superseded(const struct dpb_records *records, size_t index)
{
    const dpb_json *record = records->items[index];

    for (size_t i = index + 1; i < records->count; i++) {
        const dpb_json *later = records->items[i];

        if (int_at(later, "cell", 0) == int_at(record, "cell", 0) &&
            int_at(later, "repeat", 0) == int_at(record, "repeat", 0) &&
            strcmp(text_at(later, "run_id"), text_at(record, "run_id")) == 0)
            return true;
    }
    return false;
}

/* Options that `gate measure` gave to one side only. */
static void add_by_design(const dpb_json *record, char by_design[256])
{
    const dpb_json *differs = dpb_json_path(record, "gate/differs");

    if (!by_design[0])
        for (size_t i = 0; i < dpb_json_size(differs); i++) {
            const size_t length = strlen(by_design);

            snprintf(by_design + length, 256 - length, "%s%s", length ? " " : "",
                     dpb_json_as_string(dpb_json_at(differs, i), ""));
        }
}

/* What `gate measure` calls the side: "candidate (--bucket 1MiB)". */
static dpb_status take_label(struct dpb_gate_set *set, const dpb_json *record)
{
    const char *label = text_at(record, "gate/label");

    if (set->source || !label[0])
        return DPB_OK;
    set->source = strdup(label);
    return set->source ? DPB_OK : DPB_ERR_NO_MEMORY;
}

static dpb_status note_lost(size_t lossy, size_t count, struct dpb_gate_set *set)
{
    struct dpb_str notes = {0};

    if (lossy == 0)
        return DPB_OK;
    dpb_str_appendf(
            &notes,
            "%s%sthe traces of %zu of %zu runs lost events: exposed-share, bus-bandwidth and "
            "collectives of these are not used",
            set->notes ? set->notes : "", set->notes ? "\n" : "", lossy, count);
    if (notes.failed)
        return DPB_ERR_NO_MEMORY;
    free(set->notes);
    set->notes = notes.text;
    return DPB_OK;
}

dpb_status dpb_gate_set_from_records(const struct dpb_records *records, enum dpb_gate_side side,
                                     double price, struct dpb_gate_set *set)
{
    size_t lossy = 0, count = 0;

    set->price = price;
    for (size_t i = 0; i < records->count; i++) {
        if (!is_of_side(records->items[i], side) || is_superseded(records, i))
            continue;
        add_by_design(records->items[i], set->by_design);
        if (side != DPB_GATE_SIDE_ALL)
            DPB_TRY(take_label(set, records->items[i]));
        DPB_TRY(add_record(set, records->items[i], price));
        lossy += lost_events(records->items[i]);
        count++;
    }
    DPB_TRY(note_lost(lossy, count, set));
    for (size_t i = 0; i < set->cell_count; i++)
        DPB_TRY(add_efficiency(set, &set->cells[i]));
    return DPB_OK;
}

/* ---- collectives ---- */

static dpb_status add_comm_record(struct dpb_gate_set *set, const dpb_json *record)
{
    static const char *const host_keys[] = {"cpu_model", "cores", "kernel", "memory_bytes"};
    const struct dpb_gate_metric *metric = dpb_gate_metric_find("comm-bus-bandwidth");
    const bool is_ok = strcmp(text_at(record, "status"), "ok") == 0;
    char name[256];
    struct dpb_gate_run run;
    size_t number;

    if (is_ok && int_at(record, "ranks", 0) == 1)
        return DPB_OK;
    snprintf(name, sizeof(name), "%s %s, %lld B, ranks %lld%s%s", text_at(record, "collective"),
             text_at(record, "dtype"), (long long)int_at(record, "size_bytes", 0),
             (long long)int_at(record, "ranks", 0), text_at(record, "label")[0] ? ", " : "",
             text_at(record, "label"));
    struct dpb_gate_cell *cell = dpb_gate_set_cell(set, name, "");
    if (!cell)
        return DPB_ERR_NO_MEMORY;
    cell->size_bytes = real_at(record, "size_bytes");
    if (!is_ok || int_at(record, "wrong", 0) != 0) {
        blame(cell->trouble, "a run is %s, with %lld wrong elements: %.150s",
              text_at(record, "status"), (long long)int_at(record, "wrong", 0),
              text_at(record, "reason"));
        return DPB_OK;
    }
    DPB_TRY(describe_run(record, &run));
    run.order = NAN;
    DPB_TRY(dpb_gate_cell_add_run(cell, &run, &number));
    DPB_TRY(add_facts(cell, record));
    for (size_t i = 0; i < sizeof(host_keys) / sizeof(host_keys[0]); i++) {
        const dpb_json *value = dpb_json_get(dpb_json_get(record, "host"), host_keys[i]);

        if (value)
            DPB_TRY(add_value_fact(cell, host_keys[i], value));
    }
    return dpb_gate_cell_set_value(cell, number, metric, real_at(record, "busbw_bytes_per_s"));
}

/* The file of records: in a run folder, or named itself. Caller frees. */
static char *records_path(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 && S_ISDIR(info.st_mode) ? dpb_path_join(path, "records.jsonl")
                                                           : strdup(path);
}

typedef dpb_status (*take_record)(struct dpb_gate_set *set, const dpb_json *record);

static dpb_status each_line(const char *path, const struct dpb_str *text, struct dpb_gate_set *set,
                            take_record take)
{
    size_t number = 1;

    for (const char *line = text->text; line && *line; number++) {
        const char *end = strchr(line, '\n');
        dpb_json *record;
        char why[256];

        if (!end)
            break; /* a torn last line */
        if (end > line) {
            if (dpb_json_parse(line, (size_t)(end - line), &record, why) < 0) {
                dpb_error("\"%s\", line %zu: not a record: %s", path, number, why);
                dpb_log_hint("measure again, or remove that line to use the others");
                return DPB_ERR_CORRUPT;
            }
            const dpb_status st = take(set, record);
            dpb_json_free(record);
            DPB_TRY(st);
        }
        line = end + 1;
    }
    return DPB_OK;
}

dpb_status dpb_gate_set_from_comm(const char *path, enum dpb_gate_side side,
                                  struct dpb_gate_set *set)
{
    struct dpb_str text = {0};
    char *file = records_path(path);
    dpb_status st = file ? dpb_file_read(file, &text) : DPB_ERR_NO_MEMORY;

    if (st == DPB_OK && side == DPB_GATE_SIDE_ALL)
        st = each_line(file, &text, set, add_comm_record);
    dpb_str_release(&text);
    free(file);
    return st;
}

/* ---- any path ---- */

static bool is_comm(const char *file)
{
    char head[64] = "";
    FILE *stream = fopen(file, "r");

    if (!stream)
        return false;
    const size_t got = fread(head, 1, sizeof(head) - 1, stream);
    fclose(stream);
    head[got] = '\0';
    return strstr(head, "\"dpb.comm/1\"") != NULL;
}

static dpb_status read_training(const char *path, enum dpb_gate_side side, double price,
                                struct dpb_gate_set *set)
{
    struct dpb_records records = {0};
    dpb_status st = dpb_records_read(path, &records);

    if (st == DPB_OK)
        st = dpb_gate_set_from_records(&records, side, price, set);
    dpb_records_release(&records);
    return st;
}

dpb_status dpb_gate_set_read(const char *path, enum dpb_gate_side side, double price,
                             struct dpb_gate_set *set)
{
    char *file = records_path(path);

    if (!file)
        return DPB_ERR_NO_MEMORY;
    const bool comm = is_comm(file);
    free(file);
    DPB_TRY(comm ? dpb_gate_set_from_comm(path, side, set) : read_training(path, side, price, set));
    if (!set->source)
        set->source = strdup(path);
    if (set->cell_count == 0) {
        dpb_error("\"%s\" has no runs %s", path,
                  comm ? "of collectives between ranks" : "of that side");
        dpb_log_hint("%s", comm ? "one rank has no bus bandwidth: measure with more --ranks"
                                : "name a run folder, or one that `dpbench gate measure` has "
                                  "written");
        return DPB_ERR_NO_DATA;
    }
    return set->source ? DPB_OK : DPB_ERR_NO_MEMORY;
}

bool dpb_gate_has_sides(const char *path)
{
    struct dpb_str text = {0};
    char *file = records_path(path);
    bool sides = false;

    if (file && access(file, R_OK) == 0 && dpb_file_read(file, &text) == DPB_OK && text.text)
        sides = strstr(text.text, "\"side\":\"baseline\"") != NULL &&
                strstr(text.text, "\"side\":\"candidate\"") != NULL;
    dpb_str_release(&text);
    free(file);
    return sides;
}

/* import.c: which format a text is in, metrics, and what the readers share. */
#include "dpb_import.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "dpb_baseline.h"
#include "dpb_log.h"
#include "dpb_str.h"
#include "import_private.h"

#define FILE_BYTES_MAX ((size_t)256 << 20)

/* clang-format off */
static const struct dpb_gate_metric metrics[] = {
    {"time", "ns", DPB_GATE_RELATIVE, false, true, false, 0.02, "time of one execution"},
    {"real-time", "ns", DPB_GATE_RELATIVE, false, true, false, 0.02, "wall-clock time per iteration"},
    {"cpu-time", "ns", DPB_GATE_RELATIVE, false, false, false, 0.02, "CPU time per iteration"},
    {"gpu-time", "ns", DPB_GATE_RELATIVE, false, true, false, 0.02, "mean time by the GPU's clock"},
    {"items-rate", "1/s", DPB_GATE_RELATIVE, true, false, false, 0.02, "items per second"},
    {"bytes-rate", "B/s", DPB_GATE_RELATIVE, true, false, false, 0.02, "bytes per second"},
    {"value", "", DPB_GATE_RELATIVE, false, true, false, 0.02, "value of a table; less is better"},
    {"rate", "", DPB_GATE_RELATIVE, true, true, false, 0.02, "value of a table; more is better"},
    {NULL, NULL, DPB_GATE_RELATIVE, false, false, false, 0, NULL},
};

const struct dpb_import_format dpb_import_formats[] = {
    {"google-benchmark", "Google Benchmark's JSON; a run is a repetition in one process"},
    {"nccl-tests", "nccl-tests' table; a run is a file"},
    {"nccl-tests-json", "nccl-tests' JSON; a run is a file"},
    {"pytorch-ddp", "JSON of PyTorch's benchmarks/distributed/ddp; a run is a file"},
    {"hyperfine", "hyperfine's JSON; a run is a launch of the command"},
    {"pyperf", "pyperf's JSON; a run is a worker process"},
    {"nvbench", "nvbench's JSON; a run is a file"},
    {"csv", "one value per line, or named columns, one benchmark each; a run is a line"},
    {NULL, NULL},
};
/* clang-format on */

static const struct {
    dpb_status (*read)(struct import *in);
    bool is_json;
} readers[] = {
        {import_google_benchmark, true}, {import_nccl_text, false}, {import_nccl_json, true},
        {import_pytorch_ddp, true},      {import_hyperfine, true},  {import_pyperf, true},
        {import_nvbench, true},          {import_csv, false},
};
#define FORMAT_COUNT (sizeof(readers) / sizeof(readers[0]))
_Static_assert(sizeof(dpb_import_formats) / sizeof(dpb_import_formats[0]) == FORMAT_COUNT + 1,
               "one reader per format");

const struct dpb_gate_metric *dpb_import_metric_find(const char *name)
{
    for (const struct dpb_gate_metric *metric = metrics; metric->name; metric++)
        if (strcmp(metric->name, name) == 0)
            return metric;
    return dpb_gate_metric_find(name);
}

/* ---- what readers share ---- */

dpb_status import_bad(const struct import *in, const char *where, const char *format, ...)
{
    char what[256];
    va_list list;

    va_start(list, format);
    vsnprintf(what, sizeof(what), format, list);
    va_end(list);
    dpb_error("%s: %s: %s", in->file, where, what);
    return DPB_ERR_CORRUPT;
}

dpb_status import_begin(struct import *in, const char *name, struct import_run *run)
{
    struct dpb_gate_run about = {.order = NAN, .time_s = NAN, .pair = -1};
    struct dpb_str key = {0};

    run->cell = dpb_gate_set_cell(in->set, name, "");
    if (!run->cell)
        return DPB_ERR_NO_MEMORY;
    dpb_str_appendf(&key, "%s\n%s\n%zu", in->sha256, name, run->cell->run_count);
    if (key.failed)
        return DPB_ERR_NO_MEMORY;
    dpb_sha256_text(key.text, key.length, about.hash);
    dpb_str_release(&key);
    return dpb_gate_cell_add_run(run->cell, &about, &run->number);
}

dpb_status import_put(const struct import *in, const struct import_run *run, const char *metric,
                      double value, const char *where)
{
    if (!isfinite(value) || value < 0)
        return import_bad(in, where, "%s %g is not a finite number of at least 0", metric, value);
    return dpb_gate_cell_set_value(run->cell, run->number, dpb_import_metric_find(metric), value);
}

void import_trouble(const struct import_run *run, const char *format, ...)
{
    va_list list;

    if (run->cell->trouble[0])
        return;
    va_start(list, format);
    vsnprintf(run->cell->trouble, sizeof(run->cell->trouble), format, list);
    va_end(list);
}

dpb_status import_fact(const struct import *in, const struct import_run *run, const char *key,
                       const dpb_json *value)
{
    struct dpb_str text = {0};

    (void)in;
    if (dpb_json_type(value) == DPB_JSON_NULL)
        return DPB_OK;
    if (dpb_json_type(value) == DPB_JSON_STRING)
        dpb_str_append(&text, dpb_json_as_string(value, ""));
    else
        DPB_TRY(dpb_json_write(value, false, &text));
    const dpb_status st =
            text.failed ? DPB_ERR_NO_MEMORY
                        : dpb_gate_cell_set_fact(run->cell, key, text.text ? text.text : "");
    dpb_str_release(&text);
    return st;
}

dpb_status import_number(const struct import *in, const dpb_json *object, const char *where,
                         const char *key, double *number)
{
    const dpb_json *value = dpb_json_get(object, key);

    if (!value)
        return import_bad(in, where, "it has no \"%s\"", key);
    if (dpb_json_type(value) != DPB_JSON_INT && dpb_json_type(value) != DPB_JSON_REAL)
        return import_bad(in, where, "\"%s\" is not a number", key);
    *number = dpb_json_as_real(value, NAN);
    return DPB_OK;
}

dpb_status import_text(const struct import *in, const dpb_json *object, const char *where,
                       const char *key, const char **text)
{
    const dpb_json *value = dpb_json_get(object, key);

    if (dpb_json_type(value) != DPB_JSON_STRING)
        return import_bad(in, where, "it has no text \"%s\"", key);
    *text = dpb_json_as_string(value, "");
    return DPB_OK;
}

dpb_status import_array(const struct import *in, const dpb_json *object, const char *where,
                        const char *key, const dpb_json **array)
{
    *array = dpb_json_get(object, key);
    if (dpb_json_type(*array) != DPB_JSON_ARRAY)
        return import_bad(in, where, "it has no array \"%s\"", key);
    return DPB_OK;
}

/* ---- which format ---- */

static const char *detect_json(const dpb_json *root)
{
    const dpb_json *benchmarks = dpb_json_get(root, "benchmarks");
    const dpb_json *first = dpb_json_at(benchmarks, 0);

    if (dpb_json_get(root, "benchmark_results"))
        return "pytorch-ddp";
    if (dpb_json_path(root, "meta/version/nvbench") || dpb_json_get(first, "states"))
        return "nvbench";
    if (dpb_json_get(first, "runs"))
        return "pyperf";
    if (benchmarks)
        return "google-benchmark";
    if (dpb_json_path(root, "config/aggregated_iterations") || dpb_json_get(root, "nccl_version"))
        return "nccl-tests-json";
    return dpb_json_get(root, "results") ? "hyperfine" : NULL;
}

/* Blanks and a byte order mark in front of the text. */
static size_t skip(const char *text, size_t count)
{
    size_t at = count >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;

    while (at < count && strchr(" \t\r\n", text[at]) && text[at])
        at++;
    return at;
}

const char *dpb_import_detect(const char *text, size_t count)
{
    const size_t at = skip(text, count);
    const char *format;
    dpb_json *root;

    if (at == count)
        return NULL;
    if (text[at] == '{' || text[at] == '[') {
        if (dpb_json_parse(text + at, count - at, &root, NULL) < 0)
            return NULL;
        format = detect_json(root);
        dpb_json_free(root);
        return format;
    }
    return memmem(text, count, "busbw", 5) && text[at] == '#' ? "nccl-tests" : "csv";
}

static size_t find_format(const char *name)
{
    size_t i = 0;

    while (i < FORMAT_COUNT && strcmp(dpb_import_formats[i].name, name) != 0)
        i++;
    return i;
}

static dpb_status unknown_format(const char *name)
{
    struct dpb_str names = {0};

    for (size_t i = 0; i < FORMAT_COUNT; i++)
        dpb_str_appendf(&names, "%s%s", i ? ", " : "", dpb_import_formats[i].name);
    dpb_error("--format \"%s\": there is no such format", name);
    dpb_log_hint("formats are %s", names.text ? names.text : "");
    dpb_str_release(&names);
    return DPB_ERR_USAGE;
}

/* ---- into one set ---- */

static dpb_status merge_run(const struct dpb_gate_cell *from, size_t run, struct dpb_gate_cell *to)
{
    size_t number;

    for (size_t i = 0; i < to->run_count; i++)
        if (from->runs[run].hash[0] && strcmp(to->runs[i].hash, from->runs[run].hash) == 0)
            return DPB_OK; /* the same file twice is one run */
    DPB_TRY(dpb_gate_cell_add_run(to, &from->runs[run], &number));
    for (size_t m = 0; m < from->metric_count; m++)
        DPB_TRY(dpb_gate_cell_set_value(to, number, from->metrics[m].metric,
                                        from->metrics[m].values[run]));
    return DPB_OK;
}

static dpb_status merge(const struct dpb_gate_set *from, struct dpb_gate_set *to)
{
    for (size_t i = 0; i < from->cell_count; i++) {
        const struct dpb_gate_cell *cell = &from->cells[i];
        struct dpb_gate_cell *into = dpb_gate_set_cell(to, cell->name, cell->series);

        if (!into)
            return DPB_ERR_NO_MEMORY;
        for (size_t f = 0; f < cell->fact_count; f++) {
            const char *had = dpb_gate_cell_fact(into, cell->facts[f].key);

            if (had && strcmp(had, cell->facts[f].text) != 0 && !into->trouble[0])
                snprintf(into->trouble, sizeof(into->trouble),
                         "its runs are not of one kind: %.60s is %.60s and %.60s",
                         cell->facts[f].key, had, cell->facts[f].text);
            DPB_TRY(dpb_gate_cell_set_fact(into, cell->facts[f].key, cell->facts[f].text));
        }
        if (!into->trouble[0])
            memcpy(into->trouble, cell->trouble, sizeof(into->trouble));
        into->size_bytes = cell->size_bytes;
        for (size_t run = 0; run < cell->run_count; run++)
            DPB_TRY(merge_run(cell, run, into));
    }
    return DPB_OK;
}

static dpb_status read_into(struct import *in, size_t format, size_t at)
{
    dpb_json *root = NULL;
    char why[256];

    if (readers[format].is_json && dpb_json_parse(in->text + at, in->count - at, &root, why) < 0) {
        dpb_error("%s: %s", in->file, why);
        dpb_log_hint("is the file complete?");
        return DPB_ERR_CORRUPT;
    }
    in->root = root;
    dpb_status st = readers[format].read(in);
    dpb_json_free(root);
    if (st == DPB_OK && in->set->cell_count == 0) {
        dpb_error("%s: there is no benchmark with a value in it (format %s)", in->file,
                  dpb_import_formats[format].name);
        st = DPB_ERR_NO_DATA;
    }
    return st;
}

static dpb_status detect_or_say(const char *text, size_t count, const char *file,
                                const char **format)
{
    const size_t at = skip(text, count);
    char why[256] = "";
    dpb_json *root;

    *format = dpb_import_detect(text, count);
    if (*format)
        return DPB_OK;
    if (at < count && (text[at] == '{' || text[at] == '[') &&
        dpb_json_parse(text + at, count - at, &root, why) == DPB_OK)
        dpb_json_free(root);
    dpb_error("%s: %s", file, why[0] ? why : "the file is in no format that is known");
    dpb_log_hint("is the file complete? `--format` names what it is");
    return DPB_ERR_CORRUPT;
}

dpb_status dpb_import_text(const char *text, size_t count, const char *file, const char *format,
                           bool higher_is_better, struct dpb_gate_set *set)
{
    struct dpb_gate_set read = {.price = NAN};
    struct import in = {.text = text,
                        .count = count,
                        .file = file,
                        .higher_is_better = higher_is_better,
                        .set = &read};

    if (!format)
        DPB_TRY(detect_or_say(text, count, file, &format));
    const size_t number = find_format(format);
    if (number == FORMAT_COUNT)
        return unknown_format(format);
    dpb_sha256_text(text, count, in.sha256);
    dpb_status st = read_into(&in, number, skip(text, count));
    if (st == DPB_OK)
        st = merge(&read, set);
    if (st == DPB_OK && !set->source && !(set->source = strdup(file)))
        st = DPB_ERR_NO_MEMORY;
    dpb_gate_set_release(&read);
    return st;
}

dpb_status dpb_import_read(const char *path, const char *format, bool higher_is_better,
                           struct dpb_gate_set *set)
{
    struct dpb_str text = {0};
    dpb_status st = dpb_file_read_most(path, FILE_BYTES_MAX, &text);

    if (st == DPB_OK)
        st = dpb_import_text(text.text ? text.text : "", text.length, path, format,
                             higher_is_better, set);
    dpb_str_release(&text);
    return st;
}

static bool is_records(const char *path)
{
    const char *dot = strrchr(path, '.');
    struct stat about;

    return (stat(path, &about) == 0 && S_ISDIR(about.st_mode)) ||
           (dot && strcmp(dot, ".jsonl") == 0);
}

dpb_status dpb_import_side(const char *path, const char *format, bool higher_is_better,
                           enum dpb_gate_side side, double price, struct dpb_gate_set *set)
{
    struct stat about;

    if (stat(path, &about) != 0) {
        dpb_error("cannot read \"%s\": %m", path);
        dpb_log_hint("name the folder of a run, a baseline or a file of results");
        return DPB_ERR_NOT_FOUND;
    }
    if (!format && is_records(path))
        return dpb_gate_set_read(path, side, price, set);
    if (!format && dpb_baseline_is(path))
        return dpb_baseline_read(path, set, NULL);
    return dpb_import_read(path, format, higher_is_better, set);
}

/* ---- what was read ---- */

static dpb_json *metric_json(const struct dpb_gate_values *values, size_t runs)
{
    dpb_json *json = dpb_json_object();

    dpb_json_set_string(json, "name", values->metric->name);
    dpb_json_set_string(json, "unit", values->metric->unit);
    dpb_json_set_bool(json, "higher_is_better", values->metric->higher_is_better);
    dpb_json_set(json, "values", dpb_json_reals(values->values, runs));
    return json;
}

static dpb_json *cell_json(const struct dpb_gate_cell *cell)
{
    dpb_json *json = dpb_json_object(), *facts = dpb_json_object(), *list = dpb_json_array();

    dpb_json_set_string(json, "name", cell->name);
    dpb_json_set_string(json, "series", cell->series);
    for (size_t i = 0; i < cell->fact_count; i++)
        dpb_json_set_string(facts, cell->facts[i].key, cell->facts[i].text);
    dpb_json_set(json, "facts", facts);
    dpb_json_set_string(json, "trouble", cell->trouble[0] ? cell->trouble : NULL);
    dpb_json_set_int(json, "runs", (int64_t)cell->run_count);
    for (size_t i = 0; i < cell->metric_count; i++)
        dpb_json_append(list, metric_json(&cell->metrics[i], cell->run_count));
    dpb_json_set(json, "metrics", list);
    return json;
}

dpb_json *dpb_import_json(const struct dpb_gate_set *set)
{
    dpb_json *json = dpb_json_object(), *cells = dpb_json_array();

    dpb_json_set_string(json, "schema", "dpb.import/1");
    for (size_t i = 0; i < set->cell_count; i++)
        dpb_json_append(cells, cell_json(&set->cells[i]));
    dpb_json_set(json, "cells", cells);
    return json;
}

/* import_json.c: other tools' JSON. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "dpb_stats.h"
#include "dpb_str.h"
#include "dpb_units.h"
#include "import_private.h"

/* ---- Google Benchmark ---- */

static dpb_status unit_ns(const struct import *in, const dpb_json *benchmark, const char *where,
                          double *ns)
{
    static const struct {
        const char *name;
        double ns;
    } units[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
    const char *unit = dpb_json_as_string(dpb_json_get(benchmark, "time_unit"), "ns");

    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
        if (strcmp(units[i].name, unit) == 0) {
            *ns = units[i].ns;
            return DPB_OK;
        }
    return import_bad(in, where, "\"time_unit\": \"%.40s\" is not ns, us, ms or s", unit);
}

static dpb_status put_optional(const struct import *in, const struct import_run *run,
                               const dpb_json *object, const char *key, const char *metric,
                               const char *where)
{
    double value;

    if (!dpb_json_get(object, key))
        return DPB_OK;
    DPB_TRY(import_number(in, object, where, key, &value));
    return import_put(in, run, metric, value, where);
}

static dpb_status read_google(struct import *in, const dpb_json *benchmark, const char *where)
{
    const char *run_type = dpb_json_as_string(dpb_json_get(benchmark, "run_type"), "iteration");
    const char *name;
    struct import_run run;
    double real, cpu, ns = 1;

    if (strcmp(run_type, "aggregate") == 0)
        return DPB_OK; /* means and deviations of the repetitions that are there too */
    DPB_TRY(import_text(in, benchmark, where, "name", &name));
    DPB_TRY(import_begin(in, name, &run));
    if (dpb_json_as_bool(dpb_json_get(benchmark, "error_occurred"), false)) {
        import_trouble(&run, "it failed: %.150s",
                       dpb_json_as_string(dpb_json_get(benchmark, "error_message"), "no message"));
        return DPB_OK;
    }
    DPB_TRY(unit_ns(in, benchmark, where, &ns));
    DPB_TRY(import_number(in, benchmark, where, "real_time", &real));
    DPB_TRY(import_number(in, benchmark, where, "cpu_time", &cpu));
    DPB_TRY(import_put(in, &run, "real-time", real * ns, where));
    DPB_TRY(import_put(in, &run, "cpu-time", cpu * ns, where));
    DPB_TRY(put_optional(in, &run, benchmark, "items_per_second", "items-rate", where));
    DPB_TRY(put_optional(in, &run, benchmark, "bytes_per_second", "bytes-rate", where));
    const dpb_json *context = dpb_json_get(in->root, "context");
    DPB_TRY(import_fact(in, &run, "host", dpb_json_get(context, "host_name")));
    DPB_TRY(import_fact(in, &run, "cpus", dpb_json_get(context, "num_cpus")));
    return import_fact(in, &run, "build-type", dpb_json_get(context, "library_build_type"));
}

dpb_status import_google_benchmark(struct import *in)
{
    const dpb_json *benchmarks;
    char where[64];

    DPB_TRY(import_array(in, in->root, "the file", "benchmarks", &benchmarks));
    for (size_t i = 0; i < dpb_json_size(benchmarks); i++) {
        snprintf(where, sizeof(where), "benchmarks[%zu]", i);
        DPB_TRY(read_google(in, dpb_json_at(benchmarks, i), where));
    }
    return DPB_OK;
}

/* ---- nccl-tests ---- */

dpb_status import_nccl_row(struct import *in, const char *name, double size_bytes, double time_us,
                           double busbw, double wrong, const char *where)
{
    struct import_run run;

    DPB_TRY(import_begin(in, name, &run));
    run.cell->size_bytes = size_bytes;
    DPB_TRY(import_put(in, &run, "time", time_us * 1e3, where));
    if (busbw != 0)
        DPB_TRY(import_put(in, &run, "comm-bus-bandwidth", busbw * 1e9, where));
    if (wrong > 0)
        import_trouble(&run, "%g wrong values", wrong);
    return DPB_OK;
}

static dpb_status read_nccl_place(struct import *in, const dpb_json *result, const char *place,
                                  const char *prefix, const char *where)
{
    const dpb_json *object = dpb_json_get(result, place), *wrong = dpb_json_get(object, "nwrong");
    double size, time_us, busbw;
    char name[256];

    if (dpb_json_type(object) == DPB_JSON_NULL)
        return DPB_OK; /* this collective has no such form */
    DPB_TRY(import_number(in, result, where, "size", &size));
    DPB_TRY(import_number(in, object, where, dpb_json_get(object, "time") ? "time" : "cpu_time",
                          &time_us));
    DPB_TRY(import_number(in, object, where, "bus_bw", &busbw));
    if (dpb_json_type(wrong) != DPB_JSON_NULL && !isfinite(dpb_json_as_real(wrong, NAN)))
        return import_bad(in, where, "\"nwrong\" is not a number");
    snprintf(name, sizeof(name), "%s %s", prefix,
             strcmp(place, "in_place") == 0 ? "in-place" : "out-of-place");
    return import_nccl_row(in, name, size, time_us, busbw, dpb_json_as_real(wrong, NAN), where);
}

static dpb_status read_nccl(struct import *in, const char *program, const dpb_json *result,
                            const char *where)
{
    const char *type, *redop;
    double size;
    char prefix[192];

    DPB_TRY(import_number(in, result, where, "size", &size));
    DPB_TRY(import_text(in, result, where, "type", &type));
    DPB_TRY(import_text(in, result, where, "redop", &redop));
    snprintf(prefix, sizeof(prefix), "%.60s %.20s %.20s %.0f", program, type, redop, size);
    DPB_TRY(read_nccl_place(in, result, "out_of_place", prefix, where));
    return read_nccl_place(in, result, "in_place", prefix, where);
}

dpb_status import_nccl_json(struct import *in)
{
    const char *path = dpb_json_as_string(dpb_json_at(dpb_json_get(in->root, "args"), 0), "");
    const char *slash = strrchr(path, '/'), *program = slash ? slash + 1 : path;
    const dpb_json *results;
    char where[64];

    DPB_TRY(import_array(in, in->root, "the file", "results", &results));
    if (!dpb_json_get(in->root, "end_time"))
        return import_bad(in, "the file", "it has no \"end_time\": the program did not finish");
    for (size_t i = 0; i < dpb_json_size(results); i++) {
        snprintf(where, sizeof(where), "results[%zu]", i);
        DPB_TRY(read_nccl(in, program[0] ? program : "collective", dpb_json_at(results, i), where));
    }
    return DPB_OK;
}

/* ---- arrays of times ---- */

/* The median of an array of times in seconds, as nanoseconds. */
static dpb_status median_ns(const struct import *in, const dpb_json *array, const char *where,
                            double *ns)
{
    double values[4096];
    const size_t count = dpb_json_size(array);

    if (count == 0 || count > sizeof(values) / sizeof(values[0]))
        return import_bad(in, where, "%zu values, not 1 to 4096", count);
    for (size_t i = 0; i < count; i++) {
        values[i] = dpb_json_as_real(dpb_json_at(array, i), NAN);
        if (!isfinite(values[i]) || values[i] < 0)
            return import_bad(in, where, "value %zu is not a number of at least 0", i + 1);
    }
    *ns = dpb_stats_median(values, count) * 1e9;
    return DPB_OK;
}

/* ---- PyTorch: steps of all ranks of one launch ---- */

static dpb_status read_ddp_result(struct import *in, const char *model, const dpb_json *result,
                                  const char *where)
{
    const dpb_json *ranks, *steps;
    struct import_run run;
    double ns;
    char name[160];

    DPB_TRY(import_array(in, result, where, "ranks", &ranks));
    DPB_TRY(import_array(in, result, where, "measurements", &steps));
    DPB_TRY(median_ns(in, steps, where, &ns));
    snprintf(name, sizeof(name), "%.100s, ranks %zu", model, dpb_json_size(ranks));
    /* "no ddp" and "1M/1G" both have one rank; the file tells them apart by order only */
    for (size_t i = 0; i < in->set->cell_count; i++)
        if (strcmp(in->set->cells[i].name, name) == 0)
            snprintf(name, sizeof(name), "%.100s, ranks %zu, ddp", model, dpb_json_size(ranks));
    DPB_TRY(import_begin(in, name, &run));
    DPB_TRY(import_put(in, &run, "step-time-median", ns, where));
    DPB_TRY(import_fact(in, &run, "pytorch", dpb_json_get(in->root, "pytorch_version")));
    DPB_TRY(import_fact(in, &run, "cuda", dpb_json_get(in->root, "cuda_version")));
    DPB_TRY(import_fact(in, &run, "backend", dpb_json_get(in->root, "distributed_backend")));
    return import_fact(in, &run, "bucket", dpb_json_get(in->root, "bucket_size"));
}

dpb_status import_pytorch_ddp(struct import *in)
{
    const dpb_json *benchmarks, *results;
    const char *model;
    char where[96];

    DPB_TRY(import_array(in, in->root, "the file", "benchmark_results", &benchmarks));
    for (size_t i = 0; i < dpb_json_size(benchmarks); i++) {
        const dpb_json *benchmark = dpb_json_at(benchmarks, i);

        snprintf(where, sizeof(where), "benchmark_results[%zu]", i);
        DPB_TRY(import_text(in, benchmark, where, "model", &model));
        DPB_TRY(import_array(in, benchmark, where, "result", &results));
        for (size_t k = 0; k < dpb_json_size(results); k++) {
            snprintf(where, sizeof(where), "benchmark_results[%zu].result[%zu]", i, k);
            DPB_TRY(read_ddp_result(in, model, dpb_json_at(results, k), where));
        }
    }
    return DPB_OK;
}

/* ---- hyperfine ---- */

static dpb_status read_hyperfine(struct import *in, const dpb_json *result, const char *where)
{
    const dpb_json *times, *codes = dpb_json_get(result, "exit_codes");
    const char *command;
    struct import_run run;

    DPB_TRY(import_text(in, result, where, "command", &command));
    DPB_TRY(import_array(in, result, where, "times", &times));
    for (size_t i = 0; i < dpb_json_size(times); i++) {
        DPB_TRY(import_begin(in, command, &run));
        DPB_TRY(import_put(in, &run, "time", dpb_json_as_real(dpb_json_at(times, i), NAN) * 1e9,
                           where));
        if (dpb_json_as_int(dpb_json_at(codes, i), 0) != 0)
            import_trouble(&run, "launch %zu ended with status %lld", i + 1,
                           (long long)dpb_json_as_int(dpb_json_at(codes, i), 0));
    }
    return DPB_OK;
}

dpb_status import_hyperfine(struct import *in)
{
    const dpb_json *results;
    char where[64];

    DPB_TRY(import_array(in, in->root, "the file", "results", &results));
    for (size_t i = 0; i < dpb_json_size(results); i++) {
        snprintf(where, sizeof(where), "results[%zu]", i);
        DPB_TRY(read_hyperfine(in, dpb_json_at(results, i), where));
    }
    return DPB_OK;
}

/* ---- pyperf ---- */

/* Runs without values only calibrated or warmed up. */
static dpb_status read_pyperf_run(struct import *in, const char *name, const dpb_json *item,
                                  const char *where)
{
    const dpb_json *values = dpb_json_get(item, "values");
    struct import_run run;
    double ns;

    if (!values)
        return DPB_OK;
    DPB_TRY(median_ns(in, values, where, &ns));
    DPB_TRY(import_begin(in, name, &run));
    DPB_TRY(import_put(in, &run, "time", ns, where));
    const dpb_json *about = dpb_json_get(in->root, "metadata");
    DPB_TRY(import_fact(in, &run, "cpu", dpb_json_get(about, "cpu_model_name")));
    return import_fact(in, &run, "host", dpb_json_get(about, "hostname"));
}

dpb_status import_pyperf(struct import *in)
{
    const dpb_json *benchmarks, *runs;
    char where[96];

    DPB_TRY(import_array(in, in->root, "the file", "benchmarks", &benchmarks));
    for (size_t i = 0; i < dpb_json_size(benchmarks); i++) {
        const dpb_json *benchmark = dpb_json_at(benchmarks, i);
        const char *name = dpb_json_as_string(dpb_json_path(benchmark, "metadata/name"), NULL);

        snprintf(where, sizeof(where), "benchmarks[%zu]", i);
        if (!name)
            name = dpb_json_as_string(dpb_json_path(in->root, "metadata/name"), NULL);
        if (!name)
            return import_bad(in, where, "it has no \"metadata/name\"");
        DPB_TRY(import_array(in, benchmark, where, "runs", &runs));
        for (size_t k = 0; k < dpb_json_size(runs); k++) {
            snprintf(where, sizeof(where), "benchmarks[%zu].runs[%zu]", i, k);
            DPB_TRY(read_pyperf_run(in, name, dpb_json_at(runs, k), where));
        }
    }
    return DPB_OK;
}

/* ---- nvbench ---- */

/* The number of a summary, which nvbench writes as a text. */
static dpb_status nvbench_number(const struct import *in, const dpb_json *state, const char *tag,
                                 const char *where, double *number)
{
    const dpb_json *summaries, *summary;
    dpb_json_walk walk = {0};
    char why[DPB_WHY_BYTES];

    DPB_TRY(import_array(in, state, where, "summaries", &summaries));
    while ((summary = dpb_json_next(summaries, &walk, NULL))) {
        if (strcmp(dpb_json_as_string(dpb_json_get(summary, "tag"), ""), tag) != 0)
            continue;
        const dpb_json *value =
                dpb_json_get(dpb_json_at(dpb_json_get(summary, "data"), 0), "value");
        if (dpb_parse_f64(dpb_json_as_string(value, ""), number, why) < 0)
            return import_bad(in, where, "%s: %s", tag, why);
        return DPB_OK;
    }
    return import_bad(in, where, "it has no summary \"%s\"", tag);
}

static dpb_status read_nvbench_state(struct import *in, const char *benchmark,
                                     const dpb_json *state, const char *where)
{
    struct import_run run;
    const char *name;
    double gpu, cpu;
    struct dpb_str cell = {0};

    if (dpb_json_as_bool(dpb_json_get(state, "is_skipped"), false))
        return DPB_OK;
    DPB_TRY(import_text(in, state, where, "name", &name));
    DPB_TRY(nvbench_number(in, state, "nv/cold/time/gpu/mean", where, &gpu));
    DPB_TRY(nvbench_number(in, state, "nv/cold/time/cpu/mean", where, &cpu));
    dpb_str_appendf(&cell, "%s %s", benchmark, name);
    dpb_status st = cell.failed ? DPB_ERR_NO_MEMORY : import_begin(in, cell.text, &run);
    dpb_str_release(&cell);
    DPB_TRY(st);
    DPB_TRY(import_put(in, &run, "gpu-time", gpu * 1e9, where));
    DPB_TRY(import_put(in, &run, "cpu-time", cpu * 1e9, where));
    const dpb_json *devices = dpb_json_get(in->root, "devices"), *device;
    dpb_json_walk walk = {0};
    while ((device = dpb_json_next(devices, &walk, NULL)))
        if (dpb_json_as_int(dpb_json_get(device, "id"), -1) ==
            dpb_json_as_int(dpb_json_get(state, "device"), -2))
            return import_fact(in, &run, "device", dpb_json_get(device, "name"));
    return DPB_OK;
}

dpb_status import_nvbench(struct import *in)
{
    const dpb_json *benchmarks, *states;
    const char *name;
    char where[96];

    DPB_TRY(import_array(in, in->root, "the file", "benchmarks", &benchmarks));
    for (size_t i = 0; i < dpb_json_size(benchmarks); i++) {
        const dpb_json *benchmark = dpb_json_at(benchmarks, i);

        snprintf(where, sizeof(where), "benchmarks[%zu]", i);
        DPB_TRY(import_text(in, benchmark, where, "name", &name));
        DPB_TRY(import_array(in, benchmark, where, "states", &states));
        for (size_t k = 0; k < dpb_json_size(states); k++) {
            snprintf(where, sizeof(where), "benchmarks[%zu].states[%zu]", i, k);
            DPB_TRY(read_nvbench_state(in, name, dpb_json_at(states, k), where));
        }
    }
    return DPB_OK;
}

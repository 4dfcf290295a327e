#include "dpb_sample_record.h"

#include <string.h>

#include "dpb_units.h"

#define TRACED_STEPS 4

static const double default_samples_ns[] = {20e6, 21e6, 19e6, 20e6, 22e6};

const struct sample_record sample_record_default = {
        .run_id = "20261201T082121Z-quick",
        .status = "ok",
        .series = "batch-per-rank=8 overlap=on",
        .compute_series = "batch-per-rank=8",
        .fingerprint = "f00dfeed",
        .scaling = "weak",
        .ranks = 1,
        .global_batch = 8,
        .batch_per_rank = 8,
        .samples_ns = default_samples_ns,
        .sample_count = sizeof(default_samples_ns) / sizeof(default_samples_ns[0]),
        .test_accuracy = -1,
        .trace_overhead = 1.02,
        .availability = 0.98,
        .threads_per_rank = 1,
};

static dpb_json *tool_json(void)
{
    dpb_json *tool = dpb_json_object(), *build = dpb_json_object();

    dpb_json_set_string(build, "type", "RelWithDebInfo");
    dpb_json_set_string(build, "compiler", "GNU 12.2.0");
    dpb_json_set_string(tool, "version", "0.1.0");
    dpb_json_set_string(tool, "git_sha", "0123456789abcdef");
    dpb_json_set_bool(tool, "dirty", false);
    dpb_json_set(tool, "build", build);
    return tool;
}

static dpb_json *host_json(void)
{
    dpb_json *host = dpb_json_object();

    dpb_json_set_string(host, "name", "testhost");
    dpb_json_set_string(host, "cpu_model", "Example CPU 2.0 GHz");
    dpb_json_set_int(host, "cores", 2);
    dpb_json_set_int(host, "memory_bytes", INT64_C(8589934592));
    return host;
}

static dpb_json *config_json(const struct sample_record *sample)
{
    dpb_json *config = dpb_json_object(), *link = dpb_json_object();
    size_t i;

    for (i = 0; i < sizeof(sample->axes) / sizeof(sample->axes[0]) && sample->axes[i].option; i++) {
        int64_t bytes;

        if (strcmp(sample->axes[i].option, "bucket") == 0 &&
            dpb_parse_size(sample->axes[i].text, &bytes, NULL) == DPB_OK)
            dpb_json_set_int(config, "bucket_bytes", bytes);
    }
    dpb_json_set_string(config, "workload", "mnist-mlp");
    dpb_json_set_string(config, "strategy", "ddp");
    dpb_json_set_int(config, "ranks", sample->ranks);
    dpb_json_set_int(config, "threads_per_rank", sample->threads_per_rank);
    dpb_json_set_real(link, "bw_bytes_per_s", sample->link_bytes_per_s);
    dpb_json_set_int(link, "latency_ns", sample->link_bytes_per_s > 0 ? 5000 : 0);
    dpb_json_set(config, "link", link);
    return config;
}

/* Sums over the traced steps of all ranks, with the exact identities of dpb_overlap.h. */
static dpb_json *overlap_json(const struct sample_record *sample)
{
    int64_t rank_steps = (int64_t)sample->ranks * TRACED_STEPS;
    int64_t span = (int64_t)sample->samples_ns[0], exposed = (int64_t)sample->exposed_ns;
    int64_t idle = span / 20;
    dpb_json *overlap = dpb_json_object();

    dpb_json_set_int(overlap, "rank_steps", rank_steps);
    dpb_json_set_int(overlap, "span_ns", rank_steps * span);
    dpb_json_set_int(overlap, "compute_ns", rank_steps * (span - idle - exposed));
    dpb_json_set_int(overlap, "comm_ns", rank_steps * (int64_t)sample->comm_ns);
    dpb_json_set_int(overlap, "overlap_ns", rank_steps * ((int64_t)sample->comm_ns - exposed));
    dpb_json_set_int(overlap, "exposed_ns", rank_steps * exposed);
    dpb_json_set_int(overlap, "comm_wait_ns", rank_steps * (int64_t)sample->comm_wait_ns);
    dpb_json_set_int(overlap, "idle_ns", rank_steps * idle);
    dpb_json_set_int(overlap, "data_ns", rank_steps * (idle / 4));
    return overlap;
}

/* What only an ok record has. */
static void set_measured(dpb_json *record, const struct sample_record *sample)
{
    dpb_json *training = dpb_json_object(), *trace = dpb_json_object();
    dpb_json *probe = dpb_json_object(), *communication = dpb_json_object();
    dpb_json *progress = dpb_json_object();

    dpb_json_set(record, "overlap", overlap_json(sample));
    if (sample->ranks > 1) {
        dpb_json_set_real(communication, "busbw_bytes_per_s", sample->busbw_bytes_per_s);
        dpb_json_set_int(communication, "payload_bytes_per_step", 1000000);
        if (sample->emulated)
            dpb_json_set_int(communication, "wire_ns_per_step", 3000000);
        dpb_json_set_real(progress, "cpu_ns_per_collective", 250000.0);
        dpb_json_set_int(progress, "wake_late_p99_ns", 125000);
        dpb_json_set(record, "progress", progress);
    } else {
        dpb_json_set_absent(communication, "busbw_bytes_per_s", "one rank");
        dpb_json_set_absent(record, "progress", "one rank");
        dpb_json_free(progress);
    }
    dpb_json_set(record, "communication", communication);
    dpb_json_set_real(training, "loss_first", 2.31);
    dpb_json_set_real(training, "loss_last", 0.42);
    dpb_json_set_int(training, "steps", (int64_t)sample->sample_count);
    if (sample->test_accuracy >= 0)
        dpb_json_set_real(training, "test_accuracy", sample->test_accuracy);
    else
        dpb_json_set_absent(training, "test_accuracy", "not evaluated");
    dpb_json_set(record, "training", training);
    dpb_json_set_string(trace, "file", "traces/cell0.dpbtrace");
    dpb_json_set_int(trace, "lost", sample->trace_lost);
    dpb_json_set_real(trace, "overhead_ratio", sample->trace_overhead);
    dpb_json_set(record, "trace", trace);
    dpb_json_set_real(probe, "limit_ratio", 0.9);
    dpb_json_set_real(probe, "availability_ratio", sample->availability);
    dpb_json_set_bool(probe, "flagged", sample->flagged);
    dpb_json_set(record, "probe", probe);
}

dpb_json *sample_record_make(const struct sample_record *sample)
{
    dpb_json *record = dpb_json_object(), *axes = dpb_json_object();
    dpb_json *warnings = dpb_json_array();
    bool ok = strcmp(sample->status, "ok") == 0;
    size_t i;

    dpb_json_set_string(record, "schema", "dpb.record/1");
    dpb_json_set_string(record, "run_id", sample->run_id);
    dpb_json_set_int(record, "cell", sample->cell);
    dpb_json_set_int(record, "repeat", sample->repeat);
    dpb_json_set_int(record, "order", sample->cell);
    dpb_json_set_string(record, "status", sample->status);
    dpb_json_set_string(record, "reason", sample->reason);
    dpb_json_set(record, "tool", tool_json());
    dpb_json_set_string(record, "time_utc", "2026-12-01T08:21:21.123Z");
    dpb_json_set(record, "host", host_json());
    dpb_json_set_string(record, "fingerprint", sample->fingerprint);
    dpb_json_set(record, "config", config_json(sample));
    dpb_json_set_string(record, "repro", "dpbench run --ranks 2 --bucket 1MiB");
    for (i = 0; i < sizeof(sample->axes) / sizeof(sample->axes[0]) && sample->axes[i].option; i++)
        dpb_json_set_string(axes, sample->axes[i].option, sample->axes[i].text);
    dpb_json_set(record, "axes", axes);
    dpb_json_set_string(record, "series", sample->series);
    dpb_json_set_string(record, "compute_series", sample->compute_series);
    dpb_json_set_int(record, "ranks", sample->ranks);
    dpb_json_set_string(record, "scaling", sample->scaling);
    dpb_json_set_int(record, "global_batch", sample->global_batch);
    dpb_json_set_int(record, "batch_per_rank", sample->batch_per_rank);
    dpb_json_set_bool(record, "emulated", sample->emulated);
    dpb_json_set_bool(record, "simulated", sample->simulated);
    dpb_json_set(record, "samples_step_ns",
                 dpb_json_reals(sample->samples_ns, ok ? sample->sample_count : 0));
    if (sample->warning)
        dpb_json_append(warnings, dpb_json_string(sample->warning));
    dpb_json_set(record, "warnings", warnings);
    if (ok)
        set_measured(record, sample);
    return record;
}

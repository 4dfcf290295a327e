#include "dpb_worker.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "comm_bench_rank.h"
#include "dpb_board.h"
#include "dpb_clock.h"
#include "dpb_dataset.h"
#include "dpb_experiment.h"
#include "dpb_log.h"
#include "dpb_step.h"
#include "dpb_trace.h"
#include "kept_values.h"
#include "rank_meter.h"
#include "worker_link.h"

/* Operators, spans and collectives of one micro-batch of one lane: a parameter has its own in the
 * forward pass, in the backward pass (bias, weights, data, activation) and in the update. */
#define EVENTS_PER_BATCH_BOUND   512
#define EVENTS_PER_PARAM_BOUND   8
#define EVENTS_PER_MESSAGE_BOUND 2 /* it, and the wait for peers in it; in a lane of their own */

/* At least, in a process that only traces: plans are final, and what is made at its first use is
 * there. */
#define STEPS_BEFORE_TRACE 3

/* ---- the job ---- */

dpb_json *dpb_job_to_json(const struct dpb_job *job)
{
    dpb_json *json = dpb_json_object();
    dpb_json_set(json, "config", dpb_config_to_text_json(job->config));
    dpb_json_set_int(json, "data_ranks", job->data_ranks);
    dpb_json_set_int(json, "data_batches", job->data_batches);
    dpb_json_set_bool(json, "verify", job->verify);
    dpb_json_set_bool(json, "integers", job->integers);
    dpb_json_set_int(json, "plant_rank", job->plant_rank);
    dpb_json_set_int(json, "plant_step", job->plant_step);
    dpb_json_set_bool(json, "keep_values", job->keep_values);
    dpb_json_set_bool(json, "keep_first", job->keep_first);
    dpb_json_set_int(json, "steps", job->steps);
    dpb_json_set_int(json, "nudge", job->nudge);
    dpb_json_set_bool(json, "quiet", job->quiet);
    return json;
}

/* Everything a rank holds; released in reverse order of opening. */
struct worker {
    const struct dpb_registry *registry;
    struct dpb_job job;
    worker_link *link;
    const dpb_json *message; /* the link's */
    dpb_config *config;
    const struct dpb_experiment *e;
    int rank, size;
    int ranks_per_node; /* as dpb_comm_config.ranks_per_node */
    struct dpb_board_line *line;
    const struct dpb_workload_ops *workload;
    const struct dpb_device_ops *device_ops;
    const struct dpb_comm_ops *comm_ops;
    const struct dpb_recorder_ops *recorder_ops;
    const struct dpb_strategy_ops *strategy;
    dpb_device *device;
    dpb_comm *comm;
    dpb_dataset *train, *test;
    dpb_loader *loader, *test_loader;
    dpb_step_engine *engine;
    dpb_recorder *recorder;
    struct rank_meter meter;
    /* measurements */
    int64_t step_count, warmup; /* untraced steps; the first `warmup` are not timed */
    struct dpb_step_times *times;
    int64_t traced_count, traced_wire_bytes;
    int64_t traced_between_bytes; /* of them; DPB_WIRE_UNKNOWN */
    int64_t *traced_start_ns, *traced_end_ns;
    const struct dpb_event *events;
    size_t event_count;
    uint64_t events_lost;
    dpb_json *recorder_says;
    int64_t test_correct, test_samples;
    int64_t replicas_compared; /* steps of a verification after which they were */
    bool planted;
    int64_t peak_bytes; /* of training; checks afterwards may take more */
    dpb_json *kept;     /* what was left in the bulk memory, and how much of it is used */
    int64_t kept_floats;
};

/* The first error line, for the launcher: what follows is the consequence, such as "gave up". */
static char first_error[512];
static bool quiet;
static worker_link *launch_link; /* to whom; NULL: nobody */

static void keep_error(void *ctx, enum dpb_log_level level, const char *line)
{
    (void)ctx;
    char out[4200];
    const char *text = strstr(line, "error: "); /* not the hint that follows it */
    if (level == DPB_LOG_ERROR && text && !first_error[0])
        snprintf(first_error, sizeof(first_error), "%s", text + strlen("error: "));
    const int length = snprintf(out, sizeof(out), "%s\n", line);
    if (!quiet && length > 0 && write(STDERR_FILENO, out, (size_t)length) < 0)
        return; /* nobody reads; the launcher gets the text all the same */
}

static void progress(void *ctx, int64_t step, enum dpb_phase phase, int bucket)
{
    struct worker *w = ctx;
    dpb_board_write(w->line, step, phase, bucket);
}

/* What every job says: which rank this is. */
static dpb_status receive_job(struct worker *w)
{
    dpb_status st = worker_link_open(&w->link);
    launch_link = w->link;
    DPB_TRY(st);
    w->message = worker_link_job(w->link);
    w->rank = worker_link_place(w->link)->rank;
    w->size = worker_link_place(w->link)->size;
    w->line = worker_link_line(w->link);
    return DPB_OK;
}

static dpb_status read_job(struct worker *w)
{
    DPB_TRY(dpb_config_from_text_json(w->registry->options, dpb_json_get(w->message, "config"),
                                      &w->config));
    w->job = (struct dpb_job){
            .config = w->config,
            .data_ranks = (int)dpb_json_as_int(dpb_json_get(w->message, "data_ranks"), 0),
            .data_batches = dpb_json_as_int(dpb_json_get(w->message, "data_batches"), 0),
            .verify = dpb_json_as_bool(dpb_json_get(w->message, "verify"), false),
            .integers = dpb_json_as_bool(dpb_json_get(w->message, "integers"), false),
            .plant_rank = (int)dpb_json_as_int(dpb_json_get(w->message, "plant_rank"), -1),
            .plant_step = dpb_json_as_int(dpb_json_get(w->message, "plant_step"), 0),
            .keep_first = dpb_json_as_bool(dpb_json_get(w->message, "keep_first"), false),
            .keep_values = dpb_json_as_bool(dpb_json_get(w->message, "keep_values"), false),
            .steps = (int)dpb_json_as_int(dpb_json_get(w->message, "steps"), 0),
            .nudge = (int)dpb_json_as_int(dpb_json_get(w->message, "nudge"), 0),
            .quiet = dpb_json_as_bool(dpb_json_get(w->message, "quiet"), false),
    };
    quiet = w->job.quiet;
    w->e = dpb_config_struct(w->config, "experiment");
    DPB_TRY(dpb_registry_use_device(w->registry, w->e->device, &w->device_ops));
    DPB_TRY(dpb_registry_use_comm(w->registry, w->e->comm, &w->comm_ops));
    DPB_TRY(dpb_registry_use_recorder(w->registry, w->e->recorder, &w->recorder_ops));
    w->strategy = dpb_registry_strategy(w->registry, w->e->strategy);
    w->workload = w->job.integers ? w->registry->integer_workload
                                  : dpb_registry_workload(w->registry, w->e->workload);
    return DPB_OK;
}

/* Steps to trace in this process. */
static int64_t traced_steps(const struct worker *w)
{
    const bool is_apart = w->recorder_ops->flags & DPB_RECORDER_OWN_PROCESS;
    if (w->job.verify || (is_apart && w->job.steps != DPB_JOB_TRACED))
        return 0;
    return w->e->trace_steps;
}

/* ---- open ---- */

/* Owners of unequally many samples leave out more than the remainder of a batch. */
static void warn_of_dropped(const struct worker *w)
{
    struct dpb_dataset_info info;
    int64_t dropped = dpb_loader_dropped_per_epoch(w->loader);
    dpb_dataset_describe(w->train, &info);
    if (w->rank != 0 || dropped < w->e->global_batch)
        return;
    dpb_warn("--sharding shards leaves out %lld of %lld samples in every epoch: the shards of some "
             "ranks hold fewer than those of others",
             (long long)dropped, (long long)info.samples);
    dpb_log_hint("pack the data in a multiple of %d --shards, or say --sharding samples", w->size);
}

static dpb_status open_data(struct worker *w, const struct dpb_model *model)
{
    struct dpb_dataset_config dataset = {
            .kind = w->job.integers ? "synthetic" : dpb_data_kind_text(w->e->data),
            .folder = w->e->data_dir,
            .file = w->e->data_file,
            .model = model,
            .seed = (uint64_t)w->e->seed,
            .sharding = w->job.integers ? DPB_SHARDING_SAMPLES : (enum dpb_sharding)w->e->sharding,
            .owners = w->job.data_ranks > 0 ? w->job.data_ranks : w->size,
            .owner = w->job.data_ranks > 0 ? DPB_ALL_OWNERS : w->rank,
    };
    const int64_t batches = w->job.data_batches > 0 ? w->job.data_batches : w->e->accumulate;
    DPB_TRY(dpb_dataset_open(&dataset, DPB_SPLIT_TRAIN, &w->train));
    struct dpb_loader_config loader = {
            .dataset = w->train,
            .global_batch = w->e->global_batch / batches,
            .batches_per_step = batches,
            .joined = w->job.data_batches > 0,
            .ranks = w->size,
            .rank = w->rank,
            .uneven = w->e->uneven,
            .shuffle = true,
            .seed = (uint64_t)w->e->seed,
            .background = true,
    };
    DPB_TRY(dpb_loader_open(&loader, &w->loader));
    warn_of_dropped(w);
    bool evaluate = w->e->evaluate == DPB_EVALUATE_ON ||
                    (w->e->evaluate == DPB_EVALUATE_AUTO && w->e->epochs > 0);
    if (!evaluate || w->job.verify || w->job.steps == DPB_JOB_TRACED)
        return DPB_OK;
    DPB_TRY(dpb_dataset_open(&dataset, DPB_SPLIT_TEST, &w->test));
    loader.dataset = w->test;
    loader.shuffle = false;
    loader.background = false;
    loader.keep_last = true;
    loader.batches_per_step = 1;
    loader.epochs = 1;
    return dpb_loader_open(&loader, &w->test_loader);
}

static dpb_status open_parts(struct worker *w)
{
    if (traced_steps(w) > 0 && w->recorder_ops->prepare)
        DPB_TRY(w->recorder_ops->prepare());
    struct dpb_device_config device = {
            .local_rank = worker_link_place(w->link)->local_rank,
            .local_size = worker_link_place(w->link)->local_size,
            .threads = (int)w->e->threads_per_rank,
            .bind = w->e->bind,
            .options = dpb_config_struct(w->config, "device"),
    };
    DPB_TRY(w->device_ops->open(&device, &w->device));
    struct dpb_comm_config comm = {
            .timeout_ns = w->e->timeout_ns,
            .device = w->comm_ops->flags & DPB_COMM_DEVICE_MEMORY ? w->device : NULL,
            .options = dpb_config_struct(w->config, "comm"),
    };
    worker_link_comm(w->link, (int)w->e->ranks_per_node, &comm);
    w->ranks_per_node = comm.ranks_per_node;
    return w->comm_ops->open(&comm, &w->comm);
}

static dpb_status open_engine(struct worker *w)
{
    bool integers = w->job.integers;
    struct dpb_step_config step = {
            .device = w->device,
            .comm = w->comm,
            .workload = w->workload,
            .workload_options = integers ? NULL : dpb_config_struct(w->config, "workload"),
            .strategy = w->strategy,
            .strategy_options = dpb_config_struct(w->config, "strategy"),
            .bucket_given = dpb_config_is_explicit(w->config, "bucket"),
            .source = dpb_loader_source(w->loader),
            .batch_max = dpb_loader_batch_max(w->loader),
            .global_batch = w->e->global_batch,
            .accumulate = w->e->accumulate,
            .ranks_per_node = w->ranks_per_node,
            .seed = (uint64_t)w->e->seed,
            .precision = integers ? DPB_F32 : (enum dpb_dtype)w->e->precision,
            .capture = !integers && w->e->capture,
            .sync_batch_statistics = !integers && w->e->sync_bn,
            .optimizer = integers ? dpb_training_optimizer(&w->workload->training)
                                  : dpb_experiment_optimizer(w->e),
            .sum_gradients = integers,
            .progress = progress,
            .progress_ctx = w,
    };
    if (!integers)
        DPB_TRY(dpb_experiment_loss_scale(w->e, &step.loss_scale));
    if (w->test_loader && dpb_loader_batch_max(w->test_loader) > step.batch_max)
        step.batch_max = dpb_loader_batch_max(w->test_loader);
    DPB_TRY(dpb_step_open(&step, &w->engine));
    return w->job.nudge > 0 ? dpb_step_nudge_params(w->engine, w->job.nudge - 1) : DPB_OK;
}

static void open_meter(struct worker *w)
{
    dpb_json *device = w->device_ops->describe(w->device);
    rank_meter_open(&w->meter, w->registry, w->device_ops->flags & DPB_DEVICE_ACCELERATOR, device,
                    worker_link_place(w->link)->local_rank);
    dpb_json_free(device);
}

/* All that is written during the timed steps, allocated and touched before them. */
static dpb_status open_measurement(struct worker *w)
{
    w->step_count =
            w->e->epochs > 0 ? w->e->epochs * dpb_loader_steps_per_epoch(w->loader) : w->e->steps;
    w->warmup = w->e->warmup;
    w->traced_count = traced_steps(w);
    if (w->job.steps == DPB_JOB_TRACED) {
        w->step_count = w->warmup = w->warmup > STEPS_BEFORE_TRACE ? w->warmup : STEPS_BEFORE_TRACE;
    } else if (w->warmup >= w->step_count) {
        dpb_error("--warmup %lld leaves no timed step of the %lld that --epochs gives",
                  (long long)w->warmup, (long long)w->step_count);
        dpb_log_hint("use a smaller --warmup or batch, or more --epochs");
        return DPB_ERR_USAGE;
    }
    w->times = calloc((size_t)w->step_count, sizeof(*w->times));
    w->traced_start_ns = calloc((size_t)w->traced_count + 1, sizeof(*w->traced_start_ns));
    w->traced_end_ns = calloc((size_t)w->traced_count + 1, sizeof(*w->traced_end_ns));
    if (!w->times || !w->traced_start_ns || !w->traced_end_ns)
        return DPB_ERR_NO_MEMORY;
    memset(w->times, 0xff, (size_t)w->step_count * sizeof(*w->times)); /* calloc does not touch */
    open_meter(w);
    if (w->traced_count == 0)
        return DPB_OK;
    size_t params = (size_t)dpb_dataset_model(w->train)->param_count;
    struct dpb_recorder_config recorder = {
            .rank = w->rank,
            .steps = w->traced_count,
            .events_per_lane =
                    (size_t)(w->traced_count * w->e->accumulate) *
                    (EVENTS_PER_BATCH_BOUND + EVENTS_PER_PARAM_BOUND * params +
                     EVENTS_PER_MESSAGE_BOUND * (size_t)dpb_step_messages(w->engine, NULL)),
    };
    return w->recorder_ops->open(&recorder, &w->recorder);
}

/* ---- train ---- */

/* A divergence is planted where it must be found: where replicas are compared. */
static dpb_status compare_replicas(struct worker *w, int64_t step)
{
    const bool plant = w->job.plant_rank >= 0 && step >= w->job.plant_step && !w->planted;
    if (!dpb_step_is_in_sync(w->engine))
        return DPB_OK;
    if (plant && w->rank == w->job.plant_rank)
        DPB_TRY(dpb_step_plant_divergence(w->engine));
    w->planted |= plant;
    w->replicas_compared++;
    return dpb_step_check_replicas(w->engine);
}

static dpb_status run_steps(struct worker *w, int64_t from, int64_t to)
{
    for (int64_t s = from; s < to; s++) {
        DPB_TRY(dpb_step_run(w->engine, &w->times[s]));
        rank_meter_between(&w->meter);
        if (!w->job.verify)
            continue;
        DPB_TRY(compare_replicas(w, s + 1));
        if (s == 0 && w->job.keep_first)
            DPB_TRY(kept_values_write(w->engine, w->comm, w->link, &w->kept_floats, w->kept));
    }
    return DPB_OK;
}

static dpb_status run_traced(struct worker *w)
{
    if (w->traced_count == 0)
        return DPB_OK;
    /* Every step ends with an idle device. */
    if (w->recorder_ops->start)
        DPB_TRY(w->recorder_ops->start(w->recorder));
    dpb_step_set_recorder(w->engine, w->recorder);
    struct dpb_comm_stats before, after;
    DPB_TRY(w->comm_ops->barrier(w->comm));
    dpb_step_comm_stats(w->engine, &before);
    for (int64_t s = 0; s < w->traced_count; s++) {
        struct dpb_step_times times;
        DPB_TRY(dpb_step_run(w->engine, &times));
        w->traced_start_ns[s] = times.start_ns;
        w->traced_end_ns[s] = times.end_ns;
    }
    dpb_step_set_recorder(w->engine, NULL);
    dpb_step_comm_stats(w->engine, &after);
    w->traced_wire_bytes = after.wire_bytes - before.wire_bytes;
    w->traced_between_bytes = after.wire_between_bytes < 0
                                      ? DPB_WIRE_UNKNOWN
                                      : after.wire_between_bytes - before.wire_between_bytes;
    DPB_TRY(w->recorder_ops->drain(w->recorder, &w->events, &w->event_count, &w->events_lost));
    if (w->recorder_ops->describe)
        w->recorder_says = w->recorder_ops->describe(w->recorder);
    return DPB_OK;
}

static dpb_status train(struct worker *w)
{
    DPB_TRY(run_steps(w, 0, w->warmup));
    if (w->device_ops->seal)
        w->device_ops->seal(w->device, true);
    rank_meter_begin(&w->meter);
    DPB_TRY(w->comm_ops->barrier(w->comm)); /* no rank starts the clock before the others */
    DPB_TRY(run_steps(w, w->warmup, w->step_count));
    rank_meter_end(&w->meter);
    if (w->device_ops->seal)
        w->device_ops->seal(w->device, false);
    /* Test accuracy belongs to the steps asked for, not to the traced extra ones. */
    if (w->test_loader) {
        struct dpb_batch_source source = dpb_loader_source(w->test_loader);
        double loss;
        DPB_TRY(dpb_step_evaluate(w->engine, &source, &w->test_correct, &w->test_samples, &loss));
        DPB_TRY(w->comm_ops->barrier(w->comm));
    }
    DPB_TRY(run_traced(w));
    struct rusage usage = {0};
    getrusage(RUSAGE_SELF, &usage);
    w->peak_bytes = (int64_t)usage.ru_maxrss * 1024;
    return dpb_step_check_replicas(w->engine);
}

/* ---- report ---- */

enum times_member {
    TIMES_START,
    TIMES_END,
    TIMES_DATA,
    TIMES_FORWARD,
    TIMES_BACKWARD,
    TIMES_SYNC,
    TIMES_OPTIMIZER,
    TIMES_COUNT
};

static int64_t times_get(const struct dpb_step_times *times, enum times_member member)
{
    const int64_t values[TIMES_COUNT] = {times->start_ns,    times->end_ns,      times->data_ns,
                                         times->forward_ns,  times->backward_ns, times->sync_ns,
                                         times->optimizer_ns};
    return values[member];
}

static void report_times(const struct worker *w, dpb_json *result)
{
    static const char *const names[TIMES_COUNT] = {"start_ns",    "end_ns",      "data_ns",
                                                   "forward_ns",  "backward_ns", "sync_ns",
                                                   "optimizer_ns"};
    for (int m = 0; m < TIMES_COUNT; m++) {
        dpb_json *values = dpb_json_array();
        for (int64_t s = w->warmup; s < w->step_count; s++)
            dpb_json_append(values, dpb_json_int(times_get(&w->times[s], (enum times_member)m)));
        dpb_json_set(result, names[m], values);
    }
    dpb_json *loss = dpb_json_array(), *samples = dpb_json_array();
    for (int64_t s = 0; s < w->step_count; s++) {
        dpb_json_append(loss, dpb_json_real(w->times[s].loss_sum));
        dpb_json_append(samples, dpb_json_int(w->times[s].samples));
    }
    dpb_json_set(result, "loss_sum", loss);
    dpb_json_set(result, "samples", samples);
    size_t traced = (size_t)w->traced_count;
    dpb_json_set(result, "traced_start_ns", dpb_json_ints(w->traced_start_ns, traced));
    dpb_json_set(result, "traced_end_ns", dpb_json_ints(w->traced_end_ns, traced));
}

/* null where the comm does not know. */
static dpb_json *between_json(int64_t bytes)
{
    return bytes < 0 ? dpb_json_null() : dpb_json_int(bytes);
}

static dpb_json *comm_stats_json(const struct worker *w)
{
    struct dpb_comm_stats stats;
    dpb_step_comm_stats(w->engine, &stats);
    dpb_json *json = dpb_json_object();
    dpb_json_set_int(json, "collectives", stats.collectives);
    dpb_json_set_int(json, "wire_bytes", stats.wire_bytes);
    dpb_json_set(json, "wire_between_bytes", between_json(stats.wire_between_bytes));
    dpb_json_set_int(json, "progress_cpu_ns", stats.progress_cpu_ns);
    dpb_json_set_int(json, "wakeups", stats.wakeups);
    dpb_json_set_int(json, "wake_late_p50_ns", stats.wake_late_p50_ns);
    dpb_json_set_int(json, "wake_late_p99_ns", stats.wake_late_p99_ns);
    dpb_json_set_int(json, "wake_late_max_ns", stats.wake_late_max_ns);
    dpb_json_set_int(json, "link_late", stats.link_late);
    return json;
}

/* What the collectives of one step need on the emulated link; null without one. */
static dpb_json *wire_json(const struct worker *w, const struct dpb_step_exchanges *exchanges)
{
    unsigned flags = dpb_strategy_flags(dpb_registry_strategy(w->registry, w->e->strategy),
                                        dpb_config_struct(w->config, "strategy"));
    int count = dpb_step_messages(w->engine, NULL);
    struct dpb_sync_message *messages = calloc((size_t)count + 1, sizeof(*messages));
    int64_t total_ns = exchanges->wire_ns;
    if (!messages || !w->comm_ops->wire_ns) {
        free(messages);
        return dpb_json_null();
    }
    dpb_step_messages(w->engine, messages);
    for (int i = 0; i < count && total_ns >= 0; i++) {
        int64_t bytes = messages[i].count * (int64_t)dpb_dtype_bytes(messages[i].dtype);
        int64_t every = messages[i].every > 0 ? messages[i].every : 1;
        int64_t times = dpb_sync_message_times(flags, w->e->accumulate, &messages[i]);
        int64_t ns = w->comm_ops->wire_ns(w->comm, messages[i].kind, bytes);
        total_ns = ns < 0 ? -1 : total_ns + times * ns / every;
    }
    free(messages);
    return total_ns < 0 ? dpb_json_null() : dpb_json_int(total_ns);
}

/* What the workload exchanged itself in the last step. */
static dpb_json *exchanges_json(const struct dpb_step_exchanges *exchanges)
{
    dpb_json *json = dpb_json_object();
    dpb_json_set_int(json, "count", exchanges->count);
    dpb_json_set_int(json, "payload_bytes", exchanges->payload_bytes);
    dpb_json_set_real(json, "wire_bytes", exchanges->wire_bytes);
    return json;
}

/* null without one. */
static dpb_json *loss_scale_json(const struct worker *w)
{
    double scale;
    int64_t skipped;
    dpb_step_loss_scale(w->engine, &scale, &skipped);
    if (scale == 0.0)
        return dpb_json_null();
    dpb_json *json = dpb_json_object();
    dpb_json_set_real(json, "last", scale);
    dpb_json_set_int(json, "skipped_steps", skipped);
    return json;
}

static dpb_json *dataset_json(const struct worker *w)
{
    struct dpb_dataset_info info;
    dpb_dataset_describe(w->train, &info);
    dpb_json *json = dpb_json_object();
    dpb_json_set_string(json, "kind", info.kind);
    dpb_json_set_bool(json, "synthetic", info.synthetic);
    dpb_json_set_string(json, "source", info.source);
    dpb_json_set_int(json, "samples", info.samples);
    dpb_json_set_string(json, "sharding",
                        info.deal.sharding == DPB_SHARDING_SHARDS ? "shards" : "samples");
    dpb_json_set_int(json, "shards", info.deal.shards);
    dpb_json_set_int(json, "files", info.files);
    dpb_json_set_int(json, "file_bytes", info.file_bytes);
    dpb_json_set_int(json, "steps_per_epoch", dpb_loader_steps_per_epoch(w->loader));
    dpb_json_set_int(json, "dropped_per_epoch", dpb_loader_dropped_per_epoch(w->loader));
    return json;
}

/* Of all parameters, whole. */
static dpb_status hash_params(struct worker *w, char hash[24])
{
    uint64_t number;
    DPB_TRY(dpb_step_hash(w->engine, &number));
    snprintf(hash, 24, "%016llx", (unsigned long long)number);
    return DPB_OK;
}

static dpb_status report(struct worker *w)
{
    char hash[24];
    DPB_TRY(hash_params(w, hash));
    if (w->job.keep_values)
        DPB_TRY(kept_values_write(w->engine, w->comm, w->link, &w->kept_floats, w->kept));
    dpb_json *result = dpb_json_object();
    struct dpb_step_exchanges exchanges;
    dpb_json_set_string(result, "type", "result");
    dpb_json_set_int(result, "rank", w->rank);
    dpb_json_set_int(result, "pid", (int64_t)getpid());
    report_times(w, result);
    dpb_json_set(result, "events", dpb_events_to_json(w->events, w->event_count));
    dpb_json_set_int(result, "events_lost", (int64_t)w->events_lost);
    dpb_json_set_int(result, "traced_wire_bytes", w->traced_wire_bytes);
    dpb_json_set(result, "traced_between_bytes", between_json(w->traced_between_bytes));
    if (w->recorder_says)
        dpb_json_set(result, "recorder", dpb_json_copy(w->recorder_says));
    dpb_json_set(result, "device", w->device_ops->describe(w->device));
    dpb_json_set(result, "meter", rank_meter_json(&w->meter));
    dpb_json_set(result, "comm", w->comm_ops->describe(w->comm));
    dpb_json *plan = dpb_step_plan_json(w->engine);
    dpb_step_exchanges(w->engine, &exchanges);
    dpb_json_set(result, "wire_ns_per_step", wire_json(w, &exchanges));
    dpb_json_set(result, "exchanges", exchanges_json(&exchanges));
    dpb_json_set(result, "plan", plan);
    dpb_json_set(result, "memory", dpb_step_memory_json(w->engine));
    dpb_json_set_int(result, "peak_bytes", w->peak_bytes);
    dpb_json_set(result, "comm_stats", comm_stats_json(w));
    dpb_json_set(result, "loss_scale", loss_scale_json(w));
    dpb_json_set_int(result, "captured_steps", dpb_step_captured(w->engine));
    dpb_json_set_string(result, "param_hash", hash);
    dpb_json_set_bool(result, "in_sync", dpb_step_is_in_sync(w->engine));
    dpb_json_set_int(result, "replicas_compared", w->replicas_compared);
    dpb_json_set_bool(result, "planted", w->planted);
    dpb_json_set_int(result, "test_correct", w->test_correct);
    dpb_json_set_int(result, "test_samples", w->test_samples);
    dpb_json_set(result, "dataset", dataset_json(w));
    dpb_json_set(result, "kept", w->kept);
    w->kept = NULL;
    dpb_status st = worker_link_send(w->link, result);
    dpb_json_free(result);
    if (st == DPB_OK)
        dpb_board_write(w->line, dpb_step_count(w->engine), DPB_PHASE_DONE, -1);
    return st;
}

static void report_error(dpb_status st)
{
    if (!launch_link)
        return;
    dpb_json *message = dpb_json_object();
    dpb_json_set_string(message, "type", "error");
    dpb_json_set_int(message, "status", st);
    dpb_json_set_string(message, "text", first_error[0] ? first_error : dpb_status_text(st));
    /* The launcher may be gone; then nobody is left to tell. */
    (void)worker_link_send(launch_link, message);
    dpb_json_free(message);
}

static void worker_close(struct worker *w)
{
    if (w->recorder)
        w->recorder_ops->close(w->recorder);
    if (w->engine)
        dpb_step_close(w->engine);
    dpb_loader_close(w->test_loader);
    dpb_dataset_close(w->test);
    dpb_loader_close(w->loader);
    dpb_dataset_close(w->train);
    rank_meter_close(&w->meter);
    if (w->comm)
        w->comm_ops->close(w->comm);
    if (w->device)
        w->device_ops->close(w->device);
    dpb_config_free(w->config);
    dpb_json_free(w->kept);
    dpb_json_free(w->recorder_says);
    free(w->times);
    free(w->traced_start_ns);
    free(w->traced_end_ns);
}

static dpb_status work(struct worker *w)
{
    w->kept = dpb_json_array();
    DPB_TRY(read_job(w));
    DPB_TRY(open_parts(w));
    DPB_TRY(open_data(w, w->workload->model(dpb_config_struct(w->config, "workload"))));
    DPB_TRY(open_engine(w));
    DPB_TRY(open_measurement(w));
    DPB_TRY(train(w));
    return report(w);
}

static dpb_status train_and_report(struct worker *w)
{
    dpb_status st = work(w);
    if (st < 0) {
        report_error(st);
        if (w->comm)
            w->comm_ops->abort(w->comm, first_error[0] ? first_error : dpb_status_text(st));
        /* Peers may be gone or stuck: closing would wait for them. */
        return st;
    }
    worker_close(w);
    return DPB_OK;
}

int dpb_worker_main(const struct dpb_registry *registry)
{
    struct worker w = {.registry = registry};
    dpb_log_set_sink(keep_error, NULL);
    dpb_status st = receive_job(&w);
    if (st < 0)
        report_error(st);
    else if (dpb_json_get(w.message, COMM_BENCH_ROWS))
        st = comm_bench_rank(registry, w.link, report_error);
    else
        st = train_and_report(&w);
    worker_link_close(w.link, st);
    return dpb_status_exit_code(st);
}

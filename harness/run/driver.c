#include "dpb_driver.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dpb_ability.h"
#include "dpb_cell_record.h"
#include "dpb_clock.h"
#include "dpb_dataset.h"
#include "dpb_experiment.h"
#include "dpb_host.h"
#include "dpb_launcher.h"
#include "dpb_log.h"
#include "dpb_memory.h"
#include "dpb_placement.h"
#include "dpb_probe.h"
#include "dpb_record.h"
#include "dpb_run_folder.h"
#include "dpb_worker.h"

#define PROBE_NS     8000000 /* a few milliseconds before and after every launch */
#define TICK_NS      100000000
#define PROBES_MAX   5   /* of one reading */
#define ATTEMPTS_MAX 101 /* --probe-retries is at most 100 */

struct driver {
    const struct dpb_driver_config *config;
    struct dpb_driver_result *result;
    char *records_path;
    char *run_id;
    int lock_fd; /* dpb_run_folder_lock() */
    dpb_json *host;
    struct dpb_probe *probe;
    bool *done; /* per launch, when resuming */
    int64_t noise_retries_left;
    int64_t start_ns, last_end_ns;
    int64_t last_tick_ns; /* of a simulation */
    size_t ended;         /* launches of this session */
    bool records_lost;    /* a record could not be written: going on would lose more */
    struct dpb_progress progress;
};

/* ---- before any work ---- */

/* `samples` gets the number to train on. */
static dpb_status check_data(const struct dpb_experiment *e, const struct dpb_model *model,
                             int64_t *samples)
{
    struct dpb_dataset_config config = {
            .kind = dpb_data_kind_text(e->data),
            .folder = e->data_dir,
            .file = e->data_file,
            .model = model,
            .seed = (uint64_t)e->seed,
            .sharding = (enum dpb_sharding)e->sharding,
            .owners = (int)e->ranks,
            .owner = DPB_ALL_OWNERS,
    };
    static const enum dpb_split splits[] = {DPB_SPLIT_TRAIN, DPB_SPLIT_TEST};
    for (int i = 0; i < 2; i++) {
        dpb_dataset *dataset = NULL;
        DPB_TRY(dpb_dataset_open(&config, splits[i], &dataset));
        struct dpb_dataset_info info;
        dpb_dataset_describe(dataset, &info);
        if (splits[i] == DPB_SPLIT_TRAIN)
            *samples = info.samples;
        dpb_dataset_close(dataset);
    }
    return DPB_OK;
}

/* What only the size of the data set tells; a rank would find it, too, but after files are made. */
static dpb_status check_steps(const struct dpb_experiment *e, int64_t samples)
{
    if (e->global_batch > samples) {
        dpb_error("a global batch of %" PRId64 " samples is larger than the data set of %" PRId64,
                  e->global_batch, samples);
        dpb_log_hint("use a smaller batch or fewer ranks");
        return DPB_ERR_USAGE;
    }
    int64_t steps = e->epochs * (samples / e->global_batch);
    if (e->epochs > 0 && e->warmup >= steps) {
        dpb_error("--warmup %" PRId64 " leaves no timed step of the %" PRId64
                  " that --epochs %" PRId64 " gives",
                  e->warmup, steps, e->epochs);
        dpb_log_hint("use a smaller --warmup or batch, or more --epochs");
        return DPB_ERR_USAGE;
    }
    return DPB_OK;
}

static bool same_data(const struct dpb_experiment *a, const struct dpb_experiment *b)
{
    bool dealt = a->data == DPB_DATA_PACKED || a->sharding == DPB_SHARDING_SHARDS;
    return a->data == b->data && strcmp(a->data_dir, b->data_dir) == 0 &&
           strcmp(a->data_file, b->data_file) == 0 && a->sharding == b->sharding &&
           (!dealt || a->ranks == b->ranks);
}

/* ---- a crew ---- */

static int asked_per_node(const dpb_config *config)
{
    const struct dpb_experiment *e = dpb_config_struct(config, "experiment");
    return dpb_placement_asked(config, e->ranks_per_node);
}

/* Launches of cells with that comm. */
static size_t launches_with(const struct dpb_plan *plan, const char *comm)
{
    size_t count = 0;
    for (size_t n = 0; n < plan->launch_count; n++) {
        const struct dpb_experiment *e =
                dpb_config_struct(plan->cells[plan->order[n].cell].config, "experiment");
        count += strcmp(e->comm, comm) == 0;
    }
    return count;
}

static dpb_status check_crew_cell(const struct dpb_registry *registry, const struct dpb_plan *plan,
                                  const dpb_crew *crew, const dpb_config *config)
{
    const struct dpb_experiment *e = dpb_config_struct(config, "experiment");
    const struct dpb_comm_ops *comm = dpb_registry_comm(registry, e->comm);
    if (dpb_registry_is_virtual(registry, e->device)) {
        dpb_error("--launcher %s cannot take effect: --device %s starts no ranks",
                  dpb_launcher_text(dpb_crew_kind(crew)), e->device);
        dpb_log_hint("leave one of the two out");
        return DPB_ERR_USAGE;
    }
    return dpb_crew_check_comm(crew, e->comm, dpb_registry_needs_segment(comm),
                               launches_with(plan, e->comm), (int)e->ranks, (int)e->ranks);
}

static dpb_status crew_preflight(const struct dpb_registry *registry, const struct dpb_plan *plan,
                                 const dpb_crew *crew)
{
    struct dpb_world widest = {0};
    dpb_status st = DPB_OK;
    for (size_t i = 0; st == DPB_OK && i < plan->cell_count; i++) {
        struct dpb_world world = {0};
        dpb_config *config = plan->cells[i].config;
        const struct dpb_experiment *e = dpb_config_struct(config, "experiment");
        st = dpb_placement_find(crew, config, (int)e->ranks, asked_per_node(config), &world);
        if (st == DPB_OK)
            st = check_crew_cell(registry, plan, crew, config);
        if (st == DPB_OK && world.ranks > widest.ranks) {
            dpb_world_release(&widest);
            widest = world;
        } else {
            dpb_world_release(&world);
        }
    }
    if (st == DPB_OK)
        dpb_world_announce(&widest);
    dpb_world_release(&widest);
    return st;
}

dpb_status dpb_driver_preflight(const struct dpb_registry *registry, const struct dpb_plan *plan,
                                const dpb_crew *crew)
{
    DPB_TRY(crew ? crew_preflight(registry, plan, crew) : dpb_crew_check_alone());
    const struct dpb_experiment *checked = NULL;
    const struct dpb_model *checked_model = NULL;
    int64_t samples = 0;
    for (size_t i = 0; i < plan->cell_count; i++) {
        const dpb_config *config = plan->cells[i].config;
        const struct dpb_experiment *e = dpb_config_struct(config, "experiment");
        DPB_TRY(crew ? dpb_registry_check_pair(registry, e->device, e->comm)
                     : dpb_registry_check_parts(registry, e->device, e->comm, e->ranks));
        if (dpb_registry_is_virtual(registry, e->device))
            continue; /* there is no data set */
        if (!dpb_crew_is_here(crew) && e->data != DPB_DATA_SYNTHETIC)
            continue; /* the files are where the ranks are, each host's own: ranks look at them */
        const struct dpb_model *model = dpb_registry_workload(registry, e->workload)
                                                ->model(dpb_config_struct(config, "workload"));
        if (!checked || model != checked_model || !same_data(e, checked))
            DPB_TRY(check_data(e, model, &samples));
        checked = e;
        checked_model = model;
        DPB_TRY(check_steps(e, samples));
    }
    return DPB_OK;
}

/* What earlier sessions of a resumed run have done. */
static dpb_status find_done(struct driver *d)
{
    const struct dpb_plan *plan = d->config->plan;
    if (!d->config->resume)
        return DPB_OK;
    struct dpb_records records = {0};
    dpb_status st = dpb_records_read_begun(d->records_path, &records);
    for (size_t i = 0; st == DPB_OK && i < records.count; i++) {
        const dpb_json *record = records.items[i];
        if (strcmp(dpb_json_as_string(dpb_json_get(record, "status"), ""), "ok") != 0)
            continue;
        for (size_t n = 0; n < plan->launch_count; n++)
            if (plan->order[n].cell == dpb_json_as_int(dpb_json_get(record, "cell"), -1) &&
                plan->order[n].repeat == dpb_json_as_int(dpb_json_get(record, "repeat"), -1))
                d->done[n] = true;
    }
    dpb_records_release(&records);
    return st;
}

static dpb_status write_manifest(const struct driver *d, const char *state)
{
    struct dpb_manifest manifest = {d->run_id, state, d->host, d->config->plan, d->config->crew};
    return dpb_manifest_write(d->config->folder, &manifest);
}

static dpb_status driver_open(struct driver *d)
{
    const struct dpb_driver_config *config = d->config;
    d->records_path = dpb_path_join(config->folder, DPB_RECORDS_FILE);
    d->done = calloc(config->plan->launch_count, sizeof(*d->done));
    if (!d->records_path || !d->done)
        return DPB_ERR_NO_MEMORY;
    DPB_TRY(dpb_run_folder_lock(config->folder, &d->lock_fd));
    DPB_TRY(dpb_run_folder_name(config->folder, config->resume, &d->run_id));
    d->host = dpb_host_json();
    DPB_TRY(find_done(d));
    DPB_TRY(write_manifest(d, "running"));
    /* On a machine that stays busy retries only cost time: a tenth of the launches is enough to
     * step over a short disturbance. */
    d->noise_retries_left = (int64_t)config->plan->launch_count / 10 + 2;
    if (dpb_crew_is_started(config->crew) && launches_with(config->plan, "mpi") > 0)
        d->noise_retries_left = 0; /* MPI does not start again in processes that are there */
    d->start_ns = dpb_clock_now_ns();
    d->progress = (struct dpb_progress){.total = config->plan->launch_count, .eta_ns = -1};
    return dpb_probe_open(NULL, 0, &d->probe);
}

static void driver_close(struct driver *d)
{
    if (d->probe)
        dpb_probe_close(d->probe);
    dpb_json_free(d->host);
    free(d->records_path);
    free(d->run_id);
    free(d->done);
    if (d->lock_fd >= 0)
        close(d->lock_fd);
}

/* ---- launches ---- */

static void tell(struct driver *d)
{
    if (d->ended > 0) {
        int64_t each_ns = (d->last_end_ns - d->start_ns) / (int64_t)d->ended;
        int64_t left_ns = each_ns * (int64_t)(d->progress.total - d->progress.done) -
                          (dpb_clock_now_ns() - d->last_end_ns);
        d->progress.eta_ns = left_ns > 0 ? left_ns : 0;
    }
    if (d->config->progress)
        d->config->progress(d->config->progress_ctx, &d->progress);
}

static void tick(void *ctx, int64_t step)
{
    struct driver *d = ctx;
    d->progress.step = step;
    tell(d);
}

/* Steps on virtual time are short: a progress line for each would cost more than they do. */
static void tick_virtual(void *ctx, int64_t step)
{
    struct driver *d = ctx;
    const int64_t now_ns = dpb_clock_now_ns();
    if (now_ns - d->last_tick_ns < TICK_NS)
        return;
    d->last_tick_ns = now_ns;
    tick(ctx, step);
}

static double least(double a, double b)
{
    return a < b ? a : b;
}

/* How much of the busiest core is available now. A single gap of a few milliseconds can fill a
 * short probe, so a low reading is looked at again, a bounded number of times, and the mean counts.
 */
static dpb_status probe_machine(struct driver *d, double limit, double *availability)
{
    double sum = 0;
    int probes = 0;
    do {
        struct dpb_probe_result result;
        DPB_TRY(dpb_probe_run(d->probe, PROBE_NS, &result));
        sum += result.availability_min;
        probes++;
    } while (sum / probes < limit && probes < PROBES_MAX);
    *availability = sum / probes;
    return DPB_OK;
}

/* One launch between two probes. */
static dpb_status launch_once(struct driver *d, const struct dpb_launch_config *launch,
                              double limit, struct dpb_launch_result *result,
                              struct dpb_attempt *attempt)
{
    memset(result, 0, sizeof(*result));
    *attempt = (struct dpb_attempt){NAN, NAN, NAN, NAN};
    DPB_TRY(probe_machine(d, limit, &attempt->before));
    dpb_status st = dpb_launch_run(launch, result);
    DPB_KEEP(st, probe_machine(d, limit, &attempt->after));
    attempt->availability = least(attempt->before, attempt->after);
    attempt->median_step_ns = st == DPB_OK ? dpb_cell_median_step_ns(result) : NAN;
    return st;
}

/* Launch, and again while the machine was too busy and retries are left; the attempt on the
 * quietest machine counts, and the status is its. */
static dpb_status launch_with_retries(struct driver *d, const struct dpb_experiment *e,
                                      const struct dpb_launch_config *launch,
                                      struct dpb_launch_result *best,
                                      struct dpb_attempt attempts[ATTEMPTS_MAX], int *count,
                                      int *used, bool *interrupted)
{
    dpb_status st = DPB_OK;
    *count = 0;
    *used = 0;
    for (;;) {
        struct dpb_launch_result result;
        struct dpb_attempt *attempt = &attempts[*count];
        dpb_status launched = launch_once(d, launch, e->probe_limit_ratio, &result, attempt);
        bool first = *count == 0;
        bool better = !first && launched == DPB_OK &&
                      attempt->availability > attempts[*used].availability;
        if (first || better) {
            if (!first)
                dpb_launch_result_release(best);
            *best = result;
            *used = *count;
            st = launched;
        } else {
            dpb_launch_result_release(&result);
        }
        (*count)++;
        bool again = st == DPB_OK && launched == DPB_OK &&
                     attempts[*used].availability < e->probe_limit_ratio &&
                     *count <= e->probe_retries && d->noise_retries_left > 0;
        /* A second attempt that fails or is interrupted does not undo a first that went well. */
        *interrupted = launched == DPB_ERR_INTERRUPTED;
        if (!again)
            return st;
        d->noise_retries_left--;
        d->progress.repeats_for_noise = true;
        d->progress.availability = attempt->availability;
        tell(d);
        d->progress.repeats_for_noise = false;
    }
}

/* What a launch of its own has traced becomes the timed one's, with how its hosts' clocks were to
 * each other then. */
static void take_trace(const struct dpb_launch_result *traced, struct dpb_launch_result *timed)
{
    static const char *const keys[] = {
            "traced_start_ns",   "traced_end_ns",        "events",   "events_lost",
            "traced_wire_bytes", "traced_between_bytes", "recorder", "clock"};
    for (int r = 0; r < timed->rank_count; r++)
        for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
            dpb_json_set(timed->ranks[r], keys[i],
                         dpb_json_copy(dpb_json_get(traced->ranks[r], keys[i])));
}

/* For a recorder that wants processes of its own. Timed steps count without a trace, too. */
static dpb_status launch_traced(struct driver *d, const struct dpb_plan_cell *cell,
                                const struct dpb_launch_config *like,
                                struct dpb_launch_result *timed)
{
    const struct dpb_experiment *e = dpb_config_struct(cell->config, "experiment");
    const struct dpb_recorder_ops *recorder =
            dpb_registry_recorder(d->config->registry, e->recorder);
    if (!recorder || !(recorder->flags & DPB_RECORDER_OWN_PROCESS) || e->trace_steps == 0)
        return DPB_OK;
    struct dpb_job job = {.config = cell->config, .plant_rank = -1, .steps = DPB_JOB_TRACED};
    dpb_json *job_json = dpb_job_to_json(&job);
    struct dpb_launch_config launch = *like;
    struct dpb_launch_result traced = {0};
    launch.job = job_json;
    dpb_status st = dpb_launch_run(&launch, &traced);
    if (st == DPB_OK)
        take_trace(&traced, timed);
    else if (st != DPB_ERR_INTERRUPTED)
        dpb_warn("cell %s has no trace: %s", cell->label, traced.reason);
    dpb_launch_result_release(&traced);
    dpb_json_free(job_json);
    return st == DPB_ERR_INTERRUPTED ? st : DPB_OK;
}

/* A cell that cannot fit is recorded without being launched; the others go on. */
static dpb_status refuse(const struct dpb_memory *memory, const struct dpb_memory_limits *limits,
                         struct dpb_launch_result *result)
{
    struct dpb_str reason = {0};
    dpb_memory_refusal(memory, limits, &reason);
    snprintf(result->reason, sizeof(result->reason), "%s", reason.text ? reason.text : "memory");
    dpb_str_release(&reason);
    return DPB_ERR_NO_MEMORY;
}

/* The cell in this process; `sections` of its record. */
static dpb_status run_virtual(struct driver *d, const struct dpb_plan_launch *launch,
                              struct dpb_launch_result *result, dpb_json **sections)
{
    const struct dpb_plan *plan = d->config->plan;
    const struct dpb_plan_cell *cell = &plan->cells[launch->cell];
    const int64_t start_ns = dpb_clock_now_ns();
    char file[128];
    struct dpb_simulation simulation = {
            .registry = d->config->registry,
            .config = cell->config,
            .folder = d->config->folder,
            .trace_file = file,
            .title = cell->label[0] ? cell->label : plan->name,
            .repeat = launch->repeat,
            .interrupted = d->config->interrupted,
            .tick = tick_virtual,
            .tick_ctx = d,
    };
    dpb_cell_trace_name(launch, file, sizeof(file));
    dpb_status st = d->config->registry->simulator->run(&simulation, sections);
    result->wall_ns = dpb_clock_now_ns() - start_ns;
    if (st < 0)
        snprintf(result->reason, sizeof(result->reason), "the simulation failed: %s",
                 dpb_status_text(st));
    return st;
}

/* Of all hosts of a crew: the others are taken to be like this one. */
static dpb_status memory_limits(const struct driver *d, const dpb_config *config,
                                struct dpb_memory_limits *limits)
{
    const struct dpb_experiment *e = dpb_config_struct(config, "experiment");
    struct dpb_world world = {0};
    if (d->config->crew)
        DPB_TRY(dpb_crew_map(d->config->crew, (int)e->ranks, asked_per_node(config), &world));
    const int nodes = world.nodes;
    const int ranks_here = nodes > 0 ? world.node[0].slots : (int)e->ranks;
    dpb_world_release(&world);
    DPB_TRY(dpb_memory_limits_of(d->config->registry, config, ranks_here, limits));
    if (nodes > 1 && limits->host_bytes < INT64_MAX / nodes)
        limits->host_bytes *= nodes;
    return DPB_OK;
}

/* Append the launch's record, and count it; `launched` is not DPB_OK after one that is not ok. */
static dpb_status keep_record(struct driver *d, const struct dpb_cell_outcome *outcome,
                              dpb_status *launched)
{
    dpb_json *record = NULL;
    dpb_status st = dpb_cell_record_build(outcome, &record);
    if (st == DPB_OK && d->config->annotate)
        d->config->annotate(d->config->annotate_ctx, &outcome->launch, record);
    if (st == DPB_OK)
        st = dpb_records_append(d->records_path, record);
    const char *status = dpb_json_as_string(dpb_json_get(record, "status"), "");
    const bool ok = st == DPB_OK && strcmp(status, "ok") == 0;
    if (st == DPB_OK && !ok && *launched == DPB_OK)
        *launched = DPB_ERR_CHECK;
    if (!ok && d->result->not_ok == 0)
        snprintf(d->result->first_reason, sizeof(d->result->first_reason), "%s",
                 st < 0 ? "its record or trace could not be written"
                        : dpb_json_as_string(dpb_json_get(record, "reason"), ""));
    d->result->ok += ok;
    d->result->not_ok += !ok;
    dpb_json_free(record);
    d->records_lost = st < 0;
    return st;
}

static dpb_status run_launch(struct driver *d, size_t n)
{
    const struct dpb_plan *plan = d->config->plan;
    const struct dpb_plan_cell *cell = &plan->cells[plan->order[n].cell];
    const struct dpb_experiment *e = dpb_config_struct(cell->config, "experiment");
    struct dpb_job job = {.config = cell->config, .plant_rank = -1};
    dpb_json *job_json = dpb_job_to_json(&job);
    struct dpb_launch_config launch = {
            .ranks = (int)e->ranks,
            .crew = d->config->crew,
            .ranks_per_node = asked_per_node(cell->config),
            .job = job_json,
            .timeout_ns = e->timeout_ns,
            .stall_timeout_ns = e->stall_timeout_ns,
            .interrupted = d->config->interrupted,
            .tick = tick,
            .tick_ctx = d,
    };
    struct dpb_attempt attempts[ATTEMPTS_MAX] = {{NAN, NAN, NAN, NAN}};
    struct dpb_launch_result result = {0};
    struct dpb_memory memory;
    struct dpb_memory_limits limits = {INT64_MAX, {.free_bytes = INT64_MAX}};
    int count = 0, used = 0;
    bool interrupted = false;
    const bool is_virtual = dpb_registry_is_virtual(d->config->registry, e->device);
    dpb_json *sections = NULL;
    dpb_memory_predict(d->config->registry, cell->config, &memory);
    dpb_status launched = memory_limits(d, cell->config, &limits);
    if (launched == DPB_OK)
        launched = dpb_ability_check(d->config->registry, cell->config, result.reason,
                                     sizeof(result.reason));
    const bool fits = dpb_memory_fits(&memory, &limits);
    const bool skipped = launched == DPB_ERR_UNSUPPORTED || (launched == DPB_OK && !fits);
    d->progress.label = cell->label;
    d->progress.repeat = plan->order[n].repeat;
    d->progress.step = 0;
    d->progress.steps = e->steps == DPB_AUTO ? 0 : e->steps;
    tell(d);
    if (launched == DPB_OK && !fits)
        launched = refuse(&memory, &limits, &result);
    else if (launched == DPB_OK && is_virtual)
        launched = run_virtual(d, &plan->order[n], &result, &sections);
    else if (launched == DPB_OK)
        launched =
                launch_with_retries(d, e, &launch, &result, attempts, &count, &used, &interrupted);
    interrupted |= launched == DPB_ERR_INTERRUPTED;
    if (launched == DPB_OK && !interrupted && !is_virtual)
        interrupted = launch_traced(d, cell, &launch, &result) < 0;
    struct dpb_cell_outcome outcome = {
            .run_id = d->run_id,
            .run_folder = d->config->folder,
            .registry = d->config->registry,
            .plan = plan,
            .launch = plan->order[n],
            .order = (int64_t)n,
            .status = launched,
            .skipped = skipped,
            .memory = &memory,
            .memory_limits = &limits,
            .is_virtual = is_virtual,
            .sections = sections,
            .result = &result,
            .host = d->host,
            .crew = d->config->crew,
            .attempts = attempts,
            .attempt_count = count,
            .attempt_used = used,
            .probe_limit = e->probe_limit_ratio,
    };
    dpb_status st = keep_record(d, &outcome, &launched);
    d->ended++;
    d->last_end_ns = dpb_clock_now_ns();
    d->progress.done++;
    d->progress.step = -1;
    d->progress.status = launched;
    d->progress.skipped = skipped;
    d->progress.median_step_ns =
            sections ? dpb_cell_sections_median_ns(sections) : attempts[used].median_step_ns;
    d->progress.availability = attempts[used].availability;
    tell(d);
    dpb_json_free(sections);
    dpb_json_free(job_json);
    dpb_launch_result_release(&result);
    if (interrupted)
        launched = DPB_ERR_INTERRUPTED;
    return st < 0 ? st : launched;
}

dpb_status dpb_driver_run(const struct dpb_driver_config *config, struct dpb_driver_result *result)
{
    struct driver d = {.config = config, .result = result, .lock_fd = -1};
    memset(result, 0, sizeof(*result));
    dpb_status st, first = DPB_OK;
    DPB_TRY_GOTO(st, driver_open(&d), out);
    for (size_t n = 0; n < config->plan->launch_count; n++) {
        if (d.done[n]) {
            result->skipped_done++;
            d.progress.done++;
            continue;
        }
        dpb_status launched = run_launch(&d, n);
        if (launched < 0 && first == DPB_OK)
            first = launched;
        if (launched == DPB_ERR_INTERRUPTED || d.records_lost) {
            first = launched;
            break;
        }
    }
    st = write_manifest(&d, first == DPB_OK                ? "complete"
                            : first == DPB_ERR_INTERRUPTED ? "interrupted"
                                                           : "failed");
out:
    driver_close(&d);
    return first < 0 ? first : st;
}

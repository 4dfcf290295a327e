/* dpbench profile: how long the layers of a workload take on a device, as a file. */
#include "dpb_cli.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_ability.h"
#include "dpb_capacity.h"
#include "dpb_cell_record.h"
#include "dpb_host.h"
#include "dpb_log.h"
#include "dpb_memory.h"
#include "dpb_profile.h"
#include "dpb_record.h"
#include "dpb_stats.h"
#include "dpb_trace.h"

#define STEPS_PER_RANK 20 /* that it takes to tell of one rank more */

struct profile_options {
    char out[DPB_OPTION_TEXT_BYTES];
    char folder[DPB_OPTION_TEXT_BYTES];
};

static const struct dpb_option rows[] = {
        DPB_ROW_OUT(struct profile_options, "file of the profile"),
        {.name = "folder",
         .type = DPB_OPT_TEXT,
         .offset = offsetof(struct profile_options, folder),
         .default_text = "",
         .category = "Output",
         .help = "folder of the run that it is made from; default runs/<UTC time>-profile"},
};

static const struct dpb_option_table table = {
        "command", "profile", rows, sizeof(rows) / sizeof(rows[0]), sizeof(struct profile_options)};

/* ---- what is run ---- */

static dpb_status add_default(const struct dpb_registry *registry, struct dpb_settings *flags,
                              const char *name, const char *value)
{
    if (dpb_settings_find(flags, name))
        return DPB_OK;
    return dpb_settings_add(flags, registry->options, name, value, "dpbench profile");
}

static bool is_fixed(const struct dpb_settings *flags, const char *name, const char *value)
{
    const struct dpb_setting *setting = dpb_settings_find(flags, name);

    return !setting || (setting->value_count == 1 && strcmp(setting->values[0], value) == 0);
}

static dpb_status check_settings(const struct dpb_registry *registry,
                                 const struct dpb_settings *flags)
{
    const struct dpb_setting *device = dpb_settings_find(flags, "device");

    if (device && dpb_registry_is_virtual(registry, device->values[0])) {
        dpb_error("--device %s: nothing can be measured there", device->values[0]);
        dpb_log_hint("make the profile on a real device");
        return DPB_ERR_USAGE;
    }
    if (!is_fixed(flags, "ranks", "1") || !is_fixed(flags, "repeats", "1") ||
        !is_fixed(flags, "accumulate", "1") || dpb_settings_find(flags, "strategy")) {
        dpb_error("dpbench profile: measures one rank without a strategy, one micro-batch a step");
        dpb_log_hint("leave out --ranks, --strategy, --accumulate and --repeats: they are given to "
                     "`dpbench simulate --profile`");
        return DPB_ERR_USAGE;
    }
    for (size_t i = 0; i < flags->count; i++) {
        if (flags->items[i].value_count == 1 || strcmp(flags->items[i].name, "batch-per-rank") == 0)
            continue;
        dpb_error("%s: only --batch-per-rank can have several values in a profile",
                  flags->items[i].origin);
        dpb_log_hint("make a profile for each value");
        return DPB_ERR_USAGE;
    }
    return DPB_OK;
}

static dpb_status make_plan(const struct dpb_registry *registry,
                            const struct dpb_command_line *line, struct dpb_plan *plan)
{
    struct dpb_settings flags = {0};
    const struct dpb_plan_input input = {.registry = registry,
                                         .flags = &flags,
                                         .sweep = true,
                                         .cores = dpb_host_cores(),
                                         .name = "profile"};
    dpb_status st;

    DPB_TRY(check_settings(registry, &line->experiment));
    DPB_TRY_GOTO(st, dpb_settings_override(&flags, &line->experiment), out);
    DPB_TRY_GOTO(st, add_default(registry, &flags, "ranks", "1"), out);
    DPB_TRY_GOTO(st, add_default(registry, &flags, "strategy", "none"), out);
    DPB_TRY_GOTO(st, add_default(registry, &flags, "trace-steps", "20"), out);
    DPB_TRY_GOTO(st, add_default(registry, &flags, "threads-per-rank", "1"), out);
    st = dpb_plan_build(&input, plan);
out:
    dpb_settings_release(&flags);
    return st;
}

/* ---- from its records to the profile ---- */

static const dpb_json *next_record(const struct dpb_records *records, int64_t above)
{
    const dpb_json *found = NULL;
    int64_t least = INT64_MAX;

    for (size_t i = 0; i < records->count; i++) {
        const int64_t batch = dpb_json_as_int(dpb_json_get(records->items[i], "batch_per_rank"), 0);

        if (batch > above && batch < least) {
            least = batch;
            found = records->items[i];
        }
    }
    return found;
}

static dpb_status add_record(const char *folder, const dpb_json *record,
                             struct dpb_profile *profile)
{
    char *path = dpb_path_join(
            folder, dpb_json_as_string(dpb_json_path(record, "trace/file"), "(no trace)"));
    struct dpb_event *events = NULL;
    char *names = NULL;
    size_t count = 0;
    uint64_t lost = 0;
    dpb_status st = path ? dpb_trace_read(path, &events, &count, &names, &lost) : DPB_ERR_NO_MEMORY;

    if (st == DPB_OK)
        st = dpb_profile_add(profile, record, events, count, lost);
    free(names);
    free(events);
    free(path);
    return st;
}

/* Each of N ranks as this one: how long the slowest of them takes, as a multiple of this one's
 * median. As many ranks as STEPS_PER_RANK allows. */
static dpb_json *slowest_json(const dpb_json *record)
{
    const dpb_json *samples = dpb_json_get(record, "samples_step_ns");
    const size_t count = dpb_json_size(samples);
    double *ns = calloc(count + 1, sizeof(*ns));
    dpb_json *list = dpb_json_array();

    for (size_t i = 0; ns && i < count; i++)
        ns[i] = dpb_json_as_real(dpb_json_at(samples, i), NAN);
    for (size_t ranks = 2; ns && ranks * STEPS_PER_RANK <= count; ranks *= 2) {
        dpb_json *one = dpb_json_object();

        dpb_json_set_int(one, "ranks", (int64_t)ranks);
        dpb_json_set_real(one, "over_median",
                          dpb_capacity_extrapolate_max(ns, count, (double)ranks) /
                                  dpb_stats_median(ns, count));
        dpb_json_append(list, one);
    }
    free(ns);
    return list;
}

static dpb_json *more_json(const dpb_json *record, const char *folder)
{
    static const char *const keys[] = {"device", "host",   "tool",    "time_utc",
                                       "config", "run_id", "warnings"};
    dpb_json *more = dpb_json_object();

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        dpb_json_set(more, keys[i], dpb_json_copy(dpb_json_get(record, keys[i])));
    dpb_json_set_string(more, "run_folder", folder);
    return more;
}

static void print_slowest(const dpb_json *list)
{
    for (size_t i = 0; i < dpb_json_size(list); i++)
        printf("%s %lld: x %.3f", i == 0 ? "slowest of ranks like this one:" : ",",
               (long long)dpb_json_as_int(dpb_json_path(dpb_json_at(list, i), "ranks"), 0),
               dpb_json_as_real(dpb_json_path(dpb_json_at(list, i), "over_median"), NAN));
    if (dpb_json_size(list) > 0)
        printf(" of the median step\n");
}

static void print_profile(const struct dpb_profile *profile, const char *path)
{
    printf("batch  step ms  forward  backward  optimizer  data  rest  traced/timed\n");
    for (int b = 0; b < profile->batch_count; b++) {
        double pass_ns[2] = {0, 0};

        for (int l = 0; l < profile->layer_count; l++)
            for (int p = 0; p < 2; p++)
                pass_ns[p] += profile->layers[l].ns[p][b];
        printf("%5" PRId64 "  %7.3f  %7.3f  %8.3f  %9.3f  %4.2f  %4.2f  %12.3f\n",
               profile->batch[b], profile->step_ns[b] * 1e-6, pass_ns[0] * 1e-6, pass_ns[1] * 1e-6,
               profile->optimizer_ns[b] * 1e-6, profile->data_ns[b] * 1e-6,
               profile->rest_ns[b] * 1e-6, profile->trace_overhead[b]);
    }
    dpb_info("profile: %s (%d layers)", path, profile->layer_count);
}

static dpb_status write_profile(const struct dpb_registry *registry, const struct dpb_plan *plan,
                                const char *folder, const char *path)
{
    const dpb_config *config = plan->cells[0].config;
    const struct dpb_experiment *e = dpb_config_struct(config, "experiment");
    const struct dpb_model *model = dpb_registry_workload(registry, e->workload)
                                            ->model(dpb_config_struct(config, "workload"));
    struct dpb_records records = {0};
    struct dpb_profile profile = {0};
    const dpb_json *record;
    dpb_json *json = NULL, *more = NULL;
    int64_t batch = 0;
    dpb_status st;

    DPB_TRY_GOTO(st, dpb_records_read(folder, &records), out);
    DPB_TRY_GOTO(st, dpb_profile_new(model, e->workload, &profile), out);
    profile.device = strdup(e->device);
    profile.optimizer = strdup(dpb_optimizer_text((enum dpb_optimizer_kind)e->optimizer));
    profile.precision = (enum dpb_dtype)e->precision;
    profile.is_cpu = !(dpb_registry_device(registry, e->device)->flags & DPB_DEVICE_ACCELERATOR);
    while ((record = next_record(&records, batch))) {
        batch = dpb_json_as_int(dpb_json_get(record, "batch_per_rank"), 0);
        DPB_TRY_GOTO(st, add_record(folder, record, &profile), out);
    }
    more = more_json(records.items[0], folder);
    dpb_json_set(more, "slowest_of", slowest_json(records.items[0]));
    json = dpb_profile_to_json(&profile, more);
    DPB_TRY_GOTO(st, dpb_json_write_file(json, path), out);
    print_profile(&profile, path);
    print_slowest(dpb_json_get(json, "slowest_of"));
out:
    dpb_json_free(json);
    dpb_json_free(more);
    dpb_profile_release(&profile);
    dpb_records_release(&records);
    return st;
}

static dpb_status run_plan(const struct dpb_registry *registry, const struct dpb_plan *plan,
                           const char *folder)
{
    const struct dpb_driver_config driver = {
            .registry = registry,
            .plan = plan,
            .folder = folder,
            .interrupted = dpb_interrupt_watch(),
            .progress = dpb_progress_show,
    };
    struct dpb_driver_result result;
    const dpb_status st = dpb_driver_run(&driver, &result);

    dpb_progress_end();
    if (result.not_ok > 0)
        dpb_error("%zu of %zu launches are not ok; the first: %s", result.not_ok,
                  result.ok + result.not_ok, result.first_reason);
    return st;
}

static dpb_status run(const struct dpb_registry *registry, const struct dpb_command_line *line,
                      const void *options)
{
    const struct profile_options *o = options;
    struct dpb_plan plan = {0};
    char *folder = NULL;
    dpb_status st;

    if (!o->out[0]) {
        dpb_error("dpbench profile: needs -o FILE");
        dpb_log_hint("name the file that `dpbench simulate --profile` shall read");
        return DPB_ERR_USAGE;
    }
    DPB_TRY(make_plan(registry, line, &plan));
    DPB_TRY_GOTO(st, dpb_file_check(o->out), out);
    DPB_TRY_GOTO(st, dpb_driver_preflight(registry, &plan, NULL), out);
    DPB_TRY_GOTO(st, dpb_ability_check_plan(registry, &plan), out);
    DPB_TRY_GOTO(st, dpb_memory_check_plan(registry, &plan), out);
    DPB_TRY_GOTO(st, dpb_run_folder_new(o->folder[0] ? o->folder : NULL, plan.name, &folder), out);
    DPB_TRY_GOTO(st, run_plan(registry, &plan, folder), out);
    st = write_profile(registry, &plan, folder, o->out);
out:
    free(folder);
    dpb_plan_release(&plan);
    return st;
}

const struct dpb_verb dpb_verb_profile = {
        .command = {.name = "profile",
                    .arguments = "",
                    .summary = "how long the layers of a workload take, for simulations",
                    .description =
                            "Runs a workload on one rank, and writes how long each layer takes "
                            "forward and backward, the optimizer and the rest. With several "
                            "--batch-per-rank a time is known as a + b batch. `dpbench simulate "
                            "--profile` replays it on other networks, ranks and buckets.",
                    .table = &table,
                    .takes_experiment = true},
        .run = run,
};

#include "dpb_memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_dataset.h"
#include "dpb_experiment.h"
#include "dpb_log.h"
#include "dpb_step.h"
#include "dpb_units.h"

/* Resident in a rank beyond the other parts: 12.4 MB with mnist-mlp, 15.4 MB with mnist-cnn, at
 * batch 1 (peak of getrusage, oneDNN 2.6.3, Debian 12, x86-64, 1 thread, December 2026). Half of it
 * is code of libraries, which ranks share; the total counts it once per rank all the same, since
 * 7 MB too many refuse nothing that fits well. */
#define RUNTIME_BYTES INT64_C(15000000)

static const char *const part_keys[DPB_MEMORY_PARTS] = {
        [DPB_MEMORY_PARAMETERS] = "parameters",
        [DPB_MEMORY_GRADIENTS] = "gradients",
        [DPB_MEMORY_OPTIMIZER] = "optimizer",
        [DPB_MEMORY_ACTIVATIONS] = "activations",
        [DPB_MEMORY_STAGING] = "staging",
        [DPB_MEMORY_WORKSPACE] = "workspace",
        [DPB_MEMORY_PINNED] = "pinned",
        [DPB_MEMORY_DATA] = "data",
        [DPB_MEMORY_RUNTIME] = "runtime",
        [DPB_MEMORY_PEERS] = "peer_gradients",
        [DPB_MEMORY_COMMUNICATION] = "communication",
        [DPB_MEMORY_STRATEGY] = "strategy",
};

/* ---- sums that do not wrap ---- */

static int64_t plus(int64_t a, int64_t b)
{
    int64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

static int64_t times(int64_t a, int64_t b)
{
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

/* ---- prediction ---- */

static void set_unknown(struct dpb_memory *memory, enum dpb_memory_part part, const char *why)
{
    memory->part_bytes[part] = DPB_MEMORY_UNKNOWN;
    memory->why_unknown[part] = why;
}

/* The CPU device packs input and output of one convolution at a time for its weight gradient, in a
 * buffer that all share. Of a layer's input only the output before it is known, which is the same
 * in a chain: mnist-cnn takes 58,496 floats per sample, as measured. */
static int64_t workspace_bytes(const struct dpb_model *model, int64_t batch)
{
    int64_t most = 0;
    for (int i = 1; i < model->layer_count; i++) {
        int64_t elements = model->layers[i].out_elements_per_sample +
                           model->layers[i - 1].out_elements_per_sample;
        if (strcmp(model->layers[i].kind, "conv2d") == 0 && elements > most)
            most = elements;
    }
    return times(times(most, batch), (int64_t)sizeof(float));
}

/* Numbers of a sample in a batch; all take four bytes. */
static int64_t sample_numbers(const struct dpb_model *model)
{
    const int64_t *dim = model->sample_dim;
    switch (model->input) {
    case DPB_INPUT_IMAGES:
        return 1 + dim[0] * dim[1] * dim[2];
    case DPB_INPUT_TOKENS:
        return 1 + (model->next_token ? 1 : 2) * model->sequence + 2 * model->predicted;
    case DPB_INPUT_INTERACTIONS:
        return 1 + model->features + model->tables;
    }
    return 0;
}

/* One split: what it holds, a shuffled order, and `batches` batches with the numbers of their
 * samples. */
static int64_t split_bytes(const struct dpb_model *model, const struct dpb_dataset_size *size,
                           int64_t batches, int64_t batch)
{
    int64_t each = sample_numbers(model) * (int64_t)sizeof(float) + (int64_t)sizeof(int64_t);
    return plus(plus(size->held_bytes, times(size->samples, (int64_t)sizeof(int64_t))),
                times(times(batches, batch), each));
}

static bool evaluates(const struct dpb_experiment *e)
{
    return e->evaluate == DPB_EVALUATE_ON || (e->evaluate == DPB_EVALUATE_AUTO && e->epochs > 0);
}

/* The next training batch is made while one is used; evaluation makes them as it goes. Files are
 * read one split after the other. */
static void predict_data(const struct dpb_experiment *e, const struct dpb_model *model,
                         struct dpb_memory *memory)
{
    struct dpb_dataset_config config = {.kind = dpb_data_kind_text((enum dpb_data_kind)e->data),
                                        .model = model,
                                        .folder = e->data_dir,
                                        .file = e->data_file,
                                        .sharding = (enum dpb_sharding)e->sharding,
                                        .owners = (int)e->ranks};
    const bool evaluate = evaluates(e);
    struct dpb_dataset_size train, test;
    if (strcmp(config.kind, "auto") == 0 &&
        dpb_dataset_kind_for(config.kind, model, &config.kind) < 0)
        config.kind = "";
    if (!dpb_dataset_predict(&config, DPB_SPLIT_TRAIN, &train) ||
        (evaluate && !dpb_dataset_predict(&config, DPB_SPLIT_TEST, &test))) {
        set_unknown(memory, DPB_MEMORY_DATA, "the files of the data set cannot be read");
        return;
    }
    int64_t bytes = split_bytes(model, &train, 2, e->batch_per_rank);
    if (evaluate)
        bytes = plus(bytes, split_bytes(model, &test, 1, e->batch_per_rank));
    memory->part_bytes[DPB_MEMORY_DATA] = plus(bytes, train.reading_bytes);
}

static bool is_of_device(const struct dpb_memory *memory, int part)
{
    return memory->has_device && part <= DPB_MEMORY_WORKSPACE;
}

/* Of an accelerator's libraries nobody tells what they take, of its memory or of the host's. */
static void sum_up(struct dpb_memory *memory)
{
    memory->at_least = memory->has_device;
    for (int p = 0; p < DPB_MEMORY_PARTS; p++) {
        if (memory->part_bytes[p] == DPB_MEMORY_UNKNOWN) {
            memory->at_least = true;
            continue;
        }
        if (is_of_device(memory, p)) {
            memory->device_bytes = plus(memory->device_bytes, memory->part_bytes[p]);
            continue;
        }
        memory->rank_bytes = plus(memory->rank_bytes, memory->part_bytes[p]);
        if (p != DPB_MEMORY_PEERS)
            memory->total_bytes =
                    plus(memory->total_bytes, times(memory->ranks, memory->part_bytes[p]));
    }
}

/* Ranks that are looked at: all, or of very many so many, evenly spread, the first and the last
 * among them. What is sharded is dealt out evenly, and the first ranks get more. */
#define RANKS_LOOKED_AT 64

static int next_rank(int rank, int ranks)
{
    int step = ranks / RANKS_LOOKED_AT;
    if (step <= 1)
        return rank + 1;
    return rank == ranks - 1 || rank + step < ranks ? rank + step : ranks - 1;
}

/* Of the rank that needs most: ranks may hold different parts of what is sharded. */
static int64_t most_activation_bytes(const struct dpb_workload_ops *workload, const void *options,
                                     const struct dpb_experiment *e,
                                     const struct dpb_optimizer_config *optimizer)
{
    struct dpb_workload_sizes sizes = {.batch_max = e->batch_per_rank,
                                       .global_batch = e->global_batch,
                                       .ranks = (int)e->ranks,
                                       .precision = (enum dpb_dtype)e->precision,
                                       .sync_batch_statistics = e->sync_bn,
                                       .optimizer = *optimizer};
    int64_t most = 0;
    for (sizes.rank = 0; sizes.rank < sizes.ranks;
         sizes.rank = next_rank(sizes.rank, sizes.ranks)) {
        int64_t bytes = workload->activation_bytes_for(options, &sizes);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static void at_least(struct dpb_memory *memory, enum dpb_memory_part part, int64_t bytes)
{
    if (memory->part_bytes[part] < bytes)
        memory->part_bytes[part] = bytes;
}

/* What the step engine takes: each part as on the rank that has most of it. */
static void predict_engine(const struct dpb_step_shape *shape, bool evaluate,
                           struct dpb_memory *memory)
{
    for (int rank = 0; rank < shape->ranks; rank = next_rank(rank, shape->ranks)) {
        struct dpb_step_memory step;

        if (dpb_step_memory_predict(shape, rank, &step) < 0) {
            set_unknown(memory, DPB_MEMORY_GRADIENTS, "the strategy makes no plan");
            return;
        }
        at_least(memory, DPB_MEMORY_PARAMETERS, step.parameters);
        at_least(memory, DPB_MEMORY_GRADIENTS, step.gradients);
        at_least(memory, DPB_MEMORY_OPTIMIZER, step.optimizer);
        at_least(memory, DPB_MEMORY_COMMUNICATION, step.communication);
        at_least(memory, DPB_MEMORY_STRATEGY, plus(step.strategy, evaluate ? step.evaluation : 0));
    }
}

/* What passes between the host and a device whose memory it must not touch. */
static void predict_copies(const struct dpb_workload_ops *workload, const void *options,
                           const struct dpb_experiment *e, const struct dpb_model *model,
                           struct dpb_memory *memory)
{
    const struct dpb_workload_sizes sizes = {.batch_max = e->batch_per_rank,
                                             .global_batch = e->global_batch,
                                             .ranks = (int)e->ranks,
                                             .precision = (enum dpb_dtype)e->precision,
                                             .sync_batch_statistics = e->sync_bn,
                                             .results = e->accumulate};
    struct dpb_step_staging staging;
    double scale = 0.0;

    (void)dpb_experiment_loss_scale(e, &scale); /* checked when the cell was resolved */
    dpb_step_staging_predict(model, e->batch_per_rank, scale == DPB_LOSS_SCALE_DYNAMIC, &staging);
    memory->part_bytes[DPB_MEMORY_STAGING] = staging.device_bytes;
    if (workload->host_bytes_for)
        memory->part_bytes[DPB_MEMORY_PINNED] =
                plus(staging.host_bytes, workload->host_bytes_for(options, &sizes));
    else
        set_unknown(memory, DPB_MEMORY_PINNED, "this workload does not tell beforehand");
}

void dpb_step_shape_of(const struct dpb_registry *registry, const dpb_config *config,
                       struct dpb_optimizer_config *optimizer, struct dpb_step_shape *shape)
{
    const struct dpb_experiment *e = dpb_config_struct(config, "experiment");
    const struct dpb_device_ops *device = dpb_registry_device(registry, e->device);

    *optimizer = dpb_experiment_optimizer(e);
    *shape = (struct dpb_step_shape){
            .model = dpb_registry_workload(registry, e->workload)
                             ->model(dpb_config_struct(config, "workload")),
            .optimizer = optimizer,
            .strategy = dpb_registry_strategy(registry, e->strategy),
            .strategy_options = dpb_config_struct(config, "strategy"),
            .bucket_given = dpb_config_is_explicit(config, "bucket"),
            .ranks = (int)e->ranks,
            .ranks_per_node = (int)e->ranks_per_node,
            .is_gpu = device && device->flags & DPB_DEVICE_ACCELERATOR,
            .accumulate = e->accumulate,
    };
}

void dpb_memory_predict(const struct dpb_registry *registry, const dpb_config *config,
                        struct dpb_memory *memory)
{
    const struct dpb_experiment *e = dpb_config_struct(config, "experiment");
    const struct dpb_workload_ops *workload = dpb_registry_workload(registry, e->workload);
    const struct dpb_comm_ops *comm = dpb_registry_comm(registry, e->comm);
    const void *options = dpb_config_struct(config, "workload");
    const struct dpb_model *model = workload->model(options);
    struct dpb_optimizer_config optimizer;
    struct dpb_step_shape shape;
    const bool is_virtual = dpb_registry_is_virtual(registry, e->device);

    dpb_step_shape_of(registry, config, &optimizer, &shape);
    /* Every simulated rank has a memory of its own. */
    *memory = (struct dpb_memory){.ranks = is_virtual ? 1 : e->ranks};
    predict_engine(&shape, evaluates(e), memory);
    if (workload->activation_bytes_for)
        memory->part_bytes[DPB_MEMORY_ACTIVATIONS] =
                most_activation_bytes(workload, options, e, &optimizer);
    else
        set_unknown(memory, DPB_MEMORY_ACTIVATIONS, "this workload does not tell beforehand");
    memory->has_device = shape.is_gpu && !is_virtual;
    if (memory->has_device)
        predict_copies(workload, options, e, model, memory);
    /* Measured for networks of images in fp32 only; nothing is claimed of the others. */
    if (memory->has_device)
        set_unknown(memory, DPB_MEMORY_WORKSPACE, "known when the libraries' plans are made");
    else if (model->input == DPB_INPUT_IMAGES && e->precision == DPB_F32)
        memory->part_bytes[DPB_MEMORY_WORKSPACE] = workspace_bytes(model, e->batch_per_rank);
    else
        set_unknown(memory, DPB_MEMORY_WORKSPACE, "only estimated for images in fp32");
    if (!is_virtual) /* the data set is the host's */
        predict_data(e, model, memory);
    memory->part_bytes[DPB_MEMORY_RUNTIME] = RUNTIME_BYTES;
    if ((comm->flags & DPB_COMM_SEGMENT) && !(comm->flags & DPB_COMM_DEVICE_MEMORY))
        memory->part_bytes[DPB_MEMORY_PEERS] =
                times(e->ranks - 1, plus(memory->part_bytes[DPB_MEMORY_GRADIENTS],
                                         memory->part_bytes[DPB_MEMORY_COMMUNICATION]));
    sum_up(memory);
}

/* ---- what there is ---- */

/* The whole number after `key` in a file, times `unit`; -1 when there is none ("max"). */
static int64_t number_in(const char *path, const char *key, int64_t unit)
{
    FILE *file = fopen(path, "re");
    char line[256];
    int64_t value = -1;
    while (file && value < 0 && fgets(line, sizeof(line), file)) {
        size_t length = strlen(key);
        char *end;
        if (strncmp(line, key, length) != 0)
            continue;
        long long number = strtoll(line + length, &end, 10);
        if (end != line + length && number >= 0)
            value = times(number, unit);
    }
    if (file)
        fclose(file);
    return value;
}

/* Names of one version of control groups. */
struct cgroup_files {
    const char *mount, *limit, *usage, *cache_key;
};

static const struct cgroup_files cgroup_v2 = {"sys/fs/cgroup", "memory.max", "memory.current",
                                              "inactive_file "};
static const struct cgroup_files cgroup_v1 = {"sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                              "memory.usage_in_bytes", "total_inactive_file "};

static int64_t cgroup_number(const char *root, const struct cgroup_files *files, const char *group,
                             const char *name, const char *key)
{
    char path[4096];
    int length = snprintf(path, sizeof(path), "%s/%s%s/%s", root, files->mount, group, name);
    return length < (int)sizeof(path) ? number_in(path, key, 1) : -1;
}

/* The least that a group and its ancestors leave. In a container the mount is its own group, and
 * the path may be the host's: what is not there limits nothing. */
static int64_t cgroup_room(const char *root, const struct cgroup_files *files, char *group)
{
    int64_t least = INT64_MAX;
    for (;;) {
        int64_t limit = cgroup_number(root, files, group, files->limit, "");
        int64_t usage = cgroup_number(root, files, group, files->usage, "");
        int64_t cache = cgroup_number(root, files, group, "memory.stat", files->cache_key);
        if (limit >= 0) {
            int64_t used = (usage > 0 ? usage : 0) - (cache > 0 ? cache : 0);
            int64_t room = limit - (used > 0 ? used : 0);
            room = room > 0 ? room : 0;
            least = room < least ? room : least;
        }
        char *slash = strrchr(group, '/');
        if (!slash)
            return least;
        *slash = '\0';
    }
}

/* Lines of /proc/self/cgroup: "0::/group" (version 2), "4:memory:/group" (version 1). */
static int64_t cgroups_room(const char *root)
{
    char path[4096], line[4096];
    int64_t least = INT64_MAX;
    snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof(line), file)) {
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = '\0';
        group[strcspn(group, "\n")] = '\0';
        const struct cgroup_files *files = strcmp(controllers + 1, "") == 0         ? &cgroup_v2
                                           : strcmp(controllers + 1, "memory") == 0 ? &cgroup_v1
                                                                                    : NULL;
        int64_t room = files ? cgroup_room(root, files, group) : INT64_MAX;
        least = room < least ? room : least;
    }
    if (file)
        fclose(file);
    return least;
}

int64_t dpb_memory_available(const char *root)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/proc/meminfo", root);
    int64_t machine = number_in(path, "MemAvailable:", 1024);
    int64_t groups = cgroups_room(root);
    return machine >= 0 && machine < groups ? machine : groups;
}

int64_t dpb_memory_limit(const dpb_config *config)
{
    const struct dpb_experiment *e = dpb_config_struct(config, "experiment");
    return e->memory_limit_bytes == DPB_AUTO ? dpb_memory_available("") : e->memory_limit_bytes;
}

/* ---- what is said ---- */

static void append_size(struct dpb_str *out, const char *before, int64_t bytes)
{
    char size[DPB_UNIT_TEXT_BYTES];
    dpb_human_size((double)bytes, 3, size, sizeof(size));
    dpb_str_appendf(out, "%s%s", before, size);
}

static void append_part(const struct dpb_memory *memory, int part, bool is_first,
                        struct dpb_str *out)
{
    if (memory->part_bytes[part] == 0)
        return;
    dpb_str_appendf(out, "%s %s ", is_first ? "" : " +", part_keys[part]);
    if (memory->part_bytes[part] == DPB_MEMORY_UNKNOWN)
        dpb_str_append(out, "(not known)");
    else
        append_size(out, "", memory->part_bytes[part]);
}

static bool fits_on_device(const struct dpb_memory *memory, const struct dpb_memory_limits *limits)
{
    return memory->device_bytes <= limits->device.free_bytes;
}

bool dpb_memory_fits(const struct dpb_memory *memory, const struct dpb_memory_limits *limits)
{
    return memory->total_bytes <= limits->host_bytes && fits_on_device(memory, limits);
}

static void refuse_device(const struct dpb_memory *memory, const struct dpb_device_room *room,
                          struct dpb_str *out)
{
    append_size(out, "memory: a rank needs at least ", memory->device_bytes);
    append_size(out, " of its accelerator's, and of ", room->total_bytes);
    append_size(out, " there are free ", room->free_bytes);
    dpb_str_appendf(out, " (%s):", room->name);
    for (int p = 0; is_of_device(memory, p); p++)
        append_part(memory, p, p == 0, out);
}

void dpb_memory_refusal(const struct dpb_memory *memory, const struct dpb_memory_limits *limits,
                        struct dpb_str *out)
{
    if (!fits_on_device(memory, limits)) {
        refuse_device(memory, &limits->device, out);
        return;
    }
    dpb_str_appendf(out, "memory: %" PRId64 " %s", memory->ranks,
                    memory->ranks == 1 ? "rank needs" : "ranks need");
    append_size(out, memory->at_least ? " at least " : " ", memory->total_bytes);
    append_size(out, ", the limit is ", limits->host_bytes);
    dpb_str_append(out, "; each rank:");
    const int first = memory->has_device ? DPB_MEMORY_WORKSPACE + 1 : 0;
    for (int p = first; p < DPB_MEMORY_PEERS; p++)
        append_part(memory, p, p == first, out);
}

/* Parameters and what lies beside them, and tables of the network's own, which no batch makes
 * smaller. */
static void hint(const struct dpb_memory *memory, const struct dpb_model *model,
                 int64_t limit_bytes)
{
    int64_t bytes = 0;
    if (times(dpb_model_own_table_elements(model), (int64_t)sizeof(float)) > limit_bytes) {
        dpb_log_hint(
                "no batch is small enough, since the embedding tables are too large: give them "
                "fewer rows; --memory-limit sets the limit by hand");
        return;
    }
    for (int p = DPB_MEMORY_PARAMETERS; p <= DPB_MEMORY_OPTIMIZER; p++)
        if (memory->part_bytes[p] != DPB_MEMORY_UNKNOWN)
            bytes = plus(bytes, memory->part_bytes[p]);
    if (bytes > limit_bytes / memory->ranks)
        dpb_log_hint("no batch is small enough, since the parameters are too many: use fewer "
                     "--ranks or a smaller network; --memory-limit sets the limit by hand");
    else
        dpb_log_hint("use a smaller --batch-per-rank or fewer --ranks; --memory-limit sets the "
                     "limit by hand");
}

static void hint_on_device(void)
{
    dpb_log_hint("use a smaller --batch-per-rank or network, or a strategy that shards (zero2, "
                 "fsdp); nvidia-smi shows who else has memory there");
}

dpb_status dpb_memory_device_room(const struct dpb_registry *registry,
                                  const struct dpb_memory_device *which,
                                  struct dpb_device_room *room)
{
    const struct dpb_device_ops *ops = dpb_registry_device(registry, which->name);
    char why[512];
    *room = (struct dpb_device_room){.free_bytes = INT64_MAX};
    /* A machine that only starts ranks on others need not have any. */
    if (!(ops->flags & DPB_DEVICE_ACCELERATOR) || ops->probe(why, sizeof(why)) < 0)
        return DPB_OK;
    DPB_TRY(dpb_registry_use_device(registry, which->name, &ops));
    for (int r = 0; ops->room && r < which->ranks_here; r++) {
        const struct dpb_device_config device = {.local_rank = r,
                                                 .local_size = which->ranks_here,
                                                 .threads = 1,
                                                 .options = which->options};
        struct dpb_device_room found = {0};
        dpb_status st = ops->room(&device, &found);
        if (st == DPB_OK && found.free_bytes < room->free_bytes)
            *room = found;
        if (st < 0 && st != DPB_ERR_UNAVAILABLE)
            return st;
    }
    return DPB_OK;
}

dpb_status dpb_memory_limits_of(const struct dpb_registry *registry, const dpb_config *config,
                                int ranks_here, struct dpb_memory_limits *limits)
{
    const struct dpb_experiment *e = dpb_config_struct(config, "experiment");
    const struct dpb_memory_device which = {e->device, dpb_config_struct(config, "device"),
                                            ranks_here};
    *limits = (struct dpb_memory_limits){.device.free_bytes = INT64_MAX};
    if (dpb_registry_is_virtual(registry, e->device))
        return registry->simulator->memory_bytes(config, &limits->host_bytes);
    limits->host_bytes = dpb_memory_limit(config);
    return dpb_memory_device_room(registry, &which, &limits->device);
}

dpb_status dpb_memory_check_plan(const struct dpb_registry *registry, const struct dpb_plan *plan)
{
    for (size_t i = 0; i < plan->cell_count; i++) {
        const dpb_config *config = plan->cells[i].config;
        const struct dpb_experiment *experiment = dpb_config_struct(config, "experiment");
        struct dpb_memory_limits limits;
        struct dpb_memory memory;
        struct dpb_str text = {0};
        DPB_TRY(dpb_memory_limits_of(registry, config, (int)experiment->ranks, &limits));
        dpb_memory_predict(registry, config, &memory);
        if (dpb_memory_fits(&memory, &limits))
            continue;
        dpb_memory_refusal(&memory, &limits, &text);
        dpb_error("%s", text.failed ? "memory: it does not fit" : text.text);
        if (!fits_on_device(&memory, &limits))
            hint_on_device();
        else
            hint(&memory,
                 dpb_registry_workload(registry, experiment->workload)
                         ->model(dpb_config_struct(config, "workload")),
                 limits.host_bytes);
        dpb_str_release(&text);
        return DPB_ERR_NO_MEMORY;
    }
    return DPB_OK;
}

static void device_to_json(const struct dpb_memory *memory, const struct dpb_device_room *room,
                           dpb_json *json)
{
    dpb_json_set_int(json, "predicted_device_bytes", memory->device_bytes);
    if (room->free_bytes == INT64_MAX) {
        dpb_json_set_absent(json, "device_free_bytes", "nothing tells what the device has free");
        return;
    }
    dpb_json_set_int(json, "device_free_bytes", room->free_bytes);
    dpb_json_set_string(json, "device", room->name);
}

void dpb_memory_to_json(const struct dpb_memory *memory, const struct dpb_memory_limits *limits,
                        dpb_json *json)
{
    dpb_json *parts = dpb_json_object();
    for (int p = 0; p < DPB_MEMORY_PARTS; p++) {
        if (memory->part_bytes[p] == DPB_MEMORY_UNKNOWN)
            dpb_json_set_absent(parts, part_keys[p], memory->why_unknown[p]);
        else
            dpb_json_set_int(parts, part_keys[p], memory->part_bytes[p]);
    }
    dpb_json_set_int(json, "predicted_bytes", memory->rank_bytes);
    dpb_json_set(json, "predicted", parts);
    dpb_json_set_int(json, "predicted_total_bytes", memory->total_bytes);
    dpb_json_set_bool(json, "predicted_at_least", memory->at_least);
    if (memory->has_device)
        device_to_json(memory, &limits->device, json);
    if (limits->host_bytes < INT64_MAX)
        dpb_json_set_int(json, "limit_bytes", limits->host_bytes);
    else
        dpb_json_set_absent(json, "limit_bytes", "this system does not tell what is available");
}

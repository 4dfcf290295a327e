/* The memory of a step engine: how much, where, and parameters that a strategy has in parts. */
#include "step_private.h"

#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"

#define PARAM_ALIGN_BYTES 64

static dpb_status no_memory(const char *what)
{
    dpb_error("step engine: out of memory for %s", what);
    dpb_log_hint("take a smaller model, or fewer ranks on this machine");
    return DPB_ERR_NO_MEMORY;
}

/* ---- lay out ---- */

static int64_t aligned_bytes(int64_t elements)
{
    return (elements * (int64_t)sizeof(float) + PARAM_ALIGN_BYTES - 1) / PARAM_ALIGN_BYTES *
           PARAM_ALIGN_BYTES;
}

/* Bytes of all parameters in registration order, each at a multiple of PARAM_ALIGN_BYTES, and,
 * unless `base` is NULL, where each is. */
static int64_t lay_out_params(const struct dpb_model *model, float *base, float **at)
{
    int64_t bytes = 0;

    for (int p = 0; p < model->param_count; p++) {
        if (base)
            at[p] = base + bytes / (int64_t)sizeof(float);
        bytes += aligned_bytes(model->params[p].numel);
    }
    return bytes;
}

/* The same of the optimizer's state of the parts that this rank updates. */
static int64_t lay_out_state(const struct dpb_optimizer_config *optimizer, float *base,
                             struct update *update, int count)
{
    int64_t bytes = 0;

    for (int u = 0; u < count; u++) {
        int64_t elements[OPTIMIZER_ARRAYS];

        optimizer_state_elements(optimizer, &update[u].info, elements);
        for (int i = 0; i < OPTIMIZER_ARRAYS; i++) {
            if (base && elements[i] > 0)
                update[u].state[i] = base + bytes / (int64_t)sizeof(float);
            bytes += aligned_bytes(elements[i]);
        }
    }
    return bytes;
}

static int64_t arena_bytes_of(const struct dpb_step_shape *shape, const struct dpb_unit_plan *plan)
{
    /* Later plans of the same parameters may be larger. */
    return shape->strategy->replan_after
                   ? dpb_unit_plan_arena_bound(shape->model->params, shape->model->param_count)
                   : plan->arena_bytes;
}

/* ---- what a rank updates ---- */

/* A part of a parameter, as a parameter of its own. A part that is not the whole is a row of
 * elements: the optimizers that may see one go element by element. */
static struct dpb_param_info info_of_part(const struct dpb_model *model,
                                          const struct dpb_update *part)
{
    struct dpb_param_info info = model->params[part->param];

    if (part->count == info.numel)
        return info;
    info.rank = 1;
    info.dim[0] = info.numel = part->count;
    return info;
}

static dpb_status check_part(const struct dpb_step_shape *shape, const struct dpb_update *part)
{
    const int param = part->param;

    if (param >= 0 && param < shape->model->param_count && part->first >= 0 && part->count > 0 &&
        part->first + part->count <= shape->model->params[param].numel)
        return DPB_OK;
    dpb_error("strategy \"%s\": wants to update elements %lld to %lld of parameter %d",
              shape->strategy->name, (long long)part->first, (long long)(part->first + part->count),
              param);
    return DPB_ERR_INTERNAL;
}

/* Free what it gives. */
static dpb_status list_updates(const struct dpb_step_shape *shape, dpb_strategy *strategy,
                               struct update **updates, int *count)
{
    const struct dpb_model *model = shape->model;
    const bool has_parts = shape->strategy->updates != NULL;
    const int parts = has_parts ? shape->strategy->updates(strategy, NULL) : model->param_count;
    struct dpb_update *part = calloc((size_t)parts + 1, sizeof(*part));
    struct update *list = calloc((size_t)parts + 1, sizeof(*list));
    dpb_status st = DPB_OK;

    if (!part || !list) {
        st = no_memory("what this rank updates");
        goto out;
    }
    if (has_parts)
        shape->strategy->updates(strategy, part);
    for (int u = 0; u < parts; u++) {
        if (!has_parts)
            part[u] = (struct dpb_update){.param = u, .count = model->params[u].numel};
        DPB_TRY_GOTO(st, check_part(shape, &part[u]), out);
        list[u] = (struct update){.part = part[u], .info = info_of_part(model, &part[u])};
    }
    *updates = list;
    *count = parts;
    list = NULL;
out:
    free(list);
    free(part);
    return st;
}

static dpb_status name_updates(struct dpb_step_engine *engine)
{
    const struct dpb_optimizer_config *optimizer = &engine->config.optimizer;
    size_t bytes = 1;
    char *name;

    for (int u = 0; u < engine->update_count; u++)
        bytes += strlen(engine->update[u].info.name) + sizeof(".") +
                 strlen(dpb_optimizer_text(optimizer_of(optimizer, &engine->update[u].info)));
    engine->name_text = name = calloc(1, bytes);
    if (!name)
        return no_memory("its tables");
    for (int u = 0; u < engine->update_count; u++) {
        struct update *update = &engine->update[u];

        update->name = name;
        name = stpcpy(stpcpy(name, update->info.name), ".");
        name = stpcpy(name, dpb_optimizer_text(optimizer_of(optimizer, &update->info))) + 1;
    }
    return DPB_OK;
}

/* ---- before there is an engine ---- */

struct dpb_strategy_config engine_strategy_config(const struct dpb_step_shape *shape, int rank)
{
    return (struct dpb_strategy_config){
            .rank = rank,
            .world_size = shape->ranks,
            .ranks_per_node = shape->ranks_per_node > 0 ? shape->ranks_per_node : shape->ranks,
            .is_gpu = shape->is_gpu,
            .options = shape->strategy_options,
            .bucket_given = shape->bucket_given,
            .optimizer_is_elementwise = optimizer_is_elementwise(shape->optimizer),
            .optimizer_arrays = optimizer_arrays(shape->optimizer),
    };
}

dpb_status dpb_step_plan_offline(const struct dpb_step_shape *shape, int rank,
                                 const int *ready_order, dpb_strategy **strategy,
                                 struct dpb_unit_plan *plan)
{
    const struct dpb_strategy_config config = engine_strategy_config(shape, rank);
    dpb_strategy *opened;
    dpb_status st;

    DPB_TRY(shape->strategy->open(&config, &opened));
    st = shape->strategy->plan(opened, shape->model, ready_order, plan);
    if (st < 0)
        shape->strategy->close(opened);
    else
        *strategy = opened;
    return st;
}

static void add_strategy_memory(const struct dpb_step_shape *shape, dpb_strategy *strategy,
                                struct dpb_step_memory *memory)
{
    struct dpb_strategy_memory extra = {.parameters_bytes = -1};

    if (shape->strategy->memory)
        shape->strategy->memory(strategy, &extra);
    if (extra.parameters_bytes >= 0)
        memory->parameters = extra.parameters_bytes;
    memory->communication = extra.shared_bytes;
    memory->strategy += extra.private_bytes;
}

static bool keeps_micro_gradients(int64_t accumulate, unsigned strategy_flags)
{
    return accumulate > 1 && !(strategy_flags & DPB_STRATEGY_SYNCS_MICRO_BATCHES);
}

dpb_status dpb_step_memory_predict(const struct dpb_step_shape *shape, int rank,
                                   struct dpb_step_memory *memory)
{
    const unsigned flags = dpb_strategy_flags(shape->strategy, shape->strategy_options);
    struct dpb_unit_plan plan = {0};
    dpb_strategy *strategy;
    struct update *updates = NULL;
    int update_count = 0;
    dpb_status st;

    DPB_TRY(dpb_step_plan_offline(shape, rank, NULL, &strategy, &plan));
    DPB_TRY_GOTO(st, list_updates(shape, strategy, &updates, &update_count), out);
    *memory = (struct dpb_step_memory){
            .parameters = lay_out_params(shape->model, NULL, NULL),
            .gradients = arena_bytes_of(shape, &plan),
            .optimizer = lay_out_state(shape->optimizer, NULL, updates, update_count),
    };
    if (keeps_micro_gradients(shape->accumulate, flags))
        memory->strategy = memory->parameters;
    if (flags & DPB_STRATEGY_SHARDS_PARAMETERS)
        memory->evaluation = memory->parameters;
    add_strategy_memory(shape, strategy, memory);
out:
    free(updates);
    shape->strategy->close(strategy);
    dpb_unit_plan_release(&plan);
    return st;
}

/* ---- an engine's ---- */

struct dpb_step_shape engine_shape(const struct dpb_step_engine *engine)
{
    const struct dpb_step_config *config = &engine->config;

    return (struct dpb_step_shape){
            .model = engine->model,
            .optimizer = &config->optimizer,
            .strategy = config->strategy,
            .strategy_options = config->strategy_options,
            .bucket_given = config->bucket_given,
            .ranks = engine->world_size,
            .ranks_per_node = config->ranks_per_node,
            .is_gpu = dpb_device_get_ops(config->device)->flags & DPB_DEVICE_ACCELERATOR,
            .accumulate = config->accumulate,
    };
}

static dpb_status alloc_floats(struct dpb_step_engine *engine, int64_t bytes, float **floats)
{
    void *memory;

    engine_progress(engine, -1); /* it touches all of it */
    DPB_TRY(dpb_device_get_ops(engine->config.device)
                    ->alloc(engine->config.device, (size_t)bytes, &memory));
    *floats = memory;
    return DPB_OK;
}

static void free_floats(struct dpb_step_engine *engine, float **floats)
{
    if (*floats)
        dpb_device_get_ops(engine->config.device)->free(engine->config.device, *floats);
    *floats = NULL;
}

static dpb_status alloc_params(struct dpb_step_engine *engine)
{
    engine->param_arena_bytes = lay_out_params(engine->model, NULL, NULL);
    if (engine->strategy_flags & (DPB_STRATEGY_SHARDS_PARAMETERS | DPB_STRATEGY_HOLDS_PARAMETERS))
        return DPB_OK;
    DPB_TRY(alloc_floats(engine, engine->param_arena_bytes, &engine->params));
    lay_out_params(engine->model, engine->params, engine->param);
    return DPB_OK;
}

static dpb_status alloc_micro_gradients(struct dpb_step_engine *engine)
{
    if (!keeps_micro_gradients(engine->config.accumulate, engine->strategy_flags))
        return DPB_OK;
    engine->micro_grad = calloc((size_t)engine->model->param_count, sizeof(*engine->micro_grad));
    if (!engine->micro_grad)
        return no_memory("its tables");
    DPB_TRY(alloc_floats(engine, lay_out_params(engine->model, NULL, NULL),
                         &engine->micro_gradients));
    lay_out_params(engine->model, engine->micro_gradients, engine->micro_grad);
    return DPB_OK;
}

static dpb_status alloc_state(struct dpb_step_engine *engine)
{
    const struct dpb_optimizer_config *optimizer = &engine->config.optimizer;

    engine->state_arena_bytes =
            lay_out_state(optimizer, NULL, engine->update, engine->update_count);
    if (engine->state_arena_bytes == 0)
        return DPB_OK;
    DPB_TRY(alloc_floats(engine, engine->state_arena_bytes, &engine->optimizer_state));
    lay_out_state(optimizer, engine->optimizer_state, engine->update, engine->update_count);
    return DPB_OK;
}

dpb_status engine_alloc_arenas(struct dpb_step_engine *engine)
{
    const struct dpb_step_shape shape = engine_shape(engine);
    void *memory;

    DPB_TRY(alloc_params(engine));
    DPB_TRY(list_updates(&shape, engine->strategy, &engine->update, &engine->update_count));
    DPB_TRY(name_updates(engine));
    DPB_TRY(engine_updates_open(engine));
    DPB_TRY(alloc_state(engine));
    DPB_TRY(alloc_micro_gradients(engine));
    engine->gradient_arena_bytes = arena_bytes_of(&shape, engine_plan(engine));
    engine_progress(engine, -1);
    DPB_TRY(engine->comm_ops->buffer_alloc(engine->config.comm,
                                           (size_t)engine->gradient_arena_bytes, &memory));
    engine->gradients = memory;
    return DPB_OK;
}

void engine_free_arenas(struct dpb_step_engine *engine)
{
    free_floats(engine, &engine->micro_gradients);
    free_floats(engine, &engine->optimizer_state);
    free_floats(engine, &engine->params);
    engine_updates_close(engine);
    free(engine->micro_grad);
    free(engine->name_text);
    free(engine->update);
}

/* ---- parameters that are in parts ---- */

static bool is_in_parts(const struct dpb_step_engine *engine)
{
    return engine->strategy_flags & DPB_STRATEGY_SHARDS_PARAMETERS;
}

/* Parameters get memory of their own, of so many bytes. */
static dpb_status gather_begin(struct dpb_step_engine *engine, int64_t bytes)
{
    const size_t params = (size_t)engine->model->param_count;

    engine->parted = calloc(params, sizeof(*engine->parted));
    if (!engine->parted)
        return no_memory("its tables");
    memcpy(engine->parted, engine->param, params * sizeof(*engine->parted));
    return alloc_floats(engine, bytes, &engine->params);
}

static void gather_end(struct dpb_step_engine *engine)
{
    if (engine->parted)
        memcpy(engine->param, engine->parted,
               (size_t)engine->model->param_count * sizeof(*engine->parted));
    free(engine->parted);
    engine->parted = NULL;
    free_floats(engine, &engine->params);
    engine->config.workload->bind(engine->workload, engine->param, engine->grad);
}

/* What it sends belongs to no step: no recorder gets it. */
static dpb_status give(struct dpb_step_engine *engine)
{
    dpb_recorder *const recorder = engine->launcher.recorder;
    dpb_status st;

    engine->launcher.recorder = engine->recorder_none;
    st = engine->config.strategy->give_params(engine->strategy, engine->param);
    engine_sync_flush(engine);
    engine->launcher.recorder = recorder;
    return st;
}

dpb_status engine_full_params_begin(struct dpb_step_engine *engine)
{
    dpb_status st;

    if (!is_in_parts(engine))
        return DPB_OK;
    st = gather_begin(engine, engine->param_arena_bytes);
    if (st >= 0) {
        lay_out_params(engine->model, engine->params, engine->param);
        engine->config.workload->bind(engine->workload, engine->param, engine->grad);
        st = give(engine);
    }
    if (st < 0)
        gather_end(engine);
    return st;
}

void engine_full_params_end(struct dpb_step_engine *engine)
{
    if (is_in_parts(engine))
        gather_end(engine);
}

dpb_status engine_take_params(struct dpb_step_engine *engine)
{
    return is_in_parts(engine)
                   ? engine->config.strategy->take_params(engine->strategy, engine->param)
                   : DPB_OK;
}

/* ---- run by run ---- */

/* Parameters that follow one another in one unit: they are gathered together. */
static int end_of_run(const struct dpb_step_engine *engine, int first)
{
    const struct dpb_unit_plan *plan = engine_plan(engine);
    int end = first + 1;

    while (end < plan->param_count && plan->unit_of[end] == plan->unit_of[first])
        end++;
    return end;
}

/* The run in engine->params, and no other parameter anywhere. Returns its bytes. */
static int64_t lay_out_run(struct dpb_step_engine *engine, int first, int end)
{
    int64_t bytes = 0;

    for (int p = 0; p < engine->model->param_count; p++) {
        const bool is_in_run = p >= first && p < end;

        if (engine->params)
            engine->param[p] = is_in_run ? engine->params + bytes / (int64_t)sizeof(float) : NULL;
        bytes += is_in_run ? aligned_bytes(engine->model->params[p].numel) : 0;
    }
    return bytes;
}

static int64_t largest_run_bytes(struct dpb_step_engine *engine)
{
    int64_t largest = 0;

    for (int first = 0, end; first < engine->model->param_count; first = end) {
        end = end_of_run(engine, first);
        const int64_t bytes = lay_out_run(engine, first, end);

        largest = bytes > largest ? bytes : largest;
    }
    return largest;
}

/* Initial values of the parameters that are in param[], made where the host can write them. */
static dpb_status init_on_host(struct dpb_step_engine *engine, float **host)
{
    const struct dpb_workload_ops *workload = engine->config.workload;
    const struct dpb_param_info *param = engine->model->params;
    dpb_status st;

    workload->bind(engine->workload, host, engine->grad);
    st = workload->init_params(engine->workload, engine->config.seed);
    workload->bind(engine->workload, engine->param, engine->grad);
    for (int p = 0; st >= 0 && p < engine->model->param_count; p++)
        if (host[p])
            st = dpb_copy_now(&engine->launcher, engine->param[p], host[p],
                              (size_t)param[p].numel * sizeof(float));
    return st;
}

static dpb_status init_values(struct dpb_step_engine *engine)
{
    const struct dpb_workload_ops *workload = engine->config.workload;
    const int params = engine->model->param_count;
    float **host;
    dpb_status st = DPB_OK;

    if (dpb_device_is_host(engine->config.device)) {
        workload->bind(engine->workload, engine->param, engine->grad);
        return workload->init_params(engine->workload, engine->config.seed);
    }
    host = calloc((size_t)params, sizeof(*host));
    if (!host)
        return no_memory("its tables");
    for (int p = 0; p < params && st >= 0; p++) {
        if (engine->param[p])
            host[p] = calloc((size_t)engine->model->params[p].numel, sizeof(**host));
        if (engine->param[p] && !host[p])
            st = no_memory("initial values");
    }
    if (st >= 0)
        st = init_on_host(engine, host);
    for (int p = 0; p < params; p++)
        free(host[p]);
    free(host);
    return st;
}

static dpb_status make_run(struct dpb_step_engine *engine, bool is_new)
{
    return is_new ? init_values(engine) : give(engine);
}

dpb_status engine_each_run(struct dpb_step_engine *engine, bool is_new, engine_run use)
{
    const int params = engine->model->param_count;
    dpb_status st;

    if (!is_in_parts(engine) || engine->parted) {
        if (is_new)
            DPB_TRY(init_values(engine));
        engine_progress(engine, -1);
        return use(engine, 0, params);
    }
    st = gather_begin(engine, largest_run_bytes(engine));
    for (int first = 0, end; st >= 0 && first < params; first = end) {
        end = end_of_run(engine, first);
        lay_out_run(engine, first, end);
        st = make_run(engine, is_new);
        if (st >= 0)
            st = use(engine, first, end);
    }
    gather_end(engine);
    return st;
}

static dpb_status hash_and_take(struct dpb_step_engine *engine, int first, int end)
{
    DPB_TRY(engine_hash_run(engine, first, end));
    return engine_take_params(engine);
}

dpb_status engine_init_params(struct dpb_step_engine *engine)
{
    XXH3_64bits_reset(engine->hash_state);
    DPB_TRY(engine_each_run(engine, true, hash_and_take));
    return engine_agree_on_values(engine, XXH3_64bits_digest(engine->hash_state));
}

/* Strategy `fsdp`: PyTorch's FullyShardedDataParallel (ZeRO stage 3). Consecutive layers are
 * wrapped into units of at least --fsdp-unit parameters (size_based_auto_wrap_policy); a unit's
 * parameters are one flat parameter, padded so that every rank has the same part of it, and of its
 * gradient and the optimizer's state. Before a unit is used its parts are gathered, in forward and
 * again in backward (FULL_SHARD), and forgotten after use; after its backward the gradient is
 * reduce-scattered. What no unit has is the root's, which stays whole from forward to the end of
 * backward. SHARD_GRAD_OP keeps every unit whole for as long.
 *
 * --backward-prefetch pre gathers the next unit before the gradients of this one are computed
 * (BACKWARD_PRE), post when they are complete. --forward-prefetch does the same in forward: PyTorch
 * has it off by default, but there the host runs ahead of the device and issues the next gather as
 * early; here it must be asked for, and is. With --limit-all-gathers two units at most are whole or
 * on their way, beside the root: they alternate in two places. Gradients alternate in two places,
 * too: before one is written again its unit has been reduced and the shard saved.
 *
 * The average has two steps: gradients are divided by a power of two near the root of the number of
 * ranks before the sum, and by the rest after it. With gradient accumulation every micro-batch is
 * reduced and shards add up, as without no_sync(). With one rank nothing is gathered or sent. */
#include "dpb_strategies.h"

#include <stdlib.h>

#include "dpb_log.h"
#include "fsdp_units.h"
#include "shard.h"

#define GRAD_PLACES    2
#define LIMITED_PLACES 2 /* _MAX_NUM_INFLIGHT_ALL_GATHERS */
#define NO_UNIT        (-1)

struct unit_state {
    bool is_gathering, is_whole; /* its parameters */
    int gather_handle;
    int pending;  /* gradients that are not ready */
    bool is_open; /* the gradient is being reduced, or has been and is not saved */
    int reduce_handle;
    int param_holder, grad_holder; /* of the place with this number: a unit, or NO_UNIT */
};

struct fsdp {
    struct dpb_strategy_base base;
    int rank, world_size;
    struct dpb_sync_services services;
    struct dpb_fsdp_options options;
    int ahead;           /* units that are prefetched */
    float before, after; /* the two steps of averaging */

    const struct dpb_model *model;
    const struct dpb_unit_plan *plan; /* the engine's */
    struct fsdp_units units;
    struct unit_state *state; /* per unit */
    struct unit_state *told;  /* the same while messages are listed */
    float *params, *grads;    /* this rank's shards; NULL without services */
    float *zeros;             /* as many as there are ranks */
    float *full;              /* memory of whole parameters */
    bool is_first_micro_batch;
};

/* ---- open and close ---- */

/* _get_gradient_predivide_factor */
int dpb_fsdp_predivide_factor(int world_size)
{
    int factor = 1;

    while (world_size % factor == 0 && world_size / factor > factor)
        factor *= 2;
    return factor;
}

static dpb_status fsdp_open(const struct dpb_strategy_config *config, dpb_strategy **strategy)
{
    const int factor = dpb_fsdp_predivide_factor(config->world_size);
    struct fsdp *self;

    DPB_TRY(shard_check_optimizer(config, "fsdp"));
    self = calloc(1, sizeof(*self));
    if (!self) {
        dpb_error("strategy \"fsdp\": out of memory");
        return DPB_ERR_NO_MEMORY;
    }
    self->base.ops = &dpb_strategy_fsdp_ops;
    self->rank = config->rank;
    self->world_size = config->world_size;
    self->services = config->services;
    self->options = *(const struct dpb_fsdp_options *)config->options;
    self->before = self->after = 1.0f;
    if (self->services.average != 1.0f) { /* 1: gradients are summed */
        self->before = 1.0f / (float)factor;
        self->after = self->services.average * (float)factor;
    }
    *strategy = (dpb_strategy *)self;
    return DPB_OK;
}

static void forget_plan(struct fsdp *self)
{
    if (self->services.ctx) {
        shard_free(self->services.launcher, &self->params);
        shard_free(self->services.launcher, &self->grads);
        shard_free(self->services.launcher, &self->zeros);
    }
    free(self->state);
    free(self->told);
    self->state = self->told = NULL;
    fsdp_units_release(&self->units);
}

static void fsdp_close(dpb_strategy *strategy)
{
    struct fsdp *self = (struct fsdp *)strategy;

    if (!self)
        return;
    forget_plan(self);
    free(self);
}

/* ---- the plan ---- */

static bool reshards_after_forward(const struct fsdp *self)
{
    return self->options.sharding == DPB_FSDP_FULL_SHARD;
}

static bool prefetches(const struct fsdp *self)
{
    return self->options.forward_prefetch ||
           self->options.backward_prefetch != DPB_FSDP_PREFETCH_NONE;
}

static struct fsdp_wrapping wrapping_of(const struct fsdp *self)
{
    struct fsdp_wrapping wrapping = {
            .world_size = self->world_size,
            .unit_elements = self->options.unit_elements,
            .grad_places = GRAD_PLACES,
    };

    if (reshards_after_forward(self) && self->options.limit_all_gathers)
        wrapping.param_places = prefetches(self) ? LIMITED_PLACES : 1;
    return wrapping;
}

static void reset(const struct fsdp *self, struct unit_state *state)
{
    for (int u = 0; u < self->units.count; u++)
        state[u] = (struct unit_state){
                .pending = self->plan->units[u].member_count,
                .param_holder = NO_UNIT,
                .grad_holder = NO_UNIT,
        };
}

static dpb_status alloc_shards(struct fsdp *self)
{
    const size_t units = (size_t)self->units.count + 1;

    self->state = calloc(units, sizeof(*self->state));
    self->told = calloc(units, sizeof(*self->told));
    if (!self->state || !self->told) {
        dpb_error("strategy \"fsdp\": no room for a plan of %d units", self->units.count);
        return DPB_ERR_NO_MEMORY;
    }
    if (!self->services.ctx)
        return DPB_OK;
    DPB_TRY(shard_alloc(self->services.launcher, self->units.shard_elements, &self->params));
    DPB_TRY(shard_alloc(self->services.launcher, self->units.shard_elements, &self->grads));
    return shard_alloc(self->services.launcher, self->world_size, &self->zeros);
}

static dpb_status fsdp_plan(dpb_strategy *strategy, const struct dpb_model *model,
                            const int *ready_order, struct dpb_unit_plan *plan)
{
    struct fsdp *self = (struct fsdp *)strategy;
    const struct fsdp_wrapping wrapping = wrapping_of(self);
    struct dpb_unit_plan made;
    dpb_status st;

    (void)ready_order; /* that of the model is known before, and the same everywhere */
    forget_plan(self);
    DPB_TRY(fsdp_units_plan(model, &wrapping, &self->units, &made));
    st = alloc_shards(self);
    if (st < 0) {
        forget_plan(self);
        dpb_unit_plan_release(&made);
        return st;
    }
    self->ahead = self->options.limit_all_gathers ? 1 : self->units.count;
    *plan = made;
    self->model = model;
    self->plan = plan;
    reset(self, self->state);
    return DPB_OK;
}

/* Element of its unit's flat parameter at which a parameter begins. */
static int64_t place_in_unit(const struct fsdp *self, int param)
{
    const int64_t unit_at = self->plan->units[self->plan->unit_of[param]].offset_bytes;

    return (self->plan->offset_bytes[param] - unit_at) / (int64_t)sizeof(float);
}

/* One rank's shard is everything: parameters are used where it is. */
static dpb_status fsdp_place(dpb_strategy *strategy)
{
    struct fsdp *self = (struct fsdp *)strategy;
    const struct dpb_sync_services *services = &self->services;
    void *memory;

    if (self->world_size > 1) {
        DPB_TRY(services->shared_alloc(services->ctx,
                                       (size_t)self->units.full_elements * sizeof(float), &memory));
        self->full = memory;
    }
    for (int p = 0; p < self->model->param_count; p++) {
        const struct fsdp_unit *unit = &self->units.unit[self->plan->unit_of[p]];
        float *whole =
                self->world_size > 1 ? self->full + unit->full_at : self->params + unit->shard_at;

        services->bind(services->ctx, p, whole + place_in_unit(self, p), NULL);
    }
    return DPB_OK;
}

/* The parts of parameters in a rank's shard of a unit, or, with rank -1, all of them. */
static struct shard_walk unit_walk(const struct fsdp *self, int unit, int rank)
{
    const struct dpb_unit *of = &self->plan->units[unit];
    const int64_t shard = self->units.unit[unit].shard;

    return (struct shard_walk){
            .params = self->model->params,
            .member = self->plan->member + of->first_member,
            .member_count = of->member_count,
            .from = rank < 0 ? 0 : rank * shard,
            .to = rank < 0 ? of->elements : (rank + 1) * shard,
    };
}

static int fsdp_updates(dpb_strategy *strategy, struct dpb_update *updates)
{
    const struct fsdp *self = (const struct fsdp *)strategy;
    int count = 0;

    for (int u = 0; u < self->units.count; u++) {
        struct shard_walk walk = unit_walk(self, u, self->rank);
        struct shard_part part;

        while (shard_next(&walk, &part)) {
            const int64_t at = self->units.unit[u].shard_at + part.at - walk.from;

            if (updates)
                updates[count] = (struct dpb_update){
                        .param = part.param,
                        .first = part.first,
                        .count = part.count,
                        .value = self->params ? self->params + at : NULL,
                        .grad = self->grads ? self->grads + at : NULL,
                };
            count++;
        }
    }
    return count;
}

static void fsdp_memory(dpb_strategy *strategy, struct dpb_strategy_memory *memory)
{
    const struct fsdp *self = (const struct fsdp *)strategy;
    const int64_t bytes = (int64_t)sizeof(float);

    memory->parameters_bytes = self->units.shard_elements * bytes;
    memory->private_bytes = (self->units.shard_elements + self->world_size) * bytes;
    memory->shared_bytes = self->world_size > 1 ? self->units.full_elements * bytes : 0;
}

static void fsdp_describe(dpb_strategy *strategy, dpb_json *plan)
{
    const struct fsdp *self = (const struct fsdp *)strategy;
    const int factor = dpb_fsdp_predivide_factor(self->world_size);

    dpb_json_set_string(plan, "sharding_strategy",
                        reshards_after_forward(self) ? "full-shard" : "shard-grad-op");
    dpb_json_set_bool(plan, "has_root", self->units.has_root);
    dpb_json_set_int(plan, "shard_bytes", self->units.shard_elements * (int64_t)sizeof(float));
    dpb_json_set_int(plan, "predivide_factor", factor);
    dpb_json_set_real(plan, "postdivide_factor", (double)self->world_size / (double)factor);
}

/* ---- whole parameters ---- */

static bool is_root(const struct fsdp *self, int unit)
{
    return unit == 0 && self->units.has_root;
}

static dpb_status finish_gather(struct fsdp *self, int unit)
{
    struct unit_state *state = &self->state[unit];

    if (!state->is_gathering)
        return DPB_OK;
    state->is_gathering = false;
    state->is_whole = true;
    return self->services.wait(self->services.ctx, state->gather_handle);
}

static dpb_status reshard(struct fsdp *self, int unit)
{
    DPB_TRY(finish_gather(self, unit));
    self->state[unit].is_whole = false;
    return DPB_OK;
}

static dpb_status start_gather(struct fsdp *self, int unit)
{
    const struct dpb_sync_services *services = &self->services;
    const struct fsdp_unit *of = &self->units.unit[unit];
    struct unit_state *state = &self->state[unit];
    int *holder = &self->state[of->param_place].param_holder;
    float *whole = self->full + of->full_at;
    const struct dpb_sync_coll coll = {
            .kind = DPB_COLL_ALL_GATHER,
            .dtype = DPB_F32,
            .buffer = whole,
            .count = of->shard * self->world_size,
            .scale = 1.0f,
            .unit = unit,
    };

    if (self->world_size == 1 || state->is_whole || state->is_gathering)
        return DPB_OK;
    if (*holder != NO_UNIT && *holder != unit)
        DPB_TRY(reshard(self, *holder));
    *holder = unit;
    DPB_TRY(shard_copy(services->launcher, "shard.copy", whole + self->rank * of->shard,
                       self->params + of->shard_at, of->shard));
    DPB_TRY(services->start(services->ctx, &coll, &state->gather_handle));
    state->is_gathering = true;
    return DPB_OK;
}

/* Start the gathers of the units that are used after this one, in forward or (by -1) backward. */
static dpb_status prefetch(struct fsdp *self, int unit, int by)
{
    for (int i = 0, u = unit + by; i < self->ahead; i++, u += by) {
        if (u < self->units.has_root || u >= self->units.count)
            break;
        DPB_TRY(start_gather(self, u));
    }
    return DPB_OK;
}

static dpb_status fsdp_step_begin(dpb_strategy *strategy, int64_t step)
{
    (void)step;
    ((struct fsdp *)strategy)->is_first_micro_batch = true;
    return DPB_OK;
}

static dpb_status fsdp_forward_begin(dpb_strategy *strategy, bool sync)
{
    struct fsdp *self = (struct fsdp *)strategy;

    (void)sync; /* always */
    reset(self, self->state);
    if (self->units.has_root)
        DPB_TRY(start_gather(self, 0));
    return self->options.forward_prefetch ? prefetch(self, self->units.has_root - 1, 1) : DPB_OK;
}

static dpb_status fsdp_forward_end(dpb_strategy *strategy)
{
    struct fsdp *self = (struct fsdp *)strategy;

    for (int u = self->units.has_root; reshards_after_forward(self) && u < self->units.count; u++)
        DPB_TRY(reshard(self, u));
    return DPB_OK;
}

/* ---- gradients ---- */

static float *gradient_of(const struct fsdp *self, int unit)
{
    return self->services.unit_data(self->services.ctx, unit);
}

/* Wait for the sum of this rank's shard, divide, and add it to what other micro-batches gave. */
static dpb_status save_gradient(struct fsdp *self, int unit)
{
    const struct dpb_sync_services *services = &self->services;
    const struct fsdp_unit *of = &self->units.unit[unit];
    struct unit_state *state = &self->state[unit];
    const struct dpb_scale_args divide = {
            .x = gradient_of(self, unit) + self->rank * of->shard,
            .count = of->shard,
            .factor = self->after,
    };

    if (!state->is_open)
        return DPB_OK;
    state->is_open = false;
    if (self->world_size > 1)
        DPB_TRY(services->wait(services->ctx, state->reduce_handle));
    if (self->after != 1.0f)
        DPB_TRY(dpb_launch(services->launcher, "gradient.divide", DPB_OP_SCALE, &divide));
    return shard_add_up(services->launcher, "gradient.keep", self->grads + of->shard_at, divide.x,
                        of->shard, self->is_first_micro_batch);
}

/* The unit's gradients are about to be written. */
static dpb_status take_grad_place(struct fsdp *self, int unit, int param)
{
    int *holder = &self->state[self->units.unit[unit].grad_place].grad_holder;

    if (*holder == unit)
        return DPB_OK;
    if (self->state[unit].pending == 0 ||
        (*holder != NO_UNIT && self->state[*holder].pending > 0)) {
        dpb_error("strategy \"fsdp\": parameter \"%s\" (unit %d) is used while unit %d has the "
                  "place of its gradient",
                  self->model->params[param].name, unit, *holder);
        dpb_log_hint("gradients must become ready in the order that the network says beforehand; "
                     "a parameter that two layers share is marked as such");
        return DPB_ERR_INTERNAL;
    }
    if (*holder != NO_UNIT)
        DPB_TRY(save_gradient(self, *holder));
    *holder = unit;
    return DPB_OK;
}

static dpb_status use_in_forward(struct fsdp *self, int unit)
{
    DPB_TRY(start_gather(self, unit));
    if (self->options.forward_prefetch && !is_root(self, unit))
        DPB_TRY(prefetch(self, unit, 1));
    return finish_gather(self, unit);
}

static dpb_status use_in_backward(struct fsdp *self, int unit)
{
    DPB_TRY(start_gather(self, unit));
    if (self->options.backward_prefetch == DPB_FSDP_PREFETCH_PRE && !is_root(self, unit))
        DPB_TRY(prefetch(self, unit, -1));
    return finish_gather(self, unit);
}

static dpb_status fsdp_param_use(dpb_strategy *strategy, int param, enum dpb_pass pass)
{
    struct fsdp *self = (struct fsdp *)strategy;
    const int unit = self->plan->unit_of[param];

    if (pass == DPB_PASS_FORWARD)
        return use_in_forward(self, unit);
    DPB_TRY(take_grad_place(self, unit, param));
    return use_in_backward(self, unit);
}

static dpb_status reduce(struct fsdp *self, int unit)
{
    const struct dpb_sync_services *services = &self->services;
    const struct fsdp_unit *of = &self->units.unit[unit];
    const struct dpb_sync_coll coll = {
            .kind = DPB_COLL_REDUCE_SCATTER,
            .dtype = DPB_F32,
            .buffer = gradient_of(self, unit),
            .count = of->shard * self->world_size,
            .scale = self->before,
            .unit = unit,
    };

    self->state[unit].is_open = true;
    if (self->world_size == 1)
        return DPB_OK;
    /* The padding is what another unit has left. */
    DPB_TRY(shard_copy(services->launcher, "gradient.pad", (float *)coll.buffer + of->elements,
                       self->zeros, coll.count - of->elements));
    return services->start(services->ctx, &coll, &self->state[unit].reduce_handle);
}

static dpb_status fsdp_grad_ready(dpb_strategy *strategy, int param)
{
    struct fsdp *self = (struct fsdp *)strategy;
    const int unit = self->plan->unit_of[param];

    if (--self->state[unit].pending > 0)
        return DPB_OK;
    if (self->options.backward_prefetch == DPB_FSDP_PREFETCH_POST && !is_root(self, unit))
        DPB_TRY(prefetch(self, unit, -1));
    return reduce(self, unit);
}

static dpb_status fsdp_backward_end(dpb_strategy *strategy)
{
    struct fsdp *self = (struct fsdp *)strategy;

    for (int u = 0; u < self->units.count; u++) {
        DPB_TRY(save_gradient(self, u));
        DPB_TRY(reshard(self, u));
    }
    self->is_first_micro_batch = false;
    return DPB_OK;
}

/* Everything has been reduced and saved when backward ended. */
static dpb_status fsdp_before_optimizer(dpb_strategy *strategy)
{
    (void)strategy;
    return DPB_OK;
}

/* ---- all parameters, outside of steps ---- */

static dpb_status await_stream(const struct fsdp *self)
{
    const struct dpb_launcher *launcher = self->services.launcher;

    return dpb_device_get_ops(launcher->device)->stream_sync(launcher->stream);
}

static dpb_status fsdp_take_params(dpb_strategy *strategy, float *const *full)
{
    struct fsdp *self = (struct fsdp *)strategy;

    for (int u = 0; u < self->units.count; u++) {
        struct shard_walk walk = unit_walk(self, u, self->rank);
        struct shard_part part;

        while (shard_next(&walk, &part))
            if (full[part.param])
                DPB_TRY(shard_copy(self->services.launcher, "shard.take",
                                   self->params + self->units.unit[u].shard_at + part.at -
                                           walk.from,
                                   full[part.param] + part.first, part.count));
    }
    return await_stream(self);
}

static bool is_wanted(const struct fsdp *self, int unit, float *const *full)
{
    const struct dpb_unit *of = &self->plan->units[unit];

    for (int m = 0; m < of->member_count; m++)
        if (full[self->plan->member[of->first_member + m]])
            return true;
    return false;
}

static dpb_status fsdp_give_params(dpb_strategy *strategy, float *const *full)
{
    struct fsdp *self = (struct fsdp *)strategy;

    for (int u = 0; u < self->units.count; u++) {
        const struct fsdp_unit *unit = &self->units.unit[u];
        const float *whole =
                self->world_size > 1 ? self->full + unit->full_at : self->params + unit->shard_at;
        struct shard_walk walk = unit_walk(self, u, -1);
        struct shard_part part;

        if (!is_wanted(self, u, full))
            continue;
        DPB_TRY(start_gather(self, u));
        DPB_TRY(finish_gather(self, u));
        while (shard_next(&walk, &part))
            if (full[part.param])
                DPB_TRY(shard_copy(self->services.launcher, "shard.give", full[part.param],
                                   whole + part.at, part.count));
        DPB_TRY(await_stream(self));
        DPB_TRY(reshard(self, u));
    }
    return DPB_OK;
}

/* ---- messages: what the hooks do, told ---- */

struct telling {
    const struct fsdp *self;
    struct dpb_sync_message *messages; /* NULL: they are counted */
    int count;
};

static void tell(struct telling *telling, int unit, enum dpb_coll_kind kind,
                 enum dpb_sync_when when, int param)
{
    const struct fsdp *self = telling->self;

    if (telling->messages)
        telling->messages[telling->count] = (struct dpb_sync_message){
                .kind = kind,
                .dtype = DPB_F32,
                .count = self->units.unit[unit].shard * self->world_size,
                .when = when,
                .param = param,
                .unit = unit,
        };
    telling->count++;
}

static void tell_gather(struct telling *telling, int unit, enum dpb_sync_when when, int param)
{
    struct unit_state *state = &telling->self->told[unit];

    if (state->is_whole)
        return;
    state->is_whole = true;
    tell(telling, unit, DPB_COLL_ALL_GATHER, when, param);
}

static void tell_prefetch(struct telling *telling, int unit, int by, enum dpb_sync_when when,
                          int param)
{
    const struct fsdp *self = telling->self;

    for (int i = 0, u = unit + by; i < self->ahead; i++, u += by) {
        if (u < self->units.has_root || u >= self->units.count)
            break;
        tell_gather(telling, u, when, param);
    }
}

static void tell_forward(struct telling *telling)
{
    const struct fsdp *self = telling->self;
    const bool is_prefetching = self->options.forward_prefetch;
    const int first = self->units.forward_order[0];

    if (self->units.has_root)
        tell_gather(telling, 0, DPB_SYNC_BEFORE_FORWARD, first);
    if (is_prefetching)
        tell_prefetch(telling, self->units.has_root - 1, 1, DPB_SYNC_BEFORE_FORWARD, first);
    for (int i = 0; i < self->model->param_count; i++) {
        const int param = self->units.forward_order[i], unit = self->plan->unit_of[param];

        tell_gather(telling, unit, DPB_SYNC_FORWARD, param);
        if (is_prefetching && !is_root(self, unit))
            tell_prefetch(telling, unit, 1, DPB_SYNC_FORWARD, param);
    }
    for (int u = self->units.has_root; reshards_after_forward(self) && u < self->units.count; u++)
        self->told[u].is_whole = false;
}

static void tell_backward(struct telling *telling)
{
    const struct fsdp *self = telling->self;
    const int when = self->options.backward_prefetch;

    for (int i = 0; i < self->model->param_count; i++) {
        const int param = self->model->ready_order[i], unit = self->plan->unit_of[param];

        tell_gather(telling, unit, DPB_SYNC_BACKWARD_USE, param);
        if (when == DPB_FSDP_PREFETCH_PRE && !is_root(self, unit))
            tell_prefetch(telling, unit, -1, DPB_SYNC_BACKWARD_USE, param);
        if (--self->told[unit].pending > 0)
            continue;
        if (when == DPB_FSDP_PREFETCH_POST && !is_root(self, unit))
            tell_prefetch(telling, unit, -1, DPB_SYNC_GRADIENT, param);
        tell(telling, unit, DPB_COLL_REDUCE_SCATTER, DPB_SYNC_GRADIENT, param);
    }
}

static int fsdp_messages(dpb_strategy *strategy, struct dpb_sync_message *messages)
{
    const struct fsdp *self = (const struct fsdp *)strategy;
    struct telling telling = {.self = self, .messages = messages};

    if (self->world_size == 1)
        return 0;
    reset(self, self->told);
    tell_forward(&telling);
    tell_backward(&telling);
    return telling.count;
}

/* ---- its table ---- */

static const struct dpb_choice shardings[] = {
        {"full-shard", DPB_FSDP_FULL_SHARD, "parameters are gathered in forward and in backward"},
        {"shard-grad-op", DPB_FSDP_SHARD_GRAD_OP, "parameters stay whole until backward is over"},
        {0},
};

static const struct dpb_choice backward_prefetches[] = {
        {"pre", DPB_FSDP_PREFETCH_PRE, "before this unit's gradients are computed"},
        {"post", DPB_FSDP_PREFETCH_POST, "when this unit's gradients are complete"},
        {"none", DPB_FSDP_PREFETCH_NONE, "when the next unit is used"},
        {0},
};

static const struct dpb_option fsdp_rows[] = {
        {
                .name = "fsdp-unit",
                .type = DPB_OPT_INT,
                .offset = offsetof(struct dpb_fsdp_options, unit_elements),
                .default_text = "1000000",
                .min = 0,
                .max = 1e12,
                .category = "Communication",
                .unit = "parameters",
                .help = "consecutive layers are one unit when they have so many parameters "
                        "(min_num_params of size_based_auto_wrap_policy); 0: every layer is one",
        },
        {
                .name = "sharding-strategy",
                .type = DPB_OPT_ENUM,
                .offset = offsetof(struct dpb_fsdp_options, sharding),
                .default_text = "full-shard",
                .choices = shardings,
                .category = "Communication",
                .help = "what a rank has in parts between forward and backward",
                .flags = DPB_OPT_COMM_ONLY,
        },
        {
                .name = "backward-prefetch",
                .type = DPB_OPT_ENUM,
                .offset = offsetof(struct dpb_fsdp_options, backward_prefetch),
                .default_text = "pre",
                .choices = backward_prefetches,
                .category = "Communication",
                .help = "when backward gathers the unit that comes next",
                .flags = DPB_OPT_COMM_ONLY,
        },
        {
                .name = "forward-prefetch",
                .type = DPB_OPT_BOOL,
                .offset = offsetof(struct dpb_fsdp_options, forward_prefetch),
                .default_text = "on",
                .category = "Communication",
                .help = "gather the next unit while this one is used; off: forward waits for every "
                        "gather",
                .flags = DPB_OPT_COMM_ONLY,
        },
        {
                .name = "limit-all-gathers",
                .type = DPB_OPT_BOOL,
                .offset = offsetof(struct dpb_fsdp_options, limit_all_gathers),
                .default_text = "on",
                .category = "Communication",
                .help = "two units at most are whole or on their way; off: prefetches all units, "
                        "and has room for them",
                .flags = DPB_OPT_COMM_ONLY,
        },
};

static const struct dpb_option_table fsdp_table = {
        .kind = "strategy",
        .owner = "fsdp",
        .rows = fsdp_rows,
        .row_count = sizeof(fsdp_rows) / sizeof(fsdp_rows[0]),
        .config_bytes = sizeof(struct dpb_fsdp_options),
};

const struct dpb_strategy_ops dpb_strategy_fsdp_ops = {
        .version = DPB_STRATEGY_OPS_VERSION,
        .name = "fsdp",
        .summary = "parameters in parts, gathered for use, as PyTorch FSDP (ZeRO stage 3)",
        .flags = DPB_STRATEGY_SHARDS_PARAMETERS | DPB_STRATEGY_SYNCS_MICRO_BATCHES,
        .options = &fsdp_table,
        .open = fsdp_open,
        .close = fsdp_close,
        .plan = fsdp_plan,
        .place = fsdp_place,
        .updates = fsdp_updates,
        .messages = fsdp_messages,
        .describe = fsdp_describe,
        .memory = fsdp_memory,
        .step_begin = fsdp_step_begin,
        .forward_begin = fsdp_forward_begin,
        .param_use = fsdp_param_use,
        .forward_end = fsdp_forward_end,
        .grad_ready = fsdp_grad_ready,
        .backward_end = fsdp_backward_end,
        .before_optimizer = fsdp_before_optimizer,
        .take_params = fsdp_take_params,
        .give_params = fsdp_give_params,
};

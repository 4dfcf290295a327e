/* Strategy `zero2`: ZeRO stage 2: every rank has all parameters, but keeps only its own part of the
 * reduced gradients, and of the optimizer's state. Gradients are written to buckets that share one
 * place, or two that alternate so that one is reduced while the next is filled (--overlap); before
 * a place is written again, the bucket that was there has been reduced and this rank's part of it
 * saved. After the optimizer has updated the parts, an all-gather brings the parameters together,
 * through the same places.
 *
 * canonical: a reduce-scatter per bucket of --bucket (25 MiB, closed when reached), whose shard is
 * the rank's part; overlapped. deepspeed: DeepSpeed's stage_1_and_2.py with its defaults: the part
 * is one of P equal ranges of all parameters in registration order, padded to a multiple of 2 P; a
 * bucket of reduce_bucket_size (5e8 elements) is flushed before it would become larger, a larger
 * layer goes alone; it is all-reduced (use_multi_rank_bucket_allreduce) and each rank keeps its
 * slices; overlap_comm is off, round_robin_gradients off, gradient_predivide_factor 1; parameters
 * are gathered in chunks of allgather_bucket_size (5e8 elements).
 *
 * What is otherwise: buckets are made of whole layers; a bucket with a parameter that two layers
 * share, written first and complete last, has a place of its own; DeepSpeed copies gradients into
 * its bucket, here they are written there. With gradient accumulation every micro-batch is reduced,
 * as in DeepSpeed, because buckets that share a place cannot wait. */
#include "dpb_strategies.h"

#include <stdlib.h>

#include "dpb_log.h"
#include "shard.h"
#include "unit_coll.h"

#define CANONICAL_BUCKET_BYTES INT64_C(26214400)   /* 25 MiB */
#define DEEPSPEED_BUCKET_BYTES INT64_C(2000000000) /* 5e8 fp32 elements */
#define PLACES_MAX             2
#define OWN_PLACE              (-1)

/* What a rank keeps of a parameter's gradient. */
struct kept {
    int param;
    int64_t first, count; /* elements of the parameter */
    int64_t at;           /* element of `gradients` */
};

struct unit_state {
    int place;                  /* OWN_PLACE: shared with none */
    int first_kept, kept_count; /* in zero2.kept */
    int pending;                /* gradients that are not ready */
    bool is_open;               /* written, and not yet saved */
    int handle;
};

struct zero2 {
    struct dpb_strategy_base base;
    int rank, world_size;
    struct dpb_sync_services services;
    bool is_deepspeed;
    int place_count;
    int64_t bucket_elements, gather_elements;

    const struct dpb_model *model;
    const struct dpb_unit_plan *plan; /* the engine's */
    struct unit_state *unit;
    struct kept *kept;
    int kept_count;
    int64_t kept_elements;
    float *gradients; /* the kept ones; NULL without services */
    int holder[PLACES_MAX];
    bool is_first_micro_batch;

    /* deepspeed: elements of one rank's part, and of each rank in a gather. */
    int64_t part_elements, chunk_elements;
    int chunks;
    int gather_handle[PLACES_MAX], gathering[PLACES_MAX]; /* which, per place; -1: none */
};

/* ---- open and close ---- */

static dpb_status zero2_open(const struct dpb_strategy_config *config, dpb_strategy **strategy)
{
    const struct dpb_zero2_options *options = config->options;
    struct zero2 *self;
    int64_t bucket_bytes, gather_bytes;
    bool overlaps;

    DPB_TRY(shard_check_optimizer(config, "zero2"));
    self = calloc(1, sizeof(*self));
    if (!self) {
        dpb_error("strategy \"zero2\": out of memory");
        return DPB_ERR_NO_MEMORY;
    }
    self->base.ops = &dpb_strategy_zero2_ops;
    self->rank = config->rank;
    self->world_size = config->world_size;
    self->services = config->services;
    self->is_deepspeed = options->variant == DPB_ZERO2_DEEPSPEED;
    overlaps = options->overlap == DPB_ZERO2_OVERLAP_ON ||
               (options->overlap == DPB_ZERO2_OVERLAP_AUTO && !self->is_deepspeed);
    self->place_count = overlaps ? 2 : 1;
    bucket_bytes = options->bucket_bytes;
    if (bucket_bytes == DPB_AUTO)
        bucket_bytes = self->is_deepspeed ? DEEPSPEED_BUCKET_BYTES : CANONICAL_BUCKET_BYTES;
    gather_bytes = options->gather_bucket_bytes;
    if (gather_bytes == DPB_AUTO)
        gather_bytes = DEEPSPEED_BUCKET_BYTES;
    self->bucket_elements = (bucket_bytes + (int64_t)sizeof(float) - 1) / (int64_t)sizeof(float);
    self->gather_elements = gather_bytes / (int64_t)sizeof(float);
    *strategy = (dpb_strategy *)self;
    return DPB_OK;
}

static void forget_plan(struct zero2 *self)
{
    if (self->services.ctx)
        shard_free(self->services.launcher, &self->gradients);
    free(self->kept);
    free(self->unit);
    self->kept = NULL;
    self->unit = NULL;
}

static void zero2_close(dpb_strategy *strategy)
{
    struct zero2 *self = (struct zero2 *)strategy;

    if (!self)
        return;
    forget_plan(self);
    free(self);
}

/* ---- the plan ---- */

static bool has_shared(const struct zero2 *self, const struct dpb_unit_plan *plan, int unit)
{
    const struct dpb_unit *of = &plan->units[unit];

    for (int m = 0; m < of->member_count; m++)
        if (self->model->params[plan->member[of->first_member + m]].shared)
            return true;
    return false;
}

/* Units take the places in turn; a place is as large as its largest unit. */
static void put_in_places(struct zero2 *self, struct dpb_unit_plan *plan)
{
    int64_t bytes[PLACES_MAX] = {0}, at[PLACES_MAX], end = 0;
    const int64_t gather_bytes =
            self->is_deepspeed && self->world_size > 1
                    ? self->chunk_elements * self->world_size * (int64_t)sizeof(float)
                    : 0;
    int next = 0;

    for (int u = 0; u < plan->unit_count; u++) {
        const int64_t needed = shard_aligned(plan->units[u].bytes);

        if (has_shared(self, plan, u)) {
            self->unit[u].place = OWN_PLACE;
            continue;
        }
        self->unit[u].place = next;
        bytes[next] = needed > bytes[next] ? needed : bytes[next];
        next = (next + 1) % self->place_count;
    }
    for (int i = 0; i < self->place_count; i++) {
        at[i] = end;
        end += bytes[i];
    }
    for (int u = 0; u < plan->unit_count; u++) {
        if (self->unit[u].place != OWN_PLACE) {
            shard_move_unit(plan, u, at[self->unit[u].place]);
            continue;
        }
        shard_move_unit(plan, u, end);
        end += shard_aligned(plan->units[u].bytes);
    }
    plan->arena_bytes = end > gather_bytes ? end : shard_aligned(gather_bytes);
}

/* This rank's range of all parameters, DeepSpeed's partition. */
static void partition(struct zero2 *self)
{
    const int64_t all = dpb_model_param_elements(self->model);
    const int64_t multiple = 2 * (int64_t)self->world_size;
    const int64_t padded = (all + multiple - 1) / multiple * multiple;
    const int64_t chunks = self->gather_elements > 0 ? padded / self->gather_elements : padded;

    self->part_elements = padded / self->world_size;
    self->chunks =
            chunks < 1 ? 1 : (int)(chunks < self->part_elements ? chunks : self->part_elements);
    /* The last one takes what is left. */
    self->chunk_elements =
            self->part_elements - (self->chunks - 1) * (self->part_elements / self->chunks);
}

/* The parts of parameters that rank `rank` keeps of a unit. */
static struct shard_walk unit_walk(const struct zero2 *self, const struct dpb_unit_plan *plan,
                                   int unit, int rank)
{
    const struct dpb_unit *of = &plan->units[unit];
    int64_t first;
    const int64_t count = dpb_coll_shard(of->elements, self->world_size, rank, &first);

    return (struct shard_walk){
            .params = self->model->params,
            .member = plan->member + of->first_member,
            .member_count = of->member_count,
            .from = first,
            .to = first + count,
    };
}

static void keep(struct zero2 *self, int unit, const struct shard_part *part, int64_t at)
{
    self->kept[self->kept_count++] = (struct kept){
            .param = part->param, .first = part->first, .count = part->count, .at = at};
    self->unit[unit].kept_count++;
    self->kept_elements += part->count;
}

/* In DeepSpeed's partition a unit's parameters lie anywhere. */
static void keep_slices(struct zero2 *self, const struct dpb_unit_plan *plan, int unit)
{
    const struct dpb_unit *of = &plan->units[unit];
    const int64_t from = self->rank * self->part_elements;
    struct shard_part part;

    for (int m = 0; m < of->member_count; m++) {
        struct shard_walk all = {.params = self->model->params,
                                 .member_count = self->model->param_count,
                                 .from = from,
                                 .to = from + self->part_elements};

        while (shard_next(&all, &part))
            if (part.param == plan->member[of->first_member + m])
                keep(self, unit, &part, part.at - from);
    }
}

static void keep_parts(struct zero2 *self, const struct dpb_unit_plan *plan)
{
    self->kept_count = 0;
    self->kept_elements = 0;
    for (int u = 0; u < plan->unit_count; u++) {
        struct shard_walk walk = unit_walk(self, plan, u, self->rank);
        struct shard_part part;

        self->unit[u].first_kept = self->kept_count;
        self->unit[u].kept_count = 0;
        if (self->is_deepspeed)
            keep_slices(self, plan, u);
        else
            while (shard_next(&walk, &part))
                keep(self, u, &part, self->kept_elements);
    }
}

static void reset(struct zero2 *self)
{
    for (int u = 0; u < self->plan->unit_count; u++) {
        self->unit[u].pending = self->plan->units[u].member_count;
        self->unit[u].is_open = false;
    }
    for (int i = 0; i < PLACES_MAX; i++)
        self->holder[i] = -1;
}

static dpb_status take_plan(struct zero2 *self, struct dpb_unit_plan *made)
{
    self->unit = calloc((size_t)made->unit_count + 1, sizeof(*self->unit));
    /* Of a parameter a rank keeps one range. */
    self->kept = calloc((size_t)made->param_count + 1, sizeof(*self->kept));
    if (!self->unit || !self->kept) {
        dpb_error("strategy \"zero2\": no room for a plan of %d buckets", made->unit_count);
        return DPB_ERR_NO_MEMORY;
    }
    put_in_places(self, made);
    keep_parts(self, made);
    return self->services.ctx
                   ? shard_alloc(self->services.launcher, self->kept_elements, &self->gradients)
                   : DPB_OK;
}

static dpb_status zero2_plan(dpb_strategy *strategy, const struct dpb_model *model,
                             const int *ready_order, struct dpb_unit_plan *plan)
{
    struct zero2 *self = (struct zero2 *)strategy;
    struct dpb_unit_plan made;
    dpb_status st;

    (void)ready_order; /* that of the model is known before, and the same everywhere */
    self->model = model;
    if (self->is_deepspeed)
        partition(self);
    DPB_TRY(shard_plan_layers(model, model->ready_order, self->bucket_elements,
                              self->is_deepspeed ? SHARD_EXCEEDS : SHARD_REACHES, &made));
    forget_plan(self);
    st = take_plan(self, &made);
    if (st < 0) {
        forget_plan(self);
        dpb_unit_plan_release(&made);
        return st;
    }
    *plan = made;
    self->plan = plan;
    reset(self);
    return DPB_OK;
}

static int zero2_updates(dpb_strategy *strategy, struct dpb_update *updates)
{
    const struct zero2 *self = (const struct zero2 *)strategy;

    for (int k = 0; updates && k < self->kept_count; k++)
        updates[k] = (struct dpb_update){
                .param = self->kept[k].param,
                .first = self->kept[k].first,
                .count = self->kept[k].count,
                .grad = self->gradients ? self->gradients + self->kept[k].at : NULL,
        };
    return self->kept_count;
}

static void zero2_memory(dpb_strategy *strategy, struct dpb_strategy_memory *memory)
{
    const struct zero2 *self = (const struct zero2 *)strategy;

    memory->private_bytes = self->kept_elements * (int64_t)sizeof(float);
}

static void zero2_describe(dpb_strategy *strategy, dpb_json *plan)
{
    const struct zero2 *self = (const struct zero2 *)strategy;

    dpb_json_set_string(plan, "variant", self->is_deepspeed ? "deepspeed" : "canonical");
    dpb_json_set_int(plan, "bucket_bytes", self->bucket_elements * (int64_t)sizeof(float));
    dpb_json_set_int(plan, "places", self->place_count);
    dpb_json_set_int(plan, "kept_gradient_bytes", self->kept_elements * (int64_t)sizeof(float));
}

/* ---- the gathers after the optimizer ---- */

static int gather_count(const struct zero2 *self)
{
    return self->is_deepspeed ? self->chunks : self->plan->unit_count;
}

static int gather_place(const struct zero2 *self, int gather)
{
    const int place = self->is_deepspeed ? 0 : self->unit[gather].place;

    return place == OWN_PLACE ? 0 : place;
}

static struct dpb_sync_coll gather_of(const struct zero2 *self, int gather)
{
    struct dpb_sync_coll coll = {
            .kind = DPB_COLL_ALL_GATHER, .dtype = DPB_F32, .scale = 1.0f, .unit = -1};
    const int64_t each = self->is_deepspeed ? self->part_elements / self->chunks : 0;

    if (!self->is_deepspeed) {
        coll.unit = gather;
        coll.count = self->plan->units[gather].elements;
    } else {
        coll.count = (gather + 1 < self->chunks ? each : self->chunk_elements) * self->world_size;
    }
    return coll;
}

/* What rank `rank` brings to a gather; *at gets where it lies in it. */
static struct shard_walk gather_walk(const struct zero2 *self, int gather, int rank, int64_t *at)
{
    const int64_t each = self->is_deepspeed ? self->part_elements / self->chunks : 0;
    const int64_t from = rank * self->part_elements + gather * each;
    const int64_t count = gather_of(self, gather).count / self->world_size;

    if (!self->is_deepspeed) {
        const struct shard_walk walk = unit_walk(self, self->plan, gather, rank);

        *at = walk.from;
        return walk;
    }
    *at = rank * count;
    return (struct shard_walk){
            .params = self->model->params,
            .member_count = self->model->param_count,
            .from = from,
            .to = from + count,
    };
}

static float *gather_buffer(const struct zero2 *self, int gather)
{
    const struct dpb_sync_services *services = &self->services;
    const char *place = services->unit_data(services->ctx, self->is_deepspeed ? 0 : gather);

    /* DeepSpeed's chunks begin where the arena does. */
    return (float *)(void *)(place - (self->is_deepspeed ? self->plan->units[0].offset_bytes : 0));
}

/* Parameters of rank `rank` into the gather's buffer, or out of it. */
static dpb_status move_params(struct zero2 *self, int gather, int rank, bool out)
{
    const struct dpb_sync_services *services = &self->services;
    float *buffer = gather_buffer(self, gather);
    struct shard_part part;
    int64_t at;
    struct shard_walk walk = gather_walk(self, gather, rank, &at);
    const int64_t from = walk.from;

    while (shard_next(&walk, &part)) {
        float *value = services->param(services->ctx, part.param) + part.first;
        float *here = buffer + at + (part.at - from);

        DPB_TRY(shard_copy(services->launcher, out ? "all-gather.out" : "all-gather.in",
                           out ? value : here, out ? here : value, part.count));
    }
    return DPB_OK;
}

static dpb_status gather_end(struct zero2 *self, int place)
{
    const int gather = self->gathering[place];

    if (gather < 0)
        return DPB_OK;
    self->gathering[place] = -1;
    DPB_TRY(self->services.wait(self->services.ctx, self->gather_handle[place]));
    for (int r = 0; r < self->world_size; r++)
        if (r != self->rank)
            DPB_TRY(move_params(self, gather, r, true));
    return DPB_OK;
}

static dpb_status gather_begin(struct zero2 *self, int gather)
{
    struct dpb_sync_coll coll = gather_of(self, gather);
    const int place = gather_place(self, gather);

    DPB_TRY(gather_end(self, place));
    DPB_TRY(move_params(self, gather, self->rank, false));
    coll.buffer = gather_buffer(self, gather);
    DPB_TRY(self->services.start(self->services.ctx, &coll, &self->gather_handle[place]));
    self->gathering[place] = gather;
    return DPB_OK;
}

static dpb_status zero2_after_optimizer(dpb_strategy *strategy)
{
    struct zero2 *self = (struct zero2 *)strategy;

    if (self->world_size == 1)
        return DPB_OK;
    for (int i = 0; i < PLACES_MAX; i++)
        self->gathering[i] = -1;
    for (int g = 0; g < gather_count(self); g++)
        DPB_TRY(gather_begin(self, g));
    for (int i = 0; i < PLACES_MAX; i++)
        DPB_TRY(gather_end(self, i));
    return DPB_OK;
}

/* ---- gradients ---- */

static enum dpb_coll_kind reduction(const struct zero2 *self)
{
    return self->is_deepspeed ? DPB_COLL_ALL_REDUCE : DPB_COLL_REDUCE_SCATTER;
}

static dpb_status zero2_step_begin(dpb_strategy *strategy, int64_t step)
{
    (void)step;
    ((struct zero2 *)strategy)->is_first_micro_batch = true;
    return DPB_OK;
}

static dpb_status zero2_forward_begin(dpb_strategy *strategy, bool sync)
{
    (void)sync; /* always */
    reset((struct zero2 *)strategy);
    return DPB_OK;
}

/* The unit's place may be written again: it is reduced, and this rank's part saved. */
static dpb_status save(struct zero2 *self, int unit)
{
    const struct dpb_sync_services *services = &self->services;
    struct unit_state *state = &self->unit[unit];

    if (!state->is_open)
        return DPB_OK;
    if (self->world_size > 1)
        DPB_TRY(services->wait(services->ctx, state->handle));
    for (int k = state->first_kept; k < state->first_kept + state->kept_count; k++) {
        const struct kept *kept = &self->kept[k];

        DPB_TRY(shard_add_up(services->launcher, "gradient.keep", self->gradients + kept->at,
                             services->grad(services->ctx, kept->param) + kept->first, kept->count,
                             self->is_first_micro_batch));
    }
    state->is_open = false;
    return DPB_OK;
}

static dpb_status zero2_param_use(dpb_strategy *strategy, int param, enum dpb_pass pass)
{
    struct zero2 *self = (struct zero2 *)strategy;
    const int unit = self->plan->unit_of[param], place = self->unit[unit].place;
    int before;

    if (pass == DPB_PASS_FORWARD || place == OWN_PLACE || self->holder[place] == unit)
        return DPB_OK;
    before = self->holder[place];
    if (self->unit[unit].pending == 0 || (before >= 0 && self->unit[before].pending > 0)) {
        dpb_error("strategy \"zero2\": parameter \"%s\" (bucket %d) is used while bucket %d is in "
                  "its place",
                  self->model->params[param].name, unit, before);
        dpb_log_hint("gradients must become ready in the order that the network says beforehand; "
                     "a parameter that two layers share is marked as such");
        return DPB_ERR_INTERNAL;
    }
    if (before >= 0)
        DPB_TRY(save(self, before));
    self->holder[place] = unit;
    return DPB_OK;
}

static dpb_status zero2_grad_ready(dpb_strategy *strategy, int param)
{
    struct zero2 *self = (struct zero2 *)strategy;
    const int unit = self->plan->unit_of[param];
    struct unit_state *state = &self->unit[unit];

    if (--state->pending > 0)
        return DPB_OK;
    state->is_open = true;
    if (self->world_size > 1)
        DPB_TRY(unit_coll_start(&self->services, self->plan, unit, reduction(self),
                                &state->handle));
    return self->place_count == 1 ? save(self, unit) : DPB_OK;
}

static dpb_status zero2_backward_end(dpb_strategy *strategy)
{
    struct zero2 *self = (struct zero2 *)strategy;

    for (int u = 0; u < self->plan->unit_count; u++)
        DPB_TRY(save(self, u));
    self->is_first_micro_batch = false;
    return DPB_OK;
}

/* Everything has been reduced and saved when backward ended. */
static dpb_status zero2_before_optimizer(dpb_strategy *strategy)
{
    (void)strategy;
    return DPB_OK;
}

static int zero2_messages(dpb_strategy *strategy, struct dpb_sync_message *messages)
{
    const struct zero2 *self = (const struct zero2 *)strategy;
    const int units = self->plan->unit_count, gathers = gather_count(self);

    if (self->world_size == 1)
        return 0;
    for (int u = 0; messages && u < units; u++)
        messages[u] = unit_coll_message(self->plan, u, reduction(self), DPB_SYNC_GRADIENT);
    for (int g = 0; messages && g < gathers; g++) {
        const struct dpb_sync_coll coll = gather_of(self, g);

        messages[units + g] = (struct dpb_sync_message){.kind = coll.kind,
                                                        .dtype = coll.dtype,
                                                        .count = coll.count,
                                                        .when = DPB_SYNC_AFTER_OPTIMIZER,
                                                        .unit = coll.unit};
    }
    return units + gathers;
}

/* ---- its table ---- */

static const struct dpb_choice variants[] = {
        {"canonical", DPB_ZERO2_CANONICAL, "a reduce-scatter per bucket"},
        {"deepspeed", DPB_ZERO2_DEEPSPEED, "DeepSpeed's partition, buckets and defaults"},
        {0},
};

static const struct dpb_choice overlaps[] = {
        {"auto", DPB_ZERO2_OVERLAP_AUTO, "on with canonical, off with deepspeed"},
        {"on", DPB_ZERO2_OVERLAP_ON, "one bucket is reduced while the next is filled"},
        {"off", DPB_ZERO2_OVERLAP_OFF, "backward waits for every reduction"},
        {0},
};

static const struct dpb_option zero2_rows[] = {
        {
                .name = "zero2-variant",
                .type = DPB_OPT_ENUM,
                .offset = offsetof(struct dpb_zero2_options, variant),
                .default_text = "canonical",
                .choices = variants,
                .category = "Communication",
                .help = "which implementation of ZeRO stage 2 is imitated",
        },
        {
                .name = "bucket",
                .type = DPB_OPT_SIZE,
                .offset = offsetof(struct dpb_zero2_options, bucket_bytes),
                .default_text = "auto",
                .min = 1,
                .max = DPB_BUCKET_BYTES_MAX,
                .category = "Communication",
                .help = "bytes of a gradient bucket; auto: 25MiB with canonical, 2000000000 with "
                        "deepspeed (reduce_bucket_size 5e8)",
                .flags = DPB_OPT_AUTO,
        },
        {
                .name = "allgather-bucket",
                .type = DPB_OPT_SIZE,
                .offset = offsetof(struct dpb_zero2_options, gather_bucket_bytes),
                .default_text = "auto",
                .min = 1,
                .max = DPB_BUCKET_BYTES_MAX,
                .category = "Communication",
                .help = "deepspeed: bytes of parameters that are gathered at a time; auto: "
                        "2000000000 (allgather_bucket_size 5e8)",
                .flags = DPB_OPT_COMM_ONLY | DPB_OPT_AUTO,
        },
        {
                .name = "overlap",
                .type = DPB_OPT_ENUM,
                .offset = offsetof(struct dpb_zero2_options, overlap),
                .default_text = "auto",
                .choices = overlaps,
                .category = "Communication",
                .help = "reduce a bucket while backward goes on (overlap_comm), in a second place",
        },
};

static const struct dpb_option_table zero2_table = {
        .kind = "strategy",
        .owner = "zero2",
        .rows = zero2_rows,
        .row_count = sizeof(zero2_rows) / sizeof(zero2_rows[0]),
        .config_bytes = sizeof(struct dpb_zero2_options),
};

const struct dpb_strategy_ops dpb_strategy_zero2_ops = {
        .version = DPB_STRATEGY_OPS_VERSION,
        .name = "zero2",
        .summary = "gradients reduced to the rank that updates them (ZeRO stage 2)",
        .flags = DPB_STRATEGY_SYNCS_MICRO_BATCHES,
        .options = &zero2_table,
        .open = zero2_open,
        .close = zero2_close,
        .plan = zero2_plan,
        .updates = zero2_updates,
        .messages = zero2_messages,
        .describe = zero2_describe,
        .memory = zero2_memory,
        .step_begin = zero2_step_begin,
        .forward_begin = zero2_forward_begin,
        .param_use = zero2_param_use,
        .grad_ready = zero2_grad_ready,
        .backward_end = zero2_backward_end,
        .before_optimizer = zero2_before_optimizer,
        .after_optimizer = zero2_after_optimizer,
};

/* What each rank updates under `zero1`, and the collectives that this needs. */
#include "zero1.h"

#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"

#define MEGATRON_BUCKET_ELEMENTS   INT64_C(40000000)
#define MEGATRON_ELEMENTS_PER_RANK INT64_C(1000000)
#define DDP_BUCKET_BYTES           (INT64_C(25) << 20)
#define DDP_FIRST_BUCKET_BYTES     (INT64_C(1) << 20)
#define DEEPSPEED_BUCKET_ELEMENTS  INT64_C(500000000)

static dpb_status no_memory(int params)
{
    dpb_error("strategy \"zero1\": out of memory for the plan of %d parameters", params);
    return DPB_ERR_NO_MEMORY;
}

/* ---- whole tensors ---- */

struct sized_param {
    int64_t numel;
    int index;
};

static int larger_first(const void *a, const void *b)
{
    const struct sized_param *x = a, *y = b;

    if (x->numel != y->numel)
        return x->numel > y->numel ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

dpb_status zero1_partition(const struct dpb_param_info *params, int param_count, int ranks,
                           int *order, int *owner)
{
    struct sized_param *sorted = calloc((size_t)param_count + 1, sizeof(*sorted));
    int64_t *load = calloc((size_t)ranks, sizeof(*load));
    const dpb_status st = sorted && load ? DPB_OK : no_memory(param_count);

    for (int i = 0; st == DPB_OK && i < param_count; i++)
        sorted[i] = (struct sized_param){params[i].numel, i};
    if (st == DPB_OK)
        qsort(sorted, (size_t)param_count, sizeof(*sorted), larger_first);
    for (int i = 0; st == DPB_OK && i < param_count; i++) {
        int least = 0;

        for (int r = 1; r < ranks; r++)
            if (load[r] < load[least])
                least = r;
        order[i] = sorted[i].index;
        owner[sorted[i].index] = least;
        load[least] += sorted[i].numel;
    }
    free(load);
    free(sorted);
    return st;
}

/* ---- units of gradients ---- */

/* The limit, in bytes, of the second bucket and later; `first` gets that of the first. */
static int64_t bucket_limit(const struct zero1 *self, int64_t *first)
{
    const int64_t given = self->bucket_bytes, float_bytes = sizeof(float);
    const int64_t megatron = MEGATRON_ELEMENTS_PER_RANK * self->world_size;
    int64_t limit = given;

    switch (self->variant) {
    case DPB_ZERO1_CANONICAL:
    case DPB_ZERO1_PYTORCH:
        limit = given == DPB_AUTO ? DDP_BUCKET_BYTES : given;
        break;
    case DPB_ZERO1_MEGATRON:
        if (given == DPB_AUTO)
            limit = !self->overlaps ? INT64_MAX
                                    : float_bytes * (megatron > MEGATRON_BUCKET_ELEMENTS
                                                             ? megatron
                                                             : MEGATRON_BUCKET_ELEMENTS);
        break;
    case DPB_ZERO1_DEEPSPEED:
        limit = given == DPB_AUTO ? float_bytes * DEEPSPEED_BUCKET_ELEMENTS : given;
        break;
    }
    *first = self->variant == DPB_ZERO1_PYTORCH && given == DPB_AUTO ? DDP_FIRST_BUCKET_BYTES
                                                                     : limit;
    return limit;
}

/* DeepSpeed's buckets never exceed their limit, unless by a single tensor. */
static dpb_status units_within(const struct dpb_model *model, const int *order, int64_t limit_bytes,
                               struct dpb_unit_plan *plan)
{
    const size_t params = (size_t)model->param_count;
    int *first = calloc(params + 1, sizeof(*first));
    int *label = calloc(params + 1, sizeof(*label));
    struct dpb_bucket_assignment units = {.first = first, .label = label};
    int64_t bytes = 0;
    dpb_status st = first && label ? DPB_OK : no_memory(model->param_count);

    for (int i = 0; st == DPB_OK && i < model->param_count; i++) {
        const int64_t more = model->params[order[i]].numel * (int64_t)sizeof(float);

        if (i == 0 || bytes + more > limit_bytes) {
            first[units.bucket_count++] = i;
            bytes = 0;
        }
        bytes += more;
        label[i] = order[i];
    }
    if (st == DPB_OK) {
        first[units.bucket_count] = model->param_count;
        st = dpb_unit_plan_from_buckets(model->params, model->param_count, &units, plan);
    }
    free(label);
    free(first);
    return st;
}

/* Megatron goes by the reversed list of parameters, the others by the order in which gradients
 * become ready. */
static dpb_status make_units(const struct zero1 *self, struct dpb_unit_plan *plan)
{
    const struct dpb_model *model = self->model;
    const bool is_ready_order = self->variant != DPB_ZERO1_MEGATRON && model->ready_order;
    int *order = calloc((size_t)model->param_count + 1, sizeof(*order));
    int64_t limits_bytes[2];
    dpb_status st;

    if (!order)
        return no_memory(model->param_count);
    for (int i = 0; i < model->param_count; i++)
        order[i] = is_ready_order ? model->ready_order[i] : model->param_count - 1 - i;
    limits_bytes[1] = bucket_limit(self, &limits_bytes[0]);
    st = self->variant == DPB_ZERO1_DEEPSPEED
                 ? units_within(model, order, limits_bytes[1], plan)
                 : dpb_unit_plan_by_size(model->params, model->param_count, order, limits_bytes, 2,
                                         plan);
    free(order);
    return st;
}

bool zero1_is_copied(const struct zero1 *self, int unit)
{
    int64_t first;

    return self->variant == DPB_ZERO1_DEEPSPEED && self->world_size > 1 &&
           self->plan->units[unit].bytes <= bucket_limit(self, &first);
}

/* ---- places and parts ---- */

/* DeepSpeed's flat group is as long as a multiple of 2 P elements. */
static void place_params(struct zero1 *self)
{
    const int64_t pad = 2 * (int64_t)self->world_size;
    int64_t next = 0;

    for (int p = 0; p < self->model->param_count; p++) {
        self->place[p] = self->variant == DPB_ZERO1_DEEPSPEED
                                 ? next
                                 : self->plan->offset_bytes[p] / (int64_t)sizeof(float);
        next += self->model->params[p].numel;
    }
    self->elements = self->variant == DPB_ZERO1_DEEPSPEED
                             ? (next + pad - 1) / pad * pad
                             : self->plan->arena_bytes / (int64_t)sizeof(float);
}

/* This rank has elements `begin` to `end` of something in which a parameter begins at `at`. */
static void own_range(struct zero1 *self, int param, int64_t at, int64_t begin, int64_t end)
{
    const int64_t numel = self->model->params[param].numel;
    const int64_t first = begin > at ? begin - at : 0;
    const int64_t last = end - at < numel ? end - at : numel;

    self->own_first[param] = first < last ? first : 0;
    self->own_count[param] = first < last ? last - first : 0;
}

static void own_shards_of_units(struct zero1 *self)
{
    for (int p = 0; p < self->model->param_count; p++) {
        const struct dpb_unit *unit = &self->plan->units[self->plan->unit_of[p]];
        int64_t begin;
        const int64_t count = dpb_coll_shard(unit->elements, self->world_size, self->rank, &begin);

        own_range(self, p,
                  (self->plan->offset_bytes[p] - unit->offset_bytes) / (int64_t)sizeof(float),
                  begin, begin + count);
    }
}

static void own_partition(struct zero1 *self)
{
    const int64_t part = self->elements / self->world_size;

    for (int p = 0; p < self->model->param_count; p++)
        own_range(self, p, self->place[p], self->rank * part, (self->rank + 1) * part);
}

/* ---- collectives ---- */

static dpb_status room_for_gathers(struct zero1 *self, int64_t count)
{
    self->gather = calloc((size_t)count + 1, sizeof(*self->gather));
    return self->gather ? DPB_OK : no_memory(self->model->param_count);
}

static dpb_status gather_units(struct zero1 *self)
{
    DPB_TRY(room_for_gathers(self, self->plan->unit_count));
    /* The last unit has the parameters that the next forward pass uses first. */
    for (int u = self->plan->unit_count - 1; u >= 0; u--) {
        const struct dpb_unit *unit = &self->plan->units[u];
        struct zero1_gather gather = {
                .kind = DPB_COLL_ALL_GATHER,
                .first = unit->offset_bytes / (int64_t)sizeof(float),
                .count = unit->elements,
                .unit = u,
                .param = self->plan->member[unit->first_member],
        };

        for (int m = 1; m < unit->member_count; m++)
            if (self->plan->member[unit->first_member + m] < gather.param)
                gather.param = self->plan->member[unit->first_member + m];
        self->gather[self->gather_count++] = gather;
    }
    return DPB_OK;
}

/* Rank after rank sends its tensors, in the order in which it got them. */
static void send_tensors(struct zero1 *self, const int *order, const int *owner)
{
    for (int rank = 0; rank < self->world_size; rank++) {
        for (int i = 0; i < self->model->param_count; i++) {
            const int p = order[i];

            if (owner[p] == rank)
                self->gather[self->gather_count++] = (struct zero1_gather){
                        .kind = DPB_COLL_BROADCAST,
                        .root = rank,
                        .first = self->place[p],
                        .count = self->model->params[p].numel,
                        .unit = -1,
                        .param = p,
                };
        }
    }
}

static dpb_status own_tensors(struct zero1 *self)
{
    const struct dpb_model *model = self->model;
    int *order = calloc((size_t)model->param_count + 1, sizeof(*order));
    int *owner = calloc((size_t)model->param_count + 1, sizeof(*owner));
    dpb_status st = order && owner ? room_for_gathers(self, model->param_count)
                                   : no_memory(model->param_count);

    if (st == DPB_OK)
        st = zero1_partition(model->params, model->param_count, self->world_size, order, owner);
    if (st == DPB_OK) {
        for (int p = 0; p < model->param_count; p++)
            self->own_count[p] = owner[p] == self->rank ? model->params[p].numel : 0;
        send_tensors(self, order, owner);
    }
    free(owner);
    free(order);
    return st;
}

/* all_gather_dp_groups(): as many pieces of each rank's partition as buckets are needed for all of
 * them. */
static dpb_status gather_partition(struct zero1 *self)
{
    const int64_t ranks = self->world_size, part = self->elements / ranks;
    const int64_t bucket = self->gather_bytes / (int64_t)sizeof(float);
    const int64_t pieces = bucket > 0 && self->elements / bucket > 1 ? self->elements / bucket : 1;
    const int64_t each = pieces > 1 ? part / pieces / 2 * 2 : part;

    DPB_TRY(room_for_gathers(self, pieces));
    for (int64_t i = 0; i < pieces; i++) {
        const int64_t count = i == pieces - 1 ? part - i * each : each;

        if (count == 0)
            continue;
        self->gather[self->gather_count++] = (struct zero1_gather){
                .kind = DPB_COLL_ALL_GATHER,
                .first = i * each,
                .count = count * ranks,
                .is_staged = pieces > 1,
                .unit = -1,
                .param = 0,
        };
        if (pieces > 1 && count * ranks > self->staged_elements)
            self->staged_elements = count * ranks;
    }
    return DPB_OK;
}

static dpb_status divide(struct zero1 *self)
{
    switch (self->variant) {
    case DPB_ZERO1_CANONICAL:
    case DPB_ZERO1_MEGATRON:
        own_shards_of_units(self);
        return gather_units(self);
    case DPB_ZERO1_PYTORCH:
        return own_tensors(self);
    case DPB_ZERO1_DEEPSPEED:
        own_partition(self);
        return gather_partition(self);
    }
    return DPB_ERR_INTERNAL;
}

/* ---- all of it ---- */

static dpb_status alloc_tables(struct zero1 *self)
{
    const size_t params = (size_t)self->model->param_count + 1;
    const size_t units = (size_t)self->plan->unit_count + 1;

    self->pending = calloc(units, sizeof(*self->pending));
    self->handle = calloc(units, sizeof(*self->handle));
    self->place = calloc(params, sizeof(*self->place));
    self->own_first = calloc(params, sizeof(*self->own_first));
    self->own_count = calloc(params, sizeof(*self->own_count));
    if (!self->pending || !self->handle || !self->place || !self->own_first || !self->own_count)
        return no_memory(self->model->param_count);
    return ready_set_init(&self->ready, self->model);
}

dpb_status zero1_make_plan(struct zero1 *self, const struct dpb_model *model,
                           struct dpb_unit_plan *plan)
{
    dpb_status st;

    zero1_release_plan(self);
    self->model = model;
    DPB_TRY(make_units(self, plan));
    self->plan = plan;
    DPB_TRY_GOTO(st, alloc_tables(self), err_plan);
    place_params(self);
    DPB_TRY_GOTO(st, divide(self), err_plan);
    for (int u = 0; u < plan->unit_count; u++)
        if (zero1_is_copied(self, u) && plan->units[u].elements > self->bucket_elements)
            self->bucket_elements = plan->units[u].elements;
    return DPB_OK;

err_plan:
    zero1_release_plan(self);
    dpb_unit_plan_release(plan);
    return st;
}

void zero1_release_plan(struct zero1 *self)
{
    ready_set_release(&self->ready);
    free(self->pending);
    free(self->handle);
    free(self->place);
    free(self->own_first);
    free(self->own_count);
    free(self->gather);
    self->pending = self->handle = NULL;
    self->place = self->own_first = self->own_count = NULL;
    self->gather = NULL;
    self->gather_count = 0;
    self->staged_elements = self->bucket_elements = 0;
    self->plan = NULL;
}

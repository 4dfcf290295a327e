/* Gradients in packs, as TensorFlow's cross-device operations have them. */
#include "mirrored_packs.h"

#include <stdlib.h>

#include "dpb_log.h"
#include "launch_copy.h"

#define PACKS_UNDER_WAY_MAX 256 /* a communicator has room for so many, twice */
#define COPY_ALIGN_BYTES    64  /* a cache line */

/* ---- the rules ---- */

int64_t mirrored_pack_elements(int64_t elements, int64_t packs, int64_t index, int64_t *first)
{
    const int64_t each = elements / packs;

    *first = index * each;
    return index == packs - 1 ? elements - *first : each;
}

void mirrored_main_devices(int64_t index, int devices, int main_device[2])
{
    const int group = devices / 2;

    main_device[0] = (int)(index % devices);
    main_device[1] = (main_device[0] + group) % devices;
    if ((main_device[0] < group) == (main_device[1] < group))
        main_device[1] = 0;
}

int mwms_group_by_size(const int64_t *bytes, int count, int64_t bytes_per_pack, int *first)
{
    int64_t pack_bytes = 0;
    int packs = 0;

    for (int i = 0; i < count; i++) {
        if (packs == 0 || (bytes_per_pack > 0 && pack_bytes > bytes_per_pack)) {
            first[packs++] = i;
            pack_bytes = 0;
        }
        pack_bytes += bytes[i];
    }
    first[packs] = count;
    return packs;
}

int mirrored_extract_runs(const int *number, int count, int64_t extent_max, int *run_of)
{
    int runs = 0, first = 0;

    for (int i = 1; i <= count; i++) {
        if (i < count && number[i] == number[i - 1] + 1 &&
            number[i - 1] - number[first] <= extent_max)
            continue;
        for (int k = first; k < i; k++)
            run_of[k] = i - first > 1 ? runs : -1;
        runs += i - first > 1;
        first = i;
    }
    return runs;
}

/* ---- open and plan ---- */

void mirrored_packs_open(struct mirrored_packs *self, const struct dpb_strategy_ops *ops,
                         const struct dpb_strategy_config *config)
{
    self->base.ops = ops;
    self->world_size = config->world_size;
    self->services = config->services;
    if (self->world_size == 1)
        self->copies_from = 0;
}

void mirrored_packs_close(dpb_strategy *strategy)
{
    struct mirrored_packs *self = (struct mirrored_packs *)strategy;

    if (!self)
        return;
    ready_set_release(&self->ready);
    free(self->copy_offset);
    free(self->pending);
    free(self->pack);
    free(self);
}

static void reset(struct mirrored_packs *self)
{
    ready_set_clear(&self->ready);
    for (int u = 0; u < self->plan->unit_count; u++)
        self->pending[u] = self->plan->units[u].member_count;
    self->next_pack = self->waited = 0;
}

/* The gradient of a unit that is ready last. */
static int last_ready(const struct dpb_model *model, const struct dpb_unit_plan *plan, int unit)
{
    for (int i = model->param_count - 1; i >= 0; i--) {
        const int p = model->ready_order ? model->ready_order[i] : model->param_count - 1 - i;

        if (plan->unit_of[p] == unit)
            return p;
    }
    return plan->member[plan->units[unit].first_member];
}

/* Packs of no elements are left out, but counted. */
static void cut_unit(struct mirrored_packs *self, int unit, int64_t packs)
{
    const struct dpb_unit *of = &self->plan->units[unit];
    const int param = last_ready(self->ready.model, self->plan, unit);

    for (int64_t i = 0; i < packs; i++) {
        /* A value that is not packed has the place of its variable in the list of gradients. */
        const int64_t index = packs == 1 ? self->plan->member[of->first_member] : i;
        struct mirrored_pack pack = {
                .unit = unit, .root = (int)(index % self->roots), .param = param};

        pack.count = mirrored_pack_elements(of->elements, packs, i, &pack.first);
        if (pack.count > 0)
            self->pack[self->pack_count++] = pack;
    }
}

static void place_copies(struct mirrored_packs *self)
{
    self->copy_bytes = 0;
    for (int u = 0; u < self->plan->unit_count; u++) {
        const struct dpb_unit *unit = &self->plan->units[u];

        self->copy_offset[u] = -1;
        if (self->copies_from == 0 || unit->member_count < self->copies_from)
            continue;
        self->copy_offset[u] = self->copy_bytes;
        self->copy_bytes +=
                (unit->bytes + COPY_ALIGN_BYTES - 1) / COPY_ALIGN_BYTES * COPY_ALIGN_BYTES;
    }
}

dpb_status mirrored_packs_set_plan(struct mirrored_packs *self, const struct dpb_model *model,
                                   int64_t packs_per_unit, struct dpb_unit_plan *made,
                                   struct dpb_unit_plan *plan)
{
    const size_t units = (size_t)made->unit_count;
    struct mirrored_pack *pack = calloc(units * (size_t)packs_per_unit + 1, sizeof(*pack));
    int *pending = calloc(units + 1, sizeof(*pending));
    int64_t *copy_offset = calloc(units + 1, sizeof(*copy_offset));
    const dpb_status st = pack && pending && copy_offset ? ready_set_init(&self->ready, model)
                                                         : DPB_ERR_NO_MEMORY;

    if (st < 0) {
        dpb_error("strategy \"%s\": no room for %d units of %lld packs each", self->base.ops->name,
                  made->unit_count, (long long)packs_per_unit);
        free(copy_offset);
        free(pending);
        free(pack);
        dpb_unit_plan_release(made);
        return st;
    }
    free(self->copy_offset);
    free(self->pending);
    free(self->pack);
    self->copy_offset = copy_offset;
    self->pending = pending;
    self->pack = pack;
    self->pack_count = 0;
    *plan = *made;
    self->plan = plan;
    for (int u = 0; u < plan->unit_count; u++)
        cut_unit(self, u, packs_per_unit);
    place_copies(self);
    reset(self);
    return DPB_OK;
}

dpb_status mirrored_packs_place(dpb_strategy *strategy)
{
    struct mirrored_packs *self = (struct mirrored_packs *)strategy;
    void *copies;

    if (self->copy_bytes == 0)
        return DPB_OK;
    DPB_TRY(self->services.shared_alloc(self->services.ctx, (size_t)self->copy_bytes, &copies));
    self->copies = copies;
    return DPB_OK;
}

void mirrored_packs_memory(dpb_strategy *strategy, struct dpb_strategy_memory *memory)
{
    memory->shared_bytes = ((const struct mirrored_packs *)strategy)->copy_bytes;
}

/* ---- messages ---- */

static struct dpb_sync_message message_of(const struct mirrored_packs *self,
                                          const struct mirrored_pack *pack, enum dpb_coll_kind kind)
{
    const struct dpb_unit *unit = &self->plan->units[pack->unit];

    return (struct dpb_sync_message){
            .kind = kind,
            .dtype = unit->dtype,
            .count = pack->count,
            .root = pack->root,
            .when = self->overlaps ? DPB_SYNC_GRADIENT : DPB_SYNC_AFTER_BACKWARD,
            .param = pack->param,
            .unit = pack->unit,
    };
}

int mirrored_packs_messages(dpb_strategy *strategy, struct dpb_sync_message *messages)
{
    const struct mirrored_packs *self = (const struct mirrored_packs *)strategy;
    int count = 0;

    if (self->world_size == 1)
        return 0;
    if (!messages)
        return self->has_roots ? 2 * self->pack_count : self->pack_count;
    for (int i = 0; i < self->pack_count; i++) {
        const struct mirrored_pack *pack = &self->pack[i];

        if (self->has_roots) {
            messages[count++] = message_of(self, pack, DPB_COLL_REDUCE);
            messages[count++] = message_of(self, pack, DPB_COLL_BROADCAST);
        } else {
            messages[count++] = message_of(self, pack, DPB_COLL_ALL_REDUCE);
        }
    }
    return count;
}

/* ---- a step ---- */

static void *unit_place(const struct mirrored_packs *self, int unit)
{
    return self->copy_offset[unit] >= 0 ? self->copies + self->copy_offset[unit]
                                        : self->services.unit_data(self->services.ctx, unit);
}

static dpb_status start_pack(struct mirrored_packs *self, struct mirrored_pack *pack)
{
    const struct dpb_sync_services *services = &self->services;
    const struct dpb_unit *unit = &self->plan->units[pack->unit];
    struct dpb_sync_coll coll = {
            .kind = self->has_roots ? DPB_COLL_REDUCE : DPB_COLL_ALL_REDUCE,
            .dtype = unit->dtype,
            .buffer = (char *)unit_place(self, pack->unit) +
                      pack->first * (int64_t)dpb_dtype_bytes(unit->dtype),
            .count = pack->count,
            .root = pack->root,
            .scale = services->average,
            .unit = pack->unit,
    };

    DPB_TRY(services->start(services->ctx, &coll, &pack->handle[0]));
    if (!self->has_roots)
        return DPB_OK;
    coll.kind = DPB_COLL_BROADCAST;
    coll.scale = 1.0f;
    coll.follows = true;
    return services->start(services->ctx, &coll, &pack->handle[1]);
}

static dpb_status wait_for_next(struct mirrored_packs *self)
{
    const struct dpb_sync_services *services = &self->services;
    const struct mirrored_pack *pack = &self->pack[self->waited++];

    DPB_TRY(services->wait(services->ctx, pack->handle[0]));
    return self->has_roots ? services->wait(services->ctx, pack->handle[1]) : DPB_OK;
}

static dpb_status concatenate(struct mirrored_packs *self, int unit)
{
    return launch_copy(self->services.launcher, "concat", unit_place(self, unit),
                       self->services.unit_data(self->services.ctx, unit),
                       self->plan->units[unit].bytes);
}

/* Start the packs of units that are complete, in order, up to the first that is not. */
static dpb_status start_complete(struct mirrored_packs *self)
{
    const int under_way_max = self->plan->param_count + 32 < PACKS_UNDER_WAY_MAX
                                      ? self->plan->param_count + 32
                                      : PACKS_UNDER_WAY_MAX;

    if (self->world_size == 1)
        return DPB_OK;
    while (self->next_pack < self->pack_count &&
           self->pending[self->pack[self->next_pack].unit] == 0) {
        struct mirrored_pack *pack = &self->pack[self->next_pack];

        if (self->copy_offset[pack->unit] >= 0 && pack->first == 0)
            DPB_TRY(concatenate(self, pack->unit));
        if (self->next_pack - self->waited == under_way_max)
            DPB_TRY(wait_for_next(self));
        DPB_TRY(start_pack(self, pack));
        self->next_pack++;
    }
    return DPB_OK;
}

dpb_status mirrored_packs_step_begin(dpb_strategy *strategy, int64_t step)
{
    (void)step;
    reset((struct mirrored_packs *)strategy);
    return DPB_OK;
}

dpb_status mirrored_packs_grad_ready(dpb_strategy *strategy, int param)
{
    struct mirrored_packs *self = (struct mirrored_packs *)strategy;

    DPB_TRY(ready_set_add(&self->ready, param));
    self->pending[self->plan->unit_of[param]]--;
    return self->overlaps ? start_complete(self) : DPB_OK;
}

dpb_status mirrored_packs_backward_end(dpb_strategy *strategy)
{
    struct mirrored_packs *self = (struct mirrored_packs *)strategy;

    DPB_TRY(ready_set_check_complete(&self->ready));
    return start_complete(self);
}

dpb_status mirrored_packs_before_optimizer(dpb_strategy *strategy)
{
    struct mirrored_packs *self = (struct mirrored_packs *)strategy;

    while (self->waited < self->next_pack)
        DPB_TRY(wait_for_next(self));
    for (int u = 0; u < self->plan->unit_count; u++)
        if (self->copy_offset[u] >= 0)
            DPB_TRY(launch_copy(self->services.launcher, "split",
                                self->services.unit_data(self->services.ctx, u),
                                unit_place(self, u), self->plan->units[u].bytes));
    return DPB_OK;
}

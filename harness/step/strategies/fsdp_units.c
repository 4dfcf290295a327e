/* Wrapping by size, as size_based_auto_wrap_policy does: from the input on, layers are gathered
 * into a unit until they have enough elements. What is left in the end belongs to the root, and so
 * does a parameter that two layers share, because it must be there for both. */
#include "fsdp_units.h"

#include <stdlib.h>

#include "dpb_log.h"
#include "shard.h"

void fsdp_units_release(struct fsdp_units *units)
{
    free(units->unit);
    free(units->forward_order);
    *units = (struct fsdp_units){0};
}

/* ---- which parameters ---- */

/* Numbers of units from 1; 0 is the root. `order` has the parameters that are not shared. */
static int wrap_layers(const struct dpb_model *model, const int *order, int count,
                       int64_t unit_elements, int *unit_of)
{
    int64_t elements = 0;
    int units = 1, end;

    for (int begin = 0; begin < count; begin = end) {
        elements += shard_layer(model, order, count, begin, &end);
        for (int i = begin; i < end; i++)
            unit_of[order[i]] = units;
        if (elements >= unit_elements) {
            units++;
            elements = 0;
        }
    }
    for (int i = 0; i < count; i++)
        if (unit_of[order[i]] == units) /* what is left */
            unit_of[order[i]] = 0;
    return units;
}

/* Members of a flat parameter are in registration order. */
static void list_members(const struct dpb_model *model, const int *unit_of, int units,
                         struct dpb_bucket_assignment *assignment)
{
    int labels = 0;

    for (int u = 0; u < units; u++) {
        const int before = labels;

        for (int p = 0; p < model->param_count; p++)
            if (unit_of[p] == u)
                assignment->label[labels++] = p;
        if (labels > before)
            assignment->first[++assignment->bucket_count] = labels;
    }
}

static dpb_status assign(const struct dpb_model *model, int64_t unit_elements, int *forward_order,
                         bool *has_root, struct dpb_bucket_assignment *assignment)
{
    const int params = model->param_count;
    int *unit_of = calloc((size_t)params + 1, sizeof(*unit_of));
    int *order = calloc((size_t)params + 1, sizeof(*order));
    int count = 0, units;

    if (!unit_of || !order || !assignment->first || !assignment->label) {
        dpb_error("strategy \"fsdp\": out of memory for %d parameters", params);
        free(unit_of);
        free(order);
        return DPB_ERR_NO_MEMORY;
    }
    for (int r = params - 1; r >= 0; r--) {
        const int p = model->ready_order[r];

        forward_order[params - 1 - r] = p;
        if (!model->params[p].shared)
            order[count++] = p;
    }
    units = wrap_layers(model, order, count, unit_elements, unit_of);
    list_members(model, unit_of, units, assignment);
    *has_root = unit_of[assignment->label[0]] == 0;
    free(unit_of);
    free(order);
    return DPB_OK;
}

/* ---- where ---- */

/* Unit u goes to place[u], and that begins at element at[u]: the root has one of its own; `places`
 * are shared by the others in turn, each as large as its largest unit. Returns the elements of all.
 */
static int64_t share_places(const struct fsdp_units *units, int world_size, int places, int *place,
                            int64_t *at)
{
    const int first = units->has_root, pool = units->count - first;
    const int used = first + (places > 0 && places < pool ? places : pool);
    int64_t end = 0;

    for (int i = 0; i < used; i++) {
        const int step = i < first ? units->count : used - first;
        int64_t largest = 0;

        for (int u = i; u < units->count; u += step) {
            const int64_t bytes = units->unit[u].shard * world_size * (int64_t)sizeof(float);
            const int64_t needed = shard_aligned(bytes) / (int64_t)sizeof(float);

            largest = needed > largest ? needed : largest;
            place[u] = i;
            at[u] = end;
        }
        end += largest;
    }
    return end;
}

static void measure(const struct dpb_unit_plan *plan, int world_size, struct fsdp_units *units)
{
    for (int u = 0; u < units->count; u++) {
        struct fsdp_unit *unit = &units->unit[u];

        unit->elements = plan->units[u].elements;
        unit->shard = (unit->elements + world_size - 1) / world_size;
        unit->shard_at = units->shard_elements;
        units->shard_elements += unit->shard;
    }
}

static dpb_status place_units(const struct fsdp_wrapping *wrapping, struct fsdp_units *units,
                              struct dpb_unit_plan *plan)
{
    const int ranks = wrapping->world_size;
    int64_t *at = calloc((size_t)units->count + 1, sizeof(*at));
    int *place = calloc((size_t)units->count + 1, sizeof(*place));
    dpb_status st = DPB_OK;

    if (!at || !place) {
        dpb_error("strategy \"fsdp\": out of memory for %d units", units->count);
        st = DPB_ERR_NO_MEMORY;
        goto out;
    }
    measure(plan, ranks, units);
    units->full_elements = share_places(units, ranks, wrapping->param_places, place, at);
    for (int u = 0; u < units->count; u++) {
        units->unit[u].full_at = at[u];
        units->unit[u].param_place = place[u];
    }
    plan->arena_bytes =
            share_places(units, ranks, wrapping->grad_places, place, at) * (int64_t)sizeof(float);
    for (int u = 0; u < units->count; u++) {
        shard_move_unit(plan, u, at[u] * (int64_t)sizeof(float));
        units->unit[u].grad_place = place[u];
    }
out:
    free(place);
    free(at);
    return st;
}

dpb_status fsdp_units_plan(const struct dpb_model *model, const struct fsdp_wrapping *wrapping,
                           struct fsdp_units *units, struct dpb_unit_plan *plan)
{
    const size_t params = (size_t)model->param_count + 1;
    struct dpb_bucket_assignment assignment = {.first = calloc(params + 1, sizeof(int)),
                                               .label = calloc(params, sizeof(int))};
    struct fsdp_units made = {.forward_order = calloc(params, sizeof(int)),
                              .unit = calloc(params, sizeof(*made.unit))};
    struct dpb_unit_plan made_plan = {0};
    dpb_status st = DPB_ERR_NO_MEMORY;

    if (!made.forward_order || !made.unit) {
        dpb_error("strategy \"fsdp\": out of memory for %d parameters", model->param_count);
        goto out;
    }
    DPB_TRY_GOTO(
            st,
            assign(model, wrapping->unit_elements, made.forward_order, &made.has_root, &assignment),
            out);
    DPB_TRY_GOTO(
            st,
            dpb_unit_plan_from_buckets(model->params, model->param_count, &assignment, &made_plan),
            out);
    made.count = made_plan.unit_count;
    DPB_TRY_GOTO(st, place_units(wrapping, &made, &made_plan), out);
    *units = made;
    *plan = made_plan;
out:
    dpb_bucket_assignment_release(&assignment);
    if (st < 0) {
        fsdp_units_release(&made);
        dpb_unit_plan_release(&made_plan);
    }
    return st;
}

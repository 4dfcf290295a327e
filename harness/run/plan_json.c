/* A plan as JSON for the manifest, back from it for --resume, and as text for --dry-run. */
#include "dpb_plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"

dpb_json *dpb_plan_to_json(const struct dpb_plan *plan)
{
    dpb_json *json = dpb_json_object();
    dpb_json_set_string(json, "name", plan->name);
    dpb_json_set_int(json, "seed", (int64_t)plan->seed);
    dpb_json_set_int(json, "repeats", plan->repeats);
    dpb_json *axes = dpb_json_array();
    for (size_t i = 0; i < plan->axis_count; i++)
        dpb_json_append(axes, dpb_json_string(plan->axis_names[i]));
    dpb_json_set(json, "axes", axes);
    dpb_json *cells = dpb_json_array();
    for (size_t i = 0; i < plan->cell_count; i++) {
        dpb_json *cell = dpb_json_object();
        dpb_json_set_int(cell, "cell", (int64_t)i);
        dpb_json_set_string(cell, "label", plan->cells[i].label);
        dpb_json_set_string(cell, "series", plan->cells[i].series);
        dpb_json_set_string(cell, "compute_series", plan->cells[i].compute_series);
        dpb_json_set(cell, "config", dpb_config_to_text_json(plan->cells[i].config));
        dpb_json_append(cells, cell);
    }
    dpb_json_set(json, "cells", cells);
    dpb_json *order = dpb_json_array();
    for (size_t i = 0; i < plan->launch_count; i++) {
        int64_t pair[2] = {plan->order[i].cell, plan->order[i].repeat};
        dpb_json_append(order, dpb_json_ints(pair, 2));
    }
    dpb_json_set(json, "order", order);
    return json;
}

static dpb_status cell_from_json(const struct dpb_registry *registry, const dpb_json *json,
                                 struct dpb_plan_cell *cell)
{
    const char *label = dpb_json_as_string(dpb_json_get(json, "label"), NULL);
    const char *series = dpb_json_as_string(dpb_json_get(json, "series"), NULL);
    const char *compute = dpb_json_as_string(dpb_json_get(json, "compute_series"), NULL);
    if (!label || !series || !compute) {
        dpb_error("the manifest's plan lacks a cell's label or series");
        dpb_log_hint("start the sweep anew; this run cannot be resumed");
        return DPB_ERR_CORRUPT;
    }
    DPB_TRY(dpb_config_from_text_json(registry->options, dpb_json_get(json, "config"),
                                      &cell->config));
    cell->label = strdup(label);
    cell->series = strdup(series);
    cell->compute_series = strdup(compute);
    return DPB_OK;
}

dpb_status dpb_plan_from_json(const struct dpb_registry *registry, const dpb_json *json,
                              struct dpb_plan *plan)
{
    struct dpb_plan built = {0};
    const dpb_json *cells = dpb_json_get(json, "cells");
    const dpb_json *order = dpb_json_get(json, "order");
    const dpb_json *axes = dpb_json_get(json, "axes");
    dpb_status st = DPB_ERR_CORRUPT;
    built.name = strdup(dpb_json_as_string(dpb_json_get(json, "name"), ""));
    built.seed = (uint64_t)dpb_json_as_int(dpb_json_get(json, "seed"), 0);
    built.repeats = dpb_json_as_int(dpb_json_get(json, "repeats"), 0);
    built.cells = calloc(dpb_json_size(cells) + 1, sizeof(*built.cells));
    built.order = calloc(dpb_json_size(order) + 1, sizeof(*built.order));
    built.axis_names = calloc(dpb_json_size(axes) + 1, sizeof(*built.axis_names));
    if (!built.cells || !built.order || !built.axis_names) {
        st = DPB_ERR_NO_MEMORY;
        goto err;
    }
    for (size_t i = 0; i < dpb_json_size(axes); i++)
        built.axis_names[built.axis_count++] = strdup(dpb_json_as_string(dpb_json_at(axes, i), ""));
    for (size_t i = 0; i < dpb_json_size(cells); i++) {
        DPB_TRY_GOTO(st, cell_from_json(registry, dpb_json_at(cells, i), &built.cells[i]), err);
        built.cell_count++;
    }
    for (size_t i = 0; i < dpb_json_size(order); i++) {
        const dpb_json *pair = dpb_json_at(order, i);
        int64_t cell = dpb_json_as_int(dpb_json_at(pair, 0), -1);
        int64_t repeat = dpb_json_as_int(dpb_json_at(pair, 1), -1);
        if (cell < 0 || cell >= (int64_t)built.cell_count || repeat < 0) {
            dpb_error("the manifest's order names cell %" PRId64 ", repeat %" PRId64
                      ", which its plan does not have",
                      cell, repeat);
            dpb_log_hint("start the sweep anew; this run cannot be resumed");
            st = DPB_ERR_CORRUPT;
            goto err;
        }
        built.order[built.launch_count++] =
                (struct dpb_plan_launch){(int32_t)cell, (int32_t)repeat};
    }
    if (built.cell_count == 0 || built.launch_count == 0) {
        dpb_error("the manifest holds no plan");
        dpb_log_hint("start the sweep anew; this run cannot be resumed");
        st = DPB_ERR_CORRUPT;
        goto err;
    }
    *plan = built;
    return DPB_OK;
err:
    dpb_plan_release(&built);
    return st;
}

dpb_status dpb_plan_text(const struct dpb_plan *plan, struct dpb_str *out)
{
    dpb_str_appendf(
            out, "%s: %zu cell%s, %" PRId64 " repeat%s, %zu launch%s, order by seed %" PRIu64 "\n",
            plan->name, plan->cell_count, plan->cell_count == 1 ? "" : "s", plan->repeats,
            plan->repeats == 1 ? "" : "s", plan->launch_count, plan->launch_count == 1 ? "" : "es",
            plan->seed);
    for (size_t i = 0; i < plan->cell_count; i++) {
        dpb_str_appendf(out, "%4zu  %s\n      dpbench run", i,
                        plan->cells[i].label[0] ? plan->cells[i].label : "(one cell)");
        DPB_TRY(dpb_config_repro(plan->cells[i].config, out));
        dpb_str_append(out, "\n");
    }
    return out->failed ? DPB_ERR_NO_MEMORY : DPB_OK;
}

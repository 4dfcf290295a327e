#include "plan_report.h"

static dpb_json *unit_json(const struct dpb_model *model, const struct dpb_unit_plan *plan, int u)
{
    const struct dpb_unit *unit = &plan->units[u];
    dpb_json *json = dpb_json_object();
    dpb_json *members = dpb_json_array();

    for (int m = 0; m < unit->member_count; m++) {
        const int p = plan->member[unit->first_member + m];

        dpb_json_append(members, dpb_json_string(model->params[p].name));
    }
    dpb_json_set_int(json, "bytes", unit->bytes);
    dpb_json_set(json, "members", members);
    return json;
}

dpb_json *plan_report(const struct dpb_model *model, const struct dpb_unit_plan *plan, bool rebuilt,
                      const struct dpb_strategy_ops *ops, dpb_strategy *strategy)
{
    dpb_json *json = dpb_json_object();
    dpb_json *units = dpb_json_array();

    for (int u = 0; u < plan->unit_count; u++)
        dpb_json_append(units, unit_json(model, plan, u));
    dpb_json_set(json, "units", units);
    dpb_json_set_bool(json, "rebuilt", rebuilt);
    if (ops->describe)
        ops->describe(strategy, json);
    return json;
}

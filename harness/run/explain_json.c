/* An explanation as JSON. */
#include <math.h>

#include "dpb_explain.h"

static dpb_json *plan_json(const struct dpb_explanation *x, const struct dpb_unit_plan *plan)
{
    dpb_json *json = dpb_json_object(), *units = dpb_json_array();

    for (int u = 0; u < plan->unit_count; u++) {
        dpb_json *unit = dpb_json_object(), *members = dpb_json_array();

        for (int m = 0; m < plan->units[u].member_count; m++) {
            int param = plan->member[plan->units[u].first_member + m];
            dpb_json_append(members, dpb_json_string(x->model->params[param].name));
        }
        dpb_json_set_int(unit, "bytes", plan->units[u].bytes);
        dpb_json_set_int(unit, "elements", plan->units[u].elements);
        dpb_json_set_string(unit, "dtype", dpb_dtype_text(plan->units[u].dtype));
        dpb_json_set(unit, "members", members);
        dpb_json_append(units, unit);
    }
    dpb_json_set(json, "units", units);
    return json;
}

static void set_wire_ns(dpb_json *json, const char *key, int64_t ns)
{
    if (ns >= 0)
        dpb_json_set_int(json, key, ns);
    else
        dpb_json_set_absent(json, key, "no link is given");
}

static dpb_json *message_json(const struct dpb_explanation *x,
                              const struct dpb_explain_message *message)
{
    const struct dpb_sync_message *what = &message->what;
    dpb_json *json = dpb_json_object();

    dpb_json_set_string(json, "collective", dpb_coll_text(what->kind));
    if (what->name)
        dpb_json_set_string(json, "name", what->name);
    if (what->unit >= 0)
        dpb_json_set_int(json, "unit", what->unit);
    else
        dpb_json_set_absent(json, "unit", "of no unit");
    dpb_json_set_string(json, "dtype", dpb_dtype_text(what->dtype));
    dpb_json_set_int(json, "elements", what->count);
    dpb_json_set_int(json, "bytes", message->bytes);
    dpb_json_set_string(json, "when", dpb_sync_when_text(what->when));
    if (message->after >= 0)
        dpb_json_set_string(json, "parameter", x->model->params[message->after].name);
    else
        dpb_json_set_absent(json, "parameter", "no single one lets it go");
    if (isfinite(message->backward_done))
        dpb_json_set_real(json, "backward_flop_share", message->backward_done);
    else
        dpb_json_set_absent(json, "backward_flop_share", "not in the backward pass");
    if (what->every > 1)
        dpb_json_set_int(json, "every_steps", what->every);
    if (message->times > 1)
        dpb_json_set_int(json, "times_per_step", message->times);
    dpb_json_set_bool(json, "always_exposed", message->always_exposed);
    dpb_json_set_int(json, "wire_bytes", message->wire_bytes);
    set_wire_ns(json, "wire_ns", message->wire_ns);
    return json;
}

static dpb_json *exchange_json(const struct dpb_explain_exchange *exchange)
{
    const struct dpb_workload_exchange *what = &exchange->what;
    dpb_json *json = dpb_json_object();

    dpb_json_set_string(json, "name", what->name);
    dpb_json_set_string(json, "collective", dpb_coll_text(what->kind));
    dpb_json_set_string(json, "dtype", dpb_dtype_text(what->dtype));
    dpb_json_set_int(json, "elements", what->count);
    dpb_json_set_int(json, "bytes", exchange->bytes);
    dpb_json_set_string(json, "formula", what->formula);
    dpb_json_set_string(json, "when", what->pass == DPB_PASS_FORWARD ? "forward" : "backward");
    if (what->meanwhile)
        dpb_json_set_string(json, "meanwhile", what->meanwhile);
    else
        dpb_json_set_absent(json, "meanwhile", "the rank waits for it at once");
    if (exchange->times > 1)
        dpb_json_set_int(json, "times_per_step", exchange->times);
    dpb_json_set_int(json, "wire_bytes", exchange->wire_bytes);
    set_wire_ns(json, "wire_ns", exchange->wire_ns);
    return json;
}

static dpb_json *memory_json(const struct dpb_step_memory *memory)
{
    dpb_json *json = dpb_json_object();

    dpb_json_set_int(json, "parameters_bytes", memory->parameters);
    dpb_json_set_int(json, "gradients_bytes", memory->gradients);
    dpb_json_set_int(json, "optimizer_bytes", memory->optimizer);
    dpb_json_set_int(json, "communication_bytes", memory->communication);
    dpb_json_set_int(json, "strategy_bytes", memory->strategy);
    dpb_json_set_int(json, "total_bytes", dpb_step_memory_sum(memory));
    return json;
}

static dpb_json *link_json(const struct dpb_link *link)
{
    dpb_json *json = dpb_json_object();

    dpb_json_set_real(json, "bw_bytes_per_s", link->bw_bytes_per_s);
    dpb_json_set_int(json, "latency_ns", link->latency_ns);
    return json;
}

/* Which bytes leave a node depends on the algorithm, and a library's is not known. */
static void set_levels(dpb_json *json, const struct dpb_explanation *x)
{
    const struct {
        const char *key;
        int64_t bytes;
    } levels[] = {{"wire_bytes_inside_per_step", x->level_bytes.inside_bytes},
                  {"wire_bytes_between_per_step", x->level_bytes.between_bytes},
                  {"node_wire_bytes_per_step", x->node_wire_bytes}};

    dpb_json_set_int(json, "nodes", x->nodes);
    for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++) {
        if (x->counts_levels)
            dpb_json_set_int(json, levels[i].key, levels[i].bytes);
        else
            dpb_json_set_absent(json, levels[i].key, "the comm's algorithm is not known");
    }
}

dpb_json *dpb_explanation_json(const struct dpb_explanation *x)
{
    dpb_json *json = dpb_json_object(), *messages = dpb_json_array();
    dpb_json *exchanges = dpb_json_array();

    dpb_json_set_string(json, "schema", "dpb.explain/1");
    dpb_json_set_string(json, "workload", x->workload);
    dpb_json_set_string(json, "strategy", x->strategy);
    dpb_json_set_int(json, "ranks", x->ranks);
    dpb_json_set_int(json, "batch_per_rank", x->batch_per_rank);
    dpb_json_set_int(json, "gradients", x->model->param_count);
    dpb_json_set_int(json, "gradient_bytes", x->gradient_bytes);
    dpb_json_set_string(json, "algorithm", x->algorithm);
    if (x->has_link)
        dpb_json_set(json, "link", link_json(&x->link));
    else
        dpb_json_set_absent(json, "link", "none is given");
    dpb_json_set_bool(json, "plan_changes_after_step_1", x->replans);
    dpb_json_set(json, "first_plan", plan_json(x, &x->first));
    dpb_json_set(json, "steady_plan", plan_json(x, &x->steady));
    dpb_json_set(json, "described", dpb_json_copy(x->described));
    for (int i = 0; i < x->message_count; i++)
        dpb_json_append(messages, message_json(x, &x->messages[i]));
    dpb_json_set(json, "messages", messages);
    for (int i = 0; i < x->exchange_count; i++)
        dpb_json_append(exchanges, exchange_json(&x->exchanges[i]));
    dpb_json_set(json, "exchanges", exchanges);
    dpb_json_set_int(json, "exchanges_per_step", x->exchanged_count);
    dpb_json_set_int(json, "exchange_bytes_per_step", x->exchange_bytes);
    dpb_json_set_int(json, "wire_bytes_per_step", x->wire_bytes);
    set_levels(json, x);
    set_wire_ns(json, "wire_ns_per_step", x->wire_ns);
    set_wire_ns(json, "always_exposed_wire_ns", x->has_link ? x->exposed_wire_ns : -1);
    if (x->hidden_within_ns >= 0)
        dpb_json_set_int(json, "hidden_within_backward_ns", x->hidden_within_ns);
    else
        dpb_json_set_absent(json, "hidden_within_backward_ns",
                            !x->has_link            ? "no link is given"
                            : x->exchange_count > 0 ? "what the network exchanges itself is on the "
                                                      "link, too"
                                                    : "not all that can hide does so behind "
                                                      "backward");
    dpb_json_set(json, "memory", memory_json(&x->memory));
    dpb_json_set(json, "memory_of_one_rank_alone", memory_json(&x->alone));
    dpb_json_set(json, "notes", dpb_json_copy(x->notes));
    return json;
}

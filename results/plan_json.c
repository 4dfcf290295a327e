/* Options of a capacity plan as JSON. */
#include "dpb_capacity_plan.h"

#include <math.h>

static void set(dpb_json *json, const char *key, double value, const char *reason)
{
    if (isfinite(value))
        dpb_json_set_real(json, key, value);
    else
        dpb_json_set_absent(json, key, reason);
}

static void set_step(const struct dpb_capacity_option *option, dpb_json *json)
{
    static const char *const keys[] = {
#define KEY(name, key, text) key "_ns",
            DPB_CAPACITY_LOSS_MAP(KEY)
#undef KEY
    };
    dpb_json *parts = dpb_json_object();

    set(json, "step_ns", option->step_ns, "not simulated");
    set(json, "step_low_ns", option->step_low_ns, "too few steps were simulated");
    set(json, "step_high_ns", option->step_high_ns, "too few steps were simulated");
    set(json, "step_p99_ns", option->p99_ns, "not simulated");
    dpb_json_set_int(json, "steps_simulated", option->steps_simulated);
    dpb_json_set_real(parts, "ideal_ns", option->ideal_ns);
    for (int l = 0; l < DPB_LOSS_COUNT; l++)
        dpb_json_set_real(parts, keys[l], option->loss_ns[l]);
    dpb_json_set(json, "breakdown", parts);
    set(json, "samples_per_s", option->samples_per_s, "not simulated");
    set(json, "efficiency", option->efficiency, "not simulated");
    set(json, "efficiency_low", option->efficiency_low, "too few steps were simulated");
    set(json, "efficiency_high", option->efficiency_high, "too few steps were simulated");
}

static void set_training(const struct dpb_capacity_option *option, dpb_json *json)
{
    dpb_json_set_real(json, "steps", option->steps);
    dpb_json_set_real(json, "useful_s", option->useful_s);
    dpb_json_set_real(json, "goodput", option->goodput);
    dpb_json_set_real(json, "wall_s", option->wall_s);
    set(json, "wall_low_s", option->wall_low_s, "too few steps were simulated");
    set(json, "wall_high_s", option->wall_high_s, "too few steps were simulated");
    set(json, "checkpoint_interval_s", option->checkpoint_interval_s,
        "the mean time between failures, or the time of a checkpoint, is not known");
    dpb_json_set_real(json, "checkpoint_share", option->checkpoint_share);
    dpb_json_set_real(json, "rework_share", option->rework_share);
    dpb_json_set_real(json, "restart_share", option->restart_share);
    set(json, "cost", option->cost, "no price is known for this machine");
    set(json, "energy_kwh", option->energy_kwh, "the power of this accelerator is not known");
}

static void set_memory(const struct dpb_capacity_option *option, dpb_json *json)
{
    dpb_json_set_bool(json, "fits", option->fits);
    set(json, "memory_needed_bytes", option->needed_bytes, "not known");
    set(json, "memory_bytes", option->memory_bytes, "the machine profile does not say");
    set(json, "largest_batch", option->largest_batch, "the machine profile has no memory");
}

static void set_network(const struct dpb_capacity_option *option, dpb_json *json)
{
    static const char *const keys[] = {"measured", "interpolated", "extrapolated", "assumed"};
    dpb_json *shares = dpb_json_object();

    for (int o = 0; o < 4; o++)
        dpb_json_set_real(shares, keys[o], option->origin_share[o]);
    dpb_json_set(json, "network_time_by_origin", shares);
    dpb_json_set_real(json, "extrapolated_by", option->extrapolated_by);
    dpb_json_set_real(json, "extrapolated_below", option->extrapolated_below);
}

dpb_json *dpb_capacity_option_json(const struct dpb_capacity_option *option, bool is_on_front)
{
    dpb_json *json = dpb_json_object();

    dpb_json_set_string(json, "machine", option->machine);
    dpb_json_set_int(json, "accelerators", option->accelerators);
    dpb_json_set_int(json, "nodes", option->nodes);
    dpb_json_set_string(json, "strategy", option->strategy);
    if (option->bucket[0])
        dpb_json_set_string(json, "bucket", option->bucket);
    else
        dpb_json_set_absent(json, "bucket", "the strategy has no such option");
    if (option->settings[0])
        dpb_json_set_string(json, "settings", option->settings);
    else
        dpb_json_set_absent(json, "settings", "no other option varies");
    dpb_json_set_int(json, "batch_per_rank", option->batch_per_rank);
    dpb_json_set_int(json, "global_batch", option->global_batch);
    set_step(option, json);
    set_training(option, json);
    set_memory(option, json);
    set_network(option, json);
    dpb_json_set_bool(json, "on_pareto_front", is_on_front);
    return json;
}

/* From the time of a step to that of a training. */
#include <math.h>

#include "dpb_memory.h"
#include "plan_run.h"

/* Parameters and the optimizer's state, as one rank alone has them. */
static dpb_status state_bytes(const struct plan_run *run, double *bytes)
{
    struct dpb_optimizer_config optimizer;
    struct dpb_step_shape shape;
    struct dpb_step_memory memory;

    dpb_step_shape_of(run->question.registry, plan_config(run, 0), &optimizer, &shape);
    shape.ranks = shape.ranks_per_node = 1;
    DPB_TRY(dpb_step_memory_predict(&shape, 0, &memory));
    *bytes = (double)memory.parameters + (double)memory.optimizer;
    return DPB_OK;
}

dpb_status plan_checkpoint_s(const struct plan_run *run, double *seconds)
{
    const struct plan_options *o = run->question.options;
    double bytes = (double)o->checkpoint_bytes;

    if (o->checkpoint_ns != DPB_AUTO) {
        *seconds = (double)o->checkpoint_ns / 1e9;
        return DPB_OK;
    }
    if (o->checkpoint_bytes == DPB_AUTO)
        DPB_TRY(state_bytes(run, &bytes));
    *seconds = bytes / o->checkpoint_bytes_per_s;
    return DPB_OK;
}

static double steps_of(const struct plan_options *o, double global_batch)
{
    if (o->samples_to_quality == DPB_AUTO)
        return dpb_capacity_steps((double)o->samples, o->epochs, global_batch);
    return ceil(dpb_capacity_samples_to_quality((double)o->samples_to_quality, global_batch,
                                                isnan(o->critical_batch) ? INFINITY
                                                                         : o->critical_batch) /
                global_batch);
}

void plan_economy(const struct plan_run *run, struct dpb_capacity_option *option)
{
    const struct plan_machine *machine = &run->question.machines[option->machine_index];
    const struct dpb_capacity_failures failures = {
            .mtbf_s = isnan(machine->mtbf_s) ? INFINITY : machine->mtbf_s / option->nodes,
            .checkpoint_s = run->checkpoint_s,
            .restart_s = (double)run->question.options->restart_ns / 1e9,
    };

    option->steps = steps_of(run->question.options, (double)option->global_batch);
    option->useful_s = option->steps * option->step_ns / 1e9;
    const struct dpb_capacity_goodput goodput = dpb_capacity_goodput(option->useful_s, &failures);
    option->goodput = goodput.goodput;
    option->checkpoint_interval_s = goodput.interval_s;
    option->checkpoint_share = goodput.checkpoint_share;
    option->rework_share = goodput.rework_share;
    option->restart_share = goodput.restart_share;
    option->wall_s = option->useful_s / goodput.goodput;
    option->wall_low_s = option->wall_s * option->step_low_ns / option->step_ns;
    option->wall_high_s = option->wall_s * option->step_high_ns / option->step_ns;
    option->cost = dpb_capacity_cost(option->accelerators, machine->price, option->wall_s);
    option->energy_kwh =
            dpb_capacity_energy_kwh(option->accelerators, machine->power_w, option->wall_s);
}

/* What a simulated cell's options mean, and which of them cannot be simulated. */
#include "sim_resolve.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "dpb_log.h"
#include "sim_cell.h"

static dpb_status refuse(const char *option, const char *why, const char *remedy)
{
    dpb_error("%s cannot be simulated: %s", option, why);
    dpb_log_hint("%s", remedy);
    return DPB_ERR_USAGE;
}

static dpb_status check_machine_is_given(const struct dpb_sim_options *o)
{
    if (o->machine[0] || o->profile[0])
        return DPB_OK;
    dpb_error("device \"sim\" needs --machine");
    dpb_log_hint("name a machine profile (`dpbench list machines`), a file, or a --profile of this "
                 "workload");
    return DPB_ERR_USAGE;
}

static dpb_status check_workload(const struct dpb_registry *registry, const dpb_config *config,
                                 const struct dpb_experiment *e)
{
    const struct dpb_workload_ops *workload = dpb_registry_workload(registry, e->workload);
    const struct dpb_model *model = workload->model(dpb_config_struct(config, "workload"));

    if (e->epochs > 0)
        return refuse("--epochs", "there is no data set", "give --steps");
    if (e->sync_bn && e->ranks > 1)
        return refuse("--sync-bn on", "what layers exchange themselves is not in the model",
                      "leave it out");
    if (e->ranks > 1 && dpb_model_own_table_elements(model) > 0)
        return refuse("this workload with tables of its own",
                      "the rows that it exchanges itself are not in the model",
                      "use --embedding-gradients dense, with which all gradients travel");
    return DPB_OK;
}

static dpb_status check_noise(const struct dpb_experiment *e, const struct dpb_sim_options *o)
{
    if (o->slow_ranks > e->ranks) {
        dpb_error("--slow-ranks %" PRId64 " is more than the %" PRId64 " ranks", o->slow_ranks,
                  e->ranks);
        dpb_log_hint("give at most as many as --ranks");
        return DPB_ERR_USAGE;
    }
    if ((o->slow_ranks > 0) == (o->slow_by > 0))
        return DPB_OK;
    dpb_error("--%s cannot take effect without --%s", o->slow_ranks > 0 ? "slow-ranks" : "slow-by",
              o->slow_ranks > 0 ? "slow-by" : "slow-ranks");
    dpb_log_hint("give both: --slow-ranks 1 --slow-by 20%%");
    return DPB_ERR_USAGE;
}

static dpb_status check_tf32(const struct dpb_experiment *e, const struct dpb_sim_options *o,
                             const struct dpb_machine *machine)
{
    if (!o->tf32 ||
        (e->precision == DPB_F32 && dpb_machine_has(machine, DPB_FIGURE_TF32) && !o->profile[0]))
        return DPB_OK;
    dpb_error("--tf32 on cannot take effect: %s",
              o->profile[0]             ? "times are those of the profile"
              : e->precision != DPB_F32 ? "it is for --precision fp32"
                                        : "the machine has no figure compute.tf32");
    dpb_log_hint("leave it out");
    return DPB_ERR_USAGE;
}

/* Whole nodes, each with as many ranks. */
static dpb_status resolve_nodes(dpb_config *config, const struct dpb_experiment *e,
                                const struct dpb_machine *machine)
{
    const int64_t most = machine->accelerators_per_node;
    char text[32];

    if (e->ranks_per_node != DPB_AUTO && e->ranks_per_node > most) {
        dpb_error("--ranks-per-node %" PRId64 ": a node of machine \"%s\" has %" PRId64
                  " accelerators",
                  e->ranks_per_node, machine->name, most);
        dpb_log_hint("give at most %" PRId64, most);
        return DPB_ERR_USAGE;
    }
    if (e->ranks_per_node != DPB_AUTO)
        return DPB_OK;
    if (e->ranks > most && e->ranks % most != 0) {
        dpb_error("--ranks %" PRId64 " do not fill nodes of machine \"%s\", which have %" PRId64
                  " accelerators",
                  e->ranks, machine->name, most);
        dpb_log_hint("give a multiple of %" PRId64 ", or a --ranks-per-node that divides the ranks",
                     most);
        return DPB_ERR_USAGE;
    }
    snprintf(text, sizeof(text), "%" PRId64, e->ranks < most ? e->ranks : most);
    return dpb_config_set(config, "ranks-per-node", text);
}

dpb_status sim_resolve(const struct dpb_registry *registry, dpb_config *config)
{
    const struct dpb_experiment *e = dpb_config_struct(config, "experiment");
    const struct dpb_sim_options *o = dpb_config_struct(config, "device");
    struct dpb_machine machine;
    dpb_status st;

    DPB_TRY(check_machine_is_given(o));
    DPB_TRY(check_noise(e, o));
    DPB_TRY(check_workload(registry, config, e));
    DPB_TRY(sim_machine_open(o, &machine));
    st = check_tf32(e, o, &machine);
    if (st == DPB_OK)
        st = resolve_nodes(config, e, &machine);
    /* What this host is does not matter: every cell is the same on every host. */
    DPB_KEEP(st, dpb_config_set(config, "threads-per-rank", "1"));
    DPB_KEEP(st, dpb_config_set(config, "data", "synthetic"));
    dpb_machine_release(&machine);
    return st;
}

dpb_status sim_memory_bytes(const dpb_config *config, int64_t *bytes)
{
    const struct dpb_sim_options *o = dpb_config_struct(config, "device");
    struct dpb_machine machine;

    DPB_TRY(sim_machine_open(o, &machine));
    *bytes = o->machine[0] ? (int64_t)dpb_machine_value(&machine, DPB_FIGURE_MEMORY,
                                                        (double)INT64_MAX / 2)
                           : INT64_MAX;
    dpb_machine_release(&machine);
    return DPB_OK;
}

#include "sim_registry.h"

#include <stdio.h>
#include <string.h>

#include "dpb_comm_sim.h"
#include "dpb_device_sim.h"
#include "dpb_experiment.h"
#include "dpb_simulate.h"
#include "dpb_strategies.h"
#include "dpb_test.h"
#include "dpb_workloads.h"

static const struct dpb_workload_ops *const workloads[] = {&dpb_workload_mnist_cnn_ops,
                                                           &dpb_workload_resnet50_ops};
static const struct dpb_comm_ops *const comms[] = {&dpb_comm_sim_ops};
static const struct dpb_strategy_ops *const strategies[] = {
        &dpb_strategy_ddp_ops, &dpb_strategy_none_ops, &dpb_strategy_horovod_ops};
static const struct dpb_recorder_ops *const recorders[] = {&dpb_recorder_host_ops};

static const struct dpb_part_name parts[] = {
        {"device", "cpu", "", NULL}, /* the default of --device must be known */
        {"workload", "mnist-cnn", "", NULL}, {"workload", "resnet50", "", NULL},
        {"device", "sim", "", NULL},         {"comm", "sim", "", "sim"},
        {"recorder", "host", "", "sim"},     {"strategy", "ddp", "", NULL},
        {"strategy", "none", "", NULL},      {"strategy", "horovod", "", NULL},
};

const struct dpb_registry *sim_registry(void)
{
    static struct dpb_device_ops device;
    static const struct dpb_device_ops *const devices[] = {&device};
    static const struct dpb_option_table *tables[5];
    static struct dpb_option_set set;
    static struct dpb_registry registry;

    device = dpb_device_sim_ops;
    device.options = &dpb_sim_option_table;
    tables[0] = &dpb_experiment_table;
    tables[1] = dpb_strategy_ddp_ops.options;
    tables[2] = &dpb_sim_option_table;
    tables[3] = dpb_workload_resnet50_ops.options;
    tables[4] = dpb_strategy_horovod_ops.options;
    set = (struct dpb_option_set){tables, 5, parts, sizeof(parts) / sizeof(parts[0])};
    registry = (struct dpb_registry){
            .workloads = workloads,
            .workload_count = 2,
            .devices = devices,
            .device_count = 1,
            .comms = comms,
            .comm_count = 1,
            .strategies = strategies,
            .strategy_count = 3,
            .recorders = recorders,
            .recorder_count = 1,
            .integer_workload = &dpb_workload_integers_ops,
            .options = &set,
            .sim_device = &dpb_device_sim_ops,
            .sim_comm = &dpb_comm_sim_ops,
            .simulator = &dpb_simulator_here,
    };
    return &registry;
}

dpb_config *sim_cell_of(const char *settings, dpb_status *status)
{
    char copy[2048], *rest = copy, *item;
    struct dpb_assignment given[64] = {{"device", "sim", "test"}};
    size_t count = 1;
    dpb_config *config = NULL;

    snprintf(copy, sizeof(copy), "%s", settings);
    while ((item = strsep(&rest, " ")) != NULL) {
        char *equals = strchr(item, '=');

        if (!equals)
            continue;
        *equals = '\0';
        given[count++] = (struct dpb_assignment){item, equals + 1, "test"};
    }
    *status = dpb_config_new(sim_registry()->options, given, count, false, &config);
    if (*status == DPB_OK)
        *status = dpb_experiment_resolve(config, sim_registry(), 4, 1);
    if (*status == DPB_OK)
        return config;
    dpb_config_free(config);
    return NULL;
}

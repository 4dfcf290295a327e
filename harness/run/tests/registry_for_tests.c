/* Real option tables, so that plans are tested against what users write. */
#include "registry_for_tests.h"

#include "dpb_comm_shm.h"
#include "dpb_device_cpu.h"
#include "dpb_experiment.h"
#include "dpb_strategies.h"
#include "dpb_workloads.h"

static const struct dpb_workload_ops *const workloads[] = {
        &dpb_workload_mnist_cnn_ops, &dpb_workload_mnist_mlp_ops, &dpb_workload_cifar_resnet20_ops};
static const struct dpb_device_ops *const devices[] = {&dpb_device_cpu_ops};
static const struct dpb_comm_ops *const comms[] = {&dpb_comm_shm_ops};
static const struct dpb_strategy_ops *const strategies[] = {
        &dpb_strategy_none_ops, &dpb_strategy_naive_ops, &dpb_strategy_ddp_ops};

static const struct dpb_recorder_ops *const recorders[] = {&dpb_recorder_host_ops};

static const struct dpb_part_name parts[] = {
        {"workload", "mnist-cnn", "", NULL},
        {"workload", "mnist-mlp", "", NULL},
        {"workload", "cifar-resnet20", "", NULL},
        {"device", "cpu", "", NULL},
        {"comm", "shm", "", "cpu"},
        {"recorder", "host", "", "cpu"},
        {"strategy", "none", "", NULL},
        {"strategy", "naive", "", NULL},
        {"strategy", "ddp", "", NULL},
};

const struct dpb_registry *registry_for_tests(void)
{
    static const struct dpb_option_table *tables[4];
    static struct dpb_option_set set;
    static struct dpb_registry registry;
    tables[0] = &dpb_experiment_table;
    tables[1] = dpb_strategy_ddp_ops.options;
    tables[2] = dpb_comm_shm_ops.options;
    tables[3] = dpb_workload_cifar_resnet20_ops.options;
    set = (struct dpb_option_set){tables, 4, parts, sizeof(parts) / sizeof(parts[0])};
    registry = (struct dpb_registry){
            .workloads = workloads,
            .workload_count = 3,
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
    };
    return &registry;
}

/* The only file that names concrete parts. */
#include "dpb_cli.h"

#include <string.h>

#include "dpb_comm_mpi.h"
#include "dpb_comm_nccl.h"
#include "dpb_comm_shm.h"
#include "dpb_comm_sim.h"
#include "dpb_device_cpu.h"
#include "dpb_device_cuda.h"
#include "dpb_device_sim.h"
#include "dpb_experiment.h"
#include "dpb_meter_rapl.h"
#include "dpb_module.h"
#include "dpb_recorder.h"
#include "dpb_recorder_cupti.h"
#include "dpb_simulate.h"
#include "dpb_strategies.h"
#include "dpb_workloads.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* clang-format off */
static const struct dpb_workload_ops *const workloads[] = {
        &dpb_workload_mnist_cnn_ops,
        &dpb_workload_mnist_mlp_ops,
        &dpb_workload_cifar_resnet20_ops,
        &dpb_workload_resnet18_ops,
        &dpb_workload_resnet50_ops,
        &dpb_workload_resnet101_ops,
        &dpb_workload_resnet152_ops,
        &dpb_workload_vgg16_ops,
        &dpb_workload_dlrm_small_ops,
        &dpb_workload_dlrm_mlperf_ops,
        &dpb_workload_bert_base_ops,
        &dpb_workload_bert_large_ops,
        &dpb_workload_gpt2_small_ops,
};
/* clang-format on */

/* The module's parts are known by these on every machine, whether or not it is there. */
static const struct dpb_device_ops device_cuda = {
        .version = DPB_DEVICE_OPS_VERSION,
        .name = "cuda",
        .summary = "NVIDIA GPUs with CUDA, cuBLASLt and cuDNN",
        .flags = DPB_DEVICE_ACCELERATOR,
        .options = &dpb_device_cuda_option_table,
        .probe = dpb_module_probe_device,
};
static const struct dpb_comm_ops comm_nccl = {
        .version = DPB_COMM_OPS_VERSION,
        .name = "nccl",
        .summary = "NVIDIA's NCCL between GPUs, over NVLink, PCIe or a network",
        .flags = DPB_COMM_SEGMENT | DPB_COMM_DEVICE_MEMORY,
        .options = &dpb_comm_nccl_table,
        .probe = dpb_module_probe_comm,
};
static const struct dpb_comm_ops comm_mpi = {
        .version = DPB_COMM_OPS_VERSION,
        .name = "mpi",
        .summary = "MPI between ranks that mpirun started, on one machine or several",
        .options = &dpb_comm_mpi_table,
        .probe = dpb_module_probe_mpi,
};
static const struct dpb_recorder_ops recorder_cupti = {
        .version = DPB_RECORDER_OPS_VERSION,
        .name = "cupti",
        .summary = "spans of the host, and what the GPU did, by CUPTI",
        .flags = DPB_RECORDER_OWN_PROCESS,
        .steps_max = DPB_CUPTI_STEPS_MAX,
        .probe = dpb_module_probe_recorder,
};
static const struct dpb_meter_ops meter_nvml = {
        .version = DPB_METER_OPS_VERSION,
        .name = "nvml",
        .summary = "energy, power, clocks and temperature of a GPU, by NVML",
        .probe = dpb_module_probe_meter,
};

/* The device "sim" with the options of those who simulate: filled in by dpb_registry_get(). */
static struct dpb_device_ops device_sim;

static const struct dpb_device_ops *const devices[] = {&dpb_device_cpu_ops, &device_cuda,
                                                       &device_sim};
static const struct dpb_comm_ops *const comms[] = {&dpb_comm_shm_ops, &comm_nccl, &dpb_comm_sim_ops,
                                                   &comm_mpi};
static const struct dpb_recorder_ops *const recorders[] = {&dpb_recorder_host_ops, &recorder_cupti};
static const struct dpb_meter_ops *const meters[] = {&dpb_meter_rapl_ops, &meter_nvml};
static const struct dpb_strategy_ops *const strategies[] = {
        &dpb_strategy_none_ops,    &dpb_strategy_naive_ops,          &dpb_strategy_ddp_ops,
        &dpb_strategy_horovod_ops, &dpb_strategy_horovod_legacy_ops, &dpb_strategy_mirrored_ops,
        &dpb_strategy_mwms_ops,    &dpb_strategy_zero1_ops,          &dpb_strategy_local_sgd_ops,
        &dpb_strategy_zero2_ops,   &dpb_strategy_fsdp_ops,
};

#define PART_COUNT                                                                                 \
    (COUNT(workloads) + COUNT(devices) + COUNT(comms) + COUNT(strategies) + COUNT(recorders))

/* The parts of this build as they are when dpbench starts ranks itself, and when it does not. */
static struct {
    const struct dpb_option_table *tables[1 + PART_COUNT];
    struct dpb_part_name parts[PART_COUNT], launched_parts[PART_COUNT];
    struct dpb_option_set set, launched_set;
    struct dpb_registry registry, launched_registry;
    bool made;
} here;

/* What "auto" is in cells of a device: its own part, in its module or in this
 * program. */
static const char *device_for(bool in_module)
{
    return in_module ? device_cuda.name : dpb_device_cpu_ops.name;
}

static void add_part(const char *kind, const char *name, const char *summary,
                     const struct dpb_option_table *options, const char *auto_for)
{
    here.parts[here.set.part_count++] = (struct dpb_part_name){kind, name, summary, auto_for};
    if (options)
        here.tables[here.set.table_count++] = options;
}

/* What needs a segment is nobody's "auto" then. */
static void make_launched(void)
{
    memcpy(here.launched_parts, here.parts, sizeof(here.parts));
    for (size_t i = 0; i < here.set.part_count; i++) {
        struct dpb_part_name *part = &here.launched_parts[i];
        if (strcmp(part->kind, "comm") == 0 &&
            dpb_registry_needs_segment(dpb_registry_comm(&here.registry, part->name)))
            part->auto_for = NULL;
    }
    here.launched_set = here.set;
    here.launched_set.parts = here.launched_parts;
    here.launched_registry = here.registry;
    here.launched_registry.options = &here.launched_set;
    here.launched_registry.is_launched = true;
}

const struct dpb_registry *dpb_registry_launched(void)
{
    (void)dpb_registry_get();
    return &here.launched_registry;
}

const struct dpb_registry *dpb_registry_get(void)
{
    if (here.made)
        return &here.registry;
    device_sim = dpb_device_sim_ops;
    device_sim.options = &dpb_sim_option_table;
    here.tables[here.set.table_count++] = &dpb_experiment_table;
    for (size_t i = 0; i < COUNT(workloads); i++)
        add_part("workload", workloads[i]->name, workloads[i]->summary, workloads[i]->options,
                 NULL);
    for (size_t i = 0; i < COUNT(devices); i++)
        add_part("device", devices[i]->name, devices[i]->summary, devices[i]->options, NULL);
    for (size_t i = 0; i < COUNT(comms); i++)
        add_part("comm", comms[i]->name, comms[i]->summary, comms[i]->options,
                 comms[i]->flags & DPB_COMM_SIMULATED
                         ? device_sim.name
                         : device_for(comms[i]->flags & DPB_COMM_DEVICE_MEMORY));
    for (size_t i = 0; i < COUNT(strategies); i++)
        add_part("strategy", strategies[i]->name, strategies[i]->summary, strategies[i]->options,
                 NULL);
    for (size_t i = 0; i < COUNT(recorders); i++)
        add_part("recorder", recorders[i]->name, recorders[i]->summary, recorders[i]->options,
                 device_for(!recorders[i]->open));
    here.set.tables = here.tables;
    here.set.parts = here.parts;
    here.registry = (struct dpb_registry){
            .workloads = workloads,
            .workload_count = COUNT(workloads),
            .devices = devices,
            .device_count = COUNT(devices),
            .comms = comms,
            .comm_count = COUNT(comms),
            .strategies = strategies,
            .strategy_count = COUNT(strategies),
            .recorders = recorders,
            .recorder_count = COUNT(recorders),
            .meters = meters,
            .meter_count = COUNT(meters),
            .integer_workload = &dpb_workload_integers_ops,
            .sim_device = &dpb_device_sim_ops,
            .sim_comm = &dpb_comm_sim_ops,
            .options = &here.set,
            .simulator = &dpb_simulator_here,
    };
    make_launched();
    here.made = true;
    return &here.registry;
}

#include "dpb_registry.h"

#include <inttypes.h>
#include <string.h>

#include "dpb_log.h"
#include "dpb_module.h"

#define WHY_BYTES 1024

/* The part kinds share the member `name` but no type. */
#define DPB_FIND(list, count, wanted)                                                              \
    do {                                                                                           \
        for (size_t i = 0; i < (count); i++)                                                       \
            if (strcmp((list)[i]->name, (wanted)) == 0)                                            \
                return (list)[i];                                                                  \
        return NULL;                                                                               \
    } while (0)

const struct dpb_workload_ops *dpb_registry_workload(const struct dpb_registry *registry,
                                                     const char *name)
{
    DPB_FIND(registry->workloads, registry->workload_count, name);
}

const struct dpb_device_ops *dpb_registry_device(const struct dpb_registry *registry,
                                                 const char *name)
{
    DPB_FIND(registry->devices, registry->device_count, name);
}

const struct dpb_comm_ops *dpb_registry_comm(const struct dpb_registry *registry, const char *name)
{
    DPB_FIND(registry->comms, registry->comm_count, name);
}

const struct dpb_strategy_ops *dpb_registry_strategy(const struct dpb_registry *registry,
                                                     const char *name)
{
    DPB_FIND(registry->strategies, registry->strategy_count, name);
}

const struct dpb_recorder_ops *dpb_registry_recorder(const struct dpb_registry *registry,
                                                     const char *name)
{
    DPB_FIND(registry->recorders, registry->recorder_count, name);
}

/* ---- parts of a module ---- */

static dpb_status refuse(const char *kind, const char *name, const char *why)
{
    dpb_error("%s \"%s\" is %s", kind, name, why);
    dpb_log_hint("`dpbench doctor` says what this machine is fit for");
    return DPB_ERR_UNAVAILABLE;
}

static dpb_status use_module(const char *kind, const char *name, const struct dpb_module **module)
{
    char why[WHY_BYTES] = "";
    return dpb_module_open(module, why, sizeof(why)) < 0 ? refuse(kind, name, why) : DPB_OK;
}

/* The whole table of a part that was found in a registry. */
#define DPB_USE(kind, found, ops)                                                                  \
    do {                                                                                           \
        const struct dpb_module *module;                                                           \
        *(ops) = (found);                                                                          \
        if ((found)->open)                                                                         \
            return DPB_OK;                                                                         \
        DPB_TRY(use_module(#kind, (found)->name, &module));                                        \
        *(ops) = module->kind;                                                                     \
        return DPB_OK;                                                                             \
    } while (0)

dpb_status dpb_registry_use_device(const struct dpb_registry *registry, const char *name,
                                   const struct dpb_device_ops **ops)
{
    DPB_USE(device, dpb_registry_device(registry, name), ops);
}

dpb_status dpb_registry_use_comm(const struct dpb_registry *registry, const char *name,
                                 const struct dpb_comm_ops **ops)
{
    const struct dpb_comm_ops *found = dpb_registry_comm(registry, name);
    const struct dpb_module *mpi;
    char why[WHY_BYTES] = "";
    /* The CUDA module's comm moves a GPU's memory, MPI's the host's. */
    if (found->open || (found->flags & DPB_COMM_DEVICE_MEMORY))
        DPB_USE(comm, found, ops);
    if (dpb_module_open_mpi(&mpi, why, sizeof(why)) < 0)
        return refuse("comm", name, why);
    *ops = mpi->comm;
    return DPB_OK;
}

dpb_status dpb_registry_use_recorder(const struct dpb_registry *registry, const char *name,
                                     const struct dpb_recorder_ops **ops)
{
    DPB_USE(recorder, dpb_registry_recorder(registry, name), ops);
}

bool dpb_registry_is_virtual(const struct dpb_registry *registry, const char *device)
{
    const struct dpb_device_ops *ops = dpb_registry_device(registry, device);
    return registry->simulator && ops && (ops->flags & DPB_DEVICE_VIRTUAL_TIME);
}

/* What has no memory cannot be moved between ranks that have some. */
static dpb_status check_virtual(const struct dpb_device_ops *device,
                                const struct dpb_comm_ops *comm)
{
    bool device_is = device->flags & DPB_DEVICE_VIRTUAL_TIME;
    bool comm_is = comm->flags & DPB_COMM_SIMULATED;
    if (device_is == comm_is)
        return DPB_OK;
    dpb_error("--device %s cannot train with --comm %s: %s is simulated, and the other is not",
              device->name, comm->name, device_is ? "the device" : "the communicator");
    dpb_log_hint("leave --comm out: it goes by the device");
    return DPB_ERR_USAGE;
}

/* A comm that moves device memory needs a device that has some, and the other way round. */
static dpb_status check_memory(const struct dpb_device_ops *device, const struct dpb_comm_ops *comm)
{
    bool accelerator = device->flags & DPB_DEVICE_ACCELERATOR;
    bool moves_device = comm->flags & DPB_COMM_DEVICE_MEMORY;
    if (accelerator == moves_device)
        return DPB_OK;
    dpb_error("--device %s cannot train with --comm %s: it computes in %s memory, and %s moves %s",
              device->name, comm->name, accelerator ? "its own" : "the host's", comm->name,
              moves_device ? "a GPU's" : "the host's");
    dpb_log_hint("leave --comm out: it goes by the device");
    return DPB_ERR_USAGE;
}

bool dpb_registry_needs_segment(const struct dpb_comm_ops *comm)
{
    return (comm->flags & DPB_COMM_SEGMENT) && !(comm->flags & DPB_COMM_DEVICE_MEMORY);
}

dpb_status dpb_registry_check_pair(const struct dpb_registry *registry, const char *device_name,
                                   const char *comm_name)
{
    const struct dpb_device_ops *device = dpb_registry_device(registry, device_name);
    const struct dpb_comm_ops *comm = dpb_registry_comm(registry, comm_name);
    DPB_TRY(check_virtual(device, comm));
    return check_memory(device, comm);
}

dpb_status dpb_registry_check_parts(const struct dpb_registry *registry, const char *device_name,
                                    const char *comm_name, int64_t ranks)
{
    const struct dpb_device_ops *device = dpb_registry_device(registry, device_name);
    const struct dpb_comm_ops *comm = dpb_registry_comm(registry, comm_name);
    const struct dpb_module *module;
    char why[WHY_BYTES] = "";
    DPB_TRY(dpb_registry_check_pair(registry, device_name, comm_name));
    if (device->probe(why, sizeof(why)) < 0)
        return refuse("device", device_name, why);
    if (comm->probe(why, sizeof(why)) < 0)
        return refuse("comm", comm_name, why);
    if (device->open)
        return DPB_OK;
    DPB_TRY(use_module("device", device_name, &module));
    if (module->ranks_fit((int)ranks, why, sizeof(why)) == DPB_OK)
        return DPB_OK;
    dpb_error("--ranks %" PRId64 " on device \"%s\" is %s", ranks, device_name, why);
    dpb_log_hint("use fewer --ranks: each needs a device of its own");
    return DPB_ERR_UNAVAILABLE;
}

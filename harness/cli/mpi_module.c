/* The one function that libdpbench_openmpi.so and libdpbench_mpich.so export: their comm, for the
 * program that opened one. With registry.c and cuda_module.c the only file that names parts. */
#include "dpb_comm_mpi.h"
#include "dpb_module.h"

static const struct dpb_module module = {
        .abi = DPB_MODULE_ABI,
        .build = DPB_MODULE_BUILD,
        .comm = &dpb_comm_mpi_ops,
};

__attribute__((visibility("default"))) dpb_module_entry_function dpb_module_entry;

const struct dpb_module *dpb_module_entry(const struct dpb_module_host *host)
{
    if (host->abi == DPB_MODULE_ABI)
        dpb_log_forward(&host->log);
    return &module;
}

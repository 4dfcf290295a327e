/* The one function that libdpbench_cuda.so exports: its parts, for the program that opened it. With
 * registry.c the only file that names parts. */
#include "dpb_comm_nccl.h"
#include "dpb_cuda_inspect.h"
#include "dpb_device_cuda.h"
#include "dpb_meter_nvml.h"
#include "dpb_module.h"
#include "dpb_recorder_cupti.h"

static const struct dpb_module module = {
        .abi = DPB_MODULE_ABI,
        .build = DPB_MODULE_BUILD,
        .device = &dpb_device_cuda_ops,
        .comm = &dpb_comm_nccl_ops,
        .recorder = &dpb_recorder_cupti_ops,
        .meter = &dpb_meter_nvml_ops,
        .ranks_fit = dpb_cuda_ranks_fit,
        .inspect = dpb_cuda_inspect,
};

__attribute__((visibility("default"))) dpb_module_entry_function dpb_module_entry;

const struct dpb_module *dpb_module_entry(const struct dpb_module_host *host)
{
    if (host->abi == DPB_MODULE_ABI)
        dpb_log_forward(&host->log);
    return &module;
}

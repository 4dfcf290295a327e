/* How much memory a GPU has free, from NVML: CUDA tells it of GPUs only that this process has
 * taken, which costs each of them some hundred MB. */
#include "cuda_device.h"

#include <stdio.h>

#include "choose.h"
#include "dpb_log.h"
#include "nvml_table.h"

/* Of the GPU that an instance (MIG) is a part of, where it is one. */
static dpb_status ask_nvml(const char *bus_id, struct nvml_memory *memory)
{
    struct dpb_nvml nvml;
    nvmlDevice_t device;
    char why[512];
    int result;

    if (dpb_nvml_open(&nvml, why, sizeof(why)) < 0) {
        dpb_debug("cuda: free memory is not known: %s", why);
        return DPB_ERR_UNAVAILABLE;
    }
    result = nvml.nvmlDeviceGetHandleByPciBusId_v2(bus_id, &device);
    if (result == NVML_SUCCESS)
        result = nvml.nvmlDeviceGetMemoryInfo(device, memory);
    if (result == NVML_SUCCESS)
        return DPB_OK;
    dpb_debug("cuda: free memory of GPU %s is not known: %s (%d)", bus_id,
              nvml.nvmlErrorString(result), result);
    return DPB_ERR_UNAVAILABLE;
}

dpb_status dpb_cuda_room(const struct dpb_device_config *config, struct dpb_device_room *room)
{
    struct dpb_device_cuda_options options = {.device = DPB_AUTO};
    struct cudaDeviceProp properties;
    struct nvml_memory memory;
    char bus_id[32], why[512];
    int visible, ordinal;

    if (config->options)
        options = *(const struct dpb_device_cuda_options *)config->options;
    /* This machine may only start ranks on others, which have more. */
    if (dpb_cuda_find_devices(&visible, why, sizeof(why)) < 0 ||
        (config->local_size > visible && !dpb_cuda_launcher_shows_one_each()))
        return DPB_ERR_UNAVAILABLE;
    DPB_TRY(dpb_cuda_choose_device(config, &options, &visible, &ordinal));
    if (cudaGetDeviceProperties(&properties, ordinal) != cudaSuccess ||
        cudaDeviceGetPCIBusId(bus_id, sizeof(bus_id), ordinal) != cudaSuccess) {
        cudaGetLastError();
        return DPB_ERR_UNAVAILABLE;
    }
    DPB_TRY(ask_nvml(bus_id, &memory));
    snprintf(room->name, sizeof(room->name), "GPU %d, %.64s, %s", ordinal, properties.name, bus_id);
    room->total_bytes = (int64_t)properties.totalGlobalMem;
    room->free_bytes =
            (int64_t)memory.free < room->total_bytes ? (int64_t)memory.free : room->total_bytes;
    return DPB_OK;
}

#include "fake_nvml.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct fake_nvml fake_nvml;

void fake_nvml_reset(void)
{
    const struct fake_gpu good = {
            .energy_mj = 1000000,
            .power_mw = 650000,
            .clock_mhz = 1980,
            .memory_clock_mhz = 3201,
            .celsius = 58,
            .pcie_width = 16,
            .nvlinks = 18,
            .persistence = 1,
            .ecc = 1,
    };

    fake_nvml =
            (struct fake_nvml){.count = 2, .gpus = {good, good}, .topology = NVML_TOPOLOGY_SYSTEM};
}

/* Handles are numbers from 1. */
static struct fake_gpu *at(nvmlDevice_t device)
{
    return &fake_nvml.gpus[(uintptr_t)device - 1];
}

static int handle_of(unsigned index, nvmlDevice_t *device)
{
    if (index >= fake_nvml.count)
        return NVML_ERROR_NOT_FOUND;
    *device = (nvmlDevice_t)(uintptr_t)(index + 1);
    return NVML_SUCCESS;
}

static int start(void)
{
    return fake_nvml.start_result;
}

static const char *error_text(int result)
{
    return result == 9 ? "Driver Not Loaded" : "an error";
}

static int driver_version(char *text, unsigned bytes)
{
    snprintf(text, bytes, "580.65.06");
    return NVML_SUCCESS;
}

static int cuda_version(int *version)
{
    *version = 13000;
    return NVML_SUCCESS;
}

static int count(unsigned *number)
{
    *number = fake_nvml.count;
    return NVML_SUCCESS;
}

static int by_bus_id(const char *bus_id, nvmlDevice_t *device)
{
    return strcmp(bus_id, "0000:1b:00.0") == 0   ? handle_of(0, device)
           : strcmp(bus_id, "0000:43:00.0") == 0 ? handle_of(1, device)
                                                 : NVML_ERROR_NOT_FOUND;
}

static int by_uuid(const char *uuid, nvmlDevice_t *device)
{
    return strcmp(uuid, "GPU-1") == 0 ? handle_of(1, device) : NVML_ERROR_NOT_FOUND;
}

static int name(nvmlDevice_t device, char *text, unsigned bytes)
{
    (void)device;
    snprintf(text, bytes, "NVIDIA H200");
    return NVML_SUCCESS;
}

static int pci_info(nvmlDevice_t device, struct nvml_pci_info *info)
{
    *info = (struct nvml_pci_info){.bus = device == (nvmlDevice_t)1 ? 0x1b : 0x43};
    snprintf(info->bus_id, sizeof(info->bus_id), "00000000:%02X:00.0", info->bus);
    return NVML_SUCCESS;
}

static int memory_info(nvmlDevice_t device, struct nvml_memory *memory)
{
    (void)device;
    *memory = (struct nvml_memory){150000000000ull, 149000000000ull, 1000000000ull};
    return NVML_SUCCESS;
}

static int energy(nvmlDevice_t device, unsigned long long *energy_mj)
{
    *energy_mj = at(device)->energy_mj;
    return at(device)->no_energy ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

/* The mean of a second lags. */
static int power(nvmlDevice_t device, unsigned *power_mw)
{
    *power_mw = at(device)->power_mw - 50000;
    return NVML_SUCCESS;
}

static int power_limit(nvmlDevice_t device, unsigned *limit_mw)
{
    (void)device;
    *limit_mw = 700000;
    return NVML_SUCCESS;
}

static int field_values(nvmlDevice_t device, int number, struct nvml_field_value *values)
{
    if (number != 1 || values[0].field_id != NVML_FI_DEV_POWER_INSTANT)
        return NVML_ERROR_NOT_FOUND;
    values[0].result = at(device)->no_field ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
    values[0].value_type = 1;
    values[0].value.ui = at(device)->power_mw;
    return NVML_SUCCESS;
}

static int clock_info(nvmlDevice_t device, int type, unsigned *mhz)
{
    *mhz = type == NVML_CLOCK_SM ? at(device)->clock_mhz : at(device)->memory_clock_mhz;
    return NVML_SUCCESS;
}

static int max_clock_info(nvmlDevice_t device, int type, unsigned *mhz)
{
    (void)device;
    *mhz = type == NVML_CLOCK_SM ? 1980 : 3201;
    return NVML_SUCCESS;
}

static int temperature(nvmlDevice_t device, int sensor, unsigned *celsius)
{
    (void)sensor;
    *celsius = at(device)->celsius;
    return NVML_SUCCESS;
}

static int clock_reasons(nvmlDevice_t device, unsigned long long *reasons)
{
    *reasons = at(device)->reasons;
    return NVML_SUCCESS;
}

static int persistence(nvmlDevice_t device, int *mode)
{
    *mode = at(device)->persistence;
    return NVML_SUCCESS;
}

static int compute_mode(nvmlDevice_t device, int *mode)
{
    *mode = at(device)->compute_mode;
    return NVML_SUCCESS;
}

static int mig_mode(nvmlDevice_t device, unsigned *current, unsigned *pending)
{
    *current = *pending = at(device)->mig;
    return NVML_SUCCESS;
}

static int ecc_mode(nvmlDevice_t device, int *current, int *pending)
{
    *current = *pending = at(device)->ecc;
    return NVML_SUCCESS;
}

static int ecc_errors(nvmlDevice_t device, int type, int counter, unsigned long long *number)
{
    (void)counter;
    *number = type == NVML_MEMORY_ERROR_TYPE_UNCORRECTED ? at(device)->ecc_errors : 7;
    return NVML_SUCCESS;
}

static int running_processes(nvmlDevice_t device, unsigned *number, void *processes)
{
    (void)processes;
    *number = at(device)->processes;
    return *number > 0 ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

static int pcie_generation(nvmlDevice_t device, unsigned *generation)
{
    (void)device;
    *generation = 5;
    return NVML_SUCCESS;
}

static int pcie_width(nvmlDevice_t device, unsigned *width)
{
    *width = at(device)->pcie_width;
    return NVML_SUCCESS;
}

static int pcie_max_width(nvmlDevice_t device, unsigned *width)
{
    (void)device;
    *width = 16;
    return NVML_SUCCESS;
}

static int nvlink_state(nvmlDevice_t device, unsigned link, int *active)
{
    *active = link < at(device)->nvlinks;
    return NVML_SUCCESS;
}

static int common_ancestor(nvmlDevice_t a, nvmlDevice_t b, int *level)
{
    (void)a;
    (void)b;
    *level = fake_nvml.topology;
    return NVML_SUCCESS;
}

static int p2p_status(nvmlDevice_t a, nvmlDevice_t b, int capability, int *status)
{
    (void)a;
    (void)b;
    (void)capability;
    *status = fake_nvml.p2p_status;
    return NVML_SUCCESS;
}

const struct dpb_nvml fake_nvml_table = {
        .nvmlInit_v2 = start,
        .nvmlErrorString = error_text,
        .nvmlSystemGetDriverVersion = driver_version,
        .nvmlSystemGetCudaDriverVersion_v2 = cuda_version,
        .nvmlDeviceGetCount_v2 = count,
        .nvmlDeviceGetHandleByIndex_v2 = handle_of,
        .nvmlDeviceGetHandleByPciBusId_v2 = by_bus_id,
        .nvmlDeviceGetHandleByUUID = by_uuid,
        .nvmlDeviceGetName = name,
        .nvmlDeviceGetPciInfo_v3 = pci_info,
        .nvmlDeviceGetMemoryInfo = memory_info,
        .nvmlDeviceGetTotalEnergyConsumption = energy,
        .nvmlDeviceGetPowerUsage = power,
        .nvmlDeviceGetEnforcedPowerLimit = power_limit,
        .nvmlDeviceGetFieldValues = field_values,
        .nvmlDeviceGetClockInfo = clock_info,
        .nvmlDeviceGetMaxClockInfo = max_clock_info,
        .nvmlDeviceGetTemperature = temperature,
        .nvmlDeviceGetCurrentClocksEventReasons = clock_reasons,
        .nvmlDeviceGetPersistenceMode = persistence,
        .nvmlDeviceGetComputeMode = compute_mode,
        .nvmlDeviceGetMigMode = mig_mode,
        .nvmlDeviceGetEccMode = ecc_mode,
        .nvmlDeviceGetTotalEccErrors = ecc_errors,
        .nvmlDeviceGetComputeRunningProcesses_v3 = running_processes,
        .nvmlDeviceGetCurrPcieLinkGeneration = pcie_generation,
        .nvmlDeviceGetMaxPcieLinkGeneration = pcie_generation,
        .nvmlDeviceGetCurrPcieLinkWidth = pcie_width,
        .nvmlDeviceGetMaxPcieLinkWidth = pcie_max_width,
        .nvmlDeviceGetNvLinkState = nvlink_state,
        .nvmlDeviceGetTopologyCommonAncestor = common_ancestor,
        .nvmlDeviceGetP2PStatus = p2p_status,
};

#include "nvml_table.h"

#include <stdio.h>

#include "dpb_library.h"

static const char *const NAMES[] = {"libnvidia-ml.so.1", NULL};

#define SYMBOL(member) DPB_LIBRARY_SYMBOL(dpb_nvml, member)
static const struct dpb_library_symbol SYMBOLS[] = {
        SYMBOL(nvmlInit_v2),
        SYMBOL(nvmlErrorString),
        SYMBOL(nvmlSystemGetDriverVersion),
        SYMBOL(nvmlSystemGetCudaDriverVersion_v2),
        SYMBOL(nvmlDeviceGetCount_v2),
        SYMBOL(nvmlDeviceGetHandleByIndex_v2),
        SYMBOL(nvmlDeviceGetHandleByPciBusId_v2),
        SYMBOL(nvmlDeviceGetHandleByUUID),
        SYMBOL(nvmlDeviceGetName),
        SYMBOL(nvmlDeviceGetPciInfo_v3),
        SYMBOL(nvmlDeviceGetMemoryInfo),
        SYMBOL(nvmlDeviceGetTotalEnergyConsumption),
        SYMBOL(nvmlDeviceGetPowerUsage),
        SYMBOL(nvmlDeviceGetEnforcedPowerLimit),
        SYMBOL(nvmlDeviceGetFieldValues),
        SYMBOL(nvmlDeviceGetClockInfo),
        SYMBOL(nvmlDeviceGetMaxClockInfo),
        SYMBOL(nvmlDeviceGetTemperature),
        SYMBOL(nvmlDeviceGetCurrentClocksEventReasons),
        SYMBOL(nvmlDeviceGetPersistenceMode),
        SYMBOL(nvmlDeviceGetComputeMode),
        SYMBOL(nvmlDeviceGetMigMode),
        SYMBOL(nvmlDeviceGetEccMode),
        SYMBOL(nvmlDeviceGetTotalEccErrors),
        SYMBOL(nvmlDeviceGetComputeRunningProcesses_v3),
        SYMBOL(nvmlDeviceGetCurrPcieLinkGeneration),
        SYMBOL(nvmlDeviceGetMaxPcieLinkGeneration),
        SYMBOL(nvmlDeviceGetCurrPcieLinkWidth),
        SYMBOL(nvmlDeviceGetMaxPcieLinkWidth),
        SYMBOL(nvmlDeviceGetNvLinkState),
        SYMBOL(nvmlDeviceGetTopologyCommonAncestor),
        SYMBOL(nvmlDeviceGetP2PStatus),
};
_Static_assert(sizeof(struct dpb_nvml) == sizeof(SYMBOLS) / sizeof(SYMBOLS[0]) * sizeof(void *),
               "a row for each member");
_Static_assert(sizeof(struct nvml_field_value) == 40, "nvmlFieldValue_t");
_Static_assert(sizeof(struct nvml_pci_info) == 68, "nvmlPciInfo_t");

static const struct dpb_library LIBRARY = {
        .what = "NVML",
        .names = NAMES,
        .variable = "DPB_NVML_LIBRARY",
        .remedy = "it comes with the NVIDIA driver",
        .symbols = SYMBOLS,
        .symbol_count = sizeof(SYMBOLS) / sizeof(SYMBOLS[0]),
};

static const struct dpb_nvml *other; /* of dpb_nvml_use() */
static struct dpb_nvml started;      /* the library's, once it runs */

void dpb_nvml_use(const struct dpb_nvml *table)
{
    other = table;
}

static dpb_status start(const struct dpb_nvml *table, char *why, size_t why_bytes)
{
    int result = table->nvmlInit_v2();

    if (result == NVML_SUCCESS)
        return DPB_OK;
    snprintf(why, why_bytes, "NVML does not start: %s (%d)", table->nvmlErrorString(result),
             result);
    return DPB_ERR_UNAVAILABLE;
}

dpb_status dpb_nvml_open(struct dpb_nvml *table, char *why, size_t why_bytes)
{
    struct dpb_nvml opened;

    if (other) {
        DPB_TRY(start(other, why, why_bytes));
        *table = *other;
        return DPB_OK;
    }
    if (!started.nvmlInit_v2) {
        DPB_TRY(dpb_library_open(&LIBRARY, &opened, why, why_bytes));
        DPB_TRY(start(&opened, why, why_bytes));
        started = opened;
    }
    *table = started;
    return DPB_OK;
}

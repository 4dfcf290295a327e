/* nvml_table.h: NVIDIA's management library as a table of functions. Private to kernels/cuda.
 *
 * It comes with the driver, and its header with neither the driver nor the toolkit's wheels: the
 * types are declared here, from the documented interface. NVML numbers all GPUs of the machine,
 * whatever CUDA_VISIBLE_DEVICES says, so devices are found by PCI bus id. The table is also where a
 * test puts functions of its own. */
#ifndef DPB_CUDA_NVML_TABLE_H
#define DPB_CUDA_NVML_TABLE_H

#include <stddef.h>

#include "dpb_status.h"

typedef struct nvmlDevice_st *nvmlDevice_t;

/* nvmlReturn_t; 0 is success. */
enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NO_PERMISSION = 4,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7
};

/* nvmlClockType_t */
enum {
    NVML_CLOCK_SM = 1,
    NVML_CLOCK_MEM = 2
};

/* nvmlGpuTopologyLevel_t: the nearest place where the ways of two GPUs meet. */
enum {
    NVML_TOPOLOGY_INTERNAL = 0,
    NVML_TOPOLOGY_SINGLE = 10,
    NVML_TOPOLOGY_MULTIPLE = 20,
    NVML_TOPOLOGY_HOSTBRIDGE = 30,
    NVML_TOPOLOGY_NODE = 40,
    NVML_TOPOLOGY_SYSTEM = 50
};

/* nvmlGpuP2PCapsIndex_t, nvmlGpuP2PStatus_t */
enum {
    NVML_P2P_CAPS_INDEX_READ = 0,
    NVML_P2P_STATUS_OK = 0
};

/* nvmlComputeMode_t */
enum {
    NVML_COMPUTEMODE_DEFAULT = 0,
    NVML_COMPUTEMODE_PROHIBITED = 2,
    NVML_COMPUTEMODE_EXCLUSIVE_PROCESS = 3
};

/* nvmlMemoryErrorType_t, nvmlEccCounterType_t */
enum {
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1,
    NVML_VOLATILE_ECC = 0
};

#define NVML_TEMPERATURE_GPU      0
#define NVML_NVLINK_LINKS_MAX     18
#define NVML_FI_DEV_POWER_INSTANT 186
#define NVML_TEXT_BYTES           96

/* nvmlFieldValue_t */
struct nvml_field_value {
    unsigned field_id, scope_id;
    long long timestamp_us, latency_us;
    int value_type; /* 1: unsigned int, 3: unsigned long long */
    int result;
    union {
        unsigned ui;
        unsigned long long ull;
    } value;
};

/* nvmlPciInfo_t */
struct nvml_pci_info {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
};

/* nvmlMemory_t */
struct nvml_memory {
    unsigned long long total, free, used;
};

/* Members have the functions' own names, as nvml.h documents them; int is nvmlReturn_t. */
struct dpb_nvml {
    int (*nvmlInit_v2)(void);
    const char *(*nvmlErrorString)(int result);
    int (*nvmlSystemGetDriverVersion)(char *text, unsigned bytes);
    int (*nvmlSystemGetCudaDriverVersion_v2)(int *version);
    int (*nvmlDeviceGetCount_v2)(unsigned *count);
    int (*nvmlDeviceGetHandleByIndex_v2)(unsigned index, nvmlDevice_t *device);
    int (*nvmlDeviceGetHandleByPciBusId_v2)(const char *bus_id, nvmlDevice_t *device);
    int (*nvmlDeviceGetHandleByUUID)(const char *uuid, nvmlDevice_t *device);
    int (*nvmlDeviceGetName)(nvmlDevice_t device, char *text, unsigned bytes);
    int (*nvmlDeviceGetPciInfo_v3)(nvmlDevice_t device, struct nvml_pci_info *info);
    int (*nvmlDeviceGetMemoryInfo)(nvmlDevice_t device, struct nvml_memory *memory);
    int (*nvmlDeviceGetTotalEnergyConsumption)(nvmlDevice_t device, unsigned long long *energy_mj);
    int (*nvmlDeviceGetPowerUsage)(nvmlDevice_t device, unsigned *power_mw);
    int (*nvmlDeviceGetEnforcedPowerLimit)(nvmlDevice_t device, unsigned *limit_mw);
    int (*nvmlDeviceGetFieldValues)(nvmlDevice_t device, int count,
                                    struct nvml_field_value *values);
    int (*nvmlDeviceGetClockInfo)(nvmlDevice_t device, int type, unsigned *mhz);
    int (*nvmlDeviceGetMaxClockInfo)(nvmlDevice_t device, int type, unsigned *mhz);
    int (*nvmlDeviceGetTemperature)(nvmlDevice_t device, int sensor, unsigned *celsius);
    int (*nvmlDeviceGetCurrentClocksEventReasons)(nvmlDevice_t device, unsigned long long *reasons);
    int (*nvmlDeviceGetPersistenceMode)(nvmlDevice_t device, int *mode);
    int (*nvmlDeviceGetComputeMode)(nvmlDevice_t device, int *mode);
    int (*nvmlDeviceGetMigMode)(nvmlDevice_t device, unsigned *current, unsigned *pending);
    int (*nvmlDeviceGetEccMode)(nvmlDevice_t device, int *current, int *pending);
    int (*nvmlDeviceGetTotalEccErrors)(nvmlDevice_t device, int type, int counter,
                                       unsigned long long *count);
    int (*nvmlDeviceGetComputeRunningProcesses_v3)(nvmlDevice_t device, unsigned *count,
                                                   void *processes);
    int (*nvmlDeviceGetCurrPcieLinkGeneration)(nvmlDevice_t device, unsigned *generation);
    int (*nvmlDeviceGetMaxPcieLinkGeneration)(nvmlDevice_t device, unsigned *generation);
    int (*nvmlDeviceGetCurrPcieLinkWidth)(nvmlDevice_t device, unsigned *width);
    int (*nvmlDeviceGetMaxPcieLinkWidth)(nvmlDevice_t device, unsigned *width);
    int (*nvmlDeviceGetNvLinkState)(nvmlDevice_t device, unsigned link, int *active);
    int (*nvmlDeviceGetTopologyCommonAncestor)(nvmlDevice_t a, nvmlDevice_t b, int *level);
    int (*nvmlDeviceGetP2PStatus)(nvmlDevice_t a, nvmlDevice_t b, int capability, int *status);
};

/* Open libnvidia-ml.so.1 (or what DPB_NVML_LIBRARY names), fill `table` and start NVML, once per
 * process: later calls give the same answer. It is never shut down. DPB_ERR_UNAVAILABLE with one
 * line in `why`. */
dpb_status dpb_nvml_open(struct dpb_nvml *table, char *why, size_t why_bytes);

/* From now on dpb_nvml_open() copies `table`, starts it, and opens nothing; NULL: the library
 * again. For tests; the caller keeps the table. */
void dpb_nvml_use(const struct dpb_nvml *table);

#endif

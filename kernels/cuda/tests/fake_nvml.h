/* fake_nvml.h: a machine of two GPUs as NVML tells of it, for tests; change what a test is about.
 */
#ifndef DPB_FAKE_NVML_H
#define DPB_FAKE_NVML_H

#include <stdbool.h>

#include "../nvml_table.h"

struct fake_gpu {
    unsigned long long energy_mj, reasons, ecc_errors;
    unsigned power_mw, clock_mhz, memory_clock_mhz, celsius, processes, pcie_width, nvlinks;
    int persistence, compute_mode, ecc;
    unsigned mig;
    bool no_energy, no_field;
};

struct fake_nvml {
    int start_result; /* of nvmlInit_v2() */
    unsigned count;
    struct fake_gpu gpus[2];
    int p2p_status;
    int topology;
};

extern struct fake_nvml fake_nvml;
extern const struct dpb_nvml fake_nvml_table;

/* All as it should be: two H200 with NVLink and peer access. */
void fake_nvml_reset(void);

#endif

/* dpb_meter_nvml.h: energy, power, clocks and temperature of one GPU, by NVML. The configuration's
 * device is a PCI bus id ("0000:1b:00.0") or a UUID ("GPU-...", "MIG-..."). */
#ifndef DPB_METER_NVML_H
#define DPB_METER_NVML_H

#include "dpb_meter.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const struct dpb_meter_ops dpb_meter_nvml_ops;

#ifdef __cplusplus
}
#endif
#endif

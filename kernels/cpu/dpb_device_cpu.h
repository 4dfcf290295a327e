/* dpb_device_cpu.h: the device that computes on the CPU, on oneDNN. */
#ifndef DPB_DEVICE_CPU_H
#define DPB_DEVICE_CPU_H

#include "dpb_device.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const struct dpb_device_ops dpb_device_cpu_ops;

#ifdef __cplusplus
}
#endif
#endif

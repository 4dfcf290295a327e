/* dpb_device_cpu.h: the device that computes on the CPU, on oneDNN. */
#ifndef DPB_DEVICE_CPU_H
#define DPB_DEVICE_CPU_H

#include "dpb_device.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const struct dpb_device_ops dpb_device_cpu_ops;

enum dpb_conv_algorithm {
    DPB_CONV_DIRECT,
    DPB_CONV_AUTO
};

/* dpb_device_config's `options`; NULL: the defaults. */
struct dpb_device_cpu_options {
    int conv_algorithm; /* enum dpb_conv_algorithm */
};

/* What a device of these has made since it was opened; for shapes that it has seen before, nothing.
 */
struct dpb_device_cpu_counts {
    int64_t kernels;        /* oneDNN primitives, each with its reorders */
    int64_t buffer_growths; /* of the scratchpad and of packed tensors, which all of them share */
};
struct dpb_device_cpu_counts dpb_device_cpu_get_counts(dpb_device *device);

#ifdef __cplusplus
}
#endif
#endif

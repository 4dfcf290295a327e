// limits.h: how fast this thread can be right now: what operators are compared with.
#ifndef DPB_MICRO_LIMITS_H
#define DPB_MICRO_LIMITS_H

#include <cstdint>

#include "dpb_device.h"

// Floating-point operations per second of the device's matrix product 1024 x 1024 x 1024 in fp32 or
// bf16, the best of a few; fp32's where the device has no product in bf16. 0 when it fails.
double limit_matmul(dpb_device *device, dpb_dtype dtype);

// Bytes read and written per second by plain loops over arrays of `bytes` altogether, so in the
// cache that an operator with so many has: the best of a copy, b = a, a triad, c = a + s b, and an
// update, a = a + s b. The arrays are at most 256 MiB. 0 without memory.
double limit_memory(dpb_device *device, double bytes);

// Give the arrays back.
void limits_release(dpb_device *device);

#endif

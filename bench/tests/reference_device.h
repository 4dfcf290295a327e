/* reference_device.h: a device made of the reference operators, so that the workloads' tests need
 * no library. It watches what is launched and can be told to run out of memory. */
#ifndef BENCH_TESTS_REFERENCE_DEVICE_H
#define BENCH_TESTS_REFERENCE_DEVICE_H

#include "dpb_device.h"

extern const struct dpb_device_ops test_reference_device_ops;

/* Launches of an operator since open. */
int test_reference_device_launches(dpb_device *device, enum dpb_op op);

/* Pooling launches since open that wrote the positions of the maxima. */
int test_reference_device_pool_indices(dpb_device *device);

/* Blocks that are allocated now. */
int test_reference_device_blocks(dpb_device *device);

/* Later allocations fail once `blocks` more have succeeded; -1: never. */
void test_reference_device_limit(dpb_device *device, int blocks);

/* From now on it says that it has no such operator in bf16. */
void test_reference_device_lacks(dpb_device *device, enum dpb_op op);

#endif

/* operators.h: the device's table of operators. Private to kernels/cuda. */
#ifndef DPB_CUDA_OPERATORS_H
#define DPB_CUDA_OPERATORS_H

#include "dpb_device.h"

/* The members of dpb_device_ops; no stream is the device's own. */
bool dpb_cuda_op_supported(dpb_device *device, enum dpb_op op, enum dpb_dtype dtype);
dpb_status dpb_cuda_op_launch(dpb_device *device, enum dpb_op op, const void *args,
                              dpb_stream *stream);
dpb_status dpb_cuda_op_launch_many(dpb_device *device, enum dpb_op op, const void *args, int count,
                                   dpb_stream *stream);

#endif

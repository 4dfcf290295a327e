#include "dpb_device_cuda.h"
#include "op_bf16.h"
#include "staged_pair.h"

const struct dpb_device_ops *const staged_pair_ops = &dpb_device_cuda_ops;

/* cuDNN has no engine that keeps the gradient of 16-bit filters in fp32 (conv_graph.h). */
#ifdef DPB_OP_HALF_F16
const struct op_half op_half = {.dtype = DPB_F16,
                                .unit = 0x1p-11,
                                .floor = 0x1p-25,
                                .filter_gradients_rounded = true,
                                .bias_rounded = true};
#else
const struct op_half op_half = {.dtype = DPB_BF16,
                                .unit = 0x1p-8,
                                .floor = 1e-30,
                                .filter_gradients_rounded = true,
                                .bias_rounded = true};
#endif

#include "dpb_device_cpu.h"
#include "op_bf16.h"
#include "staged_pair.h"

const struct dpb_device_ops *const staged_pair_ops = &dpb_device_cpu_ops;
const struct op_half op_half = {.dtype = DPB_BF16, .unit = 0x1p-8, .floor = 1e-30};

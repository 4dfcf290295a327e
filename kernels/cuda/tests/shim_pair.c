/* cpu_pair.h's devices for tests of the kernels: both run the same, in different orders. */
#include "cpu_pair.h"
#include "op_bf16.h"
#include "shim_device.h"

#ifdef SHIM_FP16
const struct op_half op_half = {.dtype = DPB_F16, .unit = 0x1p-11, .floor = 0x1p-24};
#else
const struct op_half op_half = {.dtype = DPB_BF16, .unit = 0x1p-8, .floor = 1e-30};
#endif

dpb_device *cpu_pair[2];
bool cpu_pair_tells_late;

int cpu_pair_open(void **state)
{
    (void)state;
    cpu_pair[0] = shim_device_open(0);
    cpu_pair[1] = shim_device_open(1);
    return 0;
}

int cpu_pair_close(void **state)
{
    (void)state;
    shim_device_close(cpu_pair[0]);
    shim_device_close(cpu_pair[1]);
    return 0;
}

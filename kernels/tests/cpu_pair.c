#include "cpu_pair.h"

#include "dpb_device_cpu.h"
#include "op_bf16.h"

const struct op_half op_half = {.dtype = DPB_BF16, .unit = 0x1p-8, .floor = 1e-30};
dpb_device *cpu_pair[2];
bool cpu_pair_tells_late;

int cpu_pair_open(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct dpb_device_config config = {.local_size = 1, .threads = i + 1};

        if (dpb_device_cpu_ops.open(&config, &cpu_pair[i]) != DPB_OK)
            return -1;
    }
    return 0;
}

int cpu_pair_close(void **state)
{
    (void)state;
    dpb_device_cpu_ops.close(cpu_pair[0]);
    dpb_device_cpu_ops.close(cpu_pair[1]);
    return 0;
}

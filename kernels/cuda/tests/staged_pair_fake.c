/* The tests of operators on the device "cuda", on fakes: which order of work, the environment says
 * (FAKE_SEED). What the device leaves behind fails the program. */
#include "dpb_device_cuda.h"
#include "fake_kernels.h"
#include "op_bf16.h"
#include "staged_pair.h"

#include <stdio.h>
#include <stdlib.h>

const struct dpb_device_ops *const staged_pair_ops = &dpb_device_cuda_ops;

/* cuDNN has no engine that keeps the gradient of 16-bit filters in fp32 (conv_graph.h). */
const struct op_half op_half = {.dtype = DPB_BF16,
                                .unit = 0x1p-8,
                                .floor = 1e-30,
                                .filter_gradients_rounded = true,
                                .bias_rounded = true};

static void check_leaks(void)
{
    char text[256];

    fake_cuda_end();
    if (fake_cuda_leaks(text, sizeof(text)) != 0)
        fake_cuda_stop(FAKE_EXIT_MISUSE, "fake: not given back: %s", text);
}

/* Before main(), and so the last of what exit() calls. */
__attribute__((constructor)) static void begin(void)
{
    const char *seed = getenv("FAKE_SEED");

    fake_gpu_begin(&(struct fake_cuda_config){.seed = seed ? strtoull(seed, NULL, 10) : 1});
    atexit(check_leaks);
}

#include "staged_pair.h"

#include "cpu_pair.h"
#include "dpb_test.h"
#include "staged.h"

dpb_device *cpu_pair[2];
bool cpu_pair_tells_late;

static dpb_device *device, *staged;

static void close_all(void)
{
    staged_close(staged);
    staged_pair_ops->close(device);
}

int cpu_pair_open(void **state)
{
    const struct dpb_device_config config = {.local_size = 1, .threads = 2};
    char why[512];

    (void)state;
    if (staged)
        return 0;
    if (staged_pair_ops->probe(why, sizeof(why)) != DPB_OK)
        dpb_test_skip_all(why);
    if (staged_pair_ops->open(&config, &device) != DPB_OK)
        return -1;
    staged = staged_open(device);
    if (!staged)
        return -1;
    cpu_pair[0] = cpu_pair[1] = staged;
    cpu_pair_tells_late = staged_pair_ops->flags & DPB_DEVICE_ACCELERATOR;
    return atexit(close_all);
}

int cpu_pair_close(void **state)
{
    (void)state;
    return 0;
}

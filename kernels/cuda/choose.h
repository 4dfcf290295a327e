/* choose.h: which device a rank takes. Private to kernels/cuda; no vendor's header is needed, so
 * that it is tested everywhere. */
#ifndef DPB_CUDA_CHOOSE_H
#define DPB_CUDA_CHOOSE_H

#include <stdbool.h>
#include <stdint.h>

#include "dpb_status.h"

struct dpb_cuda_choice {
    int local_rank, local_size; /* ranks on this machine */
    int visible;                /* devices */
    int64_t asked;              /* --cuda-device, or DPB_AUTO */
    bool one_each;              /* a launcher may show each rank a device of its own */
};

/* The number of the device for a rank: the one that is asked for, or local rank modulo visible
 * ones. DPB_ERR_USAGE, logged: no such device, or two ranks would share one. */
dpb_status dpb_cuda_choose(const struct dpb_cuda_choice *choice, int *ordinal);

/* Whether the environment is that of a launcher that gives each rank a device of its own. */
bool dpb_cuda_launcher_shows_one_each(void);

#endif

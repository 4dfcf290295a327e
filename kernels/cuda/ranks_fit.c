#include "dpb_cuda_inspect.h"

#include <stdio.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "cuda_status.h"

/* The names of MIG instances say so: "NVIDIA H200 MIG 1g.18gb". A process sees one of them only. */
static int is_mig(int device)
{
    struct cudaDeviceProp properties;

    if (cudaGetDeviceProperties(&properties, device) != cudaSuccess) {
        cudaGetLastError();
        return 0;
    }
    return strstr(properties.name, " MIG ") != NULL;
}

dpb_status dpb_cuda_ranks_fit(int ranks, char *why, size_t why_bytes)
{
    int count = 0;

    DPB_TRY(dpb_cuda_find_devices(&count, why, why_bytes));
    if (ranks > 1 && is_mig(0)) {
        snprintf(why, why_bytes,
                 "not available here, because the GPU is in MIG mode: a process sees one instance, "
                 "and NCCL does not connect instances; use --ranks 1, or switch MIG off "
                 "(nvidia-smi -mig 0)");
        return DPB_ERR_UNAVAILABLE;
    }
    if (ranks <= count)
        return DPB_OK;
    snprintf(why, why_bytes,
             "not available here, because %d ranks need a GPU each, and %d %s visible", ranks,
             count, count == 1 ? "is" : "are");
    return DPB_ERR_UNAVAILABLE;
}

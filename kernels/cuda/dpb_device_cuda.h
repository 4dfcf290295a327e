/* dpb_device_cuda.h: the device that computes on an NVIDIA GPU, with CUDA, cuBLASLt and cuDNN.
 *
 * No vendor's header is needed to include this: the table of options is linked into programs that
 * only load the device when it is asked for. */
#ifndef DPB_DEVICE_CUDA_H
#define DPB_DEVICE_CUDA_H

#include <stdbool.h>
#include <stdint.h>

#include "dpb_device.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const struct dpb_device_ops dpb_device_cuda_ops;

/* Also dpb_device_cuda_ops.options. */
extern const struct dpb_option_table dpb_device_cuda_option_table;

enum dpb_cuda_algorithm {
    DPB_CUDA_ALGORITHM_MEASURED, /* the fastest of the first few at an operator's first launch */
    DPB_CUDA_ALGORITHM_FIRST     /* what the library's heuristic expects to be the fastest */
};

/* dpb_device_config's `options`; NULL: the defaults. */
struct dpb_device_cuda_options {
    int64_t device; /* number of the device among those that are visible; DPB_AUTO: by local rank */
    bool tf32;      /* fp32 products of matrices and convolutions may be rounded to TF32 */
    int algorithm;  /* enum dpb_cuda_algorithm */
};

/* What a device has made since it was opened. In timed steps, none of it grows. */
struct dpb_device_cuda_counts {
    int64_t allocations;      /* of device memory, from the driver */
    int64_t host_allocations; /* of pinned memory */
    int64_t plans;            /* of matrix products and convolutions */
    int64_t graphs_made;      /* instantiated */
    int64_t graphs_updated;   /* the last one taken for a new recording of the same form */
    int64_t allocated_bytes;  /* of device memory, in use or kept for later */
    int64_t while_sealed;     /* allocations and plans made between seal(true) and seal(false) */
};
struct dpb_device_cuda_counts dpb_device_cuda_get_counts(dpb_device *device);

#ifdef __cplusplus
}
#endif
#endif

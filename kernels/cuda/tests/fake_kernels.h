/* fake_kernels.h: the device's own kernels on the faked runtime's streams, and everything that the
 * device "cuda" needs to open without a GPU. */
#ifndef DPB_FAKE_KERNELS_H
#define DPB_FAKE_KERNELS_H

#include "fake_cudart.h"

/* fake_cuda_begin(), with launches of kernels (shim.h) put on its streams, and the faked cuBLASLt
 * and cuDNN in place of the libraries. */
void fake_gpu_begin(const struct fake_cuda_config *config);

#endif

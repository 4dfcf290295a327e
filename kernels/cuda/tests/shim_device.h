/* shim_device.h: the kernels of cuda_kernels.h, run by shim.h, as a device, so that the operators'
 * tests take it for one. Its memory is the host's.
 *
 * The matrix product and the convolutions are the reference's. Attention is made of this folder's
 * kernels and, between them, the reference's products. */
#ifndef DPB_CUDA_SHIM_DEVICE_H
#define DPB_CUDA_SHIM_DEVICE_H

#include "cuda_kernels.h"

/* Test fails without memory. Every launch takes the order (enum dpb_shim_order) after that of the
 * one before, from `first_order` on: a kernel that depends on it gives other bits the second time.
 */
dpb_device *shim_device_open(unsigned first_order);
void shim_device_close(dpb_device *device);

/* A queue with workspace and faults of its own, all poisoned or zero. */
struct dpb_cuda_queue shim_queue_open(void);
void shim_queue_close(struct dpb_cuda_queue *queue);

#endif

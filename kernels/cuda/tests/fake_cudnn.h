/* fake_cudnn.h: cuDNN's table for tests without a GPU. Graphs of convolutions, additions and ReLU
 * run on the stream of the faked runtime (fake_cudart.h), in double, from the dimensions and
 * strides of their tensors. Descriptors that do not fit each other are refused; batch normalisation
 * has no engines here. */
#ifndef DPB_FAKE_CUDNN_H
#define DPB_FAKE_CUDNN_H

#include "cudnn_table.h"

extern const struct dpb_cudnn fake_cudnn;

/* Do engines take what stands behind a convolution, bias and ReLU? At first, yes. */
void fake_cudnn_set_fuses(bool fuses);

/* Graphs launched since the program's start. */
int64_t fake_cudnn_launches(void);

#endif

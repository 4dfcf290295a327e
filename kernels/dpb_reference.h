/* dpb_reference.h: one plain C implementation of every operator, in double inside, slow and obvious.
 *
 * Tests compare every device with it, and check its own gradients against finite differences.
 * It accepts the same argument structs as the devices (fp32 storage), and a fp64 twin for gradient
 * checks: the same structs with DPB_F64 tensors. For fp64, the float * members that carry data
 * (bias, gamma, loss, ...) are read as double *. */
#ifndef DPB_REFERENCE_H
#define DPB_REFERENCE_H

#include "dpb_device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Compute `op` on host memory. DPB_ERR_USAGE for shapes that do not fit (logged). */
dpb_status dpb_reference_op(enum dpb_op op, const void *args);

/* Do the shapes and pointers of `args` fit `op`? The one place that checks them; devices call it.
 * DPB_ERR_USAGE, logged with operator and shapes. */
dpb_status dpb_op_args_check(enum dpb_op op, const void *args);

#ifdef __cplusplus
}
#endif
#endif

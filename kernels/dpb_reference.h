/* dpb_reference.h: one plain C implementation of every operator, in double inside, slow and
 * obvious.
 *
 * Tests compare every device with it, and check its own gradients against finite differences.
 * It accepts the same argument structs as the devices (fp32 storage), and a fp64 twin for gradient
 * checks: the same structs with DPB_F64 tensors. For fp64, the float * members that carry data
 * (bias, gamma, loss, ...) are read as double *. sgd-momentum and scale have no tensors and are
 * fp32 always. */
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

/* Are all labels 0 or 1? For a device whose labels the host can read. DPB_ERR_USAGE, logged. */
dpb_status dpb_binary_labels_check(const int32_t *label, int64_t count);

/* Is every one of `count` row numbers of operator `op` below `rows`, and none negative? Devices
 * that compute on host memory call it. DPB_ERR_USAGE, logged with position and number. */
dpb_status dpb_op_ids_check(enum dpb_op op, const int32_t *ids, int64_t count, int64_t rows);

/* The shapes and numbers of `args` for messages, "x[64,26,26,32] w[64,32,3,3] ... stride 1 pad 0",
 * cut where `text` is full. Safe for arguments that do not fit. */
void dpb_op_args_text(enum dpb_op op, const void *args, char *text, size_t text_bytes);

/* The element type of the tensors of `args`; DPB_F32 for operators without tensors. */
enum dpb_dtype dpb_op_args_dtype(enum dpb_op op, const void *args);

#ifdef __cplusplus
}
#endif
#endif

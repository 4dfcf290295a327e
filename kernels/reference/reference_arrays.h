/* reference_arrays.h: arrays of double that one reference operator works on.
 *
 * Inputs are read into them and outputs written back at the end, so the formulas are written once
 * for fp32, bf16 and fp64, and aliased arguments need no care. A tensor has an element type of its
 * own; a member of type `float *` is fp64 where the operator is, else fp32. */
#ifndef DPB_REFERENCE_ARRAYS_H
#define DPB_REFERENCE_ARRAYS_H

#include "dpb_reference.h"

#define DPB_REF_ARRAYS_MAX 16

struct dpb_ref_arrays {
    enum dpb_dtype dtype; /* of the operator */
    int count;
    struct {
        double *values;
        enum dpb_dtype dtype;
        void *to;                      /* written back there; NULL for inputs and temporaries */
        int64_t rows, columns, stride; /* of `to`; `values` is dense */
    } item[DPB_REF_ARRAYS_MAX];
    bool failed; /* out of memory: later calls return NULL */
};

/* A copy of a tensor; a zeroed array that dpb_ref_finish() stores to it; the same, starting with
 * what it holds. */
const double *dpb_ref_read_tensor(struct dpb_ref_arrays *arrays, const struct dpb_tensor *from);
double *dpb_ref_write_tensor(struct dpb_ref_arrays *arrays, const struct dpb_tensor *to);
double *dpb_ref_update_tensor(struct dpb_ref_arrays *arrays, const struct dpb_tensor *to);

/* A copy of the `numel` elements of a `float *`. */
const double *dpb_ref_read(struct dpb_ref_arrays *arrays, const void *from, int64_t numel);

/* A zeroed array that dpb_ref_finish() stores to `to` (NULL: a temporary). */
double *dpb_ref_write(struct dpb_ref_arrays *arrays, void *to, int64_t numel);

/* As dpb_ref_write(), starting with what `to` holds. */
double *dpb_ref_update(struct dpb_ref_arrays *arrays, void *to, int64_t numel);

/* `rows` rows of `columns` elements of a tensor, `stride` elements apart in memory. */
const double *dpb_ref_read_rows(struct dpb_ref_arrays *arrays, const struct dpb_tensor *from,
                                int64_t rows, int64_t columns, int64_t stride);
double *dpb_ref_write_rows(struct dpb_ref_arrays *arrays, const struct dpb_tensor *to, int64_t rows,
                           int64_t columns, int64_t stride);

/* Store every output when `st` is DPB_OK, free all; DPB_ERR_NO_MEMORY (logged) when an array could
 * not be had, else `st`. */
dpb_status dpb_ref_finish(struct dpb_ref_arrays *arrays, dpb_status st);

/* What dropout multiplies element number `element` of a tensor with: 0, or 1 / keep. */
double dpb_ref_dropout_factor(float keep, uint64_t seed, uint64_t offset, int64_t element);

/* The operators, by file; arguments have been checked. */
dpb_status dpb_ref_matmul(enum dpb_op op, const void *args);
dpb_status dpb_ref_conv(enum dpb_op op, const void *args);
dpb_status dpb_ref_pool(enum dpb_op op, const void *args);
dpb_status dpb_ref_relu(enum dpb_op op, const void *args);
dpb_status dpb_ref_bias(enum dpb_op op, const void *args);
dpb_status dpb_ref_batchnorm(enum dpb_op op, const void *args);
dpb_status dpb_ref_softmax_xent(enum dpb_op op, const void *args);
dpb_status dpb_ref_interaction(enum dpb_op op, const void *args);
dpb_status dpb_ref_sigmoid_bce(enum dpb_op op, const void *args);
dpb_status dpb_ref_sgd(enum dpb_op op, const void *args);
dpb_status dpb_ref_adam(enum dpb_op op, const void *args);
dpb_status dpb_ref_lars(enum dpb_op op, const void *args);
dpb_status dpb_ref_adagrad(enum dpb_op op, const void *args);
dpb_status dpb_ref_scale(enum dpb_op op, const void *args);
dpb_status dpb_ref_finite(enum dpb_op op, const void *args);
dpb_status dpb_ref_cast(enum dpb_op op, const void *args);
dpb_status dpb_ref_add(enum dpb_op op, const void *args);
dpb_status dpb_ref_orthogonalize(enum dpb_op op, const void *args);
dpb_status dpb_ref_gelu(enum dpb_op op, const void *args);
dpb_status dpb_ref_tanh(enum dpb_op op, const void *args);
dpb_status dpb_ref_dropout(enum dpb_op op, const void *args);
dpb_status dpb_ref_layernorm(enum dpb_op op, const void *args);
dpb_status dpb_ref_embedding(enum dpb_op op, const void *args);
dpb_status dpb_ref_attention(enum dpb_op op, const void *args);

#endif

/* op_gradient.h: a backward operator of the reference against central differences of its forward
 * operator, in fp64: for loss = sum(r y) with random r, the gradient with respect to an input must
 * be (loss(x + h) - loss(x - h)) / 2h. With h = 1e-5 the truncation is of order h^2 and the
 * rounding of order 1e-16 / h: 1e-6 is demanded. */
#ifndef DPB_OP_GRADIENT_H
#define DPB_OP_GRADIENT_H

#include "op_data.h"

struct op_forward {
    enum dpb_op op;
    const void *args;
    const double *y, *r; /* output and its weights in the loss */
    int64_t numel;
};

/* Changes and restores `input`; y is left as of some other input. */
void op_assert_gradient(const char *what, const struct op_forward *forward, double *input,
                        const double *gradient, int64_t numel);

struct dpb_tensor op_tensor64(double *data, int rank, const int64_t *dim);

#define OP_T2(data, a, b)       op_tensor64(data, 2, (const int64_t[]){a, b})
#define OP_T4(data, a, b, c, d) op_tensor64(data, 4, (const int64_t[]){a, b, c, d})

#endif

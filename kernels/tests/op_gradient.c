#include "op_gradient.h"

#include <math.h>

#include "dpb_reference.h"

#define STEP  1e-5
#define LIMIT 1e-6

static double loss_of(const struct op_forward *forward)
{
    double loss = 0.0;

    assert_int_equal(dpb_reference_op(forward->op, forward->args), DPB_OK);
    for (int64_t i = 0; i < forward->numel; i++)
        loss += forward->r[i] * forward->y[i];
    return loss;
}

void op_assert_gradient(const char *what, const struct op_forward *forward, double *input,
                        const double *gradient, int64_t numel)
{
    bool zero = true;

    for (int64_t i = 0; i < numel; i++) {
        double kept = input[i], above, below, difference;

        input[i] = kept + STEP;
        above = loss_of(forward);
        input[i] = kept - STEP;
        below = loss_of(forward);
        input[i] = kept;
        difference = (above - below) / (2.0 * STEP);
        if (!(fabs(gradient[i] - difference) <= LIMIT * fmax(1.0, fabs(difference))))
            fail_msg("%s: gradient %lld is %.12g, by differences %.12g", what, (long long)i,
                     gradient[i], difference);
        zero = zero && gradient[i] == 0.0;
    }
    assert_false(zero); /* else the test would see nothing */
}

struct dpb_tensor op_tensor64(double *data, int rank, const int64_t *dim)
{
    struct dpb_tensor tensor = {.data = data, .dtype = DPB_F64, .rank = rank};

    for (int i = 0; i < rank; i++)
        tensor.dim[i] = dim[i];
    return tensor;
}

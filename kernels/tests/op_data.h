/* op_data.h: arrays, and comparing results, for the tests of operators. */
#ifndef DPB_OP_DATA_H
#define DPB_OP_DATA_H

#include "dpb_device.h"
#include "dpb_test.h"

/* Arrays that are freed together. */
struct op_data {
    void *memory[128];
    int count;
    uint64_t stream; /* of the random numbers; counts up */
};

void op_data_release(struct op_data *data);

/* Uniform in [-1, 1). Arrays of floats start 4 bytes after a 64-byte boundary, as a parameter in a
 * bucket may. */
float *op_data_f32(struct op_data *data, int64_t numel);
double *op_data_f64(struct op_data *data, int64_t numel);
/* Distinct values at least 1 / numel apart and away from 0, in random order. */
double *op_data_distinct(struct op_data *data, int64_t numel);
/* |value| of each. */
float *op_data_abs(struct op_data *data, const float *values, int64_t numel);
void *op_data_bytes(struct op_data *data, size_t bytes);
/* Labels in [0, classes). */
int32_t *op_data_labels(struct op_data *data, int64_t numel, int64_t classes);

/* An output: `start` is what it holds before the operator (NULL: NaNs, so that an element which is
 * read or not written shows). */
struct op_output {
    void *to;
    size_t bytes;
    const void *start;
};

/* An output of floats that begins as NaNs. */
#define FLOATS(array, numel)                                                                       \
    {                                                                                              \
        array, (size_t)(numel) * sizeof(float), NULL                                               \
    }

/* Launch twice on a device (NULL: the reference, once) from the same start; both runs must give the
 * same bits. */
void op_run(dpb_device *device, enum dpb_op op, const void *args, const struct op_output *outputs,
            int output_count);

/* |got - want| <= ulps * 2^-24 * bound, elementwise; `bound` NULL: 1. */
void op_assert_close(const char *what, const float *got, const float *want, const float *bound,
                     int64_t numel, double ulps);

/* For op_assert_close(), with the sum of the terms' absolute values as `bound`: a sum of K terms in
 * fp32 is off by at most about K 2^-24 of it, and by about sqrt(K) 2^-24 when the roundings are
 * independent; vector code sums in many short chains, which is less still. */
double op_ulps_of_sum(int64_t terms);

/* Does every one of `numel` floats have the same bits? */
void op_assert_same(const float *got, const float *want, int64_t numel);

/* dpb_op_args_check() refuses `args` and names the operator and `reason`. */
void op_assert_misfit(enum dpb_op op, const void *args, const char *reason);

#endif

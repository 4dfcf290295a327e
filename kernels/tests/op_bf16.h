/* op_bf16.h: an operator of the CPU device in bf16 against the reference, which computes in double
 * from the same bf16 inputs and stores fp32.
 *
 * Take the arguments of the fp32 test and a list of what they read and write; op_check_bf16() does
 * the rest.
 *
 * Limit. bf16 has 8 significant bits: rounded to nearest, a result is off by at most 2^-8 of
 * itself. Before that it is a sum in fp32, off by ulps 2^-24 of the sum of its terms' absolute
 * values (op_ulps_of_sum()). An operator that keeps something in bf16 on the way, as attention its
 * weights, is off by 2^-8 more of these absolute values for each such rounding. So
 *   |got - want| <= 2^-8 |want| + (ulps 2^-24 + roundings 2^-8) bound,
 * and without the first term where the result is fp32. With another type than bf16 (op_half), its
 * rounding stands for 2^-8. */
#ifndef DPB_OP_BF16_H
#define DPB_OP_BF16_H

#include "op_data.h"

/* What the program that links this takes for bf16: fp16 is checked by the same tests. */
struct op_half {
    enum dpb_dtype dtype;
    double unit;                   /* relative error of rounding: 2^-8 of bf16, 2^-11 of fp16 */
    double floor;                  /* absolute error of numbers too small for that */
    bool filter_gradients_rounded; /* what conv-bwd-weights gives in fp32 was rounded to `dtype` */
    bool bias_rounded;             /* matmul rounds its bias to `dtype` first */
};
extern const struct op_half op_half; /* beside cpu_pair */

/* Skip the test where the devices (cpu_pair) cannot do `op` in op_half.dtype: oneDNN, without
 * AVX-512. First in a test: what it holds by then is not released. */
void op_half_need(enum dpb_op op);

/* Make values what `dtype` has. */
void op_half_round(float *values, int64_t numel);

enum op_part_use {
    OP_READS,
    OP_WRITES,
    OP_UPDATES /* starts with what it holds */
};

struct op_part {
    const char *name;
    size_t at;      /* offset in the arguments, of a struct dpb_tensor */
    int64_t floats; /* above 0: of a `float *` to so many floats; these stay fp32 */
    int64_t extent; /* above 0: elements of the tensor with the gaps between its rows */
    enum op_part_use use;
    bool fp32;              /* a tensor that stays fp32 */
    const float *bound;     /* written parts: NULL: 1 */
    double ulps, roundings; /* of the limit */
};

/* The parts of arguments of type `args`. */
#define OP_TENSOR(args, member) .name = #member, .at = offsetof(struct args, member)
#define OP_FLOATS(args, member, count)                                                             \
    .name = #member, .at = offsetof(struct args, member), .floats = (count)

/* Make `twin` of the fp32 `args`: tensors in bf16 and outputs in memory of their own, owned by
 * `data`. The values that fp32 tensors hold for reading become those of bf16. */
void op_bf16_twin(struct op_data *data, void *twin, void *args, size_t args_bytes,
                  const struct op_part *parts, int count);

/* Launch `op` on `device` with `twin` (twice, as op_run() does) and compare what it wrote with what
 * the reference wrote to `args`. */
void op_bf16_compare(dpb_device *device, enum dpb_op op, const void *twin, const void *args,
                     const struct op_part *parts, int count);

/* The reference, and the device with one and two threads (cpu_pair), on all of it. */
void op_check_bf16(enum dpb_op op, void *args, size_t args_bytes, const struct op_part *parts,
                   int count);

#endif

// op_fields.h: what an operator's arguments point to, and what its work amounts to.
#ifndef DPB_MICRO_OP_FIELDS_H
#define DPB_MICRO_OP_FIELDS_H

#include <cstdint>
#include <vector>

#include "dpb_device.h"

enum class role {
    read,
    written,
    updated, // read, and then written
    scratch  // contents lost, or nobody else's affair
};

// What numbers an array may hold for the operator to be defined and to be as fast as in training.
enum class content {
    any,         // uniform in [-1, 1)
    positive,    // uniform in [0.5, 1.5): variances, squares
    probability, // positive, such that a row sums to about 1
    rows,        // int32 below `below`
    ones         // bytes
};

struct op_field {
    void **pointer;
    dpb_tensor *tensor; // whose pointer that is; NULL for an array that has no dtype of its own
    int64_t elements;   // between the first and the last
    int64_t counted;    // of them that the operator touches, once
    int element_bytes;  // 4 or 1
    role use;
    content fill;
    int64_t below;
    bool narrow; // bf16 in mixed precision (dpb_device.h)
};

// The arrays of `args`, which must outlive the result; NULL members are left out. Empty for an
// operator that this file does not know.
std::vector<op_field> op_fields(dpb_op op, void *args);

// Floating-point operations of a product: 2 for a multiply-add, whatever the algorithm. 0 for the
// operators that are none, which memory limits.
double op_flops(dpb_op op, const void *args);

// Bytes that must be read or written once: the arrays as they are now.
double op_bytes(dpb_op op, void *args);

// Make the problem smaller in the dimensions that only repeat the work (samples, rows), until it
// has about `flops`.
void op_reduce(dpb_op op, void *args, double flops);

#endif

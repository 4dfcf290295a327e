// op_problem.h: memory for an operator's arguments, on a device and for the reference, with the
// same numbers in both.
#ifndef DPB_MICRO_OP_PROBLEM_H
#define DPB_MICRO_OP_PROBLEM_H

#include <cstddef>
#include <string>
#include <vector>

#include "dpb_device.h"
#include "op_fields.h"

class op_problem
{
  public:
    // Of `args` the shapes and settings count, and which pointers lead to the same memory. In
    // DPB_BF16 tensors are what dpb_device.h says of mixed precision. What an operator writes over
    // its input has memory of its own here: launched again and again, it would drift to where
    // numbers are denormal and slow.
    op_problem(dpb_device *device, dpb_op op, const void *args, dpb_dtype dtype);
    op_problem(const op_problem &) = delete;
    op_problem &operator=(const op_problem &) = delete;
    ~op_problem();

    // Empty, or why there is no such problem: memory, or an operator that cannot be prepared.
    const std::string &error() const
    {
        return error_;
    }
    // The device's arguments.
    void *args()
    {
        return device_args_.data();
    }
    // Launch on the device and with the reference, and compare all results: empty, or the first
    // difference. Once per problem: results are also inputs.
    std::string compare();

  private:
    struct both {
        op_field on_device, in_reference;
    };

    void place();
    void fill();
    bool prepare(bool on_device);
    bool run(bool on_device, dpb_op op, const void *args);
    std::string compare_array(const both &array) const;

    dpb_device *device_;
    dpb_op op_;
    dpb_dtype dtype_;
    std::vector<char> original_; // as given: addresses to be told apart
    // dpb_device's structs, which need no alignment above that of operator new
    std::vector<char> device_args_, reference_args_;
    std::vector<both> arrays_;
    std::vector<void *> device_memory_;
    std::vector<std::vector<char>> reference_memory_;
    std::string error_;
};

#endif

// extra_problems.h: operators that no network's forward and backward pass launches, at sizes of the
// networks: optimizers, and what the engine and options launch.
#ifndef DPB_MICRO_EXTRA_PROBLEMS_H
#define DPB_MICRO_EXTRA_PROBLEMS_H

#include <string>
#include <vector>

#include "dpb_device.h"

struct extra_problem {
    std::string network; // whose size it is
    dpb_op op;
    std::vector<char> args; // pointers tell arrays apart and lead nowhere
};

std::vector<extra_problem> extra_problems();

#endif

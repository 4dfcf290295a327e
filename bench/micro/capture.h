/* capture.h: what a training step of a network launches, got by running the step on a device that
 * computes nothing and writes down the arguments: so the shapes are the network's own. */
#ifndef DPB_MICRO_CAPTURE_H
#define DPB_MICRO_CAPTURE_H

#include <stddef.h>

#include "dpb_workload.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DPB_CAPTURE_ARGS_BYTES 1024

/* Pointers in the arguments say which memory is the same, and lead nowhere. */
struct dpb_captured {
    enum dpb_op op;
    union {
        char bytes[DPB_CAPTURE_ARGS_BYTES];
        max_align_t alignment;
    } args;
};

struct dpb_capture {
    struct dpb_captured *launch;
    int count, room;
};

/* The launches of one forward and backward pass of `samples` synthetic samples, in order; the
 * workload's default options, fp32. To be released. Errors are logged. */
dpb_status dpb_capture_step(const struct dpb_workload_ops *workload, int64_t samples,
                            struct dpb_capture *capture);
void dpb_capture_release(struct dpb_capture *capture);

/* Bytes of the arguments of an operator. */
size_t dpb_capture_args_bytes(enum dpb_op op);

#ifdef __cplusplus
}
#endif
#endif

/* staged.h: a device whose memory the host must not touch, in the place of one that computes on the
 * host's: the tests of operators as they are, on an accelerator.
 *
 * A launch copies what the arguments point to into memory of the device, launches the operator
 * there, waits, and copies everything back. Arrays that overlap (in-place operators, parts of one
 * buffer) overlap on the device too, and lie as far from an aligned address as on the host. */
#ifndef DPB_STAGED_H
#define DPB_STAGED_H

#include "dpb_device.h"

/* A device that stages for `device`, which stays the caller's and open. It launches operators and
 * says which there are; streams, marks and memory are `device`'s own. NULL without memory. */
dpb_device *staged_open(dpb_device *device);
void staged_close(dpb_device *staged);

/* An array that arguments point to. */
struct staged_span {
    size_t at;    /* of the pointer in the arguments */
    size_t bytes; /* of the array */
};
#define STAGED_SPANS_MAX 24

/* The arrays of an operator's arguments, without those that are NULL. */
int staged_spans(enum dpb_op op, const void *args, struct staged_span spans[STAGED_SPANS_MAX]);

#endif

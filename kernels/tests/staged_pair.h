/* staged_pair.h: cpu_pair.h's devices in another form: both are the same device, staged. The
 * program says which; it is opened once and stays open. */
#ifndef DPB_STAGED_PAIR_H
#define DPB_STAGED_PAIR_H

#include "dpb_device.h"

/* The program's. A device that is not available skips all of its tests, with the reason. */
extern const struct dpb_device_ops *const staged_pair_ops;

#endif

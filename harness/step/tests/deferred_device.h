/* deferred_device.h: the CPU device made lazy: the optimizer's operators run when the stream is
 * synchronised, as on a device with a queue of its own. */
#ifndef DPB_TESTS_DEFERRED_DEVICE_H
#define DPB_TESTS_DEFERRED_DEVICE_H

#include "dpb_device.h"

/* Wrap an open CPU device (borrowed). One at a time; nothing to release. */
dpb_device *deferred_device_of(dpb_device *inner);

/* When the last of the queued operators ended, dpb_clock_now_ns(); 0: none has run. */
int64_t deferred_device_last_ns(void);

#endif

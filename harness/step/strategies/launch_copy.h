/* launch_copy.h: a copy on the compute stream, recorded as a computation: into packs, out of them.
 */
#ifndef DPB_LAUNCH_COPY_H
#define DPB_LAUNCH_COPY_H

#include "dpb_workload.h"

/* `name` is static. */
static inline dpb_status launch_copy(const struct dpb_launcher *launcher, const char *name,
                                     void *to, const void *from, int64_t bytes)
{
    dpb_status st;

    dpb_range_begin(launcher->recorder, DPB_LANE_HOST, DPB_EVENT_COMPUTE, name, -1);
    st = dpb_device_get_ops(launcher->device)
                 ->copy(launcher->device, to, from, (size_t)bytes, launcher->stream);
    dpb_range_end(launcher->recorder, DPB_LANE_HOST);
    return st;
}

#endif

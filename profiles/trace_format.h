/* trace_format.h: what the writer and the reader of trace files must agree on. Private. */
#ifndef DPB_TRACE_FORMAT_H
#define DPB_TRACE_FORMAT_H

#include "dpb_event.h"

#define DPB_TRACE_SCHEMA        "dpb.trace/1"
#define DPB_TRACE_SCHEMA_STEM   "dpb.trace/"
#define DPB_TRACE_CLOCK         "CLOCK_MONOTONIC, nanoseconds since the machine's boot"
#define DPB_TRACE_SCHEMA_CHROME 1 /* schemaVersion, as PyTorch's profiler writes it */

/* The name of a lane's first thread; the others are called "<name> (2)" and so on. */
static inline const char *dpb_trace_lane_text(enum dpb_lane lane)
{
    static const char *const text_of[] = {[DPB_LANE_HOST] = "host",
                                          [DPB_LANE_COMM] = "comm",
                                          [DPB_LANE_STRATEGY] = "strategy",
                                          [DPB_LANE_DEVICE] = "device",
                                          [DPB_LANE_DEVICE_COMM] = "device comm",
                                          [DPB_LANE_COPY] = "device copy"};

    _Static_assert(sizeof(text_of) / sizeof(text_of[0]) == DPB_LANE_COUNT, "one text per lane");
    return text_of[lane];
}

#endif

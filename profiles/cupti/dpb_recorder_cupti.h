/* dpb_recorder_cupti.h: the recorder of steps on an NVIDIA GPU, by CUPTI's activity records. */
#ifndef DPB_RECORDER_CUPTI_H
#define DPB_RECORDER_CUPTI_H

#include "dpb_recorder.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Steps of one process that may be recorded: CUPTI 13.0 spoils what goes beyond 2 GB of records and
 * slows down in long traces. */
#define DPB_CUPTI_STEPS_MAX 20

/* Spans of the host as recorder `host` keeps them, also as NVTX ranges, and on the device's lanes
 * what ran there (docs/trace-format.md). One per process; it needs prepare() and start().
 *
 * Where another tool of NVIDIA has the device already (nsys, ncu), it keeps the host's spans and
 * the NVTX ranges, for that tool, and describe() says that the device was not traced. */
extern const struct dpb_recorder_ops dpb_recorder_cupti_ops;

#ifdef __cplusplus
}
#endif
#endif

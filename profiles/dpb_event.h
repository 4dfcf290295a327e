/* dpb_event.h: one thing that happened on one lane of one rank. All times int64 nanoseconds. */
#ifndef DPB_EVENT_H
#define DPB_EVENT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* identifier, text (trace category) */
#define DPB_EVENT_MAP(X)                                                                           \
    X(DPB_EVENT_STEP, "step")           /* one training step, host span */                         \
    X(DPB_EVENT_DATA, "data")           /* waiting for or making the batch, host span */           \
    X(DPB_EVENT_FORWARD, "forward")     /* host span */                                            \
    X(DPB_EVENT_BACKWARD, "backward")   /* host span */                                            \
    X(DPB_EVENT_OPTIMIZER, "optimizer") /* host span */                                            \
    X(DPB_EVENT_SYNC, "sync")           /* host waits for collectives, host span */                \
    X(DPB_EVENT_COMPUTE, "compute")     /* a kernel or operator that computes */                   \
    X(DPB_EVENT_COMM, "comm")           /* a collective, from its start to its result */           \
    X(DPB_EVENT_COMM_WAIT, "comm-wait") /* the part of a collective spent waiting for peers */     \
    X(DPB_EVENT_READY, "ready")         /* instant: a bucket became ready (end == start) */        \
    X(DPB_EVENT_NOTE, "note")           /* what a strategy did beside it: "QUEUE"; not counted */  \
    X(DPB_EVENT_COPY, "copy")           /* a copy or fill of memory by an accelerator */           \
    X(DPB_EVENT_OVERHEAD, "overhead")   /* the tracer's own time on the host; not counted */

enum dpb_event_kind {
#define DPB_EVENT_ENUM(name, text) name,
    DPB_EVENT_MAP(DPB_EVENT_ENUM)
#undef DPB_EVENT_ENUM
    DPB_EVENT_KIND_COUNT
};

const char *dpb_event_kind_text(enum dpb_event_kind kind);

/* Lanes of a rank; one writer each. With an accelerator a COMPUTE range of the host lane is the
 * launch of an operator, and what ran lies on the device's lanes, which only a recorder that asks
 * the device fills. */
enum dpb_lane {
    DPB_LANE_HOST,        /* the rank's main thread: spans, and operators of an in-thread device */
    DPB_LANE_COMM,        /* collectives, as the host sees them */
    DPB_LANE_STRATEGY,    /* spans of a strategy's own; of its hooks and of its coordinator */
    DPB_LANE_DEVICE,      /* kernels that compute, of all streams */
    DPB_LANE_DEVICE_COMM, /* kernels of collectives */
    DPB_LANE_COPY,        /* copies and fills of the device's memory */
    DPB_LANE_COUNT
};

/* The lanes before it are written while steps run, by the host. */
#define DPB_LANE_HOST_COUNT DPB_LANE_DEVICE

static inline int dpb_lane_is_device(unsigned lane)
{
    return lane >= DPB_LANE_HOST_COUNT && lane < DPB_LANE_COUNT;
}

struct dpb_event {
    int64_t start_ns;
    int64_t end_ns;   /* >= start_ns */
    const char *name; /* static or outliving the recorder: "conv2.bwd-weights", "all-reduce" */
    int32_t step;
    int32_t bucket; /* -1 where it means nothing */
    int64_t bytes;  /* payload of a collective; 0 elsewhere */
    uint8_t kind;   /* enum dpb_event_kind */
    uint8_t lane;   /* enum dpb_lane */
    int16_t rank;
};

#ifdef __cplusplus
}
#endif
#endif

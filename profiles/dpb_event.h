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
    X(DPB_EVENT_NOTE, "note")           /* what a strategy did beside it: "QUEUE"; not counted */

enum dpb_event_kind {
#define DPB_EVENT_ENUM(name, text) name,
    DPB_EVENT_MAP(DPB_EVENT_ENUM)
#undef DPB_EVENT_ENUM
    DPB_EVENT_KIND_COUNT
};

const char *dpb_event_kind_text(enum dpb_event_kind kind);

/* Lanes of a rank; one writer each. */
enum dpb_lane {
    DPB_LANE_HOST,     /* the rank's main thread: spans, and operators of an in-thread device */
    DPB_LANE_COMM,     /* collectives */
    DPB_LANE_STRATEGY, /* spans of a strategy's own; of its hooks and of its coordinator */
    DPB_LANE_COUNT
};

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

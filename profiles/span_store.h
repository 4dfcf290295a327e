/* span_store.h: ranges in, spans out: what every recorder does on the host's side. Private.
 *
 * Recording takes no lock, allocates nothing and cannot fail; dpb_recorder.h says what is counted
 * as lost. Its events are those of the host's lanes only. */
#ifndef SPAN_STORE_H
#define SPAN_STORE_H

#include <stdalign.h>
#include <stdatomic.h>

#include "dpb_recorder.h"

#define SPAN_CACHE_LINE_BYTES 64

/* An event and its place in the order of begins, which decides between events of equal times: the
 * outer range began first. */
struct span_record {
    struct dpb_event event;
    uint64_t order;
};

struct span_lane {
    alignas(SPAN_CACHE_LINE_BYTES) struct span_record *records;
    size_t count;
    uint64_t lost;
    uint64_t order;
    size_t depth; /* may exceed DPB_RECORDER_DEPTH: the ranges above are lost, their ends matched */
    struct span_record open[DPB_RECORDER_DEPTH];
};

struct span_store {
    int16_t rank;
    _Atomic int32_t step;
    _Atomic uint64_t lost_outside_lanes;
    size_t capacity;          /* events per lane */
    struct dpb_event *merged; /* what drain() hands out */
    struct span_lane lanes[DPB_LANE_HOST_COUNT];
};

/* Memory whose pages are there already, not zero; NULL when there is none. */
void *span_alloc_touched(size_t count, size_t element_bytes);

/* A zeroed struct of `bytes`, aligned for one that holds a store; free() it. */
void *span_alloc_recorder(size_t bytes);

/* Fill a zeroed store. DPB_ERR_USAGE for a rank or a capacity that cannot be, DPB_ERR_NO_MEMORY;
 * both logged. Release it also then. */
dpb_status span_store_init(struct span_store *store, const struct dpb_recorder_config *config);
void span_store_release(struct span_store *store);

/* As the members of struct dpb_recorder_ops. */
void span_store_begin(struct span_store *store, enum dpb_lane lane, enum dpb_event_kind kind,
                      const char *name, int32_t bucket);
void span_store_end(struct span_store *store, enum dpb_lane lane);
void span_store_emit(struct span_store *store, const struct dpb_event *event);
void span_store_set_step(struct span_store *store, int32_t step);
int32_t span_store_step(struct span_store *store);
void span_store_drain(struct span_store *store, const struct dpb_event **events, size_t *count,
                      uint64_t *lost);

#endif

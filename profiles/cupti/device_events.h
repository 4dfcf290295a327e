/* device_events.h: CUPTI's records -> events on the lanes of a device, and what is lost. Private to
 * profiles/cupti. (Not "cupti_events.h": that name is the library's.) */
#ifndef DEVICE_EVENTS_H
#define DEVICE_EVENTS_H

#include <stddef.h>
#include <stdint.h>

#include "cupti_clock.h"
#include "cupti_records.h"
#include "dpb_event.h"
#include "dpb_losses.h"
#include "dpb_status.h"

/* What is pushed as external correlation, kind CUSTOM0: the step and the bucket, CUPTI_NO_BUCKET
 * for none; CUSTOM1: the number of the range on the host's side, from 1, 0 for none. */
#define CUPTI_NO_BUCKET 0xffff

static inline uint64_t cupti_place(int32_t step, int32_t bucket)
{
    const uint64_t low =
            bucket >= 0 && bucket < CUPTI_NO_BUCKET ? (uint64_t)bucket : CUPTI_NO_BUCKET;

    return (uint64_t)(uint32_t)step << 16 | low;
}

struct cupti_run {
    int16_t rank;
    struct cupti_moment from, to;   /* before and after */
    const char *const *range_names; /* of range i + 1 */
    size_t range_count;
};

struct cupti_events {
    struct dpb_event *events;
    size_t count;
    char *names; /* one block, to which the events' names point */
};

/* Make events of all work with times: kernels on lane device, or device comm for those of
 * collectives, copies and fills on lane device copy, named "operator: kernel" after the host's
 * range that launched them; ranges of libraries on lane strategy as notes, CUPTI's own time on lane
 * host. What was launched in no range has step -1. `losses` gets the counts (clock_bound_ns, too);
 * what of them it holds already stays: `dropped` and `untraced`. Sorts the records.
 * DPB_ERR_NO_MEMORY, logged. */
dpb_status cupti_events_make(struct cupti_records *records, const struct cupti_run *run,
                             struct cupti_events *events, struct dpb_losses *losses);

void cupti_events_release(struct cupti_events *events);

#endif

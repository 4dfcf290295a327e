/* dpb_recorder.h: the recorder interface: ranges in, events out. Recording cannot fail and never
 * changes the outcome of what it watches: when its buffer is full, events are counted as lost. */
#ifndef DPB_RECORDER_H
#define DPB_RECORDER_H

#include <stddef.h>
#include <stdint.h>

#include "dpb_event.h"
#include "dpb_options.h"
#include "dpb_status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DPB_RECORDER_OPS_VERSION 1
#define DPB_RECORDER_DEPTH       16 /* nested ranges per lane; deeper ones are lost and counted */

/* Counted as lost: an event for which the buffer had no room, a range nested too deep, an end
 * without a begin, an event of no lane or kind or without a name. */

typedef struct dpb_recorder dpb_recorder;

struct dpb_recorder_config {
    int rank;
    size_t events_per_lane; /* capacity, allocated and touched by open() */
};

struct dpb_recorder_ops {
    int version; /* DPB_RECORDER_OPS_VERSION */
    const char *name, *summary;
    unsigned flags;
    const struct dpb_option_table *options; /* optional: NULL */
    dpb_status (*probe)(char *why, size_t why_bytes);
    dpb_status (*open)(const struct dpb_recorder_config *config, dpb_recorder **recorder);

    /* Begin and end a range on a lane; ranges of one lane nest. `name` must outlive the recorder.
     * One thread per lane at a time. */
    void (*range_begin)(dpb_recorder *recorder, enum dpb_lane lane, enum dpb_event_kind kind,
                        const char *name, int32_t bucket);
    void (*range_end)(dpb_recorder *recorder, enum dpb_lane lane);
    /* Add an event whose times were taken elsewhere (a collective's). rank and step are set by the
     * recorder. */
    void (*emit)(dpb_recorder *recorder, const struct dpb_event *event);
    /* Later events belong to this step; a range to the step in which it began. Any thread. */
    void (*set_step)(dpb_recorder *recorder, int32_t step);

    /* All events so far, ordered by (lane, start, longer first; equal ones as they began), and how
     * many were lost; the array is the recorder's and valid until the next call. Afterwards the
     * recorder is empty, but for ranges still open, which their end completes. No lane may record
     * meanwhile. */
    dpb_status (*drain)(dpb_recorder *recorder, const struct dpb_event **events, size_t *count,
                        uint64_t *lost);
    void (*close)(dpb_recorder *recorder);
};

struct dpb_recorder_base {
    const struct dpb_recorder_ops *ops;
};

dpb_status dpb_recorder_ops_check(const struct dpb_recorder_ops *ops);

/* The two recorders of this room: `none` does nothing (timed steps), `host` keeps spans. */
extern const struct dpb_recorder_ops dpb_recorder_none_ops;
extern const struct dpb_recorder_ops dpb_recorder_host_ops;

static inline void dpb_range_begin(dpb_recorder *recorder, enum dpb_lane lane,
                                   enum dpb_event_kind kind, const char *name, int32_t bucket)
{
    ((struct dpb_recorder_base *)recorder)->ops->range_begin(recorder, lane, kind, name, bucket);
}

static inline void dpb_range_end(dpb_recorder *recorder, enum dpb_lane lane)
{
    ((struct dpb_recorder_base *)recorder)->ops->range_end(recorder, lane);
}

static inline void dpb_range_emit(dpb_recorder *recorder, const struct dpb_event *event)
{
    ((struct dpb_recorder_base *)recorder)->ops->emit(recorder, event);
}

#ifdef __cplusplus
}
#endif
#endif

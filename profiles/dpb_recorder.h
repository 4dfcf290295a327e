/* dpb_recorder.h: the recorder interface: ranges in, events out. Recording cannot fail and never
 * changes the outcome of what it watches: when its buffer is full, events are counted as lost.
 *
 * The order of calls, by the main thread of a rank's process, where the members are there:
 *   prepare()   before the device is opened, and before any other call of the device's libraries
 *   open()      after the device is open
 *   start()     after warm-up, with the device idle, before the first step that is recorded
 *   drain()     with the device idle, after the last step
 *   describe()  after drain()
 *   close()
 * With DPB_RECORDER_OWN_PROCESS, steps whose times are samples must run in another process than
 * those that are recorded, in which prepare() was never called: from prepare() on, all steps of
 * the process are slower. The caller launches the cell twice: timed steps first, then a process of
 * the same seed and options that only warms up and records. */
#ifndef DPB_RECORDER_H
#define DPB_RECORDER_H

#include <stddef.h>
#include <stdint.h>

#include "dpb_event.h"
#include "dpb_json.h"
#include "dpb_options.h"
#include "dpb_status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DPB_RECORDER_OPS_VERSION 3
#define DPB_RECORDER_DEPTH       16 /* nested ranges per lane; deeper ones are lost and counted */

/* Counted as lost: an event for which the buffer had no room, a range nested too deep, an end
 * without a begin, an event of no lane or kind or without a name. */

typedef struct dpb_recorder dpb_recorder;

struct dpb_recorder_config {
    int rank;
    size_t events_per_lane; /* capacity, allocated and touched by open() */
    int64_t steps;          /* that will be recorded; 0: not known */
};

enum dpb_recorder_flags {
    DPB_RECORDER_OWN_PROCESS = 1 << 0 /* recorded and timed steps in two processes */
};

struct dpb_recorder_ops {
    int version; /* DPB_RECORDER_OPS_VERSION */
    const char *name, *summary;
    unsigned flags;
    int64_t steps_max; /* that can be recorded in one process; 0: as many as there is memory for */
    const struct dpb_option_table *options; /* optional: NULL */
    dpb_status (*probe)(char *why, size_t why_bytes);
    /* Optional: what must be done to the process before the device is opened, once. */
    dpb_status (*prepare)(void);
    dpb_status (*open)(const struct dpb_recorder_config *config, dpb_recorder **recorder);
    /* Optional: recording begins; NULL: it began with open(). Once per process, with the device
     * idle. */
    dpb_status (*start)(dpb_recorder *recorder);

    /* Begin and end a range on a lane; ranges of one lane nest. `name` must outlive the recorder.
     * One thread per lane at a time. What is launched on an accelerator between the two by the same
     * thread is named after the innermost range, and belongs to the bucket of the innermost one
     * that has one. */
    void (*range_begin)(dpb_recorder *recorder, enum dpb_lane lane, enum dpb_event_kind kind,
                        const char *name, int32_t bucket);
    void (*range_end)(dpb_recorder *recorder, enum dpb_lane lane);
    /* Optional, both or neither: what the calling thread launches between the two is the collective
     * of this bucket, -1 for one of no bucket. No event of the host; from any thread. */
    void (*bucket_begin)(dpb_recorder *recorder, const char *name, int32_t bucket);
    void (*bucket_end)(dpb_recorder *recorder);
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
    /* Optional: what the recorder says of the last drain(), for the record; NULL: nothing, all that
     * was recorded is there. The caller owns the object; its keys are those of dpb_losses.h, and
     * `clocks_before` and `clocks_after`, objects, where a device's clock was converted. */
    dpb_json *(*describe)(dpb_recorder *recorder);
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

static inline void dpb_bucket_begin(dpb_recorder *recorder, const char *name, int32_t bucket)
{
    const struct dpb_recorder_ops *ops = ((struct dpb_recorder_base *)recorder)->ops;

    if (ops->bucket_begin)
        ops->bucket_begin(recorder, name, bucket);
}

static inline void dpb_bucket_end(dpb_recorder *recorder)
{
    const struct dpb_recorder_ops *ops = ((struct dpb_recorder_base *)recorder)->ops;

    if (ops->bucket_end)
        ops->bucket_end(recorder);
}

static inline void dpb_range_emit(dpb_recorder *recorder, const struct dpb_event *event)
{
    ((struct dpb_recorder_base *)recorder)->ops->emit(recorder, event);
}

#ifdef __cplusplus
}
#endif
#endif

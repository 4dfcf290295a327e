/* dpb_trace.h: trace files: Chrome JSON object form, as Perfetto, chrome://tracing and PyTorch's
 * tools read it.
 *
 * Times are microseconds with exactly three decimals relative to `baseTimeNanoseconds`; one process
 * per rank, one thread per lane; categories are the event kinds; flows join a bucket's ready mark
 * to its collective. `dpbench` holds counts of lost events and what the clocks are. Written to a
 * temporary name and renamed. */
#ifndef DPB_TRACE_H
#define DPB_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include "dpb_event.h"
#include "dpb_json.h"
#include "dpb_status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct dpb_trace_info {
    const char *title; /* the cell's description */
    int world_size;
    uint64_t lost;         /* events the recorders dropped */
    const dpb_json *extra; /* object with more metadata, or NULL; borrowed. "clock" replaces the
                              text that says what the times are (virtual time) */
    const char *backend;   /* the comm backend's name, or NULL */
};

/* Write `count` events of all ranks (any order) to `path`. Events that end before they start are
 * left out, counted in the file and warned of. DPB_ERR_USAGE for an event of no kind, lane or rank,
 * DPB_ERR_IO and DPB_ERR_NO_MEMORY, all logged. */
dpb_status dpb_trace_write(const char *path, const struct dpb_trace_info *info,
                           const struct dpb_event *events, size_t count);

/* Read such a file back: events (malloc'ed array, not NULL; names live in `*names`, one block; free
 * both), ordered by rank, lane and start, longer first, and the number of lost events. Exact: what
 * was written is read to the nanosecond. Damage is DPB_ERR_CORRUPT, another program's file or a
 * newer schema DPB_ERR_UNSUPPORTED, logged with the file and what is wrong. */
dpb_status dpb_trace_read(const char *path, struct dpb_event **events, size_t *count, char **names,
                          uint64_t *lost);

/* One rank's events as compact JSON for the way from the rank to the driver, and back, in the same
 * order. `events` and `names` as above. NULL when out of memory; DPB_ERR_CORRUPT, logged, when the
 * JSON is not what dpb_events_to_json() makes. */
dpb_json *dpb_events_to_json(const struct dpb_event *events, size_t count);
dpb_status dpb_events_from_json(const dpb_json *json, struct dpb_event **events, size_t *count,
                                char **names);

#ifdef __cplusplus
}
#endif
#endif

/* dpb_overlap.h: where the time of a step went, from unions of intervals, to the nanosecond.
 *
 * With U() the union of intervals of one rank inside one step, clipped to the step's span:
 *   compute  = |U(compute)|            comm    = |U(comm)|
 *   overlap  = |U(comm) ^ U(compute)|  exposed = comm - overlap
 *   idle     = span - |U(comm) v U(compute)|
 * so that compute + exposed + idle = span exactly (HTA's definition of overlap, TraceLens'
 * identity: shared definitions in docs/metrics.md). comm_wait is the part of exposed in which this
 * rank waited for peers: |(U(comm-wait) ^ U(comm)) - U(compute)|; data is the part of idle inside
 * data spans: |U(data) - U(comm) - U(compute)|.
 *
 * A rank with events on the lanes of an accelerator (dpb_event.h) has its operators and collectives
 * from there: compute is lane device; comm is lane device comm, or lane comm where that one is
 * empty; a COMPUTE range of the host is a launch. Two more parts of idle, which may share time with
 * each other and with data:
 *   launch = |U(launch) - U(comm) - U(compute)|  the device had nothing to do while the host
 * launched copy   = |U(copy) - U(comm) - U(compute)|    it only copied The device may still work
 * when the host has ended a step, so the span of such a rank's step goes from the host's start, or
 * where the step before ends if that is later, to the host's end, or where the last kernel with
 * this step's number ends if that is later.
 *
 * An event belongs to the steps of its rank whose spans it shares time with, whatever its own
 * `step` says: a collective that runs into the next step exposes time there, too. It is counted
 * once (collectives, comm_bytes), in the last such step. An event without length belongs where it
 * lies, the ends of the span included. */
#ifndef DPB_OVERLAP_H
#define DPB_OVERLAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dpb_event.h"
#include "dpb_status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct dpb_interval {
    int64_t start_ns, end_ns; /* half open; empty when end <= start */
};

/* Sort and merge in place (touching intervals merge, empty ones vanish); the new count. */
size_t dpb_intervals_union(struct dpb_interval *intervals, size_t count);
/* Length of a merged set. */
int64_t dpb_intervals_length_ns(const struct dpb_interval *merged, size_t count);
/* Length of the intersection of two merged sets. */
int64_t dpb_intervals_overlap_ns(const struct dpb_interval *a, size_t a_count,
                                 const struct dpb_interval *b, size_t b_count);

struct dpb_breakdown {
    int32_t rank, step;
    int64_t span_ns;
    int64_t compute_ns;
    int64_t comm_ns;
    int64_t overlap_ns;
    int64_t exposed_ns;
    int64_t comm_wait_ns; /* part of exposed */
    int64_t idle_ns;
    int64_t data_ns;   /* part of idle */
    int64_t launch_ns; /* part of idle; 0 without device lanes */
    int64_t copy_ns;   /* part of idle */
    bool has_device;   /* the rank has device lanes */
    /* sums of the host's spans, clipped to the step; not unions */
    int64_t forward_ns, backward_ns, optimizer_ns, sync_ns;
    int64_t comm_bytes;
    int32_t collectives;
};

/* One breakdown per (rank, step) that has a STEP event, ordered by step, then rank; events of no
 * step span are counted in `stray`, and so is every STEP event after the first of the same rank and
 * step. Events with end < start are dropped and counted in `negative`. Events may come in any
 * order. The array is malloc'ed, also for no row; the caller frees it. DPB_ERR_NO_MEMORY, logged.
 */
dpb_status dpb_breakdown_compute(const struct dpb_event *events, size_t count,
                                 struct dpb_breakdown **rows, size_t *row_count, size_t *stray,
                                 size_t *negative);

#ifdef __cplusplus
}
#endif
#endif

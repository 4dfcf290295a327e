/* dpb_record.h: the record of one cell and repeat, "dpb.record/1", and the files that hold records.
 *
 * JSON Lines is the truth: runs/<id>/records.jsonl, one object per line, appended by one process
 * with one write each, so that a file cut at any byte loses at most its last line. Absent values
 * are null with "<key>_reason". Keys (required ones marked *):
 *
 *   schema*, run_id*, cell* (number in the plan), repeat*, order (position in which it ran),
 *   status* ok|skipped|failed|timeout|invalid|interrupted, reason (null when ok),
 *   tool*{version, git_sha, dirty, build{type, compiler}}, time_utc*, host*{...}, fingerprint*,
 *   device{}, comm{}, config*{every option, resolved}, repro*,
 *   axes*{option: text}          the options that vary in this run, for labels
 *   series*                      canonical text of the options that must agree within one scaling
 *                                curve: everything but ranks (and what follows from ranks)
 *   compute_series*              the same without options that act only between ranks; the
 *                                one-rank cell of that name is the baseline of every such series
 *   ranks*, scaling* weak|strong, global_batch*, batch_per_rank*,
 *   emulated*, simulated*, verified{replicas_identical, comm_self_check, loss_finite},
 *   samples_step_ns*[]           timed steps, until the last rank is through; [] unless ok
 *   rank_median_step_ns[]        per rank
 *   phases{data_ns, forward_ns, backward_ns, sync_ns, optimizer_ns}   medians over timed steps of
 *                                the mean over ranks
 *   overlap{rank_steps, span_ns, compute_ns, comm_ns, overlap_ns, exposed_ns, comm_wait_ns,
 * idle_ns, data_ns}             sums over the traced steps of all ranks (integers, exact identity)
 *   communication{collectives_per_step, payload_bytes_per_step, wire_bytes_per_step,
 *                 wire_bytes_inside_per_step, wire_bytes_between_per_step, busbw_bytes_per_s,
 *                 wire_ns_per_step}
 *   waiting{collectives, late_ranks[{rank, host, last_share, others_waited_ns}], wait_bounds_ns[],
 *           wait_counts[][]}     whom the others waited for, in the traced steps
 *   clocks{domains, ranks[{rank, host, domain, shift_ns, error_ns, drift_ns}]}   of several hosts
 *   progress{cpu_ns_per_collective, wake_late_p50_ns, wake_late_p99_ns, wake_late_max_ns,
 * link_late} the thread that moves gradients: its CPU time (mean over ranks), lateness of timed
 * wake-ups on an emulated link (worst rank), collectives that took longer here than on the link
 *   memory{predicted_bytes, measured_bytes}, throughput{samples_per_s_total,
 *   samples_per_s_per_rank}, energy, training{loss_first, loss_last, steps, epochs, test_accuracy,
 *   test_samples, loss_curve{step[], loss[]}: mean loss of the global batch over at most 100 equal
 *   stretches of consecutive steps, and the number of the last step of each}, trace{file, lost,
 * overhead_ratio}, probe{limit_ratio, availability_ratio, attempts[{availability_ratio,
 * before_ratio, after_ratio, median_step_ns}], flagged}, warnings*[]
 *
 * Readers ignore unknown keys, insist on required ones, refuse an unknown major version. */
#ifndef DPB_RECORD_H
#define DPB_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dpb_json.h"
#include "dpb_status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DPB_RECORD_SCHEMA "dpb.record/1"

enum dpb_record_status {
    DPB_RECORD_OK,
    DPB_RECORD_SKIPPED,
    DPB_RECORD_FAILED,
    DPB_RECORD_TIMEOUT,
    DPB_RECORD_INVALID,
    DPB_RECORD_INTERRUPTED
};
const char *dpb_record_status_text(enum dpb_record_status status);

/* Does the object hold every required key with the right type, a known schema, finite positive
 * samples? `why` gets the reason. */
dpb_status dpb_record_check(const dpb_json *record, char why[256]);

/* Append one record (checked) as one line with one write and fsync. A torn last line that an
 * earlier death left behind is first cut off. Errors are logged with the path. */
dpb_status dpb_records_append(const char *path, const dpb_json *record);

struct dpb_records {
    dpb_json **items;
    size_t count;
    size_t torn; /* 1 when the last line was cut and is left out */
};

/* Read a records file, or a run folder that holds one. Appends to `records` (zero-initialise), so
 * several runs can be read into one. A damaged line in the middle, a missing required key or an
 * unknown major version is DPB_ERR_CORRUPT, logged with file and line; no record at all is
 * DPB_ERR_NO_DATA. */
dpb_status dpb_records_read(const char *path, struct dpb_records *records);
/* The same for a run that has only begun: no record at all is DPB_OK, and nothing is logged. */
dpb_status dpb_records_read_begun(const char *path, struct dpb_records *records);
void dpb_records_release(struct dpb_records *records);

#ifdef __cplusplus
}
#endif
#endif

/* dpb_targets.h: limits that were set before a run, and what its records say of them.
 *
 *   efficiency: ">= 0.90"
 *   step-time-p99: "<= 250ms"
 *   cost-per-epoch: "<= 12 USD"
 *   comm-bus-bandwidth 16MiB..1GiB: ">= 40GB/s"
 *   price: "2.5 USD/h"          per accelerator; costs need it
 *
 * A bandwidth of collectives is one of a size, so its limit names the sizes that it is for, both
 * ends included; no other metric has sizes. A file of such lines, or one with a key `targets` that
 * holds them (a sweep file). Each target holds for every cell that can have the metric. With [low,
 * high] the one-sided bounds of the mean over runs at 95 % each: PASS when the whole interval keeps
 * the limit, FAIL when all of it breaks it, else INCONCLUSIVE; so are fewer than 3 runs. A target
 * that no record can decide is FAIL. */
#ifndef DPB_TARGETS_H
#define DPB_TARGETS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dpb_gate.h"
#include "dpb_gate_set.h"
#include "dpb_json.h"
#include "dpb_status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct dpb_target {
    char metric[64];
    char name[96];                 /* "comm-bus-bandwidth 16MiB..1GiB"; else the metric's */
    int64_t size_least, size_most; /* bytes; 0 where the metric has no sizes */
    char unit[16];
    bool at_least;  /* ">=" or ">" */
    bool is_strict; /* "<" or ">" */
    double limit;   /* in `unit` */
    char text[64];  /* as written */
};

struct dpb_targets {
    struct dpb_target *items;
    size_t count;
    double price; /* USD per accelerator and hour; NaN: none */
};

/* Add one line; `metric` with its sizes; `origin` is for messages. DPB_ERR_USAGE, logged: no such
 * metric, no limit, sizes missing or none. */
dpb_status dpb_targets_add(struct dpb_targets *targets, const char *metric, const char *rule,
                           const char *origin);
/* Read a file; no target at all is DPB_ERR_USAGE, logged. Start from {.price = NAN}. */
dpb_status dpb_targets_read(const char *path, struct dpb_targets *targets);
void dpb_targets_release(struct dpb_targets *targets);

/* One target and cell. */
struct dpb_evidence {
    const struct dpb_target *target; /* borrowed */
    char *cell;                      /* "-" when no cell can have it */
    const char *how;                 /* of dpb_gate_cell_how(), "" without a cell; static */
    enum dpb_verdict verdict;
    char reason[160];
    double found, low, high; /* mean over runs and its bounds; NaN */
    size_t runs;
    char (*hashes)[DPB_SHA256_TEXT_BYTES]; /* of the records, one per run; "" when unknown */
};

struct dpb_evidence_table {
    struct dpb_evidence *items; /* worst first */
    size_t count;
    enum dpb_verdict verdict; /* FAIL when anything fails, else the worst */
};

/* What the runs say. `reference` is what loss-parity compares with, cell by cell; NULL: the cell of
 * the fewest ranks. Release after success. */
dpb_status dpb_targets_judge(const struct dpb_targets *targets, const struct dpb_gate_set *set,
                             const struct dpb_gate_set *reference,
                             struct dpb_evidence_table *table);
void dpb_evidence_release(struct dpb_evidence_table *table);

/* [{"metric", "limit", "cell", "found", "low", "high", "verdict", "records": [...]}]. Caller owns.
 */
dpb_json *dpb_evidence_json(const struct dpb_evidence_table *table);

#ifdef __cplusplus
}
#endif
#endif

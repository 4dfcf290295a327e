/* comm_bench_records.h: what the ranks of `dpbench comm` reported -> records.jsonl, one line for
 * each collective, type and size of a launch. */
#ifndef COMM_BENCH_RECORDS_H
#define COMM_BENCH_RECORDS_H

#include <stddef.h>

#include "comm_bench_rank.h"
#include "comm_bench_sim.h"
#include "dpb_crew.h"
#include "dpb_json.h"
#include "dpb_launcher.h"
#include "dpb_options.h"
#include "dpb_status.h"
#include "dpb_str.h"

/* All records of a run. */
struct comm_records {
    const dpb_crew *crew; /* who starts the ranks; NULL: this process. Borrowed */
    dpb_json *list;       /* array of DPB_COMM_BENCH_SCHEMA; borrowed */
    size_t skipped;       /* of them, collectives that are not supported */
    size_t too_large;     /* of them, those for which there was no memory */
    char *run_id, *path;
    dpb_json *host;
    struct dpb_str lines; /* of the file so far */
};

/* What was launched; all is borrowed. */
struct comm_launch {
    size_t cell;
    const dpb_config *config;
    const char *label;
    const struct comm_row *rows;
    size_t row_count;
    const struct dpb_launch_result *result; /* NULL: nothing was launched */
};

/* The folder is made and locked. `records` has its crew and its list. */
dpb_status comm_records_open(struct comm_records *records, const char *folder);
void comm_records_release(struct comm_records *records);

/* Record a launch that ended with `launched`; its rows, or its failure. The file is replaced as a
 * whole. Returns `launched` where it failed; DPB_ERR_CHECK, logged, when an element is wrong. */
dpb_status comm_records_add(struct comm_records *records, const struct comm_launch *launch,
                            dpb_status launched);

/* Record as skipped, with the reason, a row that was not launched. */
dpb_status comm_records_skip(struct comm_records *records, const struct comm_launch *launch,
                             const struct comm_row *row, const char *reason);

/* The same of virtual ranks on a machine: every row has its time at once. */
dpb_status comm_records_simulate(struct comm_records *records, const struct comm_launch *launch,
                                 const struct comm_sim_machine *machine);

#endif

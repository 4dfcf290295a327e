/* gate_measure.h: runs of two sides, interleaved, for a gate. */
#ifndef DPB_CLI_GATE_MEASURE_H
#define DPB_CLI_GATE_MEASURE_H

#include <signal.h>
#include <stdint.h>

#include "dpb_options.h"
#include "dpb_status.h"

struct gate_side_config {
    const char *build;    /* folder of a build, or a program; "": this program */
    const char *revision; /* of git, built in a worktree of its own; "": none */
    const char *options;  /* "--bucket 1MiB", separated by blanks; "" */
};

struct gate_measure_config {
    struct gate_side_config baseline, candidate;
    const struct dpb_settings *experiment; /* of both sides */
    int64_t runs;                          /* per side */
    const char *folder;                    /* exists, is empty */
    const volatile sig_atomic_t *interrupted;
};

/* Launch A B B A A B ..., each a fresh `dpbench run` with its folder below `folder`/launches, and
 * append one record per launch to `folder`/records.jsonl, with "gate": {"side", "pair", "differs"}.
 * A launch that fails stays in as a record that is not ok; one that leaves no record ends it. */
dpb_status gate_measure(const struct gate_measure_config *config);

#endif

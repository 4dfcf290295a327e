/* dpb_launcher.h: ranks are processes of this very binary, watched until they have all reported, or
 * ended together. Without a crew they are forked here and inherit their files; a crew starts them
 * anywhere, and they call back over TCP (dpb_crew.h).
 *
 * A rank that dies ends the others at once; a rank that makes no progress ends the launch at its
 * time-out. In every case all ranks are gone before dpb_launch_run() returns, but for one that the
 * kernel or a debugger does not let end, which is logged: no orphans. A rank also dies when the
 * launcher does (PR_SET_PDEATHSIG), and one on another host when it has not heard of the launcher
 * for DPB_LAUNCHER_SILENCE_NS. */
#ifndef DPB_LAUNCHER_H
#define DPB_LAUNCHER_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dpb_json.h"
#include "dpb_status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* File descriptors of a rank, set up before its exec. */
enum dpb_worker_fd {
    DPB_WORKER_FD_CHANNEL = 3, /* messages with the launcher */
    DPB_WORKER_FD_BOARD = 4,   /* struct dpb_board_line of every rank */
    DPB_WORKER_FD_SEGMENT = 5, /* the comm's shared memory */
    DPB_WORKER_FD_BULK = 6     /* large results: parameters and state */
};

/* The hidden verb that makes the binary a rank. Started by a crew it has these in its environment
 * instead of descriptors. */
#define DPB_WORKER_VERB             "worker"
#define DPB_WORKER_ADDRESS_VARIABLE "DPBENCH_LAUNCHER" /* "10.0.0.1:29400" */
#define DPB_WORKER_TOKEN_VARIABLE   "DPBENCH_TOKEN"

#define DPB_LAUNCHER_BEAT_NS    250000000ll   /* how often both sides say that they are there */
#define DPB_LAUNCHER_SILENCE_NS 15000000000ll /* after which the other side is given up */

typedef struct dpb_crew dpb_crew; /* dpb_crew.h */

struct dpb_launch_config {
    int ranks;
    dpb_crew *crew;           /* who starts the ranks; NULL: they are forked here. Borrowed */
    const dpb_json *job;      /* sent to every rank, with "rank" and "size" added; borrowed */
    int ranks_per_node;       /* with a crew: on every host; 0: as it has slots */
    int64_t start_timeout_ns; /* with a crew: for all ranks to come; 0: stall_timeout_ns */
    int64_t silence_ns;       /* with a crew: instead of DPB_LAUNCHER_SILENCE_NS; 0: that */
    int64_t timeout_ns;       /* for the whole launch */
    int64_t stall_timeout_ns; /* without progress of the slowest rank */
    bool wants_bulk;          /* there are large results */
    const volatile sig_atomic_t *interrupted; /* becomes non-zero on SIGINT; may be NULL */
    /* Called about ten times a second with the slowest rank's step; may be NULL. */
    void (*tick)(void *ctx, int64_t step);
    void *tick_ctx;
};

struct dpb_launch_result {
    dpb_json **ranks; /* what each rank reported, NULL where it did not. With a crew each has
                         "place" {"host", "node", "local_rank"} and "clock" {"domain" (ranks of one
                         domain share a clock), "offset_ns" (to add to its times for the launcher's
                         clock), "error_ns" (half of the shortest round trip), "drift_ns" (offset at
                         the end less that at the start)} */
    dpb_json *world;  /* dpb_world_json(); NULL without a crew */
    int rank_count;
    void *bulk; /* bulk_bytes, as much as the ranks wrote, or NULL */
    size_t bulk_bytes;
    int64_t wall_ns;
    char reason[1024]; /* what went wrong, one line; "" when nothing did */
};

/* Run one launch. Failures are logged with rank, pid, signal or exit code, and step:
 * DPB_ERR_RANK_FAILED, DPB_ERR_TIMEOUT, DPB_ERR_INTERRUPTED, or the status a rank reported. The
 * result is filled in every case and needs dpb_launch_result_release(). */
dpb_status dpb_launch_run(const struct dpb_launch_config *config, struct dpb_launch_result *result);
void dpb_launch_result_release(struct dpb_launch_result *result);

#ifdef __cplusplus
}
#endif
#endif

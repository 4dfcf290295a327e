/* worker_link.h (private): a rank's end of its launch, whichever way it was started: forked by the
 * launcher it inherits files, started by a crew it calls back over TCP (worker_tcp.h). */
#ifndef DPB_RUN_WORKER_LINK_H
#define DPB_RUN_WORKER_LINK_H

#include <stddef.h>
#include <stdint.h>

#include "dpb_board.h"
#include "dpb_comm.h"
#include "dpb_json.h"
#include "dpb_status.h"

/* Where this rank is, as the launcher decided. */
struct worker_place {
    int rank, size;
    int node, nodes;
    int local_rank, local_size; /* among the ranks of its node */
    int ranks_per_node;         /* 0: nodes have different numbers of ranks */
};

typedef struct worker_link worker_link;

/* Connect, and get the job; the log's prefix becomes "rank N". From now on a launcher that is gone
 * ends this process. Logged: DPB_ERR_UNAVAILABLE when nobody launched this process, what
 * dpb_net_connect() returns, DPB_ERR_RANK_FAILED when the launcher gives up. `link` is NULL when
 * there is nobody to tell of a failure. */
dpb_status worker_link_open(worker_link **link);

/* {"rank", "size", ...}; the link's. */
const dpb_json *worker_link_job(const worker_link *link);
const struct worker_place *worker_link_place(const worker_link *link);
/* This rank's line of the board. */
struct dpb_board_line *worker_link_line(worker_link *link);

/* What a comm is to be opened with, apart from time-out, device and options. `ranks_per_node` is
 * the setting: nodes that a machine pretends to have; several real ones count more. */
void worker_link_comm(const worker_link *link, int ranks_per_node, struct dpb_comm_config *config);

/* A message, {"type": ...}; blocks. DPB_ERR_RANK_FAILED when the launcher is gone. */
dpb_status worker_link_send(worker_link *link, const dpb_json *message);

/* Write large results into the launch's bulk memory; from one thread. DPB_ERR_IO, and the reason in
 * errno. */
dpb_status worker_link_put(worker_link *link, const void *bytes, size_t count, int64_t at);

/* Everything was reported: end together with the launcher. After a result (`st` DPB_OK) all parts
 * of this rank must be closed. Frees the link; NULL is fine. */
void worker_link_close(worker_link *link, dpb_status st);

#endif

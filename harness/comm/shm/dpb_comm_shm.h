/* dpb_comm_shm.h: collectives through memory that the ranks of one machine share.
 *
 * Options (table owner "shm"): algorithm, link (none | rate,latency), link-inside, progress (thread
 * | none).
 *
 * Every type but uint8 can be summed, bf16 and fp16 with each product and sum rounded to the type;
 * every type can be moved. All ranks get the same bits; docs/collectives.md has the orders of
 * summation. What an algorithm does not have is refused by start() (dpb_algorithm_check()).
 *
 * Progress: a thread executes what was started, in the background. With "none" there is none: what
 * was started is executed by wait() and run(), in the caller, in the order of its start; until then
 * test() says that it is pending. Nothing overlaps then.
 *
 * Streams: for devices that compute in the caller's thread. start() takes the buffer as it is then,
 * whatever `after` says, and wait() blocks the caller.
 *
 * Emulated link: it carries one collective at a time, from when the last rank has called start()
 * (without progress: wait()) and the link is free, for dpb_setup_wire_ns(). times.start_ns and
 * times.all_ready_ns then lie on that virtual line; all_ready_ns is its start there, the same on
 * all ranks; end_ns is when this rank woke up after its end. A wire time above the time-out is
 * refused as DPB_ERR_TIMEOUT.
 *
 * Failures end the communicator on all ranks with the status of the first one: DPB_ERR_TIMEOUT,
 * DPB_ERR_MISMATCH, DPB_ERR_RANK_FAILED (abort, or a rank that closed early). Usage errors do not.
 * A segment serves one communicator once. At most 1024 requests and 64 buffers at a time. */
#ifndef DPB_COMM_SHM_H
#define DPB_COMM_SHM_H

#include "dpb_comm.h"
#include "dpb_link_model.h"

#ifdef __cplusplus
extern "C" {
#endif

enum dpb_comm_shm_progress {
    DPB_COMM_SHM_THREAD,
    DPB_COMM_SHM_NONE
};

struct dpb_comm_shm_options {
    int algorithm;               /* enum dpb_algorithm */
    struct dpb_link link;        /* bw_bytes_per_s 0: no emulation */
    struct dpb_link link_inside; /* of ranks of one node, for hierarchical; 0: as `link` */
    int progress;                /* enum dpb_comm_shm_progress */
};

extern const struct dpb_comm_ops dpb_comm_shm_ops;
extern const struct dpb_option_table dpb_comm_shm_table;

#ifdef __cplusplus
}
#endif
#endif

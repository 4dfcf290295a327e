/* dpb_comm_shm.h: collectives through memory that the ranks of one machine share.
 *
 * Options (table owner "shm"): algorithm (direct | ring), link (none | rate,latency).
 *
 * Order of summation, each product and sum rounded on its own: direct adds ranks 0, 1, 2, ...; ring
 * adds shard c over ranks c + 1, c + 2, ..., c (modulo P), and a reduce to a root over root + 1,
 * ..., root. All ranks get the same bits. Every type but uint8 can be summed, bf16 and fp16 with
 * each product and sum rounded to the type; every type can be moved.
 *
 * Streams: for devices that compute in the caller's thread. start() takes the buffer as it is then,
 * whatever `after` says, and wait() blocks the caller.
 *
 * Emulated link: it carries one collective at a time, from when the last rank has called start()
 * and the link is free, for dpb_link_wire_ns(). times.start_ns and times.all_ready_ns then lie on
 * that virtual line; all_ready_ns is its start there, the same on all ranks; end_ns is when this
 * rank woke up after its end. A wire time above the time-out is refused as DPB_ERR_TIMEOUT.
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

struct dpb_comm_shm_options {
    int algorithm;        /* enum dpb_algorithm */
    struct dpb_link link; /* bw_bytes_per_s 0: no emulation */
};

extern const struct dpb_comm_ops dpb_comm_shm_ops;
extern const struct dpb_option_table dpb_comm_shm_table;

#ifdef __cplusplus
}
#endif
#endif

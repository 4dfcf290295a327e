/* nccl_ring.h: the last collectives of this rank, for the report of a hang. */
#ifndef DPB_NCCL_RING_H
#define DPB_NCCL_RING_H

#include <stdint.h>

#include "dpb_comm.h"

#define DPB_NCCL_RING 64 /* collectives that are remembered */

struct dpb_nccl_ring_entry {
    uint64_t number; /* 1, 2, ...; 0: none */
    int kind;        /* enum dpb_coll_kind */
    int tag;         /* the bucket; -1: none */
    int64_t bytes;
    int64_t enqueued_ns; /* dpb_clock_now_ns() */
    int64_t seen_ns;     /* when it was first seen to be complete; 0: not yet */
    bool captured;       /* into a graph: nobody looks whether it is complete */
};

/* Zero-initialise. Not safe from several threads. */
struct dpb_nccl_ring {
    struct dpb_nccl_ring_entry entry[DPB_NCCL_RING];
    uint64_t newest; /* numbers begin at 1 and have no gaps */
};

/* Remember the collective number `newest` + 1. */
void dpb_nccl_ring_push(struct dpb_nccl_ring *ring, const struct dpb_coll *coll, int64_t now_ns,
                        bool captured);
/* Everything up to `number` is complete. */
void dpb_nccl_ring_done(struct dpb_nccl_ring *ring, uint64_t number, int64_t now_ns);

/* Appends one line per collective, oldest first, ages counted from `now_ns`:
 *   #17 all-reduce, bucket 3, 25MiB: enqueued 1.2 s ago, complete after at most 3.1 ms
 *   #18 broadcast, 4KiB: enqueued 1.1 s ago, not complete */
void dpb_nccl_ring_text(const struct dpb_nccl_ring *ring, int64_t now_ns, struct dpb_str *text);

#endif

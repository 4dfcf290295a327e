/* fake_comm.h: a communicator of one process that behaves as rank `rank` of `size`: the peers say
 * what this rank says, and contribute (r + 1) / (rank + 1) times its data, which is what the check
 * of the communicator sends. It counts, and can be told to misbehave. */
#ifndef DPB_TESTS_FAKE_COMM_H
#define DPB_TESTS_FAKE_COMM_H

#include "dpb_comm.h"

#define FAKE_REQUESTS 64
#define FAKE_BUFFERS  16

struct fake_request {
    struct dpb_coll coll;
    int64_t start_ns;
    bool is_used;
};

struct fake_comm {
    struct dpb_comm_base base;
    struct fake_request request[FAKE_REQUESTS];

    /* misbehaviour */
    int corrupt_start;   /* number of the collective whose last element comes out wrong; 0: none */
    int fail_start;      /* number of the collective that cannot be started; 0: none */
    int differ_exchange; /* number of the exchange in which peers differ; 0: none */
    int peer_from;       /* the first rank that differs in it */
    bool swap_order;     /* a broadcast brings int32 in reverse order */

    /* what happened */
    int starts, waits, exchanges, aborts;
    void *buffer[FAKE_BUFFERS]; /* those that are there, oldest first */
    int buffer_count;
    char abort_reason[256];
    struct dpb_coll last_coll;
};

extern const struct dpb_comm_ops fake_comm_ops;

/* A sound communicator of that size. */
struct fake_comm fake_comm_of(int rank, int size);

/* As a comm's close: frees the buffers that are still there. */
void fake_comm_release(struct fake_comm *fake);

#endif

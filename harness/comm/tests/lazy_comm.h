/* lazy_comm.h: a communicator for the lazy device (kernels/tests/lazy_device.h), as one of an
 * accelerator may be: its buffers are the device's memory, its collectives run late, in their
 * order, on a stream of its own, on what another communicator moves. start() waits on the stream
 * for what was launched on `after`, and for nothing else; wait() makes a stream wait, and blocks
 * the host only without one. */
#ifndef DPB_TESTS_LAZY_COMM_H
#define DPB_TESTS_LAZY_COMM_H

#include "dpb_comm.h"

/* Mistakes of a communicator, made for it: they must be found. */
enum lazy_comm_fault {
    LAZY_COMM_NO_FAULT,
    LAZY_COMM_NO_AFTER, /* collectives do not wait for what makes their data */
    LAZY_COMM_NO_WAIT   /* streams do not wait for collectives */
};

/* Wrap an open communicator of the host's memory (borrowed), for a lazy device. NULL without
 * memory. */
dpb_comm *lazy_comm_of(dpb_comm *inner, dpb_device *device, enum lazy_comm_fault fault);
/* The member close() of its table: before the device's. */
void lazy_comm_close(dpb_comm *comm);

#endif

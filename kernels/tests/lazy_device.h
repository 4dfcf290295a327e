/* lazy_device.h: a device that is as unhelpful as an accelerator may be. It computes on another
 * device, whose memory is the host's, but
 *  - the memory that it gives the host must not touch: there is nothing at its addresses, and a
 *    message says so before the process ends;
 *  - operators and copies are queued, and run as late as possible: only while the host is blocked
 *    (stream_sync, a collective, ...), in an order drawn from a seed that respects nothing but the
 *    streams' own order and marks;
 *  - what arguments point to is read when they run; an operator that is given memory of the host
 *    fails; a copy of memory of the host that is not of host_alloc() blocks, or does not.
 * So a program that forgets to wait, or that writes again what is still to be read, gets wrong
 * values. A thread of its own runs the queues. */
#ifndef DPB_TESTS_LAZY_DEVICE_H
#define DPB_TESTS_LAZY_DEVICE_H

#include "dpb_device.h"

/* Mistakes of a program, made for it: they must be found. */
enum lazy_fault {
    LAZY_NO_FAULT,
    LAZY_NO_SYNC,       /* the host does not wait for streams */
    LAZY_NO_STREAM_WAIT /* streams do not wait for marks */
};

/* Wrap an open device of the host's (borrowed). NULL without memory. */
dpb_device *lazy_device_of(dpb_device *inner, uint64_t seed);
void lazy_device_set_fault(dpb_device *device, enum lazy_fault fault);
/* The member close() of its table. What is queued runs first. */
void lazy_device_close(dpb_device *device);

/* Bytes that are taken now, of the device's memory, a communicator's buffers included, and of
 * host_alloc(). */
int64_t lazy_device_bytes(const dpb_device *device);
int64_t lazy_device_host_bytes(const dpb_device *device);

/* How many graphs have run, and how many operators and copies. */
int64_t lazy_device_graphs(const dpb_device *device);
int64_t lazy_device_runs(const dpb_device *device);

/* ---- for a communicator of this device ---- */

/* Give memory of the host's as memory of the device, until it is forgotten. */
dpb_status lazy_device_adopt(dpb_device *device, void *real, size_t bytes, void **memory);
void lazy_device_forget(dpb_device *device, void *memory);
/* Where it really is. */
void *lazy_device_real(dpb_device *device, const void *memory);
/* Call that in the stream's order, from the device's thread. A failure is the device's. */
dpb_status lazy_device_call(dpb_stream *stream, dpb_status (*call)(void *ctx), void *ctx);
/* Between the two the host is blocked, and what is queued may run. */
void lazy_device_block_begin(dpb_device *device);
void lazy_device_block_end(dpb_device *device);
/* Block until *flag, which the device's thread sets. */
dpb_status lazy_device_await(dpb_device *device, const _Atomic int *flag);
/* A little may run. */
void lazy_device_nudge(dpb_device *device);
/* All that is queued runs. */
dpb_status lazy_device_drain(dpb_device *device);

#endif

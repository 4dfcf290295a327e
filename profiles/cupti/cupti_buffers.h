/* cupti_buffers.h: the memory into which CUPTI writes its records. Private to profiles/cupti.
 *
 * A fixed number of buffers, zeroed and touched before the first step, each handed out once: no
 * memory is cleared or faulted in while steps run, and records are bounded. When all are out, CUPTI
 * drops records and counts them. One set per process: CUPTI's callbacks have no context. */
#ifndef CUPTI_BUFFERS_H
#define CUPTI_BUFFERS_H

#include <stddef.h>
#include <stdint.h>

#include <cupti.h>

#include "dpb_status.h"

#define CUPTI_BUFFER_BYTES ((size_t)4 << 20)

/* Make `count` buffers; once, until cupti_buffers_close(). DPB_ERR_NO_MEMORY, logged. */
dpb_status cupti_buffers_open(size_t count);
/* Not before CUPTI has returned all that it will. */
void cupti_buffers_close(void);

/* The callbacks, for cuptiActivityRegisterCallbacks(). From any thread. */
void CUPTIAPI cupti_buffer_requested(uint8_t **buffer, size_t *bytes, size_t *max_records);
void CUPTIAPI cupti_buffer_completed(CUcontext context, uint32_t stream, uint8_t *buffer,
                                     size_t bytes, size_t valid_bytes);

/* Buffers that have come back so far, in that order; index from 0. NULL: no more. */
uint8_t *cupti_buffer_at(size_t index, size_t *valid_bytes);
/* Buffers that CUPTI still has. */
size_t cupti_buffers_out(void);

#endif

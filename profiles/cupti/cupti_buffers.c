#include "cupti_buffers.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "dpb_log.h"

struct buffer {
    uint8_t *memory;
    size_t valid_bytes;
};

/* The mutex is held for a few assignments, and never around a call of CUPTI, which may call back
 * from another thread while it waits for it. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct buffer *buffers; /* in the order of handing out */
static size_t *completed;      /* their numbers in the order of coming back */
static size_t buffer_count, out_count, completed_count;

/* Zeroed pages that are there: what calloc() gives is not before it is written. */
static uint8_t *alloc_zeroed(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    volatile uint8_t *memory = calloc(1, bytes);

    for (size_t i = 0; memory && i < bytes; i += page)
        memory[i] = 0;
    return (uint8_t *)memory;
}

dpb_status cupti_buffers_open(size_t count)
{
    buffers = calloc(count, sizeof(buffers[0]));
    completed = calloc(count, sizeof(completed[0]));
    buffer_count = 0;
    out_count = completed_count = 0;
    while (buffers && completed && buffer_count < count) {
        buffers[buffer_count].memory = alloc_zeroed(CUPTI_BUFFER_BYTES);
        if (!buffers[buffer_count].memory)
            break;
        buffer_count++;
    }
    if (buffer_count == count)
        return DPB_OK;
    cupti_buffers_close();
    dpb_error("cannot trace the device: no memory for %zu buffers of %zu bytes", count,
              CUPTI_BUFFER_BYTES);
    dpb_log_hint("trace fewer steps");
    return DPB_ERR_NO_MEMORY;
}

void cupti_buffers_close(void)
{
    for (size_t i = 0; i < buffer_count; i++)
        free(buffers[i].memory);
    free(buffers);
    free(completed);
    buffers = NULL;
    completed = NULL;
    buffer_count = out_count = completed_count = 0;
}

void CUPTIAPI cupti_buffer_requested(uint8_t **buffer, size_t *bytes, size_t *max_records)
{
    *buffer = NULL;
    *bytes = 0;
    *max_records = 0; /* as many as fit */
    pthread_mutex_lock(&mutex);
    if (out_count < buffer_count) {
        *buffer = buffers[out_count++].memory;
        *bytes = CUPTI_BUFFER_BYTES;
    }
    pthread_mutex_unlock(&mutex);
}

void CUPTIAPI cupti_buffer_completed(CUcontext context, uint32_t stream, uint8_t *buffer,
                                     size_t bytes, size_t valid_bytes)
{
    (void)context;
    (void)stream;
    pthread_mutex_lock(&mutex);
    for (size_t i = 0; i < out_count && completed_count < out_count; i++) {
        if (buffers[i].memory != buffer)
            continue;
        buffers[i].valid_bytes = valid_bytes < bytes ? valid_bytes : bytes;
        completed[completed_count++] = i;
        break;
    }
    pthread_mutex_unlock(&mutex);
}

uint8_t *cupti_buffer_at(size_t index, size_t *valid_bytes)
{
    uint8_t *memory = NULL;

    pthread_mutex_lock(&mutex);
    if (index < completed_count) {
        memory = buffers[completed[index]].memory;
        *valid_bytes = buffers[completed[index]].valid_bytes;
    }
    pthread_mutex_unlock(&mutex);
    return memory;
}

size_t cupti_buffers_out(void)
{
    size_t out;

    pthread_mutex_lock(&mutex);
    out = out_count - completed_count;
    pthread_mutex_unlock(&mutex);
    return out;
}

#include "fake_comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_clock.h"
#include "dpb_log.h"

struct fake_comm fake_comm_of(int rank, int size)
{
    return (struct fake_comm){.base = {.ops = &fake_comm_ops, .rank = rank, .size = size}};
}

static struct fake_comm *of(dpb_comm *comm)
{
    return (struct fake_comm *)comm;
}

void fake_comm_release(struct fake_comm *fake)
{
    while (fake->buffer_count > 0)
        free(fake->buffer[--fake->buffer_count]);
}

static dpb_status fake_buffer_alloc(dpb_comm *comm, size_t bytes, void **buffer)
{
    const size_t rounded = (bytes + 4095) / 4096 * 4096;
    void *memory = aligned_alloc(4096, rounded);

    if (!memory || of(comm)->buffer_count == FAKE_BUFFERS)
        return DPB_ERR_NO_MEMORY;
    memset(memory, 0, rounded);
    of(comm)->buffer[of(comm)->buffer_count++] = memory;
    *buffer = memory;
    return DPB_OK;
}

static dpb_status fake_buffer_free(dpb_comm *comm, void *buffer)
{
    struct fake_comm *fake = of(comm);

    if (fake->buffer_count == 0 || buffer != fake->buffer[fake->buffer_count - 1])
        return DPB_ERR_USAGE;
    free(buffer);
    fake->buffer_count--;
    return DPB_OK;
}

static dpb_status fake_exchange(dpb_comm *comm, const void *mine, size_t bytes, void *all)
{
    struct fake_comm *fake = of(comm);
    const bool differ = ++fake->exchanges == fake->differ_exchange;

    for (int r = 0; r < fake->base.size; r++) {
        unsigned char *theirs = (unsigned char *)all + (size_t)r * bytes;

        memcpy(theirs, mine, bytes);
        if (differ && r >= fake->peer_from && r != fake->base.rank)
            theirs[0] ^= 1;
    }
    return DPB_OK;
}

static dpb_status fake_start(dpb_comm *comm, const struct dpb_coll *coll, dpb_stream *after,
                             dpb_request **request)
{
    struct fake_comm *fake = of(comm);

    (void)after;
    if (++fake->starts == fake->fail_start) {
        dpb_error("fake: start fails, as it was told to");
        return DPB_ERR_RANK_FAILED;
    }
    fake->last_coll = *coll;
    for (int i = 0; i < FAKE_REQUESTS; i++) {
        struct fake_request *free_one = &fake->request[i];

        if (free_one->is_used)
            continue;
        *free_one = (struct fake_request){
                .coll = *coll, .start_ns = dpb_clock_now_ns(), .is_used = true};
        *request = (dpb_request *)free_one;
        return DPB_OK;
    }
    return DPB_ERR_INTERNAL;
}

static void complete(const struct fake_comm *fake, const struct dpb_coll *coll, bool corrupt)
{
    const int size = fake->base.size;
    const float factor =
            coll->scale * (float)(size * (size + 1) / 2) / (float)(fake->base.rank + 1);
    float *data = coll->buffer;

    if (coll->kind == DPB_COLL_BROADCAST) {
        int32_t *order = coll->buffer;

        for (int64_t i = 0; fake->swap_order && i < coll->count / 2; i++) {
            const int32_t kept = order[i];

            order[i] = order[coll->count - 1 - i];
            order[coll->count - 1 - i] = kept;
        }
        return;
    }
    if (coll->dtype == DPB_I32) {
        for (int64_t i = 0; i < coll->count; i++)
            ((int32_t *)coll->buffer)[i] *= (int32_t)factor;
        return;
    }
    for (int64_t i = 0; i < coll->count; i++)
        data[i] *= factor;
    if (corrupt)
        data[coll->count - 1] += 1.0f;
}

static dpb_status fake_wait(dpb_comm *comm, dpb_request *request, dpb_stream *stream,
                            struct dpb_coll_times *times)
{
    struct fake_comm *fake = of(comm);
    struct fake_request *mine = (struct fake_request *)request;

    (void)stream;
    complete(fake, &mine->coll, ++fake->waits == fake->corrupt_start);
    if (times) {
        times->start_ns = mine->start_ns;
        times->all_ready_ns = mine->start_ns + 10;
        times->end_ns = mine->start_ns + 30;
        times->wire_bytes = 0;
    }
    mine->is_used = false;
    return DPB_OK;
}

static void fake_abort(dpb_comm *comm, const char *reason)
{
    struct fake_comm *fake = of(comm);

    fake->aborts++;
    snprintf(fake->abort_reason, sizeof(fake->abort_reason), "%s", reason);
}

static void fake_stats(dpb_comm *comm, struct dpb_comm_stats *stats)
{
    *stats = (struct dpb_comm_stats){.collectives = of(comm)->waits};
}

/* What the step engine never calls stays NULL. */
const struct dpb_comm_ops fake_comm_ops = {
        .version = DPB_COMM_OPS_VERSION,
        .name = "fake",
        .summary = "one process that plays several ranks",
        .buffer_alloc = fake_buffer_alloc,
        .buffer_free = fake_buffer_free,
        .exchange = fake_exchange,
        .start = fake_start,
        .wait = fake_wait,
        .abort = fake_abort,
        .stats = fake_stats,
};

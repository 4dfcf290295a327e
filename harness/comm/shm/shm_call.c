/* shm_call.c: barrier and exchange, called by the ranks' main threads. They have their own words in
 * the segment, so that they do not disturb the collectives in the background. */
#include "shm_private.h"

#include <inttypes.h>
#include <string.h>

#include "dpb_log.h"

static const char *const call_text[DPB_SHM_CALL_COUNT] = {
        [DPB_SHM_CALL_OPEN] = "open",
        [DPB_SHM_CALL_BARRIER] = "barrier",
        [DPB_SHM_CALL_EXCHANGE] = "exchange",
        [DPB_SHM_CALL_BUFFER_ALLOC] = "buffer_alloc",
        [DPB_SHM_CALL_BUFFER_FREE] = "buffer_free",
};

static const struct dpb_shm_call *call_of(const struct dpb_shm_comm *comm, int rank)
{
    return &comm->control->rank[rank].call[comm->calls & 1];
}

const void *dpb_shm_call_data(const struct dpb_shm_comm *comm, int rank)
{
    return call_of(comm, rank)->data;
}

dpb_status dpb_shm_call_all(struct dpb_shm_comm *comm, enum dpb_shm_call_kind kind,
                            const void *mine, size_t bytes)
{
    struct dpb_shm_subject subject = {call_text[kind], "call", comm->calls + 1, -1};
    DPB_TRY(dpb_shm_check(comm, &subject));

    comm->calls++;
    struct dpb_shm_call *call = &comm->self->call[comm->calls & 1];
    call->kind = kind;
    call->bytes = (uint32_t)bytes;
    if (bytes > 0)
        memcpy(call->data, mine, bytes);
    DPB_TRY(dpb_shm_meet(comm, DPB_SHM_CALLED, comm->calls, &subject, DPB_SHM_LAZY));

    for (int r = 0; r < comm->base.size; r++) {
        const struct dpb_shm_call *other = call_of(comm, r);
        if (other->kind == kind && other->bytes == bytes)
            continue;
        const char *other_text = other->kind < DPB_SHM_CALL_COUNT ? call_text[other->kind] : "?";
        return dpb_shm_fail(comm, DPB_ERR_MISMATCH,
                            "every rank must make the same calls in the same order",
                            "rank %d: call #%" PRIu64 ": ranks disagree: rank %d: %s of %zu bytes; "
                            "rank %d: %s of %u bytes",
                            comm->base.rank, comm->calls, comm->base.rank, call_text[kind], bytes,
                            r, other_text, other->bytes);
    }
    return DPB_OK;
}

dpb_status dpb_shm_barrier_call(dpb_comm *comm)
{
    return dpb_shm_call_all(dpb_shm_of(comm), DPB_SHM_CALL_BARRIER, NULL, 0);
}

dpb_status dpb_shm_exchange(dpb_comm *comm, const void *mine, size_t bytes, void *all)
{
    struct dpb_shm_comm *shm = dpb_shm_of(comm);
    if (bytes == 0 || bytes > DPB_COMM_EXCHANGE_BYTES) {
        dpb_error("rank %d: cannot exchange %zu bytes: 1 to %d are possible", shm->base.rank, bytes,
                  DPB_COMM_EXCHANGE_BYTES);
        dpb_log_hint("exchange larger data in pieces, or as a collective");
        return DPB_ERR_USAGE;
    }
    DPB_TRY(dpb_shm_call_all(shm, DPB_SHM_CALL_EXCHANGE, mine, bytes));
    for (int r = 0; r < shm->base.size; r++)
        memcpy((char *)all + (size_t)r * bytes, dpb_shm_call_data(shm, r), bytes);
    return DPB_OK;
}

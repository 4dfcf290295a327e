/* shm_algorithm.c: how the data moves, in place, once all ranks are ready.
 *
 * direct: every rank works on its own shard of all buffers at once. Sums run over ranks 0, 1, 2
 * and so on; a reduction to a root is the same sum, written to the root alone.
 *
 * All other algorithms, and direct's broadcast, are schedules (dpb_schedule.h): the receiver takes
 * from the sender's buffer when the sender has come so far. All-to-all swaps in pairs, each rank
 * one half of what the two exchange. */
#include "shm_private.h"

#include <string.h>

#include "reduce.h"

struct transfer {
    struct dpb_shm_comm *comm;
    const struct dpb_coll *coll;
    const struct dpb_shm_subject *subject;
    int64_t deadline_ns;
    struct dpb_shm_slot *slot; /* this rank's */
    int rank, size;
    int64_t element_bytes;
    void *data[DPB_COMM_RANKS_MAX]; /* the same place in every rank's buffer */
    int64_t pushed_bytes;
};

static int64_t shard_of(const struct transfer *t, int rank, int64_t *first)
{
    return dpb_coll_shard(t->coll->count, t->size, rank, first);
}

/* Copy elements from a peer's buffer to the same place in this rank's. */
static void take(struct transfer *t, int from, int64_t first, int64_t count)
{
    int64_t at = first * t->element_bytes;
    int64_t bytes = count * t->element_bytes;
    memcpy((char *)t->data[t->rank] + at, (const char *)t->data[from] + at, (size_t)bytes);
    t->slot->taken_from[from] += bytes;
}

/* This rank's shard summed over all ranks, into the buffers of ranks to, ..., to + outputs - 1. */
static void direct_reduce(struct transfer *t, int to, int outputs)
{
    int64_t first;
    int64_t count = shard_of(t, t->rank, &first);
    dpb_reduce_all(t->coll->dtype, t->data, t->size, t->data + to, outputs, first, count,
                   t->coll->scale);
    for (int r = 0; r < t->size; r++) {
        if (r == t->rank)
            continue;
        t->slot->taken_from[r] += count * t->element_bytes;
        if (r >= to && r < to + outputs)
            t->pushed_bytes += count * t->element_bytes;
    }
}

static void direct_gather(struct transfer *t)
{
    /* Each rank begins with its neighbour, so that not all read the same one at a time. */
    for (int i = 1; i < t->size; i++) {
        int from = (t->rank + i) % t->size;
        int64_t first;
        int64_t count = shard_of(t, from, &first);
        take(t, from, first, count);
    }
}

/* ---- schedules ---- */

static float scale_if(const struct transfer *t, bool is_raw)
{
    return is_raw ? t->coll->scale : 1.0f;
}

static dpb_status follow(struct transfer *t, const struct dpb_schedule *schedule, int peer,
                         int64_t ticks)
{
    return dpb_shm_follow(t->comm, peer, (uint64_t)ticks, schedule, t->subject, t->deadline_ns);
}

static void advance(struct transfer *t, uint64_t *ticks)
{
    if (*ticks > 0)
        dpb_shared_word_advance(&t->comm->self->ticks, *ticks);
    *ticks = 0;
}

/* Take what the sender has, which has come as far as it must. */
static void receive(struct transfer *t, const struct dpb_schedule_step *step)
{
    if (!step->reduces) {
        take(t, step->from, step->receive_first, step->receive_count);
        return;
    }
    dpb_reduce_join(t->coll->dtype, t->data[t->rank], t->data[step->from], step->receive_first,
                    step->receive_count, scale_if(t, step->own_is_raw),
                    scale_if(t, step->received_is_raw));
    t->slot->taken_from[step->from] += step->receive_count * t->element_bytes;
}

/* Two ranks that both need the sum of the same range: each makes one half of it for both. The first
 * of the round's two ticks says that this rank's half is there. */
static dpb_status exchange(struct transfer *t, const struct dpb_schedule *schedule, int64_t round,
                           const struct dpb_schedule_step *step)
{
    int peer = step->from;
    int64_t half = step->receive_count / 2;
    int64_t first = step->receive_first + (t->rank < peer ? 0 : half);
    int64_t count = t->rank < peer ? half : step->receive_count - half;
    uint64_t tick = 1;
    dpb_reduce_both(t->coll->dtype, t->data[t->rank], t->data[peer], first, count,
                    scale_if(t, step->own_is_raw), scale_if(t, step->received_is_raw));
    t->slot->taken_from[peer] += count * t->element_bytes;
    t->pushed_bytes += count * t->element_bytes;
    advance(t, &tick);
    return follow(t, schedule, peer, 2 * round + 1);
}

/* Every rank makes two ticks in every round, whatever it does in it; ranks that only wait for later
 * rounds say so before they sleep. */
static dpb_status run_schedule(struct transfer *t)
{
    struct dpb_schedule schedule;
    uint64_t ticks = 0; /* to be told */
    dpb_schedule_init(&schedule, &t->comm->setup, t->coll->kind, t->rank, t->coll->root,
                      t->coll->count, (size_t)t->element_bytes);
    for (int64_t round = 0; round < schedule.rounds; round++) {
        struct dpb_schedule_step step;
        dpb_schedule_step(&schedule, round, &step);
        if (step.from < 0) {
            ticks += 2;
            continue;
        }
        advance(t, &ticks);
        DPB_TRY(follow(t, &schedule, step.from, 2 * round));
        if (dpb_schedule_is_exchange(&step)) {
            DPB_TRY(exchange(t, &schedule, round, &step));
            ticks = 1;
        } else {
            receive(t, &step);
            ticks = 2;
        }
        advance(t, &ticks);
    }
    advance(t, &ticks);
    t->comm->ticks_base += 2 * (uint64_t)schedule.rounds;
    return DPB_OK;
}

/* ---- what is the same in all algorithms ---- */

static void swap_bytes(char *a, char *b, int64_t bytes)
{
    char kept[4096];
    for (int64_t at = 0; at < bytes; at += (int64_t)sizeof(kept)) {
        size_t n = bytes - at < (int64_t)sizeof(kept) ? (size_t)(bytes - at) : sizeof(kept);
        memcpy(kept, a + at, n);
        memcpy(a + at, b + at, n);
        memcpy(b + at, kept, n);
    }
}

/* This rank's part for each peer changes places with the peer's part for this rank. Of a pair the
 * lower rank swaps the first half, the other one the rest. */
static void swap_parts(struct transfer *t)
{
    int64_t part_bytes = t->coll->count / t->size * t->element_bytes;
    for (int i = 1; i < t->size; i++) {
        int peer = (t->rank + i) % t->size;
        int64_t half = part_bytes / 2;
        int64_t first = t->rank < peer ? 0 : half;
        int64_t bytes = t->rank < peer ? half : part_bytes - half;
        swap_bytes((char *)t->data[t->rank] + peer * part_bytes + first,
                   (char *)t->data[peer] + t->rank * part_bytes + first, bytes);
        t->slot->taken_from[peer] += bytes;
        t->pushed_bytes += bytes;
    }
}

/* One rank: a reduction still applies its scale. */
static void alone(struct transfer *t)
{
    if (dpb_coll_reduces(t->coll->kind))
        direct_reduce(t, t->rank, 1);
}

static void direct(struct transfer *t)
{
    switch (t->coll->kind) {
    case DPB_COLL_ALL_REDUCE:
        direct_reduce(t, 0, t->size);
        break;
    case DPB_COLL_REDUCE_SCATTER:
        direct_reduce(t, t->rank, 1);
        break;
    case DPB_COLL_ALL_GATHER:
        direct_gather(t);
        break;
    case DPB_COLL_REDUCE:
        direct_reduce(t, t->coll->root, 1);
        break;
    case DPB_COLL_BROADCAST:
    case DPB_COLL_ALL_TO_ALL:
    case DPB_COLL_COUNT:
        break;
    }
}

dpb_status dpb_shm_execute(struct dpb_shm_comm *comm, const struct dpb_shm_request *request,
                           const struct dpb_shm_subject *subject, int64_t deadline_ns,
                           int64_t *pushed_bytes)
{
    struct transfer t = {
            .comm = comm,
            .coll = &request->coll,
            .subject = subject,
            .deadline_ns = deadline_ns,
            .slot = dpb_shm_slot_of(comm, comm->base.rank, request->number),
            .rank = comm->base.rank,
            .size = comm->base.size,
            .element_bytes = (int64_t)dpb_dtype_bytes(request->coll.dtype),
    };
    for (int r = 0; r < t.size; r++)
        t.data[r] = dpb_shm_region(&request->buffer, r) + request->offset;

    if (t.size == 1) {
        alone(&t);
    } else if (t.coll->kind == DPB_COLL_ALL_TO_ALL) {
        swap_parts(&t);
    } else if (t.coll->kind != DPB_COLL_BROADCAST &&
               comm->setup.algorithm == DPB_ALGORITHM_DIRECT) {
        direct(&t);
    } else {
        DPB_TRY(run_schedule(&t));
    }
    *pushed_bytes = t.pushed_bytes;
    return DPB_OK;
}

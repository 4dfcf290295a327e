/* shm_algorithm.c: how the data moves, in place, once all ranks are ready.
 *
 * direct: every rank works on its own shard of all buffers at once. Sums run over ranks 0, 1, 2
 * and so on.
 *
 * ring (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
 * 2009): P - 1 steps in which each rank joins one chunk of the rank before it with its own, then
 * P - 1 in which the finished chunks go round. Chunk c is summed over ranks c + 1, c + 2, ..., c
 * (modulo P): an order that is fixed by the chunk, so all ranks get the same bits.
 *
 * A reduction to a root is the same sum written to the root alone (direct), or a chain round the
 * ring that ends at the root: ranks root + 1, root + 2, ..., root.
 *
 * Broadcast is a binomial tree in both, and all-to-all swaps in pairs. Data is always taken by the
 * receiver, except that direct reductions write their shard of the result to those who need it, and
 * that each rank of a pair swaps one half of what the two exchange. */
#include "shm_private.h"

#include <string.h>

#include "shm_reduce.h"

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
    dpb_shm_reduce_all(t->coll->dtype, t->data, t->size, t->data + to, outputs, first, count,
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

/* Wait for the rank before this one to have done `steps` steps. */
static dpb_status ring_follow(struct transfer *t, int steps)
{
    int before = (t->rank + t->size - 1) % t->size;
    return dpb_shm_follow(t->comm, before, (uint64_t)steps, -1, t->subject, t->deadline_ns);
}

static void step_done(struct transfer *t)
{
    dpb_shm_word_post(&t->comm->self->steps);
}

/* After P - 1 steps this rank has the complete shard of its own number. In step s it takes chunk
 * rank - 2 - s, which the rank before it has completed in its step s - 1. */
static dpb_status ring_reduce(struct transfer *t)
{
    int before = (t->rank + t->size - 1) % t->size;
    for (int s = 0; s < t->size - 1; s++) {
        int chunk = (t->rank + 2 * t->size - 2 - s) % t->size;
        int64_t first;
        int64_t count = shard_of(t, chunk, &first);
        DPB_TRY(ring_follow(t, s));
        dpb_shm_reduce_join(t->coll->dtype, t->data[t->rank], t->data[before], first, count,
                            t->coll->scale, s == 0 ? t->coll->scale : 1.0f);
        t->slot->taken_from[before] += count * t->element_bytes;
        step_done(t);
    }
    return DPB_OK;
}

/* In step s this rank takes the complete chunk rank - 1 - s. Nobody still needs what it overwrites:
 * the rank before it could come so far only when the rank after this one, P - 2 places further
 * round, had done step s of ring_reduce(), which is its reading of that chunk. */
static dpb_status ring_gather(struct transfer *t, int steps_before)
{
    int before = (t->rank + t->size - 1) % t->size;
    for (int s = 0; s < t->size - 1; s++) {
        int chunk = (t->rank + t->size - 1 - s) % t->size;
        int64_t first;
        int64_t count = shard_of(t, chunk, &first);
        DPB_TRY(ring_follow(t, steps_before + s));
        take(t, before, first, count);
        step_done(t);
    }
    return DPB_OK;
}

/* A chain from the rank after the root round to the root, each joining piece after piece of the one
 * before with its own. */
static dpb_status ring_chain(struct transfer *t)
{
    int before = (t->rank + t->size - 1) % t->size;
    bool begins = before == t->coll->root;
    bool is_second = (before + t->size - 1) % t->size == t->coll->root;
    for (int piece = 0; piece < t->size; piece++) {
        int64_t first;
        int64_t count = shard_of(t, piece, &first);
        if (!begins) {
            DPB_TRY(ring_follow(t, piece + 1));
            dpb_shm_reduce_join(t->coll->dtype, t->data[t->rank], t->data[before], first, count,
                                t->coll->scale, is_second ? t->coll->scale : 1.0f);
            t->slot->taken_from[before] += count * t->element_bytes;
        }
        step_done(t);
    }
    return DPB_OK;
}

static dpb_status tree_broadcast(struct transfer *t)
{
    int root = t->coll->root;
    int distance = (t->rank - root + t->size) % t->size;
    if (distance > 0) {
        int highest = 1;
        while (highest * 2 <= distance)
            highest *= 2;
        int parent = (distance - highest + root) % t->size;
        DPB_TRY(dpb_shm_follow(t->comm, parent, 1, root, t->subject, t->deadline_ns));
        take(t, parent, 0, t->coll->count);
    }
    step_done(t);
    return DPB_OK;
}

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

static dpb_status ring(struct transfer *t)
{
    int steps = t->size - 1;
    switch (t->coll->kind) {
    case DPB_COLL_ALL_REDUCE:
        DPB_TRY(ring_reduce(t));
        DPB_TRY(ring_gather(t, steps));
        t->comm->steps_base += 2 * (uint64_t)steps;
        break;
    case DPB_COLL_REDUCE_SCATTER:
        DPB_TRY(ring_reduce(t));
        t->comm->steps_base += (uint64_t)steps;
        break;
    case DPB_COLL_ALL_GATHER:
        DPB_TRY(ring_gather(t, 0));
        t->comm->steps_base += (uint64_t)steps;
        break;
    case DPB_COLL_REDUCE:
        DPB_TRY(ring_chain(t));
        t->comm->steps_base += (uint64_t)t->size;
        break;
    case DPB_COLL_BROADCAST:
    case DPB_COLL_ALL_TO_ALL:
    case DPB_COLL_COUNT:
        break;
    }
    return DPB_OK;
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
        t.data[r] = request->buffer.rows + (size_t)r * request->buffer.row_bytes + request->offset;

    if (t.size == 1) {
        alone(&t);
    } else if (t.coll->kind == DPB_COLL_BROADCAST) {
        DPB_TRY(tree_broadcast(&t));
        comm->steps_base += 1;
    } else if (t.coll->kind == DPB_COLL_ALL_TO_ALL) {
        swap_parts(&t);
    } else if (comm->options.algorithm == DPB_ALGORITHM_RING) {
        DPB_TRY(ring(&t));
    } else {
        direct(&t);
    }
    *pushed_bytes = t.pushed_bytes;
    return DPB_OK;
}

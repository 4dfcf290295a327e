/* schedule_ring.c: rings, and rings in nodes and across them.
 *
 * ring (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
 * 2009): P - 1 rounds in which each rank joins one chunk of the rank before it with its own, then
 * P - 1 in which the finished chunks go round. A reduce is a chain that ends at the root. */
#include "schedule_private.h"

/* Members of a ring: ranks first, first + stride, ..., of which this one is number `place`. */
struct ring {
    int size, place, first, stride;
    struct dpb_schedule_part whole; /* what they work on */
};

static int before(const struct ring *ring)
{
    return ring->first + (ring->place + ring->size - 1) % ring->size * ring->stride;
}

static int after(const struct ring *ring)
{
    return ring->first + (ring->place + 1) % ring->size * ring->stride;
}

static struct dpb_schedule_part chunk_of(const struct ring *ring, int64_t number)
{
    int64_t chunk = (number % ring->size + ring->size) % ring->size;
    return dpb_schedule_shard(ring->whole, ring->size, (int)chunk);
}

/* After size - 1 rounds the member has the complete chunk of its own number. */
static void reduce_scatter(const struct ring *ring, int64_t round, bool is_raw,
                           struct dpb_schedule_step *step)
{
    dpb_schedule_send(step, after(ring), chunk_of(ring, ring->place - 1 - round));
    dpb_schedule_receive(step, before(ring), chunk_of(ring, ring->place - 2 - round));
    step->reduces = true;
    step->own_is_raw = is_raw;
    step->received_is_raw = is_raw && round == 0;
}

static void all_gather(const struct ring *ring, int64_t round, struct dpb_schedule_step *step)
{
    dpb_schedule_send(step, after(ring), chunk_of(ring, ring->place - round));
    dpb_schedule_receive(step, before(ring), chunk_of(ring, ring->place - 1 - round));
}

/* Member number 1 after the root begins. In round s it sends piece s, and member d after it piece
 * s - d: so a member receives a piece one round before it sends it on. */
static void chain(const struct dpb_schedule *schedule, const struct ring *ring, int64_t round,
                  struct dpb_schedule_step *step)
{
    int distance = (ring->place - schedule->root - 1 + 2 * ring->size) % ring->size;
    int64_t sent = round - distance;
    int64_t received = sent + 1;
    if (distance < ring->size - 1 && sent >= 0 && sent < ring->size)
        dpb_schedule_send(step, after(ring), chunk_of(ring, sent));
    if (distance > 0 && received >= 0 && received < ring->size) {
        dpb_schedule_receive(step, before(ring), chunk_of(ring, received));
        step->reduces = true;
        step->own_is_raw = true;
        step->received_is_raw = distance == 1;
    }
}

int64_t dpb_schedule_ring_rounds(const struct dpb_schedule *schedule)
{
    int64_t once = schedule->ranks - 1;
    bool twice = schedule->kind == DPB_COLL_ALL_REDUCE || schedule->kind == DPB_COLL_REDUCE;
    return twice ? 2 * once : once;
}

void dpb_schedule_ring(const struct dpb_schedule *schedule, int64_t round,
                       struct dpb_schedule_step *step)
{
    const struct ring ring = {schedule->ranks, schedule->rank, 0, 1, {0, schedule->count}};
    int once = schedule->ranks - 1;
    if (schedule->kind == DPB_COLL_REDUCE)
        chain(schedule, &ring, round, step);
    else if (schedule->kind == DPB_COLL_ALL_GATHER)
        all_gather(&ring, round, step);
    else if (round < once)
        reduce_scatter(&ring, round, true, step);
    else
        all_gather(&ring, round - once, step);
}

/* ---- rings in nodes and across them ---- */

int64_t dpb_schedule_hierarchical_rounds(const struct dpb_schedule *schedule)
{
    int inside = schedule->ranks_per_node;
    int nodes = schedule->ranks / inside;
    return 2 * (inside - 1) + 2 * (nodes - 1);
}

/* Reduce-scatter in the node, all-reduce of the shard with the ranks of the same number in other
 * nodes, all-gather in the node. */
void dpb_schedule_hierarchical(const struct dpb_schedule *schedule, int64_t round,
                               struct dpb_schedule_step *step)
{
    int inside = schedule->ranks_per_node;
    int nodes = schedule->ranks / inside;
    int local = schedule->rank % inside;
    const struct ring in_node = {inside, local, schedule->rank - local, 1, {0, schedule->count}};
    const struct ring across = {nodes, schedule->rank / inside, local, inside,
                                dpb_schedule_shard(in_node.whole, inside, local)};
    if (round < inside - 1) {
        reduce_scatter(&in_node, round, true, step);
        return;
    }
    round -= inside - 1;
    if (round < nodes - 1) {
        reduce_scatter(&across, round, inside == 1, step);
        return;
    }
    round -= nodes - 1;
    if (round < nodes - 1)
        all_gather(&across, round, step);
    else
        all_gather(&in_node, round - (nodes - 1), step);
}

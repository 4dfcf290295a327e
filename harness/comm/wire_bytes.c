/* wire_bytes.c: what one rank sends in a collective, by algorithm. Closed forms, written down apart
 * from the schedules that they are compared with. */
#include "dpb_link_model.h"

static int64_t shard(int64_t count, int ranks, int rank)
{
    return dpb_coll_shard(count, ranks, rank % ranks, NULL);
}

/* Every shard but the own one; every shard that passes, which is all but that of the next rank. */
static int64_t ring_scatter(int64_t count, int ranks, int rank)
{
    return count - shard(count, ranks, rank);
}

static int64_t ring_gather(int64_t count, int ranks, int rank)
{
    return count - shard(count, ranks, rank + 1);
}

static int64_t hierarchical(const struct dpb_algorithm_setup *setup, int rank, int64_t count)
{
    int inside = setup->ranks_per_node > 0 ? setup->ranks_per_node : setup->ranks;
    int nodes = setup->ranks / inside;
    int local = rank % inside;
    int node = rank / inside;
    int64_t own = shard(count, inside, local);
    return ring_scatter(count, inside, local) + ring_scatter(own, nodes, node) +
           ring_gather(own, nodes, node) + ring_gather(count, inside, local);
}

/* ---- pairs ---- */

/* Blocks of 1, 2, 4, ..., members/2 shards, each the one with the member's own. */
static int64_t doubling(int64_t count, int members, int member)
{
    int64_t elements = 0;
    for (int block = 1; block < members; block *= 2)
        for (int i = 0; i < block; i++)
            elements += shard(count, members, (member & -block) + i);
    return elements;
}

static int64_t pairs(const struct dpb_algorithm_setup *setup, int rank, int64_t count)
{
    int members = 1;
    int rounds = 0;
    for (; (int64_t)members * 2 <= setup->ranks; members *= 2)
        rounds++;
    int others = setup->ranks - members;
    if (rank < 2 * others && rank % 2 == 1)
        return count;
    int member = rank < 2 * others ? rank / 2 : rank - others;
    int64_t folded = rank < 2 * others ? count : 0;
    if (setup->algorithm == DPB_ALGORITHM_RECURSIVE_DOUBLING)
        return folded + rounds * count;
    return folded + ring_scatter(count, members, member) + doubling(count, members, member);
}

/* ---- trees ---- */

/* Ranks to which `rank` sends in a binomial tree from `root`: in round k the rank at distance
 * v < 2^k from the root sends to distance v + 2^k. */
static int binomial_children(int ranks, int rank, int root)
{
    int distance = (rank - root + ranks) % ranks;
    int children = 0;
    for (int64_t round = 1; round < ranks; round *= 2)
        children += distance < round && distance + round < ranks;
    return children;
}

/* Children of a node in the binary tree that is numbered in order: even numbers have one before
 * them, and one behind them unless they are the last; number 0 has one. */
static int binary_children(int ranks, int number)
{
    if (number == 0)
        return 1;
    return number % 2 ? 0 : 1 + (number + 1 < ranks);
}

/* All-reduce of a part in one tree: up to the parent, down to the children. */
static int64_t tree_part(int ranks, int number, int64_t count)
{
    return count * ((number > 0) + binary_children(ranks, number));
}

static int64_t double_tree(int ranks, int rank, int64_t count)
{
    int second = ranks % 2 == 0 ? ranks - 1 - rank : (rank - 1 + ranks) % ranks;
    return tree_part(ranks, rank, shard(count, 2, 0)) +
           tree_part(ranks, second, shard(count, 2, 1));
}

/* ---- kinds ---- */

static int64_t all_reduce(const struct dpb_algorithm_setup *setup, int rank, int64_t count)
{
    int ranks = setup->ranks;
    switch (setup->algorithm) {
    case DPB_ALGORITHM_RING:
        return ring_scatter(count, ranks, rank) + ring_gather(count, ranks, rank);
    case DPB_ALGORITHM_RECURSIVE_DOUBLING:
    case DPB_ALGORITHM_HALVING_DOUBLING:
        return pairs(setup, rank, count);
    case DPB_ALGORITHM_TREE:
        return tree_part(ranks, rank, count);
    case DPB_ALGORITHM_DOUBLE_TREE:
        return double_tree(ranks, rank, count);
    case DPB_ALGORITHM_HIERARCHICAL:
        return hierarchical(setup, rank, count);
    case DPB_ALGORITHM_DIRECT:
    case DPB_ALGORITHM_COUNT:
        break;
    }
    return ring_scatter(count, ranks, rank) + (ranks - 1) * shard(count, ranks, rank);
}

static int64_t all_gather(const struct dpb_algorithm_setup *setup, int rank, int64_t count)
{
    if (setup->algorithm == DPB_ALGORITHM_RING)
        return ring_gather(count, setup->ranks, rank);
    if (setup->algorithm == DPB_ALGORITHM_DIRECT)
        return (setup->ranks - 1) * shard(count, setup->ranks, rank);
    return doubling(count, setup->ranks, rank);
}

static int64_t broadcast(const struct dpb_algorithm_setup *setup, int rank, int root, int64_t count)
{
    int ranks = setup->ranks;
    if (setup->algorithm == DPB_ALGORITHM_TREE)
        return binary_children(ranks, (rank - root + ranks) % ranks) * count;
    return binomial_children(ranks, rank, root) * count;
}

static int64_t reduce(const struct dpb_algorithm_setup *setup, int rank, int root, int64_t count)
{
    if (rank != root)
        return count;
    /* A direct reduction's root sends the others what they sum. */
    return setup->algorithm == DPB_ALGORITHM_DIRECT ? ring_scatter(count, setup->ranks, rank) : 0;
}

int64_t dpb_setup_wire_bytes(const struct dpb_algorithm_setup *setup, enum dpb_coll_kind kind,
                             int rank, int root, int64_t count, size_t element_bytes)
{
    int64_t elements = 0;
    if (setup->ranks <= 1)
        return 0;
    switch (kind) {
    case DPB_COLL_ALL_REDUCE:
        elements = all_reduce(setup, rank, count);
        break;
    case DPB_COLL_REDUCE_SCATTER:
        elements = ring_scatter(count, setup->ranks, rank);
        break;
    case DPB_COLL_ALL_GATHER:
        elements = all_gather(setup, rank, count);
        break;
    case DPB_COLL_BROADCAST:
        elements = broadcast(setup, rank, root, count);
        break;
    case DPB_COLL_REDUCE:
        elements = reduce(setup, rank, root, count);
        break;
    case DPB_COLL_ALL_TO_ALL:
        elements = (setup->ranks - 1) * (count / setup->ranks);
        break;
    case DPB_COLL_COUNT:
        break;
    }
    return elements * (int64_t)element_bytes;
}

/* link_model.c: wire time and wire bytes of a collective, by algorithm. */
#include "dpb_link_model.h"

#include <math.h>

/* Smallest k with 2^k >= ranks: the rounds of a binomial tree. */
static int tree_rounds(int ranks)
{
    int rounds = 0;
    while ((int64_t)1 << rounds < ranks)
        rounds++;
    return rounds;
}

/* Ranks to which `rank` sends in a binomial tree from `root`: in round k the rank at distance
 * v < 2^k from the root sends to distance v + 2^k. */
static int tree_children(int ranks, int rank, int root)
{
    int distance = (rank - root + ranks) % ranks;
    int children = 0;
    for (int64_t round = 1; round < ranks; round *= 2)
        children += distance < round && distance + round < ranks;
    return children;
}

int64_t dpb_link_wire_ns(const struct dpb_link *link, enum dpb_algorithm algorithm,
                         enum dpb_coll_kind kind, int ranks, int64_t bytes)
{
    if (ranks <= 1 || !(link->bw_bytes_per_s > 0))
        return 0;
    /* One half of an all-reduce: P - 1 hops in a ring, one exchange with all peers at once. */
    double hops = algorithm == DPB_ALGORITHM_RING ? ranks - 1 : 1;
    double latencies = 0;
    double share = 0; /* of the buffer, sent by one rank in one direction */
    switch (kind) {
    case DPB_COLL_ALL_REDUCE:
        latencies = 2 * hops;
        share = 2.0 * (ranks - 1) / ranks;
        break;
    case DPB_COLL_REDUCE_SCATTER:
    case DPB_COLL_ALL_GATHER:
    case DPB_COLL_ALL_TO_ALL:
        latencies = hops;
        share = (double)(ranks - 1) / ranks;
        break;
    case DPB_COLL_BROADCAST:
        latencies = tree_rounds(ranks);
        share = tree_rounds(ranks);
        break;
    case DPB_COLL_REDUCE:
        /* A chain of P - 1 hops for P pieces, or two exchanges. */
        latencies = 2 * hops;
        share = 2.0 * (ranks - 1) / ranks;
        break;
    case DPB_COLL_COUNT:
        break;
    }
    double ns = latencies * (double)link->latency_ns +
                round(share * (double)bytes / link->bw_bytes_per_s * 1e9);
    return ns >= 0x1p63 ? INT64_MAX : (int64_t)ns;
}

int64_t dpb_algorithm_wire_bytes(enum dpb_algorithm algorithm, enum dpb_coll_kind kind, int ranks,
                                 int rank, int root, int64_t count, size_t element_bytes)
{
    if (ranks <= 1)
        return 0;
    int64_t shard = dpb_coll_shard(count, ranks, rank, NULL);
    /* Reduce-scatter sends everything but the own shard, in either algorithm. */
    int64_t scatter = count - shard;
    /* All-gather: the own shard to every peer, or, round a ring, every shard that passes; the one
     * that the next rank owns does not pass. */
    int64_t gather = algorithm == DPB_ALGORITHM_RING
                             ? count - dpb_coll_shard(count, ranks, (rank + 1) % ranks, NULL)
                             : (ranks - 1) * shard;
    int64_t elements = 0;
    switch (kind) {
    case DPB_COLL_ALL_REDUCE:
        elements = scatter + gather;
        break;
    case DPB_COLL_REDUCE_SCATTER:
        elements = scatter;
        break;
    case DPB_COLL_ALL_GATHER:
        elements = gather;
        break;
    case DPB_COLL_BROADCAST:
        elements = tree_children(ranks, rank, root) * count;
        break;
    case DPB_COLL_REDUCE:
        /* Along the chain every piece once; or the parts that others sum, and the own sum. */
        if (rank != root)
            elements = count;
        else if (algorithm == DPB_ALGORITHM_DIRECT)
            elements = scatter;
        break;
    case DPB_COLL_ALL_TO_ALL:
        elements = (ranks - 1) * (count / ranks);
        break;
    case DPB_COLL_COUNT:
        break;
    }
    return elements * (int64_t)element_bytes;
}

/* wire_levels.c: what one rank sends inside its node and to other nodes. Every algorithm's peers,
 * and how much goes to each over the whole collective, in closed form: neither the schedules'
 * rounds nor the sums of wire_bytes.c, with both of which it is compared. */
#include "dpb_link_model.h"

struct tally {
    const struct dpb_algorithm_setup *setup;
    int rank, per_node;
    int64_t count; /* of the whole buffer */
    int64_t inside, between;
};

static void send(struct tally *t, int to, int64_t elements)
{
    if (to / t->per_node == t->rank / t->per_node)
        t->inside += elements;
    else
        t->between += elements;
}

/* Elements of `many` consecutive shards of `ranks`. */
static int64_t shards(int64_t count, int ranks, int first, int many)
{
    int64_t begin, end;
    dpb_coll_shard(count, ranks, first, &begin);
    int64_t last = dpb_coll_shard(count, ranks, first + many - 1, &end);
    return end + last - begin;
}

static int largest_power(int most)
{
    int power = 1;
    while ((int64_t)power * 2 <= most)
        power *= 2;
    return power;
}

/* ---- everybody to everybody ---- */

/* Each peer gets the shard that it sums. */
static void direct_scatter(struct tally *t)
{
    for (int peer = 0; peer < t->setup->ranks; peer++)
        if (peer != t->rank)
            send(t, peer, shards(t->count, t->setup->ranks, peer, 1));
}

static void same_to_all(struct tally *t, int64_t elements)
{
    for (int peer = 0; peer < t->setup->ranks; peer++)
        if (peer != t->rank)
            send(t, peer, elements);
}

static void direct_gather(struct tally *t)
{
    same_to_all(t, shards(t->count, t->setup->ranks, t->rank, 1));
}

/* ---- rings: one neighbour gets everything ---- */

static void ring_scatter(struct tally *t)
{
    int next = (t->rank + 1) % t->setup->ranks;
    send(t, next, t->count - shards(t->count, t->setup->ranks, t->rank, 1));
}

static void ring_gather(struct tally *t)
{
    int next = (t->rank + 1) % t->setup->ranks;
    send(t, next, t->count - shards(t->count, t->setup->ranks, next, 1));
}

/* The neighbour in the node gets the node's ring, the one in the next node that of the shard. */
static void hierarchical(struct tally *t)
{
    int inside = t->per_node, nodes = t->setup->ranks / inside;
    int local = t->rank % inside, node = t->rank / inside;
    int64_t own = shards(t->count, inside, local, 1);
    if (inside > 1)
        send(t, t->rank - local + (local + 1) % inside,
             2 * t->count - own - shards(t->count, inside, (local + 1) % inside, 1));
    if (nodes > 1)
        send(t, (node + 1) % nodes * inside + local,
             2 * own - shards(own, nodes, node, 1) - shards(own, nodes, (node + 1) % nodes, 1));
}

/* ---- pairs ---- */

struct pairs {
    int members, others, member; /* member < 0: left out */
};

static struct pairs pairs_of(const struct tally *t)
{
    struct pairs p = {.members = largest_power(t->setup->ranks)};
    p.others = t->setup->ranks - p.members;
    if (t->rank >= 2 * p.others)
        p.member = t->rank - p.others;
    else
        p.member = t->rank % 2 ? -1 : t->rank / 2;
    return p;
}

static int rank_of_member(const struct pairs *p, int member)
{
    return member < p->others ? 2 * member : member + p->others;
}

enum pair_way {
    PAIRS_EVERYTHING, /* the partner gets the buffer, */
    PAIRS_SCATTER,    /* the block of shards that it keeps, */
    PAIRS_GATHER      /* the block that it does not have */
};

/* A partner at each distance, and as many shards in the block. */
static void with_partners(struct tally *t, const struct pairs *p, enum pair_way way)
{
    for (int distance = 1; distance < p->members; distance *= 2) {
        int partner = p->member ^ distance;
        int first = (way == PAIRS_SCATTER ? partner : p->member) & -distance;
        send(t, rank_of_member(p, partner),
             way == PAIRS_EVERYTHING ? t->count : shards(t->count, p->members, first, distance));
    }
}

static void pairs_all_reduce(struct tally *t)
{
    const struct pairs p = pairs_of(t);
    if (t->rank < 2 * p.others)
        send(t, t->rank ^ 1, t->count);
    if (p.member < 0)
        return;
    if (t->setup->algorithm == DPB_ALGORITHM_RECURSIVE_DOUBLING) {
        with_partners(t, &p, PAIRS_EVERYTHING);
        return;
    }
    with_partners(t, &p, PAIRS_SCATTER);
    with_partners(t, &p, PAIRS_GATHER);
}

/* ---- trees ---- */

/* How ranks are numbered in a tree: rank = number + add, or counted from the end. */
struct numbering {
    int add;
    bool mirror;
};

static int rank_of_number(const struct tally *t, const struct numbering *n, int number)
{
    int ranks = t->setup->ranks;
    return n->mirror ? ranks - 1 - number : (number + n->add) % ranks;
}

static int number_of_rank(const struct tally *t, const struct numbering *n)
{
    int ranks = t->setup->ranks;
    return n->mirror ? ranks - 1 - t->rank : (t->rank - n->add + ranks) % ranks;
}

/* Root of the search tree over the numbers first to last; -1: there are none. */
static int subtree_root(int first, int last)
{
    return first > last ? -1 : first - 1 + largest_power(last - first + 1);
}

/* Descends from number 0, whose only child has all the others below it. */
static void binary_tree(struct tally *t, const struct numbering *n, bool up, bool down,
                        int64_t elements)
{
    int number = number_of_rank(t, n), parent = 0, first = 1, last = t->setup->ranks - 1;
    int node = subtree_root(first, last), child[2] = {node, -1};
    while (number != 0 && node != number) {
        parent = node;
        if (number < node)
            last = node - 1;
        else
            first = node + 1;
        node = subtree_root(first, last);
    }
    if (number != 0) {
        child[0] = subtree_root(first, node - 1);
        child[1] = subtree_root(node + 1, last);
        if (up)
            send(t, rank_of_number(t, n, parent), elements);
    }
    for (int side = 0; side < 2; side++)
        if (down && child[side] >= 0)
            send(t, rank_of_number(t, n, child[side]), elements);
}

static void double_tree(struct tally *t)
{
    const struct numbering plain = {0, false};
    const struct numbering other = {1, t->setup->ranks % 2 == 0};
    binary_tree(t, &plain, true, true, shards(t->count, 2, 0, 1));
    binary_tree(t, &other, true, true, shards(t->count, 2, 1, 1));
}

/* A rank at distance d from the root sends on to d + 2^k, for every 2^k above d. */
static void binomial_tree(struct tally *t, int root)
{
    int ranks = t->setup->ranks;
    int distance = (t->rank - root + ranks) % ranks;
    int64_t reach = distance == 0 ? 1 : 2 * (int64_t)largest_power(distance);
    for (; distance + reach < ranks; reach *= 2)
        send(t, (int)((t->rank + reach) % ranks), t->count);
}

/* ---- kinds ---- */

static void all_reduce(struct tally *t)
{
    switch (t->setup->algorithm) {
    case DPB_ALGORITHM_RING:
        ring_scatter(t);
        ring_gather(t);
        break;
    case DPB_ALGORITHM_RECURSIVE_DOUBLING:
    case DPB_ALGORITHM_HALVING_DOUBLING:
        pairs_all_reduce(t);
        break;
    case DPB_ALGORITHM_TREE:
        binary_tree(t, &(struct numbering){0, false}, true, true, t->count);
        break;
    case DPB_ALGORITHM_DOUBLE_TREE:
        double_tree(t);
        break;
    case DPB_ALGORITHM_HIERARCHICAL:
        hierarchical(t);
        break;
    case DPB_ALGORITHM_DIRECT:
    case DPB_ALGORITHM_COUNT:
        direct_scatter(t);
        direct_gather(t);
        break;
    }
}

static void reduce_scatter(struct tally *t)
{
    const struct pairs p = pairs_of(t);
    if (t->setup->algorithm == DPB_ALGORITHM_RING)
        ring_scatter(t);
    else if (t->setup->algorithm == DPB_ALGORITHM_DIRECT)
        direct_scatter(t);
    else
        with_partners(t, &p, PAIRS_SCATTER);
}

static void all_gather(struct tally *t)
{
    const struct pairs p = pairs_of(t);
    if (t->setup->algorithm == DPB_ALGORITHM_RING)
        ring_gather(t);
    else if (t->setup->algorithm == DPB_ALGORITHM_DIRECT)
        direct_gather(t);
    else
        with_partners(t, &p, PAIRS_GATHER);
}

static void broadcast(struct tally *t, int root)
{
    if (t->setup->algorithm == DPB_ALGORITHM_TREE)
        binary_tree(t, &(struct numbering){root, false}, false, true, t->count);
    else
        binomial_tree(t, root);
}

static void reduce(struct tally *t, int root)
{
    if (t->setup->algorithm == DPB_ALGORITHM_TREE) {
        binary_tree(t, &(struct numbering){root, false}, true, false, t->count);
        return;
    }
    if (t->setup->algorithm == DPB_ALGORITHM_DIRECT)
        direct_scatter(t);
    if (t->rank == root)
        return;
    if (t->setup->algorithm == DPB_ALGORITHM_DIRECT)
        send(t, root, shards(t->count, t->setup->ranks, t->rank, 1));
    else
        send(t, (t->rank + 1) % t->setup->ranks, t->count);
}

struct dpb_wire_levels dpb_setup_wire_levels(const struct dpb_algorithm_setup *setup,
                                             enum dpb_coll_kind kind, int rank, int root,
                                             int64_t count, size_t element_bytes)
{
    int per_node = setup->ranks_per_node > 0 ? setup->ranks_per_node : setup->ranks;
    struct tally t = {.setup = setup, .rank = rank, .per_node = per_node, .count = count};
    if (setup->ranks <= 1)
        return (struct dpb_wire_levels){0, 0};
    switch (kind) {
    case DPB_COLL_ALL_REDUCE:
        all_reduce(&t);
        break;
    case DPB_COLL_REDUCE_SCATTER:
        reduce_scatter(&t);
        break;
    case DPB_COLL_ALL_GATHER:
        all_gather(&t);
        break;
    case DPB_COLL_BROADCAST:
        broadcast(&t, root);
        break;
    case DPB_COLL_REDUCE:
        reduce(&t, root);
        break;
    case DPB_COLL_ALL_TO_ALL:
        same_to_all(&t, count / setup->ranks);
        break;
    case DPB_COLL_COUNT:
        break;
    }
    return (struct dpb_wire_levels){t.inside * (int64_t)element_bytes,
                                    t.between * (int64_t)element_bytes};
}

bool dpb_setup_is_one_node(const struct dpb_algorithm_setup *setup)
{
    return setup->ranks_per_node == 0 || setup->ranks_per_node >= setup->ranks;
}

int64_t dpb_setup_wire_between(const struct dpb_algorithm_setup *setup, bool is_ours,
                               const struct dpb_coll *coll, int rank)
{
    if (dpb_setup_is_one_node(setup))
        return 0;
    if (!is_ours || setup->ranks_per_node < 0)
        return DPB_WIRE_UNKNOWN;
    return dpb_setup_wire_levels(setup, coll->kind, rank, coll->root, coll->count,
                                 dpb_dtype_bytes(coll->dtype))
            .between_bytes;
}

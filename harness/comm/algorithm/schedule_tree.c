/* schedule_tree.c: binomial trees, and binary trees through which the buffer goes in chunks.
 *
 * Binary trees are numbered in order (Sanders, Speck and Traff, "Two-tree algorithms for full
 * bandwidth broadcast, reduction and scan", 2009): number 0 is the root, with one child; another
 * node has as its height the number of zeros at the end of its number, so that all odd numbers are
 * leaves. Two trees of which one is the other one mirrored (shifted by one when P is odd) have
 * other leaves, so that with one half of the data in each, no rank has all the work. */
#include "schedule_private.h"

/* ---- binomial ---- */

int64_t dpb_schedule_binomial_rounds(const struct dpb_schedule *schedule)
{
    int64_t rounds = 0;
    while ((int64_t)1 << rounds < schedule->ranks)
        rounds++;
    return rounds;
}

/* In round k the ranks at a distance below 2^k from the root send to those 2^k further. */
void dpb_schedule_binomial(const struct dpb_schedule *schedule, int64_t round,
                           struct dpb_schedule_step *step)
{
    const struct dpb_schedule_part everything = {0, schedule->count};
    int ranks = schedule->ranks;
    int distance = (schedule->rank - schedule->root + ranks) % ranks;
    int reach = 1 << round;
    if (distance < reach && distance + reach < ranks)
        dpb_schedule_send(step, (schedule->rank + reach) % ranks, everything);
    else if (distance >= reach && distance < 2 * reach)
        dpb_schedule_receive(step, (schedule->rank - reach + ranks) % ranks, everything);
}

/* ---- binary ---- */

struct node {
    int height;
    int parent;
    int child[2]; /* numbers; -1: none. A node with one child has it as child[0]. */
    int side;     /* which child of its parent it is */
};

/* Height of the root: that of the largest power of two, and one. */
static int tree_height(int ranks)
{
    return dpb_schedule_log2(ranks - 1) + 1;
}

static struct node node_of(int ranks, int number)
{
    struct node node = {.parent = -1, .child = {-1, -1}};
    if (number == 0) {
        node.height = tree_height(ranks);
        node.child[0] = 1 << (node.height - 1);
        return node;
    }
    int low = number & -number;
    node.height = __builtin_ctz((unsigned)number);
    int above = (number ^ low) | low << 1;
    node.side = above < number ? 1 : 0;
    /* Where the tree is cut off, a right child moves up to the first ancestor that is there. */
    node.parent = above < ranks ? above : number ^ low;
    if (node.parent != above)
        node.side = 1;
    if (node.parent == 0)
        node.side = 0;
    if (low > 1)
        node.child[0] = number - low / 2;
    for (int reach = low / 2; reach > 0 && node.child[1] < 0; reach /= 2)
        if (number + reach < ranks)
            node.child[1] = number + reach;
    return node;
}

/* One of the trees of a schedule: numbers of its nodes to ranks and back, and what it carries. */
struct tree {
    int ranks;
    int add;     /* rank = (number + add) mod P, or, */
    bool mirror; /* P - 1 - number */
    struct dpb_schedule_part part;
};

static int rank_of(const struct tree *tree, int number)
{
    return tree->mirror ? tree->ranks - 1 - number : (number + tree->add) % tree->ranks;
}

static int number_of(const struct tree *tree, int rank)
{
    return tree->mirror ? tree->ranks - 1 - rank : (rank - tree->add + tree->ranks) % tree->ranks;
}

static int tree_count(const struct dpb_schedule *schedule)
{
    return schedule->algorithm == DPB_ALGORITHM_DOUBLE_TREE ? 2 : 1;
}

static struct tree tree_of(const struct dpb_schedule *schedule, int which)
{
    const struct dpb_schedule_part whole = {0, schedule->count};
    struct tree tree = {.ranks = schedule->ranks,
                        .part = dpb_schedule_shard(whole, tree_count(schedule), which)};
    if (dpb_coll_has_root(schedule->kind))
        tree.add = schedule->root;
    else if (which == 1 && schedule->ranks % 2 == 0)
        tree.mirror = true;
    else
        tree.add = which;
    return tree;
}

/* The larger tree's number of chunks; at least one, so that there is a schedule for no elements. */
static int64_t chunk_count(const struct dpb_schedule *schedule)
{
    int64_t count = tree_of(schedule, 0).part.count;
    int64_t chunks = count / schedule->chunk + (count % schedule->chunk != 0);
    return chunks > 0 ? chunks : 1;
}

static struct dpb_schedule_part chunk_of(const struct dpb_schedule *schedule,
                                         const struct tree *tree, int64_t number)
{
    int64_t first = number * schedule->chunk;
    if (first > tree->part.count)
        first = tree->part.count;
    int64_t left = tree->part.count - first;
    return (struct dpb_schedule_part){tree->part.first + first,
                                      left < schedule->chunk ? left : schedule->chunk};
}

/* The chunk that a node of height `height` gets from child `side`, or gives to it, in a round; -1:
 * none. Chunks follow each other every two rounds, one for each child. */
static int64_t up_chunk(int64_t round, int height, int side, int64_t chunks)
{
    int64_t at = round - side - 2 * (height - 1);
    return at >= 0 && at % 2 == 0 && at / 2 < chunks ? at / 2 : -1;
}

static int64_t down_chunk(int64_t round, int height, int top, int side, int64_t chunks)
{
    int64_t at = round - side - 2 * (top - height);
    return at >= 0 && at % 2 == 0 && at / 2 < chunks ? at / 2 : -1;
}

/* Sums go up: a node adds its first child's chunk to its own, then its second child's. */
static void go_up(const struct dpb_schedule *schedule, const struct tree *tree,
                  const struct node *node, int64_t round, struct dpb_schedule_step *step)
{
    int64_t chunks = chunk_count(schedule);
    for (int side = 0; side < 2; side++) {
        int child = node->child[side];
        int64_t chunk = child < 0 ? -1 : up_chunk(round, node->height, side, chunks);
        if (chunk < 0)
            continue;
        dpb_schedule_receive(step, rank_of(tree, child), chunk_of(schedule, tree, chunk));
        step->reduces = true;
        step->own_is_raw = side == 0;
        step->received_is_raw = node_of(tree->ranks, child).child[0] < 0;
    }
    if (node->parent < 0)
        return;
    int height = node_of(tree->ranks, node->parent).height;
    int64_t chunk = up_chunk(round, height, node->side, chunks);
    if (chunk >= 0)
        dpb_schedule_send(step, rank_of(tree, node->parent), chunk_of(schedule, tree, chunk));
}

static void go_down(const struct dpb_schedule *schedule, const struct tree *tree,
                    const struct node *node, int64_t round, struct dpb_schedule_step *step)
{
    int top = tree_height(tree->ranks);
    int64_t chunks = chunk_count(schedule);
    for (int side = 0; side < 2; side++) {
        int child = node->child[side];
        int64_t chunk = child < 0 ? -1 : down_chunk(round, node->height, top, side, chunks);
        if (chunk >= 0)
            dpb_schedule_send(step, rank_of(tree, child), chunk_of(schedule, tree, chunk));
    }
    if (node->parent < 0)
        return;
    int height = node_of(tree->ranks, node->parent).height;
    int64_t chunk = down_chunk(round, height, top, node->side, chunks);
    if (chunk >= 0)
        dpb_schedule_receive(step, rank_of(tree, node->parent), chunk_of(schedule, tree, chunk));
}

/* Rounds of one direction, of one tree. */
static int64_t way_rounds(const struct dpb_schedule *schedule)
{
    return 2 * (chunk_count(schedule) + tree_height(schedule->ranks) - 1);
}

/* Rounds of the one direction that must have passed before the root can begin with the other: until
 * its first chunk is complete. */
static int64_t lead_rounds(const struct dpb_schedule *schedule)
{
    return 2 * (tree_height(schedule->ranks) - 1);
}

int64_t dpb_schedule_tree_rounds(const struct dpb_schedule *schedule)
{
    int64_t rounds = way_rounds(schedule);
    if (schedule->kind == DPB_COLL_ALL_REDUCE)
        rounds = 2 * (rounds + lead_rounds(schedule));
    return tree_count(schedule) * rounds;
}

/* Two trees take turns, and so do the two directions of an all-reduce: while sums still go up, the
 * first ones are on their way down. */
void dpb_schedule_tree(const struct dpb_schedule *schedule, int64_t round,
                       struct dpb_schedule_step *step)
{
    int trees = tree_count(schedule);
    const struct tree tree = tree_of(schedule, (int)(round % trees));
    const struct node node = node_of(tree.ranks, number_of(&tree, schedule->rank));
    round /= trees;
    if (schedule->kind == DPB_COLL_REDUCE)
        go_up(schedule, &tree, &node, round, step);
    else if (schedule->kind == DPB_COLL_BROADCAST)
        go_down(schedule, &tree, &node, round, step);
    else if (round % 2 == 0)
        go_up(schedule, &tree, &node, round / 2, step);
    else
        go_down(schedule, &tree, &node, round / 2 - lead_rounds(schedule), step);
}

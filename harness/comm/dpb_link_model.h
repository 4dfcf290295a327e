/* dpb_link_model.h: algorithms of collectives: which there are, what they send, and what that would
 * take on a link.
 *
 * P ranks, B bytes of the whole buffer, latency alpha per message, bandwidth BW per rank and
 * direction; log2 is rounded up, Q = 2^floor(log2 P), c = min(512 KiB, B). Time of all-reduce:
 *
 *     direct              2 alpha           + 2 (P-1)/P B / BW
 *     ring                2 (P-1) alpha     + 2 (P-1)/P B / BW
 *     recursive-doubling  log2 Q (alpha     + B / BW)           [P > Q: + 2 (alpha + B / BW)]
 *     halving-doubling    2 log2 Q alpha    + 2 (Q-1)/Q B / BW  [P > Q: + 2 (alpha + B / BW)]
 *     tree                2 log2 P (alpha   + c / BW) + 3 (B - c) / BW
 *     double-tree         2 log2 P (alpha   + c'/ BW) + 2 (1 - 1/k) B / BW, where the halves go in
 *                         k = ceil(B/2 / 512 KiB) chunks of c' = min(512 KiB, B/2)
 *     hierarchical        g ranks in each of k nodes: ring reduce-scatter of B over g and ring
 *                         all-gather of B over g, on the link inside nodes; between them ring
 *                         all-reduce of B/g over k
 *
 * Other kinds, where an algorithm has them (dpb_algorithm_check()):
 *
 *     reduce-scatter, all-gather  half of all-reduce: direct, ring, halving-doubling (P = Q);
 *                                 recursive-doubling's all-gather (P = Q) is as halving-doubling's
 *     reduce                      as all-reduce: direct, ring
 *     reduce, broadcast           log2 P (alpha + c / BW) + 2 (B - c) / BW: tree
 *     broadcast                   log2 P (alpha + B / BW): all but tree, by a binomial tree
 *     all-to-all                  as reduce-scatter: ring, one peer after the other, and as direct,
 *                                 all peers at once: all others
 *
 * A direct reduction sums shards, then gathers them at all ranks or at the root; a ring's reduce is
 * a chain that ends at the root, in P pieces that follow each other. Trees are pipelined, and the
 * two directions overlap. With one rank everything is 0.
 *
 * Sources: Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in
 * MPICH", 2005; Sanders, Speck and Traff, "Two-tree algorithms for full bandwidth broadcast,
 * reduction and scan", 2009; Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for
 * clusters of workstations", 2009. */
#ifndef DPB_LINK_MODEL_H
#define DPB_LINK_MODEL_H

#include <stdint.h>

#include "dpb_comm.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DPB_ALGORITHM_CHUNK_BYTES (512 * 1024) /* of pipelined trees */

/* identifier, text, help */
#define DPB_ALGORITHM_MAP(X)                                                                       \
    X(DPB_ALGORITHM_DIRECT, "direct", "every rank sums its shard of all buffers at once")          \
    X(DPB_ALGORITHM_RING, "ring", "shards go round, 2 (P - 1) steps between neighbours")           \
    X(DPB_ALGORITHM_RECURSIVE_DOUBLING, "recursive-doubling",                                      \
      "pairs at distance 1, 2, 4, ... exchange everything: few steps, many bytes")                 \
    X(DPB_ALGORITHM_HALVING_DOUBLING, "halving-doubling",                                          \
      "pairs exchange halves, quarters, ... and back: few steps, few bytes")                       \
    X(DPB_ALGORITHM_TREE, "tree", "sums go up a binary tree, and back down, in chunks")            \
    X(DPB_ALGORITHM_DOUBLE_TREE, "double-tree",                                                    \
      "two binary trees, half of the data in each, no rank inside both")                           \
    X(DPB_ALGORITHM_HIERARCHICAL, "hierarchical",                                                  \
      "rings in each node, and rings across nodes for the shards")

enum dpb_algorithm {
#define DPB_ALGORITHM_ENUM(name, text, help) name,
    DPB_ALGORITHM_MAP(DPB_ALGORITHM_ENUM)
#undef DPB_ALGORITHM_ENUM
    DPB_ALGORITHM_COUNT
};

const char *dpb_algorithm_text(enum dpb_algorithm algorithm);

/* The algorithm of that name; false, and nothing changed, when there is none. */
bool dpb_algorithm_find(const char *text, enum dpb_algorithm *algorithm);

/* An algorithm and what it runs on. */
struct dpb_algorithm_setup {
    enum dpb_algorithm algorithm;
    int ranks;
    int ranks_per_node;     /* ranks of a node are consecutive; 0: all on one; -1: nodes have
                               different numbers of ranks */
    struct dpb_link link;   /* bw_bytes_per_s 0: none */
    struct dpb_link inside; /* hierarchical: of ranks of one node; bw_bytes_per_s 0: as `link` */
};

/* DPB_OK; DPB_ERR_UNSUPPORTED when the algorithm has no such collective, or not for this number of
 * ranks; DPB_ERR_USAGE when the nodes do not come out even. The reason goes to `why`. */
dpb_status dpb_algorithm_check(const struct dpb_algorithm_setup *setup, enum dpb_coll_kind kind,
                               char *why, size_t why_bytes);

/* Wire time in nanoseconds of a collective over `bytes` (the whole buffer). */
int64_t dpb_setup_wire_ns(const struct dpb_algorithm_setup *setup, enum dpb_coll_kind kind,
                          int64_t bytes);

/* Bytes that `rank` sends, by the same algorithm; rank-local copies are not counted. Exact, also
 * where `count` elements of `element_bytes` do not divide evenly. In elements, where shard(r) is
 * dpb_coll_shard() of n = count, and all ranks together:
 *
 *     reduce-scatter          n - shard(r)                                    (P-1) n
 *     all-gather    direct    (P-1) shard(r)                                  (P-1) n
 *                   ring      n - shard(r+1)                                  (P-1) n
 *                   doubling  blocks of 1, 2, 4, ..., P/2 shards with r's     (P-1) n
 *     all-reduce    direct, ring: reduce-scatter and all-gather             2 (P-1) n
 *                   recursive-doubling  log2 Q n          Q log2 Q n + 2 (P-Q) n
 *                   halving-doubling    as reduce-scatter and all-gather over Q
 *                                       pieces               2 n + 2 (P-Q) n
 *                   (both: each rank of the P - Q pairs sends n once more; one sends only that)
 *                   tree                n to the parent, n to each child    2 (P-1) n
 *                   double-tree         the same with halves in each tree   2 (P-1) n
 *                   hierarchical        ring's of n over g, ring's of shard over k
 *     reduce        direct    n; the root n - shard(root)     P n - shard(root)
 *                   ring      n; the root 0                                   (P-1) n
 *                   tree      n; the root 0                                   (P-1) n
 *     broadcast               n to each child                                 (P-1) n
 *     all-to-all              (P-1) n/P                                       (P-1) n */
int64_t dpb_setup_wire_bytes(const struct dpb_algorithm_setup *setup, enum dpb_coll_kind kind,
                             int rank, int root, int64_t count, size_t element_bytes);

/* The same bytes by where they go: to ranks of the own node, and of others. */
struct dpb_wire_levels {
    int64_t inside_bytes, between_bytes;
};

/* What goes to which peer, over the whole collective, is in the sources' closed forms
 * (wire_levels.c): a ring sends all to its one neighbour, so that one rank of a node sends to other
 * nodes; hierarchical sends ring's of n over g inside and ring's of shard over k between; direct
 * and all-to-all send to every peer; pairs to the partner at each distance; trees to parent and
 * children. Both are 0 with one rank. ranks_per_node 0 or less counts as one node; the last node
 * may be smaller, but for hierarchical. */
struct dpb_wire_levels dpb_setup_wire_levels(const struct dpb_algorithm_setup *setup,
                                             enum dpb_coll_kind kind, int rank, int root,
                                             int64_t count, size_t element_bytes);

/* Are all ranks on one node? */
bool dpb_setup_is_one_node(const struct dpb_algorithm_setup *setup);

/* What a backend says in dpb_coll_times.wire_between_bytes: 0 on one node; on several it is known
 * where one of our algorithms ran (`is_ours`) and nodes have one size, else DPB_WIRE_UNKNOWN: what
 * a library sends where is its own business, and is not guessed. */
int64_t dpb_setup_wire_between(const struct dpb_algorithm_setup *setup, bool is_ours,
                               const struct dpb_coll *coll, int rank);

/* Sum of two such numbers; not known where one of them is not. */
static inline int64_t dpb_wire_sum(int64_t a, int64_t b)
{
    return a < 0 || b < 0 ? DPB_WIRE_UNKNOWN : a + b;
}

/* The same for ranks of one node. */
static inline int64_t dpb_link_wire_ns(const struct dpb_link *link, enum dpb_algorithm algorithm,
                                       enum dpb_coll_kind kind, int ranks, int64_t bytes)
{
    const struct dpb_algorithm_setup setup = {algorithm, ranks, 0, *link, {0, 0}};
    return dpb_setup_wire_ns(&setup, kind, bytes);
}

static inline int64_t dpb_algorithm_wire_bytes(enum dpb_algorithm algorithm,
                                               enum dpb_coll_kind kind, int ranks, int rank,
                                               int root, int64_t count, size_t element_bytes)
{
    const struct dpb_algorithm_setup setup = {algorithm, ranks, 0, {0, 0}, {0, 0}};
    return dpb_setup_wire_bytes(&setup, kind, rank, root, count, element_bytes);
}

#ifdef __cplusplus
}
#endif
#endif

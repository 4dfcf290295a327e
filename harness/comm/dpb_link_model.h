/* dpb_link_model.h: what a collective would take on a link, by algorithm.
 *
 * Pure formulas (Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication
 * Operations in MPICH", 2005): latency alpha per step, bandwidth BW per rank and direction.
 *
 *     ring    all-reduce, reduce            2 (P-1) alpha + 2 (P-1)/P B / BW
 *             reduce-scatter, all-gather,     (P-1) alpha +   (P-1)/P B / BW
 *             all-to-all
 *     direct  all-reduce, reduce                2 alpha   + 2 (P-1)/P B / BW
 *             reduce-scatter, all-gather,         alpha   +   (P-1)/P B / BW
 *             all-to-all
 *     both    broadcast                     ceil(log2 P) (alpha + B / BW)
 *
 * Each half of a direct all-reduce is one exchange with all peers; a broadcast is a binomial tree.
 * A direct reduce sums like a reduce-scatter and then gathers to the root; round a ring it is a
 * chain that ends at the root, in P pieces that follow each other. All-to-all is one exchange with
 * all peers, or, under "ring", with one peer after the other. With one rank everything is 0. */
#ifndef DPB_LINK_MODEL_H
#define DPB_LINK_MODEL_H

#include <stdint.h>

#include "dpb_comm.h"

#ifdef __cplusplus
extern "C" {
#endif

enum dpb_algorithm {
    DPB_ALGORITHM_DIRECT,
    DPB_ALGORITHM_RING
};

/* Wire time in nanoseconds of a collective over `bytes` (the whole buffer). */
int64_t dpb_link_wire_ns(const struct dpb_link *link, enum dpb_algorithm algorithm,
                         enum dpb_coll_kind kind, int ranks, int64_t bytes);

/* Bytes that one rank sends, by the same algorithm; rank-local copies are not counted. With
 * `count` elements of `element_bytes` that do not divide evenly this is the exact number for
 * `rank`, not the average. */
int64_t dpb_algorithm_wire_bytes(enum dpb_algorithm algorithm, enum dpb_coll_kind kind, int ranks,
                                 int rank, int root, int64_t count, size_t element_bytes);

#ifdef __cplusplus
}
#endif
#endif

/* dpb_coll_cost.h: closed forms of what collectives take, for planning; every algorithm that users
 * of accelerators meet, also those that we have not implemented.
 *
 * n ranks, S bytes of the whole buffer, latency a seconds per step, B bytes per second per rank and
 * direction; all 0 with one rank. h = ceil(log2 n), p = 2^floor(log2 n).
 *
 *     ring reduce-scatter, all-gather  (n-1) a + (n-1)/n S/B
 *     ring all-reduce                  2 (n-1) a + 2 (n-1)/n S/B
 *     recursive doubling               log2 p (a + S/B)                  [n > p: + 2 (a + S/B)]
 *     Rabenseifner                     2 log2 p a + 2 (p-1)/p S/B        [n > p: + 2 a + 2 S/B]
 *     tree, chunks of c                2 h (a + c/B) + 3 (S-c)/B, c <= S
 *     double tree                      2 h (a + c/B) + 2 S/B (1 - 1/k), k = ceil(S/2/c), c <= S/2
 *     NVLS (NVLink SHARP)              a + S (n+1)/n / B
 *     SHARP, CollNet                   a + S/B
 *     hierarchical                     RS(g) + AR(k, S/g) + AG(g), or max(RS + AG, AR) when the
 *                                      parts are pipelined, or between them by `overlap`
 *     flat ring over nodes             (2 (n-1) - 2 (k-1)) a + 2 (k-1) ax + 2 (n-1)/n S /
 *                                      min(B, NICs Bx)
 *
 * No all-reduce of ranks that send takes less than 2 (n-1)/n S/B (Patarasuk and Yuan 2009).
 * Sources: Thakur, Rabenseifner and Gropp 2005; Sanders, Speck and Traff 2009; NVLS and CollNet:
 * traffic per accelerator as NCCL's documentation and its issues 457 and 790 tell. */
#ifndef DPB_COLL_COST_H
#define DPB_COLL_COST_H

#ifdef __cplusplus
extern "C" {
#endif

/* A link of one rank. */
struct dpb_coll_link {
    double latency_s, bytes_per_s;
};

double dpb_cost_ring_half(int ranks, double bytes, struct dpb_coll_link link); /* RS or AG */
double dpb_cost_ring(int ranks, double bytes, struct dpb_coll_link link);
double dpb_cost_recursive_doubling(int ranks, double bytes, struct dpb_coll_link link);
double dpb_cost_rabenseifner(int ranks, double bytes, struct dpb_coll_link link);
double dpb_cost_tree(int ranks, double bytes, struct dpb_coll_link link, double chunk_bytes);
double dpb_cost_double_tree(int ranks, double bytes, struct dpb_coll_link link, double chunk_bytes);
double dpb_cost_nvls(int ranks, double bytes, struct dpb_coll_link link);
double dpb_cost_sharp(int ranks, double bytes, struct dpb_coll_link link);
/* `nodes` of `per_node` ranks each, each rank with its own share of the NICs as `between`. */
double dpb_cost_hierarchical(int per_node, int nodes, double bytes, struct dpb_coll_link inside,
                             struct dpb_coll_link between, double overlap);
/* `between` is one NIC of a node's `nics`. */
double dpb_cost_flat_ring(int per_node, int nodes, double bytes, struct dpb_coll_link inside,
                          struct dpb_coll_link between, int nics);
double dpb_cost_lower_bound(int ranks, double bytes, double bytes_per_s);

#ifdef __cplusplus
}
#endif
#endif

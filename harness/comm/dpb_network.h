/* dpb_network.h: how long a collective takes on a network that is described, not there: measured
 * curves where there are some, else closed forms, and always which of the two it was.
 *
 * 1. Measured curves of (bytes, time) for this collective, number of ranks and nodes: between two
 *    points straight in the logarithms; below the smallest constant, or, where that is above 1 MiB
 *    and so no latency, in proportion to the bytes beyond the floor, which is told; above the
 *    largest in proportion to the bytes, which is told (`by`: how far beyond; `below`: how far
 *    below, where a time lies between two that are known, however small the message).
 * 2. Inside a node no curve says anything about another number of ranks (8 V100 of a cube mesh: 85
 *    GB/s with 4 of them, 37 with 5, 46 with 6, 135 with 8). Across nodes one of k' nodes does:
 *    the latency grows with log2 k, the rest as what the flat ring's closed form has for the bytes,
 *    at the share of it that was measured. Told with k / k'.
 * 3. Else the closed forms, at assumed shares of the links' rates, and never below the floor: over
 *    nodes the flat ring or a double tree, 2 (g-1) a + 2 ceil(log2 k) ax + 2 S / 0.85 B, whichever
 *    is faster, as NCCL chooses (its model has the 0.85, src/graph/tuning.cc).
 *
 * Reduce-scatter and all-gather without curves of their own take half of an all-reduce; broadcast
 * and reduce as much as one with S instead of 2 (n-1)/n S; all-to-all inside a node (n-1)/n S over
 * its link, across nodes of g ranks g (n-g)/n S over a node's NICs. */
#ifndef DPB_NETWORK_H
#define DPB_NETWORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dpb_comm.h"
#include "dpb_status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DPB_NETWORK_POINTS 48

struct dpb_network_curve {
    enum dpb_coll_kind kind;
    int ranks, nodes;
    int count;
    double bytes[DPB_NETWORK_POINTS], ns[DPB_NETWORK_POINTS]; /* bytes ascending */
    const char *source;
};

struct dpb_network {
    const char *name;
    int ranks_per_node; /* accelerators of a whole node */
    struct {
        double latency_ns, bytes_per_s; /* per rank and direction; 0: ranks have no link there */
        double share;                   /* of bytes_per_s that a ring reaches */
        double floor_ns;                /* the shortest collective */
    } inside;
    struct {
        double latency_ns, bytes_per_s; /* of one NIC */
        double share;
        double floor_ns; /* of a collective over 2 nodes; it grows with log2 of the nodes */
        int nics;        /* of a whole node */
    } between;
    int nvls_from_ranks; /* all-reduce inside a node, of at least so many ranks; 0: never */
    double nvls_share;   /* of inside.bytes_per_s */
    bool sharp;          /* the switches between nodes add up */
    /* What a collective and compute do to each other (dpb_timeline.h) */
    double compute_slowdown_inside, compute_slowdown_between, slowdown;
    const struct dpb_network_curve *curves;
    int curve_count;
};

/* Where a time comes from, from the best. */
enum dpb_network_origin {
    DPB_ORIGIN_MEASURED,     /* a point of a curve */
    DPB_ORIGIN_INTERPOLATED, /* between two */
    DPB_ORIGIN_EXTRAPOLATED, /* beyond what was measured, `by` so much */
    DPB_ORIGIN_ASSUMED       /* a closed form with assumed shares, or a share of a curve of
                                all-reduces */
};
const char *dpb_network_origin_text(enum dpb_network_origin origin);

struct dpb_network_time {
    double ns;
    double busbw_bytes_per_s;
    enum dpb_network_origin origin;
    double by;    /* extrapolated: bytes or nodes are so many times those measured; else 1 */
    double below; /* extrapolated: the smallest measured size is so many times bytes; else 1 */
    const char *source; /* of the curve, or the closed form's name; static or the network's */
    int curve_nodes;    /* that the curve was measured with; 0: a closed form */
    double compute_slowdown, slowdown;
};

/* DPB_ERR_USAGE, logged with the member and its value. */
dpb_status dpb_network_check(const struct dpb_network *network);

/* The time of a collective over `bytes` (the whole buffer) and `ranks`, the first ranks_per_node of
 * them on the first node and so on. DPB_ERR_USAGE: more than one node and no link between them. */
dpb_status dpb_network_time(const struct dpb_network *network, enum dpb_coll_kind kind, int ranks,
                            double bytes, struct dpb_network_time *time);

#ifdef __cplusplus
}
#endif
#endif

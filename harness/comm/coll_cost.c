#include "dpb_coll_cost.h"

#include <math.h>

/* ceil and floor of log2, exactly. */
static int log2_up(int n)
{
    int log = 0;

    while ((1L << log) < n)
        log++;
    return log;
}

static int log2_down(int n)
{
    return (1L << log2_up(n)) > n ? log2_up(n) - 1 : log2_up(n);
}

double dpb_cost_ring_half(int ranks, double bytes, struct dpb_coll_link link)
{
    return (ranks - 1) * (link.latency_s + bytes / ranks / link.bytes_per_s);
}

double dpb_cost_ring(int ranks, double bytes, struct dpb_coll_link link)
{
    return 2 * dpb_cost_ring_half(ranks, bytes, link);
}

double dpb_cost_recursive_doubling(int ranks, double bytes, struct dpb_coll_link link)
{
    const int steps = log2_down(ranks) + ((1 << log2_down(ranks)) < ranks ? 2 : 0);

    return steps * (link.latency_s + bytes / link.bytes_per_s);
}

double dpb_cost_rabenseifner(int ranks, double bytes, struct dpb_coll_link link)
{
    const int steps = log2_down(ranks), power = 1 << steps;
    const double halves =
            2 * steps * link.latency_s + 2 * (power - 1.0) / power * bytes / link.bytes_per_s;

    return halves + (power < ranks ? 2 * (link.latency_s + bytes / link.bytes_per_s) : 0);
}

double dpb_cost_tree(int ranks, double bytes, struct dpb_coll_link link, double chunk_bytes)
{
    const double chunk = fmin(chunk_bytes, bytes);

    if (ranks < 2)
        return 0;
    return 2 * log2_up(ranks) * (link.latency_s + chunk / link.bytes_per_s) +
           3 * (bytes - chunk) / link.bytes_per_s;
}

double dpb_cost_double_tree(int ranks, double bytes, struct dpb_coll_link link, double chunk_bytes)
{
    const double chunk = fmin(chunk_bytes, bytes / 2);
    const double chunks = fmax(1, ceil(bytes / 2 / chunk_bytes));

    if (ranks < 2)
        return 0;
    return 2 * log2_up(ranks) * (link.latency_s + chunk / link.bytes_per_s) +
           2 * bytes / link.bytes_per_s * (1 - 1 / chunks);
}

double dpb_cost_nvls(int ranks, double bytes, struct dpb_coll_link link)
{
    return ranks < 2 ? 0 : link.latency_s + bytes * (ranks + 1) / ranks / link.bytes_per_s;
}

double dpb_cost_sharp(int ranks, double bytes, struct dpb_coll_link link)
{
    return ranks < 2 ? 0 : link.latency_s + bytes / link.bytes_per_s;
}

double dpb_cost_hierarchical(int per_node, int nodes, double bytes, struct dpb_coll_link inside,
                             struct dpb_coll_link between, double overlap)
{
    const double in = 2 * dpb_cost_ring_half(per_node, bytes, inside);
    const double across = dpb_cost_ring(nodes, bytes / per_node, between);

    return overlap * fmax(in, across) + (1 - overlap) * (in + across);
}

double dpb_cost_flat_ring(int per_node, int nodes, double bytes, struct dpb_coll_link inside,
                          struct dpb_coll_link between, int nics)
{
    const int ranks = per_node * nodes, across = 2 * (nodes - 1), all = 2 * (ranks - 1);
    const double bytes_per_s = fmin(inside.bytes_per_s, nics * between.bytes_per_s);

    return (all - across) * inside.latency_s + across * between.latency_s +
           (double)all / ranks * bytes / bytes_per_s;
}

double dpb_cost_lower_bound(int ranks, double bytes, double bytes_per_s)
{
    return 2 * (ranks - 1.0) / ranks * bytes / bytes_per_s;
}

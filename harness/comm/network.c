#include "dpb_network.h"

#include <math.h>

#include "dpb_coll_cost.h"
#include "dpb_log.h"

const char *dpb_network_origin_text(enum dpb_network_origin origin)
{
    static const char *const text_of[] = {
            [DPB_ORIGIN_MEASURED] = "measured",
            [DPB_ORIGIN_INTERPOLATED] = "interpolated",
            [DPB_ORIGIN_EXTRAPOLATED] = "extrapolated",
            [DPB_ORIGIN_ASSUMED] = "assumed",
    };

    return text_of[origin];
}

/* ---- check ---- */

static dpb_status bad(const struct dpb_network *network, const char *what, double value)
{
    dpb_error("network \"%s\": %s is %g", network->name ? network->name : "?", what, value);
    dpb_log_hint("latencies from 0, rates above 0, shares above 0 and at most 1.6 (NVLink SHARP "
                 "moves more than the link)");
    return DPB_ERR_USAGE;
}

static dpb_status check_curve(const struct dpb_network *network,
                              const struct dpb_network_curve *curve)
{
    if (curve->count < 1 || curve->count > DPB_NETWORK_POINTS)
        return bad(network, "the number of points of a curve", curve->count);
    if (curve->ranks < 2 || curve->nodes < 1)
        return bad(network, "the number of ranks of a curve", curve->ranks);
    for (int i = 0; i < curve->count; i++) {
        if (!(curve->bytes[i] > (i > 0 ? curve->bytes[i - 1] : 0)) || !isfinite(curve->bytes[i]))
            return bad(network, "a size of a curve (they ascend)", curve->bytes[i]);
        if (!(curve->ns[i] > 0) || !isfinite(curve->ns[i]))
            return bad(network, "a time of a curve", curve->ns[i]);
    }
    return DPB_OK;
}

dpb_status dpb_network_check(const struct dpb_network *network)
{
    const struct {
        const char *what;
        double value, least, most;
    } numbers[] = {
            {"ranks per node", network->ranks_per_node, 1, 1e6},
            {"the latency inside a node", network->inside.latency_ns, 0, 1e12},
            {"the rate inside a node", network->inside.bytes_per_s, 0, 1e18},
            {"the share of it", network->inside.share, 1e-6, 1.6},
            {"the floor inside a node", network->inside.floor_ns, 0, 1e12},
            {"the latency between nodes", network->between.latency_ns, 0, 1e12},
            {"the rate of a NIC", network->between.bytes_per_s, 0, 1e18},
            {"the share of it", network->between.share, 1e-6, 1.6},
            {"the floor between nodes", network->between.floor_ns, 0, 1e12},
            {"the number of NICs", network->between.nics, 0, 1e6},
            {"the share that NVLS reaches", network->nvls_share, 0, 1.6},
            {"the slowdown of compute inside a node", network->compute_slowdown_inside, 0, 100},
            {"the slowdown of compute between nodes", network->compute_slowdown_between, 0, 100},
            {"the slowdown of collectives", network->slowdown, 0, 100},
    };

    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (!(numbers[i].value >= numbers[i].least && numbers[i].value <= numbers[i].most))
            return bad(network, numbers[i].what, numbers[i].value);
    for (int c = 0; c < network->curve_count; c++)
        DPB_TRY(check_curve(network, &network->curves[c]));
    return DPB_OK;
}

/* ---- closed forms ---- */

struct shape {
    enum dpb_coll_kind kind;
    int ranks, nodes, per_node; /* per_node: of a full node */
    double bytes;
};

static struct dpb_coll_link inside(const struct dpb_network *network)
{
    return (struct dpb_coll_link){network->inside.latency_ns * 1e-9,
                                  network->inside.bytes_per_s * network->inside.share};
}

/* Ranks that share a node with NICs that are not all theirs (a node that is not full) use them all;
 * a network without a link inside nodes has one rank for each. */
static double flat_ring_ns(const struct dpb_network *network, const struct shape *shape)
{
    const struct dpb_coll_link in =
            network->inside.bytes_per_s > 0 ? inside(network) : (struct dpb_coll_link){0, INFINITY};
    const struct dpb_coll_link nic = {network->between.latency_ns * 1e-9,
                                      network->between.bytes_per_s * network->between.share};
    const double full = (double)shape->ranks / shape->nodes;
    const double steps = 2 * (shape->ranks - 1), across = 2 * (shape->nodes - 1);
    const double rate = fmin(in.bytes_per_s, network->between.nics * nic.bytes_per_s);

    if (full == floor(full))
        return 1e9 * dpb_cost_flat_ring((int)full, shape->nodes, shape->bytes, in, nic,
                                        network->between.nics);
    return 1e9 * ((steps - across) * in.latency_s + across * nic.latency_s +
                  steps / shape->ranks * shape->bytes / rate);
}

/* The shortest collective, of any kind. */
static double floor_of(const struct dpb_network *network, int nodes)
{
    return nodes > 1 ? network->between.floor_ns * (1 + log2(nodes)) / 2 : network->inside.floor_ns;
}

/* Chains inside nodes, a double tree over them: a latency that grows with log2 of the nodes, for
 * rates that are a little below a ring's. */
#define TREE_SHARE 0.85

static double tree_ns(const struct dpb_network *network, const struct shape *shape)
{
    const int full = (shape->ranks + shape->nodes - 1) / shape->nodes;
    const double in = network->inside.bytes_per_s > 0 ? inside(network).bytes_per_s : INFINITY;
    const double nics =
            network->between.nics * network->between.bytes_per_s * network->between.share;

    return 2 * (full - 1) * network->inside.latency_ns +
           2 * ceil(log2(shape->nodes)) * network->between.latency_ns +
           1e9 * 2 * shape->bytes / (TREE_SHARE * fmin(in, nics));
}

static double all_reduce_ns(const struct dpb_network *network, const struct shape *shape,
                            const char **name)
{
    if (shape->nodes > 1) {
        const struct dpb_coll_link nics = {network->between.latency_ns * 1e-9,
                                           network->between.nics * network->between.bytes_per_s *
                                                   network->between.share};
        const double sharp_ns =
                2e9 * dpb_cost_ring_half(shape->per_node, shape->bytes, inside(network)) +
                1e9 * dpb_cost_sharp(shape->nodes, shape->bytes, nics);

        const double ring = flat_ring_ns(network, shape), tree = tree_ns(network, shape);

        if (network->sharp && network->inside.bytes_per_s > 0) {
            *name = "SHARP between nodes";
            return sharp_ns;
        }
        *name = ring <= tree ? "flat ring over nodes" : "double tree over nodes";
        return fmin(ring, tree);
    }
    if (network->nvls_from_ranks > 0 && shape->ranks >= network->nvls_from_ranks) {
        const struct dpb_coll_link link = {network->inside.latency_ns * 1e-9,
                                           network->inside.bytes_per_s * network->nvls_share};
        *name = "NVLS";
        return 1e9 * dpb_cost_nvls(shape->ranks, shape->bytes, link);
    }
    *name = "ring";
    return 1e9 * dpb_cost_ring(shape->ranks, shape->bytes, inside(network));
}

/* What a collective moves, as a share of what an all-reduce of the same buffer does. */
static double share_of_all_reduce(enum dpb_coll_kind kind, int ranks)
{
    return dpb_coll_busbw_factor(kind, ranks) / dpb_coll_busbw_factor(DPB_COLL_ALL_REDUCE, ranks);
}

/* NVLS, SHARP and trees are for all-reduce. */
static double ring_of(const struct dpb_network *network, const struct shape *shape)
{
    return shape->nodes > 1 ? flat_ring_ns(network, shape)
                            : 1e9 * dpb_cost_ring(shape->ranks, shape->bytes, inside(network));
}

/* Across nodes. All g ranks of a node send through its NICs, each g (n-g)/n S bytes of it. */
static double all_to_all_ns(const struct dpb_network *network, const struct shape *shape)
{
    const double n = shape->ranks, g = shape->per_node;
    const double nics =
            network->between.nics * network->between.bytes_per_s * network->between.share;
    const double out_s = g * (n - g) / n * shape->bytes / nics;
    const double in_s = g > 1 && network->inside.bytes_per_s > 0
                                ? (g - 1) / n * shape->bytes / inside(network).bytes_per_s
                                : 0;

    return (g - 1) * network->inside.latency_ns + (shape->nodes - 1) * network->between.latency_ns +
           1e9 * fmax(out_s, in_s);
}

static double assumed_ns(const struct dpb_network *network, const struct shape *shape,
                         const char **name)
{
    const double floor_ns = floor_of(network, shape->nodes);

    if (shape->kind == DPB_COLL_ALL_REDUCE)
        return fmax(floor_ns, all_reduce_ns(network, shape, name));
    if (shape->kind == DPB_COLL_ALL_TO_ALL && shape->nodes > 1) {
        *name = "pairwise over nodes";
        return fmax(floor_ns, all_to_all_ns(network, shape));
    }
    *name = "ring";
    return fmax(floor_ns, ring_of(network, shape) * share_of_all_reduce(shape->kind, shape->ranks));
}

/* ---- curves ---- */

/* Above it, the smallest size that was measured says nothing of latencies. */
#define SMALL_BYTES (1 << 20)

static double latency_of(const struct dpb_network *network, const struct dpb_network_curve *curve)
{
    return curve->bytes[0] <= SMALL_BYTES ? curve->ns[0]
                                          : fmin(curve->ns[0], floor_of(network, curve->nodes));
}

/* Below the smallest size: its time, where that is one of latencies, else what it takes beyond
 * them, in proportion to the bytes. */
static double below_ns(const struct dpb_network *network, const struct dpb_network_curve *curve,
                       double bytes, struct dpb_network_time *time)
{
    const double latency_ns = latency_of(network, curve);

    if (curve->bytes[0] > SMALL_BYTES) {
        time->origin = DPB_ORIGIN_EXTRAPOLATED;
        time->below = curve->bytes[0] / fmax(bytes, 1);
    }
    return latency_ns + (curve->ns[0] - latency_ns) * bytes / curve->bytes[0];
}

static double curve_ns(const struct dpb_network *network, const struct dpb_network_curve *curve,
                       double bytes, struct dpb_network_time *time)
{
    const int last = curve->count - 1;
    int i = 0;

    time->by = time->below = 1;
    time->origin = DPB_ORIGIN_INTERPOLATED;
    if (bytes < curve->bytes[0])
        return below_ns(network, curve, bytes, time);
    if (bytes == curve->bytes[0]) {
        time->origin = DPB_ORIGIN_MEASURED;
        return curve->ns[0];
    }
    if (bytes > curve->bytes[last]) {
        time->origin = DPB_ORIGIN_EXTRAPOLATED;
        time->by = bytes / curve->bytes[last];
        return curve->ns[last] * time->by;
    }
    while (bytes > curve->bytes[i + 1])
        i++;
    if (bytes == curve->bytes[i + 1]) {
        time->origin = DPB_ORIGIN_MEASURED;
        return curve->ns[i + 1];
    }
    return curve->ns[i] *
           pow(curve->ns[i + 1] / curve->ns[i],
               log(bytes / curve->bytes[i]) / log(curve->bytes[i + 1] / curve->bytes[i]));
}

static const struct dpb_network_curve *curve_of(const struct dpb_network *network,
                                                enum dpb_coll_kind kind, int ranks, int nodes)
{
    for (int c = 0; c < network->curve_count; c++) {
        const struct dpb_network_curve *curve = &network->curves[c];

        if (curve->kind == kind && curve->ranks == ranks && curve->nodes == nodes)
            return curve;
    }
    return NULL;
}

/* Of the full nodes that were measured, more than one, the number nearest to `nodes` in its
 * logarithm; of two, the larger. Two nodes say little of more of them (a cluster reached 57 GB/s
 * with 2 nodes and 30 with 4): they are the last choice. */
static const struct dpb_network_curve *nearest_curve(const struct dpb_network *network,
                                                     enum dpb_coll_kind kind, int nodes)
{
    const struct dpb_network_curve *nearest = NULL;
    double least = INFINITY;

    for (int c = 0; c < network->curve_count; c++) {
        const struct dpb_network_curve *curve = &network->curves[c];
        const double away = fabs(log2((double)nodes / curve->nodes)) +
                            (curve->nodes == 2 && nodes > 2 ? 100 : 0);

        if (curve->kind != kind || curve->nodes < 2 ||
            curve->ranks != curve->nodes * network->ranks_per_node)
            continue;
        if (away < least || (away == least && curve->nodes > nearest->nodes)) {
            nearest = curve;
            least = away;
        }
    }
    return nearest;
}

/* What the bytes alone take. */
static double bytes_ns(const struct dpb_network *network, const struct shape *shape)
{
    struct dpb_network at_once = *network;

    at_once.inside.latency_ns = at_once.between.latency_ns = 0;
    return shape->kind == DPB_COLL_ALL_TO_ALL ? all_to_all_ns(&at_once, shape)
                                              : flat_ring_ns(&at_once, shape);
}

/* T(k) = latency (1 + log2 k) / (1 + log2 k') + the rest, as the closed form's time for the bytes
 * grows. */
static double scaled_ns(const struct dpb_network *network, const struct dpb_network_curve *curve,
                        const struct shape *shape, struct dpb_network_time *time)
{
    const struct shape measured = {shape->kind, curve->ranks, curve->nodes, shape->per_node,
                                   shape->bytes};
    const double measured_ns = curve_ns(network, curve, shape->bytes, time);
    const double latency_ns = fmin(latency_of(network, curve), measured_ns);
    const double rest_ns = measured_ns - latency_ns;
    const double growth = /* without bytes there is nothing that grows */
            shape->bytes > 0 ? bytes_ns(network, shape) / bytes_ns(network, &measured) : 1;
    const double further = (double)shape->nodes / curve->nodes;

    time->origin = DPB_ORIGIN_EXTRAPOLATED;
    time->by = fmax(time->by, further > 1 ? further : 1 / further);
    return latency_ns * (1 + log2(shape->nodes)) / (1 + log2(curve->nodes)) + rest_ns * growth;
}

static bool from_curves(const struct dpb_network *network, const struct shape *shape,
                        struct dpb_network_time *time)
{
    const struct dpb_network_curve *curve =
            curve_of(network, shape->kind, shape->ranks, shape->nodes);

    if (curve) {
        time->ns = curve_ns(network, curve, shape->bytes, time);
        time->source = curve->source;
        time->curve_nodes = curve->nodes;
        return true;
    }
    if (shape->nodes < 2 || network->between.bytes_per_s <= 0 || network->between.nics < 1)
        return false;
    curve = nearest_curve(network, shape->kind, shape->nodes);
    if (!curve)
        return false;
    time->ns = scaled_ns(network, curve, shape, time);
    time->source = curve->source;
    time->curve_nodes = curve->nodes;
    return true;
}

/* ---- all of it ---- */

/* Without curves of its own: its share of an all-reduce, if that was measured by a ring; an
 * assumption, and never more than the all-reduce, which does more. What an all-to-all sends between
 * nodes is no share of that. */
static bool from_all_reduce(const struct dpb_network *network, const struct shape *shape,
                            struct dpb_network_time *time)
{
    struct shape all_reduce = *shape;
    const bool has_nvls = shape->nodes == 1 && network->nvls_from_ranks > 0 &&
                          shape->ranks >= network->nvls_from_ranks;

    all_reduce.kind = DPB_COLL_ALL_REDUCE;
    if (shape->kind == DPB_COLL_ALL_REDUCE || has_nvls || network->sharp ||
        (shape->kind == DPB_COLL_ALL_TO_ALL && shape->nodes > 1) ||
        !from_curves(network, &all_reduce, time))
        return false;
    time->ns = fmin(time->ns, fmax(time->ns * share_of_all_reduce(shape->kind, shape->ranks),
                                   floor_of(network, shape->nodes)));
    time->origin = DPB_ORIGIN_ASSUMED;
    return true;
}

/* A collective over nodes occupies accelerators and their links as one inside a node does, where
 * nodes have several: each rank of a ring, tree or hierarchy passes on what its neighbours have. */
static double compute_slowdown(const struct dpb_network *network, const struct shape *shape)
{
    if (shape->nodes == 1)
        return network->compute_slowdown_inside;
    return shape->per_node > 1
                   ? fmax(network->compute_slowdown_inside, network->compute_slowdown_between)
                   : network->compute_slowdown_between;
}

static dpb_status no_link(const struct dpb_network *network, const struct shape *shape)
{
    dpb_error("network \"%s\": %d ranks are on %d nodes, and it has no link %s", network->name,
              shape->ranks, shape->nodes, shape->nodes > 1 ? "between nodes" : "inside nodes");
    dpb_log_hint("give a machine profile with one, or at most %d ranks", network->ranks_per_node);
    return DPB_ERR_USAGE;
}

dpb_status dpb_network_time(const struct dpb_network *network, enum dpb_coll_kind kind, int ranks,
                            double bytes, struct dpb_network_time *time)
{
    const int per_node = network->ranks_per_node;
    const struct shape shape = {kind, ranks, (ranks + per_node - 1) / per_node, per_node, bytes};
    struct dpb_network_time found = {
            .origin = DPB_ORIGIN_ASSUMED, .by = 1, .below = 1, .source = "one rank"};

    if (ranks > 1) {
        if (!from_curves(network, &shape, &found) && !from_all_reduce(network, &shape, &found)) {
            if (shape.nodes > 1 ? network->between.bytes_per_s <= 0 || network->between.nics < 1
                                : network->inside.bytes_per_s <= 0)
                return no_link(network, &shape);
            found.ns = assumed_ns(network, &shape, &found.source);
        }
        found.busbw_bytes_per_s = bytes / found.ns * 1e9 * dpb_coll_busbw_factor(kind, ranks);
        found.compute_slowdown = compute_slowdown(network, &shape);
        found.slowdown = network->slowdown;
    }
    *time = found;
    return DPB_OK;
}

/* link_model.c: what algorithms can do, and wire time of a collective. */
#include "dpb_link_model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "dpb_str.h"

const char *dpb_algorithm_text(enum dpb_algorithm algorithm)
{
    static const char *const text_of[] = {
#define DPB_ALGORITHM_TEXT(name, text, help) text,
            DPB_ALGORITHM_MAP(DPB_ALGORITHM_TEXT)
#undef DPB_ALGORITHM_TEXT
    };
    return (unsigned)algorithm < DPB_ALGORITHM_COUNT ? text_of[algorithm] : "unknown algorithm";
}

bool dpb_algorithm_find(const char *text, enum dpb_algorithm *algorithm)
{
    for (int a = 0; a < DPB_ALGORITHM_COUNT; a++)
        if (strcmp(text, dpb_algorithm_text((enum dpb_algorithm)a)) == 0) {
            *algorithm = (enum dpb_algorithm)a;
            return true;
        }
    return false;
}

/* ---- what there is ---- */

enum ability {
    NEVER,
    POWERS_OF_TWO, /* numbers of ranks */
    ALWAYS
};

static enum ability ability_of(enum dpb_algorithm algorithm, enum dpb_coll_kind kind)
{
    static const unsigned char ability[DPB_ALGORITHM_COUNT][DPB_COLL_COUNT] = {
            [DPB_ALGORITHM_DIRECT] = {[DPB_COLL_REDUCE_SCATTER] = ALWAYS,
                                      [DPB_COLL_ALL_GATHER] = ALWAYS,
                                      [DPB_COLL_REDUCE] = ALWAYS},
            [DPB_ALGORITHM_RING] = {[DPB_COLL_REDUCE_SCATTER] = ALWAYS,
                                    [DPB_COLL_ALL_GATHER] = ALWAYS,
                                    [DPB_COLL_REDUCE] = ALWAYS},
            [DPB_ALGORITHM_RECURSIVE_DOUBLING] = {[DPB_COLL_ALL_GATHER] = POWERS_OF_TWO},
            [DPB_ALGORITHM_HALVING_DOUBLING] = {[DPB_COLL_REDUCE_SCATTER] = POWERS_OF_TWO,
                                                [DPB_COLL_ALL_GATHER] = POWERS_OF_TWO},
            [DPB_ALGORITHM_TREE] = {[DPB_COLL_REDUCE] = ALWAYS},
    };
    if (kind == DPB_COLL_ALL_REDUCE || kind == DPB_COLL_BROADCAST || kind == DPB_COLL_ALL_TO_ALL)
        return ALWAYS;
    return (enum ability)ability[algorithm][kind];
}

static bool is_power_of_two(int ranks)
{
    return (ranks & (ranks - 1)) == 0;
}

static bool is_able(enum dpb_algorithm algorithm, enum dpb_coll_kind kind, int ranks)
{
    enum ability ability = ability_of(algorithm, kind);
    return ability == ALWAYS || (ability == POWERS_OF_TWO && is_power_of_two(ranks));
}

dpb_status dpb_algorithm_check(const struct dpb_algorithm_setup *setup, enum dpb_coll_kind kind,
                               char *why, size_t why_bytes)
{
    const char *name = dpb_algorithm_text(setup->algorithm);
    if (setup->algorithm == DPB_ALGORITHM_HIERARCHICAL && setup->ranks_per_node < 0) {
        snprintf(
                why, why_bytes,
                "algorithm \"%s\" needs nodes of the same size, and they have different numbers of "
                "ranks",
                name);
        return DPB_ERR_USAGE;
    }
    if (setup->algorithm == DPB_ALGORITHM_HIERARCHICAL && setup->ranks_per_node > 0 &&
        setup->ranks % setup->ranks_per_node != 0) {
        snprintf(
                why, why_bytes,
                "algorithm \"%s\" needs nodes of the same size, and %d ranks are no multiple of %d "
                "per node",
                name, setup->ranks, setup->ranks_per_node);
        return DPB_ERR_USAGE;
    }
    if (setup->ranks == 1 || is_able(setup->algorithm, kind, setup->ranks))
        return DPB_OK;
    struct dpb_str able = {0};
    for (int a = 0; a < DPB_ALGORITHM_COUNT; a++)
        if (is_able((enum dpb_algorithm)a, kind, setup->ranks))
            dpb_str_appendf(&able, "%s%s", able.length ? ", " : "",
                            dpb_algorithm_text((enum dpb_algorithm)a));
    snprintf(why, why_bytes, "algorithm \"%s\" has no %s for %s; these have: %s", name,
             dpb_coll_text(kind),
             ability_of(setup->algorithm, kind) == NEVER ? "any number of ranks"
                                                         : "this number of ranks",
             able.text ? able.text : "");
    dpb_str_release(&able);
    return DPB_ERR_UNSUPPORTED;
}

/* ---- time ---- */

/* A number of latencies, and of times the buffer's bytes on the wire after each other. */
struct cost {
    double latencies, bytes;
};

/* Smallest k with 2^k >= ranks. */
static int log2_up(int ranks)
{
    int log2 = 0;
    while ((int64_t)1 << log2 < ranks)
        log2++;
    return log2;
}

static int largest_power(int ranks)
{
    int power = 1;
    while ((int64_t)power * 2 <= ranks)
        power *= 2;
    return power;
}

/* One half of a ring's all-reduce. */
static struct cost ring_half(int ranks, double bytes)
{
    return (struct cost){ranks - 1, (double)(ranks - 1) / ranks * bytes};
}

static struct cost times(struct cost cost, double factor)
{
    return (struct cost){cost.latencies * factor, cost.bytes * factor};
}

static struct cost recursive_cost(enum dpb_algorithm algorithm, int ranks, double bytes)
{
    int members = largest_power(ranks);
    int rounds = log2_up(members);
    struct cost cost = algorithm == DPB_ALGORITHM_RECURSIVE_DOUBLING
                               ? (struct cost){rounds, rounds * bytes}
                               : (struct cost){2 * rounds, 2.0 * (members - 1) / members * bytes};
    if (ranks > members) {
        cost.latencies += 2;
        cost.bytes += 2 * bytes;
    }
    return cost;
}

/* A pipelined tree whose inner nodes receive, or send, the buffer `passes` times. */
static struct cost tree_cost(int ranks, double bytes, int ways, int passes)
{
    double chunk = fmin(bytes, DPB_ALGORITHM_CHUNK_BYTES);
    int rounds = ways * log2_up(ranks);
    return (struct cost){rounds, rounds * chunk + passes * (bytes - chunk)};
}

static struct cost double_tree_cost(int ranks, double bytes)
{
    double chunk = fmin(bytes / 2, DPB_ALGORITHM_CHUNK_BYTES);
    double chunks = fmax(1, ceil(bytes / 2 / DPB_ALGORITHM_CHUNK_BYTES));
    int rounds = 2 * log2_up(ranks);
    return (struct cost){rounds, rounds * chunk + 2 * (1 - 1 / chunks) * bytes};
}

static struct cost all_reduce_cost(const struct dpb_algorithm_setup *setup, double bytes)
{
    int ranks = setup->ranks;
    switch (setup->algorithm) {
    case DPB_ALGORITHM_RECURSIVE_DOUBLING:
    case DPB_ALGORITHM_HALVING_DOUBLING:
        return recursive_cost(setup->algorithm, ranks, bytes);
    case DPB_ALGORITHM_TREE:
        return tree_cost(ranks, bytes, 2, 3);
    case DPB_ALGORITHM_DOUBLE_TREE:
        return double_tree_cost(ranks, bytes);
    case DPB_ALGORITHM_RING:
        return times(ring_half(ranks, bytes), 2);
    case DPB_ALGORITHM_DIRECT:
    case DPB_ALGORITHM_HIERARCHICAL:
    case DPB_ALGORITHM_COUNT:
        break;
    }
    return (struct cost){2, 2.0 * (ranks - 1) / ranks * bytes};
}

static struct cost cost_of(const struct dpb_algorithm_setup *setup, enum dpb_coll_kind kind,
                           double bytes)
{
    int ranks = setup->ranks;
    enum dpb_algorithm algorithm = setup->algorithm;
    bool is_tree = algorithm == DPB_ALGORITHM_TREE;
    double share = (double)(ranks - 1) / ranks;
    switch (kind) {
    case DPB_COLL_ALL_REDUCE:
        return all_reduce_cost(setup, bytes);
    case DPB_COLL_REDUCE:
        return is_tree ? tree_cost(ranks, bytes, 1, 2) : all_reduce_cost(setup, bytes);
    case DPB_COLL_REDUCE_SCATTER:
    case DPB_COLL_ALL_GATHER:
        if (algorithm == DPB_ALGORITHM_RING)
            return ring_half(ranks, bytes);
        if (algorithm == DPB_ALGORITHM_DIRECT)
            return (struct cost){1, share * bytes};
        return (struct cost){log2_up(ranks), share * bytes};
    case DPB_COLL_ALL_TO_ALL:
        return (struct cost){algorithm == DPB_ALGORITHM_RING ? ranks - 1 : 1, share * bytes};
    case DPB_COLL_BROADCAST:
        if (is_tree)
            return tree_cost(ranks, bytes, 1, 2);
        return (struct cost){log2_up(ranks), log2_up(ranks) * bytes};
    case DPB_COLL_COUNT:
        break;
    }
    return (struct cost){0, 0};
}

static double cost_ns(struct cost cost, const struct dpb_link *link)
{
    return cost.latencies * (double)link->latency_ns +
           round(cost.bytes / link->bw_bytes_per_s * 1e9);
}

static double hierarchical_ns(const struct dpb_algorithm_setup *setup, double bytes)
{
    int inside = setup->ranks_per_node > 0 ? setup->ranks_per_node : setup->ranks;
    const struct dpb_link *link = setup->inside.bw_bytes_per_s > 0 ? &setup->inside : &setup->link;
    return cost_ns(times(ring_half(inside, bytes), 2), link) +
           cost_ns(times(ring_half(setup->ranks / inside, bytes / inside), 2), &setup->link);
}

int64_t dpb_setup_wire_ns(const struct dpb_algorithm_setup *setup, enum dpb_coll_kind kind,
                          int64_t bytes)
{
    if (setup->ranks <= 1 || !(setup->link.bw_bytes_per_s > 0))
        return 0;
    bool is_hierarchical =
            setup->algorithm == DPB_ALGORITHM_HIERARCHICAL && kind == DPB_COLL_ALL_REDUCE;
    double ns = is_hierarchical ? hierarchical_ns(setup, (double)bytes)
                                : cost_ns(cost_of(setup, kind, (double)bytes), &setup->link);
    return ns >= 0x1p63 ? INT64_MAX : (int64_t)ns;
}

/* Formulas against numbers worked out by hand. */
#include "dpb_test.h"

#include <math.h>

#include "dpb_link_model.h"

/* 25 Gbit/s is 3.125 byte/ns. */
static const struct dpb_link slow = {3.125e9, 5000};

static void test_wire_ns_by_hand(void **state)
{
    (void)state;
    /* ring, P = 4, 1 MiB: 6 * 5 us + 1.5 * 1048576 / 3.125 = 30000 + 503316.48 */
    assert_int_equal(dpb_link_wire_ns(&slow, DPB_ALGORITHM_RING, DPB_COLL_ALL_REDUCE, 4, 1048576),
                     533316);
    /* direct: 2 * 5 us and the same bytes */
    assert_int_equal(dpb_link_wire_ns(&slow, DPB_ALGORITHM_DIRECT, DPB_COLL_ALL_REDUCE, 4, 1048576),
                     513316);
    /* half of the bytes, half of the latencies: 15000 + 251658.24 */
    assert_int_equal(
            dpb_link_wire_ns(&slow, DPB_ALGORITHM_RING, DPB_COLL_REDUCE_SCATTER, 4, 1048576),
            266658);
    assert_int_equal(dpb_link_wire_ns(&slow, DPB_ALGORITHM_RING, DPB_COLL_ALL_GATHER, 4, 1048576),
                     266658);
    assert_int_equal(dpb_link_wire_ns(&slow, DPB_ALGORITHM_DIRECT, DPB_COLL_ALL_GATHER, 4, 1048576),
                     256658);
    /* all-to-all: a part for every peer, one after the other or at once */
    assert_int_equal(dpb_link_wire_ns(&slow, DPB_ALGORITHM_RING, DPB_COLL_ALL_TO_ALL, 4, 1048576),
                     266658);
    assert_int_equal(dpb_link_wire_ns(&slow, DPB_ALGORITHM_DIRECT, DPB_COLL_ALL_TO_ALL, 4, 1048576),
                     256658);
    /* reduce: a chain for 4 pieces, or two exchanges */
    assert_int_equal(dpb_link_wire_ns(&slow, DPB_ALGORITHM_RING, DPB_COLL_REDUCE, 4, 1048576),
                     533316);
    assert_int_equal(dpb_link_wire_ns(&slow, DPB_ALGORITHM_DIRECT, DPB_COLL_REDUCE, 4, 1048576),
                     513316);
    /* two rounds of 5 us + 335544.32 */
    assert_int_equal(dpb_link_wire_ns(&slow, DPB_ALGORITHM_RING, DPB_COLL_BROADCAST, 4, 1048576),
                     681089);
    /* five ranks need three rounds: 15000 + 1006632.96 */
    assert_int_equal(dpb_link_wire_ns(&slow, DPB_ALGORITHM_DIRECT, DPB_COLL_BROADCAST, 5, 1048576),
                     1021633);
    /* P = 3: share 4/3: 4 * 5000 + 4/3 * 3000 / 3.125 = 20000 + 1280 */
    assert_int_equal(dpb_link_wire_ns(&slow, DPB_ALGORITHM_RING, DPB_COLL_ALL_REDUCE, 3, 3000),
                     21280);
    /* no bytes: the latencies stay */
    assert_int_equal(dpb_link_wire_ns(&slow, DPB_ALGORITHM_RING, DPB_COLL_ALL_REDUCE, 4, 0), 30000);
}

static void test_wire_ns_edges(void **state)
{
    (void)state;
    const struct dpb_link none = {0, 0};
    for (int kind = 0; kind < DPB_COLL_COUNT; kind++) {
        enum dpb_coll_kind k = (enum dpb_coll_kind)kind;
        assert_int_equal(dpb_link_wire_ns(&slow, DPB_ALGORITHM_RING, k, 1, 1 << 20), 0);
        assert_int_equal(dpb_link_wire_ns(&none, DPB_ALGORITHM_RING, k, 4, 1 << 20), 0);
    }
    /* More than 2^31 bytes: P = 2, share 1: 10000 + 4294967296 / 3.125 = 1374389534.72 */
    assert_int_equal(
            dpb_link_wire_ns(&slow, DPB_ALGORITHM_RING, DPB_COLL_ALL_REDUCE, 2, 4294967296),
            1374399535);
    assert_int_equal(
            dpb_link_wire_ns(&slow, DPB_ALGORITHM_RING, DPB_COLL_ALL_REDUCE, 2, 2147483648),
            687204767);
    assert_int_equal(
            dpb_link_wire_ns(&slow, DPB_ALGORITHM_RING, DPB_COLL_ALL_REDUCE, 2, 2147483647),
            687204767);
    /* A link so slow that the time has no 64-bit number of nanoseconds */
    const struct dpb_link snail = {1e-3, 0};
    assert_true(dpb_link_wire_ns(&snail, DPB_ALGORITHM_RING, DPB_COLL_ALL_REDUCE, 2, INT64_MAX) ==
                INT64_MAX);
}

/* Computed apart from this program, by Python formulas of the same sources (ref_model.py of the
 * project's planning data): 5 us, 20e9 byte/s, trees in chunks of 524288 bytes. */
static const struct {
    enum dpb_algorithm algorithm;
    enum dpb_coll_kind kind;
    int ranks;
    int64_t bytes;
    double time_s;
} times[] = {
        {DPB_ALGORITHM_RING, DPB_COLL_ALL_REDUCE, 2, 4096, 1.02048e-05},
        {DPB_ALGORITHM_RING, DPB_COLL_REDUCE_SCATTER, 2, 4096, 5.1024e-06},
        {DPB_ALGORITHM_RECURSIVE_DOUBLING, DPB_COLL_ALL_REDUCE, 2, 4096, 5.2048e-06},
        {DPB_ALGORITHM_HALVING_DOUBLING, DPB_COLL_ALL_REDUCE, 2, 4096, 1.02048e-05},
        {DPB_ALGORITHM_TREE, DPB_COLL_ALL_REDUCE, 2, 4096, 1.04096e-05},
        {DPB_ALGORITHM_DOUBLE_TREE, DPB_COLL_ALL_REDUCE, 2, 4096, 1.02048e-05},
        {DPB_ALGORITHM_RING, DPB_COLL_ALL_REDUCE, 3, 1048576, 8.99050666667e-05},
        {DPB_ALGORITHM_RING, DPB_COLL_REDUCE_SCATTER, 3, 1048576, 4.49525333333e-05},
        {DPB_ALGORITHM_RECURSIVE_DOUBLING, DPB_COLL_ALL_REDUCE, 3, 1048576, 0.0001722864},
        {DPB_ALGORITHM_HALVING_DOUBLING, DPB_COLL_ALL_REDUCE, 3, 1048576, 0.0001772864},
        {DPB_ALGORITHM_TREE, DPB_COLL_ALL_REDUCE, 3, 1048576, 0.0002035008},
        {DPB_ALGORITHM_DOUBLE_TREE, DPB_COLL_ALL_REDUCE, 3, 1048576, 0.0001248576},
        {DPB_ALGORITHM_RING, DPB_COLL_ALL_REDUCE, 8, 4096, 7.03584e-05},
        {DPB_ALGORITHM_RING, DPB_COLL_REDUCE_SCATTER, 8, 4096, 3.51792e-05},
        {DPB_ALGORITHM_RECURSIVE_DOUBLING, DPB_COLL_ALL_REDUCE, 8, 4096, 1.56144e-05},
        {DPB_ALGORITHM_HALVING_DOUBLING, DPB_COLL_ALL_REDUCE, 8, 4096, 3.03584e-05},
        {DPB_ALGORITHM_TREE, DPB_COLL_ALL_REDUCE, 8, 4096, 3.12288e-05},
        {DPB_ALGORITHM_DOUBLE_TREE, DPB_COLL_ALL_REDUCE, 8, 4096, 3.06144e-05},
        {DPB_ALGORITHM_RING, DPB_COLL_ALL_REDUCE, 64, 1, 0.000630000098438},
        {DPB_ALGORITHM_RING, DPB_COLL_REDUCE_SCATTER, 64, 1, 0.000315000049219},
        {DPB_ALGORITHM_RECURSIVE_DOUBLING, DPB_COLL_ALL_REDUCE, 64, 1, 3.00003e-05},
        {DPB_ALGORITHM_HALVING_DOUBLING, DPB_COLL_ALL_REDUCE, 64, 1, 6.00000984375e-05},
        {DPB_ALGORITHM_TREE, DPB_COLL_ALL_REDUCE, 64, 1, 6.00006e-05},
        {DPB_ALGORITHM_DOUBLE_TREE, DPB_COLL_ALL_REDUCE, 64, 1, 6.00003e-05},
        {DPB_ALGORITHM_RING, DPB_COLL_ALL_REDUCE, 64, 1073741824, 0.1063264608},
        {DPB_ALGORITHM_RING, DPB_COLL_REDUCE_SCATTER, 64, 1073741824, 0.0531632304},
        {DPB_ALGORITHM_RECURSIVE_DOUBLING, DPB_COLL_ALL_REDUCE, 64, 1073741824, 0.3221525472},
        {DPB_ALGORITHM_HALVING_DOUBLING, DPB_COLL_ALL_REDUCE, 64, 1073741824, 0.1057564608},
        {DPB_ALGORITHM_TREE, DPB_COLL_ALL_REDUCE, 64, 1073741824, 0.1613572032},
        {DPB_ALGORITHM_DOUBLE_TREE, DPB_COLL_ALL_REDUCE, 64, 1073741824, 0.1076438976},
        {DPB_ALGORITHM_RING, DPB_COLL_ALL_REDUCE, 1000, 1048576, 0.0100947527424},
        {DPB_ALGORITHM_RING, DPB_COLL_REDUCE_SCATTER, 1000, 1048576, 0.0050473763712},
        {DPB_ALGORITHM_RECURSIVE_DOUBLING, DPB_COLL_ALL_REDUCE, 1000, 1048576, 0.0006317168},
        {DPB_ALGORITHM_HALVING_DOUBLING, DPB_COLL_ALL_REDUCE, 1000, 1048576, 0.0003095104},
        {DPB_ALGORITHM_TREE, DPB_COLL_ALL_REDUCE, 1000, 1048576, 0.0007029312},
        {DPB_ALGORITHM_DOUBLE_TREE, DPB_COLL_ALL_REDUCE, 1000, 1048576, 0.000624288},
        {DPB_ALGORITHM_RING, DPB_COLL_ALL_REDUCE, 1000, 1073741824, 0.117256808218},
        {DPB_ALGORITHM_RING, DPB_COLL_REDUCE_SCATTER, 1000, 1073741824, 0.0586284041088},
        {DPB_ALGORITHM_RECURSIVE_DOUBLING, DPB_COLL_ALL_REDUCE, 1000, 1073741824, 0.5906130032},
        {DPB_ALGORITHM_HALVING_DOUBLING, DPB_COLL_ALL_REDUCE, 1000, 1073741824, 0.2146386496},
        {DPB_ALGORITHM_TREE, DPB_COLL_ALL_REDUCE, 1000, 1073741824, 0.1616069184},
        {DPB_ALGORITHM_DOUBLE_TREE, DPB_COLL_ALL_REDUCE, 1000, 1073741824, 0.1078936128},
};

static const struct {
    int ranks, ranks_per_node;
    int64_t bytes;
    struct dpb_link inside, link;
    double time_s;
} node_times[] = {
        {8, 8, 1048576, {3.6e+11, 3000}, {5e+10, 15000}, 4.70972444444e-05},
        {16, 8, 26214400, {3.6e+11, 3000}, {5e+10, 15000}, 0.000264967111111},
        {64, 4, 1073741824, {3.6e+11, 3000}, {5e+10, 15000}, 0.0150082538667},
        {1024, 8, 4294967296, {3.6e+11, 3000}, {5e+10, 15000}, 0.0460373775644},
        {4096, 8, 1048576, {3.6e+11, 3000}, {5e+10, 15000}, 0.0153823298844},
};

static void check_time(const struct dpb_algorithm_setup *setup, enum dpb_coll_kind kind,
                       int64_t bytes, double time_s)
{
    int64_t ns = dpb_setup_wire_ns(setup, kind, bytes);
    if (fabs((double)ns - time_s * 1e9) > 2 + time_s) /* 12 digits */
        fail_msg("%s, %d ranks, %lld bytes: %lld ns, expected %.1f",
                 dpb_algorithm_text(setup->algorithm), setup->ranks, (long long)bytes,
                 (long long)ns, time_s * 1e9);
}

static void test_closed_forms(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
        const struct dpb_algorithm_setup setup = {
                .algorithm = times[i].algorithm, .ranks = times[i].ranks, .link = {20e9, 5000}};
        check_time(&setup, times[i].kind, times[i].bytes, times[i].time_s);
    }
    for (size_t i = 0; i < sizeof(node_times) / sizeof(node_times[0]); i++) {
        const struct dpb_algorithm_setup setup = {.algorithm = DPB_ALGORITHM_HIERARCHICAL,
                                                  .ranks = node_times[i].ranks,
                                                  .ranks_per_node = node_times[i].ranks_per_node,
                                                  .link = node_times[i].link,
                                                  .inside = node_times[i].inside};
        check_time(&setup, DPB_COLL_ALL_REDUCE, node_times[i].bytes, node_times[i].time_s);
    }
}

static void test_other_kinds_by_hand(void **state)
{
    (void)state;
    /* P = 4, 1 MiB, 3.125 byte/ns. Two levels of a tree: 2 * (5000 + 524288 / 3.125), and the
     * other chunk twice through each inner node: 2 * 524288 / 3.125. */
    assert_int_equal(dpb_link_wire_ns(&slow, DPB_ALGORITHM_TREE, DPB_COLL_BROADCAST, 4, 1048576),
                     681089);
    assert_int_equal(dpb_link_wire_ns(&slow, DPB_ALGORITHM_TREE, DPB_COLL_REDUCE, 4, 1048576),
                     681089);
    /* 5 MiB: 10000 + (2 * 524288 + 2 * 9 * 524288) / 3.125 */
    assert_int_equal(dpb_link_wire_ns(&slow, DPB_ALGORITHM_TREE, DPB_COLL_REDUCE, 4, 5242880),
                     3365443);
    /* 2 latencies, 3/4 of the bytes: 10000 + 251658.24 */
    assert_int_equal(dpb_link_wire_ns(&slow, DPB_ALGORITHM_HALVING_DOUBLING,
                                      DPB_COLL_REDUCE_SCATTER, 4, 1048576),
                     261658);
    assert_int_equal(dpb_link_wire_ns(&slow, DPB_ALGORITHM_RECURSIVE_DOUBLING, DPB_COLL_ALL_GATHER,
                                      4, 1048576),
                     261658);
    /* One link for both levels: 2 nodes of 2, both halves of 1/2 and of 1/4, 4 latencies:
     * 20000 + 1048576 / 3.125 + 524288 / 3.125 */
    const struct dpb_algorithm_setup nodes = {
            .algorithm = DPB_ALGORITHM_HIERARCHICAL, .ranks = 4, .ranks_per_node = 2, .link = slow};
    assert_int_equal(dpb_setup_wire_ns(&nodes, DPB_COLL_ALL_REDUCE, 1048576), 523316);
    /* One node: a ring. */
    assert_int_equal(
            dpb_link_wire_ns(&slow, DPB_ALGORITHM_HIERARCHICAL, DPB_COLL_ALL_REDUCE, 4, 1048576),
            dpb_link_wire_ns(&slow, DPB_ALGORITHM_RING, DPB_COLL_ALL_REDUCE, 4, 1048576));
}

static void test_wire_ns_is_monotonic(void **state)
{
    (void)state;
    for (int algorithm = 0; algorithm < DPB_ALGORITHM_COUNT; algorithm++) {
        for (int kind = 0; kind < DPB_COLL_COUNT; kind++) {
            for (int ranks = 2; ranks <= 64; ranks++) {
                int64_t before = -1;
                for (int64_t bytes = 0; bytes < (int64_t)1 << 40; bytes = bytes * 3 + 1) {
                    int64_t ns = dpb_link_wire_ns(&slow, (enum dpb_algorithm)algorithm,
                                                  (enum dpb_coll_kind)kind, ranks, bytes);
                    assert_true(ns >= before);
                    before = ns;
                }
                /* Those of pairs are slower for 3 ranks than for 4. */
                if (algorithm == DPB_ALGORITHM_RECURSIVE_DOUBLING ||
                    algorithm == DPB_ALGORITHM_HALVING_DOUBLING)
                    continue;
                int64_t more = dpb_link_wire_ns(&slow, (enum dpb_algorithm)algorithm,
                                                (enum dpb_coll_kind)kind, ranks + 1, 1 << 20);
                assert_true(more >= dpb_link_wire_ns(&slow, (enum dpb_algorithm)algorithm,
                                                     (enum dpb_coll_kind)kind, ranks, 1 << 20));
            }
        }
    }
}

static void check_shards(int64_t count, int ranks)
{
    int64_t next = 0;
    int64_t each = count / ranks + (count % ranks != 0);
    for (int r = 0; r < ranks; r++) {
        int64_t first;
        int64_t length = dpb_coll_shard(count, ranks, r, &first);
        assert_int_equal(first, next);
        assert_true(length >= 0 && length <= each);
        next += length;
    }
    assert_true(next == count);
}

static void test_shards(void **state)
{
    (void)state;
    int64_t first;
    /* 10 over 4: 3 3 3 1 */
    assert_int_equal(dpb_coll_shard(10, 4, 0, &first), 3);
    assert_int_equal(first, 0);
    assert_int_equal(dpb_coll_shard(10, 4, 3, &first), 1);
    assert_int_equal(first, 9);
    /* 5 over 4: 2 2 1 0; the empty one begins at the end */
    assert_int_equal(dpb_coll_shard(5, 4, 2, &first), 1);
    assert_int_equal(dpb_coll_shard(5, 4, 3, &first), 0);
    assert_int_equal(first, 5);
    /* fewer elements than ranks */
    assert_int_equal(dpb_coll_shard(3, 9, 2, &first), 1);
    assert_int_equal(dpb_coll_shard(3, 9, 8, &first), 0);
    assert_int_equal(first, 3);
    assert_int_equal(dpb_coll_shard(0, 4, 1, &first), 0);
    assert_int_equal(first, 0);
    assert_int_equal(dpb_coll_shard(10, 4, 3, NULL), 1);
    /* beyond 32 bits */
    assert_true(dpb_coll_shard(4294967296, 3, 2, &first) == 1431655764);
    assert_true(first == 2863311532);
    assert_true(dpb_coll_shard(2147483648, 2, 1, &first) == 1073741824);
    assert_true(first == 1073741824);

    static const int64_t counts[] = {0,  1,          3,          47,         48,
                                     63, 2147483647, 2147483648, 4294967296, INT64_MAX};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
        for (int ranks = 1; ranks <= 64; ranks++)
            check_shards(counts[i], ranks);
}

static void test_wire_bytes(void **state)
{
    (void)state;
    /* 10 fp32 over 4 ranks, shards 3 3 3 1. direct, rank 3: 9 contributions, 3 copies of its 1. */
    assert_int_equal(
            dpb_algorithm_wire_bytes(DPB_ALGORITHM_DIRECT, DPB_COLL_ALL_REDUCE, 4, 3, 0, 10, 4),
            (9 + 3) * 4);
    assert_int_equal(
            dpb_algorithm_wire_bytes(DPB_ALGORITHM_DIRECT, DPB_COLL_ALL_REDUCE, 4, 0, 0, 10, 4),
            (7 + 9) * 4);
    /* ring, rank 2: all but its own shard (7), then all but that of rank 3 (9) */
    assert_int_equal(
            dpb_algorithm_wire_bytes(DPB_ALGORITHM_RING, DPB_COLL_ALL_REDUCE, 4, 2, 0, 10, 4),
            (7 + 9) * 4);
    /* reduce to rank 3. direct: rank 0 gives others 7 and the root the sum of its 3; the root gives
     * 9. ring: everything once, but for the root. */
    assert_int_equal(
            dpb_algorithm_wire_bytes(DPB_ALGORITHM_DIRECT, DPB_COLL_REDUCE, 4, 0, 3, 10, 4),
            (7 + 3) * 4);
    assert_int_equal(
            dpb_algorithm_wire_bytes(DPB_ALGORITHM_DIRECT, DPB_COLL_REDUCE, 4, 3, 3, 10, 4), 9 * 4);
    assert_int_equal(dpb_algorithm_wire_bytes(DPB_ALGORITHM_RING, DPB_COLL_REDUCE, 4, 0, 3, 10, 4),
                     10 * 4);
    assert_int_equal(dpb_algorithm_wire_bytes(DPB_ALGORITHM_RING, DPB_COLL_REDUCE, 4, 3, 3, 10, 4),
                     0);
    /* tree over 5 ranks from root 2: distances 0..4 send to 3 1 0 0 0 others */
    static const int sends[] = {3, 1, 0, 0, 0};
    for (int distance = 0; distance < 5; distance++)
        assert_int_equal(dpb_algorithm_wire_bytes(DPB_ALGORITHM_RING, DPB_COLL_BROADCAST, 5,
                                                  (2 + distance) % 5, 2, 10, 8),
                         sends[distance] * 80);

    static const int64_t counts[] = {0, 1, 3, 47, 1000003, 2147483647, 2147483648, 4294967296};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        for (int ranks = 1; ranks <= 64; ranks++) {
            for (int algorithm = 0; algorithm < 2; algorithm++) {
                int64_t total[DPB_COLL_COUNT] = {0};
                for (int r = 0; r < ranks; r++)
                    for (int kind = 0; kind < DPB_COLL_COUNT; kind++)
                        total[kind] += dpb_algorithm_wire_bytes((enum dpb_algorithm)algorithm,
                                                                (enum dpb_coll_kind)kind, ranks, r,
                                                                ranks / 2, counts[i], 8);
                int64_t once = (ranks - 1) * counts[i] * 8;
                assert_true(total[DPB_COLL_ALL_REDUCE] == 2 * once);
                assert_true(total[DPB_COLL_REDUCE_SCATTER] == once);
                assert_true(total[DPB_COLL_ALL_GATHER] == once);
                assert_true(total[DPB_COLL_BROADCAST] == once);
                int64_t root_shard = dpb_coll_shard(counts[i], ranks, ranks / 2, NULL) * 8;
                assert_true(total[DPB_COLL_REDUCE] ==
                            (algorithm == DPB_ALGORITHM_RING || ranks == 1
                                     ? once
                                     : once + counts[i] * 8 - root_shard));
                assert_true(total[DPB_COLL_ALL_TO_ALL] ==
                            (ranks - 1) * (counts[i] / ranks) * ranks * 8);
            }
        }
    }
}

/* All ranks together, in the formulas of the header; the pairs need Q = 2^floor(log2 P). */
static void test_total_bytes(void **state)
{
    (void)state;
    static const int64_t counts[] = {0, 1, 5, 64, 1000, 1000003};
    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++)
        for (int ranks = 2; ranks <= 64; ranks++) {
            int64_t n = counts[c];
            int rounds = (int)floor(log2(ranks));
            int64_t members = (int64_t)1 << rounds;
            const int64_t expected[DPB_ALGORITHM_COUNT] = {
                    [DPB_ALGORITHM_DIRECT] = 2 * (ranks - 1) * n,
                    [DPB_ALGORITHM_RING] = 2 * (ranks - 1) * n,
                    [DPB_ALGORITHM_RECURSIVE_DOUBLING] =
                            members * rounds * n + 2 * (ranks - members) * n,
                    [DPB_ALGORITHM_HALVING_DOUBLING] =
                            2 * (members - 1) * n + 2 * (ranks - members) * n,
                    [DPB_ALGORITHM_TREE] = 2 * (ranks - 1) * n,
                    [DPB_ALGORITHM_DOUBLE_TREE] = 2 * (ranks - 1) * n,
                    [DPB_ALGORITHM_HIERARCHICAL] = 2 * (ranks - 1) * n,
            };
            for (int a = 0; a < DPB_ALGORITHM_COUNT; a++) {
                /* Nodes of any size move as much in total: 2 (g-1) n each, 2 (k-1) n between. */
                for (int each = 1; each <= ranks; each++) {
                    const struct dpb_algorithm_setup setup = {.algorithm = (enum dpb_algorithm)a,
                                                              .ranks = ranks,
                                                              .ranks_per_node = each};
                    int64_t total = 0;
                    if (ranks % each != 0)
                        continue;
                    for (int r = 0; r < ranks; r++)
                        total += dpb_setup_wire_bytes(&setup, DPB_COLL_ALL_REDUCE, r, 0, n, 4);
                    assert_true(total == 4 * expected[a]);
                }
            }
        }
}

/* What each rank sends round a ring: 2 (P-1)/P of the buffer, so never twice the buffer, however
 * many ranks there are. */
static void test_ring_is_independent_of_ranks(void **state)
{
    (void)state;
    const int64_t count = 64 * 63 * 61 * 59;
    double before = 0;
    for (int ranks = 2; ranks <= 64; ranks++) {
        double most = 0;
        for (int r = 0; r < ranks; r++)
            most = fmax(most,
                        (double)dpb_algorithm_wire_bytes(DPB_ALGORITHM_RING, DPB_COLL_ALL_REDUCE,
                                                         ranks, r, 0, count, 4));
        double share = most / (4.0 * (double)count);
        assert_true(fabs(share - 2.0 * (ranks - 1) / ranks) < 1e-5);
        assert_true(share > before && share < 2);
        before = share;
    }
    assert_true(before > 1.96);
}

static void test_busbw_factor(void **state)
{
    (void)state;
    assert_true(dpb_coll_busbw_factor(DPB_COLL_ALL_REDUCE, 4) == 1.5);
    assert_true(dpb_coll_busbw_factor(DPB_COLL_ALL_REDUCE, 2) == 1.0);
    assert_true(dpb_coll_busbw_factor(DPB_COLL_REDUCE_SCATTER, 4) == 0.75);
    assert_true(dpb_coll_busbw_factor(DPB_COLL_ALL_GATHER, 8) == 0.875);
    assert_true(dpb_coll_busbw_factor(DPB_COLL_BROADCAST, 7) == 1.0);
    assert_true(dpb_coll_busbw_factor(DPB_COLL_REDUCE, 7) == 1.0);
    assert_true(dpb_coll_busbw_factor(DPB_COLL_ALL_TO_ALL, 4) == 0.75);
    assert_true(isnan(dpb_coll_busbw_factor(DPB_COLL_ALL_REDUCE, 1)));
    assert_true(isnan(dpb_coll_busbw_factor(DPB_COLL_REDUCE_SCATTER, 1)));
    assert_true(isnan(dpb_coll_busbw_factor(DPB_COLL_ALL_GATHER, 1)));
    assert_true(dpb_coll_busbw_factor(DPB_COLL_BROADCAST, 1) == 1.0);
}

static void test_texts(void **state)
{
    (void)state;
    assert_string_equal(dpb_coll_text(DPB_COLL_REDUCE), "reduce");
    assert_string_equal(dpb_coll_text(DPB_COLL_ALL_REDUCE), "all-reduce");
    assert_string_equal(dpb_coll_text(DPB_COLL_BROADCAST), "broadcast");
    assert_string_equal(dpb_coll_text(DPB_COLL_ALL_TO_ALL), "all-to-all");
    assert_string_equal(dpb_coll_text((enum dpb_coll_kind)99), "unknown collective");
}

static void test_algorithm_names(void **state)
{
    (void)state;
    enum dpb_algorithm algorithm;
    for (int a = 0; a < DPB_ALGORITHM_COUNT; a++) {
        assert_true(dpb_algorithm_find(dpb_algorithm_text((enum dpb_algorithm)a), &algorithm));
        assert_int_equal(algorithm, a);
    }
    assert_string_equal(dpb_algorithm_text(DPB_ALGORITHM_HALVING_DOUBLING), "halving-doubling");
    algorithm = DPB_ALGORITHM_TREE;
    assert_false(dpb_algorithm_find("", &algorithm));
    assert_false(dpb_algorithm_find("carrier-pigeon", &algorithm));
    assert_int_equal(algorithm, DPB_ALGORITHM_TREE);
    assert_string_equal(dpb_algorithm_text((enum dpb_algorithm)99), "unknown algorithm");
}

static void test_classes(void **state)
{
    (void)state;
    static const struct {
        bool reduces, has_root;
    } expected[DPB_COLL_COUNT] = {
            [DPB_COLL_ALL_REDUCE] = {true, false},
            [DPB_COLL_REDUCE_SCATTER] = {true, false},
            [DPB_COLL_BROADCAST] = {false, true},
            [DPB_COLL_REDUCE] = {true, true},
    };
    for (int kind = 0; kind < DPB_COLL_COUNT; kind++) {
        assert_int_equal(dpb_coll_reduces((enum dpb_coll_kind)kind), expected[kind].reduces);
        assert_int_equal(dpb_coll_has_root((enum dpb_coll_kind)kind), expected[kind].has_root);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_wire_ns_by_hand),
            cmocka_unit_test(test_wire_ns_edges),
            cmocka_unit_test(test_closed_forms),
            cmocka_unit_test(test_other_kinds_by_hand),
            cmocka_unit_test(test_wire_ns_is_monotonic),
            cmocka_unit_test(test_shards),
            cmocka_unit_test(test_wire_bytes),
            cmocka_unit_test(test_total_bytes),
            cmocka_unit_test(test_ring_is_independent_of_ranks),
            cmocka_unit_test(test_busbw_factor),
            cmocka_unit_test(test_texts),
            cmocka_unit_test(test_algorithm_names),
            cmocka_unit_test(test_classes),
    };
    return DPB_RUN_TESTS(tests);
}

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

static void test_wire_ns_is_monotonic(void **state)
{
    (void)state;
    for (int algorithm = 0; algorithm < 2; algorithm++) {
        for (int kind = 0; kind < DPB_COLL_COUNT; kind++) {
            for (int ranks = 2; ranks <= 64; ranks++) {
                int64_t before = -1;
                for (int64_t bytes = 0; bytes < (int64_t)1 << 40; bytes = bytes * 3 + 1) {
                    int64_t ns = dpb_link_wire_ns(&slow, (enum dpb_algorithm)algorithm,
                                                  (enum dpb_coll_kind)kind, ranks, bytes);
                    assert_true(ns >= before);
                    before = ns;
                }
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
            cmocka_unit_test(test_wire_ns_is_monotonic),
            cmocka_unit_test(test_shards),
            cmocka_unit_test(test_wire_bytes),
            cmocka_unit_test(test_busbw_factor),
            cmocka_unit_test(test_texts),
            cmocka_unit_test(test_classes),
    };
    return DPB_RUN_TESTS(tests);
}

#include "dpb_test.h"

#include <math.h>
#include <stdbool.h>

#include "dpb_coll_cost.h"
#include "dpb_network.h"

#define GIB (1024.0 * 1024 * 1024)
#define MIB (1024.0 * 1024)

/* 8 accelerators with 300 GB/s inside a node, 8 NICs of 50 GB/s each. */
static const struct dpb_network plain = {
        .name = "plain",
        .ranks_per_node = 8,
        .inside = {3000, 300e9, 0.8, 45000},
        .between = {15000, 50e9, 0.73, 60000, 8},
        .compute_slowdown_inside = 0.15,
        .compute_slowdown_between = 0.02,
        .slowdown = 0.1,
};

static struct dpb_network_time time_of(const struct dpb_network *network, int ranks, double bytes)
{
    struct dpb_network_time time = {0};

    assert_int_equal(dpb_network_check(network), DPB_OK);
    assert_int_equal(dpb_network_time(network, DPB_COLL_ALL_REDUCE, ranks, bytes, &time), DPB_OK);
    return time;
}

static void assert_near(double found, double expected)
{
    if (!(fabs(found - expected) <= 1e-9 * fabs(expected)))
        fail_msg("%.12g, not %.12g", found, expected);
}

/* ---- without curves ---- */

static void test_closed_forms(void **state)
{
    const struct dpb_coll_link inside = {3e-6, 240e9}, nic = {15e-6, 36.5e9};
    struct dpb_network_time time = time_of(&plain, 8, GIB);

    (void)state;
    assert_near(time.ns, 1e9 * dpb_cost_ring(8, GIB, inside));
    assert_int_equal(time.origin, DPB_ORIGIN_ASSUMED);
    assert_near(time.compute_slowdown, 0.15);
    time = time_of(&plain, 32, GIB);
    assert_near(time.ns, 1e9 * dpb_cost_flat_ring(8, 4, GIB, inside, nic, 8));
    assert_near(time.compute_slowdown, 0.15); /* it goes inside nodes, too */
    struct dpb_network alone = plain;         /* one accelerator in a node */
    alone.ranks_per_node = 1;
    assert_near(time_of(&alone, 4, GIB).compute_slowdown, 0.02);
    time = time_of(&plain, 8, 4);
    assert_near(time.ns, 45000);
    time = time_of(&plain, 1, GIB);
    assert_near(time.ns + 1, 1);
}

static void test_floor_of_every_kind_grows_with_nodes(void **state)
{
    static const enum dpb_coll_kind kinds[] = {DPB_COLL_ALL_REDUCE, DPB_COLL_REDUCE_SCATTER,
                                               DPB_COLL_ALL_GATHER, DPB_COLL_BROADCAST,
                                               DPB_COLL_REDUCE,     DPB_COLL_ALL_TO_ALL};
    const struct dpb_network_curve small = {DPB_COLL_ALL_REDUCE, 128, 16, 1, {4}, {200000}, "test"};
    struct dpb_network quick = plain;

    (void)state;
    quick.inside.latency_ns = quick.between.latency_ns = 0;
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        struct dpb_network_time time;

        assert_int_equal(dpb_network_time(&quick, kinds[k], 16, 4, &time), DPB_OK);
        assert_near(time.ns, 60000);
        assert_int_equal(dpb_network_time(&quick, kinds[k], 128, 4, &time), DPB_OK);
        assert_near(time.ns, 60000 * 2.5);
    }
    /* Nor is a part of a measured all-reduce shorter. */
    quick.curves = &small;
    quick.curve_count = 1;
    for (int k = 1; k <= 2; k++) {
        struct dpb_network_time time;

        assert_int_equal(dpb_network_time(&quick, kinds[k], 128, 4, &time), DPB_OK);
        assert_near(time.ns, 60000 * 2.5);
    }
}

static void test_trees_over_many_nodes(void **state)
{
    const struct dpb_coll_link inside = {3e-6, 240e9}, nic = {15e-6, 36.5e9};
    struct dpb_network_time time = time_of(&plain, 1024, 25 * MIB);

    (void)state;
    /* 128 nodes: 7 steps up and down, not 254 between nodes. */
    assert_near(time.ns, 2 * 7 * 3000 + 2 * 7 * 15000 + 2 * 25 * MIB / (0.85 * 240));
    assert_string_equal(time.source, "double tree over nodes");
    assert_true(time.ns < 1e9 * dpb_cost_flat_ring(8, 128, 25 * MIB, inside, nic, 8));
    time = time_of(&plain, 32, GIB);
    assert_string_equal(time.source, "flat ring over nodes");
    /* reduce-scatters have rings only */
    assert_int_equal(dpb_network_time(&plain, DPB_COLL_REDUCE_SCATTER, 1024, 25 * MIB, &time),
                     DPB_OK);
    assert_near(time.ns, 0.5e9 * dpb_cost_flat_ring(8, 128, 25 * MIB, inside, nic, 8));
}

static void test_other_kinds_move_their_share(void **state)
{
    struct dpb_network_time half, all = time_of(&plain, 8, GIB);

    (void)state;
    assert_int_equal(dpb_network_time(&plain, DPB_COLL_ALL_GATHER, 8, GIB, &half), DPB_OK);
    assert_near(half.ns, all.ns / 2);
    assert_near(half.busbw_bytes_per_s, all.busbw_bytes_per_s);
}

static void test_nvls_begins_where_it_does(void **state)
{
    struct dpb_network nvls = plain;
    struct dpb_network_time half;

    (void)state;
    nvls.nvls_from_ranks = 5;
    nvls.nvls_share = 1.0;
    assert_near(time_of(&nvls, 4, GIB).ns, time_of(&plain, 4, GIB).ns);
    assert_true(time_of(&nvls, 5, GIB).ns < time_of(&plain, 5, GIB).ns);
    /* all-reduce only */
    assert_int_equal(dpb_network_time(&nvls, DPB_COLL_ALL_GATHER, 8, GIB, &half), DPB_OK);
    assert_near(half.ns, time_of(&plain, 8, GIB).ns / 2);
}

static void test_every_input_moves_the_time(void **state)
{
    struct dpb_network better = plain;

    (void)state;
    better.inside.bytes_per_s *= 2;
    assert_true(time_of(&better, 8, GIB).ns < time_of(&plain, 8, GIB).ns);
    better = plain;
    better.inside.latency_ns /= 2;
    assert_true(time_of(&better, 8, 10 * MIB).ns < time_of(&plain, 8, 10 * MIB).ns);
    better = plain;
    better.between.bytes_per_s /= 8;
    assert_true(time_of(&better, 16, GIB).ns > time_of(&plain, 16, GIB).ns);
    better = plain;
    better.between.nics = 1;
    assert_true(time_of(&better, 16, GIB).ns > time_of(&plain, 16, GIB).ns);
    better = plain;
    better.between.floor_ns *= 2;
    assert_true(time_of(&better, 16, 4).ns > time_of(&plain, 16, 4).ns);
}

static void test_refuses(void **state)
{
    struct dpb_network bad = plain;
    struct dpb_network_time time;

    (void)state;
    bad.inside.share = 0;
    assert_int_equal(dpb_network_check(&bad), DPB_ERR_USAGE);
    bad = plain;
    bad.between.latency_ns = NAN;
    assert_int_equal(dpb_network_check(&bad), DPB_ERR_USAGE);
    bad = plain;
    bad.between.nics = 0;
    assert_int_equal(dpb_network_check(&bad), DPB_OK);
    assert_int_equal(dpb_network_time(&bad, DPB_COLL_ALL_REDUCE, 9, GIB, &time), DPB_ERR_USAGE);
}

/* ---- with curves ---- */

static void test_not_smooth_over_ranks_of_a_node(void **state)
{
    /* 8 V100 of a cube mesh, 1 GiB; github.com/VIA-Research/vTrain, trace/v100. */
    const double busbw[] = {0, 0, 22.55, 45.14, 85.36, 37.17, 45.73, 86.96, 134.52};
    struct dpb_network_curve curve[5];
    struct dpb_network mesh = plain;
    int count = 0;

    (void)state;
    for (int n = 4; n <= 8; n++)
        curve[count++] = (struct dpb_network_curve){
                .kind = DPB_COLL_ALL_REDUCE,
                .ranks = n,
                .nodes = 1,
                .count = 1,
                .bytes = {GIB},
                .ns = {GIB / (busbw[n] * 1e9) * 2 * (n - 1) / n * 1e9},
                .source = "vTrain",
        };
    mesh.curves = curve;
    mesh.curve_count = count;
    for (int n = 4; n <= 8; n++) {
        const struct dpb_network_time time = time_of(&mesh, n, GIB);
        assert_near(time.busbw_bytes_per_s, busbw[n] * 1e9);
        assert_int_equal(time.origin, DPB_ORIGIN_MEASURED);
    }
    /* nothing is said of 3 by what was measured with 4 */
    assert_int_equal(time_of(&mesh, 3, GIB).origin, DPB_ORIGIN_ASSUMED);
    const struct dpb_network_time beyond = time_of(&mesh, 5, 4 * GIB);
    assert_int_equal(beyond.origin, DPB_ORIGIN_EXTRAPOLATED);
    assert_near(beyond.by, 4);
    assert_near(beyond.busbw_bytes_per_s, 37.17e9);
}

static struct dpb_network_curve nodes_curve(int nodes, double busbw)
{
    const int n = 8 * nodes;

    return (struct dpb_network_curve){
            .kind = DPB_COLL_ALL_REDUCE,
            .ranks = n,
            .nodes = nodes,
            .count = 2,
            .bytes = {1024, GIB},
            .ns = {100000, GIB / busbw * 2 * (n - 1) / n * 1e9},
            .source = "NVIDIA/nccl#527",
    };
}

static void test_two_nodes_say_little_of_more(void **state)
{
    /* p4d of AWS, 1 GiB: 57.17 GB/s with 2 nodes, 31.77 with 3, 29.61 with 4 (NVIDIA/nccl#527). */
    const struct dpb_network_curve curves[] = {nodes_curve(2, 57.17e9), nodes_curve(4, 29.61e9)};
    struct dpb_network p4d = plain;

    (void)state;
    p4d.curves = curves;
    p4d.curve_count = 1;
    struct dpb_network_time eight = time_of(&p4d, 64, GIB);
    assert_int_equal(eight.origin, DPB_ORIGIN_EXTRAPOLATED);
    assert_near(eight.by, 4); /* eight nodes from two: whoever reads it is warned */
    p4d.curve_count = 2;
    eight = time_of(&p4d, 64, GIB);
    assert_near(eight.by, 2); /* from four */
    assert_true(fabs(eight.busbw_bytes_per_s / 29.61e9 - 1) < 0.05);
    /* three: from four, not from two */
    assert_true(fabs(time_of(&p4d, 24, GIB).busbw_bytes_per_s / 31.77e9 - 1) < 0.1);
}

/* One large size says how fast the links are; nothing of latencies. */
static void test_one_large_size_is_no_latency(void **state)
{
    const struct dpb_network_curve curve = {
            .kind = DPB_COLL_ALL_REDUCE,
            .ranks = 16,
            .nodes = 2,
            .count = 1,
            .bytes = {GIB},
            .ns = {35e6},
            .source = "NVIDIA/nccl#527",
    };
    struct dpb_network p4d = plain;

    (void)state;
    p4d.curves = &curve;
    p4d.curve_count = 1;
    assert_int_equal(time_of(&p4d, 16, GIB).origin, DPB_ORIGIN_MEASURED);
    const struct dpb_network_time small = time_of(&p4d, 16, GIB / 64);
    assert_int_equal(small.origin, DPB_ORIGIN_EXTRAPOLATED);
    assert_near(small.by, 1); /* nothing is beyond what was measured */
    assert_near(small.below, 64);
    assert_near(time_of(&p4d, 32, 4).by, 2); /* nodes only */
    assert_near(time_of(&p4d, 32, 2 * GIB).below, 1);
    assert_near(small.ns, 60000 + (35e6 - 60000) / 64); /* beyond the floor of 2 nodes */
    /* 4 nodes: floor (1 + 2) / 2, and the rest as the ring grows */
    assert_true(time_of(&p4d, 32, GIB / 64).ns < 0.05 * time_of(&p4d, 32, GIB).ns);
}

static void test_latency_grows_with_the_logarithm_of_nodes(void **state)
{
    /* 4 nodes: 391 us for 2 MiB, 350 us for the smallest size. A ring of 1024 ranks would have
     * hundreds of times its latency; what is measured there is a tree. */
    const struct dpb_network_curve curve = {
            .kind = DPB_COLL_ALL_REDUCE,
            .ranks = 32,
            .nodes = 4,
            .count = 2,
            .bytes = {1024, 2 * MIB},
            .ns = {350000, 391000},
            .source = "B200",
    };
    struct dpb_network four = plain;

    (void)state;
    four.curves = &curve;
    four.curve_count = 1;
    const struct dpb_network_time wide = time_of(&four, 1024, 2 * MIB);
    assert_near(wide.ns, 350000 * 8.0 / 3 + 41000 * (1023.0 / 1024) / (31.0 / 32));
    assert_int_equal(wide.curve_nodes, 4);
    assert_int_equal(time_of(&plain, 32, MIB).curve_nodes, 0);
}

/* As between ranks that only meet. */
static void test_no_bytes_take_a_time(void **state)
{
    static const struct dpb_network_curve curve = {
            .kind = DPB_COLL_ALL_REDUCE,
            .ranks = 16,
            .nodes = 2,
            .count = 2,
            .bytes = {1024, MIB},
            .ns = {60000, 200000},
            .source = "two sizes",
    };
    struct dpb_network measured = plain;

    (void)state;
    measured.curves = &curve;
    measured.curve_count = 1;
    assert_near(time_of(&measured, 16, 0).ns, 60000);
    assert_near(time_of(&measured, 32, 0).ns, 60000 * 3.0 / 2);
    assert_near(time_of(&measured, 32, 0).busbw_bytes_per_s + 1, 1);
}

static void test_all_to_all_shares_the_nics_of_a_node(void **state)
{
    struct dpb_network_time time;

    (void)state;
    /* 8 ranks of a node send half of their buffer each through 8 NICs at 36.5 GB/s. */
    assert_int_equal(dpb_network_time(&plain, DPB_COLL_ALL_TO_ALL, 16, GIB, &time), DPB_OK);
    assert_near(time.ns, 7 * 3000 + 15000 + 8 * 0.5 * GIB / (8 * 36.5));
    /* curves of all-reduces say nothing of it */
    const struct dpb_network_curve curve = nodes_curve(2, 57.17e9);
    struct dpb_network measured = plain;
    struct dpb_network_time same;
    measured.curves = &curve;
    measured.curve_count = 1;
    assert_int_equal(dpb_network_time(&measured, DPB_COLL_ALL_TO_ALL, 16, GIB, &same), DPB_OK);
    assert_near(same.ns, time.ns);
    /* inside a node over its link */
    assert_int_equal(dpb_network_time(&plain, DPB_COLL_ALL_TO_ALL, 8, GIB, &time), DPB_OK);
    assert_near(time.ns, 7 * (3000 + GIB / 8 / 240));
}

static void test_parts_of_a_measured_all_reduce(void **state)
{
    /* A floor that was assumed too high: no part takes longer than the whole. */
    const struct dpb_network_curve curve = {
            .kind = DPB_COLL_ALL_REDUCE,
            .ranks = 8,
            .nodes = 1,
            .count = 2,
            .bytes = {32768, GIB},
            .ns = {40000, 10e6},
            .source = "A100",
    };
    struct dpb_network measured = plain;
    struct dpb_network_time half;

    (void)state;
    measured.curves = &curve;
    measured.curve_count = 1;
    assert_int_equal(dpb_network_time(&measured, DPB_COLL_REDUCE_SCATTER, 8, 32768, &half), DPB_OK);
    assert_near(half.ns, 40000);
    assert_int_equal(dpb_network_time(&measured, DPB_COLL_REDUCE_SCATTER, 8, GIB, &half), DPB_OK);
    assert_near(half.ns, 5e6);
    /* It was not measured. */
    assert_int_equal(half.origin, DPB_ORIGIN_ASSUMED);
    assert_string_equal(half.source, "A100");
}

/* ---- measured curves, each point predicted by the others ---- */

#define SYSTEMS_MAX 8

struct systems {
    struct dpb_network_curve curve[SYSTEMS_MAX];
    char name[SYSTEMS_MAX][160];
    int count;
};

static void systems_read(struct systems *systems)
{
    FILE *file = fopen(TEST_DATA "/measured_allreduce.csv", "r");
    char line[512], name[160];

    assert_non_null(file);
    assert_non_null(fgets(line, sizeof(line), file));
    while (fgets(line, sizeof(line), file)) {
        const char *at = strchr(line, ',');
        int ranks, nodes;
        double bytes, us;

        assert_non_null(at);
        snprintf(name, sizeof(name), "%.*s", (int)(at - line), line);
        assert_int_equal(sscanf(at, ",%d,%d,%lf,%lf", &ranks, &nodes, &bytes, &us), 4);
        if (systems->count == 0 || strcmp(name, systems->name[systems->count - 1]) != 0) {
            assert_true(systems->count < SYSTEMS_MAX);
            snprintf(systems->name[systems->count++], sizeof(name), "%s", name);
        }
        struct dpb_network_curve *curve = &systems->curve[systems->count - 1];
        curve->kind = DPB_COLL_ALL_REDUCE;
        curve->ranks = ranks;
        curve->nodes = nodes;
        curve->bytes[curve->count] = bytes;
        curve->ns[curve->count++] = us * 1000;
    }
    fclose(file);
}

static int by_value(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

static void test_leave_one_out(void **state)
{
    struct systems systems = {.count = 0};

    (void)state;
    systems_read(&systems);
    assert_int_equal(systems.count, 5);
    for (int s = 0; s < systems.count; s++) {
        const struct dpb_network_curve *whole = &systems.curve[s];
        double error[DPB_NETWORK_POINTS];
        int errors = 0;

        for (int out = 1; out < whole->count - 1; out++) {
            struct dpb_network_curve rest = *whole;
            struct dpb_network network = plain;

            rest.count--;
            for (int i = out; i < rest.count; i++) {
                rest.bytes[i] = whole->bytes[i + 1];
                rest.ns[i] = whole->ns[i + 1];
            }
            network.curves = &rest;
            network.curve_count = 1;
            const struct dpb_network_time time = time_of(&network, whole->ranks, whole->bytes[out]);
            assert_int_equal(time.origin, DPB_ORIGIN_INTERPOLATED);
            error[errors++] = fabs(time.ns / whole->ns[out] - 1);
        }
        qsort(error, (size_t)errors, sizeof(*error), by_value);
        if (!(error[errors / 2] <= 0.10))
            fail_msg("%s: median error %.1f %%", systems.name[s], 100 * error[errors / 2]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_closed_forms),
            cmocka_unit_test(test_floor_of_every_kind_grows_with_nodes),
            cmocka_unit_test(test_trees_over_many_nodes),
            cmocka_unit_test(test_other_kinds_move_their_share),
            cmocka_unit_test(test_nvls_begins_where_it_does),
            cmocka_unit_test(test_every_input_moves_the_time),
            cmocka_unit_test(test_refuses),
            cmocka_unit_test(test_not_smooth_over_ranks_of_a_node),
            cmocka_unit_test(test_two_nodes_say_little_of_more),
            cmocka_unit_test(test_one_large_size_is_no_latency),
            cmocka_unit_test(test_latency_grows_with_the_logarithm_of_nodes),
            cmocka_unit_test(test_no_bytes_take_a_time),
            cmocka_unit_test(test_all_to_all_shares_the_nics_of_a_node),
            cmocka_unit_test(test_parts_of_a_measured_all_reduce),
            cmocka_unit_test(test_leave_one_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

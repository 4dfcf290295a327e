/* dpbench comm: sizes, the known values and their check, the table and the CSV. */
#include "dpb_test.h"

#include <math.h>

#include "../comm_bench_levels.h"
#include "../comm_bench_values.h"
#include "dpb_comm_bench.h"
#include "registry_for_tests.h"

/* ---- sizes ---- */

static void check_sizes(const char *text, const int64_t *expected, size_t count)
{
    struct dpb_comm_sizes sizes = {0};
    assert_int_equal(dpb_comm_sizes_parse(text, &sizes, NULL), DPB_OK);
    assert_int_equal(sizes.count, count);
    for (size_t i = 0; i < count; i++)
        assert_true(sizes.bytes[i] == expected[i]);
    dpb_comm_sizes_release(&sizes);
    assert_null(sizes.bytes);
}

#define SIZES(text, ...)                                                                           \
    do {                                                                                           \
        const int64_t expected_[] = {__VA_ARGS__};                                                 \
        check_sizes(text, expected_, sizeof(expected_) / sizeof(expected_[0]));                    \
    } while (0)

static void test_sizes(void **state)
{
    (void)state;
    SIZES("3MB", 3000000);
    SIZES("8B..128B:x4", 8, 32, 128);
    SIZES("8B..127B:x4", 8, 32);
    SIZES("1KiB..4KiB", 1024, 2048, 4096);
    SIZES("1MiB..2MiB:+512KiB", 1048576, 1572864, 2097152);
    SIZES("64B..64B:x2", 64);
    /* what lies beyond the largest number ends a range */
    SIZES("4611686018427387904B..9000000000000000000B:x4", INT64_C(4611686018427387904));
}

static void test_wrong_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *text, *why;
    } wrong[] = {
            {"0B", "at least 1B"},
            {"-4B", ""},
            {"8Q", "unit"},
            {"8B..4B", "from the smaller"},
            {"8B..1KiB:x1", "at least 2"},
            {"8B..1KiB:x-2", "at least 2"},
            {"8B..1KiB:4", "factor"},
            {"8B..1KiB:+0B", "at least 1B"},
            {"1KiB:x2", "needs a range"},
            {"..", ""},
            {"8B..", ""},
            {"..8B", ""},
            {"8B..1KiB..2KiB", ""},
            {"1B..2000B:+1B", "more than 1000"},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct dpb_comm_sizes sizes = {0};
        char why[256] = "";
        assert_int_equal(dpb_comm_sizes_parse(wrong[i].text, &sizes, why), DPB_ERR_USAGE);
        assert_true(why[0] != '\0');
        assert_non_null(strstr(why, wrong[i].why));
        dpb_comm_sizes_release(&sizes);
    }
}

static void test_a_size_twice(void **state)
{
    (void)state;
    struct dpb_comm_sizes sizes = {0};
    char why[256];
    assert_int_equal(dpb_comm_sizes_parse("1KiB..4KiB", &sizes, why), DPB_OK);
    assert_int_equal(dpb_comm_sizes_parse("2048B", &sizes, why), DPB_ERR_USAGE);
    assert_non_null(strstr(why, "twice"));
    dpb_comm_sizes_release(&sizes);
}

/* ---- known values ---- */

enum {
    RANKS = 3,
    COUNT = 33 /* of 3 ranks: shards and parts of 11 */
};

/* A collective by its definition, on int32. */
static void reference(const struct dpb_coll *coll, int32_t in[RANKS][COUNT],
                      int32_t out[RANKS][COUNT])
{
    const int part = COUNT / RANKS;
    memcpy(out, in, sizeof(int32_t[RANKS][COUNT]));
    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < COUNT; i++) {
            int sum = in[0][i] + in[1][i] + in[2][i];
            bool own = i / part == r;
            switch (coll->kind) {
            case DPB_COLL_ALL_REDUCE:
                out[r][i] = sum;
                break;
            case DPB_COLL_REDUCE_SCATTER:
                out[r][i] = own ? sum : in[r][i];
                break;
            case DPB_COLL_REDUCE:
                out[r][i] = r == coll->root ? sum : in[r][i];
                break;
            case DPB_COLL_ALL_GATHER:
                out[r][i] = in[i / part][i];
                break;
            case DPB_COLL_BROADCAST:
                out[r][i] = in[coll->root][i];
                break;
            case DPB_COLL_ALL_TO_ALL:
                out[r][i] = in[i / part][r * part + i % part];
                break;
            case DPB_COLL_COUNT:
                break;
            }
        }
}

/* The element of rank r that must be right, for the collectives that define few. */
static int defined_element(const struct dpb_coll *coll, int rank)
{
    return coll->kind == DPB_COLL_REDUCE_SCATTER ? rank * (COUNT / RANKS) + 10 : COUNT - 1;
}

static void test_values(void **state)
{
    (void)state;
    for (int kind = 0; kind < DPB_COLL_COUNT; kind++) {
        int32_t in[RANKS][COUNT], out[RANKS][COUNT];
        struct dpb_coll coll = {
                .kind = (enum dpb_coll_kind)kind, .dtype = DPB_I32, .count = COUNT, .scale = 1};
        for (int r = 0; r < RANKS; r++) {
            coll.buffer = in[r];
            comm_values_fill(&coll, r, RANKS);
        }
        reference(&coll, in, out);
        for (int r = 0; r < RANKS; r++) {
            coll.buffer = out[r];
            assert_int_equal(comm_values_wrong(&coll, r, RANKS), 0);
            out[r][defined_element(&coll, r)] ^= 1;
            bool checked = kind != DPB_COLL_REDUCE || r == coll.root;
            assert_int_equal(comm_values_wrong(&coll, r, RANKS), checked);
            /* A collective that does nothing is found out. */
            coll.buffer = in[r];
            bool changes = checked && !(kind == DPB_COLL_BROADCAST && r == coll.root);
            assert_int_equal(comm_values_wrong(&coll, r, RANKS) > 0, changes);
        }
    }
}

static double decode(enum dpb_dtype dtype, const void *values, int i)
{
    uint16_t half = ((const uint16_t *)values)[i];
    uint32_t bits = (uint32_t)half << 16;
    float wide;
    switch (dtype) {
    case DPB_F32:
        return (double)((const float *)values)[i];
    case DPB_F64:
        return ((const double *)values)[i];
    case DPB_I32:
        return ((const int32_t *)values)[i];
    case DPB_I64:
        return (double)((const int64_t *)values)[i];
    case DPB_U8:
        return ((const uint8_t *)values)[i];
    case DPB_BF16:
        memcpy(&wide, &bits, sizeof(wide));
        return (double)wide;
    case DPB_F16:
        if (half == 0)
            return 0;
        return ldexp(1 + (half & 0x3ff) / 1024.0, (half >> 10) - 15);
    case DPB_DTYPE_COUNT:
        break;
    }
    return NAN;
}

/* The same integers in every type, so small that sums of 64 ranks are exact in bf16. */
static void test_types(void **state)
{
    (void)state;
    int32_t whole[COUNT];
    struct dpb_coll coll = {.kind = DPB_COLL_ALL_REDUCE, .count = COUNT, .scale = 1};
    for (int ranks = 1; ranks <= 64; ranks *= 4)
        for (int dtype = 0; dtype < DPB_DTYPE_COUNT; dtype++) {
            _Alignas(8) unsigned char values[COUNT * 8];
            coll.dtype = DPB_I32;
            coll.buffer = whole;
            comm_values_fill(&coll, 0, ranks);
            coll.dtype = (enum dpb_dtype)dtype;
            coll.buffer = values;
            comm_values_fill(&coll, 0, ranks);
            for (int i = 0; i < COUNT; i++) {
                assert_true(decode(coll.dtype, values, i) == whole[i]);
                assert_true(whole[i] >= 0 && whole[i] * ranks <= 256);
            }
        }
}

/* ---- texts ---- */

static dpb_json *record(const char *collective, int64_t size, double mean_ns, double factor)
{
    dpb_json *r = dpb_json_object(), *comm = dpb_json_object(), *config = dpb_json_object(),
             *times = dpb_json_object();
    dpb_json_set_string(r, "status", "ok");
    dpb_json_set_int(r, "cell", 0);
    dpb_json_set_int(r, "ranks", factor > 0 ? 4 : 1);
    dpb_json_set_bool(r, "emulated", false);
    dpb_json_set_string(comm, "name", "shm");
    dpb_json_set(r, "comm", comm);
    dpb_json_set_string(config, "call", "blocking");
    dpb_json_set(r, "config", config);
    dpb_json_set_string(r, "collective", collective);
    dpb_json_set_string(r, "algorithm", "ring");
    dpb_json_set_string(r, "dtype", "fp32");
    dpb_json_set_string(r, "redop", "sum");
    dpb_json_set_int(r, "root", -1);
    dpb_json_set_int(r, "size_bytes", size);
    dpb_json_set_int(r, "count", size / 4);
    dpb_json_set_int(r, "wrong", 0);
    dpb_json_set_int(r, "iterations", 20);
    dpb_json_set_real(times, "mean", mean_ns);
    dpb_json_set_real(times, "min", mean_ns / 2);
    dpb_json_set_real(times, "p50", mean_ns);
    dpb_json_set_absent(times, "p99", "too few");
    dpb_json_set(r, "time_ns", times);
    dpb_json_set_real(r, "algbw_bytes_per_s", (double)size / mean_ns * 1e9);
    dpb_json_set_real(r, "busbw_factor", factor);
    dpb_json_set_real(r, "busbw_bytes_per_s", (double)size / mean_ns * 1e9 * factor);
    return r;
}

static void test_table(void **state)
{
    (void)state;
    dpb_json *records = dpb_json_array();
    dpb_json_append(records, record("all-reduce", 1000000, 100000, 1.5));
    dpb_json_append(records, record("all-reduce", 2000000, 400000, 1.5));
    dpb_json_append(records, record("all-gather", 64, 2000, 0.75));
    struct dpb_str text = {0};
    assert_int_equal(dpb_comm_bench_text(records, &text), DPB_OK);
    assert_non_null(strstr(text.text, "# all-reduce, 4 ranks, comm shm, algorithm ring, blocking "
                                      "calls, in place; measured, not emulated\n"));
    assert_non_null(strstr(text.text,
                           "     1000000        250000    fp32     sum    -1     100.00   "
                           "10.00   15.00       0      50.00     100.00        n/a\n"));
    /* (15 + 7.5) / 2, of this table only */
    assert_non_null(strstr(text.text, "# Avg bus bandwidth    : 11.2500 GB/s"));
    assert_non_null(strstr(text.text, "# all-gather, 4 ranks"));
    assert_non_null(strstr(text.text, "# Avg bus bandwidth    : 0.0240 GB/s"));
    dpb_str_release(&text);
    dpb_json_free(records);
}

static void test_table_of_trouble(void **state)
{
    (void)state;
    dpb_json *records = dpb_json_array(), *wrong = record("all-reduce", 64, 1000, 1.5);
    dpb_json *link = dpb_json_object(), *comm = dpb_json_object(), *failed = dpb_json_object();
    dpb_json_set_int(wrong, "wrong", 7);
    dpb_json_set_bool(wrong, "emulated", true);
    dpb_json_set_real(link, "bw_bytes_per_s", 3.125e9);
    dpb_json_set_int(link, "latency_ns", 5000);
    dpb_json_set(comm, "link", link);
    dpb_json_set(wrong, "comm", comm);
    dpb_json_append(records, wrong);
    dpb_json_set_string(failed, "status", "failed");
    dpb_json_set_string(failed, "label", "ranks=3");
    dpb_json_set_string(failed, "reason", "rank 1 was killed");
    dpb_json_append(records, failed);
    dpb_json_append(records, record("all-reduce", 64, 1000, NAN));
    struct dpb_str text = {0};
    assert_int_equal(dpb_comm_bench_text(records, &text), DPB_OK);
    assert_non_null(strstr(text.text, "EMULATED link 25Gbps,5us"));
    assert_non_null(strstr(text.text, "# Out of bounds values : 7 FAILED"));
    assert_non_null(strstr(text.text, "# ranks=3: failed: rank 1 was killed"));
    assert_non_null(strstr(text.text, "n/a (one rank has no bus)"));
    dpb_str_release(&text);
    dpb_json_free(records);
}

static void test_csv(void **state)
{
    (void)state;
    dpb_json *records = dpb_json_array();
    dpb_json_append(records, record("all-reduce", 1000000, 100000, 1.5));
    struct dpb_str text = {0};
    assert_int_equal(dpb_comm_bench_csv(records, &text), DPB_OK);
    const char *row = strchr(text.text, '\n') + 1;
    assert_string_equal(row, "all-reduce,shm,ring,blocking,false,,,4,1000000,250000,fp32,sum,-1,20,"
                             "100000,50000,100000,,1.5,10000000000,15000000000,,0,,,,,,,,,\n");
    assert_true(strncmp(text.text, "collective,comm,algorithm,call,", 31) == 0);
    dpb_str_release(&text);
    dpb_json_free(records);
}

/* ---- inside nodes and between them ---- */

/* 4 ranks on 2 nodes, whose rows say what each sent, and of it to the other node; -1: not told. */
static void rank_rows(const int64_t sent[4], const int64_t between[4], dpb_json *ranks[4])
{
    for (int r = 0; r < 4; r++) {
        dpb_json *rows = dpb_json_array(), *row = dpb_json_object();
        dpb_json_set_int(row, "wire_bytes", sent[r]);
        dpb_json_set(row, "wire_between_bytes",
                     between[r] < 0 ? dpb_json_null() : dpb_json_int(between[r]));
        dpb_json_append(rows, row);
        ranks[r] = dpb_json_object();
        dpb_json_set(ranks[r], "rows", rows);
    }
}

static double real_of(const dpb_json *json, const char *key)
{
    return dpb_json_as_real(dpb_json_get(json, key), NAN);
}

/* In 2 us: node 0 sends 1000 + 500 bytes out, node 1 2000; the most inside is rank 1's 6000. */
static void test_levels(void **state)
{
    (void)state;
    const int64_t sent[4] = {5000, 6500, 4000, 3000}, between[4] = {1000, 500, 0, 2000};
    dpb_json *ranks[4], *record = dpb_json_object();
    const struct dpb_launch_result result = {.ranks = ranks, .rank_count = 4};
    struct comm_levels levels;
    rank_rows(sent, between, ranks);
    comm_levels_measured(&result, 0, 2, &levels);
    comm_levels_put(&levels, 2000, record);
    assert_int_equal(dpb_json_as_int(dpb_json_get(record, "nodes"), 0), 2);
    assert_true(real_of(record, "node_between_bytes") == 2000);
    assert_true(real_of(record, "rank_inside_bytes") == 6000);
    assert_true(real_of(record, "between_bw_bytes_per_s") == 1e9);
    assert_true(real_of(record, "inside_bw_bytes_per_s") == 3e9);
    /* All on one node: there is nothing between nodes, and no 0 that could be taken for a rate. */
    comm_levels_measured(&result, 0, 4, &levels);
    comm_levels_put(&levels, 2000, record);
    assert_int_equal(dpb_json_as_int(dpb_json_get(record, "nodes"), 0), 1);
    assert_int_equal(dpb_json_type(dpb_json_get(record, "between_bw_bytes_per_s")), DPB_JSON_NULL);
    /* On hosts with one, two and one ranks, whatever was asked for: 1000, 500 + 0 and 2000. */
    static const int node[4] = {0, 1, 1, 2};
    for (int r = 0; r < 4; r++) {
        dpb_json *place = dpb_json_object();
        dpb_json_set_int(place, "node", node[r]);
        dpb_json_set(ranks[r], "place", place);
    }
    comm_levels_measured(&result, 0, 4, &levels);
    assert_int_equal(levels.nodes, 3);
    assert_int_equal(levels.node_between_bytes, 2000);
    for (int r = 0; r < 4; r++)
        dpb_json_free(ranks[r]);
    dpb_json_free(record);
}

static void test_levels_that_are_not_known(void **state)
{
    (void)state;
    const int64_t sent[4] = {5000, 6500, 4000, 3000}, between[4] = {1000, 500, -1, 2000};
    dpb_json *ranks[4], *record = dpb_json_object();
    const struct dpb_launch_result result = {.ranks = ranks, .rank_count = 4};
    struct comm_levels levels;
    rank_rows(sent, between, ranks);
    comm_levels_measured(&result, 0, 2, &levels);
    comm_levels_put(&levels, 2000, record);
    assert_int_equal(dpb_json_type(dpb_json_get(record, "node_between_bytes")), DPB_JSON_NULL);
    assert_non_null(
            strstr(dpb_json_as_string(dpb_json_get(record, "between_bw_bytes_per_s_reason"), ""),
                   "does not tell"));
    for (int r = 0; r < 4; r++)
        dpb_json_free(ranks[r]);
    dpb_json_free(record);
}

/* 16 virtual ranks on 2 nodes. A ring of 16 sends 2 * 15/16 of 1,600,000 bytes through each link,
 * so also out of each node; in an all-to-all each of 8 ranks sends 1/16 to each of the 8 others. */
static void test_levels_simulated(void **state)
{
    (void)state;
    struct comm_row row = {DPB_COLL_ALL_REDUCE, DPB_F32, 400000};
    struct comm_levels levels;
    comm_levels_simulated(&row, 16, 8, "flat ring over nodes", &levels);
    assert_null(levels.why);
    assert_int_equal(levels.nodes, 2);
    assert_int_equal(levels.node_between_bytes, 3000000);
    assert_int_equal(levels.rank_inside_bytes, 3000000);
    row.kind = DPB_COLL_ALL_TO_ALL;
    comm_levels_simulated(&row, 16, 8, "measured somewhere", &levels);
    assert_null(levels.why);
    assert_int_equal(levels.node_between_bytes, 8 * 8 * 100000);
    assert_int_equal(levels.rank_inside_bytes, 7 * 100000);
    row.kind = DPB_COLL_ALL_REDUCE;
    comm_levels_simulated(&row, 16, 8, "measured somewhere", &levels);
    assert_non_null(levels.why);
}

static void test_table_of_nodes(void **state)
{
    (void)state;
    dpb_json *records = dpb_json_array(), *several = record("all-reduce", 1000000, 100000, 1.5);
    struct dpb_str text = {0}, csv = {0};
    dpb_json_set_int(several, "nodes", 2);
    dpb_json_set_real(several, "between_bw_bytes_per_s", 7.5e9);
    dpb_json_set_real(several, "inside_bw_bytes_per_s", 12.25e9);
    dpb_json_append(records, several);
    assert_int_equal(dpb_comm_bench_text(records, &text), DPB_OK);
    assert_non_null(strstr(text.text, "       p99  between  inside\n"));
    assert_non_null(strstr(text.text, "     100.00        n/a     7.50   12.25\n"));
    assert_int_equal(dpb_comm_bench_csv(records, &csv), DPB_OK);
    assert_non_null(strstr(csv.text, "nodes,between_bw_bytes_per_s,inside_bw_bytes_per_s\n"));
    assert_non_null(strstr(csv.text, ",2,7500000000,12250000000\n"));
    dpb_str_release(&text);
    dpb_str_release(&csv);
    dpb_json_free(records);
}

static void test_options(void **state)
{
    (void)state;
    const struct dpb_option_set *set = dpb_comm_bench_option_set(registry_for_tests());
    assert_int_equal(dpb_option_table_check(&dpb_comm_bench_table, set), DPB_OK);
    assert_non_null(dpb_option_find(set, "algorithm", NULL));
    assert_null(dpb_option_find(set, "workload", NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_sizes),
            cmocka_unit_test(test_wrong_sizes),
            cmocka_unit_test(test_a_size_twice),
            cmocka_unit_test(test_values),
            cmocka_unit_test(test_types),
            cmocka_unit_test(test_table),
            cmocka_unit_test(test_csv),
            cmocka_unit_test(test_table_of_trouble),
            cmocka_unit_test(test_levels),
            cmocka_unit_test(test_levels_that_are_not_known),
            cmocka_unit_test(test_levels_simulated),
            cmocka_unit_test(test_table_of_nodes),
            cmocka_unit_test(test_options),
    };
    return DPB_RUN_TESTS(tests);
}

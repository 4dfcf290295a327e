/* test_gate_comm.c: records of `dpbench comm` in a gate, and limits of their bandwidths. */
#include "dpb_test.h"

#include <math.h>
#include <unistd.h>

#include "dpb_gate_set.h"
#include "dpb_str.h"
#include "dpb_targets.h"

#define RUNS 4

/* RUNS lines of one collective and size, which differ by a percent. */
static void append(struct dpb_str *text, int ranks, long long size, const char *status,
                   double busbw, const char *emulated)
{
    for (int i = 0; i < RUNS; i++) {
        dpb_str_appendf(text,
                        "{\"schema\":\"dpb.comm/1\",\"run_id\":\"r%d\",\"status\":\"%s\","
                        "\"reason\":%s,\"collective\":\"all-reduce\",\"dtype\":\"fp32\","
                        "\"ranks\":%d,\"size_bytes\":%lld,\"wrong\":0,\"emulated\":%s,"
                        "\"simulated\":false,\"tool\":{\"build\":{\"type\":\"Release\"}},",
                        i, status, strcmp(status, "ok") == 0 ? "null" : "\"rank 0 died\"", ranks,
                        size, emulated);
        if (ranks == 1)
            dpb_str_append(text, "\"busbw_bytes_per_s\":null}\n");
        else
            dpb_str_appendf(text, "\"busbw_bytes_per_s\":%.17g}\n", busbw * (1 + 0.01 * i));
    }
}

static dpb_status read_text(struct dpb_str *text, struct dpb_gate_set *set)
{
    char path[] = "/tmp/test_gate_comm.XXXXXX";

    close(mkstemp(path));
    assert_false(text->failed);
    assert_int_equal(dpb_file_write_atomic(path, text->text, text->length), DPB_OK);
    dpb_str_release(text);
    *set = (struct dpb_gate_set){.price = NAN};
    const dpb_status st = dpb_gate_set_read(path, DPB_GATE_SIDE_ALL, NAN, set);
    unlink(path);
    return st;
}

/* One rank has no bus: neither a value of 0, nor a cell in which a value is missing. */
static void test_one_rank_has_no_bandwidth(void **state)
{
    struct dpb_gate_set set;
    struct dpb_str text = {0};

    (void)state;
    append(&text, 1, 1 << 20, "ok", 0, "false");
    append(&text, 2, 1 << 20, "ok", 1e9, "false");
    assert_int_equal(read_text(&text, &set), DPB_OK);
    assert_int_equal(set.cell_count, 1);
    assert_string_equal(set.cells[0].name, "all-reduce fp32, 1048576 B, ranks 2");
    assert_int_equal(set.cells[0].run_count, RUNS);
    dpb_gate_set_release(&set);

    append(&text, 1, 1 << 20, "ok", 0, "false");
    assert_int_equal(read_text(&text, &set), DPB_ERR_NO_DATA);
    dpb_gate_set_release(&set);

    /* what failed is no data that may be left out */
    append(&text, 1, 1 << 20, "failed", 0, "false");
    assert_int_equal(read_text(&text, &set), DPB_OK);
    assert_string_equal(set.cells[0].trouble,
                        "a run is failed, with 0 wrong elements: rank 0 died");
    dpb_gate_set_release(&set);
}

static void test_cells_say_how_they_were_obtained(void **state)
{
    struct dpb_gate_set set;
    struct dpb_str text = {0};

    (void)state;
    append(&text, 2, 64, "ok", 1e8, "false");
    append(&text, 4, 64, "ok", 1e8, "true");
    assert_int_equal(read_text(&text, &set), DPB_OK);
    assert_string_equal(dpb_gate_cell_how(&set.cells[0]), "measured");
    assert_string_equal(dpb_gate_cell_how(&set.cells[1]), "emulated");
    assert_string_equal(dpb_gate_cell_fact(&set.cells[0], "build-type"), "Release");
    dpb_gate_set_release(&set);
}

static void judge(const struct dpb_gate_set *set, const char *target, const char *rule,
                  enum dpb_verdict verdict, size_t rows)
{
    struct dpb_targets targets = {.price = NAN};
    struct dpb_evidence_table table;

    assert_int_equal(dpb_targets_add(&targets, target, rule, "here"), DPB_OK);
    assert_string_equal(targets.items[0].name, target);
    assert_int_equal(dpb_targets_judge(&targets, set, NULL, &table), DPB_OK);
    assert_int_equal(table.verdict, verdict);
    assert_int_equal(table.count, rows);
    dpb_evidence_release(&table);
    dpb_targets_release(&targets);
}

/* A limit of large messages says nothing of those of 64 bytes. */
static void test_limits_are_of_their_sizes(void **state)
{
    struct dpb_gate_set set;
    struct dpb_str text = {0};

    (void)state;
    append(&text, 2, 64, "ok", 1e8, "false");
    append(&text, 2, 1 << 20, "ok", 1e10, "false");
    append(&text, 2, 16 << 20, "ok", 2e10, "false");
    assert_int_equal(read_text(&text, &set), DPB_OK);
    judge(&set, "comm-bus-bandwidth 1MiB..1GiB", ">= 9GB/s", DPB_VERDICT_PASS, 2);
    judge(&set, "comm-bus-bandwidth 1MiB", ">= 9GB/s", DPB_VERDICT_PASS, 1);
    judge(&set, "comm-bus-bandwidth 1MiB..16MiB", ">= 15GB/s", DPB_VERDICT_FAIL, 2);
    judge(&set, "comm-bus-bandwidth 64B..1GiB", ">= 9GB/s", DPB_VERDICT_FAIL, 3);
    judge(&set, "comm-bus-bandwidth 65B..1MiB", ">= 9GB/s", DPB_VERDICT_PASS, 1);
    /* no record of such a size: not kept */
    judge(&set, "comm-bus-bandwidth 2MiB..8MiB", ">= 1B/s", DPB_VERDICT_FAIL, 1);
    dpb_gate_set_release(&set);
}

static void test_limits_without_sizes_are_refused(void **state)
{
    static const char *const bad[] = {
            "comm-bus-bandwidth",          "comm-bus-bandwidth ",        "comm-bus-bandwidth 5%",
            "comm-bus-bandwidth 1MiB..",   "comm-bus-bandwidth ..1MiB",  "comm-bus-bandwidth 0B",
            "comm-bus-bandwidth 2MB..1MB", "comm-bus-bandwidth 1MB 2MB", "efficiency 1MiB",
            "comm-bus-bandwidth all",
    };
    struct dpb_targets targets = {.price = NAN};

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(dpb_targets_add(&targets, bad[i], ">= 1GB/s", "here"), DPB_ERR_USAGE);
    assert_int_equal(targets.count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_one_rank_has_no_bandwidth),
            cmocka_unit_test(test_cells_say_how_they_were_obtained),
            cmocka_unit_test(test_limits_are_of_their_sizes),
            cmocka_unit_test(test_limits_without_sizes_are_refused),
    };
    return DPB_RUN_TESTS(tests);
}

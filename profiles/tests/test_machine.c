#include "dpb_test.h"

#include <math.h>

#include "dpb_log.h"
#include "dpb_machine.h"

/* ---- what was logged ---- */

static char logged[8192];

static void keep(void *ctx, enum dpb_log_level level, const char *line)
{
    const size_t length = strlen(logged);

    (void)ctx;
    (void)level;
    snprintf(logged + length, sizeof(logged) - length, "%s\n", line);
}

static dpb_status parse(const char *text, struct dpb_machine *machine)
{
    logged[0] = '\0';
    dpb_log_set_sink(keep, NULL);
    const dpb_status st = dpb_machine_parse(text, strlen(text), "m.yaml", machine);
    dpb_log_set_sink(NULL, NULL);
    return st;
}

#define HEAD                                                                                       \
    "version: 1\nname: m\nsummary: s\naccelerator: A100\nkind: gpu\naccelerators-per-node: 8\n"
#define NEEDED                                                                                     \
    "memory: {value: 80GB, source: s}\nmemory-rate: {value: 2TB/s, source: s}\n"                   \
    "compute.fp32: {value: 19.5TFLOPS, source: s}\ninside.rate: {value: 300GB/s, source: s}\n"

static void assert_refused(const char *text, const char *reason)
{
    struct dpb_machine machine;

    assert_int_equal(parse(text, &machine), DPB_ERR_USAGE);
    if (!strstr(logged, reason))
        fail_msg("\"%s\" is not in:\n%s", reason, logged);
}

/* ---- reading ---- */

static void test_figures_in_si_units(void **state)
{
    struct dpb_machine machine;

    (void)state;
    assert_int_equal(parse(HEAD NEEDED "between.nics: {value: 8, assumed: guess}\n"
                                       "between.rate: {value: 200Gbps, source: s}\n"
                                       "inside.latency: {value: 3us, source: s}\n"
                                       "mtbf-node: {value: 100h, source: s}\n"
                                       "price: {value: 2.5USD/h, source: s, date: 2026-08-22}\n",
                           &machine),
                     DPB_OK);
    assert_string_equal(logged, "");
    assert_true(dpb_machine_value(&machine, DPB_FIGURE_MEMORY, 0) == 80e9);
    assert_true(dpb_machine_value(&machine, DPB_FIGURE_MEMORY_RATE, 0) == 2e12);
    assert_true(dpb_machine_value(&machine, DPB_FIGURE_FP32, 0) == 19.5e12);
    assert_true(dpb_machine_value(&machine, DPB_FIGURE_NIC_RATE, 0) == 25e9);
    assert_true(fabs(dpb_machine_value(&machine, DPB_FIGURE_INSIDE_LATENCY, 0) - 3e-6) < 1e-15);
    assert_true(dpb_machine_value(&machine, DPB_FIGURE_MTBF, 0) == 360000);
    assert_true(dpb_machine_value(&machine, DPB_FIGURE_PRICE, 0) == 2.5);
    assert_true(machine.figure[DPB_FIGURE_NICS].is_assumed);
    assert_string_equal(machine.figure[DPB_FIGURE_NICS].source, "guess");
    assert_false(dpb_machine_has(&machine, DPB_FIGURE_POWER));
    assert_true(dpb_machine_value(&machine, DPB_FIGURE_POWER, 7) == 7);
    dpb_machine_release(&machine);
}

static void test_curves_and_shares(void **state)
{
    struct dpb_machine machine;

    (void)state;
    assert_int_equal(parse(HEAD NEEDED
                           "compute.curve: {source: s, points: [[1e6, 0.1], [1e9, 0.9]]}\n"
                           "curves:\n  - {collective: all-reduce, ranks: 8, nodes: 1, source: s, "
                           "points: [[32KiB, 40us], [1MiB, 100us]]}\n",
                           &machine),
                     DPB_OK);
    assert_int_equal(machine.flop_share.count, 2);
    assert_true(machine.flop_share.size[1] == 1e9 && machine.flop_share.share[1] == 0.9);
    assert_int_equal(machine.curve_count, 1);
    assert_int_equal(machine.curves[0].count, 2);
    assert_true(machine.curves[0].bytes[0] == 32768);
    assert_true(fabs(machine.curves[0].seconds[1] - 1e-4) < 1e-12);
    dpb_machine_release(&machine);
}

static void test_written_and_read_back(void **state)
{
    (void)state;
    for (size_t i = 0; i < dpb_machine_builtin_count(); i++) {
        struct dpb_machine first, second;
        struct dpb_str text = {0}, again = {0};

        assert_int_equal(dpb_machine_find(dpb_machine_builtin_name(i), &first), DPB_OK);
        dpb_machine_write(&first, &text);
        if (parse(text.text, &second) != DPB_OK)
            fail_msg("%s:\n%s\n%s", first.name, logged, text.text);
        dpb_machine_write(&second, &again);
        assert_string_equal(text.text, again.text);
        dpb_str_release(&text);
        dpb_str_release(&again);
        dpb_machine_release(&first);
        dpb_machine_release(&second);
    }
}

/* ---- mistakes ---- */

static void test_mistakes_are_named(void **state)
{
    (void)state;
    assert_refused(HEAD NEEDED "inside.latncy: {value: 3us, source: s}\n",
                   "m.yaml:11:1: unknown key \"inside.latncy\", did you mean \"inside.latency\"?");
    assert_refused(HEAD NEEDED "power: {value: 400W}\n", "it needs a source, or assumed");
    assert_refused(HEAD NEEDED "power: {value: 400, source: s}\n", "a power is a number with W");
    assert_refused(HEAD NEEDED "power: 400W\n", "a figure is {value");
    assert_refused(HEAD NEEDED "launch: {value: 5, source: s}\n", "launch: \"5\"");
    assert_refused(HEAD NEEDED "noise.rank: {value: 1.5, source: s}\n", "not between 0 and 1");
    assert_refused(HEAD NEEDED "compute.bf16: {value: 1e400TFLOPS, source: s}\n", "compute.bf16");
    assert_refused(HEAD NEEDED "compute.bf16: {value: nanTFLOPS, source: s}\n", "compute.bf16");
    assert_refused(HEAD NEEDED "name: again\n", "m.yaml");
    assert_refused(HEAD NEEDED "between.nics: {value: 8, source: s}\n", "belong together");
    assert_refused(HEAD NEEDED "inside.nvls-from-ranks: {value: 4, source: s}\n",
                   "\"inside.nvls-share\" belong together");
    assert_refused(HEAD "memory: {value: 80GB, source: s}\n", "\"memory-rate\" is missing");
    assert_refused("version: 2\n", "version \"2\"");
    assert_refused("[1, 2]\n", "a map of keys and values");
    assert_refused("version: 1\nname: m\nsummary: s\naccelerator: A100\nkind: gpu\n"
                   "accelerators-per-node: 0\n" NEEDED,
                   "\"0\" is not a number from 1");
}

#define PLACED(ranks, nodes)                                                                       \
    "  - {collective: all-reduce, ranks: " #ranks ", nodes: " #nodes                               \
    ", source: s, points: [[32KiB, 40us]]}\n"

static void test_curves_that_nothing_uses(void **state)
{
    struct dpb_machine machine;

    (void)state;
    assert_refused(HEAD NEEDED "curves:\n" PLACED(16, 4),
                   "m.yaml:12:5: a curve of 16 ranks on 4 nodes: with 8 accelerators per node they "
                   "are on 2");
    assert_refused(HEAD NEEDED "curves:\n" PLACED(8, 1) PLACED(8, 1),
                   "m.yaml:13:5: a curve of all-reduce with 8 ranks is there twice");
    assert_refused(HEAD NEEDED "curves:\n  - {collective: all-reduce, ranks: 8, nodes: 1, source: "
                               "s, pionts: [], points: [[1MiB, 1ms]]}\n",
                   "unknown key \"pionts\" of a curve");
    /* a node that is not full */
    assert_int_equal(parse(HEAD NEEDED "curves:\n" PLACED(12, 2), &machine), DPB_OK);
    dpb_machine_release(&machine);
}

static void test_memory_in_the_unit_that_it_is_sold_in(void **state)
{
    struct dpb_str text = {0};

    (void)state;
    dpb_figure_text(DPB_FIGURE_MEMORY, 141e9, &text);
    assert_string_equal(text.text, "141GB");
    dpb_str_release(&text);
    dpb_figure_text(DPB_FIGURE_MEMORY, 8589934592.0, &text);
    assert_string_equal(text.text, "8GiB");
    dpb_str_release(&text);
}

static void test_all_mistakes_at_once(void **state)
{
    (void)state;
    assert_refused(HEAD NEEDED "power: 400W\nlaunch: {value: 5, source: s}\n", "power");
    assert_non_null(strstr(logged, "launch"));
}

static void test_bits_are_not_bytes(void **state)
{
    (void)state;
    assert_refused(
            HEAD NEEDED
            "between.nics: {value: 8, source: s}\nbetween.rate: {value: 25GB/s, source: s}\n",
            "network cards are sold in bits");
    assert_refused(
            HEAD NEEDED
            "between.nics: {value: 8, source: s}\nbetween.rate: {value: 200GB/s, source: s}\n",
            "network cards are sold in bits");
    assert_refused(HEAD NEEDED "inside.rate: {value: 300Gbps, source: s}\n", "twice");
    assert_refused("version: 1\nname: m\nsummary: s\naccelerator: A100\nkind: gpu\n"
                   "accelerators-per-node: 8\nmemory: {value: 80GB, source: s}\n"
                   "memory-rate: {value: 2TB/s, source: s}\n"
                   "compute.fp32: {value: 19.5TFLOPS, source: s}\n"
                   "inside.rate: {value: 2400Gbps, source: s}\n",
                   "write GB/s");
}

static void test_sparse_peak_is_refused(void **state)
{
    (void)state;
    assert_refused(HEAD NEEDED "compute.bf16: {value: 624TFLOPS, source: s}\n", "with sparsity");
}

static void test_bad_points(void **state)
{
#define CURVE(points)                                                                              \
    HEAD NEEDED                                                                                    \
            "curves:\n  - {collective: all-reduce, ranks: 8, nodes: 1, source: s, points: " points \
            "}\n"
    (void)state;
    assert_refused(CURVE("[]"), "at least one");
    assert_refused(CURVE("[[1MiB, 1us], [1KiB, 2us]]"), "sizes ascend");
    assert_refused(CURVE("[[1MiB, 0us]]"), "above 0");
    assert_refused(CURVE("[[1MiB]]"), "a list of two");
    assert_refused(HEAD NEEDED "curves:\n  - {collective: allreduce, ranks: 8, nodes: 1, source: s,"
                               " points: [[1MiB, 1us]]}\n",
                   "no collective \"allreduce\"");
}

static void test_warnings(void **state)
{
    struct dpb_machine machine;

    (void)state;
    assert_int_equal(parse(HEAD NEEDED "price: {value: 2.5USD/h, source: s}\n", &machine), DPB_OK);
    assert_non_null(strstr(logged, "the price has no date"));
    dpb_machine_release(&machine);
    assert_int_equal(parse("version: 1\nname: m\nsummary: s\naccelerator: X9000\nkind: gpu\n"
                           "accelerators-per-node: 8\n" NEEDED,
                           &machine),
                     DPB_OK);
    assert_non_null(strstr(logged, "nobody here knows an accelerator \"X9000\""));
    dpb_machine_release(&machine);
}

/* ---- those that come with the program ---- */

static void test_builtins_have_sources(void **state)
{
    (void)state;
    assert_true(dpb_machine_builtin_count() >= 12);
    for (size_t i = 0; i < dpb_machine_builtin_count(); i++) {
        struct dpb_machine machine;

        logged[0] = '\0';
        dpb_log_set_sink(keep, NULL);
        const dpb_status st = dpb_machine_find(dpb_machine_builtin_name(i), &machine);
        dpb_log_set_sink(NULL, NULL);
        if (st != DPB_OK || logged[0])
            fail_msg("%s: %s", dpb_machine_builtin_name(i), logged);
        assert_string_equal(machine.name, dpb_machine_builtin_name(i));
        for (int id = 0; id < DPB_FIGURE_COUNT; id++)
            if (dpb_machine_has(&machine, id) && strlen(machine.figure[id].source) < 6)
                fail_msg("%s: %s has no source", machine.name, dpb_figure_key(id));
        dpb_machine_release(&machine);
    }
}

static void test_unknown_machine(void **state)
{
    struct dpb_machine machine;

    (void)state;
    logged[0] = '\0';
    dpb_log_set_sink(keep, NULL);
    assert_int_equal(dpb_machine_find("dgx-a10", &machine), DPB_ERR_USAGE);
    assert_int_equal(dpb_machine_find("./nowhere.yaml", &machine), DPB_ERR_NOT_FOUND);
    dpb_log_set_sink(NULL, NULL);
    assert_non_null(strstr(logged, "did you mean dgx-a100?"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_figures_in_si_units),
            cmocka_unit_test(test_curves_and_shares),
            cmocka_unit_test(test_written_and_read_back),
            cmocka_unit_test(test_mistakes_are_named),
            cmocka_unit_test(test_curves_that_nothing_uses),
            cmocka_unit_test(test_memory_in_the_unit_that_it_is_sold_in),
            cmocka_unit_test(test_all_mistakes_at_once),
            cmocka_unit_test(test_bits_are_not_bytes),
            cmocka_unit_test(test_sparse_peak_is_refused),
            cmocka_unit_test(test_bad_points),
            cmocka_unit_test(test_warnings),
            cmocka_unit_test(test_builtins_have_sources),
            cmocka_unit_test(test_unknown_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

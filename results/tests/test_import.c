/* Importers: what is read from each format, what is refused, and damaged files. */
#include "dpb_test.h"

#include <math.h>

#include "dpb_import.h"
#include "dpb_log.h"
#include "dpb_rng.h"
#include "dpb_str.h"

static char logged[8192];

static void keep_line(void *ctx, enum dpb_log_level level, const char *line)
{
    (void)ctx, (void)level;
    strncat(logged, line, sizeof(logged) - strlen(logged) - 2);
    strcat(logged, "\n");
}

static int set_up(void **state)
{
    (void)state;
    logged[0] = '\0';
    dpb_log_set_sink(keep_line, NULL);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    dpb_log_set_sink(NULL, NULL);
    return 0;
}

static struct dpb_gate_set read_file(const char *name)
{
    struct dpb_gate_set set = {.price = NAN};
    struct dpb_str path = {0};

    dpb_str_appendf(&path, DPB_TEST_DATA "/import/%s", name);
    if (dpb_import_read(path.text, NULL, false, &set) != DPB_OK)
        fail_msg("%s: %s", name, logged);
    dpb_str_release(&path);
    return set;
}

static void check(const struct dpb_gate_set *set, const char *name, const char *metric, size_t runs,
                  double first)
{
    for (size_t i = 0; i < set->cell_count; i++) {
        const struct dpb_gate_cell *cell = &set->cells[i];
        const double *values = dpb_gate_cell_values(cell, metric);

        if (strcmp(cell->name, name) != 0)
            continue;
        assert_int_equal(cell->run_count, runs);
        assert_non_null(values);
        if (fabs(values[0] - first) > 1e-9 * fabs(first))
            fail_msg("%s: %s is %.17g, not %.17g", name, metric, values[0], first);
        return;
    }
    fail_msg("there is no \"%s\"", name);
}

static void test_google_benchmark(void **state)
{
    struct dpb_gate_set set = read_file("google_benchmark/test1_run1.json");

    (void)state;
    check(&set, "BM_SameTimes", "real-time", 1, 10);
    check(&set, "BM_100xFaster", "cpu-time", 1, 10000);
    dpb_gate_set_release(&set);
    set = read_file("google_benchmark/test3_run0.json");
    check(&set, "BM_Two", "real-time", 2, 9);
    check(&set, "medium", "cpu-time", 2, 80);
    assert_int_equal(set.cell_count, 2); /* aggregates are no runs */
    dpb_gate_set_release(&set);
    set = read_file("google_benchmark/test5_run0.json");
    check(&set, "BM_ManyRepetitions", "real-time", 1, 1e9); /* "s" */
    dpb_gate_set_release(&set);
}

static void test_pyperf(void **state)
{
    struct dpb_gate_set set = read_file("pyperf/telco.json");

    (void)state;
    check(&set, "telco", "time", 40, 22569017.250134493);
    dpb_gate_set_release(&set);
}

static void test_nvbench(void **state)
{
    struct dpb_gate_set set = read_file("nvbench/test_ref.json");

    (void)state;
    check(&set, "simple Device=0", "gpu-time", 1, 1003471.5849794225);
    check(&set, "simple Device=0", "cpu-time", 1, 1009445.8717434867);
    dpb_gate_set_release(&set);
}

static void test_nccl(void **state)
{
    static const char *const files[] = {"nccl-tests.txt", "nccl-tests.json"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct dpb_gate_set set = read_file(files[i]);

        check(&set, "all_reduce_perf float sum 1048576 out-of-place", "comm-bus-bandwidth", 1,
              50.68e9);
        check(&set, "all_reduce_perf float sum 1048576 in-place", "time", 1, 35920);
        dpb_gate_set_release(&set);
    }
}

/* One rank, and messages whose bandwidth two decimals do not show: 0.00 is no bandwidth. The file
 * begins with a byte order mark. */
static void test_nccl_without_bandwidth(void **state)
{
    static const char text[] =
            "\xef\xbb\xbf# nccl-tests\n# Collective test starting: all_reduce_perf\n"
            "# size count type redop root time algbw busbw #wrong\n"
            "8 2 float sum -1 5.1 0.00 0.00 0\n"
            "1024 256 float sum -1 6.1 0.17 0.17 0\n"
            "# Avg bus bandwidth : 0.085\n";
    struct dpb_gate_set set = {.price = NAN};

    (void)state;
    assert_int_equal(dpb_import_text(text, strlen(text), "file", "nccl-tests", false, &set),
                     DPB_OK);
    assert_int_equal(set.cell_count, 2);
    assert_null(dpb_gate_cell_values(&set.cells[0], "comm-bus-bandwidth"));
    assert_true(dpb_gate_cell_values(&set.cells[0], "time")[0] == 5100);
    assert_true(dpb_gate_cell_values(&set.cells[1], "comm-bus-bandwidth")[0] == 0.17e9);
    assert_true(set.cells[0].size_bytes == 8 && set.cells[1].size_bytes == 1024);
    dpb_gate_set_release(&set);
}

static void test_pytorch_and_hyperfine(void **state)
{
    struct dpb_gate_set set = read_file("pytorch-ddp.json");

    (void)state;
    check(&set, "resnet50, ranks 1", "step-time-median", 1, 51e6);
    check(&set, "resnet50, ranks 1, ddp", "step-time-median", 1, 54e6);
    check(&set, "resnet50, ranks 2", "step-time-median", 1, 61.5e6);
    dpb_gate_set_release(&set);
    set = read_file("hyperfine.json");
    check(&set, "sleep 0.1", "time", 3, 100.8e6);
    dpb_gate_set_release(&set);
}

static void test_csv(void **state)
{
    struct dpb_gate_set set = read_file("columns.csv");

    (void)state;
    check(&set, "before", "value", 2, 1.5);
    check(&set, "after", "value", 2, 1.25);
    dpb_gate_set_release(&set);
    set = read_file("values.csv");
    check(&set, "value", "value", 3, 10.5);
    dpb_gate_set_release(&set);
}

/* Two launches of one benchmark are two runs; one file twice is one. */
static void test_files_are_merged(void **state)
{
    static const char one[] = "8\n", two[] = "9\n";
    struct dpb_gate_set set = {.price = NAN};

    (void)state;
    assert_int_equal(dpb_import_text(one, 2, "one", NULL, true, &set), DPB_OK);
    assert_int_equal(dpb_import_text(two, 2, "two", NULL, true, &set), DPB_OK);
    assert_int_equal(dpb_import_text(one, 2, "one", NULL, true, &set), DPB_OK);
    check(&set, "value", "rate", 2, 8);
    dpb_gate_set_release(&set);
}

struct bad {
    const char *text, *message;
    dpb_status st;
};

static void test_bad_files(void **state)
{
    static const struct bad cases[] = {
            {"", "in no format", DPB_ERR_CORRUPT},
            {"{\"benchmarks\": [", "line 1", DPB_ERR_CORRUPT},
            {"{\"benchmarks\": []}", "no benchmark", DPB_ERR_NO_DATA},
            {"{\"benchmarks\": [{\"name\": \"a\"}]}", "benchmarks[0]: it has no \"real_time\"",
             DPB_ERR_CORRUPT},
            {"{\"benchmarks\": [{\"name\": \"a\", \"real_time\": NaN}]}", "line 1",
             DPB_ERR_CORRUPT},
            {"{\"benchmarks\": [{\"name\": \"a\", \"real_time\": -1, \"cpu_time\": 1}]}",
             "benchmarks[0]: real-time -1", DPB_ERR_CORRUPT},
            {"{\"benchmarks\": [{\"name\": \"a\", \"real_time\": 1, \"cpu_time\": 1, "
             "\"time_unit\": \"h\"}]}",
             "benchmarks[0]: \"time_unit\": \"h\"", DPB_ERR_CORRUPT},
            {"{\"results\": [{\"command\": \"a\", \"times\": [0.1, null]}]}", "results[0]: time",
             DPB_ERR_CORRUPT},
            {"1\nnan\n", "line 2: \"nan\"", DPB_ERR_CORRUPT},
            {"1\n1,5\n", "line 2: \"1,5\"", DPB_ERR_CORRUPT},
            {"1,5\n2,5\n", "line 1: it holds numbers", DPB_ERR_CORRUPT},
            {"1\n2", "the last line", DPB_ERR_CORRUPT},
            {"a,b\n1,\n", "line 2, column \"b\"", DPB_ERR_CORRUPT},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct dpb_gate_set set = {.price = NAN};

        logged[0] = '\0';
        const dpb_status st =
                dpb_import_text(cases[i].text, strlen(cases[i].text), "FILE", NULL, false, &set);
        if (st != cases[i].st || !strstr(logged, cases[i].message) || !strstr(logged, "FILE"))
            fail_msg("%s: status %d, logged:\n%s", cases[i].text, st, logged);
        assert_int_equal(set.cell_count, 0);
        dpb_gate_set_release(&set);
    }
}

/* What failed does not count. */
static void test_failures_are_trouble(void **state)
{
    static const char *const texts[] = {
            "{\"benchmarks\": [{\"name\": \"a\", \"error_occurred\": true}]}",
            "{\"results\": [{\"command\": \"a\", \"times\": [0.1], \"exit_codes\": [1]}]}",
    };

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct dpb_gate_set set = {.price = NAN};

        assert_int_equal(dpb_import_text(texts[i], strlen(texts[i]), "FILE", NULL, false, &set),
                         DPB_OK);
        assert_true(set.cells[0].trouble[0] != '\0');
        dpb_gate_set_release(&set);
    }
}

static bool has_value(const struct dpb_gate_set *set, const char *cell, const char *metric,
                      double value)
{
    for (size_t i = 0; i < set->cell_count; i++) {
        const double *values = dpb_gate_cell_values(&set->cells[i], metric);

        for (size_t run = 0;
             values && strcmp(set->cells[i].name, cell) == 0 && run < set->cells[i].run_count;
             run++)
            if (values[run] == value)
                return true;
    }
    return false;
}

static void check_subset(const struct dpb_gate_set *part, const struct dpb_gate_set *whole)
{
    for (size_t i = 0; i < part->cell_count; i++)
        for (size_t m = 0; m < part->cells[i].metric_count; m++)
            for (size_t run = 0; run < part->cells[i].run_count; run++)
                assert_true(has_value(whole, part->cells[i].name,
                                      part->cells[i].metrics[m].metric->name,
                                      part->cells[i].metrics[m].values[run]));
}

/* Cut anywhere, a file is refused or gives values that the whole one has; with random bytes in it,
 * nothing breaks. */
static void test_damaged_files(void **state)
{
    static const char *const files[] = {"google_benchmark/test1_run1.json",
                                        "nccl-tests.txt",
                                        "nccl-tests.json",
                                        "pytorch-ddp.json",
                                        "hyperfine.json",
                                        "columns.csv",
                                        "values.csv",
                                        "pyperf/telco.json"};
    struct dpb_rng rng;

    (void)state;
    dpb_rng_init(&rng, 7, 0);
    for (size_t f = 0; f < sizeof(files) / sizeof(files[0]); f++) {
        struct dpb_gate_set whole = read_file(files[f]);
        struct dpb_str path = {0}, text = {0};

        dpb_str_appendf(&path, DPB_TEST_DATA "/import/%s", files[f]);
        assert_int_equal(dpb_file_read(path.text, &text), DPB_OK);
        for (int i = 0; i < 200; i++) {
            struct dpb_gate_set part = {.price = NAN};
            const size_t cut = (size_t)dpb_rng_below(&rng, text.length);
            char *copy = strndup(text.text, cut);

            logged[0] = '\0';
            dpb_import_text(copy, cut, "FILE", NULL, false, &part);
            check_subset(&part, &whole);
            dpb_gate_set_release(&part);
            free(copy);
        }
        for (int i = 0; i < 200; i++) {
            struct dpb_gate_set set = {.price = NAN};
            char *copy = malloc(text.length + 1);

            memcpy(copy, text.text, text.length + 1);
            for (int k = 0; k < 3; k++)
                copy[dpb_rng_below(&rng, text.length)] = (char)dpb_rng_u32(&rng);
            logged[0] = '\0';
            const dpb_status st = dpb_import_text(copy, text.length, "FILE", NULL, false, &set);
            assert_true(st == DPB_OK ? set.cell_count > 0 : set.cell_count == 0 && logged[0]);
            dpb_gate_set_release(&set);
            free(copy);
        }
        dpb_str_release(&path);
        dpb_str_release(&text);
        dpb_gate_set_release(&whole);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
            TEST(test_google_benchmark),
            TEST(test_pyperf),
            TEST(test_nvbench),
            TEST(test_nccl),
            TEST(test_nccl_without_bandwidth),
            TEST(test_pytorch_and_hyperfine),
            TEST(test_csv),
            TEST(test_files_are_merged),
            TEST(test_bad_files),
            TEST(test_failures_are_trouble),
            TEST(test_damaged_files),
    };
    return DPB_RUN_TESTS(tests);
}

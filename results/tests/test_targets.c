#include "dpb_test.h"

#include <math.h>
#include <unistd.h>

#include "dpb_sample_record.h"
#include "dpb_str.h"
#include "dpb_targets.h"
#include "gate_samples.h"

static struct dpb_targets one_target(const char *metric, const char *rule)
{
    struct dpb_targets targets = {.price = NAN};

    assert_int_equal(dpb_targets_add(&targets, metric, rule, "here"), DPB_OK);
    return targets;
}

static enum dpb_verdict judge(const char *metric, const char *rule, const double *values,
                              size_t count)
{
    struct dpb_targets targets = one_target(metric, rule);
    struct dpb_gate_set set = {.price = NAN};
    struct dpb_evidence_table table;

    sample_side(&set, "cell", metric, values, count, true, ORDER_NONE);
    assert_int_equal(dpb_targets_judge(&targets, &set, NULL, &table), DPB_OK);
    const enum dpb_verdict verdict = table.verdict;
    dpb_evidence_release(&table);
    dpb_gate_set_release(&set);
    dpb_targets_release(&targets);
    return verdict;
}

static void test_limits_are_kept_broken_or_unclear(void **state)
{
    const double fast[] = {0.2e9, 0.21e9, 0.2e9, 0.19e9}, slow[] = {0.3e9, 0.31e9, 0.3e9, 0.29e9};
    const double unclear[] = {0.2e9, 0.3e9, 0.24e9, 0.26e9};

    (void)state;
    assert_int_equal(judge("step-time-p99", "<= 250ms", fast, 4), DPB_VERDICT_PASS);
    assert_int_equal(judge("step-time-p99", "<= 250ms", slow, 4), DPB_VERDICT_FAIL);
    assert_int_equal(judge("step-time-p99", "<= 250ms", unclear, 4), DPB_VERDICT_INCONCLUSIVE);
    assert_int_equal(judge("step-time-p99", ">= 250ms", slow, 4), DPB_VERDICT_PASS);
    assert_int_equal(judge("step-time-p99", "<= 250ms", fast, 2), DPB_VERDICT_INCONCLUSIVE);
}

static void test_units(void **state)
{
    static const struct {
        const char *metric, *rule;
        double limit;
    } known[] = {
            {"efficiency", ">= 0.90", 0.9},         {"efficiency", ">=90%", 0.9},
            {"step-time-median", "< 1.5ms", 1.5e6}, {"cost-per-epoch", "<= 12 USD", 12},
            {"cost-per-epoch", "<= 12", 12},        {"memory-peak", "<= 2GiB", 2147483648.0},
            {"bus-bandwidth", ">= 10GB/s", 10e9},   {"loss-parity", "<= 1e-3", 1e-3},
            {"energy-per-sample", "<= 0.5 J", 0.5}, {"throughput", "> 1000 samples/s", 1000},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        struct dpb_targets targets = one_target(known[i].metric, known[i].rule);

        assert_true(fabs(targets.items[0].limit - known[i].limit) <= 1e-12 * known[i].limit);
        assert_int_equal(targets.items[0].at_least, known[i].rule[0] == '>');
        assert_int_equal(targets.items[0].is_strict, known[i].rule[1] != '=');
        dpb_targets_release(&targets);
    }
}

static void test_mistakes(void **state)
{
    static const char *const bad[][2] = {
            {"efficiency", "0.9"},           {"efficiency", ">= abc"},    {"efficiency", ">="},
            {"eficiency", ">= 0.9"},         {"step-time-p99", "<= 250"}, {"wire-bytes", "<= 5"},
            {"cost-per-epoch", "<= 12 EUR"}, {"price", "free"},           {"price", "-1"},
            {"efficiency", ">= nan"},
    };
    struct dpb_targets targets = {.price = NAN};

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(dpb_targets_add(&targets, bad[i][0], bad[i][1], "here"), DPB_ERR_USAGE);
    assert_int_equal(targets.count, 0);
    assert_int_equal(dpb_targets_add(&targets, "price", "2.5 USD/h", "here"), DPB_OK);
    assert_true(targets.price == 2.5);
}

/* A limit that nobody can check is not kept. */
static void test_what_no_record_decides_fails(void **state)
{
    const double values[] = {1, 1, 1, 1}, broken[] = {1, NAN, 1, 1};
    struct dpb_targets targets = one_target("cost-per-epoch", "<= 12 USD");
    struct dpb_gate_set set = {.price = NAN}, none = {.price = NAN};
    struct dpb_evidence_table table;

    (void)state;
    sample_side(&set, "cell", "step-time-median", values, 4, true, ORDER_NONE);
    assert_int_equal(dpb_targets_judge(&targets, &set, NULL, &table), DPB_OK);
    assert_int_equal(table.verdict, DPB_VERDICT_FAIL);
    assert_non_null(strstr(table.items[0].reason, "price"));
    dpb_evidence_release(&table);
    assert_int_equal(dpb_targets_judge(&targets, &none, NULL, &table), DPB_OK);
    assert_int_equal(table.verdict, DPB_VERDICT_FAIL);
    dpb_evidence_release(&table);
    dpb_gate_set_release(&set);
    dpb_targets_release(&targets);
    assert_int_equal(judge("step-time-median", "<= 1s", broken, 4), DPB_VERDICT_ERROR);
}

static struct dpb_gate_set scaling(size_t one_rank_runs)
{
    struct dpb_gate_set set = {.price = NAN};
    struct dpb_records records = {calloc(8, sizeof(dpb_json *)), 0, 0};
    double steps[30];

    for (int ranks = 1; ranks <= 2; ranks++)
        for (size_t r = 0; r < (ranks == 1 ? one_rank_runs : 4); r++) {
            struct sample_record sample = sample_record_default;

            for (int i = 0; i < 30; i++)
                steps[i] = (ranks == 1 ? 10e6 : 11e6) + 1e4 * (double)r + 1e3 * i;
            sample.cell = ranks;
            sample.repeat = (int64_t)r;
            sample.ranks = ranks;
            sample.global_batch = 8 * ranks;
            sample.samples_ns = steps;
            sample.sample_count = 30;
            records.items[records.count++] = sample_record_make(&sample);
        }
    assert_int_equal(dpb_gate_set_from_records(&records, DPB_GATE_SIDE_ALL, NAN, &set), DPB_OK);
    dpb_records_release(&records);
    return set;
}

static void test_efficiency_of_every_cell_but_the_first(void **state)
{
    struct dpb_targets targets = one_target("efficiency", ">= 0.90");
    struct dpb_gate_set set = scaling(4), unequal = scaling(3);
    struct dpb_evidence_table table;
    char hash[DPB_SHA256_TEXT_BYTES];

    (void)state;
    assert_int_equal(dpb_targets_judge(&targets, &set, NULL, &table), DPB_OK);
    assert_int_equal(table.count, 1);
    assert_int_equal(table.verdict, DPB_VERDICT_PASS);
    assert_true(fabs(table.items[0].found - 10.0 / 11) < 0.001);
    assert_int_equal(table.items[0].runs, 4);
    assert_string_equal(table.items[0].how, "measured");
    memcpy(hash, table.items[0].hashes[0], sizeof(hash));
    assert_int_equal(strlen(hash), 64);
    assert_string_not_equal(hash, table.items[0].hashes[1]);
    dpb_evidence_release(&table);
    /* with other numbers of runs there is no efficiency, and no pass */
    assert_int_equal(dpb_targets_judge(&targets, &unequal, NULL, &table), DPB_OK);
    assert_int_equal(table.verdict, DPB_VERDICT_FAIL);
    dpb_evidence_release(&table);
    dpb_gate_set_release(&set);
    dpb_gate_set_release(&unequal);
    dpb_targets_release(&targets);
}

/* One rank has no link and no bucket, so its cell is the baseline of every curve with its batch,
 * and of no other. */
static void test_efficiency_against_one_rank_that_has_no_link(void **state)
{
    static const struct {
        int ranks;
        const char *series, *compute_series;
        double step_ns, link_bytes_per_s;
    } cells[] = {
            {1, "batch-per-rank=8", "batch-per-rank=8", 10e6, 0},
            {1, "batch-per-rank=32", "batch-per-rank=32", 40e6, 0},
            {2, "batch-per-rank=8 bucket=1MiB link=1Gbps", "batch-per-rank=8", 20e6, 125e6},
            {2, "batch-per-rank=8 bucket=1MiB link=9Gbps", "batch-per-rank=8", 12.5e6, 1125e6},
    };
    struct dpb_targets targets = one_target("efficiency", ">= 0.70");
    struct dpb_gate_set set = {.price = NAN};
    struct dpb_records records = {calloc(16, sizeof(dpb_json *)), 0, 0};
    struct dpb_evidence_table table;
    double steps[30];

    (void)state;
    for (int c = 0; c < 4; c++)
        for (int r = 0; r < 4; r++) {
            struct sample_record sample = sample_record_default;

            for (int i = 0; i < 30; i++)
                steps[i] = cells[c].step_ns + 1e3 * i;
            sample.cell = c;
            sample.repeat = r;
            sample.ranks = cells[c].ranks;
            sample.series = cells[c].series;
            sample.compute_series = cells[c].compute_series;
            sample.global_batch = sample.batch_per_rank * cells[c].ranks;
            sample.link_bytes_per_s = cells[c].link_bytes_per_s;
            sample.emulated = cells[c].link_bytes_per_s > 0;
            sample.samples_ns = steps;
            sample.sample_count = 30;
            records.items[records.count++] = sample_record_make(&sample);
        }
    assert_int_equal(dpb_gate_set_from_records(&records, DPB_GATE_SIDE_ALL, NAN, &set), DPB_OK);
    assert_int_equal(dpb_targets_judge(&targets, &set, NULL, &table), DPB_OK);
    assert_int_equal(table.count, 2);
    assert_string_equal(table.items[0].how, "emulated");
    const bool slow_first = table.items[0].found < table.items[1].found;
    assert_true(fabs(table.items[slow_first ? 0 : 1].found - 0.5) < 0.01);
    assert_true(fabs(table.items[slow_first ? 1 : 0].found - 0.8) < 0.01);
    dpb_evidence_release(&table);
    dpb_gate_set_release(&set);
    dpb_records_release(&records);
    dpb_targets_release(&targets);
}

static void test_loss_parity(void **state)
{
    struct dpb_targets targets = one_target("loss-parity", "<= 1e-3");
    struct dpb_gate_set set = scaling(4), other = scaling(4);
    struct dpb_evidence_table table;

    (void)state;
    assert_int_equal(dpb_targets_judge(&targets, &set, NULL, &table), DPB_OK);
    assert_int_equal(table.count, 1); /* two ranks against one */
    assert_int_equal(table.verdict, DPB_VERDICT_PASS);
    dpb_evidence_release(&table);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(dpb_gate_cell_set_value(&set.cells[1], i, dpb_gate_metric_find("loss"), 2),
                         DPB_OK);
    assert_int_equal(dpb_targets_judge(&targets, &set, &other, &table), DPB_OK);
    assert_int_equal(table.count, 2); /* each against its own */
    assert_int_equal(table.verdict, DPB_VERDICT_FAIL);
    dpb_evidence_release(&table);
    dpb_gate_set_release(&set);
    dpb_gate_set_release(&other);
    dpb_targets_release(&targets);
}

static void test_files(void **state)
{
    static const struct {
        const char *text;
        dpb_status status;
    } files[] = {
            {"efficiency: \">= 0.90\"\nprice: \"2 USD/h\"\n", DPB_OK},
            {"version: 1\nname: x\ntargets: {efficiency: \">= 0.90\"}\n", DPB_OK},
            {"targets: {}\n", DPB_ERR_USAGE},
            {"price: \"2 USD/h\"\n", DPB_ERR_USAGE},
            {"- efficiency\n", DPB_ERR_USAGE},
            {"efficiency: [1]\n", DPB_ERR_USAGE},
            {"efficiency: \">= 0.9\"\nefficiency: \">= 0.8\"\n", DPB_ERR_USAGE},
            {"efficiency: 0.9\n", DPB_ERR_USAGE},
            {"", DPB_ERR_USAGE},
    };
    char path[] = "/tmp/test_targets.XXXXXX";

    (void)state;
    close(mkstemp(path));
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        struct dpb_targets targets = {.price = NAN};

        assert_int_equal(dpb_file_write_atomic(path, files[i].text, strlen(files[i].text)), DPB_OK);
        assert_int_equal(dpb_targets_read(path, &targets), files[i].status);
        dpb_targets_release(&targets);
    }
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_limits_are_kept_broken_or_unclear),
            cmocka_unit_test(test_units),
            cmocka_unit_test(test_mistakes),
            cmocka_unit_test(test_what_no_record_decides_fails),
            cmocka_unit_test(test_efficiency_of_every_cell_but_the_first),
            cmocka_unit_test(test_efficiency_against_one_rank_that_has_no_link),
            cmocka_unit_test(test_loss_parity),
            cmocka_unit_test(test_files),
    };
    return DPB_RUN_TESTS(tests);
}

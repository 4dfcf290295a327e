/* Public situations in which gates went wrong: what was reported there, and what a gate should say.
 * "owner/repo#number" are on GitHub. */
#include "dpb_test.h"

#include <math.h>

#include "dpb_gate_compare.h"
#include "dpb_json.h"
#include "dpb_rng.h"
#include "dpb_sample_record.h"
#include "dpb_stats.h"
#include "dpb_targets.h"
#include "gate_samples.h"

#define VALUES_MAX 12
#define CELL       "cell"

struct situation {
    const char *name;
    double base[VALUES_MAX], candidate[VALUES_MAX]; /* end with 0 */
    enum sample_order order;
    struct dpb_gate_options options;
    enum dpb_verdict verdict;
    const char *reason; /* part of the first finding's reason; NULL: any */
};

#define OPTIONS(...)                                                                               \
    {                                                                                              \
        .alpha = 0.05, .looks = 1, .gating = "step-time-median", __VA_ARGS__                       \
    }

static const struct situation situations[] = {
        {"iree-org/iree PR#24257: one golden value, a healthy run in its tail",
         {187},
         {216.8},
         ORDER_NONE,
         OPTIONS(),
         DPB_VERDICT_INCONCLUSIVE,
         "1 and 1 runs"},
        {"tenstorrent/tt-metal#56192: at the edge of the band",
         {1331700, 1331900, 1331500, 1331700},
         {1352162, 1351406, 1351077, 1357900},
         ORDER_NONE,
         OPTIONS(.margins = {{{"step-time-median", 0.015, false}}, 1}),
         DPB_VERDICT_INCONCLUSIVE,
         "holds the margin"},
        {"ROCm/vllm PR#1010: an improvement is no failure",
         {100, 101, 99, 100},
         {88, 89, 88, 87},
         ORDER_NONE,
         OPTIONS(),
         DPB_VERDICT_PASS,
         NULL},
        {"pytorch/test-infra#7676: too few data are no pass",
         {100, 100},
         {100, 100},
         ORDER_NONE,
         OPTIONS(),
         DPB_VERDICT_INCONCLUSIVE,
         "at least 3"},
        {"google/benchmark PR#617: two repetitions are not tested",
         {100, 100},
         {150, 150},
         ORDER_NONE,
         OPTIONS(),
         DPB_VERDICT_INCONCLUSIVE,
         "at least 3"},
        {"psf/pyperf: one value against one is not significant",
         {100},
         {150},
         ORDER_NONE,
         OPTIONS(),
         DPB_VERDICT_INCONCLUSIVE,
         NULL},
        {"golang/go#20728, datalad/datalad#3771: a regression has an exit code",
         {100, 101, 99, 100},
         {120, 121, 119, 120},
         ORDER_NONE,
         OPTIONS(),
         DPB_VERDICT_FAIL,
         NULL},
        {"ohdearquant/lattice#714: base, then head: refused when order is required",
         {100, 101, 99, 100},
         {120, 121, 119, 120},
         ORDER_SEQUENTIAL,
         OPTIONS(.require_interleaved = true),
         DPB_VERDICT_REFUSED,
         "not interleaved"},
        {"the same, measured in pairs, is decided",
         {100, 101, 99, 100},
         {120, 121, 119, 120},
         ORDER_PAIRS,
         OPTIONS(.require_interleaved = true),
         DPB_VERDICT_FAIL,
         NULL},
        {"microsoft/microsoft-ui-reactor PR#441: drift looks like a change",
         {100, 102, 104, 106, 108, 110, 112},
         {122, 124, 126, 128, 130, 132, 134},
         ORDER_SEQUENTIAL,
         OPTIONS(),
         DPB_VERDICT_INCONCLUSIVE,
         "drift"},
        {"the same drift in pairs is no change",
         {100, 104, 108, 112, 116, 120},
         {100.5, 103.5, 108.5, 111.5, 116.5, 119.5},
         ORDER_PAIRS,
         OPTIONS(),
         DPB_VERDICT_PASS,
         NULL},
        {"lance0/rustbgpd#339: a mean is +3.3 %, the interval holds 0",
         {100, 106, 94, 103, 97},
         {103.3, 97, 109.4, 100.2, 106.6},
         ORDER_NONE,
         OPTIONS(),
         DPB_VERDICT_INCONCLUSIVE,
         "holds the margin"},
        {"edtechre/pybroker PR#291: ratios .65 to 1.29 on identical sources",
         {2, 1.3, 1.9, 2.4, 1.6, 1.4, 2.1},
         {1.3, 1.7, 1.5, 2, 2.07, 1.5, 1.8},
         ORDER_NONE,
         OPTIONS(),
         DPB_VERDICT_INCONCLUSIVE,
         NULL},
        {"golang/go#19634: equal samples are no difference",
         {100, 100, 100, 100},
         {100, 100, 100, 100},
         ORDER_NONE,
         OPTIONS(),
         DPB_VERDICT_PASS,
         NULL},
        {"dfinity/canbench PR#30: from zero there is no ratio",
         {-1, -1, -1},
         {100, 100, 100},
         ORDER_NONE,
         OPTIONS(),
         DPB_VERDICT_ERROR,
         "absolute margin"},
        {"luthersystems/elps PR#309: what is gated on is in no record",
         {100, 101, 99, 100},
         {100, 101, 99, 100},
         ORDER_NONE,
         {.alpha = 0.05, .looks = 1, .gating = "energy-per-sample"},
         DPB_VERDICT_ERROR,
         "no record has it"},
        {"dolthub/doltlite PR#1809: looks that were planned cost level",
         {100, 101, 99, 100},
         {103.3, 104.3, 102.3, 103.3},
         ORDER_NONE,
         {.alpha = 0.05, .looks = 3, .gating = "step-time-median"},
         DPB_VERDICT_INCONCLUSIVE,
         NULL},
        {"the same in one look",
         {100, 101, 99, 100},
         {103.3, 104.3, 102.3, 103.3},
         ORDER_NONE,
         OPTIONS(),
         DPB_VERDICT_FAIL,
         NULL},
};

static size_t length_of(const double *values)
{
    size_t count = 0;

    while (count < VALUES_MAX && values[count] != 0)
        count++;
    return count;
}

static void run_situation(const struct situation *s)
{
    struct dpb_gate_set base = {.price = NAN}, candidate = {.price = NAN};
    struct dpb_gate_report report;

    sample_side(&base, CELL, "step-time-median", s->base, length_of(s->base), true, s->order);
    sample_side(&candidate, CELL, "step-time-median", s->candidate, length_of(s->candidate), false,
                s->order);
    assert_int_equal(dpb_gate_compare(&base, &candidate, &s->options, &report), DPB_OK);
    if (report.verdict != s->verdict)
        fail_msg("%s: %s, not %s (%s)", s->name, dpb_verdict_text(report.verdict),
                 dpb_verdict_text(s->verdict), report.findings[0].result.reason);
    if (s->reason && !strstr(report.findings[0].result.reason, s->reason))
        fail_msg("%s: \"%s\" does not say \"%s\"", s->name, report.findings[0].result.reason,
                 s->reason);
    dpb_gate_report_release(&report);
    dpb_gate_set_release(&base);
    dpb_gate_set_release(&candidate);
}

static void test_situations(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(situations) / sizeof(situations[0]); i++)
        run_situation(&situations[i]);
}

/* ---- several cells ---- */

static const struct dpb_gate_options one_metric = OPTIONS();

static void noisy_side(struct dpb_gate_set *set, size_t cells, size_t runs, double sd,
                       struct dpb_rng *rng, size_t worse, bool is_base)
{
    for (size_t c = 0; c < cells; c++) {
        char name[32];
        double values[VALUES_MAX];

        snprintf(name, sizeof(name), "benchmark %03zu", c);
        for (size_t r = 0; r < runs; r++)
            values[r] = 100 * exp(sd * dpb_rng_normal(rng)) * (c < worse ? 1.2 : 1);
        sample_side(set, name, "step-time-median", values, runs, is_base, ORDER_MIXED);
    }
}

static struct dpb_gate_report compare_noisy(size_t cells, size_t runs, double sd, uint64_t seed,
                                            size_t worse, const struct dpb_gate_options *options)
{
    struct dpb_gate_set base = {.price = NAN}, candidate = {.price = NAN};
    struct dpb_gate_report report;
    struct dpb_rng rng;

    dpb_rng_init(&rng, seed, 0);
    noisy_side(&base, cells, runs, sd, &rng, 0, true);
    noisy_side(&candidate, cells, runs, sd, &rng, worse, false);
    assert_int_equal(dpb_gate_compare(&base, &candidate, options, &report), DPB_OK);
    dpb_gate_set_release(&base);
    dpb_gate_set_release(&candidate);
    return report;
}

/* nodejs/node PR#28867, vllm-project/vllm-xpu-kernels PR#568: of a hundred identical benchmarks
 * some look worse. With margin 0, 5 % of gates may fail, not of benchmarks. */
static void test_a_hundred_identical_benchmarks(void **state)
{
    struct dpb_gate_options options = OPTIONS(.margins = {{{"step-time-median", 0, false}}, 1});
    int failed = 0, raw = 0;

    (void)state;
    for (uint64_t seed = 0; seed < 100; seed++) {
        struct dpb_gate_report report = compare_noisy(100, 6, 0.02, seed, 0, &options);

        failed += report.verdict == DPB_VERDICT_FAIL;
        for (size_t i = 0; i < report.finding_count; i++)
            raw += report.findings[i].result.p_worse < 0.05;
        assert_int_equal(report.family, 100);
        dpb_gate_report_release(&report);
    }
    assert_true(raw > 300 && raw < 650); /* without correction: 5 % of 10000 */
    if (failed > 13)                     /* 99.9 % of binomial(100, 0.05) */
        fail_msg("%d of 100 gates fail", failed);
}

/* pydantic/pydantic-core PR#570: four regressions hide in a mean. vllm-xpu-kernels PR#568: the
 * worst come first. */
static void test_regressions_do_not_hide_among_others(void **state)
{
    struct dpb_gate_report report = compare_noisy(60, 6, 0.01, 7, 4, &one_metric);

    (void)state;
    assert_int_equal(report.verdict, DPB_VERDICT_FAIL);
    assert_int_equal(report.counts[DPB_VERDICT_FAIL], 4);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(report.findings[i].result.verdict, DPB_VERDICT_FAIL);
    for (size_t i = 1; i < 4; i++)
        assert_true(report.findings[i - 1].result.difference >=
                    report.findings[i].result.difference);
    dpb_gate_report_release(&report);
}

/* ohdearquant/lattice PR#1620: nothing was gated. daintreehq/daintree#10007, rjmurillo/
 * moq.analyzers#1310: no baseline for a scenario; a benchmark that was renamed. */
static void test_nothing_and_renamed_are_errors(void **state)
{
    const double values[] = {100, 101, 99};
    struct dpb_gate_set none = {.price = NAN}, some = {.price = NAN}, renamed = {.price = NAN};
    struct dpb_gate_report report;
    const struct {
        const struct dpb_gate_set *base, *candidate;
    } pairs[] = {{&none, &none}, {&none, &some}, {&some, &none}, {&some, &renamed}};

    (void)state;
    sample_side(&some, "old name", "step-time-median", values, 3, true, ORDER_NONE);
    sample_side(&renamed, "new name", "step-time-median", values, 3, true, ORDER_NONE);
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        assert_int_equal(dpb_gate_compare(pairs[i].base, pairs[i].candidate, &one_metric, &report),
                         DPB_OK);
        assert_int_equal(report.verdict, DPB_VERDICT_ERROR);
        dpb_gate_report_release(&report);
    }
    dpb_gate_set_release(&some);
    dpb_gate_set_release(&renamed);
}

/* lodgvideon/poseidon-http-server#103: the current run is copied over the baseline. */
static void test_a_run_against_itself_is_an_error(void **state)
{
    const double values[] = {100, 101, 99};
    struct dpb_gate_set set = {.price = NAN};
    struct dpb_gate_report report;

    (void)state;
    sample_side(&set, CELL, "step-time-median", values, 3, true, ORDER_NONE);
    dpb_sha256_text("a", 1, set.cells[0].runs[1].hash);
    assert_int_equal(dpb_gate_compare(&set, &set, &one_metric, &report), DPB_OK);
    assert_int_equal(report.verdict, DPB_VERDICT_ERROR);
    dpb_gate_report_release(&report);
    dpb_gate_set_release(&set);
}

/* NVIDIA/Megatron-LM PR#4238: thresholds that were never enforced. */
static void test_an_injected_slow_down_fails(void **state)
{
    const double values[] = {100, 101, 99, 100, 100.5, 99.5};
    struct dpb_gate_set set = {.price = NAN}, worse;
    struct dpb_gate_report report;

    (void)state;
    sample_side(&set, CELL, "step-time-median", values, 6, true, ORDER_NONE);
    for (int half = 0; half < 3; half++) {
        assert_int_equal(dpb_gate_set_worsened(&set, 0.2, half, &worse), DPB_OK);
        assert_int_equal(worse.cells[0].run_count, half == 0 ? 6 : 3);
        assert_int_equal(dpb_gate_compare(&set, &worse, &one_metric, &report), DPB_OK);
        assert_int_equal(report.verdict, DPB_VERDICT_FAIL);
        dpb_gate_report_release(&report);
        dpb_gate_set_release(&worse);
    }
    assert_int_equal(dpb_gate_set_worsened(&set, 0, 0, &worse), DPB_OK);
    assert_int_equal(dpb_gate_compare(&set, &worse, &one_metric, &report), DPB_OK);
    assert_int_equal(report.verdict, DPB_VERDICT_PASS);
    dpb_gate_report_release(&report);
    dpb_gate_set_release(&worse);
    dpb_gate_set_release(&set);
}

/* Counters of any size differ, or are refused: one that does not fit must not look the same. */
/* ChainSafe/lodestar#10074: with a baseline that is far off a gate cannot fail any more. */
static void test_a_gain_that_is_too_large_is_doubtful(void **state)
{
    static const struct {
        const char *metric;
        double factor;
        bool is_improved, is_doubtful;
    } cases[] = {
            {"step-time-median", 0.5, true, true},   {"step-time-median", 0.8, true, false},
            {"step-time-median", 1.0, false, false}, {"step-time-median", 2.0, false, false},
            {"throughput", 2.0, true, true},         {"throughput", 1.25, true, false},
            {"throughput", 0.5, false, false},
    };
    const double values[] = {100, 101, 99, 100, 100.5, 99.5};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct dpb_gate_set base = {.price = NAN}, candidate = {.price = NAN};
        const struct dpb_gate_options options = {
                .alpha = 0.05, .looks = 1, .gating = cases[i].metric};
        struct dpb_gate_report report;
        struct dpb_str text = {0};
        double others[6];

        for (int v = 0; v < 6; v++)
            others[v] = values[v] * cases[i].factor;
        sample_side(&base, CELL, cases[i].metric, values, 6, true, ORDER_NONE);
        sample_side(&candidate, CELL, cases[i].metric, others, 6, false, ORDER_NONE);
        assert_int_equal(dpb_gate_compare(&base, &candidate, &options, &report), DPB_OK);
        assert_int_equal(report.findings[0].is_improved, cases[i].is_improved);
        assert_int_equal(report.findings[0].is_doubtful, cases[i].is_doubtful);
        assert_int_equal(dpb_json_write(report.notes, false, &text), DPB_OK);
        assert_int_equal(strstr(text.text, "the baseline is doubtful") != NULL,
                         cases[i].is_doubtful);
        dpb_str_release(&text);
        dpb_gate_report_release(&report);
        dpb_gate_set_release(&base);
        dpb_gate_set_release(&candidate);
    }
}

static void test_large_counters_still_differ(void **state)
{
    static const struct {
        double base, candidate;
        enum dpb_verdict verdict;
    } cases[] = {{1e17, 1e17, DPB_VERDICT_PASS},
                 {1e17, 2e17, DPB_VERDICT_FAIL},
                 {1e19, 2e19, DPB_VERDICT_ERROR},
                 {100, 100.5, DPB_VERDICT_FAIL}};
    struct dpb_gate_options options = {.alpha = 0.05, .looks = 1, .gating = "wire-bytes"};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct dpb_gate_set base = {.price = NAN}, candidate = {.price = NAN};
        struct dpb_gate_report report;

        sample_side(&base, CELL, "wire-bytes", &cases[i].base, 1, true, ORDER_NONE);
        sample_side(&candidate, CELL, "wire-bytes", &cases[i].candidate, 1, false, ORDER_NONE);
        assert_int_equal(dpb_gate_compare(&base, &candidate, &options, &report), DPB_OK);
        assert_int_equal(report.verdict, cases[i].verdict);
        dpb_gate_report_release(&report);
        dpb_gate_set_release(&base);
        dpb_gate_set_release(&candidate);
    }
}

/* dfinity/canbench PR#30: an absolute rule decides from zero. */
static void test_absolute_margin_decides_from_zero(void **state)
{
    const double zero[] = {0, 0, 0, 0}, some[] = {5, 5.1, 4.9, 5};
    struct dpb_gate_options options = {
            .alpha = 0.05,
            .looks = 1,
            .gating = "energy-per-sample",
            .margins = {{{"energy-per-sample", 0.5, true}}, 1},
    };
    struct dpb_gate_set base = {.price = NAN}, candidate = {.price = NAN};
    struct dpb_gate_report report;

    (void)state;
    sample_side(&base, CELL, "energy-per-sample", zero, 4, true, ORDER_NONE);
    sample_side(&candidate, CELL, "energy-per-sample", some, 4, false, ORDER_NONE);
    assert_int_equal(dpb_gate_compare(&base, &candidate, &options, &report), DPB_OK);
    assert_int_equal(report.verdict, DPB_VERDICT_FAIL);
    dpb_gate_report_release(&report);
    options.margins.items[0].value = 10;
    assert_int_equal(dpb_gate_compare(&base, &candidate, &options, &report), DPB_OK);
    assert_int_equal(report.verdict, DPB_VERDICT_PASS);
    dpb_gate_report_release(&report);
    dpb_gate_set_release(&base);
    dpb_gate_set_release(&candidate);
}

/* open-telemetry/opentelemetry-go PR#2649: thresholds grow because nobody sees what can be found.
 */
static void test_every_decision_names_what_it_could_have_found(void **state)
{
    struct dpb_gate_report report = compare_noisy(5, 6, 0.01, 3, 0, &one_metric);
    struct dpb_gate_report more = compare_noisy(5, 12, 0.01, 3, 0, &one_metric);
    double few = 0, many = 0;

    (void)state;
    for (size_t i = 0; i < 5; i++) {
        assert_true(report.findings[i].result.mde > 0);
        few += report.findings[i].result.mde;
        many += more.findings[i].result.mde;
    }
    assert_true(many < few); /* DataDog/dd-trace-dotnet PR#8559: half the launches see less */
    dpb_gate_report_release(&report);
    dpb_gate_report_release(&more);
}

/* ---- calibration ---- */

static struct dpb_gate_calibration calibrate(const double *values, size_t count)
{
    struct dpb_gate_set set = {.price = NAN};
    struct dpb_gate_calibration *cells, result;
    size_t cell_count;

    sample_side(&set, CELL, "step-time-median", values, count, true, ORDER_MIXED);
    assert_int_equal(dpb_gate_calibrate(&set, NULL, 0.02, 500, 1, &cells, &cell_count), DPB_OK);
    assert_int_equal(cell_count, 1);
    result = cells[0];
    result.cell = NULL;
    dpb_gate_calibration_free(cells, cell_count);
    dpb_gate_set_release(&set);
    return result;
}

/* lodgvideon/poseidon-http-server#126, pytorch/benchmark#1519, vectordotdev/vector#5394. */
static void test_calibrate_refuses_drift_and_few_runs(void **state)
{
    const double drifting[] = {100, 103, 105, 109, 112, 113, 118, 120, 124, 127};
    const double quiet[] = {100, 101, 99, 100.4, 99.8, 100.9, 99.3, 100.1, 100.6, 99.6};
    struct dpb_gate_calibration c = calibrate(drifting, 10);

    (void)state;
    assert_false(c.may_block);
    assert_non_null(strstr(c.why, "drift"));
    c = calibrate(quiet, 10);
    assert_true(c.may_block);
    assert_true(c.fail_share <= 0.1 && c.accept_low < 0.05 && c.accept_high > 0.05);
    assert_true(fabs(c.sd_run - 0.0064) < 0.0005);
    assert_true(c.recommended >= 2 && c.recommended < 6);
    c = calibrate(quiet, 9);
    assert_false(c.may_block);
    assert_non_null(strstr(c.why, "10 are needed"));
    c = calibrate(quiet, 3);
    assert_false(c.may_block);
    assert_true(isnan(c.fail_share));
}

/* ---- real series ---- */

static void read_line(const char *line, struct dpb_json **one, double **values, size_t *count)
{
    assert_int_equal(dpb_json_parse(line, strlen(line), one, NULL), DPB_OK);
    const dpb_json *seconds = dpb_json_get(*one, "seconds");
    *count = dpb_json_size(seconds);
    *values = calloc(*count + 1, sizeof(**values));
    for (size_t i = 0; i < *count; i++)
        (*values)[i] = dpb_json_as_real(dpb_json_at(seconds, i), NAN);
}

/* One half of a run as a side of one run; 0: it has too few steady steps. */
static size_t half_as_run(struct dpb_gate_set *set, const double *values, size_t count)
{
    static const char *const metrics[] = {"step-time-median", "step-time-mean", "step-time-p95"};
    double theta;
    char why[160];

    for (int s = 0; s <= DPB_RUN_P95; s++) {
        if (dpb_gate_run(values, count, dpb_gate_warmup(count), s, &theta, why, sizeof(why)) < 0)
            return 0;
        if (s == 0)
            sample_run(set, CELL, metrics[s], exp(theta), NAN, -1);
        else
            assert_int_equal(dpb_gate_cell_set_value(&set->cells[0], 0,
                                                     dpb_gate_metric_find(metrics[s]), exp(theta)),
                             DPB_OK);
    }
    return 1;
}

/* 294 runs of NVIDIA/Megatron-LM: the second half against the first of the same run never fails at
 * one run a side (the rank test of steps says so of 62 %). */
static void test_halves_of_real_runs_never_fail(void **state)
{
    FILE *file = fopen(DPB_TEST_DATA "/megatron/head_series.jsonl", "r");
    const struct dpb_gate_options options = DPB_GATE_OPTIONS_DEFAULT;
    char *line = NULL;
    size_t room = 0, series = 0, compared = 0;

    (void)state;
    assert_non_null(file);
    while (getline(&line, &room, file) > 0) {
        struct dpb_gate_set base = {.price = NAN}, candidate = {.price = NAN};
        struct dpb_gate_report report;
        dpb_json *one;
        double *values;
        size_t count;

        read_line(line, &one, &values, &count);
        const size_t sides = half_as_run(&base, values, count / 2) +
                             half_as_run(&candidate, values + count / 2, count - count / 2);
        assert_int_equal(dpb_gate_compare(&base, &candidate, &options, &report), DPB_OK);
        assert_int_equal(report.verdict, sides == 2 ? DPB_VERDICT_INCONCLUSIVE : DPB_VERDICT_ERROR);
        compared += sides == 2;
        series++;
        dpb_gate_report_release(&report);
        dpb_gate_set_release(&base);
        dpb_gate_set_release(&candidate);
        free(values);
        dpb_json_free(one);
    }
    free(line);
    fclose(file);
    assert_int_equal(series, 294);
    assert_true(compared > 200);
}

/* ---- records ---- */

static struct dpb_gate_set from_steps(const double *steps, size_t count, size_t runs,
                                      const char *run_id, const char *fingerprint)
{
    struct dpb_gate_set set = {.price = NAN};
    struct dpb_records records = {calloc(runs, sizeof(dpb_json *)), runs, 0};
    double *samples = malloc(count * sizeof(*samples));

    for (size_t r = 0; r < runs; r++) {
        struct sample_record sample = sample_record_default;

        for (size_t i = 0; i < count; i++)
            samples[i] = steps[i] * (1 + 0.001 * (double)(r % 3));
        sample.run_id = run_id;
        sample.repeat = (int64_t)r;
        sample.samples_ns = samples;
        sample.sample_count = count;
        sample.fingerprint = fingerprint;
        records.items[r] = sample_record_make(&sample);
    }
    free(samples);
    assert_int_equal(dpb_gate_set_from_records(&records, DPB_GATE_SIDE_ALL, 2, &set), DPB_OK);
    dpb_records_release(&records);
    return set;
}

static enum dpb_verdict verdict_of(struct dpb_gate_set base, struct dpb_gate_set candidate,
                                   const struct dpb_gate_options *options, char reason[160])
{
    struct dpb_gate_report report;

    assert_int_equal(dpb_gate_compare(&base, &candidate, options, &report), DPB_OK);
    const enum dpb_verdict verdict = report.verdict;
    snprintf(reason, 160, "%s", report.findings[0].result.reason);
    dpb_gate_report_release(&report);
    dpb_gate_set_release(&base);
    dpb_gate_set_release(&candidate);
    return verdict;
}

/* NVIDIA/Megatron-LM#4654: steps of the warm-up, 15.87 s against 9.37 s, failed three retries.
 * PR#5023: an empty window is NaN, and NaN is no pass. */
static void test_warm_up_and_empty_windows(void **state)
{
    const struct dpb_gate_options options = DPB_GATE_OPTIONS_DEFAULT;
    double calm[40], cold[40];
    char reason[160];

    (void)state;
    for (int i = 0; i < 40; i++)
        calm[i] = cold[i] = 9.3e9 + 1e6 * (i % 7);
    cold[0] = 30e9;
    cold[1] = 15.87e9;
    assert_int_equal(verdict_of(from_steps(calm, 40, 4, "a", "f"),
                                from_steps(cold, 40, 4, "b", "f"), &options, reason),
                     DPB_VERDICT_PASS);
    assert_int_equal(verdict_of(from_steps(calm, 40, 4, "a", "f"),
                                from_steps(calm, 12, 4, "b", "f"), &options, reason),
                     DPB_VERDICT_ERROR);
    assert_non_null(strstr(reason, "steps after"));
}

/* Runs of 40 steps on 2 ranks with the same exposed share; the trace of one lost `lost` events. */
static struct dpb_gate_set traced_runs(const char *run_id, int64_t lost)
{
    struct dpb_records records = {calloc(4, sizeof(dpb_json *)), 4, 0};
    struct dpb_gate_set set = {.price = NAN};
    double steps[40];

    for (int i = 0; i < 40; i++)
        steps[i] = 9e6 + 1e3 * (i % 7);
    for (int64_t r = 0; r < 4; r++) {
        struct sample_record sample = sample_record_default;

        sample.run_id = run_id;
        sample.repeat = r;
        sample.ranks = 2;
        sample.samples_ns = steps;
        sample.sample_count = 40;
        sample.comm_ns = sample.exposed_ns = 1e6;
        sample.busbw_bytes_per_s = 1e9;
        sample.trace_lost = r == 2 ? lost : 0;
        records.items[r] = sample_record_make(&sample);
    }
    assert_int_equal(dpb_gate_set_from_records(&records, DPB_GATE_SIDE_ALL, NAN, &set), DPB_OK);
    dpb_records_release(&records);
    return set;
}

/* pytorch/kineto#1362: what follows from an incomplete trace decides nothing; step times do. */
static void test_traces_that_lost_events_decide_nothing(void **state)
{
    struct dpb_gate_options options = {.alpha = 0.05, .looks = 1, .gating = "exposed-share"};
    struct dpb_gate_set lossy = traced_runs("b", 1);
    char reason[160];

    (void)state;
    assert_true(isnan(dpb_gate_cell_values(&lossy.cells[0], "exposed-share")[2]));
    assert_true(isnan(dpb_gate_cell_values(&lossy.cells[0], "bus-bandwidth")[2]));
    assert_string_equal(lossy.notes, "the traces of 1 of 4 runs lost events: exposed-share, "
                                     "bus-bandwidth and collectives of these are not used");
    dpb_gate_set_release(&lossy);
    assert_int_equal(verdict_of(traced_runs("a", 0), traced_runs("b", 0), &options, reason),
                     DPB_VERDICT_PASS);
    assert_int_equal(verdict_of(traced_runs("a", 0), traced_runs("b", 1), &options, reason),
                     DPB_VERDICT_ERROR);
    assert_string_equal(reason, "a run of the candidate does not have it");
    options.gating = "step-time-median";
    assert_int_equal(verdict_of(traced_runs("a", 0), traced_runs("b", 1), &options, reason),
                     DPB_VERDICT_PASS);
}

static void test_other_machines_are_refused(void **state)
{
    struct dpb_gate_options options = DPB_GATE_OPTIONS_DEFAULT;
    double steps[40];
    char reason[160];

    (void)state;
    for (int i = 0; i < 40; i++)
        steps[i] = 9e6 + 1e3 * (i % 7);
    assert_int_equal(verdict_of(from_steps(steps, 40, 4, "a", "f"),
                                from_steps(steps, 40, 4, "b", "g"), &options, reason),
                     DPB_VERDICT_REFUSED);
    assert_non_null(strstr(reason, "fingerprint: f, g"));
    options.allow = "fingerprint";
    assert_int_equal(verdict_of(from_steps(steps, 40, 4, "a", "f"),
                                from_steps(steps, 40, 4, "b", "g"), &options, reason),
                     DPB_VERDICT_PASS);
}

/* Whatever is broken in the candidate of a gate that does not pass, it does not pass then. */
static void test_no_corruption_makes_a_pass(void **state)
{
    const struct dpb_gate_options options = DPB_GATE_OPTIONS_DEFAULT;
    struct dpb_rng rng;

    (void)state;
    dpb_rng_init(&rng, 11, 0);
    for (int i = 0; i < 2000; i++) {
        struct dpb_gate_set base = {.price = NAN}, candidate = {.price = NAN};
        double values[6], slow[6];
        struct dpb_gate_report report;
        const size_t at = dpb_rng_below(&rng, 6);
        static const double poison[] = {NAN, INFINITY, -INFINITY, 0, -1};

        for (int r = 0; r < 6; r++) {
            values[r] = 100 * exp(0.01 * dpb_rng_normal(&rng));
            slow[r] = 110 * exp(0.01 * dpb_rng_normal(&rng));
        }
        sample_side(&base, CELL, "step-time-median", values, 6, true, ORDER_MIXED);
        sample_side(&candidate, CELL, "step-time-median", slow, 6, false, ORDER_MIXED);
        struct dpb_gate_set *broken = dpb_rng_below(&rng, 2) ? &base : &candidate;
        struct dpb_gate_cell *cell = &broken->cells[0];
        switch (dpb_rng_below(&rng, 6)) {
        case 0: /* a value */
            cell->metrics[0].values[at] = poison[dpb_rng_below(&rng, 5)];
            break;
        case 1: /* runs lost */
            cell->run_count = at;
            break;
        case 2: /* the metric lost */
            free(cell->metrics[0].values);
            cell->metric_count = 0;
            break;
        case 3: /* another name */
            cell->name[0] = 'x';
            break;
        case 4: /* no cell */
            broken->cell_count = 0;
            break;
        default: /* a failed run */
            snprintf(cell->trouble, sizeof(cell->trouble), "a run is failed");
        }
        assert_int_equal(dpb_gate_compare(&base, &candidate, &options, &report), DPB_OK);
        if (report.verdict == DPB_VERDICT_PASS)
            fail_msg("corruption %d passes", i);
        dpb_gate_report_release(&report);
        base.cell_count = base.cells ? 1 : 0;
        candidate.cell_count = candidate.cells ? 1 : 0;
        dpb_gate_set_release(&base);
        dpb_gate_set_release(&candidate);
    }
}

/* ---- options ---- */

static void test_margins_that_are_none(void **state)
{
    static const char *const bad[] = {"step-time-median",
                                      "step-time-median=abc",
                                      "step-time-median=-1%",
                                      "step-time=2%",
                                      "=2%",
                                      "step-time-median=nan",
                                      "step-time-median="};
    struct dpb_gate_margins margins;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(dpb_gate_margins_parse(bad[i], &margins), DPB_ERR_USAGE);
    assert_int_equal(dpb_gate_margins_parse("step-time-median=3%,loss=+0.02", &margins), DPB_OK);
    assert_int_equal(margins.count, 2);
    assert_true(margins.items[0].value == 0.03 && !margins.items[0].is_absolute);
    assert_true(margins.items[1].value == 0.02 && margins.items[1].is_absolute);
    assert_true(dpb_gate_list_has("lr, global_batch", "global-batch"));
    assert_false(dpb_gate_list_has("lr,global-batch", "batch"));
    assert_false(dpb_gate_list_has(NULL, "lr"));
}

static void test_gating_on_an_unknown_metric_is_a_mistake(void **state)
{
    struct dpb_gate_set none = {.price = NAN};
    struct dpb_gate_options options = DPB_GATE_OPTIONS_DEFAULT;
    struct dpb_gate_report report;

    (void)state;
    options.gating = "step-time-median,stepp-time";
    assert_int_equal(dpb_gate_compare(&none, &none, &options, &report), DPB_ERR_USAGE);
    options.gating = NULL;
    options.looks = 4;
    assert_int_equal(dpb_gate_compare(&none, &none, &options, &report), DPB_ERR_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_situations),
            cmocka_unit_test(test_a_hundred_identical_benchmarks),
            cmocka_unit_test(test_regressions_do_not_hide_among_others),
            cmocka_unit_test(test_nothing_and_renamed_are_errors),
            cmocka_unit_test(test_a_run_against_itself_is_an_error),
            cmocka_unit_test(test_an_injected_slow_down_fails),
            cmocka_unit_test(test_a_gain_that_is_too_large_is_doubtful),
            cmocka_unit_test(test_large_counters_still_differ),
            cmocka_unit_test(test_absolute_margin_decides_from_zero),
            cmocka_unit_test(test_every_decision_names_what_it_could_have_found),
            cmocka_unit_test(test_calibrate_refuses_drift_and_few_runs),
            cmocka_unit_test(test_halves_of_real_runs_never_fail),
            cmocka_unit_test(test_warm_up_and_empty_windows),
            cmocka_unit_test(test_traces_that_lost_events_decide_nothing),
            cmocka_unit_test(test_other_machines_are_refused),
            cmocka_unit_test(test_no_corruption_makes_a_pass),
            cmocka_unit_test(test_margins_that_are_none),
            cmocka_unit_test(test_gating_on_an_unknown_metric_is_a_mistake),
    };
    return DPB_RUN_TESTS(tests);
}

#include <math.h>

#include "dpb_log.h"
#include "dpb_str.h"
#include "dpb_summary.h"
#include "dpb_test.h"
#include "dpb_sample_record.h"

static void drop_log(void *ctx, enum dpb_log_level level, const char *line)
{
    (void)ctx;
    (void)level;
    (void)line;
}

static struct dpb_records records;
static struct dpb_summary summary;

static int set_up(void **state)
{
    (void)state;
    dpb_log_set_sink(drop_log, NULL);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    dpb_summary_release(&summary);
    dpb_records_release(&records);
    dpb_log_set_sink(NULL, NULL);
    return 0;
}

static void add(const struct sample_record *sample)
{
    records.items = realloc(records.items, (records.count + 1) * sizeof(records.items[0]));
    assert_non_null(records.items);
    records.items[records.count++] = sample_record_make(sample);
}

/* One ok repeat whose steps all take `step_ms`. */
static struct sample_record cell(int64_t number, int ranks, double step_ms)
{
    static double samples[64][4];
    static int used;
    double *own = samples[used++ % 64];
    struct sample_record sample = sample_record_default;
    int i;

    for (i = 0; i < 4; i++)
        own[i] = step_ms * 1e6;
    sample.cell = number;
    sample.ranks = ranks;
    sample.global_batch = ranks * sample.batch_per_rank;
    sample.samples_ns = own;
    sample.sample_count = 4;
    sample.axes[0] = (struct sample_axis){"ranks", ranks == 1 ? "1" : ranks == 2 ? "2" : "4"};
    return sample;
}

static void add_cell(int64_t number, int ranks, double step_ms)
{
    struct sample_record sample = cell(number, ranks, step_ms);

    add(&sample);
}

static const struct dpb_cell_summary *find(int64_t number)
{
    size_t i;

    for (i = 0; i < summary.cell_count; i++) {
        if (summary.cells[i].cell == number)
            return &summary.cells[i];
    }
    fail_msg("no cell %d", (int)number);
    return NULL;
}

#define assert_near(value, expected)                                                               \
    do {                                                                                           \
        double value_ = (value), expected_ = (expected);                                           \
        if (!(fabs(value_ - expected_) <= 1e-12 * fabs(expected_)))                                \
            fail_msg("%s = %.17g, expected %.17g", #value, value_, expected_);                     \
    } while (0)
#define assert_nan(value) assert_true(isnan(value))

static void assert_note(const char *text, bool expected)
{
    dpb_json *notes = dpb_summary_notes(&summary);
    bool found = false;
    size_t i;

    for (i = 0; i < dpb_json_size(notes); i++)
        found = found || strstr(dpb_json_as_string(dpb_json_at(notes, i), ""), text);
    if (found != expected) {
        for (i = 0; i < dpb_json_size(notes); i++)
            print_message("%s\n", dpb_json_as_string(dpb_json_at(notes, i), ""));
        fail_msg("the note \"%s\" is %s", text, expected ? "missing" : "there");
    }
    dpb_json_free(notes);
}

static void test_weak_scaling(void **state)
{
    (void)state;
    add_cell(0, 1, 10);
    add_cell(1, 2, 12.5);
    add_cell(2, 3, 16); /* not a power of two */
    add_cell(3, 4, 20);
    assert_int_equal(dpb_summary_compute(&records, &summary), DPB_OK);
    assert_int_equal(summary.cell_count, 4);
    assert_near(find(0)->samples_per_s_total, 800);
    assert_near(find(0)->efficiency, 1);
    assert_near(find(0)->speedup, 1);
    assert_near(find(1)->samples_per_s_total, 1280);
    assert_near(find(1)->samples_per_s_per_rank, 640);
    assert_near(find(1)->efficiency, 0.8);
    assert_near(find(1)->speedup, 1.6);
    assert_near(find(2)->efficiency, 0.625);
    assert_near(find(2)->speedup, 1.875);
    assert_near(find(3)->efficiency, 0.5);
    assert_int_equal(find(3)->baseline_ranks, 1);
    assert_ptr_equal(find(3)->baseline, find(0));
    assert_true(find(3)->weak);
    /* one repeat has no interval */
    assert_nan(find(3)->efficiency_ci95.low);
    assert_nan(find(3)->step_ci95_ns.high);
    assert_note("fewer than 3 ok repeats", true);
}

static void test_strong_scaling(void **state)
{
    int ranks;

    (void)state;
    for (ranks = 1; ranks <= 4; ranks++) {
        /* T(n) = 24/n + 2 ms with a global batch of 24 */
        struct sample_record sample = cell(ranks, ranks, 24.0 / ranks + 2);

        sample.scaling = "strong";
        sample.global_batch = 24;
        sample.batch_per_rank = 24 / ranks;
        add(&sample);
    }
    assert_int_equal(dpb_summary_compute(&records, &summary), DPB_OK);
    assert_near(find(1)->efficiency, 1);
    assert_near(find(2)->efficiency, 26.0 / (2 * 14));
    assert_near(find(3)->efficiency, 26.0 / (3 * 10));
    assert_near(find(3)->speedup, 2.6);
    assert_near(find(4)->efficiency, 26.0 / (4 * 8));
    assert_false(find(4)->weak);
    assert_int_equal(find(4)->global_batch, 24);
}

/* An interrupted repeat says nothing of a link, whether it was run again or not. */
static void test_emulated_is_what_ran(void **state)
{
    struct sample_record interrupted = cell(0, 2, 10), again = cell(0, 2, 10);
    struct sample_record failed = cell(1, 4, 10), other = cell(1, 4, 10);

    (void)state;
    interrupted.status = "interrupted";
    failed.status = "failed";
    other.repeat = 1;
    again.emulated = other.emulated = true;
    add(&interrupted);
    add(&failed);
    add(&again);
    add(&other);
    assert_int_equal(dpb_summary_compute(&records, &summary), DPB_OK);
    assert_true(find(0)->emulated);
    assert_true(find(1)->emulated);
}

static void test_baseline_of_two_ranks(void **state)
{
    (void)state;
    add_cell(0, 2, 10);
    add_cell(1, 4, 12.5);
    assert_int_equal(dpb_summary_compute(&records, &summary), DPB_OK);
    assert_int_equal(find(1)->baseline_ranks, 2);
    assert_near(find(1)->efficiency, 0.8);
    assert_near(find(1)->speedup, 3.2);
    assert_near(find(0)->efficiency, 1);
    assert_near(find(0)->speedup, 2);
    assert_note("against 2 ranks", true);
}

static void test_baseline_through_compute_series(void **state)
{
    struct sample_record one = cell(0, 1, 10), on = cell(1, 2, 12.5), off = cell(2, 2, 16);

    (void)state;
    one.series = "the one-rank cell has its own name";
    on.series = "batch-per-rank=8 overlap=on";
    off.series = "batch-per-rank=8 overlap=off";
    add(&one);
    add(&on);
    add(&off);
    assert_int_equal(dpb_summary_compute(&records, &summary), DPB_OK);
    assert_int_equal(find(1)->baseline_ranks, 1);
    assert_near(find(1)->efficiency, 0.8);
    assert_near(find(2)->efficiency, 0.625);
    assert_ptr_equal(find(2)->baseline, find(0));
}

/* One rank has a cell for each strategy, and one for all buckets. */
static void test_axes_of_one_rank(void **state)
{
    struct sample_record one = cell(0, 1, 10);

    (void)state;
    one.series = "batch-per-rank=8 bucket=1MiB strategy=ddp";
    one.compute_series = "batch-per-rank=8";
    one.axes[1] = (struct sample_axis){"strategy", "ddp"};
    one.axes[2] = (struct sample_axis){"bucket", "1MiB"};
    add(&one);
    assert_int_equal(dpb_summary_compute(&records, &summary), DPB_OK);
    assert_string_equal(dpb_cell_axis(find(0), "strategy"), "ddp");
    assert_null(dpb_cell_axis(find(0), "bucket"));
}

static void test_an_interval_that_tells_nothing_says_so(void **state)
{
    struct dpb_str text = {0};

    (void)state;
    dpb_ratio_interval_text((struct dpb_interval95){0.681, 0.74}, 100, 1, " %", &text);
    assert_string_equal(text.text, "68.1 to 74.0 %");
    dpb_str_release(&text);
    dpb_ratio_interval_text((struct dpb_interval95){0.02, 2.001}, 100, 1, " %", &text);
    assert_string_equal(text.text, "wider than x100");
    dpb_str_release(&text);
}

static void test_no_baseline(void **state)
{
    struct sample_record two = cell(0, 2, 10), four = cell(1, 4, 10), one = cell(2, 1, 10);

    (void)state;
    two.series = "a";
    four.series = "b";
    one.compute_series = one.series = "c";
    add(&two);
    add(&four);
    add(&one);
    assert_int_equal(dpb_summary_compute(&records, &summary), DPB_OK);
    assert_nan(find(0)->efficiency);
    assert_nan(find(0)->speedup);
    assert_int_equal(find(0)->baseline_ranks, 0);
    assert_null(find(0)->baseline);
    assert_nan(find(1)->efficiency);
    assert_near(find(2)->efficiency, 1);
    assert_note("no scaling efficiency", true);
}

/* Same series, but another batch, machine, scaling or a simulation: not comparable. */
static void test_baseline_must_be_comparable(void **state)
{
    struct sample_record one = cell(0, 1, 10), batch = cell(1, 2, 10), host = cell(2, 2, 10);
    struct sample_record strong = cell(3, 2, 10), simulated = cell(4, 2, 10);

    (void)state;
    batch.batch_per_rank = 16;
    host.fingerprint = "another";
    strong.scaling = "strong";
    simulated.simulated = true;
    add(&one);
    add(&batch);
    add(&host);
    add(&strong);
    add(&simulated);
    assert_int_equal(dpb_summary_compute(&records, &summary), DPB_OK);
    assert_nan(find(1)->efficiency);
    assert_nan(find(2)->efficiency);
    assert_nan(find(3)->efficiency);
    assert_nan(find(4)->efficiency);
    assert_note("fingerprints differ", true);
}

static void test_baseline_of_the_same_run_first(void **state)
{
    struct sample_record a1 = cell(0, 1, 10), a2 = cell(1, 2, 20), b1 = cell(2, 1, 5);
    struct sample_record b2 = cell(3, 2, 10), c2 = cell(4, 2, 10);

    (void)state;
    a1.run_id = a2.run_id = "a";
    b1.run_id = b2.run_id = "b";
    c2.run_id = "c"; /* has none of its own: either will do */
    add(&b1);
    add(&a1);
    add(&a2);
    add(&b2);
    add(&c2);
    assert_int_equal(dpb_summary_compute(&records, &summary), DPB_OK);
    assert_near(find(1)->efficiency, 0.5);
    assert_near(find(3)->efficiency, 0.5);
    assert_int_equal(find(4)->baseline_ranks, 1);
}

static void test_failed_cells_are_absent_not_zero(void **state)
{
    struct sample_record one = cell(0, 1, 10), failed = cell(1, 2, 10), late = cell(2, 4, 10);
    struct sample_record again = cell(2, 4, 12.5);

    (void)state;
    failed.status = "failed";
    failed.reason = "rank 1 ended with signal 9";
    late.status = "timeout";
    late.reason = "no step within 30s";
    again.repeat = 1;
    add(&one);
    add(&failed);
    add(&late);
    add(&again);
    assert_int_equal(dpb_summary_compute(&records, &summary), DPB_OK);
    assert_int_equal(find(1)->repeats_ok, 0);
    assert_int_equal(find(1)->repeats_not_ok, 1);
    assert_string_equal(find(1)->not_ok_status, "failed");
    assert_string_equal(find(1)->not_ok_reason, "rank 1 ended with signal 9");
    assert_nan(find(1)->step_median_ns);
    assert_nan(find(1)->step_mean_ns);
    assert_nan(find(1)->samples_per_s_total);
    assert_nan(find(1)->efficiency);
    assert_null(find(1)->baseline);
    /* the repeat that timed out takes nothing from the one that did not */
    assert_int_equal(find(2)->repeats_ok, 1);
    assert_int_equal(find(2)->repeats_not_ok, 1);
    assert_near(find(2)->step_median_ns, 12.5e6);
    assert_near(find(2)->efficiency, 0.8);
    assert_note("not every repeat is ok", true);
}

static void test_nothing_ok(void **state)
{
    struct sample_record failed = cell(0, 2, 10);

    (void)state;
    failed.status = "failed";
    failed.reason = "why not";
    add(&failed);
    assert_int_equal(dpb_summary_compute(&records, &summary), DPB_ERR_NO_DATA);
    assert_int_equal(summary.cell_count, 1);
    assert_string_equal(summary.cells[0].not_ok_reason, "why not");
}

static void test_no_records_at_all(void **state)
{
    (void)state;
    assert_int_equal(dpb_summary_compute(&records, &summary), DPB_ERR_NO_DATA);
    assert_int_equal(summary.cell_count, 0);
}

static void test_a_failed_baseline_is_not_used(void **state)
{
    struct sample_record one = cell(0, 1, 10);

    (void)state;
    one.status = "invalid";
    one.reason = "loss is not finite";
    add(&one);
    add_cell(1, 2, 10);
    add_cell(2, 4, 20);
    assert_int_equal(dpb_summary_compute(&records, &summary), DPB_OK);
    assert_nan(find(0)->efficiency);
    assert_int_equal(find(2)->baseline_ranks, 2);
    assert_near(find(2)->efficiency, 0.5);
}

/* 8 samples in 1 s and 8 in 3 s are 4 per second, not the mean of the rates. */
static void test_rates_are_not_averaged(void **state)
{
    static const double samples[] = {1e9, 3e9};
    struct sample_record sample = sample_record_default;

    (void)state;
    sample.samples_ns = samples;
    sample.sample_count = 2;
    add(&sample);
    sample.repeat = 1;
    add(&sample);
    assert_int_equal(dpb_summary_compute(&records, &summary), DPB_OK);
    assert_near(summary.cells[0].samples_per_s_total, 4);
    assert_near(summary.cells[0].step_mean_ns, 2e9);
}

static void test_intervals_come_from_repeats(void **state)
{
    static const double step_ms[] = {100, 110, 90, 100, 105};
    struct sample_record sample;
    struct dpb_interval95 expected;
    double one_rates[5], two_rates[5], baseline_ms[] = {10, 11, 9, 10, 10.5};
    int64_t repeat;

    (void)state;
    for (repeat = 0; repeat < 5; repeat++) {
        sample = cell(0, 1, baseline_ms[repeat]);
        sample.repeat = repeat;
        add(&sample);
        sample = cell(1, 2, step_ms[repeat]);
        sample.repeat = repeat;
        add(&sample);
        one_rates[repeat] = 8 / (baseline_ms[repeat] * 1e-3);
        two_rates[repeat] = 16 / (step_ms[repeat] * 1e-3);
    }
    assert_int_equal(dpb_summary_compute(&records, &summary), DPB_OK);
    assert_int_equal(find(1)->repeats_ok, 5);
    assert_near(find(1)->step_median_ns, 100e6);
    assert_near(find(1)->step_mean_ns, 101e6);
    assert_true(fabs(find(1)->step_ci95_ns.high - (101e6 + 9.208427e6)) < 1);
    assert_true(fabs(find(1)->step_ci95_ns.low - (101e6 - 9.208427e6)) < 1);
    expected = dpb_stats_ratio_ci95(two_rates, 5, one_rates, 5);
    assert_near(find(1)->efficiency_ci95.low, expected.low / 2);
    assert_near(find(1)->efficiency_ci95.high, expected.high / 2);
    assert_true(find(1)->efficiency > find(1)->efficiency_ci95.low &&
                find(1)->efficiency < find(1)->efficiency_ci95.high);
    /* the baseline is 1 by definition */
    assert_nan(find(0)->efficiency_ci95.low);
    /* 20 steps: p5 and p95 lie inside, p99 does not */
    assert_true(isfinite(find(1)->step_p95_ns) && isfinite(find(1)->step_p5_ns));
    assert_nan(find(1)->step_p99_ns);
    assert_note("fewer than 3 ok repeats", false);
}

static void test_a_repeated_repeat_counts_once(void **state)
{
    struct sample_record sample = cell(0, 1, 10);

    (void)state;
    sample.status = "interrupted";
    add(&sample);
    sample.status = "ok";
    add(&sample);
    assert_int_equal(dpb_summary_compute(&records, &summary), DPB_OK);
    assert_int_equal(summary.cells[0].repeats_ok, 1);
    assert_int_equal(summary.cells[0].repeats_not_ok, 0);
    assert_int_equal(summary.superseded, 1);
    assert_note("replaced by a later one", true);
}

static void test_breakdown_per_rank_and_step(void **state)
{
    struct sample_record one = cell(0, 1, 20), four = cell(1, 4, 20);

    (void)state;
    four.comm_ns = 8e6;
    four.exposed_ns = 2e6;
    four.comm_wait_ns = 0.5e6;
    four.busbw_bytes_per_s = 1e9;
    one.busbw_bytes_per_s = 1e9;
    add(&one);
    add(&four);
    four.repeat = 1;
    four.exposed_ns = 4e6;
    add(&four);
    assert_int_equal(dpb_summary_compute(&records, &summary), DPB_OK);
    assert_near(find(1)->span_ns, 20e6);
    assert_near(find(1)->comm_ns, 8e6);
    assert_near(find(1)->exposed_ns, 3e6);
    assert_near(find(1)->overlap_ns, 5e6);
    assert_near(find(1)->compute_ns, 16e6);
    assert_near(find(1)->idle_ns, 1e6);
    assert_near(find(1)->data_ns, 0.25e6);
    assert_near(find(1)->comm_wait_ns, 0.5e6);
    assert_near(find(1)->exposed_share, 0.15);
    assert_near(find(1)->overlap_fraction, 0.625);
    assert_near(find(1)->comm_share, 0.4);
    assert_near(find(1)->compute_ns + find(1)->exposed_ns + find(1)->idle_ns, find(1)->span_ns);
    /* no communication: the fraction of it does not exist, the share of it is 0 */
    assert_nan(find(0)->overlap_fraction);
    assert_near(find(0)->comm_share, 0);
    /* one rank: no bus bandwidth, whatever the record says */
    assert_nan(find(0)->busbw_bytes_per_s);
    assert_near(find(1)->busbw_bytes_per_s, 1e9);
    assert_nan(find(0)->progress_cpu_ns);
    assert_near(find(1)->progress_cpu_ns, 250000);
    assert_near(find(1)->wake_late_p99_ns, 125000);
}

static void test_other_measures(void **state)
{
    struct sample_record sample = cell(0, 1, 20);

    (void)state;
    sample.test_accuracy = 0.90;
    sample.availability = 0.99;
    add(&sample);
    sample.repeat = 1;
    sample.test_accuracy = 0.94;
    sample.availability = 0.71;
    sample.flagged = true;
    sample.trace_lost = 3;
    sample.trace_overhead = 1.4;
    add(&sample);
    assert_int_equal(dpb_summary_compute(&records, &summary), DPB_OK);
    assert_near(summary.cells[0].test_accuracy, 0.92);
    assert_near(summary.cells[0].availability, 0.71);
    assert_near(summary.cells[0].loss_first, 2.31);
    assert_near(summary.cells[0].loss_last, 0.42);
    assert_near(summary.cells[0].trace_overhead, 1.21);
    assert_true(summary.cells[0].flagged);
    assert_note("did not give them all the cores", true);
    assert_note("lost events", true);
    assert_note("over 10 % longer", true);
}

static void test_notes_of_overlap_and_bandwidth(void **state)
{
    struct sample_record one = cell(0, 1, 10), on = cell(1, 2, 12.5), off = cell(2, 2, 10);

    (void)state;
    on.axes[1] = (struct sample_axis){"overlap", "on"};
    off.axes[1] = (struct sample_axis){"overlap", "off"};
    on.emulated = off.emulated = true;
    on.link_bytes_per_s = off.link_bytes_per_s = 1e9;
    on.busbw_bytes_per_s = 1.5e9;
    off.busbw_bytes_per_s = 1.01e9;
    off.series = "batch-per-rank=8 overlap=off";
    add(&one);
    add(&on);
    add(&off);
    assert_int_equal(dpb_summary_compute(&records, &summary), DPB_OK);
    assert_ptr_equal(dpb_summary_twin(&summary, find(2), "overlap", "on"), find(1));
    assert_ptr_equal(dpb_summary_twin(&summary, find(2), "overlap", "true"), find(1));
    assert_null(dpb_summary_twin(&summary, find(0), "overlap", "on"));
    assert_note("T_off / T_on = 0.800", true);
    assert_note("the same bytes took 0.67 times as long to move", true);
    assert_note("2 ranks, overlap on: the bus bandwidth of 1.50 GB/s is above", true);
    assert_note("2 ranks, overlap off: the bus bandwidth", false);
    assert_note("More than the ideal", false);
    assert_note("another number of threads", false);
}

static void test_note_of_other_threads(void **state)
{
    struct sample_record one = cell(0, 1, 10);

    (void)state;
    one.threads_per_rank = 2;
    add(&one);
    add_cell(1, 2, 10);
    assert_int_equal(dpb_summary_compute(&records, &summary), DPB_OK);
    assert_note("2 ranks: the baseline computed with another number of threads", true);
}

static void test_note_of_high_efficiency(void **state)
{
    struct sample_record warned = cell(2, 4, 10);

    (void)state;
    warned.warning = "only 51 % of a core";
    add(&warned);
    warned.repeat = 1;
    warned.warning = "only 7.5 % of a core";
    add(&warned);
    add_cell(0, 1, 10);
    add_cell(1, 2, 8);
    records.torn = 1;
    assert_int_equal(dpb_summary_compute(&records, &summary), DPB_OK);
    assert_near(find(1)->efficiency, 1.25);
    assert_note("2 ranks: scaling efficiency 125.0 %", true);
    assert_note("1 record was cut short", true);
    assert_note("2 of 4 records: only 51 % of a core", true);
}

static void test_notes_name_cells_briefly(void **state)
{
    int i;

    (void)state;
    for (i = 0; i < 6; i++) {
        struct sample_record flagged = cell(i, 2, 10);

        flagged.flagged = true;
        flagged.trace_overhead = i < 5 ? 1.5 : 1.0;
        add(&flagged);
    }
    assert_int_equal(dpb_summary_compute(&records, &summary), DPB_OK);
    assert_note("all 6 cells: the machine did not", true);
    assert_note("2 ranks; 2 ranks; 2 ranks; 2 ranks and 1 more: traced steps", true);
}

static void test_order_of_cells(void **state)
{
    struct sample_record b = cell(0, 1, 10);

    (void)state;
    b.series = "b";
    add(&b);
    add_cell(3, 4, 10);
    add_cell(2, 2, 10);
    add_cell(1, 2, 10);
    assert_int_equal(dpb_summary_compute(&records, &summary), DPB_OK);
    assert_int_equal(summary.cells[0].cell, 0);
    assert_int_equal(summary.cells[1].cell, 1);
    assert_int_equal(summary.cells[2].cell, 2);
    assert_int_equal(summary.cells[3].cell, 3);
}

static void assert_absent(const dpb_json *json, const char *key, const char *reason)
{
    char reason_key[64];

    snprintf(reason_key, sizeof(reason_key), "%s_reason", key);
    assert_non_null(dpb_json_get(json, key));
    assert_int_equal(dpb_json_type(dpb_json_get(json, key)), DPB_JSON_NULL);
    assert_non_null(strstr(dpb_json_as_string(dpb_json_get(json, reason_key), ""), reason));
}

static void test_json(void **state)
{
    struct sample_record failed = cell(1, 2, 10);
    struct dpb_str text = {0};
    const dpb_json *ok_json, *failed_json;
    dpb_json *json, *back;
    char why[256];

    (void)state;
    failed.status = "failed";
    failed.reason = "why";
    add_cell(0, 1, 10);
    add(&failed);
    assert_int_equal(dpb_summary_compute(&records, &summary), DPB_OK);
    json = dpb_summary_json(&summary);
    assert_true(dpb_json_ok(json));
    assert_int_equal(dpb_json_write(json, true, &text), DPB_OK);
    dpb_json_free(json);
    assert_null(strstr(text.text, "NaN"));
    assert_null(strstr(text.text, "nan"));
    assert_int_equal(dpb_json_parse(text.text, text.length, &back, why), DPB_OK);
    dpb_str_release(&text);
    assert_string_equal(dpb_json_as_string(dpb_json_get(back, "schema"), ""), "dpb.summary/1");
    ok_json = dpb_json_at(dpb_json_get(back, "cells"), 0);
    failed_json = dpb_json_at(dpb_json_get(back, "cells"), 1);
    assert_near(dpb_json_as_real(dpb_json_get(ok_json, "step_median_ns"), 0), 10e6);
    assert_near(dpb_json_as_real(dpb_json_get(ok_json, "efficiency"), 0), 1);
    assert_int_equal(dpb_json_as_int(dpb_json_get(ok_json, "baseline_ranks"), 0), 1);
    assert_absent(ok_json, "busbw_bytes_per_s", "one rank");
    assert_absent(ok_json, "step_ci95_ns", "two ok repeats");
    assert_absent(ok_json, "efficiency_ci95", "baseline");
    assert_absent(ok_json, "step_p99_ns", "too few steps");
    assert_absent(ok_json, "overlap_fraction", "no communication");
    assert_absent(failed_json, "step_median_ns", "no repeat");
    assert_absent(failed_json, "efficiency", "no repeat");
    assert_absent(failed_json, "baseline_ranks", "no repeat");
    assert_absent(failed_json, "span_ns", "no repeat");
    assert_string_equal(dpb_json_as_string(dpb_json_get(failed_json, "not_ok_reason"), ""), "why");
    dpb_json_free(back);
}

/* Steps that were traced, and of whose trace too much is missing. */
static void test_json_says_why_there_is_no_overlap(void **state)
{
    const dpb_json *cell_json;
    dpb_json *json;

    (void)state;
    add_cell(0, 2, 10);
    dpb_json_set_absent(records.items[0], "overlap", "the trace lacks too much");
    assert_int_equal(dpb_summary_compute(&records, &summary), DPB_OK);
    json = dpb_summary_json(&summary);
    cell_json = dpb_json_at(dpb_json_get(json, "cells"), 0);
    assert_absent(cell_json, "compute_ns", "the trace lacks too much");
    assert_absent(cell_json, "overlap_fraction", "the trace lacks too much");
    dpb_json_free(json);
}

static void test_labels(void **state)
{
    struct sample_record two = cell(0, 2, 10), other = cell(1, 1, 10);
    struct dpb_str label = {0};

    (void)state;
    two.axes[1] = (struct sample_axis){"bucket", "256KiB"};
    two.axes[2] = (struct sample_axis){"overlap", "off"};
    add(&two);
    assert_int_equal(dpb_summary_compute(&records, &summary), DPB_OK);
    dpb_cell_label(&summary, find(0), &label);
    assert_string_equal(label.text, "2 ranks, bucket 256KiB, overlap off");
    assert_string_equal(dpb_cell_axis(find(0), "bucket"), "256KiB");
    assert_null(dpb_cell_axis(find(0), "link"));
    dpb_str_release(&label);
    dpb_summary_release(&summary);
    /* overlap is in the series but not in the compute_series: with one rank it does nothing */
    other.axes[1] = (struct sample_axis){"overlap", "on"};
    other.axes[2] = (struct sample_axis){"lap", "3"};
    other.run_id = "other";
    add(&other);
    assert_int_equal(dpb_summary_compute(&records, &summary), DPB_OK);
    dpb_cell_label(&summary, find(1), &label);
    assert_string_equal(label.text, "run other, 1 rank, lap 3");
    dpb_str_release(&label);
}

int main(void)
{
#define SUMMARY_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
            SUMMARY_TEST(test_weak_scaling),
            SUMMARY_TEST(test_strong_scaling),
            SUMMARY_TEST(test_emulated_is_what_ran),
            SUMMARY_TEST(test_baseline_of_two_ranks),
            SUMMARY_TEST(test_baseline_through_compute_series),
            SUMMARY_TEST(test_axes_of_one_rank),
            SUMMARY_TEST(test_no_baseline),
            SUMMARY_TEST(test_baseline_must_be_comparable),
            SUMMARY_TEST(test_baseline_of_the_same_run_first),
            SUMMARY_TEST(test_failed_cells_are_absent_not_zero),
            SUMMARY_TEST(test_nothing_ok),
            SUMMARY_TEST(test_no_records_at_all),
            SUMMARY_TEST(test_a_failed_baseline_is_not_used),
            SUMMARY_TEST(test_rates_are_not_averaged),
            SUMMARY_TEST(test_intervals_come_from_repeats),
            cmocka_unit_test(test_an_interval_that_tells_nothing_says_so),
            SUMMARY_TEST(test_a_repeated_repeat_counts_once),
            SUMMARY_TEST(test_breakdown_per_rank_and_step),
            SUMMARY_TEST(test_other_measures),
            SUMMARY_TEST(test_notes_of_overlap_and_bandwidth),
            SUMMARY_TEST(test_note_of_high_efficiency),
            SUMMARY_TEST(test_note_of_other_threads),
            SUMMARY_TEST(test_notes_name_cells_briefly),
            SUMMARY_TEST(test_order_of_cells),
            SUMMARY_TEST(test_json),
            SUMMARY_TEST(test_json_says_why_there_is_no_overlap),
            SUMMARY_TEST(test_labels),
    };

    return DPB_RUN_TESTS(tests);
}

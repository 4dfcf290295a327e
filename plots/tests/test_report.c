#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dpb_comma_locale.h"
#include "dpb_json.h"
#include "dpb_log.h"
#include "dpb_report.h"
#include "dpb_str.h"
#include "dpb_test.h"
#include "sample_sweep.h"

static char log_text[4096]; /* the last lines */

static void keep_log(void *ctx, enum dpb_log_level level, const char *line)
{
    size_t used = strlen(log_text);

    (void)ctx;
    (void)level;
    if (used + strlen(line) + 2 > sizeof(log_text))
        used = 0;
    snprintf(log_text + used, sizeof(log_text) - used, "%s\n", line);
}

static char folder[64];
static struct dpb_records records;
static struct dpb_summary summary;
static struct dpb_report_result result;
static struct dpb_str markdown, html;

static int set_up(void **state)
{
    (void)state;
    log_text[0] = '\0';
    dpb_log_set_sink(keep_log, NULL);
    strcpy(folder, "/tmp/dpb-report-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static void remove_all(const char *path)
{
    DIR *dir = opendir(path);
    const struct dirent *entry;

    while (dir && (entry = readdir(dir))) {
        char inner[512];

        snprintf(inner, sizeof(inner), "%s/%s", path, entry->d_name);
        if (entry->d_type == DT_DIR && entry->d_name[0] != '.')
            remove_all(inner);
        else
            unlink(inner);
    }
    if (dir)
        closedir(dir);
    rmdir(path);
}

static int tear_down(void **state)
{
    (void)state;
    dpb_str_release(&markdown);
    dpb_str_release(&html);
    dpb_summary_release(&summary);
    dpb_records_release(&records);
    dpb_log_set_sink(NULL, NULL);
    remove_all(folder);
    return 0;
}

static bool have_gnuplot(void)
{
    return access("/usr/bin/gnuplot", X_OK) == 0;
}

/* Summarise the records, write the report, and read it. */
static void report_with(const char *gnuplot, const char *title)
{
    struct dpb_report_config config = {.folder = folder, .title = title, .gnuplot = gnuplot};
    dpb_status st = dpb_summary_compute(&records, &summary);

    assert_true(st == DPB_OK || st == DPB_ERR_NO_DATA);
    assert_int_equal(dpb_report_write(&summary, &config, &result), DPB_OK);
    assert_int_equal(dpb_file_read(result.markdown_path, &markdown), DPB_OK);
    assert_int_equal(dpb_file_read(result.html_path, &html), DPB_OK);
}

static void expect_in(const struct dpb_str *text, const char *wanted)
{
    if (!strstr(text->text, wanted))
        fail_msg("\"%s\" is not in the report:\n%.3000s", wanted, text->text);
}

static void expect_not_in(const struct dpb_str *text, const char *unwanted)
{
    const char *at = strstr(text->text, unwanted);

    if (at)
        fail_msg("\"%s\" is in the report: %.200s", unwanted, at);
}

/* Lines that begin with four blanks are code in Markdown and need no escapes. */
static void expect_only_in_code(const struct dpb_str *text, const char *unwanted)
{
    const char *at = text->text;

    while ((at = strstr(at, unwanted))) {
        const char *line = at;

        while (line > text->text && line[-1] != '\n')
            line--;
        if (strncmp(line, "    ", 4) != 0)
            fail_msg("\"%s\" is in the report: %.200s", unwanted, line);
        at++;
    }
}

static void expect_no_bad_numbers(const struct dpb_str *text)
{
    static const char *const bad[] = {"nan",   "NaN",    " inf ", ">inf<",
                                      "-inf ", "(null)", "1.#",   "|inf"};
    size_t i;

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        expect_not_in(text, bad[i]);
}

static void read_plot(const char *name, struct dpb_str *text)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/plots/%s", folder, name);
    assert_int_equal(dpb_file_read(path, text), DPB_OK);
}

static void test_sweep(void **state)
{
    static const int ranks[] = {2, 4, 0};
    struct dpb_str text = {0};
    size_t i;

    (void)state;
    sample_sweep(&records, ranks);
    report_with(NULL, "quick");
    /* the answer first: 40 ms with one rank, 44.5 ms with four, so about 90 % */
    expect_in(&markdown, "**On an emulated link (8Gbps, 5us), weak scaling to 4 ranks reaches 89.9 "
                         "% efficiency");
    expect_in(&markdown, "bucket 256KiB, overlap on");
    expect_in(&markdown, "T_off / T_on = 1.23");
    assert_true(strstr(markdown.text, "89.9 %") < strstr(markdown.text, "## How these"));
    expect_in(&html, "<p class=\"lead\">On an emulated link (8Gbps, 5us)");
    expect_in(&html, "Example CPU 2.0 GHz, 2 cores, 8.00 GiB of memory");
    expect_in(&html, "GNU 12.2.0");
    expect_in(&html, "dpbench run --ranks 2 --bucket 1MiB");
    expect_in(&html, "(ms)");
    expect_in(&html, "(samples/s)");
    /* of the link: 3 ms of wire time, 0.25 ms of CPU per collective, 0.125 ms late */
    expect_in(&markdown, "### The emulated link, and the thread that emulates it");
    expect_in(&markdown, " 0.250 | 0.125 |");
    expect_not_in(&markdown, "## Memory"); /* these records do not predict it */
    expect_no_bad_numbers(&markdown);
    expect_no_bad_numbers(&html);
    for (i = 0; i < summary.cell_count; i++) {
        struct dpb_str label = {0};

        dpb_cell_label(&summary, &summary.cells[i], &label);
        expect_in(&markdown, label.text);
        expect_in(&html, label.text);
        dpb_str_release(&label);
    }
    if (!have_gnuplot())
        return;
    /* efficiency, speed-up, buckets at 2 and at 4 ranks, breakdown */
    assert_int_equal(result.plots, 5);
    assert_int_equal(result.plots_skipped, 0);
    expect_in(&html, "<svg");
    expect_in(&html, "Weak scaling: efficiency against ranks (emulated link 8Gbps, 5us)");
    expect_in(&html, "Step time against bucket size, 4 ranks");
    expect_in(&html, "256KiB");
    expect_in(&html, "overlap off");
    /* nothing from elsewhere, and no name twice */
    expect_not_in(&html, "<script");
    expect_not_in(&html, "src=");
    expect_not_in(&html, "<?xml");
    expect_not_in(&html, "id='gpPt0'");
    expect_not_in(&html, "xlink:");
    expect_in(&markdown, "(plots/efficiency.svg)");
    read_plot("efficiency.dat", &text);
    expect_in(&text, "# ranks efficiency low high");
    expect_in(&text, "'bucket 256KiB, overlap on'");
    expect_no_bad_numbers(&text);
    dpb_str_release(&text);
    read_plot("efficiency.gp", &text);
    expect_in(&text, "set ylabel 'scaling efficiency (1 = ideal)'");
    dpb_str_release(&text);
}

static void test_report_json(void **state)
{
    static const int ranks[] = {2, 0};
    char path[256];
    dpb_json *json = NULL;

    (void)state;
    sample_sweep(&records, ranks);
    report_with("/nonexistent/gnuplot", "quick");
    snprintf(path, sizeof(path), "%s/report.json", folder);
    assert_int_equal(dpb_json_read_file(path, &json), DPB_OK);
    assert_string_equal(dpb_json_as_string(dpb_json_get(json, "schema"), ""), "dpb.summary/1");
    assert_int_equal(dpb_json_size(dpb_json_get(json, "cells")), summary.cell_count);
    assert_int_equal(dpb_json_type(dpb_json_get(json, "notes")), DPB_JSON_ARRAY);
    assert_string_equal(dpb_json_as_string(dpb_json_get(json, "title"), ""), "quick");
    dpb_json_free(json);
}

static void test_without_gnuplot(void **state)
{
    static const int ranks[] = {2, 0};
    struct dpb_str text = {0};

    (void)state;
    sample_sweep(&records, ranks);
    report_with("/nonexistent/gnuplot", "quick");
    assert_int_equal(result.plots, 0);
    assert_int_equal(result.plots_skipped, 4);
    assert_non_null(strstr(log_text, "warning: \"/nonexistent/gnuplot\""));
    assert_non_null(strstr(log_text, "hint: "));
    expect_not_in(&html, "<svg");
    expect_in(&html, "could not be drawn");
    expect_in(&markdown, "| 2 | 256KiB | on |");
    /* what it takes to draw them later is there */
    read_plot("speedup.gp", &text);
    read_plot("speedup.dat", &text);
    dpb_str_release(&text);
}

/* A gnuplot that fails: the error is named, the report written. */
static void test_failing_gnuplot(void **state)
{
    struct sample_record one = sample_cell(0, 1, 10), two = sample_cell(1, 2, 12);
    char program[128];
    static const char script[] = "#!/bin/sh\necho 'no such terminal' >&2\nexit 3\n";

    (void)state;
    snprintf(program, sizeof(program), "%s/gnuplot", folder);
    assert_int_equal(dpb_file_write_atomic(program, script, sizeof(script) - 1), DPB_OK);
    assert_int_equal(chmod(program, 0755), 0);
    sample_add(&records, &one);
    sample_add(&records, &two);
    report_with(program, "quick");
    assert_int_equal(result.plots, 0);
    assert_true(result.plots_skipped > 0);
    assert_non_null(strstr(log_text, "no such terminal"));
    expect_in(&markdown, "could not be drawn");
}

static void test_markup_in_names(void **state)
{
    struct sample_record one = sample_cell(0, 1, 10), two = sample_cell(1, 2, 12.5);

    (void)state;
    one.axes[1] = two.axes[1] =
            (struct sample_axis){"name", "<script>alert('x')</script> & \"q\" | `id` *b*\x1b[1m"};
    two.status = "failed";
    two.reason = "rank 1: <img src=x onerror=alert(1)> | it's `over`";
    sample_add(&records, &one);
    sample_add(&records, &two);
    report_with(NULL, "<b>title</b> \"&\"");
    expect_not_in(&html, "<script");
    expect_not_in(&html, "<img");
    expect_not_in(&html, "<b>title");
    expect_not_in(&html, "\x1b");
    expect_in(&html, "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt; &amp; &quot;q&quot;");
    expect_in(&html, "&lt;img src=x onerror=alert(1)&gt;");
    expect_in(&html, "<title>&lt;b&gt;title&lt;/b&gt; &quot;&amp;&quot;</title>");
    expect_only_in_code(&markdown, "<script");
    expect_not_in(&markdown, "\x1b");
    expect_in(&markdown,
              "&lt;script&gt;alert('x')&lt;/script&gt; &amp; \"q\" \\| \\`id\\` \\*b\\*");
    if (have_gnuplot()) {
        /* the label reaches gnuplot as text, not as a command */
        assert_true(result.plots > 0);
        expect_in(&html, "alert");
    }
}

static void test_failed_cells_are_named(void **state)
{
    struct sample_record one = sample_cell(0, 1, 10), two = sample_cell(1, 2, 12.5);
    struct sample_record four = sample_cell(2, 4, 15);

    (void)state;
    two.status = "failed";
    two.reason = "rank 1 ended with signal 9";
    four.status = "timeout";
    four.reason = "no step within 30s";
    sample_add(&records, &one);
    sample_add(&records, &two);
    sample_add(&records, &four);
    report_with(NULL, "partly");
    expect_in(&markdown, "| 2 ranks | failed | rank 1 ended with signal 9 | 1 of 1 |");
    expect_in(&markdown, "| 4 ranks | timeout | no step within 30s | 1 of 1 |");
    /* absent, not 0 */
    expect_in(&markdown, "| 2 | failed | 8 | 16 | - | - | - | - | - | - | 0 of 1 |");
    expect_in(&markdown, "no two ok cells differ in ranks only");
    expect_no_bad_numbers(&html);
    if (have_gnuplot())
        assert_true(result.plots >= 2); /* one point is drawn */
}

static void set_memory(int64_t predicted_mib, int64_t measured_mib, int64_t total_mib)
{
    dpb_json *memory = dpb_json_object();

    dpb_json_set_int(memory, "predicted_bytes", predicted_mib << 20);
    dpb_json_set_int(memory, "predicted_total_bytes", total_mib << 20);
    if (measured_mib > 0)
        dpb_json_set_int(memory, "measured_bytes", measured_mib << 20);
    else
        dpb_json_set_absent(memory, "measured_bytes", "skipped");
    dpb_json_set(records.items[records.count - 1], "memory", memory);
}

static void test_memory_as_predicted_and_measured(void **state)
{
    struct sample_record one = sample_cell(0, 1, 10), two = sample_cell(1, 2, 12.5);
    struct sample_record four = sample_cell(2, 4, 15);

    (void)state;
    four.status = "skipped";
    four.reason = "memory: 4 ranks need 200 MiB";
    sample_add(&records, &one); /* of a version that did not predict */
    sample_add(&records, &two);
    set_memory(50, 48, 90);
    sample_add(&records, &four);
    set_memory(60, 0, 200);
    report_with("/nonexistent/gnuplot", "memory");
    expect_in(&markdown, "## Memory");
    expect_not_in(&markdown, "| 1 rank | - |");
    expect_in(&markdown, "| 2 ranks | 50.0 | 48.0 | 96.0 | 90.0 |");
    expect_in(&markdown, "| 4 ranks | 60.0 | - | - | 200.0 |");
    expect_in(&markdown, "| 4 ranks | skipped | memory: 4 ranks need 200 MiB | 1 of 1 |");
    expect_no_bad_numbers(&markdown);
}

static void test_nothing_is_ok(void **state)
{
    struct sample_record two = sample_cell(0, 2, 12.5);

    (void)state;
    two.status = "failed";
    two.reason = "rank 0: cannot open the device";
    sample_add(&records, &two);
    report_with(NULL, "broken");
    assert_int_equal(result.plots, 0);
    expect_in(&html, "No cell finished: none of 1 has an ok repeat");
    expect_in(&html, "rank 0: cannot open the device");
    expect_in(&html, "Left out for lack of a valid point");
    expect_no_bad_numbers(&html);
    expect_no_bad_numbers(&markdown);
}

static void test_no_records_at_all(void **state)
{
    (void)state;
    report_with(NULL, "empty");
    expect_in(&markdown, "No cell finished: none of 0");
}

/* A series without a valid point does not cost the others their plot. */
static void test_one_series_without_a_point(void **state)
{
    struct sample_record one = sample_cell(0, 1, 10), on = sample_cell(1, 2, 12.5);
    struct sample_record off = sample_cell(2, 2, 15);
    struct dpb_str text = {0};

    (void)state;
    on.axes[1] = (struct sample_axis){"overlap", "on"};
    off.axes[1] = (struct sample_axis){"overlap", "off"};
    off.series = "batch-per-rank=8 overlap=off";
    off.status = "failed";
    sample_add(&records, &one);
    sample_add(&records, &on);
    sample_add(&records, &off);
    report_with(NULL, "half");
    expect_in(&markdown, "Left out for lack of a valid point: overlap off.");
    read_plot("efficiency.dat", &text);
    expect_in(&text, "'overlap on'");
    expect_not_in(&text, "'overlap off'");
    dpb_str_release(&text);
    if (have_gnuplot())
        assert_int_equal(result.plots, 3);
}

static void test_one_point_and_equal_points(void **state)
{
    struct sample_record two = sample_cell(0, 2, 12.5);
    struct dpb_str text = {0};
    int repeat;

    (void)state;
    if (!have_gnuplot())
        dpb_test_skip("gnuplot is not installed");
    /* one bucket size, overlap on only, all repeats equal, no baseline */
    two.axes[1] = (struct sample_axis){"bucket", "1MiB"};
    for (repeat = 0; repeat < 3; repeat++) {
        two.repeat = repeat;
        sample_add(&records, &two);
    }
    report_with(NULL, "one");
    assert_int_equal(result.plots, 2); /* bucket, breakdown */
    assert_null(strstr(log_text, "gnuplot"));
    read_plot("bucket-2-ranks.svg", &text);
    expect_in(&text, "<use xlink:href='#gpPt6' transform"); /* the marker */
    expect_in(&text, "1MiB");
    dpb_str_release(&text);
}

static void test_one_rank_alone(void **state)
{
    struct sample_record one = sample_cell(0, 1, 10);

    (void)state;
    one.test_accuracy = 0.9123;
    sample_add(&records, &one);
    report_with(NULL, "one rank");
    expect_in(&markdown, "The cell (1 rank) trains");
    expect_in(&markdown, "| 1 rank | 24 | 2.3100 | 0.4200 | 91.23 |");
    if (have_gnuplot())
        assert_int_equal(result.plots, 3);
}

/* One rank has no replica: it counts neither for nor against. */
static void test_verified_counts_replicas(void **state)
{
    static const int ranks[] = {2, 0};
    size_t i;

    (void)state;
    sample_sweep(&records, ranks); /* of 27 records the first three are of one rank */
    for (i = 0; i < records.count; i++) {
        dpb_json *verified = dpb_json_object();

        dpb_json_set_bool(verified, "replicas_identical", true);
        dpb_json_set(records.items[i], "verified", verified);
    }
    report_with("", "verified");
    expect_in(&markdown, "identical to the bit after training in 24 of 24 ok records of "
                         "several ranks");
}

static void test_overlap_that_hurts(void **state)
{
    struct sample_record one = sample_cell(0, 1, 10), on = sample_cell(1, 2, 16);
    struct sample_record off = sample_cell(2, 2, 15);

    (void)state;
    on.axes[1] = (struct sample_axis){"overlap", "on"};
    off.axes[1] = (struct sample_axis){"overlap", "off"};
    off.series = "batch-per-rank=8 overlap=off";
    off.scaling = on.scaling = one.scaling = "strong";
    one.global_batch = on.global_batch = off.global_batch = 16;
    on.busbw_bytes_per_s = 0.5e9;
    off.busbw_bytes_per_s = 1.25e9;
    sample_add(&records, &one);
    sample_add(&records, &on);
    sample_add(&records, &off);
    report_with("/nonexistent", "hurts");
    expect_in(&markdown, "| comm on/off |");
    expect_in(&markdown, " | 2.50 |\n");
    expect_in(&markdown, "the same bytes took 2.50 times as long to move");
    expect_in(&markdown, "**Strong scaling to 2 ranks reaches 33.3 % efficiency, 0.67 times the "
                         "throughput of 1 rank");
    expect_in(&markdown, "overlap makes a step slower: T_off / T_on = 0.938");
    expect_in(&markdown, "compete for the same cores");
}

static void test_flagged_headline(void **state)
{
    struct sample_record one = sample_cell(0, 1, 10), two = sample_cell(1, 2, 12.5);

    (void)state;
    one.flagged = true;
    sample_add(&records, &one);
    sample_add(&records, &two);
    report_with("/nonexistent", "busy");
    expect_in(&markdown, "Caution: other work kept the machine busy");
    expect_in(&markdown, "1 of 2 cells are flagged");
}

static void test_decimal_comma(void **state)
{
    static const int ranks[] = {2, 0};
    struct dpb_str text = {0};

    (void)state;
    if (!comma_locale_enter()) {
        dpb_test_skip("no locale with a decimal comma, and localedef cannot make one");
    }
    sample_sweep(&records, ranks);
    report_with(NULL, "comma");
    comma_locale_leave();
    expect_in(&markdown, "| 1 | - | - | measured | 8 | 8 | 40.00 |");
    read_plot("efficiency.dat", &text);
    expect_not_in(&text, "0,9");
    dpb_str_release(&text);
    if (have_gnuplot())
        assert_int_equal(result.plots, 4);
}

/* Curves that start at 8 ranks, with labels that would leave a plot beside them no room. */
static void test_long_labels_and_no_single_rank(void **state)
{
    static const char *const values[] = {"hierarchical-copy", "one-device"};
    static const int ranks[] = {8, 32};
    struct dpb_str text = {0};

    (void)state;
    for (size_t v = 0; v < 2; v++) {
        for (size_t r = 0; r < 2; r++) {
            struct sample_record one =
                    sample_cell((int64_t)(2 * v + r), ranks[r], 10 + 2.0 * (double)(v + r));

            one.series = one.compute_series = values[v];
            one.axes[1] = (struct sample_axis){"cross-device-operations", values[v]};
            sample_add(&records, &one);
        }
    }
    report_with(NULL, "long");
    read_plot("speedup.gp", &text);
    expect_in(&text, "set key outside below center vertical maxcols 1 ");
    expect_in(&text, "set ylabel 'speed-up (efficiency times ranks)'");
    expect_in(&text, "set xrange [6.4:40]");
    dpb_str_release(&text);
    read_plot("breakdown.gp", &text);
    expect_in(&text, "'32 ranks, cross-device-operations hierarchical-copy' 3");
    dpb_str_release(&text);
}

static void test_folder_that_cannot_be_written(void **state)
{
    struct dpb_report_config config = {.folder = "/proc/nothing", .title = "x"};
    struct sample_record one = sample_cell(0, 1, 10);

    (void)state;
    sample_add(&records, &one);
    assert_int_equal(dpb_summary_compute(&records, &summary), DPB_OK);
    assert_int_equal(dpb_report_write(&summary, &config, &result), DPB_ERR_IO);
    assert_non_null(strstr(log_text, "/proc/nothing"));
}

int main(void)
{
#define REPORT_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
            REPORT_TEST(test_sweep),
            REPORT_TEST(test_report_json),
            REPORT_TEST(test_without_gnuplot),
            REPORT_TEST(test_failing_gnuplot),
            REPORT_TEST(test_markup_in_names),
            REPORT_TEST(test_failed_cells_are_named),
            REPORT_TEST(test_memory_as_predicted_and_measured),
            REPORT_TEST(test_nothing_is_ok),
            REPORT_TEST(test_no_records_at_all),
            REPORT_TEST(test_one_series_without_a_point),
            REPORT_TEST(test_one_point_and_equal_points),
            REPORT_TEST(test_one_rank_alone),
            REPORT_TEST(test_verified_counts_replicas),
            REPORT_TEST(test_overlap_that_hurts),
            REPORT_TEST(test_flagged_headline),
            REPORT_TEST(test_decimal_comma),
            REPORT_TEST(test_long_labels_and_no_single_rank),
            REPORT_TEST(test_folder_that_cannot_be_written),
    };

    return DPB_RUN_TESTS(tests);
}

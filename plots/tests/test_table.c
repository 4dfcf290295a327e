#include "dpb_report.h"
#include "dpb_str.h"
#include "dpb_test.h"
#include "sample_sweep.h"

static struct dpb_records records;
static struct dpb_summary summary;

static int tear_down(void **state)
{
    (void)state;
    dpb_summary_release(&summary);
    dpb_records_release(&records);
    return 0;
}

/* The table at a width; every line is checked against it. Caller frees. */
static char *table_of(int width)
{
    char *text = NULL;
    size_t count = 0;
    FILE *out = open_memstream(&text, &count);
    char *line, *rest, *copy;

    assert_non_null(out);
    assert_int_equal(dpb_report_table(&summary, out, width), DPB_OK);
    assert_int_equal(fclose(out), 0);
    copy = rest = strdup(text);
    while ((line = strsep(&rest, "\n"))) {
        if (strlen(line) > (size_t)width)
            fail_msg("at width %d a line has %zu: \"%s\"", width, strlen(line), line);
    }
    free(copy);
    return text;
}

static void expect_in(const char *text, const char *wanted)
{
    if (!strstr(text, wanted))
        fail_msg("\"%s\" is not in:\n%s", wanted, text);
}

static void test_widths(void **state)
{
    static const int ranks[] = {2, 4, 0}, widths[] = {20, 40, 60, 80, 100, 200};
    size_t i;

    (void)state;
    sample_sweep(&records, ranks);
    assert_int_equal(dpb_summary_compute(&records, &summary), DPB_OK);
    for (i = 0; i < sizeof(widths) / sizeof(widths[0]); i++) {
        char *text = table_of(widths[i]);

        expect_in(text, "ranks");
        if (widths[i] >= 40) {
            /* what matters is there, whole, and says that it is emulated */
            expect_in(text, "efficiency %");
            expect_in(text, "89.9");
            expect_in(text, "44.50");
            expect_in(text, "emulated");
        }
        if (widths[i] == 60)
            expect_in(text, "left out for lack of width: +-95% ms, samples/s, exposed %");
        if (widths[i] == 200) {
            expect_in(text, "emulated 8Gbps, 5us");
            expect_in(text, "samples/s");
            assert_null(strstr(text, "left out"));
        }
        free(text);
    }
}

static void test_failed_and_flagged(void **state)
{
    struct sample_record one = sample_cell(0, 1, 10), two = sample_cell(1, 2, 12);
    char *text;

    (void)state;
    one.flagged = true;
    two.status = "timeout";
    two.axes[1] = (struct sample_axis){"name", "\x1b[31mred\nline"};
    sample_add(&records, &one);
    sample_add(&records, &two);
    assert_int_equal(dpb_summary_compute(&records, &summary), DPB_OK);
    text = table_of(120);
    expect_in(text, "measured, flagged");
    expect_in(text, "timeout");
    assert_null(strchr(text, '\x1b'));
    assert_null(strstr(text, "nan"));
    free(text);
}

static void test_no_cells(void **state)
{
    char *text;

    (void)state;
    assert_int_equal(dpb_summary_compute(&records, &summary), DPB_ERR_NO_DATA);
    text = table_of(80);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test_teardown(test_widths, tear_down),
            cmocka_unit_test_teardown(test_failed_and_flagged, tear_down),
            cmocka_unit_test_teardown(test_no_cells, tear_down),
    };

    return DPB_RUN_TESTS(tests);
}

#include "dpb_test.h"

#include <math.h>

#include "dpb_gate_report.h"
#include "gate_samples.h"

#define NASTY "a<b> & \"c\" |d| %25 \x01\x1b[0m \xc3\xa9 \xff\nnew ::error::x"

/* `cells` of which the first `worse` are slower. */
static struct dpb_gate_report report_of(size_t cells, size_t worse)
{
    const double base[] = {100, 101, 99, 100}, slow[] = {120, 121, 119, 120};
    const struct dpb_gate_options options = DPB_GATE_OPTIONS_DEFAULT;
    struct dpb_gate_set a = {.price = NAN}, b = {.price = NAN};
    struct dpb_gate_report report;

    for (size_t c = 0; c < cells; c++) {
        char name[128];

        snprintf(name, sizeof(name), "%04zu %s", c, NASTY);
        sample_side(&a, name, "step-time-median", base, 4, true, ORDER_MIXED);
        sample_side(&b, name, "step-time-median", c < worse ? slow : base, 4, false, ORDER_MIXED);
    }
    assert_int_equal(dpb_gate_compare(&a, &b, &options, &report), DPB_OK);
    dpb_gate_set_release(&a);
    dpb_gate_set_release(&b);
    return report;
}

static size_t count_of(const char *text, const char *what)
{
    size_t count = 0;

    for (const char *at = text; (at = strstr(at, what)); at += strlen(what))
        count++;
    return count;
}

static void test_markdown_keeps_its_size(void **state)
{
    struct dpb_gate_report report = report_of(1000, 3);
    const struct dpb_gate_outcome outcome = {&report, NULL, report.verdict, false};
    struct dpb_str text = {0};
    size_t rows, omitted;

    (void)state;
    assert_int_equal(dpb_gate_markdown(&outcome, DPB_GATE_MARKDOWN_BYTES, &text), DPB_OK);
    assert_true(text.length <= DPB_GATE_MARKDOWN_BYTES && text.length > 60000);
    rows = count_of(text.text, "\n| ") - 1; /* without the head */
    const char *told = strstr(text.text, " rows are left out");
    assert_non_null(told);
    while (told > text.text && told[-1] != '\n')
        told--;
    omitted = strtoul(told, NULL, 10);
    assert_int_equal(rows + omitted, 1000);
    /* the worst first */
    const char *fail = strstr(text.text, "\n| FAIL"), *pass = strstr(text.text, "\n| PASS");
    assert_true(fail && pass && fail < pass);
    assert_int_equal(count_of(text.text, "\n| FAIL"), 3);
    assert_null(strstr(text.text, "<b>"));
    assert_null(strchr(text.text, '\x1b'));
    dpb_str_release(&text);
    assert_int_equal(dpb_gate_markdown(&outcome, 2000, &text), DPB_OK);
    assert_true(text.length <= 2000);
    dpb_str_release(&text);
    dpb_gate_report_release(&report);
}

static void test_github_has_a_budget(void **state)
{
    struct dpb_gate_report report = report_of(30, 25);
    const struct dpb_gate_outcome outcome = {&report, NULL, report.verdict, false};
    struct dpb_str text = {0};

    (void)state;
    assert_int_equal(dpb_gate_github(&outcome, &text), DPB_OK);
    assert_int_equal(count_of(text.text, "\n"), 10);
    assert_non_null(strstr(text.text, "::error title=dpbench gate::16 more\n"));
    assert_int_equal(strncmp(text.text, "::error title=dpbench gate::", 28), 0);
    /* a name begins no command of its own */
    assert_null(strstr(text.text, "\nnew"));
    assert_non_null(strstr(text.text, "%0Anew"));
    assert_non_null(strstr(text.text, "%2525"));
    dpb_str_release(&text);
    dpb_gate_report_release(&report);
}

static void test_exactly_ten_are_all_told(void **state)
{
    struct dpb_gate_report report = report_of(12, 10);
    const struct dpb_gate_outcome outcome = {&report, NULL, report.verdict, false};
    struct dpb_str text = {0};

    (void)state;
    assert_int_equal(dpb_gate_github(&outcome, &text), DPB_OK);
    assert_int_equal(count_of(text.text, "::error"), 10 + 10); /* names hold one */
    assert_null(strstr(text.text, " more\n"));
    dpb_str_release(&text);
    dpb_gate_report_release(&report);
}

static void test_junit_escapes(void **state)
{
    struct dpb_gate_report report = report_of(3, 1);
    const struct dpb_gate_outcome outcome = {&report, NULL, report.verdict, false};
    struct dpb_str text = {0};

    (void)state;
    assert_int_equal(dpb_gate_junit(&outcome, &text), DPB_OK);
    assert_non_null(strstr(text.text, "tests=\"3\" failures=\"1\" errors=\"0\" skipped=\"0\""));
    assert_int_equal(count_of(text.text, "<failure "), 1);
    assert_null(strstr(text.text, "<b>"));
    assert_null(strchr(text.text, '\x01'));
    assert_null(strchr(text.text, '\xff'));
    assert_non_null(strstr(text.text, "\xc3\xa9"));
    dpb_str_release(&text);
    dpb_gate_report_release(&report);
}

/* Where INCONCLUSIVE ends a gate, what gates is a failure and an error; what is advisory is not. */
static void test_inconclusive_can_fail(void **state)
{
    struct dpb_gate_report report = report_of(4, 0);
    struct dpb_gate_outcome outcome = {&report, NULL, DPB_VERDICT_INCONCLUSIVE, false};
    struct dpb_str text = {0};

    (void)state;
    for (size_t i = 0; i < report.finding_count; i++)
        report.findings[i].result.verdict = DPB_VERDICT_INCONCLUSIVE;
    report.findings[3].is_gating = false;
    assert_int_equal(dpb_gate_junit(&outcome, &text), DPB_OK);
    assert_non_null(strstr(text.text, "tests=\"4\" failures=\"0\" errors=\"0\" skipped=\"4\""));
    dpb_str_release(&text);
    outcome.inconclusive_fails = true;
    outcome.verdict = DPB_VERDICT_FAIL;
    assert_int_equal(dpb_gate_junit(&outcome, &text), DPB_OK);
    assert_non_null(strstr(text.text, "tests=\"4\" failures=\"3\" errors=\"0\" skipped=\"1\""));
    assert_int_equal(count_of(text.text, "<failure message=\"INCONCLUSIVE"), 3);
    dpb_str_release(&text);
    assert_int_equal(dpb_gate_github(&outcome, &text), DPB_OK);
    assert_int_equal(count_of(text.text, "::warning title"), 1);
    assert_int_equal(count_of(text.text, "::error title"), 3);
    dpb_str_release(&text);
    dpb_gate_report_release(&report);
}

static void test_prometheus(void **state)
{
    struct dpb_gate_report report = report_of(2, 1);
    const struct dpb_gate_outcome outcome = {&report, NULL, report.verdict, false};
    struct dpb_str text = {0};

    (void)state;
    assert_int_equal(dpb_gate_prometheus(&outcome, &text), DPB_OK);
    assert_non_null(strstr(text.text, "dpbench_gate_verdict{verdict=\"FAIL\"} 1\n"));
    assert_non_null(strstr(text.text, "dpbench_gate_verdict{verdict=\"PASS\"} 0\n"));
    assert_int_equal(count_of(text.text, "\ndpbench_gate_ratio{"), 2);
    assert_non_null(strstr(text.text, "\\\"c\\\""));
    assert_null(strstr(text.text, "\nnew")); /* newlines of names are escaped */
    dpb_str_release(&text);
    dpb_gate_report_release(&report);
}

static void test_terminal(void **state)
{
    struct dpb_gate_report report = report_of(4, 1);
    const struct dpb_gate_outcome outcome = {&report, NULL, report.verdict, false};
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);

    (void)state;
    assert_int_equal(dpb_gate_print(&outcome, out, 0), DPB_OK);
    fclose(out);
    assert_non_null(strstr(text, "+20.00 %"));
    assert_non_null(strstr(text, "family of 4"));
    assert_true(strstr(text, "FAIL ") < strstr(text, "PASS "));
    assert_string_equal(text + length - 5, "FAIL\n");
    free(text);
    dpb_gate_report_release(&report);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_markdown_keeps_its_size),
            cmocka_unit_test(test_github_has_a_budget),
            cmocka_unit_test(test_exactly_ten_are_all_told),
            cmocka_unit_test(test_junit_escapes),
            cmocka_unit_test(test_inconclusive_can_fail),
            cmocka_unit_test(test_prometheus),
            cmocka_unit_test(test_terminal),
    };
    return DPB_RUN_TESTS(tests);
}

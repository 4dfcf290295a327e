/* The ranking of strategies in a report. */
#include <stdlib.h>
#include <string.h>

#include "content.h"
#include "dpb_summary.h"
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

static void add(int64_t cell, int ranks, const char *strategy, double step_ms, double exposed_ms)
{
    for (int64_t repeat = 0; repeat < 3; repeat++) {
        struct sample_record sample = sample_cell(cell, ranks, step_ms + 0.2 * (double)repeat);

        sample.repeat = repeat;
        sample.axes[1] = (struct sample_axis){"strategy", strategy};
        sample.comm_ns = 20e6;
        sample.exposed_ns = exposed_ms * 1e6;
        sample.comm_wait_ns = 0;
        sample_add(&records, &sample);
    }
}

static char *markdown(void)
{
    struct dpb_document document = {0};
    struct dpb_str out = {0};

    assert_int_equal(dpb_summary_compute(&records, &summary), DPB_OK);
    dpb_content_strategies(&summary, &document);
    assert_false(document.failed);
    dpb_document_markdown(&document, &out);
    dpb_document_release(&document);
    return out.text ? out.text : strdup("");
}

static size_t place(const char *text, const char *wanted)
{
    const char *at = strstr(text, wanted);

    if (!at)
        fail_msg("\"%s\" is not in:\n%s", wanted, text);
    return (size_t)(at - text);
}

static void test_ranking(void **state)
{
    (void)state;
    add(0, 1, "none", 40, 0); /* one rank is no contest */
    add(1, 2, "none", 62, 20);
    add(2, 2, "ddp", 43, 1);
    add(3, 2, "naive", 65, 19);
    add(4, 2, "zero1", 43.1, 2);
    add(5, 4, "ddp", 50, 3);
    char *text = markdown();
    assert_true(place(text, "Strategies with 2 ranks") < place(text, "\n| ddp |"));
    assert_true(place(text, "\n| ddp | 43.11") < place(text, "\n| none | 62.08"));
    assert_true(place(text, "\n| none |") < place(text, "\n| naive |"));
    /* the first and the last: 22 ms, of which 18 are exposed communication; none and naive stand
     * the other way round by exposed communication */
    place(text, "exposed communication +18.00 ms");
    place(text, "1 of the 6 pairs would stand the other way round");
    place(text, "The repeats do not tell the first from: zero1.\n");
    assert_null(strstr(text, "4 ranks")); /* one strategy alone is no ranking */
    free(text);
}

static void test_without_strategies(void **state)
{
    static const int ranks[] = {2, 0};

    (void)state;
    sample_sweep(&records, ranks);
    char *text = markdown();
    assert_string_equal(text, "");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test_teardown(test_ranking, tear_down),
            cmocka_unit_test_teardown(test_without_strategies, tear_down),
    };

    return DPB_RUN_TESTS(tests);
}

/* What autotuning has tried, in a report. */
#include <stdlib.h>
#include <string.h>

#include "content.h"
#include "dpb_summary.h"
#include "dpb_test.h"

static const char *const trials[] = {
        "{\"fusion_threshold_bytes\": 67108864, \"cycle_time_ns\": 1000000, \"bytes_per_s\": 2e8}",
        "{\"fusion_threshold_bytes\": 0, \"cycle_time_ns\": 1000000, \"bytes_per_s\": 1e8}",
        "{\"fusion_threshold_bytes\": 8388608, \"cycle_time_ns\": 5000000, \"bytes_per_s\": 3e8}",
};

/* The report of a cell whose record has such a plan. */
static char *markdown(const char *plan)
{
    struct dpb_str record = {0}, out = {0};
    struct dpb_document document = {0};
    dpb_json *json = NULL;
    char why[256];

    dpb_str_appendf(&record, "{\"label\": \"x\", \"plan\": {%s}}", plan);
    assert_int_equal(dpb_json_parse(record.text, record.length, &json, why), DPB_OK);
    struct dpb_cell_summary cell = {
            .first = json, .run_id = "r", .series = "s", .ranks = 2, .repeats_ok = 1};
    const struct dpb_summary summary = {.cells = &cell, .cell_count = 1};

    dpb_content_tuning(&summary, &document);
    assert_false(document.failed);
    dpb_document_markdown(&document, &out);
    dpb_document_release(&document);
    dpb_str_release(&record);
    dpb_json_free(json);
    return out.text ? out.text : strdup("");
}

static char *markdown_of_trials(bool is_frozen)
{
    char plan[1024];

    snprintf(plan, sizeof(plan), "\"autotune\": {\"trials\": [%s, %s, %s], \"is_frozen\": %s}",
             trials[0], trials[1], trials[2], is_frozen ? "true" : "false");
    return markdown(plan);
}

static void test_trials(void **state)
{
    char *text = markdown_of_trials(true);

    (void)state;
    assert_non_null(strstr(text, "### Autotuning: 2 ranks"));
    assert_non_null(strstr(text, "| 1 |  | 64MiB | 1ms | 200.0 |"));
    assert_non_null(strstr(text, "| 2 |  | 0B | 1ms | 100.0 |"));
    assert_non_null(strstr(text, "| 3 | best | 8MiB | 5ms | 300.0 |"));
    assert_null(strstr(text, "had not ended"));
    free(text);
}

static void test_a_search_that_had_not_ended(void **state)
{
    char *text = markdown_of_trials(false);

    (void)state;
    assert_non_null(strstr(text, "The search had not ended when the run did"));
    free(text);
}

static void test_without_tuning(void **state)
{
    static const char *const plans[] = {"", "\"autotune\": {\"trials\": []}", "\"units\": []"};

    (void)state;
    for (size_t p = 0; p < sizeof(plans) / sizeof(plans[0]); p++) {
        char *text = markdown(plans[p]);

        assert_string_equal(text, "");
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_trials),
            cmocka_unit_test(test_a_search_that_had_not_ended),
            cmocka_unit_test(test_without_tuning),
    };

    return DPB_RUN_TESTS(tests);
}

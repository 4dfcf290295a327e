/* Bytes between nodes and late ranks, in a report. */
#include <stdlib.h>
#include <string.h>

#include "content.h"
#include "dpb_summary.h"
#include "dpb_test.h"

/* The report of a cell whose record says so. */
static char *markdown(const char *members)
{
    struct dpb_str record = {0}, out = {0};
    struct dpb_document document = {0};
    dpb_json *json = NULL;
    char why[256];

    dpb_str_appendf(&record, "{\"label\": \"x\"%s}", members);
    assert_int_equal(dpb_json_parse(record.text, record.length, &json, why), DPB_OK);
    struct dpb_cell_summary cell = {
            .first = json, .run_id = "r", .series = "s", .ranks = 4, .repeats_ok = 1};
    const struct dpb_summary summary = {.cells = &cell, .cell_count = 1};

    dpb_content_nodes(&summary, &document);
    assert_false(document.failed);
    dpb_document_markdown(&document, &out);
    dpb_document_release(&document);
    dpb_str_release(&record);
    dpb_json_free(json);
    return out.text ? out.text : strdup("");
}

static void test_levels(void **state)
{
    char *text = markdown(", \"communication\": {\"wire_bytes_inside_per_step\": 3200000.0, "
                          "\"wire_bytes_between_per_step\": 2400000.0}");

    (void)state;
    assert_non_null(strstr(text, "### What a rank sends in a step, mean"));
    assert_non_null(strstr(text, "| 3.200 | 2.400 |"));
    free(text);
}

static void test_late_ranks(void **state)
{
    char *text = markdown(
            ", \"waiting\": {\"late_ranks\": [{\"rank\": 3, \"host\": \"node2\", \"last_share\": "
            "0.75, \"others_waited_ns\": 12000000}, {\"rank\": 0, \"host\": \"\", "
            "\"last_share\": 0.25, \"others_waited_ns\": 1500000}]}");

    (void)state;
    assert_non_null(strstr(text, "### Which ranks the others waited for"));
    assert_non_null(strstr(text, "rank 3 (node2): last in 75"));
    assert_non_null(strstr(text, "; rank 0: last in 25"));
    assert_null(strstr(text, "What a rank sends"));
    free(text);
}

/* One node, a library's algorithm, one rank: no table. */
static void test_nothing_to_say(void **state)
{
    static const char *const records[] = {
            "",
            (", \"communication\": {\"wire_bytes_inside_per_step\": 5.0, "
             "\"wire_bytes_between_per_step\": 0.0}"),
            ", \"communication\": {\"wire_bytes_between_per_step\": null}, \"waiting\": null",
            ", \"waiting\": {\"late_ranks\": []}",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(records) / sizeof(records[0]); i++) {
        char *text = markdown(records[i]);

        assert_string_equal(text, "");
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_levels),
            cmocka_unit_test(test_late_ranks),
            cmocka_unit_test(test_nothing_to_say),
    };
    return DPB_RUN_TESTS(tests);
}

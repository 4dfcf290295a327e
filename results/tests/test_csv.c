#include "dpb_test.h"

#include <math.h>

#include "dpb_csv.h"

static dpb_status parse(const char *text, struct dpb_csv *csv)
{
    return dpb_csv_parse(text, strlen(text), "test.csv", csv);
}

static void test_fields(void **state)
{
    struct dpb_csv csv;

    (void)state;
    assert_int_equal(parse("\xEF\xBB\xBFname,value\r\n\"a, \"\"b\"\"\nc\",1.5\r\n,\n", &csv),
                     DPB_OK);
    assert_int_equal(csv.columns, 2);
    assert_int_equal(csv.rows, 2);
    assert_int_equal(dpb_csv_column(&csv, "name"), 0);
    assert_int_equal(dpb_csv_column(&csv, "value"), 1);
    assert_int_equal(dpb_csv_column(&csv, "other"), -1);
    assert_string_equal(dpb_csv_text(&csv, 0, 0), "a, \"b\"\nc");
    assert_string_equal(dpb_csv_text(&csv, 1, 0), "");
    assert_string_equal(dpb_csv_text(&csv, 1, -1), "");
    assert_int_equal(csv.line[0], 2);
    assert_int_equal(csv.line[1], 4);
    dpb_csv_release(&csv);
}

static void test_numbers(void **state)
{
    struct dpb_csv csv;
    double number;

    (void)state;
    assert_int_equal(parse("a,b,c\n1.5,,\"1,5\"\n", &csv), DPB_OK);
    assert_int_equal(dpb_csv_number(&csv, 0, 0, &number), DPB_OK);
    assert_true(number == 1.5);
    assert_int_equal(dpb_csv_number(&csv, 0, 1, &number), DPB_OK);
    assert_true(isnan(number));
    assert_int_equal(dpb_csv_number(&csv, 0, 2, &number), DPB_ERR_USAGE);
    dpb_csv_release(&csv);
}

static void test_bad_files(void **state)
{
    static const struct {
        const char *text;
        size_t count;
    } bad[] = {{"", 0},           {"a,b\n1\n", 6},    {"a,b\n1,2,3\n", 10},
               {"a,a\n1,2\n", 8}, {"a\n\"open\n", 8}, {"a\n\"x\"y\n", 7},
               {"a\nx\"y\n", 6},  {"a\nb\0c\n", 6}};

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct dpb_csv csv;
        if (dpb_csv_parse(bad[i].text, bad[i].count, "bad.csv", &csv) != DPB_ERR_USAGE)
            fail_msg("file %zu is taken", i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_fields),
            cmocka_unit_test(test_numbers),
            cmocka_unit_test(test_bad_files),
    };
    return DPB_RUN_TESTS(tests);
}

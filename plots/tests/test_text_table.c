#include "dpb_text_table.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_test.h"

static const struct dpb_text_column columns[] = {
        {"name", DPB_TEXT_LONG}, {"kind", DPB_TEXT_WORD}, {"bytes", DPB_TEXT_NUMBER}};
static const char *const cells[] = {
        "a.name.that.is.rather.long", "fp32", "7", "b", "bf16", "123456", "c", "u8", NULL,
};

static char *table_at(int width)
{
    char *text = NULL;
    size_t count = 0;
    FILE *out = open_memstream(&text, &count);

    assert_non_null(out);
    assert_int_equal(dpb_text_table_print(columns, 3, cells, 3, out, width), DPB_OK);
    assert_int_equal(fclose(out), 0);
    return text;
}

static void test_wide(void **state)
{
    char *text = table_at(80);

    (void)state;
    assert_string_equal(text, "name                        kind   bytes\n"
                              "a.name.that.is.rather.long  fp32       7\n"
                              "b                           bf16  123456\n"
                              "c                           u8         -\n");
    free(text);
}

/* In a file nothing is cut, of whatever length. */
static void test_no_terminal(void **state)
{
    char longest[301] = "", text[4096] = "";
    const char *const row[] = {longest, "fp32", "7"};
    FILE *out = tmpfile();

    (void)state;
    memset(longest, 'x', sizeof(longest) - 1);
    assert_non_null(out);
    assert_int_equal(dpb_text_table_print(columns, 3, row, 1, out, 0), DPB_OK);
    rewind(out);
    assert_true(fread(text, 1, sizeof(text) - 1, out) > 0);
    assert_non_null(strstr(text, longest));
    fclose(out);
}

/* Long texts are cut, and say so; words and numbers are not. */
static void test_narrow(void **state)
{
    char *text = table_at(36);

    (void)state;
    assert_string_equal(text, "name                    kind   bytes\n"
                              "a.name.that.is.rath...  fp32       7\n"
                              "b                       bf16  123456\n"
                              "c                       u8         -\n");
    free(text);
}

/* "a.na" would name nothing: better lines that wrap. */
static void test_too_narrow(void **state)
{
    char *text = table_at(24), *whole = table_at(80);

    (void)state;
    assert_string_equal(text, whole);
    free(text);
    free(whole);
}

/* A character of several bytes is not cut into pieces. */
static void test_utf8(void **state)
{
    static const char long_name[] =
            "\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4"
            "\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4";
    const char *const row[] = {long_name, "fp32", "7"};
    char text[512] = "";
    FILE *out = fmemopen(text, sizeof(text), "w");

    (void)state;
    assert_non_null(out);
    assert_non_null(setlocale(LC_CTYPE, "C.UTF-8"));
    assert_int_equal(dpb_text_table_print(columns, 3, row, 1, out, 36), DPB_OK);
    setlocale(LC_CTYPE, "C");
    fclose(out);
    assert_non_null(strstr(text, "\u00e4...  fp32"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_wide),   cmocka_unit_test(test_no_terminal),
            cmocka_unit_test(test_narrow), cmocka_unit_test(test_too_narrow),
            cmocka_unit_test(test_utf8),
    };

    return DPB_RUN_TESTS(tests);
}

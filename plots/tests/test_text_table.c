#include "dpb_text_table.h"

#include <stdlib.h>
#include <string.h>

#include "dpb_test.h"

static const struct dpb_text_column columns[] = {{"name", true}, {"bytes", false}};
static const char *const cells[] = {
        "a.name.that.is.rather.long", "7", "b", "123456", "c", NULL,
};

static char *table_at(int width)
{
    char *text = NULL;
    size_t count = 0;
    FILE *out = open_memstream(&text, &count);

    assert_non_null(out);
    assert_int_equal(dpb_text_table_print(columns, 2, cells, 3, out, width), DPB_OK);
    assert_int_equal(fclose(out), 0);
    return text;
}

static void test_wide(void **state)
{
    char *text = table_at(80);

    (void)state;
    assert_string_equal(text, "name                         bytes\n"
                              "a.name.that.is.rather.long       7\n"
                              "b                           123456\n"
                              "c                                -\n");
    free(text);
}

/* Names are cut, numbers are not: a cut number is another number. */
static void test_narrow(void **state)
{
    char *text = table_at(20);

    (void)state;
    for (const char *line = text; *line; line = strchr(line, '\n') + 1)
        assert_true(strcspn(line, "\n") <= 20);
    assert_non_null(strstr(text, "123456\n"));
    assert_null(strstr(text, "a.name.that.is.rather.long"));
    assert_non_null(strstr(text, "a.name"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_wide),
            cmocka_unit_test(test_narrow),
    };

    return DPB_RUN_TESTS(tests);
}

#include "dpb_test.h"

#include <string.h>

#include "dpb_library.h"

struct math {
    double (*cos)(double);
    double (*pow)(double, double);
};

static const char *const names[] = {"libm-that-is-not-there.so", "libm.so.6", NULL};
static const struct dpb_library_symbol symbols[] = {
        DPB_LIBRARY_SYMBOL(math, cos),
        DPB_LIBRARY_SYMBOL(math, pow),
};
static const struct dpb_library_symbol unknown[] = {
        DPB_LIBRARY_SYMBOL(math, cos),
        {"cos_of_next_year", offsetof(struct math, pow)},
};

static void test_later_name_is_found(void **state)
{
    const struct dpb_library library = {
            .what = "libm", .names = names, .symbols = symbols, .symbol_count = 2};
    struct math math = {NULL, NULL};
    char why[256] = "";

    (void)state;
    assert_int_equal(dpb_library_open(&library, &math, why, sizeof(why)), DPB_OK);
    assert_true(math.cos(0) == 1.0);
    assert_true(math.pow(2, 10) == 1024.0);
}

static void test_absent_library_says_why_and_what_to_do(void **state)
{
    const char *const absent[] = {"libabsent.so.9", NULL};
    const struct dpb_library library = {.what = "Absent",
                                        .names = absent,
                                        .remedy = "install absent 9",
                                        .symbols = symbols,
                                        .symbol_count = 2};
    struct math math = {NULL, NULL};
    char why[256] = "";

    (void)state;
    assert_int_equal(dpb_library_open(&library, &math, why, sizeof(why)), DPB_ERR_UNAVAILABLE);
    assert_non_null(strstr(why, "Absent: libabsent.so.9"));
    assert_non_null(strstr(why, "install absent 9"));
    assert_null(math.cos);
}

static void test_missing_function_leaves_the_table_alone(void **state)
{
    const struct dpb_library library = {.what = "libm",
                                        .names = names,
                                        .remedy = "wait",
                                        .symbols = unknown,
                                        .symbol_count = 2};
    struct math math = {NULL, NULL};
    char why[256] = "";

    (void)state;
    assert_int_equal(dpb_library_open(&library, &math, why, sizeof(why)), DPB_ERR_UNAVAILABLE);
    assert_non_null(strstr(why, "cos_of_next_year"));
    assert_null(math.cos);
}

static void test_variable_replaces_the_names(void **state)
{
    const struct dpb_library library = {.what = "libm",
                                        .names = names,
                                        .variable = "DPB_TEST_LIBM",
                                        .remedy = "correct it",
                                        .symbols = symbols,
                                        .symbol_count = 2};
    struct math math = {NULL, NULL};
    char why[256] = "";

    (void)state;
    setenv("DPB_TEST_LIBM", "/nowhere/libm.so", 1);
    assert_int_equal(dpb_library_open(&library, &math, why, sizeof(why)), DPB_ERR_UNAVAILABLE);
    assert_non_null(strstr(why, "/nowhere/libm.so"));
    unsetenv("DPB_TEST_LIBM");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_later_name_is_found),
            cmocka_unit_test(test_absent_library_says_why_and_what_to_do),
            cmocka_unit_test(test_missing_function_leaves_the_table_alone),
            cmocka_unit_test(test_variable_replaces_the_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

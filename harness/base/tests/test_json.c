#include <math.h>
#include <unistd.h>

#include "dpb_json.h"
#include "dpb_test.h"
#include "log_capture.h"

static void assert_json(const dpb_json *value, bool indented, const char *expected)
{
    struct dpb_str text = {0};

    assert_int_equal(dpb_json_write(value, indented, &text), DPB_OK);
    assert_string_equal(text.text, expected);
    dpb_str_release(&text);
}

static dpb_json *parsed(const char *text)
{
    dpb_json *value = NULL;
    char why[256];

    if (dpb_json_parse(text, strlen(text), &value, why) != DPB_OK)
        fail_msg("%s: %s", text, why);
    return value;
}

static void test_build_and_write(void **state)
{
    const int64_t ints[] = {1, INT64_MIN, INT64_MAX};
    const double reals[] = {0.1, 2, NAN, 1e300};
    dpb_json *root = dpb_json_object();

    (void)state;
    dpb_json_set_bool(root, "b", true);
    dpb_json_set_int(root, "i", 3);
    dpb_json_set_int(root, "i", 1700000000123456789);
    dpb_json_set_real(root, "r", 1);
    dpb_json_set_real(root, "inf", INFINITY);
    dpb_json_set_string(root, "s", "a\"b\\c\n\x01\x7f/é\xff");
    dpb_json_set_string(root, "n", NULL);
    dpb_json_set_absent(root, "energy", "no counter");
    dpb_json_set(root, "ints", dpb_json_ints(ints, 3));
    dpb_json_set(root, "reals", dpb_json_reals(reals, 4));
    dpb_json_set(root, "empty", dpb_json_array());
    dpb_json_set(root, "none", dpb_json_object());
    assert_true(dpb_json_ok(root));
    assert_json(root, false,
                "{\"b\":true,\"i\":1700000000123456789,\"r\":1.0,\"inf\":null,"
                "\"s\":\"a\\\"b\\\\c\\n\\u0001\\u007f/é\xef\xbf\xbd\",\"n\":null,\"energy\":null,"
                "\"energy_reason\":\"no counter\","
                "\"ints\":[1,-9223372036854775808,9223372036854775807],"
                "\"reals\":[0.1,2.0,null,1e+300],\"empty\":[],\"none\":{}}");
    dpb_json_free(root);
}

static void test_indented(void **state)
{
    dpb_json *root = parsed("{\"a\":[1,{\"b\":2}],\"c\":{}}");

    (void)state;
    assert_json(root, true,
                "{\n  \"a\": [\n    1,\n    {\n      \"b\": 2\n    }\n  ],\n  \"c\": {}\n}");
    dpb_json_free(root);
}

static void test_null_containers(void **state)
{
    struct dpb_str text = {0};

    (void)state;
    dpb_json_set(NULL, "a", dpb_json_int(1));
    dpb_json_append(NULL, dpb_json_int(1));
    dpb_json_set_absent(NULL, "a", "b");
    dpb_json_free(NULL);
    assert_false(dpb_json_ok(NULL));
    assert_null(dpb_json_copy(NULL));
    assert_int_equal(dpb_json_type(NULL), DPB_JSON_NULL);
    assert_int_equal(dpb_json_size(NULL), 0);
    assert_null(dpb_json_get(NULL, "a"));
    assert_null(dpb_json_at(NULL, 0));
    assert_null(dpb_json_path(NULL, "a/b"));
    assert_null(dpb_json_entry(NULL, 0, NULL));
    assert_int_equal(dpb_json_as_int(NULL, 7), 7);
    capture_start();
    assert_int_equal(dpb_json_write(NULL, false, &text), DPB_ERR_NO_MEMORY);
    capture_stop();
    dpb_str_release(&text);
}

static void test_read(void **state)
{
    dpb_json *root = parsed("{\"x\":{\"y\":[10,\"t\",2.5,true,null]},\"b\":1}");
    const dpb_json *list = dpb_json_path(root, "x/y");
    dpb_json_walk walk = {0};
    dpb_json *copy;
    const char *key = NULL;

    (void)state;
    assert_int_equal(dpb_json_size(list), 5);
    assert_int_equal(dpb_json_as_int(dpb_json_at(list, 0), -1), 10);
    assert_true(dpb_json_as_real(dpb_json_at(list, 0), -1) == 10);
    assert_string_equal(dpb_json_as_string(dpb_json_at(list, 1), "?"), "t");
    assert_true(dpb_json_as_real(dpb_json_at(list, 2), -1) == 2.5);
    assert_int_equal(dpb_json_as_int(dpb_json_at(list, 2), -1), -1); /* no silent rounding */
    assert_true(dpb_json_as_bool(dpb_json_at(list, 3), false));
    assert_false(dpb_json_as_bool(dpb_json_at(list, 0), false));
    assert_int_equal(dpb_json_type(dpb_json_at(list, 4)), DPB_JSON_NULL);
    assert_null(dpb_json_at(list, 5));
    assert_null(dpb_json_path(root, "x/z"));
    assert_null(dpb_json_path(root, "b/c"));
    assert_non_null(dpb_json_path(root, "b"));
    assert_int_equal(dpb_json_as_int(dpb_json_entry(root, 1, &key), -1), 1);
    assert_string_equal(key, "b");
    assert_null(dpb_json_entry(root, 2, &key));

    assert_non_null(dpb_json_next(root, &walk, &key));
    assert_string_equal(key, "x");
    assert_non_null(dpb_json_next(root, &walk, &key));
    assert_string_equal(key, "b");
    assert_null(dpb_json_next(root, &walk, &key));
    assert_int_equal(walk.index, 2);

    copy = dpb_json_copy(root);
    dpb_json_free(root);
    assert_json(copy, false, "{\"x\":{\"y\":[10,\"t\",2.5,true,null]},\"b\":1}");
    dpb_json_free(copy);
}

static void test_types_survive(void **state)
{
    /* a real stays a real and a nanosecond count stays exact */
    dpb_json *root = parsed("[1.0,1,9007199254740993,-0.0,5e-324,0.30000000000000004]");

    (void)state;
    assert_int_equal(dpb_json_type(dpb_json_at(root, 0)), DPB_JSON_REAL);
    assert_int_equal(dpb_json_type(dpb_json_at(root, 1)), DPB_JSON_INT);
    assert_int_equal(dpb_json_as_int(dpb_json_at(root, 2), 0), INT64_C(9007199254740993));
    assert_json(root, false, "[1.0,1,9007199254740993,-0.0,5e-324,0.30000000000000004]");
    dpb_json_free(root);
}

static void test_refused_texts(void **state)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
            {"", "line 1, column 0"},
            {"{\"a\":1,\"a\":2}", "duplicate"},
            {"{\n  \"a\": nan}", "line 2"},
            {"[1,]", "line 1"},
            {"[1] x", "line 1"},
            {"{\"a\":1", "line 1"},
            {"[1e999]", "real number overflow"},
            {"[99999999999999999999]", "too big"},
            {"[\"\xff\"]", "unable to decode byte 0xff"},
            {"[\"\\u0000\"]", "u0000"},
            {"[1,5", "line 1"},
    };
    char why[256];
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        dpb_json *value = NULL;

        assert_int_equal(dpb_json_parse(cases[i].text, strlen(cases[i].text), &value, why),
                         DPB_ERR_CORRUPT);
        assert_null(value);
        if (!strstr(why, cases[i].why))
            fail_msg("%s: \"%s\" does not say \"%s\"", cases[i].text, why, cases[i].why);
    }
    /* only `count` bytes are read */
    {
        dpb_json *value = NULL;

        assert_int_equal(dpb_json_parse("[1]garbage", 3, &value, NULL), DPB_OK);
        dpb_json_free(value);
    }
}

static void test_files(void **state)
{
    char path[] = "/tmp/dpb_test_json_XXXXXX";
    int fd = mkstemp(path);
    dpb_json *value = parsed("{\"a\":0.1}"), *again = NULL;
    struct dpb_str text = {0};

    (void)state;
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(dpb_json_write_file(value, path), DPB_OK);
    assert_int_equal(dpb_file_read(path, &text), DPB_OK);
    assert_string_equal(text.text, "{\n  \"a\": 0.1\n}\n");
    assert_int_equal(dpb_json_read_file(path, &again), DPB_OK);
    assert_true(dpb_json_as_real(dpb_json_get(again, "a"), 0) == 0.1);
    dpb_json_free(again);
    dpb_json_free(value);
    dpb_str_release(&text);

    capture_start();
    again = NULL;
    assert_int_equal(dpb_file_write_atomic(path, "{\n!", 3), DPB_OK);
    assert_int_equal(dpb_json_read_file(path, &again), DPB_ERR_CORRUPT);
    assert_logged(path);
    assert_logged("line 2");
    unlink(path);
    assert_int_equal(dpb_json_read_file(path, &again), DPB_ERR_NOT_FOUND);
    assert_null(again);
    capture_stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_build_and_write), cmocka_unit_test(test_indented),
            cmocka_unit_test(test_null_containers), cmocka_unit_test(test_read),
            cmocka_unit_test(test_types_survive),   cmocka_unit_test(test_refused_texts),
            cmocka_unit_test(test_files),
    };

    return DPB_RUN_TESTS(tests);
}

#include "dpb_test.h"

#include <unistd.h>

#include "dpb_yaml.h"

static struct dpb_yaml parse(const char *text)
{
    struct dpb_yaml root = {0};

    assert_int_equal(dpb_yaml_parse(text, strlen(text), "test", &root), DPB_OK);
    return root;
}

static void test_values_by_key(void **state)
{
    struct dpb_yaml root = parse("a: 1\nb: {c: [x, 'y z']}\n");
    const struct dpb_yaml *list = dpb_yaml_get(dpb_yaml_get(&root, "b"), "c");

    (void)state;
    assert_string_equal(dpb_yaml_get(&root, "a")->text, "1");
    assert_int_equal(list->kind, DPB_YAML_LIST);
    assert_int_equal(list->count, 2);
    assert_string_equal(list->items[1].text, "y z");
    assert_int_equal(list->items[1].line, 2);
    assert_null(dpb_yaml_get(&root, "c"));
    assert_null(dpb_yaml_get(list, "c"));
    assert_null(dpb_yaml_get(NULL, "c"));
    dpb_yaml_release(&root);
}

static void test_file(void **state)
{
    char path[] = "/tmp/dpb-yaml-XXXXXX";
    struct dpb_yaml root = {0};
    const int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "a: 1\n", 5), 5);
    close(fd);
    assert_int_equal(dpb_yaml_read_file(path, &root), DPB_OK);
    assert_string_equal(dpb_yaml_get(&root, "a")->text, "1");
    dpb_yaml_release(&root);
    unlink(path);
    assert_int_equal(dpb_yaml_read_file(path, &root), DPB_ERR_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_values_by_key),
            cmocka_unit_test(test_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

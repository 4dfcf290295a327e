/* How many files a process may open: raised for its ranks' sockets, as far as it may be. */
#include "dpb_test.h"

#include <sys/resource.h>

#include "../../base/tests/log_capture.h"
#include "open_files.h"

static struct rlimit before;

static int setup(void **state)
{
    (void)state;
    capture_start();
    return getrlimit(RLIMIT_NOFILE, &before);
}

static int teardown(void **state)
{
    (void)state;
    capture_stop();
    return setrlimit(RLIMIT_NOFILE, &before);
}

static rlim_t soft_limit(void)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    return limit.rlim_cur;
}

static void set_soft_limit(rlim_t files)
{
    const struct rlimit limit = {files, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void test_raised(void **state)
{
    (void)state;
    set_soft_limit(64);
    assert_int_equal(open_files_allow(10, 2), DPB_OK);
    assert_true(soft_limit() >= 64 + 20);
    assert_string_equal(captured.text, "");
}

/* It counts what is open: members of a crew, and then the ranks of a launch. */
static void test_what_is_open_counts(void **state)
{
    FILE *open[40];
    (void)state;
    set_soft_limit(64);
    assert_int_equal(open_files_allow(1, 1), DPB_OK);
    const rlim_t first = soft_limit();
    for (int i = 0; i < 40; i++)
        assert_non_null(open[i] = fopen("/dev/null", "re"));
    assert_int_equal(open_files_allow(1, 1), DPB_OK);
    assert_true(soft_limit() >= first + 40);
    for (int i = 0; i < 40; i++)
        fclose(open[i]);
}

static void test_never_lowered(void **state)
{
    (void)state;
    set_soft_limit(before.rlim_max < 1000 ? before.rlim_max : 1000);
    const rlim_t first = soft_limit();
    assert_int_equal(open_files_allow(1, 1), DPB_OK);
    assert_int_equal(soft_limit(), first);
}

static void test_too_many(void **state)
{
    (void)state;
    if (before.rlim_max > 1u << 30)
        dpb_test_skip("this user may open any number of files");
    assert_int_equal(open_files_allow((int)before.rlim_max, 1), DPB_ERR_UNAVAILABLE);
    assert_non_null(strstr(captured.text, "open files here, and the limit is "));
    assert_non_null(strstr(captured.text, "ulimit -n"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
            TEST(test_raised),
            TEST(test_what_is_open_counts),
            TEST(test_never_lowered),
            TEST(test_too_many),
    };
    return DPB_RUN_TESTS(tests);
}

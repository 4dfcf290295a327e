/* What the real CUDA runtime makes of a machine without a driver, and of the toolkit's stub. The
 * argument says which of them ctest has made: "none" or "stub". */
#include <dlfcn.h>
#include <stdbool.h>

#include "cuda_status.h"
#include "dpb_test.h"

static const char *expected_part;

static void test_line(void **state)
{
    char why[512] = "";
    int count = -7;

    (void)state;
    assert_int_equal(dpb_cuda_find_devices(&count, why, sizeof(why)), DPB_ERR_UNAVAILABLE);
    assert_int_equal(count, -7);
    print_message("%s\n", why);
    assert_int_equal(strncmp(why, "not available here, because ", 28), 0);
    assert_non_null(strstr(why, expected_part));
    assert_null(strchr(why, '\n'));
}

/* Asking again gives the same answer: nothing was left behind. */
static void test_again(void **state)
{
    char first[512], second[512];
    int count;

    (void)state;
    dpb_cuda_find_devices(&count, first, sizeof(first));
    dpb_cuda_find_devices(&count, second, sizeof(second));
    assert_string_equal(first, second);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_line), cmocka_unit_test(test_again)};
    bool stub = argc == 2 && strcmp(argv[1], "stub") == 0;

    if (!stub && dlopen("libcuda.so.1", RTLD_LAZY))
        dpb_test_skip_all("this machine has a driver");
    expected_part = stub ? "is the CUDA toolkit's stub, not a driver" : "there is no NVIDIA driver";
    return DPB_RUN_TESTS(tests);
}

/* dpb_test.h: what every unit test includes. cmocka under ctest, with its traps closed.
 *
 *   int main(void)
 *   {
 *       const struct CMUnitTest tests[] = {cmocka_unit_test(test_a), ...};
 *       return DPB_RUN_TESTS(tests);
 *   }
 *
 * cmocka 1.1.5 runs no test and succeeds when it is given a pointer instead of the array; the macro
 * takes the array only and asserts that there is at least one test. A test program that needs what
 * this machine lacks calls dpb_test_skip_all("why"), which ends it with status 77; a test of its
 * own, dpb_test_skip("why", ...), as for printf(). There is no skip without a reason. */
#ifndef DPB_TEST_H
#define DPB_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DPB_RUN_TESTS(tests)                                                                       \
    (__extension__({                                                                               \
        _Static_assert(!__builtin_types_compatible_p(__typeof__(tests), __typeof__(&(tests)[0])),  \
                       "pass the array itself");                                                   \
        _Static_assert(sizeof(tests) / sizeof((tests)[0]) > 0, "no tests");                        \
        cmocka_run_group_tests(tests, NULL, NULL);                                                 \
    }))

#undef skip
#define dpb_test_skip(...)                                                                         \
    do {                                                                                           \
        print_message("SKIP: " __VA_ARGS__);                                                       \
        print_message("\n");                                                                       \
        _skip(__FILE__, __LINE__);                                                                 \
    } while (0)

#define dpb_test_skip_all(why)                                                                     \
    do {                                                                                           \
        printf("SKIP: %s\n", (why));                                                               \
        exit(77);                                                                                  \
    } while (0)

/* DPB_TESTS_FULL=1 in the environment: tests whose whole matrix takes minutes run all of it, and
 * not the part that has every value of each of its axes. */
static inline bool dpb_tests_full(void)
{
    const char *full = getenv("DPB_TESTS_FULL");

    return full && strcmp(full, "1") == 0;
}

#endif

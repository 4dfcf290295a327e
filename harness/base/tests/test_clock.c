#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

#include "dpb_clock.h"
#include "dpb_test.h"

static void test_now_never_goes_back(void **state)
{
    int64_t before = dpb_clock_now_ns();
    int i;

    (void)state;
    assert_true(before > 0);
    for (i = 0; i < 1000; i++) {
        int64_t now = dpb_clock_now_ns();

        assert_true(now >= before);
        before = now;
    }
}

static void on_alarm(int signal_number)
{
    (void)signal_number;
}

static void test_sleep_reaches_the_deadline(void **state)
{
    struct sigaction action = {.sa_handler = on_alarm}, old;
    struct itimerval timer = {.it_interval = {0, 1000}, .it_value = {0, 1000}}, off = {0};
    int64_t deadline;

    (void)state;
    dpb_clock_sleep_until_ns(-1);
    dpb_clock_sleep_until_ns(0);
    dpb_clock_sleep_until_ns(dpb_clock_now_ns() - 1000000000);

    /* interrupted every millisecond, and not shortened by it */
    assert_int_equal(sigaction(SIGALRM, &action, &old), 0);
    assert_int_equal(setitimer(ITIMER_REAL, &timer, NULL), 0);
    deadline = dpb_clock_now_ns() + 20000000;
    dpb_clock_sleep_until_ns(deadline);
    assert_true(dpb_clock_now_ns() >= deadline);
    assert_int_equal(setitimer(ITIMER_REAL, &off, NULL), 0);
    assert_int_equal(sigaction(SIGALRM, &old, NULL), 0);
}

static void test_utc_texts(void **state)
{
    struct tm utc = {0};
    char text[25], stamp[17], small[5];
    time_t before = time(NULL), read_back;

    (void)state;
    dpb_clock_utc_text(text, sizeof(text));
    assert_int_equal(strlen(text), 24);
    assert_int_equal(text[19], '.');
    assert_string_equal(strptime(text, "%Y-%m-%dT%H:%M:%S", &utc), text + 19);
    assert_int_equal(text[23], 'Z');
    read_back = timegm(&utc);
    assert_true(read_back >= before && read_back <= time(NULL));

    memset(&utc, 0, sizeof(utc));
    dpb_clock_utc_stamp(stamp, sizeof(stamp));
    assert_int_equal(strlen(stamp), 16);
    assert_string_equal(strptime(stamp, "%Y%m%dT%H%M%S", &utc), "Z");
    read_back = timegm(&utc);
    assert_true(read_back >= before && read_back <= time(NULL));

    dpb_clock_utc_stamp(small, sizeof(small));
    assert_int_equal(strlen(small), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_now_never_goes_back),
            cmocka_unit_test(test_sleep_reaches_the_deadline),
            cmocka_unit_test(test_utc_texts),
    };

    return DPB_RUN_TESTS(tests);
}

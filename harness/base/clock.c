#include "dpb_clock.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

static int64_t read_clock_ns(clockid_t clock)
{
    struct timespec now;

    /* cannot fail: the clock exists on every Linux and the address is valid */
    (void)clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t dpb_clock_now_ns(void)
{
    return read_clock_ns(CLOCK_MONOTONIC);
}

void dpb_clock_sleep_until_ns(int64_t deadline_ns)
{
    struct timespec deadline;

    if (deadline_ns <= 0)
        return; /* the monotonic clock is never negative */
    deadline.tv_sec = (time_t)(deadline_ns / 1000000000);
    deadline.tv_nsec = (long)(deadline_ns % 1000000000);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &deadline, NULL) == EINTR)
        ;
}

void dpb_clock_utc_text(char *text, size_t text_bytes)
{
    struct timespec now;
    struct tm utc;
    char seconds[32];

    (void)clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    strftime(seconds, sizeof(seconds), "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(text, text_bytes, "%s.%03dZ", seconds, (int)(now.tv_nsec / 1000000));
}

void dpb_clock_utc_stamp(char *text, size_t text_bytes)
{
    time_t now = time(NULL);
    struct tm utc;
    char stamp[32];

    gmtime_r(&now, &utc);
    strftime(stamp, sizeof(stamp), "%Y%m%dT%H%M%SZ", &utc);
    snprintf(text, text_bytes, "%s", stamp);
}

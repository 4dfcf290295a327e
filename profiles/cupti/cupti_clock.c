#include "cupti_clock.h"

#include <time.h>

#include "dpb_clock.h"

#define READINGS 16

static int64_t realtime_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

dpb_status cupti_moment_read(const struct cupti_table *table, struct cupti_moment *moment)
{
    struct cupti_moment best = {.uncertain_ns = INT64_MAX};

    for (int i = 0; i < READINGS; i++) {
        uint64_t cupti_ns = 0;
        const int64_t before_ns = dpb_clock_now_ns();
        const CUptiResult result = table->cuptiGetTimestamp(&cupti_ns);
        const int64_t realtime_ns = realtime_now_ns();
        const int64_t after_ns = dpb_clock_now_ns();
        const int64_t uncertain_ns = (after_ns - before_ns + 1) / 2;

        DPB_TRY(cupti_check(table, result, "read its clock"));
        if (uncertain_ns < best.uncertain_ns)
            best = (struct cupti_moment){(int64_t)cupti_ns, realtime_ns, before_ns + uncertain_ns,
                                         uncertain_ns};
    }
    *moment = best;
    return DPB_OK;
}

static int64_t difference(const struct cupti_moment *moment)
{
    return moment->monotonic_ns - moment->cupti_ns;
}

int64_t cupti_clock_to_monotonic(const struct cupti_moment *from, const struct cupti_moment *to,
                                 int64_t cupti_ns)
{
    const int64_t length_ns = to->cupti_ns - from->cupti_ns;
    const int64_t change_ns = difference(to) - difference(from);
    int64_t at_ns = cupti_ns - from->cupti_ns;

    if (at_ns <= 0 || length_ns <= 0)
        return cupti_ns + difference(from);
    if (at_ns > length_ns)
        at_ns = length_ns;
    return cupti_ns + difference(from) + (int64_t)((__int128)change_ns * at_ns / length_ns);
}

int64_t cupti_clock_bound_ns(const struct cupti_moment *from, const struct cupti_moment *to)
{
    const int64_t change_ns = difference(to) - difference(from);
    const int64_t uncertain_ns =
            from->uncertain_ns > to->uncertain_ns ? from->uncertain_ns : to->uncertain_ns;

    return uncertain_ns + (change_ns < 0 ? -change_ns : change_ns);
}

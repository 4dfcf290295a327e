/* cupti_clock.h: from CUPTI's clock to ours. Private to profiles/cupti.
 *
 * CUPTI's times are CLOCK_REALTIME on Linux, which may be set or slewed while steps run; ours are
 * CLOCK_MONOTONIC. Both clocks are read together before and after the steps, and times between are
 * converted by interpolation. */
#ifndef CUPTI_CLOCK_H
#define CUPTI_CLOCK_H

#include <stdint.h>

#include "cupti_table.h"

/* The three clocks at one moment. */
struct cupti_moment {
    int64_t cupti_ns;
    int64_t realtime_ns;
    int64_t monotonic_ns;
    int64_t uncertain_ns; /* each is that of the moment within this */
};

/* Read them, several times, and keep the reading that took least. DPB_ERR_VENDOR, logged. */
dpb_status cupti_moment_read(const struct cupti_table *table, struct cupti_moment *moment);

/* CUPTI's time in ours: the difference of the clocks goes linearly from that at `from` to that at
 * `to`, and stays as it is before and after. */
int64_t cupti_clock_to_monotonic(const struct cupti_moment *from, const struct cupti_moment *to,
                                 int64_t cupti_ns);

/* What a converted time may be off by: what reading was uncertain by, and by how much the
 * difference changed, all of which may have come at once (a clock that was set). */
int64_t cupti_clock_bound_ns(const struct cupti_moment *from, const struct cupti_moment *to);

#endif

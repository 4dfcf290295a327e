/* dpb_clock.h: time. Monotonic nanoseconds, one clock for all processes of one machine. */
#ifndef DPB_CLOCK_H
#define DPB_CLOCK_H

#include <stddef.h>
#include <stdint.h>

#include "dpb_status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* CLOCK_MONOTONIC in nanoseconds since an arbitrary origin that all processes of this boot share.
 */
int64_t dpb_clock_now_ns(void);

/* Sleep until dpb_clock_now_ns() reaches `deadline_ns`; returns at once when it is past. Never
 * spins. Continues after EINTR. */
void dpb_clock_sleep_until_ns(int64_t deadline_ns);

/* The wall-clock time as "2026-12-01T08:21:21.123Z" into `text` (at least 25 bytes). */
void dpb_clock_utc_text(char *text, size_t text_bytes);

/* The wall-clock time as "20261201T082121Z", fit for a folder name, into `text` (17 bytes). */
void dpb_clock_utc_stamp(char *text, size_t text_bytes);

#ifdef __cplusplus
}
#endif
#endif

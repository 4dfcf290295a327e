/* dpb_meter.h: the meter interface: energy, power, clocks and temperature of what a rank computes
 * on, read before and after its timed steps; in between, from time to time, only what is cheap.
 *
 * A value that cannot be read is DPB_METER_NONE, never 0. */
#ifndef DPB_METER_H
#define DPB_METER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dpb_json.h"
#include "dpb_status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DPB_METER_OPS_VERSION 1
#define DPB_METER_NONE        INT64_MIN

/* Energy counters move in steps of 10 to 100 ms; over less than this they say nothing. */
#define DPB_METER_ENERGY_NS_MIN 2000000000

/* A clock that fell by more than this share while it was watched was held back. */
#define DPB_METER_CLOCK_FALL_MAX 0.05

/* Why a clock was lower than asked for, as NVML names it (nvmlClocksEventReasons); bit, text,
 * whether it marks the run: heat and power that the machine could not carry. The power limit that
 * is set for the device is the normal end of its boost and marks nothing. */
#define DPB_THROTTLE_MAP(X)                                                                        \
    X(DPB_THROTTLE_IDLE, 0x1, "idle", false)                                                       \
    X(DPB_THROTTLE_APPLICATION_CLOCKS, 0x2, "application clocks", false)                           \
    X(DPB_THROTTLE_POWER_CAP, 0x4, "power limit", false)                                           \
    X(DPB_THROTTLE_HARDWARE, 0x8, "hardware slowdown", true)                                       \
    X(DPB_THROTTLE_SYNC_BOOST, 0x10, "sync boost", false)                                          \
    X(DPB_THROTTLE_SOFTWARE_THERMAL, 0x20, "software thermal slowdown", true)                      \
    X(DPB_THROTTLE_HARDWARE_THERMAL, 0x40, "hardware thermal slowdown", true)                      \
    X(DPB_THROTTLE_POWER_BRAKE, 0x80, "power brake", true)                                         \
    X(DPB_THROTTLE_DISPLAY_CLOCKS, 0x100, "display clocks", false)

enum dpb_throttle {
#define DPB_THROTTLE_ENUM(name, bit, text, marks) name = (bit),
    DPB_THROTTLE_MAP(DPB_THROTTLE_ENUM)
#undef DPB_THROTTLE_ENUM
};

/* One reading. */
struct dpb_meter_sample {
    int64_t time_ns;   /* dpb_clock_now_ns() */
    int64_t energy_mj; /* since some time in the past */
    int64_t power_mw;  /* now, or the shortest mean that the device gives */
    int64_t clock_mhz; /* of what computes */
    int64_t memory_clock_mhz;
    int64_t temperature_c;
    int64_t throttle; /* bits of enum dpb_throttle */
};

/* What lies between two readings, and those between them. */
struct dpb_meter_span {
    struct dpb_meter_sample first, last;
    int64_t samples;  /* readings, first and last included */
    int64_t throttle; /* all that were ever set; DPB_METER_NONE when never known */
    int64_t clock_mhz_min, clock_mhz_max;
};

typedef struct dpb_meter dpb_meter;

struct dpb_meter_config {
    const char *device; /* what to read: a GPU's PCI bus id or UUID; "" for meters of one machine */
};

enum dpb_meter_flags {
    /* It reads the whole machine, so one rank of it does; otherwise each rank its own device. */
    DPB_METER_MACHINE = 1 << 0
};

struct dpb_meter_ops {
    int version; /* DPB_METER_OPS_VERSION */
    const char *name, *summary;
    unsigned flags;
    dpb_status (*probe)(char *why, size_t why_bytes); /* as dpb_device_ops.probe */

    /* DPB_ERR_UNAVAILABLE with one line in `why`: a run without a meter is no failure. */
    dpb_status (*open)(const struct dpb_meter_config *config, dpb_meter **meter, char *why,
                       size_t why_bytes);
    /* Costs up to some milliseconds; no allocation. What cannot be read is DPB_METER_NONE. */
    void (*read)(dpb_meter *meter, struct dpb_meter_sample *sample);
    /* Optional: time, clock and throttle only, in some microseconds; the rest is DPB_METER_NONE. */
    void (*poll)(dpb_meter *meter, struct dpb_meter_sample *sample);
    void (*close)(dpb_meter *meter);
};

/* Check a table: version, names, members. Logged; DPB_ERR_INTERNAL. */
dpb_status dpb_meter_ops_check(const struct dpb_meter_ops *ops);

/* Begin a span with a reading, and extend it by a later one: the last one must be a whole one. */
void dpb_meter_span_begin(struct dpb_meter_span *span, const struct dpb_meter_sample *sample);
void dpb_meter_span_extend(struct dpb_meter_span *span, const struct dpb_meter_sample *sample);

/* Energy over the span, mJ; DPB_METER_NONE when not counted, or the span is shorter than
 * DPB_METER_ENERGY_NS_MIN, or the counter went backwards. */
int64_t dpb_meter_span_energy_mj(const struct dpb_meter_span *span);

/* Was the device held back: a marking reason was ever set, or its clock fell by more than
 * DPB_METER_CLOCK_FALL_MAX from the span's highest? `why`, one line, says which. */
bool dpb_meter_span_throttled(const struct dpb_meter_span *span, char *why, size_t why_bytes);

/* {"duration_ns", "samples", "energy_mj", "first": {"power_mw", "clock_mhz", "memory_clock_mhz",
 * "temperature_c"}, "last": the same, "clock_mhz_min", "clock_mhz_max", "throttle": ["power
 * limit"], "throttled", "throttled_by"}; null where unknown. Caller owns. */
dpb_json *dpb_meter_span_json(const struct dpb_meter_span *span);

#ifdef __cplusplus
}
#endif
#endif

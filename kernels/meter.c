#include "dpb_meter.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "dpb_log.h"

static dpb_status bad_table(const char *name, const char *what)
{
    dpb_error("meter \"%s\": %s", name, what);
    return DPB_ERR_INTERNAL;
}

dpb_status dpb_meter_ops_check(const struct dpb_meter_ops *ops)
{
    if (!ops || !ops->name || !ops->name[0])
        return bad_table("", "there is no table, or it has no name");
    if (ops->version != DPB_METER_OPS_VERSION) {
        dpb_error("meter \"%s\": its table has version %d, this program needs %d", ops->name,
                  ops->version, DPB_METER_OPS_VERSION);
        return DPB_ERR_INTERNAL;
    }
    if (!ops->summary || !ops->summary[0])
        return bad_table(ops->name, "the table has no summary");
    if (!ops->probe || !ops->open || !ops->read || !ops->close)
        return bad_table(ops->name, "probe, open, read or close is missing");
    return DPB_OK;
}

void dpb_meter_span_begin(struct dpb_meter_span *span, const struct dpb_meter_sample *sample)
{
    *span = (struct dpb_meter_span){
            .first = *sample,
            .last = *sample,
            .samples = 1,
            .throttle = sample->throttle,
            .clock_mhz_min = sample->clock_mhz,
            .clock_mhz_max = sample->clock_mhz,
    };
}

void dpb_meter_span_extend(struct dpb_meter_span *span, const struct dpb_meter_sample *sample)
{
    int64_t clock = sample->clock_mhz;

    span->last = *sample;
    span->samples++;
    if (sample->throttle != DPB_METER_NONE)
        span->throttle = span->throttle == DPB_METER_NONE ? sample->throttle
                                                          : span->throttle | sample->throttle;
    if (clock == DPB_METER_NONE)
        return;
    if (span->clock_mhz_min == DPB_METER_NONE || clock < span->clock_mhz_min)
        span->clock_mhz_min = clock;
    if (span->clock_mhz_max == DPB_METER_NONE || clock > span->clock_mhz_max)
        span->clock_mhz_max = clock;
}

int64_t dpb_meter_span_energy_mj(const struct dpb_meter_span *span)
{
    int64_t from = span->first.energy_mj, to = span->last.energy_mj;

    if (from == DPB_METER_NONE || to == DPB_METER_NONE || to < from ||
        span->last.time_ns - span->first.time_ns < DPB_METER_ENERGY_NS_MIN)
        return DPB_METER_NONE;
    return to - from;
}

static const struct {
    int64_t bit;
    const char *text;
    bool marks;
} throttles[] = {
#define ROW(name, bit, text, marks) {bit, text, marks},
        DPB_THROTTLE_MAP(ROW)
#undef ROW
};
#define THROTTLE_COUNT (sizeof(throttles) / sizeof(throttles[0]))

bool dpb_meter_span_throttled(const struct dpb_meter_span *span, char *why, size_t why_bytes)
{
    int64_t lowest = span->clock_mhz_min, highest = span->clock_mhz_max;

    for (size_t i = 0; i < THROTTLE_COUNT && span->throttle != DPB_METER_NONE; i++) {
        if (throttles[i].marks && (span->throttle & throttles[i].bit)) {
            snprintf(why, why_bytes, "%s", throttles[i].text);
            return true;
        }
    }
    if (highest == DPB_METER_NONE || lowest == DPB_METER_NONE ||
        (double)lowest >= (double)highest * (1 - DPB_METER_CLOCK_FALL_MAX))
        return false;
    snprintf(why, why_bytes, "the clock fell from %" PRId64 " to %" PRId64 " MHz", highest, lowest);
    return true;
}

/* ---- as JSON ---- */

static void put(dpb_json *json, const char *key, int64_t value)
{
    if (value == DPB_METER_NONE)
        dpb_json_set(json, key, dpb_json_null());
    else
        dpb_json_set_int(json, key, value);
}

static void put_sample(dpb_json *json, const char *when, const struct dpb_meter_sample *sample)
{
    dpb_json *values = dpb_json_object();

    put(values, "power_mw", sample->power_mw);
    put(values, "clock_mhz", sample->clock_mhz);
    put(values, "memory_clock_mhz", sample->memory_clock_mhz);
    put(values, "temperature_c", sample->temperature_c);
    dpb_json_set(json, when, values);
}

static dpb_json *throttle_json(int64_t throttle)
{
    dpb_json *texts;

    if (throttle == DPB_METER_NONE)
        return dpb_json_null();
    texts = dpb_json_array();
    for (size_t i = 0; i < THROTTLE_COUNT; i++) {
        if (throttle & throttles[i].bit)
            dpb_json_append(texts, dpb_json_string(throttles[i].text));
    }
    return texts;
}

dpb_json *dpb_meter_span_json(const struct dpb_meter_span *span)
{
    dpb_json *json = dpb_json_object();
    int64_t energy_mj = dpb_meter_span_energy_mj(span);
    char why[128] = "";
    bool throttled = dpb_meter_span_throttled(span, why, sizeof(why));

    dpb_json_set_int(json, "duration_ns", span->last.time_ns - span->first.time_ns);
    dpb_json_set_int(json, "samples", span->samples);
    if (energy_mj != DPB_METER_NONE)
        dpb_json_set_int(json, "energy_mj", energy_mj);
    else
        dpb_json_set_absent(json, "energy_mj",
                            span->first.energy_mj == DPB_METER_NONE
                                    ? "there is no energy counter that we may read"
                                    : "watched for less than 2 s, in which the counter says too "
                                      "little");
    put_sample(json, "first", &span->first);
    put_sample(json, "last", &span->last);
    put(json, "clock_mhz_min", span->clock_mhz_min);
    put(json, "clock_mhz_max", span->clock_mhz_max);
    dpb_json_set(json, "throttle", throttle_json(span->throttle));
    dpb_json_set_bool(json, "throttled", throttled);
    dpb_json_set_string(json, "throttled_by", why);
    return json;
}

/* Spans of meters: what their numbers make of readings, and the meter of processor packages. */
#include "dpb_test.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dpb_meter.h"
#include "dpb_meter_rapl.h"

#define S 1000000000ll

static struct dpb_meter_sample reading(int64_t time_ns, int64_t energy_mj, int64_t clock_mhz,
                                       int64_t throttle)
{
    return (struct dpb_meter_sample){
            .time_ns = time_ns,
            .energy_mj = energy_mj,
            .power_mw = 300000,
            .clock_mhz = clock_mhz,
            .memory_clock_mhz = DPB_METER_NONE,
            .temperature_c = 60,
            .throttle = throttle,
    };
}

static struct dpb_meter_span span_of(const struct dpb_meter_sample *samples, int count)
{
    struct dpb_meter_span span;

    dpb_meter_span_begin(&span, &samples[0]);
    for (int i = 1; i < count; i++)
        dpb_meter_span_extend(&span, &samples[i]);
    return span;
}

static int64_t energy_of(int64_t duration_ns, int64_t from_mj, int64_t to_mj)
{
    struct dpb_meter_sample samples[] = {reading(5 * S, from_mj, 0, 0),
                                         reading(5 * S + duration_ns, to_mj, 0, 0)};
    struct dpb_meter_span span = span_of(samples, 2);

    return dpb_meter_span_energy_mj(&span);
}

static void test_energy(void **state)
{
    (void)state;
    assert_int_equal(energy_of(2 * S, 100, 700), 600);
    assert_int_equal(energy_of(2 * S - 1, 100, 700), DPB_METER_NONE);
    assert_int_equal(energy_of(9 * S, 700, 100), DPB_METER_NONE);
    assert_int_equal(energy_of(9 * S, DPB_METER_NONE, 100), DPB_METER_NONE);
    assert_int_equal(energy_of(9 * S, 100, DPB_METER_NONE), DPB_METER_NONE);
    assert_int_equal(energy_of(9 * S, 100, 100), 0);
}

/* Three readings; what only the middle one saw counts. */
static bool throttled(int64_t clock_mhz, int64_t throttle, char *why)
{
    struct dpb_meter_sample samples[] = {reading(0, 0, 1980, 0),
                                         reading(S, DPB_METER_NONE, clock_mhz, throttle),
                                         reading(2 * S, 9, 1980, 0)};
    struct dpb_meter_span span = span_of(samples, 3);

    strcpy(why, "");
    return dpb_meter_span_throttled(&span, why, 128);
}

static void test_throttled(void **state)
{
    char why[128];

    (void)state;
    assert_false(throttled(1980, 0, why));
    assert_false(throttled(1980, DPB_THROTTLE_POWER_CAP | DPB_THROTTLE_IDLE, why));
    assert_true(throttled(1980, DPB_THROTTLE_HARDWARE_THERMAL | DPB_THROTTLE_IDLE, why));
    assert_string_equal(why, "hardware thermal slowdown");
    assert_true(throttled(1980, DPB_THROTTLE_HARDWARE, why));
    assert_true(throttled(1980, DPB_THROTTLE_SOFTWARE_THERMAL, why));
    assert_true(throttled(1980, DPB_THROTTLE_POWER_BRAKE, why));
    assert_false(throttled(1881, 0, why)); /* 95 % of 1980 */
    assert_true(throttled(1880, 0, why));
    assert_string_equal(why, "the clock fell from 1980 to 1880 MHz");
    assert_false(throttled(DPB_METER_NONE, DPB_METER_NONE, why));
}

static void test_span_json(void **state)
{
    struct dpb_meter_sample samples[] = {reading(0, 1000, 1980, DPB_THROTTLE_POWER_CAP),
                                         reading(3 * S, 4000, 1700, DPB_METER_NONE)};
    struct dpb_meter_span span = span_of(samples, 2);
    dpb_json *json = dpb_meter_span_json(&span);
    const dpb_json *throttle = dpb_json_get(json, "throttle");

    (void)state;
    assert_int_equal(dpb_json_as_int(dpb_json_get(json, "energy_mj"), -1), 3000);
    assert_int_equal(dpb_json_as_int(dpb_json_path(json, "first/clock_mhz"), -1), 1980);
    assert_int_equal(dpb_json_as_int(dpb_json_path(json, "last/clock_mhz"), -1), 1700);
    assert_int_equal(dpb_json_type(dpb_json_path(json, "last/memory_clock_mhz")), DPB_JSON_NULL);
    assert_int_equal(dpb_json_size(throttle), 1);
    assert_string_equal(dpb_json_as_string(dpb_json_at(throttle, 0), ""), "power limit");
    assert_true(dpb_json_as_bool(dpb_json_get(json, "throttled"), false));
    dpb_json_free(json);

    span = span_of(samples, 1);
    json = dpb_meter_span_json(&span);
    assert_int_equal(dpb_json_type(dpb_json_get(json, "energy_mj")), DPB_JSON_NULL);
    assert_non_null(strstr(dpb_json_as_string(dpb_json_get(json, "energy_mj_reason"), ""), "2 s"));
    dpb_json_free(json);
}

/* ---- processor packages ---- */

static char folder[] = "/tmp/dpb-rapl-XXXXXX";

static void put(int package, const char *name, long long value)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/intel-rapl:%d", folder, package);
    (void)mkdir(path, 0700);
    snprintf(path, sizeof(path), "%s/intel-rapl:%d/%s", folder, package, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "%lld\n", value);
    assert_int_equal(fclose(file), 0);
}

static int make_folder(void **state)
{
    (void)state;
    dpb_meter_rapl_use(folder);
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    char command[300];

    (void)state;
    dpb_meter_rapl_use(NULL);
    snprintf(command, sizeof(command), "rm -r '%s'", folder);
    return system(command);
}

static void test_rapl(void **state)
{
    struct dpb_meter_sample first, last;
    dpb_meter *meter = NULL;
    char why[256] = "";

    (void)state;
    assert_int_equal(dpb_meter_ops_check(&dpb_meter_rapl_ops), DPB_OK);
    assert_int_equal(dpb_meter_rapl_ops.probe(why, sizeof(why)), DPB_ERR_UNAVAILABLE);
    assert_non_null(strstr(why, "energy_uj cannot be opened"));
    put(0, "energy_uj", 5000000);
    put(0, "max_energy_range_uj", 262143328850);
    put(1, "energy_uj", 262143000000);
    put(1, "max_energy_range_uj", 262143328850);
    assert_int_equal(dpb_meter_rapl_ops.probe(why, sizeof(why)), DPB_OK);
    assert_int_equal(
            dpb_meter_rapl_ops.open(&(struct dpb_meter_config){""}, &meter, why, sizeof(why)),
            DPB_OK);
    dpb_meter_rapl_ops.read(meter, &first);
    put(0, "energy_uj", 5500000);
    put(1, "energy_uj", 671150); /* began again: 328,850 to the end, and these */
    dpb_meter_rapl_ops.read(meter, &last);
    assert_int_equal(last.energy_mj - first.energy_mj, 500 + 1000);
    assert_int_equal(last.temperature_c, DPB_METER_NONE);
    put(1, "energy_uj", -1); /* no number that a counter has */
    dpb_meter_rapl_ops.read(meter, &last);
    assert_int_equal(last.energy_mj, DPB_METER_NONE);
    put(1, "energy_uj", 700000);
    dpb_meter_rapl_ops.read(meter, &last);
    assert_int_equal(last.energy_mj, DPB_METER_NONE);
    dpb_meter_rapl_ops.close(meter);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_energy),
            cmocka_unit_test(test_throttled),
            cmocka_unit_test(test_span_json),
            cmocka_unit_test_setup_teardown(test_rapl, make_folder, remove_folder),
    };

    return DPB_RUN_TESTS(tests);
}

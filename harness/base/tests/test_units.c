#include <float.h>
#include <math.h>

#include "dpb_rng.h"
#include "dpb_test.h"
#include "dpb_units.h"

static char why[DPB_WHY_BYTES];

struct whole_case {
    const char *text;
    int64_t value;
};

struct refused_case {
    const char *text;
    const char *why;
};

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static void check_whole(dpb_status (*parse)(const char *, int64_t *, char[DPB_WHY_BYTES]),
                        const struct whole_case *cases, size_t count)
{
    size_t i;

    for (i = 0; i < count; i++) {
        int64_t value = -77;

        if (parse(cases[i].text, &value, why) != DPB_OK || value != cases[i].value)
            fail_msg("\"%s\" gave %lld, not %lld (%s)", cases[i].text, (long long)value,
                     (long long)cases[i].value, why);
    }
}

static void check_whole_refused(dpb_status (*parse)(const char *, int64_t *, char[DPB_WHY_BYTES]),
                                const struct refused_case *cases, size_t count)
{
    size_t i;

    for (i = 0; i < count; i++) {
        int64_t value = -77;

        why[0] = '\0';
        if (parse(cases[i].text, &value, why) != DPB_ERR_USAGE || value != -77)
            fail_msg("\"%s\" was taken as %lld", cases[i].text, (long long)value);
        if (!strstr(why, cases[i].why))
            fail_msg("\"%s\": \"%s\" does not say \"%s\"", cases[i].text, why, cases[i].why);
        assert_int_equal(parse(cases[i].text, &value, NULL), DPB_ERR_USAGE);
    }
}

static void test_i64(void **state)
{
    static const struct whole_case good[] = {
            {"0", 0},
            {"-5", -5},
            {"007", 7},
            {"1e3", 1000},
            {"12.0", 12},
            {"1.5e1", 15},
            {"9223372036854775807", INT64_MAX},
            {"-9223372036854775808", INT64_MIN},
            {"-0", 0},
            {"0e99999999999", 0},
            {"1000e-3", 1},
    };
    static const struct refused_case bad[] = {
            {"", "empty"},
            {" 1", "a number is expected"},
            {"1 ", "unexpected ' '"},
            {"nonsense", "a number is expected"},
            {"0x10", "unexpected 'x10'"},
            {"inf", "a number is expected"},
            {"nan", "a number is expected"},
            {"1.5", "fraction"},
            {"1e99", "out of range: at most 9223372036854775807"},
            {"-1e99", "out of range: at least -9223372036854775808"},
            {"9223372036854775808", "out of range"},
            {"-9223372036854775809", "out of range"},
            {"1e999999999999999999999", "out of range"},
            {"12345678901234567890123456789012345678901234567890", "out of range"},
            {"1.0000000000000000000000000000001", "digits"},
            {"1e-1", "fraction"},
            {"1,000", "unexpected ',000'"},
            {"1.2.3", "unexpected '.3'"},
            {"+5", "a number is expected"},
            {"--5", "a number is expected"},
            {".", "a number is expected"},
            {"1e", "unexpected 'e'"},
            {"1e+", "unexpected 'e+'"},
    };

    (void)state;
    check_whole(dpb_parse_i64, good, COUNT_OF(good));
    check_whole_refused(dpb_parse_i64, bad, COUNT_OF(bad));
}

static void test_size(void **state)
{
    static const struct whole_case good[] = {
            {"0", 0},
            {"0B", 0},
            {"25", 25},
            {"25B", 25},
            {"1K", 1024},
            {"10k", 10240},
            {"1KB", 1000},
            {"1kb", 1000},
            {"1KiB", 1024},
            {"25MB", 25000000},
            {"25MiB", 26214400},
            {"4mib", 4194304},
            {"25M", 26214400},
            {"1GB", 1000000000},
            {"1GiB", 1073741824},
            {"1T", INT64_C(1099511627776)},
            {"1TB", INT64_C(1000000000000)},
            {"1.5MiB", 1572864},
            {"0.5K", 512},
            {".5KB", 500},
            {"1e6", 1000000},
            {"8388607TiB", INT64_C(8388607) << 40},
    };
    static const struct refused_case bad[] = {
            {"10XB", "unknown unit 'XB'; use B, KB, KiB, MB, MiB, GB, GiB, TB or TiB"},
            {"true", "a number is expected"},
            {"auto", "a number is expected"},
            {"", "empty"},
            {"-1", "negative"},
            {"-5MiB", "negative"},
            {"0.3B", "not a whole number of bytes"},
            {"1.0001KB", "not a whole number of bytes"},
            {"8388608TiB", "out of range: below 2^63 bytes"},
            {"1e99", "out of range"},
            {"10 MiB", "unknown unit ' MiB'"},
            {"10MiBx", "unknown unit 'MiBx'"},
            {"10Mib", "unknown unit"},
            {"10MIB", "unknown unit"},
            {"10b", "unknown unit 'b'"},
            {"1,5MiB", "unknown unit ',5MiB'"},
            {"infMiB", "a number is expected"},
            {"MiB", "a number is expected"},
    };

    (void)state;
    check_whole(dpb_parse_size, good, COUNT_OF(good));
    check_whole_refused(dpb_parse_size, bad, COUNT_OF(bad));
}

static void test_duration(void **state)
{
    static const struct whole_case good[] = {
            {"0", 0},
            {"250ms", 250000000},
            {"1ns", 1},
            {"5us", 5000},
            {"1.5s", 1500000000},
            {"2min", INT64_C(120000000000)},
            {"1h", INT64_C(3600000000000)},
            {"0.000001ms", 1},
            {"-0", 0},
    };
    static const struct refused_case bad[] = {
            {"250", "the unit is missing; use ns, us, ms, s, min or h"},
            {"0.5", "the unit is missing"},
            {"-1s", "negative"},
            {"1m", "unknown unit 'm'"},
            {"1S", "unknown unit 'S'"},
            {"0.5ns", "not a whole number of nanoseconds"},
            {"3000000h", "out of range"},
            {"infs", "a number is expected"},
            {"", "empty"},
    };

    (void)state;
    check_whole(dpb_parse_duration, good, COUNT_OF(good));
    check_whole_refused(dpb_parse_duration, bad, COUNT_OF(bad));
}

static void check_real(dpb_status (*parse)(const char *, double *, char[DPB_WHY_BYTES]),
                       const char *text, double expected)
{
    double value = -77;

    if (parse(text, &value, why) != DPB_OK || value != expected)
        fail_msg("\"%s\" gave %.17g, not %.17g (%s)", text, value, expected, why);
}

static void check_real_refused(dpb_status (*parse)(const char *, double *, char[DPB_WHY_BYTES]),
                               const char *text, const char *expected)
{
    double value = -77;

    if (parse(text, &value, why) != DPB_ERR_USAGE || value != -77)
        fail_msg("\"%s\" was taken as %.17g", text, value);
    if (!strstr(why, expected))
        fail_msg("\"%s\": \"%s\" does not say \"%s\"", text, why, expected);
    assert_int_equal(parse(text, &value, NULL), DPB_ERR_USAGE);
}

static void test_rate(void **state)
{
    (void)state;
    check_real(dpb_parse_rate, "25Gbps", 3.125e9);
    check_real(dpb_parse_rate, "3GB/s", 3e9);
    check_real(dpb_parse_rate, "1bps", 0.125);
    check_real(dpb_parse_rate, "100Kbps", 12500);
    check_real(dpb_parse_rate, "1KiB/s", 1024);
    check_real(dpb_parse_rate, "1.5MiB/s", 1572864);
    check_real(dpb_parse_rate, "1GiB/s", 1073741824);
    check_real(dpb_parse_rate, "2TB/s", 2e12);
    check_real(dpb_parse_rate, "0.1MB/s", 0.1e6);
    check_real(dpb_parse_rate, "0bps", 0);
    check_real_refused(dpb_parse_rate, "25", "the unit is missing; use bps, Kbps");
    check_real_refused(dpb_parse_rate, "0", "the unit is missing");
    check_real_refused(dpb_parse_rate, "25gbps", "unknown unit 'gbps'");
    check_real_refused(dpb_parse_rate, "25GB", "unknown unit 'GB'");
    check_real_refused(dpb_parse_rate, "-1Gbps", "negative");
    check_real_refused(dpb_parse_rate, "1e999Gbps", "out of range");
    check_real_refused(dpb_parse_rate, "infGbps", "a number is expected");
    check_real_refused(dpb_parse_rate, "", "empty");
}

static void test_f64_and_ratio(void **state)
{
    (void)state;
    check_real(dpb_parse_f64, "1.5", 1.5);
    check_real(dpb_parse_f64, "-0.001e3", -1);
    check_real(dpb_parse_f64, "0.1", 0.1);
    check_real(dpb_parse_f64, "1.7976931348623157e308", DBL_MAX);
    check_real(dpb_parse_f64, "4.9e-324", 5e-324);
    check_real(dpb_parse_f64, "0.1000000000000000055511151231257827021181583404541015625", 0.1);
    check_real(dpb_parse_f64, "123456789012345678901234567890", 123456789012345678901234567890.0);
    check_real_refused(dpb_parse_f64, "inf", "a number is expected");
    check_real_refused(dpb_parse_f64, "-inf", "a number is expected");
    check_real_refused(dpb_parse_f64, "nan", "a number is expected");
    check_real_refused(dpb_parse_f64, "0x1p3", "unexpected 'x1p3'");
    check_real_refused(dpb_parse_f64, "1e309", "out of range");
    check_real_refused(dpb_parse_f64, "1e-400", "too close to zero");
    check_real_refused(dpb_parse_f64, "1,5", "unexpected ',5'");
    check_real_refused(dpb_parse_f64, "", "empty");

    check_real(dpb_parse_ratio, "85%", 0.85);
    check_real(dpb_parse_ratio, "0.85", 0.85);
    check_real(dpb_parse_ratio, "0.1%", 0.001);
    check_real(dpb_parse_ratio, "150%", 1.5);
    check_real_refused(dpb_parse_ratio, "85 %", "unexpected ' %'");
    check_real_refused(dpb_parse_ratio, "85%%", "unexpected '%%'");
    check_real_refused(dpb_parse_ratio, "%", "a number is expected");
}

static void test_bool(void **state)
{
    static const char *const yes[] = {"on", "true", "yes", "1"};
    static const char *const no[] = {"off", "false", "no", "0"};
    static const char *const neither[] = {"", "ON", "False", "2", "y", "on "};
    bool value;
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(yes); i++) {
        value = false;
        assert_int_equal(dpb_parse_bool(yes[i], &value, why), DPB_OK);
        assert_true(value);
        value = true;
        assert_int_equal(dpb_parse_bool(no[i], &value, why), DPB_OK);
        assert_false(value);
    }
    for (i = 0; i < COUNT_OF(neither); i++)
        assert_int_equal(dpb_parse_bool(neither[i], &value, why), DPB_ERR_USAGE);
}

static void check_text(void (*format)(int64_t, char *, size_t), int64_t value, const char *expected)
{
    char text[DPB_UNIT_TEXT_BYTES];

    format(value, text, sizeof(text));
    assert_string_equal(text, expected);
}

static void test_exact_texts(void **state)
{
    char text[DPB_UNIT_TEXT_BYTES];
    char small[4];

    (void)state;
    check_text(dpb_format_size, 26214400, "25MiB");
    check_text(dpb_format_size, 1000, "1000B");
    check_text(dpb_format_size, 1536, "1536B");
    check_text(dpb_format_size, 0, "0B");
    check_text(dpb_format_size, INT64_C(1) << 40, "1TiB");
    check_text(dpb_format_size, INT64_C(1) << 60, "1048576TiB");
    check_text(dpb_format_size, INT64_MAX, "9223372036854775807B");
    check_text(dpb_format_duration, 250000000, "250ms");
    check_text(dpb_format_duration, 0, "0");
    check_text(dpb_format_duration, 90000000000, "90s");
    check_text(dpb_format_duration, 120000000000, "2min");
    check_text(dpb_format_duration, 3600000000000, "1h");
    check_text(dpb_format_duration, 1, "1ns");
    check_text(dpb_format_duration, 1500, "1500ns");
    dpb_format_rate(3.125e9, text, sizeof(text));
    assert_string_equal(text, "25Gbps");
    dpb_format_rate(12500, text, sizeof(text));
    assert_string_equal(text, "100Kbps");
    dpb_format_rate(13107200, text, sizeof(text));
    assert_string_equal(text, "104.8576Mbps");
    dpb_format_rate(0, text, sizeof(text));
    assert_string_equal(text, "0bps");
    dpb_format_rate(0.125, text, sizeof(text));
    assert_string_equal(text, "1bps");
    dpb_format_rate(12.5e15, text, sizeof(text));
    assert_string_equal(text, "100000Tbps");
    dpb_format_size(26214400, small, sizeof(small));
    assert_string_equal(small, "25M");
}

/* Every text parses back to the same value. */
static void test_round_trips(void **state)
{
    char text[DPB_UNIT_TEXT_BYTES];
    struct dpb_rng rng;
    int i;

    (void)state;
    dpb_rng_init(&rng, 1, 0);
    for (i = 0; i < 20000; i++) {
        int64_t value = (int64_t)(dpb_rng_u64(&rng) >> (1 + dpb_rng_below(&rng, 63)));
        int64_t whole = -1;
        double rate = ldexp(dpb_rng_uniform(&rng), (int)dpb_rng_below(&rng, 80) - 10), real = -1;
        uint64_t bits = dpb_rng_u64(&rng);

        if (i % 3 == 0)
            value &= ~(int64_t)0xfffff;
        dpb_format_size(value, text, sizeof(text));
        assert_int_equal(dpb_parse_size(text, &whole, why), DPB_OK);
        assert_int_equal(whole, value);
        dpb_format_duration(value, text, sizeof(text));
        assert_int_equal(dpb_parse_duration(text, &whole, why), DPB_OK);
        assert_int_equal(whole, value);
        if (i % 2 == 0)
            rate = floor(rate);
        dpb_format_rate(rate, text, sizeof(text));
        if (dpb_parse_rate(text, &real, why) != DPB_OK || real != rate)
            fail_msg("%.17g became %s, and that %.17g", rate, text, real);
        memcpy(&rate, &bits, sizeof(rate));
        if (!isfinite(rate))
            continue;
        dpb_format_f64(rate, text, sizeof(text));
        assert_int_equal(dpb_parse_f64(text, &real, why), DPB_OK);
        assert_memory_equal(&real, &rate, sizeof(real));
    }
}

static void check_f64(double value, const char *expected)
{
    char text[40];

    dpb_format_f64(value, text, sizeof(text));
    assert_string_equal(text, expected);
}

static void test_shortest_digits(void **state)
{
    (void)state;
    check_f64(0.1, "0.1");
    check_f64(1, "1");
    check_f64(-0.0, "-0");
    check_f64(1.0 / 3, "0.3333333333333333");
    check_f64(0.1 + 0.2, "0.30000000000000004");
    check_f64(1e22, "1e+22");
    check_f64(5e-324, "5e-324");
    check_f64(DBL_MAX, "1.7976931348623157e+308");
    check_f64(NAN, "null");
    check_f64(INFINITY, "null");
}

static void test_human_texts(void **state)
{
    static const struct {
        void (*format)(double, int, char *, size_t);
        double value;
        int digits;
        const char *expected;
    } cases[] = {
            {dpb_human_size, 9.27 * 1048576, 3, "9.27 MiB"},
            {dpb_human_size, 0, 3, "0 B"},
            {dpb_human_size, 17, 3, "17 B"},
            {dpb_human_size, 1023.96 * 1024, 3, "1.00 MiB"},
            {dpb_human_size, 25 * 1048576.0, 3, "25.0 MiB"},
            {dpb_human_size, 250 * 1073741824.0, 3, "250 GiB"},
            {dpb_human_duration, 31.2e6, 3, "31.2 ms"},
            {dpb_human_duration, 999.9996e6, 3, "1.00 s"},
            {dpb_human_duration, 9.996e6, 3, "10.0 ms"},
            {dpb_human_duration, 0.0123e3, 3, "12.3 ns"},
            {dpb_human_duration, 0, 3, "0 ns"},
            {dpb_human_duration, 90e9, 3, "90.0 s"},
            {dpb_human_duration, 600e9, 3, "10.0 min"},
            {dpb_human_duration, 7200e9, 3, "2.00 h"},
            {dpb_human_duration, -31.2e6, 3, "-31.2 ms"},
            {dpb_human_duration, 0.05, 2, "0.050 ns"},
            {dpb_human_rate, 3.124e9, 3, "3.12 GB/s"},
            {dpb_human_rate, 999.6, 3, "1.00 KB/s"},
            {dpb_human_rate, NAN, 3, "n/a"},
    };
    char text[64];
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        cases[i].format(cases[i].value, cases[i].digits, text, sizeof(text));
        assert_string_equal(text, cases[i].expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_i64),
            cmocka_unit_test(test_size),
            cmocka_unit_test(test_duration),
            cmocka_unit_test(test_rate),
            cmocka_unit_test(test_f64_and_ratio),
            cmocka_unit_test(test_bool),
            cmocka_unit_test(test_exact_texts),
            cmocka_unit_test(test_round_trips),
            cmocka_unit_test(test_shortest_digits),
            cmocka_unit_test(test_human_texts),
    };

    return DPB_RUN_TESTS(tests);
}

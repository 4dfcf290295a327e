/* Numbers, sizes, durations and rates as text; units.c parses them. */
#include "dpb_units.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "c_locale.h"

void dpb_format_f64(double value, char *text, size_t text_bytes)
{
    char digits[40] = "null";
    locale_t before;

    if (isfinite(value)) {
        /* 15 digits that read back are the shortest ones, for %g drops trailing zeros; only
         * subnormal numbers have so few bits that fewer digits may do. */
        int precision = value != 0 && fabs(value) < DBL_MIN ? 1 : 15;

        before = dpb_c_locale_enter();
        for (; precision <= 17; precision++) {
            snprintf(digits, sizeof(digits), "%.*g", precision, value);
            if (strtod(digits, NULL) == value)
                break;
        }
        dpb_c_locale_leave(before);
    }
    snprintf(text, text_bytes, "%s", digits);
}

void dpb_format_size(int64_t bytes, char *text, size_t text_bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    uint64_t value = bytes < 0 ? 0 - (uint64_t)bytes : (uint64_t)bytes;
    size_t unit = 0;

    while (unit + 1 < sizeof(units) / sizeof(units[0]) && value > 0 && value % 1024 == 0) {
        value /= 1024;
        unit++;
    }
    snprintf(text, text_bytes, "%s%llu%s", bytes < 0 ? "-" : "", (unsigned long long)value,
             units[unit]);
}

void dpb_format_duration(int64_t ns, char *text, size_t text_bytes)
{
    static const struct {
        const char *text;
        uint64_t ns;
    } units[] = {{"h", UINT64_C(3600000000000)},
                 {"min", UINT64_C(60000000000)},
                 {"s", 1000000000},
                 {"ms", 1000000},
                 {"us", 1000},
                 {"ns", 1}};
    uint64_t value = ns < 0 ? 0 - (uint64_t)ns : (uint64_t)ns;
    size_t unit = 0;

    if (value == 0) {
        snprintf(text, text_bytes, "0");
        return;
    }
    while (value % units[unit].ns != 0)
        unit++;
    snprintf(text, text_bytes, "%s%llu%s", ns < 0 ? "-" : "",
             (unsigned long long)(value / units[unit].ns), units[unit].text);
}

void dpb_format_rate(double bytes_per_s, char *text, size_t text_bytes)
{
    static const char *const units[] = {"bps", "Kbps", "Mbps", "Gbps", "Tbps"};
    double bits_per_s = bytes_per_s * 8; /* exact, as the division by 8 in the parser is */
    char shortest[40], digits[24], unscaled[40];
    size_t unit = 0, used = 0, i;
    long exponent = 0;
    char *e;

    dpb_format_f64(bits_per_s, shortest, sizeof(shortest));
    if (!isfinite(bits_per_s)) {
        /* Above 2.2e307 bytes per second bits overflow; bytes do not. */
        dpb_format_f64(bytes_per_s, shortest, sizeof(shortest));
        snprintf(text, text_bytes, isfinite(bytes_per_s) ? "%sB/s" : "%s", shortest);
        return;
    }
    while (unit + 1 < sizeof(units) / sizeof(units[0]) &&
           fabs(bits_per_s) >= pow(1000, (double)unit + 1))
        unit++;
    if (unit == 0 || bits_per_s == 0) {
        snprintf(text, text_bytes, "%s%s", shortest, units[unit]);
        return;
    }

    /* Move the point of the shortest digits: an exact change of unit, where a division would
     * round. */
    e = strchr(shortest, 'e');
    if (e) {
        exponent = strtol(e + 1, NULL, 10);
        *e = '\0';
    }
    for (i = 0; shortest[i]; i++) {
        if (shortest[i] >= '0' && shortest[i] <= '9' && used < sizeof(digits) - 1)
            digits[used++] = shortest[i];
    }
    digits[used] = '\0';
    e = strchr(shortest, '.');
    if (e)
        exponent -= (long)strlen(e + 1);
    exponent -= 3 * (long)unit;
    while (used > 1 && digits[used - 1] == '0') {
        digits[--used] = '\0';
        exponent++;
    }
    if (exponent >= 0 && exponent <= 6)
        snprintf(unscaled, sizeof(unscaled), "%s%.*s", digits, (int)exponent, "000000");
    else if (exponent < 0 && (size_t)-exponent < used)
        snprintf(unscaled, sizeof(unscaled), "%.*s.%s", (int)(used - (size_t)-exponent), digits,
                 digits + used - (size_t)-exponent);
    else
        snprintf(unscaled, sizeof(unscaled), "%se%ld", digits, exponent);
    snprintf(text, text_bytes, "%s%s%s", shortest[0] == '-' ? "-" : "", unscaled, units[unit]);
}

/* `value` with `digits` significant digits and no exponent, behind it a space and the unit. A value
 * that rounds up to `step` goes to the next unit. */
static void human(double value, double step, const char *const *units, size_t count, size_t unit,
                  int digits, char *text, size_t text_bytes)
{
    char number[64] = "";
    locale_t before;

    if (!isfinite(value)) {
        snprintf(text, text_bytes, "n/a");
        return;
    }
    if (value == 0) {
        snprintf(text, text_bytes, "0 %s", units[unit]);
        return;
    }
    if (digits < 1)
        digits = 1;
    if (digits > 17)
        digits = 17;
    before = dpb_c_locale_enter();
    for (;; unit++, value /= step) {
        int before_point = 1, decimals;
        double magnitude = fabs(value);

        if (unit + 1 < count && magnitude >= step)
            continue;
        if (magnitude >= 10)
            before_point = (int)floor(log10(magnitude)) + 1;
        else if (magnitude > 0 && magnitude < 1)
            before_point = (int)floor(log10(magnitude)) + 1;
        decimals = digits - before_point;
        if (decimals < 0)
            decimals = 0;
        if (decimals > 40)
            decimals = 40;
        snprintf(number, sizeof(number), "%.*f", decimals, value);
        if (unit + 1 < count && fabs(strtod(number, NULL)) >= step)
            continue;
        /* 9.999 rounds to 10.00: one digit too many */
        if (decimals > 0 && magnitude > 0 && fabs(strtod(number, NULL)) >= pow(10, before_point))
            snprintf(number, sizeof(number), "%.*f", decimals - 1, value);
        break;
    }
    dpb_c_locale_leave(before);
    snprintf(text, text_bytes, "%s %s", number, units[unit]);
}

#define HUMAN(value, step, units, first, digits)                                                   \
    human(value, step, units, sizeof(units) / sizeof((units)[0]), first, digits, text, text_bytes)

void dpb_human_size(double bytes, int digits, char *text, size_t text_bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};

    if (fabs(bytes) < 1024 && bytes == floor(bytes)) {
        snprintf(text, text_bytes, "%d B", (int)bytes); /* whole bytes have no decimals */
        return;
    }
    HUMAN(bytes, 1024, units, 0, digits);
}

void dpb_human_duration(double ns, int digits, char *text, size_t text_bytes)
{
    static const char *const units[] = {"ns", "us", "ms", "s"};
    static const char *const long_units[] = {"min", "h"};

    if (fabs(ns) < 120e9)
        HUMAN(ns, 1000, units, 0, digits);
    else
        HUMAN(ns / 60e9, 60, long_units, 0, digits);
}

void dpb_human_rate(double bytes_per_s, int digits, char *text, size_t text_bytes)
{
    static const char *const units[] = {"B/s", "KB/s", "MB/s", "GB/s", "TB/s"};

    HUMAN(bytes_per_s, 1000, units, 0, digits);
}

/* Parsing of units; units_format.c has the other direction. */
#include "dpb_units.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "c_locale.h"

__extension__ typedef unsigned __int128 u128;

/* More significant digits than any whole number of bytes or nanoseconds has; with the largest unit
 * (3.6e12 ns in an hour) the product still fits 128 bits. */
#define MAX_DIGITS 25

struct unit {
    const char *text;
    int64_t factor;  /* of the unit of the result */
    int decimal;     /* further power of ten */
    bool canonical;  /* named in messages */
    bool divide_by8; /* bits */
};

static const struct unit size_units[] = {
        {"B", 1, 0, true, false},
        {"K", INT64_C(1) << 10, 0, false, false},
        {"KB", 1000, 0, true, false},
        {"KiB", INT64_C(1) << 10, 0, true, false},
        {"M", INT64_C(1) << 20, 0, false, false},
        {"MB", 1000000, 0, true, false},
        {"MiB", INT64_C(1) << 20, 0, true, false},
        {"G", INT64_C(1) << 30, 0, false, false},
        {"GB", 1000000000, 0, true, false},
        {"GiB", INT64_C(1) << 30, 0, true, false},
        {"T", INT64_C(1) << 40, 0, false, false},
        {"TB", INT64_C(1000000000000), 0, true, false},
        {"TiB", INT64_C(1) << 40, 0, true, false},
};

static const struct unit duration_units[] = {
        {"ns", 1, 0, true, false},
        {"us", 1000, 0, true, false},
        {"ms", 1000000, 0, true, false},
        {"s", 1000000000, 0, true, false},
        {"min", INT64_C(60000000000), 0, true, false},
        {"h", INT64_C(3600000000000), 0, true, false},
};

static const struct unit rate_units[] = {
        {"bps", 1, 0, true, true},    {"Kbps", 1, 3, true, true},
        {"Mbps", 1, 6, true, true},   {"Gbps", 1, 9, true, true},
        {"Tbps", 1, 12, true, true},  {"B/s", 1, 0, true, false},
        {"KB/s", 1, 3, true, false},  {"KiB/s", INT64_C(1) << 10, 0, true, false},
        {"MB/s", 1, 6, true, false},  {"MiB/s", INT64_C(1) << 20, 0, true, false},
        {"GB/s", 1, 9, true, false},  {"GiB/s", INT64_C(1) << 30, 0, true, false},
        {"TB/s", 1, 12, true, false},
};

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* A decimal number as it stands at the start of a text. */
struct decimal {
    bool negative;
    bool zero;
    const char *end;         /* first character behind it */
    int exponent10;          /* value = digits * 10^exponent10 */
    unsigned digit_count;    /* significant digits, without leading and trailing zeros */
    char digits[MAX_DIGITS]; /* the first MAX_DIGITS of them, 0 to 9 */
};

__attribute__((format(printf, 2, 3))) static dpb_status refuse(char why[DPB_WHY_BYTES],
                                                               const char *format, ...)
{
    va_list args;

    if (why) {
        va_start(args, format);
        vsnprintf(why, DPB_WHY_BYTES, format, args);
        va_end(args);
    }
    return DPB_ERR_USAGE;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Exponents beyond this are out of range for every type here. */
#define EXPONENT_LIMIT 100000

/* The digits of the exponent behind an 'e', or 0 when that 'e' begins something else. */
static int scan_exponent(const char **text)
{
    const char *p = *text;
    bool negative = false;
    int value = 0;

    if (*p != 'e' && *p != 'E')
        return 0;
    p++;
    if (*p == '+' || *p == '-')
        negative = *p++ == '-';
    if (!is_digit(*p))
        return 0;
    for (; is_digit(*p); p++) {
        if (value < EXPONENT_LIMIT)
            value = value * 10 + (*p - '0');
    }
    *text = p;
    return negative ? -value : value;
}

/* -?digits[.digits][e[+-]digits], at least one digit. False when the text does not begin so. */
static bool scan_decimal(const char *text, struct decimal *number)
{
    unsigned zeros = 0; /* trailing ones, not yet known to be inside */
    int exponent = 0;
    bool point = false, any = false;
    const char *p = text;

    *number = (struct decimal){0};
    if (*p == '-') {
        number->negative = true;
        p++;
    }
    for (; is_digit(*p) || (*p == '.' && !point); p++) {
        if (*p == '.') {
            point = true;
            continue;
        }
        any = true;
        if (point && exponent > -EXPONENT_LIMIT)
            exponent--;
        if (*p == '0') {
            zeros += number->digit_count > 0;
            continue;
        }
        for (; zeros > 0; zeros--) {
            if (number->digit_count < MAX_DIGITS)
                number->digits[number->digit_count] = 0;
            number->digit_count++;
        }
        if (number->digit_count < MAX_DIGITS)
            number->digits[number->digit_count] = (char)(*p - '0');
        number->digit_count++;
    }
    if (!any)
        return false;
    number->exponent10 = exponent + (int)zeros + scan_exponent(&p);
    number->zero = number->digit_count == 0;
    number->end = p;
    return true;
}

enum scale_result {
    SCALE_OK,
    SCALE_TOO_LARGE,
    SCALE_NOT_WHOLE,
    SCALE_TOO_LONG /* more digits than are looked at */
};

/* |number| * factor, exactly. */
static enum scale_result scale_exactly(const struct decimal *number, int64_t factor,
                                       uint64_t *value)
{
    const u128 too_large = (u128)1 << 63;
    int exponent = number->exponent10;
    u128 product = 0;
    unsigned i;

    if (number->zero) {
        *value = 0;
        return SCALE_OK;
    }
    if (number->digit_count > MAX_DIGITS)
        return (int)number->digit_count + exponent > 19 ? SCALE_TOO_LARGE : SCALE_TOO_LONG;
    for (i = 0; i < number->digit_count; i++)
        product = product * 10 + (unsigned)number->digits[i];
    product *= (u128)factor;
    for (; exponent < 0; exponent++) {
        if (product % 10 != 0)
            return SCALE_NOT_WHOLE;
        product /= 10;
    }
    for (; exponent > 0; exponent--) {
        if (product > too_large)
            return SCALE_TOO_LARGE;
        product *= 10;
    }
    if (product > too_large || (product == too_large && !number->negative))
        return SCALE_TOO_LARGE;
    *value = (uint64_t)product;
    return SCALE_OK;
}

/* What is wrong with a text in which no number or more than a number was found. */
static dpb_status refuse_number(const char *text, const char *end, char why[DPB_WHY_BYTES])
{
    if (!text[0])
        return refuse(why, "it is empty");
    if (!end)
        return refuse(why, "a number is expected");
    return refuse(why, "unexpected '%.32s' after the number", end);
}

dpb_status dpb_parse_i64(const char *text, int64_t *value, char why[DPB_WHY_BYTES])
{
    struct decimal number;
    uint64_t magnitude;

    if (!scan_decimal(text, &number))
        return refuse_number(text, NULL, why);
    if (*number.end)
        return refuse_number(text, number.end, why);
    switch (scale_exactly(&number, 1, &magnitude)) {
    case SCALE_TOO_LARGE:
        if (number.negative)
            return refuse(why, "out of range: at least -9223372036854775808");
        return refuse(why, "out of range: at most 9223372036854775807");
    case SCALE_NOT_WHOLE:
        return refuse(why, "it has a fraction");
    case SCALE_TOO_LONG:
        return refuse(why, "it has more than %d digits", MAX_DIGITS);
    case SCALE_OK:
        break;
    }
    *value = number.negative ? (int64_t)(0 - magnitude) : (int64_t)magnitude;
    return DPB_OK;
}

/* The number at `text`, times 10^decimal, correctly rounded. */
static dpb_status decimal_to_f64(const char *text, const struct decimal *number, int decimal,
                                 double *value, char why[DPB_WHY_BYTES])
{
    char buffer[MAX_DIGITS + 16];
    char *digits = buffer;
    size_t used = 0;
    double result;
    unsigned i;

    if (number->digit_count <= MAX_DIGITS) {
        if (number->negative)
            digits[used++] = '-';
        for (i = 0; i < number->digit_count; i++)
            digits[used++] = (char)('0' + number->digits[i]);
        snprintf(digits + used, sizeof(buffer) - used, "%se%d", number->zero ? "0" : "",
                 number->exponent10 + decimal);
        result = strtod_l(digits, NULL, dpb_c_locale());
    } else {
        /* Rounding twice is possible here; nobody writes a rate with more than 25 digits. */
        result = strtod_l(text, NULL, dpb_c_locale()) * pow(10, decimal);
    }
    if (!isfinite(result))
        return refuse(why, "out of range: at most 1.7976931348623157e308");
    if (result == 0 && !number->zero)
        return refuse(why, "out of range: too close to zero");
    *value = result;
    return DPB_OK;
}

dpb_status dpb_parse_f64(const char *text, double *value, char why[DPB_WHY_BYTES])
{
    struct decimal number;

    if (!scan_decimal(text, &number))
        return refuse_number(text, NULL, why);
    if (*number.end)
        return refuse_number(text, number.end, why);
    return decimal_to_f64(text, &number, 0, value, why);
}

dpb_status dpb_parse_bool(const char *text, bool *value, char why[DPB_WHY_BYTES])
{
    static const char *const words[] = {"on", "off", "true", "false", "yes", "no", "1", "0"};
    size_t i;

    for (i = 0; i < COUNT_OF(words); i++) {
        if (strcmp(text, words[i]) == 0) {
            *value = i % 2 == 0;
            return DPB_OK;
        }
    }
    return refuse(why, "use on or off");
}

/* "B, KB, KiB or MB" of the canonical units. */
static void list_units(const struct unit *units, size_t count, char *text, size_t text_bytes)
{
    size_t last = 0, used = 0, i;

    for (i = 0; i < count; i++) {
        if (units[i].canonical)
            last = i;
    }
    text[0] = '\0';
    for (i = 0; i < count && used < text_bytes; i++) {
        if (units[i].canonical)
            used += (size_t)snprintf(text + used, text_bytes - used, "%s%s",
                                     i == 0 ? "" : (i == last ? " or " : ", "), units[i].text);
    }
}

static const struct unit *find_unit(const struct unit *units, size_t count, const char *text)
{
    size_t i;

    for (i = 0; i < count; i++) {
        if (strcmp(units[i].text, text) == 0)
            return &units[i];
    }
    return NULL;
}

static dpb_status refuse_unit(const struct unit *units, size_t count, const char *text,
                              char why[DPB_WHY_BYTES])
{
    char known[128];

    list_units(units, count, known, sizeof(known));
    if (!text[0])
        return refuse(why, "the unit is missing; use %s", known);
    return refuse(why, "unknown unit '%.32s'; use %s", text, known);
}

/* number and unit -> a whole number of the smallest unit, not negative */
static dpb_status parse_whole(const char *text, const struct unit *units, size_t count,
                              const struct unit *no_unit, const char *whole_of, int64_t *value,
                              char why[DPB_WHY_BYTES])
{
    struct decimal number;
    const struct unit *unit = no_unit;
    uint64_t magnitude = 0;

    if (!scan_decimal(text, &number))
        return refuse_number(text, NULL, why);
    if (*number.end)
        unit = find_unit(units, count, number.end);
    else if (!unit && number.zero)
        unit = &units[0];
    if (!unit)
        return refuse_unit(units, count, number.end, why);
    if (number.negative && !number.zero)
        return refuse(why, "it is negative");
    switch (scale_exactly(&number, unit->factor, &magnitude)) {
    case SCALE_TOO_LARGE:
        return refuse(why, "out of range: below 2^63 %s", whole_of);
    case SCALE_NOT_WHOLE:
        return refuse(why, "not a whole number of %s", whole_of);
    case SCALE_TOO_LONG:
        return refuse(why, "it has more than %d digits", MAX_DIGITS);
    case SCALE_OK:
        break;
    }
    *value = (int64_t)magnitude;
    return DPB_OK;
}

dpb_status dpb_parse_size(const char *text, int64_t *bytes, char why[DPB_WHY_BYTES])
{
    struct decimal number;
    char spelled[64];
    size_t at;

    /* "10k", "4mib": a lower-case prefix is the same unit; its "b" is a byte, for nobody gives
     * sizes in bits. */
    if (scan_decimal(text, &number) && strlen(text) < sizeof(spelled)) {
        at = (size_t)(number.end - text);
        strcpy(spelled, text);
        if (spelled[at] && strchr("kmgt", spelled[at])) {
            spelled[at] = (char)(spelled[at] - 'a' + 'A');
            if (strcmp(spelled + at + 1, "b") == 0 || strcmp(spelled + at + 1, "ib") == 0)
                spelled[strlen(spelled) - 1] = 'B';
            if (find_unit(size_units, COUNT_OF(size_units), spelled + at))
                text = spelled;
        }
    }
    return parse_whole(text, size_units, COUNT_OF(size_units), &size_units[0], "bytes", bytes, why);
}

dpb_status dpb_parse_duration(const char *text, int64_t *ns, char why[DPB_WHY_BYTES])
{
    return parse_whole(text, duration_units, COUNT_OF(duration_units), NULL, "nanoseconds", ns,
                       why);
}

dpb_status dpb_parse_rate(const char *text, double *bytes_per_s, char why[DPB_WHY_BYTES])
{
    struct decimal number;
    const struct unit *unit;
    double value = 0;

    if (!scan_decimal(text, &number))
        return refuse_number(text, NULL, why);
    unit = find_unit(rate_units, COUNT_OF(rate_units), number.end);
    if (!unit)
        return refuse_unit(rate_units, COUNT_OF(rate_units), number.end, why);
    if (number.negative && !number.zero)
        return refuse(why, "it is negative");
    DPB_TRY(decimal_to_f64(text, &number, unit->decimal, &value, why));
    value *= (double)unit->factor; /* a power of two: exact */
    if (unit->divide_by8)
        value /= 8;
    if (!isfinite(value))
        return refuse(why, "out of range");
    *bytes_per_s = number.zero ? 0 : value;
    return DPB_OK;
}

dpb_status dpb_parse_ratio(const char *text, double *ratio, char why[DPB_WHY_BYTES])
{
    struct decimal number;
    int decimal = 0;

    if (!scan_decimal(text, &number))
        return refuse_number(text, NULL, why);
    if (strcmp(number.end, "%") == 0)
        decimal = -2;
    else if (*number.end)
        return refuse_number(text, number.end, why);
    return decimal_to_f64(text, &number, decimal, ratio, why);
}

#include "json_scan.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "dpb_json.h"

#define DEPTH_MAX 64

bool json_scan_ok(const struct json_scan *scan)
{
    return scan->why[0] == '\0';
}

bool json_scan_fail(struct json_scan *scan, const char *format, ...)
{
    size_t line = 1;
    va_list args;
    int used;

    if (!json_scan_ok(scan))
        return false;
    for (size_t i = 0; i < scan->at; i++)
        line += scan->text[i] == '\n';
    used = snprintf(scan->why, sizeof(scan->why), "line %zu: ", line);
    va_start(args, format);
    vsnprintf(scan->why + used, sizeof(scan->why) - (size_t)used, format, args);
    va_end(args);
    return false;
}

/* The next byte that is no white space, not consumed; 0 at the end or after a mistake. */
static char next_byte(struct json_scan *scan)
{
    if (!json_scan_ok(scan))
        return '\0';
    while (scan->at < scan->length && strchr(" \t\r\n", scan->text[scan->at]) &&
           scan->text[scan->at] != '\0')
        scan->at++;
    return scan->at < scan->length ? scan->text[scan->at] : '\0';
}

static bool fail_here(struct json_scan *scan, const char *expected)
{
    if (next_byte(scan) == '\0' && scan->at == scan->length)
        return json_scan_fail(scan, "the file ends where %s should be", expected);
    return json_scan_fail(scan, "%s should be here", expected);
}

static bool take(struct json_scan *scan, char byte, const char *expected)
{
    if (next_byte(scan) != byte)
        return fail_here(scan, expected);
    scan->at++;
    return true;
}

char json_scan_peek(struct json_scan *scan)
{
    char byte = next_byte(scan);

    switch (byte) {
    case '{':
    case '[':
    case '"':
        return byte;
    case 't':
    case 'f':
    case 'n':
        return 't';
    default:
        return byte == '-' || (byte >= '0' && byte <= '9') ? '0' : '\0';
    }
}

bool json_scan_enter(struct json_scan *scan, char open)
{
    return take(scan, open, open == '{' ? "an object" : "an array");
}

bool json_scan_item(struct json_scan *scan, char close, size_t items_before)
{
    if (next_byte(scan) == close) {
        scan->at++;
        return false;
    }
    if (items_before > 0)
        return take(scan, ',', close == '}' ? "',' or '}'" : "',' or ']'");
    return json_scan_ok(scan);
}

/* The bytes of the string that comes next, quotes included; is it free of escapes and beyond-ASCII
 * bytes? */
static bool find_string(struct json_scan *scan, const char **begin, size_t *length, bool *plain)
{
    size_t start;

    if (!take(scan, '"', "a string"))
        return false;
    start = scan->at - 1;
    *plain = true;
    for (; scan->at < scan->length; scan->at++) {
        unsigned char byte = (unsigned char)scan->text[scan->at];

        if (byte == '"') {
            scan->at++;
            *begin = scan->text + start;
            *length = scan->at - start;
            return true;
        }
        if (byte < 0x20)
            return json_scan_fail(scan, "control character 0x%02x in a string", byte);
        if (byte >= 0x80 || byte == '\\')
            *plain = false;
        if (byte == '\\')
            scan->at++; /* whatever follows, even a quote, belongs to the escape */
    }
    scan->at = scan->length;
    return json_scan_fail(scan, "the file ends inside a string");
}

/* Escapes and UTF-8 are left to the JSON library, which is strict. */
static bool decode_string(struct json_scan *scan, const char *begin, size_t length,
                          struct dpb_str *out)
{
    dpb_json *value = NULL;
    char why[256];
    dpb_status st = dpb_json_parse(begin, length, &value, why);

    if (st < 0) {
        scan->no_memory = st == DPB_ERR_NO_MEMORY;
        return json_scan_fail(scan, "damaged string: %s", why);
    }
    if (out)
        dpb_str_append(out, dpb_json_as_string(value, ""));
    dpb_json_free(value);
    return true;
}

static bool read_string(struct json_scan *scan, struct dpb_str *out)
{
    const char *begin = NULL;
    size_t length = 0;
    bool plain = false;

    if (!find_string(scan, &begin, &length, &plain))
        return false;
    if (out && out->text) {
        out->length = 0;
        out->text[0] = '\0';
    }
    if (!plain)
        return decode_string(scan, begin, length, out);
    if (out)
        dpb_str_append_bytes(out, begin + 1, length - 2);
    return true;
}

bool json_scan_string(struct json_scan *scan, struct dpb_str *out)
{
    if (!read_string(scan, out))
        return false;
    if (!out->failed)
        return true;
    scan->no_memory = true;
    return json_scan_fail(scan, "out of memory");
}

bool json_scan_key(struct json_scan *scan, struct dpb_str *out)
{
    return json_scan_string(scan, out) && take(scan, ':', "':'");
}

static bool is_digit(const struct json_scan *scan, size_t at)
{
    return at < scan->length && scan->text[at] >= '0' && scan->text[at] <= '9';
}

static bool skip_digits(struct json_scan *scan)
{
    if (!is_digit(scan, scan->at))
        return json_scan_fail(scan, "damaged number");
    while (is_digit(scan, scan->at))
        scan->at++;
    return true;
}

/* The text of the number that comes next. */
static bool find_number(struct json_scan *scan, const char **begin, size_t *length)
{
    size_t start;
    bool leading_zero;

    if (json_scan_peek(scan) != '0')
        return fail_here(scan, "a number");
    start = scan->at;
    if (scan->text[scan->at] == '-')
        scan->at++;
    leading_zero = scan->at < scan->length && scan->text[scan->at] == '0';
    if (leading_zero && is_digit(scan, scan->at + 1))
        return json_scan_fail(scan, "a number begins with 0");
    if (!skip_digits(scan))
        return false;
    if (scan->at < scan->length && scan->text[scan->at] == '.') {
        scan->at++;
        if (!skip_digits(scan))
            return false;
    }
    if (scan->at < scan->length && (scan->text[scan->at] == 'e' || scan->text[scan->at] == 'E')) {
        scan->at++;
        if (scan->at < scan->length && (scan->text[scan->at] == '+' || scan->text[scan->at] == '-'))
            scan->at++;
        if (!skip_digits(scan))
            return false;
    }
    *begin = scan->text + start;
    *length = scan->at - start;
    return true;
}

static bool wrong_number(struct json_scan *scan, const char *begin, size_t length,
                         const char *expected)
{
    return json_scan_fail(scan, "%.*s is not %s", length > 40 ? 40 : (int)length, begin, expected);
}

bool json_scan_int(struct json_scan *scan, int64_t *value)
{
    const char *begin = NULL, *p, *end;
    int64_t sum = 0;
    size_t length = 0;
    bool negative;

    if (!find_number(scan, &begin, &length))
        return false;
    negative = *begin == '-';
    end = begin + length;
    for (p = begin + negative; p < end; p++) {
        int digit = *p - '0';

        /* downwards for negative numbers, so that INT64_MIN fits */
        if (digit < 0 || digit > 9 || __builtin_mul_overflow(sum, 10, &sum) ||
            __builtin_add_overflow(sum, negative ? -digit : digit, &sum))
            return wrong_number(scan, begin, length, "a 64-bit integer");
    }
    *value = sum;
    return true;
}

bool json_scan_us(struct json_scan *scan, uint64_t *ns)
{
    static const char expected[] = "a time in microseconds, exact to the nanosecond";
    const char *begin = NULL;
    int decimals = -1; /* digits behind the point so far; -1: no point yet */
    uint64_t sum = 0;
    size_t length = 0;

    if (!find_number(scan, &begin, &length))
        return false;
    for (size_t i = 0; i < length; i++) {
        int digit = begin[i] - '0';

        if (begin[i] == '.') {
            decimals = 0;
            continue;
        }
        if (digit < 0 || digit > 9)
            return wrong_number(scan, begin, length, expected);
        if (decimals >= 3) {
            if (digit != 0)
                return wrong_number(scan, begin, length, expected);
            continue;
        }
        if (decimals >= 0)
            decimals++;
        if (__builtin_mul_overflow(sum, 10, &sum) || __builtin_add_overflow(sum, digit, &sum))
            return wrong_number(scan, begin, length, expected);
    }
    for (int missing = 3 - (decimals < 0 ? 0 : decimals); missing > 0; missing--) {
        if (__builtin_mul_overflow(sum, 10, &sum))
            return wrong_number(scan, begin, length, expected);
    }
    *ns = sum;
    return true;
}

static bool skip_word(struct json_scan *scan)
{
    static const char *const words[] = {"true", "false", "null"};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        size_t length = strlen(words[i]);

        if (scan->length - scan->at >= length &&
            memcmp(scan->text + scan->at, words[i], length) == 0) {
            scan->at += length;
            return true;
        }
    }
    return fail_here(scan, "a value");
}

static bool skip_value(struct json_scan *scan, int depth)
{
    const char *begin = NULL;
    size_t length = 0;
    char open = json_scan_peek(scan);

    switch (open) {
    case '{':
    case '[':
        if (depth == DEPTH_MAX)
            return json_scan_fail(scan, "values nest more than %d deep", DEPTH_MAX);
        json_scan_enter(scan, open);
        for (size_t i = 0; json_scan_item(scan, open == '{' ? '}' : ']', i); i++) {
            if (open == '{' && !(read_string(scan, NULL) && take(scan, ':', "':'")))
                return false;
            if (!skip_value(scan, depth + 1))
                return false;
        }
        return json_scan_ok(scan);
    case '"':
        return read_string(scan, NULL);
    case '0':
        return find_number(scan, &begin, &length);
    case 't':
        return skip_word(scan);
    default:
        return fail_here(scan, "a value");
    }
}

bool json_scan_skip(struct json_scan *scan, const char **begin, size_t *length)
{
    size_t start;

    next_byte(scan);
    start = scan->at;
    if (!skip_value(scan, 0))
        return false;
    if (begin) {
        *begin = scan->text + start;
        *length = scan->at - start;
    }
    return true;
}

bool json_scan_end(struct json_scan *scan)
{
    next_byte(scan);
    if (json_scan_ok(scan) && scan->at < scan->length)
        return json_scan_fail(scan, "more text after the end");
    return json_scan_ok(scan);
}

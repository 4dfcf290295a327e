/* json_scan.h: a cursor over JSON text. Private to this room.
 *
 * Trace files need what dpb_json cannot give: numbers as the digits that stand in the file, because
 * a time of "4503599627370497.001" microseconds does not survive a double, and events read one
 * after another without a tree of the whole file. Text is checked strictly (RFC 8259).
 *
 * The first mistake makes `why` non-empty and every later call a no-op that returns false, so a
 * caller may check once at the end. */
#ifndef DPB_JSON_SCAN_H
#define DPB_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dpb_str.h"

struct json_scan {
    const char *text;
    size_t length;
    size_t at;
    char why[256]; /* "line 3: ..." */
    bool no_memory;
};

bool json_scan_ok(const struct json_scan *scan);
/* Stop with this reason, at the present line. Always false. */
bool json_scan_fail(struct json_scan *scan, const char *format, ...)
        __attribute__((format(printf, 2, 3)));

/* The kind of value that comes next, by its first byte: '{', '[', '"', '0' (a number), 't' (true,
 * false or null), or 0 when there is none. */
char json_scan_peek(struct json_scan *scan);

/* Step into an object or array ('{' or '['), then through its items with json_scan_item(), which is
 * false behind the last one and after a mistake:
 *     json_scan_enter(scan, '[');
 *     for (size_t i = 0; json_scan_item(scan, ']', i); i++)
 *         ...read exactly one value (in an object: a key, then a value)... */
bool json_scan_enter(struct json_scan *scan, char open);
bool json_scan_item(struct json_scan *scan, char close, size_t items_before);

/* A key with its colon; a string. `out` is emptied first. U+0000 is a mistake. */
bool json_scan_key(struct json_scan *scan, struct dpb_str *out);
bool json_scan_string(struct json_scan *scan, struct dpb_str *out);

bool json_scan_int(struct json_scan *scan, int64_t *value);
/* Non-negative microseconds as decimal digits, to the nanosecond; more precision is a mistake. */
bool json_scan_us(struct json_scan *scan, uint64_t *ns);

/* Any value, checked but not kept; its text when `begin` is not NULL. */
bool json_scan_skip(struct json_scan *scan, const char **begin, size_t *length);

/* Nothing but white space is left. */
bool json_scan_end(struct json_scan *scan);

#endif

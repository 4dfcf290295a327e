/* Writing of JSON text: shortest doubles, no locale, UTF-8 passed through. */
#include "dpb_json.h"

#include <stdio.h>
#include <string.h>

#include "dpb_log.h"
#include "dpb_units.h"

static void write_string(const char *text, struct dpb_str *out)
{
    const char *p = text;

    dpb_str_append(out, "\"");
    while (*p) {
        size_t plain = 0;

        while ((unsigned char)p[plain] >= 0x20 && p[plain] != '"' && p[plain] != '\\' &&
               p[plain] != 0x7f)
            plain++;
        dpb_str_append_bytes(out, p, plain);
        p += plain;
        switch (*p) {
        case '\0':
            break;
        case '"':
            dpb_str_append(out, "\\\"");
            break;
        case '\\':
            dpb_str_append(out, "\\\\");
            break;
        case '\n':
            dpb_str_append(out, "\\n");
            break;
        case '\t':
            dpb_str_append(out, "\\t");
            break;
        case '\r':
            dpb_str_append(out, "\\r");
            break;
        default:
            dpb_str_appendf(out, "\\u%04x", (unsigned char)*p);
            break;
        }
        p += *p != '\0';
    }
    dpb_str_append(out, "\"");
}

static void write_real(double value, struct dpb_str *out)
{
    char text[40];

    dpb_format_f64(value, text, sizeof(text));
    dpb_str_append(out, text);
    /* A real without point or exponent would read back as an integer. */
    if (!strpbrk(text, ".enl"))
        dpb_str_append(out, ".0");
}

static void line_break(bool indented, size_t depth, struct dpb_str *out)
{
    if (!indented)
        return;
    dpb_str_append(out, "\n");
    for (; depth > 0; depth--)
        dpb_str_append(out, "  ");
}

static void write_value(const dpb_json *value, bool indented, size_t depth, struct dpb_str *out)
{
    bool object = dpb_json_type(value) == DPB_JSON_OBJECT;
    dpb_json_walk walk = {0};
    const dpb_json *member;
    const char *key;

    switch (dpb_json_type(value)) {
    case DPB_JSON_NULL:
        dpb_str_append(out, "null");
        return;
    case DPB_JSON_BOOL:
        dpb_str_append(out, dpb_json_as_bool(value, false) ? "true" : "false");
        return;
    case DPB_JSON_INT:
        dpb_str_appendf(out, "%lld", (long long)dpb_json_as_int(value, 0));
        return;
    case DPB_JSON_REAL:
        write_real(dpb_json_as_real(value, 0), out);
        return;
    case DPB_JSON_STRING:
        write_string(dpb_json_as_string(value, ""), out);
        return;
    case DPB_JSON_ARRAY:
    case DPB_JSON_OBJECT:
        break;
    }
    if (dpb_json_size(value) == 0) {
        dpb_str_append(out, object ? "{}" : "[]");
        return;
    }
    dpb_str_append(out, object ? "{" : "[");
    while ((member = dpb_json_next(value, &walk, &key))) {
        if (walk.index > 1)
            dpb_str_append(out, ",");
        line_break(indented, depth + 1, out);
        if (object) {
            write_string(key, out);
            dpb_str_append(out, indented ? ": " : ":");
        }
        write_value(member, indented, depth + 1, out);
    }
    line_break(indented, depth, out);
    dpb_str_append(out, object ? "}" : "]");
}

dpb_status dpb_json_write(const dpb_json *value, bool indented, struct dpb_str *out)
{
    if (dpb_json_ok(value))
        write_value(value, indented, 0, out);
    else
        out->failed = true;
    if (!out->failed)
        return DPB_OK;
    dpb_error("cannot write JSON: out of memory");
    return DPB_ERR_NO_MEMORY;
}

dpb_status dpb_json_write_file(const dpb_json *value, const char *path)
{
    struct dpb_str text = {0};
    dpb_status st = dpb_json_write(value, true, &text);

    if (st == DPB_OK) {
        dpb_str_append(&text, "\n");
        if (text.failed) {
            dpb_error("cannot write \"%s\": out of memory", path);
            st = DPB_ERR_NO_MEMORY;
        } else {
            st = dpb_file_write_atomic(path, text.text, text.length);
        }
    }
    dpb_str_release(&text);
    return st;
}

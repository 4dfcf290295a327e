/* One value of an option: text <-> value <-> member of a config struct. */
#include "option_private.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "dpb_units.h"
#include "utf8.h"

/* Limits beyond these are "no limit" to a reader. */
#define NO_LIMIT_INT   9e18
#define NO_LIMIT_FLOAT 1e300

static bool is_float_type(enum dpb_option_type type)
{
    return type == DPB_OPT_FLOAT || type == DPB_OPT_RATE || type == DPB_OPT_RATIO;
}

static bool has_limits(const struct dpb_option *row)
{
    bool numeric = is_float_type(row->type) || row->type == DPB_OPT_INT ||
                   row->type == DPB_OPT_SIZE || row->type == DPB_OPT_DURATION;

    return numeric && !(row->min == 0 && row->max == 0);
}

static double no_limit(const struct dpb_option *row)
{
    return is_float_type(row->type) ? NO_LIMIT_FLOAT : NO_LIMIT_INT;
}

static bool has_min(const struct dpb_option *row)
{
    return has_limits(row) && row->min > -no_limit(row);
}

static bool has_max(const struct dpb_option *row)
{
    return has_limits(row) && row->max < no_limit(row);
}

static void limit_text(const struct dpb_option *row, double limit, char *text, size_t text_bytes)
{
    switch (row->type) {
    case DPB_OPT_SIZE:
        dpb_format_size((int64_t)limit, text, text_bytes);
        break;
    case DPB_OPT_DURATION:
        dpb_format_duration((int64_t)limit, text, text_bytes);
        break;
    case DPB_OPT_RATE:
        dpb_format_rate(limit, text, text_bytes);
        break;
    case DPB_OPT_INT:
        snprintf(text, text_bytes, "%lld", (long long)limit);
        break;
    default:
        dpb_format_f64(limit, text, text_bytes);
        break;
    }
}

void dpb_option_range_text(const struct dpb_option *row, char *text, size_t text_bytes)
{
    char low[DPB_UNIT_TEXT_BYTES], high[DPB_UNIT_TEXT_BYTES];

    limit_text(row, has_min(row) ? row->min : 0, low, sizeof(low));
    limit_text(row, has_max(row) ? row->max : 0, high, sizeof(high));
    if (has_min(row) && has_max(row))
        snprintf(text, text_bytes, "from %s to %s", low, high);
    else if (has_min(row))
        snprintf(text, text_bytes, "at least %s", low);
    else if (has_max(row))
        snprintf(text, text_bytes, "at most %s", high);
    else
        snprintf(text, text_bytes, "%s", "");
}

const char *dpb_option_metavar(const struct dpb_option *row)
{
    switch (row->type) {
    case DPB_OPT_BOOL:
        return "on|off";
    case DPB_OPT_INT:
        return "N";
    case DPB_OPT_FLOAT:
        return "X";
    case DPB_OPT_SIZE:
        return "SIZE";
    case DPB_OPT_DURATION:
        return "TIME";
    case DPB_OPT_RATE:
        return "RATE";
    case DPB_OPT_RATIO:
        return "RATIO";
    case DPB_OPT_ENUM:
    case DPB_OPT_PART:
        return "NAME";
    case DPB_OPT_TEXT:
        return "TEXT";
    case DPB_OPT_LINK:
        return "RATE,TIME";
    }
    return "VALUE";
}

void dpb_option_kind_plural(const char *kind, char *text, size_t text_bytes)
{
    size_t length = strlen(kind);

    if (length > 0 && kind[length - 1] == 'y')
        snprintf(text, text_bytes, "%.*sies", (int)(length - 1), kind);
    else
        snprintf(text, text_bytes, "%ss", kind);
}

/* "ring, tree": the names a value may take. */
static void list_names(const struct dpb_option *row, const struct dpb_option_set *set,
                       struct dpb_str *out)
{
    size_t i;

    if (row->type == DPB_OPT_ENUM) {
        for (i = 0; row->choices[i].name; i++)
            dpb_str_appendf(out, "%s%s", i ? ", " : "", row->choices[i].name);
        return;
    }
    for (i = 0; set && i < set->part_count; i++) {
        if (strcmp(set->parts[i].kind, row->name) == 0)
            dpb_str_appendf(out, "%s%s", out->length ? ", " : "", set->parts[i].name);
    }
    if (row->flags & DPB_OPT_AUTO)
        dpb_str_append(out, ", auto");
}

void dpb_option_value_hint(const struct dpb_option *row, const struct dpb_option_set *set,
                           char *text, size_t text_bytes)
{
    static const char *const nouns[] = {
            [DPB_OPT_INT] = "a whole number",
            [DPB_OPT_FLOAT] = "a number",
            [DPB_OPT_SIZE] = "a size",
            [DPB_OPT_DURATION] = "a time",
            [DPB_OPT_RATE] = "a rate",
            [DPB_OPT_RATIO] = "a ratio",
            [DPB_OPT_LINK] = "a rate and a latency",
    };
    static const char *const examples[] = {
            [DPB_OPT_SIZE] = "25MiB",      [DPB_OPT_DURATION] = "250ms",
            [DPB_OPT_RATE] = "25Gbps",     [DPB_OPT_RATIO] = "85% or 0.85",
            [DPB_OPT_LINK] = "25Gbps,5us",
    };
    char range[2 * DPB_UNIT_TEXT_BYTES + 16];
    struct dpb_str hint = {0};

    switch (row->type) {
    case DPB_OPT_BOOL:
        dpb_str_append(&hint, "give on or off");
        break;
    case DPB_OPT_ENUM:
    case DPB_OPT_PART: {
        struct dpb_str names = {0};

        list_names(row, set, &names);
        dpb_str_appendf(&hint, "give one of: %s", names.length ? names.text : "(none)");
        dpb_str_release(&names);
        break;
    }
    case DPB_OPT_TEXT:
        dpb_str_appendf(&hint, "give a text of 1 to %d bytes", DPB_OPTION_TEXT_BYTES - 1);
        break;
    default:
        dpb_option_range_text(row, range, sizeof(range));
        dpb_str_appendf(&hint, "give %s%s%s", nouns[row->type], range[0] ? " " : "", range);
        if (row->type < sizeof(examples) / sizeof(examples[0]) && examples[row->type])
            dpb_str_appendf(&hint, " such as %s", examples[row->type]);
        if (row->flags & DPB_OPT_AUTO)
            dpb_str_append(&hint, ", or auto");
        if (row->type == DPB_OPT_LINK)
            dpb_str_append(&hint, ", or none");
        if (row->type == DPB_OPT_INT && !(row->flags & DPB_OPT_NO_AXIS))
            dpb_str_append(&hint, ", or a list such as 1,2,4 or 8..64:x2");
        break;
    }
    snprintf(text, text_bytes, "%s", hint.failed ? "give another value" : hint.text);
    dpb_str_release(&hint);
}

__attribute__((format(printf, 3, 4))) static dpb_status
complain(struct dpb_option_complaint *complaint, const char *value, const char *format, ...)
{
    size_t used;
    va_list args;

    /* A long value is cut: the message is about the reason. */
    snprintf(complaint->reason, sizeof(complaint->reason), "\"%.80s%s\" ", value,
             strlen(value) > 80 ? "..." : "");
    used = strlen(complaint->reason);
    va_start(args, format);
    vsnprintf(complaint->reason + used, sizeof(complaint->reason) - used, format, args);
    va_end(args);
    return DPB_ERR_USAGE;
}

static dpb_status complain_range(const struct dpb_option *row, const char *text, bool low,
                                 struct dpb_option_complaint *complaint)
{
    char limit[DPB_UNIT_TEXT_BYTES];

    limit_text(row, low ? row->min : row->max, limit, sizeof(limit));
    return complain(complaint, text, "is out of range: at %s %s", low ? "least" : "most", limit);
}

/* What the parser of a number refused. */
static dpb_status complain_number(const struct dpb_option *row, const char *text, const char *noun,
                                  const char *why, struct dpb_option_complaint *complaint)
{
    bool low = text[0] == '-';

    if (strncmp(why, "out of range", strlen("out of range")) != 0)
        return complain(complaint, text, "is not %s: %s", noun, why);
    /* The row's limit says more than the type's. */
    if (!strstr(why, "zero") && (low ? has_min(row) : has_max(row)))
        return complain_range(row, text, low, complaint);
    return complain(complaint, text, "is %s", why);
}

static dpb_status parse_enum(const struct dpb_option *row, const char *text,
                             struct dpb_option_value *value, struct dpb_option_complaint *complaint)
{
    const char *names[64];
    size_t count = 0;
    const char *near;

    for (; row->choices[count].name; count++) {
        if (strcmp(row->choices[count].name, text) == 0) {
            value->i = row->choices[count].value;
            return DPB_OK;
        }
        if (count < sizeof(names) / sizeof(names[0]))
            names[count] = row->choices[count].name;
    }
    if (count > sizeof(names) / sizeof(names[0]))
        count = sizeof(names) / sizeof(names[0]);
    near = dpb_suggest(text, names, count);
    if (near)
        return complain(complaint, text, "is not among the choices; did you mean \"%s\"?", near);
    return complain(complaint, text, "is not among the choices");
}

static dpb_status check_text(const char *text, struct dpb_option_value *value,
                             struct dpb_option_complaint *complaint)
{
    const char *p = text;

    if (strlen(text) >= sizeof(value->text))
        return complain(complaint, text, "is longer than %zu bytes", sizeof(value->text) - 1);
    while (*p) {
        size_t length = dpb_utf8_length(p, SIZE_MAX);

        if (length == 0)
            return complain(complaint, text, "is not valid UTF-8");
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            return complain(complaint, text, "has a control character in it");
        p += length;
    }
    strcpy(value->text, text);
    return DPB_OK;
}

static dpb_status parse_part(const struct dpb_option *row, const struct dpb_option_set *set,
                             const char *text, struct dpb_option_value *value,
                             struct dpb_option_complaint *complaint)
{
    const char *names[256];
    size_t count = 0, i;
    const char *near;
    char plural[64];

    for (i = 0; set && i < set->part_count; i++) {
        if (strcmp(set->parts[i].kind, row->name) != 0)
            continue;
        if (strcmp(set->parts[i].name, text) == 0)
            return check_text(text, value, complaint);
        if (count < sizeof(names) / sizeof(names[0]))
            names[count++] = set->parts[i].name;
    }
    if (!set || ((row->flags & DPB_OPT_AUTO) && strcmp(text, "auto") == 0))
        return check_text(text, value, complaint);
    dpb_option_kind_plural(row->name, plural, sizeof(plural));
    near = dpb_suggest(text, names, count);
    if (near)
        return complain(complaint, text, "is no %s; did you mean \"%s\"? (dpbench list %s)",
                        row->name, near, plural);
    return complain(complaint, text, "is no %s (dpbench list %s)", row->name, plural);
}

static dpb_status parse_link(const char *text, struct dpb_option_value *value,
                             struct dpb_option_complaint *complaint)
{
    const char *comma = strchr(text, ',');
    char rate[64];
    char why[DPB_WHY_BYTES];

    if (strcmp(text, "none") == 0) {
        value->link = (struct dpb_link){0};
        return DPB_OK;
    }
    if (!comma)
        return complain(complaint, text, "is not a link: the latency is missing");
    snprintf(rate, sizeof(rate), "%.*s", (int)(comma - text), text);
    if ((size_t)(comma - text) >= sizeof(rate))
        return complain(complaint, text, "is not a link: the rate is too long");
    if (dpb_parse_rate(rate, &value->link.bw_bytes_per_s, why) < 0 ||
        dpb_parse_duration(comma + 1, &value->link.latency_ns, why) < 0)
        return complain(complaint, text, "is not a link: %s", why);
    if (!(value->link.bw_bytes_per_s > 0))
        return complain(complaint, text, "is not a link: the rate must be above 0");
    return DPB_OK;
}

static dpb_status parse_number(const struct dpb_option *row, const char *text,
                               struct dpb_option_value *value,
                               struct dpb_option_complaint *complaint)
{
    char why[DPB_WHY_BYTES];
    const char *noun = "a number";
    dpb_status st = DPB_ERR_INTERNAL;
    double number;

    switch (row->type) {
    case DPB_OPT_INT:
        noun = "a whole number";
        st = dpb_parse_i64(text, &value->i, why);
        if (st == DPB_OK && value->i == DPB_AUTO) {
            st = DPB_ERR_USAGE; /* the number that stands for "auto" */
            snprintf(why, sizeof(why), "out of range: at least %lld", (long long)DPB_AUTO + 1);
        }
        break;
    case DPB_OPT_SIZE:
        noun = "a size";
        st = dpb_parse_size(text, &value->i, why);
        break;
    case DPB_OPT_DURATION:
        noun = "a duration";
        st = dpb_parse_duration(text, &value->i, why);
        break;
    case DPB_OPT_RATE:
        noun = "a rate";
        st = dpb_parse_rate(text, &value->f, why);
        break;
    case DPB_OPT_RATIO:
        noun = "a ratio";
        st = dpb_parse_ratio(text, &value->f, why);
        break;
    default:
        st = dpb_parse_f64(text, &value->f, why);
        break;
    }
    if (st < 0)
        return complain_number(row, text, noun, why, complaint);
    number = is_float_type(row->type) ? value->f : (double)value->i;
    if (has_limits(row) && number < row->min)
        return complain_range(row, text, true, complaint);
    if (has_limits(row) && number > row->max)
        return complain_range(row, text, false, complaint);
    return DPB_OK;
}

dpb_status dpb_option_value_parse(const struct dpb_option *row, const struct dpb_option_set *set,
                                  const char *text, struct dpb_option_value *value,
                                  struct dpb_option_complaint *complaint)
{
    struct dpb_option_value parsed = {0};
    dpb_status st = DPB_OK;
    bool on = false;

    switch (row->type) {
    case DPB_OPT_BOOL:
        if (dpb_parse_bool(text, &on, NULL) < 0)
            st = complain(complaint, text, "is neither on nor off");
        parsed.i = on;
        break;
    case DPB_OPT_ENUM:
        st = parse_enum(row, text, &parsed, complaint);
        break;
    case DPB_OPT_TEXT:
        st = check_text(text, &parsed, complaint);
        break;
    case DPB_OPT_PART:
        st = parse_part(row, set, text, &parsed, complaint);
        break;
    case DPB_OPT_LINK:
        st = parse_link(text, &parsed, complaint);
        break;
    default:
        if ((row->flags & DPB_OPT_AUTO) && strcmp(text, "auto") == 0) {
            parsed.i = DPB_AUTO;
            parsed.f = NAN;
        } else {
            st = parse_number(row, text, &parsed, complaint);
        }
        break;
    }
    if (st == DPB_OK)
        *value = parsed;
    else
        dpb_option_value_hint(row, set, complaint->hint, sizeof(complaint->hint));
    return st;
}

bool dpb_option_value_is_auto(const struct dpb_option *row, const struct dpb_option_value *value)
{
    if (!(row->flags & DPB_OPT_AUTO))
        return false;
    return is_float_type(row->type) ? isnan(value->f) : value->i == DPB_AUTO;
}

void dpb_option_value_format(const struct dpb_option *row, const struct dpb_option_value *value,
                             struct dpb_str *out)
{
    char text[DPB_UNIT_TEXT_BYTES] = "";
    size_t i;

    if (dpb_option_value_is_auto(row, value)) {
        dpb_str_append(out, "auto");
        return;
    }
    switch (row->type) {
    case DPB_OPT_BOOL:
        dpb_str_append(out, value->i ? "on" : "off");
        return;
    case DPB_OPT_TEXT:
    case DPB_OPT_PART:
        dpb_str_append(out, value->text);
        return;
    case DPB_OPT_ENUM:
        for (i = 0; row->choices[i].name; i++) {
            if (row->choices[i].value == value->i) {
                dpb_str_append(out, row->choices[i].name);
                return;
            }
        }
        dpb_str_appendf(out, "%lld", (long long)value->i); /* the program set what is no choice */
        return;
    case DPB_OPT_LINK:
        if (!(value->link.bw_bytes_per_s > 0)) {
            dpb_str_append(out, "none");
            return;
        }
        dpb_format_rate(value->link.bw_bytes_per_s, text, sizeof(text));
        dpb_str_appendf(out, "%s,", text);
        dpb_format_duration(value->link.latency_ns, text, sizeof(text));
        break;
    case DPB_OPT_SIZE:
        dpb_format_size(value->i, text, sizeof(text));
        break;
    case DPB_OPT_DURATION:
        dpb_format_duration(value->i, text, sizeof(text));
        break;
    case DPB_OPT_RATE:
        dpb_format_rate(value->f, text, sizeof(text));
        break;
    case DPB_OPT_FLOAT:
    case DPB_OPT_RATIO:
        dpb_format_f64(value->f, text, sizeof(text));
        break;
    case DPB_OPT_INT:
        snprintf(text, sizeof(text), "%lld", (long long)value->i);
        break;
    }
    dpb_str_append(out, text);
}

size_t dpb_option_member_bytes(enum dpb_option_type type)
{
    switch (type) {
    case DPB_OPT_BOOL:
        return sizeof(bool);
    case DPB_OPT_INT:
    case DPB_OPT_SIZE:
    case DPB_OPT_DURATION:
        return sizeof(int64_t);
    case DPB_OPT_FLOAT:
    case DPB_OPT_RATE:
    case DPB_OPT_RATIO:
        return sizeof(double);
    case DPB_OPT_ENUM:
        return sizeof(int);
    case DPB_OPT_TEXT:
    case DPB_OPT_PART:
        return DPB_OPTION_TEXT_BYTES;
    case DPB_OPT_LINK:
        return sizeof(struct dpb_link);
    }
    return 0;
}

void dpb_option_value_store(const struct dpb_option *row, const struct dpb_option_value *value,
                            void *config_struct)
{
    unsigned char *member = (unsigned char *)config_struct + row->offset;
    size_t bytes = dpb_option_member_bytes(row->type);
    bool on = value->i != 0;
    int choice = (int)value->i;

    switch (row->type) {
    case DPB_OPT_BOOL:
        memcpy(member, &on, bytes);
        break;
    case DPB_OPT_INT:
    case DPB_OPT_SIZE:
    case DPB_OPT_DURATION:
        memcpy(member, &value->i, bytes);
        break;
    case DPB_OPT_FLOAT:
    case DPB_OPT_RATE:
    case DPB_OPT_RATIO:
        memcpy(member, &value->f, bytes);
        break;
    case DPB_OPT_ENUM:
        memcpy(member, &choice, bytes);
        break;
    case DPB_OPT_TEXT:
    case DPB_OPT_PART:
        memcpy(member, value->text, bytes);
        break;
    case DPB_OPT_LINK:
        memcpy(member, &value->link, bytes);
        break;
    }
}

void dpb_option_value_load(const struct dpb_option *row, const void *config_struct,
                           struct dpb_option_value *value)
{
    const unsigned char *member = (const unsigned char *)config_struct + row->offset;
    size_t bytes = dpb_option_member_bytes(row->type);
    bool on = false;
    int choice = 0;

    *value = (struct dpb_option_value){0};
    switch (row->type) {
    case DPB_OPT_BOOL:
        memcpy(&on, member, bytes);
        value->i = on;
        break;
    case DPB_OPT_INT:
    case DPB_OPT_SIZE:
    case DPB_OPT_DURATION:
        memcpy(&value->i, member, bytes);
        break;
    case DPB_OPT_FLOAT:
    case DPB_OPT_RATE:
    case DPB_OPT_RATIO:
        memcpy(&value->f, member, bytes);
        break;
    case DPB_OPT_ENUM:
        memcpy(&choice, member, bytes);
        value->i = choice;
        break;
    case DPB_OPT_TEXT:
    case DPB_OPT_PART:
        memcpy(value->text, member, bytes);
        break;
    case DPB_OPT_LINK:
        memcpy(&value->link, member, bytes);
        break;
    }
}

/* Ranges of whole numbers: "8..4096:x2", "8..64:+8", "1..4". */
#include <stdio.h>
#include <string.h>

#include "dpb_units.h"
#include "option_private.h"

bool dpb_option_is_range(const struct dpb_option *row, const char *text)
{
    return row->type == DPB_OPT_INT && !(row->flags & DPB_OPT_NO_AXIS) && strstr(text, "..");
}

struct range {
    int64_t from, to, by;
    bool multiplies;
};

/* The number between `start` and `end`. */
static dpb_status read_number(const char *start, const char *end, int64_t *value)
{
    char text[32];

    if ((size_t)(end - start) >= sizeof(text))
        return DPB_ERR_USAGE;
    snprintf(text, sizeof(text), "%.*s", (int)(end - start), start);
    return dpb_parse_i64(text, value, NULL);
}

static const char *read_range(const char *text, struct range *range)
{
    const char *dots = strstr(text, ".."), *colon = strchr(dots, ':');
    const char *end = text + strlen(text);

    *range = (struct range){.by = 1};
    if (read_number(text, dots, &range->from) < 0 ||
        read_number(dots + 2, colon ? colon : end, &range->to) < 0)
        return "both ends must be whole numbers";
    if (range->to < range->from)
        return "it ends below its start";
    if (!colon)
        return NULL;
    if (colon[1] != 'x' && colon[1] != '+')
        return "the step must be a factor such as :x2, or a number to add such as :+8";
    range->multiplies = colon[1] == 'x';
    if (read_number(colon + 2, end, &range->by) < 0)
        return "the step must be a whole number";
    if (range->by < (range->multiplies ? 2 : 1))
        return range->multiplies ? "the factor must be at least 2" : "the step must be at least 1";
    if (range->multiplies && range->from < 1)
        return "what is multiplied must start at 1 or above";
    return NULL;
}

static bool next(const struct range *range, int64_t *value)
{
    if (range->multiplies) {
        if (*value > range->to / range->by)
            return false;
        *value *= range->by;
        return true;
    }
    if (range->to - *value < range->by)
        return false;
    *value += range->by;
    return true;
}

const char *dpb_option_range_values(const char *text, int64_t *values, size_t *count)
{
    struct range range;
    const char *why = read_range(text, &range);
    int64_t value = range.from;

    *count = 0;
    if (why)
        return why;
    if (!range.multiplies && (double)range.to - (double)range.from > 1e15)
        return "it has too many values";
    do {
        if (*count == DPB_OPTION_RANGE_VALUES)
            return "it has too many values";
        values[(*count)++] = value;
    } while (next(&range, &value));
    return NULL;
}

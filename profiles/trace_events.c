/* Events as JSON columns, for the way from a rank to the driver: one array of integers per member,
 * names once each. */
#include "dpb_trace.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"

/* column, member, smallest and largest value */
#define COLUMN_MAP(X)                                                                              \
    X("start_ns", start_ns, INT64_MIN, INT64_MAX)                                                  \
    X("end_ns", end_ns, INT64_MIN, INT64_MAX)                                                      \
    X("step", step, INT32_MIN, INT32_MAX)                                                          \
    X("bucket", bucket, INT32_MIN, INT32_MAX)                                                      \
    X("bytes", bytes, INT64_MIN, INT64_MAX)                                                        \
    X("kind", kind, 0, DPB_EVENT_KIND_COUNT - 1)                                                   \
    X("lane", lane, 0, DPB_LANE_COUNT - 1)                                                         \
    X("rank", rank, 0, INT16_MAX)

/* An event's name, and later its place among the different names. */
struct named {
    const char *name;
    size_t event;
};

static int compare_names(const void *left, const void *right)
{
    const struct named *a = left, *b = right;
    int order = a->name == b->name ? 0 : strcmp(a->name, b->name);

    return order ? order : a->event < b->event ? -1 : a->event > b->event;
}

/* "names": the different names, "name": each event's number among them. */
static bool add_names(dpb_json *json, const struct dpb_event *events, size_t count)
{
    struct named *named = malloc((count + 1) * sizeof(named[0]));
    int64_t *numbers = malloc((count + 1) * sizeof(numbers[0]));
    dpb_json *names = dpb_json_array();
    int64_t number = -1;

    if (named && numbers) {
        for (size_t i = 0; i < count; i++) {
            const char *kind = dpb_event_kind_text((enum dpb_event_kind)events[i].kind);

            named[i] = (struct named){events[i].name ? events[i].name : kind, i};
        }
        if (count > 0)
            qsort(named, count, sizeof(named[0]), compare_names);
        for (size_t i = 0; i < count; i++) {
            if (i == 0 || strcmp(named[i - 1].name, named[i].name) != 0) {
                dpb_json_append(names, dpb_json_string(named[i].name));
                number++;
            }
            numbers[named[i].event] = number;
        }
        dpb_json_set(json, "name", dpb_json_ints(numbers, count));
    }
    dpb_json_set(json, "names", names);
    free(named);
    free(numbers);
    return named && numbers;
}

dpb_json *dpb_events_to_json(const struct dpb_event *events, size_t count)
{
    dpb_json *json = dpb_json_object();
    dpb_json *column;

    dpb_json_set_int(json, "count", (int64_t)count);
#define ADD_COLUMN(key, member, min, max)                                                          \
    column = dpb_json_array();                                                                     \
    for (size_t i = 0; i < count; i++)                                                             \
        dpb_json_append(column, dpb_json_int(events[i].member));                                   \
    dpb_json_set(json, key, column);
    COLUMN_MAP(ADD_COLUMN)
#undef ADD_COLUMN
    if (add_names(json, events, count) && dpb_json_ok(json))
        return json;
    dpb_json_free(json);
    return NULL;
}

static dpb_status damaged(const char *what)
{
    dpb_error("cannot read a rank's events: \"%s\" is missing or damaged", what);
    return DPB_ERR_CORRUPT;
}

/* An integer of a column within its range. */
static bool read_cell(const dpb_json *column, size_t index, int64_t min, int64_t max,
                      int64_t *value)
{
    const dpb_json *cell = dpb_json_at(column, index);

    if (dpb_json_type(cell) != DPB_JSON_INT)
        return false;
    *value = dpb_json_as_int(cell, 0);
    return min <= *value && *value <= max;
}

static dpb_status read_columns(const dpb_json *json, struct dpb_event *events, size_t count)
{
    const dpb_json *column;
    int64_t value;

#define READ_COLUMN(key, member, min, max)                                                         \
    column = dpb_json_get(json, key);                                                              \
    if (dpb_json_type(column) != DPB_JSON_ARRAY || dpb_json_size(column) != count)                 \
        return damaged(key);                                                                       \
    for (size_t i = 0; i < count; i++) {                                                           \
        if (!read_cell(column, i, min, max, &value))                                               \
            return damaged(key);                                                                   \
        events[i].member = (__typeof__(events[i].member))value;                                    \
    }
    COLUMN_MAP(READ_COLUMN)
#undef READ_COLUMN
    return DPB_OK;
}

/* One block of all names; `offsets` gets where each begins. */
static dpb_status join_names(const dpb_json *names, struct dpb_str *block, size_t *offsets)
{
    for (size_t i = 0; i < dpb_json_size(names); i++) {
        const char *name = dpb_json_as_string(dpb_json_at(names, i), NULL);

        if (!name)
            return damaged("names");
        offsets[i] = block->length;
        dpb_str_append_bytes(block, name, strlen(name) + 1);
    }
    dpb_str_append(block, ""); /* a block even without names */
    return block->failed ? DPB_ERR_NO_MEMORY : DPB_OK;
}

static dpb_status read_names(const dpb_json *json, struct dpb_event *events, size_t count,
                             struct dpb_str *block)
{
    const dpb_json *names = dpb_json_get(json, "names"), *column = dpb_json_get(json, "name");
    size_t name_count = dpb_json_size(names);
    size_t *offsets;
    int64_t number;
    dpb_status st;

    if (dpb_json_type(names) != DPB_JSON_ARRAY)
        return damaged("names");
    if (dpb_json_type(column) != DPB_JSON_ARRAY || dpb_json_size(column) != count)
        return damaged("name");
    offsets = malloc((name_count + 1) * sizeof(offsets[0]));
    if (!offsets)
        return DPB_ERR_NO_MEMORY;
    st = join_names(names, block, offsets);
    for (size_t i = 0; i < count && st == DPB_OK; i++) {
        if (read_cell(column, i, 0, (int64_t)name_count - 1, &number))
            events[i].name = block->text + offsets[number];
        else
            st = damaged("name");
    }
    free(offsets);
    return st;
}

dpb_status dpb_events_from_json(const dpb_json *json, struct dpb_event **events, size_t *count,
                                char **names)
{
    int64_t wanted = dpb_json_as_int(dpb_json_get(json, "count"), -1);
    struct dpb_event *made = NULL;
    struct dpb_str block = {0};
    dpb_status st;

    /* Before memory is taken for it, the number must be that of a column. */
    if (wanted < 0 || (size_t)wanted != dpb_json_size(dpb_json_get(json, "start_ns")))
        return damaged("count");
    made = calloc((size_t)wanted + 1, sizeof(made[0]));
    if (!made) {
        st = DPB_ERR_NO_MEMORY;
        goto failed;
    }
    DPB_TRY_GOTO(st, read_columns(json, made, (size_t)wanted), failed);
    DPB_TRY_GOTO(st, read_names(json, made, (size_t)wanted, &block), failed);
    *events = made;
    *count = (size_t)wanted;
    *names = block.text;
    return DPB_OK;

failed:
    if (st == DPB_ERR_NO_MEMORY)
        dpb_error("cannot read %lld events of a rank: out of memory", (long long)wanted);
    dpb_str_release(&block);
    free(made);
    return st;
}

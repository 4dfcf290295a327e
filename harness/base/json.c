/* Building and reading of JSON values; json_write.c writes them. */
#include "dpb_json.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "dpb_log.h"
#include "utf8.h"

/* Set by the first allocation of a JSON value that fails; from then on no value is known to be
 * whole. jansson is used nowhere else, so its allocator is ours to set. */
static atomic_bool out_of_memory;

static void *json_malloc(size_t bytes)
{
    void *memory = malloc(bytes);

    if (!memory)
        atomic_store(&out_of_memory, true);
    return memory;
}

__attribute__((constructor)) static void watch_json_allocations(void)
{
    json_set_alloc_funcs(json_malloc, free);
}

bool dpb_json_ok(const dpb_json *root)
{
    return root && !atomic_load(&out_of_memory);
}

static json_t *inner(dpb_json *value)
{
    return (json_t *)(void *)value;
}

static const json_t *inner_const(const dpb_json *value)
{
    return (const json_t *)(const void *)value;
}

static dpb_json *outer(json_t *value)
{
    return (dpb_json *)(void *)value;
}

static const dpb_json *outer_const(const json_t *value)
{
    return (const dpb_json *)(const void *)value;
}

dpb_json *dpb_json_object(void)
{
    return outer(json_object());
}

dpb_json *dpb_json_array(void)
{
    return outer(json_array());
}

dpb_json *dpb_json_null(void)
{
    return outer(json_null());
}

dpb_json *dpb_json_bool(bool value)
{
    return outer(json_boolean(value));
}

dpb_json *dpb_json_int(int64_t value)
{
    return outer(json_integer(value));
}

dpb_json *dpb_json_real(double value)
{
    return outer(isfinite(value) ? json_real(value) : json_null());
}

/* Append `text` with each invalid byte replaced by U+FFFD. */
static void append_valid_utf8(struct dpb_str *out, const char *text)
{
    const char *p = text;

    while (*p) {
        size_t length = dpb_utf8_length(p, SIZE_MAX);

        if (length == 0) {
            dpb_str_append(out, "\xef\xbf\xbd");
            p++;
        } else {
            dpb_str_append_bytes(out, p, length);
            p += length;
        }
    }
}

dpb_json *dpb_json_string(const char *text)
{
    struct dpb_str valid = {0};
    json_t *value = NULL;

    if (!text)
        return dpb_json_null();
    append_valid_utf8(&valid, text);
    if (valid.failed)
        atomic_store(&out_of_memory, true);
    else
        value = json_stringn(valid.length ? valid.text : "", valid.length);
    dpb_str_release(&valid);
    return outer(value);
}

dpb_json *dpb_json_copy(const dpb_json *value)
{
    return value ? outer(json_deep_copy(inner_const(value))) : NULL;
}

void dpb_json_free(dpb_json *value)
{
    json_decref(inner(value));
}

void dpb_json_set(dpb_json *object, const char *key, dpb_json *value)
{
    struct dpb_str valid = {0};

    if (!object || !value) {
        json_decref(inner(value));
        return;
    }
    append_valid_utf8(&valid, key);
    if (valid.failed) {
        atomic_store(&out_of_memory, true);
        json_decref(inner(value));
    } else {
        /* fails for lack of memory only, which our allocator has seen */
        (void)json_object_set_new(inner(object), valid.length ? valid.text : "", inner(value));
    }
    dpb_str_release(&valid);
}

void dpb_json_set_bool(dpb_json *object, const char *key, bool value)
{
    dpb_json_set(object, key, dpb_json_bool(value));
}

void dpb_json_set_int(dpb_json *object, const char *key, int64_t value)
{
    dpb_json_set(object, key, dpb_json_int(value));
}

void dpb_json_set_real(dpb_json *object, const char *key, double value)
{
    dpb_json_set(object, key, dpb_json_real(value));
}

void dpb_json_set_string(dpb_json *object, const char *key, const char *text)
{
    dpb_json_set(object, key, dpb_json_string(text));
}

void dpb_json_set_absent(dpb_json *object, const char *key, const char *reason)
{
    struct dpb_str reason_key = {0};

    dpb_json_set(object, key, dpb_json_null());
    dpb_str_appendf(&reason_key, "%s_reason", key);
    if (reason_key.failed)
        atomic_store(&out_of_memory, true);
    else
        dpb_json_set_string(object, reason_key.text, reason);
    dpb_str_release(&reason_key);
}

void dpb_json_append(dpb_json *array, dpb_json *value)
{
    if (array && value)
        (void)json_array_append_new(inner(array), inner(value));
    else
        json_decref(inner(value));
}

dpb_json *dpb_json_ints(const int64_t *values, size_t count)
{
    dpb_json *array = dpb_json_array();
    size_t i;

    for (i = 0; i < count; i++)
        dpb_json_append(array, dpb_json_int(values[i]));
    return array;
}

dpb_json *dpb_json_reals(const double *values, size_t count)
{
    dpb_json *array = dpb_json_array();
    size_t i;

    for (i = 0; i < count; i++)
        dpb_json_append(array, dpb_json_real(values[i]));
    return array;
}

enum dpb_json_type dpb_json_type(const dpb_json *value)
{
    if (!value)
        return DPB_JSON_NULL;
    switch (json_typeof(inner_const(value))) {
    case JSON_OBJECT:
        return DPB_JSON_OBJECT;
    case JSON_ARRAY:
        return DPB_JSON_ARRAY;
    case JSON_STRING:
        return DPB_JSON_STRING;
    case JSON_INTEGER:
        return DPB_JSON_INT;
    case JSON_REAL:
        return DPB_JSON_REAL;
    case JSON_TRUE:
    case JSON_FALSE:
        return DPB_JSON_BOOL;
    case JSON_NULL:
        break;
    }
    return DPB_JSON_NULL;
}

const dpb_json *dpb_json_get(const dpb_json *object, const char *key)
{
    return outer_const(json_object_get(inner_const(object), key));
}

const dpb_json *dpb_json_path(const dpb_json *object, const char *path)
{
    const dpb_json *value = object;
    const char *part = path;

    for (;;) {
        size_t length = strcspn(part, "/");
        char *key = strndup(part, length);

        value = key ? dpb_json_get(value, key) : NULL;
        free(key);
        if (!value || !part[length])
            return value;
        part += length + 1;
    }
}

size_t dpb_json_size(const dpb_json *container)
{
    const json_t *value = inner_const(container);

    return json_is_object(value) ? json_object_size(value) : json_array_size(value);
}

const dpb_json *dpb_json_at(const dpb_json *array, size_t index)
{
    return outer_const(json_array_get(inner_const(array), index));
}

const dpb_json *dpb_json_entry(const dpb_json *object, size_t index, const char **key)
{
    /* jansson's iterators take no const object, though these calls change nothing */
    json_t *value = (json_t *)(uintptr_t)object;
    void *entry = json_object_iter(value);

    while (entry && index-- > 0)
        entry = json_object_iter_next(value, entry);
    if (!entry)
        return NULL;
    if (key)
        *key = json_object_iter_key(entry);
    return outer_const(json_object_iter_value(entry));
}

const dpb_json *dpb_json_next(const dpb_json *container, dpb_json_walk *walk, const char **key)
{
    json_t *value = (json_t *)(uintptr_t)container;

    if (!json_is_object(value)) {
        const dpb_json *element = dpb_json_at(container, walk->index);

        walk->index += element != NULL;
        return element;
    }
    walk->entry =
            walk->index == 0 ? json_object_iter(value) : json_object_iter_next(value, walk->entry);
    if (!walk->entry)
        return NULL;
    walk->index++;
    if (key)
        *key = json_object_iter_key(walk->entry);
    return outer_const(json_object_iter_value(walk->entry));
}

bool dpb_json_as_bool(const dpb_json *value, bool otherwise)
{
    const json_t *json = inner_const(value);

    return json_is_boolean(json) ? json_is_true(json) : otherwise;
}

int64_t dpb_json_as_int(const dpb_json *value, int64_t otherwise)
{
    const json_t *json = inner_const(value);

    return json_is_integer(json) ? (int64_t)json_integer_value(json) : otherwise;
}

double dpb_json_as_real(const dpb_json *value, double otherwise)
{
    const json_t *json = inner_const(value);

    return json_is_number(json) ? json_number_value(json) : otherwise;
}

const char *dpb_json_as_string(const dpb_json *value, const char *otherwise)
{
    const json_t *json = inner_const(value);

    return json_is_string(json) ? json_string_value(json) : otherwise;
}

dpb_status dpb_json_parse(const char *text, size_t count, dpb_json **value, char why[256])
{
    json_error_t error;
    json_t *root = json_loadb(text, count, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);

    if (!root) {
        if (why)
            snprintf(why, 256, "line %d, column %d: %s", error.line, error.column, error.text);
        return json_error_code(&error) == json_error_out_of_memory ? DPB_ERR_NO_MEMORY
                                                                   : DPB_ERR_CORRUPT;
    }
    *value = outer(root);
    return DPB_OK;
}

dpb_status dpb_json_read_file(const char *path, dpb_json **value)
{
    struct dpb_str text = {0};
    char why[256];
    dpb_status st;

    DPB_TRY(dpb_file_read(path, &text));
    st = dpb_json_parse(text.text, text.length, value, why);
    if (st < 0) {
        dpb_error("cannot read \"%s\" as JSON: %s", path, why);
        dpb_log_hint("the file is damaged or no JSON file; write it anew");
    }
    dpb_str_release(&text);
    return st;
}

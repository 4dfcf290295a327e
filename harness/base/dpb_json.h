/* dpb_json.h: JSON values, read and written. jansson stands behind it and stays private to base.
 *
 * Integers are 64-bit and stay integers (nanoseconds survive). Reading rejects duplicate keys and
 * invalid UTF-8. Writing never depends on the locale, writes doubles so that they read back to the
 * same bits, and turns a value that is not finite into null.
 *
 * Ownership: a value that is put into an object or array belongs to it. dpb_json_free() frees a
 * root; getters return borrowed values. Builders accept a NULL container or value and remember
 * nothing: check the root once with dpb_json_ok(). */
#ifndef DPB_JSON_H
#define DPB_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dpb_status.h"
#include "dpb_str.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dpb_json dpb_json;

enum dpb_json_type {
    DPB_JSON_NULL,
    DPB_JSON_BOOL,
    DPB_JSON_INT,
    DPB_JSON_REAL,
    DPB_JSON_STRING,
    DPB_JSON_ARRAY,
    DPB_JSON_OBJECT
};

/* ---- build ---- */
dpb_json *dpb_json_object(void);
dpb_json *dpb_json_array(void);
dpb_json *dpb_json_null(void);
dpb_json *dpb_json_bool(bool value);
dpb_json *dpb_json_int(int64_t value);
/* null when `value` is not finite */
dpb_json *dpb_json_real(double value);
/* Invalid UTF-8 bytes are replaced by U+FFFD; NULL text gives null. */
dpb_json *dpb_json_string(const char *text);
/* A deep copy; the caller owns it. */
dpb_json *dpb_json_copy(const dpb_json *value);
void dpb_json_free(dpb_json *value);
/* False when `root` is NULL or building any JSON value has run out of memory in this process. */
bool dpb_json_ok(const dpb_json *root);

/* Set a key (replacing an earlier value) and take ownership of `value`, also on failure. */
void dpb_json_set(dpb_json *object, const char *key, dpb_json *value);
void dpb_json_set_bool(dpb_json *object, const char *key, bool value);
void dpb_json_set_int(dpb_json *object, const char *key, int64_t value);
void dpb_json_set_real(dpb_json *object, const char *key, double value);
void dpb_json_set_string(dpb_json *object, const char *key, const char *text);
/* key: null and "<key>_reason": reason, as records demand for an absent value */
void dpb_json_set_absent(dpb_json *object, const char *key, const char *reason);
void dpb_json_append(dpb_json *array, dpb_json *value);
dpb_json *dpb_json_ints(const int64_t *values, size_t count);
dpb_json *dpb_json_reals(const double *values, size_t count);

/* ---- read ---- */
enum dpb_json_type dpb_json_type(const dpb_json *value); /* NULL value: DPB_JSON_NULL */
/* NULL when absent or `object` is not an object. */
const dpb_json *dpb_json_get(const dpb_json *object, const char *key);
/* Follow keys separated by '/', "config/ranks"; NULL when any is absent. */
const dpb_json *dpb_json_path(const dpb_json *object, const char *path);
size_t dpb_json_size(const dpb_json *container); /* elements or keys; 0 for others */
const dpb_json *dpb_json_at(const dpb_json *array, size_t index);
/* The key and value number `index` of an object, in insertion order; NULL beyond the last. Takes
 * `index` steps: walk a large object with dpb_json_next(). */
const dpb_json *dpb_json_entry(const dpb_json *object, size_t index, const char **key);
/* Walk the values of an object or array in order: start with a zeroed `walk`; NULL at the end.
 * `key` may be NULL and is set for objects only. Do not change the container meanwhile. */
typedef struct dpb_json_walk {
    size_t index; /* values handed out so far */
    void *entry;
} dpb_json_walk;
const dpb_json *dpb_json_next(const dpb_json *container, dpb_json_walk *walk, const char **key);
bool dpb_json_as_bool(const dpb_json *value, bool otherwise);
int64_t dpb_json_as_int(const dpb_json *value, int64_t otherwise);
/* integers count as reals */
double dpb_json_as_real(const dpb_json *value, double otherwise);
const char *dpb_json_as_string(const dpb_json *value, const char *otherwise);

/* Parse one JSON text of `count` bytes. On failure nothing is logged; `why` gets
 * "line 3, column 7: ..." and the status is DPB_ERR_CORRUPT. `why` may be NULL. */
dpb_status dpb_json_parse(const char *text, size_t count, dpb_json **value, char why[256]);
/* Parse a file; errors are logged with the path. */
dpb_status dpb_json_read_file(const char *path, dpb_json **value);

/* ---- write ---- */
/* Append the value to `out`: one line without newline, or indented by two spaces. Fails only for
 * lack of memory, here or while the value was built. */
dpb_status dpb_json_write(const dpb_json *value, bool indented, struct dpb_str *out);
/* Indented, with a final newline, atomically (dpb_file_write_atomic). */
dpb_status dpb_json_write_file(const dpb_json *value, const char *path);

#ifdef __cplusplus
}
#endif
#endif

/* dpb_yaml.h: a YAML 1.2 text as a small tree of texts with their places. libfyaml reads the syntax
 * and stays private to base. What a setting file has no use for is an error: anchors, aliases,
 * tags, several documents, deep nesting, keys that are no scalars. */
#ifndef DPB_YAML_H
#define DPB_YAML_H

#include <stddef.h>

#include "dpb_status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum dpb_yaml_kind {
    DPB_YAML_SCALAR,
    DPB_YAML_LIST,
    DPB_YAML_MAP
};

struct dpb_yaml {
    enum dpb_yaml_kind kind;
    char *text;             /* SCALAR: as written, without quotes */
    int line, column;       /* from 1 */
    struct dpb_yaml *items; /* LIST: elements; MAP: key, value, key, value, ... */
    size_t count;           /* of `items` */
};

/* DPB_ERR_USAGE for a mistake in the text, logged as "file:line:column: ...". An empty text is one.
 * Release after use. */
dpb_status dpb_yaml_parse(const char *text, size_t count, const char *file_name,
                          struct dpb_yaml *root);
/* The same from a file; DPB_ERR_NOT_FOUND or DPB_ERR_IO, logged, when it cannot be read. */
dpb_status dpb_yaml_read_file(const char *path, struct dpb_yaml *root);
void dpb_yaml_release(struct dpb_yaml *node);

/* The value of a key; NULL when there is none, or `map` is no map. A key that comes twice: the
 * first (who reads a file checks that). */
const struct dpb_yaml *dpb_yaml_get(const struct dpb_yaml *map, const char *key);

/* "scalar", "list", "map" with an article */
const char *dpb_yaml_kind_text(enum dpb_yaml_kind kind);

#ifdef __cplusplus
}
#endif
#endif

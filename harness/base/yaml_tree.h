/* yaml_tree.h (private): a YAML 1.2 text as a small tree of texts with their places. libfyaml reads
 * the syntax. What a setting file has no use for is an error: anchors, aliases, tags, several
 * documents, deep nesting, keys that are no scalars. */
#ifndef DPB_YAML_TREE_H
#define DPB_YAML_TREE_H

#include <stddef.h>

#include "dpb_status.h"

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
 */
dpb_status dpb_yaml_parse(const char *text, size_t count, const char *file_name,
                          struct dpb_yaml *root);
void dpb_yaml_release(struct dpb_yaml *node);

/* "scalar", "list", "map" with an article */
const char *dpb_yaml_kind_text(enum dpb_yaml_kind kind);

#endif

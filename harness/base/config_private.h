/* config_private.h (private): what config.c and config_json.c share. */
#ifndef DPB_CONFIG_PRIVATE_H
#define DPB_CONFIG_PRIVATE_H

#include "option_private.h"

/* A table that counts in the cell, with the config struct it fills. */
struct dpb_active_table {
    const struct dpb_option_table *table;
    unsigned char *data; /* table->config_bytes */
    bool *is_explicit;   /* one per row */
};

struct dpb_config {
    const struct dpb_option_set *set;
    struct dpb_active_table *tables;
    size_t table_count;
    char **dropped;
    size_t dropped_count;
};

/* One row that counts, for walks in the order of names. */
struct dpb_active_row {
    const struct dpb_option *row;
    const void *data; /* the config struct of its table */
    bool is_explicit;
};

/* All rows that count, sorted by name, each name once; the caller frees the array. */
dpb_status dpb_config_active_rows(const dpb_config *config, struct dpb_active_row **rows,
                                  size_t *count);

#endif

/* model_table.h: a network's parameters from tests/data/<name>.csv. */
#ifndef DPB_TESTS_MODEL_TABLE_H
#define DPB_TESTS_MODEL_TABLE_H

#include "dpb_workload.h"

struct model_table {
    struct dpb_param_info *params;
    int param_count;
    char *text; /* names point into it */
};

/* Fails the test when the file cannot be read. */
void model_table_read(const char *name, struct model_table *table);
void model_table_release(struct model_table *table);

#endif

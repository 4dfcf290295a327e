/* layer_table.h: a network's table from the framework it is taken from (tests/data/<name>.csv). */
#ifndef BENCH_TESTS_LAYER_TABLE_H
#define BENCH_TESTS_LAYER_TABLE_H

#include "dpb_workload.h"

/* Are parameters, shapes, multiply-accumulates and output sizes those of the table? */
void layer_table_check(const struct dpb_model *model, const char *name);

#endif

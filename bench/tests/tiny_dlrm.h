/* tiny_dlrm.h: the recommendation model of data/dlrm_tiny.json, and reading that file. Failures
 * fail the test. */
#ifndef BENCH_TESTS_TINY_DLRM_H
#define BENCH_TESTS_TINY_DLRM_H

#include "dlrm.h"
#include "dpb_json.h"

#define TINY_DLRM_SAMPLES 6

/* The same list for the same `where`, made once. */
const struct dpb_dlrm_list *tiny_dlrm_list(enum dpb_dlrm_where where);

/* Workloads of it, without options. */
extern const struct dpb_workload_ops tiny_dlrm_dense_ops, tiny_dlrm_sparse_ops,
        tiny_dlrm_sharded_ops;

/* What PyTorch computed; the caller frees it. */
dpb_json *tiny_dlrm_figures(void);
/* The `count` numbers under `key`. */
void tiny_dlrm_floats(const dpb_json *json, const char *key, float *to, int64_t count);
void tiny_dlrm_ints(const dpb_json *json, const char *key, int32_t *to, int64_t count);

#endif

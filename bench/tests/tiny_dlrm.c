#include "tiny_dlrm.h"

#include <math.h>

#include "dpb_test.h"

const struct dpb_dlrm_list *tiny_dlrm_list(enum dpb_dlrm_where where)
{
    const struct dpb_dlrm_shape shape = {.where = where,
                                         .features = 3,
                                         .tables = 3,
                                         .table_rows = {5, 5, 5},
                                         .length = 4,
                                         .bottom_count = 2,
                                         .bottom = {6, 4},
                                         .top_count = 2,
                                         .top = {7, 1}};
    const struct dpb_dlrm_list *list = dpb_dlrm_list_get(&shape, "tiny");

    assert_non_null(list);
    return list;
}

#define TINY_DLRM(id, where)                                                                       \
    static const struct dpb_model *model_##id(const void *options)                                 \
    {                                                                                              \
        (void)options;                                                                             \
        return &tiny_dlrm_list(where)->model;                                                      \
    }                                                                                              \
    static dpb_status open_##id(const struct dpb_workload_config *config, dpb_workload **workload) \
    {                                                                                              \
        return dpb_dlrm_open(&tiny_dlrm_##id##_ops, tiny_dlrm_list(where), config, workload);      \
    }                                                                                              \
    static int64_t bytes_##id(const void *options, const struct dpb_workload_sizes *sizes)         \
    {                                                                                              \
        (void)options;                                                                             \
        return dpb_dlrm_activation_bytes_for(tiny_dlrm_list(where), sizes);                        \
    }                                                                                              \
    static int64_t host_bytes_##id(const void *options, const struct dpb_workload_sizes *sizes)    \
    {                                                                                              \
        (void)options;                                                                             \
        return dpb_dlrm_host_bytes_for(tiny_dlrm_list(where), sizes);                              \
    }                                                                                              \
    const struct dpb_workload_ops tiny_dlrm_##id##_ops = {                                         \
            .version = DPB_WORKLOAD_OPS_VERSION,                                                   \
            .name = "tiny-dlrm-" #id,                                                              \
            .summary = "for tests: a recommendation model",                                        \
            .flags = DPB_WORKLOAD_MIXED,                                                           \
            .training = {.optimizer = DPB_OPTIMIZER_SGD, .lr = 0.1},                               \
            .model = model_##id,                                                                   \
            .open = open_##id,                                                                     \
            .close = dpb_dlrm_close,                                                               \
            .bind = dpb_dlrm_bind,                                                                 \
            .init_params = dpb_dlrm_init_params,                                                   \
            .forward = dpb_dlrm_forward,                                                           \
            .read_result = dpb_dlrm_read_result,                                                   \
            .backward = dpb_dlrm_backward,                                                         \
            .state = dpb_dlrm_state,                                                               \
            .update = dpb_dlrm_update,                                                             \
            .needs_host = dpb_dlrm_needs_host,                                                     \
            .activation_bytes = dpb_dlrm_activation_bytes,                                         \
            .activation_bytes_for = bytes_##id,                                                    \
            .host_bytes_for = host_bytes_##id,                                                     \
            .operators = dpb_dlrm_operators,                                                       \
    }
TINY_DLRM(dense, DPB_DLRM_TABLES_DENSE);
TINY_DLRM(sparse, DPB_DLRM_TABLES_SPARSE);
TINY_DLRM(sharded, DPB_DLRM_TABLES_SHARDED);

dpb_json *tiny_dlrm_figures(void)
{
    dpb_json *json = NULL;

    assert_int_equal(dpb_json_read_file(DPB_TEST_DATA "/dlrm_tiny.json", &json), DPB_OK);
    return json;
}

void tiny_dlrm_floats(const dpb_json *json, const char *key, float *to, int64_t count)
{
    const dpb_json *values = dpb_json_get(json, key);

    assert_int_equal(dpb_json_size(values), count);
    for (int64_t i = 0; i < count; i++)
        to[i] = (float)dpb_json_as_real(dpb_json_at(values, (size_t)i), NAN);
}

void tiny_dlrm_ints(const dpb_json *json, const char *key, int32_t *to, int64_t count)
{
    const dpb_json *values = dpb_json_get(json, key);

    assert_int_equal(dpb_json_size(values), count);
    for (int64_t i = 0; i < count; i++)
        to[i] = (int32_t)dpb_json_as_int(dpb_json_at(values, (size_t)i), -1);
}

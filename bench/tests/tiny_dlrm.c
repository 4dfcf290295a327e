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

#include "oracle.h"

#include <inttypes.h>

#include "dpb_bucket.h"
#include "dpb_json.h"
#include "dpb_test.h"

#define MIB (INT64_C(1) << 20)

/* "name,shape,numel" with shape "64x3x7x7". */
static void check_params(const struct dpb_model *model, const char *name)
{
    char path[1024], line[512];
    int row = 0;
    FILE *table;

    snprintf(path, sizeof(path), "%s/%s.csv", DPB_STEP_TEST_DATA, name);
    table = fopen(path, "r");
    assert_non_null(table);
    assert_non_null(fgets(line, sizeof(line), table));
    while (fgets(line, sizeof(line), table)) {
        const struct dpb_param_info *param = &model->params[row];
        char expected[512];
        int at;

        assert_true(row < model->param_count);
        at = snprintf(expected, sizeof(expected), "%s,", param->name);
        for (int i = 0; i < param->rank; i++)
            at += snprintf(expected + at, sizeof(expected) - (size_t)at, "%s%" PRId64,
                           i > 0 ? "x" : "", param->dim[i]);
        snprintf(expected + at, sizeof(expected) - (size_t)at, ",%" PRId64 "\n", param->numel);
        assert_string_equal(expected, line);
        assert_int_equal(param->dtype, DPB_F32);
        assert_in_range(param->layer, 0, model->layer_count - 1);
        row++;
    }
    fclose(table);
    assert_int_equal(row, model->param_count);
}

static void check_ready_order(const struct dpb_model *model, const dpb_json *expected)
{
    assert_int_equal(dpb_json_size(expected), model->param_count);
    for (int i = 0; i < model->param_count; i++)
        assert_int_equal(model->ready_order[i],
                         dpb_json_as_int(dpb_json_at(expected, (size_t)i), -1));
}

static void check_plan(const struct dpb_model *model, const struct dpb_unit_plan *plan,
                       const dpb_json *buckets)
{
    assert_int_equal(plan->unit_count, dpb_json_size(buckets));
    for (int u = 0; u < plan->unit_count; u++) {
        const struct dpb_unit *unit = &plan->units[u];
        const int *member = &plan->member[unit->first_member];
        const dpb_json *bucket = dpb_json_at(buckets, (size_t)u);

        assert_int_equal(unit->member_count, dpb_json_as_int(dpb_json_get(bucket, "n"), -1));
        assert_int_equal(unit->bytes, dpb_json_as_int(dpb_json_get(bucket, "bytes"), -1));
        assert_string_equal(model->params[member[0]].name,
                            dpb_json_as_string(dpb_json_get(bucket, "first"), ""));
        assert_string_equal(model->params[member[unit->member_count - 1]].name,
                            dpb_json_as_string(dpb_json_get(bucket, "last"), ""));
    }
}

int oracle_check(const struct dpb_model *model, const char *name)
{
    dpb_json *file = NULL;
    dpb_json_walk caps = {0};
    const dpb_json *plans, *buckets;
    const char *cap;
    int compared = 0;

    check_params(model, name);
    assert_int_equal(dpb_json_read_file(DPB_STEP_TEST_DATA "/ddp_bucket_assignments.json", &file),
                     DPB_OK);
    check_ready_order(model, dpb_json_get(dpb_json_get(file, "gradient_ready_order"), name));
    plans = dpb_json_get(dpb_json_get(file, "rebuilt"), name);
    while ((buckets = dpb_json_next(plans, &caps, &cap))) {
        const int64_t limits[] = {MIB, strtoll(cap, NULL, 10) * MIB};
        struct dpb_unit_plan plan;

        assert_int_equal(dpb_unit_plan_by_size(model->params, model->param_count,
                                               model->ready_order, limits, 2, &plan),
                         DPB_OK);
        check_plan(model, &plan, buckets);
        dpb_unit_plan_release(&plan);
        compared++;
    }
    dpb_json_free(file);
    return compared;
}

/* Whole networks: plans that PyTorch printed, and the table for reverse parameter order. */
#include "dpb_test.h"
#include "model_table.h"

#include "dpb_bucket.h"
#include "dpb_json.h"

#define MIB         (INT64_C(1) << 20)
#define UNITS_MAX   12
#define SAME_AS_CAP (-1)

/* ---- rebuilt buckets of PyTorch 1.13.1, in gradient-ready order, first limit 1 MiB ---- */

static void compare_plan(const struct model_table *table, const struct dpb_unit_plan *plan,
                         const dpb_json *buckets)
{
    assert_int_equal(plan->unit_count, dpb_json_size(buckets));
    for (int u = 0; u < plan->unit_count; u++) {
        const struct dpb_unit *unit = &plan->units[u];
        const int *member = &plan->member[unit->first_member];
        const dpb_json *bucket = dpb_json_at(buckets, (size_t)u);
        const dpb_json *idx = dpb_json_get(bucket, "idx");

        assert_int_equal(unit->member_count, dpb_json_as_int(dpb_json_get(bucket, "n"), -1));
        assert_int_equal(unit->bytes, dpb_json_as_int(dpb_json_get(bucket, "bytes"), -1));
        assert_string_equal(table->params[member[0]].name,
                            dpb_json_as_string(dpb_json_get(bucket, "first"), ""));
        assert_string_equal(table->params[member[unit->member_count - 1]].name,
                            dpb_json_as_string(dpb_json_get(bucket, "last"), ""));
        if (!idx)
            continue;
        assert_int_equal(unit->member_count, dpb_json_size(idx));
        for (int m = 0; m < unit->member_count; m++)
            assert_int_equal(member[m], dpb_json_as_int(dpb_json_at(idx, (size_t)m), -1));
    }
}

static void test_rebuilt_buckets_of_pytorch(void **state)
{
    dpb_json *file = NULL;
    dpb_json_walk models = {0};
    const dpb_json *plans;
    const char *name;
    int compared = 0;

    (void)state;
    assert_int_equal(dpb_json_read_file(DPB_TEST_DATA "/ddp_bucket_assignments.json", &file),
                     DPB_OK);
    while ((plans = dpb_json_next(dpb_json_get(file, "rebuilt"), &models, &name))) {
        const dpb_json *ready = dpb_json_get(dpb_json_get(file, "gradient_ready_order"), name);
        struct model_table table;
        dpb_json_walk caps = {0};
        const dpb_json *buckets;
        const char *cap;

        model_table_read(name, &table);
        assert_int_equal(dpb_json_size(ready), table.param_count);
        int *order = calloc((size_t)table.param_count, sizeof(int));
        assert_non_null(order);
        for (int i = 0; i < table.param_count; i++)
            order[i] = (int)dpb_json_as_int(dpb_json_at(ready, (size_t)i), -1);

        while ((buckets = dpb_json_next(plans, &caps, &cap))) {
            const int64_t limits[] = {MIB, strtoll(cap, NULL, 10) * MIB};
            struct dpb_unit_plan plan;

            print_message("%s, cap %s MiB\n", name, cap);
            assert_int_equal(
                    dpb_unit_plan_by_size(table.params, table.param_count, order, limits, 2, &plan),
                    DPB_OK);
            compare_plan(&table, &plan, buckets);
            dpb_unit_plan_release(&plan);
            compared++;
        }
        free(order);
        model_table_release(&table);
    }
    assert_int_equal(compared, 13);
    dpb_json_free(file);
}

/* ---- reverse parameter order: rule A (first bucket 1 MiB), rule B (first bucket as the cap) ----
 */

struct reverse_case {
    const char *model;
    int64_t cap_mib;
    int unit_count;
    int64_t bytes[UNITS_MAX]; /* ends with 0; empty: only the number of units is known */
};

/* clang-format off */
static const struct reverse_case rule_a[] = {
        {"resnet18", 1, 12, {0}},
        {"resnet18", 25, 3, {2052000, 28852224, 15853824}},
        {"resnet18", 35, 3, {2052000, 38297600, 6408448}},
        {"resnet18", 100, 2, {2052000, 44706048}},
        {"resnet50", 1, 35, {0}},
        {"resnet50", 25, 5, {8196000, 31502336, 26255360, 26550272, 9724160}},
        {"resnet50", 35, 4, {8196000, 44105728, 37046272, 12880128}},
        {"resnet50", 100, 2, {8196000, 94032128}},
        {"resnet101", 1, 86, {0}},
        {"resnet101", 25, 8, {8196000, 31502336, 26255360, 27863040, 26812416, 26812416, 26361856,
                              4393216}},
        {"resnet101", 35, 6, {8196000, 44105728, 37046272, 36800512, 36806656, 15241472}},
        {"resnet101", 100, 3, {0}},
        {"resnet152", 1, 129, {0}},
        {"resnet152", 25, 10, {8196000, 31502336, 26255360, 27863040, 26812416, 26812416, 26812416,
                               26812416, 26556416, 13148416}},
        {"resnet152", 35, 8, {0}},
        {"resnet152", 100, 4, {0}},
};

static const struct reverse_case rule_b[] = {
        {"resnet18", 1, 12, {0}},
        {"resnet18", 25, 2, {30904224, 15853824}},
        {"resnet18", 35, 2, {37988256, 8769792}},
        {"resnet18", 50, 1, {46758048}},
        {"resnet18", 100, 1, {46758048}},
        {"resnet18", 200, 1, {46758048}},
        {"resnet50", 1, 35, {0}},
        {"resnet50", 25, 4, {30257056, 26255360, 28366848, 17348864}},
        {"resnet50", 35, 3, {39698336, 37294080, 25235712}},
        {"resnet50", 50, 2, {56512416, 45715712}},
        {"resnet50", 100, 1, {102228128}},
        {"resnet50", 200, 1, {102228128}},
        {"resnet101", 1, 86, {0}},
        {"resnet101", 25, 7, {30257056, 26255360, 28366848, 26812416, 26812416, 26812416, 12880128}},
        {"resnet101", 35, 5, {39698336, 37294080, 36806656, 38111232, 26286336}},
        {"resnet101", 50, 4, {56512416, 52817920, 52568064, 16298240}},
        {"resnet101", 100, 2, {104861600, 73335040}},
        {"resnet101", 200, 1, {178196640}},
        {"resnet152", 1, 129, {0}},
        {"resnet152", 25, 9, {0}},
        {"resnet152", 35, 7, {39698336, 37294080, 36806656, 38111232, 36800512, 37855232, 14205184}},
        {"resnet152", 50, 5, {56512416, 52817920, 52568064, 52574208, 26298624}},
        {"resnet152", 100, 3, {104861600, 105142272, 30767360}},
        {"resnet152", 200, 2, {210003872, 30767360}},
};
/* clang-format on */

static void check_reverse(const struct reverse_case *cases, size_t count, int64_t first_bytes)
{
    for (size_t c = 0; c < count; c++) {
        const struct reverse_case *expected = &cases[c];
        const int64_t cap_bytes = expected->cap_mib * MIB;
        const int64_t limits[] = {first_bytes == SAME_AS_CAP ? cap_bytes : first_bytes, cap_bytes};
        struct model_table table;
        struct dpb_unit_plan plan;
        int64_t sum = 0, expected_sum = 0;

        print_message("%s, cap %d MiB\n", expected->model, (int)expected->cap_mib);
        model_table_read(expected->model, &table);
        int *reverse = calloc((size_t)table.param_count, sizeof(int));
        assert_non_null(reverse);
        for (int i = 0; i < table.param_count; i++) {
            reverse[i] = table.param_count - 1 - i;
            expected_sum += table.params[i].numel * 4;
        }
        assert_int_equal(
                dpb_unit_plan_by_size(table.params, table.param_count, reverse, limits, 2, &plan),
                DPB_OK);
        assert_int_equal(plan.unit_count, expected->unit_count);
        for (int u = 0; u < plan.unit_count; u++) {
            if (expected->bytes[0])
                assert_int_equal(plan.units[u].bytes, expected->bytes[u]);
            sum += plan.units[u].bytes;
        }
        assert_int_equal(sum, expected_sum);
        dpb_unit_plan_release(&plan);
        free(reverse);
        model_table_release(&table);
    }
}

static void test_reverse_order_rule_a(void **state)
{
    (void)state;
    check_reverse(rule_a, sizeof(rule_a) / sizeof(rule_a[0]), MIB);
}

static void test_reverse_order_rule_b(void **state)
{
    (void)state;
    check_reverse(rule_b, sizeof(rule_b) / sizeof(rule_b[0]), SAME_AS_CAP);
}

static void test_known_totals(void **state)
{
    const struct {
        const char *model;
        int64_t elements;
        int tensors;
    } known[] = {
            {"resnet18", 11689512, 62},
            {"resnet50", 25557032, 161},
            {"resnet101", 44549160, 314},
            {"resnet152", 60192808, 467},
            {"bert_large_pretrain", 336226108, 398}, /* the tied embedding counts once */
    };

    (void)state;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        struct model_table table;

        model_table_read(known[i].model, &table);
        const struct dpb_model model = {.params = table.params, .param_count = table.param_count};

        assert_int_equal(table.param_count, known[i].tensors);
        assert_int_equal(dpb_model_param_elements(&model), known[i].elements);
        model_table_release(&table);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_rebuilt_buckets_of_pytorch),
            cmocka_unit_test(test_reverse_order_rule_a),
            cmocka_unit_test(test_reverse_order_rule_b),
            cmocka_unit_test(test_known_totals),
    };

    return DPB_RUN_TESTS(tests);
}

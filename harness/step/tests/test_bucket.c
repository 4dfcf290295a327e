/* The bucket rule and the layouts, on cases small enough to check by hand, and PyTorch's own. */
#include "dpb_test.h"

#include "dpb_bucket.h"
#include "dpb_json.h"
#include "dpb_log.h"
#include "dpb_rng.h"

#define CASE_TENSORS_MAX 16

static void swallow(void *ctx, enum dpb_log_level level, const char *line)
{
    (void)level;
    (void)line;
    ++*(int *)ctx;
}

static int int_at(const dpb_json *array, size_t i)
{
    return (int)dpb_json_as_int(dpb_json_at(array, i), -1);
}

static void replay_case(const dpb_json *test_case)
{
    const dpb_json *numel = dpb_json_get(test_case, "numel");
    const dpb_json *bytes = dpb_json_get(test_case, "dtype_bytes");
    const dpb_json *limits = dpb_json_get(test_case, "limits");
    const dpb_json *sparse = dpb_json_get(test_case, "expect_sparse");
    const dpb_json *labels = dpb_json_get(test_case, "tensor_indices");
    const dpb_json *expected = dpb_json_get(test_case, "expected");
    const dpb_json *expected_limits = dpb_json_get(test_case, "expected_limits");
    const size_t count = dpb_json_size(numel);
    int64_t numel_of[CASE_TENSORS_MAX], limit_of[CASE_TENSORS_MAX];
    enum dpb_dtype dtype_of[CASE_TENSORS_MAX];
    bool sparse_of[CASE_TENSORS_MAX];
    int label_of[CASE_TENSORS_MAX];
    struct dpb_bucket_assignment got;

    assert_true(count > 0 && count <= CASE_TENSORS_MAX);
    assert_true(dpb_json_size(limits) <= CASE_TENSORS_MAX);
    for (size_t i = 0; i < count; i++) {
        const int element_bytes = int_at(bytes, i);

        numel_of[i] = dpb_json_as_int(dpb_json_at(numel, i), -1);
        assert_true(element_bytes == 4 || element_bytes == 8);
        dtype_of[i] = element_bytes == 4 ? DPB_F32 : DPB_F64;
        sparse_of[i] = sparse && int_at(sparse, i) != 0;
        label_of[i] = labels ? int_at(labels, i) : -1;
    }
    for (size_t i = 0; i < dpb_json_size(limits); i++)
        limit_of[i] = dpb_json_as_int(dpb_json_at(limits, i), -1);

    const struct dpb_bucket_input input = {
            .numel = numel_of,
            .dtype = dtype_of,
            .count = (int)count,
            .limits_bytes = limit_of,
            .limit_count = (int)dpb_json_size(limits),
            .expect_sparse = sparse ? sparse_of : NULL,
            .labels = labels ? label_of : NULL,
    };
    assert_int_equal(dpb_bucket_assign(&input, &got), DPB_OK);
    assert_int_equal(got.bucket_count, dpb_json_size(expected));
    assert_int_equal(got.bucket_count, dpb_json_size(expected_limits));
    for (int b = 0; b < got.bucket_count; b++) {
        const dpb_json *members = dpb_json_at(expected, (size_t)b);

        assert_int_equal(got.first[b + 1] - got.first[b], dpb_json_size(members));
        for (size_t m = 0; m < dpb_json_size(members); m++)
            assert_int_equal(got.label[got.first[b] + (int)m], int_at(members, m));
        assert_int_equal(got.limit_bytes[b],
                         dpb_json_as_int(dpb_json_at(expected_limits, (size_t)b), -1));
    }
    dpb_bucket_assignment_release(&got);
}

static void test_pytorch_cases(void **state)
{
    dpb_json *file = NULL;
    dpb_json_walk walk = {0};
    const dpb_json *test_case;
    int cases = 0;

    (void)state;
    assert_int_equal(
            dpb_json_read_file(DPB_TEST_DATA "/ddp_compute_bucket_assignment_cases.json", &file),
            DPB_OK);
    while ((test_case = dpb_json_next(dpb_json_get(file, "cases"), &walk, NULL))) {
        print_message("case %s\n",
                      dpb_json_as_string(dpb_json_get(test_case, "name"), "(no name)"));
        replay_case(test_case);
        cases++;
    }
    assert_int_equal(cases, 12);
    dpb_json_free(file);
}

static void test_nothing_to_assign(void **state)
{
    const int64_t limit = 100;
    const struct dpb_bucket_input input = {.limits_bytes = &limit, .limit_count = 1};
    struct dpb_bucket_assignment got;

    (void)state;
    assert_int_equal(dpb_bucket_assign(&input, &got), DPB_OK);
    assert_int_equal(got.bucket_count, 0);
    assert_int_equal(got.first[0], 0);
    dpb_bucket_assignment_release(&got);
}

/* Leftovers of several types come in the order in which their buckets were opened. */
static void test_leftovers_keep_opening_order(void **state)
{
    const int64_t numel[] = {1, 1, 1, 1};
    const enum dpb_dtype dtype[] = {DPB_I64, DPB_F32, DPB_F64, DPB_F32};
    const int labels[] = {3, 2, 1, 0};
    const int64_t limit = INT64_MAX;
    const struct dpb_bucket_input input = {
            .numel = numel,
            .dtype = dtype,
            .count = 4,
            .limits_bytes = &limit,
            .limit_count = 1,
            .labels = labels,
    };
    const int expected_first[] = {0, 1, 3, 4}, expected_label[] = {3, 2, 0, 1};
    struct dpb_bucket_assignment got;

    (void)state;
    assert_int_equal(dpb_bucket_assign(&input, &got), DPB_OK);
    assert_int_equal(got.bucket_count, 3);
    assert_memory_equal(got.first, expected_first, sizeof(expected_first));
    assert_memory_equal(got.label, expected_label, sizeof(expected_label));
    dpb_bucket_assignment_release(&got);
}

static void test_bad_input_is_an_internal_error(void **state)
{
    const int64_t numel[] = {1, -1}, huge[] = {INT64_MAX / 4, INT64_MAX / 4}, limit = 100;
    const enum dpb_dtype dtype[] = {DPB_F32, DPB_F32};
    const int outside[] = {0, 2};
    struct dpb_bucket_input input = {
            .numel = numel, .dtype = dtype, .count = 1, .limits_bytes = &limit, .limit_count = 1};
    struct dpb_bucket_assignment got;
    int logged = 0;

    (void)state;
    dpb_log_set_sink(swallow, &logged);
    input.limit_count = 0;
    assert_int_equal(dpb_bucket_assign(&input, &got), DPB_ERR_INTERNAL);
    input.limit_count = 1;
    input.count = 2; /* negative numel */
    assert_int_equal(dpb_bucket_assign(&input, &got), DPB_ERR_INTERNAL);
    input.numel = huge; /* each fits in 64 bits of bytes, the sum does not */
    assert_int_equal(dpb_bucket_assign(&input, &got), DPB_ERR_INTERNAL);
    input.numel = (const int64_t[]){1, 1};
    input.labels = outside;
    assert_int_equal(dpb_bucket_assign(&input, &got), DPB_ERR_INTERNAL);
    assert_int_equal(logged, 4);
    dpb_log_set_sink(NULL, NULL);
}

/* ---- layouts ---- */

static struct dpb_param_info param(const char *name, int64_t numel, enum dpb_dtype dtype)
{
    return (struct dpb_param_info){
            .name = name, .dtype = dtype, .rank = 1, .dim = {numel}, .numel = numel};
}

static void test_members_are_packed_and_units_aligned(void **state)
{
    const struct dpb_param_info params[] = {param("a", 3, DPB_F32), param("b", 20, DPB_F32),
                                            param("c", 1, DPB_F32)};
    const int order[] = {2, 0, 1};
    const int64_t limits[] = {16, 1000};
    struct dpb_unit_plan plan;

    (void)state;
    assert_int_equal(dpb_unit_plan_by_size(params, 3, order, limits, 2, &plan), DPB_OK);
    assert_int_equal(plan.unit_count, 2); /* c + a reach 16 bytes exactly, then b */
    assert_int_equal(plan.units[0].bytes, 16);
    assert_int_equal(plan.units[0].elements, 4);
    assert_int_equal(plan.units[1].offset_bytes, 64);
    assert_int_equal(plan.units[1].bytes, 80);
    assert_int_equal(plan.offset_bytes[2], 0);
    assert_int_equal(plan.offset_bytes[0], 4);
    assert_int_equal(plan.offset_bytes[1], 64);
    assert_int_equal(plan.unit_of[0], 0);
    assert_int_equal(plan.unit_of[1], 1);
    assert_int_equal(plan.unit_of[2], 0);
    assert_int_equal(plan.arena_bytes, 192);
    assert_true(plan.arena_bytes <= dpb_unit_plan_arena_bound(params, 3));
    dpb_unit_plan_release(&plan);
}

static void test_per_param_and_fused(void **state)
{
    const struct dpb_param_info params[] = {param("a", 3, DPB_F32), param("b", 0, DPB_F32),
                                            param("c", 2, DPB_F64)};
    const int order[] = {1, 2, 0};
    struct dpb_unit_plan plan;

    (void)state;
    assert_int_equal(dpb_unit_plan_per_param(params, 3, NULL, &plan), DPB_OK);
    assert_int_equal(plan.unit_count, 3);
    for (int u = 0; u < 3; u++)
        assert_int_equal(plan.member[plan.units[u].first_member], 2 - u);
    dpb_unit_plan_release(&plan);

    assert_int_equal(dpb_unit_plan_per_param(params, 3, order, &plan), DPB_OK);
    assert_int_equal(plan.unit_count, 3);
    for (int u = 0; u < 3; u++)
        assert_int_equal(plan.member[plan.units[u].first_member], order[u]);
    dpb_unit_plan_release(&plan);

    assert_int_equal(dpb_unit_plan_fused(params, 3, NULL, &plan), DPB_OK);
    assert_int_equal(plan.unit_count, 2); /* one per type */
    assert_int_equal(plan.units[0].member_count, 2);
    assert_int_equal(plan.units[0].bytes, 12);
    assert_int_equal(plan.units[1].dtype, DPB_F64);
    assert_int_equal(plan.units[1].bytes, 16);
    dpb_unit_plan_release(&plan);

    assert_int_equal(dpb_unit_plan_fused(params, 0, NULL, &plan), DPB_OK);
    assert_int_equal(plan.unit_count, 0);
    assert_int_equal(plan.arena_bytes, 0);
    dpb_unit_plan_release(&plan);
}

static void test_wrong_assignments_are_internal_errors(void **state)
{
    const struct dpb_param_info params[] = {param("a", 3, DPB_F32), param("b", 1, DPB_F64)};
    int twice[] = {0, 0}, beyond[] = {0, 2}, both[] = {0, 1};
    int two_buckets[] = {0, 1, 2}, one_bucket[] = {0, 2}, too_few[] = {0, 1};
    const struct dpb_bucket_assignment bad[] = {
            {.bucket_count = 2, .first = two_buckets, .label = twice},
            {.bucket_count = 2, .first = two_buckets, .label = beyond},
            {.bucket_count = 1, .first = one_bucket, .label = both}, /* mixes types */
            {.bucket_count = 1, .first = too_few, .label = both},
    };
    const int bad_order[] = {0, -1};
    const int64_t limit = 1;
    struct dpb_unit_plan plan;
    int logged = 0;

    (void)state;
    dpb_log_set_sink(swallow, &logged);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(dpb_unit_plan_from_buckets(params, 2, &bad[i], &plan), DPB_ERR_INTERNAL);
    assert_int_equal(dpb_unit_plan_by_size(params, 2, bad_order, &limit, 1, &plan),
                     DPB_ERR_INTERNAL);
    assert_int_equal(logged, 5);
    dpb_log_set_sink(NULL, NULL);
}

/* More than 2^31 elements and bytes: everything stays 64-bit. */
static void test_sizes_beyond_32_bits(void **state)
{
    const int64_t big = INT64_C(3) << 31;
    const struct dpb_param_info params[] = {param("a", big, DPB_F32), param("b", 5, DPB_F32),
                                            param("c", big + 1, DPB_F32)};
    const int64_t limit = big * 4 + 1; /* one byte above a: b closes the unit */
    const int order[] = {0, 1, 2};
    struct dpb_unit_plan plan;

    (void)state;
    assert_int_equal(dpb_unit_plan_by_size(params, 3, order, &limit, 1, &plan), DPB_OK);
    assert_int_equal(plan.unit_count, 2);
    assert_int_equal(plan.units[0].elements, big + 5);
    assert_int_equal(plan.units[0].bytes, big * 4 + 20);
    assert_int_equal(plan.offset_bytes[1], big * 4);
    assert_int_equal(plan.units[1].offset_bytes, big * 4 + 64);
    assert_int_equal(plan.units[1].bytes, big * 4 + 4);
    assert_int_equal(plan.arena_bytes, big * 8 + 128);
    assert_int_equal(dpb_unit_plan_arena_bound(params, 3), big * 8 + 128);
    dpb_unit_plan_release(&plan);
}

/* Random parameter lists: what holds for every plan. */
static void test_properties(void **state)
{
    struct dpb_param_info params[40];
    int order[40];
    struct dpb_rng rng;

    (void)state;
    dpb_rng_init(&rng, 20261201, 1);
    for (int round = 0; round < 300; round++) {
        const int count = 1 + (int)dpb_rng_below(&rng, 40);
        const int64_t limits[] = {1 + (int64_t)dpb_rng_below(&rng, 300),
                                  1 + (int64_t)dpb_rng_below(&rng, 3000)};
        struct dpb_unit_plan plan;
        int seen[40] = {0}, position = 0, unit_with_limit[2] = {0};
        int64_t bytes = 0, expected_bytes = 0;

        for (int p = 0; p < count; p++) {
            params[p] = param("p", (int64_t)dpb_rng_below(&rng, 200), DPB_F32);
            expected_bytes += params[p].numel * 4;
            order[p] = p;
        }
        for (int p = count - 1; p > 0; p--) {
            const int q = (int)dpb_rng_below(&rng, (uint64_t)p + 1), kept = order[p];

            order[p] = order[q];
            order[q] = kept;
        }

        assert_int_equal(dpb_unit_plan_by_size(params, count, order, limits, 2, &plan), DPB_OK);
        for (int u = 0; u < plan.unit_count; u++) {
            const struct dpb_unit *unit = &plan.units[u];
            const int64_t limit = limits[u > 0];
            const int last = plan.member[unit->first_member + unit->member_count - 1];
            int64_t offset = unit->offset_bytes;

            assert_int_equal(unit->offset_bytes % 64, 0);
            assert_true(unit->member_count > 0);
            /* Without its last member a unit is below its limit; with it, at or above it, except
             * the last unit. */
            assert_true(unit->bytes - params[last].numel * 4 < limit);
            assert_true(unit->bytes >= limit || u == plan.unit_count - 1);
            unit_with_limit[u > 0]++;
            for (int m = 0; m < unit->member_count; m++) {
                const int p = plan.member[unit->first_member + m];

                assert_int_equal(p, order[position++]);
                assert_int_equal(plan.unit_of[p], u);
                assert_int_equal(plan.offset_bytes[p], offset);
                offset += params[p].numel * 4;
                seen[p]++;
            }
            assert_int_equal(offset, unit->offset_bytes + unit->bytes);
            assert_true(u + 1 == plan.unit_count || offset <= unit[1].offset_bytes);
            bytes += unit->bytes;
        }
        assert_int_equal(unit_with_limit[0], 1);
        assert_int_equal(position, count);
        assert_int_equal(bytes, expected_bytes);
        for (int p = 0; p < count; p++)
            assert_int_equal(seen[p], 1);
        assert_true(plan.arena_bytes <= dpb_unit_plan_arena_bound(params, count));
        dpb_unit_plan_release(&plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_pytorch_cases),
            cmocka_unit_test(test_nothing_to_assign),
            cmocka_unit_test(test_leftovers_keep_opening_order),
            cmocka_unit_test(test_bad_input_is_an_internal_error),
            cmocka_unit_test(test_members_are_packed_and_units_aligned),
            cmocka_unit_test(test_per_param_and_fused),
            cmocka_unit_test(test_wrong_assignments_are_internal_errors),
            cmocka_unit_test(test_sizes_beyond_32_bits),
            cmocka_unit_test(test_properties),
    };

    return DPB_RUN_TESTS(tests);
}

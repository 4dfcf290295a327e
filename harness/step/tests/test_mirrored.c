/* `mirrored` and `mwms`: TensorFlow's packing rules, what is asked for and when, and the result on
 * real ranks. */
#include "dpb_test.h"

#include "../strategies/mirrored_packs.h"
#include "dpb_strategies.h"
#include "strategy_log.h"
#include "strategy_ranks.h"

#define NUMBERS_MAX 64

/* ---- the rules ---- */

static dpb_json *read_cases(void)
{
    dpb_json *file = NULL;

    assert_int_equal(dpb_json_read_file(DPB_TEST_DATA "/tf_packing_cases.json", &file), DPB_OK);
    return file;
}

static void test_group_by_size(void **state)
{
    dpb_json *file = read_cases();
    const dpb_json *cases = dpb_json_get(file, "group_by_size");

    (void)state;
    assert_int_equal(dpb_json_size(cases), 4);
    for (size_t c = 0; c < dpb_json_size(cases); c++) {
        const dpb_json *one = dpb_json_at(cases, c);
        const dpb_json *sizes = dpb_json_get(one, "sizes_bytes");
        const dpb_json *expected = dpb_json_get(one, "expected");
        const int count = (int)dpb_json_size(sizes);
        int64_t bytes[NUMBERS_MAX];
        int first[NUMBERS_MAX + 1];

        for (int i = 0; i < count; i++)
            bytes[i] = dpb_json_as_int(dpb_json_at(sizes, (size_t)i), -1);
        const int packs = mwms_group_by_size(
                bytes, count, dpb_json_as_int(dpb_json_get(one, "bytes_per_pack"), -1), first);

        assert_int_equal(packs, dpb_json_size(expected));
        assert_int_equal(first[packs], count);
        for (int p = 0; p < packs; p++) {
            const dpb_json *pack = dpb_json_at(expected, (size_t)p);

            assert_int_equal(first[p + 1] - first[p], dpb_json_size(pack));
            assert_int_equal(first[p], dpb_json_as_int(dpb_json_at(pack, 0), -1));
        }
    }
    dpb_json_free(file);
}

static void test_pack_elements(void **state)
{
    dpb_json *file = read_cases();
    const dpb_json *cases = dpb_json_get(file, "num_packs_split");

    (void)state;
    assert_int_equal(dpb_json_size(cases), 5);
    for (size_t c = 0; c < dpb_json_size(cases); c++) {
        const dpb_json *one = dpb_json_at(cases, c);
        const int64_t total = dpb_json_as_int(dpb_json_get(one, "total_elems"), -1);
        const int64_t packs = dpb_json_as_int(dpb_json_get(one, "num_packs"), -1);
        int64_t next = 0;

        assert_int_equal(packs, dpb_json_size(dpb_json_get(one, "expected")));
        for (int64_t p = 0; p < packs; p++) {
            int64_t first;
            const int64_t count = mirrored_pack_elements(total, packs, p, &first);

            assert_int_equal(first, next);
            assert_int_equal(
                    count,
                    dpb_json_as_int(dpb_json_at(dpb_json_get(one, "expected"), (size_t)p), -1));
            next += count;
        }
        assert_int_equal(next, total);
    }
    dpb_json_free(file);
}

static void test_main_devices(void **state)
{
    dpb_json *file = read_cases();
    const dpb_json *cases =
            dpb_json_get(dpb_json_get(file, "hierarchical_copy_main_devices"), "cases");

    (void)state;
    assert_int_equal(dpb_json_size(cases), 8);
    for (size_t c = 0; c < dpb_json_size(cases); c++) {
        const dpb_json *one = dpb_json_at(cases, c);
        int main_device[2];

        mirrored_main_devices(dpb_json_as_int(dpb_json_get(one, "pack"), -1),
                              (int)dpb_json_as_int(dpb_json_get(one, "n_devices"), -1),
                              main_device);
        assert_int_equal(main_device[0], dpb_json_as_int(dpb_json_get(one, "main0"), -1));
        assert_int_equal(main_device[1], dpb_json_as_int(dpb_json_get(one, "main1"), -1));
    }
    dpb_json_free(file);
}

/* The mains of a pack are always in different groups, also where there is an odd number. */
static void test_main_devices_are_in_two_groups(void **state)
{
    (void)state;
    for (int devices = 2; devices <= 17; devices++) {
        for (int pack = 0; pack < 2 * devices; pack++) {
            int main_device[2];

            mirrored_main_devices(pack, devices, main_device);
            assert_int_equal(main_device[0], pack % devices);
            assert_in_range(main_device[1], 0, devices - 1);
            assert_int_not_equal(main_device[0] < devices / 2, main_device[1] < devices / 2);
        }
    }
}

static void test_runs_of_neighbours(void **state)
{
    dpb_json *file = read_cases();
    const dpb_json *cases =
            dpb_json_get(dpb_json_get(file, "tf_cnn_benchmarks_extract_ranges"), "cases");

    (void)state;
    assert_int_equal(dpb_json_size(cases), 5);
    for (size_t c = 0; c < dpb_json_size(cases); c++) {
        const dpb_json *one = dpb_json_at(cases, c);
        const dpb_json *input = dpb_json_get(one, "input"), *ranges = dpb_json_get(one, "ranges");
        const int count = (int)dpb_json_size(input);
        int number[NUMBERS_MAX], run_of[NUMBERS_MAX];
        size_t singles = 0;

        for (int i = 0; i < count; i++)
            number[i] = (int)dpb_json_as_int(dpb_json_at(input, (size_t)i), -1);
        assert_int_equal(mirrored_extract_runs(number, count, 32, run_of), dpb_json_size(ranges));
        for (int i = 0; i < count; i++) {
            if (run_of[i] < 0) {
                const dpb_json *single = dpb_json_at(dpb_json_get(one, "singles"), singles++);

                assert_int_equal(number[i], dpb_json_as_int(single, -1));
                continue;
            }
            const dpb_json *range = dpb_json_at(ranges, (size_t)run_of[i]);

            assert_in_range(number[i], dpb_json_as_int(dpb_json_at(range, 0), -1),
                            dpb_json_as_int(dpb_json_at(range, 1), -1));
        }
        assert_int_equal(singles, dpb_json_size(dpb_json_get(one, "singles")));
    }
    dpb_json_free(file);
}

/* A run may end one number behind its extent, since it is looked at before it grows. */
static void test_extent_of_runs(void **state)
{
    static const int number[] = {0, 1, 2, 3, 4, 5, 6};
    static const int expected[] = {0, 0, 0, 0, 1, 1, 1};
    int run_of[7];

    (void)state;
    assert_int_equal(mirrored_extract_runs(number, 7, 2, run_of), 2);
    assert_memory_equal(run_of, expected, sizeof(expected));
    assert_int_equal(mirrored_extract_runs(number, 0, 2, run_of), 0);
}

/* pack_small_tensors: tensors of 4, 4, 9 and 9 elements. */
static void test_small_tensors(void **state)
{
    static const struct dpb_param_info params[] = {
            {.name = "t0", .dtype = DPB_F32, .rank = 1, .dim = {4}, .numel = 4},
            {.name = "t1", .dtype = DPB_F32, .rank = 1, .dim = {4}, .numel = 4},
            {.name = "t2", .dtype = DPB_F32, .rank = 2, .dim = {3, 3}, .numel = 9},
            {.name = "t3", .dtype = DPB_F32, .rank = 2, .dim = {3, 3}, .numel = 9},
    };
    static const struct dpb_model model = {.params = params, .param_count = 4};
    dpb_json *file = read_cases();
    const dpb_json *cases =
            dpb_json_get(dpb_json_get(file, "tf_cnn_benchmarks_pack_small_tensors"), "cases");

    (void)state;
    assert_int_equal(dpb_json_size(cases), 3);
    for (size_t c = 0; c < dpb_json_size(cases); c++) {
        const dpb_json *one = dpb_json_at(cases, c);
        const struct dpb_mirrored_options options = {
                .cross_device_ops = DPB_CROSS_DEVICE_NCCL,
                .small_bytes = dpb_json_as_int(dpb_json_get(one, "max_bytes"), -1),
                .small_extent = dpb_json_as_int(dpb_json_get(one, "max_group"), -1),
        };
        const struct dpb_strategy_config config = {
                .world_size = 2, .ranks_per_node = 2, .options = &options};
        const int64_t packed = dpb_json_as_int(dpb_json_get(one, "packed_elems"), 0);
        struct dpb_unit_plan plan;
        dpb_strategy *strategy;
        int64_t largest_group = 0;

        assert_int_equal(dpb_strategy_mirrored_ops.open(&config, &strategy), DPB_OK);
        assert_int_equal(dpb_strategy_mirrored_ops.plan(strategy, &model, NULL, &plan), DPB_OK);
        for (int u = 0; u < plan.unit_count; u++)
            if (plan.units[u].member_count > 1)
                largest_group = plan.units[u].elements;
        assert_int_equal(largest_group, packed);
        assert_int_equal(plan.unit_count, packed == 0 ? 4 : packed == 8 ? 3 : 1);
        dpb_strategy_mirrored_ops.close(strategy);
        dpb_unit_plan_release(&plan);
    }
    dpb_json_free(file);
}

/* ---- what is asked for, and when ---- */

static const struct dpb_mirrored_options
        nccl = {DPB_CROSS_DEVICE_NCCL, 1, 0, 0},
        nccl_in_five = {DPB_CROSS_DEVICE_NCCL, 5, 0, 0},
        nccl_in_thirty = {DPB_CROSS_DEVICE_NCCL, 30, 0, 0},
        nccl_unpacked = {DPB_CROSS_DEVICE_NCCL, 0, 0, 0},
        hierarchical = {DPB_CROSS_DEVICE_HIERARCHICAL_COPY, 3, 0, 0},
        hierarchical_unpacked = {DPB_CROSS_DEVICE_HIERARCHICAL_COPY, 0, 0, 0},
        one_device = {DPB_CROSS_DEVICE_ONE_DEVICE, 1, 0, 0},
        by_device = {DPB_CROSS_DEVICE_AUTO, 1, 0, 0}, small_16 = {DPB_CROSS_DEVICE_NCCL, 0, 16, 10},
        small_32 = {DPB_CROSS_DEVICE_NCCL, 0, 32, 1};
static const struct dpb_mwms_options one_pack = {0}, small_packs = {31}, large_packs = {32};

static const struct {
    const struct dpb_strategy_ops *ops;
    const void *options;
    const char *step; /* on two ranks */
    int64_t shared_bytes;
} steps[] = {
        /* Everything waits for the last gradient, and makes two passes more. */
        {&dpb_strategy_mirrored_ops, &nccl, "| d c b a | concat all-reduce0.24 wait1 split | |",
         128},
        /* Cuts go through tensors, and the last pack has the rest. */
        {&dpb_strategy_mirrored_ops, &nccl_in_five,
         "| d c b a | concat all-reduce0.4 all-reduce0.4 all-reduce0.4 all-reduce0.4 all-reduce0.8 "
         "wait1 wait2 wait3 wait4 wait5 split | |",
         128},
        /* 29 packs of nothing, and one of everything. */
        {&dpb_strategy_mirrored_ops, &nccl_in_thirty,
         "| d c b a | concat all-reduce0.24 wait1 split | |", 128},
        {&dpb_strategy_mirrored_ops, &nccl_unpacked,
         "| d all-reduce0.4 c all-reduce1.8 b all-reduce2.8 a all-reduce3.4 | "
         "wait1 wait2 wait3 wait4 | |",
         0},
        {&dpb_strategy_mirrored_ops, &hierarchical,
         "| d c b a | concat reduce0.8 ~broadcast0.8 reduce0.8@1 ~broadcast0.8@1 reduce0.8 "
         "~broadcast0.8 wait1 wait2 wait3 wait4 wait5 wait6 split | |",
         128},
        /* The main device goes by the place of the variable: a 0, b 1, c 2, d 3. */
        {&dpb_strategy_mirrored_ops, &hierarchical_unpacked,
         "| d reduce0.4@1 ~broadcast0.4@1 c reduce1.8 ~broadcast1.8 b reduce2.8@1 "
         "~broadcast2.8@1 a reduce3.4 ~broadcast3.4 | "
         "wait1 wait2 wait3 wait4 wait5 wait6 wait7 wait8 | |",
         0},
        {&dpb_strategy_mirrored_ops, &one_device,
         "| d reduce0.4 ~broadcast0.4 c reduce1.8 ~broadcast1.8 b reduce2.8 ~broadcast2.8 a "
         "reduce3.4 ~broadcast3.4 | wait1 wait2 wait3 wait4 wait5 wait6 wait7 wait8 | |",
         0},
        /* a and d have 16 bytes, but are no neighbours. */
        {&dpb_strategy_mirrored_ops, &small_16,
         "| d all-reduce0.4 c all-reduce1.8 b all-reduce2.8 a all-reduce3.4 | "
         "wait1 wait2 wait3 wait4 | |",
         0},
        /* a b c, since c is looked at when b is one behind a; d is left. */
        {&dpb_strategy_mirrored_ops, &small_32,
         "| d all-reduce0.4 c b a concat all-reduce1.20 | wait1 wait2 split | |", 128},
        {&dpb_strategy_mwms_ops, &one_pack, "| d c b a | concat all-reduce0.24 wait1 split | |",
         128},
        /* d has 16 bytes, c 32, b 32, a 16: a pack is closed when it is larger than the limit. */
        {&dpb_strategy_mwms_ops, &small_packs,
         "| d c concat all-reduce0.12 b concat all-reduce1.8 a concat all-reduce2.4 | "
         "wait1 wait2 wait3 split split split | |",
         192},
        {&dpb_strategy_mwms_ops, &large_packs,
         "| d c concat all-reduce0.12 b a concat all-reduce1.12 | wait1 wait2 split split | |",
         128},
};
#define STEP_COUNT (sizeof(steps) / sizeof(steps[0]))

static void test_steps(void **state)
{
    (void)state;
    for (size_t s = 0; s < STEP_COUNT; s++) {
        struct dpb_strategy_memory memory = {.parameters_bytes = -1};
        struct strategy_log log;

        strategy_log_open(&log, steps[s].ops, steps[s].options, 0, 2);
        for (int step = 0; step < 2; step++) {
            assert_int_equal(strategy_log_step(&log, log_reverse_order), DPB_OK);
            assert_string_equal(log.text.text, steps[s].step);
        }
        assert_int_equal(log.shared_bytes, steps[s].shared_bytes);
        steps[s].ops->memory(log.strategy, &memory);
        assert_int_equal(memory.shared_bytes, steps[s].shared_bytes);
        assert_int_equal(memory.parameters_bytes, -1);
        strategy_log_close(&log);
    }
}

/* All ranks start the same collectives in the same order, whatever is ready first. */
static void test_other_order(void **state)
{
    static const int order[LOG_PARAMS] = {0, 2, 3, 1};
    struct strategy_log log;

    (void)state;
    strategy_log_open(&log, &dpb_strategy_mwms_ops, &small_packs, 0, 2);
    assert_int_equal(strategy_log_step(&log, order), DPB_OK);
    assert_string_equal(log.text.text,
                        "| a c d concat all-reduce0.12 b concat all-reduce1.8 concat all-reduce2.4 "
                        "| wait1 wait2 wait3 split split split | |");
    strategy_log_close(&log);

    strategy_log_open(&log, &dpb_strategy_mirrored_ops, &nccl_unpacked, 0, 2);
    assert_int_equal(strategy_log_step(&log, order), DPB_OK);
    assert_string_equal(log.text.text,
                        "| a c d all-reduce0.4 all-reduce1.8 b all-reduce2.8 all-reduce3.4 | "
                        "wait1 wait2 wait3 wait4 | |");
    strategy_log_close(&log);
}

static void test_one_rank_does_nothing(void **state)
{
    (void)state;
    for (size_t s = 0; s < STEP_COUNT; s++) {
        struct strategy_log log;

        strategy_log_open(&log, steps[s].ops, steps[s].options, 0, 1);
        assert_int_equal(strategy_log_step(&log, log_reverse_order), DPB_OK);
        assert_string_equal(log.text.text, "| d c b a | | |");
        assert_int_equal(log.shared_allocs, 0);
        assert_int_equal(log.ops->messages(log.strategy, NULL), 0);
        strategy_log_close(&log);
    }
}

/* The messages are what a step starts. */
static void test_messages(void **state)
{
    (void)state;
    for (size_t s = 0; s < STEP_COUNT; s++) {
        struct dpb_sync_message message[LOG_PARAMS * 2];
        struct dpb_str expected = {0};
        struct strategy_log log;
        int count;

        strategy_log_open(&log, steps[s].ops, steps[s].options, 0, 2);
        assert_int_equal(strategy_log_step(&log, log_reverse_order), DPB_OK);
        count = log.ops->messages(log.strategy, NULL);
        assert_int_equal(count, log.started);
        assert_in_range(count, 1, LOG_PARAMS * 2);
        assert_int_equal(log.ops->messages(log.strategy, message), count);
        const char *at = log.text.text;
        for (int m = 0; m < count; m++) {
            dpb_str_release(&expected);
            dpb_str_appendf(&expected, "%s%d.%d", dpb_coll_text(message[m].kind), message[m].unit,
                            (int)message[m].count);
            if (message[m].root > 0)
                dpb_str_appendf(&expected, "@%d", message[m].root);
            dpb_str_append(&expected, " ");
            at = strstr(at, expected.text);
            assert_non_null(at);
            at += expected.length;
            assert_int_equal(message[m].when, strstr(log.text.text, "| concat")
                                                      ? DPB_SYNC_AFTER_BACKWARD
                                                      : DPB_SYNC_GRADIENT);
        }
        dpb_str_release(&expected);
        strategy_log_close(&log);
    }
}

static void test_failures_and_misuse(void **state)
{
    static const int twice[LOG_PARAMS] = {3, 2, 2, 0};

    (void)state;
    for (size_t s = 0; s < STEP_COUNT; s++) {
        struct strategy_log log;

        strategy_log_open(&log, steps[s].ops, steps[s].options, 0, 2);
        log.fail_start = 1;
        assert_int_equal(strategy_log_step(&log, log_reverse_order), DPB_ERR_RANK_FAILED);
        log.fail_start = 0;
        log.fail_wait = 1;
        assert_int_equal(strategy_log_step(&log, log_reverse_order), DPB_ERR_TIMEOUT);
        assert_int_equal(strategy_log_step(&log, twice), DPB_ERR_INTERNAL);
        assert_int_equal(log.errors, 1);
        strategy_log_close(&log);
    }
}

/* ---- what is chosen ---- */

static const char *chosen(bool is_gpu, char *text, size_t text_bytes)
{
    const struct dpb_strategy_config config = {
            .world_size = 2, .ranks_per_node = 2, .options = &by_device, .is_gpu = is_gpu};
    struct dpb_unit_plan made;
    dpb_json *plan = dpb_json_object();
    dpb_strategy *strategy;

    assert_int_equal(dpb_strategy_mirrored_ops.open(&config, &strategy), DPB_OK);
    assert_int_equal(dpb_strategy_mirrored_ops.plan(strategy, &log_model, NULL, &made), DPB_OK);
    dpb_strategy_mirrored_ops.describe(strategy, plan);
    snprintf(text, text_bytes, "%s, %d packs",
             dpb_json_as_string(dpb_json_get(plan, "cross_device_ops"), ""),
             (int)dpb_json_as_int(dpb_json_get(plan, "num_packs"), -1));
    dpb_json_free(plan);
    dpb_strategy_mirrored_ops.close(strategy);
    dpb_unit_plan_release(&made);
    return text;
}

static void test_selection(void **state)
{
    char text[64];

    (void)state;
    assert_string_equal(chosen(false, text, sizeof(text)), "one-device, 0 packs");
    assert_string_equal(chosen(true, text, sizeof(text)), "nccl, 1 packs");
}

static void test_bad_options(void **state)
{
    static const struct dpb_mirrored_options negative = {DPB_CROSS_DEVICE_NCCL, -1, 0, 0},
                                             many = {DPB_CROSS_DEVICE_NCCL, 65537, 0, 0},
                                             packs_for_one = {DPB_CROSS_DEVICE_ONE_DEVICE, 2, 0, 0},
                                             packs_for_auto = {DPB_CROSS_DEVICE_AUTO, 2, 0, 0},
                                             negative_small = {DPB_CROSS_DEVICE_NCCL, 0, -1, 1},
                                             packs_twice = {DPB_CROSS_DEVICE_NCCL, 1, 16, 1};
    static const struct dpb_mwms_options no_size = {-1};
    const struct {
        const struct dpb_strategy_ops *ops;
        const void *options;
        const char *why;
    } bad[] = {
            {&dpb_strategy_mirrored_ops, NULL, "--num-packs must be"},
            {&dpb_strategy_mirrored_ops, &negative, "--num-packs must be"},
            {&dpb_strategy_mirrored_ops, &many, "--num-packs must be"},
            {&dpb_strategy_mirrored_ops, &packs_for_one, "one-device packs no gradients"},
            {&dpb_strategy_mirrored_ops, &packs_for_auto, "auto, which is one-device"},
            {&dpb_strategy_mirrored_ops, &negative_small, "must be 0 or more"},
            {&dpb_strategy_mirrored_ops, &packs_twice, "which packs all gradients"},
            {&dpb_strategy_mwms_ops, NULL, "--bytes-per-pack must be"},
            {&dpb_strategy_mwms_ops, &no_size, "--bytes-per-pack must be"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct dpb_str errors = {0};

        assert_int_equal(strategy_log_try(bad[i].ops, bad[i].options, false, true, &errors),
                         DPB_ERR_USAGE);
        if (!strstr(errors.text, bad[i].why))
            fail_msg("\"%s\" is not in \"%s\"", bad[i].why, errors.text);
        dpb_str_release(&errors);
    }
    struct dpb_str none = {0};
    assert_int_equal(
            strategy_log_try(&dpb_strategy_mirrored_ops, &packs_for_auto, true, true, &none),
            DPB_OK);
    assert_null(none.text);
    assert_int_equal(dpb_strategy_ops_check(&dpb_strategy_mirrored_ops), DPB_OK);
    assert_int_equal(dpb_strategy_ops_check(&dpb_strategy_mwms_ops), DPB_OK);
}

/* ---- real ranks ---- */

static void test_ranks(void **state)
{
    (void)state;
    for (size_t s = 0; s < STEP_COUNT; s++) {
        print_message("%s, options %zu\n", steps[s].ops->name, s);
        strategy_expect_none(steps[s].ops, steps[s].options);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_group_by_size),
            cmocka_unit_test(test_pack_elements),
            cmocka_unit_test(test_main_devices),
            cmocka_unit_test(test_main_devices_are_in_two_groups),
            cmocka_unit_test(test_runs_of_neighbours),
            cmocka_unit_test(test_extent_of_runs),
            cmocka_unit_test(test_small_tensors),
            cmocka_unit_test(test_steps),
            cmocka_unit_test(test_other_order),
            cmocka_unit_test(test_one_rank_does_nothing),
            cmocka_unit_test(test_messages),
            cmocka_unit_test(test_failures_and_misuse),
            cmocka_unit_test(test_selection),
            cmocka_unit_test(test_bad_options),
            cmocka_unit_test(test_ranks),
    };

    return DPB_RUN_TESTS(tests);
}

/* `zero2`: buckets that share places, what a rank keeps, and the result on real ranks. */
#include "dpb_test.h"

#include "dpb_log.h"
#include "dpb_strategies.h"
#include "dpb_str.h"
#include "strategy_ranks.h"

#define TINY_ELEMENTS (48 + 3 + 1003 + 1 + 47)

/* Bytes: a bucket per layer of tiny, or all in one. */
static const struct dpb_zero2_options layers = {.bucket_bytes = 64,
                                                .gather_bucket_bytes = DPB_AUTO},
                                      layers_in_turn = {.bucket_bytes = 64,
                                                        .gather_bucket_bytes = DPB_AUTO,
                                                        .overlap = DPB_ZERO2_OVERLAP_OFF},
                                      one_bucket = {.bucket_bytes = DPB_AUTO,
                                                    .gather_bucket_bytes = DPB_AUTO},
                                      deepspeed = {.variant = DPB_ZERO2_DEEPSPEED,
                                                   .bucket_bytes = DPB_AUTO,
                                                   .gather_bucket_bytes = DPB_AUTO},
                                      deepspeed_small = {.variant = DPB_ZERO2_DEEPSPEED,
                                                         .bucket_bytes = 300,
                                                         .gather_bucket_bytes = 1000},
                                      deepspeed_overlap = {.variant = DPB_ZERO2_DEEPSPEED,
                                                           .bucket_bytes = 300,
                                                           .gather_bucket_bytes = 4,
                                                           .overlap = DPB_ZERO2_OVERLAP_ON};

static const struct dpb_zero2_options *const all_options[] = {
        &layers, &layers_in_turn, &one_bucket, &deepspeed, &deepspeed_small, &deepspeed_overlap};
#define OPTION_COUNT (sizeof(all_options) / sizeof(all_options[0]))

static void expect_none(int ranks, const struct dpb_zero2_options *options, int64_t accumulate,
                        bool tied, enum dpb_optimizer_kind optimizer)
{
    struct strategy_run *run = strategy_run_new(ranks, &dpb_strategy_zero2_ops, options);

    run->accumulate = accumulate;
    run->tied = tied;
    if (optimizer != DPB_OPTIMIZER_SGD)
        run->optimizer = (struct dpb_optimizer_config){
                .kind = optimizer, .lr = 0.25, .beta1 = 0.5, .beta2 = 0.75, .eps = 1e-8};
    strategy_run_expect_none(run);
    strategy_run_free(run);
}

static void test_same_bits_as_none(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= STRATEGY_RANKS_MAX; ranks++)
        for (size_t o = 0; o < OPTION_COUNT; o++)
            expect_none(ranks, all_options[o], 1, false, DPB_OPTIMIZER_SGD);
}

static void test_micro_batches_add_up(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 3; ranks++)
        for (size_t o = 0; o < OPTION_COUNT; o++)
            expect_none(ranks, all_options[o], 2, false, DPB_OPTIMIZER_SGD);
}

/* Its gradient is begun before any other and complete after all: its place is its own. */
static void test_shared_parameter_keeps_its_place(void **state)
{
    (void)state;
    for (size_t o = 0; o < OPTION_COUNT; o++)
        expect_none(2, all_options[o], 1, true, DPB_OPTIMIZER_SGD);
}

static void test_state_of_adam_is_in_parts(void **state)
{
    (void)state;
    expect_none(3, &layers, 1, false, DPB_OPTIMIZER_ADAMW);
    expect_none(3, &deepspeed_small, 1, false, DPB_OPTIMIZER_ADAMW);
}

static void test_rank_without_samples(void **state)
{
    static const int64_t share[] = {7, 0, 5};
    struct strategy_run *run = strategy_run_new(3, &dpb_strategy_zero2_ops, &layers);

    (void)state;
    memcpy(run->share, share, sizeof(share));
    strategy_run_expect_none(run);
    strategy_run_free(run);
}

/* ---- memory ---- */

/* Layers from the last: 188, 4016 and 204 bytes; in places 256 and 4032, or one of 4032. */
static void test_memory_of_gradients(void **state)
{
    static const struct {
        const struct dpb_zero2_options *options;
        int64_t places_bytes;
        bool tied;
    } cases[] = {
            {&layers, 256 + 4032, false},      {&layers_in_turn, 4032, false},
            {&layers, 192 + 4032 + 256, true}, {&one_bucket, 4416, false},
            {&deepspeed_small, 4032, false}, /* {out}, {mid}, {in}; chunks of 280 elements */
    };

    (void)state;
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        struct strategy_run *run = strategy_run_new(4, &dpb_strategy_zero2_ops, cases[c].options);
        int64_t kept = 0;

        run->tied = cases[c].tied;
        strategy_run_expect_none(run);
        for (int r = 0; r < run->ranks; r++) {
            const struct strategy_report *report = &run->report[r];

            assert_int_equal(report->gradient_bytes, cases[c].places_bytes);
            assert_int_equal(report->communication_bytes, 0);
            /* a quarter of everything, up to a shard of each bucket */
            assert_in_range(report->strategy_bytes, TINY_ELEMENTS - 20, TINY_ELEMENTS + 20);
            kept += report->strategy_bytes;
        }
        assert_int_equal(kept, TINY_ELEMENTS * (int64_t)sizeof(float));
        strategy_run_free(run);
    }
}

/* ---- DeepSpeed's chunks ---- */

static void open_strategy(const struct dpb_zero2_options *options, int ranks,
                          dpb_strategy **strategy, struct dpb_unit_plan *plan)
{
    static const struct dpb_optimizer_config sgd = {.kind = DPB_OPTIMIZER_SGD, .lr = 0.25};
    static const struct tiny_options sound = {0};
    const struct dpb_step_shape shape = {
            .model = tiny_workload_ops.model(&sound),
            .optimizer = &sgd,
            .strategy = &dpb_strategy_zero2_ops,
            .strategy_options = options,
            .ranks = ranks,
            .accumulate = 1,
    };

    assert_int_equal(dpb_step_plan_offline(&shape, 0, NULL, strategy, plan), DPB_OK);
}

static void expect_messages(const struct dpb_zero2_options *options, int ranks,
                            const int64_t *counts, int count, enum dpb_coll_kind reduction)
{
    struct dpb_sync_message message[300];
    struct dpb_unit_plan plan;
    dpb_strategy *strategy;

    open_strategy(options, ranks, &strategy, &plan);
    assert_int_equal(dpb_strategy_zero2_ops.messages(strategy, NULL), count);
    dpb_strategy_zero2_ops.messages(strategy, message);
    for (int m = 0; m < count; m++) {
        const bool is_reduction = m < plan.unit_count;

        assert_int_equal(message[m].count, counts[m]);
        assert_int_equal(message[m].kind, is_reduction ? reduction : DPB_COLL_ALL_GATHER);
        assert_int_equal(message[m].when,
                         is_reduction ? DPB_SYNC_GRADIENT : DPB_SYNC_AFTER_OPTIMIZER);
    }
    dpb_strategy_zero2_ops.close(strategy);
    dpb_unit_plan_release(&plan);
}

/* 1102 elements are 1104 with 2 or 4 ranks: 276 for each of four. A limit of 250 elements of all
 * ranks makes 4 chunks of 69 elements of each; 300 bytes make buckets of 47, 1004 and 51. */
static void test_messages(void **state)
{
    static const struct dpb_zero2_options chunks = {
            .variant = DPB_ZERO2_DEEPSPEED, .bucket_bytes = 300, .gather_bucket_bytes = 1000};
    static const int64_t canonical[] = {47, 1004, 51, 47, 1004, 51}, whole[] = {1102, 1104},
                         split[] = {47, 1004, 51, 276, 276, 276, 276};

    (void)state;
    expect_messages(&layers, 4, canonical, 6, DPB_COLL_REDUCE_SCATTER);
    expect_messages(&deepspeed, 4, whole, 2, DPB_COLL_ALL_REDUCE);
    expect_messages(&chunks, 4, split, 7, DPB_COLL_ALL_REDUCE);
}

static void test_one_rank_sends_nothing(void **state)
{
    (void)state;
    expect_messages(&layers, 1, NULL, 0, DPB_COLL_REDUCE_SCATTER);
}

/* ---- what must be noticed ---- */

static void keep_line(void *ctx, enum dpb_log_level level, const char *line)
{
    (void)level;
    dpb_str_appendf(ctx, "%s\n", line);
}

/* The communicator sees that ranks reduce other buckets. */
static void test_gradients_in_another_order(void **state)
{
    struct strategy_run *run = strategy_run_new(2, &dpb_strategy_zero2_ops, &layers_in_turn);

    (void)state;
    run->other_order_rank = 1;
    strategy_run_all(run);
    assert_int_equal(run->report[0].step, DPB_ERR_MISMATCH);
    assert_int_equal(run->report[1].step, DPB_ERR_MISMATCH);
    strategy_run_free(run);
}

static void test_place_that_is_not_free(void **state)
{
    const struct dpb_strategy_ops *ops = &dpb_strategy_zero2_ops;
    struct dpb_str log = {0};
    struct dpb_unit_plan plan;
    dpb_strategy *strategy;

    (void)state;
    open_strategy(&layers_in_turn, 2, &strategy, &plan);
    assert_int_equal(ops->param_use(strategy, 4, DPB_PASS_BACKWARD), DPB_OK);
    assert_int_equal(ops->param_use(strategy, 4, DPB_PASS_BACKWARD), DPB_OK);
    dpb_log_set_sink(keep_line, &log);
    assert_int_equal(ops->param_use(strategy, 2, DPB_PASS_BACKWARD), DPB_ERR_INTERNAL);
    dpb_log_set_sink(NULL, NULL);
    assert_non_null(strstr(log.text, "\"mid.weight\" (bucket 1) is used while bucket 0 is in"));
    dpb_str_release(&log);
    ops->close(strategy);
    dpb_unit_plan_release(&plan);
}

static void test_failure_of_a_rank_ends_all(void **state)
{
    struct strategy_run *run = strategy_run_new(3, &dpb_strategy_zero2_ops, &layers);

    (void)state;
    run->fail_rank = 2;
    strategy_run_all(run);
    for (int r = 0; r < run->ranks; r++)
        assert_int_equal(run->report[r].step, r == 2 ? DPB_ERR_VENDOR : DPB_ERR_RANK_FAILED);
    strategy_run_free(run);
}

static void test_divergence_is_found(void **state)
{
    struct strategy_run *run = strategy_run_new(2, &dpb_strategy_zero2_ops, &layers);

    (void)state;
    run->plant_rank = 1;
    strategy_run_all(run);
    assert_int_equal(run->report[0].replicas, DPB_ERR_CHECK);
    assert_int_equal(run->report[1].replicas, DPB_ERR_CHECK);
    strategy_run_free(run);
}

static void test_optimizer_that_needs_whole_tensors(void **state)
{
    const struct dpb_strategy_config config = {
            .world_size = 2, .ranks_per_node = 2, .options = &layers};
    struct dpb_str log = {0};
    dpb_strategy *strategy;

    (void)state;
    dpb_log_set_sink(keep_line, &log);
    assert_int_equal(dpb_strategy_zero2_ops.open(&config, &strategy), DPB_ERR_USAGE);
    dpb_log_set_sink(NULL, NULL);
    assert_non_null(strstr(log.text, "needs them whole"));
    assert_non_null(strstr(log.text, "--optimizer sgd"));
    dpb_str_release(&log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_same_bits_as_none),
            cmocka_unit_test(test_micro_batches_add_up),
            cmocka_unit_test(test_shared_parameter_keeps_its_place),
            cmocka_unit_test(test_state_of_adam_is_in_parts),
            cmocka_unit_test(test_rank_without_samples),
            cmocka_unit_test(test_memory_of_gradients),
            cmocka_unit_test(test_messages),
            cmocka_unit_test(test_one_rank_sends_nothing),
            cmocka_unit_test(test_gradients_in_another_order),
            cmocka_unit_test(test_place_that_is_not_free),
            cmocka_unit_test(test_failure_of_a_rank_ends_all),
            cmocka_unit_test(test_divergence_is_found),
            cmocka_unit_test(test_optimizer_that_needs_whole_tensors),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

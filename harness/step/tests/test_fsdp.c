/* `fsdp`: what is wrapped, what is sent when and how much, what a rank holds, and the result on
 * real ranks. */
#include "dpb_test.h"

#include <math.h>

#include "../strategies/fsdp_units.h"
#include "dpb_strategies.h"
#include "strategy_ranks.h"

#define TINY_ELEMENTS (48 + 3 + 1003 + 1 + 47)
#define MESSAGES_MAX  32

static const struct dpb_fsdp_options
        layers = {.forward_prefetch = true, .limit_all_gathers = true},
        unlimited = {.forward_prefetch = true},
        post = {.backward_prefetch = DPB_FSDP_PREFETCH_POST, .limit_all_gathers = true},
        no_prefetch = {.backward_prefetch = DPB_FSDP_PREFETCH_NONE, .limit_all_gathers = true},
        shard_grad_op = {.sharding = DPB_FSDP_SHARD_GRAD_OP,
                         .forward_prefetch = true,
                         .limit_all_gathers = true},
        with_root = {.unit_elements = 100, .forward_prefetch = true, .limit_all_gathers = true},
        only_root = {.unit_elements = 100000, .forward_prefetch = true, .limit_all_gathers = true};

static const struct dpb_fsdp_options *const all_options[] = {
        &layers, &unlimited, &post, &no_prefetch, &shard_grad_op, &with_root, &only_root};
#define OPTION_COUNT (sizeof(all_options) / sizeof(all_options[0]))

/* ---- averaging in two steps ---- */

/* P -> (pre, post): the rule of torch/distributed/fsdp (1.13), _get_gradient_predivide_factor. */
static void test_predivide_factor(void **state)
{
    static const struct {
        int ranks, pre;
        double post;
    } table[] = {{1, 1, 1.0}, {2, 2, 1.0},  {3, 2, 1.5},  {4, 2, 2.0},  {6, 4, 1.5},
                 {8, 4, 2.0}, {16, 4, 4.0}, {32, 8, 4.0}, {64, 8, 8.0}, {256, 16, 16.0}};

    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        const int pre = dpb_fsdp_predivide_factor(table[i].ranks);

        assert_int_equal(pre, table[i].pre);
        assert_true((double)table[i].ranks / (double)pre == table[i].post);
    }
}

/* With means, sums are not exact: as near as a few roundings. */
static void test_mean_of_gradients(void **state)
{
    struct strategy_run *reference = strategy_run_new(1, &dpb_strategy_none_ops, NULL);

    (void)state;
    reference->averages = true;
    strategy_run_all(reference);
    for (int ranks = 1; ranks <= STRATEGY_RANKS_MAX; ranks++) {
        struct strategy_run *run = strategy_run_new(ranks, &dpb_strategy_fsdp_ops, &layers);
        const float *expected = reference->report[0].params[0];

        run->averages = true;
        strategy_run_all(run);
        assert_int_equal(run->report[0].steps, STRATEGY_STEPS);
        for (int i = 0; i < TINY_ELEMENTS; i++)
            assert_true(fabsf(run->report[0].params[0][i] - expected[i]) < 2e-6f);
        strategy_run_free(run);
    }
    strategy_run_free(reference);
}

/* ---- units ---- */

struct wrapped {
    int units;
    bool has_root;
    int64_t elements[TINY_PARAMS];
};

static void expect_wrapped(int64_t unit_elements, bool tied, const struct wrapped *expected)
{
    const struct tiny_options options = {.tied = tied};
    const struct fsdp_wrapping wrapping = {
            .world_size = 4, .unit_elements = unit_elements, .param_places = 2, .grad_places = 2};
    const struct dpb_model *model = tiny_workload_ops.model(&options);
    struct dpb_unit_plan plan;
    struct fsdp_units units;

    assert_int_equal(fsdp_units_plan(model, &wrapping, &units, &plan), DPB_OK);
    assert_int_equal(units.count, expected->units);
    assert_int_equal(units.has_root, expected->has_root);
    for (int u = 0; u < units.count; u++) {
        assert_int_equal(units.unit[u].elements, expected->elements[u]);
        assert_int_equal(units.unit[u].shard, (expected->elements[u] + 3) / 4);
    }
    if (tied)
        assert_int_equal(plan.unit_of[0], 0);
    fsdp_units_release(&units);
    dpb_unit_plan_release(&plan);
}

/* Layers of 51, 1004 and 47 elements, from the input on. */
static void test_layers_are_wrapped_by_size(void **state)
{
    static const struct wrapped each = {3, false, {51, 1004, 47}}, two = {2, true, {47, 1055}},
                                none = {1, true, {TINY_ELEMENTS}},
                                tied = {4, true, {48, 3, 1004, 47}},
                                tied_two = {2, true, {48 + 47, 1007}};

    (void)state;
    expect_wrapped(0, false, &each);
    expect_wrapped(47, false, &each);
    expect_wrapped(100, false, &two);
    expect_wrapped(1055, false, &two);
    expect_wrapped(TINY_ELEMENTS + 1, false, &none);
    expect_wrapped(0, true, &tied);
    expect_wrapped(100, true, &tied_two);
}

/* ---- messages ---- */

static void open_strategy(const struct dpb_fsdp_options *options, int ranks,
                          dpb_strategy **strategy, struct dpb_unit_plan *plan)
{
    static const struct dpb_optimizer_config sgd = {.kind = DPB_OPTIMIZER_SGD, .lr = 0.25};
    static const struct tiny_options sound = {0};
    const struct dpb_step_shape shape = {
            .model = tiny_workload_ops.model(&sound),
            .optimizer = &sgd,
            .strategy = &dpb_strategy_fsdp_ops,
            .strategy_options = options,
            .ranks = ranks,
            .accumulate = 1,
    };

    assert_int_equal(dpb_step_plan_offline(&shape, 0, NULL, strategy, plan), DPB_OK);
}

struct told {
    enum dpb_coll_kind kind;
    int unit;
    enum dpb_sync_when when;
    int param;
};

static void expect_messages(const struct dpb_fsdp_options *options, const struct told *expected,
                            int count)
{
    struct dpb_sync_message message[MESSAGES_MAX];
    struct dpb_unit_plan plan;
    dpb_strategy *strategy;

    open_strategy(options, 4, &strategy, &plan);
    assert_int_equal(dpb_strategy_fsdp_ops.messages(strategy, NULL), count);
    dpb_strategy_fsdp_ops.messages(strategy, message);
    for (int m = 0; m < count; m++) {
        assert_int_equal(message[m].kind, expected[m].kind);
        assert_int_equal(message[m].unit, expected[m].unit);
        assert_int_equal(message[m].when, expected[m].when);
        assert_int_equal(message[m].param, expected[m].param);
        assert_int_equal(message[m].count, (plan.units[message[m].unit].elements + 3) / 4 * 4);
    }
    dpb_strategy_fsdp_ops.close(strategy);
    dpb_unit_plan_release(&plan);
}

#define GATHER DPB_COLL_ALL_GATHER
#define REDUCE DPB_COLL_REDUCE_SCATTER

/* Units are {0, 1}, {2, 3} and {4}; used in the order 1, 0, 3, 2, 4, ready 4, 2, 3, 0, 1. */
static void test_messages_with_prefetch(void **state)
{
    static const struct told pre[] = {
            {GATHER, 0, DPB_SYNC_BEFORE_FORWARD, 1}, {GATHER, 1, DPB_SYNC_FORWARD, 1},
            {GATHER, 2, DPB_SYNC_FORWARD, 3},        {GATHER, 2, DPB_SYNC_BACKWARD_USE, 4},
            {GATHER, 1, DPB_SYNC_BACKWARD_USE, 4},   {REDUCE, 2, DPB_SYNC_GRADIENT, 4},
            {GATHER, 0, DPB_SYNC_BACKWARD_USE, 2},   {REDUCE, 1, DPB_SYNC_GRADIENT, 3},
            {REDUCE, 0, DPB_SYNC_GRADIENT, 1},
    };

    (void)state;
    expect_messages(&layers, pre, 9);
}

static void test_messages_after_gradients(void **state)
{
    static const struct told told[] = {
            {GATHER, 0, DPB_SYNC_FORWARD, 1},  {GATHER, 1, DPB_SYNC_FORWARD, 3},
            {GATHER, 2, DPB_SYNC_FORWARD, 4},  {GATHER, 2, DPB_SYNC_BACKWARD_USE, 4},
            {GATHER, 1, DPB_SYNC_GRADIENT, 4}, {REDUCE, 2, DPB_SYNC_GRADIENT, 4},
            {GATHER, 0, DPB_SYNC_GRADIENT, 3}, {REDUCE, 1, DPB_SYNC_GRADIENT, 3},
            {REDUCE, 0, DPB_SYNC_GRADIENT, 1},
    };

    (void)state;
    expect_messages(&post, told, 9);
}

static void test_messages_without_prefetch(void **state)
{
    static const struct told told[] = {
            {GATHER, 0, DPB_SYNC_FORWARD, 1},  {GATHER, 1, DPB_SYNC_FORWARD, 3},
            {GATHER, 2, DPB_SYNC_FORWARD, 4},  {GATHER, 2, DPB_SYNC_BACKWARD_USE, 4},
            {REDUCE, 2, DPB_SYNC_GRADIENT, 4}, {GATHER, 1, DPB_SYNC_BACKWARD_USE, 2},
            {REDUCE, 1, DPB_SYNC_GRADIENT, 3}, {GATHER, 0, DPB_SYNC_BACKWARD_USE, 0},
            {REDUCE, 0, DPB_SYNC_GRADIENT, 1},
    };

    (void)state;
    expect_messages(&no_prefetch, told, 9);
}

/* Parameters stay where they are for backward. */
static void test_messages_of_shard_grad_op(void **state)
{
    static const struct told told[] = {
            {GATHER, 0, DPB_SYNC_BEFORE_FORWARD, 1}, {GATHER, 1, DPB_SYNC_FORWARD, 1},
            {GATHER, 2, DPB_SYNC_FORWARD, 3},        {REDUCE, 2, DPB_SYNC_GRADIENT, 4},
            {REDUCE, 1, DPB_SYNC_GRADIENT, 3},       {REDUCE, 0, DPB_SYNC_GRADIENT, 1},
    };

    (void)state;
    expect_messages(&shard_grad_op, told, 6);
}

/* The root is {4}, whole from the beginning; the unit is the rest. */
static void test_messages_of_the_root(void **state)
{
    static const struct told told[] = {
            {GATHER, 0, DPB_SYNC_BEFORE_FORWARD, 1}, {GATHER, 1, DPB_SYNC_BEFORE_FORWARD, 1},
            {REDUCE, 0, DPB_SYNC_GRADIENT, 4},       {GATHER, 1, DPB_SYNC_BACKWARD_USE, 2},
            {REDUCE, 1, DPB_SYNC_GRADIENT, 1},
    };

    (void)state;
    expect_messages(&with_root, told, 5);
}

/* Everything is asked for before the first use. */
static void test_messages_without_limit(void **state)
{
    static const struct told told[] = {
            {GATHER, 0, DPB_SYNC_BEFORE_FORWARD, 1}, {GATHER, 1, DPB_SYNC_BEFORE_FORWARD, 1},
            {GATHER, 2, DPB_SYNC_BEFORE_FORWARD, 1}, {GATHER, 2, DPB_SYNC_BACKWARD_USE, 4},
            {GATHER, 1, DPB_SYNC_BACKWARD_USE, 4},   {GATHER, 0, DPB_SYNC_BACKWARD_USE, 4},
            {REDUCE, 2, DPB_SYNC_GRADIENT, 4},       {REDUCE, 1, DPB_SYNC_GRADIENT, 3},
            {REDUCE, 0, DPB_SYNC_GRADIENT, 1},
    };

    (void)state;
    expect_messages(&unlimited, told, 9);
}

/* 3 (P - 1) / P of the padded bytes, 2 with shard-grad-op: strategies.md 5.3. The engine's counts
 * are compared with the messages in strategy_run_expect_none(). */
static void test_volume_of_a_step(void **state)
{
    static const struct {
        const struct dpb_fsdp_options *options;
        int64_t times;
    } cases[] = {{&layers, 3}, {&post, 3}, {&no_prefetch, 3}, {&shard_grad_op, 2}, {&only_root, 2}};

    (void)state;
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        struct strategy_run *run = strategy_run_new(4, &dpb_strategy_fsdp_ops, cases[c].options);
        const int64_t padded = cases[c].options == &only_root ? 1104 : 52 + 1004 + 48;

        strategy_run_expect_none(run);
        for (int r = 0; r < run->ranks; r++)
            assert_int_equal(run->report[r].wire_bytes,
                             cases[c].times * 3 * padded / 4 * (int64_t)sizeof(float));
        strategy_run_free(run);
    }
}

/* ---- same bits ---- */

static void expect_none(int ranks, const struct dpb_fsdp_options *options, int64_t accumulate,
                        bool tied)
{
    struct strategy_run *run = strategy_run_new(ranks, &dpb_strategy_fsdp_ops, options);

    run->accumulate = accumulate;
    run->tied = tied;
    strategy_run_expect_none(run);
    assert_int_equal(run->report[0].correct, 4); /* of 12 samples, 0, 3, 6 and 9 */
    strategy_run_free(run);
}

static void test_same_bits_as_none(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= STRATEGY_RANKS_MAX; ranks++)
        for (size_t o = 0; o < OPTION_COUNT; o++)
            expect_none(ranks, all_options[o], 1, false);
}

static void test_micro_batches_add_up(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 3; ranks++)
        for (size_t o = 0; o < OPTION_COUNT; o++) {
            struct strategy_run *run =
                    strategy_run_new(ranks, &dpb_strategy_fsdp_ops, all_options[o]);

            run->accumulate = 2;
            strategy_run_expect_none(run);
            strategy_run_free(run);
        }
}

static void test_shared_parameter_is_the_roots(void **state)
{
    (void)state;
    for (size_t o = 0; o < OPTION_COUNT; o++)
        expect_none(2, all_options[o], 1, true);
}

static void test_rank_without_samples(void **state)
{
    static const int64_t share[] = {7, 0, 5};
    struct strategy_run *run = strategy_run_new(3, &dpb_strategy_fsdp_ops, &layers);

    (void)state;
    memcpy(run->share, share, sizeof(share));
    strategy_run_expect_none(run);
    strategy_run_free(run);
}

/* ---- memory ---- */

/* Shards of 13, 251 and 12 elements; places of 256 and 4032 bytes that two units share in turn. */
static void test_memory(void **state)
{
    static const struct {
        const struct dpb_fsdp_options *options;
        int64_t full_bytes;
    } cases[] = {{&layers, 256 + 4032},
                 {&unlimited, 256 + 4032 + 192},
                 {&no_prefetch, 4032},
                 {&shard_grad_op, 256 + 4032 + 192}};

    (void)state;
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        struct strategy_run *run = strategy_run_new(4, &dpb_strategy_fsdp_ops, cases[c].options);
        const int64_t shard_bytes = (13 + 251 + 12) * (int64_t)sizeof(float);

        strategy_run_expect_none(run);
        for (int r = 0; r < run->ranks; r++) {
            const struct strategy_report *report = &run->report[r];

            assert_int_equal(report->parameter_bytes, shard_bytes);
            assert_int_equal(report->strategy_bytes, shard_bytes + 4 * (int64_t)sizeof(float));
            assert_int_equal(report->gradient_bytes, 256 + 4032);
            assert_int_equal(report->communication_bytes, cases[c].full_bytes);
        }
        strategy_run_free(run);
    }
}

/* ---- what must be noticed ---- */

static void test_failure_of_a_rank_ends_all(void **state)
{
    struct strategy_run *run = strategy_run_new(3, &dpb_strategy_fsdp_ops, &layers);

    (void)state;
    run->fail_rank = 2;
    strategy_run_all(run);
    for (int r = 0; r < run->ranks; r++)
        assert_int_equal(run->report[r].step, r == 2 ? DPB_ERR_VENDOR : DPB_ERR_RANK_FAILED);
    strategy_run_free(run);
}

static void test_gradients_in_another_order(void **state)
{
    struct strategy_run *run = strategy_run_new(2, &dpb_strategy_fsdp_ops, &layers);

    (void)state;
    run->other_order_rank = 1;
    strategy_run_all(run);
    assert_int_equal(run->report[0].step, DPB_ERR_MISMATCH);
    assert_int_equal(run->report[1].step, DPB_ERR_MISMATCH);
    strategy_run_free(run);
}

static void test_optimizer_that_needs_whole_tensors(void **state)
{
    const struct dpb_strategy_config config = {
            .world_size = 2, .ranks_per_node = 2, .options = &layers};
    dpb_strategy *strategy;

    (void)state;
    assert_int_equal(dpb_strategy_fsdp_ops.open(&config, &strategy), DPB_ERR_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_predivide_factor),
            cmocka_unit_test(test_layers_are_wrapped_by_size),
            cmocka_unit_test(test_messages_with_prefetch),
            cmocka_unit_test(test_messages_after_gradients),
            cmocka_unit_test(test_messages_without_prefetch),
            cmocka_unit_test(test_messages_of_shard_grad_op),
            cmocka_unit_test(test_messages_of_the_root),
            cmocka_unit_test(test_messages_without_limit),
            cmocka_unit_test(test_same_bits_as_none),
            cmocka_unit_test(test_micro_batches_add_up),
            cmocka_unit_test(test_shared_parameter_is_the_roots),
            cmocka_unit_test(test_rank_without_samples),
            cmocka_unit_test(test_mean_of_gradients),
            cmocka_unit_test(test_volume_of_a_step),
            cmocka_unit_test(test_memory),
            cmocka_unit_test(test_failure_of_a_rank_ends_all),
            cmocka_unit_test(test_gradients_in_another_order),
            cmocka_unit_test(test_optimizer_that_needs_whole_tensors),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

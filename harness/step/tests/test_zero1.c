/* `zero1`: who updates what, what is asked for and when, and the result on real ranks. */
#include "dpb_test.h"

#include "../strategies/zero1.h"
#include "model_table.h"
#include "strategy_log.h"
#include "strategy_ranks.h"

#define ALL_BYTES (INT64_C(1) << 40)

#define OPTIONS(which, bytes, when, in_forward, gather)                                            \
    {                                                                                              \
        .variant = (which), .bucket_bytes = (bytes), .overlap = (when),                            \
        .overlap_param_gather = (in_forward), .gather_bytes = (gather)                             \
    }

static const struct dpb_zero1_options
        canonical = OPTIONS(DPB_ZERO1_CANONICAL, 32, DPB_ZERO1_OVERLAP_AUTO, false, ALL_BYTES),
        canonical_after = OPTIONS(DPB_ZERO1_CANONICAL, 32, DPB_ZERO1_OVERLAP_OFF, false, ALL_BYTES),
        canonical_in_forward =
                OPTIONS(DPB_ZERO1_CANONICAL, 32, DPB_ZERO1_OVERLAP_AUTO, true, ALL_BYTES),
        pytorch = OPTIONS(DPB_ZERO1_PYTORCH, 48, DPB_ZERO1_OVERLAP_AUTO, false, ALL_BYTES),
        megatron = OPTIONS(DPB_ZERO1_MEGATRON, DPB_AUTO, DPB_ZERO1_OVERLAP_AUTO, false, ALL_BYTES),
        megatron_after =
                OPTIONS(DPB_ZERO1_MEGATRON, DPB_AUTO, DPB_ZERO1_OVERLAP_OFF, false, ALL_BYTES),
        megatron_in_forward =
                OPTIONS(DPB_ZERO1_MEGATRON, 16, DPB_ZERO1_OVERLAP_ON, true, ALL_BYTES),
        deepspeed = OPTIONS(DPB_ZERO1_DEEPSPEED, 48, DPB_ZERO1_OVERLAP_AUTO, false, ALL_BYTES),
        deepspeed_overlaps =
                OPTIONS(DPB_ZERO1_DEEPSPEED, 32, DPB_ZERO1_OVERLAP_ON, false, ALL_BYTES),
        deepspeed_in_pieces =
                OPTIONS(DPB_ZERO1_DEEPSPEED, ALL_BYTES, DPB_ZERO1_OVERLAP_AUTO, false, 32),
        deepspeed_large = OPTIONS(DPB_ZERO1_DEEPSPEED, 16, DPB_ZERO1_OVERLAP_OFF, false, ALL_BYTES);

/* ---- the rules ---- */

/* Every rank's tensors, in the order in which it gets them, as PyTorch deals ResNet-50's out. */
static void test_partition_of_pytorch(void **state)
{
    static const int64_t loads[] = {6389248, 6389248, 6389288, 6389248};
    struct model_table table;
    dpb_json *file = NULL;
    const dpb_json *ranks;

    (void)state;
    model_table_read("resnet50", &table);
    assert_int_equal(
            dpb_json_read_file(DPB_TEST_DATA "/zero1_pytorch_partition_resnet50_ws4.json", &file),
            DPB_OK);
    ranks = dpb_json_get(file, "partition_param_indices_per_rank");
    assert_int_equal(dpb_json_size(ranks), 4);
    int *order = calloc((size_t)table.param_count, sizeof(int));
    int *owner = calloc((size_t)table.param_count, sizeof(int));
    assert_true(order && owner);
    assert_int_equal(zero1_partition(table.params, table.param_count, 4, order, owner), DPB_OK);
    for (int r = 0; r < 4; r++) {
        const dpb_json *expected = dpb_json_at(ranks, (size_t)r);
        int64_t load = 0;
        size_t count = 0;

        for (int i = 0; i < table.param_count; i++) {
            if (owner[order[i]] != r)
                continue;
            assert_int_equal(order[i], dpb_json_as_int(dpb_json_at(expected, count++), -1));
            load += table.params[order[i]].numel;
        }
        assert_int_equal(count, dpb_json_size(expected));
        assert_int_equal(load, loads[r]);
    }
    free(owner);
    free(order);
    dpb_json_free(file);
    model_table_release(&table);
}

/* Megatron's buckets: of at least 40e6 parameters, or a million per rank, from the last parameter
 * on; DeepSpeed's: at most so many. */
static int units_of(const struct dpb_model *model, const struct dpb_zero1_options *options,
                    int ranks, int64_t *first_elements)
{
    const struct dpb_strategy_config config = {.world_size = ranks,
                                               .ranks_per_node = ranks,
                                               .options = options,
                                               .optimizer_is_elementwise = true};
    struct dpb_unit_plan plan;
    dpb_strategy *strategy;
    int count;

    assert_int_equal(dpb_strategy_zero1_ops.open(&config, &strategy), DPB_OK);
    assert_int_equal(dpb_strategy_zero1_ops.plan(strategy, model, NULL, &plan), DPB_OK);
    count = plan.unit_count;
    *first_elements = plan.units[0].elements;
    dpb_strategy_zero1_ops.close(strategy);
    dpb_unit_plan_release(&plan);
    return count;
}

static void test_default_buckets(void **state)
{
    static const struct dpb_param_info params[] = {
            {.name = "a", .dtype = DPB_F32, .rank = 1, .dim = {30000000}, .numel = 30000000},
            {.name = "b", .dtype = DPB_F32, .rank = 1, .dim = {5000000}, .numel = 5000000},
            {.name = "c", .dtype = DPB_F32, .rank = 1, .dim = {20000000}, .numel = 20000000},
            {.name = "d", .dtype = DPB_F32, .rank = 1, .dim = {20000000}, .numel = 20000000},
    };
    static const int order[] = {2, 3, 1, 0};
    const struct dpb_model model = {.params = params, .param_count = 4, .ready_order = order};
    struct dpb_zero1_options options = canonical;
    int64_t first;

    (void)state;
    assert_int_equal(units_of(&model, &megatron, 2, &first), 2); /* d c, b a */
    assert_int_equal(first, 40000000);
    assert_int_equal(units_of(&model, &megatron, 45, &first), 2); /* d c b, a */
    assert_int_equal(first, 45000000);
    assert_int_equal(units_of(&model, &megatron_after, 2, &first), 1);
    options.bucket_bytes = DPB_AUTO; /* 25 MiB */
    assert_int_equal(units_of(&model, &options, 2, &first), 3);
    assert_int_equal(first, 20000000);
    options.variant = DPB_ZERO1_DEEPSPEED; /* 5e8 elements */
    assert_int_equal(units_of(&model, &options, 2, &first), 1);
    options.bucket_bytes = 4 * INT64_C(40000000);
    assert_int_equal(units_of(&model, &options, 2, &first), 2); /* c d, b a */
    options.bucket_bytes -= 1;
    assert_int_equal(units_of(&model, &options, 2, &first), 3); /* c, d b, a: never more */
}

/* PyTorch's first bucket is small unless a size is asked for. */
static void test_first_bucket_of_pytorch(void **state)
{
    struct model_table table;
    struct dpb_zero1_options options = pytorch;
    int64_t first;

    (void)state;
    model_table_read("resnet50", &table);
    int *order = calloc((size_t)table.param_count, sizeof(int));
    assert_non_null(order);
    for (int i = 0; i < table.param_count; i++)
        order[i] = table.param_count - 1 - i;
    const struct dpb_model model = {
            .params = table.params, .param_count = table.param_count, .ready_order = order};
    options.bucket_bytes = DPB_AUTO;
    assert_int_equal(units_of(&model, &options, 4, &first), 5);
    options.bucket_bytes = INT64_C(25) << 20;
    assert_int_equal(units_of(&model, &options, 4, &first), 4);
    free(order);
    model_table_release(&table);
}

/* ---- what is asked for, and when ---- */

static const struct {
    const struct dpb_zero1_options *options;
    const char *step;       /* the second, of rank 0 of two */
    const char *updates[2]; /* of ranks 0 and 1 */
    int64_t shared_bytes;
} steps[] = {
        /* Units: {d c}, {b}, {a}; the shards are 6, 4 and 2 elements. */
        {&canonical,
         "a b c d | d c reduce-scatter0.12 b reduce-scatter1.8 a reduce-scatter2.4 | "
         "wait1 wait2 wait3 | all-gather2.4 all-gather1.8 all-gather0.12 wait4 wait5 wait6 |",
         {"a0+2 b0+4 c0+2 d0+4 ", "a2+2 b4+4 c2+6 "},
         192},
        {&canonical_after,
         "a b c d | d c b a | reduce-scatter0.12 reduce-scatter1.8 reduce-scatter2.4 "
         "wait1 wait2 wait3 | all-gather2.4 all-gather1.8 all-gather0.12 wait4 wait5 wait6 |",
         {"a0+2 b0+4 c0+2 d0+4 ", "a2+2 b4+4 c2+6 "},
         192},
        /* The parameters of the last unit are needed first. */
        {&canonical_in_forward,
         "all-gather2.4 all-gather1.8 all-gather0.12 a wait1 b wait2 c wait3 d | "
         "d c reduce-scatter0.12 b reduce-scatter1.8 a reduce-scatter2.4 | wait4 wait5 wait6 | |",
         {"a0+2 b0+4 c0+2 d0+4 ", "a2+2 b4+4 c2+6 "},
         192},
        /* b and c are the largest: b to rank 0, c to rank 1, then a and d. */
        {&pytorch,
         "a b c d | d c all-reduce0.12 b a all-reduce1.12 | wait1 wait2 | "
         "broadcast-1.8 broadcast-1.4 broadcast-1.8@1 broadcast-1.4@1 wait3 wait4 wait5 wait6 |",
         {"a0+4 b0+8 ", "c0+8 d0+4 "},
         128},
        {&megatron,
         "a b c d | d c b a scale reduce-scatter0.24 | wait1 | all-gather0.24 wait2 |",
         {"c0+8 d0+4 ", "a0+4 b0+8 "},
         128},
        {&megatron_after,
         "a b c d | d c b a | scale reduce-scatter0.24 wait1 | all-gather0.24 wait2 |",
         {"c0+8 d0+4 ", "a0+4 b0+8 "},
         128},
        {&megatron_in_forward,
         "all-gather3.4 all-gather2.8 all-gather1.8 all-gather0.4 a wait1 b wait2 c wait3 d wait4 "
         "| d scale reduce-scatter0.4 c scale reduce-scatter1.8 b scale reduce-scatter2.8 a scale "
         "reduce-scatter3.4 | wait5 wait6 wait7 wait8 | |",
         {"a0+2 b0+4 c0+4 d0+2 ", "a2+2 b4+4 c4+4 d2+2 "},
         256},
        /* Buckets {d c} and {b a} of up to 12 elements: the first goes when b does not fit. The
         * flat group is a b | c d. */
        {&deepspeed,
         "a b c d | d c b fill bucket scale all-reduce0.12 wait1 a | "
         "fill bucket scale all-reduce1.12 wait2 take own part take own part | all-gather-1.24 "
         "wait3 |",
         {"a0+4 b0+8 ", "c0+8 d0+4 "},
         (24 + 12) * 4},
        {&deepspeed_overlaps,
         "a b c d | d c fill bucket scale all-reduce0.4 b fill bucket scale all-reduce1.8 a "
         "wait1 fill bucket scale all-reduce2.8 | wait2 fill bucket scale all-reduce3.4 wait3 "
         "take own part wait4 take own part | all-gather-1.24 wait5 |",
         {"a0+4 b0+8 ", "c0+8 d0+4 "},
         (24 + 2 * 8) * 4},
        /* 24 elements in three pieces of 8: 4 of each rank's 12. */
        {&deepspeed_in_pieces,
         "a b c d | d c b a | fill bucket scale all-reduce0.24 wait1 take own part take own part | "
         "stage all-gather-1.8 wait2 unstage stage all-gather-1.8 wait3 unstage stage "
         "all-gather-1.8 wait4 unstage |",
         {"a0+4 b0+8 ", "c0+8 d0+4 "},
         (24 + 24 + 8) * 4},
        /* b and c are larger than a bucket: they are reduced where they are. */
        {&deepspeed_large,
         "a b c d | d c fill bucket scale all-reduce0.4 wait1 b scale all-reduce1.8 wait2 a scale "
         "all-reduce2.8 wait3 | fill bucket scale all-reduce3.4 wait4 take own part | "
         "all-gather-1.24 wait5 |",
         {"a0+4 b0+8 ", "c0+8 d0+4 "},
         (24 + 4) * 4},
};
#define STEP_COUNT (sizeof(steps) / sizeof(steps[0]))

static void updates_text(const struct strategy_log *log, struct dpb_str *text)
{
    struct dpb_update update[LOG_PARAMS];
    const int count = log->ops->updates(log->strategy, NULL);

    assert_in_range(count, 0, LOG_PARAMS);
    assert_int_equal(log->ops->updates(log->strategy, update), count);
    dpb_str_release(text);
    for (int u = 0; u < count; u++) {
        assert_null(update[u].value);
        assert_null(update[u].grad);
        dpb_str_appendf(text, "%s%d+%d ", log_model.params[update[u].param].name,
                        (int)update[u].first, (int)update[u].count);
    }
}

static void test_steps(void **state)
{
    struct dpb_str updates = {0};

    (void)state;
    for (size_t s = 0; s < STEP_COUNT; s++) {
        for (int rank = 0; rank < 2; rank++) {
            struct dpb_strategy_memory memory = {.parameters_bytes = -1};
            struct strategy_log log;

            print_message("options %zu, rank %d\n", s, rank);
            strategy_log_open(&log, &dpb_strategy_zero1_ops, steps[s].options, rank, 2);
            assert_int_equal(strategy_log_step(&log, log_reverse_order), DPB_OK);
            assert_int_equal(strategy_log_step(&log, log_reverse_order), DPB_OK);
            if (rank == 0)
                assert_string_equal(log.text.text, steps[s].step);
            updates_text(&log, &updates);
            assert_string_equal(updates.text, steps[s].updates[rank]);
            assert_int_equal(log.shared_bytes, steps[s].shared_bytes);
            log.ops->memory(log.strategy, &memory);
            assert_int_equal(memory.shared_bytes, steps[s].shared_bytes);
            assert_int_equal(memory.parameters_bytes, 0);
            strategy_log_close(&log);
        }
    }
    dpb_str_release(&updates);
}

/* The messages are what a step starts, in that order. */
static void test_messages(void **state)
{
    (void)state;
    for (size_t s = 0; s < STEP_COUNT; s++) {
        struct dpb_sync_message message[4 * LOG_PARAMS];
        struct dpb_str expected = {0};
        struct strategy_log log;

        strategy_log_open(&log, &dpb_strategy_zero1_ops, steps[s].options, 0, 2);
        assert_int_equal(strategy_log_step(&log, log_reverse_order), DPB_OK);
        assert_int_equal(strategy_log_step(&log, log_reverse_order), DPB_OK);
        assert_int_equal(log.ops->messages(log.strategy, NULL), log.started);
        assert_in_range(log.started, 1, 4 * LOG_PARAMS);
        assert_int_equal(log.ops->messages(log.strategy, message), log.started);
        const char *at = log.text.text;
        for (int m = 0; m < log.started; m++) {
            dpb_str_release(&expected);
            dpb_str_appendf(&expected, "%s%d.%d", dpb_coll_text(message[m].kind), message[m].unit,
                            (int)message[m].count);
            if (message[m].root > 0)
                dpb_str_appendf(&expected, "@%d", message[m].root);
            dpb_str_append(&expected, " ");
            at = strstr(at, expected.text);
            assert_non_null(at);
            at += expected.length;
        }
        dpb_str_release(&expected);
        strategy_log_close(&log);
    }
}

static enum dpb_sync_when when_of(const struct dpb_zero1_options *options, int index, int *param)
{
    struct dpb_sync_message message[4 * LOG_PARAMS];
    struct strategy_log log;

    strategy_log_open(&log, &dpb_strategy_zero1_ops, options, 0, 2);
    log.ops->messages(log.strategy, message);
    *param = message[index].param;
    strategy_log_close(&log);
    return message[index].when;
}

static void test_when_messages_go(void **state)
{
    int param;

    (void)state;
    assert_int_equal(when_of(&canonical, 0, &param), DPB_SYNC_GRADIENT);
    assert_int_equal(param, 2); /* c completes {d c} */
    assert_int_equal(when_of(&canonical, 3, &param), DPB_SYNC_AFTER_OPTIMIZER);
    assert_int_equal(when_of(&canonical_after, 0, &param), DPB_SYNC_AFTER_BACKWARD);
    assert_int_equal(when_of(&canonical_in_forward, 2, &param), DPB_SYNC_FORWARD);
    assert_int_equal(param, 2); /* the first of {d c} that is used */
    assert_int_equal(when_of(&deepspeed, 0, &param), DPB_SYNC_GRADIENT);
    assert_int_equal(param, 1); /* b does not fit */
    assert_int_equal(when_of(&deepspeed, 1, &param), DPB_SYNC_AFTER_BACKWARD);
}

static void test_one_rank_sends_nothing(void **state)
{
    struct dpb_str updates = {0};

    (void)state;
    for (size_t s = 0; s < STEP_COUNT; s++) {
        struct strategy_log log;

        strategy_log_open(&log, &dpb_strategy_zero1_ops, steps[s].options, 0, 1);
        for (int step = 0; step < 2; step++) {
            assert_int_equal(strategy_log_step(&log, log_reverse_order), DPB_OK);
            assert_string_equal(log.text.text, "a b c d | d c b a | | |");
        }
        updates_text(&log, &updates);
        assert_string_equal(updates.text, "a0+4 b0+8 c0+8 d0+4 ");
        assert_int_equal(log.ops->messages(log.strategy, NULL), 0);
        assert_int_equal(log.shared_allocs, 1); /* the parameters */
        strategy_log_close(&log);
    }
    dpb_str_release(&updates);
}

static void test_failures_and_misuse(void **state)
{
    static const int twice[LOG_PARAMS] = {3, 2, 2, 0};

    (void)state;
    for (size_t s = 0; s < STEP_COUNT; s++) {
        struct strategy_log log;

        strategy_log_open(&log, &dpb_strategy_zero1_ops, steps[s].options, 0, 2);
        assert_int_equal(strategy_log_step(&log, log_reverse_order), DPB_OK);
        const int last = log.started;
        for (int n = 1; n <= last; n++) {
            strategy_log_close(&log);
            strategy_log_open(&log, &dpb_strategy_zero1_ops, steps[s].options, 0, 2);
            log.fail_start = n;
            assert_int_equal(strategy_log_step(&log, log_reverse_order), DPB_ERR_RANK_FAILED);
            log.fail_start = 0;
            log.fail_wait = n;
            assert_int_equal(strategy_log_step(&log, log_reverse_order), DPB_ERR_TIMEOUT);
        }
        strategy_log_close(&log);
        strategy_log_open(&log, &dpb_strategy_zero1_ops, steps[s].options, 0, 2);
        assert_int_equal(strategy_log_step(&log, twice), DPB_ERR_INTERNAL);
        assert_int_equal(log.errors, 1);
        strategy_log_close(&log);
    }
}

/* ---- what is refused ---- */

static void expect_refused(const struct dpb_zero1_options *options, bool elementwise,
                           const char *why)
{
    struct dpb_str errors = {0};

    assert_int_equal(
            strategy_log_try(&dpb_strategy_zero1_ops, options, false, elementwise, &errors),
            DPB_ERR_USAGE);
    if (!strstr(errors.text, why))
        fail_msg("\"%s\" is not in \"%s\"", why, errors.text);
    dpb_str_release(&errors);
}

static void test_bad_options(void **state)
{
    struct dpb_zero1_options bad = canonical;
    struct dpb_str errors = {0};

    (void)state;
    bad.bucket_bytes = 3;
    expect_refused(&bad, true, "room for an element");
    bad = deepspeed;
    bad.gather_bytes = 0;
    expect_refused(&bad, true, "room for an element");
    bad = deepspeed;
    bad.overlap_param_gather = true;
    expect_refused(&bad, true, "--overlap-param-gather with --zero1-variant deepspeed");
    bad = pytorch;
    bad.overlap_param_gather = true;
    expect_refused(&bad, true, "--zero1-variant megatron or canonical");
    expect_refused(&canonical, false, "needs whole tensors");
    expect_refused(&megatron, false, "needs whole tensors");
    expect_refused(&deepspeed, false, "--zero1-variant pytorch");
    assert_int_equal(strategy_log_try(&dpb_strategy_zero1_ops, &pytorch, false, false, &errors),
                     DPB_OK);
    assert_null(errors.text);
    assert_int_equal(dpb_strategy_ops_check(&dpb_strategy_zero1_ops), DPB_OK);
}

/* ---- real ranks ---- */

static void test_ranks(void **state)
{
    (void)state;
    for (size_t s = 0; s < STEP_COUNT; s++) {
        print_message("options %zu\n", s);
        strategy_expect_none(&dpb_strategy_zero1_ops, steps[s].options);
    }
}

/* Every optimizer that goes element by element updates parts to the same bits; those that need
 * whole tensors get them from the pytorch variant. */
static void test_optimizers_on_ranks(void **state)
{
    (void)state;
    for (int kind = 0; kind < DPB_OPTIMIZER_COUNT; kind++) {
        const bool is_whole = kind == DPB_OPTIMIZER_LAMB || kind == DPB_OPTIMIZER_LARS ||
                              kind == DPB_OPTIMIZER_ROWWISE_ADAGRAD;

        for (size_t s = 0; s < STEP_COUNT; s++) {
            struct strategy_run *run;

            if (is_whole && steps[s].options->variant != DPB_ZERO1_PYTORCH)
                continue;
            run = strategy_run_new(3, &dpb_strategy_zero1_ops, steps[s].options);
            run->optimizer = dpb_optimizer_defaults((enum dpb_optimizer_kind)kind);
            run->optimizer.lr = 0.01;
            strategy_run_expect_none(run);
            strategy_run_free(run);
        }
    }
}

/* The ranks together hold the state of one: each has a P-th, but for what alignment and whole
 * tensors add. */
static void test_state_is_divided(void **state)
{
    (void)state;
    for (size_t s = 0; s < STEP_COUNT; s++) {
        struct strategy_run *run = strategy_run_new(4, &dpb_strategy_zero1_ops, steps[s].options);
        int64_t sum = 0, elements = 0;

        strategy_run_all(run);
        for (int p = 0; p < TINY_PARAMS; p++)
            elements += tiny_numel(p);
        for (int r = 0; r < run->ranks; r++) {
            assert_int_equal(run->report[r].steps, STRATEGY_STEPS);
            sum += run->report[r].optimizer_bytes;
            if (steps[s].options->variant != DPB_ZERO1_PYTORCH)
                assert_in_range(run->report[r].optimizer_bytes, 0, elements + 4 * TINY_PARAMS * 64);
        }
        assert_in_range(sum, 4 * elements, 4 * elements + 4 * TINY_PARAMS * 64);
        strategy_run_free(run);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_partition_of_pytorch),
            cmocka_unit_test(test_default_buckets),
            cmocka_unit_test(test_first_bucket_of_pytorch),
            cmocka_unit_test(test_steps),
            cmocka_unit_test(test_messages),
            cmocka_unit_test(test_when_messages_go),
            cmocka_unit_test(test_one_rank_sends_nothing),
            cmocka_unit_test(test_failures_and_misuse),
            cmocka_unit_test(test_bad_options),
            cmocka_unit_test(test_ranks),
            cmocka_unit_test(test_optimizers_on_ranks),
            cmocka_unit_test(test_state_is_divided),
    };

    return DPB_RUN_TESTS(tests);
}

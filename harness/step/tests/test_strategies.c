/* The strategies against a log of what they ask for. */
#include "dpb_test.h"

#include "dpb_log.h"
#include "dpb_str.h"
#include "dpb_strategies.h"

/* Four tensors of 4, 8, 8 and 4 elements, ready from the last to the first. */
#define PARAM_COUNT 4

static const struct dpb_param_info tiny_params[PARAM_COUNT] = {
        {.name = "a", .dtype = DPB_F32, .rank = 1, .dim = {4}, .numel = 4},
        {.name = "b", .dtype = DPB_F32, .rank = 1, .dim = {8}, .numel = 8},
        {.name = "c", .dtype = DPB_F32, .rank = 1, .dim = {8}, .numel = 8},
        {.name = "d", .dtype = DPB_F32, .rank = 1, .dim = {4}, .numel = 4},
};
static const int reverse_order[PARAM_COUNT] = {3, 2, 1, 0};
static const struct dpb_model tiny_model = {
        .params = tiny_params, .param_count = PARAM_COUNT, .ready_order = reverse_order};

/* Services that write "L0 W0 ..." and can be told to fail. */
struct fake {
    struct dpb_str log;
    int fail_unit; /* -1: none */
    const struct dpb_strategy_ops *ops;
    dpb_strategy *strategy;
    struct dpb_unit_plan plan;
    int errors_logged;
};

/* A device and a recorder that do nothing. */
static dpb_status nothing_launched(dpb_device *device, enum dpb_op op, const void *args,
                                   dpb_stream *stream)
{
    (void)device;
    (void)op;
    (void)args;
    (void)stream;
    return DPB_OK;
}

static void nothing_begun(dpb_recorder *recorder, enum dpb_lane lane, enum dpb_event_kind kind,
                          const char *name, int32_t bucket)
{
    (void)recorder;
    (void)lane;
    (void)kind;
    (void)name;
    (void)bucket;
}

static void nothing_ended(dpb_recorder *recorder, enum dpb_lane lane)
{
    (void)recorder;
    (void)lane;
}

static const struct dpb_device_ops device_ops = {.op_launch = nothing_launched};
static const struct dpb_recorder_ops recorder_ops = {.range_begin = nothing_begun,
                                                     .range_end = nothing_ended};
static struct dpb_device_base device = {.ops = &device_ops};
static struct dpb_recorder_base recorder = {.ops = &recorder_ops};
static struct dpb_launcher launcher = {.device = (dpb_device *)&device,
                                       .recorder = (dpb_recorder *)&recorder};

static float *fake_grad(void *ctx, int param)
{
    (void)param;
    return ctx;
}

static void *fake_unit_data(void *ctx, int unit)
{
    (void)unit;
    return ctx;
}

/* A unit is its own handle. */
static dpb_status fake_start(void *ctx, const struct dpb_sync_coll *coll, int *handle)
{
    struct fake *fake = ctx;

    assert_int_equal(coll->kind, DPB_COLL_ALL_REDUCE);
    assert_int_equal(coll->count, fake->plan.units[coll->unit].elements);
    assert_float_equal(coll->scale, 0.5, 0.0);
    dpb_str_appendf(&fake->log, "L%d ", coll->unit);
    *handle = coll->unit;
    return coll->unit == fake->fail_unit ? DPB_ERR_RANK_FAILED : DPB_OK;
}

static dpb_status fake_wait(void *ctx, int handle)
{
    struct fake *fake = ctx;

    dpb_str_appendf(&fake->log, "W%d ", handle);
    return handle == fake->fail_unit ? DPB_ERR_TIMEOUT : DPB_OK;
}

static void count_line(void *ctx, enum dpb_log_level level, const char *line)
{
    (void)line;
    if (level == DPB_LOG_ERROR)
        ++*(int *)ctx;
}

static void fake_open(struct fake *fake, const struct dpb_strategy_ops *ops, int world_size,
                      const void *options, bool bucket_given)
{
    const struct dpb_strategy_config config = {
            .world_size = world_size,
            .options = options,
            .bucket_given = bucket_given,
            .ranks_per_node = world_size,
            .services = {.ctx = fake,
                         .launcher = &launcher,
                         .grad = fake_grad,
                         .average = 0.5f,
                         .unit_data = fake_unit_data,
                         .start = fake_start,
                         .wait = fake_wait},
    };

    *fake = (struct fake){.fail_unit = -1, .ops = ops};
    dpb_log_set_sink(count_line, &fake->errors_logged);
    assert_int_equal(ops->open(&config, &fake->strategy), DPB_OK);
    assert_int_equal(ops->plan(fake->strategy, &tiny_model, NULL, &fake->plan), DPB_OK);
}

static void fake_replan(struct fake *fake, const int *ready_order)
{
    dpb_unit_plan_release(&fake->plan);
    assert_int_equal(fake->ops->plan(fake->strategy, &tiny_model, ready_order, &fake->plan),
                     DPB_OK);
}

static void fake_close(struct fake *fake)
{
    fake->ops->close(fake->strategy);
    dpb_unit_plan_release(&fake->plan);
    dpb_str_release(&fake->log);
    dpb_log_set_sink(NULL, NULL);
}

/* One step; gradients come in `order`, each written "a" to "d"; "|" is the end of backward. */
static void run_step(struct fake *fake, int64_t step, const int *order)
{
    dpb_str_release(&fake->log);
    assert_int_equal(fake->ops->step_begin(fake->strategy, step), DPB_OK);
    for (int i = 0; i < PARAM_COUNT; i++) {
        dpb_str_appendf(&fake->log, "%s ", tiny_params[order[i]].name);
        assert_int_equal(fake->ops->grad_ready(fake->strategy, order[i]), DPB_OK);
    }
    dpb_str_append(&fake->log, "| ");
    assert_int_equal(fake->ops->backward_end(fake->strategy), DPB_OK);
    dpb_str_append(&fake->log, "| ");
    assert_int_equal(fake->ops->before_optimizer(fake->strategy), DPB_OK);
}

static const struct dpb_ddp_options small_buckets = {
        .bucket_bytes = 32, .first_bucket_bytes = 16, .overlap = true};
static const struct dpb_ddp_options small_without_overlap = {
        .bucket_bytes = 32, .first_bucket_bytes = 16, .overlap = false};

static void test_none(void **state)
{
    struct fake fake;

    (void)state;
    fake_open(&fake, &dpb_strategy_none_ops, 2, NULL, false);
    assert_int_equal(fake.plan.unit_count, 1);
    assert_int_equal(fake.plan.units[0].bytes, 96);
    assert_null(fake.ops->replan_after);
    run_step(&fake, 1, reverse_order);
    assert_string_equal(fake.log.text, "d c b a | L0 | W0 ");
    run_step(&fake, 2, reverse_order);
    assert_string_equal(fake.log.text, "d c b a | L0 | W0 ");
    fake_close(&fake);
}

static void test_naive(void **state)
{
    struct fake fake;

    (void)state;
    fake_open(&fake, &dpb_strategy_naive_ops, 2, NULL, false);
    assert_int_equal(fake.plan.unit_count, PARAM_COUNT);
    for (int u = 0; u < PARAM_COUNT; u++)
        assert_int_equal(fake.plan.member[fake.plan.units[u].first_member], u);
    assert_null(fake.ops->replan_after);
    run_step(&fake, 1, reverse_order);
    assert_string_equal(fake.log.text, "d c b a | L0 L1 L2 L3 | W0 W1 W2 W3 ");
    fake_close(&fake);
}

/* Step 1 has one bucket; afterwards d is the first bucket, then c, b, and a as the rest. */
static void test_ddp_rebuilds_and_overlaps(void **state)
{
    struct fake fake;

    (void)state;
    fake_open(&fake, &dpb_strategy_ddp_ops, 2, &small_buckets, true);
    assert_int_equal(fake.plan.unit_count, 1);
    run_step(&fake, 1, reverse_order);
    assert_string_equal(fake.log.text, "d c b a L0 | | W0 ");
    assert_true(fake.ops->replan_after(fake.strategy, 1));

    fake_replan(&fake, reverse_order);
    assert_int_equal(fake.plan.unit_count, 4);
    run_step(&fake, 2, reverse_order);
    assert_string_equal(fake.log.text, "d L0 c L1 b L2 a L3 | | W0 W1 W2 W3 ");
    fake_close(&fake);
}

static void test_ddp_rebuilds_once_only(void **state)
{
    struct fake fake;

    (void)state;
    fake_open(&fake, &dpb_strategy_ddp_ops, 2, &small_buckets, true);
    run_step(&fake, 1, reverse_order);
    fake_replan(&fake, reverse_order);
    for (int64_t step = 2; step < 6; step++) {
        run_step(&fake, step, reverse_order);
        assert_false(fake.ops->replan_after(fake.strategy, step));
    }
    fake_close(&fake);
}

/* A complete bucket behind an incomplete one is not launched. */
static void test_ddp_head_of_line_blocking(void **state)
{
    static const int order[PARAM_COUNT] = {2, 1, 3, 0};
    struct fake fake;

    (void)state;
    fake_open(&fake, &dpb_strategy_ddp_ops, 2, &small_buckets, true);
    run_step(&fake, 1, reverse_order);
    fake_replan(&fake, reverse_order);
    run_step(&fake, 2, order);
    assert_string_equal(fake.log.text, "c b d L0 L1 L2 a L3 | | W0 W1 W2 W3 ");
    fake_close(&fake);
}

static void test_ddp_without_overlap(void **state)
{
    struct fake fake;

    (void)state;
    fake_open(&fake, &dpb_strategy_ddp_ops, 2, &small_without_overlap, true);
    run_step(&fake, 1, reverse_order);
    assert_string_equal(fake.log.text, "d c b a | L0 | W0 ");
    fake_replan(&fake, reverse_order);
    run_step(&fake, 2, reverse_order);
    assert_string_equal(fake.log.text, "d c b a | L0 L1 L2 L3 | W0 W1 W2 W3 ");
    fake_close(&fake);
}

static int64_t described(struct fake *fake, const char *key)
{
    dpb_json *plan = dpb_json_object();
    int64_t value;

    fake->ops->describe(fake->strategy, plan);
    value = dpb_json_as_int(dpb_json_get(plan, key), -1);
    dpb_json_free(plan);
    return value;
}

/* PyTorch 2.x: the first bucket is 1 MiB with the default cap, the cap when the cap is given. */
static void test_ddp_first_bucket_auto(void **state)
{
    struct dpb_ddp_options options = {
            .bucket_bytes = 50 << 20, .first_bucket_bytes = DPB_AUTO, .overlap = true};
    struct fake fake;

    (void)state;
    fake_open(&fake, &dpb_strategy_ddp_ops, 2, &options, false);
    assert_int_equal(described(&fake, "first_bucket_bytes"), 1 << 20);
    assert_int_equal(described(&fake, "bucket_bytes"), 50 << 20);
    fake_close(&fake);

    fake_open(&fake, &dpb_strategy_ddp_ops, 2, &options, true);
    assert_int_equal(described(&fake, "first_bucket_bytes"), 50 << 20);
    fake_close(&fake);

    options.first_bucket_bytes = 7; /* asked for: taken whatever --bucket is */
    fake_open(&fake, &dpb_strategy_ddp_ops, 2, &options, true);
    assert_int_equal(described(&fake, "first_bucket_bytes"), 7);
    fake_close(&fake);
}

static void test_ddp_bad_options(void **state)
{
    const struct dpb_ddp_options bad[] = {
            {.bucket_bytes = 0, .first_bucket_bytes = 1},
            {.bucket_bytes = 1, .first_bucket_bytes = 0},
            {.bucket_bytes = 1, .first_bucket_bytes = -5},
    };
    dpb_strategy *strategy = NULL;
    int logged = 0;

    (void)state;
    dpb_log_set_sink(count_line, &logged);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        const struct dpb_strategy_config config = {.world_size = 2, .options = &bad[i]};

        assert_int_equal(dpb_strategy_ddp_ops.open(&config, &strategy), DPB_ERR_USAGE);
        assert_null(strategy);
    }
    assert_int_equal(logged, 3);
    dpb_log_set_sink(NULL, NULL);
}

/* ---- what holds for all of them ---- */

static const struct {
    const struct dpb_strategy_ops *ops;
    const void *options;
} every[] = {
        {&dpb_strategy_none_ops, NULL},
        {&dpb_strategy_naive_ops, NULL},
        {&dpb_strategy_ddp_ops, &small_buckets},
        {&dpb_strategy_ddp_ops, &small_without_overlap},
};
#define EVERY_COUNT (sizeof(every) / sizeof(every[0]))

static void test_one_rank_communicates_nothing(void **state)
{
    (void)state;
    for (size_t i = 0; i < EVERY_COUNT; i++) {
        struct fake fake;

        fake_open(&fake, every[i].ops, 1, every[i].options, true);
        run_step(&fake, 1, reverse_order);
        assert_string_equal(fake.log.text, "d c b a | | ");
        fake_replan(&fake, reverse_order);
        run_step(&fake, 2, reverse_order);
        assert_string_equal(fake.log.text, "d c b a | | ");
        fake_close(&fake);
    }
}

static void test_misuse_is_an_internal_error(void **state)
{
    (void)state;
    for (size_t i = 0; i < EVERY_COUNT; i++) {
        const struct dpb_strategy_ops *ops = every[i].ops;
        struct fake fake;

        fake_open(&fake, ops, 2, every[i].options, true);
        assert_int_equal(ops->step_begin(fake.strategy, 1), DPB_OK);
        assert_int_equal(ops->grad_ready(fake.strategy, 3), DPB_OK);
        assert_int_equal(ops->grad_ready(fake.strategy, 3), DPB_ERR_INTERNAL); /* twice */
        assert_int_equal(ops->grad_ready(fake.strategy, PARAM_COUNT), DPB_ERR_INTERNAL);
        assert_int_equal(ops->grad_ready(fake.strategy, -1), DPB_ERR_INTERNAL);
        assert_int_equal(ops->backward_end(fake.strategy), DPB_ERR_INTERNAL); /* a, b, c missing */
        assert_int_equal(fake.errors_logged, 4);
        assert_null(fake.log.text); /* nothing was launched */
        fake_close(&fake);
    }
}

static void test_failures_are_propagated(void **state)
{
    (void)state;
    for (size_t i = 0; i < EVERY_COUNT; i++) {
        const struct dpb_strategy_ops *ops = every[i].ops;
        struct fake fake;
        dpb_status st = DPB_OK;

        fake_open(&fake, ops, 2, every[i].options, true);
        fake.fail_unit = 0;
        assert_int_equal(ops->step_begin(fake.strategy, 1), DPB_OK);
        for (int p = PARAM_COUNT - 1; p >= 0 && st == DPB_OK; p--)
            st = ops->grad_ready(fake.strategy, p);
        if (st == DPB_OK)
            st = ops->backward_end(fake.strategy);
        assert_int_equal(st, DPB_ERR_RANK_FAILED);
        assert_string_equal(fake.log.text, "L0 ");
        fake_close(&fake);

        fake_open(&fake, ops, 2, every[i].options, true);
        run_step(&fake, 1, reverse_order);
        fake.fail_unit = 0;
        assert_int_equal(ops->before_optimizer(fake.strategy), DPB_ERR_TIMEOUT);
        fake_close(&fake);
    }
}

static void test_ops_check_of_strategies(void **state)
{
    struct dpb_strategy_ops bad;
    struct dpb_option_table other;
    int logged = 0;

    (void)state;
    for (size_t i = 0; i < EVERY_COUNT; i++)
        assert_int_equal(dpb_strategy_ops_check(every[i].ops), DPB_OK);

    dpb_log_set_sink(count_line, &logged);
#define EXPECT_BAD(change)                                                                         \
    do {                                                                                           \
        bad = dpb_strategy_ddp_ops;                                                                \
        change;                                                                                    \
        assert_int_equal(dpb_strategy_ops_check(&bad), DPB_ERR_INTERNAL);                          \
    } while (0)
    EXPECT_BAD(bad.version = DPB_STRATEGY_OPS_VERSION + 1);
    EXPECT_BAD(bad.name = NULL);
    EXPECT_BAD(bad.name = "");
    EXPECT_BAD(bad.summary = NULL);
    EXPECT_BAD(bad.open = NULL);
    EXPECT_BAD(bad.close = NULL);
    EXPECT_BAD(bad.plan = NULL);
    EXPECT_BAD(bad.grad_ready = NULL);
    EXPECT_BAD(bad.before_optimizer = NULL);
    EXPECT_BAD(bad.messages = NULL);
    EXPECT_BAD(bad.flags |= DPB_STRATEGY_SHARDS_PARAMETERS);
    EXPECT_BAD(bad.flags |= DPB_STRATEGY_REPLICAS_DIFFER);
    EXPECT_BAD((other = *bad.options, other.owner = "naive", bad.options = &other));
    EXPECT_BAD((other = *bad.options, other.kind = "comm", bad.options = &other));
#undef EXPECT_BAD
    assert_int_equal(dpb_strategy_ops_check(NULL), DPB_ERR_INTERNAL);
    assert_int_equal(logged, 15);
    dpb_log_set_sink(NULL, NULL);
}

static void test_option_rows(void **state)
{
    const struct dpb_option_table *table = dpb_strategy_ddp_ops.options;
    const struct {
        const char *name, *default_text;
        enum dpb_option_type type;
    } expected[] = {
            {"bucket", "25MiB", DPB_OPT_SIZE},
            {"first-bucket", "auto", DPB_OPT_SIZE},
            {"overlap", "on", DPB_OPT_BOOL},
            {"hook", "none", DPB_OPT_ENUM},
            {"ddp-compat", "2.x", DPB_OPT_ENUM},
            {"gradient-as-bucket-view", "off", DPB_OPT_BOOL},
            {"broadcast-buffers", "on", DPB_OPT_BOOL},
            {"find-unused", "off", DPB_OPT_BOOL},
            {"static-graph", "off", DPB_OPT_BOOL},
            {"last-bucket-cap", "off", DPB_OPT_BOOL},
            {"powersgd-rank", "1", DPB_OPT_INT},
            {"powersgd-start", "2", DPB_OPT_INT},
            {"powersgd-min-rate", "2", DPB_OPT_FLOAT},
            {"powersgd-error-feedback", "on", DPB_OPT_BOOL},
            {"powersgd-warm-start", "on", DPB_OPT_BOOL},
            {"powersgd-epsilon", "0", DPB_OPT_FLOAT},
    };

    (void)state;
    assert_int_equal(table->row_count, sizeof(expected) / sizeof(expected[0]));
    for (size_t i = 0; i < table->row_count; i++) {
        assert_string_equal(table->rows[i].name, expected[i].name);
        assert_string_equal(table->rows[i].default_text, expected[i].default_text);
        assert_int_equal(table->rows[i].type, expected[i].type);
        assert_string_equal(table->rows[i].category, "Communication");
        assert_true(table->rows[i].flags & DPB_OPT_COMM_ONLY);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_none),
            cmocka_unit_test(test_naive),
            cmocka_unit_test(test_ddp_rebuilds_and_overlaps),
            cmocka_unit_test(test_ddp_rebuilds_once_only),
            cmocka_unit_test(test_ddp_head_of_line_blocking),
            cmocka_unit_test(test_ddp_without_overlap),
            cmocka_unit_test(test_ddp_first_bucket_auto),
            cmocka_unit_test(test_ddp_bad_options),
            cmocka_unit_test(test_one_rank_communicates_nothing),
            cmocka_unit_test(test_misuse_is_an_internal_error),
            cmocka_unit_test(test_failures_are_propagated),
            cmocka_unit_test(test_ops_check_of_strategies),
            cmocka_unit_test(test_option_rows),
    };

    return DPB_RUN_TESTS(tests);
}

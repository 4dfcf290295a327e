/* `ddp` against a log: the buckets of each release, what is computed and sent, and in which order;
 * hooks of several stages. */
#include "dpb_test.h"

#include "../strategies/ddp_chain.h"
#include "dpb_log.h"
#include "dpb_str.h"
#include "dpb_strategies.h"

#include "model_table.h"

/* Four tensors of 4, 8, 8 and 4 elements, ready from the last to the first. */
#define PARAM_COUNT 4

static const struct dpb_param_info small_params[PARAM_COUNT] = {
        {.name = "a", .dtype = DPB_F32, .rank = 1, .dim = {4}, .numel = 4},
        {.name = "b", .dtype = DPB_F32, .rank = 1, .dim = {8}, .numel = 8},
        {.name = "c", .dtype = DPB_F32, .rank = 1, .dim = {8}, .numel = 8},
        {.name = "d", .dtype = DPB_F32, .rank = 1, .dim = {4}, .numel = 4},
};
static const int reverse_order[PARAM_COUNT] = {3, 2, 1, 0};
static const struct dpb_model small_model = {
        .params = small_params, .param_count = PARAM_COUNT, .ready_order = reverse_order};

/* ---- a step engine that writes ---- */

/* "+d" gradient d is ready; "copy", "scale" operators; "L0" the all-reduce of bucket 0, "Lmap" of
 * the usage map, "B" a broadcast; "W0" the wait; "|" the end of forward, of backward, of the wait
 * before the optimizer. */
struct fake {
    struct dpb_str log;
    const struct dpb_strategy_ops *ops;
    dpb_strategy *strategy;
    struct dpb_unit_plan plan;
    struct dpb_launcher launcher;
    struct dpb_unit_plan plans[2];
    float arena[256], shared[256], value[4];
    float *grad[PARAM_COUNT];
    size_t shared_used;
    int64_t step;
};

static struct fake *current; /* for the device and the recorder, which have no context */

static dpb_status device_alloc(dpb_device *device, size_t bytes, void **memory)
{
    (void)device;
    *memory = calloc(1, bytes);
    return *memory ? DPB_OK : DPB_ERR_NO_MEMORY;
}

static void device_free(dpb_device *device, void *memory)
{
    (void)device;
    free(memory);
}

static dpb_status device_copy(dpb_device *device, void *to, const void *from, size_t bytes,
                              dpb_stream *stream)
{
    (void)device;
    (void)stream;
    memcpy(to, from, bytes);
    return DPB_OK;
}

static dpb_status device_sync(dpb_stream *stream)
{
    (void)stream;
    return DPB_OK;
}

static dpb_status device_launch(dpb_device *device, enum dpb_op op, const void *args,
                                dpb_stream *stream)
{
    (void)device;
    (void)stream;
    if (op == DPB_OP_CAST) {
        const struct dpb_cast_args *cast = args;

        assert_int_equal(cast->from.dtype, DPB_F32);
        assert_int_equal(cast->to.dtype, DPB_F32);
        memcpy(cast->to.data, cast->from.data, (size_t)cast->from.dim[0] * sizeof(float));
        return DPB_OK;
    }
    assert_int_equal(op, DPB_OP_SCALE);
    for (int64_t i = 0; i < ((const struct dpb_scale_args *)args)->count; i++)
        ((const struct dpb_scale_args *)args)->x[i] *=
                ((const struct dpb_scale_args *)args)->factor;
    return DPB_OK;
}

static void range_begin(dpb_recorder *recorder, enum dpb_lane lane, enum dpb_event_kind kind,
                        const char *name, int32_t bucket)
{
    (void)recorder;
    (void)lane;
    (void)bucket;
    assert_int_equal(kind, DPB_EVENT_COMPUTE);
    dpb_str_appendf(&current->log, "%s ", name);
}

static void range_end(dpb_recorder *recorder, enum dpb_lane lane)
{
    (void)recorder;
    (void)lane;
}

static const struct dpb_device_ops device_ops = {.alloc = device_alloc,
                                                 .free = device_free,
                                                 .copy = device_copy,
                                                 .stream_sync = device_sync,
                                                 .op_launch = device_launch};
static const struct dpb_recorder_ops recorder_ops = {.range_begin = range_begin,
                                                     .range_end = range_end};
static struct dpb_device_base device = {.ops = &device_ops};
static struct dpb_recorder_base recorder = {.ops = &recorder_ops};

static dpb_status fake_alloc(void *ctx, size_t bytes, void **buffer)
{
    struct fake *fake = ctx;

    assert_true(fake->shared_used + bytes <= sizeof(fake->shared));
    *buffer = (char *)fake->shared + fake->shared_used;
    fake->shared_used += bytes;
    return DPB_OK;
}

static void *fake_unit_data(void *ctx, int unit)
{
    struct fake *fake = ctx;

    return (char *)fake->arena + fake->plan.units[unit].offset_bytes;
}

static float *fake_grad(void *ctx, int param)
{
    return ((struct fake *)ctx)->grad[param];
}

static void fake_bind(void *ctx, int param, float *value, float *grad)
{
    assert_null(value);
    ((struct fake *)ctx)->grad[param] = grad;
}

static bool fake_state(void *ctx, int index, struct dpb_workload_state *state)
{
    *state = (struct dpb_workload_state){
            .kind = DPB_STATE_LOCAL, .data = ((struct fake *)ctx)->value, .numel = 2};
    return index < 2;
}

static dpb_status fake_start(void *ctx, const struct dpb_sync_coll *coll, int *handle)
{
    struct fake *fake = ctx;

    *handle = coll->unit;
    if (coll->kind == DPB_COLL_BROADCAST)
        dpb_str_append(&fake->log, "B ");
    else if (coll->unit < 0)
        dpb_str_append(&fake->log, "Lmap ");
    else
        dpb_str_appendf(&fake->log, coll->scale == 1.0f ? "L%d " : "L%d/2 ", coll->unit);
    return DPB_OK;
}

static dpb_status fake_wait(void *ctx, int handle)
{
    dpb_str_appendf(&((struct fake *)ctx)->log, "W%d ", handle);
    return DPB_OK;
}

/* The plan lies where it was made: two places. */
static void use_plan(struct fake *fake, const int *ready_order)
{
    struct dpb_unit_plan *plan = &fake->plans[ready_order != NULL];

    assert_int_equal(fake->ops->plan(fake->strategy, &small_model, ready_order, plan), DPB_OK);
    fake->plan = *plan;
    fake->shared_used = 0;
    for (int p = 0; p < PARAM_COUNT; p++)
        fake->grad[p] = (float *)(void *)((char *)fake->arena + plan->offset_bytes[p]);
    assert_int_equal(fake->ops->place(fake->strategy), DPB_OK);
}

static void fake_open(struct fake *fake, const struct dpb_ddp_options *options, int world_size)
{
    const struct dpb_strategy_config config = {
            .world_size = world_size,
            .ranks_per_node = world_size,
            .options = options,
            .bucket_given = true,
            .services =
                    {
                            .ctx = fake,
                            .launcher = &fake->launcher,
                            .average = 0.5f,
                            .shared_alloc = fake_alloc,
                            .unit_data = fake_unit_data,
                            .grad = fake_grad,
                            .bind = fake_bind,
                            .state = fake_state,
                            .start = fake_start,
                            .wait = fake_wait,
                    },
    };

    *fake = (struct fake){.ops = &dpb_strategy_ddp_ops};
    current = fake;
    fake->launcher = (struct dpb_launcher){.device = (dpb_device *)&device,
                                           .recorder = (dpb_recorder *)&recorder};
    assert_int_equal(fake->ops->open(&config, &fake->strategy), DPB_OK);
    use_plan(fake, NULL);
}

static void fake_close(struct fake *fake)
{
    fake->ops->close(fake->strategy);
    for (int i = 0; i < 2; i++)
        dpb_unit_plan_release(&fake->plans[i]);
    dpb_str_release(&fake->log);
}

/* Gradients in `order`, `count` of them; the others are not used. */
static void run_step(struct fake *fake, const int *order, int count)
{
    const struct dpb_strategy_ops *ops = fake->ops;

    dpb_str_release(&fake->log);
    assert_int_equal(ops->step_begin(fake->strategy, ++fake->step), DPB_OK);
    assert_int_equal(ops->forward_begin(fake->strategy, true), DPB_OK);
    for (int i = 0; i < count; i++)
        assert_int_equal(ops->param_use(fake->strategy, order[i], DPB_PASS_FORWARD), DPB_OK);
    dpb_str_append(&fake->log, "| ");
    for (int i = 0; i < count; i++) {
        dpb_str_appendf(&fake->log, "+%s ", small_params[order[i]].name);
        assert_int_equal(ops->grad_ready(fake->strategy, order[i]), DPB_OK);
    }
    dpb_str_append(&fake->log, "| ");
    assert_int_equal(ops->backward_end(fake->strategy), DPB_OK);
    assert_int_equal(ops->before_optimizer(fake->strategy), DPB_OK);
    dpb_str_append(&fake->log, "|");
}

#define SMALL .bucket_bytes = 32, .first_bucket_bytes = 16

/* ---- copies and divisions ---- */

/* Each gradient is copied into its bucket, which the all-reduce divides, and back. */
static void test_copies(void **state)
{
    static const struct dpb_ddp_options options = {SMALL, .overlap = true};
    struct dpb_strategy_memory memory = {0};
    struct fake fake;

    (void)state;
    fake_open(&fake, &options, 2);
    run_step(&fake, reverse_order, PARAM_COUNT);
    assert_string_equal(fake.log.text,
                        "| +d bucket-copy-in +c bucket-copy-in +b bucket-copy-in "
                        "+a bucket-copy-in L0/2 | W0 bucket-copy-out bucket-copy-out "
                        "bucket-copy-out bucket-copy-out |");
    use_plan(&fake, reverse_order);
    fake.grad[3][0] = 5.0f;
    run_step(&fake, reverse_order, PARAM_COUNT);
    assert_string_equal(fake.log.text,
                        "| +d bucket-copy-in L0/2 +c bucket-copy-in L1/2 +b bucket-copy-in L2/2 "
                        "+a bucket-copy-in L3/2 | W0 bucket-copy-out W1 bucket-copy-out "
                        "W2 bucket-copy-out W3 bucket-copy-out |");
    assert_true(fake.arena[0] == 5.0f);
    fake.ops->memory(fake.strategy, &memory);
    assert_int_equal(memory.private_bytes, 4 * 64);
    assert_int_equal(memory.shared_bytes, 0);
    fake_close(&fake);
}

/* What lies in the bucket is divided there. */
static void test_bucket_view(void **state)
{
    static const struct dpb_ddp_options options = {SMALL, .overlap = true,
                                                   .gradient_as_bucket_view = true};
    struct dpb_strategy_memory memory = {0};
    struct fake fake;

    (void)state;
    fake_open(&fake, &options, 2);
    use_plan(&fake, reverse_order);
    fake.grad[3][1] = 5.0f;
    run_step(&fake, reverse_order, PARAM_COUNT);
    assert_string_equal(fake.log.text,
                        "| +d bucket-divide L0 +c bucket-divide L1 +b bucket-divide L2 "
                        "+a bucket-divide L3 | W0 W1 W2 W3 |");
    assert_true(fake.arena[1] == 2.5f);
    fake.ops->memory(fake.strategy, &memory);
    assert_int_equal(memory.private_bytes + memory.shared_bytes, 0);
    fake_close(&fake);
}

/* A hook divides the whole bucket; gradients come to it as they are. */
static void test_allreduce_hook(void **state)
{
    static const struct dpb_ddp_options options = {SMALL, .overlap = true,
                                                   .hook = DPB_DDP_HOOK_ALLREDUCE,
                                                   .gradient_as_bucket_view = true};
    struct fake fake;

    (void)state;
    fake_open(&fake, &options, 2);
    fake.grad[0][0] = fake.grad[3][3] = 3.0f;
    run_step(&fake, reverse_order, PARAM_COUNT);
    assert_string_equal(fake.log.text, "| +d +c +b +a hook-divide L0 | W0 |");
    assert_true(fake.grad[0][0] == 1.5f && fake.grad[3][3] == 1.5f);
    fake_close(&fake);
}

/* ---- what is looked for ---- */

/* An unused parameter is ready with the first gradient, as zeros; its bucket goes with the others,
 * and the usage map after the last. The buckets stay those of step 1, the small one last. */
static void test_find_unused(void **state)
{
    static const struct dpb_ddp_options options = {SMALL, .overlap = true, .find_unused = true};
    static const int without_c[] = {3, 1, 0};
    struct dpb_sync_message messages[8];
    struct fake fake;

    (void)state;
    fake_open(&fake, &options, 2);
    assert_int_equal(dpb_strategy_ddp_ops.flags_of(&options),
                     DPB_STRATEGY_FINDS_UNUSED | DPB_STRATEGY_NEEDS_HOST);
    assert_int_equal(fake.plan.unit_count, 4); /* d, c, b, a */
    fake.arena[(fake.plan.units[1].offset_bytes) / 4] = 7.0f;
    run_step(&fake, without_c, 3);
    assert_string_equal(fake.log.text,
                        "| +d bucket-zero bucket-copy-in L0/2 L1/2 +b bucket-copy-in L2/2 "
                        "+a bucket-copy-in L3/2 Lmap | W-1 W0 bucket-copy-out W1 "
                        "W2 bucket-copy-out W3 bucket-copy-out |");
    assert_true(fake.arena[fake.plan.units[1].offset_bytes / 4] == 0.0f);
    assert_false(fake.ops->has_gradient(fake.strategy, 2));
    assert_true(fake.ops->has_gradient(fake.strategy, 1));
    assert_false(fake.ops->replan_after(fake.strategy, 1));
    assert_int_equal(fake.ops->messages(fake.strategy, NULL), 5);
    fake.ops->messages(fake.strategy, messages);
    assert_int_equal(messages[4].dtype, DPB_I32);
    assert_int_equal(messages[4].count, PARAM_COUNT);

    run_step(&fake, reverse_order, PARAM_COUNT);
    assert_string_equal(fake.log.text,
                        "| +d bucket-copy-in L0/2 +c bucket-copy-in L1/2 +b bucket-copy-in L2/2 "
                        "+a bucket-copy-in L3/2 Lmap | W-1 W0 bucket-copy-out W1 bucket-copy-out "
                        "W2 bucket-copy-out W3 bucket-copy-out |");
    assert_true(fake.ops->has_gradient(fake.strategy, 2));
    fake_close(&fake);
}

/* Step 1 of a static graph: the map, all copies in the order of parameters, one bucket; later steps
 * know what is unused, and send no map. */
static void test_static_graph(void **state)
{
    static const struct dpb_ddp_options options = {SMALL, .overlap = true, .static_graph = true};
    static const int without_c[] = {3, 1, 0}, c_at_the_end[] = {3, 1, 0, 2};
    struct fake fake;

    (void)state;
    fake_open(&fake, &options, 2);
    assert_int_equal(fake.plan.unit_count, 1);
    run_step(&fake, without_c, 3);
    assert_string_equal(fake.log.text,
                        "| +d +b +a | Lmap bucket-copy-in bucket-copy-in bucket-zero "
                        "bucket-copy-in L0/2 W-1 W0 bucket-copy-out bucket-copy-out "
                        "bucket-copy-out |");
    assert_true(fake.ops->replan_after(fake.strategy, 1));
    use_plan(&fake, c_at_the_end);
    assert_int_equal(fake.plan.member[PARAM_COUNT - 1], 2);
    run_step(&fake, without_c, 3);
    assert_string_equal(fake.log.text,
                        "| +d bucket-zero bucket-copy-in L0/2 +b bucket-copy-in L1/2 "
                        "+a bucket-copy-in L2/2 | W0 bucket-copy-out W1 bucket-copy-out "
                        "W2 bucket-copy-out |");
    assert_int_equal(fake.ops->messages(fake.strategy, NULL), 3);
    fake_close(&fake);
}

/* One rank copies, divides and sends nothing, and is as `none`. */
static void test_one_rank(void **state)
{
    static const struct dpb_ddp_options options[] = {
            {SMALL, .overlap = true, .broadcast_buffers = true},
            {SMALL, .gradient_as_bucket_view = true},
            {SMALL, .hook = DPB_DDP_HOOK_FP16},
            {SMALL, .find_unused = true},
            {SMALL, .static_graph = true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
        struct dpb_strategy_memory memory = {0};
        struct fake fake;

        fake_open(&fake, &options[i], 1);
        run_step(&fake, reverse_order, PARAM_COUNT);
        assert_string_equal(fake.log.text, "| +d +c +b +a | |");
        fake.ops->memory(fake.strategy, &memory);
        assert_int_equal(memory.private_bytes + memory.shared_bytes, 0);
        assert_int_equal(fake.ops->messages(fake.strategy, NULL), 0);
        fake_close(&fake);
    }
}

/* ---- the buckets ---- */

static int64_t first_bucket_bytes(int compat, bool bucket_given)
{
    const struct dpb_ddp_options options = {
            .bucket_bytes = 50 << 20, .first_bucket_bytes = DPB_AUTO, .compat = compat};
    const struct dpb_strategy_config config = {
            .world_size = 2, .options = &options, .bucket_given = bucket_given};
    dpb_json *plan = dpb_json_object();
    dpb_strategy *strategy;
    int64_t bytes;

    assert_int_equal(dpb_strategy_ddp_ops.open(&config, &strategy), DPB_OK);
    dpb_strategy_ddp_ops.describe(strategy, plan);
    bytes = dpb_json_as_int(dpb_json_get(plan, "first_bucket_bytes"), -1);
    dpb_json_free(plan);
    dpb_strategy_ddp_ops.close(strategy);
    return bytes;
}

/* Only 2.x makes the first bucket as large as one that was asked for. */
static void test_first_bucket_by_release(void **state)
{
    (void)state;
    assert_int_equal(first_bucket_bytes(DPB_DDP_COMPAT_2_X, false), 1 << 20);
    assert_int_equal(first_bucket_bytes(DPB_DDP_COMPAT_2_X, true), 50 << 20);
    for (int given = 0; given < 2; given++) {
        assert_int_equal(first_bucket_bytes(DPB_DDP_COMPAT_1_13, given), 1 << 20);
        assert_int_equal(first_bucket_bytes(DPB_DDP_COMPAT_1_10, given), 1 << 20);
    }
}

static void expect_members(const struct dpb_ddp_options *options, const int *ready_order,
                           const char *expected)
{
    const struct dpb_strategy_config config = {.world_size = 2, .options = options};
    struct dpb_unit_plan plan;
    struct dpb_str text = {0};
    dpb_strategy *strategy;

    assert_int_equal(dpb_strategy_ddp_ops.open(&config, &strategy), DPB_OK);
    assert_int_equal(dpb_strategy_ddp_ops.plan(strategy, &small_model, ready_order, &plan), DPB_OK);
    for (int u = 0; u < plan.unit_count; u++) {
        for (int m = 0; m < plan.units[u].member_count; m++)
            dpb_str_append(&text, small_params[plan.member[plan.units[u].first_member + m]].name);
        dpb_str_append(&text, u + 1 < plan.unit_count ? " " : "");
    }
    assert_string_equal(text.text, expected);
    dpb_str_release(&text);
    dpb_strategy_ddp_ops.close(strategy);
    dpb_unit_plan_release(&plan);
}

static void test_buckets_by_release(void **state)
{
    struct dpb_ddp_options options = {.bucket_bytes = 48, .first_bucket_bytes = 16};

    (void)state;
    expect_members(&options, NULL, "abcd");
    expect_members(&options, reverse_order, "d cb a");
    options.compat = DPB_DDP_COMPAT_1_13;
    expect_members(&options, NULL, "abcd");
    options.compat = DPB_DDP_COMPAT_1_10; /* the small one, of the first parameters, last */
    expect_members(&options, NULL, "d bc a");
    expect_members(&options, reverse_order, "d cb a");
    options = (struct dpb_ddp_options){
            .bucket_bytes = 48, .first_bucket_bytes = 16, .find_unused = true};
    expect_members(&options, NULL, "d bc a");
    options.static_graph = true;
    expect_members(&options, NULL, "abcd");
    options = (struct dpb_ddp_options){
            .bucket_bytes = 48, .first_bucket_bytes = 16, .last_bucket_cap = true};
    expect_members(&options, reverse_order, "d bc a");
}

/* The first buckets of PyTorch up to 1.10, as it printed them. */
static void test_first_buckets_of_old_releases(void **state)
{
    static const struct dpb_ddp_options options = {.bucket_bytes = 25 << 20,
                                                   .first_bucket_bytes = DPB_AUTO,
                                                   .compat = DPB_DDP_COMPAT_1_10};
    static const char *const names[] = {"resnet50", "vgg16"};
    const struct dpb_strategy_config config = {.world_size = 2, .options = &options};
    dpb_json *file = NULL;

    (void)state;
    assert_int_equal(dpb_json_read_file(DPB_TEST_DATA "/ddp_bucket_assignments.json", &file),
                     DPB_OK);
    for (size_t n = 0; n < 2; n++) {
        const dpb_json *buckets =
                dpb_json_get(dpb_json_get(file, "legacy_initial_<=1.10"), names[n]);
        struct model_table table;
        struct dpb_unit_plan plan;
        dpb_strategy *strategy;

        model_table_read(names[n], &table);
        const struct dpb_model model = {.params = table.params, .param_count = table.param_count};

        assert_int_equal(dpb_strategy_ddp_ops.open(&config, &strategy), DPB_OK);
        assert_int_equal(dpb_strategy_ddp_ops.plan(strategy, &model, NULL, &plan), DPB_OK);
        assert_int_equal(plan.unit_count, dpb_json_size(buckets));
        for (int u = 0; u < plan.unit_count; u++) {
            const dpb_json *members = dpb_json_at(buckets, (size_t)u);

            assert_int_equal(plan.units[u].member_count, dpb_json_size(members));
            for (int m = 0; m < plan.units[u].member_count; m++)
                assert_int_equal(plan.member[plan.units[u].first_member + m],
                                 dpb_json_as_int(dpb_json_at(members, (size_t)m), -1));
        }
        dpb_strategy_ddp_ops.close(strategy);
        dpb_unit_plan_release(&plan);
        model_table_release(&table);
    }
    dpb_json_free(file);
}

/* ---- buffers ---- */

/* A pack is closed by the buffer that makes it 250 MiB; two are under way at a time. */
static void test_packs_of_buffers(void **state)
{
    static const int64_t numel[] = {3, 250 << 18, 1, 250 << 18, 7};
    const struct dpb_model model = {.params = small_params,
                                    .param_count = PARAM_COUNT,
                                    .buffer_count = 5,
                                    .buffer_numel = numel};
    static const struct dpb_ddp_options options = {SMALL, .broadcast_buffers = true};
    const struct dpb_strategy_config config = {.world_size = 2, .options = &options};
    struct dpb_strategy_memory memory = {0};
    struct dpb_sync_message messages[4];
    struct dpb_unit_plan plan;
    dpb_strategy *strategy;

    (void)state;
    assert_int_equal(dpb_strategy_ddp_ops.open(&config, &strategy), DPB_OK);
    assert_int_equal(dpb_strategy_ddp_ops.plan(strategy, &model, NULL, &plan), DPB_OK);
    assert_int_equal(dpb_strategy_ddp_ops.messages(strategy, NULL), 3 + 1);
    dpb_strategy_ddp_ops.messages(strategy, messages);
    assert_int_equal(messages[0].count, 3 + (250 << 18));
    assert_int_equal(messages[1].count, 1 + (250 << 18));
    assert_int_equal(messages[2].count, 7);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(messages[i].kind, DPB_COLL_BROADCAST);
        assert_int_equal(messages[i].when, DPB_SYNC_BEFORE_FORWARD);
        assert_int_equal(messages[i].unit, -1);
    }
    dpb_strategy_ddp_ops.memory(strategy, &memory);
    assert_int_equal(memory.shared_bytes, 2 * ((250 << 20) + 64));
    dpb_strategy_ddp_ops.close(strategy);
    dpb_unit_plan_release(&plan);
}

/* ---- hooks of several stages ---- */

/* Collective s of bucket u is number 10 u + s; `done` says which are complete. */
struct two_stages {
    struct dpb_str log;
    bool done[40];
};

static dpb_status stage_test(void *ctx, int handle)
{
    return ((struct two_stages *)ctx)->done[handle] ? DPB_OK : DPB_PENDING;
}

static dpb_status stage_wait(void *ctx, int handle)
{
    dpb_str_appendf(&((struct two_stages *)ctx)->log, "W%d ", handle);
    return DPB_OK;
}

static int stage_count(ddp_hook *hook, int unit)
{
    (void)hook;
    return unit == 1 ? 1 : 2;
}

static dpb_status stage_start(ddp_hook *hook, int unit, int stage,
                              int handle[DDP_HOOK_COLLECTIVES_MAX], int *count)
{
    handle[0] = 10 * unit + stage;
    *count = 1;
    dpb_str_appendf(&((struct two_stages *)hook)->log, "S%d ", handle[0]);
    return DPB_OK;
}

static void expect_advance(struct ddp_chain *chain, int complete, bool waits, const char *expected)
{
    struct two_stages *stages = (struct two_stages *)chain->hook;

    dpb_str_release(&stages->log);
    dpb_str_append(&stages->log, "");
    assert_int_equal(ddp_chain_advance(chain, complete, waits), DPB_OK);
    assert_string_equal(stages->log.text ? stages->log.text : "", expected);
}

/* A bucket's second stage waits for the first, and the next bucket for the second to be started:
 * the order of starts does not depend on when collectives end. */
static void test_stages_keep_one_order(void **state)
{
    static const struct ddp_hook_ops ops = {.stages = stage_count, .start = stage_start};
    struct two_stages stages = {0};
    const struct dpb_sync_services services = {
            .ctx = &stages, .test = stage_test, .wait = stage_wait};
    struct ddp_chain chain = {.ops = &ops, .hook = (ddp_hook *)&stages, .services = &services};

    (void)state;
    assert_int_equal(ddp_chain_plan(&chain, 3), DPB_OK);
    expect_advance(&chain, 0, false, "");
    expect_advance(&chain, 1, false, "S0 ");
    expect_advance(&chain, 2, false, ""); /* 0 is not complete */
    stages.done[0] = true;
    expect_advance(&chain, 2, false, "W0 S1 S10 "); /* one stage: nothing waits for it */
    expect_advance(&chain, 3, false, "S20 ");
    assert_false(ddp_chain_is_through(&chain));
    expect_advance(&chain, 3, false, "");
    expect_advance(&chain, 3, true, "W20 S21 ");
    assert_true(ddp_chain_is_through(&chain));
    dpb_str_release(&stages.log);
    assert_int_equal(ddp_chain_finish(&chain, 0), DPB_OK);
    assert_int_equal(ddp_chain_finish(&chain, 2), DPB_OK);
    assert_string_equal(stages.log.text, "W1 W21 ");

    /* Nothing is complete before the end: the same order. */
    memset(stages.done, 0, sizeof(stages.done));
    ddp_chain_begin(&chain);
    expect_advance(&chain, 3, false, "S0 ");
    expect_advance(&chain, 3, true, "W0 S1 S10 S20 W20 S21 ");
    ddp_chain_release(&chain);
    dpb_str_release(&stages.log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_copies),
            cmocka_unit_test(test_bucket_view),
            cmocka_unit_test(test_allreduce_hook),
            cmocka_unit_test(test_find_unused),
            cmocka_unit_test(test_static_graph),
            cmocka_unit_test(test_one_rank),
            cmocka_unit_test(test_first_bucket_by_release),
            cmocka_unit_test(test_buckets_by_release),
            cmocka_unit_test(test_first_buckets_of_old_releases),
            cmocka_unit_test(test_packs_of_buffers),
            cmocka_unit_test(test_stages_keep_one_order),
    };

    return DPB_RUN_TESTS(tests);
}

#include "horovod_world.h"

#include "dpb_comm.h"
#include "dpb_test.h"

static const char *const words[] = {"CYCLE_START", "NEGOTIATE_ALLREDUCE", "QUEUE",
                                    "MEMCPY_IN_FUSION_BUFFER", "MEMCPY_OUT_FUSION_BUFFER"};

static float *float_at(struct world *world, int64_t offset_bytes)
{
    return world->memory + offset_bytes / (int64_t)sizeof(float);
}

static dpb_status fake_alloc(void *ctx, size_t bytes, void **buffer)
{
    struct world *world = ctx;

    *buffer = float_at(world, world->plan.arena_bytes + world->shared_bytes);
    world->shared_allocs++;
    world->shared_bytes += (int64_t)bytes;
    assert_true(world->plan.arena_bytes + world->shared_bytes <= (int64_t)sizeof(world->memory));
    return DPB_OK;
}

static void *fake_unit_data(void *ctx, int unit)
{
    struct world *world = ctx;

    return float_at(world, world->plan.units[unit].offset_bytes);
}

float *fake_grad(void *ctx, int param)
{
    struct world *world = ctx;

    return float_at(world, world->plan.offset_bytes[param]);
}

/* The other rank has the same, and 100 arrives with the sum. */
static dpb_status fake_start(void *ctx, const struct dpb_sync_coll *coll, int *handle)
{
    struct world *world = ctx;
    float *at = coll->buffer;
    uint16_t *half = coll->buffer;
    const int64_t begin_ns =
            world->last_end_ns > world->now_ns ? world->last_end_ns : world->now_ns;

    assert_int_equal(coll->kind, DPB_COLL_ALL_REDUCE);
    assert_string_equal(coll->name, "ALLREDUCE");
    assert_in_range(coll->count, 1, FLOATS);
    for (int64_t i = 0; i < coll->count; i++) {
        if (coll->dtype == DPB_F16)
            half[i] = (uint16_t)(half[i] + 100);
        else
            at[i] = at[i] * coll->scale * (float)RANKS + 100.0f;
    }
    /* It reduces gradients that the background has awaited, and no others. */
    assert_in_range(world->awaited_elements, 1, coll->count);
    world->awaited_elements = 0;
    dpb_str_appendf(&world->log, "%d.%d ", coll->unit, (int)coll->count);
    *handle = world->started;
    world->offset_bytes[world->started] = (char *)coll->buffer - (char *)world->memory;
    world->last_end_ns = world->end_ns[world->started] = begin_ns + world->reduce_ns;
    world->elements += coll->count;
    return ++world->started == world->fail_start ? DPB_ERR_RANK_FAILED : DPB_OK;
}

static dpb_status fake_note(void *ctx, int param)
{
    struct world *world = ctx;

    assert_in_range(param, 0, world->model->param_count - 1);
    world->noted++;
    return DPB_OK;
}

static dpb_status fake_await_gradient(void *ctx, int param)
{
    struct world *world = ctx;

    assert_true(world->awaited < world->noted);
    world->awaited++;
    world->awaited_elements += world->model->params[param].numel;
    return DPB_OK;
}

static dpb_status fake_join(void *ctx)
{
    struct world *world = ctx;

    assert_int_equal(world->awaited, world->noted);
    world->joins++;
    return DPB_OK;
}

static dpb_status fake_test(void *ctx, int handle)
{
    const struct world *world = ctx;

    return world->end_ns[handle] <= world->now_ns ? DPB_OK : DPB_PENDING;
}

static dpb_status fake_wait_on_host(void *ctx, int handle)
{
    struct world *world = ctx;

    if (world->now_ns < world->end_ns[handle])
        world->now_ns = world->end_ns[handle];
    dpb_str_appendf(&world->log, "w%d ", handle);
    return DPB_OK;
}

static dpb_status fake_exchange(void *ctx, const void *mine, size_t bytes, void *all)
{
    assert_in_range(bytes, 1, DPB_COMM_EXCHANGE_BYTES);
    ((struct world *)ctx)->exchanges++;
    for (size_t r = 0; r < RANKS; r++)
        memcpy((char *)all + r * bytes, mine, bytes);
    return DPB_OK;
}

static void fake_lock(void *ctx)
{
    (void)ctx;
}

static dpb_status tick(struct world *world)
{
    if (world->now_ns < world->tick_ns)
        world->now_ns = world->tick_ns;
    world->ticks++;
    return world->ops->tick(world->strategy, world->now_ns, &world->tick_ns);
}

static dpb_status fake_await(void *ctx)
{
    struct world *world = ctx;

    assert_true(world->tick_ns < INT64_MAX);
    return tick(world);
}

static int64_t fake_span_begin(void *ctx)
{
    return ((struct world *)ctx)->now_ns;
}

static void fake_span_end(void *ctx, int64_t begin, const char *name, int unit)
{
    struct world *world = ctx;

    assert_true(begin <= world->now_ns);
    assert_in_range(unit + 1, 0, world->plan.unit_count);
    for (size_t w = 0; w < sizeof(words) / sizeof(words[0]); w++)
        world->word_count[w] += strcmp(words[w], name) == 0;
}

static dpb_status fake_copy(dpb_device *device, void *to, const void *from, size_t bytes,
                            dpb_stream *stream)
{
    (void)device;
    (void)stream;
    memcpy(to, from, bytes);
    return DPB_OK;
}

/* fp16 is played by small integers. */
static dpb_status fake_op(dpb_device *device, enum dpb_op op, const void *args, dpb_stream *stream)
{
    (void)device;
    (void)stream;
    if (op == DPB_OP_SCALE) {
        const struct dpb_scale_args *scale = args;

        for (int64_t i = 0; i < scale->count; i++)
            scale->x[i] *= scale->factor;
        return DPB_OK;
    }
    assert_int_equal(op, DPB_OP_CAST);
    const struct dpb_cast_args *cast = args;
    const bool narrow = cast->to.dtype == DPB_F16;
    float *wide = narrow ? cast->from.data : cast->to.data;
    uint16_t *half = narrow ? cast->to.data : cast->from.data;

    assert_int_equal(narrow ? cast->from.dtype : cast->to.dtype, DPB_F32);
    for (int64_t i = 0; i < cast->from.dim[0]; i++) {
        if (narrow)
            half[i] = (uint16_t)wide[i];
        else
            wide[i] = (float)half[i];
    }
    return DPB_OK;
}

bool world_has_fp16;

static bool fake_op_supported(dpb_device *device, enum dpb_op op, enum dpb_dtype dtype)
{
    (void)device;
    return op == DPB_OP_CAST && dtype == DPB_F16 && world_has_fp16;
}

static void range_begin(dpb_recorder *recorder, enum dpb_lane lane, enum dpb_event_kind kind,
                        const char *name, int32_t bucket)
{
    (void)recorder;
    (void)lane;
    (void)kind;
    (void)name;
    (void)bucket;
}

static void range_end(dpb_recorder *recorder, enum dpb_lane lane)
{
    (void)recorder;
    (void)lane;
}

static const struct dpb_device_ops device_ops = {
        .name = "fake", .copy = fake_copy, .op_launch = fake_op, .op_supported = fake_op_supported};
static const struct dpb_recorder_ops recorder_ops = {.range_begin = range_begin,
                                                     .range_end = range_end};
static struct dpb_device_base device = {.ops = &device_ops};
static struct dpb_recorder_base recorder = {.ops = &recorder_ops};

void count_error(void *ctx, enum dpb_log_level level, const char *line)
{
    if (level == DPB_LOG_ERROR && !strstr(line, "hint: "))
        ++*(int *)ctx;
}

dpb_status world_open(struct world *world, const struct dpb_model *model, int world_size,
                      const struct dpb_horovod_options *options)
{
    const struct dpb_strategy_ops *ops = &dpb_strategy_horovod_ops;
    const struct dpb_strategy_config config = {
            .world_size = world_size,
            .ranks_per_node = 1,
            .options = options,
            .services =
                    {
                            .ctx = world,
                            .launcher = &world->launcher,
                            .background = &world->launcher,
                            .note_gradient = fake_note,
                            .await_gradient = fake_await_gradient,
                            .join_background = fake_join,
                            .average = 1.0f / (float)world_size,
                            .shared_alloc = fake_alloc,
                            .unit_data = fake_unit_data,
                            .grad = fake_grad,
                            .start = fake_start,
                            .test = fake_test,
                            .wait_on_host = fake_wait_on_host,
                            .exchange = fake_exchange,
                            .lock = fake_lock,
                            .unlock = fake_lock,
                            .await = fake_await,
                            .span_begin = fake_span_begin,
                            .span_end = fake_span_end,
                    },
    };

    *world = (struct world){.ops = ops, .model = model, .gradient_ns = 100 * US};
    world->launcher = (struct dpb_launcher){.device = (dpb_device *)&device,
                                            .recorder = (dpb_recorder *)&recorder};
    dpb_log_set_sink(count_error, &world->errors);
    assert_int_equal(ops->open(&config, &world->strategy), DPB_OK);
    assert_int_equal(ops->plan(world->strategy, model, NULL, &world->plan), DPB_OK);
    assert_int_equal(world->plan.unit_count, model->param_count);
    return ops->place(world->strategy);
}

void world_close(struct world *world)
{
    world->ops->close(world->strategy);
    dpb_unit_plan_release(&world->plan);
    dpb_str_release(&world->log);
    dpb_log_set_sink(NULL, NULL);
}

float gradient_of(int param, int64_t element)
{
    return (float)(100 * param + element);
}

/* A gradient is complete; what the coordinator does until then. */
static dpb_status backward_of(struct world *world, int param)
{
    const int64_t done_ns = world->now_ns + world->gradient_ns;

    while (world->tick_ns <= done_ns)
        DPB_TRY(tick(world));
    if (world->now_ns < done_ns)
        world->now_ns = done_ns;
    for (int64_t i = 0; i < world->model->params[param].numel; i++)
        fake_grad(world, param)[i] = gradient_of(param, i);
    dpb_str_appendf(&world->log, "%s ", world->model->params[param].name);
    return world->ops->grad_ready(world->strategy, param);
}

dpb_status world_step(struct world *world)
{
    const struct dpb_strategy_ops *ops = world->ops;

    dpb_str_release(&world->log);
    world->started = 0;
    world->elements = 0;
    DPB_TRY(ops->step_begin(world->strategy, 1));
    world->tick_ns = world->now_ns;
    DPB_TRY(tick(world));
    DPB_TRY(ops->forward_begin(world->strategy, true));
    for (int i = 0; i < world->model->param_count; i++)
        DPB_TRY(backward_of(world, world->model->ready_order[i]));
    dpb_str_append(&world->log, "| ");
    DPB_TRY(ops->backward_end(world->strategy));
    world->joins = 0;
    DPB_TRY(ops->before_optimizer(world->strategy));
    assert_int_equal(world->joins, world->started > 0 ? 1 : 0);
    assert_int_equal(world->tick_ns, INT64_MAX);
    world->now_ns += 7 * US;
    return DPB_OK;
}

void expect_step(struct world *world, const char *expected)
{
    assert_int_equal(world_step(world), DPB_OK);
    assert_string_equal(world->log.text, expected);
    for (int p = 0; p < world->model->param_count; p++)
        for (int64_t i = 0; i < world->model->params[p].numel; i++)
            assert_float_equal(fake_grad(world, p)[i], gradient_of(p, i) + 100.0f, 0.0);
}

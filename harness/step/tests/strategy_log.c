#include "dpb_test.h"
#include "strategy_log.h"

#include "dpb_log.h"

static const struct dpb_param_info params[LOG_PARAMS] = {
        {.name = "a", .dtype = DPB_F32, .rank = 1, .dim = {4}, .numel = 4},
        {.name = "b", .dtype = DPB_F32, .rank = 1, .dim = {8}, .numel = 8},
        {.name = "c", .dtype = DPB_F32, .rank = 1, .dim = {8}, .numel = 8},
        {.name = "d", .dtype = DPB_F32, .rank = 1, .dim = {4}, .numel = 4},
};
const int log_reverse_order[LOG_PARAMS] = {3, 2, 1, 0};
const struct dpb_model log_model = {
        .params = params, .param_count = LOG_PARAMS, .ready_order = log_reverse_order};

/* ---- a recorder and a device that only write ---- */

struct log_recorder {
    struct dpb_recorder_base base;
    struct strategy_log *log;
};

static void range_begin(dpb_recorder *recorder, enum dpb_lane lane, enum dpb_event_kind kind,
                        const char *name, int32_t bucket)
{
    (void)lane;
    (void)kind;
    (void)bucket;
    dpb_str_appendf(&((struct log_recorder *)recorder)->log->text, "%s ", name);
}

static void range_end(dpb_recorder *recorder, enum dpb_lane lane)
{
    (void)recorder;
    (void)lane;
}

static dpb_status copy(dpb_device *device, void *to, const void *from, size_t bytes,
                       dpb_stream *stream)
{
    (void)device;
    (void)stream;
    assert_ptr_not_equal(to, from);
    memcpy(to, from, bytes);
    return DPB_OK;
}

static dpb_status op_launch(dpb_device *device, enum dpb_op op, const void *args,
                            dpb_stream *stream)
{
    (void)device;
    (void)args;
    (void)stream;
    assert_int_equal(op, DPB_OP_SCALE);
    return DPB_OK;
}

static const struct dpb_recorder_ops recorder_ops = {.range_begin = range_begin,
                                                     .range_end = range_end};
static const struct dpb_device_ops device_ops = {.copy = copy, .op_launch = op_launch};
static struct dpb_device_base device = {.ops = &device_ops};
static struct log_recorder recorder = {.base = {.ops = &recorder_ops}};

/* ---- services ---- */

static dpb_status fake_alloc(void *ctx, size_t bytes, void **buffer)
{
    struct strategy_log *log = ctx;
    const size_t used = 512 + (size_t)log->shared_bytes / sizeof(float);

    assert_true(used + bytes / sizeof(float) <= sizeof(log->memory) / sizeof(log->memory[0]));
    *buffer = log->memory + used;
    log->shared_allocs++;
    log->shared_bytes += (int64_t)bytes;
    return DPB_OK;
}

static void *fake_unit_data(void *ctx, int unit)
{
    struct strategy_log *log = ctx;

    return (char *)log->memory + log->plan.units[unit].offset_bytes;
}

static float *fake_grad(void *ctx, int param)
{
    struct strategy_log *log = ctx;

    return (float *)(void *)((char *)log->memory + log->plan.offset_bytes[param]);
}

static float *fake_param(void *ctx, int param)
{
    return ((struct strategy_log *)ctx)->value[param];
}

static void fake_bind(void *ctx, int param, float *value, float *grad)
{
    assert_null(grad);
    ((struct strategy_log *)ctx)->value[param] = value;
}

static dpb_status fake_start(void *ctx, const struct dpb_sync_coll *coll, int *handle)
{
    struct strategy_log *log = ctx;

    dpb_str_appendf(&log->text, "%s%s%d.%d", coll->follows ? "~" : "", dpb_coll_text(coll->kind),
                    coll->unit, (int)coll->count);
    if (coll->root > 0)
        dpb_str_appendf(&log->text, "@%d", coll->root);
    dpb_str_append(&log->text, " ");
    *handle = ++log->started;
    return log->started == log->fail_start ? DPB_ERR_RANK_FAILED : DPB_OK;
}

static dpb_status fake_wait(void *ctx, int handle)
{
    struct strategy_log *log = ctx;

    dpb_str_appendf(&log->text, "wait%d ", handle);
    return handle == log->fail_wait ? DPB_ERR_TIMEOUT : DPB_OK;
}

static void count_error(void *ctx, enum dpb_log_level level, const char *line)
{
    (void)line;
    if (level == DPB_LOG_ERROR)
        ++*(int *)ctx;
}

static void keep_line(void *ctx, enum dpb_log_level level, const char *line)
{
    (void)level;
    dpb_str_appendf(ctx, "%s\n", line);
}

/* ---- use ---- */

void strategy_log_open(struct strategy_log *log, const struct dpb_strategy_ops *ops,
                       const void *options, int rank, int world_size)
{
    const struct dpb_strategy_config config = {
            .rank = rank,
            .world_size = world_size,
            .ranks_per_node = world_size,
            .options = options,
            .optimizer_is_elementwise = true,
            .services =
                    {
                            .ctx = log,
                            .launcher = &log->launcher,
                            .average = 1.0f / (float)world_size,
                            .shared_alloc = fake_alloc,
                            .unit_data = fake_unit_data,
                            .param = fake_param,
                            .grad = fake_grad,
                            .bind = fake_bind,
                            .start = fake_start,
                            .wait = fake_wait,
                    },
    };

    *log = (struct strategy_log){.ops = ops};
    recorder.log = log;
    log->launcher = (struct dpb_launcher){.device = (dpb_device *)&device,
                                          .recorder = (dpb_recorder *)&recorder};
    dpb_log_set_sink(count_error, &log->errors);
    assert_int_equal(ops->open(&config, &log->strategy), DPB_OK);
    assert_int_equal(ops->plan(log->strategy, &log_model, NULL, &log->plan), DPB_OK);
    if (ops->place)
        assert_int_equal(ops->place(log->strategy), DPB_OK);
}

void strategy_log_close(struct strategy_log *log)
{
    log->ops->close(log->strategy);
    dpb_unit_plan_release(&log->plan);
    dpb_str_release(&log->text);
    dpb_log_set_sink(NULL, NULL);
}

dpb_status strategy_log_try(const struct dpb_strategy_ops *ops, const void *options, bool is_gpu,
                            bool elementwise, struct dpb_str *errors)
{
    const struct dpb_strategy_config config = {
            .world_size = 2,
            .ranks_per_node = 2,
            .options = options,
            .is_gpu = is_gpu,
            .optimizer_is_elementwise = elementwise,
    };
    dpb_strategy *strategy = NULL;
    dpb_status st;

    dpb_log_set_sink(keep_line, errors);
    st = ops->open(&config, &strategy);
    dpb_log_set_sink(NULL, NULL);
    if (st >= 0)
        ops->close(strategy);
    return st;
}

static dpb_status run_backward(struct strategy_log *log, const int *order)
{
    for (int i = 0; i < LOG_PARAMS; i++) {
        if (log->ops->param_use)
            DPB_TRY(log->ops->param_use(log->strategy, order[i], DPB_PASS_BACKWARD));
        dpb_str_appendf(&log->text, "%s ", params[order[i]].name);
        DPB_TRY(log->ops->grad_ready(log->strategy, order[i]));
    }
    return DPB_OK;
}

static dpb_status run_forward(struct strategy_log *log)
{
    if (log->ops->forward_begin)
        DPB_TRY(log->ops->forward_begin(log->strategy, true));
    for (int p = 0; p < LOG_PARAMS && log->ops->param_use; p++) {
        dpb_str_appendf(&log->text, "%s ", params[p].name);
        DPB_TRY(log->ops->param_use(log->strategy, p, DPB_PASS_FORWARD));
    }
    return log->ops->forward_end ? log->ops->forward_end(log->strategy) : DPB_OK;
}

dpb_status strategy_log_step(struct strategy_log *log, const int *order)
{
    return strategy_log_step_number(log, 1, order);
}

dpb_status strategy_log_step_number(struct strategy_log *log, int64_t step, const int *order)
{
    dpb_str_release(&log->text);
    log->started = 0;
    DPB_TRY(log->ops->step_begin(log->strategy, step));
    DPB_TRY(run_forward(log));
    dpb_str_append(&log->text, "| ");
    DPB_TRY(run_backward(log, order));
    dpb_str_append(&log->text, "| ");
    DPB_TRY(log->ops->backward_end(log->strategy));
    DPB_TRY(log->ops->before_optimizer(log->strategy));
    dpb_str_append(&log->text, "| ");
    if (log->ops->after_optimizer)
        DPB_TRY(log->ops->after_optimizer(log->strategy));
    dpb_str_append(&log->text, "|");
    return DPB_OK;
}

int64_t strategy_log_described(const struct strategy_log *log, const char *key)
{
    dpb_json *plan = dpb_json_object();
    int64_t value;

    log->ops->describe(log->strategy, plan);
    value = dpb_json_as_int(dpb_json_get(plan, key), -1);
    dpb_json_free(plan);
    return value;
}

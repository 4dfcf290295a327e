#include "dpb_test.h"
#include "golden.h"

#include <stdlib.h>
#include <unistd.h>

#include "dpb_comm_shm.h"
#include "dpb_device_cpu.h"
#include "dpb_log.h"

#include "forked.h"

#define PARAMS 4

/* ---- the workload ---- */

struct golden_options {
    const float (*input)[GOLDEN_ELEMENTS];
    struct golden_report *report;
};

struct dpb_workload {
    struct dpb_workload_base base;
    struct golden_options options;
    const struct dpb_param_watch *watch;
    float *param[PARAMS], *grad[PARAMS];
    float *first_grad[PARAMS]; /* of the first backward pass */
    int forwards, backwards, updates;
};

static const struct dpb_param_info params[PARAMS] = {
        {.name = "w1", .dtype = DPB_F32, .rank = 2, .dim = {12, 8}, .numel = 96},
        {.name = "b1", .dtype = DPB_F32, .rank = 1, .dim = {12}, .numel = 12},
        {.name = "w2", .dtype = DPB_F32, .rank = 2, .dim = {6, 20}, .numel = 120},
        {.name = "w3", .dtype = DPB_F32, .rank = 2, .dim = {4, 2}, .numel = 8},
};
static const int ready_order[PARAMS] = {3, 2, 1, 0};
static const struct dpb_layer_info layer = {.name = "all", .kind = "test"};

static const struct dpb_model *golden_model(const void *options)
{
    static const struct dpb_model model = {.params = params,
                                           .param_count = PARAMS,
                                           .layers = &layer,
                                           .layer_count = 1,
                                           .ready_order = ready_order};

    (void)options;
    return &model;
}

static dpb_status golden_open(const struct dpb_workload_config *config, dpb_workload **workload)
{
    extern const struct dpb_workload_ops golden_workload_ops;
    dpb_workload *self = calloc(1, sizeof(*self));

    if (!self)
        return DPB_ERR_NO_MEMORY;
    self->base.ops = &golden_workload_ops;
    self->options = *(const struct golden_options *)config->options;
    self->watch = config->watch;
    *workload = self;
    return DPB_OK;
}

static void golden_close(dpb_workload *workload)
{
    free(workload);
}

static void golden_bind(dpb_workload *workload, float *const *param, float *const *grad)
{
    for (int p = 0; p < PARAMS; p++) {
        workload->param[p] = param[p];
        workload->grad[p] = grad[p];
    }
}

static dpb_status golden_init(dpb_workload *workload, uint64_t seed)
{
    (void)seed;
    for (int p = 0; p < PARAMS; p++)
        if (workload->param[p])
            memset(workload->param[p], 0, (size_t)params[p].numel * sizeof(float));
    return DPB_OK;
}

static void gather(float *const *from, float *to)
{
    for (int p = 0; p < PARAMS; p++) {
        memcpy(to, from[p], (size_t)params[p].numel * sizeof(float));
        to += params[p].numel;
    }
}

static dpb_status golden_forward(dpb_workload *workload, const struct dpb_batch *batch,
                                 bool training, int64_t slot)
{
    (void)batch;
    (void)training;
    (void)slot;
    if (++workload->forwards == 2)
        gather(workload->first_grad, workload->options.report->local);
    for (int p = 0; p < PARAMS; p++)
        DPB_TRY(dpb_param_use(workload->watch, p, DPB_PASS_FORWARD));
    return DPB_OK;
}

static dpb_status golden_read_result(dpb_workload *workload, int64_t slot,
                                     struct dpb_forward_result *result)
{
    (void)workload;
    (void)slot;
    *result = (struct dpb_forward_result){0};
    return DPB_OK;
}

static dpb_status golden_backward(dpb_workload *workload, const struct dpb_batch *batch,
                                  float grad_scale, dpb_grad_ready ready, void *ctx)
{
    (void)batch;
    if (grad_scale != 1.0f || workload->backwards == GOLDEN_STEPS)
        return DPB_ERR_INTERNAL;
    for (int i = 0; i < PARAMS; i++) {
        const int p = ready_order[i];
        const float *from = workload->options.input[workload->backwards];

        for (int before = 0; before < p; before++)
            from += params[before].numel;
        DPB_TRY(dpb_param_use(workload->watch, p, DPB_PASS_BACKWARD));
        memcpy(workload->grad[p], from, (size_t)params[p].numel * sizeof(float));
        if (workload->backwards == 0)
            workload->first_grad[p] = workload->grad[p];
        DPB_TRY(ready(ctx, p));
    }
    workload->backwards++;
    return DPB_OK;
}

/* After the gradients have been reduced; they are where those of the first micro-batch were put. */
static dpb_status golden_update(dpb_workload *workload,
                                const struct dpb_optimizer_config *optimizer, int64_t step)
{
    (void)optimizer;
    (void)step;
    gather(workload->forwards == workload->updates + 1 ? workload->grad : workload->first_grad,
           workload->options.report->reduced[workload->updates]);
    workload->updates++;
    return DPB_OK;
}

static int64_t golden_activation_bytes(dpb_workload *workload)
{
    (void)workload;
    return 0;
}

const struct dpb_workload_ops golden_workload_ops = {
        .version = DPB_WORKLOAD_OPS_VERSION,
        .name = "golden",
        .summary = "given gradients",
        .training = {.lr = 1.0},
        .model = golden_model,
        .open = golden_open,
        .close = golden_close,
        .bind = golden_bind,
        .init_params = golden_init,
        .forward = golden_forward,
        .read_result = golden_read_result,
        .backward = golden_backward,
        .update = golden_update,
        .activation_bytes = golden_activation_bytes,
};

/* ---- a rank ---- */

static dpb_status next_batch(void *ctx, int64_t step, struct dpb_batch *batch)
{
    static const int64_t id = 0;

    (void)ctx;
    (void)step;
    *batch = (struct dpb_batch){.samples = 1, .sample_ids = &id};
    return DPB_OK;
}

static void keep_line(void *ctx, enum dpb_log_level level, const char *line)
{
    struct golden_report *report = ctx;
    const size_t used = strlen(report->log);

    (void)level;
    snprintf(report->log + used, sizeof(report->log) - used, "%s\n", line);
}

static dpb_status train(struct golden_run *run, int rank, dpb_device *device, dpb_comm *comm)
{
    const struct golden_options options = {.input = run->input[rank], .report = &run->report[rank]};
    /* One sample per rank, whatever the number of micro-batches: gradients are not scaled. */
    const struct dpb_step_config config = {
            .device = device,
            .comm = comm,
            .workload = &golden_workload_ops,
            .workload_options = &options,
            .strategy = run->strategy,
            .strategy_options = run->options,
            .bucket_given = true,
            .source = {.next = next_batch},
            .batch_max = 1,
            .global_batch = run->ranks,
            .accumulate = run->accumulate,
            .optimizer = {.kind = DPB_OPTIMIZER_SGD, .lr = 1.0},
    };
    dpb_step_engine *engine = NULL;
    struct dpb_step_times times;
    dpb_status st = dpb_step_open(&config, &engine);

    for (int step = 0; step < run->steps && st == DPB_OK; step++) {
        st = dpb_step_run(engine, &times);
        if (st == DPB_OK)
            st = dpb_step_check_replicas(engine);
    }
    dpb_step_close(engine);
    return st;
}

static void run_rank(int rank, void *shared)
{
    struct golden_run *run = shared;
    struct golden_report *report = &run->report[rank];
    const struct dpb_comm_shm_options comm_options = {.algorithm = DPB_ALGORITHM_DIRECT};
    const struct dpb_comm_config comm_config = {
            .rank = rank,
            .size = run->ranks,
            .local_rank = rank,
            .segment_fd = run->segment_fd,
            .timeout_ns = INT64_C(30000000000),
            .options = &comm_options,
    };
    const struct dpb_device_config device_config = {
            .local_rank = rank, .local_size = run->ranks, .threads = 1};
    dpb_device *device = NULL;
    dpb_comm *comm = NULL;

    dpb_log_set_sink(keep_line, report);
    report->status = dpb_device_cpu_ops.open(&device_config, &device);
    if (report->status == DPB_OK)
        report->status = dpb_comm_shm_ops.open(&comm_config, &comm);
    if (report->status == DPB_OK)
        report->status = train(run, rank, device, comm);
    if (comm)
        dpb_comm_shm_ops.close(comm);
    if (device)
        dpb_device_cpu_ops.close(device);
    dpb_log_set_sink(NULL, NULL);
}

/* ---- the file ---- */

static int flatten(const dpb_json *from, float *to)
{
    int count = 0;

    if (dpb_json_size(from) == 0) {
        *to = (float)dpb_json_as_real(from, 0.0);
        return 1;
    }
    for (size_t i = 0; i < dpb_json_size(from); i++)
        count += flatten(dpb_json_at(from, i), to + count);
    return count;
}

static void read_tensors(const char *key, const char *rank, int step, float *values)
{
    dpb_json *file = NULL;
    const dpb_json *at;

    assert_int_equal(dpb_json_read_file(DPB_TEST_DATA "/golden_ddp_hooks_ws2.json", &file), DPB_OK);
    at = dpb_json_get(file, key);
    if (rank)
        at = dpb_json_get(at, rank);
    if (step >= 0)
        at = dpb_json_at(at, (size_t)step);
    assert_int_equal(dpb_json_size(at), PARAMS);
    assert_int_equal(flatten(at, values), GOLDEN_ELEMENTS);
    dpb_json_free(file);
}

void golden_read(const char *key, int step, float *values)
{
    read_tensors(key, NULL, step, values);
}

void golden_read_of_rank(const char *key, int rank, int step, float *values)
{
    read_tensors(key, rank == 0 ? "0" : "1", step, values);
}

/* ---- runs ---- */

struct golden_run *golden_run_new(const struct dpb_strategy_ops *strategy, const void *options,
                                  int steps)
{
    struct golden_run *run = forked_memory(sizeof(*run));

    run->ranks = 2;
    run->steps = steps;
    run->accumulate = 1;
    run->strategy = strategy;
    run->options = options;
    for (int r = 0; r < run->ranks; r++)
        for (int s = 0; s < GOLDEN_STEPS; s++)
            golden_read_of_rank("rank_inputs", r, s, run->input[r][s]);
    return run;
}

void golden_run_free(struct golden_run *run)
{
    forked_memory_free(run, sizeof(*run));
}

void golden_run_all(struct golden_run *run)
{
    assert_int_equal(dpb_comm_segment_new(run->ranks, &run->segment_fd), DPB_OK);
    assert_int_equal(forked_run(run->ranks, run_rank, run), 0);
    close(run->segment_fd);
    for (int r = 0; r < run->ranks; r++) {
        if (run->report[r].log[0])
            print_error("rank %d: %s", r, run->report[r].log);
        assert_int_equal(run->report[r].status, DPB_OK);
    }
}

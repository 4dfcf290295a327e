/* Every workload with every strategy on a device that is as unhelpful as an accelerator may be
 * (lazy_device.h, lazy_comm.h), against the same on the CPU: the same bits of all parameters,
 * state, losses and results, whatever order things run in. And what a program forgets is found. */
#include "dpb_test.h"

#include <math.h>
#include <unistd.h>

#include "dlrm.h"
#include "dpb_comm_shm.h"
#include "dpb_dataset.h"
#include "dpb_device_cpu.h"
#include "dpb_log.h"
#include "dpb_step.h"
#include "dpb_strategies.h"
#include "dpb_workloads.h"
#include "forked.h"
#include "lazy_comm.h"
#include "lazy_device.h"
#include "tiny_dlrm.h"
#include "tiny_network.h"
#include "tiny_transformers.h"

#define RANKS_MAX 3
#define STEPS     4
#define EACH      6 /* samples of a micro-batch, of all ranks */
#define SAMPLES   (4 * EACH)

/* ---- workloads ---- */

static const struct tiny_transformer_options drops = {.dropout = 0.1};

struct lazy_case {
    const char *name;
    const struct dpb_workload_ops *workload;
    const void *options;
    enum dpb_dtype precision;
    bool sync_bn;
    enum dpb_optimizer_kind optimizer;
};

static const struct lazy_case cases[] = {
        {"network", &tiny_network_ops, NULL, DPB_F32, false, DPB_OPTIMIZER_SGD},
        {"network bf16", &tiny_network_ops, NULL, DPB_BF16, false, DPB_OPTIMIZER_LARS},
        {"network sync-bn", &tiny_network_ops, NULL, DPB_F32, true, DPB_OPTIMIZER_SGD},
        {"bert", &tiny_bert_ops, &drops, DPB_F32, false, DPB_OPTIMIZER_ADAMW},
        {"bert bf16", &tiny_bert_ops, NULL, DPB_BF16, false, DPB_OPTIMIZER_LAMB},
        {"gpt2", &tiny_gpt2_ops, &drops, DPB_F32, false, DPB_OPTIMIZER_ADAMW},
        {"dlrm dense", &tiny_dlrm_dense_ops, NULL, DPB_F32, false, DPB_OPTIMIZER_ADAGRAD},
        {"dlrm sparse", &tiny_dlrm_sparse_ops, NULL, DPB_F32, false, DPB_OPTIMIZER_ROWWISE_ADAGRAD},
        {"dlrm sharded", &tiny_dlrm_sharded_ops, NULL, DPB_BF16, false, DPB_OPTIMIZER_ADAGRAD},
        {"integers", &dpb_workload_integers_ops, NULL, DPB_F32, false, DPB_OPTIMIZER_SGD},
};

#define CASES (sizeof(cases) / sizeof(cases[0]))

/* ---- strategies ---- */

#define DDP(...)                                                                                   \
    {                                                                                              \
        .bucket_bytes = 512, .first_bucket_bytes = 256, .overlap = true, __VA_ARGS__               \
    }

static const struct dpb_ddp_options views = DDP(.gradient_as_bucket_view = true), copies = DDP(),
                                    fp16 = DDP(.hook = DPB_DDP_HOOK_FP16),
                                    finding = DDP(.find_unused = true),
                                    buffers = DDP(.broadcast_buffers = true),
                                    powersgd = DDP(.hook = DPB_DDP_HOOK_POWERSGD,
                                                   .powersgd = {.rank = 1,
                                                                .start_step = 2,
                                                                .min_rate = 1.0,
                                                                .epsilon = 1e-8,
                                                                .error_feedback = true});
static const struct dpb_horovod_options horovod = {.threshold_bytes = 2048,
                                                   .cycle_ns = 100000,
                                                   .cache_capacity = 1024,
                                                   .predivide_factor = 1.0};
/* What an accelerator would choose otherwise than a CPU is said. */
static const struct dpb_mirrored_options mirrored = {.cross_device_ops = DPB_CROSS_DEVICE_NCCL,
                                                     .num_packs = 2};
static const struct dpb_mirrored_options copied = {
        .cross_device_ops = DPB_CROSS_DEVICE_HIERARCHICAL_COPY, .num_packs = 1};
static const struct dpb_mwms_options mwms = {.bytes_per_pack = 512};
static const struct dpb_zero1_options zero1 = {.bucket_bytes = 512, .gather_bytes = 1024},
                                      zero1_late = {.bucket_bytes = 512,
                                                    .overlap_param_gather = true,
                                                    .gather_bytes = 1024},
                                      zero1_deepspeed = {.variant = DPB_ZERO1_DEEPSPEED,
                                                         .bucket_bytes = 512,
                                                         .gather_bytes = 1024};
static const struct dpb_zero2_options zero2 = {.bucket_bytes = 512, .gather_bucket_bytes = 1024},
                                      zero2_deepspeed = {.variant = DPB_ZERO2_DEEPSPEED,
                                                         .bucket_bytes = 2048,
                                                         .gather_bucket_bytes = 1024,
                                                         .overlap = DPB_ZERO2_OVERLAP_ON};
static const struct dpb_fsdp_options fsdp = {.limit_all_gathers = true},
                                     fsdp_grad_op = {.sharding = DPB_FSDP_SHARD_GRAD_OP,
                                                     .forward_prefetch = true};
static const struct dpb_local_sgd_options local_sgd = {.sync_every = 2};

struct lazy_strategy {
    const char *name;
    const struct dpb_strategy_ops *ops;
    const void *options;
};

static const struct lazy_strategy strategies[] = {
        {"none", &dpb_strategy_none_ops, NULL},
        {"naive", &dpb_strategy_naive_ops, NULL},
        {"ddp views", &dpb_strategy_ddp_ops, &views},
        {"ddp copies", &dpb_strategy_ddp_ops, &copies},
        {"ddp fp16", &dpb_strategy_ddp_ops, &fp16},
        {"ddp find-unused", &dpb_strategy_ddp_ops, &finding},
        {"ddp buffers", &dpb_strategy_ddp_ops, &buffers},
        {"ddp powersgd", &dpb_strategy_ddp_ops, &powersgd},
        {"horovod", &dpb_strategy_horovod_ops, &horovod},
        {"mirrored", &dpb_strategy_mirrored_ops, &mirrored},
        {"mirrored copies", &dpb_strategy_mirrored_ops, &copied},
        {"mwms", &dpb_strategy_mwms_ops, &mwms},
        {"zero1", &dpb_strategy_zero1_ops, &zero1},
        {"zero1 late", &dpb_strategy_zero1_ops, &zero1_late},
        {"zero1 deepspeed", &dpb_strategy_zero1_ops, &zero1_deepspeed},
        {"zero2", &dpb_strategy_zero2_ops, &zero2},
        {"zero2 deepspeed", &dpb_strategy_zero2_ops, &zero2_deepspeed},
        {"fsdp", &dpb_strategy_fsdp_ops, &fsdp},
        {"fsdp grad-op", &dpb_strategy_fsdp_ops, &fsdp_grad_op},
        {"local-sgd", &dpb_strategy_local_sgd_ops, &local_sgd},
};

#define STRATEGIES (sizeof(strategies) / sizeof(strategies[0]))

/* A network whose gradients overflow, on the rank that has the first sample: in step 2, or in every
 * step. */
static dpb_status overflow_backward(dpb_workload *workload, const struct dpb_batch *batch,
                                    float grad_scale, dpb_grad_ready ready, void *ctx)
{
    return tiny_network_ops.backward(workload, batch,
                                     batch->first == 0 && batch->step == 2 ? INFINITY : grad_scale,
                                     ready, ctx);
}

static dpb_status always_backward(dpb_workload *workload, const struct dpb_batch *batch,
                                  float grad_scale, dpb_grad_ready ready, void *ctx)
{
    return tiny_network_ops.backward(workload, batch, batch->first == 0 ? INFINITY : grad_scale,
                                     ready, ctx);
}

/* A network that fails in step 3, the first that is captured. */
static dpb_status failing_backward(dpb_workload *workload, const struct dpb_batch *batch,
                                   float grad_scale, dpb_grad_ready ready, void *ctx)
{
    if (batch->step == 3)
        return DPB_ERR_CHECK;
    return tiny_network_ops.backward(workload, batch, grad_scale, ready, ctx);
}

static struct dpb_workload_ops overflow_ops, always_ops, failing_ops;

static const struct lazy_case failing = {"failing in step 3", &failing_ops, NULL, DPB_F32, false,
                                         DPB_OPTIMIZER_SGD};

static const struct lazy_case overflow = {"overflow in step 2", &overflow_ops, NULL, DPB_F32, false,
                                          DPB_OPTIMIZER_ADAMW};
static const struct lazy_case always = {"overflow", &always_ops, NULL,
                                        DPB_F32,    false,       DPB_OPTIMIZER_ADAMW};

/* ---- a rank ---- */

struct report {
    dpb_status status;
    uint64_t start_hash, hash;
    double loss[STEPS];
    int64_t correct[STEPS];
    double test_loss;
    int64_t test_correct;
    double loss_scale;
    int64_t skipped, captured, graphs;
    int64_t bytes, host_bytes, predicted_bytes, predicted_host_bytes; /* of a lazy device */
    bool has_times; /* phases of every step are not negative, and forward takes time */
    char log[1024];
};

struct lazy_run {
    const struct lazy_case *of;
    const struct lazy_strategy *strategy;
    int ranks;
    int64_t accumulate;
    bool is_lazy, capture;
    double loss_scale, lr;
    uint64_t seed;
    enum lazy_fault fault;
    enum lazy_comm_fault comm_fault;
    int segment_fd;
    struct report report[RANKS_MAX];
};

static void keep_line(void *ctx, enum dpb_log_level level, const char *line)
{
    struct report *report = ctx;

    if (level == DPB_LOG_ERROR && !report->log[0])
        snprintf(report->log, sizeof(report->log), "%s", line);
}

struct rank {
    dpb_device *inner_device, *device;
    dpb_comm *inner_comm, *comm;
    dpb_dataset *dataset;
    dpb_loader *loader, *test_loader;
    dpb_step_engine *engine;
};

static dpb_status open_parts(const struct lazy_run *run, int number, struct rank *rank)
{
    const struct dpb_device_config device = {.local_size = 1, .threads = 1};
    const struct dpb_comm_shm_options options = {.algorithm = DPB_ALGORITHM_DIRECT};
    const struct dpb_comm_config comm = {.rank = number,
                                         .size = run->ranks,
                                         .local_rank = number,
                                         .segment_fd = run->segment_fd,
                                         .timeout_ns = INT64_C(20000000000),
                                         .options = &options};

    DPB_TRY(dpb_device_cpu_ops.open(&device, &rank->inner_device));
    DPB_TRY(dpb_comm_shm_ops.open(&comm, &rank->inner_comm));
    rank->device = rank->inner_device;
    rank->comm = rank->inner_comm;
    if (!run->is_lazy)
        return DPB_OK;
    rank->device = lazy_device_of(rank->inner_device, run->seed * 64 + (uint64_t)number);
    rank->comm =
            rank->device ? lazy_comm_of(rank->inner_comm, rank->device, run->comm_fault) : NULL;
    return rank->comm ? DPB_OK : DPB_ERR_NO_MEMORY;
}

static dpb_status open_data(const struct lazy_run *run, int number, struct rank *rank)
{
    const struct dpb_dataset_config data = {.kind = "synthetic",
                                            .model = run->of->workload->model(run->of->options),
                                            .seed = 5,
                                            .samples = SAMPLES};
    struct dpb_loader_config loader = {.global_batch = EACH,
                                       .batches_per_step = run->accumulate,
                                       .ranks = run->ranks,
                                       .rank = number,
                                       .shuffle = true,
                                       .background = true};

    DPB_TRY(dpb_dataset_open(&data, DPB_SPLIT_TRAIN, &rank->dataset));
    loader.dataset = rank->dataset;
    DPB_TRY(dpb_loader_open(&loader, &rank->loader));
    loader.batches_per_step = 1;
    loader.epochs = 1;
    return dpb_loader_open(&loader, &rank->test_loader);
}

static struct dpb_optimizer_config optimizer_of_run(const struct lazy_run *run)
{
    struct dpb_optimizer_config config = dpb_optimizer_defaults(run->of->optimizer);

    config.lr = run->lr > 0.0 ? run->lr : 1e-2;
    if (run->of->workload->update)
        config.weight_decay = 0.0;
    return config;
}

/* Without AVX-512 oneDNN has no bf16: then in fp32, for the order of things. */
static enum dpb_dtype precision_here(const struct lazy_run *run, const struct rank *rank)
{
    return dpb_device_cpu_ops.op_supported(rank->inner_device, DPB_OP_MATMUL, run->of->precision)
                   ? run->of->precision
                   : DPB_F32;
}

static dpb_status open_engine(const struct lazy_run *run, struct rank *rank)
{
    struct dpb_step_config config = {.device = rank->device,
                                     .comm = rank->comm,
                                     .workload = run->of->workload,
                                     .workload_options = run->of->options,
                                     .strategy = run->strategy->ops,
                                     .strategy_options = run->strategy->options,
                                     .bucket_given = true,
                                     .source = dpb_loader_source(rank->loader),
                                     .batch_max = EACH,
                                     .global_batch = EACH * run->accumulate,
                                     .accumulate = run->accumulate,
                                     .seed = 1,
                                     .precision = precision_here(run, rank),
                                     .loss_scale = run->loss_scale,
                                     .capture = run->capture,
                                     .sync_batch_statistics = run->of->sync_bn,
                                     .optimizer = optimizer_of_run(run)};

    config.batch_max = EACH / run->ranks;
    return dpb_step_open(&config, &rank->engine);
}

/* What is taken, and what would have been predicted. */
static dpb_status note_memory(const struct lazy_run *run, const struct rank *rank,
                              struct report *report)
{
    const struct dpb_workload_ops *workload = run->of->workload;
    const int number = dpb_comm_get_base(rank->comm)->rank;
    const struct dpb_optimizer_config optimizer = optimizer_of_run(run);
    const struct dpb_step_shape shape = {.model = workload->model(run->of->options),
                                         .optimizer = &optimizer,
                                         .strategy = run->strategy->ops,
                                         .strategy_options = run->strategy->options,
                                         .bucket_given = true,
                                         .ranks = run->ranks,
                                         .is_gpu = true,
                                         .accumulate = run->accumulate};
    const struct dpb_workload_sizes sizes = {.batch_max = EACH / run->ranks,
                                             .global_batch = EACH * run->accumulate,
                                             .rank = number,
                                             .ranks = run->ranks,
                                             .precision = precision_here(run, rank),
                                             .sync_batch_statistics = run->of->sync_bn,
                                             .optimizer = optimizer,
                                             .results = run->accumulate};
    struct dpb_step_memory step;
    struct dpb_step_staging staging;

    report->bytes = lazy_device_bytes(rank->device);
    report->host_bytes = lazy_device_host_bytes(rank->device);
    if (!workload->activation_bytes_for || !workload->host_bytes_for)
        return DPB_OK;
    DPB_TRY(dpb_step_memory_predict(&shape, number, &step));
    dpb_step_staging_predict(shape.model, sizes.batch_max,
                             run->loss_scale == DPB_LOSS_SCALE_DYNAMIC, &staging);
    report->predicted_bytes = step.parameters + step.gradients + step.optimizer +
                              step.communication + step.strategy + staging.device_bytes +
                              workload->activation_bytes_for(run->of->options, &sizes);
    report->predicted_host_bytes =
            staging.host_bytes + workload->host_bytes_for(run->of->options, &sizes);
    return DPB_OK;
}

static dpb_status train(const struct lazy_run *run, struct rank *rank, struct report *report)
{
    const struct dpb_batch_source test = dpb_loader_source(rank->test_loader);
    int64_t samples;

    report->has_times = true;
    if (run->is_lazy)
        DPB_TRY(note_memory(run, rank, report));
    DPB_TRY(dpb_step_hash(rank->engine, &report->start_hash));
    if (run->is_lazy)
        lazy_device_set_fault(rank->device, run->fault);
    for (int s = 0; s < STEPS; s++) {
        struct dpb_step_times times;

        DPB_TRY(dpb_step_run(rank->engine, &times));
        report->loss[s] = times.loss_sum;
        report->correct[s] = times.correct;
        report->has_times &= times.forward_ns > 0 && times.backward_ns >= 0 && times.sync_ns >= 0 &&
                             times.optimizer_ns >= 0 && times.end_ns > times.start_ns;
    }
    if (run->is_lazy)
        lazy_device_set_fault(rank->device, LAZY_NO_FAULT);
    if (run->fault == LAZY_NO_FAULT && run->comm_fault == LAZY_COMM_NO_FAULT)
        DPB_TRY(dpb_step_check_replicas(rank->engine));
    DPB_TRY(dpb_step_hash(rank->engine, &report->hash));
    dpb_step_loss_scale(rank->engine, &report->loss_scale, &report->skipped);
    report->captured = dpb_step_captured(rank->engine);
    return dpb_step_evaluate(rank->engine, &test, &report->test_correct, &samples,
                             &report->test_loss);
}

static void close_rank(const struct lazy_run *run, struct rank *rank)
{
    if (rank->engine)
        dpb_step_close(rank->engine);
    dpb_loader_close(rank->test_loader);
    dpb_loader_close(rank->loader);
    dpb_dataset_close(rank->dataset);
    if (run->is_lazy) {
        lazy_comm_close(rank->comm);
        if (rank->inner_comm)
            dpb_comm_shm_ops.close(rank->inner_comm);
        lazy_device_close(rank->device);
    } else if (rank->inner_comm) {
        dpb_comm_shm_ops.close(rank->inner_comm);
    }
    if (rank->inner_device)
        dpb_device_cpu_ops.close(rank->inner_device);
}

static void run_rank(int number, void *shared)
{
    struct lazy_run *run = shared;
    struct report *report = &run->report[number];
    struct rank rank = {0};

    dpb_log_set_sink(keep_line, report);
    report->status = open_parts(run, number, &rank);
    if (report->status >= 0)
        report->status = open_data(run, number, &rank);
    if (report->status >= 0)
        report->status = open_engine(run, &rank);
    if (report->status >= 0)
        report->status = train(run, &rank, report);
    report->graphs = run->is_lazy && rank.device ? lazy_device_graphs(rank.device) : 0;
    close_rank(run, &rank);
}

/* ---- comparing ---- */

/* How many processes did not end well. */
static int run_all(struct lazy_run *run)
{
    int bad;

    memset(run->report, 0, sizeof(run->report));
    assert_int_equal(dpb_comm_segment_new(run->ranks, &run->segment_fd), DPB_OK);
    bad = forked_run(run->ranks, run_rank, run);
    close(run->segment_fd);
    return bad;
}

static struct lazy_run *run_new(const struct lazy_case *of, const struct lazy_strategy *strategy,
                                int ranks, int64_t accumulate)
{
    struct lazy_run *run = forked_memory(sizeof(*run));

    run->of = of;
    run->strategy = strategy;
    run->ranks = ranks;
    run->accumulate = accumulate;
    return run;
}

static bool is_same(const struct report *a, const struct report *b)
{
    return a->status == b->status && a->hash == b->hash &&
           memcmp(a->loss, b->loss, sizeof(a->loss)) == 0 &&
           memcmp(a->correct, b->correct, sizeof(a->correct)) == 0 &&
           memcmp(&a->test_loss, &b->test_loss, sizeof(a->test_loss)) == 0 &&
           a->test_correct == b->test_correct && a->loss_scale == b->loss_scale &&
           a->skipped == b->skipped;
}

static void expect_same(const struct lazy_run *plain, const struct lazy_run *lazy)
{
    for (int r = 0; r < plain->ranks; r++) {
        const struct report *a = &plain->report[r], *b = &lazy->report[r];

        if (!is_same(a, b))
            fail_msg("%s with %s, rank %d of %d, %lld micro-batches, seed %llu: status %d and %d, "
                     "hash %llx and %llx, loss %.9g and %.9g; \"%s\" \"%s\"",
                     plain->of->name, plain->strategy->name, r, plain->ranks,
                     (long long)plain->accumulate, (unsigned long long)lazy->seed, a->status,
                     b->status, (unsigned long long)a->hash, (unsigned long long)b->hash,
                     a->loss[STEPS - 1], b->loss[STEPS - 1], a->log, b->log);
        if (b->status >= 0)
            assert_true(b->has_times);
    }
}

static void copy_setting(struct lazy_run *to, const struct lazy_run *from)
{
    to->loss_scale = from->loss_scale;
    to->lr = from->lr;
}

/* On the CPU, then lazily with some seeds. What the CPU refuses (a strategy that does not go with
 * what the workload exchanges) the lazy device refuses, too. */
static void check(struct lazy_run *plain, int seeds)
{
    assert_int_equal(run_all(plain), 0);
    if (plain->report[0].status != DPB_OK && plain->report[0].status != DPB_ERR_USAGE)
        fail_msg("%s with %s: %s", plain->of->name, plain->strategy->name, plain->report[0].log);
    for (int seed = 1; seed <= seeds; seed++) {
        struct lazy_run *lazy =
                run_new(plain->of, plain->strategy, plain->ranks, plain->accumulate);

        copy_setting(lazy, plain);
        lazy->is_lazy = true;
        lazy->seed = (uint64_t)seed;
        if (run_all(lazy) != 0)
            fail_msg("%s with %s on %d ranks, %lld micro-batches, seed %d: a rank died; \"%s\"",
                     plain->of->name, plain->strategy->name, plain->ranks,
                     (long long)plain->accumulate, seed, lazy->report[0].log);
        expect_same(plain, lazy);
        forked_memory_free(lazy, sizeof(*lazy));
    }
}

static void check_pair(const struct lazy_case *of, const struct lazy_strategy *strategy, int ranks,
                       int64_t accumulate, int seeds)
{
    struct lazy_run *plain = run_new(of, strategy, ranks, accumulate);

    check(plain, seeds);
    forked_memory_free(plain, sizeof(*plain));
}

/* Every strategy with one network: all numbers of ranks, and with DPB_TESTS_FULL=1 each of them
 * with both of micro-batches. */
static void test_strategies(void **state)
{
    (void)state;
    for (size_t s = 0; s < STRATEGIES; s++)
        for (int ranks = 1; ranks <= RANKS_MAX; ranks++)
            for (int64_t accumulate = 1; accumulate <= 2; accumulate++)
                if (dpb_tests_full() || (int64_t)(s + (size_t)ranks) % 2 == accumulate % 2)
                    check_pair(&cases[0], &strategies[s], ranks, accumulate, 1);
}

/* Every workload with every third strategy, each of which meets three workloads, or, with
 * DPB_TESTS_FULL=1, with every one; the numbers of ranks and micro-batches go round. */
static void test_workloads(void **state)
{
    (void)state;
    for (size_t c = 1; c < CASES; c++)
        for (size_t s = dpb_tests_full() ? 0 : c % 3; s < STRATEGIES; s += dpb_tests_full() ? 1 : 3)
            check_pair(&cases[c], &strategies[s], 1 + (int)((c + s + c / 3) % RANKS_MAX),
                       1 + (int64_t)((c + s / 3) % 2), 1);
}

/* More orders of what runs when. */
static void test_schedules(void **state)
{
    (void)state;
    check_pair(&cases[0], &strategies[2], 2, 1, 12);
    check_pair(&cases[3], &strategies[17], 2, 2, 6);
    check_pair(&cases[6], &strategies[12], 3, 2, 6);
    check_pair(&cases[8], &strategies[3], 2, 1, 6);
}

/* ---- loss scaling ---- */

/* A power of two changes nothing where nothing is rounded away. */
static void test_loss_scale_is_taken_out_again(void **state)
{
    static const double scales[] = {0.0, 1024.0, DPB_LOSS_SCALE_DYNAMIC};
    static const int some[] = {0, 2, 12, 15, 17};

    (void)state;
    for (size_t s = 0; s < sizeof(some) / sizeof(some[0]); s++) {
        uint64_t hash = 0;

        for (size_t i = 0; i < 3; i++) {
            struct lazy_run *plain = run_new(&cases[0], &strategies[some[s]], 2, 1);

            plain->loss_scale = scales[i];
            check(plain, 1);
            assert_int_equal(plain->report[0].status, DPB_OK);
            assert_int_equal(plain->report[0].skipped, 0);
            assert_true(plain->report[0].loss_scale == (i == 2 ? 65536.0 : scales[i]));
            if (i == 0)
                hash = plain->report[0].hash;
            assert_true(plain->report[0].hash == hash);
            forked_memory_free(plain, sizeof(*plain));
        }
    }
}

/* Every rank skips a step that overflows on one, and the scale becomes half. */
static void test_steps_that_overflow_are_skipped(void **state)
{
    static const int some[] = {0, 2, 8, 12, 15, 17};

    (void)state;
    for (size_t s = 0; s < sizeof(some) / sizeof(some[0]); s++) {
        for (int all = 0; all < 2; all++) {
            struct lazy_run *plain = run_new(all ? &always : &overflow, &strategies[some[s]], 3, 1);

            plain->loss_scale = DPB_LOSS_SCALE_DYNAMIC;
            check(plain, 1);
            for (int r = 0; r < 3; r++) {
                const struct report *report = &plain->report[r];

                assert_int_equal(report->status, DPB_OK);
                assert_int_equal(report->skipped, all ? STEPS : 1);
                assert_true(report->loss_scale == (all ? 65536.0 / (1 << STEPS) : 32768.0));
                assert_int_equal(report->hash == report->start_hash, all);
            }
            forked_memory_free(plain, sizeof(*plain));
        }
    }
}

/* ---- graphs ---- */

static void test_graphs(void **state)
{
    static const int some[] = {0, 1, 2, 3, 4, 9, 11, 12, 15, 17, 19};

    (void)state;
    for (size_t s = 0; s < sizeof(some) / sizeof(some[0]); s++) {
        for (int c = 0; c < 7; c += 3) {
            struct lazy_run *plain = run_new(&cases[c], &strategies[some[s]], 2, 1);
            struct lazy_run *graph = run_new(&cases[c], &strategies[some[s]], 2, 1);

            graph->is_lazy = graph->capture = true;
            assert_int_equal(run_all(plain), 0);
            assert_int_equal(run_all(graph), 0);
            for (int r = 0; r < 2; r++)
                graph->report[r].has_times = true; /* a graph has no marks */
            expect_same(plain, graph);
            if (graph->report[0].status != DPB_OK)
                fail_msg("%s with %s: \"%s\"", cases[c].name, strategies[some[s]].name,
                         graph->report[0].log);
            assert_int_equal(graph->report[0].captured, STEPS - 2);
            assert_int_equal(graph->report[0].graphs, STEPS - 2);
            forked_memory_free(graph, sizeof(*graph));
            forked_memory_free(plain, sizeof(*plain));
        }
    }
}

/* The recording ends with the step, or the stream could not be closed. */
static void test_a_graph_ends_where_its_step_fails(void **state)
{
    struct lazy_run *run = run_new(&failing, &strategies[0], 1, 1);

    (void)state;
    run->is_lazy = run->capture = true;
    assert_int_equal(run_all(run), 0);
    assert_int_equal(run->report[0].status, DPB_ERR_CHECK);
    assert_int_equal(run->report[0].graphs, 1);
    forked_memory_free(run, sizeof(*run));
}

static void expect_no_graph(const struct lazy_case *of, const struct lazy_strategy *strategy,
                            int64_t accumulate, double loss_scale, bool is_lazy, const char *why)
{
    struct lazy_run *run = run_new(of, strategy, 2, accumulate);

    run->capture = true;
    run->is_lazy = is_lazy;
    run->loss_scale = loss_scale;
    assert_int_equal(run_all(run), 0);
    for (int r = 0; r < 2; r++) {
        if (run->report[r].status != DPB_ERR_USAGE || !strstr(run->report[r].log, why))
            fail_msg("%s with %s: \"%s\" does not say \"%s\"", of->name, strategy->name,
                     run->report[r].log, why);
    }
    forked_memory_free(run, sizeof(*run));
}

static void test_what_cannot_be_a_graph(void **state)
{
    (void)state;
    expect_no_graph(&cases[0], &strategies[0], 1, 0.0, false, "the device runs nothing");
    expect_no_graph(&cases[0], &strategies[0], 2, 0.0, true, "micro-batches");
    expect_no_graph(&cases[0], &strategies[8], 1, 0.0, true, "the strategy");
    expect_no_graph(&cases[0], &strategies[5], 1, 0.0, true, "the strategy");
    expect_no_graph(&cases[0], &strategies[7], 1, 0.0, true, "the strategy");
    expect_no_graph(&cases[2], &strategies[2], 1, 0.0, true, "the workload");
    expect_no_graph(&cases[8], &strategies[2], 1, 0.0, true, "the workload");
    expect_no_graph(&cases[0], &strategies[2], 1, DPB_LOSS_SCALE_DYNAMIC, true, "loss scale");
}

/* ---- what is forgotten is found ---- */

#define FAULT_SEEDS 8

/* In how many schedules. */
static int found(struct lazy_run *like, enum lazy_fault fault, enum lazy_comm_fault comm_fault)
{
    int count = 0;

    assert_int_equal(run_all(like), 0);
    for (int seed = 1; seed <= FAULT_SEEDS; seed++) {
        struct lazy_run *lazy = run_new(like->of, like->strategy, like->ranks, like->accumulate);
        bool differs = false;

        copy_setting(lazy, like);
        lazy->is_lazy = true;
        lazy->seed = (uint64_t)seed;
        lazy->fault = fault;
        lazy->comm_fault = comm_fault;
        differs |= run_all(lazy) != 0;
        for (int r = 0; r < like->ranks; r++)
            differs |= !is_same(&like->report[r], &lazy->report[r]);
        count += differs;
        forked_memory_free(lazy, sizeof(*lazy));
    }
    forked_memory_free(like, sizeof(*like));
    return count;
}

static void test_what_is_forgotten_is_found(void **state)
{
    int without_fault, sync, stage, after, before_update;

    (void)state;
    without_fault =
            found(run_new(&cases[0], &strategies[2], 2, 1), LAZY_NO_FAULT, LAZY_COMM_NO_FAULT);
    /* a loss is read before the stream has been waited for */
    sync = found(run_new(&cases[0], &strategies[0], 1, 1), LAZY_NO_SYNC, LAZY_COMM_NO_FAULT);
    /* a batch is written over one that has not been copied; nothing else waits for a mark here */
    stage = found(run_new(&cases[0], &strategies[0], 1, 4), LAZY_NO_STREAM_WAIT,
                  LAZY_COMM_NO_FAULT);
    after = found(run_new(&cases[0], &strategies[2], 2, 1), LAZY_NO_FAULT, LAZY_COMM_NO_AFTER);
    before_update =
            found(run_new(&cases[0], &strategies[2], 2, 1), LAZY_NO_FAULT, LAZY_COMM_NO_WAIT);
    print_message(
            "found in %d schedules: no fault %d, results read early %d, a batch written early "
            "%d, a collective started early %d, an update made early %d\n",
            FAULT_SEEDS, without_fault, sync, stage, after, before_update);
    assert_int_equal(without_fault, 0);
    assert_true(sync > 0 && stage > 0 && after > 0 && before_update > 0);
}

/* ---- the lazy device itself ---- */

static void touch(int rank, void *shared)
{
    const struct dpb_device_config config = {.local_size = 1, .threads = 1};
    dpb_device *inner, *device;
    void *memory;

    (void)rank;
    (void)shared;
    if (dpb_device_cpu_ops.open(&config, &inner) < 0 || !(device = lazy_device_of(inner, 1)) ||
        dpb_device_get_ops(device)->alloc(device, 64, &memory) < 0)
        _exit(0); /* which fails the test */
    *(volatile float *)memory = 1.0f;
    _exit(0);
}

static void give_host_memory(int rank, void *shared)
{
    const struct dpb_device_config config = {.local_size = 1, .threads = 1};
    float values[4] = {0};
    const struct dpb_scale_args scale = {.x = values, .count = 4, .factor = 2.0f};
    dpb_device *inner, *device;
    dpb_stream *stream;

    (void)rank;
    if (dpb_device_cpu_ops.open(&config, &inner) < 0 || !(device = lazy_device_of(inner, 1)) ||
        dpb_device_get_ops(device)->stream_open(device, &stream) < 0 ||
        dpb_op_launch(device, DPB_OP_SCALE, &scale, stream) < 0)
        _exit(1);
    *(dpb_status *)shared = dpb_device_get_ops(device)->stream_sync(stream);
    _exit(0);
}

static void test_the_lazy_device_is_strict(void **state)
{
    dpb_status *status = forked_memory(sizeof(*status));

    (void)state;
    assert_int_equal(forked_run(1, touch, NULL), 1);
    assert_int_equal(forked_run(1, give_host_memory, status), 0);
    assert_int_equal(*status, DPB_ERR_INTERNAL);
    forked_memory_free(status, sizeof(*status));
}

/* Memory of an accelerator, and of the host for copies, as it is predicted: never less than what is
 * taken, and more only by what is none of the device's (a table of the host's that counts rows) or
 * what this strategy may need later (a plan that is made anew). */
#define MEMORY_STRATEGIES  4
#define MEMORY_SLACK_BYTES 2048

static void check_memory(const struct lazy_case *of, const struct lazy_strategy *strategy,
                         int64_t accumulate, double loss_scale)
{
    struct lazy_run *run = run_new(of, strategy, 2, accumulate);

    run->is_lazy = true;
    run->seed = 1;
    run->loss_scale = loss_scale;
    assert_int_equal(run_all(run), 0);
    for (int r = 0; r < run->ranks; r++) {
        const struct report *report = &run->report[r];

        if (report->predicted_bytes == 0) /* refused, as in check() */
            continue;
        if (report->host_bytes != report->predicted_host_bytes ||
            report->bytes > report->predicted_bytes ||
            report->predicted_bytes - report->bytes > MEMORY_SLACK_BYTES)
            fail_msg("%s with %s, rank %d: %lld bytes are taken, predicted were %lld; of the host "
                     "%lld and %lld",
                     of->name, strategy->name, r, (long long)report->bytes,
                     (long long)report->predicted_bytes, (long long)report->host_bytes,
                     (long long)report->predicted_host_bytes);
    }
    forked_memory_free(run, sizeof(*run));
}

static void test_memory_is_predicted(void **state)
{
    (void)state;
    for (size_t c = 0; c < CASES; c++) {
        for (size_t k = 0; k < MEMORY_STRATEGIES; k++)
            check_memory(&cases[c], &strategies[(c * 3 + k * 5) % STRATEGIES], 1 + (int64_t)k % 2,
                         0.0);
    }
    check_memory(&cases[0], &strategies[2], 1, DPB_LOSS_SCALE_DYNAMIC);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_memory_is_predicted),
            cmocka_unit_test(test_the_lazy_device_is_strict),
            cmocka_unit_test(test_strategies),
            cmocka_unit_test(test_workloads),
            cmocka_unit_test(test_schedules),
            cmocka_unit_test(test_loss_scale_is_taken_out_again),
            cmocka_unit_test(test_steps_that_overflow_are_skipped),
            cmocka_unit_test(test_graphs),
            cmocka_unit_test(test_a_graph_ends_where_its_step_fails),
            cmocka_unit_test(test_what_cannot_be_a_graph),
            cmocka_unit_test(test_what_is_forgotten_is_found),
    };

    overflow_ops = always_ops = failing_ops = tiny_network_ops;
    failing_ops.backward = failing_backward;
    overflow_ops.backward = overflow_backward;
    always_ops.backward = always_backward;
    return DPB_RUN_TESTS(tests);
}

/* Training on device "cuda" with comm "nccl", on the faked runtime and libraries (README.md of
 * kernels/cuda/tests), against the same on the CPU: in whatever order things run, parameters are
 * those of the CPU, but for what fp32 rounds. And a wait that is left out is found, a call that
 * fails is reported, and nothing leaks. */
#include "dpb_test.h"

#include <math.h>
#include <unistd.h>

#include "dpb_comm_nccl.h"
#include "dpb_comm_shm.h"
#include "dpb_dataset.h"
#include "dpb_device_cpu.h"
#include "dpb_device_cuda.h"
#include "dpb_log.h"
#include "dpb_step.h"
#include "dpb_strategies.h"
#include "dpb_workloads.h"
#include "fake_kernels.h"
#include "fake_nccl.h"
#include "forked.h"
#include "tiny_dlrm.h"
#include "tiny_network.h"
#include "tiny_transformers.h"

#define RANKS_MAX  4
#define STEPS      4
#define WARM_STEPS 2  /* after which nothing is prepared any more */
#define EACH       12 /* samples of a step, of all ranks */
#define PARAMS_MAX 16384

/* ---- what is trained, and how ---- */

struct workload_case {
    const char *name;
    const struct dpb_workload_ops *workload;
    enum dpb_dtype precision;
    double tolerance; /* of a parameter; 0: the same bits */
};

static const struct workload_case cases[] = {
        {"network", &tiny_network_ops, DPB_F32, 1e-4},
        {"bert", &tiny_bert_ops, DPB_F32, 1e-4},
        {"gpt2", &tiny_gpt2_ops, DPB_F32, 1e-4},
        {"network bf16", &tiny_network_ops, DPB_BF16, 2e-2},
        {"bert bf16", &tiny_bert_ops, DPB_BF16, 2e-2},
        {"dlrm dense", &tiny_dlrm_dense_ops, DPB_F32, 1e-4},
        {"dlrm sparse", &tiny_dlrm_sparse_ops, DPB_F32, 1e-4},
        {"dlrm sharded", &tiny_dlrm_sharded_ops, DPB_F32, 1e-4},
};
#define CASES (sizeof(cases) / sizeof(cases[0]))

static const struct workload_case integers = {"integers", &dpb_workload_integers_ops, DPB_F32, 0};

static const struct dpb_ddp_options ddp = {.bucket_bytes = 512,
                                           .first_bucket_bytes = 256,
                                           .overlap = true,
                                           .gradient_as_bucket_view = true};
static const struct dpb_ddp_options ddp_copies = {
        .bucket_bytes = 512, .first_bucket_bytes = 256, .overlap = true};
/* From the first step on that it may: buckets are made anew after step 1, and error feedback
 * belongs to buckets. */
static const struct dpb_ddp_options powersgd = {.bucket_bytes = 512,
                                                .first_bucket_bytes = 256,
                                                .overlap = true,
                                                .hook = DPB_DDP_HOOK_POWERSGD,
                                                .powersgd = {.rank = 1,
                                                             .start_step = 2,
                                                             .min_rate = 1.0,
                                                             .epsilon = 1e-8,
                                                             .error_feedback = true}};
static const struct dpb_mirrored_options mirrored = {.cross_device_ops = DPB_CROSS_DEVICE_NCCL,
                                                     .num_packs = 2};
static const struct dpb_mirrored_options mirrored_copies = {
        .cross_device_ops = DPB_CROSS_DEVICE_HIERARCHICAL_COPY, .num_packs = 1};
static const struct dpb_horovod_options horovod = {.threshold_bytes = 2048,
                                                   .cycle_ns = 100000,
                                                   .cache_capacity = 1024,
                                                   .predivide_factor = 1.0};
static const struct dpb_zero1_options zero1 = {.bucket_bytes = 512, .gather_bytes = 1024};
static const struct dpb_zero2_options zero2 = {.bucket_bytes = 512, .gather_bucket_bytes = 1024};
static const struct dpb_fsdp_options fsdp = {.limit_all_gathers = true};
static const struct dpb_mwms_options mwms = {.bytes_per_pack = 512};
static const struct dpb_local_sgd_options local_sgd = {.sync_every = 2};

struct strategy_case {
    const char *name;
    const struct dpb_strategy_ops *ops;
    const void *options;
};

static const struct strategy_case strategies[] = {
        {"ddp", &dpb_strategy_ddp_ops, &ddp},
        {"naive", &dpb_strategy_naive_ops, NULL},
        {"ddp copies", &dpb_strategy_ddp_ops, &ddp_copies},
        {"horovod", &dpb_strategy_horovod_ops, &horovod},
        {"mwms", &dpb_strategy_mwms_ops, &mwms},
        {"zero1", &dpb_strategy_zero1_ops, &zero1},
        {"zero2", &dpb_strategy_zero2_ops, &zero2},
        {"fsdp", &dpb_strategy_fsdp_ops, &fsdp},
        {"local-sgd", &dpb_strategy_local_sgd_ops, &local_sgd},
        {"none", &dpb_strategy_none_ops, NULL},
        {"ddp powersgd", &dpb_strategy_ddp_ops, &powersgd},
        {"mirrored", &dpb_strategy_mirrored_ops, &mirrored},
        {"mirrored copies", &dpb_strategy_mirrored_ops, &mirrored_copies},
};
#define STRATEGIES (sizeof(strategies) / sizeof(strategies[0]))

/* ---- a rank ---- */

struct report {
    dpb_status status;
    int64_t elements, captured, calls, leaks, plant_calls;
    uint64_t hash;
    double loss[STEPS];
    char error[512], leaked[256], failed_call[64];
    float params[PARAMS_MAX];
};

struct run {
    const struct workload_case *of;
    const struct strategy_case *strategy;
    int ranks;
    bool on_fakes, captures;
    uint64_t seed;
    enum fake_cuda_plant plant; /* from the third step on */
    int64_t plant_call;
    int64_t fail_call; /* of rank 0 */
    int64_t timeout_ns;
    int segment_fd;
    struct fake_nccl_world *world;
    struct report report[RANKS_MAX];
};

struct rank {
    const struct dpb_device_ops *device_ops;
    const struct dpb_comm_ops *comm_ops;
    dpb_device *device;
    dpb_comm *comm;
    dpb_stream *stream;
    dpb_dataset *dataset;
    dpb_loader *loader;
    dpb_step_engine *engine;
};

static void keep_first_error(void *ctx, enum dpb_log_level level, const char *line)
{
    struct report *report = ctx;

    if (level == DPB_LOG_ERROR && !report->error[0])
        snprintf(report->error, sizeof(report->error), "%s", line);
}

static void begin_fakes(const struct run *run, int number)
{
    const struct fake_cuda_config cuda = {
            .seed = run->seed,
            .rank = number,
            .devices = run->ranks,
            .fail_call = number == 0 ? run->fail_call : 0,
    };
    const struct fake_nccl_config nccl = {.seed = run->seed, .looks_max = 3};

    fake_gpu_begin(&cuda);
    fake_nccl_begin(run->world, &nccl);
    dpb_nccl_table_install(&fake_nccl);
}

static dpb_status open_parts(const struct run *run, int number, struct rank *rank)
{
    const struct dpb_device_config device = {
            .local_rank = number, .local_size = run->ranks, .threads = 1};
    const struct dpb_comm_shm_options shm = {.algorithm = DPB_ALGORITHM_DIRECT};
    struct dpb_comm_nccl_options nccl = {0};
    struct dpb_comm_config comm = {.rank = number,
                                   .size = run->ranks,
                                   .local_rank = number,
                                   .segment_fd = run->segment_fd,
                                   .timeout_ns = run->timeout_ns,
                                   .options = &shm};

    rank->device_ops = run->on_fakes ? &dpb_device_cuda_ops : &dpb_device_cpu_ops;
    rank->comm_ops = run->on_fakes ? &dpb_comm_nccl_ops : &dpb_comm_shm_ops;
    DPB_TRY(rank->device_ops->open(&device, &rank->device));
    if (run->on_fakes) {
        comm.options = &nccl;
        comm.device = rank->device;
    }
    return rank->comm_ops->open(&comm, &rank->comm);
}

/* Without AVX-512 oneDNN has no bf16: then the CPU's fp32 is what is compared with, which is within
 * the same tolerance. */
static enum dpb_dtype precision_here(const struct run *run, const struct rank *rank)
{
    return rank->device_ops->op_supported(rank->device, DPB_OP_MATMUL, run->of->precision)
                   ? run->of->precision
                   : DPB_F32;
}

static dpb_status open_engine(const struct run *run, int number, struct rank *rank)
{
    const struct dpb_dataset_config data = {.kind = "synthetic",
                                            .model = run->of->workload->model(NULL),
                                            .seed = 5,
                                            .samples = 4 * EACH};
    struct dpb_loader_config loader = {.global_batch = EACH,
                                       .batches_per_step = 1,
                                       .ranks = run->ranks,
                                       .rank = number,
                                       .shuffle = true};
    struct dpb_step_config config = {
            .device = rank->device,
            .comm = rank->comm,
            .workload = run->of->workload,
            .strategy = run->strategy->ops,
            .strategy_options = run->strategy->options,
            .bucket_given = true,
            .batch_max = EACH / run->ranks,
            .global_batch = EACH,
            .accumulate = 1,
            .seed = 1,
            .precision = precision_here(run, rank),
            .capture = run->captures,
            .optimizer = {.kind = DPB_OPTIMIZER_SGD, .lr = 0x1p-6, .momentum = 0.5}};

    DPB_TRY(dpb_dataset_open(&data, DPB_SPLIT_TRAIN, &rank->dataset));
    loader.dataset = rank->dataset;
    DPB_TRY(dpb_loader_open(&loader, &rank->loader));
    config.source = dpb_loader_source(rank->loader);
    config.sum_gradients = run->of == &integers;
    if (run->of->workload->update) /* tables of its own have no momentum */
        config.optimizer.momentum = 0.0;
    return dpb_step_open(&config, &rank->engine);
}

/* A copy of all parameters, where there is room. */
static dpb_status read_params(struct rank *rank, struct report *report)
{
    const struct dpb_model *model = dpb_step_model(rank->engine);

    DPB_TRY(dpb_step_params_begin(rank->engine));
    for (int p = 0; p < model->param_count; p++) {
        const int64_t numel = model->params[p].numel;

        if (report->elements + numel <= PARAMS_MAX)
            DPB_TRY(rank->device_ops->copy(rank->device, report->params + report->elements,
                                           dpb_step_param(rank->engine, p),
                                           (size_t)numel * sizeof(float), rank->stream));
        report->elements += numel;
    }
    DPB_TRY(rank->device_ops->stream_sync(rank->stream));
    dpb_step_params_end(rank->engine);
    return DPB_OK;
}

static dpb_status train(const struct run *run, struct rank *rank, struct report *report)
{
    dpb_status st = DPB_OK;

    DPB_TRY(rank->device_ops->stream_open(rank->device, &rank->stream));
    for (int s = 0; st == DPB_OK && s < STEPS; s++) {
        struct dpb_step_times times = {0};

        if (run->plant && s == WARM_STEPS)
            fake_cuda_set_plant(run->plant, run->plant_call);
        st = dpb_step_run(rank->engine, &times);
        report->loss[s] = times.loss_sum;
    }
    report->plant_calls = run->plant ? fake_cuda_plant_calls(run->plant) : 0;
    if (run->plant)
        fake_cuda_set_plant(FAKE_PLANT_NONE, 0);
    DPB_TRY(st);
    report->captured = dpb_step_captured(rank->engine);
    DPB_TRY(dpb_step_hash(rank->engine, &report->hash));
    return read_params(rank, report);
}

static void close_rank(struct rank *rank)
{
    if (rank->stream)
        rank->device_ops->stream_close(rank->stream);
    if (rank->engine)
        dpb_step_close(rank->engine);
    dpb_loader_close(rank->loader);
    dpb_dataset_close(rank->dataset);
    if (rank->comm)
        rank->comm_ops->close(rank->comm);
    if (rank->device)
        rank->device_ops->close(rank->device);
}

static void run_rank(int number, void *shared)
{
    struct run *run = shared;
    struct report *report = &run->report[number];
    struct rank rank = {0};

    dpb_log_set_sink(keep_first_error, report);
    if (run->on_fakes)
        begin_fakes(run, number);
    report->status = open_parts(run, number, &rank);
    if (report->status >= 0)
        report->status = open_engine(run, number, &rank);
    if (report->status >= 0)
        report->status = train(run, &rank, report);
    close_rank(&rank);
    if (!run->on_fakes)
        return;
    fake_cuda_end();
    report->calls = fake_cuda_calls();
    report->leaks = fake_cuda_leaks(report->leaked, sizeof(report->leaked));
    if (fake_cuda_failed_call())
        snprintf(report->failed_call, sizeof(report->failed_call), "%s", fake_cuda_failed_call());
}

/* ---- runs ---- */

static struct run *run_new(const struct workload_case *of, const struct strategy_case *strategy,
                           int ranks)
{
    struct run *run = forked_memory(sizeof(*run));

    run->of = of;
    run->strategy = strategy;
    run->ranks = ranks;
    run->timeout_ns = INT64_C(20000000000);
    return run;
}

static void run_free(struct run *run)
{
    forked_memory_free(run, sizeof(*run));
}

/* The number of ranks that died. */
static int run_all(struct run *run)
{
    int bad;

    memset(run->report, 0, sizeof(run->report));
    run->world = fake_nccl_world_new();
    assert_int_equal(dpb_comm_segment_new(run->ranks, &run->segment_fd), DPB_OK);
    bad = forked_run(run->ranks, run_rank, run);
    close(run->segment_fd);
    fake_nccl_world_free(run->world);
    return bad;
}

/* Why the ranks of `run` have not what those of `cpu` have; NULL: they have. */
static const char *difference(const struct run *cpu, const struct run *run)
{
    static char text[1024];
    const double tolerance = run->of->tolerance;

    for (int r = 0; r < run->ranks; r++) {
        const struct report *a = &cpu->report[r], *b = &run->report[r];

        if (b->status < 0 || b->leaks != 0) {
            snprintf(text, sizeof(text), "rank %d: status %d, leaked \"%s\": %s", r, b->status,
                     b->leaked, b->error);
            return text;
        }
        for (int step = 0; step < STEPS; step++) {
            if (fabs(a->loss[step] - b->loss[step]) <= tolerance * (EACH + fabs(a->loss[step])))
                continue;
            snprintf(text, sizeof(text), "rank %d: the loss of step %d is %.9g, on the CPU %.9g", r,
                     step + 1, b->loss[step], a->loss[step]);
            return text;
        }
        if (tolerance == 0 && a->hash == b->hash)
            continue;
        if (tolerance == 0)
            return "other bits";
        for (int64_t i = 0; i < a->elements && i < PARAMS_MAX; i++) {
            if (fabs((double)a->params[i] - (double)b->params[i]) <=
                tolerance * (1 + fabs((double)a->params[i])))
                continue;
            snprintf(text, sizeof(text), "rank %d: parameter %lld of %lld is %.9g, on the CPU %.9g",
                     r, (long long)i, (long long)a->elements, (double)b->params[i],
                     (double)a->params[i]);
            return text;
        }
    }
    return NULL;
}

/* What a workload exchanges itself goes with some strategies only, on whatever device. */
static void check_refused(const struct run *cpu, struct run *run)
{
    const bool exchanges = dpb_model_own_table_elements(run->of->workload->model(NULL)) > 0;

    if (!exchanges)
        fail_msg("%s with %s on the CPU: %s", run->of->name, run->strategy->name,
                 cpu->report[0].error);
    assert_int_equal(run_all(run), 0);
    assert_int_equal(run->report[0].status, cpu->report[0].status);
    assert_string_equal(run->report[0].error, cpu->report[0].error);
    assert_int_equal(run->report[0].leaks, 0);
}

static void check(const struct workload_case *of, const struct strategy_case *strategy, int ranks,
                  bool captures, uint64_t first_seed, int seeds)
{
    struct run *cpu = run_new(of, strategy, ranks), *run = run_new(of, strategy, ranks);

    assert_int_equal(run_all(cpu), 0);
    run->on_fakes = true;
    run->captures = captures;
    if (cpu->report[0].status != DPB_OK) {
        check_refused(cpu, run);
        goto out;
    }
    for (int i = 0; i < seeds; i++) {
        int dead;
        const char *why;

        run->seed = first_seed + (uint64_t)i;
        dead = run_all(run);
        why = difference(cpu, run);
        if (dead || why)
            fail_msg("%s with %s on %d ranks, seed %llu: %d ranks died; %s", of->name,
                     strategy->name, ranks, (unsigned long long)run->seed, dead, why ? why : "");
        if (captures)
            assert_true(run->report[0].captured > 0);
    }
out:
    run_free(cpu);
    run_free(run);
}

/* ---- tests ---- */

/* Every workload with every strategy, each with two orders, with DPB_TESTS_FULL=1, which .ci/run
 * wants; without, every second pair with one. */
#define PAIRS ((int)(CASES * STRATEGIES))
#define SEEDS 2

static void test_training(void **state)
{
    const bool full = dpb_tests_full();

    (void)state;
    for (int i = 0; i < (full ? PAIRS : PAIRS / 2); i++) {
        const int strategy = i % (int)STRATEGIES, round = i / (int)STRATEGIES;

        check(&cases[(strategy + round) % (int)CASES], &strategies[strategy], 1 + i % RANKS_MAX,
              false, (uint64_t)(1 + i * SEEDS), full ? SEEDS : 1);
    }
}

/* Gradients are integers: nothing is rounded, and every bit is the CPU's. */
static void test_integers(void **state)
{
    (void)state;
    check(&integers, &strategies[0], 2, false, 1, 2);
    check(&integers, &strategies[5], 3, false, 3, 1);
}

/* Steps that are recorded as graphs. */
static void test_graphs(void **state)
{
    (void)state;
    check(&cases[0], &strategies[0], 2, true, 1, 4);
    check(&cases[1], &strategies[5], 2, true, 5, 2);
    check(&cases[2], &strategies[7], 1, true, 7, 2);
}

/* In how many schedules a wait that is left out shows: other parameters, an error, or a process
 * that is ended because it touched what it must not. */
#define PLANT_SEEDS_MAX 10

struct findings {
    int deaths, errors, differences;
    int64_t calls;
    char text[512]; /* of one of them */
};

static int plant_seeds(void)
{
    return dpb_tests_full() ? PLANT_SEEDS_MAX : PLANT_SEEDS_MAX / 2;
}

static struct findings find(enum fake_cuda_plant plant)
{
    struct run *cpu = run_new(&cases[0], &strategies[0], 2);
    struct run *run = run_new(&cases[0], &strategies[0], 2);
    struct findings findings = {0};

    assert_int_equal(run_all(cpu), 0);
    run->on_fakes = true;
    run->plant = plant;
    run->timeout_ns = INT64_C(3000000000);
    for (int i = 1; i <= plant_seeds(); i++) {
        int dead;

        run->seed = (uint64_t)i;
        dead = run_all(run);
        if (dead)
            findings.deaths++;
        else if (run->report[0].status < 0 || run->report[1].status < 0)
            findings.errors++;
        else if (difference(cpu, run))
            findings.differences++;
        if (!dead && difference(cpu, run))
            snprintf(findings.text, sizeof(findings.text), "%.500s", difference(cpu, run));
        if (run->report[0].plant_calls > findings.calls)
            findings.calls = run->report[0].plant_calls;
    }
    run_free(cpu);
    run_free(run);
    return findings;
}

static void test_missing_waits(void **state)
{
    static const enum fake_cuda_plant plants[] = {FAKE_PLANT_COMPUTE_WAIT, FAKE_PLANT_COMM_WAIT,
                                                  FAKE_PLANT_RECORD, FAKE_PLANT_STREAM_SYNC,
                                                  FAKE_PLANT_EVENT_SYNC};

    (void)state;
    for (size_t i = 0; i < sizeof(plants) / sizeof(plants[0]); i++) {
        const struct findings findings = find(plants[i]);
        const int count = findings.deaths + findings.errors + findings.differences;

        print_message("%s: %lld calls do nothing; found in %d of %d schedules: other parameters "
                      "%d, an error %d, a process ended %d; %s\n",
                      fake_cuda_plant_text(plants[i]), (long long)findings.calls, count,
                      plant_seeds(), findings.differences, findings.errors, findings.deaths,
                      findings.text);
        assert_true(count > plant_seeds() / 2);
    }
}

/* Of the calls of rank 0, from opening to closing, one fails: it is said, by text, or changes
 * nothing (a version, a plan that another one stands in for, what is destroyed); nothing leaks, and
 * nobody hangs. FAKE_EVERY_CALL=1 in the environment: every one of them; FAKE_EVERY_CALL=7: every
 * seventh; with FAKE_FIRST_CALL and FAKE_LAST_CALL those between, for what takes hours in one go.
 */
#define FAILURES (dpb_tests_full() ? 30 : 10)

static int64_t number_of(const char *variable, int64_t otherwise)
{
    const char *text = getenv(variable);
    const long long number = text ? strtoll(text, NULL, 10) : 0;

    return number > 0 ? number : otherwise;
}

static void fail_calls(int ranks, int failures)
{
    struct run *cpu = run_new(&cases[0], &strategies[0], ranks);
    struct run *run = run_new(&cases[0], &strategies[0], ranks);
    int64_t calls, first, last, stride;
    int bad = 0;

    assert_int_equal(run_all(cpu), 0);
    run->on_fakes = true;
    run->seed = 1;
    assert_int_equal(run_all(run), 0);
    assert_int_equal(run->report[0].status, DPB_OK);
    run->timeout_ns = INT64_C(3000000000); /* from here on ranks miss each other */
    calls = run->report[0].calls;
    stride = number_of("FAKE_EVERY_CALL", calls < failures ? 1 : calls / failures);
    first = number_of("FAKE_FIRST_CALL", 1);
    last = number_of("FAKE_LAST_CALL", calls);
    for (int64_t call = first; call <= last && call <= calls; call += stride) {
        const struct report *report = &run->report[0];
        int dead;
        bool is_said, is_harmless;

        run->fail_call = call;
        dead = run_all(run);
        is_said = report->error[0] != '\0';
        is_harmless = difference(cpu, run) == NULL;
        if (!dead && (is_said || is_harmless) && report->leaks == 0)
            continue;
        bad++;
        print_error("call %lld of %lld, %s: %d ranks died, status %d, \"%s\", leaked \"%s\"\n",
                    (long long)call, (long long)calls, report->failed_call, dead, report->status,
                    report->error, report->leaked);
    }
    print_message("%d rank%s: of %lld calls, from %lld on, every %lldth failed once, %d not "
                  "handled\n",
                  ranks, ranks == 1 ? "" : "s", (long long)calls, (long long)first,
                  (long long)stride, bad);
    run_free(cpu);
    run_free(run);
    assert_int_equal(bad, 0);
}

static void test_failing_calls(void **state)
{
    (void)state;
    fail_calls(1, FAILURES);
}

static void test_failing_calls_of_a_pair(void **state)
{
    (void)state;
    fail_calls(2, FAILURES / 2);
}

/* An argument is the name of the one test to run, with * for any text. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_integers),
            cmocka_unit_test(test_graphs),
            cmocka_unit_test(test_missing_waits),
            cmocka_unit_test(test_failing_calls),
            cmocka_unit_test(test_failing_calls_of_a_pair),
            cmocka_unit_test(test_training),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return DPB_RUN_TESTS(tests);
}

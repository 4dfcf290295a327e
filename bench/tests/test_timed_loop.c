/* After warm-up a training step makes nothing: no primitive, no larger buffer of the device, and no
 * call of malloc and its like from this project's code, the data thread's included.
 *
 * The linker sends those calls here (--wrap), from everything that is linked into this program
 * statically, which is the project. Libraries are shared, so what oneDNN and OpenMP allocate for
 * themselves inside a primitive's execution is not counted. */
#include "dpb_test.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "dpb_comm_shm.h"
#include "dpb_dataset.h"
#include "dpb_device_cpu.h"
#include "dpb_log.h"
#include "dpb_step.h"
#include "dpb_strategies.h"
#include "dpb_workloads.h"

#include "tiny_network.h"
#include "tiny_transformers.h"

#define WARMUP_STEPS 3 /* buckets are rebuilt after the first */
#define STEPS        5
#define BATCH        4

/* ---- calls of malloc ---- */

static atomic_long allocations;

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
char *__real_strdup(const char *text);

void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
char *__wrap_strdup(const char *text);

void *__wrap_malloc(size_t bytes)
{
    allocations++;
    return __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    allocations++;
    return __real_calloc(count, bytes);
}

void *__wrap_realloc(void *memory, size_t bytes)
{
    allocations++;
    return __real_realloc(memory, bytes);
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    allocations++;
    return __real_aligned_alloc(alignment, bytes);
}

char *__wrap_strdup(const char *text)
{
    allocations++;
    return __real_strdup(text);
}

static int64_t growths; /* of the device's buffers, while networks were warming up */

/* ---- one rank, as a run has it ---- */

struct rank {
    dpb_device *device;
    dpb_comm *comm;
    int segment_fd;
    dpb_dataset *dataset;
    dpb_loader *loader;
    dpb_step_engine *engine;
};

static void open_parts(struct rank *rank, const struct dpb_model *model)
{
    const struct dpb_device_config device = {.local_size = 1, .threads = 1};
    const struct dpb_comm_shm_options options = {.algorithm = DPB_ALGORITHM_DIRECT};
    const struct dpb_dataset_config data = {
            .kind = "synthetic", .model = model, .seed = 5, .samples = 3 * BATCH};
    struct dpb_comm_config comm = {
            .size = 1, .timeout_ns = INT64_C(30000000000), .options = &options};
    struct dpb_loader_config loader = {
            .global_batch = BATCH, .ranks = 1, .shuffle = true, .background = true};

    assert_int_equal(dpb_device_cpu_ops.open(&device, &rank->device), DPB_OK);
    assert_int_equal(dpb_comm_segment_new(1, &rank->segment_fd), DPB_OK);
    comm.segment_fd = rank->segment_fd;
    assert_int_equal(dpb_comm_shm_ops.open(&comm, &rank->comm), DPB_OK);
    assert_int_equal(dpb_dataset_open(&data, DPB_SPLIT_TRAIN, &rank->dataset), DPB_OK);
    loader.dataset = rank->dataset;
    assert_int_equal(dpb_loader_open(&loader, &rank->loader), DPB_OK);
}

static void open_rank(struct rank *rank, const struct dpb_workload_ops *workload,
                      const void *options, enum dpb_optimizer_kind optimizer,
                      enum dpb_dtype precision)
{
    static const struct dpb_ddp_options buckets = {
            .bucket_bytes = 4096, .first_bucket_bytes = 1024, .overlap = true};
    struct dpb_step_config config;

    memset(rank, 0, sizeof(*rank));
    open_parts(rank, workload->model(options));
    config = (struct dpb_step_config){.device = rank->device,
                                      .comm = rank->comm,
                                      .workload = workload,
                                      .workload_options = options,
                                      .strategy = &dpb_strategy_ddp_ops,
                                      .strategy_options = &buckets,
                                      .bucket_given = true,
                                      .source = dpb_loader_source(rank->loader),
                                      .batch_max = BATCH,
                                      .global_batch = BATCH,
                                      .accumulate = 1,
                                      .seed = 1,
                                      .precision = precision,
                                      .optimizer = dpb_optimizer_defaults(optimizer)};
    config.optimizer.lr = 1e-3;
    assert_int_equal(dpb_step_open(&config, &rank->engine), DPB_OK);
}

static void close_rank(struct rank *rank)
{
    dpb_step_close(rank->engine);
    dpb_loader_close(rank->loader);
    dpb_dataset_close(rank->dataset);
    dpb_comm_shm_ops.close(rank->comm);
    close(rank->segment_fd);
    dpb_device_cpu_ops.close(rank->device);
}

static void run_steps(struct rank *rank, int count)
{
    struct dpb_step_times times;

    for (int i = 0; i < count; i++)
        assert_int_equal(dpb_step_run(rank->engine, &times), DPB_OK);
}

/* The timed steps go through several epochs, each with an order of its own. */
static void check_with(const struct dpb_workload_ops *workload, const void *options,
                       enum dpb_optimizer_kind optimizer, enum dpb_dtype precision)
{
    struct dpb_device_cpu_counts opened, warm, after;
    struct rank rank;
    long before;

    allocations = 0;
    open_rank(&rank, workload, options, optimizer, precision);
    assert_true(allocations > 0); /* they are seen at all */
    opened = dpb_device_cpu_get_counts(rank.device);
    run_steps(&rank, WARMUP_STEPS);
    warm = dpb_device_cpu_get_counts(rank.device);
    assert_true(warm.kernels > opened.kernels);
    growths += warm.buffer_growths - opened.buffer_growths;

    before = allocations;
    run_steps(&rank, STEPS);
    if (allocations != before)
        fail_msg("%s: %ld allocations in %d steps", workload->name, allocations - before, STEPS);
    after = dpb_device_cpu_get_counts(rank.device);
    assert_int_equal(after.kernels, warm.kernels);
    assert_int_equal(after.buffer_growths, warm.buffer_growths);
    close_rank(&rank);
}

static void check(const struct dpb_workload_ops *workload, enum dpb_optimizer_kind optimizer,
                  enum dpb_dtype precision)
{
    check_with(workload, NULL, optimizer, precision);
}

static void test_mnist_cnn(void **state)
{
    (void)state;
    check(&dpb_workload_mnist_cnn_ops, DPB_OPTIMIZER_SGD, DPB_F32);
    assert_true(growths > 0); /* they are seen at all; convolutions have them on every CPU */
}

static void test_residual_network(void **state)
{
    (void)state;
    check(&tiny_network_ops, DPB_OPTIMIZER_LARS, DPB_F32);
}

static void test_language_networks(void **state)
{
    (void)state;
    check(&tiny_bert_ops, DPB_OPTIMIZER_ADAMW, DPB_F32);
    check(&tiny_gpt2_ops, DPB_OPTIMIZER_LAMB, DPB_F32);
}

static void test_recommendation(void **state)
{
    const int64_t table_rows_max = 500; /* the option struct's only member */

    (void)state;
    check(&dpb_workload_dlrm_small_ops, DPB_OPTIMIZER_ROWWISE_ADAGRAD, DPB_F32);
    check_with(&dpb_workload_dlrm_mlperf_ops, &table_rows_max, DPB_OPTIMIZER_ADAGRAD, DPB_F32);
}

static void test_mixed_precision(void **state)
{
    const struct dpb_device_config config = {.local_size = 1, .threads = 1};
    dpb_device *device;
    bool has;

    (void)state;
    assert_int_equal(dpb_device_cpu_ops.open(&config, &device), DPB_OK);
    has = dpb_device_cpu_ops.op_supported(device, DPB_OP_MATMUL, DPB_BF16);
    dpb_device_cpu_ops.close(device);
    if (!has)
        dpb_test_skip("this CPU, or its oneDNN, has no products in bf16");
    check(&tiny_network_ops, DPB_OPTIMIZER_SGD, DPB_BF16);
    check(&tiny_bert_ops, DPB_OPTIMIZER_ADAMW, DPB_BF16);
    check(&tiny_gpt2_ops, DPB_OPTIMIZER_ADAMW, DPB_BF16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_mnist_cnn),         cmocka_unit_test(test_residual_network),
            cmocka_unit_test(test_language_networks), cmocka_unit_test(test_recommendation),
            cmocka_unit_test(test_mixed_precision),
    };
    return DPB_RUN_TESTS(tests);
}

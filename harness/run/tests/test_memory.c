/* What a cell will need, what there is, and what is said when it does not fit. */
#include "dpb_test.h"

#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>

#include "dpb_comm_shm.h"
#include "dpb_device_cpu.h"
#include "dpb_log.h"
#include "dpb_memory.h"
#include "dpb_strategies.h"
#include "dpb_workloads.h"
#include "registry_for_tests.h"

#define MIB ((int64_t)1 << 20)

static const struct dpb_device_room nothing_tells = {.free_bytes = INT64_MAX};

/* ---- cells ---- */

static void add(struct dpb_settings *flags, const char *name, const char *text)
{
    assert_int_equal(dpb_settings_add(flags, registry_for_tests()->options, name, text, name),
                     DPB_OK);
}

/* A cell of mnist-cnn or mnist-mlp with this batch of every rank. */
static void make_plan(const char *workload, const char *ranks, const char *batch, const char *more,
                      const char *more_text, struct dpb_plan *plan)
{
    struct dpb_settings flags = {0};
    add(&flags, "workload", workload);
    add(&flags, "ranks", ranks);
    add(&flags, "batch-per-rank", batch);
    if (more)
        add(&flags, more, more_text);
    struct dpb_plan_input input = {registry_for_tests(), NULL, &flags, false, 2, "t"};
    assert_int_equal(dpb_plan_build(&input, plan), DPB_OK);
    dpb_settings_release(&flags);
}

static struct dpb_memory predict(const char *workload, const char *ranks, const char *batch,
                                 const char *more, const char *more_text)
{
    struct dpb_plan plan;
    struct dpb_memory memory;
    make_plan(workload, ranks, batch, more, more_text, &plan);
    dpb_memory_predict(registry_for_tests(), plan.cells[0].config, &memory);
    dpb_plan_release(&plan);
    return memory;
}

static void test_parts(void **state)
{
    (void)state;
    struct dpb_memory m = predict("mnist-cnn", "1", "4", "data", "synthetic");
    /* 8 tensors of 288 32 18432 64 1179648 128 1280 10 floats, each at a multiple of 64 bytes */
    const int64_t parameters = 4 * (288 + 32 + 18432 + 64 + 1179648 + 128 + 1280 + 16);
    assert_int_equal(m.part_bytes[DPB_MEMORY_PARAMETERS], parameters);
    assert_int_equal(m.part_bytes[DPB_MEMORY_GRADIENTS], parameters);
    assert_int_equal(m.part_bytes[DPB_MEMORY_OPTIMIZER], parameters);
    assert_int_equal(m.part_bytes[DPB_MEMORY_ACTIVATIONS],
                     dpb_workload_mnist_cnn_ops.activation_bytes_for(
                             NULL, &(struct dpb_workload_sizes){.batch_max = 4, .ranks = 1}));
    assert_int_equal(m.part_bytes[DPB_MEMORY_WORKSPACE], 4 * 4 * (21632 + 36864));
    assert_int_equal(m.part_bytes[DPB_MEMORY_DATA], 60000 * 8 + 2 * 4 * (785 * 4 + 8));
    assert_int_equal(m.part_bytes[DPB_MEMORY_PEERS], 0);
    assert_false(m.at_least);
    int64_t sum = 0;
    for (int p = 0; p < DPB_MEMORY_PARTS; p++)
        sum += m.part_bytes[p];
    assert_int_equal(m.rank_bytes, sum);
    assert_int_equal(m.total_bytes, sum);
}

static void test_ranks_hold_their_gradients_once(void **state)
{
    (void)state;
    /* A strategy that keeps no copies of gradients, with one rank or several. */
    struct dpb_memory one = predict("mnist-mlp", "1", "8", "strategy", "none");
    struct dpb_memory four = predict("mnist-mlp", "4", "8", "strategy", "none");
    assert_int_equal(four.part_bytes[DPB_MEMORY_PEERS], 3 * four.part_bytes[DPB_MEMORY_GRADIENTS]);
    assert_int_equal(four.rank_bytes, one.rank_bytes + four.part_bytes[DPB_MEMORY_PEERS]);
    assert_int_equal(four.total_bytes, 4 * one.total_bytes);
}

static void test_data_sets(void **state)
{
    (void)state;
    struct dpb_memory m = predict("mnist-mlp", "1", "2", "data", "fashion-mnist");
    const int64_t train = 60000 * (785 + 8) + 2 * 2 * (785 * 4 + 8);
    assert_int_equal(m.part_bytes[DPB_MEMORY_DATA], train);
    m = predict("mnist-mlp", "1", "2", "evaluate", "on");
    assert_int_equal(m.part_bytes[DPB_MEMORY_DATA], train + 10000 * (785 + 8) + 2 * (785 * 4 + 8));
}

/* A strategy that has parameters in parts, in a registry of its own. */
static struct dpb_memory predict_in_parts(const char *evaluate)
{
    struct dpb_strategy_ops strategy = dpb_strategy_none_ops;
    const struct dpb_strategy_ops *const strategies[] = {&strategy};
    struct dpb_registry registry = *registry_for_tests();
    struct dpb_plan plan;
    struct dpb_memory memory;
    strategy.flags |= DPB_STRATEGY_SHARDS_PARAMETERS;
    strategy.name = "ddp"; /* the one that a plan takes when none is asked for */
    registry.strategies = strategies;
    registry.strategy_count = 1;
    make_plan("mnist-mlp", "2", "8", "evaluate", evaluate, &plan);
    dpb_memory_predict(&registry, plan.cells[0].config, &memory);
    dpb_plan_release(&plan);
    return memory;
}

/* They are whole while it evaluates. */
static void test_evaluation_of_parameters_in_parts(void **state)
{
    (void)state;
    struct dpb_memory off = predict_in_parts("off"), on = predict_in_parts("on");
    assert_int_equal(off.part_bytes[DPB_MEMORY_STRATEGY], 0);
    assert_int_equal(on.part_bytes[DPB_MEMORY_STRATEGY], on.part_bytes[DPB_MEMORY_PARAMETERS]);
}

/* Nothing is claimed of what was not measured. */
static void test_workspace_in_bf16_is_not_known(void **state)
{
    (void)state;
    struct dpb_memory m = predict("mnist-cnn", "1", "4", "precision", "bf16");
    assert_int_equal(m.part_bytes[DPB_MEMORY_WORKSPACE], DPB_MEMORY_UNKNOWN);
    assert_true(m.at_least);
    m = predict("mnist-cnn", "1", "4", "precision", "fp32");
    assert_true(m.part_bytes[DPB_MEMORY_WORKSPACE] > 0);
    assert_false(m.at_least);
}

/* mnist-mlp that tells something else of its activations, in a registry of its own. */
static struct dpb_memory
predict_telling(int64_t (*tell)(const void *, const struct dpb_workload_sizes *), const char *ranks)
{
    struct dpb_workload_ops workload = dpb_workload_mnist_mlp_ops;
    const struct dpb_workload_ops *const workloads[] = {&workload};
    struct dpb_registry registry = *registry_for_tests();
    struct dpb_plan plan;
    struct dpb_memory memory;
    workload.activation_bytes_for = tell;
    registry.workloads = workloads;
    registry.workload_count = 1;
    make_plan("mnist-mlp", ranks, "8", NULL, NULL, &plan);
    dpb_memory_predict(&registry, plan.cells[0].config, &memory);
    dpb_plan_release(&plan);
    return memory;
}

/* Where the host must not touch the device's memory, what passes between them has places of its
 * own, and nobody maps the others' gradients. */
static void test_copies_of_an_accelerator(void **state)
{
    (void)state;
    struct dpb_device_ops device = dpb_device_cpu_ops;
    struct dpb_comm_ops comm = dpb_comm_shm_ops;
    const struct dpb_device_ops *const devices[] = {&device};
    const struct dpb_comm_ops *const comms[] = {&comm};
    struct dpb_registry registry = *registry_for_tests();
    struct dpb_step_staging staging;
    struct dpb_memory memory;
    struct dpb_plan plan;
    const struct dpb_workload_sizes sizes = {.batch_max = 4, .ranks = 2, .results = 1};
    registry.devices = devices;
    registry.comms = comms;
    make_plan("mnist-mlp", "2", "4", "data", "synthetic", &plan);
    dpb_memory_predict(&registry, plan.cells[0].config, &memory);
    assert_int_equal(memory.part_bytes[DPB_MEMORY_STAGING], 0);
    assert_int_equal(memory.part_bytes[DPB_MEMORY_PINNED], 0);
    device.flags = DPB_DEVICE_ACCELERATOR;
    comm.flags |= DPB_COMM_DEVICE_MEMORY;
    dpb_memory_predict(&registry, plan.cells[0].config, &memory);
    dpb_step_staging_predict(dpb_workload_mnist_mlp_ops.model(NULL), 4, false, &staging);
    /* labels and images of 4 samples, each array at a multiple of 64 bytes */
    assert_int_equal(staging.device_bytes, 64 + 4 * 784 * 4);
    assert_int_equal(memory.part_bytes[DPB_MEMORY_STAGING], staging.device_bytes);
    assert_int_equal(memory.part_bytes[DPB_MEMORY_PINNED],
                     staging.host_bytes + dpb_workload_mnist_mlp_ops.host_bytes_for(NULL, &sizes));
    assert_int_equal(memory.part_bytes[DPB_MEMORY_PEERS], 0);
    assert_int_equal(memory.part_bytes[DPB_MEMORY_WORKSPACE], DPB_MEMORY_UNKNOWN);
    /* What lies on the device is not the host's, and of the libraries' nobody knows. */
    int64_t on_device = 0, on_host = 0;
    for (int p = 0; p < DPB_MEMORY_WORKSPACE; p++)
        on_device += memory.part_bytes[p];
    for (int p = DPB_MEMORY_PINNED; p < DPB_MEMORY_PARTS; p++)
        on_host += memory.part_bytes[p];
    assert_int_equal(memory.device_bytes, on_device);
    assert_int_equal(memory.rank_bytes, on_host);
    assert_int_equal(memory.total_bytes, 2 * on_host);
    assert_true(memory.at_least);
    dpb_plan_release(&plan);
}

/* ---- accelerators that are not open ---- */

/* What each of two has free; less than 0: it is not told. */
static int64_t free_of[2];
static int looked_at;

static dpb_status room(const struct dpb_device_config *config, struct dpb_device_room *found)
{
    looked_at++;
    if (free_of[config->local_rank] < 0)
        return DPB_ERR_UNAVAILABLE;
    *found = (struct dpb_device_room){.free_bytes = free_of[config->local_rank],
                                      .total_bytes = 64 * MIB};
    snprintf(found->name, sizeof(found->name), "GPU %d", config->local_rank);
    return DPB_OK;
}

/* A registry whose device has memory of its own. */
struct accelerated {
    struct dpb_device_ops device;
    struct dpb_comm_ops comm;
    const struct dpb_device_ops *devices[1];
    const struct dpb_comm_ops *comms[1];
    struct dpb_registry registry;
};

static void accelerate(struct accelerated *a)
{
    *a = (struct accelerated){
            dpb_device_cpu_ops, dpb_comm_shm_ops, {NULL}, {NULL}, *registry_for_tests()};
    a->device.flags = DPB_DEVICE_ACCELERATOR;
    a->device.room = room;
    a->comm.flags |= DPB_COMM_DEVICE_MEMORY;
    a->devices[0] = &a->device;
    a->comms[0] = &a->comm;
    a->registry.devices = a->devices;
    a->registry.comms = a->comms;
}

static void keep_line(void *ctx, enum dpb_log_level level, const char *line);

/* The host has enough in every case. */
static void test_what_an_accelerator_has_free(void **state)
{
    static const int64_t cases[][2] = {
            {48 * MIB, 9 * MIB}, {9 * MIB, 48 * MIB}, {-1, 9 * MIB}, {48 * MIB, -1}, {-1, -1}};
    struct accelerated a;
    struct dpb_memory_limits limits;
    struct dpb_memory memory;
    struct dpb_plan plan;
    (void)state;
    accelerate(&a);
    /* 2.55 MiB of parameters, as many gradients and momenta, and 2.5 MiB of activations */
    make_plan("mnist-mlp", "2", "256", "data", "synthetic", &plan);
    const dpb_config *config = plan.cells[0].config;
    dpb_memory_predict(&a.registry, config, &memory);
    assert_true(memory.device_bytes > 9 * MIB && memory.device_bytes < 48 * MIB);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const bool knows = i < 3;
        char lines[2][1024] = {"", ""};
        memcpy(free_of, cases[i], sizeof(free_of));
        looked_at = 0;
        assert_int_equal(dpb_memory_limits_of(&a.registry, config, 2, &limits), DPB_OK);
        assert_int_equal(looked_at, 2);
        assert_int_equal(limits.device.free_bytes, knows ? 9 * MIB : i == 3 ? 48 * MIB : INT64_MAX);
        assert_int_equal(dpb_memory_fits(&memory, &limits), !knows);
        dpb_log_set_sink(keep_line, lines);
        assert_int_equal(dpb_memory_check_plan(&a.registry, &plan),
                         knows ? DPB_ERR_NO_MEMORY : DPB_OK);
        dpb_log_set_sink(NULL, NULL);
        if (!knows)
            continue;
        assert_non_null(strstr(lines[0], "error: memory: a rank needs at least "));
        assert_non_null(strstr(lines[0], " of its accelerator's, and of 64.0 MiB there are free "
                                         "9.00 MiB (GPU "));
        assert_non_null(strstr(lines[0], i == 1 ? "(GPU 0): parameters " : "(GPU 1): parameters "));
        assert_non_null(strstr(lines[0], " + workspace (not known)"));
        assert_null(strstr(lines[0], "pinned"));
        assert_non_null(strstr(lines[1], "hint: use a smaller --batch-per-rank or network, or "));
    }
    dpb_plan_release(&plan);
}

/* And the host's part against the host's memory. */
static void test_the_hosts_part_of_an_accelerators_cell(void **state)
{
    struct accelerated a;
    struct dpb_memory_limits limits;
    struct dpb_memory memory;
    struct dpb_plan plan;
    struct dpb_str text = {0};
    (void)state;
    accelerate(&a);
    free_of[0] = free_of[1] = 48 * MIB;
    make_plan("mnist-mlp", "2", "256", "memory-limit", "16MiB", &plan);
    const dpb_config *config = plan.cells[0].config;
    dpb_memory_predict(&a.registry, config, &memory);
    assert_int_equal(dpb_memory_limits_of(&a.registry, config, 2, &limits), DPB_OK);
    assert_false(dpb_memory_fits(&memory, &limits));
    dpb_memory_refusal(&memory, &limits, &text);
    assert_non_null(strstr(text.text, "memory: 2 ranks need at least "));
    assert_non_null(strstr(text.text, "the limit is 16.0 MiB; each rank: pinned "));
    assert_null(strstr(text.text, "parameters"));
    dpb_json *json = dpb_json_object();
    dpb_memory_to_json(&memory, &limits, json);
    assert_int_equal(dpb_json_as_int(dpb_json_get(json, "predicted_device_bytes"), 0),
                     memory.device_bytes);
    assert_int_equal(dpb_json_as_int(dpb_json_get(json, "device_free_bytes"), 0), 48 * MIB);
    assert_string_equal(dpb_json_as_string(dpb_json_get(json, "device"), ""), "GPU 0");
    assert_int_equal(dpb_json_as_int(dpb_json_get(json, "limit_bytes"), 0), 16 * MIB);
    dpb_json_free(json);
    dpb_str_release(&text);
    dpb_plan_release(&plan);
}

static void test_a_part_that_nobody_knows(void **state)
{
    (void)state;
    struct dpb_memory memory = predict_telling(NULL, "1");
    struct dpb_str text = {0};
    assert_int_equal(memory.part_bytes[DPB_MEMORY_ACTIVATIONS], DPB_MEMORY_UNKNOWN);
    assert_true(memory.at_least);
    assert_true(memory.rank_bytes > 3 * memory.part_bytes[DPB_MEMORY_PARAMETERS]);
    dpb_memory_refusal(&memory, &(struct dpb_memory_limits){MIB, nothing_tells}, &text);
    assert_non_null(strstr(text.text, "1 rank needs at least "));
    assert_non_null(strstr(text.text, "activations (not known)"));
    dpb_json *json = dpb_json_object();
    dpb_memory_to_json(&memory, &(struct dpb_memory_limits){INT64_MAX, nothing_tells}, json);
    assert_int_equal(dpb_json_type(dpb_json_path(json, "predicted/activations")), DPB_JSON_NULL);
    assert_non_null(dpb_json_as_string(dpb_json_path(json, "predicted/activations_reason"), NULL));
    assert_true(dpb_json_as_bool(dpb_json_get(json, "predicted_at_least"), false));
    assert_int_equal(dpb_json_type(dpb_json_get(json, "limit_bytes")), DPB_JSON_NULL);
    dpb_json_free(json);
    dpb_str_release(&text);
}

static int64_t a_quarter_of_all(const void *options, const struct dpb_workload_sizes *sizes)
{
    (void)options;
    (void)sizes;
    return INT64_MAX / 4;
}

static void test_sums_do_not_wrap(void **state)
{
    (void)state;
    struct dpb_memory m = predict_telling(a_quarter_of_all, "8");
    assert_true(m.rank_bytes > INT64_MAX / 4 && m.rank_bytes < INT64_MAX / 2);
    assert_int_equal(m.total_bytes, INT64_MAX);
}

/* ---- refusal ---- */

static void keep_line(void *ctx, enum dpb_log_level level, const char *line)
{
    char(*lines)[1024] = ctx;
    (void)level;
    snprintf(lines[lines[0][0] != '\0'], sizeof(lines[0]), "%s", line);
}

static void test_what_cannot_fit_is_refused_with_the_arithmetic(void **state)
{
    (void)state;
    struct dpb_plan plan;
    make_plan("mnist-mlp", "2", "64", "memory-limit", "1GiB", &plan);
    assert_int_equal(dpb_memory_limit(plan.cells[0].config), 1024 * MIB);
    assert_int_equal(dpb_memory_check_plan(registry_for_tests(), &plan), DPB_OK);
    dpb_plan_release(&plan);
    make_plan("mnist-mlp", "2", "64", "memory-limit", "16MiB", &plan);
    char lines[2][1024] = {"", ""};
    dpb_log_set_sink(keep_line, lines);
    assert_int_equal(dpb_memory_check_plan(registry_for_tests(), &plan), DPB_ERR_NO_MEMORY);
    dpb_log_set_sink(NULL, NULL);
    assert_non_null(strstr(lines[0], "error: memory: 2 ranks need "));
    assert_non_null(strstr(lines[1], "hint: use a smaller --batch-per-rank or fewer --ranks"));
    dpb_plan_release(&plan);
    /* 2.55 MiB of parameters, as many gradients and momenta, of two ranks */
    make_plan("mnist-mlp", "2", "64", "memory-limit", "14MiB", &plan);
    dpb_log_set_sink(keep_line, lines);
    lines[0][0] = lines[1][0] = '\0';
    assert_int_equal(dpb_memory_check_plan(registry_for_tests(), &plan), DPB_ERR_NO_MEMORY);
    dpb_log_set_sink(NULL, NULL);
    assert_non_null(strstr(lines[1], "hint: no batch is small enough"));
    dpb_plan_release(&plan);

    struct dpb_memory memory = {.ranks = 2, .total_bytes = 90 * MIB};
    for (int p = 0; p < DPB_MEMORY_PARTS; p++)
        memory.part_bytes[p] = p == DPB_MEMORY_COMMUNICATION ? 0 : (p + 1) * MIB;
    struct dpb_str text = {0};
    dpb_memory_refusal(&memory, &(struct dpb_memory_limits){16 * MIB, nothing_tells}, &text);
    assert_string_equal(text.text,
                        "memory: 2 ranks need 90.0 MiB, the limit is 16.0 MiB; each rank: "
                        "parameters 1.00 MiB + gradients 2.00 MiB + optimizer 3.00 MiB + "
                        "strategy 5.00 MiB + activations 6.00 MiB + staging 7.00 MiB + "
                        "workspace 8.00 MiB + pinned 9.00 MiB + data 10.0 MiB + "
                        "runtime 11.0 MiB");
    dpb_str_release(&text);
}

/* ---- what there is ---- */

static char root[32];

static int remove_entry(const char *path, const struct stat *entry, int type, struct FTW *ftw)
{
    (void)entry;
    (void)type;
    (void)ftw;
    return remove(path);
}

static int make_root(void **state)
{
    (void)state;
    strcpy(root, "/tmp/dpb-memory-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    (void)state;
    return nftw(root, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

/* A file below the root, with its folders. */
static void put(const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", root, name);
    for (char *at = path + strlen(root) + 1; *at; at++)
        if (*at == '/') {
            *at = '\0';
            mkdir(path, 0777);
            *at = '/';
        }
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void test_available_on_a_machine(void **state)
{
    (void)state;
    assert_true(dpb_memory_available(root) == INT64_MAX); /* nothing tells */
    put("proc/meminfo", "MemTotal:  4000 kB\nMemFree: 100 kB\nMemAvailable:    2000 kB\n");
    assert_int_equal(dpb_memory_available(root), 2000 * 1024);
    assert_true(dpb_memory_available("") > MIB); /* this machine */
}

static void test_available_in_a_control_group(void **state)
{
    (void)state;
    put("proc/meminfo", "MemAvailable: 9000 kB\n");
    put("proc/self/cgroup", "0::/a/b\n");
    put("sys/fs/cgroup/a/b/memory.max", "max\n");
    assert_int_equal(dpb_memory_available(root), 9000 * 1024);
    put("sys/fs/cgroup/a/memory.max", "5000000\n"); /* of the parent */
    assert_int_equal(dpb_memory_available(root), 5000000);
    put("sys/fs/cgroup/a/memory.current", "3000000\n");
    put("sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 1000000\nfile 7\n");
    assert_int_equal(dpb_memory_available(root), 3000000);
    put("sys/fs/cgroup/a/b/memory.max", "1000\n");
    put("sys/fs/cgroup/a/b/memory.current", "2000\n"); /* over it already */
    assert_int_equal(dpb_memory_available(root), 0);
}

/* A container sees its own group as the root of the mount, under the path that the host gave it. */
static void test_available_in_a_container(void **state)
{
    (void)state;
    put("proc/meminfo", "MemAvailable: 9000 kB\n");
    put("proc/self/cgroup", "5:cpu:/docker/1\n4:memory:/docker/1\n0::/\n");
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "700000\n");
    put("sys/fs/cgroup/memory/memory.usage_in_bytes", "200000\n");
    assert_int_equal(dpb_memory_available(root), 500000);
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"); /* no limit */
    assert_int_equal(dpb_memory_available(root), 9000 * 1024);
}

#define WITH_ROOT(test) cmocka_unit_test_setup_teardown(test, make_root, remove_root)

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(test_evaluation_of_parameters_in_parts),
            cmocka_unit_test(test_workspace_in_bf16_is_not_known),
            cmocka_unit_test(test_parts),
            cmocka_unit_test(test_ranks_hold_their_gradients_once),
            cmocka_unit_test(test_data_sets),
            cmocka_unit_test(test_copies_of_an_accelerator),
            cmocka_unit_test(test_what_an_accelerator_has_free),
            cmocka_unit_test(test_the_hosts_part_of_an_accelerators_cell),
            cmocka_unit_test(test_a_part_that_nobody_knows),
            cmocka_unit_test(test_sums_do_not_wrap),
            cmocka_unit_test(test_what_cannot_fit_is_refused_with_the_arithmetic),
            WITH_ROOT(test_available_on_a_machine),
            WITH_ROOT(test_available_in_a_control_group),
            WITH_ROOT(test_available_in_a_container),
    };
    return DPB_RUN_TESTS(tests);
}

/* `dpbench comm` where the buffers are an accelerator's: the lazy device and its communicator end
 * the process when the host touches their memory, and run what is launched as late as they may. */
#include "dpb_test.h"

#include <ftw.h>
#include <unistd.h>

#include "dpb_comm_bench.h"
#include "dpb_comm_shm.h"
#include "dpb_device_cpu.h"
#include "dpb_launcher.h"
#include "dpb_log.h"
#include "dpb_worker.h"
#include "lazy_comm.h"
#include "lazy_device.h"
#include "registry_for_tests.h"

/* ---- the parts ---- */

/* A mistake that the rank processes are told of: it must be found. */
#define PLANT_VARIABLE "DPB_TEST_COMM_BENCH_PLANT"

static struct dpb_device_ops device_ops;
static struct dpb_comm_ops comm_ops;
static dpb_device *inner_device;
static dpb_comm *inner_comm;

static bool is_planted(const char *what)
{
    const char *plant = getenv(PLANT_VARIABLE);

    return plant && strcmp(plant, what) == 0;
}

/* A device that says it copied. */
static dpb_status no_copy(dpb_device *device, void *to, const void *from, size_t bytes,
                          dpb_stream *stream)
{
    (void)device;
    (void)to;
    (void)from;
    (void)bytes;
    (void)stream;
    return DPB_OK;
}

static void close_device(dpb_device *device)
{
    lazy_device_close(device);
    dpb_device_cpu_ops.close(inner_device);
}

/* The members of the open device, which are known only now, under the names of the registry's. */
static dpb_status open_device(const struct dpb_device_config *config, dpb_device **device)
{
    DPB_TRY(dpb_device_cpu_ops.open(config, &inner_device));
    *device = lazy_device_of(inner_device, 7 + (uint64_t)config->local_rank);
    if (!*device)
        return DPB_ERR_NO_MEMORY;
    device_ops = *dpb_device_get_ops(*device);
    device_ops.open = open_device;
    device_ops.close = close_device;
    if (is_planted("copy"))
        device_ops.copy = no_copy;
    if (is_planted("sync"))
        lazy_device_set_fault(*device, LAZY_NO_SYNC);
    return DPB_OK;
}

static void close_comm(dpb_comm *comm)
{
    lazy_comm_close(comm);
    dpb_comm_shm_ops.close(inner_comm);
}

static dpb_status open_comm(const struct dpb_comm_config *config, dpb_comm **comm)
{
    static const struct dpb_comm_shm_options options = {.algorithm = DPB_ALGORITHM_DIRECT};
    struct dpb_comm_config inner = *config;

    inner.options = &options;
    inner.device = NULL;
    DPB_TRY(dpb_comm_shm_ops.open(&inner, &inner_comm));
    *comm = lazy_comm_of(inner_comm, config->device, LAZY_COMM_NO_FAULT);
    if (!*comm)
        return DPB_ERR_NO_MEMORY;
    comm_ops = *dpb_comm_get_base(*comm)->ops;
    comm_ops.flags |= DPB_COMM_SEGMENT;
    comm_ops.open = open_comm;
    comm_ops.close = close_comm;
    return DPB_OK;
}

static const struct dpb_registry *registry_lazy(void)
{
    static const struct dpb_device_ops *const devices[] = {&device_ops, &dpb_device_cpu_ops};
    static const struct dpb_comm_ops *const comms[] = {&comm_ops};
    static const struct dpb_part_name parts[] = {{"device", "lazy", "", NULL},
                                                 {"device", "cpu", "", NULL}, /* the default */
                                                 {"comm", "lazy", "", "lazy"}};
    static struct dpb_option_set options;
    static struct dpb_registry registry;

    device_ops = dpb_device_cpu_ops;
    device_ops.name = "lazy";
    device_ops.flags = DPB_DEVICE_ACCELERATOR;
    device_ops.open = open_device;
    comm_ops = dpb_comm_shm_ops;
    comm_ops.name = "lazy";
    comm_ops.flags = DPB_COMM_SEGMENT | DPB_COMM_DEVICE_MEMORY;
    comm_ops.open = open_comm;
    registry = *registry_for_tests();
    options = (struct dpb_option_set){registry.options->tables, registry.options->table_count,
                                      parts, sizeof(parts) / sizeof(parts[0])};
    registry.devices = devices;
    registry.device_count = 2;
    registry.comms = comms;
    registry.options = &options;
    return &registry;
}

/* ---- runs ---- */

static char folder[64];

static int remove_one(const char *path, const struct stat *about, int kind, struct FTW *walk)
{
    (void)about;
    (void)kind;
    (void)walk;
    return remove(path);
}

static int remove_folder(void **state)
{
    (void)state;
    unsetenv(PLANT_VARIABLE);
    return nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void ignore(void *ctx, enum dpb_log_level level, const char *line)
{
    (void)ctx;
    (void)level;
    (void)line;
}

static dpb_status run(const char *plant, const char *collectives, const char *call,
                      struct dpb_comm_bench_result *result)
{
    const char *const flags[][2] = {{"device", "lazy"},
                                    {"collective", collectives},
                                    {"dtype", "fp32,bf16,int64"},
                                    {"ranks", "2"},
                                    {"sizes", "8B..64KiB:x64"},
                                    {"call", call},
                                    {"iterations", "3"},
                                    {"warmup", "1"},
                                    {"timeout", "60s"}};
    const struct dpb_registry *registry = registry_lazy();
    struct dpb_settings settings = {0};
    struct dpb_comm_bench_config config = {.registry = registry, .settings = &settings, .cores = 2};
    char out[96];
    dpb_status st;

    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
        assert_int_equal(dpb_settings_add(&settings, dpb_comm_bench_option_set(registry),
                                          flags[i][0], flags[i][1], "test"),
                         DPB_OK);
    snprintf(folder, sizeof(folder), "/tmp/dpb-comm-device-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(out, sizeof(out), "%s/run", folder);
    config.out = out;
    setenv(PLANT_VARIABLE, plant, 1);
    st = dpb_comm_bench_run(&config, result);
    dpb_settings_release(&settings);
    return st;
}

static void release(struct dpb_comm_bench_result *result)
{
    dpb_json_free(result->records);
    free(result->folder);
}

/* ---- tests ---- */

#define COLLECTIVES "all-reduce,reduce-scatter,all-gather,broadcast,reduce"

/* Every collective, of three sizes in three types: elements are what they must be, though only the
 * device may touch them. */
static void check_right(const char *call)
{
    struct dpb_comm_bench_result result;

    assert_int_equal(run("", COLLECTIVES, call, &result), DPB_OK);
    assert_int_equal(dpb_json_size(result.records), 5 * 3 * 3);
    for (size_t i = 0; i < dpb_json_size(result.records); i++) {
        const dpb_json *record = dpb_json_at(result.records, i);

        assert_string_equal(dpb_json_as_string(dpb_json_get(record, "status"), ""), "ok");
        assert_int_equal(dpb_json_as_int(dpb_json_get(record, "wrong"), -1), 0);
        assert_int_equal(dpb_json_size(dpb_json_get(record, "samples_ns")), 3);
    }
    release(&result);
}

static void test_values_are_right(void **state)
{
    (void)state;
    check_right("blocking");
}

static void test_values_are_right_in_the_background(void **state)
{
    (void)state;
    check_right("background");
}

/* Would a result be found wrong that never came from the device? */
static void test_staging_is_checked(void **state)
{
    static const char *const plants[] = {"copy", "sync"};

    (void)state;
    for (size_t i = 0; i < sizeof(plants) / sizeof(plants[0]); i++) {
        struct dpb_comm_bench_result result;

        assert_int_equal(run(plants[i], "all-reduce", "blocking", &result), DPB_ERR_CHECK);
        assert_string_equal(
                dpb_json_as_string(dpb_json_path(dpb_json_at(result.records, 0), "status"), ""),
                "invalid");
        release(&result);
        remove_folder(state);
    }
    assert_non_null(mkdtemp(strcpy(folder, "/tmp/dpb-comm-device-XXXXXX")));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test_teardown(test_values_are_right, remove_folder),
            cmocka_unit_test_teardown(test_values_are_right_in_the_background, remove_folder),
            cmocka_unit_test_teardown(test_staging_is_checked, remove_folder),
    };

    if (argc > 1 && strcmp(argv[1], DPB_WORKER_VERB) == 0)
        return dpb_worker_main(registry_lazy());
    dpb_log_set_sink(ignore, NULL);
    return DPB_RUN_TESTS(tests);
}
